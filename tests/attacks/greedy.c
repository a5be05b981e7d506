// Holds its slice ends back: sees in its control page that the slice is over, goes on for five milliseconds, yields just
// before the kernel would stop it. Says what `honest count` does: greedy END_MS BEGIN_MS.
#include "attack.h"

int main(int argc, char **argv) {
    word end = end_ns(argc, argv), start = strtoull(argv[2], NULL, 10) * 1000000ull, count = 0;
    begin();
    while (now_ns() < start)
        usleep(1000);
    word used = used_ns();
    int is_polite = argc > 3;
    const word slice_end = 1ull << (32 + 3);
    if (!is_polite)
        CONTROL[4 + 3] = OWN;
    for (word now = now_ns(); now < end; now = now_ns()) {
        if (!is_polite)
            *(volatile uint32_t *)&CONTROL[3] = 1;
        for (int i = 0; i < 100; i++)
            __asm__ volatile("inc %0" : "+r"(count));
        if (CONTROL[3] & slice_end) {
            word until = now_ns() + 5000000;
            until = until < end ? until : end;
            while (now_ns() < until)
                for (int i = 0; i < 100; i++)
                    __asm__ volatile("inc %0" : "+r"(count));
            __atomic_and_fetch(&CONTROL[3], ~slice_end, __ATOMIC_SEQ_CST);
            enter(YIELD, 0, 0, 0, 0, 0, 0);
        }
    }
    CONTROL[4 + 3] = 0;
    *(volatile uint32_t *)&CONTROL[3] = 0;
    printf("%lu %lu\n", (unsigned long)count, (unsigned long)(used_ns() - used));
    return 0;
}
