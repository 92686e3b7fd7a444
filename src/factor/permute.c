/* Permutations that bring a matrix near to a chain of two factors.

   The chain's q groups of rows and p groups of columns make p q blocks of rank r. Rows and
   columns in turn trade groups (exchange.h). The cost of a row in a group is its energy outside
   the group's subspaces, those of the present blocks. This is k-subspaces with groups of fixed
   size. It stops early, because a row's own entries draw the subspaces of its group to it. So
   the first rounds use the cost of a row in its own group without its part in the subspace:
   with b = u s v the residual of a row grows by 1 / (1 - |u_row|^2)^2 (leave-one-out, as in
   cross-validation of least squares). When these rounds end, some members trade places at
   random, and the rounds start again from the best labels so far. The last rounds have no
   correction and start from the best labels; none of their steps raises the error. */
// SPDX-License-Identifier: Apache-2.0
#include "danaus/factorize.h"

#include "factor/exchange.h"
#include "product/patterns.h"
#include "factor/survey.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "math/lapack.h"
#include "math/lapack_library.h"
#include "math/pattern.h"
#include "math/svd.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

enum { ROUNDS = 100, PATIENCE = 6 };

/* Exchanges below so much of ||W||^2 are rounding; a better error is better by so much. */
#define LEAST  1e-12
#define BETTER 1e-6

/* The most that a row's part in its subspace counts: 1 - |u_row|^2 is at least this. */
#define LEAST_REST 1e-3

/* Rows of W (side 0) or columns (side 1). */
typedef struct order_side {
    ks_members members;
    int kept;         /* they stay where they are */
    int64_t *best;    /* labels of the least error */
    int64_t *place;   /* the group of each place */
    ks_trader *room;  /* two for each member */
    double *entries;  /* [n][m]: W, or its adjoint */
    double *parts;    /* [groups of the other side][n][m / groups]: sorted by them */
    double *energies; /* [groups of the other side][n]: of the rows of parts */
    double *cost;     /* [n][groups] */
    dn_svd svd;       /* of a block */
} order_side;

typedef struct order_search {
    const danaus_permute_desc *desc;
    int complex, discount;
    int64_t rank;
    order_side side[2];
    double scale, energy, error, least; /* squares; least: of the labels `best` */
    thread_pool *pool;
} order_search;

/* ---- checks ---- */

static danaus_status check(
    const void *dense, danaus_dtype dtype, const danaus_pattern *patterns, int count,
    const danaus_permute_desc *desc, const int64_t *rows, const int64_t *cols)
{
    int transposed;
    if (!dense || !rows || !cols)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a matrix and places for two permutations are needed");
    TRY(dn_check_reserved(desc->reserved, sizeof desc->reserved));
    if (desc->rounds < 0 || desc->threads < 0)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "numbers of rounds and threads are not negative");
    if (dtype != DANAUS_F32 && dtype != DANAUS_F64 && dtype != DANAUS_C64 &&
        dtype != DANAUS_C128)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "matrices of type %s cannot be permuted",
            danaus_dtype_name(dtype));
    TRY(dn_patterns_direction(patterns, count, &transposed));
    if (count != 2 || patterns[0].a != 1 || patterns[1].d != 1)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "permutations are found for two factors (1, b, c, q) (p, b, c, 1)");
    if (dn_pattern_rows(patterns[0]) > INT_MAX ||
        dn_pattern_cols(patterns[1]) > INT_MAX)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "a matrix of %" PRId64 " x %" PRId64 " is too large for LAPACK",
            dn_pattern_rows(patterns[0]), dn_pattern_cols(patterns[1]));
    return DANAUS_OK;
}

/* ---- memory ---- */

static double *numbers(const order_search *s, int64_t rows, int64_t cols)
{
    int64_t count;
    if (dn_mul_overflows(rows, cols, &count))
        return NULL;
    return dn_calloc((size_t)count, (s->complex ? 2 : 1) * sizeof(double));
}

static danaus_status make_side(order_search *s, int x, const int64_t *classes)
{
    order_side *of = &s->side[x], *other = &s->side[1 - x];
    int64_t n = of->members.n, m = other->members.n, groups = other->members.groups;
    of->members.classes = classes;
    of->members.label = dn_calloc((size_t)n, sizeof(int64_t));
    of->best = dn_calloc((size_t)n, sizeof(int64_t));
    of->place = dn_calloc((size_t)n, sizeof(int64_t));
    of->room = dn_calloc((size_t)n, 2 * sizeof *of->room);
    of->entries = numbers(s, n, m);
    of->parts = numbers(s, n, m);
    of->energies = dn_calloc((size_t)n, (size_t)groups * sizeof(double));
    of->cost = dn_calloc((size_t)n, (size_t)of->members.groups * sizeof(double));
    if (!of->members.label || !of->best || !of->place || !of->room || !of->entries ||
        !of->parts || !of->energies || !of->cost)
        return dn_fail(DANAUS_ERR_MEMORY, "no memory to search permutations");
    of->svd = (dn_svd){ .complex = s->complex,
                        .m = n / of->members.groups,
                        .n = m / groups,
                        .rank = s->rank,
                        .sigma = DN_SIGMA_LEFT };
    return dn_svd_plan(&of->svd);
}

static void free_side(order_side *of)
{
    dn_free(of->members.label);
    dn_free(of->best);
    dn_free(of->place);
    dn_free(of->room);
    dn_free(of->entries);
    dn_free(of->parts);
    dn_free(of->energies);
    dn_free(of->cost);
}

/* Rows i = i mod q of one group, and columns of p groups one after the other. */
static void label_places(order_search *s)
{
    order_side *rows = &s->side[0], *cols = &s->side[1];
    for (int64_t i = 0; i < rows->members.n; i++)
        rows->place[i] = i % rows->members.groups;
    for (int64_t j = 0; j < cols->members.n; j++)
        cols->place[j] = j / (cols->members.n / cols->members.groups);
    for (int x = 0; x < 2; x++) {
        size_t bytes = (size_t)s->side[x].members.n * sizeof(int64_t);
        memcpy(s->side[x].members.label, s->side[x].place, bytes);
        memcpy(s->side[x].best, s->side[x].place, bytes);
    }
}

static void read_matrix(order_search *s, const ks_dense *w)
{
    ks_view view = dn_view_dense(
        w->data, w->dtype, w->cols, (danaus_pattern){ 1, w->rows, w->cols, 1 }, 0,
        s->scale);
    dn_view_read(&view, s->side[0].entries);
    dn_adjoint(
        s->complex, w->rows, w->cols, (dn_matrix){ s->side[0].entries, w->cols },
        (dn_matrix){ s->side[1].entries, w->rows });
}

/* ---- what a member costs each group ---- */

/* One side trades; the other stays. */
typedef struct turn {
    order_search *s;
    order_side *of;
    const ks_members *other;
    double *dropped; /* of each group: the error of its blocks */
    danaus_status *status;
} turn;

/* The entries of group h of the other side beside each other, and their energies. */
static void sort_part(void *arg, int h)
{
    turn *t = arg;
    int64_t n = t->of->members.n, m = t->other->n, size = t->of->svd.n, at = 0;
    int64_t w = t->s->complex ? 2 : 1;
    double *part = t->of->parts + h * n * size * w, *energy = t->of->energies + h * n;
    for (int64_t j = 0; j < m; j++) {
        if (t->other->label[j] != h)
            continue;
        for (int64_t i = 0; i < n; i++)
            for (int64_t x = 0; x < w; x++)
                part[(i * size + at) * w + x] = t->of->entries[(i * m + j) * w + x];
        at++;
    }
    for (int64_t i = 0; i < n; i++)
        energy[i] =
            dn_energy(t->s->complex, 1, size, (dn_matrix){ part + i * size * w, size });
}

/* A block of group g, its factors, and places for products of rows. */
typedef struct cut_block {
    double *b, *u, *v, *length, *scratch;
} cut_block;

static int64_t block_doubles(const turn *t)
{
    const dn_svd *svd = &t->of->svd;
    int64_t w = t->s->complex ? 2 : 1, r = svd->rank;
    return w * (svd->m * svd->n + svd->m * r + r * svd->n) + r + svd->scratch;
}

static cut_block block_of(const turn *t, double *memory)
{
    const dn_svd *svd = &t->of->svd;
    int64_t w = t->s->complex ? 2 : 1, r = svd->rank;
    cut_block k = { .b = dn_take(&memory, w * svd->m * svd->n) };
    k.u = dn_take(&memory, w * svd->m * r);
    k.v = dn_take(&memory, w * r * svd->n);
    k.length = dn_take(&memory, r);
    k.scratch = memory;
    return k;
}

/* Adds to the costs in group g of rows [from, from + svd.m) of a part their energy outside the
   subspace v. */
static void add_costs(turn *t, int64_t g, int64_t h, int64_t from, const cut_block *k)
{
    const order_side *of = t->of;
    int64_t w = t->s->complex ? 2 : 1, size = of->svd.n, r = of->svd.rank;
    double *part = of->parts + (h * of->members.n + from) * size * w;
    dn_gemm gemm = {
        .complex = t->s->complex, .adjoint_b = 1, .m = of->svd.m, .n = r, .k = size
    };
    dn_gemm_run(
        &gemm, (dn_matrix){ part, size }, (dn_matrix){ k->v, size },
        (dn_matrix){ k->u, r });
    for (int64_t i = 0; i < of->svd.m; i++) {
        double kept =
            dn_energy(t->s->complex, 1, r, (dn_matrix){ k->u + i * r * w, r });
        double all = of->energies[h * of->members.n + from + i];
        of->cost[(from + i) * of->members.groups + g] += fmax(0, all - kept);
    }
}

/* The rows of the block in v's subspace cost more when they have no part in it. u holds
   u s, whose columns have the lengths s. */
static void discount_own(turn *t, int64_t g, int64_t h, const cut_block *k)
{
    const order_side *of = t->of;
    int64_t w = t->s->complex ? 2 : 1, r = of->svd.rank, at = 0;
    for (int64_t c = 0; c < r; c++)
        k->length[c] =
            dn_energy(t->s->complex, of->svd.m, 1, (dn_matrix){ k->u + c * w, r });
    for (int64_t i = 0; i < of->members.n; i++) {
        if (of->members.label[i] != g)
            continue;
        double part = 0, kept = 0;
        for (int64_t c = 0; c < r; c++) {
            double here = dn_energy(
                t->s->complex, 1, 1, (dn_matrix){ k->u + (at * r + c) * w, r });
            part += k->length[c] > 0 ? here / k->length[c] : 0;
            kept += here;
        }
        double rest = fmax(1 - part, LEAST_REST);
        double left = fmax(0, of->energies[h * of->members.n + i] - kept);
        of->cost[i * of->members.groups + g] += left * (1 / (rest * rest) - 1);
        at++;
    }
}

static void gather_block(turn *t, int64_t g, int64_t h, const cut_block *k)
{
    const order_side *of = t->of;
    int64_t width = of->svd.n * (t->s->complex ? 2 : 1), at = 0;
    for (int64_t i = 0; i < of->members.n; i++)
        if (of->members.label[i] == g)
            memcpy(
                k->b + at++ * width, of->parts + (h * of->members.n + i) * width,
                (size_t)width * sizeof(double));
}

/* Column g of cost, from all blocks of group g. */
static void cost_group(void *arg, int g)
{
    turn *t = arg;
    const dn_svd *svd = &t->of->svd;
    double *memory = dn_alloc((size_t)block_doubles(t) * sizeof *memory), dropped;
    if (!memory) {
        t->status[g] = DANAUS_ERR_MEMORY;
        return;
    }
    cut_block k = block_of(t, memory);
    for (int64_t i = 0; i < t->of->members.n; i++)
        t->of->cost[i * t->of->members.groups + g] = 0;
    for (int64_t h = 0; h < t->other->groups; h++) {
        gather_block(t, g, h, &k);
        if (dn_svd_run(
                svd, (dn_matrix){ k.b, svd->n }, (dn_matrix){ k.u, svd->rank },
                (dn_matrix){ k.v, svd->n }, &dropped, k.scratch)) {
            t->status[g] = DANAUS_ERR_DEVICE;
            break;
        }
        t->dropped[g] += dropped;
        if (t->s->discount)
            discount_own(t, g, h, &k);
        for (int64_t from = 0; from < t->of->members.n; from += svd->m)
            add_costs(t, g, h, from, &k);
    }
    dn_free(memory);
}

static danaus_status cost_groups(turn *t)
{
    danaus_status status = DANAUS_OK;
    dn_lapack_alone();
    dn_pool_run(t->s->pool, (int)t->other->groups, sort_part, t);
    dn_pool_run(t->s->pool, (int)t->of->members.groups, cost_group, t);
    dn_lapack_as_before();
    t->s->error = 0;
    for (int64_t g = 0; g < t->of->members.groups; g++) {
        t->s->error += t->dropped[g];
        if (t->status[g] != DANAUS_OK)
            status = t->status[g];
    }
    if (status == DANAUS_ERR_MEMORY)
        return dn_fail(status, "no memory to search permutations");
    return status ? dn_fail(status, "LAPACK found no singular values") : DANAUS_OK;
}

/* Finds the error of the labels as they are, and the costs of the members of side x. */
static danaus_status measure(order_search *s, int x)
{
    order_side *of = &s->side[x];
    size_t groups = (size_t)of->members.groups;
    turn t = { s, of, &s->side[1 - x].members, dn_calloc(groups, sizeof(double)),
               dn_calloc(groups, sizeof(danaus_status)) };
    danaus_status status =
        t.dropped && t.status
            ? cost_groups(&t)
            : dn_fail(DANAUS_ERR_MEMORY, "no memory to search permutations");
    dn_free(t.dropped);
    dn_free(t.status);
    return status;
}

/* ---- the search ---- */

static void copy_labels(order_search *s, int back)
{
    for (int x = 0; x < 2; x++) {
        order_side *of = &s->side[x];
        size_t bytes = (size_t)of->members.n * sizeof(int64_t);
        memcpy(
            back ? of->members.label : of->best, back ? of->best : of->members.label,
            bytes);
    }
}

/* Members of side x trade groups; *traded grows by the exchanges. */
static danaus_status step(order_search *s, int x, int64_t *traded, int *better)
{
    order_side *of = &s->side[x];
    if (of->kept || of->members.groups == 1)
        return DANAUS_OK;
    TRY(measure(s, x));
    if (s->error < s->least * (1 - BETTER)) {
        s->least = s->error;
        copy_labels(s, 0);
        *better = 1;
    }
    *traded += dn_exchange(&of->members, of->cost, LEAST * s->energy, of->room);
    return DANAUS_OK;
}

/* Rounds from the labels as they are, until nothing is traded or the error stays; *left
   is how many there may be. */
static danaus_status rounds(order_search *s, int discount, int *left)
{
    s->discount = discount;
    for (int idle = 0; *left > 0 && idle <= PATIENCE; --*left) {
        int64_t traded = 0;
        int better = 0;
        for (int x = 0; x < 2; x++)
            TRY(step(s, x, &traded, &better));
        if (!traded)
            break;
        idle = better ? 0 : idle + 1;
    }
    return DANAUS_OK;
}

static int64_t random_below(uint64_t *state, int64_t n)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)((*state >> 33) % (uint64_t)n);
}

/* Some pairs of one class trade groups, whatever that costs. */
static void disturb(order_side *of, uint64_t *state)
{
    const ks_members *m = &of->members;
    for (int64_t pair = 0; !of->kept && pair < CEIL_DIV(m->n, 8); pair++) {
        int64_t i = random_below(state, m->n), j = random_below(state, m->n);
        if (m->classes && m->classes[i] != m->classes[j])
            continue;
        int64_t label = m->label[i];
        m->label[i] = m->label[j];
        m->label[j] = label;
    }
}

static danaus_status find(order_search *s, double errors[2])
{
    int most = s->desc->rounds ? s->desc->rounds : ROUNDS, left = most;
    uint64_t state = 0;
    TRY(measure(s, 0));
    s->least = s->error;
    errors[0] = s->energy > 0 ? sqrt(s->error / s->energy) : 0;
    for (; left > 0 && s->least > LEAST * s->energy; left--) {
        TRY(rounds(s, 1, &left));
        copy_labels(s, 1);
        disturb(&s->side[0], &state);
        disturb(&s->side[1], &state);
    }
    copy_labels(s, 1);
    left = most;
    TRY(rounds(s, 0, &left));
    copy_labels(s, 1);
    TRY(measure(s, 0));
    errors[1] = s->energy > 0 ? sqrt(s->error / s->energy) : 0;
    return DANAUS_OK;
}

static danaus_status prepare(
    order_search *s, const ks_dense *w, const danaus_pattern *p)
{
    s->complex = dn_is_complex(w->dtype);
    s->side[0].members.n = w->rows;
    s->side[0].members.groups = p[0].d;
    s->side[0].kept = s->desc->keep_rows;
    s->side[1].members.n = w->cols;
    s->side[1].members.groups = p[1].a;
    s->side[1].kept = s->desc->keep_cols;
    s->rank = MIN(dn_pair_rank(p[0], p[1]), MIN(w->rows / p[0].d, w->cols / p[1].a));
    TRY(dn_survey(s->pool, w, "dense", &s->scale, &s->energy));
    TRY(make_side(s, 0, s->desc->row_classes));
    TRY(make_side(s, 1, s->desc->col_classes));
    label_places(s);
    read_matrix(s, w);
    return DANAUS_OK;
}

danaus_status danaus_find_permutations(
    const void *dense, danaus_dtype dtype, const danaus_pattern *patterns, int count,
    const danaus_permute_desc *desc, int64_t *row_permutation, int64_t *col_permutation,
    double errors[2])
{
    static const danaus_permute_desc defaults;
    int64_t *to[] = { row_permutation, col_permutation };
    double found[2];
    desc = desc ? desc : &defaults;
    TRY(check(dense, dtype, patterns, count, desc, row_permutation, col_permutation));
    ks_dense w = { dense, dtype, dn_pattern_rows(patterns[0]),
                   dn_pattern_cols(patterns[1]) };
    order_search s = { .desc = desc };
    int threads = desc->threads ? desc->threads : dn_thread_count();
    TRY(dn_lapack_begin(threads));
    danaus_status status = dn_pool_create(threads, &s.pool);
    if (status == DANAUS_OK)
        status = prepare(&s, &w, patterns);
    if (status == DANAUS_OK)
        status = find(&s, found);
    for (int x = 0; status == DANAUS_OK && x < 2; x++)
        dn_exchange_places(&s.side[x].members, s.side[x].place, s.side[x].room, to[x]);
    if (status == DANAUS_OK && errors)
        memcpy(errors, found, sizeof found);
    free_side(&s.side[0]);
    free_side(&s.side[1]);
    dn_pool_destroy(s.pool);
    dn_lapack_end(threads);
    return status;
}
