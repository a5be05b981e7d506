/*
 * A thread that is not the first runs a program: it has the process's number then, and nothing is left of the others.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char program[4096];

static void *waits(void *argument) {
    for (;;) pause();
    return argument;
}
static void *executes(void *argument) {
    execl(program, "exchanged", (char *)argument, NULL);
    _exit(9);
}
static int threads(void) {
    int count = 0;
    DIR *directory = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}
static void *nothing(void *argument) { return argument; }

int main(int count, char **words) {
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0) return 1;
    setvbuf(stdout, NULL, _IONBF, 0);
    if (count > 1) {
        pthread_t thread;
        printf("%s: number %d, threads %d\n", words[1], gettid() == getpid() && syscall(SYS_gettid) == getpid(), threads());
        setpriority(PRIO_PROCESS, getpid(), 3);
        printf("nice %d, address %d\n", getpriority(PRIO_PROCESS, 0), syscall(SYS_set_tid_address, NULL) == getpid());
        void *head = NULL;
        size_t length = 0;
        printf("list %ld\n", syscall(SYS_get_robust_list, getpid(), &head, &length));
        printf("another %d\n", pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL));
        printf("signal %d %d\n", tgkill(getpid(), gettid(), 0), kill(getpid(), 0));
        /* In a process of one thread that is not the first the next one has its turn. */
        if (strcmp(words[1], "once") == 0) {
            pthread_create(&thread, NULL, executes, "again");
            for (;;) pause();
        }
        _exit(0);
    }
    for (int way = 0; way < 3; way++) {
        pid_t child = fork();
        if (child == 0) {
            pthread_t thread;
            for (int i = 0; i < 3; i++) pthread_create(&thread, NULL, waits, NULL);
            pthread_create(&thread, NULL, executes, way == 0 ? "once" : way == 1 ? "ended" : "waited");
            /* The first may have gone before. */
            if (way == 1) pthread_exit(NULL);
            if (way == 2) pthread_join(thread, NULL);
            for (;;) pause();
        }
        int status;
        printf("waited %d, status %d\n", waitpid(child, &status, 0) == child, status);
    }
    return 0;
}
