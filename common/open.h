/* What commands open: a device, one array of a file; and the options that say how. */
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_OPEN_H
#define COMMON_OPEN_H

#include "common/args.h"
#include "common/output.h"

typedef struct device_options {
    const char *name; /* NULL: "cpu" */
    int64_t threads;  /* 0: one for each processor */
    const char *tuning;
} device_options;

/* How a plan is made. */
typedef struct plan_options {
    int effort;   /* danaus_effort */
    int accuracy; /* danaus_conv_accuracy */
} plan_options;

/* The rows of an option table that fill a device_options. */
#define DEVICE_ARGS(o)                                                                 \
    { "device",                                                                        \
      0,                                                                               \
      ARG_TEXT,                                                                        \
      &(o).name,                                                                       \
      "NAME",                                                                          \
      "where to compute: cpu, or cpu:scalar, cpu:avx2,\n"                              \
      "cpu:avx512, cpu:neon for at most that\n"                                        \
      "instruction set; cuda:0 or opencl:0 for a GPU" },                               \
        { "threads",    0,   ARG_COUNT,                                                \
          &(o).threads, "N", "threads of a product; 0: one for each\nprocessor" },     \
    {                                                                                  \
        "tuning", 0, ARG_INPUT, &(o).tuning, "FILE",                                   \
            "table of measured choices, from danaus tune"                              \
    }

#define EFFORT_ARG(o)                                                                  \
    {                                                                                  \
        "effort", 0, ARG_WORD, &(o).effort, "estimate|measure|table",                  \
            "choose by table or model (default), table or\n"                           \
            "measurement, or table alone"                                              \
    }

#define ACCURACY_ARG(o)                                                                \
    {                                                                                  \
        "accuracy", 0, ARG_WORD, &(o).accuracy, "by_type|accurate|fast",               \
            "whether a GPU may multiply in fewer bits: f16 and\n"                      \
            "bf16 alone (default), never, or f32 too"                                  \
    }

/* The mathematics of products for an accuracy; f16 and bf16 lose nothing with either. */
danaus_math math_of(int accuracy);

/* The option --type of programs that run models; `to` is a danaus_dtype. */
#define TYPE_ARG(to)                                                                   \
    {                                                                                  \
        "type", 0, ARG_DTYPE, &(to), "TYPE",                                           \
            "of weights and of what lies between layers: f32\n"                        \
            "(default), or, on GPUs, f16 or bf16"                                      \
    }

/* Opens the device that the options ask for. Returns an exit status. */
int open_device(const device_options *options, danaus_device **device);

/* Loads the tuning table that will be replaced, if there is one, so that its rows stay. Returns
   an exit status. */
int load_older(danaus_device *device, const output *o);

/* Opens a file of one array. The caller closes the file. Returns an exit status. */
int open_array(const char *path, danaus_file **file, danaus_tensor *tensor);

/* Opens a file and finds the array that --tensor names or, when name is NULL, the only one. */
int open_tensor(
    const char *path, const char *name, danaus_file **file, danaus_tensor *tensor);

/* "3 x 4 x 5" */
void format_shape(const danaus_tensor *tensor, char *text, size_t size);

int is_complex(danaus_dtype dtype);

/* Elements of a tensor. */
int64_t tensor_elements(const danaus_tensor *tensor);

/* The tensor's data in the type asked for: the data themselves, or converted into memory that
   *owned gets and the caller frees. Numbers that the type cannot hold are refused as
   danaus_convert_check() does. Returns an exit status; sentences call the tensor `name`. */
int tensor_as(
    const danaus_tensor *tensor, danaus_dtype dtype, const char *name,
    const void **data, void **owned);

/* The same for vectors, each of which the type has to hold: the rows or columns of an array of
   two dimensions, or an array of one. */
int vectors_as(
    const danaus_tensor *tensor, danaus_dtype dtype, int columns, const char *name,
    const void **data, void **owned);

#endif
