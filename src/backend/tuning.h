/* The table of measured choices: for a device and a problem, a kernel and its
   time. A small CSV file, format in docs/formats.md. */
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

/* The kernel measured as fastest for p at the nearest power of two of its batch
   (within a factor of two), and its seconds; NULL when there is none. */
const kernel *dn_tuning_find(
    const tuning *table, const danaus_device *dev, const problem *p, double *seconds);

/* Remembers a measurement; forgets it silently when memory is out. */
void dn_tuning_add(tuning *table, const problem *p, const kernel *k, double seconds);

#endif
