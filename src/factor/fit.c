/* The chain that fits a number of parameters.

   Cheapest chain of L factors with block rank r between neighbours: a shortest path
   over the lattice of (P_l, Q_l) from (1, M) to (N, 1), where step l costs
       r_{l-1} r_l Q_{l-1} P_l                        (docs/ks.md, equation 7)
   weights. Steps are monotone: they shrink both sizes, keeping the shape's sense
   (p = q for squares, q >= p for tall, q <= p for wide matrices); otherwise the
   cheapest chain would be a matrix of rank one.

   For every L the rank is as large as the budget allows. The function takes the chain that
   keeps most of a matrix of independent Gaussian entries (equation 8). */
// SPDX-License-Identifier: Apache-2.0
#include "factor/fit.h"

#include "product/patterns.h"
#include "base/mem.h"
#include "base/status.h"
#include "math/pattern.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MAX_STATES (1 << 20)

typedef struct lattice {
    int64_t rows, cols;
    int monotone;
    int n_rows, n_cols; /* divisors of each */
    int64_t *dr, *dc;   /* ascending */
    double *cost,
        *next; /* cheapest way to (P, Q) = (dc[x], dr[y]), at x * n_rows + y */
    int *from; /* state before it, for each of the steps */
} lattice;

/* Writes the divisors of n in ascending order, or only counts them for NULL. */
static int list_divisors(int64_t n, int64_t *divisors)
{
    int small = 0, all = 0;
    for (int64_t k = 1; k <= n / k; k++) {
        if (n % k)
            continue;
        if (divisors)
            divisors[small] = k;
        small++;
        all += k == n / k ? 1 : 2;
    }
    for (int i = small; divisors && i < all; i++)
        divisors[i] = n / divisors[all - 1 - i];
    return all;
}

static void lattice_free(lattice *g)
{
    dn_free(g->dr);
    dn_free(g->dc);
    dn_free(g->cost);
    dn_free(g->next);
    dn_free(g->from);
}

static danaus_status lattice_make(lattice *g, int64_t rows, int64_t cols, int monotone)
{
    *g = (lattice){ .rows = rows, .cols = cols, .monotone = monotone };
    g->dr = dn_calloc((size_t)list_divisors(rows, NULL), sizeof *g->dr);
    g->dc = dn_calloc((size_t)list_divisors(cols, NULL), sizeof *g->dc);
    if (g->dr && g->dc) {
        g->n_rows = list_divisors(rows, g->dr);
        g->n_cols = list_divisors(cols, g->dc);
        size_t states = (size_t)g->n_rows * (size_t)g->n_cols;
        if (states > MAX_STATES)
            return dn_fail(
                DANAUS_ERR_UNSUPPORTED,
                "%" PRId64 " x %" PRId64 " has too many divisors to search", rows,
                cols);
        g->cost = dn_calloc(states, sizeof *g->cost);
        g->next = dn_calloc(states, sizeof *g->next);
        g->from = dn_calloc(states * DANAUS_MAX_FACTORS, sizeof *g->from);
    }
    if (!g->cost || !g->next || !g->from)
        return dn_fail(DANAUS_ERR_MEMORY, "no memory for the search of a chain");
    return DANAUS_OK;
}

static int step_allowed(const lattice *g, int64_t p, int64_t q)
{
    if (!g->monotone)
        return p > 1 || q > 1;
    int sense = g->rows == g->cols ? p == q : g->rows > g->cols ? q >= p : q <= p;
    return p > 1 && q > 1 && sense;
}

/* Relaxes every step out of state (x, y); weight = r_{l-1} r_l. */
static void relax(lattice *g, int x, int y, double weight, int only_end, int *from)
{
    int state = x * g->n_rows + y;
    for (int x2 = only_end ? g->n_cols - 1 : x; x2 < g->n_cols; x2++) {
        if (g->dc[x2] % g->dc[x])
            continue;
        double cost = g->cost[state] + weight * (double)g->dr[y] * (double)g->dc[x2];
        for (int y2 = only_end ? 0 : y; y2 >= 0; y2--) {
            int to = x2 * g->n_rows + y2;
            if (g->dr[y] % g->dr[y2] || cost >= g->next[to] ||
                !step_allowed(g, g->dc[x2] / g->dc[x], g->dr[y] / g->dr[y2]))
                continue;
            g->next[to] = cost;
            from[to] = state;
        }
    }
}

/* Fills patterns with the cheapest chain; returns 0 if there is none. */
static int cheapest(lattice *g, int order, int64_t rank, danaus_pattern *patterns)
{
    int states = g->n_rows * g->n_cols;
    for (int state = 0; state < states; state++)
        g->cost[state] = INFINITY;
    g->cost[g->n_rows - 1] = 0; /* P = 1, Q = rows */
    for (int l = 0; l < order; l++) {
        double weight = (l ? (double)rank : 1.0) * (l + 1 < order ? (double)rank : 1.0);
        for (int state = 0; state < states; state++)
            g->next[state] = INFINITY;
        for (int state = 0; state < states; state++)
            if (g->cost[state] < INFINITY)
                relax(
                    g, state / g->n_rows, state % g->n_rows, weight, l + 1 == order,
                    g->from + (size_t)l * (size_t)states);
        double *swap = g->cost;
        g->cost = g->next;
        g->next = swap;
    }
    int state = (g->n_cols - 1) * g->n_rows;
    if (g->cost[state] == INFINITY)
        return 0;
    int64_t q[DANAUS_MAX_FACTORS], p[DANAUS_MAX_FACTORS];
    for (int l = order - 1; l >= 0; l--) {
        int before = g->from[(size_t)l * (size_t)states + (size_t)state];
        p[l] = g->dc[state / g->n_rows] / g->dc[before / g->n_rows];
        q[l] = g->dr[before % g->n_rows] / g->dr[state % g->n_rows];
        state = before;
    }
    return dn_patterns_lattice(order, q, p, NULL, rank, patterns) == DANAUS_OK;
}

danaus_status dn_patterns_cheapest(
    int64_t rows, int64_t cols, int order, int64_t rank, int monotone,
    danaus_pattern *patterns, int *found)
{
    lattice g;
    danaus_status status = lattice_make(&g, rows, cols, monotone);
    if (status == DANAUS_OK)
        *found = cheapest(&g, order, rank, patterns);
    lattice_free(&g);
    return status;
}

double dn_null_energy(int64_t m, int64_t n, int64_t rank)
{
    if (m > n)
        return dn_null_energy(n, m, rank);
    if (rank >= m)
        return 1;
    double beta = (double)m / (double)n, share = (double)rank / (double)m;
    const double pi = 3.14159265358979323846;
    enum { steps = 512 };
    double mass = 0, theta = 0;
    for (int i = 0; i < steps && mass < share; i++) {
        theta = pi * (i + 0.5) / steps;
        double value = 1 + beta + 2 * sqrt(beta) * cos(theta);
        mass += 2.0 / steps * sin(theta) * sin(theta) / value;
        theta = pi * (i + 1) / steps;
    }
    return (theta - sin(2 * theta) / 2) / pi;
}

/* What a left-to-right sweep keeps of a Gaussian matrix. */
static double kept_by_sweep(const danaus_pattern *patterns, int count)
{
    double kept = 1;
    for (int l = 0; l + 1 < count; l++) {
        danaus_pattern rest = dn_patterns_product(patterns + l + 1, count - l - 1);
        kept *= dn_null_energy(
            patterns[l].b, rest.c, dn_pair_rank(patterns[l], patterns[l + 1]));
    }
    return kept;
}

static double weights_of(const danaus_pattern *patterns, int count)
{
    double sum = 0;
    for (int l = 0; l < count; l++)
        sum += (double)dn_pattern_weights(patterns[l]);
    return sum;
}

static int any_redundant(const danaus_pattern *patterns, int count)
{
    for (int l = 0; l + 1 < count; l++)
        if (dn_pair_redundant(patterns[l], patterns[l + 1]))
            return 1;
    return 0;
}

/* The largest rank whose cheapest chain of `order` factors has at most `budget`
   weights and no redundant pair; 0 if there is none. */
static int64_t largest_rank(
    lattice *g, int order, double budget, danaus_pattern *patterns)
{
    int64_t low = 0, high = 1;
    while (cheapest(g, order, high, patterns) &&
           weights_of(patterns, order) <= budget) {
        low = high;
        high *= 2;
    }
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        int fits = cheapest(g, order, middle, patterns) &&
                   weights_of(patterns, order) <= budget;
        *(fits ? &low : &high) = middle;
    }
    while (low && cheapest(g, order, low, patterns) && any_redundant(patterns, order))
        low--;
    return low;
}

typedef struct choice {
    danaus_pattern p[DANAUS_MAX_FACTORS];
    int count;
    double kept, smallest; /* weights of the smallest chain seen */
} choice;

static void choose(lattice *g, double budget, choice *best)
{
    danaus_pattern p[DANAUS_MAX_FACTORS];
    for (int order = 2; order <= DANAUS_MAX_FACTORS; order++) {
        if (!cheapest(g, order, 1, p))
            return;
        best->smallest = fmin(best->smallest, weights_of(p, order));
        if (!largest_rank(g, order, budget, p))
            continue;
        double kept = kept_by_sweep(p, order);
        if (kept > best->kept) {
            best->kept = kept;
            best->count = order;
            memcpy(best->p, p, sizeof p);
        }
    }
}

danaus_status danaus_patterns_fit(
    int64_t rows, int64_t cols, int64_t parameters, danaus_pattern *patterns,
    int capacity, int *count)
{
    if (!patterns || !count)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a place for the chain is needed");
    choice best = { .p = { { 1, rows, cols, 1 } }, .count = 1 };
    TRY(danaus_patterns_check(best.p, 1));
    if (parameters >= rows * cols)
        return dn_patterns_deliver(best.p, 1, patterns, capacity, count);
    best.smallest = fmin((double)rows + (double)cols, (double)rows * (double)cols);
    lattice g;
    danaus_status status = lattice_make(&g, rows, cols, 1);
    if (status == DANAUS_OK)
        choose(&g, (double)parameters, &best);
    lattice_free(&g);
    TRY(status);
    int64_t rank = parameters / (rows + cols);
    if (best.kept == 0 && rank < 1)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "no chain for %" PRId64 " x %" PRId64 " has at most %" PRId64
            " parameters; the smallest has %.0f",
            rows, cols, parameters, best.smallest);
    if (best.kept == 0) { /* sizes without common structure: low rank */
        best.count = 2;
        best.p[0] = (danaus_pattern){ 1, rows, rank, 1 };
        best.p[1] = (danaus_pattern){ 1, rank, cols, 1 };
    }
    return dn_patterns_deliver(best.p, best.count, patterns, capacity, count);
}
