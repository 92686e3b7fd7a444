/* The device that a test program was asked to use. */
// SPDX-License-Identifier: Apache-2.0
#include "support/device.h"

#include "support/test.h"

#include "backend/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ROWS 512

static int narrow_between; /* of the device of this program */

void expect_device(const danaus_device *device)
{
    narrow_between = !device->backend->on_host;
}

/* Is the name one of those, or begins it with one, of a list with commas? */
static int is_listed(const char *name, const char *list)
{
    for (const char *at = list; *at; at += strcspn(at, ",") + (strchr(at, ',') != NULL))
        if (!strncmp(name, at, strcspn(at, ",")))
            return 1;
    return 0;
}

/* The device keeps the rows of the list, or all without one. */
static void keep_rows(danaus_device *device, const char *list)
{
    static kernel rows[MOST_ROWS];
    size_t count = 0;
    for (const kernel *k = device->kernels; list && k->name; k++)
        if (is_listed(k->name, list) && count < MOST_ROWS - 1)
            rows[count++] = *k;
    if (list)
        device->kernels = rows;
}

danaus_device *device_from_arguments(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "cpu";
    danaus_device *device = NULL;
    danaus_status status = danaus_device_open(name, &device);
    if (status != DANAUS_OK) {
        fprintf(stderr, "%s: %s\n", name, danaus_error_detail());
        exit(status == DANAUS_ERR_UNSUPPORTED ? 77 : 1);
    }
    expect_device(device);
    keep_rows(device, getenv("DANAUS_TEST_ROWS"));
    return device;
}

static size_t offset_of(const array *a)
{
    return (size_t)((unsigned char *)a->data - a->block);
}

void *to_device(danaus_device *device, const array *a)
{
    void *copy = NULL;
    if (device->backend->on_host || !a->data)
        return a->data;
    assert_ok(danaus_alloc(device, array_block_bytes(a), &copy));
    assert_ok(danaus_upload(device, copy, a->block, array_block_bytes(a)));
    return (char *)copy + offset_of(a);
}

void from_device(danaus_device *device, const array *a, void *copy)
{
    if (device->backend->on_host || !a->data)
        return;
    char *block = (char *)copy - offset_of(a);
    assert_ok(danaus_download(device, a->block, block, array_block_bytes(a)));
    danaus_free(device, block);
}

danaus_dtype type_between(danaus_dtype dtype)
{
    return narrow_between ? dtype : sum_type(dtype);
}

int share_of_cases(void)
{
    const char *text = getenv("DANAUS_TEST_SHARE");
    const char *fewer = getenv("DANAUS_TEST_FEWER"); /* of an emulated device */
    int share = (text ? atoi(text) : 1) * (fewer ? atoi(fewer) : 1);
    return share < 1 ? 1 : share;
}

int rounds_of(int rounds)
{
    int share = rounds / share_of_cases();
    return share < 1 ? 1 : share;
}
