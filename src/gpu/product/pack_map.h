/* A map says where each of a row's packed numbers comes from: its packer as a table that a
   device can follow. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_GPU_PRODUCT_PACK_MAP_H
#define DN_GPU_PRODUCT_PACK_MAP_H

#include "gpu/gpu.h"

#include <stdint.h>

/* Packed number n has the code entry[n / group] + n mod group * step, modulo 2^32, if that
   entry is not 0. A code is 1 + 2 (number of the weight), plus 1 if the number is what rounding
   loses. Weights are counted in memory order: first those of the problem's factor (for the map
   of an adjoint, of the factor before transposition), then those of its inner factor. Numbers
   without an entry are zero. f32 is rounded to 23 - dropped bits of mantissa. */
typedef struct gpu_pack_map {
    danaus_dtype type; /* of packed numbers */
    int dropped;
    int64_t count;  /* packed numbers */
    int group_log2; /* group is a power of two that divides count */
    uint32_t step;
    int64_t weights[2]; /* of the factor, and of the inner one */
    uint32_t *entry;    /* count / group; to be freed by dn_free */
} gpu_pack_map;

#define DN_MOST_MAPPED ((INT64_C(1) << 31) - 1) /* weights */

/* Finds the map by packing a view without memory (weights_view.places). A row needs only a
   packer that puts numbers by dn_gpu_put(). */
danaus_status dn_gpu_map_packing(
    const kernel *k, const problem *p, int adjoint, gpu_pack_map *map);

#endif
