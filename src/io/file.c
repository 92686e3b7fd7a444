/* Files of arrays: opened by content, searched by name. */
// SPDX-License-Identifier: Apache-2.0
#include "io/file.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/replace.h"
#include "base/status.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int dn_array_bytes_overflow(
    danaus_dtype dtype, int ndim, const int64_t *shape, int64_t *bytes)
{
    int64_t product = (int64_t)danaus_dtype_size(dtype);
    int empty = 0;
    for (int i = 0; i < ndim; i++) {
        empty |= shape[i] == 0;
        if (shape[i] && dn_mul_overflows(product, shape[i], &product))
            return 1;
    }
    *bytes = empty ? 0 : product;
    return 0;
}

int dn_misaligned(const void *data, danaus_dtype dtype)
{
    size_t component = danaus_dtype_size(dtype) / (dn_is_complex(dtype) ? 2 : 1);
    return (uintptr_t)data % component != 0;
}

danaus_status dn_check_tensor(const danaus_tensor *tensor)
{
    if (!dn_dtype(tensor->dtype))
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "%d is no element type", (int)tensor->dtype);
    if (tensor->ndim < 0 || tensor->ndim > DANAUS_MAX_DIMS)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "an array has 0 to %d dimensions, not %d",
            DANAUS_MAX_DIMS, tensor->ndim);
    TRY(dn_check_reserved(tensor->reserved, sizeof tensor->reserved));
    for (int i = 0; i < tensor->ndim; i++)
        if (tensor->shape[i] < 0)
            return dn_fail(
                DANAUS_ERR_SHAPE, "size %" PRId64 " of dimension %d is negative",
                tensor->shape[i], i);
    int64_t bytes;
    if (dn_array_bytes_overflow(tensor->dtype, tensor->ndim, tensor->shape, &bytes))
        return dn_fail(DANAUS_ERR_SHAPE, "the size of the array overflows");
    if (bytes && !tensor->data)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "an array of %" PRId64 " bytes is NULL", bytes);
    return DANAUS_OK;
}

static danaus_status read_content(
    const unsigned char *data, size_t size, danaus_file *file)
{
    if (size == 0)
        return dn_fail(DANAUS_ERR_FORMAT, "the file is empty");
    if (dn_is_npy(data, size))
        return dn_npy_read(data, size, file);
    if (dn_is_safetensors(data, size))
        return dn_safetensors_read(data, size, file);
    if (size >= 4 && !memcmp(data, "PK\3\4", 4))
        return dn_fail(
            DANAUS_ERR_FORMAT, "this is a zip archive (.npz or a PyTorch checkpoint), "
                               "not .npy or safetensors");
    return dn_fail(DANAUS_ERR_FORMAT, "this is neither .npy nor safetensors");
}

static danaus_status read_file(
    const void *data, size_t size, int entries_only, danaus_file **file)
{
    danaus_file *f = dn_calloc(1, sizeof *f);
    if (!f)
        return dn_fail_memory(sizeof *f, "a file");
    f->entries_only = entries_only;
    danaus_status status = read_content(data, size, f);
    if (status == DANAUS_OK)
        status = dn_file_sort_names(f);
    if (status != DANAUS_OK)
        danaus_file_close(f);
    else
        *file = f;
    return status;
}

danaus_status dn_file_read(const void *data, size_t size, danaus_file **file)
{
    return read_file(data, size, 0, file);
}

danaus_status dn_file_read_entries(const void *data, size_t size, danaus_file **file)
{
    return read_file(data, size, 1, file);
}

static danaus_status open_file(const char *path, int entries_only, danaus_file **file)
{
    if (!path || !file)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a path and a place for the file are needed");
    map m;
    TRY(dn_map_open(path, &m));
    danaus_status status = read_file(m.data, m.size, entries_only, file);
    if (status == DANAUS_OK) {
        (*file)->map = m;
        return DANAUS_OK;
    }
    dn_map_close(&m);
    return dn_fail_in(status, path);
}

danaus_status danaus_file_open(const char *path, danaus_file **file)
{
    return open_file(path, 0, file);
}

danaus_status danaus_file_open_entries(const char *path, danaus_file **file)
{
    return open_file(path, 1, file);
}

danaus_status dn_file_make_entries(danaus_file *file, int count, size_t sizes)
{
    size_t places = (size_t)count + 1;
    file->entries = dn_calloc(places, sizeof *file->entries);
    file->sizes = dn_calloc(sizes + 1, sizeof *file->sizes);
    if (!file->entries || !file->sizes)
        return dn_fail_memory(
            places * sizeof *file->entries + sizes * sizeof *file->sizes,
            "a list of arrays");
    return DANAUS_OK;
}

void danaus_file_close(danaus_file *file)
{
    if (!file)
        return;
    for (int i = 0; i < file->part_count; i++)
        danaus_file_close(file->parts[i]);
    dn_free(file->parts);
    json_decref(file->header);
    dn_free(file->owned);
    dn_free(file->entries);
    dn_free(file->keys);
    dn_free(file->sizes);
    dn_free(file->type);
    dn_free(file->foreign);
    dn_free(file->tensors);
    dn_free(file->by_name);
    dn_map_close(&file->map);
    dn_free(file);
}

void dn_file_forget(const danaus_file *file)
{
    for (int i = 0; i < file->part_count; i++)
        dn_file_forget(file->parts[i]);
    dn_map_forget(&file->map);
}

int danaus_file_count(const danaus_file *file) { return file ? file->count : 0; }

const char *dn_file_name(const danaus_file *file, int index)
{
    if (index < file->count)
        return file->tensors[index].name;
    index -= file->count;
    return index < file->foreign_count ? file->foreign[index].name : NULL;
}

static int by_name(const void *a, const void *b)
{
    const named_place *x = a, *y = b;
    return strcmp(x->name, y->name);
}

danaus_status dn_file_sort_names(danaus_file *file)
{
    size_t total = (size_t)(file->count + file->foreign_count);
    file->by_name = dn_alloc((total + 1) * sizeof *file->by_name);
    if (!file->by_name)
        return dn_fail_memory(total * sizeof *file->by_name, "names of tensors");
    for (size_t i = 0; i < total; i++)
        file->by_name[i] = (named_place){ dn_file_name(file, (int)i), (int)i };
    qsort(file->by_name, total, sizeof *file->by_name, by_name);
    return DANAUS_OK;
}

int dn_file_place(const danaus_file *file, const char *name)
{
    const named_place wanted = { name, 0 };
    const named_place *found = bsearch(
        &wanted, file->by_name, (size_t)(file->count + file->foreign_count),
        sizeof wanted, by_name);
    return found ? found->place : -1;
}

danaus_status danaus_file_tensor(
    const danaus_file *file, int index, danaus_tensor *tensor)
{
    if (!file || !tensor)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a file and a place for a tensor are needed");
    if (index < 0 || index >= file->count)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "there is no tensor %d among %d", index, file->count);
    *tensor = file->tensors[index];
    return DANAUS_OK;
}

int danaus_file_entry_count(const danaus_file *file)
{
    return file ? file->entry_count : 0;
}

danaus_status danaus_file_entry_at(
    const danaus_file *file, int index, danaus_file_entry *entry)
{
    if (!file || !entry)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a file and a place for an entry are needed");
    if (index < 0 || index >= file->entry_count)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "there is no entry %d: the file has %d, from 0", index,
            file->entry_count);
    *entry = file->entries[index];
    return DANAUS_OK;
}

const char *danaus_file_metadata_key(const danaus_file *file, int index)
{
    return file && index >= 0 && index < file->key_count ? file->keys[index] : NULL;
}

int dn_file_integers(
    const danaus_file *file, const char *name, int64_t count, int64_t *to)
{
    int place = dn_file_place(file, name);
    if (place >= file->count) {
        const foreign_tensor *f = &file->foreign[place - file->count];
        if (strcmp(f->type, "I64") || f->bytes != count * 8)
            return 1;
        memcpy(to, f->data, (size_t)f->bytes);
        return 0;
    }
    if (place < 0)
        return 1;
    const danaus_tensor *t = &file->tensors[place];
    if (t->dtype != DANAUS_F32 || t->ndim != 1 || t->shape[0] != count)
        return 1;
    for (int64_t n = 0; n < count; n++) {
        float number = ((const float *)t->data)[n];
        to[n] = number >= 0 && number < 0x1p24f ? (int64_t)number : -1;
    }
    return 0;
}

static danaus_status fail_foreign(const foreign_tensor *f)
{
    if (f->ndim > DANAUS_MAX_DIMS)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "tensor \"%.100s\" has %" PRId64 " dimensions; danaus reads up to %d",
            f->name, f->ndim, DANAUS_MAX_DIMS);
    return dn_fail(
        DANAUS_ERR_UNSUPPORTED,
        "tensor \"%.100s\" has type %.20s, which danaus does not read", f->name,
        f->type);
}

danaus_status danaus_file_find(
    const danaus_file *file, const char *name, danaus_tensor *tensor)
{
    if (!file || !name || !tensor)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a file, a name and a place for a tensor are needed");
    int place = dn_file_place(file, name);
    if (place >= file->count)
        return fail_foreign(&file->foreign[place - file->count]);
    if (place >= 0) {
        *tensor = file->tensors[place];
        return DANAUS_OK;
    }
    int total = file->count + file->foreign_count;
    if (total == 1 && !*dn_file_name(file, 0))
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "there is no tensor \"%.100s\"; the file has one array, without a name",
            name);
    return dn_fail(
        DANAUS_ERR_ARGUMENT, "there is no tensor \"%.100s\"; the file has %d%s%.100s%s",
        name, total, total ? ", the first is \"" : "",
        total ? dn_file_name(file, 0) : "", total ? "\"" : "");
}

const char *danaus_file_metadata(const danaus_file *file, const char *key)
{
    if (!file || !key)
        return NULL;
    return json_string_value(
        json_object_get(json_object_get(file->header, "__metadata__"), key));
}

danaus_status danaus_file_write(const char *path, const void *data, size_t bytes)
{
    if (!path || (!data && bytes))
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "the path, or what is to be written, is NULL");
    file_part part = { data, bytes };
    return dn_replace_file(path, &part, 1);
}

danaus_status danaus_file_check_output(const char *path, int *replaced)
{
    if (!path || !replaced)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a path and a place for a flag are needed");
    return dn_check_output(path, replaced);
}

void danaus_file_abandon(void) { dn_abandon_files(); }
