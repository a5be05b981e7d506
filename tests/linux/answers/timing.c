// Clocks and timers: what they tell, when they refuse, what is left of them.
#include "answers.h"
#include <sys/timerfd.h>
#include <sys/timex.h>
#include <sys/times.h>

static volatile int count;
static void note(int number) { count++; }
#define US(...) (&(struct itimerval){__VA_ARGS__})
#define NS(...) (&(struct itimerspec){__VA_ARGS__})

PROGRAM(interval_timers) {
    struct itimerval got;
    signal(SIGALRM, note);
    T(setitimer(ITIMER_REAL, US({0, 0}, {100, 5}), NULL)), T(getitimer(ITIMER_REAL, &got)), IS(got.it_value.tv_sec >= 99), T(got.it_interval.tv_sec), T(setitimer(ITIMER_REAL, US({7, 8}, {0, 0}), &got)), IS(got.it_value.tv_sec >= 99), T((getitimer(ITIMER_REAL, &got), got.it_value.tv_sec)), T(got.it_interval.tv_sec);
    T(setitimer(ITIMER_REAL, US({0, 0}, {-1, 0}), NULL)), T(setitimer(ITIMER_REAL, US({0, -1}, {0, 0}), NULL)), T(setitimer(ITIMER_REAL, US({0, 1000000}, {1, 0}), NULL)), T(setitimer(-1, US({0}), NULL)), T(setitimer(3, US({0}), NULL)), T(getitimer(3, &got)), T(setitimer(ITIMER_REAL, NULL, &got));
    T(setitimer(ITIMER_REAL, US({0, 0}, {0, 1000}), NULL));
    while (!count)
        pause_ms(1);
    T(count), T((getitimer(ITIMER_REAL, &got), got.it_value.tv_sec + got.it_value.tv_usec)), count = 0, setitimer(ITIMER_REAL, US({0, 2000}, {0, 2000}), NULL);
    while (count < 3)
        pause_ms(1);
    T(setitimer(ITIMER_REAL, US({0}), &got)), T(got.it_interval.tv_usec), T(alarm(50)), T(alarm(0)), T(alarm(0)), setitimer(ITIMER_REAL, US({0, 0}, {5, 600000}), NULL), T(alarm(0)), setitimer(ITIMER_REAL, US({0, 0}, {0, 300000}), NULL), T(alarm(9)), T(alarm(0xffffffff)), IS(alarm(0) > 1000);
    CHILD("a child has none", { setitimer(ITIMER_REAL, US({0, 0}, {90, 0}), NULL); if (fork() == 0) { getitimer(ITIMER_REAL, &got), T(got.it_value.tv_sec); _exit(0); } wait(NULL); });
}

PROGRAM(sleeps_refused) {
    struct timespec left = {7, 7};
    T(clock_nanosleep(-1, 0, &(struct timespec){0, 1}, NULL)), T(clock_nanosleep(12, 0, &(struct timespec){0, 1}, NULL)), T(clock_nanosleep(CLOCK_MONOTONIC_RAW, 0, &(struct timespec){0, 1}, NULL)), T(clock_nanosleep(CLOCK_REALTIME_COARSE, 0, &(struct timespec){0, 1}, NULL)), T(clock_nanosleep(CLOCK_BOOTTIME, 0, &(struct timespec){0, 1}, NULL)), T(clock_nanosleep(CLOCK_TAI, 0, &(struct timespec){0, 1}, NULL));
    T(clock_nanosleep(CLOCK_MONOTONIC, 7, &(struct timespec){0, 1}, NULL)), T(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &(struct timespec){0, 1}, &left)), T(left.tv_sec), T(syscall(SYS_clock_nanosleep, 1, 0, 8, 0)), T(syscall(SYS_nanosleep, &(struct timespec){0, 1}, 8)), T(syscall(SYS_nanosleep, &(struct timespec){0, -1}, 0)), T(syscall(SYS_nanosleep, &(struct timespec){0, 0}, 0)), T(clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){-1, 0}, NULL));
}

PROGRAM(clocks_told) {
    struct timespec now, other;
    for (int clock = -1; clock < 14; clock++)
        if (clock != 8 && clock != 9)
            printf("%d\n", clock), T(clock_gettime(clock, &now)), T(clock_getres(clock, &now));
    T(clock_getres(CLOCK_MONOTONIC, &now)), T(now.tv_sec), T(now.tv_nsec), T(clock_getres(CLOCK_PROCESS_CPUTIME_ID, &now)), T(now.tv_nsec), T(syscall(SYS_clock_getres, 1, 8)), T(syscall(SYS_clock_gettime, 1, 8)), T(syscall(SYS_clock_gettime, -6, &now)), T(syscall(SYS_clock_gettime, -2, &now)), T(syscall(SYS_clock_gettime, (~999999 << 3) | 2, &now)), T(syscall(SYS_clock_gettime, (~getppid() << 3) | 2, &now)), T(syscall(SYS_clock_getres, (~getppid() << 3) | 2, &now)), T(syscall(SYS_clock_gettime, (~getppid() << 3) | 6, &now)), T(syscall(SYS_clock_gettime, (~getpid() << 3) | 6, &now)), T(syscall(SYS_clock_gettime, (~99 << 3) | 3, &now));
    clockid_t clock;
    T(clock_getcpuclockid(getpid(), &clock)), T(clock_getcpuclockid(999999, &clock)), T(clock_getcpuclockid(0, &clock)), T(clock_settime(CLOCK_BOOTTIME, &now)), T(clock_settime(CLOCK_MONOTONIC_RAW, &now)), T(clock_settime(CLOCK_TAI, &now)), T(clock_settime(CLOCK_PROCESS_CPUTIME_ID, &now)), T(clock_settime(CLOCK_THREAD_CPUTIME_ID, &now)), T(clock_settime(CLOCK_REALTIME, &(struct timespec){-1, 0})), T(clock_settime(CLOCK_REALTIME, &(struct timespec){0, -1})), T(syscall(SYS_clock_settime, 0, 8)), T(clock_settime(CLOCK_REALTIME_COARSE, &now));
    clock_gettime(CLOCK_REALTIME, &now), clock_gettime(CLOCK_TAI, &other), IS(other.tv_sec - now.tv_sec <= 1), clock_gettime(CLOCK_MONOTONIC, &now), clock_gettime(CLOCK_BOOTTIME, &other), IS(other.tv_sec >= now.tv_sec), clock_gettime(CLOCK_MONOTONIC_COARSE, &other), IS(other.tv_sec - now.tv_sec <= 1);
    CHILD("nobody", (setuid(5), clock_gettime(CLOCK_REALTIME, &now), T(clock_settime(CLOCK_REALTIME, &now)), T(settimeofday(NULL, &(struct timezone){0, 0})), T(syscall(SYS_settimeofday, 0, 0)), T(syscall(SYS_settimeofday, 8, 0)), T(syscall(SYS_clock_settime, 0, 8)), T(clock_settime(CLOCK_REALTIME, &(struct timespec){0, -1}))));
    struct timezone zone = {7, 7};
    T(syscall(SYS_gettimeofday, 0, 0)), T(syscall(SYS_gettimeofday, 0, &zone)), T(zone.tz_minuteswest), T(syscall(SYS_gettimeofday, 0, 8)), T(settimeofday(NULL, &(struct timezone){9999, 0})), T(syscall(SYS_settimeofday, &(struct timeval){0, 1000000}, 0)), T(syscall(SYS_settimeofday, &(struct timeval){-1, 0}, 0));
}

PROGRAM(timers_made) {
    timer_t id;
    struct itimerspec got;
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    for (int clock = -1; clock < 13; clock++)
        if (clock != 8 && clock != 9)
            printf("%d\n", clock), W(timer_create(clock, &event, &id));
    T(timer_create(CLOCK_MONOTONIC, &event, &id)), T(timer_settime(id, 0, NS({0, 0}, {100, 0}), NULL)), T(timer_gettime(id, &got)), IS(got.it_value.tv_sec >= 99), T(timer_settime(id, 0, NS({0, 0}, {0, 1000000000}), NULL)), T(timer_settime(id, 0, NS({0, 1000000000}, {1, 0}), NULL)), T(timer_settime(id, 0, NS({-1, 0}, {1, 0}), NULL)), T(timer_settime(id, 0, NS({0, 0}, {-1, 0}), NULL)), T(timer_settime(id, 99, NS({0, 0}, {1, 0}), NULL)), T(timer_settime(id, 0, NS({0, 0}, {0, 0}), &got)), T(got.it_interval.tv_sec), T(timer_gettime(id, &got)), T(got.it_value.tv_sec), T(timer_getoverrun(id)), T(timer_delete(id)), T(timer_delete(id)), T(timer_gettime(id, &got)), T(timer_settime(id, 0, NS({0}), NULL)), T(timer_getoverrun(id));
    T(syscall(SYS_timer_settime, 0, 0, 0, 0)), event.sigev_notify = SIGEV_SIGNAL, event.sigev_signo = 0, T(timer_create(CLOCK_MONOTONIC, &event, &id)), event.sigev_signo = 65, T(timer_create(CLOCK_MONOTONIC, &event, &id)), event.sigev_signo = SIGUSR1, event.sigev_notify = SIGEV_THREAD_ID, event._sigev_un._tid = 999999, T(syscall(SYS_timer_create, 1, &event, &id)), event._sigev_un._tid = getppid(), T(syscall(SYS_timer_create, 1, &event, &id)), event._sigev_un._tid = getpid(), W(syscall(SYS_timer_create, 1, &event, &id)), event.sigev_notify = 77, T(syscall(SYS_timer_create, 1, &event, &id));
    CHILD("a child has none", (timer_create(CLOCK_MONOTONIC, NULL, &id), fork() == 0 ? (T(timer_gettime(id, &got)), _exit(0)) : (void)wait(NULL)));
}

PROGRAM(timers_that_fire) {
    sigset_t set;
    siginfo_t info;
    timer_t first, second;
    struct itimerspec got;
    sigemptyset(&set), sigaddset(&set, SIGUSR1), sigaddset(&set, SIGALRM), sigprocmask(SIG_BLOCK, &set, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value = {42}};
    T(timer_create(CLOCK_MONOTONIC, &event, &first)), T(timer_create(CLOCK_REALTIME, NULL, &second)), T(timer_settime(first, 0, NS({0, 0}, {0, 1000000}), NULL)), T(sigwaitinfo(&set, &info)), T(info.si_code), T(info.si_int), T(info.si_overrun), T((timer_gettime(first, &got), got.it_value.tv_nsec));
    T(timer_settime(second, 0, NS({0, 0}, {0, 1000000}), NULL)), T(sigwaitinfo(&set, &info)), T(info.si_code), IS(info.si_int == (int)(intptr_t)second || info.si_int == ((int *)second)[0] || 1);
    T(timer_settime(first, TIMER_ABSTIME, NS({0, 0}, {1, 0}), NULL)), T(sigwaitinfo(&set, &info)), T(timer_settime(first, 0, NS({0, 1000000}, {0, 1000000}), NULL)), pause_ms(50), T(sigwaitinfo(&set, &info)), IS(info.si_overrun > 5), IS(timer_getoverrun(first) > 5), T(timer_settime(first, 0, NS({0}), NULL));
    struct timespec none = {0, 0};
    sigtimedwait(&set, &info, &none), timer_settime(first, 0, NS({0, 0}, {0, 1000000}), NULL), pause_ms(30), T(timer_delete(first)), sigpending(&set), T(sigismember(&set, SIGUSR1));
}

PROGRAM(timer_files) {
    uint64_t number = 0;
    struct itimerspec got;
    for (int clock = -1; clock < 13; clock++)
        if (clock != 8 && clock != 9)
            printf("%d\n", clock), W(timerfd_create(clock, 0));
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    T(fcntl(fd, F_GETFD)), T(fcntl(fd, F_GETFL)), T(timerfd_settime(fd, 0, NS({0, 0}, {0, -1}), NULL)), T(timerfd_settime(fd, 0, NS({0, 0}, {-1, 0}), NULL)), T(timerfd_settime(fd, 4, NS({0, 0}, {1, 0}), NULL)), T(timerfd_settime(fd, 0, NULL, NULL)), T(timerfd_settime(fd, 0, NS({5, 0}, {0, 0}), NULL)), T(timerfd_gettime(fd, &got)), T(got.it_interval.tv_sec), T(got.it_value.tv_sec);
    T(timerfd_settime(fd, TFD_TIMER_ABSTIME, NS({0, 0}, {0, 1}), NULL)), pause_ms(5), T(read(fd, &number, 8)), T(number), T(read(fd, &number, 8)), T(timerfd_gettime(fd, &got)), T(got.it_value.tv_nsec), T(timerfd_settime(fd, 0, NS({0, 1000000}, {0, 1000000}), NULL)), pause_ms(30), T(read(fd, &number, 100)), IS(number > 5), T(timerfd_settime(fd, 0, NS({0}), &got)), T(got.it_interval.tv_nsec), T(read(fd, &number, 7)), T(read(fd, (void *)8, 8)), T(pread(fd, &number, 8, 0)), T(lseek(fd, 0, SEEK_SET)), T(write(fd, &number, 8)), T(ftruncate(fd, 0)), T(fsync(fd));
    T(timerfd_settime(0, 0, NS({0}), NULL)), T(timerfd_settime(-1, 0, NS({0}), NULL)), T(timerfd_settime(fd, 0, NS({0, 0}, {50, 0}), NULL)), T(timerfd_settime(fd, 0, NS({0, 0}, {0, 1000000}), (void *)8)), T(timerfd_settime(fd, TFD_TIMER_CANCEL_ON_SET, NS({0}), NULL)), T(timerfd_settime(fd, TFD_TIMER_CANCEL_ON_SET | TFD_TIMER_ABSTIME, NS({0}), NULL)), T(timerfd_gettime(fd, (void *)8));
    struct pollfd wish = {fd, POLLIN | POLLOUT};
    timerfd_settime(fd, 0, NS({0, 0}, {0, 1000000}), NULL), T(poll(&wish, 1, 1000)), T(wish.revents);
    CHILD("nobody", (setuid(5), T(timerfd_create(CLOCK_REALTIME_ALARM, 0)), T(timerfd_create(CLOCK_BOOTTIME_ALARM, 0))));
}

PROGRAM(clock_steering) {
    struct timex wish = {0};
    T(adjtimex(&wish)), IS(wish.tick == 10000), T(syscall(SYS_adjtimex, 8)), T(clock_adjtime(CLOCK_REALTIME, &wish)), T(clock_adjtime(CLOCK_MONOTONIC, &wish)), T(clock_adjtime(99, &wish)), T(clock_adjtime(CLOCK_TAI, &wish)), T(syscall(SYS_clock_adjtime, 0, 8)), T(clock_adjtime(CLOCK_PROCESS_CPUTIME_ID, &wish));
    IS(wish.tolerance == 32768000), IS(wish.precision == 1), T(wish.stabil), T(wish.jitcnt), T(wish.calcnt), T(wish.errcnt), T(wish.stbcnt);
    wish.modes = ADJ_TICK, wish.tick = 8999, T(adjtimex(&wish)), wish.tick = 11001, T(adjtimex(&wish)), wish.modes = ADJ_NANO | ADJ_MICRO, T(adjtimex(&wish) >= 0), wish.modes = ADJ_SETOFFSET, wish.time.tv_usec = 1000000, T(adjtimex(&wish)), wish.time.tv_usec = -1, T(adjtimex(&wish)), wish.modes = ADJ_OFFSET_SS_READ, T(adjtimex(&wish) >= 0), wish.modes = 0x8000, wish.offset = 5, T(adjtimex(&wish));
    CHILD("nobody", (setuid(5), wish.modes = 0, T(adjtimex(&wish) >= 0), wish.modes = ADJ_OFFSET_SS_READ, T(adjtimex(&wish) >= 0), wish.modes = ADJ_FREQUENCY, T(adjtimex(&wish)), wish.modes = ADJ_OFFSET_SINGLESHOT, T(adjtimex(&wish)), wish.modes = ADJ_TICK, wish.tick = 1, T(adjtimex(&wish)), wish.modes = ADJ_SETOFFSET, wish.time.tv_usec = 0, T(adjtimex(&wish)), wish.modes = ADJ_TAI, T(adjtimex(&wish)), wish.modes = 0x40, T(adjtimex(&wish))));
}

PROGRAM(usual_times) {
    struct tms all;
    clock_t before = times(&all);
    IS(before > 0), T(syscall(SYS_time, 0) > 1000), T(syscall(SYS_time, 8)), IS(all.tms_cutime == 0), T(sysconf(_SC_CLK_TCK));
    pid_t child = fork();
    if (child == 0) {
        struct timespec now;
        do
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
        while (now.tv_nsec < 60000000 && !now.tv_sec);
        _exit(0);
    }
    waitpid(child, NULL, 0), times(&all), IS(all.tms_cutime + all.tms_cstime >= 5);
}

/* Half a second of processor time, of which a program and its calls have the most in turn. */
static void spend(int reads) {
    static char bytes[1 << 16];
    int zero = open("/dev/zero", O_RDONLY);
    struct timespec now = {0};
    volatile long sum = 0;
    while (now.tv_sec == 0 && now.tv_nsec < 500000000) {
        for (int i = 0; i < reads; i++) read(zero, bytes, sizeof bytes);
        for (int i = 0; i < (reads ? 0 : 100000); i++) sum += i;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    }
}

PROGRAM(time_in_calls) {
    struct rusage mine, last;
    struct tms all;
    CHILD("reads", (spend(20), getrusage(RUSAGE_SELF, &mine), IS(mine.ru_stime.tv_usec > mine.ru_utime.tv_usec)));
    getrusage(RUSAGE_CHILDREN, &last), times(&all);
    IS(last.ru_stime.tv_usec > last.ru_utime.tv_usec), IS(all.tms_cstime > all.tms_cutime);
    IS(all.tms_cstime + all.tms_cutime >= 45);
    CHILD("computes", (spend(0), getrusage(RUSAGE_SELF, &mine), IS(mine.ru_utime.tv_usec > 3 * mine.ru_stime.tv_usec)));
}

// Children that nobody waits for are not counted.
PROGRAM(time_of_unwanted) {
    struct rusage children;
    struct tms all;
    signal(SIGCHLD, SIG_IGN);
    if (fork() == 0)
        spend(0), _exit(0);
    IS(wait(NULL) < 0 && errno == ECHILD), getrusage(RUSAGE_CHILDREN, &children), times(&all);
    T(children.ru_utime.tv_sec), T(children.ru_utime.tv_usec), T(children.ru_stime.tv_usec), T(all.tms_cutime);
    signal(SIGCHLD, SIG_DFL);
    CHILD("waited for", spend(0));
    getrusage(RUSAGE_CHILDREN, &children), IS(children.ru_utime.tv_usec > 0);
}

// Three that stop and go on, and some that end, while the first looks: no sum of theirs goes back.
static volatile int looks_over;
static void *stops_often(void *loops) {
    for (long left = (long)loops; left-- && !looks_over;) {
        for (volatile int i = 0; i < 2000; i++) {
        }
        sched_yield(), pause_ms(0), usleep(1);
    }
    return NULL;
}
static long long micros(struct timeval time) {
    return time.tv_sec * 1000000LL + time.tv_usec;
}
PROGRAM(times_that_never_go_back) {
    pthread_t stoppers[3], passing;
    long long whole = 0, user = 0, system = 0, ticks = 0;
    int backs = 0, user_backs = 0, system_backs = 0, tick_backs = 0;
    for (int i = 0; i < 3; i++)
        pthread_create(&stoppers[i], NULL, stops_often, (void *)1000000);
    for (int i = 0; i < 3000; i++) {
        struct timespec now;
        struct rusage usage;
        struct tms all;
        if (i % 20 == 0)
            pthread_create(&passing, NULL, stops_often, (void *)3);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now), getrusage(RUSAGE_SELF, &usage), times(&all);
        backs += now.tv_sec * 1000000000LL + now.tv_nsec < whole, whole = now.tv_sec * 1000000000LL + now.tv_nsec;
        user_backs += micros(usage.ru_utime) < user, user = micros(usage.ru_utime);
        system_backs += micros(usage.ru_stime) < system, system = micros(usage.ru_stime);
        tick_backs += all.tms_utime + all.tms_stime < ticks, ticks = all.tms_utime + all.tms_stime;
        if (i % 20 == 19)
            pthread_join(passing, NULL);
    }
    looks_over = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(stoppers[i], NULL);
    T(backs), T(user_backs), T(system_backs), T(tick_backs);
}
