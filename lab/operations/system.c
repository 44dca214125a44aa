// System calls, signals and processes.
#include "operations.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int zero, null;
static fd_set watched;
static int highest;

static void null_call(size_t n) {
    for (size_t i = 0; i < n; i++)
        syscall(SYS_getppid);
}

static const char *open_devices(void) {
    zero = open("/dev/zero", O_RDONLY);
    if (zero < 0)
        return refused("/dev/zero");
    null = open("/dev/null", O_WRONLY);
    return null < 0 ? refused("/dev/null") : NULL;
}

// One byte read and one written: two operations.
static void null_io(size_t n) {
    char byte;
    for (size_t i = 0; i < n; i++)
        if (read(zero, &byte, 1) != 1 || write(null, &byte, 1) != 1)
            failed("null I/O");
}

static void stat_file(size_t n) {
    struct stat s;
    for (size_t i = 0; i < n; i++)
        if (stat(self, &s))
            failed("stat");
}

static void open_close(size_t n) {
    for (size_t i = 0; i < n; i++) {
        int f = open(self, O_RDONLY);
        if (f < 0 || close(f))
            failed("open");
    }
}

// A hundred ends of TCP connections, on none of which anything comes.
static const char *open_connections(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, size) || listen(listener, 128) ||
        getsockname(listener, (struct sockaddr *)&at, &size))
        return refused("a listener on the loopback");
    FD_ZERO(&watched);
    for (int i = 0; i < 50; i++) {
        int near = socket(AF_INET, SOCK_STREAM, 0);
        if (near < 0 || connect(near, (struct sockaddr *)&at, size))
            return refused("a connection on the loopback");
        int far = accept(listener, NULL, NULL);
        if (far < 0 || far >= FD_SETSIZE || near >= FD_SETSIZE)
            return refused("the other end of a connection");
        FD_SET(near, &watched);
        FD_SET(far, &watched);
        highest = far > highest ? far : highest;
        highest = near > highest ? near : highest;
    }
    return NULL;
}

static void select_tcp(size_t n) {
    for (size_t i = 0; i < n; i++) {
        fd_set set = watched;
        struct timeval none = {0, 0};
        if (select(highest + 1, &set, NULL, NULL, &none) != 0)
            failed("select");
    }
}

static void nothing(int signal) { (void)signal; }

static void signal_install(size_t n) {
    struct sigaction action = {.sa_handler = nothing};
    for (size_t i = 0; i < n; i++)
        if (sigaction(SIGUSR1, &action, NULL))
            failed("sigaction");
}

static const char *open_signal(void) {
    signal_install(1);
    return NULL;
}

static void signal_handle(size_t n) {
    pid_t me = getpid();
    for (size_t i = 0; i < n; i++)
        kill(me, SIGUSR1);
}

static void ended(pid_t child) {
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status))
        failed("a process");
}

static void fork_process(size_t n) {
    for (size_t i = 0; i < n; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        ended(child);
    }
}

static void exec_process(size_t n) {
    for (size_t i = 0; i < n; i++) {
        pid_t child = fork();
        if (child == 0) {
            execl(self, self, "nothing", (char *)NULL);
            _exit(1);
        }
        ended(child);
    }
}

static void shell_process(size_t n) {
    static char command[4096];
    size_t used = 0;
    for (const char *c = self; *c && used < sizeof command - 20; c++)
        command[used++] = *c;
    for (const char *c = " nothing"; *c; c++)
        command[used++] = *c;
    command[used] = 0;
    for (size_t i = 0; i < n; i++) {
        pid_t child = fork();
        if (child == 0) {
            execl("/bin/sh", "sh", "-c", command, (char *)NULL);
            _exit(1);
        }
        ended(child);
    }
}

const struct op SYSTEM[] = {
    {"null-call", NULL, null_call, 0, NULL},
    {"null-io", open_devices, null_io, 2, NULL},
    {"stat", NULL, stat_file, 0, NULL},
    {"open-close", NULL, open_close, 0, NULL},
    {"select-tcp", open_connections, select_tcp, 0, NULL},
    {"signal-install", NULL, signal_install, 0, NULL},
    {"signal-handle", open_signal, signal_handle, 0, NULL},
    {"fork", NULL, fork_process, 0, NULL},
    {"exec", NULL, exec_process, 0, NULL},
    {"shell", NULL, shell_process, 0, NULL},
    {NULL, NULL, NULL, 0, NULL},
};
