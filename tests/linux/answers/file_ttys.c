// Pseudo-terminals as files: opening, modes, lines, sizes, what is left when one side goes.
#include "files.h"
#include <sys/epoll.h>
#include <termios.h>

static char text[70000];
// A new pair, its slave open without becoming the controlling terminal.
static int pair(int *master, int *slave) {
    char name[64];
    int number, off = 0;
    *master = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    ioctl(*master, TIOCSPTLCK, &off), ioctl(*master, TIOCGPTN, &number), sprintf(name, "/dev/pts/%d", number);
    *slave = open(name, O_RDWR | O_NOCTTY);
    return *slave < 0 ? -1 : 0;
}
static int events(int fd) {
    struct pollfd p = {fd, POLLIN | POLLOUT | POLLPRI | POLLRDHUP};
    poll(&p, 1, 0);
    return p.revents;
}
// Types, and waits for what Linux does with it beside the writer.
static void say(int fd, const char *what, int count) { write(fd, what, count), pause_ms(20); }
static void raw(int fd) {
    struct termios t;
    tcgetattr(fd, &t), cfmakeraw(&t), tcsetattr(fd, TCSANOW, &t);
}

PROGRAM(tty_pairs) {
    int m = open("/dev/ptmx", O_RDWR | O_NOCTTY), number = -1, locked = -1, on = 1, off = 0, s;
    char name[64];
    struct stat st;
    W(m), T(ioctl(m, TIOCGPTN, &number)), IS(number >= 0), sprintf(name, "/dev/pts/%d", number), T(ioctl(m, TIOCGPTLCK, &locked)), T(locked), W(open(name, O_RDWR | O_NOCTTY)), T(ioctl(m, TIOCSPTLCK, &off)), s = open(name, O_RDWR | O_NOCTTY), W(s), T(isatty(m)), T(isatty(s)), T(stat(name, &st)), T(major(st.st_rdev)), IS(minor(st.st_rdev) == number), T(st.st_nlink), T(fstat(m, &st)), T(st.st_mode), T(st.st_rdev == makedev(5, 2)), T(lseek(s, 0, SEEK_SET)), T(pread(s, text, 1, 0)), T(ftruncate(s, 0)), T(fsync(s)), W(mmap(0, 1, PROT_READ, MAP_SHARED, s, 0) == MAP_FAILED ? -1 : 0), T(ioctl(s, TIOCGPTN, &number)), T(ioctl(s, TIOCSPTLCK, &on)), T(ioctl(m, TIOCSPTLCK, 8)), T(ioctl(m, TIOCGPTN, 8)), T(fcntl(s, F_GETFL)), T(flock(s, LOCK_EX | LOCK_NB));
    T(ioctl(m, TIOCSPTLCK, &on)), W(open(name, O_RDWR | O_NOCTTY)), T(ioctl(m, TIOCSPTLCK, &off)), T(chmod(name, 0600)), T(chown(name, 1000, 5));
    USER(W(open(name, O_RDWR | O_NOCTTY)), W(open("/dev/ptmx", O_RDWR | O_NOCTTY)));
    T(unlink(name)), T(rename(name, "x")), T(mkdir("/dev/pts/x", 0700)), T(access(name, F_OK)), close(m), T(access(name, F_OK)), W(open(name, O_RDWR | O_NOCTTY)), T(isatty(s)), T(read(s, text, 1)), T(write(s, "x", 1)), T(tcgetattr(s, (struct termios *)text));
}
PROGRAM(tty_lines) {
    int m, s;
    T(pair(&m, &s)), say(m, "one\ntwo\n", 8), T(read(s, text, 100)), T(read(s, text, 100)), T(read(m, text, 100)), say(m, "half", 4), T(events(s)), T(ioctl(s, FIONREAD, text)), T(*(int *)text), say(m, "\177\177ve\n", 5), T(events(s)), T(ioctl(s, FIONREAD, text)), T(*(int *)text), T(read(s, text, 100)), IS(memcmp(text, "have\n", 5) == 0), read(m, text, 100), say(m, "long line\n", 10), T(read(s, text, 4)), T(read(s, text, 100)), say(m, "\4", 1), T(read(s, text, 100)), say(m, "eof\4", 4), T(read(s, text, 100)), say(m, "kill\25new\n", 9), T(read(s, text, 100)), say(m, "a word\27x\n", 9), T(read(s, text, 100)), IS(memcmp(text, "a x\n", 4) == 0), say(m, "cr\r", 3), T(read(s, text, 100)), T(text[2]), say(m, "\26\3\n", 3), T(read(s, text, 100)), T(text[0]);
    tcflush(m, TCIOFLUSH), read(m, text, 0), fcntl(s, F_SETFL, O_NONBLOCK), T(read(s, text, 10)), fcntl(m, F_SETFL, O_NONBLOCK);
    while (read(m, text, sizeof text) > 0) {
    }
    T(read(m, text, 10)), T(write(s, "out\n", 4)), pause_ms(20), T(read(m, text, 100)), IS(memcmp(text, "out\r\n", 5) == 0), T(write(s, "", 0)), T(write(s, (void *)8, 5)), T(events(m)), T(events(s)), memset(text, 'x', 5000), text[4999] = '\n', T(write(m, text, 5000) > 4000), pause_ms(20), T(read(s, text, 70000)), T(writev(s, (struct iovec[2]){{"a", 1}, {"b", 1}}, 2));
}
PROGRAM(tty_modes) {
    int m, s;
    struct termios t, u;
    pair(&m, &s), T(tcgetattr(s, &t)), printf("%o %o %o %o\n", t.c_iflag, t.c_oflag, t.c_cflag, t.c_lflag), T(t.c_cc[VINTR]), T(t.c_cc[VEOF]), T(t.c_cc[VMIN]), T(t.c_cc[VTIME]), T(t.c_cc[VERASE]), T(cfgetospeed(&t)), T(tcgetattr(m, &u)), IS(memcmp(&t, &u, sizeof t) == 0), cfmakeraw(&t), T(tcsetattr(s, TCSADRAIN, &t)), tcgetattr(m, &u), IS(u.c_lflag == t.c_lflag), say(m, "\3\4x", 3), T(read(s, text, 100)), fcntl(m, F_SETFL, O_NONBLOCK), T(read(m, text, 100)), T(tcsetattr(s, 77, &t)), T(ioctl(s, TCSETS, 8)), t.c_lflag |= ECHO, tcsetattr(m, TCSANOW, &t), say(m, "q", 1), T(read(m, text, 9)), t.c_cc[VMIN] = 3, t.c_cc[VTIME] = 0, tcsetattr(s, TCSAFLUSH, &t), T(events(s)), say(m, "ab", 2), T(events(s)), say(m, "cd", 2), T(events(s)), T(read(s, text, 9)), t.c_cc[VMIN] = 0, tcsetattr(s, TCSANOW, &t), T(read(s, text, 9)), t.c_cc[VTIME] = 1, tcsetattr(s, TCSANOW, &t), T(read(s, text, 9)), say(m, "z", 1), T(read(s, text, 9));
    T(tcflush(s, TCIFLUSH)), T(tcflush(s, 9)), T(tcflow(s, TCOOFF)), T(tcflow(s, TCOON)), T(tcflow(s, 9)), T(tcdrain(s)), T(tcsendbreak(s, 0)), T(ioctl(s, TIOCEXCL)), T(ioctl(s, TIOCNXCL)), T(ioctl(s, TIOCGETD, text)), T(*(int *)text), T(ioctl(s, TIOCMGET, text)), T(ioctl(s, TIOCGSOFTCAR, text) == 0), T(ioctl(s, 0x12345, text)), cfsetospeed(&t, B0), T(tcsetattr(s, TCSANOW, &t)), T(ioctl(s, TIOCINQ, text)), T(ioctl(s, TIOCOUTQ, text)), T(*(int *)text);
}
PROGRAM(tty_sizes) {
    int m, s, p[2];
    struct winsize w = {1, 2, 3, 4};
    pair(&m, &s), T(ioctl(s, TIOCGWINSZ, &w)), T(w.ws_row), T(w.ws_col), w = (struct winsize){24, 80, 5, 6}, T(ioctl(m, TIOCSWINSZ, &w)), memset(&w, 0, sizeof w), T(ioctl(s, TIOCGWINSZ, &w)), T(w.ws_row), T(w.ws_col), T(w.ws_xpixel), T(w.ws_ypixel), w.ws_row = 50, T(ioctl(s, TIOCSWINSZ, &w)), w.ws_row = 0, T(ioctl(m, TIOCGWINSZ, &w)), T(w.ws_row), T(ioctl(s, TIOCGWINSZ, 8)), T(ioctl(s, TIOCSWINSZ, 8)), pipe(p), T(ioctl(p[0], TIOCGWINSZ, &w)), T(ioctl(open("/dev/null", O_RDWR), TIOCSWINSZ, &w)), T(tcgetpgrp(s)), T(tcgetsid(s)), T(tcsetpgrp(s, getpgrp())), T(ioctl(s, TIOCSCTTY, 0) == -1), T(ioctl(s, TIOCNOTTY)), T(ioctl(m, TIOCSCTTY, 0) == -1);
    CHILD("a session of its own", {
        setsid();
        W(open("/dev/tty", O_RDWR)), T(ioctl(s, TIOCSCTTY, 0)), W(open("/dev/tty", O_RDWR)), T(tcgetsid(s) == getpid()), T(tcgetpgrp(s) == getpgrp()), T(tcgetsid(m) == getpid()), T(tcsetpgrp(s, 1) == -1), T(tcsetpgrp(s, -1)), T(ioctl(s, TIOCSCTTY, 0));
        int m2, s2;
        pair(&m2, &s2), T(ioctl(s2, TIOCSCTTY, 0)), T(tcgetpgrp(s2)), signal(SIGHUP, SIG_IGN), T(ioctl(s, TIOCNOTTY)), W(open("/dev/tty", O_RDWR)), T(tcgetpgrp(s)), T(ioctl(s2, TIOCSCTTY, 0)), T(tcgetsid(s2) == getpid());
    });
}
PROGRAM(tty_ends) {
    int m, s, again;
    char name[64];
    pair(&m, &s), raw(s), T(write(s, "left", 4)), pause_ms(20), close(s), T(events(m) & (POLLIN | POLLHUP)), T(read(m, text, 10)), T(read(m, text, 10)), T(write(m, "x", 1)), T(events(m) & POLLHUP), ptsname_r(m, name, sizeof name), s = open(name, O_RDWR | O_NOCTTY), W(s), T(events(m) & POLLHUP), fcntl(m, F_SETFL, O_NONBLOCK), T(read(m, text, 10)), T(write(s, "again", 5)), pause_ms(20), T(read(m, text, 10)), again = dup(s), close(s), T(events(m) & POLLHUP), close(again), T(events(m) & POLLHUP), T(read(m, text, 10));
    pair(&m, &s), raw(s), say(m, "kept", 4), close(m), T(events(s) & POLLHUP), T(read(s, text, 10)), T(read(s, text, 10)), T(write(s, "x", 1)), T(ioctl(s, TIOCGWINSZ, text)), T(tcgetattr(s, (struct termios *)text)), T(ioctl(s, FIONREAD, text)), T(fcntl(s, F_GETFL) & O_ACCMODE);
    CHILD("its session is told", {
        int a, b;
        setsid(), pair(&a, &b), ioctl(b, TIOCSCTTY, 0), close(a), pause();
    });
    CHILD("an interrupt from the keys", {
        int a, b;
        setsid(), pair(&a, &b), ioctl(b, TIOCSCTTY, 0), say(a, "\3", 1), pause_ms(2000);
    });
    CHILD("a quit from the keys", {
        int a, b;
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none), setsid(), pair(&a, &b), ioctl(b, TIOCSCTTY, 0), say(a, "\34", 1), pause_ms(2000);
    });
}
