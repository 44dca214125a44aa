/*
 * At a level of SELinux's, in a guest: serves on a TCP and a UDP port, and says to whoever asks what level they have here.
 * labelled LEVEL PORT
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SCM_SECURITY
#define SCM_SECURITY 3
#endif

static void must(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

static int listener(int type, int port)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    int one = 1, fd = socket(AF_INET6, type, 0);
    must(fd >= 0, "socket");
    must(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0, "SO_REUSEADDR");
    must(bind(fd, (struct sockaddr *)&any, sizeof any) == 0, "bind");
    if (type == SOCK_STREAM)
        must(listen(fd, 16) == 0, "listen");
    else
        must(setsockopt(fd, IPPROTO_IP, IP_PASSSEC, &one, sizeof one) == 0, "IP_PASSSEC");
    return fd;
}

static void stream(int fd)
{
    char context[256] = "none\n";
    socklen_t length = sizeof context - 1;
    int one = accept(fd, NULL, NULL);
    if (one < 0)
        return;
    if (getsockopt(one, SOL_SOCKET, SO_PEERSEC, context, &length) == 0)
        strcpy(context + strnlen(context, length), "\n");
    if (write(one, context, strlen(context)) < 0)
        perror("write");
    close(one);
}

/* Linux labels what a socket of IPv6 sends only where it is connected: an answer goes by one of its own, from the same port. */
static void answer(int fd, const char *said, struct sockaddr_in6 *to)
{
    struct sockaddr_in6 own;
    socklen_t length = sizeof own;
    int one = 1;
    if (IN6_IS_ADDR_V4MAPPED(&to->sin6_addr)) {
        if (sendto(fd, said, strlen(said), 0, (struct sockaddr *)to, sizeof *to) < 0)
            perror("sendto");
        return;
    }
    must(getsockname(fd, (struct sockaddr *)&own, &length) == 0, "getsockname");
    fd = socket(AF_INET6, SOCK_DGRAM, 0);
    must(fd >= 0, "socket");
    must(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0, "SO_REUSEADDR");
    must(bind(fd, (struct sockaddr *)&own, sizeof own) == 0, "bind");
    if (connect(fd, (struct sockaddr *)to, sizeof *to) < 0 || send(fd, said, strlen(said), 0) < 0)
        perror("send");
    close(fd);
}

static void datagram(int fd)
{
    char body[2048], control[512], context[256] = "none\n";
    struct sockaddr_in6 from;
    struct iovec io = {body, sizeof body};
    struct msghdr message = {&from, sizeof from, &io, 1, control, sizeof control, 0};
    struct cmsghdr *one;
    if (recvmsg(fd, &message, 0) < 0)
        return;
    for (one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one))
        if (one->cmsg_level == SOL_IP && one->cmsg_type == SCM_SECURITY)
            snprintf(context, sizeof context, "%.*s\n", (int)(one->cmsg_len - CMSG_LEN(0)), (char *)CMSG_DATA(one));
    answer(fd, context, &from);
}

int main(int count, char **arguments)
{
    char context[128];
    int attribute, port;
    must(count == 3, "labelled LEVEL PORT");
    port = atoi(arguments[2]);
    snprintf(context, sizeof context, "u:r:t:%s", arguments[1]);
    attribute = open("/proc/self/attr/current", O_WRONLY);
    must(attribute >= 0 && write(attribute, context, strlen(context)) > 0, context);
    struct pollfd fds[2] = {{listener(SOCK_STREAM, port), POLLIN}, {listener(SOCK_DGRAM, port), POLLIN}};
    puts("serves");
    fflush(stdout);
    while (poll(fds, 2, -1) >= 0) {
        if (fds[0].revents)
            stream(fds[0].fd);
        if (fds[1].revents)
            datagram(fds[1].fd);
    }
    return 1;
}
