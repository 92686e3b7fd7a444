/* The energy of a product, by the counter of a device. */
// SPDX-License-Identifier: Apache-2.0
#ifndef PROGRAM_ENERGY_H
#define PROGRAM_ENERGY_H

#include "bench/program/measure.h"

#include "danaus/danaus.h"

/* Joules of a call of a runner whose median is known: the median over windows. All that
   the device uses meanwhile counts. Returns an exit status. */
int energy_of(
    danaus_device *device, const runner *one, const rotation *r, double *joules);

#endif
