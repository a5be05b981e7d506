/* A contestant of the scheduling experiments: computes until a given second, and says how far it came in each window.
 *
 *   contest KIND PREFIX START_S WINDOW_COUNT WINDOW_MS
 *
 * Before START_S of the machine's monotonic clock it computes without counting, so that all contestants compete from
 * the first window on, whenever they were started. One line for each window: `PREFIXw INDEX LOOPS`. A start after
 * START_S fails.
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
#include "common.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { WINDOWS_MAX = 4096, CHILDREN = 50, THREADS = 8, CALLS_PER_LOOP = 100, INIT_WAIT_S = 5 };

/* When windows begin and end, in nanoseconds of the monotonic clock. */
static uint64_t start_ns, window_ns;
static unsigned window_count;
/* Loops of each window, shared with children and threads. */
static uint64_t *counts;

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
        say(words[0], window, counts[window]);
    fflush(stdout);
}

/* Starts `NAME=WEIGHT=KIND[=GROUP]` in a control group of its own; `words` are WINDOW_COUNT WINDOW_MS. */
static void start_group(char *word, uint64_t start_s, char **words) {
    char group[128], prefix[128], start[32];
    char *name = strtok(word, "="), *weight = strtok(NULL, "="), *kind = strtok(NULL, "=");
    char *outer = strtok(NULL, "=");
    if (name == NULL || weight == NULL || kind == NULL) {
        errno = EINVAL;
        fail("a contestant");
    }
    if (outer != NULL) {
        find_group(outer);
        share_group(outer);
    }
    snprintf(group, sizeof group, "%s%s%s", outer != NULL ? outer : "", outer != NULL ? "/" : "", name);
    make_group(group, weight);
    pid_t pid = fork();
    if (pid < 0)
        fail("fork");
    if (pid == 0) {
        enter_group(group);
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
    mount_all();
    share_group(".");
    for (char **word = words + 2; *word != NULL; word++)
        start_group(*word, start_s, words);
    while (wait(NULL) > 0)
        continue;
    end_machine();
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
