/* TCP over loopback in one process: addresses and ports, listening, connecting, the ends of connections, errors, what
   poll and epoll say, options. Ports are chosen by the system, so that runs on one host do not meet. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(claim) ((claim) ? (void)0 : (void)printf("line %d: not so: %s (errno %d)\n", __LINE__, #claim, errno))
#define FAILS(call, number) (errno = 0, CHECK((long)(call) == -1), CHECK(errno == number))

static int events(int fd) {
    struct pollfd entry = {fd, POLLIN | POLLOUT | POLLRDHUP | POLLPRI, 0};
    CHECK(poll(&entry, 1, 0) >= 0);
    return entry.revents;
}

/* What becomes true when something has crossed the loopback. */
static int events_soon(int fd, int wanted) {
    int seen = 0;
    for (int i = 0; i < 1000 && ((seen = events(fd)) & wanted) != wanted; i++) usleep(1000);
    return seen;
}

static struct sockaddr_in v4(uint32_t address, int port) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(port)};
    name.sin_addr.s_addr = htonl(address);
    return name;
}

static int port_of(int fd) {
    struct sockaddr_in6 name;
    socklen_t length = sizeof name;
    CHECK(getsockname(fd, (void *)&name, &length) == 0);
    return ntohs(name.sin6_port);
}

static int listener_at(uint32_t address, int backlog, int *port) {
    struct sockaddr_in name = v4(address, 0);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(fd, (void *)&name, sizeof name) == 0 && listen(fd, backlog) == 0);
    *port = port_of(fd);
    return fd;
}

static int connected(int port) {
    struct sockaddr_in name = v4(INADDR_LOOPBACK, port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fd, (void *)&name, sizeof name) == 0);
    return fd;
}

static void pair(int fd[2]) {
    int port, listener = listener_at(INADDR_LOOPBACK, 1, &port);
    fd[0] = connected(port);
    fd[1] = accept(listener, NULL, NULL);
    CHECK(fd[1] >= 0);
    close(listener);
}

static void end(int fd[2]) {
    close(fd[0]);
    close(fd[1]);
}

static int number(int fd, int level, int name) {
    int value = -1;
    socklen_t length = sizeof value;
    return getsockopt(fd, level, name, &value, &length) ? -errno : value;
}

static int set(int fd, int level, int name, int value) {
    return setsockopt(fd, level, name, &value, sizeof value);
}

static void making(void) {
    char byte;
    FAILS(socket(AF_INET, 99, 0), EINVAL);
    FAILS(socket(AF_INET, SOCK_STREAM, 17), EPROTONOSUPPORT);
    FAILS(socket(AF_INET, SOCK_DGRAM, 6), EPROTONOSUPPORT);
    FAILS(socket(AF_INET, SOCK_SEQPACKET, 0), ESOCKTNOSUPPORT);
    FAILS(socketpair(AF_INET, SOCK_STREAM, 0, (int[2]){0}), EOPNOTSUPP);
    for (int family = AF_INET; family; family = family == AF_INET ? AF_INET6 : 0) {
        int s = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
        struct sockaddr_in6 name;
        socklen_t length = sizeof name;
        printf("fresh %d: %x\n", family, events(s));
        CHECK(number(s, SOL_SOCKET, SO_TYPE) == SOCK_STREAM && number(s, SOL_SOCKET, SO_DOMAIN) == family);
        CHECK(number(s, SOL_SOCKET, SO_PROTOCOL) == 6 && number(s, SOL_SOCKET, SO_ERROR) == 0);
        CHECK(number(s, SOL_SOCKET, SO_ACCEPTCONN) == 0);
        FAILS(recv(s, &byte, 1, 0), ENOTCONN);
        FAILS(send(s, "x", 1, MSG_NOSIGNAL), EPIPE);
        FAILS(getpeername(s, (void *)&name, &length), ENOTCONN);
        FAILS(accept(s, NULL, NULL), EINVAL);
        length = sizeof name;
        CHECK(getsockname(s, (void *)&name, &length) == 0 && name.sin6_port == 0);
        printf("length %d\n", length);
        FAILS(connect(s, (void *)&name, 1), EINVAL);
        FAILS(connect(s, (void *)&name, 8), EINVAL);
        FAILS(bind(s, (void *)&name, 8), EINVAL);
        FAILS(shutdown(s, SHUT_WR), ENOTCONN);
        close(s);
    }
}

static void ports(void) {
    int port, s = listener_at(INADDR_LOOPBACK, 5, &port), other = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in name = v4(INADDR_LOOPBACK, port), any = v4(INADDR_ANY, port), far = v4(0x01020304, 0);
    FAILS(bind(s, (void *)&name, sizeof name), EINVAL);
    FAILS(bind(other, (void *)&name, sizeof name), EADDRINUSE);
    FAILS(bind(other, (void *)&any, sizeof any), EADDRINUSE);
    FAILS(bind(other, (void *)&far, sizeof far), EADDRNOTAVAIL);
    CHECK(set(other, SOL_SOCKET, SO_REUSEADDR, 1) == 0 && set(s, SOL_SOCKET, SO_REUSEADDR, 1) == 0);
    FAILS(bind(other, (void *)&name, sizeof name), EADDRINUSE);
    /* Another address of the machine's is another place. */
    struct sockaddr_in next = v4(INADDR_LOOPBACK + 1, port);
    CHECK(bind(other, (void *)&next, sizeof next) == 0 && listen(other, 1) == 0);
    close(other);
    FAILS(connect(s, (void *)&name, sizeof name), EISCONN);
    printf("listening: %x\n", events(s));
    char byte;
    FAILS(recv(s, &byte, 1, 0), ENOTCONN);
    FAILS(send(s, "x", 1, MSG_NOSIGNAL), EPIPE);
    FAILS(ioctl(s, FIONREAD, &port), EINVAL);
    CHECK(number(s, SOL_SOCKET, SO_ACCEPTCONN) == 1);
    close(s);
    /* Both reuse the address, and only one may listen. */
    int two[2] = {socket(AF_INET, SOCK_STREAM, 0), socket(AF_INET, SOCK_STREAM, 0)};
    set(two[0], SOL_SOCKET, SO_REUSEADDR, 1), set(two[1], SOL_SOCKET, SO_REUSEADDR, 1);
    name = v4(INADDR_LOOPBACK, 0);
    CHECK(bind(two[0], (void *)&name, sizeof name) == 0);
    name = v4(INADDR_LOOPBACK, port_of(two[0]));
    CHECK(bind(two[1], (void *)&name, sizeof name) == 0 && listen(two[0], 1) == 0);
    FAILS(listen(two[1], 1), EADDRINUSE);
    end(two);
    /* Several share a port by choice. */
    for (int i = 0; i < 2; i++) two[i] = socket(AF_INET, SOCK_STREAM, 0), set(two[i], SOL_SOCKET, SO_REUSEPORT, 1);
    name = v4(INADDR_LOOPBACK, 0);
    CHECK(bind(two[0], (void *)&name, sizeof name) == 0);
    name = v4(INADDR_LOOPBACK, port_of(two[0]));
    CHECK(bind(two[1], (void *)&name, sizeof name) == 0 && listen(two[0], 50) == 0 && listen(two[1], 50) == 0);
    int clients[40], counts[2] = {0};
    for (int i = 0; i < 40; i++) clients[i] = connected(ntohs(name.sin_port));
    for (int i = 0; i < 2; i++)
        for (fcntl(two[i], F_SETFL, O_NONBLOCK);; counts[i]++) {
            int accepted = accept(two[i], NULL, NULL);
            if (accepted < 0) break;
            close(accepted);
        }
    CHECK(counts[0] + counts[1] == 40 && counts[0] > 0 && counts[1] > 0);
    for (int i = 0; i < 40; i++) close(clients[i]);
    end(two);
}

static void connecting(void) {
    int port, listener = listener_at(INADDR_ANY, 5, &port);
    struct sockaddr_in name = v4(INADDR_LOOPBACK, port), other, nobody;
    socklen_t length = sizeof other;
    int client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    FAILS(connect(client, (void *)&name, sizeof name), EINPROGRESS);
    printf("made: %x\n", events_soon(client, POLLOUT));
    CHECK(connect(client, (void *)&name, sizeof name) == 0);
    FAILS(connect(client, (void *)&name, sizeof name), EISCONN);
    int server = accept4(listener, (void *)&other, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    CHECK(server >= 0 && length == sizeof other && ntohs(other.sin_port) == port_of(client));
    CHECK(other.sin_addr.s_addr == htonl(INADDR_LOOPBACK) && fcntl(server, F_GETFL) == (O_RDWR | O_NONBLOCK));
    CHECK(getsockname(server, (void *)&other, &length) == 0 && ntohs(other.sin_port) == port);
    CHECK(other.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    CHECK(getpeername(client, (void *)&other, &length) == 0 && ntohs(other.sin_port) == port);
    int chosen = port_of(client);
    CHECK(chosen >= 1024 && number(client, SOL_SOCKET, SO_ERROR) == 0);
    close(client), close(server);
    close(listener);
    /* Nobody is there any more. */
    client = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(connect(client, (void *)&name, sizeof name), ECONNREFUSED);
    printf("refused: %x\n", events(client));
    FAILS(connect(client, (void *)&name, sizeof name), ECONNREFUSED);
    CHECK(number(client, SOL_SOCKET, SO_ERROR) == 0);
    close(client);
    client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    FAILS(connect(client, (void *)&name, sizeof name), EINPROGRESS);
    printf("refused later: %x\n", events_soon(client, POLLERR));
    CHECK(number(client, SOL_SOCKET, SO_ERROR) == ECONNREFUSED && number(client, SOL_SOCKET, SO_ERROR) == 0);
    FAILS(connect(client, (void *)&name, sizeof name), ECONNABORTED);
    FAILS(connect(client, (void *)&name, sizeof name), EINPROGRESS);
    char byte;
    usleep(1000);
    FAILS(recv(client, &byte, 1, 0), ECONNREFUSED);
    close(client);
    client = socket(AF_INET, SOCK_STREAM, 0);
    nobody = v4(INADDR_LOOPBACK, 0);
    FAILS(connect(client, (void *)&nobody, sizeof nobody), ECONNREFUSED);
    close(client);
    /* No address is this machine. */
    listener = listener_at(INADDR_LOOPBACK, 5, &port);
    name = v4(INADDR_ANY, port);
    client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(client, (void *)&name, sizeof name) == 0);
    CHECK(getpeername(client, (void *)&other, &length) == 0 && other.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    /* It ends as if it had never been, and can be used again. */
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    CHECK(connect(client, &none, sizeof none) == 0);
    FAILS(getpeername(client, (void *)&other, &length), ENOTCONN);
    CHECK(connect(client, (void *)&name, sizeof name) == 0);
    close(client), close(listener);
}

static void backlog(void) {
    int port, listener = listener_at(INADDR_LOOPBACK, 1, &port), clients[4];
    struct sockaddr_in name = v4(INADDR_LOOPBACK, port);
    for (int i = 0; i < 3; i++) {
        clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        FAILS(connect(clients[i], (void *)&name, sizeof name), EINPROGRESS);
        usleep(2000);
        printf("%d of two: %x\n", i + 1, events(clients[i]));
    }
    FAILS(connect(clients[2], (void *)&name, sizeof name), EALREADY);
    FAILS(send(clients[2], "x", 1, 0), EAGAIN);
    FAILS(recv(clients[2], &port, 1, 0), EAGAIN);
    printf("waiting: %x\n", events(listener));
    for (int i = 0; i < 2; i++) close(accept(listener, NULL, NULL));
    printf("let in: %x\n", events_soon(clients[2], POLLOUT));
    close(accept(listener, NULL, NULL));
    for (int i = 0; i < 3; i++) close(clients[i]);
    /* Those who were not accepted are reset when nobody listens any more. */
    int waiting = connected(ntohs(name.sin_port));
    CHECK(write(waiting, "lost", 4) == 4);
    close(listener);
    printf("not accepted: %x\n", events_soon(waiting, POLLERR));
    FAILS(read(waiting, clients, 4), ECONNRESET);
    CHECK(read(waiting, clients, 4) == 0);
    close(waiting);
}

static void bytes(void) {
    int fd[2], count;
    char buffer[64];
    pair(fd);
    printf("connected: %x\n", events(fd[0]));
    CHECK(write(fd[0], "hello", 5) == 5 && send(fd[0], " world", 6, 0) == 6);
    CHECK(recv(fd[1], buffer, 11, MSG_WAITALL | MSG_PEEK) == 11 && memcmp(buffer, "hello world", 11) == 0);
    CHECK(ioctl(fd[1], FIONREAD, &count) == 0 && count == 11);
    printf("with bytes: %x\n", events(fd[1]));
    CHECK(recv(fd[1], buffer, 5, MSG_PEEK) == 5 && recv(fd[1], buffer, 2, MSG_TRUNC) == 2);
    CHECK(read(fd[1], buffer, sizeof buffer) == 9 && memcmp(buffer, "llo world", 9) == 0);
    FAILS(recv(fd[1], buffer, 1, MSG_DONTWAIT), EAGAIN);
    CHECK(read(fd[1], buffer, 0) == 0 && write(fd[1], buffer, 0) == 0);
    struct iovec parts[2] = {{"ab", 2}, {"cde", 3}}, into[3] = {{buffer, 1}, {buffer + 10, 3}, {buffer + 20, 9}};
    CHECK(writev(fd[1], parts, 2) == 5);
    CHECK(recv(fd[0], buffer + 40, 5, MSG_WAITALL | MSG_PEEK) == 5);
    CHECK(readv(fd[0], into, 3) == 5 && buffer[0] == 'a' && memcmp(buffer + 10, "bcd", 3) == 0 && buffer[20] == 'e');
    FAILS(send(fd[0], NULL, 1, 0), EFAULT);
    struct sockaddr_in name = v4(INADDR_LOOPBACK, 9), from;
    socklen_t length = sizeof from;
    CHECK(sendto(fd[0], "to", 2, 0, (void *)&name, sizeof name) == 2);
    CHECK(recvfrom(fd[1], buffer, 2, MSG_WAITALL, (void *)&from, &length) == 2 && length == 0);
    /* A receiver that waits for some. */
    CHECK(set(fd[1], SOL_SOCKET, SO_RCVLOWAT, 4) == 0 && write(fd[0], "abc", 3) == 3);
    usleep(1000);
    printf("too few: %x", events(fd[1]));
    CHECK(write(fd[0], "d", 1) == 1);
    printf(" enough: %x\n", events_soon(fd[1], POLLIN));
    CHECK(read(fd[1], buffer, 9) == 4);
    /* Times. */
    struct timeval time = {0, 20000};
    CHECK(setsockopt(fd[1], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
    FAILS(read(fd[1], buffer, 1), EAGAIN);
    end(fd);
}

static void filling(void) {
    int fd[2];
    static char chunk[65536];
    pair(fd);
    fcntl(fd[0], F_SETFL, O_NONBLOCK);
    long sent = 0, got = 0;
    ssize_t length;
    for (size_t i = 0; i < sizeof chunk; i++) chunk[i] = i * 7;
    while ((length = write(fd[0], chunk + sent % sizeof chunk, sizeof chunk - sent % sizeof chunk)) > 0) sent += length;
    CHECK(length == -1 && errno == EAGAIN && sent >= 100000);
    CHECK((events(fd[0]) & POLLOUT) == 0);
    int wrong = 0;
    static char into[50000];
    while (got < sent && (length = read(fd[1], into, sizeof into)) > 0)
        for (int i = 0; i < length; i++, got++) wrong += into[i] != (char)(got % sizeof chunk * 7);
    CHECK(got == sent && wrong == 0);
    CHECK(events_soon(fd[0], POLLOUT) & POLLOUT);
    /* A writer that waits writes all. */
    fcntl(fd[0], F_SETFL, 0);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 100; i++) CHECK(write(fd[0], chunk, sizeof chunk) == sizeof chunk);
        _exit(0);
    }
    close(fd[0]);
    for (got = 0; (length = read(fd[1], into, sizeof into)) > 0; got += length) {}
    CHECK(length == 0 && got == 100L * sizeof chunk);
    CHECK(waitpid(child, NULL, 0) == child);
    close(fd[1]);
}

static void ends(void) {
    int fd[2];
    char buffer[16];
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    /* Half of it. */
    pair(fd);
    CHECK(write(fd[0], "last", 4) == 4 && shutdown(fd[0], SHUT_WR) == 0);
    FAILS(send(fd[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    printf("half: %x %x\n", events(fd[0]), events_soon(fd[1], POLLRDHUP));
    CHECK(read(fd[1], buffer, 9) == 4 && read(fd[1], buffer, 9) == 0 && read(fd[1], buffer, 9) == 0);
    CHECK(write(fd[1], "back", 4) == 4 && recv(fd[0], buffer, 4, MSG_WAITALL) == 4);
    CHECK(shutdown(fd[1], SHUT_WR) == 0);
    printf("both: %x", events_soon(fd[0], POLLHUP));
    printf(" %x\n", events_soon(fd[1], POLLHUP));
    CHECK(read(fd[0], buffer, 9) == 0);
    FAILS(getpeername(fd[0], (void *)&name, &length), ENOTCONN);
    FAILS(shutdown(fd[0], SHUT_WR), ENOTCONN);
    FAILS(shutdown(fd[0], 7), EINVAL);
    end(fd);
    /* The reading half: what comes later is still readable. */
    pair(fd);
    CHECK(shutdown(fd[0], SHUT_RD) == 0 && read(fd[0], buffer, 1) == 0);
    printf("deaf: %x %x\n", events(fd[0]), events(fd[1]));
    CHECK(write(fd[1], "heard", 5) == 5);
    usleep(1000);
    CHECK(read(fd[0], buffer, 9) == 5);
    end(fd);
    /* One side is closed: the first bytes for it are taken and come back as a reset. */
    pair(fd);
    close(fd[0]);
    printf("left: %x\n", events_soon(fd[1], POLLRDHUP));
    CHECK(write(fd[1], "x", 1) == 1);
    printf("nobody: %x\n", events_soon(fd[1], POLLERR));
    CHECK(read(fd[1], buffer, 1) == 0);
    FAILS(send(fd[1], "x", 1, MSG_NOSIGNAL), EPIPE);
    FAILS(send(fd[1], "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(read(fd[1], buffer, 1) == 0);
    close(fd[1]);
    /* Bytes that were not read make it a reset; what came before it is read first. */
    pair(fd);
    CHECK(write(fd[0], "unread", 6) == 6 && write(fd[1], "read", 4) == 4);
    usleep(1000);
    close(fd[1]);
    printf("reset: %x\n", events_soon(fd[0], POLLERR));
    CHECK(read(fd[0], buffer, 9) == 4);
    FAILS(read(fd[0], buffer, 9), ECONNRESET);
    CHECK(read(fd[0], buffer, 9) == 0);
    FAILS(send(fd[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    FAILS(getpeername(fd[0], (void *)&name, &length), ENOTCONN);
    close(fd[0]);
    /* So does a time of nothing to linger. */
    pair(fd);
    struct linger linger = {1, 0};
    CHECK(setsockopt(fd[1], SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
    close(fd[1]);
    CHECK(events_soon(fd[0], POLLERR) & POLLERR);
    FAILS(send(fd[0], "x", 1, 0), ECONNRESET);
    CHECK(number(fd[0], SOL_SOCKET, SO_ERROR) == 0);
    FAILS(send(fd[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    close(fd[0]);
    /* Both halves are shut, and bytes come. */
    pair(fd);
    CHECK(shutdown(fd[0], SHUT_RDWR) == 0);
    printf("shut: %x %x\n", events(fd[0]), events_soon(fd[1], POLLRDHUP));
    CHECK(write(fd[1], "x", 1) == 1);
    printf("after it: %x", events_soon(fd[0], POLLERR));
    printf(" %x\n", events_soon(fd[1], POLLERR));
    CHECK(number(fd[0], SOL_SOCKET, SO_ERROR) == ECONNRESET && number(fd[1], SOL_SOCKET, SO_ERROR) == EPIPE);
    end(fd);
    /* A signal tells who writes to nobody. */
    pair(fd);
    CHECK(shutdown(fd[0], SHUT_WR) == 0);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGPIPE, SIG_DFL);
        _exit(write(fd[0], "x", 1) == -1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
    end(fd);
}

/* The end that was first leaves its port taken for a while. */
static void remembered(void) {
    int port, listener = listener_at(INADDR_LOOPBACK, 1, &port), client = connected(port);
    int server = accept(listener, NULL, NULL);
    char byte;
    close(listener), close(server);
    CHECK(read(client, &byte, 1) == 0);
    close(client);
    usleep(1000);
    struct sockaddr_in name = v4(INADDR_LOOPBACK, port);
    int again = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(bind(again, (void *)&name, sizeof name), EADDRINUSE);
    CHECK(set(again, SOL_SOCKET, SO_REUSEADDR, 1) == 0);
    FAILS(bind(again, (void *)&name, sizeof name), EADDRINUSE);
    close(again);
    /* Who reuses addresses on both occasions may. */
    listener = socket(AF_INET, SOCK_STREAM, 0);
    set(listener, SOL_SOCKET, SO_REUSEADDR, 1);
    name = v4(INADDR_LOOPBACK, 0);
    CHECK(bind(listener, (void *)&name, sizeof name) == 0 && listen(listener, 1) == 0);
    port = port_of(listener);
    client = connected(port);
    server = accept(listener, NULL, NULL);
    close(listener), close(server);
    CHECK(read(client, &byte, 1) == 0);
    name = v4(INADDR_LOOPBACK, port);
    again = socket(AF_INET, SOCK_STREAM, 0);
    set(again, SOL_SOCKET, SO_REUSEADDR, 1);
    CHECK(bind(again, (void *)&name, sizeof name) == 0 && listen(again, 1) == 0);
    close(client), close(again);
}

static void print_event(int set) {
    struct epoll_event event = {0};
    printf(" %x", epoll_wait(set, &event, 1, 0) == 1 ? event.events : 0);
}

static void edges(void) {
    int fd[2], set = epoll_create1(0);
    char buffer[8];
    pair(fd);
    struct epoll_event event = {EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, {0}};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd[1], &event) == 0);
    printf("edges:");
    print_event(set), print_event(set);
    CHECK(write(fd[0], "ab", 2) == 2 && events_soon(fd[1], POLLIN));
    print_event(set), print_event(set);
    CHECK(read(fd[1], buffer, 1) == 1);
    print_event(set);
    CHECK(write(fd[0], "c", 1) == 1);
    usleep(1000);
    print_event(set);
    CHECK(shutdown(fd[0], SHUT_WR) == 0 && events_soon(fd[1], POLLRDHUP));
    print_event(set), print_event(set);
    close(fd[0]);
    CHECK(write(fd[1], "x", 1) == 1 && events_soon(fd[1], POLLERR));
    print_event(set);
    puts("");
    close(fd[1]), close(set);
}

static int field(const char *info, int offset) {
    int value;
    memcpy(&value, info + offset, sizeof value);
    return value;
}

static void options(void) {
    int fd[2], fresh = socket(AF_INET, SOCK_STREAM, 0);
    printf("nodelay %d cork %d idle %d interval %d count %d syn %d linger %d quick %d timeout %d\n",
           number(fresh, IPPROTO_TCP, TCP_NODELAY), number(fresh, IPPROTO_TCP, TCP_CORK),
           number(fresh, IPPROTO_TCP, TCP_KEEPIDLE), number(fresh, IPPROTO_TCP, TCP_KEEPINTVL),
           number(fresh, IPPROTO_TCP, TCP_KEEPCNT), number(fresh, IPPROTO_TCP, TCP_SYNCNT),
           number(fresh, IPPROTO_TCP, TCP_LINGER2), number(fresh, IPPROTO_TCP, TCP_QUICKACK),
           number(fresh, IPPROTO_TCP, TCP_USER_TIMEOUT));
    printf("segment %d tos %d ttl %d discover %d mtu %d\n", number(fresh, IPPROTO_TCP, TCP_MAXSEG),
           number(fresh, IPPROTO_IP, IP_TOS), number(fresh, IPPROTO_IP, IP_TTL),
           number(fresh, IPPROTO_IP, IP_MTU_DISCOVER), number(fresh, IPPROTO_IP, IP_MTU));
    static const int values[][2] = {{TCP_NODELAY, 1}, {TCP_KEEPIDLE, 30}, {TCP_KEEPINTVL, 10}, {TCP_KEEPCNT, 3},
                                    {TCP_USER_TIMEOUT, 500}, {TCP_SYNCNT, 2}, {TCP_CORK, 1}};
    for (int i = 0; i < 7; i++) {
        CHECK(set(fresh, IPPROTO_TCP, values[i][0], values[i][1]) == 0);
        CHECK(number(fresh, IPPROTO_TCP, values[i][0]) == values[i][1]);
    }
    FAILS(set(fresh, IPPROTO_TCP, TCP_KEEPIDLE, 0), EINVAL);
    FAILS(set(fresh, IPPROTO_TCP, TCP_KEEPCNT, 128), EINVAL);
    FAILS(set(fresh, IPPROTO_TCP, TCP_MAXSEG, 20), EINVAL);
    FAILS(set(fresh, IPPROTO_TCP, 9999, 1), ENOPROTOOPT);
    FAILS(set(fresh, 9999, 1, 1), ENOPROTOOPT);
    FAILS(set(fresh, SOL_SOCKET, 9999, 1), ENOPROTOOPT);
    FAILS(setsockopt(fresh, IPPROTO_TCP, TCP_NODELAY, "", 1), EINVAL);
    FAILS(setsockopt(fresh, IPPROTO_TCP, TCP_CONGESTION, "nothing", 7), ENOENT);
    FAILS(set(fresh, SOL_SOCKET, SO_SNDLOWAT, 2), ENOPROTOOPT);
    int size = 5;
    char name[32];
    socklen_t length = sizeof name;
    CHECK(getsockopt(fresh, IPPROTO_IP, IP_OPTIONS, name, &length) == 0 && length == 0);
    for (; size <= 1000000; size *= 20) {
        CHECK(set(fresh, SOL_SOCKET, SO_SNDBUF, size) == 0 && set(fresh, SOL_SOCKET, SO_RCVBUF, size) == 0);
        if (size < 100000) printf("%d: %d %d\n", size, number(fresh, SOL_SOCKET, SO_SNDBUF), number(fresh, SOL_SOCKET, SO_RCVBUF));
    }
    close(fresh);
    /* What an accepted connection has of its listener. */
    int port, listener = listener_at(INADDR_LOOPBACK, 1, &port);
    set(listener, IPPROTO_TCP, TCP_NODELAY, 1), set(listener, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(listener, IPPROTO_TCP, TCP_KEEPIDLE, 77);
    fd[0] = connected(port), fd[1] = accept(listener, NULL, NULL);
    CHECK(number(fd[1], IPPROTO_TCP, TCP_NODELAY) == 1 && number(fd[1], SOL_SOCKET, SO_KEEPALIVE) == 1);
    CHECK(number(fd[1], IPPROTO_TCP, TCP_KEEPIDLE) == 77);
    /* `struct tcp_info`, which C libraries have shorter. */
    static char info[232];
    CHECK(write(fd[0], "12345", 5) == 5 && recv(fd[1], name, 5, MSG_WAITALL) == 5);
    length = sizeof info;
    CHECK(getsockopt(fd[1], IPPROTO_TCP, TCP_INFO, info, &length) == 0);
    CHECK(info[0] == TCP_ESTABLISHED && field(info, 128) == 5 && field(info, 36) == 0);
    length = sizeof info;
    CHECK(getsockopt(fd[0], IPPROTO_TCP, TCP_INFO, info, &length) == 0);
    printf("info: state %d lost %d unsent %d\n", info[0], field(info, 32), field(info, 144));
    CHECK(shutdown(fd[0], SHUT_WR) == 0 && read(fd[1], name, 1) == 0);
    /* Linux acknowledges the end after a while. */
    usleep(100000);
    length = sizeof info;
    CHECK(getsockopt(fd[0], IPPROTO_TCP, TCP_INFO, info, &length) == 0 && info[0] == TCP_FIN_WAIT2);
    CHECK(getsockopt(fd[1], IPPROTO_TCP, TCP_INFO, info, &length) == 0 && info[0] == TCP_CLOSE_WAIT);
    end(fd), close(listener);
}

static void six(void) {
    struct sockaddr_in6 name = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT}, other;
    socklen_t length = sizeof other;
    int listener = socket(AF_INET6, SOCK_STREAM, 0), client, server;
    CHECK(bind(listener, (void *)&name, sizeof name) == 0 && listen(listener, 2) == 0);
    name.sin6_port = htons(port_of(listener));
    client = socket(AF_INET6, SOCK_STREAM, 0);
    CHECK(connect(client, (void *)&name, sizeof name) == 0);
    server = accept(listener, (void *)&other, &length);
    CHECK(length == sizeof other && IN6_IS_ADDR_LOOPBACK(&other.sin6_addr) && port_of(client) == ntohs(other.sin6_port));
    CHECK(write(client, "six", 3) == 3 && recv(server, &other, 3, MSG_WAITALL) == 3);
    FAILS(set(client, IPPROTO_IPV6, IPV6_V6ONLY, 1), EINVAL);
    struct sockaddr_in old = v4(INADDR_LOOPBACK, port_of(listener));
    close(client), close(server);
    client = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(connect(client, (void *)&old, sizeof old), ECONNREFUSED);
    FAILS(connect(client, (void *)&name, sizeof name), EAFNOSUPPORT);
    close(client), close(listener);
    /* Any address is of both, and tells IPv4 as mapped. */
    listener = socket(AF_INET6, SOCK_STREAM, 0);
    CHECK(number(listener, IPPROTO_IPV6, IPV6_V6ONLY) == 0);
    name.sin6_addr = in6addr_any, name.sin6_port = 0;
    CHECK(bind(listener, (void *)&name, sizeof name) == 0 && listen(listener, 2) == 0);
    old = v4(INADDR_LOOPBACK, port_of(listener));
    client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(client, (void *)&old, sizeof old) == 0);
    length = sizeof other;
    server = accept(listener, (void *)&other, &length);
    char text[64];
    printf("from %s", inet_ntop(AF_INET6, &other.sin6_addr, text, sizeof text));
    CHECK(getsockname(server, (void *)&other, &length) == 0);
    printf(" at %s\n", inet_ntop(AF_INET6, &other.sin6_addr, text, sizeof text));
    close(client), close(server);
    client = socket(AF_INET, SOCK_STREAM, 0);
    old = v4(INADDR_ANY, port_of(listener));
    FAILS(bind(client, (void *)&old, sizeof old), EADDRINUSE);
    close(client);
    /* A mapped address is reached by an IPv6 socket, unless it is for IPv6 alone. */
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &name.sin6_addr);
    name.sin6_port = htons(port_of(listener));
    client = socket(AF_INET6, SOCK_STREAM, 0);
    CHECK(connect(client, (void *)&name, sizeof name) == 0);
    CHECK(getsockname(client, (void *)&other, &length) == 0 && IN6_IS_ADDR_V4MAPPED(&other.sin6_addr));
    close(client);
    client = socket(AF_INET6, SOCK_STREAM, 0);
    CHECK(set(client, IPPROTO_IPV6, IPV6_V6ONLY, 1) == 0);
    FAILS(connect(client, (void *)&name, sizeof name), ENETUNREACH);
    name.sin6_port = 0;
    FAILS(bind(client, (void *)&name, sizeof name), EINVAL);
    close(client), close(listener);
    /* For IPv6 alone leaves the port to IPv4. */
    listener = socket(AF_INET6, SOCK_STREAM, 0);
    set(listener, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    name.sin6_addr = in6addr_any;
    CHECK(bind(listener, (void *)&name, sizeof name) == 0 && listen(listener, 2) == 0);
    client = socket(AF_INET, SOCK_STREAM, 0);
    old = v4(INADDR_ANY, port_of(listener));
    CHECK(bind(client, (void *)&old, sizeof old) == 0);
    close(client), close(listener);
}

/* A client that tried elsewhere stays where it tries now; a call that is cut short leaves the error to the next; what
   cannot be is told in the order of Linux. */
static void attacked(void) {
    int ports[2], first = listener_at(INADDR_LOOPBACK, 0, &ports[0]), second = listener_at(INADDR_LOOPBACK, 0, &ports[1]);
    int way[2] = {connected(ports[0]), connected(ports[1])}, client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in there = v4(INADDR_LOOPBACK, ports[0]), none = {.sin_family = AF_UNSPEC};
    FAILS(connect(client, (void *)&there, sizeof there), EINPROGRESS);
    CHECK(connect(client, (void *)&none, sizeof none) == 0);
    there = v4(INADDR_LOOPBACK, ports[1]);
    FAILS(connect(client, (void *)&there, sizeof there), EINPROGRESS);
    int taken = accept(first, NULL, NULL);
    usleep(20000);
    fcntl(first, F_SETFL, O_NONBLOCK);
    FAILS(accept(first, NULL, NULL), EAGAIN);
    there.sin_family = AF_UNIX;
    FAILS(connect(second, (void *)&there, 8), EISCONN);
    FAILS(connect(taken, (void *)&there, sizeof there), EISCONN);
    close(first), close(second), close(client), close(taken);
    end(way);
    int fd[2];
    for (int how = 0; how < 3; how++) {
        static char much[10 << 20];
        pair(fd);
        if (fork() == 0) {
            close(fd[0]);
            usleep(100000);
            _exit(read(fd[1], much, 1000) != 1000);
        }
        close(fd[1]);
        struct iovec part = {much, sizeof much};
        struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
        ssize_t done = how == 0   ? write(fd[0], much, sizeof much)
                       : how == 1 ? send(fd[0], much, sizeof much, 0)
                                  : sendmsg(fd[0], &header, 0);
        CHECK(done > 0 && done < (ssize_t)sizeof much);
        FAILS(send(fd[0], "x", 1, 0), ECONNRESET);
        FAILS(send(fd[0], "x", 1, 0), EPIPE);
        close(fd[0]);
        wait(NULL);
    }
    char bytes[10];
    pair(fd);
    CHECK(send(fd[1], "abc", 3, 0) == 3);
    if (fork() == 0) {
        struct linger at_once = {1, 0};
        close(fd[0]);
        usleep(100000);
        CHECK(setsockopt(fd[1], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
        _exit(0);
    }
    close(fd[1]);
    CHECK(recv(fd[0], bytes, 10, MSG_WAITALL) == 3);
    FAILS(recv(fd[0], bytes, 10, 0), ECONNRESET);
    CHECK(recv(fd[0], bytes, 10, 0) == 0);
    FAILS(recv(fd[0], (void *)-4096L, -1, 0), EFAULT);
    close(fd[0]);
    wait(NULL);
    pair(fd);
    CHECK(set(fd[0], SOL_SOCKET, SO_RCVBUF, 30000) == 0 && set(fd[0], SOL_SOCKET, SO_RCVLOWAT, 100000) == 0);
    CHECK(set(fd[1], SOL_SOCKET, SO_RCVLOWAT, 100000) == 0);
    printf("waits for %d of %d, %d of %d\n", number(fd[0], SOL_SOCKET, SO_RCVLOWAT), number(fd[0], SOL_SOCKET, SO_RCVBUF),
           number(fd[1], SOL_SOCKET, SO_RCVLOWAT), number(fd[1], SOL_SOCKET, SO_RCVBUF));
    end(fd);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    making();
    ports();
    connecting();
    backlog();
    bytes();
    filling();
    ends();
    remembered();
    edges();
    options();
    six();
    attacked();
    puts("done");
    return 0;
}
