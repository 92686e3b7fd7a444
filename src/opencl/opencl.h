/* The OpenCL backend: what its files share. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_OPENCL_OPENCL_H
#define DN_OPENCL_OPENCL_H

#include "base/thread.h"
#include "gpu/run/run.h"

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_icd.h>

/* The functions of libOpenCL that danaus uses. */
typedef struct opencl_functions {
#define X(name) cl_api_cl##name name;
#include "opencl/functions.def"
#undef X
} opencl_functions;

/* Memory of a device, as it was allocated, and from where it is aligned. */
typedef struct opencl_block {
    void *allocated, *memory;
} opencl_block;

/* A context of a device of OpenCL, for all of our devices in it: shared.c. */
typedef struct opencl_device opencl_device;
typedef struct opencl_gpu opencl_gpu;
struct opencl_gpu {
    gpu_shared base;
    opencl_gpu *next;
    int ordinal, users;
    int is_callers; /* the context: there may be others of this device */
    const opencl_functions *cl;
    cl_device_id id;
    cl_context context;
    tuning *tuning; /* has a lock of its own */

    thread_lock *memory_lock; /* of what follows */
    opencl_device *queues;    /* all devices on it */
    opencl_block *blocks;
    void **allocated; /* the same, as kernels are told */
    size_t block_count, block_capacity, allocated_capacity;
};

/* Our device is a queue. */
struct opencl_device {
    gpu_device gpu;
    opencl_gpu *shared;
    const opencl_functions *cl;
    opencl_device *next; /* on this device of OpenCL */
    cl_command_queue own, queue;
    void *scratch; /* of its own */
    size_t scratch_bytes;
};

/* A compiled text, and what a gpu_function is. */
typedef struct opencl_kernel {
    cl_program program;
    cl_kernel kernel;
    const char *entry;
    cl_uint arguments; /* that it takes of a task's */
    uint64_t pointed;  /* by bits: those that point to memory */
    thread_lock *lock; /* while arguments are set */
} opencl_kernel;

/* Opens libOpenCL; fails where there is none. */
danaus_status dn_opencl_functions(const opencl_functions **functions);

danaus_status dn_opencl_status(cl_int error, const char *call);

#define OPENCL_TRY(functions, call)                                                    \
    do {                                                                               \
        cl_int opencl_error_ = (functions)->call;                                      \
        if (opencl_error_)                                                             \
            return dn_opencl_status(opencl_error_, #call);                             \
    } while (0)

/* Devices of all platforms by number, graphics cards before processors: devices.c. */
danaus_status dn_opencl_find(const opencl_functions *cl, int ordinal, cl_device_id *id);
danaus_status dn_opencl_number(
    const opencl_functions *cl, cl_device_id id, int *ordinal);
danaus_status dn_opencl_facts(
    const opencl_functions *cl, cl_device_id id, int ordinal, gpu_facts *facts);
danaus_status dn_opencl_describe(
    const opencl_functions *cl, cl_device_id id, int ordinal, danaus_device_info *info);

/* Gives a device what it shares with others in a context, or in danaus' own if that is NULL:
   shared.c. */
danaus_status dn_opencl_share(opencl_device *d, int ordinal, cl_context context);
/* One of this number that is open, with one user more; or NULL. */
opencl_gpu *dn_opencl_take_open(int ordinal);
/* One user less, and at last the end. */
void dn_opencl_drop(opencl_gpu *g);

/* Memory that all kernels of a context reach: memory.c. To free it waits for all queues. */
danaus_status dn_opencl_alloc(opencl_gpu *g, size_t bytes, void **memory);
void dn_opencl_free(opencl_gpu *g, void *memory);
danaus_status dn_opencl_open_queue(opencl_device *d);
void dn_opencl_close_queue(opencl_device *d);
danaus_status dn_opencl_set_queue(opencl_device *d, cl_command_queue queue);
danaus_status dn_opencl_take_scratch(opencl_device *d, size_t bytes);
void dn_opencl_give_scratch(opencl_device *d);

/* Members of a gpu_driver: program.c. */
danaus_status dn_opencl_compile(
    const char *source, int ordinal, void **image, size_t *bytes, char **log,
    int *refused);
hash128 dn_opencl_hash(hash128 hash, int ordinal);
danaus_status dn_opencl_load(
    gpu_device *d, const void *image, size_t bytes, const char *entry, int *refused,
    gpu_loaded *to);
void dn_opencl_unload(gpu_shared *g, void *module);
/* Makes a kernel anew from its program, without arguments. A failure leaves it as it was. */
danaus_status dn_opencl_create_kernel(const opencl_functions *cl, opencl_kernel *k);

/* The driver: launch.c. */
extern const gpu_driver dn_opencl_driver;
danaus_status dn_opencl_time(
    danaus_device *dev, device_run *run, void *arg, double *seconds);

#endif
