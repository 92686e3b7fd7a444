/* Describes what a convolution runs and why: the cut, its terms by the cost model, and the
   model's next best cuts. */
// SPDX-License-Identifier: Apache-2.0
#include "conv/conv_plan.h"

#include "base/text.h"

#include <inttypes.h>

#define MIB   1048576.0
#define SHOWN 3 /* candidates beside the one that is used */

static void write_cut(
    const danaus_conv_plan *plan, const conv_class *c, conv_cut cut, text *to)
{
    int64_t windows = dn_conv_cut_rows(&c->choice.frame, cut).windows;
    dn_text(
        to, "%" PRId64 " window%s of %" PRId64 " complex numbers = ", windows,
        windows > 1 ? "s" : "", cut.n);
    plan->conv->describe(c->engine, cut, to);
}

static void write_term(const conv_term *t, double amount, text *to)
{
    if (!dn_conv_is_rate(t))
        dn_text(to, "  %-12s %11.6g  x %-6.3g ns", t->name, amount, 1e9 * t->second);
    else
        dn_text(
            to, "  %-12s %8.4g %s  / %-6.4g %s", t->name, 1e-6 * amount,
            t->constant == TUNING_OMEGA ? "MB " : "Mop", 1e-9 / t->second,
            t->constant == TUNING_OMEGA ? "GB/s" : "Gop/s");
    dn_text(to, "  %10.3f us\n", 1e6 * amount * t->second);
}

static void write_candidates(
    const danaus_conv_plan *plan, const conv_class *own, text *to)
{
    const conv_candidates *list = &own->choice.candidates;
    conv_cut used = own->choice.frame.cut;
    int shown = 0;
    for (int i = 0; i < list->count && shown < SHOWN; i++) {
        const conv_candidate *c = &list->best[i];
        if (c->cut.kernel == used.kernel && c->cut.n == used.n &&
            c->cut.radix == used.radix)
            continue;
        dn_text(to, shown++ ? "       " : "others:");
        dn_text(to, " %.3g us with ", 1e6 * c->cost);
        write_cut(plan, own, c->cut, to);
        dn_text(to, "\n");
    }
}

static void write_kept(const conv_problem *p, text *to)
{
    for (int i = 0; i < CONV_AXES; i++)
        dn_text(to, "%s%d of %d", i ? ", " : " (", p->keep[i], p->axes[i]);
    dn_text(to, " kept)");
}

/* What sequences that are shorter run. */
static void write_classes(const danaus_conv_plan *plan, text *to)
{
    for (int i = plan->count - 2; i >= 0; i--) {
        const conv_class *c = &plan->classes[i];
        dn_text(to, "sequences of at most %" PRId64 " numbers: ", c->p.length);
        write_cut(plan, c, c->choice.frame.cut, to);
        dn_text(to, "\n");
    }
}

void dn_conv_describe(const danaus_conv_plan *plan, text *to)
{
    static const char *const judges[] = { "by the model", "by the tuning table",
                                          "as measured" };
    const conv_class *own = dn_conv_longest(plan);
    const conv_choice *c = &own->choice;
    const conv_engine *e = own->engine;
    int built_in = !c->model.measured;
    dn_text(to, "%s: ", c->frame.cut.kernel->name);
    write_cut(plan, own, c->frame.cut, to);
    if (c->frame.sparse)
        write_kept(&plan->p, to);
    dn_text(
        to, ", %.3g us a row%s %s\n", 1e6 * c->cost,
        c->judge == CONV_BY_MODEL && built_in && e->worker_bytes ? " on one thread"
                                                                 : "",
        judges[c->judge]);
    dn_text(to, "memory: %.3g MiB a filter", (double)e->filter_bytes / MIB);
    if (e->worker_bytes)
        dn_text(
            to, ", %.3g MiB of scratch for each window at work",
            (double)e->worker_bytes / MIB);
    dn_text(to, "\n");
    dn_text(
        to, "model with constants %s%s:\n",
        built_in ? "built in for " : "measured by calibration",
        built_in ? plan->device : "");
    for (int i = 0; i < c->model.count; i++)
        if (c->work.amount[i] > 0)
            write_term(&c->model.term[i], c->work.amount[i], to);
    write_candidates(plan, own, to);
    write_classes(plan, to);
}
