/* Copies between the system and a program: where memory ends in the middle of one, and what vector registers hold after
 * it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096L

static unsigned char contents[5 * PAGE];

static unsigned checksum(const unsigned char *bytes, long count) {
    unsigned sum = 0;
    for (long i = 0; i < count; i++) sum = sum * 31 + bytes[i];
    return sum;
}

/* A file without a name that holds `contents`. */
static int make(void) {
    int file = memfd_create("copies", 0);
    for (size_t i = 0; i < sizeof contents; i++) contents[i] = i * 7 + i / 251;
    if (file < 0 || write(file, contents, sizeof contents) != (ssize_t)sizeof contents) exit(1);
    return file;
}

/* Reads of many lengths to and from odd places: all bytes and none besides. */
static void read_lengths(int file) {
    static unsigned char to[4 * PAGE];
    for (long length = 1; length < 3 * PAGE; length += length < 600 ? 13 : 517)
        for (long place = 0; place < 40; place += 13) {
            memset(to, 0xee, sizeof to);
            long count = pread(file, to + 1 + place, length, place * 3);
            int is_right = count == length && !memcmp(to + 1 + place, contents + place * 3, length) &&
                           to[place] == 0xee && to[1 + place + length] == 0xee;
            if (!is_right) printf("length %ld at %ld: %ld\n", length, place, count);
        }
    puts("read lengths");
}

/* Reads into memory that ends: how many bytes came, and that they are the right ones. */
static void read_to_the_end_of_memory(int file) {
    unsigned char *memory = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(memory + 2 * PAGE, PAGE);
    for (long room = 1; room < 2 * PAGE; room = room * 3 + 1) {
        unsigned char *to = memory + 2 * PAGE - room;
        memset(memory, 0, 2 * PAGE);
        long count = pread(file, to, 4 * PAGE, 5);
        printf("room %ld: %ld %s %08x\n", room, count, count < 0 ? strerror(errno) : "", checksum(memory, 2 * PAGE));
    }
    munmap(memory, 2 * PAGE);
}

/* Writes from fresh memory and to it: pages appear in the middle of a copy. */
static void fresh_memory(int file) {
    unsigned char *memory = mmap(NULL, 6 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("fresh to read into: %zd", pread(file, memory + 100, 5 * PAGE - 300, 9));
    printf(" %08x\n", checksum(memory, 6 * PAGE));
    munmap(memory, 6 * PAGE);
    memory = mmap(NULL, 6 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("fresh to write from: %zd\n", pwrite(file, memory + 77, 2 * PAGE + 5, 1000));
    unsigned char back[3 * PAGE];
    printf("read back: %zd", pread(file, back, sizeof back, 900));
    printf(" %08x\n", checksum(back, sizeof back));
    munmap(memory, 6 * PAGE);
}

static long raw_read(int file, void *to, long length) {
    long result;
    register long offset __asm__("r10") = 3;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(SYS_pread64), "D"((long)file), "S"(to), "d"(length), "r"(offset)
                     : "rcx", "r11", "memory");
    return result;
}

/* All YMM registers across reads that are resolved, whole and cut short. */
__attribute__((target("avx"))) static int keeps_vectors(int file, void *to, long length) {
    static unsigned char before[16][32] __attribute__((aligned(32))), after[16][32] __attribute__((aligned(32)));
    for (int i = 0; i < 16 * 32; i++) before[0][i] = i * 11 + 3;
#define LOAD(n) __asm__ volatile("vmovaps %0, %%ymm" #n : : "m"(before[n]) : "xmm" #n)
#define STORE(n) __asm__ volatile("vmovaps %%ymm" #n ", %0" : "=m"(after[n]))
    LOAD(0); LOAD(1); LOAD(2); LOAD(3); LOAD(7); LOAD(15);
    raw_read(file, to, length);
    STORE(0); STORE(1); STORE(2); STORE(3); STORE(7); STORE(15);
    __asm__ volatile("vzeroupper");
    for (int i = 0; i < 16; i++)
        if ((i < 4 || i == 7 || i == 15) && memcmp(before[i], after[i], 32)) return 0;
    return 1;
}

static void vectors(int file) {
    int all = 1;
    if (__builtin_cpu_supports("avx"))
        for (int turn = 0; turn < 200; turn++) {
            unsigned char *memory = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            munmap(memory + 3 * PAGE, PAGE);
            all &= keeps_vectors(file, memory + turn, PAGE);
            all &= keeps_vectors(file, memory + turn, 4 * PAGE);
            munmap(memory, 3 * PAGE);
        }
    printf("vectors are kept: %d\n", all);
}

int main(void) {
    int file = make();
    read_lengths(file);
    read_to_the_end_of_memory(file);
    vectors(file);
    fresh_memory(file);
    puts("done");
    return 0;
}
