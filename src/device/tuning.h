/* The tuning table of one device, its measurements: for a product, a kernel and its time; for
   a convolution, a cut of its rows and its time; and the constants of the cost model of
   convolutions. As a file it is CSV text; docs/formats.md has the format. Threads may share a
   table. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_DEVICE_TUNING_H
#define DN_DEVICE_TUNING_H

#include "device/backend.h"
#include "device/conv.h"

danaus_status dn_tuning_create(tuning **table);
void dn_tuning_destroy(tuning *table);

/* A table for this device, with what came with the library. */
danaus_status dn_tuning_open(const danaus_device *dev, tuning **table);

/* Adds the rows for this device of the tables that came with the library (bench/tuning,
   embedded by the build), unless DANAUS_TUNING is set and empty in the environment. They give
   way to any others, and files do not get them. Then those of the file that DANAUS_TUNING
   names, if any. */
danaus_status dn_tuning_add_shipped(tuning *table, const danaus_device *dev);

/* Adds the rows of a file that are for this device and its kernels; *skipped
   counts the others. On failure the table is as it was. */
danaus_status dn_tuning_load(
    tuning *table, const danaus_device *dev, const char *path, int64_t *skipped);

/* Replaces a table; rows of other places that it has stay. */
danaus_status dn_tuning_save(
    const tuning *table, const danaus_device *dev, const char *path);

/* The same from a file's text in memory. */
danaus_status dn_tuning_read(
    tuning *table, const danaus_device *dev, const char *content, size_t size,
    int64_t *skipped);

/* The kernel measured as fastest for p at the nearest power of two of its batch
   (within a factor of two), and its seconds; NULL when there is none. shipped_too: also
   of rows that came with the library. */
const kernel *dn_tuning_find(
    const tuning *table, const problem *p, int shipped_too, double *seconds);

/* The kernel of the nearest measured problem of the same type, layout and number of
   factors that it fits: the squares of log2 of how sizes and batch differ add up to less
   than 1/2, which is a factor of 1.63 for one of them. NULL when there is none. */
const kernel *dn_tuning_near(const tuning *table, const problem *p);

/* Remembers a measurement, replacing an older one of the same problem; forgets it
   silently when memory is out or the time is not a positive number. */
void dn_tuning_add(tuning *table, const problem *p, const kernel *k, double seconds);

/* The same for convolutions. rows: those that are convolved together, to the nearest
   power of two; 0: many, or any number. Of p count kind, length, taps,
   type and accuracy. The cut is what a file says: it may be of no use. 0: not found. */
int dn_tuning_find_conv(
    const tuning *table, const conv_problem *p, int64_t rows, conv_cut *cut,
    double *seconds);
void dn_tuning_add_conv(
    tuning *table, const conv_problem *p, int64_t rows, conv_cut cut, double seconds);

/* Constants of the model of convolutions, for a type of sums. */
#define TUNING_LEAST 1e-18
#define TUNING_MOST  1e18

/* Between TUNING_LEAST and TUNING_MOST, or 0: not known. */
double dn_tuning_constant(
    const tuning *table, danaus_dtype sums, tuning_constant name, int64_t of);

/* Forgotten silently like measurements. */
void dn_tuning_add_constant(
    tuning *table, danaus_dtype sums, tuning_constant name, int64_t of, double value);

#endif
