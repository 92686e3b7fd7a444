/* Arrays in files: .npy (one array) and safetensors (many, with metadata).

   A file is mapped, not read: data pointers lead into the map and live until
   the file is closed; nobody may shorten it meanwhile. What a file claims is
   checked before it is believed. docs/formats.md has the formats. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DANAUS_FILE_H
#define DANAUS_FILE_H

#include "danaus/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DANAUS_MAX_DIMS 8

typedef struct danaus_file danaus_file;

/* A view of a row-major array; name and data belong to the file or caller. */
typedef struct danaus_tensor {
    const char *name; /* "" for a .npy file */
    const void *data;
    danaus_dtype dtype;
    int ndim; /* 0 to DANAUS_MAX_DIMS; 0 is one element */
    int64_t shape[DANAUS_MAX_DIMS];
    uint64_t reserved[5]; /* zero, also when it is written */
} danaus_tensor;

/* Opens a .npy (versions 1 to 3) or safetensors file, recognised by content.
   Fortran-ordered .npy arrays and data at addresses that do not suit their type
   are copied on opening: every tensor is row-major and aligned. */
DANAUS_API danaus_status danaus_file_open(const char *path, danaus_file **file);
DANAUS_API void danaus_file_close(danaus_file *file); /* NULL is fine */

/* Tensors are in the order of their data. Those of a type that danaus lacks, or of
   too many dimensions, are not counted. */
DANAUS_API int danaus_file_count(const danaus_file *file);
DANAUS_API danaus_status
danaus_file_tensor(const danaus_file *file, int index, danaus_tensor *tensor);

/* DANAUS_ERR_ARGUMENT when there is no tensor of that name, DANAUS_ERR_UNSUPPORTED
   when danaus cannot read it; the sentence says which type it has. */
DANAUS_API danaus_status
danaus_file_find(const danaus_file *file, const char *name, danaus_tensor *tensor);

/* The value of a safetensors __metadata__ entry, or NULL. */
DANAUS_API const char *danaus_file_metadata(const danaus_file *file, const char *key);

/* Write one array as .npy 1.0, or many as safetensors. `metadata` holds
   2 * pairs strings, key then value. The file appears complete or not at all:
   on failure an older file of that name is left as it was. A pipe, a device, and what
   a link of /proc leads to, such as /dev/stdout, are written to instead. */
DANAUS_API danaus_status
danaus_file_write_npy(const char *path, const danaus_tensor *tensor);
DANAUS_API danaus_status danaus_file_write_safetensors(
    const char *path, const danaus_tensor *tensors, int count,
    const char *const *metadata, int pairs);

/* Writes any bytes in the same manner, flushed to the disk. */
DANAUS_API danaus_status
danaus_file_write(const char *path, const void *data, size_t bytes);

/* Fails unless a file can be written at the path, before work that takes long. *replaced:
   1 if the file will appear whole, 0 if what is there is written to. */
DANAUS_API danaus_status danaus_file_check_output(const char *path, int *replaced);

/* Removes the incomplete files of calls that are not done. A signal handler may call
   this, if the process then ends. Few file systems need it: others keep such files
   without a name, so that they go with the process. */
DANAUS_API void danaus_file_abandon(void);

/* An array as the file describes it, of any type and number of dimensions. All belongs to
   the file. */
typedef struct danaus_file_entry {
    const char *name;     /* "" for a .npy file */
    const char *type;     /* as the file has it: "F32", "I64"; "<f4" of .npy */
    const int64_t *shape; /* [ndim] */
    int64_t ndim, bytes;
    danaus_dtype dtype; /* 0: danaus_file_tensor() does not give it */
    uint32_t reserved[11];
} danaus_file_entry;

/* Opens a file for its entries and metadata alone: no tensor is found in it, nothing is
   copied, and a .npy array may be of any type. */
DANAUS_API danaus_status danaus_file_open_entries(const char *path, danaus_file **file);

/* Entries are in the order of their data. DANAUS_ERR_ARGUMENT: there is none of this
   number. */
DANAUS_API int danaus_file_entry_count(const danaus_file *file);
DANAUS_API danaus_status
danaus_file_entry_at(const danaus_file *file, int index, danaus_file_entry *entry);

/* The keys of the metadata, in the order of the file; NULL past the last one. */
DANAUS_API const char *danaus_file_metadata_key(const danaus_file *file, int index);

#ifdef __cplusplus
}
#endif

#endif
