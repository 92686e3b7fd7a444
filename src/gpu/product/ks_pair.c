/* Two factors at once on tensor cores, batch-first: sizes, weights and order of
   ks_pair.cu.

   A row for 9.0 uses the shared memory of that architecture. A row from 8.0 on uses what every
   such architecture has. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/rows.h"

#include "math/pattern.h"

#include <string.h>

#define REGISTERS   65536 /* of a multiprocessor */
#define MOST_OWN    255   /* of a thread */
#define ADDRESSES   31    /* of them for anything but sums, weights and x */
#define LEAST_WARPS 8     /* fewer leave memory waiting */
#define MOST_ROWS   64
#define WORD_BYTES  4
#define STEP_BYTES  64  /* of columns k in a row */
#define FRAGMENT    512 /* bytes: 16 rows by half a step, 16 bytes a lane */

/* Members of `size`; other families have only the number of columns. */
enum { ROWS, COLUMNS, LANES, WARPS, RESIDENT };

/* Sizes of the inner factor l and the outer factor w; units and steps are those of the text. */
typedef struct pair_shape {
    danaus_pattern l, w;
    int64_t element, step; /* bytes of a number, columns k of a step */
    int64_t resident;
    int64_t unit_k, unit_j; /* of units of the inner and the outer product */
    int64_t l_blocks;       /* blocks of l that a block of w needs */
    int64_t l_tiles, l_units, l_steps;
    int64_t tiles, units, steps;
    int64_t row_pitch, pair_bytes, shared;
    int64_t l_bytes, w_bytes; /* packed */
} pair_shape;

/* With `blocks` resident. Words have two numbers or one. Units of one take fewer registers,
   which is faster where these are short alone; weights of two steps are there at a time. */
static pair_shape shape_with(const kernel *k, const problem *p, int64_t blocks)
{
    int64_t columns = dn_gpu_size(k)[COLUMNS], element = dn_size_of(p->dtype);
    danaus_pattern l = p->inner, w = p->pattern;
    pair_shape s = { .l = l, .w = w, .element = element, .l_blocks = l.a / w.a };
    int small = element == WORD_BYTES && dn_gpu_size(k)[WARPS] * blocks > LEAST_WARPS;
    s.resident = blocks;
    s.step = STEP_BYTES / element;
    s.l_tiles = l.b % 32 || w.d % 32 ? 1 : 2;
    s.unit_k = small && CEIL_DIV(l.c, s.step) % 2 == 0 ? 1 : 2;
    s.l_units = w.c / s.unit_k * (w.d / (16 * s.l_tiles));
    s.l_steps = s.unit_k * CEIL_DIV(l.c, s.step);
    s.tiles = w.b / 16;
    s.unit_j = small && w.c / s.step % 2 == 0 ? 1 : 2;
    s.units = w.d / s.unit_j;
    s.steps = s.unit_j * (w.c / s.step);
    for (s.row_pitch = 16; s.row_pitch < w.b;)
        s.row_pitch *= 2;
    s.pair_bytes = columns * 2 * element * MAX(w.c, s.row_pitch) + 32;
    s.shared = w.d / 2 * s.pair_bytes;
    s.l_bytes = w.a * s.l_units * s.l_steps * s.l_tiles * 2 * FRAGMENT;
    s.w_bytes = w.a * s.units * s.steps * s.tiles * 2 * FRAGMENT;
    return s;
}

/* A row of a lane's matrix is one step or two, four, ...: its chunks are exchanged among
   eight. */
static int sizes_fit(const problem *p)
{
    danaus_pattern l = p->inner, w = p->pattern;
    int64_t row = w.c * dn_size_of(p->dtype);
    return l.d == 1 && l.a % w.a == 0 && l.b % 16 == 0 && l.c % 8 == 0 && l.c <= 64 &&
           w.b % 16 == 0 && w.b <= MOST_ROWS &&
           (row == STEP_BYTES || row % (2 * STEP_BYTES) == 0) && w.d % 16 == 0;
}

/* Registers of a thread that sums, weights of two steps and x of a unit take. */
static int64_t live(const pair_shape *s, int64_t columns)
{
    int64_t tiles = MAX(s->l_tiles, s->tiles), eights = columns / 8;
    int64_t slots = s->l.b % (s->unit_k * s->w.d) ? s->unit_k : 1;
    int64_t sums = 4 * eights * MAX(s->unit_k * s->l_tiles, s->unit_j * s->tiles);
    return sums + 16 * tiles + slots * s->l_steps / s->unit_k * 4 * eights;
}

static int may_reside(const kernel *k, const pair_shape *s)
{
    const int *n = dn_gpu_size(k);
    int64_t warps = n[WARPS] * s->resident, own = REGISTERS / (32 * warps);
    return warps >= LEAST_WARPS &&
           s->shared <= dn_gpu_room(dn_gpu_code(k)->arch, s->resident) &&
           live(s, n[COLUMNS]) + ADDRESSES <= MIN(own, MOST_OWN);
}

/* With as many blocks resident as may be, at most those that the row would have; 0: none. */
static pair_shape shape_of(const kernel *k, const problem *p)
{
    int64_t blocks = dn_gpu_size(k)[RESIDENT];
    pair_shape s = shape_with(k, p, blocks);
    while (blocks && !may_reside(k, &s))
        s = shape_with(k, p, --blocks);
    return s;
}

static int fits(const kernel *k, const problem *p)
{
    if (!p->inner.a || p->layout != DANAUS_BATCH_FIRST ||
        (k->dtype == DANAUS_F32 && p->math != DANAUS_MATH_TF32) || !sizes_fit(p))
        return 0;
    return shape_of(k, p).resident > 0;
}

static int64_t tiles_of(const kernel *k, const problem *p, int64_t batch)
{
    return p->pattern.a * CEIL_DIV(batch, dn_gpu_size(k)[COLUMNS]);
}

static size_t packed_bytes(const kernel *k, const problem *p)
{
    pair_shape s = shape_of(k, p);
    return (size_t)(s.l_bytes + s.w_bytes);
}

/* A fit to times (to 7 %, in tf32 to 13 %): a multiprocessor takes as long for
   each tile, one after the other, as x, y and the weights, which come from the second
   cache, take to move. Its tensor cores have nothing to say with blocks this small, those of
   others may. */
static double cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    const gpu_facts *f = dn_gpu_facts(dev);
    const int *n = dn_gpu_size(k);
    pair_shape s = shape_of(k, p);
    double share = f->bandwidth / f->units, blocks = (double)p->pattern.a;
    double resident = (double)s.resident;
    double moved = dn_gpu_moved_bytes(p) / (double)p->batch * n[COLUMNS] / blocks;
    double weights = (double)packed_bytes(k, p) / blocks;
    double detour = resident > 1 ? 1.25 : 1.45;
    double tile = detour * moved / share + weights / (2.4 * share) + 0.4e-6 / resident;
    double products = weights / FRAGMENT * n[COLUMNS] / 8;
    tile = fmax(tile, dn_gpu_mma_clocks(f, products) / f->clock);
    double rounds = ceil((double)tiles_of(k, p, p->batch) / (f->units * resident));
    return dn_gpu_seconds(dev, k, p, 4.8e-6 + rounds * resident * tile);
}

/* ---- weights: the 16 bytes that a lane of a warp has of a fragment ---- */

typedef struct pair_entry {
    int64_t row, column; /* in the tile; column: the number that the lane has it by */
    int g, t;            /* of the lane: four of them share a row */
} pair_entry;

/* `word`: elements of a word; a lane has four words. */
static pair_entry entry_at(int lane, int number, int word)
{
    int n = number / word;
    return (pair_entry){
        .row = lane / 4 + n % 2 * 8,
        .column = n / 2 * word + number % word,
        .g = lane / 4,
        .t = lane % 4,
    };
}

/* Puts entry (i, r, k, j) of a view, unless k is outside. */
static void put(
    const gpu_packing *g, const weights_view *v, int64_t i, int64_t r, int64_t k,
    int64_t j, int64_t columns, void *to)
{
    int64_t from = i * v->s[0] + r * v->s[1] + k * v->s[2] + j * v->s[3];
    if (k < columns)
        dn_gpu_put(g, (gpu_run){ v, from, 0, 1, to, NULL });
}

/* A fragment of a unit. */
typedef struct fragment {
    int64_t unit, step, tile, half;
} fragment;

/* In a step, lane t has the t-th 16 bytes of x, half of them for each of two products. */
static void pack_inner(const gpu_packing *g, fragment f, char *to)
{
    const pair_shape *s = g->shape;
    int word = (int)(WORD_BYTES / s->element);
    int64_t groups = s->w.d / (16 * s->l_tiles), depth = s->l_steps / s->unit_k;
    int64_t i = f.unit / s->l_units, in_block = f.unit % s->l_units;
    int64_t k = in_block / groups * s->unit_k + f.step / depth;
    int64_t j = in_block % groups * s->l_tiles * 16 + f.tile * 16;
    for (int lane = 0; lane < 32; lane++)
        for (int number = 0; number < 4 * word; number++, to += s->element) {
            pair_entry e = entry_at(lane, number, word);
            int64_t m = k * s->w.d + j + e.row;
            int64_t column = f.step % depth * s->step + e.t * 4 * word +
                             f.half * 2 * word + e.column;
            put(g, g->w.inner, i * s->l_blocks + m / s->l.b, m % s->l.b, column, 0,
                s->l.c, to);
        }
}

/* The words of 16 bytes are exchanged by the lane j. */
static void pack_outer(const gpu_packing *g, fragment f, char *to)
{
    const pair_shape *s = g->shape;
    int word = (int)(WORD_BYTES / s->element);
    int64_t i = f.unit / s->units, depth = s->steps / s->unit_j;
    int64_t j = f.unit % s->units * s->unit_j + f.step / depth;
    for (int lane = 0; lane < 32; lane++)
        for (int number = 0; number < 4 * word; number++, to += s->element) {
            pair_entry e = entry_at(lane, number, word);
            int64_t k = f.step % depth * s->step + f.half * (s->step / 2) +
                        e.column / word * 4 * word + (e.t ^ (j & 3)) * word +
                        e.column % word;
            put(g, &g->w, i, f.tile * 16 + e.row, k, j, s->w.c, to);
        }
}

static void pack_inner_unit(const gpu_packing *g, int64_t n, char *to)
{
    const pair_shape *s = g->shape;
    for (int64_t step = 0; step < s->l_steps; step++)
        for (int64_t f = 0; f < 2 * s->l_tiles; f++, to += FRAGMENT)
            pack_inner(g, (fragment){ n, step, f / 2, f % 2 }, to);
}

static void pack_outer_unit(const gpu_packing *g, int64_t n, char *to)
{
    const pair_shape *s = g->shape;
    for (int64_t step = 0; step < s->steps; step++)
        for (int64_t f = 0; f < 2 * s->tiles; f++, to += FRAGMENT)
            pack_outer(g, (fragment){ n, step, f / 2, f % 2 }, to);
}

static void pack(const kernel *k, const problem *p, weights_view w, void *packed)
{
    pair_shape s = shape_of(k, p);
    int64_t l_units = s.w.a * s.l_units, units = s.w.a * s.units;
    gpu_packing inner = {
        k, p, w, &s, s.l_bytes / l_units, pack_inner_unit, DN_DROP_TF32, 0
    };
    gpu_packing outer = { k, p, w, &s, s.w_bytes / units, pack_outer_unit, DN_DROP_TF32,
                          0 };
    dn_gpu_pack(&inner, l_units, packed);
    dn_gpu_pack(&outer, units, (char *)packed + s.l_bytes);
}

/* ---- the text ---- */

/* Variant 0 takes 16 bytes of x and y at once, 1 takes them as they lie. */
static int variant_of(const kernel *k, const problem *p, const gpu_call *call)
{
    (void)k, (void)p;
    return dn_gpu_places(call) % 16 != 0;
}

static void defines(const kernel *k, const problem *p, int variant, text *to)
{
    const int *n = dn_gpu_size(k);
    pair_shape s = shape_of(k, p);
    const gpu_define lines[] = {
        { "L_BLOCKS", s.l_blocks },   { "L_ROWS", s.l.b },
        { "L_COLS", s.l.c },          { "L_TILES", s.l_tiles },
        { "UNIT_K", s.unit_k },       { "UNIT_J", s.unit_j },
        { "ROW_PITCH", s.row_pitch }, { "PAIR_BYTES", s.pair_bytes },
        { "EIGHTS", n[COLUMNS] / 8 }, { "WARPS", n[WARPS] },
        { "RESIDENT", s.resident },   { "ALIGNED", variant == 0 }
    };
    dn_gpu_define_product(p, lines, sizeof lines / sizeof *lines, to);
}

static void launch_of(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *launch)
{
    const int *n = dn_gpu_size(k);
    pair_shape s = shape_of(k, p);
    *launch = dn_gpu_stay(
        tiles_of(k, p, call->batch), f->units * s.resident, n[WARPS] * 32, s.shared);
}

const gpu_family dn_gpu_pair = {
    .kernel = { .fits = fits,
                .cost = cost,
                .packed_bytes = packed_bytes,
                .pack = pack },
    .text = "ks_pair.cu",
    .defines = defines,
    .launch = launch_of,
    .variants = 2,
    .variant = variant_of,
};
