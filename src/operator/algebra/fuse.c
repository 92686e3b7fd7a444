/* Neighbouring factors as one, where their product is Kronecker-sparse.

   A factor p links row block (i1, j1) to the c1 middles m = (i1 c1 + k) d1 + j1, and a factor q
   links middle m to all columns of its block (m / (b2 d2), m mod d2). The product fills the
   pattern dn_pattern_product(p, q) if every (i1, j1) reaches every block of q in the same block
   of the product: a2/g x d2/h blocks. */
// SPDX-License-Identifier: Apache-2.0
#include "danaus/algebra.h"

#include "product/chain.h"
#include "base/dtype.h"
#include "base/holds.h"
#include "base/mem.h"
#include "base/status.h"
#include "math/pattern.h"

#include <inttypes.h>
#include <string.h>

static int is_diagonal(danaus_pattern p) { return p.b == 1 && p.c == 1; }

/* How many of `all` blocks of q are reached from (i, j) of p. seen[] has the number of the
   last visit of each. */
static int64_t reached(
    danaus_pattern p, danaus_pattern q, danaus_pattern product, int64_t i, int64_t j,
    int64_t *seen)
{
    int64_t blocks = q.a / product.a, lanes = q.d / product.d, count = 0;
    int64_t visit = i * p.d + j + 1;
    for (int64_t k = 0; k < p.c; k++) {
        int64_t m = (i * p.c + k) * p.d + j;
        int64_t *mark = &seen[m / (q.b * q.d) % blocks * lanes + m % q.d / product.d];
        count += *mark != visit;
        *mark = visit;
    }
    return count;
}

/* *all becomes 1 if the product of p and q fills dn_pattern_product(p, q), else 0. */
static danaus_status fills(danaus_pattern p, danaus_pattern q, int *all)
{
    danaus_pattern product = dn_pattern_product(p, q);
    int64_t blocks = q.a / product.a * (q.d / product.d);
    *all = blocks <= p.c;
    if (!*all)
        return DANAUS_OK;
    int64_t *seen = dn_calloc((size_t)blocks, sizeof *seen);
    if (!seen)
        return dn_fail_memory((size_t)blocks * sizeof *seen, "blocks of a product");
    for (int64_t i = 0; *all && i < p.a; i++)
        for (int64_t j = 0; *all && j < p.d; j++)
            *all = reached(p, q, product, i, j, seen) == blocks;
    dn_free(seen);
    return DANAUS_OK;
}

/* Gives diagonal factors patterns that suit their neighbours, and finds the product's pattern.
   The order of their weights does not depend on the pattern. */
static danaus_status align(danaus_pattern *p, int from, int to, danaus_pattern *product)
{
    danaus_pattern left = p[from];
    for (int l = from + 1; l < to; l++) {
        if (is_diagonal(left))
            for (int x = from; x < l; x++)
                p[x] = left = (danaus_pattern){ p[l].a, 1, 1, p[l].b * p[l].d };
        else if (is_diagonal(p[l]))
            p[l] = (danaus_pattern){ left.a, 1, 1, left.c * left.d };
        int all;
        TRY(fills(left, p[l], &all));
        if (!all)
            return dn_fail(
                DANAUS_ERR_SHAPE,
                "factors %d to %d, of pattern " PATTERN
                ", do not fuse with factor %d, " PATTERN
                ": their product is not Kronecker-sparse",
                from, l - 1, ENTRIES_OF(left), l, ENTRIES_OF(p[l]));
        left = dn_pattern_product(left, p[l]);
        TRY(danaus_patterns_check(&left, 1));
    }
    *product = left;
    return DANAUS_OK;
}

/* The chain with factors [from, to) as one of that pattern; its weights are to come. */
static danaus_status make(
    const danaus_chain *chain, int from, int to, danaus_pattern product,
    danaus_chain **made)
{
    danaus_pattern p[DANAUS_MAX_FACTORS];
    int count = chain->count - (to - from) + 1;
    for (int l = 0; l < count; l++)
        p[l] = chain->patterns[l < from ? l : l + to - from - 1];
    p[from] = product;
    TRY(danaus_chain_create(p, count, chain->dtype, made));
    for (int l = 0; l < count; l++)
        if (l != from)
            memcpy(
                (*made)->weights[l], chain->weights[l < from ? l : l + to - from - 1],
                (size_t)dn_pattern_weights(p[l]) * danaus_dtype_size(chain->dtype));
    danaus_status status = danaus_chain_set_bias(*made, chain->bias);
    if (status != DANAUS_OK)
        danaus_chain_destroy(*made);
    return status;
}

danaus_status danaus_chain_fuse(
    const danaus_chain *chain, int from, int to, danaus_chain **fused)
{
    if (!chain || !fused)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a chain and a place for another are needed");
    if (from < 0 || from >= to || to > chain->count)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "factors [%d, %d) of a chain of %d", from, to,
            chain->count);
    danaus_pattern p[DANAUS_MAX_FACTORS], product;
    memcpy(p, chain->patterns, sizeof p);
    TRY(align(p, from, to, &product));
    chain_numbers numbers = dn_chain_numbers(chain);
    numbers.patterns = p;
    double *w;
    danaus_chain *made;
    TRY(dn_chain_product_held(
        &numbers, from, to, DN_STORED_INFINITE + DN_STORED_ZERO, "the fused factor",
        &w));
    danaus_status status = make(chain, from, to, product, &made);
    if (status == DANAUS_OK) {
        dn_convert(
            dn_is_complex(chain->dtype) ? DANAUS_C128 : DANAUS_F64, w, chain->dtype,
            made->weights[from], dn_pattern_weights(product));
        *fused = made;
    }
    dn_free(w);
    return status;
}
