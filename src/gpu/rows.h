/* The families of rows in the table of table.c. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_GPU_ROWS_H
#define DN_GPU_ROWS_H

#include "gpu/gpu.h"

#include <math.h>

static inline const gpu_facts *dn_gpu_facts(const danaus_device *dev)
{
    return &((const gpu_device *)dev)->facts;
}

/* f32 may be packed as the nearest number that lacks so many bits of its mantissa: 13 leave a
   number of tf32, 2 two of them (22 bits with the leading one). */
#define DN_DROP_TF32 13
#define DN_DROP_22   2

/* How a row packs weights: in units of so many bytes, one after the other. unit() is given
   zeros, and puts numbers into unit n; units are made at the same time. */
typedef struct gpu_packing gpu_packing;
struct gpu_packing {
    const kernel *kernel;
    const problem *p;
    weights_view w;
    const void *shape; /* whatever the row knows of itself, or NULL */
    int64_t bytes;
    void (*unit)(const gpu_packing *g, int64_t n, char *to);
    int dropped; /* of f32 */
    int wide;    /* numbers are of the type of sums, not of the problem's */
};

void dn_gpu_pack(const gpu_packing *g, int64_t units, void *packed);

/* `count` entries of w from `from` on, `step` apart, which go to `to`. `rest`, unless it is
   NULL, gets the tf32 numbers nearest to what rounding loses. */
typedef struct gpu_run {
    const weights_view *w;
    int64_t from, step, count;
    void *to, *rest;
} gpu_run;

static inline danaus_dtype dn_gpu_packed_type(const gpu_packing *g)
{
    return g->wide ? dn_sum_type(g->p->dtype) : g->p->dtype;
}

void dn_gpu_note(const gpu_packing *g, gpu_run run);

void dn_gpu_round(int dropped, int64_t count, float *to, float *rest);

static inline void dn_gpu_put(const gpu_packing *g, gpu_run run)
{
    danaus_dtype type = dn_gpu_packed_type(g);
    if (run.w->places) {
        dn_gpu_note(g, run);
        return;
    }
    dn_weights_gather(run.w, run.from, run.step, run.count, type, run.to);
    if (g->dropped && type == DANAUS_F32)
        dn_gpu_round(g->dropped, run.count, run.to, run.rest);
}

/* weights_view.places: the map under construction. `packed` stands for the packed memory, which
   is never written: only places in it count. `before` is the number of weights before these. */
typedef struct pack_places {
    struct gpu_pack_map *map;
    char *packed;
    int64_t before;
} pack_places;

/* Weights as left operands of products of tensor cores, as the registers of their threads:
   [i][tile of lanes][tile of rows][unit of columns k][lane][16 rows], zeros outside the matrix.
   An operand is a unit of 32 bytes of columns k. Thread t has its rows t / 4 and 8 more, and in
   each row two times 4 bytes: number t mod 4 of the unit's first half and of its second; or,
   with `own`, those that follow each other in all of so many units. f32 is rounded to 22 bits,
   whose first 11 and others are two tf32 numbers (split), or to tf32. */
#define DN_OPERAND 512 /* bytes */

typedef struct gpu_operands {
    int64_t lanes, lane_tiles, rows, row_tiles, units; /* rows: a multiple of 16 */
    int64_t own;
    int split;
} gpu_operands;

/* packed_bytes and pack of families that have operands(). */
size_t dn_gpu_operand_bytes(const kernel *k, const problem *p);
void dn_gpu_pack_operands(
    const kernel *k, const problem *p, weights_view w, void *packed);

/* True if a row whose numbers are cut into so many parts may make a product with one factor:
   f32 in one part is tf32, which must be allowed. Smaller blocks than those of
   dn_gpu_is_for_blocks() would be mostly padding on tensor cores. */
static inline int dn_gpu_is_for(const kernel *k, const problem *p, int parts)
{
    int tf32 = k->dtype == DANAUS_F32 && parts == 1;
    return !p->inner.a && (!tf32 || p->math == DANAUS_MATH_TF32);
}

static inline int dn_gpu_is_for_blocks(const kernel *k, const problem *p, int parts)
{
    return dn_gpu_is_for(k, p, parts) && p->pattern.b >= 8 && p->pattern.c >= 8;
}

/* The same of rows that read x once for all rows of a tile: batch-last that takes the time of
   memory, however few of a tile's rows there are. */
static inline int dn_gpu_is_for_tiles(const kernel *k, const problem *p, int parts)
{
    int last = p->layout == DANAUS_BATCH_LAST && p->pattern.c >= 8;
    return last ? dn_gpu_is_for(k, p, parts) : dn_gpu_is_for_blocks(k, p, parts);
}

/* Two times that overlap but in part: the larger the power, the more. */
static inline double dn_gpu_beside(double power, double a, double b)
{
    return pow(pow(a, power) + pow(b, power), 1 / power);
}

/* Clocks of a multiprocessor for so many instructions mma of 16 rows, 8 columns and 32 bytes
   of columns k, at the rate that they reach. */
static inline double dn_gpu_mma_clocks(const gpu_facts *f, double count)
{
    return count * 2048 / (0.8 * f->mma);
}

/* Bytes that memory moves for all columns: x, y and a residual. */
double dn_gpu_moved_bytes(const problem *p);

/* True if batch-first some lines of x or y, the numbers of a column and a block, do not begin at
   multiples of 16 bytes. Many rows load and store such lines in small pieces. */
static inline int dn_gpu_is_ragged(const problem *p)
{
    danaus_pattern q = p->pattern;
    int64_t size = (int64_t)danaus_dtype_size(p->dtype);
    return p->layout == DANAUS_BATCH_FIRST &&
           (q.c * q.d * size % 16 || q.b * q.d * size % 16);
}

/* Batch-first, the share of the numbers of x and y in 16 bits whose lines begin at multiples of 16
   bytes and not of 32, what memory moves at once: two blocks share it. Of longer lines a part. */
double dn_gpu_sharing(const problem *p);

/* How much longer products batch-first take than with pieces of 32 bytes, where a tile has
   `together` of all lanes, 2 or 4 times, and if lines are ragged `ragged` times more. Measured
   on 9.0 (bench/rows). */
static inline double dn_gpu_in_pieces(const problem *p, int64_t together, double ragged)
{
    int64_t bytes = together * (int64_t)danaus_dtype_size(p->dtype);
    double pieces = together >= p->pattern.d || bytes >= 32 ? 1 : bytes >= 16 ? 2 : 4;
    return dn_gpu_is_ragged(p) ? ragged * pieces : pieces;
}

/* Seconds of an activation, by the instructions that it takes for each result, beside which
   nothing else runs: exact GELU by erf 0.33 clocks of a multiprocessor with 128 vector units
   (f16 at 1.98 GHz, 132 of them: 30 us more for 25,088 x 1,024, 54 for 1,536). */
double dn_gpu_activating(const gpu_facts *f, const problem *p);

/* The seconds of a row for tensor cores whose products take so many seconds. On 9.0, rows that
   any GPU from 8.0 on runs take up to three times as long as is counted (`ks.mma.*`,
   bench/rows); the estimates of rows for 9.0 are fits. */
static inline double dn_gpu_seconds(
    const danaus_device *dev, const kernel *k, const problem *p, double products)
{
    const gpu_facts *f = dn_gpu_facts(dev);
    int counted = f->arch == 90 && dn_gpu_code(k)->arch != 90;
    return (counted ? 3 : 1) * products + dn_gpu_activating(f, p);
}

/* The most blocks i that divide all of them and whose weights, of so many bytes each, stay in
   the second cache. */
static inline int64_t dn_gpu_shared_blocks(int64_t a, int64_t bytes)
{
    int64_t blocks = MIN(((int64_t)16 << 20) / bytes, a);
    while (blocks > 1 && a % blocks)
        blocks--;
    return MAX(blocks, 1);
}

/* Lines "#define NAME VALUE" of a text for tensor cores, and which of its types it has. */
typedef struct gpu_define {
    const char *name;
    int64_t value;
} gpu_define;

void dn_gpu_define(danaus_dtype dtype, const gpu_define *lines, size_t count, text *to);

/* The same, and of a product its numbers, its ending and its pattern. */
void dn_gpu_define_product(
    const problem *p, const gpu_define *lines, size_t count, text *to);

/* gpu_family.defines of portable texts: their type, and the layout. */
void dn_gpu_define_type(const kernel *k, const problem *p, int variant, text *to);
void dn_gpu_define_layout(const kernel *k, const problem *p, int variant, text *to);

/* READS and WRITES of texts whose families do orders. */
void dn_gpu_define_orders(const problem *p, text *to);

/* True if the orders of a problem, if it has any, move whole rows. Texts for tensor cores can do
   that; batch-first they would have to gather single numbers. */
static inline int dn_gpu_moves_rows(const problem *p)
{
    return !p->orders || p->layout == DANAUS_BATCH_LAST;
}

/* Clocks until a place comes from the second cache, an estimate; bytes of sectors for each,
   lanes lying between those of a tile. */
#define DN_PLACE_CLOCKS 250

static inline double dn_gpu_place_bytes(const problem *p)
{
    return fmin(8 * (double)p->pattern.d, 32);
}

/* Weights as tensor cores read them (ks_tile.cuh): [i][j][row tile][step][part][row], each
   row 128 bytes of columns k in chunks of 16 that are exchanged; zeros outside the
   matrix. */
typedef struct gpu_tile {
    int element, parts;
    int even_first; /* of 8 columns k the even ones come first */
    int64_t rows, row_tiles, steps;
} gpu_tile;

/* packed_bytes and pack of families that have tile(). */
size_t dn_gpu_tile_bytes(const kernel *k, const problem *p);
void dn_gpu_pack_tiles(const kernel *k, const problem *p, weights_view w, void *packed);

/* ---- families, and what their sizes are ---- */

/* Portable: BR, BS, BJ, TR, TS, BK. */
extern const gpu_family dn_gpu_simt;

/* Portable, for few columns k: EACH, SPAN. */
extern const gpu_family dn_gpu_thin;
/* Portable, for few columns: OUTS, NS, 1, WARPS, bytes of weights in a load. */
extern const gpu_family dn_gpu_vec;
/* On tensor cores from 8.0 on: rows of a tile at most, columns, 1, resident blocks. */
extern const gpu_family dn_gpu_mma;
/* The same batch-first with lanes: tiles of 16 rows of a warp at most, of 8 columns, warps
   that share columns and lanes, warps, resident blocks, parts that numbers are cut into. */
extern const gpu_family dn_gpu_mma_lanes;
/* The same for any lanes and alignment: tiles of 16 rows of a warp at most, of 8 columns, 1,
   warps at most, resident blocks, parts. */
extern const gpu_family dn_gpu_mma_runs;
/* The same for few columns: tiles of 16 rows of a warp, of 8 columns, warps beside each
   other in rows, ways that columns k are split over, resident blocks, parts. */
extern const gpu_family dn_gpu_split;
/* On tensor cores of 9.0: rows of a tile at most, columns, 1, groups of threads that
   multiply, blocks of a cluster, resident blocks, parts, whether y is what another factor
   takes. */
extern const gpu_family dn_gpu_wgmma;
/* The same for narrow blocks, which it joins to blocks with zeros. */
extern const gpu_family dn_gpu_wgmma_joined;
/* The same batch-first with lanes: rows of a tile at most, columns, lanes, blocks of a
   cluster, whether x is what another factor made, parts. */
extern const gpu_family dn_gpu_wgmma_lanes;
/* Two factors at once: 1, columns, 1, warps, resident blocks. */
extern const gpu_family dn_gpu_pair;
/* Batch-first by turning x and y, or making x first: 64, 64, 1. */
extern const gpu_family dn_gpu_turned;
/* By a library, block by block where x and y can be read as matrices where they lie, or
   the whole factor with its zeros: 64, 64, 1, whether tf32, whether weights are packed
   column by column. */
extern const gpu_family dn_gpu_blas, dn_gpu_dense;

/* Packing, from the device's memory: gathering by a map, and multiplying factors out. */
extern const gpu_family dn_gpu_pack_gather, dn_gpu_pack_merge;

#endif
