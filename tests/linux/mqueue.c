/* POSIX message queues: names, priorities, waiting, notification, readiness. Prints the same on every Linux. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int failed(long result) { return result == -1 ? errno : 0; }
static const char *name(int error) { return error ? strerrorname_np(error) : "ok"; }
#define SAY(what, call) printf("%s: %s\n", what, name(failed((long)(call))))

static char path[64];

static mqd_t make(long count, long bytes, int flags) {
    struct mq_attr attributes = {.mq_maxmsg = count, .mq_msgsize = bytes};
    return mq_open(path, O_RDWR | O_CREAT | flags, 0600, &attributes);
}

static void take(mqd_t queue, const char *what) {
    char text[64];
    unsigned priority = 77;
    long got = mq_receive(queue, text, sizeof text, &priority);
    if (got < 0) printf("%s: %s\n", what, name(errno));
    else printf("%s: %ld bytes, priority %u, %.*s\n", what, got, priority, (int)got, text);
}

static void names(void) {
    char long_name[400];
    memset(long_name, 'x', sizeof long_name);
    long_name[0] = '/';
    long_name[257] = 0;
    SAY("open of nothing", mq_open(path, O_RDWR));
    SAY("too long", mq_open(long_name, O_RDWR | O_CREAT, 0600, 0));
    SAY("empty", syscall(SYS_mq_open, "", O_RDWR, 0, 0));
    SAY("slash", syscall(SYS_mq_open, "a/b", O_RDWR | O_CREAT, 0600, 0));
    SAY("dots", syscall(SYS_mq_open, "..", O_RDWR | O_CREAT, 0600, 0));
    SAY("nowhere", syscall(SYS_mq_open, 8, O_RDWR | O_CREAT, 0600, 0));
    SAY("bad attributes", syscall(SYS_mq_open, path + 1, O_RDWR | O_CREAT, 0600, 8));
    SAY("no messages", make(0, 10, 0));
    SAY("no bytes", make(10, 0, 0));
    SAY("negative", make(-1, 10, 0));
    SAY("far too many", make(100000, 10, 0));
    mqd_t queue = make(3, 32, O_EXCL);
    SAY("make", queue);
    SAY("exclusive", make(3, 32, O_EXCL));
    SAY("open again", make(99, 99, 0));
    struct mq_attr attributes;
    SAY("attributes", mq_getattr(queue, &attributes));
    printf("flags %lo messages %ld bytes %ld now %ld\n", attributes.mq_flags, attributes.mq_maxmsg, attributes.mq_msgsize,
           attributes.mq_curmsgs);
    printf("closed by exec: %d\n", fcntl(queue, F_GETFD));
    attributes.mq_flags = O_NONBLOCK;
    attributes.mq_maxmsg = 1000;
    SAY("set", mq_setattr(queue, &attributes, 0));
    mq_getattr(queue, &attributes);
    printf("flags %lo messages %ld, by fcntl %d\n", attributes.mq_flags, attributes.mq_maxmsg,
           (fcntl(queue, F_GETFL) & O_NONBLOCK) != 0);
    attributes.mq_flags = O_APPEND;
    SAY("set other flags", mq_setattr(queue, &attributes, 0));
    SAY("of a file", mq_getattr(0, &attributes));
    SAY("of nothing", mq_getattr(999, &attributes));
    mqd_t reader = mq_open(path, O_RDONLY), writer = mq_open(path, O_WRONLY | O_NONBLOCK);
    SAY("send to a reader", mq_send(reader, "x", 1, 0));
    char text[64];
    SAY("receive from a writer", mq_receive(writer, text, sizeof text, 0));
    SAY("write", write(writer, "x", 1));
    SAY("unlink", mq_unlink(path));
    SAY("unlink again", mq_unlink(path));
    SAY("send without a name", mq_send(writer, "hello", 5, 3));
    take(reader, "receive without a name");
    mq_close(reader);
    mq_close(writer);
    mq_close(queue);
}

static void order(void) {
    mqd_t queue = make(5, 32, O_NONBLOCK);
    take(queue, "nothing there");
    SAY("too long", mq_send(queue, path, 33, 0));
    SAY("priority", mq_send(queue, "x", 1, 32768));
    SAY("from nowhere", mq_send(queue, (void *)8, 5, 1));
    char small[31];
    SAY("small buffer", mq_receive(queue, small, sizeof small, 0));
    mq_send(queue, "low", 3, 1);
    mq_send(queue, "high", 4, 9);
    mq_send(queue, "", 0, 5);
    mq_send(queue, "low too", 7, 1);
    mq_send(queue, "highest", 7, 32767);
    SAY("full", mq_send(queue, "x", 1, 32767));
    char line[200] = {0};
    printf("%ld bytes: ", (long)read(queue, line, sizeof line));
    printf("%s", line);
    for (int index = 0; index < 5; index++) take(queue, "next");
    take(queue, "empty");
    mq_send(queue, "lost", 4, 1);
    SAY("into nowhere", mq_receive(queue, (void *)8, 64, 0));
    take(queue, "it is lost");
    mq_unlink(path);
    mq_close(queue);
}

static void handler(int signal) { (void)signal; }

/* Until a child waits for something. */
static void until_asleep(pid_t child) {
    char where[40], text[300];
    sprintf(where, "/proc/%d/stat", child);
    for (;;) {
        FILE *file = fopen(where, "r");
        if (!file) return;
        char *end = fgets(text, sizeof text, file) ? strrchr(text, ')') : 0;
        fclose(file);
        if (end && end[2] == 'S') return;
        usleep(1000);
    }
}

static void waiting(void) {
    mqd_t queue = make(1, 32, 0);
    struct timespec soon, bad = {0, 1000000000};
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_nsec += 20000000;
    if (soon.tv_nsec >= 1000000000) soon.tv_nsec -= 1000000000, soon.tv_sec++;
    char text[64];
    SAY("nothing in time", mq_timedreceive(queue, text, sizeof text, 0, &soon));
    SAY("bad time", mq_timedreceive(queue, text, sizeof text, 0, &bad));
    mq_send(queue, "fill", 4, 0);
    SAY("no room in time", mq_timedsend(queue, "more", 4, 0, &soon));
    SAY("bad time", mq_timedsend(queue, "more", 4, 0, &bad));
    int status;
    pid_t child = fork();
    if (child == 0) _exit(mq_send(queue, "later", 5, 2));
    until_asleep(child);
    take(queue, "makes room");
    take(queue, "then");
    waitpid(child, &status, 0);
    printf("sender %d\n", WEXITSTATUS(status));
    child = fork();
    if (child == 0) {
        take(queue, "in the child");
        fflush(stdout);
        _exit(0);
    }
    until_asleep(child);
    mq_send(queue, "to it", 5, 4);
    waitpid(child, &status, 0);
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGUSR1, &action, 0);
    for (int kind = 0; kind < 2; kind++) {
        if (kind) mq_send(queue, "fill", 4, 0);
        child = fork();
        if (child == 0) {
            long result = kind ? mq_send(queue, "x", 1, 0) : mq_receive(queue, text, sizeof text, 0);
            _exit(result < 0 && errno == EINTR ? 4 : 5);
        }
        until_asleep(child);
        kill(child, SIGUSR1);
        waitpid(child, &status, 0);
        printf("interrupted %d\n", WEXITSTATUS(status));
        child = fork();
        if (child == 0) _exit(kind ? mq_send(queue, "x", 1, 0) : mq_receive(queue, text, sizeof text, 0));
        until_asleep(child);
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        printf("killed %d\n", WTERMSIG(status));
    }
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &action, 0);
    take(queue, "only the first");
    child = fork();
    if (child == 0) {
        take(queue, "after a restart");
        fflush(stdout);
        _exit(0);
    }
    until_asleep(child);
    kill(child, SIGUSR1);
    usleep(20000);
    mq_send(queue, "went on", 7, 0);
    waitpid(child, 0, 0);
    mq_unlink(path);
    mq_close(queue);
}

static volatile int told, told_code, told_value, told_pid;
static void notified(int signal, siginfo_t *info, void *context) {
    told++;
    told_code = info->si_code;
    told_value = info->si_value.sival_int;
    told_pid = info->si_pid == getpid();
}

static void notification(void) {
    mqd_t queue = make(5, 32, O_NONBLOCK);
    struct sigaction action = {.sa_sigaction = notified, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR2, &action, 0);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2, .sigev_value.sival_int = 42};
    SAY("ask", mq_notify(queue, &event));
    SAY("ask twice", mq_notify(queue, &event));
    pid_t child = fork();
    if (child == 0) {
        SAY("child asks", mq_notify(queue, &event));
        SAY("child takes nothing back", mq_notify(queue, 0));
        SAY("still asked", mq_notify(queue, &event));
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, 0, 0);
    mq_send(queue, "a", 1, 0);
    printf("told %d code %d value %d by me %d\n", told, told_code, told_value, told_pid);
    SAY("ask again", mq_notify(queue, &event));
    mq_send(queue, "b", 1, 0);
    printf("not empty before: told %d\n", told);
    take(queue, "first");
    take(queue, "second");
    mq_send(queue, "c", 1, 0);
    printf("empty before: told %d\n", told);
    take(queue, "third");
    SAY("ask", mq_notify(queue, &event));
    SAY("take back", mq_notify(queue, 0));
    mq_send(queue, "d", 1, 0);
    printf("taken back: told %d\n", told);
    take(queue, "fourth");
    mqd_t other = mq_open(path, O_RDWR | O_NONBLOCK);
    mq_notify(queue, &event);
    mq_close(other);
    SAY("closing any takes back", mq_notify(queue, &event));
    child = fork();
    if (child == 0) {
        mq_send(queue, "from the child", 14, 0);
        _exit(0);
    }
    waitpid(child, 0, 0);
    printf("told %d by me %d\n", told, told_pid);
    take(queue, "from the child");
    event.sigev_notify = SIGEV_NONE;
    SAY("none", mq_notify(queue, &event));
    child = fork();
    if (child == 0) _exit(0);
    waitpid(child, 0, 0);
    SAY("held", mq_notify(queue, &event));
    mq_notify(queue, 0);
    child = fork();
    if (child == 0) {
        mq_notify(queue, &event);
        raise(SIGKILL);
    }
    waitpid(child, 0, 0);
    SAY("the one who asked is dead", mq_notify(queue, &event));
    event.sigev_notify = 77;
    SAY("bad kind", mq_notify(queue, &event));
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = 65;
    SAY("bad signal", mq_notify(queue, &event));
    SAY("of a file", mq_notify(0, 0));
    mq_unlink(path);
    mq_close(queue);
}

static void readiness(void) {
    mqd_t queue = make(1, 32, O_NONBLOCK);
    struct pollfd wish = {queue, POLLIN | POLLOUT, 0};
    printf("empty %d %x\n", poll(&wish, 1, 0), wish.revents);
    mq_send(queue, "x", 1, 0);
    int ready = poll(&wish, 1, 0);
    printf("full %d %x\n", ready, wish.revents);
    take(queue, "taken");
    int set = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.u32 = 5}};
    SAY("epoll", epoll_ctl(set, EPOLL_CTL_ADD, queue, &event));
    pid_t child = fork();
    if (child == 0) {
        usleep(30000);
        mq_send(queue, "y", 1, 0);
        _exit(0);
    }
    printf("comes %d\n", epoll_wait(set, &event, 1, 10000));
    waitpid(child, 0, 0);
    wish.events = POLLOUT;
    child = fork();
    if (child == 0) {
        usleep(30000);
        take(queue, "in the child");
        fflush(stdout);
        _exit(0);
    }
    ready = poll(&wish, 1, 10000);
    waitpid(child, 0, 0);
    printf("room %d %x\n", ready, wish.revents);
    close(set);
    mq_unlink(path);
    mq_close(queue);
}

static void bounds(void) {
    char other[80];
    mqd_t queues[64];
    int count = 0;
    struct rlimit limit = {300000, 300000};
    setrlimit(RLIMIT_MSGQUEUE, &limit);
    if (getuid() == 0) setuid(54321 + getpid());
    for (; count < 64; count++) {
        sprintf(other, "%s.%d", path, count);
        queues[count] = mq_open(other, O_RDWR | O_CREAT, 0600, 0);
        if (queues[count] < 0) break;
    }
    printf("queues %d: %s\n", count, name(errno));
    struct mq_attr attributes = {.mq_maxmsg = 11, .mq_msgsize = 10};
    SAY("more messages than one may have", mq_open(path, O_RDWR | O_CREAT, 0600, &attributes));
    attributes = (struct mq_attr){.mq_maxmsg = 10, .mq_msgsize = 8193};
    SAY("more bytes than one may have", mq_open(path, O_RDWR | O_CREAT, 0600, &attributes));
    while (count--) {
        sprintf(other, "%s.%d", path, count);
        mq_unlink(other);
        mq_close(queues[count]);
    }
    SAY("then there is room", mq_open(path, O_RDWR | O_CREAT, 0600, 0));
    mq_unlink(path);
}

static void strangers(void) {
    if (getuid() != 0) return;
    struct mq_attr attributes = {.mq_maxmsg = 3, .mq_msgsize = 32};
    mode_t before = umask(0);
    mqd_t queue = mq_open(path, O_RDWR | O_CREAT, 0604, &attributes);
    umask(before);
    pid_t child = fork();
    if (child == 0) {
        setgid(12345);
        setuid(54321);
        SAY("stranger reads", mq_open(path, O_RDONLY));
        SAY("stranger writes", mq_open(path, O_WRONLY));
        SAY("stranger unlinks", mq_unlink(path));
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, 0, 0);
    mq_unlink(path);
    mq_close(queue);
}

static void *sender(void *argument) {
    mqd_t queue = *(mqd_t *)argument;
    for (int round = 0; round < 300; round++) mq_send(queue, (char *)&round, sizeof round, round % 3);
    return 0;
}

static void together(void) {
    mqd_t queue = make(4, 32, 0);
    pthread_t threads[3];
    for (int index = 0; index < 3; index++) pthread_create(&threads[index], 0, sender, &queue);
    long sum = 0;
    for (int round = 0; round < 900; round++) {
        char text[32];
        if (mq_receive(queue, text, sizeof text, 0) == sizeof(int)) sum += *(int *)text;
    }
    for (int index = 0; index < 3; index++) pthread_join(threads[index], 0);
    printf("three senders: %ld\n", sum);
    mq_unlink(path);
    mq_close(queue);
}

int main(void) {
    setvbuf(stdout, 0, _IOLBF, 0);
    sprintf(path, "/aegis-mqueue-%d", getpid());
    names();
    order();
    waiting();
    notification();
    readiness();
    together();
    strangers();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        bounds();
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, 0, 0); // This child: one that nobody waited for before must not do.
    return 0;
}
