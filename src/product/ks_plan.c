/* Plans: from the patterns of a chain to steps, each with its kernel.

   Neighbouring factors may be merged into one: with costs known for every run
   of factors [from, to), the cheapest way to cut the chain into runs is a
   dynamic programme over where the last cut lies. */
// SPDX-License-Identifier: Apache-2.0
#include "product/ks_plan.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "math/pattern.h"
#include "product/chain.h"
#include "product/patterns.h"
#include "product/planner.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Tuned for when the caller names no batch. */
#define LARGE_BATCH 4096
/* What every batch-invariant plan is tuned for, whatever the caller's batch. Of powers of two it
   costs the least over batches of 1 to 16,384 by estimates for a GPU
   (docs/notes/batch-invariant.md). */
#define INVARIANT_BATCH 256
/* A merged factor may have this many times the weights of its parts. */
#define MOST_GROWTH 64.0
/* Runs of factors longer than this are not considered for merging. */
#define MOST_MERGED 16
#define MOST_WHY    512 /* bytes of a sentence */

/* True if merging [from, to) can pay: it must not increase the number of weights. */
static int may_merge(const danaus_ks_plan *plan, int from, int to)
{
    if (to - from == 1)
        return 1;
    if (plan->desc.keep_factors || plan->desc.fresh_weights || plan->desc.gated ||
        to - from > MOST_MERGED)
        return 0;
    danaus_pattern p = dn_patterns_product(plan->patterns + from, to - from);
    double merged = (double)p.a * (double)p.b * (double)p.c * (double)p.d, parts = 0;
    for (int i = from; i < to; i++)
        parts += (double)dn_pattern_weights(plan->patterns[i]);
    return merged <= MOST_GROWTH * parts;
}

/* The batch that the plan is tuned for. */
static int64_t batch_of(const danaus_ks_desc *d)
{
    if (d->batch_invariant)
        return INVARIANT_BATCH;
    return d->batch ? d->batch : LARGE_BATCH;
}

static problem problem_of(const danaus_ks_plan *plan, int from, int to)
{
    danaus_pattern p = dn_patterns_product(plan->patterns + from, to - from);
    int is_last = plan->desc.adjoint ? to == plan->count : from == 0;
    return (problem){
        .pattern = plan->desc.adjoint ? dn_pattern_adjoint(p) : p,
        .dtype = plan->desc.dtype,
        .layout = plan->desc.layout,
        .math = plan->desc.math,
        .batch = batch_of(&plan->desc),
        /* What is not at an end of the chain stays in the cache. */
        .x_cached = plan->desc.adjoint ? from > 0 : to < plan->count,
        .y_cached = plan->desc.adjoint ? to < plan->count : from > 0,
        .activation = is_last ? (int)plan->desc.activation : 0,
        .fresh = plan->desc.fresh_weights != 0,
        .bias = plan->desc.bias && !plan->desc.adjoint && from == 0,
        .residual = is_last && plan->desc.residual,
        .gated = is_last && plan->desc.gated,
        .batch_invariant = plan->desc.batch_invariant != 0,
        .int8 = plan->desc.int8 != 0,
    };
}

/* The problem of factors `from` and `from` + 1 as one step. */
static problem pair_of(const danaus_ks_plan *plan, int from)
{
    problem p = problem_of(plan, from, from + 1),
            q = problem_of(plan, from + 1, from + 2);
    problem *last = plan->desc.adjoint ? &q : &p, *first = plan->desc.adjoint ? &p : &q;
    last->inner = first->pattern;
    last->x_cached = first->x_cached;
    return *last;
}

/* A run of factors as one step. */
typedef struct run_choice {
    problem p;
    const kernel *kernel;
    double seconds; /* of it and of all before */
    int from;
} run_choice;

/* Which of the plan's orders are at the ends of factors [from, to). */
static int orders_at(const danaus_ks_plan *plan, int from, int to)
{
    int adjoint = plan->desc.adjoint;
    int first = adjoint ? from == 0 : to == plan->count;
    int last = adjoint ? to == plan->count : from == 0;
    return plan->orders & ((first ? DN_READS : 0) | (last ? DN_WRITES : 0));
}

/* Seconds of orders before and after p. */
static double picking(const danaus_device *dev, const problem *p, int orders)
{
    danaus_pattern first = p->inner.a ? p->inner : p->pattern;
    double seconds = 0;
    if (orders & DN_READS)
        seconds +=
            dev->backend->picking(dev, p->dtype, dn_pattern_cols(first), p->batch);
    if (orders & DN_WRITES)
        seconds +=
            dev->backend->picking(dev, p->dtype, dn_pattern_rows(p->pattern), p->batch);
    return seconds;
}

/* Takes p for factors [from, to), by itself or with orders at their ends, if that is faster
   than the best so far. */
static danaus_status try_run(
    danaus_ks_plan *plan, danaus_device *dev, run_choice *best, int from, int to,
    problem p)
{
    const kernel *k;
    double seconds;
    int at = orders_at(plan, from, to);
    for (p.orders = 0; p.orders <= at; p.orders++) {
        if (p.orders & ~at)
            continue;
        TRY(dn_choose(dev, &p, plan->desc.effort, &k, &seconds));
        seconds += best[from].seconds + picking(dev, &p, at & ~p.orders);
        if (k && seconds < best[to].seconds)
            best[to] = (run_choice){ p, k, seconds, from };
    }
    return DANAUS_OK;
}

/* The cheapest cut of factors [0, count): best[to] says how [0, to) ends. */
static danaus_status choose_steps(danaus_ks_plan *plan, danaus_device *dev)
{
    run_choice best[DANAUS_MAX_FACTORS + 1] = { 0 };
    for (int to = 1; to <= plan->count; to++) {
        best[to].seconds = INFINITY;
        for (int from = to - 1; from >= 0; from--) {
            problem p;
            if (may_merge(plan, from, to)) {
                p = problem_of(plan, from, to);
                TRY(try_run(plan, dev, best, from, to, p));
            }
            if (to - from == 2) {
                p = pair_of(plan, from);
                TRY(try_run(plan, dev, best, from, to, p));
            }
        }
    }
    int runs = 0;
    plan->seconds = best[plan->count].seconds;
    for (int to = plan->count; to > 0; to = best[to].from)
        runs++;
    plan->run.count = runs;
    for (int to = plan->count, i = 0; to > 0; to = best[to].from, i++) {
        /* K_1 is applied last, its adjoint first. */
        int at = plan->desc.adjoint ? runs - 1 - i : i;
        plan->run.step[at] = dn_step(best[to].kernel, &best[to].p);
        plan->run.from[at] = best[to].from;
        plan->run.to[at] = to;
    }
    return DANAUS_OK;
}

/* One step a factor, in the order in which the product runs. */
static danaus_status choose_each(
    const danaus_ks_plan *plan, danaus_device *dev, step_list *steps)
{
    steps->count = plan->count;
    for (int i = 0; i < plan->count; i++) {
        int factor = plan->desc.adjoint ? i : plan->count - 1 - i;
        ks_step *step = &steps->step[i];
        double seconds;
        step->p = problem_of(plan, factor, factor + 1);
        TRY(dn_choose(dev, &step->p, plan->desc.effort, &step->kernel, &seconds));
        steps->from[i] = factor;
        steps->to[i] = factor + 1;
    }
    return DANAUS_OK;
}

/* Takes the steps if they are the fastest so far. */
static danaus_status try_steps(
    danaus_ks_plan *plan, danaus_device *dev, const step_list *steps, double *least)
{
    double seconds;
    TRY(dn_measure(dev, steps->step, steps->count, &seconds));
    if (seconds < *least) {
        *least = seconds;
        plan->run = *steps;
    }
    return DANAUS_OK;
}

/* The steps as they are, and with each row that fits all of them. */
static danaus_status try_rows(
    danaus_ks_plan *plan, danaus_device *dev, step_list steps, double *least)
{
    TRY(try_steps(plan, dev, &steps, least));
    for (const kernel *k = dev->kernels; k->name; k++) {
        int fits = 0, same = 0;
        for (int i = 0; i < steps.count; i++) {
            fits += dn_is_usable(dev, k, &steps.step[i].p);
            same += steps.step[i].kernel == k;
        }
        if (fits < steps.count || same == steps.count)
            continue;
        for (int i = 0; i < steps.count; i++)
            steps.step[i].kernel = k;
        TRY(try_steps(plan, dev, &steps, least));
    }
    return DANAUS_OK;
}

/* Times of single steps say little about a chain, where results between steps stay in the
   caches. So whole chains are measured too: cut as the single times suggest, and factor by
   factor. */
static danaus_status measure_chains(danaus_ks_plan *plan, danaus_device *dev)
{
    double least = INFINITY;
    step_list steps = plan->run;
    TRY(try_rows(plan, dev, steps, &least));
    if (steps.count < plan->count) {
        TRY(choose_each(plan, dev, &steps));
        TRY(try_rows(plan, dev, steps, &least));
    }
    plan->seconds = least;
    return DANAUS_OK;
}

/* Estimates of steps one by one say as little. */
static void choose_alike(danaus_ks_plan *plan, const danaus_device *dev)
{
    double gain;
    const kernel *k = dn_choose_alike(dev, plan->run.step, plan->run.count, &gain);
    for (int i = 0; k && i < plan->run.count; i++)
        plan->run.step[i].kernel = k;
    plan->seconds -= gain;
}

/* Steps of a product that multiply by one factor are the steps of gradients too, so that
   their weights are packed once. */
static void share_steps(const step_list *run, step_list *steps)
{
    for (int i = 0; i < steps->count; i++)
        for (int n = 0; n < run->count; n++)
            if (run->from[n] == steps->from[i] && run->to[n] == steps->to[i])
                steps->step[i] = run->step[n];
}

/* A step for each factor, and for its adjoint. */
static danaus_status choose_gradient_steps(danaus_ks_plan *plan, danaus_device *dev)
{
    TRY(choose_each(plan, dev, &plan->forward));
    share_steps(&plan->run, &plan->forward);
    plan->back = plan->forward;
    for (int i = 0; i < plan->count; i++) {
        ks_step *step = &plan->back.step[i];
        const problem *forward = &plan->forward.step[i].p;
        double seconds;
        step->p.pattern = dn_pattern_adjoint(forward->pattern);
        step->p.x_cached = forward->y_cached; /* x of this step is dy */
        step->p.y_cached = forward->x_cached;
        step->p.residual = 0;
        TRY(dn_choose(dev, &step->p, plan->desc.effort, &step->kernel, &seconds));
    }
    return DANAUS_OK;
}

/* Chooses a step for each factor's weight gradient. The host has no rows for these: there the
   rows of products compute them. */
static danaus_status choose_weight_gradients(danaus_ks_plan *plan, danaus_device *dev)
{
    plan->weights.count = 0;
    if (dev->backend->on_host)
        return DANAUS_OK;
    plan->weights = plan->forward;
    for (int i = 0; i < plan->count; i++) {
        const problem *forward = &plan->forward.step[i].p;
        problem p = { .operation = DN_WEIGHT_GRADIENT,
                      .pattern = forward->pattern,
                      .dtype = forward->dtype,
                      .layout = forward->layout,
                      .math = forward->math,
                      .batch = forward->batch };
        const kernel *k;
        double seconds;
        TRY(dn_choose(dev, &p, plan->desc.effort, &k, &seconds));
        plan->weights.step[i] = dn_step(k, &p);
    }
    return DANAUS_OK;
}

/* *refused: some of the rows do not compile there, and others may be chosen. */
static danaus_status prepare(
    const danaus_ks_plan *plan, danaus_device *device, int *refused)
{
    const step_list *lists[] = { &plan->forward, &plan->back, &plan->weights,
                                 &plan->run };
    int count = 0;
    if (!device->backend->prepare)
        return DANAUS_OK;
    ks_step *all = dn_alloc(4 * DANAUS_MAX_FACTORS * sizeof *all);
    if (!all)
        return dn_fail_memory(4 * DANAUS_MAX_FACTORS * sizeof *all, "a list of steps");
    for (int l = 0; l < 4; l++)
        for (int i = 0; i < lists[l]->count; i++)
            all[count++] = lists[l]->step[i];
    danaus_status status = device->backend->prepare(device, all, count, refused);
    dn_free(all);
    return status;
}

danaus_status dn_prepare(const danaus_ks_plan *plan, danaus_device *device)
{
    int refused = 0;
    return prepare(plan, device, &refused);
}

static danaus_status choose(danaus_ks_plan *plan, danaus_device *device)
{
    TRY(choose_steps(plan, device));
    int chain = plan->count > 1 && device->backend->on_host;
    if (chain && plan->desc.effort == DANAUS_MEASURE)
        TRY(measure_chains(plan, device));
    else if (chain && plan->desc.effort == DANAUS_ESTIMATE)
        choose_alike(plan, device);
    if (!plan->desc.gradients)
        return DANAUS_OK;
    TRY(choose_gradient_steps(plan, device));
    return choose_weight_gradients(plan, device);
}

/* Until all that is chosen compiles; when nothing is left to choose the compiler says why. */
static danaus_status choose_and_prepare(danaus_ks_plan *plan, danaus_device *device)
{
    char why[MOST_WHY] = "";
    for (;;) {
        int refused = 0;
        danaus_status status = choose(plan, device);
        if (status == DANAUS_ERR_UNSUPPORTED && *why)
            return dn_fail(DANAUS_ERR_DEVICE, "%s", why);
        TRY(status);
        status = prepare(plan, device, &refused);
        if (status == DANAUS_OK || !refused)
            return status;
        snprintf(why, sizeof why, "%s", danaus_error_detail());
    }
}

danaus_status danaus_ks_plan_create(
    danaus_device *device, const danaus_pattern *patterns, int count,
    const danaus_ks_desc *desc, danaus_ks_plan **plan)
{
    return dn_ks_plan_create(device, patterns, count, desc, 0, plan);
}

/* Gradients of weights take what a product takes in its order. */
danaus_status dn_ks_plan_create(
    danaus_device *device, const danaus_pattern *patterns, int count,
    const danaus_ks_desc *desc, int orders, danaus_ks_plan **plan)
{
    danaus_ks_desc d = desc ? *desc : (danaus_ks_desc){ 0 };
    if (!d.dtype)
        d.dtype = DANAUS_F32;
    if (!device || !plan)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a device and a place for the plan are needed");
    TRY(dn_check_desc(&d));
    TRY(danaus_patterns_check(patterns, count));
    danaus_ks_plan *p = dn_calloc(1, sizeof *p);
    if (!p)
        return dn_fail_memory(sizeof *p, "a plan");
    snprintf(p->device, sizeof p->device, "%s", device->name);
    p->desc = d;
    p->orders = device->backend->picking && !d.gradients ? orders : 0;
    p->desc.scale = d.scale != 0 ? d.scale : 1;
    p->count = count;
    memcpy(p->patterns, patterns, (size_t)count * sizeof *patterns);
    danaus_status status = choose_and_prepare(p, device);
    if (status == DANAUS_OK)
        status = dn_lay_out_weights(p, device);
    if (status != DANAUS_OK)
        danaus_ks_plan_destroy(p);
    else
        *plan = p;
    return status;
}

void danaus_ks_plan_destroy(danaus_ks_plan *plan) { dn_free(plan); }

double danaus_ks_plan_seconds(const danaus_ks_plan *plan)
{
    return plan ? plan->seconds : 0;
}
