/* From names and shapes to numbers; complaints; and memory that a model allocates. */
// SPDX-License-Identifier: Apache-2.0
#include "model/bind.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "base/text.h"
#include "device/backend.h"
#include "io/file.h"
#include "io/int8.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

tensor_name dn_name(const char *format, ...)
{
    tensor_name made;
    va_list parts;
    va_start(parts, format);
    vsnprintf(made.text, sizeof made.text, format, parts);
    va_end(parts);
    return made;
}

danaus_status dn_memory_add(device_memory *m, int64_t bytes, void **block)
{
    void *memory = NULL;
    if (!m->outline) {
        TRY(dn_reserve(
            &m->block, m->count, &m->capacity, sizeof *m->block, "a list of memory"));
        TRY(danaus_alloc(m->device, (size_t)bytes, &memory));
        m->block[m->count++] = memory;
    }
    m->bytes += bytes;
    *block = memory;
    return DANAUS_OK;
}

void dn_memory_free(device_memory *m)
{
    while (m->count)
        danaus_free(m->device, m->block[--m->count]);
    dn_free(m->block);
}

danaus_status dn_binder_open(
    binder *b, danaus_file *file, device_memory *copies, danaus_dtype dtype)
{
    *b = (binder){ .device = copies->device,
                   .dtype = dtype,
                   .file = file,
                   .copies = copies,
                   .prefix = "" };
    b->taken = dn_calloc((size_t)danaus_file_count(file) + 1, 1);
    return b->taken ? DANAUS_OK : dn_fail_memory(1, "a table of tensors");
}

void dn_binder_forget(binder *b)
{
    for (int i = 0; i < b->widened_count; i++)
        dn_free(b->widened[i]);
    dn_free(b->widened);
    b->widened = NULL;
    b->widened_count = 0;
}

void dn_binder_close(binder *b)
{
    dn_binder_forget(b);
    dn_free(b->taken);
}

void dn_binder_complain(binder *b, const char *format, ...)
{
    size_t used = strlen(b->text);
    va_list arguments;
    va_start(arguments, format);
    if (b->problems++)
        used += (size_t)snprintf(b->text + used, sizeof b->text - used, "; ");
    if (used < sizeof b->text)
        vsnprintf(b->text + used, sizeof b->text - used, format, arguments);
    va_end(arguments);
}

static int find(binder *b, const char *name, danaus_tensor *tensor)
{
    int place = dn_file_place(b->file, dn_name("%s%s", b->prefix, name).text);
    if (place < 0 || danaus_file_tensor(b->file, place, tensor) != DANAUS_OK)
        return 0;
    b->taken[place] = 1;
    return !dn_is_complex(tensor->dtype);
}

/* Room for the numbers of one more tensor. */
static float *add_widened(binder *b, int64_t count)
{
    float **all = dn_alloc((size_t)(b->widened_count + 1) * sizeof *all);
    float *numbers =
        b->copies->outline ? NULL : dn_calloc((size_t)MAX(count, 1), sizeof *numbers);
    if (!all || (!numbers && !b->copies->outline)) {
        b->failed =
            dn_fail_memory((size_t)count * sizeof *numbers, "weights of 8 bits");
        dn_free(all);
        dn_free(numbers);
        return NULL;
    }
    if (b->widened)
        memcpy(all, b->widened, (size_t)b->widened_count * sizeof *all);
    dn_free(b->widened);
    b->widened = all;
    b->widened[b->widened_count++] = numbers;
    return numbers;
}

/* Integers and their scales, as f32; 0: they do not fit, or there is no memory. */
static int widen(binder *b, const char *name, danaus_tensor *t)
{
    danaus_tensor scale;
    const tensor_name path = dn_name("%s_scale", name);
    if (!find(b, path.text, &scale) || !dn_int8_fits(t, &scale)) {
        dn_binder_complain(
            b, "%s has 8 bits, and %s is no scale for its rows", name, path.text);
        return 0;
    }
    float *numbers = add_widened(b, dn_int8_count(t));
    if (numbers)
        dn_int8_widen(t, &scale, numbers);
    t->dtype = DANAUS_F32;
    t->data = numbers;
    return b->failed == DANAUS_OK;
}

int dn_binder_find(binder *b, const char *name, danaus_tensor *tensor)
{
    return find(b, name, tensor) &&
           (tensor->dtype != DANAUS_I8 || widen(b, name, tensor));
}

int dn_binder_integers(binder *b, const char *name, int64_t count, int64_t *to)
{
    danaus_tensor t;
    dn_binder_find(b, name, &t); /* it has its place, if it is one of f32 */
    return dn_file_integers(b->file, dn_name("%s%s", b->prefix, name).text, count, to);
}

static void describe_shape(int ndim, const int64_t *shape, char *to, size_t size)
{
    text t = { to, size, 0 };
    dn_text(&t, "[");
    for (int i = 0; i < ndim; i++)
        dn_text(&t, "%s%" PRId64, i ? ", " : "", shape[i]);
    dn_text(&t, "]");
}

static int has_shape(const danaus_tensor *t, int ndim, const int64_t *shape)
{
    return t->ndim == ndim && !memcmp(t->shape, shape, (size_t)ndim * sizeof *shape);
}

void dn_binder_lack(binder *b, const char *name, int ndim, const int64_t *shape)
{
    char wanted[160];
    danaus_tensor t;
    danaus_status status =
        danaus_file_find(b->file, dn_name("%s%s", b->prefix, name).text, &t);
    describe_shape(ndim, shape, wanted, sizeof wanted);
    if (status == DANAUS_OK && t.dtype == DANAUS_I8)
        return; /* it lacks its scale, which was said */
    if (status == DANAUS_OK && dn_is_complex(t.dtype))
        dn_binder_complain(
            b, "%s is of type %s; real numbers %s are needed", name,
            danaus_dtype_name(t.dtype), wanted);
    else if (status == DANAUS_ERR_UNSUPPORTED)
        dn_binder_complain(b, "%s", danaus_error_detail());
    else
        dn_binder_complain(b, "%s is missing, of shape %s", name, wanted);
}

int dn_binder_take(
    binder *b, const char *name, int ndim, const int64_t *shape, danaus_tensor *tensor)
{
    char found[160], wanted[160];
    if (!dn_binder_find(b, name, tensor)) {
        dn_binder_lack(b, name, ndim, shape);
        return 0;
    }
    if (has_shape(tensor, ndim, shape))
        return 1;
    describe_shape(tensor->ndim, tensor->shape, found, sizeof found);
    describe_shape(ndim, shape, wanted, sizeof wanted);
    dn_binder_complain(b, "%s is %s, not %s", name, found, wanted);
    return 0;
}

static danaus_status bind(
    binder *b, const char *name, int ndim, const int64_t *shape, danaus_dtype dtype,
    const void **numbers)
{
    danaus_tensor t;
    int widened = b->widened_count;
    *numbers = NULL;
    if (!dn_binder_take(b, name, ndim, shape, &t))
        return DANAUS_OK;
    int is_in_file = b->widened_count == widened;
    int64_t count = 1;
    for (int i = 0; i < ndim; i++)
        count *= shape[i];
    b->parameters += count;
    *numbers = t.data;
    if (t.dtype == dtype && is_in_file && b->device->backend->on_host)
        return DANAUS_OK;
    void *copy;
    TRY(dn_memory_add(b->copies, count * dn_size_of(dtype), &copy));
    if (b->copies->outline)
        return DANAUS_OK;
    *numbers = copy;
    return dn_put_numbers(b->device, t.dtype, t.data, dtype, copy, count);
}

danaus_status dn_bind(
    binder *b, const char *name, int ndim, const int64_t *shape, const float **numbers)
{
    const void *found = NULL;
    danaus_status status = bind(b, name, ndim, shape, DANAUS_F32, &found);
    *numbers = found;
    return status;
}

danaus_status dn_bind_rows(
    binder *b, const char *name, int ndim, const int64_t *shape, const void **numbers)
{
    return bind(b, name, ndim, shape, b->dtype, numbers);
}

static int begins_with_one(const char *name, const char *const *others)
{
    for (; *others; others++)
        if (!strncmp(name, *others, strlen(*others)))
            return 1;
    return 0;
}

danaus_status dn_binder_settle(binder *b, const char *const *others)
{
    TRY(b->failed);
    size_t length = strlen(b->prefix);
    for (int i = 0; i < danaus_file_count(b->file); i++) {
        danaus_tensor t;
        danaus_file_tensor(b->file, i, &t);
        int inside = !strncmp(t.name, b->prefix, length);
        if (!b->taken[i] && inside && !begins_with_one(t.name + length, others))
            dn_binder_complain(b, "%s has no place", t.name);
    }
    if (b->problems > 1)
        return dn_fail(
            DANAUS_ERR_FORMAT, "%d tensors do not fit: %s", b->problems, b->text);
    return b->problems ? dn_fail(DANAUS_ERR_FORMAT, "%s", b->text) : DANAUS_OK;
}
