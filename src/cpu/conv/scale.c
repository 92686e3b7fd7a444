/* Rows and filters of any magnitude. A transform sums all numbers of a window, so it may leave
   the range of its type even if u, k and y do not. The processor's flags show that. Such a
   window is transformed again after multiplication by a power of two, and its results are
   multiplied by the inverse. Powers of two round nothing: results have the bits that they would
   have with unlimited exponents (docs/conv.md, "Range"). */
// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"
#include "cpu/conv/loop.h"
#include "cpu/isa/flags.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Numbers that are brought to the type of sums at a time. */
#define CHUNK 256
/* Numbers that tell the size of most rows, and more than any row has. */
#define FEW 32
#define ALL (INT64_MAX / 2)

static danaus_dtype sums_of(const conv_code *code)
{
    return dn_conv_point_type(code->kernel.dtype);
}

static double number(danaus_dtype sums, const void *x, int64_t i)
{
    return sums == DANAUS_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

static void set_number(danaus_dtype sums, void *x, int64_t i, double value)
{
    if (sums == DANAUS_F64)
        ((double *)x)[i] = value;
    else
        ((float *)x)[i] = (float)value;
}

/* to[i] = x[i] f[i] 2^power, rounded once; f may be NULL. */
static void multiply(
    danaus_dtype sums, int power, int64_t n, const void *x, const void *f, void *to)
{
    double half = ldexp(1, power / 2), rest = ldexp(1, power - power / 2);
    for (int64_t i = 0; i < n; i++) {
        double v = number(sums, x, i);
        int exponent = 0;
        if (f && sums == DANAUS_F64) {
            v *= frexp(number(sums, f, i), &exponent);
            set_number(sums, to, i, ldexp(v, power + exponent));
        } else {
            v *= f ? number(sums, f, i) : 1;
            set_number(sums, to, i, v * half * rest);
        }
    }
}

void dn_conv_multiply(danaus_dtype sums, int power, int64_t n, void *x)
{
    multiply(sums, power, n, x, NULL, x);
}

/* Brings the larger part of each complex number to 1/2 to 1, and adds its exponent to by[i]. */
static void normalise(danaus_dtype sums, int64_t n, void *x, int *by)
{
    for (int64_t i = 0; i < n; i++) {
        double re = number(sums, x, 2 * i), im = number(sums, x, 2 * i + 1);
        double most = fmax(fabs(re), fabs(im));
        int exponent = most > 0 && isfinite(most) ? ilogb(most) + 1 : 0;
        set_number(sums, x, 2 * i, ldexp(re, -exponent));
        set_number(sums, x, 2 * i + 1, ldexp(im, -exponent));
        by[i] += exponent;
    }
}

/* x[i] = x[i] f[i] 2^power of complex numbers, with the bits of code->fetch() but for exponents; f
   may be NULL, and is changed. */
static void multiply_complex(
    const conv_code *code, int power, int64_t n, void *x, void *f, int conjugate)
{
    danaus_dtype sums = sums_of(code);
    int by[CHUNK] = { 0 };
    normalise(sums, n, x, by);
    if (f)
        normalise(sums, n, f, by);
    code->fetch(x, f, conjugate, 0, n, x);
    for (int64_t i = 0; i < 2 * n; i++)
        set_number(sums, x, i, ldexp(number(sums, x, i), power + by[i / 2]));
}

/* The next numbers of a storage type, in the type of sums, likewise; at: those of the factor. */
static void multiply_next(
    const conv_code *code, int power, const void *factor, int conjugate, int64_t at,
    int64_t n, void *x)
{
    double by[2 * CHUNK], *f = factor ? by : NULL;
    if (f)
        code->fetch(factor, NULL, 0, at, n, f);
    if (code->parts == 2)
        multiply_complex(code, power, n, x, f, conjugate);
    else
        multiply(sums_of(code), power, n, x, f, x);
}

void dn_conv_fetch_scaled(const conv_window *w, int64_t at, int64_t n, void *to)
{
    const conv_source *s = &w->source;
    size_t size = (size_t)w->code->parts * w->code->size;
    w->code->fetch(s->data, NULL, 0, at, n, to);
    for (int64_t i = 0; i < n; i += CHUNK)
        multiply_next(
            w->code, -w->scaling.down, s->factor, s->conjugate, at + i,
            MIN(CHUNK, n - i), (char *)to + (size_t)i * size);
}

void dn_conv_put_scaled(
    const conv_window *w, const conv_sink *sink, const void *from, int64_t at,
    int64_t n)
{
    size_t size = (size_t)w->code->parts * w->code->size;
    double y[2 * CHUNK];
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t count = MIN(CHUNK, n - i);
        memcpy(y, (const char *)from + (size_t)i * size, (size_t)count * size);
        multiply_next(
            w->code, w->scaling.up, sink->factor, sink->conjugate, at + i, count, y);
        w->code->put(y, NULL, 0, at + i, count, sink->data);
    }
}

/* ---- sizes ---- */

/* The largest magnitude, or one that is not finite. Magnitudes are ordered as their bits are. */
static double largest(danaus_dtype sums, const void *x, int64_t n)
{
    double wide = 0;
    float narrow = 0;
    uint64_t most = 0;
    uint32_t most_f = 0;
    if (sums == DANAUS_F64) {
        for (int64_t i = 0; i < n; i++)
            most = MAX(most, ((const uint64_t *)x)[i] << 1 >> 1);
        memcpy(&wide, &most, sizeof wide);
        return wide;
    }
    for (int64_t i = 0; i < n; i++)
        most_f = MAX(most_f, ((const uint32_t *)x)[i] << 1 >> 1);
    memcpy(&narrow, &most_f, sizeof narrow);
    return narrow;
}

/* The larger magnitude of the parts of number i. */
static double part_of(danaus_dtype sums, const void *x, int64_t i, int parts)
{
    double most = fabs(number(sums, x, parts * i));
    return parts == 2 ? fmax(most, fabs(number(sums, x, 2 * i + 1))) : most;
}

/* Makes *size that of more numbers of so many parts, times factors or NULL; returns 0 at one that
   is not finite. *size is INT_MIN before any that is not zero. */
static int grow(
    danaus_dtype sums, int parts, const void *x, const void *f, int64_t n, int *size)
{
    double most = largest(sums, x, parts * n);
    double most_f = f ? largest(sums, f, parts * n) : 1;
    if (!isfinite(most) || !isfinite(most_f))
        return 0;
    for (int64_t i = 0; f && i < n; i++) {
        double v = part_of(sums, x, i, parts), u = part_of(sums, f, i, parts);
        if (v != 0 && u != 0)
            *size = MAX(*size, ilogb(v) + ilogb(u) + 1 + parts);
    }
    if (!f && most > 0)
        *size = MAX(*size, ilogb(most) + 1);
    return 1;
}

int dn_conv_size(danaus_dtype sums, const void *x, int64_t n, int *size)
{
    *size = INT_MIN;
    return grow(sums, 1, x, NULL, n, size) && *size > INT_MIN;
}

int dn_conv_source_size(const conv_code *code, const conv_source *s, int *size)
{
    int64_t from = s->periodic ? 0 : MAX(s->from, 0);
    int64_t to = s->periodic ? s->length : MIN(s->to, s->length);
    double x[2 * CHUNK], factor[2 * CHUNK];
    *size = INT_MIN;
    conv_piece p;
    for (int64_t at = from; at < to; at += p.count) {
        p = dn_conv_piece(&s->view, at, MIN(CHUNK, to - at));
        if (p.place < 0)
            continue;
        code->fetch(s->data, NULL, 0, p.place, p.count, x);
        if (s->factor)
            code->fetch(s->factor, NULL, 0, p.place, p.count, factor);
        const double *f = s->factor ? factor : NULL;
        if (!grow(sums_of(code), code->parts, x, f, p.count, size))
            return 0;
    }
    return *size > INT_MIN;
}

/* Grows by numbers of a filter's type. */
static int grow_taps(
    const conv_filters *filters, const void *k, int64_t first, int64_t taps, int *size)
{
    double some[2 * CHUNK];
    size_t own = danaus_dtype_size(filters->dtype);
    int parts = dn_is_complex(filters->dtype) ? 2 : 1;
    for (int64_t i = 0; k && i < taps; i += CHUNK) {
        int64_t n = MIN(CHUNK, taps - i);
        const char *at = (const char *)k + (size_t)(first + i) * own;
        dn_convert(filters->dtype, at, parts == 2 ? DANAUS_C128 : DANAUS_F64, some, n);
        if (!grow(DANAUS_F64, parts, some, NULL, n, size))
            return 0;
    }
    return 1;
}

int dn_conv_filter_size(
    const conv_frame *f, const conv_filters *filters, int64_t filter, int *size)
{
    int64_t first = filter * f->taps;
    *size = INT_MIN;
    return grow_taps(filters, filters->k, first, f->taps, size) &&
           grow_taps(filters, filters->k_reverse, first, f->taps, size) &&
           grow_taps(filters, filters->skip, filter, 1, size) && *size > INT_MIN;
}

/* ---- windows ---- */

/* Sizes of a window's numbers and of its spectrum, by so many of each. */
static int sizes_of(
    const conv_window *w, danaus_dtype sums, int64_t most, int *x, int *k)
{
    conv_source part = w->source;
    int64_t from = part.periodic ? 0 : MAX(part.from, 0);
    part.length = MIN(part.length, from + most);
    return dn_conv_source_size(w->code, &part, x) &&
           dn_conv_size(sums, w->spectrum, MIN(2 * w->tables->n, most), k);
}

/* Rows that die away underflow everywhere, though most of their numbers are of ordinary size: a
   few say so. */
int dn_conv_rescale(conv_window *w, danaus_dtype sums, int left)
{
    int most = dn_conv_exponents(sums), x, k, shift = w->scaling.up;
    if (left == DN_UNDERFLOW && sizes_of(w, sums, FEW, &x, &k) && x >= -most &&
        x + k >= -most)
        return 0;
    if (!sizes_of(w, sums, ALL, &x, &k))
        return 0;
    if (abs(x) <= most && abs(x + k) <= most)
        return 0;
    w->scaling.down = x - CLAMP(-k, -most, most);
    w->scaling.up = w->scaling.down + shift;
    return 1;
}
