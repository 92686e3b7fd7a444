/* The choice of a convolution's cut, and the model of its cost: docs/conv.md (8). A window has
   an amount of each term, and each term has a time. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CONV_CHOOSE_H
#define DN_CONV_CHOOSE_H

#include "conv/frame.h"

/* The terms of a kernel, with seconds of the device's table if it has them all, else
   built in. */
typedef struct conv_model {
    int measured; /* by calibration, with all threads at work; built in: of one thread */
    int count;
    conv_term term[CONV_MOST_TERMS];
} conv_model;

conv_model dn_conv_model(const danaus_device *dev, const conv_kernel *k);

/* Seconds of a row. */
double dn_conv_cost(const conv_model *model, const conv_work *work);

/* True if the table has the inverse of a term's seconds. */
static inline int dn_conv_is_rate(const conv_term *term)
{
    return term->constant != TUNING_WINDOW && term->constant != TUNING_BLOCK;
}

/* A way to cut rows, and its seconds for one by the model. */
typedef struct conv_candidate {
    conv_cut cut;
    double cost;
} conv_candidate;

#define CONV_CANDIDATES 8

/* The best by the model, in order of cost. */
typedef struct conv_candidates {
    conv_candidate best[CONV_CANDIDATES];
    int count;
} conv_candidates;

/* Who chose. */
typedef enum conv_judge { CONV_BY_MODEL, CONV_BY_TABLE, CONV_BY_MEASURE } conv_judge;

typedef struct conv_choice {
    conv_frame frame; /* with the cut */
    conv_judge judge;
    double cost; /* the judge's seconds for one row */
    conv_model model;
    conv_work work;
    conv_candidates candidates; /* that the model was asked for */
} conv_choice;

danaus_status dn_conv_choose(
    danaus_device *dev, const conv_problem *p, conv_choice *choice);

/* A kernel for this type; NULL: none. *index: where to look first, then that of the
   next row. */
const conv_kernel *dn_conv_next_kernel(
    const danaus_device *dev, danaus_dtype dtype, int *index);

/* The accuracy that the problem asks for; the type's usual one if the device has no fast kernel,
   because the accuracy then makes no difference. */
danaus_conv_accuracy dn_conv_accuracy(const danaus_device *dev, const conv_problem *p);

/* Rows that are convolved together if they are few for the device, else 0. */
int64_t dn_conv_few_rows(const danaus_device *dev, const conv_problem *p);

/* Convolutions of zeros, to be timed. */
typedef struct conv_trial {
    danaus_device *dev;
    conv_engine *engine;
    conv_job job;
    int64_t rows;
    void *memory;
} conv_trial;

/* `numbers`: of all rows together for each thread, unless rows are few; on a GPU as many as
   fill its cache. On failure there is nothing to close. */
danaus_status dn_conv_trial_open(
    danaus_device *dev, const conv_problem *p, const conv_frame *f, int64_t numbers,
    conv_trial *trial);
/* Seconds of a row, by the device's clock if it has one. */
danaus_status dn_conv_trial_run(conv_trial *trial, double *seconds);
void dn_conv_trial_close(conv_trial *trial);

#endif
