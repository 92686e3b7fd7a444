/* Compiled kernels kept on the disk: files CACHE/HASH.cubin.

   The folder is $DANAUS_CACHE, else $XDG_CACHE_HOME/danaus, else ~/.cache/danaus; an
   empty DANAUS_CACHE turns the cache off. A file that is not what it claims to be counts
   as missing; a folder that cannot be written is no error. Files appear in one step, so
   that any number of processes may share a folder. docs/formats.md has the format. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CUDA_CACHE_H
#define DN_CUDA_CACHE_H

#include "danaus/base.h"

typedef struct cache_key {
    uint64_t part[2];
} cache_key;

/* The key of pieces of text, one after the other; ends with NULL. */
cache_key dn_cache_key(const char *const *pieces);

/* Is there a file of that key? */
int dn_cache_has(cache_key key);

/* Nonzero when it is there; the caller frees *image. */
int dn_cache_load(cache_key key, void **image, size_t *bytes);

/* Keeps an image, if that is possible; the oldest files go when the folder holds more
   than 256 MiB. */
void dn_cache_store(cache_key key, const void *image, size_t bytes);

#endif
