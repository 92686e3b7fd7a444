/* Choosing a kernel for a problem: the tuning table, else the cost model and what was
   measured nearby, or a measurement. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_PLAN_PLANNER_H
#define DN_PLAN_PLANNER_H

#include "backend/backend.h"

/* The best kernel for p and its seconds. DANAUS_ERR_UNSUPPORTED when none fits,
   or with DANAUS_TABLE_ONLY when the table has none; for two factors at once *chosen is
   then NULL. Estimates give way to the kernel of a problem nearby in the table, unless it
   is estimated to be much slower. */
danaus_status dn_choose(
    danaus_device *dev, const problem *p, danaus_effort effort, const kernel **chosen,
    double *seconds);

/* Median seconds of p by kernel k on random data. */
danaus_status dn_measure(
    danaus_device *dev, const kernel *k, const problem *p, double *seconds);

#endif
