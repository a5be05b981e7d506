/*
 * Runs the programs of a list one after the other and says what each of them did, on Aegis and on Linux alike.
 *
 *   each SECONDS FIRST           runs the programs of /test/list from number FIRST (0 is the first) on
 *   each --init SECONDS FIRST    the same as the first process of a Linux machine, then ends the machine
 *
 * What it prints is read by `aegis test`, one thing a line:
 *
 *   begin N                      program N starts
 *   out N TEXT, err N TEXT       it wrote this; bytes that are not printable are \XX, the backslash too
 *   end N STATUS                 it ended with this status of wait
 *   late N                       it did not within SECONDS, and was killed
 *   much N                       it wrote more than OUTPUT_MAX bytes, and was killed
 *   done                         all have run
 *
 * A line of /test/list is a program's path and its arguments with tabs between them. Each program starts in an empty
 * directory of its own in /tmp, with an empty standard input, in the group and session of this one; what it leaves
 * running is killed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIST_MAX (1 << 20)
#define WORDS_MAX 256
#define CHUNK 512
#define OUTPUT_MAX (1 << 20)
#define LOOK_MS 20

static char *const environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp",
                                    "LC_ALL=C", NULL};
static char list[LIST_MAX];

static void fail(const char *what) {
    dprintf(2, "each: %s: %s\n", what, strerror(errno));
    _exit(125);
}

static void write_whole(const char *text, size_t length) {
    while (length > 0) {
        ssize_t count = write(1, text, length);
        if (count < 0 && errno != EINTR) _exit(125);
        if (count > 0) text += count, length -= count;
    }
}

static void say(const char *word, int number, int status) {
    char line[64];
    int length = status < 0 ? snprintf(line, sizeof line, "%s %d\n", word, number)
                            : snprintf(line, sizeof line, "%s %d %d\n", word, number, status);
    write_whole(line, length);
}

static void pass_on(const char *word, int number, const unsigned char *bytes, size_t count) {
    char line[64 + CHUNK * 3];
    int length = snprintf(line, 64, "%s %d ", word, number);
    for (size_t i = 0; i < count; i++) {
        int plain = bytes[i] > ' ' && bytes[i] < 127 && bytes[i] != '\\';
        length += sprintf(line + length, plain ? "%c" : "\\%02x", bytes[i]);
    }
    line[length++] = '\n';
    write_whole(line, length);
}

/* Reads what is there; 0 when nobody will write any more. */
static int drain(int pipe, const char *word, int number, size_t *total) {
    unsigned char bytes[CHUNK];
    for (;;) {
        ssize_t count = read(pipe, bytes, sizeof bytes);
        if (count == 0) return 0;
        if (count < 0) return 1;
        *total += count;
        if (*total > OUTPUT_MAX) return 1;
        pass_on(word, number, bytes, count);
    }
}

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void become(char **words, int number, int out, int err) {
    char directory[64];
    snprintf(directory, sizeof directory, "/tmp/test-%d", number);
    if (mkdir(directory, 0755) || chdir(directory)) fail(directory);
    int null = open("/dev/null", O_RDONLY);
    if (null < 0) fail("/dev/null");
    dup2(null, 0), dup2(out, 1), dup2(err, 2);
    close(null);
    execve(words[0], words, environment);
    fail(words[0]);
}

static void run(char **words, int number, int seconds) {
    int out[2], err[2], status = 0, has_ended = 0, is_late = 0;
    size_t total = 0;
    if (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)) fail("pipe");
    fcntl(out[0], F_SETFL, O_NONBLOCK), fcntl(err[0], F_SETFL, O_NONBLOCK);
    say("begin", number, -1);
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (child == 0) become(words, number, out[1], err[1]);
    close(out[1]), close(err[1]);
    long deadline_ms = now_ms() + seconds * 1000l;
    struct pollfd pipes[2] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
    while (!has_ended && !is_late && total <= OUTPUT_MAX) {
        poll(pipes, 2, LOOK_MS);
        pid_t gone;
        while ((gone = waitpid(-1, &status, WNOHANG)) > 0)
            if (gone == child) {
                has_ended = 1;
                break;
            }
        if (!drain(out[0], "out", number, &total)) pipes[0].fd = -1;
        if (!drain(err[0], "err", number, &total)) pipes[1].fd = -1;
        is_late = now_ms() > deadline_ms;
    }
    /* Everything but this one, which is the first process of either machine. */
    kill(-1, SIGKILL);
    while (waitpid(-1, 0, 0) > 0) {
    }
    close(out[0]), close(err[0]);
    if (has_ended) say("end", number, status);
    else say(total > OUTPUT_MAX ? "much" : "late", number, -1);
}

static void prepare_linux(void) {
    mount("proc", "/proc", "proc", 0, NULL);
    mount("sysfs", "/sys", "sysfs", 0, NULL);
    mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
    /* /tmp is the root file system, which may hold programs there. */
    mkdir("/dev/shm", 01777), mkdir("/dev/pts", 0755);
    mount("tmpfs", "/dev/shm", "tmpfs", 0, "mode=1777");
    mount("devpts", "/dev/pts", "devpts", 0, "ptmxmode=0666");
    symlink("/proc/self/fd", "/dev/fd");
    symlink("/proc/self/fd/0", "/dev/stdin"), symlink("/proc/self/fd/1", "/dev/stdout"), symlink("/proc/self/fd/2", "/dev/stderr");
}

int main(int argument_count, char **arguments) {
    if (argument_count < 3) return 125;
    /* Linux puts the words of its command line that it does not know in front of the program's. */
    int first = atoi(arguments[argument_count - 1]), seconds = atoi(arguments[argument_count - 2]);
    int is_init = argument_count > 3 && !strcmp(arguments[argument_count - 3], "--init");
    if (is_init) prepare_linux();
    umask(022);
    setsid();
    /* What programs leave behind becomes a child of this one, also where it is not the first process. */
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    int file = open("/test/list", O_RDONLY | O_CLOEXEC);
    ssize_t length = 0, count;
    if (file < 0) fail("/test/list");
    while ((count = read(file, list + length, LIST_MAX - 1 - length)) > 0) length += count;
    close(file);
    int number = 0;
    for (char *line = list, *end; (end = strchr(line, '\n')); line = end + 1, number++) {
        char *words[WORDS_MAX + 1];
        int word_count = 0;
        *end = 0;
        if (number < first) continue;
        for (char *word = strtok(line, "\t"); word && word_count < WORDS_MAX; word = strtok(NULL, "\t"))
            words[word_count++] = word;
        words[word_count] = NULL;
        if (word_count > 0) run(words, number, seconds);
    }
    write_whole("done\n", 5);
    if (is_init) {
        sync();
        reboot(RB_AUTOBOOT);
        for (;;) pause();
    }
    return 0;
}
