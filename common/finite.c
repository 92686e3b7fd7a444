// SPDX-License-Identifier: Apache-2.0
#include "common/finite.h"

#include "common/args.h"

#include <inttypes.h>
#include <string.h>

/* Where a type has its exponent: all bits of it are set in infinities and NaN. */
static const struct {
    danaus_dtype dtype;
    size_t bytes; /* of a part */
    int parts;    /* of a value */
    uint64_t exponent;
} layouts[] = {
    { DANAUS_F16, 2, 1, 0x7c00 },
    { DANAUS_BF16, 2, 1, 0x7f80 },
    { DANAUS_F32, 4, 1, 0x7f800000 },
    { DANAUS_C64, 4, 2, 0x7f800000 },
    { DANAUS_F64, 8, 1, 0x7ff0000000000000 },
    { DANAUS_C128, 8, 2, 0x7ff0000000000000 },
};

static int is_lost(const char *part, size_t bytes, uint64_t exponent)
{
    uint16_t half;
    uint32_t single;
    uint64_t bits;
    if (bytes == sizeof half) {
        memcpy(&half, part, sizeof half);
        bits = half;
    } else if (bytes == sizeof single) {
        memcpy(&single, part, sizeof single);
        bits = single;
    } else {
        memcpy(&bits, part, sizeof bits);
    }
    return (bits & exponent) == exponent;
}

int64_t count_non_finite(danaus_dtype dtype, const void *data, int64_t count)
{
    int64_t lost = 0;
    size_t i = 0;
    while (i < sizeof layouts / sizeof *layouts && layouts[i].dtype != dtype)
        i++;
    if (!data || i == sizeof layouts / sizeof *layouts)
        return 0;
    const char *at = data;
    size_t bytes = layouts[i].bytes, size = bytes * (size_t)layouts[i].parts;
    uint64_t exponent = layouts[i].exponent;
    for (int64_t n = 0; n < count; n++, at += size)
        lost += is_lost(at, bytes, exponent) ||
                (size > bytes && is_lost(at + bytes, bytes, exponent));
    return lost;
}

int64_t tensor_non_finite(const danaus_tensor *tensor)
{
    int64_t count = 1;
    for (int i = 0; i < tensor->ndim; i++)
        count *= tensor->shape[i];
    return count_non_finite(tensor->dtype, tensor->data, count);
}

int64_t chain_non_finite(const danaus_chain *chain)
{
    int64_t lost = 0;
    if (!chain)
        return 0;
    danaus_dtype dtype = danaus_chain_dtype(chain);
    for (int f = 0; f < danaus_chain_count(chain); f++) {
        danaus_pattern p = danaus_chain_pattern(chain, f);
        lost += count_non_finite(
            dtype, danaus_chain_weights_const(chain, f), p.a * p.b * p.c * p.d);
    }
    return lost +
           count_non_finite(dtype, danaus_chain_bias(chain), danaus_chain_rows(chain));
}

void output_judge(
    output *o, danaus_dtype dtype, int64_t lost, int64_t count, int64_t operands_lost)
{
    o->judged = 1;
    o->non_finite = lost;
    if (lost && !operands_lost)
        warning(
            "%s: %" PRId64 " of %" PRId64
            " values are infinite or NaN although all operands are finite: they exceed "
            "the range of %s",
            o->name ? o->name : "the result", lost, count, danaus_dtype_name(dtype));
}

void output_judge_model(output *o, int64_t lost, int64_t count)
{
    o->judged = 1;
    o->non_finite = lost;
    if (lost)
        warning(
            "%s: %" PRId64 " of %" PRId64
            " values are infinite or NaN: weights of the model are, or values between "
            "its layers exceed the range of their type",
            o->name ? o->name : "the result", lost, count);
}
