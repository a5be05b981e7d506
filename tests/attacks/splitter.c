// Cuts a capability for frames into single ones, maps them, takes them apart again.
#include "attack.h"

enum { COUNT = 512, FRAMES = SLOT_OWN };

int main(int argc, char **argv) {
    word end = end_ns(argc, argv), count = 0;
    begin();
    for (; now_ns() < end; count++) {
        answer got = call(FRAME_ALLOCATE, FRAMES, COUNT, ANYWHERE, 0, 0, 0);
        if (got.status != OK)
            fail("frames", got.status);
        word entry[4] = {0 | 1ull << 32, OWN + 0x1000000, got.value, COUNT | (word)FRAMES << 32};
        call(BIND, SLOT_SELF, (word)entry, 1, 0, 0, 0);
        for (word part = COUNT - 1; part > 0; part--)
            call(FRAME_SPLIT, FRAMES, FRAMES + part, part, 0, 0, 0);
        for (word part = 0; part < COUNT; part++)
            call(CAP_DROP, FRAMES + part, 0, 0, 0, 0, 0);
    }
    printf("%lu rounds\n", (unsigned long)count);
    return 0;
}
