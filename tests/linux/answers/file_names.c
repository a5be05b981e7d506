// Names: links, removals, renames, directories, nodes; permissions, and what the directory's times and counts say.
#include "files.h"

static long renames2(const char *from, const char *to, unsigned flags) {
    return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags);
}

PROGRAM(name_links) {
    put("f", "x"), mkdir("d", 0755), symlink("f", "s"), symlink("none", "dangling"), mkfifo("p", 0600);
    T(link("f", "g")), T(links("f")), T(link("f", "g")), T(link("f", "f")), T(link("none", "x")), T(link("d", "x")), T(link("f", "d")), T(link("f", "d/f")), T(link("f", "none/f")), T(link("f", "g/f")), T(link("f", "s")), T(link("f", "dangling")), T(links("f"));
    T(link("s", "s2")), IS(S_ISLNK(mode("s2"))), T(links("s")), T(linkat(AT_FDCWD, "s", AT_FDCWD, "s3", AT_SYMLINK_FOLLOW)), IS(S_ISREG(mode("s3"))), T(links("f")), T(linkat(AT_FDCWD, "dangling", AT_FDCWD, "s4", AT_SYMLINK_FOLLOW)), T(linkat(AT_FDCWD, "dangling", AT_FDCWD, "s4", 0)), T(linkat(AT_FDCWD, "f", AT_FDCWD, "h", 1)), T(link("p", "p2")), T(links("p2"));
    T(link("/dev/null", "null")), T(link("/proc/self/status", "status")), T(link("f", "/dev/shm/answers-linked")), unlink("/dev/shm/answers-linked");
    T(unlink("f")), T(links("g")), T(unlink("g")), T(unlink("s3")), T(links("d/f")), T(access("f", F_OK)), T(unlink("d")), T(unlink("p")), T(links("p2")), T(unlink("s2")), T(links("s"));
    put("users", "x"), chown("users", 1000, 1000), put("roots", "x"), chmod("roots", 0666), mkdir("closed", 0755);
    USER(T(link("users", "u2")), T(link("users", "closed/u")), T(link("closed", "x")), T(symlink("x", "closed/x")), T(unlink("closed/none")), T(unlink("roots")));
}
PROGRAM(name_counts) {
    T(links(".")), mkdir("a", 0755), T(links(".")), T(links("a")), mkdir("a/b", 0755), mkdir("a/c", 0755), T(links("a")), T(rename("a/b", "b")), T(links("a")), T(links(".")), T(rename("b", "a/c/b")), T(links("a/c")), T(links(".")), rmdir("a/c/b"), T(links("a/c")), put("a/f", ""), symlink("x", "a/s"), T(links("a"));
    T(renames2("a/c", "a/f", RENAME_EXCHANGE)), T(links("a")), mkdir("x", 0755), T(renames2("a/f", "x", RENAME_EXCHANGE)), T(links("a")), put("y", ""), T(renames2("x", "y", RENAME_EXCHANGE)), T(renames2("y", "a/c", RENAME_EXCHANGE)), T(links("a")), T(links("."));
    int d = open("a", O_RDONLY), removed = (mkdir("r", 0755), open("r", O_RDONLY));
    rmdir("r"), T(about_fd(removed).st_nlink), mkdir("s", 0755), mkdir("t", 0755), removed = open("t", O_RDONLY), T(rename("s", "t")), T(about_fd(removed).st_nlink);
    int f = open("z", O_CREAT | O_RDWR, 0600);
    put("w", "x"), T(about_fd(f).st_nlink), rename("w", "z"), T(about_fd(f).st_nlink), T(write(f, "x", 1)), T(fchmod(f, 0644)), T(about_fd(f).st_mode), T(ftruncate(f, 100)), T(about_fd(f).st_size), T(futimens(f, NULL)), T(fchown(f, 5, 5)), T(about_fd(f).st_uid);
}
PROGRAM(name_renames) {
    put("f", "f"), put("g", "g"), mkdir("d", 0755), mkdir("e", 0755), mkdir("full", 0755), put("full/x", "x"), symlink("f", "s"), symlink("d", "sd");
    T(rename("f", "f")), T(rename("f", "g")), IS(holds("g", "f")), T(access("f", F_OK)), T(rename("none", "x")), T(rename("g", "d")), T(rename("d", "g")), T(rename("d", "full")), T(rename("full", "d")), T(access("d/x", F_OK)), T(rename("d", "d/in")), T(rename("d", "d")), T(rename("d", "d/x")), T(rename("e", "d/x")), T(rename("d/x", "d")), T(rename("e", "d/none/e")), T(rename("none/x", "e")), T(rename("g/x", "e"));
    T(rename("s", "moved")), IS(S_ISLNK(mode("moved"))), T(rename("g", "moved")), IS(S_ISREG(mode("moved"))), T(rename("moved", "sd")), IS(S_ISREG(mode("sd"))), put("a", "1"), link("a", "b"), T(rename("a", "b")), T(access("a", F_OK)), T(links("a")), T(rename("a", "c")), T(links("b")), T(rename("c", "e/c")), T(rename("b", "e/c")), T(access("b", F_OK));
    mkdir("p", 0755), mkdir("p/q", 0755), mkdir("p/q/r", 0755), T(rename("p", "p/q/r/p")), T(rename("p/q/r", "p")), T(rename("p/q", "p/q/r")), T(rename("p/q/r", "p/r")), T(rename("p/q", "p/r")), T(access("p/r", F_OK)), T(rename("/proc", "x")), T(rename("/dev/null", "null")), T(rename("e", "/proc/e"));
    int fd = open("p", O_RDONLY);
    T(renameat(fd, "r", AT_FDCWD, "out")), T(renameat(AT_FDCWD, "out", fd, "back")), T(renameat(99, "x", fd, "y")), T(renameat(fd, "back", 99, "y")), T(renameat(fd, "back", fd, "")), T(renameat(fd, (void *)8, fd, "x")), T(renameat(fd, "back", fd, (void *)8));
    put("ro", "x"), chmod("ro", 0), T(rename("ro", "rw")), T(mode("rw"));
}
PROGRAM(name_renames_flags) {
    put("f", "f"), put("g", "g"), mkdir("d", 0755), mkdir("e", 0755), put("d/x", "x"), symlink("f", "s");
    T(renames2("f", "g", RENAME_NOREPLACE)), T(renames2("f", "h", RENAME_NOREPLACE)), T(renames2("h", "h", RENAME_NOREPLACE)), T(renames2("h", "d", RENAME_NOREPLACE)), T(renames2("d", "h", RENAME_NOREPLACE)), T(renames2("h", "s", RENAME_NOREPLACE)), T(renames2("none", "x", RENAME_NOREPLACE)), T(renames2("h", "x/", RENAME_NOREPLACE)), T(renames2("h", ".", RENAME_NOREPLACE)), T(renames2("h", "..", RENAME_NOREPLACE)), T(renames2("h", "d/.", RENAME_NOREPLACE));
    T(renames2("h", "g", RENAME_EXCHANGE)), IS(holds("h", "g") && holds("g", "f")), T(renames2("h", "none", RENAME_EXCHANGE)), T(renames2("none", "h", RENAME_EXCHANGE)), T(renames2("h", "d", RENAME_EXCHANGE)), IS(S_ISDIR(mode("h"))), IS(holds("d", "g")), T(renames2("h", "d", RENAME_EXCHANGE)), T(renames2("d", "d/x", RENAME_EXCHANGE)), T(renames2("d/x", "d", RENAME_EXCHANGE)), T(renames2("d", "d", RENAME_EXCHANGE)), T(renames2("d", "e", RENAME_EXCHANGE)), T(access("e/x", F_OK)), T(renames2("s", "e", RENAME_EXCHANGE)), IS(S_ISLNK(mode("e"))), T(renames2("h", "g/", RENAME_EXCHANGE)), T(renames2("h", "s/", RENAME_EXCHANGE)), T(renames2("s/", "d/", RENAME_EXCHANGE));
    T(renames2("h", "g", RENAME_NOREPLACE | RENAME_EXCHANGE)), T(renames2("h", "g", 8)), T(renames2("h", "g", -1)), T(renames2("h", "g", RENAME_EXCHANGE | RENAME_WHITEOUT)), mkdir("closed", 0755), put("closed/f", "x"), chmod(".", 0777), put("own", "x"), chown("own", 1000, 1000);
    USER(T(renames2("own", "closed/f", RENAME_EXCHANGE)), T(renames2("own", "closed/f", 0)), T(renames2("own", "closed/g", RENAME_NOREPLACE)), T(renames2("own", "closed/f", RENAME_NOREPLACE)), T(renames2("own", "h", RENAME_EXCHANGE)));
}
PROGRAM(name_rename_permission) {
    mkdir("from", 0777), mkdir("to", 0777), mkdir("closed", 0755), put("from/f", "x"), put("closed/f", "x"), mkdir("from/rootsdir", 0755), mkdir("from/usersdir", 0755), chown("from/usersdir", 1000, 1000), mkdir("sticky", 0777), chmod("sticky", 01777), put("sticky/r", "r"), mkdir("sticky/rd", 0777), put("sticky/u", "u"), chown("sticky/u", 1000, 1000);
    USER(T(rename("from/f", "to/f")), T(rename("to/f", "closed/g")), T(rename("closed/f", "to/g")), T(rename("from/rootsdir", "to/rootsdir")), T(rename("from/rootsdir", "from/renamed")), T(rename("from/usersdir", "to/usersdir")), T(rename("to/usersdir", "closed/u")), T(rename("sticky/r", "to/r")), T(rename("sticky/u", "sticky/r")), T(rename("sticky/u", "to/u")), T(rename("to/u", "sticky/r")), T(rename("to/u", "sticky/u")), T(rename("sticky/rd", "to/rd")), T(rmdir("sticky/rd")), T(rename("to/none", "closed/x")));
    T(access("to/f", F_OK)), T(access("from/renamed", F_OK));
}
PROGRAM(name_removals) {
    put("f", "abc"), mkdir("d", 0755), mkdir("d/e", 0755), symlink("d", "s"), symlink("f", "sf"), mkfifo("p", 0600), mknod("n", S_IFCHR | 0600, makedev(1, 3));
    int fd = open("f", O_RDWR), dir = open("d/e", O_RDONLY);
    char bytes[200];
    T(unlink("f")), T(unlink("f")), T(pread(fd, bytes, 9, 0)), T(about_fd(fd).st_nlink), T(write(fd, "defgh", 5)), T(lseek(fd, 0, SEEK_END)), T(readlink("/proc/self/fd/3", bytes, 200) > 10), put("f", "new"), T(pread(fd, bytes, 9, 0)), IS(about("f").st_ino != about_fd(fd).st_ino);
    T(rmdir("d")), T(rmdir("s")), T(unlink("s")), T(unlink("sf")), T(rmdir("p")), T(unlink("p")), T(unlink("n")), T(rmdir("d/e")), T(getdents64(dir, bytes, 200)), T(about_fd(dir).st_nlink), T(fchmod(dir, 0700)), T(about_fd(dir).st_mode), W(openat(dir, "x", O_CREAT | O_RDWR, 0600)), T(rmdir("d")), T(rmdir("d")), T(unlink("/")), T(rmdir("/proc")), T(rmdir("/dev")), T(unlink("/proc")), T(rmdir("/proc/self")), T(unlink("/proc/self"));
    mkdir("busy", 0755), chdir("busy"), T(rmdir("../busy")), T(rmdir("../busy")), T(rmdir(".")), chdir("/dev/shm"), T(unlink((void *)8)), T(rmdir((void *)8)), T(unlinkat(99, "x", 0)), T(unlinkat(0, "x", 0) == -1), T(unlinkat(AT_FDCWD, "x", AT_REMOVEDIR | 1));
}
PROGRAM(name_directories) {
    T(mkdir("d", 0777)), T(mode("d")), T(mkdir("d", 0777)), T(mkdir("e", 07777)), T(mode("e")), T(mkdir("f", 0)), T(mode("f")), T(mkdir("f/g", 0700)), T(mkdir("none/x", 0700)), T(mkdir("/dev/null/x", 0700)), T(mkdir("/dev/null", 0700)), T(mkdir("/", 0700)), T(mkdir("/sys/x", 0700)), T(mkdir("/proc/x", 0700)), T(mkdir("/proc/self/x", 0700)), T(mkdir((void *)8, 0700)), T(mkdirat(99, "x", 0700));
    umask(0), T(mkdir("h", 01777)), T(mode("h")), T(mkdir("i", 02777)), T(mode("i")), T(mkdir("j", S_IFREG | 0700)), T(mode("j")), umask(0777), T(mkdir("k", 0777)), T(mode("k")), umask(022);
    chmod("d", 0775), chown("d", 0, 1000), chmod("e", 02775), chown("e", 0, 1000), chmod("e", 02775), T(mode("e")), T(mkdir("e/in", 0777)), T(mode("e/in")), T(about("e/in").st_gid), T(put("e/file", "x")), T(mode("e/file")), T(about("e/file").st_gid), T(symlink("x", "e/link")), T(about("e/link").st_gid), T(mkfifo("e/fifo", 0600)), T(about("e/fifo").st_gid), W(open("e/exec", O_CREAT | O_RDWR, 02775)), T(mode("e/exec"));
    USER(T(mkdir("d/u", 0700)), T(about("d/u").st_gid), T(mkdir("e/u", 0700)), T(about("e/u").st_gid), T(mode("e/u")), W(open("e/s", O_CREAT | O_RDWR, 02755)), T(mode("e/s")), T(mkdir("x", 0700)));
    chmod(".", 0755);
    USER(T(mkdir("new", 0700)), T(mkdir("d", 0700)), T(mkdir("none/x", 0700)), T(rmdir("d")), T(rmdir("none")));
    CHILD("another group", setgroups(0, 0); setresgid(7, 7, 7); setresuid(1000, 1000, 1000); chmod("e", 0); T(mkdir("e/v", 0700)));
    chmod("e", 02777);
    CHILD("another group in a setgid directory", setgroups(0, 0); setresgid(7, 7, 7); setresuid(1000, 1000, 1000); T(mkdir("e/v", 02755)), T(mode("e/v")), T(about("e/v").st_gid), W(open("e/w", O_CREAT | O_RDWR, 02775)), T(mode("e/w")), W(open("e/y", O_CREAT | O_RDWR, 02745)), T(mode("e/y")));
}
PROGRAM(name_nodes) {
    T(mknod("reg", S_IFREG | 0640, 0)), T(mode("reg")), T(mknod("plain", 0640, 0)), T(mode("plain")), T(mknod("fifo", S_IFIFO | 0640, 0)), T(mode("fifo")), T(mknod("sock", S_IFSOCK | 0640, 0)), T(mode("sock")), T(mknod("dir", S_IFDIR | 0750, 0)), T(mknod("link", S_IFLNK | 0777, 0)), T(mknod("odd", 0030000, 0)), T(mknod("reg", S_IFREG | 0640, 0)), T(mknod("none/x", S_IFREG, 0)), T(mknod("reg/x", S_IFREG, 0)), T(mknod((void *)8, S_IFREG, 0));
    T(mknod("null", S_IFCHR | 0666, makedev(1, 3))), T(mode("null")), T(about("null").st_rdev), T(about("null").st_size), W(open("null", O_RDWR)), T(write(open("null", O_WRONLY), "x", 1)), T(mknod("zero", S_IFCHR | 0666, makedev(1, 5))), T(read(open("zero", O_RDONLY), (char[5]){0}, 5)), T(mknod("nodev", S_IFCHR | 0666, makedev(77, 3))), W(open("nodev", O_RDWR)), T(mknod("noblock", S_IFBLK | 0666, makedev(77, 3))), W(open("noblock", O_RDONLY)), T(mode("noblock")), T(about("noblock").st_rdev), T(mknod("big", S_IFCHR | 0666, makedev(300, 70000))), T(about("big").st_rdev), W(open("big", O_RDONLY)), W(open("nodev", O_PATH));
    W(open("sock", O_RDONLY)), W(open("sock", O_RDWR)), W(open("sock", O_PATH)), T(truncate("fifo", 0)), T(truncate("null", 0)), T(truncate("sock", 0)), T(access("sock", R_OK)), W(creat("sock", 0600)), T(link("sock", "sock2")), T(rename("sock2", "sock3")), T(unlink("sock3"));
    USER(T(mknod("c", S_IFCHR | 0600, makedev(1, 3))), T(mknod("b", S_IFBLK | 0600, makedev(1, 3))), T(mknod("f", S_IFIFO | 0600, 0)), T(mknod("r", S_IFREG | 0600, 0)), T(mknod("s", S_IFSOCK | 0600, 0)), T(mknod("0", S_IFCHR | 0600, 0)), T(mknod("d", S_IFDIR | 0600, 0)), T(mknod("reg", S_IFCHR | 0600, makedev(1, 3))));
    T(mknodat(99, "x", S_IFREG, 0)), T(mknodat(open(".", O_RDONLY), "at", S_IFREG | 0600, 0)), T(mkfifoat(open("reg", O_RDONLY), "x", 0600)), T(mknod("whiteout", S_IFCHR, 0)), T(mode("whiteout")), W(open("whiteout", O_RDONLY));
}
PROGRAM(name_symlinks) {
    T(symlink("target", "s")), T(mode("s")), T(length("s")), T(links("s")), T(symlink("x", "s")); char bytes[64];
    T(readlink("s", bytes, 64)), IS(memcmp(bytes, "target", 6) == 0), T(readlink("s", bytes, 3)), T(readlinkat(99, "s", bytes, 9)), T(readlinkat(open(".", O_RDONLY), "s", bytes, 9)), T(symlinkat("t", 99, "x")), T(symlink((void *)8, "x")), T(symlink("x", (void *)8)), T(lchown("s", 5, 6)), T(about("s").st_uid), T(about("s").st_gid), T(chown("s", 1, 1)), T(chmod("s", 0)), T(truncate("s", 0)), T(lutimes("s", (struct timeval[2]){{5, 0}, {6, 0}})), T(about("s").st_mtime), T(about("s").st_atime), T(utimes("s", NULL));
    put("target", "abc"), T(chown("s", 3, 4)), T(about("target").st_uid), T(chmod("s", 0600)), T(mode("target")), T(truncate("s", 1)), T(length("target")), T(unlink("s")), T(access("target", F_OK)), umask(0777), T(symlink("x", "masked")), T(mode("masked")), umask(022), T(symlink("a/b/../c", "odd")), T(readlink("odd", bytes, 64)), T(symlink("/", "root")), T(rmdir("root")), T(length("root")), T(about("root").st_blocks), T(open("root/dev/null", O_RDONLY) >= 0);
    USER(T(readlink("odd", bytes, 64)), T(lchown("odd", 1000, 1000)), T(lutimes("odd", NULL)), T(symlink("u", "mine")), T(about("mine").st_uid), T(lchown("mine", 1000, 1000)), T(lchown("mine", 0, 1000)), T(lutimes("mine", NULL)));
}
PROGRAM(name_times) {
    struct stat a, b;
    struct timespec old[2] = {{1000, 5}, {1000, 5}};
#define AGED(path) (utimensat(AT_FDCWD, path, old, AT_SYMLINK_NOFOLLOW), pause_ms(12), a = about(path))
#define MARKS(path) (b = about(path), printf("%s: %s%s%s\n", path, later(b.st_atim, a.st_atim) ? "a" : "-", later(b.st_mtim, a.st_mtim) ? "m" : "-", later(b.st_ctim, a.st_ctim) ? "c" : "-"), fflush(stdout))
    AGED("."), put("f", "x"), MARKS("."), AGED("."), put("f", "y"), MARKS("."), AGED("."), link("f", "g"), MARKS("."), AGED("f"), link("f", "h"), MARKS("f"), AGED("f"), unlink("h"), MARKS("f"), AGED("f"), rename("f", "i"), MARKS("i"), AGED("i"), chmod("i", 0600), MARKS("i"), AGED("i"), chown("i", -1, -1), MARKS("i"), AGED("i"), chown("i", 5, 5), MARKS("i"), AGED("i"), truncate("i", 1), MARKS("i"), AGED("i"), truncate("i", 5), MARKS("i");
    mkdir("d", 0755), AGED("d"), AGED("."), rmdir("d"), MARKS("."), mkdir("d", 0755), AGED("d"), mkdir("d/e", 0755), MARKS("d"), AGED("d"), chmod("d", 0700), MARKS("d"), AGED("d"), rename("d/e", "e"), MARKS("d"), AGED("e"), rename("e", "d/e"), MARKS("d/e"), AGED("."), symlink("x", "s"), MARKS("."), AGED("."), mkfifo("p", 0600), MARKS("."), AGED("."), unlink("p"), MARKS("."), AGED("."), access("none", F_OK), mkdir("d", 0), MARKS(".");
    int fd = open("i", O_RDWR);
    char byte;
    AGED("i"), read(fd, &byte, 1), MARKS("i"), AGED("i"), read(fd, &byte, 0), MARKS("i"), AGED("i"), write(fd, "x", 1), MARKS("i"), AGED("i"), write(fd, "x", 0), MARKS("i"), AGED("i"), pread(fd, &byte, 1, 1000), MARKS("i"), AGED("i"), ftruncate(fd, 5), MARKS("i"), AGED("i"), close(open("i", O_RDWR | O_TRUNC)), MARKS("i"), AGED("i"), close(open("i", O_RDWR | O_TRUNC)), MARKS("i"), AGED("i"), fchmod(fd, 0600), MARKS("i"), AGED("i"), fallocate(fd, 0, 0, 100), MARKS("i"), AGED("i"), fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 10), MARKS("i"), AGED("i"), fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 10), MARKS("i"), AGED("i"), truncate("i", 100), MARKS("i"), AGED("i"), futimens(fd, (struct timespec[2]){{0, UTIME_OMIT}, {0, UTIME_OMIT}}), MARKS("i");
    AGED("s"), readlink("s", &byte, 1), MARKS("s"), AGED("d"), close(open("d", O_RDONLY)), MARKS("d"), AGED("i"), close(open("i", O_CREAT | O_RDWR, 0600)), MARKS("i"), AGED("i"), rename("i", "i"), MARKS("i"), put("j", "x"), AGED("j"), rename("i", "j"), MARKS("j"), AGED("j"), chmod("j", 0600), MARKS("j"), AGED("j"), open("j", O_RDWR | O_APPEND), MARKS("j"), AGED("j"), lchown("j", 5, -1), MARKS("j");
    fd = open("/dev/null", O_RDWR), a = about_fd(fd), pause_ms(12), write(fd, "x", 1), b = about_fd(fd), IS(later(b.st_mtim, a.st_mtim));
}
PROGRAM(name_listing) {
    mkdir("d", 0755);
    for (int i = 0; i < 300; i++) {
        char at[32];
        sprintf(at, "d/name-%d", i), put(at, "");
    }
    static char bytes[65536];
    int fd = open("d", O_RDONLY), count = 0, calls = 0, got;
    T(syscall(SYS_getdents64, fd, bytes, 0)), T(syscall(SYS_getdents64, fd, bytes, 10)), T(syscall(SYS_getdents64, fd, bytes, 23)), T(syscall(SYS_getdents64, fd, (void *)8, 1000)), T(syscall(SYS_getdents64, 99, bytes, 1000)), T(syscall(SYS_getdents64, open("d/name-1", O_RDONLY), bytes, 1000)), T(syscall(SYS_getdents, fd, bytes, 10));
    struct entry { uint64_t ino; int64_t off; unsigned short len; unsigned char type; char name[]; } *e;
    int dots = 0, wrong = 0;
    while ((got = syscall(SYS_getdents64, fd, bytes, 1000)) > 0)
        for (char *at = bytes; at < bytes + got; at += e->len)
            e = (void *)at, count++, dots += e->name[0] == '.', wrong += e->type != (e->name[0] == '.' ? DT_DIR : DT_REG) || e->len % 8;
    T(got), T(count), T(dots), T(wrong), T(syscall(SYS_getdents64, fd, bytes, 1000)), T(lseek(fd, 0, SEEK_SET)), got = syscall(SYS_getdents64, fd, bytes, sizeof bytes), IS(got > 300 * 24), e = (void *)bytes, IS(strcmp(e->name, ".") == 0), e = (void *)(bytes + e->len), IS(strcmp(e->name, "..") == 0), T(lseek(fd, e->off, SEEK_SET) == e->off), IS(syscall(SYS_getdents64, fd, bytes, 40) > 0), IS(((struct entry *)bytes)->name[0] == 'n');
    T(lseek(fd, 0, SEEK_SET)), put("d/later", ""), unlink("d/name-7"), count = 0;
    int later_seen = 0, gone_seen = 0;
    while ((got = syscall(SYS_getdents64, fd, bytes, sizeof bytes)) > 0)
        for (char *at = bytes; at < bytes + got; at += e->len)
            e = (void *)at, count++, later_seen += strcmp(e->name, "later") == 0, gone_seen += strcmp(e->name, "name-7") == 0;
    T(count), T(later_seen), T(gone_seen), T(lseek(fd, 0, SEEK_SET)), IS(syscall(SYS_getdents64, fd, bytes, 2000) > 0);
    for (int i = 0; i < 300; i++) {
        char at[32];
        sprintf(at, "d/name-%d", i), unlink(at);
    }
    unlink("d/later"), T(syscall(SYS_getdents64, fd, bytes, 2000)), T(rmdir("d")), T(lseek(fd, 0, SEEK_SET)), T(syscall(SYS_getdents64, fd, bytes, 2000)), T(syscall(SYS_getdents64, open("d", O_RDONLY | O_PATH), bytes, 2000));
    mkdir("types", 0755), put("types/r", ""), mkdir("types/d", 0755), symlink("x", "types/l"), mkfifo("types/p", 0600), mknod("types/c", S_IFCHR | 0600, makedev(1, 3)), mknod("types/s", S_IFSOCK | 0600, 0), fd = open("types", O_RDONLY), got = syscall(SYS_getdents64, fd, bytes, sizeof bytes), count = 0;
    for (char *at = bytes; at < bytes + got; at += e->len)
        e = (void *)at, count += e->type * (e->name[0] == '.' ? 100 : e->name[0]), wrong += e->ino != about_fd(open(".", O_PATH)).st_ino && 0;
    T(count), T(about("types").st_size > 0), T(about("types").st_nlink);
}
// What a program's own link says, before and after its names move: run by the program below as a copy of this one.
static int says(const char *expected) {
    char at[300] = {0}, seen[300] = {0};
    snprintf(at, sizeof at, "%s/%s", getenv("COPY"), expected);
    long count = readlink("/proc/self/exe", seen, sizeof seen);
    return count == (long)strlen(at) && strcmp(at, seen) == 0;
}
PROGRAM(name_of_copy) {
    if (!getenv("COPY"))
        return;
    char seen[300] = {0};
    T(chdir(getenv("COPY"))), IS(says("d/a")), IS(says("d/a"));
    CHILD("child", IS(says("d/a")));
    T(readlink("/proc/self/exe", seen, 3)), IS(strlen(seen) == 3), T(readlink("/proc/self/exe", seen, 0)), T(readlink("/proc/self/exe", seen, -1)), T(readlink("/proc/self/exe", (void *)8, 9)), T(readlink("/proc/self/exe/", seen, 9)), T(readlink("/proc/self/exe", NULL, 0));
    T(rename("d/a", "d/b")), IS(says("d/b")), T(rename("d", "e")), IS(says("e/b"));
    CHILD("child", T(rename("e", "f")));
    IS(says("f/b")), T(link("f/b", "f/c")), IS(says("f/b")), T(put("x", "x")), T(rename("x", "f/b")), IS(says("f/b (deleted)"));
    CHILD("child", IS(says("f/b (deleted)")));
    T(unlink("f/c")), IS(says("f/b (deleted)"));
    T(chroot(".")), T(readlink("/proc/self/exe", seen, 300)), T(mkdir("/proc", 0755)), T(mkdir("/proc/self", 0755)), T(symlink("lie", "/proc/self/exe")), T(readlink("/proc/self/exe", seen, 300)), seen[3] = 0, IS(strcmp(seen, "lie") == 0);
}
PROGRAM(names_of_program) {
    char folder[64] = "/tmp/names-XXXXXX", at[300];
    IS(mkdtemp(folder) != NULL), sprintf(at, "%s/d", folder), T(mkdir(at, 0755)), strcat(at, "/a");
    int from = open("/proc/self/exe", O_RDONLY), to = open(at, O_CREAT | O_WRONLY, 0755);
    while (sendfile(to, from, NULL, 1 << 20) > 0) {
    }
    close(from), close(to), setenv("COPY", folder, 1);
    CHILD("copy", execl(at, at, "name_of_copy", NULL), _exit(98));
    unsetenv("COPY");
    CHILD("rest", execl("/bin/rm", "rm", "-rf", folder, NULL));
}
