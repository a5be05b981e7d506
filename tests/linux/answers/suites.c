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
