/* Memory: `row_size` MiB of it, anonymous and of a file, or `row_size` mappings. */
#include "micro.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define MIB (1L << 20)
#define CHUNK_BYTES 65536
#define STRIDE 7919

static char *anonymous(size_t bytes) {
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return start == MAP_FAILED ? NULL : start;
}

static long pages(void) {
    return row_size * MIB / PAGE_BYTES;
}

static void touch_all(char *start) {
    for (long i = 0; i < pages(); i++) *(volatile char *)(start + i * PAGE_BYTES) = 1;
}

/* The first touch of a page, one after the other. */
static int64_t touch(long count) {
    int64_t elapsed_ns = 0;
    for (long i = 0; i < count; i++) {
        char *start = anonymous(row_size * MIB);
        CHECK(start, "mmap");
        int64_t start_ns = now_ns();
        touch_all(start);
        elapsed_ns += now_ns() - start_ns;
        munmap(start, row_size * MIB);
    }
    row_parts = pages();
    return elapsed_ns;
}

/* A page of what was touched. */
static int64_t unmap(long count) {
    int64_t elapsed_ns = 0;
    for (long i = 0; i < count; i++) {
        char *start = anonymous(row_size * MIB);
        CHECK(start, "mmap");
        touch_all(start);
        int64_t start_ns = now_ns();
        CHECK(!munmap(start, row_size * MIB), "munmap");
        elapsed_ns += now_ns() - start_ns;
    }
    row_parts = pages();
    return elapsed_ns;
}

static int64_t forks(long count) {
    int64_t start_ns = now_ns();
    for (long i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        CHECK(child >= 0, "fork");
        CHECK(waitpid(child, NULL, 0) == child, "waitpid");
    }
    return now_ns() - start_ns;
}

static int64_t fork_with_memory(long count) {
    char *start = anonymous(row_size * MIB);
    CHECK(start, "mmap");
    touch_all(start);
    int64_t elapsed_ns = forks(count);
    munmap(start, row_size * MIB);
    return elapsed_ns;
}

/* A file of as many MiB in memory, or -1. */
static int file(void) {
    static char chunk[CHUNK_BYTES];
    memset(chunk, 1, sizeof chunk);
    int fd = open("/tmp/scale.bytes", O_CREAT | O_RDWR | O_TRUNC, 0644);
    for (long at = 0; fd >= 0 && at < row_size * MIB; at += sizeof chunk)
        if (write(fd, chunk, sizeof chunk) != sizeof chunk) return -1;
    unlink("/tmp/scale.bytes");
    return fd;
}

/* The first look at each page of a mapped file. */
static int64_t mapped_read(long count) {
    int fd = file();
    CHECK(fd >= 0, "write");
    int64_t elapsed_ns = 0;
    for (long i = 0; i < count; i++) {
        char *start = mmap(NULL, row_size * MIB, PROT_READ, MAP_SHARED, fd, 0);
        CHECK(start != MAP_FAILED, "mmap");
        int64_t start_ns = now_ns();
        for (long page = 0; page < pages(); page++) (void)*(volatile char *)(start + page * PAGE_BYTES);
        elapsed_ns += now_ns() - start_ns;
        munmap(start, row_size * MIB);
    }
    close(fd);
    row_parts = pages();
    return elapsed_ns;
}

static int64_t pread_in(long count) {
    static char page[PAGE_BYTES];
    int fd = file();
    CHECK(fd >= 0, "write");
    int64_t start_ns = now_ns();
    for (long i = 0; i < count; i++) {
        long at = i * STRIDE % pages() * PAGE_BYTES;
        CHECK(pread(fd, page, sizeof page, at) == sizeof page, "pread");
    }
    int64_t elapsed_ns = now_ns() - start_ns;
    close(fd);
    return elapsed_ns;
}

/* Neighbours with different rights, so that they stay as many as they are: two pages each. */
static char **mappings(void) {
    char **starts = malloc(row_size * sizeof *starts);
    for (long i = 0; starts && i < row_size; i++) {
        int rights = i & 1 ? PROT_READ | PROT_WRITE : PROT_READ;
        starts[i] = mmap(NULL, 2 * PAGE_BYTES, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (starts[i] == MAP_FAILED) return NULL;
    }
    return starts;
}

static void drop_mappings(char **starts) {
    for (long i = 0; i < row_size; i++) munmap(starts[i], 2 * PAGE_BYTES);
    free(starts);
}

/* One that can be written to, chosen in an order that they do not have. */
static char *writable(char **starts, long index) {
    return starts[index * STRIDE % (row_size / 2) * 2 + 1];
}

static int64_t map_among(long count) {
    char **starts = mappings();
    CHECK(starts, "mmap");
    int64_t start_ns = now_ns();
    for (long i = 0; i < count; i++) {
        char *start = anonymous(PAGE_BYTES);
        CHECK(start && !munmap(start, PAGE_BYTES), "mmap");
    }
    int64_t elapsed_ns = now_ns() - start_ns;
    drop_mappings(starts);
    return elapsed_ns;
}

static int64_t touch_among(long count) {
    char **starts = mappings();
    CHECK(starts, "mmap");
    int64_t elapsed_ns = 0;
    for (long done = 0; done < count;) {
        long round = count - done < row_size / 2 ? count - done : row_size / 2;
        int64_t start_ns = now_ns();
        for (long i = 0; i < round; i++) *(volatile char *)writable(starts, i) = 1;
        elapsed_ns += now_ns() - start_ns;
        for (long i = 0; i < round; i++) madvise(writable(starts, i), PAGE_BYTES, MADV_DONTNEED);
        done += round;
    }
    drop_mappings(starts);
    return elapsed_ns;
}

static int64_t protect_among(long count) {
    char **starts = mappings();
    CHECK(starts, "mmap");
    int64_t start_ns = now_ns();
    for (long i = 0; i < count; i++) {
        char *page = writable(starts, i);
        CHECK(!mprotect(page, PAGE_BYTES, PROT_READ), "mprotect");
        CHECK(!mprotect(page, PAGE_BYTES, PROT_READ | PROT_WRITE), "mprotect");
    }
    int64_t elapsed_ns = now_ns() - start_ns;
    drop_mappings(starts);
    row_parts = 2;
    return elapsed_ns;
}

static int64_t fork_among(long count) {
    char **starts = mappings();
    CHECK(starts, "mmap");
    int64_t elapsed_ns = forks(count);
    drop_mappings(starts);
    return elapsed_ns;
}

#define SIZED(name, measure, number) {name ":" #number, measure, .size = number}

const struct row map_rows[] = {SIZED("touch_mib", touch, 1),
                               SIZED("touch_mib", touch, 16),
                               SIZED("touch_mib", touch, 128),
                               SIZED("unmap_mib", unmap, 1),
                               SIZED("unmap_mib", unmap, 16),
                               SIZED("unmap_mib", unmap, 128),
                               SIZED("fork_with_mib", fork_with_memory, 1),
                               SIZED("fork_with_mib", fork_with_memory, 16),
                               SIZED("fork_with_mib", fork_with_memory, 128),
                               SIZED("mapped_read_mib", mapped_read, 1),
                               SIZED("mapped_read_mib", mapped_read, 16),
                               SIZED("mapped_read_mib", mapped_read, 128),
                               SIZED("pread_4k_mib", pread_in, 1),
                               SIZED("pread_4k_mib", pread_in, 16),
                               SIZED("pread_4k_mib", pread_in, 128),
                               SIZED("map_among", map_among, 100),
                               SIZED("map_among", map_among, 1000),
                               SIZED("map_among", map_among, 10000),
                               SIZED("touch_among", touch_among, 100),
                               SIZED("touch_among", touch_among, 1000),
                               SIZED("touch_among", touch_among, 10000),
                               SIZED("protect_among", protect_among, 100),
                               SIZED("protect_among", protect_among, 1000),
                               SIZED("protect_among", protect_among, 10000),
                               SIZED("fork_among", fork_among, 100),
                               SIZED("fork_among", fork_among, 1000),
                               SIZED("fork_among", fork_among, 10000),
                               {0}};
