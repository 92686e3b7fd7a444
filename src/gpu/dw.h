/* Weight gradients on tensor cores (ks_dw_mma.cu, ks_dw_wgmma.cu, ks_dw_matrix.cu,
   ks_dw_fours.cu), of real types up to 32 bits. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_GPU_DW_H
#define DN_GPU_DW_H

#include "gpu/gpu.h"

/* A tile, as the text says; rows and columns k of a tile and how many tiles there are. */
typedef struct gpu_dw {
    const char *text;
    int64_t element, vector, lanes, vector_rows, groups, together;
    int64_t tiles_r, tiles_k, warps_r, warps_k, depth, stages, resident;
    int64_t tile_r, tile_k, row_tiles, column_tiles;
    int64_t boxes; /* by the copy engine, which needs operands aligned to 16 bytes */
    int64_t flat, step; /* flat boxes; columns of the batch of an operand */
    int64_t groups_a, columns, swapped; /* of all texts but ks_dw_mma.cu */
    int64_t groups_b;                   /* of ks_dw_wgmma.cu */
    int64_t needs_boxes;                /* ks_dw_matrix.cu and ks_dw_fours.cu do */
    int64_t shared;                     /* bytes */
    int threads, split, last;
    double seconds; /* of a column of the batch on an H200, an estimate */
} gpu_dw;

/* Seconds of work that is bound by these, of which what is nearly as slow as the slowest
   adds to it. */
double dn_gpu_dw_together(const double *seconds, int count);

/* The tile for a problem; resident is 0 if there is none. */
gpu_dw dn_gpu_dw_for(const gpu_facts *f, const problem *p);

/* Tiles of the gradient. */
int64_t dn_gpu_dw_tiles(const gpu_dw *t, const problem *p);

/* Its launch for so many slabs. */
gpu_launch dn_gpu_dw_launch(const gpu_dw *t, const problem *p, int64_t slabs);

/* Of x and of dy, of so many columns, for boxes. */
void dn_gpu_dw_maps(const gpu_dw *t, const problem *p, int64_t batch, gpu_map map[2]);
void dn_gpu_dw_defines(const gpu_dw *t, const problem *p, text *to);

#endif
