// The corners of many calls: what a failure leaves behind, memory that ends in the middle of what is moved, and values
// that nearly nobody asks for.
#include "answers.h"
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <sys/file.h>
#include <termios.h>

// Where `count` pages end and nothing follows.
static char *end_of(size_t count) {
    char *start = mmap(NULL, (count + 1) * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(start + count * 4096, 4096);
    memset(start, 'x', count * 4096);
    return start + count * 4096;
}

PROGRAM(groups_in_order) {
    gid_t groups[3] = {7, 5, 5};
    T(setgroups(3, groups)), T(getgroups(3, groups)), T(groups[0]), T(groups[1]), T(groups[2]);
}

PROGRAM(conversions_of_locks) {
    int first = open("file", O_CREAT | O_RDWR, 0600), second = open("file", O_RDWR);
    T(flock(first, LOCK_SH)), T(flock(second, LOCK_SH)), T(flock(first, LOCK_EX | LOCK_NB)), T(flock(second, LOCK_EX | LOCK_NB));
    T(flock(first, LOCK_SH | LOCK_NB)), T(flock(second, LOCK_EX)), T(flock(second, LOCK_SH)), T(flock(first, LOCK_SH | LOCK_NB));
    T(flock(-1, 99)), T(flock(-1, 9)), T(flock(-1, LOCK_SH));
}

// Has used `megabytes` when it ends.
static void use_memory(long megabytes) {
    char *bytes = mmap(NULL, megabytes << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(bytes, 1, megabytes << 20);
    munmap(bytes, megabytes << 20);
    _exit(0);
}

PROGRAM(peaks_of_children) {
    struct rusage used;
    siginfo_t info;
    getrusage(RUSAGE_CHILDREN, &used), T(used.ru_maxrss);
    pid_t child = fork();
    if (child == 0)
        use_memory(24);
    wait4(child, NULL, 0, &used), IS(used.ru_maxrss >= 24 << 10 && used.ru_maxrss < 48 << 10);
    getrusage(RUSAGE_CHILDREN, &used), IS(used.ru_maxrss >= 24 << 10 && used.ru_maxrss < 48 << 10);
    child = fork();
    if (child == 0)
        use_memory(8);
    syscall(SYS_waitid, P_PID, child, &info, WEXITED, &used), IS(used.ru_maxrss >= 8 << 10 && used.ru_maxrss < 20 << 10);
    getrusage(RUSAGE_CHILDREN, &used), IS(used.ru_maxrss >= 24 << 10);
}

PROGRAM(waits_that_fail) {
    union {
        siginfo_t info;
        unsigned words[32];
    } told;
#define FRESH (memset(&told, 0x55, sizeof told), &told.info)
#define SHOW printf("%x %x %x %x %x %x %x %x\n", told.words[0], told.words[1], told.words[2], told.words[3], told.words[4], told.words[5], told.words[6], told.words[7])
    T(syscall(SYS_waitid, P_ALL, 0, FRESH, WEXITED, NULL)), SHOW;
    T(syscall(SYS_waitid, P_ALL, 0, FRESH, 0, NULL)), SHOW;
    T(syscall(SYS_waitid, 9, 0, FRESH, WEXITED, NULL)), SHOW;
    T(syscall(SYS_waitid, P_ALL, 0, 8, WEXITED, NULL));
    pid_t child = fork();
    if (child == 0)
        _exit(3);
    T(syscall(SYS_waitid, P_PID, child, FRESH, WEXITED | WNOWAIT, 8)), SHOW;
    T(syscall(SYS_waitid, P_PID, child, FRESH, WEXITED | WNOWAIT, NULL)), told.words[4] = told.words[5] = 0, SHOW;
    T(syscall(SYS_waitid, P_PID, child, NULL, WEXITED, NULL));
    for (int signal = 65; signal < 256; signal += 190)
        child = syscall(SYS_clone, signal, 0, 0, 0, 0), child ? (void)0 : _exit(4), T(waitpid(child, &(int){0}, __WALL) == child);
}

static void *fork_and_wait(void *line) {
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    *(pid_t *)line = child;
    siginfo_t info;
    waitid(P_PID, child, &info, WEXITED | WNOWAIT);
    pause_ms(100);
    T(waitpid(child, NULL, __WNOTHREAD) == child);
    return NULL;
}
PROGRAM(children_of_threads) {
    pthread_t thread;
    pid_t child = 0;
    pthread_create(&thread, NULL, fork_and_wait, &child);
    pause_ms(30);
    T(waitpid(child, NULL, __WNOTHREAD | WNOHANG)), T(waitpid(child, NULL, __WNOTHREAD));
    pthread_join(thread, NULL), T(waitpid(child, NULL, WNOHANG));
}

PROGRAM(streams_into_holes) {
    int pair[2], value;
    char *edge = end_of(20), bytes[100];
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair);
    T(write(pair[0], edge - 10, 20)), T(ioctl(pair[1], FIONREAD, &value)), T(value);
    T(write(pair[0], edge - 5000, 6000)), T(ioctl(pair[1], FIONREAD, &value)), T(value);
    T(write(pair[0], edge - 19 * 4096, 20 * 4096)), T(ioctl(pair[1], FIONREAD, &value)), T(value);
    while (read(pair[1], edge - 20 * 4096, 20 * 4096) > 0) {
    }
    T(write(pair[0], "0123456789abcdefghij", 20)), T(read(pair[1], edge - 10, 20)), T(recv(pair[1], edge - 10, 20, MSG_PEEK)), T(recv(pair[1], bytes, 100, 0)), IS(memcmp(bytes, "0123456789abcdefghij", 20) == 0);
    T(read(pair[1], bytes, 1)), T(write(pair[0], "abc", 3)), T(recv(pair[1], (void *)8, 3, 0)), T(recv(pair[1], bytes, 3, 0));
    // What came with the bytes stays with them.
    char control[CMSG_SPACE(4)];
    struct iovec part = {bytes, 4};
    struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *message = (void *)control;
    message->cmsg_level = SOL_SOCKET, message->cmsg_type = SCM_RIGHTS, message->cmsg_len = CMSG_LEN(4), *(int *)CMSG_DATA(message) = 1;
    T(sendmsg(pair[0], &head, 0)), part.iov_base = edge - 2, T(recvmsg(pair[1], &head, 0)), part.iov_base = bytes, head.msg_controllen = sizeof control, T(recvmsg(pair[1], &head, 0)), IS(head.msg_controllen == CMSG_LEN(4) || head.msg_controllen == CMSG_SPACE(4));
}

PROGRAM(control_nowhere) {
    int pair[2], on = 1;
    char bytes[10];
    struct iovec part = {bytes, 10};
    struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1};
    socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair), setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, 4);
    send(pair[0], "abc", 3, 0), head.msg_control = (void *)8, head.msg_controllen = 64, T(recvmsg(pair[1], &head, 0)), T(head.msg_controllen), T(head.msg_flags), T(recvmsg(pair[1], &head, 0));
    for (int length = 8; length <= 16; length += 8) {
        head.msg_control = NULL, head.msg_controllen = length, T(sendmsg(pair[0], &head, 0));
        head.msg_control = (void *)8, head.msg_controllen = length, T(sendmsg(pair[0], &head, 0));
    }
    head.msg_control = bytes, head.msg_controllen = 8, T(sendmsg(pair[0], &head, 0)), head.msg_control = NULL, head.msg_controllen = 0, T(sendmsg(pair[0], &head, 0));
}

PROGRAM(options_nobody_asks_for) {
    int pair[2], value, memory[9];
    socklen_t length;
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
#define GET(option) (length = 4, value = -1, getsockopt(pair[0], SOL_SOCKET, option, &value, &length) ? -1 : value)
#define SET(option, what) (value = what, setsockopt(pair[0], SOL_SOCKET, option, &value, 4))
    T(GET(SO_OOBINLINE)), T(SET(SO_OOBINLINE, 7)), T(GET(SO_OOBINLINE)), T(GET(SO_PRIORITY)), T(SET(SO_PRIORITY, 5)), T(GET(SO_PRIORITY)), T(GET(SO_TIMESTAMP)), T(SET(SO_TIMESTAMP, 0)), T(GET(SO_TIMESTAMPNS)), T(GET(SO_BUSY_POLL));
    length = sizeof memory, T(getsockopt(pair[0], SOL_SOCKET, SO_MEMINFO, memory, &length)), T(length), T(memory[0]), T(memory[2]), value = memory[3], IS(value == GET(SO_SNDBUF));
    T(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0)), T(prctl(PR_MCE_KILL, 1, 1, 0, 0)), T(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0)), T(prctl(PR_MCE_KILL, 1, 0, 0, 0)), T(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0));
    CHILD("kept", T(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0)));
    T(prctl(PR_MCE_KILL, 1, 2, 0, 0)), T(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0)), T(prctl(PR_MCE_KILL, 0, 0, 0, 0)), T(prctl(PR_MCE_KILL, 0, 1, 0, 0)), T(prctl(PR_MCE_KILL, 1, 3, 0, 0)), T(prctl(PR_MCE_KILL, 2, 0, 0, 0)), T(prctl(PR_MCE_KILL_GET, 1, 0, 0, 0)), T(prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0)), T(prctl(PR_GET_IO_FLUSHER, 0, 0, 0, 0));
}

PROGRAM(listings_into_holes) {
    char *edge = end_of(1), bytes[4096];
    mkdir("folder", 0700), close(open("folder/abcdef", O_CREAT | O_RDWR, 0600)), close(open("folder/ghijkl", O_CREAT | O_RDWR, 0600));
    int folder = open("folder", O_RDONLY);
    T(syscall(SYS_getdents64, folder, bytes, -1)), T(syscall(SYS_getdents64, folder, bytes, 1u << 31)), T(syscall(SYS_getdents64, folder, edge - 20, 4096)), T(syscall(SYS_getdents64, folder, edge - 60, 4096)), T(syscall(SYS_getdents64, folder, edge - 40, 4096)), T(syscall(SYS_getdents64, folder, bytes, 4096)), T(syscall(SYS_getdents64, folder, bytes, -1));
    lseek(folder, 0, SEEK_SET), T(syscall(SYS_getdents, folder, edge - 60, 4096)), T(syscall(SYS_getdents, folder, bytes, 4096));
}

PROGRAM(breaks_on_lines) {
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    grantpt(master), unlockpt(master);
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    T(ioctl(slave, 0x5425, 0)), T(ioctl(slave, 0x5425, 3)), T(tcsendbreak(slave, 0)), T(tcsendbreak(master, 5)), T(ioctl(slave, TIOCSBRK)), T(ioctl(slave, TIOCCBRK)), T(ioctl(master, TIOCCBRK));
    CHILD("nobody", (setuid(5), T(ioctl(slave, 0x5437, 0))));
}

PROGRAM(files_at_their_limits) {
    char name[64];
    int script = open("script", O_CREAT | O_RDWR, 0700);
    write(script, "#!/bin/sh\n", 10);
    CHILD("written", T(execl("./script", "script", NULL)));
    signal(SIGXFSZ, SIG_IGN);
    CHILD("limited", (setrlimit(RLIMIT_FSIZE, &(struct rlimit){8192, 8192}), T(fallocate(script, FALLOC_FL_KEEP_SIZE, 0, 8192)), T(fallocate(script, FALLOC_FL_KEEP_SIZE, 0, 20000)), T(fallocate(script, 0, 0, 20000))));
    int unnamed = open(".", O_TMPFILE | O_RDWR, 0600);
    sprintf(name, "/proc/self/fd/%d", unnamed);
    T(linkat(AT_FDCWD, name, AT_FDCWD, "named", AT_SYMLINK_FOLLOW)), T(unlink("named")), T(linkat(AT_FDCWD, name, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
    T(posix_fadvise(open("script", O_PATH), 0, 0, 0));
    T(setxattr("script", "user.a", "1", 1, 0)), T(setxattr("script", "user.a", "2", 1, XATTR_CREATE | XATTR_REPLACE)), T(setxattr("script", "user.b", "2", 1, XATTR_CREATE | XATTR_REPLACE)), T(setxattr("script", "user.b", "2", 1, 4));
    int line[2];
    pipe(line), T(vmsplice(line[1], &(struct iovec){end_of(1) - 5, 10}, 1, 0)), T(read(line[0], name, 64)), T(vmsplice(line[1], &(struct iovec){(void *)8, 10}, 1, 0));
    char *page = end_of(1) - 4096;
    mlock(page, 4096), T(madvise(page, 4096, MADV_DONTNEED)), T(page[0]), T(madvise(page, 4096, 24)), T(page[0]);
}

PROGRAM(pending_signals_at_their_limit) {
    sigset_t blocked;
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    sigemptyset(&blocked), sigaddset(&blocked, SIGRTMIN), sigprocmask(SIG_BLOCK, &blocked, NULL);
    setrlimit(RLIMIT_SIGPENDING, &(struct rlimit){3, 3});
    CHILD("signals", (setuid(54321), T(sigqueue(getpid(), SIGRTMIN, (union sigval){0})), T(sigqueue(getpid(), SIGRTMIN, (union sigval){0})), T(timer_create(CLOCK_MONOTONIC, &event, &timer)), T(timer_create(CLOCK_MONOTONIC, &event, &timer)), T(sigqueue(getpid(), SIGRTMIN, (union sigval){0}))));
    CHILD("timers", (setuid(54322), T(timer_create(CLOCK_MONOTONIC, &event, &timer)), T(timer_create(CLOCK_MONOTONIC, NULL, &timer)), T(timer_create(CLOCK_MONOTONIC, &event, &timer)), T(sigqueue(getpid(), SIGRTMIN, (union sigval){0})), T(timer_delete(timer)), T(sigqueue(getpid(), SIGRTMIN, (union sigval){0})), T(timer_create(CLOCK_MONOTONIC, &event, &timer))));
}

PROGRAM(clocks_that_cannot_be_set) {
    struct timex state = {0};
    timer_t timer;
    int own = ~getpid() << 3 | 2, file = ~getpid() << 3 | 3;
    T(syscall(SYS_clock_settime, CLOCK_MONOTONIC, NULL)), T(syscall(SYS_clock_settime, 50, NULL)), T(syscall(SYS_clock_settime, CLOCK_PROCESS_CPUTIME_ID, NULL)), T(syscall(SYS_clock_settime, CLOCK_REALTIME, NULL)), T(syscall(SYS_clock_settime, CLOCK_REALTIME, &(struct timespec){1L << 33, 0})), T(syscall(SYS_clock_settime, CLOCK_REALTIME, &(struct timespec){8277292036, 0})), T(syscall(SYS_clock_settime, own, &(struct timespec){1, 0})), T(syscall(SYS_clock_settime, own, NULL));
    T(syscall(SYS_clock_adjtime, -1, &state)), T(syscall(SYS_clock_adjtime, own, &state)), T(syscall(SYS_clock_adjtime, file, &state)), T(syscall(SYS_clock_adjtime, 1, &state)), T(syscall(SYS_clock_adjtime, 50, &state));
    T(timer_create(file, NULL, &timer)), T(syscall(SYS_timer_create, ~getpid() << 3 | 7, NULL, &timer));
    int slack = open("/proc/self/timerslack_ns", O_RDWR);
    T(write(slack, "12345\n", 6)), T(prctl(PR_GET_TIMERSLACK)), T(write(slack, "x", 1)), T(write(slack, "-1", 2)), T(write(slack, "0", 1)), T(prctl(PR_GET_TIMERSLACK)), T(write(slack, "5000000000", 10)), T(prctl(PR_GET_TIMERSLACK));
}

PROGRAM(buffers_one_by_one) {
    int counter = eventfd(0, EFD_NONBLOCK), watch = inotify_init1(IN_NONBLOCK);
    uint64_t values[2] = {3, 4}, sum = 0;
    char bytes[100];
#define TWO(first, second) (struct iovec[]){{values, first}, {(char *)values + first, second}}, 2
#define INTO(first, second) (struct iovec[]){{bytes, first}, {bytes + first, second}}, 2
    T(writev(counter, TWO(4, 4))), T(writev(counter, TWO(8, 8))), T(writev(counter, TWO(8, 4))), T(writev(counter, TWO(0, 8))), T(read(counter, &sum, 8)), T(sum);
    inotify_add_watch(watch, ".", IN_CREATE | IN_DELETE | IN_ATTRIB);
    int file = open(".", O_RDONLY);
    fchmod(file, 0700), inotify_add_watch(watch, ".", IN_ATTRIB | IN_OPEN), close(open(".", O_RDONLY)), fchmod(file, 0777);
    T(readv(watch, INTO(20, 20))), T(readv(watch, INTO(8, 50))), T(readv(watch, INTO(32, 32)));
}
