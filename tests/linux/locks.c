/*
 * Locks whose word names the holder (FUTEX_LOCK_PI): the next holder, what becomes of them when it ends, and what
 * is refused. The same on Linux.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(claim) ((claim) ? (void)0 : (void)printf("line %d: not so: %s (errno %d)\n", __LINE__, #claim, errno))

/* As in <linux/futex.h>, which is not there for every compiler. */
#define FUTEX_LOCK_PI 6
#define FUTEX_UNLOCK_PI 7
#define FUTEX_LOCK_PI_PRIVATE (6 | 128)
#define FUTEX_UNLOCK_PI_PRIVATE (7 | 128)
#define FUTEX_TRYLOCK_PI_PRIVATE (8 | 128)
#define FUTEX_TID_MASK 0x3fffffff
#define FUTEX_OWNER_DIED 0x40000000
#define FUTEX_WAITERS 0x80000000

typedef volatile uint32_t word_t;

static long futex(word_t *word, int operation, const struct timespec *until) {
    return syscall(SYS_futex, word, operation, 0, until);
}
static uint32_t own(void) { return (uint32_t)syscall(SYS_gettid); }
static uint32_t holder(word_t word) { return word & FUTEX_TID_MASK; }
static void nap(void) { nanosleep(&(struct timespec){0, 2000000}, NULL); }

static word_t first, second, step;

/* Takes `first`, says so, and ends without giving it back. */
static void *keep(void *unused) {
    CHECK(futex(&first, FUTEX_LOCK_PI_PRIVATE, NULL) == 0);
    step = 1;
    while (!(first & FUTEX_WAITERS)) nap();
    nap();
    return unused;
}

static void *not_mine(void *unused) {
    CHECK(futex(&first, FUTEX_LOCK_PI_PRIVATE, &(struct timespec){1, 0}) == -1 &&
          errno == ETIMEDOUT);
    CHECK(futex(&first, FUTEX_TRYLOCK_PI_PRIVATE, NULL) == -1 && errno == EAGAIN);
    CHECK(futex(&first, FUTEX_UNLOCK_PI_PRIVATE, NULL) == -1 && errno == EPERM);
    return unused;
}

static void one_word(void) {
    CHECK(futex(&first, FUTEX_LOCK_PI_PRIVATE, NULL) == 0 && holder(first) == own());
    CHECK(futex(&first, FUTEX_LOCK_PI_PRIVATE, NULL) == -1 && errno == EDEADLK);
    pthread_t other;
    pthread_create(&other, NULL, not_mine, NULL);
    pthread_join(other, NULL);
    CHECK(futex(&first, FUTEX_UNLOCK_PI_PRIVATE, NULL) == 0 && first == 0);
    CHECK(futex(&first, FUTEX_UNLOCK_PI_PRIVATE, NULL) == -1 && errno == EPERM);
    CHECK(futex(&first, FUTEX_TRYLOCK_PI_PRIVATE, NULL) == 0 && first == own());
    CHECK(futex(&first, FUTEX_UNLOCK_PI_PRIVATE, NULL) == 0 && first == 0);
    first = 0x3ffffff0;
    CHECK(futex(&first, FUTEX_LOCK_PI_PRIVATE, NULL) == -1 && errno == ESRCH);
    first = 0;
    CHECK(futex((word_t *)((char *)&first + 1), FUTEX_LOCK_PI_PRIVATE, NULL) == -1 && errno == EINVAL);
    CHECK(futex((word_t *)8, FUTEX_LOCK_PI_PRIVATE, NULL) == -1 && errno == EFAULT);
}

static void holder_ends(void) {
    pthread_t other;
    step = 0;
    pthread_create(&other, NULL, keep, NULL);
    while (step != 1) nap();
    CHECK(futex(&first, FUTEX_LOCK_PI_PRIVATE, NULL) == 0);
    CHECK(holder(first) == own() && first & FUTEX_OWNER_DIED);
    pthread_join(other, NULL);
    first = own();
    CHECK(futex(&first, FUTEX_UNLOCK_PI_PRIVATE, NULL) == 0 && first == 0);
}

/* Waits for `first` with `second` in its hands. */
static void *hold_second(void *unused) {
    CHECK(futex(&second, FUTEX_LOCK_PI_PRIVATE, NULL) == 0);
    step = 1;
    CHECK(futex(&first, FUTEX_LOCK_PI_PRIVATE, NULL) == 0);
    CHECK(futex(&first, FUTEX_UNLOCK_PI_PRIVATE, NULL) == 0);
    CHECK(futex(&second, FUTEX_UNLOCK_PI_PRIVATE, NULL) == 0);
    return unused;
}

static void deadlock(void) {
    pthread_t other;
    step = 0;
    CHECK(futex(&first, FUTEX_LOCK_PI_PRIVATE, NULL) == 0);
    pthread_create(&other, NULL, hold_second, NULL);
    while (step != 1 || !(first & FUTEX_WAITERS)) nap();
    nap();
    CHECK(futex(&second, FUTEX_LOCK_PI_PRIVATE, NULL) == -1 && errno == EDEADLK);
    CHECK(futex(&first, FUTEX_UNLOCK_PI_PRIVATE, NULL) == 0);
    pthread_join(other, NULL);
    CHECK(first == 0 && holder(second) == 0);
}

/* Processes that share a word, of which one is killed while it waits and one while it holds. */
static void processes(void) {
    word_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    word_t *count = shared + 16;
    pid_t children[4];
    for (int i = 0; i < 4; i++)
        if ((children[i] = fork()) == 0) {
            for (int turn = 0; turn < 200; turn++) {
                CHECK(futex(shared, FUTEX_LOCK_PI, NULL) == 0 && holder(*shared) == own());
                uint32_t seen = *count;
                if (turn % 8 == 0) sched_yield();
                *count = seen + 1;
                CHECK(futex(shared, FUTEX_UNLOCK_PI, NULL) == 0);
            }
            fflush(stdout);
            _exit(0);
        }
    for (int i = 0; i < 4; i++) waitpid(children[i], NULL, 0);
    CHECK(*count == 800 && *shared == 0);
    CHECK(futex(shared, FUTEX_LOCK_PI, NULL) == 0);
    pid_t child = fork();
    if (child == 0) {
        futex(shared, FUTEX_LOCK_PI, NULL);
        _exit(1);
    }
    while (!(*shared & FUTEX_WAITERS)) nap();
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    CHECK(futex(shared, FUTEX_UNLOCK_PI, NULL) == 0 && holder(*shared) == 0);
    *shared = 0;
    *count = 0;
    if ((child = fork()) == 0) {
        CHECK(futex(shared, FUTEX_LOCK_PI, NULL) == 0);
        *count = 1;
        for (;;) pause();
    }
    while (*count != 1) nap();
    pid_t killer = fork();
    if (killer == 0) {
        while (!(*shared & FUTEX_WAITERS)) nap();
        nap();
        kill(child, SIGKILL);
        _exit(0);
    }
    CHECK(futex(shared, FUTEX_LOCK_PI, NULL) == 0 && holder(*shared) == own());
    waitpid(child, NULL, 0);
    waitpid(killer, NULL, 0);
}

static pthread_mutex_t mutex;
static volatile int waiting;
static int order[3], place;

static void *queue_up(void *number) {
    waiting = (int)own();
    pthread_mutex_lock(&mutex);
    order[place++] = (int)(intptr_t)number;
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static int sleeps(int tid) {
    char path[64], text[128] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    FILE *file = fopen(path, "r");
    if (!file || !fgets(text, sizeof text, file)) return 0;
    fclose(file);
    char *end = strrchr(text, ')');
    return end && end[2] == 'S';
}

/* A thread that unlocks and locks again does not overtake the waiters. */
static void no_overtaking(void) {
    pthread_mutexattr_t attributes;
    pthread_t threads[3];
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&mutex, &attributes);
    pthread_mutex_lock(&mutex);
    for (intptr_t i = 0; i < 3; i++) {
        waiting = 0;
        pthread_create(&threads[i], NULL, queue_up, (void *)(i + 1));
        while (!waiting || !sleeps(waiting)) nap();
    }
    pthread_mutex_unlock(&mutex);
    pthread_mutex_lock(&mutex);
    CHECK(place == 3 && order[0] == 1 && order[1] == 2 && order[2] == 3);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
}

/* A process that runs another program gives robust mutexes back. */
static void another_program(void) {
    pthread_mutex_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t attributes;
    int ends[2], locked[2];
    char byte;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(shared, &attributes);
    CHECK(pipe(ends) == 0 && pipe(locked) == 0);
    pid_t child = fork();
    if (child == 0) {
        pthread_mutex_lock(shared);
        CHECK(write(locked[1], "l", 1) == 1);
        dup2(ends[0], 0);
        close(ends[1]);
        execl("/bin/sh", "sh", "-c", "read line", (char *)NULL);
        _exit(1);
    }
    close(ends[0]);
    CHECK(read(locked[0], &byte, 1) == 1);
    CHECK(pthread_mutex_lock(shared) == EOWNERDEAD);
    CHECK(waitpid(child, NULL, WNOHANG) == 0);
    close(ends[1]);
    waitpid(child, NULL, 0);
}

int main(void) {
    another_program();
    one_word();
    holder_ends();
    deadlock();
    processes();
    no_overtaking();
    puts("end");
}
