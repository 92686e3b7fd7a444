/* Arrays of f32 by their names. */
// SPDX-License-Identifier: Apache-2.0
#include "support/named.h"
#include "support/test.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void named_path(char path[NAMED_LENGTH], const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(path, NAMED_LENGTH, format, arguments);
    va_end(arguments);
    assert_in_range(length, 1, NAMED_LENGTH - 1);
}

static const char *prefix_of(const named_arrays *arrays)
{
    return arrays->prefix ? arrays->prefix : "";
}

static void *add(
    named_arrays *arrays, danaus_dtype dtype, int ndim, const int64_t *shape,
    const char *name)
{
    assert_true(arrays->count < NAMED_MOST);
    danaus_tensor *t = &arrays->tensor[arrays->count];
    int64_t numbers = 1;
    named_path(arrays->name[arrays->count++], "%s%s", prefix_of(arrays), name);
    *t = (danaus_tensor){ .dtype = dtype, .ndim = ndim };
    for (int i = 0; i < ndim; i++)
        numbers *= t->shape[i] = shape[i];
    void *data = calloc((size_t)numbers, danaus_dtype_size(dtype));
    assert_non_null(data);
    t->data = data;
    return data;
}

float *named_add(named_arrays *arrays, int ndim, const int64_t *shape, const char *name)
{
    return add(arrays, DANAUS_F32, ndim, shape, name);
}

double *named_add_f64(
    named_arrays *arrays, int ndim, const int64_t *shape, const char *name)
{
    return add(arrays, DANAUS_F64, ndim, shape, name);
}

void named_add_random(
    rng *r, named_arrays *arrays, int ndim, const int64_t *shape, double middle,
    double size, const char *name)
{
    float *data = named_add(arrays, ndim, shape, name);
    int64_t numbers = 1;
    for (int i = 0; i < ndim; i++)
        numbers *= shape[i];
    for (int64_t i = 0; i < numbers; i++)
        data[i] = (float)(middle + size * rng_sign(r));
}

static int index_of(const named_arrays *arrays, const char *name)
{
    size_t length = strlen(prefix_of(arrays));
    for (int i = 0; i < arrays->count; i++)
        if (!strcmp(arrays->name[i] + length, name))
            return i;
    return -1;
}

const danaus_tensor *named_find(const named_arrays *arrays, const char *name)
{
    int i = index_of(arrays, name);
    return i < 0 ? NULL : &arrays->tensor[i];
}

double named_at(const danaus_tensor *array, int64_t i)
{
    return array->dtype == DANAUS_F64 ? ((const double *)array->data)[i]
                                      : ((const float *)array->data)[i];
}

void named_drop(named_arrays *arrays, const char *name)
{
    int i = index_of(arrays, name), last = arrays->count - 1;
    assert_in_range(i, 0, last);
    free((void *)(uintptr_t)arrays->tensor[i].data);
    arrays->tensor[i] = arrays->tensor[last];
    memmove(arrays->name[i], arrays->name[last], sizeof arrays->name[i]);
    arrays->count--;
}

void named_write(const named_arrays *arrays, const char *path)
{
    danaus_tensor tensors[NAMED_MOST];
    for (int i = 0; i < arrays->count; i++) {
        tensors[i] = arrays->tensor[i];
        tensors[i].name = arrays->name[i];
    }
    assert_ok(danaus_file_write_safetensors(path, tensors, arrays->count, NULL, 0));
}

void named_free(named_arrays *arrays)
{
    for (int i = 0; i < arrays->count; i++)
        free((void *)(uintptr_t)arrays->tensor[i].data);
}

double named_stored;

double noisy(double y, double size, double terms, rng *noise)
{
    double share = 0x1p-24 * sqrt(terms) + 2 * named_stored;
    return noise ? y + share * size * rng_sign(noise) : y;
}
