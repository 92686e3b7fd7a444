/* Steps that follow each other, made by any two rows; gradients made by any two
   rows; and cuts that do not change a bit: threads, slabs, chunks, streaming. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "cpu/product/grid.h"
#include "cpu/product/rows.h"
#include "device/backend.h"
#include "support/chains.h"
#include "support/device.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_STEPS 4

/* Steps for a chain (the last factor runs first), packed; adjoint steps too. */
typedef struct run {
    int count;
    ks_step steps[MOST_STEPS], adjoint[MOST_STEPS];
    void *packed[MOST_STEPS], *packed_adjoint[MOST_STEPS];
} run;

static void *pack(danaus_device *dev, const ks_step *step, weights_view view)
{
    void *packed = NULL;
    assert_ok(danaus_alloc(dev, dn_packed_bytes(step->kernel, &step->p), &packed));
    step->kernel->family->pack(step->kernel, &step->p, view, packed);
    return packed;
}

/* rows[s] makes forward step s, rows[count + s] the adjoint of step s. */
static run run_make(
    danaus_device *dev, const random_chain *c, danaus_layout layout,
    const kernel *const *rows)
{
    run u = { .count = c->count };
    for (int s = 0; s < c->count; s++) {
        int l = c->count - 1 - s;
        danaus_pattern p = c->p[l], t = { p.a, p.c, p.b, p.d };
        weights_view view = dn_weights_view(c->w[l].data, c->dtype, p);
        problem q = { .pattern = p, .dtype = c->dtype, .layout = layout, .batch = 1 };
        u.steps[s] = dn_step(rows[s], &q);
        q.pattern = t;
        u.adjoint[s] = dn_step(rows[c->count + s], &q);
        u.packed[s] = pack(dev, &u.steps[s], view);
        u.packed_adjoint[s] = pack(dev, &u.adjoint[s], dn_weights_adjoint(view));
    }
    return u;
}

static void run_free(danaus_device *dev, run *u)
{
    for (int s = 0; s < u->count; s++) {
        danaus_free(dev, u->packed[s]);
        danaus_free(dev, u->packed_adjoint[s]);
    }
}

/* What follows a product; in_place: the residual, or NULL, is where y will be. */
typedef struct ending {
    danaus_activation activation;
    const array *residual;
    int in_place;
} ending;

static void run_to(
    danaus_device *dev, const run *u, int64_t batch, ending e, const array *x, void *y)
{
    const array *r = e.residual;
    if (r && e.in_place)
        memcpy(y, r->data, (size_t)r->count * danaus_dtype_size(r->dtype));
    ks_operands o = { .batch = batch,
                      .x = x->data,
                      .packed = (const void *const *)u->packed,
                      .y = y,
                      .activation = e.activation,
                      .residual = !r           ? NULL
                                  : e.in_place ? y
                                               : r->data };
    assert_ok(dev->backend->ks_run(dev, u->steps, u->count, &o));
}

/* The product, between guards. */
static array run_forward(
    danaus_device *dev, const run *u, const random_chain *c, int64_t batch, ending e,
    const array *x)
{
    array y = array_make(c->dtype, c->rows * batch);
    run_to(dev, u, batch, e, x, y.data);
    array_expect_guards(&y);
    return y;
}

/* The rows of a type, up to `most`, but those that round to 8 bits. */
static int rows_for(
    const danaus_device *dev, danaus_dtype dtype, const kernel **rows, int most)
{
    int count = 0;
    for (const kernel *k = dev->kernels; k->name && count < most; k++)
        if (k->dtype == dtype && !k->family->int8)
            rows[count++] = k;
    return count;
}

static void check_neighbours(
    rng *r, danaus_device *dev, danaus_dtype dtype, const kernel *const *rows,
    int count)
{
    danaus_pattern p[MOST_STEPS];
    random_patterns(r, count, 60, p);
    random_chain c = chain_random(r, p, count, dtype, 0);
    danaus_ks_desc desc = { .dtype = dtype };
    desc.layout = rng_next(r) % 2 ? DANAUS_BATCH_LAST : DANAUS_BATCH_FIRST;
    desc.activation = random_activation(r, dtype);
    int64_t batch = rng_next(r) % 4 ? rng_int(r, 1, 40) : rng_int(r, 1000, 2000);
    run u = run_make(dev, &c, desc.layout, rows);
    array x = array_random(r, dtype, c.cols * batch);
    array y =
        run_forward(dev, &u, &c, batch, (ending){ .activation = desc.activation }, &x);
    signal expected = multiply_exactly(&c, &desc, batch, &x);
    expect_signal(&y, desc.layout, &expected, name_of_case(&c, &desc, batch));
    signal_free(&expected);
    array_free(&x);
    array_free(&y);
    run_free(dev, &u);
    chain_free(&c);
}

static void any_two_rows_can_follow_each_other(void **state)
{
    danaus_device *dev = *state;
    for (int t = 0; t < TEST_DTYPES; t++) {
        const kernel *rows[32], *chosen[2 * MOST_STEPS];
        int count = rows_for(dev, test_dtypes[t], rows, 32);
        for (int pair = 0; pair < count * count; pair++)
            for (int round = 0; round < rounds_of(20); round++) {
                rng r = { (uint64_t)(pair * 1000 + round) };
                int steps = 2 + round % 3;
                for (int s = 0; s < 2 * steps; s++)
                    chosen[s] = rows[s % 2 ? pair / count : pair % count];
                check_neighbours(&r, dev, test_dtypes[t], chosen, steps);
            }
    }
}

/* Gradients of one factor through the backend. */
static void check_gradient_rows(
    rng *r, danaus_device *dev, danaus_dtype dtype, danaus_pattern p, int64_t batch,
    const kernel *const *rows)
{
    random_chain c = chain_random(r, &p, 1, dtype, 0);
    danaus_ks_desc desc = { .dtype = dtype };
    desc.layout = rng_next(r) % 2 ? DANAUS_BATCH_LAST : DANAUS_BATCH_FIRST;
    run u = run_make(dev, &c, desc.layout, rows);
    array x = array_random(r, dtype, c.cols * batch);
    array dy = array_random(r, dtype, c.rows * batch);
    array dx = array_make(dtype, c.cols * batch);
    array dw = array_make(sum_type(dtype), weights_of(p));
    array dbias = array_make(sum_type(dtype), c.rows);
    weights_view view = dn_weights_view(dw.data, sum_type(dtype), p);
    ks_gradient_operands o = {
        batch,
        x.data,
        dy.data,
        (const void *const *)u.packed,
        (const void *const *)u.packed_adjoint,
        dx.data,
        &view,
        NULL,
        dbias.data,
        0,
    };
    assert_ok(dev->backend->ks_gradient(dev, u.steps, u.adjoint, 1, &o));
    signal xs = signal_read(&x, desc.layout, c.cols, batch);
    signal dys = signal_read(&dy, desc.layout, c.rows, batch);
    signal sums[3] = { signal_times(p, &c.w[0], 1, &dys, dtype),
                       signal_dw(p, &xs, &dys, dtype), signal_dbias(&dys, dtype) };
    signal_round(&sums[0], dtype);
    expect_signal(&dx, desc.layout, &sums[0], name_of_case(&c, &desc, batch));
    expect_signal(&dw, DANAUS_BATCH_LAST, &sums[1], name_of_case(&c, &desc, batch));
    expect_signal(&dbias, DANAUS_BATCH_LAST, &sums[2], name_of_case(&c, &desc, batch));
    for (int i = 0; i < 3; i++)
        signal_free(&sums[i]);
    signal_free(&xs);
    signal_free(&dys);
    array *all[] = { &x, &dy, &dx, &dw, &dbias };
    for (int i = 0; i < 5; i++)
        array_free(all[i]);
    run_free(dev, &u);
    chain_free(&c);
}

static void any_two_rows_make_gradients(void **state)
{
    danaus_device *dev = *state;
    assert_ok(danaus_device_set_threads(dev, 1));
    for (int t = 0; t < TEST_DTYPES; t++) {
        const kernel *rows[32];
        int count = rows_for(dev, test_dtypes[t], rows, 32);
        for (int n = 0; n < 256 * 10; n += share_of_cases()) {
            rng r = { (uint64_t)n };
            int s = n % 256, pair = n % (count * count);
            danaus_pattern p = { s % 4 + 1, s / 4 % 4 + 1, s / 16 % 4 + 1, s / 64 + 1 };
            const kernel *chosen[] = { rows[pair / count], rows[pair % count] };
            check_gradient_rows(&r, dev, test_dtypes[t], p, n / 256 + 1, chosen);
        }
    }
    assert_ok(danaus_device_set_threads(dev, 0));
}

static void gradients_are_right_on_random_shapes(void **state)
{
    danaus_device *dev = *state;
    for (int t = 0; t < TEST_DTYPES; t++) {
        const kernel *rows[32];
        int count = rows_for(dev, test_dtypes[t], rows, 32);
        for (int round = 0; round < rounds_of(40); round++) {
            rng r = { (uint64_t)round };
            danaus_pattern p;
            int64_t batch;
            do {
                p = (danaus_pattern){ rng_int(&r, 1, 4), rng_int(&r, 1, 90),
                                      rng_int(&r, 1, 90), rng_int(&r, 1, 30) };
                batch = rng_int(&r, 1, 300);
            } while (weights_of(p) * batch > 400000);
            const kernel *chosen[] = { rows[round % count], rows[round / 2 % count] };
            check_gradient_rows(&r, dev, test_dtypes[t], p, batch, chosen);
        }
    }
}

/* The same product, and sum with a residual, with other cache sizes, traits and numbers of
   threads: the cuts fall elsewhere and stores may pass the cache. */
static void check_cuts(
    rng *r, danaus_device *dev, danaus_dtype dtype, int steps, const danaus_pattern *p,
    const kernel *const *chosen)
{
    random_chain c = chain_random(r, p, steps, dtype, 0);
    danaus_layout layout = rng_next(r) % 2 ? DANAUS_BATCH_LAST : DANAUS_BATCH_FIRST;
    int64_t batch = 16 * rng_int(r, 1, 60);
    size_t bytes = (size_t)(c.rows * batch) * danaus_dtype_size(dtype);
    run u = run_make(dev, &c, layout, chosen);
    array x = array_random(r, dtype, c.cols * batch);
    array added = array_random(r, dtype, c.rows * batch);
    ending e = { random_activation(r, dtype), rng_next(r) % 2 ? &added : NULL,
                 (int)(rng_next(r) % 2) };
    array y = run_forward(dev, &u, &c, batch, e, &x);
    cpu_device *cpu = (cpu_device *)dev;
    size_t l2 = cpu->l2, l3 = cpu->l3;
    cpu_traits traits = cpu->traits;
    void *line = NULL;
    assert_ok(danaus_alloc(dev, bytes, &line));
    for (int threads = 1; threads <= 7; threads += 3) {
        cpu->l2 = (size_t)rng_int(r, 4, 256) << 10;
        cpu->l3 = 1024;
        cpu_traits others = traits;
        others.gather_columns = 2 * (int)rng_int(r, 1, 12);
        others.gather_tiles = (int)rng_int(r, 1, 12);
        others.weights_first = threads == 4 || rng_next(r) % 2;
        others.fetch_lines = rng_next(r) % 2;
        others.far_cache = 0.3 * (double)(rng_next(r) % 2);
        others.fetch_near = rng_next(r) % 2;
        others.fetch_far = rng_next(r) % 2;
        others.in_pieces = rng_next(r) % 2;
        others.in_place = (int[]){ 0, 4096, ANY_IN_PLACE }[rng_next(r) % 3];
        cpu->traits = others;
        memset(line, 0xff, bytes);
        assert_ok(danaus_device_set_threads(dev, threads));
        run_to(dev, &u, batch, e, &x, line);
        assert_memory_equal(line, y.data, bytes);
    }
    cpu->traits = traits;
    cpu->l2 = l2;
    cpu->l3 = l3;
    assert_ok(danaus_device_set_threads(dev, 0));
    danaus_free(dev, line);
    array_free(&added);
    array_free(&x);
    array_free(&y);
    run_free(dev, &u);
    chain_free(&c);
}

static void cuts_do_not_change_a_bit(void **state)
{
    for (int t = 0; t < TEST_DTYPES; t++)
        for (int round = 0; round < rounds_of(40); round++) {
            rng r = { (uint64_t)round };
            const kernel *rows[32], *chosen[2 * MOST_STEPS];
            int count = rows_for(*state, test_dtypes[t], rows, 32);
            int steps = 1 + round % MOST_STEPS;
            for (int s = 0; s < 2 * steps; s++)
                chosen[s] = rows[rng_int(&r, 0, count - 1)];
            danaus_pattern p[MOST_STEPS];
            random_patterns(&r, steps, 100, p);
            check_cuts(&r, *state, test_dtypes[t], steps, p, chosen);
        }
}

/* Groups of lanes, made one by one or some at a time, and large blocks of some lanes. */
static void cuts_of_lanes_do_not_change_a_bit(void **state)
{
    danaus_device *dev = *state;
    for (const kernel *k = dev->kernels; k->name; k++)
        for (int round = 0; round < rounds_of(8); round++) {
            rng r = { (uint64_t)round };
            const cpu_code *code = k->code;
            const kernel *chosen[] = { k, k };
            danaus_pattern p = { rng_int(&r, 1, 2), rng_int(&r, 3, 60),
                                 rng_int(&r, 1, round % 2 ? 20 : 200),
                                 code->vector * rng_int(&r, 1, 4) };
            check_cuts(&r, dev, k->dtype, 1, &p, chosen);
        }
}

/* y[r] = fma(w[r][c - 1], x[c - 1], ... fma(w[r][0], x[0], 0)) for one block. */
static array fused(
    const random_chain *c, danaus_layout layout, int64_t n, const array *x)
{
    danaus_pattern p = c->p[0];
    array y = array_make(c->dtype, c->rows * n);
    int last = layout == DANAUS_BATCH_LAST;
    for (int64_t row = 0; row < c->rows; row++)
        for (int64_t s = 0; s < n; s++) {
            int64_t i = row / (p.b * p.d), r = row / p.d % p.b, j = row % p.d;
            value sum = { 0 };
            for (int64_t k = 0; k < p.c; k++) {
                int64_t col = (i * p.c + k) * p.d + j;
                double w =
                    element_get(
                        c->dtype, c->w[0].data, (i * p.b + r) * p.c * p.d + k * p.d + j)
                        .re;
                double xk =
                    element_get(
                        c->dtype, x->data, last ? col * n + s : s * c->cols + col)
                        .re;
                sum.re = c->dtype == DANAUS_F32
                             ? fmaf((float)w, (float)xk, (float)sum.re)
                             : fma(w, xk, sum.re);
            }
            element_put(c->dtype, y.data, last ? row * n + s : s * c->rows + row, sum);
        }
    return y;
}

/* Thin products with few lanes have several sums for each output. */
static int is_folded(const kernel *k, danaus_pattern p)
{
    const cpu_code *code = k->code;
    return code->thin && dn_thin_map(p, code, 0).fold;
}

/* Whatever compilers make of a product and a sum: narrow tiles and vectors, all columns
   and a few. Plain C has no such operation. */
static void products_are_sums_of_fused_multiply_adds(void **state)
{
    danaus_device *dev = *state;
    if (!strcmp(((cpu_device *)dev)->isa, "scalar"))
        skip();
    for (const kernel *k = dev->kernels; k->name; k++)
        for (int round = 0; round < rounds_of(400); round++) {
            rng r = { (uint64_t)round };
            int64_t n = rng_int(&r, 1, 26);
            danaus_layout layout = round % 4 ? DANAUS_BATCH_LAST : DANAUS_BATCH_FIRST;
            danaus_pattern p = { rng_int(&r, 1, 2),
                                 round % 2 ? 8 * rng_int(&r, 1, 5) : rng_int(&r, 1, 30),
                                 rng_int(&r, 1, 40), rng_int(&r, 1, 5) };
            if ((k->dtype != DANAUS_F32 && k->dtype != DANAUS_F64) || k->family->int8 ||
                is_folded(k, p))
                continue;
            const kernel *rows[] = { k, k };
            random_chain c = chain_random(&r, &p, 1, k->dtype, 0);
            array x = array_random(&r, k->dtype, c.cols * n);
            run u = run_make(dev, &c, layout, rows);
            array y = run_forward(dev, &u, &c, n, (ending){ 0 }, &x);
            array exact = fused(&c, layout, n, &x);
            if (!array_same(&y, &exact))
                fail_msg(
                    "%s, (%d,%d,%d,%d), %d columns, round %d", k->name, (int)p.a,
                    (int)p.b, (int)p.c, (int)p.d, (int)n, round);
            array_free(&exact);
            array_free(&y);
            array_free(&x);
            run_free(dev, &u);
            chain_free(&c);
        }
}

/* The kernel of least estimate. */
static const kernel *estimated(danaus_device *dev, danaus_pattern p)
{
    problem q = { .pattern = p, .dtype = DANAUS_F32, .batch = 196 };
    const kernel *best = NULL;
    for (const kernel *k = dev->kernels; k->name; k++)
        if (dn_fits(k, &q) && (!best || dn_cost(dev, k, &q) < dn_cost(dev, best, &q)))
            best = k;
    return best;
}

/* Batch-first: few rows or columns k with lanes, and single rows; not what fills tiles, nor
   many small blocks. */
static void thin_products_are_chosen_for_few_rows_or_columns(void **state)
{
    static const danaus_pattern thin[] = {
        { 5, 1, 62, 56 },  { 2, 372, 1, 51 }, { 62, 2, 1, 60 }, { 1, 251, 2, 30 },
        { 1, 1, 130, 27 }, { 1, 1, 40, 1 },   { 1, 1, 110, 1 }, { 2, 1, 270, 2 },
    };
    static const danaus_pattern other[] = {
        { 1, 192, 192, 1 },
        { 83, 2, 1, 1 },
        { 45, 11, 8, 1 },
        { 44, 18, 16, 1 },
    };
    danaus_device *dev = *state;
    for (size_t i = 0; i < sizeof thin / sizeof *thin; i++)
        assert_string_equal(estimated(dev, thin[i])->name, "ks.thin.f32");
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        assert_string_not_equal(estimated(dev, other[i])->name, "ks.thin.f32");
}

/* Scratch is made for a slab's columns; the last slab has fewer. */
static void scratch_for_many_columns_is_enough_for_fewer(void **state)
{
    danaus_device *dev = *state;
    for (const kernel *k = dev->kernels; k->name; k++)
        for (int round = 0; round < rounds_of(20); round++) {
            rng r = { (uint64_t)round };
            danaus_pattern p = { rng_int(&r, 1, 4), rng_int(&r, 1, 90),
                                 rng_int(&r, 1, 90), rng_int(&r, 1, 70) };
            danaus_layout layout = round % 2 ? DANAUS_BATCH_LAST : DANAUS_BATCH_FIRST;
            problem q = { .pattern = p, .dtype = k->dtype, .layout = layout };
            ks_step step = dn_step(k, &q);
            cpu_view view = { .dtype = k->dtype, .layout = layout };
            size_t most = 0;
            for (int64_t n = 1; n < 600; n++) {
                cpu_shape s;
                dn_shape((cpu_device *)dev, &step, &view, &view, n, &s);
                assert_true(s.x_bytes + s.y_bytes >= most);
                most = s.x_bytes + s.y_bytes;
            }
        }
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(any_two_rows_can_follow_each_other, device),
        cmocka_unit_test_prestate(any_two_rows_make_gradients, device),
        cmocka_unit_test_prestate(gradients_are_right_on_random_shapes, device),
        cmocka_unit_test_prestate(cuts_do_not_change_a_bit, device),
        cmocka_unit_test_prestate(cuts_of_lanes_do_not_change_a_bit, device),
        cmocka_unit_test_prestate(products_are_sums_of_fused_multiply_adds, device),
        cmocka_unit_test_prestate(scratch_for_many_columns_is_enough_for_fewer, device),
        cmocka_unit_test_prestate(
            thin_products_are_chosen_for_few_rows_or_columns, device),
    };
    int failed = cmocka_run_group_tests_name("steps", tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
