// Pipes and FIFOs as files, sockets in the tree, files in memory and their seals.
#include "files.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>

static char text[70000];
static void heard(int number) { write(1, "signal\n", 7); }
static int events(int fd) {
    struct pollfd p = {fd, POLLIN | POLLOUT | POLLPRI | POLLRDHUP};
    poll(&p, 1, 0);
    return p.revents;
}

PROGRAM(pipe_ends) {
    int p[2];
    pipe(p), T(read(p[1], text, 1)), T(write(p[0], "x", 1)), T(events(p[0])), T(events(p[1])), T(write(p[1], "abc", 3)), T(events(p[0])), T(read(p[0], text, 2)), T(read(p[0], text, 0)), T(write(p[1], "", 0)), T(read(p[0], text, 9)), T(pread(p[0], text, 1, 0)), T(pwrite(p[1], "x", 1, 0)), T(lseek(p[0], 0, SEEK_SET)), T(ftruncate(p[1], 0)), T(fsync(p[0])), W(mmap(0, 4096, PROT_READ, MAP_SHARED, p[0], 0) == MAP_FAILED ? -1 : 0), write(p[1], "rest", 4), close(p[1]), T(events(p[0])), T(read(p[0], text, 2)), T(read(p[0], text, 9)), T(read(p[0], text, 9)), T(events(p[0])), T(read(p[0], (void *)8, 9));
    pipe(p), signal(SIGPIPE, heard), close(p[0]), T(events(p[1])), T(write(p[1], "x", 1)), T(write(p[1], "", 0)), T(write(p[1], (void *)8, 1)), signal(SIGPIPE, SIG_IGN), T(write(p[1], "x", 1)), T(writev(p[1], &(struct iovec){"x", 1}, 1));
    CHILD("at a broken pipe", signal(SIGPIPE, SIG_DFL); write(p[1], "x", 1));
    pipe2(p, O_NONBLOCK), T(read(p[0], text, 1)), T(read(p[0], text, 0)), T(read(p[0], (void *)8, 1)), T(write(p[1], text, 70000)), T(write(p[1], "x", 1)), T(events(p[1])), T(write(p[1], "", 0)), T(read(p[0], text, 4096)), T(events(p[1])), T(write(p[1], text, 4097)), T(events(p[1])), T(write(p[1], text, 4096)), T(write(p[1], "x", 1)), close(p[1]), T(read(p[0], text, 70000)), T(read(p[0], text, 70000));
}
// A page goes in or comes out whole or not at all, wherever the program's memory ends.
PROGRAM(pipe_faults) {
    int p[2];
    char *m = mmap(0, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *end = m + 12288;
    munmap(end, 4096), memset(m, 1, 12288), pipe2(p, O_NONBLOCK);
    T(write(p[1], end - 1, 2)), T(read(p[0], text, 9)), T(write(p[1], end - 200, 4096)), T(read(p[0], text, 9));
    T(writev(p[1], (struct iovec[]){{m, 3}, {end, 3}}, 2)), T(read(p[0], text, 9)), T(writev(p[1], (struct iovec[]){{end - 1, 1}, {end, 1}}, 2)), T(read(p[0], text, 9));
    T(write(p[1], m, 16384)), T(read(p[0], text, 70000)), T(write(p[1], m + 100, 12288)), T(read(p[0], text, 70000)), T(write(p[1], m + 4096, 12288)), T(read(p[0], text, 70000));
    T(write(p[1], "ab", 2)), T(write(p[1], end - 1, 2)), T(read(p[0], text, 9)), T(read(p[0], text, 9));
    T(write(p[1], "abcd", 4)), T(read(p[0], end - 2, 4)), T(read(p[0], end - 2, 2)), T(read(p[0], text, 9));
    T(write(p[1], text, 12288)), T(read(p[0], end - 4096, 12288)), T(read(p[0], end - 100, 12288)), T(readv(p[0], (struct iovec[]){{m, 100}, {end, 3}}, 2)), T(readv(p[0], (struct iovec[]){{m, 4096}, {end, 3}}, 2)), T(read(p[0], text, 70000));
}
// One byte from and to pages that are not there yet, are not the program's, or may not be written; often enough for calls to be rewritten.
PROGRAM(pipe_bytes) {
    int p[2];
    char *page = mmap(0, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *gone = page + 4096, *fixed = page + 8192;
    munmap(gone, 4096), *fixed = 'f', mprotect(fixed, 4096, PROT_READ), pipe2(p, O_NONBLOCK);
    for (int i = 0; i < 40; i++) write(p[1], "w", 1), read(p[0], text, 1);
    for (int i = 0; i < 3; i++) {
        madvise(page, 4096, MADV_DONTNEED), madvise(fixed + 4096, 4096, MADV_DONTNEED), T(write(p[1], page, 1)), T(read(p[0], fixed + 4096, 1)), T(fixed[4096]), T(write(p[1], gone, 1)), T(write(p[1], gone - 1, 1)), T(write(p[1], (void *)8, 1)), T(write(p[1], (void *)-1, 1)), T(ioctl(p[0], FIONREAD, text)), T(*(int *)text), T(read(p[0], text, 9));
        T(write(p[1], "x", 1)), T(read(p[0], gone, 1)), T(read(p[0], fixed, 1)), T(*fixed), T(read(p[0], (void *)8, 1)), T(read(p[0], (void *)-1, 1)), T(read(p[0], page, 1)), T(*page), T(read(p[0], page, 1));
    }
    CHILD("a page of both", *page = 'c'; T(write(p[1], page, 1)));
    T(*page), T(read(p[0], page + 1, 1)), T(page[1]);
}
PROGRAM(pipe_sizes) {
    int p[2];
    pipe2(p, O_NONBLOCK), T(fcntl(p[0], F_SETPIPE_SZ, 8192)), T(write(p[1], text, 10000)), T(write(p[1], text, 1)), T(fcntl(p[0], F_SETPIPE_SZ, 4096)), T(fcntl(p[0], F_SETPIPE_SZ, 16384)), T(write(p[1], text, 10000)), T(ioctl(p[0], FIONREAD, text)), T(*(int *)text), T(read(p[0], text, 70000)), T(fcntl(p[0], F_SETPIPE_SZ, 4096)), T(write(p[1], text, 4096)), T(write(p[1], text, 4096)), T(read(p[0], text, 4096)), T(read(p[0], text, 70000));
    pipe2(p, O_NONBLOCK), fcntl(p[0], F_SETPIPE_SZ, 8192), T(write(p[1], text, 4096)), T(write(p[1], text, 3000)), T(write(p[1], text, 3000)), T(read(p[0], text, 4096)), T(write(p[1], text, 4096)), T(write(p[1], text, 4096)), T(read(p[0], text, 70000));
}
PROGRAM(fifo_opens) {
    mkfifo("p", 0644), T(mode("p")), W(open("p", O_WRONLY | O_NONBLOCK)), W(open("p", O_RDONLY | O_NONBLOCK | O_DIRECTORY)), W(open("p", O_PATH));
    int r = open("p", O_RDONLY | O_NONBLOCK);
    W(r), T(read(r, text, 1)), T(events(r));
    int w = open("p", O_WRONLY | O_NONBLOCK);
    W(w), T(events(r)), T(events(w)), T(read(r, text, 1)), T(write(w, "abc", 3)), T(read(r, text, 9)), T(fcntl(w, F_SETFL, 0)), close(w), T(events(r)), T(read(r, text, 9)), w = open("p", O_WRONLY), T(read(r, text, 9)), T(events(r)), T(write(w, "left", 4)), close(w), T(read(r, text, 2)), close(r), r = open("p", O_RDONLY | O_NONBLOCK), T(read(r, text, 9)), close(r);
    int rw = open("p", O_RDWR);
    W(rw), T(write(rw, "self", 4)), T(read(rw, text, 9)), T(events(rw)), T(fcntl(rw, F_GETPIPE_SZ)), T(lseek(rw, 0, SEEK_CUR)), T(about_fd(rw).st_mode), T(about_fd(rw).st_size), write(rw, "seen", 4), T(length("p")), T(unlink("p")), T(about_fd(rw).st_nlink), T(write(rw, "gone", 4)), T(read(rw, text, 9)), mkfifo("p", 0600), W(open("p", O_WRONLY | O_NONBLOCK)), T(write(rw, "x", 1)), W(open("p", O_WRONLY | O_NONBLOCK));
    link("p", "q"), r = open("p", O_RDONLY | O_NONBLOCK), w = open("q", O_WRONLY | O_NONBLOCK), T(write(w, "linked", 6)), T(read(r, text, 9)), rename("q", "z"), W(open("z", O_WRONLY | O_NONBLOCK)), signal(SIGPIPE, heard), close(r), T(write(w, "x", 1)), T(events(w)), chmod("p", 0);
    USER(W(open("p", O_RDWR)), W(open("p", O_RDONLY | O_NONBLOCK)));
}
PROGRAM(fifo_waits) {
    mkfifo("p", 0644), mkfifo("q", 0644);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int w = open("p", O_WRONLY);
        write(w, "came", 4), close(w), _exit(0);
    }
    int r = open("p", O_RDONLY);
    T(read(r, text, 4)), T(read(r, text, 4)), waitpid(child, NULL, 0);
    struct sigaction action = {.sa_handler = heard};
    sigaction(SIGALRM, &action, NULL), ualarm(20000, 0), W(open("q", O_RDONLY)), ualarm(20000, 0), W(open("q", O_WRONLY)), W(open("q", O_WRONLY | O_NONBLOCK));
    int both = open("q", O_RDWR);
    ualarm(20000, 0), T(read(both, text, 1)), fcntl(both, F_SETPIPE_SZ, 4096), ualarm(20000, 0), T(write(both, text, 5000)), T(read(both, text, 70000));
}
PROGRAM(socket_names) {
    int s = socket(AF_UNIX, SOCK_STREAM, 0), c = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un at = {AF_UNIX, "s"}, none = {AF_UNIX, "none"}, file = {AF_UNIX, "f"}, deep = {AF_UNIX, "f/x"}, lost = {AF_UNIX, "no/x"}, link = {AF_UNIX, "l"};
    put("f", "x"), symlink("s", "l"), symlink("none", "dangling"), T(bind(s, (void *)&at, sizeof at)), T(mode("s")), T(length("s")), T(links("s")), T(bind(c, (void *)&at, sizeof at)), T(bind(c, (void *)&deep, sizeof deep)), T(bind(c, (void *)&lost, sizeof lost)), T(connect(c, (void *)&at, sizeof at)), T(listen(s, 1)), T(connect(c, (void *)&none, sizeof none)), T(connect(c, (void *)&file, sizeof file)), T(connect(c, (void *)&deep, sizeof deep)), T(connect(c, (void *)&link, sizeof link)), W(open("s", O_RDWR)), W(open("s", O_PATH)), T(chmod("s", 0600)), T(chown("s", 0, 0)), T(rename("s", "t")), strcpy(at.sun_path, "t"), c = socket(AF_UNIX, SOCK_STREAM, 0), T(connect(c, (void *)&at, sizeof at));
    struct sockaddr_un name;
    socklen_t size = sizeof name;
    T(getsockname(s, (void *)&name, &size)), T(size), T(strcmp(name.sun_path, "s")), T(unlink("t")), c = socket(AF_UNIX, SOCK_STREAM, 0), T(connect(c, (void *)&at, sizeof at)), T(bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&at, sizeof at)), strcpy(at.sun_path, "dangling"), T(bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&at, sizeof at)), memset(at.sun_path, 'x', sizeof at.sun_path), T(bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&at, sizeof at)), memset(at.sun_path, 'y', 108), T(connect(c, (void *)&at, sizeof at)), T(bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&at, sizeof at + 1)), T(bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&at, 1)), T(bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&at, 2));
    strcpy(at.sun_path, "closed/s"), mkdir("closed", 0755);
    USER(T(bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&at, sizeof at)));
    s = socket(AF_UNIX, SOCK_STREAM, 0), T(bind(s, (void *)&at, sizeof at)), listen(s, 5);
    USER(T(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&at, sizeof at)));
    chmod("closed/s", 0777), chmod("closed", 0700);
    USER(T(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&at, sizeof at)));
    T(connect(socket(AF_UNIX, SOCK_DGRAM, 0), (void *)&at, sizeof at)), close(s), T(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&at, sizeof at));
}
PROGRAM(memory_seals) {
    int fd = memfd_create("name", MFD_ALLOW_SEALING), plain = memfd_create("plain", 0);
    char at[200] = {0};
    T(fcntl(fd, F_GET_SEALS)), T(fcntl(plain, F_GET_SEALS)), T(fcntl(plain, F_ADD_SEALS, F_SEAL_WRITE)), T(memfd_create(NULL, 0)), T(memfd_create((void *)8, 0)), T(memfd_create("x", 0x40)), memset(at, 'x', 199), W(memfd_create(at, 0));
    char longest[300];
    memset(longest, 'x', 299), longest[249] = 0, W(memfd_create(longest, 0)), longest[249] = 'x', longest[250] = 0, W(memfd_create(longest, 0)), W(memfd_create("", 0)), W(memfd_create("a/b", MFD_CLOEXEC)), T(fcntl(memfd_create("a", MFD_CLOEXEC), F_GETFD)), memset(at, 0, sizeof at), sprintf(longest, "/proc/self/fd/%d", fd), T(readlink(longest, at, 199)), IS(strcmp(at, "/memfd:name (deleted)") == 0), T(about_fd(fd).st_nlink), T(about_fd(fd).st_mode), T(fcntl(fd, F_GETFL)), W(open(longest, O_RDONLY)), T(linkat(AT_FDCWD, longest, AT_FDCWD, "here", AT_SYMLINK_FOLLOW)), T(fchmod(fd, 0600)), T(about_fd(fd).st_mode);
    T(ftruncate(fd, 10000)), T(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)), T(ftruncate(fd, 5000)), T(ftruncate(fd, 20000)), T(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW)), T(ftruncate(fd, 30000)), T(write(fd, "x", 1)), T(pwrite(fd, "xyz", 3, 19999)), T(pwrite(fd, "xyz", 3, 20000)), T(fallocate(fd, 0, 0, 30000)), T(fallocate(fd, 0, 0, 10)), T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096));
    char *map = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    T(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE)), munmap(map, 4096), map = mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0), T(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE)), T(mprotect(map, 4096, PROT_READ | PROT_WRITE)), T(fcntl(fd, F_GET_SEALS)), T(write(fd, "x", 1)), T(write(fd, "", 0)), T(pwrite(fd, "x", 1, 0)), T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096)), W(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0), W(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0) == MAP_FAILED ? -1 : 0), W(mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0), T(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL)), T(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)), T(fcntl(fd, F_ADD_SEALS, 0)), T(fcntl(fd, F_ADD_SEALS, 0x100)), T(fcntl(fd, F_GET_SEALS)), T(fchmod(fd, 0600)), T(futimens(fd, NULL));
    fd = memfd_create("future", MFD_ALLOW_SEALING), ftruncate(fd, 8192), map = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), T(fcntl(fd, F_ADD_SEALS, 0x10)), map[0] = 'm', T(pread(fd, at, 1, 0)), T(at[0]), T(write(fd, "x", 1)), W(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0), sprintf(longest, "/proc/self/fd/%d", fd);
    int ro = open(longest, O_RDONLY);
    T(fcntl(ro, F_ADD_SEALS, F_SEAL_GROW)), T(fcntl(ro, F_GET_SEALS)), T(fcntl(memfd_create("exec", 8), F_GET_SEALS)), T(about_fd(memfd_create("exec", 8)).st_mode), T(about_fd(memfd_create("exec", 16)).st_mode), T(memfd_create("both", 24)), fd = memfd_create("e", MFD_ALLOW_SEALING), T(fcntl(fd, F_ADD_SEALS, 0x20)), T(fchmod(fd, 0700)), T(fchmod(fd, 0600)), T(fcntl(fd, F_GET_SEALS));
}
PROGRAM(memory_files) {
    put("f", "0123456789"), chmod("f", 0666);
    int fd = open("f", O_RDWR), r = open("f", O_RDONLY), w = open("f", O_WRONLY), a = open("f", O_RDWR | O_APPEND);
#define MAPS(...) W(mmap(0, __VA_ARGS__) == MAP_FAILED ? -1 : 0)
    MAPS(4096, PROT_READ, MAP_SHARED, r, 0), MAPS(4096, PROT_WRITE, MAP_SHARED, r, 0), MAPS(4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, r, 0), MAPS(4096, PROT_READ, MAP_SHARED, w, 0), MAPS(4096, PROT_WRITE, MAP_PRIVATE, w, 0), MAPS(4096, PROT_WRITE, MAP_SHARED, w, 0), MAPS(4096, PROT_NONE, MAP_SHARED, w, 0), MAPS(4096, PROT_READ, MAP_SHARED, 99, 0), MAPS(4096, PROT_READ, MAP_SHARED, -1, 0), MAPS(0, PROT_READ, MAP_SHARED, r, 0), MAPS(4096, PROT_READ, MAP_SHARED, r, 1), MAPS(4096, PROT_READ, 0, r, 0), MAPS(4096, PROT_READ, MAP_SHARED | MAP_PRIVATE, r, 0), MAPS(4096, PROT_READ, MAP_SHARED_VALIDATE, r, 0), MAPS(4096, PROT_READ, MAP_SHARED_VALIDATE | 0x4000000, r, 0), MAPS(4096, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, r, 0), MAPS(4096, PROT_READ, MAP_SHARED, open("f", O_PATH), 0), MAPS(4096, PROT_READ | PROT_WRITE, MAP_SHARED, a, 0), MAPS(4096, PROT_READ, MAP_SHARED, open(".", O_RDONLY), 0), MAPS(4096, PROT_READ, MAP_PRIVATE, open("/dev/null", O_RDONLY), 0), MAPS(4096, PROT_READ, MAP_PRIVATE, open("/dev/zero", O_RDONLY), 0), MAPS(4096, PROT_READ, MAP_PRIVATE, open("/proc/self/status", O_RDONLY), 0), MAPS(4096, PROT_READ, MAP_PRIVATE, eventfd(0, 0), 0), MAPS(-1, PROT_READ, MAP_PRIVATE, r, 0), MAPS(4096, PROT_READ, MAP_PRIVATE, r, 1l << 62);
    char *m = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), *ro = mmap(0, 4096, PROT_READ, MAP_SHARED, r, 0), *priv = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, r, 0);
    T(m[3]), T(m[10]), T(m[4095]), m[0] = 'A', m[20] = 'Z', IS(holds("f", "A123456789")), T(ro[0]), T(priv[0]), priv[1] = 'P', T(m[1]), pwrite(fd, "B", 1, 0), T(m[0]), T(priv[0]), pwrite(fd, "C", 1, 1), T(priv[1]), T(mprotect(ro, 4096, PROT_READ | PROT_WRITE)), T(mprotect(priv, 4096, PROT_READ | PROT_WRITE | PROT_EXEC)), ftruncate(fd, 30), T(pread(fd, text, 30, 0)), T(text[20]), T(msync(m, 4096, MS_SYNC)), T(msync(m, 4096, MS_ASYNC)), T(msync(m, 4096, MS_INVALIDATE)), T(msync(m, 4096, MS_SYNC | MS_ASYNC)), T(msync(m, 4096, 8)), T(msync(m + 1, 4096, MS_SYNC)), T(msync(m, 0, MS_SYNC)), T(msync((void *)4096, 4096, MS_SYNC)), T(msync(m, -1, MS_SYNC)), T(mlock(ro, 4096)), T(munlock(ro, 4096));
    CHILD("behind the end", T(m[4096]));
    CHILD("writing what may be read", ro[0] = 1);
    CHILD("a page that was cut", T(m[0]); ftruncate(fd, 0); T(m[0]));
    T(munmap(m + 4096, 4096)), T(munmap(m, 4096)), T(munmap(m, 4096)), T(munmap(m + 1, 4096)), T(munmap(m, 0)), close(fd), close(r), close(w), unlink("f"), priv = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), priv[1] = 1, T(madvise(priv, 4096, MADV_DONTNEED)), T(madvise(priv, 4096, MADV_REMOVE)), T(madvise(priv + 1, 4096, MADV_NORMAL)), T(madvise(priv, 4096, 999));
    T(mincore(priv, 4096, text)), T(mincore(priv + 1, 4096, text)), T(mincore((void *)4096, 4096, text)), T(mincore(priv, 4096, (void *)8));
}
