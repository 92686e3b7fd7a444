/* Where a record comes from: the fields that all records begin with. */
// SPDX-License-Identifier: Apache-2.0
#ifndef BENCH_PROGRAM_ORIGIN_H
#define BENCH_PROGRAM_ORIGIN_H

#include "danaus/danaus.h"

#include <jansson.h>

/* An object with version, commit, device, instructions and threads. */
json_t *origin_of(const danaus_device_info *device);

#endif
