/* The families of rows: what the table in rows.c is made of. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_GPU_ROWS_H
#define DN_GPU_ROWS_H

#include "gpu/gpu.h"

static inline const gpu_code *dn_gpu_code(const kernel *k) { return k->code; }

static inline const gpu_facts *dn_gpu_facts(const danaus_device *dev)
{
    return &((const gpu_device *)dev)->facts;
}

/* How a row packs weights: in units of so many bytes, one after the other. unit() is given
   zeros, and writes unit number n; units are made at the same time. */
typedef struct gpu_packing gpu_packing;
struct gpu_packing {
    const kernel *kernel;
    const problem *p;
    weights_view w;
    const void *shape; /* whatever the row knows of itself, or NULL */
    int64_t bytes;
    void (*unit)(const gpu_packing *g, int64_t n, char *to);
};

void dn_gpu_pack(const gpu_packing *g, int64_t units, void *packed);

/* Writes count elements of w that are step apart, from element `from` on, as type. */
void dn_gpu_gather(
    const weights_view *w, int64_t from, int64_t step, int64_t count, danaus_dtype type,
    void *to);

/* Numbers to tf32: w keeps the nearest ones, rest (may be NULL) gets those nearest to what
   is left. */
void dn_gpu_cut(float *w, float *rest, int64_t count);

/* The left operand of a product of tensor cores, as the registers of its threads: of
   thread t rows t / 4 and 8 more, and for each 4 bytes of columns k from t mod 4 times
   `thread` on, and `half` more; zeros outside the matrix. f32 is rounded to 22 bits, whose
   first 11 and others are two tf32 numbers (split), or to tf32. */
#define DN_OPERAND 512 /* bytes */

typedef struct gpu_operand {
    const problem *p;
    const weights_view *w;
    int split;
    int64_t from; /* element (0, 0) of block (i, j) */
    int64_t thread, half;
} gpu_operand;

/* From row r0 and column k0 on. */
void dn_gpu_operand(const gpu_operand *o, int64_t r0, int64_t k0, char *to);

/* Lines "#define NAME VALUE" of a text for tensor cores, and which of its types it has. */
typedef struct gpu_define {
    const char *name;
    int64_t value;
} gpu_define;

void dn_gpu_define(danaus_dtype dtype, const gpu_define *lines, size_t count, text *to);

/* ---- portable rows (ks_simt.cu): size = BR, BS, BJ, TR, TS, BK ---- */

int dn_simt_fits(const kernel *k, const problem *p);
double dn_simt_cost(const danaus_device *dev, const kernel *k, const problem *p);
size_t dn_simt_bytes(const kernel *k, const problem *p);
void dn_simt_pack(const kernel *k, const problem *p, weights_view w, void *packed);
void dn_simt_defines(const kernel *k, const problem *p, int variant, text *to);
int dn_simt_variant(const kernel *k, const problem *p, const gpu_call *call);
void dn_simt_launch(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *launch);

/* ---- tensor cores of compute capability 9.0 ---- */

/* Weights as tensor cores read them (ks_tile.cuh): [i][j][row tile][step][part][row], each
   row 128 bytes of columns k in chunks of 16 that are exchanged; zeros outside the
   matrix. */
typedef struct gpu_tile {
    int element, parts;
    int even_first; /* of 8 columns k the even ones come first */
    int64_t rows, row_tiles, steps;
} gpu_tile;

size_t dn_gpu_tile_bytes(const gpu_tile *t, const problem *p);
void dn_gpu_tile_pack(
    const gpu_tile *t, const problem *p, weights_view w, void *packed);

/* ks_wgmma.cu: size = rows of a tile at most, columns, 1, groups of threads that
   multiply, blocks of a cluster, resident blocks, parts that numbers are cut into, whether
   y is what another factor takes. */

int dn_wgmma_fits(const kernel *k, const problem *p);
double dn_wgmma_cost(const danaus_device *dev, const kernel *k, const problem *p);
size_t dn_wgmma_bytes(const kernel *k, const problem *p);
void dn_wgmma_pack(const kernel *k, const problem *p, weights_view w, void *packed);
void dn_wgmma_defines(const kernel *k, const problem *p, int variant, text *to);
int dn_wgmma_variant(const kernel *k, const problem *p, const gpu_call *call);
void dn_wgmma_maps(
    const kernel *k, const problem *p, const gpu_call *call, gpu_map map[GPU_MAPS]);
void dn_wgmma_launch(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *launch);

/* ks_wgmma_lanes.cu: size = rows of a tile at most, columns, lanes, blocks of a cluster,
   whether x is what another factor made, parts that numbers are cut into. */

int dn_wgmma_lanes_fits(const kernel *k, const problem *p);
double dn_wgmma_lanes_cost(const danaus_device *dev, const kernel *k, const problem *p);
size_t dn_wgmma_lanes_bytes(const kernel *k, const problem *p);
void dn_wgmma_lanes_pack(
    const kernel *k, const problem *p, weights_view w, void *packed);
void dn_wgmma_lanes_defines(const kernel *k, const problem *p, int variant, text *to);
int dn_wgmma_lanes_variant(const kernel *k, const problem *p, const gpu_call *call);
void dn_wgmma_lanes_maps(
    const kernel *k, const problem *p, const gpu_call *call, gpu_map map[GPU_MAPS]);
void dn_wgmma_lanes_launch(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *launch);

/* ---- tensor cores of compute capability 8.0 and later (ks_mma.cu): size = rows of a tile
   at most, columns, 1, resident blocks ---- */

int dn_mma_fits(const kernel *k, const problem *p);
double dn_mma_cost(const danaus_device *dev, const kernel *k, const problem *p);
size_t dn_mma_bytes(const kernel *k, const problem *p);
void dn_mma_pack(const kernel *k, const problem *p, weights_view w, void *packed);
void dn_mma_defines(const kernel *k, const problem *p, int variant, text *to);
void dn_mma_launch(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *launch);

/* ks_mma_lanes.cu: size = tiles of 16 rows of a warp at most, of 8 columns, warps that
   share columns and lanes, warps, resident blocks, parts, units of columns k in a step,
   whether weights are held in shared memory. */

int dn_mma_lanes_fits(const kernel *k, const problem *p);
double dn_mma_lanes_cost(const danaus_device *dev, const kernel *k, const problem *p);
size_t dn_mma_lanes_bytes(const kernel *k, const problem *p);
void dn_mma_lanes_pack(const kernel *k, const problem *p, weights_view w, void *packed);
void dn_mma_lanes_defines(const kernel *k, const problem *p, int variant, text *to);
void dn_mma_lanes_launch(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *launch);

/* ks_split.cu, for few columns: size = tiles of 16 rows of a warp, of 8 columns, warps
   beside each other in rows, ways that columns k are split over, resident blocks, parts. */

int dn_split_fits(const kernel *k, const problem *p);
double dn_split_cost(const danaus_device *dev, const kernel *k, const problem *p);
size_t dn_split_bytes(const kernel *k, const problem *p);
void dn_split_pack(const kernel *k, const problem *p, weights_view w, void *packed);
void dn_split_defines(const kernel *k, const problem *p, int variant, text *to);
int dn_split_variant(const kernel *k, const problem *p, const gpu_call *call);
void dn_split_launch(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *launch);

/* ---- portable rows for few columns (ks_vec.cu): size = OUTS, NS, 1, WARPS, bytes of
   weights in a load ---- */

int dn_vec_fits(const kernel *k, const problem *p);
double dn_vec_cost(const danaus_device *dev, const kernel *k, const problem *p);
size_t dn_vec_bytes(const kernel *k, const problem *p);
void dn_vec_pack(const kernel *k, const problem *p, weights_view w, void *packed);
void dn_vec_defines(const kernel *k, const problem *p, int variant, text *to);
void dn_vec_launch(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *launch);

/* ---- batch-first by turning (ks_turn.cu): size = 64, 64, 1 ---- */

int dn_turned_fits(const kernel *k, const problem *p);
double dn_turned_cost(const danaus_device *dev, const kernel *k, const problem *p);
size_t dn_turned_bytes(const kernel *k, const problem *p);
void dn_turned_pack(const kernel *k, const problem *p, weights_view w, void *packed);
void dn_turned_defines(const kernel *k, const problem *p, int variant, text *to);
void dn_turned_launch(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *launch);

/* ---- products of a library (ks_after.cu): size = 64, 64, 1, whether tf32, whether
   weights are packed column by column ---- */

/* Block by block, where x and y can be read as matrices where they lie. */
int dn_blas_fits(const kernel *k, const problem *p);
double dn_blas_cost(const danaus_device *dev, const kernel *k, const problem *p);
size_t dn_blas_bytes(const kernel *k, const problem *p);
void dn_blas_pack(const kernel *k, const problem *p, weights_view w, void *packed);
void dn_blas_products(
    const kernel *k, const problem *p, const gpu_call *call, gpu_products *to);

/* The whole factor with its zeros. */
int dn_dense_fits(const kernel *k, const problem *p);
double dn_dense_cost(const danaus_device *dev, const kernel *k, const problem *p);
size_t dn_dense_bytes(const kernel *k, const problem *p);
void dn_dense_pack(const kernel *k, const problem *p, weights_view w, void *packed);
void dn_dense_products(
    const kernel *k, const problem *p, const gpu_call *call, gpu_products *to);

void dn_blas_defines(const kernel *k, const problem *p, int variant, text *to);
void dn_blas_launch(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *launch);

/* ---- two factors at once (ks_pair.cu): size = 1, columns, 1, warps, resident blocks ---- */

int dn_pair_fits(const kernel *k, const problem *p);
double dn_pair_cost(const danaus_device *dev, const kernel *k, const problem *p);
size_t dn_pair_bytes(const kernel *k, const problem *p);
void dn_pair_pack(const kernel *k, const problem *p, weights_view w, void *packed);
void dn_pair_defines(const kernel *k, const problem *p, int variant, text *to);
int dn_pair_variant(const kernel *k, const problem *p, const gpu_call *call);
void dn_pair_launch(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *launch);

#endif
