/* Packs weights that are in device memory, by the rows of gpu/product/ks_pack.c. Maps are made
   once for each kernel and problem, and all devices of a GPU share them. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/run/run.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"
#include "gpu/product/pack_map.h"
#include "math/pattern.h"

#include <string.h>

struct pack_map {
    pack_map *next;
    int users;
    ks_step step;
    int adjoint;
    gpu_pack_map facts; /* its entries are those below */
    void *entries;      /* in the GPU's memory */
};

/* ---- rows ---- */

static ks_step step_to(danaus_dtype type, int merges, int64_t count)
{
    danaus_pattern one = { 1, 1, 1, 1 };
    ks_step step = {
        .p = { .operation = DN_PACK, .pattern = one, .dtype = type, .batch = count }
    };
    if (merges)
        step.p.inner = one;
    step.kernel = dn_gpu_kernels;
    while (!dn_fits(step.kernel, &step.p))
        step.kernel++;
    return step;
}

static danaus_dtype wide_type(const danaus_device *dev, danaus_dtype type)
{
    if (((const gpu_device *)dev)->facts.no_f64)
        return dn_is_complex(type) ? DANAUS_C64 : DANAUS_F32;
    return dn_is_complex(type) ? DANAUS_C128 : DANAUS_F64;
}

static danaus_status ready(gpu_device *d, danaus_dtype type, int merges)
{
    gpu_function function;
    ks_step step = step_to(type, 0, 1);
    TRY(dn_gpu_function(d, step.kernel, &step.p, 0, &function));
    if (!merges)
        return DANAUS_OK;
    step = step_to(wide_type(&d->base, type), 1, 1);
    return dn_gpu_function(d, step.kernel, &step.p, 0, &function);
}

/* The function of a row, and the launch that makes `count` numbers. */
static danaus_status find(
    gpu_device *d, danaus_dtype type, int merges, int64_t count, gpu_function *function,
    gpu_launch *l)
{
    gpu_call call = { .batch = count };
    ks_step step = step_to(type, merges, count);
    TRY(dn_gpu_function(d, step.kernel, &step.p, 0, function));
    dn_gpu_family(step.kernel)->launch(step.kernel, &step.p, &d->facts, &call, l);
    return DANAUS_OK;
}

/* The table of ks_pack.cu. */
#define MOST_JOBS 23

typedef union pack_table {
    char bytes[GPU_TABLE_BYTES];
    struct {
        int64_t count;
        struct {
            const void *from, *inner, *map;
            void *to;
            int64_t weights, count;
            union {
                double f64; /* of texts for f64 and c128 */
                float f32;
            } scale;
            int first, type, group_log2, step, dropped, conjugated, wide, unused;
        } job[MOST_JOBS];
    } of;
} pack_table;

static void add_job(pack_table *t, danaus_dtype type, const pack_job *j, int first)
{
    static const gpu_pack_map as_it_lies;
    const gpu_pack_map *f = j->map ? &j->map->facts : &as_it_lies;
    danaus_dtype made = j->map ? f->type : j->to_type;
    int64_t n = t->of.count++;
    t->of.job[n].from = j->w[0];
    t->of.job[n].inner = j->w[1];
    t->of.job[n].map = j->map ? j->map->entries : NULL;
    t->of.job[n].to = j->to;
    t->of.job[n].count = j->map ? f->count : j->count;
    t->of.job[n].weights = j->map ? f->weights[0] : j->count;
    if ((int)dn_part_type(type) == DANAUS_F64)
        t->of.job[n].scale.f64 = j->scale;
    else
        t->of.job[n].scale.f32 = (float)j->scale;
    t->of.job[n].first = first;
    t->of.job[n].type = (int)dn_part_type(j->from_type);
    t->of.job[n].group_log2 = f->group_log2;
    t->of.job[n].step = (int)f->step;
    t->of.job[n].dropped = f->dropped;
    t->of.job[n].conjugated = j->map && j->map->adjoint;
    t->of.job[n].wide = made != type;
}

/* As many jobs in a launch as a table has room for. */
static danaus_status pack_all(
    gpu_device *d, danaus_dtype type, const pack_job *jobs, int count)
{
    gpu_function function;
    for (int done = 0; done < count;) {
        pack_table t;
        const gpu_argument arguments[] = { ARG_TABLE(t), { 0 } };
        gpu_launch all = { 0 }, l;
        memset(&t, 0, sizeof t);
        for (; done < count && t.of.count < MOST_JOBS; done++) {
            const pack_job *j = &jobs[done];
            int64_t numbers = j->map ? j->map->facts.count : j->count;
            TRY(find(d, type, 0, numbers, &function, &l));
            add_job(&t, type, j, (int)all.blocks[0]);
            l.blocks[0] += all.blocks[0];
            all = l;
        }
        TRY(dn_gpu_launch(d, function, &all, arguments));
    }
    return DANAUS_OK;
}

static danaus_status pack(
    danaus_device *dev, danaus_dtype type, const pack_job *jobs, int count)
{
    gpu_device *d = (gpu_device *)dev;
    for (int i = 0; i < count; i++)
        TRY(dn_gpu_check_type(d, jobs[i].from_type));
    RETURN_ENTERED(d, pack_all(d, type, jobs, count));
}

static danaus_status multiply(
    gpu_device *d, danaus_dtype wide, int64_t count, const gpu_argument *arguments)
{
    gpu_function function;
    gpu_launch l;
    TRY(find(d, wide, 1, count, &function, &l));
    return dn_gpu_launch(d, function, &l, arguments);
}

static danaus_status merge(danaus_device *dev, const ks_merge *m)
{
    const void *w_left = m->w_left, *w_right = m->w_right;
    danaus_pattern p = m->left, q = m->right, t = m->product;
    int left = (int)dn_part_type(m->left_type),
        right = (int)dn_part_type(m->right_type);
    void *to = m->to;
    danaus_dtype wide = wide_type(dev, m->left_type);
    const gpu_argument arguments[] = { ARG(w_left), ARG(left), ARG(p.a),     ARG(p.b),
                                       ARG(p.c),    ARG(p.d),  ARG(w_right), ARG(right),
                                       ARG(q.a),    ARG(q.b),  ARG(q.c),     ARG(q.d),
                                       ARG(t.a),    ARG(t.d),  ARG(to),      { 0 } };
    gpu_device *d = (gpu_device *)dev;
    TRY(dn_gpu_check_type(d, m->right_type));
    RETURN_ENTERED(d, multiply(d, wide, dn_pattern_weights(t), arguments));
}

/* A launch, which reads map and weights and writes what is packed. */
double dn_gpu_packing(const danaus_device *dev, const kernel *k, const problem *p)
{
    const gpu_facts *f = &((const gpu_device *)dev)->facts;
    return 3e-6 + 3 * (double)dn_packed_bytes(k, p) / f->bandwidth;
}

/* ---- maps ---- */

static int is_same(const pack_map *m, const ks_step *step, int adjoint)
{
    const problem *p = &m->step.p, *q = &step->p;
    return m->step.kernel == step->kernel && m->adjoint == adjoint &&
           dn_pattern_equal(p->pattern, q->pattern) &&
           dn_pattern_equal(p->inner, q->inner) && p->layout == q->layout &&
           p->math == q->math && p->batch == q->batch;
}

/* NULL: there is none, for which there is one user more now. */
static pack_map *find_map(gpu_shared *g, const ks_step *step, int adjoint)
{
    pack_map *m = g->maps;
    while (m && !is_same(m, step, adjoint))
        m = m->next;
    if (m)
        m->users++;
    return m;
}

static void free_map(gpu_shared *g, pack_map *m)
{
    if (m->entries)
        g->driver->free(g, m->entries);
    dn_free(m);
}

static danaus_status ask_capturing(gpu_device *d, int *capturing)
{
    RETURN_ENTERED(d, d->shared->driver->capturing(d, capturing));
}

static danaus_status upload(gpu_device *d, pack_map *m)
{
    int capturing = 0;
    size_t bytes = (size_t)(m->facts.count >> m->facts.group_log2) * sizeof(uint32_t);
    TRY(ask_capturing(d, &capturing));
    if (capturing)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "these weights are not ready to be packed while a graph is captured: make "
            "them without a chain, or update them once before");
    const backend *b = d->base.backend;
    TRY(b->alloc(&d->base, bytes, &m->entries));
    return b->copy(&d->base, m->entries, m->facts.entry, bytes);
}

static danaus_status make_map(
    gpu_device *d, const ks_step *step, int adjoint, pack_map **made)
{
    pack_map *m = dn_calloc(1, sizeof *m);
    if (!m)
        return dn_fail_memory(sizeof *m, "a map of weights");
    m->users = 1;
    m->step = *step;
    m->adjoint = adjoint;
    danaus_status status =
        dn_gpu_map_packing(step->kernel, &step->p, adjoint, &m->facts);
    if (status == DANAUS_OK)
        status = upload(d, m);
    dn_free(m->facts.entry);
    m->facts.entry = NULL;
    if (status == DANAUS_OK)
        *made = m;
    else
        free_map(d->shared, m);
    return status;
}

static danaus_status open_map(
    danaus_device *dev, const ks_step *step, int adjoint, pack_map **map)
{
    gpu_device *d = (gpu_device *)dev;
    gpu_shared *g = d->shared;
    pack_map *made = NULL;
    dn_lock(g->lock);
    pack_map *m = find_map(g, step, adjoint);
    dn_unlock(g->lock);
    if (!m) {
        TRY(make_map(d, step, adjoint, &made));
        dn_lock(g->lock);
        m = find_map(g, step, adjoint); /* another thread may have been faster */
        if (!m) {
            made->next = g->maps;
            m = g->maps = made;
        }
        dn_unlock(g->lock);
        if (m != made)
            free_map(g, made);
    }
    *map = m;
    return DANAUS_OK;
}

static void close_map(danaus_device *dev, pack_map *m)
{
    gpu_shared *g = ((gpu_device *)dev)->shared;
    dn_lock(g->lock);
    int is_last = --m->users == 0;
    pack_map **at = &g->maps;
    while (is_last && *at != m)
        at = &(*at)->next;
    if (is_last)
        *at = m->next;
    dn_unlock(g->lock);
    if (is_last)
        free_map(g, m);
}

/* Compiles what maps of a type need. */
static danaus_status prepare(danaus_device *dev, danaus_dtype type, int merges)
{
    gpu_device *d = (gpu_device *)dev;
    RETURN_ENTERED(d, ready(d, type, merges));
}

static danaus_status open_prepared(
    danaus_device *dev, const ks_step *step, int adjoint, pack_map **map)
{
    pack_map *m;
    TRY(open_map(dev, step, adjoint, &m));
    danaus_status status = prepare(dev, step->p.dtype, 0);
    if (status == DANAUS_OK)
        *map = m;
    else
        close_map(dev, m);
    return status;
}

const pack_backend dn_gpu_pack_backend = {
    .open = open_prepared,
    .close = close_map,
    .prepare = prepare,
    .pack = pack,
    .merge = merge,
    .wide = wide_type,
};
