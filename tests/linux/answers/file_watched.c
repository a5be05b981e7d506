// Watches, attributes of files that others have set, quotas, mounts: what each answers with and without privilege.
#include "files.h"
#include <sys/inotify.h>
#include <sys/quota.h>
#include <sys/xattr.h>

// Prints what has been told since the last time.
static void told(int fd, const char *when) {
    static char bytes[65536] __attribute__((aligned(8)));
    long count = read(fd, bytes, sizeof bytes);
    printf("%s:", when);
    for (char *at = bytes; at < bytes + count;) {
        struct inotify_event *e = (void *)at;
        printf(" %d/%x%s%s%s", e->wd, e->mask, e->cookie ? "*" : "", e->len ? "=" : "", e->len ? e->name : "");
        at += sizeof *e + e->len;
    }
    printf("%s\n", count < 0 ? strerrorname_np(errno) : ""), fflush(stdout);
}

PROGRAM(watch_calls) {
    put("f", "x"), mkdir("d", 0755), symlink("f", "l"), symlink("none", "n");
    int fd = inotify_init1(IN_NONBLOCK);
    T(inotify_init1(1)), T(inotify_init1(-1)), T(fcntl(inotify_init1(IN_CLOEXEC), F_GETFD)), T(inotify_add_watch(fd, "f", IN_ALL_EVENTS)), T(inotify_add_watch(fd, "l", IN_MODIFY)), T(inotify_add_watch(fd, "l", IN_MODIFY | IN_DONT_FOLLOW)), T(inotify_add_watch(fd, "n", IN_MODIFY)), T(inotify_add_watch(fd, "n", IN_MODIFY | IN_DONT_FOLLOW)), T(inotify_add_watch(fd, "none", IN_MODIFY)), T(inotify_add_watch(fd, "", IN_MODIFY)), T(inotify_add_watch(fd, (void *)8, IN_MODIFY)), T(inotify_add_watch(fd, "f", 0)), T(inotify_add_watch(fd, "f", IN_ONLYDIR)), T(inotify_add_watch(fd, "f", IN_MODIFY | IN_ONLYDIR)), T(inotify_add_watch(fd, "d", IN_MODIFY | IN_ONLYDIR)), T(inotify_add_watch(fd, "d", IN_MODIFY | IN_MASK_CREATE)), T(inotify_add_watch(fd, "d", IN_CREATE | IN_MASK_ADD)), T(inotify_add_watch(fd, "d", IN_MASK_ADD | IN_MASK_CREATE | IN_MODIFY)), T(inotify_add_watch(0, "d", IN_MODIFY)), T(inotify_add_watch(99, "d", IN_MODIFY)), T(inotify_add_watch(fd, "f/x", IN_MODIFY)), T(inotify_add_watch(fd, "f", IN_UNMOUNT)), T(inotify_add_watch(fd, "f", 0x00100000));
    told(fd, "none yet"), T(inotify_rm_watch(fd, 77)), T(inotify_rm_watch(99, 1)), T(inotify_rm_watch(0, 1)), T(inotify_rm_watch(fd, 1)), told(fd, "one less"), T(inotify_rm_watch(fd, 1)), T(inotify_rm_watch(fd, -1));
    mkdir("closed", 0711);
    USER(T(inotify_add_watch(fd, "closed", IN_MODIFY)), T(inotify_add_watch(fd, "d", IN_MODIFY)), T(inotify_add_watch(fd, "closed/x", IN_MODIFY)));
    T(write(fd, "x", 1)), T(pread(fd, (char[99]){0}, 99, 0)), T(fsync(fd)), T(ioctl(fd, FIONREAD, &(int){0})), T(poll(&(struct pollfd){fd, POLLIN}, 1, 0));
}
PROGRAM(watch_files) {
    put("f", "x");
    int fd = inotify_init1(IN_NONBLOCK), f;
    char byte;
    inotify_add_watch(fd, "f", IN_ALL_EVENTS), f = open("f", O_RDWR), told(fd, "open"), read(f, &byte, 1), told(fd, "read"), read(f, &byte, 1), told(fd, "read at the end"), read(f, &byte, 0), told(fd, "read of nothing"), write(f, "y", 1), told(fd, "write"), write(f, "", 0), told(fd, "write of nothing"), pwrite(f, "z", 1, 0), told(fd, "pwrite"), ftruncate(f, 0), told(fd, "ftruncate"), ftruncate(f, 0), told(fd, "ftruncate to the same"), truncate("f", 5), told(fd, "truncate"), fallocate(f, 0, 0, 100), told(fd, "fallocate"), fchmod(f, 0600), told(fd, "chmod"), fchmod(f, 0600), told(fd, "chmod to the same"), fchown(f, 1, 1), told(fd, "chown"), futimens(f, NULL), told(fd, "times"), fsync(f), told(fd, "fsync"), close(f), told(fd, "close"), close(open("f", O_RDONLY)), told(fd, "opened to read"), close(open("f", O_WRONLY | O_TRUNC)), told(fd, "opened to cut"), close(open("f", O_WRONLY | O_TRUNC)), told(fd, "opened to cut again"), close(open("f", O_PATH)), told(fd, "a place"), access("f", R_OK), told(fd, "access");
    link("f", "g"), told(fd, "link"), unlink("g"), told(fd, "unlink"), rename("f", "h"), told(fd, "rename"), setxattr("h", "user.a", "x", 1, 0), told(fd, "setxattr"), getxattr("h", "user.a", &byte, 1), told(fd, "getxattr"), removexattr("h", "user.a"), told(fd, "removexattr"), put("h", "x"), told(fd, "anew"), f = open("h", O_RDONLY);
    char *map = mmap(0, 4096, PROT_READ, MAP_SHARED, f, 0);
    byte = map[0], told(fd, "mapped"), munmap(map, 4096), unlink("h"), told(fd, "unlinked while open"), close(f), told(fd, "gone");
}
PROGRAM(watch_directories) {
    mkdir("d", 0755), mkdir("e", 0755);
    int fd = inotify_init1(IN_NONBLOCK), f;
    T(inotify_add_watch(fd, "d", IN_ALL_EVENTS)), T(inotify_add_watch(fd, "e", IN_ALL_EVENTS)), close(open("d/f", O_CREAT | O_RDWR, 0600)), told(fd, "create"), put("d/f", "x"), told(fd, "write"), chmod("d/f", 0644), told(fd, "chmod in it"), rename("d/f", "d/g"), told(fd, "rename in it"), rename("d/g", "e/g"), told(fd, "rename across"), rename("e/g", "out"), told(fd, "rename out"), rename("out", "d/in"), told(fd, "rename in"), link("d/in", "e/link"), told(fd, "link"), symlink("x", "d/s"), told(fd, "symlink"), mkdir("d/sub", 0755), told(fd, "mkdir"), rmdir("d/sub"), told(fd, "rmdir"), mkfifo("d/p", 0600), told(fd, "mkfifo"), unlink("d/p"), told(fd, "unlink"), put("e/over", "y"), told(fd, "put"), rename("d/in", "e/over"), told(fd, "rename over"), syscall(SYS_renameat2, AT_FDCWD, "e/over", AT_FDCWD, "d/s", RENAME_EXCHANGE), told(fd, "exchange"), f = open("d", O_RDONLY), told(fd, "open directory"), getdents64(f, (char[1000]){0}, 1000), told(fd, "list"), close(f), told(fd, "close directory"), chmod("d", 0700), told(fd, "chmod directory"), chdir("d"), told(fd, "chdir"), chdir(".."), readlink("e/over", (char[9]){0}, 9), told(fd, "readlink"), rename("d", "moved"), told(fd, "move itself"), unlink("moved/s"), told(fd, "empty"), rmdir("moved"), told(fd, "remove itself");
}
PROGRAM(watch_masks) {
    mkdir("d", 0755);
    int fd = inotify_init1(IN_NONBLOCK);
    T(inotify_add_watch(fd, "d", IN_CREATE)), put("d/a", ""), told(fd, "create only"), T(inotify_add_watch(fd, "d", IN_DELETE | IN_MASK_ADD)), put("d/b", ""), unlink("d/b"), told(fd, "delete added"), T(inotify_add_watch(fd, "d", IN_DELETE)), put("d/c", ""), unlink("d/c"), told(fd, "delete alone"), T(inotify_add_watch(fd, "d", IN_CREATE | IN_ONESHOT)), put("d/e", ""), put("d/f", ""), told(fd, "once"), T(inotify_rm_watch(fd, 1)), T(inotify_add_watch(fd, "d", IN_MODIFY)), put("d/e", "x"), put("d/e", "y"), told(fd, "the same twice"), T(inotify_add_watch(fd, "d/e", IN_OPEN)), close(open("d/e", O_RDONLY)), close(open("d/e", O_RDONLY)), told(fd, "opens in a row"), T(inotify_add_watch(fd, "d/e", IN_DELETE_SELF | IN_EXCL_UNLINK)), unlink("d/e"), told(fd, "deleted"), T(inotify_add_watch(fd, "d", IN_CLOSE)), close(open("d/f", O_RDWR)), close(open("d/f", O_RDONLY)), told(fd, "closes"), T(inotify_add_watch(fd, "d", IN_MOVE)), rename("d/f", "d/g"), told(fd, "moves");
    int f = open("d/g", O_RDWR);
    T(inotify_add_watch(fd, "d", IN_MODIFY | IN_EXCL_UNLINK)), unlink("d/g"), write(f, "x", 1), told(fd, "after its name went"), T(inotify_add_watch(fd, "d", IN_MODIFY)), write(f, "x", 1), told(fd, "told all the same");
    put("d/long-name-of-a-file", ""), rmdir("d"), T(inotify_add_watch(fd, "d", IN_CREATE)), put("d/another", ""), T(read(fd, (char[16]){0}, 16)), T(read(fd, (char[31]){0}, 31)), T(read(fd, (char[32]){0}, 32)), T(read(fd, (char[32]){0}, 32)), T(read(fd, (void *)8, 100));
    put("d/x1", ""), put("d/x2", ""), T(ioctl(fd, FIONREAD, &f)), T(f), T(read(fd, (char[40]){0}, 40)), T(read(fd, (char[400]){0}, 400)), T(poll(&(struct pollfd){fd, POLLIN}, 1, 0)), close(fd);
}
PROGRAM(watch_children) {
    put("f", "x");
    int fd = inotify_init1(IN_NONBLOCK), other = inotify_init1(IN_NONBLOCK);
    T(inotify_add_watch(fd, "f", IN_MODIFY)), T(inotify_add_watch(other, "f", IN_MODIFY | IN_ATTRIB));
    CHILD("tells", put("f", "y"));
    told(fd, "one"), told(other, "another");
    CHILD("takes", put("f", "z"); told(fd, "in a child"));
    told(fd, "one"), told(other, "another");
    CHILD("by a watch of its own", T(inotify_add_watch(fd, "f", IN_ATTRIB)); chmod("f", 0600));
    told(fd, "one"), told(other, "another"), close(fd), chmod("f", 0644), told(other, "alone");
}
PROGRAM(attribute_rules) {
    put("f", "x"), mkdir("d", 0755), symlink("f", "l"), mkfifo("p", 0600);
    char bytes[100];
    T(setxattr("f", "user.a", "1", 1, 0)), T(lsetxattr("l", "trusted.a", "1", 1, 0)), T(lgetxattr("l", "trusted.a", bytes, 9)), T(getxattr("l", "user.a", bytes, 9)), T(setxattr("d", "user.d", "1", 1, 0)), T(setxattr("p", "user.p", "1", 1, 0)), T(setxattr("p", "trusted.p", "1", 1, 0)), T(fsetxattr(open("f", O_RDONLY), "user.b", "1", 1, 0)), T(fgetxattr(open("f", O_PATH), "user.b", bytes, 9)), T(flistxattr(99, bytes, 9)), T(fremovexattr(99, "user.a")), T(getxattr("f/x", "user.a", bytes, 9)), T(getxattr("", "user.a", bytes, 9)), T(getxattr("f", "", bytes, 9)), T(getxattr("f", (void *)8, bytes, 9)), T(getxattr("f", "system.none", bytes, 9)), T(setxattr("f", "system.none", "x", 1, 0)), T(setxattr("f", "trusted.", "x", 1, 0)), T(getxattr("/proc/self/status", "user.a", bytes, 9)), T(setxattr("/proc/self/status", "user.a", "x", 1, 0)), T(setxattr("/dev/null", "user.a", "x", 1, 0)), T(listxattr("/proc", bytes, 9)), T(getxattr("/dev/null", "user.a", bytes, 9));
    chmod("f", 0644), chmod("d", 01777);
    USER(T(getxattr("f", "user.a", bytes, 9)), T(setxattr("f", "user.a", "2", 1, 0)), T(removexattr("f", "user.a")), T(setxattr("d", "user.x", "1", 1, 0)), T(getxattr("f", "trusted.a", bytes, 9)), T(setxattr("f", "trusted.a", "1", 1, 0)), T(lgetxattr("l", "trusted.a", bytes, 9)), T(lgetxattr("l", "user.a", bytes, 9)), T(lsetxattr("l", "user.a", "1", 1, 0)), T(llistxattr("l", bytes, 99)));
    chmod("f", 0);
    USER(T(getxattr("f", "user.a", bytes, 9)), T(listxattr("f", bytes, 99)));
    struct stat a = about("f"), b;
    pause_ms(12), setxattr("f", "user.c", "x", 1, 0), b = about("f"), IS(later(b.st_ctim, a.st_ctim)), IS(later(b.st_mtim, a.st_mtim)), link("f", "g"), T(getxattr("g", "user.a", bytes, 9)), unlink("f"), T(getxattr("g", "user.a", bytes, 9)), put("h", "x"), rename("h", "g"), T(getxattr("g", "user.a", bytes, 9));
    int m = memfd_create("m", 0), p[2];
    T(fsetxattr(m, "user.a", "1", 1, 0)), T(fgetxattr(m, "user.a", bytes, 9)), pipe(p), T(fsetxattr(p[0], "user.a", "1", 1, 0)), T(fgetxattr(p[0], "user.a", bytes, 9)), T(flistxattr(p[0], bytes, 9)), T(fgetxattr(socket(AF_UNIX, SOCK_STREAM, 0), "user.a", bytes, 9));
}
PROGRAM(mount_refusals) {
    mkdir("d", 0755), put("f", "x");
    USER(T(mount("none", "d", "tmpfs", 0, NULL)), T(mount(NULL, "d", NULL, MS_REMOUNT, NULL)), T(mount("none", "none", "tmpfs", 0, NULL)), T(umount("d")), T(umount2("d", MNT_DETACH)), T(umount2("d", 0x100)), T(umount("none")), T(swapon("f", 0)), T(swapoff("f")), T(chroot("d")), T(acct("f")), T(syscall(SYS_vhangup)));
    T(umount2("d", 0x100)), T(mount((void *)8, "d", "tmpfs", 0, NULL)), T(mount("none", (void *)8, "tmpfs", 0, NULL)), T(mount("none", "d", (void *)8, 0, NULL)), T(mount("none", "none", "tmpfs", 0, NULL)), T(umount("none")), T(umount("d")), T(umount("f")), T(umount("")), T(umount((void *)8));
}
