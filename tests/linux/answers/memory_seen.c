// A process's memory as files: /proc/PID/mem, pagemap and smaps.
#include "answers.h"
#include <limits.h>

static uint64_t page_entry(int fd, void *address) {
    uint64_t entry = 0;
    pread(fd, &entry, 8, (uintptr_t)address / 4096 * 8);
    return entry;
}
static int open_of(pid_t pid, const char *name, int flags) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    return open(path, flags);
}

PROGRAM(memory_as_a_file) {
    static volatile long word = 41;
    char bytes[8192], *pages = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd;
    W(fd = open("/proc/self/mem", O_RDWR));
    T(read(fd, bytes, 8)), T(pread(fd, bytes, 0, 0)), T(pread(fd, bytes, 8, (uintptr_t)&word)), T(*(long *)bytes);
    T(pwrite(fd, &(long){42}, 8, (uintptr_t)&word)), T(word), T(pwrite(fd, "x", 1, 8)), T(lseek(fd, (uintptr_t)&word, SEEK_SET) == (off_t)&word);
    T(read(fd, bytes, 4)), IS(lseek(fd, 0, SEEK_CUR) == (off_t)(uintptr_t)&word + 4), T(lseek(fd, 0, SEEK_END));
    munmap(pages + 4096, 4096), memset(pages, 7, 4096), pages[2 * 4096] = 9;
    T(pread(fd, bytes, 8192, (uintptr_t)pages)), T(pread(fd, bytes, 8, (uintptr_t)pages + 4096)), T(pwrite(fd, bytes, 5000, (uintptr_t)pages));
    T(pread(fd, (void *)8, 8, (uintptr_t)pages)), T(pread(fd, bytes, 8, -8)), T(pread(fd, bytes, 16, (uintptr_t)pages + 4096 - 8)), T(bytes[7]);
    T(pread(fd, pages, 4096, (uintptr_t)pages)), T(ftruncate(fd, 0)), close(fd);
    fd = open("/proc/self/mem", O_RDONLY), T(pwrite(fd, bytes, 1, (uintptr_t)pages)), close(fd);
    munmap(pages, 4 * 4096);
}

PROGRAM(memory_of_others) {
    static volatile long word = 5;
    long seen = 0;
    int line[2], back[2], fd;
    pipe(line), pipe(back);
    pid_t child = fork();
    if (child == 0) {
        word = 6, write(line[1], "x", 1), read(back[0], &(char){0}, 1);
        _exit(word);
    }
    read(line[0], &(char){0}, 1);
    W(fd = open_of(child, "mem", O_RDWR)), T(pread(fd, &seen, 8, (uintptr_t)&word)), T(seen), T(pwrite(fd, &(long){7}, 8, (uintptr_t)&word)), T(word);
    pid_t parent = getpid();
    CHILD("another user", (setgid(5), setuid(5), T(open_of(parent, "mem", O_RDONLY)), T(open_of(parent, "pagemap", O_RDONLY)), T(open_of(parent, "smaps", O_RDONLY)), T(open_of(parent, "maps", O_RDONLY)), T(open_of(parent, "smaps_rollup", O_RDONLY)), T(open_of(parent, "auxv", O_RDONLY)), T(open_of(parent, "environ", O_RDONLY)), T(open_of(parent, "exe", O_RDONLY)), T(open_of(parent, "fd", O_RDONLY)), T(open_of(parent, "cwd", O_RDONLY)), T(open_of(parent, "io", O_RDONLY)), W(open_of(parent, "status", O_RDONLY)), W(open_of(parent, "statm", O_RDONLY)), W(open_of(parent, "cmdline", O_RDONLY))));
    write(back[1], "x", 1);
    int status;
    waitpid(child, &status, 0), T(WEXITSTATUS(status)), T(pread(fd, &seen, 8, (uintptr_t)&word)), T(pwrite(fd, &seen, 8, (uintptr_t)&word));
    T(open_of(child, "mem", O_RDONLY)), close(fd);
}

PROGRAM(pages_as_a_file) {
    char *pages = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t entries[4];
    int fd;
    W(fd = open("/proc/self/pagemap", O_RDONLY)), T(open("/proc/self/pagemap", O_WRONLY) == -1 && getuid());
    char *untouched = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    T(page_entry(fd, untouched) >> 63);
    memset(pages, 1, 4 * 4096);
    T(pread(fd, entries, 32, (uintptr_t)pages / 4096 * 8)), T(entries[0] >> 63), T(entries[1] >> 63), T(entries[2] >> 63), T(entries[3] >> 63), T(entries[0] >> 61 & 1);
    T(pread(fd, entries, 7, 0)), T(pread(fd, entries, 8, 4)), T(pread(fd, entries, 8, 0)), T(entries[0]), T(pread(fd, entries, 0, 0)), T(pread(fd, (void *)8, 8, 0));
    munmap(pages, 4096), T(page_entry(fd, pages) >> 63), madvise(pages + 3 * 4096, 4096, MADV_DONTNEED), T(page_entry(fd, pages + 3 * 4096) >> 63);
    munmap(pages, 4 * 4096), close(fd);
}

// What smaps says of the area at an address, in KiB; -1: it has no such row.
static long row_of(void *address, const char *label) {
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[512];
    unsigned long start, end;
    long found = -1, value;
    int is_here = 0;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            is_here = start <= (uintptr_t)address && (uintptr_t)address < end;
        else if (is_here && !strncmp(line, label, strlen(label)) && sscanf(line + strlen(label), ": %ld", &value) == 1)
            found = value;
    }
    fclose(file);
    return found;
}

PROGRAM(areas_with_their_pages) {
    char *pages = mmap(NULL, 64 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages, 4096, PROT_NONE), mprotect(pages + 63 * 4096, 4096, PROT_NONE);
    char *inner = pages + 4096;
    T(row_of(inner, "Size")), T(row_of(inner, "Rss")), T(row_of(inner, "Anonymous")), T(row_of(inner, "KernelPageSize"));
    for (int i = 0; i < 62; i++) inner[i * 4096] = 1;
    T(row_of(inner, "Rss")), T(row_of(inner, "Pss")), T(row_of(inner, "Private_Dirty")), T(row_of(inner, "Anonymous")), T(row_of(inner, "Shared_Clean")), T(row_of(inner, "Locked")), T(row_of(inner, "Swap")), T(row_of(inner, "Nothing"));
    madvise(inner, 4 * 4096, MADV_DONTNEED), T(row_of(inner, "Rss")), T(row_of(pages, "Size")), T(row_of(pages, "Rss"));
    munmap(pages, 64 * 4096);
}

// What smaps says of the area at `at`, of a process's pages that a copy has too.
static void counted(const char *when, void *at) {
    char line[256], start[32];
    snprintf(start, sizeof start, "%lx-", (long)at);
    FILE *smaps = fopen("/proc/self/smaps", "r");
    int is_here = 0;
    printf("%s:", when);
    while (fgets(line, sizeof line, smaps)) {
        if (strchr("0123456789abcdef", *line))
            is_here = strncmp(line, start, strlen(start)) == 0;
        long kib;
        char name[32];
        if (is_here && sscanf(line, "%31[A-Za-z_]: %ld kB", name, &kib) == 2 && strstr("Rss Pss Shared_Dirty Private_Dirty Anonymous", name))
            printf(" %s %ld", name, kib);
    }
    puts(""), fclose(smaps), fflush(stdout);
}
PROGRAM(shares_of_pages) {
    enum { COUNT = 300 };
    char *at = mmap(NULL, COUNT * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    // Neighbours of other rights, so that it stays an area of its own.
    mprotect(at, 4096, PROT_NONE), mprotect(at + (COUNT - 1) * 4096, 4096, PROT_NONE), at += 4096;
    madvise(at, (COUNT - 2) * 4096, MADV_NOHUGEPAGE), memset(at, 1, (COUNT - 2) * 4096), counted("alone", at);
    CHILD("copy", ({
        counted("a copy", at);
        for (int i = 0; i < 10; i++)
            at[i * 27 * 4096] = 2;
        counted("that has written ten", at), munmap(at + 100 * 4096, 50 * 4096), counted("and let go of some", at);
    }));
    counted("alone again", at);
}
