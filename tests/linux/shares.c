/*
 * Who gets how much of one processor: nice values, weights and limits of control groups. Each experiment lets children
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
