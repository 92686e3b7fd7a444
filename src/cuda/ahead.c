/* Compiling the texts of a plan at once, on as many threads as there are. What fails here
   is compiled again, and reported, when it is loaded. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/gradient.h"

#include "base/mem.h"
#include "base/thread.h"

#include <stdlib.h>
#include <string.h>

#define MOST_THREADS 16
#define LEAST_AHEAD  16

static void compile(void *arg, int i)
{
    const cuda_device *d = arg;
    cuda_ahead *a = &d->ahead[i];
    dn_cuda_compile(a->name, a->defines, d->gpu.facts.arch, &a->image, &a->bytes, NULL);
}

static int is_known(const cuda_device *d, hash128 key)
{
    for (size_t i = 0; i < d->ahead_count; i++)
        if (dn_hash_equal(d->ahead[i].key, key))
            return 1;
    return dn_cuda_has_image(key);
}

/* NULL: there is no memory, and the text is compiled when it is loaded. */
static cuda_ahead *next_place(cuda_device *d)
{
    if (d->ahead_count == d->ahead_capacity) {
        size_t more = d->ahead_capacity ? 2 * d->ahead_capacity : LEAST_AHEAD;
        cuda_ahead *grown =
            dn_grow(d->ahead, d->ahead_count * sizeof *grown, more * sizeof *grown);
        if (!grown)
            return NULL;
        d->ahead = grown;
        d->ahead_capacity = more;
    }
    return &d->ahead[d->ahead_count];
}

static void add(cuda_device *d, const char *name, const char *defines)
{
    if (dn_cuda_is_loaded(d, name, defines))
        return;
    hash128 key = dn_cuda_key(name, defines, d->gpu.facts.arch);
    cuda_ahead *a = is_known(d, key) ? NULL : next_place(d);
    if (!a)
        return;
    a->name = name;
    a->key = key;
    a->image = NULL;
    memcpy(a->defines, defines, strlen(defines) + 1);
    d->ahead_count++;
}

static void add_step(cuda_device *d, const ks_step *step)
{
    const gpu_code *code = step->kernel->code;
    const gpu_family *f = dn_gpu_family(step->kernel);
    for (int v = 0; v < f->variants || v == 0; v++)
        if (!dn_cuda_has_function(d, step->kernel, &step->p, v)) {
            char defines[MOST_DEFINES];
            text t = { defines, sizeof defines, 0 };
            f->defines(step->kernel, &step->p, v, &t);
            add(d, f->text, defines);
        }
    if (code->inner) {
        ks_step inner = dn_gpu_inner(step->kernel, &step->p);
        add_step(d, &inner);
    }
    if (code->first) {
        ks_step first = dn_gpu_first(step->kernel, &step->p);
        add_step(d, &first);
    }
}

static void add_gradients(cuda_device *d, const problem *p)
{
    gradient_text texts[GRADIENT_TEXTS];
    int count = dn_cuda_gradient_texts(d, p, texts);
    for (int i = 0; i < count; i++)
        add(d, texts[i].name, texts[i].defines);
}

void dn_cuda_compile_ahead(cuda_device *d, const ks_step *steps, int count, int factors)
{
    thread_pool *pool = NULL;
    for (int i = 0; i < count; i++)
        add_step(d, &steps[i]);
    for (int i = 0; i < factors; i++)
        add_gradients(d, &steps[i].p);
    int texts = (int)d->ahead_count;
    int threads = texts < dn_thread_count() ? texts : dn_thread_count();
    threads = threads < MOST_THREADS ? threads : MOST_THREADS;
    if (threads > 1 && dn_pool_create(threads, &pool) == DANAUS_OK)
        dn_pool_run(pool, texts, compile, d);
    dn_pool_destroy(pool);
}

int dn_cuda_take_ahead(cuda_device *d, hash128 key, void **image, size_t *bytes)
{
    for (size_t i = 0; i < d->ahead_count; i++) {
        cuda_ahead *a = &d->ahead[i];
        if (a->image && dn_hash_equal(a->key, key)) {
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
    for (size_t i = 0; i < d->ahead_count; i++)
        dn_free(d->ahead[i].image);
    dn_free(d->ahead);
    d->ahead = NULL;
    d->ahead_count = d->ahead_capacity = 0;
}
