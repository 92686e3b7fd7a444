/* Rows of numbers, from either sort of file. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/rows.h"

#include "cli/sound.h"
#include "common/finite.h"
#include "common/open.h"
#include "common/report.h"
#include "common/room.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is_npy(const char *path)
{
    char head[6] = { 0 };
    FILE *file = fopen(path, "rb");
    size_t got = file ? fread(head, 1, sizeof head, file) : 0;
    if (file)
        fclose(file);
    return got == sizeof head && !memcmp(head, "\x93NUMPY", 6);
}

static int read_npy(const char *path, rows *r)
{
    danaus_file *file = NULL;
    danaus_tensor t;
    int status = open_array(path, &file, &t);
    if (!status && (t.ndim < 1 || is_complex(t.dtype)))
        status = failure(
            "%s has %s of %s: real numbers with at least one axis are needed", path,
            t.ndim ? "an array" : "one element", danaus_dtype_name(t.dtype));
    if (!status && tensor_elements(&t) < 1)
        status = failure("%s is empty", path);
    if (!status) {
        *r = (rows){ .dtype = t.dtype, .length = t.shape[t.ndim - 1], .shape = t };
        r->count = tensor_elements(&t) / r->length;
        size_t bytes = (size_t)tensor_elements(&t) * danaus_dtype_size(t.dtype);
        r->data = room_make(1, tensor_elements(&t), danaus_dtype_size(t.dtype), path);
        if (r->data)
            memcpy(r->data, t.data, bytes);
        else
            status = STATUS_FAILURE;
    }
    danaus_file_close(file);
    return status;
}

static int read_sound(const char *path, rows *r)
{
    sound s;
    int status = sound_read(path, &s);
    if (!status)
        *r = (rows){ DANAUS_F32, s.channels, s.length, s.data, s.rate, { 0 } };
    return status;
}

int rows_read(const char *path, rows *r)
{
    return is_npy(path) ? read_npy(path, r) : read_sound(path, r);
}

int rows_append(rows *to, const rows *more)
{
    int64_t length = to->length > more->length ? to->length : more->length;
    float *data =
        room_make(to->count + more->count, length, sizeof *data, "the filters");
    if (!data)
        return STATUS_FAILURE;
    const rows *parts[2] = { to, more };
    float *at = data;
    for (int p = 0; p < 2; p++)
        for (int64_t i = 0; i < parts[p]->count; i++, at += length)
            memcpy(
                at, (const float *)parts[p]->data + i * parts[p]->length,
                (size_t)parts[p]->length * sizeof *at);
    free(to->data);
    to->data = data;
    to->count += more->count;
    to->length = length;
    return STATUS_OK;
}

int rows_normalize(rows *r)
{
    int64_t count = r->count * r->length;
    double *wide = room_make(1, count, sizeof *wide, "the result in f64"), most = 0;
    if (!wide)
        return STATUS_FAILURE;
    danaus_convert(r->dtype, r->data, DANAUS_F64, wide, count);
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, fabs(wide[i]));
    for (int64_t i = 0; i < count && most > 0; i++)
        wide[i] /= most;
    danaus_convert(DANAUS_F64, wide, r->dtype, r->data, count);
    free(wide);
    return STATUS_OK;
}

int64_t rows_non_finite(const rows *r)
{
    return count_non_finite(r->dtype, r->data, r->count * r->length);
}
