/*
 * Shares of one processor: nice values, weights and limits of control groups. Each experiment lets children
 * count in shared memory for a time, and prints what part of all counting the first group of them did, in thousandths.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(claim) ((claim) ? (void)0 : (void)printf("line %d: not so: %s (errno %d)\n", __LINE__, #claim, errno))
#define ROOT "/sys/fs/cgroup"
#define CHILDREN_MAX 64

struct side {
    int count, nice;
    const char *group;
    /* Tickets of the currency `shop` for each. */
    const char *tickets;
};

static volatile unsigned long *counts;
/* Children that wait for the gate; behind the counts. */
static volatile unsigned long *ready;

static int put(const char *path, const char *text) {
    int file = open(path, O_WRONLY | O_TRUNC);
    if (file < 0) return -1;
    ssize_t written = write(file, text, strlen(text));
    int error = errno;
    close(file);
    errno = error;
    return written < 0 ? -1 : 0;
}

static long number_in(const char *path, const char *label) {
    static char text[4096];
    int file = open(path, O_RDONLY);
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    close(file);
    if (length < 0) return -1;
    text[length] = 0;
    char *place = strstr(text, label);
    return place ? atol(place + strlen(label)) : -1;
}

/* Runs a command of three words at most; the number that it prints, or -1. */
static long lottery(char *name, char *first, char *second) {
    char *words[] = {name, first, second, NULL}, text[100] = "";
    int out[2], status;
    CHECK(pipe(out) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        dup2(out[1], 1);
        execvp(name, words);
        _exit(127);
    }
    close(out[1]);
    CHECK(read(out[0], text, sizeof text - 1) >= 0);
    close(out[0]);
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? atol(text) : -1;
}

static pid_t start(int index, const struct side *side, int gate[2]) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child != 0) return child;
    char byte;
    close(gate[1]);
    if (side->group) {
        char path[100];
        snprintf(path, sizeof path, "%s/%s/cgroup.procs", ROOT, side->group);
        CHECK(put(path, "0") == 0);
        fflush(stdout);
    }
    if (side->tickets) {
        char ticket[20], process[20];
        snprintf(ticket, sizeof ticket, "%ld", lottery("mktkt", (char *)side->tickets, "shop"));
        snprintf(process, sizeof process, "%d", getpid());
        CHECK(lottery("fund", ticket, process) == 0);
        fflush(stdout);
    }
    if (side->nice) CHECK(setpriority(PRIO_PROCESS, 0, side->nice) == 0);
    __sync_fetch_and_add(ready, 1);
    while (read(gate[0], &byte, 1) > 0) {}
    for (;;) counts[index * 8]++;
}

static void experiment(const char *name, struct side first, struct side second, int time_ms) {
    int gate[2], total = first.count + second.count;
    pid_t children[CHILDREN_MAX];
    CHECK(pipe(gate) == 0);
    memset((void *)counts, 0, CHILDREN_MAX * 64);
    *ready = 0;
    int made = 0;
    for (int i = 0; i < total; i++) {
        children[i] = start(i, i < first.count ? &first : &second, gate);
        made += children[i] > 0;
    }
    while (*ready < made) nanosleep(&(struct timespec){0, 20 * 1000000}, NULL);
    close(gate[0]);
    close(gate[1]);
    nanosleep(&(struct timespec){time_ms / 1000, time_ms % 1000 * 1000000L}, NULL);
    unsigned long sums[2] = {0, 0};
    for (int i = 0; i < total; i++) sums[i >= first.count] += counts[i * 8];
    for (int i = 0; i < total; i++)
        if (children[i] > 0) kill(children[i], SIGKILL);
    for (int i = 0; i < total; i++)
        if (children[i] > 0) waitpid(children[i], NULL, 0);
    unsigned long sum = sums[0] + sums[1];
    printf("%s %lu\n", name, sum ? sums[0] * 1000 / sum : 0);
    fflush(stdout);
}

int main(void) {
    counts = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ready = counts + CHILDREN_MAX * 8;
    experiment("nice", (struct side){1, 0, NULL}, (struct side){1, 5, NULL}, 800);
    CHECK(put(ROOT "/cgroup.subtree_control", "+cpu") == 0);
    CHECK(mkdir(ROOT "/a", 0755) == 0 && mkdir(ROOT "/b", 0755) == 0);
    CHECK(mkdir(ROOT "/a", 0755) == -1 && errno == EEXIST);
    CHECK(put(ROOT "/a/cpu.weight", "10001") == -1 && errno == ERANGE);
    CHECK(put(ROOT "/a/cpu.max", "10") == -1 && errno == EINVAL);
    CHECK(put(ROOT "/b/cpu.weight", "300") == 0);
    experiment("weight", (struct side){1, -5, "a"}, (struct side){1, 0, "b"}, 800);
    CHECK(put(ROOT "/b/cpu.weight", "100\n") == 0);
    experiment("fifty", (struct side){1, 0, "a"}, (struct side){50, 0, "b"}, 800);
    CHECK(put(ROOT "/a/cpu.max", "4000 20000") == 0);
    experiment("limit", (struct side){1, 0, "a"}, (struct side){1, 0, "b"}, 400);
    CHECK(number_in(ROOT "/a/cpu.stat", "nr_throttled ") >= 15);
    CHECK(number_in(ROOT "/a/cpu.stat", "nr_periods ") >= 15);
    CHECK(number_in(ROOT "/a/cpu.stat", "throttled_usec ") > 200000);
    CHECK(number_in(ROOT "/b/cpu.stat", "usage_usec ") > 300000);
    /* Two thirds of a currency's part for the first, whatever else is in it; the currency has a ticket of 1000. */
    CHECK(lottery("mkcur", "shop", NULL) == 0 && lottery("mktkt", "1000", "base") == 1);
    CHECK(lottery("fund", "1", "shop") == 0);
    experiment("tickets", (struct side){1, 0, NULL, "200"}, (struct side){1, 0, NULL, "100"}, 800);
    /* Another user may not inflate what is not its own, nor move tickets; but it has currencies of its own. */
    if (fork() == 0) {
        char process[20];
        snprintf(process, sizeof process, "%d", getpid());
        CHECK(setresuid(1000, 1000, 1000) == 0);
        CHECK(lottery("mktkt", "1", "base") == -1 && lottery("mktkt", "1", "shop") == -1);
        CHECK(lottery("rmtkt", "1", NULL) == -1 && lottery("unfund", "1", NULL) == -1);
        CHECK(lottery("fund", "2", process) == -1 && lottery("rmcur", "shop", NULL) == -1);
        CHECK(lottery("mkcur", "own", NULL) == 0 && lottery("mktkt", "7", "own") == 4);
        CHECK(lottery("fund", "4", process) == 0);
        exit(0);
    }
    wait(NULL);
    CHECK(lottery("rmtkt", "4", NULL) == 0 && lottery("rmcur", "own", NULL) == 0);
    CHECK(lottery("rmtkt", "1", NULL) == 0 && lottery("rmcur", "shop", NULL) == -1);
    CHECK(lottery("rmtkt", "2", NULL) == 0 && lottery("rmtkt", "3", NULL) == 0 && lottery("rmcur", "shop", NULL) == 0);
    /* A child is where its maker is, and a group with somebody in it stays. */
    CHECK(put(ROOT "/b/cgroup.procs", "0") == 0);
    if (fork() == 0) {
        CHECK(number_in("/proc/self/cgroup", "0::/b") == 0);
        CHECK(rmdir(ROOT "/b") == -1 && errno == EBUSY);
        exit(0);
    }
    wait(NULL);
    CHECK(put(ROOT "/cgroup.procs", "0") == 0);
    CHECK(number_in(ROOT "/b/cgroup.events", "populated ") == 0);
    CHECK(rmdir(ROOT "/a") == 0 && rmdir(ROOT "/b") == 0);
    puts("end");
}
