/*
 * Starts a program of the apps suite, on Aegis and on Linux alike, and says when.
 *
 *   launch NAME                runs the program of /bench/rows/NAME in its own place, without a second process
 *   launch --init NAME         the same as the first process of a Linux machine: in a child, then ends the machine
 *
 * What it prints is read by `aegis bench`; what the program prints stands in between:
 *
 *   begin NAME NS              the clock (CLOCK_MONOTONIC) just before execve
 *   end NAME NS STATUS         with --init: the clock just after wait, and the status of wait
 *
 * On Aegis the end is what exos reports in --stats, by the same clock: the launcher has become the program then.
 *
 * A file of /bench/rows has a word on each line: where standard input comes from, where standard output goes (`-` leaves
 * it as it is), then the program's path and its arguments.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORDS_MAX 64
#define TEXT_MAX 4096

static char *const environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root",
                                    "LC_ALL=C", NULL};

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static void fail(const char *what) {
    dprintf(2, "launch: %s: %s\n", what, strerror(errno));
    _exit(125);
}

/* Splits the row's file into its words; returns how many there are. */
static int read_words(const char *name, char *text, char **words) {
    char path[256];
    snprintf(path, sizeof path, "/bench/rows/%s", name);
    int file = open(path, O_RDONLY);
    if (file < 0) fail(path);
    ssize_t length = read(file, text, TEXT_MAX - 1);
    if (length < 0) fail(path);
    close(file);
    text[length] = 0;
    int count = 0;
    for (char *word = strtok(text, "\n"); word && count < WORDS_MAX; word = strtok(NULL, "\n")) words[count++] = word;
    words[count] = NULL;
    return count;
}

static void redirect(const char *path, int target, int flags) {
    if (!strcmp(path, "-")) return;
    int file = open(path, flags, 0644);
    if (file < 0) fail(path);
    dup2(file, target);
    close(file);
}

static void become(const char *name, char **words) {
    char line[256];
    int says = dup(1);
    fcntl(says, F_SETFD, FD_CLOEXEC);
    redirect(words[0], 0, O_RDONLY);
    redirect(words[1], 1, O_WRONLY | O_CREAT | O_TRUNC);
    int length = snprintf(line, sizeof line, "begin %s %lld\n", name, (long long)now_ns());
    if (write(says, line, length) != length) fail("the begin line");
    execve(words[2], words + 2, environment);
    fail(words[2]);
}

static void run_as_init(const char *name, char **words) {
    mount("proc", "/proc", "proc", 0, NULL);
    mount("sysfs", "/sys", "sysfs", 0, NULL);
    mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
    /* The kernel's own late work is over after that. */
    usleep(300000);
    pid_t child = vfork();
    if (child < 0) fail("vfork");
    if (child == 0) become(name, words);
    int status = 0;
    while (waitpid(child, &status, 0) != child) {
    }
    int64_t end_ns = now_ns();
    dprintf(1, "end %s %lld %d\n", name, (long long)end_ns, status);
    sync();
    reboot(RB_AUTOBOOT);
    for (;;) pause();
}

int main(int argument_count, char **arguments) {
    static char text[TEXT_MAX];
    static char *words[WORDS_MAX + 1];
    /* Linux puts the words of its command line that it does not know in front of the program's. */
    const char *name = argument_count > 1 ? arguments[argument_count - 1] : "";
    int is_init = argument_count > 2 && !strcmp(arguments[argument_count - 2], "--init");
    if (read_words(name, text, words) < 3) {
        errno = EINVAL;
        fail(name);
    }
    if (is_init) run_as_init(name, words);
    become(name, words);
    return 125;
}
