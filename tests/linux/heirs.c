/* Address spaces that come one after the other: what one process made of its text and its memory is nothing that the next child of
 * the same parent, or the next run of the same program, finds. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define PLACE ((char *)0x10000000000)
#define FIRST 42

/* mov $42, %eax; ret: in a page of its own. */
__asm__(".pushsection .text\n.balign 4096\nanswer: .byte 0xb8\n.long 42\n.byte 0xc3\n.balign 4096\n.popsection");
int answer(void);
static const char text[2 * PAGE] __attribute__((aligned(PAGE))) = "as the file says";

static void fail(const char *what)
{
    printf("FAILED: %s, errno %d\n", what, errno);
    fflush(stdout);
    _exit(1);
}

#define CHECK(truth) ((truth) ? (void)0 : fail(#truth))

static const char *volatile text_now = text;

static int asked(void)
{
    int (*volatile ask)(void) = answer;
    return ask();
}

/* From now on this process's function answers something else. */
static void become(int number)
{
    char *page = (char *)answer;
    CHECK(mprotect(page, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
    memcpy(page + 1, &number, 4);
    CHECK(mprotect(page, PAGE, PROT_READ | PROT_EXEC) == 0);
    CHECK(asked() == number);
}

static int is_mapped(const char *place)
{
    int ends[2];
    char byte;
    CHECK(pipe(ends) == 0);
    int result = write(ends[1], place, 1) == 1 && read(ends[0], &byte, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return result;
}

/* What a process must find where nobody changed anything but its parent, and then what it leaves behind. */
static void live(int expected, int number)
{
    CHECK(asked() == expected);
    CHECK(strcmp(text_now, "as the file says") == 0);
    CHECK(!is_mapped(PLACE) && !is_mapped(PLACE + PAGE));
    if (number % 4 == 0)
        return;
    become(1000 + number);
    char *secret = mmap(PLACE, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(secret == PLACE && secret[0] == 0 && secret[PAGE] == 0);
    memset(secret, 's', 2 * PAGE);
    CHECK(mprotect(secret, 2 * PAGE, number % 4 == 1 ? PROT_READ : PROT_READ | PROT_EXEC) == 0);
    uintptr_t page = (uintptr_t)text_now & -PAGE;
    if (number % 4 == 2) {
        CHECK(mmap((void *)page, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
        CHECK(text_now[0] == 0);
    } else if (number % 4 == 3) {
        CHECK(mprotect((void *)page, PAGE, PROT_READ | PROT_WRITE) == 0);
        strcpy((char *)page, "as nobody else says");
        CHECK(mprotect((void *)page, PAGE, PROT_READ) == 0);
    }
}

static void await(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void child_of(int expected, int number)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        live(expected, number);
        if (number % 5 == 0) {
            pid_t grandchild = fork();
            CHECK(grandchild >= 0);
            if (grandchild == 0) {
                CHECK(asked() == (number % 4 == 0 ? expected : 1000 + number));
                _exit(0);
            }
            await(grandchild);
        }
        _exit(0);
    }
    await(child);
}

static void run(int number, int as_user)
{
    char word[16];
    snprintf(word, sizeof word, "%d", number);
    char *arguments[] = {"heirs", "live", word, NULL};
    pid_t child = as_user ? fork() : vfork();
    CHECK(child >= 0);
    if (child == 0) {
        /* A process without root's rights keeps its identity. */
        if (as_user && setuid(1000 + number) != 0 && errno != EPERM)
            _exit(2);
        execv("/proc/self/exe", arguments);
        _exit(3);
    }
    await(child);
}

static void *sleep_on(void *nothing)
{
    for (;;)
        pause();
    return nothing;
}

/* The program is run from beside threads that wait. */
static void run_among_threads(int number)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char word[16];
        snprintf(word, sizeof word, "%d", number);
        char *arguments[] = {"heirs", "live", word, NULL};
        become(77);
        for (int i = 0; i < 3; i++) {
            pthread_t thread;
            CHECK(pthread_create(&thread, NULL, sleep_on, NULL) == 0);
        }
        execv("/proc/self/exe", arguments);
        _exit(3);
    }
    await(child);
}

static void rounds(int seed, int count)
{
    for (int i = 0; i < count; i++) {
        child_of(FIRST, seed + i);
        run(seed + i, i % 3 == 0);
        if (i % 8 == 0)
            run_among_threads(seed + i);
    }
    become(seed);
    for (int i = 0; i < count; i++) {
        child_of(seed, seed + i);
        if (i % 4 == 0)
            run(seed + i, 0);
    }
    become(FIRST);
    for (int i = 0; i < count / 2; i++)
        child_of(FIRST, i);
}

int main(int count, char **words)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    if (count == 3) {
        live(FIRST, atoi(words[2]));
        return 0;
    }
    rounds(100, 24);
    printf("one after the other\n");
    pid_t children[4];
    for (int i = 0; i < 4; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0) {
            rounds(10000 * (i + 1), 16);
            _exit(0);
        }
    }
    for (int i = 0; i < 4; i++)
        await(children[i]);
    printf("four beside each other\n");
    child_of(FIRST, 1);
    child_of(FIRST, 0);
    return 0;
}
