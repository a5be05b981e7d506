// The machine as programs ask about it: its name, its numbers, its files of facts.
#include "answers.h"
#include <ctype.h>
#include <sys/klog.h>
#include <sys/random.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

PROGRAM(names_of_the_machine) {
    struct utsname name;
    char text[70], long_name[80];
    memset(long_name, 'a', 80);
    T(uname(&name)), T(uname((void *)8)), T(strcmp(name.sysname, "Linux")), T(strcmp(name.machine, "x86_64")), T(gethostname(text, 1)), T(syscall(SYS_sethostname, "x", -1)), T(syscall(SYS_sethostname, "x", 65)), T(syscall(SYS_sethostname, 8, 5)), T(syscall(SYS_setdomainname, "x", -1)), T(syscall(SYS_setdomainname, "x", 65)), T(syscall(SYS_setdomainname, 8, 5));
    CHILD("nobody", (setuid(5), T(sethostname("x", 1)), T(syscall(SYS_sethostname, 8, -1)), T(setdomainname("x", 1))));
}
PROGRAM(facts_of_the_machine) {
    struct sysinfo about;
    T(sysinfo(&about)), T(sysinfo((void *)8)), IS(about.totalram > 0 && about.freeram > 0 && about.procs > 0 && about.uptime > 0), T(about.mem_unit), T(sysconf(_SC_PAGESIZE)), T(sysconf(_SC_ARG_MAX) > 0), T(sysconf(_SC_NPROCESSORS_ONLN) > 0);
}
PROGRAM(chance) {
    static char bytes[1000];
    T(getrandom(bytes, 1000, 0)), T(getrandom(bytes, 1000, GRND_NONBLOCK)), T(getrandom(bytes, 300, GRND_RANDOM)), T(getrandom(bytes, 0, 0)), T(getrandom(bytes, 1, 8)), T(getrandom(bytes, 1, GRND_RANDOM | GRND_INSECURE)), T(getrandom((void *)8, 10, 0)), T(getrandom((void *)8, 0, 0)), T(getrandom(bytes, 5, GRND_INSECURE));
}
PROGRAM(the_log) {
    char text[10];
    T(klogctl(99, text, 1)), T(klogctl(-1, text, 1)), T(klogctl(2, NULL, 1)), T(klogctl(2, text, -1)), T(klogctl(3, NULL, 1)), T(klogctl(3, text, -1)), T(klogctl(3, text, 0)), T(klogctl(8, NULL, 0)), T(klogctl(8, NULL, 9));
    CHILD("nobody", (setuid(5), T(klogctl(2, text, 1)), T(klogctl(8, NULL, 4)), T(klogctl(9, NULL, 0)), T(klogctl(5, NULL, 0)), T(klogctl(99, NULL, 0))));
}
PROGRAM(what_nobody_may) {
    CHILD("nobody", (setuid(5), T(syscall(SYS_reboot, 0, 0, 0, 0)), T(mount("none", "/", "tmpfs", 0, NULL)), T(chroot("/")), T(syscall(SYS_swapon, "/nowhere", 0)), T(syscall(SYS_acct, "/nowhere")), T(syscall(SYS_vhangup))));
    T(syscall(SYS_reboot, 0, 0, 0, 0)), T(syscall(5000)), T(syscall(-1));
}

static char text[65536];
static long slurp(const char *name) {
    int fd = open(name, O_RDONLY);
    if (fd < 0)
        return -1;
    long length = 0, count;
    while ((count = read(fd, text + length, sizeof text - 1 - length)) > 0)
        length += count;
    int error = errno;
    close(fd), text[length] = 0, errno = error;
    return count < 0 ? -1 : length;
}
// The words at the lines' beginnings, without what changes.
static void labels(const char *name) {
    if (slurp(name) < 0) {
        tell(name, -1);
        return;
    }
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        char *colon = strchr(line, ':');
        if (colon)
            *colon = 0;
        printf("%s|", line);
    }
    printf("\n"), fflush(stdout);
}
PROGRAM(limits_in_proc) {
    slurp("/proc/self/limits");
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        printf("%.26s|%s\n", line, strlen(line) > 67 ? line + 67 : "");
    struct rlimit limit = {3, 4};
    setrlimit(RLIMIT_CORE, &limit), limit.rlim_max = RLIM_INFINITY, setrlimit(RLIMIT_CPU, (struct rlimit[]){{5, 6}}), slurp("/proc/self/limits");
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        if (strstr(line, "core") || strstr(line, "cpu"))
            printf("%s\n", line);
}
PROGRAM(counts_in_proc) { labels("/proc/self/io"); }
PROGRAM(spaces_in_proc) {
    const char *kinds[] = {"cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "user", "uts"};
    char name[60], where[80] = {0}, there[80] = {0};
    for (int i = 0; i < 8; i++) {
        sprintf(name, "/proc/self/ns/%s", kinds[i]), memset(where, 0, 80), T(readlink(name, where, 79) > 0), printf("%.*s\n", (int)strcspn(where, "["), where), sprintf(name, "/proc/%d/ns/%s", getppid(), kinds[i]), memset(there, 0, 80), readlink(name, there, 79), IS(strcmp(where, there) == 0);
    }
    struct stat first, second;
    T(stat("/proc/self/ns/uts", &first)), sprintf(name, "/proc/%d/ns/uts", getppid()), T(stat(name, &second)), IS(first.st_ino == second.st_ino && first.st_dev == second.st_dev), T(open("/proc/self/ns/nothing", O_RDONLY));
}
static void setting(const char *name) {
    char path[100];
    sprintf(path, "/proc/sys/%s", name);
    long length = slurp(path);
    int digits = length > 0;
    for (char *at = text; *at; at++)
        digits &= isdigit(*at) || isspace(*at) || *at == '-';
    printf("%s: %s %s\n", name, length < 0 ? strerrorname_np(errno) : "there", digits ? "numbers" : "text"), fflush(stdout);
}
PROGRAM(settings_of_the_machine) {
    const char *names[] = {"kernel/pid_max", "kernel/threads-max", "kernel/hostname", "kernel/domainname", "kernel/osrelease", "kernel/ostype", "kernel/version", "kernel/random/boot_id", "kernel/random/uuid", "kernel/random/entropy_avail", "kernel/random/poolsize", "kernel/cap_last_cap", "kernel/ngroups_max", "kernel/core_pattern", "kernel/core_uses_pid", "kernel/core_pipe_limit", "kernel/randomize_va_space", "kernel/overflowuid", "kernel/overflowgid", "kernel/msgmax", "kernel/msgmnb", "kernel/msgmni", "kernel/sem", "kernel/shmall", "kernel/shmmax", "kernel/shmmni", "kernel/printk", "kernel/panic", "kernel/dmesg_restrict", "kernel/kptr_restrict", "kernel/tainted", "kernel/nothing", "kernel/pty/max", "kernel/panic_on_oops", "kernel/ctrl-alt-del", "kernel/print-fatal-signals", "kernel/perf_event_paranoid", "vm/overcommit_memory", "vm/overcommit_ratio", "vm/overcommit_kbytes", "vm/max_map_count", "vm/swappiness", "vm/mmap_min_addr", "vm/dirty_ratio", "vm/dirty_background_ratio", "vm/dirty_bytes", "vm/dirty_background_bytes", "vm/dirty_expire_centisecs", "vm/dirty_writeback_centisecs", "vm/vfs_cache_pressure", "vm/page-cluster", "vm/panic_on_oom", "vm/oom_kill_allocating_task", "vm/oom_dump_tasks", "vm/nr_hugepages", "vm/hugetlb_shm_group", "vm/legacy_va_layout", "vm/laptop_mode", "fs/file-max", "fs/nr_open", "fs/pipe-max-size", "fs/leases-enable", "fs/dir-notify-enable", "fs/overflowuid", "fs/overflowgid", "fs/suid_dumpable", "fs/inotify/max_user_watches", "fs/inotify/max_user_instances", "fs/inotify/max_queued_events", "fs/epoll/max_user_watches", "fs/mqueue/msg_max", "fs/mqueue/msgsize_max", "fs/mqueue/msg_default", "fs/mqueue/msgsize_default", "fs/mqueue/queues_max", "net/core/somaxconn"};
    for (int i = 0; i < sizeof names / sizeof *names; i++)
        setting(names[i]);
}
static void wrote(const char *name, const char *what) {
    char path[100];
    sprintf(path, "/proc/sys/%s", name);
    int fd = open(path, O_WRONLY);
    printf("%s %s: ", name, what), tell("", fd < 0 ? -1 : write(fd, what, strlen(what))), close(fd);
}
PROGRAM(settings_refused) {
    // Nothing is set that a host would keep.
    CHILD("nobody", (setuid(5), wrote("vm/swappiness", "5"), setting("vm/swappiness"), setting("vm/mmap_min_addr"), W(open("/proc/sys/kernel/osrelease", O_RDWR))));
}
PROGRAM(facts_of_processes) {
    const char *names[] = {"auxv", "cgroup", "cmdline", "comm", "cwd", "environ", "exe", "fd", "fdinfo", "gid_map", "io", "limits", "maps", "mountinfo", "mounts", "ns", "oom_score", "oom_score_adj", "personality", "root", "setgroups", "smaps_rollup", "stat", "statm", "status", "task", "timerslack_ns", "uid_map", "wchan"};
    char path[80];
    struct stat about;
    for (int i = 0; i < sizeof names / sizeof *names; i++)
        sprintf(path, "/proc/self/%s", names[i]), printf("%s %o ", names[i], stat(path, &about) ? 0 : about.st_mode), lstat(path, &about) ? printf("none\n") : printf("%o\n", about.st_mode);
}
