/* What the programs of the scheduling experiments share: time, work of a known length, control groups, numbers to say. */
#ifndef COMMON_H
#define COMMON_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GROUPS "/sys/fs/cgroup"

enum { STEPS_PER_LOOP = 1000 };

static inline void fail(const char *what) {
    fprintf(stderr, "lottery: %s: %s\n", what, strerror(errno));
    exit(1);
}

static inline uint64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline uint64_t now_ns(void) {
    return clock_ns(CLOCK_MONOTONIC);
}

static inline void sleep_until(uint64_t at_ns) {
    struct timespec at = {(time_t)(at_ns / 1000000000), (long)(at_ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        continue;
}

/* STEPS_PER_LOOP steps of a recurrence on one 32-bit word and one store for each, 8,000 instructions or so: it calls
 * nothing, touches no more than one page, and cannot be shortened by the compiler. */
static inline void loop(void) {
    static volatile uint32_t kept;
    uint32_t x = 2463534242u;
    for (int step = 0; step < STEPS_PER_LOOP; step++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        kept = x;
    }
    (void)kept;
}

static inline void write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        fail(path);
    close(fd);
}

/* As the first process of a Linux machine: the file systems that are there on Aegis from the start. */
static inline void mount_all(void) {
    mkdir("/proc", 0755);
    mkdir("/sys", 0755);
    mkdir("/tmp", 0755);
    if (mount("proc", "/proc", "proc", 0, NULL) != 0 || mount("sysfs", "/sys", "sysfs", 0, NULL) != 0 ||
        mount("cgroup2", GROUPS, "cgroup2", 0, NULL) != 0)
        fail("mount");
}

/* Writes to a file of a group; "." is the root. */
static inline void write_group(const char *group, const char *file, const char *text) {
    char path[256];
    snprintf(path, sizeof path, GROUPS "/%s/%s", group, file);
    write_file(path, text);
}

/* Lets the groups in a group compete by their weights. */
static inline void share_group(const char *group) {
    write_group(group, "cgroup.subtree_control", "+cpu");
}

static inline void set_weight(const char *group, const char *weight) {
    write_group(group, "cpu.weight", weight);
}

/* Makes a group, or finds that it is there. */
static inline void find_group(const char *group) {
    char path[256];
    snprintf(path, sizeof path, GROUPS "/%s", group);
    if (mkdir(path, 0755) != 0 && errno != EEXIST)
        fail(path);
}

static inline void make_group(const char *group, const char *weight) {
    find_group(group);
    set_weight(group, weight);
}

static inline void enter_group(const char *group) {
    write_group(group, "cgroup.procs", "0");
}

/* Says how far a contestant came in a window, or another of its numbers. */
static inline void say(const char *prefix, unsigned index, uint64_t number) {
    printf("%sw %u %llu\n", prefix, index, (unsigned long long)number);
}

static inline void end_machine(void) {
    printf("end\n");
    fflush(stdout);
    reboot(RB_POWER_OFF);
}

#endif
