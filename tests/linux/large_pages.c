/*
 * Large private memory that is walked through, cut up, protected, moved, forked and advised about at random, beside a
 * byte for each page that says what has to be there. A child does the same on its own for a while.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096L
#define BLOCK 512L
#define BLOCKS 6L
#define PAGES (BLOCK * BLOCKS)

enum { GONE = 0, NONE = 1, READ = 2, BOTH = 3 };

static char *base;
static unsigned char rights[PAGES], bytes[PAGES];
static uint64_t state = 88172645463325252u;
static long failures;

static unsigned long below(unsigned long end) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % end;
}

static sigjmp_buf back;
static void on_fault(int signal) { (void)signal, siglongjmp(back, 1); }

/* Whether an access faults. */
static int faults(long page, int is_store, unsigned char value) {
    volatile unsigned char *place = (unsigned char *)base + page * PAGE + page % 4000;
    if (sigsetjmp(back, 1)) return 1;
    if (is_store) *place = value;
    else if (*place != bytes[page]) failures++;
    return 0;
}

static void touch(long page, int is_store) {
    unsigned char value = (unsigned char)below(256);
    if (faults(page, is_store, value) != (rights[page] < (is_store ? BOTH : READ))) failures++;
    else if (is_store && rights[page] == BOTH) bytes[page] = value;
}

static void part(long *first, long *count) {
    *first = below(2) ? (long)below(BLOCKS) * BLOCK : (long)below(PAGES);
    *count = below(3) ? 1 + (long)below(700) : BLOCK * (1 + (long)below(2));
    if (*first + *count > PAGES) *count = PAGES - *first;
}

static int is_all(long first, long count, int least) {
    for (long page = first; page < first + count; page++)
        if (rights[page] < least) return 0;
    return 1;
}

static void change(void) {
    static const int protections[] = {0, PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE};
    long first, count, to;
    part(&first, &count);
    char *start = base + first * PAGE;
    switch (below(9)) {
    case 0: case 1:
        for (long page = first; page < first + count; page++)
            if (rights[page] == BOTH) ((volatile unsigned char *)base)[page * PAGE + page % 4000] = bytes[page] = (unsigned char)page;
        break;
    case 2:
        if (mmap(start, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != start) failures++;
        memset(rights + first, BOTH, count), memset(bytes + first, 0, count);
        if (below(2)) madvise(start, count * PAGE, MADV_HUGEPAGE);
        break;
    case 3:
        if (munmap(start, count * PAGE)) failures++;
        memset(rights + first, GONE, count), memset(bytes + first, 0, count);
        break;
    case 4: case 5: {
        int wanted = NONE + (int)below(3);
        if (!is_all(first, count, NONE)) break;
        if (mprotect(start, count * PAGE, protections[wanted])) failures++;
        memset(rights + first, wanted, count);
        break;
    }
    case 6:
        if (!is_all(first, count, NONE)) break;
        if (madvise(start, count * PAGE, MADV_DONTNEED)) failures++;
        memset(bytes + first, 0, count);
        break;
    case 7:
        to = (long)below(PAGES);
        if (to + count > PAGES || (first < to + count && to < first + count) || !is_all(first, count, BOTH)) break;
        /* Of several mappings none is moved, but what was there is gone. */
        if (mremap(start, count * PAGE, count * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, base + to * PAGE) == MAP_FAILED) {
            memset(rights + to, GONE, count), memset(bytes + to, 0, count);
            break;
        }
        for (long i = 0; i < count; i++) {
            /* A page's byte is not at the same place in each. */
            rights[to + i] = BOTH, bytes[to + i] = ((unsigned char *)base)[(to + i) * PAGE + (to + i) % 4000];
            if (((unsigned char *)base)[(to + i) * PAGE + (first + i) % 4000] != bytes[first + i]) failures++;
        }
        memset(rights + first, GONE, count), memset(bytes + first, 0, count);
        break;
    default:
        for (int i = 0; i < 200; i++) touch((long)below(PAGES), (int)below(2));
    }
}

static void check(void) {
    for (long page = 0; page < PAGES; page += 1 + (long)below(40)) touch(page, 0);
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 60;
    struct sigaction action = {.sa_handler = on_fault};
    sigaction(SIGSEGV, &action, NULL);
    char *room = mmap(NULL, (PAGES + BLOCK) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    base = (char *)(((uintptr_t)room + BLOCK * PAGE - 1) & -(uintptr_t)(BLOCK * PAGE));
    munmap(room, (PAGES + BLOCK) * PAGE);
    long lost = 0;
    for (long round = 0; round < rounds; round++) {
        int is_child = 0, status = 0;
        pid_t child = round % 4 == 3 ? fork() : -1;
        if (child == 0) is_child = 1, state += 0x9e3779b9;
        for (int i = 0; i < 12; i++) change();
        check();
        if (is_child) _exit(failures ? 1 : 0);
        if (child > 0 && (waitpid(child, &status, 0) != child || status)) lost++;
    }
    printf("failures %ld, children %ld\n", failures, lost);
    return failures || lost;
}
