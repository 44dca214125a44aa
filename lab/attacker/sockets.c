// Channels through what the network code has once for the machine, and, from a workstation, through what levee has once: its vaults'
// way to the wire, the audit log, and one-way channels.
#include "attacker.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 192, PIECE = 1 << 16 };
static char piece[PIECE];
static int held[2 * MOST], count;
static int listener = -1;
static struct sockaddr_in at;

static void release(void) {
    while (count > 0)
        close(held[--count]);
}

static int bound(int kind) {
    socklen_t length = sizeof at;
    int s = socket(AF_INET, kind | SOCK_NONBLOCK, 0);
    at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (s >= 0 && (bind(s, (void *)&at, sizeof at) || getsockname(s, (void *)&at, &length)))
        return -1;
    return s;
}

// A connection of this process's with itself: [0] has connected, [1] was accepted.
static int connection(int both[2]) {
    both[0] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (both[0] < 0 || (connect(both[0], (void *)&at, sizeof at) && errno != EINPROGRESS)) {
        close(both[0]);
        return -1;
    }
    struct pollfd arrives = {.fd = listener, .events = POLLIN};
    both[1] = poll(&arrives, 1, 20) == 1 ? accept(listener, NULL, NULL) : -1;
    if (both[1] < 0)
        close(both[0]);
    return both[1] < 0 ? -1 : 0;
}

// Writes until nothing more is taken, and says how much was.
static double fill(int s, ns until) {
    double taken = 0;
    ssize_t n;
    while (now() < until && (n = send(s, piece, sizeof piece, MSG_DONTWAIT | MSG_NOSIGNAL)) > 0)
        taken += (double)n;
    return taken;
}

// Memory of sockets, of which the machine has so much for each protocol: the sender takes what it can, the receiver sees how
// much a queue of its own takes.
static int datagrams;

static const char *memory_open(const char *what, int above) {
    (void)above;
    datagrams = what && !strcmp(what, "udp");
    if (!datagrams && (!what || strcmp(what, "tcp")))
        return "no such memory";
    listener = datagrams ? 0 : bound(SOCK_STREAM);
    return listener < 0 || (!datagrams && listen(listener, 64)) ? refused("a socket") : NULL;
}

static void memory_send(unsigned symbol, ns until) {
    release();
    while (symbol && now() < until && count + 2 <= 2 * MOST) {
        if (datagrams) {
            int s = bound(SOCK_DGRAM);
            if (s < 0 || connect(s, (void *)&at, sizeof at))
                return;
            held[count++] = s;
            // Its queue takes no more than so many; what is over is dropped without a word.
            for (int i = 0; i < 16 && now() < until; i++)
                send(s, piece, 16384, MSG_DONTWAIT);
        } else {
            if (connection(held + count))
                return;
            count += 2;
            fill(held[count - 2], until);
        }
    }
}

static double memory_observe(ns until) {
    double taken = 0;
    if (datagrams) {
        int s = bound(SOCK_DGRAM);
        if (s < 0 || connect(s, (void *)&at, sizeof at))
            return NAN;
        for (int i = 0; i < 64 && now() < until; i++)
            send(s, piece, 4096, MSG_DONTWAIT);
        while (recv(s, piece, sizeof piece, MSG_DONTWAIT) > 0)
            taken++;
        close(s);
        return taken;
    }
    int both[2];
    if (connection(both))
        return -1;
    taken = fill(both[0], until);
    close(both[0]);
    close(both[1]);
    return taken;
}

// Orphans: connections that nobody holds any more and whose bytes were not read yet. Where the machine has too many, the next one
// is ended at once, and its other end sees that.
static const char *orphan_open(const char *argument, int above) {
    (void)argument, (void)above;
    return (listener = bound(SOCK_STREAM)) < 0 || listen(listener, 64) ? refused("a socket") : NULL;
}

static int orphan(ns until) {
    int both[2];
    if (connection(both))
        return -1;
    fill(both[0], until);
    close(both[0]);
    return both[1];
}

static void orphan_send(unsigned symbol, ns until) {
    release();
    while (symbol && now() < until && count < MOST) {
        int s = orphan(until);
        if (s < 0)
            return;
        held[count++] = s;
    }
}

static double orphan_observe(ns until) {
    int s = orphan(until);
    if (s < 0)
        return -1;
    struct pollfd ended = {.fd = s, .events = POLLIN};
    poll(&ended, 1, 0);
    close(s);
    return ended.revents & (POLLERR | POLLHUP) ? 1 : 0;
}

// Identifiers of IPv4 packets, out of counters that flows share. Who may not have packets whole does not see them.
static int raw = -1, out = -1;

static const char *identifier_open(const char *argument, int above) {
    (void)argument;
    int no = IP_PMTUDISC_DONT;
    out = bound(SOCK_DGRAM);
    if (out < 0 || setsockopt(out, IPPROTO_IP, IP_MTU_DISCOVER, &no, sizeof no))
        return refused("a socket");
    at.sin_port = htons(9);
    if (!above && (raw = socket(AF_INET, SOCK_RAW | SOCK_NONBLOCK, IPPROTO_UDP)) < 0)
        return refused("whole packets");
    return NULL;
}

static void identifier_send(unsigned symbol, ns until) {
    for (unsigned i = 0; i < symbol * 4 && now() < until; i++)
        sendto(out, "x", 1, MSG_DONTWAIT, (void *)&at, sizeof at);
}

static double identifier_observe(ns until) {
    static double last = NAN;
    struct iphdr head;
    double seen = NAN;
    (void)until;
    sendto(out, "x", 1, MSG_DONTWAIT, (void *)&at, sizeof at);
    while (recv(raw, &head, sizeof head, 0) > 0)
        seen = ntohs(head.id);
    double step = seen - last;
    last = seen;
    return step;
}

// How many errors of ICMP a second there may be: the sender has them used up, the receiver counts how many it still gets.
static struct sockaddr_storage closed;
static socklen_t closed_length;

static const char *icmp_open(const char *family, int above) {
    (void)above;
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(9), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int is_six = family && !strcmp(family, "6");
    closed_length = is_six ? sizeof six : sizeof four;
    memcpy(&closed, is_six ? (void *)&six : (void *)&four, closed_length);
    out = socket(is_six ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    return out < 0 || connect(out, (void *)&closed, closed_length) ? refused("a socket") : NULL;
}

// A datagram to a port at which nobody is: whether the error came back.
static int no_port(void) {
    int error = 0;
    socklen_t length = sizeof error;
    send(out, "x", 1, MSG_DONTWAIT);
    getsockopt(out, SOL_SOCKET, SO_ERROR, &error, &length);
    return error == ECONNREFUSED;
}

static void icmp_send(unsigned symbol, ns until) {
    while (symbol && now() < until)
        no_port();
}

static double icmp_observe(ns until) {
    double n = 0;
    for (int i = 0; i < 64 && now() < until; i++)
        n += no_port();
    return n;
}

// Upflow: the sender reads all documents that were copied to it from below, as new as the disk has them; the receiver below reads and
// writes its own, of which they are copies.
static int own = -1;

static const char *documents_open(const char *argument, int above) {
    const char *path = above ? "/srv/below" : "/srv/own/leak-document";
    (void)argument;
    if (above)
        return access(path, R_OK) ? refused(path) : NULL;
    own = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (own < 0 || ftruncate(own, 16 * PIECE))
        return refused(path);
    for (int i = 0; i < 16; i++)
        if (pwrite(own, piece, sizeof piece, i * PIECE) < 0)
            return refused(path);
    return fsync(own) ? refused(path) : NULL;
}

static void read_all(int directory, int depth, ns until) {
    DIR *d = directory < 0 ? NULL : fdopendir(directory);
    if (!d) {
        close(directory);
        return;
    }
    for (struct dirent *e; now() < until && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.')
            continue;
        int fd = openat(dirfd(d), e->d_name, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
        struct stat s;
        if (fd >= 0 && fstat(fd, &s) == 0 && S_ISDIR(s.st_mode) && depth > 0) {
            read_all(fd, depth - 1, until);
            continue;
        }
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        while (now() < until && read(fd, piece, sizeof piece) > 0)
            ;
        close(fd);
    }
    closedir(d);
}

static void documents_send(unsigned symbol, ns until) {
    while (symbol && now() < until)
        read_all(open("/srv/below", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 3, until);
}

static double documents_observe(ns until) {
    double n = 0;
    ns begin = now();
    while (now() < until) {
        posix_fadvise(own, 0, 0, POSIX_FADV_DONTNEED);
        for (int i = 0; i < 16; i++)
            if (pread(own, piece, sizeof piece, i * PIECE) < 0)
                return NAN;
        n++;
    }
    return n * 1e9 / (double)(now() - begin);
}

// From a workstation, to a service that says again what it is told (`attacker echo`) at `ADDRESS:PORT`.
static int peer = -1;

static int to_peer(void) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval most = {2, 0};
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
    if (connect(s, (void *)&at, sizeof at) == 0)
        return s;
    close(s);
    return -1;
}

static const char *peer_open(const char *argument, int above) {
    char address[40];
    int port;
    (void)above;
    if (!argument || sscanf(argument, "%39[0-9.]:%d", address, &port) != 2)
        return "nobody to talk to";
    at = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, address, &at.sin_addr);
    return (peer = to_peer()) < 0 ? refused(argument) : NULL;
}

// The tunnel: the sender has as much sent as it can, the receiver sends little and waits for it to come back.
static void tunnel_send(unsigned symbol, ns until) {
    while (symbol && now() < until) {
        if (send(peer, piece, sizeof piece, MSG_NOSIGNAL) <= 0)
            return;
        while (recv(peer, piece, sizeof piece, MSG_DONTWAIT) > 0)
            ;
    }
    while (recv(peer, piece, sizeof piece, MSG_DONTWAIT) > 0)
        ;
}

static double tunnel_observe(ns until) {
    double n = 0;
    ns begin = now();
    while (now() < until) {
        if (send(peer, piece, 64, MSG_NOSIGNAL) != 64 || recv(peer, piece, 64, MSG_WAITALL) != 64)
            return NAN;
        n++;
    }
    return n * 1e9 / (double)(now() - begin);
}

// Connections, each of which waits for its record in the audit log where a mediator takes it.
static int connect_once(void) {
    char byte;
    int s = to_peer();
    int done = s >= 0 && shutdown(s, SHUT_WR) == 0 && recv(s, &byte, 1, 0) == 0;
    close(s);
    return done ? 0 : -1;
}

static void connections_send(unsigned symbol, ns until) {
    while (symbol && now() < until && connect_once() == 0)
        ;
}

static double connections_observe(ns until) {
    double n = 0;
    ns begin = now();
    while (now() < until)
        if (connect_once() == 0)
            n++;
        else
            return -1;
    return n * 1e9 / (double)(now() - begin);
}

// A one-way channel of levee's, backwards. The partition above reads its end, or does not; the one below writes its own as fast as it may,
// and looks at how much was taken (`sent`), how long the quickest took (`wait`, ns), or what is not taken yet (`queued`, bytes).
enum { END = 3, MESSAGE = 4096 };
static char look_at;

static const char *oneway_open(const char *argument, int above) {
    int kind = 0;
    socklen_t size = sizeof kind;
    if (getsockopt(END, SOL_SOCKET, SO_TYPE, &kind, &size) < 0 || kind == SOCK_STREAM)
        return "no end of a one-way channel";
    (void)above;
    look_at = argument ? *argument : 's';
    return NULL;
}

static void oneway_send(unsigned symbol, ns until) {
    while (symbol && now() < until)
        recv(END, piece, sizeof piece, MSG_DONTWAIT);
}

static double oneway_observe(ns until) {
    double sent = 0, quickest = NAN;
    int left = 0;
    while (now() < until) {
        ns begin = now();
        if (send(END, piece, MESSAGE, MSG_DONTWAIT | MSG_NOSIGNAL) == MESSAGE) {
            double took = (double)(now() - begin);
            sent++;
            if (isnan(quickest) || took < quickest)
                quickest = took;
        } else if (errno != EAGAIN) {
            return NAN;
        }
    }
    if (look_at == 'w')
        return quickest;
    return look_at == 's' ? sent : ioctl(END, SIOCOUTQ, &left) == 0 ? left : NAN;
}

const struct channel SOCKETS[] = {
    {"socket-memory", STATE, 2, memory_open, memory_send, memory_observe},
    {"orphans", STATE, 2, orphan_open, orphan_send, orphan_observe},
    {"ip-identifiers", STATE, 16, identifier_open, identifier_send, identifier_observe},
    {"icmp-errors", WORK, 2, icmp_open, icmp_send, icmp_observe},
    {"documents", WORK, 2, documents_open, documents_send, documents_observe},
    {"tunnel", WORK, 2, peer_open, tunnel_send, tunnel_observe},
    {"connections", WORK, 2, peer_open, connections_send, connections_observe},
    {"oneway", WORK, 2, oneway_open, oneway_send, oneway_observe},
    {0},
};
