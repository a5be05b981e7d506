// How long single entries into the kernel take that are asked for the most: for each a line with its name, the time
// stamps of the longest, how many it took in all, and the last one's status.
#include "attack.h"

enum {
    FRAME_COUNT = 8192, ENTRY_COUNT = 512, RUN_PAGE_COUNT = 512, COPY_COUNT = 64, PART_COUNT = 256, GRANT_COUNT = 512,
    FRAMES = SLOT_OWN, ENVIRONMENT = SLOT_OWN + 1, HOLE = SLOT_OWN + 2, PART = SLOT_OWN + 3, SLOT_COUNT = 4096, COPY = SLOT_OWN + 64, FIRST_OF_ENVIRONMENT = 64, ALL_RIGHTS = 0x3ff
};
enum { MAP = 0, UNMAP = 1, PROTECT = 2, WRITE = 1 };
#define ENTRIES ((word *)(OWN + 4096))
#define PLACE (OWN + 0x40000000ull)
#define FAR 0x200000ull
#define NEAR 0x1000ull

static word worst, count;

static word stamp(void) {
    word low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high) : : "memory");
    return high << 32 | low;
}

static answer once(word number, word a0, word a1, word a2, word a3, word a4, word a5) {
    word before = stamp();
    answer got = enter(number, a0, a1, a2, a3, a4, a5);
    word took = stamp() - before;
    worst = took > worst ? took : worst;
    count++;
    return got;
}

static void give_tables(void) {
    must("frames for tables", call(FRAME_ALLOCATE, SLOT_OF_DONATIONS, 64, ANYWHERE, 0, 0, 0));
    must("tables", call(FRAME_DONATE, SLOT_OF_DONATIONS, SLOT_SELF, 0, 0, 0, 0));
}

// As `call`, with each entry timed.
static answer all(word number, word a0, word a1, word a2, word a3, word a4) {
    for (;;) {
        answer got = once(number, a0, a1, a2, a3, a4, 0);
        if (got.status == NO_TABLES)
            give_tables();
        else if (got.status != AGAIN)
            return got;
    }
}

static void say(const char *name, answer got) {
    printf("%s %lu %lu %lx\n", name, (unsigned long)worst, (unsigned long)count, (unsigned long)got.status);
    worst = count = 0;
}

// A batch of so many entries, each for some pages behind each other, at steps of so many bytes.
static void bind(const char *name, word operation, word frame, word entries, word pages, word step) {
    for (word i = 0; i < entries; i++) {
        word entry[4] = {operation | (operation == MAP) * (word)WRITE << 32, PLACE + i * step, frame + i * pages % FRAME_COUNT,
                         pages | (word)FRAMES << 32};
        memcpy(ENTRIES + i * 4, entry, sizeof entry);
    }
    answer got;
    for (word done = 0; done < entries;) {
        got = once(BIND, SLOT_SELF, (word)(ENTRIES + done * 4), entries - done, 0, 0, 0);
        if (got.status == NO_TABLES)
            give_tables();
        else if (got.status != AGAIN)
            break;
        done += got.value;
    }
    say(name, got);
}

// Into another's space, where authority is the last of its capabilities, and what was found for one right says
// nothing of the other.
static void bind_far(void) {
    must("frames", call(FRAME_ALLOCATE, PART, 256, ANYWHERE, 0, 0, 0));
    must("another", call(ENVIRONMENT_CREATE, ENVIRONMENT, PART, 0, 0, 0, 0));
    must("one", call(FRAME_ALLOCATE, PART, 1, ANYWHERE, 0, 0, 0));
    for (word slot = FIRST_OF_ENVIRONMENT; slot < SLOT_COUNT; slot++)
        must("grant", call(CAP_GRANT, slot < SLOT_COUNT - 1 ? PART : FRAMES, ENVIRONMENT, slot, ALL_RIGHTS, 0, 0));
    word frame = call(CAP_READ, FRAMES, 1, 0, 0, 0, 0).value;
    for (word round = 0; round < 3; round++) {
        word pages[3][4] = {{1, 1, 1, 1}, {1, RUN_PAGE_COUNT - 8, 1, 1}, {RUN_PAGE_COUNT, 1, RUN_PAGE_COUNT, 1}};
        for (word i = 0; i < 4; i++) {
            word entry[4] = {MAP | i % 2 << 32, PLACE + i * FAR * 4, frame + 1 + i, pages[round][i] | (word)FRAMES << 32};
            memcpy(ENTRIES + i * 4, entry, sizeof entry);
        }
        answer got = {0, 0};
        for (word done = 0; done < 4 && (got.status == OK || got.status == AGAIN); done += got.value)
            got = once(BIND, ENVIRONMENT, (word)(ENTRIES + done * 4), 4 - done, 0, 0, 0);
        say("map-another's", got);
    }
    // What is mapped there loses its authority among all the others.
    say("revoke-another's", all(CAP_REVOKE, FRAMES, 0, 0, 0, 0));
    say("destroy", all(ENVIRONMENT_DESTROY, ENVIRONMENT, 0, 0, 0, 0));
}

// For three frames in a row where every second one of `FRAME_COUNT` is taken.
static answer search_between(void) {
    // A search begins behind what the last one found.
    word first = must("a frame", call(FRAME_ALLOCATE, HOLE, 1, ANYWHERE, 0, 0, 0)) + 1;
    must("its place", call(FRAME_FREE, HOLE, 0, 0, 0, 0, 0));
    must("frames behind it", call(FRAME_ALLOCATE, FRAMES, FRAME_COUNT, first, 0, 0, 0));
    for (word part = 1; part < FRAME_COUNT - 1; part++) {
        must("split", call(FRAME_SPLIT, FRAMES, HOLE, FRAME_COUNT - part, 0, 0, 0));
        if (part % 2 == 0)
            must("hole", call(FRAME_FREE, HOLE, 0, 0, 0, 0, 0));
        else
            must("kept", call(FRAME_DONATE, HOLE, SLOT_SELF, 0, 0, 0, 0));
    }
    return all(FRAME_ALLOCATE, HOLE, 3, ANYWHERE, 0, 0);
}

int main(void) {
    begin();
    answer got = all(FRAME_ALLOCATE, FRAMES, FRAME_COUNT, ANYWHERE, 0, 0);
    word frame = got.value;
    say("allocate", got);
    const word layouts[3][3] = {{4, RUN_PAGE_COUNT, RUN_PAGE_COUNT * NEAR}, {ENTRY_COUNT, 1, FAR}, {ENTRY_COUNT, 2, NEAR * 4}};
    for (int i = 0; i < 3; i++) {
        bind("map", MAP, frame, layouts[i][0], layouts[i][1], layouts[i][2]);
        bind("map-again", MAP, frame, layouts[i][0], layouts[i][1], layouts[i][2]);
        bind("protect", PROTECT, frame, layouts[i][0], layouts[i][1], layouts[i][2]);
        bind("unmap", UNMAP, frame, layouts[i][0], layouts[i][1], layouts[i][2]);
    }
    bind("map", MAP, frame, ENTRY_COUNT, 2, FAR);
    for (word copy = 0; copy < COPY_COUNT; copy++)
        got = all(CAP_DERIVE, FRAMES, COPY + copy, ALL_RIGHTS, 0, FRAME_COUNT);
    say("derive", got);
    say("revoke", all(CAP_REVOKE, FRAMES, 0, 0, 0, 0));
    bind("unmap", UNMAP, frame, ENTRY_COUNT, 2, FAR);
    say("free", all(FRAME_FREE, FRAMES, 0, 0, 0, 0));
    must("frames", call(FRAME_ALLOCATE, FRAMES, FRAME_COUNT, ANYWHERE, 0, 0, 0));
    for (word part = 1; part < PART_COUNT; part++)
        got = all(FRAME_SPLIT, FRAMES, COPY + part, FRAME_COUNT - part, 0, 0);
    say("split", got);
    for (word part = 1; part < PART_COUNT; part++)
        got = all(CAP_DROP, COPY + part, 0, 0, 0, 0);
    say("drop", got);
    say("free-rest", all(FRAME_FREE, FRAMES, 0, 0, 0, 0));
    must("frames", call(FRAME_ALLOCATE, FRAMES, 256, ANYWHERE, 0, 0, 0));
    say("create", all(ENVIRONMENT_CREATE, ENVIRONMENT, FRAMES, 0, 0, 0));
    must("frames", call(FRAME_ALLOCATE, FRAMES, FRAME_COUNT, ANYWHERE, 0, 0, 0));
    for (word slot = 0; slot < GRANT_COUNT; slot++)
        got = all(CAP_GRANT, FRAMES, ENVIRONMENT, FIRST_OF_ENVIRONMENT + slot, ALL_RIGHTS, 0);
    say("grant", got);
    say("destroy", all(ENVIRONMENT_DESTROY, ENVIRONMENT, 0, 0, 0, 0));
    bind_far();
    must("the frames", call(CAP_REVOKE, FRAMES, 0, 0, 0, 0, 0));
    say("donate", all(FRAME_DONATE, FRAMES, SLOT_SELF, 0, 0, 0));
    say("search", search_between());
    return 0;
}
