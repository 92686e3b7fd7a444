/* Any bytes as a tuning file: plans still work afterwards. */
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"

#include "danaus/danaus.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    danaus_device *device = NULL;
    danaus_ks_plan *plan = NULL;
    const danaus_pattern p[2] = { { 1, 4, 2, 2 }, { 2, 2, 4, 1 } };
    expect(danaus_device_open("cpu", &device) == DANAUS_OK);
    if (danaus_device_load_tuning(device, fuzz_file(data, size)) != DANAUS_OK)
        expect(*danaus_error_detail());
    expect(danaus_ks_plan_create(device, p, 2, NULL, &plan) == DANAUS_OK);
    danaus_ks_plan_destroy(plan);
    danaus_device_close(device);
    return 0;
}
