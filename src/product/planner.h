/* Chooses a kernel for a problem: by the tuning table, otherwise by the cost model with
   measurements nearby, or by a measurement. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_PRODUCT_PLANNER_H
#define DN_PRODUCT_PLANNER_H

#include "device/backend.h"

/* The best kernel for p and its seconds. DANAUS_ERR_UNSUPPORTED if none fits, or with
   DANAUS_TABLE_ONLY if the table has none. For two factors at once and for orders, which are
   in no table and not measured, *chosen is then NULL. The kernel of a neighbouring problem in
   the table goes before estimates, unless it is estimated to be much slower. Batch-invariant
   problems have estimates alone. With fresh weights all seconds, those of dn_measure too, include
   packing by the backend's estimate. */
danaus_status dn_choose(
    danaus_device *dev, const problem *p, danaus_effort effort, const kernel **chosen,
    double *seconds);

/* The kernel that, by its estimates, runs all steps of a chain in less time than the kernels
   chosen for each; or NULL, also if the table knows one of the steps. Between steps of the
   same kernel results keep its layout, which choices for single steps do not consider.
   *gain: the seconds that are saved, or 0. */
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
