/* Every row of a device that makes weight gradients, against the oracle: all types, both
   layouts, sizes around the edges of tiles, as many columns as make several slabs, and
   operands wherever they lie, which changes no bit. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "device/backend.h"
#include "support/chains.h"
#include "support/device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_WORK 4000000 /* multiplications of a case */
#define MOST_ROWS 128

typedef struct row_case {
    problem p;
    array x, dy;
    signal expected;
} row_case;

static row_case make_case(rng *r, problem p)
{
    danaus_pattern q = p.pattern;
    row_case c = { .p = p };
    c.x = array_random(r, p.dtype, cols_of(q) * p.batch);
    c.dy = array_random(r, p.dtype, rows_of(q) * p.batch);
    signal xs = signal_read(&c.x, p.layout, cols_of(q), p.batch);
    signal dys = signal_read(&c.dy, p.layout, rows_of(q), p.batch);
    c.expected = signal_dw(q, &xs, &dys, p.dtype);
    signal_round(&c.expected, sum_type(p.dtype));
    signal_free(&xs);
    signal_free(&dys);
    return c;
}

static void free_case(row_case *c)
{
    array_free(&c->x);
    array_free(&c->dy);
    signal_free(&c->expected);
}

/* As allocations are aligned, or badly. */
static void *place(danaus_device *dev, const array *a, int aligned)
{
    void *copy = NULL;
    size_t bytes = (size_t)a->count * danaus_dtype_size(a->dtype);
    if (!aligned)
        return to_device(dev, a);
    assert_ok(danaus_alloc(dev, bytes, &copy));
    assert_ok(danaus_upload(dev, copy, a->data, bytes));
    return copy;
}

static void take(danaus_device *dev, const array *a, void *copy, int aligned)
{
    if (aligned)
        danaus_free(dev, copy);
    else
        from_device(dev, a, copy);
}

static array run_row(
    danaus_device *dev, const kernel *k, const row_case *c, int aligned)
{
    ks_step step = dn_step(k, &c->p);
    array dw = array_make(sum_type(c->p.dtype), weights_of(c->p.pattern));
    void *x = place(dev, &c->x, aligned), *dy = place(dev, &c->dy, aligned);
    void *to = to_device(dev, &dw);
    weights_view view = dn_weights_view(to, dw.dtype, c->p.pattern);
    ks_gradient_operands o = {
        .batch = c->p.batch, .x = x, .dy = dy, .dw = &view, .dw_steps = &step
    };
    assert_ok(dev->backend->ks_gradient(dev, &step, &step, 1, &o));
    from_device(dev, &dw, to);
    take(dev, &c->x, x, aligned);
    take(dev, &c->dy, dy, aligned);
    return dw;
}

static void check_row(danaus_device *dev, const kernel *k, const row_case *c)
{
    danaus_pattern q = c->p.pattern;
    array dw = run_row(dev, k, c, 1), again = run_row(dev, k, c, 0);
    char what[160];
    snprintf(
        what, sizeof what,
        "%s: %" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 " %s batch %" PRId64,
        k->name, q.a, q.b, q.c, q.d, c->p.layout ? "last" : "first", c->p.batch);
    expect_signal(&dw, DANAUS_BATCH_LAST, &c->expected, what);
    if (memcmp(dw.data, again.data, (size_t)dw.count * danaus_dtype_size(dw.dtype)))
        fail_msg("%s: other bits where operands lie elsewhere", what);
    array_free(&dw);
    array_free(&again);
}

/* The rows of a problem, compiled together. */
static int rows_of_problem(danaus_device *dev, const problem *p, const kernel **rows)
{
    ks_step steps[MOST_ROWS];
    int count = 0, refused = 0;
    for (const kernel *k = dev->kernels; k->name && count < MOST_ROWS; k++)
        if (dn_fits(k, p)) {
            steps[count] = dn_step(k, p);
            rows[count++] = k;
        }
    if (count)
        assert_ok(dev->backend->prepare(dev, steps, count, &refused));
    return count;
}

static void ask(danaus_device *dev, rng *r, const problem *p)
{
    const kernel *rows[MOST_ROWS];
    int count = rows_of_problem(dev, p, rows);
    row_case c = make_case(r, *p);
    for (int i = 0; i < count; i++)
        check_row(dev, rows[i], &c);
    free_case(&c);
}

static int64_t often_small(rng *r, int64_t most)
{
    double u = rng_unit(r);
    return 1 + (int64_t)(u * u * (double)(most - 1) + 0.5);
}

static problem random_problem(rng *r, danaus_dtype dtype)
{
    static const int64_t lanes[] = { 1, 1, 2, 3, 4, 8, 16, 24 };
    problem p = { .operation = DN_WEIGHT_GRADIENT, .dtype = dtype };
    do {
        p.layout = (danaus_layout)rng_int(r, 0, 1);
        p.pattern = (danaus_pattern){ rng_int(r, 1, 3), often_small(r, 150),
                                      often_small(r, 150), lanes[rng_int(r, 0, 7)] };
        if (rng_int(r, 0, 1)) {
            p.pattern.b = (p.pattern.b + 15) / 16 * 16;
            p.pattern.c = (p.pattern.c + 15) / 16 * 16;
        }
        p.batch = often_small(r, 1200);
    } while (weights_of(p.pattern) * p.batch > MOST_WORK);
    return p;
}

static void every_row_is_right_on_random_shapes(void **state)
{
    int rounds = rounds_of(24);
    for (int t = 0; t < TEST_DTYPES; t++)
        for (int round = 0; round < rounds; round++) {
            rng r = { (uint64_t)round };
            problem p = random_problem(&r, test_dtypes[t]);
            ask(*state, &r, &p);
        }
}

/* Few numbers and many columns, and the other way round. */
static void every_row_is_right_with_many_slabs_and_with_few_columns(void **state)
{
    static const struct {
        danaus_pattern p;
        int64_t batch;
    } cases[] = { { { 1, 16, 16, 1 }, 9001 }, { { 1, 16, 16, 2 }, 5003 },
                  { { 1, 64, 64, 1 }, 1 },    { { 2, 64, 128, 4 }, 3 },
                  { { 1, 8, 64, 16 }, 63 },   { { 1, 1, 1, 1 }, 2000 } };
    for (int t = 0; t < TEST_DTYPES; t++)
        for (int i = 0; i < 12; i += share_of_cases() < 4 ? 1 : 3) {
            rng r = { (uint64_t)i };
            problem p = { .operation = DN_WEIGHT_GRADIENT,
                          .pattern = cases[i / 2].p,
                          .dtype = test_dtypes[t],
                          .layout = (danaus_layout)(i % 2),
                          .batch = cases[i / 2].batch };
            ask(*state, &r, &p);
        }
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    if (device->backend->on_host) { /* rows of products make weight gradients there */
        print_message("%s has no rows for weight gradients\n", device->name);
        danaus_device_close(device);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(every_row_is_right_on_random_shapes, device),
        cmocka_unit_test_prestate(
            every_row_is_right_with_many_slabs_and_with_few_columns, device),
    };
    int failed = cmocka_run_group_tests_name("dw", tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
