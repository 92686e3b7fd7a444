/* Limits of launches and of scratch, in small: rows that turn x and y, slab after slab of
   columns, with slabs that are as small as they get; vectors between steps; more factors
   than are packed at once. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "gpu/gpu.h"
#include "support/chains.h"
#include "support/device.h"

#include <stdlib.h>

enum { SLAB = 1024 }; /* columns at least */

static void slabs_follow_each_other(void **state)
{
    static const int64_t batches[] = { SLAB, SLAB + 1, 2 * SLAB, 2 * SLAB + 77 };
    danaus_device *device = *state;
    int64_t usual = dn_gpu_most_turned;
    const danaus_pattern p = { 2, 5, 6, 3 };
    int checked = 0;
    dn_gpu_most_turned = 1;
    for (const kernel *k = device->kernels; k->name; k++) {
        rng r = { (uint64_t)checked };
        danaus_ks_desc desc = { .dtype = k->dtype, .layout = DANAUS_BATCH_FIRST };
        random_chain c = chain_random(&r, &p, 1, k->dtype, checked % 2);
        problem q = { .pattern = p, .dtype = k->dtype, .layout = desc.layout };
        int64_t batch = batches[checked % 4];
        if (!dn_fits(k, &q)) {
            chain_free(&c);
            continue;
        }
        assert_int_equal(dn_gpu_turned_plan(k, &q, batch).columns, SLAB);
        check_product(&r, device, &c, &desc, batch);
        chain_free(&c);
        checked++;
    }
    dn_gpu_most_turned = usual;
    assert_true(checked >= 4); /* f32, f64, c64, c128 */
}

/* What lies between steps takes turns in two places, beside x and y that are turned. */
static void scratch_has_room_for_two_vectors_and_a_slab(void **state)
{
    danaus_device *device = *state;
    const danaus_pattern p[] = { { 1, 4, 4, 16 }, { 4, 4, 4, 4 }, { 2, 4, 4, 8 } };
    danaus_ks_desc desc = { .layout = DANAUS_BATCH_FIRST, .keep_factors = 1 };
    danaus_ks_plan *plan = NULL;
    size_t bytes = 0, vector = (size_t)64 * SLAB * sizeof(float);
    assert_ok(danaus_ks_plan_create(device, p, 3, &desc, &plan));
    assert_ok(danaus_ks_scratch_bytes(plan, device, SLAB, &bytes, NULL));
    assert_in_range(bytes, 4 * vector, 5 * vector - 1);
    danaus_ks_plan_destroy(plan);
}

/* More than one launch has room for: the numbers of a chain that the host packs. */
static void many_factors_are_packed_on_the_device(void **state)
{
    danaus_device *device = *state;
    enum { FACTORS = 40, SIDE = 4 };
    danaus_pattern p[FACTORS];
    rng r = { 1 };
    for (int l = 0; l < FACTORS; l++)
        p[l] = (danaus_pattern){ 1, 2, 2, 2 };
    random_chain c = chain_random(&r, p, FACTORS, DANAUS_F64, 0);
    danaus_ks_desc desc = { .dtype = DANAUS_F64, .keep_factors = 1 };
    danaus_ks_plan *plan = NULL;
    danaus_ks_weights *weights = NULL;
    array x = array_random(&r, DANAUS_F64, SIDE), y[2];
    void *w[FACTORS], *on_x = to_device(device, &x);
    assert_ok(danaus_ks_plan_create(device, p, FACTORS, &desc, &plan));
    for (int l = 0; l < FACTORS; l++)
        w[l] = to_device(device, &c.w[l]);
    for (int from_device_memory = 0; from_device_memory < 2; from_device_memory++) {
        array *result = &y[from_device_memory];
        const danaus_chain *chain = from_device_memory ? NULL : c.chain;
        *result = array_make(DANAUS_F64, SIDE);
        void *on_y = to_device(device, result);
        assert_ok(danaus_ks_weights_create(plan, device, chain, &weights));
        if (from_device_memory)
            assert_ok(danaus_ks_weights_update_from(
                weights, device, DANAUS_F64, (const void *const *)w, NULL));
        assert_ok(danaus_ks_execute(plan, device, weights, 1, on_x, on_y));
        from_device(device, result, on_y);
        danaus_ks_weights_destroy(weights);
    }
    assert_true(array_same(&y[0], &y[1]));
    for (int l = 0; l < FACTORS; l++)
        from_device(device, &c.w[l], w[l]);
    from_device(device, &x, on_x);
    array_free(&x);
    array_free(&y[0]);
    array_free(&y[1]);
    danaus_ks_plan_destroy(plan);
    chain_free(&c);
}

int main(int argc, char **argv)
{
    setenv("DANAUS_TEST_ROWS", "ks.turned", 1);
    danaus_device *device = device_from_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(slabs_follow_each_other, device),
        cmocka_unit_test_prestate(scratch_has_room_for_two_vectors_and_a_slab, device),
        cmocka_unit_test_prestate(many_factors_are_packed_on_the_device, device),
    };
    int failed = cmocka_run_group_tests_name("slabs", tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
