// Revokes a capability for frames that are pinned and of which it made 128 copies, again and again.
#include "attack.h"

enum { COPY_COUNT = 128, FRAMES = SLOT_OWN, PROCESSOR = SLOT_OWN + 1, COPY = SLOT_OWN + 8 };

int main(int argc, char **argv) {
    word end = end_ns(argc, argv), count = 0;
    begin();
    must("frames", call(FRAME_ALLOCATE, FRAMES, 3, ANYWHERE, 0, 0, 0));
    // A processor that never starts pins its pages.
    answer made = call(PROCESSOR_CREATE, PROCESSOR, SLOT_SELF, FRAMES, 2, OWN + 0x100000, OWN + 0x110000);
    for (; now_ns() < end; count++) {
        for (word copy = 0; copy < COPY_COUNT; copy++)
            call(CAP_DERIVE, copy % 2 ? COPY + copy - 1 : FRAMES, COPY + copy, ~0u & 0x3ff, 0, 3, 0);
        call(CAP_REVOKE, FRAMES, 0, 0, 0, 0, 0);
    }
    printf("%lu revocations, pinned: %#lx\n", (unsigned long)count, (unsigned long)made.status);
    return 0;
}
