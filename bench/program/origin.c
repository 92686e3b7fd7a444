/* Where a record comes from. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/program/origin.h"

#include "bench/program/commit.h" /* made by the build */

#ifndef DANAUS_COMMIT
#    define DANAUS_COMMIT "unknown"
#endif

json_t *origin_of(const danaus_device_info *device)
{
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:i}", "version", danaus_version(), "commit",
        DANAUS_COMMIT, "device", device->description, "instructions",
        device->instructions, "threads", device->threads);
}
