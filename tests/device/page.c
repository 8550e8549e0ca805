/* What a page or node calls: memory for a row and for what happens to it, and the walk. */
#include "walk.h"

float row[THRIFTY_N_COLUMNS];
double number[N_NUMBERS];

int n_columns(void);
int n_numbers(void);
float *row_memory(void);
double *number_memory(void);
void walk_row(int key);
int failures(void);

int n_columns(void)
{
    return THRIFTY_N_COLUMNS;
}

int n_numbers(void)
{
    return N_NUMBERS;
}

float *row_memory(void)
{
    return row;
}

double *number_memory(void)
{
    return number;
}

void walk_row(int key)
{
    walk(row, (uint64_t)key, 0, number);
}

int failures(void)
{
    return thrifty_self_test();
}
