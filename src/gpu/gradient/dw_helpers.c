/* Launches of gradients beside products: turning lanes, adding up parts, and parts of the
   gradient of a bias. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/gradient/dw.h"

#include "base/dtype.h"
#include "gpu/rows.h"
#include "math/pattern.h"

/* The parts of a number are shared by threads that have more than so many, if threads are
   few. */
#define ENOUGH_SLABS   4
#define MOST_WAYS      16
#define ENOUGH_THREADS ((int64_t)1 << 17)
#define VECTOR         16                 /* bytes */
#define MOST_NARROW    ((int64_t)1 << 30) /* numbers that are counted in 32 bits */
#define MOST_BLOCKS    ((int64_t)1 << 26) /* of threads, of a job among up to 17 */
/* With at most so many rows of dy the gradient of a bias needs no launch of its own. */
#define FEW_COLUMNS 256
/* A tile of ks_reduce.cu: most lanes, and numbers. */
#define REDUCED_LANES 32
#define REDUCED_TILE  1024
/* A tile of ks_turn_lanes.cu: most lanes, and most pieces of 16 bytes. */
#define TURNED_LANES  64
#define TURNED_PIECES (32 * (TURNED_LANES + 1))
#define TILE_THREADS  256 /* of this text */

/* ---- lanes ---- */

/* A tile of ks_turn_lanes.cu: its lanes (a larger d should be a multiple), and its units of 16
   bytes of each lane. */
static int64_t turned_lanes(int64_t d)
{
    int64_t lanes = TURNED_LANES;
    while (lanes > 8 && d % lanes)
        lanes -= 8;
    return d < TURNED_LANES ? d : lanes;
}

static int64_t turned_units(int64_t d)
{
    return TURNED_PIECES / (turned_lanes(d) + 1) / 8 * 8;
}

gpu_launch dn_gpu_turn_lanes_launch(const problem *p, int64_t columns, int64_t size)
{
    danaus_pattern q = p->pattern;
    int64_t units = CEIL_DIV(columns * q.a * size, VECTOR / dn_size_of(p->dtype));
    int64_t tiles =
        CEIL_DIV(units, turned_units(q.d)) * CEIL_DIV(q.d, turned_lanes(q.d));
    return dn_gpu_line(tiles, TILE_THREADS);
}

/* ---- sums of parts ---- */

static int blocks_of(int64_t tiles) { return (int)MIN(tiles, MOST_BLOCKS); }

/* `per` numbers at once. */
static gpu_sum sum_by(int64_t count, danaus_pattern q, const weights_view *to, int per)
{
    gpu_sum sum = { .q = q, .to = *to, .count = count, .per = per, .ways = 1 };
    sum.wide_log2 = -1;
    int64_t threads = dn_pattern_weights(q) / per;
    while (sum.ways < MOST_WAYS && count > sum.ways * ENOUGH_SLABS &&
           threads < ENOUGH_THREADS) {
        sum.ways *= 2;
        threads *= 2;
    }
    sum.blocks = blocks_of(CEIL_DIV(threads, GPU_SUM_THREADS));
    return sum;
}

gpu_sum dn_gpu_sum(
    danaus_dtype dtype, int64_t count, danaus_pattern q, const weights_view *to)
{
    int64_t cell = dn_size_of(dn_sum_type(dtype));
    int whole = dn_pattern_weights(q) * cell % VECTOR == 0;
    return sum_by(count, q, to, whole ? (int)(VECTOR / cell) : 1);
}

/* True if parts of a step are [a][d][b][c], and not [a][b][c][d]. */
static int has_lanes_first(const kernel *k, const problem *p)
{
    const gpu_dw_family *family = (const gpu_dw_family *)k->family;
    int form = dn_gpu_code(k)->size[DW_FORM];
    if (form == DW_TURNED || (family->gpu.library && form == DW_AS_IT_LIES))
        return 1;
    return family->search && p->layout == DANAUS_BATCH_LAST;
}

/* In tiles: of many numbers, or few slabs. */
static int goes_by_tiles(const gpu_dw_plan *plan)
{
    danaus_pattern q = plan->p.pattern;
    int is_large = dn_pattern_weights(q) >= ENOUGH_THREADS;
    return has_lanes_first(plan->kernel, &plan->p) && q.d > 1 &&
           q.b * q.c <= MOST_NARROW && (is_large || plan->slabs.count <= ENOUGH_SLABS);
}

gpu_sum dn_gpu_dw_sum(const gpu_dw_plan *plan, const weights_view *to)
{
    danaus_pattern q = plan->p.pattern;
    int64_t count = plan->slabs.count;
    if (goes_by_tiles(plan)) {
        gpu_sum sum = { .q = q, .to = *to, .count = count };
        while (1 << sum.wide_log2 < MIN(q.d, REDUCED_LANES))
            sum.wide_log2++;
        int64_t lanes = 1 << sum.wide_log2;
        sum.blocks = blocks_of(
            q.a * CEIL_DIV(q.d, lanes) * CEIL_DIV(q.b * q.c, REDUCED_TILE / lanes));
        return sum;
    }
    weights_view view = *to;
    if (has_lanes_first(plan->kernel, &plan->p)) {
        q = (danaus_pattern){ q.a, q.d, q.b, q.c };
        view.s[1] = to->s[3], view.s[2] = to->s[1], view.s[3] = to->s[2];
    }
    if (plan->form != DW_DENSE)
        return dn_gpu_sum(plan->p.dtype, count, q, &view);
    gpu_sum sum = sum_by(count, q, &view, 1);
    sum.dense = 1;
    return sum;
}

int dn_gpu_dw_is_direct(const gpu_dw_plan *plan, const weights_view *to)
{
    danaus_pattern q = plan->p.pattern;
    const int64_t *s = to->s;
    int lies = s[3] == 1 && s[2] == q.d && s[1] == q.c * q.d && s[0] == q.b * s[1];
    return to->dtype == dn_sum_type(plan->p.dtype) && plan->slabs.count == 1 &&
           plan->form != DW_DENSE && lies && !to->conjugate &&
           (q.d == 1 || !has_lanes_first(plan->kernel, &plan->p)) &&
           (uintptr_t)to->data % DN_GPU_ALIGN == 0;
}

/* ---- bias ---- */

static int64_t bias_tiles(const problem *p)
{
    int64_t rows = dn_pattern_rows(p->pattern);
    return p->layout == DANAUS_BATCH_LAST ? rows : CEIL_DIV(rows, 128);
}

gpu_slabs dn_gpu_bias_slabs(const gpu_facts *f, const problem *p, int64_t batch)
{
    return dn_gpu_slabs(f, batch, bias_tiles(p), dn_pattern_rows(p->pattern));
}

int dn_gpu_bias_is_sum(const problem *p, int64_t batch)
{
    return p->layout == DANAUS_BATCH_FIRST && batch <= FEW_COLUMNS;
}

gpu_sum dn_gpu_bias_sum(
    const gpu_facts *f, const problem *p, int64_t batch, const weights_view *to)
{
    danaus_pattern line = { 1, dn_pattern_rows(p->pattern), 1, 1 };
    if (!dn_gpu_bias_is_sum(p, batch))
        return dn_gpu_sum(p->dtype, dn_gpu_bias_slabs(f, p, batch).count, line, to);
    gpu_sum sum = sum_by(batch, line, to, 1);
    sum.narrow = 1;
    return sum;
}

gpu_launch dn_gpu_bias_launch(const problem *p, int64_t slabs)
{
    return dn_gpu_line(bias_tiles(p) * slabs, 128);
}

/* ---- texts ---- */

static void turn_defines(const kernel *k, const problem *p, int variant, text *to)
{
    int64_t d = p->pattern.d;
    dn_gpu_define_type(k, p, variant, to);
    dn_text(
        to, "#define LANES %lld\n#define WIDE %d\n#define UNITS %d\n", (long long)d,
        (int)turned_lanes(d), (int)turned_units(d));
}

static void add_defines(const kernel *k, const problem *p, int variant, text *to)
{
    dn_gpu_define_type(k, p, variant, to);
    dn_text(to, "#define WIDE %d\n", dn_pattern_weights(p->pattern) > MOST_NARROW);
}

#define FAMILY(TEXT, ENTRY, DEFINES)                                                   \
    &((const gpu_family){ .text = TEXT, .entry = ENTRY, .defines = DEFINES }).kernel

static const gpu_code anywhere;

const kernel dn_gpu_helpers[GPU_HELPERS] = {
    { "turn_lanes", 0, FAMILY("ks_turn_lanes.cu", "turn", turn_defines), &anywhere },
    { "add", 0, FAMILY("ks_reduce.cu", "reduce", add_defines), &anywhere },
    { "bias", 0, FAMILY("ks_dbias.cu", "dbias", dn_gpu_define_layout), &anywhere },
    { "few_columns", 0, &dn_gpu_dw_simt.gpu.kernel, &anywhere },
};

/* The helpers that a row may run for a problem, for any batch and operands. */
int dn_gpu_dw_part(const kernel *k, const problem *p, int n, ks_step *part)
{
    const int runs[GPU_HELPERS] = {
        [GPU_TURN_LANES] = dn_gpu_code(k)->size[DW_FORM] == DW_TURNED,
        [GPU_ADD] = 1,
        [GPU_BIAS] = 1,
        [GPU_FEW_COLUMNS] = k->family != &dn_gpu_dw_simt.gpu.kernel,
    };
    for (int i = 0; i < GPU_HELPERS; i++)
        if (runs[i] && n-- == 0) {
            *part = (ks_step){ *p, &dn_gpu_helpers[i], 0 };
            return 1;
        }
    return 0;
}
