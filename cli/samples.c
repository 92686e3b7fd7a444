// SPDX-License-Identifier: Apache-2.0
#include "cli/samples.h"

#include "common/open.h"
#include "common/report.h"

#include <inttypes.h>
#include <stdlib.h>

/* A file of samples x `width` numbers. */
static int open_rows(
    const char *path, const char *name, int64_t width, int complex, danaus_file **file,
    danaus_tensor *rows)
{
    TRY(open_array(path, file, rows));
    if (rows->ndim != 2 || rows->shape[1] != width) {
        char shape[200];
        format_shape(rows, shape, sizeof shape);
        return failure(
            "%s: the sample %s are %s, but samples x %" PRId64 " are needed", path,
            name, shape, width);
    }
    return fail_if(
        is_complex(rows->dtype) && !complex,
        "%s: the sample %s are complex (%s) and W is not", path, name,
        danaus_dtype_name(rows->dtype));
}

int samples_open(
    const char *inputs, const char *targets, const danaus_tensor *matrix, int complex,
    samples *s)
{
    int64_t rows = matrix->shape[0], cols = matrix->shape[1];
    int status = open_rows(inputs, "inputs", cols, complex, &s->files[0], &s->inputs);
    if (status || !targets)
        return status;
    status = open_rows(targets, "targets", rows, complex, &s->files[1], &s->targets);
    if (!status && s->targets.shape[0] != s->inputs.shape[0])
        return failure(
            "%s has %" PRId64 " targets, and %s %" PRId64 " inputs: as many are needed",
            targets, s->targets.shape[0], inputs, s->inputs.shape[0]);
    return status;
}

int samples_read(samples *s, danaus_dtype dtype, danaus_factorize_desc *fit)
{
    if (!s->files[0])
        return STATUS_OK;
    fit->samples = s->inputs.shape[0];
    TRY(tensor_as(&s->inputs, dtype, "the sample inputs", &fit->inputs, &s->owned[0]));
    if (!s->files[1])
        return STATUS_OK;
    return tensor_as(
        &s->targets, dtype, "the sample targets", &fit->targets, &s->owned[1]);
}

void samples_close(samples *s)
{
    for (int n = 0; n < 2; n++) {
        free(s->owned[n]);
        danaus_file_close(s->files[n]);
    }
}
