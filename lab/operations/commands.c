// Other people's programs: `openssl speed`, as whoever runs it in the same place gets it.
#include "operations.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// What follows in a name that begins so.
static const char *after(const char *begin, const char *name) {
    size_t length = strlen(begin);
    return strncmp(name, begin, length) || !name[length] ? NULL : name + length;
}

// What `openssl speed -mr` says last in its line `+F…` (openssl-speed(1)): bytes or operations a second.
static double said(const char *algorithm, int evp, int field) {
    int ends[2];
    if (pipe(ends))
        failed("a pipe");
    pid_t child = fork();
    if (child < 0)
        failed("a process");
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY);
        if (null < 0 || dup2(ends[1], 1) < 0 || dup2(null, 2) < 0)
            _exit(126);
        close(ends[0]);
        // the library reads no configuration, which places may have or not
        setenv("OPENSSL_CONF", "/dev/null", 1);
        if (evp)
            execl("/usr/bin/openssl", "openssl", "speed", "-mr", "-seconds", "1", "-bytes", "8192", "-evp", algorithm, NULL);
        else
            execl("/usr/bin/openssl", "openssl", "speed", "-mr", "-seconds", "1", "-bytes", "8192", algorithm, NULL);
        _exit(127);
    }
    close(ends[1]);
    FILE *out = fdopen(ends[0], "r");
    char line[400];
    double value = -1;
    while (out && fgets(line, sizeof line, out)) {
        if (strncmp(line, "+F", 2))
            continue;
        char *at = line;
        for (int i = 0; at && i < field; i++)
            at = strchr(at, ':') ? strchr(at, ':') + 1 : NULL;
        if (at)
            value = atof(at);
    }
    int status;
    if (waitpid(child, &status, 0) != child)
        failed("openssl speed");
    if (status || value <= 0) {
        static char why[100];
        snprintf(why, sizeof why, "openssl speed ended with status %#x and said %g", (unsigned)status, value);
        errno = 0;
        failed(why);
    }
    return value;
}

// What has gone out at both ends of a machine's link, as their queues count it: a super-segment as so many packets.
static void passed(double *packets, double *octets) {
    FILE *said = popen("/bin/tc -s qdisc show dev pair && /bin/tc -n far -s qdisc show dev pair", "r");
    char line[400];
    unsigned long long bytes, count;
    int ends = 0;
    *packets = *octets = 0;
    while (said && fgets(line, sizeof line, said))
        if (sscanf(line, " Sent %llu bytes %llu pkt", &bytes, &count) == 2) {
            *octets += (double)bytes;
            *packets += (double)count;
            ends++;
        }
    if (!said || pclose(said) || ends != 2) {
        errno = 0;
        failed("what passed at both ends of the link");
    }
}

double scripts(const char *name, double seconds, double *packets, double *octets) {
    char run[100];
    double before[2];
    int64_t spent = 0;
    size_t times = 0;
    if (!*name || strspn(name, "abcdefghijklmnopqrstuvwxyz-") != strlen(name) || strlen(name) > 40) {
        errno = 0;
        failed("the name of a script");
    }
    snprintf(run, sizeof run, "/bin/sh /kit/jobs/%s </dev/null >/dev/null 2>&1", name);
    passed(&before[0], &before[1]);
    for (; !times || (double)spent < seconds * 1e9; times++) {
        int64_t begin = now();
        int status = system(run);
        spent += now() - begin;
        if (status) {
            static char why[100];
            snprintf(why, sizeof why, "%s ended with status %#x", name, (unsigned)status);
            errno = 0;
            failed(why);
        }
    }
    passed(packets, octets);
    *packets = (*packets - before[0]) / (double)times;
    *octets = (*octets - before[1]) / (double)times;
    return (double)spent / (double)times;
}

double command(const char *name) {
    const char *algorithm;
    if ((algorithm = after("openssl/evp/", name)))
        return 1e9 / said(algorithm, 1, 3);
    if ((algorithm = after("openssl/old/", name))) // what has no other name
        return 1e9 / said(algorithm, 0, 3);
    if ((algorithm = after("openssl/sign/", name)))
        return 1e9 / said(algorithm, 0, 3);
    if ((algorithm = after("openssl/verify/", name)))
        return 1e9 / said(algorithm, 0, 4);
    return 0;
}
