/* Filters of convolutions on GPUs: groups of filters are laid into windows and transformed to
   spectra. Filters of the host are first copied to the device. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/run/conv/engine.h"

#include "base/dtype.h"
#include "base/status.h"

/* Filters as windows, and their points, so many at once; the filters of the host. */
typedef struct filter_scratch {
    int64_t group;
    size_t windows, points, spectra, k, skip;
} filter_scratch;

static filter_scratch lay_filters(const gpu_conv_engine *e)
{
    int64_t size = dn_size_of(e->shape.sums), filters = e->p.filters;
    filter_scratch s = { .group =
                             dn_gpu_conv_group(e, dn_gpu_conv_window(e), filters) };
    s.windows = dn_gpu_aligned(s.group * 2 * e->shape.n * size);
    s.points = e->shape.levels > 1 ? s.windows : 0;
    s.spectra = e->mma->root ? s.windows : 0;
    s.k = dn_gpu_aligned(filters * e->frame.taps * size);
    s.skip = dn_gpu_aligned(filters * size);
    return s;
}

size_t dn_gpu_conv_filter_bytes(const gpu_conv_engine *e)
{
    filter_scratch s = lay_filters(e);
    return s.windows + s.points + s.spectra + 2 * s.k + s.skip;
}

static const void *put(
    gpu_device *d, const void *from, size_t bytes, char *to, danaus_status *status)
{
    const backend *b = d->base.backend;
    if (from && !*status)
        *status = b->copy(&d->base, to, from, bytes);
    return from ? to : NULL;
}

/* Filters of the host, of the type of sums, on the device. */
static danaus_status bring_filters(
    gpu_device *d, const gpu_conv_engine *e, const filter_scratch *s, conv_filters *f)
{
    size_t size = (size_t)dn_size_of(e->shape.sums), filters = (size_t)e->p.filters;
    size_t taps = filters * (size_t)e->frame.taps * size;
    char *at = (char *)d->scratch + s->windows + s->points + s->spectra;
    danaus_status status = DANAUS_OK;
    f->k = put(d, f->k, taps, at, &status);
    f->k_reverse = put(d, f->k_reverse, taps, at + s->k, &status);
    f->skip = put(d, f->skip, filters * size, at + 2 * s->k, &status);
    return status;
}

/* A pointer to filter number `first`. */
static const void *from_filter(const void *k, int64_t first, int64_t taps, int64_t size)
{
    return k ? (const char *)k + first * taps * size : NULL;
}

static danaus_status lay_windows(
    gpu_device *d, const gpu_conv_engine *e, const conv_filters *f, int64_t first,
    int64_t filters)
{
    const conv_frame *r = &e->frame;
    int64_t taps = r->taps, length = r->length, n = e->shape.n;
    int64_t size = dn_size_of(f->dtype), positive = MIN(taps, r->before + 1);
    int64_t negative = r->after;
    const void *k = from_filter(f->k, first, taps, size);
    const void *k_reverse = from_filter(f->k_reverse, first, taps, size);
    const void *skip = from_filter(f->skip, first, 1, size);
    void *windows = d->scratch;
    int type = (int)f->dtype, is_periodic = r->periodic;
    const gpu_argument arguments[] = { ARG(k),        ARG(k_reverse), ARG(skip),
                                       ARG(type),     ARG(windows),   ARG(filters),
                                       ARG(n),        ARG(taps),      ARG(length),
                                       ARG(positive), ARG(negative),  ARG(is_periodic),
                                       { 0 } };
    return dn_gpu_conv_run_each(d, e, CONV_LAY, 2 * n * filters, arguments);
}

static danaus_status transform_windows(
    gpu_device *d, const gpu_conv_engine *e, const filter_scratch *s, int64_t filters,
    void *spectrum)
{
    char *points = (char *)d->scratch + s->windows;
    const void *made = e->mma->root ? points + s->points : spectrum;
    gpu_conv_transform t = { .rows = dn_gpu_conv_filter_rows(e),
                             .x = d->scratch,
                             .points = points,
                             .spectrum = (void *)(uintptr_t)made,
                             .items = filters,
                             .share = 1 };
    if (e->shape.levels > 1)
        TRY(dn_gpu_conv_transform(d, e, CONV_FILTER_SPLIT, &t));
    TRY(dn_gpu_conv_transform(d, e, CONV_FILTER, &t));
    TRY(dn_gpu_conv_mask(d, e, filters, t.spectrum));
    if (!e->mma->root)
        return DANAUS_OK;
    int is_first = 1;
    const gpu_argument arguments[] = { ARG(made), ARG(spectrum), ARG(is_first), { 0 } };
    gpu_launch launch = dn_gpu_line(filters * e->mma->rows, 256);
    TRY(dn_gpu_launch(d, e->function[CONV_SPECTRUM], &launch, arguments));
    if (e->mma->rows == 1)
        return DANAUS_OK;
    is_first = 0;
    return dn_gpu_launch(d, e->function[CONV_SPECTRUM], &launch, arguments);
}

danaus_status dn_gpu_conv_transform_filters(
    gpu_device *d, const gpu_conv_engine *e, const conv_filters *filters,
    char *spectrum)
{
    conv_filters f = *filters;
    filter_scratch s = lay_filters(e);
    if (!f.on_device)
        TRY(bring_filters(d, e, &s, &f));
    for (int64_t first = 0; first < e->p.filters; first += s.group) {
        int64_t count = MIN(s.group, e->p.filters - first);
        TRY(lay_windows(d, e, &f, first, count));
        TRY(transform_windows(
            d, e, &s, count, spectrum + (size_t)first * e->base.filter_bytes));
    }
    return DANAUS_OK;
}
