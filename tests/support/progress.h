/* Progress of long calls that only grows, up to 1, and a user who gives up. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_PROGRESS_H
#define TEST_SUPPORT_PROGRESS_H

#include "support/test.h"

typedef struct watcher {
    double last;
    int calls, give_up_at; /* number of the call; 0: never */
} watcher;

/* A danaus_progress_fn, whose user is a watcher. */
static inline int watch(void *user, double done)
{
    watcher *w = user;
    assert_true(done >= w->last - 1e-12 && done <= 1 + 1e-12);
    w->last = done;
    return ++w->calls == w->give_up_at;
}

#endif
