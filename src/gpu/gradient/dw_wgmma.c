/* Tiles for weight gradients with the four-warp products of compute capability 9.0:
   ks_dw_wgmma.cu for f32, ks_dw_matrix.cu and ks_dw_fours.cu for 16 bits. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/gradient/dw.h"

#define PLACES DW_PLACES

/* ---- ks_dw_wgmma.cu ---- */

/* Stages and places, of `depth` columns s; 0: they do not fit. */
static int set_places(gpu_dw *t, int64_t depth)
{
    int64_t a = 64 * t->groups_a, b = t->columns * t->groups_b;
    int64_t line_a = CEIL_DIV(a * t->lanes * 4, 128) * 128 + 32;
    int64_t line_b = CEIL_DIV(b * t->lanes * 4, 128) * 128;
    int64_t stage = t->last ? (a + b) * 128 : depth * (line_a + line_b);
    int64_t places = DW_BOX_MARGIN + PLACES * depth * 2 * t->lanes * b * 4;
    int64_t room = dn_gpu_room(90, t->resident) - places;
    t->depth = depth;
    t->stages = MIN(room / stage, DW_MOST_STAGES);
    t->shared = places + t->stages * stage;
    return t->stages > PLACES;
}

/* Three lanes are loaded one by one, and stored in lines only if A is x. */
static double by_threes(const gpu_dw *t)
{
    return t->lanes != 3 ? 1 : t->swapped ? 1.2 : 1.4;
}

/* 0: it does not fit. */
int dn_dw_complete_wgmma(gpu_dw *t, const problem *p)
{
    t->lanes = !t->last && p->pattern.d == 3 ? 3 : t->lanes;
    int64_t a = 64 * t->groups_a, b = t->columns * t->groups_b;
    int64_t groups = t->groups_a * t->groups_b, sums = t->lanes * t->columns / 2;
    if ((!t->last && t->columns * t->lanes % 32) || groups > 3 ||
        sums > (groups == 3 ? 32 : 64) || (groups == 3 && t->lanes > 2))
        return 0;
    dn_dw_set_tile(t, p, t->swapped ? b : a, t->swapped ? a : b);
    t->threads = (int)(128 * groups + 128);
    t->resident = groups == 1 ? 2 : 1;
    t->together = t->lanes;
    t->flat = t->boxes = dn_dw_is_flat(t, p);
    if (!set_places(t, 32) && (t->last || !set_places(t, 16)))
        return 0;
    double read = (double)(a * (t->groups_b + 1) + (4 + 3 * t->groups_a) * b);
    dn_dw_estimate(t, p, 1.5e14, read, by_threes(t));
    return 1;
}

void dn_dw_search_wgmma(gpu_dw t, const problem *p, gpu_dw *best)
{
    static const int64_t widths[] = { 16, 32, 48, 64, 96, 128 };
    for (t.swapped = 0; t.split && t.swapped < 2; t.swapped++)
        for (t.groups_a = 1; t.groups_a <= 3; t.groups_a++)
            for (t.groups_b = 1; t.groups_b <= 3; t.groups_b++)
                for (int i = 0; i < 6; i++) {
                    t.columns = widths[i];
                    dn_dw_try(best, t, p, dn_dw_complete_wgmma);
                }
}

/* ---- ks_dw_matrix.cu ---- */

/* True if the copy engine can fetch matrices that tensor cores read as they lie. It is slow for
   many matrices of less than a line in both directions: 128 of 48 x 48 take 304 us, and 173 us
   in ks_dw_mma.cu. */
static int has_matrices(const problem *p)
{
    danaus_pattern q = p->pattern;
    return p->layout == DANAUS_BATCH_FIRST && q.d == 1 && q.b % 8 == 0 &&
           q.c % 8 == 0 && (q.b >= 64 || q.c >= 64 || q.a <= 24);
}

/* 0: it does not fit. */
int dn_dw_complete_matrix(gpu_dw *t, const problem *p)
{
    t->depth = 64;
    t->boxes = t->together = 1;
    int64_t registers = CEIL_DIV(t->columns / 2 + 48, 8) * 8, a = 64 * t->groups_a;
    int64_t stage = (t->groups_a + CEIL_DIV(t->columns, 64)) * t->depth * 128;
    int64_t room = dn_gpu_room(90, t->resident) - DW_BOX_MARGIN;
    t->threads = (int)(128 * t->groups_a);
    dn_dw_set_tile(t, p, t->swapped ? t->columns : a, t->swapped ? a : t->columns);
    t->stages = MIN(room / stage, DW_MOST_STAGES);
    t->shared = DW_BOX_MARGIN + t->stages * stage;
    dn_dw_estimate(
        t, p, 6.5e14, 0.6 * (double)(2 * a + (t->groups_a + 1) * t->columns), 1);
    return t->stages >= 4 && t->threads * t->resident * registers <= 65536;
}

void dn_dw_search_matrix(gpu_dw t, const problem *p, gpu_dw *best)
{
    static const int64_t widths[] = { 16, 32, 48, 64, 96, 128, 192, 256 };
    for (t.swapped = 0; has_matrices(p) && t.swapped < 2; t.swapped++)
        for (t.groups_a = 1; t.groups_a <= 4; t.groups_a++)
            for (t.resident = 1; t.resident <= 2; t.resident++)
                for (int i = 0; i < 8; i++) {
                    t.columns = widths[i];
                    dn_dw_try(best, t, p, dn_dw_complete_matrix);
                }
}

/* ---- ks_dw_fours.cu ---- */

/* Sums are stored in whole lines if A is x. */
static double times_of_fours(const gpu_dw *t)
{
    double groups = t->groups_a == 3 ? 0.88 : t->groups_a == 2 ? 1 : 1.1;
    return groups * (t->swapped ? 1 : 1.06) * (t->depth < 32 ? 1.15 : 1);
}

/* 0: it does not fit. */
int dn_dw_complete_fours(gpu_dw *t, const problem *p)
{
    int64_t a = 64 * t->groups_a, b = t->columns;
    int64_t most = t->groups_a == 3 ? 48 : 64; /* sums that there are registers for */
    int64_t place = 4 * CEIL_DIV(b, 64) * t->depth * 128;
    int64_t room = dn_gpu_room(90, t->resident) - DW_BOX_MARGIN;
    int64_t stage = (a + b) * t->depth * 8;
    t->threads = (int)(128 * t->groups_a + 128);
    dn_dw_set_tile(t, p, t->swapped ? b : a, t->swapped ? a : b);
    t->boxes = 1;
    t->together = t->lanes;
    t->flat = dn_dw_is_flat(t, p);
    t->stages = MIN((room - PLACES * place) / stage, DW_MOST_STAGES);
    t->shared = DW_BOX_MARGIN + PLACES * place + t->stages * stage;
    dn_dw_estimate(
        t, p, 6e14, (double)(2 * a + (3 + t->groups_a) * b), times_of_fours(t));
    return t->flat && b <= most && t->stages > PLACES;
}

void dn_dw_search_fours(gpu_dw t, const problem *p, gpu_dw *best)
{
    int fits = t.lanes == 4 && p->pattern.d == 4;
    for (t.swapped = 0; fits && t.swapped < 2; t.swapped++)
        for (t.groups_a = 1; t.groups_a <= 3; t.groups_a++)
            for (t.columns = 16; t.columns <= 64; t.columns += 16)
                for (t.depth = 32; t.depth >= 16; t.depth /= 2) {
                    t.resident = t.groups_a == 1 ? 2 : 1;
                    dn_dw_try(best, t, p, dn_dw_complete_fours);
                }
}
