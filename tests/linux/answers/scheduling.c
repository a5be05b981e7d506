// Priorities, policies, processors and limits: what is taken, what is told, what is allowed.
#include "answers.h"
#include <sys/resource.h>
#define POLICY_DEADLINE 6

static void as_nobody(void) {
    if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
        _exit(90);
}

PROGRAM(niceness) {
    T(getpriority(PRIO_PROCESS, 0)), T(setpriority(PRIO_PROCESS, 0, 100)), T(getpriority(PRIO_PROCESS, 0)), T(setpriority(PRIO_PROCESS, 0, -100)), T(getpriority(PRIO_PROCESS, 0)), T(setpriority(PRIO_PROCESS, 0, 3));
    T(getpriority(9, 0)), T(setpriority(9, 0, 0)), T(getpriority(PRIO_PROCESS, 999999)), T(setpriority(PRIO_PROCESS, 999999, 0)), T(getpriority(PRIO_USER, 4242)), T(setpriority(PRIO_PGRP, 999999, 0)), T(getpriority(PRIO_PGRP, 0)), T(getpriority(PRIO_PROCESS, -1));
    T(nice(2)), T(nice(-3)), T(syscall(SYS_getpriority, PRIO_PROCESS, 0));
    CHILD("nobody", {
        as_nobody();
        T(getpriority(PRIO_PROCESS, 0)), T(nice(1)), T(nice(-1)), T(setpriority(PRIO_PROCESS, 0, 1)), T(setpriority(PRIO_PROCESS, getppid(), 5)), T(setpriority(PRIO_PROCESS, 0, 30)), T(getpriority(PRIO_PROCESS, 0));
        struct rlimit limit;
        getrlimit(RLIMIT_NICE, &limit), T(limit.rlim_cur), T(setpriority(PRIO_PROCESS, 0, 19));
    });
    CHILD("nobody with a limit", {
        struct rlimit limit = {30, 30};
        setrlimit(RLIMIT_NICE, &limit), as_nobody(), T(setpriority(PRIO_PROCESS, 0, -10)), T(setpriority(PRIO_PROCESS, 0, -11)), T(getpriority(PRIO_PROCESS, 0));
    });
}

PROGRAM(policies_told) {
    struct sched_param none = {0}, high = {5}, got;
    T(sched_getscheduler(0)), T(sched_getscheduler(-1)), T(sched_getscheduler(999999)), T(sched_getparam(0, NULL)), T(sched_getparam(-1, &got)), T(sched_getparam(999999, &got)), T(syscall(SYS_sched_getparam, 0, 8));
    T(sched_setscheduler(0, SCHED_OTHER, &high)), T(sched_setscheduler(0, 99, &none)), T(sched_setscheduler(0, -1, &none)), T(sched_setscheduler(-1, 0, &none)), T(sched_setscheduler(0, SCHED_OTHER, NULL)), T(sched_setscheduler(999999, SCHED_OTHER, &none));
    T(sched_setscheduler(0, SCHED_BATCH, &none)), T(sched_getscheduler(0)), T(sched_setparam(0, &none)), T(sched_setparam(0, &high)), T(sched_setparam(0, NULL)), T(sched_setparam(-1, &none)), T(sched_setscheduler(0, SCHED_BATCH | SCHED_RESET_ON_FORK, &none)), T(sched_getscheduler(0));
    CHILD("of one that resets", T(sched_getscheduler(0)));
    T(sched_setscheduler(0, SCHED_IDLE, &none)), T(sched_setscheduler(0, SCHED_OTHER, &none)), T(syscall(SYS_sched_setscheduler, 0, 0, 8)), T(sched_setscheduler(0, POLICY_DEADLINE, &none)), T(sched_setscheduler(0, SCHED_FIFO, &none)), T(sched_setscheduler(0, SCHED_RR, &(struct sched_param){100}));
    for (int policy = -1; policy < 7; policy++)
        T(sched_get_priority_max(policy)), T(sched_get_priority_min(policy));
    struct timespec time;
    T(sched_rr_get_interval(-1, &time)), T(sched_rr_get_interval(999999, &time)), T(syscall(SYS_sched_rr_get_interval, 0, 8));
    CHILD("nobody", {
        as_nobody();
        T(sched_setscheduler(0, SCHED_BATCH, &none)), T(sched_setscheduler(0, SCHED_IDLE, &none)), T(sched_setscheduler(0, SCHED_OTHER, &none)), T(sched_setscheduler(getppid(), SCHED_BATCH, &none)), T(sched_setparam(getppid(), &none)), T(sched_setscheduler(0, SCHED_FIFO, &high)), T(sched_getscheduler(getppid())), T(sched_setscheduler(0, SCHED_FIFO, &none));
    });
}

struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
    uint32_t least, most;
};
static long set_attributes(int who, void *attributes, int flags) { return syscall(SYS_sched_setattr, who, attributes, flags); }
static long get_attributes(int who, void *attributes, int size, int flags) { return syscall(SYS_sched_getattr, who, attributes, size, flags); }
PROGRAM(policies_by_attributes) {
    struct attributes wish = {.size = 48}, got;
    char large[200] = {200};
    T(set_attributes(0, NULL, 0)), T(set_attributes(0, &wish, 1)), T(set_attributes(-1, &wish, 0)), T(set_attributes(0, (void *)8, 0)), T(set_attributes(999999, &wish, 0)), T(set_attributes(0, &wish, 0));
    wish.size = 47, T(set_attributes(0, &wish, 0)), T(wish.size), wish.size = 0, T(set_attributes(0, &wish, 0)), wish.size = 5000, T(set_attributes(0, &wish, 0)), T(wish.size), large[150] = 1, T(set_attributes(0, large, 0)), wish.size = 48;
    wish.flags = 1ull << 40, T(set_attributes(0, &wish, 0)), wish.flags = 0, wish.policy = 77, T(set_attributes(0, &wish, 0)), wish.policy = 0, wish.priority = 3, T(set_attributes(0, &wish, 0)), wish.priority = 0, wish.nice = 50, T(set_attributes(0, &wish, 0)), T(getpriority(PRIO_PROCESS, 0));
    wish.nice = 4, T(set_attributes(0, &wish, 0)), T(get_attributes(0, &got, 48, 0)), T(got.size), T(got.nice), T(got.policy), T(get_attributes(0, &got, 47, 0)), T(get_attributes(0, &got, 5000, 0)), T(get_attributes(0, NULL, 48, 0)), T(get_attributes(-1, &got, 48, 0)), T(get_attributes(0, &got, 48, 1)), T(get_attributes(999999, &got, 48, 0)), T(get_attributes(0, (void *)8, 48, 0));
    wish.flags = 1, T(set_attributes(0, &wish, 0)), T(get_attributes(0, &got, 48, 0)), T(got.flags), T(sched_getscheduler(0)), wish.flags = 0, wish.policy = POLICY_DEADLINE, T(set_attributes(0, &wish, 0));
}

PROGRAM(processors_of_others) {
    cpu_set_t all, none, one;
    memset(&none, 0, sizeof none), memset(&one, 0, sizeof one);
    CPU_SET(0, &one);
    long bytes = syscall(SYS_sched_getaffinity, 0, sizeof all, &all);
    IS(bytes > 0 && bytes % 8 == 0), T(syscall(SYS_sched_getaffinity, 0, 3, &all)), T(syscall(SYS_sched_getaffinity, 0, 9, &all)), T(syscall(SYS_sched_getaffinity, 0, sizeof all, 8)), T(syscall(SYS_sched_getaffinity, 999999, sizeof all, &all)), T(syscall(SYS_sched_getaffinity, -1, sizeof all, &all));
    T(sched_setaffinity(0, sizeof none, &none)), T(syscall(SYS_sched_setaffinity, 0, 8, 8)), T(syscall(SYS_sched_setaffinity, 0, 0, &one)), T(syscall(SYS_sched_setaffinity, 0, 1, &one)), T(syscall(SYS_sched_setaffinity, 999999, 8, &one)), T(sched_setaffinity(0, sizeof one, &one)), T((sched_getaffinity(0, sizeof all, &all), CPU_COUNT(&all)));
    memset(&all, 255, sizeof all), T(sched_setaffinity(0, sizeof all, &all)), memset(&none, 0, sizeof none), none.__bits[15] = 1, T(sched_setaffinity(0, sizeof none, &none));
    CHILD("nobody", {
        as_nobody();
        T(sched_setaffinity(getppid(), sizeof one, &one)), T(sched_setaffinity(0, sizeof one, &one)), T(sched_getaffinity(getppid(), sizeof all, &all)), T(sched_setaffinity(1, sizeof one, &one));
    });
}

PROGRAM(limits_set) {
    struct rlimit got, low = {5, 4}, some = {100, 200};
    T(getrlimit(16, &got)), T(getrlimit(-1, &got)), T(setrlimit(16, &some)), T(setrlimit(RLIMIT_CORE, &low)), T(syscall(SYS_getrlimit, 0, 8)), T(syscall(SYS_setrlimit, 0, 8)), T(syscall(SYS_prlimit64, 0, 99, 0, &got)), T(syscall(SYS_prlimit64, 999999, 0, 0, &got)), T(syscall(SYS_prlimit64, 0, 0, 8, 0)), T(syscall(SYS_prlimit64, 0, 0, 0, 8)), T(syscall(SYS_prlimit64, -1, 0, 0, 0));
    T(setrlimit(RLIMIT_NOFILE, &some)), T((getrlimit(RLIMIT_NOFILE, &got), got.rlim_max)), some.rlim_cur = 0, T(setrlimit(RLIMIT_NOFILE, &some)), T(open("/dev/null", O_RDONLY)), T(dup(0)), some.rlim_cur = RLIM_INFINITY, some.rlim_max = RLIM_INFINITY, T(setrlimit(RLIMIT_NOFILE, &some)), some.rlim_cur = some.rlim_max = 1 << 21, T(setrlimit(RLIMIT_NOFILE, &some));
    for (int which = 0; which < 16; which++)
        T(getrlimit(which, &got));
    CHILD("nobody", {
        struct rlimit now;
        as_nobody();
        T((getrlimit(RLIMIT_CORE, &now), now.rlim_cur = 0, setrlimit(RLIMIT_CORE, &now))), now.rlim_max = 0, T(setrlimit(RLIMIT_CORE, &now)), now.rlim_max = 1, T(setrlimit(RLIMIT_CORE, &now)), T(prlimit(getppid(), RLIMIT_CORE, NULL, &now)), T(prlimit(getppid(), RLIMIT_CORE, &now, NULL)), T(prlimit(1, RLIMIT_CORE, NULL, &now)), T(prlimit(getpid(), RLIMIT_CORE, NULL, &now));
    });
}

PROGRAM(limits_felt) {
    CHILD("of a file's size", {
        struct rlimit limit = {1000, 2000};
        int fd = open("limited", O_CREAT | O_RDWR, 0600);
        char bytes[3000] = {0};
        setrlimit(RLIMIT_FSIZE, &limit), signal(SIGXFSZ, SIG_IGN);
        T(write(fd, bytes, 3000)), T(write(fd, bytes, 1)), T(pwrite(fd, bytes, 1, 5000)), T(ftruncate(fd, 1001)), T(ftruncate(fd, 1000)), T(pwrite(fd, bytes, 600, 500)), T(fallocate(fd, 0, 0, 3000)), T(truncate("limited", 99999));
        signal(SIGXFSZ, SIG_DFL), write(fd, bytes, 1);
    });
    CHILD("of locked memory", {
        struct rlimit limit = {8192, 8192};
        char *memory = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        setrlimit(RLIMIT_MEMLOCK, &limit), as_nobody();
        T(mlock(memory, 8192)), T(mlock(memory + 8192, 1)), T(mlock(memory, 8192)), T(munlock(memory, 4096)), T(mlock(memory + 8192, 1)), T(mlockall(MCL_CURRENT)), T(mlockall(MCL_FUTURE)), T((long)mmap(NULL, 65536, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0)), T(munlockall());
    });
    CHILD("of no locked memory", {
        struct rlimit limit = {0, 0};
        char *memory = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        setrlimit(RLIMIT_MEMLOCK, &limit), as_nobody(), T(mlock(memory, 1)), T(mlockall(MCL_CURRENT)), T(munlock(memory, 1)), T((long)mmap(NULL, 65536, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0));
    });
    CHILD("of data", {
        struct rlimit limit = {1 << 20, 1 << 20};
        setrlimit(RLIMIT_DATA, &limit);
        T((long)mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)), W((long)mmap(NULL, 4 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)), W((long)mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)), W((long)sbrk(4 << 20));
    });
    CHILD("of all memory", {
        struct rlimit limit = {64 << 20, 64 << 20};
        setrlimit(RLIMIT_AS, &limit);
        T((long)mmap(NULL, 128 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)), W((long)mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)), W((long)sbrk(128 << 20));
    });
    CHILD("of signals that wait", {
        struct rlimit limit = {3, 3};
        sigset_t set;
        sigemptyset(&set), sigaddset(&set, SIGRTMIN), sigaddset(&set, SIGUSR1), sigprocmask(SIG_BLOCK, &set, NULL);
        if (setresuid(54321, 54321, 54321))
            _exit(9);
        setrlimit(RLIMIT_SIGPENDING, &limit);
        union sigval value = {1};
        T(sigqueue(getpid(), SIGRTMIN, value)), T(sigqueue(getpid(), SIGRTMIN, value)), T(sigqueue(getpid(), SIGRTMIN, value)), T(sigqueue(getpid(), SIGRTMIN, value)), T(kill(getpid(), SIGRTMIN)), T(kill(getpid(), SIGUSR1)), T(sigqueue(getpid(), SIGUSR1, value));
    });
    CHILD("of processes", {
        struct rlimit limit = {1, 1};
        setrlimit(RLIMIT_NPROC, &limit);
        if (setresuid(54322, 54322, 54322))
            _exit(9);
        T(fork());
    });
}

PROGRAM(usage_refusals) {
    struct rusage usage;
    T(getrusage(RUSAGE_SELF, &usage)), T(getrusage(RUSAGE_CHILDREN, &usage)), T(getrusage(RUSAGE_THREAD, &usage)), T(getrusage(2, &usage)), T(getrusage(-2, &usage)), T(syscall(SYS_getrusage, 0, 8)), T(syscall(SYS_times, 8)), W(syscall(SYS_times, 0));
    T(syscall(SYS_getcpu, 8, 0, 0)), T(syscall(SYS_getcpu, 0, 8, 0)), T(syscall(SYS_getcpu, 0, 0, 8)), T(sched_yield()), T(syscall(SYS_ioprio_get, 9, 0)), T(syscall(SYS_ioprio_get, 1, 999999)), T(syscall(SYS_ioprio_set, 1, 0, 0xffff)), T(syscall(SYS_ioprio_set, 1, 999999, 2 << 13));
}
