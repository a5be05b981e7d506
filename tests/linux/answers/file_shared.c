// What several hold at once: appending, files that run, readiness, leases, listings of users, numbers of inodes.
#include "files.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>

static char text[70000];

PROGRAM(shared_appends) {
    put("f", "");
    int a = open("f", O_RDWR | O_APPEND), b = open("f", O_RDWR | O_APPEND), w = open("f", O_RDWR);
    T(write(a, "one", 3)), T(write(b, "two", 3)), T(write(a, "three", 5)), T(lseek(a, 0, SEEK_CUR)), T(lseek(b, 0, SEEK_CUR)), IS(holds("f", "onetwothree")), T(write(w, "ONE", 3)), T(write(w, "TWO", 3)), IS(holds("f", "ONETWOthree")), ftruncate(w, 2), T(write(b, "x", 1)), T(lseek(b, 0, SEEK_CUR)), T(write(w, "y", 1)), T(length("f")), T(pread(w, text, 10, 0)), T(text[5]), T(text[6]);
    fflush(stdout);
    for (int i = 0; i < 4; i++)
        if (fork() == 0) {
            for (int k = 0; k < 50; k++)
                write(a, "0123456789", 10);
            _exit(0);
        }
    while (wait(NULL) > 0) {
    }
    T(length("f"));
    int fd = open("g", O_CREAT | O_RDWR, 0600);
    for (int i = 0; i < 4; i++)
        if (fork() == 0) {
            for (int k = 0; k < 50; k++)
                write(fd, "0123456789", 10);
            _exit(0);
        }
    while (wait(NULL) > 0) {
    }
    T(length("g")), T(lseek(fd, 0, SEEK_CUR));
}
PROGRAM(shared_programs) {
    int from = open("/proc/self/exe", O_RDONLY), to = open("prog", O_CREAT | O_WRONLY, 0755);
    while (sendfile(to, from, NULL, 1 << 20) > 0) {
    }
    T(about("prog").st_size == about_fd(from).st_size);
    CHILD("still open for writing", execl("./prog", "prog", "none of these", NULL); T(errno == ETXTBSY));
    close(to), fflush(stdout);
    int line[2], ready[2];
    pipe(line), pipe(ready);
    pid_t child = fork();
    if (child == 0)
        dup2(line[0], 0), close(line[1]), close(ready[0]), fcntl(ready[1], F_SETFD, FD_CLOEXEC), execl("./prog", "prog", "sleep", NULL), _exit(1);
    close(ready[1]), read(ready[0], text, 1), W(open("prog", O_WRONLY)), W(open("prog", O_RDWR)), W(open("prog", O_RDONLY)), W(open("prog", O_WRONLY | O_TRUNC)), W(open("prog", O_RDONLY | O_TRUNC)), T(truncate("prog", 0)), T(chmod("prog", 0700)), T(rename("prog", "moved")), T(link("moved", "linked")), W(open("linked", O_WRONLY)), T(unlink("moved")), sprintf(text, "/proc/%d/exe", child), W(open(text, O_WRONLY)), W(open(text, O_RDONLY)), close(line[1]), waitpid(child, NULL, 0), W(open("linked", O_WRONLY));
    chmod("linked", 0611);
    USER(W(open("linked", O_RDONLY)));
    chmod("linked", 0644);
    CHILD("root without a right to execute", T(execl("./linked", "linked", NULL)));
    put("script", "#!/none/interpreter\n"), chmod("script", 0755), put("empty", ""), chmod("empty", 0755), put("odd", "text\n"), chmod("odd", 0755), put("self", "#!./self\n"), chmod("self", 0755), put("blank", "#!\n"), chmod("blank", 0755), put("short", "#!"), chmod("short", 0755);
    T(execl("./script", "script", NULL)), T(execl("./empty", "empty", NULL)), T(execl("./odd", "odd", NULL)), T(execl("./self", "self", NULL)), T(execl("./blank", "blank", NULL));
}
PROGRAM(shared_readiness) {
    put("f", "x"), mkdir("d", 0755), mkfifo("p", 0600);
    int e = epoll_create(1), p[2], f = open("f", O_RDWR);
    struct epoll_event event = {EPOLLIN, {0}};
    pipe(p);
#define ADDS(fd) T(epoll_ctl(e, EPOLL_CTL_ADD, fd, &event))
    ADDS(f), ADDS(open("d", O_RDONLY)), ADDS(open("f", O_PATH)), ADDS(99), ADDS(e), ADDS(p[0]), ADDS(p[0]), ADDS(open("p", O_RDWR)), ADDS(open("/dev/null", O_RDWR)), ADDS(open("/dev/zero", O_RDWR)), ADDS(open("/dev/urandom", O_RDONLY)), ADDS(open("/proc/self/status", O_RDONLY)), ADDS(memfd_create("m", 0)), ADDS(eventfd(0, 0)), ADDS(open("/dev/ptmx", O_RDWR | O_NOCTTY));
    struct pollfd polls[] = {{f, POLLIN | POLLOUT | POLLPRI}, {open("d", O_RDONLY), POLLIN | POLLOUT}, {open("/dev/null", O_RDWR), POLLIN | POLLOUT}, {99, POLLIN}, {-1, POLLIN}, {p[1], POLLIN | POLLOUT}, {open("f", O_PATH), POLLIN}};
    T(poll(polls, 7, 0));
    for (int i = 0; i < 7; i++)
        T(polls[i].revents);
    fd_set in, out;
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_SET(f, &in), FD_SET(f, &out), T(select(f + 1, &in, &out, NULL, &(struct timeval){0}));
}
PROGRAM(shared_leases) {
    signal(SIGIO, SIG_IGN);
    put("f", "x"), mkdir("d", 0755);
    int r = open("f", O_RDONLY), w = open("f", O_RDWR);
    T(fcntl(r, F_SETLEASE, F_RDLCK)), T(fcntl(w, F_SETLEASE, F_WRLCK)), close(w), T(fcntl(r, F_SETLEASE, F_RDLCK)), T(fcntl(r, F_GETLEASE)), T(fcntl(r, F_SETLEASE, F_WRLCK)), W(open("f", O_RDONLY | O_NONBLOCK)), W(open("f", O_WRONLY | O_NONBLOCK)), T(fcntl(r, F_SETLEASE, F_UNLCK)), T(fcntl(r, F_GETLEASE)), T(fcntl(r, F_SETLEASE, F_UNLCK)), T(fcntl(open("d", O_RDONLY), F_SETLEASE, F_RDLCK)), T(fcntl(open("/dev/null", O_RDONLY), F_SETLEASE, F_RDLCK)), T(fcntl(r, F_SETLEASE, 7));
    USER(T(fcntl(r, F_SETLEASE, F_RDLCK)));
    chown("f", 1000, 1000);
    USER(T(fcntl(r, F_SETLEASE, F_RDLCK)), T(fcntl(r, F_GETLEASE)));
}
PROGRAM(shared_numbers) {
    put("a", "x"), put("b", "y"), link("a", "c"), symlink("a", "s"), mkdir("d", 0755);
    ino_t a = about("a").st_ino;
    int fd = open("a", O_RDWR);
    IS(about("c").st_ino == a), IS(about("b").st_ino != a), IS(about("s").st_ino != a), IS(about_fd(fd).st_ino == a), rename("a", "z"), IS(about("z").st_ino == a), IS(about_fd(fd).st_ino == a), unlink("z"), unlink("c"), put("a", "new"), IS(about("a").st_ino != a), IS(about("d/.").st_ino == about("d").st_ino), IS(about("d/..").st_ino == about(".").st_ino), IS(about("/..").st_ino == about("/").st_ino), IS(about(".").st_dev == about("d").st_dev), IS(about("a").st_rdev == 0);
    for (int i = 0; i < 3; i++)
        rename("a", "b"), put("a", "again");
    T(links("b")), T(length("b")), IS(about("a").st_ino != about("b").st_ino), T(about("d").st_size >= 0), IS(about("/proc/self").st_ino == about("/proc/self").st_ino), sprintf(text, "/proc/%d/status", getpid()), IS(about("/proc/self/status").st_ino == about(text).st_ino), T(fcntl(fd, 1027, fd)), T(fcntl(fd, 1027, dup(fd))), T(fcntl(fd, 1027, open("a", O_RDWR))), T(fcntl(fd, 1027, 99)), T(fcntl(99, 1027, fd)), T(fcntl(open("a", O_PATH), 1027, fd));
}
PROGRAM(shared_removed) {
    mkdir("d", 0755), put("d/f", "x");
    int d = open("d", O_RDONLY), f = open("d/f", O_RDWR);
    char at[64];
    unlink("d/f"), rmdir("d"), T(write(f, "more", 4)), T(about_fd(f).st_nlink), T(about_fd(d).st_nlink), T(getdents64(d, text, 1000)), T(fchdir(d)), T(syscall(SYS_getcwd, text, 1000)), T(access(".", F_OK)), T(access("..", F_OK)), T(access("f", F_OK)), W(open("new", O_CREAT | O_RDWR, 0600)), T(mkdir("x", 0700)), T(symlink("x", "y")), T(linkat(f, "", AT_FDCWD, "f", AT_EMPTY_PATH)), T(rmdir(".")), T(rmdir("../d")), W(open(".", O_RDONLY)), W(open(".", O_TMPFILE | O_RDWR, 0600)), T(chmod(".", 0700)), T(utimes(".", NULL)), T(statfs(".", &(struct statfs){0})), T(chdir(".")), T(chdir("..")), T(access("a", F_OK)), T(flock(f, LOCK_EX)), T(fcntl(f, F_SETLK, &(struct flock){F_WRLCK})), T(ftruncate(f, 1 << 20)), T(fchmod(f, 0600)), T(fchown(f, 1, 1)), T(fsync(f)), sprintf(at, "/proc/self/fd/%d", f), W(open(at, O_RDWR)), T(truncate(at, 5)), T(about_fd(f).st_size), T(chmod(at, 0400)), T(about_fd(f).st_mode), T(access(at, F_OK));
}
