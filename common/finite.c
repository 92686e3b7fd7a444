/* Values that are infinite or NaN are counted in f64, a chunk at a time. */
// SPDX-License-Identifier: Apache-2.0
#include "common/finite.h"

#include "common/args.h"

#include <inttypes.h>
#include <math.h>

#define CHUNK 256

int64_t count_non_finite(danaus_dtype dtype, const void *data, int64_t count)
{
    int is_complex = dtype == DANAUS_C64 || dtype == DANAUS_C128,
        parts = 1 + is_complex;
    danaus_dtype wide = is_complex ? DANAUS_C128 : DANAUS_F64;
    size_t size = danaus_dtype_size(dtype);
    double some[2 * CHUNK];
    int64_t lost = 0;
    for (int64_t done = 0; data && done < count; done += CHUNK) {
        int64_t n = count - done < CHUNK ? count - done : CHUNK;
        if (danaus_convert(
                dtype, (const char *)data + size * (size_t)done, wide, some, n))
            return 0; /* no type of ours */
        for (int64_t i = 0; i < n; i++)
            lost +=
                !isfinite(some[parts * i]) || !isfinite(some[parts * i + parts - 1]);
    }
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
