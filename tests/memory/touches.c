// Touches so many MiB of new memory from a time on, and says how many milliseconds that took and how long it was held
// up at worst: touches MIB BEGIN_MS.
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
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
    while (now_us() < atol(words[2]) * 1000)
        usleep(1000);
    long size = atol(words[1]) << 20, start = now_us(), before = start, worst = 0;
    char *at = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (count != 3 || at == MAP_FAILED) {
        puts("refused");
        return 1;
    }
    for (long i = 0; i < size; i += 4096) {
        at[i] = 1;
        long now = now_us();
        worst = now - before > worst ? now - before : worst;
        before = now;
    }
    printf("%ld %ld\n", (before - start) / 1000, worst / 1000);
    return 0;
}
