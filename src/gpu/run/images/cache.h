/* Compiled kernels kept on the disk: files CACHE/HASH.cubin.

   The folder is $DANAUS_CACHE, else $XDG_CACHE_HOME/danaus, else ~/.cache/danaus; an
   empty DANAUS_CACHE turns the cache off. A file that is not what it claims to be counts
   as missing; a folder that cannot be written is no error. Files appear in one step, so
   that any number of processes may share a folder. docs/formats.md has the format. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_GPU_RUN_IMAGES_CACHE_H
#define DN_GPU_RUN_IMAGES_CACHE_H

#include "base/hash.h"
#include "danaus/base.h"

/* What files say of an image. */
typedef struct image_head {
    hash128 key, hash;    /* hash: of the image */
    uint64_t bytes, arch; /* arch: ten times the compute capability that it is for */
    char version[16];     /* of danaus */
} image_head;

/* A file of the cache, or a piece of a bundle. */
typedef struct cache_entry {
    image_head head;
    const unsigned char *image;
} cache_entry;

/* Nonzero: the image is what its head says. */
int dn_cache_is_whole(const cache_entry *entry);

/* The image copied, if it is whole: the caller frees it; else NULL. */
void *dn_cache_copy(const cache_entry *entry);

/* Reads a file of the cache; nonzero when it is one, and whole. */
int dn_cache_parse(const unsigned char *data, size_t size, cache_entry *entry);

/* True if the cache has a file of that key. */
int dn_cache_has(hash128 key);

/* Nonzero when it is there; the caller frees *image. */
int dn_cache_load(hash128 key, void **image, size_t *bytes);

/* Keeps an image; the oldest files go when the folder holds more than the cache may. */
danaus_status dn_cache_store(hash128 key, int arch, const void *image, size_t bytes);

/* Bytes that the folder may hold. */
int64_t dn_cache_most(void);

/* The folder's path, in PATH_MAX bytes; 0: there is to be no cache. */
int dn_cache_folder(char *folder);

/* True if this is the name of a file of the cache. */
int dn_cache_is_ours(const char *name);

#endif
