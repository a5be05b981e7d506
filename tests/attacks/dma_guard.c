// A program that wants its pod's devices to reach memory that is not the pod's.
//
// It makes kernel calls of its own by way of a routine in the library OS's text that moves registers and enters the
// kernel, and so is everything that a hostile library OS could be. Modes, by the first argument:
//
//   cases    tries everything on the function of a served directory, and says what was not refused
//   console  does the same on its own console, after which nobody hears of it: the host watches what comes out
//   flight   sends requests and ends in the middle of them, so that the kernel stops the pod
//   honest   keeps a secret in 8 MiB, and looks whether it changes
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t u64;
typedef volatile uint64_t *words;

#define WINDOW 0xffff800000000000ull
#define IMAGE (WINDOW + 0x1000000)
#define DEVICES (WINDOW + (128ull << 30))
#define REGION (16ull << 20)
#define PAGE 4096ull
#define SLOT_GATE 9
#define SLOTS_FIRST 16
#define SLOTS_EACH 3

enum { DESCRIBE, STATUS, SET_STATUS, FEATURES, SET_FEATURES, SIZE_MAX_OF, ENABLE, KICK, INTERRUPT, CONFIG };
enum { DONE, REFUSED, FAILED };
enum { NEXT = 1, WRITE = 2, INDIRECT = 4 };

static int case_count, fail_count, is_silent;

static void expect(const char *name, int is_good) {
    case_count++;
    if (!is_good) {
        fail_count++;
        if (!is_silent) printf("NOT REFUSED: %s\n", name);
    }
}

// Calls the kernel: the first argument in RDI, the others in the registers of a message.
typedef u64 (*transfer_t)(u64 first, u64 message[11], u64 number);
static transfer_t transfer;

static sigjmp_buf nobodys;

static void passed(int number) {
    siglongjmp(nobodys, number);
}

static int find_transfer(void) {
    static const unsigned char text[] = {0x53, 0x55, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57, 0x56, 0x48, 0x89, 0xd0};
    // Between its segments there may be pages of nobody.
    void (*before)(int) = signal(SIGSEGV, passed);
    for (volatile u64 page = IMAGE; !transfer && page < IMAGE + (3 << 20); page += 4096) {
        if (sigsetjmp(nobodys, 1))
            continue;
        for (u64 at = page; !transfer && at < page + 4096; at++)
            if (!memcmp((void *)at, text, sizeof text))
                transfer = (transfer_t)at;
    }
    signal(SIGSEGV, before);
    return transfer != NULL;
}

static u64 call(u64 number, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f, u64 *value) {
    u64 message[11] = {b, c, d, e, f};
    u64 status = transfer(a, message, number);
    if (value) *value = message[1];
    return status;
}

static u64 ask(u64 operation, u64 function, u64 a, u64 b, u64 c, u64 *value) {
    u64 message[11] = {operation, function, a, b, c};
    u64 status = transfer(SLOT_GATE, message, 27);
    if (value) *value = message[1];
    return status ? 100 + status : message[0];
}

static u64 window_pages, queue_count;

static u64 window_of(u64 function) { return DEVICES + function * 8 * REGION; }
static u64 ring_of(u64 function, u64 queue) { return window_of(function) + REGION + 2 * queue * PAGE; }
static u64 used_of(u64 function, u64 queue) { return ring_of(function, queue) + PAGE; }

// From whatever state to a running device with one queue of 16.
static int set_up(u64 function, u64 queue) {
    u64 features;
    words ring = (words)ring_of(function, queue);
    for (int i = 0; i < 512; i++) ring[i] = 0;
    return ask(SET_STATUS, function, 0, 0, 0, 0) == DONE && ask(SET_STATUS, function, 1, 0, 0, 0) == DONE
        && ask(SET_STATUS, function, 3, 0, 0, 0) == DONE && ask(FEATURES, function, 0, 0, 0, &features) == DONE
        && ask(SET_FEATURES, function, features, 0, 0, 0) == DONE && ask(SET_STATUS, function, 11, 0, 0, 0) == DONE
        && ask(ENABLE, function, queue, 16, (window_pages + queue) * PAGE, 0) == DONE
        && ask(SET_STATUS, function, 15, 0, 0, 0) == DONE;
}

static void describe(words ring, int number, u64 address, u64 length, u64 flags, u64 next) {
    ring[2 * number] = address;
    ring[2 * number + 1] = length | flags << 32 | next << 48;
}

static void offer(u64 function, u64 queue, int slot, uint16_t head, uint16_t index) {
    volatile uint16_t *available = (volatile uint16_t *)(ring_of(function, queue) + 256);
    available[2 + slot] = head;
    __sync_synchronize();
    available[1] = index;
}

struct row {
    const char *name;
    u64 address, length, flags, next;
    int heads, index;
};

// Rings of all kinds on one queue; each has to cost the function, and it has to come back.
static void try_rings(u64 function, u64 queue) {
    u64 first, end = (window_pages + queue_count) * PAGE;
    call(5, SLOTS_FIRST + SLOTS_EACH * function, 1, 0, 0, 0, 0, &first);
    const struct row rows[] = {
        {"one byte beyond", end - 99, 100, 0, 0, 1, 1},
        {"begins beyond", end, 1, WRITE, 0, 1, 1},
        {"low memory as an offset", 0x100000 + end, 65536, 0, 0, 1, 1},
        {"the kernel's text", 0x200000, 1 << 20, 0, 0, 1, 1},
        {"the kernel's text, to write", 0x1000000, 4096, WRITE, 0, 1, 1},
        {"all memory", 0, 256ull << 20, 0, 0, 1, 1},
        {"all memory, to write", 0, 0x7fffffff, WRITE, 0, 1, 1},
        {"own memory by its physical address", first * PAGE, 4096, 0, 0, 1, 1},
        {"the frame behind the window", (first + window_pages + queue_count) * PAGE, 4096, WRITE, 0, 1, 1},
        {"used rings", end + 8, 16, WRITE, 0, 1, 1},
        {"registers of the interrupt controller", 0xfec00000, 16, WRITE, 0, 1, 1},
        {"message interrupt: fixed", 0xfee00000, 4, WRITE, 0, 1, 1},
        {"message interrupt: lowest priority", 0xfee01000, 4, WRITE, 0, 1, 1},
        {"message interrupt: all", 0xfeeff00c, 4, WRITE, 0, 1, 1},
        {"message interrupt: in the middle", 0xfee00004, 8, WRITE, 0, 1, 1},
        {"the kernel's direct map", 0xffffc00000000000, 4096, 0, 0, 1, 1},
        {"wraps", ~0ull, 2, 0, 0, 1, 1},
        {"wraps to the start", 0 - 100ull, 200, WRITE, 0, 1, 1},
        {"longest", 0, 0xffffffff, 0, 0, 1, 1},
        {"longest, to write", 4096, 0xffffffff, WRITE, 0, 1, 1},
        {"top bit", 1ull << 63, 4, 0, 0, 1, 1},
        {"bit 52", 1ull << 52, 4, WRITE, 0, 1, 1},
        {"empty", 0, 0, 0, 0, 1, 1},
        {"indirect", 0, 160, INDIRECT, 0, 1, 1},
        {"indirect and next", 0, 160, INDIRECT | NEXT, 1, 1, 1},
        {"unknown flags", 0, 100, 0x8000, 0, 1, 1},
        {"loop of two", 0, 100, NEXT, 0, 1, 1},
        {"loop of one", 0, 100, NEXT, 1, 1, 1},
        {"next beyond the queue", 0, 100, NEXT, 16, 1, 1},
        {"next far beyond", 0, 100, NEXT, 0xffff, 1, 1},
        {"head beyond the queue", 0, 100, 0, 0, 16, 1},
        {"head far beyond", 0, 100, 0, 0, 0xffff, 1},
        {"too many at once", 0, 100, 0, 0, 1, 17},
        {"index backwards", 0, 100, 0, 0, 1, 0xffff},
        {"read behind write", 0, 9, WRITE | NEXT, 2, 1, 1},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        words ring = (words)ring_of(function, queue);
        u64 status = 0;
        if (!set_up(function, queue)) {
            expect("a set-up after a fault", 0);
            return;
        }
        // What the message interrupts would carry: every delivery mode.
        for (int n = 0; n < 8; n++) ((volatile uint32_t *)window_of(function))[n] = (uint32_t)n << 8 | 0x31;
        describe(ring, 1, row->address, row->length, row->flags, row->next);
        // What the row leads to: for a loop back to it, else one to read.
        describe(ring, 0, 0, 100, row->next == 0 && row->flags == NEXT ? NEXT : 0, 1);
        describe(ring, 2, 0, 100, 0, 0);
        if (row->next == 1 && row->flags == NEXT) describe(ring, 1, 0, 100, NEXT, 1);
        offer(function, queue, 0, (uint16_t)row->heads, (uint16_t)row->index);
        int is_good = ask(KICK, function, queue, 0, 0, 0) == FAILED;
        is_good &= ask(STATUS, function, 0, 0, 0, &status) == DONE && status == 64;
        is_good &= ask(KICK, function, queue, 0, 0, 0) == FAILED;
        expect(row->name, is_good);
    }
    // A chain that the device may still have, again.
    if (set_up(function, queue)) {
        describe((words)ring_of(function, queue), 1, 0, 100, 0, 0);
        offer(function, queue, 0, 1, 1);
        offer(function, queue, 1, 1, 2);
        expect("the same chain twice", ask(KICK, function, queue, 0, 0, 0) == FAILED);
    }
}

// What the guard is asked for at the wrong time, or wrongly.
static void try_requests(u64 function) {
    ask(SET_STATUS, function, 0, 0, 0, 0);
    expect("kick before the set-up", ask(KICK, function, 0, 0, 0, 0) == REFUSED);
    expect("queue before features", ask(ENABLE, function, 0, 16, window_pages * PAGE, 0) == REFUSED);
    expect("start at once", ask(SET_STATUS, function, 15, 0, 0, 0) == REFUSED);
    ask(SET_STATUS, function, 1, 0, 0, 0);
    ask(SET_STATUS, function, 3, 0, 0, 0);
    u64 features = 0;
    ask(FEATURES, function, 0, 0, 0, &features);
    expect("event index and indirect are offered", !(features & 3ull << 28) && !(features & 1ull << 33));
    expect("indirect is taken", ask(SET_FEATURES, function, features | 1ull << 28, 0, 0, 0) == REFUSED);
    expect("packed is taken", ask(SET_FEATURES, function, features | 1ull << 34, 0, 0, 0) == REFUSED);
    expect("no features", ask(SET_FEATURES, function, 0, 0, 0, 0) == REFUSED);
    ask(SET_FEATURES, function, features, 0, 0, 0);
    ask(SET_STATUS, function, 11, 0, 0, 0);
    const u64 wrong[][3] = {
        {0, 16, 0},           {0, 16, (window_pages + 1) * PAGE}, {0, 16, 0xfee00000}, {0, 16, ~0ull},
        {0, 0, window_pages * PAGE}, {0, 3, window_pages * PAGE}, {0, 1 << 15, window_pages * PAGE},
        {0, 1 << 16, window_pages * PAGE}, {0, ~0ull, window_pages * PAGE}, {queue_count, 16, window_pages * PAGE},
        {~0ull, 16, window_pages * PAGE}, {1 << 16, 16, window_pages * PAGE},
    };
    int is_good = 1;
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
        is_good &= ask(ENABLE, function, wrong[i][0], wrong[i][1], wrong[i][2], 0) == REFUSED;
    expect("queues with absurd sizes and places", is_good);
    expect("kick of a queue that is none", ask(KICK, function, ~0ull, 0, 0, 0) == REFUSED);
    expect("configuration far away", ask(CONFIG, function, 0x1000, 0, 0, 0) == REFUSED);
    expect("no such operation", ask(10, function, 0, 0, 0, 0) == REFUSED);
    expect("no such function", ask(KICK, 2, 0, 0, 0, 0) == REFUSED && ask(KICK, ~0ull, 0, 0, 0, 0) == REFUSED);
}

// Device calls on whatever there is, and mappings with the capabilities that the guard gave.
static void try_calls(u64 function) {
    static const char *names[] = {"DeviceRead", "DeviceControl", "DeviceMap", "DevicePort",
                                  "DeviceInterruptBind", "DeviceInterruptAsk", "DeviceDmaBind", "DeviceDmaUnbind"};
    for (u64 number = 30; number < 38; number++) {
        int is_good = 1;
        for (u64 slot = 0; slot < 4096; slot++) {
            u64 third = number == 32 ? WINDOW + (900ull << 30) : number == 34 ? SLOTS_FIRST + 2 : 0;
            is_good &= call(number, slot, number == 36 ? SLOTS_FIRST : 0, third, 1, 0, 0, 0) != 0;
        }
        expect(names[number - 30], is_good);
    }
    u64 first = 0, used = 0, slot = SLOTS_FIRST + SLOTS_EACH * function;
    call(5, slot, 1, 0, 0, 0, 0, &first);
    call(5, slot + 1, 1, 0, 0, 0, 0, &used);
    struct { uint32_t operation, flags; u64 address, frame; uint32_t pages, slot; } entry;
    const struct { const char *name; uint32_t operation, flags; u64 address, frame; uint32_t pages; u64 slot; } maps[] = {
        {"the used rings to write", 0, 1, 0x500000000000, used, 1, slot + 1},
        {"the used rings by the other slot", 0, 1, 0x500000000000, used, 1, slot},
        {"the used rings made writable", 2, 1, used_of(function, 0), 0, 1, slot + 1},
        {"frames before the window", 0, 0, 0x500000000000, first - 1, 1, slot},
        {"frames behind the rings", 0, 0, 0x500000000000, used + queue_count, 1, slot + 1},
        {"the guard's frames", 0, 1, 0x500000000000, first, (uint32_t)(window_pages + 2 * queue_count + 1), slot},
        {"frame 0", 0, 1, 0x500000000000, 0, 1, slot},
        {"the interrupt controller", 0, 1, 0x500000000000, 0xfee00, 1, slot},
    };
    for (unsigned i = 0; i < sizeof maps / sizeof *maps; i++) {
        entry.operation = maps[i].operation;
        entry.flags = maps[i].flags;
        entry.address = maps[i].address;
        entry.frame = maps[i].frame;
        entry.pages = maps[i].pages;
        entry.slot = (uint32_t)maps[i].slot;
        expect(maps[i].name, call(10, 1, (u64)&entry, 1, 0, 0, 0, 0) != 0);
    }
}

// Descriptors that change after they were looked at. The device asked for a version answers in the window.
static void try_changes(u64 function) {
    static const unsigned char version[] = {21, 0, 0, 0, 100, 255, 255, 0, 32, 0, 0, 8, 0, '9', 'P', '2', '0', '0', '0', '.', 'L'};
    volatile unsigned char *window = (volatile unsigned char *)window_of(function);
    volatile uint16_t *used = (volatile uint16_t *)used_of(function, 0);
    words ring = (words)ring_of(function, 0);
    int is_good = set_up(function, 0);
    for (int round = 0; round < 64 && is_good; round++) {
        for (unsigned i = 0; i < sizeof version; i++) window[i] = version[i];
        for (int i = 0; i < 64; i++) window[4096 + i] = 0;
        describe(ring, 0, 0, sizeof version, NEXT, 1);
        describe(ring, 1, 4096, 64, WRITE, 0);
        offer(function, 0, round % 16, 0, (uint16_t)(round + 1));
        is_good &= ask(KICK, function, 0, 0, 0, 0) == DONE;
        for (long look = 0; look < 20000000 && used[1] != (uint16_t)(round + 1); look++) {
            describe(ring, 0, look & 1 ? 0x200000 : 0xfee00000, 65536, NEXT | WRITE, 1);
            describe(ring, 1, look & 1 ? 0x1000000 : 0 - 4096ull, 0xffffffff, WRITE, 1);
        }
        // 101 is the answer to 100.
        is_good &= used[1] == (uint16_t)(round + 1) && window[4096 + 4] == 101;
    }
    expect("descriptors that change after the kick", is_good);
    is_good = 1;
    for (int i = 0; i < 20000; i++) is_good &= ask(KICK, function, 0, 0, 0, 0) == DONE;
    expect("kicks for ever", is_good);
}

// Sends on the raw queue of standard output what the host then sees.
static void say_raw(const char *text) {
    volatile char *window = (volatile char *)window_of(0);
    if (!set_up(0, 7)) return;
    for (unsigned i = 0; i <= strlen(text); i++) window[i] = text[i];
    describe((words)ring_of(0, 7), 0, 0, strlen(text), 0, 0);
    offer(0, 7, 0, 0, 1);
    ask(KICK, 0, 7, 0, 0, 0);
    for (volatile long i = 0; i < 20000000; i++) {
        if (((volatile uint16_t *)used_of(0, 7))[1] == 1) break;
    }
}

static void end_pod(void) {
    words control = (words)(WINDOW + 0x3000);
    for (int i = 4; i < 12; i++) control[i] = 0;
    getppid();
    _exit(1);
}

static void take_in(u64 function) {
    u64 sizes = 0;
    u64 message[11] = {DESCRIBE, function};
    transfer(SLOT_GATE, message, 27);
    sizes = message[2];
    window_pages = sizes & 0xffffffff;
    queue_count = sizes >> 32;
}

static int keep_secret(int seconds) {
    static const char shifted[] = "IPOFTU.TFDSFU";
    const size_t length = sizeof shifted - 1, total = 8 << 20;
    char *memory = malloc(total);
    for (size_t i = 0; i < total; i++) memory[i] = (char)(shifted[i % length] - 1);
    for (int second = 0; second < seconds; second++) {
        struct timespec pause = {1, 0};
        nanosleep(&pause, 0);
        for (size_t i = 0; i < total; i++)
            if (memory[i] != (char)(shifted[i % length] - 1)) {
                printf("changed at %zu\n", i);
                return 1;
            }
    }
    puts("intact");
    return 0;
}

// Whether the half of the window that this library OS has not used is all zeros, as the manager gives it: it takes
// buffers from the end, and `flight` those at the beginning.
static int is_fresh(u64 function) {
    for (u64 at = 0; at < window_pages / 2 * PAGE; at += 8)
        if (*(words)(window_of(function) + at)) return 0;
    return 1;
}

int main(int count, char **arguments) {
    const char *mode = count > 1 ? arguments[1] : "";
    if (!strcmp(mode, "honest")) return keep_secret(count > 2 ? atoi(arguments[2]) : 5);
    if (!find_transfer()) return puts("no way to the kernel"), 2;
    // A console has 14 queues, a served directory one; which comes first is the machine's affair.
    u64 function = 0, wanted = !strcmp(mode, "console") ? 14 : 1;
    for (take_in(0); queue_count != wanted && function < 2; take_in(function)) function++;
    if (!window_pages || queue_count != wanted) return puts("no such guarded function"), 2;
    if (!strcmp(mode, "cases")) {
        try_calls(function);
        try_requests(function);
        try_rings(function, 0);
        try_changes(function);
        printf("%d cases, %d not refused\n", case_count, fail_count);
        return fail_count != 0;
    }
    if (!strcmp(mode, "console")) {
        puts("before");
        fflush(stdout);
        struct timespec pause = {0, 300000000};
        nanosleep(&pause, 0);
        is_silent = 1;
        try_requests(0);
        for (u64 queue = 0; queue < queue_count; queue++) try_rings(0, queue);
        char text[100];
        snprintf(text, sizeof text, "raw: %d cases, %d not refused\n", case_count, fail_count);
        say_raw(text);
        end_pod();
    }
    // In flight: requests that the server has, buffers that the host may fill.
    if (!strcmp(mode, "flight")) {
        // Where an earlier pod's answers would come, and late ones are waited for.
        if (!is_fresh(function)) return puts("left behind"), 3;
        struct timespec pause = {0, 20000000};
        nanosleep(&pause, 0);
        if (!is_fresh(function) || !set_up(function, 0)) return puts("left behind, or no set-up"), 3;
        for (int i = 0; i < 8; i++) {
            describe((words)ring_of(function, 0), 2 * i, 0, 21, NEXT, 2 * i + 1);
            describe((words)ring_of(function, 0), 2 * i + 1, 8192 * (i + 1), 8192, WRITE, 0);
            offer(function, 0, i, (uint16_t)(2 * i), (uint16_t)(i + 1));
        }
        static const unsigned char version[] = {21, 0, 0, 0, 100, 255, 255, 0, 32, 0, 0, 8, 0, '9', 'P', '2', '0', '0', '0', '.', 'L'};
        for (unsigned i = 0; i < sizeof version; i++) ((volatile unsigned char *)window_of(function))[i] = version[i];
        for (u64 at = 100 * PAGE; at < window_pages * PAGE; at += 8) *(words)(window_of(function) + at) = 0x5a5a5a5a5a5a5a5aull;
        ask(KICK, function, 0, 0, 0, 0);
        end_pod();
    }
    return 2;
}
