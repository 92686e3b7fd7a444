/* The hierarchical factorization on work arrays, in any order of splits. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_FACTOR_HIERARCHY_H
#define DN_FACTOR_HIERARCHY_H

#include "factor/blocks.h"

/* Factors in work order; each array belongs to the struct. Zeroed is empty. */
typedef struct ks_factors {
    int complex, count;
    danaus_pattern p[DANAUS_MAX_FACTORS];
    double *w[DANAUS_MAX_FACTORS];
} ks_factors;

void dn_factors_free(ks_factors *f);

typedef struct ks_how {
    int fast;
    int square_roots; /* split with square roots and never orthonormalise */
} ks_how;

/* order: a permutation of the splits 1 .. count-1 (split s lies between factors s-1
   and s, counted from 0). delta[s-1] becomes the error of split s. factors is
   filled; on failure it is empty. */
danaus_status dn_hierarchy(
    ks_run *run, const ks_view *w, const danaus_pattern *patterns, int count,
    const int *order, ks_how how, ks_factors *factors, double *delta);

/* Writes the order of splits; AUTO takes the cheaper sweep. */
void dn_order_splits(
    danaus_order order, const danaus_pattern *patterns, int count, int *splits);

/* Units of work of the run; exact for what dn_hierarchy() counts. */
double dn_order_work(const danaus_pattern *patterns, int count, const int *splits);

/* Error of the result, from the split errors: exact for sweeps, a bound for the
   balanced tree (docs/ks.md, equation 15). */
double dn_order_bound(danaus_order order, int count, const double *delta);

/* *energy = ||w - K_1 .. K_count||^2 on the support of the product. */
danaus_status dn_factors_residual(
    ks_run *run, const ks_view *w, const ks_factors *factors, double *energy);

/* Merging of redundant neighbours: group[l] is the first original factor of merged
   factor l, group[*merged] = count. Expansion splits merged factors again, exactly. */
void dn_merge_redundant(
    const danaus_pattern *patterns, int count, int *group, danaus_pattern *merged,
    int *merged_count);
danaus_status dn_expand(
    ks_run *run, const danaus_pattern *patterns, int count, const int *group,
    ks_factors *factors);

/* Multiplies inner indices by powers of two until neighbouring columns and rows have
   nearly equal norms: the product does not change by a bit. */
danaus_status dn_factors_balance(ks_factors *factors, int passes);

/* K_l <-> K_{L+1-l}^T: the factors of the transposed matrix. */
danaus_status dn_factors_transpose(ks_factors *factors);

/* to[a][b][c][d] = 2^exponent times a factor in work order, or its transpose. */
void dn_factor_write(
    danaus_pattern p, int transposed, int complex, const double *w, int exponent,
    danaus_dtype dtype, void *to);

/* The reverse: w in work order is `scale` times the factor, or its transpose, in from. */
void dn_factor_read(
    danaus_pattern p, int transposed, danaus_dtype dtype, const void *from,
    double scale, double *w);

#endif
