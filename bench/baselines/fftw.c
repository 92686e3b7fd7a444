/* Causal convolutions by FFTW; see fftw.h. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/baselines/fftw.h"

#ifdef BENCH_FFTW

#    include <fftw3.h>
#    include <stdlib.h>
#    include <string.h>
#    include <time.h>

#    define SHORT         4096 /* transforms that are worth FFTW_PATIENT */
#    define BATCHED_BYTES ((int64_t)1 << 27) /* at most, for all rows at once */
#    define PLAN_SECONDS  10                 /* for one plan: the best found by then */

/* Transforms of one padded length. */
typedef struct padded {
    int64_t n, bins, stride; /* stride: bins, rounded so that rows are aligned alike */
    fftwf_plan forward, back;
    float *spectrum; /* [channels][stride], complex */
} padded;

struct fftw_conv {
    team *team;
    int64_t length, taps, batch, channels;
    padded p;
    float **row; /* of each thread: n numbers, then `stride` complex ones */
    int batched;
    fftwf_plan all_forward, all_back;
    float *all; /* [rows][2 stride] in place */
};

const char *fftw_conv_version(void) { return fftwf_version; }

static int64_t power_of_two(int64_t least)
{
    int64_t n = 1;
    while (n < least)
        n *= 2;
    return n;
}

static int64_t smooth(int64_t least)
{
    for (int64_t n = least;; n++) {
        int64_t rest = n;
        for (int p = 2; p <= 7; p += p == 2 ? 1 : 2)
            while (rest % p == 0)
                rest /= p;
        if (rest == 1)
            return n;
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *row_create(const padded *p)
{
    return fftwf_alloc_real((size_t)(p->n + 16 + 2 * p->stride));
}

static fftwf_complex *bins_of(const padded *p, float *row)
{
    return (fftwf_complex *)(row + (p->n + 15) / 16 * 16);
}

static void padded_free(padded *p)
{
    if (p->forward)
        fftwf_destroy_plan(p->forward);
    if (p->back)
        fftwf_destroy_plan(p->back);
    fftwf_free(p->spectrum);
    *p = (padded){ 0 };
}

static int padded_make(padded *p, const fftw_conv *f, int64_t n, const float *k)
{
    *p = (padded){ .n = n, .bins = n / 2 + 1, .stride = (n / 2 + 16) / 16 * 16 };
    fftwf_set_timelimit(PLAN_SECONDS);
    unsigned effort = n <= SHORT ? FFTW_PATIENT : FFTW_MEASURE;
    float *row = row_create(p);
    p->spectrum = fftwf_alloc_real((size_t)(2 * p->stride * f->channels));
    if (!row || !p->spectrum) {
        fftwf_free(row);
        return 0;
    }
    fftwf_plan_with_nthreads(1);
    p->forward = fftwf_plan_dft_r2c_1d((int)n, row, bins_of(p, row), effort);
    p->back = fftwf_plan_dft_c2r_1d((int)n, bins_of(p, row), row, effort);
    for (int64_t c = 0; c < f->channels; c++) {
        memset(row, 0, (size_t)n * sizeof *row);
        for (int64_t s = 0; s < f->taps && s < f->length; s++)
            row[s] = k[c * f->taps + s] / (float)n;
        fftwf_execute_dft_r2c(
            p->forward, row, (fftwf_complex *)(p->spectrum + 2 * p->stride * c));
    }
    fftwf_free(row);
    return 1;
}

static void multiply(
    int64_t n, fftwf_complex *restrict z, const fftwf_complex *restrict k)
{
    for (int64_t i = 0; i < n; i++) {
        float re = z[i][0] * k[i][0] - z[i][1] * k[i][1];
        z[i][1] = z[i][0] * k[i][1] + z[i][1] * k[i][0];
        z[i][0] = re;
    }
}

static const fftwf_complex *spectrum_of(const fftw_conv *f, int64_t row)
{
    return (
        const fftwf_complex *)(f->p.spectrum + 2 * f->p.stride * (row % f->channels));
}

static void convolve_row(
    const fftw_conv *f, const padded *p, const float *u, float *y,
    const fftwf_complex *k, float *row)
{
    memcpy(row, u, (size_t)f->length * sizeof *row);
    memset(row + f->length, 0, (size_t)(p->n - f->length) * sizeof *row);
    fftwf_execute_dft_r2c(p->forward, row, bins_of(p, row));
    multiply(p->bins, bins_of(p, row), k);
    fftwf_execute_dft_c2r(p->back, bins_of(p, row), row);
    memcpy(y, row, (size_t)f->length * sizeof *row);
}

/* Seconds of a row. */
static double time_padded(const fftw_conv *f, const padded *p)
{
    float *row = row_create(p), *u = calloc((size_t)f->length * 2, sizeof *u);
    double best = 1e300, start = now();
    if (row && u)
        for (int i = 0; i < 3 || (now() - start < 0.05 && i < 1000); i++) {
            double before = now(), spent;
            convolve_row(
                f, p, u, u + f->length, (const fftwf_complex *)p->spectrum, row);
            spent = now() - before;
            best = spent < best ? spent : best;
        }
    fftwf_free(row);
    free(u);
    return best;
}

static int choose_padding(fftw_conv *f, const float *k)
{
    int64_t taps = f->taps < f->length ? f->taps : f->length;
    int64_t sizes[2] = { smooth(f->length + taps - 1),
                         power_of_two(f->length + taps - 1) };
    double best = 1e300;
    for (int i = 0; i < (sizes[0] == sizes[1] ? 1 : 2); i++) {
        padded p;
        int made = padded_make(&p, f, sizes[i], k);
        double seconds = made ? time_padded(f, &p) : 1e300;
        if (seconds < best) {
            padded_free(&f->p);
            f->p = p;
            best = seconds;
        } else
            padded_free(&p);
    }
    return best < 1e300;
}

static void batched_create(fftw_conv *f)
{
    int64_t rows = f->batch * f->channels;
    int n = (int)f->p.n, real = (int)(2 * f->p.stride), bins = (int)f->p.stride;
    if (rows * f->p.stride * 8 > BATCHED_BYTES)
        return;
    f->all = fftwf_alloc_real((size_t)(rows * 2 * f->p.stride));
    if (!f->all)
        return;
    fftwf_plan_with_nthreads(team_threads(f->team));
    f->all_forward = fftwf_plan_many_dft_r2c(
        1, &n, (int)rows, f->all, NULL, 1, real, (fftwf_complex *)f->all, NULL, 1, bins,
        FFTW_MEASURE);
    f->all_back = fftwf_plan_many_dft_c2r(
        1, &n, (int)rows, (fftwf_complex *)f->all, NULL, 1, bins, f->all, NULL, 1, real,
        FFTW_MEASURE);
}

typedef struct row_job {
    fftw_conv *f;
    const float *u;
    float *y;
    int step; /* batched: 0: pad, 1: multiply, 2: cut */
} row_job;

static void take_row(void *arg, long i, int thread)
{
    const row_job *j = arg;
    const fftw_conv *f = j->f;
    convolve_row(
        f, &f->p, j->u + i * f->length, j->y + i * f->length, spectrum_of(f, i),
        f->row[thread]);
}

static void take_batched(void *arg, long i, int thread)
{
    (void)thread;
    const row_job *j = arg;
    const fftw_conv *f = j->f;
    float *row = f->all + i * 2 * f->p.stride;
    size_t bytes = (size_t)f->length * sizeof *row;
    if (j->step == 0) {
        memcpy(row, j->u + i * f->length, bytes);
        memset(row + f->length, 0, (size_t)(f->p.n - f->length) * sizeof *row);
    } else if (j->step == 1)
        multiply(f->p.bins, (fftwf_complex *)row, spectrum_of(f, i));
    else
        memcpy(j->y + i * f->length, row, bytes);
}

void fftw_conv_run(void *self, const void *u, void *y)
{
    fftw_conv *f = self;
    row_job job = { f, u, y, 0 };
    long rows = (long)(f->batch * f->channels);
    if (!f->batched) {
        team_run(f->team, rows, take_row, &job);
        return;
    }
    team_run(f->team, rows, take_batched, &job);
    fftwf_execute(f->all_forward);
    job.step = 1;
    team_run(f->team, rows, take_batched, &job);
    fftwf_execute(f->all_back);
    job.step = 2;
    team_run(f->team, rows, take_batched, &job);
}

/* Rows one by one, or all at once: whichever is faster here. */
static void choose_batching(fftw_conv *f)
{
    size_t numbers = (size_t)(f->batch * f->channels * f->length);
    float *u = calloc(2 * numbers, sizeof *u);
    double best[2] = { 1e300, 1e300 };
    for (int round = 0; u && f->all && round < 6; round++) {
        f->batched = round % 2;
        double start = now();
        fftw_conv_run(f, u, u + numbers);
        double spent = now() - start;
        if (spent < best[f->batched])
            best[f->batched] = spent;
    }
    f->batched = best[1] < best[0];
    free(u);
}

fftw_conv *fftw_conv_create(
    team *t, int64_t length, int64_t taps, int64_t batch, int64_t channels,
    const float *k)
{
    fftw_conv *f = calloc(1, sizeof *f);
    if (!f || !fftwf_init_threads()) {
        free(f);
        return NULL;
    }
    *f = (fftw_conv){ .team = t, .length = length, .taps = taps };
    f->batch = batch;
    f->channels = channels;
    f->row = calloc((size_t)team_threads(t), sizeof *f->row);
    int ok = f->row && choose_padding(f, k);
    for (int i = 0; ok && i < team_threads(t); i++)
        ok = (f->row[i] = row_create(&f->p)) != NULL;
    if (!ok) {
        fftw_conv_destroy(f);
        return NULL;
    }
    batched_create(f);
    choose_batching(f);
    return f;
}

int64_t fftw_conv_padded(const fftw_conv *f) { return f->p.n; }
int fftw_conv_batched(const fftw_conv *f) { return f->batched; }

void fftw_conv_destroy(fftw_conv *f)
{
    if (!f)
        return;
    padded_free(&f->p);
    for (int i = 0; f->row && i < team_threads(f->team); i++)
        fftwf_free(f->row[i]);
    free(f->row);
    if (f->all_forward)
        fftwf_destroy_plan(f->all_forward);
    if (f->all_back)
        fftwf_destroy_plan(f->all_back);
    fftwf_free(f->all);
    free(f);
}

#else

const char *fftw_conv_version(void) { return "none"; }
fftw_conv *fftw_conv_create(
    team *t, int64_t length, int64_t taps, int64_t batch, int64_t channels,
    const float *k)
{
    (void)t, (void)length, (void)taps, (void)batch, (void)channels, (void)k;
    return 0;
}
void fftw_conv_run(void *self, const void *u, void *y) { (void)self, (void)u, (void)y; }
int64_t fftw_conv_padded(const fftw_conv *f) { return f != 0; }
int fftw_conv_batched(const fftw_conv *f) { return f != 0; }
void fftw_conv_destroy(fftw_conv *f) { (void)f; }

#endif
