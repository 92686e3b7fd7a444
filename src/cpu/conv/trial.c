/* Convolutions of zeros, to be timed. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv/model.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "cpu/conv/loop.h"
#include "cpu/grid.h"

#include <string.h>

/* Sets batch, channels and filters to those of so many rows: a batch as large as the
   problem's, and where channels have filters of their own, several of these. */
static void choose_rows(conv_trial *t, int64_t numbers)
{
    conv_problem *p = &t->one.p;
    int64_t few = dn_conv_few_rows(&t->one), shared = p->filters < p->channels;
    int64_t many = MAX(2 * t->dev->threads, CEIL_DIV(numbers, p->length));
    int64_t batch = few ? p->batch : p->batch ? MIN(p->batch, many) : many;
    p->channels = few ? p->channels : MIN(p->channels, CEIL_DIV(many, batch));
    p->filters = shared ? 1 : p->channels;
    t->rows = batch * p->channels;
    t->o.batch = batch;
}

danaus_status dn_conv_trial_open(
    cpu_device *dev, const conv_engine *e, int64_t numbers, conv_trial *trial)
{
    conv_trial t = { .dev = dev, .one = *e };
    choose_rows(&t, numbers);
    size_t rows =
        dn_aligned(t.rows * e->p.length * (int64_t)danaus_dtype_size(e->p.dtype));
    size_t bytes = 2 * rows + (size_t)(t.one.p.filters * dn_conv_bytes(e));
    char *memory = dn_alloc(bytes);
    if (!memory)
        return dn_fail_memory(bytes, "rows to measure");
    memset(memory, 0, bytes); /* pages of their own, unlike those of dn_calloc */
    t.memory = t.o.y = memory;
    t.o.u = memory + rows;
    t.o.spectrum = memory + 2 * rows;
    *trial = t;
    return DANAUS_OK;
}

danaus_status dn_conv_trial_run(const conv_trial *t, double *seconds)
{
    double start = dn_seconds();
    TRY(dn_cpu_conv.run(&t->dev->base, &t->one, &t->o));
    *seconds = (dn_seconds() - start) / (double)t->rows;
    return DANAUS_OK;
}

void dn_conv_trial_close(conv_trial *t) { dn_free(t->memory); }
