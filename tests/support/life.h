/* The life of a device on the emulated driver: a plan, weights, products and gradients of a
   chain of two factors, and their end. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_LIFE_H
#define TEST_SUPPORT_LIFE_H

#include "emulator/emulator.h"
#include "support/chains.h"

/* What is lived through: a chain with as many columns as rows, and the rows that the tuning
   table names to plans, for it and for its adjoint. */
typedef struct story {
    danaus_pattern patterns[2];
    int64_t batch;
    struct {
        danaus_pattern pattern;
        const char *row;
    } named[4];
    danaus_math math;
} story;

extern const story plain;
extern const story
    by_library;            /* rows that launch more than one kernel of ours, or none */
extern const story turned; /* cuBLAS makes weight gradients, also from what is turned */
extern const story hopper; /* clusters and tensor maps of compute capability 9.0 */

typedef struct life {
    danaus_device *device;
    danaus_ks_plan *plan;
    danaus_ks_weights *weights;
    float *memory; /* x, then results: y, dx, dw of both, dbias */
} life;

int64_t vector_of(const story *s);  /* numbers of x, and of y */
int64_t results_of(const story *s); /* of all results */

danaus_status execute(const story *s, const life *l);
danaus_status go_back(const story *s, const life *l);

/* Weights from a chain, and again from the device's memory; everything else twice, so that
   calls are captured; the results come to the host. end_life() ends what was begun,
   whatever the status. */
danaus_status try_life(
    const story *s, const char *name, life *l, const random_chain *c, const float *x,
    float *results);
void end_life(life *l);

/* The control of the emulated driver; NULL if that is not there. */
emulator_control *find_emulator(void);

/* The same for tests that fail calls or count them: without it they are skipped. */
emulator_control *need_emulator(void);

void expect_nothing_lost(
    const emulator_control *control, const char *function, int number);

#endif
