/*
 * Two processes that use two objects of a kind at once, one as (a, b), the other as (b, a): a process that holds
 * the lock of the one while it takes the other's waits for ever. A line for each kind says that both are through.
 * Arguments: rounds, and a kind if it is to be the only one.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int pipes[2][2], files[2], ends[2], datagrams[2], polls[2], masters[2], slaves[2];
static char *shared[2];
static pid_t other;

static void signals(int me) {
    (void)me;
    kill(other, 0);
    getpgid(other), getsid(other);
    getpriority(PRIO_PROCESS, other);
    kill(0, 0);
}
static void limits(int me) {
    struct rlimit limit;
    cpu_set_t set;
    (void)me;
    prlimit(other, RLIMIT_CORE, NULL, &limit);
    prlimit(other, RLIMIT_CORE, &limit, NULL);
    sched_getaffinity(other, sizeof set, &set);
    sched_setaffinity(other, sizeof set, &set);
    setpriority(PRIO_PROCESS, other, 0);
}
static void memories(int me) {
    char from[5000], to[5000];
    struct iovec here = {me ? to : from, sizeof from}, there = {shared[!me], sizeof from};
    process_vm_readv(other, &here, 1, &there, 1, 0);
    process_vm_writev(other, &here, 1, &there, 1, 0);
}
static void maps(int me) {
    char name[64], text[4096];
    (void)me;
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "/proc/%d/%s", other, (const char *[]){"maps", "stat", "status"}[i]);
        int fd = open(name, O_RDONLY);
        while (read(fd, text, sizeof text) > 0) {}
        close(fd);
    }
}
static void tees(int me) {
    char byte[64] = "x";
    if (write(pipes[me][1], byte, sizeof byte)) {}
    tee(pipes[me][0], pipes[!me][1], 32, SPLICE_F_NONBLOCK);
    splice(pipes[me][0], NULL, pipes[!me][1], NULL, 48, SPLICE_F_NONBLOCK);
    if (read(pipes[me][0], byte, sizeof byte)) {}
}
static void transfers(int me) {
    loff_t from = 0, to = 4096;
    sendfile(files[me], files[!me], &from, 6000);
    lseek(files[me], 0, SEEK_SET);
    from = 0;
    copy_file_range(files[me], &from, files[!me], &to, 6000, 0);
    if (write(files[me], shared[!me], 5000)) {}
    lseek(files[me], 0, SEEK_SET);
    if (read(files[me], shared[!me], 5000)) {}
    if (ftruncate(files[me], 20000)) {}
}
static void streams(int me) {
    char text[300] = "x";
    int got = -1;
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {text, sizeof text};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &ends[me], sizeof(int));
    sendmsg(ends[me], &message, MSG_DONTWAIT);
    message.msg_controllen = sizeof control;
    if (recvmsg(ends[me], &message, MSG_DONTWAIT) > 0 && (head = CMSG_FIRSTHDR(&message))) {
        memcpy(&got, CMSG_DATA(head), sizeof got);
        close(got);
    }
    send(datagrams[me], text, 100, MSG_DONTWAIT);
    recv(datagrams[me], text, 100, MSG_DONTWAIT);
    struct sockaddr_un name;
    socklen_t length = sizeof name;
    getpeername(ends[me], (struct sockaddr *)&name, &length);
}
static void connections(int me) {
    static int listener = -1;
    struct sockaddr_un name[2] = {{AF_UNIX, "crossed-0"}, {AF_UNIX, "crossed-1"}};
    if (listener < 0) {
        listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        bind(listener, (struct sockaddr *)&name[me], sizeof name[me]);
        listen(listener, 4);
    }
    int client = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    connect(client, (struct sockaddr *)&name[!me], sizeof name[!me]);
    close(accept(listener, NULL, NULL));
    close(client);
}
static void names(int me) {
    char text[4][32];
    for (int i = 0; i < 4; i++) snprintf(text[i], sizeof text[i], "crossed.%c/%d%d", "ab"[i & 1 ? !me : me], i, me);
    close(open(text[0], O_CREAT | O_RDWR, 0600));
    rename(text[0], text[1]);
    link(text[1], text[2]);
    mkdir(text[3], 0700);
    rename(me ? "crossed.a" : "crossed.b", me ? "crossed.b/x" : "crossed.a/x");
    rename(me ? "crossed.b/x" : "crossed.a/x", me ? "crossed.a" : "crossed.b");
    syscall(SYS_renameat2, AT_FDCWD, text[1], AT_FDCWD, text[2], 2);
    unlink(text[1]), unlink(text[2]), rmdir(text[3]);
}
static void epolls(int me) {
    struct epoll_event event = {.events = EPOLLIN};
    int inner = epoll_create1(0);
    epoll_ctl(polls[me], EPOLL_CTL_ADD, pipes[!me][0], &event);
    epoll_ctl(inner, EPOLL_CTL_ADD, polls[me], &event);
    epoll_ctl(polls[!me], EPOLL_CTL_ADD, inner, &event);
    if (write(pipes[!me][1], "x", 1)) {}
    epoll_wait(polls[me], &event, 1, 0);
    epoll_ctl(polls[me], EPOLL_CTL_DEL, pipes[!me][0], &event);
    close(inner);
}
static void terminals(int me) {
    char text[64];
    if (write(masters[me], "a\nb", 3)) {}
    if (write(slaves[!me], "c\n", 2)) {}
    if (read(slaves[me], text, sizeof text)) {}
    if (read(masters[!me], text, sizeof text)) {}
}
static void locked(int me) {
    struct flock lock = {.l_type = F_WRLCK, .l_start = me, .l_len = 1};
    fcntl(files[me], F_SETLK, &lock);
    lock.l_start = !me;
    fcntl(files[!me], F_SETLK, &lock);
    lock.l_type = F_UNLCK, lock.l_len = 0, lock.l_start = 0;
    fcntl(files[0], F_SETLK, &lock), fcntl(files[1], F_SETLK, &lock);
    flock(files[me], LOCK_EX | LOCK_NB), flock(files[!me], LOCK_UN | LOCK_NB);
}
static void children(int me) {
    (void)me;
    pid_t child = fork();
    if (child == 0) _exit(kill(other, 0) || setpgid(0, 0));
    setpgid(child, child);
    kill(child, SIGCONT);
    while (waitpid(child, NULL, WUNTRACED | WCONTINUED) < 0 && errno == EINTR) {}
}

static const struct {
    const char *name;
    void (*round)(int);
    int share;
} kinds[] = {
    {"signals", signals, 1},   {"limits", limits, 2},           {"memories", memories, 4}, {"maps", maps, 20},
    {"tees", tees, 1},         {"transfers", transfers, 4},     {"streams", streams, 2},   {"connections", connections, 2},
    {"names", names, 4},       {"epolls", epolls, 2},           {"terminals", terminals, 4}, {"locks", locked, 2},
    {"children", children, 20},
};

int main(int count, char **arguments) {
    const char *only = count > 2 ? arguments[2] : "";
    int rounds = count > 1 ? atoi(arguments[1]) : 2000;
    char folder[] = "/tmp/crossed-XXXXXX";
    if (!mkdtemp(folder) || chdir(folder)) return 1;
    mkdir("crossed.a", 0700), mkdir("crossed.b", 0700);
    for (int i = 0; i < 2; i++) {
        if (pipe2(pipes[i], O_NONBLOCK)) return 1;
        fcntl(pipes[i][1], F_SETPIPE_SZ, 1 << 16);
        files[i] = memfd_create("crossed", 0);
        if (ftruncate(files[i], 20000)) return 1;
        shared[i] = mmap(NULL, 20000, PROT_READ | PROT_WRITE, MAP_SHARED, files[i], 0);
        polls[i] = epoll_create1(0);
        masters[i] = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
        if (grantpt(masters[i]) || unlockpt(masters[i])) return 1;
        slaves[i] = open(ptsname(masters[i]), O_RDWR | O_NOCTTY | O_NONBLOCK);
    }
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends), socketpair(AF_UNIX, SOCK_DGRAM, 0, datagrams);
    signal(SIGPIPE, SIG_IGN);
    for (unsigned kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        if (*only && strcmp(only, kinds[kind].name)) continue;
        pid_t child = fork();
        int status, me = child == 0;
        other = child ? child : getppid();
        for (int i = 0; i < rounds / kinds[kind].share; i++) kinds[kind].round(me);
        if (child == 0) _exit(0);
        waitpid(child, &status, 0);
        printf("%s: both are through, %x\n", kinds[kind].name, status);
        fflush(stdout);
    }
    /* The folders may have been left one within the other. */
    pid_t child = fork();
    if (child == 0) execlp("rm", "rm", "-rf", folder, NULL), _exit(0);
    waitpid(child, NULL, 0);
    return 0;
}
