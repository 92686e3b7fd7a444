/* Every row of a device that makes two factors at once, against the oracle: Monarch pairs
   and relatives of them, batches around the edges of tiles, operands that are and are
   not aligned. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "device/backend.h"
#include "support/device.h"
#include "support/pairs.h"

static const danaus_pattern pairs[][2] = {
    /* the outer factor, the inner one */
    { { 1, 128, 128, 64 }, { 64, 128, 128, 1 } },
    { { 1, 64, 64, 64 }, { 64, 64, 64, 1 } },
    { { 2, 64, 64, 32 }, { 32, 128, 24, 1 } },
    { { 1, 32, 32, 64 }, { 64, 32, 32, 1 } },
    { { 3, 16, 32, 32 }, { 48, 64, 40, 1 } },
    { { 1, 48, 16, 16 }, { 16, 16, 64, 1 } },
    { { 2, 40, 24, 16 }, { 6, 128, 72, 1 } },
    { { 3, 100, 36, 24 }, { 24, 108, 20, 1 } },
};

#define PAIRS ((int)(sizeof pairs / sizeof *pairs))

/* The array where the device can reach it, aligned as allocations are, or badly. */
static void *place(danaus_device *dev, const array *a, int aligned)
{
    if (!aligned)
        return to_device(dev, a);
    void *copy = NULL;
    size_t bytes = (size_t)a->count * danaus_dtype_size(a->dtype);
    assert_ok(danaus_alloc(dev, bytes, &copy));
    assert_ok(danaus_upload(dev, copy, a->data, bytes));
    return copy;
}

static void take(danaus_device *dev, const array *a, void *copy, int aligned)
{
    if (!aligned) {
        from_device(dev, a, copy);
        return;
    }
    size_t bytes = (size_t)a->count * danaus_dtype_size(a->dtype);
    assert_ok(danaus_download(dev, a->data, copy, bytes));
    danaus_free(dev, copy);
}

static void check(rng *r, danaus_device *dev, const kernel *k, problem p, int aligned)
{
    pair_case c = pair_random(r, &p);
    array y = array_make(p.dtype, rows_of(p.pattern) * p.batch);
    weights_view inner = dn_weights_view(c.l.data, p.dtype, p.inner);
    weights_view outer = dn_weights_view(c.w.data, p.dtype, p.pattern);
    ks_step step = { p, k, 0 };
    step.p.residual = c.residual.count > 0;
    void *packed = NULL, *bias = bias_to_device(dev, &c.bias);
    outer.inner = &inner;
    assert_ok(danaus_alloc(dev, dn_packed_bytes(k, &p), &packed));
    assert_ok(dn_pack(dev, &step, outer, packed));
    const void *all[] = { packed };
    void *x = place(dev, &c.x, aligned), *to = place(dev, &y, aligned);
    void *residual = step.p.residual ? place(dev, &c.residual, aligned) : NULL;
    ks_operands o = { .batch = p.batch,
                      .x = x,
                      .packed = all,
                      .bias = bias,
                      .y = to,
                      .activation = c.activation,
                      .residual = residual };
    assert_ok(dev->backend->ks_run(dev, &step, 1, &o));
    take(dev, &c.x, x, aligned);
    take(dev, &y, to, aligned);
    if (residual)
        take(dev, &c.residual, residual, aligned);
    bias_from_device(dev, &c.bias, bias);
    pair_expect(&c, k, &y);
    danaus_free(dev, packed);
    array_free(&y);
    pair_free(&c);
}

/* A row takes two of the problems that it fits, another pair of them each time. */
static void rows_of_pairs_are_right(void **state)
{
    static const int64_t batches[] = { 1, 24, 47, 65, 130, 300 };
    danaus_device *dev = *state;
    int number = 0, all = 0;
    for (const kernel *k = dev->kernels; k->name; k++, number++)
        for (int i = 0, checked = 0; i < PAIRS && checked < 2; i++) {
            const danaus_pattern *pair = pairs[(i + number) % PAIRS];
            rng r = { (uint64_t)(number * PAIRS + i) };
            problem p = { .pattern = pair[0],
                          .inner = pair[1],
                          .dtype = k->dtype,
                          .layout = DANAUS_BATCH_FIRST,
                          .math = DANAUS_MATH_TF32,
                          .batch = batches[(number + i) % 6] };
            if (!dn_fits(k, &p))
                continue;
            check(&r, dev, k, p, ++checked % 2);
            all++;
        }
    if (!all) /* no row of this device does */
        skip();
}

int main(int argc, char **argv)
{
    danaus_device *dev = device_from_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(rows_of_pairs_are_right, dev),
    };
    int failed = cmocka_run_group_tests_name("pairs", tests, NULL, NULL);
    danaus_device_close(dev);
    return failed;
}
