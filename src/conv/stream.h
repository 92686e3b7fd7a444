/* The inside of streams (stream.c), and filters that are replaced (fade.c). */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CONV_STREAM_H
#define DN_CONV_STREAM_H

#include "conv/conv_plan.h"

/* Filters that get a share of the signal since number `from`, or did: one that grows for `fade`
   numbers. */
typedef struct stream_voice {
    stream_engine *engine;
    int64_t from, fade, taps;
} stream_voice;

struct danaus_stream {
    const conv_backend *conv;
    stream_shape shape;
    stream_voice voice[DANAUS_STREAM_MOST_FADING + 1]; /* the oldest first */
    int voices;
    int64_t time; /* numbers seen */
    void *u, *y;  /* a piece of a voice, where filters can be replaced; else NULL */
    char device[32];
};

/* Room for pieces. */
danaus_status dn_stream_make_room(danaus_stream *s);

/* True while replaced filters sound. */
int dn_stream_is_fading(const danaus_stream *s);

/* The next `count` numbers, then. */
danaus_status dn_stream_fade(
    danaus_stream *s, danaus_device *device, int64_t count, const void *u, void *y);

#endif
