// Packet sockets and filters of sockets, over the loopback interface. What others send there is left out by a protocol
// of its own.
#include "answers.h"
#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <sys/ioctl.h>

#define OWN 0x88b5
#define COUNT(list) (sizeof(list) / sizeof *(list))
static const struct sock_filter all_of_it[] = {BPF_STMT(BPF_RET | BPF_K, -1)}, none_of_it[] = {BPF_STMT(BPF_RET | BPF_K, 0)}, twenty[] = {BPF_STMT(BPF_RET | BPF_K, 20)};

static int attach_at(int fd, const struct sock_filter *list, size_t count) {
    struct sock_fprog program = {.len = count, .filter = (void *)list};
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}
#define ATTACH(fd, list) attach_at(fd, list, COUNT(list))
static int option(int fd, int level, int name, int value) { return setsockopt(fd, level, name, &value, sizeof value); }
static int value_of(int fd, int level, int name) {
    int value = 0;
    socklen_t length = sizeof value;
    return getsockopt(fd, level, name, &value, &length) ? -1 : value;
}
static struct sockaddr_ll place(int protocol, int index) {
    return (struct sockaddr_ll){.sll_family = AF_PACKET, .sll_protocol = htons(protocol), .sll_ifindex = index};
}
static void received(int fd) {
    unsigned char bytes[200] = {0};
    struct sockaddr_ll from = {0};
    socklen_t length = sizeof from;
    long count = recvfrom(fd, bytes, sizeof bytes, MSG_DONTWAIT, (void *)&from, &length);
    if (count < 0)
        return tell("received", count);
    printf("received: %ld name %u family %d protocol %x interface %d kind %d hardware %d address %d %02x:", count, length, from.sll_family, ntohs(from.sll_protocol), from.sll_ifindex, from.sll_pkttype, from.sll_hatype, from.sll_halen, from.sll_addr[0]);
    for (long at = 0; at < count; at++)
        printf(" %02x", bytes[at]);
    puts("");
}
static void named(int fd) {
    struct sockaddr_ll own;
    socklen_t length = sizeof own;
    memset(&own, 0, sizeof own);
    T(getsockname(fd, (void *)&own, &length));
    printf("length %u family %d protocol %x interface %d hardware %d bytes %d\n", length, own.sll_family, ntohs(own.sll_protocol), own.sll_ifindex, own.sll_hatype, own.sll_halen);
}
PROGRAM(packet_sockets) {
    struct sockaddr_ll lo = place(0, 1), none = place(0, 999);
    CHILD("nobody", (setresuid(7, 7, 7), T(socket(AF_PACKET, SOCK_RAW, 0)), T(socket(AF_PACKET, 9, 0))));
    int pair[2], raw = socket(AF_PACKET, SOCK_RAW, 0), cooked = socket(AF_PACKET, SOCK_DGRAM, htons(OWN));
    IS(raw > 0), IS(cooked > 0), T(socket(AF_PACKET, SOCK_STREAM, 0)), T(socket(AF_PACKET, SOCK_SEQPACKET, 0)), T(socketpair(AF_PACKET, SOCK_RAW, 0, pair));
    named(raw), named(cooked), T(bind(raw, (void *)&lo, 19)), T(bind(raw, (void *)&none, sizeof none)), lo.sll_family = AF_INET, T(bind(raw, (void *)&lo, sizeof lo)), lo.sll_family = AF_PACKET, T(bind(raw, (void *)&lo, sizeof lo)), named(raw), T(bind(cooked, (void *)&lo, sizeof lo)), named(cooked);
    T(value_of(raw, SOL_SOCKET, SO_TYPE)), T(value_of(cooked, SOL_SOCKET, SO_TYPE)), T(value_of(raw, SOL_SOCKET, SO_DOMAIN)), T(value_of(raw, SOL_SOCKET, SO_PROTOCOL)), T(value_of(cooked, SOL_SOCKET, SO_PROTOCOL)), T(value_of(raw, SOL_SOCKET, SO_RCVBUF)), T(value_of(raw, SOL_SOCKET, SO_SNDBUF)), T(value_of(raw, SOL_SOCKET, SO_ERROR)), T(value_of(raw, SOL_SOCKET, SO_ACCEPTCONN));
    T(connect(raw, (void *)&lo, sizeof lo)), T(listen(raw, 1)), T(accept(raw, NULL, NULL)), T(shutdown(raw, SHUT_RDWR)), T(getpeername(raw, (void *)&lo, &(socklen_t){20})), received(raw);
    struct pollfd polled = {raw, POLLIN | POLLOUT, 0};
    T(poll(&polled, 1, 0)), T(polled.revents), T(recv(raw, pair, 4, MSG_OOB)), T(recv(raw, pair, 4, MSG_ERRQUEUE)), T(recv(raw, pair, 4, MSG_DONTWAIT));
}
PROGRAM(packets_over_loopback) {
    struct sockaddr_ll lo = place(OWN, 1), other = place(OWN + 1, 1), none = place(OWN, 0), away = place(OWN, 999);
    unsigned char frame[40] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, OWN >> 8, OWN & 255, 'h', 'e', 'l', 'l', 'o'};
    static char long_one[70000] = {[12] = OWN >> 8, [13] = OWN & 255};
    int raw = socket(AF_PACKET, SOCK_RAW, htons(OWN)), cooked = socket(AF_PACKET, SOCK_DGRAM, htons(OWN)), all = socket(AF_PACKET, SOCK_RAW, 0), out = socket(AF_PACKET, SOCK_RAW, 0);
    const struct sock_filter ours[] = {BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 12), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OWN, 0, 1), BPF_STMT(BPF_RET | BPF_K, -1), BPF_STMT(BPF_RET | BPF_K, 0)};
    T(ATTACH(all, ours)), lo.sll_protocol = htons(ETH_P_ALL), T(bind(all, (void *)&lo, sizeof lo)), lo.sll_protocol = htons(OWN);
    T(send(out, frame, 20, 0)), T(sendto(out, frame, 20, 0, (void *)&lo, 19)), T(sendto(out, frame, 20, 0, (void *)&none, sizeof none)), T(sendto(out, frame, 20, 0, (void *)&away, sizeof away)), T(sendto(out, frame, 13, 0, (void *)&lo, sizeof lo)), T(sendto(out, frame, 0, 0, (void *)&lo, sizeof lo)), T(sendto(out, long_one, 65536 + 15, 0, (void *)&lo, sizeof lo));
    T(sendto(out, frame, 20, 0, (void *)&lo, sizeof lo)), received(raw), received(raw), received(cooked), received(all), received(all), received(all), received(out);
    T(sendto(cooked, "abc", 3, 0, (void *)&lo, sizeof lo)), received(raw), received(cooked), received(all), received(all), received(all);
    T(sendto(all, frame, 20, 0, (void *)&lo, sizeof lo)), received(all), received(all), received(raw), received(cooked);
    T(sendto(cooked, "abc", 3, 0, (void *)&other, sizeof other)), received(raw), T(send(cooked, "abc", 3, 0)), T(bind(cooked, (void *)&lo, sizeof lo)), T(send(cooked, "abc", 3, 0)), received(raw), received(cooked), received(cooked);
    T(write(cooked, "abcd", 4)), T(value_of(raw, SOL_SOCKET, SO_ERROR));
    int waiting = 0;
    T(ioctl(raw, FIONREAD, &waiting)), T(waiting), T(recv(raw, frame, 5, MSG_PEEK)), T(recv(raw, frame, 5, MSG_TRUNC)), T(recv(raw, frame, 5, MSG_DONTWAIT));
}
PROGRAM(packet_statistics) {
    struct sockaddr_ll lo = place(OWN, 1);
    struct tpacket_stats statistics = {9, 9};
    socklen_t length = sizeof statistics;
    char frame[60] = {[12] = OWN >> 8, [13] = OWN & 255};
    int raw = socket(AF_PACKET, SOCK_RAW, 0), out = socket(AF_PACKET, SOCK_RAW, 0);
    T(bind(raw, (void *)&lo, sizeof lo)), T(sendto(out, frame, 60, 0, (void *)&lo, sizeof lo)), T(sendto(out, frame, 60, 0, (void *)&lo, sizeof lo)), T(getsockopt(raw, SOL_PACKET, PACKET_STATISTICS, &statistics, &length)), printf("%u %u %u\n", statistics.tp_packets, statistics.tp_drops, length), T(getsockopt(raw, SOL_PACKET, PACKET_STATISTICS, &statistics, &length)), printf("%u %u %u\n", statistics.tp_packets, statistics.tp_drops, length);
    T(ATTACH(raw, none_of_it)), T(sendto(out, frame, 60, 0, (void *)&lo, sizeof lo)), T(getsockopt(raw, SOL_PACKET, PACKET_STATISTICS, &statistics, &length)), printf("%u %u\n", statistics.tp_packets, statistics.tp_drops), received(raw), received(raw), received(raw);
    T(ATTACH(raw, twenty)), T(sendto(out, frame, 60, 0, (void *)&lo, sizeof lo)), received(raw), T(option(raw, SOL_PACKET, PACKET_AUXDATA, 1)), T(value_of(raw, SOL_PACKET, PACKET_AUXDATA)), T(sendto(out, frame, 60, 0, (void *)&lo, sizeof lo));
    char bytes[100], control[200];
    struct iovec part = {bytes, 100};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    T(recvmsg(raw, &header, 0));
    for (struct cmsghdr *one = CMSG_FIRSTHDR(&header); one; one = CMSG_NXTHDR(&header, one)) {
        struct tpacket_auxdata *data = (void *)CMSG_DATA(one);
        printf("%d %d %u %u %u %u\n", one->cmsg_level, one->cmsg_type, data->tp_len, data->tp_snaplen, data->tp_mac, data->tp_net);
    }
}
PROGRAM(packet_options) {
    struct packet_mreq wish = {.mr_ifindex = 1, .mr_type = PACKET_MR_PROMISC};
    int raw = socket(AF_PACKET, SOCK_RAW, 0), value = 1;
    socklen_t length = 4;
    T(setsockopt(raw, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &wish, 15)), T(setsockopt(raw, SOL_PACKET, PACKET_DROP_MEMBERSHIP, &wish, 16)), T(setsockopt(raw, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &wish, 16)), T(setsockopt(raw, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &wish, 16)), T(setsockopt(raw, SOL_PACKET, PACKET_DROP_MEMBERSHIP, &wish, 16)), T(setsockopt(raw, SOL_PACKET, PACKET_DROP_MEMBERSHIP, &wish, 16)), T(setsockopt(raw, SOL_PACKET, PACKET_DROP_MEMBERSHIP, &wish, 16));
    wish.mr_type = PACKET_MR_ALLMULTI, T(setsockopt(raw, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &wish, 16)), wish.mr_type = PACKET_MR_MULTICAST, T(setsockopt(raw, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &wish, 16)), wish.mr_alen = 6, T(setsockopt(raw, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &wish, 16)), wish.mr_ifindex = 999, T(setsockopt(raw, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &wish, 16)), T(setsockopt(raw, SOL_PACKET, PACKET_ADD_MEMBERSHIP, (void *)8, 16));
    T(option(raw, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)), T(value_of(raw, SOL_PACKET, PACKET_IGNORE_OUTGOING)), T(option(raw, SOL_PACKET, PACKET_IGNORE_OUTGOING, 2)), T(option(raw, SOL_PACKET, 99, 1)), T(value_of(raw, SOL_PACKET, 99)), T(option(raw, 99, 1, 1)), T(value_of(raw, 99, 1)), T(option(raw, SOL_PACKET, PACKET_ORIGDEV, 1)), T(value_of(raw, SOL_PACKET, PACKET_ORIGDEV)), T(setsockopt(raw, SOL_PACKET, PACKET_AUXDATA, &value, 3)), T(option(raw, SOL_PACKET, PACKET_RESERVE, 4)), T(value_of(raw, SOL_PACKET, PACKET_RESERVE)), T(option(raw, SOL_PACKET, PACKET_RESERVE, 0));
    T(value_of(raw, SOL_PACKET, PACKET_VERSION)), T(getsockopt(raw, SOL_PACKET, PACKET_HDRLEN, &value, &length)), T(value), value = 7, T(getsockopt(raw, SOL_PACKET, PACKET_HDRLEN, &value, &length)), T(option(raw, SOL_PACKET, PACKET_VERSION, 7)), T(option(raw, SOL_PACKET, PACKET_VERSION, TPACKET_V2)), T(value_of(raw, SOL_PACKET, PACKET_VERSION));
    T(setsockopt(raw, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2)), T(option(raw, IPPROTO_IP, 1, 1));
}
PROGRAM(packet_rings) {
    struct tpacket_req ring = {.tp_block_size = 4096, .tp_block_nr = 2, .tp_frame_size = 2048, .tp_frame_nr = 4};
    struct sockaddr_ll lo = place(OWN, 1);
    char frame[40] = {[12] = OWN >> 8, [13] = OWN & 255, 'r', 'i', 'n', 'g'};
    int raw = socket(AF_PACKET, SOCK_RAW, 0), out = socket(AF_PACKET, SOCK_RAW, 0);
    struct pollfd polled = {raw, POLLIN, 0};
    IS(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, raw, 0) == MAP_FAILED), T(option(raw, SOL_PACKET, PACKET_VERSION, TPACKET_V2));
    T(setsockopt(raw, SOL_PACKET, PACKET_RX_RING, &ring, 15)), ring.tp_frame_nr = 5, T(setsockopt(raw, SOL_PACKET, PACKET_RX_RING, &ring, 16)), ring.tp_frame_nr = 4, ring.tp_block_size = 5000, T(setsockopt(raw, SOL_PACKET, PACKET_RX_RING, &ring, 16)), ring.tp_block_size = 4096, ring.tp_frame_size = 2050, T(setsockopt(raw, SOL_PACKET, PACKET_RX_RING, &ring, 16)), ring.tp_frame_size = 2048, T(setsockopt(raw, SOL_PACKET, PACKET_RX_RING, &ring, 16)), T(setsockopt(raw, SOL_PACKET, PACKET_RX_RING, &ring, 16)), T(option(raw, SOL_PACKET, PACKET_VERSION, TPACKET_V2));
    char *map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, raw, 0);
    IS(map != MAP_FAILED), T(bind(raw, (void *)&lo, sizeof lo)), T(poll(&polled, 1, 0));
    for (int turn = 0; turn < 6; turn++)
        T(sendto(out, frame, 18 + turn, 0, (void *)&lo, sizeof lo));
    T(poll(&polled, 1, 0)), T(polled.revents);
    for (int turn = 0; turn < 4; turn++) {
        volatile struct tpacket2_hdr *header = (void *)(map + turn * 2048);
        struct sockaddr_ll *from = (void *)((char *)header + TPACKET_ALIGN(sizeof *header));
        printf("%d: status %u length %u %u at %u %u seconds %d: %.4s from %d kind %d\n", turn, header->tp_status & TP_STATUS_USER, header->tp_len, header->tp_snaplen, header->tp_mac, header->tp_net, labs((long)header->tp_sec - (long)time(NULL)) < 100, (char *)header + header->tp_mac + 14, from->sll_ifindex, from->sll_pkttype);
        header->tp_status = TP_STATUS_KERNEL;
    }
    T(poll(&polled, 1, 0)), T(sendto(out, frame, 30, 0, (void *)&lo, sizeof lo)), T(poll(&polled, 1, 0)), printf("%u\n", ((struct tpacket2_hdr *)map)->tp_len);
    struct tpacket_stats statistics;
    socklen_t length = sizeof statistics;
    T(getsockopt(raw, SOL_PACKET, PACKET_STATISTICS, &statistics, &length)), printf("%u %u\n", statistics.tp_packets, statistics.tp_drops);
    T(munmap(map, 8192)), memset(&ring, 0, sizeof ring), T(setsockopt(raw, SOL_PACKET, PACKET_RX_RING, &ring, 16)), T(sendto(out, frame, 18, 0, (void *)&lo, sizeof lo)), received(raw);
}
#define WRONG(...) tell(#__VA_ARGS__, (errno = 0, (long)ATTACH(fd, ((const struct sock_filter[]){__VA_ARGS__}))))
#define END BPF_STMT(BPF_RET | BPF_K, 1)
PROGRAM(filters_are_checked) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    static struct sock_filter many[5000];
    for (size_t at = 0; at < COUNT(many); at++)
        many[at] = (struct sock_filter)END;
    T(attach_at(fd, many, 0)), T(attach_at(fd, many, 4097)), T(attach_at(fd, many, 1)), T(attach_at(fd, NULL, 1)), T(attach_at(fd, (void *)8, 1)), T(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, many, 15)), T(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, (void *)8, 16));
    WRONG(BPF_STMT(BPF_LD | BPF_IMM, 1)), WRONG(BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0), END), WRONG(BPF_JUMP(BPF_JMP | BPF_JA, 0, 0, 0), END), WRONG(BPF_JUMP(BPF_JMP | BPF_JEQ, 1, 0, 1), END), WRONG(BPF_JUMP(BPF_JMP | BPF_JEQ, 1, 1, 0), END), WRONG(BPF_JUMP(BPF_JMP | BPF_JA, -1, 0, 0), END), WRONG(END, END, BPF_STMT(BPF_MISC | BPF_TAX, 0));
    WRONG(BPF_STMT(BPF_ALU | BPF_DIV, 0), END), WRONG(BPF_STMT(BPF_ALU | BPF_MOD, 0), END), WRONG(BPF_STMT(BPF_ALU | BPF_DIV | BPF_X, 0), END), WRONG(BPF_STMT(BPF_ALU | BPF_LSH, 32), END), WRONG(BPF_STMT(BPF_ALU | BPF_RSH, 31), END), WRONG(BPF_STMT(BPF_ALU | BPF_NEG | BPF_X, 0), END), WRONG(BPF_STMT(BPF_ALU | 0xb0, 1), END), WRONG(BPF_STMT(BPF_ALU | BPF_XOR, 1), END);
    WRONG(BPF_STMT(BPF_ST, 16), END), WRONG(BPF_STMT(BPF_ST, 15), END), WRONG(BPF_STMT(BPF_LD | BPF_MEM, 0), END), WRONG(BPF_STMT(BPF_LD | BPF_MEM, 16), END), WRONG(BPF_STMT(BPF_ST, 3), BPF_STMT(BPF_LD | BPF_MEM, 3), END), WRONG(BPF_STMT(BPF_ST, 3), BPF_STMT(BPF_LDX | BPF_MEM, 2), END), WRONG(BPF_JUMP(BPF_JMP | BPF_JEQ, 1, 1, 0), BPF_STMT(BPF_ST, 5), BPF_STMT(BPF_LD | BPF_MEM, 5), END), WRONG(END, BPF_STMT(BPF_LD | BPF_MEM, 5), END), WRONG(BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0), BPF_STMT(BPF_LD | BPF_MEM, 5), END);
    WRONG(BPF_STMT(0x18, 0), END), WRONG(BPF_STMT(0x99, 0), END), WRONG(BPF_STMT(0x106, 0), END), WRONG(BPF_STMT(BPF_RET | BPF_X, 0)), WRONG(BPF_STMT(BPF_RET | BPF_A, 0)), WRONG(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + 1), END), WRONG(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_MAX), END), WRONG(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_CPU), END), WRONG(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_NET_OFF), END), WRONG(BPF_STMT(BPF_LD | BPF_W | BPF_IND, SKF_AD_OFF + 1), END), WRONG(BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0), END), WRONG(BPF_STMT(BPF_LDX | BPF_W | BPF_MSH, 0), END), WRONG(BPF_STMT(BPF_LDX | BPF_W | BPF_LEN, 0), END);
}
PROGRAM(filters_of_datagrams) {
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof own;
    char bytes[100];
    int fd = socket(AF_INET, SOCK_DGRAM, 0), from = socket(AF_INET, SOCK_DGRAM, 0);
    struct sock_filter kept[20];
    socklen_t room = 0;
    const struct sock_filter second_byte[] = {BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 9), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 'y', 0, 1), BPF_STMT(BPF_RET | BPF_K, -1), BPF_STMT(BPF_RET | BPF_K, 0)}, few[] = {BPF_STMT(BPF_RET | BPF_K, 3)}, lengths[] = {BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 13, 0, 1), BPF_STMT(BPF_RET | BPF_K, 10), BPF_STMT(BPF_RET | BPF_K, 0)}, network[] = {BPF_STMT(BPF_LD | BPF_B | BPF_ABS, SKF_NET_OFF + 9), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 17, 0, 1), BPF_STMT(BPF_RET | BPF_K, -1), BPF_STMT(BPF_RET | BPF_K, 0)};
    T(bind(fd, (void *)&own, sizeof own)), T(getsockname(fd, (void *)&own, &length)), T(connect(from, (void *)&own, sizeof own));
    T(setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &length, 4)), T(getsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, kept, &room)), T(room), T(ATTACH(fd, second_byte)), T(getsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, NULL, &room)), T(room), room = 3, T(getsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, kept, &room)), room = 20, T(getsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, kept, &room)), T(room), IS(memcmp(kept, second_byte, sizeof second_byte) == 0);
    T(send(from, "xyz", 3, 0)), T(send(from, "abc", 3, 0)), T(recv(fd, bytes, 100, MSG_DONTWAIT)), T(recv(fd, bytes, 100, MSG_DONTWAIT));
    T(ATTACH(fd, few)), T(send(from, "abcdef", 6, 0)), T(recv(fd, bytes, 100, MSG_DONTWAIT)), T(ATTACH(fd, lengths)), T(send(from, "abcde", 5, 0)), T(send(from, "abcdef", 6, 0)), T(recv(fd, bytes, 100, MSG_DONTWAIT)), T(recv(fd, bytes, 100, MSG_DONTWAIT)), T(ATTACH(fd, network)), T(send(from, "abcde", 5, 0)), T(recv(fd, bytes, 100, MSG_DONTWAIT)), T(ATTACH(fd, none_of_it)), T(send(from, "abcde", 5, 0)), T(send(from, "abcde", 5, 0)), T(recv(fd, bytes, 100, MSG_DONTWAIT)), T(ATTACH(fd, all_of_it)), T(send(from, "abcde", 5, 0)), T(recv(fd, bytes, 100, MSG_DONTWAIT)), T(option(fd, SOL_SOCKET, SO_DETACH_FILTER, 0)), T(option(fd, SOL_SOCKET, SO_DETACH_FILTER, 0));
    T(value_of(fd, SOL_SOCKET, SO_LOCK_FILTER)), T(ATTACH(fd, few)), T(option(fd, SOL_SOCKET, SO_LOCK_FILTER, 1)), T(value_of(fd, SOL_SOCKET, SO_LOCK_FILTER)), T(option(fd, SOL_SOCKET, SO_LOCK_FILTER, 0)), T(option(fd, SOL_SOCKET, SO_LOCK_FILTER, 1)), T(ATTACH(fd, all_of_it)), T(option(fd, SOL_SOCKET, SO_DETACH_FILTER, 0)), T(option(from, SOL_SOCKET, SO_LOCK_FILTER, 1)), T(option(from, SOL_SOCKET, SO_DETACH_FILTER, 1));
    T(option(fd, SOL_SOCKET, SO_ATTACH_BPF, -1)), T(ATTACH(socket(AF_INET, SOCK_STREAM, 0), few)), T(ATTACH(socket(AF_INET6, SOCK_DGRAM, 0), few)), T(ATTACH(socket(AF_UNIX, SOCK_DGRAM, 0), few)), T(ATTACH(socket(AF_NETLINK, SOCK_RAW, 0), few)), T(ATTACH(socket(AF_INET, SOCK_RAW, 1), few));
}
PROGRAM(datagrams_are_shown) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(48879), .sin_addr.s_addr = htonl(0x7f00004d)};
    const struct sock_filter ours[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 16), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x7f00004d, 0, 3), BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 9), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 17, 0, 1), BPF_STMT(BPF_RET | BPF_K, 60), BPF_STMT(BPF_RET | BPF_K, 0)};
    struct sockaddr_ll lo = place(ETH_P_ALL, 1), from;
    unsigned char bytes[100];
    int cooked = socket(AF_PACKET, SOCK_DGRAM, 0), own = socket(AF_INET, SOCK_DGRAM, 0);
    T(ATTACH(cooked, ours)), T(bind(cooked, (void *)&lo, sizeof lo)), T(sendto(own, "shown", 5, 0, (void *)&to, sizeof to));
    for (int turn = 0; turn < 3; turn++) {
        socklen_t length = sizeof from;
        T(recvfrom(cooked, bytes, 100, MSG_DONTWAIT, (void *)&from, &length));
        printf("kind %d protocol %x version %x ttl %d to %d.%d port %x: %.5s\n", from.sll_pkttype, ntohs(from.sll_protocol), bytes[0], bytes[8], bytes[16], bytes[19], bytes[22] << 8 | bytes[23], bytes + 28);
    }
    const struct sock_filter echoes[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 16), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x7f00004d, 0, 4), BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 9), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 2), BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 20), BPF_STMT(BPF_RET | BPF_A, 0), BPF_STMT(BPF_RET | BPF_K, 0)};
    int ping = socket(AF_INET, SOCK_RAW, 1);
    T(ATTACH(cooked, echoes)), T(sendto(ping, "\10\0\367\375\0\1\0\1", 8, 0, (void *)&to, sizeof to)), T(recv(cooked, bytes, 100, MSG_DONTWAIT)), T(bytes[0]), T(recv(cooked, bytes, 100, MSG_DONTWAIT)), T(recv(cooked, bytes, 100, MSG_DONTWAIT));
}

static unsigned short sum_of(const unsigned char *bytes, size_t count) {
    unsigned sum = 0;
    for (size_t at = 0; at + 1 < count; at += 2)
        sum += bytes[at] << 8 | bytes[at + 1];
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return ~sum;
}
PROGRAM(headers_of_programs) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000058)};
    unsigned char packet[28] = {0x45, 0x10, 0, 0, 0, 0, 0, 0, 33, 253, 0, 0, 127, 0, 0, 3, 127, 0, 0, 88, 'o', 'w', 'n'}, bytes[100] = {0};
    int any = socket(AF_INET, SOCK_RAW, IPPROTO_RAW), own = socket(AF_INET, SOCK_RAW, 253), heard = socket(AF_INET, SOCK_RAW, 253);
    IS(any > 0), T(value_of(any, IPPROTO_IP, IP_HDRINCL)), T(value_of(own, IPPROTO_IP, IP_HDRINCL)), T(value_of(any, SOL_SOCKET, SO_PROTOCOL)), T(sendto(any, packet, 19, 0, (void *)&to, sizeof to)), T(sendto(any, packet, 28, 0, (void *)&to, sizeof to));
    T(recv(heard, bytes, 100, MSG_DONTWAIT)), printf("%02x %02x length %d ttl %d protocol %d from %d to %d sum %x: %s\n", bytes[0], bytes[1], bytes[3], bytes[8], bytes[9], bytes[15], bytes[19], sum_of(bytes, 20), bytes + 20);
    T(recv(own, bytes, 100, MSG_DONTWAIT)), T(recv(any, bytes, 100, MSG_DONTWAIT)), T(option(own, IPPROTO_IP, IP_HDRINCL, 1)), packet[0] = 0x4f, T(sendto(own, packet, 28, 0, (void *)&to, sizeof to)), packet[0] = 0x45, packet[12] = 0, packet[15] = 0, T(sendto(own, packet, 28, 0, (void *)&to, sizeof to)), T(recv(heard, bytes, 100, MSG_DONTWAIT)), T(bytes[15] == 1 || bytes[15] == 88), T(option(own, IPPROTO_IP, IP_HDRINCL, 0)), T(sendto(own, packet, 8, 0, (void *)&to, sizeof to)), T(recv(heard, bytes, 100, MSG_DONTWAIT)), T(bytes[3]);
    T(socket(AF_INET, SOCK_RAW, 0)), T(socket(AF_INET, SOCK_DGRAM, IPPROTO_RAW));
    char line[300], inode[30];
    FILE *file = fopen("/proc/net/raw", "r");
    struct stat status;
    fstat(heard, &status), snprintf(inode, sizeof inode, " %lu ", status.st_ino);
    while (fgets(line, sizeof line, file))
        if (strstr(line, inode))
            printf("%.26s\n", line + 6);
}
