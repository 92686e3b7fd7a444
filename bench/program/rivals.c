/* The baselines of bench/baselines as runners on a case. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/program/rivals.h"

#include "bench/baselines/baseline.h"
#ifdef BENCH_BLAS
#    include "bench/baselines/blas.h"
#endif
#include "bench/memory.h"
#include "common/open.h"
#include "common/timing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_DENSE_BYTES   8e9 /* of the matrix */
#define MAX_DENSE_SECONDS 3.0 /* of one product, at the machine's peak */

static const baseline *const known[] = {
#define X(name) &baseline_##name,
#include "bench/baselines/baselines.def"
#undef X
};

struct rival {
    const baseline *kind;
    int count;
    bench_factor factors[DANAUS_MAX_FACTORS];
    void *made[DANAUS_MAX_FACTORS];
    void *dense;     /* the product of the chain, for those that need it */
    void *middle[2]; /* between factors */
};

int rivals_known(void) { return (int)(sizeof known / sizeof *known); }

const char *rivals_name(int index) { return known[index]->name; }

static unsigned bit_of(const char *name, size_t length)
{
    for (int i = 0; i < rivals_known(); i++)
        if (strlen(rivals_name(i)) == length && !strncmp(rivals_name(i), name, length))
            return 1U << i;
    return 0;
}

unsigned rivals_set(const char *names)
{
    unsigned set = 0, bit = 1;
    while (names && bit) {
        size_t length = strcspn(names, ",");
        bit = bit_of(names, length);
        set |= bit;
        names = names[length] ? names + length + 1 : NULL;
    }
    return bit == 0 ? 0 : set ? set : ~0U;
}

const char *rival_name(const rival *one) { return one->kind->name; }

void rivals_describe(char *text, size_t size)
{
#ifdef BENCH_BLAS
    blas_describe(text, size);
#else
    snprintf(text, size, "none");
#endif
}

/* A name of OpenBLAS for the kernels to use, or NULL for its own choice: it takes those of
   2004 on processors younger than itself, and those without AVX-512 on AMD's. */
static const char *core_type(char **argv)
{
#if defined __x86_64__
    for (char **a = argv; *a; a++)
        if (strstr(*a, "cpu:avx2"))
            return "Haswell";
    if (__builtin_cpu_supports("avx512f"))
        return "SkylakeX";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return "Haswell";
#else
    (void)argv;
#endif
    return NULL;
}

void rivals_restart(char **argv)
{
    const char *core = core_type(argv);
    if (getenv("OPENBLAS_THREAD_TIMEOUT"))
        return;
    /* 2^18 ticks: its threads are asleep when another method has its turn. */
    setenv("OPENBLAS_THREAD_TIMEOUT", "18", 1);
    if (core)
        setenv("OPENBLAS_CORETYPE", core, 1);
    execv("/proc/self/exe", argv); /* where that fails, BLAS stays as it is */
}

/* ---- one baseline ---- */

static void destroy(rival *one)
{
    for (int f = 0; f < one->count; f++)
        one->kind->destroy(one->made[f]);
    free(one->dense);
    free(one->middle[0]);
    free(one->middle[1]);
    free(one);
}

void rival_run(void *self, const void *x, void *y)
{
    const rival *one = self;
    for (int f = one->count - 1; f >= 0; f--) {
        void *to = f ? one->middle[f % 2] : y;
        one->kind->run(one->made[f], x, to);
        x = to;
    }
}

/* The chain as one dense factor; 0 when that is out of proportion. */
static int take_whole(rival *one, const bench_case *c, double peak)
{
    size_t size = danaus_dtype_size(c->dtype);
    double entries = (double)c->rows * (double)c->cols;
    double operations = (is_complex(c->dtype) ? 8 : 2) * entries * (double)c->batch;
    if (entries * (double)size > MAX_DENSE_BYTES ||
        operations / peak > MAX_DENSE_SECONDS)
        return 0;
    one->dense = malloc((size_t)(c->rows * c->cols) * size);
    if (!one->dense || danaus_chain_to_dense(c->chain, one->dense))
        return 0;
    one->count = 1;
    one->factors[0].pattern = (danaus_pattern){ 1, c->rows, c->cols, 1 };
    one->factors[0].w = one->dense;
    return 1;
}

static int take_factors(rival *one, const bench_case *c)
{
    int64_t size = 0;
    one->count = c->count;
    for (int f = 0; f < c->count; f++) {
        danaus_pattern p = c->patterns[f];
        one->factors[f].pattern = p;
        one->factors[f].w = danaus_chain_weights(c->chain, f);
        size = p.a * p.b * p.d > size ? p.a * p.b * p.d : size;
    }
    size_t element = danaus_dtype_size(c->dtype);
    for (int m = 0; m < 2 && c->count > 1; m++)
        if (!(one->middle[m] = bench_alloc(size * c->batch, element)))
            return 0;
    return 1;
}

static rival *create(
    const baseline *kind, bench_case *c, const bench_factor *common, double peak)
{
    rival *one = calloc(1, sizeof *one);
    if (!one)
        return NULL;
    one->kind = kind;
    for (int f = 0; f < c->count; f++)
        one->factors[f] = *common;
    int ok = kind->whole ? take_whole(one, c, peak) : take_factors(one, c);
    const void *x = c->inputs.x;
    for (int f = one->count - 1; f >= 0 && ok; f--) {
        void *to = f ? one->middle[f % 2] : c->inputs.y;
        one->made[f] = kind->create(&one->factors[f], x, to);
        ok = one->made[f] != NULL;
        if (ok && f)
            kind->run(one->made[f], x, to);
        x = to;
    }
    if (!ok) {
        destroy(one);
        return NULL;
    }
    return one;
}

void rivals_create(
    bench_case *c, team *t, const char *instructions, double peak, unsigned set,
    rivals *r)
{
    bench_factor common = { .dtype = c->dtype, .layout = c->layout, .batch = c->batch };
    common.team = t;
    common.loops = loops_find(c->dtype, instructions);
    r->count = 0;
    for (int i = 0; common.loops && i < rivals_known() && r->count < MAX_RIVALS; i++) {
        rival *one = set >> i & 1 ? create(known[i], c, &common, peak) : NULL;
        if (one)
            r->list[r->count++] = one;
    }
}

void rivals_destroy(rivals *r)
{
    for (int i = 0; i < r->count; i++)
        destroy(r->list[i]);
    r->count = 0;
}

/* ---- what it gives ---- */

/* Squares of the difference and of y over count numbers. */
static void compare_f32(const float *y, const float *z, int64_t count, double sums[2])
{
    for (int64_t i = 0; i < count; i++) {
        double difference = (double)z[i] - (double)y[i];
        sums[0] += difference * difference;
        sums[1] += (double)y[i] * (double)y[i];
    }
}

static void compare_f64(const double *y, const double *z, int64_t count, double sums[2])
{
    for (int64_t i = 0; i < count; i++) {
        sums[0] += (z[i] - y[i]) * (z[i] - y[i]);
        sums[1] += y[i] * y[i];
    }
}

double rival_difference(rival *one, bench_case *c, double *seconds)
{
    double sums[2] = { 0, 0 }, start = seconds_now();
    int64_t count = c->rows * c->batch * (is_complex(c->dtype) ? 2 : 1);
    rival_run(one, c->inputs.x, c->inputs.y);
    *seconds = seconds_now() - start;
    if (c->dtype == DANAUS_F64 || c->dtype == DANAUS_C128)
        compare_f64(c->host_y, (const double *)(void *)c->inputs.y, count, sums);
    else
        compare_f32(c->host_y, (const float *)(void *)c->inputs.y, count, sums);
    return sqrt(sums[0] / sums[1]);
}

double rival_permutations(rival *one, bench_case *c)
{
    if (!one->kind->permutations || one->count != 1)
        return NAN;
    return one->kind->permutations(one->made[0], c->inputs.x, c->inputs.y);
}
