// As many virtual processors as it gets, up to 64, each asleep until one of 32 words changes, which none does; then
// yields, so that all are looked at all the time.
#include "attack.h"

enum { SLEEPER_COUNT = 64, FRAMES = SLOT_OWN, TERMS = OWN + 4096 };

int main(int argc, char **argv) {
    word end = end_ns(argc, argv), count = 0, made = 0, frame = begin();
    // 32 products of one term each: a word of ours is 1 (abi/src/sleep.rs: product, source, operator, slot, address).
    word *terms = (word *)TERMS;
    for (word term = 0; term < 32; term++) {
        terms[term * 4] = term | 0ull << 32;
        terms[term * 4 + 1] = 0 | (word)SLOT_PAGES << 32;
        terms[term * 4 + 2] = (frame + 2) * 4096 + term * 64;
        terms[term * 4 + 3] = 1;
    }
    for (; made < SLEEPER_COUNT; made++) {
        word slot = FRAMES + made * 2;
        if (call(FRAME_ALLOCATE, slot, 3, ANYWHERE, 0, 0, 0).status != OK
            || call(PROCESSOR_CREATE, slot + 1, SLOT_SELF, slot, 2, OWN + 0x100000 + made * 0x10000, OWN + 0x101000 + made * 0x10000).status != OK
            || call(PROCESSOR_START, slot + 1, SLEEPER_AT, OWN + 0x8000, TERMS, 0, 0).status != OK)
            break;
    }
    for (; now_ns() < end; count++)
        enter(YIELD, 0, 0, 0, 0, 0, 0);
    printf("%lu yields beside %lu sleepers\n", (unsigned long)count, (unsigned long)made);
    return 0;
}
