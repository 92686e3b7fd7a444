/* A map says where each of a row's packed numbers comes from: its packer as a table that a
   device can follow. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_GPU_PRODUCT_PACK_MAP_H
#define DN_GPU_PRODUCT_PACK_MAP_H

#include "gpu/gpu.h"

#include <stdint.h>

/* Packed number n is made of what entry[n / group] + n mod group * step says, if that entry
   is not 0: 1 + 2 (which weight) + (is it what rounding leaves?), modulo 2^32. Weights are counted
   as they lie, first those of the problem's factor (or, if the map is for an adjoint, of
   the factor whose adjoint that is), then those of its inner one. Numbers without an entry
   are zero.
   f32 is rounded to 23 - dropped bits of mantissa. */
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

/* The map is found by packing weights that are nowhere (weights_view.places): rows need
   nothing but a packer that puts numbers by dn_gpu_put(). */
danaus_status dn_gpu_map_packing(
    const kernel *k, const problem *p, int adjoint, gpu_pack_map *map);

#endif
