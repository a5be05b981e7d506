// Terminals by pairs: when a read ends, what ends a line, the right to read and write, what a hang-up does.
#include "answers.h"
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <sys/file.h>

static int master, slave;
static struct termios modes;
static char bytes[8192];
static void make(void) {
    master = posix_openpt(O_RDWR | O_NOCTTY);
    grantpt(master), unlockpt(master);
    slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    tcgetattr(slave, &modes);
}
static void set(int local, int least, int tenths) {
    modes.c_lflag = local, modes.c_cc[VMIN] = least, modes.c_cc[VTIME] = tenths;
    tcsetattr(slave, TCSANOW, &modes);
}
static void show(const char *what, int fd, int most) {
    errno = 0;
    ssize_t count = read(fd, bytes, most);
    printf("%s: %zd %s ", what, count, count < 0 ? strerrorname_np(errno) : "");
    for (ssize_t i = 0; i < count; i++)
        printf(bytes[i] < 32 || bytes[i] > 126 ? "\\%03o" : "%c", (unsigned char)bytes[i]);
    printf("\n");
}
static void say(const char *text) { write(master, text, strlen(text)), pause_ms(5); }
static long elapsed_ms(void) {
    static struct timespec before;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long answer = (now.tv_sec - before.tv_sec) * 1000 + (now.tv_nsec - before.tv_nsec) / 1000000;
    before = now;
    return answer;
}
static pid_t later(long ms, const char *text) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        pause_ms(ms), write(master, text, strlen(text)), _exit(0);
    return child;
}

PROGRAM(tty_polling_reads) {
    make(), set(0, 0, 0);
    show("nothing there", slave, 10), say("abc"), show("some", slave, 2), show("rest", slave, 10), show("none", slave, 10);
    struct pollfd wait = {slave, POLLIN};
    T(poll(&wait, 1, 0)), say("x"), T(poll(&wait, 1, 0)), T(ioctl(slave, FIONREAD, &wait.fd)), T(wait.fd);
}
PROGRAM(tty_counted_reads) {
    make(), set(0, 3, 0);
    elapsed_ms();
    pid_t child = later(80, "bc");
    say("a"), show("three", slave, 10), IS(elapsed_ms() >= 70), waitpid(child, NULL, 0);
    say("abcdef"), show("less than asked for at once", slave, 2), show("rest", slave, 10);
    struct pollfd wait = {slave, POLLIN};
    say("ab"), T(poll(&wait, 1, 0)), say("c"), T(poll(&wait, 1, 0)), show("now", slave, 10);
    say("a"), fcntl(slave, F_SETFL, O_NONBLOCK), show("does not wait", slave, 10), show("nothing", slave, 10);
}
PROGRAM(tty_timed_reads) {
    make(), set(0, 0, 2);
    elapsed_ms(), show("time over", slave, 10);
    long passed = elapsed_ms();
    IS(passed >= 190 && passed < 500);
    pid_t child = later(50, "x");
    show("came in time", slave, 10), IS(elapsed_ms() < 190), waitpid(child, NULL, 0);
    fcntl(slave, F_SETFL, O_NONBLOCK), show("does not wait", slave, 10);
}
PROGRAM(tty_gap_reads) {
    make(), set(0, 4, 2);
    pid_t child = later(300, "ab");
    elapsed_ms(), show("gap ends it", slave, 10);
    long passed = elapsed_ms();
    IS(passed >= 480 && passed < 900), waitpid(child, NULL, 0);
    say("abcd"), show("enough", slave, 10), IS(elapsed_ms() < 190);
    struct pollfd wait = {slave, POLLIN};
    say("a"), T(poll(&wait, 1, 0)), show("one", slave, 10);
}
PROGRAM(tty_lines) {
    make();
    modes.c_lflag &= ~ECHO, modes.c_cc[VEOL] = '!', modes.c_cc[VEOL2] = '?', tcsetattr(slave, TCSANOW, &modes);
    say("ab\ncd\n"), show("line", slave, 100), show("next", slave, 100), say("ab\n"), show("part", slave, 1), show("rest", slave, 100);
    say("ab!cd?\n"), show("eol", slave, 100), show("eol2", slave, 100), show("empty line", slave, 100);
    say("xy\004"), show("pushed", slave, 100), say("\004"), show("end", slave, 100), say("ab\004\n"), show("pushed", slave, 100), show("line", slave, 100);
    say("abc\177\177x\n"), show("erased", slave, 100), say("one two\027three\n"), show("word erased", slave, 100), say("abc\025d\n"), show("killed", slave, 100);
    say("a\026\003b\026\004\n"), show("literal", slave, 100), say("a\rb\n"), show("return", slave, 100), show("return", slave, 100);
    struct pollfd wait = {slave, POLLIN};
    say("part"), T(poll(&wait, 1, 0)), T(ioctl(slave, FIONREAD, &wait.fd)), T(wait.fd), wait.fd = slave, fcntl(slave, F_SETFL, O_NONBLOCK), show("no line", slave, 100);
    set(0, 1, 0), show("what was begun is there", slave, 100);
    say("raw"), set(ICANON, 1, 0), show("no line yet", slave, 100), say("\n"), show("line", slave, 100), show("more", slave, 100);
}
PROGRAM(tty_echoes) {
    make();
    fcntl(master, F_SETFL, O_NONBLOCK);
    say("ab\177\n"), show("erase", master, 100), say("a\tb\025"), show("kill", master, 100), say("\001\n"), show("control", master, 100), say("ab\022"), show("again", master, 100), say("\n"), show("newline", master, 100);
    modes.c_lflag &= ~ECHOE, tcsetattr(slave, TCSANOW, &modes), say("ab\177\n"), show("no ECHOE", master, 100);
    modes.c_lflag |= ECHOPRT | ECHOE, tcsetattr(slave, TCSANOW, &modes), say("abc\177\177d\n"), show("ECHOPRT", master, 100);
    modes.c_lflag &= ~(ECHO | ECHOPRT), tcsetattr(slave, TCSANOW, &modes), say("x\n"), show("ECHONL off", master, 100), modes.c_lflag |= ECHONL, tcsetattr(slave, TCSANOW, &modes), say("x\n"), show("ECHONL", master, 100);
    tcflush(slave, TCIFLUSH);
    write(slave, "a\nb\tc\rd", 7), show("ONLCR", master, 100);
    modes.c_oflag |= OCRNL | XTABS | OLCUC, tcsetattr(slave, TCSANOW, &modes), write(slave, "a\tb\rc\n", 6), show("OCRNL XTABS OLCUC", master, 100);
    modes.c_oflag = OPOST | ONLRET | ONOCR, tcsetattr(slave, TCSANOW, &modes), write(slave, "a\r\rb\n\rc", 7), show("ONOCR", master, 100);
    modes.c_oflag = 0, tcsetattr(slave, TCSANOW, &modes), write(slave, "a\n", 2), show("no OPOST", master, 100);
}
PROGRAM(tty_input_modes) {
    make(), fcntl(slave, F_SETFL, O_NONBLOCK), modes.c_lflag = 0;
    modes.c_iflag = ICRNL, tcsetattr(slave, TCSANOW, &modes), say("\r\n"), show("ICRNL", slave, 9);
    modes.c_iflag = INLCR, tcsetattr(slave, TCSANOW, &modes), say("\r\n"), show("INLCR", slave, 9);
    modes.c_iflag = IGNCR, tcsetattr(slave, TCSANOW, &modes), say("\ra"), show("IGNCR", slave, 9);
    modes.c_iflag = ISTRIP, tcsetattr(slave, TCSANOW, &modes), say("\341"), show("ISTRIP", slave, 9);
    modes.c_iflag = IUCLC, modes.c_lflag = IEXTEN, tcsetattr(slave, TCSANOW, &modes), say("AbC"), show("IUCLC", slave, 9), modes.c_lflag = 0;
    modes.c_iflag = PARMRK, tcsetattr(slave, TCSANOW, &modes), say("\377"), show("PARMRK", slave, 9);
    modes.c_iflag = IXON, modes.c_oflag = 0, tcsetattr(slave, TCSANOW, &modes), fcntl(master, F_SETFL, O_NONBLOCK);
    say("\023"), T(write(slave, "x", 1)), show("stopped", master, 9), say("\021"), T(write(slave, "y", 1)), show("started", master, 9), show("not seen", slave, 9);
    T(tcflow(slave, TCOOFF)), T(write(slave, "z", 1)), show("off", master, 9), T(tcflow(slave, TCOON)), T(write(slave, "z", 1)), show("on", master, 9);
    T(tcflow(slave, TCIOFF)), show("STOP sent", master, 9), T(tcflow(slave, TCION)), show("START sent", master, 9), T(tcflow(slave, 9));
}
PROGRAM(tty_flushes) {
    make(), set(0, 1, 0), fcntl(slave, F_SETFL, O_NONBLOCK), fcntl(master, F_SETFL, O_NONBLOCK);
    say("abc"), T(tcflush(slave, TCIFLUSH)), show("input", slave, 9), say("abc"), T(tcflush(slave, TCOFLUSH)), show("kept", slave, 9);
    write(slave, "abc", 3), T(tcflush(master, TCIFLUSH)), show("at the master", master, 9);
    T(tcflush(slave, 9)), T(ioctl(slave, TCFLSH, 3)), T(tcflush(open("/dev/null", O_RDWR), TCIFLUSH)), T(tcdrain(slave)), T(tcdrain(99)), T(tcsendbreak(slave, 0));
    say("abc"), tcgetattr(slave, &modes), T(tcsetattr(slave, TCSAFLUSH, &modes)), show("TCSAFLUSH", slave, 9), T(tcsetattr(slave, 9, &modes));
    set(ICANON, 1, 0), say("half"), T(tcflush(slave, TCIFLUSH)), say("x\n"), show("line", slave, 9);
    int count;
    write(slave, "abc", 3), T(ioctl(slave, TIOCOUTQ, &count));
}
PROGRAM(tty_insertion) {
    make(), set(0, 1, 0), fcntl(slave, F_SETFL, O_NONBLOCK);
    CHILD("own terminal", setsid(); T(ioctl(slave, TIOCSTI, "a")); T(ioctl(slave, TIOCSCTTY, 0)); T(ioctl(slave, TIOCSTI, (void *)8)););
    CHILD("another user", setsid(); setresuid(1000, 1000, 1000); T(ioctl(slave, TIOCSTI, "b")););
}
PROGRAM(tty_owning) {
    make();
    int plain = open("/dev/null", O_RDWR), number;
    T(ioctl(plain, TIOCSCTTY, 0)), T(ioctl(plain, TIOCGPGRP, &number)), T(ioctl(plain, TIOCGSID, &number)), T(tcgetpgrp(slave)), T(tcsetpgrp(slave, getpgrp())), T(tcgetsid(slave)), T(ioctl(master, TIOCGPGRP, &number)), T(number);
    CHILD("session", setsid(); T(open("/dev/tty", O_RDWR)); T(ioctl(slave, TIOCSCTTY, 0)); IS(tcgetpgrp(slave) == getpid()); IS(tcgetsid(slave) == getpid());
          T(ioctl(slave, TIOCSCTTY, 0)); W(close(open("/dev/tty", O_RDWR))); T(tcsetpgrp(slave, 99999)); T(tcsetpgrp(slave, -1)); T(tcsetpgrp(slave, getppid())); T(ioctl(master, TIOCGPGRP, &number)); IS(number == getpid()); T(ioctl(master, TIOCGSID, &number)); IS(number == getpid());
          T(setsid());
          CHILD("its child", T(ioctl(slave, TIOCSCTTY, 0)); T(ioctl(slave, TIOCNOTTY)); T(open("/dev/tty", O_RDWR)); T(tcgetpgrp(slave));
              setsid(); T(ioctl(slave, TIOCSCTTY, 0)); setresuid(1000, 1000, 1000); T(ioctl(slave, TIOCSCTTY, 1)););
          signal(SIGHUP, SIG_IGN); signal(SIGCONT, SIG_IGN); T(ioctl(slave, TIOCNOTTY)); T(ioctl(slave, TIOCNOTTY)); T(tcgetpgrp(slave)););
    CHILD("stolen", setsid(); ioctl(slave, TIOCSCTTY, 0);
          CHILD("thief", setsid(); T(ioctl(slave, TIOCSCTTY, 0)); T(ioctl(slave, TIOCSCTTY, 1)); IS(tcgetpgrp(slave) == getpid()););
          T(open("/dev/tty", O_RDWR)););
    CHILD("opening takes it", setsid(); int own = open(ptsname(master), O_RDWR); IS(tcgetpgrp(own) == getpid()); W(open("/dev/tty", O_RDONLY)););
    CHILD("not with O_NOCTTY", setsid(); int own = open(ptsname(master), O_RDWR | O_NOCTTY); T(tcgetpgrp(own)); T(open("/dev/tty", O_RDONLY)););
    CHILD("nor one who leads none", setsid(); if (fork() == 0) { int own = open(ptsname(master), O_RDWR); T(tcgetpgrp(own)); _exit(0); } wait(NULL););
}
static volatile int seen;
static void sees(int signal) { seen = signal; }
PROGRAM(tty_background) {
    make();
    CHILD("leader", setsid(); ioctl(slave, TIOCSCTTY, 0); signal(SIGTTOU, SIG_IGN); int status; pid_t child;
        if ((child = fork()) == 0) { setpgid(0, 0); signal(SIGTTOU, SIG_DFL); read(slave, bytes, 1); _exit(0); }
        setpgid(child, child); waitpid(child, &status, WUNTRACED); IS(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTTIN); kill(child, SIGKILL); waitpid(child, NULL, 0);
        if ((child = fork()) == 0) { setpgid(0, 0); signal(SIGTTIN, SIG_IGN); T(read(slave, bytes, 1)); signal(SIGTTOU, SIG_DFL); T(write(slave, "x", 1)); T(tcsetattr(slave, TCSANOW, &modes)); _exit(0); }
        setpgid(child, child); waitpid(child, &status, WUNTRACED); IS(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTTOU); kill(child, SIGKILL); waitpid(child, NULL, 0);
        modes.c_lflag |= TOSTOP; tcsetattr(slave, TCSANOW, &modes);
        if ((child = fork()) == 0) { setpgid(0, 0); T(write(slave, "x", 1)); sigaction(SIGTTOU, &(struct sigaction){.sa_handler = sees}, NULL); T(write(slave, "x", 1)); T(seen == SIGTTOU); sigset_t set; sigemptyset(&set), sigaddset(&set, SIGTTOU), sigaddset(&set, SIGTTIN); sigprocmask(SIG_BLOCK, &set, NULL); T(write(slave, "x", 1)); T(read(slave, bytes, 1)); T(tcsetpgrp(slave, getpgrp())); T(tcgetpgrp(slave) == getpid()); _exit(0); }
        setpgid(child, child); waitpid(child, &status, WUNTRACED); T(status););
    CHILD("orphans", setsid(); ioctl(slave, TIOCSCTTY, 0); fflush(stdout); int line[2]; pipe(line);
        if (fork() == 0) { if (fork() == 0) { setpgid(0, 0); pause_ms(50); T(getppid() != 0); T(read(slave, bytes, 1)); T(write(slave, "x", 1)); modes.c_lflag &= ~TOSTOP; T(tcsetattr(slave, TCSANOW, &modes)); T(tcsetpgrp(slave, getpgrp())); T(tcflush(slave, TCIFLUSH)); fflush(stdout); write(line[1], "x", 1); _exit(0); } _exit(0); }
        wait(NULL); read(line[0], bytes, 1););
}
PROGRAM(tty_hangups) {
    struct pollfd wait;
    make(), write(slave, "last", 4), close(slave), show("what was written", master, 10), show("no slave", master, 10);
    wait = (struct pollfd){master, POLLIN | POLLOUT}, T(poll(&wait, 1, 0)), T(wait.revents), T(write(master, "x", 1));
    pause_ms(20); /* Linux echoes later. */
    slave = open(ptsname(master), O_RDWR | O_NOCTTY), fcntl(master, F_SETFL, O_NONBLOCK), show("open again", master, 10);
    fcntl(slave, F_SETFL, O_NONBLOCK), show("written meanwhile", slave, 10);
    char name[64];
    strcpy(name, ptsname(master)), say("line\n"), close(master), show("no master", slave, 10), show("again", slave, 10), T(write(slave, "x", 1));
    wait = (struct pollfd){slave, POLLIN | POLLOUT}, T(poll(&wait, 1, 0)), T(wait.revents), T(tcgetattr(slave, &modes)), T(tcsetattr(slave, TCSANOW, &modes)), T(open(name, O_RDWR)), T(ioctl(slave, TIOCGWINSZ, bytes)), T(ioctl(slave, FIONREAD, bytes)), T(ioctl(slave, TIOCSCTTY, 0));
    make();
    CHILD("leader gone", setsid(); ioctl(slave, TIOCSCTTY, 0); if (fork() == 0) { signal(SIGHUP, sees), signal(SIGCONT, SIG_IGN); pause_ms(60); T(seen); fcntl(slave, F_SETFL, O_NONBLOCK); T(read(slave, bytes, 1)); T(write(slave, "x", 1)); T(tcgetpgrp(slave)); fflush(stdout); _exit(0); } pause_ms(20); fflush(stdout); _exit(0););
    pause_ms(120), T(tcgetattr(slave, &modes));
    make();
    CHILD("master gone", setsid(); ioctl(slave, TIOCSCTTY, 0); signal(SIGHUP, sees); close(master); T(seen);
          T(open("/dev/tty", O_RDWR)););
}
PROGRAM(tty_packets) {
    make();
    int on = 1, off = 0, value;
    fcntl(master, F_SETFL, O_NONBLOCK);
    T(ioctl(master, TIOCPKT, &on)), T(ioctl(slave, TIOCPKT, &on)), T(ioctl(master, TIOCGPKT, &value)), T(value), T(write(slave, "hi", 2)), show("data", master, 9), show("none", master, 9);
    struct pollfd wait = {master, POLLIN | POLLPRI};
    T(tcflush(slave, TCIFLUSH)), T(poll(&wait, 1, 0)), T(wait.revents), show("flushed", master, 9), T(tcflush(slave, TCIOFLUSH)), show("both", master, 9);
    T(tcflow(slave, TCOOFF)), show("stopped", master, 9), T(tcflow(slave, TCOON)), show("started", master, 9);
    modes.c_iflag &= ~IXON, tcsetattr(slave, TCSANOW, &modes), show("no flow control", master, 9), modes.c_iflag |= IXON, tcsetattr(slave, TCSANOW, &modes), show("flow control", master, 9);
    T(ioctl(master, TIOCPKT, &off)), T(write(slave, "hi", 2)), show("plain", master, 9), T(ioctl(master, TIOCPKT, (void *)8));
    modes.c_lflag |= EXTPROC, T(ioctl(master, TIOCPKT, &on)), T(tcsetattr(slave, TCSANOW, &modes)), show("EXTPROC", master, 9);
}
PROGRAM(tty_names) {
    make();
    int number = -1, lock = 1;
    IS(ioctl(master, TIOCGPTN, &number) == 0 && number >= 0), T(ioctl(slave, TIOCGPTN, &number)), T(ioctl(master, TIOCSPTLCK, &lock)), T(ioctl(master, TIOCGPTLCK, &lock)), T(lock), T(open(ptsname(master), O_RDWR | O_NOCTTY)), lock = 0, T(ioctl(master, TIOCSPTLCK, &lock)), W(open(ptsname(master), O_RDWR | O_NOCTTY));
    W(ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY)), T(ioctl(slave, TIOCGPTPEER, O_RDWR)), T(isatty(master)), T(isatty(slave)), T(isatty(0 * open("/dev/null", O_RDONLY) + 99)), T(ioctl(master, TIOCSPTLCK, 8));
    struct winsize size = {24, 80}, other = {0};
    T(ioctl(slave, TIOCSWINSZ, &size)), T(ioctl(master, TIOCGWINSZ, &other)), T(other.ws_row), T(other.ws_col), size.ws_row = 50, T(ioctl(master, TIOCSWINSZ, &size)), T(ioctl(slave, TIOCGWINSZ, &other)), T(other.ws_row), T(ioctl(slave, TIOCGWINSZ, (void *)8)), T(ioctl(slave, 0x1234, 0)), T(ioctl(99, TCGETS, &modes)), T(tcgetattr(open("/dev/null", O_RDWR), &modes));
    T(ioctl(slave, TIOCEXCL)), T(ioctl(slave, TIOCGEXCL, &number)), T(number), T(ioctl(slave, TIOCNXCL)), T(ioctl(slave, TIOCGETD, &number)), T(number), T(ioctl(slave, TIOCMGET, &number)), T(ioctl(slave, TIOCGSOFTCAR, &number)), T(ioctl(slave, TIOCGETD, (void *)8)), T(ioctl(slave, TCXONC, 9)), T(lseek(slave, 0, SEEK_SET)), T(pread(slave, bytes, 1, 0)), T(ftruncate(slave, 0)), T(mmap(NULL, 4096, PROT_READ, MAP_SHARED, slave, 0));
    T(open("/dev/tty", O_RDWR) >= -1), T(modes.c_iflag), T(modes.c_oflag), T(modes.c_cflag), T(modes.c_lflag);
    for (int i = 0; i < 17; i++)
        printf("%d ", modes.c_cc[i]);
    printf("\n");
}
PROGRAM(tty_signals) {
    make();
    CHILD("leader", setsid(); ioctl(slave, TIOCSCTTY, 0); signal(SIGINT, sees); signal(SIGQUIT, sees); signal(SIGTSTP, sees); signal(SIGWINCH, sees);
        say("abc\003"); T(seen); say("\034"); T(seen); say("\032"); T(seen); fcntl(slave, F_SETFL, O_NONBLOCK); show("flushed by them", slave, 9);
        modes.c_lflag |= NOFLSH; tcsetattr(slave, TCSANOW, &modes); say("abc\003d\n"); show("NOFLSH", slave, 9); modes.c_lflag &= ~ISIG; tcsetattr(slave, TCSANOW, &modes); seen = 0; say("a\003\n"); T(seen); show("no ISIG", slave, 9);
        struct winsize size = {33, 44}; ioctl(master, TIOCSWINSZ, &size); pause_ms(5); T(seen); seen = 0; ioctl(master, TIOCSWINSZ, &size); pause_ms(5); T(seen);
        modes.c_lflag |= ISIG; tcsetattr(slave, TCSANOW, &modes); T(ioctl(master, TIOCSIG, SIGQUIT)); T(seen); T(ioctl(master, TIOCSIG, SIGUSR1)); T(ioctl(slave, TIOCSIG, SIGINT)); modes.c_cc[VINTR] = 0; tcsetattr(slave, TCSANOW, &modes); seen = 0; say("\003\n"); T(seen); modes.c_iflag |= BRKINT;);
}
