/* The CUDA backend: what its files share. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CUDA_CUDA_H
#define DN_CUDA_CUDA_H

#include "base/library.h"
#include "base/thread.h"
#include "cuda/driver.h"
#include "gpu/run/run.h"

#define MOST_NODES 16 /* launches of a form */
#define STREAMS    4  /* whose scratch a device keeps */

typedef struct nvmlDevice_st *nvml_device;
typedef struct cublasContext *blas_handle;
typedef struct blas_choice blas_choice;

/* cuBLAS as a GPU has it, once a plan needs it. */
typedef struct cuda_blas {
    blas_choice *choices; /* of algorithms: epilogue.c */
    blas_handle handle;
    cu_stream stream; /* what it was given last, and a workspace */
    void *workspace;
} cuda_blas;

/* A stream of the caller's that a device works on, and its scratch. */
typedef struct cuda_stream {
    cu_stream stream;
    int64_t used;  /* 0: an empty place */
    cu_event left; /* NULL until it is needed */
    int is_left;   /* it comes after all that the device asked of the stream */
    void *scratch;
    size_t bytes;
    int is_captured; /* graphs of the caller's may point at the scratch */
} cuda_stream;

/* Memory that is to be freed. */
typedef struct cuda_memory_list {
    void **memory;
    size_t count, capacity;
} cuda_memory_list;

/* A call that may be repeated. */
typedef struct cuda_replay {
    gpu_key key;
    uint64_t hash;
    gpu_need need;
    const void *scratch; /* of the captured call */
    int calls;           /* without the graph; 0: an empty place */
    int64_t used;
    cu_graph_exec graph; /* NULL: none yet, or none to be had */
} cuda_replay;

/* A graph for calls that differ only in their operands; its launches get other arguments before
   it is launched. */
typedef struct cuda_form {
    gpu_key key;
    uint64_t hash;
    int calls; /* without the graph; 0: an empty place */
    int64_t used;
    cu_graph graph;
    cu_graph_exec made; /* NULL: none yet, or none to be had */
    int count;
    struct {
        cu_graph_node node;
        cu_function function;
        int cluster;
    } launch[MOST_NODES];
} cuda_form;

/* A GPU, for all devices on it: shared.c. */
typedef struct cuda_device cuda_device;
typedef struct cuda_gpu cuda_gpu;
typedef struct cuda_staging cuda_staging;
struct cuda_gpu {
    gpu_shared base; /* its lock also guards what follows, but for memory */
    cuda_gpu *next;
    int ordinal, users;
    const cuda_driver *driver;
    cu_device handle;
    cu_context context; /* the primary one, shared with everybody */
    thread_lock *memory_lock;
    cuda_device *queues;      /* all devices on it */
    cu_stream asks, frees;    /* allocate and free memory; NULL: without pools */
    cuda_memory_list waiting; /* until no stream is captured */
    size_t allocations;       /* alive: so many find room in the list */
    tuning *tuning;           /* has a lock of its own */
    cuda_blas blas;
};

/* A device is a queue on a GPU. */
struct cuda_device {
    gpu_device gpu;
    cuda_gpu *shared;
    const cuda_driver *driver;
    cuda_device *next; /* on this GPU */
    cuda_stream streams[STREAMS];
    cuda_stream *now;      /* of the caller's stream */
    int64_t switches;      /* from stream to stream */
    cu_stream stream;      /* where work goes: the caller's, or one that is captured */
    void *workspace;       /* of cuBLAS, for the call that runs */
    cuda_memory_list kept; /* until the device closes, for graphs of the caller's */
    nvml_device nvml;      /* NULL until it is asked for */
    cuda_staging *staging; /* NULL until something large comes from the host */
    cuda_replay *replays;  /* NULL until a call is worth a graph */
    int64_t replayed;      /* calls */
    cu_stream capture;     /* NULL until it is needed, */
    cu_stream branch;      /* and the second branch of what is captured, */
    cu_event parting;      /* with where branches part and meet */
    cuda_form *forms;
    cuda_form *recorded, *patched; /* whose launches are captured, or given arguments */
    int launches;                  /* of it, so far; -1: others than it has */
};

/* Libraries whose place the caller may name. */
extern late_library dn_cuda_nvrtc, dn_cuda_cublas;

/* Makes the device's context current; leave restores the caller's. */
danaus_status dn_cuda_enter(cuda_device *d, int *pushed);
void dn_cuda_leave(cuda_device *d, int pushed);
danaus_status dn_cuda_enter_gpu(const cuda_gpu *g, int *pushed);
void dn_cuda_leave_gpu(const cuda_gpu *g, int pushed);

/* Returns the status of a call that is made in the device's context. */
#define RETURN_INSIDE(d, call)                                                         \
    do {                                                                               \
        int pushed_;                                                                   \
        TRY(dn_cuda_enter(d, &pushed_));                                               \
        danaus_status status_ = (call);                                                \
        dn_cuda_leave(d, pushed_);                                                     \
        return status_;                                                                \
    } while (0)

danaus_status dn_cuda_describe(
    const cuda_driver *driver, cu_device handle, int ordinal, danaus_device_info *info);

/* Gives a device what it shares with others on its GPU. */
danaus_status dn_cuda_share(cuda_device *d, int ordinal);
void dn_cuda_unshare(cuda_device *d);

/* Memory of the GPU, in its context, for any stream. Memory is freed once all earlier work of
   all devices on the GPU is done; nothing waits for that. */
danaus_status dn_cuda_alloc(cuda_gpu *g, size_t bytes, void **memory);
void dn_cuda_free(cuda_gpu *g, void *memory);

danaus_status dn_cuda_open_memory(cuda_gpu *g);
void dn_cuda_close_memory(cuda_gpu *g);

/* A queue comes, goes (when its work is done, with its scratch), waits for its work, goes to
   another stream. */
void dn_cuda_open_queue(cuda_device *d);
void dn_cuda_close_queue(cuda_device *d);
danaus_status dn_cuda_wait(cuda_device *d);
danaus_status dn_cuda_set_stream(cuda_device *d, cu_stream stream);

/* Where scratch comes from: memory that is lent, or an allocator; NULL both: the device's
   own memory. */
danaus_status dn_cuda_set_scratch(
    cuda_device *d, void *lent, size_t bytes, const danaus_allocator *allocator);

/* d->gpu.scratch and d->workspace for a call, and their end. */
danaus_status dn_cuda_take_scratch(cuda_device *d, gpu_need need, int capturing);
void dn_cuda_give_scratch(cuda_device *d);
size_t dn_cuda_scratch_bytes(const cuda_device *d, gpu_need need);

/* True if a copy is large and reads pageable memory of the host. dn_cuda_stage() enqueues such a
   copy in several parts. */
int dn_cuda_can_stage(cuda_device *d, const void *from, size_t bytes);
danaus_status dn_cuda_stage(cuda_device *d, void *to, const void *from, size_t bytes);
void dn_cuda_close_staging(cuda_device *d);

/* Until it is given back, this thread may do what captures of others forbid. */
int dn_cuda_set_capture_mode(const cuda_driver *driver, int mode);
#define CAPTURE_RELAXED 2

/* Makes a call, with scratch. A repeated call is launched as its graph, or before that as a
   graph for other operands. */
danaus_status dn_cuda_call(gpu_device *dev, gpu_key *key, const gpu_job *job);
void dn_cuda_forget_replays(cuda_device *d);

/* Members of a gpu_driver. Without a capture there is one branch, unless launches are long: events
   cost more than short launches in a row. */
danaus_status dn_cuda_part(gpu_device *dev, int is_long, int *parted);
void dn_cuda_turn(gpu_device *dev);
danaus_status dn_cuda_meet(gpu_device *dev);

/* A launch of the form that is recorded, which has been made; one of the form that is
   patched, instead of being made. */
void dn_cuda_record(cuda_device *d, cu_function function, const gpu_launch *launch);
void dn_cuda_patch(
    cuda_device *d, cu_function function, const gpu_launch *launch, void **arguments);

/* Members of a gpu_driver: module.c. */
danaus_status dn_cuda_load(
    gpu_device *dev, const void *image, size_t bytes, const char *entry, int *refused,
    gpu_loaded *to);
void dn_cuda_unload(gpu_shared *shared, void *module);

/* launch.c */
extern const gpu_driver dn_cuda_gpu_driver;

/* Bytes of a workspace. */
size_t dn_cuda_workspace_bytes(const cuda_device *d);

/* Fails where cuBLAS is missing; the error's sentence says what to install. *epilogues becomes
   nonzero if its products can apply a bias, an activation or a residual. */
danaus_status dn_cuda_find_blas(int *epilogues);

void dn_cuda_close_blas(cuda_gpu *g);

/* Members of a gpu_driver: blas.c. */
danaus_status dn_cuda_open_products(gpu_device *dev, const ks_step *step);
danaus_status dn_cuda_products(
    gpu_device *dev, const ks_step *step, const void *packed, const gpu_call *call,
    const gpu_ending *ending, int *ended);
danaus_status dn_cuda_weight_products(
    gpu_device *dev, const problem *p, int64_t batch, gpu_slabs s, const void *x,
    const void *dy, void *to, int add);

/* Median seconds of run(dev, arg), the operands not in caches. */
danaus_status dn_cuda_time(
    danaus_device *dev, device_run *run, void *arg, double *seconds);

/* danaus_device_energy() through NVIDIA's management library. */
danaus_status dn_cuda_energy(danaus_device *dev, double *joules);

#endif
