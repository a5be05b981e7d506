/* `row_size` threads, processes or timers that wait. */
#include "micro.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define STACK_BYTES 32768

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static long waiting_count;
static int is_over;

static void *wait_until_over(void *argument) {
    pthread_mutex_lock(&mutex);
    waiting_count++;
    while (!is_over) pthread_cond_wait(&condition, &mutex);
    pthread_mutex_unlock(&mutex);
    return argument;
}

static int end_threads(pthread_t *threads, long number) {
    pthread_mutex_lock(&mutex);
    is_over = 1;
    pthread_cond_broadcast(&condition);
    pthread_mutex_unlock(&mutex);
    int failures = 0;
    for (long i = 0; i < number; i++) failures += pthread_join(threads[i], NULL) != 0;
    free(threads);
    return failures;
}

static pthread_t *start_threads(int64_t *elapsed_ns) {
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_NPROC, &limit);
    pthread_t *threads = malloc(row_size * sizeof *threads);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    waiting_count = is_over = 0;
    int64_t start = now_ns();
    for (long i = 0; threads && i < row_size; i++) {
        errno = pthread_create(threads + i, &attributes, wait_until_over, NULL);
        if (errno) {
            int error = errno;
            end_threads(threads, i);
            errno = error;
            return NULL;
        }
    }
    if (elapsed_ns) *elapsed_ns += now_ns() - start;
    while (waiting_count < row_size) usleep(1000);
    return threads;
}

/* One of as many, made one after the other. */
static int64_t create_threads(long count) {
    int64_t elapsed_ns = 0;
    for (long i = 0; i < count; i++) {
        pthread_t *threads = start_threads(&elapsed_ns);
        CHECK(threads, "pthread_create");
        CHECK(!end_threads(threads, row_size), "pthread_join");
    }
    row_parts = row_size;
    return elapsed_ns;
}

/* One of as many that one broadcast wakes and one thread joins. */
static int64_t wake_and_join(long count) {
    int64_t elapsed_ns = 0;
    for (long i = 0; i < count; i++) {
        pthread_t *threads = start_threads(NULL);
        CHECK(threads, "pthread_create");
        int64_t start = now_ns();
        CHECK(!end_threads(threads, row_size), "pthread_join");
        elapsed_ns += now_ns() - start;
    }
    row_parts = row_size;
    return elapsed_ns;
}

/* A pipe to oneself while they wait. */
static int64_t pipe_beside_threads(long count) {
    int ends[2];
    char byte = 1;
    CHECK(!pipe(ends), "pipe");
    pthread_t *threads = start_threads(NULL);
    CHECK(threads, "pthread_create");
    int64_t start = now_ns();
    for (long i = 0; i < count; i++)
        CHECK(write(ends[1], &byte, 1) == 1 && read(ends[0], &byte, 1) == 1, "write or read");
    int64_t elapsed_ns = now_ns() - start;
    CHECK(!end_threads(threads, row_size), "pthread_join");
    close(ends[0]), close(ends[1]);
    return elapsed_ns;
}

static int64_t fork_kill_wait(long count) {
    pid_t *children = malloc(row_size * sizeof *children);
    int64_t elapsed_ns = 0;
    for (long i = 0; i < count; i++) {
        int64_t start = now_ns();
        for (long each = 0; each < row_size; each++) {
            children[each] = fork();
            if (children[each] == 0) {
                pause();
                _exit(0);
            }
            CHECK(children[each] > 0, "fork");
        }
        for (long each = 0; each < row_size; each++) kill(children[each], SIGKILL);
        for (long each = 0; each < row_size; each++)
            CHECK(waitpid(children[each], NULL, 0) == children[each], "waitpid");
        elapsed_ns += now_ns() - start;
    }
    free(children);
    row_parts = row_size;
    return elapsed_ns;
}

/* As many that are far from their time, with some that are equal. */
static timer_t *set_timers(int64_t *elapsed_ns) {
    timer_t *timers = malloc(row_size * sizeof *timers);
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    int64_t start = now_ns();
    for (long i = 0; timers && i < row_size; i++) {
        struct itimerspec value = {{0, 0}, {1000 + i % 7, 0}};
        if (timer_create(CLOCK_MONOTONIC, &event, timers + i) || timer_settime(timers[i], 0, &value, NULL)) {
            while (i) timer_delete(timers[--i]);
            return NULL;
        }
    }
    if (elapsed_ns) *elapsed_ns += now_ns() - start;
    return timers;
}

static void delete_timers(timer_t *timers) {
    for (long i = 0; i < row_size; i++) timer_delete(timers[i]);
    free(timers);
}

static int64_t timer_among(long count) {
    int64_t elapsed_ns = 0;
    for (long i = 0; i < count; i++) {
        timer_t *timers = set_timers(&elapsed_ns);
        CHECK(timers, "timer_create");
        delete_timers(timers);
    }
    row_parts = row_size;
    return elapsed_ns;
}

/* A microsecond, which is in the figure. */
static int64_t sleep_beside(long count) {
    timer_t *timers = set_timers(NULL);
    CHECK(timers, "timer_create");
    struct timespec microsecond = {0, 1000};
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) nanosleep(&microsecond, NULL);
    int64_t elapsed_ns = now_ns() - start;
    delete_timers(timers);
    return elapsed_ns;
}

#define SIZED(name, measure, number) {name ":" #number, measure, .size = number}

const struct row task_rows[] = {SIZED("thread_create", create_threads, 100),
                                SIZED("thread_create", create_threads, 1000),
                                SIZED("thread_create", create_threads, 3000),
                                SIZED("wake_and_join", wake_and_join, 100),
                                SIZED("wake_and_join", wake_and_join, 1000),
                                SIZED("wake_and_join", wake_and_join, 3000),
                                SIZED("pipe_beside_threads", pipe_beside_threads, 100),
                                SIZED("pipe_beside_threads", pipe_beside_threads, 1000),
                                SIZED("fork_kill_wait", fork_kill_wait, 10),
                                SIZED("fork_kill_wait", fork_kill_wait, 100),
                                SIZED("timer_among", timer_among, 10),
                                SIZED("timer_among", timer_among, 100),
                                SIZED("timer_among", timer_among, 1000),
                                SIZED("timer_among", timer_among, 1500),
                                SIZED("sleep_beside", sleep_beside, 10),
                                SIZED("sleep_beside", sleep_beside, 100),
                                SIZED("sleep_beside", sleep_beside, 1500),
                                {0}};
