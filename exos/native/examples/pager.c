/*
 * A program that pages by itself: an array larger than the machine's memory, whose pages it makes when they are touched
 * and gives up, oldest first, when memory runs out. What is hot stays: the accessed bits of the page table decide (the
 * clock algorithm), not a guess of the system's.
 *
 *     gcc -O2 -I exos/native/include -o pager exos/native/examples/pager.c
 *     ./aegis run -m 64M ./pager 128
 *
 * The argument is the size in MiB. A real pager would read and write a file where this one computes.
 */
#include "exos.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE_BYTES 4096UL
#define WORDS_OF_PAGE (PAGE_BYTES / sizeof(uint64_t))
/* Pages that are given up at a time. */
#define EVICTED_COUNT EXOS_CHANGE_COUNT_MAX
/* Pages that the clock's hand looks at in one call. */
#define LOOK_COUNT 2048
/* One in so many accesses goes to the first HOT_PAGES pages. */
#define HOT_EVERY 2
#define HOT_PAGES 256

static uint64_t *array;
static size_t page_count;
static size_t hand;
static unsigned long filled_count, evicted_count, hot_filled_count;

static uint64_t content(size_t page, size_t word) {
    uint64_t x = (page << 20 | word) * 0x9e3779b97f4a7c15;
    return x ^ x >> 29;
}

/* A page is wanted that is not there: allow it, and make its contents. */
static void fill(struct exos_fault *fault) {
    size_t page = (fault->address - (uintptr_t)array) / PAGE_BYTES;
    uint64_t *words = array + page * WORDS_OF_PAGE;
    struct exos_change change = {words, PAGE_BYTES, EXOS_CHANGE_PROTECT, PROT_READ | PROT_WRITE};
    if (exos_apply(&change, 1) != 1) abort();
    for (size_t word = 0; word < WORDS_OF_PAGE; word++) words[word] = content(page, word);
    filled_count++;
    hot_filled_count += page < HOT_PAGES;
}

/* What evict() works on. It has to be there before: nobody can give it memory when there is none. */
static unsigned char bits[LOOK_COUNT];
static struct exos_change changes[EVICTED_COUNT];

/* Memory has run out: the hand goes on over the array and takes what was not touched since it was there last. */
static void evict(struct exos_fault *fault) {
    size_t count = 0;
    (void)fault;
    for (size_t looked = 0; count < EVICTED_COUNT && looked <= 2 * page_count; looked += LOOK_COUNT) {
        size_t some = page_count - hand < LOOK_COUNT ? page_count - hand : LOOK_COUNT;
        char *start = (char *)array + hand * PAGE_BYTES;
        if (exos_pages(start, some * PAGE_BYTES, bits, EXOS_PAGES_CLEAR) != 0) abort();
        for (size_t i = 0; i + 1 < some && count + 1 < EVICTED_COUNT; i++) {
            if (!(bits[i] & EXOS_PAGE_PRESENT) || bits[i] & EXOS_PAGE_ACCESSED) continue;
            /* Fresh pages without rights: the contents go, and the next touch is a fault again. */
            changes[count++] = (struct exos_change){start + i * PAGE_BYTES, PAGE_BYTES, EXOS_CHANGE_MAP, PROT_NONE};
        }
        hand = (hand + some) % page_count;
        if (count > 0 && exos_apply(changes, count) != (long)count) abort();
        evicted_count += count;
        if (count > 0) return;
    }
}

int main(int argc, char **argv) {
    size_t megabytes = argc > 1 ? strtoul(argv[1], NULL, 10) : 128;
    if (exos_version() != EXOS_VERSION) {
        fputs("pager: this system has no native interface of exos\n", stderr);
        return 2;
    }
    page_count = (megabytes << 20) / PAGE_BYTES;
    array = mmap(NULL, page_count * PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (array == MAP_FAILED || page_count <= HOT_PAGES) return 1;
    if (exos_handle_faults(array, page_count * PAGE_BYTES, fill, NULL) != 0) return 1;
    memset(bits, 1, sizeof bits);
    memset(changes, 1, sizeof changes);
    if (exos_handle_shortage(evict, NULL) != 0) return 1;

    uint64_t random = 88172645463325252;
    for (size_t turn = 0; turn < 4 * page_count; turn++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        size_t page = turn % HOT_EVERY == 0 ? random % HOT_PAGES : random % page_count;
        size_t word = random >> 40 & (WORDS_OF_PAGE - 1);
        if (array[page * WORDS_OF_PAGE + word] != content(page, word)) {
            fprintf(stderr, "pager: page %zu is wrong\n", page);
            return 1;
        }
    }
    printf("%zu pages, all right; filled %lu, evicted %lu, hot ones filled %lu times\n", page_count, filled_count,
           evicted_count, hot_filled_count);
    return evicted_count == 0;
}
