/* Prepares what steps can run. All functions that they use are compiled together on all
   threads, and are loaded, or left in a file until a call needs them. Rows that do not compile
   here are refused. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/run/program.h"

#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"

#define MOST_THREADS 16

/* A function that is to be there. */
typedef struct wanted_function {
    gpu_use use;
    const kernel *row; /* the row of the table that needs it */
    ks_step step;      /* whose function it is: that row's, or that of a part of it */
    int variant;
    int is_new; /* it is to be compiled, and nothing before it in the list is the same */
    void *image;
    size_t bytes;
} wanted_function;

typedef struct wanted_list {
    gpu_device *d;
    wanted_function *all;
    size_t count, capacity;
} wanted_list;

/* ---- gathering ---- */

static int is_new(const wanted_list *list, const wanted_function *w)
{
    for (const wanted_function *other = list->all; other < w; other++)
        if (dn_hash_equal(other->use.image, w->use.image))
            return 0;
    return !dn_gpu_is_loaded(list->d->shared, &w->use) &&
           !dn_gpu_has_image(w->use.image);
}

static danaus_status add(
    wanted_list *list, const kernel *row, const ks_step *step, int variant)
{
    TRY(dn_reserve(
        &list->all, list->count, &list->capacity, sizeof *list->all,
        "a list of kernels"));
    wanted_function *w = &list->all[list->count];
    *w = (wanted_function){ .row = row, .step = *step, .variant = variant };
    dn_gpu_use(step->kernel, &step->p, variant, &w->use);
    dn_gpu_hash_use(list->d->shared->driver, &w->use, list->d->facts.arch);
    w->is_new = is_new(list, w);
    list->count++;
    return DANAUS_OK;
}

static danaus_status want_step(
    wanted_list *list, const kernel *row, const ks_step *step)
{
    const gpu_family *f = dn_gpu_family(step->kernel);
    int64_t memory = list->d->facts.memory;
    ks_step part;
    for (int v = 0; f->text && (v < f->variants || v == 0); v++)
        if (dn_gpu_reaches(step->kernel, &step->p, v, memory) &&
            !dn_gpu_has_function(list->d, step->kernel, &step->p, v))
            TRY(add(list, row, step, v));
    for (int n = 0; f->part && f->part(step->kernel, &step->p, n, &part); n++)
        TRY(want_step(list, row, &part));
    return DANAUS_OK;
}

static danaus_status gather(wanted_list *list, const ks_step *steps, int count)
{
    for (int i = 0; i < count; i++) {
        TRY(dn_gpu_check_type(list->d, steps[i].p.dtype));
        TRY(want_step(list, steps[i].kernel, &steps[i]));
    }
    return DANAUS_OK;
}

/* ---- compiling ---- */

/* What fails here is compiled again, and reported, when it is loaded. */
static void compile(void *arg, int i)
{
    const wanted_list *list = arg;
    wanted_function *w = &list->all[i];
    if (w->is_new)
        dn_gpu_compile(
            list->d->shared->driver, w->use.text, w->use.defines, list->d->facts.arch,
            &w->image, &w->bytes, NULL, NULL);
}

static void compile_all(wanted_list *list)
{
    thread_pool *pool = NULL;
    int texts = 0, threads = dn_thread_count();
    for (size_t i = 0; i < list->count; i++)
        texts += list->all[i].is_new;
    threads = MIN(MIN(threads, MOST_THREADS), texts);
    if (threads > 1 && dn_pool_create(threads, &pool) == DANAUS_OK)
        dn_pool_run(pool, (int)list->count, compile, list);
    dn_pool_destroy(pool);
}

/* ---- loading ---- */

int dn_gpu_refuses(const danaus_device *dev, const kernel *k)
{
    const gpu_shared *g = ((const gpu_device *)dev)->shared;
    int refused = 0;
    dn_lock(g->lock);
    for (size_t i = 0; i < g->refused_count; i++)
        refused |= g->refused[i] == k;
    dn_unlock(g->lock);
    return refused;
}

static danaus_status refuse(gpu_shared *g, const kernel *k)
{
    dn_lock(g->lock);
    danaus_status status = dn_reserve(
        &g->refused, g->refused_count, &g->refused_capacity, sizeof *g->refused,
        "a list of refused kernels");
    if (status == DANAUS_OK)
        g->refused[g->refused_count++] = k;
    dn_unlock(g->lock);
    return status;
}

/* True if calls of the hinted batch run this variant. */
static int is_expected(const wanted_function *w)
{
    const gpu_family *f = dn_gpu_family(w->step.kernel);
    gpu_call call = { .batch = w->step.p.batch };
    return !f->variant || f->variant(w->step.kernel, &w->step.p, &call) == w->variant;
}

static danaus_status load(gpu_device *d, const wanted_function *w, int *refused)
{
    gpu_function function;
    if (!w->image && !is_expected(w) && dn_gpu_has_image(w->use.image))
        return DANAUS_OK;
    TRY(dn_gpu_load_use(d, &w->use, w->image, w->bytes, refused, &function));
    return dn_gpu_add_function(d, w->step.kernel, &w->step.p, w->variant, function);
}

/* Loads all; counts every row that is refused, not only the first. */
static danaus_status load_all(wanted_list *list, int *refused)
{
    gpu_device *d = list->d;
    danaus_status failure = DANAUS_OK;
    for (size_t i = 0; i < list->count; i++) {
        const wanted_function *w = &list->all[i];
        int is_refused = 0;
        if (dn_gpu_refuses(&d->base, w->row))
            continue;
        danaus_status status = load(d, w, &is_refused);
        if (status != DANAUS_OK && !is_refused)
            return status;
        if (status != DANAUS_OK) {
            failure = status;
            *refused = 1;
            if (refuse(d->shared, w->row) != DANAUS_OK)
                return DANAUS_ERR_MEMORY;
        }
    }
    return failure;
}

static danaus_status open_libraries(gpu_device *d, const ks_step *steps, int count)
{
    ks_step part;
    for (int i = 0; i < count; i++) {
        const gpu_family *f = dn_gpu_family(steps[i].kernel);
        if (f->products || f->library)
            TRY(d->shared->driver->open_library(d, &steps[i]));
        for (int n = 0; f->part && f->part(steps[i].kernel, &steps[i].p, n, &part); n++)
            TRY(open_libraries(d, &part, 1));
    }
    return DANAUS_OK;
}

/* ---- uses that no problem of products has ---- */

typedef struct use_list {
    gpu_device *d;
    const gpu_use *uses;
    struct use_image {
        void *data;
        size_t bytes;
    } * images;
} use_list;

static void compile_use(void *arg, int i)
{
    const use_list *l = arg;
    const gpu_use *use = &l->uses[i];
    if (!dn_gpu_is_loaded(l->d->shared, use) && !dn_gpu_has_image(use->image))
        dn_gpu_compile(
            l->d->shared->driver, use->text, use->defines, l->d->facts.arch,
            &l->images[i].data, &l->images[i].bytes, NULL, NULL);
}

static danaus_status load_uses(const use_list *l, int count, gpu_function *functions)
{
    for (int i = 0; i < count; i++) {
        int refused = 0;
        TRY(dn_gpu_load_use(
            l->d, &l->uses[i], l->images[i].data, l->images[i].bytes, &refused,
            &functions[i]));
    }
    return DANAUS_OK;
}

danaus_status dn_gpu_load_uses(
    gpu_device *d, gpu_use *uses, int count, gpu_function *functions)
{
    use_list l = { d, uses, dn_calloc((size_t)count, sizeof *l.images) };
    thread_pool *pool = NULL;
    int entered, threads = MIN(MIN(dn_thread_count(), MOST_THREADS), count);
    if (!l.images)
        return dn_fail_memory((size_t)count * sizeof *l.images, "a list of kernels");
    for (int i = 0; i < count; i++)
        dn_gpu_hash_use(d->shared->driver, &uses[i], d->facts.arch);
    if (threads > 1)
        dn_pool_create(threads, &pool);
    dn_pool_run(pool, count, compile_use, &l);
    dn_pool_destroy(pool);
    danaus_status status = d->shared->driver->enter(d, &entered);
    if (status == DANAUS_OK) {
        status = load_uses(&l, count, functions);
        d->shared->driver->leave(d, entered);
    }
    for (int i = 0; i < count; i++)
        dn_free(l.images[i].data);
    dn_free(l.images);
    return status;
}

danaus_status dn_gpu_prepare(
    danaus_device *dev, const ks_step *steps, int count, int *refused)
{
    gpu_device *d = (gpu_device *)dev;
    wanted_list list = { .d = d };
    int entered;
    danaus_status status = gather(&list, steps, count);
    if (status == DANAUS_OK) {
        compile_all(&list);
        status = d->shared->driver->enter(d, &entered);
    }
    if (status == DANAUS_OK) {
        status = open_libraries(d, steps, count);
        status = status ? status : load_all(&list, refused);
        d->shared->driver->leave(d, entered);
    }
    for (size_t i = 0; i < list.count; i++)
        dn_free(list.all[i].image);
    dn_free(list.all);
    return status;
}
