/* The few functions of NVIDIA's driver that danaus uses, found when they are first needed. The
   build needs no part of CUDA. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CUDA_DRIVER_H
#define DN_CUDA_DRIVER_H

#include "danaus/base.h"

typedef int cu_result, cu_device;
typedef uintptr_t cu_pointer; /* to device memory; 64 bits there and here */
typedef struct CUctx_st *cu_context;
typedef struct CUstream_st *cu_stream;
typedef struct CUevent_st *cu_event;
typedef struct CUmod_st *cu_module;
typedef struct CUfunc_st *cu_function;
typedef struct CUgraph_st *cu_graph;
typedef struct CUgraphExec_st *cu_graph_exec;
typedef struct CUgraphNode_st *cu_graph_node;

/* CUDA_ERROR_*, CU_DEVICE_ATTRIBUTE_* and others, by their numbers in cuda.h. */
enum {
    CU_INVALID_VALUE = 1,
    CU_OUT_OF_MEMORY = 2,
    CU_NO_DEVICE = 100,
    CU_INVALID_DEVICE = 101,

    CU_SHARED_PER_BLOCK = 8,
    CU_CLOCK_KHZ = 13,
    CU_MULTIPROCESSORS = 16,
    CU_MEMORY_CLOCK_KHZ = 36,
    CU_MEMORY_BUS_BITS = 37,
    CU_L2_BYTES = 38,
    CU_MAJOR = 75,
    CU_MINOR = 76,
    CU_SHARED_PER_BLOCK_AT_MOST = 97,
    CU_MEMORY_POOLS = 115,
    CU_POINTER_TYPE = 2,

    CU_NON_BLOCKING = 1,
    CU_WITHOUT_TIMING = 2,

    CU_FUNCTION_STATIC_SHARED = 1,
    CU_FUNCTION_DYNAMIC_SHARED = 8,

    CU_LAUNCH_CLUSTER = 4,
    CU_MAP_F16 = 6,
    CU_MAP_F32 = 7,
    CU_MAP_F64 = 8,
    CU_MAP_BF16 = 9,
    CU_MAP_PROMOTE_256 = 3
};

/* CUlaunchAttribute and CUlaunchConfig. */
typedef struct cu_launch_attribute {
    int id;
    char pad[4];
    union {
        char bytes[64];
        struct {
            unsigned x, y, z;
        } cluster;
    } value;
} cu_launch_attribute;

typedef struct cu_launch {
    unsigned grid[3], block[3], shared;
    cu_stream stream;
    const cu_launch_attribute *attributes;
    unsigned count;
} cu_launch;

/* CUDA_KERNEL_NODE_PARAMS_v2. */
typedef struct cu_kernel_node {
    cu_function function;
    unsigned grid[3], block[3], shared;
    void **arguments, **extra;
    void *kernel;
    cu_context context;
} cu_kernel_node;

typedef struct cu_tensor_map {
    _Alignas(64) uint64_t opaque[16];
} cu_tensor_map;

typedef struct cuda_driver {
#define X(name, symbol, arguments) cu_result(*name) arguments;
#include "cuda/driver.def"
#include "cuda/driver_graph.def" /* may be NULL before CUDA 11.4 */
#include "cuda/driver_90.def"    /* before CUDA 12 */
#include "cuda/driver_pool.def"  /* before CUDA 11.2 */
#undef X
} cuda_driver;

/* True in a process that fork() made after the driver was started: CUDA does not work there.
   The second says so. */
int dn_cuda_is_forked(void);
danaus_status dn_cuda_check_process(void);

/* The driver, initialised. DANAUS_ERR_UNSUPPORTED when this machine has none. */
danaus_status dn_cuda_driver(const cuda_driver **driver);

/* The status and sentence for a result; `call` made it. */
danaus_status dn_cuda_status(
    const cuda_driver *driver, cu_result result, const char *call);

#define CUDA_TRY(driver, call)                                                         \
    do {                                                                               \
        cu_result cuda_result_ = (driver)->call;                                       \
        if (cuda_result_)                                                              \
            return dn_cuda_status(driver, cuda_result_, #call);                        \
    } while (0)

#endif
