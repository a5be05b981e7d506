// Space: cutting and growing, holes, copies between files and pipes, what sync calls say.
#include "files.h"

static char text[70000];

PROGRAM(space_truncate) {
    put("f", "0123456789"), mkdir("d", 0755), symlink("f", "s"), mkfifo("p", 0600);
    int fd = open("f", O_RDWR), r = open("f", O_RDONLY), pipes[2];
    T(truncate("f", 5)), T(length("f")), T(truncate("f", 20)), T(pread(fd, text, 50, 0)), T(text[4]), T(text[5]), T(text[19]), T(truncate("s", 3)), T(length("f")), T(truncate("d", 0)), T(truncate("d", -1)), T(truncate("none", 0)), T(truncate("none", -1)), T(truncate("", 0)), T(truncate("p", 0)), T(truncate("/dev/null", 0)), T(truncate("f", -1)), T(truncate("f/x", 0)), T(truncate((void *)8, 0)), T(truncate("/proc/self/status", 0)), T(truncate("/proc", 0));
    T(ftruncate(fd, 8)), T(ftruncate(r, 8)), T(ftruncate(r, -1)), T(ftruncate(99, 0)), T(ftruncate(99, -1)), T(ftruncate(fd, -1)), pipe(pipes), T(ftruncate(pipes[1], 0)), T(ftruncate(socket(AF_UNIX, SOCK_STREAM, 0), 0)), T(ftruncate(open("/dev/null", O_RDWR), 0)), T(ftruncate(open("d", O_RDONLY), 0)), T(ftruncate(open("f", O_PATH), 0)), T(ftruncate(open("f", O_WRONLY | O_APPEND), 2)), T(length("f")), lseek(fd, 100, SEEK_SET), T(ftruncate(fd, 1)), T(lseek(fd, 0, SEEK_CUR)), T(write(fd, "x", 1)), T(length("f"));
    chmod("f", 0444);
    USER(T(truncate("f", 0)), T(truncate("none", 0)), T(truncate("d", 0)), T(ftruncate(fd, 1)), T(truncate("f", -1)));
    chmod("f", 0222);
    USER(T(truncate("f", 2)), T(length("f")));
    chmod("f", 06777);
    USER(T(truncate("f", 1)), T(mode("f")));
    chmod("f", 06777), T(truncate("f", 0)), T(mode("f")), chmod("f", 02767), chown("f", 1000, 1000), chmod("f", 06767);
    USER(T(truncate("f", 5)), T(mode("f")));
}
PROGRAM(space_allocate) {
    int fd = open("f", O_CREAT | O_RDWR, 0600), r = open("f", O_RDONLY), p[2];
    T(fallocate(fd, 0, 0, 10000)), T(length("f")), T(about("f").st_blocks), T(fallocate(fd, 0, 5000, 100)), T(length("f")), T(fallocate(fd, FALLOC_FL_KEEP_SIZE, 20000, 10000)), T(length("f")), T(fallocate(fd, 0, 0, 0)), T(fallocate(fd, 0, -1, 5)), T(fallocate(fd, 0, 0, -5)), T(fallocate(fd, 0, 5, LLONG_MAX)), T(fallocate(r, 0, 0, 5)), T(fallocate(99, 0, 0, 5)), T(fallocate(99, 0, 0, 0)), T(fallocate(fd, 99, 0, 5)), T(fallocate(fd, -1, 0, 5)), pipe(p), T(fallocate(p[1], 0, 0, 5)), T(fallocate(socket(AF_UNIX, SOCK_STREAM, 0), 0, 0, 5)), T(fallocate(open("/dev/null", O_RDWR), 0, 0, 5)), T(fallocate(open("/dev/full", O_RDWR), 0, 0, 5));
    memset(text, 'x', sizeof text), ftruncate(fd, 0), write(fd, text, 20000), T(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 4096)), T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100, 4096)), T(length("f")), T(pread(fd, text, 20000, 0)), T(text[99]), T(text[100]), T(text[4195]), T(text[4196]), T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 19000, 5000)), T(length("f")), T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 50000, 5000)), T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8192, 4096)), T(lseek(fd, 8000, SEEK_HOLE)), T(about("f").st_blocks);
    T(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, 4096)), T(fallocate(fd, FALLOC_FL_INSERT_RANGE, 0, 4096)), T(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_KEEP_SIZE, 0, 4096)), T(fallocate(fd, FALLOC_FL_UNSHARE_RANGE, 0, 4096)), T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 0, 4096)), T(fallocate(fd, FALLOC_FL_NO_HIDE_STALE, 0, 5)), T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 0)), T(posix_fallocate(fd, 0, 30000)), T(length("f")), T(posix_fallocate(r, 0, 1)), T(posix_fallocate(fd, -1, 1)), T(posix_fallocate(p[1], 0, 1)), T(fallocate(open("f", O_RDWR | O_APPEND), 0, 0, 40000)), T(length("f")), T(fallocate(open("f", O_RDWR | O_APPEND), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 100));
    T(fallocate(open(".", O_RDONLY), 0, 0, 5)), T(fallocate(open(".", O_RDONLY), 0, 0, 0));
}
PROGRAM(space_blocks) {
    int fd = open("f", O_CREAT | O_RDWR, 0600);
    T(about("f").st_blocks), T(about("f").st_blksize), write(fd, "x", 1), T(about("f").st_blocks), ftruncate(fd, 1 << 20), T(about("f").st_blocks), pwrite(fd, "x", 1, 1 << 19), T(about("f").st_blocks), ftruncate(fd, 4097), T(about("f").st_blocks), ftruncate(fd, 1), T(about("f").st_blocks), ftruncate(fd, 0), T(about("f").st_blocks), fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 8192), T(about("f").st_blocks), T(length("f"));
    char *map = mmap(0, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ftruncate(fd, 0), T(about("f").st_blocks), ftruncate(fd, 16384), T(about("f").st_blocks), T(map[5000]), map[9000] = 1, T(about("f").st_blocks), T(lseek(fd, 0, SEEK_DATA) >= 0), mkdir("d", 0755), T(about("d").st_blocks), T(about("d").st_blksize), symlink("x", "s"), T(about("s").st_blocks), mkfifo("p", 0600), T(about("p").st_blocks), T(about("p").st_size);
    T(msync(map, 16384, MS_SYNC)), T(munmap(map, 16384)), T(madvise(mmap(0, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), 16384, MADV_REMOVE)), T(about("f").st_blocks), T(pread(fd, text, 1, 9000)), T(text[0]);
}
PROGRAM(space_copy_range) {
    put("f", "0123456789"), put("g", ""), mkdir("d", 0755);
    int f = open("f", O_RDWR), g = open("g", O_RDWR), r = open("f", O_RDONLY), w = open("g", O_WRONLY), a = open("g", O_RDWR | O_APPEND), p[2];
    off_t in = 2, out = 4;
    T(copy_file_range(f, NULL, g, NULL, 4, 0)), T(lseek(f, 0, SEEK_CUR)), T(lseek(g, 0, SEEK_CUR)), T(copy_file_range(f, &in, g, &out, 4, 0)), T(in), T(out), T(length("g")), T(copy_file_range(f, NULL, g, NULL, 100, 0)), T(copy_file_range(f, NULL, g, NULL, 100, 0)), T(copy_file_range(f, NULL, g, NULL, 0, 0)), T(copy_file_range(f, NULL, g, NULL, 5, 1)), T(copy_file_range(w, NULL, f, NULL, 5, 0)), T(copy_file_range(f, NULL, r, NULL, 5, 0)), T(copy_file_range(f, NULL, a, NULL, 5, 0)), T(copy_file_range(99, NULL, g, NULL, 5, 0)), T(copy_file_range(f, NULL, 99, NULL, 5, 0)), T(copy_file_range(f, NULL, open("f", O_PATH), NULL, 5, 0));
    in = 0, out = 5, T(copy_file_range(f, &in, f, &out, 5, 0)), in = 0, out = 4, T(copy_file_range(f, &in, f, &out, 5, 0)), in = 0, out = 10, T(copy_file_range(f, &in, f, &out, 10, 0)), in = 0, out = 5, T(copy_file_range(f, &in, r, &out, 5, 0)), in = 0, out = 3, T(copy_file_range(r, &in, f, &out, 5, 0)), in = -1, T(copy_file_range(f, &in, g, NULL, 5, 0)), in = 100, T(copy_file_range(f, &in, g, NULL, 5, 0)), in = 0, out = -1, T(copy_file_range(f, &in, g, &out, 5, 0)), out = LLONG_MAX, T(copy_file_range(f, &in, g, &out, 5, 0)), T(copy_file_range(f, (void *)8, g, NULL, 5, 0)), T(copy_file_range(f, NULL, g, (void *)8, 5, 0)), in = LLONG_MAX - 1, T(copy_file_range(f, &in, g, NULL, 5, 0));
    pipe(p), T(copy_file_range(p[0], NULL, g, NULL, 5, 0)), T(copy_file_range(f, NULL, p[1], NULL, 5, 0)), T(copy_file_range(open("d", O_RDONLY), NULL, g, NULL, 5, 0)), T(copy_file_range(f, NULL, open("d", O_RDONLY), NULL, 5, 0)), T(copy_file_range(open("/dev/zero", O_RDONLY), NULL, g, NULL, 5, 0)), T(copy_file_range(f, NULL, open("/dev/null", O_WRONLY), NULL, 5, 0)), T(copy_file_range(open("/proc/self/status", O_RDONLY), NULL, g, NULL, 5, 0)), in = 0, T(copy_file_range(f, &in, open("f", O_PATH), NULL, 5, 0)), lseek(f, 0, SEEK_SET), lseek(g, 0, SEEK_SET), T(copy_file_range(f, NULL, g, NULL, -1, 0)), T(copy_file_range(f, NULL, g, NULL, SSIZE_MAX, 0));
}
PROGRAM(space_send) {
    put("f", "0123456789"), put("g", "");
    int f = open("f", O_RDONLY), g = open("g", O_RDWR), a = open("g", O_RDWR | O_APPEND), p[2], s[2];
    off_t at = 3;
    pipe(p), socketpair(AF_UNIX, SOCK_STREAM, 0, s), T(sendfile(g, f, NULL, 4)), T(lseek(f, 0, SEEK_CUR)), T(sendfile(g, f, &at, 4)), T(at), T(lseek(f, 0, SEEK_CUR)), T(length("g")), T(sendfile(p[1], f, &at, 100)), T(read(p[0], text, 100)), T(sendfile(s[0], f, NULL, 100)), T(read(s[1], text, 100)), T(sendfile(g, f, NULL, 100)), T(sendfile(g, f, NULL, 0)), T(sendfile(f, g, NULL, 1)), T(sendfile(g, 99, NULL, 1)), T(sendfile(99, f, NULL, 1)), T(sendfile(a, f, NULL, 1)), T(sendfile(g, p[0], NULL, 1)), at = 0, T(sendfile(g, p[0], &at, 1)), T(sendfile(g, s[0], NULL, 1)), T(sendfile(g, open("/dev/zero", O_RDONLY), NULL, 10)), T(sendfile(g, open(".", O_RDONLY), NULL, 10)), T(sendfile(g, open("f", O_PATH), NULL, 10)), T(sendfile(open("/dev/null", O_WRONLY), f, &at, 5));
    at = -1, T(sendfile(g, f, &at, 5)), at = 100, T(sendfile(g, f, &at, 5)), T(at), at = LLONG_MAX, T(sendfile(g, f, &at, 5)), T(sendfile(g, f, (void *)8, 5)), at = 0, T(sendfile(g, f, &at, -1)), at = 0, T(sendfile(g, f, &at, SSIZE_MAX)), fcntl(p[1], F_SETFL, O_NONBLOCK), fcntl(p[1], F_SETPIPE_SZ, 4096), memset(text, 'x', 5000), T(write(p[1], text, 4096)), at = 0, T(sendfile(p[1], f, &at, 5)), T(at), close(p[0]), signal(SIGPIPE, SIG_IGN), T(sendfile(p[1], f, &at, 5)), close(s[1]), T(sendfile(s[0], f, &at, 5));
    int rw = open("f", O_RDWR);
    at = 0, lseek(rw, 0, SEEK_END), T(sendfile(rw, f, &at, 10)), T(length("f"));
}
PROGRAM(space_splice) {
    put("f", "0123456789"), put("g", "");
    int f = open("f", O_RDWR), g = open("g", O_RDWR), a = open("g", O_RDWR | O_APPEND), p[2], q[2], s[2];
    loff_t at = 2;
    pipe(p), pipe(q), socketpair(AF_UNIX, SOCK_STREAM, 0, s), T(splice(f, NULL, p[1], NULL, 4, 0)), T(splice(f, &at, p[1], NULL, 3, 0)), T(at), T(splice(p[0], NULL, q[1], NULL, 3, 0)), T(splice(p[0], NULL, g, NULL, 100, 0)), at = 20, T(splice(q[0], NULL, g, &at, 2, 0)), T(length("g")), T(splice(q[0], NULL, s[0], NULL, 100, 0)), T(splice(s[1], NULL, p[1], NULL, 100, 0)), T(splice(f, NULL, g, NULL, 5, 0)), T(splice(p[0], NULL, p[1], NULL, 1, 0)), T(splice(p[0], &at, q[1], NULL, 1, 0)), T(splice(p[0], NULL, q[1], &at, 1, 0)), T(splice(p[0], NULL, q[1], NULL, 0, 0)), T(splice(p[0], NULL, q[1], NULL, 1, 64)), T(splice(p[0], NULL, q[1], NULL, 1, SPLICE_F_MOVE | SPLICE_F_MORE | SPLICE_F_NONBLOCK)), T(splice(p[0], NULL, q[1], NULL, 1, SPLICE_F_NONBLOCK));
    write(p[1], "more", 4), T(splice(p[0], NULL, a, NULL, 1, 0)), T(splice(p[1], NULL, g, NULL, 1, 0)), T(splice(f, NULL, p[0], NULL, 1, 0)), T(splice(99, NULL, p[1], NULL, 1, 0)), T(splice(f, NULL, 99, NULL, 1, 0)), T(splice(99, NULL, 99, NULL, 0, 0)), at = -1, T(splice(f, &at, p[1], NULL, 1, 0)), at = 100, T(splice(f, &at, p[1], NULL, 1, 0)), T(splice(f, (void *)8, p[1], NULL, 1, 0)), T(splice(p[0], NULL, g, (void *)8, 1, 0)), T(splice(open("f", O_WRONLY), NULL, p[1], NULL, 1, 0)), T(splice(p[0], NULL, open("g", O_RDONLY), NULL, 1, 0)), T(splice(open("/dev/zero", O_RDONLY), NULL, p[1], NULL, 10, 0)), T(splice(p[0], NULL, open("/dev/null", O_WRONLY), NULL, 100, 0)), T(splice(open(".", O_RDONLY), NULL, p[1], NULL, 1, 0)), T(splice(open("f", O_PATH), NULL, p[1], NULL, 1, 0));
    close(p[1]), T(splice(p[0], NULL, g, NULL, 1, 0)), signal(SIGPIPE, SIG_IGN), close(q[0]), lseek(f, 0, SEEK_SET), T(splice(f, NULL, q[1], NULL, 1, 0)), T(splice(f, NULL, q[1], NULL, 0, 0));
}
PROGRAM(space_tee) {
    int p[2], q[2];
    pipe(p), pipe(q), write(p[1], "0123456789", 10), T(tee(p[0], q[1], 4, 0)), T(read(q[0], text, 100)), T(tee(p[0], q[1], 100, 0)), T(read(p[0], text, 100)), T(read(q[0], text, 100)), T(tee(p[0], q[1], 1, SPLICE_F_NONBLOCK)), T(tee(p[0], q[1], 0, 0)), T(tee(p[0], p[1], 1, 0)), T(tee(p[1], q[1], 1, 0)), T(tee(p[0], q[0], 1, 0)), T(tee(99, q[1], 1, 0)), T(tee(p[0], 99, 1, 0)), T(tee(p[0], q[1], 1, 64)), T(tee(open("/dev/zero", O_RDONLY), q[1], 1, 0)), T(tee(p[0], open("/dev/null", O_WRONLY), 1, 0)), T(tee(99, 99, 0, 0));
    close(p[1]), T(tee(p[0], q[1], 1, 0)), pipe(p), write(p[1], "x", 1), close(q[0]), signal(SIGPIPE, SIG_IGN), T(tee(p[0], q[1], 1, 0)), pipe2(q, O_NONBLOCK), fcntl(q[1], F_SETPIPE_SZ, 4096), memset(text, 'x', 4096), write(q[1], text, 4096), T(tee(p[0], q[1], 1, 0)), T(tee(p[0], q[1], 1, SPLICE_F_NONBLOCK));
    struct iovec v = {"given", 5}, bad = {(void *)8, 5};
    pipe(q), T(vmsplice(q[1], &v, 1, 0)), T(vmsplice(q[1], &v, 0, 0)), T(vmsplice(q[1], &bad, 1, 0)), T(vmsplice(q[1], (void *)8, 1, 0)), T(vmsplice(q[1], &v, 1025, 0)), T(vmsplice(99, &v, 1, 0)), T(vmsplice(q[1], &v, 1, 64)), v.iov_base = text, v.iov_len = 3, T(vmsplice(q[0], &v, 1, 0)), T(vmsplice(q[0], &v, 1, 0)), T(vmsplice(q[0], &v, 1, SPLICE_F_NONBLOCK)), T(vmsplice(open("/dev/null", O_RDWR), &v, 1, 0));
}
PROGRAM(space_sync) {
    put("f", "x"), mkdir("d", 0755);
    int f = open("f", O_RDWR), r = open("f", O_RDONLY), d = open("d", O_RDONLY), p[2];
    pipe(p), T(fsync(f)), T(fdatasync(f)), T(fsync(r)), T(fdatasync(d)), T(fsync(p[0])), T(fdatasync(p[1])), T(fsync(99)), T(fdatasync(99)), T(fsync(socket(AF_UNIX, SOCK_STREAM, 0))), T(fsync(open("f", O_PATH))), T(fsync(open("/dev/null", O_RDWR))), T(fsync(open("/proc/self/status", O_RDONLY))), T(syncfs(f)), T(syncfs(p[0])), T(syncfs(99)), T(syncfs(open("f", O_PATH))), T(syncfs(open("/proc", O_RDONLY))), T((sync(), 0));
    T(sync_file_range(f, 0, 0, 0)), T(sync_file_range(f, 0, 10, SYNC_FILE_RANGE_WRITE)), T(sync_file_range(f, 0, 10, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER)), T(sync_file_range(f, -1, 10, 0)), T(sync_file_range(f, 0, -1, 0)), T(sync_file_range(f, LLONG_MAX, 1, 0)), T(sync_file_range(f, 0, 1, 8)), T(sync_file_range(99, 0, 1, 0)), T(sync_file_range(p[0], 0, 1, 0)), T(sync_file_range(d, 0, 0, 0)), T(sync_file_range(open("f", O_PATH), 0, 0, 0)), T(sync_file_range(socket(AF_UNIX, SOCK_STREAM, 0), 0, 0, 0)), symlink("f", "l"), T(sync_file_range(open("l", O_PATH | O_NOFOLLOW), 0, 0, 0)), T(sync_file_range(r, 0, 10, SYNC_FILE_RANGE_WRITE));
}
PROGRAM(space_systems) {
    struct statfs s = {0};
    struct statvfs v = {0};
    put("f", "x");
    T(statfs(".", &s)), T(s.f_type == 0x01021994), T(s.f_bsize), T(s.f_namelen), T(s.f_frsize), IS(s.f_blocks >= s.f_bfree && s.f_bfree >= s.f_bavail), IS(s.f_files >= s.f_ffree), T(fstatfs(open("f", O_RDONLY), &s)), T(s.f_type == 0x01021994), T(statfs("/proc", &s)), T(s.f_type), T(s.f_bsize), T(s.f_blocks), T(s.f_files), T(s.f_namelen), T(statfs("/sys", &s)), T(s.f_type), T(s.f_blocks), T(s.f_namelen), T(statfs("/dev/pts", &s)), T(s.f_type), T(statfs("/proc/self/status", &s)), T(s.f_type), T(statfs("/proc/self/fd/0/", &s)), T(statfs("none", &s)), T(statfs("f/x", &s)), T(statfs("", &s)), T(statfs((void *)8, &s)), T(fstatfs(99, &s)), T(fstatfs(0, (void *)8));
    int p[2];
    pipe(p), T(fstatfs(p[0], &s)), T(s.f_type), T(s.f_bsize), T(s.f_namelen), T(fstatfs(socket(AF_UNIX, SOCK_STREAM, 0), &s)), T(s.f_type), T(fstatfs(memfd_create("x", 0), &s)), T(s.f_type), T(statvfs(".", &v)), T(v.f_namemax), T(v.f_bsize), T(statvfs("/proc", &v)), T(v.f_namemax), T(statvfs("/proc/self/exe", &v)), T(fstatvfs(p[0], &v)), T(v.f_flag & ST_RDONLY), T(pathconf(".", _PC_NAME_MAX)), T(pathconf(".", _PC_LINK_MAX)), T(fpathconf(p[0], _PC_PIPE_BUF)), T(pathconf(".", _PC_PATH_MAX));
}
