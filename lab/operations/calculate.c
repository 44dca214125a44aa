// Whole calculations: an optical ray trace and a Fourier transform, each of our own writing, after what John Walker's fbench and
// ffbench do.
#include "operations.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// A cemented achromatic doublet: of each surface its radius, the index behind it for the lines C, d and F, and the distance to the next.
struct surface {
    double radius, index[3], thickness;
};
static const struct surface LENS[] = {
    {62.8, {1.51432, 1.51680, 1.52238}, 4.0},
    {-45.7, {1.66661, 1.67271, 1.68750}, 2.5},
    {-128.2, {1.0, 1.0, 1.0}, 0.0},
};
#define SURFACES (sizeof LENS / sizeof *LENS)

// Where a ray that comes in parallel to the axis at `height` crosses it behind the lens; `height` 0: the paraxial ray.
static double focus(double height, int line) {
    double index = 1, slope = 0, distance = 0;
    for (size_t i = 0; i < SURFACES; i++) {
        const struct surface *s = &LENS[i];
        double in, out, turned;
        if (height == 0) {
            in = i == 0 ? 1 / s->radius : (distance - s->radius) / s->radius * slope;
            out = in * index / s->index[line];
            turned = slope + in - out;
            distance = s->radius + s->radius * out / turned;
        } else {
            in = i == 0 ? height / s->radius : (distance - s->radius) / s->radius * sin(slope);
            out = in * index / s->index[line];
            turned = slope + asin(in) - asin(out);
            distance = s->radius + s->radius * out / sin(turned);
        }
        slope = turned;
        index = s->index[line];
        distance -= s->thickness;
    }
    return distance;
}

static volatile double kept;

// All that a designer asks of a lens: longitudinal spherical aberration at twenty heights, and the colours' foci.
static void ray_trace(size_t n) {
    for (size_t i = 0; i < n; i++) {
        double worst = 0, paraxial = focus(0, 1);
        for (int h = 1; h <= 20; h++)
            worst = fmax(worst, fabs(focus(h * 0.6, 1) - paraxial));
        double colours = focus(0, 2) - focus(0, 0);
        // its maker says a back focal length of 97 mm
        if (!(paraxial > 95 && paraxial < 99 && worst < 1 && fabs(colours) < 1))
            failed("the ray trace");
        kept = worst + colours;
    }
}

#define SIDE 64
static double complex *picture, *kept_picture;

// In place, of `count` values `stride` apart; `sign` -1 forward, 1 back.
static void transform(double complex *x, size_t count, size_t stride, int sign) {
    for (size_t i = 1, j = 0; i < count; i++) {
        size_t bit = count >> 1;
        for (; j & bit; bit >>= 1)
            j ^= bit;
        j ^= bit;
        if (i < j) {
            double complex t = x[i * stride];
            x[i * stride] = x[j * stride];
            x[j * stride] = t;
        }
    }
    for (size_t half = 1; half < count; half *= 2) {
        double complex step = cexp(sign * I * M_PI / (double)half), w = 1;
        for (size_t k = 0; k < half; k++, w *= step)
            for (size_t i = k; i < count; i += 2 * half) {
                double complex a = x[i * stride], b = x[(i + half) * stride] * w;
                x[i * stride] = a + b;
                x[(i + half) * stride] = a - b;
            }
    }
}

static void both_ways(double complex *p, int sign) {
    for (size_t i = 0; i < SIDE; i++)
        transform(p + i * SIDE, SIDE, 1, sign);
    for (size_t i = 0; i < SIDE; i++)
        transform(p + i, SIDE, SIDE, sign);
}

static const char *open_picture(void) {
    picture = malloc(SIDE * SIDE * sizeof *picture);
    kept_picture = malloc(SIDE * SIDE * sizeof *picture);
    if (!picture || !kept_picture)
        return refused("memory for a picture");
    for (size_t i = 0; i < SIDE * SIDE; i++)
        kept_picture[i] = (double)((i * 2654435761u) % 256);
    memcpy(picture, kept_picture, SIDE * SIDE * sizeof *picture);
    return NULL;
}

// A picture there and back; what comes back is what went.
static void fourier(size_t n) {
    for (size_t i = 0; i < n; i++) {
        both_ways(picture, -1);
        both_ways(picture, 1);
        for (size_t k = 0; k < SIDE * SIDE; k++) {
            picture[k] /= SIDE * SIDE;
            if (cabs(picture[k] - kept_picture[k]) > 1e-6)
                failed("the Fourier transform");
        }
        memcpy(picture, kept_picture, SIDE * SIDE * sizeof *picture);
    }
}

const struct op CALCULATIONS[] = {
    {"ray-trace", NULL, ray_trace, 0, NULL},
    {"fourier", open_picture, fourier, 0, NULL},
    {NULL, NULL, NULL, 0, NULL},
};
