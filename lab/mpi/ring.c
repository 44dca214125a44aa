/* Messages between two processes on two hosts: `ring WHAT OCTETS MILLISECONDS`, started by mpirun. The first process prints nanoseconds of a
 * round, which a quarter of the batches did not exceed, and how many rounds there were in all. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 16, FIRST = 8, MOST = 100000 };

static int me, all, octets;
static char *out, *in;

static void fail(const char *why) {
    fprintf(stderr, "ring: %s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* A message goes round the ring of all processes. */
static void ring(void) {
    int before = (me + all - 1) % all, after = (me + 1) % all;
    if (me == 0)
        MPI_Send(out, octets, MPI_CHAR, after, 0, MPI_COMM_WORLD);
    MPI_Recv(in, octets, MPI_CHAR, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (me != 0)
        MPI_Send(out, octets, MPI_CHAR, after, 0, MPI_COMM_WORLD);
}

/* Each of two sends to the other at once, and waits for both. */
static void exchange(void) {
    MPI_Request both[2];
    MPI_Irecv(in, octets, MPI_CHAR, 1 - me, 0, MPI_COMM_WORLD, &both[0]);
    MPI_Isend(out, octets, MPI_CHAR, 1 - me, 0, MPI_COMM_WORLD, &both[1]);
    MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    static double batches[MOST];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &all);
    if (argc != 4 || all != 2)
        fail("usage: mpirun -n 2 ring ring|blocking|nonblocking OCTETS MILLISECONDS");
    octets = atoi(argv[2]);
    if (octets < 1 || octets > 1 << 24 || !(out = calloc(1, octets)) || !(in = calloc(1, octets)))
        fail("a message has 1 octet to 16 MiB");
    /* Between two, back and forth is the same as round. */
    void (*round)(void) = strcmp(argv[1], "nonblocking") ? ring : exchange;
    double seconds = atof(argv[3]) / 1e3, begin = MPI_Wtime();
    int n = 0;
    for (int go = 1; go && n < MOST + FIRST; n++) {
        double last = MPI_Wtime();
        for (int i = 0; i < BATCH; i++)
            round();
        double now = MPI_Wtime();
        if (n >= FIRST)
            batches[n - FIRST] = (now - last) / BATCH;
        else
            begin = now;
        /* The first one says when it is over; that is no part of a batch. */
        go = n < FIRST || now - begin < seconds;
        MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    if (me == 0) {
        qsort(batches, n - FIRST, sizeof *batches, by_size);
        printf("%.1f %d\n", batches[(n - FIRST) / 4] * 1e9, n * BATCH);
    }
    MPI_Finalize();
    return 0;
}
