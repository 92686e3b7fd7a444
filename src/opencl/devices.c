/* Devices of all platforms of OpenCL, and facts about them. */
// SPDX-License-Identifier: Apache-2.0
#include "opencl/opencl.h"

#include "base/status.h"

#include <stdio.h>

#define MOST_PLATFORMS 16
#define MOST_DEVICES   64

/* ---- numbers ---- */

typedef struct device_list {
    cl_device_id id[MOST_DEVICES];
    int count;
} device_list;

/* Adds those of a platform that are processors, or that are not. A platform without such has
   none, which is no failure. */
static void add_devices(
    const opencl_functions *cl, cl_platform_id platform, int processors,
    device_list *list)
{
    cl_device_id found[MOST_DEVICES];
    cl_uint count = 0;
    if (cl->GetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, MOST_DEVICES, found, &count))
        return;
    for (cl_uint i = 0; i < MIN(count, MOST_DEVICES); i++) {
        cl_device_type type = 0;
        cl->GetDeviceInfo(found[i], CL_DEVICE_TYPE, sizeof type, &type, NULL);
        if (!(type & CL_DEVICE_TYPE_CPU) == !processors && list->count < MOST_DEVICES)
            list->id[list->count++] = found[i];
    }
}

static device_list list_devices(const opencl_functions *cl)
{
    cl_platform_id platforms[MOST_PLATFORMS];
    cl_uint count = 0;
    device_list list = { .count = 0 };
    if (cl->GetPlatformIDs(MOST_PLATFORMS, platforms, &count))
        count = 0;
    for (int processors = 0; processors < 2; processors++)
        for (cl_uint i = 0; i < MIN(count, MOST_PLATFORMS); i++)
            add_devices(cl, platforms[i], processors, &list);
    return list;
}

danaus_status dn_opencl_find(const opencl_functions *cl, int ordinal, cl_device_id *id)
{
    device_list list = list_devices(cl);
    if (ordinal >= list.count)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "this machine has %d OpenCL devices, not %d: danaus info lists them",
            list.count, ordinal + 1);
    *id = list.id[ordinal];
    return DANAUS_OK;
}

danaus_status dn_opencl_number(
    const opencl_functions *cl, cl_device_id id, int *ordinal)
{
    device_list list = list_devices(cl);
    for (int i = 0; i < list.count; i++)
        if (list.id[i] == id) {
            *ordinal = i;
            return DANAUS_OK;
        }
    return dn_fail(
        DANAUS_ERR_UNSUPPORTED,
        "the queue's device is a part of one, or is not listed");
}

/* ---- facts ---- */

/* A variable, or an array of characters. */
#define READ(id, name, value)                                                          \
    OPENCL_TRY(cl, GetDeviceInfo(id, name, sizeof(value), &(value), NULL))

static danaus_status check(const opencl_functions *cl, cl_device_id id)
{
    cl_device_svm_capabilities svm = 0;
    cl_bool compiles = CL_FALSE;
    cl->GetDeviceInfo(id, CL_DEVICE_SVM_CAPABILITIES, sizeof svm, &svm, NULL);
    READ(id, CL_DEVICE_COMPILER_AVAILABLE, compiles);
    if (!(svm & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "this OpenCL device has no shared virtual memory, which danaus needs");
    return compiles ? DANAUS_OK
                    : dn_fail(
                          DANAUS_ERR_UNSUPPORTED,
                          "this OpenCL device has no compiler, which danaus needs");
}

/* Nothing says the bandwidth: a unit is taken to move 16 bytes in a clock. */
danaus_status dn_opencl_facts(
    const opencl_functions *cl, cl_device_id id, int ordinal, gpu_facts *facts)
{
    cl_uint units, megahertz;
    cl_ulong local, cache, memory;
    cl_device_fp_config f64;
    TRY(check(cl, id));
    READ(id, CL_DEVICE_MAX_COMPUTE_UNITS, units);
    READ(id, CL_DEVICE_MAX_CLOCK_FREQUENCY, megahertz);
    READ(id, CL_DEVICE_LOCAL_MEM_SIZE, local);
    READ(id, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, cache);
    READ(id, CL_DEVICE_GLOBAL_MEM_SIZE, memory);
    READ(id, CL_DEVICE_DOUBLE_FP_CONFIG, f64);
    double clock = 1e6 * MAX(megahertz, 1);
    *facts = (gpu_facts){
        .arch = ordinal,
        .units = (int)units,
        .shared = (int64_t)local,
        .l2 = (int64_t)cache,
        .memory = (int64_t)memory,
        .bandwidth = 16 * clock * units,
        .no_f64 = !f64,
    };
    dn_gpu_fill_rates(facts, clock);
    return DANAUS_OK;
}

#define MOST_NAME 1024

/* "NAME (PLATFORM)", cut to what has room. */
static danaus_status read_names(
    const opencl_functions *cl, cl_device_id id, char *to, size_t room)
{
    char name[MOST_NAME] = "", platform[MOST_NAME] = "";
    cl_platform_id by;
    READ(id, CL_DEVICE_PLATFORM, by);
    READ(id, CL_DEVICE_NAME, name);
    OPENCL_TRY(
        cl, GetPlatformInfo(by, CL_PLATFORM_NAME, sizeof platform, platform, NULL));
    snprintf(to, room, "%.50s (%.40s)", name, platform);
    return DANAUS_OK;
}

danaus_status dn_opencl_describe(
    const opencl_functions *cl, cl_device_id id, int ordinal, danaus_device_info *info)
{
    danaus_device_info i = { 0 };
    gpu_facts facts;
    char version[MOST_NAME] = ""; /* "OpenCL 3.0 and what the maker adds" */
    TRY(dn_opencl_facts(cl, id, ordinal, &facts));
    TRY(read_names(cl, id, i.description, sizeof i.description));
    READ(id, CL_DEVICE_VERSION, version);
    i.memory = facts.memory;
    i.cache = facts.l2;
    snprintf(i.name, sizeof i.name, "opencl:%d", ordinal);
    snprintf(i.instructions, sizeof i.instructions, "%.10s", version);
    *info = i;
    return DANAUS_OK;
}
