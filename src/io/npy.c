/* One array in a .npy file.

   "\x93NUMPY", version (2 bytes), length of the header (little-endian, 2 bytes in
   version 1, 4 bytes in 2 and 3), the header, the elements. The header is a Python
   dictionary  {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }  and
   spaces. Source: numpy.lib.format; docs/formats.md. */
// SPDX-License-Identifier: Apache-2.0
#include "io/file.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/replace.h"
#include "base/status.h"
#include "base/text.h"
#include "io/npy_header.h"
#include "io/transpose.h"

#include <inttypes.h>
#include <string.h>

#define MAGIC        "\x93NUMPY"
#define MAGIC_BYTES  6
#define HEADER_LIMIT 65535 /* bytes of a dictionary: what version 1 can hold */
#define HEADER_ALIGN 64    /* of the first element in files that we write */

int dn_is_npy(const unsigned char *data, size_t size)
{
    return size >= MAGIC_BYTES && !memcmp(data, MAGIC, MAGIC_BYTES);
}

/* ---- reading ---- */

/* Finds the dictionary; the elements follow it. */
static danaus_status find_header(
    const unsigned char *data, size_t size, const char **header, size_t *header_bytes)
{
    if (size < MAGIC_BYTES + 2)
        return dn_fail(DANAUS_ERR_FORMAT, "the .npy file ends in its first 10 bytes");
    int major = data[MAGIC_BYTES], minor = data[MAGIC_BYTES + 1];
    if (major < 1 || major > 3 || minor != 0)
        return dn_fail(
            DANAUS_ERR_FORMAT,
            ".npy version %d.%d is unknown; 1.0, 2.0 and 3.0 are read", major, minor);
    size_t width = major == 1 ? 2 : 4, length = 0, start = MAGIC_BYTES + 2 + width;
    if (size < start)
        return dn_fail(
            DANAUS_ERR_FORMAT, "the .npy file ends in its first %zu bytes", start);
    for (size_t i = 0; i < width; i++)
        length |= (size_t)data[MAGIC_BYTES + 2 + i] << (8 * i);
    if (length > HEADER_LIMIT)
        return dn_fail(
            DANAUS_ERR_FORMAT, "the .npy header claims %zu bytes; at most %d are read",
            length, HEADER_LIMIT);
    if (length > size - start)
        return dn_fail(
            DANAUS_ERR_FORMAT, "the .npy header claims %zu bytes and the file has %zu",
            length, size - start);
    *header = (const char *)data + start;
    *header_bytes = length;
    return DANAUS_OK;
}

/* Elements that lie in Fortran's order or at an odd address are copied. */
static danaus_status place_elements(
    const npy_header *h, int64_t bytes, danaus_file *file, danaus_tensor *t)
{
    int long_dims = 0;
    for (int i = 0; i < t->ndim; i++)
        long_dims += t->shape[i] > 1;
    int turn = h->fortran && long_dims > 1 && bytes > 0;
    if (!turn && !dn_misaligned(t->data, t->dtype))
        return DANAUS_OK;
    file->owned = dn_alloc((size_t)bytes);
    if (!file->owned)
        return dn_fail_memory((size_t)bytes, "a copy of the .npy array");
    if (turn)
        dn_turn_row_major(
            file->owned, t->data, danaus_dtype_size(t->dtype), t->ndim, t->shape);
    else
        memcpy(file->owned, t->data, (size_t)bytes);
    t->data = file->owned;
    return DANAUS_OK;
}

/* Bytes of an element of a type such as "<i8", "|b1" or "<U5"; 0: it is not known. */
static int64_t element_bytes(const npy_header *h)
{
    int64_t bytes = 0;
    if (h->dtype)
        return (int64_t)danaus_dtype_size(h->dtype);
    if (h->type.length < 3 || !strchr("<>|=", *h->type.text) ||
        !dn_span_integer((span){ h->type.text + 2, h->type.length - 2 }, &bytes) ||
        dn_mul_overflows(bytes, h->type.text[1] == 'U' ? 4 : 1, &bytes))
        return 0;
    return bytes;
}

/* Compares what the header needs with the bytes behind it. */
static danaus_status check_bytes(const npy_header *h, size_t left)
{
    int64_t element = element_bytes(h), bytes = element;
    int empty = 0;
    for (int i = 0; i < h->ndim; i++) {
        empty |= h->shape[i] == 0;
        if (h->shape[i] && dn_mul_overflows(bytes, h->shape[i], &bytes))
            return dn_fail(DANAUS_ERR_FORMAT, "the size of the .npy array overflows");
    }
    bytes = empty ? 0 : bytes;
    if (!element || (uint64_t)bytes == left)
        return DANAUS_OK;
    return dn_fail(
        DANAUS_ERR_FORMAT,
        "the .npy header describes %" PRId64 " bytes of elements and the file has %zu",
        bytes, left);
}

static danaus_status list_entry(const npy_header *h, size_t left, danaus_file *file)
{
    TRY(dn_file_make_entries(file, 1, (size_t)h->ndim));
    file->type = dn_calloc(h->type.length + 1, 1);
    if (!file->type)
        return dn_fail_memory(h->type.length + 1, "a type");
    memcpy(file->type, h->type.text, h->type.length);
    memcpy(file->sizes, h->shape, (size_t)h->ndim * sizeof *h->shape);
    file->entries[file->entry_count++] = (danaus_file_entry){
        .name = "",
        .type = file->type,
        .shape = file->sizes,
        .ndim = h->ndim,
        .bytes = (int64_t)left,
        .dtype = h->ndim > DANAUS_MAX_DIMS ? (danaus_dtype)0 : h->dtype,
    };
    return DANAUS_OK;
}

danaus_status dn_npy_read(const unsigned char *data, size_t size, danaus_file *file)
{
    const char *header = NULL;
    size_t length = 0;
    npy_header h = { .any = file->entries_only };
    TRY(find_header(data, size, &header, &length));
    TRY(dn_npy_header_read(header, length, &h));
    size_t left = size - (size_t)(header + length - (const char *)data);
    TRY(check_bytes(&h, left));
    TRY(list_entry(&h, left, file));
    if (file->entries_only)
        return DANAUS_OK;
    danaus_tensor t = {
        .name = "", .data = header + length, .dtype = h.dtype, .ndim = h.ndim
    };
    memcpy(t.shape, h.shape, sizeof t.shape);
    TRY(place_elements(&h, (int64_t)left, file, &t));
    file->tensors = dn_alloc(sizeof t);
    if (!file->tensors)
        return dn_fail_memory(sizeof t, "a tensor");
    file->tensors[0] = t;
    file->count = 1;
    return DANAUS_OK;
}

/* ---- writing ---- */

/* The header that NumPy itself writes, filled with spaces up to a multiple of 64
   bytes; returns its length. */
static size_t make_header(const danaus_tensor *tensor, char *to, size_t size)
{
    const dtype_facts *f = dn_dtype(tensor->dtype);
    text t = { to, size, 0 };
    dn_text(&t, MAGIC "\1%c%c%c", 0, 0, 0);
    dn_text(
        &t, "{'descr': '<%c%d', 'fortran_order': False, 'shape': (", f->npy_kind,
        f->npy_size);
    for (int i = 0; i < tensor->ndim; i++)
        dn_text(&t, "%s%" PRId64, i ? ", " : "", tensor->shape[i]);
    dn_text(&t, "%s), }", tensor->ndim == 1 ? "," : "");
    while (t.length % HEADER_ALIGN != HEADER_ALIGN - 1)
        dn_text(&t, " ");
    dn_text(&t, "\n");
    size_t length = t.length - MAGIC_BYTES - 4;
    to[MAGIC_BYTES + 2] = (char)(length & 255);
    to[MAGIC_BYTES + 3] = (char)(length >> 8);
    return t.length;
}

danaus_status danaus_file_write_npy(const char *path, const danaus_tensor *tensor)
{
    if (!path || !tensor)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a path and an array are needed");
    TRY(dn_check_tensor(tensor));
    if (!dn_is_computed(tensor->dtype))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "integers are written to safetensors files alone");
    char header[512];
    int64_t bytes;
    dn_array_bytes_overflow(tensor->dtype, tensor->ndim, tensor->shape, &bytes);
    const file_part parts[] = {
        { header, make_header(tensor, header, sizeof header) },
        { tensor->data, (size_t)bytes },
    };
    return dn_replace_file(path, parts, 2);
}
