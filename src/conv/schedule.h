/* Streams: what is due when, for every backend (docs/conv.md, Streams). */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CONV_SCHEDULE_H
#define DN_CONV_SCHEDULE_H

#include "backend/conv.h"

/* The next n numbers, which end no later than a block of STREAM_HEAD; and for each level,
   before they are taken, the parts whose products are due and the number of the block that
   fills; afterwards, whether it is complete. */
typedef struct stream_step {
    int64_t n;
    struct stream_due {
        range parts;
        int64_t number;
        int complete;
    } level[STREAM_MOST_LEVELS];
} stream_step;

/* After `time` numbers, when so many more are there. */
stream_step dn_stream_step(const stream_shape *s, int64_t time, int64_t there);

#endif
