// A pod with an extent of the pool that writes whatever it likes into its own session: words anywhere, counters, requests
// for sectors, extents and buffers that are not its own, a session offered anew again and again; and rings the bells of
// the service and of doubt without end. Arguments: when it is over, in milliseconds; the first sector of its neighbour.
#include "attack.h"
#include <fcntl.h>

enum { BELL_RING = 24, SLOT_SERVICE = 12, SLOT_DOUBT = 14, SESSION_WORDS = 80 * 512, RINGS = 320, DEPTH = 64 };
#define POOL ((volatile word *)(0xffff800000000000ull + (48ull << 30)))
#define MAGIC 0x3171627369676561ull

static void offer(word generation) {
    POOL[2] = 0;
    POOL[3] = DEPTH | (word)DEPTH << 32;
    POOL[RINGS + 0] = POOL[RINGS + 8] = 0;
    // The buffer is as the service was given it, under as many numbers as would use up what the disk may reach.
    for (int number = 0; number < 16; number++)
        POOL[64 + number] = 512ull << 32;
    POOL[0] = MAGIC;
    POOL[1] = generation;
    enter(BELL_RING, SLOT_SERVICE, 0, 0, 0, 0, 0);
}

// A request that looks like one, for somebody else's sectors or memory.
static void forge(word position, word neighbour) {
    volatile word *slot = POOL + RINGS + 16 + position % DEPTH * 8;
    word operation = 1 + random_word() % 6, extent = random_word() % 4 ? 0 : random_word() % 20;
    word buffer = random_word() % 4 ? random_word() % 16 : random_word() % 300, offset = random_word() % (4 << 20);
    slot[1] = random_word() % 2 ? neighbour + random_word() % 32768 : random_word() % 2 ? -neighbour : random_word();
    slot[2] = random_word() % 3 ? 8 : random_word();
    slot[3] = (random_word() % 3 ? 4096 : random_word() % (1 << 24)) | offset << 24 | buffer << 52;
    slot[7] = random_word();
    slot[0] = operation | random_word() % 16 / 15 << 8 | 1ull << 16 | extent << 32;
}

int main(int argc, char **argv) {
    word end = end_ns(argc, argv), neighbour = argc > 2 ? strtoull(argv[2], NULL, 10) : 0, rounds = 0, forged = 0;
    begin();
    // Its disk begins honestly.
    char *page = aligned_alloc(4096, 4096);
    int disk = open("/dev/vda", O_RDWR | O_DIRECT);
    if (disk < 0 || read(disk, page, 4096) != 4096)
        fail("no disk", 0);
    word generation = POOL[1];
    for (; now_ns() < end; rounds++) {
        offer(generation += 2);
        // Until it is taken, or long enough.
        for (int looks = 0; looks < 1000 && (POOL[8] & 0xffffffff) != (generation & 0xffffffff); looks++)
            enter(YIELD, 0, 0, 0, 0, 0, 0);
        word count = random_word() % DEPTH;
        for (word position = 0; position < count; position++, forged++)
            forge(position, neighbour);
        POOL[RINGS] = random_word() % 8 ? count : random_word();
        enter(BELL_RING, SLOT_SERVICE, 0, 0, 0, 0, 0);
        for (int times = random_word() % 64; times; times--)
            POOL[random_word() % SESSION_WORDS] = random_word() % 2 ? random_word() : random_word() % 1024;
        enter(BELL_RING, SLOT_DOUBT, 0, 0, 0, 0, 0);
        enter(YIELD, 0, 0, 0, 0, 0, 0);
    }
    printf("%lu rounds, %lu forged\n", (unsigned long)rounds, (unsigned long)forged);
    fflush(stdout);
    _exit(0);
}
