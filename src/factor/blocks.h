/* Factors as arrays of dense blocks, and operations on all blocks of a chainable pair at once
   (docs/ks.md, section 3).

   Work arrays hold f64 or pairs of f64 in the order t[a][d][b][c]: each of the a d
   blocks of a factor is one row-major b x c matrix. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_FACTOR_BLOCKS_H
#define DN_FACTOR_BLOCKS_H

#include "danaus/factorize.h"

#include "base/thread.h"
#include "math/svd.h"

/* Who computes, and who is told how far it is. */
typedef struct ks_run {
    thread_pool *pool;
    danaus_progress_fn progress; /* or NULL */
    void *user;
    double done, total; /* units of work */
} ks_run;

/* Entries T[i, j, k, l] of a factor's blocks, in memory of any type and order. */
typedef struct ks_view {
    const void *data;
    danaus_dtype dtype;
    danaus_pattern p;
    int64_t stride[4]; /* in elements, of i, j, k, l */
    double scale;      /* reading multiplies data by it */
} ks_view;

/* The view of a work array, and of the entries of a dense M x N matrix (or of its
   transpose) on the support of p. */
ks_view dn_view_work(int complex, danaus_pattern p, const double *values);
ks_view dn_view_dense(
    const void *dense, danaus_dtype dtype, int64_t cols, danaus_pattern p,
    int transposed, double scale);
int dn_view_complex(const ks_view *view);
void dn_view_read(const ks_view *view, double *w); /* into a work array */

/* One split p1 | p2 of a factor with pattern p = p1 * p2: a d G H blocks of
   p1.b x p2.c, each the product of p1.b x rank and rank x p2.c. */
typedef struct ks_pair {
    danaus_pattern p1, p2, p;
    int64_t rank, groups_of_columns, groups_of_rows; /* r, G, H */
} ks_pair;

ks_pair dn_pair(danaus_pattern p1, danaus_pattern p2);
double dn_pair_work(const ks_pair *pair); /* entries x smaller side of a block */

typedef struct ks_split_how {
    dn_sigma sigma;
    int fast;
} ks_split_how;

/* Best approximation x y of t; *dropped = ||t - x y||^2. Work is counted. */
danaus_status dn_split(
    ks_run *run, const ks_pair *pair, const ks_view *t, ks_split_how how, double *x,
    double *y, double *dropped);

/* The product stays, x gets orthonormal (zero-padded) columns in every block; or y
   orthonormal rows. */
danaus_status dn_orthonormalise_left(
    ks_run *run, const ks_pair *pair, int complex, double *x, double *y);
danaus_status dn_orthonormalise_right(
    ks_run *run, const ks_pair *pair, int complex, double *x, double *y);

/* y = x^H t, x = t y^H, t = x y in every block. */
danaus_status dn_project_left(
    ks_run *run, const ks_pair *pair, const ks_view *t, const double *x, double *y);
danaus_status dn_project_right(
    ks_run *run, const ks_pair *pair, const ks_view *t, const double *y, double *x);
danaus_status dn_fuse(
    ks_run *run, const ks_pair *pair, int complex, const double *x, const double *y,
    double *t);

/* *energy = ||t - x y||^2. */
danaus_status dn_pair_residual(
    ks_run *run, const ks_pair *pair, const ks_view *t, const double *x,
    const double *y, double *energy);

/* A work array for a factor, not initialised; NULL if there is no memory. */
double *dn_work_alloc(int complex, danaus_pattern p);

/* Tells the caller of the factorization how far it is. */
danaus_status dn_run_progress(ks_run *run, double work);

#endif
