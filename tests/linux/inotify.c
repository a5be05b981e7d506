/* Watching files and directories. Prints facts that are the same on every Linux. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SAY(call) (errno = 0, say(#call, (long)(call)))
#ifndef IN_MASK_CREATE
#define IN_MASK_CREATE 0x10000000
#endif

static int watcher;
static uint32_t cookies[64];
static int cookie_count;

static void say(const char *call, long result) {
    printf("%s: %ld %s\n", call, result, result == -1 ? strerror(errno) : "");
}

/* Cookies are told by the order in which they first came. */
static int cookie_number(uint32_t cookie) {
    if (!cookie) return 0;
    for (int i = 0; i < cookie_count; i++)
        if (cookies[i] == cookie) return i + 1;
    cookies[cookie_count++] = cookie;
    return cookie_count;
}

static void events(const char *after) {
    char buffer[8192];
    int waiting = 0;
    ioctl(watcher, FIONREAD, &waiting);
    long length = read(watcher, buffer, sizeof buffer);
    printf("-- %s: %s\n", after, length == -1 ? strerror(errno) : waiting == length ? "events" : "FIONREAD is wrong");
    for (char *at = buffer; length > 0 && at < buffer + length;) {
        struct inotify_event *event = (struct inotify_event *)at;
        printf("watch %d mask %x cookie %d length %u name %s\n", event->wd, event->mask, cookie_number(event->cookie), event->len,
               event->len ? event->name : "");
        at += sizeof *event + event->len;
    }
}

static void errors(void) {
    char buffer[8];
    SAY(syscall(SYS_inotify_init1, 1));
    SAY(inotify_add_watch(watcher, ".", 0));
    SAY(inotify_add_watch(watcher, ".", 0x1000));
    SAY(inotify_add_watch(watcher, ".", IN_OPEN | IN_MASK_ADD | IN_MASK_CREATE));
    SAY(inotify_add_watch(99, ".", IN_OPEN));
    SAY(inotify_add_watch(1, ".", IN_OPEN));
    SAY(inotify_add_watch(watcher, "nothing", IN_OPEN));
    SAY(inotify_add_watch(watcher, "", IN_OPEN));
    SAY(inotify_add_watch(watcher, (char *)8, IN_OPEN));
    close(open("file", O_CREAT | O_WRONLY, 0644));
    SAY(inotify_add_watch(watcher, "file", IN_OPEN | IN_ONLYDIR));
    SAY(inotify_rm_watch(watcher, 1));
    SAY(inotify_rm_watch(99, 1));
    SAY(inotify_rm_watch(1, 1));
    SAY(read(watcher, buffer, 8));
    SAY(write(watcher, buffer, 8));
    SAY(fcntl(watcher, F_GETFL) & O_NONBLOCK);
    SAY(fcntl(watcher, F_GETFD));
    unlink("file");
}

static void names(void) {
    SAY(inotify_add_watch(watcher, ".", IN_ALL_EVENTS));
    int fd = open("a", O_CREAT | O_RDWR, 0644);
    events("create");
    write(fd, "hello", 5), write(fd, "hello", 5), pread(fd, (char[4]){0}, 4, 0);
    events("write and read");
    ftruncate(fd, 2), fchmod(fd, 0600), fchown(fd, getuid(), getgid());
    events("truncate, mode, owner");
    struct timespec both[2] = {{1, 1}, {2, 2}}, read_only[2] = {{1, 1}, {0, UTIME_OMIT}}, written_only[2] = {{0, UTIME_OMIT}, {2, 2}};
    futimens(fd, both), futimens(fd, read_only), futimens(fd, written_only);
    events("times");
    close(fd);
    close(open("a", O_RDONLY));
    close(open("a", O_PATH));
    events("close");
    link("a", "b"), symlink("a", "c"), mkfifo("d", 0600), mkdir("sub", 0700);
    events("link, symlink, mkfifo, mkdir");
    rename("a", "e"), rename("e", "sub/e"), rename("sub/e", "a_longer_name_than_sixteen");
    events("rename");
    rename("a_longer_name_than_sixteen", "d");
    events("rename over");
    rename("sub", "dir");
    events("rename a directory");
    fd = open("dir", O_RDONLY | O_DIRECTORY);
    close(fd);
    events("open a directory");
    unlink("b"), unlink("c"), unlink("d"), rmdir("dir");
    events("remove");
    SAY(inotify_rm_watch(watcher, 1));
    events("watch removed");
    close(open("a", O_CREAT | O_WRONLY, 0644)), unlink("a");
    events("not watched");
}

static void selves(void) {
    int fd = open("f", O_CREAT | O_RDWR, 0644);
    SAY(inotify_add_watch(watcher, "f", IN_ALL_EVENTS));
    SAY(inotify_add_watch(watcher, ".", IN_DELETE | IN_ATTRIB | IN_MOVE));
    SAY(inotify_add_watch(watcher, "f", IN_OPEN | IN_MASK_CREATE));
    write(fd, "x", 1), rename("f", "g"), link("g", "h"), unlink("g");
    events("file");
    unlink("h");
    events("no name left");
    write(fd, "y", 1);
    events("open without a name");
    close(fd);
    events("gone");
    mkdir("sub", 0700);
    SAY(inotify_add_watch(watcher, "sub", IN_ALL_EVENTS | IN_ONLYDIR));
    rename("sub", "dir"), chmod("dir", 0711);
    events("directory");
    rmdir("dir");
    events("directory gone");
}

static void bits(void) {
    int fd = open("f", O_CREAT | O_RDWR, 0644), same;
    SAY(same = inotify_add_watch(watcher, "f", IN_MODIFY));
    SAY(inotify_add_watch(watcher, "f", IN_ACCESS | IN_MASK_ADD) == same);
    write(fd, "x", 1), pread(fd, (char[1]){0}, 1, 0);
    events("added");
    SAY(inotify_add_watch(watcher, "f", IN_ACCESS) == same);
    write(fd, "x", 1), pread(fd, (char[1]){0}, 1, 0);
    events("replaced");
    SAY(inotify_add_watch(watcher, "f", IN_MODIFY | IN_ONESHOT) == same);
    write(fd, "x", 1), write(fd, "x", 1);
    events("once");
    symlink("f", "l");
    SAY(inotify_add_watch(watcher, "l", IN_ALL_EVENTS | IN_DONT_FOLLOW));
    write(fd, "x", 1), unlink("l");
    events("link");
    mkdir("sub", 0700);
    int in = open("sub/x", O_CREAT | O_RDWR, 0600);
    SAY(inotify_add_watch(watcher, "sub", IN_MODIFY | IN_EXCL_UNLINK));
    write(in, "x", 1), unlink("sub/x"), write(in, "x", 1);
    events("without what has no name");
    SAY(inotify_add_watch(watcher, "sub", IN_MODIFY));
    write(in, "x", 1);
    events("with it");
    close(in), rmdir("sub"), unlink("f"), close(fd);
    events("all gone");
}

static void waiting(void) {
    struct pollfd entry = {watcher, POLLIN, 0};
    SAY(inotify_add_watch(watcher, ".", IN_CREATE));
    SAY(poll(&entry, 1, 0));
    fcntl(watcher, F_SETFL, 0);
    fflush(stdout);
    if (!fork()) {
        mkdir("by_a_child", 0700), rmdir("by_a_child");
        _exit(0);
    }
    SAY(poll(&entry, 1, -1));
    char small[16];
    SAY(read(watcher, small, 16));
    events("by a child");
    if (!fork()) {
        mkdir("by_another", 0700), rmdir("by_another");
        _exit(0);
    }
    char buffer[256];
    long length = read(watcher, buffer, sizeof buffer);
    printf("waited for %ld bytes: %s\n", length, ((struct inotify_event *)buffer)->name);
    while (wait(0) > 0) ;
}

int main(void) {
    /* A file system in memory on both sides: others have their own idea of when an inode is gone. */
    char folder[] = "/dev/shm/inotify-XXXXXX";
    if (!mkdtemp(folder) || chdir(folder)) return 9;
    watcher = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    errors();
    names();
    selves();
    bits();
    waiting();
    rmdir(folder);
    return 0;
}
