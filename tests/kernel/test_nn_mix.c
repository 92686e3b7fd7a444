/* What models with long convolutions need beside them, against plain loops of f64: few taps
   turned into channels, rows turned back, products of channels, likelihoods. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/device.h"

#include "device/nn.h"

#include <math.h>
#include <stdlib.h>

#define UNIT 0x1p-24

static danaus_device *device;

/* Random numbers with room for guards on both sides. */
static float *make_random(rng *r, int64_t count)
{
    float *block = malloc((size_t)(count + 2) * sizeof *block);
    assert_non_null(block);
    for (int64_t i = 0; i < count + 2; i++)
        block[i] = (float)rng_sign(r);
    block[0] = block[count + 1] = 17;
    return block + 1;
}

static void end(float *numbers, int64_t count)
{
    assert_true(numbers[-1] == 17 && numbers[count] == 17);
    free(numbers - 1);
}

static void expect(double found, double wanted, double size, double terms)
{
    if (!(fabs(found - wanted) <= 2 * UNIT * (terms + 1) * (size + fabs(wanted))))
        fail_msg("%.9g, not %.9g", found, wanted);
}

/* Rows of random sequences, in two parts: what the first rows of the second one meet lies
   before it. */
static void short_convs_meet_their_sequence(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(80); round++) {
        rng r = { (uint64_t)round };
        int64_t count = rng_int(&r, 1, 6), offsets[7] = { 0 };
        for (int64_t i = 0; i < count; i++)
            offsets[i + 1] = offsets[i] + rng_int(&r, 1, 50);
        int64_t rows = offsets[count], width = rng_int(&r, 1, 70);
        int64_t taps = rng_int(&r, 1, 5), stride = rows + rng_int(&r, 0, 3);
        float *x = make_random(&r, rows * width), *y = make_random(&r, width * stride);
        float *k = make_random(&r, taps * width), *shift = make_random(&r, width);
        int64_t cut = rng_int(&r, 0, rows - 1);
        for (int part = 0; part < 2; part++) {
            int64_t first = part ? cut : 0;
            nn_short o = { .sequences = { count, offsets },
                           .first = first,
                           .rows = part ? rows - cut : cut,
                           .width = width,
                           .taps = taps,
                           .stride = stride,
                           .x = x + first * width,
                           .k = k,
                           .shift = shift,
                           .y = y + first };
            assert_ok(device->backend->nn->short_conv(device, &o));
        }
        for (int64_t i = 0; i < width; i++)
            for (int64_t s = 0; s < count; s++)
                for (int64_t t = offsets[s]; t < offsets[s + 1]; t++) {
                    double wanted = shift[i], size = fabs(wanted);
                    for (int64_t n = 0; n < taps && t - n >= offsets[s]; n++) {
                        double term = (double)k[n * width + i] * x[(t - n) * width + i];
                        wanted += term;
                        size += fabs(term);
                    }
                    expect(y[i * stride + t], wanted, size, (double)taps);
                }
        end(x, rows * width);
        end(y, width * stride);
        end(k, taps * width);
        end(shift, width);
    }
}

static void rows_are_turned_back(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(40); round++) {
        rng r = { (uint64_t)round };
        int64_t channels = rng_int(&r, 1, 60), rows = rng_int(&r, 1, 60);
        int64_t pitch = rows + rng_int(&r, 0, 5);
        float *x = make_random(&r, channels * pitch);
        float *y = make_random(&r, rows * channels);
        nn_turn o = { .rows = channels,
                      .width = rows,
                      .stride = channels,
                      .pitch = pitch,
                      .x = x,
                      .y = y };
        assert_ok(device->backend->nn->turn(device, &o));
        for (int64_t t = 0; t < rows; t++)
            for (int64_t i = 0; i < channels; i++)
                assert_true(y[t * channels + i] == x[i * pitch + t]);
        end(x, channels * pitch);
        end(y, rows * channels);
    }
}

static void heads_are_multiplied_and_contracted(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(40); round++) {
        rng r = { (uint64_t)round };
        int64_t heads = rng_int(&r, 1, 4), d = rng_int(&r, 1, 5);
        int64_t n = rng_int(&r, 1, 300), size = heads * d * n;
        float *a = make_random(&r, size), *b = make_random(&r, size);
        float *y = make_random(&r, size * d), *z = make_random(&r, size);
        const nn_backend *nn = device->backend->nn;
        nn_heads o = { .heads = heads, .size = d, .length = n };
        o.a = a, o.b = b, o.y = y;
        assert_ok(nn->outer(device, &o));
        o.a = b, o.b = y, o.y = z;
        assert_ok(nn->contract(device, &o));
        for (int64_t h = 0; h < heads; h++)
            for (int64_t j = 0; j < d; j++)
                for (int64_t t = 0; t < n; t++) {
                    double wanted = 0, sum = 0;
                    for (int64_t i = 0; i < d; i++) {
                        int64_t at = (h * d + i) * n + t, to = (h * d + j) * n + t;
                        double term = (double)a[at] * b[to];
                        expect(y[((h * d + i) * d + j) * n + t], term, fabs(term), 1);
                        wanted += b[at] * term;
                        sum += fabs(b[at] * term);
                    }
                    expect(z[(h * d + j) * n + t], wanted, sum, (double)d);
                }
        end(a, size);
        end(b, size);
        end(y, size * d);
        end(z, size);
    }
}

static void products_are_made_in_place(void **state)
{
    (void)state;
    rng r = { 8 };
    const int64_t count = 50001;
    float *a = make_random(&r, count), *b = make_random(&r, count);
    float *wanted = make_random(&r, count);
    for (int64_t i = 0; i < count; i++)
        wanted[i] = a[i] * b[i];
    assert_ok(device->backend->nn->multiply(
        device, &(nn_multiply){ .count = count, .a = a, .b = b, .y = b }));
    assert_memory_equal(b, wanted, (size_t)count * sizeof *b);
    end(a, count);
    end(b, count);
    end(wanted, count);
}

static void likelihoods_are_logarithms_of_softmax(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(40); round++) {
        rng r = { (uint64_t)round };
        int64_t rows = rng_int(&r, 1, 30), width = rng_int(&r, 1, 500);
        float *x = make_random(&r, rows * width), *y = make_random(&r, rows);
        int32_t targets[30];
        double wanted[30];
        for (int64_t t = 0; t < rows; t++) {
            double sum = 0;
            for (int64_t i = 0; i < width; i++)
                sum += exp(x[t * width + i] *= 20);
            targets[t] = (int32_t)rng_int(&r, -1, width - 1);
            wanted[t] = targets[t] < 0 ? 0 : x[t * width + targets[t]] - log(sum);
        }
        nn_likelihood o = { rows, width, x, targets, y };
        assert_ok(device->backend->nn->likelihood(device, &o));
        /* Differences of numbers up to 20, and exponentials of up to 40. */
        for (int64_t t = 0; t < rows; t++)
            if (!(fabs(y[t] - wanted[t]) <= UNIT * ((double)width + 100 + 40)))
                fail_msg("%.9g, not %.9g", y[t], wanted[t]);
        end(x, rows * width);
        end(y, rows);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_convs_meet_their_sequence),
        cmocka_unit_test(rows_are_turned_back),
        cmocka_unit_test(heads_are_multiplied_and_contracted),
        cmocka_unit_test(products_are_made_in_place),
        cmocka_unit_test(likelihoods_are_logarithms_of_softmax),
    };
    device = device_from_arguments(argc, argv);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
