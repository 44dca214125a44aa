// Channels through what the kernel has once for the whole machine: descriptors, locks, futexes, numbers that are counted up,
// what is in memory of a file, clocks.
#include "attacker.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/futex.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <math.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int fd = -1;
static double last = NAN;

// What a counter advanced since the last look.
static double advance(double value) {
    double d = value - last;
    last = value;
    return d;
}

static const char *open_path(const char *path, int above) {
    (void)above;
    fd = path && path[0] != '/' ? atoi(path) : path ? open(path, O_RDONLY | O_CLOEXEC) : eventfd(0, 0);
    return fd < 0 || fcntl(fd, F_GETFD) < 0 ? refused(path ? path : "eventfd") : NULL;
}

// Locks. The sender holds a lock on one of 256 bytes; who asks for all of them is told which. A read lock suffices, so the
// descriptor need not be writable.
static void lock_send(unsigned symbol, ns until) {
    (void)until;
    struct flock l = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = 4096, .l_len = 256};
    fcntl(fd, F_SETLK, &l);
    l = (struct flock){.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 4096 + symbol, .l_len = 1};
    fcntl(fd, F_SETLK, &l);
}

static double lock_observe(ns until) {
    (void)until;
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 4096, .l_len = 256};
    if (fcntl(fd, F_GETLK, &l) < 0)
        return NAN;
    return l.l_type == F_UNLCK ? -1 : (double)(l.l_start - 4096);
}

// The flags of an open file, which all have who inherited it.
static void flags_send(unsigned symbol, ns until) {
    (void)until;
    fcntl(fd, F_SETFL, (symbol & 1 ? O_NONBLOCK : 0) | (symbol & 2 ? O_APPEND : 0));
}

static double flags_observe(ns until) {
    (void)until;
    int flags = fcntl(fd, F_GETFL);
    return (flags & O_NONBLOCK ? 1 : 0) + (flags & O_APPEND ? 2 : 0);
}

static void offset_send(unsigned symbol, ns until) {
    (void)until;
    lseek(fd, symbol, SEEK_SET);
}

static double offset_observe(ns until) {
    (void)until;
    return (double)lseek(fd, 0, SEEK_CUR);
}

// Futexes on a page of a file: their keys are the inode's.
static const volatile uint32_t *page;

static const char *largest;
static off_t largest_size;

static int larger(const char *path, const struct stat *s, int kind, struct FTW *at) {
    (void)at;
    if (kind == FTW_F && S_ISREG(s->st_mode) && s->st_mode & S_IROTH && s->st_size >= 1 << 20 && s->st_size <= 8 << 20
        && (s->st_size > largest_size || (s->st_size == largest_size && strcmp(path, largest) < 0))) {
        largest = strdup(path);
        largest_size = s->st_size;
    }
    return 0;
}

const char *common_file(void) {
    nftw("/usr/share", larger, 32, FTW_PHYS);
    if (!largest)
        nftw("/usr/lib", larger, 32, FTW_PHYS);
    return largest;
}

static const char *futex_open(const char *path, int above) {
    (void)above;
    if (!path && !(path = common_file()))
        return "no file of /usr to map";
    if ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        return refused(path);
    void *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    page = map;
    return map == MAP_FAILED ? refused("mmap") : NULL;
}

static void futex_send(unsigned symbol, ns until) {
    while (syscall(SYS_futex, page + symbol * 8, FUTEX_WAKE, 1, NULL, NULL, 0) == 0 && now() < until)
        ;
}

static double futex_observe(ns until) {
    struct futex_waitv all[64] = {0};
    for (int i = 0; i < 64; i++)
        all[i] = (struct futex_waitv){page[i * 8], (uintptr_t)(page + i * 8), FUTEX_32, 0};
    struct timespec at = {until / 1000000000, until % 1000000000};
    long woken = syscall(SYS_futex_waitv, all, 64, 0, &at, CLOCK_REALTIME);
    return woken >= 0 ? (double)woken : errno == ETIMEDOUT ? -1 : NAN;
}

// What is in memory of a file: the sender reads one of eight pages, the receiver times them all, and has them dropped.
static const char *cache_open(const char *path, int above) {
    if (!path && !(path = common_file()))
        return "no file of /usr to read";
    if ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        return refused(path);
    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    if (!above)
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return NULL;
}

static off_t cache_page(unsigned i) {
    return (off_t)(i + 1) * 25 * 4096;
}

static void cache_send(unsigned symbol, ns until) {
    char byte;
    (void)until;
    if (pread(fd, &byte, 1, cache_page(symbol)) < 0)
        return;
}

static double cache_observe(ns until) {
    uint64_t took[8], least = UINT64_MAX, most = 0;
    double seen = -1;
    (void)until;
    for (unsigned i = 0; i < 8; i++) {
        char byte;
        uint64_t before = cycles();
        if (pread(fd, &byte, 1, cache_page(i)) < 0)
            return NAN;
        took[i] = cycles() - before;
        most = took[i] > most ? took[i] : most;
        if (took[i] < least) {
            least = took[i];
            seen = i;
        }
    }
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return least * 4 < most ? seen : -1;
}

// Numbers that the whole machine counts up. `make` uses up one, `number` says the next.
static double (*number)(void);
static void (*make)(void);
static int each;

static double inode(int of) {
    struct stat s;
    double n = of >= 0 && fstat(of, &s) == 0 ? (double)s.st_ino : NAN;
    close(of);
    return n;
}

static double pipe_number(void) {
    int ends[2];
    if (pipe(ends))
        return NAN;
    close(ends[1]);
    return inode(ends[0]);
}

static double socket_number(void) {
    return inode(socket(AF_UNIX, SOCK_STREAM, 0));
}

static double port_number(void) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)}, own = to;
    to.sin_addr.s_addr = htonl(0x7f000009);
    socklen_t length = sizeof own;
    int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    connect(s, (struct sockaddr *)&to, sizeof to); // nobody listens there
    int got = getsockname(s, (struct sockaddr *)&own, &length);
    close(s);
    return got || !own.sin_port ? NAN : ntohs(own.sin_port);
}

static double memfd_number(void) {
    return inode(memfd_create("x", 0));
}

static pid_t short_life(int session) {
    pid_t child = fork();
    if (child == 0) {
        if (session)
            setsid();
        _exit(0);
    }
    return child;
}

static double process_number(void) {
    pid_t child = short_life(0);
    double n = inode((int)syscall(SYS_pidfd_open, child, 0));
    waitpid(child, NULL, 0);
    return n;
}

// What a child says that has a session of its own: the number in /proc/self/autogroup, or the audit session's.
static double said_by_child(int audit) {
    int ends[2];
    if (pipe(ends))
        return NAN;
    pid_t child = fork();
    if (child == 0) {
        char text[100] = "";
        int in = -1;
        if (audit) {
            int out = open("/proc/self/loginuid", O_WRONLY);
            int length = snprintf(text, sizeof text, "%d", getuid());
            if (out < 0 || write(out, text, (size_t)length) < 0)
                _exit(1);
            in = open("/proc/self/sessionid", O_RDONLY);
        } else if (setsid() > 0) {
            in = open("/proc/self/autogroup", O_RDONLY);
        }
        ssize_t got = in < 0 ? -1 : read(in, text, sizeof text - 1);
        _exit(got > 0 && write(ends[1], text, (size_t)got) > 0 ? 0 : 1);
    }
    close(ends[1]);
    char text[100] = "";
    ssize_t got = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    waitpid(child, NULL, 0);
    const char *digits = text + strcspn(text, "0123456789");
    return got > 0 ? atof(digits) : NAN;
}

static double autogroup_number(void) {
    return said_by_child(0);
}

static double audit_number(void) {
    return said_by_child(1);
}

// The number of an eventfd is the lowest that is free on the machine: the sender holds as many as its symbol says.
static double eventfd_number(void) {
    char path[64], text[400] = "";
    int e = eventfd(0, 0);
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", e);
    int info = open(path, O_RDONLY);
    ssize_t got = info < 0 ? -1 : read(info, text, sizeof text - 1);
    close(info);
    close(e);
    const char *id = strstr(text, "eventfd-id:");
    return got > 0 && id ? atof(id + 11) : NAN;
}

static void make_numbered(void) {
    number();
}

static const struct counter {
    const char *name;
    double (*number)(void);
    int each;
} COUNTERS[] = {{"pipe", pipe_number, 4},           {"socket", socket_number, 4},
                {"memfd", memfd_number, 4},         {"port", port_number, 4},
                {"process", process_number, 1},     {"autogroup", autogroup_number, 1},
                {"audit-session", audit_number, 1}};

static const char *counter_open(const char *name, int above) {
    (void)above;
    for (size_t i = 0; i < sizeof COUNTERS / sizeof *COUNTERS; i++)
        if (name && !strcmp(COUNTERS[i].name, name)) {
            number = COUNTERS[i].number;
            make = make_numbered;
            each = COUNTERS[i].each;
        }
    if (!number)
        return "no such counter";
    return isnan(last = number()) ? refused("nothing is counted") : NULL;
}

static void counter_send(unsigned symbol, ns until) {
    for (unsigned i = 0; i < symbol * (unsigned)each && now() < until; i++)
        make();
}

static double counter_observe(ns until) {
    (void)until;
    return advance(number());
}

static const char *eventfd_open(const char *argument, int above) {
    (void)argument, (void)above;
    return isnan(eventfd_number()) ? refused("/proc/self/fdinfo") : NULL;
}

static void eventfd_send(unsigned symbol, ns until) {
    static int held[64], count;
    (void)until;
    while (count > 0)
        close(held[--count]);
    while (count < (int)symbol * 4)
        held[count++] = eventfd(0, 0);
}

static double eventfd_observe(ns until) {
    (void)until;
    return eventfd_number();
}

const char *interface(void) {
    static char name[IFNAMSIZ];
    struct if_nameindex *all = name[0] ? NULL : if_nameindex();
    for (struct if_nameindex *i = all; i && i->if_index; i++)
        if (strcmp(i->if_name, "lo"))
            memcpy(name, i->if_name, strnlen(i->if_name, IFNAMSIZ - 1) + 1);
    if (all)
        if_freenameindex(all);
    return name;
}

// Look-ups in the table of neighbours, which are counted for the whole machine.
static const char *neighbour_open(const char *argument, int above) {
    (void)argument;
    fd = above ? socket(AF_INET, SOCK_DGRAM, 0) : socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    return fd < 0 ? refused("socket") : NULL;
}

static void neighbour_send(unsigned symbol, ns until) {
    for (unsigned i = 0; i < symbol * 2 && now() < until; i++) {
        struct arpreq ask = {0};
        memcpy(ask.arp_dev, interface(), sizeof ask.arp_dev);
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a500107)};
        memcpy(&ask.arp_pa, &address, sizeof address);
        ioctl(fd, SIOCGARP, &ask);
    }
}

static double neighbour_observe(ns until) {
    (void)until;
    struct {
        struct nlmsghdr head;
        struct ndtmsg body;
    } ask = {{sizeof ask, RTM_GETNEIGHTBL, NLM_F_REQUEST | NLM_F_DUMP, 1, 0}, {.ndtm_family = AF_INET}};
    static char said[65536];
    double seen = NAN;
    if (send(fd, &ask, sizeof ask, 0) < 0)
        return NAN;
    for (int done = 0; !done;) {
        ssize_t got = recv(fd, said, sizeof said, 0);
        if (got <= 0)
            return NAN;
        struct nlmsghdr *m = (void *)said;
        for (unsigned left = (unsigned)got; NLMSG_OK(m, left); m = NLMSG_NEXT(m, left)) {
            done |= m->nlmsg_type == NLMSG_DONE || m->nlmsg_type == NLMSG_ERROR;
            if (m->nlmsg_type != RTM_NEWNEIGHTBL || !isnan(seen))
                continue;
            struct rtattr *a = (void *)((char *)NLMSG_DATA(m) + NLMSG_ALIGN(sizeof(struct ndtmsg)));
            for (int room = (int)m->nlmsg_len - NLMSG_SPACE(sizeof(struct ndtmsg)); RTA_OK(a, room); a = RTA_NEXT(a, room))
                if ((a->rta_type & NLA_TYPE_MASK) == NDTA_STATS)
                    seen = (double)((struct ndt_stats *)RTA_DATA(a))->ndts_lookups;
        }
    }
    return advance(seen);
}

// Since Linux 6.13 a fine timestamp that anybody is given is a floor for every coarse one after it.
static const char *floor_open(const char *argument, int above) {
    (void)argument;
    if (above && (fd = open("/tmp/floor", O_RDWR | O_CREAT | O_TRUNC, 0600)) < 0)
        return refused("/tmp/floor");
    return NULL;
}

static void floor_send(unsigned symbol, ns until) {
    struct stat s;
    while (symbol && now() < until) {
        fstat(fd, &s); // who has looked at a time must see the next change
        if (write(fd, "x", 1) < 0 || lseek(fd, 0, SEEK_SET) < 0)
            return;
    }
}

// How old the time is that a new pipe gets: it is the last tick's, or that of the last fine one.
static double floor_observe(ns until) {
    (void)until;
    int ends[2];
    struct stat s;
    if (pipe(ends))
        return NAN;
    fstat(ends[0], &s);
    ns age = now() - (s.st_ctim.tv_sec * 1000000000LL + s.st_ctim.tv_nsec);
    close(ends[0]);
    close(ends[1]);
    return (double)age;
}

// Counts of /proc/net that are kept for the whole machine.
static const char *stat_file, *stat_line;
static int stat_word;
static int (*queue)[2], queues;

static const char *socket_open(const char *argument, int above) {
    static const struct {
        const char *name, *file, *line;
        int word;
    } COUNTS[] = {{"alloc", "/proc/self/net/sockstat", "TCP:", 8},
                  {"memory", "/proc/self/net/protocols", "UNIX-STREAM", 3},
                  {"sockets", "/proc/self/net/sockstat", "sockets:", 2}};
    for (size_t i = 0; i < sizeof COUNTS / sizeof *COUNTS; i++)
        if (argument && !strcmp(COUNTS[i].name, argument)) {
            stat_file = COUNTS[i].file;
            stat_line = COUNTS[i].line;
            stat_word = COUNTS[i].word;
        }
    if (!stat_file)
        return "no such count";
    queue = calloc(16 * 8, sizeof *queue);
    return !above && access(stat_file, R_OK) ? refused(stat_file) : NULL;
}

static void socket_send(unsigned symbol, ns until) {
    (void)until;
    while (queues > 0)
        close(queue[--queues][0]);
    while (queues < (int)symbol * 8)
        queue[queues++][0] = socket(AF_INET, SOCK_STREAM, 0);
}

static double socket_observe(ns until) {
    (void)until;
    FILE *f = fopen(stat_file, "r");
    char line[400];
    double seen = NAN;
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, stat_line, strlen(stat_line)))
            continue;
        char *rest = line, *word = NULL;
        for (int i = 0; i <= stat_word && (word = strsep(&rest, " \n"));)
            i += *word != 0;
        seen = word ? atof(word) : NAN;
    }
    if (f)
        fclose(f);
    return seen;
}

// A channel of a known rate, to try the meter on: a byte of a file, in which so many of a thousand symbols are flipped. `PATH:THOUSANDTHS`
static unsigned flipped;

static const char *artificial_open(const char *argument, int above) {
    char path[200];
    (void)above;
    if (!argument || sscanf(argument, "%199[^:]:%u", path, &flipped) != 2)
        return "no file and rate";
    return (fd = open(path, O_RDWR | O_CREAT, 0600)) < 0 ? refused(path) : NULL;
}

static void artificial_send(unsigned symbol, ns until) {
    static uint64_t state = 1;
    (void)until;
    state = state * 6364136223846793005U + 1442695040888963407U;
    char byte = (char)(symbol ^ (flipped == 1000 ? symbol : (state >> 33) % 1000 < flipped));
    if (pwrite(fd, &byte, 1, 0) < 0)
        return;
}

static double artificial_observe(ns until) {
    char byte;
    (void)until;
    return pread(fd, &byte, 1, 0) == 1 ? byte : NAN;
}

const struct channel KERNEL[] = {
    {"artificial", STATE, 2, artificial_open, artificial_send, artificial_observe},
    {"locks", STATE, 256, open_path, lock_send, lock_observe},
    {"descriptor-flags", STATE, 4, open_path, flags_send, flags_observe},
    {"descriptor-offset", STATE, 256, open_path, offset_send, offset_observe},
    {"futex", WORK, 64, futex_open, futex_send, futex_observe},
    {"page-cache", STATE, 8, cache_open, cache_send, cache_observe},
    {"counter", STATE, 16, counter_open, counter_send, counter_observe},
    {"eventfd-number", STATE, 16, eventfd_open, eventfd_send, eventfd_observe},
    {"neighbours", STATE, 16, neighbour_open, neighbour_send, neighbour_observe},
    {"timestamps", STATE, 2, floor_open, floor_send, floor_observe},
    {"socket-counts", STATE, 16, socket_open, socket_send, socket_observe},
    {0},
};
