// How a Linux program makes kernel calls of its own: it finds, in the text of the library OS that its address space
// also holds, a function that enters the kernel with registers of its caller's (gate_transfer of rt/), and with it maps
// a page of its own beside the library OS, whose `syscall` the kernel takes for the library OS's.
//
// Nothing here is a secret or a fault: the library OS is no boundary for its own program. What a program can do with
// it must hurt nobody else.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t word;
typedef struct { word status, value; } answer;

enum {
    CAP_DERIVE = 1, CAP_GRANT = 2, CAP_REVOKE = 3, CAP_DROP = 4, CAP_READ = 5, FRAME_ALLOCATE = 6, FRAME_FREE = 7,
    FRAME_SPLIT = 8, FRAME_DONATE = 9, BIND = 10, ENVIRONMENT_CREATE = 11, ENVIRONMENT_DESTROY = 12, ENVIRONMENT_READ = 13,
    PROCESSOR_CREATE = 16, PROCESSOR_START = 17, PROCESSOR_STOP = 18, PROCESSOR_DESTROY = 20, YIELD = 21, SLEEP = 22,
    GATE_CALL = 27, GATE_REPLY = 29, MACHINE_LOG = 38, SPACE_ENTER = 43, BELL_AWAIT = 58, CALL_COUNT = 64
};
enum { OK = 0, NO_TABLES = 0x302, AGAIN = 0x501 };
enum { SLOT_SELF = 1, SLOT_MACHINE = 3, SLOT_OF_DONATIONS = 191, SLOT_PAGES = 190, SLOT_OWN = 1000 };
#define ANYWHERE (~0ull)

// The upper half's fixed places (abi/src/layout.rs), and a part of the window that the library OS does not use.
#define CONTROL ((volatile word *)0xffff800000003000ull)
#define LIBRARY 0xffff800001000000ull
#define OWN 0xffff83ff00000000ull
#define OWN_PAGE_COUNT 64

static answer (*enter)(word number, word a0, word a1, word a2, word a3, word a4, word a5);

static word now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void fail(const char *what, word status) {
    printf("%s: %#lx\n", what, (unsigned long)status);
    fflush(stdout);
    exit(3);
}

// A call, with tables donated when the kernel asks for them and repeated when it says so.
static answer call(word number, word a0, word a1, word a2, word a3, word a4, word a5) {
    for (;;) {
        answer got = enter(number, a0, a1, a2, a3, a4, a5);
        if (got.status == NO_TABLES && enter(FRAME_ALLOCATE, SLOT_OF_DONATIONS, 16, ANYWHERE, 0, 0, 0).status == OK
            && enter(FRAME_DONATE, SLOT_OF_DONATIONS, SLOT_SELF, 0, 0, 0, 0).status == OK)
            continue;
        if (got.status != AGAIN)
            return got;
    }
}

static word must(const char *what, answer got) {
    if (got.status != OK)
        fail(what, got.status);
    return got.value;
}

// gate_transfer(argument 0, message, number): the message is RSI RDX R10 R8 R9 ..., there and back.
static word (*transfer)(word a0, word message[11], word number);

static answer enter_by_gate(word number, word a0, word a1, word a2, word a3, word a4, word a5) {
    word message[11] = {a1, a2, a3, a4, a5};
    word status = transfer(a0, message, number);
    return (answer){status, message[1]};
}

static const unsigned char TRANSFER[] = {0x53, 0x55, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57, 0x56, 0x48, 0x89, 0xd0};
// mov rax,rdi; mov rdi,rsi; mov rsi,rdx; mov rdx,rcx; mov r10,r8; mov r8,r9; mov r9,[rsp+8]; syscall; ret
static const unsigned char ENTER[] = {0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca, 0x4d, 0x89, 0xc2,
                                      0x4d, 0x89, 0xc8, 0x4c, 0x8b, 0x4c, 0x24, 0x08, 0x0f, 0x05, 0xc3};
// Where a virtual processor of ours begins: mov r12,rdi; loop: mov rdi,r12; mov esi,32; mov eax,SLEEP; syscall; jmp loop
static const unsigned char SLEEPER[] = {0x49, 0x89, 0xfc, 0x4c, 0x89, 0xe7, 0xbe, 0x20, 0, 0, 0, 0xb8, 0x16, 0, 0, 0, 0x0f, 0x05,
                                        0xeb, 0xef};
#define SLEEPER_AT (OWN + 64)

static sigjmp_buf nobodys;

static void passed(int number) {
    siglongjmp(nobodys, number);
}

// Finds the way in and maps OWN_PAGE_COUNT pages of ours at OWN, the first with code.
static word begin(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    // Between its segments there may be pages of nobody.
    void (*before)(int) = signal(SIGSEGV, passed);
    for (volatile word page = LIBRARY; !transfer && page < LIBRARY + 0x400000; page += 4096) {
        if (sigsetjmp(nobodys, 1))
            continue;
        for (word at = page; !transfer && at < page + 4096; at++)
            if (!memcmp((void *)at, TRANSFER, sizeof TRANSFER))
                transfer = (void *)at;
    }
    signal(SIGSEGV, before);
    if (!transfer)
        fail("no way in", 0);
    enter = enter_by_gate;
    word frame = must("frames", call(FRAME_ALLOCATE, SLOT_PAGES, OWN_PAGE_COUNT, ANYWHERE, 0, 0, 0));
    // Map, write and execute.
    word entry[4] = {0 | 3ull << 32, OWN, frame, OWN_PAGE_COUNT | (word)SLOT_PAGES << 32};
    must("bind", call(BIND, SLOT_SELF, (word)entry, 1, 0, 0, 0));
    memcpy((void *)OWN, ENTER, sizeof ENTER);
    memcpy((void *)SLEEPER_AT, SLEEPER, sizeof SLEEPER);
    enter = (void *)OWN;
    return frame;
}

// When it is over: the machine's clock is everybody's.
static word end_ns(int argc, char **argv) {
    return argc > 1 ? strtoull(argv[1], NULL, 10) * 1000000ull : 1000000000ull;
}

// What this pod's processors have used, as the kernel counts it.
static word used_ns(void) {
    enum { TIME_USED_NS = 9 };
    return must("time used", call(ENVIRONMENT_READ, SLOT_SELF, TIME_USED_NS, 0, 0, 0, 0));
}

static word random_state = 88172645463325252ull;

static word random_word(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}
