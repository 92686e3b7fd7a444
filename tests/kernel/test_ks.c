/* Every row of a device's kernel table against the oracle: exhaustively on small
   shapes, at the edges of tiles, and on random shapes; forward and adjoint, both
   layouts, with and without bias, activations and residuals. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "cpu/product/rows.h"
#include "device/backend.h"
#include "gpu/gpu.h"
#include "support/chains.h"
#include "support/device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT_ONCE   1000     /* questions */
#define MOST_ROWS 256      /* of a table */
#define MOST_WORK 20000000 /* multiplications of a question at a tile's edges */

typedef struct question {
    rng r; /* of its numbers */
    danaus_pattern p;
    danaus_dtype dtype;
    danaus_layout layout;
    int64_t batch;
    int adjoint, bias, residual; /* 0: none, 1: apart from y, 2: y itself */
    danaus_activation activation;
    const kernel *rows[MOST_ROWS]; /* that it is put to; ends with NULL */
} question;

/* Questions that wait: what their rows need is compiled at once. */
typedef struct question_list {
    danaus_device *device;
    question *waiting;
    int count;
} question_list;

static ks_step step_for(const question *q, const kernel *k)
{
    problem p = { .pattern = q->p,
                  .dtype = q->dtype,
                  .layout = q->layout,
                  .batch = q->batch,
                  .activation = (int)q->activation,
                  .residual = q->residual > 0 };
    if (q->adjoint)
        p.pattern = (danaus_pattern){ q->p.a, q->p.c, q->p.b, q->p.d };
    ks_step step = dn_step(k, &p);
    return step;
}

/* One product by one row. The bias of a step is in the type of sums. */
static void check_row(
    danaus_device *dev, const kernel *k, const question *q, const array *w,
    const array *x, const array *bias, const array *residual, const signal *expected)
{
    weights_view view = dn_weights_view(w->data, q->dtype, q->p);
    ks_step step = step_for(q, k);
    if (q->adjoint)
        view = dn_weights_adjoint(view);
    void *packed = NULL;
    assert_ok(danaus_alloc(dev, dn_packed_bytes(k, &step.p), &packed));
    assert_ok(dn_pack(dev, &step, view, packed));
    array y = array_make(q->dtype, expected->size * q->batch);
    if (q->residual == 2)
        memcpy(y.data, residual->data, (size_t)y.count * danaus_dtype_size(y.dtype));
    const void *all[] = { packed };
    void *on[] = { to_device(dev, x), bias_to_device(dev, bias), to_device(dev, &y),
                   to_device(dev, residual) };
    ks_operands o = { .batch = q->batch,
                      .x = on[0],
                      .packed = all,
                      .bias = q->bias ? on[1] : NULL,
                      .y = on[2],
                      .activation = q->activation,
                      .residual = q->residual == 0   ? NULL
                                  : q->residual == 1 ? on[3]
                                                     : on[2] };
    assert_ok(dev->backend->ks_run(dev, &step, 1, &o));
    from_device(dev, x, on[0]);
    bias_from_device(dev, bias, on[1]);
    from_device(dev, &y, on[2]);
    from_device(dev, residual, on[3]);
    char what[160];
    snprintf(
        what, sizeof what,
        "%s on %s: %" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64
        " %s%s%s activation %d residual %d batch %" PRId64,
        k->name, dev->name, q->p.a, q->p.b, q->p.c, q->p.d,
        q->layout == DANAUS_BATCH_LAST ? "last" : "first", q->adjoint ? " adjoint" : "",
        q->bias ? " bias" : "", (int)q->activation, q->residual, q->batch);
    expect_signal(&y, q->layout, expected, what);
    array_free(&y);
    danaus_free(dev, packed);
}

/* 1 if a row is tested now. GPUs have many rows, and each question goes to a fifth. */
static int has_turn(const danaus_device *dev)
{
    static int turn;
    return dev->backend->on_host || turn++ % 5 == 0;
}

/* What a row takes at once. */
typedef struct tile_size {
    int64_t rows, columns, lanes;
} tile_size;

static tile_size tile_of(const danaus_device *dev, const kernel *k)
{
    const cpu_code *cpu = k->code;
    const gpu_code *gpu = k->code;
    if (dev->backend->on_host)
        return (tile_size){ cpu->tile_rows, cpu->tile_columns, cpu->vector };
    return (tile_size){ gpu->size[0], gpu->size[1], gpu->size[2] };
}

/* True if both rows have one type and tile. */
static int are_alike(const danaus_device *dev, const kernel *k, const kernel *other)
{
    tile_size a = tile_of(dev, k), b = tile_of(dev, other);
    return k->dtype == other->dtype && a.rows == b.rows && a.columns == b.columns &&
           a.lanes == b.lanes;
}

/* The rows of its type that a question is put to, or those like `only`. */
static void choose_rows(const danaus_device *dev, const kernel *only, question *q)
{
    int count = 0, all = only && share_of_cases() < 1000;
    for (const kernel *k = dev->kernels; k->name; k++) {
        ks_step step = step_for(q, k);
        if (k->dtype == q->dtype && (!only || are_alike(dev, k, only)) &&
            (all || has_turn(dev)) && dn_fits(k, &step.p))
            q->rows[count++] = k;
        assert_in_range(count, 0, MOST_ROWS - 1);
    }
    q->rows[count] = NULL;
}

/* Random numbers for a question. */
static void check_question(danaus_device *dev, const question *q)
{
    rng numbers = q->r, *r = &numbers;
    int64_t in = q->adjoint ? rows_of(q->p) : cols_of(q->p);
    int64_t out = q->adjoint ? cols_of(q->p) : rows_of(q->p);
    array w = array_random(r, q->dtype, weights_of(q->p));
    array x = array_random(r, q->dtype, in * q->batch);
    array bias = array_random(r, sum_type(q->dtype), out);
    array residual = array_random(r, q->dtype, out * q->batch);
    signal xs = signal_read(&x, q->layout, in, q->batch);
    signal ys = signal_times(q->p, &w, q->adjoint, &xs, q->dtype);
    if (q->bias) {
        signal_round(&ys, type_between(q->dtype));
        signal_add_bias(&ys, &bias, q->dtype);
    }
    if (q->activation)
        signal_round(&ys, type_between(q->dtype));
    signal_activate(&ys, q->activation, q->dtype);
    if (q->residual && !q->activation)
        signal_begin_with(
            &ys, &residual, q->layout, q->dtype, q->adjoint ? q->p.b : q->p.c);
    if (q->residual)
        signal_add_residual(&ys, &residual, q->layout, q->dtype);
    signal_round(&ys, q->dtype);
    for (int i = 0; q->rows[i]; i++)
        check_row(dev, q->rows[i], q, &w, &x, &bias, &residual, &ys);
    signal_free(&xs);
    signal_free(&ys);
    array_free(&w);
    array_free(&x);
    array_free(&bias);
    array_free(&residual);
}

static void prepare_rows(danaus_device *dev, const question_list *list)
{
    ks_step *steps = NULL;
    int count = 0;
    for (int n = 0; n < list->count; n++) {
        steps = realloc(steps, (size_t)(count + MOST_ROWS) * sizeof *steps);
        for (int i = 0; list->waiting[n].rows[i]; i++)
            steps[count++] = step_for(&list->waiting[n], list->waiting[n].rows[i]);
    }
    int refused = 0;
    assert_ok(dev->backend->prepare(dev, steps, count, &refused));
    free(steps);
}

static void check_waiting(question_list *list)
{
    if (list->device->backend->prepare)
        prepare_rows(list->device, list);
    for (int n = 0; n < list->count; n++)
        check_question(list->device, &list->waiting[n]);
    list->count = 0;
}

static question_list open_list(danaus_device *dev)
{
    return (question_list){ dev, calloc(AT_ONCE, sizeof(question)), 0 };
}

static void close_list(question_list *list)
{
    check_waiting(list);
    free(list->waiting);
}

/* One for each type: GPU rows compile every activation into a kernel of its own. */
static danaus_activation activation_of(danaus_dtype dtype)
{
    return precision_of(dtype).complex
               ? DANAUS_ACTIVATION_NONE
               : (danaus_activation)(1 + (int)dtype % DANAUS_GELU_TANH);
}

/* The four forms of a problem: both layouts, forward and adjoint. */
static void ask_forms(
    question_list *list, rng *r, const kernel *only, danaus_dtype dtype,
    danaus_pattern p, int64_t batch)
{
    for (int form = 0; form < 4; form++) {
        question *q = &list->waiting[list->count];
        *q = (question){ .p = p, .dtype = dtype, .batch = batch };
        q->layout = form % 2 ? DANAUS_BATCH_LAST : DANAUS_BATCH_FIRST;
        q->adjoint = form / 2;
        q->bias = (int)(rng_next(r) % 2);
        q->activation = rng_next(r) % 2 ? activation_of(dtype) : DANAUS_ACTIVATION_NONE;
        q->residual = (int)rng_int(r, -1, 2);
        q->residual = q->residual < 0 ? 0 : q->residual;
        q->r = (rng){ rng_next(r) };
        choose_rows(list->device, only, q);
        if (++list->count == AT_ONCE)
            check_waiting(list);
    }
}

static void set_threads(danaus_device *dev, int threads)
{
    if (dev->backend->on_host)
        assert_ok(danaus_device_set_threads(dev, threads));
}

/* a, b, c, d from 1 to 4 and batch 1 to 10; plans see to an empty batch. */
static void every_row_is_right_on_every_small_shape(void **state)
{
    danaus_device *dev = *state;
    question_list list = open_list(dev);
    set_threads(dev, 1);
    for (uint64_t n = 0; n < 256 * 10 * TEST_DTYPES; n += (uint64_t)share_of_cases()) {
        rng r = { n };
        int64_t s = (int64_t)(n % 256);
        danaus_pattern p = { s % 4 + 1, s / 4 % 4 + 1, s / 16 % 4 + 1, s / 64 + 1 };
        int64_t batch = (int64_t)(n / 256 % 10) + 1;
        ask_forms(&list, &r, NULL, test_dtypes[n / 2560], p, batch);
    }
    close_list(&list);
    set_threads(dev, 0);
}

static int is_first_of_its_like(const danaus_device *dev, const kernel *k)
{
    const kernel *first = dev->kernels;
    while (!are_alike(dev, first, k))
        first++;
    return first == k;
}

/* One less than a tile, a tile, one more, and more tiles. */
static int64_t near(rng *r, int64_t tile)
{
    int64_t size = rng_int(r, 1, 3) * tile + rng_int(r, -1, 1);
    return size < 1 ? 1 : size;
}

static void every_row_is_right_at_the_edges_of_its_tiles(void **state)
{
    danaus_device *dev = *state;
    question_list list = open_list(dev);
    int rounds = rounds_of(dev->backend->on_host ? 40 : 18);
    for (const kernel *k = dev->kernels; k->name; k++) {
        tile_size tile = tile_of(dev, k);
        if (!is_first_of_its_like(dev, k))
            continue;
        for (uint64_t round = 0; round < (uint64_t)rounds; round++) {
            rng r = { round };
            danaus_pattern p = { rng_int(&r, 1, 3), near(&r, tile.rows),
                                 rng_int(&r, 1, 20), 1 };
            int64_t batch = near(&r, tile.columns), c = near(&r, tile.rows);
            if (round % 2)
                p.d = near(&r, tile.lanes);
            if (round % 3 == 0 && weights_of(p) / p.c * c * batch <= MOST_WORK)
                p.c = c;
            ask_forms(&list, &r, k, k->dtype, p, batch);
        }
    }
    close_list(&list);
}

/* Vectors of lanes apart, whose x is gathered, in pieces where c is large, and whose y
   may go through scratch. */
static void rows_along_lines_are_right_with_groups_of_lanes(void **state)
{
    danaus_device *dev = *state;
    if (!dev->backend->on_host)
        skip();
    const cpu_traits *traits = &((const cpu_device *)dev)->traits;
    question_list list = open_list(dev);
    for (const kernel *k = dev->kernels; k->name; k++) {
        const cpu_code *code = k->code;
        for (int round = 0; round < rounds_of(8) && code->lane_vectors; round++) {
            rng r = { (uint64_t)round };
            int64_t rows = traits->gather_tiles * code->lane_vectors;
            danaus_pattern p = { rng_int(&r, 1, 2), rows + rng_int(&r, -1, 3),
                                 rng_int(&r, 1, round % 2 ? 40 : 400),
                                 code->vector * rng_int(&r, 2, 5) };
            ask_forms(&list, &r, k, k->dtype, p, rng_int(&r, 1, 40));
        }
    }
    close_list(&list);
}

static int64_t often_small(rng *r, int64_t most)
{
    double u = rng_unit(r);
    return 1 + (int64_t)(u * u * u * (double)(most - 1) + 0.5);
}

/* Panels whose blocks go together, and those whose rows are multiples of a page apart. */
static void panels_are_right_with_many_blocks_and_with_rows_a_page_apart(void **state)
{
    danaus_device *dev = *state;
    if (!dev->backend->on_host)
        skip();
    question_list list = open_list(dev);
    for (const kernel *k = dev->kernels; k->name; k++) {
        const cpu_code *code = k->code;
        int64_t page = CACHE_WAY / (int64_t)danaus_dtype_size(k->dtype), batch;
        for (int round = 0; round < rounds_of(20) && !code->lane_vectors; round++) {
            rng r = { (uint64_t)round };
            danaus_pattern p;
            do {
                p = (danaus_pattern){ rng_int(&r, 32, 150), often_small(&r, 20),
                                      often_small(&r, 20), rng_int(&r, 1, 4) };
                batch = rng_int(&r, 1, 250);
            } while (weights_of(p) * batch > 1000000);
            if (round % 4 == 0) {
                p.a = 1;
                p.b += code->tile_rows;
                p.d = 1 << rng_int(&r, 0, 3);
                batch = page / p.d * rng_int(&r, 1, 2);
            }
            ask_forms(&list, &r, k, k->dtype, p, batch);
        }
    }
    close_list(&list);
}

static void every_row_is_right_on_random_shapes(void **state)
{
    question_list list = open_list(*state);
    int rounds = rounds_of(60);
    for (int t = 0; t < TEST_DTYPES; t++)
        for (int round = 0; round < rounds; round++) {
            rng r = { (uint64_t)round };
            danaus_pattern p;
            int64_t batch;
            do {
                p.a = often_small(&r, 8);
                p.b = often_small(&r, 150);
                p.c = often_small(&r, 150);
                p.d = often_small(&r, 70);
                batch = often_small(&r, 300);
            } while (weights_of(p) * batch > 1000000);
            ask_forms(&list, &r, NULL, test_dtypes[t], p, batch);
        }
    close_list(&list);
}

static void every_row_is_right_on_long_sums_and_wide_batches(void **state)
{
    static const danaus_pattern patterns[] = {
        { 1, 3, 4100, 1 }, { 1, 2, 2049, 2 }, { 2, 3, 2, 5 },    { 1, 1, 1, 1 },
        { 700, 2, 1, 1 },  { 1, 2, 3, 1030 }, { 1, 8, 2050, 2 },
    };
    static const int64_t batches[] = { 7, 19, 4099, 10007, 33, 9, 21 };
    question_list list = open_list(*state);
    rng r = { 5 };
    int step = share_of_cases() < 50 ? 1 : 3;
    for (int t = 0; t < TEST_DTYPES; t += share_of_cases())
        for (int i = 0; i < 7; i += step)
            ask_forms(&list, &r, NULL, test_dtypes[t], patterns[i], batches[i]);
    close_list(&list);
}

static void there_is_a_row_for_every_type(void **state)
{
    danaus_device *dev = *state;
    if (getenv("DANAUS_TEST_ROWS"))
        skip();
    for (int t = 0; t < TEST_DTYPES; t++) {
        int rows = 0;
        for (const kernel *k = dev->kernels; k->name; k++)
            rows += k->dtype == test_dtypes[t];
        assert_in_range(rows, 1, 1000);
    }
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(there_is_a_row_for_every_type, device),
        cmocka_unit_test_prestate(every_row_is_right_on_every_small_shape, device),
        cmocka_unit_test_prestate(every_row_is_right_at_the_edges_of_its_tiles, device),
        cmocka_unit_test_prestate(
            rows_along_lines_are_right_with_groups_of_lanes, device),
        cmocka_unit_test_prestate(
            panels_are_right_with_many_blocks_and_with_rows_a_page_apart, device),
        cmocka_unit_test_prestate(every_row_is_right_on_random_shapes, device),
        cmocka_unit_test_prestate(
            every_row_is_right_on_long_sums_and_wide_batches, device),
    };
    int failed = cmocka_run_group_tests_name("ks", tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
