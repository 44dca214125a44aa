// Integer and floating arithmetic: chains in which each operation needs the one before, sixteen in a turn.
#include "operations.h"

#define FOUR(X) X X X X
#define SIXTEEN(X) FOUR(FOUR(X))
// The compiler knows nothing of a value any more.
#define HIDE(x) __asm__ volatile("" : "+r"(x))
#ifdef __x86_64__
#define HIDE_FLOAT(x) __asm__ volatile("" : "+x"(x))
#else
#define HIDE_FLOAT(x) __asm__ volatile("" : "+w"(x))
#endif

#define CHAIN(NAME, TYPE, HIDING, FIRST, SECOND, STEP) \
    static void NAME(size_t n) { \
        TYPE x = FIRST, k = SECOND; \
        HIDING(x); \
        HIDING(k); \
        for (size_t i = 0; i < n; i++) { \
            SIXTEEN(STEP; HIDING(x);) \
        } \
        (void)k; \
    }

CHAIN(int_bit, uint32_t, HIDE, 1, 0x5bd1e995u, x ^= k)
CHAIN(int_add, uint32_t, HIDE, 1, 0x5bd1e995u, x += k)
CHAIN(int_mult, uint32_t, HIDE, 1, 0x5bd1e995u, x *= k)
// k / (k / x) is near x again: the chain divides for ever and never by nothing.
CHAIN(int_div, uint32_t, HIDE, 40009, 0x5bd1e995u, x = k / x)
CHAIN(int_mod, uint32_t, HIDE, 40009, 0x5bd1e995u, x = k % x + 40009)
CHAIN(int64_bit, uint64_t, HIDE, 1, 0x9e3779b97f4a7c15u, x ^= k)
CHAIN(int64_mult, uint64_t, HIDE, 1, 0x9e3779b97f4a7c15u, x *= k)
CHAIN(int64_div, uint64_t, HIDE, 3000000019u, 0x9e3779b97f4a7c15u, x = k / x)
CHAIN(int64_mod, uint64_t, HIDE, 3000000019u, 0x9e3779b97f4a7c15u, x = k % x + 3000000019u)
CHAIN(float_add, float, HIDE_FLOAT, 1.0f, 0.5f, x += k)
CHAIN(float_mult, float, HIDE_FLOAT, 1.0f, 1.0f, x *= k)
CHAIN(float_div, float, HIDE_FLOAT, 1.3f, 2.9f, x = k / x)
// A sum, a product, a sum and a quotient; it settles at 1.
CHAIN(float_bogo, float, HIDE_FLOAT, 1.0f, 1.5f, x = (x + 1.0f) * k / (x + 2.0f))
CHAIN(double_add, double, HIDE_FLOAT, 1.0, 0.5, x += k)
CHAIN(double_mult, double, HIDE_FLOAT, 1.0, 1.0, x *= k)
CHAIN(double_div, double, HIDE_FLOAT, 1.3, 2.9, x = k / x)
CHAIN(double_bogo, double, HIDE_FLOAT, 1.0, 1.5, x = (x + 1.0) * k / (x + 2.0))

const struct op ARITHMETIC[] = {
    {"int-bit", NULL, int_bit, 16, NULL},         {"int-add", NULL, int_add, 16, NULL},
    {"int-mult", NULL, int_mult, 16, NULL},       {"int-div", NULL, int_div, 16, NULL},
    {"int-mod", NULL, int_mod, 16, NULL},         {"int64-bit", NULL, int64_bit, 16, NULL},
    {"int64-mult", NULL, int64_mult, 16, NULL},   {"int64-div", NULL, int64_div, 16, NULL},
    {"int64-mod", NULL, int64_mod, 16, NULL},     {"float-add", NULL, float_add, 16, NULL},
    {"float-mult", NULL, float_mult, 16, NULL},   {"float-div", NULL, float_div, 16, NULL},
    {"float-bogo", NULL, float_bogo, 16, NULL},   {"double-add", NULL, double_add, 16, NULL},
    {"double-mult", NULL, double_mult, 16, NULL}, {"double-div", NULL, double_div, 16, NULL},
    {"double-bogo", NULL, double_bogo, 16, NULL}, {NULL, NULL, NULL, 0, NULL},
};
