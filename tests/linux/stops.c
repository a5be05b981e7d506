/*
 * Stop signals beside those that undo them: a process that is continued right after it was stopped goes on, one that is killed
 * then ends, whichever of its processors was just about to stop it; and the terminal's stop signals stop no orphaned group.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child that answers each byte. */
static pid_t answering(int *to, int *from) {
    int there[2], back[2];
    if (pipe(there) || pipe(back)) exit(1);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(there[1]);
        while (read(there[0], &byte, 1) == 1)
            if (write(back[1], &byte, 1) != 1) break;
        _exit(0);
    }
    close(there[0]), close(back[1]);
    *to = there[1], *from = back[0];
    return child;
}

static void continued(int rounds) {
    int to, from, answers = 0, status;
    pid_t child = answering(&to, &from);
    for (int i = 0; i < rounds; i++) {
        char byte = 0;
        if (write(to, &byte, 1) != 1) break;
        kill(child, SIGSTOP);
        kill(child, SIGCONT);
        answers += read(from, &byte, 1) == 1;
    }
    close(to);
    waitpid(child, &status, 0);
    printf("continued: %d answers of %d, status %x\n", answers, rounds, status);
    close(from);
}

static void killed(int rounds) {
    int ended = 0;
    for (int i = 0; i < rounds; i++) {
        int to, from, status;
        pid_t child = answering(&to, &from);
        char byte = 0;
        if (write(to, &byte, 1) != 1 || read(from, &byte, 1) != 1) break;
        kill(child, SIGSTOP);
        kill(child, SIGKILL);
        ended += waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        close(to), close(from);
    }
    printf("killed: %d of %d\n", ended, rounds);
}

static void orphaned(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        setsid();
        raise(SIGTSTP), raise(SIGTTIN), raise(SIGTTOU);
        _exit(5);
    }
    waitpid(child, &status, WUNTRACED);
    printf("orphaned: %x\n", status);
    child = fork();
    if (child == 0) {
        setpgid(0, 0);
        raise(SIGTSTP);
        _exit(6);
    }
    waitpid(child, &status, WUNTRACED);
    printf("not orphaned: stopped %d by %d\n", WIFSTOPPED(status), WSTOPSIG(status));
    kill(child, SIGCONT);
    waitpid(child, &status, 0);
    printf("then %x\n", status);
}

static void each_other(int rounds) {
    int good = 0, status;
    pid_t child = fork();
    pid_t other = child ? child : getppid();
    for (int i = 0; i < rounds; i++) good += kill(other, 0) == 0;
    if (child == 0) _exit(good == rounds);
    waitpid(child, &status, 0);
    printf("each other: %d and %x\n", good, status);
}

int main(void) {
    orphaned();
    fflush(stdout);
    each_other(50000);
    fflush(stdout);
    continued(2000);
    fflush(stdout);
    killed(300);
    return 0;
}
