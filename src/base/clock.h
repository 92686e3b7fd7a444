/* Monotonic time in seconds. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BASE_CLOCK_H
#define DN_BASE_CLOCK_H

double dn_seconds(void);

#endif
