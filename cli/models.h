/* What commands of models share: the folder of a model opened on a device, numbers for things of
   which the greatest count, and arrays of results. */
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_MODELS_H
#define CLI_MODELS_H

#include "common/open.h"

typedef struct open_model {
    device_options where;
    danaus_dtype dtype;
    int int8;
    danaus_device *device;
    danaus_model *model;
    danaus_model_info info;
} open_model;

/* The rows of an option table that fill the first three. */
#define MODEL_ARGS(m)                                                                  \
    TYPE_ARG((m).dtype),                                                               \
        INT8_ARG(                                                                      \
            (m).int8, "round weights and rows of linear layers "                       \
                      "to 8\nbits; CPUs only"),                                        \
        DEVICE_ARGS((m).where)
#define INT8_ARG(to, help)                                                             \
    {                                                                                  \
        "int8", 0, ARG_FLAG, &(to), NULL, help                                         \
    }

/* Opens the device, and on it the model in a folder; an outline reads no weights. The caller
   closes what was opened, also after a failure. Returns an exit status. */
int model_open(open_model *m, const char *path, int outline);
void model_close(open_model *m); /* zeros are fine */

/* Refuses a model of images where text is needed. Returns an exit status. */
int model_takes_text(const open_model *m, const char *path);

/* A thing by its number, and what it is ranked by. */
typedef struct ranked {
    int64_t number;
    double value;
} ranked;

/* The greatest value first; of equal ones the lowest number. */
void ranked_sort(ranked *all, int64_t count);

/* Ranks the probabilities that softmax computes from scores. */
void ranked_by_softmax(const float *scores, int64_t count, ranked *all);

/* Writes rows x cols numbers of a model as a .npy file, if there is an output, and warns of those
   that are infinite or NaN. Returns an exit status. */
int rows_save(output *o, float *data, int64_t rows, int64_t cols);

#endif
