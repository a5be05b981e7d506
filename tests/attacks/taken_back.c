// How long entries take that give back what a device and an environment had where a table of capabilities is full, or
// what there is the most of, donated frames and mapped pages: for each a line as `costs` prints it. What makes no
// progress is not asked for ever.
#include "attack.h"

enum { DEVICE_TYPE = 6, COPY = SLOT_OWN + 5, ONE = SLOT_OWN + 4, SLOT_COUNT = 4096, ALL_RIGHTS = 0x3ff };
enum { ENVIRONMENT = SLOT_OWN + 1, PART = SLOT_OWN + 3, RECLAIM = 15, OWNED = 4, OWNED_COUNT = 600, TAKEN_COUNT = 400 };
enum { CALLS_MAX = 10000, WAITS_MAX = 2000, TABLE_SLOTS = 64, SLOT_IN_TABLE = 21 };
enum { SPACE_CREATE = 42, SPACE = SLOT_OWN + 7, MAP = 0, WRITE = 1, TABLE_COUNT = 64, TABLE_PAGES = 512 };
#define ENTRY ((word *)(OWN + 4096))
#define PROGRAM 0x40000000ull
enum { MANY = SLOT_OWN + 6, MANY_COUNT = 4096, LITTLE_COUNT = 256, LOOKS_MAX = 200000000 };

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

static void make_with_many_donated(void) {
    must("frames", call(FRAME_ALLOCATE, PART, LITTLE_COUNT, ANYWHERE, 0, 0, 0));
    must("create", call(ENVIRONMENT_CREATE, MANY, PART, 0, 0, 0, 0));
    must("frames", call(FRAME_ALLOCATE, PART, MANY_COUNT, ANYWHERE, 0, 0, 0));
    must("donate", call(FRAME_DONATE, PART, MANY, 0, 0, 0, 0));
}

// An environment without a processor loses what was donated to it, at scheduling decisions: how long the longest of
// these keeps from running who does nothing but look at the time.
static void reclaim_donated(void) {
    make_with_many_donated();
    word owned_before = must("owned", call(ENVIRONMENT_READ, MANY, OWNED, 0, 0, 0, 0)), left = owned_before, worst = 0;
    word looks = 0, last = stamp();
    must("reclaim", enter(RECLAIM, MANY, MANY_COUNT, 0, 0, 0, 0));
    for (; left > owned_before - MANY_COUNT && looks < LOOKS_MAX; looks++) {
        word now = stamp();
        worst = now - last > worst ? now - last : worst;
        last = now;
        if (looks % 1024 == 0)
            left = enter(ENVIRONMENT_READ, MANY, OWNED, 0, 0, 0, 0).value;
    }
    printf("reclaim-donated %lu %lu %lx\n", (unsigned long)worst, (unsigned long)looks,
           (unsigned long)(left - (owned_before - MANY_COUNT)));
    give_back("destroy", ENVIRONMENT_DESTROY, MANY);
    make_with_many_donated();
    give_back("destroy-many", ENVIRONMENT_DESTROY, MANY);
}

// A space with many small pages.
static void make_full_space(void) {
    must("frames", call(FRAME_ALLOCATE, PART, MANY_COUNT, ANYWHERE, 0, 0, 0));
    must("space", call(SPACE_CREATE, SPACE, 0, 0, 0, 0, 0));
    word frame = must("first", call(CAP_READ, PART, 1, 0, 0, 0, 0));
    for (word table = 0; table < TABLE_COUNT; table++) {
        word entry[4] = {MAP | (word)WRITE << 32, PROGRAM + table * TABLE_PAGES * 4096,
                         frame + table * TABLE_PAGES % MANY_COUNT, TABLE_PAGES | (word)PART << 32};
        memcpy(ENTRY, entry, sizeof entry);
        must("bind", call(BIND, SPACE, (word)ENTRY, 1, 0, 0, 0));
    }
}

int main(void) {
    begin();
    must("one", call(FRAME_ALLOCATE, ONE, 1, ANYWHERE, 0, 0, 0));
    reclaim();
    reclaim_donated();
    make_full_space();
    give_back("drop-space", CAP_DROP, SPACE);
    must("free", call(FRAME_FREE, PART, 0, 0, 0, 0, 0));
    make_full_space();
    give_back("drop-mapped", CAP_DROP, PART);
    give_back("drop-empty-space", CAP_DROP, SPACE);
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
