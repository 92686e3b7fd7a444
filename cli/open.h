/* What commands open: a device, one array of a file. */
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_OPEN_H
#define CLI_OPEN_H

#include "cli/args.h"

typedef struct device_options {
    const char *name; /* NULL: "cpu" */
    int64_t threads;  /* 0: one for each processor */
    const char *tuning;
} device_options;

/* The rows of an option table that fill a device_options. */
#define DEVICE_ARGS(o)                                                                 \
    { "device",                                                                        \
      0,                                                                               \
      ARG_TEXT,                                                                        \
      &(o).name,                                                                       \
      "NAME",                                                                          \
      "where to compute: cpu, or cpu:scalar, cpu:avx2,\n"                              \
      "cpu:avx512, cpu:neon for at most that\n"                                        \
      "instruction set; cuda:0 for the first GPU" },                                   \
        { "threads",    0,   ARG_COUNT,                                                \
          &(o).threads, "N", "threads of a product; 0: one for each\nprocessor" },     \
    {                                                                                  \
        "tuning", 0, ARG_TEXT, &(o).tuning, "FILE",                                    \
            "table of measured choices, from danaus tune"                              \
    }

/* Opens the device that the options ask for. Returns an exit status. */
int open_device(const device_options *options, danaus_device **device);

/* Fails unless a file may be written into the folder of `path`: before work that takes
   long. Returns an exit status. */
int check_output(const char *path);

/* Opens a file and finds a tensor: the named one or, when name is NULL, the only
   one. The caller closes the file. Returns an exit status. */
int open_tensor(
    const char *path, const char *name, danaus_file **file, danaus_tensor *tensor);

/* "3 x 4 x 5" */
void format_shape(const danaus_tensor *tensor, char *text, size_t size);

int is_complex(danaus_dtype dtype);

/* Elements of a tensor. */
int64_t tensor_elements(const danaus_tensor *tensor);

/* The tensor's data in the type asked for: the data themselves, or converted
   into memory that *owned gets and the caller frees. NULL when memory is out. */
const void *tensor_as(const danaus_tensor *tensor, danaus_dtype dtype, void **owned);

#endif
