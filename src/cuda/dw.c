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

/* One gradient that is made. */
typedef struct dw_run {
    cuda_device *d;
    const dw_plan *plan;
    const void *x, *dy;
    void *parts, *work;
    const weights_view *to;
} dw_run;

/* ---- texts and launches ---- */

void dn_cuda_gradient_defines(const char *name, const problem *p, text *to)
{
    dw_tile t = dn_cuda_dw_tile(p);
    int is_dw = !strcmp(name, "ks_dw.cu");
    dn_text(to, "#define TYPE_%s 1\n", danaus_dtype_name(p->dtype));
    if (!strcmp(name, "ks_reduce.cu"))
        dn_text(to, "#define WIDE %d\n", dn_pattern_weights(p->pattern) > MOST_NARROW);
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

static danaus_status reduce(const dw_run *r)
{
    const dw_plan *plan = r->plan;
    return dn_cuda_reduce(
        r->d, &plan->p, r->parts, plan->slabs.count, plan->p.pattern, r->to,
        plan->way.dense);
}

/* Adds parts [a][d][b][c] of a factor up. */
static danaus_status reduce_by_lanes(const dw_run *r)
{
    danaus_pattern q = r->plan->p.pattern, order = { q.a, q.d, q.b, q.c };
    weights_view view = *r->to;
    view.s[1] = r->to->s[3], view.s[2] = r->to->s[1], view.s[3] = r->to->s[2];
    return dn_cuda_reduce(
        r->d, &r->plan->p, r->parts, r->plan->slabs.count, order, &view, 0);
}

/* ---- columns ---- */

static const void *column_at(
    const problem *p, const void *v, int64_t size, int64_t column)
{
    int64_t step = p->layout == DANAUS_BATCH_LAST ? 1 : size;
    return (const char *)v + column * step * (int64_t)danaus_dtype_size(p->dtype);
}

/* Turns n columns of x and dy from `first` on. */
static danaus_status turn_columns(
    const dw_run *r, int64_t first, int64_t n, void *turned[2])
{
    const problem *p = &r->plan->p;
    int64_t cols = dn_pattern_cols(p->pattern), rows = dn_pattern_rows(p->pattern);
    int64_t cell = (int64_t)danaus_dtype_size(p->dtype);
    cu_function turn;
    turned[0] = r->work;
    turned[1] = (char *)r->work + dn_cuda_aligned(cols * n * cell);
    TRY(dn_cuda_gradient_function(r->d, "ks_turn.cu", "ks", p, &turn));
    TRY(dn_cuda_turn(
        r->d, turn, p->dtype, n, cols, column_at(p, r->x, cols, first), turned[0]));
    return dn_cuda_turn(
        r->d, turn, p->dtype, n, rows, column_at(p, r->dy, rows, first), turned[1]);
}

/* ---- cuBLAS ---- */

/* Of n columns, whose slabs are added to the parts unless they are the first ones. */
static danaus_status add_slabs(
    const dw_run *r, const problem *p, int64_t batch, int64_t n, const void *x,
    const void *dy, int add)
{
    danaus_pattern q = p->pattern;
    int64_t width = r->plan->slabs.width, weights = dn_pattern_weights(q);
    columns_of_slabs whole = { width, n / width }, rest = { n % width, 1 };
    int64_t done = whole.count * width;
    char *to = r->parts;
    if (whole.count)
        TRY(dn_cuda_weight_products(r->d, p, batch, whole, x, dy, to, add));
    if (!rest.width)
        return DANAUS_OK;
    to += whole.count * weights * (int64_t)danaus_dtype_size(dn_sum_type(p->dtype));
    return dn_cuda_weight_products(
        r->d, p, batch, rest, column_at(p, x, dn_pattern_cols(q), done),
        column_at(p, dy, dn_pattern_rows(q), done), to, add);
}

static danaus_status make_by_library(const dw_run *r)
{
    const dw_plan *plan = r->plan;
    problem p = plan->way.dense ? dn_cuda_dense_problem(&plan->p) : plan->p, last = p;
    int64_t cols = dn_pattern_cols(p.pattern), rows = dn_pattern_rows(p.pattern);
    int64_t batch = plan->batch;
    last.layout = DANAUS_BATCH_LAST;
    for (int64_t first = 0; first < batch; first += plan->at_once) {
        int64_t left = batch - first, n = left < plan->at_once ? left : plan->at_once;
        void *turned[2];
        if (dn_cuda_is_apart(&p)) {
            TRY(turn_columns(r, first, n, turned));
            TRY(add_slabs(r, &last, n, n, turned[0], turned[1], first > 0));
        } else
            TRY(add_slabs(
                r, &p, batch, n, column_at(&p, r->x, cols, first),
                column_at(&p, r->dy, rows, first), first > 0));
    }
    return plan->way.dense ? reduce(r) : reduce_by_lanes(r);
}

/* ---- tensor cores ---- */

/* As it is once x and dy are turned, if they are. */
static problem tile_problem(const gpu_dw *tile, const problem *p)
{
    problem own = *p;
    own.layout = tile->last ? DANAUS_BATCH_LAST : DANAUS_BATCH_FIRST;
    return own;
}

static int is_aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

/* Parts of `batch` columns by the tile, which is for this layout. */
static danaus_status make_parts(
    const dw_run *r, const void *x, const void *dy, int64_t batch, void *parts)
{
    gpu_dw t = r->plan->way.tile;
    problem p = tile_problem(&t, &r->plan->p);
    int64_t width = r->plan->slabs.width;
    gpu_map maps[2];
    cu_tensor_map map[2];
    char defines[MOST_DEFINES];
    text to = { defines, sizeof defines, 0 };
    cu_function function;
    void *arguments[] = { &x, &dy, &parts, &batch, &width, &map[0], &map[1] };
    t.boxes = t.boxes && is_aligned(x) && is_aligned(dy) && batch <= INT32_MAX;
    if (t.boxes) {
        dn_gpu_dw_maps(&t, &p, batch, maps);
        TRY(dn_cuda_map(r->d, p.dtype, x, &maps[0], &map[0]));
        TRY(dn_cuda_map(r->d, p.dtype, dy, &maps[1], &map[1]));
    }
    gpu_launch l = dn_gpu_dw_launch(&t, &p, dn_gpu_parts(batch, width));
    dn_gpu_dw_defines(&t, &p, &to);
    TRY(dn_cuda_load(r->d, t.text, defines, "dw", &function));
    return dn_cuda_launch(r->d, function, &l, arguments);
}

static danaus_status make_turned_parts(const dw_run *r)
{
    const dw_plan *plan = r->plan;
    float *parts = r->parts;
    for (int64_t first = 0; first < plan->batch; first += plan->at_once) {
        int64_t left = plan->batch - first;
        int64_t n = left < plan->at_once ? left : plan->at_once;
        void *turned[2];
        TRY(turn_columns(r, first, n, turned));
        TRY(make_parts(r, turned[0], turned[1], n, parts));
        parts +=
            dn_gpu_parts(n, plan->slabs.width) * dn_pattern_weights(plan->p.pattern);
    }
    return DANAUS_OK;
}

static danaus_status make_by_tensors(const dw_run *r)
{
    if (r->plan->way.turned)
        TRY(make_turned_parts(r));
    else
        TRY(make_parts(r, r->x, r->dy, r->plan->batch, r->parts));
    return r->plan->way.tile.last ? reduce_by_lanes(r) : reduce(r);
}

/* ---- any GPU ---- */

static danaus_status make_by_vectors(const dw_run *r)
{
    const dw_plan *plan = r->plan;
    const problem *p = &plan->p;
    danaus_pattern q = p->pattern;
    dw_tile t = dn_cuda_dw_tile(p);
    cu_function function;
    const void *x = r->x, *dy = r->dy;
    void *parts = r->parts;
    int64_t batch = plan->batch, width = plan->slabs.width;
    void *arguments[] = { &x, &dy, &parts, &batch, &width, &q.a, &q.b, &q.c, &q.d };
    TRY(dn_cuda_gradient_function(r->d, "ks_dw.cu", "dw", p, &function));
    TRY(dn_cuda_launch_line(
        r->d, function, dn_cuda_dw_tiles(p) * plan->slabs.count,
        t.br / t.tr * (t.bc / t.tc) * t.bj, arguments));
    return reduce(r);
}

danaus_status dn_cuda_dw(
    cuda_device *d, const dw_plan *plan, const void *x, const void *dy, void *parts,
    void *work, const weights_view *to)
{
    dw_run r = { d, plan, x, dy, parts, work, to };
    if (plan->way.tile.resident)
        return make_by_tensors(&r);
    return plan->way.library ? make_by_library(&r) : make_by_vectors(&r);
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
    dw_way way = dn_cuda_dw_plan(d, p, p->batch).way;
    int count = 0;
    if (way.tile.resident) {
        gradient_text *own = &to[count++];
        text t = { own->defines, sizeof own->defines, 0 };
        problem q = tile_problem(&way.tile, p);
        own->name = way.tile.text;
        own->entry = "dw";
        dn_gpu_dw_defines(&way.tile, &q, &t);
    } else if (!way.library)
        put_text(&to[count++], "ks_dw.cu", "dw", p);
    if (way.turned)
        put_text(&to[count++], "ks_turn.cu", "ks", p);
    put_text(&to[count++], "ks_dbias.cu", "dbias", p);
    put_text(&to[count++], "ks_reduce.cu", "reduce", p);
    return count;
}
