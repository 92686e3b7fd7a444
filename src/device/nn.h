/* Operations of models beside products and convolutions. Rows are [rows][width], one for each
   token; all arrays are device memory. The dtype of an operation, f32 (0), f16 or bf16, is the
   type of its `void` arrays, and results are rounded to it once. All other numbers and sums
   are f32. A CPU has only f32. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_DEVICE_NN_H
#define DN_DEVICE_NN_H

#include "device/backend.h"

/* y = scale (x - mean) / sqrt(variance + epsilon) + shift for each row of x + more,
   where mean and (biased) variance are the row's. y may be x. */
typedef struct nn_norm {
    int64_t rows, width;
    const void *x, *more; /* more: or NULL */
    const float *scale, *shift;
    float epsilon;
    void *y;
    void *sum; /* gets x + more, and may be x, not y; or NULL */
    danaus_dtype dtype;
    int wide_x, wide_y; /* x and sum, or y, are f32 all the same */
} nn_norm;

/* y = word[id] + position[p] + type for each row: number p of its sequence. Positions with
   their table, and the type, may be NULL. */
typedef struct nn_lookup {
    int64_t rows, width;
    const int32_t *ids, *positions;
    const void *word, *position, *type;
    void *y;
    danaus_dtype dtype;
} nn_lookup;

/* Rows `offsets[i]` to `offsets[i + 1] - 1` are sequence i; offsets is host memory. */
typedef struct nn_sequences {
    int64_t count;
    const int64_t *offsets;
} nn_sequences;

/* For each sequence and each of `heads` slices of a row

       y[t] = sum over s of softmax over s of (q[t] . k[s] / sqrt(width / heads)) v[s]

   with s < t + window and t < s + window. */
typedef struct nn_attention {
    nn_sequences sequences;
    int64_t width, heads;
    int64_t pitch;  /* from a row of q, k and v to the next; 0: width */
    int64_t window; /* 0: all rows of the sequence */
    const void *q, *k, *v;
    void *y;
    danaus_dtype dtype;
    /* [heads][2 reach + 1] or NULL: added to scores, that of key s and query t at s - t + reach.
       The first and the last one hold for all farther keys. */
    const float *bias;
    int64_t reach;
} nn_attention;

/* Rotary positions of rows x[rows][pitch], in place. Each head of a row has pairs of numbers a, b
   that are head / 2 apart:

       a' = a cos - b sin,  b' = b cos + a sin

   with cosines in the first half of a row of `turns` and sines in the second. Row r has the row
   positions[r] of it. */
typedef struct nn_rotary {
    int64_t rows, width, pitch, head; /* width: a multiple of head, which is even */
    const int32_t *positions;
    const float *turns; /* [positions][head] */
    void *x;
    danaus_dtype dtype;
} nn_rotary;

/* The mean of each sequence's rows, or its first row; then scaled to length 1 if asked. */
typedef struct nn_pool {
    nn_sequences sequences;
    int64_t width;
    int first, normalize;
    const void *x;
    float *y; /* [count][width] */
    danaus_dtype dtype;
} nn_pool;

/* Patches of images x[images][channels][size][size], line by line: each is a row
   [channels][patch][patch] of y. A rest at the right and lower sides is not read. */
typedef struct nn_patches {
    int64_t images, channels, size, patch;
    const float *x;
    void *y;
    danaus_dtype dtype;
} nn_patches;

/* y = activation(x) for `count` numbers. y may be x. */
typedef struct nn_activation {
    int64_t count;
    danaus_activation activation;
    const float *x;
    float *y;
} nn_activation;

/* y = sin(factor scale x) for each number of each row. y may be x. */
typedef struct nn_sine {
    int64_t rows, width;
    const float *x, *scale; /* scale[width] */
    float factor;
    float *y;
} nn_sine;

/* Rows turned into channels, y[width][stride], and, where there is a decay, under a window:
       y[i][r] = x[r][i] (exp(-|decay[i]| times[r]) + shift),  times >= 0.
   With rows and channels exchanged it turns them back. */
typedef struct nn_turn {
    int64_t rows, width, stride;
    int64_t pitch;              /* from a row of x to the next; 0: width */
    const void *x, *more;       /* more: like x and added to it, or NULL */
    const float *decay, *times; /* [width], [rows]; or NULL */
    float shift;
    void *y;
    danaus_dtype dtype;
} nn_turn;

/* A causal convolution of few taps along each sequence, turned into channels:

       y[i][r] = shift[i] + sum over s < taps of k[s][i] x[r - s][i]

   for `rows` rows from row `first` of the sequences on, where x is zero before its sequence
   begins. x and y begin with that row; the rows of x that taps reach are before it. */
typedef struct nn_short {
    nn_sequences sequences;
    int64_t first, rows, width, taps, stride;
    const void *x;
    const float *k, *shift; /* [taps][width], [width] */
    void *y;                /* [width][stride] */
    danaus_dtype dtype;
} nn_short;

/* Zeros in columns [from, stride) of channels y[channels][stride]. */
typedef struct nn_pad {
    int64_t channels, from, stride;
    void *y;
    danaus_dtype dtype;
} nn_pad;

/* y[r][i] = activation(x[r][i]) x[r][width + i] for rows x[rows][2 width]. */
typedef struct nn_gate {
    int64_t rows, width;
    danaus_activation activation;
    const void *x;
    void *y;
    danaus_dtype dtype;
} nn_gate;

/* y = a b for `count` numbers. y may be a or b. */
typedef struct nn_multiply {
    int64_t count;
    const void *a, *b;
    void *y;
    danaus_dtype dtype;
    int wide_a, wide_y; /* a, or y, is f32 all the same */
} nn_multiply;

/* Products of channels [heads][size][length] within each head, and sums of such products:
       outer     y[h][i][j] = a[h][i] b[h][j]
       contract  y[h][j] = sum over i of a[h][i] b[h][i][j]. */
typedef struct nn_heads {
    int64_t heads, size, length;
    const void *a, *b;
    void *y;
    danaus_dtype dtype;
    int wide; /* products within heads, y of the one and b of the other, are f32 all the same */
} nn_heads;

/* y[r] = log of softmax over the row of x[r][target], or 0 where the target is negative. x is
   lost. */
typedef struct nn_likelihood {
    int64_t rows, width;
    float *x;
    const int32_t *targets;
    float *y;
} nn_likelihood;

/* y[r][v] = x[r] . table[v] + bias[v]: few rows against a long table, which is read once
   where it lies. */
typedef struct nn_score {
    int64_t rows, width, words;
    const void *x, *table;
    const float *bias; /* or NULL */
    float *y;          /* [rows][words] */
    danaus_dtype dtype;
} nn_score;

/* ---- gradients of a loss, from those that reached y as dy ---- */

/* dx of a normalisation of x (which has the rest of the sum in it). dx may be dy. */
typedef struct nn_norm_gradient {
    int64_t rows, width;
    const float *x, *dy, *scale;
    float epsilon;
    float *dx;
} nn_norm_gradient;

typedef struct nn_attention_gradient {
    nn_attention of; /* y is not used; there is no window, and the pitch is the width */
    const float *dy;
    float *dq, *dk, *dv;
} nn_attention_gradient;

/* dx = activation'(x) dy for `count` numbers. dx may be dy. */
typedef struct nn_activation_gradient {
    int64_t count;
    danaus_activation activation;
    const float *x, *dy;
    float *dx;
} nn_activation_gradient;

/* Cayley transforms of blocks [count][size][size] (danaus/algebra.h): y of r, or, with dq, the
   gradient y of q. y may be dq. The sign is that of K. */
typedef struct nn_cayley {
    int64_t count, size;
    int sign;
    const void *x; /* r, or q */
    const void *dq;
    void *y;
    danaus_dtype dtype;
} nn_cayley;

/* Sequences have at least one row. Work is enqueued on the device's stream. Gradients may be
   NULL: then the device has none. */
struct nn_backend {
    danaus_status (*lookup)(danaus_device *dev, const nn_lookup *o);
    danaus_status (*norm)(danaus_device *dev, const nn_norm *o);
    danaus_status (*attention)(danaus_device *dev, const nn_attention *o);
    danaus_status (*rotary)(danaus_device *dev, const nn_rotary *o);
    danaus_status (*pool)(danaus_device *dev, const nn_pool *o);
    danaus_status (*activate)(danaus_device *dev, const nn_activation *o);
    danaus_status (*sine)(danaus_device *dev, const nn_sine *o);
    danaus_status (*turn)(danaus_device *dev, const nn_turn *o);
    danaus_status (*short_conv)(danaus_device *dev, const nn_short *o);
    danaus_status (*multiply)(danaus_device *dev, const nn_multiply *o);
    danaus_status (*outer)(danaus_device *dev, const nn_heads *o);
    danaus_status (*contract)(danaus_device *dev, const nn_heads *o);
    danaus_status (*likelihood)(danaus_device *dev, const nn_likelihood *o);
    danaus_status (*pad)(danaus_device *dev, const nn_pad *o);
    danaus_status (*gate)(danaus_device *dev, const nn_gate *o);
    danaus_status (*score)(danaus_device *dev, const nn_score *o);
    danaus_status (*patches)(danaus_device *dev, const nn_patches *o);
    danaus_status (*cayley)(danaus_device *dev, const nn_cayley *o);
    danaus_status (*norm_gradient)(danaus_device *dev, const nn_norm_gradient *o);
    danaus_status (*attention_gradient)(
        danaus_device *dev, const nn_attention_gradient *o);
    danaus_status (*activation_gradient)(
        danaus_device *dev, const nn_activation_gradient *o);
};

#endif
