// The process told by a signal that a file is ready: F_SETOWN, F_SETOWN_EX, F_SETSIG, O_ASYNC; leases and notices of
// directories.
#include "answers.h"
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <termios.h>

static volatile int got_signal, got_code, got_fd, got_band, got_count;
static volatile pid_t got_tid;
static void note(int signal, siginfo_t *info, void *unused) {
    got_signal = signal, got_code = info->si_code, got_fd = info->si_fd, got_band = info->si_band, got_tid = gettid();
    got_count++;
}
static void handle(int signal) {
    struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO};
    sigaction(signal, &action, NULL);
}
static void show(const char *what) {
    pause_ms(20);
    printf("%s: %d signals", what, got_count);
    if (got_count)
        printf(", signal %d code %d", got_signal, got_code);
    if (got_count && got_code > 0 && got_code < 7)
        printf(" fd %d band %x", got_fd, got_band);
    printf("\n");
    got_count = 0;
}
static void own(int fd) {
    fcntl(fd, F_SETOWN, getpid());
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC);
}
#define OWN_EX(fd, kind, number) ({ struct f_owner_ex owner_ = {kind, number}; fcntl(fd, F_SETOWN_EX, &owner_); })

PROGRAM(owner_calls) {
    int line[2], plain = open("plain", O_CREAT | O_RDWR, 0600), path = open("plain", O_PATH);
    struct f_owner_ex owner = {9, 9};
    pipe(line);
    T(fcntl(line[0], F_GETOWN)), T(fcntl(line[0], F_GETSIG)), T(fcntl(line[0], F_GETOWN_EX, &owner)), T(owner.type), T(owner.pid);
    W(fcntl(line[0], F_SETOWN, getpid())), IS(fcntl(line[0], F_GETOWN) == getpid()), T(fcntl(line[0], F_GETOWN_EX, &owner)), T(owner.type), IS(owner.pid == getpid());
    T(fcntl(line[0], F_SETOWN, -getpgrp())), IS(syscall(SYS_fcntl, line[0], F_GETOWN) == -getpgrp() || errno == getpgrp()), T(fcntl(line[0], F_GETOWN_EX, &owner)), T(owner.type), IS(owner.pid == getpgrp());
    T(fcntl(line[0], F_SETOWN, 99999)), T(fcntl(line[0], F_SETOWN, -99999)), T(fcntl(line[0], F_SETOWN, INT32_MIN)), T(fcntl(line[0], F_SETOWN, 0)), T(fcntl(line[0], F_GETOWN));
    T(OWN_EX(line[0], F_OWNER_TID, gettid())), T(fcntl(line[0], F_GETOWN_EX, &owner)), T(owner.type), IS(owner.pid == gettid()), IS(fcntl(line[0], F_GETOWN) == gettid());
    T(OWN_EX(line[0], 5, 1)), T(OWN_EX(line[0], F_OWNER_PID, 99999)), T(OWN_EX(line[0], F_OWNER_PID, -1)), T(OWN_EX(line[0], F_OWNER_PGRP, getpgrp())), T(OWN_EX(line[0], F_OWNER_PID, 0));
    T(fcntl(line[0], F_SETOWN_EX, 8)), T(fcntl(line[0], F_GETOWN_EX, 8));
    T(fcntl(line[0], F_SETSIG, SIGUSR1)), T(fcntl(line[0], F_GETSIG)), T(fcntl(line[0], F_SETSIG, 65)), T(fcntl(line[0], F_SETSIG, -1)), T(fcntl(line[0], F_SETSIG, 64)), T(fcntl(line[0], F_SETSIG, 0)), T(fcntl(line[0], F_GETSIG));
    T(fcntl(line[0], F_SETFL, O_ASYNC)), T(fcntl(line[0], F_GETFL)), T(fcntl(plain, F_SETFL, O_ASYNC)), T(fcntl(plain, F_GETFL)), W(fcntl(plain, F_SETOWN, getpid())), IS(fcntl(plain, F_GETOWN) == getpid()), T(fcntl(path, F_SETOWN, getpid())), T(fcntl(path, F_GETOWN));
    // The owner belongs to the open file, not to the descriptor; and it goes when it ends.
    int copy = dup(line[1]);
    fcntl(line[1], F_SETOWN, getpid());
    IS(fcntl(copy, F_GETOWN) == getpid()), T(fcntl(line[0], F_GETOWN));
    pid_t child = fork();
    if (child == 0)
        pause(), _exit(0);
    fcntl(copy, F_SETOWN, child);
    kill(child, SIGKILL), waitpid(child, NULL, 0);
    T(fcntl(copy, F_GETOWN));
    int pair[2], on = 1, value;
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    value = getpid();
    T(ioctl(pair[0], FIOSETOWN, &value)), value = 0, T(ioctl(pair[0], FIOGETOWN, &value)), IS(value == getpid()), T(ioctl(pair[0], SIOCGPGRP, &value)), T(ioctl(line[0], FIOGETOWN, &value));
    T(ioctl(pair[0], FIOASYNC, &on)), T(fcntl(pair[0], F_GETFL)), on = 0, T(ioctl(pair[0], FIOASYNC, &on)), T(fcntl(pair[0], F_GETFL)), T(ioctl(plain, FIOASYNC, &on)), on = 1, T(ioctl(plain, FIOASYNC, &on));
}

PROGRAM(owner_pipes) {
    int line[2];
    char bytes[70000] = "";
    handle(SIGIO), handle(SIGUSR1), handle(SIGRTMIN + 3);
    pipe2(line, O_NONBLOCK);
    write(line[1], "a", 1), show("nobody is told"), read(line[0], bytes, 1);
    own(line[0]), write(line[1], "a", 1), show("pipe is readable"), write(line[1], "a", 1), show("more in the pipe");
    read(line[0], bytes, 2), show("reader's own read");
    fcntl(line[0], F_SETSIG, SIGUSR1), write(line[1], "a", 1), show("another signal");
    fcntl(line[0], F_SETSIG, SIGIO), write(line[1], "a", 1), show("SIGIO with facts");
    fcntl(line[0], F_SETSIG, SIGRTMIN + 3), write(line[1], "a", 1), show("a queued signal"), write(line[1], "a", 1), show("once more");
    int copy = dup(line[0]);
    close(line[0]), write(line[1], "a", 1), show("the copy, by the first number");
    fcntl(copy, F_SETFL, O_NONBLOCK), write(line[1], "a", 1), show("not any more");
    own(line[1]), show("writer set");
    while (write(line[1], bytes, sizeof bytes) > 0) {
    }
    show("full");
    read(copy, bytes, 4096), show("room for one");
    close(copy), show("reader gone");
    pipe2(line, O_NONBLOCK), own(line[0]), close(line[1]), show("writer gone");
}

PROGRAM(owner_sockets) {
    int pair[2], one = socket(AF_UNIX, SOCK_STREAM, 0), two;
    char bytes[70000] = "";
    struct sockaddr_un name = {AF_UNIX, "listener"};
    handle(SIGIO);
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    own(pair[0]), fcntl(pair[0], F_SETSIG, SIGIO), show("set"), write(pair[1], "a", 1), show("readable"), write(pair[1], "a", 1), show("more");
    shutdown(pair[1], SHUT_WR), show("shut"), close(pair[1]), show("closed");
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    own(pair[0]), fcntl(pair[0], F_SETSIG, SIGIO), send(pair[1], "a", 1, 0), show("datagram"), recv(pair[0], bytes, 1, 0), show("taken");
    bind(one, (void *)&name, sizeof name), listen(one, 3), own(one), fcntl(one, F_SETSIG, SIGIO);
    two = socket(AF_UNIX, SOCK_STREAM, 0), connect(two, (void *)&name, sizeof name), show("connection");
}

PROGRAM(owner_others) {
    struct itimerspec soon = {{0, 0}, {0, 1000000}};
    int event = eventfd(0, 0), timer = timerfd_create(CLOCK_MONOTONIC, 0), watch = inotify_init(), master = posix_openpt(O_RDWR | O_NOCTTY);
    uint64_t one = 1;
    handle(SIGIO), handle(SIGUSR2);
    T(fcntl(event, F_SETFL, O_ASYNC)), T(fcntl(event, F_GETFL) & O_ASYNC), T(fcntl(timer, F_SETFL, O_ASYNC)), T(fcntl(timer, F_GETFL) & O_ASYNC);
    own(event), write(event, &one, 8), show("eventfd");
    own(watch), fcntl(watch, F_SETSIG, SIGUSR2), inotify_add_watch(watch, ".", IN_CREATE), close(open("new", O_CREAT, 0600)), show("inotify");
    grantpt(master), unlockpt(master);
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    struct termios modes;
    tcgetattr(slave, &modes), cfmakeraw(&modes), tcsetattr(slave, TCSANOW, &modes);
    own(slave), fcntl(slave, F_SETSIG, SIGUSR2), write(master, "a", 1), show("terminal"), own(master), write(slave, "a", 1), show("its other side");
    T(got_signal);
}

static void *waits(void *unused) {
    pause_ms(300);
    return NULL;
}
PROGRAM(owner_kinds) {
    int line[2];
    handle(SIGIO);
    pipe(line), own(line[0]), T(OWN_EX(line[0], F_OWNER_PGRP, getpgrp()));
    pid_t child = fork();
    if (child == 0) {
        pause_ms(100), printf("child: %d\n", got_count), fflush(stdout), _exit(0);
    }
    pause_ms(30), write(line[1], "a", 1), waitpid(child, NULL, 0), show("parent");
    pthread_t thread;
    pthread_create(&thread, NULL, waits, NULL);
    OWN_EX(line[0], F_OWNER_TID, gettid()), write(line[1], "a", 1), pause_ms(20), IS(got_tid == gettid()), show("thread");
    pthread_join(thread, NULL);
    // A signal to another user's process does not arrive.
    child = fork();
    if (child == 0) {
        setresuid(1000, 1000, 1000), got_count = 0;
        pause_ms(100), printf("other user: %d\n", got_count), fflush(stdout), _exit(0);
    }
    pause_ms(30);
    fcntl(line[0], F_SETOWN, child), write(line[1], "a", 1), waitpid(child, NULL, 0);
    child = fork();
    if (child == 0) {
        setresuid(1000, 1000, 1000), fcntl(line[0], F_SETOWN, getppid()), write(line[1], "a", 1), _exit(0);
    }
    waitpid(child, NULL, 0), show("from user 1000 to root");
    child = fork();
    if (child == 0)
        signal(SIGIO, SIG_DFL), fcntl(line[0], F_SETOWN, getpid()), write(line[1], "a", 1), pause_ms(50), _exit(1);
    int status;
    waitpid(child, &status, 0), T(status);
}

PROGRAM(leases) {
    int fd = open("leased", O_CREAT | O_RDWR, 0644), line[2], folder = open(".", O_RDONLY), reading = open("leased", O_RDONLY);
    handle(SIGIO), handle(SIGUSR1);
    pipe(line);
    T(fcntl(fd, F_GETLEASE)), T(fcntl(fd, F_SETLEASE, F_RDLCK)), T(fcntl(fd, F_SETLEASE, F_WRLCK)), T(fcntl(fd, F_SETLEASE, 9)), T(fcntl(fd, F_SETLEASE, F_UNLCK)), T(fcntl(line[0], F_SETLEASE, F_RDLCK)), T(fcntl(line[0], F_GETLEASE)), T(fcntl(folder, F_SETLEASE, F_RDLCK));
    T(fcntl(reading, F_SETLEASE, F_RDLCK));
    close(reading);
    T(fcntl(fd, F_SETLEASE, F_WRLCK)), T(fcntl(fd, F_GETLEASE)), T(open("leased", O_RDONLY | O_NONBLOCK)), show("broken by a reader"), T(fcntl(fd, F_GETLEASE)), T(fcntl(fd, F_SETLEASE, F_RDLCK));
    T(fcntl(fd, F_SETLEASE, F_UNLCK)), T(fcntl(fd, F_GETLEASE));
    close(fd);
    fd = open("leased", O_RDONLY);
    T(fcntl(fd, F_SETLEASE, F_RDLCK)), T(fcntl(fd, F_GETLEASE)), W(close(open("leased", O_RDONLY))), show("readers do not matter"), T(open("leased", O_WRONLY | O_NONBLOCK)), show("broken by a writer");
    T(fcntl(fd, F_GETLEASE)), T(fcntl(fd, F_SETLEASE, F_UNLCK)), W(close(open("leased", O_WRONLY | O_NONBLOCK)));
    fcntl(fd, F_SETSIG, SIGUSR1), T(fcntl(fd, F_SETLEASE, F_RDLCK));
    pid_t child = fork();
    if (child == 0) {
        int own_fd = open("leased", O_WRONLY);
        printf("opened %d\n", own_fd >= 0), fflush(stdout), _exit(0);
    }
    while (!got_count)
        pause_ms(5);
    show("a writer waits");
    printf("let go\n"), fflush(stdout);
    // The child's line comes as soon as the lease is gone: what the call gave is told after it.
    int let_go = fcntl(fd, F_SETLEASE, F_UNLCK);
    waitpid(child, NULL, 0), T(let_go);
    T(fcntl(fd, F_SETLEASE, F_RDLCK)), T(truncate("leased", 0) * 0);
    child = fork();
    if (child == 0) {
        close(fd), T(open("leased", O_WRONLY | O_NONBLOCK)), _exit(0);
    }
    waitpid(child, NULL, 0), close(fd), pause_ms(10), W(open("leased", O_WRONLY | O_NONBLOCK));
    child = fork();
    if (child == 0) {
        setresuid(1000, 1000, 1000), fd = open("leased", O_RDONLY), T(fcntl(fd, F_SETLEASE, F_RDLCK)), _exit(0);
    }
    waitpid(child, NULL, 0);
}

PROGRAM(notices) {
    int folder = open(".", O_RDONLY), plain = open("plain", O_CREAT | O_RDWR, 0600), line[2];
    pipe(line);
    handle(SIGIO), handle(SIGRTMIN + 1);
    T(fcntl(plain, F_NOTIFY, DN_CREATE)), T(fcntl(line[0], F_NOTIFY, DN_CREATE)), T(fcntl(folder, F_NOTIFY, 0)), T(fcntl(folder, F_NOTIFY, DN_CREATE));
    close(open("one", O_CREAT, 0600)), show("created"), close(open("two", O_CREAT, 0600)), show("told once");
    fcntl(folder, F_SETSIG, SIGRTMIN + 1), T(fcntl(folder, F_NOTIFY, DN_DELETE | DN_RENAME | DN_MULTISHOT));
    unlink("one"), show("deleted"), rename("two", "three"), show("renamed"), write(plain, "x", 1), show("not asked for");
    T(fcntl(folder, F_NOTIFY, DN_MODIFY | DN_ATTRIB | DN_ACCESS)), write(plain, "x", 1), show("modified"), chmod("plain", 0644), show("attributes"), pread(plain, line, 1, 0), show("access");
    T(fcntl(folder, F_NOTIFY, 0)), unlink("three"), show("no more");
}
