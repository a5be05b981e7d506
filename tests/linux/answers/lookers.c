// Which process may look into which: what makes a process closed to others of its user, and what it shows them then.
#include "answers.h"
#include <dirent.h>
#include <linux/futex.h>
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

// What was opened of a process that has ended since: nothing of it is found any more, nor of the next owner of its
// number.
static int held[16];
static const char *const held_names[] = {"", "stat", "status", "maps", "cmdline", "environ", "comm", "limits", "fd", "fdinfo", "fdinfo/0", "ns", "task", "statm", "wchan", "mounts"};
static void tell_held(void) {
    char bytes[4096];
    for (int i = 0; i < 16; i++) {
        struct stat about;
        errno = 0;
        long count = i == 0 || i == 8 || i == 9 || i == 11 || i == 12 ? syscall(SYS_getdents64, held[i], bytes, sizeof bytes) : pread(held[i], bytes, sizeof bytes, 0);
        printf("%s: %s", held_names[i], count > 0 ? "some" : count == 0 ? "none" : strerrorname_np(errno));
        if (i == 8 || fstat(held[i], &about) == 0)
            printf(", %o\n", i == 8 ? 0 : about.st_mode);
    }
    static const char *const below[] = {"stat", ".", "..", "nothing", "", "fd", "fd/0", "task", "ns/pid", "exe", "task/1/stat"};
    for (int i = 0; i < 11; i++)
        tell(below[i], openat(held[0], below[i], O_RDONLY) < 0 ? -1 : 0);
    T(readlinkat(held[0], "cwd", bytes, 100) > 0), T(faccessat(held[0], "stat", R_OK, 0)), T(fstatat(held[0], "stat", &(struct stat){0}, 0));
    W(openat(held[8], "0", O_RDONLY)), W(openat(held[8], "x", O_RDONLY)), W(openat(held[8], ".", O_RDONLY)), W(openat(held[9], "0", O_RDONLY));
    W(openat(held[11], "pid", O_RDONLY)), W(readlinkat(held[11], "pid", bytes, 100)), W(openat(held[12], "1", O_RDONLY)), W(openat(held[12], ".", O_RDONLY));
    int old = open(".", O_RDONLY);
    T(fchdir(held[0])), T(fchdir(held[8])), T(fchdir(held[12])), fchdir(old);
    T(syscall(SYS_pidfd_send_signal, held[0], 0, NULL, 0)), T(syscall(SYS_pidfd_send_signal, held[12], 0, NULL, 0));
    T(write(held[6], "x", 1));
}
PROGRAM(held_after_the_end) {
    pid_t child = fork();
    if (child == 0)
        pause(), _exit(0);
    for (int i = 0; i < 16; i++) {
        char path[64];
        sprintf(path, "/proc/%d/%s", child, held_names[i]);
        held[i] = open(path, i == 6 ? O_RDWR : O_RDONLY);
    }
    char path[64];
    sprintf(path, "/proc/%d/exe", child);
    int exe = open(path, O_PATH | O_NOFOLLOW);
    kill(child, SIGKILL), waitid(P_PID, child, NULL, WEXITED | WNOWAIT);
    puts("ended"), tell_held(), W(readlinkat(exe, "", path, 60));
    waitpid(child, NULL, 0);
    puts("waited for"), tell_held(), W(readlinkat(exe, "", path, 60)), W(fstat(exe, &(struct stat){0}));
}

// The call that a process is in, as `/proc/PID/syscall` tells it.
static char call_bytes[16];
static void tell_call(const char *who, pid_t whom) {
    char path[64], text[256] = "";
    unsigned long words[8];
    snprintf(path, sizeof path, "/proc/%d/syscall", whom);
    int file = whom ? open(path, O_RDONLY) : open("/proc/self/syscall", O_RDONLY);
    if (file < 0)
        return tell(who, -1);
    // All six arguments are said, so that none is what a register had before.
    long number, count = syscall(SYS_pread64, file, text, sizeof text - 1, 0, 5, 6);
    if (count < 0)
        return tell(who, -1);
    int words_count = sscanf(text, "%ld %lx %lx %lx %lx %lx %lx %lx %lx", &number, words, words + 1, words + 2, words + 3, words + 4, words + 5, words + 6, words + 7);
    if (words_count < 1)
        printf("%s: %s", who, text);
    else if (words_count < 9)
        printf("%s: %ld and %d words\n", who, number, words_count - 1);
    else
        printf("%s: %ld, %lx %d %lx %lx %lx %lx, on the stack %d, in the program %d\n", who, number, number == SYS_futex || number == SYS_poll ? 0 : words[0], words[number == SYS_futex ? 0 : 1] == (unsigned long)(whom ? call_bytes : text), words[2], words[3], words[4], words[5], words[6] >> 40 == (unsigned long)&path >> 40, words[7] >> 24 == (unsigned long)tell_call >> 24);
    close(file), fflush(stdout);
}
static void *waits_in_thread(void *line) {
    return (void *)syscall(SYS_read, (long)line, call_bytes, 11, 0x444, 0x555, 0x666);
}
// A waiter for a stop can be told of it a moment before the thread has come to rest.
static void comes_to_rest(pid_t whom) {
    char path[64], text[16] = "r";
    snprintf(path, sizeof path, "/proc/%d/syscall", whom);
    for (int looks = 0; looks < 5000 && text[0] == 'r'; looks++) {
        int file = open(path, O_RDONLY);
        read(file, text, sizeof text), close(file), usleep(1000);
    }
}
PROGRAM(call_in_progress) {
    int lines[2], own[2];
    pipe(lines), pipe(own), dup2(lines[0], 200), dup2(own[0], 201);
    tell_call("oneself", 0);
    pid_t child = fork();
    if (child == 0)
        _exit(syscall(SYS_read, 200, call_bytes, 7, 0x1234, 0x123456789abcdef0, -1));
    pause_ms(100), tell_call("one that reads", child);
    CHILD("a user", (syscall(SYS_setresuid, 5, 5, 5), tell_call("of another", child)));
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/syscall", child);
    int file = open(path, O_RDONLY);
    CHILD("one who may not any more", (syscall(SYS_setresuid, 5, 5, 5), T(pread(file, path, 60, 0))));
    kill(child, SIGSTOP), waitpid(child, NULL, WUNTRACED), comes_to_rest(child), tell_call("one that is stopped", child);
    kill(child, SIGCONT), pause_ms(50), tell_call("one that goes on", child);
    kill(child, SIGKILL), waitid(P_PID, child, NULL, WEXITED | WNOWAIT), tell_call("one that has ended", child), waitpid(child, NULL, 0), T(pread(file, path, 60, 0));
    if ((child = fork()) == 0)
        for (;;) {
        }
    pause_ms(100), tell_call("one that computes", child), kill(child, SIGKILL), waitpid(child, NULL, 0);
    if ((child = fork()) == 0)
        syscall(SYS_poll, 0, 0, -1, 0x44, 0x55, 0x66), _exit(0);
    pause_ms(100), tell_call("one that polls", child), kill(child, SIGKILL), waitpid(child, NULL, 0);
    *(int *)call_bytes = 3;
    if ((child = fork()) == 0)
        syscall(SYS_futex, call_bytes, FUTEX_WAIT_PRIVATE, 3, NULL, 0x5, 0x6), _exit(0);
    pause_ms(100), tell_call("one that waits for a word", child), kill(child, SIGKILL), waitpid(child, NULL, 0);
    pthread_t thread;
    pthread_create(&thread, NULL, waits_in_thread, (void *)201), pause_ms(100);
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(tasks));)
        if (atoi(entry->d_name) > 0 && atoi(entry->d_name) != getpid())
            tell_call("a thread", atoi(entry->d_name));
    write(own[1], "x", 1), pthread_join(thread, NULL);
}
