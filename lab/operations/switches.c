// Context switches: a byte goes round a ring of processes on one processor; each reads it, adds up its own array, and passes it on.
// What the same reads, writes and sums take without a switch is taken off.
#include "operations.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static size_t processes, bytes;
static int (*pipes)[2];
static volatile uint64_t sink;

static void sum(const uint64_t *array) {
    uint64_t s = 0;
    for (size_t i = 0; i < bytes / sizeof *array; i++)
        s += array[i];
    sink = s;
}

static void pass(int from, int to, const uint64_t *array) {
    char token;
    if (read(from, &token, 1) != 1)
        _exit(0);
    sum(array);
    if (write(to, &token, 1) != 1)
        _exit(0);
}

static uint64_t *array(void) {
    uint64_t *a = malloc(bytes + 64);
    if (!a)
        failed("memory for an array");
    memset(a, 1, bytes + 64);
    return a;
}

// As much by one process: a pipe of its own, and all arrays in turn, so that caches are as full.
static uint64_t **arrays;
static void alone(size_t n) {
    for (size_t i = 0; i < n; i++)
        for (size_t p = 0; p < processes; p++)
            pass(pipes[processes][0], pipes[processes][1], arrays[p]);
}

static uint64_t *mine;
static void round_the_ring(size_t n) {
    char token = 0;
    for (size_t i = 0; i < n; i++) {
        if (write(pipes[0][1], &token, 1) != 1 || read(pipes[processes - 1][0], &token, 1) != 1)
            failed("the ring");
        sum(mine);
    }
}

static double ring(double seconds) {
    pipes = calloc(processes + 1, sizeof *pipes);
    arrays = calloc(processes, sizeof *arrays);
    pid_t *children = calloc(processes, sizeof *children);
    if (!pipes || !arrays || !children)
        failed("memory for a ring");
    for (size_t p = 0; p <= processes; p++)
        if (pipe(pipes[p]))
            failed("a pipe");
    for (size_t p = 0; p < processes; p++)
        arrays[p] = array();
    char token = 0;
    if (write(pipes[processes][1], &token, 1) != 1)
        failed("a pipe");
    double without = timed(alone, seconds / 3) / processes;
    // process p reads from pipe p-1 and writes to pipe p; this one writes to pipe 0 and reads from the last
    for (size_t p = 1; p < processes; p++) {
        children[p] = fork();
        if (children[p] < 0)
            failed("a process of the ring");
        if (children[p] == 0) {
            uint64_t *own = array();
            for (;;)
                pass(pipes[p - 1][0], pipes[p][1], own);
        }
    }
    mine = array();
    double with = timed(round_the_ring, seconds * 2 / 3) / processes;
    for (size_t p = 1; p < processes; p++) {
        kill(children[p], SIGKILL);
        waitpid(children[p], NULL, 0);
    }
    return with > without ? with - without : 0;
}

#define RING(NAME, P, K) \
    static double NAME(double seconds) { \
        processes = P; \
        bytes = (K) << 10; \
        return ring(seconds); \
    }
RING(two_none, 2, 0)
RING(two_16, 2, 16)
RING(two_64, 2, 64)
RING(eight_16, 8, 16)
RING(eight_64, 8, 64)
RING(sixteen_16, 16, 16)
RING(sixteen_64, 16, 64)

const struct op SWITCHES[] = {
    {"switch-2p-0K", NULL, NULL, 0, two_none},      {"switch-2p-16K", NULL, NULL, 0, two_16},
    {"switch-2p-64K", NULL, NULL, 0, two_64},       {"switch-8p-16K", NULL, NULL, 0, eight_16},
    {"switch-8p-64K", NULL, NULL, 0, eight_64},     {"switch-16p-16K", NULL, NULL, 0, sixteen_16},
    {"switch-16p-64K", NULL, NULL, 0, sixteen_64}, {NULL, NULL, NULL, 0, NULL},
};
