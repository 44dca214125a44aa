// A file system: a tree walked, a file read and written in large blocks and a byte at a time; and streams on the loopback.
#include "operations.h"

#include <dirent.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DIRECTORIES 64
#define FILES_EACH 32
#define LARGE (8u << 20)
#define MIB (1u << 20)
// As the laboratory names them.
#define FAR_NETWORK "/run/netns/far"
#define FAR_ADDRESS "10.215.1.2"

const char *store = "/srv/own";
static int from = -1, to = -1;
static char *block;

static const char *place(const char *what) {
    static char text[400];
    snprintf(text, sizeof text, "%s/%s", store, what);
    return text;
}

// A tree of 2,048 files in 64 directories, once for a run.
static const char *open_tree(void) {
    struct stat s;
    if (!stat(place("tree-whole"), &s))
        return NULL;
    if (mkdir(place("tree"), 0755) && errno != EEXIST)
        return refused("a tree in the store");
    for (int d = 0; d < DIRECTORIES; d++) {
        char name[40];
        snprintf(name, sizeof name, "tree/%d", d);
        if (mkdir(place(name), 0755) && errno != EEXIST)
            return refused("a directory in the store");
        for (int f = 0; f < FILES_EACH; f++) {
            snprintf(name, sizeof name, "tree/%d/%d", d, f);
            int file = open(place(name), O_CREAT | O_WRONLY, 0644);
            if (file < 0 || close(file))
                return refused("a file in the store");
        }
    }
    int file = open(place("tree-whole"), O_CREAT | O_WRONLY, 0644);
    return file < 0 || close(file) ? refused("the tree's end") : NULL;
}

static size_t walk(const char *path) {
    DIR *d = opendir(path);
    if (!d)
        failed("a directory of the tree");
    size_t seen = 0;
    for (struct dirent *e; (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        char name[500];
        struct stat s;
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        if (lstat(name, &s))
            failed("a file of the tree");
        seen += 1 + (S_ISDIR(s.st_mode) ? walk(name) : 0);
    }
    closedir(d);
    return seen;
}

// One directory after the other.
static void find(size_t n) {
    static unsigned d;
    char name[460];
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%s/tree/%u", store, d++ % DIRECTORIES);
        if (walk(name) != FILES_EACH)
            failed("the tree is not whole");
    }
}

// Once: the laboratory has just emptied the kernel's caches; in a machine of its own the program does.
static double find_cold(double seconds) {
    (void)seconds;
    int caches = access("/levlab-machine", F_OK) ? -1 : open("/proc/sys/vm/drop_caches", O_WRONLY);
    if (caches >= 0 && write(caches, "3", 1) != 1)
        failed("emptying the caches");
    close(caches);
    int64_t a = now();
    char root[400];
    snprintf(root, sizeof root, "%s", place("tree"));
    if (walk(root) != DIRECTORIES * (FILES_EACH + 1))
        failed("the tree is not whole");
    return (double)(now() - a) / (DIRECTORIES * (FILES_EACH + 1));
}

static const char *open_large(void) {
    block = malloc(MIB);
    to = open(place("large"), O_CREAT | O_RDWR, 0644);
    struct stat s;
    if (!block || to < 0 || fstat(to, &s))
        return refused("a file in the store");
    memset(block, 7, MIB);
    for (off_t at = s.st_size; at < LARGE; at += MIB)
        if (pwrite(to, block, MIB, at) != MIB)
            return refused("filling a file in the store");
    return fsync(to) ? refused("syncing a file in the store") : NULL;
}

// The next MiB of it.
static off_t next(void) {
    static unsigned n;
    return (off_t)(n++ % (LARGE / MIB)) * MIB;
}

static void read_large(size_t n) {
    for (size_t i = 0; i < n; i++)
        if (pread(to, block, MIB, next()) != MIB)
            failed("reading the large file");
}

static void read_uncached(size_t n) {
    for (size_t i = 0; i < n; i++) {
        off_t at = next();
        if (posix_fadvise(to, at, MIB, POSIX_FADV_DONTNEED))
            failed("leaving the cache");
        if (pread(to, block, MIB, at) != MIB)
            failed("reading the large file");
    }
}

// What is to be copied lies on a tmpfs.
static const char *open_copy(void) {
    char name[300];
    if (!scratch())
        return "no directory on a tmpfs that can be written";
    const char *why = open_large();
    snprintf(name, sizeof name, "%s/levee-op-copy-%d", scratch(), (int)getpid());
    from = open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
    if (why || from < 0 || unlink(name))
        return why ? why : refused("a file to copy");
    for (off_t at = 0; at < LARGE; at += MIB)
        if (pwrite(from, block, MIB, at) != MIB)
            return refused("filling a file to copy");
    return NULL;
}

static void copy_large(size_t n) {
    for (size_t i = 0; i < n; i++) {
        off_t at = next();
        if (pread(from, block, MIB, at) != MIB || pwrite(to, block, MIB, at) != MIB)
            failed("copying the large file");
    }
}

// A byte.
static void copy_small(size_t n) {
    char byte;
    lseek(from, 0, SEEK_SET);
    lseek(to, 0, SEEK_SET);
    for (size_t i = 0; i < n; i++) {
        if (i % LARGE == LARGE - 1) {
            lseek(from, 0, SEEK_SET);
            lseek(to, 0, SEEK_SET);
        }
        if (read(from, &byte, 1) != 1 || write(to, &byte, 1) != 1)
            failed("copying a byte");
    }
}

#define PIECE (128u << 10)
static int near = -1;
static pid_t reader;

// A stream to a reader on the same processor, who listens at `address` in another network where one is named.
static const char *open_stream(const char *address, const char *network) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof at;
    int own = network ? open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC) : -1;
    if (network && (own < 0 || setns(open(network, O_RDONLY | O_CLOEXEC), CLONE_NEWNET)))
        return refused("the network at the other end");
    inet_pton(AF_INET, address, &at.sin_addr);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    block = malloc(PIECE);
    if (!block || listener < 0 || bind(listener, (struct sockaddr *)&at, size) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&at, &size) || (network && setns(own, CLONE_NEWNET)))
        return refused("a listener");
    near = socket(AF_INET, SOCK_STREAM, 0);
    if (near < 0 || connect(near, (struct sockaddr *)&at, size))
        return refused("a connection");
    memset(block, 1, PIECE);
    reader = fork();
    if (reader < 0)
        return refused("a reader");
    if (reader == 0) {
        int far = accept(listener, NULL, NULL);
        close(near);
        size_t had = 0;
        for (ssize_t n; (n = read(far, block, PIECE)) > 0;)
            for (had += (size_t)n; had >= PIECE; had -= PIECE) // each piece is acknowledged when it has come whole
                if (write(far, block, 1) != 1)
                    _exit(1);
        _exit(0);
    }
    close(listener);
    return NULL;
}

static const char *open_loopback(void) {
    return open_stream("127.0.0.1", NULL);
}

// The two networks of a machine of the laboratory's, with a link between.
static const char *open_pair(void) {
    return open_stream(FAR_ADDRESS, FAR_NETWORK);
}

static void send_piece(void) {
    for (size_t sent = 0; sent < PIECE;) {
        ssize_t n = write(near, block, PIECE - sent);
        if (n <= 0)
            failed("writing to the reader");
        sent += (size_t)n;
    }
}

static void take_word(void) {
    char word;
    if (read(near, &word, 1) != 1)
        failed("hearing the reader");
}

// Eight pieces are on their way, so that both ends have work.
static void stream(size_t n) {
    size_t ahead = n < 8 ? n : 8;
    for (size_t i = 0; i < ahead; i++)
        send_piece();
    for (size_t i = ahead; i < n; i++) {
        take_word();
        send_piece();
    }
    for (size_t i = 0; i < ahead; i++)
        take_word();
}

// A piece there and its word back.
static void request(size_t n) {
    for (size_t i = 0; i < n; i++) {
        send_piece();
        take_word();
    }
}

// What a packet of a stream is, as an interface has it. KINDS: none of them.
enum { CLEAR, CIPSO, ESP, MACSEC, KINDS };
static const char *const KIND[KINDS] = {"clear", "cipso", "esp", "macsec"};

static int kind_of(const unsigned char *packet, ssize_t length, int protocol) {
    if (protocol == ETH_P_MACSEC)
        return MACSEC;
    if (protocol != ETH_P_IP || length < 20)
        return KINDS;
    if (packet[9] == IPPROTO_ESP)
        return ESP;
    // The option behind the header, and padding.
    if (packet[9] == IPPROTO_TCP)
        return packet[0] > 0x45 && length > 20 && packet[20] == 134 ? CIPSO : CLEAR;
    return KINDS;
}

int packets(const char *interface, const char *where, const char *kind) {
    struct timeval patience = {.tv_usec = 200000};
    int seen[KINDS + 1] = {0}, others = 0, wanted = 0, tap = socket(AF_PACKET, SOCK_DGRAM, htons(ETH_P_ALL));
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)if_nametoindex(interface)};
    while (wanted < KINDS && strcmp(kind, KIND[wanted]))
        wanted++;
    if (wanted == KINDS || tap < 0 || !at.sll_ifindex || bind(tap, (struct sockaddr *)&at, sizeof at) ||
        setsockopt(tap, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience))
        return 1;
    const char *why = strcmp(where, "pair") ? open_loopback() : open_pair();
    if (why) {
        puts(why);
        return 1;
    }
    request(2);
    close(near);
    unsigned char packet[80];
    socklen_t size = sizeof at;
    for (ssize_t n; (n = recvfrom(tap, packet, sizeof packet, 0, (struct sockaddr *)&at, &size)) >= 0; size = sizeof at)
        seen[kind_of(packet, n, ntohs(at.sll_protocol))]++;
    for (int i = 0; i < KINDS; i++) {
        printf("%d %s, ", seen[i], KIND[i]);
        others += i == wanted ? 0 : seen[i];
    }
    printf("on %s\n", interface);
    return !seen[wanted] || others;
}

const struct op STORAGE[] = {
    {"find-warm", open_tree, find, FILES_EACH, NULL},
    {"find-cold", open_tree, NULL, 0, find_cold},
    {"read-cached", open_large, read_large, MIB, NULL},
    {"read-uncached", open_large, read_uncached, MIB, NULL},
    {"copy-large", open_copy, copy_large, MIB, NULL},
    {"copy-small", open_copy, copy_small, 0, NULL},
    {"loopback-stream", open_loopback, stream, PIECE, NULL},
    {"loopback-request", open_loopback, request, 0, NULL},
    {"pair-stream", open_pair, stream, PIECE, NULL},
    {"pair-request", open_pair, request, 0, NULL},
    {NULL, NULL, NULL, 0, NULL},
};
