/* Lower bounds for sums of chains.

   A split of a chain cuts W into blocks of rows that are equal mod Q and N / P neighbouring
   columns (for its transpose, the reverse). In each block the chain has at most rank r.
   Another chain meets such a block in some of its own blocks, and has at most the sum of their
   ranks there. Let rho be the sum of the ranks of all chains. Then no sum is nearer to W than
   the nearest two factors of block rank rho, and that distance is certified (docs/ks.md,
   section 6). */
// SPDX-License-Identifier: Apache-2.0
#include "factor/sums/cuts.h"

#include "product/patterns.h"
#include "base/dtype.h"
#include "base/numbers.h"
#include "base/status.h"
#include "math/pattern.h"

#include <math.h>

typedef struct cut {
    int across;         /* of the transpose */
    int64_t p, q, rank; /* P groups side by side, Q of every Q-th */
} cut;

/* ---- cuts ---- */

/* Writes the cuts of a term; their number, 0 where its blocks do not cover W. */
static int cuts_of(const danaus_pattern *given, int count, cut *cuts)
{
    int across;
    danaus_pattern p[DANAUS_MAX_FACTORS];
    if (dn_patterns_direction(given, count, &across) != DANAUS_OK)
        return 0;
    for (int l = 0; l < count; l++)
        p[l] = given[l];
    if (across)
        dn_patterns_transpose(given, count, p);
    if (p[0].a > 1 || p[count - 1].d > 1)
        return 0;
    for (int l = 1; l < count; l++)
        cuts[l - 1] = (cut){ across, p[l].a, p[l - 1].d, dn_pair_rank(p[l - 1], p[l]) };
    return count - 1;
}

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

/* How many of `parts` equal intervals meet one of `of` equal intervals, at most. */
static int64_t met(int64_t of, int64_t parts)
{
    if (of % parts == 0)
        return 1;
    return parts % of ? MIN(parts, parts / of + 2) : parts / of;
}

/* The rank that a term can have in a block of a cut. */
static int64_t rank_within(const cut *block, const cut *cuts, int count)
{
    int64_t least = INT64_MAX;
    for (int n = 0; n < count; n++) {
        int64_t blocks = cuts[n].p * cuts[n].q;
        if (cuts[n].across == block->across)
            blocks = met(block->p, cuts[n].p) * (cuts[n].q / gcd(block->q, cuts[n].q));
        least = MIN(least, blocks * cuts[n].rank);
    }
    return least;
}

/* ---- the bound ---- */

/* The distance of W from block rank `rank` in the blocks of a cut. */
static danaus_status distance(
    const ks_dense *w, const cut *of, int64_t rank, int threads, double *bound)
{
    int64_t m = of->across ? w->cols : w->rows, n = of->across ? w->rows : w->cols;
    danaus_pattern made[2] = { { 1, m / of->q, of->p * rank, of->q },
                               { of->p, of->q * rank, n / of->p, 1 } };
    danaus_pattern turned[2];
    danaus_factorize_desc desc = { .threads = threads };
    danaus_factorize_result result;
    danaus_chain *chain;
    if (rank >= MIN(m / of->q, n / of->p))
        return DANAUS_OK;
    dn_patterns_transpose(made, 2, turned);
    TRY(danaus_factorize(
        w->data, w->dtype, of->across ? turned : made, 2, &desc, &chain, &result));
    danaus_chain_destroy(chain);
    *bound = fmax(*bound, result.lower_bound);
    return DANAUS_OK;
}

danaus_status dn_terms_bound(
    const ks_dense *w, const ks_terms *terms, int threads, double *bound)
{
    cut cuts[DANAUS_MAX_TERMS][DANAUS_MAX_FACTORS];
    int count[DANAUS_MAX_TERMS];
    *bound = -1;
    for (int n = 0; n < terms->count; n++)
        if (!(count[n] = cuts_of(terms->patterns[n], terms->count_of[n], cuts[n])))
            return DANAUS_OK;
    *bound = 0;
    for (int n = 0; n < terms->count; n++)
        for (int c = 0; c < count[n]; c++) {
            int64_t rank = cuts[n][c].rank;
            for (int m = 0; m < terms->count; m++)
                if (m != n)
                    rank += rank_within(&cuts[n][c], cuts[m], count[m]);
            TRY(distance(w, &cuts[n][c], rank, threads, bound));
        }
    return DANAUS_OK;
}

/* ---- supports ---- */

static int reaches(const danaus_pattern *p, int64_t i, int64_t j)
{
    return i / (p->b * p->d) == j / (p->c * p->d) && i % p->d == j % p->d;
}

double dn_terms_unreached(const ks_dense *w, const ks_terms *terms)
{
    danaus_pattern p[DANAUS_MAX_TERMS];
    double largest = 0, all = 0, off = 0, value[2];
    for (int n = 0; n < terms->count; n++) {
        p[n] = dn_patterns_product(terms->patterns[n], terms->count_of[n]);
        if (p[n].a == 1 && p[n].d == 1)
            return 0;
    }
    for (int64_t x = 0; x < w->rows * w->cols; x++) {
        dn_load(w->dtype, w->data, x, value);
        double size = hypot(value[0], value[1]);
        largest = size > largest ? size : largest;
    }
    for (int64_t x = 0; x < w->rows * w->cols && largest > 0; x++) {
        int reached = 0;
        for (int n = 0; n < terms->count && !reached; n++)
            reached = reaches(&p[n], x / w->cols, x % w->cols);
        dn_load(w->dtype, w->data, x, value);
        double size = hypot(value[0], value[1]) / largest;
        all += size * size;
        off += reached ? 0 : size * size;
    }
    return all > 0 ? sqrt(off / all) : 0;
}
