/* The texts for tensor cores from compute capability 8.0 on, executed by threads of the
   processor (emulator/warps.h), against the oracle: every row, odd and even sizes, both
   layouts, operands that are and are not aligned, bias, activations, residuals; and, of rows
   that can, x and y in orders of rows, and gates. */
// SPDX-License-Identifier: Apache-2.0
#include "emulator/run_row.h"
#include "support/chains.h"
#include "support/row_orders.h"

#include <inttypes.h>

/* Products of a case: threads of a processor make 10 to 20 million a second. */
#define MOST_PRODUCTS 1000000
#define CLUSTER       4    /* of the sizes of ks_wgmma.cu */
#define MOST_ROWS     1000 /* of the table: numbers of cases with orders begin there */

/* With dn_orders. */
static problem random_problem(rng *r, const kernel *k, int orders)
{
    problem p = { .dtype = k->dtype, .batch = rng_int(r, 1, 150), .orders = orders };
    int64_t unit = rng_next(r) % 2 ? 8 : 1;
    p.math = strstr(k->name, "tf32") ? DANAUS_MATH_TF32 : DANAUS_MATH_F32;
    do {
        p.layout = rng_next(r) % 2 ? DANAUS_BATCH_LAST : DANAUS_BATCH_FIRST;
        p.pattern =
            (danaus_pattern){ rng_int(r, 1, 3), rng_int(r, 8 / unit, 160 / unit),
                              rng_int(r, 8 / unit, 160 / unit), 1 };
        p.pattern.b = rng_next(r) % 4 ? p.pattern.b * unit : rng_int(r, 1, 7);
        p.pattern.c *= unit;
        p.pattern.d =
            unit == 8 ? rng_int(r, 1, 3) << rng_int(r, 0, 4) : rng_int(r, 1, 70);
    } while (!dn_fits(k, &p) || weights_of(p.pattern) * p.batch > MOST_PRODUCTS);
    p.batch = rng_next(r) % 8 ? (p.batch + unit - 1) / unit * unit : 1;
    return p;
}

static int joins(const kernel *k) { return strstr(k->name, "joined") != NULL; }

/* Blocks that a row joins, whose lines may be odd. */
static problem narrow_problem(rng *r, const kernel *k, int gated)
{
    problem p = { .dtype = k->dtype, .batch = rng_int(r, 1, 150), .gated = gated };
    do
        p.pattern =
            (danaus_pattern){ (1 + gated) * rng_int(r, 1, 24), rng_int(r, 1, 40),
                              rng_int(r, 1, 40), rng_int(r, 1, 3) };
    while (!dn_fits(k, &p) || weights_of(p.pattern) * p.batch > MOST_PRODUCTS);
    return p;
}

static void run(
    const kernel *k, const problem *p, const array *w, ks_operands o, int number)
{
    void *packed = dn_alloc(dn_packed_bytes(k, p));
    const void *all[] = { packed };
    assert_non_null(packed);
    k->family->pack(k, p, dn_weights_view(w->data, p->dtype, p->pattern), packed);
    o.batch = p->batch;
    o.packed = all;
    run_text(k, p, &o, number);
    dn_free(packed);
}

static void check(const kernel *k, int orders, int number)
{
    rng r = { (uint64_t)number };
    problem p = joins(k) ? narrow_problem(&r, k, 0) : random_problem(&r, k, orders);
    row_orders order = random_row_orders(&r, &p);
    danaus_pattern q = p.pattern;
    danaus_activation activation = random_activation(&r, k->dtype);
    int has_bias = (int)(rng_next(&r) % 2);
    array w = array_random(&r, k->dtype, weights_of(q));
    array x = array_random(&r, k->dtype, order.x_rows * p.batch);
    array y = array_make(k->dtype, order.y_rows * p.batch), before = y;
    array bias = array_random(&r, DANAUS_F32, rows_of(q));
    array residual = array_random(&r, k->dtype, y.count);
    int adds = (int)rng_int(&r, 0, 2), aligned = number % 2; /* 2: in place */
    if (adds == 2)
        memcpy(y.data, residual.data, (size_t)y.count * danaus_dtype_size(y.dtype));
    before.data = aligned_copy(&y);
    void *places[] = { aligned_copy(&x), aligned_copy(&y), aligned_copy(&bias),
                       aligned_copy(&residual) };
    void *to = aligned ? places[1] : y.data;
    void *more = aligned && number % 3 ? places[3] : residual.data;
    const ks_operands o = { .x = aligned ? places[0] : x.data,
                            .bias = has_bias ? places[2] : NULL,
                            .y = to,
                            .activation = activation,
                            .x_order = places_of(&order.x),
                            .y_order = places_of(&order.y),
                            .residual = adds == 0   ? NULL
                                        : adds == 1 ? more
                                                    : to };
    run(k, &p, &w, o, number);
    if (aligned)
        memcpy(y.data, places[1], (size_t)y.count * danaus_dtype_size(y.dtype));
    array seen = rows_in_order(&p, &x, order.x_rows, &order.x);
    array added = rows_in_order(&p, &residual, order.y_rows, &order.y);
    signal xs = signal_read(&seen, p.layout, cols_of(q), p.batch);
    signal ys = signal_times(q, &w, 0, &xs, k->dtype);
    if (p.math == DANAUS_MATH_TF32) /* which rounds both operands to 11 bits */
        for (int64_t s = 0; s < ys.size * ys.batch; s++)
            ys.e[s] += 0x1.01p-10 * ys.m[s];
    if (has_bias)
        signal_add_bias(&ys, &bias, k->dtype);
    if (activation)
        signal_round(&ys, k->dtype);
    signal_activate(&ys, activation, k->dtype);
    if (adds) {
        signal_round(&ys, k->dtype);
        signal_add_residual(&ys, &added, p.layout, k->dtype);
    }
    signal_round(&ys, k->dtype);
    array made = rows_written(&order, &y, &before, &ys);
    char what[200];
    snprintf(
        what, sizeof what,
        "%s, case %d: %" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64
        " layout %d batch %" PRId64 " bias %d activation %d residual %d orders %d",
        k->name, number, q.a, q.b, q.c, q.d, (int)p.layout, p.batch, has_bias,
        (int)activation, adds, orders);
    expect_signal(&made, p.layout, &ys, what);
    signal_free(&xs);
    signal_free(&ys);
    array_free(&w);
    array_free(&x);
    array_free(&y);
    array_free(&bias);
    array_free(&residual);
    array_free(&seen);
    array_free(&added);
    array_free(&made);
    row_orders_free(&order);
    dn_free(before.data);
    for (int i = 0; i < 4; i++)
        dn_free(places[i]);
}

static problem random_gated_problem(rng *r, const kernel *k)
{
    problem p;
    do {
        p = random_problem(r, k, 0);
        p.pattern.a += p.pattern.a % 2;
        p.gated = 1;
    } while (!dn_fits(k, &p));
    return p;
}

static void check_gated(const kernel *k, int number)
{
    rng r = { (uint64_t)number };
    problem p = joins(k) ? narrow_problem(&r, k, 1) : random_gated_problem(&r, k);
    danaus_pattern q = p.pattern;
    danaus_activation activation = random_activation(&r, k->dtype);
    int has_bias = (int)(rng_next(&r) % 2);
    array w = array_random(&r, k->dtype, weights_of(q));
    array x = array_random(&r, k->dtype, cols_of(q) * p.batch);
    array y = array_make(k->dtype, rows_of(q) / 2 * p.batch);
    array bias = array_random(&r, DANAUS_F32, rows_of(q));
    run(k, &p, &w,
        (ks_operands){ .x = x.data,
                       .bias = has_bias ? bias.data : NULL,
                       .y = y.data,
                       .activation = activation },
        number);
    signal xs = signal_read(&x, p.layout, cols_of(q), p.batch);
    signal zs = signal_times(q, &w, 0, &xs, k->dtype);
    if (has_bias)
        signal_add_bias(&zs, &bias, k->dtype);
    signal ys = signal_gate(&zs, activation, k->dtype);
    char what[200];
    snprintf(
        what, sizeof what,
        "%s gated, case %d: %" PRId64 ",%" PRId64 ",%" PRId64 " batch %" PRId64
        " bias %d activation %d",
        k->name, number, q.a, q.b, q.c, p.batch, has_bias, (int)activation);
    expect_signal(&y, p.layout, &ys, what);
    signal_free(&xs);
    signal_free(&zs);
    signal_free(&ys);
    array_free(&w);
    array_free(&x);
    array_free(&y);
    array_free(&bias);
}

/* True if the emulator runs the row. It runs rows for 9.0 of one block: in 16 bits, or in f32
   and tf32 with lanes. */
static int is_emulated(const kernel *k)
{
    const char *file = dn_gpu_family(k)->text;
    if (k->family->operation != DN_PRODUCT)
        return 0;
    return !strncmp(file, "ks_mma", 6) || !strcmp(file, "ks_split.cu") ||
           (!strcmp(file, "ks_wgmma.cu") && k->dtype != DANAUS_F32 &&
            dn_gpu_size(k)[CLUSTER] == 1) ||
           !strcmp(k->name, "ks.wgmma_lanes.f32.1x1") ||
           !strcmp(k->name, "ks.wgmma_lanes.tf32.1x1");
}

static void every_row_is_right_on_random_shapes(void **state)
{
    (void)state;
    int number = 0;
    for (const kernel *k = dn_gpu_kernels; k->name; k++)
        if (is_emulated(k) && number++ % warp_share() == 0)
            check(k, 0, number - 1);
    assert_true(number > 0);
}

/* Several cases of a row: one sees few of the ways to join. */
static void narrow_blocks_are_joined(void **state)
{
    (void)state;
    int number = 0;
    for (const kernel *k = dn_gpu_kernels; k->name; k++)
        for (int round = 0; round < 6; round++)
            if (is_emulated(k) && joins(k) && number++ % warp_share() == 0)
                check(k, 0, 3 * MOST_ROWS + number);
    assert_true(number > 0);
}

/* Read, written, both: rows take turns, and so do sizes that are odd. */
static void rows_read_and_write_in_orders(void **state)
{
    (void)state;
    int number = 0;
    for (const kernel *k = dn_gpu_kernels; k->name; k++)
        if (is_emulated(k) && does_orders(k) && number++ % warp_share() == 0)
            for (int form = 0; form < 2; form++)
                check(
                    k, 1 + (number + form) % (DN_READS | DN_WRITES),
                    MOST_ROWS + 2 * number + form);
    assert_true(number > 0);
}

static int can_gate(const kernel *k)
{
    const problem p = { .dtype = k->dtype,
                        .pattern = { 8, 16, 16, 1 },
                        .layout = DANAUS_BATCH_FIRST,
                        .batch = 100,
                        .gated = 1 };
    return dn_fits(k, &p);
}

/* Several cases of a row: few make what is gated. */
static void rows_make_what_is_gated(void **state)
{
    (void)state;
    int number = 0;
    for (const kernel *k = dn_gpu_kernels; k->name; k++)
        for (int round = 0; round < 4; round++)
            if (is_emulated(k) && can_gate(k) && number++ % warp_share() == 0)
                check_gated(k, 2 * MOST_ROWS + number);
    assert_true(number > 0);
}

int main(void)
{
    if (!has_compiler())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_right_on_random_shapes),
        cmocka_unit_test(narrow_blocks_are_joined),
        cmocka_unit_test(rows_read_and_write_in_orders),
        cmocka_unit_test(rows_make_what_is_gated),
    };
    return cmocka_run_group_tests_name("mma", tests, make_folder, remove_folder);
}
