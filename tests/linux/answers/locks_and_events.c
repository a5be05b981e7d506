// What threads wait at: futexes of all kinds, counters, pipes, sets of descriptors.
#include "answers.h"
#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/uio.h>

static int futex(void *word, int operation, int value, void *timeout, void *second, int third) { return syscall(SYS_futex, word, operation, value, timeout, second, third); }
static int own_tid(void) { return syscall(SYS_gettid); }
static void note(int number) {}

static uint32_t word, word_two;
static volatile int holder_has, holder_may_go, holder_tid;
static void *holds(void *unused) {
    holder_tid = own_tid(), futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0), holder_has = 1;
    while (!holder_may_go)
        pause_ms(5);
    if (holder_may_go == 1)
        futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0);
    return NULL;
}
static pthread_t held(void) {
    pthread_t thread;
    word = 0, holder_has = holder_may_go = 0, pthread_create(&thread, NULL, holds, NULL);
    while (!holder_has)
        pause_ms(1);
    return thread;
}
PROGRAM(owned_words) {
    struct timespec past = {1, 0}, wrong = {0, -1};
    T(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0)), IS(word == own_tid()), T(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0)), T(futex(&word, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0)), T(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0)), T(word), T(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0)), word = 999999, T(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0)), T(futex(&word, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0)), T(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0)), word = 0;
    T(futex((void *)2, FUTEX_LOCK_PI, 0, NULL, NULL, 0)), T(futex((void *)8, FUTEX_LOCK_PI, 0, NULL, NULL, 0)), T(futex((void *)8, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0)), T(futex(&word, FUTEX_LOCK_PI, 0, &wrong, NULL, 0)), T(futex(&word, FUTEX_LOCK_PI, 0, (void *)8, NULL, 0)), word = FUTEX_OWNER_DIED, T(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0)), IS(word == (FUTEX_OWNER_DIED | own_tid()) || word == own_tid()), T(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
    pthread_t thread = held();
    T(futex(&word, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0)), T(futex(&word, FUTEX_LOCK_PI, 0, &past, NULL, 0)), T(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0)), T(futex(&word, FUTEX_WAKE, 1, NULL, NULL, 0)), T(futex(&word, FUTEX_WAIT, 0, NULL, NULL, 0)), holder_may_go = 1, T(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0)), IS((word & FUTEX_TID_MASK) == own_tid()), T(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0)), pthread_join(thread, NULL);
    // The holder ends: it is never free again, but for a thread that asks then.
    thread = held(), holder_may_go = 2, pthread_join(thread, NULL), T(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0)), T(futex(&word, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0));
    thread = held(), T(futex(&word, FUTEX_LOCK_PI2, 0, &past, NULL, 0)), T(futex(&word, FUTEX_LOCK_PI2 | FUTEX_CLOCK_REALTIME, 0, &past, NULL, 0)), T(futex(&word, FUTEX_LOCK_PI | FUTEX_CLOCK_REALTIME, 0, &past, NULL, 0)), T(futex(&word, FUTEX_WAKE | FUTEX_CLOCK_REALTIME, 0, NULL, NULL, 0)), T(futex(&word, FUTEX_UNLOCK_PI | FUTEX_CLOCK_REALTIME, 0, NULL, NULL, 0)), T(futex(&word, FUTEX_REQUEUE | FUTEX_CLOCK_REALTIME, 0, NULL, &word_two, 0)), T(futex(&word, FUTEX_WAIT | FUTEX_CLOCK_REALTIME, 0, &past, NULL, 0)), holder_may_go = 1, pthread_join(thread, NULL);
}

static volatile sig_atomic_t told;
static pthread_t waiter;
static void *interrupts(void *unused) {
    for (int i = 0; i < 10; i++)
        pause_ms(30), pthread_kill(waiter, SIGUSR1);
    holder_may_go = 1;
    return NULL;
}
static void tell_it(int number) { told++; }
PROGRAM(owned_words_and_handlers) {
    // A handler without SA_RESTART does not end the wait for an owned word.
    for (int flags = 0; flags < 2; flags++) {
        struct sigaction action = {.sa_handler = tell_it, .sa_flags = flags ? SA_RESTART : 0};
        sigset_t set;
        told = 0, sigaction(SIGUSR1, &action, NULL), waiter = pthread_self();
        pthread_t holder = held(), thread;
        pthread_create(&thread, NULL, interrupts, NULL), T(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0)), IS(told > 0), IS((word & FUTEX_TID_MASK) == own_tid()), T(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0)), pthread_join(thread, NULL), pthread_join(holder, NULL);
        struct timespec limit;
        holder = held(), clock_gettime(CLOCK_REALTIME, &limit), limit.tv_nsec += 150000000;
        if (limit.tv_nsec >= 1000000000)
            limit.tv_sec++, limit.tv_nsec -= 1000000000;
        pthread_create(&thread, NULL, interrupts, NULL), T(futex(&word, FUTEX_LOCK_PI, 0, &limit, NULL, 0) == 0 || errno == ETIMEDOUT), pthread_join(thread, NULL), pthread_join(holder, NULL);
        if ((word & FUTEX_TID_MASK) == own_tid())
            futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0);
    }
}

static void *locks_and_ends(void *lock) {
    pthread_mutex_lock(lock);
    return NULL;
}
PROGRAM(owners_that_end) {
    // Many rounds: the holder ends while the other begins to wait.
    int kinds[] = {PTHREAD_PRIO_NONE, PTHREAD_PRIO_INHERIT}, wrong = 0;
    for (int kind = 0; kind < 2; kind++)
        for (int round = 0; round < 300; round++) {
            pthread_mutexattr_t attributes;
            pthread_mutex_t lock;
            pthread_t thread;
            pthread_mutexattr_init(&attributes), pthread_mutexattr_setprotocol(&attributes, kinds[kind]), pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST), pthread_mutex_init(&lock, &attributes), pthread_create(&thread, NULL, locks_and_ends, &lock);
            int result = pthread_mutex_lock(&lock);
            if (result == EOWNERDEAD)
                pthread_mutex_consistent(&lock);
            else if (result == 0)
                ;
            else
                wrong++;
            pthread_mutex_unlock(&lock), pthread_join(thread, NULL);
            result = pthread_mutex_lock(&lock), wrong += result != 0 && result != EOWNERDEAD;
        }
    T(wrong);
}
static pthread_mutex_t *robust;
static int robust_errors;
static void *takes_and_ends(void *unused) {
    int result = pthread_mutex_lock(robust);
    if (result == EOWNERDEAD)
        pthread_mutex_consistent(robust);
    else if (result)
        __atomic_fetch_add(&robust_errors, 1, __ATOMIC_RELAXED);
    if ((intptr_t)unused % 2)
        pthread_mutex_unlock(robust);
    return NULL;
}
PROGRAM(robust_words_that_many_want) {
    // Several want it while holders end with it: a moment in which it is nobody's is not an error.
    for (int kind = 0; kind < 2; kind++) {
        pthread_mutexattr_t attributes;
        pthread_mutex_t lock;
        pthread_mutexattr_init(&attributes), pthread_mutexattr_setprotocol(&attributes, kind ? PTHREAD_PRIO_INHERIT : PTHREAD_PRIO_NONE), pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST), pthread_mutex_init(&lock, &attributes), robust = &lock, robust_errors = 0;
        for (int round = 0; round < 60; round++) {
            pthread_t threads[6];
            for (int i = 0; i < 6; i++)
                pthread_create(&threads[i], NULL, takes_and_ends, (void *)(intptr_t)i);
            for (int i = 0; i < 6; i++)
                pthread_join(threads[i], NULL);
        }
        T(robust_errors);
    }
}

static void *waits_word(void *unused) {
    return (void *)(intptr_t)futex(&word, FUTEX_WAIT, 0, NULL, NULL, 0);
}
static int waiting_at(void *address) {
    // Moved to the same word, none is woken and none lost.
    return futex(address, FUTEX_REQUEUE, 0, (void *)1000l, address, 0);
}
PROGRAM(moved_waiters) {
    pthread_t threads[4];
    word = word_two = 0;
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, waits_word, NULL);
    pause_ms(200), T(futex(&word, FUTEX_CMP_REQUEUE, 1, (void *)1, &word_two, 1)), T(futex(&word, FUTEX_CMP_REQUEUE, 1, (void *)1, &word_two, 0)), T(futex(&word, FUTEX_REQUEUE, 0, (void *)1, &word_two, 0)), T(futex(&word_two, FUTEX_WAKE, 9, NULL, NULL, 0)), T(futex(&word, FUTEX_WAKE, 9, NULL, NULL, 0));
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    T(futex(&word, FUTEX_FD, 0, NULL, NULL, 0));
}

PROGRAM(words_changed_and_woken) {
    for (int operation = 0; operation < 5; operation++) {
        word_two = 12, T(futex(&word, FUTEX_WAKE_OP, 1, (void *)1, &word_two, FUTEX_OP(operation, 5, FUTEX_OP_CMP_EQ, 12))), T(word_two), word_two = 12, futex(&word, FUTEX_WAKE_OP, 1, (void *)1, &word_two, FUTEX_OP(operation | FUTEX_OP_OPARG_SHIFT, 3, FUTEX_OP_CMP_EQ, 12)), T(word_two);
    }
    T(futex(&word, FUTEX_WAKE_OP, 1, NULL, (void *)8, FUTEX_OP(0, 0, 0, 0))), T(futex(&word, FUTEX_WAKE_OP, 1, NULL, (char *)&word + 1, FUTEX_OP(0, 0, 0, 0))), word_two = 5, T(futex(&word, FUTEX_WAKE_OP, 1, NULL, &word_two, FUTEX_OP(FUTEX_OP_ADD, -1, 0, 0))), T(word_two);
}

struct vector { uint64_t value, address; uint32_t flags, unused; };
PROGRAM(many_words) {
    struct vector wish[2] = {{1, (uintptr_t)&word, 2, 0}, {0, (uintptr_t)&word_two, 2 | 128, 0}};
    struct timespec past = {1, 0}, wrong = {0, -1};
    word = word_two = 0;
#define MANY(...) syscall(SYS_futex_waitv, __VA_ARGS__)
    T(MANY(wish, 2, 0, NULL, 0)), wish[0].value = 0, T(MANY(wish, 2, 0, &past, CLOCK_MONOTONIC)), T(MANY(wish, 2, 0, &past, CLOCK_REALTIME)), T(MANY(wish, 2, 0, &past, CLOCK_BOOTTIME)), T(MANY(wish, 2, 0, &wrong, CLOCK_MONOTONIC)), T(MANY(wish, 2, 0, 8, CLOCK_MONOTONIC)), T(MANY(8, 2, 0, NULL, 0)), T(MANY(NULL, 2, 0, NULL, 0)), wish[1].unused = 1, T(MANY(wish, 2, 0, &past, 1)), wish[1].unused = 0, wish[1].flags = 0, T(MANY(wish, 2, 0, &past, 1)), wish[1].flags = 2 | 64, T(MANY(wish, 2, 0, &past, 1)), wish[1].flags = 2, wish[1].address = 8, T(MANY(wish, 2, 0, &past, 1)), wish[1].address = 2, T(MANY(wish, 2, 0, &past, 1)), wish[1].address = 0, T(MANY(wish, 2, 0, &past, 1));
}

PROGRAM(lists_of_robust_words) {
    size_t size = 0;
    void *head = NULL;
    T(syscall(SYS_get_robust_list, 0, &head, &size)), T(size), IS(head != NULL), T(syscall(SYS_get_robust_list, getpid(), &head, &size)), T(syscall(SYS_get_robust_list, 0, &head, 8)), T(syscall(SYS_get_robust_list, 0, 8, &size)), T(syscall(SYS_get_robust_list, -1, &head, &size)), T(syscall(SYS_set_robust_list, head, 23)), T(syscall(SYS_set_robust_list, 8, 24)), T(syscall(SYS_set_robust_list, head, 24));
}

PROGRAM(counters) {
    int fd = eventfd(3, EFD_NONBLOCK | EFD_CLOEXEC);
    uint64_t value = 0;
    T(fcntl(fd, F_GETFD)), T(fcntl(fd, F_GETFL)), T(read(fd, &value, 100)), T(value), T(read(fd, &value, 7)), T(write(fd, &value, 7)), T(write(fd, (value = 5, &value), 8)), T(pread(fd, &value, 8, 0)), T(pwrite(fd, &value, 8, 0)), T(lseek(fd, 5, SEEK_SET)), T(ftruncate(fd, 0)), T(fsync(fd)), T(readv(fd, (struct iovec[]){{&value, 4}, {(char *)&value + 4, 4}}, 2)), T(value), T(ioctl(fd, FIONREAD, &value)), T(fcntl(fd, F_SETPIPE_SZ, 4096)), T(flock(fd, LOCK_EX)), T((long)mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0)), T(fdatasync(fd)), T(syscall(SYS_eventfd2, 0, 0x80000)), T(eventfd(0, 2)), T(accept(fd, NULL, NULL)), T(splice(fd, NULL, fd, NULL, 8, 0));
}

PROGRAM(pipe_refusals) {
    int line[2], status;
    char bytes[70000] = {0};
    T(syscall(SYS_pipe, 8)), T(pipe2(line, 0x10)), T(pipe2(line, O_APPEND)), T(pipe2(line, O_NONBLOCK | O_CLOEXEC)), T(fcntl(line[0], F_GETFL)), T(fcntl(line[1], F_GETFL)), T(fcntl(line[0], F_GETFD)), T(fcntl(line[0], F_GETPIPE_SZ)), T(read(line[0], bytes, 1)), T(read(line[0], bytes, 0)), T(write(line[1], bytes, 0)), T(read(line[1], bytes, 1)), T(write(line[0], bytes, 1)), T(write(line[1], bytes, 70000)), T(write(line[1], bytes, 1)), T(ioctl(line[0], FIONREAD, &status)), T(status), T(fcntl(line[0], F_SETPIPE_SZ, 4096)), T(read(line[0], bytes, 60000)), T(fcntl(line[0], F_SETPIPE_SZ, 8192)), T(fcntl(line[0], F_SETPIPE_SZ, 0)), T(fcntl(line[0], F_SETPIPE_SZ, 5000)), T(fcntl(line[0], F_SETPIPE_SZ, 1 << 31)), T(lseek(line[0], 0, SEEK_SET)), T(pread(line[0], bytes, 1, 0)), T(ftruncate(line[1], 0)), T(fsync(line[0])), T(fdatasync(line[1])), T(fallocate(line[1], 0, 0, 1));
    T(read(line[0], (void *)8, 10)), T(readv(line[0], (struct iovec[]){{bytes, 10}}, 1025)), T(readv(line[0], (struct iovec[]){{bytes, -1}}, 1)), T(readv(line[0], NULL, 0)), T(readv(line[0], (struct iovec[]){{bytes, 10}}, -1)), close(line[0]), signal(SIGPIPE, SIG_IGN), T(write(line[1], bytes, 1)), T(write(line[1], bytes, 0));
    CHILD("nobody", (setuid(5), pipe(line), T(fcntl(line[0], F_SETPIPE_SZ, 1 << 21)), T(fcntl(line[0], F_SETPIPE_SZ, 1 << 20)), T(fcntl(line[0], F_GETPIPE_SZ))));
    pipe(line), T(fcntl(line[0], F_SETPIPE_SZ, 1 << 20));
    CHILD("ended by it", (signal(SIGPIPE, SIG_DFL), close(line[0]), write(line[1], "x", 1)));
}

static int epolls(int set, int operation, int fd, uint32_t events) { return epoll_ctl(set, operation, fd, &(struct epoll_event){events, {.u64 = fd}}); }
PROGRAM(edges_and_shots) {
    int set = epoll_create1(0), line[2], other[2];
    char byte;
    struct epoll_event got[8];
    pipe(line), pipe(other);
#define READY() (printf("%d:", epoll_wait(set, got, 8, 0)), printf(" %x\n", got[0].events), got[0].events = 0, fflush(stdout))
    T(epolls(set, EPOLL_CTL_ADD, line[0], EPOLLIN | EPOLLET)), got[0].events = 0, READY(), write(line[1], "xy", 2), READY(), READY(), write(line[1], "z", 1), READY(), read(line[0], &byte, 1), READY(), T(epolls(set, EPOLL_CTL_MOD, line[0], EPOLLIN | EPOLLET)), READY(), READY(), T(epolls(set, EPOLL_CTL_MOD, line[0], EPOLLIN | EPOLLONESHOT)), READY(), READY(), write(line[1], "z", 1), READY(), T(epolls(set, EPOLL_CTL_MOD, line[0], EPOLLIN)), READY(), READY(), T(epolls(set, EPOLL_CTL_MOD, line[0], 0)), READY(), close(line[1]), READY(), T(epolls(set, EPOLL_CTL_MOD, line[0], EPOLLIN | EPOLLRDHUP | EPOLLPRI)), READY();
    T(epolls(set, EPOLL_CTL_ADD, other[1], EPOLLOUT | EPOLLET)), T(epoll_wait(set, got, 8, 0)), close(other[0]), T(epoll_wait(set, got, 8, 0)), close(line[0]), T(epoll_wait(set, got, 8, 0)), dup2(other[1], 50), close(other[1]), T(epolls(set, EPOLL_CTL_MOD, 50, EPOLLOUT)), T(epolls(set, EPOLL_CTL_MOD, other[1], EPOLLOUT)), T(epoll_wait(set, got, 8, 0)), T(got[0].events), close(50), T(epoll_wait(set, got, 8, 0));
}
static void *waits_set(void *set) {
    struct epoll_event got;
    return (void *)(intptr_t)epoll_wait((int)(intptr_t)set, &got, 1, 400);
}
PROGRAM(one_of_many_woken) {
    // Sets that ask to be woken alone: one event wakes one of their waiters; sets that do not are woken all.
    for (int exclusive = 0; exclusive < 2; exclusive++) {
        int fd = eventfd(0, EFD_NONBLOCK), sets[4], woken = 0;
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            sets[i] = epoll_create1(0), epolls(sets[i], EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET | (exclusive ? EPOLLEXCLUSIVE : 0)), pthread_create(&threads[i], NULL, waits_set, (void *)(intptr_t)sets[i]);
        pause_ms(150), write(fd, &(uint64_t){1}, 8);
        for (int i = 0; i < 4; i++) {
            void *result;
            pthread_join(threads[i], &result), woken += (intptr_t)result;
        }
        T(woken);
    }
    // Of the waiters of one set one is woken in either case.
    int fd = eventfd(0, EFD_NONBLOCK), set = epoll_create1(0), woken = 0;
    pthread_t threads[3];
    epolls(set, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET);
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, waits_set, (void *)(intptr_t)set);
    pause_ms(150), write(fd, &(uint64_t){1}, 8);
    for (int i = 0; i < 3; i++) {
        void *result;
        pthread_join(threads[i], &result), woken += (intptr_t)result;
    }
    T(woken);
}
// A sleeper is told that something is there, and interrupted at once: what is there comes first.
static int ready_line[2], ready_counter, ready_set, ready_kind;
static volatile int ready_tid;
static void *takes_what_is_ready(void *unused) {
    struct pollfd wanted = {ready_line[0], POLLIN};
    struct epoll_event got;
    uint64_t bytes;
    fd_set read_set;
    FD_ZERO(&read_set);
    FD_SET(ready_line[0], &read_set);
    ready_tid = own_tid();
    switch (ready_kind) {
    case 0:
        return (void *)(read(ready_line[0], &bytes, 1) > 0);
    case 1:
        return (void *)(read(ready_counter, &bytes, 8) > 0);
    case 2:
        return (void *)(intptr_t)(poll(&wanted, 1, -1) > 0);
    case 3:
        return (void *)(intptr_t)(select(ready_line[0] + 1, &read_set, NULL, NULL, NULL) > 0);
    default:
        return (void *)(intptr_t)(epoll_wait(ready_set, &got, 1, -1) > 0);
    }
}
static int is_asleep(int tid) {
    char path[64], text[256] = "";
    sprintf(path, "/proc/self/task/%d/stat", tid);
    int file = open(path, O_RDONLY);
    read(file, text, sizeof text - 1), close(file);
    char *end = strrchr(text, ')');
    return end != NULL && end[2] == 'S';
}
PROGRAM(ready_before_signals) {
    enum { ROUND_COUNT = 20 };
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = note}, NULL);
    for (ready_kind = 0; ready_kind < 6; ready_kind++) {
        // The last: as one that is woken alone.
        long took = 0, is_alone = ready_kind == 5;
        for (int i = 0; i < ROUND_COUNT; i++) {
            pthread_t thread;
            void *result;
            pipe(ready_line), ready_counter = eventfd(0, 0), ready_set = epoll_create1(0), ready_tid = 0;
            epolls(ready_set, EPOLL_CTL_ADD, ready_line[0], EPOLLIN | (is_alone ? EPOLLEXCLUSIVE : 0));
            pthread_create(&thread, NULL, takes_what_is_ready, NULL);
            while (ready_tid == 0 || !is_asleep(ready_tid))
                pause_ms(1);
            write(ready_line[1], "x", 1), write(ready_counter, &(uint64_t){1}, 8);
            pthread_kill(thread, SIGUSR1), pthread_join(thread, &result), took += (intptr_t)result;
            close(ready_line[0]), close(ready_line[1]), close(ready_counter), close(ready_set);
        }
        T(took);
    }
}
PROGRAM(sets_of_descriptors) {
    int line[2], many[3];
    char byte;
    fd_set reads, writes, others;
    struct timeval none = {0, 0}, time = {0, 5000}, wrong = {0, 1000000};
    pipe(line), memset(&reads, 0, sizeof reads);
    FD_SET(line[0], &reads);
    T(select(64, &reads, NULL, NULL, &none)), IS(FD_ISSET(line[0], &reads)), memset(&writes, 0, sizeof writes);
    FD_SET(line[1], &writes);
    T(select(64, NULL, &writes, NULL, &none)), IS(FD_ISSET(line[1], &writes)), T(select(64, NULL, NULL, NULL, &time)), IS(time.tv_usec == 0), T(select(5000, NULL, NULL, NULL, &none)), memset(&reads, 0, sizeof reads);
    FD_SET(60, &reads);
    T(select(64, &reads, NULL, NULL, &none)), IS(FD_ISSET(60, &reads)), T(select(60, &reads, NULL, NULL, &none)), T(syscall(SYS_select, 64, 8, 0, 0, &none)), T(syscall(SYS_select, 64, 0, 0, 0, 8)), T(syscall(SYS_select, 0, 0, 0, 0, &wrong)), T(syscall(SYS_pselect6, 0, 0, 0, 0, &(struct timespec){0, 0}, 8)), T(syscall(SYS_pselect6, 0, 0, 0, 0, &(struct timespec){0, 0}, (long[]){8, 8})), T(syscall(SYS_pselect6, 0, 0, 0, 0, &(struct timespec){0, 0}, (long[]){8, 4})), T(syscall(SYS_pselect6, 0, 0, 0, 0, &(struct timespec){-1, 0}, 0));
    struct pollfd wish[3] = {{line[0], POLLIN | POLLOUT | POLLPRI}, {line[1], POLLIN | POLLOUT}, {99, 0}};
    T(poll(wish, 3, 0)), T(wish[0].revents), T(wish[1].revents), T(wish[2].revents), close(line[1]), T(poll(wish, 1, 0)), T(wish[0].revents), wish[0].events = 0, T(poll(wish, 1, 0)), T(wish[0].revents), T(poll(NULL, 1, 0)), T(poll(wish, 1 << 30, 0)), T(syscall(SYS_ppoll, wish, 0, &(struct timespec){0, 1}, 0, 4)), T(syscall(SYS_ppoll, wish, 0, &(struct timespec){0, 1}, wish, 4)), T(poll((struct pollfd[]){{open("/dev/null", O_RDWR), POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM | POLLPRI}}, 1, 0));
}

static struct { _Alignas(64) volatile int x; _Alignas(64) volatile int y; _Alignas(64) volatile int turn; _Alignas(64) volatile int done; _Alignas(64) volatile int seen; } sides;
enum { BARRIER_ROUNDS = 4000 };
static void comes_to(volatile int *word, int value) {
    for (int looks = 0; *word != value; looks++)
        if (looks % 200 == 199)
            sched_yield();
}
static void *side_without_barrier(void *nothing) {
    for (int i = 1; i <= BARRIER_ROUNDS; i++) {
        comes_to(&sides.turn, i);
        sides.x = 1;
        __asm__ volatile("" ::: "memory");
        sides.seen = sides.y;
        __asm__ volatile("" ::: "memory");
        sides.done = i;
    }
    return nothing;
}
// One side stores and loads with no barrier, the other asks for one of all: not both may miss the other's store.
PROGRAM(barriers_of_others) {
    int both = 0;
    pthread_t thread;
    T(syscall(SYS_membarrier, 8, 0, 0)), T(syscall(SYS_membarrier, 16, 0, 0)), T(syscall(SYS_membarrier, 1, 0, 0)), T(syscall(SYS_membarrier, 8, 1, 0));
    pthread_create(&thread, NULL, side_without_barrier, NULL);
    for (int i = 1; i <= BARRIER_ROUNDS; i++) {
        sides.x = sides.y = 0;
        __sync_synchronize();
        sides.turn = i;
        for (volatile int delay = i % 64; delay > 0; delay--) {
        }
        sides.y = 1;
        syscall(SYS_membarrier, 8, 0, 0);
        int seen = sides.x;
        comes_to(&sides.done, i);
        both += seen == 0 && sides.seen == 0;
    }
    pthread_join(thread, NULL), IS(both == 0);
}
