/* Numbers to measure with: xorshift64. */
// SPDX-License-Identifier: Apache-2.0
#include "common/noise.h"

#include "common/open.h"

#define BLOCK 16384 /* real numbers that are made at a time */

static danaus_status fill(
    void *to, int64_t count, danaus_dtype dtype, double scale, uint64_t *state)
{
    double block[BLOCK];
    int parts = is_complex(dtype) ? 2 : 1;
    for (int64_t i = 0; i < count * parts; i++) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        block[i] = ((double)(*state >> 11) * 0x1p-52 - 1) * scale;
    }
    danaus_dtype wide = parts == 2 ? DANAUS_C128 : DANAUS_F64;
    return danaus_convert(wide, block, dtype, to, count);
}

static uint64_t start_of(uint64_t seed) { return (seed + 1) * 0x9e3779b97f4a7c15u | 1; }

danaus_status noise_fill(
    void *to, int64_t count, danaus_dtype dtype, double scale, uint64_t seed)
{
    uint64_t state = start_of(seed);
    danaus_status status = DANAUS_OK;
    for (int64_t at = 0; at < count && !status; at += BLOCK / 2) {
        int64_t n = count - at < BLOCK / 2 ? count - at : BLOCK / 2;
        char *there = (char *)to + (size_t)at * danaus_dtype_size(dtype);
        status = fill(there, n, dtype, scale, &state);
    }
    return status;
}

danaus_status noise_on_device(
    danaus_device *device, int64_t count, danaus_dtype dtype, uint64_t seed, void **to)
{
    double block[BLOCK];
    uint64_t state = start_of(seed);
    size_t size = danaus_dtype_size(dtype);
    void *memory = NULL;
    danaus_status status = danaus_alloc(device, (size_t)count * size, &memory);
    for (int64_t at = 0; at < count && !status; at += BLOCK / 2) {
        int64_t n = count - at < BLOCK / 2 ? count - at : BLOCK / 2;
        status = fill(block, n, dtype, 1, &state);
        if (!status)
            status = danaus_upload(
                device, (char *)memory + (size_t)at * size, block, (size_t)n * size);
    }
    if (status)
        danaus_free(device, memory);
    else
        *to = memory;
    return status;
}
