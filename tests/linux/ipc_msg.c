/* System V message queues: order, types, room, removal. Prints the same on every Linux. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MSG_COPY
#define MSG_COPY 040000
#endif
#ifndef MSG_EXCEPT
#define MSG_EXCEPT 020000
#endif

static int failed(long result) { return result == -1 ? errno : 0; }
static const char *name(int error) { return error ? strerrorname_np(error) : "ok"; }
#define SAY(what, call) printf("%s: %s\n", what, name(failed((long)(call))))

struct message {
    long type;
    char text[9000];
};

static int put(int id, long type, const char *text, int flags) {
    struct message message = {.type = type};
    strcpy(message.text, text);
    return msgsnd(id, &message, strlen(text) + 1, flags);
}

static void take(int id, const char *what, size_t room, long type, int flags) {
    struct message message = {.type = -7};
    long got = msgrcv(id, &message, room, type, flags);
    if (got < 0) printf("%s: %s\n", what, name(errno));
    else printf("%s: %ld bytes, type %ld, %.*s\n", what, got, message.type, (int)got, message.text);
}

static struct msqid_ds status_of(int id) {
    struct msqid_ds status;
    memset(&status, 0, sizeof status);
    msgctl(id, IPC_STAT, &status);
    return status;
}

static void keys(void) {
    key_t key = 0x53000000 ^ (getpid() << 6);
    SAY("get of nothing", msgget(key, 0600));
    int id = msgget(key, IPC_CREAT | 0640);
    SAY("make", id);
    printf("same by key: %d\n", msgget(key, 0) == id && msgget(key, IPC_CREAT) == id);
    SAY("exclusive", msgget(key, IPC_CREAT | IPC_EXCL));
    struct msqid_ds status = status_of(id);
    printf("mode %o bytes %lu messages %lu times %d %d %d pids %d %d\n", status.msg_perm.mode, status.__msg_cbytes,
           (long)status.msg_qnum, status.msg_stime != 0, status.msg_rtime != 0, status.msg_ctime != 0,
           status.msg_lspid, status.msg_lrpid);
    status.msg_perm.mode = 0602;
    status.msg_qbytes = 100;
    SAY("set", msgctl(id, IPC_SET, &status));
    status = status_of(id);
    printf("mode %o room %lu\n", status.msg_perm.mode, (long)status.msg_qbytes);
    SAY("bad buffer", msgctl(id, IPC_STAT, (void *)8));
    SAY("bad command", msgctl(id, 88, &status));
    SAY("negative", msgctl(-1, IPC_STAT, &status));
    struct msginfo info;
    SAY("limits", msgctl(0, IPC_INFO, (void *)&info) < 0 ? -1 : 0);
    printf("map %d size %d segments %u\n", info.msgmap, info.msgssz, info.msgseg);
    SAY("remove", msgctl(id, IPC_RMID, 0));
    SAY("removed twice", msgctl(id, IPC_RMID, 0));
    SAY("send to nothing", put(id, 1, "x", 0));
}

static void selecting(void) {
    int id = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
    struct message bad = {.type = 0};
    SAY("type 0", msgsnd(id, &bad, 1, 0));
    bad.type = -4;
    SAY("negative type", msgsnd(id, &bad, 1, 0));
    bad.type = 1;
    SAY("too long", msgsnd(id, &bad, 8193, 0));
    SAY("negative length", msgsnd(id, &bad, -1, 0));
    SAY("from nowhere", msgsnd(id, (void *)8, 1, 0));
    take(id, "nothing there", 10, 0, IPC_NOWAIT);
    put(id, 5, "five", 0);
    put(id, 3, "three", 0);
    put(id, 4, "four", 0);
    put(id, 3, "three again", 0);
    take(id, "copy of the second", 100, 1, MSG_COPY | IPC_NOWAIT);
    take(id, "copy beyond", 100, 4, MSG_COPY | IPC_NOWAIT);
    take(id, "copy that waits", 100, 0, MSG_COPY);
    take(id, "copy and except", 100, 0, MSG_COPY | IPC_NOWAIT | MSG_EXCEPT);
    take(id, "copy, short", 3, 0, MSG_COPY | IPC_NOWAIT);
    take(id, "no such type", 100, 9, IPC_NOWAIT);
    take(id, "too small", 3, 3, 0);
    take(id, "cut", 3, 3, MSG_NOERROR);
    take(id, "at most 4", 100, -4, 0);
    take(id, "not 5", 100, 5, MSG_EXCEPT);
    take(id, "lowest first", 100, -9, 0);
    take(id, "empty", 100, 0, IPC_NOWAIT);
    put(id, 1, "one", 0);
    put(id, 2, "two", 0);
    take(id, "any", 100, 0, 0);
    SAY("into nowhere", msgrcv(id, (void *)8, 100, 0, 0));
    take(id, "it is lost", 100, 0, IPC_NOWAIT);
    SAY("negative room", msgrcv(id, &bad, -1, 0, 0));
    struct msqid_ds status = status_of(id);
    printf("bytes %lu messages %lu pids %d %d\n", status.__msg_cbytes, (long)status.msg_qnum, status.msg_lspid == getpid(),
           status.msg_lrpid == getpid());
    SAY("empty message", msgsnd(id, &bad, 0, 0));
    take(id, "empty message", 0, 0, 0);
    int count = 0;
    while (msgsnd(id, &bad, 1000, IPC_NOWAIT) == 0) count++;
    printf("room for %d: %s\n", count, name(errno));
    count = 0;
    while (msgsnd(id, &bad, 0, IPC_NOWAIT) == 0 && count < 100) count++;
    printf("empty ones %d\n", count);
    msgctl(id, IPC_RMID, 0);
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
    int id = msgget(IPC_PRIVATE, IPC_CREAT | 0600), status;
    pid_t child[3];
    /* Each takes its own type, whichever came first. */
    for (int index = 0; index < 3; index++) {
        child[index] = fork();
        if (child[index] == 0) {
            struct message message;
            long got = msgrcv(id, &message, 100, index + 1, 0);
            _exit(got == 2 && message.type == index + 1 ? message.text[0] - 'a' : 99);
        }
    }
    for (int index = 0; index < 3; index++) until_asleep(child[index]);
    put(id, 3, "d", 0);
    put(id, 1, "b", 0);
    put(id, 2, "c", 0);
    for (int index = 0; index < 3; index++) {
        waitpid(child[index], &status, 0);
        printf("%d ", WEXITSTATUS(status));
    }
    printf("by type\n");
    /* A sender waits for room. */
    struct msqid_ds control = status_of(id);
    control.msg_qbytes = 10;
    msgctl(id, IPC_SET, &control);
    put(id, 1, "1234567", 0);
    child[0] = fork();
    if (child[0] == 0) _exit(put(id, 2, "later", 0) != 0);
    until_asleep(child[0]);
    take(id, "makes room", 100, 1, 0);
    take(id, "then", 100, 0, 0);
    waitpid(child[0], &status, 0);
    printf("sender %d\n", WEXITSTATUS(status));
    /* More room, by a control call. */
    put(id, 1, "1234567", 0);
    child[0] = fork();
    if (child[0] == 0) _exit(put(id, 2, "with more room", 0) != 0);
    until_asleep(child[0]);
    control.msg_qbytes = 1000;
    msgctl(id, IPC_SET, &control);
    waitpid(child[0], &status, 0);
    printf("more room %d, messages %d\n", WEXITSTATUS(status), (int)status_of(id).msg_qnum);
    take(id, "first", 100, 0, 0);
    take(id, "second", 100, 0, 0);
    /* Signals. */
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, 0);
    for (int kind = 0; kind < 2; kind++) {
        if (kind) {
            control.msg_qbytes = 1;
            msgctl(id, IPC_SET, &control);
        }
        child[0] = fork();
        if (child[0] == 0) {
            struct message message = {.type = 1};
            long result = kind ? msgsnd(id, &message, 100, 0) : msgrcv(id, &message, 100, 0, 0);
            _exit(result < 0 && errno == EINTR ? 4 : 5);
        }
        until_asleep(child[0]);
        kill(child[0], SIGUSR1);
        waitpid(child[0], &status, 0);
        printf("interrupted %d\n", WEXITSTATUS(status));
        child[0] = fork();
        if (child[0] == 0) {
            struct message message = {.type = 1};
            _exit(kind ? msgsnd(id, &message, 100, 0) : msgrcv(id, &message, 100, 0, 0));
        }
        until_asleep(child[0]);
        kill(child[0], SIGKILL);
        waitpid(child[0], &status, 0);
        printf("killed %d\n", WTERMSIG(status));
    }
    control.msg_qbytes = 100;
    msgctl(id, IPC_SET, &control);
    put(id, 1, "nobody took it", 0);
    take(id, "nobody else", 100, 0, IPC_NOWAIT);
    /* Too large for the one that waits: it is told, the message stays. */
    child[0] = fork();
    if (child[0] == 0) {
        struct message message;
        _exit(msgrcv(id, &message, 3, 0, 0) < 0 ? errno : 0);
    }
    until_asleep(child[0]);
    put(id, 1, "too long for it", 0);
    waitpid(child[0], &status, 0);
    printf("too small: %s\n", name(WEXITSTATUS(status)));
    take(id, "still there", 100, 0, IPC_NOWAIT);
    /* Removed while they wait. */
    put(id, 7, "fill", 0);
    control.msg_qbytes = 5;
    msgctl(id, IPC_SET, &control);
    for (int index = 0; index < 2; index++) {
        child[index] = fork();
        if (child[index] == 0) {
            struct message message = {.type = 1};
            long result = index ? msgsnd(id, &message, 4, 0) : msgrcv(id, &message, 100, 3, 0);
            _exit(result < 0 ? errno : 0);
        }
    }
    until_asleep(child[0]);
    until_asleep(child[1]);
    msgctl(id, IPC_RMID, 0);
    for (int index = 0; index < 2; index++) {
        waitpid(child[index], &status, 0);
        printf("%s ", name(WEXITSTATUS(status)));
    }
    printf("told that it is gone\n");
}

static void together(void) {
    enum { COUNT = 300 };
    int id = msgget(IPC_PRIVATE, IPC_CREAT | 0600), sum = 0, status;
    for (int child = 0; child < 3; child++) {
        if (fork() == 0) {
            struct {
                long type;
                int value;
            } message = {child + 1};
            for (int round = 0; round < COUNT; round++) {
                message.value = round;
                if (msgsnd(id, &message, sizeof message.value, 0)) _exit(1);
            }
            _exit(0);
        }
    }
    int next[4] = {0}, ordered = 1;
    for (int round = 0; round < 3 * COUNT; round++) {
        struct {
            long type;
            int value;
        } message;
        if (msgrcv(id, &message, sizeof message.value, 0, 0) != sizeof message.value) break;
        ordered &= next[message.type]++ == message.value;
        sum++;
    }
    while (wait(&status) > 0) {
    }
    printf("three senders: %d messages, in order %d, left %d\n", sum, ordered, (int)status_of(id).msg_qnum);
    msgctl(id, IPC_RMID, 0);
}

static void strangers(void) {
    if (getuid() != 0) return;
    int id = msgget(IPC_PRIVATE, IPC_CREAT | 0620);
    pid_t child = fork();
    if (child == 0) {
        setgid(12345);
        setuid(54321);
        struct msqid_ds status;
        SAY("stranger sends", put(id, 1, "x", 0));
        take(id, "stranger takes", 10, 0, IPC_NOWAIT);
        SAY("stranger looks", msgctl(id, IPC_STAT, &status));
        SAY("stranger removes", msgctl(id, IPC_RMID, 0));
        int own = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
        status = status_of(own);
        status.msg_qbytes = 20000;
        SAY("more than one may have", msgctl(own, IPC_SET, &status));
        msgctl(own, IPC_RMID, 0);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, 0, 0);
    msgctl(id, IPC_RMID, 0);
}

static void listed(void) {
    int id = msgget(IPC_PRIVATE, IPC_CREAT | 0600), found = 0;
    put(id, 1, "12345", 0);
    char line[400];
    FILE *file = fopen("/proc/sysvipc/msg", "r");
    fgets(line, sizeof line, file);
    printf("%s", line);
    while (fgets(line, sizeof line, file)) {
        int key, number, mode, bytes, count;
        sscanf(line, "%d %d %o %d %d", &key, &number, &mode, &bytes, &count);
        if (number == id) found = printf("mode %o bytes %d messages %d\n", mode, bytes, count);
    }
    fclose(file);
    struct msqid_ds status;
    printf("found %d, by index %d\n", found > 0, msgctl(id & 32767, MSG_STAT, &status) == id);
    msgctl(id, IPC_RMID, 0);
}

int main(void) {
    setvbuf(stdout, 0, _IOLBF, 0);
    keys();
    selecting();
    waiting();
    together();
    strangers();
    listed();
    return 0;
}
