/* What a convolution runs and why: the cut, its terms by the model, and the cuts that
   the model likes next. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv/loop.h"
#include "cpu/conv/model.h"

#include "base/text.h"
#include "cpu/grid.h"

#include <inttypes.h>

#define MIB   1048576.0
#define SHOWN 3 /* candidates beside the one that is used */

static void write_cut(
    const conv_tables *t, int64_t windows, const conv_code *code, text *to)
{
    dn_text(
        to, "%" PRId64 " window%s of %" PRId64 " complex numbers =", windows,
        windows > 1 ? "s" : "", t->n);
    for (int l = 0; l < t->passes; l++)
        dn_text(to, "%s %d", l ? " x" : "", t->pass[l].radix);
    dn_text(to, " x %d in vectors", code->vector);
}

static void write_term(conv_term term, double amount, double second, text *to)
{
    static const char *const names[CONV_TERMS] = {
        "windows", "blocks",  "in vectors",   "radix 3",    "radix 4", "radix 5",
        "radix 7", "radix 8", "second cache", "last cache", "memory"
    };
    if (term <= CONV_BLOCKS)
        dn_text(to, "  %-12s %11.6g  x %-6.3g ns", names[term], amount, 1e9 * second);
    else
        dn_text(
            to, "  %-12s %8.4g %s  / %-6.4g %s", names[term], 1e-6 * amount,
            term < CONV_CACHE_2 ? "Mop" : "MB ", 1e-9 / second,
            term < CONV_CACHE_2 ? "Gop/s" : "GB/s");
    dn_text(to, "  %10.3f us\n", 1e6 * amount * second);
}

static void write_candidates(const conv_engine *e, text *to)
{
    int shown = 0;
    for (int i = 0; i < e->candidates.count && shown < SHOWN; i++) {
        const conv_candidate *c = &e->candidates.best[i];
        conv_tables t;
        if ((c->cut.n == e->tables->n && c->cut.radix == e->radix) ||
            !dn_conv_shape(&t, c->cut, e->sums, e->machine.l2, 0))
            continue;
        dn_text(to, shown++ ? "       " : "others:");
        dn_text(to, " %.3g us with ", 1e6 * c->cost);
        write_cut(&t, c->windows, e->code, to);
        dn_text(to, "\n");
    }
}

static void write_kept(const conv_problem *p, text *to)
{
    for (int i = 0; i < CONV_AXES; i++)
        dn_text(to, "%s%d of %d", i ? ", " : " (", p->keep[i], p->axes[i]);
    dn_text(to, " kept)");
}

void dn_conv_describe(const conv_engine *e, text *to)
{
    static const char *const judges[] = { "by the model", "by the tuning table",
                                          "as measured" };
    const conv_tables *t = e->tables;
    double amounts[CONV_TERMS];
    dn_text(to, "%s: ", e->code->name);
    write_cut(t, e->windows, e->code, to);
    if (t->outside)
        write_kept(&e->p, to);
    dn_text(
        to, ", %d pass%s by strips, %.3g us a row%s %s\n", t->outer,
        t->outer > 1 ? "es" : "", 1e6 * e->cost,
        e->judge == CONV_BY_MODEL && !e->model.measured ? " on one thread" : "",
        judges[e->judge]);
    dn_text(
        to, "memory: %.3g MiB a filter, %.3g MiB of scratch for each of %d threads\n",
        (double)dn_conv_bytes(e) / MIB, (double)dn_conv_slot_bytes(e) / MIB,
        e->machine.threads);
    dn_text(
        to, "model with constants %s%s:\n",
        e->model.measured ? "measured by calibration" : "built in for ",
        e->model.measured ? "" : e->machine.instructions);
    dn_conv_amounts(e, t, e->windows, amounts);
    for (int i = 0; i < CONV_TERMS; i++)
        if (amounts[i] > 0)
            write_term((conv_term)i, amounts[i], e->model.second[i], to);
    write_candidates(e, to);
}
