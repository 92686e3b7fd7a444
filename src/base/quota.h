/* The processor time and the memory that control groups grant this process. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BASE_QUOTA_H
#define DN_BASE_QUOTA_H

#include "danaus/base.h"

/* Whole processors, rounded down, at least 1: a thread more would be stopped in the middle
   of a product until the next period. INT_MAX without a limit, or where the system does
   not say. The system's files are read below the folder `root`: "" for its own. */
int dn_processor_quota(const char *root);

/* Bytes that this process may have at most: what the system can still give (MemAvailable), or
   the least limit of its groups. INT64_MAX where the system does not say. */
int64_t dn_memory_room(const char *root);

/* Blocks from this size on are compared with the memory there is before they are made. */
#define DN_LARGE_BLOCK ((size_t)256 << 20)

/* Refuses so many bytes, for `what`, if this process cannot get them. Otherwise a system that
   promises memory that it lacks would kill the process later. */
danaus_status dn_check_room(double bytes, const char *what);

#endif
