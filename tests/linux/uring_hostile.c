// Rings of garbage: random requests, and random words in the rings from a second thread. They hurt their own process
// alone, whose end is not looked at; a ring of another process goes on.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned seed;
static unsigned any(void) { return seed = seed * 1664525 + 1013904223, seed >> 3; }

struct ring {
    int fd;
    struct io_uring_params params;
    unsigned *rings;
    struct io_uring_sqe *sqes;
    size_t bytes;
};

static struct ring make(unsigned count) {
    struct ring ring = {0};
    ring.fd = syscall(SYS_io_uring_setup, count, &ring.params);
    ring.bytes = ring.params.sq_off.array + ring.params.sq_entries * 4;
    ring.rings = mmap(NULL, ring.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_SQ_RING);
    ring.sqes = mmap(NULL, ring.params.sq_entries * 64, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_SQES);
    return ring;
}

static void *scribble(void *argument) {
    struct ring *ring = argument;
    unsigned own = 99;
    for (int turn = 0; turn < 100000; turn++) {
        own = own * 1664525 + 1013904223;
        ring->rings[(own >> 8) % (ring->bytes / 4)] = own % 3 ? own >> 12 : own % 64;
        ((unsigned *)ring->sqes)[(own >> 7) % (ring->params.sq_entries * 16)] = own;
    }
    return NULL;
}

static char room[1 << 16];

static void attack(int number) {
    struct rlimit small = {64 << 20, 64 << 20};
    seed = number * 77 + 1;
    alarm(10);
    chdir("/tmp");
    struct ring ring = make(8);
    int pipes[2], pair[2], files[8];
    pipe(pipes);
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    int file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    int fds[] = {pipes[0], pipes[1], pair[0], pair[1], file, eventfd(0, 0), timerfd_create(CLOCK_MONOTONIC, 0), ring.fd};
    setrlimit(RLIMIT_FSIZE, &small);
    struct iovec buffers[] = {{room, 4096}, {room + 8192, 4096}};
    syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, buffers, 2);
    syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_FILES, fds, 7);
    if (number % 3 == 0)
        syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_EVENTFD, &fds[5], 1);
    pthread_t thread;
    int scribbles = number % 2;
    if (scribbles)
        pthread_create(&thread, NULL, scribble, &ring);
    for (int turn = 0; turn < 3000; turn++) {
        unsigned *tail = (void *)((char *)ring.rings + ring.params.sq_off.tail);
        unsigned *array = (void *)((char *)ring.rings + ring.params.sq_off.array), at = *tail;
        int count = any() % 9;
        for (int index = 0; index < count; index++) {
            struct io_uring_sqe *sqe = &ring.sqes[(at + index) & 7];
            for (int word = 0; word < 16; word++)
                ((unsigned *)sqe)[word] = any() % 4 ? 0 : any();
            sqe->opcode = any() % 50;
            // What would be done to the program's memory or to other processes' files is left out.
            if (sqe->opcode == IORING_OP_MADVISE || sqe->opcode == IORING_OP_CLOSE)
                sqe->opcode = IORING_OP_POLL_ADD;
            sqe->flags = any() % 3 ? 0 : any();
            sqe->fd = any() % 8 ? fds[any() % 8] : any() % 16;
            sqe->addr = any() % 4 ? (uintptr_t)room + any() % 4096 : any();
            sqe->len = any() % 3 ? any() % 64 : any() % 8192;
            sqe->off = any() % 2 ? 0 : any() % 2 ? (uintptr_t)room + any() % 4096 : any();
            sqe->user_data = any() % 32;
            sqe->buf_index = any() % 3;
            array[(at + index) & 7] = any() % 30 ? (at + index) & 7 : any();
        }
        *tail = any() % 50 ? at + count : any();
        struct io_uring_getevents_arg bounds = {.ts = (uintptr_t)&(struct { int64_t s, n; }){0, 1000}};
        syscall(SYS_io_uring_enter, ring.fd, any() % 12, any() % 3,
                any() % 4 ? IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG : any() % 32, &bounds, sizeof bounds);
        if (any() % 4)
            *(unsigned *)((char *)ring.rings + ring.params.cq_off.head) =
                any() % 20 ? *(unsigned *)((char *)ring.rings + ring.params.cq_off.tail) : any();
        if (any() % 8 == 0)
            write(pipes[1], room, any() % 64);
    }
    (void)files;
    _exit(0);
}

// One entry at a time, in a process of its own.
static int works(struct ring *ring, unsigned number) {
    unsigned *tail = (void *)((char *)ring->rings + ring->params.sq_off.tail);
    unsigned *cq_head = (void *)((char *)ring->rings + ring->params.cq_off.head);
    struct io_uring_cqe *cqes = (void *)((char *)ring->rings + ring->params.cq_off.cqes);
    memset(&ring->sqes[0], 0, 64);
    ring->sqes[0].user_data = number;
    *tail += 1;
    if (syscall(SYS_io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 8) != 1)
        return 0;
    return cqes[(*cq_head)++ & (ring->params.cq_entries - 1)].user_data == number;
}

int main(void) {
    struct ring own = make(4);
    for (int number = 0; number < 12; number++) {
        int status;
        pid_t child = fork();
        if (child == 0)
            attack(number);
        if (number % 4 == 3) {
            usleep(20000);
            kill(child, SIGKILL);
        }
        waitpid(child, &status, 0);
        printf("%d: %s\n", number, works(&own, number) ? "goes on" : "does not go on");
        fflush(stdout);
    }
    return 0;
}
