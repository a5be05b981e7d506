// Users, groups and capabilities: whose they are, and that what was given up is given up.
#include "answers.h"

static int set_caps(uint64_t drop, uint64_t keep_only) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &head, data))
        return -1;
    for (int i = 0; i < 2; i++) {
        uint32_t gone = drop >> (32 * i), kept = keep_only >> (32 * i);
        data[i].effective &= ~gone & kept;
    }
    return syscall(SYS_capset, &head, data);
}
static int without(int cap) { return set_caps(1ull << cap, ~0ull); }
static int with_none(void) { return set_caps(0, 0); }

static void make(const char *path, int mode, int uid) {
    int fd = open(path, O_CREAT | O_RDWR, 0600);
    write(fd, "text", 4);
    fchmod(fd, mode);
    fchown(fd, uid, uid);
    close(fd);
}
static int try_open(const char *path, int how) {
    int fd = open(path, how, 0600);
    if (fd >= 0)
        close(fd);
    return fd < 0 ? -1 : 0;
}

static void files_without(void) {
    make("other", 0600, 1000), make("mine", 0, 0), make("script", 0644, 0), make("grouped", 0060, 1000);
    mkdir("closed", 0), mkdir("sticky", 01777);
    make("sticky/theirs", 0600, 1000);
    chown("sticky", 1001, 1001);
    CHILD("DAC_OVERRIDE", {
        T(without(CAP_DAC_OVERRIDE));
        T(try_open("other", O_RDONLY)), T(try_open("other", O_WRONLY)), T(try_open("mine", O_RDONLY));
        T(try_open("mine", O_RDWR)), T(try_open("closed", O_RDONLY)), T(mkdir("closed/new", 0700));
        T(try_open("closed/x", O_RDONLY)), T(access("mine", W_OK)), T(access("other", X_OK));
        T(faccessat(AT_FDCWD, "mine", W_OK, AT_EACCESS)), T(faccessat(AT_FDCWD, "mine", R_OK, AT_EACCESS));
        T(truncate("mine", 0)), T(truncate("other", 0));
    });
    CHILD("DAC_OVERRIDE and DAC_READ_SEARCH", {
        T(without(CAP_DAC_OVERRIDE)), T(without(CAP_DAC_READ_SEARCH));
        T(try_open("other", O_RDONLY)), T(try_open("mine", O_RDONLY)), T(try_open("closed", O_RDONLY));
        T(try_open("closed/x", O_RDONLY)), T(try_open("grouped", O_RDONLY)), T(chdir("closed"));
    });
    CHILD("DAC_READ_SEARCH alone", {
        T(set_caps(0, 1ull << CAP_DAC_READ_SEARCH));
        T(try_open("other", O_RDONLY)), T(try_open("other", O_WRONLY)), T(try_open("closed", O_RDONLY));
        T(try_open("closed/x", O_RDONLY)), T(mkdir("closed/y", 0700));
    });
    CHILD("CHOWN", {
        T(without(CAP_CHOWN));
        T(chown("mine", 5, -1)), T(chown("mine", -1, 5)), T(chown("mine", 0, 0)), T(chown("other", 1000, 1000));
        T(chown("other", -1, -1)), T(lchown("mine", 0, 7));
        T(setgroups(1, (gid_t[]){7})), T(chown("mine", -1, 7)), T(chown("mine", -1, 0));
    });
    CHILD("MKNOD", {
        T(without(CAP_MKNOD));
        T(mknod("null", S_IFCHR | 0600, 0x103)), T(mknod("disk", S_IFBLK | 0600, 0x103));
        T(mknod("fifo", S_IFIFO | 0600, 0)), T(mknod("plain", S_IFREG | 0600, 0)), T(mknod("sock", S_IFSOCK | 0600, 0));
    });
    CHILD("FOWNER", {
        T(without(CAP_FOWNER));
        T(chmod("other", 0644)), T(chmod("mine", 0)), T(utimensat(AT_FDCWD, "other", (struct timespec[2]){{1}, {2}}, 0));
        T(utimensat(AT_FDCWD, "other", NULL, 0)), T(unlink("sticky/theirs")), T(rename("sticky/theirs", "away"));
        T(try_open("other", O_RDONLY | O_NOATIME)), T(try_open("mine", O_RDONLY | O_NOATIME));
    });
    CHILD("FSETID", {
        struct stat st;
        T(chmod("mine", 06755)), T(stat("mine", &st)), T(st.st_mode & 07777);
        T(chown("mine", 0, 9)), T(chmod("mine", 06755)), T(stat("mine", &st)), T(st.st_mode & 07777);
        T(without(CAP_FSETID));
        T(chmod("mine", 06755)), T(stat("mine", &st)), T(st.st_mode & 07777);
    });
    CHILD("none at all", {
        T(with_none());
        T(setuid(5)), T(setgid(5)), T(setgroups(0, NULL)), T(setresuid(0, 5, 0)), T(chroot("."));
        T(sethostname("x", 1)), T(setpriority(PRIO_PROCESS, 0, -5)), T(kill(1, 0)), T(mlock(0, 0)), T(nice(-1));
        struct rlimit limit;
        getrlimit(RLIMIT_NOFILE, &limit), limit.rlim_max++, limit.rlim_cur = 10;
        T(setrlimit(RLIMIT_NOFILE, &limit));
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        T(clock_settime(CLOCK_REALTIME, &now));
        T(syscall(SYS_reboot, 1, 2, 3, 0));
        T(syscall(SYS_vhangup)), T(syscall(SYS_swapoff, "/nowhere")), T(syscall(SYS_acct, "/nowhere"));
        T(prctl(PR_CAPBSET_DROP, 3)), T(syscall(SYS_syslog, 2, 0, 0));
    });
    CHILD("another user with CAP_KILL, CAP_DAC_OVERRIDE", {
        T(prctl(PR_SET_KEEPCAPS, 1)), T(setresuid(1000, 1000, 1000));
        struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
        struct __user_cap_data_struct data[2] = {{(1 << CAP_KILL) | 2, (1 << CAP_KILL) | 2, 0}};
        T(syscall(SYS_capset, &head, data));
        T(try_open("mine", O_RDWR)), T(chmod("mine", 0600)), T(kill(getppid(), 0)), T(mkdir("closed/z", 0700));
        T(rmdir("closed/z")), T(chown("mine", 1000, 1000)), T(mknod("dev", S_IFCHR | 0600, 0x103));
    });
    T(chmod("closed", 0700));
}

static pthread_barrier_t meeting;
static void *other_thread(void *unused) {
    pthread_barrier_wait(&meeting);
    T(syscall(SYS_setresuid, 1000, 1000, 1000)), T(syscall(SYS_getuid)), T(try_open("root-only", O_RDONLY));
    for (int i = 0; i < 64; i++)
        syscall(SYS_geteuid);
    T(syscall(SYS_geteuid));
    CHILD("fork of the thread", { T(getuid()); T(geteuid()); });
    pthread_barrier_wait(&meeting);
    pthread_barrier_wait(&meeting);
    return unused;
}
static void threads(void) {
    make("root-only", 0600, 0);
    pthread_t thread;
    pthread_barrier_init(&meeting, NULL, 2);
    pthread_create(&thread, NULL, other_thread, NULL);
    pthread_barrier_wait(&meeting);
    pthread_barrier_wait(&meeting);
    T(syscall(SYS_getuid)), T(syscall(SYS_geteuid)), T(try_open("root-only", O_RDONLY));
    for (int i = 0; i < 64; i++)
        syscall(SYS_geteuid);
    T(syscall(SYS_geteuid));
    T(without(CAP_KILL));
    pthread_barrier_wait(&meeting);
    pthread_join(thread, NULL);
    W(syscall(SYS_setresuid, 0, 1000, 0)), T(geteuid()), T(syscall(SYS_setresuid, 0, 0, 0));
}

static void *caps_thread(void *unused) {
    T(with_none()), T(syscall(SYS_setuid, 7)), T(chroot("."));
    return unused;
}
static void caps_of_threads(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, caps_thread, NULL);
    pthread_join(thread, NULL);
    T(chroot("/")), T(syscall(SYS_getuid));
}

static void schedules(void) {
    int line[2];
    pipe(line);
    pid_t child = fork();
    if (child == 0) {
        close(line[1]);
        char byte;
        read(line[0], &byte, 1);
        _exit(0);
    }
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    struct sched_param none = {0};
    CHILD("another user's process", {
        setresgid(1000, 1000, 1000), setresuid(1000, 1000, 1000);
        T(sched_setaffinity(child, sizeof set, &set)), T(sched_setaffinity(0, sizeof set, &set));
        T(sched_setparam(child, &none)), T(sched_setscheduler(child, SCHED_BATCH, &none)), T(sched_setparam(0, &none));
        T(sched_getparam(child, &none)), T(sched_getscheduler(child)), T(sched_getaffinity(child, sizeof set, &set) > 0);
        T(setpriority(PRIO_PROCESS, child, 5)), T(kill(child, 0)), T(kill(child, SIGTERM));
        T(sched_setaffinity(999999, sizeof set, &set)), T(sched_setparam(-1, &none));
        T(syscall(SYS_tgkill, child, child, 0)), T(syscall(SYS_ioprio_set, 1, child, 0));
        struct rlimit limit;
        T(prlimit(child, RLIMIT_CORE, NULL, &limit));
        char at[64];
        sprintf(at, "/proc/%d/stat", child);
        T(try_open(at, O_RDONLY));
    });
    T(sched_setaffinity(child, sizeof set, &set)), T(sched_setparam(child, &none));
    close(line[1]);
    waitpid(child, NULL, 0);
}

static int send_creds(int fd, pid_t pid, uid_t uid, gid_t gid) {
    char byte = 'x';
    struct iovec part = {&byte, 1};
    union {
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr head;
    } control = {{0}};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_CREDENTIALS, head->cmsg_len = CMSG_LEN(sizeof(struct ucred));
    struct ucred who = {pid, uid, gid};
    memcpy(CMSG_DATA(head), &who, sizeof who);
    return sendmsg(fd, &message, MSG_DONTWAIT);
}
static void credential_messages(void) {
    int pair[2], one = 1;
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &one, sizeof one);
    T(send_creds(pair[0], getpid(), 0, 0)), T(send_creds(pair[0], 0, 0, 0)), T(send_creds(pair[0], 999999, 0, 0));
    T(send_creds(pair[0], -1, 0, 0)), T(send_creds(pair[0], getpid(), -1, 0)), T(send_creds(pair[0], getpid(), 0, -1));
    T(send_creds(pair[0], getppid(), 0, 0)), T(send_creds(pair[0], getpid(), 12345, 54321));
    CHILD("another user", {
        setresgid(1000, 1000, 1000), setresuid(1000, 1000, 1000);
        T(send_creds(pair[0], getpid(), 1000, 1000)), T(send_creds(pair[0], getppid(), 1000, 1000));
        T(send_creds(pair[0], getpid(), 0, 1000)), T(send_creds(pair[0], getpid(), 1000, 0));
        T(send_creds(pair[0], 999999, 1000, 1000));
    });
}

static void calls(void) {
    T(setresuid(-1, -1, -1)), T(syscall(SYS_setuid, -1)), T(syscall(SYS_setgid, -1)), T(syscall(SYS_setgroups, -1, 0));
    T(syscall(SYS_setgroups, 65537, 0)), T(syscall(SYS_setgroups, 1, 8)), T(getgroups(-1, NULL));
    T(syscall(SYS_getresuid, 8, 8, 8)), T(syscall(SYS_getresgid, 8, 8, 8));
    T(setpgid(-1, 0)), T(setpgid(0, -1)), T(setpgid(999999, 0)), T(getpgid(-1)), T(getpgid(999999)), T(getsid(999999));
    T(getsid(-1)), T(setpgid(0, 999999)), T(prctl(PR_SET_KEEPCAPS, 2)), T(prctl(999)), T(prctl(PR_CAPBSET_READ, 99));
    T(prctl(PR_SET_DUMPABLE, 2)), T(prctl(PR_SET_DUMPABLE, 7)), T(prctl(PR_SET_PDEATHSIG, 65)), T(prctl(PR_SET_PDEATHSIG, -1));
    T(prctl(PR_SET_NAME, 8)), T(prctl(PR_GET_NAME, 8)), T(prctl(PR_SET_NO_NEW_PRIVS, 1, 1)), T(prctl(PR_SET_NO_NEW_PRIVS, 0));
    T(prctl(PR_GET_NO_NEW_PRIVS, 1)), T(prctl(PR_SET_TIMERSLACK, 0)), T(prctl(PR_SET_CHILD_SUBREAPER, 1)), T(prctl(PR_GET_TIMING));
    T(prctl(PR_SET_TIMING, 1)), T(prctl(PR_GET_SECCOMP)), T(prctl(PR_SET_SECUREBITS, 1 << 12)), T(prctl(PR_SET_FPEMU, 1));
    T(prctl(PR_GET_ENDIAN, 8)), T(prctl(PR_SET_TSC, 9)); T(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0)), T(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0));
    T(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0)), T(prctl(PR_GET_THP_DISABLE, 1, 0, 0, 0));
    T(getpriority(9, 0)), T(setpriority(9, 0, 0)), T(getpriority(PRIO_PROCESS, 999999)), T(getrlimit(99, NULL));
    T(syscall(SYS_setrlimit, 0, 8)), T(syscall(SYS_getrlimit, 0, 8)), T(syscall(SYS_prlimit64, 999999, 0, 0, 0));
    T(setrlimit(RLIMIT_NOFILE, &(struct rlimit){20, 10})), T(syscall(SYS_getrusage, 5, 0)), T(syscall(SYS_getrusage, 0, 8));
    T(syscall(SYS_times, 8)), T(syscall(SYS_uname, 8)), T(syscall(SYS_sysinfo, 8)), T(syscall(SYS_sethostname, "x", 65));
    T(syscall(SYS_sethostname, "x", -1)), T(syscall(SYS_setdomainname, "x", 65)), T(syscall(SYS_getcpu, 8, 0, 0));
    T(syscall(SYS_capget, 0, 0)), T(syscall(SYS_capget, &(int[2]){1, 2}, 0)), T(syscall(SYS_getrandom, 0, 0, 99));
}

PROGRAM(credentials) {
    CHILD("files", files_without());
    CHILD("threads", threads());
    CHILD("capabilities of threads", caps_of_threads());
    CHILD("schedules", schedules());
    CHILD("messages", credential_messages());
    CHILD("calls", calls());
}
