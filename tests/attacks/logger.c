// Writes to the kernel's log as fast as it can, for those who may; asks all the same if it may not.
#include "attack.h"

int main(int argc, char **argv) {
    word end = end_ns(argc, argv), count = 0, refused = 0;
    begin();
    char *text = (char *)OWN + 4096;
    memset(text, '.', 255);
    text[255] = '\n';
    for (; now_ns() < end; count++)
        refused += call(MACHINE_LOG, SLOT_MACHINE, (word)text, 256, 0, 0, 0).status != OK;
    printf("%lu logs, %lu refused\n", (unsigned long)count, (unsigned long)refused);
    return 0;
}
