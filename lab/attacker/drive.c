// The driver: uses whatever it may, so that whatever is common to two labels moves. It repeats what comes and
// goes, and then holds what can be held until it is told that this was enough.
#include "attacker.h"

#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *const WRITABLE[] = {"/srv/own", "/tmp", "/run", "/var/tmp", "/dev/shm"};
enum { PLACES = sizeof WRITABLE / sizeof *WRITABLE };

static void files(int make) {
    for (int p = 0; p < PLACES; p++)
        for (int i = 0; i < 8; i++) {
            char path[100];
            static char block[65536];
            snprintf(path, sizeof path, "%s/driver-%d", WRITABLE[p], i);
            if (!make) {
                unlink(path);
                continue;
            }
            int fd = open(path, O_RDWR | O_CREAT, 0600);
            if (fd >= 0 && write(fd, block, sizeof block) > 0 && i == 0)
                fsync(fd);
            close(fd);
        }
}

static int lock(int fd, short kind) {
    struct flock l = {.l_type = kind, .l_whence = SEEK_SET, .l_start = 7, .l_len = 1};
    return fcntl(fd, F_SETLK, &l);
}

// Whatever can be done with an open file that others may have, too.
static void use(int fd, unsigned turn) {
    static char text[512];
    // Further away each time, by more than passes until it is looked at: or it would only seem to run down, as it does by itself.
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    struct itimerspec soon = {{0, 0}, {1000 + (now.tv_sec * 1000 + now.tv_nsec / 1000000) % 1000000000, 0}};
    if (lock(fd, F_WRLCK) < 0)
        lock(fd, F_RDLCK);
    if (fcntl(fd, F_OFD_SETLK, &(struct flock){.l_type = F_WRLCK, .l_start = 99, .l_len = 1}) < 0)
        errno = 0;
    flock(fd, LOCK_EX | LOCK_NB);
    if (fd < 3)
        return; // the log is the operator's; what was found about it is a channel of the meter's
    fcntl(fd, F_SETFL, O_NONBLOCK);
    timerfd_settime(fd, 0, &soon, NULL);
    struct stat s;
    if (fstat(fd, &s) == 0 && (S_ISREG(s.st_mode) || S_ISDIR(s.st_mode))) {
        fchmod(fd, turn % 2 ? 0600 : 0640);
        futimens(fd, NULL);
    }
    if (fstat(fd, &s) == 0 && S_ISDIR(s.st_mode)) {
        int in = openat(fd, "driver", O_RDWR | O_CREAT, 0600);
        if (in >= 0 && write(in, text, sizeof text) < 0)
            errno = 0;
        close(in);
    }
    // an eventfd takes eight bytes
    if (write(fd, &(uint64_t){1}, 8) < 0)
        errno = 0;
    lseek(fd, 64 + turn % 64, SEEK_SET);
    struct {
        unsigned short rows, columns, x, y;
    } window = {(unsigned short)(20 + turn % 50), 80, 0, 0};
    ioctl(fd, TIOCSWINSZ, &window);
    int more = eventfd(0, 0);
    struct epoll_event e = {.events = EPOLLIN};
    epoll_ctl(fd, EPOLL_CTL_ADD, more, &e);
}

static void hold(void) {
    static const int KINDS[][3] = {{AF_INET, SOCK_STREAM, 7900}, {AF_INET, SOCK_DGRAM, 7900}, {AF_INET, SOCK_STREAM, 7903}, {AF_INET6, SOCK_DGRAM, 7905}};
    for (int i = 0; i < 64; i++)
        eventfd(0, 0);
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        int fd = socket(KINDS[i][0], KINDS[i][1], 0);
        struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)KINDS[i][2])};
        struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = six.sin6_port};
        if (bind(fd, KINDS[i][0] == AF_INET ? (void *)&four : (void *)&six, KINDS[i][0] == AF_INET ? sizeof four : sizeof six) == 0)
            listen(fd, 10);
    }
    for (int i = 0; i < 32; i++)
        socket(AF_INET, SOCK_STREAM, 0);
    int name = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "\0levee-driver"};
    if (bind(name, (void *)&at, sizeof at) == 0)
        listen(name, 10);
    static char much[100000];
    for (int i = 0; i < 16; i++) {
        int two[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, two) == 0 && send(two[0], much, sizeof much, MSG_DONTWAIT) < 0)
            break;
        if (pipe2(two, O_NONBLOCK) == 0 && write(two[1], much, 60000) < 0)
            break;
        open("/dev/ptmx", O_RDWR | O_NOCTTY);
        memfd_create("driver", 0);
    }
    for (int i = 0; i < 8; i++) {
        shmget(0x4c450000 + i, 65536, IPC_CREAT | 0666);
        semget(0x4c450000 + i, 4, IPC_CREAT | 0666);
        msgget(0x4c450000 + i, IPC_CREAT | 0666);
        char queue[20];
        snprintf(queue, sizeof queue, "/driver-%d", i);
        mq_open(queue, O_CREAT | O_RDWR, 0666, NULL);
    }
    files(1);
    static const char *const COMMON[] = {"/dev/null", "/dev/zero", "/usr/bin/env", "/proc/self/ns/time", "/proc/self/ns/user", "/proc/self/ns/net",
                                         "/proc/self/ns/ipc", "/proc/self/ns/cgroup", "/proc/self/ns/uts", "/usr", "/", "/srv/below", "/dev/mqueue"};
    for (size_t i = 0; i < sizeof COMMON / sizeof *COMMON; i++) {
        int fd = open(COMMON[i], O_RDONLY);
        if (fd >= 0) {
            lock(fd, F_RDLCK);
            flock(fd, LOCK_EX | LOCK_NB);
        }
    }
    lock(eventfd(0, 0), F_RDLCK);
}

static void leave(void) {
    for (int i = 0; i < 8; i++) {
        shmctl(shmget(0x4c450000 + i, 0, 0), IPC_RMID, NULL);
        semctl(semget(0x4c450000 + i, 0, 0), 0, IPC_RMID);
        msgctl(msgget(0x4c450000 + i, 0), IPC_RMID, NULL);
        char queue[20];
        snprintf(queue, sizeof queue, "/driver-%d", i);
        mq_unlink(queue);
    }
    files(0);
}

static void churn(unsigned turn) {
    static int neighbours = -1;
    if (fork() == 0) {
        setsid();
        char uid[20];
        int audit = open("/proc/self/loginuid", O_WRONLY);
        if (audit >= 0 && write(audit, uid, (size_t)snprintf(uid, sizeof uid, "%d", getuid())) < 0)
            errno = 0;
        int two[2];
        for (int i = 0; i < 40; i++)
            if (pipe(two))
                break;
        for (int i = 0; i < 20; i++)
            socket(AF_UNIX, SOCK_DGRAM, 0);
        _exit(0);
    }
    wait(NULL);
    if (neighbours < 0)
        neighbours = socket(AF_INET, SOCK_DGRAM, 0);
    char ask[68] = {0};
    memcpy(ask, &(struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a500107)}, sizeof(struct sockaddr_in));
    memcpy(ask + 52, interface(), 16);
    ioctl(neighbours, SIOCGARP, ask);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(7900), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    sendto(neighbours, "x", 1, MSG_DONTWAIT, (void *)&to, sizeof to);
    char path[64];
    snprintf(path, sizeof path, "/tmp/driver-%u", turn % 8);
    int fd = open(path, O_RDWR);
    struct stat s;
    if (fd >= 0 && fstat(fd, &s) == 0 && write(fd, "y", 1) < 0)
        errno = 0;
    close(fd);
}

void drive(FILE *in, FILE *out, int inherited) {
    char told[8];
    signal(SIGCHLD, SIG_DFL);
    for (unsigned turn = 0; turn < 8; turn++)
        for (int fd = 0; fd < 3 + inherited; fd++)
            if (fd != 1 || inherited == 0)
                use(fd, turn);
    hold();
    for (unsigned turn = 0; turn < 300; turn++)
        churn(turn);
    // What it did shows in this round and not in the next one: from here on it only holds.
    fprintf(out, "ready\n");
    fflush(out);
    if (fgets(told, sizeof told, in))
        leave();
}
