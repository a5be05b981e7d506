// What calls on processes, memory, time and queues refuse, page by page of the manual.
#include "answers.h"
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <linux/sched.h>
#include <mqueue.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/times.h>
#include <sys/timerfd.h>
#include <sys/timex.h>
#include <sys/uio.h>

#define BAD ((void *)8)
#define S(name, ...) tell(#name "(" #__VA_ARGS__ ")", (errno = 0, syscall(SYS_##name, ##__VA_ARGS__)))

static char page[4096] __attribute__((aligned(4096)));

PROGRAM(advice_to_others) {
    char *some = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct iovec whole = {some, 4 * 4096}, odd = {some + 1, 4096}, none = {some, 0}, hole = {(void *)4096, 4096};
    int self = syscall(SYS_pidfd_open, getpid(), 0), plain = open("plain", O_CREAT | O_RDWR, 0600);
    S(process_madvise, self, &whole, 1L, MADV_COLD, 0), S(process_madvise, self, &whole, 1L, MADV_PAGEOUT, 0), S(process_madvise, self, &whole, 1L, MADV_WILLNEED, 0), S(process_madvise, self, &whole, 1L, 999, 0), S(process_madvise, self, &whole, 1L, MADV_COLD, 1), S(process_madvise, self, &odd, 1L, MADV_COLD, 0), S(process_madvise, self, &none, 1L, MADV_COLD, 0), S(process_madvise, self, &hole, 1L, MADV_COLD, 0), S(process_madvise, self, NULL, 0L, MADV_COLD, 0), S(process_madvise, self, BAD, 1L, MADV_COLD, 0), S(process_madvise, self, &whole, 1025L, MADV_COLD, 0), S(process_madvise, 99, &whole, 1L, MADV_COLD, 0), S(process_madvise, plain, &whole, 1L, MADV_COLD, 0), S(process_madvise, self, (&(struct iovec[2]){whole, hole}), 2L, MADV_COLD, 0);
    int line[2];
    pipe(line);
    pid_t child = fork();
    if (child == 0)
        close(line[1]), read(line[0], page, 1), _exit(0);
    int other = syscall(SYS_pidfd_open, child, 0);
    S(process_madvise, other, &whole, 1L, MADV_COLD, 0), S(process_madvise, other, &whole, 1L, MADV_WILLNEED, 0);
    CHILD("another user", setresuid(1000, 1000, 1000), S(process_madvise, other, &whole, 1L, MADV_COLD, 0));
    close(line[1]), waitpid(child, NULL, 0), S(process_madvise, other, &whole, 1L, MADV_COLD, 0), S(process_mrelease, other, 0), S(process_mrelease, self, 0), S(process_mrelease, self, 1), S(process_mrelease, 99, 0), S(process_mrelease, plain, 0);
}

PROGRAM(pages_in_another_order) {
    int plain = open("plain", O_CREAT | O_RDWR, 0600);
    ftruncate(plain, 4 * 4096);
    for (int i = 0; i < 4; i++)
        pwrite(plain, &"abcd"[i], 1, i * 4096);
    char *at = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, plain, 0), *own = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, plain, 0), *anonymous = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    S(remap_file_pages, at, 4096L, 0, 3L, 0), T(at[0]), T(at[4096]), S(remap_file_pages, at + 4096, 8192L, 0, 0L, 0), T(at[4096]), T(at[8192]), at[4096] = 'A', T(pread(plain, page, 1, 0)), T(page[0]);
    S(remap_file_pages, at, 4096L, 1, 0L, 0), S(remap_file_pages, at + 1, 4096L, 0, 0L, 0), S(remap_file_pages, own, 4096L, 0, 0L, 0), S(remap_file_pages, page, 4096L, 0, 0L, 0), S(remap_file_pages, at, 0L, 0, 0L, 0), S(remap_file_pages, at, -4096L, 0, 0L, 0), S(remap_file_pages, at, 4096L, 0, -1L, 0), S(remap_file_pages, at, 1L << 30, 0, 0L, 0), S(remap_file_pages, BAD, 4096L, 0, 0L, 0), S(remap_file_pages, anonymous, 4096L, 0, 1L, 0), S(remap_file_pages, at, 4096L, 0, 3L, MAP_NONBLOCK);
}

PROGRAM(moved_memory_refused) {
    char *at = mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    munmap(at + 5 * 4096, 4096);
    S(mremap, at, 4096L, 4096L, 8), S(mremap, at, -1L, 4096L, 0), S(mremap, at, 0L, 4096L, MREMAP_MAYMOVE), IS(syscall(SYS_mremap, shared, 0L, 4096L, MREMAP_MAYMOVE) > 0), S(mremap, at, 4096L, 8192L, 0), S(mremap, at, 8 * 4096L, 9 * 4096L, MREMAP_MAYMOVE), S(mremap, at, 4096L, 4096L, MREMAP_MAYMOVE | MREMAP_FIXED, at + 1), S(mremap, at, 8192L, 8192L, MREMAP_MAYMOVE | MREMAP_FIXED, at + 4096), S(mremap, at, 4096L, 4096L, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)(1L << 47)), S(mremap, at, 4096L, 4096L, MREMAP_DONTUNMAP), S(mremap, at, 4096L, 8192L, MREMAP_DONTUNMAP | MREMAP_MAYMOVE), IS(syscall(SYS_mremap, at, 4096L, 4096L, MREMAP_DONTUNMAP | MREMAP_MAYMOVE, 0L) > 0);
    for (int advice = 0; advice < 28; advice++) {
        char text[64];
        // The last two poison memory, one collapses it where there are large pages.
        if (advice == 25)
            continue;
        sprintf(text, "advice %d", advice), tell(text, madvise(at, 4096, advice)), sprintf(text, "advice %d to a hole", advice), tell(text, madvise(at + 5 * 4096, 4096, advice)), sprintf(text, "advice %d to what is shared", advice), tell(text, madvise(shared, 4096, advice)), sprintf(text, "advice %d to nothing", advice), tell(text, madvise(at, 0, advice));
    }
    T(madvise(at, 4096, 100)), T(madvise(at, 4096, 101)), T(madvise(at, 4096, -1));
    S(mprotect, at, 4096L, 0x01000000), S(mprotect, at, 4096L, 0x02000000), S(mprotect, at, 4096L, 0x03000000), S(mprotect, at, 4096L, 8), S(mprotect, at, 4096L, 0x10), S(msync, at, 4096L, MS_INVALIDATE), S(msync, at, 0L, 0), S(msync, at, -1L, 0), S(mlock2, at, 0L, 0), S(mlock, at, -1L), S(mlock, (void *)-4096L, 4096L), S(munlock, at, 0L), S(mincore, at, 0L, page), S(mincore, at, 4096L, NULL), S(mincore, (void *)-4096L, 4096L, page), S(membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0), S(membarrier, MEMBARRIER_CMD_QUERY, 1, 0), S(membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0), S(memfd_create, "x", 0x80000000);
}

PROGRAM(waits_refused) {
    siginfo_t information;
    S(wait4, 0, NULL, 0x80, NULL), S(wait4, -1, BAD, WNOHANG, NULL), S(wait4, -99999, NULL, 0, NULL), S(wait4, -1, NULL, __WNOTHREAD | __WCLONE | __WALL | WNOHANG, NULL), S(wait4, -1, NULL, WEXITED, NULL), S(wait4, -1, NULL, WNOWAIT, NULL);
    S(waitid, P_ALL, 0, &information, WNOHANG, NULL), S(waitid, P_PGID, 99999, &information, WEXITED, NULL), S(waitid, P_PGID, -1, &information, WEXITED, NULL), S(waitid, P_PID, -1, &information, WEXITED, NULL), S(waitid, P_PIDFD, -1, &information, WEXITED, NULL), S(waitid, P_PIDFD, 0, &information, WEXITED, NULL), S(waitid, P_ALL, 0, &information, WEXITED | 0x80, NULL), S(waitid, 4, 0, &information, WEXITED, NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(7);
    S(waitid, P_PID, child, BAD, WEXITED | WNOWAIT, NULL), S(waitid, P_PID, child, NULL, WEXITED | WNOWAIT, BAD), S(waitid, P_PID, child, &information, WEXITED | WNOWAIT, NULL), T(information.si_status), S(waitid, P_PID, child, &information, WSTOPPED | WNOHANG, NULL), W(syscall(SYS_wait4, child, BAD, 0, NULL)), S(wait4, child, NULL, 0, NULL);
    child = fork();
    if (child == 0)
        _exit(7);
    waitid(P_PID, child, &information, WEXITED | WNOWAIT), W(syscall(SYS_wait4, child, NULL, __WCLONE, NULL)), W(syscall(SYS_wait4, child, NULL, __WALL, BAD)), S(wait4, child, NULL, 0, NULL);
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    S(waitid, P_PIDFD, self, &information, WEXITED, NULL);
}

PROGRAM(clones_refused) {
    int flags[] = {CLONE_SIGHAND, CLONE_THREAD | CLONE_VM, CLONE_PIDFD | CLONE_PARENT_SETTID, CLONE_PIDFD | CLONE_DETACHED};
    for (int i = 0; i < sizeof flags / sizeof *flags; i++)
        tell("clone", syscall(SYS_clone, flags[i], 0, page, page, 0));
    struct clone_args wish = {.flags = 0xff}, odd = {.exit_signal = 300}, stack = {.stack_size = 4096, .exit_signal = 17}, no_size = {.stack = (long)page, .exit_signal = 17}, thread = {.flags = CLONE_THREAD | CLONE_SIGHAND | CLONE_VM, .exit_signal = 17}, clear = {.flags = CLONE_CLEAR_SIGHAND | CLONE_SIGHAND | CLONE_VM}, numbers = {.set_tid_size = 1}, many = {.set_tid_size = 99, .set_tid = (long)page}, unknown = {.flags = 1ul << 40}, detached = {.flags = CLONE_DETACHED}, group = {.flags = CLONE_INTO_CGROUP, .cgroup = 99, .exit_signal = 17};
    S(clone3, &wish, sizeof wish), S(clone3, &odd, sizeof odd), S(clone3, &stack, sizeof stack), S(clone3, &no_size, sizeof no_size), S(clone3, &thread, sizeof thread), S(clone3, &clear, sizeof clear), S(clone3, &numbers, sizeof numbers), S(clone3, &many, sizeof many), S(clone3, &unknown, sizeof unknown), S(clone3, &detached, sizeof detached), S(clone3, &wish, 5000L), S(clone3, &wish, 63L), S(clone3, NULL, 64L), S(clone3, &group, sizeof group);
}

PROGRAM(processes_refused) {
    int self = syscall(SYS_pidfd_open, getpid(), 0), plain = open("plain", O_CREAT | O_RDWR, 0600);
    siginfo_t information = {0};
    S(pidfd_getfd, self, 99, 0), S(pidfd_getfd, self, 0, 1), S(pidfd_getfd, plain, 0, 0), S(pidfd_send_signal, self, 65, NULL, 0), S(pidfd_send_signal, self, 0, BAD, 0), S(pidfd_send_signal, self, 0, NULL, 1 << 20), S(pidfd_send_signal, plain, 0, NULL, 0), information.si_signo = 5, S(pidfd_send_signal, self, 10, &information, 0), S(pidfd_send_signal, self, 0, NULL, 0);
    S(setpgid, 1, 1), S(setpgid, getpid(), 99999), S(setpgid, -1, 0), S(getpgid, -1), S(getsid, -1), S(setsid), S(getpriority, PRIO_PGRP, 99999), S(getpriority, PRIO_USER, 99999), S(setpriority, PRIO_USER, 99999, 0), S(setpriority, PRIO_PROCESS, -1, 0), S(kill, -99999, 0), S(kill, 0, 0), S(kill, 1 << 31, 0), S(kill, -(1 << 30), 0), S(tgkill, getpid(), 0, 0), S(tgkill, -1, getpid(), 0), S(tkill, 0, 0), S(rt_tgsigqueueinfo, getpid(), 99999, 10, &information), information.si_code = 0, S(rt_sigqueueinfo, 1, 0, &information), information.si_code = SI_TKILL, S(rt_sigqueueinfo, 1, 0, &information), information.si_code = 5, S(rt_tgsigqueueinfo, getpid(), getpid(), 0, &information);
    S(ptrace, PTRACE_ATTACH, 99999, 0, 0), S(ptrace, PTRACE_CONT, 1, 0, 0), S(ptrace, PTRACE_PEEKDATA, 99999, 0, 0), S(ptrace, 9999, getpid(), 0, 0), S(ptrace, PTRACE_SEIZE, 99999, 0, 0), S(ptrace, PTRACE_ATTACH, getpid(), 0, 0), S(ptrace, PTRACE_TRACEME, 0, 0, 0), S(ptrace, PTRACE_TRACEME, 0, 0, 0);
    S(umask, -1), S(personality, 0xffffffff), S(getcpu, NULL, NULL, NULL), S(sysinfo, NULL), IS(syscall(SYS_times, NULL) >= 0), S(getrusage, 2, page), S(getrusage, -2, page), IS(syscall(SYS_set_tid_address, NULL) > 0);
}

PROGRAM(orders_to_oneself_refused) {
    for (int option = 1; option <= 62; option++) {
        char text[64];
        // What switches something on for good, or asks for the machine's own features.
        if (option == PR_SET_SECCOMP || option == PR_SET_NAME || option == PR_SET_NO_NEW_PRIVS || option == PR_SET_TSC || option == PR_SET_THP_DISABLE || option == PR_SET_MM || option == PR_GET_NAME || option == PR_SCHED_CORE || option == PR_SET_SPECULATION_CTRL || option == PR_GET_SPECULATION_CTRL || option == PR_GET_TID_ADDRESS || option == PR_SET_DUMPABLE || option == PR_SET_SECUREBITS || option == PR_SET_TIMERSLACK || option == PR_GET_TIMERSLACK || option == 59)
            continue;
        sprintf(text, "option %d of 0", option), tell(text, prctl(option, 0L, 0L, 0L, 0L)), sprintf(text, "option %d of 99", option), tell(text, prctl(option, 99L, 0L, 0L, 0L)), sprintf(text, "option %d with more", option), tell(text, prctl(option, 1L, 7L, 7L, 7L));
    }
    S(prctl, PR_SET_TSC, 9L, 0L, 0L, 0L), S(prctl, PR_GET_TSC, BAD, 0L, 0L, 0L), S(prctl, PR_SET_DUMPABLE, 2L, 0L, 0L, 0L), S(prctl, PR_SET_SECUREBITS, 1L << 20, 0L, 0L, 0L), S(prctl, PR_SET_TIMERSLACK, 0L, 0L, 0L, 0L), S(prctl, PR_GET_TIMERSLACK, 0L, 0L, 0L, 0L), S(prctl, PR_SET_MM, 99L, 0L, 0L, 0L), S(prctl, PR_GET_NAME, BAD, 0L, 0L, 0L), S(prctl, -1, 0L, 0L, 0L, 0L), S(prctl, PR_SET_PTRACER, 99999L, 0L, 0L, 0L), S(prctl, PR_SET_VMA, 9L, page, 4096L, "x"), S(prctl, PR_SET_VMA, 0L, page + 1, 4096L, "x"), S(prctl, PR_SET_THP_DISABLE, 1L, 1L, 0L, 0L), S(prctl, PR_GET_THP_DISABLE, 1L, 0L, 0L, 0L), S(arch_prctl, 0x1002, 1L << 47);
}

PROGRAM(schedules_refused) {
    struct sched_param zero = {0}, one = {1};
    struct {
        unsigned size, policy;
        unsigned long flags;
        int nice;
        unsigned priority;
        unsigned long runtime, deadline, period;
        unsigned least, most;
    } attributes = {48}, got;
    S(sched_setscheduler, 0, SCHED_OTHER, &one), S(sched_setscheduler, 0, SCHED_BATCH, &one), S(sched_setscheduler, 0, SCHED_FIFO, &zero), S(sched_setscheduler, 0, -1, &zero), S(sched_setscheduler, -1, 0, &zero), S(sched_setscheduler, 0, 6, &zero), S(sched_setscheduler, 0, 4, &zero), S(sched_setparam, 0, &one), S(sched_setparam, -1, &zero), S(sched_getparam, -1, &zero), S(sched_getparam, 0, BAD), S(sched_rr_get_interval, -1, page), S(sched_getscheduler, 0), S(sched_setscheduler, 0, SCHED_BATCH | SCHED_RESET_ON_FORK, &zero), S(sched_getscheduler, 0), S(sched_setaffinity, 0, 0L, page), S(sched_setaffinity, -1, 8L, page), S(sched_getaffinity, -1, 8L, page), S(sched_getaffinity, 0, 8L, BAD), S(sched_getaffinity, 0, 12L, page), S(sched_getaffinity, 0, 0L, page);
    S(sched_setattr, 0, &attributes, 1), S(sched_setattr, -1, &attributes, 0), S(sched_setattr, 0, NULL, 0), attributes.size = 40, S(sched_setattr, 0, &attributes, 0), attributes.size = 0, S(sched_setattr, 0, &attributes, 0), attributes.size = 5000, S(sched_setattr, 0, &attributes, 0), T(attributes.size), attributes.size = 48, attributes.policy = 99, S(sched_setattr, 0, &attributes, 0), attributes.policy = 0, attributes.flags = 1 << 20, S(sched_setattr, 0, &attributes, 0), attributes.flags = 0, attributes.nice = 50, S(sched_setattr, 0, &attributes, 0), T(getpriority(PRIO_PROCESS, 0)), attributes.policy = SCHED_DEADLINE, S(sched_setattr, 0, &attributes, 0), S(sched_getattr, 0, &got, 47, 0), S(sched_getattr, 0, &got, 5000, 0), S(sched_getattr, 0, NULL, 48, 0), S(sched_getattr, -1, &got, 48, 0);
    S(ioprio_set, 1, 0, 0x8000), S(ioprio_set, 1, 0, 4 << 13), S(ioprio_set, 1, 0, 2 << 13 | 9), S(ioprio_set, 1, 0, 7), S(ioprio_set, 2, 99999, 0), S(ioprio_set, 3, 99999, 0), S(ioprio_get, 1, 99999), S(ioprio_get, 2, 99999), S(ioprio_get, 3, 99999), S(ioprio_set, 1, 0, 3 << 13), S(ioprio_get, 1, 0);
}

PROGRAM(timers_refused) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = 99}, thread = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = 10}, odd = {.sigev_notify = 9, .sigev_signo = 10}, none = {.sigev_notify = SIGEV_NONE};
    struct itimerspec wish = {{0, 1000000000}, {0, 0}}, before = {{0, 0}, {-1, 0}}, zero = {{0}};
    int timer, fd = syscall(SYS_timerfd_create, CLOCK_MONOTONIC, TFD_NONBLOCK);
    S(timer_create, 0, &event, &timer), S(timer_create, 0, &thread, &timer), S(timer_create, 0, &odd, &timer), S(timer_create, -1, NULL, &timer), S(timer_create, CLOCK_MONOTONIC_RAW, NULL, &timer), S(timer_create, CLOCK_REALTIME_COARSE, NULL, &timer), S(timer_create, 10, NULL, &timer), S(timer_create, CLOCK_TAI, &none, &timer), S(timer_settime, timer, 0, &wish, NULL), S(timer_settime, timer, 0, &before, NULL), S(timer_settime, timer, 0, NULL, NULL), S(timer_settime, timer, 0, BAD, NULL), S(timer_settime, timer, 7, &zero, NULL), S(timer_settime, timer, 0, &zero, BAD), S(timer_gettime, timer, BAD), S(timer_delete, timer), S(timer_delete, timer), S(timer_gettime, timer, page), S(timer_getoverrun, timer);
    S(timerfd_create, CLOCK_PROCESS_CPUTIME_ID, 0), S(timerfd_create, CLOCK_MONOTONIC_RAW, 0), W(syscall(SYS_timerfd_create, CLOCK_BOOTTIME, 0)), S(timerfd_create, CLOCK_TAI, 0), S(timerfd_create, -1, 0), S(timerfd_settime, fd, 4, &zero, NULL), S(timerfd_settime, fd, 3, &zero, NULL), S(timerfd_settime, fd, 2, &zero, NULL), S(timerfd_settime, fd, 0, &wish, NULL), S(timerfd_settime, fd, 0, &before, NULL), S(timerfd_settime, fd, 0, BAD, NULL), S(timerfd_settime, fd, 0, &zero, BAD), S(timerfd_gettime, fd, BAD), S(read, fd, page, 7L), S(read, fd, page, 8L), S(write, fd, page, 8L), S(pread64, fd, page, 8L, 0L);
    struct timespec late = {0, 1000000000}, early = {-1, 0}, now;
    S(clock_nanosleep, CLOCK_MONOTONIC, 0, &late, NULL), S(clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &early, NULL), S(clock_nanosleep, CLOCK_MONOTONIC, 9, &(struct timespec){0}, NULL), S(clock_nanosleep, CLOCK_REALTIME_COARSE, 0, &(struct timespec){0}, NULL), S(clock_nanosleep, CLOCK_MONOTONIC_RAW, 0, &(struct timespec){0}, NULL), S(clock_nanosleep, CLOCK_TAI, 0, &(struct timespec){0}, NULL), S(clock_nanosleep, CLOCK_BOOTTIME, 0, BAD, NULL), S(clock_nanosleep, CLOCK_THREAD_CPUTIME_ID, 0, &(struct timespec){0}, NULL), S(clock_nanosleep, 10, 0, &(struct timespec){0}, NULL);
    S(clock_gettime, 10, &now), S(clock_gettime, 12, &now), S(clock_gettime, 16, &now), S(clock_gettime, -1, &now), S(clock_gettime, -5, &now), S(clock_gettime, ~99999u << 3 | 2, &now), S(clock_getres, 12, &now), S(clock_getres, ~99999u << 3 | 2, &now), S(clock_settime, CLOCK_MONOTONIC, &now), S(clock_settime, CLOCK_BOOTTIME, &now), S(clock_settime, CLOCK_TAI, &now), S(clock_settime, CLOCK_REALTIME, &early), S(clock_settime, CLOCK_REALTIME, BAD), S(clock_settime, CLOCK_PROCESS_CPUTIME_ID, &now), S(clock_settime, CLOCK_REALTIME_COARSE, &now), S(clock_settime, 99, &now);
    struct timex steer = {.modes = ADJ_TICK, .tick = 1}, offset = {.modes = ADJ_OFFSET_SINGLESHOT & ~ADJ_OFFSET}, step = {.modes = ADJ_SETOFFSET, .time = {0, 1000000}};
    S(adjtimex, &steer), S(adjtimex, &offset), S(adjtimex, &step), S(clock_adjtime, CLOCK_MONOTONIC, &(struct timex){0}), S(clock_adjtime, CLOCK_PROCESS_CPUTIME_ID, &(struct timex){0}), S(clock_adjtime, 0, BAD), S(alarm, 0), S(setitimer, ITIMER_REAL, &((struct itimerval){{0, -1}, {0, 0}}), NULL), S(setitimer, ITIMER_PROF, &((struct itimerval){{-1, 0}, {0, 0}}), NULL), S(setitimer, ITIMER_REAL, &((struct itimerval){{0, 0}, {0, 0}}), BAD), S(setitimer, ITIMER_REAL, NULL, NULL);
}

PROGRAM(words_refused) {
    static unsigned word, other, robust;
    struct timespec late = {0, 1000000000}, soon = {0, 1}, early = {-1, 0};
    S(futex, &word, FUTEX_WAIT | 0x1000, 0, NULL, NULL, 0), S(futex, &word, FUTEX_WAIT, 0, &late, NULL, 0), S(futex, &word, FUTEX_WAIT, 0, &early, NULL, 0), S(futex, &word, FUTEX_WAIT, 0, &soon, NULL, 0), S(futex, &word, FUTEX_WAIT | FUTEX_CLOCK_REALTIME, 0, &soon, NULL, 0), S(futex, &word, FUTEX_WAKE | FUTEX_CLOCK_REALTIME, 1, NULL, NULL, 0), S(futex, &word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &soon, NULL, -1), S(futex, (char *)&word + 2, FUTEX_WAKE, 1, NULL, NULL, 0), S(futex, NULL, FUTEX_WAKE, 1, NULL, NULL, 0), S(futex, BAD, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0), S(futex, (void *)(1L << 47), FUTEX_WAKE, 1, NULL, NULL, 0), S(futex, &word, FUTEX_WAKE_BITSET, 1, NULL, NULL, 0), S(futex, &word, FUTEX_WAKE, -1, NULL, NULL, 0), S(futex, &word, FUTEX_REQUEUE, 1, -1L, &other, 0), S(futex, &word, FUTEX_REQUEUE, 1, 1L, BAD, 0), S(futex, &word, FUTEX_REQUEUE, 1, 1L, (char *)&other + 1, 0), S(futex, &word, FUTEX_REQUEUE, 1, 1L, &word, 0), S(futex, &word, FUTEX_CMP_REQUEUE, 1, 1L, &other, 1), S(futex, &word, FUTEX_CMP_REQUEUE, 1, 1L, &other, 0), S(futex, &word, FUTEX_WAKE_OP, 1, 1L, &other, 0x70000000), S(futex, &word, FUTEX_WAKE_OP, 1, 1L, &other, 0x0f000000), S(futex, &word, FUTEX_WAKE_OP, 1, 1L, BAD, 0), S(futex, &word, 2, 0, NULL, NULL, 0);
    S(futex, &word, FUTEX_LOCK_PI, 0, &late, NULL, 0), word = gettid(), S(futex, &word, FUTEX_LOCK_PI, 0, NULL, NULL, 0), S(futex, &word, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0), word = 99999, S(futex, &word, FUTEX_LOCK_PI, 0, NULL, NULL, 0), S(futex, &word, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0), S(futex, &word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0), word = 0, S(futex, &word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0), S(futex, BAD, FUTEX_LOCK_PI, 0, NULL, NULL, 0), S(futex, &word, FUTEX_LOCK_PI2, 0, NULL, NULL, 0), T(word == gettid()), S(futex, &word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0), T(word), T(word);
    struct futex_waitv many[2] = {{0, (long)&word, 2, 0}, {0, (long)&other, 2, 0}};
    S(futex_waitv, many, 0, 0, NULL, 1), S(futex_waitv, many, 129, 0, NULL, 1), S(futex_waitv, many, 2, 1, NULL, 1), S(futex_waitv, BAD, 1, 0, NULL, 1), S(futex_waitv, NULL, 1, 0, NULL, 1), S(futex_waitv, many, 1, 0, &late, 1), S(futex_waitv, many, 1, 0, &soon, 5), S(futex_waitv, many, 2, 0, &soon, 1), many[1].val = 7, S(futex_waitv, many, 2, 0, NULL, 1), many[1].flags = 2, many[1].__reserved = 1, S(futex_waitv, many, 2, 0, NULL, 1);
    S(set_robust_list, page, 23L), S(get_robust_list, -1, page, page), S(get_robust_list, 0, page, BAD);
}

PROGRAM(queues_refused) {
    struct mq_attr wrong = {0, 0, 1}, wide = {0, 70000, 1}, large = {0, 1, 1L << 30}, fine = {0, 2, 8};
    struct timespec late = {0, 1000000000}, past = {0, 0};
    mq_unlink("/queue");
    T(mq_open("queue", O_RDWR)), T(mq_open("/", O_RDWR)), T(mq_open("/a/b", O_RDWR | O_CREAT, 0600, &fine)), T(mq_open("/nothing", O_RDWR)), T(mq_open("/queue", O_RDWR | O_CREAT, 0600, &wrong)), T(mq_open("/queue", O_RDWR | O_CREAT, 0600, &wide)), T(mq_open("/queue", O_RDWR | O_CREAT, 0600, &large)), S(mq_open, "", O_RDWR, 0, NULL), S(mq_open, BAD, O_RDWR, 0, NULL), S(mq_open, "/x", O_RDWR, 0, NULL), S(mq_open, "x", O_RDWR | O_CREAT, 0600, BAD), S(mq_unlink, "nothing"), S(mq_unlink, ""), S(mq_unlink, BAD), S(mq_unlink, "a/b");
    int queue = mq_open("/queue", O_RDWR | O_CREAT | O_NONBLOCK, 0600, &fine), reads = mq_open("/queue", O_RDONLY | O_NONBLOCK), writes = mq_open("/queue", O_WRONLY | O_NONBLOCK), plain = open("plain", O_CREAT | O_RDWR, 0600);
    T(mq_open("/queue", O_RDWR | O_CREAT | O_EXCL, 0600, &fine)), S(mq_timedsend, queue, page, 9L, 0, NULL), S(mq_timedsend, queue, page, 8L, 32768, NULL), S(mq_timedsend, reads, page, 8L, 0, NULL), S(mq_timedsend, plain, page, 8L, 0, NULL), S(mq_timedsend, 99, page, 8L, 0, NULL), S(mq_timedsend, queue, BAD, 8L, 0, NULL), S(mq_timedsend, queue, page, 8L, 0, &late), S(mq_timedreceive, queue, page, 7L, NULL, NULL), S(mq_timedreceive, queue, page, 8L, NULL, NULL), S(mq_timedreceive, writes, page, 8L, NULL, NULL), S(mq_timedreceive, queue, page, 8L, NULL, &late), S(mq_timedsend, queue, page, 0L, 5, NULL), S(mq_timedsend, queue, page, 8L, 1, &past), S(mq_timedsend, queue, page, 8L, 0, NULL), S(mq_timedreceive, queue, BAD, 8L, NULL, NULL), S(mq_timedreceive, queue, page, 8L, BAD, NULL), S(mq_timedreceive, queue, page, 8L, NULL, NULL), S(mq_getsetattr, queue, &((struct mq_attr){1}), NULL), S(mq_getsetattr, queue, BAD, NULL), S(mq_getsetattr, queue, NULL, BAD), S(mq_getsetattr, plain, NULL, page), S(mq_getsetattr, queue, NULL, NULL), S(mq_notify, queue, &((struct sigevent){.sigev_notify = 9})), S(mq_notify, queue, &((struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = 99})), S(mq_notify, queue, BAD), S(mq_notify, plain, NULL), S(mq_notify, queue, &((struct sigevent){.sigev_notify = SIGEV_NONE})), S(mq_notify, queue, &((struct sigevent){.sigev_notify = SIGEV_NONE})), S(mq_notify, queue, NULL), S(read, queue, page, 10L), IS(syscall(SYS_read, queue, page + 5, 4000L) > 0), S(write, queue, page, 8L), S(lseek, queue, 0L, 0), S(fsync, queue);
    mq_unlink("/queue");
}

PROGRAM(system_v_errors) {
    int queue = msgget(IPC_PRIVATE, 0600), set = semget(IPC_PRIVATE, 2, 0600), segment = shmget(IPC_PRIVATE, 4096, 0600);
    struct {
        long kind;
        char text[16];
    } message = {1, "text"};
    struct sembuf up = {0, 1, 0}, high = {5, 1, 0}, take = {0, -5, IPC_NOWAIT}, zero = {0, 0, IPC_NOWAIT}, far = {0, 32767, 0};
    struct timespec late = {0, 1000000000}, soon = {0, 1};
    S(msgget, 77777, 0), S(msgsnd, queue, &message, -1L, 0), S(msgsnd, queue, &message, 9000L, 0), S(msgsnd, 99999, &message, 4L, 0), S(msgsnd, queue, BAD, 4L, 0), message.kind = 0, S(msgsnd, queue, &message, 4L, 0), message.kind = -1, S(msgsnd, queue, &message, 4L, 0), message.kind = 3, S(msgsnd, queue, &message, 4L, IPC_NOWAIT), S(msgrcv, queue, &message, 2L, 0L, IPC_NOWAIT), S(msgrcv, queue, &message, 4L, 9L, IPC_NOWAIT), S(msgrcv, queue, &message, 4L, -2L, IPC_NOWAIT), S(msgrcv, queue, &message, -1L, 0L, IPC_NOWAIT), S(msgrcv, queue, &message, 4L, 0L, IPC_NOWAIT | 040000), S(msgrcv, queue, &message, 4L, 0L, 040000), S(msgrcv, queue, &message, 4L, 5L, IPC_NOWAIT | 040000), S(msgrcv, queue, BAD, 4L, 0L, IPC_NOWAIT), S(msgrcv, queue, &message, 4L, 0L, IPC_NOWAIT), S(msgrcv, 99999, &message, 4L, 0L, 0), S(msgctl, queue, 99, NULL), S(msgctl, queue, IPC_STAT, BAD), S(msgctl, 99999, IPC_STAT, page), S(msgctl, queue, IPC_SET, BAD), S(msgctl, -1, IPC_RMID, NULL), S(msgctl, queue, IPC_RMID, NULL), S(msgctl, queue, IPC_RMID, NULL), S(msgsnd, queue, &message, 4L, 0);
    S(semget, 77777, 1, 0), S(semget, IPC_PRIVATE, 0, 0600), S(semget, IPC_PRIVATE, -1, 0600), S(semget, IPC_PRIVATE, 100000, 0600), S(semop, set, &high, 1L), S(semop, set, &take, 1L), S(semop, set, &up, 0L), S(semop, set, &up, 501L), S(semop, set, BAD, 1L), S(semop, 99999, &up, 1L), S(semop, set, &up, 1L), S(semop, set, &zero, 1L), S(semop, set, &far, 1L), S(semtimedop, set, &take, 1L, &late), take.sem_flg = 0, S(semtimedop, set, &take, 1L, &soon), S(semtimedop, set, &take, 1L, BAD), S(semctl, set, 9, GETVAL), S(semctl, set, -1, GETVAL), S(semctl, set, 0, SETVAL, 40000), S(semctl, set, 0, SETVAL, -1), S(semctl, set, 0, 99), S(semctl, 99999, 0, GETVAL), S(semctl, set, 0, GETALL, BAD), S(semctl, set, 0, SETALL, BAD), S(semctl, set, 0, SETALL, ((unsigned short[2]){1, 40000})), S(semctl, set, 0, IPC_STAT, BAD), IS(syscall(SYS_semctl, set, 0, GETPID) > 0), S(semctl, set, 1, GETNCNT), S(semctl, set, 0, IPC_RMID), S(semctl, set, 0, IPC_RMID), S(semop, set, &up, 1L);
    S(shmget, 77777, 4096L, 0), S(shmget, IPC_PRIVATE, 0L, 0600), S(shmget, IPC_PRIVATE, 1L << 62, 0600), S(shmat, segment, (void *)1, 0), S(shmat, segment, NULL, SHM_REMAP), S(shmat, 99999, NULL, 0), S(shmat, segment, page, 0), S(shmdt, (void *)1), S(shmctl, segment, 99, NULL), S(shmctl, segment, IPC_STAT, BAD), S(shmctl, segment, IPC_SET, BAD), S(shmctl, segment, SHM_LOCK, NULL), S(shmctl, segment, SHM_UNLOCK, NULL), S(shmctl, 99999, IPC_STAT, page), S(shmctl, segment, IPC_RMID, NULL), S(shmctl, segment, IPC_RMID, NULL), S(shmat, segment, NULL, 0);
    int other = shmget(IPC_PRIVATE, 4096, 0600);
    CHILD("another user", setresuid(1000, 1000, 1000), S(shmat, other, NULL, 0), S(shmctl, other, IPC_STAT, page), S(shmctl, other, IPC_RMID, NULL), S(shmctl, other, SHM_LOCK, NULL));
    shmctl(other, IPC_RMID, NULL);
}

PROGRAM(identities_refused) {
    CHILD("of a user", setresgid(1000, 1000, 1000), setgroups(0, NULL), setresuid(1000, 1000, 1000), S(setuid, 0), S(setreuid, -1, 0), S(setreuid, 0, -1), S(setresuid, -1, -1, 0), S(setgid, 0), S(setregid, 0, 0), S(setresgid, 0, -1, -1), S(setgroups, 0L, NULL), S(setfsuid, 0), S(setfsuid, -1), S(setfsgid, 0), S(setuid, 1000), S(sethostname, "x", 1), S(setdomainname, "x", 1), S(chroot, "."), S(settimeofday, page, NULL), S(clock_settime, 0, page), S(adjtimex, &((struct timex){.modes = ADJ_STATUS})), S(syslog, 5, NULL, 0), S(reboot, 0xfee1dead, 672274793, 0x89abcdef, NULL), S(swapoff, "nothing"), S(acct, NULL), S(vhangup), S(mount, "x", "/", "tmpfs", 0L, NULL), S(umount2, "/", 0), S(setns, 99, 0), S(setpriority, PRIO_PROCESS, 0, -5), S(setpriority, PRIO_PROCESS, 1, 5), S(sched_setscheduler, 1, 0, page), S(sched_setaffinity, 1, 8L, "\1\0\0\0\0\0\0\0"), S(ioprio_set, 1, 0, 1 << 13), S(ioprio_set, 1, 1, 2 << 13), S(kill, 1, 0), S(prlimit64, 1, RLIMIT_CORE, NULL, page), S(setrlimit, RLIMIT_NOFILE, &((struct rlimit){1 << 20, 1 << 21})), S(mlock, page, 4096L), S(personality, -1), IS(syscall(SYS_getsid, 1) >= 0), S(unshare, CLONE_NEWNET), S(move_pages, 1, 0L, NULL, NULL, NULL, 0), S(migrate_pages, 1, 0L, NULL, NULL));
    S(setgroups, -1L, NULL), S(setgroups, 65537L, NULL), S(getgroups, -1, page), S(setresuid, -1, -1, -1), S(setreuid, -1, -1), S(getresuid, BAD, page, page), S(getresgid, page, BAD, page), S(capget, NULL, NULL), S(prlimit64, -1, 0, NULL, NULL), S(prlimit64, 0, RLIMIT_NOFILE, &((struct rlimit){1 << 30, 1 << 31}), NULL), S(prlimit64, 0, RLIMIT_NPROC, &((struct rlimit){5, 4}), NULL);
}
