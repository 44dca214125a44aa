// Jobs, one a line, and their answers. `operations jobs`: on standard input; `operations serve`: as a service of a compartment, one a
// connection; `operations listen PORT`: the same for a program that nobody gives a listener, a partition's; `operations list`: what there is;
// `operations nothing`: ends at once, for those that time how programs start; `operations packets INTERFACE loopback|pair clear|cipso|esp|macsec`: whether
// all packets there are such.
//
// A job is `NAME MILLISECONDS PROCESSOR [STORE]`, the last a directory instead of the compartment's; its answer `NANOSECONDS PREEMPTED`: the time of one operation, and how often the
// kernel took the processor away meanwhile; what else was counted follows as `NAME=VALUE`. Or `refused: why`. Each job is a process of its own.
#include "operations.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Short, in nanoseconds, so that most batches are over before the kernel takes the processor away.
#define BATCH 100000
#define BATCHES 20000

static const struct op *const ALL[] = {ARITHMETIC, SYSTEM, SWITCHES, FILES, MEMORY, CALCULATIONS, STORAGE, STEADY};
const char *self;
static int answer = 1;

int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int rising(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double quarter(double *values, size_t count) {
    qsort(values, count, sizeof *values, rising);
    return values[count / 4];
}

double timed(void (*run)(size_t), double seconds) {
    static double each[BATCHES];
    int64_t end = now() + (int64_t)(seconds * 1e9);
    size_t n = 1, count = 0;
    for (;;) { // how many fill a batch
        int64_t a = now();
        run(n);
        int64_t took = now() - a;
        if (took >= BATCH || n > ((size_t)1 << 40))
            break;
        n = took < BATCH / 16 ? n * 8 : n * 2;
    }
    do {
        int64_t a = now();
        run(n);
        each[count++] = (double)(now() - a) / (double)n;
    } while (count < BATCHES && (now() < end || count < 4));
    return quarter(each, count);
}

const char *refused(const char *what) {
    static char text[200];
    snprintf(text, sizeof text, "%s: %s", what, strerror(errno));
    return text;
}

void failed(const char *what) {
    dprintf(answer, "refused: %s\n", refused(what));
    _exit(1);
}

const char *scratch(void) {
    static const char *const candidates[] = {"/dev/shm", "/tmp"};
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
        struct statfs s;
        if (!statfs(candidates[i], &s) && s.f_type == 0x01021994 && !access(candidates[i], W_OK | X_OK))
            return candidates[i];
    }
    return NULL;
}

static const struct op *find(const char *name) {
    for (size_t i = 0; i < sizeof ALL / sizeof *ALL; i++)
        for (const struct op *o = ALL[i]; o->name; o++)
            if (!strcmp(o->name, name))
                return o;
    return NULL;
}

// `memory/SIZE/STRIDE`, in KiB and bytes, is an operation, too.
static int grid(const char *name, size_t *size, size_t *stride) {
    unsigned long kib, bytes;
    if (sscanf(name, "memory/%lu/%lu", &kib, &bytes) != 2 || kib < 4 || kib > (128 << 10) || bytes < 8 || bytes > 1024)
        return 0;
    *size = kib << 10;
    *stride = bytes;
    return 1;
}

static int stay_on(unsigned processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    return sched_setaffinity(0, sizeof set, &set);
}

static void job(const char *line) {
    char name[64];
    unsigned milliseconds, processor, units;
    size_t size, stride;
    static char other[200];
    int words = sscanf(line, "%63s %u %u %199s", name, &milliseconds, &processor, other);
    if (words < 3 || milliseconds < 1 || milliseconds > 600000) {
        dprintf(answer, "refused: no such job\n");
        return;
    }
    if (words == 4)
        store = other;
    if (stay_on(processor)) {
        dprintf(answer, "refused: %s\n", refused("the processor"));
        return;
    }
    double seconds = milliseconds / 1e3, ns;
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    const struct op *o = find(name);
    if (o) {
        const char *why = o->open ? o->open() : NULL;
        if (why) {
            dprintf(answer, "refused: %s\n", why);
            return;
        }
        ns = o->measure ? o->measure(seconds) : timed(o->run, seconds);
        ns /= o->divide > 0 ? o->divide : 1;
    } else if (grid(name, &size, &stride)) {
        ns = latency(size, stride, seconds);
    } else if (sscanf(name, "periodic/%u", &units) == 1 && units >= 1 && units <= 99) {
        double missed, late;
        ns = periodic(units, seconds, &missed, &late);
        getrusage(RUSAGE_SELF, &after);
        dprintf(answer, "%.9g %ld missed=%.9g late=%.9g\n", ns, after.ru_nivcsw - before.ru_nivcsw, missed, late / 1e6);
        return;
    } else if (!strcmp(name, "woken")) {
        double late;
        ns = woken(seconds, &late);
        getrusage(RUSAGE_SELF, &after);
        dprintf(answer, "%.9g %ld late=%.9g\n", ns, after.ru_nivcsw - before.ru_nivcsw, late / 1e6);
        return;
    } else if (!strncmp(name, "run/", 4)) {
        double packets, octets;
        ns = scripts(name + 4, seconds, &packets, &octets);
        dprintf(answer, "%.9g - packets=%.9g octets=%.9g\n", ns, packets, octets);
        return;
    } else if (!strcmp(name, "hog")) {
        hog(seconds);
        ns = 0;
    } else if (!(ns = command(name))) {
        dprintf(answer, "refused: no such operation\n");
        return;
    }
    getrusage(RUSAGE_SELF, &after);
    dprintf(answer, "%.9g %ld\n", ns, after.ru_nivcsw - before.ru_nivcsw);
}

// Over the link that the job came by: `link-stream`: bytes until the time is up; `link-request`: each byte comes back.
static int linked(const char *line) {
    static char piece[128 << 10];
    unsigned milliseconds, processor;
    if (sscanf(line, "link-stream %u %u", &milliseconds, &processor) == 2 && !stay_on(processor)) {
        int64_t end = now() + milliseconds * 1000000LL;
        while (now() < end && write(answer, piece, sizeof piece) > 0)
            ;
        return 1;
    }
    if (sscanf(line, "link-request %u %u", &milliseconds, &processor) == 2 && !stay_on(processor)) {
        if (write(answer, piece, 1) == 1)
            while (read(answer, piece, 1) == 1 && write(answer, piece, 1) == 1)
                ;
        return 1;
    }
    return 0;
}

static void jobs(FILE *in) {
    char line[256];
    while (fgets(line, sizeof line, in)) {
        if (linked(line))
            return;
        pid_t child = fork();
        if (child == 0) {
            job(line);
            _exit(0);
        }
        if (child < 0)
            dprintf(answer, "refused: %s\n", refused("a process"));
        else
            waitpid(child, NULL, 0);
    }
}

// Takes the listener that the warden passes.
static void serve(void) {
    for (;;) {
        int connection = accept(3, NULL, NULL);
        if (connection < 0) {
            if (errno == EAGAIN)
                usleep(1000);
            else if (errno != EINTR && errno != ECONNABORTED)
                _exit(1);
            continue;
        }
        pid_t child = fork();
        if (child == 0) {
            close(3);
            answer = connection;
            jobs(fdopen(dup(connection), "r"));
            _exit(0);
        }
        close(connection);
        while (waitpid(-1, NULL, WNOHANG) > 0) // those whose connections have ended
            ;
        if (child < 0)
            usleep(1000);
    }
}

// The listener of a program that is given none, in the place of one that is given.
static int listener(const char *port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int made = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    return made < 0 || setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
           bind(made, (struct sockaddr *)&at, sizeof at) || listen(made, 16) || (made != 3 && dup2(made, 3) < 0);
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    self = words[0];
    signal(SIGPIPE, SIG_IGN);
    if (!strcmp(what, "nothing"))
        return 0;
    if (!strcmp(what, "jobs"))
        jobs(stdin);
    else if (!strcmp(what, "serve"))
        serve();
    else if (!strcmp(what, "listen") && count > 2) {
        if (listener(words[2]))
            return 1;
        serve();
    } else if (!strcmp(what, "list"))
        for (size_t i = 0; i < sizeof ALL / sizeof *ALL; i++)
            for (const struct op *o = ALL[i]; o->name; o++)
                printf("%s\n", o->name);
    else if (!strcmp(what, "packets") && count > 4)
        return packets(words[2], words[3], words[4]);
    else
        return 2;
    return 0;
}
