/* Fair timing of several ways to make one product. */
// SPDX-License-Identifier: Apache-2.0
#ifndef PROGRAM_MEASURE_H
#define PROGRAM_MEASURE_H

#include <stddef.h>
#include <stdint.h>

typedef struct runner {
    const char *name;
    void (*run)(void *self, const void *x, void *y);
    void (*finish)(void *self); /* waits until runs are done; NULL: they are */
    void *self;
    double known;            /* seconds that an earlier call took */
    int runs;                /* calls that were timed */
    double median, p10, p90; /* seconds of a call */
} runner;

/* Copies of x and places for y, one after the other: calls go through all of
   them in turn. */
typedef struct rotation {
    char *x, *y;
    size_t x_bytes, y_bytes; /* of one */
    int64_t copies;
} rotation;

/* Seconds of a call, over `calls` calls that start at copy *at. */
double time_calls(const runner *one, const rotation *r, int64_t calls, int64_t *at);

/* Times every runner for at least 0.2 s in rounds in which each has its turn, after
   a warm-up. A runner known to be far slower than another is left with that one
   time. Returns 0 when memory is out. */
int measure(runner *list, int count, const rotation *r);

#endif
