/*
 * Watched memory in the kernel's placement: what its extension answers and writes down, what it leaves to the handler,
 * and wrong or hostile arguments. Says so where nothing answers in the kernel.
 */
#define _GNU_SOURCE
#include "exos.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define PAGES 64
#define SHADOWS 16
#define CHECK(condition) \
    do { if (!(condition)) { printf("line %d: %s\n", __LINE__, #condition); exit(1); } } while (0)

int main(void);

static volatile char *region;
static volatile uint64_t *notes;
static volatile char *shadows;
static int memory_file;
static volatile int told;
static uint64_t told_cause;

static void handler(struct exos_fault *fault) {
    told_cause = fault->cause;
    __atomic_add_fetch(&told, 1, __ATOMIC_RELAXED);
}

static uint64_t thread_pointer(void) {
    uint64_t pointer;
    __asm__("mov %%fs:0, %0" : "=r"(pointer));
    return pointer;
}

static void *map(size_t pages, int kind, int file) {
    void *start = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, kind, file, 0);
    CHECK(start != MAP_FAILED);
    return start;
}

static long watch(int kind) {
    struct exos_change change = {(void *)region, PAGES * PAGE, kind, 0};
    return exos_apply(&change, 1);
}

static long place(size_t shadow_count) {
    struct exos_placement placement = {(void *)notes, (void *)shadows, shadow_count};
    return exos_watch(EXOS_WATCH_PLACE, (void *)region, PAGES * PAGE, &placement);
}

/* Everything closed, nothing noted, this thread answered. */
static void begin(int operation) {
    CHECK(exos_watch(operation, (void *)region, PAGES * PAGE, NULL) == 0);
    notes[EXOS_NOTES_TOUCH_COUNT] = notes[EXOS_NOTES_SHADOW_COUNT] = 0;
    notes[EXOS_NOTES_OWNER] = thread_pointer();
    told = 0;
}

static uint64_t note(int index) {
    return notes[EXOS_NOTES_TOUCH_FIRST + index];
}

static void *touch_elsewhere(void *argument) {
    (void)argument;
    region[5 * PAGE] = 1;
    return NULL;
}

static int is_wrong(long answer) {
    return answer == -EINVAL || answer == -EFAULT || answer == -ENOMEM;
}

static void wrong_arguments(void) {
    static const uintptr_t places[] = {0, 1, 0x1234, (1UL << 47) - PAGE, 1UL << 47, 0xffff800000000000, -PAGE, -1UL};
    struct exos_placement placement = {(void *)notes, (void *)shadows, 0};
    for (size_t a = 0; a < sizeof places / sizeof *places; a++) {
        void *at = (void *)places[a];
        for (unsigned operation = 0; operation < 6; operation++)
            for (size_t b = 0; b < sizeof places / sizeof *places; b++)
                CHECK(is_wrong(exos_watch(operation, at, places[b], &placement)));
        CHECK(is_wrong(exos_watch(EXOS_WATCH_PLACE, (void *)region, PAGES * PAGE, at)));
        CHECK(is_wrong(exos_watch(EXOS_WATCH_CLOSE_STORES, (void *)region, places[a] | PAGE << 10, NULL)));
    }
    CHECK(place(EXOS_NOTES_TOUCH_COUNT_MAX + 1) == -EINVAL);
    CHECK(exos_watch(EXOS_WATCH_CLOSE_STORES, (void *)region, (PAGES + 1) * PAGE, NULL) == -EINVAL);
    CHECK(exos_watch(EXOS_WATCH_FORGET, (char *)region + PAGE, 0, NULL) == -EINVAL);
}

/* Notes and shadows that are not there, or lie in the region itself: the handler is told, and nothing else happens. */
static void wrong_places(void) {
    const struct exos_placement wrong[] = {
        {(void *)0x10000, (void *)shadows, SHADOWS},
        {(void *)notes, (void *)0x10000, SHADOWS},
        {(void *)region, (void *)shadows, SHADOWS},
        {(void *)notes, (void *)region, SHADOWS},
        {(char *)main - ((uintptr_t)main & (PAGE - 1)), (void *)shadows, SHADOWS},
        {(void *)notes, (char *)main - ((uintptr_t)main & (PAGE - 1)), 1},
    };
    for (size_t index = 0; index < sizeof wrong / sizeof *wrong; index++) {
        CHECK(exos_watch(EXOS_WATCH_PLACE, (void *)region, PAGES * PAGE, &wrong[index]) == 0);
        begin(EXOS_WATCH_CLOSE_ACCESSES);
        region[20 * PAGE] = 9;
        CHECK(told == 1 && region[20 * PAGE] == 9);
    }
    CHECK(place(SHADOWS) == 0);
}

static void *churn(void *argument) {
    unsigned seed = (uintptr_t)argument;
    struct exos_placement placement = {(void *)notes, (void *)shadows, SHADOWS};
    for (int turn = 0; turn < 3000; turn++) {
        char *at = (char *)region + rand_r(&seed) % PAGES * PAGE;
        switch (rand_r(&seed) % 12) {
        case 0: exos_watch(EXOS_WATCH_CLOSE_STORES, at, PAGE, NULL); break;
        case 1: exos_watch(EXOS_WATCH_CLOSE_ACCESSES, at, 4 * PAGE, NULL); break;
        case 2: exos_watch(EXOS_WATCH_PLACE, (void *)region, PAGES * PAGE, &placement); break;
        case 3: exos_watch(EXOS_WATCH_FORGET, (void *)region, 0, NULL); break;
        case 4: notes[EXOS_NOTES_OWNER] = thread_pointer(); break;
        case 5: notes[rand_r(&seed) % 8] = (uint64_t)rand_r(&seed) << 33 | rand_r(&seed); break;
        case 6: notes[EXOS_NOTES_TOUCH_COUNT] = notes[EXOS_NOTES_SHADOW_COUNT] = rand_r(&seed) % 4; break;
        case 7: madvise((void *)(rand_r(&seed) & 1 ? notes : (void *)shadows), PAGE, MADV_DONTNEED); break;
        case 8: watch(rand_r(&seed) & 1 ? EXOS_CHANGE_WATCH_STORES : EXOS_CHANGE_WATCH_ACCESSES); break;
        case 9: {
            struct exos_change change = {at, PAGE, EXOS_CHANGE_PROTECT, PROT_READ | PROT_WRITE};
            exos_apply(&change, 1);
            break;
        }
        default: *at = (char)turn; (void)*(volatile char *)at;
        }
    }
    return NULL;
}

int main(void) {
    memory_file = memfd_create("placed", 0);
    CHECK(memory_file >= 0 && ftruncate(memory_file, PAGES * PAGE) == 0);
    region = map(PAGES, MAP_SHARED, memory_file);
    notes = map(1 + SHADOWS, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    CHECK(madvise((void *)notes, (1 + SHADOWS) * PAGE, MADV_NOHUGEPAGE) == 0);
    memset((void *)notes, 0, (1 + SHADOWS) * PAGE);
    shadows = (volatile char *)notes + PAGE;
    for (int page = 0; page < PAGES; page++)
        region[page * PAGE] = (char)page;
    if (exos_version() < 4) {
        puts("no exos here");
        return 0;
    }
    CHECK(place(SHADOWS) == -EINVAL); /* it is not watched */
    CHECK(exos_handle_faults((void *)region, PAGES * PAGE, handler, NULL) == 0);
    CHECK(watch(EXOS_CHANGE_WATCH_STORES) == 1);
    long answer = place(SHADOWS);
    if (answer == -ENOSYS) {
        puts("nothing answers in the kernel");
        return 0;
    }
    CHECK(answer == 0);
    wrong_arguments();
    /* Nothing is withheld that was not given: the first stores are the library OS's to answer. */
    for (int page = 0; page < PAGES; page++)
        region[page * PAGE] = (char)page;
    CHECK(told == PAGES);

    begin(EXOS_WATCH_CLOSE_STORES);
    region[3 * PAGE + 8] = 42;
    CHECK(region[3 * PAGE] == 3 && told == 0 && notes[EXOS_NOTES_TOUCH_COUNT] == 1);
    CHECK(note(0) == (3 << 16 | 1 << 1 | 1) && shadows[8] == 0 && shadows[0] == 3 && region[3 * PAGE + 8] == 42);
    region[3 * PAGE + 9] = 43;
    CHECK(notes[EXOS_NOTES_TOUCH_COUNT] == 1);
    puts("a store is answered, with its shadow");

    begin(EXOS_WATCH_CLOSE_ACCESSES);
    CHECK(region[4 * PAGE] == 4 && note(0) == 4 << 16);
    region[4 * PAGE] = 44;
    CHECK(told == 0 && notes[EXOS_NOTES_TOUCH_COUNT] == 2 && note(1) == (4 << 16 | 1 << 1 | 1) && shadows[0] == 4);
    puts("a load is answered, and the store after it");

    begin(EXOS_WATCH_CLOSE_STORES);
    notes[EXOS_NOTES_OWNER] = 0;
    region[6 * PAGE] = 1;
    CHECK(told == 1 && notes[EXOS_NOTES_TOUCH_COUNT] == 0 && (told_cause & EXOS_CAUSE_STORE) != 0);
    begin(EXOS_WATCH_CLOSE_STORES);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, touch_elsewhere, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(told == 1 && notes[EXOS_NOTES_TOUCH_COUNT] == 0 && region[5 * PAGE] == 1);
    puts("nobody's and another's touches are told");

    begin(EXOS_WATCH_CLOSE_STORES);
    for (int page = 0; page < SHADOWS + 4; page++)
        region[page * PAGE] = 7;
    CHECK(told == 4 && notes[EXOS_NOTES_SHADOW_COUNT] == SHADOWS && notes[EXOS_NOTES_TOUCH_COUNT] == SHADOWS);
    begin(EXOS_WATCH_CLOSE_ACCESSES);
    notes[EXOS_NOTES_SHADOW_COUNT] = SHADOWS;
    CHECK(region[0] == 7 && told == 0);
    region[0] = 8;
    CHECK(told == 1 && region[0] == 8);
    notes[EXOS_NOTES_TOUCH_COUNT] = EXOS_NOTES_TOUCH_COUNT_MAX;
    CHECK(region[PAGE] == 7 && told == 2);
    region[PAGE] = 8; /* opened for loads alone */
    CHECK(told == 3);
    puts("without room they are told");

    begin(EXOS_WATCH_CLOSE_ACCESSES);
    char byte = 99;
    int pipes[2];
    CHECK(pipe(pipes) == 0 && write(pipes[1], &byte, 1) == 1 && read(pipes[0], (char *)region + 7 * PAGE, 1) == 1);
    CHECK(region[7 * PAGE] == 99 && notes[EXOS_NOTES_TOUCH_COUNT] + (unsigned)told >= 1);
    puts("a system call touches as the program does");

    begin(EXOS_WATCH_CLOSE_ACCESSES);
    pid_t child = fork();
    if (child == 0) {
        region[8 * PAGE] = 5; /* the child is placed nowhere */
        _exit(notes[EXOS_NOTES_TOUCH_COUNT] != 0 || region[8 * PAGE] != 5);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0 && region[8 * PAGE] == 5);
    CHECK(notes[EXOS_NOTES_TOUCH_COUNT] + (unsigned)told == 1); /* the notes are copied on write now */
    puts("a child is told by itself");

    wrong_places();
    puts("notes and shadows at wrong places are not written to");

    pthread_t threads[4];
    for (uintptr_t index = 0; index < 4; index++)
        CHECK(pthread_create(&threads[index], NULL, churn, (void *)(index + 1)) == 0);
    for (int index = 0; index < 4; index++)
        CHECK(pthread_join(threads[index], NULL) == 0);
    puts("four threads that do anything end");

    CHECK(place(SHADOWS) == 0);
    begin(EXOS_WATCH_CLOSE_ACCESSES);
    CHECK(munmap((void *)region, PAGES * PAGE) == 0);
    CHECK(mmap((void *)region, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
          (void *)region);
    for (int page = 0; page < PAGES; page++)
        CHECK(region[page * PAGE] == 0);
    region[0] = 1;
    CHECK(notes[EXOS_NOTES_TOUCH_COUNT] == 0);
    puts("what is mapped there afterwards is not watched");
    return 0;
}
