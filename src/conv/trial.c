/* Convolutions of zeros, for timing. */
// SPDX-License-Identifier: Apache-2.0
#include "conv/choose.h"

#include "base/clock.h"
#include "base/dtype.h"
#include "base/mem.h"

#define GPU_SHARE 4 /* bytes of a GPU's cache for each number of a trial: it is full */

/* Sets batch, channels and filters for so many rows: a batch as large as the problem's and, if
   channels have filters of their own, several filters. */
static danaus_status choose_rows(
    danaus_device *dev, int64_t numbers, conv_problem *p, conv_trial *t)
{
    danaus_device_info info;
    TRY(danaus_device_describe(dev, &info));
    int64_t all = info.threads ? numbers * info.threads : info.cache / GPU_SHARE;
    int64_t few = dn_conv_few_rows(dev, p), shared = p->filters < p->channels;
    int64_t many = MAX(1 + 2 * info.threads, CEIL_DIV(all, dn_conv_numbers(p)));
    int64_t batch = few ? p->batch : p->batch ? MIN(p->batch, many) : many;
    p->channels = few ? p->channels : MIN(p->channels, CEIL_DIV(many, batch));
    p->filters = shared ? 1 : p->channels;
    p->signals = 0;
    t->rows = batch * p->channels;
    t->job.batch = batch;
    return DANAUS_OK;
}

static danaus_status open_rows(conv_trial *t, const conv_problem *p)
{
    const backend *b = t->dev->backend;
    size_t rows = dn_aligned(t->rows * dn_conv_numbers(p) * dn_size_of(p->dtype));
    size_t bytes = 2 * rows + dn_conv_spectra_bytes(t->engine, p->filters);
    TRY(b->alloc(t->dev, bytes, &t->memory));
    char *memory = t->memory;
    t->job.products = 1;
    t->job.product[0] = (conv_product){
        .x = { .data = memory + rows },
        .sinks = 1,
        .sink = { { .data = memory } },
    };
    t->job.spectrum = memory + 2 * rows;
    return b->clear(t->dev, t->memory, bytes);
}

danaus_status dn_conv_trial_open(
    danaus_device *dev, const conv_problem *p, const conv_frame *f, int64_t numbers,
    conv_trial *trial)
{
    conv_problem some = *p;
    conv_trial t = { .dev = dev };
    TRY(choose_rows(dev, numbers, &some, &t));
    danaus_status status = dev->backend->conv->create(dev, &some, f, &t.engine);
    status = status ? status : open_rows(&t, &some);
    if (status)
        dn_conv_trial_close(&t);
    else
        *trial = t;
    return status;
}

static danaus_status run(danaus_device *dev, void *arg)
{
    const conv_trial *t = arg;
    const conv_call call = { .engine = t->engine, .job = &t->job };
    return dev->backend->conv->run(dev, 1, &call);
}

danaus_status dn_conv_trial_run(conv_trial *t, double *seconds)
{
    const backend *b = t->dev->backend;
    double start = dn_seconds();
    if (b->time) {
        TRY(b->time(t->dev, run, t, seconds));
    } else {
        TRY(run(t->dev, t));
        *seconds = dn_seconds() - start;
    }
    *seconds /= (double)t->rows;
    return DANAUS_OK;
}

void dn_conv_trial_close(conv_trial *t)
{
    if (t->engine)
        t->dev->backend->conv->destroy(t->engine);
    if (t->memory)
        t->dev->backend->free(t->dev, t->memory);
}
