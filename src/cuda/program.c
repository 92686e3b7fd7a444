/* From a row and a problem to a function on the device. A use is all that one function is
   compiled from. Its hash identifies the function in the GPU's memory and on the disk. A call
   finds its function by row and problem, without the use. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda.h"

#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"
#include "cuda/bundle.h"
#include "cuda/nvrtc.h"

#include <stdio.h>
#include <string.h>

#define LEAST_PLACES  64
#define STATIC_SHARED 48 << 10 /* bytes that need no permission */

/* ---- compiling ---- */

static const char *find_text(const char *name)
{
    const gpu_text *t = dn_gpu_texts;
    while (t->name && strcmp(t->name, name))
        t++;
    return t->content;
}

hash128 dn_cuda_hash_included(const gpu_text *texts)
{
    hash128 hash = DN_HASH_START;
    for (const gpu_text *t = texts; t->name; t++)
        if (strcmp(strrchr(t->name, '.'), ".cu")) {
            hash = dn_hash_text(hash, t->name);
            hash = dn_hash_text(hash, t->content);
        }
    return hash;
}

/* Once a process: they are 70 KB, a hundred times what is hashed for a key. */
static hash128 hash_included(void)
{
    static hash128 included;
    static int is_made;
    dn_lock_process();
    if (!is_made)
        included = dn_cuda_hash_included(dn_gpu_texts);
    is_made = 1;
    hash128 copy = included;
    dn_unlock_process();
    return copy;
}

hash128 dn_cuda_key(const char *name, const char *defines, int arch)
{
    hash128 hash = dn_nvrtc_hash(hash_included(), arch);
    hash = dn_hash_text(hash, danaus_version());
    hash = dn_hash_text(hash, defines);
    return dn_hash_text(hash, find_text(name));
}

danaus_status dn_cuda_compile(
    const char *name, const char *defines, int arch, void **image, size_t *bytes,
    char **log, int *refused)
{
    const char *content = find_text(name);
    size_t size = strlen(defines) + strlen(content) + 1;
    char *source = dn_alloc(size);
    if (!source)
        return dn_fail_memory(size, "a kernel's text");
    snprintf(source, size, "%s%s", defines, content);
    danaus_status status = dn_nvrtc_compile(source, arch, image, bytes, log, refused);
    dn_free(source);
    return status;
}

void dn_cuda_hash_use(gpu_use *use, int arch)
{
    use->image = dn_cuda_key(use->text, use->defines, arch);
    use->hash = dn_hash_text(use->image, use->entry);
}

/* ---- loading ---- */

/* Errors of the driver that find fault with an image: damaged, for another kind of GPU, PTX
   that it cannot compile or that is too new. */
static int is_of_image(cu_result result)
{
    return result == 200 || result == 209 || result == 218 || result == 222;
}

static danaus_status load_module(
    cuda_device *d, const void *image, const char *entry, int *refused,
    cuda_function *f)
{
    int fixed = 0, most = (int)d->gpu.facts.shared;
    cu_function function = NULL;
    int mode = dn_cuda_set_capture_mode(d->driver, CAPTURE_RELAXED);
    cu_result result = d->driver->ModuleLoadData(&f->module, image);
    dn_cuda_set_capture_mode(d->driver, mode);
    *refused |= is_of_image(result);
    if (result)
        return dn_cuda_status(d->driver, result, "loading a kernel");
    result = d->driver->ModuleGetFunction(&function, f->module, entry);
    if (!result)
        result =
            d->driver->FuncGetAttribute(&fixed, CU_FUNCTION_STATIC_SHARED, function);
    if (!result && most > (STATIC_SHARED) && fixed < most)
        result = d->driver->FuncSetAttribute(
            function, CU_FUNCTION_DYNAMIC_SHARED, most - fixed);
    if (result) {
        d->driver->ModuleUnload(f->module);
        return dn_cuda_status(d->driver, result, "loading a kernel");
    }
    f->function = function;
    return DANAUS_OK;
}

int dn_cuda_has_image(hash128 key) { return dn_shipped_has(key) || dn_cache_has(key); }

/* An image from the disk that the driver refuses is compiled again. */
static int load_kept(cuda_device *d, const gpu_use *use, cuda_function *f)
{
    static int (*const places[])(
        hash128 key, void **image, size_t *bytes) = { dn_shipped_load, dn_cache_load };
    void *image;
    size_t bytes;
    int refused = 0;
    for (int i = 0; i < 2 && !f->function; i++)
        if (places[i](use->image, &image, &bytes)) {
            load_module(d, image, use->entry, &refused, f);
            dn_free(image);
        }
    return f->function != NULL;
}

static danaus_status load_new(
    cuda_device *d, const gpu_use *use, const void *image, size_t bytes, int *refused,
    cuda_function *f)
{
    TRY(load_module(d, image, use->entry, refused, f));
    dn_cache_store(use->image, d->gpu.facts.arch, image, bytes);
    return DANAUS_OK;
}

static danaus_status make_function(
    cuda_device *d, const gpu_use *use, const void *image, size_t bytes, int *refused,
    cuda_function *f)
{
    void *compiled;
    if (image)
        return load_new(d, use, image, bytes, refused, f);
    if (load_kept(d, use, f))
        return DANAUS_OK;
    TRY(dn_cuda_compile(
        use->text, use->defines, d->gpu.facts.arch, &compiled, &bytes, NULL, refused));
    danaus_status status = load_new(d, use, compiled, bytes, refused, f);
    dn_free(compiled);
    return status;
}

/* ---- functions that are loaded, by hash ---- */

/* The function's place, or the empty one where it would be. */
static cuda_function *find_place(
    cuda_function *functions, size_t capacity, hash128 hash)
{
    size_t i = hash.part[1] & (capacity - 1);
    while (functions[i].function && !dn_hash_equal(functions[i].hash, hash))
        i = (i + 1) & (capacity - 1);
    return &functions[i];
}

static cu_function find_loaded(cuda_gpu *g, hash128 hash)
{
    cu_function function = NULL;
    dn_lock(g->base.lock);
    if (g->function_capacity)
        function = find_place(g->functions, g->function_capacity, hash)->function;
    dn_unlock(g->base.lock);
    return function;
}

int dn_cuda_is_loaded(cuda_gpu *g, const gpu_use *use)
{
    return find_loaded(g, use->hash) != NULL;
}

static danaus_status reserve_function(cuda_gpu *g)
{
    if (2 * (g->function_count + 1) <= g->function_capacity)
        return DANAUS_OK;
    size_t capacity = g->function_capacity ? 2 * g->function_capacity : LEAST_PLACES;
    cuda_function *functions = dn_calloc(capacity, sizeof *functions);
    if (!functions)
        return dn_fail_memory(capacity * sizeof *functions, "a table of functions");
    for (size_t i = 0; i < g->function_capacity; i++)
        if (g->functions[i].function)
            *find_place(functions, capacity, g->functions[i].hash) = g->functions[i];
    dn_free(g->functions);
    g->functions = functions;
    g->function_capacity = capacity;
    return DANAUS_OK;
}

/* *f is in the table now, or else becomes the one of another thread that was faster. */
static danaus_status add_loaded(cuda_device *d, cuda_function *f)
{
    cuda_gpu *g = d->shared;
    cu_module module = f->module;
    dn_lock(g->base.lock);
    danaus_status status = reserve_function(g);
    if (status == DANAUS_OK) {
        cuda_function *place = find_place(g->functions, g->function_capacity, f->hash);
        if (!place->function) {
            *place = *f;
            g->function_count++;
            module = NULL;
        }
        *f = *place;
    }
    dn_unlock(g->base.lock);
    if (module)
        d->driver->ModuleUnload(module);
    return status;
}

danaus_status dn_cuda_load_use(
    cuda_device *d, const gpu_use *use, const void *image, size_t bytes, int *refused,
    cu_function *function)
{
    cuda_function f = { .hash = use->hash };
    *function = find_loaded(d->shared, use->hash);
    if (*function)
        return DANAUS_OK;
    TRY(make_function(d, use, image, bytes, refused, &f));
    TRY(add_loaded(d, &f));
    *function = f.function;
    return DANAUS_OK;
}

/* ---- functions of rows, by problem ---- */

/* All of a problem that a use may hang on. */
static hash128 hash_of(const kernel *k, const problem *p, int variant)
{
    danaus_pattern q = p->pattern, l = p->inner;
    int64_t words[] = { (intptr_t)k, q.a,     q.b,           q.c,         q.d,
                        l.a,         l.b,     l.c,           l.d,         p->dtype,
                        p->layout,   p->math, p->activation, p->residual, p->gated,
                        p->orders,   variant };
    return dn_hash(DN_HASH_START, words, sizeof words);
}

int dn_cuda_has_function(cuda_device *d, const kernel *k, const problem *p, int variant)
{
    return find_loaded(d->shared, hash_of(k, p, variant)) != NULL;
}

danaus_status dn_cuda_add_function(
    cuda_device *d, const kernel *k, const problem *p, int variant,
    cu_function function)
{
    cuda_function f = { .hash = hash_of(k, p, variant), .function = function };
    return add_loaded(d, &f);
}

/* Loads or compiles a function now. While a graph is captured, nothing is compiled. */
static danaus_status load_now(
    cuda_device *d, const kernel *k, const problem *p, int variant,
    cu_function *function)
{
    gpu_use use;
    int capturing = 0, refused = 0;
    dn_gpu_use(k, p, variant, &use);
    dn_cuda_hash_use(&use, d->gpu.facts.arch);
    CUDA_TRY(d->driver, StreamIsCapturing(d->stream, &capturing));
    if (capturing && !dn_cuda_has_image(use.image))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "this call needs a kernel that is not compiled "
                                    "yet, and cannot be while a graph "
                                    "is captured: run the call once before");
    TRY(dn_cuda_load_use(d, &use, NULL, 0, &refused, function));
    return dn_cuda_add_function(d, k, p, variant, *function);
}

danaus_status dn_cuda_function(
    gpu_device *dev, const kernel *k, const problem *p, int variant,
    gpu_function *function)
{
    cuda_device *d = (cuda_device *)dev;
    cu_function found = find_loaded(d->shared, hash_of(k, p, variant));
    danaus_status status = found ? DANAUS_OK : load_now(d, k, p, variant, &found);
    *function = found;
    return status;
}
