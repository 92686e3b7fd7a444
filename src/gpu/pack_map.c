/* Finding out what a row's packer does: numbers are packed that say which weight they are,
   a digit at a time, and found again where they were put.

   Digits are numbers that every type holds exactly, in tf32 too. Of what tf32 leaves of a
   number there are others: 1 + q 2^-23 is rounded to 1, and leaves q 2^-23. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/pack_map.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "gpu/rows.h"
#include "math/pattern.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define DIGIT      11 /* bits */
#define DIGITS     (1 << DIGIT)
#define MOST_GROUP 3 /* log2 */
/* All its bits are needed: no two ways of rounding make the same of it. */
#define LONG_NUMBER 0x1.24936ap0f

/* A packer, the weights that it is given, and what it made of them. */
typedef struct prober {
    const kernel *k;
    const problem *p;
    int adjoint;
    danaus_dtype given; /* type of the weights: that of sums */
    int64_t weights[2];
    char *from, *packed;
    size_t bytes; /* packed */
} prober;

static double long_number(int64_t digit)
{
    (void)digit;
    return (double)LONG_NUMBER;
}

static double digit_number(int64_t digit)
{
    return ldexp(1 + (double)(digit % 128) / 128, (int)(digit / 128) - 8);
}

static double rest_number(int64_t digit) { return 1 + (double)digit * 0x1p-23; }

/* The digit of a packed number, or of what rounding left of one; -1: it is none. */
static int64_t digit_of(double number, int is_rest)
{
    int exponent;
    double mantissa = 2 * frexp(number, &exponent) - 1;
    double digit = is_rest ? number * 0x1p23 : (exponent + 7 + mantissa) * 128;
    int good = digit >= 0 && digit < DIGITS && digit == floor(digit);
    return good && (is_rest || number > 0) ? (int64_t)digit : -1;
}

static weights_view view_of(const prober *b, const void *data, danaus_pattern p)
{
    weights_view v =
        dn_weights_view(data, b->given, b->adjoint ? dn_pattern_adjoint(p) : p);
    return b->adjoint ? dn_weights_adjoint(v) : v;
}

/* Packs weights that are the numbers of the digits from bit `shift` of their index on. */
static void probe(const prober *b, double (*number)(int64_t digit), int shift)
{
    const problem *p = b->p;
    size_t size = danaus_dtype_size(b->given);
    for (int64_t i = 0; i < b->weights[0] + b->weights[1]; i++) {
        double value[2] = { number(i >> shift & (DIGITS - 1)), 0 };
        dn_store(b->given, b->from, i, value);
    }
    weights_view w = view_of(b, b->from, p->pattern), inner;
    if (p->inner.a) {
        inner = view_of(b, b->from + (size_t)b->weights[0] * size, p->inner);
        w.inner = &inner;
    }
    memset(b->packed, 0, b->bytes);
    b->k->family->pack(b->k, p, w, b->packed);
}

/* Are all packed numbers of the problem's type, which is shorter than that of sums? */
static int is_short(const prober *b, danaus_dtype type)
{
    const uint16_t *halves = (const uint16_t *)b->packed;
    double number[2] = { (double)LONG_NUMBER };
    uint16_t half;
    if (danaus_dtype_size(type) != sizeof half)
        return 0;
    dn_store(type, &half, 0, number);
    for (size_t i = 0; i < b->bytes / sizeof half; i++)
        if (halves[i] && halves[i] != half)
            return 0;
    return 1;
}

static danaus_status unknown(const prober *b)
{
    return dn_fail(
        DANAUS_ERR_UNSUPPORTED,
        "%s packs weights in a way that devices cannot follow: give them on the host",
        b->k->name);
}

/* How a packed long number was rounded; *rest: it is what rounding left. -1: neither. */
static int dropped_of(danaus_dtype type, double number, int *rest)
{
    static const int drops[] = { DN_DROP_TF32, DN_DROP_22, 0 };
    float high = dn_gpu_round(LONG_NUMBER, DN_DROP_TF32);
    double as_it_is[2] = { (double)LONG_NUMBER, 0 }, stored[2];
    dn_store(type, stored, 0, as_it_is);
    dn_load(type, stored, 0, as_it_is);
    *rest = 0;
    if (type != DANAUS_F32)
        return number == as_it_is[0] ? 0 : -1;
    *rest = (float)number == dn_gpu_round(LONG_NUMBER - high, DN_DROP_TF32);
    if (*rest)
        return DN_DROP_TF32;
    for (int i = 0; i < 3; i++)
        if ((float)number == dn_gpu_round(LONG_NUMBER, drops[i]))
            return drops[i];
    return -1;
}

/* After long numbers were packed: entries of 0, of 1 or, for what rounding leaves, of 2. */
static danaus_status find_rounding(const prober *b, gpu_pack_map *m)
{
    int rest, first = 1;
    for (int64_t n = 0; n < m->count; n++) {
        double value[2];
        dn_load(m->type, b->packed, n, value);
        if (value[0] == 0)
            continue;
        int dropped = dropped_of(m->type, value[0], &rest);
        if (dropped < 0 || (!first && dropped != m->dropped))
            return unknown(b);
        first = 0;
        m->dropped = dropped;
        m->entry[n] = 1 + (unsigned)rest;
    }
    return DANAUS_OK;
}

/* Adds a digit to the entries of numbers, or of what rounding leaves of some. */
static danaus_status find_digit(const prober *b, int shift, int rests, gpu_pack_map *m)
{
    probe(b, rests ? rest_number : digit_number, shift);
    for (int64_t n = 0; n < m->count; n++) {
        double value[2];
        if (!m->entry[n] || m->entry[n] % 2 == (unsigned)rests)
            continue;
        dn_load(m->type, b->packed, n, value);
        int64_t digit = digit_of(value[0], rests);
        if (digit < 0)
            return unknown(b);
        m->entry[n] += (uint32_t)digit << (shift + 1);
    }
    return DANAUS_OK;
}

static danaus_status find_weights(const prober *b, gpu_pack_map *m)
{
    int64_t all = b->weights[0] + b->weights[1];
    int rests = 0;
    for (int64_t n = 0; n < m->count; n++)
        rests |= m->entry[n] == 2;
    for (int shift = 0; (all - 1) >> shift; shift += DIGIT)
        for (int r = 0; r <= rests; r++)
            TRY(find_digit(b, shift, r, m));
    for (int64_t n = 0; n < m->count; n++)
        if (m->entry[n] && (m->entry[n] - 1) / 2 >= all)
            return unknown(b);
    return DANAUS_OK;
}

/* Are entries that belong to one group `step` apart, or all zero? */
static int goes_by(const gpu_pack_map *m, int group, uint32_t step)
{
    for (int64_t n = 0; n < m->count; n++) {
        uint32_t first = m->entry[n / group * group];
        if (m->entry[n] != (first ? first + (uint32_t)(n % group) * step : 0))
            return 0;
    }
    return 1;
}

/* Leaves one entry for as many neighbours as go together. */
static void shorten(gpu_pack_map *m)
{
    int64_t used = 0;
    while (used < m->count && !m->entry[used])
        used++;
    for (int g = MOST_GROUP; g > 0 && used < m->count; g--) {
        int64_t n = used >> g << g;
        uint32_t step = m->entry[n + 1] - m->entry[n];
        if (m->count & ((1 << g) - 1) || !goes_by(m, 1 << g, step))
            continue;
        for (int64_t i = 0; i < m->count >> g; i++)
            m->entry[i] = m->entry[i << g];
        m->group_log2 = g;
        m->step = step;
        return;
    }
}

static danaus_status make_map(prober *b, gpu_pack_map *m)
{
    const problem *p = b->p;
    int64_t all = b->weights[0] + b->weights[1];
    size_t given = (size_t)all * danaus_dtype_size(b->given);
    b->from = dn_alloc(given);
    b->packed = dn_alloc(b->bytes);
    if (!b->from || !b->packed)
        return dn_fail_memory(given + b->bytes, "finding out how weights are packed");
    probe(b, long_number, 0);
    m->type = is_short(b, p->dtype) ? p->dtype : b->given;
    m->count = (int64_t)(b->bytes / danaus_dtype_size(m->type));
    m->entry = dn_calloc((size_t)m->count, sizeof *m->entry);
    if (!m->entry)
        return dn_fail_memory((size_t)m->count * sizeof *m->entry, "a map of weights");
    if (b->bytes % danaus_dtype_size(m->type))
        return unknown(b);
    TRY(find_rounding(b, m));
    TRY(find_weights(b, m));
    shorten(m);
    return DANAUS_OK;
}

danaus_status dn_gpu_map_packing(
    const kernel *k, const problem *p, int adjoint, gpu_pack_map *map)
{
    prober b = { .k = k,
                 .p = p,
                 .adjoint = adjoint,
                 .given = dn_sum_type(p->dtype),
                 .weights = { dn_pattern_weights(p->pattern),
                              p->inner.a ? dn_pattern_weights(p->inner) : 0 },
                 .bytes = dn_packed_bytes(k, p) };
    gpu_pack_map m = { .weights = { b.weights[0], b.weights[1] } };
    if (b.weights[0] > DN_MOST_MAPPED || b.weights[1] > DN_MOST_MAPPED - b.weights[0])
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "a step with %" PRId64
            " weights is packed from the host alone: devices take "
            "2^31 - 1",
            b.weights[0] + b.weights[1]);
    danaus_status status = make_map(&b, &m);
    dn_free(b.from);
    dn_free(b.packed);
    if (status == DANAUS_OK)
        *map = m;
    else
        dn_free(m.entry);
    return status;
}
