/* Local sockets in one process: pairs, names, connections, messages, descriptors and credentials in them, ends, errors
   and what poll says. Abstract names hold the process's number, so that runs on one host do not meet. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define CHECK(claim) ((claim) ? (void)0 : (void)printf("line %d: not so: %s (errno %d)\n", __LINE__, #claim, errno))
#define FAILS(call, number) (errno = 0, CHECK((long)(call) == -1), CHECK(errno == number))

static char directory[] = "/tmp/aegis-sockets-XXXXXX";

static int events(int fd) {
    struct pollfd entry = {fd, POLLIN | POLLOUT | POLLRDHUP | POLLPRI, 0};
    CHECK(poll(&entry, 1, 0) >= 0);
    return entry.revents;
}

static socklen_t path_name(struct sockaddr_un *name, const char *file) {
    memset(name, 0, sizeof *name);
    name->sun_family = AF_UNIX;
    snprintf(name->sun_path, sizeof name->sun_path, "%s/%s", directory, file);
    return sizeof *name;
}

static socklen_t hidden_name(struct sockaddr_un *name, const char *text) {
    memset(name, 0, sizeof *name);
    name->sun_family = AF_UNIX;
    int length = snprintf(name->sun_path + 1, sizeof name->sun_path - 1, "aegis-%d-%s", getpid(), text);
    return offsetof(struct sockaddr_un, sun_path) + 1 + length;
}

static void making(void) {
    int fd[2];
    FAILS(socket(AF_UNIX, 99, 0), EINVAL);
    FAILS(socket(AF_UNIX, SOCK_RDM, 0), ESOCKTNOSUPPORT);
    FAILS(socket(AF_UNIX, SOCK_STREAM, 6), EPROTONOSUPPORT);
    FAILS(socket(99, SOCK_STREAM, 0), EAFNOSUPPORT);
    FAILS(socket(AF_UNIX, SOCK_STREAM | 0x10000, 0), EINVAL);
    FAILS(syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, NULL), EFAULT);
    FAILS(listen(0x7fffffff, 1), EBADF);
    int file = open("/dev/null", O_RDWR);
    FAILS(listen(file, 1), ENOTSOCK);
    FAILS(send(file, "x", 1, 0), ENOTSOCK);
    close(file);
    static const int kinds[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    for (int i = 0; i < 3; i++) {
        int s = socket(AF_UNIX, kinds[i] | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), value;
        socklen_t length = sizeof value;
        CHECK(fcntl(s, F_GETFD) == FD_CLOEXEC && fcntl(s, F_GETFL) == (O_RDWR | O_NONBLOCK));
        CHECK(getsockopt(s, SOL_SOCKET, SO_TYPE, &value, &length) == 0 && value == kinds[i] && length == 4);
        CHECK(getsockopt(s, SOL_SOCKET, SO_DOMAIN, &value, &length) == 0 && value == AF_UNIX);
        CHECK(getsockopt(s, SOL_SOCKET, SO_PROTOCOL, &value, &length) == 0 && value == 0);
        CHECK(getsockopt(s, SOL_SOCKET, SO_ERROR, &value, &length) == 0 && value == 0);
        CHECK(getsockopt(s, SOL_SOCKET, SO_ACCEPTCONN, &value, &length) == 0 && value == 0);
        FAILS(getsockopt(s, SOL_SOCKET, 9999, &value, &length), ENOPROTOOPT);
        FAILS(getsockopt(s, 6, 1, &value, &length), EOPNOTSUPP);
        printf("fresh %d: %x\n", kinds[i], events(s));
        struct stat status;
        char link[64], target[64] = {0}, expected[64];
        CHECK(fstat(s, &status) == 0 && S_ISSOCK(status.st_mode) && (status.st_mode & 07777) == 0777);
        snprintf(link, sizeof link, "/proc/self/fd/%d", s);
        snprintf(expected, sizeof expected, "socket:[%lu]", (unsigned long)status.st_ino);
        CHECK(readlink(link, target, sizeof target) > 0 && strcmp(target, expected) == 0);
        FAILS(open(link, O_RDONLY), ENXIO);
        FAILS(lseek(s, 0, SEEK_CUR), ESPIPE);
        FAILS(pread(s, target, 1, 5), ESPIPE);
        errno = 0;
        CHECK(recv(s, target, 1, 0) == -1);
        printf("recv of nothing %d\n", errno);
        FAILS(send(s, "x", 1, MSG_NOSIGNAL), ENOTCONN);
        CHECK(isatty(s) == 0 && errno == ENOTTY);
        close(s);
    }
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0);
    FAILS(bind(fd[0], (struct sockaddr *)"\1", 1), EINVAL);
    FAILS(connect(fd[0], (struct sockaddr *)"\2\0abc", 5), EINVAL);
    FAILS(listen(fd[0], 1), EINVAL);
    FAILS(accept(fd[0], NULL, NULL), EINVAL);
    FAILS(sendto(fd[0], "x", 1, 0, (struct sockaddr *)"\1\0\0a", 4), EISCONN);
    FAILS(shutdown(fd[0], 3), EINVAL);
    close(fd[0]);
    close(fd[1]);
}

static void streams(void) {
    int fd[2], count;
    char buffer[64];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0);
    CHECK(write(fd[0], "hello", 5) == 5 && send(fd[0], " world", 6, 0) == 6);
    CHECK(ioctl(fd[1], FIONREAD, &count) == 0 && count == 11);
    CHECK(recv(fd[1], buffer, 5, MSG_PEEK) == 5 && memcmp(buffer, "hello", 5) == 0);
    CHECK(read(fd[1], buffer, sizeof buffer) == 11 && memcmp(buffer, "hello world", 11) == 0);
    FAILS(recv(fd[1], buffer, 1, MSG_DONTWAIT), EAGAIN);
    CHECK(read(fd[1], buffer, 0) == 0);
    struct iovec parts[2] = {{"ab", 2}, {"cde", 3}}, into[3] = {{buffer, 1}, {buffer + 10, 3}, {buffer + 20, 9}};
    CHECK(writev(fd[1], parts, 2) == 5 && readv(fd[0], into, 3) == 5);
    CHECK(buffer[0] == 'a' && memcmp(buffer + 10, "bcd", 3) == 0 && buffer[20] == 'e');
    printf("stream: %x", events(fd[0]));
    CHECK(write(fd[1], "x", 1) == 1);
    printf(" %x\n", events(fd[0]));
    CHECK(send(fd[0], NULL, 0, 0) == 0);
    FAILS(send(fd[0], NULL, 1, 0), EFAULT);
    FAILS(recv(fd[0], NULL, 1, 0), EFAULT);
    CHECK(recv(fd[0], buffer, 2, 0) == 1 && buffer[0] == 'x');
    /* A full buffer stops the sender, and room makes it writable again. */
    fcntl(fd[0], F_SETFL, O_NONBLOCK);
    char *large = calloc(1, 1 << 20);
    long sent = 0, got = 0, n;
    while ((n = write(fd[0], large, 1 << 20)) > 0) sent += n;
    CHECK(errno == EAGAIN && sent >= 65536 && sent < 1 << 20);
    CHECK(events(fd[0]) == 0);
    while ((n = recv(fd[1], large, 1 << 20, MSG_DONTWAIT)) > 0) got += n;
    CHECK(got == sent && events(fd[0]) == POLLOUT);
    free(large);
    /* Halves. */
    CHECK(write(fd[0], "last", 4) == 4 && shutdown(fd[0], SHUT_WR) == 0);
    signal(SIGPIPE, SIG_IGN);
    FAILS(write(fd[0], "x", 1), EPIPE);
    printf("half: %x %x\n", events(fd[0]), events(fd[1]));
    CHECK(read(fd[1], buffer, 9) == 4 && read(fd[1], buffer, 9) == 0);
    CHECK(write(fd[1], "back", 4) == 4 && read(fd[0], buffer, 9) == 4);
    CHECK(write(fd[1], "unread", 6) == 6);
    close(fd[0]);
    printf("closed: %x\n", events(fd[1]));
    FAILS(read(fd[1], buffer, 1), ECONNRESET);
    CHECK(read(fd[1], buffer, 1) == 0);
    printf("told: %x\n", events(fd[1]));
    FAILS(write(fd[1], "x", 1), EPIPE);
    close(fd[1]);
}

static volatile int pipes;
static void count_pipe(int number) { pipes++; }

static void broken(void) {
    int fd[2];
    struct sigaction action = {.sa_handler = count_pipe};
    sigaction(SIGPIPE, &action, NULL);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0);
    close(fd[1]);
    FAILS(write(fd[0], "x", 1), EPIPE);
    FAILS(send(fd[0], "x", 1, 0), EPIPE);
    FAILS(send(fd[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    printf("SIGPIPE %d times\n", pipes);
    close(fd[0]);
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fd) == 0);
    close(fd[1]);
    FAILS(send(fd[0], "x", 1, 0), EPIPE);
    printf("SIGPIPE %d times, %x\n", pipes, events(fd[0]));
    close(fd[0]);
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, fd) == 0);
    close(fd[1]);
    printf("lost peer: %x\n", events(fd[0]));
    FAILS(send(fd[0], "x", 1, 0), ECONNREFUSED);
    FAILS(send(fd[0], "x", 1, 0), ENOTCONN);
    close(fd[0]);
    signal(SIGPIPE, SIG_DFL);
}

static void records(int kind) {
    int fd[2], count;
    char buffer[16];
    CHECK(socketpair(AF_UNIX, kind, 0, fd) == 0);
    CHECK(send(fd[0], "first", 5, 0) == 5 && send(fd[0], "", 0, 0) == 0 && write(fd[0], "second", 6) == 6);
    CHECK(ioctl(fd[1], FIONREAD, &count) == 0);
    printf("record: %d to read, %x\n", count, events(fd[1]));
    CHECK(recv(fd[1], buffer, 3, MSG_PEEK | MSG_TRUNC) == 5);
    struct iovec part = {buffer, 3};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    CHECK(recvmsg(fd[1], &header, 0) == 3 && header.msg_flags == MSG_TRUNC && memcmp(buffer, "fir", 3) == 0);
    CHECK(recv(fd[1], buffer, 9, 0) == 0);
    CHECK(read(fd[1], buffer, 16) == 6 && memcmp(buffer, "second", 6) == 0);
    FAILS(recv(fd[1], buffer, 1, MSG_DONTWAIT), EAGAIN);
    int size = 4608;
    CHECK(setsockopt(fd[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size) == 0);
    char large[10000] = {0};
    FAILS(send(fd[0], large, sizeof large, 0), EMSGSIZE);
    shutdown(fd[0], SHUT_WR);
    FAILS(send(fd[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    printf("shut: %x %x\n", events(fd[0]), events(fd[1]));
    close(fd[0]);
    close(fd[1]);
}

static void names(void) {
    struct sockaddr_un name, found;
    socklen_t length = path_name(&name, "stream"), room;
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    room = sizeof found;
    CHECK(getsockname(listener, (void *)&found, &room) == 0 && room == 2 && found.sun_family == AF_UNIX);
    FAILS(connect(client, (void *)&name, length), ENOENT);
    FAILS(listen(listener, 5), EINVAL);
    umask(022);
    CHECK(bind(listener, (void *)&name, length) == 0);
    struct stat status;
    CHECK(stat(name.sun_path, &status) == 0 && status.st_mode == (S_IFSOCK | 0755));
    FAILS(open(name.sun_path, O_RDWR), ENXIO);
    FAILS(connect(client, (void *)&name, length), ECONNREFUSED);
    FAILS(bind(listener, (void *)&name, length), EADDRINUSE);
    struct sockaddr_un second;
    path_name(&second, "second");
    FAILS(bind(listener, (void *)&second, length), EINVAL);
    FAILS(stat(second.sun_path, &status), ENOENT);
    room = sizeof found;
    CHECK(getsockname(listener, (void *)&found, &room) == 0 && room == 2 + strlen(name.sun_path) + 1);
    CHECK(strcmp(found.sun_path, name.sun_path) == 0);
    room = 4;
    CHECK(getsockname(listener, (void *)&found, &room) == 0 && room == 2 + strlen(name.sun_path) + 1);
    CHECK(listen(listener, 1) == 0);
    int value;
    room = sizeof value;
    CHECK(getsockopt(listener, SOL_SOCKET, SO_ACCEPTCONN, &value, &room) == 0 && value == 1);
    FAILS(getpeername(client, (void *)&found, &room), ENOTCONN);
    fcntl(listener, F_SETFL, O_NONBLOCK);
    FAILS(accept(listener, NULL, NULL), EAGAIN);
    printf("listener: %x", events(listener));
    CHECK(connect(client, (void *)&name, length) == 0);
    FAILS(connect(client, (void *)&name, length), EISCONN);
    printf(" %x\n", events(listener));
    FAILS(ioctl(listener, FIONREAD, &value), EINVAL);
    int datagram = socket(AF_UNIX, SOCK_DGRAM, 0);
    FAILS(connect(datagram, (void *)&name, length), EPROTOTYPE);
    FAILS(sendto(datagram, "x", 1, 0, (void *)&name, length), EPROTOTYPE);
    FAILS(listen(datagram, 1), EOPNOTSUPP);
    FAILS(accept(datagram, NULL, NULL), EOPNOTSUPP);
    int more[2] = {socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0)};
    CHECK(connect(more[0], (void *)&name, length) == 0);
    FAILS(connect(more[1], (void *)&name, length), EAGAIN);
    room = sizeof found;
    int server = accept4(listener, (void *)&found, &room, SOCK_CLOEXEC);
    CHECK(server > 0 && room == 2 && fcntl(server, F_GETFL) == O_RDWR && fcntl(server, F_GETFD) == FD_CLOEXEC);
    CHECK(connect(more[1], (void *)&name, length) == 0);
    room = sizeof found;
    CHECK(getpeername(client, (void *)&found, &room) == 0 && strcmp(found.sun_path, name.sun_path) == 0);
    room = sizeof found;
    CHECK(getsockname(server, (void *)&found, &room) == 0 && strcmp(found.sun_path, name.sun_path) == 0);
    char buffer[16];
    CHECK(write(client, "ping", 4) == 4 && read(server, buffer, 16) == 4 && write(server, "pong", 4) == 4);
    CHECK(read(client, buffer, 16) == 4);
    struct ucred who;
    room = sizeof who;
    CHECK(getsockopt(server, SOL_SOCKET, SO_PEERCRED, &who, &room) == 0 && who.pid == getpid() && who.uid == getuid());
    room = sizeof who;
    CHECK(getsockopt(listener, SOL_SOCKET, SO_PEERCRED, &who, &room) == 0 && who.pid == getpid());
    room = sizeof who;
    CHECK(getsockopt(datagram, SOL_SOCKET, SO_PEERCRED, &who, &room) == 0 && who.pid == 0 && who.uid == (uid_t)-1);
    CHECK(shutdown(listener, SHUT_RD) == 0);
    int late = socket(AF_UNIX, SOCK_STREAM, 0);
    FAILS(connect(late, (void *)&name, length), ECONNREFUSED);
    close(listener);
    FAILS(read(more[1], buffer, 1), ECONNRESET);
    FAILS(connect(late, (void *)&name, length), ECONNREFUSED);
    CHECK(unlink(name.sun_path) == 0);
    FAILS(connect(late, (void *)&name, length), ENOENT);
    CHECK(write(client, "still", 5) == 5);
    for (unsigned i = 0; i < 6; i++) close((int[]){client, server, more[0], more[1], late, datagram}[i]);
    chdir(directory);
    int plain = open("plain", O_CREAT | O_RDWR, 0600), s = socket(AF_UNIX, SOCK_DGRAM, 0);
    struct sockaddr_un here = {AF_UNIX, "plain"};
    FAILS(connect(s, (void *)&here, sizeof here), ECONNREFUSED);
    FAILS(bind(s, (void *)&here, sizeof here), EADDRINUSE);
    struct sockaddr_un nowhere = {AF_UNIX, "plain/x"};
    FAILS(bind(s, (void *)&nowhere, sizeof nowhere), ENOTDIR);
    close(s);
    close(plain);
    unlink("plain");
}

static void hidden(void) {
    struct sockaddr_un name, other, found;
    socklen_t length = hidden_name(&name, "a"), other_length = hidden_name(&other, "b"), room = sizeof found;
    int server = socket(AF_UNIX, SOCK_DGRAM, 0), client = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    CHECK(bind(server, (void *)&name, length) == 0);
    FAILS(bind(client, (void *)&name, length), EADDRINUSE);
    CHECK(getsockname(server, (void *)&found, &room) == 0 && room == length && memcmp(&found, &name, length) == 0);
    FAILS(sendto(client, "x", 1, 0, (void *)&other, other_length), ECONNREFUSED);
    CHECK(sendto(client, "unnamed", 7, 0, (void *)&name, length) == 7);
    char buffer[16];
    room = sizeof found;
    CHECK(recvfrom(server, buffer, 16, 0, (void *)&found, &room) == 7 && room == 0);
    CHECK(bind(client, (void *)&other, other_length) == 0);
    CHECK(sendto(client, "named", 5, 0, (void *)&name, length) == 5);
    room = sizeof found;
    CHECK(recvfrom(server, buffer, 16, 0, (void *)&found, &room) == 5 && room == other_length);
    CHECK(memcmp(&found, &other, other_length) == 0);
    CHECK(sendto(server, "reply", 5, 0, (void *)&found, room) == 5 && recv(client, buffer, 16, 0) == 5);
    CHECK(connect(client, (void *)&name, length) == 0 && send(client, "x", 1, 0) == 1 && recv(server, buffer, 9, 0) == 1);
    CHECK(connect(server, (void *)&name, length) == 0);
    FAILS(send(client, "x", 1, 0), EPERM);
    CHECK(connect(server, (struct sockaddr[]){{AF_UNSPEC}}, sizeof(struct sockaddr)) == 0);
    CHECK(send(client, "x", 1, 0) == 1);
    close(server);
    FAILS(send(client, "x", 1, 0), ECONNREFUSED);
    close(client);
    int automatic = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(automatic, (void *)&name, 2) == 0);
    room = sizeof found;
    CHECK(getsockname(automatic, (void *)&found, &room) == 0 && room == 8 && found.sun_path[0] == 0);
    CHECK(strspn(found.sun_path + 1, "0123456789abcdef") >= 5);
    close(automatic);
}

static ssize_t send_with(int fd, const void *bytes, size_t length, int kind, const void *data, size_t size) {
    char control[1200];
    struct iovec part = {(void *)bytes, length};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(size)};
    memset(control, 0, sizeof control);
    struct cmsghdr *first = CMSG_FIRSTHDR(&header);
    first->cmsg_level = SOL_SOCKET;
    first->cmsg_type = kind;
    first->cmsg_len = CMSG_LEN(size);
    memcpy(CMSG_DATA(first), data, size);
    /* Past the C library: musl has a limit of its own. */
    return syscall(SYS_sendmsg, fd, &header, MSG_NOSIGNAL);
}

static ssize_t receive_with(int fd, char *bytes, size_t length, char *control, size_t size, struct msghdr *header, int flags) {
    static struct iovec part;
    part = (struct iovec){bytes, length};
    *header = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = size};
    return recvmsg(fd, header, flags);
}

static void descriptors(void) {
    int fd[2], pipe_fd[2], value;
    char buffer[64], control[1200];
    struct msghdr header;
    for (int kind = SOCK_STREAM; kind <= SOCK_DGRAM; kind++) {
        CHECK(socketpair(AF_UNIX, kind, 0, fd) == 0 && pipe(pipe_fd) == 0);
        CHECK(send_with(fd[0], "ab", 2, SCM_RIGHTS, pipe_fd, 8) == 2 && write(fd[0], "cd", 2) == 2);
        CHECK(write(pipe_fd[1], "through", 7) == 7);
        close(pipe_fd[0]);
        close(pipe_fd[1]);
        CHECK(receive_with(fd[1], buffer, 64, control, sizeof control, &header, MSG_CMSG_CLOEXEC) == 2);
        struct cmsghdr *first = CMSG_FIRSTHDR(&header);
        CHECK(first && first->cmsg_len == CMSG_LEN(8) && first->cmsg_type == SCM_RIGHTS && !CMSG_NXTHDR(&header, first));
        CHECK(header.msg_controllen == CMSG_SPACE(8) && header.msg_flags == MSG_CMSG_CLOEXEC);
        int got[2];
        memcpy(got, CMSG_DATA(first), 8);
        CHECK(fcntl(got[0], F_GETFD) == FD_CLOEXEC && read(got[0], buffer, 64) == 7 && memcmp(buffer, "through", 7) == 0);
        close(got[1]);
        CHECK(read(got[0], buffer, 64) == 0);
        close(got[0]);
        CHECK(receive_with(fd[1], buffer, 64, control, sizeof control, &header, 0) == 2 && header.msg_controllen == 0);
        /* No room for them, or not for all: the rest is closed and the reader is told. */
        pipe(pipe_fd);
        CHECK(send_with(fd[0], "x", 1, SCM_RIGHTS, pipe_fd, 8) == 1);
        CHECK(receive_with(fd[1], buffer, 64, NULL, 0, &header, 0) == 1 && header.msg_flags == MSG_CTRUNC);
        CHECK(send_with(fd[0], "x", 1, SCM_RIGHTS, pipe_fd, 8) == 1);
        CHECK(receive_with(fd[1], buffer, 64, control, CMSG_LEN(4), &header, 0) == 1 && header.msg_flags == MSG_CTRUNC);
        memcpy(&value, CMSG_DATA(CMSG_FIRSTHDR(&header)), 4);
        CHECK(header.msg_controllen == CMSG_LEN(4) && fcntl(value, F_GETFD) == 0);
        close(value);
        CHECK(send_with(fd[0], "x", 1, SCM_RIGHTS, pipe_fd, 8) == 1 && read(fd[1], buffer, 9) == 1);
        close(pipe_fd[1]);
        CHECK(read(pipe_fd[0], buffer, 1) == 0);
        close(pipe_fd[0]);
        /* Never received: the queue goes, and they with it. */
        pipe(pipe_fd);
        CHECK(send_with(fd[0], "x", 1, SCM_RIGHTS, pipe_fd + 1, 4) == 1);
        close(pipe_fd[1]);
        close(fd[1]);
        CHECK(read(pipe_fd[0], buffer, 1) == 0);
        close(pipe_fd[0]);
        close(fd[0]);
        /* A socket in its own queue. */
        CHECK(socketpair(AF_UNIX, kind, 0, fd) == 0 && pipe(pipe_fd) == 0);
        CHECK(send_with(fd[0], "x", 1, SCM_RIGHTS, (int[]){fd[1], pipe_fd[1]}, 8) == 1);
        for (int i = 0; i < 3; i++) close((int[]){fd[0], fd[1], pipe_fd[1]}[i]);
        CHECK(socketpair(AF_UNIX, kind, 0, fd) == 0);
        close(fd[0]);
        close(fd[1]);
        CHECK(read(pipe_fd[0], buffer, 1) == 0);
        close(pipe_fd[0]);
    }
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0);
    FAILS(send_with(fd[0], "x", 1, SCM_RIGHTS, (int[]){12345}, 4), EBADF);
    FAILS(send_with(fd[0], "x", 1, 77, (int[]){1}, 4), EINVAL);
    int many[254];
    for (int i = 0; i < 254; i++) many[i] = fd[0];
    FAILS(send_with(fd[0], "x", 1, SCM_RIGHTS, many, sizeof many), EINVAL);
    CHECK(send_with(fd[0], "x", 1, SCM_RIGHTS, many, sizeof many - 4) == 1);
    CHECK(receive_with(fd[1], buffer, 64, control, sizeof control, &header, MSG_PEEK) == 1);
    int first, count = (header.msg_controllen - sizeof(struct cmsghdr)) / 4;
    memcpy(&first, CMSG_DATA(CMSG_FIRSTHDR(&header)), 4);
    printf("%d descriptors\n", count);
    syscall(SYS_close_range, first, ~0u, 0);
    close(fd[0]);
    close(fd[1]);
}

static void credentials(void) {
    int fd[2], on = 1;
    char buffer[64], control[200];
    struct msghdr header;
    struct ucred who, me = {getpid(), getuid(), getgid()};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0);
    CHECK(write(fd[0], "before", 6) == 6);
    CHECK(setsockopt(fd[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0);
    CHECK(write(fd[0], "after", 5) == 5);
    CHECK(receive_with(fd[1], buffer, 64, control, sizeof control, &header, 0) == 6);
    memcpy(&who, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof who);
    CHECK(CMSG_FIRSTHDR(&header)->cmsg_type == SCM_CREDENTIALS && who.pid == 0 && who.uid == 65534);
    CHECK(receive_with(fd[1], buffer, 64, control, sizeof control, &header, 0) == 5);
    memcpy(&who, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof who);
    CHECK(memcmp(&who, &me, sizeof who) == 0 && header.msg_controllen == CMSG_SPACE(sizeof who));
    CHECK(send_with(fd[0], "x", 1, SCM_CREDENTIALS, &me, sizeof me) == 1);
    CHECK(receive_with(fd[1], buffer, 64, NULL, 0, &header, 0) == 1 && header.msg_flags == MSG_CTRUNC);
    FAILS(send_with(fd[0], "x", 1, SCM_CREDENTIALS, &me, 8), EINVAL);
    close(fd[0]);
    close(fd[1]);
}

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000ll + now.tv_nsec / 1000000;
}

static void times(void) {
    int fd[2];
    char buffer[8];
    struct timeval limit = {0, 30000}, back;
    socklen_t length = sizeof back;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0);
    CHECK(setsockopt(fd[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    CHECK(getsockopt(fd[0], SOL_SOCKET, SO_RCVTIMEO, &back, &length) == 0 && length == 16 && back.tv_sec == 0);
    CHECK(back.tv_usec >= 30000 && back.tv_usec < 40000);
    FAILS(setsockopt(fd[0], SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0, 1000000}, sizeof limit), EDOM);
    int64_t start = now_ms();
    FAILS(read(fd[0], buffer, 1), EAGAIN);
    CHECK(now_ms() - start >= 29);
    CHECK(write(fd[1], "ab", 2) == 2 && recv(fd[0], buffer, 8, MSG_WAITALL) == 2);
    CHECK(setsockopt(fd[1], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
    char *large = calloc(1, 1 << 20);
    ssize_t sent = write(fd[1], large, 1 << 20);
    CHECK(sent > 0 && sent < 1 << 20);
    FAILS(write(fd[1], large, 1), EAGAIN);
    free(large);
    close(fd[0]);
    close(fd[1]);
}

static void many_messages(void) {
    int fd[2];
    char texts[4][8] = {"a", "bb", "ccc", "dddd"}, into[4][8];
    struct iovec out[4], in[4];
    struct mmsghdr sending[4] = {0}, receiving[4] = {0};
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, fd) == 0);
    for (int i = 0; i < 4; i++) {
        out[i] = (struct iovec){texts[i], i + 1};
        in[i] = (struct iovec){into[i], 3};
        sending[i].msg_hdr.msg_iov = &out[i];
        receiving[i].msg_hdr.msg_iov = &in[i];
        sending[i].msg_hdr.msg_iovlen = receiving[i].msg_hdr.msg_iovlen = 1;
    }
    CHECK(sendmmsg(fd[0], sending, 4, 0) == 4 && sending[3].msg_len == 4);
    CHECK(recvmmsg(fd[1], receiving, 2, 0, NULL) == 2 && receiving[1].msg_len == 2);
    CHECK(recvmmsg(fd[1], receiving, 4, MSG_WAITFORONE, NULL) == 2 && receiving[1].msg_len == 3);
    CHECK(receiving[1].msg_hdr.msg_flags == MSG_TRUNC && memcmp(into[1], "ddd", 3) == 0);
    FAILS(recvmmsg(fd[1], receiving, 4, MSG_DONTWAIT, NULL), EAGAIN);
    close(fd[0]);
    close(fd[1]);
}

static void waiting(void) {
    int fd[2], epoll = epoll_create1(0);
    char buffer[8];
    struct epoll_event event = {EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, {.u32 = 7}}, got[4];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd[0], &event) == 0);
    CHECK(epoll_wait(epoll, got, 4, 0) == 1 && got[0].events == EPOLLOUT);
    CHECK(epoll_wait(epoll, got, 4, 0) == 0);
    CHECK(write(fd[1], "x", 1) == 1 && epoll_wait(epoll, got, 4, 1000) == 1);
    CHECK((got[0].events & EPOLLIN) && epoll_wait(epoll, got, 4, 0) == 0);
    CHECK(read(fd[0], buffer, 1) == 1);
    close(fd[1]);
    CHECK(epoll_wait(epoll, got, 4, 1000) == 1);
    printf("edge: %x\n", got[0].events);
    close(fd[0]);
    close(epoll);
}

static void fifos(void) {
    char path[200], buffer[16];
    struct stat status;
    snprintf(path, sizeof path, "%s/fifo", directory);
    CHECK(mkfifo(path, 0640) == 0 && stat(path, &status) == 0 && status.st_mode == (S_IFIFO | 0640));
    FAILS(mkfifo(path, 0640), EEXIST);
    FAILS(open(path, O_WRONLY | O_NONBLOCK), ENXIO);
    int both = open(path, O_RDWR), reader = open(path, O_RDONLY | O_NONBLOCK), writer = open(path, O_WRONLY);
    CHECK(both >= 0 && reader >= 0 && writer >= 0);
    FAILS(read(reader, buffer, 1), EAGAIN);
    CHECK(write(writer, "fifo", 4) == 4 && read(both, buffer, 2) == 2 && read(reader, buffer, 9) == 2);
    close(both);
    close(writer);
    printf("fifo: %x\n", events(reader));
    CHECK(read(reader, buffer, 1) == 0);
    close(reader);
    CHECK(mknod("node", S_IFSOCK | 0700, 0) == 0 && stat("node", &status) == 0 && status.st_mode == (S_IFSOCK | 0700));
    unlink("node");
    unlink(path);
}

static void splices(void) {
    int in[2], out[2], fd[2];
    char buffer[64];
    loff_t place = 2;
    CHECK(pipe(in) == 0 && pipe(out) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0);
    int file = open("spliced", O_CREAT | O_RDWR | O_TRUNC, 0600);
    CHECK(write(file, "0123456789", 10) == 10);
    CHECK(splice(file, &place, in[1], NULL, 5, 0) == 5 && place == 7);
    CHECK(tee(in[0], out[1], 3, 0) == 3 && read(out[0], buffer, 9) == 3 && memcmp(buffer, "234", 3) == 0);
    CHECK(splice(in[0], NULL, out[1], NULL, 2, 0) == 2 && splice(in[0], NULL, fd[0], NULL, 99, 0) == 3);
    CHECK(read(fd[1], buffer, 9) == 3 && memcmp(buffer, "456", 3) == 0);
    CHECK(write(fd[1], "from socket", 11) == 11 && splice(fd[0], NULL, in[1], NULL, 64, 0) == 11);
    place = 12;
    CHECK(splice(in[0], NULL, file, &place, 64, 0) == 11 && place == 23 && lseek(file, 0, SEEK_END) == 23);
    CHECK(read(out[0], buffer, 9) == 2 && memcmp(buffer, "23", 2) == 0);
    CHECK(splice(file, NULL, in[1], NULL, 5, 0) == 0);
    FAILS(splice(in[0], NULL, out[1], NULL, 5, SPLICE_F_NONBLOCK), EAGAIN);
    int nowhere = open("/dev/null", O_WRONLY);
    CHECK(write(in[1], "thrown away", 11) == 11 && splice(in[0], NULL, nowhere, NULL, 6, 0) == 6);
    CHECK(splice(in[0], NULL, nowhere, NULL, 64, 0) == 5 && close(nowhere) == 0);
    FAILS(splice(in[0], NULL, out[1], NULL, 5, SPLICE_F_NONBLOCK), EAGAIN);
    FAILS(splice(file, NULL, fd[0], NULL, 5, 0), EINVAL);
    FAILS(splice(in[0], &place, file, NULL, 5, 0), ESPIPE);
    FAILS(splice(in[0], NULL, in[1], NULL, 5, 0), EINVAL);
    FAILS(tee(file, in[1], 5, 0), EINVAL);
    FAILS(splice(in[0], NULL, out[1], NULL, 5, 99), EINVAL);
    struct iovec part = {"pages", 5};
    CHECK(vmsplice(in[1], &part, 1, 0) == 5 && read(in[0], buffer, 9) == 5);
    CHECK(lseek(file, 0, SEEK_SET) == 0 && sendfile(fd[0], file, NULL, 10) == 10 && read(fd[1], buffer, 64) == 10);
    close(in[1]);
    CHECK(splice(in[0], NULL, out[1], NULL, 5, 0) == 0);
    close(out[0]);
    signal(SIGPIPE, SIG_IGN);
    FAILS(splice(file, &(loff_t){0}, out[1], NULL, 5, 0), EPIPE);
    signal(SIGPIPE, SIG_DFL);
    for (int i = 0; i < 5; i++) close((int[]){in[0], out[1], fd[0], fd[1], file}[i]);
    unlink("spliced");
}

int main(void) {
    CHECK(mkdtemp(directory) != NULL);
    making();
    streams();
    broken();
    records(SOCK_DGRAM);
    records(SOCK_SEQPACKET);
    names();
    hidden();
    descriptors();
    credentials();
    times();
    many_messages();
    waiting();
    fifos();
    splices();
    chdir("/");
    CHECK(rmdir(directory) == 0);
    puts("done");
    return 0;
}
