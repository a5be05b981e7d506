// What the test suites of real programs met (docs/internals/real-suites.md).
#include "answers.h"
#include <pty.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>

// CPython's test_selectors: all that is ready is told at once, however much it is.
PROGRAM(epoll_of_many) {
    enum { COUNT = 6000 };
    static struct epoll_event got[COUNT + 10];
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit), limit.rlim_cur = limit.rlim_max, setrlimit(RLIMIT_NOFILE, &limit);
    int set = epoll_create1(0), event = eventfd(1, 0), added = 0;
    struct epoll_event wish = {EPOLLIN, {0}};
    for (int i = 0; i < COUNT; i++)
        wish.data.u32 = i, added += epoll_ctl(set, EPOLL_CTL_ADD, dup(event), &wish) == 0;
    T(added), T(epoll_wait(set, got, COUNT + 10, 0)), T(epoll_wait(set, got, 5000, 0)), T(epoll_wait(set, got, 1, 0));
}

// Fields 7 and 8 of a process's `stat`: its terminal and the group in front there, by which `ps` finds who is on it.
static void tell_terminal(const char *when) {
    char text[1024] = "", name[64] = "";
    struct stat terminal = {0};
    int fd = open("/proc/self/stat", O_RDONLY), group = 0, session = 0, device = 0, front = 0;
    read(fd, text, sizeof text - 1), close(fd);
    sscanf(strrchr(text, ')'), ") %*c %*d %d %d %d %d", &group, &session, &device, &front);
    stat(ttyname_r(1, name, sizeof name) == 0 ? name : "/dev/pts/ptmx", &terminal);
    dprintf(1, "%s: own group %d, own session %d, ", when, group == getpgrp(), session == getsid(0));
    if (device == 0)
        dprintf(1, "no terminal, front %d\n", front);
    else
        dprintf(1, "major %d, that of descriptor 1 %d, in front %d\n", major(device), (dev_t)device == terminal.st_rdev, front == getpgrp());
}
PROGRAM(terminal_in_stat) {
    CHILD("none", setsid(), tell_terminal("a session without a terminal"));
    int master;
    pid_t child = forkpty(&master, NULL, NULL, NULL);
    if (child == 0) {
        tell_terminal("the leader");
        pid_t job = fork();
        if (job == 0)
            setpgid(0, 0), tell_terminal("a job behind"), _exit(0);
        waitpid(job, NULL, 0);
        ioctl(0, TIOCNOTTY), signal(SIGHUP, SIG_IGN), tell_terminal("given up");
        _exit(0);
    }
    char text[2048];
    size_t length = 0;
    for (ssize_t count; (count = read(master, text + length, sizeof text - 1 - length)) > 0;)
        length += count;
    waitpid(child, NULL, 0);
    printf("%.*s", (int)length, text);
    FILE *drivers = fopen("/proc/tty/drivers", "r");
    while (drivers && fgets(text, sizeof text, drivers))
        if (strstr(text, "pty") || strstr(text, "/dev/ptmx"))
            fputs(text, stdout);
}

// stress-ng's chdir after its bigheap: what programs have used and given back is there for names of a large directory.
static long available_kib(void) {
    char line[128];
    long kib = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof line, file) && sscanf(line, "MemAvailable: %ld", &kib) != 1) {
    }
    fclose(file);
    return kib;
}
PROGRAM(names_after_much_memory) {
    enum { PIECE = 1 << 20, PIECE_COUNT = 512, COUNT = 20000 };
    static char *pieces[PIECE_COUNT];
    int taken = 0, made = 0, found = 0, removed = 0;
    while (taken < PIECE_COUNT && available_kib() > 6 << 10)
        pieces[taken++] = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    while (taken > 0)
        munmap(pieces[--taken], PIECE);
    char name[32];
    for (int i = 0; i < COUNT; i++)
        sprintf(name, "directory-%d", i), made += mkdir(name, 0700) == 0;
    for (int i = 0; i < COUNT; i++)
        sprintf(name, "directory-%d", i), found += access(name, F_OK) == 0, removed += rmdir(name) == 0;
    T(made), T(found), T(removed);
}

// bash's varenv as another user than root: `<(command)` is `/dev/fd/N`, which opens a pipe again as its maker's.
static void tell_owners(int is_user) {
    int pipes[2], sockets[2], opened;
    char path[32];
    struct stat seen;
    pipe(pipes), socketpair(AF_UNIX, SOCK_STREAM, 0, sockets);
    sprintf(path, "/dev/fd/%d", pipes[0]);
    fstat(pipes[1], &seen);
    dprintf(1, "pipe: user %d, group %d, mode %o\n", (int)seen.st_uid, (int)seen.st_gid, (int)seen.st_mode);
    fstat(sockets[0], &seen);
    dprintf(1, "socket: user %d, group %d\n", (int)seen.st_uid, (int)seen.st_gid);
    opened = open(path, O_RDONLY);
    dprintf(1, "opened again: %s\n", opened >= 0 ? "yes" : strerror(errno));
    if (is_user)
        setresgid(1235, 1235, 1235), setresuid(1235, 1235, 1235);
    opened = open(path, O_RDONLY);
    dprintf(1, "opened again by another: %s\n", opened >= 0 ? "yes" : strerror(errno));
}
PROGRAM(pipes_of_users) {
    CHILD("root", tell_owners(0));
    CHILD("root, then a user", tell_owners(1));
    CHILD("for files only", setfsgid(1236), setfsuid(1236), tell_owners(0));
    CHILD("a user", setresgid(1234, 1234, 1234), setresuid(1234, 1234, 1234), tell_owners(1));
}
