/* Figure 6: tasks that estimate an integral by chance, begin one after another, and fund themselves by the square of
 * their relative error, so that a new one catches up with those before it.
 *
 * The integral is that of 4 sqrt(1 - x^2), the error that of the mean of so many trials, both as the trials say them.
 * On Aegis a task sets its own tickets (exos_set_tickets); where there is no such call it sets the weight of the group
 * that it is alone in. */
#include "common.h"
#include "exos.h"
#include "tasks.h"

#include <math.h>
#include <signal.h>
#include <sys/mman.h>

enum { TASKS = 3, BATCH = 4096, CACHE_LINE = 64 };
/* Most of what a task may give itself. */
static const double TICKETS_MAX = 1 << 20, WEIGHT_MAX = 10000;
/* The square of an error at which it has a hundredth of the most: that of 10^8 trials. */
static const double SQUARE_OF_HUNDREDTH = 8e-10;

struct estimate {
    uint64_t trials;
    double sum, square_sum;
};

static void try_batch(struct estimate *estimate, uint64_t *state) {
    for (int trial = 0; trial < BATCH; trial++) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        double x = (double)(*state >> 11) * 0x1p-53, y = 4 * sqrt(1 - x * x);
        estimate->sum += y;
        estimate->square_sum += y * y;
    }
    estimate->trials += BATCH;
}

static double square_of_error(const struct estimate *estimate) {
    double count = (double)estimate->trials, mean = estimate->sum / count;
    double variance = estimate->square_sum / count - mean * mean;
    return variance / count / (mean * mean);
}

static unsigned long part_of(double most, double square) {
    double part = most / 100 * square / SQUARE_OF_HUNDREDTH;
    return (unsigned long)(part > most ? most : part < 1 ? 1 : part);
}

/* Funds the caller: by its own call, or by the weight of its group. */
static void fund(const char *group, double square) {
    char text[32];
    long before = exos_set_tickets(part_of(TICKETS_MAX, square));
    if (before == -ENOSYS) {
        snprintf(text, sizeof text, "%lu", part_of(WEIGHT_MAX, square));
        set_weight(group, text);
    } else if (before < 0) {
        errno = (int)-before;
        fail("exos_set_tickets");
    }
}

static void estimate_for_ever(int task, uint64_t *trials) {
    struct estimate estimate = {0, 0, 0};
    uint64_t state = 88172645463325252ull + (uint64_t)task;
    char group[16];
    snprintf(group, sizeof group, "t%d", task);
    if (exos_version() < 0)
        enter_group(group);
    for (;;) {
        try_batch(&estimate, &state);
        __atomic_store_n(trials, estimate.trials, __ATOMIC_RELAXED);
        fund(group, square_of_error(&estimate));
    }
}

/* `words` are WINDOW_COUNT WINDOW_MS STAGGER_COUNT: how many windows after the one before a task begins. For each window
 * and task: the trials up to its end. */
void run_monte_carlo(char **words) {
    unsigned window_count = (unsigned)atoi(words[0]), stagger_count = (unsigned)atoi(words[2]);
    uint64_t window_ns = strtoull(words[1], NULL, 10) * 1000000;
    char *trials = mmap(NULL, TASKS * CACHE_LINE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (trials == MAP_FAILED)
        fail("mmap");
    if (exos_version() < 0) {
        share_group(".");
        for (int task = 0; task < TASKS; task++) {
            char group[16];
            snprintf(group, sizeof group, "t%d", task);
            make_group(group, "10000");
        }
    }
    /* A task that has tried nothing yet has the most: where a call sets it, it inherits that. */
    if (exos_version() >= 0)
        fund("", 1);
    pid_t tasks[TASKS] = {0};
    uint64_t start_ns = now_ns();
    for (unsigned window = 0; window < window_count; window++) {
        unsigned next = window / stagger_count;
        if (window % stagger_count == 0 && next < TASKS) {
            tasks[next] = fork();
            if (tasks[next] < 0)
                fail("fork");
            if (tasks[next] == 0)
                estimate_for_ever((int)next, (uint64_t *)(trials + next * CACHE_LINE));
        }
        sleep_until(start_ns + (window + 1) * window_ns);
        for (int task = 0; task < TASKS; task++) {
            char prefix[16];
            snprintf(prefix, sizeof prefix, "t%d | ", task);
            say(prefix, window, __atomic_load_n((uint64_t *)(trials + task * CACHE_LINE), __ATOMIC_RELAXED));
        }
    }
    for (int task = 0; task < TASKS; task++)
        if (tasks[task] != 0) {
            kill(tasks[task], SIGKILL);
            waitpid(tasks[task], NULL, 0);
        }
}
