/* Products of 8-bit numbers (desc.int8): exact where numbers are integers, within the bound of
   rounding elsewhere, and refused where there are none. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/chains.h"
#include "support/device.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 127 /* magnitude of an integer */

static danaus_device *device;

static const danaus_dtype row_types[] = { DANAUS_F32, DANAUS_F16, DANAUS_BF16 };

typedef struct scene {
    random_chain chain;
    danaus_ks_desc desc;
    int64_t batch, takes, gives;
    array x;
} scene;

/* Sizes below, at and above vectors and tiles of rows and columns. */
static danaus_pattern random_factor(rng *r)
{
    static const int64_t limits[] = { 3, 9, 40, 130 };
    int64_t most = limits[rng_int(r, 0, 3)];
    danaus_pattern p = { rng_int(r, 1, 4), rng_int(r, 1, most), rng_int(r, 1, most),
                         rng_next(r) % 2 ? 1 : rng_int(r, 2, most < 40 ? 20 : 5) };
    return p;
}

static scene scene_random(uint64_t seed, danaus_dtype dtype, int factors)
{
    rng r = { seed };
    danaus_pattern p[2];
    scene c = { .batch = rng_next(&r) % 8 ? rng_int(&r, 1, 20) : rng_int(&r, 21, 110) };
    if (factors == 1)
        p[0] = random_factor(&r);
    else
        random_patterns(&r, factors, 40, p);
    c.chain = chain_random(&r, p, factors, dtype, (int)(rng_next(&r) % 2));
    c.desc = (danaus_ks_desc){ .dtype = dtype,
                               .layout = (danaus_layout)(rng_next(&r) % 2),
                               .adjoint = rng_next(&r) % 3 == 0,
                               .keep_factors = 1,
                               .bias = c.chain.bias.count > 0,
                               .batch = rng_next(&r) % 2 ? c.batch : 0,
                               .int8 = 1 };
    c.takes = inputs_of(&c.chain, c.desc.adjoint);
    c.gives = outputs_of(&c.chain, c.desc.adjoint);
    c.x = array_random(&r, dtype, c.takes * c.batch);
    return c;
}

static void scene_free(scene *c)
{
    array_free(&c->x);
    chain_free(&c->chain);
}

static double get(const array *a, int64_t at)
{
    return element_get(a->dtype, a->data, at).re;
}

static void put(array *a, int64_t at, double v)
{
    element_put(a->dtype, a->data, at, (value){ v, 0 });
}

static int64_t place(const scene *c, int64_t rows, int64_t row, int64_t s)
{
    return c->desc.layout == DANAUS_BATCH_LAST ? row * c->batch + s : s * rows + row;
}

/* The pattern that the product with factor f has. */
static danaus_pattern pattern_of(const scene *c, int f)
{
    danaus_pattern p = c->chain.p[f];
    return c->desc.adjoint ? (danaus_pattern){ p.a, p.c, p.b, p.d } : p;
}

/* Where the weight of row r and column k is in factor f. */
static int64_t weight_at(
    const scene *c, int f, int64_t i, int64_t r, int64_t k, int64_t j)
{
    danaus_pattern p = c->chain.p[f];
    int64_t row = c->desc.adjoint ? k : r, column = c->desc.adjoint ? r : k;
    return ((i * p.b + row) * p.c + column) * p.d + j;
}

/* Numbers and how far each of them may be off. */
typedef struct bounded {
    double value, error;
} bounded;

/* y of one factor and column with the bound of rounding: a number of x errs by half of its
   lane's scale, a weight by half of its row's. Either scale is rounded, to 2^-16 at worst. */
static void multiply_one(
    const scene *c, int f, const bounded *x, bounded *y, const double *bias)
{
    danaus_pattern p = pattern_of(c, f);
    const double slack = 1 + 0x1p-14, half = 0.5 / MOST;
    for (int64_t row = 0; row < p.a * p.b * p.d; row++) {
        int64_t i = row / (p.b * p.d), r = row / p.d % p.b, j = row % p.d;
        double most_x = 0, most_w = 0, sum = 0, error = 0, moved = 0;
        for (int64_t k = 0; k < p.c; k++) {
            const bounded *v = &x[(i * p.c + k) * p.d + j];
            double w = get(&c->chain.w[f], weight_at(c, f, i, r, k, j));
            most_x = fmax(most_x, fabs(v->value) + v->error);
            most_w = fmax(most_w, fabs(w));
        }
        for (int64_t k = 0; k < p.c; k++) {
            const bounded *v = &x[(i * p.c + k) * p.d + j];
            double w = get(&c->chain.w[f], weight_at(c, f, i, r, k, j));
            double dx = slack * half * most_x + v->error, dw = slack * half * most_w;
            sum += w * v->value;
            error += fabs(w) * dx + fabs(v->value) * dw + dx * dw;
            moved += (fabs(w) + dw) * (fabs(v->value) + dx);
        }
        sum += bias ? bias[row] : 0;
        moved += bias ? fabs(bias[row]) : 0;
        y[row] = (bounded){ sum, error + 4 * 0x1p-24 * moved };
    }
}

/* y of one column by plain loops. */
static void multiply_column(const scene *c, int64_t s, bounded *x, bounded *y)
{
    int count = c->chain.count;
    double *bias = c->chain.bias.count && !c->desc.adjoint
                       ? calloc((size_t)c->gives, sizeof *bias)
                       : NULL;
    for (int64_t n = 0; bias && n < c->gives; n++)
        bias[n] = get(&c->chain.bias, n);
    for (int64_t n = 0; n < c->takes; n++)
        x[n] = (bounded){ get(&c->x, place(c, c->takes, n, s)), 0 };
    for (int n = 0; n < count; n++) {
        int f = c->desc.adjoint ? n : count - 1 - n;
        multiply_one(c, f, n % 2 ? y : x, n % 2 ? x : y, n + 1 == count ? bias : NULL);
    }
    if (count % 2 == 0)
        memcpy(y, x, (size_t)c->gives * sizeof *y);
    free(bias);
}

/* The longest vector of a chain. */
static int64_t longest(const scene *c)
{
    int64_t most = 0;
    for (int f = 0; f < c->chain.count; f++) {
        danaus_pattern p = c->chain.p[f];
        int64_t rows = p.a * p.d * (p.b > p.c ? p.b : p.c);
        most = rows > most ? rows : most;
    }
    return most;
}

static void expect_near(const scene *c, const array *found)
{
    size_t bytes = (size_t)longest(c) * sizeof(bounded);
    bounded *x = malloc(bytes), *y = malloc(bytes);
    precision stored = precision_of(c->desc.dtype);
    for (int64_t s = 0; s < c->batch; s++) {
        multiply_column(c, s, x, y);
        for (int64_t n = 0; n < c->gives; n++) {
            double is = get(found, place(c, c->gives, n, s));
            double most = fabs(y[n].value) + y[n].error;
            double allowed = y[n].error + stored.unit * most + stored.tiny;
            if (!(fabs(is - y[n].value) <= allowed))
                fail_msg(
                    "%s: number %d of column %d is %.9g, not %.9g; %g is allowed",
                    name_of_case(&c->chain, &c->desc, c->batch), (int)n, (int)s, is,
                    y[n].value, allowed);
        }
    }
    free(x);
    free(y);
}

static void results_are_within_the_bound_of_rounding(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(240); round++) {
        scene c =
            scene_random((uint64_t)round, row_types[round % 3], 1 + round / 3 % 2);
        array y = multiply(device, &c.chain, &c.desc, c.batch, &c.x);
        expect_near(&c, &y);
        array_free(&y);
        scene_free(&c);
    }
}

/* ---- integers ---- */

/* Integers in [-MOST, MOST] times a power of two, of which each lane of x and each row of weights
   has one of magnitude MOST: none is rounded. */
static void make_integers(rng *r, scene *c)
{
    danaus_pattern p = pattern_of(c, 0);
    for (int64_t n = 0; n < c->x.count; n++)
        put(&c->x, n, (double)rng_int(r, -MOST, MOST));
    for (int64_t n = 0; n < c->chain.w->count; n++)
        put(c->chain.w, n, (double)rng_int(r, -MOST, MOST));
    for (int64_t n = 0; n < c->chain.bias.count; n++)
        put(&c->chain.bias, n, (double)rng_int(r, -1000, 1000));
    for (int64_t i = 0; i < p.a; i++)
        for (int64_t j = 0; j < p.d; j++) {
            for (int64_t row = 0; row < p.b; row++)
                put(c->chain.w, weight_at(c, 0, i, row, rng_int(r, 0, p.c - 1), j),
                    rng_next(r) % 2 ? MOST : -MOST);
            for (int64_t s = 0; s < c->batch; s++) {
                int64_t row = (i * p.c + rng_int(r, 0, p.c - 1)) * p.d + j;
                put(&c->x, place(c, c->takes, row, s), rng_next(r) % 2 ? MOST : -MOST);
            }
        }
    memcpy(
        danaus_chain_weights(c->chain.chain, 0), c->chain.w->data,
        (size_t)c->chain.w->count * sizeof(float));
    if (c->chain.bias.count)
        assert_ok(danaus_chain_set_bias(c->chain.chain, c->chain.bias.data));
}

static void integers_are_multiplied_exactly(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(120); round++) {
        rng r = { 7000 + (uint64_t)round };
        scene c = scene_random(500 + (uint64_t)round, DANAUS_F32, 1);
        make_integers(&r, &c);
        array y = multiply(device, &c.chain, &c.desc, c.batch, &c.x);
        size_t bytes = (size_t)longest(&c) * sizeof(bounded);
        bounded *x = malloc(bytes), *wanted = malloc(bytes);
        for (int64_t s = 0; s < c.batch; s++) {
            multiply_column(&c, s, x, wanted);
            for (int64_t n = 0; n < c.gives; n++) {
                double is = get(&y, place(&c, c.gives, n, s));
                if (is != wanted[n].value)
                    fail_msg(
                        "%s: number %d of column %d is %.9g, not %.9g",
                        name_of_case(&c.chain, &c.desc, c.batch), (int)n, (int)s, is,
                        wanted[n].value);
            }
        }
        free(x);
        free(wanted);
        array_free(&y);
        scene_free(&c);
    }
}

/* ---- what does not change results ---- */

/* A column has the same bits in any batch, layout and number of threads. */
static void columns_do_not_depend_on_what_is_around_them(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(40); round++) {
        scene c =
            scene_random(900 + (uint64_t)round, row_types[round % 3], 1 + round % 2);
        array y = multiply(device, &c.chain, &c.desc, c.batch, &c.x);
        danaus_ks_desc alone = c.desc;
        alone.layout = DANAUS_BATCH_FIRST;
        assert_ok(danaus_device_set_threads(device, 1 + round % 3));
        for (int64_t s = 0; s < c.batch; s += 1 + c.batch / 3) {
            array column = array_make(c.desc.dtype, c.takes);
            for (int64_t n = 0; n < c.takes; n++)
                put(&column, n, get(&c.x, place(&c, c.takes, n, s)));
            array one = multiply(device, &c.chain, &alone, 1, &column);
            for (int64_t n = 0; n < c.gives; n++)
                assert_true(get(&one, n) == get(&y, place(&c, c.gives, n, s)));
            array_free(&column);
            array_free(&one);
        }
        assert_ok(danaus_device_set_threads(device, 0));
        array_free(&y);
        scene_free(&c);
    }
}

/* ---- numbers at the ends of the range ---- */

enum { ENDS_ROWS = 3, ENDS_COLS = 37 };

/* y of three rows of ones, for x of which number 5 is `special` and others are `rest`. */
static void multiply_ends(float special, float rest, float weight, float y[ENDS_ROWS])
{
    const danaus_pattern p = { 1, ENDS_ROWS, ENDS_COLS, 1 };
    const danaus_ks_desc desc = { .int8 = 1 };
    float x[ENDS_COLS];
    danaus_chain *chain;
    danaus_ks_plan *plan;
    danaus_ks_weights *weights;
    assert_ok(danaus_chain_create(&p, 1, DANAUS_F32, &chain));
    float *w = danaus_chain_weights(chain, 0);
    for (int n = 0; n < ENDS_ROWS * ENDS_COLS; n++)
        w[n] = weight;
    for (int n = 0; n < ENDS_COLS; n++)
        x[n] = n == 5 ? special : rest;
    assert_ok(danaus_ks_plan_create(device, &p, 1, &desc, &plan));
    assert_ok(danaus_ks_weights_create(plan, device, chain, &weights));
    assert_ok(danaus_ks_execute(plan, device, weights, 1, x, y));
    danaus_ks_weights_destroy(weights);
    danaus_ks_plan_destroy(plan);
    danaus_chain_destroy(chain);
}

static void numbers_of_any_magnitude_have_a_scale(void **state)
{
    (void)state;
    float y[ENDS_ROWS];
    static const float sizes[] = { 1, 1e-30f, 1e-37f, 1e-40f, 1e30f, FLT_MAX / 64 };
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        /* A scale has 17 bits; the product of two has fewer below the normal numbers. */
        double share = 0x1p-16 + MOST * MOST * 0x1p-149 / sizes[n];
        multiply_ends(sizes[n], sizes[n], 1, y);
        assert_true(fabs((double)y[0] / sizes[n] - ENDS_COLS) < ENDS_COLS * share);
        multiply_ends(1, 1, sizes[n], y);
        assert_true(fabs((double)y[2] / sizes[n] - ENDS_COLS) < ENDS_COLS * share);
    }
    multiply_ends(0, 0, 1, y);
    assert_true(y[0] == 0 && y[1] == 0 && y[2] == 0);
    multiply_ends(1, 1, 0, y);
    assert_true(y[0] == 0 && y[1] == 0 && y[2] == 0);
    multiply_ends(NAN, 1, 1, y);
    assert_true(isnan(y[0]) && isnan(y[1]) && isnan(y[2]));
    multiply_ends(-INFINITY, 1, 1, y);
    assert_true(isnan(y[0]) && isnan(y[2]));
    multiply_ends(1, 1, INFINITY, y);
    assert_true(isnan(y[0]) && isnan(y[2]));
}

/* A number that is not finite spoils its lane of its block in its column, and no others. */
static void lanes_are_apart(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(30); round++) {
        rng r = { 40 + (uint64_t)round };
        scene c = scene_random(1300 + (uint64_t)round, DANAUS_F32, 1);
        danaus_pattern p = pattern_of(&c, 0);
        array y = multiply(device, &c.chain, &c.desc, c.batch, &c.x);
        int64_t row = rng_int(&r, 0, c.takes - 1), column = rng_int(&r, 0, c.batch - 1);
        ((float *)c.x.data)[place(&c, c.takes, row, column)] = NAN;
        array spoilt = multiply(device, &c.chain, &c.desc, c.batch, &c.x);
        for (int64_t s = 0; s < c.batch; s++)
            for (int64_t n = 0; n < c.gives; n++) {
                int64_t at = place(&c, c.gives, n, s);
                int is_hit = s == column && n / (p.b * p.d) == row / (p.c * p.d) &&
                             n % p.d == row % p.d;
                assert_int_equal(isnan(get(&spoilt, at)) != 0, is_hit);
                assert_true(is_hit || get(&spoilt, at) == get(&y, at));
            }
        array_free(&spoilt);
        array_free(&y);
        scene_free(&c);
    }
}

/* ---- what is refused ---- */

static void expect_no_plan(danaus_pattern p, danaus_ks_desc desc, const char *why)
{
    danaus_ks_plan *plan = NULL;
    desc.int8 = 1;
    assert_status(
        danaus_ks_plan_create(device, &p, 1, &desc, &plan), DANAUS_ERR_UNSUPPORTED);
    assert_null(plan);
    if (!strstr(danaus_error_detail(), why))
        fail_msg("\"%s\" lacks \"%s\"", danaus_error_detail(), why);
}

static void what_there_is_not_is_refused(void **state)
{
    (void)state;
    const danaus_pattern p = { 1, 4, 4, 1 }, wide = { 1, 1, (1 << 17) + 1, 1 };
    expect_no_plan(p, (danaus_ks_desc){ .dtype = DANAUS_F64 }, "f64");
    expect_no_plan(p, (danaus_ks_desc){ .dtype = DANAUS_C64 }, "c64");
    expect_no_plan(p, (danaus_ks_desc){ .gradients = 1 }, "gradients");
    expect_no_plan(wide, (danaus_ks_desc){ 0 }, "131072 columns");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_within_the_bound_of_rounding),
        cmocka_unit_test(integers_are_multiplied_exactly),
        cmocka_unit_test(columns_do_not_depend_on_what_is_around_them),
        cmocka_unit_test(numbers_of_any_magnitude_have_a_scale),
        cmocka_unit_test(lanes_are_apart),
        cmocka_unit_test(what_there_is_not_is_refused),
    };
    device = device_from_arguments(argc, argv);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
