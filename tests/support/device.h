/* The device that a test program was asked to use. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_DEVICE_H
#define TEST_SUPPORT_DEVICE_H

#include "support/element.h"

#include "danaus/device.h"

/* argv[1], or "cpu". Ends the program with status 77, which CTest counts as
   skipped, when this machine has no such device. It has only the rows of its table whose
   names begin with a word of DANAUS_TEST_ROWS=ks.simt,ks.vec if the environment has that. */
danaus_device *device_from_arguments(int argc, char **argv);

/* Rounds to make of something that is tried `rounds` times: fewer, at least 1,
   when the environment says DANAUS_TEST_SHARE=N (one N-th, for emulators and
   sanitizers). */
int rounds_of(int rounds);

/* An array where the device can reach it, guards included: its own data when that is
   the host's memory, else a copy as badly aligned. NULL data give NULL. */
void *to_device(danaus_device *device, const array *a);

/* Brings what the device wrote back, guards included, and frees the copy. */
void from_device(danaus_device *device, const array *a, void *copy);

/* Brings it back and leaves the copy there. */
void copy_from_device(danaus_device *device, const array *a, const void *copy);

/* The same of a bias, which backends get aligned as memory of the device is. */
void *bias_to_device(danaus_device *device, const array *a);
void bias_from_device(danaus_device *device, const array *a, void *copy);

/* An allocator that has one block, of which a call asks once for at most `most` bytes, on
   the default stream, before it gives it back. */
typedef struct one_block {
    void *memory;
    size_t most, asked;
    int calls, taken;
} one_block;

/* From now on the device has its scratch from there; NULL: of its own. */
void scratch_from(danaus_device *device, one_block *block);

/* What is expected below is what this device gives; that of the arguments already is. */
void expect_device(const danaus_device *device);

/* The type in which the device stores vectors between factors and weights that are not
   of the plan's type: that of sums, or, on a GPU, the plan's. */
danaus_dtype type_between(danaus_dtype dtype);

/* Every n-th of many small cases is enough; 1 unless DANAUS_TEST_SHARE is set. */
int share_of_cases(void);

/* The step from one case to the next where hundreds are alike: 1, or 7 where tests make a share
   of their rounds. */
int case_step(void);

#endif
