/* Rows on the tensor cores of compute capability 9.0, batch-first with d > 1: tiles,
   weights and costs of ks_lanes.cu. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/rows.h"

#include "base/dtype.h"
#include "math/pattern.h"

#include <math.h>

#define LINE_BYTES  128
#define CHUNK_BYTES 16
#define UNIT_BYTES  32
#define LANES_BYTES 32 /* of the lanes that are stored together: less is slow */
#define PIECE_BYTES (64 * LINE_BYTES)
#define MOST_STAGES 6
#define FLAGS_BYTES 1280
#define SHARED      (227 << 10)

enum { ROWS, COLUMNS, LANES, MOVERS, PARTS };

static const int *size_of(const kernel *k) { return dn_gpu_code(k)->size; }

typedef struct shape {
    int element, parts, cluster, per; /* per: elements of a chunk */
    int64_t lanes, in_chunk, depth, stage_bytes, stages, buffers, shared;
    gpu_tile tile;
} shape;

/* Row (column) of a tile at a place. If all lanes are together, neighbouring units take
   neighbouring chunks. */
static int64_t spread(const gpu_tile *t, int64_t place, int64_t groups)
{
    int64_t per = CHUNK_BYTES / t->element, n = place % per;
    return (n / t->in_chunk * groups + place / per) * t->in_chunk + n % t->in_chunk;
}

static int64_t row_at(const gpu_tile *t, int64_t place)
{
    return spread(t, place, t->row_groups);
}

static int64_t column_at(const gpu_tile *t, int64_t place)
{
    int64_t depth = t->column_groups * (CHUNK_BYTES / t->element);
    return place < depth ? spread(t, place, t->column_groups) : place;
}

static int64_t up_to(int64_t size, int64_t unit)
{
    return dn_gpu_parts(size, unit) * unit;
}

/* As many stages as there is room for, and a second buffer for y if three remain. */
static void set_memory(shape *s, const int *n)
{
    int64_t line = LINE_BYTES / s->element, rows = s->tile.rows;
    int64_t pieces = dn_gpu_parts(rows, line), share = n[COLUMNS] / s->cluster;
    int64_t sent = s->lanes * share * LINE_BYTES;
    s->stage_bytes =
        2 * n[COLUMNS] * LINE_BYTES + 2 * s->parts * rows * LINE_BYTES + sent;
    int64_t buffer = 2 * (n[COLUMNS] / 64) * pieces * PIECE_BYTES + pieces * sent;
    int64_t room = SHARED - FLAGS_BYTES;
    s->buffers = (room - 2 * buffer) / s->stage_bytes >= 3 ? 2 : 1;
    s->stages = (room - s->buffers * buffer) / s->stage_bytes;
    s->stages = s->stages < MOST_STAGES ? s->stages : MOST_STAGES;
    s->shared = FLAGS_BYTES + s->stages * s->stage_bytes + s->buffers * buffer;
}

static shape shape_of(const kernel *k, const problem *p)
{
    const int *n = size_of(k);
    danaus_pattern q = p->pattern;
    shape s = { .element = (int)danaus_dtype_size(p->dtype), .parts = n[PARTS] };
    s.per = CHUNK_BYTES / s.element;
    s.lanes = LANES_BYTES / s.element;
    while (q.d % s.lanes)
        s.lanes /= 2;
    s.cluster = (int)(s.lanes / 2);
    if (s.cluster < 1)
        return s;
    int64_t line = LINE_BYTES / s.element, unit = UNIT_BYTES / s.element;
    int64_t row_tiles = dn_gpu_parts(q.b, n[ROWS]);
    int64_t rows = up_to(dn_gpu_parts(q.b, row_tiles), 16);
    s.depth = q.c > line ? line : up_to(q.c, unit);
    s.in_chunk = s.lanes < s.per ? s.per / s.lanes : 1;
    s.tile = (gpu_tile){
        .element = s.element,
        .parts = s.parts,
        .rows = rows,
        .row_tiles = dn_gpu_parts(q.b, rows),
        .steps = dn_gpu_parts(q.c, line),
        .in_chunk = s.in_chunk,
        .row_groups = rows / s.per,
        .column_groups = s.depth / s.per,
        .row = q.d == s.lanes ? row_at : dn_gpu_as_it_is,
        .column = q.d == s.lanes ? column_at : dn_gpu_as_it_is,
    };
    set_memory(&s, n);
    return s;
}

static int64_t tiles_of(const kernel *k, const problem *p, int64_t batch)
{
    shape s = shape_of(k, p);
    return p->pattern.a * (p->pattern.d / s.lanes) * s.tile.row_tiles *
           dn_gpu_parts(batch, size_of(k)[COLUMNS]);
}

/* Lanes fewer than a chunk must be all there are, for chunks to lie together. */
int dn_lanes_row_fits(const kernel *k, const problem *p)
{
    danaus_pattern q = p->pattern;
    int tf32 = k->dtype == DANAUS_F32 && size_of(k)[PARTS] == 1;
    if (!dn_is_one_factor(k, p) || (tf32 && p->math != DANAUS_MATH_TF32) ||
        p->layout != DANAUS_BATCH_FIRST || q.d < 2 || q.b < 8 || q.c < 8)
        return 0;
    shape s = shape_of(k, p);
    return s.cluster >= 1 && (s.lanes >= s.per || s.lanes == q.d) && q.b % s.per == 0 &&
           q.c % s.per == 0 && s.stages >= 2 && q.a * q.d * (q.b + q.c) >= 80;
}

/* Seconds of a launch for few columns: the exchange, and latency from step to step. */
static double one_tile(const shape *s)
{
    int wide = s->element > 2, many = s->cluster > 2;
    double start = wide ? (many ? 11.5e-6 : 7.5e-6) : (many ? 7e-6 : 6.2e-6);
    double step = 0.6e-6 + 0.4e-6 * (s->parts > 1) + 0.3e-6 * many;
    return start + step * (double)s->tile.steps;
}

/* A fit to times on an H200: x, and y, at the rates that their units reach, which do not
   overlap; or the tensor cores. */
double dn_lanes_row_cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    const gpu_facts *f = dn_gpu_facts(dev);
    danaus_pattern q = p->pattern;
    shape s = shape_of(k, p);
    double line = (double)p->batch * s.element, tiles = (double)s.tile.row_tiles;
    double x = (double)dn_pattern_cols(q) * line * tiles;
    double y = (double)dn_pattern_rows(q) * line;
    double part = q.d > s.lanes ? 0.29 : s.cluster > 2 ? 0.4 : 0.53;
    double rate = part * f->bandwidth;
    double products = s.parts > 1 ? 3 : 1;
    double work = 2.0 * (double)dn_pattern_weights(q) * (double)p->batch * products;
    double tensor = f->flops * 12 * 2 / s.element * 0.5;
    double all = 6e-6 + 1.15 * fmax((x + y) / rate, work / tensor) +
                 (double)dn_lanes_row_bytes(k, p) / f->bandwidth;
    return fmax(all, one_tile(&s));
}

size_t dn_lanes_row_bytes(const kernel *k, const problem *p)
{
    shape s = shape_of(k, p);
    return dn_gpu_tile_bytes(&s.tile, p);
}

void dn_lanes_row_pack(const kernel *k, const problem *p, weights_view w, void *packed)
{
    shape s = shape_of(k, p);
    dn_gpu_tile_pack(&s.tile, p, w, packed);
}

/* 0: x and y are aligned to chunks; 1: any. */
int dn_lanes_row_variant(const kernel *k, const problem *p, const gpu_call *call)
{
    (void)k;
    (void)p;
    return ((uintptr_t)call->x | (uintptr_t)call->y) % CHUNK_BYTES != 0;
}

void dn_lanes_row_defines(const kernel *k, const problem *p, int variant, text *to)
{
    const int *n = size_of(k);
    danaus_pattern q = p->pattern;
    shape s = shape_of(k, p);
    const gpu_define lines[] = {
        { "WGMMA", 1 },
        { "ELEMENT", s.element },
        { "SPLIT", s.parts > 1 },
        { "ALIGNED", !variant },
        { "X_LAST", 0 },
        { "Y_LAST", 0 },
        { "ACTIVATION", p->activation },
        { "BLOCKS", q.a },
        { "ROWS", q.b },
        { "COLS", q.c },
        { "LANES", q.d },
        { "TILE_N", s.tile.rows },
        { "MULTIPLE", n[COLUMNS] / 64 },
        { "STAGES", s.stages },
        { "BUFFERS", s.buffers },
        { "CLUSTER", s.cluster },
        { "MOVERS", n[MOVERS] },
    };
    dn_gpu_define(p->dtype, lines, sizeof lines / sizeof *lines, to);
}

/* Of clusters of 8, some processors of a group are left over: on an H200, 15 are
   resident. */
void dn_lanes_row_launch(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *launch)
{
    shape s = shape_of(k, p);
    int64_t tiles = tiles_of(k, p, call->batch);
    int64_t units = s.cluster > 2 ? f->units * 10 / 11 : f->units;
    int64_t clusters = units / s.cluster;
    *launch = (gpu_launch){
        .blocks = { (tiles < clusters ? tiles : clusters) * s.cluster, 1, 1 },
        .threads = 128 * (3 + size_of(k)[MOVERS]),
        .shared = (int)s.shared,
        .cluster = s.cluster,
    };
}
