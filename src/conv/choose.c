/* Chooses how a row is cut into windows and windows into radices: by the tuning table, by
   the cost model, or by measuring the model's best cuts. */
// SPDX-License-Identifier: Apache-2.0
#include "conv/choose.h"

#include "base/clock.h"
#include "base/dtype.h"
#include "base/status.h"
#include "device/tuning.h"

#include <math.h>

/* Candidates are measured each against the best one before it, with rows of so many
   numbers together for every thread and for so many seconds. */
#define MEASURED_NUMBERS 131072
#define MEASURED_SECONDS 0.02
/* A cut must gain more than that to take the place of one that the model prefers. */
#define WORTHWHILE 0.98

/* A search for the best cut, and the problem that it is for. */
typedef struct cut_search {
    danaus_device *dev;
    const conv_problem *p;
    int64_t rows;     /* that are convolved together, if few */
    conv_frame reach; /* no cut yet */
    conv_choice *choice;
} cut_search;

const conv_kernel *dn_conv_next_kernel(
    const danaus_device *dev, danaus_dtype dtype, int *index)
{
    const conv_kernel *k;
    while ((k = dev->backend->conv->kernel(dev, (*index)++)))
        if (k->dtype == dtype)
            return k;
    return NULL;
}

danaus_conv_accuracy dn_conv_accuracy(const danaus_device *dev, const conv_problem *p)
{
    danaus_conv_accuracy usual = dn_conv_usual_accuracy(p->dtype);
    const conv_kernel *k;
    for (int i = 0; (k = dn_conv_next_kernel(dev, p->dtype, &i));)
        if (k->fast)
            return p->accuracy ? p->accuracy : usual;
    return usual;
}

/* The longest n that is looked at: one window may have a row and what meets it, or be zero, or
   not there, from n on. */
static int64_t longest(const cut_search *s, int64_t unit)
{
    const conv_frame *f = &s->reach;
    int64_t all = f->length + f->before + f->after;
    int64_t n = MAX(f->parts == 2 ? all : all / 2 + 1, f->length);
    return ROUND_UP(n, unit) * 5 / 4 + unit;
}

/* True if rows can be cut in this way; *f and *work are then the frame and its work. */
static int can_cut(const cut_search *s, conv_cut cut, conv_frame *f, conv_work *work)
{
    if (cut.n % cut.kernel->unit || !dn_conv_windows(&s->reach, cut.n) ||
        (cut.kernel->fast && s->p->accuracy != DANAUS_CONV_FAST))
        return 0;
    *f = dn_conv_cut_rows(&s->reach, cut);
    return s->dev->backend->conv->work(s->dev, f, s->rows, work);
}

static void use(const cut_search *s, conv_cut cut, double cost)
{
    conv_choice *c = s->choice;
    c->model = dn_conv_model(s->dev, cut.kernel);
    c->frame = dn_conv_cut_rows(&s->reach, cut);
    s->dev->backend->conv->work(s->dev, &c->frame, s->rows, &c->work);
    c->cost = cost;
}

/* ---- the model ---- */

conv_model dn_conv_model(const danaus_device *dev, const conv_kernel *k)
{
    conv_model built = { 0 }, m;
    built.count = dev->backend->conv->terms(dev, k, built.term);
    m = built;
    m.measured = 1;
    for (int i = 0; i < m.count; i++) {
        conv_term *t = &m.term[i];
        double value = dn_tuning_constant(
            dev->tuning, dn_conv_point_type(k->dtype), t->constant, t->of);
        if (!(value > 0))
            return built;
        t->second = dn_conv_is_rate(t) ? 1 / value : value;
    }
    return m;
}

double dn_conv_cost(const conv_model *model, const conv_work *work)
{
    double seconds = 0;
    for (int i = 0; i < model->count; i++)
        seconds += work->amount[i] * model->term[i].second;
    return seconds * work->idle;
}

int64_t dn_conv_few_rows(const danaus_device *dev, const conv_problem *p)
{
    int64_t many = dev->backend->conv->few_rows;
    if (!p->batch || p->batch >= many || p->channels >= many)
        return 0;
    return p->batch * p->channels < many ? p->batch * p->channels : 0;
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

/* Offers n in all radices that the kernel has; those that make no difference once. */
static void consider(const cut_search *s, const conv_model *model, conv_cut cut)
{
    double last = 0;
    for (int i = 0; i < 2 && cut.kernel->offered[i]; i++) {
        conv_frame f;
        conv_work work;
        cut.radix = cut.kernel->offered[i];
        if (!can_cut(s, cut, &f, &work))
            continue;
        double cost = dn_conv_cost(model, &work);
        if (cost != last)
            keep(&s->choice->candidates, (conv_candidate){ cut, cost });
        last = cost;
    }
}

static void find_candidates(const cut_search *s)
{
    const conv_kernel *k;
    for (int i = 0; (k = dn_conv_next_kernel(s->dev, s->p->dtype, &i));) {
        conv_model model = dn_conv_model(s->dev, k);
        int64_t unit = k->unit, end = longest(s, unit);
        for (int64_t n = unit; n <= end; n += unit) {
            /* Sizes far from the others are not looked at one by one. */
            if (n > 64 * unit && n % (unit * 8))
                n = ROUND_UP(n, unit * 8);
            if (n > 4096 * unit && n % (unit * 512))
                n = ROUND_UP(n, unit * 512);
            if (n != s->reach.length)
                consider(s, &model, (conv_cut){ k, n, 0 });
        }
        consider(
            s, &model,
            (conv_cut){ k, s->reach.length, 0 }); /* a circle, if it is one */
    }
}

/* Sparse spectra say themselves how long the transform is: one of the best kernel. */
static danaus_status use_sparse(const cut_search *s)
{
    conv_cut cut = { .n = 4096 };
    const conv_candidates *found = &s->choice->candidates;
    int64_t all = 1;
    for (int i = 0; i < CONV_AXES; i++)
        all *= s->p->axes[i];
    cut.n = MAX(cut.n, all);
    while (dn_conv_windows(&s->reach, cut.n) != 1)
        cut.n *= 2;
    for (int i = 0; (cut.kernel = dn_conv_next_kernel(s->dev, s->p->dtype, &i));) {
        conv_frame f;
        conv_work work;
        conv_model model = dn_conv_model(s->dev, cut.kernel);
        cut.radix = cut.kernel->radix;
        if (can_cut(s, cut, &f, &work))
            keep(
                &s->choice->candidates,
                (conv_candidate){ cut, dn_conv_cost(&model, &work) });
    }
    if (!found->count)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "%s has no convolutions with sparse spectra of this type and length",
            s->dev->name);
    use(s, found->best[0].cut, found->best[0].cost);
    return DANAUS_OK;
}

/* ---- measurements ---- */

/* The problem that tables know: of planes, that of rows as long as their flat rows. */
static conv_problem tabled(const cut_search *s)
{
    conv_problem p = *s->p;
    const conv_frame *f = &s->reach;
    if (!f->plane.height)
        return p;
    p.kind = f->periodic ? DANAUS_CIRCULAR : DANAUS_CAUSAL;
    p.length = f->length;
    p.filter_length = f->before + f->after + 1;
    return p;
}

/* Times two cuts in turns; the least of each counts. */
static danaus_status duel(
    conv_trial *a, conv_trial *b, double *a_seconds, double *b_seconds)
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

/* Puts the cut in place of the best one if it is faster. */
static danaus_status challenge(const cut_search *s, conv_trial *best, conv_cut cut)
{
    conv_frame f = dn_conv_cut_rows(&s->reach, cut);
    conv_trial other;
    double seconds = 0;
    TRY(dn_conv_trial_open(s->dev, s->p, &f, MEASURED_NUMBERS, &other));
    danaus_status status = duel(best, &other, &s->choice->cost, &seconds);
    if (!status && seconds < WORTHWHILE * s->choice->cost) {
        conv_trial slower = *best;
        *best = other;
        other = slower;
        use(s, cut, seconds);
    }
    dn_conv_trial_close(&other);
    return status;
}

static danaus_status measure(const cut_search *s)
{
    const conv_candidates *list = &s->choice->candidates;
    conv_choice *c = s->choice;
    conv_trial best;
    use(s, list->best[0].cut, list->best[0].cost);
    TRY(dn_conv_trial_open(s->dev, s->p, &c->frame, MEASURED_NUMBERS, &best));
    danaus_status status = DANAUS_OK;
    for (int i = list->count > 1; i < list->count && !status; i++)
        status = challenge(s, &best, list->best[i].cut);
    dn_conv_trial_close(&best);
    c->judge = CONV_BY_MEASURE;
    conv_problem p = tabled(s);
    if (!status)
        dn_tuning_add_conv(s->dev->tuning, &p, s->rows, c->frame.cut, c->cost);
    return status;
}

/* ---- the choice ---- */

/* True if the table has a cut that these rows allow: *cut and *seconds. */
static int find_in_table(const cut_search *s, conv_cut *cut, double *seconds)
{
    conv_frame f;
    conv_work work;
    conv_problem p = tabled(s);
    return !s->reach.sparse &&
           dn_tuning_find_conv(s->dev->tuning, &p, s->rows, cut, seconds) &&
           cut->kernel->dtype == s->p->dtype &&
           cut->n <= longest(s, cut->kernel->unit) && can_cut(s, *cut, &f, &work);
}

danaus_status dn_conv_choose(
    danaus_device *dev, const conv_problem *p, conv_choice *choice)
{
    cut_search s = { dev, p, dn_conv_few_rows(dev, p), dn_conv_reach(p), choice };
    conv_cut cut;
    double seconds;
    if (find_in_table(&s, &cut, &seconds)) {
        choice->judge = CONV_BY_TABLE;
        use(&s, cut, seconds);
        return DANAUS_OK;
    }
    if (p->effort == DANAUS_TABLE_ONLY)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "the tuning table has no row for this convolution");
    choice->judge = CONV_BY_MODEL;
    if (s.reach.sparse)
        return use_sparse(&s);
    find_candidates(&s);
    const conv_candidate *best = &choice->candidates.best[0];
    if (!choice->candidates.count)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "%s has no convolution of this type and length",
            dev->name);
    if (p->effort == DANAUS_MEASURE)
        return measure(&s);
    use(&s, best->cut, best->cost);
    return DANAUS_OK;
}
