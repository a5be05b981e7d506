/* Section 5.6: how far several threads that compute come together.
 *
 * With nice 0 all are equal and have turns in rounds; with another nice value, the same for all, Aegis draws for each
 * turn. */
#include "common.h"
#include "tasks.h"

#include <pthread.h>
#include <sys/resource.h>

enum { THREADS_MAX = 64, WAIT_S = 1 };

static uint64_t start_ns, end_ns, sum;

static void *spin(void *unused) {
    uint64_t loops = 0;
    sleep_until(start_ns);
    for (; now_ns() < end_ns; loops++)
        loop();
    __atomic_fetch_add(&sum, loops, __ATOMIC_RELAXED);
    return unused;
}

/* `words` are COUNT NICE DURATION_S. The loops of all. */
void run_spinners(char **words) {
    int count = atoi(words[0]);
    if (count < 1 || count > THREADS_MAX) {
        errno = EINVAL;
        fail("threads");
    }
    if (setpriority(PRIO_PROCESS, 0, atoi(words[1])) != 0)
        fail("setpriority");
    start_ns = now_ns() + WAIT_S * 1000000000ull;
    end_ns = start_ns + strtoull(words[2], NULL, 10) * 1000000000;
    pthread_t threads[THREADS_MAX];
    for (int index = 0; index < count; index++)
        if ((errno = pthread_create(&threads[index], NULL, spin, NULL)) != 0)
            fail("pthread_create");
    for (int index = 0; index < count; index++)
        pthread_join(threads[index], NULL);
    say("all | ", 0, sum);
}
