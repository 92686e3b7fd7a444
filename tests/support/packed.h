/* Random packed sequences (danaus/conv.h), and what their convolutions and gradients must
   be: plain loops of f64 over each sequence alone. The bounds are those of support/conv.h;
   of a gradient of filters, that of sums over sequences of products of two spectra. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_PACKED_H
#define TEST_SUPPORT_PACKED_H

#include "support/conv.h"

#define PACKED_MOST 200 /* sequences */

typedef struct packed_case {
    conv_case c; /* of one row of columns a channel; desc.length is the longest */
    array dy;
    int64_t sequences, offsets[PACKED_MOST + 1];
} packed_case;

/* What a device makes: u and so on where a gradient of these was asked for. */
typedef struct packed_outcome {
    array y, du, dgate_in, dgate_out, dk, dk_reverse, dskip;
} packed_outcome;

/* Everything random but the description, whose length is the longest that may come, and the
   lengths; extras as in conv_random(). */
packed_case packed_random(
    rng *r, const danaus_conv_desc *desc, int64_t sequences, const int64_t *lengths,
    int extras);
void packed_free(packed_case *p);

/* A plan for such cases, and the filters of one of them. */
typedef struct packed_plan {
    danaus_conv_plan *plan;
    danaus_spectrum *spectrum;
} packed_plan;

packed_plan packed_open(danaus_device *device, const packed_case *p);
void packed_close(packed_plan *plan);

/* y and all gradients (none where there is no column), between guards. */
packed_outcome packed_run(
    danaus_device *device, const packed_plan *plan, const packed_case *p);
void packed_outcome_free(packed_outcome *o);
int packed_same(const packed_outcome *a, const packed_outcome *b); /* bit for bit */

/* Fails the test, naming the case, unless all is as it must be. */
void packed_expect(const packed_case *p, const packed_outcome *o);

#endif
