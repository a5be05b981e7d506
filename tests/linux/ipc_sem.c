/* System V semaphores: operations, waiting, undoing, removing. Prints the same on every Linux. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int failed(long result) { return result == -1 ? errno : 0; }
static const char *name(int error) { return error ? strerrorname_np(error) : "ok"; }
#define SAY(what, call) printf("%s: %s\n", what, name(failed((long)(call))))

union semun {
    int val;
    void *buf;
    unsigned short *array;
};

static int change(int id, int number, int by, int flags) {
    struct sembuf operation = {number, by, flags};
    return semop(id, &operation, 1);
}
static int ask(int id, int number, int command) { return semctl(id, number, command); }
static int value(int id, int number) { return ask(id, number, GETVAL); }
static int set(int id, int number, int to) { return semctl(id, number, SETVAL, (union semun){.val = to}); }

/* Until so many wait. */
static void until_waiting(int id, int number, int command, int count) {
    while (ask(id, number, command) != count) usleep(1000);
}

static void keys(void) {
    key_t key = 0x52000000 ^ (getpid() << 6);
    SAY("get of nothing", semget(key, 1, 0600));
    SAY("empty", semget(key, 0, IPC_CREAT | 0600));
    SAY("too many", semget(key, 40000, IPC_CREAT | 0600));
    SAY("negative", semget(key, -1, IPC_CREAT | 0600));
    int id = semget(key, 3, IPC_CREAT | 0640);
    SAY("make", id);
    printf("same by key: %d\n", semget(key, 0, 0) == id && semget(key, 3, IPC_CREAT) == id);
    SAY("exclusive", semget(key, 3, IPC_CREAT | IPC_EXCL));
    SAY("more", semget(key, 4, 0));
    struct semid_ds status;
    SAY("status", semctl(id, 0, IPC_STAT, (union semun){.buf = &status}));
    printf("semaphores %d mode %o key %d otime %d ctime %d\n", (int)status.sem_nsems, status.sem_perm.mode,
           status.sem_perm.__key == key, status.sem_otime != 0, status.sem_ctime != 0);
    status.sem_perm.mode = 0606;
    SAY("set", semctl(id, 0, IPC_SET, (union semun){.buf = &status}));
    SAY("value beyond", set(id, 3, 1));
    SAY("value too large", set(id, 0, 32768));
    SAY("value negative", set(id, 0, -1));
    SAY("value", set(id, 0, 32767));
    SAY("over the top", change(id, 0, 1, 0));
    printf("changed by me %d, others %d\n", ask(id, 0, GETPID) == getpid(), ask(id, 1, GETPID));
    SAY("bad number", ask(id, 3, GETVAL));
    SAY("negative number", ask(id, -1, GETVAL));
    SAY("bad command", semctl(id, 0, 99));
    unsigned short all[3] = {5, 6, 7};
    SAY("set all", semctl(id, 0, SETALL, (union semun){.array = all}));
    memset(all, 0, sizeof all);
    SAY("get all", semctl(id, 0, GETALL, (union semun){.array = all}));
    printf("%d %d %d\n", all[0], all[1], all[2]);
    all[1] = 40000;
    SAY("set all too large", semctl(id, 0, SETALL, (union semun){.array = all}));
    SAY("set all from nowhere", semctl(id, 0, SETALL, (union semun){.buf = (void *)8}));
    printf("%d %d %d\n", value(id, 0), value(id, 1), value(id, 2));
    struct seminfo info;
    printf("info %d\n", semctl(0, 0, IPC_INFO, (union semun){.buf = &info}) >= 0);
    printf("operations %d values %d\n", info.semopm, info.semvmx);
    SAY("remove", semctl(id, 0, IPC_RMID));
    SAY("removed twice", semctl(id, 0, IPC_RMID));
    SAY("operate on nothing", change(id, 0, 1, 0));
}

static void operations(void) {
    int id = semget(IPC_PRIVATE, 600, IPC_CREAT | 0600);
    struct sembuf many[501];
    for (int index = 0; index < 501; index++) many[index] = (struct sembuf){index, 1, 0};
    SAY("none", semop(id, many, 0));
    SAY("five hundred", semop(id, many, 500));
    SAY("one more", semop(id, many, 501));
    SAY("from nowhere", semop(id, (void *)8, 1));
    SAY("negative id", semop(-5, many, 1));
    printf("first %d last %d next %d\n", value(id, 0), value(id, 499), value(id, 500));
    SAY("beyond", change(id, 600, 1, 0));
    SAY("would wait", change(id, 500, -1, IPC_NOWAIT));
    SAY("zero would wait", change(id, 0, 0, IPC_NOWAIT));
    SAY("zero", change(id, 500, 0, IPC_NOWAIT));
    struct sembuf mixed[4] = {{0, -1, 0}, {1, -1, 0}, {0, 0, IPC_NOWAIT}, {500, -1, IPC_NOWAIT}};
    SAY("all or nothing", semop(id, mixed, 4));
    printf("%d %d\n", value(id, 0), value(id, 1));
    SAY("without the last", semop(id, mixed, 3));
    printf("%d %d\n", value(id, 0), value(id, 1));
    struct sembuf same[3] = {{0, 3, 0}, {0, -2, 0}, {0, -1, 0}};
    SAY("one three times", semop(id, same, 3));
    set(id, 0, 32767);
    struct sembuf round[2] = {{0, 1, 0}, {0, -1, 0}};
    SAY("over the top on the way", semop(id, round, 2));
    struct timespec soon = {0, 20000000}, bad = {0, 1000000000}, past = {-1, 0};
    SAY("in time", semtimedop(id, &(struct sembuf){500, -1, 0}, 1, &soon));
    SAY("bad time", semtimedop(id, &(struct sembuf){500, -1, 0}, 1, &bad));
    SAY("negative time", semtimedop(id, &(struct sembuf){500, -1, 0}, 1, &past));
    printf("nobody waits %d %d\n", ask(id, 500, GETNCNT), ask(id, 500, GETZCNT));
    semctl(id, 0, IPC_RMID);
}

static void handler(int signal) { (void)signal; }

static void waiting(void) {
    int id = semget(IPC_PRIVATE, 3, IPC_CREAT | 0600), status, order = 0;
    pid_t child[4];
    /* First come, first served: each leaves its mark in the second semaphore. */
    for (int index = 0; index < 3; index++) {
        child[index] = fork();
        if (child[index] == 0) _exit(change(id, 0, -1, 0) ? 99 : change(id, 1, 1, 0) ? 98 : value(id, 1));
        until_waiting(id, 0, GETNCNT, index + 1);
    }
    for (int index = 0; index < 3; index++) {
        change(id, 0, 1, 0);
        waitpid(child[index], &status, 0);
        order = order * 10 + WEXITSTATUS(status);
    }
    printf("in order %d\n", order);
    /* A large wish is not overtaken on the way, a small one goes first. */
    child[0] = fork();
    if (child[0] == 0) _exit(change(id, 0, -3, 0) != 0);
    until_waiting(id, 0, GETNCNT, 1);
    child[1] = fork();
    if (child[1] == 0) _exit(change(id, 0, -1, 0) != 0);
    until_waiting(id, 0, GETNCNT, 2);
    change(id, 0, 1, 0);
    waitpid(child[1], &status, 0);
    printf("small one %d, waiting %d\n", WEXITSTATUS(status), ask(id, 0, GETNCNT));
    change(id, 0, 5, 0);
    waitpid(child[0], &status, 0);
    printf("large one %d, left %d\n", WEXITSTATUS(status), value(id, 0));
    /* For zero. */
    child[0] = fork();
    if (child[0] == 0) _exit(change(id, 0, 0, 0) != 0);
    until_waiting(id, 0, GETZCNT, 1);
    change(id, 0, -2, 0);
    waitpid(child[0], &status, 0);
    printf("zero %d\n", WEXITSTATUS(status));
    /* Several at once: it waits for the one that blocks. */
    child[0] = fork();
    if (child[0] == 0) {
        struct sembuf both[2] = {{0, -1, 0}, {2, -1, 0}};
        _exit(semop(id, both, 2) != 0);
    }
    until_waiting(id, 0, GETNCNT, 1);
    set(id, 0, 1);
    until_waiting(id, 2, GETNCNT, 1);
    printf("blocked by the other: %d %d, value %d\n", ask(id, 0, GETNCNT), ask(id, 2, GETNCNT), value(id, 0));
    set(id, 2, 1);
    waitpid(child[0], &status, 0);
    printf("both %d: %d %d\n", WEXITSTATUS(status), value(id, 0), value(id, 2));
    /* A signal interrupts, whatever its handler asks for; a kill takes the wish away. */
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, 0);
    child[0] = fork();
    if (child[0] == 0) _exit(change(id, 0, -1, 0) == 0 ? 0 : errno == EINTR ? 4 : 5);
    until_waiting(id, 0, GETNCNT, 1);
    kill(child[0], SIGUSR1);
    waitpid(child[0], &status, 0);
    printf("interrupted %d, waiting %d\n", WEXITSTATUS(status), ask(id, 0, GETNCNT));
    child[0] = fork();
    if (child[0] == 0) _exit(change(id, 0, -1, 0));
    until_waiting(id, 0, GETNCNT, 1);
    kill(child[0], SIGKILL);
    waitpid(child[0], &status, 0);
    change(id, 0, 1, 0);
    printf("killed %d, waiting %d, value %d\n", WTERMSIG(status), ask(id, 0, GETNCNT), value(id, 0));
    /* Removed while they wait. */
    for (int index = 0; index < 4; index++) {
        child[index] = fork();
        if (child[index] == 0) _exit(change(id, 2, index % 2 ? -1 : -2, 0) == 0 ? 0 : errno == EIDRM ? 43 : 5);
        until_waiting(id, 2, GETNCNT, index + 1);
    }
    semctl(id, 0, IPC_RMID);
    for (int index = 0; index < 4; index++) {
        waitpid(child[index], &status, 0);
        printf("%d ", WEXITSTATUS(status));
    }
    printf("told that it is gone\n");
}

static void undoing(void) {
    int id = semget(IPC_PRIVATE, 3, IPC_CREAT | 0600), status;
    set(id, 0, 5);
    pid_t child = fork();
    if (child == 0) {
        change(id, 0, -3, SEM_UNDO);
        change(id, 1, 4, SEM_UNDO);
        change(id, 2, 1, 0);
        printf("in the child %d %d %d\n", value(id, 0), value(id, 1), value(id, 2));
        fflush(stdout);
        if (fork() == 0) _exit(0);
        wait(0);
        raise(SIGKILL);
    }
    waitpid(child, &status, 0);
    printf("after it %d %d %d\n", value(id, 0), value(id, 1), value(id, 2));
    child = fork();
    if (child == 0) {
        change(id, 1, 4, SEM_UNDO);
        change(id, 0, -1, SEM_UNDO);
        set(id, 0, 9);
        _exit(change(id, 1, -3, 0));
    }
    waitpid(child, &status, 0);
    printf("set forgets, less than zero is zero: %d %d\n", value(id, 0), value(id, 1));
    child = fork();
    if (child == 0) {
        int error = 0;
        for (int index = 0; index < 3; index++) {
            set(id, 2, 0);
            error = failed(change(id, 2, 20000, SEM_UNDO)) ? errno : 0;
            change(id, 2, -20000, 0);
            if (error) break;
        }
        /* `set` clears what is to be undone, so only a plain change keeps adding up. */
        for (int index = 0; index < 3 && !error; index++) {
            error = failed(change(id, 2, 20000, SEM_UNDO));
            change(id, 2, -20000, IPC_NOWAIT);
        }
        printf("too much to undo: %s\n", name(error));
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, &status, 0);
    printf("left %d\n", value(id, 2));
    set(id, 0, 0);
    child = fork();
    if (child == 0) {
        change(id, 0, 1, SEM_UNDO);
        until_waiting(id, 0, GETZCNT, 1);
        _exit(0);
    }
    while (value(id, 0) != 1) usleep(1000);
    SAY("its end wakes who waits for zero", change(id, 0, 0, 0));
    waitpid(child, &status, 0);
    child = fork();
    if (child == 0) {
        char number[20];
        sprintf(number, "%d", id);
        change(id, 0, 7, SEM_UNDO);
        execl("/proc/self/exe", "ipc_sem", "look", number, NULL);
        _exit(1);
    }
    waitpid(child, &status, 0);
    printf("after exec and exit %d\n", value(id, 0));
    semctl(id, 0, IPC_RMID);
}

static void *add(void *argument) {
    int id = *(int *)argument;
    for (int round = 0; round < 500; round++) {
        change(id, 0, -1, SEM_UNDO);
        set(id, 1, value(id, 1) + 1);
        change(id, 0, 1, SEM_UNDO);
    }
    return 0;
}

static void together(void) {
    int id = semget(IPC_PRIVATE, 2, IPC_CREAT | 0600);
    set(id, 0, 1);
    pthread_t threads[3];
    for (int index = 0; index < 3; index++) pthread_create(&threads[index], 0, add, &id);
    pid_t child = fork();
    if (child == 0) {
        add(&id);
        _exit(0);
    }
    for (int index = 0; index < 3; index++) pthread_join(threads[index], 0);
    waitpid(child, 0, 0);
    printf("three threads and a process: %d, lock %d\n", value(id, 1), value(id, 0));
    semctl(id, 0, IPC_RMID);
}

static void strangers(void) {
    if (getuid() != 0) return;
    int id = semget(IPC_PRIVATE, 1, IPC_CREAT | 0604);
    pid_t child = fork();
    if (child == 0) {
        setgid(12345);
        setuid(54321);
        SAY("stranger changes", change(id, 0, 1, 0));
        SAY("stranger waits for zero", change(id, 0, 0, 0));
        SAY("stranger looks", value(id, 0));
        SAY("stranger sets", set(id, 0, 1));
        SAY("stranger removes", semctl(id, 0, IPC_RMID));
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, 0, 0);
    semctl(id, 0, IPC_RMID);
}

static void listed(void) {
    int id = semget(IPC_PRIVATE, 7, IPC_CREAT | 0600), found = 0;
    char line[400];
    FILE *file = fopen("/proc/sysvipc/sem", "r");
    fgets(line, sizeof line, file);
    printf("%s", line);
    while (fgets(line, sizeof line, file)) {
        int key, number, mode, count;
        sscanf(line, "%d %d %o %d", &key, &number, &mode, &count);
        if (number == id) found = printf("mode %o semaphores %d columns %d\n", mode, count, (int)strlen(line));
    }
    fclose(file);
    struct semid_ds status;
    printf("found %d, by index %d\n", found > 0, semctl(id & 32767, 0, SEM_STAT, (union semun){.buf = &status}) == id);
    semctl(id, 0, IPC_RMID);
}

int main(int argc, char **argv) {
    if (argc == 3) {
        printf("after exec %d\n", value(atoi(argv[2]), 0));
        return 0;
    }
    setvbuf(stdout, 0, _IOLBF, 0);
    keys();
    operations();
    waiting();
    undoing();
    together();
    strangers();
    listed();
    return 0;
}
