/* UDP over loopback in one process: datagrams to whom they are sent, what is cut and what is lost, errors, what comes
   with a datagram, several in one call. Ports are chosen by the system, so that runs on one host do not meet. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define CHECK(claim) ((claim) ? (void)0 : (void)printf("line %d: not so: %s (errno %d)\n", __LINE__, #claim, errno))
#define FAILS(call, number) (errno = 0, CHECK((long)(call) == -1), CHECK(errno == number))

static int events(int fd) {
    struct pollfd entry = {fd, POLLIN | POLLOUT | POLLRDHUP | POLLPRI, 0};
    CHECK(poll(&entry, 1, 0) >= 0);
    return entry.revents;
}

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

static int bound(struct sockaddr_in *name) {
    socklen_t length = sizeof *name;
    *name = v4(INADDR_LOOPBACK, 0);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(bind(fd, (void *)name, length) == 0 && getsockname(fd, (void *)name, &length) == 0);
    return fd;
}

/* A port that nobody has. */
static struct sockaddr_in nobody(void) {
    struct sockaddr_in name;
    close(bound(&name));
    return name;
}

static int set(int fd, int level, int name, int value) {
    return setsockopt(fd, level, name, &value, sizeof value);
}

static int number(int fd, int level, int name) {
    int value = -1;
    socklen_t length = sizeof value;
    return getsockopt(fd, level, name, &value, &length) ? -errno : value;
}

static void datagrams(void) {
    struct sockaddr_in name, from, own;
    socklen_t length = sizeof from;
    char buffer[64];
    int count, receiver = bound(&name), sender = socket(AF_INET, SOCK_DGRAM, 0);
    printf("fresh: %x\n", events(sender));
    FAILS(send(sender, "x", 1, 0), EDESTADDRREQ);
    FAILS(recv(sender, buffer, 1, MSG_DONTWAIT), EAGAIN);
    FAILS(listen(sender, 1), EOPNOTSUPP);
    FAILS(accept(sender, NULL, NULL), EOPNOTSUPP);
    FAILS(getpeername(sender, (void *)&from, &length), ENOTCONN);
    CHECK(sendto(sender, "one", 3, 0, (void *)&name, sizeof name) == 3);
    CHECK(sendto(sender, "", 0, 0, (void *)&name, sizeof name) == 0);
    CHECK(sendto(sender, "three", 5, 0, (void *)&name, sizeof name) == 5);
    printf("some: %x\n", events_soon(receiver, POLLIN));
    CHECK(ioctl(receiver, FIONREAD, &count) == 0 && count == 3);
    CHECK(recvfrom(receiver, buffer, 2, MSG_PEEK | MSG_TRUNC, (void *)&from, &length) == 3 && length == sizeof from);
    length = sizeof own;
    CHECK(getsockname(sender, (void *)&own, &length) == 0 && own.sin_addr.s_addr == 0);
    CHECK(from.sin_port == own.sin_port && from.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    CHECK(recv(receiver, buffer, 9, 0) == 3 && recv(receiver, buffer, 9, 0) == 0);
    struct iovec part = {buffer, 2};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    CHECK(recvmsg(receiver, &header, 0) == 2 && header.msg_flags == MSG_TRUNC);
    static char large[65508];
    FAILS(sendto(sender, large, 65508, 0, (void *)&name, sizeof name), EMSGSIZE);
    CHECK(sendto(sender, large, 65507, 0, (void *)&name, sizeof name) == 65507);
    CHECK(recv(receiver, large, sizeof large, 0) == 65507);
    name.sin_port = 0;
    FAILS(sendto(sender, "x", 1, 0, (void *)&name, sizeof name), EINVAL);
    FAILS(sendto(sender, "x", 1, 0, (void *)&name, 8), EINVAL);
    close(sender), close(receiver);
}

static void connected(void) {
    struct sockaddr_in a, b, gone = nobody();
    char buffer[16];
    int first = bound(&a), second = bound(&b), third = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(connect(first, (void *)&b, sizeof b) == 0 && send(first, "hello", 5, 0) == 5);
    CHECK(recv(second, buffer, 9, 0) == 5);
    /* It hears its peer alone. */
    CHECK(sendto(third, "stranger", 8, 0, (void *)&a, sizeof a) == 8);
    usleep(1000);
    FAILS(recv(first, buffer, 9, MSG_DONTWAIT), EAGAIN);
    CHECK(sendto(second, "peer", 4, 0, (void *)&a, sizeof a) == 4 && recv(first, buffer, 9, 0) == 4);
    /* It may send elsewhere. */
    struct sockaddr_in c;
    int fourth = bound(&c);
    CHECK(sendto(first, "else", 4, 0, (void *)&c, sizeof c) == 4 && recv(fourth, buffer, 9, 0) == 4);
    close(fourth);
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    CHECK(connect(first, &none, sizeof none) == 0);
    FAILS(send(first, "x", 1, 0), EDESTADDRREQ);
    /* Nobody is there. */
    CHECK(connect(first, (void *)&gone, sizeof gone) == 0 && send(first, "x", 1, 0) == 1);
    printf("nobody: %x\n", events_soon(first, POLLERR));
    FAILS(send(first, "x", 1, 0), ECONNREFUSED);
    CHECK(send(first, "x", 1, 0) == 1);
    CHECK(events_soon(first, POLLERR) & POLLERR);
    FAILS(recv(first, buffer, 1, 0), ECONNREFUSED);
    CHECK(send(first, "x", 1, 0) == 1);
    CHECK(events_soon(first, POLLERR) & POLLERR);
    CHECK(number(first, SOL_SOCKET, SO_ERROR) == ECONNREFUSED && number(first, SOL_SOCKET, SO_ERROR) == 0);
    CHECK(sendto(third, "x", 1, 0, (void *)&gone, sizeof gone) == 1);
    usleep(1000);
    printf("unconnected: %x\n", events(third));
    /* Ends. */
    FAILS(shutdown(third, SHUT_RD), ENOTCONN);
    CHECK(recv(third, buffer, 1, 0) == 0);
    CHECK(shutdown(first, SHUT_RDWR) == 0);
    printf("shut: %x\n", events(first));
    FAILS(send(first, "x", 1, MSG_NOSIGNAL), EPIPE);
    close(first), close(second), close(third);
    /* The address that a way begins with is known at once, and nothing is sent. */
    int probe = socket(AF_INET, SOCK_DGRAM, 0);
    socklen_t length = sizeof a;
    CHECK(connect(probe, (void *)&gone, sizeof gone) == 0 && getsockname(probe, (void *)&a, &length) == 0);
    CHECK(a.sin_addr.s_addr == htonl(INADDR_LOOPBACK) && a.sin_port != 0 && number(probe, SOL_SOCKET, SO_ERROR) == 0);
    CHECK(connect(probe, &none, sizeof none) == 0 && getsockname(probe, (void *)&a, &length) == 0);
    CHECK(a.sin_addr.s_addr == 0 && a.sin_port == 0);
    close(probe);
}

static void bounded(void) {
    struct sockaddr_in name;
    char buffer[128];
    int count = 0, receiver = bound(&name), sender = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(set(receiver, SOL_SOCKET, SO_RCVBUF, 4096) == 0 && number(receiver, SOL_SOCKET, SO_RCVBUF) == 8192);
    for (int i = 0; i < 50; i++) CHECK(sendto(sender, buffer, 100, 0, (void *)&name, sizeof name) == 100);
    usleep(1000);
    while (recv(receiver, buffer, sizeof buffer, MSG_DONTWAIT) == 100) count++;
    CHECK(count >= 5 && count <= 12);
    close(sender), close(receiver);
    /* Two share a port if both say so. */
    receiver = bound(&name);
    sender = socket(AF_INET, SOCK_DGRAM, 0);
    FAILS(bind(sender, (void *)&name, sizeof name), EADDRINUSE);
    set(sender, SOL_SOCKET, SO_REUSEADDR, 1), set(receiver, SOL_SOCKET, SO_REUSEADDR, 1);
    CHECK(bind(sender, (void *)&name, sizeof name) == 0);
    close(sender), close(receiver);
}

static void beside(void) {
    struct sockaddr_in name;
    int receiver = bound(&name), sender = socket(AF_INET, SOCK_DGRAM, 0);
    set(receiver, IPPROTO_IP, IP_PKTINFO, 1), set(receiver, IPPROTO_IP, IP_RECVTTL, 1);
    set(receiver, IPPROTO_IP, IP_RECVTOS, 1);
    CHECK(sendto(sender, "x", 1, 0, (void *)&name, sizeof name) == 1);
    char byte;
    union {
        char bytes[256];
        struct cmsghdr header;
    } control;
    struct iovec part = {&byte, 1};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    CHECK(recvmsg(receiver, &header, 0) == 1 && header.msg_flags == 0);
    for (struct cmsghdr *one = CMSG_FIRSTHDR(&header); one; one = CMSG_NXTHDR(&header, one)) {
        printf("%d %d:", one->cmsg_level, one->cmsg_type);
        for (size_t i = 0; i < one->cmsg_len - CMSG_LEN(0); i++) printf(" %d", CMSG_DATA(one)[i]);
        puts("");
    }
    CHECK(sendto(sender, "x", 1, 0, (void *)&name, sizeof name) == 1);
    header.msg_controllen = 20;
    CHECK(recvmsg(receiver, &header, 0) == 1 && header.msg_flags == MSG_CTRUNC);
    /* Several in one call. */
    char bytes[3][8];
    struct iovec parts[3];
    struct mmsghdr headers[3] = {0};
    for (int i = 0; i < 3; i++) {
        parts[i] = (struct iovec){i == 0 ? "a" : i == 1 ? "bb" : "ccc", i + 1};
        headers[i].msg_hdr = (struct msghdr){&name, sizeof name, &parts[i], 1};
    }
    CHECK(sendmmsg(sender, headers, 3, 0) == 3 && headers[2].msg_len == 3);
    usleep(1000);
    for (int i = 0; i < 3; i++) {
        parts[i] = (struct iovec){bytes[i], 8};
        headers[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1};
    }
    CHECK(recvmmsg(receiver, headers, 3, MSG_WAITFORONE, NULL) == 3 && headers[1].msg_len == 2);
    close(sender), close(receiver);
}

static void six(void) {
    struct sockaddr_in6 name = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT}, from;
    socklen_t length = sizeof name;
    char buffer[8], text[64];
    int receiver = socket(AF_INET6, SOCK_DGRAM, 0), old = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(bind(receiver, (void *)&name, sizeof name) == 0 && getsockname(receiver, (void *)&name, &length) == 0);
    struct sockaddr_in there = v4(INADDR_LOOPBACK, ntohs(name.sin6_port));
    CHECK(sendto(old, "four", 4, 0, (void *)&there, sizeof there) == 4);
    length = sizeof from;
    CHECK(recvfrom(receiver, buffer, 8, 0, (void *)&from, &length) == 4 && length == sizeof from);
    printf("from %s\n", inet_ntop(AF_INET6, &from.sin6_addr, text, sizeof text));
    CHECK(sendto(receiver, "back", 4, 0, (void *)&from, sizeof from) == 4 && recv(old, buffer, 8, 0) == 4);
    name.sin6_addr = in6addr_loopback;
    CHECK(sendto(receiver, "self", 4, 0, (void *)&name, sizeof name) == 4);
    CHECK(recvfrom(receiver, buffer, 8, 0, (void *)&from, &length) == 4);
    printf("from %s\n", inet_ntop(AF_INET6, &from.sin6_addr, text, sizeof text));
    close(receiver), close(old);
}

/* Where a datagram goes that names no family, or one that is not the socket's. */
static void astray(void) {
    struct sockaddr_in there = v4(INADDR_LOOPBACK, 0);
    socklen_t length = sizeof there;
    static char bytes[8];
    int receiver = socket(AF_INET, SOCK_DGRAM, 0), six = socket(AF_INET6, SOCK_DGRAM, 0);
    CHECK(bind(receiver, (void *)&there, sizeof there) == 0 && getsockname(receiver, (void *)&there, &length) == 0);
    there.sin_family = AF_UNSPEC;
    CHECK(sendto(receiver, "none", 4, 0, (void *)&there, sizeof there) == 4 && recv(receiver, bytes, 8, 0) == 4);
    FAILS(sendto(receiver, "none", 4, 0, (void *)&there, 15), EINVAL);
    FAILS(sendto(receiver, "none", 4, 0, (void *)&there, 0), EINVAL);
    FAILS(sendto(six, "none", 4, 0, (void *)&there, sizeof there), EDESTADDRREQ);
    there.sin_family = AF_UNIX;
    FAILS(sendto(receiver, "none", 4, 0, (void *)&there, sizeof there), EAFNOSUPPORT);
    FAILS(sendto(six, "none", 4, 0, (void *)&there, sizeof there), EINVAL);
    FAILS(send(receiver, bytes, -1, 0), EMSGSIZE);
    close(receiver), close(six);
}

int main(void) {
    datagrams();
    connected();
    bounded();
    beside();
    six();
    astray();
    puts("done");
    return 0;
}
