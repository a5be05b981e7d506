// Sixteen threads write and read blocks of a disk of their own for so many seconds, each block with its place and the
// count of its writes in every word: whatever is read has to be what was written last. At the end, all is read again.
// verify DISK SECONDS: "ok" on standard output; operations and the longest of them on standard error.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 16, BLOCKS = 256, BYTES = 4096, WORDS = BYTES / 8, PAUSES = 1 << 20 };

static int disk;
static double end;
static uint64_t written[THREADS][BLOCKS];
static uint64_t count, slow;
static double longest, pauses[PAUSES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void fail(const char *what, int thread, int block, uint64_t found) {
    fprintf(stderr, "%s: thread %d block %d: %s, found %llx instead of %llx\n", what, thread, block, strerror(errno),
            (unsigned long long)found, (unsigned long long)written[thread][block]);
    _exit(1);
}

static uint64_t word(int thread, int block, int index) {
    return written[thread][block] << 32 | (uint64_t)thread << 24 | (uint64_t)block << 12 | index;
}

static void check(uint64_t *words, int thread, int block) {
    off_t place = ((off_t)thread * BLOCKS + block) * BYTES;
    if (pread(disk, words, BYTES, place) != BYTES) fail("read", thread, block, 0);
    for (int index = 0; index < WORDS; index++)
        if (words[index] != word(thread, block, index)) fail("wrong", thread, block, words[index]);
}

static void put(uint64_t *words, int thread, int block) {
    off_t place = ((off_t)thread * BLOCKS + block) * BYTES;
    written[thread][block]++;
    for (int index = 0; index < WORDS; index++) words[index] = word(thread, block, index);
    if (pwrite(disk, words, BYTES, place) != BYTES) fail("write", thread, block, 0);
}

static void *work(void *argument) {
    int thread = (int)(intptr_t)argument;
    uint64_t *words = aligned_alloc(BYTES, BYTES), chance = thread * 7919 + 1, done = 0;
    for (int block = 0; block < BLOCKS; block++) put(words, thread, block);
    double most = 0;
    while (now() < end) {
        chance = chance * 6364136223846793005u + 1442695040888963407u;
        int block = (chance >> 33) % BLOCKS;
        double begin = now();
        if (chance >> 60 & 1) put(words, thread, block);
        else check(words, thread, block);
        double took = now() - begin;
        if (took > most) most = took;
        if (took > 0.01) {
            pthread_mutex_lock(&lock);
            if (slow < PAUSES) pauses[slow++] = took;
            pthread_mutex_unlock(&lock);
        }
        if (done++ % 64 == 63 && fsync(disk) != 0) fail("flush", thread, block, 0);
    }
    for (int block = 0; block < BLOCKS; block++) check(words, thread, block);
    pthread_mutex_lock(&lock);
    count += done;
    if (most > longest) longest = most;
    pthread_mutex_unlock(&lock);
    return NULL;
}

static int compare(const void *left, const void *right) {
    double difference = *(const double *)left - *(const double *)right;
    return difference < 0 ? -1 : difference > 0;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    disk = open(argv[1], O_RDWR | O_DIRECT);
    if (argc < 3 || disk < 0) return perror(argv[1]), 1;
    end = now() + atof(argv[2]);
    for (intptr_t index = 0; index < THREADS; index++) pthread_create(&threads[index], NULL, work, (void *)index);
    for (int index = 0; index < THREADS; index++) pthread_join(threads[index], NULL);
    qsort(pauses, slow, sizeof *pauses, compare);
    double late = slow ? pauses[slow * 99 / 100] : 0;
    fprintf(stderr, "%llu operations, %llu above 10 ms, 99th percentile of these %.1f ms, longest %.1f ms\n",
            (unsigned long long)count, (unsigned long long)slow, late * 1e3, longest * 1e3);
    puts("ok");
    return 0;
}
