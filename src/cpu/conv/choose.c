/* How a row is cut into windows, and these into radices: by the tuning table, by the
   model, or by measuring what the model likes.

   A window of 2 n numbers gives 2 n - before - after numbers of y; one window that has
   room for the whole row and its zeros needs only max(before, after) more than the row
   (docs/conv.md (6)). */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv/model.h"

#include "base/clock.h"
#include "base/status.h"
#include "cpu/grid.h"

#include <math.h>
#include <string.h>

/* Candidates are measured each against the best one before it, with rows of so many
   numbers together for every thread and for so many seconds. */
#define MEASURED_NUMBERS 131072
#define MEASURED_SECONDS 0.02
/* A cut must gain more than that to take the place of one that the model prefers. */
#define WORTHWHILE 0.98

int64_t dn_conv_windows(const conv_engine *e, int64_t n)
{
    int64_t length = e->p.length;
    int64_t more =
        e->p.kind == DANAUS_CIRCULAR ? e->before + e->after : MAX(e->before, e->after);
    if (2 * n >= length + more)
        return 1;
    int64_t most = 2 * n - e->before - e->after;
    return most > 0 ? CEIL_DIV(length, most) : 0;
}

static void keep(conv_candidates *list, conv_candidate c)
{
    conv_candidate *best = list->best;
    if (list->count == CONV_CANDIDATES && best[CONV_CANDIDATES - 1].cost <= c.cost)
        return;
    int at = list->count < CONV_CANDIDATES ? list->count++ : CONV_CANDIDATES - 1;
    for (; at > 0 && best[at - 1].cost > c.cost; at--)
        best[at] = best[at - 1];
    best[at] = c;
}

/* The shortest n that is looked at; all are multiples of it. */
static int64_t unit_of(const conv_engine *e) { return 4 * e->sums->vector; }

/* The longest one. */
static int64_t longest(const conv_engine *e)
{
    int64_t unit = unit_of(e);
    return ROUND_UP((e->p.length + e->before + e->after) / 2 + 1, unit) * 5 / 4 + unit;
}

/* Offers n in radices of at most 8 and, where these are others, of at most 4. */
static void consider(conv_engine *e, int64_t n)
{
    conv_tables eights, fours;
    conv_cut cut = { e->code->name, n, 8 };
    int64_t windows = dn_conv_windows(e, n);
    size_t l2 = e->machine.l2;
    if (!windows || !dn_conv_shape(&eights, cut, e->sums, l2, 0))
        return;
    double cost = dn_conv_cost(e, &eights, windows);
    keep(&e->candidates, (conv_candidate){ cut, windows, cost });
    cut.radix = 4;
    if (!dn_conv_shape(&fours, cut, e->sums, l2, 0) || fours.passes == eights.passes)
        return;
    cost = dn_conv_cost(e, &fours, windows);
    keep(&e->candidates, (conv_candidate){ cut, windows, cost });
}

static void find_candidates(conv_engine *e)
{
    int64_t unit = unit_of(e), end = longest(e);
    for (int64_t n = unit; n <= end; n += unit) {
        /* Sizes far from the others are not looked at one by one. */
        if (n > 64 * unit && n % (unit * 8))
            n = ROUND_UP(n, unit * 8);
        if (n > 4096 * unit && n % (unit * 512))
            n = ROUND_UP(n, unit * 512);
        consider(e, n);
    }
}

/* Sparse spectra say themselves how long the transform is. */
static danaus_status use_sparse(cpu_device *dev, conv_engine *e)
{
    conv_tables t;
    int64_t all = 1;
    double share = 1;
    for (int i = 0; i < CONV_AXES; i++) {
        all *= e->p.axes[i];
        share *= (double)e->p.keep[i] / e->p.axes[i];
    }
    conv_cut cut = dn_conv_cut(e->sums, MAX(4096, all));
    while (dn_conv_windows(e, cut.n) != 1)
        cut.n *= 2;
    dn_conv_shape(&t, cut, e->sums, dev->l2, 1);
    return dn_conv_use(dev, e, cut, 1, dn_conv_cost(e, &t, 1) * (0.4 + 0.6 * share));
}

danaus_status dn_conv_use(
    cpu_device *dev, conv_engine *e, conv_cut cut, int64_t windows, double seconds)
{
    const conv_problem *sparse = e->p.keep[0] ? &e->p : NULL;
    conv_tables *tables = dn_conv_tables_create(cut, e->sums, dev->l2, sparse);
    if (!tables)
        return dn_fail_memory(
            (size_t)cut.n * e->sums->size, "the tables of a transform");
    dn_conv_tables_destroy(e->tables);
    e->tables = tables;
    e->cost = seconds;
    e->step = CEIL_DIV(e->p.length, windows);
    if (ROUND_UP(e->step, CONV_LINE) <= 2 * cut.n - e->before - e->after)
        e->step = ROUND_UP(e->step, CONV_LINE);
    e->windows = CEIL_DIV(e->p.length, e->step);
    e->radix = cut.radix;
    return DANAUS_OK;
}

/* ---- measurements ---- */

/* Times two engines in turns; the least of each counts. */
static danaus_status duel(
    const conv_trial *a, const conv_trial *b, double *a_seconds, double *b_seconds)
{
    double begin = dn_seconds(), seconds;
    *a_seconds = *b_seconds = INFINITY;
    for (int i = 0; i < 3 || dn_seconds() - begin < MEASURED_SECONDS; i++) {
        TRY(dn_conv_trial_run(a, &seconds));
        *a_seconds = fmin(*a_seconds, seconds);
        TRY(dn_conv_trial_run(b, &seconds));
        *b_seconds = fmin(*b_seconds, seconds);
    }
    return DANAUS_OK;
}

/* Puts the cut in place of that of e if it is faster. */
static danaus_status challenge(cpu_device *dev, conv_engine *e, const conv_candidate *c)
{
    conv_engine other = *e;
    conv_trial old = { 0 }, new = { 0 };
    double seconds = 0;
    int64_t numbers = MEASURED_NUMBERS * (int64_t)dev->threads;
    other.tables = NULL;
    danaus_status status = dn_conv_use(dev, &other, c->cut, c->windows, 0);
    if (!status)
        status = dn_conv_trial_open(dev, e, numbers, &old);
    if (!status)
        status = dn_conv_trial_open(dev, &other, numbers, &new);
    if (!status)
        status = duel(&old, &new, &e->cost, &seconds);
    dn_conv_trial_close(&old);
    dn_conv_trial_close(&new);
    if (!status && seconds < WORTHWHILE * e->cost) {
        conv_tables *slower = e->tables;
        *e = other;
        e->cost = seconds;
        other.tables = slower;
    }
    dn_conv_tables_destroy(other.tables);
    return status;
}

static danaus_status measure(cpu_device *dev, conv_engine *e)
{
    const conv_candidates list = e->candidates;
    const conv_candidate *first = &list.best[0];
    TRY(dn_conv_use(dev, e, first->cut, first->windows, first->cost));
    for (int i = list.count > 1; i < list.count; i++)
        TRY(challenge(dev, e, &list.best[i]));
    e->judge = CONV_BY_MEASURE;
    conv_cut cut = { e->code->name, e->tables->n, e->radix };
    dn_tuning_add_conv(dev->base.tuning, &e->p, dn_conv_few_rows(e), cut, e->cost);
    return DANAUS_OK;
}

/* Whether the table has a cut that rows can be cut by. */
static int find_in_table(const cpu_device *dev, const conv_engine *e, conv_candidate *c)
{
    conv_tables t;
    if (e->p.keep[0] ||
        !dn_tuning_find_conv(
            dev->base.tuning, &e->p, dn_conv_few_rows(e), &c->cut, &c->cost) ||
        strcmp(c->cut.kernel, e->code->name) || c->cut.n > longest(e))
        return 0;
    c->windows = dn_conv_windows(e, c->cut.n);
    return c->windows && dn_conv_shape(&t, c->cut, e->sums, dev->l2, 0);
}

danaus_status dn_conv_choose(cpu_device *dev, conv_engine *e)
{
    conv_candidate c;
    e->model = dn_conv_model(dev, e->sums);
    if (find_in_table(dev, e, &c)) {
        e->judge = CONV_BY_TABLE;
        return dn_conv_use(dev, e, c.cut, c.windows, c.cost);
    }
    if (e->p.effort == DANAUS_TABLE_ONLY)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "the tuning table has no row for this convolution");
    e->judge = CONV_BY_MODEL;
    if (e->p.keep[0])
        return use_sparse(dev, e);
    find_candidates(e);
    if (e->p.effort == DANAUS_MEASURE)
        return measure(dev, e);
    c = e->candidates.best[0];
    return dn_conv_use(dev, e, c.cut, c.windows, c.cost);
}
