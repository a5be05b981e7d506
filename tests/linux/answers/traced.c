// A child that its parent traces: where it stops, what the parent can do there, and how both end.
#include "answers.h"
#include <sys/ptrace.h>
#include <sys/user.h>

static int caught;
static void note(int number) { caught += number; }

// Waits for the child, without asking for stops, and says what it did.
static int step(pid_t child) {
    int status = 0;
    if (waitpid(child, &status, 0) != child)
        return printf("nobody: %s\n", strerrorname_np(errno)), 0;
    if (WIFSTOPPED(status))
        printf("stopped by %d\n", WSTOPSIG(status));
    else if (WIFSIGNALED(status))
        printf("ended by %d\n", WTERMSIG(status));
    else
        printf("exit %d\n", WEXITSTATUS(status));
    fflush(stdout);
    return WIFSTOPPED(status);
}

// A child that asks to be traced, stops, and then does `body`.
#define TRACED(...)                                                                                                    \
    ({                                                                                                                 \
        fflush(stdout);                                                                                                \
        pid_t made_ = fork();                                                                                          \
        if (made_ == 0) {                                                                                              \
            ptrace(PTRACE_TRACEME, 0, 0, 0);                                                                           \
            raise(SIGSTOP);                                                                                            \
            __VA_ARGS__;                                                                                               \
            _exit(0);                                                                                                  \
        }                                                                                                              \
        made_;                                                                                                         \
    })

static volatile long word = 0x1122334455667788;

static void signals(void) {
    pid_t child = TRACED(signal(SIGUSR1, note); raise(SIGUSR1); raise(SIGUSR1); raise(SIGUSR2); _exit(caught));
    step(child), T(ptrace(PTRACE_CONT, child, 0, 0)), step(child);
    // Kept from it, passed on, made another.
    T(ptrace(PTRACE_CONT, child, 0, 0)), step(child), T(ptrace(PTRACE_CONT, child, 0, SIGUSR1)), step(child), T(ptrace(PTRACE_CONT, child, 0, 0)), step(child);
    child = TRACED(raise(SIGUSR1));
    step(child), T(ptrace(PTRACE_CONT, child, 0, 0)), step(child), T(ptrace(PTRACE_CONT, child, 0, SIGTERM)), step(child);
    child = TRACED(sigset_t set; sigemptyset(&set); sigaddset(&set, SIGSEGV); sigprocmask(SIG_BLOCK, &set, NULL); *(volatile int *)8 = 1);
    step(child), T(ptrace(PTRACE_CONT, child, 0, 0)), step(child);
    siginfo_t info;
    T(ptrace(PTRACE_GETSIGINFO, child, 0, &info)), T(info.si_signo), T(info.si_code), IS(info.si_addr == (void *)8), T(ptrace(PTRACE_CONT, child, 0, SIGSEGV)), step(child);
    child = TRACED(pause());
    step(child), T(ptrace(PTRACE_CONT, child, 0, 0)), T(kill(child, SIGTERM)), step(child), T(kill(child, SIGKILL)), step(child);
    child = TRACED(pause());
    step(child), T(ptrace(PTRACE_KILL, child, 0, 0)), step(child), T(ptrace(PTRACE_KILL, child, 0, 0));
    child = TRACED(_exit(7));
    step(child), T(ptrace(PTRACE_DETACH, child, 0, 0)), step(child);
    child = TRACED(raise(SIGUSR1));
    step(child), T(ptrace(PTRACE_DETACH, child, 0, SIGUSR2)), step(child);
    child = TRACED(_exit(3));
    step(child), T(ptrace(PTRACE_CONT, child, 0, 65)), T(ptrace(PTRACE_CONT, child, 0, SIGSTOP)), step(child), T(ptrace(PTRACE_CONT, child, 0, 0)), step(child);
}

static void looks(void) {
    pid_t child = TRACED(_exit(word == 5 ? 1 : 2));
    struct user_regs_struct registers;
    siginfo_t info;
    step(child), IS(ptrace(PTRACE_PEEKDATA, child, &word, 0) == 0x1122334455667788), T(ptrace(PTRACE_PEEKDATA, child, 8, 0)), T(ptrace(PTRACE_POKEDATA, child, 8, 0)), T(ptrace(PTRACE_POKEDATA, child, &word, 5)), T(ptrace(PTRACE_PEEKTEXT, child, &word, 0));
    IS(word == 0x1122334455667788), T(ptrace(PTRACE_GETREGS, child, 0, &registers)), T(registers.rax), IS(registers.rip != 0), IS(registers.fs_base != 0);
    T(ptrace(PTRACE_GETREGS, child, 0, 8)), T(ptrace(PTRACE_SETOPTIONS, child, 0, 0x40000000)), T(ptrace(PTRACE_GETSIGINFO, child, 0, &info)), T(info.si_signo);
    T(ptrace(PTRACE_CONT, child, 0, 0)), step(child), T(ptrace(PTRACE_CONT, child, 0, 0));
    T(ptrace(PTRACE_CONT, 1, 0, 0)), T(ptrace(PTRACE_CONT, 99999999, 0, 0)), T(ptrace(PTRACE_PEEKDATA, getpid(), &word, 0));
    child = TRACED(int line[2]; pipe(line); read(line[0], &line, 1));
    step(child), T(ptrace(PTRACE_CONT, child, 0, 0)), T(ptrace(PTRACE_PEEKDATA, child, &word, 0)), T(kill(child, SIGKILL)), step(child);
    CHILD("twice", T(ptrace(PTRACE_TRACEME, 0, 0, 0)); T(ptrace(PTRACE_TRACEME, 0, 0, 0)));
}

static void calls(void) {
    pid_t child = TRACED(syscall(SYS_getppid); syscall(SYS_close, 99); _exit(4));
    struct user_regs_struct registers;
    step(child), T(ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD));
    // The end of the call by which it stopped itself is behind it.
    for (int turn = 0; turn < 5; turn++) {
        if (ptrace(PTRACE_SYSCALL, child, 0, 0) != 0 || !step(child))
            break;
        T(ptrace(PTRACE_GETREGS, child, 0, &registers)), T(registers.orig_rax), IS(registers.rax == (unsigned long)-ENOSYS), IS((long)registers.rax == -EBADF);
    }
    T(ptrace(PTRACE_CONT, child, 0, 0)), step(child);
    child = TRACED(execl("/proc/self/exe", "answers", "who", NULL));
    step(child), T(ptrace(PTRACE_CONT, child, 0, 0)), step(child), T(ptrace(PTRACE_CONT, child, 0, SIGKILL)), step(child);
}

// The tracer ends first.
static void left(int options) {
    int line[2];
    pipe(line);
    fflush(stdout);
    pid_t between = fork();
    if (between == 0) {
        pid_t child = TRACED(write(line[1], "alive", 5));
        step(child);
        if (options)
            T(ptrace(PTRACE_SETOPTIONS, child, 0, options));
        _exit(0);
    }
    close(line[1]);
    step(between);
    char bytes[8];
    T(read(line[0], bytes, 8));
    close(line[0]);
}
PROGRAM(traced) {
    CHILD("signals", signals());
    CHILD("looks", looks());
    CHILD("calls", calls());
    CHILD("the tracer ends, and the child with it", left(PTRACE_O_EXITKILL));
}
