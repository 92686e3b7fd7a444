/* Arrays in files: .npy (one array) and safetensors (many, with metadata).

   A file is mapped, not read: data pointers lead into the map and are valid until
   the file is closed. Nobody may shorten the file meanwhile. The claims of a file
   are checked before they are used. docs/formats.md has the formats. */
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
    uint64_t reserved[5]; /* zero, also in tensors to write */
} danaus_tensor;

/* Opens a .npy (versions 1 to 3) or safetensors file, recognised by content. Every
   tensor is row-major and aligned: Fortran-ordered .npy arrays, and data at addresses
   that do not suit their type, are copied on opening. */
DANAUS_API danaus_status danaus_file_open(const char *path, danaus_file **file);
DANAUS_API void danaus_file_close(danaus_file *file); /* NULL is fine */

/* Tensors are in the order of their data. Tensors of a type that danaus lacks, or with
   too many dimensions, are not counted. */
DANAUS_API int danaus_file_count(const danaus_file *file);
DANAUS_API danaus_status
danaus_file_tensor(const danaus_file *file, int index, danaus_tensor *tensor);

/* DANAUS_ERR_ARGUMENT if there is no tensor of that name, DANAUS_ERR_UNSUPPORTED if
   danaus cannot read it; the sentence says which type it has. */
DANAUS_API danaus_status
danaus_file_find(const danaus_file *file, const char *name, danaus_tensor *tensor);

/* The value of a safetensors __metadata__ entry, or NULL. */
DANAUS_API const char *danaus_file_metadata(const danaus_file *file, const char *key);

/* Write one array as .npy 1.0, or many as safetensors. `metadata` holds 2 * pairs
   strings, key then value. The file appears complete or not at all: on failure an older
   file of that name does not change. Pipes, devices and targets of links in /proc, for
   example /dev/stdout, are written to directly. */
DANAUS_API danaus_status
danaus_file_write_npy(const char *path, const danaus_tensor *tensor);
DANAUS_API danaus_status danaus_file_write_safetensors(
    const char *path, const danaus_tensor *tensors, int count,
    const char *const *metadata, int pairs);

/* Writes any bytes in the same manner, flushed to the disk. */
DANAUS_API danaus_status
danaus_file_write(const char *path, const void *data, size_t bytes);

/* Fails unless a file can be written at the path: call this before long work. *replaced is 1
   if a new file will replace the path, 0 if the existing one will be written to. */
DANAUS_API danaus_status danaus_file_check_output(const char *path, int *replaced);

/* Removes the incomplete files of unfinished calls. A signal handler may call this if the
   process then ends. Few file systems need it: on others such files have no name and vanish
   with the process. */
DANAUS_API void danaus_file_abandon(void);

/* An array as the file describes it, of any type and number of dimensions. All pointers
   belong to the file. */
typedef struct danaus_file_entry {
    const char *name;     /* "" for a .npy file */
    const char *type;     /* as in the file: "F32", "I64"; "<f4" in .npy */
    const int64_t *shape; /* [ndim] */
    int64_t ndim, bytes;
    danaus_dtype dtype; /* 0: danaus_file_tensor() does not return it */
    uint32_t reserved[11];
} danaus_file_entry;

/* Opens a file only for its entries and metadata: it has no tensors to find, nothing is
   copied, and a .npy array may have any type. */
DANAUS_API danaus_status danaus_file_open_entries(const char *path, danaus_file **file);

/* Entries are in the order of their data. DANAUS_ERR_ARGUMENT if there is no entry of this
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
