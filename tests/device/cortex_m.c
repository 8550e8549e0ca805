/* Walk the rows of rows.bin on a Cortex-M, and write to walked.bin what happens. The last two
 * numbers are bytes of the deepest stack and of a session; the exit status is 1 if a row of the self-test goes another
 * way. */
#include "start.h"
#include "walk.h"

#define N_PAINTED 512

/* Bytes below a place of the stack that were overwritten since they were painted. */
static __attribute__((noinline)) unsigned stack_used(uintptr_t top, int paint)
{
    volatile uint8_t below[N_PAINTED];
    unsigned k;
    if (paint)
        for (k = 0; k < N_PAINTED; k++)
            below[k] = 0xa5;
    for (k = 0; k < N_PAINTED && below[k] == 0xa5; k++)
        ;
    return (unsigned)(top - (uintptr_t)&below[k]);
}

int main(void)
{
    const int rows = open_file("rows.bin", 0), walked = open_file("walked.bin", 1);
    float row[THRIFTY_N_COLUMNS];
    double number[N_NUMBERS];
    thrifty_session session;
    unsigned deepest = 0;
    uint64_t key;
    uintptr_t top;
    __asm__ volatile("mov %0, sp" : "=r"(top));
    for (key = 0; read_file(rows, row, sizeof row) == sizeof row; key++) {
        int column;
        stack_used(top, 1);
        thrifty_start(&session, key);
        while ((column = thrifty_next(&session)) >= 0)
            thrifty_give(&session, row[column]);
        {
            const unsigned used = stack_used(top, 0);
            deepest = used > deepest ? used : deepest;
        }
        walk(row, key, 0, number);
        write_file(walked, number, sizeof number);
    }
    {
        const double sizes[2] = {deepest, sizeof session};
        write_file(walked, sizes, sizeof sizes);
    }
    return thrifty_self_test() ? 1 : 0;
}
