/* The native interface, looked at closely: what a handler is told, what it leaves unchanged, batches, bits. */
#define _GNU_SOURCE
#include "exos.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define CHECK(condition) \
    do { if (!(condition)) { printf("line %d: %s\n", __LINE__, #condition); exit(1); } } while (0)

static char *area(size_t pages, int rights) {
    char *start = mmap(NULL, pages * PAGE, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(start != MAP_FAILED);
    return start;
}

static volatile int count;
static struct exos_fault last;

/* Allows the access, and changes what a C function may change. */
static void allow(struct exos_fault *fault) {
    char noise[256];
    memset(noise, (int)fault->address, sizeof noise);
    __asm__ volatile("pcmpeqb %%xmm0, %%xmm0\n movdqa %%xmm0, %%xmm7\n movdqa %%xmm0, %%xmm15\n fldz\n fstp %%st(0)\n std\n cld"
                     : : "r"(noise) : "xmm0", "xmm7", "xmm15", "memory");
    last = *fault;
    __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    struct exos_change change = {
        (void *)(fault->address & -PAGE), PAGE, EXOS_CHANGE_PROTECT, PROT_READ | PROT_WRITE};
    CHECK(exos_apply(&change, 1) == 1);
}

/* A store with a known value in every register; 0 if all of them are as before. */
static long store_keeps_registers(char *address) {
    long changed;
    __asm__ volatile(
        "push %%rbp\n push %%rbx\n"
        "mov %%rdi, %%r15\n"
        "mov $1, %%eax\n mov $2, %%ebx\n mov $3, %%ecx\n mov $4, %%edx\n mov $5, %%esi\n mov $7, %%ebp\n"
        "mov $8, %%r8\n mov $9, %%r9\n mov $10, %%r10\n mov $11, %%r11\n mov $12, %%r12\n mov $13, %%r13\n"
        "mov $14, %%r14\n movq %%r8, %%xmm0\n movq %%r9, %%xmm7\n movq %%r10, %%xmm15\n"
        "movq $0x5a5a, -8(%%rsp)\n movq $0x5b5b, -128(%%rsp)\n" /* the red zone */
        "stc\n"
        "movb $42, (%%r15)\n"
        "sbb $0, %%rax\n" /* the carry flag: 1 - 1 */
        "dec %%rbx\n dec %%rbx\n sub $3, %%rcx\n sub $4, %%rdx\n sub $5, %%rsi\n sub $7, %%rbp\n sub %%r15, %%rdi\n"
        "or %%rbx, %%rax\n or %%rcx, %%rax\n or %%rdx, %%rax\n or %%rsi, %%rax\n or %%rdi, %%rax\n or %%rbp, %%rax\n"
        "movq %%xmm0, %%rbx\n sub %%rbx, %%r8\n or %%r8, %%rax\n"
        "movq %%xmm7, %%rbx\n sub %%rbx, %%r9\n or %%r9, %%rax\n"
        "movq %%xmm15, %%rbx\n sub %%rbx, %%r10\n or %%r10, %%rax\n"
        "sub $11, %%r11\n sub $12, %%r12\n sub $13, %%r13\n sub $14, %%r14\n"
        "or %%r11, %%rax\n or %%r12, %%rax\n or %%r13, %%rax\n or %%r14, %%rax\n"
        "subq $0x5a5a, -8(%%rsp)\n or -8(%%rsp), %%rax\n subq $0x5b5b, -128(%%rsp)\n or -128(%%rsp), %%rax\n"
        "pop %%rbx\n pop %%rbp\n"
        : "=a"(changed), "+D"(address)
        :
        : "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm7", "xmm15", "memory",
          "cc");
    return changed;
}

static void registers_are_kept(void) {
    char *page = area(1, PROT_NONE);
    CHECK(exos_handle_faults(page, PAGE, allow, (void *)77) == 0);
    /* The red zone of this function belongs to the test. */
    CHECK(store_keeps_registers(page + 5) == 0);
    CHECK(page[5] == 42 && count == 1);
    CHECK(last.argument == 77 && last.address == (uintptr_t)page + 5);
    CHECK(last.cause == (EXOS_CAUSE_STORE | EXOS_CAUSE_NOT_ALLOWED));
    CHECK(store_keeps_registers(page + 6) == 0 && count == 1);
    puts("registers, flags, vectors and the red zone are kept");
}

static void skip(struct exos_fault *fault) {
    last = *fault;
    fault->rip += 3; /* mov (%rdi), %al would be two bytes; movb $1, (%rdi) is three */
}

static void a_handler_may_go_on_elsewhere(void) {
    char *page = area(1, PROT_READ);
    CHECK(exos_handle_faults_integer(page, PAGE, skip, NULL) == 0);
    for (int turn = 0; turn < 1000; turn++) {
        last.address = 0;
        __asm__ volatile("movb $1, (%%rdi)" : : "D"(page) : "memory");
        CHECK(last.address == (uintptr_t)page && page[0] == 0);
    }
    munmap(page, PAGE);
    __asm__ volatile("movb $1, (%%rdi)" : : "D"(page) : "memory");
    CHECK(last.cause == (EXOS_CAUSE_STORE | EXOS_CAUSE_NOT_MAPPED));
    CHECK(exos_handle_faults(page, PAGE, NULL, NULL) == 0);
    puts("a handler may go on elsewhere");
}

static void step_over(struct exos_fault *fault) { fault->rip += 3; }

/* Touches a page that is handled itself. */
static void touch_next(struct exos_fault *fault) {
    if (fault->argument) *(volatile char *)(fault->address + PAGE) += 1;
    allow(fault);
}

static void handlers_nest(void) {
    char *pages = area(3, PROT_NONE);
    count = 0;
    CHECK(exos_handle_faults(pages, PAGE, touch_next, (void *)1) == 0);
    CHECK(exos_handle_faults(pages + PAGE, PAGE, touch_next, (void *)2) == 0);
    CHECK(exos_handle_faults(pages + 2 * PAGE, PAGE, touch_next, NULL) == 0);
    pages[0] = 9;
    CHECK(count == 3 && pages[0] == 9 && pages[PAGE] == 1 && pages[2 * PAGE] == 1);
    puts("handlers nest");
}

static sigjmp_buf back;
static void on_signal(int number) { siglongjmp(back, number); }

static void what_is_not_handled_is_a_signal(void) {
    char *pages = area(3, PROT_NONE);
    signal(SIGSEGV, on_signal);
    count = 0;
    CHECK(exos_handle_faults(pages, 3 * PAGE, allow, NULL) == 0);
    CHECK(exos_handle_faults(pages + PAGE, PAGE, NULL, NULL) == 0);
    int number = sigsetjmp(back, 1);
    if (number == 0) {
        pages[0] = pages[2 * PAGE] = 1;
        pages[PAGE] = 1;
    }
    CHECK(number == SIGSEGV && count == 2);
    /* exos's own copies ask nobody. */
    mprotect(pages, PAGE, PROT_READ);
    int ends[2];
    CHECK(pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
    CHECK(read(ends[0], pages, 1) == -1 && errno == EFAULT && count == 2);
    CHECK(read(ends[0], pages + 2 * PAGE, 1) == 1);
    signal(SIGSEGV, SIG_DFL);
    puts("what is not handled is a signal, or EFAULT");
}

static void batches(void) {
    char *pages = area(600, PROT_READ | PROT_WRITE);
    static struct exos_change changes[EXOS_CHANGE_COUNT_MAX + 1];
    memset(pages, 1, 600 * PAGE);
    for (int i = 0; i < 300; i++)
        changes[i] = (struct exos_change){pages + 2 * i * PAGE, PAGE, EXOS_CHANGE_PROTECT, PROT_READ};
    CHECK(exos_apply(changes, 300) == 300);
    static unsigned char bits[600];
    CHECK(exos_pages(pages, 600 * PAGE, bits, 0) == 0);
    for (int i = 0; i < 600; i++)
        CHECK(!(bits[i] & EXOS_PAGE_WRITABLE) == (i % 2 == 0) && bits[i] & EXOS_PAGE_PRESENT);
    struct exos_change mixed[] = {
        {pages, PAGE, EXOS_CHANGE_MAP, PROT_READ | PROT_WRITE},
        {pages + PAGE, PAGE, EXOS_CHANGE_DISCARD, 0},
        {pages + 3 * PAGE, PAGE, EXOS_CHANGE_UNMAP, 0},
        {pages + 3 * PAGE, PAGE, EXOS_CHANGE_PROTECT, PROT_READ},
        {pages + 4 * PAGE, PAGE, EXOS_CHANGE_UNMAP, 0},
    };
    CHECK(exos_apply(mixed, 5) == 3);
    CHECK(exos_apply(mixed + 3, 2) == -ENOMEM);
    CHECK(pages[0] == 0 && pages[PAGE] == 0 && pages[2 * PAGE] == 1 && pages[4 * PAGE] == 1);
    pages[0] = 2;
    CHECK(exos_apply(changes, EXOS_CHANGE_COUNT_MAX + 1) == -EINVAL);
    mixed[0].kind = 9;
    CHECK(exos_apply(mixed, 1) == -EINVAL);
    mixed[0] = (struct exos_change){pages + 1, PAGE, EXOS_CHANGE_PROTECT, PROT_READ};
    CHECK(exos_apply(mixed, 1) == -EINVAL);
    CHECK(exos_apply((void *)8, 1) == -EFAULT && exos_apply(NULL, 0) == 0);
    // Few and many: the first of them is not made if the last is none.
    CHECK(mprotect(pages + 20 * PAGE, 9 * PAGE, PROT_READ | PROT_WRITE) == 0);
    for (int count = 1; count <= 9; count++) {
        for (int i = 0; i < count; i++)
            changes[i] = (struct exos_change){pages + (20 + i) * PAGE, PAGE, EXOS_CHANGE_DISCARD, 0};
        changes[count - 1].kind = 9;
        memset(pages + 20 * PAGE, 3, 9 * PAGE);
        CHECK(exos_apply(changes, count) == -EINVAL && pages[20 * PAGE] == 3);
        changes[count - 1].kind = EXOS_CHANGE_DISCARD;
        CHECK(exos_apply(changes, count) == count);
        for (int i = 0; i < 9; i++)
            CHECK(pages[(20 + i) * PAGE] == (i < count ? 0 : 3));
    }
    munmap(pages, 600 * PAGE);
    puts("batches");
}

static void bits_of_pages(void) {
    char *pages = area(8, PROT_READ | PROT_WRITE);
    unsigned char bits[8];
    memset(pages, 1, 8 * PAGE);
    CHECK(exos_pages(pages, 8 * PAGE, bits, EXOS_PAGES_CLEAR) == 0);
    for (int i = 0; i < 8; i++)
        CHECK(bits[i] == (EXOS_PAGE_PRESENT | EXOS_PAGE_WRITABLE | EXOS_PAGE_ACCESSED | EXOS_PAGE_DIRTY));
    (void)*(volatile char *)(pages + 2 * PAGE);
    pages[5 * PAGE] = 3;
    CHECK(exos_pages(pages, 8 * PAGE, bits, 0) == 0);
    for (int i = 0; i < 8; i++) {
        int expected = i == 2 ? EXOS_PAGE_ACCESSED : i == 5 ? EXOS_PAGE_ACCESSED | EXOS_PAGE_DIRTY : 0;
        CHECK(bits[i] == (expected | EXOS_PAGE_PRESENT | EXOS_PAGE_WRITABLE));
    }
    CHECK(exos_pages((void *)(1UL << 46), 8 * PAGE, bits, 0) == 0 && bits[0] == 0 && bits[7] == 0);
    CHECK(exos_pages(pages + 1, PAGE, bits, 0) == -EINVAL);
    CHECK(exos_pages(pages, PAGE, bits, 2) == -EINVAL);
    CHECK(exos_pages(NULL, (EXOS_PAGE_COUNT_MAX + 1UL) * PAGE, bits, 0) == -EINVAL);
    CHECK(exos_pages(pages, PAGE, (void *)8, 0) == -EFAULT);
    puts("bits of pages");
}

/* The stack pointer of a fault may stand where nothing was touched yet, or in a page that a child shares. */
static void stacks_are_touched_first(void) {
    char *page = area(1, PROT_READ);
    CHECK(exos_handle_faults_integer(page, PAGE, skip, NULL) == 0);
    for (int child = 0; child < 2; child++) {
        for (long depth = 1; depth <= 64; depth++) {
            last.address = 0;
            __asm__ volatile("mov %%rsp, %%rbx\n sub %%rcx, %%rsp\n movb $1, (%%rdi)\n mov %%rbx, %%rsp"
                             : : "D"(page), "c"(depth * 4 * PAGE) : "rbx", "memory");
            CHECK(last.address == (uintptr_t)page);
        }
        if (child) _exit(0);
        pid_t pid = fork();
        int status;
        if (pid) {
            CHECK(waitpid(pid, &status, 0) == pid && status == 0);
            break;
        }
    }
    puts("stacks are touched first");
}

static volatile int alarms;
static void on_alarm(int number) { alarms += number == SIGALRM; }

static void *fault_between_alarms(void *page) {
    for (long turn = 0; turn < 30000 || alarms < 20; turn++) {
        long result = 0;
        __asm__ volatile("mov $0, %%eax\n stc\n movb $1, (%%rdi)\n adc $0, %%rax" : "=&a"(result) : "D"(page) : "memory");
        CHECK(result == 1);
    }
    return NULL;
}

/* What is held back while a fault is looked at comes when it is over. */
static void signals_come_between(void) {
    char *page = area(1, PROT_READ);
    CHECK(exos_handle_faults_integer(page, PAGE, step_over, NULL) == 0);
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, fault_between_alarms, page) == 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    CHECK(page[0] == 0);
    puts("signals come between");
}

#define THREADS 4
#define PAGES_EACH 200
static char *shared;

static void *fault_often(void *number) {
    char *own = shared + (long)number * PAGES_EACH * PAGE;
    for (int i = 0; i < PAGES_EACH; i++) own[i * PAGE] = (char)i;
    for (int i = 0; i < PAGES_EACH; i++) CHECK(own[i * PAGE] == (char)i);
    return NULL;
}

static void threads_and_children(void) {
    shared = area(THREADS * PAGES_EACH, PROT_READ);
    count = 0;
    CHECK(exos_handle_faults(shared, THREADS * PAGES_EACH * PAGE, allow, NULL) == 0);
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, fault_often, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    CHECK(count == THREADS * PAGES_EACH);
    mprotect(shared, PAGE, PROT_READ);
    pid_t child = fork();
    if (child == 0) {
        shared[1] = 7;
        _exit(count - THREADS * PAGES_EACH);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 1);
    CHECK(shared[1] == 0 && count == THREADS * PAGES_EACH);
    puts("threads and children");
}

static volatile char seen;

static void see(struct exos_fault *fault) {
    CHECK((fault->cause & ~(uint64_t)7) == EXOS_CAUSE_WATCHED);
    seen = *(volatile char *)fault->address;
    count++;
}

static void watched_memory(void) {
    char *memory = area(8, PROT_READ | PROT_WRITE);
    volatile char *page = memory;
    memset(memory, 5, 8 * PAGE);
    CHECK(exos_handle_faults(memory, 8 * PAGE, see, NULL) == 0);
    struct exos_change change = {memory, 8 * PAGE, EXOS_CHANGE_WATCH_STORES, 0};
    count = 0;
    CHECK(exos_apply(&change, 1) == 1);
    CHECK(page[10] == 5 && count == 0);
    page[10] = 7;
    CHECK(page[10] == 7 && seen == 5 && count == 1);
    page[11] = 8;
    page[3 * PAGE] = 9;
    CHECK(count == 2);
    /* What nobody can be told of does not happen; what was told may. */
    int zero = open("/dev/zero", O_RDONLY);
    CHECK(read(zero, memory + PAGE, 10) == -1 && errno == EFAULT && page[PAGE] == 5);
    CHECK(read(zero, memory, 10) == 10 && page[0] == 0 && count == 2);
    close(zero);
    change.kind = EXOS_CHANGE_WATCH_ACCESSES;
    CHECK(exos_apply(&change, 1) == 1 && page[4 * PAGE] == 5 && count == 3);
    page[4 * PAGE] = 6;
    CHECK(count == 4 && seen == 5);
    pid_t child = fork();
    if (child == 0) {
        page[5 * PAGE] = 1;
        _exit(count);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 5 && count == 4);
    change.kind = EXOS_CHANGE_UNWATCH;
    CHECK(exos_apply(&change, 1) == 1);
    page[6 * PAGE] = 1;
    CHECK(page[6 * PAGE] == 1);
    change.kind = EXOS_CHANGE_WATCH_STORES;
    CHECK(munmap(memory + 7 * PAGE, PAGE) == 0 && exos_apply(&change, 1) == -ENOMEM);
    page[2 * PAGE] = 1;
    CHECK(page[2 * PAGE] == 1);
    puts("watched memory");
}

static void own_tickets(void) {
    CHECK(exos_set_tickets(0) == -EINVAL && exos_set_tickets(EXOS_TICKETS_MAX + 1) == -EINVAL);
    CHECK(exos_set_tickets(2048) == 1024 && exos_set_tickets(100) == 2048);
    pid_t child = fork();
    if (child == 0) _exit(exos_set_tickets(1024) != 100);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(setpriority(PRIO_PROCESS, 0, 0) == 0 && exos_set_tickets(1024) == 1024);
    puts("own tickets");
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (exos_version() == -ENOSYS) {
        puts("no exos here");
        return 0;
    }
    CHECK(exos_version() == EXOS_VERSION);
    registers_are_kept();
    a_handler_may_go_on_elsewhere();
    handlers_nest();
    what_is_not_handled_is_a_signal();
    batches();
    bits_of_pages();
    stacks_are_touched_first();
    signals_come_between();
    threads_and_children();
    watched_memory();
    own_tickets();
    return 0;
}
