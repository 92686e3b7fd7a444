/* Arrays in rotation, plans, calls and their results. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/versus/work.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROTATION ((size_t)256 << 20) /* bytes: beyond the last cache */
#define CHUNK    ((int64_t)1 << 20)  /* random numbers, repeated */

/* `count` numbers in [-size, size), the same in every call. */
static void fill(float *to, int64_t count, float size)
{
    uint64_t state = 88172645463325252u;
    for (int64_t i = 0; i < count; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        to[i] = size * ((float)(state >> 40) * 0x1p-23f - 1.0f);
    }
}

/* ---- arrays ---- */

static void size_arrays(library *lib, const problem *p, arrays *a)
{
    size_t size = lib->dtype_size(p->type->dtype), sum = size < 4 ? 4 : size;
    size_t x = (size_t)(p->cols * p->batch) * size;
    size_t y = (size_t)(p->rows * p->batch) * size;
    a->in_bytes[0] = x;
    a->in_bytes[1] = p->gradients ? y : 0;
    a->in_bytes[2] = a->in_bytes[3] = p->gated ? x : 0;
    a->out_bytes = p->gradients ? x : y;
    a->sum_bytes = p->gradients ? (size_t)p->parameters * sum : 0;
    size_t all = a->out_bytes;
    for (int i = 0; i < 4; i++)
        all += a->in_bytes[i];
    size_t sets = ROTATION / (all + 1) + 1;
    a->sets = sets < MOST_SETS ? (int)sets : MOST_SETS;
}

/* Memory filled with what is in `from`, `chunk` bytes of it, repeated. */
static int make_array(
    library *lib, size_t bytes, const char *from, size_t chunk, void **to)
{
    if (!bytes)
        return 1;
    if (lib->alloc(lib->device, bytes, to))
        return 0;
    for (size_t at = 0; at < bytes; at += chunk) {
        size_t part = bytes - at < chunk ? bytes - at : chunk;
        if (lib->upload(lib->device, (char *)*to + at, from, part))
            return 0;
    }
    return 1;
}

static int fill_arrays(library *lib, arrays *a, const char *from, size_t chunk)
{
    int ok = make_array(lib, a->sum_bytes, from, chunk, &a->sums);
    for (int s = 0; s < a->sets; s++) {
        for (int i = 0; i < 4; i++)
            ok = ok && make_array(lib, a->in_bytes[i], from, chunk, &a->in[s][i]);
        ok = ok && make_array(lib, a->out_bytes, from, chunk, &a->out[s]);
    }
    return ok && !lib->device_sync(lib->device);
}

int make_arrays(library *lib, const problem *p, arrays *a)
{
    size_t size = lib->dtype_size(p->type->dtype), chunk = (size_t)CHUNK * size;
    float *numbers = malloc((size_t)CHUNK * sizeof *numbers);
    char *converted = malloc(chunk);
    int ok = numbers && converted;
    size_arrays(lib, p, a);
    if (ok) {
        fill(numbers, CHUNK, 1.0f);
        lib->convert(DANAUS_F32, numbers, p->type->dtype, converted, CHUNK);
        ok = fill_arrays(lib, a, converted, chunk);
    }
    char *dw = a->sums;
    for (int i = 0; i < p->count; i++) {
        danaus_pattern q = p->patterns[i];
        a->dw[i] = dw;
        dw += (size_t)(q.a * q.b * q.c * q.d) * (size < 4 ? 4 : size);
    }
    free(numbers);
    free(converted);
    return ok;
}

void free_arrays(library *lib, arrays *a)
{
    for (int s = 0; s < a->sets; s++) {
        for (int i = 0; i < 4; i++)
            lib->free(lib->device, a->in[s][i]);
        lib->free(lib->device, a->out[s]);
    }
    lib->free(lib->device, a->sums);
}

/* ---- jobs ---- */

static int prepare_conv(job *j)
{
    library *lib = j->lib;
    const problem *p = j->p;
    danaus_dtype own = p->type->dtype,
                 sums = lib->dtype_size(own) == 2 ? DANAUS_F32 : own;
    float *k = malloc((size_t)p->parameters * sizeof *k);
    void *wide = malloc((size_t)p->parameters * lib->dtype_size(sums));
    int ok = k && wide && !lib->conv_plan_create(lib->device, &p->conv, &j->conv_plan);
    if (ok) {
        fill(k, p->parameters, 0.05f);
        lib->convert(DANAUS_F32, k, sums, wide, p->parameters);
        ok = !lib->spectrum_create(
            j->conv_plan, lib->device, wide,
            p->conv.kind == DANAUS_BIDIRECTIONAL ? wide : NULL, p->gated ? wide : NULL,
            &j->spectrum);
    }
    free(k);
    free(wide);
    return ok;
}

static int prepare_product(job *j)
{
    library *lib = j->lib;
    const problem *p = j->p;
    danaus_ks_desc d = {
        .layout = p->last ? DANAUS_BATCH_LAST : DANAUS_BATCH_FIRST,
        .dtype = p->type->dtype,
        .math = p->type->math,
        .gradients = p->gradients,
        .batch = p->batch,
    };
    if (lib->chain_create(p->patterns, p->count, DANAUS_F32, &j->chain))
        return 0;
    for (int i = 0; i < p->count; i++) {
        danaus_pattern q = p->patterns[i];
        fill(lib->chain_weights(j->chain, i), q.a * q.b * q.c * q.d, 0.05f);
    }
    return !lib->ks_plan_create(lib->device, p->patterns, p->count, &d, &j->plan) &&
           !lib->ks_weights_create(j->plan, lib->device, j->chain, &j->weights);
}

int prepare(job *j) { return j->p->count ? prepare_product(j) : prepare_conv(j); }

void release(job *j)
{
    j->lib->ks_weights_destroy(j->weights);
    j->lib->ks_plan_destroy(j->plan);
    j->lib->chain_destroy(j->chain);
    j->lib->spectrum_destroy(j->spectrum);
    j->lib->conv_plan_destroy(j->conv_plan);
}

static danaus_status call_conv(const job *j, void *const *in, void *out)
{
    danaus_conv_gradients g = { .du = out, .dk = j->a->sums };
    return j->p->gradients ? j->lib->conv_gradient(
                                 j->conv_plan, j->lib->device, j->spectrum, j->p->batch,
                                 in[0], in[2], in[3], in[1], &g)
                           : j->lib->conv_execute(
                                 j->conv_plan, j->lib->device, j->spectrum, j->p->batch,
                                 in[0], in[2], in[3], out);
}

static danaus_status call_product(const job *j, void *const *in, void *out)
{
    danaus_ks_gradients g = { .dx = out, .dw = j->a->dw };
    return j->p->gradients
               ? j->lib->ks_gradient(
                     j->plan, j->lib->device, j->weights, j->p->batch, in[0], in[1], &g)
               : j->lib->ks_execute(
                     j->plan, j->lib->device, j->weights, j->p->batch, in[0], out);
}

static double now(const job *j)
{
    struct timespec t;
    clock_gettime(j->p->alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double turn(job *j, int64_t calls)
{
    double start = now(j);
    for (int64_t i = 0; i < calls && !j->failed; i++) {
        int set = (int)(j->at++ % j->a->sets);
        danaus_status status =
            (j->p->count ? call_product : call_conv)(j, j->a->in[set], j->a->out[set]);
        j->failed = status != DANAUS_OK;
    }
    if (j->lib->device_sync(j->lib->device))
        j->failed = 1;
    return (now(j) - start) / (double)calls;
}

/* Mixes the words of device memory into a sum, of ROTATION bytes at most. */
static uint64_t digest(job *j, const char *memory, size_t bytes, uint64_t sum)
{
    static uint64_t words[1 << 16];
    bytes = bytes < ROTATION ? bytes : ROTATION;
    for (size_t at = 0; at < bytes && !j->failed; at += sizeof words) {
        size_t part = bytes - at < sizeof words ? bytes - at : sizeof words;
        memset(words, 0, sizeof words);
        if (j->lib->download(j->lib->device, words, memory + at, part))
            j->failed = 1;
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            sum = (sum ^ words[i]) * 0x9e3779b97f4a7c15u + (sum >> 32);
    }
    return sum;
}

uint64_t result(job *j)
{
    j->at = 0;
    turn(j, 1);
    uint64_t sum = digest(j, j->a->out[0], j->a->out_bytes, 1);
    return digest(j, j->a->sums, j->a->sum_bytes, sum);
}
