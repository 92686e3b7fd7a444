/* The same bits for any batch (desc.batch_invariant): a column of a result is what it is alone,
   whatever the batch, its place there, the batch that was planned for and the number of
   threads. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "device/backend.h"
#include "support/chains.h"
#include "support/device.h"
#include "support/operators.h"

#include <string.h>

#define OWN       7   /* different columns, which larger batches repeat */
#define MOST_ROWS 512 /* of a table */
#define UP_TO     40  /* batches from 1 on, then: */
static const int64_t larger[] = { 63, 64, 65, 127, 196, 300, 1000 };

#define BATCHES (UP_TO + (int)(sizeof larger / sizeof *larger))

static danaus_device *device;

static int64_t batch_number(int n) { return n < UP_TO ? n + 1 : larger[n - UP_TO]; }

/* The column that is column s of a batch which begins at `from`. */
static int64_t column_of(int64_t s, int64_t from) { return (5 * s + from) % OWN; }

/* ---- columns ---- */

/* Number k of column s, of `rows` numbers each. */
static int64_t place(
    danaus_layout layout, int64_t rows, int64_t batch, int64_t k, int64_t s)
{
    return layout == DANAUS_BATCH_LAST ? k * batch + s : s * rows + k;
}

static void *number_at(const array *a, int64_t at)
{
    return (char *)a->data + (size_t)at * danaus_dtype_size(a->dtype);
}

/* A batch of columns of `own`, which are batch-first. */
static array batch_of(
    const array *own, danaus_layout layout, int64_t rows, int64_t batch, int64_t from)
{
    array all = array_make(own->dtype, rows * batch);
    for (int64_t s = 0; s < batch; s++)
        for (int64_t k = 0; k < rows; k++)
            memcpy(
                number_at(&all, place(layout, rows, batch, k, s)),
                number_at(own, column_of(s, from) * rows + k),
                danaus_dtype_size(own->dtype));
    return all;
}

/* The first column of a batch that has other bits than the column alone, or -1. `alone` has all
   different columns, batch-first. */
static int64_t first_other(
    const array *alone, const array *y, danaus_layout layout, int64_t rows,
    int64_t batch, int64_t from)
{
    for (int64_t s = 0; s < batch; s++)
        for (int64_t k = 0; k < rows; k++)
            if (memcmp(
                    number_at(y, place(layout, rows, batch, k, s)),
                    number_at(alone, column_of(s, from) * rows + k),
                    danaus_dtype_size(y->dtype)))
                return s;
    return -1;
}

/* ---- products of chains ---- */

typedef enum part_of_plan { PRODUCT, GRADIENT } part_of_plan;

typedef struct scene {
    random_chain chain;
    danaus_ks_desc desc;
    part_of_plan part;
    int in_place; /* the residual is where y will be */
    int64_t takes, gives;
    array x, residual; /* different columns */
} scene;

/* Some are Monarch matrices, or have lanes that are whole vectors. */
static void random_factors(rng *r, int most, danaus_pattern *p, int *count)
{
    static const danaus_pattern monarch[] = { { 1, 32, 32, 32 }, { 32, 32, 32, 1 } };
    static const int64_t limits[] = { 12, 60, 200 };
    *count = (int)rng_int(r, 1, most);
    random_patterns(r, *count, limits[rng_int(r, 0, 2)], p);
    if (*count == 2 && rng_next(r) % 3 == 0)
        memcpy(p, monarch, sizeof monarch);
    if (*count == 1 && rng_next(r) % 2)
        p[0] = (danaus_pattern){ 2, rng_int(r, 1, 12), rng_int(r, 1, 12), 32 };
}

static scene scene_random(
    uint64_t seed, danaus_dtype dtype, part_of_plan part, int most)
{
    rng r = { seed };
    danaus_pattern p[DANAUS_MAX_FACTORS];
    int count;
    random_factors(&r, most, p, &count);
    scene c = { .part = part };
    c.chain = chain_random(&r, p, count, dtype, (int)(rng_next(&r) % 2));
    c.desc = (danaus_ks_desc){ .dtype = dtype,
                               .layout = (danaus_layout)(rng_next(&r) % 2),
                               .math = (danaus_math)(rng_next(&r) % 2),
                               .adjoint = rng_next(&r) % 3 == 0,
                               .keep_factors = rng_next(&r) % 4 == 0,
                               .fresh_weights = rng_next(&r) % 4 == 0,
                               .bias = c.chain.bias.count > 0,
                               .gradients = part == GRADIENT,
                               .batch_invariant = 1 };
    if (part == PRODUCT) {
        c.desc.activation = random_activation(&r, dtype);
        c.desc.residual = rng_next(&r) % 2 == 0;
        c.in_place = c.desc.residual && rng_next(&r) % 2 == 0;
    }
    int back = c.desc.adjoint != (part == GRADIENT);
    c.takes = inputs_of(&c.chain, back);
    c.gives = outputs_of(&c.chain, back);
    c.x = array_random(&r, dtype, c.takes * OWN);
    c.residual = array_random(&r, dtype, c.gives * OWN);
    return c;
}

static void scene_free(scene *c)
{
    chain_free(&c->chain);
    array_free(&c->x);
    array_free(&c->residual);
}

/* x is dy, and the residual what the plan took, for gradients. */
static void run_plan(
    const scene *c, const danaus_ks_plan *plan, const danaus_ks_weights *w,
    int64_t batch, const void *x, const void *residual, void *y)
{
    if (c->part == GRADIENT) {
        danaus_ks_gradients only = { .dx = y };
        assert_ok(danaus_ks_gradient(plan, device, w, batch, residual, x, &only));
    } else if (c->desc.residual) {
        assert_ok(danaus_ks_execute_residual(plan, device, w, batch, x, residual, y));
    } else {
        assert_ok(danaus_ks_execute(plan, device, w, batch, x, y));
    }
}

/* Those columns from `from` on, by a plan of its own for this batch. */
static array compute(const scene *c, int64_t batch, int64_t from)
{
    danaus_ks_plan *plan = NULL;
    danaus_ks_weights *weights = NULL;
    danaus_ks_desc desc = c->desc;
    desc.batch = batch;
    array x = batch_of(&c->x, desc.layout, c->takes, batch, from);
    array residual = batch_of(&c->residual, desc.layout, c->gives, batch, from);
    array y = array_make(desc.dtype, c->gives * batch);
    if (c->in_place)
        memcpy(y.data, residual.data, (size_t)y.count * danaus_dtype_size(desc.dtype));
    assert_ok(danaus_ks_plan_create(device, c->chain.p, c->chain.count, &desc, &plan));
    assert_ok(danaus_ks_weights_create(plan, device, c->chain.chain, &weights));
    void *on[] = { to_device(device, &x), to_device(device, &residual),
                   to_device(device, &y) };
    run_plan(c, plan, weights, batch, on[0], on[c->in_place ? 2 : 1], on[2]);
    from_device(device, &x, on[0]);
    from_device(device, &residual, on[1]);
    from_device(device, &y, on[2]);
    danaus_ks_weights_destroy(weights);
    danaus_ks_plan_destroy(plan);
    array_free(&x);
    array_free(&residual);
    return y;
}

/* Each column by itself, one after the other. */
static array compute_alone(const scene *c)
{
    array all = array_make(c->desc.dtype, c->gives * OWN);
    size_t bytes = (size_t)c->gives * danaus_dtype_size(c->desc.dtype);
    for (int64_t s = 0; s < OWN; s++) {
        array y = compute(c, 1, s);
        memcpy((char *)all.data + (size_t)s * bytes, y.data, bytes);
        array_free(&y);
    }
    return all;
}

static void set_threads(int threads)
{
    if (device->backend->threads)
        assert_ok(danaus_device_set_threads(device, threads));
}

/* The first batch with a column that has other bits than alone, or 0. */
static int64_t batch_with_other_bits(const scene *c)
{
    static const int threads[] = { 1, 2, 7 };
    int64_t found = 0;
    set_threads(1);
    array alone = compute_alone(c);
    for (int n = 0; n < BATCHES && !found; n += case_step()) {
        int64_t batch = batch_number(n), from = n % OWN;
        set_threads(threads[n % 3]);
        array y = compute(c, batch, from);
        if (first_other(&alone, &y, c->desc.layout, c->gives, batch, from) >= 0)
            found = batch;
        array_free(&y);
    }
    array_free(&alone);
    set_threads(0);
    return found;
}

/* by: what makes it. */
static void expect_same_bits(const scene *c, const char *by)
{
    int64_t batch = batch_with_other_bits(c);
    if (batch)
        fail_msg("%s: %s", by, name_of_case(&c->chain, &c->desc, batch));
}

/* Cases of a part of plans, each of another type. */
static scene scene_number(int n, part_of_plan part)
{
    return scene_random((uint64_t)n, test_dtypes[n % TEST_DTYPES], part, 3);
}

static void products_have_the_same_bits(void **state)
{
    (void)state;
    for (int n = 0; n < rounds_of(100); n++) {
        scene c = scene_number(n, PRODUCT);
        expect_same_bits(&c, device->name);
        scene_free(&c);
    }
}

static void gradients_of_inputs_have_the_same_bits(void **state)
{
    (void)state;
    for (int n = 0; n < rounds_of(30); n++) {
        scene c = scene_number(n, GRADIENT);
        expect_same_bits(&c, device->name);
        scene_free(&c);
    }
}

/* ---- operators ---- */

static array execute_operator(
    const danaus_operator *made, danaus_ks_desc desc, const array *own, int64_t batch,
    int64_t from)
{
    danaus_operator_plan *plan = NULL;
    int64_t takes = danaus_operator_cols(made), gives = danaus_operator_rows(made);
    desc.batch = batch;
    array x = batch_of(own, desc.layout, takes, batch, from);
    array y = array_make(own->dtype, gives * batch);
    void *on[] = { to_device(device, &x), to_device(device, &y) };
    assert_ok(danaus_operator_plan_create(device, made, &desc, &plan));
    assert_ok(danaus_operator_execute(plan, device, batch, on[0], on[1]));
    from_device(device, &x, on[0]);
    from_device(device, &y, on[1]);
    danaus_operator_plan_destroy(plan);
    array_free(&x);
    return y;
}

static void check_operator(uint64_t seed)
{
    rng r = { seed };
    danaus_dtype dtype = test_dtypes[seed % TEST_DTYPES];
    int64_t rows = rng_int(&r, 1, 40), cols = rng_int(&r, 1, 40);
    danaus_operator *made = random_sum(&r, dtype, rows, cols);
    danaus_ks_desc desc = { .layout = (danaus_layout)(rng_next(&r) % 2),
                            .activation = random_activation(&r, dtype),
                            .batch_invariant = 1 };
    array own = array_random(&r, dtype, cols * OWN);
    array alone = array_make(dtype, rows * OWN);
    size_t bytes = (size_t)rows * danaus_dtype_size(dtype);
    for (int64_t s = 0; s < OWN; s++) {
        array y = execute_operator(made, desc, &own, 1, s);
        memcpy((char *)alone.data + (size_t)s * bytes, y.data, bytes);
        array_free(&y);
    }
    for (int n = 0; n < BATCHES; n += case_step()) {
        int64_t batch = batch_number(n), from = n % OWN;
        array y = execute_operator(made, desc, &own, batch, from);
        int64_t s = first_other(&alone, &y, desc.layout, rows, batch, from);
        if (s >= 0)
            fail_msg("operator %d: column %d of %d", (int)seed, (int)s, (int)batch);
        array_free(&y);
    }
    array_free(&own);
    array_free(&alone);
    danaus_operator_destroy(made);
}

static void sums_of_chains_have_the_same_bits(void **state)
{
    (void)state;
    for (int n = 0; n < rounds_of(30); n++)
        check_operator((uint64_t)n);
}

/* ---- what is refused ---- */

static void measurements_and_tables_are_refused(void **state)
{
    (void)state;
    danaus_pattern p = { 1, 4, 4, 1 };
    danaus_ks_plan *plan = NULL;
    danaus_ks_desc desc = { .batch_invariant = 1, .effort = DANAUS_MEASURE };
    assert_status(
        danaus_ks_plan_create(device, &p, 1, &desc, &plan), DANAUS_ERR_ARGUMENT);
    desc.effort = DANAUS_TABLE_ONLY;
    assert_status(
        danaus_ks_plan_create(device, &p, 1, &desc, &plan), DANAUS_ERR_ARGUMENT);
    assert_null(plan);
}

/* ---- rows ---- */

/* True if the row alone can make the product. */
static int has_plan(const scene *c)
{
    danaus_ks_plan *plan = NULL;
    danaus_status status =
        danaus_ks_plan_create(device, c->chain.p, c->chain.count, &c->desc, &plan);
    danaus_ks_plan_destroy(plan);
    return status == DANAUS_OK;
}

/* By a table that has this row alone; some factor that it fits. */
static void check_row(const kernel *row, uint64_t seed)
{
    device->kernels = row;
    for (int trial = 0; trial < 20; trial++) {
        scene c = scene_random(seed + (uint64_t)trial, row->dtype, PRODUCT, 1);
        int fits = has_plan(&c);
        if (fits)
            expect_same_bits(&c, row->name);
        scene_free(&c);
        if (fits)
            break;
    }
}

/* What was compiled is found again by the address of a row, so that each has a place of its
   own. On an emulated GPU some rows are enough. */
static void every_row_has_the_same_bits(void **state)
{
    (void)state;
    static kernel tables[MOST_ROWS][2];
    const kernel *all = device->kernels;
    int share = share_of_cases() < 9 ? share_of_cases() : 9, rounds = 1;
    if (device->backend->on_host)
        rounds = rounds_of(20);
    for (int n = 0; all[n].name; n++) {
        assert_true(n < MOST_ROWS);
        tables[n][0] = all[n];
        for (int round = 0; round < rounds && n % share == 0; round++)
            check_row(tables[n], (uint64_t)(n + 1000 * round));
    }
    device->kernels = all;
}

int main(int argc, char **argv)
{
    device = device_from_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_have_the_same_bits),
        cmocka_unit_test(gradients_of_inputs_have_the_same_bits),
        cmocka_unit_test(sums_of_chains_have_the_same_bits),
        cmocka_unit_test(measurements_and_tables_are_refused),
        cmocka_unit_test(every_row_has_the_same_bits),
    };
    int failed = cmocka_run_group_tests_name("batch_invariant", tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
