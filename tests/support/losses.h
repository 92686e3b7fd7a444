/* What linear layers of compressed models lose, by plain loops in f64, and what they lose at
   least. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_LOSSES_H
#define TEST_SUPPORT_LOSSES_H

#include "model/arch.h"

/* Rows that a layer reads. */
typedef struct reader {
    watcher watcher;
    int64_t rows;
    float *x; /* to be freed */
} reader;

/* Each layer has its reader, until they stop. */
void readers_start(danaus_model *model, reader *of);
void readers_stop(danaus_model *model);

/* Row i of the matrix that was fitted, k[N]. */
void fit_row(const fit *f, int64_t i, double *k);

/* What a layer loses of the targets Y = W X' + bias, where X' are its inputs in the dense model
   and X those in the compressed one. */
typedef struct loss {
    double fitted; /* ||Y - K X - bias||^2 */
    double dense;  /* the same of W in the place of K */
    double least;  /* the least of any matrix of its rank, whatever X is */
    double size;   /* ||Y - mean(Y)||^2 */
    double slack;  /* what rounding of sums may change of these */
    double spread; /* of X */
    double bends;  /* ||R||^2, where rounding changes Y X^T - W X X^T by R */
} loss;

loss layer_loss(
    const danaus_model *model, const linear *layer, const reader *dense,
    const reader *here);

/* The least that any matrix of the layer's rank loses, whatever its inputs. */
double least_loss(const danaus_model *model, const linear *layer, const reader *dense);

/* That a layer was fitted so that it loses no more than the dense one, whose rank it may have.
   `ridge` is what it was fitted with. */
void expect_as_good_as_dense(const linear *layer, const loss *found, double ridge);

/* That the error that is told of a layer is what it loses, and its lower bound what any of its
   rank loses. */
void expect_told_loss(const linear *layer, const loss *found);

/* That a layer is the best matrix of its rank, which is what is best for independent inputs, and
   that its lower bound says so. All is done in f64. */
void expect_best_of_rank(const danaus_model *model, const linear *layer);

/* That a layer is one that was saved. */
void expect_rounded(const linear *found, const linear *layer);

#endif
