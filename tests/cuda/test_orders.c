/* Rows that read x and write y in orders of rows, against the oracle of what is reordered by
   plain loops: permutations, choices, zeros and numbers that come twice. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "device/backend.h"
#include "support/device.h"
#include "support/life.h"
#include "support/row_orders.h"

#include "operator/operator_plan.h"
#include "product/ks_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ROWS  180 /* of a vector */
#define MOST_STEPS 256 /* of a table */

/* A product, its sizes odd or such that tensor cores have whole tiles of it. */
typedef struct question {
    rng r;
    const kernel *k;
    problem p;
} question;

static question ask(const kernel *k, uint64_t seed)
{
    question q = { .r = { seed }, .k = k };
    rng *r = &q.r;
    int64_t unit = rng_int(r, 0, 1) ? 8 : 1;
    q.p.dtype = k->dtype;
    q.p.math = strstr(k->name, "tf32") ? DANAUS_MATH_TF32 : DANAUS_MATH_F32;
    do {
        q.p.orders = (int)rng_int(r, 1, 3);
        q.p.layout = (danaus_layout)rng_int(r, 0, 1);
        q.p.pattern =
            (danaus_pattern){ rng_int(r, 1, 3), rng_int(r, 1, 20 / unit) * unit,
                              rng_int(r, 1, 20 / unit) * unit, rng_int(r, 1, 6) };
        q.p.batch = rng_int(r, 1, 40) * unit;
    } while (cols_of(q.p.pattern) > MOST_ROWS || rows_of(q.p.pattern) > MOST_ROWS ||
             !dn_fits(k, &q.p));
    return q;
}

static void *upload(danaus_device *dev, const array *order)
{
    size_t bytes = (size_t)order->count * sizeof(int64_t);
    void *to = NULL;
    assert_ok(danaus_alloc(dev, bytes, &to));
    assert_ok(danaus_upload(dev, to, order->data, bytes));
    return to;
}

static void run(
    danaus_device *dev, const question *q, const row_orders *order, const array *w,
    const array *x, array *y)
{
    ks_step step = dn_step(q->k, &q->p);
    void *packed = NULL;
    assert_ok(danaus_alloc(dev, dn_packed_bytes(q->k, &q->p), &packed));
    assert_ok(dn_pack(
        dev, &step, dn_weights_view(w->data, q->p.dtype, q->p.pattern), packed));
    const void *all[] = { packed };
    void *on[] = { to_device(dev, x), to_device(dev, y), upload(dev, &order->x),
                   upload(dev, &order->y) };
    ks_operands o = { .batch = q->p.batch,
                      .x = on[0],
                      .y = on[1],
                      .packed = all,
                      .x_order = on[2],
                      .y_order = on[3],
                      .x_rows = order->x_rows,
                      .y_rows = order->y_rows };
    assert_ok(dev->backend->ks_run(dev, &step, 1, &o));
    from_device(dev, x, on[0]);
    from_device(dev, y, on[1]);
    danaus_free(dev, on[2]);
    danaus_free(dev, on[3]);
    danaus_free(dev, packed);
}

static void check(danaus_device *dev, const question *asked)
{
    question q = *asked;
    danaus_pattern pattern = q.p.pattern;
    row_orders order = random_row_orders(&q.r, &q.p);
    array w = array_random(&q.r, q.p.dtype, weights_of(pattern));
    array x = array_random(&q.r, q.p.dtype, order.x_rows * q.p.batch);
    array y = array_make(q.p.dtype, order.y_rows * q.p.batch);
    array before = array_make(q.p.dtype, y.count);
    array seen = rows_in_order(&q.p, &x, order.x_rows, &order.x);
    signal xs = signal_read(&seen, q.p.layout, cols_of(pattern), q.p.batch);
    signal ys = signal_times(pattern, &w, 0, &xs, q.p.dtype);
    if (q.p.math == DANAUS_MATH_TF32) /* which rounds both operands to 11 bits */
        for (int64_t n = 0; n < ys.size * ys.batch; n++)
            ys.e[n] += 0x1.01p-10 * ys.m[n];
    signal_round(&ys, q.p.dtype);
    run(dev, &q, &order, &w, &x, &y);
    array made = rows_written(&order, &y, &before, &ys);
    char what[160];
    snprintf(
        what, sizeof what,
        "%s: %" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 " layout %d batch %" PRId64
        " orders %d",
        q.k->name, pattern.a, pattern.b, pattern.c, pattern.d, (int)q.p.layout,
        q.p.batch, q.p.orders);
    expect_signal(&made, q.p.layout, &ys, what);
    signal_free(&xs);
    signal_free(&ys);
    array_free(&w);
    array_free(&x);
    array_free(&y);
    array_free(&before);
    array_free(&seen);
    array_free(&made);
    row_orders_free(&order);
}

/* On an emulated GPU, where each question is compiled, to every seventh row. */
static void rows_do_orders(void **state)
{
    danaus_device *dev = *state;
    static question questions[MOST_STEPS];
    ks_step steps[MOST_STEPS];
    int turn = 0, count = 0, refused = 0, each = find_emulator() ? 7 : 1;
    for (const kernel *k = dev->kernels; k->name && count < MOST_STEPS; k++)
        if (does_orders(k) && turn++ % each == 0)
            questions[count++] = ask(k, (uint64_t)turn);
    for (int i = 0; i < count; i++)
        steps[i] = dn_step(questions[i].k, &questions[i].p);
    assert_true(count > 0);
    assert_ok(dev->backend->prepare(dev, steps, count, &refused));
    for (int i = 0; i < count; i++)
        check(dev, &questions[i]);
}

/* Transforms whose inputs, or outputs, come in an order launch what their chain does. */
static void an_order_is_no_launch_of_its_own(void **state)
{
    emulator_control *control = find_emulator();
    if (!control) {
        fprintf(stderr, "launches are counted by the emulated driver alone\n");
        skip();
    }
    for (int form = 0; form < 4; form++) {
        danaus_transform_desc kind = { .kind = form / 2 ? DANAUS_DCT3 : DANAUS_DCT2,
                                       .n = 16 };
        danaus_ks_desc desc = { .layout = (danaus_layout)(form % 2), .batch = 5 };
        danaus_operator *made = NULL;
        danaus_operator_plan *plan = NULL;
        array x = array_make(DANAUS_F64, 16 * 5);
        void *on_x = to_device(*state, &x), *on_y = to_device(*state, &x);
        assert_ok(danaus_operator_transform(&kind, &made));
        assert_ok(danaus_operator_plan_create(*state, made, &desc, &plan));
        assert_int_equal(plan->stage[0].orders, form / 2 ? DN_WRITES : DN_READS);
        long before = control->launches;
        assert_ok(danaus_operator_execute(plan, *state, 5, on_x, on_y));
        assert_int_equal(control->launches - before, plan->stage[0].plan->run.count);
        from_device(*state, &x, on_x);
        from_device(*state, &x, on_y);
        array_free(&x);
        danaus_operator_plan_destroy(plan);
        danaus_operator_destroy(made);
    }
}

/* This holds for every type and layout, whatever the pattern. */
static void every_type_has_a_row_that_does_orders(void **state)
{
    const danaus_device *dev = *state;
    for (int n = 0; n < 2 * TEST_DTYPES; n++) {
        problem p = { .pattern = { 3, 1, 5, 7 },
                      .dtype = test_dtypes[n / 2],
                      .layout = (danaus_layout)(n % 2),
                      .batch = 3,
                      .orders = DN_READS | DN_WRITES };
        const kernel *k = dev->kernels;
        while (k->name && !dn_fits(k, &p))
            k++;
        assert_non_null(k->name);
    }
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(rows_do_orders, device),
        cmocka_unit_test_prestate(an_order_is_no_launch_of_its_own, device),
        cmocka_unit_test_prestate(every_type_has_a_row_that_does_orders, device),
    };
    int failed = cmocka_run_group_tests_name("orders", tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
