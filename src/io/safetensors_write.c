/* Many arrays and metadata in a safetensors file: writing.

   Data are in the order of decreasing element size, otherwise in the given order, so
   that every tensor is aligned to its element although the format allows no holes.
   The header is padded with spaces so that data begin at a multiple of 64 bytes.
   c128 is written as pairs of F64, because the format has no such type. */
// SPDX-License-Identifier: Apache-2.0
#include "io/file.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/replace.h"
#include "base/status.h"
#include "io/safetensors.h"

#include <stdlib.h>
#include <string.h>

#define DATA_ALIGN 64

static danaus_status no_memory(void)
{
    return dn_fail(DANAUS_ERR_MEMORY, "no memory for a safetensors header");
}

/* Refuses text that JSON cannot hold. */
static danaus_status check_text(const char *text, const char *what)
{
    if (!text)
        return dn_fail(DANAUS_ERR_ARGUMENT, "%s is NULL", what);
    json_error_t error = { 0 };
    json_t *string = json_pack_ex(&error, 0, "s", text);
    json_decref(string);
    if (string)
        return DANAUS_OK;
    if (json_error_code(&error) == json_error_invalid_utf8)
        return dn_fail(DANAUS_ERR_ARGUMENT, "%s \"%.100s\" is not UTF-8", what, text);
    return no_memory();
}

/* object[key] = value, whose reference is taken over; a key may come once. */
static danaus_status put(
    json_t *object, const char *key, json_t *value, const char *what)
{
    if (json_object_get(object, key)) {
        json_decref(value);
        return dn_fail(DANAUS_ERR_ARGUMENT, "%s \"%.100s\" is given twice", what, key);
    }
    return json_object_set_new(object, key, value) ? no_memory() : DANAUS_OK;
}

/* Adds the names of tensors of c128, if there are any, as the text of a JSON array. */
static danaus_status put_pairs(
    json_t *metadata, const danaus_tensor *const *tensors, int count)
{
    json_t *names = json_array();
    int failed = !names;
    for (int i = 0; i < count && !failed; i++)
        if (tensors[i]->dtype == DANAUS_C128)
            failed = json_array_append_new(names, json_string(tensors[i]->name));
    danaus_status status = failed ? no_memory() : DANAUS_OK;
    if (json_array_size(names) && !failed) {
        char *text = json_dumps(names, JSON_COMPACT);
        status =
            text ? put(metadata, SAFETENSORS_PAIRS, json_string(text), "metadata key")
                 : no_memory();
        free(text);
    }
    json_decref(names);
    return status;
}

static danaus_status put_metadata(
    json_t *header, const char *const *given, int pairs,
    const danaus_tensor *const *tensors, int count)
{
    json_t *metadata = json_object();
    if (json_object_set_new(header, SAFETENSORS_METADATA, metadata))
        return no_memory();
    for (int i = 0; i < pairs; i++) {
        const char *key = given[2 * i], *value = given[2 * i + 1];
        TRY(check_text(key, "a metadata key"));
        TRY(check_text(value, "a metadata value"));
        TRY(put(metadata, key, json_string(value), "metadata key"));
    }
    for (int i = 0; i < count; i++)
        TRY(check_text(tensors[i]->name, "a tensor name"));
    TRY(put_pairs(metadata, tensors, count));
    if (!json_object_size(metadata))
        json_object_del(header, SAFETENSORS_METADATA);
    return DANAUS_OK;
}

/* The sizes as the file has them; NULL: no memory. */
static json_t *shape_of(const danaus_tensor *t)
{
    json_t *shape = json_array();
    int failed = !shape;
    for (int i = 0; i < t->ndim && !failed; i++)
        failed = json_array_append_new(shape, json_integer(t->shape[i]));
    if (t->dtype == DANAUS_C128 && !failed)
        failed = json_array_append_new(shape, json_integer(2));
    if (!failed)
        return shape;
    json_decref(shape);
    return NULL;
}

/* Describes a tensor whose data are at [begin, *end). */
static danaus_status put_tensor(
    json_t *header, const danaus_tensor *t, int64_t begin, int64_t *end)
{
    int64_t bytes, stop;
    if (!strcmp(t->name, SAFETENSORS_METADATA))
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a tensor cannot be named " SAFETENSORS_METADATA);
    dn_array_bytes_overflow(t->dtype, t->ndim, t->shape, &bytes);
    if (__builtin_add_overflow(begin, bytes, &stop))
        return dn_fail(DANAUS_ERR_SHAPE, "the size of the file overflows");

    danaus_dtype stored = t->dtype == DANAUS_C128 ? DANAUS_F64 : t->dtype;
    json_t *shape = shape_of(t);
    json_t *object =
        shape ? json_pack(
                    "{s:s, s:O, s:[I, I]}", "dtype", dn_dtype(stored)->safetensors,
                    "shape", shape, "data_offsets", (json_int_t)begin, (json_int_t)stop)
              : NULL;
    json_decref(shape);
    if (!object)
        return no_memory();
    TRY(put(header, t->name, object, "tensor name"));
    *end = stop;
    return DANAUS_OK;
}

/* The length, the JSON text and spaces; *header is the caller's to free. */
static danaus_status dump_header(const json_t *json, char **header, size_t *bytes)
{
    size_t length = json_dumpb(json, NULL, 0, JSON_COMPACT);
    if (length == 0)
        return no_memory();
    size_t all =
        (SAFETENSORS_LENGTH + length + DATA_ALIGN - 1) / DATA_ALIGN * DATA_ALIGN;
    size_t claimed = all - SAFETENSORS_LENGTH;
    if (claimed > SAFETENSORS_HEADER_LIMIT)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "the names make a header of %zu bytes; at most %d can be", claimed,
            SAFETENSORS_HEADER_LIMIT);
    char *to = dn_alloc(all);
    if (!to)
        return no_memory();
    for (int i = 0; i < SAFETENSORS_LENGTH; i++)
        to[i] = (char)((uint64_t)claimed >> (8 * i) & 255);
    memset(to + SAFETENSORS_LENGTH, ' ', claimed);
    if (json_dumpb(json, to + SAFETENSORS_LENGTH, claimed, JSON_COMPACT) != length) {
        dn_free(to);
        return no_memory();
    }
    *header = to;
    *bytes = all;
    return DANAUS_OK;
}

/* The header for the tensors in their order, and parts[1 .. count] for their data. */
static danaus_status make_header(
    const danaus_tensor *const *tensors, int count, const char *const *metadata,
    int pairs, file_part *parts)
{
    char *header = NULL;
    int64_t offset = 0;
    json_t *json = json_object();
    danaus_status status =
        json ? put_metadata(json, metadata, pairs, tensors, count) : no_memory();
    for (int i = 0; i < count && status == DANAUS_OK; i++) {
        int64_t begin = offset;
        status = put_tensor(json, tensors[i], begin, &offset);
        parts[i + 1] = (file_part){ tensors[i]->data, (size_t)(offset - begin) };
    }
    if (status == DANAUS_OK)
        status = dump_header(json, &header, &parts[0].bytes);
    parts[0].data = header;
    json_decref(json);
    return status;
}

static void by_element_size(
    const danaus_tensor *tensors, int count, const danaus_tensor **to)
{
    int placed = 0;
    for (size_t size = 16; size > 0; size /= 2)
        for (int i = 0; i < count; i++)
            if (danaus_dtype_size(tensors[i].dtype) == size)
                to[placed++] = &tensors[i];
}

static danaus_status write_tensors(
    const char *path, const danaus_tensor *tensors, int count,
    const char *const *metadata, int pairs)
{
    const danaus_tensor **order = dn_calloc((size_t)count + 1, sizeof *order);
    file_part *parts = dn_calloc((size_t)count + 1, sizeof *parts);
    danaus_status status = order && parts ? DANAUS_OK : no_memory();
    if (status == DANAUS_OK) {
        by_element_size(tensors, count, order);
        status = make_header(order, count, metadata, pairs, parts);
    }
    if (status == DANAUS_OK)
        status = dn_replace_file(path, parts, count + 1);
    if (parts)
        dn_free((void *)(uintptr_t)parts[0].data);
    dn_free(parts);
    dn_free(order);
    return status;
}

danaus_status danaus_file_write_safetensors(
    const char *path, const danaus_tensor *tensors, int count,
    const char *const *metadata, int pairs)
{
    if (!path || count < 0 || (count && !tensors) || pairs < 0 || (pairs && !metadata))
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a path, tensors and pairs of strings are needed");
    for (int i = 0; i < count; i++)
        TRY(dn_check_tensor(&tensors[i]));
    return write_tensors(path, tensors, count, metadata, pairs);
}
