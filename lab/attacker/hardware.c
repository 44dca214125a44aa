// Channels through the processor and what lies beyond it: time, queues, caches, translations, memory.
#include "attacker.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#ifdef __x86_64__
#include <x86intrin.h>
#endif

static volatile uint8_t *buffer;
static size_t size;
static volatile uint64_t sink;

static const char *nothing(const char *argument, int above) {
    (void)argument, (void)above;
    return NULL;
}

static double busy(ns until) {
    double n = 0;
    while (now() < until) {
        for (int i = 0; i < 64; i++)
            sink += (uint64_t)i;
        n++;
    }
    return n;
}

static void busy_send(unsigned symbol, ns until) {
    if (symbol)
        busy(until);
}

// How late a sleeper is woken on a processor that another one uses.
static double queue_observe(ns until) {
    double worst = 0;
    while (now() < until - 60000) {
        struct timespec nap = {0, 20000};
        ns before = now();
        nanosleep(&nap, NULL);
        double took = (double)(now() - before);
        worst = took > worst ? took : worst;
    }
    return worst;
}

// Where time is cut into slots: a call of the kernel's that nothing but death interrupts lasts beyond the end of the sender's slot, and the
// receiver's begins later.
static void outlast_send(unsigned symbol, ns until) {
    size_t length = (size_t)symbol << 23;
    while (symbol && now() < until) {
        void *m = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (m == MAP_FAILED)
            return;
        munmap(m, length);
    }
}

static double longest_gap(ns until) {
    ns last = now(), gap = 0;
    while (last < until) {
        ns t = now();
        gap = t - last > gap ? t - last : gap;
        last = t;
    }
    return (double)gap;
}

// Sweeps over memory of some size, a line or a page at a time. `L1`, `L2`, `LLC`, `TLB`: what is driven out, and how far the
// steps are.
static size_t step;

static const char *sweep_open(const char *what, int above) {
    static const struct {
        const char *name;
        size_t above, below, step;
    } SIZES[] = {{"L1", 96 << 10, 32 << 10, 64},
                 {"L2", 4 << 20, 1 << 20, 64},
                 {"LLC", 96 << 20, 8 << 20, 64},
                 {"TLB", 16 << 20, 512 << 10, 4096 + 64}};
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        if (what && !strcmp(SIZES[i].name, what)) {
            size = above ? SIZES[i].above : SIZES[i].below;
            step = SIZES[i].step;
        }
    if (!size)
        return "no such cache";
    void *m = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (m == MAP_FAILED)
        return refused("mmap");
    madvise(m, size, MADV_NOHUGEPAGE);
    memset(m, 1, size);
    buffer = m;
    return NULL;
}

static void sweep(void) {
    for (size_t at = 0; at < size; at += step)
        sink += buffer[at];
}

static void sweep_send(unsigned symbol, ns until) {
    while (symbol && now() < until - (until - now()) / 3)
        sweep();
}

// Fills, lets the other one run, and times the second sweep.
static double prime_observe(ns until) {
    sweep();
    ns left = until - now();
    struct timespec nap = {0, (long)(left > 0 ? left / 4 * 3 : 0)};
    nanosleep(&nap, NULL);
    uint64_t before = cycles();
    sweep();
    return (double)(cycles() - before);
}

// Sweeps all the while: how many lines in the window.
static double sweep_observe(ns until) {
    double n = 0;
    while (now() < until) {
        for (size_t i = 0; i < 4096; i++)
            sink += buffer[(size_t)(n + (double)i) * 64 * 97 % size];
        n += 4096;
    }
    return n;
}

static const char *memory_open(const char *argument, int above) {
    (void)argument, (void)above;
    size = 64 << 20;
    void *m = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    buffer = m;
    return m == MAP_FAILED ? refused("mmap") : NULL;
}

static double stream(ns until) {
    static size_t at;
    double n = 0;
    while (now() < until) {
#ifdef __x86_64__
        for (size_t i = 0; i < 1 << 15; i += 8)
            _mm_stream_si64((long long *)(uintptr_t)(buffer + at + i), (long long)i);
#else
        memset((void *)(uintptr_t)(buffer + at), 2, 1 << 15);
#endif
        at = (at + (1 << 15)) % size;
        n++;
    }
    return n;
}

static void stream_send(unsigned symbol, ns until) {
    if (symbol)
        stream(until);
}

#ifdef __x86_64__
// Flush and reload: a line that both have is driven out by the one, and found again sooner if the other has read it. `vdso`, `zero`
// (the page of all memory that nobody has written), or a file.
static const volatile uint8_t *shared;

static const char *reload_open(const char *what, int above) {
    (void)above;
    void *m = NULL;
    if (what && !strcmp(what, "vdso")) {
        m = (void *)getauxval(AT_SYSINFO_EHDR);
    } else if (what && !strcmp(what, "zero")) {
        m = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    } else {
        if (!what && !(what = common_file()))
            return "no file of /usr to map";
        int fd = open(what, O_RDONLY | O_CLOEXEC);
        m = fd < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    }
    shared = what && !strcmp(what, "zero") ? (uint8_t *)m + 2048 : m; // of programs: their header, which nobody runs
    return !m || m == MAP_FAILED ? refused("a page to share") : NULL;
}

static void reload_send(unsigned symbol, ns until) {
    (void)until;
    if (symbol)
        sink += *shared;
}

static double reload_observe(ns until) {
    (void)until;
    uint64_t before = cycles();
    sink += *shared;
    uint64_t took = cycles() - before;
    _mm_clflush((const void *)(uintptr_t)shared);
    _mm_mfence();
    return (double)(took < 2000 ? took : 2000);
}

// The generator of random numbers that all cores share.
__attribute__((target("rdseed"))) static double draw(ns until) {
    double n = 0;
    while (now() < until) {
        unsigned long long value;
        for (int i = 0; i < 16; i++)
            n += __builtin_ia32_rdseed_di_step(&value);
    }
    return n;
}

static const char *draw_open(const char *argument, int above) {
    (void)argument, (void)above;
    return __builtin_cpu_supports("rdseed") ? NULL : "this processor has no RDSEED";
}

static void draw_send(unsigned symbol, ns until) {
    if (symbol)
        draw(until);
}

// An atomic operation on two lines at once stops the bus for every core.
static double split(ns until, int two) {
    double n = 0;
    volatile uint64_t *at = (void *)(uintptr_t)(buffer + 4096 - (two ? 4 : 64));
    while (now() < until) {
        for (int i = 0; i < 16; i++)
            __atomic_fetch_add(at, 1, __ATOMIC_SEQ_CST);
        n += 16;
    }
    return n;
}

static void split_send(unsigned symbol, ns until) {
    if (symbol)
        split(until, 1);
}

static double split_observe(ns until) {
    return stream(until);
}
#endif

const struct channel HARDWARE[] = {
    {"processor", WORK, 2, nothing, busy_send, busy},
    {"run-queue", WORK, 2, nothing, busy_send, queue_observe},
    {"outlast", WORK, 8, nothing, outlast_send, longest_gap},
    {"cache-primed", WORK, 2, sweep_open, sweep_send, prime_observe},
    {"cache-swept", WORK, 2, sweep_open, sweep_send, sweep_observe},
    {"memory-bandwidth", WORK, 2, memory_open, stream_send, stream},
#ifdef __x86_64__
    {"flush-reload", STATE, 2, reload_open, reload_send, reload_observe},
    {"random-numbers", WORK, 2, draw_open, draw_send, draw},
    {"split-lock", WORK, 2, memory_open, split_send, split_observe},
#endif
    {0},
};
