/* Any bytes as a product: patterns, a description, a batch, an instruction set, a number of
   threads, and where arrays lie. What cannot be planned is refused with a sentence. Small
   products are made with weights that were packed in every way, and with no more scratch
   than the plan says; they and their gradients are compared with the oracle. */
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"

#include "support/chains.h"
#include "support/device.h"
#include "support/test.h"

#include <string.h>

#define MOST_FACTORS 6
#define MOST_SIZE    48        /* of factors that fit together */
#define MOST_WORK    (1 << 16) /* products of two numbers in W x */
#define MOST_NUMBERS (1 << 16) /* of x, and of y */
#define BEYOND       255       /* this byte means a value that does not exist */

/* What is left to read; zeros follow. */
typedef struct input {
    const uint8_t *at;
    size_t left;
} input;

static int64_t byte_of(input *b) { return b->left ? b->left--, *b->at++ : 0; }

/* One of `count` values, or the one behind the last. */
static int64_t word_of(input *b, int64_t count)
{
    int64_t byte = byte_of(b);
    return byte == BEYOND ? count : byte % count;
}

/* ---- devices ---- */

/* Those of this processor. */
static danaus_device *device_of(int64_t number)
{
    static const char *const names[] = { "cpu:scalar", "cpu:avx2", "cpu:avx512",
                                         "cpu:neon" };
    static danaus_device *devices[4];
    static int count;
    for (int i = 0; i < 4 && !devices[0]; i++) {
        danaus_device *device = NULL;
        danaus_device_info info;
        if (danaus_device_open(names[3 - i], &device) != DANAUS_OK)
            continue;
        assert_ok(danaus_device_describe(device, &info));
        if (strcmp(info.name, names[3 - i]))
            danaus_device_close(device);
        else
            devices[count++] = device;
    }
    return devices[number % count];
}

/* ---- patterns ---- */

static int64_t divisor_of(input *b, int64_t n)
{
    int64_t d = 1 + byte_of(b) % n;
    while (n % d)
        d--;
    return d;
}

/* Factors that fit together. */
static void read_chain(input *b, int count, danaus_pattern *p)
{
    int64_t size = 1 + byte_of(b) % MOST_SIZE;
    for (int l = 0; l < count; l++) {
        int64_t a = divisor_of(b, size), d = divisor_of(b, size / a);
        int64_t c = 1 + byte_of(b) % (MOST_SIZE / (a * d) + 1);
        p[l] = (danaus_pattern){ a, size / a / d, c, d };
        size = a * c * d;
    }
}

/* A byte, or eight of them. */
static int64_t read_size(input *b)
{
    int64_t size = byte_of(b);
    for (int i = 0; size == BEYOND && i < 8; i++)
        size = (int64_t)((uint64_t)size << 8 | (uint64_t)byte_of(b));
    return size;
}

static void read_any_sizes(input *b, int count, danaus_pattern *p)
{
    for (int l = 0; l < count; l++) {
        p[l].a = read_size(b), p[l].b = read_size(b);
        p[l].c = read_size(b), p[l].d = read_size(b);
    }
}

static int is_small(danaus_pattern p)
{
    int64_t sizes[] = { p.a, p.b, p.c, p.d };
    for (int i = 0; i < 4; i++)
        if (sizes[i] < 1 || sizes[i] > BEYOND)
            return 0;
    return 1;
}

static int all_small(const danaus_pattern *p, int count)
{
    int small = 1;
    for (int l = 0; l < count; l++)
        small = small && is_small(p[l]);
    return small;
}

/* True if small patterns fit together. */
static int fit(const danaus_pattern *p, int count)
{
    for (int l = 0; l + 1 < count; l++)
        if (cols_of(p[l]) != rows_of(p[l + 1]))
            return 0;
    return 1;
}

/* ---- one product ---- */

typedef struct story {
    danaus_device *device;
    danaus_pattern p[MOST_FACTORS];
    int count, bias;
    danaus_ks_desc desc;
    danaus_dtype weights;
    int64_t batch;
    rng r;
} story;

static danaus_ks_desc read_desc(input *b)
{
    danaus_ks_desc d = { 0 };
    d.layout = (danaus_layout)word_of(b, 2);
    d.dtype = (danaus_dtype)word_of(b, TEST_DTYPES + 1);
    d.adjoint = (int)word_of(b, 2);
    d.gradients = (int)word_of(b, 2);
    d.fresh_weights = (int)word_of(b, 2);
    d.keep_factors = (int)word_of(b, 2);
    d.activation = (danaus_activation)word_of(b, DANAUS_GELU_TANH + 1);
    d.bias = (int)word_of(b, 2);
    d.batch = byte_of(b) * byte_of(b);
    if (byte_of(b) == BEYOND) /* that is reserved, or nothing that exists */
        switch (byte_of(b) % 4) {
        case 0: d.reserved[byte_of(b) % 8] = 1; break;
        case 1: d.batch = -1; break;
        case 2: d.effort = (danaus_effort)(DANAUS_TABLE_ONLY + 1); break;
        case 3: d.math = (danaus_math)(DANAUS_MATH_TF32 + 1); break;
        }
    return d;
}

static story read_story(const uint8_t *data, size_t size)
{
    input b = { data, size };
    story s = { .device = device_of(byte_of(&b)) };
    assert_ok(danaus_device_set_threads(s.device, 1 + (int)(byte_of(&b) % 3)));
    array_places_from((unsigned)byte_of(&b));
    s.r.state = (uint64_t)byte_of(&b);
    s.desc = read_desc(&b);
    s.weights = (danaus_dtype)(1 + byte_of(&b) % TEST_DTYPES);
    s.bias = (int)(byte_of(&b) % 2);
    s.batch = byte_of(&b) % 3 ? byte_of(&b) : byte_of(&b) * byte_of(&b);
    s.count = 1 + (int)(byte_of(&b) % MOST_FACTORS);
    if (byte_of(&b) % 8)
        read_chain(&b, s.count, s.p);
    else
        read_any_sizes(&b, s.count, s.p);
    return s;
}

static int is_right(const danaus_ks_desc *d)
{
    if (d->layout > DANAUS_BATCH_LAST || d->dtype > DANAUS_C128 || d->batch < 0 ||
        d->activation > DANAUS_GELU_TANH || d->effort > DANAUS_TABLE_ONLY ||
        d->math > DANAUS_MATH_TF32)
        return 0;
    for (int i = 0; i < 8; i++)
        if (d->reserved[i])
            return 0;
    int complex = d->dtype == DANAUS_C64 || d->dtype == DANAUS_C128;
    return !d->activation || (!complex && !d->gradients);
}

static int is_short(const story *s)
{
    int64_t work = 0, rows = rows_of(s->p[0]), cols = cols_of(s->p[s->count - 1]);
    for (int l = 0; l < s->count; l++) {
        if (weights_of(s->p[l]) > MOST_WORK)
            return 0;
        work += weights_of(s->p[l]) * (s->batch + 1);
    }
    return work <= MOST_WORK && (rows + cols) * s->batch <= MOST_NUMBERS;
}

/* ---- running ---- */

/* y of these weights, with scratch of the size that the plan says, is the oracle's. */
static void expect_product(
    const story *s, const danaus_ks_plan *plan, const danaus_ks_weights *weights,
    const array *x, const signal *expected, const char *what)
{
    size_t bytes = 0;
    void *scratch = NULL;
    array y = array_make(s->desc.dtype, expected->size * s->batch);
    assert_ok(danaus_ks_scratch_bytes(plan, s->device, s->batch, &bytes, NULL));
    assert_int_equal(posix_memalign(&scratch, DANAUS_SCRATCH_ALIGN, bytes), 0);
    assert_ok(danaus_device_set_scratch(s->device, scratch, bytes));
    assert_ok(danaus_ks_execute(plan, s->device, weights, s->batch, x->data, y.data));
    assert_ok(danaus_device_set_scratch(s->device, NULL, 0));
    expect_signal(&y, s->desc.layout, expected, what);
    free(scratch);
    array_free(&y);
}

/* The chain's arrays into memory that another object runs with. */
static void run_bound(
    const story *s, const danaus_ks_plan *plan, const random_chain *c, const array *x,
    const signal *expected)
{
    danaus_ks_weights *packing = NULL, *running = NULL;
    const void *w[MOST_FACTORS];
    size_t bytes = 0;
    void *memory = NULL;
    for (int l = 0; l < s->count; l++)
        w[l] = c->w[l].data;
    assert_ok(danaus_ks_weights_bytes(plan, &bytes));
    assert_int_equal(posix_memalign(&memory, 64, bytes), 0);
    assert_ok(danaus_ks_weights_create_unbound(plan, s->device, &packing));
    assert_ok(danaus_ks_weights_create_unbound(plan, s->device, &running));
    assert_ok(danaus_ks_weights_bind(packing, memory, 0));
    assert_ok(
        danaus_ks_weights_update_from(packing, s->device, c->dtype, w, c->bias.data));
    assert_ok(danaus_ks_weights_bind(running, memory, c->bias.count > 0));
    expect_product(s, plan, running, x, expected, "bound");
    danaus_ks_weights_destroy(packing);
    danaus_ks_weights_destroy(running);
    free(memory);
}

static void run_chain(const story *s, const danaus_ks_plan *plan, random_chain *c)
{
    rng r = s->r;
    danaus_ks_weights *weights = NULL;
    array x = array_random(&r, s->desc.dtype, inputs_of(c, s->desc.adjoint) * s->batch);
    signal expected = multiply_exactly(c, &s->desc, s->batch, &x);
    assert_ok(danaus_ks_weights_create(plan, s->device, c->chain, &weights));
    expect_product(s, plan, weights, &x, &expected, "packed");
    assert_ok(danaus_ks_weights_update(weights, s->device, c->chain));
    expect_product(s, plan, weights, &x, &expected, "packed again");
    danaus_ks_weights_destroy(weights);
    run_bound(s, plan, c, &x, &expected);
    signal_free(&expected);
    array_free(&x);
    if (s->desc.gradients)
        check_gradients(&r, s->device, c, &s->desc, s->batch);
}

/* Real weights of a complex plan, and the other way round, are refused. */
static void run(story *s, const danaus_ks_plan *plan)
{
    danaus_ks_weights *weights = NULL;
    random_chain c = chain_random(&s->r, s->p, s->count, s->weights, s->bias);
    if (precision_of(s->weights).complex == precision_of(s->desc.dtype).complex) {
        run_chain(s, plan, &c);
    } else {
        expect(
            danaus_ks_weights_create(plan, s->device, c.chain, &weights) != DANAUS_OK);
        expect(!weights && *danaus_error_detail());
    }
    chain_free(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    danaus_ks_plan *plan = NULL;
    story s = read_story(data, size);
    int small = all_small(s.p, s.count);
    int right = is_right(&s.desc) && (!small || fit(s.p, s.count));
    if (danaus_ks_plan_create(s.device, s.p, s.count, &s.desc, &plan) != DANAUS_OK) {
        expect(!plan && *danaus_error_detail());
        expect(!small || !right);
        return 0;
    }
    expect(right && danaus_ks_plan_describe(plan, NULL, 0) > 0);
    s.desc.dtype = s.desc.dtype ? s.desc.dtype : DANAUS_F32;
    if (small && is_short(&s))
        run(&s, plan);
    danaus_ks_plan_destroy(plan);
    return 0;
}
