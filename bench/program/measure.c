/* Fair timing of several ways to make one product.

   Rounds are interleaved (A B C, A B C, ...), so that a machine that slows down or
   speeds up does so for all. A sample is the mean of as many calls as take about
   a millisecond; the call before each turn is not timed. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/program/measure.h"

#include "common/timing.h"

#include <stdlib.h>

#define SECONDS     0.2
#define ROUNDS      8
#define MIN_SAMPLES 9
#define MAX_SAMPLES 4096
#define LONG_CALL   0.1 /* seconds: an earlier call is warm-up enough */
#define HOPELESS    3.0 /* times the fastest: a long call is not timed again */

typedef struct turn {
    double estimate, total;
    int64_t calls; /* of a sample */
    int count;
    double *samples;
} turn;

double time_calls(const runner *one, const rotation *r, int64_t calls, int64_t *at)
{
    double start = seconds_now();
    for (int64_t i = 0; i < calls; i++) {
        one->run(
            one->self, r->x + (size_t)*at * r->x_bytes,
            r->y + (size_t)*at * r->y_bytes);
        *at = *at + 1 == r->copies ? 0 : *at + 1;
    }
    if (one->finish)
        one->finish(one->self);
    return (seconds_now() - start) / (double)calls;
}

/* Warms up for some milliseconds and finds how many calls make a sample. */
static void warm_up(const runner *one, const rotation *r, turn *t, int64_t *at)
{
    t->calls = 1;
    t->estimate = one->known;
    if (one->known > LONG_CALL)
        return;
    t->estimate = time_calls(one, r, 1, at);
    for (double spent = t->estimate; spent < 0.02;) {
        int64_t calls = (int64_t)(0.002 / t->estimate) + 1;
        double again = time_calls(one, r, calls, at);
        spent += again * (double)calls;
        t->estimate = again < t->estimate ? again : t->estimate;
    }
    t->calls = (int64_t)(0.001 / t->estimate) + 1;
}

static int wants_more(const turn *t)
{
    if (t->calls == 0) /* hopeless */
        return 0;
    return t->count < MIN_SAMPLES || (t->total < SECONDS && t->count < MAX_SAMPLES);
}

static void take_turn(const runner *one, const rotation *r, turn *t, int64_t *at)
{
    if (t->estimate < 0.01)
        time_calls(one, r, 1, at);
    double spent = 0;
    do {
        double sample = time_calls(one, r, t->calls, at);
        t->samples[t->count++] = sample;
        spent += sample * (double)t->calls;
    } while (spent < SECONDS / ROUNDS && t->count < MAX_SAMPLES);
    t->total += spent;
}

static void summarise(runner *one, turn *t)
{
    if (t->calls == 0) {
        one->runs = 1;
        one->median = one->p10 = one->p90 = one->known;
        return;
    }
    sort_numbers(t->samples, (size_t)t->count);
    one->runs = (int)(t->count * t->calls);
    one->median = t->samples[t->count / 2];
    one->p10 = t->samples[t->count / 10];
    one->p90 = t->samples[t->count * 9 / 10];
}

static void run_rounds(runner *list, int count, const rotation *r, turn *turns)
{
    double fastest = 1e300;
    int64_t at = 0;
    for (int i = 0; i < count; i++)
        if (list[i].known > 0 && list[i].known < fastest)
            fastest = list[i].known;
    for (int i = 0; i < count; i++)
        if (list[i].known < LONG_CALL || list[i].known < HOPELESS * fastest)
            warm_up(&list[i], r, &turns[i], &at);
    for (int more = 1; more;) {
        more = 0;
        for (int i = 0; i < count; i++)
            if (wants_more(&turns[i])) {
                take_turn(&list[i], r, &turns[i], &at);
                more = 1;
            }
    }
    for (int i = 0; i < count; i++)
        summarise(&list[i], &turns[i]);
}

int measure(runner *list, int count, const rotation *r)
{
    turn *turns = calloc((size_t)count, sizeof *turns);
    double *samples = calloc((size_t)count * MAX_SAMPLES, sizeof *samples);
    int ok = turns && samples;
    if (ok) {
        for (int i = 0; i < count; i++)
            turns[i].samples = samples + (size_t)i * MAX_SAMPLES;
        run_rounds(list, count, r, turns);
    }
    free(turns);
    free(samples);
    return ok;
}
