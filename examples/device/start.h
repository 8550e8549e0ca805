/* What start.c offers a program on an emulated Cortex-M. */
#ifndef START_H
#define START_H

#include <stddef.h>
#include <stdint.h>

/* SysTick, counting down modulo 2^24. With -icount shift=0 a tick of 25 MHz is 40 instructions. */
uint32_t ticks(void);
void print(const char *text);
int open_file(const char *name, int to_write);
size_t read_file(int file, void *to, size_t n_bytes);
void write_file(int file, const void *from, size_t n_bytes);
void quit(int status);

#endif
