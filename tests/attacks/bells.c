// As many virtual processors as it gets, up to 64, each asleep until one of 16 bells has been rung at the end of time:
// so all bells concern sleepers, and none wakes one. Then has the clock ring all its bells at one instant, again and
// again, and sleeps itself until then.
#include "attack.h"

enum {
    BELL_CREATE = 23, BELL_RING_AT = 41, BELL = 1, CLOCK = 2, AT_LEAST = 2,
    SLEEPER_COUNT = 64, PRODUCT_COUNT = 16, BELL_COUNT = 1024, FRAMES = SLOT_OWN, BELLS = SLOT_OWN + 256
};
#define TERMS (OWN + 4096)
#define TERM_BYTES 32
// What arming one bell takes at most.
#define ARM_NS 2000

// 16 products of two terms each (abi/src/sleep.rs: product, source, operator, slot, address, value).
static word terms_of(word sleeper, word bells) {
    word *terms = (word *)(TERMS + sleeper * PRODUCT_COUNT * 2 * TERM_BYTES);
    for (word product = 0; product < PRODUCT_COUNT; product++) {
        word slot = BELLS + (sleeper * PRODUCT_COUNT + product) % bells;
        word both[8] = {product | (word)BELL << 32, AT_LEAST | slot << 32, 0, 1, product | (word)CLOCK << 32, AT_LEAST, 0, ~0ull};
        memcpy(terms + product * 8, both, sizeof both);
    }
    return (word)terms;
}

int main(int argc, char **argv) {
    word end = end_ns(argc, argv), rounds = 0, bells = 0, made = 0, armed = 0;
    begin();
    while (bells < BELL_COUNT && call(BELL_CREATE, BELLS + bells, 0, 0, 0, 0, 0).status == OK)
        bells++;
    if (!bells)
        fail("no bells", 0);
    for (; made < SLEEPER_COUNT; made++) {
        word slot = FRAMES + made * 2;
        if (call(FRAME_ALLOCATE, slot, 3, ANYWHERE, 0, 0, 0).status != OK
            || call(PROCESSOR_CREATE, slot + 1, SLOT_SELF, slot, 2, OWN + 0x100000 + made * 0x10000, OWN + 0x101000 + made * 0x10000).status != OK
            || call(PROCESSOR_START, slot + 1, SLEEPER_AT, OWN + 0x30000, terms_of(made, bells), 0, 0).status != OK)
            break;
    }
    // So that all of them come to their sleep.
    usleep(20000);
    for (; now_ns() < end; rounds++) {
        word instant = now_ns() + bells * ARM_NS;
        for (word bell = 0; bell < bells; bell++)
            armed += enter(BELL_RING_AT, BELLS + bell, instant, 0, 0, 0, 0).status == OK;
        while (now_ns() < instant)
            usleep(100);
    }
    printf("%lu rounds, %lu bells armed of %lu beside %lu sleepers\n", (unsigned long)rounds, (unsigned long)(armed / (rounds ? rounds : 1)), (unsigned long)bells, (unsigned long)made);
    return 0;
}
