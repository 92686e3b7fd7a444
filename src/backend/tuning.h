/* The table of measured choices: for a problem, a kernel and its time, on one
   device. As a file it is a small CSV table; docs/formats.md has the format. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BACKEND_TUNING_H
#define DN_BACKEND_TUNING_H

#include "backend/backend.h"

danaus_status dn_tuning_create(tuning **table);
void dn_tuning_destroy(tuning *table);

/* Adds the rows of a file that are for this device and its kernels; *skipped
   counts the others. On failure the table is as it was. */
danaus_status dn_tuning_load(
    tuning *table, const danaus_device *dev, const char *path, int64_t *skipped);
danaus_status dn_tuning_save(
    const tuning *table, const danaus_device *dev, const char *path);

/* The same from a file's text in memory. */
danaus_status dn_tuning_read(
    tuning *table, const danaus_device *dev, const char *content, size_t size,
    int64_t *skipped);

/* The kernel measured as fastest for p at the nearest power of two of its batch
   (within a factor of two), and its seconds; NULL when there is none. */
const kernel *dn_tuning_find(const tuning *table, const problem *p, double *seconds);

/* Remembers a measurement, replacing an older one of the same problem; forgets it
   silently when memory is out or the time is not a positive number. */
void dn_tuning_add(tuning *table, const problem *p, const kernel *k, double seconds);

#endif
