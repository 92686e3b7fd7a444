/* Complex convolutions, and correlations of all types: y and all gradients, number by number
   against the definition. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/complex_conv.h"
#include "support/device.h"
#include "support/packed.h"
#include "support/planes.h"

#include <stdlib.h>
#include <string.h>

static const danaus_dtype types[] = { DANAUS_C64, DANAUS_C128, DANAUS_C64, DANAUS_F32,
                                      DANAUS_F64, DANAUS_F16,  DANAUS_BF16 };

static void check(
    rng *r, danaus_device *device, const danaus_conv_desc *desc, int64_t batch,
    int extras)
{
    conv_case c = conv_random(r, desc, batch, extras);
    array dy = array_random(r, c.desc.dtype, c.u.count);
    conv_outcome o = conv_compute(device, &c, &dy);
    complex_exact exact = complex_exactly(&c, &dy);
    complex_exact_expect(&c, &o, &exact);
    complex_exact_free(&exact);
    conv_outcome_free(&o);
    array_free(&dy);
    conv_free(&c);
}

/* Complex, or a correlation, as other tests have the rest. */
static danaus_conv_desc random_desc(rng *r, int64_t most)
{
    int64_t filters = rng_int(r, 1, 3), group = rng_int(r, 1, 3);
    danaus_conv_desc desc = { .channels = filters * group, .filters = filters };
    desc.length = rng_int(r, 1, most);
    desc.filter_length = rng_int(r, 1, rng_int(r, 0, 1) ? 2 * desc.length : 9);
    desc.dtype = types[rng_int(r, 0, 6)];
    desc.correlate = desc.dtype == DANAUS_C64 || desc.dtype == DANAUS_C128
                         ? (int32_t)rng_int(r, 0, 1)
                         : 1;
    return desc;
}

/* All kinds, lengths and taps up to 6, convolutions and correlations: some of them where each
   takes a second to compile. */
static void every_small_row_is_right(void **state)
{
    int number = 0, step = 1 + 4 * (share_of_cases() - 1);
    for (int length = 1; length <= 6; length++)
        for (int taps = 1; taps <= 6; taps++)
            for (int kind = 0; kind < 3; kind++)
                for (int correlate = 0; correlate < 2; correlate++) {
                    danaus_conv_desc desc = { .channels = 2,
                                              .filters = 1,
                                              .length = length,
                                              .filter_length = taps,
                                              .kind = (danaus_conv_kind)kind,
                                              .dtype = DANAUS_C64,
                                              .correlate = correlate };
                    rng r = { (uint64_t)number };
                    if (number++ % step == 0)
                        check(&r, *state, &desc, 2, number % 8);
                }
}

static void random_rows_are_right(void **state)
{
    for (int round = 0; round < rounds_of(400); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = random_desc(&r, round % 8 ? 70 : 700);
        desc.kind = (danaus_conv_kind)rng_int(&r, 0, 2);
        if (desc.kind == DANAUS_CIRCULAR)
            desc.centre[1] = (int32_t)rng_int(&r, 0, desc.filter_length - 1);
        check(&r, *state, &desc, rng_int(&r, 1, 3), (int)rng_int(&r, 0, 7));
    }
}

static void random_planes_are_right(void **state)
{
    for (int round = 0; round < rounds_of(200); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = random_desc(&r, 15);
        conv_make_planes(&r, &desc, 15);
        check(&r, *state, &desc, rng_int(&r, 1, 2), (int)rng_int(&r, 0, 7));
    }
}

/* Rows in one window, which is too long for the shared memory of a GPU's block; and few taps, of
   rows that are cut into windows. */
static void long_rows_are_right(void **state)
{
    for (int round = 0; round < rounds_of(6); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = {
            .channels = 2,
            .filters = 1,
            .length = rng_int(&r, 14000, 15000),
            .filter_length = round ? rng_int(&r, 1, 300) : 14000,
            .kind = (danaus_conv_kind)(round % 3),
            .dtype = round % 2 ? DANAUS_C128 : DANAUS_C64,
            .correlate = round / 2 % 2,
        };
        check(&r, *state, &desc, 1, (int)rng_int(&r, 0, 7));
    }
}

/* ---- packed sequences ---- */

/* Columns [from, to) of every row of an array, or NULL data. */
static array columns_of(const array *a, int64_t rows, int64_t from, int64_t to)
{
    if (!a->data)
        return (array){ 0 };
    array some = array_make(a->dtype, rows * (to - from));
    size_t size = danaus_dtype_size(a->dtype);
    for (int64_t row = 0; row < rows; row++)
        memcpy(
            (char *)some.data + (size_t)(row * (to - from)) * size,
            (const char *)a->data + (size_t)(row * (a->count / rows) + from) * size,
            (size_t)(to - from) * size);
    return some;
}

/* A sequence alone, and what calls made of it. */
typedef struct sequence {
    conv_case c;
    array dy;
    conv_outcome made;
    complex_exact exact;
} sequence;

static sequence sequence_of(
    const packed_case *p, const packed_outcome *o, int64_t number)
{
    int64_t from = p->offsets[number], to = p->offsets[number + 1];
    int64_t rows = p->c.desc.channels;
    sequence s = { .c = p->c };
    s.c.desc.packed = 0;
    s.c.desc.length = to - from;
    s.c.batch = 1;
    s.c.u = columns_of(&p->c.u, rows, from, to);
    s.c.gate_in = columns_of(&p->c.gate_in, rows, from, to);
    s.c.gate_out = columns_of(&p->c.gate_out, rows, from, to);
    s.dy = columns_of(&p->dy, rows, from, to);
    s.made.of[CONV_Y] = columns_of(&o->y, rows, from, to);
    s.made.of[CONV_DU] = columns_of(&o->du, rows, from, to);
    s.made.of[CONV_DGATE_IN] = columns_of(&o->dgate_in, rows, from, to);
    s.made.of[CONV_DGATE_OUT] = columns_of(&o->dgate_out, rows, from, to);
    s.exact = complex_exactly(&s.c, &s.dy);
    return s;
}

static void sequence_free(sequence *s)
{
    array *all[] = { &s->c.u, &s->c.gate_in, &s->c.gate_out, &s->dy };
    for (int i = 0; i < 4; i++)
        array_free(all[i]);
    conv_outcome_free(&s->made);
    complex_exact_free(&s->exact);
}

/* Adds gradients of filters of a sequence, and bounds, to those of all. */
static void add_filters(const sequence *s, conv_outcome *o, complex_exact *sum)
{
    for (int n = CONV_DK; n < CONV_RESULTS; n++)
        for (int64_t i = 0; i < o->of[n].count; i++) {
            sum->v[n][i].re += s->exact.v[n][i].re;
            sum->v[n][i].im += s->exact.v[n][i].im;
            sum->e[n][i] += 2 * s->exact.e[n][i];
        }
}

/* Transforms of classes are longer than those of sequences alone, so bounds are doubled. */
static void expect_packed(const packed_case *p, packed_outcome *o)
{
    conv_outcome filters = { { { 0 } } };
    complex_exact sum = { { 0 }, { 0 } };
    filters.of[CONV_DK] = o->dk;
    filters.of[CONV_DK_REVERSE] = o->dk_reverse;
    filters.of[CONV_DSKIP] = o->dskip;
    for (int n = CONV_DK; n < CONV_RESULTS; n++) {
        sum.v[n] = calloc((size_t)filters.of[n].count + 1, sizeof **sum.v);
        sum.e[n] = calloc((size_t)filters.of[n].count + 1, sizeof **sum.e);
        assert_true(sum.v[n] && sum.e[n]);
    }
    for (int64_t i = 0; i < p->sequences; i++) {
        if (p->offsets[i] == p->offsets[i + 1])
            continue;
        sequence s = sequence_of(p, o, i);
        for (int n = 0; n < CONV_DK; n++)
            for (int64_t j = 0; j < s.made.of[n].count; j++)
                s.exact.e[n][j] *= 2;
        complex_exact_expect(&s.c, &s.made, &s.exact);
        add_filters(&s, &filters, &sum);
        sequence_free(&s);
    }
    complex_exact_expect(&p->c, &filters, &sum);
    complex_exact_free(&sum);
}

static void packed_sequences_are_right(void **state)
{
    for (int round = 0; round < rounds_of(60); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = random_desc(&r, 300);
        int64_t lengths[4], sequences = rng_int(&r, 1, 4);
        desc.kind = rng_int(&r, 0, 1) ? DANAUS_CAUSAL : DANAUS_BIDIRECTIONAL;
        for (int i = 0; i < sequences; i++)
            lengths[i] = rng_int(&r, i == 0, desc.length);
        packed_case p =
            packed_random(&r, &desc, sequences, lengths, (int)rng_int(&r, 0, 7));
        packed_plan plan = packed_open(*state, &p);
        packed_outcome o = packed_run(*state, &plan, &p);
        expect_packed(&p, &o);
        packed_outcome_free(&o);
        packed_close(&plan);
        packed_free(&p);
    }
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    conv_need(device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(every_small_row_is_right, device),
        cmocka_unit_test_prestate(random_rows_are_right, device),
        cmocka_unit_test_prestate(random_planes_are_right, device),
        cmocka_unit_test_prestate(long_rows_are_right, device),
        cmocka_unit_test_prestate(packed_sequences_are_right, device),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
