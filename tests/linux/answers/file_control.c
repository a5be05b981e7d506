// Descriptors: fcntl, duplicates, closing ranges, locks of all kinds, ioctls.
#include "files.h"
#include <linux/close_range.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <termios.h>

static int lock(int fd, int command, int type, long start, long count) {
    struct flock l = {type, SEEK_SET, start, count, 0};
    return fcntl(fd, command, &l);
}
// What F_GETLK says: the type, where, how much, and whether it is this process's.
static void asks(int fd, int command, int type, long start, long count) {
    struct flock l = {type, SEEK_SET, start, count, 0};
    if (fcntl(fd, command, &l))
        tell("asks", -1);
    else
        printf("asks: %d %d %ld %ld %s\n", l.l_type, l.l_whence, l.l_start, l.l_len, l.l_pid == 0 ? "nobody" : l.l_pid == -1 ? "open" : l.l_pid == getppid() ? "parent" : "another"), fflush(stdout);
}

PROGRAM(control_commands) {
    put("f", "x");
    int fd = open("f", O_RDWR), p[2];
    pipe(p), T(fcntl(fd, F_GETFD)), T(fcntl(fd, F_SETFD, FD_CLOEXEC)), T(fcntl(fd, F_GETFD)), T(fcntl(fd, F_SETFD, 0xfe)), T(fcntl(fd, F_GETFD)), T(fcntl(fd, F_SETFD, 0xff)), T(fcntl(fd, F_GETFD)), T(fcntl(fd, 9999)), T(fcntl(fd, -1)), T(fcntl(99, 9999)), T(fcntl(fd, F_GETSIG)), T(fcntl(fd, F_SETSIG, 65)), T(fcntl(fd, F_SETSIG, SIGUSR1)), T(fcntl(fd, F_GETSIG)), T(fcntl(fd, F_SETSIG, 0)), T(fcntl(fd, F_GETOWN)), T(fcntl(fd, F_SETOWN, 0)), T(fcntl(fd, F_SETOWN, 1 << 29)), T(fcntl(fd, F_GETLEASE)), T(fcntl(fd, F_GETPIPE_SZ)), T(fcntl(fd, F_SETPIPE_SZ, 4096)), T(fcntl(fd, F_GET_SEALS)), T(fcntl(fd, F_ADD_SEALS, 0)), T(fcntl(p[0], F_GET_SEALS));
    T(fcntl(p[0], F_GETPIPE_SZ)), T(fcntl(p[0], F_SETPIPE_SZ, 1)), T(fcntl(p[1], F_SETPIPE_SZ, 5000)), T(fcntl(p[1], F_SETPIPE_SZ, 0)), T(fcntl(p[1], F_SETPIPE_SZ, -1)), T(fcntl(p[1], F_SETPIPE_SZ, 1 << 20)), T(fcntl(p[1], F_SETPIPE_SZ, 65536)), write(p[1], "x", 1), T(fcntl(p[1], F_SETPIPE_SZ, 4096));
    USER(T(fcntl(p[1], F_SETPIPE_SZ, 1 << 20)), T(fcntl(p[1], F_SETPIPE_SZ, (1 << 20) + 1)));
    T(fcntl(fd, F_NOTIFY, DN_MODIFY)), T(fcntl(fd, F_SETLEASE, 9)), T(fcntl(p[0], F_SETLEASE, F_RDLCK)), T(fcntl(fd, F_GETOWN_EX, (void *)8)), T(fcntl(fd, F_SETOWN_EX, &(struct f_owner_ex){9, 1})), T(fcntl(fd, 1027, fd)), T(fcntl(fd, 1027, p[0])), T(fcntl(fd, 1027, 99));
}
PROGRAM(control_duplicates) {
    put("f", "0123456789");
    int fd = open("f", O_RDWR | O_CLOEXEC), copy = dup(fd), p[2];
    char byte;
    W(copy), T(fcntl(copy, F_GETFD)), T(read(fd, &byte, 1)), T(lseek(copy, 0, SEEK_CUR)), T(fcntl(copy, F_SETFL, O_APPEND)), T(fcntl(fd, F_GETFL)), T(dup2(fd, 50)), T(dup2(fd, 50)), T(dup3(fd, 51, O_CLOEXEC)), T(fcntl(51, F_GETFD)), T(dup3(fd, 51, 0)), T(fcntl(51, F_GETFD)), T(fcntl(fd, F_DUPFD, 60)), T(fcntl(fd, F_DUPFD, 60)), T(fcntl(fd, F_DUPFD_CLOEXEC, 60)), T(fcntl(62, F_GETFD)), T(dup(99)), T(dup(-1)), T(dup2(99, 5)), T(dup2(fd, 1 << 30)), T(dup3(99, 5, 0)), T(dup3(fd, fd, 0)), T(dup3(99, 99, 0)), T(dup3(fd, 70, O_NONBLOCK)), T(close(fd)), T(close(fd)), T(close(-1)), T(close(1 << 30)), T(read(copy, &byte, 1)), T(lseek(50, 0, SEEK_CUR));
    T(close_range(50, 52, 0)), T(fcntl(50, F_GETFD)), T(close_range(60, ~0u, CLOSE_RANGE_CLOEXEC)), T(fcntl(60, F_GETFD)), T(close_range(60, 50, 0)), T(close_range(60, 61, 64)), T(close_range(200, 300, 0)), T(close_range(60, ~0u, CLOSE_RANGE_UNSHARE)), T(fcntl(60, F_GETFD)), T(fcntl(copy, F_GETFD)), T(close_range(copy, copy, CLOSE_RANGE_CLOEXEC | CLOSE_RANGE_UNSHARE)), T(fcntl(copy, F_GETFD)), W(open("/dev/stdin", O_PATH)), signal(SIGPIPE, SIG_IGN), pipe(p), close(p[0]), T(dup2(p[1], p[0])), T(write(p[0], "x", 1) == -1), T(dup2(copy, p[1])), T(fcntl(p[1], F_GETFL));
}
PROGRAM(control_record_locks) {
    int fd = open("f", O_CREAT | O_RDWR, 0600), r = open("f", O_RDONLY), w = open("f", O_WRONLY), p[2];
    T(lock(fd, F_SETLK, F_WRLCK, 0, 10)), T(lock(fd, F_SETLK, F_RDLCK, 5, 2)), T(lock(r, F_SETLK, F_RDLCK, 20, 5)), T(lock(r, F_SETLK, F_WRLCK, 20, 5)), T(lock(w, F_SETLK, F_RDLCK, 20, 5)), T(lock(w, F_SETLK, F_WRLCK, 30, 5)), T(lock(fd, F_SETLK, 9, 0, 1)), T(lock(fd, F_SETLK, F_WRLCK, -1, 1)), T(lock(fd, F_SETLK, F_WRLCK, 5, -10)), T(lock(fd, F_SETLK, F_WRLCK, 45, -5)), T(lock(fd, F_SETLK, F_WRLCK, LLONG_MAX, 1)), T(lock(fd, F_SETLK, F_WRLCK, LLONG_MAX, 2)), T(lock(fd, F_SETLK, F_WRLCK, 1, LLONG_MAX)), T(lock(fd, F_SETLK, F_WRLCK, 2, LLONG_MAX)), T(lock(fd, F_SETLK, F_UNLCK, 2, 0)), T(lock(fd, F_SETLK, F_WRLCK, 40, 5)), T(lock(99, F_SETLK, F_WRLCK, 0, 1)), T(fcntl(fd, F_SETLK, 8)), T(fcntl(fd, F_SETLK, &(struct flock){F_WRLCK, 9, 0, 1})), T(lock(open("f", O_PATH), F_SETLK, F_RDLCK, 0, 1)), T(lock(open("f", 3), F_SETLK, F_RDLCK, 0, 1)), pipe(p), T(lock(p[0], F_SETLK, F_RDLCK, 0, 1)), T(lock(open(".", O_RDONLY), F_SETLK, F_RDLCK, 0, 1)), T(lock(open("/dev/null", O_RDWR), F_SETLK, F_WRLCK, 0, 1)), T(lock(socket(AF_UNIX, SOCK_STREAM, 0), F_SETLK, F_WRLCK, 0, 1));
    asks(fd, F_GETLK, F_WRLCK, 0, 100), T(lock(fd, F_GETLK, F_UNLCK, 0, 1)), T(lock(fd, F_GETLK, 9, 0, 1)), T(lock(r, F_GETLK, F_WRLCK, 0, 1));
    fd = open("f", O_RDWR), lock(fd, F_SETLK, F_WRLCK, 0, 10), lock(fd, F_SETLK, F_RDLCK, 20, 10), lock(fd, F_SETLK, F_WRLCK, 45, -5);
    CHILD("another", asks(fd, F_GETLK, F_WRLCK, 0, 100); asks(fd, F_GETLK, F_RDLCK, 20, 10); asks(fd, F_GETLK, F_RDLCK, 0, 0); asks(fd, F_GETLK, F_WRLCK, 10, 10); asks(fd, F_GETLK, F_WRLCK, 25, 0); T(lock(fd, F_SETLK, F_WRLCK, 9, 1)), T(lock(fd, F_SETLK, F_WRLCK, 10, 10)), T(lock(fd, F_SETLK, F_RDLCK, 20, 10)), T(lock(fd, F_SETLK, F_WRLCK, 29, 1)), T(lock(fd, F_SETLK, F_UNLCK, 0, 0)));
    T(lock(fd, F_SETLK, F_UNLCK, 3, 4));
    CHILD("a hole", asks(fd, F_GETLK, F_WRLCK, 0, 0); asks(fd, F_GETLK, F_WRLCK, 3, 4); asks(fd, F_GETLK, F_WRLCK, 4, 0));
    close(open("f", O_RDONLY));
    CHILD("another's close", asks(fd, F_GETLK, F_WRLCK, 0, 0));
    lseek(fd, 100, SEEK_SET), T(fcntl(fd, F_SETLK, &(struct flock){F_WRLCK, SEEK_CUR, 5, 5})), ftruncate(fd, 1000), T(fcntl(fd, F_SETLK, &(struct flock){F_WRLCK, SEEK_END, -10, 5})), T(fcntl(fd, F_SETLK, &(struct flock){F_WRLCK, SEEK_END, -2000, 5}));
    CHILD("relative", asks(fd, F_GETLK, F_WRLCK, 0, 0); asks(fd, F_GETLK, F_WRLCK, 500, 0); struct flock l = {F_WRLCK, SEEK_END, -10, 100}; T(fcntl(fd, F_GETLK, &l)), T(l.l_whence), T(l.l_start));
    T(lockf(fd, F_LOCK, 10)), T(lockf(fd, F_TEST, 10)), T(lockf(fd, F_ULOCK, 0)), T(lockf(r, F_TLOCK, 1)), T(lockf(fd, 9, 1));
}
PROGRAM(control_open_locks) {
    int fd = open("f", O_CREAT | O_RDWR, 0600), other = open("f", O_RDWR), copy = dup(fd);
    T(lock(fd, F_OFD_SETLK, F_WRLCK, 0, 10)), T(lock(other, F_OFD_SETLK, F_WRLCK, 5, 1)), T(lock(copy, F_OFD_SETLK, F_WRLCK, 5, 10)), T(lock(fd, F_SETLK, F_WRLCK, 5, 1)), T(lock(fd, F_SETLK, F_WRLCK, 50, 1)), T(lock(other, F_OFD_SETLK, F_WRLCK, 50, 1)), asks(other, F_OFD_GETLK, F_WRLCK, 0, 0), asks(other, F_OFD_GETLK, F_RDLCK, 50, 0), asks(fd, F_OFD_GETLK, F_WRLCK, 0, 20), asks(fd, F_GETLK, F_WRLCK, 0, 20), T(fcntl(fd, F_OFD_SETLK, &(struct flock){F_WRLCK, SEEK_SET, 0, 1, 5})), T(fcntl(fd, F_OFD_GETLK, &(struct flock){F_WRLCK, SEEK_SET, 0, 1, 5}));
    CHILD("inherited", T(lock(fd, F_OFD_SETLK, F_RDLCK, 0, 20)); asks(other, F_OFD_GETLK, F_WRLCK, 0, 0); T(lock(other, F_OFD_SETLK, F_RDLCK, 0, 5)));
    close(fd), asks(other, F_OFD_GETLK, F_WRLCK, 0, 5), close(copy), asks(other, F_OFD_GETLK, F_WRLCK, 0, 5), T(lock(other, F_OFD_SETLKW, F_WRLCK, 0, 0));
    CHILD("left behind", int mine = open("f", O_RDWR); T(lock(mine, F_OFD_SETLK, F_RDLCK, 0, 0)), asks(mine, F_OFD_GETLK, F_RDLCK, 0, 0));
}
PROGRAM(control_whole_locks) {
    int fd = open("f", O_CREAT | O_RDWR, 0600), other = open("f", O_RDONLY), copy = dup(fd), p[2];
    T(flock(fd, LOCK_SH)), T(flock(other, LOCK_SH)), T(flock(fd, LOCK_EX | LOCK_NB)), T(flock(other, LOCK_UN)), T(flock(fd, LOCK_EX | LOCK_NB)), T(flock(other, LOCK_SH | LOCK_NB)), T(flock(copy, LOCK_EX | LOCK_NB)), T(flock(copy, LOCK_UN)), T(flock(other, LOCK_EX | LOCK_NB)), T(flock(fd, LOCK_SH | LOCK_NB)), T(flock(fd, 0)), T(flock(fd, 99)), T(flock(fd, LOCK_NB)), T(flock(fd, LOCK_SH | LOCK_EX)), T(flock(99, LOCK_SH)), T(flock(99, 77)), pipe(p), T(flock(p[0], LOCK_EX)), T(flock(p[1], LOCK_EX | LOCK_NB)), T(flock(open(".", O_RDONLY), LOCK_EX)), T(flock(open("f", O_PATH), LOCK_EX)), T(flock(socket(AF_UNIX, SOCK_STREAM, 0), LOCK_EX)), T(flock(open("/dev/null", O_RDONLY), LOCK_EX | LOCK_NB)), T(lock(fd, F_SETLK, F_WRLCK, 0, 0));
    CHILD("inherited", T(flock(other, LOCK_EX | LOCK_NB)), T(flock(open("f", O_RDONLY), LOCK_SH | LOCK_NB)));
    close(other), T(flock(fd, LOCK_SH | LOCK_NB));
    CHILD("a child lets go", flock(fd, LOCK_UN));
    T(flock(open("f", O_RDWR), LOCK_EX | LOCK_NB)), T(flock(open("f", 3), LOCK_EX | LOCK_NB)), T(flock(fd, LOCK_MAND | LOCK_READ));
}
static void nothing(int number) {}
PROGRAM(control_lock_waits) {
    int fd = open("f", O_CREAT | O_RDWR, 0600);
    lock(fd, F_SETLK, F_WRLCK, 0, 10);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int mine = open("f", O_RDWR);
        struct sigaction action = {.sa_handler = nothing};
        sigaction(SIGALRM, &action, NULL);
        ualarm(20000, 20000), T(lock(mine, F_SETLKW, F_WRLCK, 0, 1)), T(flock(mine, LOCK_SH)), T(lock(mine, F_SETLKW, F_WRLCK, 5, 1)), asks(mine, F_GETLK, F_WRLCK, 0, 0), _exit(0);
    }
    waitpid(child, NULL, 0), T(lock(fd, F_SETLK, F_UNLCK, 0, 10));
    CHILD("at its end", lock(open("f", O_RDWR), F_SETLK, F_WRLCK, 0, 0));
    T(lock(fd, F_SETLK, F_WRLCK, 0, 0)), T(lock(fd, F_SETLKW, F_RDLCK, 3, 4)), T(lock(fd, F_SETLKW, F_UNLCK, 0, 0));
    CHILD("across a start", {
        int kept = open("f", O_RDWR);
        lock(kept, F_SETLK, F_WRLCK, 0, 0);
        CHILD("no child of it", asks(kept, F_GETLK, F_WRLCK, 0, 0));
        execl("/proc/self/exe", "answers", "nothing of this name", NULL);
    });
}
PROGRAM(control_requests) {
    put("f", "0123456789");
    int fd = open("f", O_RDWR), p[2], s[2], n = 7, e = eventfd(3, 0);
    char byte;
    pipe(p), socketpair(AF_UNIX, SOCK_STREAM, 0, s), T(ioctl(fd, FIONREAD, &n)), T(n), lseek(fd, 4, SEEK_SET), T(ioctl(fd, FIONREAD, &n)), T(n), lseek(fd, 40, SEEK_SET), T(ioctl(fd, FIONREAD, &n)), T(n), T(ioctl(p[0], FIONREAD, &n)), T(n), write(p[1], "abc", 3), T(ioctl(p[0], FIONREAD, &n)), T(n), T(ioctl(p[1], FIONREAD, &n)), T(n), write(s[0], "abcd", 4), T(ioctl(s[1], FIONREAD, &n)), T(n), T(ioctl(s[0], FIONREAD, &n)), T(n), T(ioctl(e, FIONREAD, &n)), T(ioctl(open(".", O_RDONLY), FIONREAD, &n)), T(ioctl(99, FIONREAD, &n)), T(ioctl(fd, FIONREAD, 8)), T(ioctl(p[0], FIONREAD, 8)), T(ioctl(open("f", O_PATH), FIONREAD, &n));
    n = 1, T(ioctl(fd, FIONBIO, &n)), T(fcntl(fd, F_GETFL) & O_NONBLOCK), n = 0, T(ioctl(fd, FIONBIO, &n)), T(fcntl(fd, F_GETFL) & O_NONBLOCK), T(ioctl(fd, FIONBIO, 8)), T(ioctl(fd, FIOCLEX)), T(fcntl(fd, F_GETFD)), T(ioctl(fd, FIONCLEX)), T(fcntl(fd, F_GETFD)), n = 1, T(ioctl(fd, FIOASYNC, &n)), T(ioctl(p[0], FIOASYNC, &n)), T(fcntl(p[0], F_GETFL) & O_ASYNC), n = 0, T(ioctl(p[0], FIOASYNC, &n)), T(fcntl(p[0], F_GETFL) & O_ASYNC), T(ioctl(fd, 0x12345678, &n)), T(ioctl(fd, 0, &n)), T(ioctl(p[0], TCGETS, &n)), T(ioctl(fd, TCGETS, &n)), T(ioctl(s[0], TCGETS, &n)), T(ioctl(open("/dev/null", O_RDWR), TCGETS, &n)), T(ioctl(open("/dev/zero", O_RDWR), TIOCGWINSZ, &n)), T(ioctl(99, TCGETS, &n)), T(isatty(fd)), T(ioctl(e, TCGETS, &n));
    T(ioctl(fd, _IO(0, 2), &n)), T(n), T(ioctl(fd, _IO(0x12, 96), &n));
    long size;
    T(ioctl(fd, FIOQSIZE, &size)), T(size), T(ioctl(p[0], FIOQSIZE, &size)), T(ioctl(open(".", O_RDONLY), FIOQSIZE, &size) == 0), T(ioctl(p[0], _IOR('f', 1, long), &size)), T(ioctl(fd, _IO(0x94, 9), 0)), T(ioctl(fd, _IOW('X', 40, int), 0) == 0), T(ioctl(p[0], TIOCOUTQ, &n)), T(ioctl(fd, _IOW(0x94, 9, int), p[0])), T(ioctl(fd, _IOW(0x94, 9, int), fd)), T(ioctl(fd, _IOW(0x94, 9, int), 99));
}
// What a program that was started finds open.
PROGRAM(control_started) {
    T(fcntl(5, F_GETFD)), T(fcntl(6, F_GETFD)), T(fcntl(40, F_GETFD));
}
PROGRAM(control_across_start) {
    put("f", "x");
    int kept = dup2(open("f", O_RDONLY), 5), closed = dup3(kept, 6, O_CLOEXEC), moved = fcntl(kept, F_DUPFD_CLOEXEC, 40);
    CHILD("a program", execl("/proc/self/exe", "answers", "control_started", NULL));
    T(fcntl(closed, F_GETFD)), fcntl(closed, F_SETFD, 0), fcntl(kept, F_SETFD, FD_CLOEXEC);
    CHILD("changed", execl("/proc/self/exe", "answers", "control_started", NULL));
    CHILD("a forked one has all", T(fcntl(kept, F_GETFD)), T(fcntl(moved, F_GETFD)), T(close(kept)));
    T(fcntl(kept, F_GETFD)), chmod("f", 0755);
    CHILD("nothing to run", T(execl("f", "f", NULL)), T(execl("none", "f", NULL)), T(execl(".", "f", NULL)), T(execl("f/x", "f", NULL)), T(execl("", "f", NULL)), chmod("f", 0644), T(execl("f", "f", NULL)), T(fexecve(kept, (char *[]){"f", NULL}, environ)), T(execl("/dev/null", "f", NULL)), T(syscall(SYS_execve, 8, 0, 0)), T(fcntl(moved, F_GETFD)));
}
