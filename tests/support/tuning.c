// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/tuning.h"

#include <string.h>

static int fits_all(const kernel *k, const problem *p)
{
    (void)k, (void)p;
    return 1;
}

static int fits_wide(const kernel *k, const problem *p)
{
    (void)k;
    return p->pattern.b >= 2;
}

static const kernel_family all = { .fits = fits_all }, wide = { .fits = fits_wide };
static const kernel_family gradients = { DN_WEIGHT_GRADIENT, .fits = fits_all };

const kernel tuning_kernels[] = {
    { .name = "ks.plain", .dtype = DANAUS_F32, .family = &all },
    { .name = "ks.plain", .dtype = DANAUS_C64, .family = &all },
    { .name = "ks.wide", .dtype = DANAUS_F32, .family = &wide },
    { .name = "ks.gradient", .dtype = DANAUS_F32, .family = &gradients },
    { 0 },
};

static danaus_status describe(const danaus_device *dev, danaus_device_info *info)
{
    (void)dev;
    *info = (danaus_device_info){ .description = "Maker, \"Model\" 7",
                                  .instructions = "avx9",
                                  .threads = 2 };
    return DANAUS_OK;
}

const conv_kernel tuning_conv_kernel = { .name = "conv.plain", .dtype = DANAUS_F32 };

static const conv_kernel *conv_kernel_at(const danaus_device *dev, int index)
{
    (void)dev;
    return index == 0 ? &tuning_conv_kernel : NULL;
}

static const conv_backend convolutions = { .kernel = conv_kernel_at };
static const backend fake = { .name = "cpu",
                              .describe = describe,
                              .conv = &convolutions };
const danaus_device tuning_device = { &fake, "cpu:avx9", tuning_kernels, NULL };

tuning *table_of(const char *content)
{
    tuning *table = NULL;
    int64_t skipped;
    assert_ok(dn_tuning_create(&table));
    assert_ok(
        dn_tuning_read(table, &tuning_device, content, strlen(content), &skipped));
    assert_int_equal(skipped, 0);
    return table;
}
