/* Short filters. */
// SPDX-License-Identifier: Apache-2.0
#include "model/hyena/short_conv.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"

/* k[s][i] = weight[i][0][taps - 1 - s] */
static danaus_status turn_taps(short_conv *f, binder *b, const danaus_tensor *weight)
{
    int64_t count = f->width * f->taps;
    void *memory;
    TRY(dn_memory_add(b->copies, count * (int64_t)sizeof(float), &memory));
    if (b->copies->outline)
        return DANAUS_OK;
    float *given = dn_alloc(2 * (size_t)count * sizeof *given);
    if (!given)
        return dn_fail_memory((size_t)count * sizeof *given, "taps");
    float *turned = given + count;
    dn_convert(weight->dtype, weight->data, DANAUS_F32, given, count);
    for (int64_t i = 0; i < f->width; i++)
        for (int64_t s = 0; s < f->taps; s++)
            turned[s * f->width + i] = given[i * f->taps + f->taps - 1 - s];
    danaus_status status =
        dn_put_numbers(b->device, DANAUS_F32, turned, DANAUS_F32, memory, count);
    dn_free(given);
    f->k = memory;
    return status;
}

danaus_status dn_short_conv_bind(
    short_conv *f, binder *b, const char *name, int64_t width, int64_t taps)
{
    const tensor_name weight = dn_name("%s.weight", name);
    const float *found;
    danaus_tensor t;
    *f = (short_conv){ .width = width, .taps = taps, .dtype = b->dtype };
    TRY(dn_bind(b, dn_name("%s.bias", name).text, 1, &width, &f->shift));
    TRY(dn_bind(b, weight.text, 3, (const int64_t[]){ width, 1, taps }, &found));
    if (!found)
        return DANAUS_OK;
    dn_binder_find(b, weight.text, &t);
    return turn_taps(f, b, &t);
}

danaus_status dn_short_conv_run(
    const short_conv *f, danaus_device *device, const nn_sequences *sequences,
    int64_t first, int64_t rows, const void *x, void *y, int64_t stride)
{
    return device->backend->nn->short_conv(
        device, &(nn_short){ .sequences = *sequences,
                             .first = first,
                             .rows = rows,
                             .width = f->width,
                             .taps = f->taps,
                             .stride = stride,
                             .x = x,
                             .k = f->k,
                             .shift = f->shift,
                             .y = y,
                             .dtype = f->dtype });
}
