/* Pseudo-terminals in one process: names, the line discipline in its modes, signals and job control at the border of the
   one session, window size, packets, hang-ups and what poll says. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define CHECK(claim) ((claim) ? (void)0 : (void)printf("line %d: not so: %s (errno %d)\n", __LINE__, #claim, errno))
#define FAILS(call, number) (errno = 0, CHECK((long)(call) == -1), CHECK(errno == number))

static int master, slave;
static struct termios fresh;

static int events(int fd) {
    struct pollfd entry = {fd, POLLIN | POLLOUT | POLLRDHUP | POLLPRI, 0};
    CHECK(poll(&entry, 1, 0) >= 0);
    return entry.revents;
}

/* Prints what one read of the slave gets, or all that the master has, so that one sees it. Linux moves bytes between the two
   in a thread of its own; a read or a poll that finds nothing waits for that thread, so both sides are asked until they say
   that there is nothing. */
static void show(const char *what, int fd) {
    char bytes[600];
    int flags = fcntl(fd, F_GETFL), error = 0;
    ssize_t count = 0, part;
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    while ((part = read(fd, bytes + count, sizeof bytes - count)) > 0) {
        count += part;
        if (fd == slave) break;
    }
    if (part < 0 && count == 0) error = errno;
    fcntl(fd, F_SETFL, flags);
    if (error) {
        printf("%s error %d\n", what, error);
        return;
    }
    printf("%s \"", what);
    for (ssize_t i = 0; i < count; i++) {
        if (bytes[i] >= ' ' && bytes[i] < 127 && bytes[i] != '\\') putchar(bytes[i]);
        else printf("\\%02x", (unsigned char)bytes[i]);
    }
    puts("\"");
}

static void type(const char *text) {
    CHECK(write(master, text, strlen(text)) == (ssize_t)strlen(text));
    events(slave);
}

static void make(void) {
    master = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(master >= 0 && isatty(master));
    char *name = ptsname(master);
    CHECK(name && strncmp(name, "/dev/pts/", 9) == 0);
    FAILS(open(name, O_RDWR | O_NOCTTY), EIO);
    CHECK(grantpt(master) == 0 && unlockpt(master) == 0);
    slave = open(name, O_RDWR | O_NOCTTY);
    CHECK(slave >= 0 && isatty(slave) && strcmp(ttyname(slave), name) == 0);
    struct stat status, by_name;
    CHECK(fstat(slave, &status) == 0 && S_ISCHR(status.st_mode) && major(status.st_rdev) == 136);
    CHECK(stat(name, &by_name) == 0 && by_name.st_ino == status.st_ino && by_name.st_dev == status.st_dev);
    CHECK((int)minor(status.st_rdev) == atoi(name + 9) && status.st_uid == getuid());
    CHECK(fstat(master, &status) == 0 && status.st_rdev == makedev(5, 2));
    struct statfs system;
    CHECK(statfs(name, &system) == 0 && system.f_type == 0x1cd1);
    unsigned number;
    int lock;
    CHECK(ioctl(master, TIOCGPTN, &number) == 0 && number == minor(by_name.st_rdev));
    CHECK(ioctl(master, TIOCGPTLCK, &lock) == 0 && lock == 0);
    FAILS(ioctl(slave, TIOCGPTN, &number), ENOTTY);
    int peer = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY);
    CHECK(peer >= 0 && strcmp(ttyname(peer), name) == 0);
    close(peer);
    CHECK(lseek(slave, 0, SEEK_SET) == -1 && errno == ESPIPE);
    CHECK(tcgetattr(slave, &fresh) == 0);
    // struct termio, which musl does not have.
    struct {
        unsigned short c_iflag, c_oflag, c_cflag, c_lflag;
        unsigned char c_line, c_cc[8];
    } old;
    struct termios after;
    CHECK(ioctl(slave, TCGETA, &old) == 0 && old.c_lflag == (fresh.c_lflag & 0xffff) && old.c_cc[VINTR] == 3);
    old.c_lflag &= ~ECHO;
    CHECK(ioctl(slave, TCSETAF, &old) == 0 && tcgetattr(slave, &after) == 0);
    CHECK(after.c_lflag == (fresh.c_lflag & ~ECHO) && after.c_cc[VEOL2] == fresh.c_cc[VEOL2]);
    old.c_lflag |= ECHO;
    CHECK(ioctl(slave, TCSETA, &old) == 0 && ioctl(slave, TIOCGLCKTRMIOS, &after) == 0 && after.c_lflag == 0);
    printf("modes %x %x %x %x\n", fresh.c_iflag, fresh.c_oflag, fresh.c_cflag, fresh.c_lflag);
    for (int i = 0; i < 17; i++) printf("%d ", fresh.c_cc[i]);
    printf("\npoll %x %x\n", events(master), events(slave));
}

static void change(tcflag_t input, tcflag_t output, tcflag_t local) {
    struct termios modes = fresh;
    modes.c_iflag = input;
    modes.c_oflag = output;
    modes.c_lflag = local;
    CHECK(tcsetattr(slave, TCSANOW, &modes) == 0);
}

static void lines(void) {
    int count;
    type("hello\r");
    CHECK(ioctl(slave, FIONREAD, &count) == 0);
    printf("%d to read, poll %x %x\n", count, events(master), events(slave));
    show("line", slave);
    show("echo", master);
    show("nothing", slave);
    type("ab\177c\177\177\177xyz\n");
    show("erased", slave);
    show("echo", master);
    type("a\tb\t\177\177\177c\025kill\n");
    show("killed", slave);
    show("echo", master);
    type("one two  \027\027three\n");
    show("words", slave);
    show("echo", master);
    type("re\022print\n");
    show("reprinted", slave);
    show("echo", master);
    type("q\026\003\026\177\001\n");
    show("quoted", slave);
    show("echo", master);
    type("part\004");
    show("part", slave);
    type("\004");
    show("end", slave);
    show("echo", master);
    type("first\nsecond\n");
    char bytes[20];
    CHECK(read(slave, bytes, 3) == 3 && memcmp(bytes, "fir", 3) == 0);
    show("rest", slave);
    show("second", slave);
    CHECK(tcflush(master, TCIFLUSH) == 0);
    show("flushed", master);
}

static void modes(void) {
    struct { const char *name; tcflag_t input, output, local; const char *text; } tries[] = {
        {"no echo", fresh.c_iflag, fresh.c_oflag, fresh.c_lflag & ~ECHO, "ab\177c\025d\n"},
        {"no erase", fresh.c_iflag, fresh.c_oflag, fresh.c_lflag & ~(ECHOE | ECHOKE), "ab\177c\025d\n"},
        {"no kill", fresh.c_iflag, fresh.c_oflag, fresh.c_lflag & ~(ECHOK | ECHOKE), "ab\025d\n"},
        {"printed", fresh.c_iflag, fresh.c_oflag, fresh.c_lflag | ECHOPRT, "abc\177\177d\n"},
        {"no control", fresh.c_iflag, fresh.c_oflag, fresh.c_lflag & ~ECHOCTL, "a\001\177b\n"},
        {"newline", fresh.c_iflag, fresh.c_oflag, (fresh.c_lflag & ~ECHO) | ECHONL, "ab\n"},
        {"returns", INLCR, 0, ICANON | ECHO, "a\rb\004"},
        {"ignored", IGNCR, 0, ICANON | ECHO, "a\rb\n"},
        {"strip", ISTRIP | IUCLC, OPOST | OLCUC | ONLCR, ICANON | ECHO | IEXTEN, "AbC\351\n"},
        {"unicode", fresh.c_iflag | IUTF8, fresh.c_oflag, fresh.c_lflag, "a\303\251\342\202\254\177\177b\n"},
        {"no extras", fresh.c_iflag, fresh.c_oflag, fresh.c_lflag & ~IEXTEN, "a\027\026b\n"},
        {"tabs", fresh.c_iflag, OPOST | ONLCR | XTABS, fresh.c_lflag, "a\tb\t\177c\n"},
    };
    for (unsigned i = 0; i < sizeof tries / sizeof *tries; i++) {
        change(tries[i].input, tries[i].output, tries[i].local);
        type(tries[i].text);
        show(tries[i].name, slave);
        show("  echo", master);
    }
    change(fresh.c_iflag, fresh.c_oflag, fresh.c_lflag);
    struct { const char *name; tcflag_t output; } ways[] = {
        {"raw", 0}, {"both", OPOST | ONLCR}, {"return", OPOST | OCRNL}, {"start", OPOST | ONOCR}, {"upper", OPOST | OLCUC},
        {"expand", OPOST | XTABS}, {"newline returns", OPOST | ONLRET | ONOCR},
    };
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        change(fresh.c_iflag, ways[i].output, fresh.c_lflag);
        CHECK(write(slave, "\rab\tc\b\nd\r\r", 10) == 10);
        show(ways[i].name, master);
    }
}

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000ll + now.tv_nsec / 1000000;
}

static void bytes(void) {
    struct termios raw = fresh;
    char into[20];
    cfmakeraw(&raw);
    CHECK(tcsetattr(slave, TCSANOW, &raw) == 0);
    type("a\r\n\003\004");
    show("raw", slave);
    show("echo", master);
    raw.c_cc[VMIN] = 0;
    CHECK(tcsetattr(slave, TCSANOW, &raw) == 0);
    CHECK(read(slave, into, 9) == 0);
    raw.c_cc[VTIME] = 1;
    CHECK(tcsetattr(slave, TCSANOW, &raw) == 0);
    int64_t start = now_ms();
    CHECK(read(slave, into, 9) == 0 && now_ms() - start >= 95);
    type("xy");
    CHECK(read(slave, into, 9) == 2);
    raw.c_cc[VMIN] = 5;
    CHECK(tcsetattr(slave, TCSANOW, &raw) == 0);
    type("abc");
    start = now_ms();
    CHECK(read(slave, into, 9) == 3 && now_ms() - start >= 90);
    raw.c_cc[VTIME] = 0;
    raw.c_cc[VMIN] = 2;
    CHECK(tcsetattr(slave, TCSANOW, &raw) == 0);
    type("a");
    printf("one byte: %x", events(slave));
    type("b");
    printf(" two: %x\n", events(slave));
    CHECK(read(slave, into, 9) == 2);
    CHECK(write(slave, "out\n\r\t", 6) == 6);
    show("unchanged", master);
    type("typed");
    CHECK(tcsetattr(slave, TCSAFLUSH, &fresh) == 0);
    show("forgotten", slave);
    CHECK(tcsetattr(slave, TCSANOW, &raw) == 0);
    type("raw");
    CHECK(tcsetattr(slave, TCSANOW, &fresh) == 0);
    type("line\n");
    show("was raw", slave);
    show("then", slave);
    type("line");
    CHECK(tcsetattr(slave, TCSANOW, &raw) == 0);
    show("was a line", slave);
    CHECK(tcsetattr(slave, TCSANOW, &fresh) == 0);
    /* Linux may still be on its way with echoes when it flushes: take them first. */
    show("echoed", master);
    tcflush(slave, TCIOFLUSH);
}

static void flow(void) {
    int pending;
    type("\023");
    fcntl(slave, F_SETFL, O_RDWR | O_NONBLOCK);
    FAILS(write(slave, "x", 1), EAGAIN);
    printf("stopped: %x\n", events(slave));
    type("\021");
    CHECK(write(slave, "x", 1) == 1);
    show("goes on", master);
    CHECK(tcflow(slave, TCOOFF) == 0);
    FAILS(write(slave, "x", 1), EAGAIN);
    CHECK(tcflow(slave, TCOON) == 0 && write(slave, "y", 1) == 1);
    show("goes on", master);
    fcntl(slave, F_SETFL, O_RDWR);
    FAILS(ioctl(slave, TCFLSH, 7), EINVAL);
    FAILS(ioctl(slave, TCXONC, 7), EINVAL);
    FAILS(ioctl(slave, 0x5499, 0), ENOTTY);
    CHECK(ioctl(slave, TIOCOUTQ, &pending) == 0 && pending == 0);
}

static volatile int counts[65];
static void count(int number) { counts[number]++; }

static void control(void) {
    struct winsize size = {24, 80, 3, 4}, other = {0};
    int group, session;
    static const int numbers[] = {SIGINT, SIGQUIT, SIGTSTP, SIGWINCH, SIGHUP, SIGCONT};
    for (int i = 0; i < 6; i++) signal(numbers[i], count);
    setsid();
    FAILS(open("/dev/tty", O_RDWR), ENXIO);
    FAILS(tcgetpgrp(slave), ENOTTY);
    FAILS(tcsetpgrp(slave, getpgrp()), ENOTTY);
    FAILS(tcsetpgrp(slave, -1), EINVAL);
    FAILS(tcgetsid(slave), ENOTTY);
    CHECK(getsid(0) == getpid());
    FAILS(ioctl(master, TIOCGSID, &session), ENOTTY);
    close(slave);
    slave = open(ptsname(master), O_RDWR);
    CHECK(tcgetsid(slave) == getpid() && tcgetpgrp(slave) == getpgrp());
    CHECK(ioctl(slave, TIOCSCTTY, 0) == 0);
    CHECK(ioctl(master, TIOCGPGRP, &group) == 0 && group == getpgrp());
    int tty = open("/dev/tty", O_RDWR);
    CHECK(tty >= 0 && isatty(tty) && tcgetpgrp(tty) == getpgrp());
    struct stat status;
    CHECK(fstat(tty, &status) == 0 && status.st_rdev == makedev(5, 0) && strcmp(ttyname(tty), "/dev/tty") == 0);
    CHECK(write(tty, "to tty", 6) == 6);
    show("tty", master);
    close(tty);
    FAILS(tcsetpgrp(slave, 0x3fffffff), ESRCH);
    FAILS(tcsetpgrp(slave, -1), EINVAL);
    CHECK(tcsetpgrp(slave, getpgrp()) == 0);
    type("abc\003");
    type("\034");
    type("d\032");
    printf("signals %d %d %d\n", counts[SIGINT], counts[SIGQUIT], counts[SIGTSTP]);
    show("flushed", slave);
    show("echo", master);
    CHECK(ioctl(master, TIOCSWINSZ, &size) == 0 && ioctl(slave, TIOCGWINSZ, &other) == 0);
    CHECK(memcmp(&size, &other, sizeof size) == 0 && ioctl(slave, TIOCSWINSZ, &size) == 0);
    printf("window %d\n", counts[SIGWINCH]);
    change(fresh.c_iflag, fresh.c_oflag, fresh.c_lflag | NOFLSH);
    type("kept\003\n");
    show("not flushed", slave);
    show("echo", master);
    change(fresh.c_iflag, fresh.c_oflag, fresh.c_lflag & ~ISIG);
    type("\003\n");
    show("no signal", slave);
    show("echo", master);
    change(fresh.c_iflag, fresh.c_oflag, fresh.c_lflag);
    printf("signals %d\n", counts[SIGINT]);
}

static void packets(void) {
    int on = 1, got;
    CHECK(ioctl(master, TIOCPKT, &on) == 0 && ioctl(master, TIOCGPKT, &got) == 0 && got == 1);
    CHECK(write(slave, "data", 4) == 4);
    show("packet", master);
    CHECK(tcflush(slave, TCIFLUSH) == 0);
    printf("status %x\n", events(master) & (POLLIN | POLLPRI));
    show("packet", master);
    on = 0;
    CHECK(ioctl(master, TIOCPKT, &on) == 0);
}

static void ends(void) {
    char name[40], into[8];
    strcpy(name, ptsname(master));
    CHECK(write(slave, "last", 4) == 4);
    int second, third;
    CHECK(openpty(&second, &third, NULL, &fresh, &(struct winsize){10, 20}) == 0);
    close(third);
    printf("lost: %x\n", events(second));
    FAILS(read(second, into, 8), EIO);
    char *peer = ptsname(second);
    third = open(peer, O_RDWR | O_NOCTTY);
    printf("back: %x\n", events(second));
    close(second);
    printf("gone: %x\n", events(third));
    FAILS(open(peer, O_RDWR | O_NOCTTY), ENOENT);
    FAILS(write(third, "x", 1), EIO);
    CHECK(read(third, into, 8) == 0);
    FAILS(tcgetattr(third, &(struct termios){0}), EIO);
    close(third);
    counts[SIGHUP] = counts[SIGCONT] = 0;
    close(master);
    printf("hung up: %d %d\n", counts[SIGHUP] > 0, counts[SIGCONT] > 0);
    CHECK(read(slave, into, 8) == 0);
    FAILS(write(slave, "x", 1), EIO);
    FAILS(open("/dev/tty", O_RDWR), ENXIO);
    FAILS(open(name, O_RDWR), ENOENT);
    close(slave);
}

int main(void) {
    setvbuf(stdout, 0, _IOLBF, 0);
    make();
    lines();
    modes();
    bytes();
    flow();
    control();
    packets();
    ends();
    puts("done");
    return 0;
}
