/* Constants of transforms, in a GPU's memory. Plans with equal windows share them. Like
   compiled kernels they stay as long as a device of the GPU is open: graphs of the caller may
   read them after a plan was destroyed. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/run/conv/engine.h"

#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"

struct gpu_constants {
    gpu_constants *next;
    gpu_conv_shape shape;
    gpu_conv_mma mma; /* of matrices; else its root is 0 */
    void *memory;
};

/* Windows that are transformed in the same passes have the same constants. */
static int are_alike(const gpu_conv_shape *a, const gpu_conv_shape *b)
{
    int same = a->sums == b->sums && a->n == b->n && a->circle == b->circle &&
               a->constants == b->constants && a->passes == b->passes;
    for (int i = 0; same && i < a->passes; i++)
        same = a->pass[i].radix == b->pass[i].radix &&
               a->pass[i].constants == b->pass[i].constants;
    return same;
}

/* What is to be there. */
typedef struct wanted_constants {
    const gpu_conv_shape *shape;
    const gpu_conv_mma *mma; /* or NULL */
} wanted_constants;

static int is_it(const gpu_constants *c, const wanted_constants *w)
{
    if (w->mma)
        return c->mma.root && dn_gpu_conv_mma_same(&c->mma, w->mma);
    return !c->mma.root && are_alike(&c->shape, w->shape);
}

static const void *find(gpu_shared *g, const wanted_constants *w)
{
    dn_lock(g->lock);
    const gpu_constants *c = g->constants;
    while (c && !is_it(c, w))
        c = c->next;
    dn_unlock(g->lock);
    return c ? c->memory : NULL;
}

static size_t bytes_of(const wanted_constants *w)
{
    return w->mma ? (size_t)dn_gpu_conv_mma_bytes(w->mma)
                  : (size_t)(w->shape->constants * dn_gpu_point(w->shape));
}

static danaus_status put(gpu_device *d, const wanted_constants *w, void *to)
{
    size_t bytes = bytes_of(w);
    void *made = dn_alloc(bytes);
    if (!made)
        return dn_fail_memory(bytes, "the constants of a transform");
    if (w->mma)
        dn_gpu_conv_mma_tables(w->mma, made);
    else
        dn_gpu_conv_constants(w->shape, made);
    danaus_status status = d->base.backend->copy(&d->base, to, made, bytes);
    dn_free(made);
    return status;
}

static void add(gpu_shared *g, gpu_constants *c)
{
    dn_lock(g->lock);
    c->next = g->constants;
    g->constants = c;
    dn_unlock(g->lock);
}

/* Threads that make the same at the same time make it twice, which does no harm. */
static danaus_status get(
    gpu_device *d, const wanted_constants *w, const void **constants)
{
    gpu_shared *g = d->shared;
    if ((*constants = find(g, w)))
        return DANAUS_OK;
    gpu_constants *c = dn_calloc(1, sizeof *c);
    if (!c)
        return dn_fail_memory(sizeof *c, "the constants of a transform");
    if (w->mma)
        c->mma = *w->mma;
    else
        c->shape = *w->shape;
    danaus_status status = d->base.backend->alloc(&d->base, bytes_of(w), &c->memory);
    status = status ? status : put(d, w, c->memory);
    if (status) {
        if (c->memory)
            d->base.backend->free(&d->base, c->memory);
        dn_free(c);
        return status;
    }
    add(g, c);
    *constants = c->memory;
    return DANAUS_OK;
}

danaus_status dn_gpu_conv_keep_constants(
    gpu_device *d, const gpu_conv_shape *s, const void **constants)
{
    return get(d, &(wanted_constants){ s, NULL }, constants);
}

danaus_status dn_gpu_conv_keep_matrices(
    gpu_device *d, const gpu_conv_mma *m, const void **matrices)
{
    return m->root ? get(d, &(wanted_constants){ NULL, m }, matrices) : DANAUS_OK;
}

void dn_gpu_free_constants(gpu_shared *g)
{
    for (gpu_constants *c = g->constants; c; c = g->constants) {
        g->constants = c->next;
        g->driver->free(g, c->memory);
        dn_free(c);
    }
}
