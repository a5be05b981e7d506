/*
 * Calls that C libraries seldom make themselves: the forms with a directory, identities, scheduling, what no file has.
 * Prints facts that are the same on every Linux; nothing of the host is changed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define SAY(call) (errno = 0, say(#call, (long)(call)))

static void say(const char *call, long result) {
    printf("%s: %ld %s\n", call, result, result == -1 ? strerror(errno) : "");
    fflush(stdout);
}

static int execute_at(int directory, const char *path, char **arguments, char **environment, int flags) {
    return syscall(SYS_execveat, directory, path, arguments, environment, flags);
}

/* In a process of its own, because there is no way back. */
#define APART(...) \
    do { \
        fflush(stdout); \
        pid_t child = fork(); \
        if (child == 0) { __VA_ARGS__; fflush(stdout); _exit(0); } \
        waitpid(child, NULL, 0); \
    } while (0)

static void ids(void) {
    uid_t u[3];
    gid_t g[3];
    getresuid(&u[0], &u[1], &u[2]);
    getresgid(&g[0], &g[1], &g[2]);
    printf("%u %u %u, %u %u %u, egid %u, fs %ld %ld\n", u[0], u[1], u[2], g[0], g[1], g[2], getegid(),
           syscall(SYS_setfsuid, -1), syscall(SYS_setfsgid, -1));
    fflush(stdout);
}

static void identities(void) {
    if (geteuid() != 0) return;
    APART({
        gid_t groups[] = {5, 6, 7};
        SAY(setgroups(3, groups));
        SAY(getgroups(0, NULL));
        SAY(getgroups(2, groups));
        SAY(getgroups(3, groups) + groups[0] + groups[2]);
        SAY(syscall(SYS_setgroups, 65537, groups));
    });
    APART({
        SAY(setresgid(1, 2, 3));
        SAY(setresuid(1, 2, 3));
        ids();
        SAY(setresuid(3, 1, 2));
        SAY(setresuid(4, -1, -1));
        ids();
        SAY(setreuid(2, 3));
        SAY(setregid(-1, 4));
        SAY(setregid(3, 1));
        ids();
        SAY(setgroups(0, NULL));
        SAY(syscall(SYS_getresuid, 8, 8, 8));
        SAY(setpriority(PRIO_PROCESS, 0, 19));
        SAY(getpriority(PRIO_PROCESS, 0));
    });
    APART({
        SAY(setreuid(1, 0));
        ids();
        SAY(setreuid(-1, 1));
        ids();
        SAY(setuid(0));
        SAY(seteuid(0));
    });
    APART({
        SAY(syscall(SYS_setfsuid, 5));
        SAY(syscall(SYS_setfsuid, -1));
        SAY(seteuid(7));
        SAY(syscall(SYS_setfsuid, -1));
        SAY(syscall(SYS_setfsuid, 9));
        SAY(syscall(SYS_setfsuid, -1));
    });
}

/* execveat: by a path from a directory, by a descriptor alone, and by a script that is a descriptor. */
static void executions(int directory) {
    char *words[] = {"calls", "by a directory", NULL}, *none[] = {NULL};
    SAY(execute_at(directory, "moved", words, none, 0));
    SAY(execute_at(directory, "nothing", words, none, 0));
    SAY(execute_at(directory, "link", words, none, AT_SYMLINK_NOFOLLOW));
    SAY(execute_at(directory, "", words, none, 0));
    SAY(execute_at(directory, "", words, none, AT_EMPTY_PATH));
    SAY(execute_at(-1, "", words, none, AT_EMPTY_PATH));
    SAY(execute_at(directory, "moved", words, none, AT_REMOVEDIR));
    APART(execute_at(AT_FDCWD, "/proc/self/exe", words, none, 0));
    words[1] = "by a descriptor";
    int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    APART(execute_at(self, "", words, none, AT_EMPTY_PATH));
    dup2(self, 100), close(self);
    words[0] = "name", words[1] = NULL;
    APART(execute_at(100, "", words, none, AT_EMPTY_PATH));
    int script = openat(directory, "script", O_CREAT | O_WRONLY, 0700);
    SAY(write(script, "#!/proc/self/exe by\n", 20));
    close(script), script = openat(directory, "script", O_RDONLY | O_CLOEXEC);
    dup2(script, 101), dup3(script, 102, O_CLOEXEC);
    APART(execute_at(101, "", words, none, AT_EMPTY_PATH));
    APART(execute_at(directory, "script", words, none, 0));
    APART(SAY(execute_at(102, "", words, none, AT_EMPTY_PATH)));
    close(script), close(100), close(101), close(102);
    unlinkat(directory, "script", 0);
}

static void at_directories(const char *folder) {
    struct stat status;
    int directory = open(folder, O_RDONLY | O_DIRECTORY);
    SAY(mkdirat(directory, "sub", 0755));
    SAY(mkdirat(directory, "sub", 0755));
    SAY(mkdirat(-1, "sub", 0755));
    int file = openat(directory, "sub/file", O_CREAT | O_RDWR, 0644);
    SAY(file >= 0);
    SAY(fchmodat(directory, "sub/file", 0600, 0));
    SAY(fchmodat(directory, "sub/nothing", 0600, 0));
    fstat(file, &status);
    printf("%o\n", status.st_mode);
    SAY(faccessat(directory, "sub/file", R_OK, 0));
    SAY(faccessat(directory, "sub/file", 9, 0));
    SAY(faccessat(directory, "sub/nothing", F_OK, AT_EACCESS));
    SAY(fchownat(directory, "sub/file", getuid(), getgid(), 0));
    SAY(fchownat(directory, "sub/file", -1, -1, 0x8000));
    SAY(fchownat(file, "", -1, -1, AT_EMPTY_PATH));
    SAY(symlinkat("nowhere", directory, "link"));
    char path[300];
    snprintf(path, sizeof path, "%s/link", folder);
    SAY(lchown(path, getuid(), getgid()));
    SAY(chown(path, getuid(), getgid()));
    SAY(renameat(directory, "sub/file", directory, "moved"));
    SAY(renameat(directory, "sub/file", directory, "moved"));
    SAY(renameat(directory, "sub", directory, "moved"));
    struct timeval times[2] = {{1000, 5}, {2000, 6}};
    SAY(syscall(SYS_futimesat, directory, "moved", times));
    fstat(file, &status);
    printf("%ld %ld\n", (long)status.st_atime, (long)status.st_mtime);
    times[0].tv_usec = 1000000;
    SAY(syscall(SYS_futimesat, directory, "moved", times));
    SAY(utimes(path, NULL));

    struct iovec parts[2] = {{"abc", 3}, {"defg", 4}};
    SAY(pwritev(file, parts, 2, 10));
    SAY(pwritev(file, parts, 2, -1));
    SAY(syscall(SYS_pwritev2, file, parts, 2, 3L, 0L, 0));
    SAY(syscall(SYS_pwritev2, file, parts, 2, -1L, 0L, 0));
    SAY(lseek(file, 0, SEEK_CUR));
    char back[32];
    SAY(pread(file, back, 32, 0));
    printf("%.7s %.7s %.7s\n", back, back + 3, back + 10);
    SAY(posix_fadvise(file, 0, 0, POSIX_FADV_WILLNEED));
    SAY(posix_fadvise(file, 0, 0, 77));
    SAY(readahead(file, 0, 4096));
    SAY(readahead(-1, 0, 4096));

    char value[8];
    SAY(fgetxattr(file, "user.nothing", value, 8));
    SAY(lgetxattr(path, "trusted.nothing", value, 8));
    SAY(fremovexattr(-1, "user.nothing"));
    SAY(flistxattr(-1, value, 8));
    close(file);
    executions(directory);
    SAY(unlinkat(directory, "moved", 0));
    SAY(unlinkat(directory, "link", 0));
    SAY(unlinkat(directory, "sub", 0));
    SAY(unlinkat(directory, "sub", AT_REMOVEDIR));
    close(directory);
}

static void scheduling(void) {
    struct sched_param parameters = {0};
    SAY(sched_get_priority_max(SCHED_FIFO));
    SAY(sched_get_priority_min(SCHED_FIFO));
    SAY(sched_get_priority_max(SCHED_OTHER));
    SAY(sched_get_priority_max(77));
    SAY(syscall(SYS_sched_getscheduler, 0));
    SAY(syscall(SYS_sched_getscheduler, 1 << 22));
    SAY(syscall(SYS_sched_getscheduler, -1));
    SAY(syscall(SYS_sched_getparam, 0, &parameters) + parameters.sched_priority);
    SAY(syscall(SYS_sched_getparam, 0, NULL));
    SAY(syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &parameters));
    SAY(syscall(SYS_sched_setscheduler, 0, SCHED_BATCH, &parameters));
    SAY(syscall(SYS_sched_getscheduler, 0));
    SAY(syscall(SYS_sched_setscheduler, 0, 77, &parameters));
    SAY(syscall(SYS_sched_setparam, 0, &parameters));
    SAY(syscall(SYS_sched_setparam, 0, NULL));
    SAY(syscall(SYS_sched_setscheduler, 0, SCHED_IDLE | SCHED_RESET_ON_FORK, &parameters));
    APART(SAY(syscall(SYS_sched_getscheduler, 0)));
    SAY(syscall(SYS_sched_getscheduler, 0));
    parameters.sched_priority = 5;
    SAY(syscall(SYS_sched_setparam, 0, &parameters));
    SAY(syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &parameters));
    cpu_set_t set;
    CPU_ZERO(&set);
    SAY(sched_setaffinity(0, sizeof set, &set));
    CPU_SET(0, &set);
    SAY(sched_setaffinity(1 << 22, sizeof set, &set));
    APART(SAY(sched_setaffinity(0, sizeof set, &set)); SAY(sched_getcpu()));
    unsigned cpu = 99, node = 99;
    SAY(syscall(SYS_getcpu, &cpu, &node, NULL));
    SAY(cpu < 64 && node < 64);
    APART(SAY(setpriority(PRIO_PROCESS, 0, 5)); SAY(getpriority(PRIO_PROCESS, 0)); SAY(nice(3));
          SAY(setpriority(PRIO_PROCESS, 0, 90)); SAY(getpriority(PRIO_PROCESS, 0)));
    SAY(setpriority(9, 0, 5));
    SAY(setpriority(PRIO_PROCESS, 1 << 22, 5));
    SAY(personality(0xffffffff));
}

static void waiting(void) {
    int epoll = epoll_create1(0), ends[2];
    if (pipe(ends)) exit(1);
    struct epoll_event event = {EPOLLIN, {.u32 = 7}};
    epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event);
    sigset_t none;
    sigemptyset(&none);
    SAY(epoll_pwait(epoll, &event, 1, 1, &none));
    SAY(syscall(SYS_epoll_pwait, epoll, &event, 1, 0, &none, 3));
    write(ends[1], "x", 1);
    SAY(epoll_pwait(epoll, &event, 1, -1, &none));
    struct timespec wait = {0, 1000};
    SAY(syscall(SYS_epoll_pwait2, epoll, &event, 1, &wait, &none, 8));
    wait.tv_nsec = 2000000000;
    SAY(syscall(SYS_epoll_pwait2, epoll, &event, 1, &wait, NULL, 0));
    SAY(epoll_pwait(epoll, &event, 0, 0, NULL));
    int watch = syscall(SYS_inotify_init);
    SAY(fcntl(watch, F_GETFD));
    siginfo_t info;
    memset(&info, 0, sizeof info);
    SAY(syscall(SYS_rt_tgsigqueueinfo, getpid(), getpid(), 65, &info));
    info.si_code = SI_USER;
    APART(SAY(syscall(SYS_rt_tgsigqueueinfo, getppid(), getppid(), SIGUSR1, &info)));
    SAY(syscall(SYS_rt_tgsigqueueinfo, 0, 1, SIGUSR1, &info));
}

static void threads(void) {
    void *head = NULL;
    size_t length = 0;
    SAY(syscall(SYS_get_robust_list, 0, &head, &length));
    SAY(length == 24 && head != NULL);
    SAY(syscall(SYS_get_robust_list, 1 << 22, &head, &length));
    SAY(syscall(SYS_set_robust_list, head, 23));
    SAY(syscall(SYS_set_robust_list, head, 24));
    SAY(syscall(SYS_set_tid_address, NULL) == getpid());
    SAY(syscall(SYS_arch_prctl, 0x1003, &head));
    SAY(syscall(SYS_arch_prctl, 0x7777, &head));
}

static void memory(void) {
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SAY(mlock2(page, 4096, MLOCK_ONFAULT));
    SAY(mlock2(page, 4096, 2));
    SAY(munlock(page, 4096));
    APART(SAY(mlockall(0)); SAY(mlockall(8)); SAY(mlockall(MCL_ONFAULT)); SAY(mlockall(MCL_CURRENT | MCL_ONFAULT)); SAY(munlockall()));
}

/* Only what is refused before anything is done. */
static void refused(void) {
    struct timespec wrong = {0, -1};
    SAY(clock_settime(CLOCK_REALTIME, &wrong));
    SAY(clock_settime(CLOCK_MONOTONIC, &wrong));
    SAY(sethostname("", -1));
    SAY(syscall(SYS_setdomainname, "", 65));
    SAY(syscall(SYS_reboot, 1, 2, 3, 4));
}

int main(int argc, char **argv) {
    if (argc > 1 || !strcmp(argv[0], "name")) {
        const char *name = (const char *)getauxval(AT_EXECFN);
        for (char **word = argv; *word; word++) printf("[%s]", *word);
        puts(strncmp(name, "/dev/fd/", 8) ? "" : name);
        char command[16];
        prctl(PR_GET_NAME, command);
        /* What a descriptor alone is called there changed with Linux 6.14. */
        if (strrchr(name, '/')[1] > '9') puts(command);
        return 0;
    }
    char folder[] = "/tmp/calls.XXXXXX";
    if (!mkdtemp(folder)) return 1;
    umask(022);
    identities();
    at_directories(folder);
    rmdir(folder);
    scheduling();
    waiting();
    threads();
    memory();
    refused();
    return 0;
}
