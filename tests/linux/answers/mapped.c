// Mapped files that change under their mappings, and what mapping and its kin refuse.
#include "answers.h"
#include <setjmp.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

static sigjmp_buf back;
static void on_fault(int number, siginfo_t *info, void *unused) { siglongjmp(back, number * 100 + info->si_code); }
// What reading (or storing) a byte gives: the byte, or minus signal and code.
static int look(volatile char *at) {
    int caught = sigsetjmp(back, 1);
    return caught ? -caught : (unsigned char)*at;
}
static int store(volatile char *at, char byte) {
    int caught = sigsetjmp(back, 1);
    if (caught)
        return -caught;
    *at = byte;
    return 0;
}
static int sized(const char *name, int pages, char byte) {
    int fd = open(name, O_CREAT | O_TRUNC | O_RDWR, 0600);
    char page[4096];
    memset(page, byte, sizeof page);
    for (int i = 0; i < pages; i++)
        write(fd, page, sizeof page);
    return fd;
}

static void cut(const char *kind, int fd) {
    printf("-- %s\n", kind);
    char *shared = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *private = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    char *clean = mmap(NULL, 4 * 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    char *moved = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (int i = 0; i < 4; i++)
        look(shared + i * 4096), look(private + i * 4096), look(clean + i * 4096), look(moved + i * 4096);
    T(store(private + 3 * 4096, 'p')), T(store(shared + 2 * 4096 + 10, 's'));
    char *far = mmap(NULL, 8 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    moved = mremap(moved, 4 * 4096, 4 * 4096, MREMAP_MAYMOVE | MREMAP_FIXED, far);
    T(ftruncate(fd, 4096 + 100));
    T(look(shared)), T(look(shared + 4096)), T(look(shared + 4096 + 99)), T(look(shared + 4096 + 100));
    T(look(shared + 2 * 4096)), T(look(shared + 3 * 4096)), T(store(shared + 2 * 4096, 'x'));
    T(look(private + 4096 + 100)), T(look(private + 2 * 4096)), T(look(private + 3 * 4096)), T(store(private + 3 * 4096, 'y'));
    T(look(clean + 4096)), T(look(clean + 4096 + 100)), T(look(clean + 2 * 4096)), T(look(moved + 4096));
    T(look(moved + 4096 + 101)), T(look(moved + 3 * 4096));
    T(write(open("/dev/null", O_WRONLY), shared + 3 * 4096, 10)), T(pwrite(fd, moved + 3 * 4096, 1, 0));
    T(store(shared + 4096 + 200, 't')), T(look(shared + 4096 + 200));
    T(ftruncate(fd, 4 * 4096));
    T(look(shared + 4096 + 99)), T(look(shared + 4096 + 100)), T(look(shared + 4096 + 200)), T(look(shared + 2 * 4096 + 10));
    T(look(shared + 3 * 4096)), T(look(moved + 3 * 4096)), T(look(private + 2 * 4096)), T(look(clean + 3 * 4096));
    T(store(shared + 2 * 4096, 'n')), T(look(moved + 2 * 4096)), T(look(clean + 2 * 4096));
    char byte = 0;
    T(pread(fd, &byte, 1, 2 * 4096)), T(byte), T(pread(fd, &byte, 1, 4096 + 200)), T(byte);
    T(ftruncate(fd, 0)), T(look(shared)), T(look(moved)), T(look(private)), T(store(shared, 1));
    T(ftruncate(fd, 1)), T(look(shared)), T(look(shared + 4095)), T(look(shared + 4096));
    T(munmap(shared, 4 * 4096)), T(munmap(private, 4 * 4096)), T(munmap(clean, 4 * 4096)), T(munmap(far, 8 * 4096));
    close(fd);
}
static void holes(void) {
    int fd = sized("holes", 4, 'h');
    char *shared = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    look(shared + 4096);
    T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096)), T(look(shared + 4096)), T(look(shared));
    T(store(shared + 4096, 'z'));
    char byte = 0;
    T(pread(fd, &byte, 1, 4096)), T(byte), T(madvise(shared + 4096, 4096, MADV_REMOVE)), T(look(shared + 4096));
    T(pread(fd, &byte, 1, 4096)), T(byte);
    int again = open("holes", O_RDWR | O_TRUNC);
    T(look(shared)), T(ftruncate(again, 4096)), T(look(shared)), T(store(shared, 'q')), T(pread(fd, &byte, 1, 0)), T(byte);
    CHILD("a child sees it too", {
        T(look(shared)), T(ftruncate(fd, 0)), T(look(shared));
    });
    T(look(shared));
}

static int copy_self(const char *to) {
    int in = open("/proc/self/exe", O_RDONLY), out = open(to, O_CREAT | O_TRUNC | O_WRONLY, 0755);
    char bytes[65536];
    for (ssize_t count; (count = read(in, bytes, sizeof bytes)) > 0;)
        write(out, bytes, count);
    close(in), close(out);
    return 0;
}
static void busy_text(void) {
    copy_self("program");
    int out = open("program", O_WRONLY);
    char *const words[] = {"program", "sleep", NULL};
    CHILD("executing what is written", T(execv("./program", words)));
    close(out);
    int line[2];
    pipe(line);
    pid_t child = fork();
    if (child == 0) {
        dup2(line[0], 0), close(line[1]);
        execv("./program", words);
        _exit(9);
    }
    close(line[0]);
    pause_ms(100);
    W(open("program", O_WRONLY)), W(open("program", O_RDWR)), W(open("program", O_RDWR | O_TRUNC)), W(truncate("program", 0));
    W(open("program", O_RDONLY)), T(access("program", W_OK)), T(chmod("program", 0700)), T(rename("program", "renamed"));
    W(open("renamed", O_WRONLY | O_APPEND)), T(unlink("renamed"));
    char at[64];
    sprintf(at, "/proc/%d/exe", child);
    W(open(at, O_WRONLY));
    close(line[1]);
    int status;
    waitpid(child, &status, 0);
    T(status);
    copy_self("after");
    W(open("after", O_WRONLY));
    CHILD("and executing it then", { int fd = open("after", O_RDWR | O_CLOEXEC); T(execv("./after", words)); T(ftruncate(fd, 0)); });
}

static void refusals(void) {
    int fd = sized("plain", 2, 'a'), read_only = open("plain", O_RDONLY), write_only = open("plain", O_WRONLY), line[2];
    pipe(line);
#define MAP(length, prot, flags, fd, offset) (mmap(NULL, length, prot, flags, fd, offset) == MAP_FAILED ? -1 : 0)
    T(MAP(0, 1, MAP_PRIVATE, fd, 0)), T(MAP(4096, 1, 0, fd, 0)), T(MAP(4096, 1, MAP_PRIVATE, fd, 1)), T(MAP(4096, 1, MAP_PRIVATE, 99, 0));
    T(MAP(4096, 3, MAP_SHARED, read_only, 0)), T(MAP(4096, 3, MAP_PRIVATE, read_only, 0)), T(MAP(4096, 1, MAP_SHARED, write_only, 0));
    T(MAP(4096, 2, MAP_SHARED, write_only, 0)), T(MAP(4096, 1, MAP_SHARED, line[0], 0)), T(MAP(4096, 1, MAP_PRIVATE, open("/", O_RDONLY), 0));
    T(MAP(1ul << 47, 1, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)), T(MAP(-1ul, 1, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    T(MAP(4096, 1, MAP_PRIVATE, fd, -4096)), T(MAP(8192, 1, MAP_SHARED, fd, 0x7ffffffffffff000)), T(MAP(4096, 1, MAP_SHARED, fd, 0x7fffffffffffe000));
    T(MAP(4096, 1, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0x7ffffffffffff000)), T(MAP(4096, 1, MAP_PRIVATE | MAP_ANONYMOUS, 99, 0));
    T(MAP(4096, 1, MAP_SHARED_VALIDATE, fd, 0)), T(MAP(4096, 1, 4, fd, 0));
    T(MAP(4096, 1, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0));
    T(mmap((void *)1, 4096, 1, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED ? -1 : 0);
    T(mmap((void *)(1ul << 47), 4096, 1, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED ? -1 : 0);
    char *at = mmap(NULL, 4 * 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    T(mmap(at, 4096, 1, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED ? -1 : 0);
    T(munmap(at + 1, 4096)), T(munmap(at, 0)), T(munmap((void *)(1ul << 47), 4096)), T(munmap(at, -4096ul)), T(mprotect(at + 1, 1, 1));
    T(mprotect(at, 0, 1)), T(mprotect(at, 4096, 99)), T(mprotect((void *)4096, 4096, 1)), T(mprotect(mmap(0, 4096, 1, MAP_SHARED, read_only, 0), 4096, 3));
    T(munmap(at + 4096, 4096)), T(mprotect(at, 4 * 4096, 1)), T(msync(at, 4 * 4096, MS_SYNC)), T(msync(at + 1, 1, MS_SYNC)), T(msync(at, 4096, MS_SYNC | MS_ASYNC));
    T(madvise(at, 4 * 4096, MADV_DONTNEED)), T(madvise(at + 1, 1, 0)), T(madvise(at, 4096, 999)), T(madvise(at, -1ul, 0)), T(madvise(at, 0, 4));
    unsigned char state[8];
    T(mincore(at, 4 * 4096, state)), T(mincore(at + 1, 1, state)), T(mincore(at, 4096, (void *)8)), T(mincore(at, 0, state));
    T(mlock(at, 4 * 4096)), T(mlock((void *)(1ul << 50), 4096)), T(munlock(at + 4096, 4096)), T(mlockall(0)), T(mlockall(64)), T(mlock2(at, 4096, 2));
    T(mremap(at + 1, 4096, 4096, 0) == MAP_FAILED ? -1 : 0), T(mremap(at, 4096, 0, 0) == MAP_FAILED ? -1 : 0), T(mremap(at, 4096, 8192, 99) == MAP_FAILED ? -1 : 0);
    T(mremap(at + 4096, 4096, 8192, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0), T(mremap(at, 3 * 4096, 5 * 4096, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0);
    T(mremap(at, 4096, 4096, MREMAP_FIXED | MREMAP_MAYMOVE, at) == MAP_FAILED ? -1 : 0);
    T(mremap(at, 0, 4096, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0);
    T(syscall(SYS_brk, 0) > 0);
}

static void offsets(void) {
    int fd = sized("numbers", 1, 'n'), line[2], folder = open(".", O_RDONLY);
    char bytes[16];
    pipe(line);
    T(pread(fd, bytes, 1, -1)), T(pwrite(fd, bytes, 1, -1)), T(lseek(fd, -1, SEEK_SET)), T(lseek(fd, 0, 99)), T(lseek(line[0], 0, SEEK_CUR));
    T(lseek(fd, 5000, SEEK_DATA));
    T(lseek(fd, 5000, SEEK_HOLE)), T(lseek(fd, 0, SEEK_HOLE)), T(pread(line[0], bytes, 1, 0)), T(pwrite(line[1], bytes, 1, 0)), T(pread(folder, bytes, 1, 0));
    T(read(folder, bytes, 1)), T(write(folder, bytes, 1)), T(ftruncate(fd, -1)), T(truncate("numbers", -1)), T(ftruncate(folder, 0)), T(ftruncate(line[1], 0));
    T(ftruncate(open("numbers", O_RDONLY), 0)), T(truncate(".", 0)), T(truncate("nothing", 0)), T(truncate("numbers/x", 0)), T(truncate("", 0));
    T(pread(fd, (void *)8, 10, 0)), T(read(99, bytes, 1)), T(write(fd, (void *)8, 10)), T(pwrite(fd, (void *)8, 0, 0)), T(write(fd, NULL, 0));
    T(read(fd, bytes, -1)), T(fallocate(fd, 0, -1, 1)), T(fallocate(fd, 0, 0, 0));
    T(fallocate(fd, 0, 0x7fffffffffffffff, 1)), T(fallocate(fd, 0x80, 0, 1)), T(fallocate(line[1], 0, 0, 1)), T(fallocate(folder, 0, 0, 1)), T(fallocate(open("numbers", O_RDONLY), 0, 0, 1));
    T(posix_fadvise(fd, 0, 0, 99)), T(posix_fadvise(line[0], 0, 0, 0)), T(posix_fadvise(99, 0, 0, 0)), T(readahead(line[0], 0, 1)), T(readahead(fd, 0, 1)), T(readahead(open("numbers", O_WRONLY), 0, 1));
    struct iovec parts[2] = {{bytes, 8}, {bytes, -1ul}};
    T(readv(fd, parts, -1)), T(readv(fd, parts, 1025)), T(readv(fd, parts, 2)), T(writev(fd, parts, 2)), T(readv(fd, (void *)8, 1)), T(writev(fd, parts, 0)), T(preadv(fd, parts, 1, -1));
    T(pwritev2(fd, parts, 1, -2, 0)), T(preadv2(fd, parts, 1, 0, 0x8000)), T(preadv2(fd, parts, 1, -1, 0)), T(preadv(line[0], parts, 1, 0));
    off_t at = -1;
    T(sendfile(line[1], fd, &at, 1)), T(sendfile(fd, line[0], NULL, 1)), T(sendfile(99, fd, NULL, 1)), T(sendfile(line[1], folder, NULL, 1)), T(sendfile(line[1], fd, (void *)8, 1));
    T(copy_file_range(fd, NULL, fd, NULL, 10, 1)), T(copy_file_range(fd, NULL, line[1], NULL, 1, 0)), T(copy_file_range(folder, NULL, fd, NULL, 1, 0)), T(copy_file_range(fd, NULL, open("numbers", O_WRONLY | O_APPEND), NULL, 1, 0));
    at = 0;
    off_t to = 2;
    T(copy_file_range(fd, &at, fd, &to, 10, 0)), T(sync_file_range(fd, -1, 1, 0)), T(sync_file_range(fd, 0, 1, 99)), T(sync_file_range(line[0], 0, 1, 0)), T(sync_file_range(fd, 0, -1, 0));
    T(fsync(line[0])), T(fdatasync(99)), T(syncfs(99)), T(syncfs(fd)), T(fsync(folder)), T(getdents64(fd, bytes, 16)), T(getdents64(folder, bytes, 1)), T(getdents64(folder, (void *)8, 4096));
    T(dup2(99, 5)), T(dup2(fd, -1)), T(dup3(fd, fd, 0)), T(dup3(fd, 9, 1)), T(dup2(fd, 100000000)), T(fcntl(fd, F_DUPFD, -1)), T(fcntl(fd, F_DUPFD, 100000000)), T(fcntl(fd, 9999, 0));
    T(fcntl(99, F_GETFD)), T(fcntl(fd, F_SETPIPE_SZ, 4096)), T(fcntl(line[0], F_SETPIPE_SZ, 0)), T(fcntl(line[0], F_SETPIPE_SZ, -1)), T(fcntl(line[0], F_SETPIPE_SZ, 1)), T(fcntl(line[0], F_GETPIPE_SZ));
    T(close_range(5, 4, 0)), T(close_range(5, 6, 99)), T(ioctl(fd, 0x9999, 0)), T(ioctl(99, FIONREAD, 0)), T(ioctl(fd, FIONREAD, 8)), T(ioctl(line[0], FIONREAD, 8)), T(flock(99, LOCK_SH));
    T(pipe((void *)8)), T(pipe2(line, 99)), T(syscall(SYS_memfd_create, "x", 999)), T(syscall(SYS_eventfd2, 0, 999)), T(umask(-1) & 0), T(umask(022));
}

static void zeros(void) {
    int fd = open("/dev/zero", O_RDWR);
    char *shared = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    IS(shared != MAP_FAILED);
    if (shared != MAP_FAILED) {
        T(look(shared));
        CHILD("a child stores", { T(store(shared, 'c')); });
        T(look(shared)), T(look(shared + 4096));
        char *other = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
        T(look(other)), T(msync(shared, 4096, MS_SYNC)), T(munmap(shared, 2 * 4096));
    }
    char *private = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 4096);
    T(store(private, 'x')), T(look(private));
    IS(mmap(NULL, 4096, PROT_READ, MAP_SHARED, open("/dev/null", O_RDWR), 0) == MAP_FAILED);
    IS(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, open("/dev/zero", O_RDONLY), 0) == MAP_FAILED);
    for (int i = 0; i < 3; i++) {
        void *low = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
        IS(low != MAP_FAILED && (uintptr_t)low + 65536 <= 0x80000000);
        T(store(low, 1));
    }
    IS(mmap((void *)0x700000000000, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0) < (void *)0x80000000);
}

static void locked(void) {
    setresgid(1000, 1000, 1000), setresuid(1000, 1000, 1000);
    char *at = mmap(NULL, 32 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    T(setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){8 * 4096, 8 * 4096}));
    T(mlock(at, 8 * 4096)), T(mlock(at, 8 * 4096)), T(mlock(at + 8 * 4096, 4096)), T(munlock(at, 4096)), T(mlock(at + 8 * 4096, 4096));
    T(mlock(at, 9 * 4096)), T(mlockall(MCL_CURRENT)), T(MAP(4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0)), T(mlock2(at + 10 * 4096, 4096, 1));
    T(munlockall()), T(mlockall(MCL_CURRENT)), T(mlockall(MCL_FUTURE)), T(MAP(64 * 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)), T(munlockall());
    T(mlock(at, 9 * 4096)), T(setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){0, 0})), T(mlock(at, 1)), T(mlockall(MCL_CURRENT)), T(mlock(at, 0));
    T(MAP(4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0));
}

PROGRAM(mapped) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &action, NULL), sigaction(SIGBUS, &action, NULL);
    cut("a file", sized("file", 4, 'f'));
    int memory = memfd_create("memory", 0);
    char page[4096];
    memset(page, 'm', sizeof page);
    for (int i = 0; i < 4; i++)
        write(memory, page, sizeof page);
    cut("memory", memory);
    holes();
    CHILD("busy text", busy_text());
    CHILD("refusals", refusals());
    CHILD("offsets", offsets());
    zeros();
    CHILD("locked", locked());
}
