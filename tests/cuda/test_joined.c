/* Narrow blocks that rows join (ks_wgmma_joined.c): their weights are packed as those of wider
   blocks with zeros, and blocks that have whole lines are left as they are. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/mem.h"
#include "gpu/gpu.h"
#include "support/chains.h"

#include <string.h>

#define MOST_TRIES 100000

static int joins(const kernel *k) { return strstr(k->name, ".wgmma_joined.") != NULL; }

/* The row of the same sizes that joins nothing. */
static const kernel *plain_row(const kernel *k)
{
    for (const kernel *other = dn_gpu_kernels; other->name; other++)
        if (!strncmp(other->name, "ks.wgmma.", 9) && other->dtype == k->dtype &&
            !memcmp(dn_gpu_size(k), dn_gpu_size(other), sizeof dn_gpu_code(k)->size))
            return other;
    fail_msg("no row has the sizes of %s", k->name);
    return NULL;
}

/* The copy engine takes so many blocks of x as one. */
static int64_t joined_by(const kernel *k, const problem *p)
{
    gpu_map map[GPU_MAPS] = { 0 };
    gpu_call call = { .batch = p->batch };
    dn_gpu_family(k)->maps(k, p, &call, map);
    return map[GPU_MAP_X].size[0] / (p->pattern.c * p->pattern.d);
}

/* Lines of x and y that begin at multiples of 16 bytes: then there are maps. */
static problem random_problem(rng *r, const kernel *k)
{
    int64_t whole = k->dtype == DANAUS_F32 ? 4 : 8;
    for (int try = 0; try < MOST_TRIES; try++) {
        problem p = { .dtype = k->dtype, .batch = rng_int(r, 1, 300) };
        p.math = strstr(k->name, "tf32") ? DANAUS_MATH_TF32 : DANAUS_MATH_F32;
        p.gated = k->dtype != DANAUS_F32 && rng_next(r) % 4 == 0;
        p.pattern = (danaus_pattern){ whole * rng_int(r, 1, 6), rng_int(r, 1, 40),
                                      rng_int(r, 1, 40), rng_int(r, 1, 3) };
        gpu_call call = { .batch = p.batch };
        if (dn_fits(k, &p) && !dn_gpu_family(k)->variant(k, &p, &call))
            return p;
    }
    fail_msg("no problem for %s", k->name);
    return (problem){ 0 };
}

/* Entry (i, r, k, j) is that of row (i b + r) d + j and column (i c + k) d + j of the whole. */
static array with_zeros(const array *w, danaus_pattern q, danaus_pattern wide)
{
    array all = array_make(w->dtype, weights_of(wide));
    size_t size = danaus_dtype_size(w->dtype);
    memset(all.data, 0, (size_t)all.count * size);
    for (int64_t n = 0; n < w->count; n++) {
        int64_t j = n % q.d, k = n / q.d % q.c, r = n / q.d / q.c % q.b;
        int64_t i = n / q.d / q.c / q.b;
        int64_t row = (i * q.b + r) * q.d + j, column = (i * q.c + k) * q.d + j;
        memcpy(
            (char *)all.data + (size_t)(row * wide.c + column % wide.c) * size,
            (const char *)w->data + (size_t)n * size, size);
    }
    return all;
}

static void *pack(const kernel *k, const problem *p, const array *w)
{
    void *packed = dn_calloc(dn_packed_bytes(k, p), 1);
    assert_non_null(packed);
    k->family->pack(k, p, dn_weights_view(w->data, w->dtype, p->pattern), packed);
    return packed;
}

static void check_packing(const kernel *k, uint64_t round)
{
    rng r = { round };
    problem p = random_problem(&r, k), wide = p;
    danaus_pattern q = p.pattern;
    int64_t times = joined_by(k, &p);
    wide.pattern =
        (danaus_pattern){ q.a / times, times * q.b * q.d, times * q.c * q.d, 1 };
    assert_int_equal(q.a % times, 0);
    assert_true(times * q.d > 1);
    array w = array_random(&r, DANAUS_F64, weights_of(q));
    array all = with_zeros(&w, q, wide.pattern);
    const kernel *plain = plain_row(k);
    assert_true(dn_fits(plain, &wide));
    assert_int_equal(dn_packed_bytes(k, &p), dn_packed_bytes(plain, &wide));
    void *found = pack(k, &p, &w), *expected = pack(plain, &wide, &all);
    assert_memory_equal(found, expected, dn_packed_bytes(k, &p));
    dn_free(found);
    dn_free(expected);
    array_free(&w);
    array_free(&all);
}

static void narrow_blocks_are_packed_as_wide_ones_with_zeros(void **state)
{
    (void)state;
    int rows = 0;
    for (const kernel *k = dn_gpu_kernels; k->name; k++)
        for (uint64_t round = 0; joins(k) && round < 50; round++) {
            check_packing(k, round);
            rows += round == 0;
        }
    assert_true(rows > 0);
}

static void expect_joined(
    danaus_pattern p, danaus_layout layout, int gated, int64_t times)
{
    for (const kernel *k = dn_gpu_kernels; k->name; k++) {
        problem q = {
            .dtype = DANAUS_F16, .layout = layout, .batch = 8, .gated = gated
        };
        q.pattern = p;
        if (!joins(k) || k->dtype != q.dtype)
            continue;
        if (!times)
            assert_false(dn_fits(k, &q));
        else if (dn_fits(k, &q))
            assert_int_equal(joined_by(k, &q), times);
        else
            assert_true(gated);
    }
}

/* In 16 bits a line of 128 bytes has 64 numbers, and a sector 16. */
static void lines_become_whole(void **state)
{
    (void)state;
    const danaus_layout first = DANAUS_BATCH_FIRST;
    expect_joined((danaus_pattern){ 384, 8, 8, 1 }, first, 0, 8);
    expect_joined((danaus_pattern){ 384, 8, 8, 2 }, first, 0, 4);
    expect_joined((danaus_pattern){ 1024, 2, 2, 1 }, first, 0, 32);
    expect_joined((danaus_pattern){ 100, 12, 12, 1 }, first, 0, 4);
    expect_joined((danaus_pattern){ 64, 24, 40, 1 }, first, 0, 2);
    expect_joined((danaus_pattern){ 8, 8, 8, 1 }, first, 1, 4); /* not u with v */
    expect_joined((danaus_pattern){ 1, 8, 8, 8 }, first, 0, 1); /* its lanes */
    expect_joined((danaus_pattern){ 48, 64, 64, 1 }, first, 0, 0);
    expect_joined((danaus_pattern){ 6, 512, 512, 1 }, first, 0, 0);
    expect_joined((danaus_pattern){ 1, 128, 128, 3 }, first, 0, 0);
    expect_joined((danaus_pattern){ 7, 64, 64, 1 }, first, 0, 0);
    expect_joined((danaus_pattern){ 384, 8, 8, 1 }, DANAUS_BATCH_LAST, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(narrow_blocks_are_packed_as_wide_ones_with_zeros),
        cmocka_unit_test(lines_become_whole),
    };
    return cmocka_run_group_tests_name("joined", tests, NULL, NULL);
}
