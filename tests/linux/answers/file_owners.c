// Owners of files and their rights: modes, owners, set-ID bits, access checks, times that are set, umask.
#include "files.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>

static void as(int uid, int gid) {
    setgroups(0, NULL);
    setresgid(gid, gid, gid), setresuid(uid, uid, uid);
}

PROGRAM(owner_modes) {
    put("f", "x"), mkdir("d", 0755), symlink("f", "s"), symlink("none", "n");
    int fd = open("f", O_RDONLY), p[2];
    T(chmod("f", 0)), T(mode("f")), T(chmod("f", 07777)), T(mode("f")), T(chmod("f", 0177777)), T(mode("f")), T(chmod("f", 0100644)), T(mode("f")), T(chmod("d", 01777)), T(mode("d")), T(chmod("d", 06000)), T(mode("d")), T(chmod("s", 0600)), T(mode("f")), T(mode("s")), T(chmod("n", 0600)), T(chmod("none", 0600)), T(chmod("", 0600)), T(chmod("f/x", 0600)), T(chmod((void *)8, 0600)), T(chmod("/proc/self/status", 0600)), T(chmod("/dev/null", 0666)), T(chmod("/proc/self/fd/3", 0640)), T(mode("f"));
    T(fchmod(fd, 0604)), T(mode("f")), T(fchmod(99, 0)), pipe(p), T(fchmod(p[0], 0640)), T(about_fd(p[0]).st_mode), T(about_fd(p[1]).st_mode), T(fchmod(socket(AF_UNIX, SOCK_STREAM, 0), 0600)), T(fchmod(open("f", O_PATH), 0)), T(fchmodat(99, "f", 0600, 0)), T(fchmodat(99, "/dev/null", 0666, 0)), T(fchmodat(fd, "f", 0600, 0)), T(fchmodat(AT_FDCWD, "f", 0600, 0x1000)), T(fchmodat(AT_FDCWD, "f", 0600, AT_SYMLINK_NOFOLLOW)), T(mode("f")), T(fchmodat(AT_FDCWD, "s", 0600, AT_SYMLINK_NOFOLLOW));
    chmod("f", 0666), chmod("d", 0777), put("mine", "x"), chown("mine", 1000, 1000), put("ours", "x"), chown("ours", 1000, 0), chmod("ours", 0644);
    USER(T(chmod("f", 0600)), T(fchmod(fd, 0600)), T(chmod("mine", 06755)), T(mode("mine")), T(chmod("ours", 06755)), T(mode("ours")), T(chmod("ours", 01644)), T(mode("ours")), T(chmod("d", 0700)), T(chmod("/proc/self/status", 0600)), T(chmod("/dev/null", 0600)), T(chmod("none", 0600)));
}
PROGRAM(owner_owners) {
    put("f", "x"), mkdir("d", 0755), symlink("f", "s"), symlink("none", "n");
    int fd = open("f", O_RDONLY), p[2];
    T(chown("f", 5, 6)), T(about("f").st_uid), T(about("f").st_gid), T(chown("f", -1, 7)), T(about("f").st_uid), T(about("f").st_gid), T(chown("f", 8, -1)), T(about("f").st_uid), T(chown("f", -1, -1)), T(chown("f", 0xfffffffe, 0xfffffffe)), T(about("f").st_uid), T(chown("s", 1, 1)), T(about("f").st_uid), T(about("s").st_uid), T(lchown("s", 2, 2)), T(about("s").st_uid), T(chown("n", 1, 1)), T(lchown("n", 3, 3)), T(chown("none", 1, 1)), T(chown("", 1, 1)), T(chown("f/x", 1, 1)), T(chown((void *)8, 1, 1)), T(lchown("none", -1, -1));
    T(fchown(fd, 9, 9)), T(about("f").st_uid), T(fchown(99, 1, 1)), pipe(p), T(fchown(p[0], 4, 4)), T(about_fd(p[1]).st_uid), T(fchown(socket(AF_UNIX, SOCK_STREAM, 0), 1, 1)), T(fchown(open("f", O_PATH), 1, 1)), T(fchownat(99, "f", 1, 1, 0)), T(fchownat(fd, "f", 1, 1, 0)), T(fchownat(AT_FDCWD, "s", 6, 6, AT_SYMLINK_NOFOLLOW)), T(about("s").st_uid), T(fchownat(AT_FDCWD, "s", 6, 6, 0x10)), T(fchownat(AT_FDCWD, "s", 7, 7, AT_SYMLINK_FOLLOW) == 0), T(chown("/proc/self/status", 1, 1)), T(chown("/dev/null", 0, 0));
    chmod("f", 06755), T(chown("f", -1, -1)), T(mode("f")), chmod("f", 06755), T(chown("f", 1, -1)), T(mode("f")), chmod("f", 06755), T(chown("f", -1, 1)), T(mode("f")), chmod("f", 06745), T(chown("f", 1, 1)), T(mode("f")), chmod("d", 06755), T(chown("d", 1, 1)), T(mode("d")), chmod("f", 02745), T(chown("f", -1, -1)), T(mode("f"));
    put("mine", "x"), chown("mine", 1000, 1000);
    CHILD("an owner in groups", setgroups(2, (gid_t[]){1000, 77}); setresgid(1000, 1000, 1000); setresuid(1000, 1000, 1000); T(chown("mine", 0, -1)), T(chown("mine", 1000, -1)), T(chown("mine", -1, 77)), T(about("mine").st_gid), T(chown("mine", -1, 78)), T(chown("mine", 1000, 1000)), T(chown("mine", -1, -1)), T(chown("f", -1, -1)), T(chown("f", -1, 1000)), T(chown("f", 1000, 1000)), chmod("mine", 06755), T(chown("mine", -1, -1)), T(mode("mine")), chmod("mine", 06755), T(chown("mine", -1, 77)), T(mode("mine")), chmod("mine", 02745), T(mode("mine")), T(chown("mine", -1, 77)), T(mode("mine")));
}
PROGRAM(owner_set_ids) {
    put("f", "0123456789");
    chmod("f", 0666);
    int fd = open("f", O_RDWR);
#define AGAIN(m) (chown("f", 1000, 1000), chmod("f", m))
    AGAIN(06777);
    USER(int u = open("f", O_RDWR); T(write(u, "x", 1)), T(mode("f")));
    AGAIN(06767);
    USER(int u = open("f", O_RDWR); T(write(u, "x", 1)), T(mode("f")));
    AGAIN(06777), T(write(fd, "x", 1)), T(mode("f")), AGAIN(06777);
    CHILD("an owner writes nothing", as(1000, 1000); int u = open("f", O_RDWR); T(write(u, "x", 0)), T(mode("f")), T(pread(u, (char[2]){0}, 1, 0)), T(mode("f")));
    AGAIN(06777);
    CHILD("by a map", as(1000, 1000); int u = open("f", O_RDWR); char *map = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, u, 0); map[0] = 1; T(mode("f")));
    AGAIN(06777);
    CHILD("allocates", as(1000, 1000); int u = open("f", O_RDWR); T(fallocate(u, 0, 0, 20)), T(mode("f")));
    AGAIN(06777);
    CHILD("truncates as it opens", as(1000, 1000); open("f", O_RDWR | O_TRUNC); T(mode("f")));
    AGAIN(06777);
    CHILD("sets times", as(1000, 1000); T(utimes("f", NULL)), T(mode("f")));
    AGAIN(06777);
    CHILD("links", as(1000, 1000); T(link("f", "l")), T(mode("f")), T(rename("f", "g")), T(mode("g")), T(rename("g", "f")));
    AGAIN(02777);
    CHILD("writev", as(5, 5); struct iovec v = {"ab", 2}; int u = open("f", O_RDWR); T(writev(u, &v, 1)), T(mode("f")));
    AGAIN(04777);
    CHILD("copies into", as(5, 5); int u = open("f", O_RDWR); T(copy_file_range(u, &(off_t){0}, u, &(off_t){5}, 2, 0)), T(mode("f")));
    AGAIN(06777);
    CHILD("sends into", as(5, 5); int u = open("f", O_RDWR); put("/dev/shm/answers-none/x", ""); T(sendfile(u, open("f", O_RDONLY), &(off_t){0}, 2)), T(mode("f")));
}
PROGRAM(owner_access) {
    put("f", "x"), mkdir("d", 0755), chmod("f", 0), symlink("f", "s"), symlink("none", "n"), put("x", "x"), chmod("x", 0100);
    T(access("f", F_OK)), T(access("f", R_OK)), T(access("f", W_OK)), T(access("f", X_OK)), T(access("f", R_OK | W_OK | X_OK)), T(access("x", X_OK)), T(access("d", X_OK)), T(access("f", 8)), T(access("f", -1)), T(access("none", 8)), T(access("s", R_OK)), T(access("n", F_OK)), T(access("f/x", F_OK)), T(access("/proc/self/status", W_OK)), T(access("/proc/self/status", X_OK)), T(access("/dev/null", X_OK)), T(access("/dev/null", W_OK)), T(access("/proc", W_OK)), T(faccessat(99, "f", F_OK, 0)), T(faccessat(AT_FDCWD, "n", F_OK, AT_SYMLINK_NOFOLLOW)), T(faccessat(AT_FDCWD, "s", X_OK, AT_SYMLINK_NOFOLLOW)), T(faccessat(AT_FDCWD, "f", F_OK, AT_EACCESS)), T(faccessat(open("x", O_RDONLY), "f", F_OK, 0));
    chmod("f", 0640), chown("f", 1000, 77), mkdir("closed", 0700), put("closed/f", "x");
    CHILD("real and effective", setgroups(0, 0); setresgid(5, 0, 0); setresuid(1000, 0, 0); T(access("f", R_OK)), T(access("f", W_OK)), T(access("f", X_OK)), T(access("closed/f", F_OK)), T(faccessat(AT_FDCWD, "closed/f", F_OK, AT_EACCESS)), T(faccessat(AT_FDCWD, "f", X_OK, AT_EACCESS)), W(open("closed/f", O_RDONLY)));
    CHILD("effective user", setgroups(0, 0); setresgid(0, 1000, 1000); setresuid(0, 1000, 1000); T(access("closed/f", R_OK)), T(faccessat(AT_FDCWD, "closed/f", R_OK, AT_EACCESS)), W(open("closed/f", O_RDONLY)));
    CHILD("of the group", setgroups(1, (gid_t[]){77}); setresgid(5, 5, 5); setresuid(5, 5, 5); T(access("f", R_OK)), T(access("f", W_OK)), T(access("closed", F_OK)), T(access("closed", X_OK)), T(access("closed/none", F_OK)));
    USER(T(access("f", R_OK | W_OK)), T(access("f", X_OK)), T(access("x", X_OK)), T(access("/", W_OK)), T(access("/dev/shm", W_OK)), T(access("/proc/1/status", R_OK)), T(access("/proc/self/environ", F_OK)));
}
PROGRAM(owner_times) {
    put("f", "x"), symlink("f", "s"), symlink("none", "n");
    struct timespec t[2] = {{100, 1}, {200, 2}};
    struct stat s;
    int fd = open("f", O_RDONLY);
#define TIMES (s = about("f"), printf("%ld.%09ld %ld.%09ld\n", s.st_atim.tv_sec, s.st_atim.tv_nsec, s.st_mtim.tv_sec, s.st_mtim.tv_nsec), fflush(stdout))
    T(utimensat(AT_FDCWD, "f", t, 0)), TIMES, t[0].tv_nsec = UTIME_OMIT, t[1].tv_sec = 300, T(utimensat(AT_FDCWD, "f", t, 0)), TIMES, t[0].tv_nsec = 5, t[1].tv_nsec = UTIME_OMIT, T(futimens(fd, t)), TIMES, t[0].tv_nsec = UTIME_OMIT, T(futimens(fd, t)), TIMES, t[0].tv_nsec = 1000000000, T(futimens(fd, t)), t[0].tv_nsec = -1, T(futimens(fd, t)), t[0] = (struct timespec){-5, 7}, t[1] = (struct timespec){1l << 33, 9}, T(futimens(fd, t)), TIMES, t[0].tv_nsec = UTIME_NOW, t[1].tv_nsec = UTIME_NOW, T(futimens(fd, t)), IS(about("f").st_mtime > 1000000), t[0] = (struct timespec){1, 1}, T(utimensat(AT_FDCWD, "f", t, 0)), s = about("f"), IS(s.st_atime == 1 && s.st_mtime > 1000000);
    t[0] = t[1] = (struct timespec){1, 1}, T(utimensat(AT_FDCWD, "s", t, AT_SYMLINK_NOFOLLOW)), T(about("s").st_mtime), T(utimensat(AT_FDCWD, "n", t, 0)), T(utimensat(AT_FDCWD, "n", t, AT_SYMLINK_NOFOLLOW)), T(utimensat(AT_FDCWD, "f", t, 1)), T(utimensat(99, "f", t, 0)), T(utimensat(fd, "f", t, 0)), T(utimensat(AT_FDCWD, "", t, 0)), T(utimensat(AT_FDCWD, "none", (void *)8, 0)), T(futimens(99, t)), t[0].tv_nsec = t[1].tv_nsec = UTIME_OMIT, T(utimensat(AT_FDCWD, "none", t, 0)), T(utimensat(99, "none", t, 0));
    T(utime("f", &(struct utimbuf){7, 8})), TIMES, T(utimes("f", (struct timeval[2]){{9, 10}, {11, 12}})), TIMES, T(utimes("f", (struct timeval[2]){{9, 1000000}, {11, 12}})), T(utimes("f", (struct timeval[2]){{9, -1}, {11, 12}})), T(syscall(SYS_utime, "none", NULL)), T(syscall(SYS_utime, "f", 8)), T(syscall(SYS_utimes, "f", 8)), T(futimesat(AT_FDCWD, "f", NULL)), T(syscall(SYS_futimesat, fd, NULL, NULL)), IS(about("f").st_mtime > 1000000), T(futimesat(99, "f", NULL));
    t[0] = t[1] = (struct timespec){1, 1}, chmod("f", 0444);
    struct timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}}, half[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}}, none[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
    USER(T(utimensat(AT_FDCWD, "f", NULL, 0)), T(utimensat(AT_FDCWD, "f", now, 0)), T(utimensat(AT_FDCWD, "f", half, 0)), T(utimensat(AT_FDCWD, "f", none, 0)), T(utimensat(AT_FDCWD, "f", t, 0)), T(futimens(fd, NULL)), T(futimens(fd, t)));
    chmod("f", 0666);
    USER(T(utimensat(AT_FDCWD, "f", NULL, 0)), T(utimensat(AT_FDCWD, "f", now, 0)), T(utimensat(AT_FDCWD, "f", half, 0)), T(utimensat(AT_FDCWD, "f", none, 0)), T(utimensat(AT_FDCWD, "f", t, 0)), T(futimens(fd, NULL)), T(futimens(fd, t)));
    chown("f", 1000, 0), chmod("f", 0);
    USER(T(utimensat(AT_FDCWD, "f", NULL, 0)), T(utimensat(AT_FDCWD, "f", half, 0)), T(utimensat(AT_FDCWD, "f", t, 0)), T(futimens(fd, t)));
    int p[2];
    pipe(p), T(futimens(p[0], t)), T(about_fd(p[0]).st_mtime), T(futimens(open("f", O_PATH), t)), T(utimensat(AT_FDCWD, "/proc/self/status", NULL, 0));
}
PROGRAM(owner_relatime) {
    struct timespec t[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
    struct stat a, b;
    char byte;
    put("f", "0123456789"), mkdir("d", 0755);
    int fd = open("f", O_RDWR), quiet = open("f", O_RDONLY | O_NOATIME);
#define READS(what, fd) (a = about("f"), pause_ms(12), read(fd, &byte, 1), b = about("f"), printf("%s: %s\n", what, later(b.st_atim, a.st_atim) ? "moves" : "stays"), fflush(stdout))
    pause_ms(12), futimens(fd, t), READS("new", fd), READS("again", fd), pause_ms(12), write(fd, "x", 1), READS("after a write", fd), READS("again", fd), pause_ms(12), chmod("f", 0600), READS("after a change", fd), READS("again", fd), t[0] = (struct timespec){1000, 0}, futimens(fd, t), READS("old, quietly", quiet), READS("old", fd), READS("again", fd);
    t[0].tv_nsec = UTIME_OMIT, t[1] = (struct timespec){1000, 0}, pause_ms(12), futimens(fd, t), READS("mtime of old, changed now", fd), READS("again", fd);
    char *map = mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0);
    a = about("f"), pause_ms(12), byte = map[0], b = about("f"), IS(later(b.st_atim, a.st_atim)), t[0] = (struct timespec){1000, 0}, t[1].tv_nsec = UTIME_OMIT, futimens(fd, t), pread(fd, &byte, 1, 100), IS(about("f").st_atime > 1000), futimens(fd, t), pread(fd, &byte, 0, 0), IS(about("f").st_atime > 1000), futimens(fd, t), sendfile(open("/dev/null", O_WRONLY), fd, &(off_t){0}, 5), IS(about("f").st_atime > 1000), futimens(fd, t), copy_file_range(fd, &(off_t){0}, open("g", O_CREAT | O_RDWR, 0600), NULL, 5, 0), IS(about("f").st_atime > 1000);
    int d = open("d", O_RDONLY);
    t[0].tv_nsec = 0, t[1] = (struct timespec){500, 0}, futimens(d, t), close(open("d", O_RDONLY)), IS(about("d").st_atime > 1000), getdents64(d, (char[1000]){0}, 1000), IS(about("d").st_atime > 1000), futimens(d, t), access("d/none", F_OK), IS(about("d").st_atime > 1000);
}
PROGRAM(owner_stored) {
    put("f", "x"), mkdir("d", 0755);
    int fd = open("f", O_RDWR);
    char *map = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct timespec old[2] = {{1000, 0}, {1000, 0}};
    futimens(fd, old), pause_ms(12), map[0] = 'y', msync(map, 4096, MS_SYNC), IS(about("f").st_mtime >= 1000), T(pread(fd, &(char){0}, 1, 0)), munmap(map, 4096), futimens(fd, old), map = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0), map[0] = 'z', T(about("f").st_mtime), IS(holds("f", "y"));
    struct stat a = about("f"), b;
    struct statx x;
    T(statx(AT_FDCWD, "f", 0, STATX_ALL, &x)), IS(x.stx_mask & STATX_BTIME), IS(x.stx_btime.tv_sec > 1000000), T(x.stx_attributes & 0x7f), T(x.stx_nlink), T(x.stx_mode), T(x.stx_blksize), T(x.stx_ino == a.st_ino), T(x.stx_dev_minor == minor(a.st_dev)), IS(x.stx_ctime.tv_sec == a.st_ctim.tv_sec), T(statx(AT_FDCWD, "/", 0, STATX_BASIC_STATS, &x)), IS(x.stx_attributes & STATX_ATTR_MOUNT_ROOT), T(statx(AT_FDCWD, "d", 0, STATX_BASIC_STATS, &x)), IS(x.stx_attributes & STATX_ATTR_MOUNT_ROOT), T(statx(AT_FDCWD, "none", 0, STATX_ALL, &x)), T(statx(99, "f", 0, STATX_ALL, &x)), T(statx(fd, "f", 0, STATX_ALL, &x)), T(statx(AT_FDCWD, "", 0, STATX_ALL, &x)), T(statx(fd, NULL, 0, STATX_ALL, &x)), T(statx(AT_FDCWD, "f", AT_STATX_FORCE_SYNC | AT_STATX_DONT_SYNC, STATX_ALL, &x)), T(statx(AT_FDCWD, "f", AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_ALL, &x));
    IS(about("f").st_dev == about(".").st_dev), IS(about("/proc").st_dev != about(".").st_dev), IS(about("/dev/pts").st_dev != about("/dev").st_dev), IS(about("/dev/shm").st_dev != about("/dev").st_dev), T(about("/proc").st_ino), T(about("/proc").st_size), T(about("/proc/self").st_size > 0), T(about("/sys").st_ino), T(about("/dev/pts").st_ino), T(about("/proc").st_blocks), T(about("/proc/self/status").st_size), T(about("/proc/self/maps").st_mode), T(about("/proc/self/fd").st_mode), T(about("/proc/self/exe").st_mode), T(about("/proc/self/environ").st_mode);
}
PROGRAM(owner_masks) {
    T(umask(0)), T(umask(01777)), T(umask(-1)), T(umask(022)), umask(077), T(put("a", "")), T(mode("a")), T(mkdir("b", 0777)), T(mode("b")), T(mkfifo("c", 0666)), T(mode("c")), T(mknod("d", S_IFREG | 0666, 0)), T(mode("d")), T(chmod("a", 0666)), T(mode("a")), T(symlink("x", "e")), T(mode("e")), W(open(".", O_TMPFILE | O_RDWR, 0666)), T(about_fd(open(".", O_TMPFILE | O_RDWR, 0666)).st_mode);
    CHILD("inherited", T(umask(0)));
    T(umask(022)), T(umask(022));
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un at = {AF_UNIX, "sock"};
    umask(027), T(bind(s, (void *)&at, sizeof at)), T(mode("sock")), T(about_fd(s).st_mode), umask(022), T(about_fd(memfd_create("m", 0)).st_mode), T(about_fd(eventfd(0, 0)).st_mode);
    int p[2];
    pipe(p), T(about_fd(p[0]).st_mode), T(about_fd(p[0]).st_nlink), T(about_fd(p[0]).st_blksize), T(about_fd(s).st_nlink), T(about_fd(s).st_size), T(about_fd(memfd_create("m", 0)).st_nlink), T(about_fd(inotify_init()).st_mode), T(about_fd(epoll_create(1)).st_mode), T(about_fd(p[0]).st_ino == about_fd(p[1]).st_ino), T(about_fd(p[0]).st_dev == about_fd(p[1]).st_dev);
}
