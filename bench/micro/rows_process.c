/* Rows with a second process or thread: made, switched to, talked to. */
#include "micro.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

extern char **environ;

static int64_t yield_alone(long count) {
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) raw_call(SYS_sched_yield, 0, 0, 0);
    return now_ns() - start;
}

struct shared {
    _Atomic int stop, word;
    _Atomic long yields;
};

static struct shared *map_shared(void) {
    void *start = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return start == MAP_FAILED ? NULL : start;
}

/* One switch: the yields of both sides count. */
static int64_t yield_two(long count) {
    struct shared *shared = map_shared();
    CHECK(shared, "mmap");
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        shared->word = 1;
        while (!shared->stop) {
            raw_call(SYS_sched_yield, 0, 0, 0);
            shared->yields++;
        }
        _exit(0);
    }
    while (!shared->word) raw_call(SYS_sched_yield, 0, 0, 0);
    long before = shared->yields;
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) raw_call(SYS_sched_yield, 0, 0, 0);
    int64_t elapsed_ns = now_ns() - start;
    long others = shared->yields - before;
    shared->stop = 1;
    waitpid(child, NULL, 0);
    munmap(shared, PAGE_BYTES);
    return elapsed_ns * ((double)count / (count + others));
}

static int64_t fork_wait(long count) {
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        CHECK(child >= 0, "fork");
        CHECK(waitpid(child, NULL, 0) == child, "waitpid");
    }
    return now_ns() - start;
}

static int64_t start_self(long count, int spawns) {
    char *arguments[] = {own_path, "--noop", NULL};
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        pid_t child;
        int status = -1;
        if (spawns) {
            errno = posix_spawn(&child, own_path, NULL, NULL, arguments, environ);
            CHECK(!errno, "posix_spawn");
        } else {
            child = fork();
            CHECK(child >= 0, "fork");
            if (child == 0) {
                execve(own_path, arguments, environ);
                _exit(127);
            }
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0, "waitpid");
    }
    return now_ns() - start;
}

static int64_t fork_exec(long count) {
    return start_self(count, 0);
}

static int64_t spawn(long count) {
    return start_self(count, 1);
}

static void *return_at_once(void *argument) {
    return argument;
}

static int64_t thread_join(long count) {
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        pthread_t thread;
        errno = pthread_create(&thread, NULL, return_at_once, NULL);
        CHECK(!errno, "pthread_create");
        errno = pthread_join(thread, NULL);
        CHECK(!errno, "pthread_join");
    }
    return now_ns() - start;
}

const struct row process_rows[] = {{"yield_alone", yield_alone},    {"ctxsw_yield_2proc", yield_two},
                                   {"fork_exit_wait", fork_wait},   {"fork_exec_self_wait", fork_exec},
                                   {"spawn_self_wait", spawn},      {"pthread_create_join", thread_join},
                                   {0}};

/* All of a buffer, in as many calls as it takes; 0 if it worked. */
static int read_all(int fd, char *buffer, size_t bytes) {
    while (bytes) {
        ssize_t length = read(fd, buffer, bytes);
        if (length <= 0) return -1;
        buffer += length, bytes -= length;
    }
    return 0;
}

static int write_all(int fd, const char *buffer, size_t bytes) {
    while (bytes) {
        ssize_t length = write(fd, buffer, bytes);
        if (length <= 0) return -1;
        buffer += length, bytes -= length;
    }
    return 0;
}

static char message[65536];

/* A message there and one back; `near` is this process's end, `far` the child's, each for reading and writing. */
static int64_t ping_pong(long count, const int near[2], const int far[2], size_t bytes) {
    CHECK(!take_place(0), "sched_setaffinity");
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        if (take_place(1)) _exit(1);
        for (long i = 0; i <= count; i++)
            if (read_all(far[0], message, bytes) || write_all(far[1], message, bytes)) _exit(1);
        _exit(0);
    }
    int failures = write_all(near[1], message, bytes) || read_all(near[0], message, bytes);
    int64_t start = now_ns();
    for (long i = 0; i < count && !failures; i++)
        failures = write_all(near[1], message, bytes) || read_all(near[0], message, bytes);
    int64_t elapsed_ns = now_ns() - start;
    waitpid(child, NULL, 0);
    CHECK(!failures, "write or read");
    return elapsed_ns;
}

static int64_t pipe_round(long count, size_t bytes) {
    int there[2], back[2];
    CHECK(!pipe(there) && !pipe(back), "pipe");
    int64_t elapsed_ns =
        ping_pong(count, (int[]){back[0], there[1]}, (int[]){there[0], back[1]}, bytes);
    close(there[0]), close(there[1]), close(back[0]), close(back[1]);
    return elapsed_ns;
}

static int64_t pipe_1b(long count) {
    return pipe_round(count, 1);
}

static int64_t pipe_4k(long count) {
    return pipe_round(count, PAGE_BYTES);
}

/* `count` messages one way; the first one is not measured. */
static int64_t stream(long count, int reader, int writer, size_t bytes) {
    CHECK(!take_place(0), "sched_setaffinity");
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        if (take_place(1)) _exit(1);
        for (long i = 0; i <= count; i++)
            if (write_all(writer, message, bytes)) _exit(1);
        _exit(0);
    }
    int failures = read_all(reader, message, bytes);
    int64_t start = now_ns();
    for (long i = 0; i < count && !failures; i++) failures = read_all(reader, message, bytes);
    int64_t elapsed_ns = now_ns() - start;
    waitpid(child, NULL, 0);
    CHECK(!failures, "read");
    return elapsed_ns;
}

static int64_t pipe_stream(long count) {
    int ends[2];
    CHECK(!pipe(ends), "pipe");
    int64_t elapsed_ns = stream(count, ends[0], ends[1], PAGE_BYTES);
    close(ends[0]), close(ends[1]);
    return elapsed_ns;
}

static int64_t pair_round(long count, const int ends[2], size_t bytes) {
    int64_t elapsed_ns = ping_pong(count, (int[]){ends[0], ends[0]}, (int[]){ends[1], ends[1]}, bytes);
    close(ends[0]), close(ends[1]);
    return elapsed_ns;
}

static int64_t unix_round(long count, size_t bytes) {
    int ends[2];
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
    return pair_round(count, ends, bytes);
}

static int64_t unix_1b(long count) {
    return unix_round(count, 1);
}

static int64_t unix_4k(long count) {
    return unix_round(count, PAGE_BYTES);
}

/* A socket on a free port of the loopback address, and that address. */
static int bound_socket(int type, struct sockaddr_in *address) {
    socklen_t length = sizeof *address;
    memset(address, 0, sizeof *address);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, type, 0);
    if (fd >= 0 && !bind(fd, (void *)address, length) && !getsockname(fd, (void *)address, &length)) return fd;
    return -1;
}

static int tcp_pair(int ends[2]) {
    struct sockaddr_in address;
    int one = 1, listener = bound_socket(SOCK_STREAM, &address);
    if (listener < 0 || listen(listener, 1)) return -1;
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (ends[0] < 0 || connect(ends[0], (void *)&address, sizeof address)) return -1;
    ends[1] = accept(listener, NULL, NULL);
    close(listener);
    for (int i = 0; i < 2; i++) setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return ends[1] < 0 ? -1 : 0;
}

static int64_t tcp_1b(long count) {
    int ends[2];
    CHECK(!tcp_pair(ends), "TCP sockets");
    return pair_round(count, ends, 1);
}

static int64_t tcp_64k(long count) {
    int ends[2];
    CHECK(!tcp_pair(ends), "TCP sockets");
    int64_t elapsed_ns = stream(count, ends[0], ends[1], sizeof message);
    close(ends[0]), close(ends[1]);
    return elapsed_ns;
}

static int64_t udp_1b(long count) {
    struct sockaddr_in addresses[2];
    int ends[2];
    for (int i = 0; i < 2; i++) {
        ends[i] = bound_socket(SOCK_DGRAM, &addresses[i]);
        CHECK(ends[i] >= 0, "UDP socket");
    }
    for (int i = 0; i < 2; i++)
        CHECK(!connect(ends[i], (void *)&addresses[1 - i], sizeof addresses[0]), "connect");
    return pair_round(count, ends, 1);
}

/* A word that two threads wait for in turn. */
static _Atomic int turn;

static void wait_turn(int other) {
    while (atomic_load(&turn) == other) syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, other, NULL, NULL, 0);
}

static void give_turn(int value) {
    atomic_store(&turn, value);
    syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *answer_turns(void *count) {
    take_place(1);
    for (long i = 0; i <= (long)count; i++) {
        wait_turn(0);
        give_turn(0);
    }
    return NULL;
}

static int64_t futex_round(long count) {
    pthread_t thread;
    CHECK(!take_place(0), "sched_setaffinity");
    turn = 0;
    errno = pthread_create(&thread, NULL, answer_turns, (void *)count);
    CHECK(!errno, "pthread_create");
    give_turn(1);
    wait_turn(1);
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        give_turn(1);
        wait_turn(1);
    }
    int64_t elapsed_ns = now_ns() - start;
    pthread_join(thread, NULL);
    return elapsed_ns;
}

static void await_word(struct shared *shared, int value, int yields) {
    while (atomic_load(&shared->word) != value)
        if (yields) raw_call(SYS_sched_yield, 0, 0, 0);
        else __asm__ volatile("pause");
}

/* A word in shared memory, there and back. */
static int64_t shared_round(long count, int yields) {
    struct shared *shared = map_shared();
    CHECK(shared, "mmap");
    CHECK(!take_place(0), "sched_setaffinity");
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        /* Whatever happens, the other side may not wait for ever. */
        take_place(1);
        for (long i = 0; i <= count; i++) {
            await_word(shared, 2 * i + 1, yields);
            atomic_store(&shared->word, 2 * i + 2);
        }
        _exit(0);
    }
    int64_t start = 0;
    for (long i = 0; i <= count; i++) {
        if (i == 1) start = now_ns();
        atomic_store(&shared->word, 2 * i + 1);
        await_word(shared, 2 * i + 2, yields);
    }
    int64_t elapsed_ns = now_ns() - start;
    waitpid(child, NULL, 0);
    munmap(shared, PAGE_BYTES);
    return elapsed_ns;
}

static int64_t shared_yielding(long count) {
    return shared_round(count, 1);
}

static int64_t shared_spinning(long count) {
    return shared_round(count, 0);
}

const struct row channel_rows[] = {{"pipe_pingpong_1B_rt", pipe_1b, BOTH_PLACES},
                                   {"pipe_4k_rt", pipe_4k, BOTH_PLACES},
                                   {"pipe_4k_stream", pipe_stream, BOTH_PLACES},
                                   {"unix_1B_rt", unix_1b, BOTH_PLACES},
                                   {"unix_4k_rt", unix_4k, BOTH_PLACES},
                                   {"tcp_lo_1B_rt", tcp_1b, BOTH_PLACES},
                                   {"udp_lo_1B_rt", udp_1b, BOTH_PLACES},
                                   {"tcp_lo_64k", tcp_64k, BOTH_PLACES},
                                   {"futex_pp_rt", futex_round, BOTH_PLACES},
                                   {"shm_pp_yield_rt", shared_yielding, BOTH_PLACES},
                                   {"shm_pp_spin_rt", shared_spinning, 1 << DIFFERENT, 1},
                                   {0}};
