/* Chooses a kernel for a problem: by the tuning table, otherwise by the cost model with
   measurements nearby, or by a measurement. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_PRODUCT_PLANNER_H
#define DN_PRODUCT_PLANNER_H

#include "device/backend.h"

/* The best kernel for p and its seconds. DANAUS_ERR_UNSUPPORTED when none fits,
   or with DANAUS_TABLE_ONLY when the table has none; for two factors at once, and for
   orders, which no table has and which are not measured, *chosen is then NULL. Estimates give way to the kernel of a problem nearby in the table, unless it
   is estimated to be much slower. Of a problem with fresh weights packing counts in all
   seconds, by the backend's estimate, also in those of dn_measure. */
danaus_status dn_choose(
    danaus_device *dev, const problem *p, danaus_effort effort, const kernel **chosen,
    double *seconds);

/* The kernel that makes all steps of a chain in less time than their own do, by its
   estimates, or NULL; also NULL where the table knows one of them. What lies between steps
   of the same kernel is as it wants it, which a choice for each does not see. *gain: the
   seconds that are saved, or 0. */
const kernel *dn_choose_alike(
    const danaus_device *dev, const ks_step *steps, int count, double *gain);

/* Compiles what steps run, all at the same time. Those that do not compile here are left out;
   *count may become 0. */
danaus_status dn_prepare_steps(danaus_device *dev, ks_step *steps, int *count);

/* Median seconds of steps, one after the other, on random data; of more than one only
   where the backend's work is done on return. */
danaus_status dn_measure(
    danaus_device *dev, const ks_step *steps, int count, double *seconds);

#endif
