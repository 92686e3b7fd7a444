/* What commands open: a device, one array of a file. */
// SPDX-License-Identifier: Apache-2.0
#include "common/open.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

danaus_math math_of(int accuracy)
{
    return accuracy == DANAUS_CONV_FAST ? DANAUS_MATH_TF32 : DANAUS_MATH_F32;
}

int open_device(const device_options *options, danaus_device **device)
{
    danaus_device *dev;
    if (options->threads > INT_MAX)
        return usage_error("--threads %" PRId64 " is out of range", options->threads);
    TRY(library(danaus_device_open(options->name ? options->name : "cpu", &dev)));
    if (danaus_device_set_threads(dev, (int)options->threads) ||
        (options->tuning && danaus_device_load_tuning(dev, options->tuning))) {
        danaus_device_close(dev);
        return library_failure();
    }
    *device = dev;
    return STATUS_OK;
}

int load_older(danaus_device *device, const output *o)
{
    struct stat s;
    if (!o->replaced || stat(o->path, &s) || s.st_size == 0)
        return STATUS_OK;
    return library(danaus_device_load_tuning(device, o->path));
}

static int find(
    const char *path, const char *name, const danaus_file *file, danaus_tensor *tensor)
{
    int count = danaus_file_count(file);
    if (name)
        return library(danaus_file_find(file, name, tensor));
    if (count != 1)
        return failure("%s has %d tensors: say which one with --tensor", path, count);
    return library(danaus_file_tensor(file, 0, tensor));
}

int open_tensor(
    const char *path, const char *name, danaus_file **file, danaus_tensor *tensor)
{
    danaus_file *f;
    TRY(library(danaus_file_open(path, &f)));
    int status = find(path, name, f, tensor);
    if (status == STATUS_OK)
        *file = f;
    else
        danaus_file_close(f);
    return status;
}

void format_shape(const danaus_tensor *tensor, char *text, size_t size)
{
    size_t length =
        (size_t)snprintf(text, size, "%s", tensor->ndim ? "" : "one element");
    for (int i = 0; i < tensor->ndim && length < size; i++)
        length += (size_t)snprintf(
            text + length, size - length, "%s%" PRId64, i ? " x " : "",
            tensor->shape[i]);
}

int is_complex(danaus_dtype dtype)
{
    return dtype == DANAUS_C64 || dtype == DANAUS_C128;
}

int64_t tensor_elements(const danaus_tensor *tensor)
{
    int64_t elements = 1;
    for (int i = 0; i < tensor->ndim; i++)
        elements *= tensor->shape[i];
    return elements;
}

const void *tensor_as(const danaus_tensor *tensor, danaus_dtype dtype, void **owned)
{
    if (tensor->dtype == dtype)
        return tensor->data;
    int64_t elements = tensor_elements(tensor);
    *owned = malloc((size_t)elements * danaus_dtype_size(dtype) + 1);
    if (*owned &&
        danaus_convert(tensor->dtype, tensor->data, dtype, *owned, elements)) {
        free(*owned);
        *owned = NULL;
    }
    return *owned;
}
