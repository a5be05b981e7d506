/* Figure 11: eight threads that hold one lock for 50 ms of their time, and then compute for 50 ms without it.
 *
 * They are of two groups, of which the first has twice the tickets of the second, by nice values (1.95 on a Linux of
 * today). The lock is a mutex of POSIX threads with priority inheritance: on Aegis the lottery lock. */
#include "common.h"
#include "tasks.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { THREADS = 8, HOLD_NS = 50000000, BUCKETS = 40, BUCKET_MS = 100, NICE_OF_SECOND = 3, WAIT_S = 2 };

static pthread_mutex_t mutex;
static uint64_t start_ns, end_ns;
/* For each group: how many waits were how long, by BUCKET_MS, and microseconds of all of them. */
static uint64_t waits[2][BUCKETS + 1];

static void compute(void) {
    uint64_t until_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) + HOLD_NS;
    while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < until_ns)
        loop();
}

static void note(int group, uint64_t wait_ns) {
    uint64_t bucket = wait_ns / (BUCKET_MS * 1000000);
    __atomic_fetch_add(&waits[group][bucket < BUCKETS ? bucket : BUCKETS - 1], 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&waits[group][BUCKETS], wait_ns / 1000, __ATOMIC_RELAXED);
}

static void *work(void *argument) {
    int group = (intptr_t)argument;
    if (group == 1 && setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE_OF_SECOND) != 0)
        fail("setpriority");
    sleep_until(start_ns);
    for (;;) {
        uint64_t asked_ns = now_ns();
        if (asked_ns >= end_ns)
            return NULL;
        pthread_mutex_lock(&mutex);
        uint64_t held_ns = now_ns();
        if (held_ns < end_ns) {
            note(group, held_ns - asked_ns);
            compute();
        }
        pthread_mutex_unlock(&mutex);
        compute();
    }
}

/* `words` are DURATION_S. For each group: its waits by how long they were, then the microseconds of all of them. */
void run_locks(char **words) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    if ((errno = pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT)) != 0 ||
        (errno = pthread_mutex_init(&mutex, &attributes)) != 0)
        fail("a mutex with priority inheritance");
    start_ns = now_ns() + WAIT_S * 1000000000ull;
    end_ns = start_ns + strtoull(words[0], NULL, 10) * 1000000000;
    pthread_t threads[THREADS];
    for (intptr_t index = 0; index < THREADS; index++)
        if ((errno = pthread_create(&threads[index], NULL, work, (void *)(index % 2))) != 0)
            fail("pthread_create");
    for (int index = 0; index < THREADS; index++)
        pthread_join(threads[index], NULL);
    for (int group = 0; group < 2; group++)
        for (unsigned number = 0; number <= BUCKETS; number++)
            say(group == 0 ? "a | " : "b | ", number, waits[group][number]);
}
