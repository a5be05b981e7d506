// What a program sees of a driver that is lost while it uses its device.
//
//   restart disk DISK SECONDS            sixteen threads write and read blocks of their own past every cache; each
//                                        block holds its place and the count of its writes, so a wrong one is found
//   restart net ADDRESS PORT SECONDS     a datagram every millisecond to a server that echoes them
//
// Prints "gap NS" for the longest times in which nothing ended, longest first, then "operations N". A wrong block or
// an error ends it with a line on standard error.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 16, BLOCKS = 64, BYTES = 4096, WORDS = BYTES / 8, GAPS = 1 << 20, SHOWN = 4096 };
// Shorter ones are of no interest.
static const uint64_t GAP_NS = 200000;

static uint64_t gaps[GAPS], gap_count, count, last_ns, end_ns, written[THREADS][BLOCKS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int disk;

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    _exit(1);
}

// Something has ended.
static uint64_t ended(void) {
    pthread_mutex_lock(&lock);
    uint64_t time = now(), gap = time - last_ns;
    if (last_ns != 0 && gap > GAP_NS && gap_count < GAPS) gaps[gap_count++] = gap;
    last_ns = time;
    count++;
    pthread_mutex_unlock(&lock);
    return time;
}

static uint64_t word(int thread, int block, int index) {
    return written[thread][block] << 32 | (uint64_t)thread << 24 | (uint64_t)block << 12 | index;
}

static void *work(void *argument) {
    int thread = (int)(intptr_t)argument;
    uint64_t *words = aligned_alloc(BYTES, BYTES), chance = thread * 7919 + 1;
    for (uint64_t done = 0, time = now(); time < end_ns; done++) {
        chance = chance * 6364136223846793005u + 1442695040888963407u;
        int block = done < BLOCKS ? (int)done : (int)((chance >> 33) % BLOCKS);
        off_t place = ((off_t)thread * BLOCKS + block) * BYTES;
        if (done < BLOCKS || chance >> 60 & 1) {
            written[thread][block]++;
            for (int index = 0; index < WORDS; index++) words[index] = word(thread, block, index);
            if (pwrite(disk, words, BYTES, place) != BYTES) fail("write");
        } else {
            if (pread(disk, words, BYTES, place) != BYTES) fail("read");
            for (int index = 0; index < WORDS; index++)
                if (words[index] != word(thread, block, index)) errno = EIO, fail("a wrong block");
        }
        time = ended();
    }
    return NULL;
}

static void use_disk(const char *path) {
    pthread_t threads[THREADS];
    disk = open(path, O_RDWR | O_DIRECT);
    if (disk < 0) fail(path);
    for (intptr_t index = 0; index < THREADS; index++) pthread_create(&threads[index], NULL, work, (void *)index);
    for (int index = 0; index < THREADS; index++) pthread_join(threads[index], NULL);
}

static void use_net(const char *address, int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {inet_addr(address)}};
    int socket_fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    if (socket_fd < 0 || connect(socket_fd, (struct sockaddr *)&to, sizeof to) < 0) fail("socket");
    char bytes[64] = "restart";
    uint64_t next = now();
    while (now() < end_ns) {
        // What is refused while there is no card is lost like a datagram on its way.
        if (now() >= next) send(socket_fd, bytes, sizeof bytes, 0), next = now() + 1000000;
        struct pollfd ready = {.fd = socket_fd, .events = POLLIN};
        poll(&ready, 1, 1);
        while (recv(socket_fd, bytes, sizeof bytes, 0) > 0) ended();
    }
}

static int compare(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? 1 : a > b ? -1 : 0;
}

int main(int argc, char **argv) {
    if (argc < 4) return fprintf(stderr, "restart disk DISK SECONDS | net ADDRESS PORT SECONDS\n"), 2;
    end_ns = now() + strtoull(argv[argc - 1], NULL, 10) * 1000000000ull;
    if (strcmp(argv[1], "disk") == 0) use_disk(argv[2]);
    else use_net(argv[2], atoi(argv[3]));
    qsort(gaps, gap_count, sizeof *gaps, compare);
    for (uint64_t index = 0; index < gap_count && index < SHOWN; index++)
        printf("gap %llu\n", (unsigned long long)gaps[index]);
    printf("operations %llu\n", (unsigned long long)count);
    return 0;
}
