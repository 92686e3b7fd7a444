/* Operators: chains with orders, against plain loops; their files. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/status.h"
#include "support/element.h"
#include "support/failing.h"
#include "support/files.h"
#include "support/operators.h"

#include <complex.h>
#undef complex
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const danaus_dtype types[] = { DANAUS_F32, DANAUS_F64, DANAUS_C64, DANAUS_C128 };

/* Entries and inputs are at most 1 in modulus, or sqrt(2) if complex. A sum of absolute
   values of products, with every number's modulus in place of it, bounds what the roundings of
   all factors can do: each costs at most its terms and two, and so do additions of an
   adjoint's repeats. */
static double bound_of(const danaus_operator *made, int adjoint, matrix x)
{
    double size = 1, steps = 2, most = 0;
    for (int i = 0; i < danaus_operator_count(made); i++) {
        const danaus_chain *chain = danaus_operator_chain(made, i);
        for (int l = 0; l < danaus_chain_count(chain); l++) {
            danaus_pattern p = danaus_chain_pattern(chain, l);
            double terms = (double)(adjoint ? p.b : p.c);
            size *= 1.5 * terms + 1; /* what passes by is no larger */
            steps += 2 * terms + 4;
        }
        int64_t length;
        danaus_operator_order(made, i, &length);
        if (adjoint) {
            size *= (double)length;
            steps += (double)length;
        }
    }
    for (int64_t at = 0; at < x.rows * x.cols; at++)
        most = fmax(most, cabs(x.at[at]));
    int64_t cols = danaus_operator_cols(made), rows;
    danaus_operator_order(made, danaus_operator_count(made), &rows);
    if (adjoint)
        size *= (double)rows, steps += (double)(rows + cols);
    return 2 * steps * size * most * precision_of(danaus_operator_dtype(made)).sum_unit;
}

static matrix conjugated(matrix a)
{
    matrix t = matrix_transposed(a);
    for (int64_t x = 0; x < t.rows * t.cols; x++)
        t.at[x] = conj(t.at[x]);
    return t;
}

static void check_apply(
    danaus_device *device, const danaus_operator *made, matrix a, rng *r, int way)
{
    int adjoint = way % 2;
    danaus_layout layout = way / 2 ? DANAUS_BATCH_LAST : DANAUS_BATCH_FIRST;
    danaus_dtype dtype = danaus_operator_dtype(made);
    matrix w = adjoint ? conjugated(a) : matrix_copy(a);
    int64_t batch = rng_int(r, 1, 5);
    matrix x = matrix_gauss(r, w.cols, batch, precision_of(dtype).complex);
    void *packed = matrix_pack(x, dtype);
    matrix_free(&x);
    x = matrix_unpack(dtype, packed, w.cols, batch);
    matrix turned = matrix_transposed(x);
    free(packed);
    packed = matrix_pack(layout == DANAUS_BATCH_LAST ? x : turned, dtype);
    array y = array_make(dtype, w.rows * batch);
    assert_ok(
        danaus_operator_apply(device, made, adjoint, layout, batch, packed, y.data));
    array_expect_guards(&y);
    matrix exact = matrix_times(w, x);
    double bound = bound_of(made, adjoint, x);
    for (int64_t k = 0; k < w.rows; k++)
        for (int64_t s = 0; s < batch; s++) {
            int64_t at = layout == DANAUS_BATCH_LAST ? k * batch + s : s * w.rows + k;
            value z = element_get(dtype, y.data, at);
            double error = cabs(CMPLX(z.re, z.im) - exact.at[k * batch + s]);
            if (!(error <= bound))
                fail_msg("way %d: %g is more than %g", way, error, bound);
        }
    array_free(&y);
    free(packed);
    matrix_free(&turned);
    matrix_free(&exact);
    matrix_free(&x);
    matrix_free(&w);
}

static void products_are_those_of_the_matrix(void **state)
{
    (void)state;
    danaus_device *device;
    assert_ok(danaus_device_open("cpu", &device));
    for (uint64_t round = 0; round < 60; round++) {
        rng r = { round };
        danaus_operator *made = random_operator(&r, types[round % 4]);
        matrix a = operator_matrix(made);
        for (int way = 0; way < 4; way++)
            check_apply(device, made, a, &r, way);
        matrix_free(&a);
        danaus_operator_destroy(made);
    }
    danaus_device_close(device);
}

static void dense_is_the_matrix(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 60; round++) {
        rng r = { round };
        danaus_dtype dtype = types[round % 4];
        danaus_operator *made = random_operator(&r, dtype);
        matrix a = operator_matrix(made);
        array dense = array_make(dtype, a.rows * a.cols);
        assert_ok(danaus_operator_to_dense(made, dense.data));
        array_expect_guards(&dense);
        matrix b = matrix_unpack(dtype, dense.data, a.rows, a.cols);
        /* Both sum in f64; one rounds to the type at the end. */
        double unit = precision_of(dtype).unit + 200 * 0x1p-53;
        assert_true(matrix_distance(a, b) <= 2 * unit * matrix_norm(a));
        matrix_free(&a);
        matrix_free(&b);
        array_free(&dense);
        danaus_operator_destroy(made);
    }
}

/* ---- files ---- */

static void expect_same(const danaus_operator *x, const danaus_operator *y)
{
    assert_int_equal(danaus_operator_count(x), danaus_operator_count(y));
    assert_int_equal(danaus_operator_cols(x), danaus_operator_cols(y));
    assert_int_equal(danaus_operator_rows(x), danaus_operator_rows(y));
    assert_int_equal(danaus_operator_dtype(x), danaus_operator_dtype(y));
    assert_int_equal(danaus_operator_parameters(x), danaus_operator_parameters(y));
    for (int i = 0; i <= danaus_operator_count(x); i++) {
        int64_t n, m;
        const int64_t *a = danaus_operator_order(x, i, &n),
                      *b = danaus_operator_order(y, i, &m);
        assert_int_equal(n, m);
        assert_memory_equal(a, b, (size_t)n * sizeof *a);
    }
    matrix a = operator_matrix(x), b = operator_matrix(y);
    assert_memory_equal(a.at, b.at, (size_t)(a.rows * a.cols) * sizeof *a.at);
    matrix_free(&a);
    matrix_free(&b);
}

static void a_saved_operator_loads_again(void **state)
{
    (void)state;
    char path[1024];
    snprintf(path, sizeof path, "%s", scratch_path("operator.safetensors"));
    for (uint64_t round = 0; round < 40; round++) {
        rng r = { round };
        danaus_operator *made = random_operator(&r, types[round % 4]), *loaded = NULL;
        danaus_chain *chain = NULL;
        assert_ok(danaus_operator_save(made, path));
        assert_ok(danaus_operator_load(path, &loaded));
        expect_same(made, loaded);
        assert_status(danaus_chain_load(path, &chain), DANAUS_ERR_UNSUPPORTED);
        assert_non_null(strstr(danaus_error_detail(), "read as an operator"));
        assert_null(chain);
        danaus_operator_destroy(made);
        danaus_operator_destroy(loaded);
    }
}

static void orders_that_change_nothing_leave_a_plain_chain(void **state)
{
    (void)state;
    char path[1024];
    snprintf(path, sizeof path, "%s", scratch_path("plain.safetensors"));
    danaus_transform_desc desc = { .kind = DANAUS_WALSH_HADAMARD, .n = 8 };
    danaus_operator *made, *loaded;
    danaus_chain *chain;
    assert_ok(danaus_operator_transform(&desc, &made));
    assert_ok(danaus_operator_save(made, path));
    assert_ok(danaus_chain_load(path, &chain));
    assert_ok(danaus_operator_load(path, &loaded));
    expect_same(made, loaded);
    assert_ok(danaus_chain_set_bias(chain, (double[8]){ 1 }));
    assert_ok(danaus_chain_save(chain, path));
    danaus_operator *biased;
    assert_ok(danaus_operator_load(path, &biased));
    assert_true(*(const double *)danaus_operator_bias(biased) == 1);
    assert_ok(danaus_operator_save(biased, path));
    danaus_operator_destroy(biased);
    danaus_chain_destroy(chain);
    assert_ok(danaus_chain_load(path, &chain));
    assert_true(*(const double *)danaus_chain_bias(chain) == 1);
    danaus_chain_destroy(chain);
    danaus_operator_destroy(made);
    danaus_operator_destroy(loaded);
}

/* A file of one factor (1, 2, 2, 1), with what the case changes. */
static const char *file_of(
    const char *cols, const double *outputs, int64_t rows, const double *inputs,
    int64_t length, danaus_dtype dtype)
{
    static const double w[4] = { 1, 2, 3, 4 };
    const char *const metadata[] = { "format", "danaus chain 2", "danaus cols", cols };
    const danaus_tensor tensors[] = { { .name = "factor.0",
                                        .data = w,
                                        .dtype = DANAUS_F64,
                                        .ndim = 4,
                                        .shape = { 1, 2, 2, 1 } },
                                      { .name = "order.0",
                                        .data = outputs,
                                        .dtype = dtype,
                                        .ndim = 1,
                                        .shape = { rows } },
                                      { .name = "order.1",
                                        .data = inputs,
                                        .dtype = DANAUS_F64,
                                        .ndim = 1,
                                        .shape = { length } } };
    const char *path = scratch_path("case.safetensors");
    assert_ok(danaus_file_write_safetensors(
        path, tensors, inputs ? 3 : 2, metadata, cols ? 2 : 1));
    return path;
}

static void files_that_are_no_operator_are_refused(void **state)
{
    (void)state;
    static const double good[3] = { 1, -1, 0 }, far[2] = { 0, 2 }, half[2] = { 0.5, 0 },
                        low[2] = { -2, 0 }, huge[2] = { 1e300, 0 },
                        none[2] = { NAN, 0 };
    const struct {
        const char *cols;
        const double *outputs;
        int64_t rows;
        const double *inputs;
        int64_t length;
        danaus_dtype dtype;
        danaus_status status;
        const char *words;
    } cases[] = {
        { "2", good, 2, good, 2, DANAUS_F64, DANAUS_OK, "" },
        { "2", good, 2, good, 3, DANAUS_F64, DANAUS_OK, "" },
        { NULL, good, 2, good, 2, DANAUS_F64, DANAUS_ERR_FORMAT, "danaus cols" },
        { "2x", good, 2, good, 2, DANAUS_F64, DANAUS_ERR_FORMAT, "danaus cols" },
        { "-2", good, 2, good, 2, DANAUS_F64, DANAUS_ERR_FORMAT, "danaus cols" },
        { "1234567890123456", good, 2, good, 2, DANAUS_F64, DANAUS_ERR_FORMAT, "cols" },
        { "0", good, 2, good, 2, DANAUS_F64, DANAUS_ERR_SHAPE, "0 inputs" },
        { "1", good, 2, good, 2, DANAUS_F64, DANAUS_ERR_ARGUMENT, "order 1 is 1" },
        { "2", good, 0, good, 2, DANAUS_F64, DANAUS_ERR_FORMAT, "order.0 is no" },
        { "2", good, 2, good, 2, DANAUS_F32, DANAUS_ERR_FORMAT, "order.0 is no" },
        { "2", good, 2, good, 1, DANAUS_F64, DANAUS_ERR_SHAPE, "takes 2 numbers" },
        { "2", good, 2, NULL, 0, DANAUS_F64, DANAUS_ERR_FORMAT, "order.1 is missing" },
        { "2", far, 2, good, 2, DANAUS_F64, DANAUS_ERR_ARGUMENT, "order 0 is 2" },
        { "2", half, 2, good, 2, DANAUS_F64, DANAUS_ERR_FORMAT, "0.5, which" },
        { "2", low, 2, good, 2, DANAUS_F64, DANAUS_ERR_FORMAT, "-2, which" },
        { "2", huge, 2, good, 2, DANAUS_F64, DANAUS_ERR_FORMAT, "no place" },
        { "2", none, 2, good, 2, DANAUS_F64, DANAUS_ERR_FORMAT, "no place" },
    };
    for (size_t x = 0; x < sizeof cases / sizeof *cases; x++) {
        danaus_operator *made = NULL;
        const char *path = file_of(
            cases[x].cols, cases[x].outputs, cases[x].rows, cases[x].inputs,
            cases[x].length, cases[x].dtype);
        danaus_status status = danaus_operator_load(path, &made);
        if (status != cases[x].status ||
            (status && !strstr(danaus_error_detail(), cases[x].words)))
            fail_msg(
                "case %zu: %s: %s", x, danaus_status_name(status),
                danaus_error_detail());
        assert_int_equal(made != NULL, status == DANAUS_OK);
        danaus_operator_destroy(made);
    }
}

static void cut_and_changed_files_do_no_harm(void **state)
{
    (void)state;
    char path[1024];
    snprintf(path, sizeof path, "%s", scratch_path("damaged"));
    danaus_transform_desc desc = { .kind = DANAUS_WAVELET, .n = 8, .moments = 2 };
    danaus_operator *whole;
    assert_ok(danaus_operator_transform(&desc, &whole));
    assert_ok(danaus_operator_save(whole, path));
    expect_damage_is_refused(path);
    danaus_operator_destroy(whole);
}

/* ---- bad input, missing memory ---- */

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    danaus_pattern p = { 1, 2, 3, 1 };
    danaus_chain *chain, *other, *chains[2];
    danaus_operator *made = NULL;
    assert_ok(danaus_chain_create(&p, 1, DANAUS_F64, &chain));
    assert_ok(danaus_chain_create(&p, 1, DANAUS_F32, &other));
    int64_t good[3] = { 0, 1, 2 }, far[3] = { 0, 1, 3 }, low[3] = { -2, 0, 0 };
    const int64_t *orders[3] = { NULL, good, NULL }, lengths[3] = { 2, 3, 3 };
    chains[0] = chain;
    chains[1] = other;
    assert_status(
        danaus_operator_create(NULL, 1, NULL, NULL, 3, &made), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_operator_create(chains, 1, NULL, NULL, 3, NULL), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_operator_create(chains, 1, orders, NULL, 3, &made), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_operator_create(chains, 0, NULL, NULL, 3, &made), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_operator_create(chains, 2, NULL, NULL, 3, &made), DANAUS_ERR_ARGUMENT);
    assert_non_null(strstr(danaus_error_detail(), "chain 1 is f32"));
    chains[1] = NULL;
    assert_status(
        danaus_operator_create(chains, 2, NULL, NULL, 3, &made), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_operator_create(chains, 1, NULL, NULL, 2, &made), DANAUS_ERR_SHAPE);
    assert_status(
        danaus_operator_create(chains, 1, NULL, NULL, 0, &made), DANAUS_ERR_SHAPE);
    orders[1] = far;
    assert_status(
        danaus_operator_create(chains, 1, orders, lengths, 3, &made),
        DANAUS_ERR_ARGUMENT);
    orders[1] = low;
    assert_status(
        danaus_operator_create(chains, 1, orders, lengths, 3, &made),
        DANAUS_ERR_ARGUMENT);
    orders[1] = good;
    int64_t wrong[2] = { 2, INT64_MAX };
    assert_status(
        danaus_operator_create(chains, 1, orders, wrong, 3, &made), DANAUS_ERR_SHAPE);
    assert_null(made);
    assert_ok(danaus_operator_create(chains, 1, orders, lengths, 3, &made));
    double x[3] = { 0 };
    danaus_device *device;
    assert_ok(danaus_device_open("cpu", &device));
    assert_status(
        danaus_operator_apply(NULL, made, 0, DANAUS_BATCH_FIRST, 1, x, x),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_operator_apply(device, made, 0, DANAUS_BATCH_FIRST, 1, NULL, x),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_operator_apply(device, made, 0, (danaus_layout)7, 1, x, x),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_operator_apply(device, made, 0, DANAUS_BATCH_FIRST, -1, x, x),
        DANAUS_ERR_SHAPE);
    assert_status(
        danaus_operator_apply(device, made, 0, DANAUS_BATCH_FIRST, INT64_MAX / 2, x, x),
        DANAUS_ERR_SHAPE);
    assert_ok(
        danaus_operator_apply(device, made, 0, DANAUS_BATCH_FIRST, 0, NULL, NULL));
    assert_status(danaus_operator_to_dense(made, NULL), DANAUS_ERR_ARGUMENT);
    assert_null(danaus_operator_chain(made, 1));
    assert_null(danaus_operator_order(made, 2, NULL));
    danaus_device_close(device);
    danaus_operator_destroy(made);
    danaus_operator_destroy(NULL);
    danaus_chain_destroy(other);
}

static danaus_status load_use_and_save(void *path)
{
    danaus_operator *made = NULL;
    danaus_device *device = NULL;
    double x[8] = { 1 }, y[8], dense[64];
    TRY(danaus_operator_load(path, &made));
    danaus_status status = danaus_device_open("cpu", &device);
    if (status == DANAUS_OK)
        status = danaus_operator_apply(device, made, 0, DANAUS_BATCH_FIRST, 1, x, y);
    if (status == DANAUS_OK)
        status = danaus_operator_to_dense(made, dense);
    if (status == DANAUS_OK)
        status = danaus_operator_save(made, path);
    danaus_device_close(device);
    danaus_operator_destroy(made);
    return status;
}

static void memory_may_be_missing_at_any_time(void **state)
{
    (void)state;
    char path[1024];
    snprintf(path, sizeof path, "%s", scratch_path("memory"));
    danaus_transform_desc desc = { .kind = DANAUS_WAVELET, .n = 8, .moments = 2 };
    danaus_operator *made;
    assert_ok(danaus_operator_transform(&desc, &made));
    assert_ok(danaus_operator_save(made, path));
    danaus_operator_destroy(made);
    assert_in_range(expect_memory_errors(load_use_and_save, path), 20, 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_those_of_the_matrix),
        cmocka_unit_test(dense_is_the_matrix),
        cmocka_unit_test(a_saved_operator_loads_again),
        cmocka_unit_test(orders_that_change_nothing_leave_a_plain_chain),
        cmocka_unit_test(files_that_are_no_operator_are_refused),
        cmocka_unit_test(cut_and_changed_files_do_no_harm),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(memory_may_be_missing_at_any_time),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
