/* Experiments in which several share one processor within one system: on Aegis within a pod, so that exos divides its
 * time, on Linux as the first process of a machine.
 *
 *   tasks [--init] EXPERIMENT WORD…
 *
 * Nothing in them is for one system alone, but that a program may set its own tickets by a call on Aegis. */
#include "common.h"
#include "tasks.h"

static const struct {
    const char *name;
    int word_count;
    void (*run)(char **);
} EXPERIMENTS[] = {
    {"monte-carlo", 3, run_monte_carlo},
    {"decoders", 5, run_decoders},
    {"locks", 1, run_locks},
    {"spinners", 3, run_spinners},
    {"server", 2, run_server},
};

int main(int count, char **words) {
    int is_init = count > 1 && strcmp(words[1], "--init") == 0;
    int first = 1 + is_init;
    for (size_t index = 0; index < sizeof EXPERIMENTS / sizeof *EXPERIMENTS; index++) {
        if (count != first + 1 + EXPERIMENTS[index].word_count || strcmp(words[first], EXPERIMENTS[index].name) != 0)
            continue;
        if (is_init)
            mount_all();
        EXPERIMENTS[index].run(words + first + 1);
        if (is_init)
            end_machine();
        return 0;
    }
    fprintf(stderr, "usage: tasks [--init] EXPERIMENT WORD...\n");
    return 2;
}
