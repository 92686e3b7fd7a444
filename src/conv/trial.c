/* Convolutions of zeros, to be timed. */
// SPDX-License-Identifier: Apache-2.0
#include "conv/choose.h"

#include "base/clock.h"
#include "base/dtype.h"
#include "base/mem.h"

/* Sets batch, channels and filters to those of so many rows: a batch as large as the
   problem's, and where channels have filters of their own, several of these. */
static danaus_status choose_rows(
    danaus_device *dev, int64_t numbers, conv_problem *p, conv_trial *t)
{
    danaus_device_info info;
    TRY(danaus_device_describe(dev, &info));
    int64_t threads = info.threads ? info.threads : dev->backend->conv->few_rows;
    int64_t few = dn_conv_few_rows(dev, p), shared = p->filters < p->channels;
    int64_t many = MAX(2 * threads, CEIL_DIV(numbers * threads, p->length));
    int64_t batch = few ? p->batch : p->batch ? MIN(p->batch, many) : many;
    p->channels = few ? p->channels : MIN(p->channels, CEIL_DIV(many, batch));
    p->filters = shared ? 1 : p->channels;
    t->rows = batch * p->channels;
    t->job.batch = batch;
    return DANAUS_OK;
}

static danaus_status open_rows(conv_trial *t, const conv_problem *p)
{
    const backend *b = t->dev->backend;
    size_t rows = dn_aligned(t->rows * p->length * dn_size_of(p->dtype));
    size_t bytes = 2 * rows + (size_t)p->filters * t->engine->filter_bytes;
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

danaus_status dn_conv_trial_run(const conv_trial *t, double *seconds)
{
    double start = dn_seconds();
    TRY(t->dev->backend->conv->run(t->dev, t->engine, &t->job));
    TRY(t->dev->backend->sync(t->dev));
    *seconds = (dn_seconds() - start) / (double)t->rows;
    return DANAUS_OK;
}

void dn_conv_trial_close(conv_trial *t)
{
    if (t->engine)
        t->dev->backend->conv->destroy(t->engine);
    if (t->memory)
        t->dev->backend->free(t->dev, t->memory);
}
