// Bytes of files: reads, writes, vectors, positions, large offsets, limits of size; what is refused and in which order.
#include "files.h"

static char text[70000];
static struct iovec one(void *at, size_t count) { return (struct iovec){at, count}; }

PROGRAM(bytes_read) {
    put("f", "0123456789");
    int fd = open("f", O_RDONLY), w = open("f", O_WRONLY);
    char *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page + 4096, 4096);
    T(read(fd, text, 4)), T(read(fd, text, 0)), T(read(fd, text, 100)), T(read(fd, text, 100)), T(read(fd, (void *)8, 0)), T(read(fd, (void *)8, 1)), lseek(fd, 0, SEEK_SET), T(read(fd, (void *)8, 1)), T(lseek(fd, 0, SEEK_CUR)), T(read(fd, page + 4090, 10)), T(lseek(fd, 0, SEEK_CUR)), lseek(fd, 0, SEEK_SET), T(read(fd, page + 4096, 10)), T(read(fd, text, -1)), T(read(fd, text, SSIZE_MAX)), T(lseek(fd, 0, SEEK_CUR));
    T(read(w, text, 1)), T(read(w, (void *)8, 0)), T(read(99, text, 0)), T(read(99, (void *)8, 1)), T(pread(fd, text, 5, 8)), T(pread(fd, text, 5, 10)), T(pread(fd, text, 5, -1)), T(pread(fd, text, 5, LLONG_MAX)), T(pread(fd, text, 0, -1)), T(pread(w, text, 5, 0)), T(pread(w, text, 5, -1)), T(pread(99, text, 5, -1)), T(pread(fd, text, -1, 0)), T(pread(fd, text, SSIZE_MAX, 1)), T(pread(fd, text, 5, LLONG_MAX - 2)), T(pread(fd, (void *)8, 5, 100)), T(pread(fd, (void *)-1, 5, 0));
    T(read(fd, (void *)0xffff800000000000, 1)), T(read(fd, (void *)0x7ffffffff000, 1)), T(pread(fd, (void *)0x7fffffffefff, 0, 0)), T(pread(fd, (void *)0x800000000000, 0, 0)), T(pread(fd, (void *)0xffff800000000000, 0, 0)), T(lseek(fd, 20, SEEK_SET)), T(read(fd, text, 5)), T(lseek(fd, 0, SEEK_CUR));
}
PROGRAM(bytes_write) {
    put("f", "0123456789");
    int fd = open("f", O_RDWR), r = open("f", O_RDONLY), a = open("f", O_WRONLY | O_APPEND);
    char *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page + 4096, 4096), memset(page, 'p', 4096);
    T(write(fd, "ab", 2)), T(lseek(fd, 0, SEEK_CUR)), IS(holds("f", "ab23456789")), T(write(fd, (void *)8, 0)), T(write(fd, (void *)8, 1)), T(lseek(fd, 0, SEEK_CUR)), T(write(r, "x", 1)), T(write(r, "x", 0)), T(write(99, "x", 1)), T(write(fd, page + 4096, 1)), T(pwrite(fd, "zz", 2, 12)), T(length("f")), T(pread(fd, text, 20, 0)), T(text[10]), T(pwrite(fd, "x", 1, -1)), T(pwrite(fd, "x", 0, -1)), T(pwrite(r, "x", 1, 0)), T(pwrite(99, "x", 1, 0)), T(lseek(fd, 0, SEEK_CUR));
    T(write(a, "end", 3)), T(lseek(a, 0, SEEK_CUR)), T(lseek(a, 0, SEEK_SET)), T(write(a, "!", 1)), T(lseek(a, 0, SEEK_CUR)), T(pwrite(a, "at0", 3, 0)), T(length("f")), T(pread(fd, text, 3, 0)), IS(memcmp(text, "ab2", 3) == 0), T(lseek(a, 0, SEEK_CUR)), T(fcntl(a, F_SETFL, 0)), T(pwrite(a, "at0", 3, 0)), IS(pread(fd, text, 3, 0) == 3 && memcmp(text, "at0", 3) == 0), T(fcntl(fd, F_SETFL, O_APPEND)), lseek(fd, 0, SEEK_SET), T(write(fd, "x", 1)), T(lseek(fd, 0, SEEK_CUR)), T(read(fd, text, 4)), T(write(a, "", 0)), T(lseek(fd, 1 << 20, SEEK_SET)), T(write(fd, "", 0)), T(length("f"));
    T(write(fd, page + 4090, 10)), T(length("f")), T(pwrite(r, (void *)8, 5, 0)), T(write(fd, (void *)-1, 5)), T(write(fd, text, -1)), T(write(fd, (void *)0xffff800000000000, 0));
}
PROGRAM(bytes_vectors) {
    put("f", "0123456789");
    int fd = open("f", O_RDWR);
    static struct iovec many[1100];
    struct iovec v[4] = {one(text, 3), one(text + 10, 0), one(text + 20, 4), one(text + 30, 50)};
    T(readv(fd, v, 4)), T(readv(fd, v, 4)), lseek(fd, 0, SEEK_SET), T(readv(fd, v, 0)), T(readv(fd, v, -1)), T(readv(fd, v, 1025)), T(readv(fd, many, 1024)), T(readv(fd, (void *)8, 1)), T(readv(fd, (void *)8, 0)), T(readv(99, v, 0)), T(readv(99, v, -1)), T(writev(fd, v, 0)), T(writev(99, v, 0)), T(writev(fd, v, 1025));
    v[1] = one((void *)8, 5), T(readv(fd, v, 3)), T(lseek(fd, 0, SEEK_CUR)), v[0] = one((void *)8, 5), T(readv(fd, v, 3)), v[0] = one(text, 3), v[1] = one(text, -1), T(readv(fd, v, 2)), v[1] = one(text, SSIZE_MAX), T(readv(fd, v, 2)), v[1] = one((void *)8, 0), lseek(fd, 0, SEEK_SET), T(readv(fd, v, 3)), v[1] = one((void *)-1, 0), T(readv(fd, v, 2)), v[1] = one((void *)0xffff800000000000, 4), T(readv(fd, v, 2)), v[0] = one(text, SSIZE_MAX), v[1] = one(text, SSIZE_MAX), lseek(fd, 0, SEEK_SET), T(preadv(fd, v, 2, 0));
    v[0] = one("ab", 2), v[1] = one("cd", 2), T(pwritev(fd, v, 2, 20)), T(length("f")), T(pwritev(fd, v, 2, -1)), T(preadv(fd, v, 0, -1)), T(preadv(99, v, 1, 0)), T(pwritev(fd, v, 0, 0)), v[0] = one((void *)8, 2), T(pwritev(fd, v, 2, 0)), v[0] = one("ab", 2), v[1] = one((void *)8, 3), T(pwritev(fd, v, 2, 0)), T(writev(fd, v, 2)), T(length("f")), T(lseek(fd, 0, SEEK_CUR));
    int p[2];
    pipe(p), v[0] = one("ab", 2), v[1] = one("cd", 2), T(writev(p[1], v, 2)), v[0] = one(text, 1), v[1] = one(text + 1, 9), T(readv(p[0], v, 2)), T(preadv(p[0], v, 2, 0)), T(pwritev(p[1], v, 2, 0)), T(readv(p[1], v, 1)), T(writev(p[0], v, 1)), T(readv(p[0], v, 0)), T(writev(p[0], v, 0));
}
PROGRAM(bytes_vectors_flags) {
    put("f", "0123456789");
    int fd = open("f", O_RDWR), p[2];
    struct iovec v[2] = {one(text, 3), one(text + 10, 3)}, w[1] = {one("ab", 2)};
    T(preadv2(fd, v, 2, 0, 0)), T(preadv2(fd, v, 2, -1, 0)), T(lseek(fd, 0, SEEK_CUR)), T(preadv2(fd, v, 2, -1, 0)), T(preadv2(fd, v, 2, -2, 0)), T(preadv2(fd, v, 2, 0, RWF_HIPRI)), T(preadv2(fd, v, 2, 0, RWF_DSYNC)), T(preadv2(fd, v, 2, 0, RWF_SYNC)), T(preadv2(fd, v, 2, 0, 0x1000)), T(pwritev2(fd, w, 1, 0, RWF_SYNC)), T(pwritev2(fd, w, 1, 0, RWF_DSYNC)), T(pwritev2(fd, w, 1, -1, 0)), T(lseek(fd, 0, SEEK_CUR)), T(pwritev2(fd, w, 1, 0, RWF_APPEND)), T(length("f")), T(pwritev2(fd, w, 1, -1, RWF_APPEND)), T(length("f")), T(lseek(fd, 0, SEEK_CUR)), T(pwritev2(fd, w, 1, 0, 0x1000)), T(preadv2(fd, v, 2, 0, RWF_APPEND));
    pipe(p), T(preadv2(p[0], v, 1, -1, RWF_NOWAIT)), T(preadv2(p[0], v, 1, 0, 0)), T(pwritev2(p[1], w, 1, -1, 0)), T(pwritev2(p[1], w, 1, 0, 0)), T(preadv2(p[0], v, 1, -1, RWF_NOWAIT)), T(pwritev2(p[1], w, 1, -1, RWF_NOWAIT)), T(pwritev2(p[1], w, 1, -1, RWF_APPEND)), T(preadv2(99, v, 1, -1, 0)), T(preadv2(fd, v, 1025, -1, 0)), T(preadv2(fd, (void *)8, 1, -1, 0)), fd = open("f", O_RDONLY | O_APPEND), T(preadv2(fd, v, 2, -1, 0)), T(pwritev2(fd, w, 1, 0, 0));
    fd = open("f", O_WRONLY | O_APPEND), T(pwritev2(fd, w, 1, 0, 0x20)), T(length("f")), T(pwritev2(fd, w, 1, 0, 0x20 | RWF_APPEND));
}
PROGRAM(bytes_positions) {
    put("f", "0123456789"), truncate("f", 1 << 20), mkdir("d", 0755);
    int fd = open("f", O_RDWR), p[2];
    pwrite(fd, "data", 4, 300000);
    T(lseek(fd, 5, SEEK_SET)), T(lseek(fd, -2, SEEK_CUR)), T(lseek(fd, -4, SEEK_CUR)), T(lseek(fd, 0, SEEK_CUR)), T(lseek(fd, 3, SEEK_END)), T(lseek(fd, -(1 << 20) - 1, SEEK_END)), T(lseek(fd, -(1 << 20), SEEK_END)), T(lseek(fd, 0, 5)), T(lseek(fd, 0, -1)), T(lseek(fd, 0, 99)), T(lseek(fd, LLONG_MAX, SEEK_SET)), T(lseek(fd, 1, SEEK_CUR)), T(lseek(fd, LLONG_MAX, SEEK_CUR)), T(lseek(fd, LLONG_MAX, SEEK_END)), T(lseek(fd, LLONG_MIN, SEEK_SET)), T(lseek(fd, 0, SEEK_SET));
    T(lseek(fd, 0, SEEK_DATA)), T(lseek(fd, 0, SEEK_HOLE)), T(lseek(fd, 4096, SEEK_DATA)), T(lseek(fd, 4096, SEEK_HOLE)), T(lseek(fd, 300000, SEEK_DATA)), T(lseek(fd, 300000, SEEK_HOLE)), T(lseek(fd, 303104, SEEK_DATA)), T(lseek(fd, 500000, SEEK_DATA)), T(lseek(fd, 500000, SEEK_HOLE)), T(lseek(fd, 1 << 20, SEEK_DATA)), T(lseek(fd, 1 << 20, SEEK_HOLE)), T(lseek(fd, -1, SEEK_DATA)), T(lseek(fd, -1, SEEK_HOLE)), T(lseek(fd, (1 << 20) - 1, SEEK_HOLE)), T(lseek(fd, 2 << 20, SEEK_DATA)), T(lseek(fd, 0, SEEK_CUR));
    int e = open("e", O_CREAT | O_RDWR, 0600);
    T(lseek(e, 0, SEEK_DATA)), T(lseek(e, 0, SEEK_HOLE)), T(lseek(e, 1, SEEK_HOLE)), pipe(p), T(lseek(p[0], 0, SEEK_SET)), T(lseek(p[0], 0, SEEK_CUR)), T(lseek(99, 0, SEEK_SET)), T(lseek(open("/dev/null", O_RDWR), 100, SEEK_SET)), T(lseek(open("/dev/zero", O_RDONLY), -5, SEEK_END)), T(lseek(socket(AF_UNIX, SOCK_STREAM, 0), 0, SEEK_CUR)), T(lseek(open("/proc/self/status", O_RDONLY), 10, SEEK_SET)), T(lseek(open("/proc/self/status", O_RDONLY), 0, SEEK_END)), T(lseek(open("d", O_RDONLY), 0, SEEK_END) == -1), T(lseek(open("d", O_RDONLY), 100, SEEK_SET)), T(lseek(open("/proc/self/maps", O_RDONLY), -1, SEEK_SET));
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), T(lseek(fd, 0, SEEK_DATA)), T(lseek(fd, 0, SEEK_HOLE));
}
PROGRAM(bytes_far) {
    int fd = open("f", O_CREAT | O_RDWR, 0600);
    struct stat s;
    T(pwrite(fd, "x", 1, (1l << 31) - 1)), T(length("f")), T(pwrite(fd, "y", 1, 1l << 31)), T(pwrite(fd, "z", 1, 1l << 32)), T(length("f")), T(pread(fd, text, 10, (1l << 31) - 1)), T(text[0]), T(text[1]), T(text[2]), T(pwrite(fd, "w", 1, 1l << 40)), T(length("f")), T(lseek(fd, 1l << 33, SEEK_DATA)), T(lseek(fd, 0, SEEK_DATA)), T(about("f").st_blocks), T(pread(fd, text, 10, 1l << 40)), T(ftruncate(fd, 1l << 31)), T(about("f").st_blocks), T(pread(fd, text, 4, (1l << 31) - 2));
    T(ftruncate(fd, LLONG_MAX)), T(length("f")), T(pread(fd, text, 5, LLONG_MAX - 1)), T(pwrite(fd, "end", 3, LLONG_MAX - 1)), T(pwrite(fd, "end", 3, LLONG_MAX)), T(pwrite(fd, "end", 3, LLONG_MAX - 3)), T(pwrite(fd, "end", 3, LLONG_MAX - 2)), T(length("f")), T(lseek(fd, 0, SEEK_END)), T(write(fd, "x", 1)), T(ftruncate(fd, -1)), T(ftruncate(fd, 0)), T(truncate("f", LLONG_MIN)), T(lseek(fd, LLONG_MAX - 1, SEEK_SET)), T(lseek(fd, 1, SEEK_CUR)), T(lseek(fd, 1, SEEK_CUR));
    int a = open("f", O_WRONLY | O_APPEND);
    ftruncate(fd, LLONG_MAX), T(write(a, "x", 1)), ftruncate(fd, 0), T(fallocate(fd, 0, LLONG_MAX, 1)), T(fallocate(fd, 0, LLONG_MAX - 1, 1) == 0), T(fallocate(fd, 0, 1, LLONG_MAX)), T(length("f"));
    W(mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 1l << 45) == MAP_FAILED ? -1 : 0), W(mmap(0, 4096, PROT_READ, MAP_SHARED, fd, LLONG_MAX - 4095) == MAP_FAILED ? -1 : 0), W(mmap(0, 8192, PROT_READ, MAP_SHARED, fd, 0xfffffffffffff000) == MAP_FAILED ? -1 : 0), T(posix_fadvise(fd, 0, -1, POSIX_FADV_NORMAL)), T(posix_fadvise(fd, -1, 5, POSIX_FADV_NORMAL)), T(posix_fadvise(fd, 0, 0, 99)), T(posix_fadvise(99, 0, 0, 0)), T(readahead(fd, 0, 100)), T(readahead(99, 0, 100)), pipe((int *)text), T(posix_fadvise(*(int *)text, 0, 0, 0)), T(readahead(*(int *)text, 0, 10));
}
static void over(int number) { write(1, "over\n", 5); }
PROGRAM(bytes_limit) {
    struct rlimit limit = {10000, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
    CHILD("beyond", int fd = open("f", O_CREAT | O_RDWR, 0600); T(write(fd, text, 20000)), T(write(fd, text, 1)));
    signal(SIGXFSZ, over);
    int fd = open("g", O_CREAT | O_RDWR, 0600), e = open("h", O_CREAT | O_RDWR | O_APPEND, 0600), p[2];
    T(write(fd, text, 9999)), T(write(fd, text, 10)), T(write(fd, text, 1)), T(length("g")), T(pwrite(fd, text, 5, 9998)), T(pwrite(fd, text, 5, 10000)), T(pwrite(fd, text, 0, 20000)), T(pwrite(fd, text, 5, 1 << 20)), T(ftruncate(fd, 10000)), T(ftruncate(fd, 10001)), T(truncate("g", 1 << 20)), T(fallocate(fd, 0, 0, 10001)), T(fallocate(fd, 0, 0, 10000)), T(posix_fallocate(fd, 0, 20000)), T(length("g"));
    T(write(e, text, 20000)), T(write(e, text, 1)), signal(SIGXFSZ, SIG_IGN), T(write(e, text, 1)), T(ftruncate(e, 20000)), pipe(p), T(write(p[1], text, 20000)), T(write(open("/dev/null", O_WRONLY), text, 20000)), T(mkdir("d", 0700)), T(symlink("x", "s")), W(memfd_create("m", 0)), T(ftruncate(memfd_create("m", 0), 20000)), lseek(fd, 0, SEEK_SET), T(sendfile(e, fd, NULL, 100)), T(ftruncate(e, 9000)), T(copy_file_range(fd, &(off_t){0}, e, &(off_t){9000}, 5000, 0)), T(length("h")), T(splice(p[0], NULL, e, &(off_t){0}, 10, 0) == -1), fcntl(e, F_SETFL, 0), T(splice(p[0], NULL, e, &(off_t){9999}, 10, 0)), T(splice(p[0], NULL, e, &(off_t){10000}, 10, 0)), T(length("h"));
    limit.rlim_cur = 20000, setrlimit(RLIMIT_FSIZE, &limit), T(ftruncate(fd, 15000)), limit.rlim_cur = 0, setrlimit(RLIMIT_FSIZE, &limit), T(ftruncate(fd, 100)), T(write(fd, text, 1)), T(pwrite(fd, text, 1, 0)), T(ftruncate(fd, 101)), T(ftruncate(fd, 0)), W(open("new", O_CREAT | O_RDWR, 0600));
}
PROGRAM(bytes_special) {
    int null = open("/dev/null", O_RDWR), zero = open("/dev/zero", O_RDWR), full = open("/dev/full", O_RDWR), random = open("/dev/urandom", O_RDWR);
    struct stat s;
    memset(text, 7, sizeof text), T(read(null, text, 10)), T(write(null, text, 10)), T(pread(null, text, 10, 5)), T(pwrite(null, text, 10, 1l << 50)), T(lseek(null, 0, SEEK_END)), T(lseek(null, 50, SEEK_SET)), T(write(null, (void *)8, 10)), T(ftruncate(null, 5)), T(fallocate(null, 0, 0, 5)), T(fsync(null)), T(ioctl(null, FIONREAD, text)), T(read(zero, text, 10)), T(text[0]), T(text[9]), T(write(zero, text, 10)), T(pread(zero, text, 10, 1l << 60)), T(read(zero, (void *)8, 10)), T(read(zero, text, 0)), T(lseek(zero, 70, SEEK_SET)), T(fsync(zero));
    T(read(full, text, 5)), T(write(full, text, 5)), T(write(full, text, 0)), T(pwrite(full, text, 5, 0)), T(write(full, (void *)8, 5)), T(lseek(full, 0, SEEK_END)), T(read(random, text, 70000)), T(write(random, text, 100)), T(read(random, (void *)8, 10)), T(read(random, text, 0)), T(lseek(random, 10, SEEK_SET)), T(pread(random, text, 10, 5)), T(readv(zero, (struct iovec[2]){{text, 5}, {(void *)8, 5}}, 2)), T(fstat(zero, &s)), T(s.st_mode), T(s.st_rdev), T(s.st_size), T(major(s.st_rdev)), T(fdatasync(full)), T(flock(null, LOCK_EX)), T(sync_file_range(null, 0, 0, 0)), T(sendfile(null, zero, NULL, 10)), T(fchmod(null, 0666)), T(isatty(null)), T(fcntl(null, F_GETPIPE_SZ)), T(fcntl(zero, F_GETFL));
    T(stat("/dev/null", &s)), T(s.st_mode), T(stat("/dev/full", &s)), T(s.st_mode), T(s.st_rdev), T(stat("/dev/tty", &s)), T(s.st_mode), T(s.st_rdev), T(readlink("/dev/fd", text, 100)), T(readlink("/dev/stdin", text, 100)), T(readlink("/dev/stdout", text, 100)), T(poll(&(struct pollfd){zero, POLLIN | POLLOUT}, 1, 0)), T(access("/dev/shm", W_OK)), T(access("/dev/pts", X_OK)), T(access("/dev/ptmx", R_OK | W_OK)), W(open("/dev/ptmx", O_RDWR | O_NOCTTY));
}
