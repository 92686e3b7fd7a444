/* A small vision transformer on every device and in every type, against the plainest instructions
   of the processor. tests/cli/test_vit.py compares these with NumPy. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/device.h"
#include "support/files.h"
#include "support/scenes.h"
#include "support/vit.h"

#include "device/backend.h"

#include <math.h>
#include <stdlib.h>

#define IMAGES 9
/* Errors against what noise in the weights moves, in four runs. */
#define BOUND 8

static danaus_device *device, *plain;

static float *classify(danaus_model *model, danaus_device *on, const float *pixels)
{
    float *scores = calloc(IMAGES * VIT_CLASSES, sizeof *scores);
    assert_non_null(scores);
    assert_ok(danaus_model_classify(model, on, IMAGES, pixels, scores));
    danaus_model_destroy(model);
    return scores;
}

static double distance(const float *a, const float *b)
{
    double most = 0;
    for (int i = 0; i < IMAGES * VIT_CLASSES; i++) {
        double here = fabs((double)a[i] - b[i]);
        if (here > most) /* gcc 12 breaks off at fmax() here, for 64-bit Arm */
            most = here;
    }
    return most;
}

/* How far scores move where every weight does by a part of `unit`. */
static double moved_by(uint64_t seed, double unit, const float *pixels)
{
    float *wanted = classify(vit_load(&(rng){ seed }, plain), plain, pixels);
    double most = 0;
    for (uint64_t run = 0; run < 4; run++) {
        rng noise = { run };
        danaus_model *near = vit_load_near(&(rng){ seed }, plain, 0, &noise, unit);
        float *found = classify(near, plain, pixels);
        most = fmax(most, distance(found, wanted));
        free(found);
    }
    free(wanted);
    return most;
}

/* What is rounded, weights or rows, is by half a unit of the type in which it is stored; sums
   have 20 terms at most. */
static void expect_scores(uint64_t seed, danaus_dtype dtype, double unit)
{
    float pixels[IMAGES * VIT_IMAGE];
    rng r = { seed + 50 };
    for (int i = 0; i < IMAGES * VIT_IMAGE; i++)
        pixels[i] = (float)rng_sign(&r);
    float *wanted = classify(vit_load(&(rng){ seed }, plain), plain, pixels);
    danaus_model *model = vit_load_near(&(rng){ seed }, device, dtype, NULL, 0);
    expect_outline(model, device);
    float *found = classify(model, device, pixels);
    double moved = moved_by(seed, 2 * unit + 0x1p-24 * sqrt(20), pixels);
    for (int i = 0; i < IMAGES * VIT_CLASSES; i++)
        if (!(fabs((double)found[i] - wanted[i]) <= BOUND * moved))
            fail_msg(
                "%s: score %d is %.9g, not %.9g; %g is allowed",
                danaus_dtype_name(dtype), i, found[i], wanted[i], BOUND * moved);
    free(found);
    free(wanted);
}

static void scores_are_those_of_plain_instructions(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 6; seed++)
        expect_scores(seed, DANAUS_F32, 0);
}

static void rows_may_have_sixteen_bits(void **state)
{
    (void)state;
    if (device->backend->on_host) {
        print_message("16 bits are for GPUs\n");
        skip();
    }
    for (uint64_t seed = 0; seed < 4; seed++) {
        expect_scores(seed, DANAUS_F16, 0x1p-11);
        expect_scores(seed, DANAUS_BF16, 0x1p-8);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_those_of_plain_instructions),
        cmocka_unit_test(rows_may_have_sixteen_bits),
    };
    device = device_from_arguments(argc, argv);
    assert_ok(danaus_device_open("cpu:scalar", &plain));
    int failed = cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
    danaus_device_close(plain);
    danaus_device_close(device);
    return failed;
}
