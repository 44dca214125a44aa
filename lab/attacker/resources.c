// Channels through what the machine has one of and the kernel shares out: the disk, pages, processes, the warden's attention.
#include "attacker.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <math.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int fd = -1;
static char block[1 << 16];

// How often `once` can be done in the window. A window in which it was not done at all says so, too.
static double count(int (*once)(void), ns until) {
    double n = 0;
    ns begin = now();
    while (now() < until)
        if (once() < 0)
            return NAN;
        else
            n++;
    ns took = now() - begin; // the last one may have ended late
    return took > 0 ? n * 1e9 / (double)took : NAN;
}

static void as_often(int (*once)(void), unsigned symbol, ns until) {
    while (symbol && now() < until && once() >= 0)
        ;
}

static const char *store_open(const char *argument, int above) {
    (void)argument;
    const char *path = above ? "/srv/own/leak-above" : "/srv/own/leak-below";
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return fd < 0 ? refused(path) : NULL;
}

static int sync_once(void) {
    return pwrite(fd, block, 4096, 0) < 0 ? -1 : fsync(fd);
}

static void sync_send(unsigned symbol, ns until) {
    as_often(sync_once, symbol, until);
}

static double sync_observe(ns until) {
    return count(sync_once, until);
}

static int dirty_once(void) {
    static off_t at;
    at = (at + (off_t)sizeof block) % (4 << 20);
    return pwrite(fd, block, sizeof block, at) < 0 ? -1 : 0;
}

static void dirty_send(unsigned symbol, ns until) {
    as_often(dirty_once, symbol, until);
}

static double dirty_observe(ns until) {
    return count(dirty_once, until);
}

static const char *nothing(const char *argument, int above) {
    (void)argument, (void)above;
    return NULL;
}

// Pages come from lists that all share.
static int pages_once(void) {
    void *m = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    return m == MAP_FAILED ? -1 : munmap(m, 1 << 20);
}

static void pages_send(unsigned symbol, ns until) {
    as_often(pages_once, symbol, until);
}

static double pages_observe(ns until) {
    return count(pages_once, until);
}

// Processes are made under locks that all share.
static int fork_once(void) {
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    return child < 0 ? -1 : waitpid(child, NULL, 0);
}

static void fork_send(unsigned symbol, ns until) {
    as_often(fork_once, symbol, until);
}

static double fork_observe(ns until) {
    return count(fork_once, until);
}

// A barrier waits until every processor has passed a quiet state.
static int barrier_once(void) {
    return (int)syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
}

static const char *barrier_open(const char *argument, int above) {
    (void)argument, (void)above;
    return barrier_once() < 0 ? refused("membarrier") : NULL;
}

static void barrier_send(unsigned symbol, ns until) {
    as_often(barrier_once, symbol, until);
}

static double barrier_observe(ns until) {
    return count(barrier_once, until);
}

// First connections: the warden starts a service that is not running. `ADDRESS:PORT:COUNT`, services that end after each
// connection. Above has all of its own started, below times the slowest of its own.
static struct sockaddr_in first;
static int services;

static const char *start_open(const char *argument, int above) {
    (void)above;
    char address[40];
    int port;
    if (!argument || sscanf(argument, "%39[0-9.]:%d:%d", address, &port, &services) != 3)
        return "no services to start";
    first = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, address, &first.sin_addr);
    return NULL;
}

// Connects to one, and waits until it closes.
static ns start_one(int which, ns until) {
    ns begin = now();
    int s = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = first;
    to.sin_port = htons((uint16_t)(ntohs(first.sin_port) + which));
    ns left = until - begin;
    struct timeval most = {left / 1000000000, left % 1000000000 / 1000};
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    char byte;
    int done = left > 0 && connect(s, (struct sockaddr *)&to, sizeof to) == 0 && recv(s, &byte, 1, 0) == 0;
    close(s);
    return done ? now() - begin : -1;
}

static void start_send(unsigned symbol, ns until) {
    for (int i = 0; symbol && i < services; i++)
        if (fork() == 0) {
            start_one(i, until);
            _exit(0);
        }
    while (symbol && waitpid(-1, NULL, 0) > 0)
        ;
}

static double start_observe(ns until) {
    static int next;
    ns took = start_one(next++ % services, until);
    return took < 0 ? -1 : (double)took;
}

const struct channel RESOURCES[] = {
    {"fsync", WORK, 2, store_open, sync_send, sync_observe},
    {"dirty-pages", WORK, 2, store_open, dirty_send, dirty_observe},
    {"page-allocator", WORK, 2, nothing, pages_send, pages_observe},
    {"fork", WORK, 2, nothing, fork_send, fork_observe},
    {"barrier", WORK, 2, barrier_open, barrier_send, barrier_observe},
    {"service-start", WORK, 2, start_open, start_send, start_observe},
    {0},
};
