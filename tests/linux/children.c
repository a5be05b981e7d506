/*
 * Children that are all there at once: each writes to one page of its own, says that it is there, and waits. What a
 * process needs in the tables of its system is asked for one after the other, whatever number that comes to.
 * Argument: how many.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char page[4096];

int main(int count, char **arguments) {
    int wanted = count > 1 ? atoi(arguments[1]) : 1, made = 0, here = 0, good = 0, gate[2], answers[2], status;
    char byte = 0;
    if (pipe(gate) || pipe(answers)) return 1;
    for (; made < wanted; made++) {
        pid_t child = fork();
        if (child < 0) {
            printf("child %d: %s\n", made, strerror(errno));
            break;
        }
        if (child == 0) {
            close(gate[1]);
            page[made % sizeof page] = 1;
            if (write(answers[1], &byte, 1) != 1) _exit(1);
            _exit(read(gate[0], &byte, 1) == 0 ? 7 : 1);
        }
    }
    while (here < made && read(answers[0], &byte, 1) == 1) here++;
    printf("%d are there\n", here);
    close(gate[1]);
    while (wait(&status) > 0) good += WIFEXITED(status) && WEXITSTATUS(status) == 7;
    printf("%d ended well\n", good);
    return 0;
}
