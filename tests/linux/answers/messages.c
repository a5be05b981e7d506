// Messages between processes: local sockets, and the queues, semaphores and shared memory of System V and POSIX.
#include "answers.h"
#include <mqueue.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

static char bytes[300000];
static socklen_t named(struct sockaddr_un *name, const char *text) {
    name->sun_family = AF_UNIX, strcpy(name->sun_path, text);
    return offsetof(struct sockaddr_un, sun_path) + strlen(text) + 1;
}
PROGRAM(names_of_sockets) {
    struct sockaddr_un name = {0}, got;
    socklen_t length = sizeof got;
    int first = socket(AF_UNIX, SOCK_STREAM, 0), second = socket(AF_UNIX, SOCK_STREAM, 0), third = socket(AF_UNIX, SOCK_DGRAM, 0);
    T(getsockname(first, (void *)&got, &length)), T(length), name.sun_family = AF_UNIX, T(bind(first, (void *)&name, 2)), length = sizeof got, T(getsockname(first, (void *)&got, &length)), T(length), T(got.sun_path[0]), T(bind(first, (void *)&name, 2)), memcpy(name.sun_path, "\0abc", 4), T(bind(second, (void *)&name, 6)), length = sizeof got, T(getsockname(second, (void *)&got, &length)), T(length), IS(memcmp(got.sun_path, "\0abc", 4) == 0), T(bind(third, (void *)&name, 6)), T(bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&name, 6)), T(connect(third, (void *)&name, 6)), T(connect(socket(AF_UNIX, SOCK_DGRAM, 0), (void *)&name, 7)), T(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&name, 7));
    length = named(&name, "bound"), third = socket(AF_UNIX, SOCK_DGRAM, 0), T(bind(third, (void *)&name, length)), length = 5, T(getsockname(third, (void *)&got, &length)), T(length), length = -1, T(getsockname(third, (void *)&got, &length)), T(getsockname(third, (void *)&got, (void *)8)), length = 50, T(getsockname(third, (void *)8, &length)), T(getpeername(third, (void *)&got, &length)), unlink("bound"), length = named(&name, "bound"), T(connect(socket(AF_UNIX, SOCK_DGRAM, 0), (void *)&name, length)), length = named(&name, "no/such"), T(bind(socket(AF_UNIX, SOCK_DGRAM, 0), (void *)&name, length)), length = named(&name, "."), T(connect(socket(AF_UNIX, SOCK_DGRAM, 0), (void *)&name, length)), T(bind(socket(AF_UNIX, SOCK_DGRAM, 0), (void *)&name, length)), mkdir("closed", 0), length = named(&name, "closed/x");
    CHILD("nobody", (setuid(5), T(bind(socket(AF_UNIX, SOCK_DGRAM, 0), (void *)&name, length)), T(connect(socket(AF_UNIX, SOCK_DGRAM, 0), (void *)&name, length))));
}
PROGRAM(datagrams) {
    int pair[2], lone = socket(AF_UNIX, SOCK_DGRAM, 0);
    struct sockaddr_un name, from;
    socklen_t length = sizeof from;
    socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair);
    T(send(pair[0], "abc", 3, 0)), T(send(pair[0], "", 0, 0)), T(send(pair[0], "defgh", 5, 0)), T(recv(pair[1], bytes, 100, 0)), T(recv(pair[1], bytes, 100, 0)), T(recv(pair[1], bytes, 2, MSG_PEEK)), T(recv(pair[1], bytes, 2, MSG_TRUNC | MSG_PEEK)), T(recv(pair[1], bytes, 2, MSG_TRUNC)), T(recv(pair[1], bytes, 2, 0)), T(recvfrom(pair[1], bytes, 2, MSG_DONTWAIT, (void *)&from, &length)), T(send(pair[0], bytes, 300000, 0)), T(send(lone, "x", 1, 0)), T(recv(lone, bytes, 1, MSG_DONTWAIT)), length = named(&name, "target"), T(sendto(lone, "x", 1, 0, (void *)&name, length));
    int target = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    bind(target, (void *)&name, length), T(sendto(lone, "x", 1, 0, (void *)&name, length)), length = sizeof from, T(recvfrom(target, bytes, 9, 0, (void *)&from, &length)), T(length), length = named(&name, "target"), T(sendto(pair[0], "x", 1, 0, (void *)&name, length)), T(connect(lone, (void *)&name, length)), T(connect(target, (void *)&name, length)), T(connect(lone, (void *)&(struct sockaddr_un){AF_UNSPEC}, 2)), T(send(lone, "x", 1, 0)), T(listen(target, 1)), T(accept(target, NULL, NULL)), T(shutdown(target, SHUT_RD)), T(sendto(lone, "x", 1, 0, (void *)&name, length)), close(pair[1]), T(send(pair[0], "x", 1, MSG_NOSIGNAL)), T(recv(pair[0], bytes, 1, 0));
    struct pollfd wish = {pair[0], POLLIN | POLLOUT};
    T(poll(&wish, 1, 0)), T(wish.revents);
}
PROGRAM(sequences) {
    int pair[2];
    struct msghdr head = {0};
    struct iovec part = {bytes, 2};
    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), head.msg_iov = &part, head.msg_iovlen = 1;
    T(send(pair[0], "abcd", 4, 0)), T(send(pair[0], "", 0, 0)), T(recvmsg(pair[1], &head, 0)), T(head.msg_flags & MSG_TRUNC), T(recvmsg(pair[1], &head, 0)), T(recvmsg(pair[1], &head, 0)), T(send(pair[0], "x", 1, MSG_EOR)), T(recvmsg(pair[1], &head, 0)), T(shutdown(pair[0], SHUT_WR)), T(recv(pair[1], bytes, 5, 0)), T(send(pair[0], "x", 1, MSG_NOSIGNAL)), T(send(pair[1], "x", 1, 0)), close(pair[1]), T(recv(pair[0], bytes, 5, 0)), T(recv(pair[0], bytes, 5, 0));
}
PROGRAM(streams) {
    int pair[2], value = 0, listener = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un name;
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair);
    T(send(pair[0], "abcdef", 6, 0)), T(ioctl(pair[1], FIONREAD, &value)), T(value), T(recv(pair[1], bytes, 3, MSG_PEEK)), T(recv(pair[1], bytes, 2, 0)), T(recv(pair[1], bytes, 100, MSG_WAITALL)), T(recv(pair[1], bytes, 100, MSG_WAITALL)), T(recv(pair[1], bytes, 0, 0)), T(send(pair[0], "", 0, 0)), T(send(pair[0], "x", 1, 0x1000000)), T(recv(pair[1], bytes, 1, MSG_ERRQUEUE)), T(shutdown(pair[1], SHUT_RD)), T(recv(pair[1], bytes, 5, 0)), T(recv(pair[1], bytes, 5, 0)), T(send(pair[0], "x", 1, MSG_NOSIGNAL)), T(shutdown(pair[1], SHUT_WR)), T(recv(pair[0], bytes, 5, 0)), T(shutdown(pair[0], 3)), T(shutdown(pair[0], -1));
    struct pollfd wish = {pair[0], POLLIN | POLLOUT | POLLRDHUP};
    T(poll(&wish, 1, 0)), T(wish.revents);
    socklen_t length = named(&name, "listener");
    bind(listener, (void *)&name, length), listen(listener, 0), fcntl(listener, F_SETFL, O_NONBLOCK);
    int first = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), second = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), third = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    T(connect(first, (void *)&name, length)), T(connect(first, (void *)&name, length)), T(connect(second, (void *)&name, length)), T(connect(third, (void *)&name, length)), T(send(first, "x", 1, 0)), W(accept(listener, (void *)&name, &length)), T(length), T(accept4(listener, NULL, NULL, 1)), T(accept4(listener, (void *)8, &length, 0)), T(getsockopt(listener, SOL_SOCKET, SO_ACCEPTCONN, &value, (length = 4, &length))), T(value), T(send(listener, "x", 1, MSG_NOSIGNAL)), T(recv(listener, bytes, 1, 0)), close(listener), T(send(second, "x", 1, MSG_NOSIGNAL)), T(recv(second, bytes, 1, 0)), T(connect(third, (void *)&name, (length = named(&name, "listener"), length)));
}
PROGRAM(descriptors_passed) {
    int pair[2], status;
    char control[CMSG_SPACE(4 * 300)], small[CMSG_SPACE(4)];
    struct iovec part = {bytes, 5};
    struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control};
    struct cmsghdr *message = (void *)control;
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
#define SEND(kind, size, count) (message->cmsg_level = SOL_SOCKET, message->cmsg_type = kind, message->cmsg_len = size, head.msg_control = control, head.msg_controllen = CMSG_SPACE(4 * (count)), sendmsg(pair[0], &head, 0))
    for (int i = 0; i < 300; i++)
        ((int *)CMSG_DATA(message))[i] = 1;
    T(SEND(SCM_RIGHTS, CMSG_LEN(4), 1)), T(SEND(SCM_RIGHTS, CMSG_LEN(0), 1)), T(SEND(SCM_RIGHTS, 4, 1)), T(SEND(SCM_RIGHTS, CMSG_LEN(400), 1)), T(SEND(SCM_RIGHTS, CMSG_LEN(4 * 254), 254)), T(SEND(99, CMSG_LEN(4), 1)), message->cmsg_level = 77, T((head.msg_controllen = CMSG_SPACE(4), message->cmsg_len = CMSG_LEN(4), message->cmsg_level = 77, sendmsg(pair[0], &head, 0))), ((int *)CMSG_DATA(message))[0] = 99, T(SEND(SCM_RIGHTS, CMSG_LEN(4), 1)), ((int *)CMSG_DATA(message))[0] = 1;
    head.msg_control = small, head.msg_controllen = sizeof small, T(recvmsg(pair[1], &head, MSG_CMSG_CLOEXEC)), T(head.msg_controllen), T(head.msg_flags & MSG_CTRUNC), T(fcntl(*(int *)CMSG_DATA((struct cmsghdr *)small), F_GETFD)), ((int *)CMSG_DATA(message))[0] = ((int *)CMSG_DATA(message))[1] = 1, T(SEND(SCM_RIGHTS, CMSG_LEN(8), 2)), recv(pair[1], bytes, 100, MSG_DONTWAIT), T(SEND(SCM_RIGHTS, CMSG_LEN(8), 2)), head.msg_control = small, head.msg_controllen = 4, T(recvmsg(pair[1], &head, MSG_DONTWAIT) >= 0), T(head.msg_flags & MSG_CTRUNC), T(head.msg_controllen);
    T(sendmsg(pair[0], &(struct msghdr){.msg_iov = &part, .msg_iovlen = 1025}, 0)), T(sendmsg(pair[0], &(struct msghdr){.msg_iov = (void *)8, .msg_iovlen = 1}, 0)), T(sendmsg(pair[0], &(struct msghdr){.msg_iov = &part, .msg_iovlen = 1, .msg_control = (void *)8, .msg_controllen = 20}, 0)), T(sendmsg(pair[0], &(struct msghdr){.msg_iov = &(struct iovec){bytes, -1}, .msg_iovlen = 1}, 0)), T(recvmsg(pair[0], &(struct msghdr){.msg_iov = &part, .msg_iovlen = 1, .msg_control = (void *)8, .msg_controllen = 20}, MSG_DONTWAIT)), T(sendmmsg(pair[0], (void *)8, 1, 0)), T(sendmmsg(pair[0], NULL, 0, 0)), T(recvmmsg(pair[0], (void *)8, 1, MSG_DONTWAIT, NULL)), T(recvmmsg(pair[0], (void *)8, 1, 0, &(struct timespec){0, -1}));
    *(int *)CMSG_DATA(message) = pair[0], T(SEND(SCM_RIGHTS, CMSG_LEN(4), 1)), T(close(pair[0])), T(recv(pair[1], bytes, 1, MSG_DONTWAIT) >= 0);
}
PROGRAM(options_of_sockets) {
    int pair[2], value;
    socklen_t length;
    struct ucred who;
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
#define GET(option) (length = 4, value = -1, getsockopt(pair[0], SOL_SOCKET, option, &value, &length) ? -1 : value)
#define SET(option, what) (value = what, setsockopt(pair[0], SOL_SOCKET, option, &value, 4))
    T(GET(SO_TYPE)), T(GET(SO_DOMAIN)), T(GET(SO_PROTOCOL)), T(GET(SO_ERROR)), T(GET(SO_ACCEPTCONN)), T(GET(SO_PASSCRED)), T(SET(SO_PASSCRED, 5)), T(GET(SO_PASSCRED)), T(GET(SO_KEEPALIVE)), T(SET(SO_KEEPALIVE, 1)), T(GET(SO_REUSEADDR)), T(SET(SO_REUSEADDR, 7)), T(GET(SO_REUSEADDR)), T(GET(SO_BROADCAST)), T(GET(SO_RCVLOWAT)), T(GET(SO_SNDLOWAT)), T(SET(SO_SNDLOWAT, 1)), T(SET(SO_RCVLOWAT, -1)), T(SET(SO_SNDBUF, 1)), T(GET(SO_SNDBUF)), T(SET(SO_RCVBUF, -1)), T(SET(SO_RCVBUF, 10000)), T(GET(SO_RCVBUF)), T(SET(SO_ACCEPTCONN, 1)), T(SET(SO_TYPE, 1)), T(SET(SO_ERROR, 1)), T(SET(SO_DOMAIN, 1)), T(SET(9999, 1)), T(GET(9999));
    length = 2, T(getsockopt(pair[0], SOL_SOCKET, SO_TYPE, &value, &length)), T(length), length = sizeof who, T(getsockopt(pair[0], SOL_SOCKET, SO_PEERCRED, &who, &length)), T(who.uid), IS(who.pid == getpid()), T(setsockopt(pair[0], SOL_SOCKET, SO_PEERCRED, &who, sizeof who)), length = sizeof who, T(getsockopt(socket(AF_UNIX, SOCK_STREAM, 0), SOL_SOCKET, SO_PEERCRED, &who, &length)), T(who.pid), T(who.uid), T(getsockopt(pair[0], SOL_SOCKET, SO_TYPE, (void *)8, &length)), T(getsockopt(pair[0], SOL_SOCKET, SO_TYPE, &value, (void *)8)), T(setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, (void *)8, 4)), T(setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &value, 3)), T(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0, 1000000}, 16)), T(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){-1, 0}, 16)), T(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &value, 4)), T(getsockopt(0, SOL_SOCKET, SO_TYPE, &value, &length)), T(getsockopt(pair[0], 6, 1, &value, &length)), T(setsockopt(pair[0], 6, 1, &value, 4));
    T(socket(-1, SOCK_STREAM, 0)), T(socket(AF_UNIX, 0, 0)), T(socket(AF_UNIX, SOCK_STREAM, 1) >= 0), T(socket(AF_UNIX, SOCK_STREAM, 2)), T(socketpair(AF_UNIX, SOCK_STREAM, 9, pair)), T(socketpair(AF_UNIX, 77, 0, pair)), T(socketpair(999, SOCK_STREAM, 0, pair));
}

PROGRAM(system_v_refusals) {
    struct { long kind; char text[10000]; } message = {1};
    struct msqid_ds about;
    int queue = msgget(IPC_PRIVATE, 0600), semaphore = semget(IPC_PRIVATE, 3, 0600), memory = shmget(IPC_PRIVATE, 5000, 0600);
    T(msgget(12345, 0)), T(semget(12345, 1, 0)), T(shmget(12345, 1, 0)), T(msgsnd(queue, &message, -1, 0)), T(msgsnd(queue, &message, 9000, 0)), T(msgsnd(-1, &message, 1, 0)), T(msgsnd(queue, (void *)8, 1, 0)), message.kind = 0, T(msgsnd(queue, &message, 1, 0)), message.kind = -5, T(msgsnd(queue, &message, 1, 0)), message.kind = 1, T(msgsnd(queue, &message, 0, 0)), T(msgrcv(queue, &message, -1, 0, 0)), T(msgrcv(queue, &message, 5, 2, IPC_NOWAIT)), T(msgrcv(queue, &message, 5, 1, MSG_EXCEPT | IPC_NOWAIT)), T(msgrcv(queue, &message, 5, 0, MSG_COPY)), T(msgrcv(queue, &message, 5, 0, MSG_COPY | IPC_NOWAIT)), T(msgrcv(queue, &message, 5, -1, 0)), T(msgrcv(queue, &message, 5, 0, IPC_NOWAIT)), T(msgsnd(queue, &message, 8, 0)), T(msgrcv(queue, &message, 4, 0, 0)), T(msgrcv(queue, &message, 4, 0, MSG_NOERROR)), T(msgctl(queue, 99, NULL)), T(msgctl(queue, IPC_STAT, (void *)8)), T(msgctl(-1, IPC_STAT, &about)), T(msgctl(queue, IPC_STAT, &about)), about.msg_qbytes = 1 << 30, T(msgctl(queue, IPC_SET, &about)), T(msgctl(queue, IPC_RMID, NULL)), T(msgctl(queue, IPC_RMID, NULL));
    unsigned short values[3] = {1, 2, 40000};
    struct sembuf one = {0, 1, 0}, far = {5, 1, 0}, wait_zero = {0, 0, IPC_NOWAIT}, less = {0, -100, IPC_NOWAIT}, many[501];
    T(semget(IPC_PRIVATE, 0, 0600)), T(semget(IPC_PRIVATE, 40000, 0600)), T(semget(IPC_PRIVATE, -1, 0600)), T(semop(semaphore, &one, 0)), T(semop(semaphore, many, 501)), T(semop(semaphore, (void *)8, 1)), T(semop(semaphore, &far, 1)), T(semop(-1, &one, 1)), T(semop(semaphore, &one, 1)), T(semop(semaphore, &wait_zero, 1)), T(semop(semaphore, &less, 1)), T(semtimedop(semaphore, &(struct sembuf){0, -5, 0}, 1, &(struct timespec){0, 1000000})), T(semtimedop(semaphore, &one, 1, &(struct timespec){0, -1})), T(semctl(semaphore, 3, GETVAL)), T(semctl(semaphore, 0, SETVAL, 32768)), T(semctl(semaphore, 0, SETVAL, -1)), T(semctl(semaphore, 0, SETALL, values)), T(semctl(semaphore, 0, GETALL, (void *)8)), T(semctl(semaphore, 0, 99)), T(semctl(semaphore, 0, SETVAL, 32767)), T(semop(semaphore, &one, 1)), T(semctl(semaphore, 0, GETPID) == getpid()), T(semctl(semaphore, 0, GETNCNT)), T(semctl(semaphore, 0, GETZCNT)), T(semctl(semaphore, 9, IPC_RMID)), T(semctl(semaphore, 0, IPC_RMID));
    T(shmget(IPC_PRIVATE, 0, 0600)), T(shmget(IPC_PRIVATE, -1, 0600));
    char *at = shmat(memory, NULL, 0);
    IS(at != (void *)-1), T((long)shmat(memory, at + 1, 0)), T((long)shmat(memory, at, 0)), T((long)shmat(-1, NULL, 0)), T((long)shmat(memory, NULL, SHM_REMAP)), T(shmdt(at + 4096)), T(shmdt(at + 1)), T(shmdt((void *)8)), T(shmctl(memory, 99, NULL)), T(shmctl(memory, IPC_STAT, (void *)8)), T(shmctl(memory, SHM_LOCK, NULL)), T(shmctl(memory, SHM_UNLOCK, NULL)), T(shmdt(at)), T(shmdt(at)), T(shmctl(memory, IPC_RMID, NULL)), T(shmctl(memory, IPC_RMID, NULL)), T((long)shmat(memory, NULL, 0));
}
PROGRAM(system_v_rights) {
    int queue = msgget(4711, IPC_CREAT | IPC_EXCL | 0600), semaphore = semget(4711, 2, IPC_CREAT | IPC_EXCL | 0640), memory = shmget(4711, 4096, IPC_CREAT | IPC_EXCL | 0644);
    T(msgget(4711, IPC_CREAT | IPC_EXCL)), T(semget(4711, 3, 0)), T(semget(4711, 2, 0) == semaphore), T(shmget(4711, 8192, 0)), T(shmget(4711, 0, 0) == memory), T(semget(4711, 1, IPC_CREAT | IPC_EXCL));
    struct msqid_ds about;
    struct semid_ds other;
    struct shmid_ds third;
    CHILD("nobody", (setresgid(7, 7, 7), setresuid(7, 7, 7), T(msgget(4711, 0) == queue), T(msgget(4711, 0400)), T(msgsnd(queue, &(long){1}, 0, IPC_NOWAIT)), T(msgrcv(queue, bytes, 1, 0, IPC_NOWAIT)), T(msgctl(queue, IPC_STAT, &about)), T(msgctl(queue, IPC_RMID, NULL)), T(msgctl(queue, IPC_SET, &about)), T(semctl(semaphore, 0, GETVAL)), T(semctl(semaphore, 0, SETVAL, 1)), T(semop(semaphore, &(struct sembuf){0, 1, 0}, 1)), T(semctl(semaphore, 0, IPC_STAT, &other)), T(semctl(semaphore, 0, IPC_RMID)), T((long)shmat(memory, NULL, 0)), W((long)shmat(memory, NULL, SHM_RDONLY)), T(shmctl(memory, IPC_STAT, &third)), T(shmctl(memory, IPC_RMID, NULL)), T(shmctl(memory, SHM_LOCK, NULL)), T(shmget(4711, 1, 0666)), T(shmget(4711, 1, 0444) == memory)));
    T(msgctl(queue, IPC_RMID, NULL)), T(semctl(semaphore, 0, IPC_RMID)), T(shmctl(memory, IPC_RMID, NULL));
}
PROGRAM(posix_queue_refusals) {
    struct mq_attr wish = {.mq_maxmsg = 2, .mq_msgsize = 10}, got;
    unsigned priority;
    struct timespec past = {1, 0}, wrong = {0, -1};
    T(mq_open("no_slash", O_RDWR)), T(mq_open("/a/b", O_RDWR)), T(mq_open("/", O_RDWR | O_CREAT, 0600, NULL)), T(mq_open("/none_here", O_RDWR)), wish.mq_maxmsg = 0, T(mq_open("/q_answers", O_RDWR | O_CREAT, 0600, &wish)), wish.mq_maxmsg = -1, T(mq_open("/q_answers", O_RDWR | O_CREAT, 0600, &wish)), wish.mq_maxmsg = 2, wish.mq_msgsize = 0, T(mq_open("/q_answers", O_RDWR | O_CREAT, 0600, &wish)), wish.mq_msgsize = 10;
    int queue = mq_open("/q_answers", O_RDWR | O_CREAT | O_EXCL, 0600, &wish);
    T(mq_open("/q_answers", O_RDWR | O_CREAT | O_EXCL, 0600, &wish)), T(mq_getattr(queue, &got)), T(got.mq_maxmsg), T(got.mq_msgsize), T(got.mq_curmsgs), T(got.mq_flags), T(mq_send(queue, "x", 11, 0)), T(mq_send(queue, "x", 1, 32768)), T(mq_send(queue, "a", 1, 5)), T(mq_send(queue, "b", 1, 9)), T(mq_timedsend(queue, "c", 1, 0, &past)), T(mq_timedsend(queue, "c", 1, 0, &wrong)), T(mq_receive(queue, bytes, 9, NULL)), T(mq_receive(queue, bytes, 10, &priority)), T(priority), T(bytes[0]), T(mq_receive(queue, bytes, 10, &priority)), T(priority), T(mq_timedreceive(queue, bytes, 10, NULL, &past)), T(mq_timedreceive(queue, bytes, 10, NULL, &wrong)), got.mq_flags = O_NONBLOCK, T(mq_setattr(queue, &got, NULL)), T(mq_receive(queue, bytes, 10, NULL)), got.mq_flags = 7, T(mq_setattr(queue, &got, NULL)), T(mq_getattr(0, &got)), T(mq_send(0, "x", 1, 0)), T(mq_receive(99, bytes, 10, NULL));
    int reader = mq_open("/q_answers", O_RDONLY);
    T(mq_send(reader, "x", 1, 0)), T(mq_receive(mq_open("/q_answers", O_WRONLY), bytes, 10, NULL)), T(read(queue, bytes, 5) >= 0), T(write(queue, bytes, 5)), T(lseek(queue, 0, SEEK_SET)), T(mq_notify(queue, &(struct sigevent){.sigev_notify = 99})), T(mq_notify(queue, &(struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = 99})), T(mq_notify(queue, &(struct sigevent){.sigev_notify = SIGEV_NONE})), T(mq_notify(queue, &(struct sigevent){.sigev_notify = SIGEV_NONE})), T(mq_notify(queue, NULL)), T(mq_notify(queue, NULL)), T(mq_notify(0, NULL));
    CHILD("nobody", (setuid(5), T(mq_open("/q_answers", O_RDONLY)), T(mq_unlink("/q_answers"))));
    T(mq_unlink("/q_answers")), T(mq_unlink("/q_answers")), T(mq_unlink("no_slash")), T(mq_send(queue, "x", 1, 0));
}
