/* Filters of convolutions on GPUs to their spectra, and spectra of gradients to taps: in one
   launch, or in two by way of points. Filters of the host are first copied to the device. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/run/conv/engine.h"

#include "base/dtype.h"
#include "base/status.h"

/* Points of filters, so many at once, the sums of their squares, and what is known of tiles; the
   filters of the host. */
typedef struct filter_scratch {
    int64_t group;
    size_t points, squares, tiles, k, skip;
} filter_scratch;

static filter_scratch lay_filters(const gpu_conv_engine *e)
{
    int64_t size = dn_size_of(e->shape.sums), filters = e->p.filters;
    int64_t tap = e->frame.parts * size;
    int has_points = e->shape.levels > 1;
    filter_scratch s = { .group = filters };
    if (has_points) {
        const gpu_conv_level *l = e->shape.level;
        s.group = dn_gpu_conv_group(e, dn_gpu_conv_window(e), filters);
        s.points = dn_gpu_aligned(s.group * 2 * e->shape.n * size);
        s.squares = dn_gpu_aligned(s.group * l[0].tiles * size);
        s.tiles = dn_gpu_aligned(s.group * l[1].tiles * 2 * size);
    }
    s.k = dn_gpu_aligned(filters * e->frame.taps * tap);
    s.skip = dn_gpu_aligned(filters * tap);
    return s;
}

size_t dn_gpu_conv_filter_bytes(const gpu_conv_engine *e)
{
    filter_scratch s = lay_filters(e);
    return s.points + s.squares + s.tiles + 2 * s.k + s.skip;
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
    size_t size = danaus_dtype_size(f->dtype), filters = (size_t)e->p.filters;
    size_t taps = filters * (size_t)e->frame.taps * size;
    char *at = (char *)d->scratch + s->points + s->squares + s->tiles;
    danaus_status status = DANAUS_OK;
    f->k = put(d, f->k, taps, at, &status);
    f->k_reverse = put(d, f->k_reverse, taps, at + s->k, &status);
    f->skip = put(d, f->skip, filters * size, at + 2 * s->k, &status);
    return status;
}

gpu_conv_taps dn_gpu_conv_taps(const conv_frame *f)
{
    gpu_conv_taps t = { f->taps, f->length, MIN(f->taps, f->before + 1), f->after, 0 };
    const conv_plane *l = &f->plane;
    if (l->height) {
        t.positive = f->before + 1;
        t.is_periodic =
            f->periodic && (l->taps_height > l->height || l->taps_width > l->width);
    } else if (f->periodic) {
        t.positive = MIN(f->taps, f->length);
        t.is_periodic = f->taps > f->length;
    }
    return t;
}

/* One launch over `filters` filters from `first` on, whose points are in scratch. */
static danaus_status transform(
    gpu_device *d, const gpu_conv_engine *e, gpu_conv_function which,
    const conv_filters *f, const filter_scratch *s, int64_t first, int64_t filters,
    void *spectrum)
{
    int level = which == CONV_FILTER && e->shape.levels > 1;
    int type = (int)dn_part_type(f->dtype);
    gpu_conv_taps t = dn_gpu_conv_taps(&e->frame);
    const void *constants = e->constants;
    void *points = d->scratch, *squares = (char *)points + s->points;
    void *tiles = (char *)squares + s->squares;
    int64_t bytes = (int64_t)e->base.filter_bytes, parts = e->shape.level[0].tiles;
    gpu_launch launch =
        dn_gpu_conv_launch(&e->shape, level, filters * e->shape.level[level].tiles);
    const gpu_argument arguments[] = {
        ARG(f->k),       ARG(f->k_reverse),  ARG(f->skip),   ARG(type),
        ARG(points),     ARG(spectrum),      ARG(bytes),     ARG(squares),
        ARG(parts),      ARG(tiles),         ARG(constants), ARG(first),
        ARG(filters),    ARG(t.count),       ARG(t.length),  ARG(t.positive),
        ARG(t.negative), ARG(t.is_periodic), { 0 }
    };
    return dn_gpu_launch(d, e->function[which], &launch, arguments);
}

/* The tiles of spectra to one scale. */
static danaus_status level(
    gpu_device *d, const gpu_conv_engine *e, const filter_scratch *s, int64_t filters,
    void *spectrum)
{
    void *tiles = (char *)d->scratch + s->points + s->squares;
    gpu_launch launch = dn_gpu_line(filters * e->shape.level[1].tiles, 256);
    const gpu_argument arguments[] = { ARG(spectrum), ARG(tiles), { 0 } };
    return dn_gpu_launch(d, e->function[CONV_LEVEL], &launch, arguments);
}

static danaus_status transform_group(
    gpu_device *d, const gpu_conv_engine *e, const conv_filters *f,
    const filter_scratch *s, int64_t first, int64_t filters, void *spectrum)
{
    int has_points = e->shape.levels > 1;
    if (has_points)
        TRY(transform(d, e, CONV_FILTER_SPLIT, f, s, first, filters, spectrum));
    TRY(transform(d, e, CONV_FILTER, f, s, first, filters, spectrum));
    return has_points && e->mma->root ? level(d, e, s, filters, spectrum) : DANAUS_OK;
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
        TRY(transform_group(
            d, e, &f, &s, first, count,
            spectrum + (size_t)first * e->base.filter_bytes));
    }
    return DANAUS_OK;
}

/* ---- and back ---- */

/* One launch on the way from spectra, or their points, to the taps of gradients. */
static danaus_status take_by(
    gpu_device *d, const gpu_conv_engine *e, gpu_conv_function which,
    const conv_filter_sums *f, int64_t first, int64_t filters, const void *spectra,
    void *points)
{
    const conv_frame *r = &e->frame;
    int64_t size = r->parts * dn_size_of(e->shape.sums), ahead = first * r->taps * size;
    int level = which == CONV_BACK && e->shape.levels > 1;
    int is_folded = r->fold && !e->shape.circle, is_more = f->is_more;
    gpu_conv_taps t = dn_gpu_conv_taps(r);
    const void *constants = e->constants;
    void *dk = f->dk ? (char *)f->dk + ahead : NULL;
    void *dk_reverse = f->dk_reverse ? (char *)f->dk_reverse + ahead : NULL;
    void *dskip = f->dskip ? (char *)f->dskip + first * size : NULL;
    gpu_launch launch =
        dn_gpu_conv_launch(&e->shape, level, filters * e->shape.level[level].tiles);
    const gpu_argument arguments[] = {
        ARG(spectra),    ARG(points),     ARG(dk),
        ARG(dk_reverse), ARG(dskip),      ARG(constants),
        ARG(filters),    ARG(t.count),    ARG(t.length),
        ARG(t.positive), ARG(t.negative), ARG(t.is_periodic),
        ARG(is_folded),  ARG(is_more),    { 0 }
    };
    return dn_gpu_launch(d, e->function[which], &launch, arguments);
}

danaus_status dn_gpu_conv_take_filters(
    gpu_device *d, const gpu_conv_engine *e, const conv_filter_sums *f, int64_t first,
    int64_t filters, const void *spectra, void *points)
{
    TRY(take_by(d, e, CONV_BACK, f, first, filters, spectra, points));
    if (e->shape.levels == 1)
        return DANAUS_OK;
    return take_by(d, e, CONV_FILTER_JOIN, f, first, filters, spectra, points);
}
