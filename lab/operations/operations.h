// The small operations of the studies: each is timed by itself, by one static program that runs unchanged natively, in a compartment,
// and in what others use to keep programs apart.
//
// It is C, and a program of its own, because it times single instructions, system calls and faults: nothing of a language's
// run-time may stand between, and it must run wherever there is a kernel.
#ifndef OPERATIONS_H
#define OPERATIONS_H

#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>

// One operation.
struct op {
    const char *name;
    // Prepares. Null, or why it cannot be had here. May be null.
    const char *(*open)(void);
    // Does it `n` times. May be null, where `measure` is not.
    void (*run)(size_t n);
    // How many operations are in one of `n`; 0 for 1.
    double divide;
    // Nanoseconds for one operation, from about `seconds` of work, where counting runs is not enough.
    double (*measure)(double seconds);
};

extern const struct op ARITHMETIC[], SYSTEM[], FILES[], MEMORY[], SWITCHES[], CALCULATIONS[], STORAGE[],
    STEADY[];

// Nanoseconds of CLOCK_MONOTONIC.
int64_t now(void);
// What a quarter of short batches do not exceed, in nanoseconds for one run, from about `seconds` of work.
double timed(void (*run)(size_t), double seconds);
// The value that a quarter of them do not exceed; puts them in order. On a busy host the middle one is often a batch from which the
// processor was taken away, and says nothing of the operation.
double quarter(double *values, size_t count);
// The last error in words, after what failed.
const char *refused(const char *what);
// A writable directory on a tmpfs. Null: there is none.
const char *scratch(void);
// A directory of a file system that lasts: the compartment's own store, unless the job says another.
extern const char *store;
// This program's own path.
extern const char *self;
// Ends the process: an operation failed while it was being timed.
void failed(const char *what) __attribute__((noreturn));
// Memory latency at `size` bytes with one load in each `stride`; 0: all cache lines in random order.
double latency(size_t size, size_t stride, double seconds);
// The middle time from when a period of the application's began until its data of so many units was done, in nanoseconds. What of a
// hundred deadlines it missed, and the time that one in a hundred exceeded.
double periodic(unsigned units, double seconds, double *missed, double *late);
// How late it is woken, by the mean of times that it chose at random, in nanoseconds; and the lateness that one in a hundred exceeded.
double woken(double seconds, double *late);
// Other people's programs by name, `openssl/evp/ALGORITHM`, `openssl/old/…`, `openssl/sign/…`, `openssl/verify/…`: nanoseconds for a byte,
// or for an operation, from a second's work; 0: no such name.
double command(const char *name);
// The machine's script of that name, over and over: nanoseconds for one, and how many packets and octets went over the link meanwhile, for each.
double scripts(const char *name, double seconds, double *packets, double *octets);
// Whether a stream's packets on this interface, the loopback's or those of a pair, are all `clear`, or all with a label of `cipso`, `esp` or
// `macsec`: 0 if so.
int packets(const char *interface, const char *where, const char *kind);
// Takes all that it can of the processor.
void hog(double seconds);

#endif
