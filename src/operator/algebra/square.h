/* The square blocks of factors with b = c: each is eliminated and handed to a function. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_OPERATOR_ALGEBRA_SQUARE_H
#define DN_OPERATOR_ALGEBRA_SQUARE_H

#include "danaus/algebra.h"
#include "base/thread.h"

/* Blocks are done in at most so many runs, whatever the number of threads. */
enum { SQUARE_RUNS = 64 };

/* Facts about a run of blocks; the caller combines runs in order. */
typedef struct square_facts {
    const char *why; /* NULL, or what is wrong with block number `broken` */
    int64_t broken;
    double norm, inverse_norm; /* the largest ||B||_1 and ||B^-1||_1 */
    double condition;          /* the largest, of block number `worst` */
    int64_t worst;
    double log_modulus, phase[2]; /* of the blocks' determinants */
} square_facts;

/* Block number i d + j, eliminated. */
typedef struct square_block {
    int64_t number;
    double *a; /* L and U, row after row, for dn_lu_invert() and others */
    int *pivots;
    int singular;
    double norm;     /* ||B||_1 */
    double *scratch; /* as much as the job asks for */
} square_block;

typedef struct square_job square_job;
typedef void square_body(const square_job *job, const square_block *b, square_facts *f);

struct square_job {
    const danaus_chain *chain;
    thread_pool *pool;
    int threads; /* of it */
    int complex;
    square_body *body;
    int takes_singular; /* else a singular block is an error */
    int64_t most;       /* the largest b of all factors */
    int64_t scratch;    /* doubles */
    void *arg;          /* the body's */
    /* The factor at work: */
    int factor, runs;
    danaus_pattern p;
    double *w; /* its weights in f64 or c128 */
    double *rooms;
    square_facts facts[SQUARE_RUNS];
};

/* Begins a job on a chain whose factors all have b = c; most and complex are found. */
danaus_status dn_square_begin(
    square_job *job, const danaus_chain *chain, int threads, square_body *body);

/* Runs all blocks of a factor. Facts about the condition are added to *condition, whose bound
   begins as 1, unless it is NULL. */
danaus_status dn_square_run(square_job *job, int factor, danaus_condition *condition);

void dn_square_end(square_job *job);

/* Element (r, k) of a block is so far from w or from another array of the factor's shape. */
static inline int64_t dn_square_at(
    const square_job *job, int64_t block, int64_t r, int64_t k)
{
    danaus_pattern p = job->p;
    return ((block / p.d * p.b + r) * p.b + k) * p.d + block % p.d;
}

/* One number, of one or two doubles. */
static inline void dn_square_copy(int complex, const double *from, double *to)
{
    to[0] = from[0];
    if (complex)
        to[1] = from[1];
}

/* ||B^-1||_1 of a block, for the facts. */
void dn_square_condition(const square_block *b, double inverse_norm, square_facts *f);

/* ||a||_1 of a[n][n]; NaN or infinite where an entry is. */
double dn_square_norm(int complex, int64_t n, const double *a);

#endif
