/* The model of what a convolution costs: docs/conv.md (9). A window has so much of each
   term, and a term has a time. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CPU_CONV_MODEL_H
#define DN_CPU_CONV_MODEL_H

#include "backend/tuning.h"
#include "cpu/conv/conv.h"

/* Which constant of tuning tables a term has, and of what; `lanes` of a vector. */
typedef struct conv_constant {
    tuning_constant name;
    int64_t of;
} conv_constant;

conv_constant dn_conv_constant(conv_term term, int lanes);

/* The model's constants for the type of sums of `code`: those of the device's table if
   it has them all, else built in. */
conv_model dn_conv_model(const cpu_device *dev, const conv_code *code);

/* What a row of e has of each term when it is cut into windows of t (dn_conv_shape). */
void dn_conv_amounts(
    const conv_engine *e, const conv_tables *t, int64_t windows,
    double amounts[CONV_TERMS]);

/* Seconds of a row by e->model. */
double dn_conv_cost(const conv_engine *e, const conv_tables *t, int64_t windows);

/* The engine's cut and its terms, as text. */
void dn_conv_describe(const conv_engine *e, struct text *to);

/* Rows that are convolved together if they are so few that of eight threads not every
   one has several, else 0. */
int64_t dn_conv_few_rows(const conv_engine *e);

/* Times, in seconds of a row, with rows of zeros. Rows: dn_conv_few_rows. */
typedef struct conv_trial {
    cpu_device *dev;
    conv_engine one;
    conv_operands o;
    int64_t rows;
    void *memory;
} conv_trial;

/* `numbers`: of all rows together, unless they are few. */
danaus_status dn_conv_trial_open(
    cpu_device *dev, const conv_engine *e, int64_t numbers, conv_trial *trial);
danaus_status dn_conv_trial_run(const conv_trial *trial, double *seconds);
void dn_conv_trial_close(conv_trial *trial);

/* Makes the engine cut its rows so; seconds: of a row. */
danaus_status dn_conv_use(
    cpu_device *dev, conv_engine *e, conv_cut cut, int64_t windows, double seconds);

/* The windows that a row of e needs with n; 0: n is too short. */
int64_t dn_conv_windows(const conv_engine *e, int64_t n);

/* conv_backend.calibrate */
danaus_status dn_cpu_conv_calibrate(
    danaus_device *dev, danaus_progress_fn progress, void *user);

#endif
