// The attacker: a taken-over service, as the leak meter and the recorder use it. It runs inside a compartment, under the
// services' uid and filter, and does what the laboratory tells it over a connection.
//
// It is C, and a program of its own, because it does on purpose what levee's code may not: raw system calls with any
// arguments, reads of mapped files while others change them, cache lines flushed and timed.
#ifndef ATTACKER_H
#define ATTACKER_H

#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

// Nanoseconds of CLOCK_REALTIME: what two programs that share nothing else have in common.
typedef int64_t ns;

// How the two ends meet in a window.
enum meeting {
    STATE, // the sender makes something so early in the window; the receiver looks late in it
    WORK,  // both are at it for the whole window
};

// One way to tell something below, from above.
struct channel {
    const char *name;
    enum meeting meeting;
    int symbols; // how many values a window can have
    // Prepares one end. Answers null, or why this end cannot be had.
    const char *(*open)(const char *argument, int above);
    // Above: says `symbol`, and is done by `until`.
    void (*send)(unsigned symbol, ns until);
    // Below: what it sees; it looks until `until`. NaN: nothing could be seen.
    double (*observe)(ns until);
};

extern const struct channel KERNEL[], HARDWARE[], RESOURCES[], SOCKETS[], POOLS[], CROSSING[];

ns now(void);
// Waits as exactly as is possible.
void wait_until(ns t);
// The last error in words.
const char *refused(const char *what);
// Keeps this process on one processor.
void stay_on(int processor);
// Processor cycles.
uint64_t cycles(void);
// A file of /usr that both ends find: regular, readable, at least a MiB, mapped by nobody here. Null: there is none.
const char *common_file(void);

// The name of an interface that is not the loopback, or nothing.
const char *interface(void);

// The recorder (record.c) and its driver (drive.c). `inherited`: how many descriptors from 3 on are looked at and used, too.
void record(FILE *out, int inherited);
// The driver says that it is ready when it has done and holds what it can, and ends when it is told anything.
void drive(FILE *in, FILE *out, int inherited);

#endif
