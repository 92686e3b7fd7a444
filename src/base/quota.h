/* The processors' time that control groups grant this process. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BASE_QUOTA_H
#define DN_BASE_QUOTA_H

/* Whole processors, rounded down, at least 1: a thread more would be stopped in the middle
   of a product until the next period. INT_MAX without a limit, or where the system does
   not say. The system's files are read below the folder `root`: "" for its own. */
int dn_processor_quota(const char *root);

#endif
