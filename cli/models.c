// SPDX-License-Identifier: Apache-2.0
#include "cli/models.h"

#include "common/finite.h"

#include <math.h>
#include <stdlib.h>

int model_open(open_model *m, const char *path, int outline)
{
    const danaus_model_desc how = { .dtype = m->dtype,
                                    .outline = outline,
                                    .int8 = m->int8 };
    TRY(open_device(&m->where, &m->device));
    TRY(library(danaus_model_load_as(m->device, path, &how, &m->model)));
    danaus_model_describe(m->model, &m->info);
    return STATUS_OK;
}

void model_close(open_model *m)
{
    danaus_model_destroy(m->model);
    danaus_device_close(m->device);
}

int model_takes_text(const open_model *m, const char *path)
{
    return fail_if(
        m->info.image_size > 0,
        "%s is a model of images (%s), not of text: danaus classify runs it", path,
        m->info.architecture);
}

static int compare(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->value != y->value)
        return x->value > y->value ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

void ranked_sort(ranked *all, int64_t count)
{
    qsort(all, (size_t)count, sizeof *all, compare);
}

void ranked_by_softmax(const float *scores, int64_t count, ranked *all)
{
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, scores[i]);
    for (int64_t i = 0; i < count; i++)
        sum += exp(scores[i] - most);
    for (int64_t i = 0; i < count; i++)
        all[i] = (ranked){ i, exp(scores[i] - most) / sum };
    ranked_sort(all, count);
}

int rows_save(output *o, float *data, int64_t rows, int64_t cols)
{
    output_judge_model(o, count_non_finite(DANAUS_F32, data, rows * cols), rows * cols);
    if (!o->name)
        return STATUS_OK;
    danaus_tensor y = { .name = "", .data = data, .dtype = DANAUS_F32, .ndim = 2 };
    y.shape[0] = rows;
    y.shape[1] = cols;
    return library(danaus_file_write_npy(o->path, &y));
}
