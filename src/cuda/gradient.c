/* Gradients of a chain: forward through the factors, back through the adjoints, weight
   gradients between.

   x_0 = x, x_1 = K x_0, ... lie in scratch in the type of x. Sums over the batch are
   made in slabs of columns, as many as fill the GPU, and the slabs added up in their
   order: the same bits on every run. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda.h"

#include "base/dtype.h"
#include "base/status.h"
#include "math/pattern.h"

#include <math.h>

#define ALIGNMENT   256
#define MOST_BLOCKS ((int64_t)1 << 30)
#define MOST_TILES  ((int64_t)1 << 20) /* of a slab, on tensor cores */
/* A slab has at least so many columns, and there are at most so many slabs. */
#define LEAST_SLAB 256
#define MOST_SLABS 128
/* Parts of one factor's gradient, at most, unless there is one slab. */
#define MOST_PARTS ((int64_t)64 << 20)
/* Of a factor whose x and dy are turned for a tile: each turn has parts of its own. */
#define MOST_TURNED_WEIGHTS ((double)(8 << 20))
/* Weights of a block and columns from which on cuBLAS is worth its call. */
#define LEAST_BLOCK 256
#define LEAST_BATCH 64
/* Rows and columns of a block from which on tensor cores are. */
#define LEAST_SIDE 8
/* Columns in whose time a block of threads begins and ends. */
#define FILLING 64

/* Tiles of ks_dw.cu: rows, columns, lanes, of a thread, depth. */
typedef struct dw_tile {
    int br, bc, bj, tr, tc, bs;
} dw_tile;

typedef struct gradient_run {
    cuda_device *d;
    const ks_step *steps, *adjoint;
    int count;
    const ks_gradient_operands *o;
    int lowest, highest; /* steps whose dy, and whose x, are needed */
    const void *x[DANAUS_MAX_FACTORS];
    void *dy[2];
    void *parts, *work; /* work: of a step */
    dw_way way[DANAUS_MAX_FACTORS];
} gradient_run;

static int64_t parts_of(int64_t size, int64_t part) { return (size + part - 1) / part; }

static size_t aligned(int64_t bytes)
{
    return (size_t)parts_of(bytes, ALIGNMENT) * ALIGNMENT;
}

/* Lanes are taken together when batch-first memory has them next to each other. */
static dw_tile tile_for(const problem *p)
{
    danaus_pattern q = p->pattern;
    int wide = danaus_dtype_size(dn_sum_type(p->dtype)) > 4;
    int lanes = p->layout == DANAUS_BATCH_LAST || q.d == 1 ? 1 : q.d == 2 ? 2 : 8;
    if (wide)
        return lanes == 8   ? (dw_tile){ 8, 8, 8, 2, 2, 4 }
               : lanes == 2 ? (dw_tile){ 16, 16, 2, 2, 2, 8 }
                            : (dw_tile){ 32, 32, 1, 2, 2, 8 };
    if (lanes == 8)
        return q.b > 16 && q.c > 16 ? (dw_tile){ 32, 32, 8, 8, 4, 4 }
                                    : (dw_tile){ 16, 16, 8, 4, 4, 8 };
    if (lanes == 2)
        return (dw_tile){ 32, 32, 2, 4, 4, 16 };
    return q.b >= 48 && q.c >= 48 ? (dw_tile){ 64, 64, 1, 4, 4, 16 }
                                  : (dw_tile){ 32, 32, 1, 4, 4, 16 };
}

/* ---- ways ---- */

static int64_t column_bytes(const problem *p)
{
    danaus_pattern q = p->pattern;
    return (dn_pattern_rows(q) + dn_pattern_cols(q)) *
           (int64_t)danaus_dtype_size(p->dtype);
}

/* Whether matrices are not where cuBLAS could find them. */
static int is_apart(const problem *p)
{
    return p->layout == DANAUS_BATCH_FIRST && p->pattern.d > 1;
}

static int is_exact(const problem *p)
{
    return p->dtype == DANAUS_F32 && p->math != DANAUS_MATH_TF32;
}

/* Whether texts of ours make a weight gradient on tensor cores. Of 16-bit numbers that are
   matrices where they lie cuBLAS makes products, if those fill its tiles. */
static int has_tile(const problem *p)
{
    danaus_pattern q = p->pattern;
    int64_t small = q.b < q.c ? q.b : q.c, large = q.b < q.c ? q.c : q.b;
    int narrow = danaus_dtype_size(p->dtype) == 2 && p->layout == DANAUS_BATCH_FIRST &&
                 (small < 64 || (small == 64 && large > 64));
    return danaus_dtype_size(p->dtype) <= 4 && small >= LEAST_SIDE &&
           (is_apart(p) || narrow || is_exact(p));
}

static gpu_dw tile_of(const cuda_device *d, const problem *p)
{
    if (d->gpu.facts.arch != 90 || !has_tile(p))
        return (gpu_dw){ 0 };
    gpu_dw tile = dn_gpu_dw_for(&d->gpu.facts, p);
    if (tile.resident && dn_gpu_dw_tiles(&tile, p) > MOST_TILES)
        tile.resident = 0;
    return tile;
}

static int library_can(const problem *p)
{
    danaus_pattern q = p->pattern;
    return !dn_is_complex(p->dtype) && q.b * q.c >= LEAST_BLOCK &&
           dn_cuda_find_blas() == DANAUS_OK;
}

/* As of one lane. */
static problem dense_problem(const problem *p)
{
    problem dense = *p;
    danaus_pattern q = p->pattern;
    dense.pattern = (danaus_pattern){ q.a, q.b * q.d, q.c * q.d, 1 };
    return dense;
}

/* Seconds that cuBLAS takes for a column on an H200, of whose products one in `times` is
   wanted, if memory gives so many bytes a second. */
static double library_seconds(const problem *p, double memory, double times)
{
    double rate = danaus_dtype_size(p->dtype) == 2 ? 7e14
                  : p->math == DANAUS_MATH_TF32    ? 3.6e14
                                                   : 4.5e13;
    double products = 2 * (double)dn_pattern_weights(p->pattern) * times;
    double seconds[] = { (double)column_bytes(p) / memory, products / rate };
    return dn_gpu_dw_together(seconds, 2);
}

static void keep_faster(dw_way *best, double *least, const dw_way *way, double seconds)
{
    if (seconds < *least) {
        *least = seconds;
        *best = *way;
    }
}

/* Of many columns, by estimates. */
static dw_way find_way(const cuda_device *d, const problem *p)
{
    double least = INFINITY, turning = 2 * (double)column_bytes(p) / 3e12;
    double weights = (double)dn_pattern_weights(p->pattern);
    dw_way best = { .library = library_can(p) }, way = { .tile = tile_of(d, p) };
    if (way.tile.resident)
        keep_faster(&best, &least, &way, way.tile.seconds);
    if (!is_apart(p))
        return best;
    problem last = *p;
    last.layout = DANAUS_BATCH_LAST;
    way = (dw_way){ .tile = tile_of(d, &last), .turned = 1 };
    if (way.tile.resident && weights <= MOST_TURNED_WEIGHTS)
        keep_faster(&best, &least, &way, turning + way.tile.seconds);
    way = (dw_way){ .library = library_can(p), .turned = 1 };
    if (way.library)
        keep_faster(&best, &least, &way, turning + library_seconds(p, 2.5e12, 1));
    way = (dw_way){ .library = way.library, .dense = 1 };
    if (way.library && weights * (double)p->pattern.d <= (double)MOST_PARTS)
        keep_faster(
            &best, &least, &way, library_seconds(p, 4.2e12, (double)p->pattern.d));
    return best;
}

/* The way of a problem, which the device remembers. */
static dw_way way_of(const gradient_run *g, const problem *p)
{
    cuda_device *d = g->d;
    if (g->o->batch < LEAST_BATCH)
        return (dw_way){ 0 };
    for (int i = 0; i < RECENT_DW; i++) {
        const cuda_dw *e = &d->dw[i];
        if (dn_pattern_equal(e->pattern, p->pattern) && e->dtype == p->dtype &&
            e->layout == p->layout && e->math == p->math)
            return e->way;
    }
    dw_way way = find_way(d, p);
    d->dw[d->dw_next] = (cuda_dw){ p->pattern, p->dtype, p->layout, p->math, way };
    d->dw_next = (d->dw_next + 1) % RECENT_DW;
    return way;
}

/* ---- slabs ---- */

typedef columns_of_slabs slabs;

/* Enough slabs to give every multiprocessor eight blocks, of whole steps. */
static slabs slabs_for(const gradient_run *g, int64_t tiles, int64_t size)
{
    int64_t wanted = parts_of(8 * (int64_t)g->d->gpu.facts.units, tiles);
    int64_t most = MOST_PARTS / size;
    wanted = wanted < MOST_SLABS ? wanted : MOST_SLABS;
    wanted = wanted < most ? wanted : most;
    int64_t width = parts_of(g->o->batch, wanted > 0 ? wanted : 1);
    width = parts_of(width, LEAST_SLAB) * LEAST_SLAB;
    return (slabs){ width, parts_of(g->o->batch, width) };
}

static int64_t dw_tiles(const problem *p)
{
    dw_tile t = tile_for(p);
    danaus_pattern q = p->pattern;
    return q.a * parts_of(q.b, t.br) * parts_of(q.c, t.bc) * parts_of(q.d, t.bj);
}

/* Columns of x and dy that cuBLAS gets at once, of whole slabs unless they are all: as many
   as may be turned. */
static int64_t columns_at_once(const gradient_run *g, const problem *p, int64_t width)
{
    int64_t most = is_apart(p) ? MOST_TURNED / column_bytes(p) : g->o->batch;
    most = most > width ? most / width * width : width;
    return most < g->o->batch ? most : g->o->batch;
}

/* Tensor cores are quick with few tiles and many columns; others need slabs to be busy. */
static slabs library_slabs(const gradient_run *g, const problem *p)
{
    danaus_pattern q = p->pattern;
    int64_t tiles = q.a * q.d * parts_of(q.b, 128) * parts_of(q.c, 128);
    int quick = danaus_dtype_size(p->dtype) == 2 || p->math == DANAUS_MATH_TF32;
    int64_t most = columns_at_once(g, p, LEAST_SLAB);
    slabs s = { most, 1 };
    if (!quick || tiles * 16 < g->d->gpu.facts.units)
        s = slabs_for(g, 4 * tiles, dn_pattern_weights(q));
    s.width = s.width < most ? s.width : most;
    s.count = parts_of(columns_at_once(g, p, s.width), s.width);
    return s;
}

/* Slabs that give every place on the device as much to do; more parts than that cost
   more than they bring. */
static slabs tensor_slabs(
    const gradient_run *g, const problem *p, const gpu_dw *t, int64_t batch)
{
    double weights = (double)dn_pattern_weights(p->pattern);
    double numbers = (double)column_bytes(p) / (double)danaus_dtype_size(p->dtype);
    int64_t tiles = dn_gpu_dw_tiles(t, p), places = g->d->gpu.facts.units * t->resident;
    int64_t most = parts_of(batch, LEAST_SLAB);
    slabs best = { batch, 1 };
    double least = 0;
    most = most < MOST_SLABS ? most : MOST_SLABS;
    for (int64_t n = 1; n <= most; n++) {
        int64_t width = parts_of(parts_of(batch, n), t->depth) * t->depth;
        double rounds = (double)parts_of(tiles * n, places);
        double work =
            rounds * (double)places * (double)(width + FILLING) / (double)tiles;
        double time = work * numbers * (double)danaus_dtype_size(p->dtype) +
                      (double)n * weights * 8;
        if ((double)n * weights > (double)MOST_PARTS && n > 1)
            break;
        if (n == 1 || time < least) {
            least = time;
            best = (slabs){ width, parts_of(batch, width) };
        }
    }
    return best;
}

/* Columns that are turned at once for a tile, about as many each time. */
static int64_t turned_at_once(const problem *p, int64_t batch)
{
    int64_t most = MOST_TURNED / column_bytes(p);
    int64_t times = parts_of(batch, most > LEAST_SLAB ? most : LEAST_SLAB);
    int64_t n = parts_of(parts_of(batch, times), LEAST_SLAB) * LEAST_SLAB;
    return n < batch ? n : batch;
}

static slabs turned_slabs(const gradient_run *g, const problem *p, const gpu_dw *t)
{
    int64_t batch = g->o->batch, n = turned_at_once(p, batch);
    slabs s = tensor_slabs(g, p, t, n);
    return (slabs){ s.width, batch / n * s.count + parts_of(batch % n, s.width) };
}

/* The columns of a part, and how many parts there are. */
static slabs dw_slabs(const gradient_run *g, int step)
{
    const problem *p = &g->steps[step].p;
    const dw_way *way = &g->way[step];
    problem dense = dense_problem(p);
    if (way->tile.resident)
        return way->turned ? turned_slabs(g, p, &way->tile)
                           : tensor_slabs(g, p, &way->tile, g->o->batch);
    if (way->library)
        return library_slabs(g, way->dense ? &dense : p);
    return slabs_for(g, dw_tiles(p), dn_pattern_weights(p->pattern));
}

static int64_t dbias_tiles(const problem *p)
{
    int64_t rows = dn_pattern_rows(p->pattern);
    return p->layout == DANAUS_BATCH_LAST ? rows : parts_of(rows, 128);
}

static slabs dbias_slabs(const gradient_run *g)
{
    const problem *p = &g->steps[g->count - 1].p;
    return slabs_for(g, dbias_tiles(p), dn_pattern_rows(p->pattern));
}

/* ---- launches ---- */

void dn_cuda_gradient_defines(const problem *p, text *to)
{
    dw_tile t = tile_for(p);
    dn_text(to, "#define TYPE_%s 1\n", danaus_dtype_name(p->dtype));
    dn_text(to, "#define LAST %d\n", p->layout == DANAUS_BATCH_LAST);
    dn_text(
        to,
        "#define BR %d\n#define BC %d\n#define BJ %d\n#define TR %d\n"
        "#define TC %d\n#define BS %d\n",
        t.br, t.bc, t.bj, t.tr, t.tc, t.bs);
}

static danaus_status load(
    const gradient_run *g, const char *name, const char *entry, const problem *p,
    cu_function *function)
{
    char defines[512];
    text to = { defines, sizeof defines, 0 };
    dn_cuda_gradient_defines(p, &to);
    return dn_cuda_load(g->d, name, defines, entry, function);
}

static danaus_status launch(
    const gradient_run *g, cu_function function, int64_t blocks, int threads,
    void **arguments)
{
    gpu_launch l = { .blocks = { blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS, 1, 1 },
                     .threads = threads };
    return dn_cuda_launch(g->d, function, &l, arguments);
}

/* Adds the parts up into a view of numbers of pattern p. dense: parts are as of one
   lane. */
static danaus_status reduce(
    const gradient_run *g, int64_t count, danaus_pattern p, const weights_view *to,
    int dense)
{
    cu_function function;
    int conjugate = to->conjugate;
    int64_t stride[4] = { to->s[0], to->s[1], to->s[2], to->s[3] };
    const void *data = to->data;
    void *arguments[] = { (void *)(uintptr_t)&g->parts,
                          &data,
                          &count,
                          &conjugate,
                          &p.a,
                          &p.b,
                          &p.c,
                          &p.d,
                          &stride[0],
                          &stride[1],
                          &stride[2],
                          &stride[3],
                          &dense };
    TRY(load(g, "ks_reduce.cu", "reduce", &g->steps->p, &function));
    return launch(g, function, parts_of(dn_pattern_weights(p), 128), 128, arguments);
}

/* Adds parts [a][d][b][c] of a factor up. */
static danaus_status reduce_by_lanes(
    const gradient_run *g, int64_t count, danaus_pattern q, weights_view to)
{
    danaus_pattern order = { q.a, q.d, q.b, q.c };
    weights_view view = to;
    view.s[1] = to.s[3], view.s[2] = to.s[1], view.s[3] = to.s[2];
    return reduce(g, count, order, &view, 0);
}

static const void *column_at(
    const problem *p, const void *v, int64_t size, int64_t column)
{
    int64_t step = p->layout == DANAUS_BATCH_LAST ? 1 : size;
    return (const char *)v + column * step * (int64_t)danaus_dtype_size(p->dtype);
}

static size_t turned_bytes(const problem *p, int64_t size, int64_t columns)
{
    return aligned(size * columns * (int64_t)danaus_dtype_size(p->dtype));
}

/* Of n columns, whose slabs are added to the parts unless they are the first ones. */
static danaus_status add_slabs(
    const gradient_run *g, const problem *p, slabs s, int64_t batch, int64_t n,
    const void *x, const void *dy, int add)
{
    danaus_pattern q = p->pattern;
    slabs whole = { s.width, n / s.width }, rest = { n % s.width, 1 };
    int64_t done = whole.count * s.width, weights = dn_pattern_weights(q);
    char *to = g->parts;
    if (whole.count)
        TRY(dn_cuda_weight_products(g->d, p, batch, whole, x, dy, to, add));
    if (!rest.width)
        return DANAUS_OK;
    to += whole.count * weights * (int64_t)danaus_dtype_size(dn_sum_type(p->dtype));
    return dn_cuda_weight_products(
        g->d, p, batch, rest, column_at(p, x, dn_pattern_cols(q), done),
        column_at(p, dy, dn_pattern_rows(q), done), to, add);
}

/* Turns n columns of x and dy from `first` on. */
static danaus_status turn_columns(
    const gradient_run *g, int step, const void *dy, int64_t first, int64_t n,
    void *turned[2])
{
    const problem *p = &g->steps[step].p;
    int64_t cols = dn_pattern_cols(p->pattern), rows = dn_pattern_rows(p->pattern);
    cu_function turn;
    turned[0] = g->work;
    turned[1] = (char *)g->work + turned_bytes(p, cols, n);
    TRY(load(g, "ks_turn.cu", "ks", p, &turn));
    TRY(dn_cuda_turn(
        g->d, turn, p->dtype, n, cols, column_at(p, g->x[step], cols, first),
        turned[0]));
    return dn_cuda_turn(
        g->d, turn, p->dtype, n, rows, column_at(p, dy, rows, first), turned[1]);
}

static danaus_status gradient_by_library(gradient_run *g, int step, const void *dy)
{
    const dw_way *way = &g->way[step];
    problem p = g->steps[step].p;
    danaus_pattern q = p.pattern;
    slabs s = dw_slabs(g, step);
    p = way->dense ? dense_problem(&p) : p;
    problem last = p;
    int64_t cols = dn_pattern_cols(q), rows = dn_pattern_rows(q), batch = g->o->batch;
    int64_t at_once = columns_at_once(g, &p, s.width);
    last.layout = DANAUS_BATCH_LAST;
    for (int64_t first = 0; first < batch; first += at_once) {
        int64_t n = batch - first < at_once ? batch - first : at_once;
        void *turned[2];
        if (is_apart(&p)) {
            TRY(turn_columns(g, step, dy, first, n, turned));
            TRY(add_slabs(g, &last, s, n, n, turned[0], turned[1], first > 0));
        } else
            TRY(add_slabs(
                g, &p, s, batch, n, column_at(&p, g->x[step], cols, first),
                column_at(&p, dy, rows, first), first > 0));
    }
    if (way->dense)
        return reduce(g, s.count, q, &g->o->dw[step], 1);
    return reduce_by_lanes(g, s.count, q, g->o->dw[step]);
}

static int is_aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

/* Parts of `batch` columns by the step's tile, which is for this layout. */
static danaus_status make_parts(
    const gradient_run *g, int step, const void *x, const void *dy, int64_t batch,
    int64_t width, void *parts)
{
    gpu_dw t = g->way[step].tile;
    problem p = g->steps[step].p;
    gpu_map maps[2];
    cu_tensor_map map[2];
    char defines[MOST_DEFINES];
    text to = { defines, sizeof defines, 0 };
    cu_function function;
    void *arguments[] = { &x, &dy, &parts, &batch, &width, &map[0], &map[1] };
    p.layout = t.last ? DANAUS_BATCH_LAST : DANAUS_BATCH_FIRST;
    t.boxes = t.boxes && is_aligned(x) && is_aligned(dy) && batch <= INT32_MAX;
    if (t.boxes) {
        dn_gpu_dw_maps(&t, &p, batch, maps);
        TRY(dn_cuda_map(g->d, p.dtype, x, &maps[0], &map[0]));
        TRY(dn_cuda_map(g->d, p.dtype, dy, &maps[1], &map[1]));
    }
    gpu_launch l = dn_gpu_dw_launch(&t, &p, parts_of(batch, width));
    dn_gpu_dw_defines(&t, &p, &to);
    TRY(dn_cuda_load(g->d, t.text, defines, "dw", &function));
    return dn_cuda_launch(g->d, function, &l, arguments);
}

static danaus_status make_turned_parts(
    const gradient_run *g, int step, const void *dy, int64_t width)
{
    const problem *p = &g->steps[step].p;
    int64_t batch = g->o->batch, at_once = turned_at_once(p, batch);
    float *parts = g->parts;
    for (int64_t first = 0; first < batch; first += at_once) {
        int64_t n = batch - first < at_once ? batch - first : at_once;
        void *turned[2];
        TRY(turn_columns(g, step, dy, first, n, turned));
        TRY(make_parts(g, step, turned[0], turned[1], n, width, parts));
        parts += parts_of(n, width) * dn_pattern_weights(p->pattern);
    }
    return DANAUS_OK;
}

static danaus_status gradient_by_tensors(gradient_run *g, int step, const void *dy)
{
    danaus_pattern q = g->steps[step].p.pattern;
    const dw_way *way = &g->way[step];
    slabs s = dw_slabs(g, step);
    if (way->turned)
        TRY(make_turned_parts(g, step, dy, s.width));
    else
        TRY(make_parts(g, step, g->x[step], dy, g->o->batch, s.width, g->parts));
    if (way->tile.last)
        return reduce_by_lanes(g, s.count, q, g->o->dw[step]);
    return reduce(g, s.count, q, &g->o->dw[step], 0);
}

static danaus_status gradient_by_vectors(gradient_run *g, int step, const void *dy)
{
    const problem *p = &g->steps[step].p;
    danaus_pattern q = p->pattern;
    dw_tile t = tile_for(p);
    slabs s = dw_slabs(g, step);
    cu_function function;
    int64_t batch = g->o->batch;
    void *arguments[] = { &g->x[step], &dy,  &g->parts, &batch, &s.width,
                          &q.a,        &q.b, &q.c,      &q.d };
    TRY(load(g, "ks_dw.cu", "dw", p, &function));
    TRY(launch(
        g, function, dw_tiles(p) * s.count, t.br / t.tr * (t.bc / t.tc) * t.bj,
        arguments));
    return reduce(g, s.count, q, &g->o->dw[step], 0);
}

static danaus_status weight_gradient(gradient_run *g, int step, const void *dy)
{
    const dw_way *way = &g->way[step];
    if (way->tile.resident)
        return gradient_by_tensors(g, step, dy);
    return way->library ? gradient_by_library(g, step, dy)
                        : gradient_by_vectors(g, step, dy);
}

static danaus_status bias_gradient(gradient_run *g)
{
    const problem *p = &g->steps[g->count - 1].p;
    slabs s = dbias_slabs(g);
    cu_function function;
    int64_t batch = g->o->batch, rows = dn_pattern_rows(p->pattern);
    const void *dy = g->o->dy;
    void *arguments[] = { &dy, &g->parts, &batch, &s.width, &rows };
    danaus_pattern line = { 1, rows, 1, 1 };
    weights_view to = dn_weights_view(g->o->dbias, dn_sum_type(p->dtype), line);
    TRY(load(g, "ks_dbias.cu", "dbias", p, &function));
    TRY(launch(g, function, dbias_tiles(p) * s.count, 128, arguments));
    return reduce(g, s.count, line, &to, 0);
}

/* ---- scratch ---- */

static int64_t dw_numbers(const gradient_run *g, int step)
{
    danaus_pattern q = g->steps[step].p.pattern;
    return dn_pattern_weights(q) * (g->way[step].dense ? q.d : 1) *
           dw_slabs(g, step).count;
}

static size_t parts_bytes(const gradient_run *g)
{
    int64_t cell = (int64_t)danaus_dtype_size(dn_sum_type(g->steps->p.dtype));
    int64_t most = 0;
    for (int i = 0; g->o->dw && i < g->count; i++)
        if (g->o->dw[i].data) {
            int64_t size = dw_numbers(g, i);
            most = size > most ? size : most;
        }
    if (g->o->dbias) {
        int64_t size =
            dn_pattern_rows(g->steps[g->count - 1].p.pattern) * dbias_slabs(g).count;
        most = size > most ? size : most;
    }
    return aligned(most * cell);
}

/* Of x and dy as they are turned for a weight gradient. */
static size_t dw_turned_bytes(const gradient_run *g, int step)
{
    const problem *p = &g->steps[step].p;
    const dw_way *way = &g->way[step];
    if (!way->turned)
        return 0;
    int64_t n = way->tile.resident ? turned_at_once(p, g->o->batch)
                                   : columns_at_once(g, p, dw_slabs(g, step).width);
    return turned_bytes(p, dn_pattern_cols(p->pattern), n) +
           turned_bytes(p, dn_pattern_rows(p->pattern), n);
}

static size_t work_bytes(const gradient_run *g)
{
    size_t most = 0;
    for (int i = 0; i < g->count; i++) {
        size_t there =
            i < g->highest ? dn_cuda_work_bytes(&g->steps[i], g->o->batch) : 0;
        size_t back =
            i >= g->lowest ? dn_cuda_work_bytes(&g->adjoint[i], g->o->batch) : 0;
        size_t turned = dw_turned_bytes(g, i);
        most = there > most ? there : most;
        most = back > most ? back : most;
        most = turned > most ? turned : most;
    }
    return most;
}

/* Lays operands one after another from `memory`; returns all their bytes. */
static size_t lay(gradient_run *g, char *memory)
{
    int64_t cell = (int64_t)danaus_dtype_size(g->steps->p.dtype), widest = 0;
    size_t used = 0;
    g->x[0] = g->o->x;
    for (int i = 1; i < g->count; i++) {
        int64_t bytes = dn_pattern_cols(g->steps[i].p.pattern) * g->o->batch * cell;
        widest = bytes > widest ? bytes : widest;
        g->x[i] = memory ? memory + used : NULL;
        if (i <= g->highest)
            used += aligned(bytes);
    }
    for (int i = 0; i < 2; i++) {
        g->dy[i] = memory ? memory + used : NULL;
        if (i + g->lowest + 1 < g->count)
            used += aligned(widest);
    }
    g->parts = memory ? memory + used : NULL;
    used += parts_bytes(g);
    g->work = memory ? memory + used : NULL;
    return used + work_bytes(g);
}

static danaus_status run(gradient_run *g)
{
    const ks_gradient_operands *o = g->o;
    void *scratch;
    TRY(dn_cuda_scratch(g->d, lay(g, NULL), &scratch));
    lay(g, scratch);
    for (int i = 0; i < g->highest; i++)
        TRY(dn_cuda_step(
            g->d, &g->steps[i], o->packed[i], NULL, 0, o->batch, g->x[i],
            (void *)(uintptr_t)g->x[i + 1], g->work));
    if (o->dbias)
        TRY(bias_gradient(g));
    const void *dy = o->dy;
    for (int i = g->count - 1; i >= g->lowest; i--) {
        if (o->dw && o->dw[i].data)
            TRY(weight_gradient(g, i, dy));
        void *back = i > 0 ? g->dy[(g->count - 1 - i) % 2] : o->dx;
        if (i > g->lowest || (i == 0 && o->dx))
            TRY(dn_cuda_step(
                g->d, &g->adjoint[i], o->packed_adjoint[i], NULL, 0, o->batch, dy, back,
                g->work));
        dy = back;
    }
    return DANAUS_OK;
}

static danaus_status run_again(cuda_device *d, void *arg)
{
    (void)d;
    return run(arg);
}

static danaus_status run_or_replay(gradient_run *g)
{
    const ks_gradient_operands *o = g->o;
    cuda_key key;
    size_t count = (size_t)g->count;
    const void *operands[] = { o->x, o->dy, o->dx, o->dbias };
    int64_t numbers[] = { g->count, o->batch, o->dw != NULL };
    key.bytes = 0, key.is_long = 0;
    dn_key_add(&key, operands, sizeof operands);
    dn_key_add(&key, numbers, sizeof numbers);
    dn_key_add(&key, o->packed, count * sizeof *o->packed);
    dn_key_add(&key, o->packed_adjoint, count * sizeof *o->packed_adjoint);
    dn_key_add(&key, g->steps, count * sizeof *g->steps);
    dn_key_add(&key, g->adjoint, count * sizeof *g->adjoint);
    for (int i = 0; o->dw && i < g->count; i++) {
        const weights_view *v = &o->dw[i];
        dn_key_add(&key, &v->data, sizeof v->data);
        dn_key_add(&key, v->s, sizeof v->s);
        dn_key_add(&key, &v->conjugate, sizeof v->conjugate);
    }
    return dn_cuda_replay(g->d, &key, 2, run_again, g);
}

danaus_status dn_cuda_ks_gradient(
    danaus_device *dev, const ks_step *steps, const ks_step *adjoint, int count,
    const ks_gradient_operands *o)
{
    gradient_run g = {
        .d = (cuda_device *)dev,
        .steps = steps,
        .adjoint = adjoint,
        .count = count,
        .o = o,
        .lowest = o->dx ? 0 : count,
        .highest = -1,
    };
    for (int i = 0; o->dw && i < count; i++)
        if (o->dw[i].data) {
            g.lowest = g.lowest < i ? g.lowest : i;
            g.highest = i;
            g.way[i] = way_of(&g, &steps[i].p);
        }
    if (o->dbias && g.lowest == count)
        g.lowest = count - 1;
    if (g.lowest == count)
        return DANAUS_OK;
    int pushed;
    TRY(dn_cuda_enter(g.d, &pushed));
    danaus_status status = run_or_replay(&g);
    dn_cuda_leave(g.d, pushed);
    return status;
}
