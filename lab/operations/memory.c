// Mappings, faults, and how long a load takes by how much memory it comes from.
#include "operations.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAPPED (4u << 20)
#define PAGE 4096u

static int file = -1;
static char *page;
static sigjmp_buf back;

static const char *open_file(void) {
    char name[300];
    if (!scratch())
        return "no directory on a tmpfs that can be written";
    snprintf(name, sizeof name, "%s/levee-op-map-%d", scratch(), (int)getpid());
    file = open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
    if (file < 0 || unlink(name))
        return refused("a file to map");
    char *block = calloc(1, MAPPED);
    if (!block || write(file, block, MAPPED) != (ssize_t)MAPPED)
        return refused("filling a file to map");
    free(block);
    return NULL;
}

// 4 MiB of a file mapped, a page in each 64 KiB read, and unmapped.
static void map(size_t n) {
    for (size_t i = 0; i < n; i++) {
        volatile char *at = mmap(NULL, MAPPED, PROT_READ, MAP_SHARED, file, 0);
        if (at == MAP_FAILED)
            failed("mmap");
        for (size_t p = 0; p < MAPPED; p += 16 * PAGE)
            (void)at[p];
        if (munmap((void *)at, MAPPED))
            failed("munmap");
    }
}

static void caught(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

static const char *open_protected(void) {
    struct sigaction action = {.sa_handler = caught, .sa_flags = SA_NODEFER};
    page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return page == MAP_FAILED || sigaction(SIGSEGV, &action, NULL) ? refused("a protected page") : NULL;
}

// A write to a page that may not be written, caught.
static void protection_fault(size_t n) {
    for (volatile size_t i = 0; i < n; i++)
        if (!sigsetjmp(back, 0))
            *(volatile char *)page = 1;
}

// A page of a file that is in memory already, copied at the first write to it.
static double page_fault(double seconds) {
    double batch[2000];
    size_t count = 0;
    int64_t end = now() + (int64_t)(seconds * 1e9);
    do {
        volatile char *at = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
        if (at == MAP_FAILED)
            failed("mmap");
        int64_t a = now();
        for (size_t p = 0; p < MAPPED; p += PAGE)
            at[p] = 1;
        batch[count++] = (double)(now() - a) / (MAPPED / PAGE);
        munmap((void *)at, MAPPED);
    } while (count < 2000 && (now() < end || count < 3));
    return quarter(batch, count);
}

static void **chain;

static void chase(size_t n) {
    void **at = chain;
    for (size_t i = 0; i < n; i++) {
        at = *at; at = *at; at = *at; at = *at; at = *at; at = *at; at = *at; at = *at;
        at = *at; at = *at; at = *at; at = *at; at = *at; at = *at; at = *at; at = *at;
    }
    chain = at;
}

double latency(size_t size, size_t stride, double seconds) {
    size_t step = stride ? stride : 64, count = size / step;
    char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    size_t *order = malloc(count * sizeof *order);
    if (at == MAP_FAILED || !order || count < 2)
        failed("memory for a chain");
    for (size_t i = 0; i < count; i++)
        order[i] = i;
    uint64_t random = 0x9e3779b97f4a7c15u;
    for (size_t i = count - 1; !stride && i > 0; i--) { // Fisher and Yates
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        size_t other = random % (i + 1), kept = order[i];
        order[i] = order[other], order[other] = kept;
    }
    // Strides go downwards, as no prefetcher expects it of a large one.
    for (size_t i = 0; i < count; i++)
        *(void **)(at + order[count - 1 - i] * step) = at + order[(2 * count - 2 - i) % count] * step;
    chain = (void **)(at + order[count - 1] * step);
    chase(count / 16 + 1);
    double one = timed(chase, seconds) / 16;
    munmap(at, size);
    free(order);
    return one;
}

static double l1(double seconds) { return latency(16 << 10, 64, seconds); }
static double l2(double seconds) { return latency(256 << 10, 0, seconds); }
static double memory(double seconds) { return latency(64 << 20, 256, seconds); }
static double memory_random(double seconds) { return latency(64 << 20, 0, seconds); }

const struct op MEMORY[] = {
    {"mmap", open_file, map, 0, NULL},
    {"protection-fault", open_protected, protection_fault, 0, NULL},
    {"page-fault", open_file, NULL, 0, page_fault},
    {"memory-l1", NULL, NULL, 0, l1},
    {"memory-l2", NULL, NULL, 0, l2},
    {"memory-main", NULL, NULL, 0, memory},
    {"memory-random", NULL, NULL, 0, memory_random},
    {NULL, NULL, NULL, 0, NULL},
};
