/* Walk rows from standard input, and write to standard output what happens. */
#include <stdio.h>
#include <stdlib.h>

#include "walk.h"

int main(int n_arguments, char **arguments)
{
    const int point = n_arguments > 1 ? atoi(arguments[1]) : 0;
    float row[THRIFTY_N_COLUMNS];
    double number[N_NUMBERS];
    uint64_t key;
    for (key = 0; fread(row, sizeof row, 1, stdin); key++) {
        walk(row, key, point, number);
        fwrite(number, sizeof number, 1, stdout);
    }
    return thrifty_self_test();
}
