/* What rows ask of a GPU, without one: maps of the bulk copy engine against the places
   that operands have by definition, kernels with 64-bit offsets where those are needed,
   grids that cover their tiles. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/dtype.h"
#include "gpu/gpu.h"
#include "math/pattern.h"
#include "support/rng.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- maps ---- */

/* A view in elements: its dimensions, the slowest first. */
typedef struct view {
    int rank;
    int64_t size[5], stride[5];
} view;

static view sorted(const gpu_map *m)
{
    view v = { 0 };
    for (int i = 0; i < m->rank; i++) {
        int at = v.rank;
        if (m->size[i] == 1)
            continue;
        for (; at > 0 && v.stride[at - 1] < m->stride[i]; at--) {
            v.size[at] = v.size[at - 1];
            v.stride[at] = v.stride[at - 1];
        }
        v.size[at] = m->size[i];
        v.stride[at] = m->stride[i];
        v.rank++;
    }
    return v;
}

/* Every element of `count` contiguous ones has one place in the view. */
static void expect_cover(const kernel *k, const gpu_map *m, int64_t count, size_t size)
{
    view v = sorted(m);
    int64_t below = 1;
    for (int i = v.rank - 1; i >= 0; i--) {
        if (v.stride[i] != below)
            fail_msg(
                "%s: a stride of %" PRId64 " over %" PRId64, k->name, v.stride[i],
                below);
        below *= v.size[i];
    }
    if (below != count)
        fail_msg("%s: %" PRId64 " of %" PRId64 " elements", k->name, below, count);
    assert_int_equal(m->stride[0], 1);
    for (int i = 1; i < m->rank; i++)
        assert_int_equal((size_t)m->stride[i] * size % 16, 0);
    for (int i = 0; i < m->rank; i++)
        assert_in_range(m->box[i], 1, 256);
}

/* The sizes of a map are some of these, and no others. */
static void expect_sizes(const gpu_map *m, const int64_t *allowed, int count)
{
    for (int i = 0; i < m->rank; i++) {
        int found = 0;
        for (int n = 0; n < count; n++)
            found |= m->size[i] == allowed[n];
        if (!found)
            fail_msg("a dimension of %" PRId64, m->size[i]);
    }
}

/* The number of blocks that a row for narrow ones takes as one. */
static int64_t blocks_joined(const kernel *k, const gpu_map *m, int64_t block)
{
    return m->rank && strstr(k->name, "joined") ? m->size[0] / block : 1;
}

static void check_maps(const kernel *k, const problem *p, int64_t batch, int *seen)
{
    const gpu_family *f = dn_gpu_family(k);
    gpu_call call = { .batch = batch };
    gpu_map map[GPU_MAPS] = { 0 };
    danaus_pattern q = p->pattern;
    size_t size = danaus_dtype_size(p->dtype);
    int64_t line = DN_MIDDLE_BYTES / (int64_t)size, whole = (batch + line - 1) / line;
    f->maps(k, p, &call, map);
    for (int i = 0; i < GPU_MAPS; i++) {
        int64_t rows = i == GPU_MAP_X ? q.c : q.b, lines = q.a * rows * q.d;
        /* Between two factors lines are filled up. */
        int filled = map[i].rank && map[i].size[0] == line && batch % line != 0 &&
                     (map[i].size[map[i].rank - 1] == whole ||
                      map[i].size[map[i].rank - 1] == q.a * whole);
        int64_t joins = blocks_joined(k, &map[i], rows * q.d);
        const int64_t plain[] = { batch, q.d, rows, q.a / joins, joins * q.d * rows };
        const int64_t between[] = { line, q.d, rows, q.a, whole, q.a * whole };
        if (!map[i].rank)
            continue;
        expect_cover(k, &map[i], lines * (filled ? whole * line : batch), size);
        if (filled)
            expect_sizes(&map[i], between, 6);
        else if (batch % line != 0)
            expect_sizes(&map[i], plain, 5);
        ++*seen;
    }
}

/* A row, and the rows that it consists of. */
static const kernel *part_of(const kernel *k, int n)
{
    const gpu_code *code = dn_gpu_code(k);
    return n == 0 ? k : n == 1 ? code->first : code->inner;
}

static int64_t any_of(rng *r, const int64_t *from, int count)
{
    return from[rng_int(r, 0, count - 1)];
}

static void maps_cover_their_operands_and_nothing_else(void **state)
{
    (void)state;
    static const int64_t sizes[] = { 16, 24, 32, 64, 80, 128, 192 };
    static const int64_t lanes[] = { 1, 2, 4, 8, 16, 64 };
    int rows = 0, mapped = 0, number = 0;
    for (const kernel *row = dn_gpu_kernels; row->name;
         number++, row += number % 3 == 0) {
        const kernel *k = part_of(row, number % 3);
        int seen = 0;
        if (!k || k->family->operation != DN_PRODUCT || !dn_gpu_family(k)->maps)
            continue;
        rows++;
        for (uint64_t round = 0; round < 200; round++) {
            rng r = { (uint64_t)number * 1000 + round };
            problem p = { .dtype = k->dtype,
                          .math = (danaus_math)(round % 2),
                          .layout = (danaus_layout)(round / 2 % 2),
                          .batch = 8 * rng_int(&r, 1, 100) };
            p.pattern = (danaus_pattern){ rng_int(&r, 1, 5), any_of(&r, sizes, 7),
                                          any_of(&r, sizes, 7), any_of(&r, lanes, 6) };
            if (dn_fits(k, &p))
                check_maps(k, &p, p.batch, &seen);
        }
        mapped += seen > 0;
    }
    assert_true(rows >= 30);
    assert_int_equal(mapped, rows);
}

/* ---- offsets ---- */

static int has_long_offsets(const kernel *k, const problem *p, int variant)
{
    char lines[GPU_MOST_DEFINES];
    text t = { lines, sizeof lines, 0 };
    dn_gpu_family(k)->defines(k, p, variant, &t);
    return strstr(lines, "#define INDEX int64\n") != NULL;
}

/* Offsets of one step reach c columns k, or TILE columns s, of the operand. */
static void long_offsets_are_used_where_short_ones_overflow(void **state)
{
    (void)state;
    int rows = 0;
    for (const kernel *k = dn_gpu_kernels; k->name; k++) {
        problem p = { .operation = k->family->operation,
                      .dtype = k->dtype,
                      .batch = 64,
                      .pattern = { 2, 8, 8, 4 } };
        if (p.operation != DN_PRODUCT || !dn_gpu_family(k)->variant ||
            !dn_fits(k, &p) || !has_long_offsets(k, &p, 1))
            continue;
        const gpu_family *f = dn_gpu_family(k);
        rows++;
        for (int layout = 0; layout < 2; layout++) {
            p.layout = layout ? DANAUS_BATCH_LAST : DANAUS_BATCH_FIRST;
            gpu_call small = { .batch = 64 };
            p.pattern = (danaus_pattern){ 2, 8, 8, 4 };
            assert_int_equal(has_long_offsets(k, &p, f->variant(k, &p, &small)), 0);
            /* batch-last: 8 columns k of 2^29 numbers; batch-first: a column of 2^31. */
            gpu_call large = { .batch = layout ? (int64_t)1 << 27 : 4 };
            if (!layout)
                p.pattern.a = (int64_t)1 << 26;
            assert_int_equal(has_long_offsets(k, &p, f->variant(k, &p, &large)), 1);
            assert_true(dn_gpu_reaches(k, &p, 0, (int64_t)80 << 30) || !layout);
        }
        p.layout = DANAUS_BATCH_LAST;
        assert_true(dn_gpu_reaches(k, &p, 0, (int64_t)1 << 20));
    }
    assert_true(rows >= 6); /* each element type has one */
}

/* A device keeps what it compiled for a problem and a variant of a row, for every batch: neither
   text nor sizes may hang on how many columns a plan was made for. */
static void what_is_compiled_hangs_on_no_batch(void **state)
{
    (void)state;
    static const int64_t batches[] = { 1, 3, 16, 100, 196, 1000, 25001, 1 << 20 };
    static gpu_use one, other;
    rng r = { 7 };
    for (const kernel *k = dn_gpu_kernels; k->name; k++)
        for (int round = 0; round < 20; round++) {
            problem p = { .operation = k->family->operation,
                          .dtype = k->dtype,
                          .layout = round % 2 ? DANAUS_BATCH_LAST : DANAUS_BATCH_FIRST,
                          .batch = 64,
                          .pattern = { rng_int(&r, 1, 9), rng_int(&r, 1, 70),
                                       rng_int(&r, 1, 70), rng_int(&r, 1, 9) } };
            const gpu_family *f = dn_gpu_family(k);
            if (p.operation != DN_PRODUCT || !f->defines || !dn_fits(k, &p))
                continue;
            for (int v = 0; v < MAX(f->variants, 1); v++) {
                p.batch = 64;
                dn_gpu_use(k, &p, v, &one);
                for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
                    p.batch = batches[b];
                    dn_gpu_use(k, &p, v, &other);
                    if (strcmp(one.defines, other.defines))
                        fail_msg(
                            "%s: another kernel for %" PRId64 " columns", k->name,
                            p.batch);
                }
            }
        }
}

/* ---- grids ---- */

static void a_turned_matrix_has_a_block_for_each_tile(void **state)
{
    (void)state;
    static const size_t elements[] = { 2, 4, 8, 16 };
    for (int e = 0; e < 4; e++)
        for (uint64_t round = 0; round < 100; round++) {
            rng r = { round };
            int64_t rows = rng_int(&r, 1, 500), columns = rng_int(&r, 1, 500);
            gpu_launch one = dn_gpu_turn_launch(1, 1, elements[e]);
            assert_int_equal(one.blocks[0], 1);
            int64_t side = 1;
            while (dn_gpu_turn_launch(side + 1, 1, elements[e]).blocks[0] == 1)
                side++;
            gpu_launch all = dn_gpu_turn_launch(rows, columns, elements[e]);
            int64_t tiles = (rows + side - 1) / side * ((columns + side - 1) / side);
            assert_int_equal(all.blocks[0], tiles);
            assert_int_equal(side * (int64_t)elements[e] % 32, 0);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_cover_their_operands_and_nothing_else),
        cmocka_unit_test(long_offsets_are_used_where_short_ones_overflow),
        cmocka_unit_test(what_is_compiled_hangs_on_no_batch),
        cmocka_unit_test(a_turned_matrix_has_a_block_for_each_tile),
    };
    return cmocka_run_group_tests_name("launches", tests, NULL, NULL);
}
