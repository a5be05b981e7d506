// A crowd of processes that sleep, and what it costs those that do not.
//
// `crowd N`         N children sleep; with them there, programs are run, children are waited for, and pipes go round;
//                   then all of them end. Prints the same on every system that has so many.
// `crowd limit MIN` makes children until it is refused, which has to be with EAGAIN or ENOMEM and not before MIN; has
//                   one of them run another program; gives all up; and does it once more.
// `crowd user MIN`  as user 1000 with that many processes allowed: EAGAIN, and exactly then.
// `crowd cost N`    what fork and wait, a round through two pipes and a short sleep take beside 100 sleepers and N:
//                   "fork 100 NS N NS", and so on.
// `crowd threads N` N threads sleep, and end.
// `crowd bomb MS`   a child and all that comes from it fork without end, for so long; then all are killed, and twenty
//                   children sleep in their place; twice. Who is killed for want of memory is not this program.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int hold[2];
static int news[2];

// A child that sleeps until the pipe that all hold is closed. 0, or the error and `pid` as it was.
static int add(pid_t *pid)
{
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(hold[1]);
        if (write(news[1], "x", 1) != 1)
            _exit(2);
        while (read(hold[0], &byte, 1) < 0)
            ;
        _exit(0);
    }
    if (child < 0)
        return errno;
    *pid = child;
    return 0;
}

static void begin(void)
{
    if (pipe(hold) != 0 || pipe(news) != 0)
        exit(10);
}

// Until each of them sleeps.
static void settle(long count)
{
    char byte;
    for (long n = 0; n < count; n++)
        if (read(news[0], &byte, 1) != 1)
            exit(11);
}

// All end; how many that were.
static long finish(void)
{
    long count = 0;
    int status;
    close(hold[1]);
    while (wait(&status) > 0)
        count += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    close(hold[0]);
    close(news[0]);
    close(news[1]);
    return count;
}

static int run(char *word)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "crowd", "told", word, (char *)0);
        _exit(100 + errno);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
}

static long now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static long fork_ns(int count)
{
    int status;
    long begin_ns = now_ns();
    for (int n = 0; n < count; n++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(0);
        if (pid < 0 || waitpid(pid, &status, 0) != pid)
            exit(12);
    }
    return (now_ns() - begin_ns) / count;
}

static long round_ns(int count)
{
    int there[2], back[2], status;
    char byte = 'b';
    if (pipe(there) != 0 || pipe(back) != 0)
        exit(13);
    pid_t pid = fork();
    if (pid == 0) {
        for (int n = 0; n < count + 10; n++)
            if (read(there[0], &byte, 1) != 1 || write(back[1], &byte, 1) != 1)
                _exit(1);
        _exit(0);
    }
    long begin_ns = 0;
    for (int n = 0; n < count + 10; n++) {
        if (n == 10)
            begin_ns = now_ns();
        if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
            exit(14);
    }
    long took_ns = now_ns() - begin_ns;
    if (waitpid(pid, &status, 0) != pid || status != 0)
        exit(15);
    close(there[0]), close(there[1]), close(back[0]), close(back[1]);
    return took_ns / count;
}

// How much later than asked for.
static long sleep_ns(int count)
{
    long late_ns = 0;
    for (int n = 0; n < count; n++) {
        struct timespec time = {0, 200000};
        long begin_ns = now_ns();
        nanosleep(&time, 0);
        late_ns += now_ns() - begin_ns - 200000;
    }
    return late_ns / count;
}

static void cost(long count)
{
    long counts[2] = {100, count}, made = 0;
    long ns[3][2];
    pid_t pid;
    begin();
    for (int which = 0; which < 2; which++) {
        for (; made < counts[which]; made++)
            if (add(&pid) != 0)
                exit(16);
        settle(counts[which] - (which ? counts[0] : 0));
        fork_ns(50);
        ns[0][which] = fork_ns(100);
        ns[1][which] = round_ns(200);
        ns[2][which] = sleep_ns(50);
    }
    char *names[3] = {"fork", "round", "sleep"};
    for (int which = 0; which < 3; which++)
        printf("%s %ld %ld %ld %ld\n", names[which], counts[0], ns[which][0], counts[1], ns[which][1]);
    printf("ended %ld of %ld\n", finish(), made);
}

static void crowd(long count)
{
    pid_t pid;
    int status, error = 0;
    long made = 0;
    begin();
    for (; made < count && (error = add(&pid)) == 0; made++)
        ;
    settle(made);
    printf("made %ld: %s\n", made, error ? strerror(error) : "all");
    if (made == 0)
        exit(18);
    printf("a program beside them: %d\n", run("7"));
    // The last of them alone, and the rest.
    kill(pid, SIGKILL);
    printf("one is killed: %d\n", waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
    printf("a round: %d\n", round_ns(20) > 0);
    printf("ended %ld\n", finish());
}

enum { GIVEN_UP = 8 };

static long limit_once(long least, char *what)
{
    pid_t last[GIVEN_UP];
    int error;
    long made = 0;
    begin();
    while ((error = add(&last[made % GIVEN_UP])) == 0)
        made++;
    settle(made);
    int is_good = (error == EAGAIN || error == ENOMEM) && made >= least;
    fprintf(stderr, "%s: %ld, then %s\n", what, made, strerror(error));
    printf("%s: %s\n", what, is_good ? "refused as it may be" : "wrong");
    if (made < GIVEN_UP)
        exit(19);
    // Room for a program is there when some are gone.
    for (int n = 0; n < GIVEN_UP; n++) {
        kill(last[n], SIGKILL);
        waitpid(last[n], 0, 0);
    }
    // Memory of what was waited for may take a moment to come back.
    int code = run("9");
    for (int n = 0; n < 100 && code == -1; n++) {
        usleep(10000);
        code = run("9");
    }
    printf("%s: a program in their place: %d\n", what, code);
    long ended = finish();
    printf("%s: ended %s\n", what, ended == made - GIVEN_UP ? "all" : "not all");
    return made;
}

static void limit(long least)
{
    long first = limit_once(least, "first");
    long second = limit_once(least, "second");
    printf("as many: %s\n", second * 10 >= first * 9 ? "yes" : "no");
}

static void user(long least)
{
    struct rlimit rlimit = {least, least};
    if (setrlimit(RLIMIT_NPROC, &rlimit) != 0 || setgid(1000) != 0 || setuid(1000) != 0)
        exit(17);
    pid_t pid;
    for (int round = 0; round < 2; round++) {
        int error;
        long made = 0;
        begin();
        while ((error = add(&pid)) == 0)
            made++;
        settle(made);
        printf("%ld of its own, then %s\n", made + 1, strerror(error));
        printf("ended %ld\n", finish());
    }
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long asleep;
static int is_over;

static void *sleeper(void *unused)
{
    pthread_mutex_lock(&lock);
    asleep++;
    pthread_cond_broadcast(&changed);
    while (!is_over)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return unused;
}

static void threads(long count)
{
    static pthread_t thread[20000];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 16384 * 2);
    long made = 0;
    int error = 0;
    for (; made < count && (error = pthread_create(&thread[made], &small, sleeper, 0)) == 0; made++)
        ;
    printf("threads %ld: %s\n", made, error ? strerror(error) : "all");
    fflush(stdout);
    printf("a program beside them: %d\n", run("5"));
    pthread_mutex_lock(&lock);
    is_over = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    long joined = 0;
    while (joined < made && pthread_join(thread[joined], 0) == 0)
        joined++;
    printf("joined %ld\n", joined);
}

static void bomb(long for_ms)
{
    struct shmid_ds state;
    int segment = shmget(IPC_PRIVATE, 4096, 0600);
    if (segment < 0 || shmat(segment, 0, 0) == (void *)-1 || shmctl(segment, IPC_RMID, 0) != 0)
        exit(21);
    for (int round = 0; round < 2; round++) {
        int status;
        pid_t pid = fork();
        if (pid == 0) {
            setpgid(0, 0);
            while (fork() >= 0 || errno == EAGAIN || errno == ENOMEM)
                ;
            _exit(9);
        }
        if (pid < 0)
            exit(20);
        setpgid(pid, pid);
        usleep(for_ms * 1000);
        // What is forked while the group is gone through may be missed.
        while (kill(-pid, SIGKILL) == 0) {
            while (waitpid(-1, &status, WNOHANG) > 0)
                ;
            usleep(10000);
        }
        while (waitpid(-1, &status, WNOHANG) > 0)
            ;
        long made = 0;
        begin();
        for (int tries = 0; made < 20 && tries < 1000; tries++)
            if (add(&pid) == 0)
                made++;
            else
                usleep(10000);
        settle(made);
        long ended = finish();
        // Who was killed as it forked has attached nothing for a child that never was.
        if (shmctl(segment, IPC_STAT, &state) != 0)
            exit(22);
        printf("bomb: %ld in its place, ended %ld, attached %ld\n", made, ended, (long)state.shm_nattch);
    }
}

int main(int argc, char **argv)
{
    char *kind = argc > 1 ? argv[1] : "100";
    long count = argc > 2 ? atol(argv[2]) : 0;
    setvbuf(stdout, 0, _IOLBF, 0);
    if (strcmp(kind, "told") == 0)
        return count;
    else if (strcmp(kind, "limit") == 0)
        limit(count);
    else if (strcmp(kind, "user") == 0)
        user(count);
    else if (strcmp(kind, "cost") == 0)
        cost(count);
    else if (strcmp(kind, "threads") == 0)
        threads(count);
    else if (strcmp(kind, "bomb") == 0)
        bomb(count);
    else
        crowd(atol(kind));
    return 0;
}
