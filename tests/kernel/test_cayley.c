/* Cayley transforms of blocks: against elimination with pivots in plain loops, as orthogonal
   matrices, and their gradients as differences; what is wrong gets a sentence. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/device.h"

#include "danaus/algebra.h"
#include "device/backend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST 48

static danaus_device *device;

static int on_host(void) { return device->backend->on_host; }

static double get(const array *a, int64_t i)
{
    return element_get(a->dtype, a->data, i).re;
}

typedef struct blocks {
    danaus_dtype dtype;
    int64_t count, size;
    int transposed;
} blocks;

static blocks draw(rng *r, int round)
{
    blocks b = { DANAUS_F32, rng_int(r, 1, 9), rng_int(r, 1, on_host() ? MOST : 32),
                 (int)rng_int(r, 0, 1) };
    if (round % 3)
        b.size = (int64_t[]){ 2, 4, 8, 16 }[rng_int(r, 0, 3)];
    if (on_host() && rng_int(r, 0, 1))
        b.dtype = DANAUS_F64;
    return b;
}

static int64_t numbers_of(const blocks *b) { return b->count * b->size * b->size; }

/* r of random numbers whose skew part has a norm from nearly 0 to large. */
static array make_r(rng *r, const blocks *b)
{
    array a = array_random(r, b->dtype, numbers_of(b));
    double scale = pow(10, (double)rng_int(r, -6, 2));
    for (int64_t i = 0; i < a.count; i++)
        element_put(a.dtype, a.data, i, (value){ get(&a, i) * scale, 0 });
    return a;
}

static array transform(const blocks *b, const array *r)
{
    array q = array_make(b->dtype, r->count);
    void *from = to_device(device, r), *to = to_device(device, &q);
    assert_ok(
        danaus_cayley(device, b->dtype, b->count, b->size, b->transposed, from, to));
    from_device(device, &q, to);
    from_device(device, r, from);
    array_expect_guards(&q);
    array_expect_guards(r);
    return q;
}

/* ---- the oracle ---- */

/* x[n][n] of a x = b by elimination with pivots; a and b are spent. */
static void solve(int64_t n, double *a, double *b, double *x)
{
    for (int64_t k = 0; k < n; k++) {
        int64_t best = k;
        for (int64_t i = k; i < n; i++)
            if (fabs(a[i * n + k]) > fabs(a[best * n + k]))
                best = i;
        for (int64_t c = 0; c < n; c++) {
            double v = a[k * n + c], w = b[k * n + c];
            a[k * n + c] = a[best * n + c], a[best * n + c] = v;
            b[k * n + c] = b[best * n + c], b[best * n + c] = w;
        }
        for (int64_t i = k + 1; i < n; i++) {
            double f = a[i * n + k] / a[k * n + k];
            for (int64_t c = 0; c < n; c++) {
                a[i * n + c] -= f * a[k * n + c];
                b[i * n + c] -= f * b[k * n + c];
            }
        }
    }
    for (int64_t i = n - 1; i >= 0; i--)
        for (int64_t c = 0; c < n; c++) {
            double sum = b[i * n + c];
            for (int64_t k = i + 1; k < n; k++)
                sum -= a[i * n + k] * x[k * n + c];
            x[i * n + c] = sum / a[i * n + i];
        }
}

/* q of one block; returns the square of K's norm. */
static double plain(const blocks *b, const array *r, int64_t block, double *q)
{
    int64_t n = b->size, at = block * n * n;
    double sum[MOST * MOST], less[MOST * MOST], square = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double k = (get(r, at + i * n + j) - get(r, at + j * n + i)) / 2;
            k = b->transposed ? -k : k;
            square += k * k;
            sum[i * n + j] = (i == j) + k;
            less[i * n + j] = (i == j) - k;
        }
    solve(n, sum, less, q);
    return square;
}

/* ---- transforms ---- */

static void q_is_that_of_plain_loops(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(60); round++) {
        rng g = { (uint64_t)round };
        blocks b = draw(&g, round);
        array r = make_r(&g, &b), q = transform(&b, &r);
        double wanted[MOST * MOST];
        for (int64_t block = 0; block < b.count; block++) {
            double square = plain(&b, &r, block, wanted);
            /* Both eliminate in f64, without pivots with growth by the square of K's norm; q is
               rounded once. */
            double n = (double)b.size, bound = 0x1p-52 * n * n * (8 + square);
            bound += b.dtype == DANAUS_F32 ? 0x1p-24 : 0;
            for (int64_t i = 0; i < b.size * b.size; i++) {
                double v = get(&q, block * b.size * b.size + i);
                if (!(fabs(v - wanted[i]) <= bound))
                    fail_msg(
                        "round %d: number %d of a block of %d rows is %.17g, not %.17g "
                        "within %g",
                        round, (int)i, (int)b.size, v, wanted[i], bound);
            }
        }
        array_free(&r);
        array_free(&q);
    }
}

static void q_is_orthogonal(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(30); round++) {
        rng g = { 100 + (uint64_t)round };
        blocks b = draw(&g, round), other = b;
        other.transposed = !b.transposed;
        array r = make_r(&g, &b), q = transform(&b, &r), t = transform(&other, &r);
        int64_t n = b.size;
        double bound = (double)n * (b.dtype == DANAUS_F32 ? 0x1p-22 : 1e-9);
        for (int64_t at = 0; at < q.count; at += n * n)
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = 0; j < n; j++) {
                    double sum = 0;
                    for (int64_t k = 0; k < n; k++)
                        sum += get(&q, at + i * n + k) * get(&q, at + j * n + k);
                    assert_true(fabs(sum - (i == j)) <= bound);
                    double v = get(&q, at + i * n + j), w = get(&t, at + j * n + i);
                    assert_true(fabs(v - w) <= bound);
                }
        array_free(&r);
        array_free(&q);
        array_free(&t);
    }
}

/* ---- gradients ---- */

static array go_back(const blocks *b, const array *q, const array *dq, int in_place)
{
    array dr = array_make(b->dtype, q->count);
    if (in_place)
        memcpy(dr.data, dq->data, (size_t)q->count * danaus_dtype_size(b->dtype));
    void *from = to_device(device, q), *of = to_device(device, dq);
    void *to = to_device(device, &dr);
    assert_ok(danaus_cayley_gradient(
        device, b->dtype, b->count, b->size, b->transposed, from, in_place ? to : of,
        to));
    from_device(device, &dr, to);
    from_device(device, dq, of);
    from_device(device, q, from);
    array_expect_guards(&dr);
    return dr;
}

/* <dq, q> for r + step h, of all blocks. */
static double along(
    const blocks *b, const array *r, const array *h, double step, const array *dq)
{
    array moved = array_make(DANAUS_F64, r->count);
    blocks exact = *b;
    double q[MOST * MOST], sum = 0;
    exact.dtype = DANAUS_F64;
    for (int64_t i = 0; i < r->count; i++)
        element_put(
            DANAUS_F64, moved.data, i, (value){ get(r, i) + step * get(h, i), 0 });
    for (int64_t block = 0; block < b->count; block++) {
        plain(&exact, &moved, block, q);
        for (int64_t i = 0; i < b->size * b->size; i++)
            sum += q[i] * get(dq, block * b->size * b->size + i);
    }
    array_free(&moved);
    return sum;
}

static void gradients_are_differences(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(40); round++) {
        rng g = { 200 + (uint64_t)round };
        blocks b = draw(&g, round);
        array r = array_random(&g, b.dtype, numbers_of(&b)), q = transform(&b, &r);
        array dq = array_random(&g, b.dtype, q.count);
        array h = array_random(&g, b.dtype, q.count);
        array dr = go_back(&b, &q, &dq, round % 2);
        double step = 1e-5, found = 0, size = 0;
        for (int64_t i = 0; i < q.count; i++) {
            found += get(&dr, i) * get(&h, i);
            size += fabs(get(&dr, i) * get(&h, i)) + fabs(get(&dq, i));
        }
        double wanted = along(&b, &r, &h, step, &dq) - along(&b, &r, &h, -step, &dq);
        wanted /= 2 * step;
        /* Differences err by the third derivative times step^2 and by 2^-52 / step of q's sum; q
           and dr are rounded. */
        double n = (double)b.size;
        double bound =
            size * (1e-9 * n * n + (b.dtype == DANAUS_F32 ? 0x1p-21 * n : 0));
        if (!(fabs(found - wanted) <= bound))
            fail_msg(
                "round %d, %d rows: %.12g, not %.12g within %g", round, (int)b.size,
                found, wanted, bound);
        array_free(&r);
        array_free(&q);
        array_free(&dq);
        array_free(&h);
        array_free(&dr);
    }
}

/* ---- what is wrong ---- */

static void expect(
    danaus_dtype dtype, int64_t count, int64_t size, const void *r, void *q,
    danaus_status status, const char *words)
{
    assert_status(danaus_cayley(device, dtype, count, size, 0, r, q), status);
    if (!strstr(danaus_error_detail(), words))
        fail_msg("\"%s\" has no \"%s\"", danaus_error_detail(), words);
    assert_status(
        danaus_cayley_gradient(device, dtype, count, size, 0, r, r, q), status);
}

static void what_is_wrong_has_a_sentence(void **state)
{
    (void)state;
    float r[8] = { 0 }, q[8];
    const danaus_status argument = DANAUS_ERR_ARGUMENT, shape = DANAUS_ERR_SHAPE;
    expect(DANAUS_F16, 1, 2, r, q, argument, "is not f32 or f64");
    expect(DANAUS_C64, 1, 2, r, q, argument, "is not f32 or f64");
    expect(DANAUS_F32, -1, 2, r, q, argument, "-1 blocks");
    expect(DANAUS_F32, 1, 0, r, q, argument, "of 0 rows");
    expect(DANAUS_F32, 1, INT64_C(1) << 40, r, q, shape, "no size");
    expect(DANAUS_F32, INT64_C(1) << 60, 8, r, q, shape, "no size");
    expect(DANAUS_F32, 1, 2, NULL, q, argument, "needed");
    expect(DANAUS_F32, 1, 2, r, NULL, argument, "needed");
    expect(DANAUS_F32, 1, 2, r, r + 3, argument, "r");
    assert_ok(danaus_cayley(device, DANAUS_F32, 0, 4, 0, NULL, NULL));
    assert_ok(danaus_cayley_gradient(device, DANAUS_F32, 0, 4, 0, NULL, NULL, NULL));
    assert_status(danaus_cayley(NULL, DANAUS_F32, 1, 2, 0, r, q), argument);
    if (on_host())
        return;
    expect(DANAUS_F32, 1, 33, r, q, DANAUS_ERR_UNSUPPORTED, "up to 32, in f32");
    expect(DANAUS_F64, 1, 2, r, q, DANAUS_ERR_UNSUPPORTED, "up to 32, in f32");
}

int main(int argc, char **argv)
{
    device = device_from_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(q_is_that_of_plain_loops),
        cmocka_unit_test(q_is_orthogonal),
        cmocka_unit_test(gradients_are_differences),
        cmocka_unit_test(what_is_wrong_has_a_sentence),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
