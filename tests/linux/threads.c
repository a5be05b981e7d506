/* Threads: creation and joining, mutexes, condition variables, semaphores, barriers, once, robust and error-checking
   mutexes, thread-local storage, cancellation, signals to threads, timed waits, fork and execve with threads. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(claim) ((claim) ? (void)0 : (void)printf("line %d: not so: %s (errno %d)\n", __LINE__, #claim, errno))

/* musl's headers do not have them. */
enum { FUTEX_WAIT = 0, FUTEX_WAKE = 1 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static __thread int local = 3;
static long shared_count;
static int turn;
static atomic_int arrived, handled;

static struct timespec in_ms(clockid_t clock, long ms) {
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += ms * 1000000, t.tv_sec += t.tv_nsec / 1000000000, t.tv_nsec %= 1000000000;
    return t;
}

static void *count_up(void *times) {
    for (long i = 0; i < (long)times; i++) {
        pthread_mutex_lock(&lock);
        shared_count++, local++;
        pthread_mutex_unlock(&lock);
    }
    return (void *)(long)local;
}

static void *take_turns(void *me) {
    for (int i = 0; i < 500; i++) {
        pthread_mutex_lock(&lock);
        while (turn != (int)(long)me) pthread_cond_wait(&changed, &lock);
        turn = !turn;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    return 0;
}

static void *identity(void *value) { return value; }

static void basics(void) {
    pthread_t threads[16];
    void *result;
    for (int i = 0; i < 8; i++) CHECK(pthread_create(&threads[i], 0, count_up, (void *)5000) == 0);
    for (int i = 0; i < 8; i++) CHECK(pthread_join(threads[i], &result) == 0 && (long)result == 5003);
    CHECK(shared_count == 40000 && local == 3);
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], 0, take_turns, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    for (int round = 0; round < 50; round++) {
        for (long i = 0; i < 16; i++) CHECK(pthread_create(&threads[i], 0, identity, (void *)i) == 0);
        for (long i = 0; i < 16; i++) CHECK(pthread_join(threads[i], &result) == 0 && (long)result == i);
    }
    pthread_attr_t attributes;
    pthread_attr_init(&attributes), pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (int i = 0; i < 50; i++) CHECK(pthread_create(&threads[0], &attributes, identity, 0) == 0);
    CHECK(gettid() == getpid());
}

static sem_t items, room;
static int ring[8];
static void *produce(void *count) {
    for (int i = 0; i < (int)(long)count; i++) sem_wait(&room), ring[i % 8] = i, sem_post(&items);
    return 0;
}

static pthread_barrier_t barrier;
static void *meet(void *unused) {
    long serial = 0;
    for (int i = 0; i < 50; i++) serial += pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD;
    return (void *)serial;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int once_count;
static void initialize(void) { once_count++; }
static void *use_once(void *unused) { pthread_once(&once, initialize); return 0; }

static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static int guarded[2];
static void *read_or_write(void *me) {
    long bad = 0;
    for (int i = 0; i < 300; i++) {
        if ((long)me == 0) pthread_rwlock_wrlock(&rwlock), guarded[0]++, guarded[1]++;
        else pthread_rwlock_rdlock(&rwlock), bad += guarded[0] != guarded[1];
        pthread_rwlock_unlock(&rwlock);
    }
    return (void *)bad;
}

static void primitives(void) {
    pthread_t threads[8];
    void *result;
    sem_init(&items, 0, 0), sem_init(&room, 0, 8);
    pthread_create(&threads[0], 0, produce, (void *)1000);
    for (int i = 0; i < 1000; i++) { sem_wait(&items); CHECK(ring[i % 8] == i); sem_post(&room); }
    pthread_join(threads[0], 0);
    pthread_barrier_init(&barrier, 0, 5);
    long serial = 0;
    for (int i = 0; i < 5; i++) pthread_create(&threads[i], 0, meet, 0);
    for (int i = 0; i < 5; i++) pthread_join(threads[i], &result), serial += (long)result;
    CHECK(serial == 50);
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], 0, use_once, 0);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], 0);
    CHECK(once_count == 1);
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], 0, read_or_write, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], &result), CHECK(result == 0);
}

static pthread_mutex_t robust;
static void *die_with_it(void *unused) { pthread_mutex_lock(&robust); return 0; }

static void mutexes(void) {
    pthread_mutexattr_t attributes;
    pthread_mutex_t mutex;
    pthread_t thread;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&mutex, &attributes);
    CHECK(pthread_mutex_lock(&mutex) == 0 && pthread_mutex_lock(&mutex) == EDEADLK && pthread_mutex_unlock(&mutex) == 0);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&mutex, &attributes);
    CHECK(pthread_mutex_lock(&mutex) == 0 && pthread_mutex_lock(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0);
    CHECK(pthread_mutex_trylock(&mutex) == 0);
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &attributes);
    pthread_create(&thread, 0, die_with_it, 0), pthread_join(thread, 0);
    CHECK(pthread_mutex_lock(&robust) == EOWNERDEAD && pthread_mutex_consistent(&robust) == 0);
    CHECK(pthread_mutex_unlock(&robust) == 0 && pthread_mutex_lock(&robust) == 0);
    /* Shared by processes, and robust: a process that is killed with it. */
    struct { pthread_mutex_t mutex; pthread_cond_t cond; int value; } *shared =
        mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared->mutex, &attributes);
    pthread_condattr_t condition;
    pthread_condattr_init(&condition), pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&shared->cond, &condition);
    pid_t pid = fork();
    if (!pid) {
        pthread_mutex_lock(&shared->mutex);
        shared->value = 1;
        pthread_cond_signal(&shared->cond);
        while (shared->value != 2) pthread_cond_wait(&shared->cond, &shared->mutex);
        shared->value = 3;
        kill(getpid(), SIGKILL);
    }
    pthread_mutex_lock(&shared->mutex);
    while (shared->value != 1) pthread_cond_wait(&shared->cond, &shared->mutex);
    shared->value = 2;
    pthread_cond_signal(&shared->cond);
    pthread_mutex_unlock(&shared->mutex);
    int status;
    waitpid(pid, &status, 0);
    CHECK(pthread_mutex_lock(&shared->mutex) == EOWNERDEAD && shared->value == 3);
    /* Priority inheritance: the word is the owner's number. */
    pthread_mutexattr_init(&attributes);
    CHECK(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT) == 0);
    pthread_mutex_init(&lock, &attributes);
    pthread_t threads[4];
    shared_count = 0;
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, count_up, (void *)1000);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    CHECK(shared_count == 4000);
    pthread_mutex_init(&lock, 0);
}

static void timed(void) {
    struct timespec deadline = in_ms(CLOCK_REALTIME, 20);
    pthread_mutex_lock(&lock);
    CHECK(pthread_cond_timedwait(&changed, &lock, &deadline) == ETIMEDOUT);
    pthread_mutex_unlock(&lock);
    deadline = in_ms(CLOCK_REALTIME, 20);
    sem_t empty;
    sem_init(&empty, 0, 0);
    CHECK(sem_timedwait(&empty, &deadline) == -1 && errno == ETIMEDOUT);
    int word = 5;
    struct timespec little = {0, 10000000};
    CHECK(syscall(SYS_futex, &word, FUTEX_WAIT, 4, 0) == -1 && errno == EAGAIN);
    CHECK(syscall(SYS_futex, &word, FUTEX_WAIT, 5, &little) == -1 && errno == ETIMEDOUT);
    CHECK(syscall(SYS_futex, &word, FUTEX_WAKE, 1, 0) == 0);
    CHECK(syscall(SYS_futex, (char *)&word + 1, FUTEX_WAKE, 1, 0) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_futex, 8, FUTEX_WAIT, 1, 0) == -1 && errno == EFAULT);
}

static void cleanup(void *flag) { *(int *)flag = 1; }
static int cleaned;
static void *be_cancelled(void *unused) {
    pthread_cleanup_push(cleanup, &cleaned);
    arrived = 1;
    for (;;) pause();
    pthread_cleanup_pop(0);
    return 0;
}

static pthread_t signalled;
static void on_signal(int number) { handled += pthread_equal(pthread_self(), signalled) ? 1 : 100; }
static void *take_signal(void *unused) {
    arrived = 1;
    while (!handled) usleep(1000);
    return 0;
}
static void *spin(void *unused) {
    arrived = 1;
    while (!handled) ;
    return 0;
}
static void *wait_for_signal(void *unused) {
    sigset_t set;
    int number;
    sigemptyset(&set), sigaddset(&set, SIGUSR2);
    CHECK(sigwait(&set, &number) == 0);
    return (void *)(long)number;
}

static void signals(void) {
    pthread_t thread;
    void *result;
    pthread_create(&thread, 0, be_cancelled, 0);
    while (!arrived) sched_yield();
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED && cleaned);
    signal(SIGUSR1, on_signal);
    for (int i = 0; i < 2; i++) {
        arrived = handled = 0;
        pthread_create(&signalled, 0, i ? spin : take_signal, 0);
        while (!arrived) sched_yield();
        CHECK(pthread_kill(signalled, SIGUSR1) == 0);
        pthread_join(signalled, 0);
        CHECK(handled == 1);
    }
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, 0);
    pthread_create(&thread, 0, wait_for_signal, 0);
    usleep(2000);
    kill(getpid(), SIGUSR2);
    pthread_join(thread, &result);
    CHECK((long)result == SIGUSR2);
}

static int event;
static void *write_event(void *unused) { usleep(5000); eventfd_write(event, 7); return 0; }
static void *block_for_ever(void *unused) { for (;;) pause(); return 0; }

static void blocking(void) {
    pthread_t thread;
    eventfd_t value;
    int ends[2];
    event = eventfd(0, 0);
    pthread_create(&thread, 0, write_event, 0);
    CHECK(eventfd_read(event, &value) == 0 && value == 7);
    pthread_join(thread, 0);
    /* A process with other threads forks: the child has one. */
    for (int i = 0; i < 3; i++) pthread_create(&thread, 0, block_for_ever, 0), pthread_detach(thread);
    pid_t pid = fork();
    if (!pid) {
        pthread_create(&thread, 0, identity, (void *)5);
        void *result;
        pthread_join(thread, &result);
        _exit((int)(long)result);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 5);
    /* execve ends the other threads. */
    if (!(pid = fork())) {
        for (int i = 0; i < 3; i++) pthread_create(&thread, 0, i ? block_for_ever : spin, 0), handled = 0;
        char *words[] = {"/proc/self/exe", "again", 0};
        execv("/proc/self/exe", words);
        _exit(1);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 44);
    /* exit by a thread that is not the first; the first one's end does not end the process. */
    if (!(pid = fork())) { pthread_create(&thread, 0, (void *(*)(void *))exit, (void *)9); for (;;) pause(); }
    CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 9);
#ifdef __GLIBC__ /* On Linux too, musl 1.2.3 hangs here: after fork nobody tells the kernel of its list's lock. */
    if (!(pid = fork())) { pthread_create(&thread, 0, write_event, 0); pthread_exit(0); }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0 && eventfd_read(event, &value) == 0);
#endif
    /* A fault in one thread ends all. */
    if (!(pid = fork())) { pthread_create(&thread, 0, (void *(*)(void *))abort, 0); for (;;) pause(); }
    CHECK(waitpid(pid, &status, 0) == pid && WTERMSIG(status) == SIGABRT);
}

/* Onto one processor after the other, by itself and by another thread, computing or asleep. */
static void *stay_on(void *stop) {
    for (cpu_set_t now; !atomic_load((atomic_int *)stop);) sched_getaffinity(0, sizeof now, &now);
    return 0;
}

static void processors(void) {
    cpu_set_t all, one;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    for (int round = 0; round < 3; round++)
        for (int processor = 0; processor < CPU_SETSIZE; processor++) {
            if (!CPU_ISSET(processor, &all)) continue;
            CPU_ZERO(&one);
            CPU_SET(processor, &one);
            CHECK(sched_setaffinity(0, sizeof one, &one) == 0 && sched_getcpu() == processor);
            usleep(round * 1000);
            CHECK(sched_getcpu() == processor);
            atomic_int stop = 0;
            pthread_t other;
            CHECK(pthread_create(&other, 0, stay_on, &stop) == 0);
            CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
            CHECK(pthread_setaffinity_np(other, sizeof all, &all) == 0);
            usleep(round * 1000);
            CHECK(pthread_setaffinity_np(other, sizeof one, &one) == 0);
            usleep(round * 1000);
            atomic_store(&stop, 1);
            CHECK(pthread_join(other, 0) == 0);
        }
    struct timespec interval = {-1, -1};
    CHECK(sched_rr_get_interval(0, &interval) == 0 && interval.tv_sec == 0 && interval.tv_nsec >= 0);
    CHECK(syscall(SYS_sched_rr_get_interval, -1, &interval) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_sched_rr_get_interval, 1 << 22, &interval) == -1 && errno == ESRCH);
    CHECK(syscall(SYS_sched_rr_get_interval, 0, NULL) == -1 && errno == EFAULT);
}

int main(int count, char **words) {
    if (count > 1) return 44;
    setvbuf(stdout, 0, _IOLBF, 0);
    basics(), puts("basics");
    primitives(), puts("primitives");
    mutexes(), puts("mutexes");
    timed(), puts("timed");
    signals(), puts("signals");
    blocking(), puts("blocking");
    processors(), puts("processors");
    return 0;
}
