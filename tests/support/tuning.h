/* A device with three kernels for products, one for weight gradients and one for
   convolutions that compute nothing, for tests of tuning tables. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_TUNING_H
#define TEST_SUPPORT_TUNING_H

#include "device/tuning.h"

extern const kernel tuning_kernels[];
extern const conv_kernel tuning_conv_kernel;
extern const danaus_device tuning_device;

/* The head of a table of products, and the place with which rows of the device begin. */
#define HEAD                                                                           \
    "# danaus tuning 1\n"                                                              \
    "device,machine,instructions,threads,a,b,c,d,dtype,layout,batch,kernel,seconds\n"
#define HERE "cpu,Maker   Model  7,avx9,2,"

/* A table with what this text says, none of which is skipped. */
tuning *table_of(const char *content);

#endif
