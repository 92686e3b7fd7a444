// SPDX-License-Identifier: Apache-2.0
#include "opencl/calls.h"

#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

opencl_control opencl_calls;

const char *const opencl_function_names[] = {
#define X(name) #name,
#include "opencl/functions.def"
#undef X
    NULL
};

static opencl_functions real;

/* The error with which this call of a function is to fail, or 0. */
static cl_int fails(const char *function)
{
    opencl_control *c = &opencl_calls;
    if (!c->function || (*c->function && strcmp(c->function, function)))
        return CL_SUCCESS;
    c->calls++;
    int is_it = c->lasting ? c->calls >= c->number : c->calls == c->number;
    return is_it && c->number ? c->error : CL_SUCCESS;
}

/* A function that returns an error; after success, `alive` objects are there in addition. What
   gives something back does that also where it fails. */
#define CALL(NAME, ALIVE, PARAMETERS, ...)                                             \
    static cl_int CL_API_CALL watched_##NAME PARAMETERS                                \
    {                                                                                  \
        cl_int error = fails(#NAME), found = 0;                                        \
        if (!error || ALIVE < 0)                                                       \
            found = real.NAME(__VA_ARGS__);                                            \
        opencl_calls.alive += (error || found) && ALIVE >= 0 ? 0 : ALIVE;              \
        return error ? error : found;                                                  \
    }

/* A function that makes an object, with *error as its last parameter. */
#define MAKE(NAME, TYPE, PARAMETERS, ...)                                              \
    static TYPE CL_API_CALL watched_##NAME PARAMETERS                                  \
    {                                                                                  \
        *error = fails(#NAME);                                                         \
        TYPE made = *error ? NULL : real.NAME(__VA_ARGS__);                            \
        opencl_calls.alive += made != NULL;                                            \
        return made;                                                                   \
    }

CALL(GetPlatformIDs, 0, (cl_uint n, cl_platform_id *to, cl_uint *count), n, to, count)
CALL(
    GetPlatformInfo, 0,
    (cl_platform_id p, cl_platform_info what, size_t n, void *to, size_t *size), p,
    what, n, to, size)
CALL(
    GetDeviceIDs, 0,
    (cl_platform_id p, cl_device_type type, cl_uint n, cl_device_id *to,
     cl_uint *count),
    p, type, n, to, count)
MAKE(
    CreateContext, cl_context,
    (const cl_context_properties *with, cl_uint n, const cl_device_id *d,
     void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *user,
     cl_int *error),
    with, n, d, notify, user, error)
CALL(RetainContext, 1, (cl_context c), c)
CALL(ReleaseContext, -1, (cl_context c), c)
MAKE(
    CreateCommandQueueWithProperties, cl_command_queue,
    (cl_context c, cl_device_id d, const cl_queue_properties *with, cl_int *error), c,
    d, with, error)
CALL(RetainCommandQueue, 1, (cl_command_queue q), q)
CALL(ReleaseCommandQueue, -1, (cl_command_queue q), q)
CALL(
    GetCommandQueueInfo, 0,
    (cl_command_queue q, cl_command_queue_info what, size_t n, void *to, size_t *size),
    q, what, n, to, size)
MAKE(
    CreateProgramWithBinary, cl_program,
    (cl_context c, cl_uint n, const cl_device_id *d, const size_t *bytes,
     const unsigned char **binary, cl_int *of, cl_int *error),
    c, n, d, bytes, binary, of, error)
CALL(
    BuildProgram, 0,
    (cl_program p, cl_uint n, const cl_device_id *d, const char *with,
     void(CL_CALLBACK *notify)(cl_program, void *), void *user),
    p, n, d, with, notify, user)
CALL(
    GetProgramInfo, 0,
    (cl_program p, cl_program_info what, size_t n, void *to, size_t *size), p, what, n,
    to, size)
CALL(
    GetProgramBuildInfo, 0,
    (cl_program p, cl_device_id d, cl_program_build_info what, size_t n, void *to,
     size_t *size),
    p, d, what, n, to, size)
CALL(ReleaseProgram, -1, (cl_program p), p)
CALL(
    GetKernelInfo, 0,
    (cl_kernel k, cl_kernel_info what, size_t n, void *to, size_t *size), k, what, n,
    to, size)
CALL(
    SetKernelExecInfo, 0,
    (cl_kernel k, cl_kernel_exec_info what, size_t n, const void *value), k, what, n,
    value)
MAKE(
    CreateBuffer, cl_mem,
    (cl_context c, cl_mem_flags how, size_t n, void *from, cl_int *error), c, how, n,
    from, error)
CALL(ReleaseMemObject, -1, (cl_mem m), m)
CALL(
    EnqueueSVMMemcpy, 0,
    (cl_command_queue q, cl_bool waits, void *to, const void *from, size_t n, cl_uint e,
     const cl_event *events, cl_event *event),
    q, waits, to, from, n, e, events, event)
CALL(
    EnqueueSVMMemFill, 0,
    (cl_command_queue q, void *to, const void *with, size_t width, size_t n, cl_uint e,
     const cl_event *events, cl_event *event),
    q, to, with, width, n, e, events, event)

/* ---- functions that say or do more ---- */

/* NVIDIA's driver launches no kernel with an argument that is not set. It is not after NULL as
   shared memory, and after NULL that follows shared memory. */
#define MOST_KERNELS 256

typedef struct watched_kernel {
    cl_kernel kernel; /* NULL: a free place */
    uint64_t pointed, unset;
} watched_kernel;

static watched_kernel kernels[MOST_KERNELS];

static watched_kernel *kernel_of(cl_kernel k)
{
    for (int i = 0; i < MOST_KERNELS; i++)
        if (kernels[i].kernel == k)
            return &kernels[i];
    fail_msg("%s", k ? "a kernel that is not there" : "too many kernels");
    return NULL;
}

static void set(cl_kernel k, cl_uint at, int is_memory, int is_null)
{
    watched_kernel *w = kernel_of(k);
    uint64_t bit = (uint64_t)1 << at;
    int is_unset = is_null && (is_memory || w->pointed & bit);
    w->unset = is_unset ? w->unset | bit : w->unset & ~bit;
    w->pointed |= is_memory ? bit : 0;
}

static cl_kernel CL_API_CALL
watched_CreateKernel(cl_program p, const char *name, cl_int *error)
{
    *error = fails("CreateKernel");
    cl_kernel made = *error ? NULL : real.CreateKernel(p, name, error);
    if (made)
        *kernel_of(NULL) = (watched_kernel){ .kernel = made };
    opencl_calls.alive += made != NULL;
    return made;
}

static cl_int CL_API_CALL watched_ReleaseKernel(cl_kernel k)
{
    cl_int error = fails("ReleaseKernel");
    *kernel_of(k) = (watched_kernel){ .kernel = NULL };
    opencl_calls.alive--;
    cl_int found = real.ReleaseKernel(k);
    return error ? error : found;
}

static cl_int CL_API_CALL
watched_SetKernelArg(cl_kernel k, cl_uint at, size_t n, const void *value)
{
    cl_int error = fails("SetKernelArg");
    set(k, at, 0, !value);
    return error ? error : real.SetKernelArg(k, at, n, value);
}

static cl_int CL_API_CALL
watched_SetKernelArgSVMPointer(cl_kernel k, cl_uint at, const void *p)
{
    cl_int error = fails("SetKernelArgSVMPointer");
    set(k, at, 1, !p);
    return error ? error : real.SetKernelArgSVMPointer(k, at, p);
}

static cl_int CL_API_CALL watched_EnqueueNDRangeKernel(
    cl_command_queue q, cl_kernel k, cl_uint n, const size_t *from, const size_t *all,
    const size_t *group, cl_uint e, const cl_event *events, cl_event *event)
{
    cl_int error = fails("EnqueueNDRangeKernel");
    if (!error && kernel_of(k)->unset)
        error = CL_INVALID_KERNEL_ARGS;
    return error
               ? error
               : real.EnqueueNDRangeKernel(q, k, n, from, all, group, e, events, event);
}

/* Work is done also where it fails. */
static cl_int CL_API_CALL watched_Finish(cl_command_queue q)
{
    cl_int error = fails("Finish"), found = real.Finish(q);
    return error ? error : found;
}

static cl_int CL_API_CALL watched_GetDeviceInfo(
    cl_device_id d, cl_device_info what, size_t n, void *to, size_t *size)
{
    cl_int error = fails("GetDeviceInfo");
    if (!error)
        error = real.GetDeviceInfo(d, what, n, to, size);
    if (!error && what == CL_DEVICE_LOCAL_MEM_SIZE && opencl_calls.local)
        *(cl_ulong *)to = opencl_calls.local;
    if (!error && what == CL_DEVICE_DOUBLE_FP_CONFIG && opencl_calls.no_f64)
        *(cl_device_fp_config *)to = 0;
    return error;
}

/* danaus gives one text. */
static cl_program CL_API_CALL watched_CreateProgramWithSource(
    cl_context c, cl_uint n, const char **from, const size_t *bytes, cl_int *error)
{
    static const char without[] = "#undef cl_khr_fp64\n#define double no_type\n";
    const char *texts[] = { without, *from };
    const size_t sizes[] = { opencl_calls.no_f64 ? strlen(without) : 0, *bytes };
    assert_int_equal(n, 1);
    *error = fails("CreateProgramWithSource");
    cl_program made =
        *error ? NULL : real.CreateProgramWithSource(c, 2, texts, sizes, error);
    opencl_calls.alive += made != NULL;
    return made;
}

static void *CL_API_CALL
watched_SVMAlloc(cl_context c, cl_svm_mem_flags how, size_t bytes, cl_uint alignment)
{
    void *made = fails("SVMAlloc") ? NULL : real.SVMAlloc(c, how, bytes, alignment);
    opencl_calls.alive += made != NULL;
    return made;
}

static void CL_API_CALL watched_SVMFree(cl_context c, void *memory)
{
    opencl_calls.alive--;
    real.SVMFree(c, memory);
}

void watch_opencl_calls(void)
{
    const opencl_functions *functions;
    if (dn_opencl_functions(&functions)) {
        fprintf(stderr, "%s\n", danaus_error_detail());
        exit(77);
    }
    real = *functions;
    *(opencl_functions *)functions = (opencl_functions){
#define X(name) .name = watched_##name,
#include "opencl/functions.def"
#undef X
    };
}
