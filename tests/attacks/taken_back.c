// How long entries take that give back what a device and an environment had where a table of capabilities is full: for
// each a line as `costs` prints it. What makes no progress is not asked for ever.
#include "attack.h"

enum { DEVICE_TYPE = 6, COPY = SLOT_OWN + 5, ONE = SLOT_OWN + 4, SLOT_COUNT = 4096, ALL_RIGHTS = 0x3ff };
enum { ENVIRONMENT = SLOT_OWN + 1, PART = SLOT_OWN + 3, RECLAIM = 15, OWNED = 4, OWNED_COUNT = 600, TAKEN_COUNT = 400 };
enum { CALLS_MAX = 10000, WAITS_MAX = 2000, TABLE_SLOTS = 64, SLOT_IN_TABLE = 21 };

static word stamp(void) {
    word low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high) : : "memory");
    return high << 32 | low;
}

static void give_back(const char *name, word number, word slot) {
    word worst = 0, count = 0, status = AGAIN;
    while (status == AGAIN && count++ < CALLS_MAX) {
        word before = stamp();
        status = enter(number, slot, 0, 0, 0, 0, 0).status;
        word took = stamp() - before;
        worst = took > worst ? took : worst;
    }
    printf("%s %lu %lu %lx\n", name, (unsigned long)worst, (unsigned long)count, (unsigned long)status);
}

static word kind(word slot) {
    answer got = enter(CAP_READ, slot, 0, 0, 0, 0, 0);
    return got.status == OK ? got.value & 0xff : 0;
}

static void derive(word from, word to) {
    if (!kind(to))
        must("derive", call(CAP_DERIVE, from, to, ALL_RIGHTS, 0, 1, 0));
}

static word owned(void) {
    return must("owned", call(ENVIRONMENT_READ, ENVIRONMENT, OWNED, 0, 0, 0, 0));
}

// An environment that owns nothing but its tables, with a capability in each of them.
static void reclaim(void) {
    must("frames", call(FRAME_ALLOCATE, PART, OWNED_COUNT, ANYWHERE, 0, 0, 0));
    must("create", call(ENVIRONMENT_CREATE, ENVIRONMENT, PART, 0, 0, 0, 0));
    for (word slot = SLOT_IN_TABLE; slot < SLOT_COUNT; slot += TABLE_SLOTS)
        must("grant", call(CAP_GRANT, ONE, ENVIRONMENT, slot, ALL_RIGHTS, 0, 0));
    must("reclaim", call(RECLAIM, ENVIRONMENT, TAKEN_COUNT, 0, 0, 0, 0));
    word waits = 0;
    struct timespec millisecond = {0, 1000000};
    for (; owned() > OWNED_COUNT - TAKEN_COUNT && waits < WAITS_MAX; waits++)
        nanosleep(&millisecond, NULL);
    printf("reclaim %d %lu %lx\n", 0, (unsigned long)waits, (unsigned long)(owned() - (OWNED_COUNT - TAKEN_COUNT)));
}

int main(void) {
    begin();
    must("one", call(FRAME_ALLOCATE, ONE, 1, ANYWHERE, 0, 0, 0));
    reclaim();
    word device = 1;
    while (device < SLOT_COUNT && kind(device) != DEVICE_TYPE)
        device++;
    for (word slot = SLOT_IN_TABLE; slot < SLOT_COUNT; slot += TABLE_SLOTS)
        derive(ONE, slot);
    derive(device, COPY);
    give_back("drop", CAP_DROP, COPY);
    // All of them for the device: they cost a look no more than others.
    derive(device, COPY);
    for (word slot = SLOT_OWN + 100; slot < SLOT_COUNT; slot++)
        derive(slot < SLOT_OWN + 120 ? COPY : device, slot);
    give_back("drop-one-of-many", CAP_DROP, SLOT_OWN + 200);
    give_back("revoke", CAP_REVOKE, COPY);
    return 0;
}
