/* Vectors of more than 2^31 elements, by every row of the table that a device runs:
   offsets, tiles and grids that 32 bits do not hold. x repeats some random numbers, whose
   number is a prime, so that an element 2^31 or 2^32 away is another one; of y some runs
   of columns, at the ends and where offsets reach powers of two, are compared with the
   oracle, and what lies before and behind it must stay as it was. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "device/backend.h"
#include "support/chains.h"
#include "support/device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ELEMENTS     ((int64_t)1 << 31)
#define MORE         ((int64_t)1 << 16) /* elements of a region beyond those */
#define PERIOD       1000003
#define GUARD        4096 /* bytes */
#define RUNS         7
#define RUN          4
#define SAMPLES      (RUNS * RUN)
#define LEAST_MEMORY 10000000000 /* bytes; two vectors of 16 bits and room to work */
#define MOST         1024        /* problems */
#define AT_ONCE      32          /* that are compiled together */

/* Memory of the device for numbers of one type: x, and y between guards. */
typedef struct regions {
    danaus_device *dev;
    danaus_dtype dtype;
    size_t size; /* of an element */
    char *x, *y;
    array block; /* what x repeats */
} regions;

static danaus_device *device;
static int made, left_out;

/* ---- memory ---- */

static size_t region_bytes(const regions *g)
{
    return (size_t)(ELEMENTS + MORE) * g->size + 2 * GUARD;
}

/* Copies the first bytes of a region until it is full. */
static void repeat(const regions *g, char *region, size_t filled)
{
    for (size_t all = region_bytes(g); filled < all;) {
        size_t more = filled < all - filled ? filled : all - filled;
        assert_ok(danaus_upload(g->dev, region + filled, region, more));
        filled += more;
    }
}

static void poison(const regions *g, char *region)
{
    char nothing[GUARD];
    memset(nothing, 0xff, sizeof nothing);
    assert_ok(danaus_upload(g->dev, region, nothing, sizeof nothing));
    repeat(g, region, sizeof nothing);
}

/* 0: the device has too little memory. */
static int regions_open(regions *g, danaus_dtype dtype)
{
    rng r = { 31 };
    *g = (regions){ .dev = device, .dtype = dtype, .size = danaus_dtype_size(dtype) };
    void *x = NULL, *y = NULL;
    if (danaus_alloc(g->dev, region_bytes(g), &x) ||
        danaus_alloc(g->dev, region_bytes(g), &y)) {
        danaus_free(g->dev, x);
        printf("%s: no memory\n", danaus_dtype_name(dtype));
        return 0;
    }
    g->x = x;
    g->y = y;
    g->block = array_random(&r, dtype, PERIOD);
    assert_ok(danaus_upload(g->dev, g->x, g->block.data, PERIOD * g->size));
    repeat(g, g->x, PERIOD * g->size);
    return 1;
}

static void regions_close(regions *g)
{
    danaus_free(g->dev, g->x);
    danaus_free(g->dev, g->y);
    array_free(&g->block);
}

static void expect_guard(const regions *g, const char *at, const char *what)
{
    unsigned char found[GUARD];
    assert_ok(danaus_download(g->dev, found, at, sizeof found));
    for (size_t i = 0; i < sizeof found; i++)
        if (found[i] != 0xff)
            fail_msg("%s: bytes outside of y were written", what);
}

/* ---- runs of columns ---- */

typedef struct samples {
    int64_t size, batch; /* numbers of a column, columns */
    danaus_layout layout;
    int64_t run[RUNS]; /* where runs begin */
} samples;

/* At both ends, where offsets reach 2^30 and 2^31 elements, and anywhere; no
   column twice. */
static samples choose(rng *r, int64_t longest, int64_t batch)
{
    samples s = { .batch = batch };
    int64_t last = batch - RUN;
    s.run[1] = last;
    s.run[2] = ELEMENTS / longest - RUN / 2;
    s.run[3] = ELEMENTS / longest / 2 - RUN / 2;
    for (int i = 4; i < RUNS; i++) /* in parts of the batch without a run */
        s.run[i] = batch / 8 * (2 * i - 7) + rng_int(r, 0, batch / 16);
    return s;
}

static int64_t place(const samples *s, int64_t row, int64_t column)
{
    return s->layout == DANAUS_BATCH_LAST ? row * s->batch + column
                                          : column * s->size + row;
}

/* The samples of x, batch-first; x begins `shift` numbers later. */
static array read_block(const regions *g, const samples *s, int64_t shift)
{
    array a = array_make(g->dtype, s->size * SAMPLES);
    for (int64_t i = 0; i < SAMPLES; i++)
        for (int64_t row = 0; row < s->size; row++) {
            int64_t at = place(s, row, s->run[i / RUN] + i % RUN) + shift;
            element_put(
                g->dtype, a.data, i * s->size + row,
                element_get(g->dtype, g->block.data, at % PERIOD));
        }
    return a;
}

/* Moves samples between the device and an array that is batch-first or, with layout
   batch-last, has runs [RUNS][size][RUN]. */
static void move_samples(
    const regions *g, const samples *s, char *memory, array *a, int up)
{
    int last = s->layout == DANAUS_BATCH_LAST;
    int64_t pieces = last ? s->size : 1, length = last ? RUN : RUN * s->size;
    for (int i = 0; i < RUNS; i++)
        for (int64_t row = 0; row < pieces; row++) {
            char *there = memory + (size_t)place(s, row, s->run[i]) * g->size;
            char *here =
                (char *)a->data + (size_t)((i * pieces + row) * length) * g->size;
            size_t bytes = (size_t)length * g->size;
            assert_ok(
                up ? danaus_upload(g->dev, there, here, bytes)
                   : danaus_download(g->dev, here, there, bytes));
        }
}

/* The array as move_samples has it, batch-first, or back. */
static void reorder(const samples *s, const array *from, array *to, int up)
{
    size_t size = danaus_dtype_size(from->dtype);
    int last = s->layout == DANAUS_BATCH_LAST;
    for (int64_t i = 0; i < SAMPLES; i++)
        for (int64_t row = 0; row < s->size; row++) {
            int64_t first = i * s->size + row;
            int64_t run = last ? (i / RUN * s->size + row) * RUN + i % RUN : first;
            memcpy(
                (char *)to->data + (size_t)(up ? run : first) * size,
                (const char *)from->data + (size_t)(up ? first : run) * size, size);
        }
}

/* ---- products ---- */

typedef struct question {
    ks_step step;
    uint64_t seed;
} question;

static int64_t longest_of(const problem *p)
{
    int64_t rows = rows_of(p->pattern);
    int64_t cols = cols_of(p->inner.a ? p->inner : p->pattern);
    return rows > cols ? rows : cols;
}

static const char *name_of(const ks_step *step)
{
    static char text[160];
    danaus_pattern q = step->p.pattern;
    snprintf(
        text, sizeof text,
        "%s: %" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 " %s batch %" PRId64,
        step->kernel->name, q.a, q.b, q.c, q.d,
        step->p.layout == DANAUS_BATCH_LAST ? "last" : "first", step->p.batch);
    return text;
}

static signal expected_of(
    const problem *p, const array *w, const array *inner, const array *bias,
    const array *x)
{
    signal in = signal_read(
        x, DANAUS_BATCH_FIRST, cols_of(p->inner.a ? p->inner : p->pattern), SAMPLES);
    if (p->inner.a) {
        signal between = signal_times(p->inner, inner, 0, &in, p->dtype);
        signal_round(&between, p->dtype);
        signal_free(&in);
        in = between;
    }
    signal y = signal_times(p->pattern, w, 0, &in, p->dtype);
    if (p->math == DANAUS_MATH_TF32) /* both numbers of a product are rounded, or cut */
        for (int64_t i = 0; i < y.size * y.batch; i++)
            y.e[i] += 3 * 0x1p-10 * y.m[i];
    signal_round(&y, p->dtype); /* before the bias, by rows of a library */
    signal_add_bias(&y, bias, p->dtype);
    signal_round(&y, p->dtype);
    signal_free(&in);
    return y;
}

static void *packed_of(
    const regions *g, const ks_step *step, const array *w, const array *inner)
{
    void *packed = NULL;
    weights_view view = dn_weights_view(w->data, g->dtype, step->p.pattern);
    weights_view of_inner = dn_weights_view(inner->data, g->dtype, step->p.inner);
    view.inner = step->p.inner.a ? &of_inner : NULL;
    assert_ok(danaus_alloc(g->dev, dn_packed_bytes(step->kernel, &step->p), &packed));
    assert_ok(dn_pack(g->dev, step, view, packed));
    return packed;
}

/* x and y begin at a multiple of 256 bytes, or an element later. */
static void check(const regions *g, const question *q)
{
    const problem *p = &q->step.p;
    const char *what = name_of(&q->step);
    rng r = { q->seed };
    int64_t rows = rows_of(p->pattern),
            cols = cols_of(p->inner.a ? p->inner : p->pattern);
    array w = array_random(&r, g->dtype, weights_of(p->pattern));
    array inner = array_random(&r, g->dtype, p->inner.a ? weights_of(p->inner) : 1);
    array bias = array_random(&r, sum_type(g->dtype), rows);
    int64_t shift = rng_int(&r, 0, 1);
    size_t off = (size_t)shift * g->size;
    char *x = g->x + off, *y = g->y + GUARD + off;
    void *packed = packed_of(g, &q->step, &w, &inner),
         *on = bias_to_device(g->dev, &bias);
    const void *all[] = { packed };
    poison(g, g->y);
    ks_operands o = { .batch = p->batch, .x = x, .packed = all, .bias = on, .y = y };
    assert_ok(g->dev->backend->ks_run(g->dev, &q->step, 1, &o));
    assert_ok(danaus_device_sync(g->dev));
    samples s = choose(&r, longest_of(p), p->batch);
    s.layout = p->layout;
    s.size = cols;
    array xs = read_block(g, &s, shift);
    s.size = rows;
    array raw = array_make(g->dtype, rows * SAMPLES),
          ys = array_make(g->dtype, raw.count);
    move_samples(g, &s, y, &raw, 0);
    reorder(&s, &raw, &ys, 0);
    signal expected = expected_of(p, &w, &inner, &bias, &xs);
    expect_signal(&ys, DANAUS_BATCH_FIRST, &expected, what);
    expect_guard(g, y - GUARD, what);
    expect_guard(g, y + (size_t)(rows * p->batch) * g->size, what);
    bias_from_device(g->dev, &bias, on);
    danaus_free(g->dev, packed);
    signal_free(&expected);
    array_free(&w), array_free(&inner), array_free(&bias);
    array_free(&xs), array_free(&raw), array_free(&ys);
}

/* x is longer in one half of them, y in the other. */
static const danaus_pattern patterns[][2] = {
    { { 2, 48, 64, 1 } },
    { { 2, 64, 48, 1 } },
    { { 2, 48, 64, 4 } },
    { { 2, 64, 48, 4 } },
    { { 1, 32, 48, 16 } },
    { { 1, 48, 32, 16 } },
    { { 1, 32, 32, 32 }, { 32, 32, 32, 1 } },
    { { 16, 6, 4, 1 } },
    { { 16, 4, 6, 1 } },
    { { 8, 4, 6, 4 } },
    { { 8, 6, 4, 4 } },
};

#define PATTERNS (sizeof patterns / sizeof *patterns)

/* The questions to a row: in each layout the first of either half that fits and takes less
   than a second by its own estimate. */
static int ask(const kernel *k, question *list, int count)
{
    for (int form = 0; form < 8; form++)
        for (size_t i = (size_t)form % 2; i < PATTERNS; i += 2) {
            problem p = { .pattern = patterns[i][0],
                          .inner = patterns[i][1],
                          .dtype = k->dtype,
                          .layout = (danaus_layout)(form / 2 % 2),
                          .math = (danaus_math)(form / 4),
                          .batch = 1 };
            p.batch = ELEMENTS / longest_of(&p) + 9;
            if (!dn_fits(k, &p) || dn_cost(device, k, &p) > 1 || count == MOST)
                continue;
            p.math = DANAUS_MATH_F32;
            if (form / 4 && dn_fits(k, &p))
                continue;
            p.math = (danaus_math)(form / 4);
            list[count] = (question){ { p, k, 0 }, (uint64_t)count };
            count++;
            break;
        }
    return count;
}

static void compile_together(const question *list, int count)
{
    ks_step steps[AT_ONCE];
    for (int i = 0; i < count; i++)
        steps[i] = list[i].step;
    int refused = 0;
    assert_ok(device->backend->prepare(device, steps, count, &refused));
}

static void check_type(danaus_dtype dtype)
{
    static question list[MOST];
    int count = 0, taken = 0;
    for (const kernel *k = device->kernels; k->name; k++)
        if (k->dtype == dtype)
            count = ask(k, list, count);
    for (int i = 0; i < count; i += share_of_cases())
        list[taken++] = list[i];
    regions g;
    if (!regions_open(&g, dtype)) {
        left_out += taken;
        return;
    }
    for (int i = 0; i < taken; i++) {
        if (i % AT_ONCE == 0)
            compile_together(&list[i], taken - i < AT_ONCE ? taken - i : AT_ONCE);
        check(&g, &list[i]);
        made++;
    }
    printf("%s: %d problems\n", danaus_dtype_name(dtype), taken);
    regions_close(&g);
}

static void every_row_reaches_the_end_of_a_large_vector(void **state)
{
    (void)state;
    for (int t = 0; t < TEST_DTYPES; t++)
        check_type(test_dtypes[t]);
}

/* ---- gradients ---- */

/* dy is zero but for the samples, so that dw and dbias are sums over these alone. */
static void check_gradient(const regions *g, danaus_pattern p, danaus_layout layout)
{
    rng r = { 5 };
    danaus_ks_desc desc = { .layout = layout, .dtype = g->dtype, .gradients = 1 };
    problem longer = { .pattern = p };
    int64_t batch = ELEMENTS / longest_of(&longer) + 9, rows = rows_of(p);
    random_chain c = chain_random(&r, &p, 1, g->dtype, 1);
    danaus_ks_plan *plan = NULL;
    danaus_ks_weights *weights = NULL;
    assert_ok(danaus_ks_plan_create(g->dev, &p, 1, &desc, &plan));
    assert_ok(danaus_ks_weights_create(plan, g->dev, c.chain, &weights));
    samples s = choose(&r, longest_of(&longer), batch);
    s.layout = layout;
    s.size = cols_of(p);
    array xs = read_block(g, &s, 0);
    s.size = rows;
    array dys = array_random(&r, g->dtype, rows * SAMPLES);
    array raw = array_make(g->dtype, dys.count);
    reorder(&s, &dys, &raw, 1);
    assert_ok(g->dev->backend->clear(g->dev, g->y, region_bytes(g)));
    move_samples(g, &s, g->y, &raw, 1);
    array dw = array_make(sum_type(g->dtype), weights_of(p));
    array dbias = array_make(sum_type(g->dtype), rows);
    void *to = to_device(g->dev, &dw);
    danaus_ks_gradients wanted = { .dw = &to, .dbias = to_device(g->dev, &dbias) };
    assert_ok(danaus_ks_gradient(plan, g->dev, weights, batch, g->x, g->y, &wanted));
    from_device(g->dev, &dw, to);
    from_device(g->dev, &dbias, wanted.dbias);
    signal x = signal_read(&xs, DANAUS_BATCH_FIRST, cols_of(p), SAMPLES);
    signal dy = signal_read(&dys, DANAUS_BATCH_FIRST, rows, SAMPLES);
    signal exact = signal_dw(p, &x, &dy, g->dtype), sum = signal_dbias(&dy, g->dtype);
    signal_round(&exact, sum_type(g->dtype));
    signal_round(&sum, sum_type(g->dtype));
    expect_signal(&dw, DANAUS_BATCH_LAST, &exact, "dw");
    expect_signal(&dbias, DANAUS_BATCH_LAST, &sum, "dbias");
    danaus_ks_weights_destroy(weights);
    danaus_ks_plan_destroy(plan);
    signal_free(&x), signal_free(&dy), signal_free(&exact), signal_free(&sum);
    array_free(&xs), array_free(&dys), array_free(&raw), array_free(&dw),
        array_free(&dbias);
    chain_free(&c);
}

static void weight_gradients_sum_over_all_of_a_large_batch(void **state)
{
    (void)state;
    if (getenv("DANAUS_TEST_ROWS")) /* may lack those that plans need */
        skip();
    static const danaus_dtype types[] = { DANAUS_F16, DANAUS_F32, DANAUS_C64 };
    static const danaus_pattern some[] = { { 2, 64, 48, 1 },
                                           { 2, 48, 64, 4 },
                                           { 4, 8, 12, 4 } };
    for (int t = 0; t < 3; t++) {
        regions g;
        if (!regions_open(&g, types[t])) {
            left_out += 6;
            continue;
        }
        for (int i = 0; i < 6; i += share_of_cases(), made++)
            check_gradient(&g, some[i / 2], (danaus_layout)(i % 2));
        regions_close(&g);
    }
}

int main(int argc, char **argv)
{
    device = device_from_arguments(argc, argv);
    danaus_device_info info;
    if (danaus_device_describe(device, &info) || info.memory < LEAST_MEMORY) {
        printf("this GPU has less than %d GB\n", (int)(LEAST_MEMORY / 1000000000));
        danaus_device_close(device);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_reaches_the_end_of_a_large_vector),
        cmocka_unit_test(weight_gradients_sum_over_all_of_a_large_batch),
    };
    int failed = cmocka_run_group_tests_name("large", tests, NULL, NULL);
    printf("%d problems, %d left out for want of memory\n", made, left_out);
    danaus_device_close(device);
    return failed;
}
