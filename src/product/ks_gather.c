/* Packs numbers that are in the memory of a device other than the host. Every packed form has a
   map that says where its numbers come from, and the device follows it. Merged factors are
   multiplied out before, in f64 or c128 as on the host, or in what the device has. */
// SPDX-License-Identifier: Apache-2.0
#include "product/ks_plan.h"
#include "product/patterns.h"

#include "base/dtype.h"
#include "base/status.h"
#include "math/pattern.h"

static int is_merged(const packed_form *f)
{
    return f->to - f->from > 1 && !f->step->p.inner.a;
}

static danaus_dtype wide_type(const danaus_ks_weights *w)
{
    return w->backend->pack->wide(w->device, w->plan->desc.dtype);
}

/* Allocates the products of factors, and the products that they are computed from. */
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
    TRY(pack->prepare(w->device, w->plan->desc.dtype, w->products[0] != NULL));
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

/* So many jobs are given to the device at once, at least those of one object. */
#define MOST_TOGETHER (4 * DN_MOST_FORMS)

/* Jobs of plans of one type that wait. */
typedef struct job_list {
    danaus_dtype type;
    int count;
    pack_job job[MOST_TOGETHER];
} job_list;

static danaus_status pack_jobs(danaus_device *device, job_list *jobs)
{
    int count = jobs->count;
    jobs->count = 0;
    return count ? device->backend->pack->pack(device, jobs->type, jobs->job, count)
                 : DANAUS_OK;
}

/* Packs a merged form at once: there is room for one product only. */
static danaus_status pack_merged(
    const danaus_ks_weights *w, danaus_device *device, const chain_numbers *n,
    const packed_form *f, pack_job job)
{
    job.from_type = wide_type(w);
    TRY(multiply_out(w, device, n, f, &job.w[0]));
    return device->backend->pack->pack(device, w->plan->desc.dtype, &job, 1);
}

static danaus_status add_form(
    const danaus_ks_weights *w, danaus_device *device, const chain_numbers *n, int form,
    job_list *jobs)
{
    const packed_form *f = &w->plan->form[form];
    int two = f->step->p.inner.a != 0;
    pack_job job = { .map = w->map[form],
                     .from_type = n->dtype,
                     .w = { n->w[two ? f->from + f->adjoint : f->from],
                            two ? n->w[f->from + !f->adjoint] : NULL },
                     .scale = dn_scale_of(w->plan, f),
                     .to = w->memory + f->at };
    if (!job.w[0] && !job.w[1])
        return DANAUS_OK;
    if (is_merged(f))
        return pack_merged(w, device, n, f, job);
    jobs->job[jobs->count++] = job;
    return DANAUS_OK;
}

static void add_bias(
    const danaus_ks_weights *w, const chain_numbers *n, danaus_dtype type, size_t at,
    job_list *jobs)
{
    jobs->job[jobs->count++] = (pack_job){ .from_type = n->dtype,
                                           .to_type = type,
                                           .count = dn_pattern_rows(n->patterns[0]),
                                           .w = { n->bias },
                                           .scale = 1,
                                           .to = w->memory + at };
}

/* The jobs of one object. */
static danaus_status add_weights(
    const danaus_ks_weights *w, danaus_device *device, const chain_numbers *n,
    job_list *jobs)
{
    const danaus_ks_plan *plan = w->plan;
    danaus_dtype type = plan->desc.dtype;
    if (jobs->type != type || jobs->count + plan->forms + 2 > MOST_TOGETHER)
        TRY(pack_jobs(device, jobs));
    jobs->type = type;
    for (int i = 0; i < plan->forms; i++)
        TRY(add_form(w, device, n, i, jobs));
    if (n->bias)
        add_bias(w, n, dn_sum_type(type), plan->bias_at, jobs);
    if (n->bias && dn_rounds_bias(plan))
        add_bias(w, n, type, plan->rounded_bias_at, jobs);
    return DANAUS_OK;
}

danaus_status dn_gather_weights(
    danaus_device *device, int count, const danaus_ks_update *updates)
{
    job_list jobs;
    jobs.count = 0;
    jobs.type = count ? updates->weights->plan->desc.dtype : DANAUS_F32;
    for (int i = 0; i < count; i++) {
        chain_numbers n = dn_update_numbers(&updates[i]);
        dn_bind_update(&updates[i]);
        TRY(add_weights(updates[i].weights, device, &n, &jobs));
    }
    return pack_jobs(device, &jobs);
}
