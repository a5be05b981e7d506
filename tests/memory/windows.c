// Counts what it can do in windows of 250 ms, and says the counts: windows BEGIN_MS END_MS.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int main(int count, char **words)
{
    long next = atol(words[1]) * 1000, end = atol(words[2]) * 1000, done = 0;
    while (now_us() < next)
        usleep(1000);
    for (next += 250000; count == 3 && next <= end; next += 250000) {
        for (done = 0; now_us() < next; done++)
            for (int i = 0; i < 100; i++)
                __asm__ volatile("");
        printf("%ld ", done);
    }
    puts("");
    return 0;
}
