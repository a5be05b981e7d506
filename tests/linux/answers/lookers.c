// Who may look into whom: what makes a process closed to others of its user, and what it shows them then.
#include "answers.h"
#include <sys/fsuid.h>
#include <sys/sendfile.h>

static int is_open(void) { return prctl(PR_GET_DUMPABLE) == 1; }
static void become(int user) { syscall(SYS_setresgid, user, user, user), syscall(SYS_setresuid, user, user, user); }
// Opens a file of a process, and says whether that works.
static void look(pid_t whom, const char *file) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", whom, file);
    int line = open(path, O_RDONLY);
    tell(file, line < 0 ? -1 : 0), close(line);
}
// What a user sees of a process.
static void looks_as(int user, pid_t whom) {
    CHILD("a looker", (become(user), look(whom, "environ"), look(whom, "maps"), look(whom, "auxv"), look(whom, "smaps"), look(whom, "stat"), look(whom, "fd"), look(whom, "cmdline")));
}

PROGRAM(changes_that_close) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[2];
    CHILD("an effective user", (IS(is_open()), seteuid(5), IS(is_open()), prctl(PR_SET_DUMPABLE, 1), IS(is_open()), seteuid(0), IS(is_open())));
    CHILD("an effective group", (setegid(5), IS(is_open())));
    CHILD("the user for files", (setfsuid(5), IS(is_open())));
    CHILD("the group for files", (setfsgid(5), IS(is_open())));
    CHILD("all", (become(5), IS(is_open())));
    CHILD("the same ones", (become(0), seteuid(0), IS(is_open())));
    CHILD("the real and the saved one", (syscall(SYS_setresuid, 5, -1, 5), IS(is_open())));
    CHILD("more groups", (setgroups(1, &(gid_t){5}), IS(is_open())));
    CHILD("fewer capabilities", (syscall(SYS_capget, &head, sets), sets[0].effective = sets[0].permitted = 1, sets[1].effective = sets[1].permitted = 0, T(syscall(SYS_capset, &head, sets)), IS(is_open())));
    CHILD("the copy of a closed one", ({ seteuid(5); CHILD("copy", IS(is_open())); }));
    CHILD("one who borrows memory", ({ if (vfork() == 0) syscall(SYS_setresuid, 5, 5, 5), _exit(0); wait(NULL); IS(is_open()); }));
    CHILD("the signal of the parent's end", ({ int signal = 0; prctl(PR_SET_PDEATHSIG, SIGUSR1), prctl(PR_GET_PDEATHSIG, &signal), T(signal), setgroups(0, NULL), prctl(PR_GET_PDEATHSIG, &signal), T(signal), seteuid(5), prctl(PR_GET_PDEATHSIG, &signal), T(signal); }));
}
PROGRAM(programs_that_open_and_close) {
    char folder[] = "/tmp/answers-XXXXXX", name[64];
    int from = open("/proc/self/exe", O_RDONLY);
    if (!mkdtemp(folder) || chmod(folder, 0755))
        _exit(98);
    snprintf(name, sizeof name, "%s/program", folder);
    int to = open(name, O_CREAT | O_WRONLY, 0755);
    while (sendfile(to, from, NULL, 1 << 20) > 0) {
    }
    close(to), close(from);
    CHILD("of the same user", execl(name, "x", "who", NULL));
    CHILD("of another", (become(5), IS(is_open()), execl(name, "x", "who", NULL)));
    CHILD("of another effective user", (syscall(SYS_setresuid, 0, 5, 7), execl(name, "x", "who", NULL)));
    CHILD("of another effective group", (syscall(SYS_setresgid, 0, 5, 7), execl(name, "x", "who", NULL)));
    CHILD("of another user for files", (setfsuid(5), IS(is_open()), execl(name, "x", "who", NULL)));
    CHILD("that was closed", (prctl(PR_SET_DUMPABLE, 0), execl(name, "x", "who", NULL)));
    chmod(name, 0711);
    CHILD("that one may read", execl(name, "x", "who", NULL));
    CHILD("that one may run and not read", (become(5), execl(name, "x", "who", NULL)));
    unlink(name), rmdir(folder);
}
// A process of user 1000, looked into by it and by another.
static void looked_into(int executes) {
    int ready[2], over[2];
    pipe(ready), pipe(over), fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        become(1000), dup2(ready[1], 10), dup2(over[0], 11), close(over[1]), close(over[0]), close(ready[1]);
        if (executes)
            execl("/proc/self/exe", "x", "who", "stays", NULL);
        write(10, "x", 1), read(11, &(char){0}, 1), _exit(0);
    }
    close(over[0]), read(ready[0], &(char){0}, 1);
    looks_as(1000, child), looks_as(1001, child);
    close(over[1]), waitpid(child, NULL, 0);
    close(ready[0]), close(ready[1]);
}
PROGRAM(looks_into_who_was_root) {
    looked_into(0);
    CHILD("into oneself", (become(1000), look(getpid(), "environ"), look(getpid(), "maps"), look(getpid(), "fd"), IS(readlink("/proc/self/fd/1", &(char){0}, 1) == 1), look(getpid(), "fdinfo/1"), look(getpid(), "stat"), look(getpid(), "cwd")));
}
PROGRAM(looks_into_a_new_program) {
    looked_into(1);
}

// Texts about a process, opened as the lines from 20 on.
static const char *const texts[] = {"environ", "auxv", "maps", "smaps", "smaps_rollup", "stat", "statm", "status", "cmdline", "comm", "limits", "oom_score_adj", "fdinfo/1"};
enum { TEXTS = sizeof texts / sizeof *texts };
static void open_texts(pid_t whom) {
    for (int i = 0; i < TEXTS; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/%s", whom, texts[i]);
        int line = open(path, strcmp(texts[i], "oom_score_adj") ? O_RDONLY : O_RDWR);
        if (line < 0)
            printf("%s: %s\n", path, strerrorname_np(errno));
        dup2(line, 20 + i), close(line);
    }
}
static void read_texts(const char *when) {
    for (int i = 0; i < TEXTS; i++) {
        char text[4096];
        errno = 0;
        ssize_t count = pread(20 + i, text, sizeof text, 0);
        printf("%s, %s: %s\n", when, texts[i], count > 0 ? "text" : count == 0 ? "empty" : strerrorname_np(errno));
    }
    fflush(stdout);
}
PROGRAM(texts_of_who_begins_another_program) {
    CHILD("it reads them itself", (open_texts(getpid()), execle("/proc/self/exe", "x", "drain", "20", "21", "22", "23", "24", "25", "28", NULL, (char *[]){"SECRET=new", NULL})));
    CHILD("not read before", (open_texts(getpid()), read_texts("alive")));
}
PROGRAM(texts_of_who_is_gone) {
    int over[2];
    pipe(over), fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        close(over[1]), read(over[0], &(char){0}, 1), _exit(0);
    open_texts(child), read_texts("alive"), T(pwrite(20 + 11, "5", 1, 0));
    close(over[1]), close(over[0]), waitpid(child, NULL, 0);
    read_texts("gone"), T(pwrite(20 + 11, "5", 1, 0));
}
// Fields 26 to 28 and 45 to 47: where code, data, heap and stack are.
static void tell_places(pid_t whom) {
    char path[64], line[2048] = "", *word;
    int field = 2, file;
    snprintf(path, sizeof path, "/proc/%d/stat", whom);
    file = open(path, O_RDONLY), read(file, line, sizeof line - 1), close(file);
    for (word = strtok(strrchr(line, ')') + 1, " "); word; word = strtok(NULL, " "))
        if (++field == 26 || field == 27 || field == 28 || field == 45 || field == 46 || field == 47)
            printf("%s ", atol(word) > 4096 ? "a place" : word);
    puts(""), fflush(stdout);
}
static void link_of(pid_t whom, const char *name) {
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/%d/%s", whom, name);
    tell(name, readlink(path, text, sizeof text) < 0 ? -1 : 0);
}
static void see_all(pid_t whom) {
    tell_places(whom), look(whom, "fdinfo"), look(whom, "fdinfo/1"), look(whom, "fd"), link_of(whom, "fd/1"), link_of(whom, "cwd"), link_of(whom, "exe"), link_of(whom, "ns/pid"), look(whom, "maps");
}
PROGRAM(what_is_not_ones_to_see) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[2];
    int ready[2], over[2];
    pid_t root = getpid();
    pipe(ready), pipe(over), fflush(stdout);
    pid_t user = fork();
    if (user == 0) {
        become(1000), dup2(ready[1], 10), dup2(over[0], 11), close(over[1]), close(over[0]), close(ready[1]), freopen("/dev/null", "w", stdout);
        execl("/proc/self/exe", "x", "who", "stays", NULL), _exit(1);
    }
    close(over[0]), read(ready[0], &(char){0}, 1);
    CHILD("of oneself", see_all(getpid()));
    CHILD("of root, by a user", (become(1000), see_all(root)));
    CHILD("of root, by one with another effective user", (seteuid(1000), see_all(root)));
    CHILD("of a user, by himself", (become(1000), see_all(user)));
    CHILD("of a user, by another", (become(1001), see_all(user)));
    CHILD("of a user, by a real user who files are not checked for", (syscall(SYS_setresgid, 1000, 0, 0), syscall(SYS_setresuid, 1000, 1001, 0), see_all(user)));
    CHILD("of a user, by root who may not trace", (syscall(SYS_capget, &head, sets), sets[0].effective &= ~(1u << CAP_SYS_PTRACE | 1u << CAP_SYS_ADMIN), sets[0].permitted &= ~(1u << CAP_SYS_PTRACE | 1u << CAP_SYS_ADMIN), sets[1].effective &= ~CAP_TO_MASK(CAP_PERFMON), sets[1].permitted &= ~CAP_TO_MASK(CAP_PERFMON), syscall(SYS_capset, &head, sets), see_all(user)));
    close(over[1]), waitpid(user, NULL, 0), close(ready[0]), close(ready[1]);
}
