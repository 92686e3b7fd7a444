/* Rows that read x and write y in orders of rows, against the oracle of what is reordered by
   plain loops: permutations, choices, zeros and numbers that come twice. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "backend/backend.h"
#include "support/device.h"
#include "support/life.h"

#include "ks/ks_plan.h"
#include "transforms/operator_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ROWS  90  /* of a vector */
#define MOST_STEPS 256 /* of a table */

/* A product whose x has x_rows rows and whose y has y_rows. */
typedef struct question {
    rng r;
    const kernel *k;
    problem p;
    int64_t cols, rows, x_rows, y_rows;
    int64_t x_order[MOST_ROWS], y_order[MOST_ROWS];
} question;

/* The places of `count` numbers among others, each but once, or none. */
static void put_apart(rng *r, int64_t count, int64_t places, int64_t *order)
{
    int64_t at[2 * MOST_ROWS];
    for (int64_t i = 0; i < places; i++)
        at[i] = i;
    for (int64_t i = 0; i < count; i++) {
        int64_t other = rng_int(r, i, places - 1), chosen = at[other];
        at[other] = at[i];
        order[i] = rng_int(r, 0, 5) ? chosen : -1;
    }
}

static question ask(const kernel *k, uint64_t seed)
{
    question q = { .r = { seed }, .k = k };
    rng *r = &q.r;
    q.p.dtype = k->dtype;
    do {
        q.p.orders = (int)rng_int(r, 1, 3);
        q.p.layout = (danaus_layout)rng_int(r, 0, 1);
        q.p.pattern = (danaus_pattern){ rng_int(r, 1, 3), rng_int(r, 1, 20),
                                        rng_int(r, 1, 20), rng_int(r, 1, 6) };
        q.p.batch = rng_int(r, 1, 40);
        q.cols = cols_of(q.p.pattern);
        q.rows = rows_of(q.p.pattern);
    } while (q.cols > MOST_ROWS || q.rows > MOST_ROWS || !dn_fits(k, &q.p));
    q.x_rows = q.p.orders & DN_READS ? rng_int(r, 1, MOST_ROWS) : q.cols;
    q.y_rows = q.p.orders & DN_WRITES ? rng_int(r, q.rows, 2 * MOST_ROWS) : q.rows;
    for (int64_t c = 0; c < q.cols; c++)
        q.x_order[c] = q.p.orders & DN_READS ? rng_int(r, -1, q.x_rows - 1) : c;
    put_apart(r, q.rows, q.y_rows, q.y_order);
    for (int64_t n = 0; n < q.rows && !(q.p.orders & DN_WRITES); n++)
        q.y_order[n] = n;
    return q;
}

static int64_t place(const question *q, int64_t rows, int64_t row, int64_t s)
{
    return q->p.layout == DANAUS_BATCH_LAST ? row * q->p.batch + s : s * rows + row;
}

/* x as the product sees it. */
static array in_order(const question *q, const array *x)
{
    array seen = array_make(x->dtype, q->cols * q->p.batch);
    for (int64_t c = 0; c < q->cols; c++)
        for (int64_t s = 0; s < q->p.batch; s++) {
            value v = { 0 };
            if (q->x_order[c] >= 0)
                v = element_get(
                    x->dtype, x->data, place(q, q->x_rows, q->x_order[c], s));
            element_put(seen.dtype, seen.data, place(q, q->cols, c, s), v);
        }
    return seen;
}

/* Moves what was written from y to where it would be without an order; what was left out is
   0, there and in what is expected. */
static array out_of_order(const question *q, array *y, signal *expected)
{
    array all = array_make(y->dtype, q->rows * q->p.batch);
    size_t size = danaus_dtype_size(y->dtype);
    array nan = array_make(y->dtype, 1);
    for (int64_t n = 0; n < q->rows; n++)
        for (int64_t s = 0; s < q->p.batch; s++) {
            int64_t to = place(q, q->rows, n, s), at = n * q->p.batch + s;
            if (q->y_order[n] < 0) {
                expected->v[at] = (value){ 0 };
                element_put(all.dtype, all.data, to, expected->v[at]);
                continue;
            }
            char *from =
                (char *)y->data + (size_t)place(q, q->y_rows, q->y_order[n], s) * size;
            memcpy((char *)all.data + (size_t)to * size, from, size);
            memcpy(from, nan.data, size);
        }
    assert_true(array_untouched(y));
    array_free(&nan);
    return all;
}

static void *upload(danaus_device *dev, const int64_t *order, int64_t count)
{
    void *to = NULL;
    assert_ok(danaus_alloc(dev, (size_t)count * sizeof *order, &to));
    assert_ok(danaus_upload(dev, to, order, (size_t)count * sizeof *order));
    return to;
}

static array run(danaus_device *dev, const question *q, const array *w, const array *x)
{
    ks_step step = dn_step(q->k, &q->p);
    void *packed = NULL;
    assert_ok(danaus_alloc(dev, dn_packed_bytes(q->k, &q->p), &packed));
    assert_ok(dn_pack(
        dev, &step, dn_weights_view(w->data, q->p.dtype, q->p.pattern), packed));
    array y = array_make(q->p.dtype, q->y_rows * q->p.batch);
    const void *all[] = { packed };
    void *on[] = { to_device(dev, x), to_device(dev, &y),
                   upload(dev, q->x_order, q->cols), upload(dev, q->y_order, q->rows) };
    ks_operands o = { .batch = q->p.batch,
                      .x = on[0],
                      .y = on[1],
                      .packed = all,
                      .x_order = on[2],
                      .y_order = on[3],
                      .x_rows = q->x_rows,
                      .y_rows = q->y_rows };
    assert_ok(dev->backend->ks_run(dev, &step, 1, &o));
    from_device(dev, x, on[0]);
    from_device(dev, &y, on[1]);
    danaus_free(dev, on[2]);
    danaus_free(dev, on[3]);
    danaus_free(dev, packed);
    return y;
}

static void check(danaus_device *dev, const question *asked)
{
    question q = *asked;
    array w = array_random(&q.r, q.p.dtype, weights_of(q.p.pattern));
    array x = array_random(&q.r, q.p.dtype, q.x_rows * q.p.batch);
    array seen = in_order(&q, &x);
    signal xs = signal_read(&seen, q.p.layout, q.cols, q.p.batch);
    signal ys = signal_times(q.p.pattern, &w, 0, &xs, q.p.dtype);
    signal_round(&ys, q.p.dtype);
    array y = run(dev, &q, &w, &x), made = out_of_order(&q, &y, &ys);
    char what[160];
    snprintf(
        what, sizeof what,
        "%s: %" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 " layout %d batch %" PRId64
        " orders %d",
        q.k->name, q.p.pattern.a, q.p.pattern.b, q.p.pattern.c, q.p.pattern.d,
        (int)q.p.layout, q.p.batch, q.p.orders);
    expect_signal(&made, q.p.layout, &ys, what);
    signal_free(&xs);
    signal_free(&ys);
    array_free(&w);
    array_free(&x);
    array_free(&y);
    array_free(&seen);
    array_free(&made);
}

/* On an emulated GPU, where each question is compiled, to every seventh row. */
static void rows_do_orders(void **state)
{
    danaus_device *dev = *state;
    static question questions[MOST_STEPS];
    ks_step steps[MOST_STEPS];
    int turn = 0, count = 0, refused = 0, each = find_emulator() ? 7 : 1;
    for (const kernel *k = dev->kernels; k->name && count < MOST_STEPS; k++)
        if (k->family->orders && turn++ % each == 0)
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

/* Of every type and layout, whatever the pattern. */
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
