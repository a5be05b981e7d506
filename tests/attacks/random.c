// Any call with any arguments: random END_MS [SEED [CALLS]]. It spares what its own library OS stands on, so that it
// lives long: that it could end itself is no news.
#include "attack.h"

enum { OWN_SLOT_COUNT = 48, SLOT_END = 4200 };

static word slot(void) {
    word chance = random_word() % 64;
    return chance == 0 ? random_word() : chance < 4 ? random_word() % SLOT_END : SLOT_OWN + random_word() % OWN_SLOT_COUNT;
}

static word some_word(void) {
    static const word words[] = {0, 1, 2, 3, 8, 64, 511, 512, 513, 4095, 4096, 1ull << 31, 1ull << 32, 1ull << 63, ~0ull, ~0ull - 1};
    switch (random_word() % 8) {
    case 0: return words[random_word() % 16];
    case 1: return OWN + 0x1000000 + random_word() % 64 * 4096;
    case 2: return OWN + 4096 + random_word() % 512 * 8;
    case 3: return random_word();
    case 4: return 0xffff840000000000ull + random_word() % 4096 * 4096;
    default: return slot();
    }
}

// What would end or stop this very program, or have it sleep for ever.
static int is_spared(word number, word a0) {
    if (number == SLEEP || number == GATE_CALL || number == GATE_CALL + 1 || number == GATE_REPLY || number == SPACE_ENTER
        || number == BELL_AWAIT)
        return 1;
    // The library OS takes slots from both ends.
    int is_own = a0 >= SLOT_OWN && a0 < SLOT_OWN + OWN_SLOT_COUNT;
    return a0 < SLOT_END && !is_own && number != FRAME_ALLOCATE && number != CAP_READ;
}

int main(int argc, char **argv) {
    word end = end_ns(argc, argv), count = 0, done = 0;
    random_state ^= argc > 2 ? strtoull(argv[2], NULL, 10) * 0x9e3779b97f4a7c15ull : 0;
    word limit = argc > 3 ? strtoull(argv[3], NULL, 10) : ~0ull;
    begin();
    word *entries = (word *)(OWN + 4096);
    while (count < limit && (count % 64 || now_ns() < end)) {
        word number = random_word() % CALL_COUNT, a[6] = {slot(), some_word(), some_word(), some_word(), some_word(), some_word()};
        if (number == BIND) {
            a[0] = SLOT_SELF;
            a[1] = (word)entries;
            a[2] = random_word() % 5;
            for (int i = 0; i < 4; i++) {
                entries[i * 4] = random_word() % 5 | (random_word() & 15) << 32;
                entries[i * 4 + 1] = OWN + 0x1000000 + random_word() % 1024 * 4096;
                entries[i * 4 + 2] = random_word() % 2 ? call(CAP_READ, SLOT_OWN + random_word() % 48, 1, 0, 0, 0, 0).value : random_word() % 65536;
                entries[i * 4 + 3] = random_word() % 600 | slot() << 32;
            }
        } else if (is_spared(number, a[0]))
            continue;
        if (number == FRAME_ALLOCATE) {
            a[1] = 1 + random_word() % 32;
            a[2] = ANYWHERE;
            a[3] = 0;
        }
        count++;
        done += enter(number, a[0], a[1], a[2], a[3], a[4], a[5]).status == OK;
    }
    printf("%lu calls, %lu done\n", (unsigned long)count, (unsigned long)done);
    return 0;
}
