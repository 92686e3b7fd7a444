/* Many arrays and metadata in a safetensors file: reading.

   The length of the header (little-endian, 8 bytes), the header, the data. The
   header is a JSON object
       {"name": {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}, ...}
   with offsets into the data, and perhaps "__metadata__", an object of strings or null.
   Tensors cover the data without holes and overlaps. Source: the description of
   the format in github.com/huggingface/safetensors; docs/formats.md.

   The format has no c128. Such a tensor is stored as F64 with one more dimension of size 2, and
   its name is in the metadata (SAFETENSORS_PAIRS). */
// SPDX-License-Identifier: Apache-2.0
#include "io/file.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "io/json.h"
#include "io/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* An entry of the header; ranges of two entries may be compared. */
typedef struct header_entry {
    const char *name, *type;
    int64_t begin, end; /* in the data */
    int64_t ndim;
    danaus_dtype dtype;                 /* 0: danaus_tensor cannot express it */
    int64_t shape[DANAUS_MAX_DIMS + 1]; /* the first dimensions */
} header_entry;

/* The format's types that danaus lacks, and their bits. */
static const struct {
    const char *name;
    int bits;
} foreign_types[] = {
    { "BOOL", 8 },        { "U8", 8 },      { "I8", 8 },      { "I16", 16 },
    { "U16", 16 },        { "I32", 32 },    { "U32", 32 },    { "I64", 64 },
    { "U64", 64 },        { "F8_E4M3", 8 }, { "F8_E5M2", 8 }, { "F8_E8M0", 8 },
    { "F8_E4M3FNUZ", 8 }, { "F6_E2M3", 6 }, { "F6_E3M2", 6 }, { "F4", 4 },
    { "F8_E5M2FNUZ", 8 },
};

/* True if a JSON object comes first where a header would be; white space may precede. */
int dn_is_safetensors(const unsigned char *data, size_t size)
{
    size_t i = SAFETENSORS_LENGTH;
    while (i < size && data[i] && strchr(" \t\r\n", data[i]))
        i++;
    return i < size && data[i] == '{';
}

/* ---- the header ---- */

static danaus_status find_header(
    const unsigned char *data, size_t size, size_t *header_bytes)
{
    uint64_t length = 0;
    for (int i = 0; i < SAFETENSORS_LENGTH; i++)
        length |= (uint64_t)data[i] << (8 * i);
    if (length > SAFETENSORS_HEADER_LIMIT)
        return dn_fail(
            DANAUS_ERR_FORMAT,
            "the safetensors header claims %" PRIu64 " bytes; at most %d are read",
            length, SAFETENSORS_HEADER_LIMIT);
    if (length > size - SAFETENSORS_LENGTH)
        return dn_fail(
            DANAUS_ERR_FORMAT,
            "the safetensors header claims %" PRIu64 " bytes and the file has %zu",
            length, size - SAFETENSORS_LENGTH);
    *header_bytes = (size_t)length;
    return DANAUS_OK;
}

static danaus_status parse_header(span string, json_t **header)
{
    json_error_t error = { 0 };
    *header = dn_json_load(string, &error);
    if (*header)
        return DANAUS_OK;
    if (!error.text[0] || json_error_code(&error) == json_error_out_of_memory)
        return dn_fail_memory(string.length, "a safetensors header");
    return dn_fail(
        DANAUS_ERR_FORMAT, "the safetensors header is no proper JSON: %s at byte %d",
        error.text, error.position);
}

static danaus_status check_metadata(json_t *metadata)
{
    const char *key;
    json_t *value;
    if (metadata && !json_is_null(metadata) && !json_is_object(metadata))
        return dn_fail(DANAUS_ERR_FORMAT, "__metadata__ is not an object");
    json_object_foreach(metadata, key, value) if (!json_is_string(value)) return dn_fail(
        DANAUS_ERR_FORMAT, "__metadata__ entry \"%.100s\" is not a string", key);
    return DANAUS_OK;
}

/* ---- one tensor ---- */

static danaus_status bad_tensor(const char *name, const char *why)
{
    return dn_fail(DANAUS_ERR_FORMAT, "tensor \"%.100s\" %s", name, why);
}

/* Reads an array of non-negative integers, the first `capacity` of them. The largest one stands
   for all beyond it (io/json.c). */
static danaus_status read_sizes(
    const char *name, json_t *array, const char *what, int64_t *sizes, size_t capacity)
{
    size_t i;
    json_t *value;
    if (!json_is_array(array))
        return bad_tensor(name, what);
    json_array_foreach(array, i, value)
    {
        if (!json_is_integer(value) || json_integer_value(value) < 0 ||
            json_integer_value(value) == INT64_MAX)
            return bad_tensor(name, what);
        if (i < capacity)
            sizes[i] = (int64_t)json_integer_value(value);
    }
    return DANAUS_OK;
}

static danaus_status read_range(json_t *object, int64_t data_bytes, header_entry *e)
{
    int64_t offsets[2];
    const char *what = "has no data_offsets of two integers from 0 to 2^63 - 2";
    json_t *array = json_object_get(object, "data_offsets");
    if (json_array_size(array) != 2)
        return bad_tensor(e->name, what);
    TRY(read_sizes(e->name, array, what, offsets, 2));
    e->begin = offsets[0];
    e->end = offsets[1];
    if (e->begin > e->end || e->end > data_bytes)
        return dn_fail(
            DANAUS_ERR_FORMAT,
            "tensor \"%.100s\" has data_offsets %" PRId64 " to %" PRId64 " in %" PRId64
            " bytes of data",
            e->name, e->begin, e->end, data_bytes);
    return DANAUS_OK;
}

/* Bits of an element; 0: a type that nobody has described yet. */
static int64_t bits_of(const char *type)
{
    danaus_dtype dtype = dn_dtype_from_safetensors(type);
    if (dtype)
        return 8 * (int64_t)danaus_dtype_size(dtype);
    for (size_t i = 0; i < sizeof foreign_types / sizeof *foreign_types; i++)
        if (!strcmp(foreign_types[i].name, type))
            return foreign_types[i].bits;
    return 0;
}

/* Compares what the shape needs with what the offsets give. */
static danaus_status check_bytes(const header_entry *e, json_t *shape)
{
    size_t i;
    json_t *value;
    int64_t bits = bits_of(e->type);
    if (!bits)
        return DANAUS_OK;
    json_array_foreach(shape, i, value)
    {
        if (dn_mul_overflows(bits, (int64_t)json_integer_value(value), &bits))
            return bad_tensor(e->name, "has a shape whose size overflows");
    }
    if (bits % 8)
        return bad_tensor(e->name, "needs a part of a byte");
    if (bits / 8 == e->end - e->begin)
        return DANAUS_OK;
    return dn_fail(
        DANAUS_ERR_FORMAT,
        "tensor \"%.100s\" needs %" PRId64
        " bytes and its data_offsets give it %" PRId64,
        e->name, bits / 8, e->end - e->begin);
}

/* F64 of shape [..., 2] becomes c128 of shape [...]. */
static danaus_status join_pairs(header_entry *e)
{
    if (e->dtype != DANAUS_F64 || e->ndim < 1 || e->ndim > DANAUS_MAX_DIMS + 1 ||
        e->shape[e->ndim - 1] != 2)
        return bad_tensor(
            e->name, "has no pairs of F64, which the metadata say it has");
    e->dtype = DANAUS_C128;
    e->ndim--;
    return DANAUS_OK;
}

/* A type that danaus lacks, or too many dimensions, are no fault of the file. */
static danaus_status read_entry(
    const char *name, json_t *object, int64_t data_bytes, const json_t *pairs,
    header_entry *e)
{
    *e = (header_entry){ .name = name };
    if (!json_is_object(object))
        return bad_tensor(name, "is not described by an object");
    e->type = json_string_value(json_object_get(object, "dtype"));
    if (!e->type)
        return bad_tensor(name, "has no dtype that is a string");
    json_t *shape = json_object_get(object, "shape");
    TRY(read_sizes(
        name, shape, "has no shape of integers from 0 to 2^63 - 2", e->shape,
        sizeof e->shape / sizeof *e->shape));
    e->ndim = (int64_t)json_array_size(shape);
    TRY(read_range(object, data_bytes, e));
    e->dtype = dn_dtype_from_safetensors(e->type);
    int64_t bytes;
    if (e->dtype && e->ndim <= (int64_t)(sizeof e->shape / sizeof *e->shape) &&
        dn_array_bytes_overflow(e->dtype, (int)e->ndim, e->shape, &bytes))
        return bad_tensor(name, "has a shape whose size overflows");
    TRY(check_bytes(e, shape));
    if (json_object_get(pairs, name))
        TRY(join_pairs(e));
    if (e->ndim > DANAUS_MAX_DIMS)
        e->dtype = 0;
    return DANAUS_OK;
}

/* ---- all tensors ---- */

static int by_range(const void *x, const void *y)
{
    const header_entry *a = x, *b = y;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    return strcmp(a->name, b->name);
}

static danaus_status check_cover(
    const header_entry *entries, int count, int64_t data_bytes)
{
    int64_t covered = 0;
    for (int i = 0; i < count; i++) {
        if (entries[i].begin < covered)
            return dn_fail(
                DANAUS_ERR_FORMAT, "tensors \"%.100s\" and \"%.100s\" overlap",
                entries[i - 1].name, entries[i].name);
        if (entries[i].begin > covered)
            break;
        covered = entries[i].end;
    }
    if (covered != data_bytes)
        return dn_fail(
            DANAUS_ERR_FORMAT,
            "byte %" PRId64 " of %" PRId64 " bytes of safetensors data is in no tensor",
            covered, data_bytes);
    return DANAUS_OK;
}

static size_t tensor_bytes(const danaus_tensor *t)
{
    int64_t bytes;
    dn_array_bytes_overflow(t->dtype, t->ndim, t->shape, &bytes);
    return (size_t)bytes;
}

static size_t padded(size_t bytes)
{
    return (bytes + DN_ALIGN - 1) / DN_ALIGN * DN_ALIGN;
}

/* Tensors at odd addresses are copied, all into one block. */
static danaus_status align_tensors(danaus_file *file)
{
    size_t total = 0;
    int odd = 0;
    for (int i = 0; i < file->count; i++)
        if (dn_misaligned(file->tensors[i].data, file->tensors[i].dtype)) {
            total += padded(tensor_bytes(&file->tensors[i]));
            odd++;
        }
    if (odd == 0)
        return DANAUS_OK;
    file->owned = dn_alloc(total);
    if (!file->owned)
        return dn_fail_memory(total, "aligned copies of tensors");
    char *to = file->owned;
    for (int i = 0; i < file->count; i++) {
        danaus_tensor *t = &file->tensors[i];
        if (!dn_misaligned(t->data, t->dtype))
            continue;
        size_t bytes = tensor_bytes(t);
        t->data = memcpy(to, t->data, bytes);
        to += padded(bytes);
    }
    return DANAUS_OK;
}

/* What danaus_file_entry_at() gives. Shapes may have more dimensions than an entry keeps. */
static danaus_status list_entries(
    const header_entry *entries, int count, danaus_file *file)
{
    size_t sizes = 0;
    for (int i = 0; i < count; i++)
        sizes += (size_t)entries[i].ndim;
    TRY(dn_file_make_entries(file, count, sizes));
    int64_t *to = file->sizes;
    for (int i = 0; i < count; i++) {
        const header_entry *e = &entries[i];
        const json_t *object = json_object_get(file->header, e->name);
        const json_t *shape = json_object_get(object, "shape");
        file->entries[file->entry_count++] =
            (danaus_file_entry){ .name = e->name,
                                 .type = e->type,
                                 .shape = to,
                                 .ndim = e->ndim,
                                 .bytes = e->end - e->begin,
                                 .dtype = e->dtype };
        for (size_t d = 0; d < (size_t)e->ndim; d++)
            *to++ = (int64_t)json_integer_value(json_array_get(shape, d));
    }
    return DANAUS_OK;
}

static danaus_status list_keys(json_t *metadata, danaus_file *file)
{
    const char *key;
    json_t *value;
    size_t places = json_object_size(metadata) + 1;
    file->keys = dn_calloc(places, sizeof *file->keys);
    if (!file->keys)
        return dn_fail_memory(places * sizeof *file->keys, "a list of metadata");
    json_object_foreach(metadata, key, value) { file->keys[file->key_count++] = key; }
    return DANAUS_OK;
}

static danaus_status make_tables(
    const header_entry *entries, int count, const unsigned char *data,
    danaus_file *file)
{
    TRY(list_entries(entries, count, file));
    if (file->entries_only)
        return DANAUS_OK;
    size_t places = count ? (size_t)count : 1;
    file->tensors = dn_calloc(places, sizeof *file->tensors);
    file->foreign = dn_calloc(places, sizeof *file->foreign);
    if (!file->tensors || !file->foreign)
        return dn_fail_memory(places * sizeof *file->tensors, "a table of tensors");
    for (int i = 0; i < count; i++) {
        const header_entry *e = &entries[i];
        if (!e->dtype) {
            file->foreign[file->foreign_count++] =
                (foreign_tensor){ e->name, e->type, e->ndim, data + e->begin,
                                  e->end - e->begin };
            continue;
        }
        danaus_tensor *t = &file->tensors[file->count++];
        *t = (danaus_tensor){ .name = e->name,
                              .data = data + e->begin,
                              .dtype = e->dtype,
                              .ndim = (int)e->ndim };
        memcpy(t->shape, e->shape, (size_t)e->ndim * sizeof *t->shape);
    }
    return align_tensors(file);
}

static danaus_status read_entries(
    json_t *header, int64_t data_bytes, const json_t *pairs, header_entry *entries,
    int *count)
{
    const char *name;
    json_t *object;
    *count = 0;
    json_object_foreach(header, name, object)
    {
        if (strcmp(name, SAFETENSORS_METADATA)) {
            TRY(read_entry(name, object, data_bytes, pairs, &entries[*count]));
            ++*count;
        }
    }
    qsort(entries, (size_t)*count, sizeof *entries, by_range);
    return check_cover(entries, *count, data_bytes);
}

/* An object with the names of tensors that hold pairs, or NULL. The metadata have them as
   the text of a JSON array. */
static danaus_status read_pairs(const json_t *metadata, json_t **pairs)
{
    size_t i;
    json_t *names, *name, *value = json_object_get(metadata, SAFETENSORS_PAIRS);
    *pairs = NULL;
    if (!value)
        return DANAUS_OK;
    danaus_status status = dn_json_parse(dn_json_span(value), &names);
    if (status != DANAUS_OK)
        return dn_fail_in(status, SAFETENSORS_PAIRS);
    *pairs = json_object();
    json_array_foreach(names, i, name)
    {
        const char *key = json_string_value(name);
        if (key && json_object_set_new(*pairs, key, json_true()))
            status = dn_fail_memory(strlen(key), "a name");
    }
    json_decref(names);
    return status;
}

danaus_status dn_safetensors_read(
    const unsigned char *data, size_t size, danaus_file *file)
{
    size_t header_bytes = 0;
    TRY(find_header(data, size, &header_bytes));
    const unsigned char *header = data + SAFETENSORS_LENGTH;
    TRY(parse_header((span){ (const char *)header, header_bytes }, &file->header));
    json_t *metadata = json_object_get(file->header, SAFETENSORS_METADATA), *pairs;
    TRY(check_metadata(metadata));
    TRY(list_keys(metadata, file));
    danaus_status status = read_pairs(metadata, &pairs);

    size_t places = json_object_size(file->header) + 1;
    header_entry *entries = dn_calloc(places, sizeof *entries);
    if (status == DANAUS_OK && !entries)
        status = dn_fail_memory(places * sizeof *entries, "a table of tensors");
    int count = 0;
    int64_t data_bytes = (int64_t)(size - SAFETENSORS_LENGTH - header_bytes);
    if (status == DANAUS_OK)
        status = read_entries(file->header, data_bytes, pairs, entries, &count);
    if (status == DANAUS_OK)
        status = make_tables(entries, count, header + header_bytes, file);
    json_decref(pairs);
    dn_free(entries);
    return status;
}
