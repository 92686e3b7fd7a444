/* Chain files: saved and loaded, made by other programs, damaged. */
// SPDX-License-Identifier: Apache-2.0
#include "support/chains.h"
#include "support/device.h"
#include "support/element.h"
#include "support/failing.h"
#include "support/files.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The number of weights of a pattern is small here. */
static size_t weight_bytes(const danaus_chain *chain, int factor)
{
    danaus_pattern p = danaus_chain_pattern(chain, factor);
    return (size_t)(p.a * p.b * p.c * p.d) *
           danaus_dtype_size(danaus_chain_dtype(chain));
}

static void fill(rng *r, void *to, size_t size)
{
    for (size_t i = 0; i < size; i++)
        ((unsigned char *)to)[i] = (unsigned char)rng_next(r);
}

/* Any bits will do as weights: they are copied, not computed with. */
static danaus_chain *random_bits(
    rng *r, const danaus_pattern *p, int count, danaus_dtype dtype, int bias)
{
    danaus_chain *chain = NULL;
    assert_ok(danaus_chain_create(p, count, dtype, &chain));
    for (int i = 0; i < count; i++)
        fill(r, danaus_chain_weights(chain, i), weight_bytes(chain, i));
    if (bias) {
        bytes b = bytes_of("", 0);
        for (size_t n = (size_t)danaus_chain_rows(chain) * danaus_dtype_size(dtype); n;
             n--)
            bytes_append(&b, &(char){ (char)rng_next(r) }, 1);
        assert_ok(danaus_chain_set_bias(chain, b.data));
        bytes_free(&b);
    }
    return chain;
}

static void expect_same(danaus_chain *x, danaus_chain *y)
{
    assert_int_equal(danaus_chain_count(x), danaus_chain_count(y));
    assert_int_equal(danaus_chain_dtype(x), danaus_chain_dtype(y));
    for (int i = 0; i < danaus_chain_count(x); i++) {
        danaus_pattern p = danaus_chain_pattern(x, i), q = danaus_chain_pattern(y, i);
        assert_memory_equal(&p, &q, sizeof p);
        assert_memory_equal(
            danaus_chain_weights(x, i), danaus_chain_weights(y, i), weight_bytes(x, i));
    }
    const void *a = danaus_chain_bias(x), *b = danaus_chain_bias(y);
    assert_int_equal(a != NULL, b != NULL);
    if (a)
        assert_memory_equal(
            a, b,
            (size_t)danaus_chain_rows(x) * danaus_dtype_size(danaus_chain_dtype(x)));
}

static const danaus_pattern two[] = { { 1, 2, 3, 2 }, { 2, 3, 1, 1 } };

static void a_saved_chain_loads_again(void **state)
{
    (void)state;
    const char *path = scratch_path("chain.safetensors");
    for (uint64_t round = 0; round < 60; round++) {
        rng r = { round };
        danaus_pattern p[8] = { { rng_int(&r, 1, 3), rng_int(&r, 1, 3),
                                  rng_int(&r, 1, 3), rng_int(&r, 1, 3) } };
        int count = (int)rng_int(&r, 1, 8);
        for (int i = 1; i < count; i++) {
            int64_t cols = p[i - 1].a * p[i - 1].c * p[i - 1].d;
            p[i] = round % 2 ? (danaus_pattern){ cols, 1, rng_int(&r, 1, 2), 1 }
                             : (danaus_pattern){ 1, cols, rng_int(&r, 1, 4), 1 };
        }
        danaus_dtype dtype = (danaus_dtype)rng_int(&r, DANAUS_F32, DANAUS_C128);
        danaus_chain *chain = random_bits(&r, p, count, dtype, round % 3 == 0);
        danaus_chain *loaded = NULL;
        assert_ok(danaus_chain_save(chain, path));
        assert_ok(danaus_chain_load(path, &loaded));
        expect_same(chain, loaded);
        danaus_chain_destroy(loaded);
        danaus_chain_destroy(chain);
    }
}

static void the_longest_chain_is_kept(void **state)
{
    (void)state;
    const char *path = scratch_path("long.safetensors");
    danaus_pattern p[DANAUS_MAX_FACTORS];
    for (int i = 0; i < DANAUS_MAX_FACTORS; i++)
        p[i] = (danaus_pattern){ 1, 2, 2, 1 };
    rng r = { 5 };
    danaus_chain *loaded = NULL;
    danaus_chain *chain = random_bits(&r, p, DANAUS_MAX_FACTORS, DANAUS_F16, 1);
    assert_ok(danaus_chain_save(chain, path));
    assert_ok(danaus_chain_load(path, &loaded));
    expect_same(chain, loaded);
    danaus_chain_destroy(loaded);
    danaus_chain_destroy(chain);
}

static void a_saved_chain_is_these_bytes(void **state)
{
    (void)state;
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"danaus chain 1\"},"
        "\"factor.0\":{\"dtype\":\"F32\",\"shape\":[1,2,3,2],\"data_offsets\":[0,48]},"
        "\"factor.1\":{\"dtype\":\"F32\",\"shape\":[2,3,1,1],\"data_offsets\":[48,72]},"
        "\"bias\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[72,88]}}";
    const char *path = scratch_path("bytes.safetensors");
    rng r = { 3 };
    danaus_chain *chain = random_bits(&r, two, 2, DANAUS_F32, 1);
    assert_ok(danaus_chain_save(chain, path));
    bytes b = file_bytes(path);
    size_t start = (8 + strlen(header) + 63) / 64 * 64;
    assert_int_equal(b.size, start + 88);
    assert_int_equal(b.data[0] + 256 * b.data[1], start - 8);
    assert_memory_equal(b.data + 8, header, strlen(header));
    assert_memory_equal(b.data + start, danaus_chain_weights(chain, 0), 48);
    assert_memory_equal(b.data + start + 48, danaus_chain_weights(chain, 1), 24);
    assert_memory_equal(b.data + start + 72, danaus_chain_bias(chain), 16);
    bytes_free(&b);
    danaus_chain_destroy(chain);
}

/* ---- weights of 8 bits ---- */

/* Each row of each lane is within half a scale: its greatest magnitude / 127, whose 17 bits
   err by 2^-17. The greatest numbers are cut to 127. */
static void expect_rounded(const danaus_chain *chain, const danaus_chain *found)
{
    danaus_dtype dtype = danaus_chain_dtype(chain);
    for (int f = 0; f < danaus_chain_count(chain); f++) {
        danaus_pattern p = danaus_chain_pattern(chain, f);
        const void *w = danaus_chain_weights_const(chain, f);
        const float *v = danaus_chain_weights_const(found, f);
        for (int64_t row = 0; row < p.a * p.b * p.d; row++) {
            int64_t at = row / p.d * p.c * p.d + row % p.d;
            double most = 0;
            for (int64_t k = 0; k < p.c; k++)
                most = fmax(most, fabs(element_get(dtype, w, at + k * p.d).re));
            for (int64_t k = 0; k < p.c; k++)
                assert_true(
                    fabs(element_get(dtype, w, at + k * p.d).re - v[at + k * p.d]) <=
                    most / 127 * (0.5 + 0x1p-9));
        }
    }
}

static void expect_same_bias(const danaus_chain *chain, const danaus_chain *found)
{
    const void *x = danaus_chain_bias(chain);
    const float *y = danaus_chain_bias(found);
    assert_int_equal(!x, !y);
    for (int64_t i = 0; x && i < danaus_chain_rows(chain); i++)
        assert_true((float)element_get(danaus_chain_dtype(chain), x, i).re == y[i]);
}

static void weights_of_8_bits_are_kept(void **state)
{
    (void)state;
    static const danaus_dtype types[] = { DANAUS_F32, DANAUS_F64, DANAUS_F16,
                                          DANAUS_BF16 };
    char path[1024], again[1024];
    snprintf(path, sizeof path, "%s", scratch_path("int8.safetensors"));
    snprintf(again, sizeof again, "%s", scratch_path("again.safetensors"));
    for (uint64_t round = 0; round < 60; round++) {
        rng r = { round };
        danaus_pattern p[4];
        int count = (int)rng_int(&r, 1, 4);
        random_patterns(&r, count, 30, p);
        random_chain c = chain_random(&r, p, count, types[round % 4], round % 3 > 0);
        danaus_chain *found = NULL;
        assert_ok(danaus_chain_save_int8(c.chain, path));
        assert_ok(danaus_chain_load(path, &found));
        assert_int_equal(danaus_chain_dtype(found), DANAUS_F32);
        expect_rounded(c.chain, found);
        expect_same_bias(c.chain, found);
        assert_ok(danaus_chain_save_int8(found, again));
        bytes x = file_bytes(path), y = file_bytes(again);
        assert_int_equal(x.size, y.size);
        assert_memory_equal(x.data, y.data, x.size);
        bytes_free(&x);
        bytes_free(&y);
        danaus_chain_destroy(found);
        chain_free(&c);
    }
}

static void what_has_no_8_bits_is_refused(void **state)
{
    (void)state;
    rng r = { 1 };
    danaus_chain *chain = random_bits(&r, two, 2, DANAUS_C64, 0);
    const char *path = scratch_path("x");
    assert_status(danaus_chain_save_int8(chain, path), DANAUS_ERR_UNSUPPORTED);
    assert_status(danaus_chain_save_int8(NULL, path), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_chain_save_int8(chain, NULL), DANAUS_ERR_ARGUMENT);
    danaus_chain_destroy(chain);
}

static danaus_status load_and_save_int8(void *path)
{
    danaus_chain *chain = NULL;
    danaus_status status = danaus_chain_load(path, &chain);
    if (status == DANAUS_OK)
        status = danaus_chain_save_int8(chain, path);
    danaus_chain_destroy(chain);
    return status;
}

static void memory_may_be_missing_for_8_bits(void **state)
{
    (void)state;
    char path[1024];
    rng r = { 2 };
    random_chain c = chain_random(&r, two, 2, DANAUS_F32, 1);
    snprintf(path, sizeof path, "%s", scratch_path("memory8"));
    assert_ok(danaus_chain_save_int8(c.chain, path));
    assert_in_range(expect_memory_errors(load_and_save_int8, path), 8, 40);
    chain_free(&c);
}

/* ---- files of other programs ---- */

/* A safetensors file written by hand, its data zero. */
static const char *file_of(const char *header, size_t size)
{
    const char *path = scratch_path("hand.safetensors");
    static const char zeros[4096];
    unsigned char length[8] = { (unsigned char)strlen(header),
                                (unsigned char)(strlen(header) >> 8) };
    bytes b = bytes_of(length, 8);
    bytes_append(&b, header, strlen(header));
    bytes_append(&b, zeros, size);
    file_write(path, b.data, b.size);
    bytes_free(&b);
    return path;
}

#define T(name, dtype, shape, begin, end)                                              \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape                          \
    "],\"data_offsets\":[" #begin "," #end "]}"
#define F0 T("factor.0", "F32", "1,1,2,1", 0, 8)
#define F1 T("factor.1", "F32", "1,2,1,1", 8, 16)

static void chains_of_other_programs_are_read(void **state)
{
    (void)state;
    static const char *const headers[] = {
        "{" F0 "," F1 "}",
        "{" F1 "," F0 ",\"__metadata__\":{\"format\":\"pt\"}}",
        "{\"__metadata__\":{\"format\":\"danaus chain 1\",\"x\":\"y\"}," F0 "," F1 "}",
        "{" F0 "," F1 "," T("factor.", "I64", "", 16, 24) "," T(
            "factor.x", "F64", "", 24, 32) "," T("factors", "F16", "0", 32, 32) "}",
    };
    static const size_t sizes[] = { 16, 16, 16, 32 };
    for (int i = 0; i < 4; i++) {
        danaus_chain *chain = NULL;
        assert_ok(danaus_chain_load(file_of(headers[i], sizes[i]), &chain));
        assert_int_equal(danaus_chain_count(chain), 2);
        assert_int_equal(danaus_chain_rows(chain), 1);
        assert_int_equal(danaus_chain_cols(chain), 1);
        assert_null(danaus_chain_bias(chain));
        danaus_chain_destroy(chain);
    }
}

static void what_is_no_chain_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t size;
        danaus_status status;
        const char *words;
    } cases[] = {
        { "{}", 0, DANAUS_ERR_FORMAT, "there is no tensor factor.0" },
        { "{" T("w", "F32", "1", 0, 4) "}", 4, DANAUS_ERR_FORMAT,
          "no tensor factor.0" },
        { "{" T("factor.1", "F32", "1,1,1,1", 0, 4) "}", 4, DANAUS_ERR_FORMAT,
          "no tensor factor.0" },
        { "{" F0 "," T("factor.2", "F32", "1,2,1,1", 8, 16) "}", 16, DANAUS_ERR_FORMAT,
          "factor.1 is missing" },
        { "{" F0 "," F1 "," T("factor.3", "I64", "1", 16, 24) "}", 24,
          DANAUS_ERR_FORMAT, "factor.2 is missing" },
        { "{" F0 "," T("factor.01", "F32", "1,2,1,1", 8, 16) "}", 16, DANAUS_ERR_FORMAT,
          "factor.1 is missing" },
        { "{" F0 "," T("factor.99999999999999999999", "F32", "2", 8, 16) "}", 16,
          DANAUS_ERR_FORMAT, "factor.1 is missing" },
        { "{" T("factor.0", "F32", "1,2,1", 0, 8) "}", 8, DANAUS_ERR_FORMAT,
          "factor.0 has 3 dimensions" },
        { "{" F0 "," T("factor.1", "F32", "1,2,1,1,1", 8, 16) "}", 16,
          DANAUS_ERR_FORMAT, "factor.1 has 5 dimensions" },
        { "{" F0 "," T("factor.1", "F16", "1,2,1,2", 8, 16) "}", 16, DANAUS_ERR_FORMAT,
          "factor.1 is f16 and the factors before it are f32" },
        { "{" T("factor.0", "I8", "1,1,1,1", 0, 1) "}", 1, DANAUS_ERR_FORMAT,
          "factor.0 has 8 bits, and there is no factor.0_scale" },
        { "{" T("factor.0", "I8", "1,1,2,1", 4, 6) "," T(
              "factor.0_scale", "F32", "1", 0, 4) "}",
          6, DANAUS_ERR_FORMAT, "factor.0_scale is no scale for factor.0" },
        { "{" T("factor.0", "I8", "1,1,2,1", 8, 10) "," T(
              "factor.0_scale", "C64", "1,1,1,1", 0, 8) "}",
          10, DANAUS_ERR_FORMAT, "factor.0_scale is no scale for factor.0" },
        { "{" T("factor.0", "I64", "1,1,1,1", 0, 8) "}", 8, DANAUS_ERR_UNSUPPORTED,
          "\"factor.0\" has type I64" },
        { "{" F0 "," T("factor.1", "F32", "1,1,2,1", 8, 16) "}", 16, DANAUS_ERR_SHAPE,
          "factor 0 has 2 columns but factor 1 has 1 rows" },
        { "{" T("factor.0", "F32", "1,0,2,1", 0, 0) "}", 0, DANAUS_ERR_SHAPE,
          "at least 1" },
        { "{" F0 "," F1 "," T("bias", "F32", "2", 16, 24) "}", 24, DANAUS_ERR_SHAPE,
          "bias does not have the shape [1]" },
        { "{" F0 "," F1 "," T("bias", "F32", "1,1", 16, 20) "}", 20, DANAUS_ERR_SHAPE,
          "bias does not have the shape [1]" },
        { "{" F0 "," F1 "," T("bias", "F32", "", 16, 20) "}", 20, DANAUS_ERR_SHAPE,
          "bias does not have the shape [1]" },
        { "{" F0 "," F1 "," T("bias", "F64", "1", 16, 24) "}", 24, DANAUS_ERR_FORMAT,
          "bias is f64 and the factors are f32" },
        { "{" F0 "," F1 "," T("bias", "I32", "1", 16, 20) "}", 20,
          DANAUS_ERR_UNSUPPORTED, "\"bias\" has type I32" },
        { "{\"__metadata__\":{\"format\":\"danaus chain 2\"}," F0 "," F1 "}", 16,
          DANAUS_ERR_UNSUPPORTED, "the file is \"danaus chain 2\"" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        danaus_chain *chain = NULL;
        const char *path = file_of(cases[i].header, cases[i].size);
        danaus_status status = danaus_chain_load(path, &chain);
        if (status != cases[i].status ||
            !strstr(danaus_error_detail(), cases[i].words) ||
            !strstr(danaus_error_detail(), "hand.safetensors: "))
            fail_msg(
                "%s: %s: %s", cases[i].header, danaus_status_name(status),
                danaus_error_detail());
        assert_null(chain);
    }
}

static void more_factors_than_a_chain_has_are_refused(void **state)
{
    (void)state;
    danaus_tensor tensors[DANAUS_MAX_FACTORS + 1];
    char names[DANAUS_MAX_FACTORS + 1][32];
    static const float one = 1;
    for (int i = 0; i <= DANAUS_MAX_FACTORS; i++) {
        snprintf(names[i], sizeof names[i], "factor.%d", i);
        tensors[i] =
            (danaus_tensor){ names[i], &one, DANAUS_F32, 4, { 1, 1, 1, 1 }, { 0 } };
    }
    danaus_chain *chain = NULL;
    const char *path = scratch_path("many.safetensors");
    assert_ok(
        danaus_file_write_safetensors(path, tensors, DANAUS_MAX_FACTORS + 1, NULL, 0));
    assert_status(danaus_chain_load(path, &chain), DANAUS_ERR_FORMAT);
    assert_non_null(strstr(danaus_error_detail(), "more than 64 factors"));
    assert_ok(danaus_file_write_npy(path, &tensors[0]));
    assert_status(danaus_chain_load(path, &chain), DANAUS_ERR_FORMAT);
    assert_status(danaus_chain_load(scratch_path("none"), &chain), DANAUS_ERR_IO);
    assert_status(danaus_chain_load(NULL, &chain), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_chain_load(path, NULL), DANAUS_ERR_ARGUMENT);
    assert_null(chain);
}

static void an_unwritable_path_is_an_error(void **state)
{
    (void)state;
    rng r = { 1 };
    danaus_chain *chain = random_bits(&r, two, 2, DANAUS_C64, 0);
    assert_status(danaus_chain_save(chain, scratch_path("none/chain")), DANAUS_ERR_IO);
    assert_status(danaus_chain_save(chain, scratch_directory()), DANAUS_ERR_IO);
    assert_status(danaus_chain_save(chain, NULL), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_chain_save(NULL, scratch_path("x")), DANAUS_ERR_ARGUMENT);
    danaus_chain_destroy(chain);
}

/* ---- damage and missing memory ---- */

static void cut_and_changed_files_do_no_harm(void **state)
{
    (void)state;
    char path[1024];
    snprintf(path, sizeof path, "%s", scratch_path("damaged"));
    rng seed = { 9 };
    danaus_chain *whole = random_bits(&seed, two, 2, DANAUS_F32, 1), *chain = NULL;
    assert_ok(danaus_chain_save(whole, path));
    bytes b = file_bytes(path);
    for (size_t size = 0; size < b.size; size++) {
        file_write(path, b.data, size);
        assert_status(danaus_chain_load(path, &chain), DANAUS_ERR_FORMAT);
    }
    for (uint64_t round = 0; round < (uint64_t)rounds_of(3000); round++) {
        rng r = { round };
        bytes changed = bytes_mutated(&r, &b);
        file_write(path, changed.data, changed.size);
        if (danaus_chain_load(path, &chain) == DANAUS_OK) {
            for (int i = 0; i < danaus_chain_count(chain); i++) {
                bytes copy =
                    bytes_of(danaus_chain_weights(chain, i), weight_bytes(chain, i));
                bytes_free(&copy);
            }
            danaus_chain_destroy(chain);
            chain = NULL;
        }
        assert_null(chain);
        bytes_free(&changed);
    }
    bytes_free(&b);
    danaus_chain_destroy(whole);
}

static danaus_status load_and_save(void *path)
{
    danaus_chain *chain = NULL;
    danaus_status status = danaus_chain_load(path, &chain);
    if (status == DANAUS_OK)
        status = danaus_chain_save(chain, path);
    else
        assert_null(chain);
    danaus_chain_destroy(chain);
    return status;
}

static void memory_may_be_missing_at_any_time(void **state)
{
    (void)state;
    char path[1024];
    rng r = { 2 };
    danaus_chain *chain = random_bits(&r, two, 2, DANAUS_BF16, 1), *loaded = NULL;
    snprintf(path, sizeof path, "%s", scratch_path("memory"));
    assert_ok(danaus_chain_save(chain, path));
    assert_in_range(expect_memory_errors(load_and_save, path), 8, 30);
    assert_ok(danaus_chain_load(path, &loaded));
    expect_same(chain, loaded);
    danaus_chain_destroy(loaded);
    danaus_chain_destroy(chain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_saved_chain_loads_again),
        cmocka_unit_test(the_longest_chain_is_kept),
        cmocka_unit_test(a_saved_chain_is_these_bytes),
        cmocka_unit_test(weights_of_8_bits_are_kept),
        cmocka_unit_test(what_has_no_8_bits_is_refused),
        cmocka_unit_test(memory_may_be_missing_for_8_bits),
        cmocka_unit_test(chains_of_other_programs_are_read),
        cmocka_unit_test(what_is_no_chain_is_refused),
        cmocka_unit_test(more_factors_than_a_chain_has_are_refused),
        cmocka_unit_test(an_unwritable_path_is_an_error),
        cmocka_unit_test(cut_and_changed_files_do_no_harm),
        cmocka_unit_test(memory_may_be_missing_at_any_time),
    };
    return cmocka_run_group_tests_name(
        "chain_file", tests, scratch_setup, scratch_teardown);
}
