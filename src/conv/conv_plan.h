/* The inside of plans and spectra of convolutions, and the checks of their operands. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CONV_CONV_PLAN_H
#define DN_CONV_CONV_PLAN_H

#include "conv/choose.h"

/* Lengths of classes, but for the plan's own: 128, 160 and 192 times powers of two. */
#define CONV_LEAST_CLASS  128
#define CONV_MOST_CLASSES 72
/* Where the spectra of a class begin. */
#define CONV_SPECTRUM_ALIGN 256

/* How rows up to some length are convolved. */
typedef struct conv_class {
    conv_problem p; /* of that length */
    conv_choice choice;
    conv_engine *engine;
    size_t spectrum; /* where its own begins in a spectrum of the plan */
} conv_class;

/* A plan has one class or, for packed sequences, several, of growing lengths. */
struct danaus_conv_plan {
    const conv_backend *conv;
    conv_problem p;
    conv_class *classes;
    int count;
    size_t spectrum_bytes;
    int64_t groups, short_taps; /* conv_frame */
    char device[32];
};

/* Makes a plan for arrays that may be grouped, and for products that may apply short filters. */
danaus_status dn_conv_plan_make(
    danaus_device *device, const danaus_conv_desc *desc, int64_t groups,
    int64_t short_taps, danaus_conv_plan **plan);

/* Makes the classes of a plan that has none. On failure the classes made so far belong to the
   plan. */
danaus_status dn_conv_make_classes(danaus_device *device, danaus_conv_plan *plan);

/* The class of the plan's own length. */
static inline const conv_class *dn_conv_longest(const danaus_conv_plan *plan)
{
    return &plan->classes[plan->count - 1];
}

/* The plan's cut, its terms by the model, and what the model likes next. */
void dn_conv_describe(const danaus_conv_plan *plan, struct text *to);

struct danaus_spectrum {
    const danaus_conv_plan *plan;
    danaus_device *device; /* that the memory belongs to */
    void *data;
    int owned; /* else the caller's */
};

/* Fails unless the device's backend has this member of conv_backend, which is for `what`. */
#define dn_conv_need(device, member, what)                                             \
    ((device)->backend->conv && (device)->backend->conv->member                        \
         ? DANAUS_OK                                                                   \
         : dn_conv_lacks(device, what))
danaus_status dn_conv_lacks(const danaus_device *device, const char *what);

/* What a call convolves: rows, or sequences. */
typedef struct conv_extent {
    int64_t batch;          /* of rows; of packed ones, sequences */
    const int64_t *offsets; /* of these, or NULL */
    int64_t numbers;        /* of an array, once this is checked */
} conv_extent;

/* A plan, a device and a spectrum of the plan's are there. */
danaus_status dn_conv_need_parts(
    const danaus_conv_plan *plan, const danaus_device *device,
    const danaus_spectrum *spectrum);

/* The plan is for such a call, the device has the plan's name, and arrays have a size. */
danaus_status dn_conv_check_extent(
    const danaus_conv_plan *plan, const danaus_device *device, conv_extent *x);

/* Bytes of an array. */
size_t dn_conv_array_bytes(const danaus_conv_plan *plan, const conv_extent *x);

/* Runs a job on rows or sequences. The call fills in the job's rows and spectrum. */
danaus_status dn_conv_run(
    const danaus_conv_plan *plan, danaus_device *device,
    const danaus_spectrum *spectrum, const conv_extent *x, const conv_job *job);

/* ---- packed sequences (packed.c) ---- */

danaus_status dn_conv_need_offsets(const int64_t *offsets);

/* Offsets ascend from 0, by at most `longest`. */
danaus_status dn_conv_check_offsets(
    int64_t longest, int64_t sequences, const int64_t *offsets, int64_t *columns);

/* The calls of the backend: one job for rows, or one for each class of sequences. */
typedef struct conv_calls {
    int count;
    conv_call call[CONV_MOST_CLASSES];
    conv_job job[CONV_MOST_CLASSES];
    packed_window *packed; /* to be freed by dn_free() */
} conv_calls;

/* Calls for a job on rows or sequences. The function fills in the job's rows and spectrum. */
danaus_status dn_conv_lay_calls(
    const danaus_conv_plan *plan, const danaus_spectrum *spectrum, const conv_extent *x,
    const conv_job *job, conv_calls *to);

/* Calls that transform filters into `data`; filters may be NULL if they are only counted.
   Returns how many. */
int dn_conv_lay_filters(
    const danaus_conv_plan *plan, const conv_filters *filters, void *data,
    conv_call call[CONV_MOST_CLASSES]);

#endif
