/* Timers of timer_create, processor-time timers, capabilities, protection keys. Prints facts that are the same on every Linux. */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SAY(call) (errno = 0, say(#call, (long)(call)))
#define MS 1000000L

static void say(const char *call, long result) {
    printf("%s: %ld %s\n", call, result, result == -1 ? strerror(errno) : "");
}

/* What the kernel reads; C libraries differ in how they lay it out. */
struct event { union sigval value; int number, kind, tid, rest[11]; };
struct spec { struct timespec period, value; };

static volatile sig_atomic_t count, overruns, code, value, taker;
static int timer_create_raw(int clock, struct event *event, int *id) { return syscall(SYS_timer_create, clock, event, id); }
static int set(int id, int flags, struct spec *new, struct spec *old) { return syscall(SYS_timer_settime, id, flags, new, old); }
static int get(int id, struct spec *spec) { return syscall(SYS_timer_gettime, id, spec); }

static void on_signal(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    code = info->si_code, value = info->si_value.sival_int, overruns = info->si_overrun;
    taker = syscall(SYS_gettid);
    /* Last: its reader may be another thread, and reads the rest. */
    count++;
}

static void handle(int number) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO;
    sigaction(number, &action, 0);
}

static struct spec in(long value_ns, long period_ns) {
    struct spec spec = {{period_ns / 1000000000, period_ns % 1000000000}, {value_ns / 1000000000, value_ns % 1000000000}};
    return spec;
}

static void pass(long ns) {
    struct timespec now, end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += ns, end.tv_sec += end.tv_nsec / 1000000000, end.tv_nsec %= 1000000000;
    do {
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, 0);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
}

static void errors(void) {
    int id = -1;
    struct event event;
    struct spec spec = in(0, 0);
    memset(&event, 0, sizeof event);
    SAY(timer_create_raw(99, 0, &id));
    SAY(timer_create_raw(CLOCK_MONOTONIC_RAW, 0, &id));
    SAY(timer_create_raw(CLOCK_REALTIME_COARSE, 0, &id));
    SAY(timer_create_raw(CLOCK_MONOTONIC, 0, (int *)8));
    SAY(timer_create_raw(CLOCK_MONOTONIC, (struct event *)8, &id));
    event.number = 0, SAY(timer_create_raw(CLOCK_MONOTONIC, &event, &id));
    event.number = 65, SAY(timer_create_raw(CLOCK_MONOTONIC, &event, &id));
    event.number = SIGUSR1, event.kind = 3, SAY(timer_create_raw(CLOCK_MONOTONIC, &event, &id));
    event.kind = 4, event.tid = 1 << 30, SAY(timer_create_raw(CLOCK_MONOTONIC, &event, &id));
    SAY(set(77, 0, &spec, 0));
    SAY(set(77, 0, 0, 0));
    SAY(get(77, &spec));
    SAY(syscall(SYS_timer_getoverrun, 77));
    SAY(syscall(SYS_timer_delete, 77));
    event.kind = 1, event.number = 0;
    SAY(timer_create_raw(CLOCK_REALTIME, &event, &id));
    spec.value.tv_nsec = 1000000000, SAY(set(id, 0, &spec, 0));
    spec.value.tv_nsec = 0, spec.period.tv_sec = -1, SAY(set(id, 0, &spec, 0));
    SAY(set(id, 0, (struct spec *)8, 0));
    spec = in(1, 0), SAY(set(id, 0, &spec, (struct spec *)8));
    SAY(get(id, (struct spec *)8));
    SAY(syscall(SYS_timer_delete, id));
    SAY(syscall(SYS_timer_delete, id));
}

static void once_and_again(int clock) {
    int id;
    struct event event;
    struct spec spec, old;
    memset(&event, 0, sizeof event);
    event.number = SIGRTMIN + 3, event.value.sival_int = 4711;
    handle(event.number);
    count = 0;
    printf("create %d\n", timer_create_raw(clock, &event, &id));
    SAY(get(id, &old));
    printf("off %ld %ld\n", (long)old.value.tv_sec, old.value.tv_nsec);
    spec = in(2 * MS, 0);
    SAY(set(id, 0, &spec, 0));
    while (!count) pass(MS);
    printf("once: count %d code %d value %d overruns %d\n", count, code, value, overruns);
    SAY(get(id, &old));
    printf("over %ld %ld\n", (long)old.value.tv_sec, old.value.tv_nsec);
    spec = in(3600000 * MS, 5000 * MS);
    SAY(set(id, 0, &spec, 0));
    SAY(set(id, 0, &spec, &old));
    printf("long %d %ld\n", old.value.tv_sec > 3000 && old.value.tv_sec < 3600, (long)old.period.tv_sec);
    spec = in(0, 0), count = 0;
    SAY(set(id, 0, &spec, &old));
    /* An absolute time that is past. */
    spec = in(5, 0);
    SAY(set(id, TIMER_ABSTIME, &spec, 0));
    while (!count) pass(MS);
    printf("past: count %d\n", count);
    SAY(syscall(SYS_timer_delete, id));
}

static void missed(void) {
    int id;
    struct event event;
    struct spec spec;
    sigset_t mask;
    memset(&event, 0, sizeof event);
    event.number = SIGUSR2;
    handle(event.number);
    sigemptyset(&mask), sigaddset(&mask, SIGUSR2), sigprocmask(SIG_BLOCK, &mask, 0);
    timer_create_raw(CLOCK_MONOTONIC, &event, &id);
    spec = in(MS, MS), count = 0;
    set(id, 0, &spec, 0);
    pass(20 * MS);
    printf("blocked: count %d\n", count);
    struct timespec zero = {0, 0};
    siginfo_t info;
    int taken = sigtimedwait(&mask, &info, &zero);
    printf("taken %d code %d value %d overruns %d same %d\n", taken == SIGUSR2, info.si_code, info.si_value.sival_int == 0,
           info.si_overrun >= 15, info.si_overrun == syscall(SYS_timer_getoverrun, id));
    pass(20 * MS);
    int fd = signalfd(-1, &mask, 0);
    struct signalfd_siginfo from;
    long bytes = read(fd, &from, sizeof from);
    printf("signalfd %ld code %d timer %d overruns %d\n", bytes, from.ssi_code, (int)from.ssi_tid == id, from.ssi_overrun >= 15);
    close(fd);
    sigprocmask(SIG_UNBLOCK, &mask, 0);
    while (count < 5) pass(MS);
    printf("goes on: code %d\n", code);
    signal(SIGUSR2, SIG_IGN), pass(5 * MS), handle(SIGUSR2), count = 0;
    while (count < 3) pass(MS);
    printf("goes on after being ignored\n");
    spec = in(0, 0), set(id, 0, &spec, 0);
    pass(5 * MS), count = 0, pass(5 * MS);
    printf("off: count %d overrun %ld\n", count, syscall(SYS_timer_getoverrun, id));
    SAY(syscall(SYS_timer_delete, id));
}

static volatile int thread_tid, done;
static void *threaded(void *unused) {
    (void)unused;
    thread_tid = syscall(SYS_gettid);
    while (!done) pass(MS);
    return 0;
}

static void to_a_thread(void) {
    pthread_t thread;
    int id;
    struct event event;
    struct spec spec = in(MS, 0);
    pthread_create(&thread, 0, threaded, 0);
    while (!thread_tid) pass(MS);
    memset(&event, 0, sizeof event);
    event.number = SIGUSR1, event.kind = 4, event.tid = thread_tid;
    handle(SIGUSR1), count = 0, taker = 0;
    SAY(timer_create_raw(CLOCK_MONOTONIC, &event, &id));
    set(id, 0, &spec, 0);
    while (!count) pass(MS);
    printf("to the thread %d\n", taker == thread_tid);
    done = 1, pthread_join(thread, 0);
    SAY(syscall(SYS_timer_delete, id));
}

static void across_fork_and_exec(const char *self) {
    int id;
    struct event event;
    struct spec spec = in(3600000 * MS, 0);
    memset(&event, 0, sizeof event);
    event.kind = 1;
    timer_create_raw(CLOCK_MONOTONIC, &event, &id);
    set(id, 0, &spec, 0);
    fflush(stdout);
    if (!fork()) {
        SAY(get(id, &spec));
        exit(0);
    }
    wait(0);
    char text[16];
    sprintf(text, "%d", id);
    if (!fork()) {
        timer_create_raw(CLOCK_MONOTONIC, &event, &id);
        sprintf(text, "%d", id);
        execl(self, self, "get", text, (char *)0);
    }
    wait(0);
    SAY(get(id, &spec));
    SAY(syscall(SYS_timer_delete, id));
}

static void processor_time(void) {
    int id, which;
    struct event event;
    struct spec spec = in(10 * MS, 0);
    memset(&event, 0, sizeof event);
    event.number = SIGUSR1;
    handle(SIGUSR1), handle(SIGVTALRM), handle(SIGPROF);
    for (int clock = CLOCK_PROCESS_CPUTIME_ID; clock <= CLOCK_THREAD_CPUTIME_ID; clock++) {
        SAY(timer_create_raw(clock, &event, &id));
        count = 0, SAY(set(id, 0, &spec, 0));
        while (!count) ;
        printf("processor time is up, code %d\n", code);
        SAY(syscall(SYS_timer_delete, id));
    }
    for (which = ITIMER_VIRTUAL; which <= ITIMER_PROF; which++) {
        struct itimerval timer = {{0, 0}, {0, 10000}}, old = {{9, 9}, {9, 9}};
        count = 0;
        SAY(getitimer(which, &old));
        printf("off %ld %ld\n", (long)old.it_value.tv_sec, (long)old.it_value.tv_usec);
        SAY(setitimer(which, &timer, 0));
        while (!count) getppid();
        printf("interval is up, code %d\n", code);
    }
    SAY(setitimer(3, 0, 0));
}

static void keys(void) {
    char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SAY(syscall(SYS_pkey_alloc, 1, 0));
    SAY(syscall(SYS_pkey_alloc, 0, 4));
    SAY(syscall(SYS_pkey_free, 5));
    SAY(syscall(SYS_pkey_free, -1));
    SAY(syscall(SYS_pkey_mprotect, page, 4096, PROT_READ, -1));
    SAY(syscall(SYS_pkey_mprotect, page, 4096, PROT_READ, 99));
    SAY(syscall(SYS_pkey_mprotect, page + 1, 4096, PROT_READ, -1));
    SAY(syscall(SYS_pkey_mprotect, page, 0, PROT_READ, 99));
}

struct header { uint32_t version; int pid; };
struct sets { uint32_t effective, permitted, inheritable; };
#define VERSION_3 0x20080522

static int capget(void *header, void *sets) { return syscall(SYS_capget, header, sets); }
static int capset(void *header, void *sets) { return syscall(SYS_capset, header, sets); }

static void capabilities(void) {
    struct header header = {0, 0};
    struct sets sets[2], before[2];
    SAY(capget(&header, 0));
    printf("version %x\n", header.version);
    header.version = 7, SAY(capget(&header, sets));
    header.version = 7, SAY(capset(&header, sets));
    SAY(capget((void *)8, 0));
    SAY(capget(&header, (void *)8));
    header.pid = -1, SAY(capget(&header, sets));
    header.pid = 1 << 30, SAY(capget(&header, sets));
    SAY(capset(&header, sets));
    header.pid = 0, SAY(capget(&header, before));
    SAY(capset(&header, (void *)8));
    SAY(capset(&header, before));
    fflush(stdout);
    if (!fork()) {
        int is_root = geteuid() == 0;
        memset(sets, 0, sizeof sets);
        sets[0].effective = 1;
        SAY(capset(&header, sets));
        sets[0].effective = 0, sets[1].inheritable = 0;
        SAY(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 0, 0, 0));
        SAY(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, 0, 0, 0));
        SAY(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, 99, 0, 0));
        SAY(prctl(PR_CAP_AMBIENT, 9, 0, 0, 0));
        SAY(prctl(PR_SET_KEEPCAPS, 2, 0, 0, 0));
        SAY(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0));
        SAY(prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0));
        SAY(prctl(PR_CAPBSET_READ, 41, 0, 0, 0));
        SAY(capset(&header, sets));
        SAY(capget(&header, sets));
        printf("none left %d\n", !sets[0].effective && !sets[0].permitted && !sets[1].permitted);
        SAY(capset(&header, sets));
        sets[0].permitted = 1 << 5, SAY(capset(&header, sets));
        SAY(prctl(PR_CAPBSET_DROP, 5, 0, 0, 0));
        SAY(prctl(PR_SET_SECUREBITS, 0, 0, 0, 0));
        if (is_root) {
            SAY(setuid(77));
            SAY(setgroups(0, 0));
        }
        exit(0);
    }
    wait(0);
}

int main(int argument_count, char **arguments) {
    if (argument_count == 3) {
        struct spec spec;
        SAY(get(atoi(arguments[2]), &spec));
        return 0;
    }
    errors();
    once_and_again(CLOCK_MONOTONIC);
    once_and_again(CLOCK_REALTIME);
    once_and_again(CLOCK_BOOTTIME);
    missed();
    to_a_thread();
    across_fork_and_exec(arguments[0]);
    processor_time();
    keys();
    capabilities();
    return 0;
}
