/* safetensors files as they are written. */
// SPDX-License-Identifier: Apache-2.0
#include "support/failing.h"
#include "support/files.h"
#include "support/test.h"

#include "io/file.h"

#include <stdio.h>
#include <string.h>

static const float eight[] = { 1, 2, 3, 4, 5, 6, 7, 8 };

static const danaus_tensor three[] = {
    { "half", eight, DANAUS_F16, 1, { 3 }, { 0 } },
    { "z\"\n\xc3\xa9", eight, DANAUS_C128, 2, { 1, 1 }, { 0 } },
    { "none", NULL, DANAUS_F32, 3, { 5, 0, 7 }, { 0 } },
};

static const char *const pairs_of_text[] = { "format", "danaus chain 1", "who", "" };

/* The largest elements come first and data begin at a multiple of 64 bytes. */
static void written_bytes_are_those_of_the_format(void **state)
{
    (void)state;
    const char *path = scratch_path("written.safetensors");
    assert_ok(danaus_file_write_safetensors(path, three, 3, pairs_of_text, 2));
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"danaus chain 1\",\"who\":\"\","
        "\"danaus c128\":\"[\\\"z\\\\\\\"\\\\n\xc3\xa9\\\"]\"},"
        "\"z\\\"\\n\xc3\xa9\":{\"dtype\":\"F64\",\"shape\":[1,1,2],"
        "\"data_offsets\":[0,16]},"
        "\"none\":{\"dtype\":\"F32\",\"shape\":[5,0,7],\"data_offsets\":[16,16]},"
        "\"half\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[16,22]}}";
    bytes b = file_bytes(path);
    size_t start = (8 + strlen(header) + 63) / 64 * 64;
    assert_int_equal(b.size, start + 22);
    assert_int_equal(b.data[0] + 256 * b.data[1], start - 8);
    for (int i = 2; i < 8; i++)
        assert_int_equal(b.data[i], 0);
    assert_memory_equal(b.data + 8, header, strlen(header));
    for (size_t i = 8 + strlen(header); i < start; i++)
        assert_int_equal(b.data[i], ' ');
    assert_memory_equal(b.data + start, eight, 16);
    assert_memory_equal(b.data + start + 16, eight, 6);
    bytes_free(&b);

    danaus_file *file;
    danaus_tensor t;
    assert_ok(danaus_file_open(path, &file));
    assert_int_equal(danaus_file_count(file), 3);
    assert_ok(danaus_file_find(file, "z\"\n\xc3\xa9", &t));
    assert_int_equal((uintptr_t)t.data % 64, 0);
    assert_string_equal(danaus_file_metadata(file, "who"), "");
    danaus_file_close(file);
}

static void what_is_written_is_read_again(void **state)
{
    (void)state;
    const char *path = scratch_path("again.safetensors");
    for (uint64_t round = 0; round < 100; round++) {
        rng r = { round };
        danaus_tensor tensors[6];
        char names[6][16];
        int count = (int)rng_int(&r, 0, 6);
        for (int i = 0; i < count; i++) {
            danaus_tensor *t = &tensors[i];
            danaus_dtype dtype = (danaus_dtype)rng_int(&r, DANAUS_F32, DANAUS_C128);
            snprintf(names[i], sizeof names[i], "t%d", i);
            *t = (danaus_tensor){ names[i], eight, dtype, (int)rng_int(&r, 0, 8),
                                  { 0 },    { 0 } };
            for (int j = 0; j < t->ndim; j++)
                t->shape[j] = j == 3 ? rng_int(&r, 0, 2) : 1;
        }
        assert_ok(danaus_file_write_safetensors(path, tensors, count, NULL, 0));
        danaus_file *file;
        assert_ok(danaus_file_open(path, &file));
        assert_int_equal(danaus_file_count(file), count);
        for (int i = 0; i < count; i++) {
            danaus_tensor t;
            int64_t size;
            assert_ok(danaus_file_find(file, names[i], &t));
            assert_int_equal(t.dtype, tensors[i].dtype);
            assert_int_equal(t.ndim, tensors[i].ndim);
            assert_memory_equal(t.shape, tensors[i].shape, sizeof t.shape);
            assert_false(dn_array_bytes_overflow(t.dtype, t.ndim, t.shape, &size));
            assert_memory_equal(t.data, eight, (size_t)size);
            assert_int_equal(
                (const unsigned char *)t.data >= file->map.data &&
                    (const unsigned char *)t.data <= file->map.data + file->map.size,
                1); /* in the map: no tensor needs a copy */
        }
        assert_null(danaus_file_metadata(file, "format"));
        danaus_file_close(file);
    }
}

static void refuse_to_write(
    danaus_tensor first, const char *const *metadata, int pairs, const char *words)
{
    danaus_tensor tensors[] = { first, { "x", eight, DANAUS_F32, 1, { 8 }, { 0 } } };
    danaus_status status = danaus_file_write_safetensors(
        scratch_path("never"), tensors, 2, metadata, pairs);
    if (status != DANAUS_ERR_ARGUMENT && status != DANAUS_ERR_SHAPE)
        fail_msg("%s: %s", words, danaus_status_name(status));
    if (!strstr(danaus_error_detail(), words))
        fail_msg("%s: %s", words, danaus_error_detail());
    assert_status(
        danaus_file_open(scratch_path("never"), &(danaus_file *){ 0 }), DANAUS_ERR_IO);
}

static void what_cannot_be_in_a_file_is_not_written(void **state)
{
    (void)state;
    const danaus_tensor good = { "y", eight, DANAUS_F32, 1, { 8 }, { 0 } };
    const char *path = scratch_path("never");
    danaus_tensor t = good;
    t.name = NULL;
    refuse_to_write(t, NULL, 0, "a tensor name is NULL");
    t.name = "\xff";
    refuse_to_write(t, NULL, 0, "is not UTF-8");
    t.name = "x";
    refuse_to_write(t, NULL, 0, "\"x\" is given twice");
    t.name = "__metadata__";
    refuse_to_write(t, NULL, 0, "cannot be named");
    t = good, t.shape[0] = -8;
    refuse_to_write(t, NULL, 0, "negative");
    t = good, t.shape[0] = INT64_MAX / 4;
    refuse_to_write(t, NULL, 0, "overflows");
    t = good, t.data = NULL;
    refuse_to_write(t, NULL, 0, "NULL");
    t = good, t.reserved[4] = 1;
    refuse_to_write(t, NULL, 0, "reserved");
    t = good, t.dtype = (danaus_dtype)0;
    refuse_to_write(t, NULL, 0, "no element type");
    refuse_to_write(good, (const char *[]){ "a", "1", "a", "2" }, 2, "given twice");
    refuse_to_write(good, (const char *[]){ NULL, "1" }, 1, "key is NULL");
    refuse_to_write(good, (const char *[]){ "a", NULL }, 1, "value is NULL");
    refuse_to_write(good, (const char *[]){ "a", "\xc0\x80" }, 1, "is not UTF-8");
    assert_status(
        danaus_file_write_safetensors(NULL, &good, 1, NULL, 0), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_file_write_safetensors(path, NULL, 1, NULL, 0), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_file_write_safetensors(path, &good, -1, NULL, 0), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_file_write_safetensors(path, &good, 1, NULL, 1), DANAUS_ERR_ARGUMENT);
}

static danaus_status write_three(void *path)
{
    return danaus_file_write_safetensors(path, three, 3, pairs_of_text, 2);
}

static void memory_may_be_missing_at_any_time(void **state)
{
    (void)state;
    char path[1024];
    snprintf(path, sizeof path, "%s", scratch_path("memory.safetensors"));
    assert_int_equal(expect_memory_errors(write_three, path), 3);
}

/* Only while writing: jansson 2.14 itself runs past a string that it had no memory
   to keep while reading. */
static void jansson_may_lack_memory_at_any_time(void **state)
{
    (void)state;
    char path[1024];
    fail_in_jansson();
    snprintf(path, sizeof path, "%s", scratch_path("jansson.safetensors"));
    file_write(path, "old", 3);
    int files = scratch_count();
    assert_in_range(expect_memory_errors(write_three, path), 50, 1000);
    assert_int_equal(scratch_count(), files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_bytes_are_those_of_the_format),
        cmocka_unit_test(what_is_written_is_read_again),
        cmocka_unit_test(what_cannot_be_in_a_file_is_not_written),
        cmocka_unit_test(memory_may_be_missing_at_any_time),
        cmocka_unit_test(jansson_may_lack_memory_at_any_time),
    };
    return cmocka_run_group_tests_name(
        "safetensors_write", tests, scratch_setup, scratch_teardown);
}
