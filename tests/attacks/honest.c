// The neighbour: sleeps a millisecond at a time, or counts, and looks after its memory. Prints one line.
//   honest sleep BEGIN_MS END_MS: mean and worst sleep in microseconds, number of sleeps
//   honest count BEGIN_MS END_MS: how far it counted, and the processor time that it had for that
#include "attack.h"

enum { WORD_COUNT = 1 << 18 };
static uint64_t pattern[WORD_COUNT];

static uint64_t at(uint64_t index) {
    return (index + 1) * 0x9e3779b97f4a7c15ull;
}

// Looks at a part of the memory, a different one each time.
static void look(uint64_t turn, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        uint64_t index = (turn * count + i) % WORD_COUNT;
        if (pattern[index] != at(index)) {
            printf("memory has changed at word %lu: %#lx\n", (unsigned long)index, (unsigned long)pattern[index]);
            exit(4);
        }
    }
}

int main(int argc, char **argv) {
    begin();
    int sleeps = !strcmp(argv[1], "sleep");
    uint64_t from = strtoull(argv[2], NULL, 10) * 1000000, end = strtoull(argv[3], NULL, 10) * 1000000;
    for (uint64_t index = 0; index < WORD_COUNT; index++)
        pattern[index] = at(index);
    uint64_t count = 0, sum = 0, worst = 0, turn = 0;
    struct timespec millisecond = {0, 1000000};
    while (now_ns() < from)
        nanosleep(&millisecond, NULL);
    uint64_t used = used_ns();
    for (uint64_t now = now_ns(); now < end; turn++) {
        if (sleeps) {
            nanosleep(&millisecond, NULL);
            uint64_t after = now_ns(), took = after - now;
            sum += took;
            worst = took > worst ? took : worst;
            count++;
            look(turn, 64);
            now = now_ns();
        } else {
            for (int i = 0; i < 100; i++)
                __asm__ volatile("inc %0" : "+r"(count));
            look(turn, 8);
            now = now_ns();
        }
    }
    used = used_ns() - used;
    look(0, WORD_COUNT);
    if (sleeps)
        printf("%lu %lu %lu\n", (unsigned long)(sum / (count ? count : 1) / 1000), (unsigned long)(worst / 1000), (unsigned long)count);
    else
        printf("%lu %lu\n", (unsigned long)count, (unsigned long)used);
    return 0;
}
