// Runs the programs of answers, each in a process and a directory of its own; or those that are named.
#include "answers.h"
#include <ftw.h>

// Takes the capability away that a container's root may lack, so that programs say the same with it and without.
static void without_resources(void) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[2];
    prctl(PR_CAPBSET_DROP, CAP_SYS_RESOURCE, 0, 0, 0);
    syscall(SYS_capget, &head, sets);
    sets[0].effective &= ~(1u << CAP_SYS_RESOURCE), sets[0].permitted &= ~(1u << CAP_SYS_RESOURCE);
    syscall(SYS_capset, &head, sets);
}

// Reads each of the lines that are named by number from its beginning.
static int drain(char **numbers) {
    for (; *numbers; numbers++) {
        ssize_t count = pread(atoi(*numbers), (char[4096]){0}, 4096, 0);
        printf("%s: %s\n", *numbers, count > 0 ? "text" : count == 0 ? "empty" : strerrorname_np(errno));
    }
    return fflush(stdout);
}

// What a program has left in its directory goes, and the directory itself; the host's memory is not to fill up with them.
static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place) {
    (void)status, (void)kind, (void)place;
    remove(path);
    return 0;
}

extern const struct program __start_programs[], __stop_programs[];

// Says who it is and whether others of its user may look into it; with a further word it stays until its line 11 is closed.
static int who(int stays) {
    uid_t r, e, s;
    gid_t a, b, c;
    getresuid(&r, &e, &s), getresgid(&a, &b, &c);
    printf("%d %d %d, %d %d %d, %s\n", r, e, s, a, b, c, prctl(PR_GET_DUMPABLE) == 1 ? "open" : "closed");
    fflush(stdout);
    return stays && (write(10, "x", 1) != 1 || read(11, &(char){0}, 1) != 0);
}

int main(int count, char **words) {
    if (count > 1 && strcmp(words[1], "who") == 0)
        return who(count > 2);
    if (count > 1 && strcmp(words[1], "sleep") == 0)
        return read(0, &(char){0}, 1) != 0;
    if (count > 1 && strcmp(words[1], "drain") == 0)
        return drain(words + 2);
    setvbuf(stdout, NULL, _IOLBF, 0);
    // A session that began outside a container has the number 0 inside: begin one that all see alike.
    setsid();
    umask(022);
    // A process started by `nohup`, or in the background of a shell, ignores what its children are to be ended by.
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    for (const struct program *program = __start_programs; program < __stop_programs; program++) {
        int is_meant = count < 2;
        for (int word = 1; word < count; word++)
            is_meant |= strcmp(words[word], program->name) == 0;
        if (!is_meant)
            continue;
        printf("== %s\n", program->name);
        fflush(stdout);
        char folder[64] = "/dev/shm/answers-XXXXXX";
        if (!mkdtemp(folder) || chmod(folder, 0777))
            return 99;
        pid_t child = fork();
        if (child == 0) {
            if (chdir(folder))
                _exit(99);
            setpgid(0, 0);
            alarm(60);
            without_resources();
            program->run();
            fflush(stdout);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        printf("== ended %x\n", status);
        kill(-child, SIGKILL);
        nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    }
    return 0;
}
