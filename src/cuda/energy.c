/* The energy counter of a GPU, from NVIDIA's management library (NVML), which comes with the
   driver and is opened at the first use. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda.h"

#include "base/status.h"
#include "base/library.h"

#include <string.h>

#define NOT_SUPPORTED 3 /* NVML_ERROR_NOT_SUPPORTED */

#define FUNCTIONS "cuda/nvml.def"
#include "base/library.inc"

static const char *const files[] = { "libnvidia-ml.so.1", "libnvidia-ml.so", NULL };

static danaus_status nvml_status(int error, const char *call)
{
    if (error == NOT_SUPPORTED)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "this GPU, or a part of one, does not count its energy (NVML %s: error %d)",
            call, error);
    return error ? dn_fail(DANAUS_ERR_DEVICE, "NVML %s: error %d", call, error)
                 : DANAUS_OK;
}

static danaus_status start(void) { return nvml_status(opened.Init(), "Init"); }

static late_library library = {
    .files = files,
    .symbols = names,
    .count = SYMBOLS,
    .table = &opened,
    .advice = "energy is read with NVML, which comes with NVIDIA's driver",
    .start = start,
};

danaus_status dn_cuda_energy(danaus_device *dev, double *joules)
{
    cuda_device *d = (cuda_device *)dev;
    unsigned long long millijoules = 0;
    TRY(dn_library_open(&library));
    if (!d->nvml) {
        char id[32];
        nvml_device found = NULL;
        CUDA_TRY(d->driver, DeviceGetPCIBusId(id, (int)sizeof id, d->shared->handle));
        TRY(nvml_status(opened.GetHandle(id, &found), "DeviceGetHandleByPciBusId"));
        d->nvml = found;
    }
    TRY(nvml_status(
        opened.GetEnergy(d->nvml, &millijoules), "DeviceGetTotalEnergyConsumption"));
    *joules = (double)millijoules * 1e-3;
    return DANAUS_OK;
}
