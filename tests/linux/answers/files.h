// What the families about files share.
#include "answers.h"
#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <utime.h>

// Makes a file of this text anew.
static inline int put(const char *path, const char *text) {
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    long count = fd < 0 ? -1 : write(fd, text, strlen(text));
    close(fd);
    return count == (long)strlen(text) ? 0 : -1;
}
// Whether a file holds exactly this text.
static inline int holds(const char *path, const char *text) {
    static char bytes[70000];
    int fd = open(path, O_RDONLY);
    long count = fd < 0 ? -1 : read(fd, bytes, sizeof bytes);
    close(fd);
    return count == (long)strlen(text) && memcmp(bytes, text, count) == 0;
}
static inline struct stat about(const char *path) {
    struct stat s = {0};
    lstat(path, &s);
    return s;
}
static inline long length(const char *path) { return about(path).st_size; }
static inline long mode(const char *path) { return about(path).st_mode; }
static inline long links(const char *path) { return about(path).st_nlink; }
static inline struct stat about_fd(int fd) {
    struct stat s = {0};
    fstat(fd, &s);
    return s;
}
// Becomes a user without privilege.
static inline void drop(void) {
    setgroups(0, NULL);
    setresgid(1000, 1000, 1000);
    setresuid(1000, 1000, 1000);
}
#define USER(...) CHILD("as a user", { drop(); __VA_ARGS__; })
static inline int later(struct timespec a, struct timespec b) {
    return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}
