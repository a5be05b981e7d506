/* The vector state in a signal's frame: what handlers find there, what they may change, what the return refuses. Prints
   facts that are the same on every Linux. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { SOFTWARE = 464, HEADER = 512, MAGIC_1 = 0x46505853, MAGIC_2 = 0x46505845 };

static volatile int step;
static void *elsewhere;

static uint32_t word(const unsigned char *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void put(unsigned char *at, uint32_t value) { memcpy(at, &value, sizeof value); }

static int is_zero(const unsigned char *at, int length) {
    while (length--)
        if (*at++) return 0;
    return 1;
}

static void on_user_signal(int signal, siginfo_t *info, void *context) {
    ucontext_t *u = context;
    unsigned char *state = (unsigned char *)u->uc_mcontext.fpregs;
    uint32_t size = word(state + SOFTWARE + 16);
    unsigned char *xmm5 = state + 160 + 5 * 16;
    switch (step) {
    case 0:
        printf("signal %d code %d, from %d\n", signal, info->si_code, info->si_pid == getpid());
        printf("rest of siginfo zero %d\n", is_zero((unsigned char *)info + 32, 96));
        printf("state aligned %d, first magic %d, second %d, size %d\n", (uintptr_t)state % 64 == 0,
               word(state + SOFTWARE) == MAGIC_1, word(state + size) == MAGIC_2, word(state + SOFTWARE + 4) == size + 4);
        printf("features %d, of the header %d, rest of the header zero %d, rest of the software's bytes zero %d\n",
               (state[SOFTWARE + 8] & 3) == 3, (state[HEADER] & 2) == 2, is_zero(state + HEADER + 8, 56),
               is_zero(state + SOFTWARE + 20, 28));
        printf("xmm5 %x, rip below %d\n", word(xmm5), (uintptr_t)u->uc_mcontext.gregs[REG_RIP] < 0x800000000000);
        put(xmm5, 0x5555);
        break;
    case 1: u->uc_mcontext.fpregs = 0; break;
    case 2: put(state + SOFTWARE, 0), put(xmm5, 0x2222); break;
    case 3: put(state + size, 0), put(xmm5, 0x3333); break;
    case 4: put(state + SOFTWARE + 8, 1), put(state + SOFTWARE + 12, 0); break;
    case 5:
        memcpy(elsewhere, state, size + 4);
        u->uc_mcontext.fpregs = elsewhere;
        put((unsigned char *)elsewhere + 160 + 5 * 16, 0x4444);
        break;
    case 6: u->uc_mcontext.fpregs = (void *)(state + 8); break;
    case 7: put(state + HEADER + 4, 0x80000000); break;
    case 8: u->uc_mcontext.fpregs = (void *)4096; break;
    case 9: u->uc_mcontext.fpregs = (void *)0xffff800000000000; break;
    case 10: u->uc_mcontext.gregs[REG_RIP] = 0x4141414141414141; break;
    }
}

/* What XMM5 holds after a signal that came while it held 0x1111. */
static uint32_t after_signal(void) {
    uint32_t value = 0x1111;
    long result = SYS_tgkill;
    __asm__ volatile("movd %1, %%xmm5; syscall; movd %%xmm5, %1"
                     : "+a"(result), "+b"(value)
                     : "D"((long)getpid()), "S"((long)syscall(SYS_gettid)), "d"((long)SIGUSR1)
                     : "rcx", "r11", "xmm5", "memory");
    return value;
}

int main(void) {
    setvbuf(stdout, 0, _IONBF, 0);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_user_signal;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGUSR1, &action, 0);
    /* Each often enough for its system call to be rewritten. */
    for (step = 0; step < 6; step++) {
        elsewhere = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (int i = 0; i < (step ? 50 : 1); i++) {
            uint32_t value = after_signal();
            if (!i) printf("step %d: xmm5 %x\n", step, value);
        }
        munmap(elsewhere, 8192);
    }
    for (; step < 11; step++) {
        int status;
        pid_t child = fork();
        if (!child) after_signal(), _exit(0);
        waitpid(child, &status, 0);
        printf("step %d: ended by %d\n", step, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }
    return 0;
}
