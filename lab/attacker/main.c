// Jobs, one a line, and their answers. `attacker serve`: as a service, a connection a job; `attacker listen`: the same in a partition, which is
// given no listener; `attacker echo`: as a service that says
// again what it is told; `attacker job`: one, on standard input; `attacker list`: the channels.
#include "attacker.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __x86_64__
#include <x86intrin.h>
#endif

static const struct channel *const ALL[] = {KERNEL, HARDWARE, RESOURCES, SOCKETS, POOLS, CROSSING};
enum { LISTENER = 3 }; // the warden passes it
static int alone; // whether the other end is on another processor, so that spinning hurts nobody

ns now(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

void wait_until(ns t) {
    ns early = alone ? 120000 : 0;
    while (t - now() > early + 20000) {
        ns wake = t - early;
        struct timespec at = {wake / 1000000000, wake % 1000000000};
        clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &at, NULL);
    }
    while (now() < t) {
#ifdef __x86_64__
        _mm_pause();
#endif
    }
}

uint64_t cycles(void) {
#ifdef __x86_64__
    unsigned processor;
    _mm_lfence();
    uint64_t t = __rdtscp(&processor);
    _mm_lfence();
    return t;
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ULL + t.tv_nsec;
#endif
}

const char *refused(const char *what) {
    static char text[200];
    snprintf(text, sizeof text, "%s: %s", what, strerror(errno));
    return text;
}

void stay_on(int processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static const struct channel *find(const char *name) {
    for (size_t i = 0; i < sizeof ALL / sizeof *ALL; i++)
        for (const struct channel *c = ALL[i]; c->name; c++)
            if (!strcmp(c->name, name))
                return c;
    return NULL;
}

static void send_all(const struct channel *c, ns begin, ns window, const char *symbols, size_t count, FILE *out) {
    size_t late = 0;
    for (size_t i = 0; i < count; i++) {
        ns start = begin + (ns)i * window;
        late++;
        if (now() > start + window / 2)
            continue; // overslept: this window is lost
        wait_until(start);
        unsigned symbol = (unsigned)(symbols[2 * i] - 'a') * 16 + (unsigned)(symbols[2 * i + 1] - 'a');
        c->send(symbol, start + window / 100 * (c->meeting == STATE ? 60 : 92));
        late -= now() <= start + window / 100 * (c->meeting == STATE ? 75 : 100);
    }
    fprintf(out, "late %zu\n", late);
}

static void observe_all(const struct channel *c, ns begin, ns window, size_t count, FILE *out) {
    double *seen = malloc(count * sizeof *seen);
    ns *late = malloc(count * sizeof *late);
    for (size_t i = 0; i < count; i++) {
        ns start = begin + (ns)i * window, look = start + (c->meeting == STATE ? window / 100 * 75 : 0);
        seen[i] = NAN;
        late[i] = 0;
        if (now() > start + window)
            continue; // overslept
        wait_until(look);
        late[i] = now() - look;
        seen[i] = c->observe(start + window / 100 * 90);
        if (c->meeting == STATE && now() > start + window)
            seen[i] = NAN; // that may have been the next symbol
    }
    for (size_t i = 0; i < count; i++) {
        if (isnan(seen[i]))
            fprintf(out, "- %lld\n", (long long)late[i]);
        else
            fprintf(out, "%.10g %lld\n", seen[i], (long long)late[i]);
    }
}

// One job. `send|observe CHANNEL ARGUMENT WINDOW PROCESSOR ALONE COUNT SYMBOLS` (times in ns; two letters a-p a symbol), which answers
// `ready`, and is then told when to begin; `record INHERITED`; `drive INHERITED`. The answer ends with a line `end`; a refusal
// is one line `refused: why`. `clock` says this clock's time, and again for each further line.
static void job(char *line, FILE *in, FILE *out) {
    char *rest = line, *word[10] = {0};
    for (int i = 0; i < 10 && (word[i] = strsep(&rest, " \n")); i++)
        ;
    prctl(PR_SET_TIMERSLACK, 1);
    if (geteuid() == 0 && word[0] && (!strcmp(word[0], "record") || !strcmp(word[0], "drive"))) {
        fprintf(out, "refused: they call everything, and as root that would change the host\n");
        return;
    }
    if (word[0] && !strcmp(word[0], "clock")) {
        char more[8];
        do {
            fprintf(out, "%lld\n", (long long)now());
            fflush(out);
        } while (fgets(more, sizeof more, in));
        return;
    }
    if (word[0] && word[1] && !strcmp(word[0], "record")) {
        record(out, atoi(word[1]));
    } else if (word[0] && word[1] && !strcmp(word[0], "drive")) {
        drive(in, out, atoi(word[1]));
    } else if (word[6]) {
        const struct channel *c = find(word[1]);
        int above = !strcmp(word[0], "send");
        size_t count = strtoul(word[6], NULL, 10);
        if (!c || (above && (!word[7] || strlen(word[7]) < 2 * count))) {
            fprintf(out, "refused: no such job\n");
            return;
        }
        stay_on(atoi(word[4]));
        alone = atoi(word[5]);
        const char *why = c->open(strcmp(word[2], "-") ? word[2] : NULL, above);
        if (why) {
            fprintf(out, "refused: %s\n", why);
            return;
        }
        fprintf(out, "ready\n");
        fflush(out);
        char begin[40];
        if (!fgets(begin, sizeof begin, in))
            return;
        if (above)
            send_all(c, atoll(begin), atoll(word[3]), word[7], count, out);
        else
            observe_all(c, atoll(begin), atoll(word[3]), count, out);
    } else {
        fprintf(out, "refused: no such job\n");
        return;
    }
    fprintf(out, "end\n");
}

static void one(int in, FILE *out) {
    FILE *from = fdopen(dup(in), "r");
    char *line = NULL;
    size_t size = 0;
    if (from && getline(&line, &size, from) > 0)
        job(line, from, out);
    fflush(out);
}

// Says again what it is told.
static void echo(int connection) {
    static char text[1 << 16];
    for (ssize_t got; (got = recv(connection, text, sizeof text, 0)) > 0;)
        for (ssize_t said = 0, n; said < got; said += n)
            if ((n = send(connection, text + said, (size_t)(got - said), 0)) <= 0)
                return;
}

// A listener in a network of one's own, or -1.
static int own_listener(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(7000), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return s >= 0 && bind(s, (struct sockaddr *)&at, sizeof at) == 0 && listen(s, 16) == 0 ? s : -1;
}

// Takes connections; each one's job is a process of its own, which ends with its connection.
static void serve(int listener, int jobs) {
    signal(SIGCHLD, SIG_IGN);
    for (;;) {
        int connection = accept(listener, NULL, NULL);
        if (connection < 0) {
            if (errno == EAGAIN)
                usleep(2000);
            continue;
        }
        if (fork() == 0) {
            signal(SIGCHLD, SIG_DFL);
            if (jobs)
                one(connection, fdopen(dup(connection), "w"));
            else
                echo(connection);
            _exit(0);
        }
        close(connection);
    }
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    signal(SIGPIPE, SIG_IGN);
    if (!strcmp(what, "serve"))
        serve(LISTENER, 1);
    else if (!strcmp(what, "listen"))
        serve(own_listener(), 1);
    else if (!strcmp(what, "echo"))
        serve(LISTENER, 0);
    else if (!strcmp(what, "job"))
        one(0, stdout);
    else if (!strcmp(what, "once")) // a service that is started anew for each connection
        while (accept(LISTENER, NULL, NULL) < 0)
            usleep(200);
    else if (!strcmp(what, "list"))
        for (size_t i = 0; i < sizeof ALL / sizeof *ALL; i++)
            for (const struct channel *c = ALL[i]; c->name; c++)
                printf("%s %d\n", c->name, c->symbols);
    else
        return 2;
    return 0;
}
