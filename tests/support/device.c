/* The device that a test program was asked to use. */
// SPDX-License-Identifier: Apache-2.0
#include "support/device.h"

#include <stdio.h>
#include <stdlib.h>

danaus_device *device_from_arguments(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "cpu";
    danaus_device *device = NULL;
    danaus_status status = danaus_device_open(name, &device);
    if (status != DANAUS_OK) {
        fprintf(stderr, "%s: %s\n", name, danaus_error_detail());
        exit(status == DANAUS_ERR_UNSUPPORTED ? 77 : 1);
    }
    return device;
}

int share_of_cases(void)
{
    const char *text = getenv("DANAUS_TEST_SHARE");
    int share = text ? atoi(text) : 1;
    return share < 1 ? 1 : share;
}

int rounds_of(int rounds)
{
    int share = rounds / share_of_cases();
    return share < 1 ? 1 : share;
}
