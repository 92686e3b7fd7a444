/* The processors' time and the memory that control groups grant this process. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BASE_QUOTA_H
#define DN_BASE_QUOTA_H

#include <stdint.h>

/* Whole processors, rounded down, at least 1: a thread more would be stopped in the middle
   of a product until the next period. INT_MAX without a limit, or where the system does
   not say. The system's files are read below the folder `root`: "" for its own. */
int dn_processor_quota(const char *root);

/* Bytes that this process may have at most: what the system can still give (MemAvailable), or
   the least limit of its groups. INT64_MAX where the system does not say. */
int64_t dn_memory_room(const char *root);

#endif
