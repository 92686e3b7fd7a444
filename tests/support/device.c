/* The device that a test program was asked to use. */
// SPDX-License-Identifier: Apache-2.0
#include "support/device.h"

#include "support/test.h"

#include "device/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ROWS 512

static int narrow_between; /* of the device of this program */

void expect_device(const danaus_device *device)
{
    narrow_between = !device->backend->on_host;
}

/* True if the name begins with a word of the list, whose words are separated by commas. */
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
    if (strchr(name, ':') && strcmp(device->name, name)) {
        fprintf(stderr, "%s: the best is %s\n", name, device->name);
        exit(77);
    }
    expect_device(device);
    keep_rows(device, getenv("DANAUS_TEST_ROWS"));
    return device;
}

/* The alignment of allocations in bytes, more than the offset of an array in its block. */
#define ALIGNED 256

static size_t offset_of(const array *a)
{
    return (size_t)((unsigned char *)a->data - a->block);
}

/* The block of an array, so many bytes behind the beginning of an allocation. */
static void *put(danaus_device *device, const array *a, size_t lead)
{
    char *copy = NULL;
    if (device->backend->on_host || !a->data)
        return a->data;
    assert_ok(danaus_alloc(device, lead + array_block_bytes(a), (void **)&copy));
    assert_ok(danaus_upload(device, copy + lead, a->block, array_block_bytes(a)));
    return copy + lead + offset_of(a);
}

void copy_from_device(danaus_device *device, const array *a, const void *copy)
{
    if (device->backend->on_host || !a->data)
        return;
    const char *block = (const char *)copy - offset_of(a);
    assert_ok(danaus_download(device, a->block, block, array_block_bytes(a)));
}

static void take(danaus_device *device, const array *a, void *copy, size_t lead)
{
    if (device->backend->on_host || !a->data)
        return;
    copy_from_device(device, a, copy);
    danaus_free(device, (char *)copy - offset_of(a) - lead);
}

void *to_device(danaus_device *device, const array *a) { return put(device, a, 0); }

void from_device(danaus_device *device, const array *a, void *copy)
{
    take(device, a, copy, 0);
}

void *bias_to_device(danaus_device *device, const array *a)
{
    return put(device, a, ALIGNED - offset_of(a));
}

void bias_from_device(danaus_device *device, const array *a, void *copy)
{
    take(device, a, copy, ALIGNED - offset_of(a));
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

int case_step(void) { return rounds_of(2) == 2 ? 1 : 7; }

static danaus_status take_block(void *user, size_t bytes, void *stream, void **memory)
{
    one_block *b = user;
    assert_null(stream);
    assert_int_equal(b->taken++, 0);
    assert_true(bytes > 0 && bytes <= b->most);
    b->calls++;
    b->asked = bytes;
    *memory = b->memory;
    return DANAUS_OK;
}

static void give_block(void *user, void *memory, void *stream)
{
    one_block *b = user;
    assert_null(stream);
    assert_int_equal(b->taken--, 1);
    assert_ptr_equal(memory, b->memory);
}

void scratch_from(danaus_device *device, one_block *block)
{
    danaus_allocator a = { block, take_block, give_block, { NULL } };
    assert_ok(danaus_device_set_allocator(device, block ? &a : NULL));
}
