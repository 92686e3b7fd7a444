/* Rows of ks_wgmma.c for narrow blocks, batch-first. `times` neighbouring blocks (i, j) become
   one block that has zeros outside of them:

       (a, b, c, d)  ->  (a / times, times b d, times c d, 1)

   x, y, the bias and a residual lie in memory as they are; only weights are packed otherwise.
   Lines of a joined block are whole sectors of memory, where those of a narrow one share them.
   A zero times an infinite x is NaN, so such an x reaches all y of its joined block. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/rows.h"

#include "base/dtype.h"
#include "math/pattern.h"

#define LINE_BYTES   128
#define CHUNK_BYTES  16
#define SECTOR_BYTES 32
#define MOST_LINES   4 /* of 128 bytes, in a line of a joined block */

static danaus_pattern join(danaus_pattern q, int64_t times)
{
    return (danaus_pattern){ q.a / times, times * q.b * q.d, times * q.c * q.d, 1 };
}

/* Numbers of the longer line, of x or of y. */
static int64_t length(danaus_pattern q) { return MAX(q.b, q.c); }

/* What divides the lines, in bytes: a power of two, at most a sector. */
static int64_t alignment(danaus_pattern q, int64_t size)
{
    int64_t bytes = (q.b | q.c) * size | SECTOR_BYTES;
    return bytes & -bytes;
}

/* How far the longer line is from `line` numbers, as a ratio. */
static double misfit(danaus_pattern q, int64_t line)
{
    double lines = (double)length(q) / (double)line;
    return fmax(lines, 1 / lines);
}

static int is_better(danaus_pattern q, danaus_pattern than, int64_t size)
{
    int64_t gain = alignment(q, size) - alignment(than, size), line = LINE_BYTES / size;
    return gain > 0 || (gain == 0 && misfit(q, line) < misfit(than, line));
}

/* Numbers of the longest line that there may be. */
static int64_t longest(const problem *p)
{
    return MOST_LINES * LINE_BYTES / dn_size_of(p->dtype);
}

/* Joins as many blocks as give the best lines: aligned ones first, then those whose length is
   nearest to 128 bytes. A joined problem is not joined further. */
static problem joined(const problem *p)
{
    problem best = *p;
    int64_t blocks = p->pattern.a / (p->gated ? 2 : 1);
    best.pattern = join(p->pattern, 1);
    int64_t most = MIN(blocks, longest(p) / length(best.pattern));
    for (int64_t times = 2; times <= most; times++) {
        danaus_pattern q = join(p->pattern, times);
        if (blocks % times == 0 && is_better(q, best.pattern, dn_size_of(p->dtype)))
            best.pattern = q;
    }
    return best;
}

static int fits(const kernel *k, const problem *p)
{
    problem all = joined(p);
    return p->layout == DANAUS_BATCH_FIRST && length(all.pattern) <= longest(p) &&
           !dn_pattern_equal(all.pattern, p->pattern) &&
           dn_gpu_wgmma.kernel.fits(k, &all);
}

static double cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    problem all = joined(p);
    return dn_gpu_wgmma.kernel.cost(dev, k, &all);
}

static gpu_tile tile_of(const kernel *k, const problem *p)
{
    problem all = joined(p);
    return dn_gpu_wgmma.tile(k, &all);
}

/* ---- weights ---- */

/* A joined problem and the tiles of its weights. */
typedef struct joined_tiles {
    danaus_pattern pattern;
    gpu_tile tile;
} joined_tiles;

static size_t packed_bytes(const kernel *k, const problem *p)
{
    problem all = joined(p);
    return dn_gpu_tile_bytes(k, &all);
}

static int64_t step_bytes(const gpu_tile *t) { return t->parts * t->rows * LINE_BYTES; }

/* Row `out` of y is row `row` of a tile. It has row r of block (i, j), whose columns begin at
   column `first` of the joined block and, with one lane, follow each other in chunks. */
static void pack_row(const gpu_packing *g, int64_t out, int64_t row, char *to)
{
    const joined_tiles *t = g->shape;
    danaus_pattern q = g->p->pattern;
    const int64_t *s = g->w.s;
    int64_t i = out / q.d / q.b, r = out / q.d % q.b, j = out % q.d;
    int64_t from = i * s[0] + r * s[1] + j * s[3], count = 1;
    int64_t first = i * q.c * q.d % t->pattern.c + j;
    int64_t line = LINE_BYTES / t->tile.element, per = CHUNK_BYTES / t->tile.element;
    for (int64_t c = 0; c < q.c; c += count) {
        int64_t at = first + c * q.d, chunk = at % line / per;
        char *place = to + at / line * step_bytes(&t->tile) +
                      (chunk ^ (row & 7)) * CHUNK_BYTES + at % per * t->tile.element;
        char *rest = t->tile.parts > 1 ? place + t->tile.rows * LINE_BYTES : NULL;
        count = q.d > 1 ? 1 : MIN(per - at % per, q.c - c);
        dn_gpu_put(g, (gpu_run){ &g->w, from + c * s[2], s[2], count, place, rest });
    }
}

/* A unit: all steps of a tile of rows. */
static void pack_tile(const gpu_packing *g, int64_t n, char *to)
{
    const joined_tiles *t = g->shape;
    int64_t block = n / t->tile.row_tiles, r0 = n % t->tile.row_tiles * t->tile.rows;
    for (int64_t row = 0; row < MIN(t->tile.rows, t->pattern.b - r0); row++)
        pack_row(g, block * t->pattern.b + r0 + row, row, to + row * LINE_BYTES);
}

static void pack(const kernel *k, const problem *p, weights_view w, void *packed)
{
    joined_tiles t = { joined(p).pattern, tile_of(k, p) };
    int64_t bytes = t.tile.steps * step_bytes(&t.tile);
    gpu_packing g = { k, p, w, &t, bytes, pack_tile, DN_DROP_TF32, 0 };
    dn_gpu_pack(&g, t.pattern.a * t.tile.row_tiles, packed);
}

/* ---- launches ---- */

static int variant_of(const kernel *k, const problem *p, const gpu_call *call)
{
    problem all = joined(p);
    return dn_gpu_wgmma.variant(k, &all, call);
}

static void defines(const kernel *k, const problem *p, int variant, text *to)
{
    problem all = joined(p);
    dn_gpu_wgmma.defines(k, &all, variant, to);
}

static void launch_of(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *launch)
{
    problem all = joined(p);
    dn_gpu_wgmma.launch(k, &all, f, call, launch);
}

static void maps_of(
    const kernel *k, const problem *p, const gpu_call *call, gpu_map map[GPU_MAPS])
{
    problem all = joined(p);
    dn_gpu_wgmma.maps(k, &all, call, map);
}

const gpu_family dn_gpu_wgmma_joined = {
    .kernel = { .gates = 1,
                .fits = fits,
                .cost = cost,
                .packed_bytes = packed_bytes,
                .pack = pack },
    .text = "ks_wgmma.cu",
    .defines = defines,
    .launch = launch_of,
    .tile = tile_of,
    .variants = 2,
    .variant = variant_of,
    .maps = maps_of,
};
