/* From a row and a problem to a function on the device. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda.h"

#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"
#include "cuda/bundle.h"
#include "cuda/nvrtc.h"
#include "math/pattern.h"

#include <stdio.h>
#include <string.h>

#define LEAST_ENTRIES 64
#define LEAST_MODULES 16
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
    char **log)
{
    const char *content = find_text(name);
    size_t size = strlen(defines) + strlen(content) + 1;
    char *source = dn_alloc(size);
    if (!source)
        return dn_fail_memory(size, "a kernel's text");
    snprintf(source, size, "%s%s", defines, content);
    danaus_status status = dn_nvrtc_compile(source, arch, image, bytes, log);
    dn_free(source);
    return status;
}

static danaus_status load_module(
    cuda_device *d, const void *image, const char *entry, cuda_module *m)
{
    CUDA_TRY(d->driver, ModuleLoadData(&m->module, image));
    int fixed = 0, most = (int)d->gpu.facts.shared;
    cu_result result = d->driver->ModuleGetFunction(&m->function, m->module, entry);
    if (!result)
        result =
            d->driver->FuncGetAttribute(&fixed, CU_FUNCTION_STATIC_SHARED, m->function);
    if (!result && most > (STATIC_SHARED) && fixed < most)
        result = d->driver->FuncSetAttribute(
            m->function, CU_FUNCTION_DYNAMIC_SHARED, most - fixed);
    if (result) {
        d->driver->ModuleUnload(m->module);
        m->module = NULL;
        return dn_cuda_status(d->driver, result, "loading a kernel");
    }
    return DANAUS_OK;
}

int dn_cuda_has_image(hash128 key) { return dn_shipped_has(key) || dn_cache_has(key); }

/* An image from the disk that the driver refuses is compiled again. */
static danaus_status make_module(cuda_device *d, const char *entry, cuda_module *m)
{
    static int (*const places[])(
        hash128 key, void **image, size_t *bytes) = { dn_shipped_load, dn_cache_load };
    void *image;
    size_t bytes;
    int arch = d->gpu.facts.arch;
    hash128 key = dn_cuda_key(m->name, m->defines, arch);
    for (int i = 0; i < 2; i++)
        if (places[i](key, &image, &bytes)) {
            danaus_status status = load_module(d, image, entry, m);
            dn_free(image);
            if (status == DANAUS_OK)
                return status;
        }
    if (!dn_cuda_take_ahead(d, key, &image, &bytes))
        TRY(dn_cuda_compile(m->name, m->defines, arch, &image, &bytes, NULL));
    danaus_status status = load_module(d, image, entry, m);
    if (status == DANAUS_OK)
        dn_cache_store(key, arch, image, bytes);
    dn_free(image);
    return status;
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
}

static uint64_t hash_of(const char *name, const char *defines)
{
    uint64_t hash = 0;
    for (const char *at = name; *at; at++)
        hash = mix(hash, (unsigned char)*at);
    for (const char *at = defines; *at; at++)
        hash = mix(hash, (unsigned char)*at);
    return hash;
}

static const cuda_module *find_module(
    const cuda_gpu *g, uint64_t hash, const char *name, const char *defines)
{
    for (size_t i = 0; i < g->module_count; i++) {
        const cuda_module *m = &g->modules[i];
        if (m->hash == hash && !strcmp(m->name, name) && !strcmp(m->defines, defines))
            return m;
    }
    return NULL;
}

/* The function of such a text, if it is there. */
static int find_loaded(
    cuda_gpu *g, uint64_t hash, const char *name, const char *defines,
    cu_function *function)
{
    dn_lock(g->lock);
    const cuda_module *known = find_module(g, hash, name, defines);
    if (known)
        *function = known->function;
    dn_unlock(g->lock);
    return known != NULL;
}

int dn_cuda_is_loaded(cuda_device *d, const char *name, const char *defines)
{
    cu_function function;
    return find_loaded(d->shared, hash_of(name, defines), name, defines, &function);
}

static danaus_status reserve_module(cuda_gpu *g)
{
    if (g->module_count < g->module_capacity)
        return DANAUS_OK;
    size_t more = g->module_capacity ? 2 * g->module_capacity : LEAST_MODULES;
    cuda_module *grown =
        dn_grow(g->modules, g->module_count * sizeof *grown, more * sizeof *grown);
    if (!grown)
        return dn_fail_memory(more * sizeof *grown, "a list of kernels");
    g->modules = grown;
    g->module_capacity = more;
    return DANAUS_OK;
}

/* *m is in the list now, or else the one of another thread that was faster. */
static danaus_status add_module(cuda_gpu *g, cuda_module *m, int *is_added)
{
    danaus_status status = DANAUS_OK;
    dn_lock(g->lock);
    const cuda_module *known = find_module(g, m->hash, m->name, m->defines);
    if (known)
        m->function = known->function;
    else
        status = reserve_module(g);
    *is_added = !known && status == DANAUS_OK;
    if (*is_added)
        g->modules[g->module_count++] = *m;
    dn_unlock(g->lock);
    return status;
}

danaus_status dn_cuda_load(
    cuda_device *d, const char *name, const char *defines, const char *entry,
    cu_function *function)
{
    uint64_t hash = hash_of(name, defines);
    if (find_loaded(d->shared, hash, name, defines, function))
        return DANAUS_OK;
    int is_added = 0;
    size_t size = strlen(defines) + 1;
    cuda_module m = { .name = name, .defines = dn_alloc(size), .hash = hash };
    if (!m.defines)
        return dn_fail_memory(size, "a kernel's defines");
    memcpy(m.defines, defines, size);
    danaus_status status = make_module(d, entry, &m);
    if (status == DANAUS_OK)
        status = add_module(d->shared, &m, &is_added);
    if (!is_added) {
        if (m.module)
            d->driver->ModuleUnload(m.module);
        dn_free(m.defines);
    }
    if (status == DANAUS_OK)
        *function = m.function;
    return status;
}

/* ---- finding ---- */

static int is_same(const cuda_entry *a, const cuda_entry *b)
{
    return a->kernel == b->kernel && dn_pattern_equal(a->pattern, b->pattern) &&
           dn_pattern_equal(a->inner, b->inner) && a->layout == b->layout &&
           a->math == b->math && a->variant == b->variant &&
           a->activation == b->activation;
}

/* The entry's place, or the empty one where it would be. */
static cuda_entry *find_entry(
    cuda_entry *entries, size_t capacity, const cuda_entry *wanted)
{
    danaus_pattern p = wanted->pattern;
    uint64_t hash = mix(mix(0, (uint64_t)p.a), (uint64_t)p.b);
    hash = mix(mix(hash, (uint64_t)p.c), (uint64_t)p.d);
    hash = mix(mix(hash, (uint64_t)wanted->inner.a), (uint64_t)wanted->inner.b);
    hash = mix(hash, (uintptr_t)wanted->kernel);
    hash =
        mix(hash, (uint64_t)wanted->layout << 24 | (uint64_t)wanted->math << 16 |
                      (uint64_t)wanted->variant << 8 | (uint64_t)wanted->activation);
    size_t i = hash & (capacity - 1);
    while (entries[i].kernel && !is_same(&entries[i], wanted))
        i = (i + 1) & (capacity - 1);
    return &entries[i];
}

static danaus_status reserve_entry(cuda_gpu *g)
{
    if (2 * (g->entry_count + 1) <= g->entry_capacity)
        return DANAUS_OK;
    size_t capacity = g->entry_capacity ? 2 * g->entry_capacity : LEAST_ENTRIES;
    cuda_entry *entries = dn_calloc(capacity, sizeof *entries);
    if (!entries)
        return dn_fail_memory(capacity * sizeof *entries, "a table of kernels");
    for (size_t i = 0; i < g->entry_capacity; i++)
        if (g->entries[i].kernel)
            *find_entry(entries, capacity, &g->entries[i]) = g->entries[i];
    dn_free(g->entries);
    g->entries = entries;
    g->entry_capacity = capacity;
    return DANAUS_OK;
}

static cuda_entry entry_of(const kernel *k, const problem *p, int variant)
{
    return (cuda_entry){ k,       p->pattern, p->inner,      p->layout,
                         p->math, variant,    p->activation, NULL };
}

/* Whether there is the entry, which then gets its function. */
static int known_entry(cuda_gpu *g, cuda_entry *e)
{
    dn_lock(g->lock);
    const cuda_entry *place =
        g->entry_capacity ? find_entry(g->entries, g->entry_capacity, e) : NULL;
    int known = place && place->kernel;
    if (known)
        e->function = place->function;
    dn_unlock(g->lock);
    return known;
}

static danaus_status add_entry(cuda_gpu *g, const cuda_entry *e)
{
    dn_lock(g->lock);
    danaus_status status = reserve_entry(g);
    if (status == DANAUS_OK) {
        cuda_entry *place = find_entry(g->entries, g->entry_capacity, e);
        g->entry_count += !place->kernel;
        *place = *e;
    }
    dn_unlock(g->lock);
    return status;
}

int dn_cuda_has_function(cuda_device *d, const kernel *k, const problem *p, int variant)
{
    cuda_entry e = entry_of(k, p, variant);
    return known_entry(d->shared, &e);
}

danaus_status dn_cuda_function(
    cuda_device *d, const kernel *k, const problem *p, int variant,
    cu_function *function)
{
    cuda_entry e = entry_of(k, p, variant);
    if (!known_entry(d->shared, &e)) {
        const gpu_family *f = dn_gpu_family(k);
        char defines[MOST_DEFINES];
        text t = { defines, sizeof defines, 0 };
        f->defines(k, p, variant, &t);
        TRY(dn_cuda_load(d, f->text, defines, "ks", &e.function));
        TRY(add_entry(d->shared, &e));
    }
    *function = e.function;
    return DANAUS_OK;
}
