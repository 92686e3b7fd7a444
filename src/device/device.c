/* device.h, by forwarding to the backend that a device's name begins with. */
// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "device/conv.h"
#include "device/tuning.h"

#include <string.h>

static const backend *const backends[] = {
#define X(name) &dn_backend_##name,
#include "device/backends.def"
#undef X
};

#define BACKENDS ((int)(sizeof backends / sizeof *backends))

danaus_status dn_check_place(const danaus_device *device, const char *made_for)
{
    if (!strcmp(made_for, device->name))
        return DANAUS_OK;
    return dn_fail(
        DANAUS_ERR_ARGUMENT, "this was made for %s, and the device is %s", made_for,
        device->name);
}

danaus_status dn_pack(
    danaus_device *dev, const ks_step *step, weights_view w, void *packed)
{
    const kernel *k = step->kernel;
    if (dev->backend->on_host) {
        k->family->pack(k, &step->p, w, packed);
        return DANAUS_OK;
    }
    size_t bytes = dn_packed_bytes(k, &step->p);
    void *host = dn_alloc(bytes);
    if (!host)
        return dn_fail_memory(bytes, "packed weights");
    k->family->pack(k, &step->p, w, host);
    danaus_status status = dev->backend->copy(dev, packed, host, bytes);
    dn_free(host);
    return status;
}

danaus_status dn_put_numbers(
    danaus_device *dev, danaus_dtype from_type, const void *from, danaus_dtype to_type,
    void *to, int64_t count)
{
    size_t bytes = (size_t)count * danaus_dtype_size(to_type);
    if (dev->backend->on_host) {
        dn_convert(from_type, from, to_type, to, count);
        return DANAUS_OK;
    }
    void *host = dn_alloc(bytes);
    if (!host)
        return dn_fail_memory(bytes, "numbers to upload");
    dn_convert(from_type, from, to_type, host, count);
    danaus_status status = dev->backend->copy(dev, to, host, bytes);
    dn_free(host);
    return status;
}

/* Goes to the device number `index`, or past the last one: *seen are before it. */
static danaus_status walk(int index, danaus_device_info *info, int *seen)
{
    for (int b = 0; b < BACKENDS; b++) {
        danaus_status status = DANAUS_OK;
        for (int i = 0; status == DANAUS_OK; i++) {
            status = backends[b]->list(i, info);
            if (status == DANAUS_OK && (*seen)++ == index)
                return DANAUS_OK;
        }
        if (status != DANAUS_ERR_ARGUMENT) /* which is past the last one */
            return status;
    }
    return DANAUS_OK;
}

danaus_status danaus_device_count(int *count)
{
    danaus_device_info info;
    int seen = 0;
    if (!count)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a place for the number is needed");
    TRY(walk(-1, &info, &seen));
    *count = seen;
    return DANAUS_OK;
}

danaus_status danaus_device_list(int index, danaus_device_info *info)
{
    danaus_device_info found = { 0 };
    int seen = 0;
    if (!info || index < 0)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a number from 0 and a place are needed");
    TRY(walk(index, &found, &seen));
    if (seen <= index)
        return dn_fail(DANAUS_ERR_ARGUMENT, "this machine has %d devices", seen);
    *info = found;
    return DANAUS_OK;
}

/* A device that its backend has opened gets its table, or is closed. */
static danaus_status finish_opening(
    const backend *b, danaus_device *dev, danaus_device **device)
{
    dev->backend = b;
    danaus_status status =
        b->shares_tuning ? DANAUS_OK : dn_tuning_open(dev, &dev->tuning);
    if (status == DANAUS_OK)
        *device = dev;
    else
        danaus_device_close(dev);
    return status;
}

danaus_status danaus_device_open(const char *name, danaus_device **device)
{
    if (!name || !device)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a device name and a place are needed");
    size_t length = strcspn(name, ":");
    for (int b = 0; b < BACKENDS; b++)
        if (strlen(backends[b]->name) == length &&
            !strncmp(backends[b]->name, name, length)) {
            danaus_device *dev;
            TRY(backends[b]->open(name, &dev));
            return finish_opening(backends[b], dev, device);
        }
    return dn_fail(
        DANAUS_ERR_ARGUMENT,
        "there is no device \"%.40s\": names are cpu, cpu:avx2 and the like, and "
        "cuda:0",
        name);
}

danaus_status danaus_device_open_queue(void *queue, danaus_device **device)
{
    if (!queue || !device)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a queue and a place are needed");
    for (int b = 0; b < BACKENDS; b++)
        if (backends[b]->open_queue) {
            danaus_device *dev;
            TRY(backends[b]->open_queue(queue, &dev));
            return finish_opening(backends[b], dev, device);
        }
    return dn_fail(DANAUS_ERR_UNSUPPORTED, "this build of danaus has no OpenCL");
}

void danaus_device_close(danaus_device *device)
{
    if (!device)
        return;
    if (!device->backend->shares_tuning)
        dn_tuning_destroy(device->tuning);
    device->backend->close(device);
}

#define NEED(condition)                                                                \
    do {                                                                               \
        if (!(condition))                                                              \
            return dn_fail(                                                            \
                DANAUS_ERR_ARGUMENT, "%s: %s is needed", __func__, #condition);        \
    } while (0)

danaus_status danaus_device_describe(
    const danaus_device *device, danaus_device_info *info)
{
    NEED(device);
    NEED(info);
    danaus_device_info found = { 0 };
    TRY(device->backend->describe(device, &found));
    *info = found;
    return DANAUS_OK;
}

/* The name of kernel number `index`, and the name of its operation; or NULL. */
static const char *name_kernel(
    const danaus_device *device, int index, const char **operation)
{
    if (!device || index < 0)
        return NULL;
    for (const kernel *k = device->kernels; k->name; k++)
        if (index-- == 0) {
            *operation = dn_operation_names[k->family->operation];
            return k->name;
        }
    *operation = "convolution";
    const conv_backend *conv = device->backend->conv;
    const conv_kernel *k = conv && conv->kernel ? conv->kernel(device, index) : NULL;
    return k ? k->name : NULL;
}

const char *danaus_device_kernel(const danaus_device *device, int index)
{
    const char *operation;
    return name_kernel(device, index, &operation);
}

const char *danaus_device_operation(const danaus_device *device, int index)
{
    const char *operation;
    return name_kernel(device, index, &operation) ? operation : NULL;
}

danaus_status danaus_device_sync(danaus_device *device)
{
    NEED(device);
    return device->backend->sync(device);
}

danaus_status danaus_device_set_stream(danaus_device *device, void *stream)
{
    NEED(device);
    return device->backend->set_stream(device, stream);
}

danaus_status danaus_device_set_threads(danaus_device *device, int threads)
{
    NEED(device);
    return device->backend->set_threads(device, threads);
}

danaus_status danaus_device_set_parallel(
    danaus_device *device, danaus_parallel_fn fn, void *user)
{
    NEED(device);
    return device->backend->set_parallel(device, fn, user);
}

danaus_status danaus_device_set_scratch(
    danaus_device *device, void *memory, size_t bytes)
{
    NEED(device);
    if ((uintptr_t)memory % DANAUS_SCRATCH_ALIGN)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "scratch must be aligned to %d bytes",
            DANAUS_SCRATCH_ALIGN);
    return device->backend->set_scratch(device, memory, bytes);
}

danaus_status danaus_device_set_allocator(
    danaus_device *device, const danaus_allocator *allocator)
{
    NEED(device);
    if (allocator && (!allocator->alloc || !allocator->free))
        return dn_fail(DANAUS_ERR_ARGUMENT, "an allocator needs both of its functions");
    if (allocator)
        TRY(dn_check_reserved(allocator->reserved, sizeof allocator->reserved));
    return device->backend->set_allocator(device, allocator);
}

danaus_status danaus_device_load_tuning(danaus_device *device, const char *path)
{
    NEED(device);
    NEED(path);
    int64_t skipped;
    return dn_tuning_load(device->tuning, device, path, &skipped);
}

danaus_status danaus_device_save_tuning(const danaus_device *device, const char *path)
{
    NEED(device);
    NEED(path);
    return dn_tuning_save(device->tuning, device, path);
}

danaus_status danaus_device_energy(danaus_device *device, double *joules)
{
    NEED(device);
    NEED(joules);
    if (!device->backend->energy)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "the energy of %s is not counted: GPUs count theirs", device->name);
    return device->backend->energy(device, joules);
}

/* The backend that compiles kernels. */
static danaus_status find_compiling(const backend **found)
{
    for (int b = 0; b < BACKENDS; b++)
        if (backends[b]->export_kernels) {
            *found = backends[b];
            return DANAUS_OK;
        }
    return dn_fail(
        DANAUS_ERR_UNSUPPORTED, "this build has no devices whose kernels are compiled");
}

danaus_status danaus_kernels_export(
    const char *instructions, const char *path, int64_t *count)
{
    const backend *b = NULL;
    int64_t number;
    NEED(path);
    TRY(find_compiling(&b));
    return b->export_kernels(instructions, path, count ? count : &number);
}

danaus_status danaus_kernels_import(const char *path, int64_t *count)
{
    const backend *b = NULL;
    int64_t number;
    NEED(path);
    TRY(find_compiling(&b));
    return b->import_kernels(path, count ? count : &number);
}

danaus_status danaus_kernels_list(
    const char *path, int index, danaus_kernels_info *info)
{
    const backend *b = NULL;
    NEED(path);
    NEED(info);
    NEED(index >= 0);
    TRY(find_compiling(&b));
    return b->list_kernels(path, index, info);
}

danaus_status danaus_kernels_use(const char *path)
{
    const backend *b = NULL;
    NEED(path);
    TRY(find_compiling(&b));
    return b->use_kernels(path);
}

danaus_status danaus_library_locate(const char *library, const char *path)
{
    const backend *b = NULL;
    NEED(library);
    TRY(find_compiling(&b));
    return b->locate_library(library, path);
}

danaus_status danaus_alloc(danaus_device *device, size_t bytes, void **memory)
{
    NEED(device);
    NEED(memory);
    return device->backend->alloc(device, bytes, memory);
}

void danaus_free(danaus_device *device, void *memory)
{
    if (device && memory)
        device->backend->free(device, memory);
}

danaus_status danaus_upload(
    danaus_device *device, void *to, const void *from, size_t bytes)
{
    NEED(device);
    NEED((to && from) || !bytes);
    return device->backend->copy(device, to, from, bytes);
}

danaus_status danaus_download(
    danaus_device *device, void *to, const void *from, size_t bytes)
{
    NEED(device);
    NEED((to && from) || !bytes);
    return device->backend->copy(device, to, from, bytes);
}
