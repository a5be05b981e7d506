/* Processes as descriptors, and waiting for several words. Prints facts that are the same on every Linux. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SAY(call) (errno = 0, say(#call, (long)(call)))
#define P_PIDFD_ 3
#define CLONE_PIDFD_ 0x1000

static void say(const char *call, long result) {
    printf("%s: %ld %s\n", call, result, result == -1 ? strerror(errno) : "");
    fflush(stdout);
}

static long pidfd_open_raw(long pid, long flags) { return syscall(434, pid, flags); }
static long pidfd_send(int fd, int number, siginfo_t *info, unsigned flags) { return syscall(424, fd, number, info, flags); }
static long pidfd_get(int fd, int wanted, unsigned flags) { return syscall(438, fd, wanted, flags); }
static long wait_fd(int fd, siginfo_t *info, int options) { return syscall(SYS_waitid, P_PIDFD_, fd, info, options, 0); }

static short polled(int fd, int timeout_ms) {
    struct pollfd entry = {fd, POLLIN, 0};
    poll(&entry, 1, timeout_ms);
    return entry.revents & POLLIN;
}

static void told(int number) { (void)number; }

static void opening(void) {
    SAY(pidfd_open_raw(0, 0));
    SAY(pidfd_open_raw(-1, 0));
    SAY(pidfd_open_raw(1 << 30, 0));
    SAY(pidfd_open_raw(getpid(), 0x40));
    int self = pidfd_open_raw(getpid(), 0);
    SAY(fcntl(self, F_GETFD));
    SAY(fcntl(self, F_GETFL) & O_NONBLOCK);
    char buffer[8];
    SAY(read(self, buffer, 8));
    SAY(write(self, buffer, 8));
    SAY(polled(self, 0));
    SAY(wait_fd(self, 0, WEXITED));
    SAY(wait_fd(-1, 0, WEXITED));
    SAY(wait_fd(1, 0, WEXITED));
    SAY(wait_fd(99, 0, WEXITED));
    SAY(pidfd_send(self, 0, 0, 0));
    SAY(pidfd_send(self, 65, 0, 0));
    SAY(pidfd_send(1, 0, 0, 0));
    SAY(pidfd_send(99, 0, 0, 0));
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_signo = SIGUSR1, info.si_code = SI_QUEUE, info.si_value.sival_int = 12;
    SAY(pidfd_send(self, SIGUSR2, &info, 0));
    sigset_t mask;
    sigemptyset(&mask), sigaddset(&mask, SIGUSR1), sigprocmask(SIG_BLOCK, &mask, 0);
    SAY(pidfd_send(self, SIGUSR1, &info, 0));
    memset(&info, 0, sizeof info);
    SAY(sigwaitinfo(&mask, &info) == SIGUSR1);
    printf("code %d value %d\n", info.si_code, info.si_value.sival_int);
    SAY(pidfd_send(self, SIGUSR1, 0, 0));
    SAY(sigwaitinfo(&mask, &info) == SIGUSR1);
    printf("code %d own %d\n", info.si_code, info.si_pid == getpid());
    SAY(pidfd_get(self, 99, 0));
    SAY(pidfd_get(self, 1, 1));
    SAY(pidfd_get(1, 1, 0));
    int same = pidfd_get(self, 1, 0);
    SAY(fcntl(same, F_GETFD));
    dprintf(same, "written through the copy\n");
    close(same), close(self);
}

static void children(void) {
    int pipes[2];
    siginfo_t info;
    pipe(pipes);
    pid_t child = fork();
    if (!child) {
        char byte;
        close(pipes[1]);
        read(pipes[0], &byte, 1);
        _exit(7);
    }
    close(pipes[0]);
    int fd = pidfd_open_raw(child, O_NONBLOCK);
    SAY(fcntl(fd, F_GETFL) & O_NONBLOCK);
    SAY(polled(fd, 0));
    SAY(wait_fd(fd, &info, WEXITED));
    memset(&info, 1, sizeof info);
    SAY(wait_fd(fd, &info, WEXITED | WNOHANG));
    printf("nothing yet %d\n", info.si_pid);
    int epoll = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.fd = 5}};
    SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
    SAY(epoll_wait(epoll, &event, 1, 0));
    close(pipes[1]);
    SAY(epoll_wait(epoll, &event, 1, -1));
    SAY(polled(fd, -1));
    SAY(wait_fd(fd, &info, WEXITED | WNOWAIT));
    printf("pid %d code %d status %d\n", info.si_pid == child, info.si_code, info.si_status);
    SAY(pidfd_send(fd, 0, 0, 0));
    SAY(pidfd_send(fd, SIGKILL, 0, 0));
    SAY(wait_fd(fd, &info, WEXITED));
    SAY(wait_fd(fd, &info, WEXITED));
    SAY(pidfd_send(fd, SIGTERM, 0, 0));
    SAY(pidfd_open_raw(child, 0));
    SAY(polled(fd, 0));
    close(fd), close(epoll);
}

static void clones(void) {
    int fd = -1, tid = -1;
    SAY(syscall(SYS_clone, CLONE_PIDFD_ | CLONE_PARENT_SETTID | SIGCHLD, 0, &fd, 0, 0));
    SAY(syscall(SYS_clone, CLONE_PIDFD_ | CLONE_DETACHED | SIGCHLD, 0, &fd, 0, 0));
    long child = syscall(SYS_clone, CLONE_PIDFD_ | SIGCHLD, 0, &fd, 0, 0);
    if (!child) {
        /* It does not have it itself. */
        _exit(fcntl(fd, F_GETFD) == -1 ? 3 : 4);
    }
    siginfo_t info;
    SAY(fcntl(fd, F_GETFD));
    SAY(wait_fd(fd, &info, WEXITED));
    printf("pid %d status %d\n", info.si_pid == child, info.si_status);
    close(fd);
    uint64_t arguments[11] = {CLONE_PIDFD_ | CLONE_PARENT_SETTID, (uintptr_t)&fd, 0, (uintptr_t)&tid, SIGCHLD};
    child = syscall(435, arguments, sizeof arguments);
    if (!child) {
        pause();
        _exit(9);
    }
    printf("tid %d\n", tid == child);
    SAY(pidfd_send(fd, SIGTERM, 0, 0));
    SAY(wait_fd(fd, &info, WEXITED));
    printf("code %d status %d\n", info.si_code, info.si_status);
    close(fd);
    arguments[3] = arguments[1];
    SAY(syscall(435, arguments, sizeof arguments));
    /* No room for it: no child either. */
    struct rlimit limit, before;
    getrlimit(RLIMIT_NOFILE, &before);
    limit = before, limit.rlim_cur = 3, setrlimit(RLIMIT_NOFILE, &limit);
    SAY(syscall(SYS_clone, CLONE_PIDFD_ | SIGCHLD, 0, &fd, 0, 0));
    setrlimit(RLIMIT_NOFILE, &before);
    SAY(waitpid(-1, 0, 0));
}

struct waited { uint64_t value, address; uint32_t flags, reserved; };
static uint32_t words[3];
static struct waited entries[3];

static long wait_any(int count, unsigned flags, struct timespec *timeout, int clock) {
    return syscall(449, entries, count, flags, timeout, clock);
}

static void *wakes(void *unused) {
    (void)unused;
    while (!syscall(SYS_futex, &words[1], 129, 1, 0, 0, 0)) sched_yield();
    return 0;
}

static void vectors(void) {
    struct timespec past = {0, 0}, bad = {0, 1000000000};
    for (int i = 0; i < 3; i++) entries[i] = (struct waited){0, (uintptr_t)&words[i], 2 | 128, 0};
    SAY(wait_any(0, 0, 0, 0));
    SAY(wait_any(129, 0, 0, 0));
    SAY(wait_any(3, 1, 0, 0));
    SAY(syscall(449, 0, 3, 0, 0, 0));
    SAY(syscall(449, 8, 3, 0, 0, 0));
    SAY(wait_any(3, 0, &past, 7));
    SAY(wait_any(3, 0, &bad, CLOCK_MONOTONIC));
    SAY(wait_any(3, 0, (struct timespec *)8, CLOCK_MONOTONIC));
    SAY(wait_any(3, 0, &past, CLOCK_MONOTONIC));
    SAY(wait_any(3, 0, &past, CLOCK_REALTIME));
    entries[2].value = 1;
    SAY(wait_any(3, 0, &past, CLOCK_MONOTONIC));
    SAY(wait_any(2, 0, &past, CLOCK_MONOTONIC));
    entries[2].value = 0, entries[2].reserved = 1;
    SAY(wait_any(3, 0, &past, CLOCK_MONOTONIC));
    entries[2].reserved = 0, entries[2].flags = 128;
    SAY(wait_any(3, 0, &past, CLOCK_MONOTONIC));
    entries[2].flags = 2 | 128, entries[2].address++;
    SAY(wait_any(3, 0, &past, CLOCK_MONOTONIC));
    entries[2].address = 8;
    SAY(wait_any(3, 0, &past, CLOCK_MONOTONIC));
    entries[2].address = (uintptr_t)&words[2];
    pthread_t thread;
    pthread_create(&thread, 0, wakes, 0);
    SAY(wait_any(3, 0, 0, 0));
    pthread_join(thread, 0);
}

int main(void) {
    signal(SIGUSR1, told);
    opening();
    children();
    clones();
    vectors();
    return 0;
}
