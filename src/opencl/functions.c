/* Opening libOpenCL, and its errors. */
// SPDX-License-Identifier: Apache-2.0
#include "opencl/opencl.h"

#include "base/library.h"
#include "base/status.h"

#include <string.h>

static const char *const files[] = { "libOpenCL.so.1", "libOpenCL.so", NULL };

static const char *const names[] = {
#define X(name) "cl" #name,
#include "opencl/functions.def"
#undef X
};

static opencl_functions opened;
static unsigned forks; /* dn_forks() when it was opened */

static danaus_status start(void)
{
    forks = dn_forks();
    return DANAUS_OK;
}

static late_library library = {
    .files = files,
    .symbols = names,
    .count = (int)(sizeof names / sizeof *names),
    .table = &opened,
    .advice = "install the OpenCL loader (ocl-icd-libopencl1) and a driver, or use the "
              "device cpu",
    .start = start,
};

danaus_status dn_opencl_functions(const opencl_functions **functions)
{
    TRY(dn_library_open(&library));
    if (forks != dn_forks())
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "OpenCL was opened before fork() made this process, which can use no "
            "device "
            "of it: open the device in a process that was started anew (spawn)");
    *functions = &opened;
    return DANAUS_OK;
}

static const char *sentence_of(cl_int error)
{
    switch (error) {
    case CL_DEVICE_NOT_AVAILABLE: return "the device is not available";
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_HOST_MEMORY: return "out of memory";
    case CL_OUT_OF_RESOURCES: return "the device has not what this takes";
    case CL_INVALID_WORK_GROUP_SIZE:
        return "the device has no room for so many threads";
    case CL_INVALID_COMMAND_QUEUE: return "this is no queue";
    default: return "it failed";
    }
}

danaus_status dn_opencl_status(cl_int error, const char *call)
{
    int is_memory =
        error == CL_MEM_OBJECT_ALLOCATION_FAILURE || error == CL_OUT_OF_HOST_MEMORY;
    return dn_fail(
        is_memory ? DANAUS_ERR_MEMORY : DANAUS_ERR_DEVICE, "OpenCL %.*s: %s (error %d)",
        (int)strcspn(call, "("), call, sentence_of(error), error);
}
