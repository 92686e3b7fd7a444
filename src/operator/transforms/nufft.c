/* Non-uniform Fourier transforms of types 1 and 2, in one dimension.

   Numbers at points x_j are spread to a grid of m >= 2 n places with the window
   phi(z) = exp(beta (sqrt(1 - z^2) - 1)), |z| <= 1, over `width` places; the grid is
   transformed; and mode k is divided by the window's own transform,
       (width/2) integral of phi(z) cos(pi width k z / m) dz.
   Type 2 is the adjoint: modes are divided, transformed and interpolated by the window.
   Points are sorted and their weights kept. Threads divide outputs and never sums: a block
   of the grid adds its points in order, so results do not depend on threads.

   Source: Barnett, Magland, af Klinteberg, A parallel nonuniform fast Fourier transform
   library based on an "exponential of semicircle" kernel, SIAM J. Sci. Comput. 41 (2019). */
// SPDX-License-Identifier: Apache-2.0
#include "danaus/transforms.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "base/thread.h"
#include "math/dft.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846

enum {
    MOST_WIDTH = 16,
    BLOCK = 2048, /* places of the grid, or points, that a thread takes at a time */
    MOST_NODES = 24 + 3 * MOST_WIDTH,
    RUN = 32 /* modes from one exact cosine to the next */
};

struct danaus_nufft_plan {
    int64_t n, points, grid_size, block;
    int width, sign;
    danaus_dtype dtype;
    thread_pool *pool; /* NULL: the caller alone */
    /* The points, in the order of the grid: the first place of each window, which point
       it is, its weights [points][width]. Block i has points first[i] to first[i + 1]. */
    int64_t *start, *point, *first;
    void *weights, *factors, *turns;
    /* While running: real parts [grid_size + MOST_WIDTH], then imaginary ones. */
    void *grid, *other, *tails;
    const void *numbers;
    void *results;
};

#define REAL     float
#define FN(name) name##_f32
#include "operator/transforms/nufft.inc"
#undef REAL
#undef FN
#define REAL     double
#define FN(name) name##_f64
#include "operator/transforms/nufft.inc"
#undef REAL
#undef FN

/* ---- making ---- */

static double beta_of(int width) { return 2.3 * width; }

static double window(int width, double z)
{
    double inside = 1 - z * z;
    return inside > 0 ? exp(beta_of(width) * (sqrt(inside) - 1)) : exp(-beta_of(width));
}

static void put(const danaus_nufft_plan *plan, void *to, int64_t at, double value)
{
    if (plan->dtype == DANAUS_C64)
        store_f32(to, at, value);
    else
        store_f64(to, at, value);
}

/* The window's transform by the midpoint rule in z = sin(t): nodes z and their weights.
   Where it is not smooth, at the ends, the window is as small as the error that is
   allowed. Returns how many there are. */
static int window_nodes(int width, double *z, double *weight)
{
    int nodes = 24 + 3 * width;
    double step = PI / 2 / nodes;
    for (int x = 0; x < nodes; x++) {
        z[x] = sin((x + 0.5) * step);
        weight[x] = width * step * cos((x + 0.5) * step) * window(width, z[x]);
    }
    return nodes;
}

/* Modes first .. first + RUN of one node: cosines by turning, from exact ones. */
static void add_node(double z, double weight, double turn, int64_t first, double *sum)
{
    double re = cos(z * turn * (double)first), im = sin(z * turn * (double)first),
           step_re = cos(z * turn), step_im = sin(z * turn);
    for (int m = 0; m < RUN; m++) {
        double next = re * step_re - im * step_im;
        sum[m] += weight * re;
        im = re * step_im + im * step_re;
        re = next;
    }
}

static void fill_factors(const danaus_nufft_plan *plan)
{
    double z[MOST_NODES], weight[MOST_NODES], sum[RUN];
    double turn = PI * plan->width / (double)plan->grid_size;
    int nodes = window_nodes(plan->width, z, weight);
    int64_t n = plan->n, half = n / 2;
    for (int64_t first = 0; first <= half; first += RUN) {
        memset(sum, 0, sizeof sum);
        for (int x = 0; x < nodes; x++)
            add_node(z[x], weight[x], turn, first, sum);
        for (int64_t mode = first; mode <= half && mode < first + RUN; mode++) {
            put(plan, plan->factors, half - mode, 1 / sum[mode - first]);
            if (half + mode < n)
                put(plan, plan->factors, half + mode, 1 / sum[mode - first]);
        }
    }
}

/* Where a point lies on the grid, in [0, grid_size). */
static double place_of(const danaus_nufft_plan *plan, double x)
{
    double turns = x / (2 * PI),
           place = (turns - floor(turns)) * (double)plan->grid_size;
    return place < (double)plan->grid_size ? place : 0;
}

/* The first place of its window, before it goes round. */
static int64_t start_of(const danaus_nufft_plan *plan, double place)
{
    return (int64_t)ceil(place - plan->width / 2.0);
}

/* Counts points by blocks, and puts each behind those of its block that came before. */
static void sort_points(danaus_nufft_plan *plan, const double *x)
{
    int64_t size = plan->grid_size, blocks = size / plan->block;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t j = 0; j < plan->points; j++) {
            double place = place_of(plan, x[j]);
            int64_t whole = start_of(plan, place), start = (whole + size) % size;
            int64_t *next = &plan->first[start / plan->block + 1];
            if (pass) {
                int64_t at = next[-1]++;
                plan->start[at] = start;
                plan->point[at] = j;
                for (int t = 0; t < plan->width; t++) {
                    double z = ((double)(whole + t) - place) / (plan->width / 2.0);
                    put(plan, plan->weights, at * plan->width + t,
                        window(plan->width, z));
                }
            } else {
                ++*next;
            }
        }
        for (int64_t i = 0; !pass && i < blocks; i++)
            plan->first[i + 1] += plan->first[i];
    }
    for (int64_t i = blocks; i > 0; i--) /* each has moved to where its block ends */
        plan->first[i] = plan->first[i - 1];
    plan->first[0] = 0;
}

static danaus_status check_points(int64_t points, const double *x)
{
    if (points < 0 || points > INT_MAX || (points && !x))
        return dn_fail(DANAUS_ERR_SHAPE, "%" PRId64 " points", points);
    for (int64_t j = 0; j < points; j++)
        if (!isfinite(x[j]))
            return dn_fail(DANAUS_ERR_ARGUMENT, "point %" PRId64 " is %g", j, x[j]);
    return DANAUS_OK;
}

static danaus_status check_desc(const danaus_nufft_desc *desc)
{
    TRY(dn_check_reserved(desc->reserved, sizeof desc->reserved));
    double least = desc->dtype == DANAUS_C64 ? 1e-6 : 1e-13;
    if (desc->dtype && desc->dtype != DANAUS_C64 && desc->dtype != DANAUS_C128)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "non-uniform transforms are of c64 or c128");
    if (desc->n < 1 || desc->n > INT64_C(1) << 28)
        return dn_fail(DANAUS_ERR_SHAPE, "%" PRId64 " modes: 1 to 2^28", desc->n);
    if (desc->tolerance != 0 && !(desc->tolerance >= least && desc->tolerance <= 0.1))
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a tolerance of %g: %g to 0.1 is possible",
            desc->tolerance, least);
    if (desc->threads < 0)
        return dn_fail(DANAUS_ERR_ARGUMENT, "%d threads", desc->threads);
    return check_points(desc->points, desc->x);
}

static danaus_status allocate(danaus_nufft_plan *plan)
{
    size_t real = danaus_dtype_size(plan->dtype) / 2, points = (size_t)plan->points,
           padded = 2 * ((size_t)plan->grid_size + MOST_WIDTH),
           blocks = (size_t)(plan->grid_size / plan->block),
           width = (size_t)plan->width;
    plan->start = dn_calloc(points + 1, sizeof *plan->start);
    plan->point = dn_calloc(points + 1, sizeof *plan->point);
    plan->first = dn_calloc(blocks + 2, sizeof *plan->first);
    plan->weights = dn_calloc((points + 1) * width, real);
    plan->factors = dn_calloc((size_t)plan->n, real);
    plan->turns = dn_calloc(2 * (size_t)plan->grid_size, real);
    plan->grid = dn_calloc(padded, real);
    plan->other = dn_calloc(padded, real);
    plan->tails = dn_calloc(2 * blocks * width, real);
    if (plan->start && plan->point && plan->first && plan->weights && plan->factors &&
        plan->turns && plan->grid && plan->other && plan->tails)
        return DANAUS_OK;
    return dn_fail(DANAUS_ERR_MEMORY, "no memory for a non-uniform transform");
}

danaus_status danaus_nufft_plan_create(
    const danaus_nufft_desc *desc, danaus_nufft_plan **plan)
{
    if (!desc || !plan)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a description and a place for the plan are needed");
    TRY(check_desc(desc));
    danaus_nufft_plan *p = dn_calloc(1, sizeof *p);
    if (!p)
        return dn_fail_memory(sizeof *p, "a plan");
    p->dtype = desc->dtype ? desc->dtype : DANAUS_C128;
    double tolerance = desc->tolerance != 0 ? desc->tolerance : 1e-6;
    p->n = desc->n;
    p->points = desc->points;
    p->sign = desc->negative ? -1 : 1;
    p->width = (int)ceil(log10(20 / tolerance)); /* 20: tests say that it suffices */
    p->grid_size = 2 * MOST_WIDTH;
    while (p->grid_size < 2 * p->n)
        p->grid_size *= 2;
    p->block = MIN(p->grid_size, BLOCK);
    int threads = desc->threads ? desc->threads : dn_thread_count();
    danaus_status status = allocate(p);
    if (status == DANAUS_OK && threads > 1)
        status = dn_pool_create(threads, &p->pool);
    if (status != DANAUS_OK) {
        danaus_nufft_plan_destroy(p);
        return status;
    }
    sort_points(p, desc->x);
    fill_factors(p);
    if (p->dtype == DANAUS_C64)
        fill_turns_f32(p);
    else
        fill_turns_f64(p);
    *plan = p;
    return DANAUS_OK;
}

void danaus_nufft_plan_destroy(danaus_nufft_plan *plan)
{
    if (!plan)
        return;
    dn_pool_destroy(plan->pool);
    dn_free(plan->start);
    dn_free(plan->point);
    dn_free(plan->first);
    dn_free(plan->weights);
    dn_free(plan->factors);
    dn_free(plan->turns);
    dn_free(plan->grid);
    dn_free(plan->other);
    dn_free(plan->tails);
    dn_free(plan);
}

/* ---- running ---- */

danaus_status danaus_nufft_type1(
    danaus_nufft_plan *plan, const void *numbers, void *modes)
{
    if (!plan || !modes || (plan->points && !numbers))
        return dn_fail(DANAUS_ERR_ARGUMENT, "a plan, numbers and modes are needed");
    if (plan->dtype == DANAUS_C64)
        type1_f32(plan, numbers, modes);
    else
        type1_f64(plan, numbers, modes);
    return DANAUS_OK;
}

danaus_status danaus_nufft_type2(
    danaus_nufft_plan *plan, const void *modes, void *numbers)
{
    if (!plan || !modes || (plan->points && !numbers))
        return dn_fail(DANAUS_ERR_ARGUMENT, "a plan, modes and numbers are needed");
    if (plan->dtype == DANAUS_C64)
        type2_f32(plan, modes, numbers);
    else
        type2_f64(plan, modes, numbers);
    return DANAUS_OK;
}
