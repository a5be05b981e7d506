/* Figure 8: three decoders of a video stream, without a display, whose tickets change while they run.
 *
 * The decoder is Debian's ffmpeg as it is, with one thread. Each is in a control group of its own, whose weight is
 * written as an administrator would. How far it is it says itself in a file (`-progress`), every quarter of a second. */
#include "common.h"
#include "tasks.h"

#include <signal.h>

enum { DECODERS = 3, PATIENCE_S = 120, POLL_NS = 250000000 };

static void name_of(int decoder, char name[16]) {
    snprintf(name, 16, "d%d", decoder);
}

static pid_t start(int decoder, char *stream) {
    char name[16], progress[32];
    name_of(decoder, name);
    snprintf(progress, sizeof progress, "/tmp/%s.progress", name);
    pid_t pid = fork();
    if (pid < 0)
        fail("fork");
    if (pid > 0)
        return pid;
    enter_group(name);
    int null = open("/dev/null", O_RDONLY);
    if (null >= 0)
        dup2(null, 0);
    execl("/usr/bin/ffmpeg", "ffmpeg", "-hide_banner", "-nostats", "-loglevel", "error", "-progress", progress,
          "-stats_period", "0.25", "-stream_loop", "-1", "-threads", "1", "-i", stream, "-filter_threads", "1",
          "-an", "-f", "null", "-", (char *)NULL);
    fail("/usr/bin/ffmpeg");
    return 0;
}

/* The last number of frames in a decoder's file; 0 if there is none yet. */
static uint64_t frames(int decoder) {
    char name[16], path[32], text[2048];
    name_of(decoder, name);
    snprintf(path, sizeof path, "/tmp/%s.progress", name);
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return 0;
    off_t end = lseek(fd, 0, SEEK_END);
    off_t from = end < (off_t)sizeof text ? 0 : end - (off_t)sizeof text + 1;
    ssize_t length = pread(fd, text, sizeof text - 1, from);
    close(fd);
    uint64_t count = 0;
    text[length < 0 ? 0 : length] = 0;
    for (char *place = text; (place = strstr(place, "frame=")) != NULL; place += 6)
        count = strtoull(place + 6, NULL, 10);
    return count;
}

/* `weights` are numbers with commas between them, one for each decoder. */
static void share(char *weights) {
    char name[16], *rest = weights;
    for (int decoder = 0; decoder < DECODERS; decoder++) {
        char *weight = strsep(&rest, ",");
        if (weight == NULL) {
            errno = EINVAL;
            fail("weights");
        }
        name_of(decoder, name);
        set_weight(name, weight);
    }
}

static void await_all(void) {
    uint64_t until_ns = now_ns() + PATIENCE_S * 1000000000ull;
    for (int decoder = 0; decoder < DECODERS; decoder++)
        while (frames(decoder) < 2) {
            if (now_ns() > until_ns) {
                errno = ETIME;
                fail("a decoder");
            }
            sleep_until(now_ns() + POLL_NS);
        }
}

/* `words` are WINDOW_COUNT WINDOW_MS STREAM WEIGHTS THEN_WEIGHTS; the second weights count from the middle on. For each
 * window and decoder: the frames decoded in it. */
void run_decoders(char **words) {
    unsigned window_count = (unsigned)atoi(words[0]);
    uint64_t window_ns = strtoull(words[1], NULL, 10) * 1000000;
    char name[16];
    pid_t decoders[DECODERS];
    share_group(".");
    for (int decoder = 0; decoder < DECODERS; decoder++) {
        name_of(decoder, name);
        make_group(name, "100");
        decoders[decoder] = start(decoder, words[2]);
    }
    await_all();
    share(words[3]);
    uint64_t before[DECODERS];
    for (int decoder = 0; decoder < DECODERS; decoder++)
        before[decoder] = frames(decoder);
    uint64_t start_ns = now_ns();
    for (unsigned window = 0; window < window_count; window++) {
        if (window == window_count / 2)
            share(words[4]);
        sleep_until(start_ns + (window + 1) * window_ns);
        for (int decoder = 0; decoder < DECODERS; decoder++) {
            uint64_t count = frames(decoder);
            char prefix[24];
            snprintf(prefix, sizeof prefix, "d%d | ", decoder);
            say(prefix, window, count - before[decoder]);
            before[decoder] = count;
        }
    }
    for (int decoder = 0; decoder < DECODERS; decoder++) {
        kill(decoders[decoder], SIGKILL);
        waitpid(decoders[decoder], NULL, 0);
    }
}
