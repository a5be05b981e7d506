// What calls on files refuse, page by page of the manual: vectors with flags, handles, quotas, copies, notices, times.
#include "answers.h"
#include <linux/fs.h>
#include <linux/kcmp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/quota.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/statfs.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

#define BAD ((void *)8)
#define S(name, ...) tell(#name "(" #__VA_ARGS__ ")", (errno = 0, syscall(SYS_##name, ##__VA_ARGS__)))

static char page[4096] __attribute__((aligned(4096)));

PROGRAM(vectors_with_flags) {
    int plain = open("plain", O_CREAT | O_RDWR, 0600), line[2], pair[2], folder = open(".", O_RDONLY);
    struct iovec none = {page, 0}, some = {page, 8};
    pipe(line), socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    write(plain, "0123456789", 10);
    // Nothing to move: the flags are not looked at.
    S(preadv2, plain, NULL, 0L, 0L, 0L, 0x1000), S(preadv2, plain, &none, 1L, 0L, 0L, 0x1000), S(pwritev2, plain, NULL, 0L, 0L, 0L, 0x1000), S(pwritev2, plain, &none, 1L, 0L, 0L, 0x1000);
    S(preadv2, plain, &some, 1L, 0L, 0L, 0x1000), S(pwritev2, plain, &some, 1L, 0L, 0L, 0x1000), S(preadv2, plain, &some, 1L, 0L, 0L, 0x80000000), S(preadv2, plain, &some, 1L, 0L, 0L, 1L << 40);
    S(preadv2, plain, &some, 1L, 0L, 0L, RWF_HIPRI), S(preadv2, plain, &some, 1L, 0L, 0L, RWF_DSYNC), S(preadv2, plain, &some, 1L, 0L, 0L, RWF_SYNC), S(preadv2, plain, &some, 1L, 0L, 0L, RWF_APPEND);
    S(pwritev2, plain, &some, 1L, 0L, 0L, RWF_HIPRI), S(pwritev2, plain, &some, 1L, 0L, 0L, RWF_DSYNC), S(pwritev2, plain, &some, 1L, 0L, 0L, RWF_APPEND | RWF_SYNC);
    S(preadv2, line[0], &some, 1L, 0L, 0L, 0), S(preadv2, line[0], &none, 1L, -1L, 0L, 0x1000), S(preadv2, line[1], &none, 1L, -1L, 0L, 0), S(preadv2, line[0], NULL, 0L, 0L, 0L, 0);
    S(preadv2, pair[0], &some, 1L, 0L, 0L, 0), S(preadv2, folder, &some, 1L, 0L, 0L, 0), S(preadv2, folder, &none, 1L, 0L, 0L, 0), S(pwritev2, folder, &none, 1L, 0L, 0L, 0);
    S(preadv2, 99, &none, 1L, 0L, 0L, 0), S(preadv2, plain, &none, 1L, -2L, 0L, 0), S(preadv2, plain, &none, 1L, -1L, 0L, 0), S(preadv2, plain, &none, 1025L, 0L, 0L, 0), S(preadv2, plain, &((struct iovec){page, -1}), 1L, 0L, 0L, 0), S(preadv, plain, &((struct iovec){(void *)-8L, 4}), 1L, 0L, 0L), S(preadv2, plain, BAD, 1L, 0L, 0L, 0x1000), S(preadv2, line[0], BAD, 1L, 0L, 0L, 0);
    S(preadv2, plain, &some, 1L, 0x7fffffffffffffffL, 0L, 0), S(pwritev2, plain, &some, 1L, 0x7fffffffffffffffL, 0L, 0), S(preadv2, plain, &none, 1L, 0x7fffffffffffffffL, 0L, 0);
}

PROGRAM(kept_apart) {
    int one = open("one", O_CREAT | O_RDWR, 0600), same = dup(one), other = open("one", O_RDONLY), pid = getpid(), set = epoll_create1(0);
    S(kcmp, pid, pid, KCMP_FILE, one, same), IS(syscall(SYS_kcmp, pid, pid, KCMP_FILE, one, other) > 0);
    IS(syscall(SYS_kcmp, pid, pid, KCMP_FILE, one, other) + syscall(SYS_kcmp, pid, pid, KCMP_FILE, other, one) == 3);
    S(kcmp, pid, pid, KCMP_FILE, one, 99), S(kcmp, pid, pid, KCMP_FILE, 99, one), S(kcmp, pid, 99999999, KCMP_FILE, one, one), S(kcmp, 99999999, pid, KCMP_FILE, one, one), S(kcmp, pid, pid, 99, 0, 0), S(kcmp, pid, pid, -1, 0, 0), S(kcmp, 0, 0, KCMP_FILE, one, one);
    S(kcmp, pid, pid, KCMP_VM, 0, 0), S(kcmp, pid, pid, KCMP_FILES, 0, 0), S(kcmp, pid, pid, KCMP_FS, 0, 0), S(kcmp, pid, pid, KCMP_SIGHAND, 0, 0), S(kcmp, pid, pid, KCMP_IO, 0, 0), S(kcmp, pid, pid, KCMP_SYSVSEM, 0, 0);
    struct epoll_event event = {EPOLLIN, {0}};
    int line[2];
    pipe(line), epoll_ctl(set, EPOLL_CTL_ADD, line[0], &event);
    struct kcmp_epoll_slot slot = {set, line[0], 0}, none = {set, line[1], 0}, wrong = {one, line[0], 0}, second = {set, line[0], 1};
    S(kcmp, pid, pid, KCMP_EPOLL_TFD, line[0], &slot), S(kcmp, pid, pid, KCMP_EPOLL_TFD, line[0], &none), S(kcmp, pid, pid, KCMP_EPOLL_TFD, line[0], &wrong), S(kcmp, pid, pid, KCMP_EPOLL_TFD, line[0], &second), S(kcmp, pid, pid, KCMP_EPOLL_TFD, line[0], BAD), S(kcmp, pid, pid, KCMP_EPOLL_TFD, 99, &slot), IS(syscall(SYS_kcmp, pid, pid, KCMP_EPOLL_TFD, line[1], &slot) > 0);
    int ready[2], done[2];
    pipe(ready), pipe(done);
    pid_t child = fork();
    if (child == 0)
        close(done[1]), read(done[0], page, 1), _exit(0);
    S(kcmp, pid, child, KCMP_FILE, one, one), S(kcmp, pid, child, KCMP_FILE, one, same), IS(syscall(SYS_kcmp, pid, child, KCMP_VM, 0, 0) > 0), IS(syscall(SYS_kcmp, pid, child, KCMP_FILES, 0, 0) > 0), IS(syscall(SYS_kcmp, pid, child, KCMP_FS, 0, 0) > 0), IS(syscall(SYS_kcmp, pid, child, KCMP_SIGHAND, 0, 0) > 0), S(kcmp, pid, child, KCMP_IO, 0, 0), S(kcmp, pid, child, KCMP_SYSVSEM, 0, 0);
    CHILD("nobody of another", setresuid(1000, 1000, 1000), S(kcmp, pid, child, KCMP_VM, 0, 0), S(kcmp, getpid(), getpid(), KCMP_VM, 0, 0), S(kcmp, pid, child, 99, 0, 0));
    close(done[1]), waitpid(child, NULL, 0), S(kcmp, pid, child, KCMP_VM, 0, 0);
}

// A file system without handles, as most that a container has: only what is looked at before that is told.
PROGRAM(handles_refused) {
    struct {
        struct file_handle head;
        char bytes[128];
    } handle = {{0}};
    int mount_id = 0, plain = open("plain", O_CREAT | O_RDWR, 0600), proc = open("/proc", O_RDONLY), pipes[2];
    pipe(pipes), handle.head.handle_bytes = 128;
    S(name_to_handle_at, AT_FDCWD, "plain", &handle, &mount_id, 0x80), S(name_to_handle_at, AT_FDCWD, "nothing", &handle, &mount_id, 0), S(name_to_handle_at, 99, "plain", &handle, &mount_id, 0), S(name_to_handle_at, plain, "x", &handle, &mount_id, 0), S(name_to_handle_at, AT_FDCWD, "", &handle, &mount_id, 0), S(name_to_handle_at, AT_FDCWD, BAD, &handle, &mount_id, 0), S(name_to_handle_at, proc, "version", &handle, &mount_id, 0), S(name_to_handle_at, pipes[0], "", &handle, &mount_id, AT_EMPTY_PATH);
    S(open_by_handle_at, plain, BAD, O_RDWR), handle.head.handle_bytes = 0, S(open_by_handle_at, plain, &handle, O_RDWR), handle.head.handle_bytes = 129, S(open_by_handle_at, plain, &handle, O_RDWR), handle.head.handle_bytes = 8, S(open_by_handle_at, 99, &handle, O_RDWR), S(open_by_handle_at, proc, &handle, O_RDWR);
    CHILD("without CAP_DAC_READ_SEARCH", setresuid(1000, 1000, 1000), S(open_by_handle_at, plain, &handle, O_RDWR));
}

PROGRAM(quotas_and_systems) {
    struct stat here;
    stat(".", &here);
    S(quotactl, QCMD(Q_SYNC, USRQUOTA), NULL, 0, NULL), S(quotactl, QCMD(Q_GETQUOTA, USRQUOTA), NULL, 0, page), S(quotactl, QCMD(Q_GETQUOTA, USRQUOTA), "/dev/null", 0, page), S(quotactl, QCMD(Q_GETQUOTA, USRQUOTA), "nothing", 0, page), S(quotactl, QCMD(Q_GETQUOTA, USRQUOTA), BAD, 0, page), S(quotactl, QCMD(Q_GETQUOTA, 9), "/dev/null", 0, page), S(quotactl, QCMD(0x123456, USRQUOTA), "/dev/null", 0, page), S(quotactl, QCMD(Q_QUOTAON, USRQUOTA), "/dev/null", 1, "plain"), S(quotactl, QCMD(Q_SYNC, 9), NULL, 0, NULL);
    S(quotactl_fd, 99, QCMD(Q_GETQUOTA, USRQUOTA), 0, page), S(quotactl_fd, open(".", O_RDONLY), QCMD(Q_GETQUOTA, USRQUOTA), 0, page), S(quotactl_fd, open(".", O_RDONLY), QCMD(Q_GETQUOTA, 9), 0, page);
    S(ustat, (long)here.st_dev, page), S(ustat, 0xffffL, page), S(ustat, (long)here.st_dev, BAD), S(ustat, 0L, page);
    S(sysfs, 9, 0L, 0L), S(sysfs, 1, "nothing", 0L), S(sysfs, 1, BAD, 0L), IS(syscall(SYS_sysfs, 1, "tmpfs") >= 0), IS(syscall(SYS_sysfs, 1, "proc") >= 0), IS(syscall(SYS_sysfs, 3) > 2), S(sysfs, 2, 999L, page), S(sysfs, 2, 0L, BAD);
}

PROGRAM(copies_refused) {
    int plain = open("plain", O_CREAT | O_RDWR, 0600), other = open("other", O_CREAT | O_RDWR, 0600), reads = open("plain", O_RDONLY), appends = open("other", O_WRONLY | O_APPEND), line[2], folder = open(".", O_RDONLY), zero = open("/dev/zero", O_RDONLY), event = eventfd(0, 0);
    loff_t at = 0, before = -1, far = 0x7fffffffffffffffL;
    pipe(line), write(plain, page, 100);
    S(copy_file_range, plain, NULL, appends, NULL, 1L, 0), S(copy_file_range, other, NULL, reads, NULL, 1L, 0), S(copy_file_range, folder, NULL, plain, NULL, 1L, 0), S(copy_file_range, zero, NULL, plain, NULL, 1L, 0), S(copy_file_range, plain, &before, other, NULL, 1L, 0), S(copy_file_range, plain, &at, other, &before, 1L, 0), S(copy_file_range, plain, &at, other, &far, 1L, 0), S(copy_file_range, plain, &far, other, &at, 1L, 0), at = 0, S(copy_file_range, plain, &at, plain, &at, 10L, 0), S(copy_file_range, plain, NULL, other, NULL, 0L, 0), S(copy_file_range, 99, NULL, other, NULL, 0L, 0), S(copy_file_range, event, NULL, other, NULL, 1L, 0);
    S(splice, plain, NULL, other, NULL, 1L, 0), S(splice, plain, NULL, line[1], NULL, 1L, 0x100), S(splice, line[0], &at, other, NULL, 1L, 0), S(splice, plain, &before, line[1], NULL, 1L, 0), S(splice, line[0], NULL, appends, NULL, 1L, 0), S(splice, line[0], NULL, line[1], NULL, 1L, 0), S(splice, line[1], NULL, other, NULL, 1L, 0), S(splice, plain, NULL, line[0], NULL, 1L, 0), S(splice, 99, NULL, line[1], NULL, 0L, 0), S(splice, 99, NULL, line[1], NULL, 1L, 0), S(splice, folder, NULL, line[1], NULL, 1L, 0), S(splice, event, NULL, line[1], NULL, 1L, SPLICE_F_NONBLOCK), S(splice, line[0], NULL, event, NULL, 1L, SPLICE_F_NONBLOCK), S(splice, plain, BAD, line[1], NULL, 1L, 0);
    S(tee, line[0], line[1], 1L, 0), S(tee, plain, line[1], 1L, 0), S(tee, line[0], plain, 1L, 0), S(tee, 99, line[1], 1L, 0), S(tee, line[0], line[1], 1L, 0x100), S(tee, line[0], line[1], 0L, 0), S(vmsplice, plain, NULL, 0L, 0), S(vmsplice, plain, page, 1L, 0), S(vmsplice, line[1], BAD, 1L, 0), S(vmsplice, line[1], page, 1025L, 0), S(vmsplice, line[1], page, 0L, 0x100), S(vmsplice, 99, page, 1L, 0), S(vmsplice, line[1], page, 0L, 0);
    S(sendfile, plain, plain, NULL, 0L), S(sendfile, other, plain, &before, 1L), S(sendfile, other, plain, &far, 1L), S(sendfile, appends, plain, NULL, 1L), S(sendfile, reads, plain, NULL, 1L), S(sendfile, event, plain, NULL, 8L), S(sendfile, other, event, NULL, 8L), S(sendfile, other, line[0], &at, 1L), S(sendfile, other, 99, NULL, 1L);
}

PROGRAM(watches_refused) {
    int events = inotify_init1(IN_NONBLOCK), plain = open("plain", O_CREAT | O_RDWR, 0600);
    S(inotify_add_watch, events, "nothing", IN_ACCESS), S(inotify_add_watch, events, "plain", 0), S(inotify_add_watch, events, "plain", IN_ONLYDIR | IN_ACCESS), S(inotify_add_watch, events, "plain", IN_ISDIR), S(inotify_add_watch, events, "plain", 0x80000000), S(inotify_add_watch, 99, "plain", IN_ACCESS), S(inotify_add_watch, events, BAD, IN_ACCESS), S(inotify_add_watch, events, "plain", IN_MASK_ADD | IN_MASK_CREATE | IN_ACCESS), S(inotify_add_watch, events, "plain", IN_ACCESS), S(inotify_add_watch, events, "plain", IN_MASK_CREATE | IN_OPEN), S(inotify_add_watch, events, "plain", IN_MASK_ADD | IN_OPEN), S(inotify_rm_watch, events, 99), S(inotify_rm_watch, 99, 1), S(inotify_rm_watch, events, -1), S(read, events, page, 4096), S(inotify_rm_watch, events, 1), S(read, events, page, 15), S(read, events, page, 16), S(read, events, page, 16), S(write, events, page, 16), S(inotify_init1, 0x40), S(ioctl, events, FIONREAD, BAD), S(pread64, events, page, 100, 0L), S(lseek, events, 0L, 0);
    CHILD("not ones own", chmod("plain", 0600), setresuid(1000, 1000, 1000), S(inotify_add_watch, events, "plain", IN_ACCESS));
}

PROGRAM(times_refused) {
    int plain = open("plain", O_CREAT | O_RDWR, 0600), path = open("plain", O_PATH);
    struct timespec both[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}}, wrong[2] = {{0, 1000000000}, {0, 0}}, less[2] = {{0, -1}, {0, 0}}, half[2] = {{1, UTIME_NOW}, {-5, UTIME_OMIT}};
    struct timeval odd[2] = {{0, 1000000}, {0, 0}};
    symlink("nothing", "link");
    S(utimensat, AT_FDCWD, "plain", both, 0), S(utimensat, AT_FDCWD, "nothing", both, 0), S(utimensat, AT_FDCWD, BAD, both, 0), S(utimensat, 99, "plain", both, 0x80), S(utimensat, AT_FDCWD, "plain", wrong, 0), S(utimensat, AT_FDCWD, "plain", less, 0), S(utimensat, AT_FDCWD, "plain", half, 0), S(utimensat, plain, NULL, NULL, AT_SYMLINK_NOFOLLOW), S(utimensat, plain, NULL, NULL, AT_EMPTY_PATH), S(utimensat, plain, "", NULL, AT_EMPTY_PATH), S(utimensat, path, "", NULL, AT_EMPTY_PATH), S(utimensat, path, NULL, NULL, 0), S(utimensat, AT_FDCWD, "", NULL, 0), S(utimensat, AT_FDCWD, "link", NULL, AT_SYMLINK_NOFOLLOW), S(utimensat, AT_FDCWD, "link", NULL, 0), S(utimes, "plain", odd), S(futimesat, AT_FDCWD, "plain", odd), S(futimesat, plain, NULL, NULL), S(futimesat, AT_FDCWD, NULL, NULL), S(utime, "nothing", NULL), S(utime, "plain", BAD), S(utimes, "plain", BAD);
    chmod("plain", 0644);
    CHILD("of another", setresuid(1000, 1000, 1000), S(utime, "plain", NULL), S(utimensat, AT_FDCWD, "plain", half, 0), S(utimensat, AT_FDCWD, "plain", both, 0), S(utimensat, AT_FDCWD, "plain", NULL, 0));
}

PROGRAM(attributes_refused) {
    int plain = open("plain", O_CREAT | O_RDWR, 0600), path = open("plain", O_PATH), line[2];
    char long_name[300] = "user.";
    memset(long_name + 5, 'n', 294), symlink("plain", "link"), mkfifo("fifo", 0600), pipe(line);
    S(setxattr, "plain", "nothing.x", "v", 1L, 0), S(setxattr, "plain", "x", "v", 1L, 0), S(setxattr, "plain", "", "v", 1L, 0), S(setxattr, "plain", long_name, "v", 1L, 0), S(setxattr, "plain", "trusted.", "v", 1L, 0), S(setxattr, "plain", "trusted.x", "v", 1L, 4), S(setxattr, "plain", "trusted.x", BAD, 1L, 0), S(setxattr, "plain", "trusted.x", "v", 65537L, 0), S(setxattr, "plain", BAD, "v", 1L, 0), S(setxattr, "nothing", "trusted.x", "v", 1L, 0), S(setxattr, "plain", "trusted.x", "v", 1L, XATTR_REPLACE), S(setxattr, "plain", "trusted.x", "v", 1L, XATTR_CREATE), S(setxattr, "plain", "trusted.x", "v", 1L, XATTR_CREATE), S(setxattr, "plain", "trusted.x", NULL, 0L, XATTR_REPLACE), S(setxattr, "plain", "trusted.y", "v", 1L, XATTR_CREATE | XATTR_REPLACE), S(getxattr, "plain", "trusted.x", page, 10L), S(getxattr, "plain", "trusted.nothing", page, 10L), S(getxattr, "plain", "trusted.", page, 10L), S(getxattr, "plain", "x", page, 10L), S(setxattr, "plain", "trusted.x", "value", 5L, 0), S(getxattr, "plain", "trusted.x", page, 4L), S(getxattr, "plain", "trusted.x", NULL, 0L), S(getxattr, "plain", "trusted.x", BAD, 10L), S(getxattr, "plain", "trusted.x", page, 1L << 40), S(getxattr, "plain", long_name, page, 10L);
    S(removexattr, "plain", "trusted.nothing"), S(removexattr, "plain", "x"), S(removexattr, "nothing", "trusted.x"), S(removexattr, "plain", long_name), S(fsetxattr, path, "trusted.x", "v", 1L, 0), S(fgetxattr, path, "trusted.x", page, 10L), S(flistxattr, path, page, 100L), S(fremovexattr, path, "trusted.x"), S(fsetxattr, 99, "trusted.x", "v", 1L, 0), S(fgetxattr, line[0], "trusted.x", page, 10L), S(fsetxattr, line[0], "trusted.x", "v", 1L, 0), S(listxattr, "nothing", page, 10L), S(flistxattr, 99, page, 10L), S(llistxattr, "link", page, 100L), S(lsetxattr, "link", "user.x", "v", 1L, 0), S(lgetxattr, "link", "user.x", page, 1L), S(lsetxattr, "link", "trusted.x", "v", 1L, 0), S(lgetxattr, "link", "trusted.x", page, 1L), S(lremovexattr, "link", "trusted.x"), S(setxattr, "fifo", "user.x", "v", 1L, 0), S(getxattr, "fifo", "user.x", page, 1L), S(setxattr, "fifo", "trusted.x", "v", 1L, 0);
    CHILD("of nobody", chmod("plain", 0644), chmod(".", 0777), setresuid(1000, 1000, 1000), S(setxattr, "plain", "trusted.x", "v", 1L, 0), S(getxattr, "plain", "trusted.x", page, 10L), S(listxattr, "plain", page, 100L), S(removexattr, "plain", "trusted.x"), S(setxattr, "plain", "security.x", "v", 1L, 0));
}

PROGRAM(locks_refused) {
    int plain = open("plain", O_CREAT | O_RDWR, 0600), reads = open("plain", O_RDONLY), writes = open("plain", O_WRONLY), line[2];
    struct flock all = {F_WRLCK, SEEK_SET, 0, 0, 0}, odd = {9, SEEK_SET, 0, 0, 0}, origin = {F_RDLCK, 9, 0, 0, 0}, before = {F_RDLCK, SEEK_SET, -5, 0, 0}, back = {F_RDLCK, SEEK_SET, 5, -6, 0}, far = {F_RDLCK, SEEK_SET, 0x7fffffffffffffffL, 2, 0}, named = {F_RDLCK, SEEK_SET, 0, 0, 7}, shared = {F_RDLCK, SEEK_SET, 0, 0, 0};
    pipe(line);
    S(fcntl, plain, F_SETLK, &odd), S(fcntl, plain, F_SETLK, &origin), S(fcntl, plain, F_SETLK, &before), S(fcntl, plain, F_SETLK, &back), S(fcntl, plain, F_SETLK, &far), S(fcntl, reads, F_SETLK, &all), S(fcntl, writes, F_SETLK, &shared), S(fcntl, plain, F_OFD_SETLK, &named), S(fcntl, plain, F_OFD_GETLK, &named), S(fcntl, plain, F_SETLK, &named), S(fcntl, line[0], F_SETLK, &shared), S(fcntl, plain, F_SETLK, NULL), S(fcntl, 99, F_SETLK, &shared), S(fcntl, plain, F_GETLK, &odd), odd.l_type = F_UNLCK, S(fcntl, plain, F_GETLK, &odd);
    S(fcntl, plain, F_SETLEASE, F_RDLCK), S(fcntl, plain, F_SETLEASE, F_WRLCK), S(fcntl, line[0], F_SETLEASE, F_RDLCK), S(fcntl, plain, F_GETLEASE, 0), S(fcntl, 99, F_SETLEASE, F_RDLCK), S(fcntl, line[0], F_GETLEASE, 0), S(fcntl, plain, F_GETPIPE_SZ, 0), S(fcntl, line[0], F_SETPIPE_SZ, 0), S(fcntl, line[0], F_SETPIPE_SZ, 1), S(fcntl, line[0], F_SETPIPE_SZ, 1u << 31), S(fcntl, line[0], F_SETPIPE_SZ, (1u << 31) + 1u), S(fcntl, line[0], F_SETPIPE_SZ, 100000), S(fcntl, plain, F_GETOWN_EX, BAD), S(fcntl, plain, F_SETOWN_EX, &((int[2]){9, 0})), S(fcntl, plain, F_SETOWN_EX, &((int[2]){1, 99999999})), S(fcntl, plain, F_DUPFD_CLOEXEC, -1), S(fcntl, plain, F_SETFD, 0xff), S(fcntl, plain, F_GETFD), S(fcntl, plain, F_SETFL, 0xffffffff & ~O_ASYNC & ~O_DIRECT), S(fcntl, plain, F_SETSIG, -1), S(fcntl, plain, F_GETSIG), S(fcntl, line[0], F_ADD_SEALS, 1);
    S(flock, line[0], LOCK_SH), S(flock, plain, LOCK_UN), S(flock, plain, 16), S(flock, plain, 32 | 192), S(flock, plain, LOCK_NB);
}
