/* The limits of a machine, measured.

   Peak: a loop of independent multiply-adds on registers, long enough to hide
   their latency, in the compiler's own vector types. Copy: the best of memcpy, a
   plain loop and stores that bypass the caches, on arrays of which each is four
   times the last cache. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/machine.h"

#include "bench/memory.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined __x86_64__
#    include <immintrin.h>
#endif

#define PEAK_SECONDS 0.25
#define PEAK_REPEATS 10 /* kernels of a thread in a run: some 0.4 ms */
#define COPY_ROUNDS  5
#define COPY_PIECE   ((size_t)16 << 20)   /* bytes of a thread in a run, at most */
#define MINIMUM_COPY ((int64_t)256 << 20) /* bytes, when the cache is unknown */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- multiply-adds ---- */

#define STEPS 20000

/* Multiply-adds in flight, each on a register of its own: eight hide the latency
   of two units, sixteen that of the four units that some Arm cores have. */
#define TWELVE(S) S(0) S(1) S(2) S(3) S(4) S(5) S(6) S(7) S(8) S(9) S(10) S(11)
#define TWENTY(S) TWELVE(S) S(12) S(13) S(14) S(15) S(16) S(17) S(18) S(19)

/* One row a variant: name, what the compiler may use, bytes of a vector, the
   multiply-adds in flight. */
#if defined __x86_64__
#    define VARIANTS(X)                                                                \
        X(avx512, __attribute__((target("avx512f"))), 64, TWELVE)                      \
        X(avx2, __attribute__((target("avx2,fma"))), 32, TWELVE)                       \
        X(plain, , 16, TWELVE)
#else
#    define VARIANTS(X) X(plain, , 16, TWENTY)
#endif

#define DECLARE(c) vector sum##c = add * (number)(c);
#define ADVANCE(c) sum##c = sum##c * factor + add;
#define COLLECT(c) total += sum##c;
#define COUNT(c)   +1
#define PEAK(name, type, attribute, bytes, all)                                        \
    attribute static double peak_##name##_##type(void)                                 \
    {                                                                                  \
        typedef type number;                                                           \
        typedef number vector __attribute__((vector_size(bytes)));                     \
        vector factor = { 0 }, add = { 0 }, total = { 0 };                             \
        factor += (number)0.999;                                                       \
        add += (number)1e-3;                                                           \
        all(DECLARE) for (int step = 0; step < STEPS; step++){ all(ADVANCE) } all(     \
            COLLECT) volatile number keep = total[0];                                  \
        (void)keep;                                                                    \
        return 2.0 * STEPS * (0 all(COUNT)) * (double)((bytes) / sizeof(number));      \
    }
#define X(name, attribute, bytes, all)                                                 \
    PEAK(name, float, attribute, bytes, all)                                           \
    PEAK(name, double, attribute, bytes, all)
VARIANTS(X)
#undef X

static const struct variant {
    const char *name;
    double (*f32)(void), (*f64)(void); /* run, and return the operations made */
} variants[] = {
#define X(name, attribute, bytes, all)                                                 \
    { #name, peak_##name##_float, peak_##name##_double },
    VARIANTS(X)
#undef X
};

struct machine {
    team *team;
    const struct variant *variant;
    void (*copy)(char *, const char *, size_t);
    char *memory; /* half of it to copy from, half to copy to */
    size_t half;  /* bytes */
    size_t at;    /* of the next run of copies */
    machine_limits best;
};

typedef struct peak_job {
    double (*kernel)(void);
    double until;
    double operations[256]; /* by thread */
} peak_job;

static void peak_task(void *arg, long i, int thread)
{
    (void)thread;
    peak_job *job = arg;
    double made = 0;
    while (now() < job->until)
        made += job->kernel();
    job->operations[i] = made;
}

static int peak_threads(const team *t)
{
    return team_threads(t) < 256 ? team_threads(t) : 256;
}

static double measure_peak(team *t, double (*kernel)(void))
{
    int threads = peak_threads(t);
    double best = 0;
    for (int round = 0; round < 3; round++) {
        peak_job job = { .kernel = kernel };
        double start = now(), total = 0;
        job.until = start + PEAK_SECONDS / 3;
        team_run(t, threads, peak_task, &job);
        double seconds = now() - start;
        for (int i = 0; i < threads; i++)
            total += job.operations[i];
        best = total / seconds > best ? total / seconds : best;
    }
    return best;
}

/* ---- copies ---- */

static void copy_memcpy(char *to, const char *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

static void copy_loop(char *to, const char *from, size_t bytes)
{
    uint64_t *restrict t = (uint64_t *)(void *)to;
    const uint64_t *restrict f = (const uint64_t *)(const void *)from;
    for (size_t i = 0; i < bytes / 8; i++) {
        t[i] = f[i];
        __asm__ volatile("" ::: "memory"); /* keeps it from becoming memcpy */
    }
}

#if defined __x86_64__
static void copy_stream(char *to, const char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        for (size_t part = i; part < i + 64; part += 16)
            _mm_stream_si128(
                (__m128i *)(void *)(to + part),
                _mm_load_si128((const __m128i *)(const void *)(from + part)));
    _mm_sfence();
}
#endif

static void (*const copies[])(char *, const char *, size_t) = {
    copy_memcpy,
    copy_loop,
#if defined __x86_64__
    copy_stream,
#endif
};

typedef struct copy_job {
    void (*copy)(char *, const char *, size_t);
    char *to;
    const char *from;
    size_t part; /* bytes of each task; a multiple of 64 */
} copy_job;

static void copy_task(void *arg, long i, int thread)
{
    (void)thread;
    const copy_job *job = arg;
    job->copy(
        job->to + (size_t)i * job->part, job->from + (size_t)i * job->part, job->part);
}

/* Copies the same bytes for each thread, from `at` on. */
static void copy_bytes(
    machine *m, void (*copy)(char *, const char *, size_t), size_t at, size_t part)
{
    copy_job job = { .copy = copy,
                     .to = m->memory + m->half + at,
                     .from = m->memory + at,
                     .part = part };
    team_run(m->team, team_threads(m->team), copy_task, &job);
}

static int measure_copy(machine *m, int64_t cache)
{
    size_t threads = (size_t)team_threads(m->team);
    size_t bytes = (size_t)(4 * cache > MINIMUM_COPY ? 4 * cache : MINIMUM_COPY);
    size_t part = bytes / threads / 64 * 64;
    m->half = part * threads;
    m->memory = bench_alloc(2 * (int64_t)m->half, 1);
    if (!m->memory)
        return 0;
    memset(m->memory, 1, 2 * m->half);
    for (int round = 0; round < COPY_ROUNDS; round++)
        for (size_t c = 0; c < sizeof copies / sizeof *copies; c++) {
            double start = now();
            copy_bytes(m, copies[c], 0, part);
            double rate = 2.0 * (double)m->half / (now() - start);
            if (rate > m->best.copy) {
                m->best.copy = rate;
                m->copy = copies[c];
            }
        }
    return 1;
}

machine *machine_create(team *t, const char *instructions, int64_t cache)
{
    size_t last = sizeof variants / sizeof *variants - 1, v = 0;
    machine *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    while (v < last && strcmp(variants[v].name, instructions))
        v++;
    m->team = t;
    m->variant = &variants[v];
    m->best.f32 = measure_peak(t, m->variant->f32);
    m->best.f64 = measure_peak(t, m->variant->f64);
    if (!measure_copy(m, cache)) {
        machine_destroy(m);
        return NULL;
    }
    return m;
}

void machine_destroy(machine *m)
{
    if (m)
        free(m->memory);
    free(m);
}

const machine_limits *machine_best(const machine *m) { return &m->best; }

/* ---- again, beside what they bound ---- */

static void repeat_task(void *arg, long i, int thread)
{
    (void)thread;
    peak_job *job = arg;
    double made = 0;
    for (int repeat = 0; repeat < PEAK_REPEATS; repeat++)
        made += job->kernel();
    job->operations[i] = made;
}

static void repeat_peak(const machine *m, double (*kernel)(void))
{
    peak_job job = { .kernel = kernel };
    team_run(m->team, peak_threads(m->team), repeat_task, &job);
}

void machine_run_f32(machine *m) { repeat_peak(m, m->variant->f32); }

void machine_run_f64(machine *m) { repeat_peak(m, m->variant->f64); }

static size_t copy_piece(const machine *m)
{
    size_t part = m->half / (size_t)team_threads(m->team);
    return part < COPY_PIECE ? part : COPY_PIECE;
}

void machine_run_copy(machine *m)
{
    size_t part = copy_piece(m), all = part * (size_t)team_threads(m->team);
    if (m->at + all > m->half)
        m->at = 0;
    copy_bytes(m, m->copy, m->at, part);
    m->at += all;
}

machine_limits machine_work(const machine *m)
{
    double kernels = (double)PEAK_REPEATS * peak_threads(m->team);
    size_t bytes = copy_piece(m) * (size_t)team_threads(m->team);
    return (machine_limits){ .f32 = kernels * m->variant->f32(),
                             .f64 = kernels * m->variant->f64(),
                             .copy = 2.0 * (double)bytes };
}
