/* Transforms on the dyadic chain (2^l, 2, 2, 2^(L-1-l)), block by block: Walsh-Hadamard,
   noiselets, rotations. */
// SPDX-License-Identifier: Apache-2.0
#include "operator/transforms/transforms.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "math/pattern.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *kind_words(danaus_transform kind)
{
    return kind == DANAUS_NOISELET ? "a noiselet transform"
           : kind == DANAUS_GIVENS ? "a butterfly of rotations"
                                   : "a Walsh-Hadamard transform";
}

/* Entry 2 r + k of the block: at number `block` of a factor, in the order of angles. */
static root entry(
    const danaus_transform_desc *desc, int factor, int64_t block, int64_t at)
{
    if (desc->kind == DANAUS_WALSH_HADAMARD)
        return (root){ at == 3 ? -1 : 1, 0 };
    if (desc->kind == DANAUS_NOISELET) {
        double sign = at == 0 || at == 3 ? -0.5 : 0.5;
        return (root){ 0.5, desc->inverse ? -sign : sign };
    }
    double angle = desc->angles[factor * (desc->n / 2) + block];
    int turned = desc->inverse ? at == 1 : at == 2;
    return (root){ at == 0 || at == 3 ? cos(angle)
                   : turned           ? sin(angle)
                                      : -sin(angle),
                   0 };
}

static void fill_factor(
    const danaus_transform_desc *desc, danaus_chain *chain, int stored, int factor)
{
    danaus_pattern p = danaus_chain_pattern(chain, stored);
    void *w = danaus_chain_weights(chain, stored);
    int whole = desc->kind == DANAUS_WALSH_HADAMARD && factor == 0;
    double n = (double)desc->n, scale = 1;
    if (whole && (desc->orthonormal || desc->inverse))
        scale = desc->orthonormal ? 1 / sqrt(n) : 1 / n;
    for (int64_t at = 0; at < dn_pattern_weights(p); at++) {
        int64_t block = at / (4 * p.d) * p.d + at % p.d;
        root z = entry(desc, factor, block, at / p.d % 4);
        dn_store(desc->dtype, w, at, (double[2]){ z.re * scale, z.im * scale });
    }
}

/* Factors of the inverse of rotations come from the other end. Noiselets take their
   numbers with the bits of the place reversed; the other two as they come. */
static danaus_status make_butterfly(
    const danaus_transform_desc *desc, const danaus_pattern *patterns, int count,
    int64_t *order, danaus_operator **made)
{
    danaus_chain *chain;
    TRY(danaus_chain_create(patterns, count, desc->dtype, &chain));
    int mirrored = desc->kind == DANAUS_GIVENS && desc->inverse;
    for (int l = 0; l < count && desc->n > 1; l++)
        fill_factor(desc, chain, l, mirrored ? count - 1 - l : l);
    if (desc->n == 1)
        dn_store(desc->dtype, danaus_chain_weights(chain, 0), 0, (double[2]){ 1, 0 });
    int64_t twos[DANAUS_MAX_FACTORS];
    for (int l = 0; l < count; l++)
        twos[l] = desc->n > 1 ? 2 : 1;
    dn_digit_reversal(twos, count, order);
    const int64_t *reversed = desc->kind == DANAUS_NOISELET ? order : NULL;
    return dn_operator_of_chain(
        chain, desc->inverse ? reversed : NULL, desc->n,
        desc->inverse ? NULL : reversed, desc->n, desc->n, made);
}

danaus_status dn_butterfly(const danaus_transform_desc *desc, danaus_operator **made)
{
    int64_t n = desc->n;
    danaus_pattern p[DANAUS_MAX_FACTORS] = { { 1, 1, 1, 1 } };
    int count = n == 1 ? 1 : 0;
    if (n & (n - 1))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "%s has a power of two as its length, not %" PRId64,
            kind_words(desc->kind), n);
    for (int64_t a = 1; a < n; a *= 2)
        p[count++] = (danaus_pattern){ a, 2, 2, n / 2 / a };
    if (desc->kind == DANAUS_GIVENS && desc->inverse)
        for (int l = 0; l < count; l++)
            p[l] = (danaus_pattern){ p[l].d, p[l].b, p[l].c, p[l].a };
    for (int64_t x = 0;
         desc->kind == DANAUS_GIVENS && x < (n > 1 ? count : 0) * (n / 2); x++)
        if (!isfinite(desc->angles[x]))
            return dn_fail(
                DANAUS_ERR_ARGUMENT, "angle %" PRId64 " is %g", x, desc->angles[x]);
    int64_t *order = dn_alloc((size_t)n * sizeof *order);
    if (!order)
        return dn_fail(DANAUS_ERR_MEMORY, "no memory for an order");
    danaus_status status = make_butterfly(desc, p, count, order, made);
    dn_free(order);
    return status;
}
