/* Tensors of 8-bit integers with a tensor of scales. */
// SPDX-License-Identifier: Apache-2.0
#include "io/int8.h"

#include "base/dtype.h"
#include "base/int8.h"

#include <math.h>
#include <string.h>

/* An element of a tensor, and its scale. */
typedef struct scale_cursor {
    int64_t at[DANAUS_MAX_DIMS], scale;
    int64_t step[DANAUS_MAX_DIMS]; /* of the scale; 0 where its size is 1 */
} scale_cursor;

int64_t dn_int8_count(const danaus_tensor *t)
{
    int64_t count = 1;
    for (int i = 0; i < t->ndim; i++)
        count *= t->shape[i];
    return count;
}

int dn_int8_fits(const danaus_tensor *t, const danaus_tensor *scale)
{
    int fits = t->ndim == scale->ndim && scale->dtype != DANAUS_I8 &&
               !dn_is_complex(scale->dtype);
    for (int i = 0; i < t->ndim && fits; i++)
        fits = scale->shape[i] == t->shape[i] || scale->shape[i] == 1;
    return fits;
}

static scale_cursor begin(const danaus_tensor *scale)
{
    scale_cursor c = { .scale = 0 };
    int64_t step = 1;
    for (int i = scale->ndim - 1; i >= 0; i--) {
        c.step[i] = scale->shape[i] > 1 ? step : 0;
        step *= scale->shape[i];
    }
    return c;
}

static void step_on(scale_cursor *c, const danaus_tensor *t)
{
    for (int i = t->ndim - 1; i >= 0; i--) {
        c->scale += c->step[i];
        if (++c->at[i] < t->shape[i])
            return;
        c->scale -= c->at[i] * c->step[i];
        c->at[i] = 0;
    }
}

static float number_at(const danaus_tensor *t, int64_t at)
{
    double value[2];
    dn_load(t->dtype, t->data, at, value);
    return (float)value[0];
}

void dn_int8_widen(const danaus_tensor *t, const danaus_tensor *scale, float *to)
{
    scale_cursor c = begin(scale);
    for (int64_t n = 0, count = dn_int8_count(t); n < count; n++, step_on(&c, t))
        to[n] = ((const int8_t *)t->data)[n] * number_at(scale, c.scale);
}

void dn_int8_narrow(const danaus_tensor *t, const danaus_tensor *scale, int8_t *to)
{
    float *scales = (float *)(uintptr_t)scale->data;
    int64_t count = dn_int8_count(t), rows = dn_int8_count(scale);
    scale_cursor c = begin(scale);
    memset(scales, 0, (size_t)rows * sizeof *scales);
    for (int64_t n = 0; n < count; n++, step_on(&c, t)) {
        float magnitude = fabsf(number_at(t, n));
        if (!(magnitude <= scales[c.scale])) /* NaN stays */
            scales[c.scale] = isnan(scales[c.scale]) ? NAN : magnitude;
    }
    for (int64_t n = 0; n < rows; n++)
        scales[n] = dn_int8_scale(scales[n]);
    c = begin(scale);
    for (int64_t n = 0; n < count; n++, step_on(&c, t))
        to[n] = dn_int8_round(number_at(t, n), scales[c.scale]);
}

/* `count` weights that are `step` apart and share a scale. */
static void round_row(float *row, int64_t count, int64_t step)
{
    float most = 0;
    for (int64_t k = 0; k < count; k++)
        if (!(fabsf(row[k * step]) <= most))
            most = fabsf(row[k * step]);
    float scale = dn_int8_scale(most);
    for (int64_t k = 0; k < count && isfinite(scale); k++)
        row[k * step] = scale * dn_int8_round(row[k * step], scale);
}

void dn_int8_round_blocks(int64_t blocks, int64_t c, int64_t d, float *w)
{
    for (int64_t block = 0; block < blocks; block++)
        for (int64_t j = 0; j < d; j++)
            round_row(w + block * c * d + j, c, d);
}
