/*
 * System-call sites that are called often, in the shapes that compilers and people give them, looked at closely: what
 * registers, flags and the bytes below the stack pointer hold afterwards, what handlers see, and what becomes of a site
 * whose page is written, moved or unmapped. On Linux nothing of this is special; the output is the same everywhere.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

/* More often than any site has to be called before something is done about it. */
#define OFTEN 40

#define FUNCTION(name, body)                                                                                           \
    ".balign 64\n.globl " name "\n.type " name ", @function\n" name ":\n.cfi_startproc\n" body                          \
    "\n.cfi_endproc\n.size " name ", . - " name "\n"

__asm__(".text\n"
    /* The number, then the call. */
    FUNCTION("seven", "mov $110, %eax\nsyscall\nret")
    /* Two short moves: the second begins inside the five bytes. seven_second is where a jump can come. */
    FUNCTION("shorts", "mov $110, %r8\nmov %rdx, %rdi\nmov %rdi, %rsi\nmov %r8, %rax\nmov %rdx, %rdi\n"
             ".globl shorts_second\nshorts_second:\nmov %rdx, %rsi\n.globl shorts_call\nshorts_call:\nsyscall\nret")
    /* Nothing before can move, what follows can. */
    FUNCTION("follows", "mov %rdi, %rax\ntest %rax, %rax\nje 1f\n1: syscall\n.globl follows_after\nfollows_after:\n"
             "cmp $-4095, %rax\njae 2f\nret\n2: mov $-1, %rax\nret")
    /* Data below the stack pointer. */
    FUNCTION("red", "movq $0x1234567, -8(%rsp)\nmovq $0x7654321, -128(%rsp)\nmov $110, %eax\nsyscall\n"
             "mov -8(%rsp), %rax\nsub -128(%rsp), %rax\nret")
    /* Flags before and after; carry set, the direction left alone. */
    FUNCTION("flags", "stc\npushfq\npop %rdx\nmov $110, %eax\nsyscall\n.globl flags_after\nflags_after:\npushfq\n"
             "pop %rax\nmov %rcx, (%rdi)\nmov %r11, 8(%rdi)\nmov %rdx, 16(%rdi)\nmov %rax, 24(%rdi)\nret")
    /* Every other register. */
    FUNCTION("all", "push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\n"
             "mov $1, %ebx\nmov $2, %ebp\nmov $3, %edx\nmov $4, %esi\nmov $5, %r8d\nmov $6, %r9d\nmov $7, %r10d\n"
             "mov $8, %r12d\nmov $9, %r13d\nmov $10, %r14d\nmov $11, %r15d\nmov %edi, %eax\nmov $-1, %rdi\nnop\n"
             "mov $12, %edi\nsyscall\n"
             "lea (%rbx,%rbp,2), %rax\nlea (%rax,%rdx,4), %rax\nlea (%rax,%rsi,8), %rax\nimul $3, %rax\n"
             "add %r8, %rax\nimul $3, %rax\nadd %r9, %rax\nimul $3, %rax\nadd %r10, %rax\nimul $3, %rax\n"
             "add %r12, %rax\nimul $3, %rax\nadd %r13, %rax\nimul $3, %rax\nadd %r14, %rax\nimul $3, %rax\n"
             "add %r15, %rax\nimul $3, %rax\nadd %rdi, %rax\n"
             "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\nret")
    /* A call that a signal interrupts. */
    FUNCTION("waits", "mov $7, %eax\nsyscall\n.globl waits_after\nwaits_after:\nret")
    /* A fault among the moved instructions. */
    FUNCTION("faults", "mov $110, %r8d\n.globl faults_load\nfaults_load:\nmov (%rdi), %rsi\nmov %r8, %rax\nsyscall\n"
             "mov %rsi, %rax\nret")
    /* On a page of its own: it will be written, moved and unmapped. */
    ".balign 4096\n"
    FUNCTION("paged", "mov $110, %eax\nsyscall\nret")
    ".balign 4096\n");

extern long seven(void), shorts(void), red(void), follows(long), faults(void *), paged(void);
extern long all(long number), waits(void *, long, long);
extern void flags(uint64_t words[4]);
extern char shorts_second[], shorts_call[], follows_after[], flags_after[], waits_after[], faults_load[];

static void say(const char *what, int is_good) {
    printf("%-12s %s\n", what, is_good ? "as it should be" : "WRONG");
}

static void registers(void) {
    long parent = getppid(), sum = 0, first;
    int is_good = 1;
    for (int i = 0; i < OFTEN; i++) is_good &= seven() == parent && shorts() == parent && follows(110) == parent;
    say("results", is_good);
    for (int i = 0; i < OFTEN; i++) is_good &= follows(100000) == -1;
    say("errors", is_good);
    for (int i = 0; i < OFTEN; i++) is_good &= red() == 0x1234567 - 0x7654321;
    say("red zone", is_good);
    for (int i = 0; i < OFTEN; i++) {
        uint64_t words[4];
        flags(words);
        is_good &= words[0] == (uint64_t)flags_after && words[1] == words[2] && words[3] == words[2] && words[2] & 1;
    }
    say("flags", is_good);
    first = all(39);
    for (int i = 0; i < OFTEN; i++) is_good &= all(39) == first;
    /* A call that takes the long way: umask. */
    for (int i = 0; i < OFTEN; i++) is_good &= all(95) == first;
    say("registers", is_good);
    for (int i = 0; i < OFTEN; i++) sum += syscall(SYS_getuid) == getuid();
    say("libc", sum == OFTEN);
}

/* A jump to the middle of what was replaced, as a computed one may. */
static void middle(void) {
    long result = 0;
    int is_good = 1;
    for (int i = 0; i < 3; i++) {
        __asm__ volatile("call *%1" : "=a"(result) : "r"(shorts_second), "a"(110L), "d"(0L) : "rcx", "r11", "rdi", "rsi", "r8", "memory");
        is_good &= result == getppid();
        __asm__ volatile("call *%1" : "=a"(result) : "r"(shorts_call), "a"(110L), "d"(0L) : "rcx", "r11", "rdi", "rsi", "r8", "memory");
        is_good &= result == getppid();
    }
    say("the middle", is_good);
}

static volatile int count;

static void note(int number, siginfo_t *info, void *data) {
    count++;
}

static void act(int number, void (*handler)(int, siginfo_t *, void *), int flags) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    sigaction(number, &action, 0);
}

/* poll for ever, interrupted. */
static void interrupted(void) {
    /* Again and again, in case the first comes before the call. */
    struct itimerval soon = {{.tv_usec = 5000}, {.tv_usec = 5000}}, none = {0};
    int is_good = 1;
    for (int i = 0; i < OFTEN; i++) waits(0, 0, 0);
    act(SIGALRM, note, 0);
    setitimer(ITIMER_REAL, &soon, 0);
    is_good &= waits(0, 0, -1) == -EINTR;
    setitimer(ITIMER_REAL, &none, 0);
    say("EINTR", is_good && count >= 1);
}

/* Fills `ranges` with start and end of this program's mappings, ascending. */
static int mappings(unsigned long ranges[256][2]) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[300];
    int length = 0;
    while (fgets(line, sizeof line, maps) && length < 256)
        length += sscanf(line, "%lx-%lx", &ranges[length][0], &ranges[length][1]) == 2;
    fclose(maps);
    return length;
}

static volatile unsigned long places[128];

static void look(int number, siginfo_t *info, void *data) {
    places[count++ & 127] = ((ucontext_t *)data)->uc_mcontext.gregs[REG_RIP];
}

/* Calls as fast as they can be, with a timer in between: handlers never see where the calls really go. */
static void timed(void) {
    struct itimerval often = {{.tv_usec = 500}, {.tv_usec = 500}}, none = {0};
    unsigned long ranges[256][2];
    long parent = getppid();
    int is_good = 1, length;
    act(SIGALRM, look, 0);
    count = 0;
    setitimer(ITIMER_REAL, &often, 0);
    while (count < 100) is_good &= shorts() == parent && follows(110) == parent && seven() == parent;
    setitimer(ITIMER_REAL, &none, 0);
    length = mappings(ranges);
    for (int k = 0; k < 100; k++) {
        int is_there = 0;
        for (int i = 0; i < length; i++) is_there |= places[k] >= ranges[i][0] && places[k] < ranges[i][1];
        is_good &= is_there;
    }
    say("timed", is_good);
}

/* A handler that sends the program into the middle of a site. */
static void redirect(int number, siginfo_t *info, void *data) {
    ucontext_t *context = data;
    context->uc_mcontext.gregs[REG_RIP] = (uint64_t)shorts_second;
    context->uc_mcontext.gregs[REG_RAX] = 110;
    context->uc_mcontext.gregs[REG_RDX] = 0;
    count++;
}

static long raises(void) {
    long result;
    /* `shorts_second` returns to what is on the stack, so the way there is a call of the instruction that faults. */
    __asm__ volatile("call 1f\njmp 2f\n1: ud2\n2:" : "=a"(result) : : "rcx", "rdx", "rdi", "rsi", "r8", "r11", "memory");
    return result;
}

static void redirected(void) {
    int is_good = 1;
    act(SIGILL, redirect, 0);
    for (int i = 0; i < 5; i++) is_good &= raises() == getppid();
    say("redirected", is_good);
    signal(SIGILL, SIG_DFL);
}

static sigjmp_buf back;
static volatile uint64_t seen, fault_address;

static void leap(int number, siginfo_t *info, void *data) {
    seen = ((ucontext_t *)data)->uc_mcontext.gregs[REG_RIP];
    fault_address = (uint64_t)info->si_addr;
    siglongjmp(back, 1);
}

static void fault(void) {
    long word = 42;
    int is_good = 1;
    for (int i = 0; i < OFTEN; i++) is_good &= faults(&word) == 42;
    act(SIGSEGV, leap, 0);
    if (!sigsetjmp(back, 1)) faults((void *)8);
    say("fault", is_good && seen == (uint64_t)faults_load && fault_address == 8);
    signal(SIGSEGV, SIG_DFL);
}

/* The page of `paged` is made writable, read, written, moved away and back, and unmapped. */
static void pages(void) {
    static const unsigned char wanted[] = {0xb8, 110, 0, 0, 0, 0x0f, 0x05, 0xc3};
    char *page = (char *)paged;
    long parent = getppid();
    int is_good = 1;
    for (int i = 0; i < OFTEN; i++) is_good &= paged() == parent;
    is_good &= !mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC) && !memcmp(page, wanted, sizeof wanted);
    say("as written", is_good);
    page[1] = 39;
    for (int i = 0; i < OFTEN; i++) is_good &= paged() == getpid();
    is_good &= !mprotect(page, 4096, PROT_READ | PROT_EXEC);
    for (int i = 0; i < OFTEN; i++) is_good &= paged() == getpid();
    say("changed", is_good);
    char *other = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(other, page, 4096);
    is_good &= !mprotect(other, 4096, PROT_READ | PROT_EXEC);
    for (int i = 0; i < OFTEN; i++) is_good &= ((long (*)(void))other)() == getpid();
    say("generated", is_good);
    is_good &= mremap(other, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, page) == page;
    for (int i = 0; i < OFTEN; i++) is_good &= paged() == getpid();
    say("moved", is_good);
}

/* All free space below this program is unmapped: whatever stands there for its calls is gone, and they go on. */
static void without_neighbours(void) {
    unsigned long ranges[256][2], text = (unsigned long)seven, start = 0, end;
    int is_good = 1, length = mappings(ranges), first = 0;
    while (first < length && ranges[first][1] <= text) first++;
    while (first > 0 && ranges[first - 1][1] == ranges[first][0]) first--;
    end = ranges[first][0];
    start = end > (64 << 20) ? end - (64 << 20) : 0x10000;
    if (first > 0 && start < ranges[first - 1][1]) start = ranges[first - 1][1];
    is_good &= !munmap((void *)start, end - start);
    for (int i = 0; i < OFTEN; i++) is_good &= shorts() == getppid() && follows(110) == getppid() && seven() == getppid();
    say("alone", is_good);
}

int main(void) {
    registers();
    middle();
    interrupted();
    timed();
    redirected();
    fault();
    pages();
    without_neighbours();
    middle();
    registers();
    return 0;
}
