// Reads a file over and over, and says how many frames its pod owned in the mean, how often it read the file and how
// many samples that were: scanner NAME COUNT PAUSE_US, with a pause behind each piece. What is measured begins so many
// samples after COUNT scanners have read the file once, and ends when each has taken its own: a sample is behind at
// least one piece, so how fast the host serves files says nothing. They tell each other by files in the directory of
// the file.
#include "../attacks/attack.h"
#include <fcntl.h>

enum { FRAMES_OWNED = 4, SAMPLE_NS = 20000000, SETTLE_COUNT = 300, SAMPLE_COUNT = 100, NAME_BYTES = 100 };

static int count;

static void tell(const char *what, const char *own)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "/data/%s-%s", what, own);
    int file = open(name, O_CREAT | O_WRONLY, 0600);
    if (file < 0)
        fail(name, 0);
    close(file);
}

// Whether all have told this.
static int is_told(const char *what)
{
    char name[NAME_BYTES];
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "/data/%s-%d", what, i);
        if (access(name, F_OK) != 0)
            return 0;
    }
    return 1;
}

int main(int argc, char **argv)
{
    static char piece[128 << 10];
    int file = open("/data/data", O_RDONLY), has_begun = 0, is_ready = 0, settled = 0;
    if (argc != 4 || file < 0)
        fail("file", 0);
    count = atoi(argv[2]);
    int pause_us = atoi(argv[3]);
    begin();
    word next_ns = 0, sum = 0, samples = 0, at = 0, turns = 0;
    for (;;) {
        ssize_t length = pread(file, piece, sizeof piece, at);
        if (length < 0)
            fail("read", 0);
        if (pause_us > 0)
            usleep(pause_us);
        at = length == 0 ? 0 : at + length;
        turns += length == 0;
        if (turns == 1 && !is_ready) {
            is_ready = 1;
            tell("ready", argv[1]);
        }
        word now = now_ns();
        if (!is_ready || now < next_ns)
            continue;
        next_ns = now + SAMPLE_NS;
        if (!has_begun) {
            has_begun = is_told("ready");
        } else if (settled < SETTLE_COUNT) {
            settled++;
        } else if (samples < SAMPLE_COUNT) {
            sum += must("frames owned", call(ENVIRONMENT_READ, SLOT_SELF, FRAMES_OWNED, 0, 0, 0, 0));
            if (++samples == SAMPLE_COUNT)
                tell("done", argv[1]);
        } else if (is_told("done")) {
            break;
        }
    }
    printf("%lu %lu %lu\n", sum / samples, turns, samples);
    return 0;
}
