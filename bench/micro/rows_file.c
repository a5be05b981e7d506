/* Rows on files in memory (/tmp) and on readiness. */
#include "micro.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define FILE_PATH "/tmp/micro.file"
#define FILE_PAGES 256

static char block[PAGE_BYTES];

/* A file of 1 MiB; its open descriptor, or -1. */
static int make_file(void) {
    int fd = open(FILE_PATH, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) return -1;
    memset(block, 7, sizeof block);
    for (int i = 0; i < FILE_PAGES; i++)
        if (write(fd, block, sizeof block) != sizeof block) {
            close(fd);
            return -1;
        }
    return fd;
}

static int64_t open_close(long count) {
    int fd = make_file();
    CHECK(fd >= 0, FILE_PATH);
    close(fd);
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        fd = open(FILE_PATH, O_RDONLY);
        CHECK(fd >= 0, "open");
        close(fd);
    }
    return now_ns() - start;
}

static int64_t stat_file(long count) {
    struct stat status;
    int fd = make_file();
    CHECK(fd >= 0, FILE_PATH);
    close(fd);
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) CHECK(!stat(FILE_PATH, &status), "stat");
    return now_ns() - start;
}

static int64_t move_blocks(long count, int writes) {
    int fd = make_file();
    CHECK(fd >= 0, FILE_PATH);
    long moved = 0;
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        off_t offset = i % FILE_PAGES * PAGE_BYTES;
        moved += writes ? pwrite(fd, block, sizeof block, offset) : pread(fd, block, sizeof block, offset);
    }
    int64_t elapsed_ns = now_ns() - start;
    close(fd);
    CHECK(moved == count * PAGE_BYTES, writes ? "pwrite" : "pread");
    return elapsed_ns;
}

static int64_t read_blocks(long count) {
    return move_blocks(count, 0);
}

static int64_t write_blocks(long count) {
    return move_blocks(count, 1);
}

static int64_t create_unlink(long count) {
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        int fd = open("/tmp/micro.new", O_RDWR | O_CREAT | O_EXCL, 0600);
        CHECK(fd >= 0, "open");
        close(fd);
        CHECK(!unlink("/tmp/micro.new"), "unlink");
    }
    return now_ns() - start;
}

static int64_t epoll_ready(long count) {
    int ends[2];
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN}, found;
    CHECK(set >= 0 && !epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event), "epoll_ctl");
    CHECK(write(ends[1], "x", 1) == 1, "write");
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) CHECK(epoll_wait(set, &found, 1, 0) == 1, "epoll_wait");
    int64_t elapsed_ns = now_ns() - start;
    close(set), close(ends[0]), close(ends[1]);
    return elapsed_ns;
}

static int64_t pipe_self(long count) {
    int ends[2];
    CHECK(!pipe(ends), "pipe");
    int64_t start = now_ns();
    for (long i = 0; i < count; i++)
        CHECK(write(ends[1], block, sizeof block) == sizeof block && read(ends[0], block, sizeof block) == sizeof block,
              "write or read");
    int64_t elapsed_ns = now_ns() - start;
    close(ends[0]), close(ends[1]);
    return elapsed_ns;
}

const struct row file_rows[] = {{"open_close_tmpfs", open_close},     {"stat_tmpfs", stat_file},
                                {"pread_4k_tmpfs", read_blocks},      {"pwrite_4k_tmpfs", write_blocks},
                                {"creat_unlink_tmpfs", create_unlink}, {"epoll_wait_ready", epoll_ready},
                                {"pipe_4k_self", pipe_self},          {0}};
