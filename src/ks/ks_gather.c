/* Packing numbers that lie in the memory of a device that is not the host: every form has a
   map of where its numbers come from, which the device follows. Merged factors are
   multiplied out before, in f64 or c128, as the host does it. */
// SPDX-License-Identifier: Apache-2.0
#include "ks/ks_plan.h"
#include "ks/patterns.h"

#include "base/dtype.h"
#include "base/status.h"
#include "math/pattern.h"

static int is_merged(const packed_form *f)
{
    return f->to - f->from > 1 && !f->step->p.inner.a;
}

static danaus_dtype wide_type(const danaus_ks_weights *w)
{
    return dn_is_complex(w->plan->desc.dtype) ? DANAUS_C128 : DANAUS_F64;
}

/* Room for the products of factors from..., and for those that they are made of. */
static danaus_status allocate_products(danaus_ks_weights *w)
{
    int64_t most = 0;
    for (int i = 0; i < w->plan->forms; i++) {
        const packed_form *f = &w->plan->form[i];
        for (int to = f->from + 2; is_merged(f) && to <= f->to; to++) {
            int64_t size = dn_pattern_weights(
                dn_patterns_product(w->plan->patterns + f->from, to - f->from));
            most = size > most ? size : most;
        }
    }
    for (int i = 0; most && i < 2; i++)
        if (!w->products[i])
            TRY(w->backend->alloc(
                w->device, (size_t)most * danaus_dtype_size(wide_type(w)),
                &w->products[i]));
    return DANAUS_OK;
}

danaus_status dn_ready_weights(danaus_ks_weights *w)
{
    const pack_backend *pack = w->backend->pack;
    if (w->ready || !pack)
        return DANAUS_OK;
    TRY(allocate_products(w));
    TRY(pack->prepare(
        w->device, dn_sum_type(w->plan->desc.dtype), w->products[0] != NULL));
    if (dn_rounds_bias(w->plan))
        TRY(pack->prepare(w->device, w->plan->desc.dtype, 0));
    for (int i = 0; i < w->plan->forms; i++) {
        const packed_form *f = &w->plan->form[i];
        if (!w->map[i])
            TRY(pack->open(w->device, f->step, f->adjoint, &w->map[i]));
    }
    w->ready = 1;
    return DANAUS_OK;
}

void dn_release_weights(danaus_ks_weights *w)
{
    for (int i = 0; i < w->plan->forms; i++)
        if (w->map[i])
            w->backend->pack->close(w->device, w->map[i]);
    for (int i = 0; i < 2; i++)
        if (w->products[i])
            w->backend->free(w->device, w->products[i]);
}

/* *product: where factors [from, to) are, multiplied out. */
static danaus_status multiply_out(
    const danaus_ks_weights *w, danaus_device *device, const chain_numbers *n,
    const packed_form *f, const void **product)
{
    ks_merge m = { .left = n->patterns[f->from],
                   .left_type = n->dtype,
                   .right_type = n->dtype,
                   .w_left = n->w[f->from] };
    for (int i = f->from + 1; i < f->to; i++) {
        m.right = n->patterns[i];
        m.w_right = n->w[i];
        m.product = dn_pattern_product(m.left, m.right);
        m.to = w->products[(i - f->from) % 2];
        TRY(device->backend->pack->merge(device, &m));
        m.left = m.product;
        m.left_type = wide_type(w);
        m.w_left = m.to;
    }
    *product = m.w_left;
    return DANAUS_OK;
}

static danaus_status gather_form(
    const danaus_ks_weights *w, danaus_device *device, const chain_numbers *n, int form)
{
    const pack_backend *pack = device->backend->pack;
    const packed_form *f = &w->plan->form[form];
    const pack_map *map = w->map[form];
    void *packed = w->memory + f->at;
    if (f->step->p.inner.a) {
        const void *two[2] = { n->w[f->from + f->adjoint],
                               n->w[f->from + !f->adjoint] };
        if (!two[0] && !two[1])
            return DANAUS_OK;
        return pack->gather(device, map, n->dtype, two, packed);
    }
    const void *one[2] = { n->w[f->from], NULL };
    if (!one[0])
        return DANAUS_OK;
    if (is_merged(f))
        TRY(multiply_out(w, device, n, f, &one[0]));
    return pack->gather(
        device, map, is_merged(f) ? wide_type(w) : n->dtype, one, packed);
}

danaus_status dn_gather_weights(
    const danaus_ks_weights *w, danaus_device *device, const chain_numbers *n)
{
    const danaus_ks_plan *plan = w->plan;
    const pack_backend *pack = device->backend->pack;
    danaus_dtype type = plan->desc.dtype;
    int64_t rows = dn_pattern_rows(n->patterns[0]);
    for (int i = 0; i < plan->forms; i++)
        TRY(gather_form(w, device, n, i));
    if (n->bias)
        TRY(pack->convert(
            device, n->dtype, n->bias, dn_sum_type(type), w->memory + plan->bias_at,
            rows));
    if (n->bias && dn_rounds_bias(plan))
        TRY(pack->convert(
            device, n->dtype, n->bias, type, w->memory + plan->rounded_bias_at, rows));
    return DANAUS_OK;
}
