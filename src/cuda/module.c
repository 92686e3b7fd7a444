/* Images of compiled kernels as modules of NVIDIA's driver. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda.h"

#define STATIC_SHARED (48 << 10) /* bytes that need no permission */

/* True for errors of the driver that find fault with an image: damaged, for another kind of GPU,
   PTX that it cannot compile or that is too new. */
static int is_of_image(cu_result result)
{
    return result == 200 || result == 209 || result == 218 || result == 222;
}

static cu_result find_function(
    const cuda_device *d, cu_module module, const char *entry, cu_function *function)
{
    int fixed = 0, most = (int)d->gpu.facts.shared;
    cu_result result = d->driver->ModuleGetFunction(function, module, entry);
    if (!result)
        result =
            d->driver->FuncGetAttribute(&fixed, CU_FUNCTION_STATIC_SHARED, *function);
    if (!result && most > STATIC_SHARED && fixed < most)
        result = d->driver->FuncSetAttribute(
            *function, CU_FUNCTION_DYNAMIC_SHARED, most - fixed);
    return result;
}

danaus_status dn_cuda_load(
    gpu_device *dev, const void *image, size_t bytes, const char *entry, int *refused,
    gpu_loaded *to)
{
    cuda_device *d = (cuda_device *)dev;
    cu_module module;
    cu_function function = NULL;
    (void)bytes; /* the image says so itself */
    int mode = dn_cuda_set_capture_mode(d->driver, CAPTURE_RELAXED);
    cu_result result = d->driver->ModuleLoadData(&module, image);
    dn_cuda_set_capture_mode(d->driver, mode);
    *refused |= is_of_image(result);
    if (result)
        return dn_cuda_status(d->driver, result, "loading a kernel");
    result = find_function(d, module, entry, &function);
    if (result) {
        d->driver->ModuleUnload(module);
        return dn_cuda_status(d->driver, result, "loading a kernel");
    }
    to->module = module;
    to->function = function;
    return DANAUS_OK;
}

void dn_cuda_unload(gpu_shared *shared, void *module)
{
    ((cuda_gpu *)shared)->driver->ModuleUnload(module);
}
