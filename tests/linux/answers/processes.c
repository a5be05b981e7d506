// Processes: how they begin and end, which waits for which, what groups and sessions refuse.
#include "answers.h"
#include <linux/sched.h>
#include <sys/resource.h>

static long clone_raw(unsigned long flags, void *stack, void *parent, void *child, void *tls) { return syscall(SYS_clone, flags, stack, parent, child, tls); }
static int status_of(pid_t child) {
    int status = -1;
    waitpid(child, &status, __WALL);
    return status;
}

PROGRAM(clone_refusals) {
    T(clone_raw(CLONE_THREAD, 0, 0, 0, 0)), T(clone_raw(CLONE_SIGHAND, 0, 0, 0, 0)), T(clone_raw(CLONE_THREAD | CLONE_SIGHAND, 0, 0, 0, 0));
    T(clone_raw(CLONE_FS | CLONE_NEWNS, 0, 0, 0, 0));
    T(clone_raw(CLONE_PIDFD | CLONE_PARENT_SETTID | SIGCHLD, 0, 0, 0, 0)), T(clone_raw(CLONE_PIDFD | SIGCHLD, 0, (void *)8, 0, 0));
    T(clone_raw(CLONE_NEWUSER | CLONE_FS, 0, 0, 0, 0)), T(clone_raw(CLONE_NEWIPC | CLONE_SYSVSEM, 0, 0, 0, 0)), T(clone_raw(CLONE_CLEAR_SIGHAND & 0, 0, 0, 0, 0) == 0 ? (_exit(0), 0) : 0);
    while (wait(NULL) > 0) {
    }
}

PROGRAM(clone_numbers) {
    int there = 0, here = 0, *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    long child = clone_raw(CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | SIGCHLD, 0, &there, &here, 0);
    if (child == 0) {
        shared[0] = here == getpid(), shared[1] = there;
        _exit(0);
    }
    IS(there == child), T(here), T(status_of(child)), T(shared[0]), IS(shared[1] == child || shared[1] == 0);
    // Another signal than SIGCHLD: only __WALL and __WCLONE see it.
    child = clone_raw(0, 0, 0, 0, 0);
    if (child == 0)
        _exit(5);
    pause_ms(50);
    T(waitpid(-1, NULL, 0)), T(waitpid(child, NULL, WNOHANG)), IS(waitpid(-1, NULL, __WCLONE) == child);
    child = clone_raw(SIGUSR1, 0, 0, 0, 0);
    if (child == 0) {
        pause_ms(20);
        _exit(6);
    }
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set), sigaddset(&set, SIGUSR1), sigprocmask(SIG_BLOCK, &set, NULL);
    T(sigwaitinfo(&set, &info)), T(info.si_code), T(info.si_status), IS(info.si_pid == child), T(status_of(child));
    child = clone_raw(CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        _exit(0);
    T(waitpid(child, NULL, 0));
}

static long clone3_raw(struct clone_args *arguments, size_t size) { return syscall(SYS_clone3, arguments, size); }
PROGRAM(clone3_refusals) {
    struct clone_args none = {0}, wrong;
    char large[256] = {0};
    T(clone3_raw(&none, 0)), T(clone3_raw(&none, 63)), T(clone3_raw((void *)8, 64)), T(clone3_raw(&none, 5000)), large[200] = 1, T(clone3_raw((void *)large, 256));
#define WRONG(field, value) (wrong = none, wrong.exit_signal = SIGCHLD, wrong.field = value, clone3_raw(&wrong, sizeof wrong))
    T(WRONG(exit_signal, 99)), T(WRONG(exit_signal, 1ull << 40)), T(WRONG(flags, SIGCHLD)), T(WRONG(flags, CLONE_DETACHED)), T(WRONG(flags, CLONE_THREAD)), T(WRONG(flags, 1ull << 50));
    T(WRONG(stack, 4096)), T(WRONG(stack_size, 4096)), T(WRONG(set_tid_size, 1)), T(WRONG(set_tid, (uintptr_t)large)), T(WRONG(set_tid_size, 99));
    wrong = none, wrong.flags = CLONE_CLEAR_SIGHAND | CLONE_SIGHAND | CLONE_VM, T(clone3_raw(&wrong, sizeof wrong));
    wrong = none, wrong.flags = CLONE_THREAD | CLONE_SIGHAND | CLONE_VM, wrong.exit_signal = SIGCHLD, T(clone3_raw(&wrong, sizeof wrong));
    wrong = none, wrong.flags = CLONE_PARENT, wrong.exit_signal = SIGCHLD, T(clone3_raw(&wrong, sizeof wrong));
    wrong = none, wrong.flags = CLONE_INTO_CGROUP, wrong.cgroup = 1ull << 40, T(clone3_raw(&wrong, sizeof wrong)), wrong.cgroup = 99, T(clone3_raw(&wrong, sizeof wrong));
    wrong = none, wrong.flags = CLONE_PIDFD | CLONE_PARENT_SETTID, wrong.pidfd = wrong.parent_tid = (uintptr_t)large, T(clone3_raw(&wrong, sizeof wrong) == 0 ? (_exit(0), 0) : 1);
}

static void nothing(int number) {}
PROGRAM(clone3_handlers) {
    signal(SIGUSR1, nothing), signal(SIGUSR2, SIG_IGN);
    int descriptor = -1, tid = 0;
    struct clone_args wish = {.flags = CLONE_CLEAR_SIGHAND | CLONE_PIDFD | CLONE_PARENT_SETTID, .exit_signal = SIGCHLD, .pidfd = (uintptr_t)&descriptor, .parent_tid = (uintptr_t)&tid};
    long child = clone3_raw(&wish, sizeof wish);
    if (child == 0) {
        struct sigaction first, second;
        sigaction(SIGUSR1, NULL, &first), sigaction(SIGUSR2, NULL, &second);
        _exit((first.sa_handler == SIG_DFL) + 2 * (second.sa_handler == SIG_IGN));
    }
    siginfo_t info;
    IS(tid == child), T(fcntl(descriptor, F_GETFD)), T(waitid(P_PIDFD, descriptor, &info, WEXITED)), T(info.si_status), T(waitid(P_PIDFD, descriptor, &info, WEXITED));
    T(syscall(SYS_pidfd_send_signal, descriptor, 0, NULL, 0));
}

static char *const no_words[] = {NULL};
PROGRAM(exec_refusals) {
    char *words[] = {"x", NULL}, long_name[5000];
    memset(long_name, 'a', sizeof long_name - 1), long_name[4999] = 0;
    T(execve("", words, no_words)), T(execve("nothing", words, no_words)), T(execve((void *)8, words, no_words)), T(execve(".", words, no_words)), T(execve("/proc/self/nothing/x", words, no_words));
    int fd = open("plain", O_CREAT | O_RDWR, 0644);
    T(execve("plain", words, no_words)), T(execve("plain/x", words, no_words)), T(execve(long_name, words, no_words)), fchmod(fd, 0755);
    T(execve("plain", words, no_words)), close(fd), T(execve("plain", words, no_words));
    fd = open("plain", O_WRONLY), write(fd, "\177ELF", 4), close(fd), T(execve("plain", words, no_words));
    T(execve("/dev/null", words, no_words)), T(mkfifo("line", 0777)), T(execve("line", words, no_words)), T(execve("/proc/self/exe", (void *)8, no_words)), T(execve("/proc/self/exe", words, (void *)8));
    char *wrong[] = {(void *)8, NULL};
    T(execve("/proc/self/exe", wrong, no_words)), T(symlink("loop", "loop")), T(execve("loop", words, no_words));
    T(syscall(SYS_execveat, -1, "plain", words, no_words, 0)), T(syscall(SYS_execveat, AT_FDCWD, "", words, no_words, 0)), T(syscall(SYS_execveat, 99, "", words, no_words, AT_EMPTY_PATH)), T(syscall(SYS_execveat, AT_FDCWD, "plain", words, no_words, 0x8000));
    T(syscall(SYS_execveat, AT_FDCWD, "loop", words, no_words, AT_SYMLINK_NOFOLLOW)), fd = open(".", O_RDONLY), T(syscall(SYS_execveat, fd, "", words, no_words, AT_EMPTY_PATH));
}

static void script(const char *name, const char *text) {
    int fd = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0755);
    write(fd, text, strlen(text)), fchmod(fd, 0755), close(fd);
}
PROGRAM(exec_scripts) {
    char *words[] = {"x", NULL}, text[600];
    script("empty", "#!"), script("spaces", "#!   \n"), script("missing", "#!/nothing/there\n"), script("itself", "#!itself\n"), script("directory", "#!/\n");
    T(execve("empty", words, no_words)), T(execve("spaces", words, no_words)), T(execve("missing", words, no_words)), T(execve("itself", words, no_words)), T(execve("directory", words, no_words));
    memset(text, 'a', sizeof text), memcpy(text, "#!/", 3), text[599] = 0, script("long", text), T(execve("long", words, no_words));
    script("noexec", "#!plain\n"), script("plain", "x"), chmod("plain", 0644), T(execve("noexec", words, no_words));
    script("five", "#!./four\n"), script("four", "#!./three\n"), script("three", "#!./two\n"), script("two", "#!./one\n"), script("one", "#!./zero\n"), script("zero", "#!./minus\n"), script("minus", "#!/nothing\n"), T(execve("five", words, no_words));
}

PROGRAM(exec_sizes) {
    // A word of more than 128 KiB, and all together more than a quarter of the stack's limit.
    static char word[140000], *words[40], *more[200];
    memset(word, 'a', sizeof word - 1);
    words[0] = word, T(execve("/proc/self/exe", words, no_words)), word[131071] = 0;
    for (int i = 0; i < 39; i++)
        words[i] = word;
    struct rlimit limit = {1 << 20, RLIM_INFINITY};
    T(setrlimit(RLIMIT_STACK, &limit)), T(execve("/proc/self/exe", words, no_words));
    CHILD("a word of the largest size", {
        struct rlimit wide = {8 << 20, RLIM_INFINITY};
        setrlimit(RLIMIT_STACK, &wide);
        char *fine[] = {"x", "sleep", word, NULL};
        close(0), open("/dev/null", O_RDONLY), words[1] = "sleep", words[2] = NULL;
        execve("/proc/self/exe", words, no_words);
        _exit(9);
    });
}

PROGRAM(wait_options) {
    int status = 7;
    T(wait4(-1, &status, 0x40, NULL)), T(wait4(-1, &status, WNOHANG | 0x100000, NULL)), T(wait4(-1, &status, WEXITED, NULL)), T(wait4(-1, &status, WNOWAIT, NULL)), T(wait4(-1, &status, __WNOTHREAD | WNOHANG, NULL)), T(wait4(-1, &status, __WCLONE | __WALL | WNOHANG, NULL)), T(status);
    pid_t child = fork();
    if (child == 0)
        _exit(0x1234);
    T(wait4(0, &status, __WCLONE, NULL)), IS(wait4(0, &status, 0, NULL) == child), T(status), T(wait4(0, &status, 0, NULL));
    siginfo_t info = {.si_pid = 5, .si_signo = 6};
    child = fork();
    if (child == 0)
        pause();
    T(waitid(P_ALL, 0, &info, WEXITED | WNOHANG)), T(info.si_pid), T(info.si_signo), T(waitid(P_ALL, 0, &info, WNOHANG)), T(waitid(P_ALL, 0, (void *)8, WEXITED | WNOHANG)), T(waitid(P_PGID, getpgrp() + 100000, &info, WEXITED | WNOHANG));
    kill(child, SIGKILL), T(waitid(P_PGID, 0, &info, WEXITED | WNOWAIT)), T(info.si_code), T(waitid(P_PID, child, &info, WEXITED | WSTOPPED | WCONTINUED)), T(info.si_signo), T(info.si_uid);
    struct rusage usage;
    T(syscall(SYS_waitid, P_ALL, 0, 0, WEXITED, &usage)), T(syscall(SYS_wait4, -1, 0, 0, 8));
}

static void *waits_for_one(void *unused) { return (void *)(intptr_t)wait(NULL); }
PROGRAM(waited_for_by_two) {
    // Each child is told once, and one that nobody may wait for never.
    enum { ROUND_COUNT = 100 };
    int told = 0, none = 0;
    for (int i = 0; i < ROUND_COUNT; i++) {
        pthread_t other;
        void *got;
        if (fork() == 0)
            _exit(0);
        pthread_create(&other, NULL, waits_for_one, NULL);
        int own = wait(NULL);
        pthread_join(other, &got);
        told += (own > 0) + ((intptr_t)got > 0), none += (own == -1) + ((intptr_t)got == -1);
    }
    T(told), T(none), signal(SIGCHLD, SIG_IGN), told = 0;
    for (int i = 0; i < ROUND_COUNT; i++) {
        if (fork() == 0)
            _exit(0);
        told += wait(NULL) != -1 || errno != ECHILD;
    }
    T(told), signal(SIGCHLD, SIG_DFL);
}
PROGRAM(wait_ignored) {
    // Children of a process that ignores SIGCHLD leave nothing; a waiter hears of the last one's
    // end.
    signal(SIGCHLD, SIG_IGN);
    for (int i = 0; i < 3; i++)
        if (fork() == 0) {
            pause_ms(30 * i);
            _exit(i);
        }
    T(wait(NULL));
    struct sigaction action = {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT};
    sigaction(SIGCHLD, &action, NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(1);
    T(waitpid(child, NULL, 0)), signal(SIGCHLD, SIG_DFL);
    child = fork();
    if (child == 0)
        _exit(1);
    T(status_of(child));
}

PROGRAM(wait_groups) {
    pid_t first = fork();
    if (first == 0)
        pause();
    setpgid(first, first);
    pid_t second = fork();
    if (second == 0)
        pause();
    setpgid(second, first);
    T(waitpid(0, NULL, WNOHANG)), T(waitpid(-first, NULL, WNOHANG)), T(kill(-first, SIGTERM)), T(waitpid(-first, NULL, 0) > 0), T(waitpid(-first, NULL, 0) > 0), T(waitpid(-first, NULL, 0)), T(kill(-first, 0));
}

PROGRAM(exit_codes) {
    for (int code = -1; code < 600; code += 150) {
        pid_t child = fork();
        if (child == 0)
            _exit(code);
        T(status_of(child));
    }
    CHILD("aborted", { signal(SIGABRT, SIG_IGN); struct rlimit none = {0, 0}; setrlimit(RLIMIT_CORE, &none); abort(); });
    CHILD("by a thread's exit", { syscall(SYS_exit, 7); });
}

PROGRAM(groups_of_processes) {
    T(setpgid(0, -1)), T(setpgid(-1, 0)), T(setpgid(999999, 0)), T(setpgid(0, 999999)), T(setpgid(getppid(), 0)), T(getpgid(-1)), T(getpgid(999999)), T(getsid(-1)), T(getsid(999999)), T(setsid());
    int line[2];
    pipe(line);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(line[1]), read(line[0], &byte, 1);
        T(setsid() == getpid()), T(setpgid(0, 0)), T(getsid(0) == getpid()), T(setsid()), T(setpgid(0, getppid()));
        _exit(0);
    }
    T(setpgid(child, 999999)), T(setpgid(child, child)), T(setpgid(child, getpgrp())), T(setpgid(child, 0)), write(line[1], "x", 1), T(status_of(child)), T(setpgid(child, 0));
    child = fork();
    if (child == 0) {
        setsid(), pause();
        _exit(0);
    }
    pause_ms(50), T(setpgid(child, child)), T(setpgid(child, getpgrp())), T(setpgid(0, child)), kill(child, SIGKILL), status_of(child);
    child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "x", "sleep", NULL);
        _exit(1);
    }
    pause_ms(200), T(setpgid(child, child)), kill(child, SIGKILL), status_of(child);
}

PROGRAM(kill_targets) {
    T(kill(0x7fffffff, 0)), T(kill(-0x7fffffff, 0)), T(kill(getpid(), 65)), T(kill(getpid(), 1000)), T(kill(getpgrp(), 0)), T(kill(-getpgrp(), 0));
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    pause_ms(50);
    // It has ended and is still there.
    T(kill(child, 0)), T(kill(child, SIGKILL)), T(getpgid(child) == getpgrp()), T(getsid(child) == getsid(0)), T(getpriority(PRIO_PROCESS, child)), T(syscall(SYS_tgkill, child, child, 0)), T(sched_getscheduler(child)), T(status_of(child)), T(kill(child, 0)), T(syscall(SYS_tgkill, child, child, 0));
}

PROGRAM(borrowed_memory) {
    volatile int *seen = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pid_t child = vfork();
    if (child == 0) {
        *seen = 42;
        _exit(3);
    }
    T(*seen), T(status_of(child)), signal(SIGUSR1, nothing);
    child = vfork();
    if (child == 0) {
        execl("nothing", "x", NULL);
        _exit(errno);
    }
    T(status_of(child));
}

PROGRAM(orphans) {
    // The adopter: the nearest that said so.
    T(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
    int said = 0, line[2];
    T(prctl(PR_GET_CHILD_SUBREAPER, &said, 0, 0, 0)), T(said), T(prctl(PR_GET_CHILD_SUBREAPER, 8, 0, 0, 0)), T(prctl(PR_SET_CHILD_SUBREAPER, 5, 1, 1, 1)), T(prctl(PR_GET_CHILD_SUBREAPER, &said, 0, 0, 0)), T(said);
    pipe(line);
    pid_t own = getpid(), child = fork();
    if (child == 0) {
        T((prctl(PR_GET_CHILD_SUBREAPER, &said, 0, 0, 0), said));
        if (fork() == 0) {
            while (getppid() != own)
                pause_ms(5);
            _exit(9);
        }
        _exit(0);
    }
    T(status_of(child)), T(status_of(-1));
}

PROGRAM(ends_of_parents) {
    int value = 7;
    T(prctl(PR_SET_PDEATHSIG, 65, 0, 0, 0)), T(prctl(PR_SET_PDEATHSIG, SIGUSR1, 0, 0, 0)), T(prctl(PR_GET_PDEATHSIG, &value, 0, 0, 0)), T(value), T(prctl(PR_GET_PDEATHSIG, 8, 0, 0, 0)), T(prctl(PR_SET_PDEATHSIG, -1, 0, 0, 0));
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    int line[2];
    pipe(line);
    pid_t child = fork();
    if (child == 0) {
        T((prctl(PR_GET_PDEATHSIG, &value, 0, 0, 0), value));
        if (fork() == 0) {
            sigset_t set;
            siginfo_t info;
            sigemptyset(&set), sigaddset(&set, SIGUSR2), sigprocmask(SIG_BLOCK, &set, NULL);
            prctl(PR_SET_PDEATHSIG, SIGUSR2, 0, 0, 0), write(line[1], "x", 1);
            _exit(sigwaitinfo(&set, &info) == SIGUSR2 && info.si_code == SI_USER ? 8 : info.si_code & 0x7f);
        }
        char byte;
        read(line[0], &byte, 1);
        _exit(0);
    }
    T(status_of(child)), T(status_of(-1));
}
