/* safetensors files: what is read, what is refused, what damage does. */
// SPDX-License-Identifier: Apache-2.0
#include "support/device.h"
#include "support/failing.h"
#include "support/files.h"
#include "support/test.h"

#include "io/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A file from its header and data, with the length that is claimed. */
static bytes with_length(
    uint64_t length, const char *header, const void *data, size_t size)
{
    unsigned char start[8];
    for (int i = 0; i < 8; i++)
        start[i] = (unsigned char)(length >> (8 * i));
    bytes b = bytes_of(start, sizeof start);
    bytes_append(&b, header, strlen(header));
    bytes_append(&b, data, size);
    return b;
}

static const float eight[] = { 1, 2, 3, 4, 5, 6, 7, 8 };

/* With the first `size` bytes of the array above as data. */
static bytes file_of(const char *header, size_t size)
{
    return with_length(strlen(header), header, eight, size);
}

static danaus_file *read_file(const bytes *b)
{
    danaus_file *file = NULL;
    assert_ok(dn_file_read(b->data, b->size, &file));
    return file;
}

static void refuse(const char *header, size_t size, const char *words)
{
    bytes b = file_of(header, size);
    danaus_file *file = NULL;
    danaus_status status = dn_file_read(b.data, b.size, &file);
    if (status != DANAUS_ERR_FORMAT || !strstr(danaus_error_detail(), words))
        fail_msg(
            "%s: %s: %s", header, danaus_status_name(status), danaus_error_detail());
    assert_null(file);
    bytes_free(&b);
}

#define T(name, dtype, shape, begin, end)                                              \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape                          \
    "],\"data_offsets\":[" #begin "," #end "]}"

static void tensors_come_in_the_order_of_their_data(void **state)
{
    (void)state;
    bytes b = file_of(
        "{" T("last", "F32", "2,3", 8, 32) "," T(
            "first", "BF16", "4", 0,
            8) ",\"__metadata__\":{\"format\":\"pt\",\"\":\"none\"}}   ",
        32);
    danaus_file *file = read_file(&b);
    danaus_tensor t;
    assert_int_equal(danaus_file_count(file), 2);
    assert_ok(danaus_file_tensor(file, 0, &t));
    assert_string_equal(t.name, "first");
    assert_int_equal(t.dtype, DANAUS_BF16);
    assert_ok(danaus_file_tensor(file, 1, &t));
    assert_string_equal(t.name, "last");
    assert_ok(danaus_file_find(file, "last", &t));
    assert_int_equal(t.dtype, DANAUS_F32);
    assert_int_equal(t.ndim, 2);
    assert_int_equal(t.shape[0], 2);
    assert_int_equal(t.shape[1], 3);
    assert_memory_equal(t.data, eight + 2, 24);
    assert_string_equal(danaus_file_metadata(file, "format"), "pt");
    assert_string_equal(danaus_file_metadata(file, ""), "none");
    assert_null(danaus_file_metadata(file, "other"));
    assert_null(danaus_file_metadata(file, NULL));
    assert_status(danaus_file_find(file, "lost", &t), DANAUS_ERR_ARGUMENT);
    assert_string_equal(
        danaus_error_detail(),
        "there is no tensor \"lost\"; the file has 2, the first is \"first\"");
    danaus_file_close(file);
    bytes_free(&b);
}

static void every_type_is_read(void **state)
{
    (void)state;
    bytes b = file_of(
        "{" T("a", "F32", "", 0, 4) "," T("b", "F16", "2", 4, 8) "," T("c", "BF16", "1,1,1,1,1,1,1,2", 8, 12) "," T(
            "d", "F64", "1", 12,
            20) "," T("e", "C64", "1", 20, 28) "," T("f", "C128", "0,7", 28, 28) "," T("g", "F32", "1", 28, 32) "}",
        32);
    danaus_file *file = read_file(&b);
    for (int i = 0; i < 7; i++) {
        static const danaus_dtype dtypes[] = { DANAUS_F32, DANAUS_F16, DANAUS_BF16,
                                               DANAUS_F64, DANAUS_C64, DANAUS_C128,
                                               DANAUS_F32 };
        danaus_tensor t;
        assert_ok(danaus_file_find(file, (char[]){ (char)('a' + i), 0 }, &t));
        assert_int_equal(t.dtype, dtypes[i]);
    }
    danaus_file_close(file);
    bytes_free(&b);
}

static void a_file_may_be_empty(void **state)
{
    (void)state;
    static const char *const headers[] = { "{}", "{ }  \n", "{\"__metadata__\":{}}",
                                           "{" T("x", "F32", "0", 0, 0) "}" };
    for (int i = 0; i < 4; i++) {
        bytes b = file_of(headers[i], 0);
        danaus_file *file = read_file(&b);
        danaus_tensor t;
        assert_int_equal(danaus_file_count(file), i == 3);
        assert_status(danaus_file_find(file, "y", &t), DANAUS_ERR_ARGUMENT);
        danaus_file_close(file);
        bytes_free(&b);
    }
}

/* As the reference does: white space before the object, metadata that are null, integers of
   any size where nothing is read. */
static void headers_are_read_that_the_reference_reads(void **state)
{
    (void)state;
    static const char *const headers[] = {
        " {" T("x", "F32", "1", 0, 4) "}",
        "\n\t\r {" T("x", "F32", "1", 0, 4) "}",
        "{\"__metadata__\":null," T("x", "F32", "1", 0, 4) "}",
        "{\"x\":{\"more\":[-1000000000000000019884624838656, "
        "\"\\\"99999999999999999999\"],"
        "\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        bytes b = file_of(headers[i], 4);
        danaus_file *file = read_file(&b);
        assert_int_equal(danaus_file_count(file), 1);
        danaus_file_close(file);
        bytes_free(&b);
    }
}

/* c128 is stored as pairs of F64. */
static void pairs_that_the_metadata_name_are_complex(void **state)
{
    (void)state;
#define PAIRS(names) "{\"__metadata__\":{\"danaus c128\":\"" names "\"},"
    bytes b = file_of(
        PAIRS("[\\\"x\\\", \\\"lost\\\", 1]")
            T("x", "F64", "1,2", 0, 16) "," T("y", "F64", "1,2", 16, 32) "}",
        32);
    danaus_file *file = read_file(&b);
    danaus_tensor t;
    assert_ok(danaus_file_find(file, "x", &t));
    assert_int_equal(t.dtype, DANAUS_C128);
    assert_int_equal(t.ndim, 1);
    assert_ok(danaus_file_find(file, "y", &t));
    assert_int_equal(t.dtype, DANAUS_F64);
    assert_int_equal(t.ndim, 2);
    danaus_file_close(file);
    bytes_free(&b);
    refuse(PAIRS("[\\\"x\\\"]") T("x", "F64", "2,1", 0, 16) "}", 16, "pairs of F64");
    refuse(PAIRS("[\\\"x\\\"]") T("x", "F64", "", 0, 8) "}", 8, "pairs of F64");
    refuse(PAIRS("[\\\"x\\\"]") T("x", "F32", "2", 0, 8) "}", 8, "pairs of F64");
    refuse(
        PAIRS("nothing") T("x", "F32", "2", 0, 8) "}", 8,
        "danaus c128: no proper JSON");
#undef PAIRS
}

/* Also where danaus lacks the type, or where dimensions are too many. */
static void bytes_of_any_known_type_are_compared(void **state)
{
    (void)state;
    refuse("{" T("x", "BOOL", "1", 0, 4) "}", 4, "needs 1 bytes");
    refuse("{" T("x", "F4", "7", 0, 4) "}", 4, "a part of a byte");
    refuse("{" T("x", "F32", "1,1,1,1,1,1,1,1,2", 0, 4) "}", 4, "needs 8 bytes");
    refuse("{" T("x", "I64", "4611686018427387904", 0, 4) "}", 4, "overflows");
}

static void types_that_danaus_lacks_are_named(void **state)
{
    (void)state;
    bytes b = file_of(
        "{" T("ids", "I64", "2", 0, 16) "," T("mask", "F8_E4M3", "4", 16, 20) "," T(
            "deep", "F32", "1,1,1,1,1,1,1,1,1", 20,
            24) "," T("x", "F32", "2", 24, 32) "}",
        32);
    danaus_file *file = read_file(&b);
    danaus_tensor t;
    assert_int_equal(danaus_file_count(file), 1);
    assert_ok(danaus_file_find(file, "x", &t));
    assert_memory_equal(t.data, eight + 6, 8);
    assert_status(danaus_file_find(file, "ids", &t), DANAUS_ERR_UNSUPPORTED);
    assert_string_equal(
        danaus_error_detail(),
        "tensor \"ids\" has type I64, which danaus does not read");
    assert_status(danaus_file_find(file, "mask", &t), DANAUS_ERR_UNSUPPORTED);
    assert_status(danaus_file_find(file, "deep", &t), DANAUS_ERR_UNSUPPORTED);
    assert_string_equal(
        danaus_error_detail(),
        "tensor \"deep\" has 9 dimensions; danaus reads up to 8");
    assert_status(danaus_file_find(file, "none", &t), DANAUS_ERR_ARGUMENT);
    assert_string_equal(dn_file_name(file, 0), "x");
    assert_string_equal(dn_file_name(file, 1), "ids");
    assert_string_equal(dn_file_name(file, 3), "deep");
    assert_null(dn_file_name(file, 4));
    danaus_file_close(file);
    bytes_free(&b);
}

static void tensors_at_odd_addresses_are_copied(void **state)
{
    (void)state;
    for (int spaces = 0; spaces < 17; spaces++) {
        char header[400];
        snprintf(
            header, sizeof header, "{%s,%s,%s,%s,%s}%*s", T("a", "BF16", "1", 0, 2),
            T("b", "F32", "1", 2, 6), T("c", "F64", "2", 6, 22),
            T("d", "F32", "0", 22, 22), T("e", "C64", "1", 22, 30), spaces, "");
        bytes b = file_of(header, 30);
        danaus_file *file = read_file(&b);
        danaus_tensor t;
        assert_ok(danaus_file_find(file, "b", &t));
        assert_int_equal((uintptr_t)t.data % 4, 0);
        assert_memory_equal(t.data, (const char *)eight + 2, 4);
        assert_ok(danaus_file_find(file, "c", &t));
        assert_int_equal((uintptr_t)t.data % 8, 0);
        assert_memory_equal(t.data, (const char *)eight + 6, 16);
        assert_ok(danaus_file_find(file, "e", &t));
        assert_int_equal((uintptr_t)t.data % 4, 0);
        assert_memory_equal(t.data, (const char *)eight + 22, 8);
        danaus_file_close(file);
        bytes_free(&b);

        snprintf(
            header, sizeof header, "{%s}%*s", T("d", "F32", "0", 0, 0), spaces, "");
        b = file_of(header, 0);
        file = read_file(&b);
        assert_ok(danaus_file_find(file, "d", &t));
        assert_int_equal((uintptr_t)t.data % 4, 0);
        danaus_file_close(file);
        bytes_free(&b);
    }
}

static void wrong_json_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *header, *words;
    } cases[] = {
        { "{", "no proper JSON" },
        { "{}}", "no proper JSON" },
        { "{} x", "no proper JSON" },
        { "{\"x\":1", "no proper JSON" },
        { "{\"\xff\":1}", "no proper JSON" },
        { "{\"a\\u0000b\":1}", "no proper JSON" },
        { "{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", "duplicate" },
        { "{" T("x", "F32", "0", 0, 0) "," T("x", "F32", "0", 0, 0) "}", "duplicate" },
        { "{\"__metadata__\":1}", "not an object" },
        { "{\"__metadata__\":{\"n\":1}}", "\"n\" is not a string" },
        { "{\"x\":1}", "not described by an object" },
        { "{\"x\":{\"shape\":[],\"data_offsets\":[0,0]}}", "no dtype" },
        { "{\"x\":{\"dtype\":7,\"shape\":[],\"data_offsets\":[0,0]}}", "no dtype" },
        { "{\"x\":{\"dtype\":\"F32\",\"data_offsets\":[0,0]}}", "no shape" },
        { "{\"x\":{\"dtype\":\"F32\",\"shape\":0,\"data_offsets\":[0,0]}}",
          "no shape" },
        { "{\"x\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,0]}}",
          "no shape" },
        { "{\"x\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,0]}}",
          "no shape" },
        { "{\"x\":{\"dtype\":\"I8\",\"shape\":[-1],\"data_offsets\":[0,0]}}",
          "no shape" },
        { "{\"x\":{\"dtype\":\"F32\",\"shape\":[0]}}", "no data_offsets" },
        { "{\"x\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0]}}",
          "no data_offsets" },
        { "{\"x\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0,0]}}",
          "no data_offsets" },
        { "{\"x\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,\"0\"]}}",
          "no data_offsets" },
        { "{\"x\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":{\"a\":0,\"b\":0}}"
          "}",
          "no data_offsets" },
        { "{" T("x", "F32", "0", -4, 0) "}", "no data_offsets" },
        { "{" T("x", "F32", "1", 0, 9223372036854775808) "}", "data_offsets" },
        { "{" T("x", "F32", "9223372036854775808", 0, 0) "}", "no shape of integers" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(cases[i].header, 0, cases[i].words);
}

static void sizes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *header, *words;
    } cases[] = {
        { "{" T("x", "F32", "1", 0, 4) "}", "byte 4 of 8 bytes" },
        { "{" T("x", "F32", "1", 4, 8) "}", "byte 0 of 8 bytes" },
        { "{" T("x", "F16", "1", 0, 2) "," T("y", "F32", "1", 4, 8) "}",
          "byte 2 of 8" },
        { "{}", "byte 0 of 8 bytes" },
        { "{" T("x", "F32", "1", 0, 4) "," T("y", "F32", "2", 0, 8) "}",
          "\"x\" and \"y\" overlap" },
        { "{" T("x", "F32", "2", 0, 8) "," T("y", "F32", "1", 4, 8) "}", "overlap" },
        { "{" T("x", "F32", "2", 0, 8) "," T("y", "F32", "0", 4, 4) "}", "overlap" },
        { "{" T("x", "F32", "1", 8, 4) "}", "8 to 4 in 8 bytes" },
        { "{" T("x", "F32", "3", 0, 12) "}", "0 to 12 in 8 bytes" },
        { "{" T("x", "I64", "1", 0, 12) "}", "0 to 12 in 8 bytes" },
        { "{" T("x", "F32", "1", 9223372036854775802, 9223372036854775806) "}",
          "in 8 bytes" },
        { "{" T("x", "F32", "1", 0, 8) "}", "needs 4 bytes" },
        { "{" T("x", "F32", "3", 0, 8) "}", "needs 12 bytes" },
        { "{" T("x", "F32", "", 0, 8) "}", "needs 4 bytes" },
        { "{" T("x", "F32", "9223372036854775806", 0, 8) "}", "overflows" },
        { "{" T("x", "F32", "4294967296,2147483648", 0, 8) "}", "overflows" },
        { "{" T("x", "F32", "0,4294967296,2147483648", 0, 8) "}", "overflows" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(cases[i].header, 8, cases[i].words);
}

static void wrong_lengths_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint64_t length;
        const char *words;
    } cases[] = {
        { 3, "claims 3 bytes and the file has 2" },
        { 100000001, "claims 100000001 bytes; at most 100000000" },
        { 100000000, "claims 100000000 bytes and the file has 2" },
        { UINT64_MAX, "claims 18446744073709551615 bytes" },
        { (uint64_t)1 << 63, "claims 9223372036854775808 bytes" },
        { 1, "no proper JSON" },
        { 0, "no proper JSON" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bytes b = with_length(cases[i].length, "{}", NULL, 0);
        danaus_file *file = NULL;
        assert_status(dn_file_read(b.data, b.size, &file), DANAUS_ERR_FORMAT);
        if (!strstr(danaus_error_detail(), cases[i].words))
            fail_msg("length %zu: %s", i, danaus_error_detail());
        bytes_free(&b);
    }
}

static void a_deep_header_is_refused(void **state)
{
    (void)state;
    enum { DEPTH = 1000000 };
    char *header = malloc(DEPTH + 6);
    memset(header, '[', DEPTH + 5);
    memcpy(header, "{\"x\":", 5);
    header[DEPTH + 5] = 0;
    refuse(header, 0, "no proper JSON");
    free(header);
}

static void missing_arguments_are_refused(void **state)
{
    (void)state;
    danaus_file *file = NULL;
    danaus_tensor t;
    assert_status(danaus_file_open(NULL, &file), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_file_open("x", NULL), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_file_open(scratch_path("none"), &file), DANAUS_ERR_IO);
    assert_status(danaus_file_open(scratch_directory(), &file), DANAUS_ERR_IO);
    file_write(scratch_path("empty"), "", 0);
    assert_status(danaus_file_open(scratch_path("empty"), &file), DANAUS_ERR_FORMAT);
    assert_non_null(strstr(danaus_error_detail(), "empty: the file is empty"));
    assert_null(file);
    assert_int_equal(danaus_file_count(NULL), 0);
    assert_null(danaus_file_metadata(NULL, "x"));
    assert_status(danaus_file_tensor(NULL, 0, &t), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_file_find(NULL, "x", &t), DANAUS_ERR_ARGUMENT);
    danaus_file_close(NULL);
}

/* ---- damaged files ---- */

static bytes sample(void)
{
    return file_of(
        "{\"__metadata__\":{\"format\":\"pt\"}," T("a", "F16", "3", 0, 6) "," T(
            "b", "F32", "2,2", 6,
            22) "," T("c", "I16", "", 22, 24) "," T("d", "C64", "1,1", 24, 32) "}",
        32);
}

static void every_cut_is_refused(void **state)
{
    (void)state;
    bytes b = sample();
    expect_cuts_are_refused(&b);
    bytes_free(&b);
}

/* All elements of all tensors can be read, whatever the file has become. */
static void check_harmless(const bytes *b)
{
    danaus_file *file = NULL;
    if (dn_file_read(b->data, b->size, &file) != DANAUS_OK) {
        assert_null(file);
        return;
    }
    for (int i = 0; i < danaus_file_count(file); i++) {
        danaus_tensor t, u;
        assert_ok(danaus_file_tensor(file, i, &t));
        assert_ok(dn_check_tensor(&t));
        assert_ok(danaus_file_find(file, t.name, &u));
        assert_ptr_equal(u.data, t.data);
        assert_false(dn_misaligned(t.data, t.dtype));
        int64_t size;
        assert_false(dn_array_bytes_overflow(t.dtype, t.ndim, t.shape, &size));
        bytes copy = bytes_of(t.data, (size_t)size);
        bytes_free(&copy);
    }
    danaus_file_close(file);
}

static void changed_files_do_no_harm(void **state)
{
    (void)state;
    bytes b = sample();
    for (uint64_t round = 0; round < (uint64_t)rounds_of(20000); round++) {
        rng r = { round };
        bytes changed = bytes_mutated(&r, &b);
        check_harmless(&changed);
        bytes_free(&changed);
    }
    bytes_free(&b);
}

/* ---- missing memory ---- */

static void memory_may_be_missing_at_any_time(void **state)
{
    (void)state;
    char path[1024];
    snprintf(path, sizeof path, "%s", scratch_path("memory.safetensors"));
    bytes b = sample();
    file_write(path, b.data, b.size);
    assert_int_equal(expect_memory_errors(file_open_and_close, path), 9);
    bytes_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_come_in_the_order_of_their_data),
        cmocka_unit_test(every_type_is_read),
        cmocka_unit_test(a_file_may_be_empty),
        cmocka_unit_test(headers_are_read_that_the_reference_reads),
        cmocka_unit_test(pairs_that_the_metadata_name_are_complex),
        cmocka_unit_test(bytes_of_any_known_type_are_compared),
        cmocka_unit_test(types_that_danaus_lacks_are_named),
        cmocka_unit_test(tensors_at_odd_addresses_are_copied),
        cmocka_unit_test(wrong_json_is_refused),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(wrong_lengths_are_refused),
        cmocka_unit_test(a_deep_header_is_refused),
        cmocka_unit_test(missing_arguments_are_refused),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(changed_files_do_no_harm),
        cmocka_unit_test(memory_may_be_missing_at_any_time),
    };
    return cmocka_run_group_tests_name(
        "safetensors", tests, scratch_setup, scratch_teardown);
}
