/* From a row and a problem to a function on the device. A use is all that one function is
   compiled from. Its hash identifies the function in the GPU's memory and on the disk. A call
   finds its function by row and problem, without the use. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/run/program.h"

#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"
#include "gpu/run/images/bundle.h"

#include <stdio.h>
#include <string.h>

#define LEAST_PLACES 64

/* ---- compiling ---- */

static const char *find_text(const char *name)
{
    const gpu_text *t = dn_gpu_texts;
    while (t->name && strcmp(t->name, name))
        t++;
    return t->content;
}

hash128 dn_gpu_hash_included(const gpu_text *texts)
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
        included = dn_gpu_hash_included(dn_gpu_texts);
    is_made = 1;
    hash128 copy = included;
    dn_unlock_process();
    return copy;
}

hash128 dn_gpu_image_key(
    const gpu_driver *driver, const char *name, const char *defines, int arch)
{
    hash128 hash = driver->hash(hash_included(), arch);
    hash = dn_hash_text(hash, danaus_version());
    hash = dn_hash_text(hash, defines);
    return dn_hash_text(hash, find_text(name));
}

danaus_status dn_gpu_compile(
    const gpu_driver *driver, const char *name, const char *defines, int arch,
    void **image, size_t *bytes, char **log, int *refused)
{
    const char *content = find_text(name);
    size_t size = strlen(defines) + strlen(content) + 1;
    char *source = dn_alloc(size);
    if (!source)
        return dn_fail_memory(size, "a kernel's text");
    snprintf(source, size, "%s%s", defines, content);
    danaus_status status = driver->compile(source, arch, image, bytes, log, refused);
    dn_free(source);
    return status;
}

void dn_gpu_hash_use(const gpu_driver *driver, gpu_use *use, int arch)
{
    use->image = dn_gpu_image_key(driver, use->text, use->defines, arch);
    use->hash = dn_hash_text(use->image, use->entry);
}

/* ---- loading ---- */

int dn_gpu_has_image(hash128 key) { return dn_shipped_has(key) || dn_cache_has(key); }

static danaus_status load(
    gpu_device *d, const gpu_use *use, const void *image, size_t bytes, int *refused,
    gpu_loaded *f)
{
    return d->shared->driver->load(d, image, bytes, use->entry, refused, f);
}

/* An image from the disk that the driver refuses is compiled again. */
static int load_kept(gpu_device *d, const gpu_use *use, gpu_loaded *f)
{
    static int (*const places[])(
        hash128 key, void **image, size_t *bytes) = { dn_shipped_load, dn_cache_load };
    void *image;
    size_t bytes;
    int refused = 0;
    for (int i = 0; i < 2 && !f->function; i++)
        if (places[i](use->image, &image, &bytes)) {
            load(d, use, image, bytes, &refused, f);
            dn_free(image);
        }
    return f->function != NULL;
}

static danaus_status load_new(
    gpu_device *d, const gpu_use *use, const void *image, size_t bytes, int *refused,
    gpu_loaded *f)
{
    TRY(load(d, use, image, bytes, refused, f));
    dn_cache_store(use->image, d->facts.arch, image, bytes);
    return DANAUS_OK;
}

static danaus_status make_function(
    gpu_device *d, const gpu_use *use, const void *image, size_t bytes, int *refused,
    gpu_loaded *f)
{
    void *compiled;
    if (image)
        return load_new(d, use, image, bytes, refused, f);
    if (load_kept(d, use, f))
        return DANAUS_OK;
    TRY(dn_gpu_compile(
        d->shared->driver, use->text, use->defines, d->facts.arch, &compiled, &bytes,
        NULL, refused));
    danaus_status status = load_new(d, use, compiled, bytes, refused, f);
    dn_free(compiled);
    return status;
}

/* ---- functions that are loaded, by hash ---- */

/* The function's place, or the empty one where it would be. */
static gpu_loaded *find_place(gpu_loaded *functions, size_t capacity, hash128 hash)
{
    size_t i = hash.part[1] & (capacity - 1);
    while (functions[i].function && !dn_hash_equal(functions[i].hash, hash))
        i = (i + 1) & (capacity - 1);
    return &functions[i];
}

static gpu_function find_loaded(gpu_shared *g, hash128 hash)
{
    gpu_function function = NULL;
    dn_lock(g->lock);
    if (g->function_capacity)
        function = find_place(g->functions, g->function_capacity, hash)->function;
    dn_unlock(g->lock);
    return function;
}

int dn_gpu_is_loaded(gpu_shared *g, const gpu_use *use)
{
    return find_loaded(g, use->hash) != NULL;
}

static danaus_status reserve_function(gpu_shared *g)
{
    if (2 * (g->function_count + 1) <= g->function_capacity)
        return DANAUS_OK;
    size_t capacity = g->function_capacity ? 2 * g->function_capacity : LEAST_PLACES;
    gpu_loaded *functions = dn_calloc(capacity, sizeof *functions);
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
static danaus_status add_loaded(gpu_device *d, gpu_loaded *f)
{
    gpu_shared *g = d->shared;
    void *module = f->module;
    dn_lock(g->lock);
    danaus_status status = reserve_function(g);
    if (status == DANAUS_OK) {
        gpu_loaded *place = find_place(g->functions, g->function_capacity, f->hash);
        if (!place->function) {
            *place = *f;
            g->function_count++;
            module = NULL;
        }
        *f = *place;
    }
    dn_unlock(g->lock);
    if (module)
        g->driver->unload(g, module);
    return status;
}

danaus_status dn_gpu_load_use(
    gpu_device *d, const gpu_use *use, const void *image, size_t bytes, int *refused,
    gpu_function *function)
{
    gpu_loaded f = { .hash = use->hash };
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

int dn_gpu_has_function(gpu_device *d, const kernel *k, const problem *p, int variant)
{
    return find_loaded(d->shared, hash_of(k, p, variant)) != NULL;
}

danaus_status dn_gpu_add_function(
    gpu_device *d, const kernel *k, const problem *p, int variant,
    gpu_function function)
{
    gpu_loaded f = { .hash = hash_of(k, p, variant), .function = function };
    return add_loaded(d, &f);
}

/* Loads or compiles a function now. While a graph is captured, nothing is compiled. */
static danaus_status load_now(
    gpu_device *d, const kernel *k, const problem *p, int variant,
    gpu_function *function)
{
    gpu_use use;
    int capturing = 0, refused = 0;
    TRY(dn_gpu_check_type(d, p->dtype));
    dn_gpu_use(k, p, variant, &use);
    dn_gpu_hash_use(d->shared->driver, &use, d->facts.arch);
    TRY(d->shared->driver->capturing(d, &capturing));
    if (capturing && !dn_gpu_has_image(use.image))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "this call needs a kernel that is not compiled "
                                    "yet, and cannot be while a graph "
                                    "is captured: run the call once before");
    TRY(dn_gpu_load_use(d, &use, NULL, 0, &refused, function));
    return dn_gpu_add_function(d, k, p, variant, *function);
}

danaus_status dn_gpu_function(
    gpu_device *d, const kernel *k, const problem *p, int variant,
    gpu_function *function)
{
    *function = find_loaded(d->shared, hash_of(k, p, variant));
    return *function ? DANAUS_OK : load_now(d, k, p, variant, function);
}

void dn_gpu_unload_all(gpu_shared *g)
{
    for (size_t i = 0; i < g->function_capacity; i++)
        if (g->functions[i].module)
            g->driver->unload(g, g->functions[i].module);
    dn_free(g->functions);
    dn_free(g->refused);
}
