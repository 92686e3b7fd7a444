/* What the readers of .npy and safetensors share: an open file is a table of
   tensors over its bytes. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_IO_FILE_H
#define DN_IO_FILE_H

#include "base/map.h"
#include "danaus/file.h"

#include <jansson.h>

/* A tensor that the file holds but danaus_tensor cannot express. */
typedef struct foreign_tensor {
    const char *name;
    const char *type;
    int64_t ndim;
    const void *data; /* at any address */
    int64_t bytes;
} foreign_tensor;

/* A name and the place of its tensor, for which dn_file_name() gives that name. */
typedef struct named_place {
    const char *name;
    int place;
} named_place;

/* Everything that is not NULL is owned, except that names and keys lead into `header`. */
struct danaus_file {
    map map; /* empty when the bytes are the caller's */
    int count, foreign_count;
    danaus_tensor *tensors; /* in the order of their data */
    foreign_tensor *foreign;
    named_place *by_name; /* all tensors, sorted by name */
    int entry_count, key_count;
    danaus_file_entry *entries; /* of all, in the order of their data */
    const char **keys;          /* of the metadata */
    int64_t *sizes;             /* that shapes of entries lead to */
    char *type;                 /* of a .npy array */
    int entries_only;
    danaus_file **parts; /* that it was joined of */
    int part_count;
    void *owned;    /* data that the file has in another order or alignment */
    json_t *header; /* safetensors */
};

/* Reads a file from memory, which must stay as long as the file is open. */
danaus_status dn_file_read(const void *data, size_t size, danaus_file **file);

/* The same for entries and metadata alone (danaus_file_open_entries()). */
danaus_status dn_file_read_entries(const void *data, size_t size, danaus_file **file);

/* A list of so many entries, whose shapes have so many sizes together, to be filled. */
danaus_status dn_file_make_entries(danaus_file *file, int count, size_t sizes);

/* Many files as one, with the tensors of each in turn. The array and the files in it become
   its own when it succeeds. A name that two files have is DANAUS_ERR_FORMAT. */
danaus_status dn_file_join(danaus_file **parts, int count, danaus_file **file);

/* Pages that were read need not stay in memory: they are read again when they are used. */
void dn_file_forget(const danaus_file *file);

/* The two formats: fill an empty file. danaus_file_close() releases what they
   made, also when they fail. */
int dn_is_npy(const unsigned char *data, size_t size);
danaus_status dn_npy_read(const unsigned char *data, size_t size, danaus_file *file);
int dn_is_safetensors(const unsigned char *data, size_t size);
danaus_status dn_safetensors_read(
    const unsigned char *data, size_t size, danaus_file *file);

/* The name of tensor `index`, those that cannot be read included; NULL past the
   last one. */
const char *dn_file_name(const danaus_file *file, int index);

/* Sorts the names of a file whose tables of tensors are complete. */
danaus_status dn_file_sort_names(danaus_file *file);

/* The place of the tensor of this name, those that cannot be read included; -1 if there is
   none. */
int dn_file_place(const danaus_file *file, const char *name);

/* Reads `count` integers of a tensor of 64-bit integers (of type I64), or of integers as
   numbers of type f32. Nonzero: there is no such tensor. */
int dn_file_integers(
    const danaus_file *file, const char *name, int64_t count, int64_t *to);

/* Bytes of an array; nonzero when its sizes, leaving zeros out, do not fit in an
   int64. */
int dn_array_bytes_overflow(
    danaus_dtype dtype, int ndim, const int64_t *shape, int64_t *bytes);

/* Nonzero when elements of this type cannot be read at this address. */
int dn_misaligned(const void *data, danaus_dtype dtype);

/* What can be written to a file: a known type, sizes that fit, data. */
danaus_status dn_check_tensor(const danaus_tensor *tensor);

#endif
