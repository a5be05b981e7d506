// Asynchronous input and output of Linux: contexts, requests, events, polls, and what is refused.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct ring {
    unsigned id, nr, head, tail, magic, compat, incompat, header_length;
    struct io_event events[];
};

static long setup(unsigned count, aio_context_t *context) { return syscall(SYS_io_setup, count, context); }
static long destroy(aio_context_t context) { return syscall(SYS_io_destroy, context); }
static long submit(aio_context_t context, long count, struct iocb **list) {
    return syscall(SYS_io_submit, context, count, list);
}
static long getevents(aio_context_t context, long least, long most, struct io_event *events, struct timespec *time) {
    return syscall(SYS_io_getevents, context, least, most, events, time);
}
static long cancel(aio_context_t context, struct iocb *request) {
    struct io_event event;
    return syscall(SYS_io_cancel, context, request, &event);
}

static void told(const char *what, long answer) {
    if (answer < 0)
        printf("%s: %s\n", what, strerrorname_np(errno));
    else
        printf("%s: %ld\n", what, answer);
}

static struct iocb request(int operation, int descriptor, void *buffer, size_t length, long offset) {
    struct iocb made = {0};
    made.aio_lio_opcode = operation;
    made.aio_fildes = descriptor;
    made.aio_buf = (uintptr_t)buffer;
    made.aio_nbytes = length;
    made.aio_offset = offset;
    made.aio_data = 77;
    return made;
}

static long one(aio_context_t context, struct iocb *wanted) {
    struct iocb *list[] = {wanted};
    return submit(context, 1, list);
}

// Submits one and fetches what became of it.
static void whole(const char *what, aio_context_t context, struct iocb wanted) {
    struct io_event event = {0};
    long answer = one(context, &wanted);
    if (answer != 1) {
        told(what, answer);
        return;
    }
    answer = getevents(context, 1, 1, &event, NULL);
    printf("%s: %ld event, data %llu, own %d, result %lld %lld\n", what, answer, event.data,
           event.obj == (uintptr_t)&wanted, event.res, event.res2);
}

static void contexts(void) {
    aio_context_t context = 0, other = 5;
    told("no room", setup(0, &context));
    told("not null", setup(1, &other));
    told("no place", setup(1, (void *)8));
    told("too many", setup(0x7fffffff, &context));
    told("setup", setup(10, &context));
    struct ring *ring = (void *)context;
    printf("ring: magic %x compat %u incompat %u header %u head %u tail %u room %d\n", ring->magic, ring->compat,
           ring->incompat, ring->header_length, ring->head, ring->tail, ring->nr >= 10);
    told("destroy a wrong one", destroy(context + 4096));
    told("destroy nothing", destroy(0));
    told("destroy", destroy(context));
    told("destroy again", destroy(context));
    struct io_event event;
    told("events of none", getevents(context, 0, 1, &event, NULL));
    context = 0;
    told("setup", setup(10, &context));
    told("more wanted than fetched", getevents(context, 2, 1, &event, NULL));
    told("fewer than none", getevents(context, -1, 1, &event, NULL));
    struct timespec now = {0};
    told("none there", getevents(context, 1, 1, &event, &now));
    now.tv_nsec = 1000000;
    told("none comes", getevents(context, 1, 1, &event, &now));
    told("fewer than no requests", submit(context, -1, NULL));
    told("no requests", submit(context, 0, NULL));
    told("no list", submit(context, 1, NULL));
    munmap((void *)context, 4096);
    told("unmapped", getevents(context, 0, 1, &event, NULL));
    told("destroy unmapped", destroy(context));
}

static void transfers(void) {
    aio_context_t context = 0;
    setup(32, &context);
    int file = open("/tmp/aio-file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    char text[64] = "asynchronous", back[64] = {0};
    whole("write", context, request(IOCB_CMD_PWRITE, file, text, 12, 4));
    whole("read", context, request(IOCB_CMD_PREAD, file, back, 64, 4));
    puts(back);
    struct iovec parts[] = {{text, 5}, {text + 7, 5}}, into[] = {{back, 3}, {back + 32, 20}};
    whole("writev", context, request(IOCB_CMD_PWRITEV, file, parts, 2, 16));
    whole("readv", context, request(IOCB_CMD_PREADV, file, into, 2, 16));
    printf("%.3s %.7s\n", back, back + 32);
    whole("read behind the end", context, request(IOCB_CMD_PREAD, file, back, 64, 4096));
    whole("read to nowhere", context, request(IOCB_CMD_PREAD, file, (void *)8, 4, 0));
    whole("write from nowhere", context, request(IOCB_CMD_PWRITE, file, (void *)8, 4, 0));
    whole("negative offset", context, request(IOCB_CMD_PREAD, file, back, 4, -1));
    whole("far offset", context, request(IOCB_CMD_PREAD, file, back, 4, 0x7fffffffffffffff));
    whole("parts from nowhere", context, request(IOCB_CMD_PREADV, file, (void *)8, 2, 0));
    whole("too many parts", context, request(IOCB_CMD_PREADV, file, into, 1025, 0));
    whole("sync", context, request(IOCB_CMD_FSYNC, file, NULL, 0, 0));
    whole("data sync", context, request(IOCB_CMD_FDSYNC, file, NULL, 0, 0));
    whole("sync of a part", context, request(IOCB_CMD_FSYNC, file, NULL, 1, 0));
    whole("nothing", context, request(IOCB_CMD_NOOP, file, NULL, 0, 0));
    whole("an unknown request", context, request(99, file, NULL, 0, 0));
    whole("no descriptor", context, request(IOCB_CMD_PREAD, 99, back, 4, 0));
    int reader = open("/tmp/aio-file", O_RDONLY), writer = open("/tmp/aio-file", O_WRONLY | O_APPEND);
    whole("write to a reader", context, request(IOCB_CMD_PWRITE, reader, text, 4, 0));
    whole("read from a writer", context, request(IOCB_CMD_PREAD, writer, text, 4, 0));
    whole("append", context, request(IOCB_CMD_PWRITE, writer, text, 4, 0));
    printf("size %ld\n", (long)lseek(file, 0, SEEK_END));
    struct iocb flagged = request(IOCB_CMD_PWRITE, file, text, 4, 0);
    flagged.aio_rw_flags = 0x10;
    whole("append by a flag", context, flagged);
    printf("size %ld\n", (long)lseek(file, 0, SEEK_END));
    flagged.aio_rw_flags = 0x80000000;
    whole("an unknown flag", context, flagged);
    flagged.aio_rw_flags = 0;
    flagged.aio_reserved2 = 1;
    whole("reserved", context, flagged);
    flagged.aio_reserved2 = 0;
    int bell = eventfd(0, EFD_NONBLOCK);
    flagged.aio_flags = IOCB_FLAG_RESFD;
    flagged.aio_resfd = bell;
    whole("with a bell", context, flagged);
    uint64_t count = 0;
    told("the bell", read(bell, &count, 8));
    printf("rang %lu\n", count);
    flagged.aio_resfd = file;
    whole("a bell that is none", context, flagged);
    flagged.aio_resfd = 99;
    whole("no bell", context, flagged);
    int ends[2];
    pipe(ends);
    whole("write to a pipe", context, request(IOCB_CMD_PWRITE, ends[1], text, 5, 0));
    whole("read from a pipe", context, request(IOCB_CMD_PREAD, ends[0], back, 64, 0));
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    whole("read from an empty pipe", context, request(IOCB_CMD_PREAD, ends[0], back, 64, 0));
    whole("sync of a pipe", context, request(IOCB_CMD_FSYNC, ends[0], NULL, 0, 0));
    signal(SIGPIPE, SIG_IGN);
    close(ends[0]);
    whole("write to nobody", context, request(IOCB_CMD_PWRITE, ends[1], text, 5, 0));
    struct iocb many[3], *list[] = {&many[0], &many[1], (void *)8, &many[2]};
    for (int index = 0; index < 3; index++) {
        many[index] = request(IOCB_CMD_PREAD, file, back + 8 * index, 8, 8 * index);
        many[index].aio_data = 100 + index;
    }
    told("until the list is bad", submit(context, 4, list));
    struct io_event events[4] = {0};
    told("fetched", getevents(context, 2, 4, events, NULL));
    printf("%llu %llu\n", events[0].data, events[1].data);
    told("one", submit(context, 1, list));
    told("to nowhere", getevents(context, 1, 1, (void *)8, NULL));
    told("still there", getevents(context, 1, 1, events, NULL));
    unlink("/tmp/aio-file");
    destroy(context);
}

static void polls(void) {
    aio_context_t context = 0;
    setup(32, &context);
    int ends[2], other[2];
    pipe(ends);
    pipe(other);
    struct io_event event = {0};
    struct timespec now = {0};
    struct iocb wanted = request(IOCB_CMD_POLL, ends[0], (void *)POLLIN, 0, 0), *list[] = {&wanted};
    told("poll", submit(context, 1, list));
    told("nothing yet", getevents(context, 1, 1, &event, &now));
    write(ends[1], "x", 1);
    told("something", getevents(context, 1, 1, &event, NULL));
    printf("found %llx\n", event.res & (POLLIN | POLLHUP));
    whole("at once", context, wanted);
    whole("writable", context, request(IOCB_CMD_POLL, ends[1], (void *)(POLLIN | POLLOUT), 0, 0));
    whole("too many events", context, request(IOCB_CMD_POLL, ends[1], (void *)0x10000, 0, 0));
    whole("a length", context, request(IOCB_CMD_POLL, ends[1], (void *)POLLIN, 1, 0));
    struct iocb waiting = request(IOCB_CMD_POLL, other[0], (void *)POLLIN, 0, 0);
    told("poll", one(context, &waiting));
    told("cancel another", cancel(context, &wanted));
    told("cancel", cancel(context, &waiting));
    told("its event", getevents(context, 1, 1, &event, NULL));
    printf("own %d\n", event.obj == (uintptr_t)&waiting);
    told("cancel again", cancel(context, &waiting));
    waiting.aio_key = 1;
    told("a key", cancel(context, &waiting));
    told("cancel nowhere", cancel(context, (void *)8));
    waiting.aio_key = 0;
    told("poll", one(context, &waiting));
    close(other[1]);
    told("hung up", getevents(context, 1, 1, &event, NULL));
    printf("found %llx\n", event.res & (POLLIN | POLLHUP));
    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec soon = {.it_value = {.tv_nsec = 2000000}};
    timerfd_settime(timer, 0, &soon, NULL);
    whole("a timer", context, request(IOCB_CMD_POLL, timer, (void *)POLLIN, 0, 0));
    waiting = request(IOCB_CMD_POLL, ends[0], (void *)POLLPRI, 0, 0);
    told("poll that is left behind", one(context, &waiting));
    destroy(context);
}

static void handler(int number) { (void)number; }

static void *late(void *argument) {
    struct timespec pause = {.tv_nsec = 5000000};
    nanosleep(&pause, NULL);
    write(*(int *)argument, "late", 4);
    return NULL;
}

static void waits(void) {
    aio_context_t context = 0;
    setup(4, &context);
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGALRM, &action, NULL);
    struct io_event event;
    timer_t timer;
    struct itimerspec soon = {.it_value = {.tv_nsec = 3000000}};
    timer_create(CLOCK_MONOTONIC, &(struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM}, &timer);
    // Again and again: the first signal may come before there is a wait to interrupt.
    struct itimerspec often = {.it_value = soon.it_value, .it_interval = soon.it_value}, never = {0};
    timer_settime(timer, 0, &often, NULL);
    told("interrupted", getevents(context, 1, 1, &event, NULL));
    timer_settime(timer, 0, &never, NULL);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    sigemptyset(&set);
    struct { sigset_t *set; size_t size; } mask = {&set, 8};
    timer_settime(timer, 0, &soon, NULL);
    told("by a mask", syscall(SYS_io_pgetevents, context, 1L, 1L, &event, NULL, &mask));
    mask.size = 4;
    told("a bad mask", syscall(SYS_io_pgetevents, context, 1L, 1L, &event, NULL, &mask));
    int ends[2];
    pipe(ends);
    pthread_t thread;
    char back[8];
    pthread_create(&thread, NULL, late, &ends[1]);
    whole("waited for", context, request(IOCB_CMD_PREAD, ends[0], back, 8, 0));
    pthread_join(thread, NULL);
    struct iocb wanted = request(IOCB_CMD_POLL, ends[0], (void *)POLLIN, 0, 0);
    one(context, &wanted);
    pthread_create(&thread, NULL, late, &ends[1]);
    told("polled for", getevents(context, 1, 1, &event, NULL));
    pthread_join(thread, NULL);
    fflush(stdout);
    if (fork() == 0) {
        told("a child's", getevents(context, 0, 1, &event, NULL));
        exit(0);
    }
    wait(NULL);
    struct iocb many[16], *list[16];
    for (int index = 0; index < 16; index++) {
        many[index] = request(IOCB_CMD_POLL, ends[0], (void *)POLLPRI, 0, 0);
        list[index] = &many[index];
    }
    printf("no more than fit: %d\n", submit(context, 4, list) == 4);
}

static void *scribble(void *argument) {
    struct ring *ring = argument;
    unsigned seed = 7;
    for (int turn = 0; turn < 200000; turn++) {
        seed = seed * 1664525 + 1013904223;
        (&ring->id)[seed >> 29] = seed;
        if (seed % 7 == 0)
            ring->events[seed / 7 % 100].res = seed;
    }
    return NULL;
}

// A ring that another thread fills with anything hurts nobody else.
static void hostile(void) {
    if (fork() == 0) {
        aio_context_t context = 0;
        setup(64, &context);
        pthread_t thread;
        pthread_create(&thread, NULL, scribble, (void *)context);
        int file = open("/tmp/aio-hostile", O_RDWR | O_CREAT | O_TRUNC, 0600);
        char bytes[512];
        struct io_event events[64];
        struct timespec now = {0};
        unsigned seed = 3;
        for (int turn = 0; turn < 5000; turn++) {
            struct iocb wanted;
            for (unsigned place = 0; place < sizeof wanted; place++) {
                seed = seed * 1664525 + 1013904223;
                ((char *)&wanted)[place] = seed >> 24;
            }
            if (turn % 2)
                wanted = request(turn % 3 ? IOCB_CMD_PREAD : IOCB_CMD_PWRITE, file, bytes, seed % 512, seed % 4096);
            else
                wanted.aio_fildes = file;
            one(context, &wanted);
            cancel(context, &wanted);
            getevents(context, 0, 64, events, &now);
        }
        pthread_join(thread, NULL);
        unlink("/tmp/aio-hostile");
        _exit(0);
    }
    int status;
    wait(&status);
    printf("hostile: %d\n", status);
}

int main(void) {
    alarm(60);
    setvbuf(stdout, NULL, _IOLBF, 0);
    contexts();
    transfers();
    polls();
    waits();
    hostile();
    return 0;
}
