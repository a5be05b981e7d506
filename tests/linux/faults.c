/* Ends by the fault that the first argument names; each is a default action that the shell shows as 128+n. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile int zero, one = 1;
static volatile int *volatile nowhere;

__attribute__((noinline)) void store_to_null(void) { *nowhere = 1; }

__attribute__((noinline)) int overflow_stack(int depth) {
    volatile char room[4096];
    room[0] = (char)depth;
    return overflow_stack(depth + 1) + room[0];
}

int main(int argc, char **argv) {
    const char *wish = argc > 1 ? argv[1] : "";
    printf("about to %s\n", wish);
    fflush(stdout);
    if (!strcmp(wish, "null")) store_to_null();
    if (!strcmp(wish, "illegal")) __asm__ volatile("ud2");
    if (!strcmp(wish, "divide")) printf("%d\n", one / zero);
    if (!strcmp(wish, "abort")) abort();
    if (!strcmp(wish, "stack")) return overflow_stack(0);
    if (!strcmp(wish, "breakpoint")) __asm__ volatile("int3");
    if (!strcmp(wish, "privileged")) __asm__ volatile("hlt");
    if (!strcmp(wish, "port")) __asm__ volatile("outb %al, $0x80");
    if (!strcmp(wish, "noncanonical")) *(volatile int *)0x8000000000000000 = 1;
    if (!strcmp(wish, "kernel")) *(volatile int *)0xffffffff80000000 = 1;
    if (!strcmp(wish, "library")) *(volatile int *)0xffff800000000000 = 1;
    if (!strcmp(wish, "text")) *(volatile char *)(long)main = 1;
    if (!strcmp(wish, "execute")) {
        static char code[] = "\xc3";
        ((void (*)(void))(long)code)();
    }
    if (!strcmp(wish, "jump")) ((void (*)(void))0x12345)();
    if (!strcmp(wish, "bus")) {
        char path[] = "/tmp/bus-XXXXXX";
        int file = mkstemp(path);
        unlink(path);
        char *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        page[0] = 1;
    }
    if (!strcmp(wish, "segv-blocked")) {
        sigset_t set;
        sigfillset(&set);
        sigprocmask(SIG_BLOCK, &set, 0);
        store_to_null();
    }
    if (!strcmp(wish, "segv-ignored")) {
        signal(SIGSEGV, SIG_IGN);
        store_to_null();
    }
    if (!strcmp(wish, "raise")) raise(atoi(argv[2]));
    if (!strcmp(wish, "stack-pointer")) __asm__ volatile("xor %%esp, %%esp; push %%rax" ::: "memory");
    if (!strcmp(wish, "single-step")) __asm__ volatile("pushfq; orq $0x100,(%rsp); popfq; nop");
    return 3;
}
