/* What commands open: a device, one array of a file. */
// SPDX-License-Identifier: Apache-2.0
#include "common/open.h"

#include "common/room.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

danaus_math math_of(int accuracy)
{
    return accuracy == DANAUS_CONV_FAST ? DANAUS_MATH_TF32 : DANAUS_MATH_F32;
}

int open_device(const device_options *options, danaus_device **device)
{
    danaus_device *dev;
    TRY(args_most("threads", options->threads, INT_MAX));
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

/* The only array. `many`: what to do where there are more. */
static int find_only(
    const char *path, const char *many, const danaus_file *file, danaus_tensor *tensor)
{
    int count = danaus_file_count(file);
    danaus_file_entry entry;
    if (count > 1)
        return failure("%s has %d arrays: %s", path, count, many);
    if (!count && !danaus_file_entry_at(file, 0, &entry))
        return failure(
            "%s has no array that is computed with: \"%s\" is of type %s", path,
            entry.name, entry.type);
    TRY(fail_if(!count, "%s has no array", path));
    return library(danaus_file_tensor(file, 0, tensor));
}

static int open_found(
    const char *path, const char *name, const char *many, danaus_file **file,
    danaus_tensor *tensor)
{
    danaus_file *f;
    TRY(library(danaus_file_open(path, &f)));
    int status = name ? fail_if(
                            danaus_file_find(f, name, tensor) != DANAUS_OK, "%s: %s",
                            path, danaus_error_detail())
                      : find_only(path, many, f, tensor);
    if (status == STATUS_OK)
        *file = f;
    else
        danaus_file_close(f);
    return status;
}

int open_array(const char *path, danaus_file **file, danaus_tensor *tensor)
{
    return open_found(path, NULL, "one is needed here", file, tensor);
}

int open_tensor(
    const char *path, const char *name, danaus_file **file, danaus_tensor *tensor)
{
    return open_found(path, name, "say which one with --tensor", file, tensor);
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

static int check_rows(const danaus_tensor *tensor, danaus_dtype dtype, const char *name)
{
    int64_t count = tensor->ndim > 1 ? tensor->shape[0] : 1;
    int64_t length = tensor->shape[tensor->ndim - 1];
    size_t row = (size_t)length * danaus_dtype_size(tensor->dtype);
    for (int64_t i = 0; i < count; i++) {
        char words[80];
        snprintf(words, sizeof words, "row %" PRId64 " of %s", i, name);
        TRY(library(danaus_convert_check(
            tensor->dtype, (const char *)tensor->data + (size_t)i * row, dtype, length,
            tensor->ndim > 1 ? words : name)));
    }
    return STATUS_OK;
}

/* Columns are copied so many at a time. */
#define COLUMNS 32

static int check_columns(
    const danaus_tensor *tensor, danaus_dtype dtype, const char *name)
{
    int64_t rows = tensor->shape[0], cols = tensor->shape[1];
    size_t size = danaus_dtype_size(tensor->dtype);
    danaus_tensor some = { .dtype = tensor->dtype, .ndim = 1, .shape = { rows } };
    int64_t most = cols < COLUMNS ? cols : COLUMNS;
    char *copy = room_make(rows, most, size, name);
    int status = copy ? STATUS_OK : STATUS_FAILURE;
    for (int64_t j = 0; j < cols && !status; j++) {
        for (int64_t i = 0; i < rows && j % COLUMNS == 0; i++)
            for (int64_t c = 0; c < most && j + c < cols; c++)
                memcpy(
                    copy + (size_t)(c * rows + i) * size,
                    (const char *)tensor->data + (size_t)(i * cols + j + c) * size,
                    size);
        char words[80];
        snprintf(words, sizeof words, "column %" PRId64 " of %s", j, name);
        some.data = copy + (size_t)(j % COLUMNS * rows) * size;
        status = check_rows(&some, dtype, words);
    }
    free(copy);
    return status;
}

static int check_whole(
    const danaus_tensor *tensor, danaus_dtype dtype, const char *name)
{
    return library(danaus_convert_check(
        tensor->dtype, tensor->data, dtype, tensor_elements(tensor), name));
}

/* There is memory before numbers are looked at: files may be larger than any. */
static int convert(
    const danaus_tensor *tensor, danaus_dtype dtype, const char *name,
    int (*check)(const danaus_tensor *, danaus_dtype, const char *), const void **data,
    void **owned)
{
    int64_t elements = tensor_elements(tensor);
    *data = tensor->data;
    if (tensor->dtype == dtype)
        return STATUS_OK;
    *data = *owned = room_make(1, elements, danaus_dtype_size(dtype), name);
    if (!*data)
        return STATUS_FAILURE;
    if (elements)
        TRY(check(tensor, dtype, name));
    return library(
        danaus_convert(tensor->dtype, tensor->data, dtype, *owned, elements));
}

int tensor_as(
    const danaus_tensor *tensor, danaus_dtype dtype, const char *name,
    const void **data, void **owned)
{
    return convert(tensor, dtype, name, check_whole, data, owned);
}

int vectors_as(
    const danaus_tensor *tensor, danaus_dtype dtype, int columns, const char *name,
    const void **data, void **owned)
{
    int across = columns && tensor->ndim == 2;
    return convert(
        tensor, dtype, name, across ? check_columns : check_rows, data, owned);
}
