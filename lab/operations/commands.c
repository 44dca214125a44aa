// Other people's programs: `openssl speed`, as whoever runs it in the same place gets it.
#include "operations.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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
            execl("/usr/bin/openssl", "openssl", "speed", "-mr", "-seconds", "1", algorithm, NULL);
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

static double bytes(const char *algorithm) { return 1e9 / said(algorithm, 1, 3); }

static double aes_cbc(double s) { (void)s; return bytes("aes-128-cbc"); }
static double aes_gcm(double s) { (void)s; return bytes("aes-256-gcm"); }
static double chacha(double s) { (void)s; return bytes("chacha20-poly1305"); }
static double md5(double s) { (void)s; return bytes("md5"); }
static double sha256(double s) { (void)s; return bytes("sha256"); }
static double sha512(double s) { (void)s; return bytes("sha512"); }
static double rsa_sign(double s) { (void)s; return 1e9 / said("rsa2048", 0, 3); }
static double rsa_verify(double s) { (void)s; return 1e9 / said("rsa2048", 0, 4); }
static double dsa_sign(double s) { (void)s; return 1e9 / said("dsa2048", 0, 3); }
static double dsa_verify(double s) { (void)s; return 1e9 / said("dsa2048", 0, 4); }

const struct op COMMANDS[] = {
    {"openssl-aes-128-cbc", NULL, NULL, 0, aes_cbc},     {"openssl-aes-256-gcm", NULL, NULL, 0, aes_gcm},
    {"openssl-chacha20", NULL, NULL, 0, chacha},         {"openssl-md5", NULL, NULL, 0, md5},
    {"openssl-sha256", NULL, NULL, 0, sha256},           {"openssl-sha512", NULL, NULL, 0, sha512},
    {"openssl-rsa-sign", NULL, NULL, 0, rsa_sign},       {"openssl-rsa-verify", NULL, NULL, 0, rsa_verify},
    {"openssl-dsa-sign", NULL, NULL, 0, dsa_sign},       {"openssl-dsa-verify", NULL, NULL, 0, dsa_verify},
    {NULL, NULL, NULL, 0, NULL},
};
