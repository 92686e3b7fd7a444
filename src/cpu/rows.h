/* What the rows of the kernel table share whatever their instruction set: which
   problems they fit, what they cost, how they pack weights. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CPU_ROWS_H
#define DN_CPU_ROWS_H

#include "cpu/cpu.h"

/* Elements in a row of x that repeats with period d, for vectors of `per`. */
static inline int64_t dn_lane_row(int64_t d, int64_t per) { return d + per - 1; }

int dn_cpu_fits(const kernel *k, const problem *p);

double dn_panel_cost(const danaus_device *dev, const kernel *k, const problem *p);
size_t dn_panel_bytes(const kernel *k, const problem *p);
void dn_panel_pack(const kernel *k, const problem *p, weights_view w, void *packed);

double dn_lanes_cost(const danaus_device *dev, const kernel *k, const problem *p);
size_t dn_lanes_bytes(const kernel *k, const problem *p);
void dn_lanes_pack(const kernel *k, const problem *p, weights_view w, void *packed);

#endif
