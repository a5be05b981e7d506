// Opening files: what each flag does, what is refused and why.
#include "files.h"
#include <linux/openat2.h>

static long opens2(int at, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve) {
    struct open_how how = {flags, mode, resolve};
    return syscall(SYS_openat2, at, path, &how, sizeof how);
}

PROGRAM(open_creates) {
    W(open("a", O_RDONLY)), W(open("a", O_CREAT | O_RDONLY, 0444)), T(mode("a")), W(open("a", O_CREAT | O_EXCL, 0644));
    W(open("a", O_CREAT | O_RDWR, 0)), T(mode("a")), W(open("b", O_CREAT | O_EXCL | O_WRONLY, 07777)), T(mode("b"));
    umask(077), W(open("c", O_CREAT | O_WRONLY, 0666)), T(mode("c")), umask(0), W(open("d", O_CREAT | O_WRONLY, 0666)), T(mode("d"));
    umask(0777), W(open("e", O_CREAT | O_RDWR, 0666)), T(mode("e")), umask(022), W(creat("f", 0640)), T(mode("f"));
    W(creat("f", 0600)), T(mode("f")), W(creat(".", 0600)), W(creat("..", 0600)), W(creat("", 0600)), W(creat("no/f", 0600)), W(creat("a/f", 0600));
    W(open("missing/", O_CREAT | O_RDWR, 0600)), W(open("a/", O_CREAT | O_RDWR, 0600)), W(open("a/", O_RDONLY)), W(open("a/.", O_RDONLY));
    mkdir("dir", 0755), W(open("dir", O_CREAT | O_RDONLY, 0600)), W(open("dir/", O_CREAT | O_RDONLY, 0600)), W(open("dir", O_CREAT | O_EXCL, 0600));
    W(open("dir/.", O_CREAT | O_EXCL, 0600)), W(open("dir/..", O_CREAT, 0600)), W(open("/", O_CREAT | O_EXCL, 0600)), W(open("/", O_CREAT, 0600));
    W(open("g", O_CREAT | 3, 0600)), T(mode("g"));
}
PROGRAM(open_links) {
    symlink("target", "link"), symlink("loop", "loop"), symlink("a", "b"), symlink("b", "a"), symlink("no/where", "far"), symlink("dir", "todir"), mkdir("dir", 0755);
    W(open("link", O_RDONLY)), W(open("link", O_CREAT | O_EXCL | O_RDWR, 0600)), W(open("link", O_CREAT | O_RDWR | O_NOFOLLOW, 0600)), W(open("link", O_CREAT | O_RDWR, 0600));
    T(mode("target")), W(open("link", O_RDONLY | O_NOFOLLOW)), W(open("link", O_PATH | O_NOFOLLOW)), W(open("loop", O_RDONLY)), W(open("loop", O_CREAT | O_RDWR, 0600));
    W(open("a", O_RDONLY)), W(open("a", O_CREAT | O_EXCL, 0600)), W(open("far", O_CREAT | O_RDWR, 0600)), W(open("todir", O_DIRECTORY)), W(open("todir", O_DIRECTORY | O_NOFOLLOW));
    W(open("todir/", O_DIRECTORY | O_NOFOLLOW)), W(open("todir/.", O_NOFOLLOW)), W(open("link/", O_RDONLY)), W(open("link", O_DIRECTORY)), W(open("loop/x", O_RDONLY)), W(open("loop/", O_RDONLY));
    symlink("slashed/", "ts"), W(open("ts", O_CREAT | O_RDWR, 0600)), W(open("ts", O_CREAT | O_EXCL | O_RDWR, 0600)), T(access("slashed", F_OK)), W(open("todir", O_CREAT | O_RDONLY, 0600)), W(open("todir", O_CREAT | O_WRONLY, 0600));
    W(open("todir", O_RDONLY | O_NOFOLLOW | O_CREAT, 0600)), W(open("todir", O_NOFOLLOW | O_PATH | O_DIRECTORY));
}
PROGRAM(open_directories) {
    mkdir("d", 0755), put("f", "x");
    W(open("d", O_RDONLY)), W(open("d", O_WRONLY)), W(open("d", O_RDWR)), W(open("d", O_RDONLY | O_TRUNC)), W(open("d", O_RDONLY | O_APPEND)), W(open("f", O_DIRECTORY));
    W(open("d", O_DIRECTORY)), W(open("d", O_DIRECTORY | O_WRONLY)), W(open("d", O_DIRECTORY | O_CREAT, 0600)), W(open("n", O_DIRECTORY | O_CREAT, 0600)), T(access("n", F_OK));
    W(open("d", O_DIRECTORY | O_CREAT | O_EXCL, 0600)), W(open("d", O_TMPFILE | O_RDONLY, 0600)), W(open("d", 3)), W(open("f", O_DIRECTORY | O_TRUNC)), W(open("f", 3));
    int d = open("d", O_RDONLY);
    char byte;
    T(read(d, &byte, 1)), T(write(d, "x", 1)), T(pread(d, &byte, 1, 0)), T(ftruncate(d, 0)), T(read(d, &byte, 0)), T(fsync(d)), T(fdatasync(d)), T(fallocate(d, 0, 0, 1));
    W(mmap(0, 4096, PROT_READ, MAP_SHARED, d, 0) == MAP_FAILED ? -1 : 0), T(lseek(d, 0, SEEK_SET)), T(lseek(d, -1, SEEK_SET)), T(sendfile(1, d, 0, 10)), T(readv(d, &(struct iovec){&byte, 1}, 1));
    int none = open("f", 3);
    T(read(none, &byte, 1)), T(write(none, "x", 1)), T(fcntl(none, F_GETFL) & O_ACCMODE), T(ftruncate(none, 0)), T(fchmod(none, 0600)), T(lseek(none, 0, SEEK_END)), T(ioctl(none, FIONREAD, &(int){0}));
    T(fallocate(none, 0, 0, 9)), W(mmap(0, 1, PROT_READ, MAP_PRIVATE, none, 0) == MAP_FAILED ? -1 : 0), T(fstat(none, &(struct stat){0}));
}
PROGRAM(open_truncates) {
    put("f", "contents"), chmod("f", 0444);
    W(open("f", O_RDONLY | O_TRUNC)), T(length("f"));
    put("g", "contents"), W(open("g", O_WRONLY | O_TRUNC | O_APPEND)), T(length("g")), put("h", "contents"), W(open("h", O_CREAT | O_TRUNC | O_EXCL, 0600)), T(length("h"));
    W(open("h", O_PATH | O_TRUNC)), T(length("h")), W(open("h", O_CREAT | O_PATH, 0600)), W(open("new", O_CREAT | O_PATH, 0600)), T(access("new", F_OK));
    chmod("h", 0644);
    USER(W(open("h", O_RDONLY | O_TRUNC)), T(length("h")), W(open("h", O_WRONLY)), W(open("h", O_RDONLY)), W(open("f", O_RDONLY)), W(open("f", O_RDONLY | O_TRUNC)), W(open("h", 3)));
    mkfifo("p", 0600), W(open("p", O_RDWR | O_TRUNC)), W(open("/dev/null", O_WRONLY | O_TRUNC)), W(open("/dev/null", O_CREAT | O_WRONLY, 0600)), W(open("/dev/null", O_CREAT | O_EXCL, 0600));
    W(open("/dev/null/x", O_RDONLY)), W(open("/dev/null/", O_RDONLY)), W(open("/dev/null", O_DIRECTORY)), W(open("/dev/zero", O_RDWR)), W(open("/proc/self/status", O_WRONLY)), W(open("/proc/self/status", O_RDONLY | O_TRUNC));
    W(open("/proc/none", O_CREAT | O_RDWR, 0600)), W(open("/proc/self/none", O_CREAT | O_RDWR, 0600)), W(open("/sys/none", O_CREAT | O_RDWR, 0600)), W(mkdir("/proc/none", 0700)), W(unlink("/proc/self/status"));
}
PROGRAM(open_status_flags) {
    put("f", "abc");
    int fd = open("f", O_RDWR | O_APPEND | O_NONBLOCK | O_CLOEXEC | O_CREAT | O_TRUNC | O_NOCTTY);
    T(fcntl(fd, F_GETFL)), T(fcntl(fd, F_GETFD)), T(fcntl(fd, F_SETFL, O_RDONLY)), T(fcntl(fd, F_GETFL)), T(fcntl(fd, F_SETFL, O_APPEND | O_NONBLOCK | O_NOATIME | O_CREAT | O_SYNC)), T(fcntl(fd, F_GETFL));
    T(fcntl(open("f", O_SYNC | O_RDWR), F_GETFL)), T(fcntl(open("f", O_DSYNC | O_RDWR), F_GETFL)), T(fcntl(open("f", O_NOATIME), F_GETFL)), T(fcntl(open("f", O_PATH | O_RDWR | O_APPEND), F_GETFL));
    T(fcntl(open("f", O_PATH | O_CLOEXEC), F_GETFD)), T(fcntl(open(".", O_DIRECTORY), F_GETFL)), T(fcntl(open(".", O_DIRECTORY | O_PATH | O_NOFOLLOW), F_GETFL)), T(fcntl(open("f", O_NOFOLLOW), F_GETFL)), T(fcntl(open(".", O_TMPFILE | O_RDWR, 0600), F_GETFL));
    T(fcntl(open("f", O_WRONLY | O_LARGEFILE), F_GETFL)), T(fcntl(creat("g", 0600), F_GETFL)), T(fcntl(open("f", 3), F_GETFL)), T(fcntl(open("f", O_ASYNC), F_GETFL)), T(fcntl(open("f", 1 << 30 | O_RDWR), F_GETFL));
    USER(W(open("f", O_NOATIME)), W(open("f", O_PATH | O_NOATIME)); int u = open("f", O_RDONLY); T(fcntl(u, F_SETFL, O_NOATIME)), T(fcntl(u, F_GETFL)));
    int p[2];
    pipe2(p, O_NONBLOCK | O_CLOEXEC), T(fcntl(p[0], F_GETFL)), T(fcntl(p[1], F_GETFL)), T(fcntl(p[1], F_GETFD)), T(pipe2(p, 1)), T(pipe2(p, O_APPEND)), T(pipe2((void *)8, 0));
    T(fcntl(p[0], F_SETFL, O_NOATIME)), T(fcntl(p[0], F_GETFL)), T(fcntl(p[0], F_SETFL, 0)), T(fcntl(p[0], F_GETFL));
    struct stat s;
    int path = open("f", O_PATH);
    T(fcntl(path, F_SETFL, O_NONBLOCK)), T(fcntl(99, F_GETFL)), T(fcntl(99, F_SETFL, 0)), T(fstat(path, &s));
}
PROGRAM(open_path_only) {
    put("f", "abc"), mkdir("d", 0755), symlink("f", "l"), mkfifo("p", 0600);
    int fd = open("f", O_PATH), dir = open("d", O_PATH), link = open("l", O_PATH | O_NOFOLLOW);
    char bytes[64];
    struct stat s;
    T(read(fd, bytes, 1)), T(write(fd, bytes, 1)), T(pread(fd, bytes, 1, 0)), T(lseek(fd, 0, SEEK_SET)), T(ftruncate(fd, 0)), T(fchmod(fd, 0600)), T(fchown(fd, 0, 0)), T(ioctl(fd, FIONREAD, bytes)), T(fsync(fd));
    T(fallocate(fd, 0, 0, 1)), T(flock(fd, LOCK_SH)), T(futimens(fd, NULL)), T(fcntl(fd, F_GETLK, &(struct flock){F_RDLCK})), T(fcntl(fd, F_GETOWN)), T(fcntl(fd, F_GETPIPE_SZ)), T(fcntl(fd, F_SETLEASE, F_RDLCK)), T(fcntl(fd, F_ADD_SEALS, 0));
    W(dup(fd)), W(fcntl(fd, F_DUPFD, 50)), W(fcntl(fd, F_DUPFD_CLOEXEC, 50)), T(fstat(fd, &s)), T(fstatfs(fd, &(struct statfs){0})), T(fchdir(fd)), T(syncfs(fd)), W(mmap(0, 1, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED ? -1 : 0);
    T(getdents64(dir, bytes, 64)), W(openat(dir, "x", O_CREAT | O_RDWR, 0600)), T(mkdirat(dir, "y", 0700)), T(unlinkat(dir, "x", 0)), T(fchmod(dir, 0700)), T(lseek(dir, 0, SEEK_SET)), T(fchdir(dir)), T(access("y", F_OK)), T(chdir(".."));
    T(fstat(link, &s)), IS(S_ISLNK(s.st_mode)), T(readlinkat(link, "", bytes, 64)), T(readlinkat(fd, "", bytes, 64)), T(readlinkat(dir, "", bytes, 64)), T(fstatat(link, "", &s, AT_EMPTY_PATH)), T(fchownat(link, "", 1, 1, AT_EMPTY_PATH)), T(about("l").st_uid);
    T(linkat(fd, "", AT_FDCWD, "second", AT_EMPTY_PATH)), T(links("f")), W(openat(fd, "", O_RDONLY)), W(openat(link, "x", O_RDONLY)), W(openat(fd, "x", O_RDONLY));
    W(open("p", O_PATH)), W(open("/proc/self/fd/0", O_PATH)), T(select(fd + 1, &(fd_set){0}, 0, 0, &(struct timeval){0})), T(poll(&(struct pollfd){fd, POLLIN}, 1, 0));
    sprintf(bytes, "/proc/self/fd/%d", fd);
    int again = open(bytes, O_RDWR);
    T(read(again, bytes, 3)), sprintf(bytes, "/proc/self/fd/%d", dir), W(open(bytes, O_RDONLY)), sprintf(bytes, "/proc/self/fd/%d", link), W(open(bytes, O_RDONLY)), W(open(bytes, O_PATH));
    chmod("f", 0);
    USER(int u = open("f", O_PATH); W(u), W(open("f", O_RDONLY)); char at[40]; sprintf(at, "/proc/self/fd/%d", u); W(open(at, O_RDONLY)), T(fstat(u, &s)), T(fchownat(u, "", 1000, 1000, AT_EMPTY_PATH)));
}
PROGRAM(open_nameless) {
    struct stat s;
    char at[64];
    W(open(".", O_TMPFILE, 0600)), W(open(".", O_TMPFILE | O_RDONLY, 0600)), W(open("none", O_TMPFILE | O_RDWR, 0600)), put("f", "x"), W(open("f", O_TMPFILE | O_RDWR, 0600)), W(open(".", O_TMPFILE | O_RDWR | O_CREAT, 0600)), W(open("", O_TMPFILE | O_RDWR, 0600));
    int fd = open(".", O_TMPFILE | O_RDWR, 0666);
    W(fd), fstat(fd, &s), T(s.st_nlink), T(s.st_mode), T(s.st_size), T(write(fd, "abc", 3)), sprintf(at, "/proc/self/fd/%d", fd);
    T(linkat(AT_FDCWD, at, AT_FDCWD, "named", AT_SYMLINK_FOLLOW)), T(links("named")), IS(holds("named", "abc")), T(linkat(fd, "", AT_FDCWD, "again", AT_EMPTY_PATH)), T(links("again")), T(linkat(fd, "", AT_FDCWD, "again", AT_EMPTY_PATH)), T(linkat(fd, "", AT_FDCWD, "x", 0));
    int once = open(".", O_TMPFILE | O_WRONLY | O_EXCL, 0600);
    W(once), T(linkat(once, "", AT_FDCWD, "once", AT_EMPTY_PATH)), sprintf(at, "/proc/self/fd/%d", once), T(linkat(AT_FDCWD, at, AT_FDCWD, "once", AT_SYMLINK_FOLLOW)), T(linkat(AT_FDCWD, at, AT_FDCWD, "once", 0)), T(readlink(at, at, 64) > 0);
    unlink("f");
    fd = open("f", O_CREAT | O_RDWR, 0600), unlink("f"), sprintf(at, "/proc/self/fd/%d", fd), T(linkat(AT_FDCWD, at, AT_FDCWD, "f", AT_SYMLINK_FOLLOW)), T(linkat(fd, "", AT_FDCWD, "f", AT_EMPTY_PATH)), fstat(fd, &s), T(s.st_nlink), W(open(at, O_RDONLY)), T(stat(at, &s));
    USER(W(open(".", O_TMPFILE | O_RDWR, 0)); int u = open(".", O_TMPFILE | O_RDWR, 0600); sprintf(at, "/proc/self/fd/%d", u), T(linkat(AT_FDCWD, at, AT_FDCWD, "user", AT_SYMLINK_FOLLOW)), T(about("user").st_uid));
    mkdir("closed", 0755);
    USER(W(open("closed", O_TMPFILE | O_RDWR, 0600)));
    W(open("/proc", O_TMPFILE | O_RDWR, 0600)), W(open("/sys", O_TMPFILE | O_RDWR, 0600));
}
PROGRAM(open_relative) {
    mkdir("d", 0755), put("d/f", "x"), put("f", "y");
    int dir = open("d", O_RDONLY), file = open("f", O_RDONLY);
    W(openat(dir, "f", O_RDONLY)), W(openat(dir, "g", O_RDONLY)), W(openat(dir, "../f", O_RDONLY)), W(openat(file, "f", O_RDONLY)), W(openat(99, "f", O_RDONLY)), W(openat(-1, "f", O_RDONLY)), W(openat(99, "/dev/null", O_RDONLY)), W(openat(file, "/dev/null", O_RDONLY));
    W(openat(file, ".", O_RDONLY)), W(openat(file, "", O_RDONLY)), W(openat(dir, "", O_RDONLY)), W(openat(99, "", O_RDONLY)), W(openat(AT_FDCWD, "", O_RDONLY)), W(openat(AT_FDCWD, (void *)8, O_RDONLY)), W(openat(dir, NULL, O_RDONLY)), W(openat(99, NULL, O_RDONLY));
    rename("d", "e"), W(openat(dir, "f", O_RDONLY)), unlink("e/f"), rmdir("e"), W(openat(dir, "f", O_RDONLY)), W(openat(dir, "f", O_CREAT | O_RDWR, 0600)), W(openat(dir, ".", O_RDONLY)), W(openat(dir, "..", O_RDONLY)), T(mkdirat(dir, "x", 0700)), T(symlinkat("x", dir, "y"));
    T(fchdir(dir)), W(open(".", O_RDONLY)), W(open("x", O_CREAT | O_RDWR, 0600)); char at[100];
    T(getcwd(at, sizeof at) ? 0 : -1), T(access(".", F_OK)), T(mkdir("z", 0700)), T(rename("../f", "f")), T(link("../f", "f")), T(mkfifo("p", 0600)), T(chdir(".."));
}
PROGRAM(open_how) {
    put("f", "x"), mkdir("d", 0755), symlink("f", "l"), symlink("/dev/null", "abs"), symlink("../f", "d/up"), symlink("d", "dl"), put("d/g", "y"), mkdir("d/e", 0755), symlink("../g", "d/e/side");
    struct open_how how = {0};
    W(opens2(AT_FDCWD, "f", O_RDONLY, 0, 0)), W(opens2(AT_FDCWD, "f", O_RDONLY, 0644, 0)), W(opens2(AT_FDCWD, "n", O_CREAT | O_RDWR, 0644, 0)), W(opens2(AT_FDCWD, "m", O_CREAT | O_RDWR, 010000, 0)), W(opens2(AT_FDCWD, "f", 1 << 30, 0, 0)), W(opens2(AT_FDCWD, "f", 1ull << 40, 0, 0));
    W(opens2(AT_FDCWD, "f", 0, 0, 0x40)), W(opens2(AT_FDCWD, "f", 0, 0, 1ull << 33)), W(opens2(AT_FDCWD, "f", O_PATH | O_RDWR, 0, 0)), W(opens2(AT_FDCWD, "f", O_PATH | O_CLOEXEC, 0, 0)), W(opens2(AT_FDCWD, ".", O_TMPFILE | O_RDWR, 0600, 0)), W(opens2(AT_FDCWD, "d", O_CREAT | O_DIRECTORY, 0600, 0));
    T(syscall(SYS_openat2, AT_FDCWD, "f", &how, 0)), T(syscall(SYS_openat2, AT_FDCWD, "f", &how, 23)), T(syscall(SYS_openat2, AT_FDCWD, "f", &how, 5000)), T(syscall(SYS_openat2, AT_FDCWD, "f", NULL, 24));
    char big[64] = {0};
    W(syscall(SYS_openat2, AT_FDCWD, "f", big, 64)), big[40] = 1, W(syscall(SYS_openat2, AT_FDCWD, "f", big, 64));
    int d = open("d", O_PATH);
    W(opens2(d, "g", 0, 0, RESOLVE_BENEATH)), W(opens2(d, "../f", 0, 0, RESOLVE_BENEATH)), W(opens2(d, "up", 0, 0, RESOLVE_BENEATH)), W(opens2(d, "e/side", 0, 0, RESOLVE_BENEATH)), W(opens2(d, "e/../g", 0, 0, RESOLVE_BENEATH)), W(opens2(d, "..", O_PATH, 0, RESOLVE_BENEATH)), W(opens2(d, "/dev/null", 0, 0, RESOLVE_BENEATH)), W(opens2(AT_FDCWD, "abs", 0, 0, RESOLVE_BENEATH));
    W(opens2(AT_FDCWD, "l", 0, 0, RESOLVE_NO_SYMLINKS)), W(opens2(AT_FDCWD, "f", 0, 0, RESOLVE_NO_SYMLINKS)), W(opens2(AT_FDCWD, "dl/g", 0, 0, RESOLVE_NO_SYMLINKS)), W(opens2(AT_FDCWD, "l", O_PATH | O_NOFOLLOW, 0, RESOLVE_NO_SYMLINKS)), W(opens2(AT_FDCWD, "l", O_NOFOLLOW, 0, RESOLVE_NO_SYMLINKS)), W(opens2(AT_FDCWD, "/proc/self/fd/0", 0, 0, RESOLVE_NO_MAGICLINKS)), W(opens2(AT_FDCWD, "/proc/self/status", 0, 0, RESOLVE_NO_MAGICLINKS));
    W(opens2(AT_FDCWD, "l", 0, 0, RESOLVE_NO_MAGICLINKS)), W(opens2(AT_FDCWD, "/proc/self/root", O_PATH, 0, RESOLVE_NO_MAGICLINKS)), W(opens2(AT_FDCWD, "/proc/self/cwd", O_PATH | O_NOFOLLOW, 0, RESOLVE_NO_MAGICLINKS)), W(opens2(AT_FDCWD, "f", 0, 0, RESOLVE_NO_XDEV)), W(opens2(AT_FDCWD, "/proc/self/status", 0, 0, RESOLVE_NO_XDEV)), W(opens2(AT_FDCWD, "abs", 0, 0, RESOLVE_NO_XDEV)), W(opens2(open("/", O_PATH), "proc", O_PATH, 0, RESOLVE_NO_XDEV)), W(opens2(open("/proc", O_PATH), "..", O_PATH, 0, RESOLVE_NO_XDEV));
    W(opens2(d, "/g", 0, 0, RESOLVE_IN_ROOT)), W(opens2(d, "../../g", 0, 0, RESOLVE_IN_ROOT)), W(opens2(d, "up", 0, 0, RESOLVE_IN_ROOT)), W(opens2(d, "g", 0, 0, RESOLVE_IN_ROOT | RESOLVE_BENEATH)), W(opens2(d, "/proc/self/fd/0", 0, 0, RESOLVE_IN_ROOT)), W(opens2(d, "new", O_CREAT | O_RDWR, 0600, RESOLVE_BENEATH)), W(opens2(d, "../new", O_CREAT | O_RDWR, 0600, RESOLVE_BENEATH)), W(opens2(AT_FDCWD, "g", O_CREAT | O_RDWR, 0600, RESOLVE_CACHED));
    W(opens2(open("/proc/self/fd", O_PATH), "0", O_PATH, 0, RESOLVE_BENEATH)), W(opens2(open("/proc/self/fd", O_PATH), "0", O_PATH, 0, RESOLVE_IN_ROOT));
}
PROGRAM(open_permission) {
    mkdir("no", 0700), mkdir("look", 0711), mkdir("list", 0744), mkdir("all", 0777), put("no/f", "x"), put("look/f", "x"), put("list/f", "x"), put("r", "x"), put("w", "x"), put("x", "x"), put("g", "x"), put("own", "x");
    chmod("r", 0444), chmod("w", 0222), chmod("x", 0111), chown("g", 0, 1000), chmod("g", 0640), chown("own", 1000, 0), chmod("own", 0077);
    USER(W(open("no/f", O_RDONLY)), W(open("no", O_RDONLY)), W(open("no", O_PATH)), W(open("no/f", O_PATH)), W(open("look/f", O_RDONLY)), W(open("look", O_RDONLY)), W(open("list/f", O_RDONLY)), W(open("list", O_RDONLY)), W(open("all/new", O_CREAT | O_RDWR, 0600)), W(open("look/new", O_CREAT | O_RDWR, 0600));
         W(open("r", O_RDONLY)), W(open("r", O_RDWR)), W(open("w", O_WRONLY)), W(open("w", O_RDONLY)), W(open("w", O_RDWR)), W(open("x", O_RDONLY)), W(open("g", O_RDONLY)), W(open("g", O_WRONLY)), W(open("own", O_RDONLY)), W(open("own", O_WRONLY)), W(open("all/ro", O_CREAT | O_RDWR, 0)), W(open("all/ro", O_RDONLY));
         T(about("all/new").st_uid), T(about("all/new").st_gid), W(open("look/none", O_RDONLY)), W(open("no/none", O_RDONLY)), W(open("list/none", O_RDONLY)), W(open("look/none/x", O_RDONLY)), W(open("r/x", O_RDONLY)), W(open("no/../r", O_RDONLY)), W(open("look/../r", O_RDONLY)), W(open("/dev/null", O_RDWR)), W(open("/proc/1/environ", O_RDONLY)));
    CHILD("a group of many", setgroups(1, &(gid_t){1000}); setresgid(5, 5, 5); setresuid(5, 5, 5); W(open("g", O_RDONLY)), W(open("g", O_WRONLY)), W(open("own", O_RDWR)));
    CHILD("file system ids", setfsgid(1000); setfsuid(1000); W(open("no/f", O_RDONLY)), W(open("g", O_RDONLY)), W(open("own", O_RDONLY)), W(open("all/fs", O_CREAT | O_RDWR, 0600)), T(about("all/fs").st_uid), T(about("all/fs").st_gid), T(access("no/f", R_OK)));
}
PROGRAM(open_protected) {
    mkdir("sticky", 0777), chmod("sticky", 01777), put("sticky/roots", "x"), chmod("sticky/roots", 0666), mkfifo("sticky/pipe", 0666), chmod("sticky/pipe", 0666);
    USER(put("sticky/users", "x"); chmod("sticky/users", 0666); symlink("roots", "sticky/tousers"); mkfifo("sticky/userpipe", 0666); chmod("sticky/userpipe", 0666));
    CHILD("a third user", setgroups(0, 0); setresgid(1001, 1001, 1001); setresuid(1001, 1001, 1001); T(unlink("sticky/users")), T(rename("sticky/users", "sticky/mine")), T(unlink("sticky/none")), W(open("sticky/users", O_RDWR)), W(open("sticky/own", O_CREAT | O_RDWR, 0600)), T(unlink("sticky/own")), T(link("sticky/roots", "sticky/hard") == 0 || errno == EPERM));
    USER(T(unlink("sticky/roots")), T(rename("sticky/users", "sticky/roots")), T(rename("sticky/users", "sticky/renamed")), T(unlink("sticky/renamed")), T(rmdir("sticky")));
    chown("sticky", 1000, 1000);
    USER(T(unlink("sticky/roots")), T(unlink("sticky/pipe")));
}
PROGRAM(open_many) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit), limit.rlim_cur = 20, setrlimit(RLIMIT_NOFILE, &limit);
    int last = -1, fd;
    for (int i = 0; i < 100 && (fd = open("/dev/null", O_RDONLY)) >= 0; i++)
        last = fd;
    tell("last", last), W(open("/dev/null", O_RDONLY)), W(open("new", O_CREAT | O_RDWR, 0600)), T(access("new", F_OK)), W(dup(0)), T(dup2(0, 19)), T(dup2(0, 20)), T(dup2(0, -1)), T(dup2(5, 5)), T(dup2(77, 77)), T(dup3(0, 20, 0)), T(dup3(5, 5, 0)), T(dup3(5, 6, 1)), T(fcntl(0, F_DUPFD, 20)), T(fcntl(0, F_DUPFD, 19)), T(fcntl(0, F_DUPFD, -1)), T(fcntl(0, F_DUPFD, INT_MAX));
    int p[2];
    T(pipe(p)), W(socket(AF_UNIX, SOCK_STREAM, 0)), T(socketpair(AF_UNIX, SOCK_STREAM, 0, p)), close(18), T(pipe(p)), T(open("/dev/null", O_RDONLY)), W(memfd_create("x", 0)), close(18), T(memfd_create("x", 0));
    limit.rlim_cur = 10, T(setrlimit(RLIMIT_NOFILE, &limit)), T(fcntl(15, F_GETFD)), T(dup2(15, 9)), T(dup2(15, 10)), close(4), T(dup(15)), W(dup(15)), limit.rlim_cur = 0, T(setrlimit(RLIMIT_NOFILE, &limit)), W(open("/dev/null", O_RDONLY)), T(poll(&(struct pollfd){0, 0}, 1, 0)), T(poll(NULL, 0, 0)), limit.rlim_cur = limit.rlim_max + 1, T(setrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = limit.rlim_max = 1ul << 40, T(setrlimit(RLIMIT_NOFILE, &limit));
}

static volatile int is_over;
static void *moves(void *nothing) {
    while (!is_over)
        rename("root/in", "out/in"), rename("out/in", "root/in");
    return nothing;
}
// A directory of the walk is moved out of where the walk may be.
PROGRAM(walks_that_may_not_leave) {
    int escaped = 0, wrong = 0;
    pthread_t thread;
    mkdir("root", 0755), mkdir("out", 0755), mkdir("root/in", 0755), mkdir("root/in/deep", 0755), close(open("out/secret", O_CREAT | O_WRONLY, 0644));
    int at = open("root", O_PATH | O_DIRECTORY);
    const struct open_how ways[] = {{.flags = O_RDONLY, .resolve = RESOLVE_BENEATH}, {.flags = O_PATH, .resolve = RESOLVE_IN_ROOT}, {.flags = O_RDWR | O_CREAT, .mode = 0600, .resolve = RESOLVE_BENEATH}, {.flags = O_RDWR | O_TMPFILE, .mode = 0600, .resolve = RESOLVE_IN_ROOT}};
    pthread_create(&thread, NULL, moves, NULL);
    for (int i = 0; i < 8000; i++) {
        int way = i % 4, line = syscall(SYS_openat2, at, way < 2 ? "in/deep/../../secret" : way == 2 ? "in/deep/../../../out/secret" : "in/deep/../../../out", &ways[way], sizeof ways[way]);
        escaped += line >= 0, wrong += line < 0 && errno != EXDEV && errno != EAGAIN && errno != ENOENT;
        close(line);
    }
    is_over = 1, pthread_join(thread, NULL);
    IS(escaped == 0), IS(wrong == 0);
}
PROGRAM(set_ids_of_a_file_without_a_name) {
    struct stat s;
    umask(0), chmod(".", 0777);
    CHILD("a user", (syscall(SYS_setresgid, 1000, 1000, 1000), syscall(SYS_setresuid, 1000, 1000, 1000), ({ int line = open(".", O_TMPFILE | O_RDWR, 04755); T(line < 0); T(write(line, "x", 1)); fstat(line, &s); printf("%o\n", s.st_mode & 07777); })));
    CHILD("root", ({ int line = open(".", O_TMPFILE | O_RDWR, 04755); T(write(line, "x", 1)); fstat(line, &s); printf("%o\n", s.st_mode & 07777); }));
}
// The writer decides, at each write, not the opener of the file.
static long bits(int fd) { return about_fd(fd).st_mode & 07777; }
static void written(int to, const char *from_text) {
    int from = open(from_text, O_RDWR), line[2];
    loff_t at = 0;
    pipe(line), write(line[1], "pq", 2);
#define WRITTEN(mode, call) (fchmod(to, mode), T(call), printf("%lo\n", bits(to)))
#define BY_ROOT(mode, call) (fchmod(to, mode), ({ CHILD(#call, drop(); T(call)); }), printf("%lo\n", bits(to)))
    BY_ROOT(04755, write(to, "x", 1)), BY_ROOT(06755, write(to, "x", 1)), BY_ROOT(02745, write(to, "x", 1)), BY_ROOT(02755, write(to, "x", 1)), BY_ROOT(07777, write(to, "x", 1));
    BY_ROOT(04755, pwrite(to, "x", 1, 0)), BY_ROOT(04755, writev(to, (struct iovec[]){{"x", 1}, {"y", 1}}, 2)), BY_ROOT(04755, pwritev2(to, &(struct iovec){"x", 1}, 1, -1, RWF_APPEND)), BY_ROOT(04755, write(to, "x", 0)), BY_ROOT(04755, write(to, (void *)8, 1));
    BY_ROOT(04755, sendfile(to, from, &(off_t){0}, 2)), BY_ROOT(04755, copy_file_range(from, &(loff_t){0}, to, &at, 2, 0)), BY_ROOT(04755, splice(line[0], NULL, to, NULL, 1, 0));
    BY_ROOT(04755, ftruncate(to, 1)), BY_ROOT(04755, fallocate(to, 0, 0, 10)), BY_ROOT(04755, fallocate(to, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096));
    WRITTEN(06755, write(to, "x", 1)), WRITTEN(06755, ftruncate(to, 2)), WRITTEN(06755, sendfile(to, from, &(off_t){0}, 2));
    close(from), close(line[0]), close(line[1]);
}
PROGRAM(set_ids_at_the_write) {
    umask(0), chmod(".", 0777), put("text", "text");
    int of_root = open("f", O_CREAT | O_RDWR, 0755);
    written(of_root, "text");
    put("g", "text"), chown("g", 1000, 1000), seteuid(1000);
    int of_user = open("g", O_RDWR), appends = open("g", O_RDWR | O_APPEND);
    seteuid(0);
    written(of_user, "text");
    fchmod(of_user, 04755), T(write(appends, "x", 1)), printf("%lo\n", bits(of_user));
    CHILD("a user who appends", drop(); T(write(appends, "x", 1)));
    printf("%lo\n", bits(of_user));
    // Of a long write and a mapping.
    static char bytes[300000];
    fchmod(of_user, 04755);
    CHILD("a user who writes much", drop(); T(write(of_user, bytes, sizeof bytes)));
    printf("%lo\n", bits(of_user));
    fchmod(of_user, 04755);
    CHILD("a user who maps", drop(); *(char *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, of_user, 0) = 1);
    printf("%lo\n", bits(of_user));
    // The capability counts, not the user.
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[2];
    CHILD("root without CAP_FSETID", syscall(SYS_capget, &head, sets), sets[0].effective &= ~(1u << CAP_FSETID), syscall(SYS_capset, &head, sets), T(write(of_user, "x", 1)));
    printf("%lo\n", bits(of_user));
    IS(fcntl(memfd_create("m", MFD_ALLOW_SEALING), F_GET_SEALS) == 0), IS(fcntl(syscall(SYS_memfd_create, "m", MFD_ALLOW_SEALING), F_ADD_SEALS, 1 << 31) == -1);
    int sealed = memfd_create("m", MFD_ALLOW_SEALING);
    fchmod(sealed, 06777), T(fcntl(sealed, F_GET_SEALS)), T(write(sealed, "x", 1)), T(fcntl(sealed, F_GET_SEALS));
    // What is refused leaves them.
    fchmod(sealed, 04777), T(fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK));
    CHILD("shorter", drop(); T(ftruncate(sealed, 0)));
    printf("%lo\n", bits(sealed));
    CHILD("longer", drop(); T(ftruncate(sealed, 10)));
    printf("%lo\n", bits(sealed));
}
