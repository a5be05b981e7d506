/* `row_size` descriptors: events that an epoll set or a poll looks at, and pairs of sockets. */
#include "micro.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define STRIDE 7919
/* Standard streams, the set, and some to spare. */
#define MORE_DESCRIPTORS 64

static int allow_descriptors(long number) {
    struct rlimit limit = {number + MORE_DESCRIPTORS, number + MORE_DESCRIPTORS};
    struct rlimit now;
    if (!getrlimit(RLIMIT_NOFILE, &now) && now.rlim_cur >= limit.rlim_cur) return 0;
    return setrlimit(RLIMIT_NOFILE, &limit);
}

/* Events that have not happened, all in the set if there is one. */
static int *events(int set) {
    int *fds = malloc(row_size * sizeof *fds);
    if (!fds || allow_descriptors(row_size)) return NULL;
    for (long i = 0; i < row_size; i++) {
        fds[i] = eventfd(0, EFD_NONBLOCK);
        struct epoll_event event = {EPOLLIN, {.fd = fds[i]}};
        if (fds[i] < 0 || (set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fds[i], &event))) return NULL;
    }
    return fds;
}

static void close_all(int *fds, long number) {
    for (long i = 0; i < number; i++) close(fds[i]);
    free(fds);
}

/* One event happens, is waited for and taken. The first wait looks at all that was added, and is not measured. */
static int64_t epoll_one(long count) {
    int set = epoll_create1(0);
    int *fds = events(set);
    CHECK(fds, "eventfd");
    uint64_t one = 1;
    struct epoll_event happened[8];
    CHECK(epoll_wait(set, happened, 8, 0) == 0, "epoll_wait");
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        int fd = fds[i * STRIDE % row_size];
        CHECK(write(fd, &one, sizeof one) == sizeof one, "write");
        CHECK(epoll_wait(set, happened, 8, 0) == 1, "epoll_wait");
        CHECK(read(fd, &one, sizeof one) == sizeof one, "read");
    }
    int64_t elapsed_ns = now_ns() - start;
    close_all(fds, row_size);
    close(set);
    return elapsed_ns;
}

/* For one descriptor of those that a poll looks at. */
static int64_t poll_each(long count) {
    int *fds = events(-1);
    struct pollfd *entries = malloc(row_size * sizeof *entries);
    CHECK(fds && entries, "eventfd");
    for (long i = 0; i < row_size; i++) entries[i] = (struct pollfd){fds[i], POLLIN, 0};
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) CHECK(!poll(entries, row_size, 0), "poll");
    int64_t elapsed_ns = now_ns() - start;
    close_all(fds, row_size);
    free(entries);
    row_parts = row_size;
    return elapsed_ns;
}

/* One made, put into a set, and closed. */
static int64_t open_among(long count) {
    int set = epoll_create1(0);
    int *fds = events(set);
    CHECK(fds, "eventfd");
    CHECK(!allow_descriptors(row_size + 1), "setrlimit");
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        int fd = eventfd(0, EFD_NONBLOCK);
        struct epoll_event event = {EPOLLIN, {.fd = fd}};
        CHECK(fd >= 0 && !epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) && !close(fd), "eventfd");
    }
    int64_t elapsed_ns = now_ns() - start;
    close_all(fds, row_size);
    close(set);
    return elapsed_ns;
}

/* A byte through one of the pairs. */
static int64_t socket_among(long count) {
    int *fds = malloc(2 * row_size * sizeof *fds);
    CHECK(fds && !allow_descriptors(2 * row_size), "setrlimit");
    for (long i = 0; i < row_size; i++) CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds + 2 * i), "socketpair");
    char byte = 1;
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        int *pair = fds + i * STRIDE % row_size * 2;
        CHECK(write(pair[0], &byte, 1) == 1 && read(pair[1], &byte, 1) == 1, "write or read");
    }
    int64_t elapsed_ns = now_ns() - start;
    close_all(fds, 2 * row_size);
    return elapsed_ns;
}

#define SIZED(name, measure, number) {name ":" #number, measure, .size = number}

const struct row descriptor_rows[] = {SIZED("epoll_one_of", epoll_one, 100),
                                      SIZED("epoll_one_of", epoll_one, 1000),
                                      SIZED("epoll_one_of", epoll_one, 10000),
                                      SIZED("poll_each_of", poll_each, 100),
                                      SIZED("poll_each_of", poll_each, 1000),
                                      SIZED("poll_each_of", poll_each, 10000),
                                      SIZED("eventfd_among", open_among, 100),
                                      SIZED("eventfd_among", open_among, 1000),
                                      SIZED("eventfd_among", open_among, 10000),
                                      SIZED("socket_among", socket_among, 100),
                                      SIZED("socket_among", socket_among, 1000),
                                      {0}};
