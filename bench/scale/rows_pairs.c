/*
 * Two threads (or processes) that share nothing, on a processor each, beside one alone on the same machine. A row is the
 * time for one operation of the two together, a thousandth of the time that the one alone takes for one: 500 is twice as
 * fast, 1000 not faster at all. One and two take turns, so that what else happens on the host falls on both.
 */
#include "micro.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define TURN_NS 40000000
#define WHOLE_NS 100000000.0
#define TOUCHED_PAGES 16
#define LINE_BYTES 64

/* One side's own things. */
struct side {
    char path[64];
    int file, pipe_ends[2];
    char bytes[PAGE_BYTES];
};

/* Does it once; 0 if it worked. */
typedef int (*operation)(struct side *side);

static int do_stat(struct side *side) {
    struct stat status;
    return stat(side->path, &status);
}

static int do_pread(struct side *side) {
    return pread(side->file, side->bytes, PAGE_BYTES, 0) != PAGE_BYTES;
}

static int do_pipe(struct side *side) {
    return write(side->pipe_ends[1], side->bytes, 512) != 512 || read(side->pipe_ends[0], side->bytes, 512) != 512;
}

static int do_touch(struct side *side) {
    (void)side;
    char *start = mmap(NULL, TOUCHED_PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return -1;
    for (int i = 0; i < TOUCHED_PAGES; i++) *(volatile char *)(start + i * PAGE_BYTES) = 1;
    return munmap(start, TOUCHED_PAGES * PAGE_BYTES);
}

static int do_create(struct side *side) {
    char path[80];
    snprintf(path, sizeof path, "%s.new", side->path);
    int fd = open(path, O_CREAT | O_WRONLY, 0644);
    return fd < 0 || close(fd) || unlink(path);
}

static int do_fork(struct side *side) {
    (void)side;
    pid_t child = fork();
    if (child == 0) _exit(0);
    return child < 0 || waitpid(child, NULL, 0) != child;
}

static struct shared {
    _Atomic int stop, start, failures;
    struct {
        _Atomic long count;
        char rest[LINE_BYTES - sizeof(long)];
    } sides[2];
} *shared;
static struct side sides[2];
static operation current;

static int prepare(int index) {
    struct side *side = sides + index;
    snprintf(side->path, sizeof side->path, "/tmp/scale%d", index);
    side->file = open(side->path, O_CREAT | O_RDWR | O_TRUNC, 0644);
    return side->file < 0 || write(side->file, side->bytes, PAGE_BYTES) != PAGE_BYTES || pipe(side->pipe_ends);
}

static void clean(int index) {
    struct side *side = sides + index;
    close(side->file), close(side->pipe_ends[0]), close(side->pipe_ends[1]);
    unlink(side->path);
}

static void *work(void *argument) {
    long index = (long)argument, done = 0;
    if (take_place(index)) shared->failures = 1;
    while (!shared->start) {
    }
    for (; !shared->stop && !shared->failures; done++)
        if (current(sides + index)) shared->failures = 1;
    shared->sides[index].count = done;
    return NULL;
}

/* Operations in a nanosecond of `number` sides; negative if it did not work. */
static double turn(int number, int are_processes) {
    pid_t children[2];
    pthread_t threads[2];
    shared->stop = shared->start = 0;
    for (long i = 0; i < number; i++) {
        if (!are_processes) {
            if (pthread_create(threads + i, NULL, work, (void *)i)) return -1;
            continue;
        }
        children[i] = fork();
        if (children[i] < 0) return -1;
        if (children[i] == 0) {
            work((void *)i);
            _exit(0);
        }
    }
    usleep(2000);
    int64_t start = now_ns();
    shared->start = 1;
    usleep(TURN_NS / 1000);
    shared->stop = 1;
    int64_t elapsed_ns = now_ns() - start;
    long done = 0;
    for (int i = 0; i < number; i++) {
        if (are_processes) waitpid(children[i], NULL, 0);
        else pthread_join(threads[i], NULL);
        done += shared->sides[i].count;
    }
    return shared->failures ? -1 : (double)done / elapsed_ns;
}

/* All turns. The two as a part of the one, of a whole that is more than a batch has to take. */
static int64_t two_beside_one(long count, operation each, int are_processes) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED, "mmap");
    current = each;
    CHECK(!prepare(0) && !prepare(1), "open");
    double one = 0, two = 0;
    for (int round = 0; round < 3; round++) {
        double one_now = turn(1, are_processes), two_now = turn(2, are_processes);
        CHECK(one_now > 0 && two_now > 0, "an operation");
        one += one_now;
        two += two_now;
    }
    clean(0), clean(1);
    munmap(shared, sizeof *shared);
    row_parts = WHOLE_NS / 1000;
    return count * (WHOLE_NS * one / two);
}

#define PAIR(name, each, are_processes)                                                                                \
    static int64_t name(long count) {                                                                                  \
        return two_beside_one(count, each, are_processes);                                                             \
    }

PAIR(stat_pair, do_stat, 0)
PAIR(pread_pair, do_pread, 0)
PAIR(pipe_pair, do_pipe, 0)
PAIR(touch_pair, do_touch, 0)
PAIR(create_pair, do_create, 0)
PAIR(fork_pair, do_fork, 1)

#define PLACED(name, measure) {name, measure, .places = 1 << DIFFERENT, .only_placed = 1}

const struct row pair_rows[] = {PLACED("two_stat", stat_pair),         PLACED("two_pread_4k", pread_pair),
                                PLACED("two_pipe_512", pipe_pair),     PLACED("two_map_touch_16", touch_pair),
                                PLACED("two_create_unlink", create_pair), PLACED("two_fork_exit", fork_pair),
                                {0}};
