// Nodes of /proc, /dev and /sys as files: what can be opened, read in pieces, sought, written, listed, and by which
// user.
#include "files.h"

static char text[70000];
static long reads(const char *path) {
    int fd = open(path, O_RDONLY);
    long count = fd < 0 ? -1 : read(fd, text, sizeof text - 1), error = errno;
    close(fd), text[count < 0 ? 0 : count] = 0, errno = error;
    return count < 0 ? -1 : count > 0;
}
// Whether reading in small pieces, and again from the middle, gives what reading at once gives.
static int pieces(const char *path) {
    static char whole[70000];
    int fd = open(path, O_RDONLY);
    long count = 0, got, same = 1;
    while ((got = read(fd, whole + count, sizeof whole - count)) > 0)
        count += got;
    lseek(fd, 0, SEEK_SET);
    long again = 0;
    while ((got = read(fd, text + again, 7)) > 0)
        again += got;
    same = again == count && memcmp(text, whole, count) == 0;
    same &= pread(fd, text, 10, count / 2) == (count - count / 2 < 10 ? count - count / 2 : 10) && memcmp(text, whole + count / 2, count - count / 2 < 10 ? count - count / 2 : 10) == 0;
    same &= pread(fd, text, 10, count + 100) == 0;
    close(fd);
    return count > 0 && same;
}
static int lists(const char *path, const char *name) {
    DIR *d = opendir(path);
    struct dirent *e;
    int found = 0;
    while (d && (e = readdir(d)))
        found += strcmp(e->d_name, name) == 0;
    if (d)
        closedir(d);
    return found;
}

PROGRAM(nodes_pieces) {
    static const char *const names[] = {"/proc/self/status", "/proc/self/maps", "/proc/self/cmdline", "/proc/self/environ", "/proc/self/auxv", "/proc/self/mounts", "/proc/self/mountinfo", "/proc/self/limits", "/proc/self/comm", "/proc/version", "/proc/cpuinfo", "/proc/filesystems", "/proc/cmdline", "/proc/devices", "/proc/self/oom_score_adj", "/proc/sys/kernel/ostype", "/proc/sys/kernel/hostname", "/proc/self/fdinfo/0", "/proc/self/cgroup", "/sys/devices/system/cpu/online", "/sys/devices/system/cpu/possible"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        tell(names[i], pieces(names[i]));
}
PROGRAM(nodes_positions) {
    int fd = open("/proc/self/status", O_RDONLY);
    T(lseek(fd, 0, SEEK_CUR)), T(read(fd, text, 5)), IS(memcmp(text, "Name:", 5) == 0), T(lseek(fd, 0, SEEK_CUR)), T(lseek(fd, -3, SEEK_CUR)), T(read(fd, text, 2)), IS(memcmp(text, "me", 2) == 0), T(lseek(fd, -10, SEEK_SET)), T(lseek(fd, 1l << 40, SEEK_SET)), T(read(fd, text, 5)), T(lseek(fd, 0, SEEK_END)), T(lseek(fd, 0, SEEK_SET)), T(pread(fd, text, 4, 0)), T(pread(fd, text, 4, -1)), T(read(fd, (void *)8, 4)), T(lseek(fd, 0, SEEK_CUR)), T(read(fd, text, 0)), T(readv(fd, (struct iovec[2]){{text, 3}, {text + 3, 2}}, 2)), IS(memcmp(text, "Name:", 5) == 0), T(fcntl(fd, F_GETFL)), T(poll(&(struct pollfd){fd, POLLIN | POLLOUT}, 1, 0)), T(ioctl(fd, FIONREAD, text)), T(flock(fd, LOCK_SH)), T(write(fd, "x", 1)), T(ftruncate(fd, 0)), T(dup(fd) > 0), T(fchmod(fd, 0400) == -1), T(fallocate(fd, 0, 0, 1)), T(lseek(fd, 0, SEEK_DATA) == -1);
    fd = open("/proc/self", O_RDONLY | O_DIRECTORY), T(fd >= 0), T(read(fd, text, 5)), T(lseek(fd, 0, SEEK_SET)), T(write(fd, "x", 1)), W(openat(fd, "status", O_RDONLY)), W(openat(fd, "none", O_RDONLY)), W(openat(fd, "../self/status", O_RDONLY)), W(open("/proc/self/status/", O_RDONLY)), W(open("/proc/self/status/x", O_RDONLY)), W(open("/proc/99999999", O_RDONLY)), W(open("/proc/0", O_RDONLY)), W(open("/proc/01", O_RDONLY)), W(open("/proc/1x", O_RDONLY)), W(open("/proc/-1", O_RDONLY)), W(open("/proc/self/task/1x", O_RDONLY)), W(open("/proc/self/fd/99", O_RDONLY)), W(open("/proc/self/fd/x", O_RDONLY)), W(open("/proc/self/fd/01", O_PATH)), W(open("/proc/self/fdinfo/99", O_RDONLY));
}
PROGRAM(nodes_writes) {
    W(open("/proc/self/comm", O_RDWR)), T(write(open("/proc/self/comm", O_WRONLY), "named", 5)), T(reads("/proc/self/comm")), IS(strcmp(text, "named\n") == 0), T(write(open("/proc/self/comm", O_WRONLY), "a name that is too long", 23)), T(reads("/proc/self/comm")), IS(strcmp(text, "a name that is \n") == 0), T(write(open("/proc/self/oom_score_adj", O_WRONLY), "500", 3)), T(reads("/proc/self/oom_score_adj")), IS(strcmp(text, "500\n") == 0), T(write(open("/proc/self/oom_score_adj", O_WRONLY), "5000", 4)), T(write(open("/proc/self/oom_score_adj", O_WRONLY), "x", 1)), T(write(open("/proc/self/oom_score_adj", O_WRONLY), "0", 1));
    T(write(open("/proc/self/status", O_WRONLY), "x", 1)), T(write(open("/proc/self/cmdline", O_WRONLY), "x", 1)), T(write(open("/proc/self/maps", O_WRONLY), "x", 1)), T(write(open("/proc/version", O_WRONLY), "x", 1)), T(write(open("/proc/self/stat", O_WRONLY), "x", 1)), W(open("/proc/self/mounts", O_WRONLY)), W(open("/proc/self/limits", O_RDWR)), W(open("/proc/meminfo", O_RDWR)), W(open("/proc/sys/kernel/ostype", O_WRONLY)), T(write(open("/proc/sys/kernel/ostype", O_WRONLY), "x", 1));
    USER(W(open("/proc/sys/kernel/hostname", O_WRONLY)), W(open("/proc/1/comm", O_WRONLY)), W(open("/proc/1/comm", O_RDONLY)), W(open("/proc/1/fd", O_RDONLY)), W(open("/proc/1/stat", O_RDONLY)), W(open("/proc/1/io", O_RDONLY)), T(access("/proc/1/fd/0", F_OK)));
    T(chmod("/proc/self/comm", 0600)), T(rename("/proc/self/comm", "x")), T(unlink("/proc/version")), T(rmdir("/proc/self/task")), T(link("/proc/version", "x")), T(symlink("x", "/proc/x")), T(mknod("/proc/x", S_IFREG, 0)), T(mkdir("/proc/self/fd/x", 0700)), T(truncate("/proc/version", 0)), T(mkdir("/sys/x", 0700)), T(unlink("/sys/devices")), T(rmdir("/sys/devices")), T(rename("/sys/devices", "/sys/x")), T(symlink("x", "/sys/x")), W(open("/sys/devices/system/cpu/online", O_WRONLY)), T(chmod("/dev/null", 0666));
}
PROGRAM(nodes_links) {
    put("f", "x");
    int fd = open("f", O_RDONLY), p[2];
    char at[64];
    pipe(p);
    struct stat s;
    T(lstat("/proc/self", &s)), IS(S_ISLNK(s.st_mode)), T(readlink("/proc/self", text, 99) > 0), T(readlink("/proc/thread-self", text, 99) > 0), T(readlink("/proc/mounts", text, 99)), T(lstat("/proc/self/exe", &s)), T(s.st_mode), T(s.st_size), T(stat("/proc/self/exe", &s)), IS(S_ISREG(s.st_mode)), T(readlink("/proc/self/root", text, 99)), T(text[0]), T(lstat("/proc/self/root", &s)), T(s.st_mode), T(s.st_size), sprintf(at, "/proc/self/fd/%d", fd), T(lstat(at, &s)), T(s.st_mode), T(s.st_size), T(stat(at, &s)), IS(s.st_ino == about("f").st_ino), sprintf(at, "/proc/self/fd/%d", p[1]), T(lstat(at, &s)), T(s.st_mode), T(stat(at, &s)), IS(S_ISFIFO(s.st_mode)), memset(text, 0, 99), T(readlink(at, text, 99) > 6), IS(strncmp(text, "pipe:[", 6) == 0), W(open(at, O_WRONLY)), W(open(at, O_RDONLY | O_NONBLOCK)), T(unlink(at)), T(rename(at, "x")), T(readlink(at, text, 3)), T(readlink("/proc/self/fd", text, 9)), T(readlink("/proc/self/status", text, 9));
    sprintf(at, "/proc/self/fd/%d", open("f", O_WRONLY)), T(lstat(at, &s)), T(s.st_mode), sprintf(at, "/proc/self/fd/%d", open("f", O_RDWR)), T(lstat(at, &s)), T(s.st_mode), sprintf(at, "/proc/self/fd/%d", open("f", O_PATH)), T(lstat(at, &s)), T(s.st_mode), unlink("f"), sprintf(at, "/proc/self/fd/%d", fd), memset(text, 0, 200), T(readlink(at, text, 199) > 0), IS(strcmp(text + strlen(text) - 10, " (deleted)") == 0), W(open(at, O_RDONLY)), T(stat(at, &s)), T(s.st_nlink), sprintf(at, "/proc/self/fd/%d", socket(AF_UNIX, SOCK_STREAM, 0)), W(open(at, O_RDWR)), memset(text, 0, 99), readlink(at, text, 99), IS(strncmp(text, "socket:[", 8) == 0), T(lists("/proc/self/fd", "0")), T(lists("/proc/self/fd", "99")), T(lists("/proc", "self")), T(lists("/proc/self", "status")), T(lists("/proc/self", "none")), sprintf(at, "%d", getpid()), T(lists("/proc", at)), T(lists("/proc/self/task", at)), T(lists("/dev", "null")), T(lists("/dev", "shm")), T(lists("/sys", "devices")), T(lists("/dev/pts", "ptmx"));
}
PROGRAM(nodes_information) {
    put("f", "0123456789");
    int fd = open("f", O_RDWR | O_APPEND | O_CLOEXEC);
    char at[64];
    long position = -1, flags = -1;
    lseek(fd, 7, SEEK_SET), sprintf(at, "/proc/self/fdinfo/%d", fd), T(reads(at)), sscanf(text, "pos:\t%ld\nflags:\t%lo", &position, &flags), T(position), T(flags), IS(strstr(text, "mnt_id:\t") != NULL), IS(strstr(text, "ino:\t") != NULL);
    struct flock l = {F_WRLCK, SEEK_SET, 2, 3};
    fcntl(fd, F_SETLK, &l), T(reads(at)), IS(strstr(text, "lock:") != NULL);
    int p[2];
    pipe(p), sprintf(at, "/proc/self/fdinfo/%d", p[1]), T(reads(at)), position = flags = -1, sscanf(text, "pos:\t%ld\nflags:\t%lo", &position, &flags), T(position), T(flags), T(about("/proc/self/fdinfo").st_mode), T(about(at).st_mode);
    CHILD("in a child", sprintf(at, "/proc/self/fdinfo/%d", fd); T(reads(at)), lseek(fd, 3, SEEK_SET), T(reads(at)), sscanf(text, "pos:\t%ld", &position), T(position));
    sprintf(at, "/proc/self/fdinfo/%d", fd), reads(at), sscanf(text, "pos:\t%ld", &position), T(position), T(reads("/proc/self/mountinfo")), IS(strstr(text, " - proc ") != NULL), IS(strstr(text, " /dev/pts ") != NULL), T(reads("/proc/self/mounts")), IS(strstr(text, " /proc proc ") != NULL), IS(strstr(text, " /dev/shm tmpfs ") != NULL), T(reads("/proc/filesystems")), IS(strstr(text, "nodev\ttmpfs\n") != NULL), IS(strstr(text, "nodev\tproc\n") != NULL);
}
PROGRAM(nodes_devices) {
    struct stat s;
    static const char *const names[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        stat(names[i], &s), printf("%s: %o %u:%u %ld\n", names[i], s.st_mode, major(s.st_rdev), minor(s.st_rdev), (long)s.st_size), fflush(stdout);
    USER(W(open("/dev/null", O_RDWR)), W(open("/dev/zero", O_RDWR)), W(open("/dev/full", O_RDWR)), W(open("/dev/random", O_RDONLY)), W(open("/dev/urandom", O_RDWR)), W(open("/dev/new", O_CREAT | O_RDWR, 0600)), T(mkdir("/dev/new", 0700)), T(unlink("/dev/null")), W(open("/dev/shm/answers-user", O_CREAT | O_RDWR, 0600)), T(unlink("/dev/shm/answers-user")));
    CHILD("without a terminal", setsid(); W(open("/dev/tty", O_RDWR)), W(open("/dev/tty", O_PATH)), T(access("/dev/tty", R_OK)));
    T(access("/dev/stdin", F_OK)), T(lstat("/dev/stdin", &s)), IS(S_ISLNK(s.st_mode)), T(readlink("/dev/fd/0", text, 99) > 0);
    int fd = open("/dev/fd/1", O_WRONLY);
    W(fd), T(stat("/dev/shm", &s)), T(s.st_mode), T(stat("/dev/pts", &s)), T(s.st_mode), T(stat("/", &s)), T(s.st_mode);
}
PROGRAM(nodes_processes) {
    char at[64];
    pid_t child = fork();
    if (child == 0)
        pause(), _exit(0);
    sprintf(at, "/proc/%d", child), T(access(at, F_OK)), T(chdir(at)), T(access("status", F_OK));
    int d = open(at, O_RDONLY), st = openat(d, "status", O_RDONLY), fds = openat(d, "fd", O_RDONLY);
    T(read(st, text, 5)), T(readlinkat(d, "exe", text, 99) > 0), T(readlinkat(d, "cwd", text, 99) > 0), W(openat(d, "fd/0", O_PATH)), kill(child, SIGKILL), waitpid(child, NULL, 0), T(access(at, F_OK)), T(access("status", F_OK)), W(openat(d, "status", O_RDONLY)), T(pread(st, text, 5, 0)), T(getdents64(fds, text, 1000)), T(readlinkat(d, "exe", text, 99)), T(lseek(st, 0, SEEK_SET)), T(read(st, text, 5)), T(getdents64(d, text, 1000)), T(fstat(d, &(struct stat){0})), T(syscall(SYS_getcwd, text, 1000) > 0 || errno == ENOENT), W(openat(d, "..", O_PATH)), T(chdir("..")), T(access("self", F_OK)), chdir("/");
    child = fork();
    if (child == 0)
        _exit(0);
    pause_ms(30), sprintf(at, "/proc/%d/stat", child), T(reads(at)), IS(strstr(text, ") Z ") != NULL), sprintf(at, "/proc/%d/cmdline", child), T(reads(at)), sprintf(at, "/proc/%d/maps", child), T(reads(at)), sprintf(at, "/proc/%d/exe", child), T(readlink(at, text, 99)), sprintf(at, "/proc/%d/fd", child), T(getdents64(open(at, O_RDONLY), text, 1000)), waitpid(child, NULL, 0);
}
