/* Filters to spectra and gradients back, on a GPU: the texts, launched as plans launch them, against
   plain sums in f64. Spectra are those of vector units and of tensor cores, of windows that one
   block of threads holds and of longer ones, whose tiles are rows of conv_mma.cu or parts of
   such. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/run/conv/engine.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "conv/frame.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PI      3.14159265358979323846
#define FILTERS 3

/* 256 root points in each of `rows` rows of conv_mma.cu; rows 0: the order of vector units, of
   256 root points. shared: bytes that a block of threads may have. */
typedef struct filter_case {
    int rows, root, shared;
    danaus_conv_kind kind;
    int64_t length, taps;
    int sparse;
    danaus_dtype dtype; /* of filters */
} filter_case;

static const filter_case cases[] = {
    { 0, 1, 99 << 10, DANAUS_CAUSAL, 256, 256, 0, DANAUS_F32 },
    { 0, 3, 4 << 10, DANAUS_BIDIRECTIONAL, 768, 700, 0, DANAUS_F32 },
    { 0, 4, 4 << 10, DANAUS_CIRCULAR, 1024, 1500, 0, DANAUS_F16 },
    { 0, 2, 99 << 10, DANAUS_CAUSAL, 512, 512, 1, DANAUS_F32 },
    { 1, 1, 99 << 10, DANAUS_CAUSAL, 256, 256, 0, DANAUS_F32 },
    { 1, 2, 99 << 10, DANAUS_CIRCULAR, 512, 512, 0, DANAUS_F32 },
    { 1, 2, 99 << 10, DANAUS_CIRCULAR, 512, 1300, 0, DANAUS_F32 },
    { 1, 3, 99 << 10, DANAUS_BIDIRECTIONAL, 700, 650, 0, DANAUS_F32 },
    { 1, 4, 99 << 10, DANAUS_CAUSAL, 1024, 100, 1, DANAUS_BF16 },
    { 1, 6, 8 << 10, DANAUS_CAUSAL, 1500, 1500, 0, DANAUS_F32 },
    { 16, 1, 99 << 10, DANAUS_CAUSAL, 4096, 4096, 0, DANAUS_F32 },
    { 16, 1, 20 << 10, DANAUS_CAUSAL, 4096, 4096, 0, DANAUS_F32 },
    { 16, 2, 20 << 10, DANAUS_CIRCULAR, 8192, 8192, 0, DANAUS_F64 },
    { 16, 4, 5 << 10, DANAUS_BIDIRECTIONAL, 16384, 9000, 0, DANAUS_F32 },
    { 48, 1, 20 << 10, DANAUS_CAUSAL, 12288, 12000, 0, DANAUS_F32 },
    { 16, 3, 20 << 10, DANAUS_CAUSAL, 20000, 4000, 0, DANAUS_F32 },
    { 32, 1, 20 << 10, DANAUS_CAUSAL, 8192, 8192, 1, DANAUS_F32 },
};

static conv_frame frame_of(const filter_case *c)
{
    conv_problem p = { .channels = FILTERS,
                       .length = c->length,
                       .filter_length = c->taps,
                       .filters = FILTERS,
                       .kind = c->kind,
                       .dtype = DANAUS_F16 };
    conv_frame f = dn_conv_reach(&p);
    f.groups = 1;
    f.sparse = c->sparse;
    f.box = (conv_box){ { 2, 3, 0, 0 }, { 3, 7, 0, 0 }, { 3, 5, 1, 1 } };
    return dn_conv_cut_rows(
        &f, (conv_cut){ .n = (int64_t)256 * c->root * MAX(1, c->rows) });
}

/* An engine that has only what filters need. */
static void make_engine(gpu_device *d, const filter_case *c, gpu_conv_engine *e)
{
    static gpu_use uses[CONV_FUNCTIONS];
    static const int order[] = { CONV_LEVEL, CONV_FILTER_SPLIT, CONV_FILTER, CONV_BACK,
                                 CONV_FILTER_JOIN };
    gpu_facts facts = d->facts;
    facts.shared = c->shared;
    memset(e, 0, sizeof *e);
    e->gpu = d->shared;
    e->p.filters = FILTERS;
    e->frame = frame_of(c);
    if (c->rows)
        e->mma[GPU_CONV_PRODUCT] = e->mma[GPU_CONV_SUMS] =
            (gpu_conv_mma){ .root = c->root,
                            .rows = c->rows,
                            .columns = 256 * c->root,
                            .warps = 1,
                            .members = 1 };
    assert_true(
        dn_gpu_conv_shape(&facts, DANAUS_F32, e->frame.cut.n, c->rows, &e->shape));
    e->shape.circle = e->frame.fold && !c->sparse;
    e->shape.sparse = c->sparse;
    e->shape.box = e->frame.box;
    e->base.filter_bytes =
        (size_t)(c->rows ? dn_gpu_conv_mma_spectrum(e->mma) : dn_gpu_conv_window(e));
    int all = dn_gpu_conv_uses(&e->shape, e->mma, DANAUS_F16, 0, uses), count = 0;
    for (int i = 0; i < all; i++)
        if (!strncmp(uses[i].text, "conv_filter", 11) ||
            !strcmp(uses[i].text, "conv_level.cu"))
            uses[count++] = uses[i];
    gpu_function found[CONV_FUNCTIONS];
    assert_ok(dn_gpu_load_uses(d, uses, count, found));
    for (int i = 0, next = 0; i < 5; i++) {
        int two = e->shape.levels > 1;
        int is_there = order[i] == CONV_FILTER || order[i] == CONV_BACK ||
                       (two && (order[i] != CONV_LEVEL || c->rows));
        if (is_there)
            e->function[order[i]] = found[next++];
    }
    assert_ok(dn_gpu_conv_keep_constants(d, &e->shape, &e->constants));
}

/* ---- the oracle ---- */

static double at(const array *a, int64_t i)
{
    return element_get(a->dtype, a->data, i).re;
}

/* The window of a filter over n: 2 n numbers, z[j] = w[j] + i w[n + j]. */
static void lay(
    const filter_case *c, const conv_frame *f, const array a[3], int64_t filter,
    double *w)
{
    int64_t n = f->cut.n, first = filter * c->taps;
    memset(w, 0, (size_t)(2 * n) * sizeof *w);
    for (int64_t s = 0; s < c->taps; s++) {
        int64_t lag = f->periodic ? s % c->length : s;
        if (f->periodic || s <= f->before)
            w[lag] += at(&a[0], first + s) / (double)n;
        if (f->after > s)
            w[2 * n - 1 - s] -= at(&a[1], first + s) / (double)n;
    }
    w[0] += at(&a[2], filter) / (double)n;
}

typedef struct unit_circle {
    int64_t size;
    double *of; /* cosines */
} unit_circle;

static void turn_by(
    const gpu_conv_engine *e, const unit_circle *u, int64_t f, int64_t j, double z[2])
{
    int64_t n = e->shape.n, turn = (4 * f + !e->shape.circle) * j % (4 * n);
    z[0] = u->of[turn];
    z[1] = u->of[(turn + 3 * n) % (4 * n)];
}

static int is_kept(const gpu_conv_engine *e, int64_t f)
{
    return !e->frame.sparse || !dn_conv_is_outside(&e->frame.box, f);
}

static void exact_spectrum(
    const gpu_conv_engine *e, const unit_circle *u, const double *w, int64_t f,
    double to[2])
{
    int64_t n = e->shape.n;
    double z[2];
    to[0] = to[1] = 0;
    for (int64_t j = 0; j < n && is_kept(e, f); j++) {
        turn_by(e, u, f, j, z);
        to[0] += w[j] * z[0] - w[n + j] * z[1];
        to[1] += w[j] * z[1] + w[n + j] * z[0];
    }
}

/* Where frequency f lies: in the order of vector units, or of tensor cores. */
static int64_t place_of(const gpu_conv_engine *e, int64_t f)
{
    const gpu_conv_shape *s = &e->shape;
    int64_t n = s->n, rows = e->mma->rows, number = 0;
    if (e->mma->root) {
        int64_t in = f / rows, p0 = in % e->mma->root, p1 = in / e->mma->root % 16;
        int64_t p2 = in / e->mma->root / 16;
        int64_t lane = p1 % 8 * 4 + p2 % 8 / 2, e4 = p1 / 8 * 2 + p2 % 2;
        return f % rows * (n / rows) + ((p0 * 2 + p2 / 8) * 32 + lane) * 4 + e4;
    }
    const gpu_conv_level *l = &s->level[s->levels - 1];
    for (int i = 0; i < s->passes; i++) {
        number = number * s->pass[i].radix + f % s->pass[i].radix;
        f /= s->pass[i].radix;
    }
    int64_t radix = s->pass[s->passes - 1].radix, in = number % l->points;
    return number - in + in % radix * (l->points / radix) + in / radix;
}

/* Number f of a spectrum in the host's memory. */
static void made_spectrum(
    const gpu_conv_engine *e, const char *spectrum, int64_t f, double to[2])
{
    int64_t place = place_of(e, f), rows = e->mma->rows;
    if (!e->mma->root) {
        to[0] = ((const float *)spectrum)[2 * place];
        to[1] = ((const float *)spectrum)[2 * place + 1];
        return;
    }
    int64_t each = e->shape.n / rows, row = place / each;
    const char *own = spectrum + row * (each * 4 + 16);
    float pair[2];
    dn_convert(DANAUS_F16, own + place % each * 4, DANAUS_F32, pair, 2);
    double scale = *(const float *)(own + each * 4) / (double)e->shape.n;
    to[0] = pair[0] * scale;
    to[1] = pair[1] * scale;
}

/* ---- checks ---- */

/* Some frequencies: the first ones, and each so many. */
static int64_t step_of(const gpu_conv_engine *e) { return 1 + e->shape.n / 97; }

/* Transforms in f32 err by some roundings of the norm, f16 by half of its last place or, of small
   numbers, of the smallest one at the spectrum's scale. */
static void check_spectrum(
    const filter_case *c, const gpu_conv_engine *e, const unit_circle *u,
    const array a[3], const char *spectra)
{
    int64_t n = e->shape.n;
    double *w = malloc((size_t)(2 * n) * sizeof *w);
    for (int64_t filter = 0; filter < FILTERS; filter++) {
        const char *own = spectra + (size_t)filter * e->base.filter_bytes;
        double norm = 0, found[2], exact[2];
        lay(c, &e->frame, a, filter, w);
        for (int64_t j = 0; j < 2 * n; j++)
            norm += w[j] * w[j];
        norm = sqrt(norm * (double)n);
        for (int64_t f = 0; f < n; f += f < 20 ? 1 : step_of(e)) {
            made_spectrum(e, own, f, found);
            exact_spectrum(e, u, w, f, exact);
            for (int part = 0; part < 2; part++) {
                double error = fabs(found[part] - exact[part]);
                double bound = 1e-5 * norm;
                if (c->rows)
                    bound += fabs(exact[part]) / 2048 + norm / 4e6;
                if (!(error <= bound))
                    fail_msg(
                        "%d x %d x 256, shared %d, kind %d, filter %d, frequency %d: "
                        "%g instead of %g",
                        c->rows, c->root, c->shared, c->kind, (int)filter, (int)f,
                        found[part], exact[part]);
            }
        }
    }
    free(w);
}

/* The numbers of a window at lag `lag` from the spectrum of its gradient. */
static double exact_tap(
    const gpu_conv_engine *e, const unit_circle *u, const float *sums, double by,
    int64_t j)
{
    int64_t n = e->shape.n, in = j % n;
    double total = 0, z[2];
    for (int64_t f = 0; f < n; f++) {
        if (!is_kept(e, f))
            continue;
        const float *s = sums + 2 * place_of(e, f);
        turn_by(e, u, f, in, z);
        total += j < n ? s[0] * z[0] + s[1] * z[1] : s[1] * z[0] - s[0] * z[1];
    }
    return by * total;
}

static void check_taps(
    const filter_case *c, const gpu_conv_engine *e, const unit_circle *u,
    const float *sums, const array made[3], const array was[3], int is_more)
{
    int64_t n = e->shape.n;
    double by = c->rows ? 1 : 1 / (double)n, bound = 2e-5 * sqrt((double)n) * by;
    for (int64_t filter = 0; filter < FILTERS; filter++) {
        const float *own = sums + filter * 2 * n;
        for (int64_t s = 0; s < c->taps; s += s < 5 ? 1 : 1 + c->taps / 23) {
            int64_t at_tap = filter * c->taps + s;
            int64_t lag = e->frame.periodic ? s % c->length : s;
            int is_there = e->frame.periodic || s <= e->frame.before;
            double exact = is_there ? exact_tap(e, u, own, by, lag) : 0;
            if (e->frame.fold && !e->shape.circle)
                exact -= exact_tap(e, u, own, by, n + lag);
            exact += is_more ? at(&was[0], at_tap) : 0;
            double back =
                s < e->frame.after ? -exact_tap(e, u, own, by, 2 * n - 1 - s) : 0;
            back += is_more ? at(&was[1], at_tap) : 0;
            double error[] = { fabs(at(&made[0], at_tap) - exact),
                               e->frame.after ? fabs(at(&made[1], at_tap) - back) : 0 };
            if (!(error[0] <= bound + 1e-6 && error[1] <= bound + 1e-6))
                fail_msg(
                    "%d x %d x 256, shared %d, kind %d, filter %d, tap %d: %g for %g, "
                    "%g for %g",
                    c->rows, c->root, c->shared, c->kind, (int)filter, (int)s,
                    at(&made[0], at_tap), exact, at(&made[1], at_tap), back);
        }
    }
}

/* ---- runs ---- */

static array random_array(danaus_dtype dtype, int64_t count, rng *r)
{
    array a = array_make(dtype, count);
    for (int64_t i = 0; i < count; i++) {
        float v = (float)rng_sign(r);
        dn_convert(DANAUS_F32, &v, dtype, (char *)a.data + i * dn_size_of(dtype), 1);
    }
    return a;
}

typedef struct back_run {
    const gpu_conv_engine *e;
    const conv_filter_sums *f;
    const void *sums;
} back_run;

static gpu_need need_of(gpu_device *d, void *arg)
{
    const back_run *b = arg;
    (void)d;
    return (gpu_need){ .scratch = (size_t)(FILTERS * dn_gpu_conv_window(b->e)) };
}

static danaus_status run_back(gpu_device *d, void *arg)
{
    const back_run *b = arg;
    return dn_gpu_conv_take_filters(d, b->e, b->f, 0, FILTERS, b->sums, d->scratch);
}

static danaus_status enter_back(gpu_device *d, back_run *b)
{
    const gpu_job job = { need_of, run_back, b, 0 };
    RETURN_ENTERED(d, d->shared->driver->call(d, NULL, &job));
}

static void try_forward(
    gpu_device *d, const filter_case *c, const gpu_conv_engine *e, const unit_circle *u,
    rng *r)
{
    danaus_device *dev = &d->base;
    size_t bytes = FILTERS * e->base.filter_bytes;
    array a[3] = { random_array(c->dtype, FILTERS * c->taps, r),
                   random_array(c->dtype, FILTERS * c->taps, r),
                   random_array(c->dtype, FILTERS, r) };
    void *on[3], *spectra;
    char *found = malloc(bytes);
    for (int i = 0; i < 3; i++)
        on[i] = to_device(dev, &a[i]);
    assert_ok(danaus_alloc(dev, bytes, &spectra));
    conv_filters f = { on[0], e->frame.after ? on[1] : NULL, on[2], c->dtype, 1 };
    conv_call call = { .engine = &e->base, .filters = &f, .spectrum = spectra };
    assert_ok(dn_gpu_conv_run(dev, 1, &call));
    assert_ok(danaus_download(dev, found, spectra, bytes));
    check_spectrum(c, e, u, a, found);
    danaus_free(dev, spectra);
    free(found);
    for (int i = 0; i < 3; i++) {
        from_device(dev, &a[i], on[i]);
        array_free(&a[i]);
    }
}

static void try_back(
    gpu_device *d, const filter_case *c, const gpu_conv_engine *e, const unit_circle *u,
    rng *r, int is_more)
{
    danaus_device *dev = &d->base;
    array sums = random_array(DANAUS_F32, FILTERS * 2 * e->shape.n, r), made[3], was[3];
    void *on_sums, *on[3];
    size_t bytes = (size_t)sums.count * sizeof(float);
    for (int i = 0; i < 3; i++) {
        int64_t count = i < 2 ? FILTERS * c->taps : FILTERS;
        was[i] = random_array(DANAUS_F32, count, r);
        made[i] = array_make(DANAUS_F32, count);
        memcpy(made[i].data, was[i].data, (size_t)count * sizeof(float));
        on[i] = to_device(dev, &made[i]);
    }
    assert_ok(
        danaus_alloc(dev, bytes, &on_sums)); /* words of 16 bytes are read from it */
    assert_ok(danaus_upload(dev, on_sums, sums.data, bytes));
    conv_filter_sums f = { .dk = on[0],
                           .dk_reverse = e->frame.after ? on[1] : NULL,
                           .dskip = on[2],
                           .is_more = is_more };
    back_run b = { e, &f, on_sums };
    assert_ok(enter_back(d, &b));
    assert_ok(danaus_device_sync(dev));
    for (int i = 0; i < 3; i++)
        from_device(dev, &made[i], on[i]);
    check_taps(c, e, u, (const float *)sums.data, made, was, is_more);
    danaus_free(dev, on_sums);
    array_free(&sums);
    for (int i = 0; i < 3; i++) {
        array_free(&made[i]);
        array_free(&was[i]);
    }
}

static void filters_and_gradients_are_right(void **state)
{
    gpu_device *d = *state;
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        gpu_conv_engine e;
        rng r = { (uint64_t)i };
        make_engine(d, &cases[i], &e);
        unit_circle u = { 4 * e.shape.n, malloc((size_t)(4 * e.shape.n) * 8) };
        for (int64_t j = 0; j < u.size; j++)
            u.of[j] = cos(2 * PI * (double)j / (double)u.size);
        try_forward(d, &cases[i], &e, &u, &r);
        try_back(d, &cases[i], &e, &u, &r, i % 2);
        free(u.of);
    }
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(filters_and_gradients_are_right, device),
    };
    int failed = cmocka_run_group_tests_name("conv_filters", tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
