/*
 * What the row files share: the clock, how a row fails, the tables of rows.
 *
 * A row is a function that does its operation `count` times and returns the nanoseconds that it took, or -1 after
 * failed(). It returns only what it measured: preparation and clean-up are outside of the two readings of the clock.
 * Under QEMU's -icount a nanosecond is a guest instruction, so a row may not depend on anything but `count`.
 */
#pragma once
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE_BYTES 4096

/* Where the two sides of a row are: wherever the system puts them, on one processor of two, on one each. */
enum place { ANYWHERE, SAME, DIFFERENT };

struct row {
    const char *name;
    int64_t (*measure)(long count);
    /* Bits of the places besides ANYWHERE that it is measured in, as NAME@same and NAME@diff. */
    unsigned places;
    /* It is not measured ANYWHERE: it needs two processors. */
    int only_placed;
    /* How many of something there are around the operation; `row_size` while the row runs. */
    long size;
};

#define BOTH_PLACES (1 << SAME | 1 << DIFFERENT)

/* A program's tables, in the order of its rows; NULL ends them, and a row without a name ends a table. */
extern const struct row *const row_tables[];

/* The running row's `size`. */
extern long row_size;

/* How many operations each of `count` is: a row sets it if it is not 1. */
extern long row_parts;

/* Remembers what did not work and errno; a row returns its value. */
int64_t failed(const char *what);

#define CHECK(works, what)                                                                                             \
    do {                                                                                                               \
        if (!(works)) return failed(what);                                                                             \
    } while (0)

/* Puts the calling side where the row's place wants it; the side that is measured is 0, the other one 1. 0 if it worked. */
int take_place(int side);

/* The program's own file, to start it again with --noop. */
extern char own_path[512];

/*
 * A mark for `aegis bench --trace-row` (bench/trace/trace.c): it records the address of the next instruction, and is none itself.
 * 0 is a reading of the clock, 1 begins a batch, 2 ends it. From an odd reading in a batch to the next even one, a row measures.
 */
#define MARK(kind)                                                                                                     \
    __asm__ volatile(".pushsection aegis_marks, \"\", @progbits\n\t.quad 1f, " #kind "\n\t.popsection\n1:" ::: "memory")

static inline int64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    MARK(0);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* A system call as an instruction, without the C library around it. */
static inline long raw_call(long number, long first, long second, long third) {
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(first), "S"(second), "d"(third)
                     : "rcx", "r11", "memory");
    return result;
}
