/*
 * Rows on mappings and on exceptions that a program handles (the tables of the exokernel papers: dirty, prot1, prot100,
 * unprot100, trap, appel1, appel2).
 */
#include "micro.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#define REGION_PAGES 128
#define READ_WRITE (PROT_READ | PROT_WRITE)

static char *map_pages(size_t pages) {
    char *start = mmap(NULL, pages * PAGE_BYTES, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return NULL;
    /* A huge page would turn 512 first touches into one. It need not be known here. */
    madvise(start, pages * PAGE_BYTES, MADV_NOHUGEPAGE);
    return start;
}

/* A region of touched, writable pages that the rows share. */
static char *region(void) {
    static char *start;
    if (!start) start = map_pages(REGION_PAGES);
    if (!start || mprotect(start, REGION_PAGES * PAGE_BYTES, READ_WRITE)) return NULL;
    for (int page = 0; page < REGION_PAGES; page++) *(volatile char *)(start + page * PAGE_BYTES) = 1;
    return start;
}

static int64_t first_touch(long count) {
    int64_t total_ns = 0;
    for (long left = count; left > 0; left -= 512) {
        long pages = left < 512 ? left : 512;
        char *start = map_pages(pages);
        CHECK(start, "mmap");
        int64_t begin = now_ns();
        for (long page = 0; page < pages; page++) *(volatile char *)(start + page * PAGE_BYTES) = 1;
        total_ns += now_ns() - begin;
        CHECK(!munmap(start, pages * PAGE_BYTES), "munmap");
    }
    return total_ns;
}

/* First touches, by stores, of pages that are there: those of a file in memory, mapped shared. */
static int64_t existing_touch(long count) {
    int64_t total_ns = 0;
    int fd = open("/tmp/micro.pages", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0, "/tmp/micro.pages");
    for (int page = 0; page < 512; page++) {
        static char block[PAGE_BYTES];
        CHECK(write(fd, block, sizeof block) == sizeof block, "write");
    }
    for (long left = count; left > 0; left -= 512) {
        long pages = left < 512 ? left : 512;
        char *start = mmap(NULL, 512 * PAGE_BYTES, READ_WRITE, MAP_SHARED, fd, 0);
        CHECK(start != MAP_FAILED, "mmap of a file, shared");
        int64_t begin = now_ns();
        for (long page = 0; page < pages; page++) *(volatile char *)(start + page * PAGE_BYTES) = 1;
        total_ns += now_ns() - begin;
        CHECK(!munmap(start, 512 * PAGE_BYTES), "munmap");
    }
    close(fd);
    unlink("/tmp/micro.pages");
    return total_ns;
}

static int64_t map_and_unmap(long count, int touches) {
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        char *page = mmap(NULL, PAGE_BYTES, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(page != MAP_FAILED, "mmap");
        if (touches) *(volatile char *)page = 1;
        CHECK(!munmap(page, PAGE_BYTES), "munmap");
    }
    return now_ns() - start;
}

static int64_t map_touch_unmap(long count) {
    return map_and_unmap(count, 1);
}

static int64_t map_unmap(long count) {
    return map_and_unmap(count, 0);
}

static int64_t toggle(char *page, long count) {
    int64_t start = now_ns();
    for (long i = 0; i < count; i += 2) {
        CHECK(!mprotect(page, PAGE_BYTES, PROT_READ), "mprotect");
        CHECK(!mprotect(page, PAGE_BYTES, READ_WRITE), "mprotect");
    }
    return now_ns() - start;
}

static int64_t protect_one(long count) {
    char *start = region();
    CHECK(start, "mprotect");
    return toggle(start + PAGE_BYTES, count);
}

/* A mapping of its own, so that nothing is split and joined. */
static int64_t protect_mapping(long count) {
    char *start = map_pages(3);
    CHECK(start, "mmap");
    CHECK(!munmap(start, PAGE_BYTES) && !munmap(start + 2 * PAGE_BYTES, PAGE_BYTES), "munmap");
    start[PAGE_BYTES] = 1;
    int64_t elapsed_ns = toggle(start + PAGE_BYTES, count);
    munmap(start + PAGE_BYTES, PAGE_BYTES);
    return elapsed_ns;
}

/* Only one direction of the two is measured. */
static int64_t protect_100(long count, int measured) {
    char *start = region();
    int64_t total_ns[2] = {0, 0};
    CHECK(start, "mprotect");
    for (long i = 0; i < count; i++) {
        int64_t first = now_ns();
        CHECK(!mprotect(start, 100 * PAGE_BYTES, PROT_READ), "mprotect");
        int64_t second = now_ns();
        CHECK(!mprotect(start, 100 * PAGE_BYTES, READ_WRITE), "mprotect");
        total_ns[0] += second - first;
        total_ns[1] += now_ns() - second;
    }
    return total_ns[measured];
}

static int64_t prot100(long count) {
    return protect_100(count, 0);
}

static int64_t unprot100(long count) {
    return protect_100(count, 1);
}

/* One page's dirty bit, the way a Linux program has to ask for it. The page is the last of its table. */
static int64_t dirty_pagemap(long count) {
    static char *area;
    if (!area) area = map_pages(1024);
    CHECK(area, "mmap");
    uintptr_t table_bytes = 2 << 20;
    char *page = (char *)(((uintptr_t)area + table_bytes) & ~(table_bytes - 1)) + table_bytes - PAGE_BYTES;
    if (page >= area + 1024 * PAGE_BYTES) page = area + 1023 * PAGE_BYTES;
    *(volatile char *)page = 1;
    int fd = open("/proc/self/pagemap", O_RDONLY);
    CHECK(fd >= 0, "/proc/self/pagemap");
    uint64_t entry;
    long moved = 0;
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) moved += pread(fd, &entry, 8, (uintptr_t)page / PAGE_BYTES * 8);
    int64_t elapsed_ns = now_ns() - start;
    close(fd);
    CHECK(moved == 8 * count, "pread");
    return elapsed_ns;
}

const struct row memory_rows[] = {{"pf_anon_touch", first_touch},
                                  {"pf_existing_touch", existing_touch},
                                  {"mmap_touch_munmap_1p", map_touch_unmap},
                                  {"mmap_munmap_1p", map_unmap},
                                  {"mprotect_1p", protect_one},
                                  {"mprotect_vma_1p", protect_mapping},
                                  {"prot100", prot100},
                                  {"unprot100", unprot100},
                                  {"dirty_pagemap", dirty_pagemap},
                                  {0}};

/* Exceptions that a handler answers. */

static char *volatile to_protect;

static char *page_of(siginfo_t *info) {
    return (char *)((uintptr_t)info->si_addr & ~(uintptr_t)(PAGE_BYTES - 1));
}

/* Every instruction that these rows trap on has two bytes. */
static void skip_instruction(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
}

static void unprotect(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    mprotect(page_of(info), PAGE_BYTES, READ_WRITE);
}

static void protect_other(int number, siginfo_t *info, void *context) {
    mprotect(to_protect, PAGE_BYTES, PROT_READ);
    unprotect(number, info, context);
}

static int handle(int number, void (*handler)(int, siginfo_t *, void *)) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    return sigaction(number, &action, NULL);
}

static int64_t trap_segv(long count) {
    char *start = region();
    CHECK(start && !mprotect(start, PAGE_BYTES, PROT_READ) && !handle(SIGSEGV, skip_instruction), "sigaction");
    int64_t begin = now_ns();
    for (long i = 0; i < count; i++) __asm__ volatile("movb %%cl, (%%rax)" ::"a"(start), "c"(1) : "memory");
    return now_ns() - begin;
}

static int64_t trap_illegal(long count) {
    CHECK(!handle(SIGILL, skip_instruction), "sigaction");
    int64_t begin = now_ns();
    for (long i = 0; i < count; i++) __asm__ volatile("ud2");
    return now_ns() - begin;
}

static int64_t trap_divide(long count) {
    CHECK(!handle(SIGFPE, skip_instruction), "sigaction");
    int64_t begin = now_ns();
    for (long i = 0; i < count; i++) {
        int quotient = 1, rest = 0;
        __asm__ volatile("divl %%ecx" : "+a"(quotient), "+d"(rest) : "c"(0));
    }
    return now_ns() - begin;
}

static int64_t trap_reprotect(long count) {
    char *start = region();
    CHECK(start && !mprotect(start, PAGE_BYTES, PROT_NONE) && !handle(SIGSEGV, unprotect), "sigaction");
    int64_t begin = now_ns();
    for (long i = 0; i < count; i++) {
        *(volatile char *)start = 1;
        mprotect(start, PAGE_BYTES, PROT_NONE);
    }
    return now_ns() - begin;
}

static int64_t appel1(long count) {
    char *start = region();
    CHECK(start && !mprotect(start, 100 * PAGE_BYTES, PROT_READ) && !mprotect(start, PAGE_BYTES, READ_WRITE) &&
              !handle(SIGSEGV, protect_other),
          "sigaction");
    int writable = 0;
    int64_t begin = now_ns();
    for (long i = 0; i < count; i++) {
        int next = (writable + 37) % 100;
        to_protect = start + writable * PAGE_BYTES;
        *(volatile char *)(start + next * PAGE_BYTES) = 1;
        writable = next;
    }
    return now_ns() - begin;
}

/* In hundreds of pages; the result is for `count` pages. */
static int64_t appel2(long count) {
    char *start = region();
    CHECK(start && !handle(SIGSEGV, unprotect), "sigaction");
    int64_t total_ns = 0, pages = 0;
    for (; pages < count; pages += 100) {
        int64_t begin = now_ns();
        CHECK(!mprotect(start, 100 * PAGE_BYTES, PROT_READ), "mprotect");
        for (int k = 0; k < 100; k++) *(volatile char *)(start + k * 37 % 100 * PAGE_BYTES) = 1;
        total_ns += now_ns() - begin;
    }
    return (double)total_ns * count / pages;
}

static void nothing(int number) {
    (void)number;
}

static int64_t signal_self(long count) {
    CHECK(signal(SIGUSR1, nothing) != SIG_ERR, "signal");
    pid_t process = getpid(), thread = syscall(SYS_gettid);
    long failures = 0;
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) failures += syscall(SYS_tgkill, process, thread, SIGUSR1) != 0;
    int64_t elapsed_ns = now_ns() - start;
    CHECK(!failures, "tgkill");
    return elapsed_ns;
}

const struct row fault_rows[] = {{"trap_segv_skip", trap_segv},
                                 {"segv_mprot_ret_reprot", trap_reprotect},
                                 {"appel1", appel1},
                                 {"appel2_perpage", appel2},
                                 {"trap_ud2_sigill", trap_illegal},
                                 {"trap_div_sigfpe", trap_divide},
                                 {"signal_self", signal_self},
                                 {0}};
