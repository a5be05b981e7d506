/* Names: directories with `row_size` entries, paths that are `row_size` directories deep, record locks of one file. */
#include "micro.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define DIRECTORY "/tmp/scale"
/* A prime, so that names are asked for in an order that no directory has. */
#define STRIDE 7919

static const char *entry(long index) {
    static char path[64];
    snprintf(path, sizeof path, DIRECTORY "/entry%ld", index);
    return path;
}

static int create(long count) {
    for (long i = 0; i < count; i++) {
        int fd = open(entry(i), O_CREAT | O_WRONLY, 0644);
        if (fd < 0 || close(fd)) return -1;
    }
    return 0;
}

static void clear(long count) {
    for (long i = 0; i < count; i++) unlink(entry(i));
    rmdir(DIRECTORY);
}

/* A directory with as many entries as the row says. */
static int fill(void) {
    mkdir(DIRECTORY, 0755);
    return create(row_size);
}

/* For one of the entries, listed from the first to the last; the C library's part is in it. */
static int64_t read_entries(long count) {
    CHECK(!fill(), "open");
    long entries = 0;
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        DIR *directory = opendir(DIRECTORY);
        CHECK(directory, "opendir");
        while (readdir(directory)) entries++;
        closedir(directory);
    }
    int64_t elapsed_ns = now_ns() - start;
    clear(row_size);
    row_parts = entries / count;
    return elapsed_ns;
}

static int64_t stat_entry(long count) {
    CHECK(!fill(), "open");
    struct stat status;
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) CHECK(!stat(entry(i * STRIDE % row_size), &status), "stat");
    int64_t elapsed_ns = now_ns() - start;
    clear(row_size);
    return elapsed_ns;
}

static int64_t open_entry(long count) {
    CHECK(!fill(), "open");
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        int fd = open(entry(i * STRIDE % row_size), O_RDONLY);
        CHECK(fd >= 0 && !close(fd), "open");
    }
    int64_t elapsed_ns = now_ns() - start;
    clear(row_size);
    return elapsed_ns;
}

/* All entries of a new directory: what one of them costs. */
static int64_t create_entries(long count) {
    int64_t elapsed_ns = 0;
    for (long i = 0; i < count; i++) {
        mkdir(DIRECTORY, 0755);
        int64_t start = now_ns();
        CHECK(!create(row_size), "open");
        elapsed_ns += now_ns() - start;
        clear(row_size);
    }
    row_parts = row_size;
    return elapsed_ns;
}

static int64_t unlink_entries(long count) {
    int64_t elapsed_ns = 0;
    for (long i = 0; i < count; i++) {
        CHECK(!fill(), "open");
        int64_t start = now_ns();
        for (long each = 0; each < row_size; each++) CHECK(!unlink(entry(each)), "unlink");
        elapsed_ns += now_ns() - start;
        rmdir(DIRECTORY);
    }
    row_parts = row_size;
    return elapsed_ns;
}

/* A file behind `row_size` directories. */
static int64_t stat_deep(long count) {
    static char path[PAGE_BYTES];
    strcpy(path, DIRECTORY);
    mkdir(path, 0755);
    for (long i = 0; i < row_size; i++) CHECK(!mkdir(strcat(path, "/x"), 0755), "mkdir");
    int fd = open(strcat(path, "/f"), O_CREAT | O_WRONLY, 0644);
    CHECK(fd >= 0 && !close(fd), "open");
    struct stat status;
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) CHECK(!stat(path, &status), "stat");
    int64_t elapsed_ns = now_ns() - start;
    unlink(path);
    for (long i = 0; i <= row_size; i++) {
        *strrchr(path, '/') = 0;
        rmdir(path);
    }
    return elapsed_ns;
}

/* Each of a byte, with one byte between two. */
static int64_t record_locks(long count) {
    int64_t elapsed_ns = 0;
    for (long i = 0; i < count; i++) {
        int fd = open(DIRECTORY ".locks", O_CREAT | O_RDWR, 0644);
        CHECK(fd >= 0, "open");
        int64_t start = now_ns();
        for (long each = 0; each < row_size; each++) {
            struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = each * 2, .l_len = 1};
            CHECK(!fcntl(fd, F_SETLK, &lock), "fcntl");
        }
        elapsed_ns += now_ns() - start;
        close(fd);
        unlink(DIRECTORY ".locks");
    }
    row_parts = row_size;
    return elapsed_ns;
}

#define SIZED(name, measure, number) {name ":" #number, measure, .size = number}

const struct row name_rows[] = {SIZED("readdir", read_entries, 100),
                                SIZED("readdir", read_entries, 1000),
                                SIZED("readdir", read_entries, 10000),
                                SIZED("stat_among", stat_entry, 100),
                                SIZED("stat_among", stat_entry, 1000),
                                SIZED("stat_among", stat_entry, 10000),
                                SIZED("open_among", open_entry, 100),
                                SIZED("open_among", open_entry, 1000),
                                SIZED("open_among", open_entry, 10000),
                                SIZED("create_in", create_entries, 100),
                                SIZED("create_in", create_entries, 1000),
                                SIZED("create_in", create_entries, 10000),
                                SIZED("unlink_in", unlink_entries, 100),
                                SIZED("unlink_in", unlink_entries, 1000),
                                SIZED("unlink_in", unlink_entries, 10000),
                                SIZED("stat_deep", stat_deep, 1),
                                SIZED("stat_deep", stat_deep, 10),
                                SIZED("stat_deep", stat_deep, 100),
                                SIZED("record_lock", record_locks, 100),
                                SIZED("record_lock", record_locks, 1000),
                                {0}};
