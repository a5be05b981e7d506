/*
 * Calls that wait, and how they end: a vfork whose child keeps the memory, and a sendfile to a pipe that is full. Each is
 * watched by a parent that would end it, and says what came of it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/wait.h>
#include <unistd.h>

static void nothing(int number) { (void)number; }

/* How a process ends whose vforked child stays, if it is told to by a signal. */
static void forked(const char *name, int number, int is_handled) {
    int holds[2], ready[2], status;
    char byte;
    if (pipe(holds) || pipe(ready)) return;
    pid_t parent = fork();
    if (parent == 0) {
        if (is_handled) signal(number, nothing);
        close(holds[1]);
        pid_t child = vfork();
        if (child == 0) {
            /* Until the test ends it. */
            if (write(ready[1], "x", 1) == 1 && read(holds[0], &byte, 1) == 0) _exit(0);
            _exit(1);
        }
        _exit(child > 0 ? 3 : 4);
    }
    if (read(ready[0], &byte, 1) != 1) return;
    kill(parent, number);
    if (is_handled) {
        /* It goes on waiting for its child. */
        usleep(50000);
        printf("%s: %s\n", name, waitpid(parent, &status, WNOHANG) == 0 ? "waits" : "went on");
        close(holds[0]), close(holds[1]);
        waitpid(parent, &status, 0);
    } else {
        waitpid(parent, &status, 0);
        close(holds[0]), close(holds[1]);
    }
    close(ready[0]), close(ready[1]);
    if (WIFSIGNALED(status)) printf("%s: signal %d\n", name, WTERMSIG(status));
    else printf("%s: status %d\n", name, WEXITSTATUS(status));
}
static void sent(void) {
    enum { ALL = 300000 };
    static char buffer[ALL];
    int ends[2], file = open("waits.tmp", O_RDWR | O_CREAT | O_TRUNC, 0644);
    off_t offset = 0;
    long total = 0;
    unlink("waits.tmp");
    if (pipe(ends) || ftruncate(file, ALL)) return;
    fcntl(ends[1], F_SETPIPE_SZ, 65536);
    while (total < 200000) {
        long count = sendfile(ends[1], file, &offset, 200000 - total);
        printf("sendfile %ld, offset %ld\n", count, (long)offset);
        if (count <= 0) return;
        total += count;
        for (long left = count; left > 0;) left -= read(ends[0], buffer, sizeof buffer);
    }
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    printf("all of the room %ld\n", (long)sendfile(ends[1], file, NULL, 100000));
    long count = sendfile(ends[1], file, NULL, 100000);
    printf("none %ld %s\n", count, strerror(errno));
    signal(SIGPIPE, SIG_IGN);
    close(ends[0]);
    count = sendfile(ends[1], file, NULL, 10);
    printf("nobody %ld %s\n", count, strerror(errno));
}
int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    forked("TERM", SIGTERM, 0);
    forked("KILL", SIGKILL, 0);
    forked("handled", SIGTERM, 1);
    sent();
    return 0;
}
