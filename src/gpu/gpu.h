/* GPUs: what a row of the kernel table is there, for any backend that runs it.

   A family of rows is a text, which is compiled when it is first needed, and functions that
   give the problems that it fits, the #defines for a problem, the grid for a batch and the
   order of its weights. A row is one size of its tiles. The entry point of products is

       ks(const void *x, const void *w, const void *bias, const void *residual, void *y,
          int64 batch, int activation, int64 a, int64 b, int64 c, int64 d,
          tensor_map x, tensor_map w, tensor_map y)

   and may leave out arguments from the end. If its family has no maps, the last arguments are
   const int64 *x_order, const int64 *y_order, int64 x_rows, int64 y_rows, for problems with
   orders. y = residual + activation(K x + bias); w is what `pack` wrote. bias (in the type of
   sums) may be NULL, and so may the residual, which is laid out like y and may be y. x, y and
   residual are aligned only to one element, w and bias to 256 bytes. Every y is written,
   whatever was there. The order of sums is the same for every batch and every device of the
   row's architecture. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_GPU_GPU_H
#define DN_GPU_GPU_H

#include "base/dtype.h"
#include "base/hash.h"
#include "base/numbers.h"
#include "base/text.h"
#include "device/backend.h"

/* Architectures of CUDA begin here; a device of another driver has its number. */
#define GPU_LEAST_CUDA 70

/* What cost models and grids may know of a device. */
typedef struct gpu_facts {
    int arch;     /* ten times the compute capability: 75, 90; below GPU_LEAST_CUDA only
                         portable rows run */
    int units;    /* multiprocessors */
    double clock; /* of theirs, Hz */
    int64_t shared;   /* bytes of shared memory that a block may have */
    int64_t l2;       /* bytes */
    int64_t memory;   /* bytes */
    double bandwidth; /* of memory, bytes a second */
    double flops;     /* f32 multiply-adds by vector units, two operations each */
    /* Multiply-adds of a multiprocessor in a clock. cores: vector units in f32. mma: tensor
       cores in 16 bits (8 of tf32 count as 16 of these), by the instruction that all
       generations from 8.0 on have. tensor_*: the best instruction for a type, in a library. */
    int cores, mma, tensor_f16, tensor_bf16, tensor_tf32;
    int epilogues; /* a library ends products as dn_gpu_library_ends() says */
    int no_f64;    /* the device computes nothing in f64 */
} gpu_facts;

/* Fills in clock, cores, rates and flops of a GPU whose arch and units are known. */
void dn_gpu_fill_rates(gpu_facts *f, double clock);

/* The GPU that cost models were fitted to, as far as they need to know it. */
extern const gpu_facts dn_gpu_measured;

/* Bytes of shared memory that each of so many resident blocks may have: of rows for 9.0
   (arch 90), or of those that run on all later than 8.0. */
int64_t dn_gpu_room(int arch, int64_t resident);

/* What a driver compiled a use to. */
typedef void *gpu_function;

/* Every GPU device starts with this. */
typedef struct gpu_driver gpu_driver;       /* run/run.h */
typedef struct gpu_shared gpu_shared;       /* run/run.h */
typedef struct gpu_constants gpu_constants; /* run/conv/constants.c */
/* Scratch that the caller gives: memory that is lent, or an allocator; else the driver's own. */
typedef struct gpu_scratch {
    void *lent; /* NULL: none */
    size_t bytes;
    danaus_allocator allocator; /* without functions: none */
} gpu_scratch;

typedef struct gpu_device {
    danaus_device base;
    gpu_facts facts;
    gpu_shared *shared; /* with other devices on the GPU */
    void *scratch;      /* of the call that runs */
    gpu_scratch callers;
} gpu_device;

typedef struct gpu_launch {
    int64_t blocks[3]; /* the first may be large, the others at most 65,535 */
    int threads;       /* of a block */
    int shared;        /* bytes of dynamic shared memory */
    int cluster;       /* blocks of a cluster, along the first axis; 0: none */
} gpu_launch;

/* A view of an operand for the bulk copy engine; fastest dimension first. */
typedef struct gpu_map {
    int rank;          /* 0: this operand has none */
    int64_t size[5];   /* elements */
    int64_t stride[5]; /* elements; the first is 1, others times the element's size are
                           multiples of 16 bytes */
    int box[5];        /* elements copied at once */
    int swizzle;       /* bytes: 0, 32, 64 or 128 */
} gpu_map;

enum { GPU_MAP_X, GPU_MAP_W, GPU_MAP_Y, GPU_MAPS };

/* Small dense products that a library makes, count[0] of them at once, count[1] times:

       y[r, s] = sum over k of w[r, k] x[k, s],    r < rows, k < depth, s < batch.

   Weights are w[rows][depth], or w[depth][rows] if `w_turned`; x and y have, by layout,
   columns s or rows k and r that are contiguous, `line` elements apart. */
typedef struct gpu_lines {
    int64_t line;    /* elements */
    int64_t step[2]; /* elements from product to product */
} gpu_lines;

typedef struct gpu_products {
    int64_t rows, depth, count[2];
    gpu_lines x, w, y;
    int w_turned;
    int tf32; /* numbers of 32 bits may be cut to 10 bits of mantissa */
} gpu_products;

/* Bytes of a line of the product of one factor that the next factor reads. */
#define DN_MIDDLE_BYTES 128

/* The place of one call. */
typedef struct gpu_call {
    int64_t batch;
    const void *x, *y, *residual; /* only to see how they are aligned */
} gpu_call;

/* All bits of their addresses. */
static inline uint64_t dn_gpu_places(const gpu_call *call)
{
    return (
        uint64_t)((uintptr_t)call->x | (uintptr_t)call->y | (uintptr_t)call->residual);
}

/* Blocks of threads in a row that take what there is in turn: of tiles, as many as there
   may be, or those that stay in `places`, with so many bytes of shared memory. */
static inline gpu_launch dn_gpu_line(int64_t tiles, int threads)
{
    return (gpu_launch){ .blocks = { MIN(tiles, 1 << 30), 1, 1 }, .threads = threads };
}

static inline gpu_launch dn_gpu_stay(
    int64_t tiles, int64_t places, int threads, int64_t shared)
{
    gpu_launch l = dn_gpu_line(MIN(tiles, places), threads);
    l.shared = (int)shared;
    return l;
}

#define GPU_MOST_DEFINES 4096 /* bytes */

/* Bytes of a table that a kernel takes as an argument (texts/simt.h). */
#define GPU_TABLE_BYTES 2048

/* One function that is compiled: an entry point of a text with its defines. */
typedef struct gpu_use {
    const char *text, *entry;
    char defines[GPU_MOST_DEFINES];
    hash128 image; /* of all that decides what is compiled, */
    hash128 hash;  /* and of the entry point */
} gpu_use;

/* What kernel.family points to: how rows of a text are compiled and run. */
typedef struct gpu_family {
    kernel_family kernel;
    const char *text;  /* the name of its file; NULL: it compiles nothing */
    const char *entry; /* its entry point; NULL: "ks" */

    /* Writes lines "#define NAME VALUE\n" for a problem. The problem's batch is only a hint:
       the function must be right for any batch. But all calls have the problem's activation,
       and a residual if the problem has one. A variant from 0 up is one of several compilations
       that share packed weights, for example for unaligned operands. Rows whose defines do not
       depend on the pattern are compiled once for all patterns. */
    void (*defines)(const kernel *k, const problem *p, int variant, text *to);
    void (*launch)(
        const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
        gpu_launch *launch);

    /* The rest may be NULL or 0. */
    int library; /* makes the products */
    /* For rows whose orders of weights are shared by several families (rows.h). */
    struct gpu_operands (*operands)(const kernel *k, const problem *p);
    struct gpu_tile (*tile)(const kernel *k, const problem *p);
    int variants; /* 0: one */
    int (*variant)(const kernel *k, const problem *p, const gpu_call *call);
    /* Other rows that run for a problem, whether or not they are in the table: *part is
       number n; 0: there are no more. */
    int (*part)(const kernel *k, const problem *p, int n, ks_step *part);
    void (*maps)(
        const kernel *k, const problem *p, const gpu_call *call, gpu_map map[GPU_MAPS]);
    /* For rows whose products a library computes. Where the library left out a bias or an
       activation, their text applies it to y afterwards. The text gets neither x nor w,
       nor a residual: the library adds that. */
    void (*products)(
        const kernel *k, const problem *p, const gpu_call *call, gpu_products *to);
} gpu_family;

/* What kernel.code points to: what rows of a family differ in. */
typedef struct gpu_code {
    int arch; /* 90: runs on 9.0 alone; else the least that it runs on */
    int size
        [8]; /* of a tile: rows, columns, lanes; the family knows the others' meaning,
                    and that of all if the operation is no product */
    /* For rows that first write their x to scratch memory. `first` computes it from the x
       of the problem's inner factor, as [batch / line][N][line] with the last columns
       padded, and `inner` computes y from it, batch-first. Without `first` the row's text
       transposes x, `inner` multiplies batch-last, and the text transposes y back; its
       entry point is then ks(from, to, residual, rows, columns). */
    const kernel *first, *inner;
} gpu_code;

static inline const gpu_family *dn_gpu_family(const kernel *k)
{
    return (const gpu_family *)k->family;
}

static inline const gpu_code *dn_gpu_code(const kernel *k) { return k->code; }

static inline const int *dn_gpu_size(const kernel *k) { return dn_gpu_code(k)->size; }

/* True if a library can add the bias and apply the activation in the launch that computes a
   row's products, as one call for so many columns. */
int dn_gpu_library_ends(const problem *p, int64_t batch, int has_bias, int activation);

/* What a row compiles for a problem, without the hashes, which depend on the compiler too. */
void dn_gpu_use(const kernel *k, const problem *p, int variant, gpu_use *use);

/* True if a row can run this variant for operands with the alignment of allocations, for some
   batch that fits in `memory` bytes. */
int dn_gpu_reaches(const kernel *k, const problem *p, int variant, int64_t memory);

/* The grid of ks_turn.cu for a matrix of elements of so many bytes. */
gpu_launch dn_gpu_turn_launch(int64_t rows, int64_t columns, size_t element);

/* The steps of such a row: that of the inner factor, that of the product, and where the
   product's packed weights begin behind the first one's. */
ks_step dn_gpu_first(const kernel *k, const problem *p);
ks_step dn_gpu_inner(const kernel *k, const problem *p);
size_t dn_gpu_inner_at(const kernel *k, const problem *p);

/* How such a row goes through a batch: so many columns at a time, whose x, and then y if it
   is turned back, lie in scratch; bytes. */
typedef struct gpu_turned_slabs {
    int64_t columns;
    size_t x, y;
} gpu_turned_slabs;

gpu_turned_slabs dn_gpu_turned_plan(const kernel *k, const problem *p, int64_t batch);

/* Where operands in scratch begin: multiples of so many bytes; the bytes up to the next. */
#define DN_GPU_ALIGN 256

static inline size_t dn_gpu_aligned(int64_t bytes)
{
    return (size_t)ROUND_UP(bytes, DN_GPU_ALIGN);
}

/* Bytes that are turned in scratch at once, unless columns are very long. Tests set less
   before they plan. */
extern int64_t dn_gpu_most_turned;

/* Rows for compute capability 9.0 exactly, then those from 8.0 on, then the portable
   ones, then those of a library; ends with a NULL name. A device's table begins at the
   first row that it can run, and ends before the library's where there is none. */
extern const kernel dn_gpu_kernels[];
const kernel *dn_gpu_kernels_for(int arch, int library);
int dn_gpu_runs_on(const kernel *k, int arch);

/* The texts, embedded by the build: name and content, each ended by NUL; ends with a
   NULL name. Names that end in .h or .cuh may be included by others. */
typedef struct gpu_text {
    const char *name, *content;
} gpu_text;

extern const gpu_text dn_gpu_texts[];

#endif
