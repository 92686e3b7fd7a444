/* A stand-in for libnvidia-ml.so.1: a GPU that uses 100 watts, and whose counter moves a
   hundred times a second. Every function can be told to fail. */
// SPDX-License-Identifier: Apache-2.0
#include "emulator.h"

#include <string.h>
#include <time.h>

#define EXPORT      __attribute__((visibility("default")))
#define MILLIJOULES 1000 /* from step to step */

EXPORT emulator_control emulator_nvml_control;

static int fails(const char *function)
{
    emulator_control *c = &emulator_nvml_control;
    if (!c->function || strcmp(c->function, function))
        return 0;
    return ++c->calls == c->number ? c->error : 0;
}

EXPORT int nvmlInit_v2(void);
int nvmlInit_v2(void) { return fails(__func__); }

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device);
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device)
{
    int error = fails(__func__);
    if (error || strcmp(id, "0000:0E:00.0"))
        return error ? error : 6;
    *device = &emulator_nvml_control;
    return 0;
}

EXPORT int nvmlDeviceGetTotalEnergyConsumption(
    void *device, unsigned long long *millijoules);
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules)
{
    int error = fails(__func__);
    struct timespec t;
    if (error || device != &emulator_nvml_control)
        return error ? error : 2;
    clock_gettime(CLOCK_MONOTONIC, &t);
    long long hundredths = t.tv_sec * 100LL + t.tv_nsec / 10000000;
    *millijoules = (unsigned long long)hundredths * MILLIJOULES;
    return 0;
}
