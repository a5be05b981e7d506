/*
 * Programs that load GS, as those do that try out instructions: nothing of it is anybody's business but theirs, whatever
 * comes next (a call, a fault, a signal, a turn of others). Says what each came to.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t handled;

static void lose(void) {
    uint16_t none = 0;
    __asm__ volatile("mov %0, %%gs" : : "r"(none));
}
static void lose_by_number(void) {
    if (getauxval(AT_HWCAP2) & 2) __asm__ volatile("wrgsbase %0" : : "r"(0x123456000UL));
}
static long call(long number, long argument) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(argument) : "rcx", "r11", "memory");
    return result;
}
static void handle(int number) {
    (void)number;
    handled++;
}
static int calls(void (*how)(void)) {
    for (int i = 0; i < 2000; i++) {
        how();
        if (call(SYS_getppid, 0) < 0) return 1;
        how();
        if (getppid() < 0 || call(SYS_close, 99) != -9) return 2;
    }
    return 0;
}
static int faults(void (*how)(void)) {
    enum { PAGES = 300 };
    char *memory = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    for (int i = 0; i < PAGES; i++) {
        how();
        memory[i * 4096] = 1;
    }
    return 0;
}
static int signals(void (*how)(void)) {
    signal(SIGUSR1, handle);
    for (int i = 0; i < 300; i++) {
        how();
        call(SYS_getpid, 0);
        how();
        raise(SIGUSR1);
    }
    return handled != 300;
}
static int turns(void (*how)(void)) {
    /* Longer than a slice, beside another that computes. */
    for (volatile long i = 0; i < 30000000; i++)
        if (i % 1000000 == 0) how();
    return 0;
}
static int wrong(void (*how)(void)) {
    how();
    *(volatile int *)8 = 1;
    return 0;
}
int main(void) {
    const struct {
        const char *name;
        int (*run)(void (*)(void));
    } cases[] = {{"calls", calls}, {"faults", faults}, {"signals", signals}, {"turns", turns}, {"wrong", wrong}};
    void (*const ways[])(void) = {lose, lose_by_number};
    for (int way = 0; way < 2; way++)
        for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
            fflush(stdout);
            pid_t other = fork();
            if (other == 0) {
                for (volatile long count = 0;; count++) {}
            }
            pid_t child = fork();
            if (child == 0) _exit(cases[i].run(ways[way]));
            int status;
            waitpid(child, &status, 0);
            kill(other, SIGKILL);
            waitpid(other, NULL, 0);
            printf("%s %d: %d\n", cases[i].name, way, WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status));
        }
    return 0;
}
