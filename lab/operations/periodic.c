// A periodic application, as the paper's: each period it has data of so many units to take in, to work on and to hand on, and until the
// next one to do it. And what takes all that it can of a processor beside it.
#include "operations.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PERIOD 10000000LL
#define UNIT (32 << 10)
#define PERIODS 65536
// So that a unit is about a twentieth of a period on a processor of 3 GHz.
#define PASSES 16
#define HOGS 8
#define HOGGED (32 << 20)

static int from, to;
static float data[UNIT / sizeof(float)];
volatile float kept;

// A connection to itself: the data comes and goes by the system.
static const char *connected(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, size) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&at, &size))
        return refused("a listener");
    to = socket(AF_INET, SOCK_STREAM, 0);
    if (to < 0 || connect(to, (struct sockaddr *)&at, size) || setsockopt(to, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on))
        return refused("a connection");
    from = accept(listener, NULL, NULL);
    return from < 0 ? refused("a connection") : NULL;
}

static void unit(void) {
    if (write(to, data, UNIT) != UNIT)
        failed("handing on");
    for (size_t got = 0; got < UNIT;) {
        ssize_t n = read(from, (char *)data + got, UNIT - got);
        if (n <= 0)
            failed("taking in");
        got += (size_t)n;
    }
    float sum = 0;
    for (int pass = 0; pass < PASSES; pass++)
        for (size_t i = 0; i < UNIT / sizeof(float); i++)
            sum = sum * 0.5f + data[i];
    kept = sum;
}

static int rising(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double periodic(unsigned units, double seconds, double *missed, double *late) {
    static double each[PERIODS];
    const char *why = connected();
    if (why)
        failed(why);
    size_t count = 0, misses = 0;
    int64_t due = now() + PERIOD, end = due + (int64_t)(seconds * 1e9);
    while (count < PERIODS && (due < end || count < 8)) {
        struct timespec until = {.tv_sec = due / 1000000000LL, .tv_nsec = due % 1000000000LL};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        for (unsigned i = 0; i < units; i++)
            unit();
        int64_t done = now();
        each[count++] = (double)(done - due);
        misses += done > due + PERIOD;
        for (due += PERIOD; due < done; due += PERIOD) // its data is lost
            misses++;
    }
    qsort(each, count, sizeof *each, rising);
    *missed = 100.0 * (double)misses / (double)(count + misses);
    *late = each[count - 1 - count / 100];
    return each[count / 2];
}

// A sum, so often: by short batches it is what a sum costs while the program runs.
static void sum(size_t n) {
    float all = 0;
    for (; n; n--)
        for (size_t i = 0; i < UNIT / sizeof(float); i++)
            all = all * 0.5f + data[i];
    kept = all;
}

// Work by the clock, with all the time in which the program did not run: what stands still in another's slots shows here, and not where
// the quickest of short batches count.
static double steady(double seconds) {
    int64_t begin = now(), end = begin + (int64_t)(seconds * 1e9), at = begin;
    size_t done = 0;
    for (; at < end; at = now(), done++)
        sum(1);
    return (double)(at - begin) / (double)done;
}

const struct op STEADY[] = {{.name = "sum", .run = sum}, {.name = "steady", .measure = steady}, {0}};

double woken(double seconds, double *late) {
    static double each[PERIODS];
    uint64_t state = (uint64_t)now();
    size_t count = 0;
    double sum = 0;
    int64_t due = now(), end = due + (int64_t)(seconds * 1e9);
    while (count < PERIODS && (due < end || count < 8)) {
        // Knuth's MMIX; from 1 to 5 ms, so that the times follow no slot's.
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        due += 1000000 + (int64_t)((state >> 33) % 4000000);
        struct timespec until = {.tv_sec = due / 1000000000LL, .tv_nsec = due % 1000000000LL};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
            ;
        each[count] = (double)(now() - due);
        sum += each[count++];
    }
    qsort(each, count, sizeof *each, rising);
    *late = each[count - 1 - count / 100];
    return sum / (double)count;
}

// Takes the processor by many processes, half of which take its caches and memory besides.
void hog(double seconds) {
    int64_t end = now() + (int64_t)(seconds * 1e9);
    for (int i = 0; i < HOGS; i++) {
        pid_t child = fork();
        if (child < 0)
            failed("a process");
        if (child == 0) {
            volatile char *memory = i % 2 ? malloc(HOGGED) : NULL;
            for (size_t at = 0; now() < end;)
                for (int n = 0; n < 4096; n++, at += 64)
                    if (memory)
                        memory[at % HOGGED]++;
            _exit(0);
        }
    }
    while (wait(NULL) > 0)
        ;
}
