// io_uring: rings, requests, links, timeouts, cancellations, sockets, registered files and buffers.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/time_types.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct ring {
    int fd;
    struct io_uring_params params;
    char *rings;
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
    unsigned tail, *sq_head, *sq_tail, *array, *flags, *cq_head, *cq_tail;
};

static int setup(unsigned count, struct io_uring_params *params) { return syscall(SYS_io_uring_setup, count, params); }
static int enter(struct ring *ring, unsigned count, unsigned least, unsigned flags) {
    return syscall(SYS_io_uring_enter, ring->fd, count, least, flags, NULL, 8);
}
static int registers(struct ring *ring, unsigned operation, void *argument, unsigned count) {
    return syscall(SYS_io_uring_register, ring->fd, operation, argument, count);
}

static void told(const char *what, long answer) {
    if (answer < 0)
        printf("%s: %s\n", what, strerrorname_np(errno));
    else
        printf("%s: %ld\n", what, answer);
}

static const char *result_of(int result, char *text) {
    if (result < 0)
        strcpy(text, strerrorname_np(-result));
    else
        sprintf(text, "%d", result);
    return text;
}

static struct ring make_with(unsigned count, unsigned flags, unsigned completions) {
    struct ring ring = {.params = {.flags = flags, .cq_entries = completions}};
    ring.fd = setup(count, &ring.params);
    if (ring.fd < 0)
        return ring;
    struct io_uring_params *params = &ring.params;
    size_t bytes = params->sq_off.array + params->sq_entries * 4;
    ring.rings = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_SQ_RING);
    ring.sqes = mmap(NULL, params->sq_entries * sizeof *ring.sqes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                     ring.fd, IORING_OFF_SQES);
    ring.cqes = (void *)(ring.rings + params->cq_off.cqes);
    ring.sq_head = (void *)(ring.rings + params->sq_off.head);
    ring.sq_tail = (void *)(ring.rings + params->sq_off.tail);
    ring.array = (void *)(ring.rings + params->sq_off.array);
    ring.flags = (void *)(ring.rings + params->sq_off.flags);
    ring.cq_head = (void *)(ring.rings + params->cq_off.head);
    ring.cq_tail = (void *)(ring.rings + params->cq_off.tail);
    return ring;
}
static struct ring make(unsigned count) { return make_with(count, 0, 0); }
static void end(struct ring *ring) {
    munmap(ring->rings, ring->params.sq_off.array + ring->params.sq_entries * 4);
    munmap(ring->sqes, ring->params.sq_entries * sizeof *ring->sqes);
    close(ring->fd);
}

static struct io_uring_sqe *add(struct ring *ring, int operation, int fd, const void *address, unsigned length,
                                uint64_t offset, uint64_t data) {
    unsigned place = ring->tail & (ring->params.sq_entries - 1);
    struct io_uring_sqe *sqe = &ring->sqes[place];
    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = operation;
    sqe->fd = fd;
    sqe->addr = (uintptr_t)address;
    sqe->len = length;
    sqe->off = offset;
    sqe->user_data = data;
    ring->array[place] = place;
    ring->tail++;
    __atomic_store_n(ring->sq_tail, ring->tail, __ATOMIC_RELEASE);
    return sqe;
}

static int next(struct ring *ring, struct io_uring_cqe *cqe) {
    unsigned head = *ring->cq_head;
    if (head == __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE))
        return 0;
    *cqe = ring->cqes[head & (ring->params.cq_entries - 1)];
    __atomic_store_n(ring->cq_head, head + 1, __ATOMIC_RELEASE);
    return 1;
}

static int by_data(const void *one, const void *other) {
    const struct io_uring_cqe *first = one, *second = other;
    return first->user_data < second->user_data ? -1 : first->user_data > second->user_data;
}

// Fetches so many completions and shows them by their data, as several may come in any order.
static void fetch(const char *what, struct ring *ring, int count) {
    struct io_uring_cqe cqes[64];
    char text[32];
    int done = 0;
    while (done < count) {
        if (next(ring, &cqes[done]))
            done++;
        else if (enter(ring, 0, 1, IORING_ENTER_GETEVENTS) < 0) {
            told("enter", -1);
            break;
        }
    }
    qsort(cqes, done, sizeof *cqes, by_data);
    printf("%s:", what);
    for (int index = 0; index < done; index++)
        printf(" [%llu %s %x]", cqes[index].user_data, result_of(cqes[index].res, text), cqes[index].flags & 3);
    printf("\n");
}

static void one(const char *what, struct ring *ring) {
    int answer = enter(ring, 1, 1, IORING_ENTER_GETEVENTS);
    if (answer != 1)
        told(what, answer);
    fetch(what, ring, 1);
}

static void rings(void) {
    struct io_uring_params params = {0};
    told("no room", setup(0, &params));
    told("too much", setup(32769, &params));
    told("no place", setup(8, (void *)8));
    params.flags = 1u << 31;
    told("unknown flag", setup(8, &params));
    params = (struct io_uring_params){.resv = {1}};
    told("reserved", setup(8, &params));
    params = (struct io_uring_params){.flags = IORING_SETUP_CQSIZE, .cq_entries = 4};
    told("fewer completions", setup(8, &params));
    params = (struct io_uring_params){.flags = IORING_SETUP_CQSIZE};
    told("no completions", setup(8, &params));
    params = (struct io_uring_params){.flags = IORING_SETUP_CLAMP};
    int fd = setup(100000, &params);
    printf("clamped: %u %u\n", params.sq_entries, params.cq_entries);
    close(fd);
    params = (struct io_uring_params){.flags = IORING_SETUP_CQSIZE, .cq_entries = 33};
    fd = setup(5, &params);
    printf("rounded: %u %u\n", params.sq_entries, params.cq_entries);
    printf("cloexec %d\n", fcntl(fd, F_GETFD));
    char byte;
    told("read", read(fd, &byte, 1));
    told("write", write(fd, &byte, 1));
    close(fd);
    struct ring ring = make(4);
    printf("features %x\n", ring.params.features & 0x1f3f & ~0x80);
    printf("mask %u %u count %u %u\n", *(unsigned *)(ring.rings + ring.params.sq_off.ring_mask),
           *(unsigned *)(ring.rings + ring.params.cq_off.ring_mask),
           *(unsigned *)(ring.rings + ring.params.sq_off.ring_entries),
           *(unsigned *)(ring.rings + ring.params.cq_off.ring_entries));
    told("unknown flags", enter(&ring, 0, 0, 1 << 30));
    told("nothing", enter(&ring, 0, 0, 0));
    told("nothing submitted", enter(&ring, 5, 0, 0));
    told("none wanted", enter(&ring, 0, 0, IORING_ENTER_GETEVENTS));
    struct ring none = {.fd = 0}, bad = {.fd = 99};
    none.fd = open("/dev/null", O_RDWR);
    told("not a ring", enter(&none, 0, 0, 0));
    told("not open", enter(&bad, 0, 0, 0));
    told("not a ring to register", registers(&none, IORING_UNREGISTER_FILES, NULL, 0));
    close(none.fd);
    for (int index = 0; index < 4; index++)
        add(&ring, IORING_OP_NOP, -1, NULL, 0, 0, index);
    struct pollfd polled = {.fd = ring.fd, .events = POLLIN | POLLOUT};
    told("polled", poll(&polled, 1, 0));
    printf("found %x\n", polled.revents);
    told("some", enter(&ring, 3, 0, 0));
    printf("head %u\n", *ring.sq_head);
    told("the rest", enter(&ring, 9, 0, 0));
    poll(&polled, 1, 0);
    printf("found %x\n", polled.revents);
    fetch("nops", &ring, 4);
    ring.array[ring.tail++ & 3] = 17;
    *ring.sq_tail = ring.tail;
    told("no entry", enter(&ring, 1, 0, 0));
    printf("dropped %u\n", *(unsigned *)(ring.rings + ring.params.sq_off.dropped));
    for (int turn = 0; turn < 5; turn++) {
        for (int index = 0; index < 4; index++)
            add(&ring, IORING_OP_NOP, -1, NULL, 0, 0, turn * 4 + index);
        told("overflow", enter(&ring, 4, 0, 0));
    }
    printf("flags %u tail - head %u\n", *ring.flags & 2, *ring.cq_tail - *ring.cq_head);
    fetch("none is lost", &ring, 20);
    printf("flags %u\n", *ring.flags & 2);
    end(&ring);
    ring = make_with(4, IORING_SETUP_R_DISABLED, 0);
    told("disabled", enter(&ring, 0, 0, 0));
    told("enable", registers(&ring, IORING_REGISTER_ENABLE_RINGS, NULL, 0));
    told("enabled", enter(&ring, 0, 0, 0));
    told("enable again", registers(&ring, IORING_REGISTER_ENABLE_RINGS, NULL, 0));
    end(&ring);
}

static void files(void) {
    struct ring ring = make(16);
    char text[64] = "rings of requests", back[64] = {0};
    int file = open("/tmp/uring-file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    add(&ring, IORING_OP_WRITE, file, text, 17, 3, 1);
    one("write", &ring);
    add(&ring, IORING_OP_READ, file, back, 64, 3, 2);
    one("read", &ring);
    puts(back);
    struct iovec parts[] = {{text, 5}, {text + 6, 2}}, into[] = {{back, 3}, {back + 32, 20}};
    add(&ring, IORING_OP_WRITEV, file, parts, 2, 32, 3);
    one("writev", &ring);
    add(&ring, IORING_OP_READV, file, into, 2, 32, 4);
    one("readv", &ring);
    printf("%.3s %.4s\n", back, back + 32);
    lseek(file, 3, SEEK_SET);
    add(&ring, IORING_OP_READ, file, back, 5, -1, 5);
    one("from where it is", &ring);
    printf("%.5s %ld\n", back, (long)lseek(file, 0, SEEK_CUR));
    add(&ring, IORING_OP_READ, file, back, 64, 1 << 20, 6);
    one("behind the end", &ring);
    add(&ring, IORING_OP_READ, file, (void *)8, 4, 0, 7);
    one("to nowhere", &ring);
    add(&ring, IORING_OP_READ, file, back, 4, -2, 8);
    one("negative", &ring);
    add(&ring, IORING_OP_READ, 99, back, 4, 0, 9);
    one("no descriptor", &ring);
    add(&ring, IORING_OP_READV, file, (void *)8, 2, 0, 10);
    one("parts from nowhere", &ring);
    int reader = open("/tmp/uring-file", O_RDONLY);
    add(&ring, IORING_OP_WRITE, reader, text, 4, 0, 11);
    one("write to a reader", &ring);
    add(&ring, IORING_OP_WRITE, file, text, 4, 0, 12)->rw_flags = 0x10;
    one("append", &ring);
    printf("size %ld\n", (long)lseek(file, 0, SEEK_END));
    add(&ring, IORING_OP_WRITE, file, text, 4, 0, 12)->rw_flags = 0x40000000;
    one("unknown flags", &ring);
    add(&ring, IORING_OP_FSYNC, file, NULL, 0, 0, 13);
    one("sync", &ring);
    add(&ring, IORING_OP_FSYNC, file, NULL, 0, 0, 13)->fsync_flags = IORING_FSYNC_DATASYNC;
    one("data sync", &ring);
    add(&ring, IORING_OP_FSYNC, file, NULL, 0, 0, 13)->fsync_flags = 2;
    one("unknown sync", &ring);
    add(&ring, IORING_OP_FALLOCATE, file, (void *)(uintptr_t)8192, 0, 0, 14);
    one("allocate", &ring);
    printf("size %ld\n", (long)lseek(file, 0, SEEK_END));
    add(&ring, IORING_OP_OPENAT, AT_FDCWD, "/tmp/uring-other", 0600, 0, 15)->open_flags = O_RDWR | O_CREAT;
    enter(&ring, 1, 1, IORING_ENTER_GETEVENTS);
    struct io_uring_cqe cqe;
    next(&ring, &cqe);
    printf("opened %d\n", cqe.res >= 0);
    add(&ring, IORING_OP_CLOSE, cqe.res, NULL, 0, 0, 16);
    one("close", &ring);
    add(&ring, IORING_OP_CLOSE, cqe.res, NULL, 0, 0, 16);
    one("close again", &ring);
    add(&ring, IORING_OP_CLOSE, ring.fd, NULL, 0, 0, 16);
    one("close the ring", &ring);
    add(&ring, IORING_OP_OPENAT, AT_FDCWD, "/tmp/uring-not", 0600, 0, 17);
    one("open what is not there", &ring);
    struct statx status;
    add(&ring, IORING_OP_STATX, AT_FDCWD, "/tmp/uring-file", STATX_SIZE, (uintptr_t)&status, 18);
    one("statx", &ring);
    printf("size %llu\n", status.stx_size);
    add(&ring, IORING_OP_MKDIRAT, AT_FDCWD, "/tmp/uring-folder", 0700, 0, 19);
    one("mkdir", &ring);
    add(&ring, IORING_OP_RENAMEAT, AT_FDCWD, "/tmp/uring-other", AT_FDCWD, (uintptr_t)"/tmp/uring-folder/other", 20);
    one("rename", &ring);
    add(&ring, IORING_OP_UNLINKAT, AT_FDCWD, "/tmp/uring-folder", 0, 0, 21)->unlink_flags = AT_REMOVEDIR;
    one("not empty", &ring);
    add(&ring, IORING_OP_UNLINKAT, AT_FDCWD, "/tmp/uring-folder/other", 0, 0, 22);
    one("unlink", &ring);
    add(&ring, IORING_OP_UNLINKAT, AT_FDCWD, "/tmp/uring-folder", 0, 0, 23)->unlink_flags = AT_REMOVEDIR;
    one("rmdir", &ring);
    add(&ring, 200, file, NULL, 0, 0, 24);
    one("an unknown request", &ring);
    add(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 25)->flags = 0x80;
    one("an unknown flag", &ring);
    add(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 26);
    add(&ring, 200, -1, NULL, 0, 0, 27);
    add(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 28);
    told("ends at an error", enter(&ring, 3, 0, 0));
    told("goes on", enter(&ring, 3, 0, 0));
    fetch("all three", &ring, 3);
    struct ring other = make_with(4, IORING_SETUP_SUBMIT_ALL, 0);
    add(&other, 200, -1, NULL, 0, 0, 27);
    add(&other, IORING_OP_NOP, -1, NULL, 0, 0, 28);
    told("all", enter(&other, 2, 0, 0));
    fetch("both", &other, 2);
    end(&other);
    unlink("/tmp/uring-file");
    close(file);
    close(reader);
    end(&ring);
}

static void links(void) {
    struct ring ring = make(16);
    int file = open("/tmp/uring-links", O_RDWR | O_CREAT | O_TRUNC, 0600);
    char back[16] = {0};
    add(&ring, IORING_OP_WRITE, file, "linked", 6, 0, 1)->flags = IOSQE_IO_LINK;
    add(&ring, IORING_OP_READ, file, back, 6, 0, 2)->flags = IOSQE_IO_LINK;
    add(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 3);
    told("linked", enter(&ring, 3, 3, IORING_ENTER_GETEVENTS));
    fetch("linked", &ring, 3);
    puts(back);
    add(&ring, IORING_OP_READ, file, (void *)8, 4, 0, 1)->flags = IOSQE_IO_LINK;
    add(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 2)->flags = IOSQE_IO_LINK;
    add(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 3);
    add(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 4);
    told("broken", enter(&ring, 4, 4, IORING_ENTER_GETEVENTS));
    fetch("broken", &ring, 4);
    add(&ring, IORING_OP_READ, file, (void *)8, 4, 0, 1)->flags = IOSQE_IO_HARDLINK;
    add(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 2);
    enter(&ring, 2, 2, IORING_ENTER_GETEVENTS);
    fetch("hard", &ring, 2);
    add(&ring, IORING_OP_READ, file, back, 16, 0, 1)->flags = IOSQE_IO_LINK;
    add(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 2);
    enter(&ring, 2, 2, IORING_ENTER_GETEVENTS);
    fetch("short", &ring, 2);
    add(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 1)->flags = IOSQE_IO_LINK;
    add(&ring, 200, -1, NULL, 0, 0, 2)->flags = IOSQE_IO_LINK;
    add(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 3);
    enter(&ring, 3, 3, IORING_ENTER_GETEVENTS);
    fetch("refused in the middle", &ring, 3);
    int ends[2];
    pipe(ends);
    add(&ring, IORING_OP_READ, ends[0], back, 4, 0, 1)->flags = IOSQE_IO_LINK;
    add(&ring, IORING_OP_WRITE, file, back, 4, 0, 2);
    add(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 3)->flags = IOSQE_IO_DRAIN;
    add(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 4);
    told("waiting", enter(&ring, 4, 0, 0));
    printf("nothing yet %u\n", *ring.cq_tail - *ring.cq_head);
    write(ends[1], "pipe", 4);
    fetch("drained", &ring, 4);
    add(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 1)->flags = IOSQE_CQE_SKIP_SUCCESS;
    add(&ring, IORING_OP_READ, file, (void *)8, 4, 0, 2)->flags = IOSQE_CQE_SKIP_SUCCESS;
    add(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 3);
    enter(&ring, 3, 2, IORING_ENTER_GETEVENTS);
    fetch("silent success", &ring, 2);
    add(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 4)->flags = IOSQE_ASYNC;
    one("later", &ring);
    unlink("/tmp/uring-links");
    end(&ring);
}

static struct __kernel_timespec milliseconds(int count) { return (struct __kernel_timespec){.tv_nsec = count * 1000000}; }

static void timeouts(void) {
    struct ring ring = make(16);
    struct __kernel_timespec soon = milliseconds(2), late = {.tv_sec = 50}, bad = {.tv_nsec = 2000000000};
    add(&ring, IORING_OP_TIMEOUT, -1, &soon, 1, 0, 1);
    one("over", &ring);
    add(&ring, IORING_OP_TIMEOUT, -1, &soon, 2, 0, 1);
    one("two", &ring);
    add(&ring, IORING_OP_TIMEOUT, -1, (void *)8, 1, 0, 1);
    one("no time", &ring);
    add(&ring, IORING_OP_TIMEOUT, -1, &soon, 1, 0, 1)->timeout_flags = 1 << 20;
    one("an unknown clock", &ring);
    add(&ring, IORING_OP_TIMEOUT, -1, &late, 1, 2, 1);
    add(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 2);
    enter(&ring, 2, 1, IORING_ENTER_GETEVENTS);
    fetch("one of two", &ring, 1);
    add(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 3);
    enter(&ring, 1, 2, IORING_ENTER_GETEVENTS);
    fetch("by count", &ring, 2);
    add(&ring, IORING_OP_TIMEOUT, -1, &late, 1, 0, 7);
    enter(&ring, 1, 0, 0);
    add(&ring, IORING_OP_TIMEOUT_REMOVE, -1, (void *)8, 0, 0, 8);
    one("another", &ring);
    add(&ring, IORING_OP_TIMEOUT_REMOVE, -1, (void *)7, 0, (uintptr_t)&soon, 9)->timeout_flags = IORING_TIMEOUT_UPDATE;
    enter(&ring, 1, 2, IORING_ENTER_GETEVENTS);
    fetch("sooner", &ring, 2);
    add(&ring, IORING_OP_TIMEOUT, -1, &late, 1, 0, 7);
    add(&ring, IORING_OP_TIMEOUT_REMOVE, -1, (void *)7, 0, 0, 8);
    enter(&ring, 2, 2, IORING_ENTER_GETEVENTS);
    fetch("removed", &ring, 2);
    add(&ring, IORING_OP_TIMEOUT, -1, &soon, 1, 0, 1)->flags = IOSQE_IO_LINK;
    add(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 2);
    enter(&ring, 2, 2, IORING_ENTER_GETEVENTS);
    fetch("over is a failure", &ring, 2);
    struct io_uring_sqe *sqe = add(&ring, IORING_OP_TIMEOUT, -1, &soon, 1, 0, 1);
    sqe->flags = IOSQE_IO_LINK;
    sqe->timeout_flags = IORING_TIMEOUT_ETIME_SUCCESS;
    add(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 2);
    enter(&ring, 2, 2, IORING_ENTER_GETEVENTS);
    fetch("over is a success", &ring, 2);
    int ends[2];
    char back[8];
    pipe(ends);
    add(&ring, IORING_OP_READ, ends[0], back, 8, 0, 1)->flags = IOSQE_IO_LINK;
    add(&ring, IORING_OP_LINK_TIMEOUT, -1, &soon, 1, 0, 2);
    enter(&ring, 2, 2, IORING_ENTER_GETEVENTS);
    fetch("bounded", &ring, 2);
    add(&ring, IORING_OP_READ, ends[0], back, 8, 0, 1)->flags = IOSQE_IO_LINK;
    add(&ring, IORING_OP_LINK_TIMEOUT, -1, &late, 1, 0, 2);
    enter(&ring, 2, 0, 0);
    write(ends[1], "x", 1);
    fetch("in time", &ring, 2);
    add(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 1)->flags = IOSQE_IO_LINK;
    add(&ring, IORING_OP_LINK_TIMEOUT, -1, &late, 1, 0, 2)->flags = IOSQE_IO_LINK;
    add(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 3);
    enter(&ring, 3, 3, IORING_ENTER_GETEVENTS);
    fetch("at once", &ring, 3);
    add(&ring, IORING_OP_LINK_TIMEOUT, -1, &late, 1, 0, 2);
    one("bounds nothing", &ring);
    struct io_uring_getevents_arg bounds = {.ts = (uintptr_t)&soon};
    told("none in time", syscall(SYS_io_uring_enter, ring.fd, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG,
                                 &bounds, sizeof bounds));
    told("a bad size", syscall(SYS_io_uring_enter, ring.fd, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG,
                               &bounds, 8));
    end(&ring);
    (void)bad;
}

static void polls(void) {
    struct ring ring = make(16);
    int ends[2], full[2];
    char byte;
    pipe(ends);
    add(&ring, IORING_OP_POLL_ADD, ends[0], NULL, 0, 0, 1)->poll32_events = POLLIN;
    enter(&ring, 1, 0, 0);
    printf("nothing yet %u\n", *ring.cq_tail - *ring.cq_head);
    write(ends[1], "x", 1);
    fetch("readable", &ring, 1);
    add(&ring, IORING_OP_POLL_ADD, ends[1], NULL, 0, 0, 2)->poll32_events = POLLOUT;
    one("writable", &ring);
    add(&ring, IORING_OP_POLL_ADD, ends[0], NULL, 0, 0, 3)->poll32_events = POLLPRI;
    enter(&ring, 1, 0, 0);
    add(&ring, IORING_OP_POLL_REMOVE, -1, (void *)9, 0, 0, 4);
    one("remove another", &ring);
    add(&ring, IORING_OP_POLL_REMOVE, -1, (void *)3, 0, 0, 5);
    enter(&ring, 1, 2, IORING_ENTER_GETEVENTS);
    fetch("removed", &ring, 2);
    read(ends[0], &byte, 1);
    add(&ring, IORING_OP_POLL_ADD, ends[0], NULL, IORING_POLL_ADD_MULTI, 0, 6)->poll32_events = POLLIN;
    enter(&ring, 1, 0, 0);
    for (int turn = 0; turn < 3; turn++) {
        write(ends[1], "x", 1);
        fetch("again", &ring, 1);
        read(ends[0], &byte, 1);
    }
    add(&ring, IORING_OP_ASYNC_CANCEL, -1, (void *)6, 0, 0, 7);
    enter(&ring, 1, 2, IORING_ENTER_GETEVENTS);
    fetch("cancelled", &ring, 2);
    add(&ring, IORING_OP_READ, ends[0], &byte, 1, 0, 8);
    add(&ring, IORING_OP_READ, ends[0], &byte, 1, 0, 9);
    enter(&ring, 2, 0, 0);
    add(&ring, IORING_OP_ASYNC_CANCEL, ends[0], NULL, 0, 0, 10)->cancel_flags = IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_ALL;
    enter(&ring, 1, 3, IORING_ENTER_GETEVENTS);
    fetch("both", &ring, 3);
    add(&ring, IORING_OP_ASYNC_CANCEL, -1, (void *)77, 0, 0, 11);
    one("nothing to cancel", &ring);
    add(&ring, IORING_OP_POLL_ADD, ends[0], NULL, 0, 0, 12)->poll32_events = POLLIN;
    enter(&ring, 1, 0, 0);
    close(ends[1]);
    fetch("hung up", &ring, 1);
    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec soon = {.it_value = {.tv_nsec = 2000000}};
    timerfd_settime(timer, 0, &soon, NULL);
    add(&ring, IORING_OP_POLL_ADD, timer, NULL, 0, 0, 13)->poll32_events = POLLIN;
    one("a timer", &ring);
    uint64_t count = 0;
    add(&ring, IORING_OP_READ, timer, &count, 8, 0, 14);
    one("its count", &ring);
    timerfd_settime(timer, 0, &soon, NULL);
    add(&ring, IORING_OP_READ, timer, &count, 8, 0, 15);
    one("waited for", &ring);
    printf("%lu\n", count);
    int bell = eventfd(0, 0);
    told("a bell", registers(&ring, IORING_REGISTER_EVENTFD, &bell, 1));
    told("another", registers(&ring, IORING_REGISTER_EVENTFD, &bell, 1));
    add(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 16);
    one("with a bell", &ring);
    read(bell, &count, 8);
    printf("rang %lu\n", count);
    pipe(full);
    add(&ring, IORING_OP_READ, full[0], &byte, 1, 0, 17);
    enter(&ring, 1, 0, 0);
    write(full[1], "y", 1);
    read(bell, &count, 8);
    printf("rang later %lu, completed %u\n", count, *ring.cq_tail - *ring.cq_head);
    fetch("by then", &ring, 1);
    told("no bell", registers(&ring, IORING_UNREGISTER_EVENTFD, NULL, 0));
    told("no bell again", registers(&ring, IORING_UNREGISTER_EVENTFD, NULL, 0));
    int watcher = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(watcher, EPOLL_CTL_ADD, ring.fd, &event);
    told("watched", epoll_wait(watcher, &event, 1, 0));
    add(&ring, IORING_OP_READ, full[0], &byte, 1, 0, 18);
    enter(&ring, 1, 0, 0);
    write(full[1], "z", 1);
    told("watched", epoll_wait(watcher, &event, 1, 5000));
    fetch("by then", &ring, 1);
    add(&ring, IORING_OP_POLL_ADD, ring.fd, NULL, 0, 0, 19)->poll32_events = POLLIN;
    enter(&ring, 1, 0, 0);
    add(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 20);
    enter(&ring, 1, 2, IORING_ENTER_GETEVENTS);
    fetch("itself", &ring, 2);
    end(&ring);
}

static void sockets(void) {
    struct ring ring = make(32);
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}}, from;
    socklen_t length = sizeof name, from_length = sizeof from;
    int server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    bind(server, (void *)&name, sizeof name);
    getsockname(server, (void *)&name, &length);
    listen(server, 8);
    add(&ring, IORING_OP_ACCEPT, server, &from, 0, (uintptr_t)&from_length, 1);
    add(&ring, IORING_OP_CONNECT, client, &name, 0, sizeof name, 2);
    enter(&ring, 2, 2, IORING_ENTER_GETEVENTS);
    struct io_uring_cqe cqe;
    int accepted = -1;
    for (int index = 0; index < 2; index++) {
        while (!next(&ring, &cqe))
            enter(&ring, 0, 1, IORING_ENTER_GETEVENTS);
        if (cqe.user_data == 1)
            accepted = cqe.res;
        else
            printf("connected %d\n", cqe.res);
    }
    printf("accepted %d from %x\n", accepted >= 0, ntohl(from.sin_addr.s_addr));
    char back[64] = {0};
    add(&ring, IORING_OP_RECV, accepted, back, 64, 0, 3);
    add(&ring, IORING_OP_SEND, client, "hello", 5, 0, 4);
    enter(&ring, 2, 2, IORING_ENTER_GETEVENTS);
    fetch("exchanged", &ring, 2);
    puts(back);
    add(&ring, IORING_OP_RECV, accepted, back, 10, 0, 5)->msg_flags = MSG_WAITALL;
    add(&ring, IORING_OP_SEND, client, "first", 5, 0, 6);
    enter(&ring, 2, 1, IORING_ENTER_GETEVENTS);
    fetch("sent", &ring, 1);
    add(&ring, IORING_OP_SEND, client, "again", 5, 0, 7);
    enter(&ring, 1, 2, IORING_ENTER_GETEVENTS);
    fetch("whole", &ring, 2);
    printf("%.10s\n", back);
    struct iovec part = {back, 64}, text = {"message", 7};
    struct msghdr receiving = {.msg_iov = &part, .msg_iovlen = 1}, sending = {.msg_iov = &text, .msg_iovlen = 1};
    add(&ring, IORING_OP_RECVMSG, accepted, &receiving, 1, 0, 8);
    enter(&ring, 1, 0, 0);
    add(&ring, IORING_OP_SENDMSG, client, &sending, 1, 0, 9);
    enter(&ring, 1, 2, IORING_ENTER_GETEVENTS);
    fetch("messages", &ring, 2);
    printf("%.7s\n", back);
    add(&ring, IORING_OP_RECV, accepted, back, 64, 0, 10)->msg_flags = MSG_DONTWAIT;
    one("nothing there", &ring);
    add(&ring, IORING_OP_RECV, 0, back, 64, 0, 11)->fd = ring.fd;
    one("no socket", &ring);
    add(&ring, IORING_OP_SHUTDOWN, client, NULL, SHUT_WR, 0, 12);
    one("shut down", &ring);
    add(&ring, IORING_OP_RECV, accepted, back, 64, 0, 13);
    one("the end", &ring);
    add(&ring, IORING_OP_SEND, client, "more", 4, 0, 14);
    one("no more", &ring);
    int refused = socket(AF_INET, SOCK_STREAM, 0);
    close(server);
    add(&ring, IORING_OP_CONNECT, refused, &name, 0, sizeof name, 15);
    one("refused", &ring);
    int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    char buffers[4][16];
    memset(buffers, 0, sizeof buffers);
    add(&ring, IORING_OP_PROVIDE_BUFFERS, 4, buffers, 16, 100, 16)->buf_group = 5;
    one("provided", &ring);
    struct io_uring_sqe *sqe = add(&ring, IORING_OP_RECV, pair[0], NULL, 0, 0, 17);
    sqe->flags = IOSQE_BUFFER_SELECT;
    sqe->buf_group = 5;
    enter(&ring, 1, 0, 0);
    write(pair[1], "chosen", 6);
    while (!next(&ring, &cqe))
        enter(&ring, 0, 1, IORING_ENTER_GETEVENTS);
    printf("chosen %d flags %x: %s\n", cqe.res, cqe.flags & 0xffff0001, buffers[0]);
    add(&ring, IORING_OP_REMOVE_BUFFERS, 8, NULL, 0, 0, 18)->buf_group = 5;
    one("removed", &ring);
    sqe = add(&ring, IORING_OP_RECV, pair[0], NULL, 0, 0, 19);
    sqe->flags = IOSQE_BUFFER_SELECT;
    sqe->buf_group = 5;
    write(pair[1], "more", 4);
    one("none left", &ring);
    end(&ring);
}

static void registrations(void) {
    struct ring ring = make(16);
    char bytes[8192] = "fixed", back[16] = {0};
    int file = open("/tmp/uring-fixed", O_RDWR | O_CREAT | O_TRUNC, 0600);
    struct iovec buffers[] = {{bytes, 4096}, {bytes + 4096, 4096}};
    told("no buffers", registers(&ring, IORING_UNREGISTER_BUFFERS, NULL, 0));
    told("buffers", registers(&ring, IORING_REGISTER_BUFFERS, buffers, 2));
    told("again", registers(&ring, IORING_REGISTER_BUFFERS, buffers, 2));
    add(&ring, IORING_OP_WRITE_FIXED, file, bytes, 5, 0, 1)->buf_index = 0;
    one("write", &ring);
    add(&ring, IORING_OP_READ_FIXED, file, bytes + 4096, 5, 0, 2)->buf_index = 1;
    one("read", &ring);
    puts(bytes + 4096);
    add(&ring, IORING_OP_READ_FIXED, file, bytes + 4096, 5, 0, 3)->buf_index = 0;
    one("another buffer", &ring);
    add(&ring, IORING_OP_READ_FIXED, file, bytes, 5, 0, 4)->buf_index = 2;
    one("no buffer", &ring);
    told("no buffers", registers(&ring, IORING_UNREGISTER_BUFFERS, NULL, 0));
    buffers[0].iov_base = (void *)8;
    told("from nowhere", registers(&ring, IORING_REGISTER_BUFFERS, buffers, 2));
    int table[] = {file, -1, file};
    told("files", registers(&ring, IORING_REGISTER_FILES, table, 3));
    told("again", registers(&ring, IORING_REGISTER_FILES, table, 3));
    add(&ring, IORING_OP_READ, 0, back, 5, 0, 5)->flags = IOSQE_FIXED_FILE;
    one("by place", &ring);
    puts(back);
    add(&ring, IORING_OP_READ, 1, back, 5, 0, 6)->flags = IOSQE_FIXED_FILE;
    one("an empty place", &ring);
    add(&ring, IORING_OP_READ, 9, back, 5, 0, 7)->flags = IOSQE_FIXED_FILE;
    one("no place", &ring);
    struct io_uring_files_update update = {.offset = 1, .fds = (uintptr_t)table};
    told("update", registers(&ring, IORING_REGISTER_FILES_UPDATE, &update, 1));
    close(file);
    add(&ring, IORING_OP_READ, 1, back, 5, 0, 8)->flags = IOSQE_FIXED_FILE;
    one("still open", &ring);
    update.offset = 3;
    told("beyond", registers(&ring, IORING_REGISTER_FILES_UPDATE, &update, 1));
    add(&ring, IORING_OP_OPENAT, AT_FDCWD, "/tmp/uring-fixed", 0, 0, 9)->file_index = 2;
    one("open to a place", &ring);
    add(&ring, IORING_OP_CLOSE, 0, NULL, 0, 0, 10)->file_index = 2;
    one("close a place", &ring);
    add(&ring, IORING_OP_CLOSE, 0, NULL, 0, 0, 11)->file_index = 2;
    one("close it again", &ring);
    told("no files", registers(&ring, IORING_UNREGISTER_FILES, NULL, 0));
    told("no files", registers(&ring, IORING_UNREGISTER_FILES, NULL, 0));
    told("a ring", registers(&ring, IORING_REGISTER_FILES, &ring.fd, 1));
    struct io_uring_rsrc_register sparse = {.nr = 4, .flags = IORING_RSRC_REGISTER_SPARSE};
    told("sparse", registers(&ring, IORING_REGISTER_FILES2, &sparse, sizeof sparse));
    told("unknown", registers(&ring, 200, NULL, 0));
    char room[16 + 8 * 64];
    memset(room, 0, sizeof room);
    struct io_uring_probe *probe = (void *)room;
    told("probe", registers(&ring, IORING_REGISTER_PROBE, probe, 64));
    printf("nop %d read %d\n", probe->ops[0].flags, probe->ops[IORING_OP_READ].flags);
    unlink("/tmp/uring-fixed");
    end(&ring);
}

static void handler(int number) { (void)number; }

static void *waker(void *argument) {
    struct timespec pause = {.tv_nsec = 5000000};
    nanosleep(&pause, NULL);
    write(*(int *)argument, "late", 4);
    return NULL;
}

static void waits(void) {
    struct ring ring = make(16);
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGALRM, &action, NULL);
    timer_t timer;
    struct itimerspec soon = {.it_value = {.tv_nsec = 3000000}};
    timer_create(CLOCK_MONOTONIC, &(struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM}, &timer);
    // Again and again: the first signal may come before there is a wait to interrupt.
    struct itimerspec often = {.it_value = soon.it_value, .it_interval = soon.it_value}, never = {0};
    timer_settime(timer, 0, &often, NULL);
    told("interrupted", enter(&ring, 0, 1, IORING_ENTER_GETEVENTS));
    timer_settime(timer, 0, &never, NULL);
    int ends[2];
    char back[8] = {0};
    pipe(ends);
    pthread_t thread;
    add(&ring, IORING_OP_READ, ends[0], back, 8, 0, 1);
    pthread_create(&thread, NULL, waker, &ends[1]);
    one("waited for", &ring);
    pthread_join(thread, NULL);
    // A program that only looks at its ring.
    add(&ring, IORING_OP_READ, ends[0], back, 8, 0, 2);
    enter(&ring, 1, 0, 0);
    pthread_create(&thread, NULL, waker, &ends[1]);
    struct io_uring_cqe cqe;
    while (!next(&ring, &cqe))
        ;
    printf("looked for: %d\n", cqe.res);
    pthread_join(thread, NULL);
    struct __kernel_timespec time = milliseconds(3);
    add(&ring, IORING_OP_TIMEOUT, -1, &time, 1, 0, 3);
    enter(&ring, 1, 0, 0);
    while (!next(&ring, &cqe))
        ;
    printf("looked for: %d\n", cqe.res);
    fflush(stdout);
    // A child that ends with requests under way, and one that is killed in them.
    for (int turn = 0; turn < 2; turn++) {
        pid_t child = fork();
        if (child == 0) {
            struct ring own = make(16);
            for (int index = 0; index < 8; index++)
                add(&own, IORING_OP_READ, ends[0], back, 8, 0, index);
            add(&own, IORING_OP_POLL_ADD, own.fd, NULL, 0, 0, 9)->poll32_events = POLLIN;
            enter(&own, 9, turn ? 9 : 0, IORING_ENTER_GETEVENTS);
            _exit(3);
        }
        if (turn) {
            usleep(5000);
            kill(child, SIGKILL);
        }
        int status;
        waitpid(child, &status, 0);
        printf("ended %x\n", status);
    }
    add(&ring, IORING_OP_READ, ends[0], back, 8, 0, 4);
    enter(&ring, 1, 0, 0);
    close(ends[1]);
    fetch("the last writer is gone", &ring, 1);
    end(&ring);
}

int main(void) {
    alarm(100);
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    rings();
    files();
    links();
    timeouts();
    polls();
    sockets();
    registrations();
    waits();
    return 0;
}
