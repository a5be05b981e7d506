/* Section 5.6: how long a server with a thread for each of five clients takes for twenty queries of each.
 *
 * As spinners.c: with nice 0 all are equal and have turns in rounds, with another value, the same for all, Aegis draws.
 * A query is how often a word stands in a text, whatever the case of its letters; answers are checked. */
#include "common.h"
#include "tasks.h"

#include <ctype.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { CLIENTS = 5, TEXT_BYTES = 1 << 20 };
static const char WORD[] = "lottery";

static char *text;
static uint64_t expected;

/* Sentences of the word and of one that begins like it, by Marsaglia's xorshift. */
static void make_text(void) {
    uint32_t x = 2463534242u;
    size_t length = 0;
    text = malloc(TEXT_BYTES + 16);
    if (text == NULL)
        fail("malloc");
    while (length < TEXT_BYTES) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        expected += x % 5 == 0;
        length += (size_t)sprintf(text + length, "%s ", x % 5 == 0 ? "Lottery" : "lots");
    }
}

static uint64_t count_words(void) {
    uint64_t count = 0;
    for (const char *at = text; at < text + TEXT_BYTES; at++) {
        size_t same = 0;
        while (same < sizeof WORD - 1 && tolower((unsigned char)at[same]) == WORD[same])
            same++;
        count += same == sizeof WORD - 1;
    }
    return count;
}

static void *serve(void *argument) {
    int fd = (int)(intptr_t)argument;
    for (char query; read(fd, &query, 1) == 1;) {
        uint64_t count = count_words();
        if (write(fd, &count, sizeof count) != sizeof count)
            fail("an answer");
    }
    return NULL;
}

static void ask(int fd, int query_count) {
    for (int query = 0; query < query_count; query++) {
        uint64_t count;
        if (write(fd, "q", 1) != 1 || read(fd, &count, sizeof count) != sizeof count)
            fail("a query");
        if (count != expected) {
            errno = ERANGE;
            fail("an answer");
        }
    }
}

/* `words` are NICE QUERY_COUNT. The microseconds from the first query to the last answer. */
void run_server(char **words) {
    int ends[CLIENTS][2];
    pthread_t threads[CLIENTS];
    make_text();
    if (setpriority(PRIO_PROCESS, 0, atoi(words[0])) != 0)
        fail("setpriority");
    for (int client = 0; client < CLIENTS; client++)
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends[client]) != 0)
            fail("socketpair");
    uint64_t start_ns = now_ns();
    for (int client = 0; client < CLIENTS; client++) {
        pid_t pid = fork();
        if (pid < 0)
            fail("fork");
        if (pid == 0) {
            ask(ends[client][0], atoi(words[1]));
            _exit(0);
        }
    }
    for (int client = 0; client < CLIENTS; client++)
        if ((errno = pthread_create(&threads[client], NULL, serve, (void *)(intptr_t)ends[client][1])) != 0)
            fail("pthread_create");
    for (int client = 0; client < CLIENTS; client++) {
        int status;
        if (wait(&status) < 0 || status != 0)
            fail("a client");
    }
    say("all | ", 0, (now_ns() - start_ns) / 1000);
    /* The server's threads end with the process. */
}
