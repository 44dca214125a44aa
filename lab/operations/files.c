// Files on a tmpfs (the papers' RAM disk): create and delete, empty and of 10 KiB.
#include "operations.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BATCH 64
#define MOST 400

static size_t content;

static const char *directory(void) {
    return scratch() ? NULL : "no directory on a tmpfs that can be written";
}

static char *name(int i) {
    static char text[300];
    snprintf(text, sizeof text, "%s/levee-op-%d-%d", scratch(), (int)getpid(), i);
    return text;
}

static void create(int i) {
    static char block[10 << 10];
    int f = open(name(i), O_CREAT | O_EXCL | O_WRONLY, 0600);
    if (f < 0 || write(f, block, content) != (ssize_t)content || close(f))
        failed("a file");
}

// Batches of files, made and removed: of each a quick batch.
static double batches(double seconds, int removal) {
    double made[MOST], removed[MOST];
    size_t count = 0;
    int64_t end = now() + (int64_t)(seconds * 1e9);
    do {
        int64_t a = now();
        for (int i = 0; i < BATCH; i++)
            create(i);
        int64_t b = now();
        for (int i = 0; i < BATCH; i++)
            if (unlink(name(i)))
                failed("removing a file");
        made[count] = (double)(b - a) / BATCH;
        removed[count++] = (double)(now() - b) / BATCH;
    } while (count < MOST && (now() < end || count < 3));
    return quarter(removal ? removed : made, count);
}

static double create_0(double seconds) { content = 0; return batches(seconds, 0); }
static double delete_0(double seconds) { content = 0; return batches(seconds, 1); }
static double create_10(double seconds) { content = 10 << 10; return batches(seconds, 0); }
static double delete_10(double seconds) { content = 10 << 10; return batches(seconds, 1); }

const struct op FILES[] = {
    {"create-0K", directory, NULL, 0, create_0},   {"delete-0K", directory, NULL, 0, delete_0},
    {"create-10K", directory, NULL, 0, create_10}, {"delete-10K", directory, NULL, 0, delete_10},
    {NULL, NULL, NULL, 0, NULL},
};
