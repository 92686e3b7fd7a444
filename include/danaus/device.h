/* A device: a place to compute, a queue for work, scratch memory and a tuning table. It is
   the only object that changes while products run, so each thread that runs products
   opens its own. Threads, and devices of the same name, share plans, packed weights and
   spectra. Any number of devices may be open on one GPU. They share its context, compiled
   kernels and tuning table, and another device costs next to nothing.

   When work is done: on a CPU a call returns when its work is done. On a GPU a product, a
   gradient and an update from device memory return when their work is in the device's
   stream; uploads, downloads and danaus_device_sync() wait. Work in one stream runs in
   order, and work in different streams in any order. If one stream uses results of
   another, put an event between them.

   Streams: NULL is CUDA's default stream, which waits for other streams unless they were
   created not to. The caller keeps a stream until the device gets another one or is
   closed. Each stream has its own scratch, so one device may go from stream to stream.
   Lent scratch is one for all streams: a stream then waits for the one before.

   When to free: memory of danaus_alloc(), weights and spectra may be freed once the last
   call that uses them has been made. On a GPU they are kept until all work that any device
   on it was given before is done, and nothing waits for that. Close a device after
   everything that was made on it is destroyed; closing waits for its work.

   Graphs that the caller captures hold pointers to operands, weights and scratch. Weights
   must stay as long as the graph. The device keeps scratch that it handed out while its
   stream was captured until it closes. Two graphs may use the same scratch: launch them in
   one stream, or in some order. The caller keeps scratch that was lent or came from an
   allocator, and orders it with its other uses.

   After fork(): the child may use and close CPU devices of its parent, which start new
   threads. It cannot use a GPU that was open: every call fails with
   DANAUS_ERR_UNSUPPORTED, and closing the device there frees only the child's memory. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DANAUS_DEVICE_H
#define DANAUS_DEVICE_H

#include "danaus/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct danaus_device danaus_device;

typedef struct danaus_device_info {
    char name[32];         /* what danaus_device_open() takes: "cpu" */
    char description[96];  /* the maker's name for it */
    char instructions[32]; /* instruction set in use: "avx512" */
    int64_t memory;        /* bytes; 0: unknown */
    int64_t cache;         /* bytes of the last cache; 0: unknown */
    int threads;           /* threads that one product may use; 0 on a GPU */
    uint32_t reserved[19]; /* zero */
} danaus_device_info;

/* Runs task(arg, i) for every i in [0, count), in any order and on any
   threads, and returns when all are done. */
typedef void (*danaus_parallel_fn)(
    void *user, int count, void (*task)(void *arg, int i), void *arg);

/* How many devices this machine has: its processors, as one, and its GPUs. */
DANAUS_API danaus_status danaus_device_count(int *count);

/* The device number `index` of this machine, counting from 0.
   DANAUS_ERR_ARGUMENT past the last one. */
DANAUS_API danaus_status danaus_device_list(int index, danaus_device_info *info);

/* name: "cpu", or "cpu:avx2" for at most that instruction set ("scalar", "avx2", "avx512",
   "neon"): the device takes the best one up to it that this processor has. The caller owns
   the device and closes it after everything that was made on it. */
DANAUS_API danaus_status danaus_device_open(const char *name, danaus_device **device);
DANAUS_API void danaus_device_close(danaus_device *device); /* NULL is fine */

/* OpenCL only: opens the device of a cl_command_queue, in the queue's context, and runs in this
   queue, which must run in order. The device keeps queue and context until it is closed. */
DANAUS_API danaus_status danaus_device_open_queue(void *queue, danaus_device **device);

DANAUS_API danaus_status
danaus_device_describe(const danaus_device *device, danaus_device_info *info);

/* The name of kernel number `index` on this device, or NULL past the last. */
DANAUS_API const char *danaus_device_kernel(const danaus_device *device, int index);

/* What the kernel does: "product", "weight_gradient", "pack" or "convolution", or NULL. */
DANAUS_API const char *danaus_device_operation(const danaus_device *device, int index);

/* Waits until all work of the device is done, and reports what failed. */
DANAUS_API danaus_status danaus_device_sync(danaus_device *device);

/* GPU only: run on the caller's stream from now on; NULL: the default stream. The host does
   not wait. On a device of OpenCL it is a cl_command_queue in order of the device's context, and
   the host waits for the queue before. */
DANAUS_API danaus_status danaus_device_set_stream(danaus_device *device, void *stream);

/* CPU only: threads >= 1 for each product, including the caller's. 0, the initial value,
   means one for each processor that the process may use: the processors that it may run on
   (sched_getaffinity), or the whole processors within its control groups' limits (cpu.max,
   cpu.cfs_quota_us) if these are fewer. Results do not depend on the number. */
DANAUS_API danaus_status danaus_device_set_threads(danaus_device *device, int threads);

/* CPU only: run parts in the host program's own pool of threads; NULL returns to ours. */
DANAUS_API danaus_status
danaus_device_set_parallel(danaus_device *device, danaus_parallel_fn fn, void *user);

/* Lends scratch memory until the next call of this function or until the device closes;
   NULL returns to the device's own memory. If lent scratch is too small, a product fails
   with DANAUS_ERR_MEMORY before any of it runs. */
#define DANAUS_SCRATCH_ALIGN 256 /* bytes: of lent memory, and of an allocator's */
DANAUS_API danaus_status
danaus_device_set_scratch(danaus_device *device, void *memory, size_t bytes);

/* Scratch from the caller's allocator. Every call that needs scratch allocates it, and frees
   it before the call returns: as soon as its work is in the stream (NULL on a CPU), where
   the work may still run. So `alloc` and `free` follow the order of the stream, as the
   allocators of frameworks do. alloc returns DANAUS_OK or the status with which the call
   fails. */
typedef struct danaus_allocator {
    void *user;
    danaus_status (*alloc)(void *user, size_t bytes, void *stream, void **memory);
    void (*free)(void *user, void *memory, void *stream);
    void *reserved[5];
} danaus_allocator;

/* The allocator is copied. NULL returns to the device's own memory; lending scratch also
   ends the use of an allocator. With an allocator the device keeps no scratch. */
DANAUS_API danaus_status
danaus_device_set_allocator(danaus_device *device, const danaus_allocator *allocator);

/* Reads or writes the tuning table: measured choices, and the results of calibration.
   Reading skips rows for other devices or for kernels that do not exist here. A device
   opens with the rows that the library has for it (docs/formats.md). Those rows are not
   written, and rows that are read or measured replace them. Writing keeps the rows of other
   devices that the file has, and does not replace a file that is no table. */
DANAUS_API danaus_status
danaus_device_load_tuning(danaus_device *device, const char *path);
DANAUS_API danaus_status
danaus_device_save_tuning(const danaus_device *device, const char *path);

/* GPU only: joules that the whole device has used for any purpose since its driver was
   loaded. The device's counter is updated about ten to fifty times a second.
   DANAUS_ERR_UNSUPPORTED if the device has no counter. */
DANAUS_API danaus_status danaus_device_energy(danaus_device *device, double *joules);

/* GPU only: compiled kernels as one file, for machines without a compiler. Export writes the
   kernels of this version in the cache folder, for all GPUs (instructions is NULL) or for
   one kind (the instructions of danaus_device_info, "sm_90"). Import checks the whole file,
   then puts its kernels into the cache folder. *count is their number; count may be NULL.
   DANAUS_ERR_ARGUMENT if the cache has no kernels or is turned off. A GPU runs what it is
   given: import only from sources that you trust with programs. */
DANAUS_API danaus_status
danaus_kernels_export(const char *instructions, const char *path, int64_t *count);
DANAUS_API danaus_status danaus_kernels_import(const char *path, int64_t *count);

/* One kind of kernels in such a file. */
typedef struct danaus_kernels_info {
    char version[16];      /* of danaus; kernels of other versions are never used */
    char instructions[32]; /* "sm_90" */
    int64_t count, bytes;  /* of these kernels */
    uint64_t reserved[8];  /* zero */
} danaus_kernels_info;

/* The kind number `index`, counting from 0. DANAUS_ERR_ARGUMENT past the last one. Images
   are not checked. */
DANAUS_API danaus_status
danaus_kernels_list(const char *path, int index, danaus_kernels_info *info);

/* GPU only: from now on this process looks for kernels in this file, or in all files
   *.kernels of this folder, before it looks into the cache folder or compiles. So a package
   can bring its own kernels. Files stay mapped until the process ends, and nobody may change
   them meanwhile. An image is checked when it is loaded. If a file of a folder cannot be
   used, the call fails, and the other files are in use. The environment variable
   DANAUS_KERNELS, files and folders separated by ':', comes first. */
DANAUS_API danaus_status danaus_kernels_use(const char *path);

/* GPU only: says where to find a library that danaus does not bring and that the loader may
   not find. `library` is "nvrtc", the compiler (call this before the first plan), or "cublas"
   (before the first GPU is opened). path is the library's file or its folder; NULL undoes an
   earlier call. The environment variables DANAUS_NVRTC and DANAUS_CUBLAS come first. Without
   a path danaus takes the library that the process has loaded, else the loader's, else the
   one in /usr/local/cuda. DANAUS_ERR_ARGUMENT if the library is open already. */
DANAUS_API danaus_status danaus_library_locate(const char *library, const char *path);

/* CPU only: measures the constants of the cost model that plans convolutions (docs/conv.md),
   with the device's present threads, and keeps them in the device's tuning table. It runs
   for some seconds. Later plans use the constants. progress may be NULL. On failure the
   table does not change. */
DANAUS_API danaus_status
danaus_device_calibrate(danaus_device *device, danaus_progress_fn progress, void *user);

/* Device memory, aligned to 256 bytes; on a CPU it is plain memory. On a device of OpenCL it is
   shared virtual memory of the device's context, which kernels of the caller take with
   clSetKernelArgSVMPointer. There x, y and all other operands, and lent scratch, are pointers
   into such memory; a cl_mem is none. */
DANAUS_API danaus_status
danaus_alloc(danaus_device *device, size_t bytes, void **memory);
DANAUS_API void danaus_free(danaus_device *device, void *memory);
DANAUS_API danaus_status
danaus_upload(danaus_device *device, void *to, const void *from, size_t bytes);
DANAUS_API danaus_status
danaus_download(danaus_device *device, void *to, const void *from, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
