// Signals: what a handler is told, in which order they come, what interrupts and what goes on.
#include "answers.h"
#include <sys/ucontext.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <linux/futex.h>

static volatile int count, order[64], codes[64], values[64];
static void note(int number, siginfo_t *info, void *unused) {
    if (count < 64)
        order[count] = number, codes[count] = info->si_code, values[count] = info->si_value.sival_int, count++;
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
static void told(void) {
    for (int i = 0; i < count; i++)
        printf("%d code %d value %d\n", order[i], codes[i], values[i]);
    count = 0, fflush(stdout);
}

PROGRAM(orders_of_signals) {
    sigset_t all, none;
    sigfillset(&all), sigemptyset(&none);
    for (int number = SIGRTMIN; number < SIGRTMIN + 4; number++)
        handle(number, 0);
    handle(SIGUSR1, 0), handle(SIGUSR2, 0), handle(SIGHUP, 0), sigprocmask(SIG_BLOCK, &all, NULL);
    union sigval value;
    for (int i = 0; i < 3; i++)
        for (int number = SIGRTMIN + 3; number >= SIGRTMIN; number--)
            value.sival_int = i, sigqueue(getpid(), number, value);
    kill(getpid(), SIGUSR2), kill(getpid(), SIGUSR2), kill(getpid(), SIGUSR1), raise(SIGHUP);
    sigset_t waiting;
    sigpending(&waiting), T(sigismember(&waiting, SIGUSR1)), T(sigismember(&waiting, SIGRTMIN + 2)), T(sigismember(&waiting, SIGTERM));
    siginfo_t info;
    struct timespec soon = {0, 0};
    sigset_t two = set_of(SIGUSR2, SIGRTMIN + 1);
    T(sigtimedwait(&two, &info, &soon)), T(info.si_code), T(sigtimedwait(&two, &info, &soon)), T(info.si_value.sival_int);
    sigset_t wanted = set_of(SIGRTMIN, SIGRTMIN + 3);
    while (sigtimedwait(&wanted, &info, &soon) > 0)
        printf("%d %d\n", info.si_signo, info.si_value.sival_int);
    signal(SIGRTMIN + 1, SIG_IGN), signal(SIGRTMIN + 1, SIG_DFL), sigpending(&waiting), T(sigismember(&waiting, SIGRTMIN + 1));
}

static void inner(int number) {
    order[count++] = number;
    if (number == SIGUSR1)
        raise(SIGUSR1), raise(SIGUSR2);
    order[count++] = -number;
}
PROGRAM(nested_handlers) {
    for (int flags = 0; flags < 2; flags++) {
        struct sigaction action = {.sa_handler = inner, .sa_flags = flags ? SA_RESETHAND : 0};
        sigaddset(&action.sa_mask, SIGUSR2), sigaction(SIGUSR2, &action, NULL), sigaction(SIGUSR1, &action, NULL);
        count = 0;
        if (flags)
            CHILD("once", raise(SIGUSR1));
        else {
            signal(SIGALRM, SIG_DFL);
            struct sigaction other = {.sa_handler = inner};
            sigaction(SIGUSR2, &other, NULL), raise(SIGUSR2);
        }
        for (int i = 0; i < count; i++)
            printf("%d\n", order[i]);
    }
    struct sigaction got, strange = {.sa_handler = inner, .sa_flags = 0x7fffffff & ~SA_SIGINFO & ~SA_RESETHAND};
    sigfillset(&strange.sa_mask), sigaction(SIGUSR1, &strange, NULL), sigaction(SIGUSR1, NULL, &got), T(sigismember(&got.sa_mask, SIGKILL)), T(sigismember(&got.sa_mask, SIGSTOP)), T(sigismember(&got.sa_mask, SIGUSR1)), printf("%x\n", got.sa_flags & 0x7fffffff);
}

static void see(int number, siginfo_t *info, void *place) {
    ucontext_t *context = place;
    printf("%d code %d address %lx trap %lld error %llx\n", number, info->si_code, (long)info->si_addr & 0xfff, context->uc_mcontext.gregs[REG_TRAPNO], context->uc_mcontext.gregs[REG_ERR]);
    fflush(stdout);
    _exit(0);
}
static char *page;
static int zero;
PROGRAM(faults_told) {
    int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};
    for (int i = 0; i < 5; i++) {
        struct sigaction action = {.sa_sigaction = see, .sa_flags = SA_SIGINFO};
        sigaction(numbers[i], &action, NULL);
    }
    page = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), T(page[7]);
    CHILD("a write where one may read", page[5] = 1);
    CHILD("a read of nothing", *(volatile char *)0x123);
    CHILD("no code", ((void (*)(void))0x456)());
    // What a parent only read its child may not have yet.
    CHILD("code that is data", (*(volatile char *)page, ((void (*)(void))(page + 7))()));
    CHILD("no address at all", *(volatile char *)0x8000000000000000);
    CHILD("of the kernel", *(volatile char *)0xffffffff81000000);
    CHILD("a division", zero = 1 / zero);
    CHILD("no instruction", __asm__ volatile("ud2"));
    CHILD("a breakpoint", __asm__ volatile("int3"));
    CHILD("a privileged one", __asm__ volatile("hlt"));
    CHILD("a step", __asm__ volatile("pushfq; orl $0x100, (%%rsp); popfq; nop" ::: "memory"));
    int fd = open("short", O_CREAT | O_RDWR, 0600);
    ftruncate(fd, 100), page = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
    CHILD("behind a file", T(page[4095]), (volatile char)page[4097]);
    CHILD("blocked", (sigprocmask(SIG_BLOCK, (sigset_t[]){set_of(SIGSEGV, 0)}, NULL), *(volatile char *)0x123));
    CHILD("ignored", (signal(SIGSEGV, SIG_IGN), *(volatile char *)0x123));
}

PROGRAM(masks_of_handlers) {
    sigset_t set, before, two = set_of(SIGUSR1, SIGUSR2);
    T(sigprocmask(SIG_BLOCK, &two, &before)), T(sigprocmask(SIG_UNBLOCK, (sigset_t[]){set_of(SIGUSR1, 0)}, &set)), T(sigismember(&set, SIGUSR1)), T(sigprocmask(SIG_SETMASK, NULL, &set)), T(sigismember(&set, SIGUSR1)), T(sigismember(&set, SIGUSR2));
    sigfillset(&set), sigprocmask(SIG_SETMASK, &set, NULL), sigprocmask(0, NULL, &set), T(sigismember(&set, SIGKILL)), T(sigismember(&set, SIGSTOP)), T(sigismember(&set, SIGTERM));
    handle(SIGUSR1, 0), raise(SIGUSR1), T(count);
    sigset_t nothing;
    sigemptyset(&nothing), T(sigsuspend(&nothing)), T(count), sigprocmask(0, NULL, &set), T(sigismember(&set, SIGUSR1));
    CHILD("a blocked one stays for execve", { raise(SIGUSR2); sigset_t now; sigpending(&now); T(sigismember(&now, SIGUSR2)); if (fork() == 0) { sigpending(&now); T(sigismember(&now, SIGUSR2)); _exit(0); } wait(NULL); });
}

static pid_t own;
// A child that sends `number` to this process again and again.
static pid_t sender(int number) {
    own = getpid();
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause_ms(60), kill(own, number);
    return child;
}
static long result_of(long result, int error) {
    errno = error;
    return result;
}
// What a call answers that is interrupted.
#define INTERRUPTED(call)                                                                                              \
    {                                                                                                                  \
        pid_t child_ = sender(SIGUSR1);                                                                                \
        errno = 0;                                                                                                     \
        long result_ = (long)(call);                                                                                   \
        int error_ = errno;                                                                                            \
        kill(child_, SIGKILL);                                                                                         \
        while (waitpid(child_, NULL, 0) == -1 && errno == EINTR) {                                                     \
        }                                                                                                              \
        tell(#call, result_of(result_, error_));                                                                       \
    }
static int futex(void *word, int operation, int value, void *timeout) { return syscall(SYS_futex, word, operation, value, timeout, 0, 0); }
static void interrupted(int flags) {
    int line[2], word = 0, set = epoll_create1(0), queue = msgget(IPC_PRIVATE, 0600), semaphore = semget(IPC_PRIVATE, 1, 0600);
    char space[100];
    pipe(line), handle(SIGUSR1, flags);
    struct timespec long_time = {20, 0}, left = {0, 0};
    struct pollfd wish = {line[0], POLLIN};
    struct epoll_event event;
    struct timeval time = {20, 0};
    fd_set reads;
    FD_ZERO(&reads);
    FD_SET(line[0], &reads);
    INTERRUPTED(nanosleep(&long_time, &left)) IS(left.tv_nsec != 0);
    INTERRUPTED(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &long_time, NULL)) INTERRUPTED(syscall(SYS_clock_nanosleep, CLOCK_REALTIME, TIMER_ABSTIME, &(struct timespec){1l << 40, 0}, NULL))
    INTERRUPTED(poll(&wish, 1, 20000)) INTERRUPTED(ppoll(&wish, 1, &long_time, NULL)) INTERRUPTED(select(line[0] + 1, &reads, NULL, NULL, &time)) INTERRUPTED(epoll_wait(set, &event, 1, 20000))
    INTERRUPTED(futex(&word, FUTEX_WAIT, 0, &long_time)) INTERRUPTED(pause()) INTERRUPTED(msgrcv(queue, space, 10, 0, 0)) INTERRUPTED(semop(semaphore, &(struct sembuf){0, -1, 0}, 1))
    INTERRUPTED(semtimedop(semaphore, &(struct sembuf){0, -1, 0}, 1, &long_time))
    sigset_t other = set_of(SIGUSR2, 0);
    sigprocmask(SIG_BLOCK, &other, NULL);
    INTERRUPTED(sigtimedwait(&other, NULL, &long_time)) INTERRUPTED(sigwaitinfo(&other, NULL))
    int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair), setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    INTERRUPTED(recv(pair[0], space, 1, 0)) INTERRUPTED(read(pair[0], space, 1))
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un name = {AF_UNIX, "listener"};
    bind(listener, (void *)&name, sizeof name), listen(listener, 1), setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    INTERRUPTED(accept(listener, NULL, NULL))
    msgctl(queue, IPC_RMID, NULL), semctl(semaphore, 0, IPC_RMID);
}
PROGRAM(interrupted_calls) { interrupted(0); }
PROGRAM(calls_that_never_restart) { interrupted(SA_RESTART); }

static void *writes_late(void *descriptor) {
    while (!count)
        pause_ms(10);
    pause_ms(50), write((int)(intptr_t)descriptor, "x", 1);
    return NULL;
}
static void *wakes_late(void *word) {
    while (!count)
        pause_ms(10);
    pause_ms(50), *(volatile int *)word = 1;
    while (futex(word, FUTEX_WAKE, 1, NULL) == 0 && *(volatile int *)word == 1)
        pause_ms(10);
    return NULL;
}
PROGRAM(calls_that_restart) {
    int line[2], pair[2], word = 0;
    char byte;
    handle(SIGUSR1, SA_RESTART), pipe(line), socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    sigset_t own_signal = set_of(SIGUSR1, 0);
    pthread_t thread;
#define LATE(body, argument, call)                                                                                     \
    {                                                                                                                  \
        count = 0, sigprocmask(SIG_BLOCK, &own_signal, NULL);                                                          \
        pthread_create(&thread, NULL, body, (void *)(intptr_t)(argument)), sigprocmask(SIG_UNBLOCK, &own_signal, NULL); \
        INTERRUPTED(call)                                                                                              \
        pthread_join(thread, NULL);                                                                                    \
    }
    LATE(writes_late, line[1], read(line[0], &byte, 1)) LATE(writes_late, pair[1], recv(pair[0], &byte, 1, 0)) LATE(wakes_late, &word, (futex(&word, FUTEX_WAIT, 0, NULL), word = 2))
    pid_t sleeper = fork();
    if (sleeper == 0) {
        pause_ms(300);
        _exit(0);
    }
    INTERRUPTED(waitpid(sleeper, NULL, 0) == sleeper)
}
PROGRAM(calls_that_do_not_restart) {
    int line[2];
    char byte;
    pipe(line), handle(SIGUSR1, 0);
    INTERRUPTED(read(line[0], &byte, 1))
    fcntl(line[1], F_SETPIPE_SZ, 4096);
    static char big[10000];
    T(write(line[1], big, 4096));
    INTERRUPTED(write(line[1], big, 10)) T(read(line[0], big, 4096));
    INTERRUPTED(write(line[1], big, 10000))
    pid_t sleeper = fork();
    if (sleeper == 0) {
        pause();
        _exit(0);
    }
    INTERRUPTED(waitpid(sleeper, NULL, 0))
    kill(sleeper, SIGKILL), waitpid(sleeper, NULL, 0);
    int fd = open("locked", O_CREAT | O_RDWR, 0600), lock_line[2];
    pipe(lock_line);
    sleeper = fork();
    if (sleeper == 0) {
        struct flock lock = {.l_type = F_WRLCK};
        fcntl(open("locked", O_RDWR), F_SETLK, &lock), write(lock_line[1], "x", 1), pause();
        _exit(0);
    }
    struct flock lock = {.l_type = F_WRLCK};
    read(lock_line[0], &byte, 1);
    INTERRUPTED(fcntl(fd, F_SETLKW, &lock))
    kill(sleeper, SIGKILL), waitpid(sleeper, NULL, 0);
}

// What a call answers in a process that is stopped and continued again and again.
#define STOPPED(call)                                                                                                  \
    {                                                                                                                  \
        fflush(stdout);                                                                                                \
        pid_t child_ = fork();                                                                                         \
        if (child_ == 0) {                                                                                             \
            T(call);                                                                                                   \
            _exit(0);                                                                                                  \
        }                                                                                                              \
        int status_ = 0;                                                                                               \
        while (pause_ms(60), kill(child_, SIGSTOP), waitpid(child_, &status_, WUNTRACED), WIFSTOPPED(status_))         \
            kill(child_, SIGCONT);                                                                                     \
    }
PROGRAM(stopped_calls) {
    int line[2], set = epoll_create1(0), semaphore = semget(IPC_PRIVATE, 1, 0600), word = 0, pair[2];
    char space[100];
    struct timespec short_time = {0, 300000000}, long_time = {20, 0};
    struct epoll_event event;
    struct timeval time = {0, 300000};
    pipe(line), socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    struct pollfd wish = {line[0], POLLIN};
    sigset_t other = set_of(SIGUSR2, 0);
    fd_set reads;
    FD_ZERO(&reads);
    FD_SET(line[0], &reads);
    sigprocmask(SIG_BLOCK, &other, NULL);
    STOPPED(poll(&wish, 1, 300)) STOPPED(ppoll(&wish, 1, &short_time, NULL)) STOPPED(select(line[0] + 1, &reads, NULL, NULL, &time)) STOPPED(nanosleep(&short_time, NULL)) STOPPED(clock_nanosleep(CLOCK_MONOTONIC, 0, &short_time, NULL)) STOPPED(futex(&word, FUTEX_WAIT, 0, &short_time))
    STOPPED(epoll_wait(set, &event, 1, 20000)) STOPPED(sigtimedwait(&other, NULL, &long_time)) STOPPED(semtimedop(semaphore, &(struct sembuf){0, -1, 0}, 1, &long_time))
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){20, 0}, sizeof time);
    STOPPED(recv(pair[0], space, 1, 0))
    semctl(semaphore, 0, IPC_RMID);
}

PROGRAM(stops_and_handlers) {
    int line[2], back[2];
    char byte;
    pipe(line), pipe(back);
    pid_t child = fork();
    if (child == 0) {
        handle(SIGCONT, 0), handle(SIGTSTP, 0), write(line[1], "x", 1);
        while (count < 2)
            pause_ms(10);
        while (read(back[0], &byte, 1) != 1) {
        }
        told();
        _exit(0);
    }
    int status;
    read(line[0], &byte, 1), kill(child, SIGTSTP), pause_ms(50), T(waitpid(child, &status, WUNTRACED | WNOHANG)), kill(child, SIGSTOP), waitpid(child, &status, WUNTRACED), T(status), kill(child, SIGCONT), T(waitpid(child, &status, WCONTINUED) > 0), printf("%x\n", status), fflush(stdout), write(back[1], "x", 1), waitpid(child, &status, 0), T(status);
    child = fork();
    if (child == 0) {
        setpgid(0, 0), kill(getppid(), 0), raise(SIGTSTP);
        _exit(3);
    }
    waitpid(child, &status, WUNTRACED), printf("%x\n", status), kill(child, SIGTERM), T(waitpid(child, &status, WNOHANG)), kill(child, SIGCONT), waitpid(child, &status, 0), T(status);
    child = fork();
    if (child == 0)
        raise(SIGSTOP), _exit(1);
    waitpid(child, &status, WUNTRACED), kill(child, SIGKILL), waitpid(child, &status, 0), T(status);
}

PROGRAM(children_told) {
    handle(SIGCHLD, 0);
    sigset_t set = set_of(SIGCHLD, 0);
    siginfo_t info;
    int line[2];
    char byte;
    sigprocmask(SIG_BLOCK, &set, NULL), pipe(line);
    pid_t child = fork();
    if (child == 0) {
        raise(SIGSTOP), read(line[0], &byte, 1);
        _exit(5);
    }
    T(sigwaitinfo(&set, &info)), T(info.si_code), T(info.si_status), IS(info.si_pid == child), kill(child, SIGCONT), T(sigwaitinfo(&set, &info)), T(info.si_code), T(info.si_status), write(line[1], "x", 1), T(sigwaitinfo(&set, &info)), T(info.si_code), T(info.si_status), waitpid(child, NULL, 0);
    handle(SIGCHLD, SA_NOCLDSTOP);
    child = fork();
    if (child == 0) {
        raise(SIGSTOP), raise(SIGTERM);
        _exit(5);
    }
    int status;
    waitpid(child, &status, WUNTRACED), kill(child, SIGCONT), T(sigwaitinfo(&set, &info)), T(info.si_code), T(info.si_status), waitpid(child, NULL, 0);
}

PROGRAM(values_sent) {
    sigset_t set = set_of(SIGUSR1, SIGRTMIN);
    siginfo_t info = {.si_code = -60, .si_errno = 77}, got;
    sigprocmask(SIG_BLOCK, &set, NULL);
    info.si_pid = 123, info.si_uid = 456, info.si_value.sival_ptr = (void *)0x123456789abc;
    T(syscall(SYS_rt_sigqueueinfo, getpid(), SIGRTMIN, &info)), T(sigwaitinfo(&set, &got)), T(got.si_code), T(got.si_errno), T(got.si_pid), T(got.si_uid), IS(got.si_value.sival_ptr == info.si_value.sival_ptr), T(got.si_signo);
    info.si_code = 5, T(syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR1, &info)), T(sigwaitinfo(&set, &got)), T(got.si_code), info.si_code = 0, T(syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR1, &info)), T(sigwaitinfo(&set, &got)), T(got.si_code);
    raise(SIGUSR1), T(sigwaitinfo(&set, &got)), T(got.si_code), IS(got.si_pid == getpid()), kill(getpid(), SIGUSR1), T(sigwaitinfo(&set, &got)), T(got.si_code), T(sigqueue(getpid(), SIGUSR1, (union sigval){3})), T(sigwaitinfo(&set, &got)), T(got.si_code), T(got.si_int);
    info.si_code = SI_TIMER, T(syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR1, &info)), T(sigwaitinfo(&set, &got)), T(got.si_code), info.si_code = SI_SIGIO, T(syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR1, &info)), T(sigwaitinfo(&set, &got)), T(got.si_code);
}

PROGRAM(alternate_stacks) {
    char *memory = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = {memory, 0, 65536}, got;
    T(sigaltstack(NULL, &got)), T(got.ss_flags), T(sigaltstack(&stack, NULL)), T(sigaltstack(NULL, &got)), T(got.ss_flags), T(got.ss_size), stack.ss_size = 2047, T(sigaltstack(&stack, NULL)), stack.ss_size = 65536, stack.ss_flags = SS_ONSTACK, T(sigaltstack(&stack, NULL)), T((sigaltstack(NULL, &got), got.ss_flags));
    stack.ss_flags = 1 << 31, T(sigaltstack(&stack, NULL)), T((sigaltstack(NULL, &got), got.ss_flags == (1 << 31))), stack.ss_flags = (1 << 31) | SS_DISABLE, T(sigaltstack(&stack, NULL)), T((sigaltstack(NULL, &got), got.ss_flags)), stack.ss_flags = 3, T(sigaltstack(&stack, NULL)), stack.ss_flags = SS_DISABLE, stack.ss_size = 0, T(sigaltstack(&stack, NULL));
    CHILD("of a child", (stack.ss_flags = 0, stack.ss_size = 65536, sigaltstack(&stack, NULL), fork() == 0 ? (sigaltstack(NULL, &got), T(got.ss_flags), _exit(0)) : (void)wait(NULL)));
}
