/* Threads that map, touch and unmap at once: each has its own pages, fresh ones are zeros, and what munmap returned for
   is gone for every thread, also one that has just read it on another processor. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096
#define PAGES 16
#define WORKERS 4

static int rounds = 50;
static atomic_int wrong, step;
static char *_Atomic shown;
static sigjmp_buf back;
static volatile sig_atomic_t is_reading;

static char *fresh(int pages) {
    return mmap(NULL, (size_t)pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void *map_and_unmap(void *argument) {
    char tag = (char)(long)argument;
    for (int round = 0; round < rounds; round++) {
        int pages = 1 + (round * 7 + tag) % PAGES;
        char *start = fresh(pages);
        if (start == MAP_FAILED) wrong |= 1;
        if (start == MAP_FAILED) return 0;
        for (int page = 0; page < pages; page++) {
            if (start[page * PAGE + 8] != 0) wrong |= 2;
            memset(start + page * PAGE, tag, 64);
        }
        for (int page = 0; page < pages; page++)
            if (start[page * PAGE] != tag || start[page * PAGE + 63] != tag) wrong |= 4;
        /* In two parts, the upper one first or last. */
        int lower = pages / 2;
        if (round % 2 && munmap(start + lower * PAGE, (size_t)(pages - lower) * PAGE)) wrong |= 8;
        if (lower && munmap(start, (size_t)lower * PAGE)) wrong |= 8;
        if (round % 2 == 0 && munmap(start + lower * PAGE, (size_t)(pages - lower) * PAGE)) wrong |= 8;
    }
    return 0;
}

static void go_back(int number) {
    (void)number;
    if (is_reading) siglongjmp(back, 1);
}

static void await(int wanted) {
    for (int looks = 1; step != wanted; looks++)
        if (looks % 64 == 0) sched_yield();
}

/* Reads what it is shown, twice: while it is there, and after it went. */
static void *read_twice(void *argument) {
    (void)argument;
    for (volatile int round = 0; round < rounds; round++) {
        await(4 * round + 1);
        volatile char *page = shown;
        for (int i = 0; i < PAGES; i++)
            if (page[i * PAGE] != (char)round) wrong |= 16;
        step = 4 * round + 2;
        await(4 * round + 3);
        for (volatile int i = 0; i < PAGES; i++) {
            is_reading = 1;
            if (sigsetjmp(back, 1) == 0) {
                (void)page[i * PAGE];
                wrong |= 32;
            }
            is_reading = 0;
        }
        step = 4 * round + 4;
    }
    return 0;
}

int main(int count, char **words) {
    if (count > 1) rounds = atoi(words[1]);
    pthread_t threads[WORKERS], reader;
    for (long i = 0; i < WORKERS; i++) pthread_create(threads + i, NULL, map_and_unmap, (void *)(i + 1));
    for (int i = 0; i < WORKERS; i++) pthread_join(threads[i], NULL);
    printf("own pages: %d\n", wrong);

    struct sigaction action = {.sa_handler = go_back};
    sigaction(SIGSEGV, &action, NULL);
    pthread_create(&reader, NULL, read_twice, NULL);
    for (int round = 0; round < rounds; round++) {
        char *start = fresh(PAGES);
        for (int page = 0; page < PAGES; page++) start[page * PAGE] = (char)round;
        shown = start;
        step = 4 * round + 1;
        await(4 * round + 2);
        munmap(start, PAGES * PAGE);
        step = 4 * round + 3;
        await(4 * round + 4);
    }
    pthread_join(reader, NULL);
    printf("gone for all: %d\n", wrong);
    return 0;
}
