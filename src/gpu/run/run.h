/* What runs rows on a GPU of any driver.

   Products, gradients, convolutions, packing and the operations of models are made of tasks
   here: a compiled function, its grid and its arguments. A driver (gpu_driver) compiles and
   launches them, and knows neither rows nor problems. src/cuda is one. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_GPU_RUN_RUN_H
#define DN_GPU_RUN_RUN_H

#include "base/thread.h"
#include "gpu/gpu.h"
#include "gpu/gradient/dw.h"

#include <string.h>

/* ---- tasks ---- */

/* A view of an operand in memory of the device, for the bulk copy engine. */
typedef struct gpu_view {
    gpu_map map; /* rank 0: none */
    danaus_dtype dtype;
    const void *memory;
} gpu_view;

/* An argument of a launch. It is read when the launch is made. */
typedef enum gpu_argument_kind {
    GPU_END, /* there are no more */
    GPU_VALUE,
    GPU_POINTER, /* to memory of the device */
    GPU_TABLE,   /* of a kernel that has no other argument */
    GPU_VIEW
} gpu_argument_kind;

typedef struct gpu_argument {
    const void *at; /* of the value, the pointer or the view */
    size_t bytes;
    gpu_argument_kind kind;
} gpu_argument;

#define GPU_MOST_ARGUMENTS 32

#define GPU_KIND(x)                                                                    \
    _Generic(                                                                          \
        (x), void *: GPU_POINTER, const void *: GPU_POINTER,                           \
        const int64_t *: GPU_POINTER, gpu_view: GPU_VIEW, int: GPU_VALUE,              \
        int64_t: GPU_VALUE)

/* Makes an argument of a variable; or, the other one, of a table. */
#define ARG(x)                                                                         \
    {                                                                                  \
        &(x), sizeof(x), GPU_KIND(x)                                                   \
    }
#define ARG_TABLE(x)                                                                   \
    {                                                                                  \
        &(x), sizeof(x), GPU_TABLE                                                     \
    }

typedef struct gpu_task {
    gpu_function function;
    gpu_launch launch;
    const gpu_argument *arguments; /* the last one is GPU_END */
} gpu_task;

/* ---- calls ---- */

/* What a call needs beside its operands. */
typedef struct gpu_need {
    size_t scratch;
    int library; /* a workspace of the library */
} gpu_need;

/* A call: the scratch that it needs; its tasks, which depend only on the key and the scratch;
   and after how many calls with the same key a driver may make a graph of it. */
typedef struct gpu_job {
    gpu_need (*need)(gpu_device *d, void *arg);
    danaus_status (*run)(gpu_device *d, void *arg);
    void *arg;
    int often;
} gpu_job;

#define GPU_MOST_KEY 2304 /* bytes */

/* Everything that a call's work depends on, as bytes: steps, then operands. */
typedef struct gpu_key {
    size_t bytes, form; /* the first `form` bytes say which launches there are */
    int is_long;        /* some did not find room */
    unsigned char data[GPU_MOST_KEY];
} gpu_key;

/* A key is begun, given what decides which launches there are, then operands. It begins with
   room for the driver's queue. */
static inline void dn_gpu_key_add(gpu_key *key, const void *data, size_t bytes)
{
    if (bytes > sizeof key->data - key->bytes) {
        key->is_long = 1;
        return;
    }
    memcpy(key->data + key->bytes, data, bytes);
    key->bytes += bytes;
}

static inline void dn_gpu_key_begin(gpu_key *key)
{
    key->bytes = sizeof(void *);
    key->is_long = 0;
}

static inline void dn_gpu_key_end_form(gpu_key *key) { key->form = key->bytes; }

/* ---- drivers ---- */

/* What follows a product: residual + activation(y + bias). The bias is there in the type of
   sums and, for products of a library, in that of y. */
typedef struct gpu_ending {
    const void *bias, *rounded_bias; /* NULL: none; the other may be NULL alone */
    int activation;
    const void *residual; /* like y, or y itself; NULL: none */
} gpu_ending;

/* A function of a compiled text, loaded. It is known by its use, and by each row and problem
   that have it. */
typedef struct gpu_loaded {
    hash128 hash;          /* of one of these */
    void *module;          /* of the driver, by its use; else NULL */
    gpu_function function; /* NULL: an empty place */
} gpu_loaded;

/* What all devices on a GPU share. */
struct gpu_shared {
    const gpu_driver *driver;
    gpu_facts facts;
    thread_lock *lock;     /* of what follows; held for lookups and insertions alone */
    gpu_loaded *functions; /* open addressing; at most half of the places taken */
    size_t function_count, function_capacity;
    const kernel **refused; /* rows that do not compile here */
    size_t refused_count, refused_capacity;
    pack_map *maps;           /* of weights, each as long as it has users */
    gpu_constants *constants; /* of transforms */
};

/* All that a driver has to give, beside what a backend does for devices and memory. Functions but
   `compile`, `hash`, `enter`, `scratch_bytes` and `free` are called between `enter` and `leave`. */
struct gpu_driver {
    /* Compiles a source for an architecture into *image, which the caller frees with dn_free.
       When log is not NULL it gets what the compiler says of the result (to be freed, too).
       *refused, unless refused is NULL, becomes 1 when the compiler finds fault with the source,
       which another one may not. */
    danaus_status (*compile)(
        const char *source, int arch, void **image, size_t *bytes, char **log,
        int *refused);
    /* Adds to a hash what decides the image, beside the source. */
    hash128 (*hash)(hash128 hash, int arch);
    /* Loads the function `entry` of an image. *refused becomes 1 where the fault is the image's.
       `unload` takes its module. */
    danaus_status (*load)(
        gpu_device *d, const void *image, size_t bytes, const char *entry, int *refused,
        gpu_loaded *to);
    void (*unload)(gpu_shared *g, void *module);

    /* This thread begins and ends to use the GPU. */
    danaus_status (*enter)(gpu_device *d, int *entered);
    void (*leave)(gpu_device *d, int entered);

    /* Work that is enqueued: a task; a copy within memory of the device. */
    danaus_status (*launch)(gpu_device *d, const gpu_task *task);
    danaus_status (*copy)(gpu_device *d, void *to, const void *from, size_t bytes);

    /* Makes a call, with d->scratch. A key allows a graph; NULL: there is none. */
    danaus_status (*call)(gpu_device *d, gpu_key *key, const gpu_job *job);
    size_t (*scratch_bytes)(const gpu_device *d, gpu_need need);
    /* True in *capturing if the caller makes a graph of what is enqueued. */
    danaus_status (*capturing)(gpu_device *d, int *capturing);

    /* Two branches of work. After *parted became 1, `turn` switches to the second branch and
       back, and `meet` switches back and waits for it. is_long: also without a graph, as
       launches are worth events. */
    danaus_status (*part)(gpu_device *d, int is_long, int *parted);
    void (*turn)(gpu_device *d);
    danaus_status (*meet)(gpu_device *d);

    /* Makes ready what a step of a library's row needs. */
    danaus_status (*open_library)(gpu_device *d, const ks_step *step);
    /* Products of a library, for rows of such: y = K x, where *ended becomes 1 if what follows
       was part of them; and the weight gradients of a factor of a real type, batch-last or with
       d = 1, of slabs of the batch from where x and dy begin, to [slab][a][d][b][c] in the type
       of sums, or added to what is there. */
    danaus_status (*products)(
        gpu_device *d, const ks_step *step, const void *packed, const gpu_call *call,
        const gpu_ending *ending, int *ended);
    danaus_status (*weight_products)(
        gpu_device *d, const problem *p, int64_t batch, gpu_slabs s, const void *x,
        const void *dy, void *to, int add);

    /* Frees memory of the GPU, also without a device. */
    void (*free)(gpu_shared *g, void *memory);
};

/* Returns the status of a call that is made between `enter` and `leave`. */
#define RETURN_ENTERED(d, call)                                                        \
    do {                                                                               \
        int entered_;                                                                  \
        TRY((d)->shared->driver->enter((d), &entered_));                               \
        danaus_status status_ = (call);                                                \
        (d)->shared->driver->leave((d), entered_);                                     \
        return status_;                                                                \
    } while (0)

static inline danaus_status dn_gpu_launch(
    gpu_device *d, gpu_function function, const gpu_launch *launch,
    const gpu_argument *arguments)
{
    const gpu_task task = { function, *launch, arguments };
    return d->shared->driver->launch(d, &task);
}

/* The function of a row for a problem. It is loaded now if dn_gpu_prepare() left it in a file.
   Functions that dn_gpu_prepare() did not expect, for operands with another alignment than
   danaus' memory, are compiled now, but not while a caller captures. */
danaus_status dn_gpu_function(
    gpu_device *d, const kernel *k, const problem *p, int variant,
    gpu_function *function);

/* The functions of several uses, which get their hashes; new ones are compiled on several
   threads. */
danaus_status dn_gpu_load_uses(
    gpu_device *d, gpu_use *uses, int count, gpu_function *functions);

/* ---- products ---- */

/* Orders of rows that a step does, and how many rows x and y then have. */
typedef struct gpu_orders {
    const int64_t *x, *y;
    int64_t x_rows, y_rows;
} gpu_orders;

/* One step: y = K x with its ending, unless that is NULL. orders: for a problem with orders.
   work: the step's own scratch, dn_gpu_work_bytes() bytes. */
size_t dn_gpu_work_bytes(const ks_step *step, int64_t batch);
danaus_status dn_gpu_step(
    gpu_device *d, const ks_step *step, const void *packed, const gpu_ending *ending,
    const gpu_orders *orders, int64_t batch, const void *x, void *y, void *work);

/* True if a library makes a part of a step. */
int dn_gpu_needs_library(const ks_step *step);

/* Where scratch comes from: memory that is lent, or an allocator; NULL both: the driver. */
void dn_gpu_set_scratch(
    gpu_device *d, void *lent, size_t bytes, const danaus_allocator *allocator);
/* *memory: scratch of a call from the caller, whose name of the stream this is; NULL: the driver
   has to give it. */
danaus_status dn_gpu_ask_scratch(
    const gpu_device *d, size_t bytes, void *stream, void **memory);
/* A call's work is enqueued: an allocator's memory is its own again when the stream gets there. */
void dn_gpu_give_scratch(gpu_device *d, void *stream);

/* Fails for types of f64 where a device has none. */
danaus_status dn_gpu_check_type(const gpu_device *d, danaus_dtype type);

/* The number in a device's name: 1 in "cuda:1", 0 in "cuda". */
danaus_status dn_gpu_ordinal(const char *name, const backend *b, int *ordinal);

/* ---- members of a backend (device/backend.h) ---- */

/* Both refuse what is only for processors. */
danaus_status dn_gpu_set_threads(danaus_device *dev, int threads);
danaus_status dn_gpu_set_parallel(
    danaus_device *dev, danaus_parallel_fn fn, void *user);

/* Compiles on all threads, and loads, all that the steps can run for operands with the
   alignment of allocations. Functions that are in a file, and not for the hinted batch, are
   loaded at their first use. */
danaus_status dn_gpu_prepare(
    danaus_device *dev, const ks_step *steps, int count, int *refused);
int dn_gpu_refuses(const danaus_device *dev, const kernel *k);

danaus_status dn_gpu_ks_run(
    danaus_device *dev, const ks_step *steps, int count, const ks_operands *o);
size_t dn_gpu_ks_scratch(
    danaus_device *dev, const ks_step *steps, int count, int64_t batch);
danaus_status dn_gpu_ks_gradient(
    danaus_device *dev, const ks_step *steps, const ks_step *adjoint, int count,
    const ks_gradient_operands *o);
size_t dn_gpu_gradient_scratch(
    danaus_device *dev, const ks_step *steps, const ks_step *adjoint,
    const ks_step *dw_steps, int count, int64_t batch);
danaus_status dn_gpu_pick(danaus_device *dev, const pick_job *job);
double dn_gpu_picking(
    const danaus_device *dev, danaus_dtype dtype, int64_t rows, int64_t columns);
double dn_gpu_packing(const danaus_device *dev, const kernel *k, const problem *p);

extern const pack_backend dn_gpu_pack_backend;
extern const nn_backend dn_gpu_nn_backend;
extern const conv_backend dn_gpu_conv_backend;

/* Frees constants that convolutions made. */
void dn_gpu_free_constants(gpu_shared *g);

#endif
