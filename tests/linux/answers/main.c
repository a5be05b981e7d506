// Runs the programs of answers, each in a process and a directory of its own; or those that are named.
#include "answers.h"

extern const struct program __start_programs[], __stop_programs[];

int main(int count, char **words) {
    if (count > 1 && strcmp(words[1], "sleep") == 0)
        return read(0, &(char){0}, 1) != 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    umask(022);
    for (const struct program *program = __start_programs; program < __stop_programs; program++) {
        int is_meant = count < 2;
        for (int word = 1; word < count; word++)
            is_meant |= strcmp(words[word], program->name) == 0;
        if (!is_meant)
            continue;
        printf("== %s\n", program->name);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            char folder[64] = "/dev/shm/answers-XXXXXX";
            if (!mkdtemp(folder) || chdir(folder) || chmod(folder, 0777))
                _exit(99);
            setpgid(0, 0);
            alarm(60);
            program->run();
            fflush(stdout);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        printf("== ended %x\n", status);
        kill(-child, SIGKILL);
    }
    return 0;
}
