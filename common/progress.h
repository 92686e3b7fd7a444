/* A progress bar on standard error. */
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_PROGRESS_H
#define COMMON_PROGRESS_H

typedef struct progress {
    int shown; /* per cent that the bar shows, plus one; 0: no bar yet */
} progress;

/* Nonzero when standard error is a terminal. */
int progress_wanted(void);

/* user: a progress. Of type danaus_progress_fn; never gives up. */
int progress_show(void *user, double done);

/* Wipes the bar away, if there is one. */
void progress_clear(progress *bar);

/* Shows that `done` of the suite's `all` problems are done. Does nothing without a bar. */
void progress_count(progress *bar, int done, int all);

#endif
