/* Signals: what handlers are told, what they preserve, what they interrupt. Prints facts that are the same on every Linux. */
#define _GNU_SOURCE
#include <errno.h>
#include <immintrin.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static volatile sig_atomic_t count;
static sigjmp_buf back;
static volatile int zero, one = 1;
static char *page;
static void *volatile fault_address;

static void on(int signal, void (*handler)(int, siginfo_t *, void *), int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | flags;
    sigemptyset(&action.sa_mask);
    if (sigaction(signal, &action, 0)) perror("sigaction");
}

static void tell(int signal, siginfo_t *info, void *context) {
    ucontext_t *u = context;
    printf("signal %d code %d address %d trap %d error %d\n", signal, info->si_code, info->si_addr == fault_address,
           (int)u->uc_mcontext.gregs[REG_TRAPNO], (int)(u->uc_mcontext.gregs[REG_ERR] & 0x17));
    siglongjmp(back, 1);
}

static void tell_only(int signal, siginfo_t *info, void *context) {
    ucontext_t *u = context;
    printf("signal %d code %d trap %d\n", signal, info->si_code, (int)u->uc_mcontext.gregs[REG_TRAPNO]);
    siglongjmp(back, 1);
}

static void repair(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    count++;
    mprotect((void *)((uintptr_t)info->si_addr & ~4095ul), 4096, PROT_READ | PROT_WRITE);
}

static void skip(int signal, siginfo_t *info, void *context) {
    (void)info;
    ucontext_t *u = context;
    u->uc_mcontext.gregs[REG_RIP] += 2;
    u->uc_mcontext.gregs[REG_RBX] = 4242;
    count = signal;
}

static void counting(int signal, siginfo_t *info, void *context) { (void)signal, (void)info, (void)context, count++; }

static void spoil_vectors(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    count++;
    __asm__ volatile("pxor %%xmm0,%%xmm0; pxor %%xmm7,%%xmm7; pxor %%xmm15,%%xmm15; fninit; fldpi" ::: "xmm0", "xmm7", "xmm15");
    unsigned int mxcsr = 0x1f80 | 0x6000;
    _mm_setcsr(mxcsr);
}

static void faults(void) {
    page = mmap(0, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    on(SIGSEGV, tell, 0), on(SIGBUS, tell, 0);
    fault_address = 0;
    if (!sigsetjmp(back, 1)) *(volatile char *)fault_address = 1;
    fault_address = page + 17;
    if (!sigsetjmp(back, 1)) *(volatile char *)fault_address = 1;
    munmap(page, 8192);
    if (!sigsetjmp(back, 1)) *(volatile char *)fault_address;
    on(SIGSEGV, tell_only, 0);
    if (!sigsetjmp(back, 1)) *(volatile char *)0x8000000000000000;
    if (!sigsetjmp(back, 1)) __asm__ volatile("hlt");
    on(SIGILL, tell_only, 0), on(SIGFPE, tell_only, 0), on(SIGTRAP, tell_only, 0);
    if (!sigsetjmp(back, 1)) __asm__ volatile("ud2");
    if (!sigsetjmp(back, 1)) zero = one / zero;
    if (!sigsetjmp(back, 1)) __asm__ volatile("int3");
    char path[] = "/tmp/signals-XXXXXX";
    int file = mkstemp(path);
    unlink(path);
    page = mmap(0, 4096, PROT_READ, MAP_SHARED, file, 0);
    on(SIGBUS, tell, 0), fault_address = page;
    if (!sigsetjmp(back, 1)) *(volatile char *)page;
    munmap(page, 4096);

    page = mmap(0, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    on(SIGSEGV, repair, 0), count = 0;
    for (int i = 0; i < 256; i++) page[i * 4096] = (char)i;
    printf("repaired %d\n", (int)count);
    on(SIGILL, skip, 0);
    long changed = 0;
    __asm__ volatile("mov $7,%%ebx; ud2; mov %%rbx,%0" : "=r"(changed)::"rbx");
    printf("skipped by %d, register %ld\n", (int)count, changed);
}

static int recurse(int n) {
    volatile char room[1024];
    room[0] = (char)n;
    return recurse(n + 1) + room[0];
}

static void on_stack_overflow(int signal, siginfo_t *info, void *context) {
    (void)context;
    stack_t now;
    sigaltstack(0, &now);
    printf("stack overflow: signal %d code %d, on stack %d\n", signal, info->si_code, !!(now.ss_flags & SS_ONSTACK));
    siglongjmp(back, 1);
}

static void alternate_stack(void) {
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536, .ss_flags = 0};
    printf("sigaltstack %d\n", sigaltstack(&stack, 0));
    on(SIGSEGV, on_stack_overflow, SA_ONSTACK);
    for (int i = 0; i < 3; i++)
        if (!sigsetjmp(back, 1)) recurse(0);
    stack_t small = {.ss_sp = stack.ss_sp, .ss_size = 100, .ss_flags = 0};
    printf("too small %d", sigaltstack(&small, 0));
    printf(" errno %d\n", errno);
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, 0);
    signal(SIGSEGV, SIG_DFL);
}

static void vectors(void) {
    on(SIGALRM, spoil_vectors, 0), on(SIGUSR1, spoil_vectors, 0);
    struct itimerval often = {{0, 2000}, {0, 2000}};
    count = 0;
    setitimer(ITIMER_REAL, &often, 0);
    uint64_t a = 0x0123456789abcdef, b;
    long double x = 1.25L, y;
    int bad = 0;
    unsigned csr = _mm_getcsr();
    for (long i = 0; count < 20 && !bad; i++) {
        __asm__ volatile(
            "movq %2,%%xmm0; movq %2,%%xmm7; movq %2,%%xmm15; fldt %3; mov $3000,%%ecx; 1: dec %%ecx; jnz 1b; fstpt %1;"
            "pand %%xmm7,%%xmm0; pand %%xmm15,%%xmm0; movq %%xmm0,%0"
            : "=r"(b), "=m"(y)
            : "r"(a), "m"(x)
            : "ecx", "xmm0", "xmm7", "xmm15");
        if (b != a || y != x || _mm_getcsr() != csr) bad = 1;
    }
    memset(&often, 0, sizeof often);
    setitimer(ITIMER_REAL, &often, 0);
    printf("vectors kept %d, interrupted %d\n", !bad, count >= 20);
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx")) {
        double in[4] = {1, 2, 3, 4}, out[4];
        __asm__ volatile("vmovupd (%0),%%ymm9" ::"r"(in) : "memory");
        raise(SIGUSR1);
        __asm__ volatile("vmovupd %%ymm9,(%0)" ::"r"(out) : "memory");
        if (memcmp(in, out, sizeof in)) printf("avx state lost\n");
    }
}

static void masks(void) {
    on(SIGUSR1, counting, 0), on(SIGUSR2, counting, 0), count = 0;
    sigset_t set, old, pending;
    sigemptyset(&set), sigaddset(&set, SIGUSR1), sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, &old);
    raise(SIGUSR1), raise(SIGUSR1), kill(getpid(), SIGUSR2);
    sigpending(&pending);
    printf("blocked: %d, pending %d %d %d\n", (int)count, sigismember(&pending, SIGUSR1), sigismember(&pending, SIGUSR2),
           sigismember(&pending, SIGTERM));
    sigset_t wait_mask = old;
    printf("sigsuspend %d errno %d count %d\n", sigsuspend(&wait_mask), errno, (int)count);
    raise(SIGUSR1);
    int got;
    printf("sigwait %d", sigwait(&set, &got));
    printf(" got %d\n", got);
    union sigval value = {.sival_int = 77};
    sigaddset(&set, SIGRTMIN + 3);
    sigprocmask(SIG_BLOCK, &set, 0);
    sigqueue(getpid(), SIGRTMIN + 3, value);
    value.sival_int = 78;
    sigqueue(getpid(), SIGRTMIN + 3, value);
    siginfo_t info;
    struct timespec soon = {0, 1000000};
    for (int i = 0; i < 3; i++) {
        errno = 0;
        got = sigtimedwait(&set, &info, &soon);
        printf("sigtimedwait %d value %d code %d errno %d\n", got, got < 0 ? 0 : info.si_value.sival_int, got < 0 ? 0 : info.si_code, errno);
    }
    int file = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (file >= 0) {
        struct signalfd_siginfo si;
        printf("signalfd empty %zd errno %d\n", read(file, &si, sizeof si), errno);
        raise(SIGUSR2);
        struct pollfd p = {file, POLLIN, 0};
        printf("poll %d", poll(&p, 1, 0));
        printf(" read %d", (int)read(file, &si, sizeof si));
        printf(" signal %d\n", si.ssi_signo);
        close(file);
    }
    sigprocmask(SIG_SETMASK, &old, 0);
    on(SIGUSR1, counting, SA_RESETHAND);
    raise(SIGUSR1);
    struct sigaction now;
    sigaction(SIGUSR1, 0, &now);
    printf("reset %d\n", now.sa_handler == SIG_DFL);
    printf("kill %d", sigaction(SIGKILL, &now, 0));
    printf(" errno %d, number 65 %d", errno, sigaction(65, 0, &now));
    printf(" errno %d\n", errno);
    errno = 0;
    printf("kill nobody %d", kill(99999, 0));
    printf(" errno %d, kill self %d\n", errno, kill(getpid(), 0));
}

static void interrupts(void) {
    on(SIGALRM, counting, 0), count = 0;
    struct itimerval once = {{0, 0}, {0, 20000}};
    setitimer(ITIMER_REAL, &once, 0);
    struct timespec rest, wish = {5, 0};
    int result = nanosleep(&wish, &rest);
    printf("nanosleep %d errno %d rest %d\n", result, errno, rest.tv_sec == 4);
    int pipes[2];
    char byte;
    if (pipe(pipes)) perror("pipe");
    setitimer(ITIMER_REAL, &once, 0);
    result = (int)read(pipes[0], &byte, 1);
    printf("read %d errno %d\n", result, errno);
    setitimer(ITIMER_REAL, &once, 0);
    printf("pause %d errno %d\n", pause(), errno);
    struct pollfd p = {pipes[0], POLLIN, 0};
    on(SIGALRM, counting, SA_RESTART);
    setitimer(ITIMER_REAL, &once, 0);
    printf("poll %d errno %d\n", poll(&p, 1, 5000), errno);
    setitimer(ITIMER_REAL, &once, 0);
    count = 0;
    while (!count) {}
    printf("loop left, timer says %d\n", (int)alarm(100));
    printf("alarm left %d\n", alarm(0) > 98);
    signal(SIGPIPE, SIG_IGN);
    close(pipes[0]);
    result = (int)write(pipes[1], "x", 1);
    printf("write %d errno %d\n", result, errno);
}

static void nested(int signal, siginfo_t *info, void *context) {
    (void)info, (void)context;
    static volatile int depth;
    if (++depth < 5) raise(signal);
    count++;
    depth--;
}

int main(void) {
    setvbuf(stdout, 0, _IONBF, 0);
    faults();
    alternate_stack();
    vectors();
    masks();
    interrupts();
    on(SIGUSR1, nested, SA_NODEFER), count = 0;
    raise(SIGUSR1);
    printf("nested %d\n", (int)count);
    return 0;
}
