/* Memory calls: results, errors and contents, with every claim checked by the program itself. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096ul
#define CHECK(claim) ((claim) ? (void)0 : (void)printf("line %d: not so: %s (errno %d)\n", __LINE__, #claim, errno))

static uint64_t seed = 88172645463325252;
static uint64_t draw(void) { return seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17; }

static char *anonymous(size_t bytes, int protection) {
    return mmap(0, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* Whether the page can be read and written: asked of the kernel, which answers EFAULT. */
static int access_of(char *address) {
    static int pipes[2] = {-1, -1};
    char byte;
    if (pipes[0] < 0 && pipe(pipes)) return -1;
    int result = 0;
    if (write(pipes[1], address, 1) == 1) {
        result = 1;
        if (read(pipes[0], address, 1) == 1) return 3;
        if (read(pipes[0], &byte, 1) != 1) return -2;
    }
    return result;
}

static void errors(void) {
    errno = 0;
#define FAILS(call, number) (errno = 0, CHECK((long)(call) == -1), CHECK(errno == number))
    FAILS(mmap(0, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), EINVAL);
    FAILS(mmap(0, PAGE, PROT_READ, MAP_ANONYMOUS, -1, 0), EINVAL);
    FAILS(mmap(0, PAGE, PROT_READ, MAP_PRIVATE, -1, 0), EBADF);
    FAILS(mmap(0, PAGE, PROT_READ, MAP_PRIVATE, 0x7ff, 0), EBADF);
    FAILS(mmap((void *)1, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), EINVAL);
    FAILS(mmap((void *)0x7ffffffff000, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), ENOMEM);
    FAILS(mmap(0, 1ul << 47, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), ENOMEM);
    FAILS(mmap(0, -1ul, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), ENOMEM);
    char *p = anonymous(4 * PAGE, PROT_READ | PROT_WRITE);
    FAILS(mmap(p, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0), EEXIST);
    int file = open("/etc/passwd", O_RDONLY);
    FAILS(mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), EACCES);
    FAILS(mmap(0, PAGE, PROT_READ, MAP_PRIVATE, file, 5), EINVAL);
    close(file);
    FAILS(munmap(p + 1, PAGE), EINVAL);
    FAILS(munmap(p, 0), EINVAL);
    CHECK(munmap((void *)0x10000000000, PAGE) == 0);
    FAILS(syscall(SYS_mprotect, p + 1, PAGE, PROT_READ), EINVAL);
    FAILS(mprotect((void *)0x10000000000, PAGE, PROT_READ), ENOMEM);
    CHECK(mprotect(p, 0, PROT_READ) == 0);
    FAILS(madvise(p, PAGE, 9999), EINVAL);
    FAILS(madvise(p + 1, PAGE, MADV_DONTNEED), EINVAL);
    FAILS(madvise((void *)0x10000000000, PAGE, MADV_DONTNEED), ENOMEM);
    FAILS(mremap(p + 1, PAGE, PAGE, 0), EINVAL);
    FAILS(mremap((void *)0x10000000000, PAGE, 2 * PAGE, MREMAP_MAYMOVE), EFAULT);
    FAILS(mremap(p, PAGE, 0, 0), EINVAL);
    munmap(p + PAGE, PAGE);
    FAILS(mprotect(p, 3 * PAGE, PROT_READ), ENOMEM);
    CHECK(access_of(p) == 1);
    munmap(p, 4 * PAGE);
    FAILS(msync(p, PAGE, MS_SYNC), ENOMEM);
    FAILS(msync(p, PAGE, MS_SYNC | MS_ASYNC), EINVAL);
    unsigned char state[4];
    p = anonymous(4 * PAGE, PROT_READ | PROT_WRITE);
    p[PAGE] = 1;
    CHECK(mincore(p, 4 * PAGE, state) == 0);
    CHECK(!(state[0] & 1) && (state[1] & 1) && !(state[2] & 1));
    FAILS(mincore(p + 4 * PAGE + (1ul << 40), PAGE, state), ENOMEM);
    CHECK(mlock(p, 4 * PAGE) == 0);
    CHECK(munlock(p, 4 * PAGE) == 0);
    munmap(p, 4 * PAGE);
}

/* Random maps, unmaps and protections against a plain table of what each page must be. */
static void against_table(void) {
    enum { PAGES = 64 };
    signed char protection[PAGES], value[PAGES];
    char *base = anonymous(PAGES * PAGE, PROT_NONE);
    munmap(base, PAGES * PAGE);
    memset(protection, -1, sizeof protection);
    static const int words[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE};
    for (int step = 0; step < 4000; step++) {
        int first = (int)(draw() % PAGES), count = 1 + (int)(draw() % (PAGES - first));
        if (count > 9) count = 1 + count % 9;
        char *at = base + first * PAGE;
        int which = (int)(draw() % 3), whole = 1;
        switch (draw() % 6) {
        case 0:
            CHECK(mmap(at, count * PAGE, words[which], MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
            for (int i = first; i < first + count; i++) protection[i] = (signed char)which, value[i] = 0;
            break;
        case 1:
            CHECK(munmap(at, count * PAGE) == 0);
            for (int i = first; i < first + count; i++) protection[i] = -1;
            break;
        case 2: {
            int stop = first;
            while (stop < first + count && protection[stop] >= 0) protection[stop++] = (signed char)which;
            CHECK(mprotect(at, count * PAGE, words[which]) == (stop == first + count ? 0 : -1));
            break;
        }
        case 3:
            for (int i = first; i < first + count; i++) whole &= protection[i] >= 0;
            CHECK(madvise(at, count * PAGE, MADV_DONTNEED) == (whole ? 0 : -1));
            for (int i = first; i < first + count; i++)
                if (protection[i] >= 0) value[i] = 0;
            break;
        default:
            for (int i = first; i < first + count; i++)
                if (protection[i] == 2) base[i * PAGE + draw() % PAGE / 8 * 0] = value[i] = (signed char)draw();
        }
        for (int i = first; i < first + count; i++) {
            static const int expected[] = {0, 0, 1, 3};
            CHECK(access_of(base + i * PAGE) == expected[protection[i] + 1]);
            if (protection[i] > 0) CHECK(base[i * PAGE] == value[i]);
        }
    }
    munmap(base, PAGES * PAGE);
}

static void remap(void) {
    char *p = anonymous(8 * PAGE, PROT_READ | PROT_WRITE);
    for (int i = 0; i < 8; i++) p[i * PAGE] = (char)(i + 1);
    char *q = mremap(p, 8 * PAGE, 4 * PAGE, 0);
    CHECK(q == p && q[3 * PAGE] == 4 && access_of(p + 4 * PAGE) == 0);
    q = mremap(p, 4 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
    CHECK(q != MAP_FAILED && q[3 * PAGE] == 4 && q[4 * PAGE] == 0 && q[63 * PAGE] == 0);
    char *target = anonymous(64 * PAGE, PROT_READ);
    char *r = mremap(q, 64 * PAGE, 64 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, target);
    CHECK(r == target && r[2 * PAGE] == 3);
    r[0] = 9;
    CHECK(access_of(q) == 0);
    anonymous(PAGE, PROT_READ);
    char *wall = mmap(r + 64 * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(mremap(r, 64 * PAGE, 65 * PAGE, 0) == MAP_FAILED && errno == ENOMEM);
    munmap(wall, PAGE);
    CHECK(mremap(r, 64 * PAGE, 65 * PAGE, 0) == r);
    munmap(r, 65 * PAGE);
    /* Growing an array as realloc does, with contents kept. */
    size_t size = PAGE;
    unsigned *numbers = malloc(size);
    for (size_t i = 0; i < size / 4; i++) numbers[i] = (unsigned)i;
    while (size < (8ul << 20)) {
        numbers = realloc(numbers, size * 2);
        for (size_t i = size / 4; i < size / 2; i++) numbers[i] = (unsigned)i;
        size *= 2;
    }
    int good = 1;
    for (size_t i = 0; i < size / 4; i++) good &= numbers[i] == i;
    CHECK(good);
    free(numbers);
}

static void files(void) {
    char path[] = "/tmp/memory-XXXXXX", buffer[64];
    int file = mkstemp(path);
    CHECK(ftruncate(file, 3 * PAGE + 100) == 0);
    CHECK(pwrite(file, "hello", 5, PAGE) == 5);
    char *shared = mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    char *private = mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    CHECK(!memcmp(shared + PAGE, "hello", 5) && !memcmp(private + PAGE, "hello", 5));
    shared[PAGE] = 'J';
    CHECK(pread(file, buffer, 5, PAGE) == 5 && !memcmp(buffer, "Jello", 5));
    CHECK(private[PAGE] == 'J');
    private[PAGE] = 'B';
    CHECK(shared[PAGE] == 'J' && pread(file, buffer, 1, PAGE) == 1 && buffer[0] == 'J');
    CHECK(pwrite(file, "C", 1, PAGE) == 1 && shared[PAGE] == 'C' && private[PAGE] == 'B');
    CHECK(madvise(private, 4 * PAGE, MADV_DONTNEED) == 0 && private[PAGE] == 'C');
    shared[3 * PAGE + 200] = 7;
    CHECK(msync(shared, 4 * PAGE, MS_SYNC) == 0);
    CHECK(lseek(file, 0, SEEK_END) == (long)(3 * PAGE + 100));
    close(file);
    CHECK(shared[PAGE] == 'C');
    CHECK(unlink(path) == 0);
    shared[2 * PAGE] = 3;
    CHECK(private[2 * PAGE] == 3);
    munmap(shared, 4 * PAGE), munmap(private, 4 * PAGE);
    file = open("/proc/self/exe", O_RDONLY);
    char *text = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    CHECK(!memcmp(text, "\177ELF", 4));
    text[1] = 'X';
    CHECK(pread(file, buffer, 4, 0) == 4 && !memcmp(buffer, "\177ELF", 4));
    close(file);
    file = memfd_create("m", 0);
    CHECK(file >= 0 && ftruncate(file, PAGE) == 0);
    char *a = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    char *b = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    a[5] = 5;
    CHECK(b[5] == 5);
    char *c = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    c[0] = 1;
    CHECK(c[0] == 1 && c[1] == 0);
}

static void breaks(void) {
    /* The call itself: musl's brk and sbrk refuse to work. */
    char *start = (char *)syscall(SYS_brk, 0), *page = (char *)(((uintptr_t)start + PAGE - 1) & -PAGE);
    CHECK(syscall(SYS_brk, page + 100 * PAGE) == (long)(page + 100 * PAGE));
    memset(page, 7, 100 * PAGE);
    CHECK(syscall(SYS_brk, page + 50 * PAGE) == (long)(page + 50 * PAGE));
    CHECK(syscall(SYS_brk, page + 100 * PAGE) == (long)(page + 100 * PAGE));
    CHECK(page[49 * PAGE] == 7 && page[60 * PAGE] == 0);
    CHECK(syscall(SYS_brk, 0x1000) == (long)(page + 100 * PAGE));
    CHECK(syscall(SYS_brk, start) == (long)start);
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY);
    CHECK(getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur == 8 << 20);
    limit.rlim_cur = 1 << 20, limit.rlim_max = RLIM_INFINITY;
    limit.rlim_cur = 512ul << 20;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    CHECK(anonymous(1ul << 30, PROT_READ) == MAP_FAILED && errno == ENOMEM);
    limit.rlim_cur = RLIM_INFINITY;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

static void execution(void) {
    unsigned char *code = (unsigned char *)anonymous(PAGE, PROT_READ | PROT_WRITE);
    memcpy(code, "\xb8\x2a\x00\x00\x00\xc3", 6);
    CHECK(mprotect(code, PAGE, PROT_READ | PROT_EXEC) == 0);
    int (*function)(void) = (int (*)(void))(uintptr_t)code;
    CHECK(function() == 42);
    CHECK(mprotect(code, PAGE, PROT_READ | PROT_WRITE) == 0);
    code[1] = 43;
    CHECK(mprotect(code, PAGE, PROT_READ | PROT_EXEC) == 0);
    CHECK(function() == 43);
    /* A system call from code that was made at run time. */
    unsigned char *call = (unsigned char *)anonymous(PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
    memcpy(call, "\xb8\x27\x00\x00\x00\x0f\x05\xc3", 8);
    CHECK(((int (*)(void))(uintptr_t)call)() == getpid());
    puts("execution");
}

static void vectors(void) {
    char path[] = "/tmp/vectors-XXXXXX", first[4] = "", second[8] = "";
    int file = mkstemp(path);
    struct iovec out[3] = {{"ab", 2}, {"", 0}, {"cdef", 4}}, in[2] = {{first, 3}, {second, 7}};
    CHECK(writev(file, out, 3) == 6);
    CHECK(preadv(file, in, 2, 0) == 6 && !strcmp(first, "abc") && !strcmp(second, "def"));
    struct iovec bad[2] = {{"x", 1}, {(void *)0x10, 1}};
    CHECK(writev(file, bad, 2) == 1);
    CHECK(writev(file, bad, 1025) == -1 && errno == EINVAL);
    unlink(path);
}

static void seals(void) {
    int file = memfd_create("sealed", MFD_ALLOW_SEALING);
    CHECK(file >= 0 && ftruncate(file, 2 * PAGE) == 0);
    char *shared = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    char *private = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    FAILS(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW), EBUSY);
    CHECK(fcntl(file, F_GET_SEALS) == 0);
    CHECK(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) == 0 && munmap(shared, PAGE) == 0);
    CHECK(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE) == 0 && fcntl(file, F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_WRITE));
    private[0] = 1;
    FAILS(write(file, "x", 1), EPERM);
    FAILS(ftruncate(file, PAGE), EPERM);
    FAILS(mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), EPERM);
    CHECK(fcntl(file, F_ADD_SEALS, F_SEAL_SEAL) == 0);
    FAILS(fcntl(file, F_ADD_SEALS, F_SEAL_GROW), EPERM);
    close(file), munmap(private, PAGE);
}

int main(void) {
    setvbuf(stdout, 0, _IONBF, 0);
    errors(), puts("errors");
    against_table(), puts("table");
    remap(), puts("remap");
    files(), puts("files");
    seals(), puts("seals");
    breaks(), puts("breaks");
    vectors(), puts("vectors");
    execution();
    return 0;
}
