/* From names and shapes to the numbers of a weights file. Errors are collected and reported when
   all tensors have been asked for. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_BIND_H
#define DN_MODEL_BIND_H

#include "danaus/device.h"
#include "danaus/file.h"

#define BINDER_PROBLEMS 600
#define MOST_NAME       256 /* bytes of the name of a tensor or layer, with its end */

/* A name of parts; what is longer than MOST_NAME is cut off. */
typedef struct tensor_name {
    char text[MOST_NAME];
} tensor_name;

tensor_name dn_name(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Device memory that a model allocates, and frees together; of an outline it is counted and
   not allocated. */
typedef struct device_memory {
    danaus_device *device;
    void **block;
    size_t count, capacity;
    int64_t bytes; /* of all */
    int outline;
} device_memory;

/* *block is NULL in an outline. */
danaus_status dn_memory_add(device_memory *m, int64_t bytes, void **block);
void dn_memory_free(device_memory *m);

typedef struct binder {
    danaus_device *device;
    danaus_dtype dtype; /* of rows of tokens */
    danaus_file *file;
    device_memory *copies; /* of what does not lie in the file as it is needed */
    int unshifted;         /* normalisations only scale: they have no bias */
    const char *prefix;    /* of all names in the file */
    char *taken;           /* for each tensor: whether it has a place */
    int problems;
    char text[BINDER_PROBLEMS];
    int64_t parameters; /* numbers that were bound, but for weights of linear layers */
    int int8;           /* linear layers are to multiply 8-bit numbers */
    float **widened;    /* of tensors of 8 bits that were found, */
    int widened_count;  /* since dn_binder_forget() */
    danaus_status failed; /* what else went wrong */
} binder;

/* The file and the copies stay the caller's. */
danaus_status dn_binder_open(
    binder *b, danaus_file *file, device_memory *copies, danaus_dtype dtype);
void dn_binder_close(binder *b);

/* Adds a sentence to the errors. */
void dn_binder_complain(binder *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The tensor of this name, of a real type; 0: there is none. One of type I8 is multiplied by
   NAME_scale, whose sizes are the same or 1, and is then f32 until dn_binder_forget(). In an outline
   its numbers are not read. */
int dn_binder_find(binder *b, const char *name, danaus_tensor *tensor);

/* The tensor of this name, of a real type and of this shape; 0: a complaint was made. */
int dn_binder_take(
    binder *b, const char *name, int ndim, const int64_t *shape, danaus_tensor *tensor);

/* Frees what tensors of 8 bits became. */
void dn_binder_forget(binder *b);

/* Complains of a tensor that dn_binder_find() does not find: there is none, or it has a type
   that is not read. */
void dn_binder_lack(binder *b, const char *name, int ndim, const int64_t *shape);

/* Numbers of a tensor with these dimensions, as f32 in device memory: the mapped file itself if
   the device's memory is the host's, otherwise a copy. NULL after an error was added. In an
   outline they are those of the file, which are not read. */
danaus_status dn_bind(
    binder *b, const char *name, int ndim, const int64_t *shape, const float **numbers);

/* The same in the type of rows. */
danaus_status dn_bind_rows(
    binder *b, const char *name, int ndim, const int64_t *shape, const void **numbers);

/* Integers of a tensor (dn_file_integers()). Nonzero: it is not there. */
int dn_binder_integers(binder *b, const char *name, int64_t count, int64_t *to);

/* Fails unless everything was found and every tensor of the file has a place. Tensors whose
   names begin with one of `others`, a list that ends with NULL, need no place. */
danaus_status dn_binder_settle(binder *b, const char *const *others);

#endif
