// Processes: fork, vfork, execve, posix_spawn, wait, exit status, SIGCHLD, groups, sessions, orphans, stop and continue,
// what a child inherits. Prints what every Linux prints; numbers of processes are never printed.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static volatile sig_atomic_t child_signals, last_status;

#define CHECK(x) do { if (!(x)) printf("line %d: not so: %s (errno %d)\n", __LINE__, #x, errno); } while (0)
#define FAILS(x, e) do { errno = 0; long r = (long)(x); if (r != -1 || errno != (e)) printf("line %d: %s = %ld errno %d, not %s\n", __LINE__, #x, r, errno, #e); } while (0)

static void on_child(int number, siginfo_t *info, void *unused) {
    (void)number, (void)unused;
    child_signals++, last_status = info->si_status;
}

static int wait_status(pid_t pid) {
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

static void statuses(void) {
    pid_t pid;
    for (int i = 0; i < 260; i += 51) {
        if (!(pid = fork())) _exit(i);
        int status = wait_status(pid);
        printf("exit %d -> %d %d\n", i, WIFEXITED(status), WEXITSTATUS(status));
    }
    int signals[] = {SIGKILL, SIGTERM, SIGSEGV, SIGABRT, SIGUSR1};
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    for (unsigned i = 0; i < 5; i++) {
        if (!(pid = fork())) { raise(signals[i]); _exit(0); }
        int status = wait_status(pid);
        printf("signal %d -> %d %d\n", signals[i], WIFSIGNALED(status), WTERMSIG(status));
    }
    FAILS(waitpid(-1, 0, 0), ECHILD);
    FAILS(waitpid(getpid(), 0, WNOHANG), ECHILD);
    FAILS(wait4(-1, 0, 0x100, 0), EINVAL);
    if (!(pid = fork())) pause();
    CHECK(waitpid(pid, 0, WNOHANG) == 0);
    kill(pid, SIGKILL);
    CHECK(WTERMSIG(wait_status(pid)) == SIGKILL);
    FAILS(kill(pid, 0), ESRCH);
}

static void memory(void) {
    char *private = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *shared = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(private, 'p', 1 << 20), shared[5] = 's';
    pid_t pid = fork();
    if (!pid) {
        int good = private[123456] == 'p' && shared[5] == 's';
        private[123456] = 'c', shared[5] = 'c', shared[900000] = 'd';
        _exit(good && private[123456] == 'c' && private[123457] == 'p' ? 0 : 1);
    }
    CHECK(wait_status(pid) == 0 && private[123456] == 'p' && shared[5] == 'c' && shared[900000] == 'd');
    // A grandchild sees what was there at its fork, and stores of the middle one afterwards are its own.
    if (!(pid = fork())) {
        private[0] = 'm';
        pid_t grand = fork();
        if (!grand) _exit(private[0] == 'm' && private[4096] == 'p' ? 7 : 8);
        private[0] = 'n', private[4096] = 'n';
        _exit(WEXITSTATUS(wait_status(grand)));
    }
    CHECK(WEXITSTATUS(wait_status(pid)) == 7 && private[0] == 'p');
    char *heap = malloc(100000);
    strcpy(heap, "heap");
    if (!(pid = fork())) { strcat(heap, " of child"); char *more = malloc(300000); memset(more, 1, 300000); free(more); _exit(strlen(heap)); }
    CHECK(WEXITSTATUS(wait_status(pid)) == 13 && !strcmp(heap, "heap"));
}

static void files(void) {
    char name[] = "/tmp/processes-XXXXXX";
    int file = mkstemp(name), ends[2];
    CHECK(write(file, "0123456789", 10) == 10 && lseek(file, 2, SEEK_SET) == 2);
    pid_t pid = fork();
    if (!pid) { char c; _exit(read(file, &c, 1) == 1 && c == '2' && close(file) == 0 ? 0 : 1); }
    char c;
    CHECK(wait_status(pid) == 0 && read(file, &c, 1) == 1 && c == '3');
    CHECK(flock(file, LOCK_EX) == 0);
    if (!(pid = fork())) { int other = open(name, O_RDWR); _exit(flock(other, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK ? 0 : 1); }
    CHECK(wait_status(pid) == 0);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    CHECK(fcntl(file, F_SETLK, &lock) == 0);
    if (!(pid = fork())) {
        struct flock probe = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        CHECK(fcntl(file, F_GETLK, &probe) == 0 && probe.l_type == F_WRLCK && probe.l_pid == getppid());
        FAILS(fcntl(file, F_SETLK, &probe), EAGAIN);
        fflush(stdout);
        _exit(0);
    }
    CHECK(wait_status(pid) == 0);
    close(file), unlink(name);

    CHECK(pipe(ends) == 0);
    if (!(pid = fork())) {
        close(ends[0]);
        for (int i = 0; i < 200; i++) { char line[4096]; memset(line, 'a' + i % 26, sizeof line); if (write(ends[1], line, sizeof line) != sizeof line) _exit(1); }
        _exit(0);
    }
    close(ends[1]);
    long sum = 0, count = 0, got;
    char buffer[5000];
    while ((got = read(ends[0], buffer, sizeof buffer)) > 0) for (long i = 0; i < got; i++) sum += buffer[i], count++;
    printf("pipe %ld %ld %d\n", count, sum, wait_status(pid));
    close(ends[0]);
    CHECK(pipe(ends) == 0);
    if (!(pid = fork())) { close(ends[0]); sleep(0); pause(); }
    close(ends[1]);
    struct pollfd polled = {ends[0], POLLIN, 0};
    CHECK(poll(&polled, 1, 10) == 0);
    kill(pid, SIGKILL);
    CHECK(poll(&polled, 1, -1) == 1 && polled.revents == POLLHUP);
    wait_status(pid), close(ends[0]);
}

static void child_signal(void) {
    struct sigaction action = {.sa_sigaction = on_child, .sa_flags = SA_SIGINFO | SA_RESTART}, before;
    sigset_t block, old;
    sigemptyset(&block), sigaddset(&block, SIGCHLD);
    sigaction(SIGCHLD, &action, &before);
    sigprocmask(SIG_BLOCK, &block, &old);
    pid_t pid = fork();
    if (!pid) _exit(42);
    while (!child_signals) sigsuspend(&old);
    printf("SIGCHLD %d status %d\n", child_signals, last_status);
    CHECK(WEXITSTATUS(wait_status(pid)) == 42);
    // By name: information about an end stays until it is taken.
    siginfo_t info;
    if (!(pid = fork())) _exit(9);
    CHECK(waitid(P_PID, pid, &info, WEXITED | WNOWAIT) == 0 && info.si_pid == pid && info.si_status == 9 && info.si_code == CLD_EXITED);
    CHECK(waitid(P_PID, pid, &info, WEXITED) == 0 && info.si_signo == SIGCHLD);
    FAILS(waitid(P_PID, pid, &info, WEXITED), ECHILD);
    sigprocmask(SIG_SETMASK, &old, 0);
    signal(SIGCHLD, SIG_IGN);
    if (!(pid = fork())) _exit(1);
    FAILS(waitpid(pid, 0, 0), ECHILD);
    sigaction(SIGCHLD, &before, 0);
    // Stopped and continued.
    int status;
    if (!(pid = fork())) { raise(SIGSTOP); _exit(5); }
    CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    kill(pid, SIGCONT);
    CHECK(waitpid(pid, &status, WCONTINUED) == pid && (WIFCONTINUED(status) || WIFEXITED(status)));
    if (WIFCONTINUED(status)) CHECK(WEXITSTATUS(wait_status(pid)) == 5);
    if (!(pid = fork())) for (;;) pause();
    kill(pid, SIGSTOP);
    CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
    CHECK(waitpid(pid, &status, WUNTRACED | WNOHANG) == 0);
    kill(pid, SIGKILL);
    CHECK(WTERMSIG(wait_status(pid)) == SIGKILL);
}

static void groups(void) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t pid = fork();
    if (!pid) {
        CHECK(setpgid(0, 0) == 0 && getpgrp() == getpid());
        for (int i = 0; i < 3; i++) if (!fork()) { write(ends[1], "x", 1); for (;;) pause(); }
        write(ends[1], "x", 1);
        for (;;) pause();
    }
    char c;
    for (int i = 0; i < 4; i++) CHECK(read(ends[0], &c, 1) == 1);
    close(ends[1]);
    CHECK(getpgid(pid) == pid && kill(-pid, SIGTERM) == 0);
    CHECK(WTERMSIG(wait_status(pid)) == SIGTERM);
    // All writers have ended: nobody of the group is left.
    CHECK(read(ends[0], &c, 1) == 0);
    close(ends[0]);
    FAILS(setpgid(getpid(), 999999), EPERM);
    if (!(pid = fork())) {
        setpgid(0, 0), signal(SIGTERM, SIG_IGN);
        _exit(kill(0, SIGTERM) == 0 && kill(0, 0) == 0 && kill(-getpid(), SIGTERM) == 0 ? 0 : 1);
    }
    CHECK(wait_status(pid) == 0);
    if (!(pid = fork())) { pid_t id = setsid(); _exit(id == getpid() && getsid(0) == id && getpgrp() == id && setsid() == -1 ? 0 : 1); }
    CHECK(wait_status(pid) == 0);
    // An orphan goes to the process that asked for orphans.
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 && pipe(ends) == 0);
    if (!(pid = fork())) {
        pid_t middle = getpid();
        if (!fork()) {
            while (getppid() == middle) usleep(1000);
            char good = getppid() == 0 ? 'n' : 'y';
            write(ends[1], &good, 1);
            _exit(33);
        }
        _exit(0);
    }
    CHECK(wait_status(pid) == 0);
    CHECK(read(ends[0], &c, 1) == 1 && c == 'y');
    int status;
    CHECK(wait(&status) > 0 && WEXITSTATUS(status) == 33);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    close(ends[0]), close(ends[1]);
}

static void programs(char *self) {
    pid_t pid;
    char *arguments[] = {self, "child", "two words", 0}, *environment[] = {"NAME=value", 0};
    fflush(stdout);
    if (!(pid = fork())) { execve(self, arguments, environment); _exit(127); }
    CHECK(WEXITSTATUS(wait_status(pid)) == 11);
    if (!(pid = vfork())) { execve(self, arguments, environment); _exit(127); }
    CHECK(WEXITSTATUS(wait_status(pid)) == 11);
    if (!(pid = vfork())) _exit(21);
    CHECK(WEXITSTATUS(wait_status(pid)) == 21);
    CHECK(posix_spawn(&pid, self, 0, 0, arguments, environment) == 0 && WEXITSTATUS(wait_status(pid)) == 11);
    CHECK(posix_spawn(&pid, "/nowhere/at/all", 0, 0, arguments, environment) == ENOENT);
    if (!(pid = fork())) { execve("/nowhere", arguments, environment); _exit(errno); }
    CHECK(WEXITSTATUS(wait_status(pid)) == ENOENT);
    char name[] = "/tmp/script-XXXXXX";
    int file = mkstemp(name);
    dprintf(file, "#!%s script\nignored\n", self);
    fchmod(file, 0755), close(file);
    if (!(pid = fork())) { char *words[] = {name, "argument", 0}; execve(name, words, environment); _exit(127); }
    CHECK(WEXITSTATUS(wait_status(pid)) == 12);
    unlink(name);
    FILE *stream = popen("echo out of a shell", "r");
    if (stream) {
        char line[100] = "";
        if (fgets(line, sizeof line, stream)) fputs(line, stdout);
        pclose(stream);
    }
}

static void usage(void) {
    struct rusage usage;
    pid_t pid = fork();
    if (!pid) { volatile double d = 0; for (long i = 0; i < 30000000; i++) d += i; _exit(0); }
    int status;
    CHECK(wait4(pid, &status, 0, &usage) == pid && usage.ru_utime.tv_sec * 1000000 + usage.ru_utime.tv_usec > 0);
    CHECK(getrusage(RUSAGE_CHILDREN, &usage) == 0 && usage.ru_utime.tv_sec * 1000000 + usage.ru_utime.tv_usec > 0);
    struct itimerval timer = {{0, 0}, {0, 20000}};
    if (!(pid = fork())) { setitimer(ITIMER_REAL, &timer, 0); for (;;) pause(); }
    CHECK(WTERMSIG(wait_status(pid)) == SIGALRM);
    prctl(PR_SET_PDEATHSIG, 0);
}

static void many(void) {
    pid_t pids[40];
    int sum = 0, status;
    for (int i = 0; i < 40; i++) if (!(pids[i] = fork())) { for (volatile int j = 0; j < 1000 * i; j++); _exit(i); }
    for (int i = 39; i >= 0; i--) sum += WEXITSTATUS(wait_status(pids[i]));
    for (int i = 0; i < 200; i++) { pid_t pid = fork(); if (!pid) _exit(1); CHECK(pid > 0 && waitpid(pid, &status, 0) == pid); sum += WEXITSTATUS(status); }
    printf("many %d\n", sum);
}

int main(int count, char **words) {
    if (count == 3 && !strcmp(words[1], "child")) {
        printf("child: %s, NAME=%s\n", words[2], getenv("NAME"));
        return 11;
    }
    if (count == 4 && !strcmp(words[1], "script")) return strcmp(words[3], "argument") ? 13 : 12;
    setvbuf(stdout, 0, _IOLBF, 0);
    statuses(), puts("statuses");
    memory(), puts("memory");
    files(), puts("files");
    child_signal(), puts("child signal");
    groups(), puts("groups");
    programs(words[0]), puts("programs");
    usage(), puts("usage");
    many();
    return 0;
}
