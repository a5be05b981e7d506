/*
 * Writes what the programs of the apps suite work on, the same bytes every time:
 *
 *   generate DIRECTORY NAME
 *
 *   text             64 MiB of lines like those of a log, which a compressor makes some twenty times smaller
 *   statements.sql   100,000 statements for sqlite3, then one that prints what they came to
 *   program.i        5,000 lines for a C compiler, which need no preprocessor
 *   tree/            2,000 files in 210 directories, for find and grep
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TEXT_BYTES (64l << 20)
#define STATEMENTS 100000
#define PROGRAM_LINES 5000
#define WORDS 64

static uint64_t state;

/* xorshift64*: any generator would do that is the same everywhere. */
static uint32_t number(uint32_t below) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (uint32_t)((state * 2685821657736338717ull) >> 33) % below;
}

static FILE *create(const char *directory, const char *name) {
    char path[8192];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "w");
    if (!file) {
        perror(path);
        exit(1);
    }
    state = 88172645463325252ull;
    return file;
}

static void finish(FILE *file) {
    if (ferror(file) | fclose(file)) {
        perror("generate");
        exit(1);
    }
}

static char words[WORDS][12];

static void make_words(void) {
    state = 1;
    for (int word = 0; word < WORDS; word++) {
        int length = 3 + number(7);
        for (int at = 0; at < length; at++) words[word][at] = "etaoinshrdlu"[number(12)];
    }
}

/* A time, then 31 messages of a few services; every eighth message has a number that nothing repeats. */
static void text(const char *directory) {
    FILE *file = create(directory, "text");
    long bytes = 0;
    for (unsigned line = 0; bytes < TEXT_BYTES; line++) {
        char text[256];
        unsigned second = line / 32, message = line % 61;
        int length;
        if (line % 32 == 0)
            length = snprintf(text, sizeof text, "2026-01-%02u %02u:%02u:%02u\n", second / 86400 % 28 + 1, second / 3600 % 24,
                              second / 60 % 60, second % 60);
        else
            length = snprintf(text, sizeof text, "host service[%u]: %s %s %s %s %s %s id=%06x\n", message * 111, words[message],
                              words[(message * 7 + 1) % WORDS], words[(message * 5 + 2) % WORDS],
                              words[(message * 3 + 3) % WORDS], words[(message * 11 + 4) % WORDS],
                              words[(message * 13 + 5) % WORDS], line % 8 ? 0x123456 : number(1 << 24));
        if (bytes + length > TEXT_BYTES) length = (int)(TEXT_BYTES - bytes);
        fwrite(text, 1, length, file);
        bytes += length;
    }
    finish(file);
}

static void statements(const char *directory) {
    FILE *file = create(directory, "statements.sql");
    fputs("CREATE TABLE item(id INTEGER PRIMARY KEY, word TEXT, amount INTEGER);\nBEGIN;\n", file);
    int inserted = 0;
    for (int count = 2; count < STATEMENTS - 1; count++) {
        uint32_t kind = number(10);
        if (kind < 6 || inserted < 100)
            fprintf(file, "INSERT INTO item VALUES(%d,'%s%u',%u);\n", inserted++, words[number(WORDS)], number(1000), number(100000));
        else if (kind < 8)
            fprintf(file, "UPDATE item SET amount=amount+%u WHERE id=%u;\n", number(100), number(inserted));
        else if (kind < 9)
            fprintf(file, "DELETE FROM item WHERE id=%u;\n", number(inserted));
        else
            fprintf(file, "SELECT amount FROM item WHERE id=%u AND amount<0;\n", number(inserted));
    }
    fputs("COMMIT;\nSELECT count(*), sum(amount), max(word) FROM item;\n", file);
    finish(file);
}

/* Pieces of 20 lines, as they stand in a driver or a parser: a structure, a table, a short function. */
static void program(const char *directory) {
    FILE *file = create(directory, "program.i");
    for (int piece = 0; piece < PROGRAM_LINES / 20; piece++) {
        fprintf(file, "struct state_%d {\n    int count;\n    short kind[%u];\n};\n\n", piece, 1 + number(16));
        fprintf(file, "static const int table_%d[] = {\n", piece);
        for (int line = 0; line < 5; line++)
            fprintf(file, "    %u, %u, %u, %u,\n", number(1000), number(1000), number(1000), number(1000));
        fprintf(file, "};\n\nint step_%d(struct state_%d *state, int kind)\n{\n", piece, piece);
        fprintf(file, "    if (kind > %u)\n        return -1;\n", number(1000));
        fprintf(file, "    return state->count += table_%d[kind & 15] ^ %u;\n}\n\n", piece, number(1000));
    }
    finish(file);
}

static void make_directory(const char *path) {
    if (mkdir(path, 0755)) {
        perror(path);
        exit(1);
    }
}

static void tree(const char *directory) {
    char path[4096];
    snprintf(path, sizeof path, "%s/tree", directory);
    make_directory(path);
    for (int outer = 0; outer < 10; outer++) {
        snprintf(path, sizeof path, "%s/tree/%s%d", directory, words[outer], outer);
        make_directory(path);
        for (int inner = 0; inner < 20; inner++) {
            snprintf(path, sizeof path, "%s/tree/%s%d/%s%d", directory, words[outer], outer, words[inner], inner);
            make_directory(path);
            for (int leaf = 0; leaf < 10; leaf++) {
                char name[4096];
                snprintf(name, sizeof name, "tree/%s%d/%s%d/%s-%d.txt", words[outer], outer, words[inner], inner, words[leaf], leaf);
                FILE *file = create(directory, name);
                state += (uint64_t)(outer * 200 + inner * 10 + leaf) * 7919;
                int lines = 20 + number(100);
                for (int line = 0; line < lines; line++)
                    fprintf(file, "%s %s %s %u %s\n", words[number(WORDS)], words[number(WORDS)], words[number(WORDS)], number(1000000),
                            words[number(WORDS)]);
                if (number(250) == 0) fputs("the needle\n", file);
                finish(file);
            }
        }
    }
}

static const struct {
    const char *name;
    void (*write)(const char *directory);
} outputs[] = {{"text", text}, {"statements.sql", statements}, {"program.i", program}, {"tree", tree}};

int main(int argument_count, char **arguments) {
    make_words();
    for (unsigned index = 0; argument_count == 3 && index < sizeof outputs / sizeof *outputs; index++)
        if (!strcmp(outputs[index].name, arguments[2])) {
            outputs[index].write(arguments[1]);
            return 0;
        }
    fputs("usage: generate DIRECTORY text|statements.sql|program.i|tree\n", stderr);
    return 2;
}
