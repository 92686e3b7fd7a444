/* Arrays by their names, as a file of weights has them, and what rounding in f32 does to
   plain loops of f64 that read them. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_NAMED_H
#define TEST_SUPPORT_NAMED_H

#include "danaus/danaus.h"
#include "support/rng.h"

#define NAMED_MOST   320
#define NAMED_LENGTH 128 /* bytes of a name, with its end */

typedef struct named_arrays {
    const char *prefix; /* of all names in the file; NULL: none */
    int count;
    danaus_tensor tensor[NAMED_MOST];
    char name[NAMED_MOST][NAMED_LENGTH];
} named_arrays;

/* Makes a name; it has to fit. */
void named_path(char path[NAMED_LENGTH], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A new array of zeros, of f32 or of f64. */
float *named_add(
    named_arrays *arrays, int ndim, const int64_t *shape, const char *name);
double *named_add_f64(
    named_arrays *arrays, int ndim, const int64_t *shape, const char *name);

/* One of random numbers from middle - size to middle + size. */
void named_add_random(
    rng *r, named_arrays *arrays, int ndim, const int64_t *shape, double middle,
    double size, const char *name);

/* The array of this name, without the prefix; NULL: there is none. */
const danaus_tensor *named_find(const named_arrays *arrays, const char *name);
double named_at(const danaus_tensor *array, int64_t i);
void named_drop(named_arrays *arrays, const char *name); /* has to be there */
void named_write(const named_arrays *arrays, const char *path);
void named_free(named_arrays *arrays);

/* Half a unit in the last place of the type that results and weights are stored in, relatively,
   where that is not f32. */
extern double named_stored;

/* y, moved by a random part of what rounding in f32 does to a sum of so many terms whose
   magnitudes add up to `size`, and of what rounding it, and the weights in it, to the type
   in which they are stored does. noise: or NULL, which moves nothing. */
double noisy(double y, double size, double terms, rng *noise);

#endif
