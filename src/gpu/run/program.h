/* Functions of rows and of uses: hashed, compiled, kept on the disk (images/), loaded. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_GPU_RUN_PROGRAM_H
#define DN_GPU_RUN_PROGRAM_H

#include "gpu/run/run.h"

/* Compiles a text with these defines for an architecture; the rest is as in gpu_driver. */
danaus_status dn_gpu_compile(
    const gpu_driver *driver, const char *name, const char *defines, int arch,
    void **image, size_t *bytes, char **log, int *refused);

/* Hashes everything that decides what is compiled: danaus' version, what the driver adds, the
   defines, the text `name`, and all texts that it may include. */
hash128 dn_gpu_image_key(
    const gpu_driver *driver, const char *name, const char *defines, int arch);

/* Hashes all texts of a list that others may include. */
hash128 dn_gpu_hash_included(const gpu_text *texts);

/* True if the image of that key is on this machine's disk. */
int dn_gpu_has_image(hash128 key);

/* Gives a use its hashes. */
void dn_gpu_hash_use(const gpu_driver *driver, gpu_use *use, int arch);
int dn_gpu_is_loaded(gpu_shared *g, const gpu_use *use);

/* The function of a use: from memory, from an image, the disk, or the compiler. *refused
   becomes 1 where it does not compile, or is not for this GPU. */
danaus_status dn_gpu_load_use(
    gpu_device *d, const gpu_use *use, const void *image, size_t bytes, int *refused,
    gpu_function *function);

/* dn_gpu_has_function(): true if the function of a row for a problem is loaded.
   dn_gpu_add_function() adds one. */
int dn_gpu_has_function(gpu_device *d, const kernel *k, const problem *p, int variant);
danaus_status dn_gpu_add_function(
    gpu_device *d, const kernel *k, const problem *p, int variant,
    gpu_function function);

/* Unloads all, and forgets which rows are refused. */
void dn_gpu_unload_all(gpu_shared *g);

#endif
