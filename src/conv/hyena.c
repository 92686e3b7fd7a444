/* The Hyena operator: plans, workspaces and calls. z, v_0, ..., v_{order-1} and p_o =
   x_{order-1-o} v_o are as in danaus/conv.h. dc_o is the gradient at the output of convolution
   o: dc_{order-2} = x_0 dy, and dc_o = dv_{o+1} otherwise. Then


       dx_0 = dy c_{order-2},    dv_o = x_{order-1-o} dp_o,    dx_{order-1-o} = v_o dp_o,

   where c_o = v_{o+1}, and dp_o and the gradients of filters are those of a convolution
   (docs/conv.md (9)). Calls of src/conv compute all of these, with z and dz as arrays of
   groups. The gradients of u and of the short filters are those of a short convolution.
   Packed sequences are one member of a batch, as long as all columns. */
// SPDX-License-Identifier: Apache-2.0
#include "conv/conv_plan.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/byte_range.h"
#include "base/status.h"

#include <inttypes.h>

struct danaus_hyena_plan {
    danaus_hyena_desc desc; /* every field is set */
    danaus_conv_plan *conv;
    danaus_short_desc taps; /* of all rows of a member of the batch */
};

/* ---- plans ---- */

static danaus_status check_desc(const danaus_hyena_desc *d)
{
    int64_t rows;
    if (d->order < 2 || d->order > DANAUS_HYENA_MOST_ORDER)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "an order of %" PRId64 "; 2 to %d are possible",
            d->order, DANAUS_HYENA_MOST_ORDER);
    if (d->taps < 1 || d->taps > DANAUS_SHORT_MOST_TAPS)
        return dn_fail(
            DANAUS_ERR_SHAPE, "%" PRId64 " taps; 1 to %d are few", d->taps,
            DANAUS_SHORT_MOST_TAPS);
    if (d->channels > 0 && dn_mul_overflows(d->channels, 8192 * (d->order + 1), &rows))
        return dn_fail(
            DANAUS_ERR_SHAPE, "%" PRId64 " channels have no size", d->channels);
    if (dn_dtype(d->dtype) && dn_is_complex(d->dtype))
        return dn_fail(DANAUS_ERR_UNSUPPORTED, "the Hyena operator takes real numbers");
    return dn_check_reserved(d->reserved, sizeof d->reserved);
}

static danaus_status make_conv(
    danaus_device *device, const danaus_hyena_desc *d, danaus_conv_plan **conv)
{
    const danaus_conv_desc desc = { .channels = d->channels,
                                    .length = d->length,
                                    .filter_length = d->filter_length,
                                    .filters = d->filters,
                                    .kind = DANAUS_CAUSAL,
                                    .dtype = d->dtype,
                                    .effort = d->effort,
                                    .batch = d->batch,
                                    .packed = d->packed,
                                    .accuracy = d->accuracy };
    int64_t groups = d->packed ? 1 : d->order + 1, short_taps = d->packed ? 0 : d->taps;
    return dn_conv_plan_make(device, &desc, groups, short_taps, conv);
}

danaus_status danaus_hyena_plan_create(
    danaus_device *device, const danaus_hyena_desc *desc, danaus_hyena_plan **plan)
{
    if (!device || !desc || !plan)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "a device, a description and a place for the plan are needed");
    danaus_hyena_desc d = *desc;
    d.order = d.order ? d.order : 2;
    TRY(check_desc(&d));
    TRY(dn_conv_need(device, short_conv, "convolutions of few taps"));
    danaus_hyena_plan *made = dn_calloc(1, sizeof *made);
    if (!made)
        return dn_fail_memory(sizeof *made, "a plan");
    danaus_status status = make_conv(device, &d, &made->conv);
    if (status != DANAUS_OK) {
        danaus_hyena_plan_destroy(made);
        return status;
    }
    d.filter_length = made->conv->p.filter_length;
    d.filters = made->conv->p.filters;
    d.dtype = made->conv->p.dtype;
    made->desc = d;
    made->taps = (danaus_short_desc){ .channels = (d.order + 1) * d.channels,
                                      .length = d.length,
                                      .taps = d.taps,
                                      .layout = DANAUS_CHANNELS_FIRST,
                                      .dtype = d.dtype };
    *plan = made;
    return DANAUS_OK;
}

void danaus_hyena_plan_destroy(danaus_hyena_plan *plan)
{
    if (plan)
        danaus_conv_plan_destroy(plan->conv);
    dn_free(plan);
}

const danaus_conv_plan *danaus_hyena_plan_conv(const danaus_hyena_plan *plan)
{
    return plan ? plan->conv : NULL;
}

/* True if products compute z from u while they read u. */
static int makes_z(const danaus_hyena_plan *plan)
{
    const conv_backend *b = plan->conv->conv;
    return b->takes_short && b->takes_short(dn_conv_longest(plan->conv)->engine);
}

/* ---- workspaces ---- */

/* Bytes of arrays like y and u, and of the arrays of filters and biases. */
typedef struct sizes {
    size_t y, u, taps, bias, k, skip;
} sizes;

/* Sizes for rows that have `columns` numbers in each channel. */
static danaus_status find_sizes(
    const danaus_hyena_plan *plan, int64_t columns, sizes *s)
{
    const danaus_hyena_desc *d = &plan->desc;
    int64_t numbers, all;
    if (dn_mul_overflows(d->channels, columns, &numbers) ||
        dn_mul_overflows(numbers, 1024 * (d->order + 1), &all))
        return dn_fail(
            DANAUS_ERR_SHAPE, "%" PRId64 " numbers of a channel are too many", columns);
    size_t sums = (size_t)dn_size_of(dn_sum_type(d->dtype));
    s->y = (size_t)numbers * danaus_dtype_size(d->dtype);
    s->u = s->y * (size_t)(d->order + 1);
    s->bias = (size_t)plan->taps.channels * sums;
    s->taps = s->bias * (size_t)d->taps;
    s->skip = (size_t)((d->order - 1) * d->filters) * sums;
    s->k = s->skip * (size_t)d->filter_length;
    return DANAUS_OK;
}

/* The places of z, dz and arrays like y in a workspace: v_1, ..., v_{order-2}, and one for their
   gradients, which take turns with dv. Without z in the workspace, z is computed from u where it
   is read. */
typedef struct workspace {
    char *z, *dz, *v[DANAUS_HYENA_MOST_ORDER], *dv;
    size_t bytes;
} workspace;

static char *cut(workspace *w, char *memory, size_t bytes)
{
    char *at = memory ? memory + w->bytes : NULL;
    w->bytes += dn_aligned((int64_t)bytes);
    return at;
}

static workspace lay(
    const danaus_hyena_plan *plan, const sizes *s, int backward, char *memory)
{
    workspace w = { 0 };
    w.z = backward || !makes_z(plan) ? cut(&w, memory, s->u) : NULL;
    w.dz = backward ? cut(&w, memory, s->u) : NULL;
    for (int64_t o = 1; o < plan->desc.order - 1; o++)
        w.v[o] = cut(&w, memory, s->y);
    w.dv = backward && plan->desc.order > 2 ? cut(&w, memory, s->y) : NULL;
    return w;
}

static danaus_status workspace_bytes(
    const danaus_hyena_plan *plan, int64_t columns, size_t *forward, size_t *gradient)
{
    sizes s;
    TRY(find_sizes(plan, columns, &s));
    if (forward)
        *forward = lay(plan, &s, 0, NULL).bytes;
    if (gradient)
        *gradient = lay(plan, &s, 1, NULL).bytes;
    return DANAUS_OK;
}

danaus_status danaus_hyena_workspace_bytes(
    const danaus_hyena_plan *plan, int64_t batch, size_t *forward, size_t *gradient)
{
    int64_t columns;
    if (!plan || batch < 1)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a plan and a batch of at least 1 are needed");
    if (dn_mul_overflows(plan->desc.length, batch, &columns))
        return dn_fail(DANAUS_ERR_SHAPE, "a batch of %" PRId64 " is too large", batch);
    return workspace_bytes(plan, columns, forward, gradient);
}

danaus_status danaus_hyena_workspace_bytes_packed(
    const danaus_hyena_plan *plan, int64_t columns, size_t *forward, size_t *gradient)
{
    if (!plan || columns < 1)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a plan and at least a column are needed");
    return workspace_bytes(plan, columns, forward, gradient);
}

/* ---- calls ---- */

/* A call at work. */
typedef struct operation {
    const danaus_hyena_plan *plan;
    danaus_device *device;
    conv_extent extent;     /* rows, or sequences */
    int64_t batch;          /* of arrays: packed ones have one member, */
    danaus_short_desc taps; /* whose length is that of all columns */
    const danaus_hyena_operands *o;
    sizes size;
    workspace w;
    const void *z; /* in the workspace, or u */
} operation;

/* Group `group` of an array like u. */
static char *group_of(const operation *a, const void *data, int64_t group)
{
    const danaus_hyena_desc *d = &a->plan->desc;
    size_t row = (size_t)a->taps.length * danaus_dtype_size(d->dtype);
    return (char *)(uintptr_t)data + (size_t)(group * d->channels) * row;
}

static danaus_status run(const operation *a, int64_t which, const conv_job *job)
{
    const danaus_spectrum *spectrum = a->o->spectra[which];
    return dn_conv_run(a->plan->conv, a->device, spectrum, &a->extent, job);
}

/* p_o: a gate, which is a group of z, times v_o, which is a group of z or an array. */
static conv_input input_of(const operation *a, int64_t which)
{
    int64_t order = a->plan->desc.order;
    const char *gate = group_of(a, a->z, order - 1 - which);
    const int both = CONV_GROUPED_DATA | CONV_GROUPED_FACTOR;
    if (which == 0)
        return (conv_input){ group_of(a, a->z, order), gate, both, 0 };
    return (conv_input){ a->w.v[which], gate, CONV_GROUPED_FACTOR, 0 };
}

static danaus_status make_z(const operation *a)
{
    const danaus_hyena_operands *o = a->o;
    const short_sequences packed = { a->extent.batch, a->extent.offsets };
    short_operands z = { a->taps, a->batch, o->taps, o->bias, o->u, a->w.z, packed };
    return a->device->backend->conv->short_conv(a->device, &z);
}

/* v_{o+1}; y of the last one if it is asked for. */
static danaus_status convolve(const operation *a, int64_t which, void *y)
{
    int order = (int)a->plan->desc.order, is_last = which == order - 2;
    conv_sink to = { a->w.v[which + 1], NULL, 0, 0 };
    if (is_last)
        to = (conv_sink){ y, group_of(a, a->z, 0), CONV_GROUPED_FACTOR, 0 };
    const int gate = order - 1 - (int)which;
    const conv_short taps = { a->o->taps,
                              a->o->bias,
                              { which ? -1 : order, gate, is_last ? 0 : -1 } };
    const conv_job job = { .products = 1,
                           .product = { { .x = input_of(a, which),
                                          .sinks = 1,
                                          .sink = { to },
                                          .taps = a->z == a->w.z ? NULL : &taps } } };
    return run(a, which, &job);
}

static danaus_status make_v(const operation *a)
{
    if (a->z == a->w.z)
        TRY(make_z(a));
    for (int64_t o = 0; o < a->plan->desc.order - 2; o++)
        TRY(convolve(a, o, NULL));
    return DANAUS_OK;
}

/* ---- gradients ---- */

/* dv_o: that of z is a group of dz; others take turns, as one is read while the next one is
   made. */
static conv_sink gradient_of_v(const operation *a, int64_t which)
{
    void *dz = group_of(a, a->w.dz, a->plan->desc.order);
    conv_sink in_dz = { dz, NULL, CONV_GROUPED_DATA, 0 };
    return which % 2 ? (conv_sink){ a->w.dv, NULL, 0, 0 } : in_dz;
}

/* dc_o. */
static conv_input gradient_of_c(const operation *a, int64_t which, const void *dy)
{
    conv_sink dv = gradient_of_v(a, which + 1);
    if (which == a->plan->desc.order - 2)
        return (conv_input){ dy, group_of(a, a->z, 0), CONV_GROUPED_FACTOR, 0 };
    return (conv_input){ dv.data, NULL, dv.grouped, 0 };
}

/* A sink times what a convolution was given. */
static conv_sink times(conv_sink to, const void *factor, int grouped)
{
    to.factor = factor;
    to.grouped |= grouped ? CONV_GROUPED_FACTOR : 0;
    return to;
}

/* Convolution o gives dv_o and dx_{order-1-o}; the last one also gives dx_0. */
static void add_products(
    const operation *a, int64_t which, const void *dy, conv_job *job)
{
    int64_t order = a->plan->desc.order;
    conv_input p = input_of(a, which);
    conv_sink dx = { .data = group_of(a, a->w.dz, order - 1 - which),
                     .grouped = CONV_GROUPED_DATA };
    conv_sink dgate = { .data = group_of(a, a->w.dz, 0),
                        .factor = dy,
                        .grouped = CONV_GROUPED_DATA };
    if (which == order - 2)
        job->product[job->products++] =
            (conv_product){ .x = p, .sinks = 1, .sink = { dgate } };
    job->product[job->products++] =
        (conv_product){ .adjoint = 1,
                        .x = gradient_of_c(a, which, dy),
                        .sinks = 2,
                        .sink = { times(gradient_of_v(a, which), p.factor, 1),
                                  times(dx, p.data, p.grouped & CONV_GROUPED_DATA) } };
}

/* Part number `which` of gradients that have `bytes` bytes together. */
static void *part_of(const operation *a, void *data, size_t bytes, int64_t which)
{
    size_t each = bytes / (size_t)(a->plan->desc.order - 1);
    return data ? (char *)data + (size_t)which * each : NULL;
}

static danaus_status differentiate(
    const operation *a, int64_t which, const void *dy, const danaus_hyena_gradients *g)
{
    conv_job job = { .sums = g->dk || g->dskip };
    int is_asked = g->du || g->dtaps || g->dbias;
    if (is_asked || which > 0)
        add_products(a, which, dy, &job);
    if (job.sums)
        job.filter = (conv_filter_sums){
            .x = input_of(a, which),
            .dy = gradient_of_c(a, which, dy),
            .dk = part_of(a, g->dk, a->size.k, which),
            .dskip = part_of(a, g->dskip, a->size.skip, which),
        };
    return job.products || job.sums ? run(a, which, &job) : DANAUS_OK;
}

static danaus_status go_back(
    const operation *a, const void *dy, const danaus_hyena_gradients *g)
{
    short_gradient_operands z = { .desc = a->taps,
                                  .batch = a->batch,
                                  .k = a->o->taps,
                                  .u = a->o->u,
                                  .dy = a->w.dz,
                                  .to = { g->du, g->dtaps, g->dbias, { NULL } },
                                  .packed = { a->extent.batch, a->extent.offsets } };
    TRY(make_v(a));
    for (int64_t o = a->plan->desc.order - 2; o >= 0; o--)
        TRY(differentiate(a, o, dy, g));
    if (!g->du && !g->dtaps && !g->dbias)
        return DANAUS_OK;
    return a->device->backend->conv->short_conv_gradient(a->device, &z);
}

/* ---- checks ---- */

static danaus_status check_operands(
    const danaus_hyena_plan *plan, const danaus_device *device,
    const danaus_hyena_operands *o)
{
    if (!plan || !device || !o)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a plan, a device and operands are needed");
    if (!o->u || !o->taps || !o->spectra)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "u, taps of short filters and spectra are needed");
    for (int64_t i = 0; i < plan->desc.order - 1; i++)
        TRY(dn_conv_need_parts(plan->conv, device, o->spectra[i]));
    return dn_check_reserved(o->reserved, sizeof o->reserved);
}

static danaus_status check_workspace(const operation *a, const void *memory)
{
    if (a->w.bytes && (!memory || (uintptr_t)memory % DN_ALIGN))
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "a workspace of %zu bytes at a multiple of %d is needed", a->w.bytes,
            DN_ALIGN);
    return DANAUS_OK;
}

/* No output has a byte in common with an operand, dy or another output. */
static danaus_status check_apart(
    const operation *a, const void *dy, int outputs, const byte_range *out)
{
    byte_range in[] = { { "u", a->o->u, a->size.u },
                        { "taps", a->o->taps, a->size.taps },
                        { "bias", a->o->bias, a->size.bias },
                        { "dy", dy, a->size.y } };
    return dn_check_apart(outputs, out, 4, in);
}

/* What all calls begin with, but for workspaces. */
static danaus_status open(
    const danaus_hyena_plan *plan, danaus_device *device, const conv_extent *extent,
    const danaus_hyena_operands *o, int backward, void *memory, operation *a)
{
    TRY(check_operands(plan, device, o));
    *a = (operation){ .plan = plan, .device = device, .extent = *extent, .o = o };
    TRY(dn_conv_check_extent(plan->conv, device, &a->extent));
    int64_t columns = a->extent.numbers / plan->desc.channels;
    a->batch = extent->offsets ? columns > 0 : extent->batch;
    a->taps = plan->taps;
    a->taps.length = extent->offsets ? columns : plan->desc.length;
    TRY(find_sizes(plan, columns, &a->size));
    if (a->batch == 0)
        return DANAUS_OK;
    a->w = lay(plan, &a->size, backward, memory);
    a->z = a->w.z ? a->w.z : o->u;
    return check_workspace(a, memory);
}

static danaus_status execute(
    const danaus_hyena_plan *plan, danaus_device *device, const conv_extent *extent,
    const danaus_hyena_operands *operands, void *memory, void *y)
{
    operation a;
    TRY(open(plan, device, extent, operands, 0, memory, &a));
    if (a.batch == 0)
        return DANAUS_OK;
    if (!y)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a place for y is needed");
    byte_range out[] = { { "y", y, a.size.y }, { "the workspace", memory, a.w.bytes } };
    TRY(check_apart(&a, NULL, 2, out));
    TRY(make_v(&a));
    return convolve(&a, plan->desc.order - 2, y);
}

static danaus_status find_gradients(
    const danaus_hyena_plan *plan, danaus_device *device, const conv_extent *extent,
    const danaus_hyena_operands *operands, const void *dy, void *memory,
    const danaus_hyena_gradients *g)
{
    operation a;
    TRY(open(plan, device, extent, operands, 1, memory, &a));
    if (!dy || !g || a.batch < 1)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "dy, gradients and a batch of at least 1 are needed");
    TRY(dn_check_reserved(g->reserved, sizeof g->reserved));
    TRY(dn_conv_need(device, short_conv_gradient, "gradients of few taps"));
    byte_range out[] = {
        { "du", g->du, a.size.u },          { "dtaps", g->dtaps, a.size.taps },
        { "dbias", g->dbias, a.size.bias }, { "dk", g->dk, a.size.k },
        { "dskip", g->dskip, a.size.skip }, { "the workspace", memory, a.w.bytes }
    };
    TRY(check_apart(&a, dy, 6, out));
    return go_back(&a, dy, g);
}

danaus_status danaus_hyena_execute(
    const danaus_hyena_plan *plan, danaus_device *device, int64_t batch,
    const danaus_hyena_operands *operands, void *memory, void *y)
{
    conv_extent x = { .batch = batch };
    return execute(plan, device, &x, operands, memory, y);
}

danaus_status danaus_hyena_execute_packed(
    const danaus_hyena_plan *plan, danaus_device *device, int64_t sequences,
    const int64_t *offsets, const danaus_hyena_operands *operands, void *memory,
    void *y)
{
    conv_extent x = { .batch = sequences, .offsets = offsets };
    TRY(dn_conv_need_offsets(offsets));
    return execute(plan, device, &x, operands, memory, y);
}

danaus_status danaus_hyena_gradient(
    const danaus_hyena_plan *plan, danaus_device *device, int64_t batch,
    const danaus_hyena_operands *operands, const void *dy, void *memory,
    const danaus_hyena_gradients *gradients)
{
    conv_extent x = { .batch = batch };
    return find_gradients(plan, device, &x, operands, dy, memory, gradients);
}

danaus_status danaus_hyena_gradient_packed(
    const danaus_hyena_plan *plan, danaus_device *device, int64_t sequences,
    const int64_t *offsets, const danaus_hyena_operands *operands, const void *dy,
    void *memory, const danaus_hyena_gradients *gradients)
{
    conv_extent x = { .batch = sequences, .offsets = offsets };
    TRY(dn_conv_need_offsets(offsets));
    return find_gradients(plan, device, &x, operands, dy, memory, gradients);
}
