/* Cayley transforms of blocks: checks of the arguments. */
// SPDX-License-Identifier: Apache-2.0
#include "danaus/algebra.h"

#include "base/byte_range.h"
#include "base/mem.h"
#include "base/status.h"
#include "device/backend.h"
#include "device/nn.h"

#include <inttypes.h>

static danaus_status check_device(const danaus_device *device, const nn_cayley *o)
{
    const backend *b = device->backend;
    if (!b->nn || !b->nn->cayley)
        return dn_fail(DANAUS_ERR_UNSUPPORTED, "the device has no Cayley transforms");
    if (b->on_host)
        return DANAUS_OK;
    if (o->dtype == DANAUS_F32 && o->size <= DANAUS_CAYLEY_MOST)
        return DANAUS_OK;
    return dn_fail(
        DANAUS_ERR_UNSUPPORTED,
        "blocks of %" PRId64 " rows in %s; a GPU takes up to %d, in f32", o->size,
        danaus_dtype_name(o->dtype), DANAUS_CAYLEY_MOST);
}

/* Sets the bytes of an array. */
static danaus_status check_sizes(
    const danaus_device *device, const nn_cayley *o, size_t *bytes)
{
    int64_t numbers, most;
    if (!device)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a device is needed");
    if (o->dtype != DANAUS_F32 && o->dtype != DANAUS_F64)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "%s (%d) is not f32 or f64",
            danaus_dtype_name(o->dtype), o->dtype);
    if (o->count < 0 || o->size < 1)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "%" PRId64 " blocks of %" PRId64 " rows", o->count,
            o->size);
    /* Workers have a few matrices each. */
    if (dn_mul_overflows(o->size, o->size, &most) ||
        dn_mul_overflows(most, 1 << 20, &most) ||
        dn_mul_overflows(most, o->count, &numbers))
        return dn_fail(DANAUS_ERR_SHAPE, "the blocks have no size");
    *bytes = (size_t)(o->count * o->size * o->size) * danaus_dtype_size(o->dtype);
    return check_device(device, o);
}

static danaus_status run(danaus_device *device, const nn_cayley *o)
{
    return device->backend->nn->cayley(device, o);
}

danaus_status danaus_cayley(
    danaus_device *device, danaus_dtype dtype, int64_t count, int64_t size,
    int transposed, const void *r, void *q)
{
    size_t bytes = 0;
    nn_cayley o = { count, size, transposed ? -1 : 1, r, NULL, q, dtype };
    TRY(check_sizes(device, &o, &bytes));
    if (count == 0)
        return DANAUS_OK;
    if (!r || !q)
        return dn_fail(DANAUS_ERR_ARGUMENT, "r and q are needed");
    TRY(dn_check_apart(
        1, &(byte_range){ "q", q, bytes }, 1, &(byte_range){ "r", r, bytes }));
    return run(device, &o);
}

danaus_status danaus_cayley_gradient(
    danaus_device *device, danaus_dtype dtype, int64_t count, int64_t size,
    int transposed, const void *q, const void *dq, void *dr)
{
    size_t bytes = 0;
    nn_cayley o = { count, size, transposed ? -1 : 1, q, dq, dr, dtype };
    TRY(check_sizes(device, &o, &bytes));
    if (count == 0)
        return DANAUS_OK;
    if (!q || !dq || !dr)
        return dn_fail(DANAUS_ERR_ARGUMENT, "q, dq and dr are needed");
    const byte_range in[] = { { "q", q, bytes }, { "dq", dq, dr == dq ? 0 : bytes } };
    TRY(dn_check_apart(1, &(byte_range){ "dr", dr, bytes }, 2, in));
    return run(device, &o);
}
