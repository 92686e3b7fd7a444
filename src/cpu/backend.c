/* The CPU as a device: opening, threads, memory, scratch. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv/conv.h"
#include "cpu/nn/nn.h"
#include "cpu/product/rows.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/quota.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Never more threads than this for one product. */
#define MOST_THREADS 1024

static cpu_device *cpu(danaus_device *dev) { return (cpu_device *)dev; }

/* A number that Linux says of a cache of the first processor, in KiB if it is a size; or
   -1. */
static long cache_number(int index, const char *what)
{
    char path[96];
    long number = -1;
    snprintf(
        path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index,
        what);
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%ld", &number) != 1)
        number = -1;
    if (f)
        fclose(f);
    return number;
}

/* Bytes of a level's cache, or `otherwise` where the system does not say. The C library
   adds up the last caches of a whole AMD processor. */
static size_t cache_bytes(long level, int name, size_t otherwise)
{
    long bytes = -1, found;
    for (int index = 0; (found = cache_number(index, "level")) > 0; index++)
        if (found == level)
            bytes = cache_number(index, "size") * 1024;
    if (bytes <= 0)
        bytes = sysconf(name);
    return bytes > 0 ? (size_t)bytes : otherwise;
}

static void describe_processor(char *text, size_t size)
{
    snprintf(text, size, "unknown processor");
    FILE *f = fopen("/proc/cpuinfo", "r");
    if (!f)
        return;
    char line[256];
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, "model name", 10) && strchr(line, ':')) {
            snprintf(text, size, "%s", strchr(line, ':') + 2);
            text[strcspn(text, "\n")] = '\0';
            break;
        }
    fclose(f);
}

static int cpu_refuses(const danaus_device *dev, const kernel *k)
{
    return ((const cpu_code *)k->code)->dots.fast &&
           !((const cpu_device *)dev)->fast_dots;
}

static danaus_status cpu_open(const char *name, danaus_device **device)
{
    const char *limit = name[3] == ':' ? name + 4 : "";
    int named = name[3] == '\0' || (name[3] == ':' && *limit);
    const cpu_isa *isa = named ? dn_cpu_best(dn_cpu_isas, limit) : NULL;
    if (!isa)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "this build has no instruction set \"%.40s\"", limit);
    cpu_device *d = dn_calloc(1, sizeof *d);
    if (!d)
        return dn_fail_memory(sizeof *d, "a device");
    snprintf(d->base.name, sizeof d->base.name, "cpu:%s", isa->name);
    d->base.kernels = isa->kernels;
    d->isa = isa->name;
    d->conv = isa->conv;
    d->activations = isa->activations;
    d->nn = isa->nn;
    d->fast_dots = isa->has_dots();
    d->traits = dn_cpu_traits(isa->name);
    d->threads = dn_thread_count();
    d->l2 = cache_bytes(2, _SC_LEVEL2_CACHE_SIZE, (size_t)512 << 10);
    d->l3 = cache_bytes(3, _SC_LEVEL3_CACHE_SIZE, (size_t)8 << 20);
    *device = &d->base;
    return DANAUS_OK;
}

static danaus_status cpu_describe(const danaus_device *dev, danaus_device_info *info)
{
    const cpu_device *d = (const cpu_device *)dev;
    danaus_device_info i = { .threads = d->threads, .cache = (int64_t)d->l3 };
    snprintf(i.name, sizeof i.name, "%s", dev->name);
    snprintf(i.instructions, sizeof i.instructions, "%s", d->isa);
    describe_processor(i.description, sizeof i.description);
    i.memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    *info = i;
    return DANAUS_OK;
}

static int64_t cpu_room(const danaus_device *dev)
{
    (void)dev;
    return dn_memory_room("");
}

static danaus_status cpu_sync(danaus_device *dev)
{
    (void)dev;
    return DANAUS_OK;
}

static danaus_status cpu_set_stream(danaus_device *dev, void *stream)
{
    (void)dev;
    if (stream)
        return dn_fail(DANAUS_ERR_UNSUPPORTED, "a CPU device has no streams");
    return DANAUS_OK;
}

static danaus_status cpu_set_threads(danaus_device *dev, int threads)
{
    if (threads < 0 || threads > MOST_THREADS)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "%d threads; 0 to %d are possible", threads,
            MOST_THREADS);
    threads = threads ? threads : dn_thread_count();
    if (threads != cpu(dev)->threads) {
        dn_pool_destroy(cpu(dev)->pool);
        cpu(dev)->pool = NULL;
        cpu(dev)->threads = threads;
    }
    return DANAUS_OK;
}

static danaus_status cpu_set_parallel(
    danaus_device *dev, danaus_parallel_fn fn, void *user)
{
    cpu(dev)->parallel = fn;
    cpu(dev)->user = user;
    return DANAUS_OK;
}

static void drop_scratch(cpu_device *d)
{
    if (d->allocator.free && d->scratch)
        d->allocator.free(d->allocator.user, d->scratch, NULL);
    else if (!d->scratch_lent)
        dn_free(d->scratch);
    d->scratch = NULL;
    d->scratch_bytes = 0;
}

static danaus_status cpu_set_scratch(danaus_device *dev, void *memory, size_t bytes)
{
    cpu_device *d = cpu(dev);
    drop_scratch(d);
    d->allocator = (danaus_allocator){ 0 };
    d->scratch = memory;
    d->scratch_bytes = memory ? bytes : 0;
    d->scratch_lent = memory != NULL;
    return DANAUS_OK;
}

static danaus_status cpu_set_allocator(
    danaus_device *dev, const danaus_allocator *allocator)
{
    cpu_set_scratch(dev, NULL, 0);
    if (allocator)
        cpu(dev)->allocator = *allocator;
    return DANAUS_OK;
}

static danaus_status ask_allocator(cpu_device *d, size_t bytes)
{
    const danaus_allocator *a = &d->allocator;
    void *memory = NULL;
    danaus_status status = a->alloc(a->user, bytes, NULL, &memory);
    if (status != DANAUS_OK)
        return dn_fail(
            status, "the allocator did not give %zu bytes of scratch", bytes);
    d->scratch = memory;
    d->scratch_bytes = bytes;
    if (memory && (uintptr_t)memory % DANAUS_SCRATCH_ALIGN == 0)
        return DANAUS_OK;
    drop_scratch(d);
    return dn_fail(
        DANAUS_ERR_ARGUMENT, "scratch of an allocator must be aligned to %d bytes",
        DANAUS_SCRATCH_ALIGN);
}

static danaus_status grow_scratch(cpu_device *d, size_t bytes)
{
    if (d->scratch_lent)
        return dn_fail(
            DANAUS_ERR_MEMORY,
            "this product needs %zu bytes of scratch, the device was lent %zu", bytes,
            d->scratch_bytes);
    drop_scratch(d);
    if (d->allocator.alloc)
        return ask_allocator(d, bytes);
    d->scratch = dn_alloc(bytes);
    d->scratch_bytes = d->scratch ? bytes : 0;
    return d->scratch ? DANAUS_OK : dn_fail_memory(bytes, "scratch");
}

danaus_status dn_cpu_scratch(cpu_device *d, size_t bytes, void **scratch)
{
    static char none;
    if (d->asks) {
        d->asked = bytes;
        return DANAUS_ERR_MEMORY;
    }
    if (bytes > d->scratch_bytes)
        TRY(grow_scratch(d, bytes));
    *scratch = d->scratch ? d->scratch : &none;
    return DANAUS_OK;
}

void dn_cpu_give_scratch(cpu_device *d)
{
    if (d->allocator.free)
        drop_scratch(d);
}

/* ---- products, whose scratch an allocator gets back ---- */

static danaus_status cpu_ks_run(
    danaus_device *dev, const ks_step *steps, int count, const ks_operands *o)
{
    danaus_status status = dn_cpu_ks_run(dev, steps, count, o);
    dn_cpu_give_scratch(cpu(dev));
    return status;
}

static danaus_status cpu_ks_gradient(
    danaus_device *dev, const ks_step *steps, const ks_step *adjoint, int count,
    const ks_gradient_operands *o)
{
    danaus_status status = dn_cpu_ks_gradient(dev, steps, adjoint, count, o);
    dn_cpu_give_scratch(cpu(dev));
    return status;
}

/* A call asks once, before it does anything, and gets nothing. */
static size_t cpu_ks_scratch(
    danaus_device *dev, const ks_step *steps, int count, int64_t batch)
{
    const void *packed[DANAUS_MAX_FACTORS] = { 0 };
    char some;
    ks_operands o = { .batch = batch,
                      .x = &some,
                      .y = &some,
                      .packed = packed,
                      .activation = (danaus_activation)steps[count - 1].p.activation,
                      .residual = steps[count - 1].p.residual ? &some : NULL };
    cpu(dev)->asks = 1;
    cpu(dev)->asked = 0;
    dn_cpu_ks_run(dev, steps, count, &o);
    cpu(dev)->asks = 0;
    return cpu(dev)->asked;
}

static size_t cpu_gradient_scratch(
    danaus_device *dev, const ks_step *steps, const ks_step *adjoint,
    const ks_step *dw_steps, int count, int64_t batch)
{
    (void)dw_steps;
    danaus_dtype type = steps->p.dtype;
    const void *packed[DANAUS_MAX_FACTORS] = { 0 };
    weights_view dw[DANAUS_MAX_FACTORS] = { 0 };
    char some;
    for (int i = 0; i < count; i++)
        dw[i].data = &some;
    ks_gradient_operands o = { .batch = batch,
                               .packed = packed,
                               .packed_adjoint = packed,
                               .dx = &some,
                               .dw = dw,
                               .dbias = &some,
                               .rounded = dn_sum_type(type) != type };
    cpu(dev)->asks = 1;
    cpu(dev)->asked = 0;
    dn_cpu_ks_gradient(dev, steps, adjoint, count, &o);
    cpu(dev)->asks = 0;
    return cpu(dev)->asked;
}

static void cpu_close(danaus_device *dev)
{
    dn_pool_destroy(cpu(dev)->pool);
    cpu_set_scratch(dev, NULL, 0);
    dn_free(dev);
}

static danaus_status cpu_list(int index, danaus_device_info *info)
{
    if (index != 0)
        return dn_fail(DANAUS_ERR_ARGUMENT, "there is one CPU device, number 0");
    danaus_device *dev;
    TRY(cpu_open("cpu", &dev));
    danaus_status status = cpu_describe(dev, info);
    snprintf(info->name, sizeof info->name, "cpu");
    cpu_close(dev);
    return status;
}

/* Without a pool one thread does all: slower, never wrong. */
static void make_pool(cpu_device *d, int count)
{
    if (!d->pool && count > 1 && d->threads > 1)
        dn_pool_create(d->threads, &d->pool);
}

void dn_cpu_parallel(cpu_device *d, int count, parallel_task task, void *arg)
{
    if (d->parallel) {
        d->parallel(d->user, count, task, arg);
        return;
    }
    make_pool(d, count);
    dn_pool_run(d->pool, count, task, arg);
}

void dn_cpu_parallel_short(cpu_device *d, int count, parallel_task task, void *arg)
{
    if (!d->parallel)
        make_pool(d, count);
    dn_pool_run_short(d->parallel ? NULL : d->pool, count, task, arg);
}

static int cpu_threads(const danaus_device *dev)
{
    return ((const cpu_device *)dev)->threads;
}

static void cpu_parallel(danaus_device *dev, int count, parallel_task task, void *arg)
{
    dn_cpu_parallel(cpu(dev), count, task, arg);
}

static danaus_status cpu_alloc(danaus_device *dev, size_t bytes, void **memory)
{
    (void)dev;
    void *m = dn_alloc_aligned(bytes, DANAUS_SCRATCH_ALIGN);
    if (!m)
        return dn_fail_memory(bytes, "the caller");
    *memory = m;
    return DANAUS_OK;
}

static void cpu_free(danaus_device *dev, void *memory)
{
    (void)dev;
    dn_free(memory);
}

static danaus_status cpu_copy(
    danaus_device *dev, void *to, const void *from, size_t bytes)
{
    (void)dev;
    if (bytes)
        memcpy(to, from, bytes);
    return DANAUS_OK;
}

static danaus_status cpu_clear(danaus_device *dev, void *memory, size_t bytes)
{
    (void)dev;
    memset(memory, 0, bytes);
    return DANAUS_OK;
}

const backend dn_backend_cpu = {
    .name = "cpu",
    .on_host = 1,
    .list = cpu_list,
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .room = cpu_room,
    .sync = cpu_sync,
    .set_stream = cpu_set_stream,
    .set_threads = cpu_set_threads,
    .set_parallel = cpu_set_parallel,
    .set_scratch = cpu_set_scratch,
    .set_allocator = cpu_set_allocator,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .copy = cpu_copy,
    .clear = cpu_clear,
    .refuses = cpu_refuses,
    .ks_run = cpu_ks_run,
    .adds = dn_cpu_ks_adds,
    .ks_gradient = cpu_ks_gradient,
    .ks_scratch = cpu_ks_scratch,
    .gradient_scratch = cpu_gradient_scratch,
    .pick = dn_cpu_pick,
    .threads = cpu_threads,
    .parallel = cpu_parallel,
    .packing = dn_cpu_packing,
    .conv = &dn_cpu_conv,
    .nn = &dn_cpu_nn,
};
