/* Making the weight gradient of a factor as planned: parts dw[slab] of sums over the
   columns of a slab, by one of three ways, and their sum in the order of slabs. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/gradient.h"

#include "base/dtype.h"
#include "base/status.h"
#include "math/pattern.h"

#include <string.h>

#define MOST_BLOCKS ((int64_t)1 << 30)
/* The parts of a number are shared by threads that have more than so many, if threads are
   few. */
#define ENOUGH_SLABS   4
#define MOST_WAYS      16
#define ENOUGH_THREADS ((int64_t)1 << 17)
#define VECTOR         16                 /* bytes */
#define MOST_NARROW    ((int64_t)1 << 30) /* numbers that are counted in 32 bits */
/* Of a tile of ks_turn_lanes.cu, at most; 16 bytes are a piece. */
#define TURNED_LANES  64
#define TURNED_PIECES (32 * (TURNED_LANES + 1))
/* Of a tile of ks_reduce_lanes.cu: lanes, at most, and numbers. */
#define REDUCED_LANES 32
#define REDUCED_TILE  1024
#define TILE_THREADS  256 /* of these two texts */

/* One gradient that is made. */
typedef struct dw_run {
    cuda_device *d;
    const dw_plan *plan;
    const void *x, *dy;
    void *parts, *work;
    const weights_view *to;
} dw_run;

/* ---- texts and launches ---- */

/* A tile of ks_turn_lanes.cu: its lanes, of which larger d should be a multiple, and units,
   of 16 bytes of each lane. */
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

/* Lanes of a tile of ks_reduce_lanes.cu. */
static int64_t reduced_lanes(int64_t d)
{
    int64_t lanes = 1;
    while (lanes < d && lanes < REDUCED_LANES)
        lanes *= 2;
    return lanes;
}

void dn_cuda_gradient_defines(const char *name, const problem *p, text *to)
{
    dw_tile t = dn_cuda_dw_tile(p);
    int is_dw = !strcmp(name, "ks_dw.cu");
    dn_text(to, "#define TYPE_%s 1\n", danaus_dtype_name(p->dtype));
    if (!strcmp(name, "ks_reduce.cu"))
        dn_text(to, "#define WIDE %d\n", dn_pattern_weights(p->pattern) > MOST_NARROW);
    if (!strcmp(name, "ks_reduce_lanes.cu"))
        dn_text(to, "#define WIDE %d\n", (int)reduced_lanes(p->pattern.d));
    if (!strcmp(name, "ks_turn_lanes.cu"))
        dn_text(
            to, "#define LANES %lld\n#define WIDE %d\n#define UNITS %d\n",
            (long long)p->pattern.d, (int)turned_lanes(p->pattern.d),
            (int)turned_units(p->pattern.d));
    if (is_dw || !strcmp(name, "ks_dbias.cu"))
        dn_text(to, "#define LAST %d\n", p->layout == DANAUS_BATCH_LAST);
    if (is_dw)
        dn_text(
            to,
            "#define BR %d\n#define BC %d\n#define BJ %d\n#define TR %d\n"
            "#define TC %d\n#define BS %d\n",
            t.br, t.bc, t.bj, t.tr, t.tc, t.bs);
}

danaus_status dn_cuda_gradient_function(
    cuda_device *d, const char *name, const char *entry, const problem *p,
    cu_function *function)
{
    char defines[512];
    text to = { defines, sizeof defines, 0 };
    dn_cuda_gradient_defines(name, p, &to);
    return dn_cuda_load(d, name, defines, entry, function);
}

danaus_status dn_cuda_launch_line(
    cuda_device *d, cu_function function, int64_t blocks, int threads, void **arguments)
{
    gpu_launch l = { .blocks = { blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS, 1, 1 },
                     .threads = threads };
    return dn_cuda_launch(d, function, &l, arguments);
}

danaus_status dn_cuda_reduce(
    cuda_device *d, const problem *p, const void *parts, int64_t count,
    danaus_pattern q, const weights_view *to, int dense)
{
    cu_function function;
    int64_t numbers = dn_pattern_weights(q);
    int64_t cell = (int64_t)danaus_dtype_size(dn_sum_type(p->dtype));
    int conjugate = to->conjugate, ways = 1;
    int per = dense || numbers * cell % VECTOR ? 1 : (int)(VECTOR / cell);
    int64_t threads = numbers / per;
    int64_t stride[4] = { to->s[0], to->s[1], to->s[2], to->s[3] };
    const void *data = to->data;
    void *arguments[] = { &parts,     &data,      &count,     &per,       &ways,
                          &conjugate, &q.a,       &q.b,       &q.c,       &q.d,
                          &stride[0], &stride[1], &stride[2], &stride[3], &dense };
    while (ways < MOST_WAYS && count > ways * ENOUGH_SLABS &&
           threads < ENOUGH_THREADS) {
        ways *= 2;
        threads *= 2;
    }
    TRY(dn_cuda_gradient_function(d, "ks_reduce.cu", "reduce", p, &function));
    return dn_cuda_launch_line(d, function, dn_gpu_parts(threads, 128), 128, arguments);
}

/* Whether parts are [a][d][b][c], and not [a][b][c][d]. */
static int has_lanes_first(const dw_way *way)
{
    return way->tile.resident ? way->tile.last || way->turned
                              : way->library && !way->dense;
}

/* Whether those are added up and turned in tiles: of many numbers, or few slabs. */
static int turns_parts(const dw_plan *plan)
{
    danaus_pattern q = plan->p.pattern;
    int is_large = dn_pattern_weights(q) >= ENOUGH_THREADS;
    return has_lanes_first(&plan->way) && q.d > 1 && q.b * q.c <= MOST_NARROW &&
           (is_large || plan->slabs.count <= ENOUGH_SLABS);
}

static danaus_status turn_parts(const dw_run *r)
{
    const problem *p = &r->plan->p;
    danaus_pattern q = p->pattern;
    int64_t lanes = reduced_lanes(q.d), count = r->plan->slabs.count;
    int64_t tiles =
        q.a * dn_gpu_parts(q.d, lanes) * dn_gpu_parts(q.b * q.c, REDUCED_TILE / lanes);
    const void *parts = r->parts, *data = r->to->data;
    int64_t stride[4] = { r->to->s[0], r->to->s[1], r->to->s[2], r->to->s[3] };
    void *arguments[] = { &parts, &data,      &count,     &q.a,       &q.b,      &q.c,
                          &q.d,   &stride[0], &stride[1], &stride[2], &stride[3] };
    cu_function function;
    TRY(dn_cuda_gradient_function(r->d, "ks_reduce_lanes.cu", "reduce", p, &function));
    return dn_cuda_launch_line(r->d, function, tiles, TILE_THREADS, arguments);
}

static danaus_status reduce(const dw_run *r)
{
    const dw_plan *plan = r->plan;
    danaus_pattern q = plan->p.pattern;
    weights_view view = *r->to;
    if (turns_parts(plan))
        return turn_parts(r);
    if (has_lanes_first(&plan->way)) {
        q = (danaus_pattern){ q.a, q.d, q.b, q.c };
        view.s[1] = r->to->s[3], view.s[2] = r->to->s[1], view.s[3] = r->to->s[2];
    }
    return dn_cuda_reduce(
        r->d, &plan->p, r->parts, plan->slabs.count, q, &view, plan->way.dense);
}

/* ---- columns ---- */

static const void *column_at(
    const problem *p, const void *v, int64_t size, int64_t column)
{
    int64_t step = p->layout == DANAUS_BATCH_LAST ? 1 : size;
    return (const char *)v + column * step * (int64_t)danaus_dtype_size(p->dtype);
}

/* Sets the lanes of n columns of v, of blocks of `size` rows, apart. */
static danaus_status turn_lanes(
    const dw_run *r, const void *v, int64_t n, int64_t size, void *to)
{
    const problem *p = &r->plan->p;
    danaus_pattern q = p->pattern;
    int64_t per = VECTOR / (int64_t)danaus_dtype_size(p->dtype), count = n * q.a;
    int64_t units = dn_gpu_parts(count * size, per);
    int64_t tiles =
        dn_gpu_parts(units, turned_units(q.d)) * dn_gpu_parts(q.d, turned_lanes(q.d));
    void *arguments[] = { &v, &to, &count, &size };
    cu_function function;
    TRY(dn_cuda_gradient_function(r->d, "ks_turn_lanes.cu", "turn", p, &function));
    return dn_cuda_launch_line(r->d, function, tiles, TILE_THREADS, arguments);
}

/* Of n columns, whose slabs are added to the parts unless they are the first ones. */
typedef danaus_status make_columns(
    const dw_run *r, const problem *p, const void *x, const void *dy, int64_t n,
    int add);

/* All columns, as many at once as are turned. */
static danaus_status make_all(const dw_run *r, make_columns *make)
{
    const dw_plan *plan = r->plan;
    problem p = plan->p, made = dn_cuda_made_problem(&plan->way, &p);
    danaus_pattern q = p.pattern;
    int64_t cols = dn_pattern_cols(q), rows = dn_pattern_rows(q);
    int64_t cell = (int64_t)danaus_dtype_size(p.dtype), n = plan->at_once;
    if (!plan->way.turned)
        return make(r, &made, r->x, r->dy, plan->batch, 0);
    void *x = r->work, *dy = (char *)r->work + dn_cuda_aligned(cols * n * cell);
    for (int64_t first = 0; first < plan->batch; first += n) {
        n = plan->batch - first < n ? plan->batch - first : n;
        TRY(turn_lanes(r, column_at(&p, r->x, cols, first), n, q.c, x));
        TRY(turn_lanes(r, column_at(&p, r->dy, rows, first), n, q.b, dy));
        TRY(make(r, &made, x, dy, n, first > 0));
    }
    return DANAUS_OK;
}

/* ---- cuBLAS ---- */

static danaus_status make_by_library(
    const dw_run *r, const problem *p, const void *x, const void *dy, int64_t n,
    int add)
{
    danaus_pattern q = p->pattern;
    int64_t width = r->plan->slabs.width, weights = dn_pattern_weights(q);
    columns_of_slabs whole = { width, n / width }, rest = { n % width, 1 };
    int64_t done = whole.count * width;
    char *to = r->parts;
    if (whole.count)
        TRY(dn_cuda_weight_products(r->d, p, n, whole, x, dy, to, add));
    if (!rest.width)
        return DANAUS_OK;
    to += whole.count * weights * (int64_t)danaus_dtype_size(dn_sum_type(p->dtype));
    return dn_cuda_weight_products(
        r->d, p, n, rest, column_at(p, x, dn_pattern_cols(q), done),
        column_at(p, dy, dn_pattern_rows(q), done), to, add);
}

/* ---- tensor cores ---- */

static int is_aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

/* The copy engine fetches nothing before. */
static const gpu_facts without_boxes = { .arch = 80 };

static danaus_status make_by_tensors(
    const dw_run *r, const problem *p, const void *x, const void *dy, int64_t batch,
    int add)
{
    gpu_dw t = r->plan->way.tile;
    int64_t width = r->plan->slabs.width;
    gpu_map maps[2];
    cu_tensor_map map[2];
    char defines[MOST_DEFINES];
    text to = { defines, sizeof defines, 0 };
    cu_function function;
    void *parts = r->parts;
    void *arguments[] = { &x, &dy, &parts, &batch, &width, &add, &map[0], &map[1] };
    t.boxes = t.boxes && is_aligned(x) && is_aligned(dy) && batch <= INT32_MAX;
    if (t.needs_boxes && !t.boxes)
        t = dn_gpu_dw_for(&without_boxes, p);
    if (t.boxes) {
        dn_gpu_dw_maps(&t, p, batch, maps);
        TRY(dn_cuda_map(r->d, p->dtype, x, &maps[0], &map[0]));
        TRY(dn_cuda_map(r->d, p->dtype, dy, &maps[1], &map[1]));
    }
    gpu_launch l = dn_gpu_dw_launch(&t, p, dn_gpu_parts(batch, width));
    dn_gpu_dw_defines(&t, p, &to);
    TRY(dn_cuda_load(r->d, t.text, defines, "dw", &function));
    return dn_cuda_launch(r->d, function, &l, arguments);
}

/* ---- any GPU ---- */

static danaus_status make_by_vectors(
    const dw_run *r, const problem *p, const void *x, const void *dy, int64_t batch,
    int add)
{
    (void)add; /* nothing is turned */
    danaus_pattern q = p->pattern;
    dw_tile t = dn_cuda_dw_tile(p);
    cu_function function;
    void *parts = r->parts;
    int64_t width = r->plan->slabs.width;
    void *arguments[] = { &x, &dy, &parts, &batch, &width, &q.a, &q.b, &q.c, &q.d };
    TRY(dn_cuda_gradient_function(r->d, "ks_dw.cu", "dw", p, &function));
    return dn_cuda_launch_line(
        r->d, function, dn_cuda_dw_tiles(p) * r->plan->slabs.count,
        t.br / t.tr * (t.bc / t.tc) * t.bj, arguments);
}

danaus_status dn_cuda_dw(
    cuda_device *d, const dw_plan *plan, const void *x, const void *dy, void *parts,
    void *work, const weights_view *to)
{
    dw_run r = { d, plan, x, dy, parts, work, to };
    TRY(make_all(
        &r, plan->way.tile.resident ? make_by_tensors
            : plan->way.library     ? make_by_library
                                    : make_by_vectors));
    return reduce(&r);
}

/* ---- what has to be compiled ---- */

static void put_text(
    gradient_text *to, const char *name, const char *entry, const problem *p)
{
    text t = { to->defines, sizeof to->defines, 0 };
    to->name = name;
    to->entry = entry;
    dn_cuda_gradient_defines(name, p, &t);
}

int dn_cuda_gradient_texts(
    cuda_device *d, const problem *p, gradient_text to[GRADIENT_TEXTS])
{
    dw_plan plan = dn_cuda_dw_plan(d, p, p->batch);
    dw_way way = plan.way;
    int count = 0;
    if (way.tile.resident) {
        gradient_text *own = &to[count++];
        text t = { own->defines, sizeof own->defines, 0 };
        problem made = dn_cuda_made_problem(&way, p);
        own->name = way.tile.text;
        own->entry = "dw";
        dn_gpu_dw_defines(&way.tile, &made, &t);
    } else if (!way.library)
        put_text(&to[count++], "ks_dw.cu", "dw", p);
    if (way.turned)
        put_text(&to[count++], "ks_turn_lanes.cu", "turn", p);
    put_text(&to[count++], "ks_dbias.cu", "dbias", p);
    put_text(&to[count++], "ks_reduce.cu", "reduce", p);
    if (turns_parts(&plan))
        put_text(&to[count++], "ks_reduce_lanes.cu", "reduce", p);
    return count;
}
