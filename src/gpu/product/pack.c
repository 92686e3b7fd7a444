/* Packs weights into a row's order, on as many threads as pay. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/product/pack_map.h"
#include "gpu/rows.h"

#include "base/dtype.h"
#include "base/thread.h"

#include <string.h>

#define MOST_THREADS 16
#define LEAST_TASK   ((int64_t)64 << 10)  /* bytes */
#define LEAST_SHARE  ((int64_t)512 << 10) /* bytes that a thread is worth */

/* Units in tasks of `each`. */
typedef struct packing {
    const gpu_packing *g;
    int64_t units, each;
    char *to;
} packing;

static void pack_task(void *arg, int task)
{
    const packing *q = arg;
    int64_t from = task * q->each, to = from + q->each;
    for (int64_t n = from; n < to && n < q->units; n++) {
        char *unit = q->to + n * q->g->bytes;
        if (!q->g->w.places)
            memset(unit, 0, (size_t)q->g->bytes);
        q->g->unit(q->g, n, unit);
    }
}

void dn_gpu_pack(const gpu_packing *g, int64_t units, void *packed)
{
    int64_t each = g->bytes < LEAST_TASK ? CEIL_DIV(LEAST_TASK, g->bytes) : 1;
    int64_t tasks = CEIL_DIV(units, each), threads = dn_thread_count();
    int64_t worth = units * g->bytes / LEAST_SHARE;
    thread_pool *pool = NULL;
    danaus_dtype type = dn_gpu_packed_type(g);
    if (g->w.places) {
        g->w.places->map->type = type;
        g->w.places->map->dropped = type == DANAUS_F32 ? g->dropped : 0;
    }
    packing q = { g, units, each, packed };
    threads = MIN(MIN(threads, MOST_THREADS), worth);
    if (threads > 1 && dn_pool_create((int)threads, &pool) != DANAUS_OK)
        pool = NULL; /* then this thread does all */
    dn_pool_run(pool, (int)tasks, pack_task, &q);
    dn_pool_destroy(pool);
}

void dn_gpu_note(const gpu_packing *g, gpu_run run)
{
    const pack_places *p = run.w->places;
    int64_t size = dn_size_of(dn_gpu_packed_type(g));
    for (int64_t i = 0; i < run.count; i++) {
        uint32_t entry = 1 + 2 * (uint32_t)(p->before + run.from + i * run.step);
        p->map->entry[((char *)run.to - p->packed) / size + i] = entry;
        if (run.rest)
            p->map->entry[((char *)run.rest - p->packed) / size + i] = entry + 1;
    }
}

static float rounded(float v, int dropped)
{
    uint32_t bits, unit = UINT32_C(1) << dropped;
    memcpy(&bits, &v, sizeof bits);
    if ((bits >> 23 & 0xff) != 0xff)
        bits = (bits + unit / 2) & ~(unit - 1);
    memcpy(&v, &bits, sizeof bits);
    return v;
}

void dn_gpu_round(int dropped, int64_t count, float *to, float *rest)
{
    for (int64_t i = 0; i < count && rest; i++)
        rest[i] = rounded(to[i] - rounded(to[i], DN_DROP_TF32), DN_DROP_TF32);
    for (int64_t i = 0; i < count; i++)
        to[i] = rounded(to[i], dropped);
}

/* An operand of a lane from element `from` on, (0, 0) of its block: of row r0, and for each
   4 bytes of columns k from k0 and t mod 4 times `thread` on, and `half` more. */
typedef struct operand {
    int64_t from, r0, k0, thread, half;
} operand;

static void pack_operand(const gpu_packing *g, operand o, char *to)
{
    const int64_t *s = g->w.s;
    danaus_pattern q = g->p->pattern;
    int64_t per = 4 / dn_size_of(g->p->dtype);
    for (int64_t t = 0; t < 32; t++)
        for (int64_t v = 0; v < 4; v++) {
            int64_t r = o.r0 + t / 4 + v % 2 * 8;
            int64_t k = o.k0 + t % 4 * o.thread + v / 2 * o.half;
            int64_t from = o.from + r * s[1] + k * s[2], left = MIN(q.c - k, per);
            if (r < q.b && left > 0)
                dn_gpu_put(
                    g, (gpu_run){ &g->w, from, s[2], left, to + t * 16 + v * 4, NULL });
        }
}

/* A unit of packing: all columns k of a tile of rows. */
static void pack_rows(const gpu_packing *g, int64_t n, char *to)
{
    const gpu_operands *all = g->shape;
    int64_t element = dn_size_of(g->p->dtype), block = n / all->row_tiles;
    int64_t beside = MAX(all->own, 1), r0 = n % all->row_tiles * all->rows;
    int64_t i = block / all->lane_tiles, j0 = block % all->lane_tiles * all->lanes;
    operand o = { .thread = (all->own ? 8 * all->own : 4) / element,
                  .half = (all->own ? 4 : 16) / element };
    for (int64_t unit = 0; unit < all->units; unit++) {
        o.k0 = (unit / beside * beside * 32 + unit % beside * 8) / element;
        for (int64_t j = j0; j < j0 + all->lanes; j++) {
            o.from = i * g->w.s[0] + j * g->w.s[3];
            for (o.r0 = r0; o.r0 < r0 + all->rows; o.r0 += 16, to += DN_OPERAND)
                if (j < g->p->pattern.d)
                    pack_operand(g, o, to);
        }
    }
}

static int64_t tiles_of(const gpu_operands *o, const problem *p)
{
    return p->pattern.a * o->lane_tiles * o->row_tiles;
}

static int64_t tile_bytes(const gpu_operands *o)
{
    return o->units * o->lanes * (o->rows / 16) * DN_OPERAND;
}

size_t dn_gpu_operand_bytes(const kernel *k, const problem *p)
{
    gpu_operands o = dn_gpu_family(k)->operands(k, p);
    return (size_t)(tiles_of(&o, p) * tile_bytes(&o));
}

void dn_gpu_pack_operands(
    const kernel *k, const problem *p, weights_view w, void *packed)
{
    gpu_operands o = dn_gpu_family(k)->operands(k, p);
    gpu_packing g = {
        k, p, w, &o, tile_bytes(&o), pack_rows, o.split ? DN_DROP_22 : DN_DROP_TF32, 0
    };
    dn_gpu_pack(&g, tiles_of(&o, p), packed);
}
