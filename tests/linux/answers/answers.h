// What the families of this folder share: each prints one line for each answer, the same on every Linux.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// A program: a name and what it does, found by `main` in a section of the file.
struct program {
    const char *name;
    void (*run)(void);
} __attribute__((aligned(16)));
#define PROGRAM(name)                                                                                                  \
    static void name(void);                                                                                            \
    static const struct program name##_entry __attribute__((section("programs"), used)) = {#name, name};               \
    static void name(void)

// Prints `text` and a result: a number, or the name of the error.
static inline void tell(const char *text, long result) {
    if (result == -1)
        printf("%s: %s\n", text, strerrorname_np(errno));
    else
        printf("%s: %ld\n", text, result);
    fflush(stdout);
}
// The call as it stands, and what it answers.
#define T(call) tell(#call, (errno = 0, (long)(call)))
// Whether it works: for descriptors, numbers of processes and the like.
#define W(call) tell(#call, (errno = 0, (long)(call)) == -1 ? -1 : 0)
// Whether something is so.
#define IS(what) (printf("%s: %s\n", #what, (what) ? "yes" : "no"), fflush(stdout))
// A child that does `body` and ends; its status is told.
#define CHILD(name, ...)                                                                                               \
    do {                                                                                                               \
        fflush(stdout);                                                                                                \
        pid_t child_ = fork();                                                                                         \
        if (child_ == 0) {                                                                                             \
            __VA_ARGS__;                                                                                                  \
            fflush(stdout);                                                                                            \
            _exit(0);                                                                                                  \
        }                                                                                                              \
        int status_ = 0;                                                                                               \
        waitpid(child_, &status_, 0);                                                                                  \
        if (WIFSIGNALED(status_))                                                                                      \
            printf("%s: signal %d\n", name, WTERMSIG(status_));                                                        \
        else                                                                                                           \
            printf("%s: status %d\n", name, WEXITSTATUS(status_));                                                     \
        fflush(stdout);                                                                                                \
    } while (0)

static inline void pause_ms(long ms) {
    struct timespec wish = {ms / 1000, ms % 1000 * 1000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &wish, &wish) == EINTR) {
    }
}
