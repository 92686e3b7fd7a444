/* Cutting a product into parts for a team, and what baselines share. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/baselines/parts.h"

#include "bench/memory.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct cut {
    const loop_part *whole;
    int64_t q_step, q_parts, s_step;
    loop_fn fn;
    char *scratch;
    size_t scratch_bytes;
} cut;

static int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }

static int64_t parts_of(int64_t total, int64_t step)
{
    return (total + step - 1) / step;
}

static void run_part(void *arg, long i, int thread)
{
    const cut *c = arg;
    loop_part part = *c->whole;
    int64_t q = i % c->q_parts, s = i / c->q_parts;
    part.q0 = c->whole->q0 + q * c->q_step;
    part.q1 = least(part.q0 + c->q_step, c->whole->q1);
    part.s0 = c->whole->s0 + s * c->s_step;
    part.s1 = least(part.s0 + c->s_step, c->whole->s1);
    c->fn(&part, c->scratch + (size_t)thread * c->scratch_bytes);
}

void run_parts(
    team *t, const loop_part *whole, int64_t grain, loop_fn fn, void *scratch,
    size_t scratch_bytes)
{
    int64_t rows = whole->q1 - whole->q0, batch = whole->s1 - whole->s0;
    int64_t wanted = team_threads(t) == 1 ? 1 : 4 * (int64_t)team_threads(t);
    cut c = { .whole = whole, .fn = fn, .scratch = scratch };
    c.scratch_bytes = scratch_bytes;
    c.s_step = parts_of(parts_of(batch, wanted), grain) * grain;
    int64_t s_parts = parts_of(batch, c.s_step);
    c.q_step = parts_of(rows, least(rows, parts_of(wanted, s_parts)));
    c.q_parts = parts_of(rows, c.q_step);
    team_run(t, (long)(c.q_parts * s_parts), run_part, &c);
}

void *repack_weights(const bench_factor *f, int to_blocks)
{
    danaus_pattern p = f->pattern;
    size_t size = danaus_dtype_size(f->dtype);
    char *to = bench_alloc(p.a * p.b * p.c * p.d, size);
    const char *w = f->w;
    for (int64_t i = 0; to && i < p.a; i++)
        for (int64_t r = 0; r < p.b; r++)
            for (int64_t k = 0; k < p.c; k++)
                for (int64_t j = 0; j < p.d; j++) {
                    int64_t at = to_blocks ? ((i * p.d + j) * p.b + r) * p.c + k
                                           : ((i * p.c + k) * p.b + r) * p.d + j;
                    memcpy(to + (size_t)at * size, w, size);
                    w += size;
                }
    return to;
}

/* ---- permutation ---- */

typedef struct lanes {
    const bench_factor *f;
    const char *from;
    char *to;
    int back;
} lanes;

/* Part q: the blocks i (batch-first) or rows (batch-last) q0 .. q1. */
static void permute_part(const loop_part *part, void *scratch)
{
    (void)scratch;
    const lanes *l = part->w;
    danaus_pattern p = l->f->pattern;
    size_t size = danaus_dtype_size(l->f->dtype);
    int64_t inner = l->back ? p.b : p.c, row = p.a * inner * p.d, n = part->batch;
    if (l->f->layout == DANAUS_BATCH_FIRST) {
        for (int64_t s = part->s0; s < part->s1; s++)
            for (int64_t i = part->q0; i < part->q1; i++) {
                size_t at = (size_t)(s * row + i * inner * p.d) * size;
                if (l->back)
                    l->f->loops->transpose(
                        l->from + at, inner, l->to + at, p.d, p.d, inner);
                else
                    l->f->loops->transpose(
                        l->from + at, p.d, l->to + at, inner, inner, p.d);
            }
        return;
    }
    for (int64_t q = part->q0; q < part->q1; q++) { /* q: (i, k, j) */
        int64_t j = q % p.d, k = q / p.d % inner, i = q / p.d / inner;
        int64_t other = (i * p.d + j) * inner + k;
        size_t from = (size_t)((l->back ? other : q) * n + part->s0) * size;
        size_t to = (size_t)((l->back ? q : other) * n + part->s0) * size;
        memcpy(l->to + to, l->from + from, (size_t)(part->s1 - part->s0) * size);
    }
}

void permute_lanes(const bench_factor *f, const void *from, void *to, int back)
{
    lanes l = { f, from, to, back };
    danaus_pattern p = f->pattern;
    int first = f->layout == DANAUS_BATCH_FIRST;
    loop_part whole = { .p = p, .batch = f->batch, .s1 = f->batch, .w = &l };
    whole.q1 = first ? p.a : p.a * (back ? p.b : p.c) * p.d;
    run_parts(f->team, &whole, first ? 1 : 1024, permute_part, NULL, 0);
}

double bench_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
