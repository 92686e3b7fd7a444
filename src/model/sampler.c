/* Draws a token: weights in f64, and a heap where only the likeliest tokens count. */
// SPDX-License-Identifier: Apache-2.0
#include "model/sampler.h"

#include "base/mem.h"
#include "base/random.h"
#include "base/status.h"

#include <math.h>

danaus_status dn_sampler_open(
    sampler *s, const danaus_sampling *how, int64_t vocabulary)
{
    *s = (sampler){ .how = *how, .vocabulary = vocabulary, .random = how->seed };
    s->weight = dn_calloc((size_t)vocabulary, sizeof *s->weight);
    s->order = dn_calloc((size_t)vocabulary, sizeof *s->order);
    if (s->weight && s->order)
        return DANAUS_OK;
    dn_sampler_close(s);
    return dn_fail_memory((size_t)vocabulary * sizeof *s->weight, "probabilities");
}

void dn_sampler_close(sampler *s)
{
    dn_free(s->weight);
    dn_free(s->order);
    *s = (sampler){ 0 };
}

/* ---- the likeliest, one after the other ---- */

static int is_likelier(const sampler *s, int32_t a, int32_t b)
{
    return s->weight[a] != s->weight[b] ? s->weight[a] > s->weight[b] : a < b;
}

static void sift(sampler *s, int64_t at, int64_t count)
{
    int32_t *heap = s->order, moved = heap[at];
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && is_likelier(s, heap[child + 1], heap[child]))
            child++;
        if (!is_likelier(s, heap[child], moved))
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static void make_heap(sampler *s)
{
    for (int64_t i = 0; i < s->vocabulary; i++)
        s->order[i] = (int32_t)i;
    for (int64_t i = s->vocabulary / 2; i-- > 0;)
        sift(s, i, s->vocabulary);
}

/* Number `taken` in the order of likelihood, where all before have been taken. */
static int32_t take(sampler *s, int64_t taken)
{
    int64_t last = s->vocabulary - 1 - taken;
    int32_t first = s->order[0];
    s->order[0] = s->order[last];
    sift(s, 0, last);
    s->order[last] = first;
    return first;
}

/* Takes tokens until `most` are taken or these have the weight `enough`; returns how many,
   and their weight. */
static int64_t take_likeliest(
    sampler *s, int64_t from, int64_t most, double enough, double *weight)
{
    while (from < most && *weight < enough)
        *weight += s->weight[take(s, from++)];
    return from;
}

/* Keeps the fewest of the tokens taken that together have the weight `enough`. */
static int64_t drop_unlikely(
    const sampler *s, int64_t count, double enough, double *weight)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += s->weight[s->order[s->vocabulary - 1 - i]];
        if (sum >= enough) {
            *weight = sum;
            return i + 1;
        }
    }
    return count;
}

/* Keeps the weights of the likeliest tokens that count, and makes all others 0. */
static void keep_likely(sampler *s, double total, int64_t top_k, double top_p)
{
    double weight = 0;
    int64_t count;
    make_heap(s);
    if (top_k) {
        count = take_likeliest(s, 0, top_k, INFINITY, &weight);
        if (top_p > 0)
            count = drop_unlikely(s, count, top_p * weight, &weight);
    } else {
        count = take_likeliest(s, 0, s->vocabulary, top_p * total, &weight);
    }
    for (int64_t i = 0; i < s->vocabulary - count; i++)
        s->weight[s->order[i]] = 0;
}

/* ---- picking ---- */

static int32_t likeliest(const float *logits, int64_t count)
{
    int32_t best = 0;
    for (int64_t i = 1; i < count; i++)
        if (logits[i] > logits[best])
            best = (int32_t)i;
    return best;
}

static int are_finite(const float *logits, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(logits[i]))
            return 0;
    return 1;
}

static double sum_weights(const sampler *s)
{
    double total = 0;
    for (int64_t i = 0; i < s->vocabulary; i++)
        total += s->weight[i];
    return total;
}

/* A token by its weight, in the order of ids: tokens of weight 0 change no draw. */
static int32_t draw_token(sampler *s)
{
    double left = (double)(dn_random(&s->random) >> 11) * 0x1p-53 * sum_weights(s);
    int32_t last = 0;
    for (int64_t i = 0; i < s->vocabulary; i++) {
        if (!(s->weight[i] > 0))
            continue;
        last = (int32_t)i;
        if ((left -= s->weight[i]) < 0)
            break;
    }
    return last;
}

int32_t dn_sampler_pick(sampler *s, const float *logits)
{
    int64_t count = s->vocabulary;
    if (!are_finite(logits, count))
        return -1;
    int32_t best = likeliest(logits, count);
    if (s->how.temperature == 0)
        return best;
    for (int64_t i = 0; i < count; i++) {
        double less = (double)logits[i] - logits[best];
        s->weight[i] = exp(less / s->how.temperature);
    }
    int64_t top_k = s->how.top_k < count ? s->how.top_k : 0;
    double top_p = s->how.top_p < 1 ? s->how.top_p : 0;
    if (top_k || top_p > 0)
        keep_likely(s, sum_weights(s), top_k, top_p);
    return draw_token(s);
}
