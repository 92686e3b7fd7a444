/* What models with long convolutions need beside them, against plain loops of f64: few taps
   turned into channels, rows turned back, products of channels, likelihoods. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/device.h"

#include "device/nn.h"

#include <math.h>

#define UNIT 0x1p-24

static danaus_device *device;

/* Random numbers with guards, and where the device has them. */
typedef struct numbers {
    array a;
    float *data, *at;
} numbers;

static numbers make_sized(rng *r, int64_t count, float most)
{
    numbers n = { .a = array_make(DANAUS_F32, count) };
    n.data = n.a.data;
    for (int64_t i = 0; i < count; i++)
        n.data[i] = most * (float)rng_sign(r);
    n.at = to_device(device, &n.a);
    return n;
}

static numbers make_random(rng *r, int64_t count) { return make_sized(r, count, 1); }

/* Brings back what the device wrote. */
static void fetch(const numbers *n) { copy_from_device(device, &n->a, n->at); }

static void end(numbers *n)
{
    from_device(device, &n->a, n->at);
    array_expect_guards(&n->a);
    array_free(&n->a);
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
        numbers x = make_random(&r, rows * width), y = make_random(&r, width * stride);
        numbers k = make_random(&r, taps * width), shift = make_random(&r, width);
        int64_t cut = rng_int(&r, 0, rows - 1);
        for (int part = 0; part < 2; part++) {
            int64_t first = part ? cut : 0;
            nn_short o = { .sequences = { count, offsets },
                           .first = first,
                           .rows = part ? rows - cut : cut,
                           .width = width,
                           .taps = taps,
                           .stride = stride,
                           .x = x.at + first * width,
                           .k = k.at,
                           .shift = shift.at,
                           .y = y.at + first };
            assert_ok(device->backend->nn->short_conv(device, &o));
        }
        fetch(&y);
        for (int64_t i = 0; i < width; i++)
            for (int64_t s = 0; s < count; s++)
                for (int64_t t = offsets[s]; t < offsets[s + 1]; t++) {
                    double wanted = shift.data[i], size = fabs(wanted);
                    for (int64_t n = 0; n < taps && t - n >= offsets[s]; n++) {
                        double term =
                            (double)k.data[n * width + i] * x.data[(t - n) * width + i];
                        wanted += term;
                        size += fabs(term);
                    }
                    expect(y.data[i * stride + t], wanted, size, (double)taps);
                }
        end(&x);
        end(&y);
        end(&k);
        end(&shift);
    }
}

static void rows_are_turned_back(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(40); round++) {
        rng r = { (uint64_t)round };
        int64_t channels = rng_int(&r, 1, 60), rows = rng_int(&r, 1, 60);
        int64_t pitch = rows + rng_int(&r, 0, 5);
        numbers x = make_random(&r, channels * pitch);
        numbers y = make_random(&r, rows * channels);
        nn_turn o = { .rows = channels,
                      .width = rows,
                      .stride = channels,
                      .pitch = pitch,
                      .x = x.at,
                      .y = y.at };
        assert_ok(device->backend->nn->turn(device, &o));
        fetch(&y);
        for (int64_t t = 0; t < rows; t++)
            for (int64_t i = 0; i < channels; i++)
                assert_true(y.data[t * channels + i] == x.data[i * pitch + t]);
        end(&x);
        end(&y);
    }
}

static void heads_are_multiplied_and_contracted(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(40); round++) {
        rng r = { (uint64_t)round };
        int64_t heads = rng_int(&r, 1, 4), d = rng_int(&r, 1, 5);
        int64_t n = rng_int(&r, 1, 300), size = heads * d * n;
        numbers a = make_random(&r, size), b = make_random(&r, size);
        numbers y = make_random(&r, size * d), z = make_random(&r, size);
        const nn_backend *nn = device->backend->nn;
        nn_heads o = { .heads = heads, .size = d, .length = n };
        o.a = a.at, o.b = b.at, o.y = y.at;
        assert_ok(nn->outer(device, &o));
        o.a = b.at, o.b = y.at, o.y = z.at;
        assert_ok(nn->contract(device, &o));
        fetch(&y);
        fetch(&z);
        for (int64_t h = 0; h < heads; h++)
            for (int64_t j = 0; j < d; j++)
                for (int64_t t = 0; t < n; t++) {
                    double wanted = 0, sum = 0;
                    for (int64_t i = 0; i < d; i++) {
                        int64_t at = (h * d + i) * n + t, to = (h * d + j) * n + t;
                        double term = (double)a.data[at] * b.data[to];
                        double is = y.data[((h * d + i) * d + j) * n + t];
                        expect(is, term, fabs(term), 1);
                        wanted += b.data[at] * term;
                        sum += fabs(b.data[at] * term);
                    }
                    expect(z.data[(h * d + j) * n + t], wanted, sum, (double)d);
                }
        end(&a);
        end(&b);
        end(&y);
        end(&z);
    }
}

static void products_are_made_in_place(void **state)
{
    (void)state;
    rng r = { 8 };
    const int64_t count = 50001;
    numbers a = make_random(&r, count), b = make_random(&r, count);
    numbers wanted = make_random(&r, count);
    for (int64_t i = 0; i < count; i++)
        wanted.data[i] = a.data[i] * b.data[i];
    assert_ok(device->backend->nn->multiply(
        device, &(nn_multiply){ .count = count, .a = a.at, .b = b.at, .y = b.at }));
    fetch(&b);
    assert_true(array_same(&b.a, &wanted.a));
    end(&wanted);
    end(&a);
    end(&b);
}

static void likelihoods_are_logarithms_of_softmax(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(40); round++) {
        rng r = { (uint64_t)round };
        int64_t rows = rng_int(&r, 1, 30), width = rng_int(&r, 1, 500);
        numbers x = make_sized(&r, rows * width, 20), y = make_random(&r, rows);
        int32_t targets[30];
        void *at = NULL;
        double wanted[30];
        for (int64_t t = 0; t < rows; t++) {
            double sum = 0;
            for (int64_t i = 0; i < width; i++)
                sum += exp(x.data[t * width + i]);
            targets[t] = (int32_t)rng_int(&r, -1, width - 1);
            wanted[t] = targets[t] < 0 ? 0 : x.data[t * width + targets[t]] - log(sum);
        }
        assert_ok(danaus_alloc(device, sizeof targets, &at));
        assert_ok(danaus_upload(device, at, targets, (size_t)rows * sizeof *targets));
        nn_likelihood o = { rows, width, x.at, at, y.at };
        assert_ok(device->backend->nn->likelihood(device, &o));
        fetch(&y);
        danaus_free(device, at);
        /* Differences of numbers up to 20, and exponentials of up to 40. */
        for (int64_t t = 0; t < rows; t++)
            if (!(fabs(y.data[t] - wanted[t]) <= UNIT * ((double)width + 100 + 40)))
                fail_msg("%.9g, not %.9g", y.data[t], wanted[t]);
        end(&x);
        end(&y);
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
