/* Budgets: how many weights each layer gets (fit.h). */
// SPDX-License-Identifier: Apache-2.0
#include "model/compress/fit.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"

#include <inttypes.h>
#include <math.h>

danaus_status dn_choices_make(const fit_problem *p, choices *c)
{
    int64_t k = MIN(p->rows, p->cols);
    double rest = 0;
    *c = (choices){ .count = k };
    c->losses = dn_calloc((size_t)k, sizeof *c->losses);
    c->costs = dn_calloc((size_t)k, sizeof *c->costs);
    danaus_status status =
        c->losses && c->costs
            ? dn_problem_gains(p, c->losses)
            : dn_fail_memory((size_t)k * sizeof *c->costs, "choices of a layer");
    if (status != DANAUS_OK) {
        dn_choices_free(c);
        return status;
    }
    for (int64_t rank = k; rank > 0; rank--) {
        double gain = c->losses[rank - 1];
        c->losses[rank - 1] = rest;
        c->costs[rank - 1] = dn_fit_parameters(p->rows, p->cols, rank);
        rest += gain;
    }
    return DANAUS_OK;
}

void dn_choices_free(choices *c)
{
    dn_free(c->losses);
    dn_free(c->costs);
    *c = (choices){ 0 };
}

/* Takes the best choices for a price of a weight; returns their weights. */
static int64_t choose(int layers, choices *c, double price)
{
    int64_t cost = 0;
    for (int l = 0; l < layers; l++) {
        double least = INFINITY;
        for (int64_t i = 0; i < c[l].count; i++) {
            double value = c[l].losses[i] + price * (double)c[l].costs[i];
            if (value < least) {
                least = value;
                c[l].chosen = i;
            }
        }
        cost += c[l].count ? c[l].costs[c[l].chosen] : 0;
    }
    return cost;
}

static int64_t next_cost(const choices *c)
{
    return c->costs[c->chosen + 1] - c->costs[c->chosen];
}

/* The layer that gains most for each weight of its next choice that `left` pays; -1:
   none. */
static int next_step(int layers, const choices *c, int64_t left)
{
    double most = -INFINITY;
    int best = -1;
    for (int l = 0; l < layers; l++) {
        if (c[l].chosen + 1 >= c[l].count || next_cost(&c[l]) > left)
            continue;
        const double *loss = c[l].losses + c[l].chosen;
        double gain = (loss[0] - loss[1]) / (double)MAX(next_cost(&c[l]), 1);
        if (gain > most) {
            most = gain;
            best = l;
        }
    }
    return best;
}

danaus_status dn_share_out(int64_t total, int layers, choices *c)
{
    int64_t least = 0;
    double largest = 1e-300;
    for (int l = 0; l < layers; l++)
        for (int64_t i = 0; i < c[l].count; i++) {
            least += i ? 0 : c[l].costs[0];
            largest = MAX(largest, c[l].losses[i]);
        }
    if (least > total)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "%" PRId64 " parameters are too few: the layers need %" PRId64 " at least",
            total, least);
    double low = log(largest) - 100, high = log(largest) + 1;
    for (int i = 0; i < 100; i++) {
        double middle = (low + high) / 2;
        if (choose(layers, c, exp(middle)) > total)
            low = middle;
        else
            high = middle;
    }
    int64_t left = total - choose(layers, c, exp(high));
    for (int l; (l = next_step(layers, c, left)) >= 0; c[l].chosen++)
        left -= next_cost(&c[l]);
    return DANAUS_OK;
}
