/* Weights on their way into a row's order, on as many threads as they are worth. */
// SPDX-License-Identifier: Apache-2.0
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
    packing q = { g, units, each, packed };
    threads = MIN(MIN(threads, MOST_THREADS), worth);
    if (threads > 1 && dn_pool_create((int)threads, &pool) != DANAUS_OK)
        pool = NULL; /* then this thread does all */
    dn_pool_run(pool, (int)tasks, pack_task, &q);
    dn_pool_destroy(pool);
}

float dn_gpu_round(float v, int dropped)
{
    uint32_t bits, unit = UINT32_C(1) << dropped;
    memcpy(&bits, &v, sizeof bits);
    if ((bits >> 23 & 0xff) != 0xff)
        bits = (bits + unit / 2) & ~(unit - 1);
    memcpy(&v, &bits, sizeof bits);
    return v;
}

void dn_gpu_cut(float *w, float *rest, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        float high = dn_gpu_round(w[i], DN_DROP_TF32);
        if (rest)
            rest[i] = dn_gpu_round(w[i] - high, DN_DROP_TF32);
        w[i] = high;
    }
}

static void round_at(char *number, int dropped)
{
    float v;
    memcpy(&v, number, sizeof v);
    v = dn_gpu_round(v, dropped);
    memcpy(number, &v, sizeof v);
}

void dn_gpu_operand(const gpu_operand *o, int64_t r0, int64_t k0, char *to)
{
    const int64_t *s = o->w->s;
    danaus_pattern q = o->p->pattern;
    int64_t element = dn_size_of(o->p->dtype), per = 4 / element;
    for (int64_t t = 0; t < 32; t++)
        for (int64_t v = 0; v < 4; v++)
            for (int64_t e = 0; e < per; e++) {
                int64_t r = r0 + t / 4 + v % 2 * 8;
                int64_t k = k0 + t % 4 * o->thread + v / 2 * o->half + e;
                if (r >= q.b || k >= q.c)
                    continue;
                char *at = to + t * 16 + v * 4 + e * element;
                dn_weights_gather(
                    o->w, o->from + r * s[1] + k * s[2], 0, 1, o->p->dtype, at);
                if (o->split || element == 4)
                    round_at(at, o->split ? DN_DROP_22 : DN_DROP_TF32);
            }
}
