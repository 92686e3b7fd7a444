/* Compiling the kernels of a plan at once, on as many threads as there are. What fails
   here is compiled again, and reported, when it is loaded. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda.h"

#include "base/mem.h"
#include "base/thread.h"

#include <string.h>

#define MOST_THREADS 16

static void compile(void *arg, int i)
{
    const cuda_device *d = arg;
    cuda_ahead *a = &d->ahead[i];
    dn_cuda_compile(a->name, a->defines, d->gpu.facts.arch, &a->image, &a->bytes, NULL);
}

static int is_known(const cuda_device *d, cache_key key)
{
    for (int i = 0; i < d->ahead_count; i++)
        if (!memcmp(&d->ahead[i].key, &key, sizeof key))
            return 1;
    return dn_cache_has(key);
}

static void add(cuda_device *d, const ks_step *step, int variant)
{
    const gpu_code *code = step->kernel->code;
    cuda_ahead *a = &d->ahead[d->ahead_count];
    text t = { a->defines, sizeof a->defines, 0 };
    a->name = code->text;
    code->defines(step->kernel, &step->p, variant, &t);
    if (dn_cuda_is_loaded(d, a->name, a->defines))
        return;
    a->key = dn_cuda_key(a->name, a->defines, d->gpu.facts.arch);
    d->ahead_count += !is_known(d, a->key);
}

static void add_step(cuda_device *d, const ks_step *step)
{
    const gpu_code *code = step->kernel->code;
    for (int v = 0; v < code->variants || v == 0; v++)
        if (d->ahead_count < MOST_AHEAD - 1 &&
            !dn_cuda_has_function(d, step->kernel, &step->p, v))
            add(d, step, v);
    if (code->inner) {
        ks_step inner = dn_gpu_inner(step->kernel, &step->p);
        add_step(d, &inner);
    }
    if (code->first) {
        ks_step first = dn_gpu_first(step->kernel, &step->p);
        add_step(d, &first);
    }
}

void dn_cuda_compile_ahead(cuda_device *d, const ks_step *steps, int count)
{
    thread_pool *pool = NULL;
    d->ahead = dn_calloc(MOST_AHEAD, sizeof *d->ahead);
    d->ahead_count = 0;
    for (int i = 0; i < count && d->ahead; i++)
        add_step(d, &steps[i]);
    int threads =
        d->ahead_count < dn_thread_count() ? d->ahead_count : dn_thread_count();
    threads = threads < MOST_THREADS ? threads : MOST_THREADS;
    if (threads > 1 && dn_pool_create(threads, &pool) == DANAUS_OK)
        dn_pool_run(pool, d->ahead_count, compile, d);
    dn_pool_destroy(pool);
}

int dn_cuda_take_ahead(cuda_device *d, cache_key key, void **image, size_t *bytes)
{
    for (int i = 0; i < d->ahead_count; i++) {
        cuda_ahead *a = &d->ahead[i];
        if (a->image && !memcmp(&a->key, &key, sizeof key)) {
            *image = a->image;
            *bytes = a->bytes;
            a->image = NULL;
            return 1;
        }
    }
    return 0;
}

void dn_cuda_forget_ahead(cuda_device *d)
{
    for (int i = 0; i < d->ahead_count; i++)
        dn_free(d->ahead[i].image);
    dn_free(d->ahead);
    d->ahead = NULL;
    d->ahead_count = 0;
}
