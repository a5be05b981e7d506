/* What programs ask about time, processors, themselves and their limits; thread-local storage, floating point, locale. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#define CHECK(claim) ((claim) ? (void)0 : (void)printf("line %d: not so: %s (errno %d)\n", __LINE__, #claim, errno))
#define FAILS(call, number) (errno = 0, CHECK((long)(call) == -1), CHECK(errno == number))

static __thread int local = 7, zeroed[1000];

static int64_t ns(struct timespec t) { return t.tv_sec * 1000000000ll + t.tv_nsec; }

static void clocks(void) {
    static const int ids[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_BOOTTIME, CLOCK_REALTIME_COARSE,
                              CLOCK_MONOTONIC_COARSE, CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID, CLOCK_TAI};
    for (unsigned i = 0; i < sizeof ids / sizeof *ids; i++) {
        struct timespec a, b, c, r;
        CHECK(syscall(SYS_clock_gettime, ids[i], &a) == 0);
        CHECK(clock_gettime(ids[i], &b) == 0);
        CHECK(syscall(SYS_clock_gettime, ids[i], &c) == 0);
        CHECK(b.tv_nsec >= 0 && b.tv_nsec < 1000000000);
        if (!strstr("45", (char[]){(char)('0' + i), 0})) CHECK(ns(a) <= ns(b) && ns(b) <= ns(c));
        CHECK(clock_getres(ids[i], &r) == 0 && r.tv_sec == 0 && r.tv_nsec > 0);
    }
    FAILS(syscall(SYS_clock_gettime, 99, &(struct timespec){0}), EINVAL);
    struct timespec last = {0}, now;
    for (int i = 0; i < 20000; i++) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (ns(now) < ns(last)) CHECK(0 && "monotonic went back");
        last = now;
    }
    struct timeval tv;
    struct timespec real;
    CHECK(gettimeofday(&tv, 0) == 0 && clock_gettime(CLOCK_REALTIME, &real) == 0);
    CHECK(real.tv_sec - tv.tv_sec <= 1 && time(0) - tv.tv_sec <= 2);
    struct timespec wish = {0, 30000000}, before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    CHECK(nanosleep(&wish, 0) == 0);
    clock_gettime(CLOCK_MONOTONIC, &after);
    CHECK(ns(after) - ns(before) >= 30000000);
    wish = after, wish.tv_nsec += 20000000;
    if (wish.tv_nsec >= 1000000000) wish.tv_sec++, wish.tv_nsec -= 1000000000;
    CHECK(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wish, 0) == 0);
    clock_gettime(CLOCK_MONOTONIC, &after);
    CHECK(ns(after) >= ns(wish));
    FAILS(nanosleep(&(struct timespec){0, 1000000000}, 0), EINVAL);
    FAILS(nanosleep(&(struct timespec){-1, 0}, 0), EINVAL);
    struct rusage usage;
    volatile double d = 0;
    for (int i = 0; i < 20000000; i++) d += i;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0 && usage.ru_maxrss > 100 && usage.ru_utime.tv_sec * 1000000 + usage.ru_utime.tv_usec > 0);
    struct tms t;
    CHECK(times(&t) != (clock_t)-1 && sysconf(_SC_CLK_TCK) == 100 && clock() > 0);
}

static void self(void) {
    struct utsname name;
    CHECK(uname(&name) == 0 && !strcmp(name.sysname, "Linux") && !strcmp(name.machine, "x86_64"));
    CHECK(getpid() == gettid() && getppid() >= 0 && getpgrp() >= 0 && getsid(0) >= 0);
    CHECK(getuid() == 0 && geteuid() == 0 && getgid() == 0 && getauxval(AT_UID) == 0 && getauxval(AT_SECURE) == 0);
    CHECK(getauxval(AT_PAGESZ) == 4096 && getauxval(AT_ENTRY) && getauxval(AT_RANDOM) && getauxval(AT_CLKTCK) == 100);
    CHECK(getauxval(AT_SYSINFO_EHDR) && !memcmp((void *)getauxval(AT_SYSINFO_EHDR), "\177ELF", 4));
    CHECK(strstr((char *)getauxval(AT_EXECFN), "misc"));
    CHECK(!strcmp((char *)getauxval(AT_PLATFORM), "x86_64") && getauxval(AT_PHNUM) > 3);
    char text[4096];
    int file = open("/proc/self/auxv", O_RDONLY);
    CHECK(read(file, text, sizeof text) > 200 && ((Elf64_auxv_t *)text)->a_type != 0);
    close(file), file = open("/proc/self/cmdline", O_RDONLY);
    CHECK(read(file, text, sizeof text) > 4 && strstr(text, "misc"));
    close(file), file = open("/proc/self/environ", O_RDONLY);
    CHECK(read(file, text, sizeof text) > 4);
    close(file), file = open("/proc/self/stat", O_RDONLY);
    long length = read(file, text, sizeof text - 1);
    text[length > 0 ? length : 0] = 0;
    CHECK(atoi(text) == getpid() && strstr(text, "(misc"));
    close(file);
    CHECK(prctl(PR_SET_NAME, "renamed") == 0 && prctl(PR_GET_NAME, text) == 0 && !strcmp(text, "renamed"));
    cpu_set_t set;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) >= 1 && sched_getcpu() >= 0 && sched_yield() == 0);
    CHECK(sysconf(_SC_NPROCESSORS_ONLN) == CPU_COUNT(&set) || sysconf(_SC_NPROCESSORS_ONLN) > 0);
    struct sysinfo info;
    CHECK(sysinfo(&info) == 0 && info.totalram > 1000000 && info.freeram <= info.totalram && info.mem_unit == 1 && info.procs >= 1);
    errno = 0;
    CHECK(getpriority(PRIO_PROCESS, 0) >= -20 && errno == 0);
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= 256);
    limit.rlim_cur = 10;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int opened = 0;
    while (open("/", O_RDONLY) >= 0) opened++;
    CHECK(errno == EMFILE && opened == 7);
    for (int i = 3; i < 10; i++) close(i);
    FAILS(wait(0), ECHILD);
    FAILS(waitpid(1234, 0, 0), ECHILD);
    FAILS(syscall(9999), ENOSYS);
    FAILS(syscall(-1), ENOSYS);
    FAILS(execl("/no/such", "x", (char *)0), ENOENT);
    FAILS(execl("/etc/passwd", "x", (char *)0), EACCES);
    FAILS(execl("/etc", "x", (char *)0), EACCES);
    CHECK(syscall(SYS_membarrier, 0, 0, 0) >= 0 || errno == ENOSYS);
}

static void storage(void) {
    CHECK(local == 7 && zeroed[999] == 0);
    local = 8, zeroed[999] = 1;
    CHECK(local == 8);
    errno = 5;
    CHECK(errno == 5);
    static jmp_buf jump;
    volatile int rounds = 0;
    if (setjmp(jump) < 5) rounds++, longjmp(jump, rounds);
    CHECK(rounds == 5);
}

static void numbers(void) {
    volatile double zero = 0, two = 2;
    printf("%.17g %.17g %.17g %.17g\n", sqrt(two), sin(two), exp(two), pow(two, 0.1));
    printf("%g %g %Lg %a\n", 1 / zero, zero / zero < 0 ? 1.0 : 0.0, sqrtl(2.0L), 0.1);
    fesetround(FE_UPWARD);
    volatile double third = 1 / (two + 1);
    fesetround(FE_TONEAREST);
    CHECK(third > 1 / (two + 1));
    feclearexcept(FE_ALL_EXCEPT);
    volatile double inexact = 1 / (two + 1);
    CHECK(fetestexcept(FE_INEXACT) && inexact > 0);
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) {
        int in[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8] = {0};
        __asm__ volatile("vmovdqu %1,%%ymm3; vpaddd %%ymm3,%%ymm3,%%ymm4; vmovdqu %%ymm4,%0"
                         : "=m"(out) : "m"(in) : "xmm3", "xmm4");
        CHECK(out[7] == 16);
        usleep(2000);
        __asm__ volatile("vmovdqu %%ymm4,%0; vzeroupper" : "=m"(out)::"xmm4");
    }
    long x[2] = {0, 0};
    __asm__ volatile("rdtsc; shl $32,%%rdx; or %%rdx,%%rax; mov %%rax,%0" : "=m"(x[0])::"rax", "rdx");
    __asm__ volatile("rdtsc; shl $32,%%rdx; or %%rdx,%%rax; mov %%rax,%0" : "=m"(x[1])::"rax", "rdx");
    CHECK(x[1] > x[0]);
}

static void locales(void) {
    CHECK(setlocale(LC_ALL, "C"));
    wchar_t wide[10];
    CHECK(setlocale(LC_ALL, "C.UTF-8") && mbstowcs(wide, "h\303\251", 10) == 2 && wide[1] == 0xe9);
    char text[64];
    struct tm tm;
    time_t when = 951827696;
    gmtime_r(&when, &tm);
    strftime(text, sizeof text, "%A %d %B %Y %H:%M:%S %j", &tm);
    puts(text);
    setenv("TZ", "EST5EDT", 1), tzset(), localtime_r(&when, &tm);
    printf("%d %s\n", tm.tm_hour, tm.tm_zone);
}

int main(int argc, char **argv) {
    setvbuf(stdout, 0, _IONBF, 0);
    if (argc > 1) {
        printf("again:");
        for (int i = 0; i < argc; i++) printf(" %s", argv[i]);
        printf(" %s %d\n", getenv("GIVEN"), fcntl(20, F_GETFD) == -1 && fcntl(21, F_GETFD) == 0);
        return 42;
    }
    clocks(), puts("clocks");
    self(), puts("self");
    storage(), puts("storage");
    numbers(), puts("numbers");
    locales(), puts("locales");
    struct rlimit limit = {100, 1000};
    setrlimit(RLIMIT_NOFILE, &limit);
    fcntl(1, F_DUPFD_CLOEXEC, 20), fcntl(1, F_DUPFD, 21);
    char *arguments[] = {"misc", "one", "", "three", 0}, *environment[] = {"GIVEN=thing", 0};
    execve("/proc/self/exe", arguments, environment);
    return 1;
}
