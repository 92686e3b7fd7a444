/* Hyena operators: random ones, and by a device. */
// SPDX-License-Identifier: Apache-2.0
#include "support/operator.h"

#include "support/device.h"
#include "support/test.h"

#include <string.h>

/* columns: numbers of a channel. */
static operator_case random_case(rng *r, const danaus_hyena_desc *desc, int64_t columns)
{
    operator_case c = { .desc = *desc };
    danaus_hyena_desc *d = &c.desc;
    d->order = d->order ? d->order : 2;
    d->filter_length = d->filter_length ? d->filter_length : d->length;
    d->filters = d->filters ? d->filters : d->channels;
    d->dtype = d->dtype ? d->dtype : DANAUS_F32;
    d->accuracy = d->accuracy ? d->accuracy : DANAUS_CONV_ACCURATE;
    danaus_dtype sums = sum_type(d->dtype);
    int64_t rows = (d->order + 1) * d->channels,
            long_ones = (d->order - 1) * d->filters;
    c.u = array_random(r, d->dtype, rows * columns);
    c.taps = array_random(r, sums, rows * d->taps);
    if (rng_next(r) % 2)
        c.bias = array_random(r, sums, rows);
    c.k = array_random(r, sums, long_ones * d->filter_length);
    if (rng_next(r) % 2)
        c.skip = array_random(r, sums, long_ones);
    c.dy = array_random(r, d->dtype, d->channels * columns);
    return c;
}

operator_case operator_random(rng *r, const danaus_hyena_desc *desc, int64_t batch)
{
    operator_case c = random_case(r, desc, batch * desc->length);
    c.batch = batch;
    return c;
}

operator_case operator_random_packed(
    rng *r, const danaus_hyena_desc *desc, int64_t sequences, const int64_t *offsets)
{
    operator_case c = random_case(r, desc, offsets[sequences]);
    c.desc.packed = 1;
    c.batch = sequences;
    c.offsets = offsets;
    return c;
}

/* Columns of rows, beside each other. */
static array columns_of(const array *from, int64_t rows, int64_t first, int64_t end)
{
    size_t size = danaus_dtype_size(from->dtype), n = (size_t)(end - first) * size;
    size_t all = (size_t)(from->count / rows) * size;
    array to = array_make(from->dtype, rows * (end - first));
    for (size_t r = 0; r < (size_t)rows; r++)
        memcpy(
            (char *)to.data + r * n,
            (const char *)from->data + r * all + (size_t)first * size, n);
    return to;
}

operator_case operator_sequence(const operator_case *c, int64_t i)
{
    operator_case own = *c;
    const danaus_hyena_desc *d = &c->desc;
    int64_t first = c->offsets[i], end = c->offsets[i + 1];
    own.desc.packed = 0;
    own.desc.length = end - first;
    own.batch = 1;
    own.offsets = NULL;
    own.u = columns_of(&c->u, (d->order + 1) * d->channels, first, end);
    own.dy = columns_of(&c->dy, d->channels, first, end);
    return own;
}

void operator_sequence_free(operator_case *sequence)
{
    array_free(&sequence->u);
    array_free(&sequence->dy);
}

void operator_free(operator_case *c)
{
    array *all[] = { &c->u, &c->taps, &c->bias, &c->dy, &c->k, &c->skip };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        array_free(all[i]);
}

/* ---- by a device ---- */

void operator_outcome_free(operator_outcome *o)
{
    for (int i = 0; i < OPERATOR_RESULTS; i++)
        array_free(&o->of[i]);
}

int operator_outcome_same(const operator_outcome *a, const operator_outcome *b)
{
    int same = 1;
    for (int i = 0; i < OPERATOR_RESULTS; i++)
        same &= array_same(&a->of[i], &b->of[i]);
    return same;
}

/* Results like these operands. */
static operator_outcome make_outcome(const operator_case *c)
{
    const array *like[] = { &c->dy, &c->u, &c->taps, &c->bias, &c->k, &c->skip };
    operator_outcome o;
    for (int i = 0; i < OPERATOR_RESULTS; i++)
        o.of[i] =
            like[i]->data ? array_make(like[i]->dtype, like[i]->count) : (array){ 0 };
    return o;
}

/* Spectra of all long filters. */
static void make_spectra(
    danaus_device *device, const operator_case *c, const danaus_conv_plan *plan,
    danaus_spectrum **spectra)
{
    size_t size = danaus_dtype_size(c->k.dtype);
    size_t filters = (size_t)c->desc.filters * size;
    for (int64_t o = 0; o < c->desc.order - 1; o++) {
        const char *k =
            (const char *)c->k.data + (size_t)(o * c->desc.filter_length) * filters;
        const char *skip =
            c->skip.data ? (const char *)c->skip.data + (size_t)o * filters : NULL;
        assert_ok(danaus_spectrum_create(plan, device, k, NULL, skip, &spectra[o]));
    }
}

static danaus_status workspace_bytes(
    const operator_case *c, const danaus_hyena_plan *plan, size_t *forward,
    size_t *gradient)
{
    if (!c->offsets)
        return danaus_hyena_workspace_bytes(plan, c->batch, forward, gradient);
    return danaus_hyena_workspace_bytes_packed(
        plan, c->offsets[c->batch], forward, gradient);
}

static danaus_status execute(
    danaus_device *device, const operator_case *c, const danaus_hyena_plan *plan,
    const danaus_hyena_operands *o, void *memory, void *y)
{
    if (!c->offsets)
        return danaus_hyena_execute(plan, device, c->batch, o, memory, y);
    return danaus_hyena_execute_packed(
        plan, device, c->batch, c->offsets, o, memory, y);
}

static danaus_status differentiate(
    danaus_device *device, const operator_case *c, const danaus_hyena_plan *plan,
    const danaus_hyena_operands *o, const void *dy, void *memory,
    const danaus_hyena_gradients *g)
{
    if (!c->offsets)
        return danaus_hyena_gradient(plan, device, c->batch, o, dy, memory, g);
    return danaus_hyena_gradient_packed(
        plan, device, c->batch, c->offsets, o, dy, memory, g);
}

static void run_calls(
    danaus_device *device, const operator_case *c, const danaus_hyena_plan *plan,
    const danaus_hyena_operands *operands, const void *dy, void *const *to)
{
    size_t forward, gradient;
    void *memory = NULL;
    danaus_hyena_gradients g = { to[OPERATOR_DU],    to[OPERATOR_DTAPS],
                                 to[OPERATOR_DBIAS], to[OPERATOR_DK],
                                 to[OPERATOR_DSKIP], { NULL } };
    assert_ok(workspace_bytes(c, plan, &forward, &gradient));
    if (forward)
        assert_ok(danaus_alloc(device, forward, &memory));
    assert_ok(execute(device, c, plan, operands, memory, to[OPERATOR_Y]));
    assert_ok(danaus_device_sync(device));
    danaus_free(device, memory);
    assert_ok(danaus_alloc(device, gradient, &memory));
    assert_ok(differentiate(device, c, plan, operands, dy, memory, &g));
    assert_ok(danaus_device_sync(device));
    danaus_free(device, memory);
}

operator_outcome operator_compute(danaus_device *device, const operator_case *c)
{
    danaus_hyena_plan *plan = NULL;
    danaus_spectrum *spectra[DANAUS_HYENA_MOST_ORDER] = { NULL };
    const array *in[] = { &c->u, &c->taps, &c->bias, &c->dy };
    void *on[4], *to[OPERATOR_RESULTS];
    operator_outcome o = make_outcome(c);
    assert_ok(danaus_hyena_plan_create(device, &c->desc, &plan));
    make_spectra(device, c, danaus_hyena_plan_conv(plan), spectra);
    for (int i = 0; i < 4; i++)
        on[i] =
            i == 1 || i == 2 ? bias_to_device(device, in[i]) : to_device(device, in[i]);
    for (int i = 0; i < OPERATOR_RESULTS; i++)
        to[i] = to_device(device, &o.of[i]);
    const danaus_hyena_operands operands = {
        on[0], on[1], on[2], (const danaus_spectrum *const *)spectra, { NULL }
    };
    run_calls(device, c, plan, &operands, on[3], to);
    for (int i = 0; i < 4; i++)
        if (i == 1 || i == 2)
            bias_from_device(device, in[i], on[i]);
        else
            from_device(device, in[i], on[i]);
    for (int i = 0; i < OPERATOR_RESULTS; i++) {
        from_device(device, &o.of[i], to[i]);
        if (o.of[i].data)
            array_expect_guards(&o.of[i]);
    }
    for (int64_t i = 0; i < c->desc.order - 1; i++)
        danaus_spectrum_destroy(spectra[i]);
    danaus_hyena_plan_destroy(plan);
    return o;
}
