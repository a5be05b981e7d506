// Signals where programs seldom look: their receivers, what waiting for them gives, what their calls refuse.
#include "answers.h"
#include <sys/signalfd.h>
#include <sys/times.h>
#include <sys/timerfd.h>
#include <sys/ucontext.h>

static volatile sig_atomic_t caught, caught_code, caught_value;
static void note(int number, siginfo_t *info, void *unused) {
    caught = number, caught_code = info->si_code, caught_value = info->si_value.sival_int;
}
static void handle(int number, int flags) {
    struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO | flags};
    sigaction(number, &action, NULL);
}
static sigset_t set_of(int first, int second) {
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, first);
    if (second)
        sigaddset(&set, second);
    return set;
}
static int gettid_(void) { return syscall(SYS_gettid); }

static char stack_bytes[65536] __attribute__((aligned(4096)));
static void fault_again(int number) { *(volatile int *)8 = number; }
static void overflow_in(int number) {
    // The handler's frame does not fit on what is left of the alternate stack.
    __asm__ volatile("mov %0, %%rsp; movl $0, 8" : : "r"(stack_bytes + 600) : "memory");
}
static void stacks(void) {
    CHILD("a fault in the handler of a fault, on the alternate stack", {
        stack_t stack = {.ss_sp = stack_bytes, .ss_size = sizeof stack_bytes};
        struct sigaction action = {.sa_handler = fault_again, .sa_flags = SA_ONSTACK};
        T(sigaltstack(&stack, NULL)), T(sigaction(SIGSEGV, &action, NULL));
        *(volatile int *)8 = 1;
    });
    CHILD("the same with SA_NODEFER and a stack that is full", {
        stack_t stack = {.ss_sp = stack_bytes, .ss_size = sizeof stack_bytes};
        struct sigaction action = {.sa_handler = overflow_in, .sa_flags = SA_ONSTACK | SA_NODEFER};
        T(sigaltstack(&stack, NULL)), T(sigaction(SIGSEGV, &action, NULL));
        *(volatile int *)8 = 1;
    });
    CHILD("for ever deeper", {
        stack_t stack = {.ss_sp = stack_bytes, .ss_size = sizeof stack_bytes};
        struct sigaction action = {.sa_handler = fault_again, .sa_flags = SA_ONSTACK | SA_NODEFER};
        T(sigaltstack(&stack, NULL)), T(sigaction(SIGSEGV, &action, NULL));
        *(volatile int *)8 = 1;
    });
    CHILD("an alternate stack without memory", {
        stack_t stack = {.ss_sp = (void *)4096, .ss_size = sizeof stack_bytes};
        struct sigaction action = {.sa_handler = fault_again, .sa_flags = SA_ONSTACK};
        T(sigaltstack(&stack, NULL)), T(sigaction(SIGUSR1, &action, NULL));
        raise(SIGUSR1);
    });
    stack_t stack = {.ss_sp = stack_bytes, .ss_size = 100}, wrong = {.ss_flags = 77};
    T(sigaltstack(&stack, NULL)), T(sigaltstack(&wrong, NULL)), T(sigaltstack((void *)8, NULL)), T(sigaltstack(NULL, (void *)8));
}

static void *kill_thread(void *thread) {
    pause_ms(50);
    pthread_kill((pthread_t)thread, SIGUSR1);
    return NULL;
}
static void waits(void) {
    // What is not blocked is taken by its waiter, not by its handler.
    handle(SIGUSR1, 0), handle(SIGUSR2, 0);
    sigset_t set = set_of(SIGUSR1, 0);
    pid_t own = getpid();
    siginfo_t info;
    pid_t child = fork();
    if (child == 0) {
        pause_ms(100), kill(own, SIGUSR1);
        pause_ms(100), kill(own, SIGUSR2);
        pause_ms(100), kill(own, SIGUSR1);
        _exit(0);
    }
    T(sigwaitinfo(&set, &info)), T(caught), IS(info.si_pid == child), T(info.si_code);
    T(sigwaitinfo(&set, &info)), T(caught);
    caught = 0;
    int number = 0;
    T(sigwait(&set, &number)), T(number), T(caught);
    waitpid(child, NULL, 0);
    pthread_t thread;
    pthread_create(&thread, NULL, kill_thread, (void *)pthread_self());
    T(sigwaitinfo(&set, &info)), T(info.si_code), T(caught);
    pthread_join(thread, NULL);
    struct timespec none = {0, 0}, wrong = {0, -1}, large = {0, 1000000000}, negative = {-1, 0};
    T(sigtimedwait(&set, &info, &none)), T(sigtimedwait(&set, &info, &wrong)), T(sigtimedwait(&set, &info, &large)), T(sigtimedwait(&set, &info, &negative));
    T(syscall(SYS_rt_sigtimedwait, 8, 0, 0, 8)), T(syscall(SYS_rt_sigtimedwait, &set, 0, 8, 8)), T(syscall(SYS_rt_sigtimedwait, &set, 0, 0, 4));
    sigprocmask(SIG_BLOCK, &set, NULL), raise(SIGUSR1);
    T(syscall(SYS_rt_sigtimedwait, &set, 8, &none, 8)), T(sigtimedwait(&set, NULL, &none));
    // An ignored signal that is waited for.
    signal(SIGUSR1, SIG_IGN);
    child = fork();
    if (child == 0) {
        pause_ms(100), kill(own, SIGUSR1);
        _exit(0);
    }
    struct timespec second = {1, 0};
    T(sigtimedwait(&set, &info, &second));
    waitpid(child, NULL, 0);
}

static void *reads_late(void *descriptor) {
    struct pollfd wait = {(int)(intptr_t)descriptor, POLLIN};
    T(poll(&wait, 1, 500)), T(wait.revents);
    return NULL;
}
static void *blocks_and_polls(void *descriptor) {
    struct pollfd wait = {(int)(intptr_t)descriptor, POLLIN};
    int result = poll(&wait, 1, 2000);
    struct signalfd_siginfo info;
    printf("the thread that the signal is for: %d %d", result, wait.revents);
    printf(" %d\n", (int)read(wait.fd, &info, sizeof info));
    return NULL;
}
static void files_of_signals(void) {
    sigset_t set = set_of(SIGUSR1, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int fd = signalfd(-1, &set, SFD_NONBLOCK);
    struct signalfd_siginfo info[2];
    struct pollfd wait = {fd, POLLIN};
    T(read(fd, info, sizeof info)), T(read(fd, info, 8)), T(poll(&wait, 1, 0));
    syscall(SYS_tgkill, getpid(), gettid_(), SIGUSR1);
    T(poll(&wait, 1, 0)), T(read(fd, info, sizeof info)), T(info[0].ssi_signo), T(info[0].ssi_code), IS(info[0].ssi_pid == getpid());
    pthread_t thread;
    pthread_create(&thread, NULL, blocks_and_polls, (void *)(intptr_t)fd);
    pause_ms(100);
    pthread_kill(thread, SIGUSR1);
    pthread_join(thread, NULL);
    pid_t own = getpid(), child = fork();
    if (child == 0) {
        pause_ms(100), syscall(SYS_tgkill, own, own, SIGUSR2);
        _exit(0);
    }
    T(poll(&wait, 1, 5000)), T(read(fd, info, sizeof info)), T(info[0].ssi_signo), T(info[0].ssi_code);
    waitpid(child, NULL, 0);
    kill(getpid(), SIGUSR1), kill(getpid(), SIGUSR2);
    T(read(fd, info, sizeof info)), T(read(fd, (void *)8, sizeof info)), T(read(fd, info, sizeof info));
    sigset_t other = set_of(SIGHUP, 0);
    IS(signalfd(fd, &other, 0) == fd), T(raise(SIGUSR1)), T(poll(&wait, 1, 0)), T(signalfd(0, &set, 0)), T(signalfd(99, &set, 0));
    T(signalfd(-1, &set, 99)), T(syscall(SYS_signalfd4, -1, &set, 4, 0)), T(syscall(SYS_signalfd4, -1, 8, 8, 0)), T(write(fd, "x", 1));
}

static void waiting_for_children(void) {
    siginfo_t info;
    int status;
    T(waitid(P_ALL, 0, &info, WSTOPPED)), T(waitpid(-1, NULL, 0)), T(waitid(P_ALL, 0, &info, 0)), T(waitid(P_ALL, 0, &info, WEXITED | 0x100000));
    pid_t child = fork();
    if (child == 0)
        _exit(3);
    pause_ms(100);
    // A child that has only ended is still one, but there is nothing to wait for any more.
    T(waitid(P_ALL, 0, &info, WSTOPPED | WNOHANG)), T(waitid(P_PID, child, &info, WCONTINUED | WNOHANG));
    alarm(2);
    T(waitid(P_ALL, 0, &info, WSTOPPED)), T(waitid(P_PID, child, &info, WCONTINUED | WSTOPPED)), T(waitid(P_PGID, 0, &info, WSTOPPED));
    alarm(0);
    T(waitid(P_PID, child, &info, WEXITED | WNOWAIT)), T(info.si_status), T(waitid(P_PID, child, NULL, WEXITED)), T(waitid(P_PID, child, &info, WEXITED));
    T(waitid(99, 0, &info, WEXITED)), T(waitid(P_PID, 0, &info, WEXITED)), T(waitid(P_PID, -5, &info, WEXITED)), T(waitid(P_PIDFD, 99, &info, WEXITED)), T(waitid(P_PIDFD, 0, &info, WEXITED));
    T(waitid(P_PGID, -5, &info, WEXITED)), T(waitpid(-1, &status, 99999)), T(waitpid(999999, &status, 0)), T(waitpid(-999999, &status, WNOHANG)), T(waitpid(0x80000000, &status, 0));
    child = fork();
    if (child == 0)
        for (;;)
            pause();
    T(kill(child, SIGSTOP)), T(waitid(P_PID, child, &info, WSTOPPED)), T(info.si_code), T(info.si_status), T(waitid(P_PID, child, &info, WSTOPPED | WNOHANG)), T(info.si_pid);
    T(kill(child, SIGCONT)), T(waitid(P_PID, child, &info, WCONTINUED)), T(info.si_code), T(kill(child, SIGKILL)), T(waitid(P_PID, child, &info, WEXITED | WSTOPPED)), T(info.si_code), T(info.si_status);
    child = fork();
    if (child == 0)
        _exit(4);
    T(syscall(SYS_wait4, child, 8, 0, 0)), T(syscall(SYS_wait4, child, 0, 0, 0));
}

static int thread_number;
static pthread_barrier_t meeting;
static void *lives(void *unused) {
    thread_number = gettid_();
    pthread_barrier_wait(&meeting), pthread_barrier_wait(&meeting);
    return unused;
}
static void numbers_of_threads(void) {
    sigset_t set = set_of(SIGUSR1, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    pthread_t thread;
    pthread_barrier_init(&meeting, NULL, 2);
    pthread_create(&thread, NULL, lives, NULL);
    pthread_barrier_wait(&meeting);
    siginfo_t info = {0}, got;
    struct timespec none = {0, 0};
    T(kill(thread_number, 0)), T(kill(thread_number, SIGUSR1)), T(sigtimedwait(&set, &got, &none)), T(got.si_code);
    info.si_code = SI_QUEUE, info.si_value.sival_int = 7;
    T(syscall(SYS_rt_sigqueueinfo, thread_number, SIGRTMIN, &info)), T(sigtimedwait(&set, &got, &none)), T(got.si_value.sival_int);
    T(syscall(SYS_tgkill, getpid(), thread_number, 0)), T(syscall(SYS_tgkill, thread_number, thread_number, 0)), T(syscall(SYS_tgkill, getpid(), 999999, 0));
    T(syscall(SYS_tkill, thread_number, 0)), T(syscall(SYS_tkill, -1, 0)), T(syscall(SYS_tgkill, -1, 1, 0)), T(syscall(SYS_tgkill, 1, 0, 0)), T(syscall(SYS_tkill, getpid(), 65));
    T(waitpid(thread_number, NULL, 0)), T(waitpid(thread_number, NULL, __WALL)), T(getpgid(thread_number) == getpgrp()), T(getsid(thread_number) == getsid(0)), T(setpgid(thread_number, 0));
    T(getpriority(PRIO_PROCESS, thread_number)), T(prlimit(thread_number, RLIMIT_CORE, NULL, NULL));
    char at[64];
    struct stat st;
    sprintf(at, "/proc/%d", thread_number);
    T(stat(at, &st)), sprintf(at, "/proc/%d/task/%d", getpid(), thread_number), T(stat(at, &st)), sprintf(at, "/proc/self/task/%d/stat", thread_number), T(stat(at, &st));
    pthread_barrier_wait(&meeting);
    pthread_join(thread, NULL);
}

static void refusals(void) {
    struct sigaction action = {.sa_handler = SIG_DFL};
    siginfo_t info = {0};
    sigset_t set = set_of(SIGUSR1, 0);
    T(sigaction(0, &action, NULL)), T(sigaction(65, &action, NULL)), T(sigaction(SIGKILL, &action, NULL)), T(sigaction(SIGSTOP, &action, NULL)), T(sigaction(SIGKILL, NULL, &action));
    T(syscall(SYS_rt_sigaction, SIGUSR1, 8, 0, 8)), T(syscall(SYS_rt_sigaction, SIGUSR1, 0, 8, 8)), T(syscall(SYS_rt_sigaction, SIGUSR1, 0, 0, 4)), T(sigprocmask(99, &set, NULL));
    T(syscall(SYS_rt_sigprocmask, 0, 8, 0, 8)), T(syscall(SYS_rt_sigprocmask, 0, 0, 8, 8)), T(syscall(SYS_rt_sigprocmask, 99, 0, 0, 8)), T(syscall(SYS_rt_sigprocmask, 0, 0, 0, 16));
    T(syscall(SYS_rt_sigpending, 8, 8)), T(syscall(SYS_rt_sigpending, &set, 16)), T(syscall(SYS_rt_sigsuspend, 8, 8)), T(syscall(SYS_rt_sigsuspend, &set, 4));
    T(kill(0, 0)), T(kill(0, 65)), T(kill(getpid(), -1)), T(kill(999999, 0)), T(kill(-999999, 0)), T(kill(0x80000000, 0)), T(kill(-1, 65));
    T(syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR1, 8)), T(syscall(SYS_rt_sigqueueinfo, 999999, 0, &info)), info.si_code = SI_TKILL, T(syscall(SYS_rt_sigqueueinfo, getppid(), 0, &info));
    info.si_code = 0, T(syscall(SYS_rt_sigqueueinfo, getppid(), 0, &info)), info.si_code = SI_QUEUE, T(syscall(SYS_rt_sigqueueinfo, getppid(), 0, &info)), T(syscall(SYS_rt_sigqueueinfo, getpid(), 65, &info));
    T(syscall(SYS_rt_tgsigqueueinfo, getpid(), 999999, 0, &info)), T(syscall(SYS_rt_tgsigqueueinfo, -1, 1, 0, &info)), T(syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid_(), 0, &info));
    struct itimerval timer = {{0, 0}, {0, 1000000}}, good = {{0, 0}, {0, 0}};
    T(setitimer(ITIMER_REAL, &timer, NULL)), T(setitimer(9, &good, NULL)), T(getitimer(9, &good)), T(syscall(SYS_setitimer, 0, 8, 0)), T(syscall(SYS_getitimer, 0, 8)), T(syscall(SYS_setitimer, 0, &good, 8));
    timer_t id;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = 99};
    T(timer_create(CLOCK_MONOTONIC, &event, &id)), event.sigev_notify = 99, T(timer_create(CLOCK_MONOTONIC, &event, &id)), T(timer_create(99, NULL, &id)), T(syscall(SYS_timer_create, 0, 0, 8));
    T(syscall(SYS_timer_settime, 9999, 0, &good, 0)), T(syscall(SYS_timer_gettime, 9999, 8)), T(syscall(SYS_timer_delete, 9999)), T(syscall(SYS_timer_getoverrun, 9999)), T(syscall(SYS_timer_create, 0, 8, 0));
    struct timespec wrong = {0, 1000000000}, negative = {-1, 0}, fine = {0, 1};
    T(nanosleep(&wrong, NULL)), T(nanosleep(&negative, NULL)), T(syscall(SYS_nanosleep, 8, 0)), T(clock_nanosleep(99, 0, &fine, NULL)), T(clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &fine, NULL));
    T(clock_nanosleep(CLOCK_REALTIME, 0, &wrong, NULL)), T(clock_gettime(99, &fine)), T(clock_getres(99, &fine)), T(syscall(SYS_clock_gettime, 0, 8)), T(clock_getres(CLOCK_MONOTONIC, NULL)), T(clock_settime(CLOCK_MONOTONIC, &fine));
    T(clock_settime(99, &fine)), T(clock_settime(CLOCK_REALTIME, &wrong)), T(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &negative, NULL)), T(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &fine, NULL));
    T(timerfd_create(99, 0)), T(timerfd_create(CLOCK_MONOTONIC, 99)), T(timerfd_settime(99, 0, NULL, NULL)), T(timerfd_gettime(0, NULL)), T(syscall(SYS_gettimeofday, 8, 0)), T(syscall(SYS_time, 8));
    int timer_file = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct itimerspec off = {{0, 0}, {0, 1000000000}};
    uint64_t count;
    T(timerfd_settime(timer_file, 0, &off, NULL)), T(timerfd_settime(timer_file, 99, &(struct itimerspec){0}, NULL)), T(read(timer_file, &count, 8)), T(read(timer_file, &count, 4)), T(write(timer_file, &count, 8)), T(timerfd_settime(timer_file, 0, (void *)8, NULL));
}

static void spin_until(clockid_t clock, long ms) {
    struct timespec now, end;
    clock_gettime(clock, &end);
    long until = end.tv_sec * 1000 + end.tv_nsec / 1000000 + ms;
    do
        clock_gettime(clock, &now);
    while (now.tv_sec * 1000 + now.tv_nsec / 1000000 < until);
}
static void processor_time(void) {
    CHILD("beyond the soft limit", {
        setrlimit(RLIMIT_CPU, &(struct rlimit){1, 10});
        spin_until(CLOCK_PROCESS_CPUTIME_ID, 3000);
    });
    CHILD("handled, and beyond the hard one", {
        handle(SIGXCPU, 0);
        setrlimit(RLIMIT_CPU, &(struct rlimit){1, 4});
        spin_until(CLOCK_PROCESS_CPUTIME_ID, 1500);
        T(caught == SIGXCPU);
        spin_until(CLOCK_PROCESS_CPUTIME_ID, 8000);
    });
}

PROGRAM(signalling) {
    CHILD("stacks", stacks());
    CHILD("waits", waits());
    CHILD("files of signals", files_of_signals());
    CHILD("children", waiting_for_children());
    CHILD("numbers of threads", numbers_of_threads());
    CHILD("refusals", refusals());
    CHILD("processor time", processor_time());
}
