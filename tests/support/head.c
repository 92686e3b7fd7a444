/* The head of masked language models. */
// SPDX-License-Identifier: Apache-2.0
#include "support/head.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

#define PLACE "cls.predictions."

void head_add_random(rng *r, named_arrays *to, int64_t width, int64_t words)
{
    const int64_t square[] = { width, width }, table[] = { words, width };
    double size = 1.5 / sqrt((double)width);
    uint64_t bias = rng_next(r);
    named_add_random(r, to, 2, square, 0, size, PLACE "transform.dense.weight");
    named_add_random(r, to, 1, &width, 0, 0.5, PLACE "transform.dense.bias");
    named_add_random(r, to, 1, &width, 1, 0.5, PLACE "transform.LayerNorm.weight");
    named_add_random(r, to, 1, &width, 0, 0.5, PLACE "transform.LayerNorm.bias");
    if (rng_int(r, 0, 1))
        named_add_random(r, to, 2, table, 0, 1, PLACE "decoder.weight");
    int64_t names = rng_int(r, 1, 3);
    if (names & 1)
        named_add_random(&(rng){ bias }, to, 1, &words, 0, 0.5, PLACE "decoder.bias");
    if (names & 2)
        named_add_random(&(rng){ bias }, to, 1, &words, 0, 0.5, PLACE "bias");
}

/* Finds a tensor of a head, whose names have no prefix. */
static const danaus_tensor *find(const named_arrays *arrays, const char *name)
{
    for (int i = 0; i < arrays->count; i++)
        if (!strncmp(arrays->name[i], PLACE, strlen(PLACE)) &&
            !strcmp(arrays->name[i] + strlen(PLACE), name))
            return &arrays->tensor[i];
    return NULL;
}

static double activate(danaus_activation a, double v)
{
    switch (a) {
    case DANAUS_RELU: return v < 0 ? 0 : v;
    case DANAUS_GELU: return v / 2 * erfc(-v / sqrt(2));
    case DANAUS_SILU: return v / (1 + exp(-v));
    default: return v / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (v + 0.044715 * v * v * v)));
    }
}

/* y = table x + bias */
static void multiply(
    const danaus_tensor *table, const danaus_tensor *bias, const double *x, double *y,
    rng *noise)
{
    int64_t rows = table->shape[0], cols = table->shape[1];
    for (int64_t r = 0; r < rows; r++) {
        double sum = named_at(bias, r), size = fabs(sum);
        for (int64_t c = 0; c < cols; c++) {
            sum += named_at(table, r * cols + c) * x[c];
            size += fabs(named_at(table, r * cols + c) * x[c]);
        }
        y[r] = noisy(sum, size, (double)cols + 1, noise);
    }
}

static void normalize(const named_arrays *arrays, int64_t n, double *x, rng *noise)
{
    const danaus_tensor *scale = find(arrays, "transform.LayerNorm.weight");
    const danaus_tensor *shift = find(arrays, "transform.LayerNorm.bias");
    double mean = 0, square = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        mean += x[i] / (double)n;
        size += fabs(x[i]) / (double)n;
    }
    mean = noisy(mean, size, (double)n, noise);
    for (int64_t i = 0; i < n; i++)
        square += (x[i] - mean) * (x[i] - mean) / (double)n;
    for (int64_t i = 0; i < n; i++) {
        double y = (x[i] - mean) / sqrt(square + 1e-12) * named_at(scale, i) +
                   named_at(shift, i);
        x[i] = noisy(y, fabs(y) + fabs(named_at(shift, i)), 6 + (double)n, noise);
    }
}

void head_scores(
    const named_arrays *arrays, const danaus_tensor *word, danaus_activation activation,
    const double *row, double *scores, rng *noise)
{
    double x[HEAD_MOST_WIDTH];
    const danaus_tensor *table = find(arrays, "decoder.weight");
    const danaus_tensor *bias = find(arrays, "decoder.bias");
    int64_t n = word->shape[1];
    assert_true(n <= HEAD_MOST_WIDTH);
    multiply(
        find(arrays, "transform.dense.weight"), find(arrays, "transform.dense.bias"),
        row, x, noise);
    for (int64_t i = 0; i < n; i++)
        x[i] = noisy(activate(activation, x[i]), fabs(x[i]), 4, noise);
    normalize(arrays, n, x, noise);
    multiply(
        table ? table : word, bias ? bias : find(arrays, "bias"), x, scores, noise);
}
