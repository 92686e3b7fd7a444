/* Normalisations of rows. */
// SPDX-License-Identifier: Apache-2.0
#include "model/affine.h"

#include "base/mem.h"
#include "base/status.h"
#include "device/backend.h"

static danaus_status make_zeros(binder *b, int64_t count, const float **zeros)
{
    size_t bytes = (size_t)count * sizeof(float);
    void *memory;
    TRY(dn_memory_add(b->copies, (int64_t)bytes, &memory));
    *zeros = memory;
    if (b->copies->outline)
        return DANAUS_OK;
    void *made = dn_calloc(1, bytes);
    if (!made)
        return dn_fail_memory(bytes, "zeros");
    danaus_status status = danaus_upload(b->device, memory, made, bytes);
    dn_free(made);
    return status;
}

danaus_status dn_affine_bind(
    affine *norm, binder *b, const char *name, int64_t width, double epsilon)
{
    norm->epsilon = (float)epsilon;
    norm->dtype = b->dtype;
    TRY(dn_bind(b, dn_name("%s.weight", name).text, 1, &width, &norm->scale));
    if (b->unshifted)
        return make_zeros(b, width, &norm->shift);
    return dn_bind(b, dn_name("%s.bias", name).text, 1, &width, &norm->shift);
}

static danaus_status run(
    const affine *norm, danaus_device *device, int64_t rows, int64_t width,
    const void *x, const void *more, void *y, void *sum)
{
    return device->backend->nn->norm(
        device, &(nn_norm){ .rows = rows,
                            .width = width,
                            .x = x,
                            .more = more,
                            .scale = norm->scale,
                            .shift = norm->shift,
                            .epsilon = norm->epsilon,
                            .y = y,
                            .sum = sum,
                            .dtype = norm->dtype,
                            .wide_x = norm->wide,
                            .wide_y = norm->wide && y == x });
}

danaus_status dn_affine_run(
    const affine *norm, danaus_device *device, int64_t rows, int64_t width,
    const void *x, const void *more, void *y)
{
    return run(norm, device, rows, width, x, more, y, NULL);
}

danaus_status dn_affine_add(
    const affine *norm, danaus_device *device, int64_t rows, int64_t width, void *x,
    const void *more, void *y)
{
    return run(norm, device, rows, width, x, more, y, more ? x : NULL);
}
