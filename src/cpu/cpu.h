/* The CPU: what its driver (run.c, once) and its kernels (kernels.c, once for
   each instruction set) share.

   A kernel computes a part: some blocks (i, j), some tiles of rows r and some
   columns s of y = K x. Operands are views, so a step may read one layout and
   write another. Between the steps of a chain, vectors have the type of sums and
   are a slab of columns wide: in panels (batch-last), or in lines (batch-first)
   where a step works along lines. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CPU_CPU_H
#define DN_CPU_CPU_H

#include "base/numbers.h"
#include "base/thread.h"
#include "device/backend.h"

#include <limits.h>

/* Changes numbers in the type of sums in place (activate.c). */
typedef void (*cpu_activate)(void *numbers, int64_t count);

/* Batch-first: element (row, s) is data[s ld + row]. Batch-last: data[row ld + s].
   Between two panel kernels, laid out as the second one reads it, in tiles of columns
   as wide as its register tiles: data[t tile_step + place[row] + s - t width]. */
typedef struct cpu_view {
    void *data;
    danaus_dtype dtype;
    danaus_layout layout;
    int64_t ld;
    int64_t tile_step;     /* 0 unless in tiles, which are batch-last */
    const int64_t *place;  /* of each row in a tile; for writing */
    const void *added;     /* what sums are added to, where dn_cpu_ks_adds(): data, or
                              apart and laid out like it; or NULL */
    cpu_activate activate; /* of what is written through the view; or NULL */
    const void *residual;  /* that is then added to it, laid out like data; or NULL */
} cpu_view;

/* True if numbers change when they are written through a view. */
static inline int dn_is_changed(const cpu_view *v)
{
    return v->activate || v->residual;
}

/* Reals of so many bytes from data to what products are added to. */
static inline int64_t dn_to_added(const cpu_view *v, size_t real)
{
    return v->added ? ((intptr_t)v->added - (intptr_t)v->data) / (intptr_t)real : 0;
}

/* How kernels along lines (lanes.inc) cut the b d outputs (r, j) of a block into
   vectors of `per` lanes, so that one load of x serves all vectors of a tile. Where d is a
   multiple of a vector there is a group for each run of lanes j, with a vector for each
   r; where d divides a vector one group, with the outputs one after the other: lane l of
   vector v in group g is output v step + g per + l. For other d and for complex types
   they are spread: a group for each j, with vectors of r, v step + g + l d. */
typedef struct lane_map {
    int64_t per, groups, vectors, step;
    int64_t tiles; /* of vectors, in a group */
    int spread;    /* outputs of a vector are d apart */
    int gather;    /* a group's x is first put together */
    int64_t rows;  /* k at a time, of tiles that read x as it lies */
} lane_map;

/* How thin products (thin.inc) cut a row's run of c d weights, and x, into vectors of `per`
   reals. A step takes the lanes of one k, in several vectors, the last one in part; or,
   folded, of as many k as one vector holds. */
typedef struct thin_map {
    int64_t per, lanes; /* reals of the numbers j of one k */
    int64_t used;       /* reals of a step, */
    int64_t last;       /* of the last one */
    int64_t steps, vectors;
    int fold;
} thin_map;

/* How products of 8-bit numbers (int8.inc) cut the rows of a lane of a block into vectors, and its
   columns k into steps. A packed vector has the scales of its rows, what their sums begin with, and
   its weights. */
typedef struct dot_map {
    int64_t vectors, steps;
    int64_t vector_bytes;
} dot_map;

/* How kernels multiply 8-bit numbers; terms 0: they do not. */
typedef struct dot_kind {
    int terms;   /* columns k of a step */
    int zero;    /* what numbers of x are stored with */
    int x_bytes; /* of such a number */
    int fast;    /* only some processors of the instruction set can */
} dot_kind;

/* How a kernel cuts its part into chunks that pass through scratch memory. */
typedef struct cpu_shape {
    int64_t columns;   /* batch columns at a time */
    int64_t few;       /* of panels: fewer left than these go with the ones before */
    int64_t staged;    /* of which so many pass through scratch together */
    int64_t width;     /* of a register tile, in columns */
    int64_t blocks;    /* i at a time; more than 1 only with all lanes */
    int64_t lanes;     /* j at a time */
    int64_t tiles;     /* tiles of rows at a time */
    int64_t all_tiles; /* of a block, which parts may share */
    union {
        lane_map lane; /* of a kernel along lines */
        thin_map thin; /* of thin products */
        dot_map dots;  /* of products of 8-bit numbers */
    };
    int weights_first; /* all columns with the same weights before others */
    int fetch_lines;   /* what lies along lines is fetched ahead, */
    int fetch_near;    /* long runs into the first cache, */
    int fetch_far;     /* where half of it is lost */
    int stage_x, stage_y;
    int copy_x; /* staged full tiles of x are copied by their first tile of rows */
    size_t x_bytes, y_bytes; /* of scratch; y's second half: a residual */
} cpu_shape;

#define ANY_IN_PLACE INT_MAX

/* How processors differ that have the same instructions. */
typedef struct cpu_traits {
    double product, load; /* cycles for a vector */
    double turn;          /* to turn a vector's outputs of several columns */
    double between;       /* for one along lines between two steps, beyond panels */
    double far_cache;     /* of memory's time to read from the last one; 0 if near */
    int gather_columns;   /* of x that are gathered at a time, an even number */
    int gather_tiles;     /* from which on x of a group of lanes is gathered */
    int weights_first;    /* large weights are met once for all columns */
    int fetch_lines;      /* what lies along lines is fetched ahead */
    int fetch_near;       /* long runs are fetched into the first cache */
    int fetch_far;        /* half of what goes there is lost, in the second none */
    int in_pieces;        /* tiles of lanes take no more of x than that cache keeps */
    int in_place;         /* bytes of a tile's x up to which it is read where it lies */
} cpu_traits;

typedef struct cpu_part {
    danaus_pattern p;
    const struct cpu_code *code;
    const void *packed;
    const void *bias; /* type of sums, a b d long; or NULL */
    cpu_view x, y;
    const cpu_shape *shape;
    range i, j, tile, s;
    int stream;                  /* write y past the caches */
    int cold_x, cold_y;          /* not in the second cache yet */
    void *scratch;               /* x_bytes + y_bytes */
    const struct cpu_part *next; /* that the same thread makes after it, or NULL */
    int fetched;                 /* the part before it fetched its beginning */
} cpu_part;

/* dw[i][r][k][j] += sum over s of dy x*, for panels x and dy. */
typedef struct cpu_dw_part {
    danaus_pattern p;
    cpu_view x, dy;
    int64_t columns;
    range block; /* i d + j */
    range r;
    void *dw;
    int64_t stride[4]; /* of i, r, k, j in dw */
    int conjugate;     /* write conjugates */
    int add;           /* add to dw */
} cpu_dw_part;

typedef struct cpu_code {
    int tile_rows;    /* most rows in a tile */
    int tile_columns; /* batch columns in a full tile */
    int vector;       /* batch columns in a vector */
    int lane_vectors; /* in a tile of lanes (lanes.inc); 0: a panel kernel */
    int thin;         /* which are thin products' (thin.inc) */
    void (*part)(const cpu_part *part);
    void (*dw)(const cpu_dw_part *part);
    /* Turns rows of n columns of a view into a panel of the same rows. */
    void (*load)(const cpu_view *from, range rows, int64_t n, const cpu_view *to);
    dot_kind dots;
} cpu_code;

typedef struct cpu_device {
    danaus_device base;
    const char *isa; /* "avx512" */
    const struct conv_code *conv;
    const cpu_activate (*activations)[2]; /* for sums in f32, in f64 */
    const struct nn_code *nn;
    int fast_dots; /* the processor has instructions for them */
    cpu_traits traits;
    int threads;
    thread_pool *pool;           /* NULL until it is needed */
    danaus_parallel_fn parallel; /* the host's, or NULL */
    void *user;
    void *scratch;
    size_t scratch_bytes;
    int scratch_lent;
    danaus_allocator allocator; /* without functions: none */
    int asks;                   /* how much scratch a call needs, and no more: */
    size_t asked;
    size_t l2, l3; /* bytes of the second and last cache that a thread sees */
} cpu_device;

/* One instruction set: its kernels and whether this processor has it. */
typedef struct cpu_isa {
    const char *name;
    const kernel *kernels;
    const struct conv_code *conv;
    const cpu_activate (*activations)[2];
    const struct nn_code *nn;
    int (*present)(void);
    int (*has_dots)(void); /* fast ones */
} cpu_isa;

/* All that this build holds, best first; ends with a NULL name. */
extern const cpu_isa dn_cpu_isas[];

/* The best of a list that the processor has and that is no better than the one named
   `limit`, or than any for ""; NULL: the list has no such name. */
const cpu_isa *dn_cpu_best(const cpu_isa *list, const char *limit);

/* Rows of tile t when b rows are cut into tiles of at most `most`, as even as
   can be. */
static inline int64_t dn_tile_count(int64_t b, int64_t most)
{
    return (b + most - 1) / most;
}
static inline int64_t dn_tile_row(int64_t b, int64_t tiles, int64_t t)
{
    return b * t / tiles;
}

danaus_status dn_cpu_ks_run(
    danaus_device *dev, const ks_step *steps, int count, const ks_operands *o);
danaus_status dn_cpu_ks_gradient(
    danaus_device *dev, const ks_step *steps, const ks_step *adjoint, int count,
    const ks_gradient_operands *o);

int dn_cpu_ks_adds(const ks_step *last);
danaus_status dn_cpu_pick(danaus_device *dev, const pick_job *job);

/* Traits of this processor for vectors of an instruction set. */
cpu_traits dn_cpu_traits(const char *isa);

/* Runs tasks on the device's threads, or on the host's. */
void dn_cpu_parallel(cpu_device *dev, int count, parallel_task task, void *arg);

/* The same for little work (thread.h). */
void dn_cpu_parallel_short(cpu_device *dev, int count, parallel_task task, void *arg);

/* Scratch of at least `bytes`, kept until the device goes or needs more; never NULL, so that
   callers can add offsets to it. */
danaus_status dn_cpu_scratch(cpu_device *dev, size_t bytes, void **scratch);

/* The end of a call that had scratch: an allocator gets it back. */
void dn_cpu_give_scratch(cpu_device *dev);

#endif
