/* A linear layer fitted to moments of its inputs and targets, with fewer weights.

   For rows x and targets y a layer K with bias mean(y) - K mean(x) has the loss

       mean ||S^T (y - K x - bias)||^2 + lambda ||S^T (W - K)||^2,

   where W is the dense layer and S S^T weighs errors of outputs. With A = mean x x^T +
   lambda 1 = L L^T and C = mean y x^T + lambda W, both of centred x and y, this is
   ||S^T (C A^-1 - K) L||^2 and a part that no K changes: the best K of rank r is
   S^-T (the truncated singular value decomposition of S^T C L^-T) L^-1 (reduced-rank
   regression: Izenman, J. Multivariate Anal. 5, 1975). Such a K is stored as r of its rows and
   the coefficients that give the others, r (M + N - r) weights (the interpolative
   decomposition of Cheng, Gimbutas, Martinsson, Rokhlin, SIAM J. Sci. Comput. 26, 2005). */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_COMPRESS_FIT_H
#define DN_MODEL_COMPRESS_FIT_H

#include "danaus/ks.h"

/* Sums over `count` rows x[N] and y[M]; arrays in one block of host memory. */
typedef struct moments {
    int64_t rows, cols; /* M, N */
    int64_t count;
    double *x, *y, *xx, *yx; /* [N], [M], [N][N], [M][N] */
    double energy;           /* of y */
} moments;

danaus_status dn_moments_make(int64_t rows, int64_t cols, moments *m);
void dn_moments_free(moments *m);

/* y and yx as they are where targets are weight[M][N] times the inputs. */
void dn_moments_map(const double *weight, moments *m);

/* The loss of a fit, from moments; all in one block of memory. */
typedef struct fit_problem {
    int64_t rows, cols;
    const double *weight; /* W, the caller's */
    const double *side;   /* S, lower triangular, the caller's; NULL: 1 */
    double lambda, energy;
    double *mean_x, *mean_y;
    double *gram, *cross, *root, *white; /* A, C, L, S^T C L^-T */
} fit_problem;

/* lambda is `ridge` times the mean of x^2. */
danaus_status dn_problem_make(
    const moments *m, const double *weight, const double *side, double ridge,
    fit_problem *p);
void dn_problem_free(fit_problem *p);

/* How much each further rank lowers the loss, gains[min(M, N)], the largest first. */
danaus_status dn_problem_gains(const fit_problem *p, double *gains);

/* A fitted layer: `rank` rows of K, basis[rank][N], are numbers kept[0 .. rank - 1]; row i of
   K is left[i] basis. Dense: rank is M, and left is not there. Or K is chain[0], in f64, or the
   sum of both; then kept, left and basis hold nothing. */
typedef struct fit {
    int64_t rows, cols, rank; /* rank: of chains, the most that it can be */
    int dense;
    int64_t *kept;
    double *left, *basis, *bias; /* [M][rank], [rank][N], [M] */
    danaus_chain *chain[2];
    double loss;        /* the part that K changes */
    double error;       /* ||Y - K X - bias|| / ||Y - mean(Y)|| */
    double lower_bound; /* of such errors (least.h); 0: not asked for */
} fit;

/* rank: at least 1, less than min(M, N), or 0: the dense layer C A^-1. */
danaus_status dn_problem_fit(const fit_problem *p, int64_t rank, fit *f);
void dn_fit_free(fit *f);

/* The same, or the chain or sum of two of least loss, among those of danaus_compress() that have
   no more weights. candidates: danaus_candidates to try beside low rank; 0: none. */
danaus_status dn_problem_best(
    const fit_problem *p, int64_t rank, uint32_t candidates, fit *f);

/* Zeros; of chains the rank is 0. */
danaus_status dn_fit_make(int64_t rows, int64_t cols, int64_t rank, fit *f);

/* Writes the bias, the error and the loss of a fit whose arrays or chains are there. */
danaus_status dn_fit_rate(const fit_problem *p, fit *f);

/* Rounds weights to 8 bits, as plans for these do (base/int8.h), and rates the fit again. */
danaus_status dn_fit_round(const fit_problem *p, fit *f);

/* rank (rows + cols - rank). */
int64_t dn_fit_parameters(int64_t rows, int64_t cols, int64_t rank);

/* S with S S^T = G + share mean(diagonal of G) 1, in place of the sums g[M][M] over `count`
   rows. */
danaus_status dn_side_make(int64_t rows, int64_t count, double *g);

/* Choices of a layer: i < count takes costs[i] weights, which grow with i, and leaves losses[i],
   which fall. */
typedef struct choices {
    int64_t count; /* 0: the layer takes no part */
    double *losses;
    int64_t *costs;
    int64_t chosen;
} choices;

/* Ranks 1, 2, ... and, last, all weights, with the loss of each. */
danaus_status dn_choices_make(const fit_problem *p, choices *c);
void dn_choices_free(choices *c);

/* The rank that was chosen; 0: all weights. */
static inline int64_t dn_chosen_rank(const choices *c)
{
    return (c->chosen + 1) % c->count;
}

/* Divides `total` weights among layers. The choices have the least sum of losses for one price
   of a weight (Lagrange). The remaining weights go step by step to the layer that gains most.
   DANAUS_ERR_ARGUMENT if even the first choices cost more. */
danaus_status dn_share_out(int64_t total, int layers, choices *c);

#endif
