// Channels through what one program has other processors, or the kernel for others, do: interrupts there, what is written down for the
// whole machine, timers that go on while their owner waits, rows of tables that many have in common.
#include "attacker.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/membarrier.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __x86_64__
#include <x86intrin.h>
#endif

enum { LARGE = 2 << 20, COLLAPSE = 25 };

// A membarrier of everybody's interrupts each processor that runs somebody who has registered for them.
static void barrier(void) {
    syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

static const char *barrier_open(int above) {
    int command = above ? MEMBARRIER_CMD_GLOBAL_EXPEDITED : MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED;
    return syscall(SYS_membarrier, command, 0, 0) ? refused("membarrier") : NULL;
}

// Who has small pages made a large one interrupts every processor.
static char *large;

static void collapse(void) {
    madvise(large, LARGE, MADV_DONTNEED);
    large[0] = 1;
    madvise(large, LARGE, COLLAPSE);
}

static const char *collapse_open(int above) {
    (void)above;
    char *all = mmap(NULL, 2 * LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    large = (char *)(((uintptr_t)all + LARGE - 1) & ~(uintptr_t)(LARGE - 1));
    large[0] = 1;
    return madvise(large, LARGE, COLLAPSE) ? refused("MADV_COLLAPSE") : NULL;
}

// A call that a filter of one's own has written down, in the one queue of the kernel's audit.
static void audited(void) {
    syscall(SYS_getpgrp);
}

static const char *audited_open(int above) {
    (void)above;
    struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpgrp, 0, 1),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_LOG), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) ? refused("a filter") : NULL;
}

// Terminals are made under a lock that all share.
static void terminal(void) {
    close(open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC));
}

static const char *terminal_open(int above) {
    (void)above;
    int made = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    close(made);
    return made < 0 ? refused("/dev/ptmx") : NULL;
}

// An epoll that waits for an epoll is added under a lock that all share.
static int waits[2];

static void nested(void) {
    struct epoll_event of = {.events = EPOLLIN};
    epoll_ctl(waits[0], EPOLL_CTL_ADD, waits[1], &of);
    epoll_ctl(waits[0], EPOLL_CTL_DEL, waits[1], &of);
}

static const char *nested_open(int above) {
    (void)above;
    waits[0] = epoll_create1(EPOLL_CLOEXEC);
    waits[1] = epoll_create1(EPOLL_CLOEXEC);
    return waits[1] < 0 ? refused("epoll_create") : NULL;
}

static const struct way {
    const char *name;
    const char *(*open)(int above);
    void (*once)(void);
    int felt; // whether the receiver only runs, and feels it
} WAYS[] = {{"membarrier", barrier_open, barrier, 1},
            {"collapse", collapse_open, collapse, 1},
            {"audit", audited_open, audited, 0},
            {"terminal", terminal_open, terminal, 0},
            {"epoll", nested_open, nested, 0}};
static const struct way *way;

static const char *way_open(const char *name, int above) {
    for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++)
        if (name && !strcmp(WAYS[i].name, name))
            way = &WAYS[i];
    return way ? way->open(above) : "no such way";
}

static void way_send(unsigned symbol, ns until) {
    while (symbol && now() < until)
        way->once();
}

// How often it can be done; or for how long this program did not run, though it wanted to.
static double way_observe(ns until) {
    double n = 0;
    if (!way->felt)
        for (; now() < until; n++)
            way->once();
    for (ns before = now(), at; before < until; before = at) {
        at = now();
        n += at - before > 250 ? (double)(at - before) : 0;
    }
    return n;
}

// Timers that end while their owner waits, or is kept from running: all at one of sixteen moments of the window's second half. The
// receiver says when it stood still for longest.
enum { TIMERS = 256 };
static int timers[TIMERS];

static const char *timers_open(const char *argument, int above) {
    (void)argument;
    for (int i = 0; above && i < TIMERS; i++)
        if ((timers[i] = timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC)) < 0)
            return refused("timerfd_create");
    return NULL;
}

static void timers_send(unsigned symbol, ns until) {
    ns half = (until - now()) / 2, at = until - half + half / 16 * (ns)symbol;
    struct itimerspec when = {.it_value = {at / 1000000000, at % 1000000000}};
    for (int i = 0; i < TIMERS; i++)
        timerfd_settime(timers[i], TFD_TIMER_ABSTIME, &when, NULL);
}

static double timers_observe(ns until) {
    ns longest = 0, when = 0, begin = now();
    for (ns before = begin, at; before < until; before = at) {
        at = now();
        if (at - before > longest && at - before < 1000000) { // longer: its turn was over
            longest = at - before;
            when = before;
        }
    }
    return longest < 15000 ? -1 : (double)(when - begin);
}

// A row of the table of UDP's ports: how long it takes to look for one that nobody has tells how many others are in its row. In `open` the sender
// fills the row, until the receiver has found it.
enum { IN_ROW = 2000, FEW = 64 };
static struct sockaddr_in6 at = {.sin6_family = AF_INET6};
static int row[IN_ROW], count, asks = -1;

static int bound(void) {
    int one = 1, s = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (s >= 0 && (setsockopt(s, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one) || bind(s, (struct sockaddr *)&at, sizeof at))) {
        close(s);
        return -1;
    }
    return s;
}

static void fill(int most) {
    while (count < most && (row[count] = bound()) >= 0)
        count++;
    while (count > most)
        close(row[--count]);
}

// The quickest of so many looks.
static uint64_t looked(int port, int times) {
    uint64_t least = UINT64_MAX;
    at.sin6_port = htons((uint16_t)port);
    for (int i = 0; i < times; i++) {
        uint64_t before = cycles();
        if (sendto(asks, "", 0, 0, (struct sockaddr *)&at, sizeof at) < 0)
            return 0;
        uint64_t took = cycles() - before;
        least = took < least ? took : least;
    }
    return least;
}

static int port;

static const char *row_open(const char *argument, int above) {
    (void)argument;
    if (above) {
        struct rlimit files;
        if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
            files.rlim_cur = files.rlim_max;
            setrlimit(RLIMIT_NOFILE, &files);
        }
        at.sin6_port = htons(20000);
        fill(IN_ROW);
        if (count < IN_ROW)
            return refused("sockets");
        sleep(2);
        fill(0);
        return NULL;
    }
    at.sin6_addr = in6addr_loopback;
    asks = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    usleep(500000);
    uint64_t most = 0;
    for (int each = 1024; each < 65536; each++) {
        uint64_t took = looked(each, 2);
        if (took > most && (took = looked(each, 20)) > most) {
            most = took;
            port = each;
        }
    }
    return port ? NULL : refused("sendto");
}

static void row_send(unsigned symbol, ns until) {
    (void)until;
    fill(symbol ? FEW : 0);
}

static double row_observe(ns until) {
    (void)until;
    return (double)looked(port, 5);
}

// Who asks for the priority of all processes of a user has the kernel look at every process of the machine.
enum { MADE = 40 };
static pid_t made[MADE];

static const char *all_open(const char *argument, int above) {
    (void)argument, (void)above;
    return syscall(SYS_getpriority, PRIO_USER, getuid()) < 0 ? refused("getpriority") : NULL;
}

static void all_send(unsigned symbol, ns until) {
    static int living;
    while (symbol && living < MADE && now() < until) {
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;)
                pause();
        }
        if (child < 0)
            break;
        made[living++] = child;
    }
    for (; !symbol && living > 0; living--) {
        kill(made[living - 1], SIGKILL);
        waitpid(made[living - 1], NULL, 0);
    }
}

static double all_observe(ns until) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 30 && now() < until; i++) {
        uint64_t before = cycles();
        getpriority(PRIO_USER, getuid());
        uint64_t took = cycles() - before;
        least = took < least ? took : least;
    }
    return (double)least;
}

#ifdef __x86_64__
// As a line of memory that all have (hardware.c), four lines at once, a bit each.
enum { BITS = 4, QUICK = 200 };
static const size_t LINES[BITS] = {3 * 64, 17 * 64, 26 * 64, 39 * 64};
static const volatile uint8_t *memory;
static uint8_t sink;

static const char *lines_open(const char *argument, int above) {
    (void)argument, (void)above;
    memory = (void *)getauxval(AT_SYSINFO_EHDR);
    return memory ? NULL : "no vDSO";
}

static void lines_send(unsigned symbol, ns until) {
    (void)until;
    for (int i = 0; i < BITS; i++)
        if (symbol >> i & 1)
            sink += memory[LINES[i]];
}

static double lines_observe(ns until) {
    (void)until;
    unsigned seen = 0;
    for (int i = 0; i < BITS; i++) {
        uint64_t before = cycles();
        sink += memory[LINES[i]];
        seen |= (unsigned)(cycles() - before < QUICK) << i;
        _mm_clflush((const void *)(uintptr_t)(memory + LINES[i]));
    }
    _mm_mfence();
    return seen;
}
#endif

const struct channel CROSSING[] = {
    {"way", WORK, 2, way_open, way_send, way_observe},
    {"timers", WORK, 16, timers_open, timers_send, timers_observe},
    {"all-processes", STATE, 2, all_open, all_send, all_observe},
    {"row", STATE, 2, row_open, row_send, row_observe},
#ifdef __x86_64__
    {"lines", STATE, 1 << BITS, lines_open, lines_send, lines_observe},
#endif
    {0},
};
