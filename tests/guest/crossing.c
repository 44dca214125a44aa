/*
 * What one label's process can do to another's things, in a guest.
 * crossing victim NUMBER LABEL: has all that others could want, and answers with its label. Says `ready PID ADDRESS`, of what it keeps in memory.
 * crossing try KINDS SUBJECT OBJECT VICTIM UID CONTEXT MILLISECONDS NUMBER LABEL PID ADDRESS: as a process of the compartment whose process 1 is
 * SUBJECT, but for the namespaces in KINDS (letters: m n i p u), which are those of OBJECT; without a filter, without Landlock, without capabilities.
 * Tries everything on the victim there (VICTIM: its number on the host, PID: in its namespace), and says a 1 or a 0 for each.
 * crossing list: the attempts, a line each, in that order.
 * crossing level: what a service hears of its own level: whose the other end of a socket of its own is (SO_PEERSEC).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define PORT 7000
#define MOST 64

static int number, pid;
static long milliseconds, address;
static const char *label;

static void must(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

static const char *named(const char *where)
{
    static char text[64];
    snprintf(text, sizeof text, "%s%d", where, number);
    return text;
}

/* A socket at the victim's address of a family; `by` is 'a' for a name without a path. */
static socklen_t at(int family, int by, struct sockaddr_storage *to)
{
    memset(to, 0, sizeof *to);
    if (family == AF_INET) {
        struct sockaddr_in *in = (struct sockaddr_in *)to;
        in->sin_family = AF_INET;
        in->sin_port = htons(PORT);
        in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return sizeof *in;
    }
    struct sockaddr_un *un = (struct sockaddr_un *)to;
    un->sun_family = AF_UNIX;
    if (by == 'a') {
        strcpy(un->sun_path + 1, named("victim-"));
        return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(un->sun_path + 1));
    }
    strcpy(un->sun_path, named("/run/victim-"));
    return sizeof *un;
}

/* ---- the victim ---- */

static int listening(int family, int type, int by)
{
    struct sockaddr_storage to;
    socklen_t length = at(family, by, &to);
    int fd = socket(family, type, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    must(fd >= 0 && bind(fd, (struct sockaddr *)&to, length) == 0, "bind");
    must(type != SOCK_STREAM || listen(fd, 64) == 0, "listen");
    return fd;
}

static void put(const char *path)
{
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0666);
    must(fd >= 0 && write(fd, label, strlen(label)) > 0, path);
    fchmod(fd, 0666);
    close(fd);
}

static void victim(void)
{
    static char secret[] = "kept in memory";
    unlink(named("/run/victim-"));
    struct pollfd fds[4] = {{listening(AF_INET, SOCK_STREAM, 0), POLLIN, 0}, {listening(AF_UNIX, SOCK_STREAM, 'p'), POLLIN, 0},
                            {listening(AF_UNIX, SOCK_STREAM, 'a'), POLLIN, 0}, {listening(AF_INET, SOCK_DGRAM, 0), POLLIN, 0}};
    chmod(named("/run/victim-"), 0666);
    int shm = shmget(0x51000 + number, 4096, IPC_CREAT | 0666);
    char *memory = shm < 0 ? (void *)-1 : shmat(shm, NULL, 0);
    must(memory != (void *)-1, "shmget");
    strcpy(memory, label);
    must(msgget(0x52000 + number, IPC_CREAT | 0666) >= 0, "msgget");
    must(semget(0x53000 + number, 1, IPC_CREAT | 0666) >= 0, "semget");
    must(mq_open(named("/victim-"), O_CREAT | O_RDWR, 0666, NULL) >= 0, "mq_open");
    put(named("/dev/shm/victim-"));
    put(named("/srv/own/doc-"));
    printf("ready %d %ld\n", getpid(), (long)(uintptr_t)secret);
    fflush(stdout);
    for (;;) {
        if (poll(fds, 4, -1) < 0)
            continue;
        for (int i = 0; i < 3; i++) {
            int one = fds[i].revents ? accept(fds[i].fd, NULL, NULL) : -1;
            if (one >= 0 && write(one, label, strlen(label)) < 0)
                perror("write");
            if (one >= 0)
                close(one);
        }
        if (fds[3].revents) {
            char piece[16];
            struct sockaddr_storage from;
            socklen_t length = sizeof from;
            if (recvfrom(fds[3].fd, piece, sizeof piece, 0, (struct sockaddr *)&from, &length) >= 0)
                sendto(fds[3].fd, label, strlen(label), 0, (struct sockaddr *)&from, length);
        }
    }
}

/* ---- the attempts: each says whether it got what it wanted ---- */

static int reads(int fd)
{
    char text[256] = "";
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    close(fd);
    return n > 0 && !strcmp(text, label);
}

static int writes(int fd)
{
    int done = fd >= 0 && pwrite(fd, label, strlen(label), 0) == (ssize_t)strlen(label);
    close(fd);
    return done;
}

static int says(int family, int type, int by)
{
    struct sockaddr_storage to;
    socklen_t length = at(family, by, &to);
    struct timeval patience = {milliseconds / 1000, milliseconds % 1000 * 1000};
    int fd = socket(family, type, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&to, length) || (type == SOCK_DGRAM && send(fd, "?", 1, 0) != 1)) {
        close(fd);
        return 0;
    }
    return reads(fd);
}

static int document_read(void) { return reads(open(named("/srv/own/doc-"), O_RDONLY)); }
static int document_write(void) { return writes(open(named("/srv/own/doc-"), O_WRONLY)); }
static int document_add(void)
{
    int done = writes(open("/srv/own/added", O_CREAT | O_WRONLY, 0666));
    unlink("/srv/own/added");
    return done && document_read();
}
static int list(void)
{
    DIR *directory = opendir("/srv/own");
    int found = 0;
    for (struct dirent *one; directory && (one = readdir(directory));)
        found |= !strcmp(one->d_name, named("doc-"));
    return found;
}
static int by_path(void) { return says(AF_UNIX, SOCK_STREAM, 'p'); }
static int abstract(void) { return says(AF_UNIX, SOCK_STREAM, 'a'); }
static int tcp(void) { return says(AF_INET, SOCK_STREAM, 0); }
static int udp(void) { return says(AF_INET, SOCK_DGRAM, 0); }
static int memory_file_read(void) { return reads(open(named("/dev/shm/victim-"), O_RDONLY)); }
static int memory_file_write(void) { return writes(open(named("/dev/shm/victim-"), O_WRONLY)); }
static int segment(int flags)
{
    int id = shmget(0x51000 + number, 4096, 0);
    char *memory = id < 0 ? (void *)-1 : shmat(id, NULL, flags);
    if (memory == (void *)-1)
        return 0;
    if (!(flags & SHM_RDONLY))
        strcpy(memory, label);
    int is_so = !strcmp(memory, label);
    shmdt(memory);
    return is_so;
}
static int segment_read(void) { return segment(SHM_RDONLY); }
static int segment_write(void) { return segment(0); }
static int queue_look(void)
{
    struct msqid_ds state;
    return msgctl(msgget(0x52000 + number, 0), IPC_STAT, &state) == 0;
}
static int queue_put(void)
{
    struct { long kind; char text[1]; } message = {1, "x"};
    return msgsnd(msgget(0x52000 + number, 0), &message, 1, IPC_NOWAIT) == 0;
}
static int semaphore_read(void) { return semctl(semget(0x53000 + number, 1, 0), 0, GETVAL) >= 0; }
static int semaphore_set(void) { return semctl(semget(0x53000 + number, 1, 0), 0, SETVAL, 1) == 0; }
static int posix_queue(int flags)
{
    mqd_t queue = mq_open(named("/victim-"), flags);
    return queue >= 0 && mq_close(queue) == 0;
}
static int posix_queue_read(void) { return posix_queue(O_RDONLY); }
static int posix_queue_write(void) { return posix_queue(O_WRONLY); }
/* A signal that nobody ends by. */
static int signalled(void) { return kill(pid, SIGURG) == 0; }
static int by_pidfd(void)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    int done = fd >= 0 && syscall(SYS_pidfd_send_signal, fd, SIGURG, NULL, 0) == 0;
    close(fd);
    return done;
}
static int in_proc(void)
{
    char path[40], text[256] = "", own[300];
    snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    close(fd);
    /* Another may have that number. */
    int length = snprintf(own, sizeof own, "crossing victim %d %s", number, label) + 1;
    for (char *c = own; c < own + length - 1; c++)
        *c = *c == ' ' ? 0 : *c;
    return n == length && !memcmp(text, own, (size_t)n);
}
static int schedule_read(void) { return sched_getscheduler(pid) >= 0; }
static int schedule_set(void)
{
    struct sched_param none = {0};
    return sched_setscheduler(pid, SCHED_OTHER, &none) == 0;
}
static int limits(void)
{
    /* What is asked about is another hard limit. */
    struct rlimit limit;
    int done = prlimit(pid, RLIMIT_MSGQUEUE, NULL, &limit) == 0 && limit.rlim_max > 1 << 16;
    limit.rlim_cur = --limit.rlim_max;
    return done && prlimit(pid, RLIMIT_MSGQUEUE, &limit, NULL) == 0;
}
static int traced(void)
{
    if (ptrace(PTRACE_SEIZE, pid, 0, 0))
        return 0;
    ptrace(PTRACE_INTERRUPT, pid, 0, 0);
    waitpid(pid, NULL, __WALL);
    return ptrace(PTRACE_DETACH, pid, 0, 0) == 0;
}
static int memory_read(void)
{
    char text[15] = "";
    struct iovec here = {text, 14}, there = {(void *)(uintptr_t)address, 14};
    return process_vm_readv(pid, &here, 1, &there, 1, 0) == 14 && !strcmp(text, "kept in memory");
}
static int descriptor(void)
{
    int of = (int)syscall(SYS_pidfd_open, pid, 0), fd = of < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, of, 1, 0);
    close(of);
    close(fd);
    return fd >= 0;
}

static const struct { const char *what; int (*try)(void); } ALL[] = {
    {"read a document", document_read}, {"write a document", document_write}, {"add a document", document_add},
    {"list a directory", list}, {"read a file in /dev/shm", memory_file_read}, {"write a file in /dev/shm", memory_file_write},
    {"Unix socket by path", by_path}, {"Unix socket by abstract name", abstract}, {"TCP", tcp}, {"UDP", udp},
    {"read System V memory", segment_read}, {"write System V memory", segment_write}, {"look at a System V queue", queue_look},
    {"put into a System V queue", queue_put}, {"read a System V semaphore", semaphore_read}, {"set a System V semaphore", semaphore_set},
    {"open a POSIX queue to read", posix_queue_read}, {"open a POSIX queue to write", posix_queue_write}, {"signal a process", signalled},
    {"signal a process by pidfd", by_pidfd}, {"see a process in /proc", in_proc}, {"read how a process is scheduled", schedule_read},
    {"set how a process is scheduled", schedule_set}, {"set a process's limits", limits}, {"trace a process", traced},
    {"read a process's memory", memory_read}, {"take a process's descriptor", descriptor},
};
#define COUNT (sizeof ALL / sizeof *ALL)

/* ---- how one gets there ---- */

static int namespace(const char *of, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/ns/%s", of, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    must(fd >= 0, path);
    return fd;
}

static void join(const char *kinds, const char *subject, const char *object, unsigned uid, const char *context)
{
    static const struct { char kind; const char *name; } SPACES[] = {{'n', "net"}, {'i', "ipc"}, {'p', "pid"}, {'m', "mnt"}, {'u', "user"}};
    int fds[5];
    for (int i = 0; i < 5; i++)
        fds[i] = namespace(strchr(kinds, SPACES[i].kind) ? object : subject, SPACES[i].name);
    for (int i = 0; i < 3; i++)
        must(setns(fds[i], 0) == 0, SPACES[i].name);
    /* Only children are among the other processes. */
    pid_t child = fork();
    must(child >= 0, "fork");
    if (child > 0) {
        int status;
        waitpid(child, &status, 0);
        exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    int own = open("/proc/self/attr/current", O_WRONLY | O_CLOEXEC);
    must(own >= 0 && setns(fds[3], 0) == 0 && setns(fds[4], 0) == 0, "the namespaces");
    must(setgroups(0, NULL) == 0 && setresgid(uid, uid, uid) == 0 && setresuid(uid, uid, uid) == 0, "the uid");
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {{0}};
    must(syscall(SYS_capset, &header, none) == 0, "the capabilities");
    must(write(own, context, strlen(context)) == (ssize_t)strlen(context), context);
    close(own);
}

static void level(void)
{
    int pair[2];
    char context[256] = "";
    socklen_t length = sizeof context - 1;
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "a pair of sockets");
    must(getsockopt(pair[0], SOL_SOCKET, SO_PEERSEC, context, &length) == 0, "SO_PEERSEC");
    puts(context);
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    signal(SIGPIPE, SIG_IGN);
    umask(0);
    if (!strcmp(what, "list")) {
        for (size_t i = 0; i < COUNT; i++)
            puts(ALL[i].what);
        return 0;
    }
    if (!strcmp(what, "level")) {
        level();
        return 0;
    }
    if (!strcmp(what, "victim") && count == 4) {
        number = atoi(words[2]);
        label = words[3];
        victim();
    }
    must(!strcmp(what, "try") && count == 13, "how it is called");
    milliseconds = atol(words[8]);
    number = atoi(words[9]);
    label = words[10];
    pid = atoi(strchr(words[2], 'p') || !strcmp(words[3], words[4]) ? words[11] : words[5]);
    address = atol(words[12]);
    join(words[2], words[3], words[4], (unsigned)atoi(words[6]), words[7]);
    char said[MOST + 1] = "";
    for (size_t i = 0; i < COUNT && i < MOST; i++)
        said[i] = ALL[i].try() ? '1' : '0';
    puts(said);
    return 0;
}
