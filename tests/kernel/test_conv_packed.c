/* Packed sequences of every kind and type, forward and back, against each alone. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/device.h"
#include "support/packed.h"

#include <string.h>

static const danaus_dtype types[] = { DANAUS_F32, DANAUS_F64, DANAUS_F16, DANAUS_BF16 };
static const danaus_conv_kind kinds[] = { DANAUS_CAUSAL, DANAUS_BIDIRECTIONAL };

static void check(danaus_device *device, const packed_plan *plan, const packed_case *p)
{
    packed_outcome o = packed_run(device, plan, p);
    packed_expect(p, &o);
    packed_outcome_free(&o);
}

/* With the filters of `p` and a plan of its own. */
static void check_alone(danaus_device *device, const packed_case *p)
{
    packed_plan plan = packed_open(device, p);
    check(device, &plan, p);
    packed_close(&plan);
}

/* 0 to 3 sequences of 0 to 5 numbers each, as digits of `number`. */
#define SMALL_LENGTHS 6

static void check_small(danaus_device *device, danaus_conv_desc desc, int64_t sequences)
{
    int all = 1;
    for (int64_t i = 0; i < sequences; i++)
        all *= SMALL_LENGTHS;
    for (int number = 0; number < all; number += share_of_cases()) {
        rng r = { (uint64_t)number };
        int64_t lengths[3];
        for (int i = 0, rest = number; i < 3; i++, rest /= SMALL_LENGTHS)
            lengths[i] = rest % SMALL_LENGTHS;
        packed_case p = packed_random(&r, &desc, sequences, lengths, number % 8);
        check_alone(device, &p);
        packed_free(&p);
    }
}

static void all_small_ones_are_right(void **state)
{
    for (int kind = 0; kind < 2; kind++)
        for (int64_t taps = 1; taps <= 6; taps++)
            for (int64_t sequences = 0; sequences <= 3; sequences++) {
                danaus_conv_desc desc = { .channels = 2,
                                          .filters = 1 + taps % 2,
                                          .length = SMALL_LENGTHS - 1,
                                          .filter_length = taps,
                                          .kind = kinds[kind] };
                check_small(*state, desc, sequences);
            }
}

static danaus_conv_desc random_desc(rng *r, int64_t most)
{
    int64_t filters = rng_int(r, 1, 3), group = rng_int(r, 1, 3);
    danaus_conv_desc desc = {
        .channels = filters * group,
        .filters = filters,
        .length = rng_int(r, 1, most),
        .kind = kinds[rng_int(r, 0, 1)],
        .dtype = types[rng_int(r, 0, 3)],
    };
    desc.filter_length = rng_int(r, 1, rng_next(r) % 2 ? 2 * desc.length : 20);
    return desc;
}

/* Up to `most` sequences of any lengths, many of them short. */
static packed_case random_case(rng *r, const danaus_conv_desc *desc, int64_t most)
{
    int64_t lengths[PACKED_MOST], sequences = rng_int(r, 0, most);
    for (int64_t i = 0; i < sequences; i++)
        lengths[i] = rng_int(r, 0, rng_next(r) % 2 ? desc->length : desc->length / 8);
    return packed_random(r, desc, sequences, lengths, (int)rng_int(r, 0, 7));
}

static void random_ones_are_right(void **state)
{
    for (int round = 0; round < rounds_of(150); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = random_desc(&r, round % 5 ? 200 : 700);
        packed_case p = random_case(&r, &desc, 8);
        check_alone(*state, &p);
        packed_free(&p);
    }
}

/* Long sequences and few taps: several windows each, and sequences as short as a tap. */
static void sequences_of_several_windows_are_right(void **state)
{
    for (int round = 0; round < rounds_of(12); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = { .channels = 2,
                                  .length = 3000,
                                  .filter_length = rng_int(&r, 1, 30),
                                  .kind = kinds[round % 2],
                                  .dtype = types[round / 2 % 2] };
        int64_t lengths[] = { rng_int(&r, 1500, 3000), 1, rng_int(&r, 0, 100),
                              rng_int(&r, 0, 3000) };
        packed_case p = packed_random(&r, &desc, 4, lengths, 7);
        check_alone(*state, &p);
        packed_free(&p);
    }
}

/* More sequences than a launch takes along, in several classes. */
static void many_sequences_are_right(void **state)
{
    rng r = { 5 };
    danaus_conv_desc desc = { .channels = 1, .length = 300, .filter_length = 200 };
    int64_t lengths[PACKED_MOST];
    for (int i = 0; i < PACKED_MOST; i++)
        lengths[i] = rng_int(&r, 0, 300);
    packed_case p = packed_random(&r, &desc, PACKED_MOST, lengths, 7);
    check_alone(*state, &p);
    packed_free(&p);
}

/* ---- what else is in a call ---- */

/* Copies a sequence of every channel between arrays of so many columns. */
static void move(
    const array *from, int64_t columns, int64_t first, int64_t length, array *to,
    int64_t to_columns, int64_t to_first, int64_t channels)
{
    size_t size = danaus_dtype_size(from->dtype);
    for (int64_t h = 0; from->data && h < channels; h++)
        memcpy(
            (char *)to->data + (size_t)(h * to_columns + to_first) * size,
            (const char *)from->data + (size_t)(h * columns + first) * size,
            (size_t)length * size);
}

/* Sequence i of a case, alone, with the same filters. */
static packed_case only(rng *r, const packed_case *p, int64_t i)
{
    int64_t first = p->offsets[i], length = p->offsets[i + 1] - first;
    int64_t columns = p->offsets[p->sequences], channels = p->c.desc.channels;
    int extras = (p->c.gate_in.data ? 1 : 0) + (p->c.gate_out.data ? 2 : 0);
    packed_case one = packed_random(r, &p->c.desc, 1, &length, extras);
    const array *from[] = { &p->c.u, &p->c.gate_in, &p->c.gate_out, &p->dy };
    array *to[] = { &one.c.u, &one.c.gate_in, &one.c.gate_out, &one.dy };
    for (int n = 0; n < 4; n++)
        move(from[n], columns, first, length, to[n], length, 0, channels);
    return one;
}

static void expect_part(
    const array *whole, const packed_case *p, int64_t i, const array *part)
{
    int64_t first = p->offsets[i], length = p->offsets[i + 1] - first;
    array found = array_make(part->dtype, part->count);
    move(
        whole, p->offsets[p->sequences], first, length, &found, length, 0,
        p->c.desc.channels);
    assert_true(array_same(&found, part));
    array_free(&found);
}

static void sequences_do_not_know_of_each_other(void **state)
{
    for (int round = 0; round < rounds_of(40); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = random_desc(&r, round % 3 ? 300 : 2000);
        packed_case p = random_case(&r, &desc, 6);
        packed_plan plan = packed_open(*state, &p);
        packed_outcome all = packed_run(*state, &plan, &p);
        for (int64_t i = 0; i < p.sequences; i++) {
            packed_case one = only(&r, &p, i);
            if (one.c.u.count) {
                packed_outcome alone = packed_run(*state, &plan, &one);
                expect_part(&all.y, &p, i, &alone.y);
                expect_part(&all.du, &p, i, &alone.du);
                packed_outcome_free(&alone);
            }
            packed_free(&one);
        }
        packed_outcome again = packed_run(*state, &plan, &p);
        assert_true(packed_same(&all, &again));
        packed_outcome_free(&again);
        packed_outcome_free(&all);
        packed_close(&plan);
        packed_free(&p);
    }
}

/* A sparse spectrum has one transform: a sequence has the y of a row with zeros behind. */
static void sparse_ones_are_rows_with_zeros_behind(void **state)
{
    for (int round = 0; round < rounds_of(8); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = { .channels = 2,
                                  .length = 100,
                                  .kind = kinds[round % 2],
                                  .dtype = types[round / 2 % 2],
                                  .keep = { 5, 0, 3 } };
        int64_t lengths[] = { rng_int(&r, 1, 100), 0, rng_int(&r, 1, 100) };
        packed_case p = packed_random(&r, &desc, 3, lengths, 4);
        packed_plan plan = packed_open(*state, &p);
        packed_outcome o = packed_run(*state, &plan, &p);
        for (int64_t i = 0; i < 3; i++) {
            conv_case row = p.c;
            row.desc.packed = 0;
            row.u = array_make(desc.dtype, 200);
            memset(row.u.data, 0, 200 * danaus_dtype_size(desc.dtype));
            move(&p.c.u, p.offsets[3], p.offsets[i], lengths[i], &row.u, 100, 0, 2);
            array y = conv_run(*state, &row);
            conv_result bound = conv_direct(&row);
            for (int64_t n = 0; n < 2 * lengths[i]; n++) {
                int64_t h = n / lengths[i], t = n % lengths[i];
                double is =
                    element_get(
                        desc.dtype, o.y.data, h * p.offsets[3] + p.offsets[i] + t)
                        .re;
                double should = element_get(desc.dtype, y.data, h * 100 + t).re;
                double e = 2 * bound.e[h * 100 + t];
                assert_true(is - should <= e && should - is <= e);
            }
            conv_result_free(&bound);
            array_free(&y);
            array_free(&row.u);
        }
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
        cmocka_unit_test_prestate(all_small_ones_are_right, device),
        cmocka_unit_test_prestate(random_ones_are_right, device),
        cmocka_unit_test_prestate(sequences_of_several_windows_are_right, device),
        cmocka_unit_test_prestate(many_sequences_are_right, device),
        cmocka_unit_test_prestate(sequences_do_not_know_of_each_other, device),
        cmocka_unit_test_prestate(sparse_ones_are_rows_with_zeros_behind, device),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
