/* Start code for a Cortex-M3 or M4F, and what a program may ask of QEMU (semihosting). No library is needed. */
#include "start.h"

extern uint32_t data_begin[], data_end[], data_load[], bss_begin[], bss_end[], stack_top[];
int main(void);
void reset(void);
static void stop(void);

__attribute__((section(".vectors"), used)) static const uintptr_t vectors[16] = {
    (uintptr_t)stack_top, (uintptr_t)reset, (uintptr_t)stop, (uintptr_t)stop,
    (uintptr_t)stop,      (uintptr_t)stop,  (uintptr_t)stop,
};

/* GCC makes calls of memcpy and memset out of assignments of structures. */
void *memcpy(void *to, const void *from, size_t n_bytes)
{
    unsigned char *out = to;
    const unsigned char *in = from;
    while (n_bytes--)
        *out++ = *in++;
    return to;
}

void *memset(void *to, int value, size_t n_bytes)
{
    unsigned char *out = to;
    while (n_bytes--)
        *out++ = (unsigned char)value;
    return to;
}

static uintptr_t ask_host(uintptr_t operation, const void *arguments)
{
    register uintptr_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = arguments;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

void quit(int status)
{
    const uintptr_t arguments[2] = {0x20026, (uintptr_t)status};
    for (;;)
        ask_host(0x20, arguments);
}

static void stop(void)
{
    quit(99);
}

void reset(void)
{
#ifdef __ARM_FP
    *(volatile uint32_t *)0xe000ed88 |= 0xfu << 20; /* before the first instruction that needs the FPU */
    __asm__ volatile("dsb\n isb");
#endif
    memcpy(data_begin, data_load, (size_t)((char *)data_end - (char *)data_begin));
    memset(bss_begin, 0, (size_t)((char *)bss_end - (char *)bss_begin));
    *(volatile uint32_t *)0xe000e014 = 0xffffff; /* SysTick counts down from here */
    *(volatile uint32_t *)0xe000e018 = 0;
    *(volatile uint32_t *)0xe000e010 = 5;
    quit(main());
}

uint32_t ticks(void)
{
    return *(volatile uint32_t *)0xe000e018;
}

void print(const char *text)
{
    ask_host(0x04, text);
}

int open_file(const char *name, int to_write)
{
    size_t length = 0;
    uintptr_t arguments[3];
    while (name[length])
        length++;
    arguments[0] = (uintptr_t)name;
    arguments[1] = to_write ? 5 : 1;
    arguments[2] = length;
    return (int)ask_host(0x01, arguments);
}

size_t read_file(int file, void *to, size_t n_bytes)
{
    const uintptr_t arguments[3] = {(uintptr_t)file, (uintptr_t)to, n_bytes};
    return n_bytes - ask_host(0x06, arguments);
}

void write_file(int file, const void *from, size_t n_bytes)
{
    const uintptr_t arguments[3] = {(uintptr_t)file, (uintptr_t)from, n_bytes};
    ask_host(0x05, arguments);
}
