/*
 * Rows without a kernel in them (`ctl_*`, malloc_free_64), which must cost the same on both systems, and the smallest
 * system calls.
 */
#include "micro.h"

#include <fcntl.h>

/* Instructions that a bench build adds to the null call, to see that `--baseline` finds a slowdown. */
#ifndef NULL_CALL_EXTRA
#define NULL_CALL_EXTRA 0
#endif

#define BUFFER_BYTES (1 << 20)

static unsigned char source[BUFFER_BYTES] __attribute__((aligned(PAGE_BYTES)));
static unsigned char target[BUFFER_BYTES] __attribute__((aligned(PAGE_BYTES)));

/* Written to, so that no row measures first touches. */
static void fill_buffers(void) {
    memset(source, 0x5a, sizeof source);
    memset(target, 1, sizeof target);
}

static int64_t loop(long count) {
    int64_t start = now_ns();
    for (long i = 0; i < count; i++)
        for (int k = 0; k < 1000; k++) __asm__ volatile("");
    return now_ns() - start;
}

static int64_t copy(long count) {
    fill_buffers();
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        memcpy(target, source, sizeof source);
        __asm__ volatile("" ::: "memory");
    }
    return now_ns() - start;
}

static int64_t crc32(long count) {
    static uint32_t table[256];
    static volatile uint32_t sink;
    fill_buffers();
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++) value = value & 1 ? 0xedb88320u ^ (value >> 1) : value >> 1;
        table[i] = value;
    }
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        uint32_t value = ~0u;
        for (int k = 0; k < BUFFER_BYTES; k++) value = table[(value ^ source[k]) & 255] ^ (value >> 8);
        sink = value;
    }
    return now_ns() - start;
}

static int64_t malloc_free(long count) {
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        void *block = malloc(64);
        __asm__ volatile("" ::"r"(block) : "memory");
        free(block);
    }
    return now_ns() - start;
}

const struct row control_rows[] = {{"ctl_loop_1000iter", loop},
                                   {"ctl_memcpy_1MiB", copy},
                                   {"ctl_crc32_1MiB", crc32},
                                   {"malloc_free_64", malloc_free},
                                   {0}};

static int64_t getpid_libc(long count) {
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) getpid();
    return now_ns() - start;
}

static int64_t getppid_raw(long count) {
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        __asm__ volatile(".rept %c0\n\tnop\n\t.endr" ::"i"(NULL_CALL_EXTRA));
        raw_call(SYS_getppid, 0, 0, 0);
    }
    return now_ns() - start;
}

static int64_t clock_raw(long count) {
    struct timespec time;
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) raw_call(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&time, 0);
    return now_ns() - start;
}

static int64_t clock_libc(long count) {
    struct timespec time;
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) clock_gettime(CLOCK_MONOTONIC, &time);
    return now_ns() - start;
}

/* One byte to or from a device; the calls are checked together, so that the loop is only the call. */
static int64_t device_byte(const char *path, int flags, long number, long count) {
    char byte = 0;
    int fd = open(path, flags);
    CHECK(fd >= 0, path);
    long moved = 0;
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) moved += raw_call(number, fd, (long)&byte, 1);
    int64_t elapsed_ns = now_ns() - start;
    close(fd);
    CHECK(moved == count, path);
    return elapsed_ns;
}

static int64_t read_zero(long count) {
    return device_byte("/dev/zero", O_RDONLY, SYS_read, count);
}

static int64_t write_null(long count) {
    return device_byte("/dev/null", O_WRONLY, SYS_write, count);
}

const struct row call_rows[] = {{"getpid_libc", getpid_libc},
                                {"null_getppid_raw", getppid_raw},
                                {"clock_gettime_raw", clock_raw},
                                {"clock_gettime_libc", clock_libc},
                                {"read1_devzero", read_zero},
                                {"write1_devnull", write_null},
                                {0}};
