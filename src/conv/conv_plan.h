/* What plans and spectra of convolutions are, and the checks of their operands. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CONV_CONV_PLAN_H
#define DN_CONV_CONV_PLAN_H

#include "conv/choose.h"

struct danaus_conv_plan {
    const conv_backend *conv;
    conv_engine *engine;
    conv_problem p;
    conv_choice choice;
    char device[32];
};

/* The plan's cut, its terms by the model, and what the model likes next. */
void dn_conv_describe(const danaus_conv_plan *plan, struct text *to);

struct danaus_spectrum {
    const danaus_conv_plan *plan;
    danaus_device *device; /* that the memory belongs to */
    void *data;
    int owned; /* else the caller's */
};

/* Whether the device's backend has a member of conv_backend, which is for `what`. */
#define dn_conv_need(device, member, what)                                             \
    ((device)->backend->conv && (device)->backend->conv->member                        \
         ? DANAUS_OK                                                                   \
         : dn_conv_lacks(device, what))
danaus_status dn_conv_lacks(const danaus_device *device, const char *what);

/* The plan, the device and the spectrum belong together, and rows of this batch have
   a size. */
danaus_status dn_conv_check(
    const danaus_conv_plan *plan, const danaus_device *device,
    const danaus_spectrum *spectrum, int64_t batch);

/* An operand's memory; data may be NULL. */
typedef struct piece {
    const char *name;
    const void *data;
    size_t bytes;
} piece;

/* No output has a byte in common with an input or another output. */
danaus_status dn_conv_check_apart(
    int outputs, const piece *out, int inputs, const piece *in);

/* Bytes of an array [batch][channels][length]. */
size_t dn_conv_array_bytes(const danaus_conv_plan *plan, int64_t batch);

#endif
