/*
 * Policies that are kept, memory of one node, namespaces that nobody asks for, a terminal that is hung up, signals by
 * directories of /proc. Prints facts that are the same on every Linux; what a host forbids is left out in silence.
 */
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
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_set_mempolicy_home_node
#define SYS_set_mempolicy_home_node 450
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

#define CHECK(claim) ((claim) ? (void)0 : (void)printf("line %d: not so: %s (errno %d)\n", __LINE__, #claim, errno))
#define FAILS(call, number) (errno = 0, CHECK((long)(call) == -1), CHECK(errno == number))

struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
    uint32_t clamps[2];
    uint64_t more;
};

static long set(struct attributes a) { return syscall(SYS_sched_setattr, 0, &a, 0); }

static void scheduling(void) {
    struct attributes a = {48, SCHED_BATCH, 1, 5, 0};
    CHECK(set(a) == 0);
    memset(&a, 0, sizeof a);
    CHECK(syscall(SYS_sched_getattr, 0, &a, 48, 0) == 0);
    CHECK(a.size == 48 && a.policy == SCHED_BATCH && a.flags == 1 && a.nice == 5 && a.priority == 0);
    CHECK(syscall(SYS_sched_getattr, getpid(), &a, 64, 0) == 0 && a.size >= 48);
    CHECK(getpriority(PRIO_PROCESS, 0) == 5);
    CHECK((syscall(SYS_sched_getscheduler, 0) & 0xffff) == SCHED_BATCH);
    pid_t child = fork();
    if (child == 0) {
        CHECK(syscall(SYS_sched_getattr, 0, &a, 48, 0) == 0);
        /* A policy without a priority stays; that it would be reset does not. */
        CHECK(a.policy == SCHED_BATCH && a.flags == 0 && a.nice == 5);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    CHECK(set((struct attributes){48, 0, 8 | 0x10, -20, 0}) == 0);
    CHECK(getpriority(PRIO_PROCESS, 0) == 5);
    CHECK(set((struct attributes){48, SCHED_IDLE, 1, 0, 0}) == 0);
    CHECK(syscall(SYS_sched_getattr, 0, &a, 48, 0) == 0 && a.policy == SCHED_IDLE);
    struct attributes small = {47};
    FAILS(syscall(SYS_sched_setattr, 0, &small, 0), E2BIG);
    CHECK(small.size >= 56);
    FAILS(set((struct attributes){64, 0, 1, 0, 0, 0, 0, 0, {0}, 1}), E2BIG);
    FAILS(set((struct attributes){48, 77, 0, 0, 0}), EINVAL);
    FAILS(set((struct attributes){48, -1, 0, 0, 0}), EINVAL);
    FAILS(set((struct attributes){48, 0, 1 << 20, 0, 0}), EINVAL);
    FAILS(set((struct attributes){48, 0, 1, 0, 3}), EINVAL);
    FAILS(set((struct attributes){48, SCHED_FIFO, 0, 0, 0}), EINVAL);
    FAILS(syscall(SYS_sched_setattr, -1, &a, 0), EINVAL);
    FAILS(syscall(SYS_sched_setattr, 1 << 22, &(struct attributes){48}, 0), ESRCH);
    FAILS(syscall(SYS_sched_setattr, 0, NULL, 0), EINVAL);
    FAILS(syscall(SYS_sched_setattr, 0, &a, 1), EINVAL);
    FAILS(syscall(SYS_sched_getattr, 0, &a, 47, 0), EINVAL);
    FAILS(syscall(SYS_sched_getattr, 0, &a, 4097, 0), EINVAL);
    FAILS(syscall(SYS_sched_getattr, 0, &a, 48, 1), EINVAL);
    FAILS(syscall(SYS_sched_getattr, 0, NULL, 48, 0), EINVAL);
    FAILS(syscall(SYS_sched_getattr, 1 << 22, &a, 48, 0), ESRCH);
}

#define PRIORITY(class, level) ((class) << 13 | (level))

static void *prints_priority(void *result) {
    *(long *)result = syscall(SYS_ioprio_get, 1, 0);
    return NULL;
}

static void input_and_output(void) {
    CHECK(syscall(SYS_ioprio_set, 1, 0, 0) == 0);
    CHECK(syscall(SYS_ioprio_get, 1, 0) == 0);
    CHECK(syscall(SYS_ioprio_set, 1, getpid(), PRIORITY(2, 5)) == 0);
    CHECK(syscall(SYS_ioprio_get, 1, 0) == PRIORITY(2, 5));
    long in_thread = 0;
    pthread_t thread;
    pthread_create(&thread, NULL, prints_priority, &in_thread);
    pthread_join(thread, NULL);
    CHECK(in_thread == PRIORITY(2, 5));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        CHECK(syscall(SYS_ioprio_get, 1, 0) == PRIORITY(2, 5));
        CHECK(syscall(SYS_ioprio_set, 1, 0, PRIORITY(3, 0)) == 0);
        setpgid(0, 0);
        CHECK(syscall(SYS_ioprio_get, 2, 0) == PRIORITY(3, 0));
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    CHECK(syscall(SYS_ioprio_get, 1, 0) == PRIORITY(2, 5));
    FAILS(syscall(SYS_ioprio_set, 1, 0, 3), EINVAL);
    FAILS(syscall(SYS_ioprio_set, 1, 0, PRIORITY(5, 0)), EINVAL);
    FAILS(syscall(SYS_ioprio_set, 4, 0, 0), EINVAL);
    FAILS(syscall(SYS_ioprio_set, 1, 1 << 22, 0), ESRCH);
    FAILS(syscall(SYS_ioprio_get, 4, 0), EINVAL);
    FAILS(syscall(SYS_ioprio_get, 1, 1 << 22), ESRCH);
}

static void nodes(void) {
    int mode = 9;
    unsigned long mask[64] = {0}, one = 1, none = 0;
    /* A host may forbid these calls, be built without them, or have more nodes than one. */
    if (syscall(SYS_get_mempolicy, &mode, mask, 4096, 0, 4) || mask[0] != 1) return;
    CHECK(mode == 0);
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *closed = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *hole = mmap(NULL, 3 * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(hole + 4096, 4096);
    CHECK(syscall(SYS_set_mempolicy, 3, &one, 64) == 0);
    CHECK(syscall(SYS_get_mempolicy, &mode, mask, 4096, 0, 0) == 0 && mode == 3 && mask[0] == 1);
    CHECK(syscall(SYS_get_mempolicy, &mode, NULL, 0, 0, 1) == 0 && mode == 0);
    CHECK(syscall(SYS_get_mempolicy, &mode, NULL, 0, page, 2) == 0 && mode == 0);
    mode = 9;
    CHECK(syscall(SYS_get_mempolicy, &mode, NULL, 0, page, 3) == 0 && mode == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        CHECK(syscall(SYS_get_mempolicy, &mode, mask, 4096, 0, 0) == 0 && mode == 3 && mask[0] == 1);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    CHECK(syscall(SYS_set_mempolicy, 1, NULL, 0) == 0);
    CHECK(syscall(SYS_get_mempolicy, &mode, NULL, 0, 0, 0) == 0 && mode == 4);
    CHECK(syscall(SYS_set_mempolicy, 2 | 1 << 15, &one, 64) == 0);
    CHECK(syscall(SYS_get_mempolicy, &mode, mask, 4096, 0, 0) == 0 && mode == (2 | 1 << 15) && mask[0] == 1);
    CHECK(syscall(SYS_set_mempolicy, 0, NULL, 0) == 0);
    CHECK(syscall(SYS_get_mempolicy, &mode, mask, 4096, 0, 0) == 0 && mode == 0 && mask[0] == 0);
    FAILS(syscall(SYS_get_mempolicy, &mode, NULL, 0, page, 0), EINVAL);
    FAILS(syscall(SYS_get_mempolicy, &mode, NULL, 0, 16, 3), EFAULT);
    FAILS(syscall(SYS_get_mempolicy, &mode, mask, 4096, 0, 5), EINVAL);
    FAILS(syscall(SYS_get_mempolicy, &mode, mask, 4096, 0, 8), EINVAL);
    FAILS(syscall(SYS_get_mempolicy, &mode, mask, 4096, 0, 1), EINVAL);
    FAILS(syscall(SYS_get_mempolicy, &mode, mask, 0, 0, 0), EINVAL);
    FAILS(syscall(SYS_set_mempolicy, 2, &none, 64), EINVAL);
    FAILS(syscall(SYS_set_mempolicy, 0, &one, 64), EINVAL);
    FAILS(syscall(SYS_set_mempolicy, 77, &one, 64), EINVAL);
    FAILS(syscall(SYS_set_mempolicy, 2 | 3 << 14, &one, 64), EINVAL);
    FAILS(syscall(SYS_set_mempolicy, 2, 16, 64), EFAULT);
    CHECK(syscall(SYS_mbind, page, 8192, 2, &one, 64, 0) == 0);
    CHECK(syscall(SYS_mbind, page, 8192, 0, NULL, 0, 1) == 0);
    CHECK(syscall(SYS_mbind, page, 0, 2, &one, 64, 0) == 0);
    FAILS(syscall(SYS_mbind, page + 1, 4096, 2, &one, 64, 0), EINVAL);
    FAILS(syscall(SYS_mbind, page, 4096, 2, &one, 64, 1 << 9), EINVAL);
    FAILS(syscall(SYS_mbind, hole, 3 * 4096, 2, &one, 64, 0), EFAULT);
    FAILS(syscall(SYS_set_mempolicy_home_node, page, 4096, 0, 1), EINVAL);
    FAILS(syscall(SYS_set_mempolicy_home_node, page, 4096, 5000, 0), EINVAL);
    CHECK(syscall(SYS_migrate_pages, 0, 64, &one, &one) == 0);
    FAILS(syscall(SYS_migrate_pages, 0, 64, &one, &none), EINVAL);
    FAILS(syscall(SYS_migrate_pages, 1 << 22, 64, &one, &one), ESRCH);
    *page = 1;
    void *pages[] = {page, closed, (void *)16};
    int where[] = {0, 0, 0}, status[] = {7, 7, 7};
    CHECK(syscall(SYS_move_pages, 0, 3L, pages, NULL, status, 0) == 0);
    CHECK(status[0] == 0 && status[1] == -ENOENT && status[2] == -EFAULT);
    memset(status, 7, sizeof status);
    CHECK(syscall(SYS_move_pages, getpid(), 3L, pages, where, status, 2) == 0);
    CHECK(status[0] == 0 && status[1] == -ENOENT && status[2] == -EFAULT);
    where[0] = 63;
    FAILS(syscall(SYS_move_pages, 0, 1L, pages, where, status, 2), ENODEV);
    FAILS(syscall(SYS_move_pages, 0, 1L, pages, where, status, 1), EINVAL);
    FAILS(syscall(SYS_move_pages, 1 << 22, 1L, pages, NULL, status, 0), ESRCH);
    FAILS(syscall(SYS_move_pages, 0, 1L, 16, NULL, status, 0), EFAULT);
}

static void *waits(void *lock) {
    pthread_mutex_lock(lock);
    return NULL;
}

static void namespaces(void) {
    errno = 0;
    if (unshare(0) == -1 && (errno == EPERM || errno == ENOSYS)) return;
    CHECK(unshare(CLONE_FS) == 0);
    CHECK(unshare(CLONE_FILES | CLONE_SYSVSEM) == 0);
    CHECK(unshare(CLONE_VM) == 0);
    FAILS(unshare(1), EINVAL);
    FAILS(unshare(CLONE_PARENT), EINVAL);
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread;
    pthread_mutex_lock(&lock);
    pthread_create(&thread, NULL, waits, &lock);
    FAILS(unshare(CLONE_VM), EINVAL);
    FAILS(unshare(CLONE_THREAD), EINVAL);
    CHECK(unshare(CLONE_SYSVSEM) == 0);
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
    FAILS(setns(-1, 0), EBADF);
    FAILS(setns(open("/dev/null", O_RDONLY), 0), EINVAL);
    FAILS(setns(open("/dev/null", O_PATH), 0), EBADF);
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    FAILS(setns(self, 0), EINVAL);
    FAILS(setns(self, 1), EINVAL);
}

static volatile sig_atomic_t seen[65];

static void note(int number) { seen[number]++; }

static void directories(void) {
    signal(SIGUSR1, note);
    int self = open("/proc/self", O_RDONLY | O_DIRECTORY);
    CHECK(syscall(SYS_pidfd_send_signal, self, 0, NULL, 0) == 0);
    CHECK(syscall(SYS_pidfd_send_signal, self, SIGUSR1, NULL, 0) == 0);
    CHECK(seen[SIGUSR1] == 1);
    FAILS(syscall(SYS_pidfd_send_signal, self, 65, NULL, 0), EINVAL);
    FAILS(syscall(SYS_pidfd_send_signal, open("/proc", O_RDONLY), 0, NULL, 0), EBADF);
    FAILS(syscall(SYS_pidfd_send_signal, open("/proc/self", O_PATH), 0, NULL, 0), EBADF);
    FAILS(syscall(SYS_pidfd_send_signal, open("/proc/self/task", O_RDONLY), 0, NULL, 0), EBADF);
    FAILS(syscall(SYS_pidfd_send_signal, open("/proc/self/stat", O_RDONLY), 0, NULL, 0), EBADF);
    FAILS(syscall(SYS_pidfd_send_signal, open("/proc/thread-self", O_RDONLY), 0, NULL, 0), EBADF);
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(1);
    }
    char path[64];
    int status = 0;
    snprintf(path, sizeof path, "/proc/%d", child);
    int directory = open(path, O_RDONLY | O_DIRECTORY);
    CHECK(syscall(SYS_pidfd_send_signal, directory, SIGKILL, NULL, 0) == 0);
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    FAILS(syscall(SYS_pidfd_send_signal, directory, 0, NULL, 0), ESRCH);
}

/* The leader of a session hangs its terminal up; what it and another process in the foreground see of that. */
static void leads(const char *path) {
    signal(SIGHUP, note), signal(SIGCONT, note);
    setsid();
    int slave = open(path, O_RDWR);
    CHECK(tcgetsid(slave) == getpid());
    int ends[2];
    char byte;
    if (pipe(ends)) _exit(1);
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        signal(SIGHUP, SIG_DFL), signal(SIGTTOU, SIG_IGN);
        tcsetpgrp(slave, getpid());
        write(ends[1], "x", 1);
        CHECK(read(slave, &byte, 1) == 0);
        CHECK(open("/dev/tty", O_RDWR) == -1 && errno == ENXIO);
        fflush(stdout);
        _exit(5);
    }
    read(ends[0], &byte, 1);
    if (vhangup() == -1 && errno == EPERM) {
        /* Only root may; the terminal hangs up with the session. */
        kill(child, SIGKILL);
        _exit(0);
    }
    CHECK(seen[SIGHUP] == 1 && seen[SIGCONT] == 1);
    CHECK(read(slave, &byte, 1) == 0);
    FAILS(write(slave, "x", 1), EIO);
    FAILS(tcgetpgrp(slave), EIO);
    struct pollfd entry = {slave, POLLIN, 0};
    CHECK(poll(&entry, 1, 0) == 1 && entry.revents & POLLHUP);
    FAILS(open("/dev/tty", O_RDWR), ENXIO);
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
    CHECK(vhangup() == 0);
    fflush(stdout);
    _exit(0);
}

static void hanging_up(void) {
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    grantpt(master), unlockpt(master);
    pid_t child = fork();
    if (child == 0) leads(ptsname(master));
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    char byte;
    FAILS(read(master, &byte, 1), EIO);
    close(master);
}

int main(void) {
    fflush(stdout);
    nodes();
    input_and_output();
    namespaces();
    directories();
    hanging_up();
    scheduling();
    puts("done");
    return 0;
}
