/* A contestant of the scheduling experiments: computes until a given second, and says how far it came in each window.
 *
 *   contest KIND PREFIX START_S WINDOW_COUNT WINDOW_MS
 *
 * Before START_S of the machine's monotonic clock it computes without counting, so that all contestants compete from
 * the first window on, whenever they were started. One line for each window: `PREFIXw INDEX LOOPS`. A loop is
 * STEPS_PER_LOOP steps of a recurrence on one 32-bit word and one store for each, 8,000 instructions or so: it calls
 * nothing, touches no more than one page, and cannot be shortened by the compiler. Who starts after START_S fails.
 *
 * KIND says how it tries to get more than its part:
 *   spin     not at all
 *   forks    by 50 children that compute as well
 *   threads  by 8 threads
 *   yields   by giving its turn back just before 10 ms are over
 *   calls    by a million system calls and more
 *   sleeps   by sleeping for 1 ms after every 4 ms
 *   late     not at all, and sleeps until half of the windows are over
 *
 *   contest --init WINDOW_COUNT WINDOW_MS NAME=WEIGHT=KIND[=GROUP]…
 *
 * As the first process of a Linux machine it makes a control group with that `cpu.weight` for each word, runs a
 * contestant in each with the prefix `NAME | `, and ends the machine. They start a few seconds later. With GROUP the
 * group is in one of that name, which all such groups share and which has the weight that groups begin with. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STEPS_PER_LOOP = 1000, WINDOWS_MAX = 4096, CHILDREN = 50, THREADS = 8, CALLS_PER_LOOP = 100, INIT_WAIT_S = 5 };

/* When windows begin and end, in nanoseconds of the monotonic clock. */
static uint64_t start_ns, window_ns;
static unsigned window_count;
/* Loops of each window, shared with children and threads. */
static uint64_t *counts;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void fail(const char *what) {
    fprintf(stderr, "contest: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void loop(void) {
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

/* The window of a time; WINDOWS_MAX before the first. */
static unsigned window_of(uint64_t at_ns) {
    return at_ns < start_ns ? WINDOWS_MAX : (unsigned)((at_ns - start_ns) / window_ns);
}

/* Computes to the end of the last window. `rest` runs after each loop with the time that it ended. */
static void compute(void (*rest)(uint64_t)) {
    for (;;) {
        loop();
        uint64_t at_ns = now_ns();
        unsigned window = window_of(at_ns);
        if (window < window_count)
            __atomic_fetch_add(&counts[window], 1, __ATOMIC_RELAXED);
        else if (window < WINDOWS_MAX)
            return;
        rest(at_ns);
    }
}

static void rest_not(uint64_t at_ns) {
    (void)at_ns;
}

static void rest_yielding(uint64_t at_ns) {
    static uint64_t turn_ns;
    if (turn_ns == 0 || at_ns - turn_ns > 20000000)
        turn_ns = at_ns;
    if (at_ns - turn_ns > 9500000) {
        sched_yield();
        turn_ns = now_ns();
    }
}

static void rest_calling(uint64_t at_ns) {
    (void)at_ns;
    for (int call = 0; call < CALLS_PER_LOOP; call++)
        syscall(SYS_getppid);
}

static void rest_sleeping(uint64_t at_ns) {
    static uint64_t woken_ns;
    if (at_ns - woken_ns > 4000000) {
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
        woken_ns = now_ns();
    }
}

static void sleep_until(uint64_t at_ns) {
    struct timespec at = {(time_t)(at_ns / 1000000000), (long)(at_ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        continue;
}

static void with_children(void) {
    for (int child = 0; child < CHILDREN; child++) {
        pid_t pid = fork();
        if (pid < 0)
            fail("fork");
        if (pid == 0) {
            compute(rest_not);
            _exit(0);
        }
    }
    compute(rest_not);
    for (int child = 0; child < CHILDREN; child++) {
        int status;
        if (wait(&status) < 0 || status != 0)
            fail("a child");
    }
}

static void *thread(void *unused) {
    compute(rest_not);
    return unused;
}

static void with_threads(void) {
    pthread_t threads[THREADS];
    for (int index = 0; index < THREADS; index++)
        if ((errno = pthread_create(&threads[index], NULL, thread, NULL)) != 0)
            fail("pthread_create");
    for (int index = 0; index < THREADS; index++)
        pthread_join(threads[index], NULL);
}

/* Runs one contestant; `words` are PREFIX START_S WINDOW_COUNT WINDOW_MS. */
static void contest(const char *kind, char **words) {
    start_ns = strtoull(words[1], NULL, 10) * 1000000000;
    window_count = (unsigned)strtoul(words[2], NULL, 10);
    window_ns = strtoull(words[3], NULL, 10) * 1000000;
    if (now_ns() >= start_ns) {
        errno = ETIME;
        fail("the start");
    }
    if (window_count == 0 || window_count >= WINDOWS_MAX || window_ns == 0) {
        errno = EINVAL;
        fail("windows");
    }
    counts = mmap(NULL, WINDOWS_MAX * sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (counts == MAP_FAILED)
        fail("mmap");
    if (strcmp(kind, "spin") == 0)
        compute(rest_not);
    else if (strcmp(kind, "forks") == 0)
        with_children();
    else if (strcmp(kind, "threads") == 0)
        with_threads();
    else if (strcmp(kind, "yields") == 0)
        compute(rest_yielding);
    else if (strcmp(kind, "calls") == 0)
        compute(rest_calling);
    else if (strcmp(kind, "sleeps") == 0)
        compute(rest_sleeping);
    else if (strcmp(kind, "late") == 0) {
        sleep_until(start_ns + window_count / 2 * window_ns);
        compute(rest_not);
    } else {
        errno = EINVAL;
        fail(kind);
    }
    for (unsigned window = 0; window < window_count; window++)
        printf("%sw %u %llu\n", words[0], window, (unsigned long long)counts[window]);
    fflush(stdout);
}

static void write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        fail(path);
    close(fd);
}

/* Makes a control group, or finds that it is there. */
static void make_group(const char *path) {
    if (mkdir(path, 0755) != 0 && errno != EEXIST)
        fail(path);
}

/* Starts `NAME=WEIGHT=KIND[=GROUP]` in a control group of its own; `words` are WINDOW_COUNT WINDOW_MS. */
static void start_group(char *word, uint64_t start_s, char **words) {
    char folder[128] = "/cgroup", path[256], prefix[128], start[32];
    char *name = strtok(word, "="), *weight = strtok(NULL, "="), *kind = strtok(NULL, "=");
    char *outer = strtok(NULL, "=");
    if (name == NULL || weight == NULL || kind == NULL) {
        errno = EINVAL;
        fail("a contestant");
    }
    if (outer != NULL) {
        snprintf(folder, sizeof folder, "/cgroup/%s", outer);
        make_group(folder);
        snprintf(path, sizeof path, "%s/cgroup.subtree_control", folder);
        write_file(path, "+cpu");
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    make_group(path);
    snprintf(path, sizeof path, "%s/%s/cpu.weight", folder, name);
    write_file(path, weight);
    pid_t pid = fork();
    if (pid < 0)
        fail("fork");
    if (pid == 0) {
        snprintf(path, sizeof path, "%s/%s/cgroup.procs", folder, name);
        write_file(path, "0");
        snprintf(prefix, sizeof prefix, "%s | ", name);
        snprintf(start, sizeof start, "%llu", (unsigned long long)start_s);
        char *own[] = {prefix, start, words[0], words[1]};
        contest(kind, own);
        _exit(0);
    }
}

/* `words` are WINDOW_COUNT WINDOW_MS and the contestants. */
static void init(char **words) {
    uint64_t start_s = now_ns() / 1000000000 + INIT_WAIT_S;
    mkdir("/cgroup", 0755);
    if (mount("cgroup2", "/cgroup", "cgroup2", 0, NULL) != 0)
        fail("mount cgroup2");
    write_file("/cgroup/cgroup.subtree_control", "+cpu");
    for (char **word = words + 2; *word != NULL; word++)
        start_group(*word, start_s, words);
    while (wait(NULL) > 0)
        continue;
    printf("end\n");
    fflush(stdout);
    reboot(RB_POWER_OFF);
}

int main(int count, char **words) {
    if (count >= 5 && strcmp(words[1], "--init") == 0)
        init(words + 2);
    else if (count == 6)
        contest(words[1], words + 2);
    else {
        fprintf(stderr, "usage: contest KIND PREFIX START_S WINDOW_COUNT WINDOW_MS\n");
        return 2;
    }
    return 0;
}
