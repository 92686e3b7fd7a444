/* What the bundle of the Python package is for: calls for layers that networks commonly
   have, as the package's operators make them (python/torch/ks.cpp, conv.cpp).

       bundle_layers DEVICE SUITE...

   plans and packs for every chain of the suites, and runs convolutions, so that all their
   kernels are compiled, or are found in the cache or in a bundle. Products are not run:
   a plan makes ready whatever its products and gradients need. */
// SPDX-License-Identifier: Apache-2.0
#include "common/suite.h"

#include <stdio.h>
#include <stdlib.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- products ---- */

typedef struct numbers {
    danaus_dtype dtype;
    danaus_math math;
} numbers;

static const numbers product_types[] = {
    { DANAUS_F32, DANAUS_MATH_F32 },
    { DANAUS_F32, DANAUS_MATH_TF32 },
    { DANAUS_F16, DANAUS_MATH_F32 },
    { DANAUS_BF16, DANAUS_MATH_F32 },
};

/* Operators round a batch up to a power of two; 0 is what frozen layers are planned for. */
static const int64_t batches[] = { 0, 8, 256, 32768 };

/* Weights that stay, those of a call alone, training. */
enum { STAYING, FRESH, TRAINING, USES };

static danaus_status plan_product(
    danaus_device *device, const suite_problem *p, const danaus_ks_desc *desc)
{
    danaus_ks_plan *plan = NULL;
    danaus_ks_weights *weights = NULL;
    danaus_status status =
        danaus_ks_plan_create(device, p->patterns, p->count, desc, &plan);
    if (status == DANAUS_OK)
        status = danaus_ks_weights_create_unbound(plan, device, &weights);
    danaus_ks_weights_destroy(weights);
    danaus_ks_plan_destroy(plan);
    return status;
}

/* Layers that widen what they are given end with GELU, too. */
static int widens(const suite_problem *p)
{
    const danaus_pattern *first = &p->patterns[0], *last = &p->patterns[p->count - 1];
    return first->a * first->b * first->d > last->a * last->c * last->d;
}

static danaus_status plan_uses(
    danaus_device *device, const suite_problem *p, const numbers *n, int64_t batch)
{
    for (int use = 0; use < USES; use++) {
        danaus_ks_desc desc = { .dtype = n->dtype,
                                .math = n->math,
                                .batch = batch,
                                .bias = 1,
                                .fresh_weights = use != STAYING,
                                .gradients = use == TRAINING };
        danaus_status status = plan_product(device, p, &desc);
        desc.activation = DANAUS_GELU;
        if (status == DANAUS_OK && use != TRAINING && widens(p))
            status = plan_product(device, p, &desc);
        if (status != DANAUS_OK)
            return status;
    }
    return DANAUS_OK;
}

static danaus_status plan_products(danaus_device *device, const suite *s)
{
    danaus_status status = DANAUS_OK;
    for (int i = 0; i < s->count; i++)
        for (size_t t = 0; t < COUNT(product_types); t++)
            for (size_t b = 0; b < COUNT(batches) && status == DANAUS_OK; b++)
                status =
                    plan_uses(device, &s->problems[i], &product_types[t], batches[b]);
    return status;
}

/* ---- convolutions ---- */

static const danaus_dtype conv_types[] = { DANAUS_F16, DANAUS_BF16 };

#define CHANNELS 768
#define LONGEST  8192
#define ARRAYS   12 /* of device memory: u, two gates, y, dy, filters, and gradients */
#define BYTES    ((size_t)CHANNELS * LONGEST * 4) /* filters are f32 */

/* With gates, so that kernels for both are needed, and without. */
static danaus_status run_long(
    danaus_device *device, const danaus_conv_plan *plan, danaus_spectrum *spectrum,
    void *const *at)
{
    danaus_status status =
        danaus_spectrum_update_from(spectrum, device, DANAUS_F32, at[5], NULL, at[6]);
    for (int gated = 0; gated < 2 && status == DANAUS_OK; gated++) {
        void *in = gated ? at[1] : NULL, *out = gated ? at[2] : NULL;
        danaus_conv_gradients g = { .du = at[7],
                                    .dgate_in = gated ? at[8] : NULL,
                                    .dgate_out = gated ? at[9] : NULL,
                                    .dk = at[10],
                                    .dskip = at[11] };
        status = danaus_conv_execute(plan, device, spectrum, 1, at[0], in, out, at[3]);
        if (status == DANAUS_OK)
            status = danaus_conv_gradient(
                plan, device, spectrum, 1, at[0], in, out, at[4], &g);
    }
    return status;
}

static danaus_status run_long_convolutions(danaus_device *device, void *const *at)
{
    danaus_status status = DANAUS_OK;
    for (size_t t = 0; t < COUNT(conv_types); t++)
        for (int64_t n = 512; n <= LONGEST && status == DANAUS_OK; n *= 2) {
            danaus_conv_desc desc = { .channels = CHANNELS,
                                      .length = n,
                                      .filter_length = n,
                                      .filters = CHANNELS,
                                      .dtype = conv_types[t] };
            danaus_conv_plan *plan = NULL;
            danaus_spectrum *spectrum = NULL;
            status = danaus_conv_plan_create(device, &desc, &plan);
            if (status == DANAUS_OK)
                status =
                    danaus_spectrum_create(plan, device, NULL, NULL, NULL, &spectrum);
            if (status == DANAUS_OK)
                status = run_long(device, plan, spectrum, at);
            danaus_spectrum_destroy(spectrum);
            danaus_conv_plan_destroy(plan);
        }
    return status;
}

static danaus_status run_short(
    danaus_device *device, const danaus_short_desc *desc, void *const *at)
{
    danaus_short_gradients all = { .du = at[7], .dk = at[10], .dbias = at[11] };
    danaus_status status =
        danaus_short_conv(device, desc, 1, at[5], at[6], at[0], at[3]);
    if (status == DANAUS_OK)
        status = danaus_short_conv_gradient(device, desc, 1, at[5], at[0], at[4], &all);
    return status;
}

static danaus_status run_short_convolutions(danaus_device *device, void *const *at)
{
    static const int64_t taps[] = { 3, 4, 7 };
    danaus_status status = DANAUS_OK;
    for (size_t t = 0; t < COUNT(conv_types); t++)
        for (int layout = 0; layout < 2; layout++)
            for (size_t i = 0; i < COUNT(taps) && status == DANAUS_OK; i++) {
                danaus_short_desc desc = { .channels = CHANNELS,
                                           .length = 2048,
                                           .taps = taps[i],
                                           .layout = (danaus_channels)layout,
                                           .dtype = conv_types[t] };
                status = run_short(device, &desc, at);
            }
    return status;
}

static danaus_status run_convolutions(danaus_device *device)
{
    void *at[ARRAYS] = { NULL };
    danaus_status status = DANAUS_OK;
    for (int i = 0; i < ARRAYS && status == DANAUS_OK; i++)
        status = danaus_alloc(device, BYTES, &at[i]);
    if (status == DANAUS_OK)
        status = run_long_convolutions(device, at);
    if (status == DANAUS_OK)
        status = run_short_convolutions(device, at);
    for (int i = 0; i < ARRAYS; i++)
        danaus_free(device, at[i]);
    return status;
}

int main(int argc, char **argv)
{
    danaus_device *device = NULL;
    if (argc < 3) {
        fprintf(stderr, "usage: bundle_layers DEVICE SUITE...\n");
        return 1;
    }
    danaus_status status = danaus_device_open(argv[1], &device);
    for (int i = 2; i < argc && status == DANAUS_OK; i++) {
        suite s;
        if (suite_read(argv[i], &s))
            return 1;
        status = plan_products(device, &s);
        suite_free(&s);
    }
    if (status == DANAUS_OK)
        status = run_convolutions(device);
    if (status != DANAUS_OK)
        fprintf(stderr, "%s\n", danaus_error_detail());
    danaus_device_close(device);
    return status != DANAUS_OK;
}
