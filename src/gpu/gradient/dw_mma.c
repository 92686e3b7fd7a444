/* Tiles of ks_dw_mma.cu, weight gradients on tensor cores from compute capability 8.0 on. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/gradient/dw.h"

#define MOST_GROUPS    4
#define BOX_GROUPS     4   /* of 16 bytes */
#define REGISTERS      512 /* of a fourth of a multiprocessor, for a warp */
#define MOST_WARPS     16
#define MOST_RESIDENT  6
#define MOST_REGISTERS 248
#define FLAT_REGISTERS 256 /* a few of them in memory */

/* Vectors of lanes that a tile may have side by side. */
static int64_t most_groups(const gpu_dw *t, const problem *p)
{
    int64_t groups = 1;
    if (t->last || t->lanes < t->vector || t->vector * t->element < 16)
        return 1;
    while (groups < MOST_GROUPS && p->pattern.d % (2 * groups * t->lanes) == 0)
        groups *= 2;
    return groups;
}

/* Columns of the batch and stages, by the room that a block has. */
static int set_stages(gpu_dw *t)
{
    int64_t margin = t->boxes ? DW_BOX_MARGIN : DW_MARGIN;
    int64_t pad = t->boxes && !t->flat ? 2 * t->together * t->element : 0;
    int64_t room = dn_gpu_room(t->fetches ? 90 : 80, t->resident) - margin;
    for (t->depth = 64; t->depth >= (t->last ? 32 : 16); t->depth /= 2) {
        int64_t lines = t->tile_r + t->tile_k;
        int64_t line_r = t->tile_r * t->together * t->element;
        int64_t line_k = t->tile_k * t->together * t->element;
        int64_t bytes = t->last ? lines * t->depth * t->element
                                : t->depth * (CEIL_DIV(line_r, 128) * 128 +
                                              CEIL_DIV(line_k, 128) * 128 + 2 * pad);
        t->stages = MIN(room / bytes, DW_MOST_STAGES);
        t->shared = margin + t->stages * bytes;
        int64_t pieces =
            t->last ? t->depth * t->element / 16 : MAX(line_r, line_k) / 16;
        if (pieces <= t->threads && t->stages >= (t->depth > 16 ? 4 : 3))
            return 1;
    }
    return 0;
}

/* Registers of a thread, roughly. */
static int64_t registers_of(const gpu_dw *t)
{
    int64_t rows = t->vector_rows, places = t->last ? 2 : t->vector;
    int64_t sums = (t->last ? 1 : t->vector) * t->tiles_r * t->tiles_k * rows * 4;
    int64_t left = t->tiles_r * places * 4, right = t->tiles_k * places * 2;
    if (t->flat && !t->split)
        return sums + (t->tiles_r + 1) * places * t->step * t->element / 8 + 40;
    if (!t->split)
        return sums + left + places * 2 + (t->vector > 4 ? 64 : 56);
    return 2 * sums + left + right + rows * (t->tiles_r * 8 + t->tiles_k * 4) + 48;
}

/* Blocks that a multiprocessor holds with so many registers a thread. */
static int64_t most_resident(int64_t warps, int64_t registers)
{
    int64_t blocks = MIN(MOST_WARPS / warps, MOST_RESIDENT);
    while (blocks && REGISTERS / CEIL_DIV(warps * blocks, 4) / 8 * 8 < registers)
        blocks--;
    return blocks;
}

/* Products a second, of the instructions that a tile takes. */
static double rate_of(const gpu_dw *t)
{
    if (t->split && t->boxes)
        return t->flat ? (t->groups > 1 ? 0.75e14 : 0.5e14) : 0.62e14;
    if (t->split)
        return t->lanes == 1 ? 0.85e14 : t->lanes == 2 ? 0.55e14 : 0.46e14;
    return t->element > 2 ? 2.2e14 : t->step == 16 ? 4.4e14 : 3.3e14;
}

int dn_dw_complete_mma(gpu_dw *t, const problem *p)
{
    int64_t warps = t->groups * t->warps_r * t->warps_k;
    t->together = t->lanes * t->groups;
    t->threads = (int)(32 * warps);
    dn_dw_set_tile(
        t, p, 16 * t->tiles_r * t->warps_r * t->vector_rows,
        8 * t->tiles_k * t->warps_k * t->vector_rows);
    t->flat = t->fetches && dn_dw_is_flat(t, p);
    t->boxes = t->flat || (t->fetches && t->split && t->groups == BOX_GROUPS);
    int64_t registers = registers_of(t);
    if (warps < 2 || warps > MOST_WARPS ||
        registers > (t->flat ? FLAT_REGISTERS : MOST_REGISTERS))
        return 0;
    t->resident = most_resident(warps, registers);
    if (!t->resident || !set_stages(t))
        return 0;
    double read = (double)(t->tile_r * (t->warps_k + 1) + t->tile_k * (t->warps_r + 1));
    int full =
        t->vector == 8 && t->tiles_r * t->tiles_k > 4; /* hardly registers left */
    dn_dw_estimate(t, p, rate_of(t), read, full ? 1.1 : 1);
    return 1;
}

/* Batch-last the text has numbers of 4 bytes alone. */
void dn_dw_search_mma(gpu_dw t, const problem *p, gpu_dw *best)
{
    int64_t most_step = t.last || t.element == 2 ? 16 : 8;
    int64_t least_step = t.last ? 16 : 8;
    if (t.last && t.element < 4)
        return;
    for (t.groups = 1; t.groups <= most_groups(&t, p); t.groups *= 2)
        for (t.warps_r = 1; t.warps_r <= 8; t.warps_r++)
            for (t.warps_k = 1; t.warps_k <= 8; t.warps_k++)
                for (t.tiles_r = 1; t.tiles_r <= 4; t.tiles_r++)
                    for (t.tiles_k = 1; t.tiles_k <= 8; t.tiles_k++)
                        for (t.step = most_step; t.step >= least_step; t.step /= 2)
                            dn_dw_try(best, t, p, dn_dw_complete_mma);
}
