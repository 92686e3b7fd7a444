/* Many compiled kernels in one file: a head, an index sorted by key, and the images. The
   index is checked when the file is opened, and an image when it is loaded. docs/formats.md
   has the format. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_GPU_RUN_IMAGES_BUNDLE_H
#define DN_GPU_RUN_IMAGES_BUNDLE_H

#include "base/map.h"
#include "gpu/run/images/cache.h"
#include "danaus/device.h"

typedef struct bundle {
    map file; /* its owner closes it */
    uint64_t count;
    hash128 index; /* its hash: bundles with equal ones are the same */
} bundle;

/* Takes the file for a bundle, once its index is found to be sound. */
danaus_status dn_bundle_read(map file, bundle *b);
danaus_status dn_bundle_open(const char *path, bundle *b);

/* Kernel number i; it may be damaged. */
cache_entry dn_bundle_entry(const bundle *b, uint64_t i);

/* The kernel of that key, if it is there; it may be damaged. */
int dn_bundle_find(const bundle *b, hash128 key, cache_entry *entry);

/* Nothing is done unless all images are whole. */
danaus_status dn_bundle_check(const bundle *b);

/* danaus_kernels_export, _import and _list. */
danaus_status dn_bundle_export(
    const char *instructions, const char *path, int64_t *count);
danaus_status dn_bundle_import(const char *path, int64_t *count);
danaus_status dn_bundle_list(const char *path, int index, danaus_kernels_info *info);

/* Bundles that this process looks into before its cache: shipped.c. danaus_kernels_use,
   and the kernel of a key as dn_cache_has and dn_cache_load have it. */
danaus_status dn_shipped_use(const char *path);
int dn_shipped_has(hash128 key);
int dn_shipped_load(hash128 key, void **image, size_t *bytes);

#endif
