/*
 * Processes that are killed while they are stopped: none of their threads runs on meanwhile. A child of three threads
 * stops itself; its parent kills it once it is stopped, and looks whether one of its threads counted after that.
 * Says how many survived, and whether threads of many counted: of few they may, where the host runs a processor of the
 * machine so seldom that a thread has not seen the stop yet when the parent looks.
 * Argument: rounds.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long *counts;

static void *count(void *mine) {
    for (;;)
        ++*(volatile long *)mine;
}
static void stop_with_threads(void) {
    pthread_t thread;
    for (int i = 0; i < 2; i++)
        pthread_create(&thread, NULL, count, (void *)&counts[i]);
    while (counts[0] == 0 || counts[1] == 0) sched_yield();
    raise(SIGSTOP);
    counts[2] = 1;
    _exit(1);
}
int main(int argc, char **argv) {
    int survived = 0, counted = 0, rounds = atoi(argv[1]);
    counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int round = 0; round < rounds; round++) {
        counts[0] = counts[1] = counts[2] = 0;
        int has_threads = round % 4 == 3, status;
        pid_t child = fork();
        if (child == 0) {
            if (has_threads) stop_with_threads();
            raise(SIGSTOP), _exit(1);
        }
        waitpid(child, &status, WUNTRACED);
        usleep(2000);
        long before = counts[0] + counts[1] + counts[2];
        kill(child, SIGKILL), waitpid(child, &status, 0);
        survived += !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL;
        counted += counts[0] + counts[1] + counts[2] != before;
    }
    printf("%d survived SIGKILL, %s counted after it\n", survived, counted > rounds / 16 ? "many" : "few");
    return 0;
}
