/* Compiles and loads all that the engines of a plan run, together, so that all threads have
   something to compile. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/run/conv/engine.h"

#include "base/mem.h"
#include "base/status.h"

/* All uses of the frames; returns their number. */
static int gather(
    const gpu_facts *facts, int count, const conv_frame *const *frames, gpu_use *uses)
{
    int all = 0;
    for (int i = 0; i < count; i++) {
        const conv_kernel *k = frames[i]->cut.kernel;
        gpu_conv_shape s;
        gpu_conv_mma mma[GPU_CONV_MMA_PARTS] = { { 0 } };
        dn_gpu_conv_shape_of(facts, frames[i], &s);
        if (k->fast)
            dn_gpu_conv_mma_of(facts, frames[i], mma);
        all += dn_gpu_conv_uses(
            &s, mma, k->dtype, dn_gpu_conv_half(frames[i]), uses + all);
    }
    return all;
}

danaus_status dn_gpu_conv_prepare(
    danaus_device *dev, int count, const conv_frame *const *frames)
{
    gpu_device *d = (gpu_device *)dev;
    size_t most = (size_t)count * CONV_FUNCTIONS;
    gpu_use *uses = dn_alloc(most * sizeof *uses);
    gpu_function *found = dn_alloc(most * sizeof *found); /* which the GPU keeps */
    danaus_status status = DANAUS_OK;
    if (!uses || !found)
        status = dn_fail_memory(most * sizeof *uses, "the texts of kernels");
    else
        status =
            dn_gpu_load_uses(d, uses, gather(&d->facts, count, frames, uses), found);
    dn_free(uses);
    dn_free(found);
    return status;
}
