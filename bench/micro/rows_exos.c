/*
 * Faults, rights and dirty bits by the native interface of exos, for the same purposes as rows_memory.c by Linux's calls.
 * On Linux these rows have no figure of their own; the report shows the other's there.
 */
#include "micro.h"

#include "exos.h"

#include <sys/mman.h>

#define READ_WRITE (PROT_READ | PROT_WRITE)
#define HUNDRED 100

static char *volatile to_protect;

static char *region(int rights, exos_handler *handler) {
    static char *pages;
    if (exos_version() != EXOS_VERSION) return NULL;
    if (!pages) pages = mmap(NULL, HUNDRED * PAGE_BYTES, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages, HUNDRED * PAGE_BYTES, READ_WRITE)) return NULL;
    memset(pages, 1, HUNDRED * PAGE_BYTES);
    if (mprotect(pages, HUNDRED * PAGE_BYTES, rights)) return NULL;
    return exos_handle_faults_integer(pages, HUNDRED * PAGE_BYTES, handler, NULL) ? NULL : pages;
}

#define INTEGER __attribute__((target("general-regs-only")))

static struct exos_change protection(uint64_t address, int rights) {
    return (struct exos_change){(void *)(address & ~(uint64_t)(PAGE_BYTES - 1)), PAGE_BYTES, EXOS_CHANGE_PROTECT, rights};
}

/* The instruction has two bytes. */
INTEGER static void skip(struct exos_fault *fault) {
    fault->rip += 2;
}

INTEGER static void unprotect(struct exos_fault *fault) {
    struct exos_change change = protection(fault->address, READ_WRITE);
    exos_apply(&change, 1);
}

INTEGER static void swap(struct exos_fault *fault) {
    struct exos_change changes[2] = {protection((uint64_t)to_protect, PROT_READ), protection(fault->address, READ_WRITE)};
    exos_apply(changes, 2);
}

static int64_t fault_skip(long count) {
    char *start = region(PROT_READ, skip);
    CHECK(start, "the native interface of exos");
    int64_t begin = now_ns();
    for (long i = 0; i < count; i++) __asm__ volatile("movb %%cl, (%%rax)" ::"a"(start), "c"(1) : "memory");
    return now_ns() - begin;
}

static int64_t fault_reprotect(long count) {
    char *start = region(PROT_NONE, unprotect);
    CHECK(start, "the native interface of exos");
    struct exos_change change = protection((uint64_t)start, PROT_NONE);
    int64_t begin = now_ns();
    for (long i = 0; i < count; i++) {
        *(volatile char *)start = 1;
        exos_apply(&change, 1);
    }
    return now_ns() - begin;
}

static int64_t exos_appel1(long count) {
    char *start = region(PROT_READ, swap);
    CHECK(start && !mprotect(start, PAGE_BYTES, READ_WRITE), "the native interface of exos");
    int writable = 0;
    int64_t begin = now_ns();
    for (long i = 0; i < count; i++) {
        int next = (writable + 37) % HUNDRED;
        to_protect = start + writable * PAGE_BYTES;
        *(volatile char *)(start + next * PAGE_BYTES) = 1;
        writable = next;
    }
    return now_ns() - begin;
}

/* In hundreds of pages; the result is for `count` pages. */
static int64_t exos_appel2(long count) {
    char *start = region(READ_WRITE, unprotect);
    CHECK(start, "the native interface of exos");
    struct exos_change change = {start, HUNDRED * PAGE_BYTES, EXOS_CHANGE_PROTECT, PROT_READ};
    int64_t total_ns = 0, pages = 0;
    for (; pages < count; pages += HUNDRED) {
        int64_t begin = now_ns();
        CHECK(exos_apply(&change, 1) == 1, "exos_apply");
        for (int k = 0; k < HUNDRED; k++) *(volatile char *)(start + k * 37 % HUNDRED * PAGE_BYTES) = 1;
        total_ns += now_ns() - begin;
    }
    return (double)total_ns * count / pages;
}

static int64_t exos_dirty(long count) {
    char *start = region(READ_WRITE, NULL);
    CHECK(start, "the native interface of exos");
    unsigned char bits;
    long dirty = 0;
    int64_t begin = now_ns();
    for (long i = 0; i < count; i++) {
        exos_pages(start, PAGE_BYTES, &bits, 0);
        dirty += (bits & EXOS_PAGE_DIRTY) != 0;
    }
    int64_t elapsed_ns = now_ns() - begin;
    CHECK(dirty == count, "exos_pages");
    return elapsed_ns;
}

/* A copy of the page, as who must be able to take stores back makes one; the page has its rights already. */
INTEGER static void keep(struct exos_fault *fault) {
    static char kept[PAGE_BYTES];
    void *to = kept, *from = (void *)(fault->address & ~(uint64_t)(PAGE_BYTES - 1));
    long words = PAGE_BYTES / 8;
    __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words)::"memory");
}

/* In hundreds of pages; the result is for `count` pages. */
static int64_t watched(long count, uint32_t kind) {
    char *start = region(READ_WRITE, keep);
    CHECK(start, "the native interface of exos");
    struct exos_change change = {start, HUNDRED * PAGE_BYTES, kind, 0};
    int64_t total_ns = 0, pages = 0;
    for (; pages < count; pages += HUNDRED) {
        int64_t begin = now_ns();
        CHECK(exos_apply(&change, 1) == 1, "exos_apply");
        for (int k = 0; k < HUNDRED; k++) {
            volatile char *at = start + k * 37 % HUNDRED * PAGE_BYTES;
            if (kind == EXOS_CHANGE_WATCH_STORES) *at = 1;
            else (void)*at;
        }
        total_ns += now_ns() - begin;
    }
    change.kind = EXOS_CHANGE_UNWATCH;
    CHECK(exos_apply(&change, 1) == 1, "exos_apply");
    return (double)total_ns * count / pages;
}

static int64_t exos_watch_store(long count) {
    return watched(count, EXOS_CHANGE_WATCH_STORES);
}

static int64_t exos_watch_load(long count) {
    return watched(count, EXOS_CHANGE_WATCH_ACCESSES);
}

const struct row exos_rows[] = {{"exos_fault_skip", fault_skip},
                                {"exos_fault_reprotect", fault_reprotect},
                                {"exos_appel1", exos_appel1},
                                {"exos_appel2_perpage", exos_appel2},
                                {"exos_watch_store", exos_watch_store},
                                {"exos_watch_load", exos_watch_load},
                                {"exos_dirty", exos_dirty},
                                {0}};
