/* The energy counter of a GPU, from NVIDIA's management library (NVML), which comes with
   the driver and is opened when it is first asked. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda.h"

#include "base/status.h"
#include "base/thread.h"

#include <string.h>

#define NOT_SUPPORTED 3 /* NVML_ERROR_NOT_SUPPORTED */

typedef struct nvml {
#define X(name, symbol, arguments) int(*name) arguments;
#include "cuda/nvml.def"
#undef X
} nvml;

static const char *const names[] = {
#define X(name, symbol, arguments) symbol,
#include "cuda/nvml.def"
#undef X
};

#define SYMBOLS ((int)(sizeof names / sizeof *names))

static const char *const libraries[] = { "libnvidia-ml.so.1", "libnvidia-ml.so", NULL };

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

static danaus_status open_nvml(nvml *library)
{
    cuda_symbol symbols[SYMBOLS] = { 0 };
    nvml found;
    _Static_assert(sizeof found == sizeof symbols, "a pointer a row");
    TRY(dn_cuda_open_library(
        libraries, names, SYMBOLS, 0,
        "energy is read with NVML, which comes with NVIDIA's driver", symbols));
    memcpy(&found, symbols, sizeof found);
    TRY(nvml_status(found.Init(), "Init"));
    *library = found;
    return DANAUS_OK;
}

static danaus_status get_nvml(const nvml **library)
{
    static nvml opened;
    static int is_open;
    dn_lock_process();
    danaus_status status = is_open ? DANAUS_OK : open_nvml(&opened);
    is_open = status == DANAUS_OK;
    dn_unlock_process();
    if (status == DANAUS_OK)
        *library = &opened;
    return status;
}

danaus_status dn_cuda_energy(danaus_device *dev, double *joules)
{
    cuda_device *d = (cuda_device *)dev;
    const nvml *library;
    unsigned long long millijoules = 0;
    TRY(get_nvml(&library));
    if (!d->nvml) {
        char id[32];
        nvml_device found = NULL;
        CUDA_TRY(d->driver, DeviceGetPCIBusId(id, (int)sizeof id, d->shared->handle));
        TRY(nvml_status(library->GetHandle(id, &found), "DeviceGetHandleByPciBusId"));
        d->nvml = found;
    }
    TRY(nvml_status(
        library->GetEnergy(d->nvml, &millijoules), "DeviceGetTotalEnergyConsumption"));
    *joules = (double)millijoules * 1e-3;
    return DANAUS_OK;
}
