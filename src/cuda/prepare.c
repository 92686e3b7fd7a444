/* Prepares what steps can run. All functions that they use are compiled together on all
   threads, and are loaded, or left in a file until a call needs them. Rows that do not compile
   here are refused. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda.h"

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
    cuda_device *d;
    wanted_function *all;
    size_t count, capacity;
} wanted_list;

/* ---- gathering ---- */

static int is_new(const wanted_list *list, const wanted_function *w)
{
    for (const wanted_function *other = list->all; other < w; other++)
        if (dn_hash_equal(other->use.image, w->use.image))
            return 0;
    return !dn_cuda_is_loaded(list->d->shared, &w->use) &&
           !dn_cuda_has_image(w->use.image);
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
    dn_cuda_hash_use(&w->use, list->d->gpu.facts.arch);
    w->is_new = is_new(list, w);
    list->count++;
    return DANAUS_OK;
}

static danaus_status want_step(
    wanted_list *list, const kernel *row, const ks_step *step)
{
    const gpu_family *f = dn_gpu_family(step->kernel);
    int64_t memory = list->d->gpu.facts.memory;
    ks_step part;
    for (int v = 0; f->text && (v < f->variants || v == 0); v++)
        if (dn_gpu_reaches(step->kernel, &step->p, v, memory) &&
            !dn_cuda_has_function(list->d, step->kernel, &step->p, v))
            TRY(add(list, row, step, v));
    for (int n = 0; f->part && f->part(step->kernel, &step->p, n, &part); n++)
        TRY(want_step(list, row, &part));
    return DANAUS_OK;
}

static danaus_status gather(wanted_list *list, const ks_step *steps, int count)
{
    for (int i = 0; i < count; i++)
        TRY(want_step(list, steps[i].kernel, &steps[i]));
    return DANAUS_OK;
}

/* ---- compiling ---- */

/* What fails here is compiled again, and reported, when it is loaded. */
static void compile(void *arg, int i)
{
    const wanted_list *list = arg;
    wanted_function *w = &list->all[i];
    if (w->is_new)
        dn_cuda_compile(
            w->use.text, w->use.defines, list->d->gpu.facts.arch, &w->image, &w->bytes,
            NULL, NULL);
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

int dn_cuda_refuses(const danaus_device *dev, const kernel *k)
{
    const cuda_gpu *g = ((const cuda_device *)dev)->shared;
    int refused = 0;
    dn_lock(g->base.lock);
    for (size_t i = 0; i < g->refused_count; i++)
        refused |= g->refused[i] == k;
    dn_unlock(g->base.lock);
    return refused;
}

static danaus_status refuse(cuda_gpu *g, const kernel *k)
{
    dn_lock(g->base.lock);
    danaus_status status = dn_reserve(
        &g->refused, g->refused_count, &g->refused_capacity, sizeof *g->refused,
        "a list of refused kernels");
    if (status == DANAUS_OK)
        g->refused[g->refused_count++] = k;
    dn_unlock(g->base.lock);
    return status;
}

/* True if calls of the hinted batch run this variant. */
static int is_expected(const wanted_function *w)
{
    const gpu_family *f = dn_gpu_family(w->step.kernel);
    gpu_call call = { .batch = w->step.p.batch };
    return !f->variant || f->variant(w->step.kernel, &w->step.p, &call) == w->variant;
}

static danaus_status load(cuda_device *d, const wanted_function *w, int *refused)
{
    cu_function function;
    if (!w->image && !is_expected(w) && dn_cuda_has_image(w->use.image))
        return DANAUS_OK;
    TRY(dn_cuda_load_use(d, &w->use, w->image, w->bytes, refused, &function));
    return dn_cuda_add_function(d, w->step.kernel, &w->step.p, w->variant, function);
}

/* Loads all; counts every row that is refused, not only the first. */
static danaus_status load_all(wanted_list *list, int *refused)
{
    cuda_device *d = list->d;
    danaus_status failure = DANAUS_OK;
    for (size_t i = 0; i < list->count; i++) {
        const wanted_function *w = &list->all[i];
        int is_refused = 0;
        if (dn_cuda_refuses(&d->gpu.base, w->row))
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

static danaus_status open_libraries(cuda_device *d, const ks_step *steps, int count)
{
    ks_step part;
    for (int i = 0; i < count; i++) {
        const gpu_family *f = dn_gpu_family(steps[i].kernel);
        if (f->products)
            TRY(dn_cuda_open_products(d, &steps[i]));
        else if (f->library)
            TRY(dn_cuda_open_blas(d));
        for (int n = 0; f->part && f->part(steps[i].kernel, &steps[i].p, n, &part); n++)
            TRY(open_libraries(d, &part, 1));
    }
    return DANAUS_OK;
}

/* ---- uses that no problem of products has ---- */

typedef struct use_list {
    cuda_device *d;
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
    if (!dn_cuda_is_loaded(l->d->shared, use) && !dn_cuda_has_image(use->image))
        dn_cuda_compile(
            use->text, use->defines, l->d->gpu.facts.arch, &l->images[i].data,
            &l->images[i].bytes, NULL, NULL);
}

static danaus_status load_uses(const use_list *l, int count, gpu_function *functions)
{
    for (int i = 0; i < count; i++) {
        cu_function function;
        int refused = 0;
        TRY(dn_cuda_load_use(
            l->d, &l->uses[i], l->images[i].data, l->images[i].bytes, &refused,
            &function));
        functions[i] = function;
    }
    return DANAUS_OK;
}

danaus_status dn_cuda_load_uses(
    gpu_device *dev, gpu_use *uses, int count, gpu_function *functions)
{
    cuda_device *d = (cuda_device *)dev;
    use_list l = { d, uses, dn_calloc((size_t)count, sizeof *l.images) };
    thread_pool *pool = NULL;
    int pushed, threads = MIN(MIN(dn_thread_count(), MOST_THREADS), count);
    if (!l.images)
        return dn_fail_memory((size_t)count * sizeof *l.images, "a list of kernels");
    for (int i = 0; i < count; i++)
        dn_cuda_hash_use(&uses[i], d->gpu.facts.arch);
    if (threads > 1)
        dn_pool_create(threads, &pool);
    dn_pool_run(pool, count, compile_use, &l);
    dn_pool_destroy(pool);
    danaus_status status = dn_cuda_enter(d, &pushed);
    if (status == DANAUS_OK) {
        status = load_uses(&l, count, functions);
        dn_cuda_leave(d, pushed);
    }
    for (int i = 0; i < count; i++)
        dn_free(l.images[i].data);
    dn_free(l.images);
    return status;
}

danaus_status dn_cuda_prepare(
    danaus_device *dev, const ks_step *steps, int count, int *refused)
{
    cuda_device *d = (cuda_device *)dev;
    wanted_list list = { .d = d };
    int pushed;
    danaus_status status = gather(&list, steps, count);
    if (status == DANAUS_OK) {
        compile_all(&list);
        status = dn_cuda_enter(d, &pushed);
    }
    if (status == DANAUS_OK) {
        status = open_libraries(d, steps, count);
        status = status ? status : load_all(&list, refused);
        dn_cuda_leave(d, pushed);
    }
    for (size_t i = 0; i < list.count; i++)
        dn_free(list.all[i].image);
    dn_free(list.all);
    return status;
}
