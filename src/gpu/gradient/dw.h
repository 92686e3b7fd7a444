/* Rows of DN_WEIGHT_GRADIENT, and how they are run:

       dw[i][r][k][j] = sum over s of dy[s, i, r, j] conj(x[s, i, k, j]).

   A row computes parts, which are sums over slabs of columns s, by its text or a library.
   ks_reduce.cu adds up the parts of several gradients in the order of slabs. Slabs depend only
   on the problem and the number of columns, so the same call gives the same bits wherever its
   operands are. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_GPU_GRADIENT_DW_H
#define DN_GPU_GRADIENT_DW_H

#include "gpu/gpu.h"

/* The form of x and dy. TURNED: lanes are first separated in scratch, and are then blocks.
   DENSE: a block and its lanes are one matrix. Of its products of lanes j and j' only those
   with j = j' (x) are added up:

       j \ j'   0   1   2
         0      x   .   .
         1      .   x   .
         2      .   .   x  */
enum { DW_AS_IT_LIES, DW_TURNED, DW_DENSE };

/* gpu_code.size: one of these, and whether tiles are for 9.0, whose copy engine fetches
   them where it can. */
enum { DW_FORM, DW_FETCHES };

/* A tile on tensor cores, as its text says. The first members say which; others follow
   from them, the row and the problem. */
typedef struct gpu_dw {
    int64_t groups, warps_r, warps_k, tiles_r, tiles_k; /* of ks_dw_mma.cu */
    int64_t step;                                       /* columns s of an operand */
    int64_t swapped, groups_a, groups_b, columns;       /* of the other texts */
    int64_t depth, resident; /* resident 0: there is no tile */

    int64_t element, vector, lanes, vector_rows, together, stages;
    int64_t tile_r, tile_k, row_tiles, column_tiles;
    int64_t fetches, boxes, flat; /* boxes of x and dy are flat, or boxes */
    int64_t shared;               /* bytes */
    int threads, split, last;
    double seconds; /* of a column, an estimate for dn_gpu_measured */
} gpu_dw;

/* A family whose text uses tensor cores. Rows of other families have no tiles. */
typedef struct gpu_dw_family {
    gpu_family gpu;
    /* Tries tiles of a problem. t has the members that follow from row and problem. */
    void (*search)(gpu_dw t, const problem *p, gpu_dw *best);
    /* Derives the rest from a tile's first members; 0: it does not fit. */
    int (*complete)(gpu_dw *t, const problem *p);
} gpu_dw_family;

extern const gpu_dw_family dn_gpu_dw_mma, dn_gpu_dw_wgmma, dn_gpu_dw_matrix,
    dn_gpu_dw_fours, dn_gpu_dw_blas, dn_gpu_dw_simt;

/* Calls of fewer columns are made by vectors, whatever the row: tiles and libraries have no
   work for these, and sums of a few products of f32 need all its bits. */
#define DW_LEAST_BATCH 64
/* Parts of one factor's gradient, at most, unless there is one slab. */
#define DW_MOST_PARTS ((int64_t)64 << 20)
/* To write and read a number of a part, on dn_gpu_measured. */
#define DW_PART_SECONDS 2.1e-12

problem dn_gpu_dw_made(const kernel *k, const problem *p);
gpu_dw dn_gpu_dw_tile(const ks_step *step);
int64_t dn_gpu_dw_tiles(const gpu_dw *t, const problem *made);

/* Tiles of ks_dw.cu: rows, columns, lanes, of a thread, depth. */
typedef struct gpu_vectors {
    int br, bc, bj, tr, tc, bs;
} gpu_vectors;

gpu_vectors dn_gpu_dw_vectors(const problem *p);
int64_t dn_gpu_dw_vector_tiles(const problem *p);

/* ---- for families of tiles ---- */

#define DW_MARGIN      128  /* bytes before stages, */
#define DW_BOX_MARGIN  2048 /* and before boxes */
#define DW_MOST_STAGES 6
#define DW_PLACES      2 /* where one is made while the other is read */

/* True if all lanes of a tile's rows form lines of whole segments of 128 bytes. */
int dn_dw_is_flat(const gpu_dw *t, const problem *p);

/* Rows and columns of tiles, and how many there are. */
void dn_dw_set_tile(gpu_dw *t, const problem *p, int64_t rows, int64_t columns);

/* Sets t->seconds, `times` those of work with products at `rate` a second and `read`
   numbers of shared memory for each tile. */
void dn_dw_estimate(
    gpu_dw *t, const problem *p, double rate, double read, double times);

/* Keeps t as the best one if it can be completed and takes less. */
void dn_dw_try(
    gpu_dw *best, gpu_dw t, const problem *p,
    int (*complete)(gpu_dw *t, const problem *p));

#define SEARCH(name)                                                                   \
    int dn_dw_complete_##name(gpu_dw *t, const problem *p);                            \
    void dn_dw_search_##name(gpu_dw t, const problem *p, gpu_dw *best)
SEARCH(mma);
SEARCH(wgmma);
SEARCH(matrix);
SEARCH(fours);
#undef SEARCH

/* ---- running ---- */

/* Other functions of gradients, by rows that are in no table. They separate lanes, add up parts,
   and compute parts of a bias' gradient from the columns s of dy alone. */
typedef enum gpu_helper {
    GPU_TURN_LANES,
    GPU_ADD,
    GPU_BIAS,
    GPU_FEW_COLUMNS, /* dn_gpu_dw_simt, as a part of other rows */
    GPU_HELPERS
} gpu_helper;

extern const kernel dn_gpu_helpers[GPU_HELPERS];

/* Helpers that a row may run for a problem, whatever the batch: gpu_family.part. */
int dn_gpu_dw_part(const kernel *k, const problem *p, int n, ks_step *part);

/* Slabs of columns, one after the other. */
typedef struct gpu_slabs {
    int64_t width, count;
} gpu_slabs;

/* As many slabs as keep the GPU busy, for so many tiles and numbers of a part. */
gpu_slabs dn_gpu_slabs(
    const gpu_facts *f, int64_t batch, int64_t tiles, int64_t numbers);

/* How a step's weight gradient is computed from so many columns. */
typedef struct gpu_dw_plan {
    const kernel *kernel;
    problem p, made; /* as it was asked; as its row sees x and dy */
    gpu_dw tile;
    int form, library;
    int64_t batch, at_once; /* results of later columns are added to parts */
    gpu_slabs slabs;        /* of `at_once` */
    int64_t numbers;        /* of all parts, in the type of sums */
} gpu_dw_plan;

gpu_dw_plan dn_gpu_dw_plan(const gpu_facts *f, const ks_step *step, int64_t batch);

/* True if an operand is first copied to scratch memory: its lanes are turned, or it lacks the
   whole chunks of 16 bytes that the copy engine and libraries need. */
int dn_gpu_dw_moves(const gpu_dw_plan *plan, const void *operand);

/* Bytes of `at_once` columns of x, or of dy, in scratch. */
size_t dn_gpu_dw_moved(const gpu_dw_plan *plan, int dy);

/* The launches that compute parts, and that turn the lanes of blocks of `size` rows. */
gpu_launch dn_gpu_dw_launch(const gpu_dw_plan *plan, int64_t columns);
gpu_launch dn_gpu_turn_lanes_launch(const problem *p, int64_t columns, int64_t size);

/* Views of x and of dy for the copy engine. */
void dn_gpu_dw_maps(const gpu_dw_plan *plan, int64_t columns, gpu_map map[2]);

/* Parts that are added up into numbers at any places: a job of ks_reduce.cu, which explains the
   second line. */
typedef struct gpu_sum {
    danaus_pattern q;
    weights_view to;
    int64_t count;
    int wide_log2, per, ways, dense, narrow, blocks;
} gpu_sum;

#define GPU_SUM_THREADS 256

gpu_sum dn_gpu_sum(
    danaus_dtype dtype, int64_t count, danaus_pattern q, const weights_view *to);
gpu_sum dn_gpu_dw_sum(const gpu_dw_plan *plan, const weights_view *to);

/* True if there is a single part, which is written straight to the gradient. */
int dn_gpu_dw_is_direct(const gpu_dw_plan *plan, const weights_view *to);

/* The gradient of a bias, for the last step's problem. With few columns batch-first the parts
   are dy itself. */
int dn_gpu_bias_is_sum(const problem *p, int64_t batch);
gpu_sum dn_gpu_bias_sum(
    const gpu_facts *f, const problem *p, int64_t batch, const weights_view *to);
gpu_slabs dn_gpu_bias_slabs(const gpu_facts *f, const problem *p, int64_t batch);
gpu_launch dn_gpu_bias_launch(const problem *p, int64_t slabs);

#endif
