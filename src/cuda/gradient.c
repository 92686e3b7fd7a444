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

#define ALIGNMENT   256
#define MOST_BLOCKS ((int64_t)1 << 30)
#define MOST_TILES  ((int64_t)1 << 20) /* of a slab, on tensor cores */
/* A slab has at least so many columns, and there are at most so many slabs. */
#define LEAST_SLAB 256
#define MOST_SLABS 128
/* Parts of one factor's gradient, at most, unless there is one slab. */
#define MOST_PARTS ((int64_t)64 << 20)
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
    void *parts, *work;              /* work: of a step */
    gpu_dw tile[DANAUS_MAX_FACTORS]; /* on tensor cores; resident 0: another way */
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

/* Is a weight gradient made on tensor cores by texts of ours? Of 16-bit numbers that are
   matrices where they lie cuBLAS makes products, if those fill its tiles. */
static int by_tensors(const gradient_run *g, const problem *p)
{
    danaus_pattern q = p->pattern;
    int64_t small = q.b < q.c ? q.b : q.c, large = q.b < q.c ? q.c : q.b;
    int narrow = danaus_dtype_size(p->dtype) == 2 && p->layout == DANAUS_BATCH_FIRST &&
                 (small < 64 || (small == 64 && large > 64));
    int simple = (p->layout == DANAUS_BATCH_LAST || q.d == 1) && !narrow;
    int exact = p->dtype == DANAUS_F32 && p->math != DANAUS_MATH_TF32;
    return g->d->gpu.facts.arch == 90 && danaus_dtype_size(p->dtype) <= 4 &&
           (!simple || exact) && q.b >= LEAST_SIDE && q.c >= LEAST_SIDE &&
           g->o->batch >= LEAST_BATCH;
}

/* Its tile, which the device remembers; of no blocks if another makes the gradient. */
static gpu_dw tensor_tile(const gradient_run *g, const problem *p)
{
    cuda_device *d = g->d;
    if (!by_tensors(g, p))
        return (gpu_dw){ 0 };
    for (int i = 0; i < RECENT_DW; i++) {
        const cuda_dw *e = &d->dw[i];
        if (dn_pattern_equal(e->pattern, p->pattern) && e->dtype == p->dtype &&
            e->layout == p->layout && e->math == p->math)
            return e->tile;
    }
    gpu_dw tile = dn_gpu_dw_for(&d->gpu.facts, p);
    if (tile.resident && dn_gpu_dw_tiles(&tile, p) > MOST_TILES)
        tile.resident = 0;
    d->dw[d->dw_next] = (cuda_dw){ p->pattern, p->dtype, p->layout, p->math, tile };
    d->dw_next = (d->dw_next + 1) % RECENT_DW;
    return tile;
}

/* Whether cuBLAS makes a weight gradient. */
static int by_library(const problem *p, int64_t batch)
{
    danaus_pattern q = p->pattern;
    return !dn_is_complex(p->dtype) && q.b * q.c >= LEAST_BLOCK &&
           batch >= LEAST_BATCH && dn_cuda_find_blas() == DANAUS_OK;
}

/* For which x and dy must be turned. */
static int is_apart(const problem *p)
{
    return p->layout == DANAUS_BATCH_FIRST && p->pattern.d > 1;
}

static int64_t column_bytes(const problem *p)
{
    danaus_pattern q = p->pattern;
    return (dn_pattern_rows(q) + dn_pattern_cols(q)) *
           (int64_t)danaus_dtype_size(p->dtype);
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
static slabs tensor_slabs(const gradient_run *g, const problem *p, const gpu_dw *t)
{
    double weights = (double)dn_pattern_weights(p->pattern);
    double numbers = (double)column_bytes(p) / (double)danaus_dtype_size(p->dtype);
    int64_t tiles = dn_gpu_dw_tiles(t, p), places = g->d->gpu.facts.units * t->resident;
    int64_t most = parts_of(g->o->batch, LEAST_SLAB);
    slabs best = { g->o->batch, 1 };
    double least = 0;
    most = most < MOST_SLABS ? most : MOST_SLABS;
    for (int64_t n = 1; n <= most; n++) {
        int64_t width = parts_of(parts_of(g->o->batch, n), t->depth) * t->depth;
        double rounds = (double)parts_of(tiles * n, places);
        double work =
            rounds * (double)places * (double)(width + FILLING) / (double)tiles;
        double time = work * numbers * (double)danaus_dtype_size(p->dtype) +
                      (double)n * weights * 8;
        if ((double)n * weights > (double)MOST_PARTS && n > 1)
            break;
        if (n == 1 || time < least) {
            least = time;
            best = (slabs){ width, parts_of(g->o->batch, width) };
        }
    }
    return best;
}

/* The columns of a part, and how many parts there are. */
static slabs dw_slabs(const gradient_run *g, int step)
{
    const problem *p = &g->steps[step].p;
    if (g->tile[step].resident)
        return tensor_slabs(g, p, &g->tile[step]);
    if (by_library(p, g->o->batch))
        return library_slabs(g, p);
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

/* Adds the parts up into a view of numbers of pattern p. */
static danaus_status reduce(
    const gradient_run *g, int64_t count, danaus_pattern p, const weights_view *to)
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
                          &stride[3] };
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
    return reduce(g, count, order, &view);
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

static danaus_status gradient_by_library(gradient_run *g, int step, const void *dy)
{
    problem p = g->steps[step].p, last = p;
    danaus_pattern q = p.pattern;
    slabs s = dw_slabs(g, step);
    int64_t cols = dn_pattern_cols(q), rows = dn_pattern_rows(q), batch = g->o->batch;
    int64_t at_once = columns_at_once(g, &p, s.width);
    last.layout = DANAUS_BATCH_LAST;
    for (int64_t first = 0; first < batch; first += at_once) {
        int64_t n = batch - first < at_once ? batch - first : at_once;
        const void *x = column_at(&p, g->x[step], cols, first);
        const void *y = column_at(&p, dy, rows, first);
        if (is_apart(&p)) {
            void *turned = g->work;
            void *beside = (char *)turned + turned_bytes(&p, cols, n);
            cu_function turn;
            TRY(load(g, "ks_turn.cu", "ks", &p, &turn));
            TRY(dn_cuda_turn(g->d, turn, n, cols, x, turned));
            TRY(dn_cuda_turn(g->d, turn, n, rows, y, beside));
            TRY(add_slabs(g, &last, s, n, n, turned, beside, first > 0));
        } else
            TRY(add_slabs(g, &p, s, batch, n, x, y, first > 0));
    }
    return reduce_by_lanes(g, s.count, q, g->o->dw[step]);
}

static danaus_status gradient_by_tensors(gradient_run *g, int step, const void *dy)
{
    const problem *p = &g->steps[step].p;
    const gpu_dw *t = &g->tile[step];
    danaus_pattern q = p->pattern;
    slabs s = dw_slabs(g, step);
    char defines[MOST_DEFINES];
    text to = { defines, sizeof defines, 0 };
    cu_function function;
    int64_t batch = g->o->batch;
    void *arguments[] = { &g->x[step], &dy, &g->parts, &batch, &s.width };
    gpu_launch l = dn_gpu_dw_launch(t, p, s.count);
    dn_gpu_dw_defines(t, p, &to);
    TRY(dn_cuda_load(g->d, t->text, defines, "dw", &function));
    TRY(dn_cuda_launch(g->d, function, &l, arguments));
    weights_view view = g->o->dw[step];
    if (p->layout == DANAUS_BATCH_FIRST)
        return reduce(g, s.count, q, &view);
    return reduce_by_lanes(g, s.count, q, view);
}

static danaus_status weight_gradient(gradient_run *g, int step, const void *dy)
{
    const problem *p = &g->steps[step].p;
    danaus_pattern q = p->pattern;
    if (g->tile[step].resident)
        return gradient_by_tensors(g, step, dy);
    if (by_library(p, g->o->batch))
        return gradient_by_library(g, step, dy);
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
    return reduce(g, s.count, q, &g->o->dw[step]);
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
    return reduce(g, s.count, line, &to);
}

/* ---- scratch ---- */

static size_t parts_bytes(const gradient_run *g)
{
    int64_t cell = (int64_t)danaus_dtype_size(dn_sum_type(g->steps->p.dtype));
    int64_t most = 0;
    for (int i = 0; g->o->dw && i < g->count; i++)
        if (g->o->dw[i].data) {
            int64_t size =
                dn_pattern_weights(g->steps[i].p.pattern) * dw_slabs(g, i).count;
            most = size > most ? size : most;
        }
    if (g->o->dbias) {
        int64_t size =
            dn_pattern_rows(g->steps[g->count - 1].p.pattern) * dbias_slabs(g).count;
        most = size > most ? size : most;
    }
    return aligned(most * cell);
}

static size_t work_bytes(const gradient_run *g)
{
    size_t most = 0;
    for (int i = 0; i < g->count; i++) {
        size_t there =
            i < g->highest ? dn_cuda_work_bytes(&g->steps[i], g->o->batch) : 0;
        size_t back =
            i >= g->lowest ? dn_cuda_work_bytes(&g->adjoint[i], g->o->batch) : 0;
        most = there > most ? there : most;
        most = back > most ? back : most;
        const problem *p = &g->steps[i].p;
        if (g->o->dw && g->o->dw[i].data && is_apart(p) && !g->tile[i].resident &&
            by_library(p, g->o->batch)) {
            int64_t n = columns_at_once(g, p, dw_slabs(g, i).width);
            size_t turned = turned_bytes(p, dn_pattern_cols(p->pattern), n) +
                            turned_bytes(p, dn_pattern_rows(p->pattern), n);
            most = turned > most ? turned : most;
        }
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
            g.tile[i] = tensor_tile(&g, &steps[i].p);
        }
    if (o->dbias && g.lowest == count)
        g.lowest = count - 1;
    if (g.lowest == count)
        return DANAUS_OK;
    int pushed;
    TRY(dn_cuda_enter(g.d, &pushed));
    danaus_status status = run(&g);
    dn_cuda_leave(g.d, pushed);
    return status;
}
