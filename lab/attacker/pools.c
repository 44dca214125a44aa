// Pools that the machine has once: the sender takes all that its label may have, in as many processes as it may have, and the receiver
// sees whether there is one more for it.
#include "attacker.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HOLDERS = 200, INSTRUCTIONS = 4096 };
static pid_t holders[HOLDERS];
static int count, done[2];
static int (*one)(void); // takes one; below zero: there is none

static int one_file(void) {
    return eventfd(0, EFD_CLOEXEC);
}

static int one_terminal(void) {
    return open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
}

// A filter of the longest that there may be, compiled for the processor.
static int one_filter(void) {
    static struct sock_filter code[INSTRUCTIONS];
    for (int i = 0; i < INSTRUCTIONS - 1; i++)
        code[i] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_IMM, (uint32_t)i);
    code[INSTRUCTIONS - 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {INSTRUCTIONS, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? -1 : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int one_process(void) {
    return 0; // who holds it is it
}

static const struct {
    const char *name;
    int (*one)(void);
    int each; // so many a process; more than it may have, but for what would take all its memory
} KINDS[] = {{"files", one_file, 4000}, {"terminals", one_terminal, 4000}, {"filters", one_filter, 64}, {"processes", one_process, 1}};
static int each;

static const char *pool_open(const char *name, int above) {
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (name && !strcmp(KINDS[i].name, name)) {
            one = KINDS[i].one;
            each = KINDS[i].each;
        }
    if (!one)
        return "no such pool";
    struct rlimit files;
    if (above && getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    return pipe(done) ? refused("a pipe") : NULL;
}

static void release(void) {
    for (int i = 0; i < count; i++)
        kill(holders[i], SIGKILL);
    while (count > 0)
        waitpid(holders[--count], NULL, 0);
}

static void pool_send(unsigned symbol, ns until) {
    release();
    while (symbol && count < HOLDERS && now() < until) {
        pid_t child = fork();
        if (child < 0)
            break;
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (int i = 0; i < each && one() >= 0; i++)
                ;
            if (write(done[1], "x", 1) == 1)
                for (;;)
                    pause();
            _exit(1);
        }
        holders[count++] = child;
        // The next one takes when this one has.
        struct pollfd ready = {.fd = done[0], .events = POLLIN};
        char byte;
        ns left = until - now();
        if (left <= 0 || poll(&ready, 1, (int)(left / 1000000) + 1) != 1 || read(done[0], &byte, 1) != 1)
            break;
    }
}

// Why there is none for it, or 0.
static double pool_observe(ns until) {
    (void)until;
    pid_t child = fork();
    if (child == 0)
        _exit(one() < 0 ? errno & 127 : 0);
    int status = 0;
    if (child < 0)
        return errno;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

const struct channel POOLS[] = {
    {"pool", STATE, 2, pool_open, pool_send, pool_observe},
    {0},
};
