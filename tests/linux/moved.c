/*
 * Threads and processes that are moved from processor to processor by others while they take locks, are made and end:
 * a thread that waits for a lock may be told to go elsewhere just then. Says that all came to their end.
 * Arguments: processors, milliseconds.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FAMILIES = 1, PLACES = 4 };
static volatile pid_t *places;
static int processors;

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
static unsigned draw(unsigned *state) {
    *state = *state * 1664525 + 1013904223;
    return *state >> 16;
}
/* To one processor, with another weight. */
static void move(pid_t whom, unsigned *state) {
    static const int policies[] = {SCHED_OTHER, SCHED_BATCH, SCHED_IDLE};
    struct sched_param priority = {0};
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(draw(state) % processors, &set);
    sched_setaffinity(whom, sizeof set, &set);
    sched_setscheduler(whom, policies[draw(state) % 3], &priority);
}
/* Moves others and itself, for as many rounds as it is told. */
static void move_all(int rounds, unsigned *state) {
    for (int i = 0; i < rounds; i++) {
        move(draw(state) % 3 ? places[draw(state) % PLACES] : 0, state);
        if (draw(state) % 4 == 0) sched_yield();
    }
}
/* Makes children that do that and end, beside which it does so too. */
static void work(long end_ms) {
    unsigned state = 1;
    for (int round = 0; now_ms() < end_ms; round++) {
        pid_t child = fork();
        if (child == 0) {
            state = round;
            move_all(draw(&state) % 100, &state);
            _exit(7);
        }
        if (child < 0) _exit(100);
        places[round % PLACES] = child;
        move_all(draw(&state) % 50, &state);
        int status;
        while (waitpid(-1, &status, round % 4 == 3 ? 0 : WNOHANG) > 0)
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) _exit(101);
    }
    _exit(0);
}
int main(int count, char **words) {
    processors = count > 1 ? atoi(words[1]) : 2;
    long end_ms = now_ms() + (count > 2 ? atoi(words[2]) : 1000);
    places = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int place = 0; place < FAMILIES; place++)
        if (fork() == 0) work(end_ms);
    int good = 0, status;
    while (wait(&status) > 0) good += status == 0;
    printf("%d of %d came to their end\n", good, FAMILIES);
    return good != FAMILIES;
}
