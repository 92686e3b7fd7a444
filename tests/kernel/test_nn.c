/* Gradients of models' operations against differences of plain f64 functions: the sum of dy
   times the change of y when one number of an operand moves by STEP either way. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/device.h"

#include "base/numbers.h"
#include "device/nn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNIT 0x1p-24
#define STEP 1e-5
/* What differences leave out, relatively, of operands of size 1. */
#define DIFFERENCE 1e-8

static danaus_device *device;

/* Numbers in device memory, between NaN. */
typedef struct numbers {
    int64_t count;
    float *block, *at;
} numbers;

static numbers make(int64_t count)
{
    numbers n = { .count = count };
    n.block = malloc((size_t)(count + 2) * sizeof *n.block);
    assert_non_null(n.block);
    for (int64_t i = 0; i < count + 2; i++)
        n.block[i] = NAN;
    n.at = n.block + 1;
    return n;
}

static numbers make_random(rng *r, int64_t count)
{
    numbers n = make(count);
    for (int64_t i = 0; i < count; i++)
        n.at[i] = (float)rng_sign(r);
    return n;
}

static void end(numbers *n)
{
    assert_true(isnan(n->block[0]) && isnan(n->block[n->count + 1]));
    free(n->block);
}

/* y[outputs] of x[inputs], in f64. */
typedef void plain(const void *of, const double *x, double *y);

/* Compares dx with differences, where numbers of dx have errors below `bound`. */
static void expect_gradient(
    plain *f, const void *of, const numbers *x, int64_t outputs, const float *dy,
    const float *dx, double bound)
{
    double *at = calloc((size_t)x->count, sizeof *at);
    double *up = calloc((size_t)outputs, sizeof *up),
           *down = calloc((size_t)outputs, sizeof *up);
    for (int64_t i = 0; i < x->count; i++)
        at[i] = x->at[i];
    for (int64_t i = 0; i < x->count; i++) {
        double wanted = 0, size = 0;
        at[i] = x->at[i] + STEP;
        f(of, at, up);
        at[i] = x->at[i] - STEP;
        f(of, at, down);
        at[i] = x->at[i];
        for (int64_t o = 0; o < outputs; o++) {
            double term = dy[o] * (up[o] - down[o]) / (2 * STEP);
            wanted += term;
            size += fabs(term);
        }
        if (!(fabs(dx[i] - wanted) <= bound + DIFFERENCE * (1 + size)))
            fail_msg(
                "number %d of %d is %.9g, not %.9g within %g", (int)i, (int)x->count,
                dx[i], wanted, bound + DIFFERENCE * (1 + size));
    }
    free(at);
    free(up);
    free(down);
}

/* ---- normalisation ---- */

static void plain_norm(const void *of, const double *x, double *y)
{
    const nn_norm_gradient *o = of;
    for (int64_t r = 0; r < o->rows; r++, x += o->width, y += o->width) {
        double mean = 0, square = 0;
        for (int64_t i = 0; i < o->width; i++)
            mean += x[i] / (double)o->width;
        for (int64_t i = 0; i < o->width; i++)
            square += (x[i] - mean) * (x[i] - mean) / (double)o->width;
        for (int64_t i = 0; i < o->width; i++)
            y[i] = (x[i] - mean) / sqrt(square + o->epsilon) * o->scale[i];
    }
}

static void norms_go_back(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(60); round++) {
        rng r = { (uint64_t)round };
        int64_t rows = rng_int(&r, 1, 5), width = rng_int(&r, 1, 40);
        numbers x = make_random(&r, rows * width), dy = make_random(&r, rows * width);
        numbers scale = make_random(&r, width), dx = make(rows * width);
        nn_norm_gradient o = { rows, width, x.at, dy.at, scale.at, 0.1f, dx.at };
        assert_ok(device->backend->nn->norm_gradient(device, &o));
        /* Each number is a sum of `width` terms of at most 1 / epsilon^(1/2) and its cube. */
        double bound = UNIT * (double)(width + 16) * 40;
        expect_gradient(plain_norm, &o, &x, rows * width, dy.at, dx.at, bound);
        end(&x);
        end(&dy);
        end(&scale);
        end(&dx);
    }
}

/* ---- activations ---- */

static double plain_slope(danaus_activation a, double x)
{
    double s = 1 / (1 + exp(-x)), c = sqrt(2 / acos(-1));
    double t = tanh(c * (x + 0.044715 * x * x * x));
    switch (a) {
    case DANAUS_RELU: return x > 0;
    case DANAUS_SILU: return s + x * s * (1 - s);
    case DANAUS_GELU:
        return erfc(-x / sqrt(2)) / 2 + x * exp(-x * x / 2) / sqrt(2 * acos(-1));
    case DANAUS_GELU_TANH:
        return (1 + t) / 2 + x / 2 * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
    default: return 1;
    }
}

static void activations_go_back(void **state)
{
    (void)state;
    const int64_t count = 40000;
    numbers x = make(count), dx = make(count);
    rng r = { 2 };
    numbers dy = make_random(&r, count);
    for (int64_t i = 0; i < count; i++)
        x.at[i] = (float)(((double)i - 20000.5) / 500); /* -40 to 40 */
    x.at[0] = -3e38f;
    x.at[1] = 3e38f;
    for (int a = DANAUS_ACTIVATION_NONE; a <= DANAUS_GELU_TANH; a++) {
        nn_activation_gradient o = { count, (danaus_activation)a, x.at, dy.at, dx.at };
        assert_ok(device->backend->nn->activation_gradient(device, &o));
        for (int64_t i = 0; i < count; i++) {
            double wanted = plain_slope((danaus_activation)a, x.at[i]) * dy.at[i];
            /* Slopes are at most 1.2; GELU's is within 7.5e-8 times 1 + |x| phi. */
            if (!(fabs(dx.at[i] - wanted) <= 1.2e-7 + 24 * UNIT * fabs(dy.at[i])))
                fail_msg(
                    "activation %d at %g: %.9g, not %.9g", a, x.at[i], dx.at[i],
                    wanted);
        }
    }
    end(&x);
    end(&dy);
    end(&dx);
}

/* ---- attention: x is q, k and v one after the other ---- */

static void plain_attention(const void *of, const double *x, double *y)
{
    const nn_attention *o = of;
    int64_t n = o->width, d = n / o->heads;
    int64_t rows = o->sequences.offsets[o->sequences.count];
    const double *q = x, *k = q + rows * n, *v = k + rows * n;
    double p[64];
    for (int64_t s = 0; s < o->sequences.count; s++)
        for (int64_t t = o->sequences.offsets[s]; t < o->sequences.offsets[s + 1]; t++)
            for (int64_t i = 0; i < n; i++) {
                int64_t from = i / d * d, first = o->sequences.offsets[s];
                double total = 0, sum = 0;
                for (int64_t u = first; u < o->sequences.offsets[s + 1]; u++) {
                    double score = 0;
                    for (int64_t e = from; e < from + d; e++)
                        score += q[t * n + e] * k[u * n + e];
                    int64_t far = MAX(-o->reach, MIN(u - t, o->reach));
                    const float *bias = o->bias + i / d * (2 * o->reach + 1) + o->reach;
                    score = score / sqrt((double)d) + (o->bias ? bias[far] : 0);
                    p[u - first] = exp(score);
                    total += p[u - first];
                }
                for (int64_t u = first; u < o->sequences.offsets[s + 1]; u++)
                    sum += p[u - first] / total * v[u * n + i];
                y[t * n + i] = sum;
            }
}

static void attention_goes_back(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(30); round++) {
        rng r = { (uint64_t)round };
        int64_t count = rng_int(&r, 1, 3), heads = rng_int(&r, 1, 3);
        int64_t width = heads * rng_int(&r, 1, 9), offsets[4] = { 0 };
        for (int64_t i = 0; i < count; i++)
            offsets[i + 1] = offsets[i] + rng_int(&r, 1, 20);
        int64_t size = offsets[count] * width;
        numbers x = make_random(&r, 3 * size), dy = make_random(&r, size);
        numbers dx = make(3 * size);
        int64_t reach = rng_int(&r, 0, 12);
        numbers bias = make_random(&r, heads * (2 * reach + 1));
        nn_attention_gradient o = { { .sequences = { count, offsets },
                                      .width = width,
                                      .heads = heads,
                                      .q = x.at,
                                      .k = x.at + size,
                                      .v = x.at + 2 * size,
                                      .bias = round % 2 ? bias.at : NULL,
                                      .reach = reach },
                                    dy.at,
                                    dx.at,
                                    dx.at + size,
                                    dx.at + 2 * size };
        assert_ok(device->backend->nn->attention_gradient(device, &o));
        /* Sums of at most 20 + 9 terms of size 9 times 9. */
        double bound = UNIT * 60 * 81;
        expect_gradient(plain_attention, &o.of, &x, size, dy.at, dx.at, bound);
        end(&bias);
        end(&x);
        end(&dy);
        end(&dx);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_go_back),
        cmocka_unit_test(activations_go_back),
        cmocka_unit_test(attention_goes_back),
    };
    device = device_from_arguments(argc, argv);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
