// Asynchronous transfers of a disk past its pages, by both interfaces: what was written is what is read. The path of
// the disk is the argument; all that is on it is lost.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCK = 4096, BLOCKS = 512, DEPTH = 16 };

static unsigned seed = 5;
static unsigned any(void) { return seed = seed * 1664525 + 1013904223, seed >> 8; }
static uint64_t generation[BLOCKS];
static char *memory;

static void check(const char *what, long found, long wanted) {
    if (found != wanted) {
        printf("%s: %ld, not %ld\n", what, found, wanted);
        exit(1);
    }
}

static void fill(char *bytes, unsigned block, uint64_t turn) {
    for (unsigned place = 0; place < BLOCK / 8; place++)
        ((uint64_t *)bytes)[place] = (uint64_t)block << 48 ^ turn << 16 ^ place;
}

static int is_filled(const char *bytes, unsigned block, uint64_t turn) {
    char wanted[BLOCK];
    fill(wanted, block, turn);
    return memcmp(bytes, wanted, BLOCK) == 0;
}

// A queue of requests of either kind.
struct queue {
    int fd, is_ring;
    aio_context_t context;
    struct iocb requests[DEPTH], *list[DEPTH];
    struct io_uring_params params;
    char *rings;
    struct io_uring_sqe *sqes;
    unsigned tail;
};

static void begin(struct queue *queue, int fd, int is_ring) {
    *queue = (struct queue){.fd = fd, .is_ring = is_ring};
    if (!is_ring) {
        check("io_setup", syscall(SYS_io_setup, DEPTH, &queue->context), 0);
        return;
    }
    int ring = syscall(SYS_io_uring_setup, DEPTH, &queue->params);
    queue->rings = mmap(NULL, queue->params.sq_off.array + DEPTH * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring, 0);
    queue->sqes = mmap(NULL, DEPTH * 64, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    queue->context = ring;
}

static void put(struct queue *queue, int slot, int is_write, unsigned block) {
    char *bytes = memory + slot * BLOCK;
    if (!queue->is_ring) {
        queue->requests[slot] = (struct iocb){.aio_lio_opcode = is_write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD,
                                              .aio_fildes = queue->fd, .aio_buf = (uintptr_t)bytes,
                                              .aio_nbytes = BLOCK, .aio_offset = (long)block * BLOCK, .aio_data = slot};
        queue->list[slot] = &queue->requests[slot];
        return;
    }
    unsigned place = queue->tail++ & (DEPTH - 1);
    queue->sqes[place] = (struct io_uring_sqe){.opcode = is_write ? IORING_OP_WRITE : IORING_OP_READ, .fd = queue->fd,
                                               .addr = (uintptr_t)bytes, .len = BLOCK, .off = (long)block * BLOCK,
                                               .user_data = slot};
    ((unsigned *)(queue->rings + queue->params.sq_off.array))[place] = place;
    __atomic_store_n((unsigned *)(queue->rings + queue->params.sq_off.tail), queue->tail, __ATOMIC_RELEASE);
}

static void go(struct queue *queue, int count) {
    if (queue->is_ring)
        check("io_uring_enter", syscall(SYS_io_uring_enter, queue->context, count, 0, 0, NULL, 8), count);
    else
        check("io_submit", syscall(SYS_io_submit, queue->context, count, queue->list), count);
}

// The next that has ended: its slot.
static int next(struct queue *queue, long wanted) {
    if (!queue->is_ring) {
        struct io_event event;
        check("io_getevents", syscall(SYS_io_getevents, queue->context, 1L, 1L, &event, NULL), 1);
        check("event", event.res, wanted);
        return event.data;
    }
    unsigned *head = (void *)(queue->rings + queue->params.cq_off.head);
    unsigned *tail = (void *)(queue->rings + queue->params.cq_off.tail);
    while (*head == __atomic_load_n(tail, __ATOMIC_ACQUIRE))
        syscall(SYS_io_uring_enter, queue->context, 0, 1, IORING_ENTER_GETEVENTS, NULL, 8);
    struct io_uring_cqe *cqe = (struct io_uring_cqe *)(queue->rings + queue->params.cq_off.cqes) +
                               (*head & (queue->params.cq_entries - 1));
    check("completion", cqe->res, wanted);
    int slot = cqe->user_data;
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    return slot;
}

static void turns(struct queue *queue) {
    for (int turn = 0; turn < 40; turn++) {
        unsigned blocks[DEPTH], first = any() % BLOCKS;
        int is_write = turn % 2 == 0;
        for (int slot = 0; slot < DEPTH; slot++) {
            blocks[slot] = (first + slot * 31) % BLOCKS;
            memset(memory + slot * BLOCK, 0xee, BLOCK);
            if (is_write)
                fill(memory + slot * BLOCK, blocks[slot], ++generation[blocks[slot]]);
            put(queue, slot, is_write, blocks[slot]);
        }
        go(queue, DEPTH);
        for (int done = 0; done < DEPTH; done++) {
            int slot = next(queue, BLOCK);
            if (!is_write && generation[blocks[slot]])
                check("block", is_filled(memory + slot * BLOCK, blocks[slot], generation[blocks[slot]]), 1);
        }
    }
}

int main(int count, char **arguments) {
    alarm(100);
    memory = mmap(NULL, (DEPTH + 1) * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = open(arguments[1], O_RDWR | O_DIRECT);
    check("open", fd >= 0, 1);
    for (int is_ring = 0; is_ring < 2; is_ring++) {
        struct queue queue;
        begin(&queue, fd, is_ring);
        turns(&queue);
        // Behind the end there is nothing, and halves of sectors are none.
        put(&queue, 0, 0, 1 << 20);
        go(&queue, 1);
        next(&queue, 0);
        put(&queue, 0, 0, 0);
        if (is_ring)
            queue.sqes[(queue.tail - 1) & (DEPTH - 1)].addr += 7;
        else
            queue.requests[0].aio_buf += 7;
        go(&queue, 1);
        next(&queue, -EINVAL);
        // A process that ends in the middle of it: the disk keeps its memory.
        fflush(stdout);
        for (int turn = 0; turn < 4; turn++) {
            pid_t child = fork();
            if (child == 0) {
                struct queue own;
                begin(&own, fd, is_ring);
                for (int slot = 0; slot < DEPTH; slot++)
                    put(&own, slot, 0, any() % BLOCKS);
                go(&own, DEPTH);
                if (turn % 2)
                    raise(SIGKILL);
                _exit(0);
            }
            waitpid(child, NULL, 0);
        }
        turns(&queue);
        printf("%s: all blocks are as they were written\n", is_ring ? "io_uring" : "io_submit");
    }
    (void)count;
    return 0;
}
