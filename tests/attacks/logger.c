// Asks to write to the kernel's log as fast as it can, which no pod may.
#include "attack.h"

int main(int argc, char **argv) {
    word end = end_ns(argc, argv), count = 0, refused = 0;
    begin();
    // Sixteen bytes, in registers: fifteen points and the end of a line.
    word low = 0x2e2e2e2e2e2e2e2e, high = 0x0a2e2e2e2e2e2e2e;
    for (; now_ns() < end; count++)
        refused += call(MACHINE_LOG, SLOT_MACHINE, 16, low, high, 0, 0).status != OK;
    printf("%lu logs, %lu refused\n", (unsigned long)count, (unsigned long)refused);
    return 0;
}
