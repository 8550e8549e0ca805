/* Walk the rows of the self-test on an ATmega, and print to its serial port how many went another way. */
#include <avr/interrupt.h>
#include <avr/io.h>
#include <avr/sleep.h>

#include "thrifty_model.h"

static void put(char letter)
{
    while (!(UCSR0A & (1 << UDRE0)))
        ;
    UDR0 = (uint8_t)letter;
}

int main(void)
{
    const char *text = "rows that went another way: ";
    const int failures = thrifty_self_test();
    UCSR0B = 1 << TXEN0;
    while (*text)
        put(*text++);
    put((char)('0' + (failures > 9 ? 9 : failures)));
    put('\n');
    cli();
    sleep_enable();
    sleep_cpu(); /* without interrupts: the emulator ends */
    return 0;
}
