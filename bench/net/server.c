/*
 * What `aegis bench net` speaks with, on Aegis and on Linux alike: answers each datagram at port 7000 and each byte of a
 * connection to port 7001 by the same; takes a stream at port 7002, whose end it answers by a byte; sends one of
 * STREAM_BYTES to each connection to port 7003; answers REQUEST_BYTES of a connection to port 7004 by ANSWER_BYTES.
 *
 *   server                           serves
 *   server start PROGRAM WORDS...    the same, beside a program that serves port 7010
 *   server ... --init                the same as the first process of a Linux machine, which it gives its card and its
 *                                    addresses
 *
 * A datagram `<` begins what the plugin of QEMU's translator counts (bench/trace/trace.c), `>` ends it.
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "linux_network.h"

#define UDP_PORT 7000
#define TCP_PORT 7001
#define SINK_PORT 7002
#define SOURCE_PORT 7003
#define REQUEST_PORT 7004
#define LISTENERS 4
#define REQUEST_BYTES 64
#define ANSWER_BYTES 1024
/* Libraries that came with the program (bench/host/src/net/programs.rs). */
#define LIBRARIES "/bench/lib"
#define DESCRIPTORS_MAX 1024
#define STREAM_BYTES (4 << 20)
#define EVENTS_MAX 16
#define BUFFER_BYTES 65536
#define MARK(kind)                                                                                                     \
    __asm__ volatile(".pushsection aegis_marks, \"\", @progbits\n\t.quad 1f, " #kind "\n\t.popsection\n1:" ::: "memory")

static char buffer[BUFFER_BYTES];
/* Which port a connection came to. */
static int port_of[DESCRIPTORS_MAX];

static void fail(const char *what) {
    dprintf(1, "server: %s: %s\n", what, strerror(errno));
    _exit(1);
}

static int bound(int type, int port) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, type | SOCK_NONBLOCK, 0), yes = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes)) fail("socket");
    if (bind(fd, (void *)&name, sizeof name)) fail("bind");
    return fd;
}

static void watch(int poll, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
}

static void answer_datagrams(int fd) {
    struct sockaddr_in from;
    for (;;) {
        socklen_t length = sizeof from;
        ssize_t count = recvfrom(fd, buffer, sizeof buffer, 0, (void *)&from, &length);
        if (count < 0) return;
        if (count == 1 && buffer[0] == '<') {
            MARK(1);
            MARK(0);
        }
        if (count == 1 && buffer[0] == '>') {
            MARK(0);
            MARK(2);
        }
        sendto(fd, buffer, count, 0, (void *)&from, length);
    }
}

static void send_stream(int fd) {
    for (long left = STREAM_BYTES; left > 0;) {
        ssize_t count = write(fd, buffer, left < BUFFER_BYTES ? left : BUFFER_BYTES);
        if (count <= 0) break;
        left -= count;
    }
    close(fd);
}

static void begin(int poll, int listener, int port) {
    int yes = 1, fd = accept4(listener, 0, 0, port == SOURCE_PORT ? 0 : SOCK_NONBLOCK);
    if (fd < 0 || fd >= DESCRIPTORS_MAX) return;
    port_of[fd] = port;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (port == SOURCE_PORT) send_stream(fd);
    else watch(poll, fd);
}

static void go_on(int fd) {
    ssize_t length = read(fd, buffer, sizeof buffer);
    if (port_of[fd] == SINK_PORT) {
        if (length > 0 || (length < 0 && errno == EAGAIN)) return;
        if (length == 0) write(fd, "e", 1);
        close(fd);
        return;
    }
    if (port_of[fd] == REQUEST_PORT && length > 0) length = length / REQUEST_BYTES * ANSWER_BYTES;
    if (length <= 0 || write(fd, buffer, length) != length) close(fd);
}

static void start(char **words) {
    if (fork()) return;
    setenv("LD_LIBRARY_PATH", LIBRARIES, 1);
    execv(words[0], words);
    fail(words[0]);
}

int main(int argument_count, char **arguments) {
    if (argument_count > 1 && !strcmp(arguments[argument_count - 1], "--init")) {
        prepare_network();
        mount("dev", "/dev", "devtmpfs", 0, NULL), mount("tmp", "/tmp", "tmpfs", 0, NULL);
        arguments[argument_count - 1] = NULL;
    }
    if (arguments[1] && !strcmp(arguments[1], "start")) start(arguments + 2);
    int udp = bound(SOCK_DGRAM, UDP_PORT), poll = epoll_create1(0), listeners[LISTENERS];
    if (poll < 0) fail("epoll_create1");
    watch(poll, udp);
    for (int i = 0; i < LISTENERS; i++) {
        listeners[i] = bound(SOCK_STREAM, TCP_PORT + i);
        if (listen(listeners[i], 64)) fail("listen");
        watch(poll, listeners[i]);
    }
    dprintf(1, "ready\n");
    for (;;) {
        struct epoll_event events[EVENTS_MAX];
        int count = epoll_wait(poll, events, EVENTS_MAX, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd, listener = 0;
            while (listener < LISTENERS && listeners[listener] != fd) listener++;
            if (fd == udp) answer_datagrams(fd);
            else if (listener < LISTENERS) begin(poll, fd, TCP_PORT + listener);
            else go_on(fd);
        }
    }
}
