/* Operations of models on rows, compiled once for each instruction set (DANAUS_ISA): this
   object exports one table, dn_cpu_nn_<isa>, and nothing else. Loops over the numbers of a
   row are plain, so that compilers turn them into vectors. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/isa/exp.h"
#include "cpu/isa/vec.h"
#include "cpu/nn/nn.h"

#include <math.h>

#define CAT_(a, b)    a##b
#define CAT(a, b)     CAT_(a, b)
#define ALWAYS_INLINE inline __attribute__((always_inline))

/* ---- sums over a row ---- */

static float sum(const float *x, int64_t n)
{
    vf total = vf_set1(0);
    int64_t i = 0;
    for (; i + VF <= n; i += VF)
        total = vf_add(total, vf_load(x + i));
    return vf_sum(vf_add(total, vf_load_part(x + i, (int)(n - i))));
}

/* The sum of (x - mean)^2. */
static float sum_of_squares(const float *x, float mean, int64_t n)
{
    vf total = vf_set1(0), less = vf_set1(-mean);
    int64_t i = 0;
    for (; i + VF <= n; i += VF) {
        vf v = vf_add(vf_load(x + i), less);
        total = vf_fma(v, v, total);
    }
    float s = vf_sum(total);
    for (; i < n; i++)
        s += (x[i] - mean) * (x[i] - mean);
    return s;
}

static float largest(const float *x, int64_t n)
{
    float most = x[0];
    for (int64_t i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

static float dot(const float *x, const float *y, int64_t n)
{
    vf total = vf_set1(0);
    int64_t i = 0;
    for (; i + VF <= n; i += VF)
        total = vf_fma(vf_load(x + i), vf_load(y + i), total);
    int rest = (int)(n - i);
    return vf_sum(vf_fma(vf_load_part(x + i, rest), vf_load_part(y + i, rest), total));
}

/* ---- rows ---- */

static void norm(const nn_norm *o, range rows)
{
    int64_t n = o->width;
    for (int64_t r = rows.from; r < rows.to; r++) {
        const float *x = (const float *)o->x + r * n;
        float *restrict y = (float *)o->y + r * n;
        if (o->more) {
            const float *more = (const float *)o->more + r * n;
            float *sums = o->sum ? (float *)o->sum + r * n : y;
            for (int64_t i = 0; i < n; i++)
                sums[i] = x[i] + more[i];
            x = sums;
        }
        float mean = sum(x, n) / (float)n;
        float factor = 1 / sqrtf(sum_of_squares(x, mean, n) / (float)n + o->epsilon);
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * factor * o->scale[i] + o->shift[i];
    }
}

static void lookup(const nn_lookup *o, range rows)
{
    int64_t n = o->width;
    const float *words = o->word, *places = o->position, *type = o->type;
    for (int64_t r = rows.from; r < rows.to; r++) {
        const float *word = words + o->ids[r] * n;
        float *restrict y = (float *)o->y + r * n;
        for (int64_t i = 0; i < n; i++)
            y[i] = word[i];
        for (int64_t i = 0; type && i < n; i++)
            y[i] += type[i];
        const float *position = places ? places + o->positions[r] * n : NULL;
        for (int64_t i = 0; position && i < n; i++)
            y[i] += position[i];
    }
}

static void rotary(const nn_rotary *o, range rows)
{
    int64_t half = o->head / 2;
    for (int64_t r = rows.from; r < rows.to; r++) {
        const float *cosines = o->turns + o->positions[r] * o->head;
        const float *sines = cosines + half;
        float *x = (float *)o->x + r * o->pitch;
        for (int64_t at = 0; at < o->width; at += o->head) {
            float *restrict a = x + at, *restrict b = a + half;
            for (int64_t i = 0; i < half; i++) {
                float turned = a[i] * cosines[i] - b[i] * sines[i];
                b[i] = b[i] * cosines[i] + a[i] * sines[i];
                a[i] = turned;
            }
        }
    }
}

static void pool(const nn_pool *o, int64_t sequence)
{
    int64_t n = o->width, first = o->sequences.offsets[sequence];
    int64_t rows = o->first ? 1 : o->sequences.offsets[sequence + 1] - first;
    float *restrict y = o->y + sequence * n;
    for (int64_t i = 0; i < n; i++)
        y[i] = 0;
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)o->x + (first + r) * n;
        for (int64_t i = 0; i < n; i++)
            y[i] += x[i];
    }
    float factor = 1 / (float)rows;
    if (o->normalize) {
        /* As PyTorch's normalize(): no length counts as less than 1e-12. */
        float length = sqrtf(sum_of_squares(y, 0, n)) * factor;
        factor /= length > 1e-12f ? length : 1e-12f;
    }
    for (int64_t i = 0; i < n; i++)
        y[i] *= factor;
}

static void score(const nn_score *o, range words)
{
    const float *x = o->x, *table = o->table;
    int64_t n = o->width;
    for (int64_t v = words.from; v < words.to; v++)
        for (int64_t r = 0; r < o->rows; r++)
            o->y[r * o->words + v] =
                dot(x + r * n, table + v * n, n) + (o->bias ? o->bias[v] : 0);
}

/* Rows of patches; their number in an image is a square. */
static void patches(const nn_patches *o, range rows)
{
    int64_t across = o->size / o->patch, n = o->patch;
    for (int64_t r = rows.from; r < rows.to; r++) {
        int64_t image = r / (across * across), place = r % (across * across);
        const float *corner = o->x + image * o->channels * o->size * o->size +
                              (place / across * o->size + place % across) * n;
        float *y = (float *)o->y + r * o->channels * n * n;
        for (int64_t c = 0; c < o->channels; c++)
            for (int64_t line = 0; line < n; line++, y += n)
                memcpy(
                    y, corner + (c * o->size + line) * o->size, (size_t)n * sizeof *y);
    }
}

#include "cpu/nn/mix.inc"

/* ---- attention ---- */

/* C[m][n] = A[m][k] B[k][n], for matrices whose rows are lda, ldb, ldc numbers apart. */
typedef struct matrices {
    int64_t n, k;
    const float *a, *b;
    float *c;
    int64_t lda, ldb, ldc;
} matrices;

/* `rows` rows by `vecs` vectors from column j on; the last vector has `lanes`. */
static ALWAYS_INLINE void tile(
    int rows, int vecs, int lanes, const matrices *g, const float *a, float *c,
    int64_t j)
{
    vf acc[TILE_ROWS][TILE_VECS];
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
    for (int v = 0; v < vecs; v++)
        acc[r][v] = vf_set1(0);
    const float *b = g->b + j;
    for (int64_t k = 0; k < g->k; k++, b += g->ldb) {
        vf x[TILE_VECS];
        UNROLL
        for (int v = 0; v < vecs; v++)
            x[v] = lanes < VF && v == vecs - 1 ? vf_load_part(b + v * VF, lanes)
                                               : vf_load(b + v * VF);
        UNROLL
        for (int r = 0; r < rows; r++) {
            vf w = vf_set1(a[r * g->lda + k]);
            UNROLL
            for (int v = 0; v < vecs; v++)
                acc[r][v] = vf_fma(w, x[v], acc[r][v]);
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
    for (int v = 0; v < vecs; v++) {
        float *to = c + r * g->ldc + j + v * VF;
        if (lanes < VF && v == vecs - 1)
            vf_store_part(to, acc[r][v], lanes);
        else
            vf_store(to, acc[r][v]);
    }
}

/* Rows of C that are in one tile. */
static ALWAYS_INLINE void rows_of_tiles(
    int rows, const matrices *g, const float *a, float *c)
{
    int64_t j = 0;
    for (; j + TILE_VECS * VF <= g->n; j += TILE_VECS * VF)
        tile(rows, TILE_VECS, VF, g, a, c, j);
    for (; j + VF <= g->n; j += VF)
        tile(rows, 1, VF, g, a, c, j);
    if (j < g->n)
        tile(rows, 1, (int)(g->n - j), g, a, c, j);
}

static void multiply(const matrices *g, int64_t rows)
{
    int64_t r = 0;
    for (; r + TILE_ROWS <= rows; r += TILE_ROWS)
        rows_of_tiles(TILE_ROWS, g, g->a + r * g->lda, g->c + r * g->ldc);
    for (; r < rows; r++)
        rows_of_tiles(1, g, g->a + r * g->lda, g->c + r * g->ldc);
}

/* exp(x - the largest) in place, without the division; returns the sum. */
static float exponentials(float *x, int64_t n)
{
    float most = largest(x, n);
    for (int64_t i = 0; i < n; i++)
        x[i] = exp_minus_f(most - x[i]);
    return sum(x, n);
}

static void likelihood(const nn_likelihood *o, range rows)
{
    for (int64_t r = rows.from; r < rows.to; r++) {
        float *x = o->x + r * o->width;
        int32_t target = o->targets[r];
        float less = target < 0 ? 0 : x[target] - largest(x, o->width);
        o->y[r] = target < 0 ? 0 : less - logf(exponentials(x, o->width));
    }
}

/* The keys that a query of a sequence sees. */
static range keys_of(const nn_attention *o, int64_t query, int64_t length)
{
    if (!o->window)
        return (range){ 0, length };
    return (range){ MAX(query - o->window + 1, 0), MIN(query + o->window, length) };
}

/* Turns a query's scores of some keys into weights, 0 for keys that it does not see. Returns
   their sum. */
static float weigh(float *scores, range all, range seen)
{
    int64_t before = seen.from - all.from, after = all.to - seen.to;
    memset(scores, 0, (size_t)before * sizeof *scores);
    memset(scores + seen.to - all.from, 0, (size_t)after * sizeof *scores);
    return exponentials(scores + before, seen.to - seen.from);
}

/* Adds the bias of some keys, if there is one, to a query's scores of them. */
static void add_bias(
    const nn_attention *o, int64_t head, int64_t query, range keys, float *scores)
{
    if (!o->bias)
        return;
    const float *bias = o->bias + head * (2 * o->reach + 1), *of = bias + o->reach;
    int64_t near = MIN(MAX(query - o->reach, keys.from), keys.to);
    int64_t far = MIN(MAX(query + o->reach, near), keys.to);
    scores -= keys.from;
    for (int64_t s = keys.from; s < near; s++)
        scores[s] += bias[0];
    for (int64_t s = near; s < far; s++)
        scores[s] += of[s - query];
    for (int64_t s = far; s < keys.to; s++)
        scores[s] += of[o->reach];
}

static void attention(
    const nn_attention *o, int64_t first, int64_t length, int64_t head, float *scratch)
{
    int64_t width = o->width, n = o->pitch ? o->pitch : width, d = width / o->heads;
    int64_t padded = ROUND_UP(length, NN_KEYS_UNIT), at = first * n + head * d;
    float *keys = scratch; /* [d][padded]; keys beyond the length may hold anything */
    float *scores = keys + d * padded, *queries = scores + NN_QUERIES * padded;
    const float *q = (const float *)o->q + at, *k = (const float *)o->k + at;
    float scale = 1 / sqrtf((float)d);
    for (int64_t t = 0; t < length; t++)
        for (int64_t i = 0; i < d; i++)
            keys[i * padded + t] = k[t * n + i];
    matrices qk = { 0, d, queries, NULL, scores, d, padded, padded };
    matrices pv = { d, 0, scores, NULL, NULL, padded, n, width };
    for (int64_t t = 0; t < length; t += NN_QUERIES) {
        int64_t rows = MIN(length - t, NN_QUERIES);
        range all = { keys_of(o, t, length).from, keys_of(o, t + rows - 1, length).to };
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < d; i++)
                queries[r * d + i] = q[(t + r) * n + i] * scale;
        qk.n = pv.k = all.to - all.from;
        qk.b = keys + all.from;
        multiply(&qk, rows);
        float sums[NN_QUERIES];
        for (int64_t r = 0; r < rows; r++) {
            add_bias(o, head, t + r, all, scores + r * padded);
            sums[r] = weigh(scores + r * padded, all, keys_of(o, t + r, length));
        }
        pv.b = (const float *)o->v + at + all.from * n;
        pv.c = (float *)o->y + (first + t) * width + head * d;
        multiply(&pv, rows);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < d; i++)
                pv.c[r * width + i] /= sums[r];
    }
}

/* ---- gradients ---- */

static void norm_gradient(const nn_norm_gradient *o, range rows)
{
    int64_t n = o->width;
    for (int64_t r = rows.from; r < rows.to; r++) {
        const float *x = o->x + r * n, *dy = o->dy + r * n;
        float *dx = o->dx + r * n, total = 0, along = 0;
        float mean = sum(x, n) / (float)n;
        float factor = 1 / sqrtf(sum_of_squares(x, mean, n) / (float)n + o->epsilon);
        for (int64_t i = 0; i < n; i++) {
            float g = dy[i] * o->scale[i];
            total += g;
            along += g * (x[i] - mean);
        }
        total /= (float)n;
        along *= factor * factor / (float)n;
        for (int64_t i = 0; i < n; i++)
            dx[i] = factor * (dy[i] * o->scale[i] - total - along * (x[i] - mean));
    }
}

/* The derivative of s x for the logistic function s of v: s + x s (1 - s) v'(x). */
static inline float logistic_slope(float x, float size_of_v, float v_slope)
{
    float e = exp_minus_f(size_of_v), q = 1 / (1 + e);
    return (x < 0 ? e * q : q) + x * (e * q * q) * v_slope;
}

static inline float slope(danaus_activation activation, float x)
{
    float a = __builtin_fabsf(x);
    if (activation == DANAUS_RELU)
        return x > 0;
    if (activation == DANAUS_SILU) {
        float b = a < EXP_MOST_F ? a : EXP_MOST_F; /* where it has reached its limit */
        return logistic_slope(x < 0 ? -b : b, b, 1);
    }
    if (activation == DANAUS_GELU_TANH) {
        float b = a < 13 ? a : 13, square = 0.044715f * b * b;
        return logistic_slope(
            x < 0 ? -b : b, 1.5957691f * b * (1 + square),
            1.5957691f * (1 + 3 * square));
    }
    /* Phi by formula 26.2.17 of Abramowitz and Stegun, within 7.5e-8. */
    a = a < 13 ? a : 13;
    float density = 0.39894228f * exp_minus_f(a * a / 2), t = 1 / (1 + 0.2316419f * a);
    float tail = density * t *
                 (0.319381530f +
                  t * (-0.356563782f +
                       t * (1.781477937f + t * (-1.821255978f + t * 1.330274429f))));
    return x < 0 ? tail - a * density : 1 - tail + a * density;
}

#define SLOPES(activation)                                                             \
    case activation:                                                                   \
        for (int64_t i = n.from; i < n.to; i++)                                        \
            o->dx[i] = slope(activation, o->x[i]) * o->dy[i];                          \
        break;

static void activation_gradient(const nn_activation_gradient *o, range n)
{
    switch (o->activation) {
        SLOPES(DANAUS_RELU)
        SLOPES(DANAUS_GELU)
        SLOPES(DANAUS_SILU)
        SLOPES(DANAUS_GELU_TANH)
    default: memmove(o->dx + n.from, o->dy + n.from, (size_t)(n.to - n.from) * 4);
    }
}

/* to[cols][ld] = from[rows][from_ld] turned. */
static void turn(
    int64_t rows, int64_t cols, const float *from, int64_t from_ld, float *to,
    int64_t ld)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            to[c * ld + r] = from[r * from_ld + c];
}

/* With P the softmax of each row of S = Q K^T / sqrt(d), and a bias:
       dV = P^T dY,  dP = dY V^T,  dS = P (dP - the sum of P dP),
       dQ = dS K / sqrt(d),  dK = dS^T Q / sqrt(d). */
static void attention_gradient(
    const nn_attention_gradient *o, int64_t first, int64_t length, int64_t head,
    float *scratch)
{
    const nn_attention *of = &o->of;
    int64_t n = of->width, d = n / of->heads, at = first * n + head * d;
    int64_t padded = ROUND_UP(length, NN_KEYS_UNIT);
    float *keys = scratch, *values = keys + d * padded, *p = values + d * padded;
    float *dp = p + length * padded, *turned = dp + length * padded;
    float scale = 1 / sqrtf((float)d);
    const float *q = (const float *)of->q + at, *k = (const float *)of->k + at;
    turn(length, d, k, n, keys, padded);
    turn(length, d, (const float *)of->v + at, n, values, padded);
    matrices qk = { length, d, q, keys, p, n, padded, padded };
    multiply(&qk, length);
    matrices yv = { length, d, o->dy + at, values, dp, n, padded, padded };
    multiply(&yv, length);
    for (int64_t t = 0; t < length; t++) {
        float *row = p + t * padded, *drow = dp + t * padded, mean = 0;
        for (int64_t s = 0; s < length; s++)
            row[s] *= scale;
        add_bias(of, head, t, (range){ 0, length }, row);
        float total = exponentials(row, length);
        for (int64_t s = 0; s < length; s++) {
            row[s] /= total;
            mean += row[s] * drow[s];
        }
        for (int64_t s = 0; s < length; s++)
            drow[s] = row[s] * (drow[s] - mean) * scale;
    }
    turn(length, length, p, padded, turned, padded);
    matrices dv = { d, length, turned, o->dy + at, o->dv + at, padded, n, n };
    multiply(&dv, length);
    matrices dq = { d, length, dp, k, o->dq + at, padded, n, n };
    multiply(&dq, length);
    turn(length, length, dp, padded, turned, padded);
    matrices dk = { d, length, turned, q, o->dk + at, padded, n, n };
    multiply(&dk, length);
}

extern const struct nn_code CAT(dn_cpu_nn_, DANAUS_ISA);

const struct nn_code CAT(dn_cpu_nn_, DANAUS_ISA) = { norm,
                                                     lookup,
                                                     attention,
                                                     rotary,
                                                     pool,
                                                     sine,
                                                     turn_rows,
                                                     short_conv,
                                                     multiply_numbers,
                                                     outer,
                                                     contract,
                                                     likelihood,
                                                     gate,
                                                     score,
                                                     norm_gradient,
                                                     attention_gradient,
                                                     activation_gradient,
                                                     patches };
