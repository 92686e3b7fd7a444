/* Models' operations on a GPU, where tables are left and sequences are many: each gives what
   the CPU's does, whose own tests are plain loops. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/device.h"

#include "backend/nn.h"
#include "base/numbers.h"
#include "gpu/nn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNIT 0x1p-24

static danaus_device *gpu, *cpu;

/* The same numbers on both. */
typedef struct pair {
    int64_t count;
    float *host, *device;
} pair;

static pair make(rng *r, int64_t count)
{
    pair p = { .count = count };
    size_t bytes = (size_t)count * sizeof *p.host;
    void *memory;
    p.host = malloc(bytes);
    assert_non_null(p.host);
    for (int64_t i = 0; i < count; i++)
        p.host[i] = (float)rng_sign(r);
    assert_ok(danaus_alloc(gpu, bytes, &memory));
    p.device = memory;
    assert_ok(danaus_upload(gpu, p.device, p.host, bytes));
    return p;
}

static void end(pair *p)
{
    danaus_free(gpu, p->device);
    free(p->host);
}

static void expect_same(const pair *p, double bound)
{
    size_t bytes = (size_t)p->count * sizeof *p->host;
    float *found = malloc(bytes);
    assert_non_null(found);
    assert_ok(danaus_download(gpu, found, p->device, bytes));
    for (int64_t i = 0; i < p->count; i++)
        if (!(fabs((double)found[i] - p->host[i]) <= bound))
            fail_msg(
                "number %d of %d is %.9g, not %.9g within %g", (int)i, (int)p->count,
                found[i], p->host[i], bound);
    free(found);
}

/* All but gradients, which only compression needs. */
static void no_operation_is_missing(void **state)
{
    (void)state;
    const char *at = (const char *)gpu->backend->nn;
    void (*function)(void), (*none)(void) = NULL;
    size_t count = offsetof(struct nn_backend, norm_gradient) / sizeof function;
    assert_in_range(count, 10, 100);
    for (size_t i = 0; i < count; i++)
        assert_memory_not_equal(at + i * sizeof function, &none, sizeof function);
}

static int64_t *random_offsets(rng *r, int64_t count, int64_t most)
{
    int64_t *offsets = calloc((size_t)count + 1, sizeof *offsets);
    assert_non_null(offsets);
    for (int64_t i = 0; i < count; i++)
        offsets[i + 1] = offsets[i] + rng_int(r, 1, most);
    return offsets;
}

/* Scores are sums of `head` products of numbers in [-1, 1]; y is a mean of such numbers. */
static void attend(rng *r, int64_t sequences, int64_t most, int64_t heads, int64_t head)
{
    int64_t *offsets = random_offsets(r, sequences, most), width = heads * head;
    int64_t numbers = offsets[sequences] * width;
    pair q = make(r, numbers), k = make(r, numbers), v = make(r, numbers);
    pair y = make(r, numbers);
    nn_attention o = {
        { sequences, offsets }, width, heads, q.host, k.host, v.host, y.host
    };
    assert_ok(cpu->backend->nn->attention(cpu, &o));
    o.q = q.device, o.k = k.device, o.v = v.device, o.y = y.device;
    assert_ok(gpu->backend->nn->attention(gpu, &o));
    double scores = sqrt((double)head) * ((double)head + 4);
    expect_same(&y, 2 * UNIT * (4 * scores + 2 * (double)most + 16));
    end(&q);
    end(&k);
    end(&v);
    end(&y);
    free(offsets);
}

static void attention_is_that_of_the_cpu(void **state)
{
    (void)state;
    rng r = { 1 };
    for (int round = 0; round < rounds_of(20); round++)
        attend(
            &r, rng_int(&r, 1, 5), rng_int(&r, 1, 140), rng_int(&r, 1, 3),
            rng_int(&r, 1, 70));
    attend(&r, 500, 3, 2, 5);
    attend(&r, 1, 65, 1, 129);
    attend(&r, 1, 40, 1, dn_gpu_most_head(&((gpu_device *)gpu)->facts));
}

static void wide_heads_are_refused(void **state)
{
    (void)state;
    rng r = { 2 };
    const int64_t offsets[] = { 0, 1 };
    pair x = make(&r, 513);
    nn_attention o = { { 1, offsets }, 513, 1, x.device, x.device, x.device, x.device };
    assert_status(gpu->backend->nn->attention(gpu, &o), DANAUS_ERR_UNSUPPORTED);
    assert_non_null(strstr(danaus_error_detail(), "513"));
    end(&x);
}

static void many_sequences_are_pooled(void **state)
{
    (void)state;
    for (int round = 0; round < 4; round++) {
        rng r = { (uint64_t)round };
        int64_t count = 100 * round + 200, width = rng_int(&r, 1, 200);
        int64_t *offsets = random_offsets(&r, count, 4);
        pair x = make(&r, offsets[count] * width), y = make(&r, count * width);
        nn_pool o = { { count, offsets }, width, round % 2, round / 2, x.host, y.host };
        assert_ok(cpu->backend->nn->pool(cpu, &o));
        o.x = x.device, o.y = y.device;
        assert_ok(gpu->backend->nn->pool(gpu, &o));
        /* Brought to length 1: numbers are at most 1, with errors of the length's. */
        expect_same(&y, 2 * UNIT * (double)(width + 16));
        end(&x);
        end(&y);
        free(offsets);
    }
}

/* Rows from the middle of some sequence on, of more than one table. */
static void few_taps_meet_many_sequences(void **state)
{
    (void)state;
    for (int round = 0; round < 6; round++) {
        rng r = { (uint64_t)round };
        int64_t count = 90 * round + 100, width = rng_int(&r, 1, 40);
        int64_t taps = rng_int(&r, 1, 6), *offsets = random_offsets(&r, count, 7);
        int64_t all = offsets[count], first = rng_int(&r, 0, all - 1);
        int64_t rows = rng_int(&r, 1, all - first), stride = rows + 3;
        pair x = make(&r, all * width), k = make(&r, taps * width);
        pair shift = make(&r, width), y = make(&r, width * stride);
        nn_short o = { { count, offsets },     first,  rows,       width, taps, stride,
                       x.host + first * width, k.host, shift.host, y.host };
        assert_ok(cpu->backend->nn->few_taps(cpu, &o));
        o.x = x.device + first * width, o.k = k.device, o.shift = shift.device;
        o.y = y.device;
        assert_ok(gpu->backend->nn->few_taps(gpu, &o));
        expect_same(&y, 2 * UNIT * (double)(taps + 1) * (double)(taps + 1));
        end(&x);
        end(&k);
        end(&shift);
        end(&y);
        free(offsets);
    }
}

/* What models met so far have no use for, or none whose numbers show. */
static void the_others_are_those_of_the_cpu(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(20); round++) {
        rng r = { (uint64_t)round };
        int64_t rows = rng_int(&r, 1, 9), width = rng_int(&r, 1, 300);
        int64_t n = rows * width;
        const nn_backend *on[] = { cpu->backend->nn, gpu->backend->nn };
        danaus_device *devices[] = { cpu, gpu };
        int32_t targets[9];
        void *device_targets;
        pair a = make(&r, n), b = make(&r, n), scale = make(&r, width);
        pair sum = make(&r, n), normed = make(&r, n), sine = make(&r, n);
        pair product = make(&r, n), score = make(&r, rows), turned = make(&r, n);
        pair times = make(&r, rows), activated = make(&r, n);
        for (int64_t i = 0; i < rows; i++)
            targets[i] = (int32_t)rng_int(&r, -1, width - 1);
        for (int64_t i = 0; i < rows; i++)
            times.host[i] = fabsf(times.host[i]);
        assert_ok(danaus_alloc(gpu, sizeof targets, &device_targets));
        assert_ok(danaus_upload(gpu, device_targets, targets, sizeof targets));
        assert_ok(danaus_upload(
            gpu, times.device, times.host, (size_t)rows * sizeof *times.host));
#define AT(p) (i ? (p).device : (p).host)
        for (int i = 0; i < 2; i++) {
            danaus_device *d = devices[i];
            assert_ok(on[i]->norm(
                d, &(nn_norm){ rows, width, AT(a), AT(b), AT(scale), AT(scale), 0.1f,
                               AT(normed), AT(sum) }));
            assert_ok(on[i]->sine(
                d, &(nn_sine){ rows, width, AT(a), AT(scale), 9, AT(sine) }));
            assert_ok(
                on[i]->multiply(d, &(nn_multiply){ n, AT(a), AT(b), AT(product) }));
            assert_ok(on[i]->turn(
                d, &(nn_turn){ rows, width, rows, 0, AT(a), AT(b), AT(scale), AT(times),
                               0.5f, AT(turned) }));
            assert_ok(on[i]->activate(
                d, &(nn_activation){ n, (danaus_activation)(round % 5), AT(a),
                                     AT(activated) }));
            const int32_t *to = i ? device_targets : targets;
            assert_ok(on[i]->likelihood(
                d, &(nn_likelihood){ rows, width, AT(b), to, AT(score) }));
        }
        expect_same(&sum, 0);
        expect_same(&product, 0);
        expect_same(&normed, 8 * UNIT * (double)(width + 16) * 10);
        expect_same(&sine, 32 * UNIT);
        expect_same(&turned, 16 * UNIT);
        expect_same(&activated, 16 * UNIT);
        expect_same(&score, 4 * UNIT * (double)(width + 16));
        danaus_free(gpu, device_targets);
        pair *const all[] = { &a,       &b,     &scale,  &sum,   &normed,   &sine,
                              &product, &score, &turned, &times, &activated };
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            end(all[i]);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_operation_is_missing),
        cmocka_unit_test(attention_is_that_of_the_cpu),
        cmocka_unit_test(wide_heads_are_refused),
        cmocka_unit_test(many_sequences_are_pooled),
        cmocka_unit_test(few_taps_meet_many_sequences),
        cmocka_unit_test(the_others_are_those_of_the_cpu),
    };
    gpu = device_from_arguments(argc, argv);
    assert_ok(danaus_device_open("cpu", &cpu));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    danaus_device_close(cpu);
    danaus_device_close(gpu);
    return failed;
}
