/* The contract between planning and computing.

   A backend is a place that can hold memory and run kernels; a kernel is one
   way to do an operation, for example to make a product with one Kronecker-sparse
   factor: a row of a table that dispatch, tuner, tests and benchmarks read. Planning
   turns a chain into steps, each a problem and the kernel chosen for it; the backend
   runs steps. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_DEVICE_BACKEND_H
#define DN_DEVICE_BACKEND_H

#include "danaus/device.h"
#include "danaus/ks.h"

typedef struct kernel kernel;
typedef struct backend backend;
typedef struct tuning tuning;
typedef struct conv_backend conv_backend; /* device/conv.h */
typedef struct nn_backend nn_backend;     /* device/nn.h */

/* What rows of the table do. */
typedef enum dn_operation {
    DN_PRODUCT = 0,     /* y = K x, with one factor or with two */
    DN_WEIGHT_GRADIENT, /* dw of one factor from x and dy */
    DN_PACK,            /* w[a][b][c][d] to the packed weights of a row for products */
    DN_OPERATIONS
} dn_operation;

/* As tuning files and `danaus info` say it. */
extern const char *const dn_operation_names[DN_OPERATIONS];

/* How a product applies orders of rows itself. */
typedef enum dn_orders {
    DN_READS = 1, /* its input's row k is row x_order[k] of x, or zeros at -1 */
    DN_WRITES = 2 /* its result's row r becomes row y_order[r] of y, or none at -1 */
} dn_orders;

/* One question: how to do an operation with a factor of this pattern, or with two. */
typedef struct problem {
    dn_operation operation;
    danaus_pattern pattern;
    danaus_pattern inner; /* of a factor that is applied before; a = 0: none */
    danaus_dtype dtype;
    danaus_layout layout;
    danaus_math math;       /* of f32 */
    int64_t batch;          /* a hint, never a condition; at least 1 */
    int x_cached, y_cached; /* hints: x was, y will be used right before, after */
    int alike;              /* a hint: the same kernel runs the steps before, after */
    int activation;         /* a hint: the danaus_activation of results */
    int fresh;              /* a hint: weights are packed before each run */
    int bias;               /* a hint: results have a bias */
    int orders;             /* dn_orders that it must do */
    int residual;           /* results are added to one, which may be where y is */
    int gated; /* y = activation(u) v, u and v the halves of the rows; bias before it */
    int batch_invariant; /* sums do not depend on the batch, nor estimates on threads */
    int int8;            /* weights and rows of x are rounded to 8 bits */
} problem;

/* Weights wherever they lie: entry (i, r, k, j) is element
   i s[0] + r s[1] + k s[2] + j s[3] of data, times `scale`, conjugated if asked. An
   adjoint is a view with b and c exchanged. */
typedef struct weights_view weights_view;
struct weights_view {
    const void *data;
    danaus_dtype dtype;
    int64_t s[4];
    int conjugate;
    double scale;
    const weights_view *inner; /* of the problem's inner factor, or NULL */
    /* Not NULL: there are no data, and a packer only notes here which entries it would take
       (gpu/rows.h). */
    struct pack_places *places;
};

/* w[a][b][c][d] as it lies, for the pattern p itself. */
weights_view dn_weights_view(const void *data, danaus_dtype dtype, danaus_pattern p);
weights_view dn_weights_adjoint(weights_view view);

/* Writes count elements of w that are step apart, from element `from` on, as type. */
void dn_weights_gather(
    const weights_view *w, int64_t from, int64_t step, int64_t count, danaus_dtype type,
    void *to);

/* What rows have in common that differ in sizes and type: one constant struct in the file
   that implements them. */
typedef struct kernel_family {
    dn_operation operation;
    int orders;        /* dn_orders that they can do */
    int gates;         /* nonzero: they can compute gated products */
    int batch_variant; /* nonzero: the order of their sums may depend on the batch */
    int int8;          /* nonzero: they multiply 8-bit numbers, and no others */
    /* Asked through dn_fits of problems of its operation and of the row's type. */
    int (*fits)(const kernel *k, const problem *p);
    double (*cost)(const danaus_device *dev, const kernel *k, const problem *p);
    /* Weights in the row's order; NULL: of operations without weights. */
    size_t (*packed_bytes)(const kernel *k, const problem *p);
    void (*pack)(const kernel *k, const problem *p, weights_view w, void *packed);
    /* A value for the step that is too expensive to find at each call; NULL: none. */
    int64_t (*settle)(const kernel *k, const problem *p);
} kernel_family;

struct kernel {
    const char *name; /* stable: tuning files use it */
    danaus_dtype dtype;
    const kernel_family *family;
    const void *code; /* sizes, and what else the backend runs */
};

static inline int dn_fits(const kernel *k, const problem *p)
{
    return k->family->operation == p->operation && k->dtype == p->dtype &&
           !p->int8 == !k->family->int8 && !(p->orders & ~k->family->orders) &&
           (!p->gated || k->family->gates) &&
           !(p->batch_invariant && k->family->batch_variant) && k->family->fits(k, p);
}

/* Rough seconds of a problem that it fits. */
static inline double dn_cost(
    const danaus_device *dev, const kernel *k, const problem *p)
{
    return k->family->cost(dev, k, p);
}

static inline size_t dn_packed_bytes(const kernel *k, const problem *p)
{
    return k->family->packed_bytes(k, p);
}

/* One step of a chain. Steps are in the order in which they run. */
typedef struct ks_step {
    problem p;
    const kernel *kernel;
    int64_t settled; /* by the kernel's family when planning; 0: not, or nothing */
} ks_step;

static inline ks_step dn_step(const kernel *k, const problem *p)
{
    return (ks_step){ *p, k, k->family->settle ? k->family->settle(k, p) : 0 };
}

typedef struct ks_operands {
    int64_t batch; /* at least 1 */
    const void *x;
    /* On a host, from one row of x, of y, to the next where they are batch-last; 0: batch. */
    int64_t x_ld, y_ld;
    int add; /* to what y holds, by steps that do (`adds`); bias and activation come after */
    int kept;                  /* a hint: y is used right after */
    const void *const *packed; /* one a step */
    /* Rows of the last step, in the type of sums, aligned as memory of the device is; or
       NULL. */
    const void *bias;
    /* The same in the type of y, for steps that take it (`rounds_bias`); may be NULL. */
    const void *rounded_bias;
    void *y;
    danaus_activation activation; /* of the last step's results, after the bias */
    /* The orders in which the first step reads rows of x and the last step writes rows of y,
       in memory of the device; and how many rows x and y have. */
    const int64_t *x_order, *y_order;
    int64_t x_rows, y_rows;
    /* An array like y, or y itself, to which results are added; or NULL. */
    const void *residual;
} ks_operands;

/* Gradients: steps and packed run forward, adjoint steps multiply by K^H, in the
   order of the forward steps. dw[s] and dw_steps[s] belong to step s; views say where
   entry (i, r, k, j) goes. */
typedef struct ks_gradient_operands {
    int64_t batch; /* at least 1 */
    const void *x, *dy;
    const void *const *packed, *const *packed_adjoint; /* NULL: dw alone, of one step */
    void *dx;                                          /* or NULL */
    const weights_view *dw; /* data may be NULL; type of sums */
    const ks_step
        *dw_steps; /* that make these; NULL: the device has no rows for them */
    void *dbias;   /* or NULL */
    int rounded;   /* dw and dbias are of the problem's type, not of that of sums */
} ks_gradient_operands;

/* Packs numbers in device memory, on the device. Work is enqueued on the device's stream, waits
   for nothing and allocates nothing, so it can be captured. */
typedef struct pack_map pack_map;

/* The product of two factors multiplied out, to[a][b][c][d] of the pattern that holds it, in
   the type `wide` (pack_backend) that the device has for it. */
typedef struct ks_merge {
    danaus_pattern left, right, product;
    danaus_dtype left_type, right_type;
    const void *w_left, *w_right;
    void *to;
} ks_merge;

/* Numbers to pack: w[a][b][c][d] of a step's factor and of its inner factor, if it has one, in
   the order of a map. Numbers from an array that is NULL do not change. Without a map,
   w[0][count] is converted to `to_type`. */
typedef struct pack_job {
    const pack_map *map;
    danaus_dtype from_type, to_type;
    int64_t count;
    const void *w[2];
    double scale; /* of numbers that come from w[0] */
    void *to;
} pack_job;

typedef struct pack_backend {
    /* Which weights go where in the order of a step's kernel, for weights of the step's
       problem, or of the factors whose adjoints the problem multiplies by. What packing
       needs is compiled. */
    danaus_status (*open)(
        danaus_device *dev, const ks_step *step, int adjoint, pack_map **map);
    void (*close)(danaus_device *dev, pack_map *map);
    /* The same for the other two. */
    danaus_status (*prepare)(danaus_device *dev, danaus_dtype type, int merges);
    /* Enqueues jobs of a plan of this type. Numbers come in this type or in the type of its
       sums. */
    danaus_status (*pack)(
        danaus_device *dev, danaus_dtype type, const pack_job *jobs, int count);
    danaus_status (*merge)(danaus_device *dev, const ks_merge *m);
    /* The type in which factors are multiplied out: f64 or, of a complex type, c128; f32 or c64 on
       a device without f64. */
    danaus_dtype (*wide)(const danaus_device *dev, danaus_dtype type);
} pack_backend;

/* Numbers p of `columns` columns, at p next + s across elements from `data` on. */
typedef struct number_view {
    void *data;
    int64_t next, across;
} number_view;

/* Numbers in another order, and added, for p < rows and all columns:

       to[p] = activation((add ? to[p] : 0) + sum over e of from[place[e]] + bias[p])

   with start[p] <= e < start[p + 1]. Without start place[p] alone, or nothing where that is
   -1; without place from[p]. Numbers are of `dtype`, the bias of its type of sums. start,
   place and bias, which may all be NULL, are memory of the device. */
typedef struct pick_job {
    danaus_dtype dtype;
    int64_t rows, columns;
    const int64_t *start, *place;
    number_view from, to;
    int add;
    const void *bias;
    danaus_activation activation;
} pick_job;

/* Work for a device that may be asked of it again and again. */
typedef danaus_status device_run(danaus_device *dev, void *arg);

struct backend {
    const char *name;  /* "cpu" */
    int on_host;       /* its memory is the host's, its work done on return */
    int shares_tuning; /* devices of one place have one table, which `open` sets */
    danaus_status (*list)(int index, danaus_device_info *info);
    danaus_status (*open)(const char *name, danaus_device **device);
    /* danaus_device_open_queue(); NULL: this backend has no queues of OpenCL. */
    danaus_status (*open_queue)(void *queue, danaus_device **device);
    void (*close)(danaus_device *dev);
    danaus_status (*describe)(const danaus_device *dev, danaus_device_info *info);
    int64_t (*room)(const danaus_device *dev); /* bytes that it can have at most */
    danaus_status (*sync)(danaus_device *dev);
    danaus_status (*set_stream)(danaus_device *dev, void *stream);
    danaus_status (*set_threads)(danaus_device *dev, int threads);
    danaus_status (*set_parallel)(
        danaus_device *dev, danaus_parallel_fn fn, void *user);
    danaus_status (*set_scratch)(danaus_device *dev, void *memory, size_t bytes);
    danaus_status (*set_allocator)(/* NULL: none */
                                   danaus_device *dev,
                                   const danaus_allocator *allocator);
    danaus_status (*alloc)(danaus_device *dev, size_t bytes, void **memory);
    void (*free)(danaus_device *dev, void *memory);
    danaus_status (*copy)(danaus_device *dev, void *to, const void *from, size_t bytes);
    danaus_status (*clear)(danaus_device *dev, void *memory, size_t bytes); /* zeros */
    /* Prepares what the steps need to run. If rows do not compile on the device, it fails,
       *refused becomes 1, and the device refuses these rows from then on: others may do. NULL:
       there is nothing to prepare. */
    danaus_status (*prepare)(
        danaus_device *dev, const ks_step *steps, int count, int *refused);
    int (*refuses)(const danaus_device *dev, const kernel *k); /* NULL: none */
    danaus_status (*ks_run)(
        danaus_device *dev, const ks_step *steps, int count, const ks_operands *o);
    /* True if this last step can add to what y holds. NULL: none can. */
    int (*adds)(const ks_step *last);
    /* True if this last step takes a bias in the type of y. NULL: none does. */
    int (*rounds_bias)(const danaus_device *dev, const ks_step *last);
    /* Median seconds of run(dev, arg) where caches hold nothing of its operands. NULL: the
       time from call to return is taken. */
    danaus_status (*time)(
        danaus_device *dev, device_run *run, void *arg, double *seconds);
    danaus_status (*ks_gradient)(
        danaus_device *dev, const ks_step *steps, const ks_step *adjoint, int count,
        const ks_gradient_operands *o);
    /* Bytes of scratch that ks_run needs, and ks_gradient when everything is asked for. */
    size_t (*ks_scratch)(
        danaus_device *dev, const ks_step *steps, int count, int64_t batch);
    size_t (*gradient_scratch)(
        danaus_device *dev, const ks_step *steps, const ks_step *adjoint,
        const ks_step *dw_steps, int count, int64_t batch);
    danaus_status (*pick)(danaus_device *dev, const pick_job *job);
    /* Rough seconds of it, for what steps may do themselves (dn_orders). NULL: none does. */
    double (*picking)(
        const danaus_device *dev, danaus_dtype dtype, int64_t rows, int64_t columns);
    /* Threads of a host's device, and a loop on them. NULL: not of the host. */
    int (*threads)(const danaus_device *dev);
    void (*parallel)(
        danaus_device *dev, int count, void (*task)(void *arg, int number), void *arg);
    const conv_backend *conv; /* NULL: none */
    const nn_backend *nn;     /* NULL: none */
    /* Rough seconds of packing weights that lie in the device's memory for a kernel. */
    double (*packing)(const danaus_device *dev, const kernel *k, const problem *p);
    const pack_backend *pack; /* NULL: memory is the host's */
    danaus_status (*energy)(danaus_device *dev, double *joules); /* NULL: not counted */
    /* danaus_kernels_export, _import, _list and _use, and danaus_library_locate. NULL:
       nothing is compiled at run time. */
    danaus_status (*export_kernels)(
        const char *instructions, const char *path, int64_t *count);
    danaus_status (*import_kernels)(const char *path, int64_t *count);
    danaus_status (*list_kernels)(
        const char *path, int index, danaus_kernels_info *info);
    danaus_status (*use_kernels)(const char *path);
    danaus_status (*locate_library)(const char *library, const char *path);
};

/* What every device begins with; a backend's own device starts with this. */
struct danaus_device {
    const backend *backend;
    char name[32];         /* "cpu:avx2" */
    const kernel *kernels; /* ends with a row whose name is NULL */
    tuning *tuning;        /* owned by device.c, unless the backend shares it */
};

/* True if a device can run a row for a problem. */
static inline int dn_is_usable(
    const danaus_device *dev, const kernel *k, const problem *p)
{
    return dn_fits(k, p) && !(dev->backend->refuses && dev->backend->refuses(dev, k));
}

/* Fails unless the device has this name: objects that were made for it fit no other. */
danaus_status dn_check_place(const danaus_device *device, const char *made_for);

/* The step's kernel packs w into device memory. */
danaus_status dn_pack(
    danaus_device *dev, const ks_step *step, weights_view w, void *packed);

/* Copies numbers of the host into device memory, converting. */
danaus_status dn_put_numbers(
    danaus_device *dev, danaus_dtype from_type, const void *from, danaus_dtype to_type,
    void *to, int64_t count);

#define X(name) extern const backend dn_backend_##name;
#include "device/backends.def"
#undef X

#endif
