/* A device: a place to compute, a queue for work, scratch memory and a tuning table. It is
   the only object that changes while products run, so each thread that runs products
   opens its own; plans, packed weights and spectra are shared between threads, and between
   devices of the same name. Any number of devices may be open on one GPU: they share its
   context, compiled kernels and tuning table, and another one costs next to nothing.

   What is done when: on a CPU a call returns when its work is done. On a GPU a product, a
   gradient and an update from the device's memory return when their work is in the
   device's stream; uploads, downloads and danaus_device_sync() wait. Work of one stream is
   done in its order, that of different streams in any: who uses in one stream what
   another one makes puts an event between them.

   Streams: NULL is CUDA's default stream, which waits for other streams unless they were
   created not to. A stream that a device was given exists until the device is given
   another one or is closed. Each stream has scratch of its own, so that one device may go
   from stream to stream; lent scratch is one for all, and there a stream waits for the
   former one.

   What may go when: memory of danaus_alloc(), weights and spectra as soon as no call that
   uses them is still to be made: on a GPU they are kept until all is done that was
   asked, before, of any device on it, and nothing waits for that. A device, when everything
   that was made on it is gone: closing waits for its work.

   Graphs that the caller captures hold pointers: to operands, weights and scratch. Weights
   have to stay as long as the graph. Scratch that the device handed out while its stream
   was captured is kept until the device closes (two graphs may have the same: launch
   them in one stream, or in some order). Scratch that was lent, or came from an allocator,
   is the caller's to keep, and to order with what else uses it.

   After fork(): the child uses and closes CPU devices of its parent, which make their
   threads anew. A GPU that was open cannot be used in the child: every call says so with
   DANAUS_ERR_UNSUPPORTED, and closing it there frees the child's memory alone. */
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
    int threads;           /* threads that one product may use; 0: a GPU */
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

/* name: "cpu", or "cpu:avx2" for at most that instruction set ("scalar",
   "avx2", "avx512", "neon"): the best one of this processor that is no better. The caller owns the device and closes it after
   everything that was made on it. */
DANAUS_API danaus_status danaus_device_open(const char *name, danaus_device **device);
DANAUS_API void danaus_device_close(danaus_device *device); /* NULL is fine */

DANAUS_API danaus_status
danaus_device_describe(const danaus_device *device, danaus_device_info *info);

/* The name of kernel number `index` on this device, or NULL past the last. */
DANAUS_API const char *danaus_device_kernel(const danaus_device *device, int index);

/* What it does: "product", "weight_gradient", "pack" or "convolution", or NULL. */
DANAUS_API const char *danaus_device_operation(const danaus_device *device, int index);

/* Waits until everything asked of the device is done; reports what failed. */
DANAUS_API danaus_status danaus_device_sync(danaus_device *device);

/* GPU only: run on the caller's stream from now on; NULL: the default one. Nothing waits, on
   the host. */
DANAUS_API danaus_status danaus_device_set_stream(danaus_device *device, void *stream);

/* CPU only: threads >= 1 for each product, the caller's included; 0, as at first, means one
   for each processor that the process may use: those it may run on (sched_getaffinity), or
   the whole ones of its control groups' limits (cpu.max, cpu.cfs_quota_us) if they are
   fewer. Results do not depend on it. */
DANAUS_API danaus_status danaus_device_set_threads(danaus_device *device, int threads);

/* CPU only: run parts through the host's own pool; NULL goes back to ours. */
DANAUS_API danaus_status
danaus_device_set_parallel(danaus_device *device, danaus_parallel_fn fn, void *user);

/* Lends scratch memory for as long as the device lives or until the next call; NULL returns
   to memory of the device's own. With lent scratch that is too small a product fails with
   DANAUS_ERR_MEMORY before anything of it runs. */
#define DANAUS_SCRATCH_ALIGN 256 /* bytes: of lent memory, and of an allocator's */
DANAUS_API danaus_status
danaus_device_set_scratch(danaus_device *device, void *memory, size_t bytes);

/* Scratch from an allocator of the caller's, asked for by every call that needs some, and
   given back before the call returns: as soon as its work is in the stream (NULL on a
   CPU), where it may still run. So `alloc` and `free` are in the order of the stream, as
   those of frameworks are. alloc returns DANAUS_OK, or with what the call is to fail. */
typedef struct danaus_allocator {
    void *user;
    danaus_status (*alloc)(void *user, size_t bytes, void *stream, void **memory);
    void (*free)(void *user, void *memory, void *stream);
    void *reserved[5];
} danaus_allocator;

/* The allocator is copied. NULL returns to memory of the device's own, as lending scratch
   ends the use of an allocator. With an allocator no scratch stays with the device. */
DANAUS_API danaus_status
danaus_device_set_allocator(danaus_device *device, const danaus_allocator *allocator);

/* Reads or writes the table of what was measured: choices, and what calibration
   found. Rows for other devices or for kernels that do not exist here are skipped.
   A device opens with the rows that the library has for it (docs/formats.md); they are
   not written, and give way to rows read and to measurements. Rows of other devices that
   a table of that name has stay in it; a file that is no table is not replaced. */
DANAUS_API danaus_status
danaus_device_load_tuning(danaus_device *device, const char *path);
DANAUS_API danaus_status
danaus_device_save_tuning(const danaus_device *device, const char *path);

/* GPU only: joules that the whole device has used, for whatever purpose, since its driver
   was loaded, by a counter of its own that moves some ten to fifty times a second.
   DANAUS_ERR_UNSUPPORTED where there is none. */
DANAUS_API danaus_status danaus_device_energy(danaus_device *device, double *joules);

/* GPU only: compiled kernels as one file, for machines without a compiler. Export writes
   those of this version that the cache folder holds, of all GPUs or of one kind:
   instructions is that of danaus_device_info ("sm_90") or NULL. Import checks the whole
   file, then puts its kernels into the cache folder. *count (or NULL) gets their number.
   DANAUS_ERR_ARGUMENT when the cache has none, or is turned off. A GPU runs what it is
   given: import only from where you would take programs. */
DANAUS_API danaus_status
danaus_kernels_export(const char *instructions, const char *path, int64_t *count);
DANAUS_API danaus_status danaus_kernels_import(const char *path, int64_t *count);

/* What such a file holds, a kind of kernels after the other. */
typedef struct danaus_kernels_info {
    char version[16];      /* of danaus: kernels of others are never used */
    char instructions[32]; /* "sm_90" */
    int64_t count, bytes;  /* of them */
    uint64_t reserved[8];  /* zero */
} danaus_kernels_info;

/* The kind number `index`, counting from 0. DANAUS_ERR_ARGUMENT past the last one. Images
   are not checked. */
DANAUS_API danaus_status
danaus_kernels_list(const char *path, int index, danaus_kernels_info *info);

/* GPU only: from now on this process looks for kernels in such a file, or in all files
   *.kernels of a folder, before it looks into the cache folder or compiles: so packages
   can bring theirs. Files are mapped until the process ends, and nobody may change them
   meanwhile; an image is checked when it is taken. Where a file of a folder cannot be
   used the call fails, with those that can in use. The environment variable
   DANAUS_KERNELS, files and folders with ':' between them, comes first. */
DANAUS_API danaus_status danaus_kernels_use(const char *path);

/* GPU only: says where a library lies that is not part of danaus and not where the loader
   looks: "nvrtc", the compiler, to be called before the first plan, or "cublas", before the
   first GPU is opened. path is the library's file or the folder that it is in; NULL takes
   it back. The environment variables DANAUS_NVRTC and DANAUS_CUBLAS come first; without
   any the library that the process has already is taken, else the loader's, else that of
   /usr/local/cuda. DANAUS_ERR_ARGUMENT when it is open already. */
DANAUS_API danaus_status danaus_library_locate(const char *library, const char *path);

/* CPU only: measures, with the threads that the device has now, the constants of the
   model by which convolutions are planned (docs/conv.md), and keeps them in the
   device's table; some seconds. Plans that are made later use them. progress may be
   NULL. On failure the table is as it was. */
DANAUS_API danaus_status
danaus_device_calibrate(danaus_device *device, danaus_progress_fn progress, void *user);

/* Device memory, aligned to 256 bytes: on a CPU plain memory. */
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
