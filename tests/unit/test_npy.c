/* .npy files: what is read, what is refused, what is written. */
// SPDX-License-Identifier: Apache-2.0
#include "support/device.h"
#include "support/failing.h"
#include "support/files.h"
#include "support/test.h"

#include "io/file.h"

#include <stdio.h>
#include <string.h>

/* A file from its parts, with a header as it is given. */
static bytes npy(int major, const char *header, const void *data, size_t size)
{
    size_t length = strlen(header);
    unsigned char start[12] = "\x93NUMPY";
    start[6] = (unsigned char)major;
    for (int i = 0; i < 4; i++)
        start[8 + i] = (unsigned char)(length >> (8 * i));
    bytes b = bytes_of(start, major == 1 ? 10 : 12);
    bytes_append(&b, header, length);
    bytes_append(&b, data, size);
    return b;
}

/* Reads the file; the tensor lives as long as the file. */
static danaus_file *read_npy(const bytes *b, danaus_tensor *t)
{
    danaus_file *file = NULL;
    assert_ok(dn_file_read(b->data, b->size, &file));
    assert_int_equal(danaus_file_count(file), 1);
    assert_ok(danaus_file_tensor(file, 0, t));
    assert_string_equal(t->name, "");
    return file;
}

static void refuse(
    int major, const char *header, size_t size, danaus_status expected,
    const char *words)
{
    static const char zeros[256];
    bytes b = npy(major, header, zeros, size);
    danaus_file *file = NULL;
    danaus_status status = dn_file_read(b.data, b.size, &file);
    if (status != expected || !strstr(danaus_error_detail(), words))
        fail_msg(
            "%s: %s: %s", header, danaus_status_name(status), danaus_error_detail());
    assert_null(file);
    bytes_free(&b);
}

static const float six[] = { 1, 2, 3, 4, 5, 6 };

static void every_version_is_read(void **state)
{
    (void)state;
    for (int major = 1; major <= 3; major++) {
        bytes b = npy(
            major, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n",
            six, sizeof six);
        danaus_tensor t;
        danaus_file *file = read_npy(&b, &t);
        assert_int_equal(t.dtype, DANAUS_F32);
        assert_int_equal(t.ndim, 2);
        assert_int_equal(t.shape[0], 2);
        assert_int_equal(t.shape[1], 3);
        assert_memory_equal(t.data, six, sizeof six);
        danaus_file_close(file);
        bytes_free(&b);
    }
    refuse(4, "{}", 0, DANAUS_ERR_FORMAT, "version 4.0");
    refuse(0, "{}", 0, DANAUS_ERR_FORMAT, "version 0.0");
}

static void every_type_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *descr;
        danaus_dtype dtype;
    } types[] = {
        { "<f2", DANAUS_F16 },  { "<f4", DANAUS_F32 },       { "<f8", DANAUS_F64 },
        { "<c8", DANAUS_C64 },  { "<c16", DANAUS_C128 },     { "<V2", DANAUS_BF16 },
        { "|V2", DANAUS_BF16 }, { "bfloat16", DANAUS_BF16 }, { "=f4", DANAUS_F32 },
    };
    static const char zeros[64];
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char header[100];
        snprintf(
            header, sizeof header,
            "{'descr': '%s', 'fortran_order': False, 'shape': (3,), }", types[i].descr);
        bytes b = npy(1, header, zeros, 3 * danaus_dtype_size(types[i].dtype));
        danaus_tensor t;
        danaus_file *file = read_npy(&b, &t);
        assert_int_equal(t.dtype, types[i].dtype);
        danaus_file_close(file);
        bytes_free(&b);
    }
}

static void other_types_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *descr;
        danaus_status status;
        const char *words;
    } cases[] = {
        { "'>f4'", DANAUS_ERR_UNSUPPORTED, "'>f4' is big-endian" },
        { "'>c16'", DANAUS_ERR_UNSUPPORTED, "'>c16' is big-endian" },
        { "'|O'", DANAUS_ERR_UNSUPPORTED, "'|O' is Python objects" },
        { "'<i8'", DANAUS_ERR_UNSUPPORTED, "'<i8' is not one" },
        { "'|b1'", DANAUS_ERR_UNSUPPORTED, "'|b1' is not one" },
        { "'|u1'", DANAUS_ERR_UNSUPPORTED, "'|u1' is not one" },
        { "'<f16'", DANAUS_ERR_UNSUPPORTED, "'<f16' is not one" },
        { "'<f04'", DANAUS_ERR_UNSUPPORTED, "'<f04' is not one" },
        { "'<f'", DANAUS_ERR_UNSUPPORTED, "'<f' is not one" },
        { "'<M8[ns]'", DANAUS_ERR_UNSUPPORTED, "'<M8[ns]' is not one" },
        { "'|V4'", DANAUS_ERR_UNSUPPORTED, "'|V4' is not one" },
        { "[('x', '<f4')]", DANAUS_ERR_UNSUPPORTED, "records" },
        { "'|f4'", DANAUS_ERR_FORMAT, "'|f4' has no byte order" },
        { "'f4'", DANAUS_ERR_FORMAT, "'f4' has no byte order" },
        { "''", DANAUS_ERR_FORMAT, "'' has no byte order" },
        { "4", DANAUS_ERR_FORMAT, "descr is not a string" },
        { "'<\\x664'", DANAUS_ERR_FORMAT, "descr is not a string" },
        { "'\x1b[2J'", DANAUS_ERR_FORMAT, "'?[2J' has no byte order" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char header[100];
        snprintf(
            header, sizeof header,
            "{'descr': %s, 'fortran_order': False, 'shape': (), }", cases[i].descr);
        refuse(1, header, 4, cases[i].status, cases[i].words);
    }
}

static void the_header_is_python_in_any_writing(void **state)
{
    (void)state;
    static const char *const headers[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
        "{'descr':'<f4','fortran_order':False,'shape':(2,3)}",
        "  {\"shape\" :( 2,\n3 , ) ,\"fortran_order\"\t:False ,'descr': \"<f4\",} \n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L), }",
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        bytes b = npy(1, headers[i], six, sizeof six);
        danaus_tensor t;
        danaus_file *file = read_npy(&b, &t);
        assert_int_equal(t.ndim, 2);
        assert_int_equal(t.shape[0] * 10 + t.shape[1], 23);
        danaus_file_close(file);
        bytes_free(&b);
    }
}

static void wrong_headers_are_refused(void **state)
{
    (void)state;
#define HEAD "{'descr': '<f4', 'fortran_order': False, "
    static const struct {
        const char *header, *words;
    } cases[] = {
        { "", "not a dictionary" },
        { "[]", "not a dictionary" },
        { "{}", "lacks the key descr" },
        { "{'descr': '<f4', 'shape': (), }", "lacks the key fortran_order" },
        { HEAD "}", "lacks the key shape" },
        { HEAD "'shape': (1,), 'more': 1}", "a key other than" },
        { HEAD "'shape': (1,), 'shape': (1,)}", "twice" },
        { HEAD "'shape': (1,), shape: 1}", "dictionary of strings" },
        { HEAD "'shape' (1,)}", "dictionary of strings" },
        { HEAD "'shape': (1,)", "a comma is missing between" },
        { HEAD "'shape': (1,),", "dictionary of strings" },
        { HEAD "'shape': (1,)} x", "something follows" },
        { HEAD "'shape': 1}", "not a tuple" },
        { HEAD "'shape': (1)}", "a number, not a tuple" },
        { HEAD "'shape': [1]}", "not a tuple" },
        { HEAD "'shape': (,)}", "not a tuple" },
        { HEAD "'shape': (1 1)}", "a comma is missing in the shape" },
        { HEAD "'shape': (1,,1)}", "not a tuple" },
        { HEAD "'shape': (1.0,)}", "comma is missing in the shape" },
        { HEAD "'shape': (", "not a tuple" },
        { HEAD "'shape': (1", "comma is missing in the shape" },
        { HEAD "'shape': (1,", "not a tuple" },
        { HEAD "'shape': (-1,)}", "negative" },
        { HEAD "'shape': (9223372036854775808,)}", "63 bits" },
        { HEAD "'shape': (99999999999999999999999,)}", "63 bits" },
        { HEAD "'shape': (9223372036854775807,)}", "overflows" },
        { HEAD "'shape': (4294967296, 4294967296)}", "overflows" },
        { HEAD "'shape': (0, 4294967296, 4294967296)}", "overflows" },
        { "{'descr': '<f4', 'fortran_order': None, 'shape': ()}", "neither True nor" },
        { "{'descr': '<f4", "not a string" },
        { "{'descr", "dictionary of strings" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(1, cases[i].header, 4, DANAUS_ERR_FORMAT, cases[i].words);
    refuse(
        1, HEAD "'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1)}", 4, DANAUS_ERR_UNSUPPORTED,
        "more than 8 dimensions");
}

static void sizes_must_be_those_of_the_file(void **state)
{
    (void)state;
    refuse(1, HEAD "'shape': (2, 3), }", 23, DANAUS_ERR_FORMAT, "describes 24 bytes");
    refuse(1, HEAD "'shape': (2, 3), }", 25, DANAUS_ERR_FORMAT, "the file has 25");
    refuse(1, HEAD "'shape': (), }", 0, DANAUS_ERR_FORMAT, "describes 4 bytes");
    refuse(1, HEAD "'shape': (0, 3), }", 4, DANAUS_ERR_FORMAT, "describes 0 bytes");
    static const struct {
        char text[16];
        size_t size;
        const char *words;
    } starts[] = {
        { "\x93NUMPY", 6, "ends in its first 10 bytes" },
        { "\x93NUMPY\1\0", 8, "ends in its first 10 bytes" },
        { "\x93NUMPY\1\0\1", 9, "ends in its first 10 bytes" },
        { "\x93NUMPY\2\0\1\0\0", 11, "ends in its first 12 bytes" },
        { "\x93NUMPY\1\0\1\0", 10, "claims 1 bytes and the file has 0" },
        { "\x93NUMPY\1\1\0\0", 10, "version 1.1" },
        { "\x93NUMPY\2\0\0\0\1\0", 12, "claims 65536 bytes; at most 65535" },
        { "\x93NUMPY\3\0\377\377\377\377", 12, "claims 4294967295 bytes" },
        { "\x93NUMP", 5, "neither .npy nor safetensors" },
        { "PK\3\4....", 8, "zip" },
        { "", 0, "empty" },
    };
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        bytes b = bytes_of(starts[i].text, starts[i].size);
        danaus_file *file = NULL;
        assert_status(dn_file_read(b.data, b.size, &file), DANAUS_ERR_FORMAT);
        if (!strstr(danaus_error_detail(), starts[i].words))
            fail_msg("case %zu: %s", i, danaus_error_detail());
        bytes_free(&b);
    }
}

/* Number n of the array in Fortran's order has the value n. */
static void fortran_order_becomes_row_major(void **state)
{
    (void)state;
    static const danaus_dtype dtypes[] = { DANAUS_F16, DANAUS_F32, DANAUS_F64,
                                           DANAUS_C128 };
    static const char *const descr[] = { "<f2", "<f4", "<f8", "<c16" };
    for (uint64_t round = 0; round < 300; round++) {
        rng r = { round };
        int type = (int)rng_int(&r, 0, 3), ndim = (int)rng_int(&r, 0, DANAUS_MAX_DIMS);
        int64_t shape[DANAUS_MAX_DIMS], count = 1;
        char header[256];
        int at = snprintf(
            header, sizeof header, "{'descr': '%s', 'fortran_order': True, 'shape': (",
            descr[type]);
        for (int i = 0; i < ndim; i++) {
            shape[i] = rng_int(
                &r, round % 7 == 0 ? 0 : 1,
                ndim <= 2   ? 50
                : ndim <= 4 ? 7
                            : 3);
            count *= shape[i];
            at +=
                snprintf(header + at, sizeof header - (size_t)at, "%d,", (int)shape[i]);
        }
        snprintf(header + at, sizeof header - (size_t)at, ")}");

        size_t element = danaus_dtype_size(dtypes[type]);
        bytes data = bytes_of("", 0);
        for (int64_t n = 0; n < count; n++) {
            uint16_t words[8] = { (uint16_t)n };
            bytes_append(&data, words, element);
        }
        bytes b = npy(1, header, data.data, data.size);
        danaus_tensor t;
        danaus_file *file = read_npy(&b, &t);
        for (int64_t n = 0; n < count; n++) {
            int64_t rest = n, step = count, expected = 0;
            for (int i = ndim - 1; i >= 0; i--) { /* index of n, last one first */
                step /= shape[i];
                expected += rest % shape[i] * step;
                rest /= shape[i];
            }
            uint16_t found;
            memcpy(&found, (const char *)t.data + (size_t)n * element, sizeof found);
            assert_int_equal(found, expected);
        }
        danaus_file_close(file);
        bytes_free(&b);
        bytes_free(&data);
    }
}

static void elements_at_odd_addresses_are_copied(void **state)
{
    (void)state;
    char header[80];
    for (int spaces = 0; spaces < 9; spaces++) {
        snprintf(header, sizeof header, HEAD "'shape': (2, 3)}%*s", spaces, "");
        bytes b = npy(1, header, six, sizeof six);
        danaus_tensor t;
        danaus_file *file = read_npy(&b, &t);
        assert_int_equal((uintptr_t)t.data % sizeof(float), 0);
        assert_memory_equal(t.data, six, sizeof six);
        danaus_file_close(file);
        bytes_free(&b);
    }
}

/* The bytes that NumPy 1.24 writes for the same array. */
static void written_files_are_those_of_numpy(void **state)
{
    (void)state;
    static const struct {
        danaus_tensor tensor;
        const char *header;
    } cases[] = {
        { { "", six, DANAUS_F32, 2, { 2, 3 }, { 0 } },
          "\x93NUMPY\1\0v\0{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
          "                                                          \n" },
        { { "", six, DANAUS_F32, 1, { 6 }, { 0 } },
          "\x93NUMPY\1\0v\0{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }"
          "                                                            \n" },
        { { "", six, DANAUS_C128, 0, { 0 }, { 0 } },
          "\x93NUMPY\1\0v\0{'descr': '<c16', 'fortran_order': False, 'shape': (), }"
          "                                                             \n" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const danaus_tensor *t = &cases[i].tensor;
        const char *path = scratch_path("written.npy");
        assert_ok(danaus_file_write_npy(path, t));
        bytes b = file_bytes(path);
        size_t size = t->ndim ? sizeof six : 16;
        assert_int_equal(b.size, 128 + size);
        assert_memory_equal(b.data, cases[i].header, 128);
        assert_memory_equal(b.data + 128, six, size);
        bytes_free(&b);
    }
}

static void what_is_written_is_read_again(void **state)
{
    (void)state;
    const char *path = scratch_path("again.npy");
    for (uint64_t round = 0; round < 100; round++) {
        rng r = { round };
        danaus_dtype dtype = (danaus_dtype)rng_int(&r, DANAUS_F32, DANAUS_C128);
        danaus_tensor t = {
            "ignored", NULL, dtype, (int)rng_int(&r, 0, 8), { 0 }, { 0 }
        };
        size_t size = danaus_dtype_size(dtype);
        for (int i = 0; i < t.ndim; i++)
            size *= (size_t)(t.shape[i] = rng_int(&r, round % 5 ? 1 : 0, 4));
        bytes data = bytes_of("", 0);
        for (size_t i = 0; i < size; i++)
            bytes_append(&data, &(char){ (char)rng_next(&r) }, 1);
        t.data = data.data;
        assert_ok(danaus_file_write_npy(path, &t));

        danaus_file *file;
        danaus_tensor u;
        assert_ok(danaus_file_open(path, &file));
        assert_ok(danaus_file_find(file, "", &u));
        assert_int_equal(u.dtype, t.dtype);
        assert_int_equal(u.ndim, t.ndim);
        assert_memory_equal(u.shape, t.shape, sizeof t.shape);
        assert_int_equal((uintptr_t)u.data % 64, 0);
        if (size)
            assert_memory_equal(u.data, t.data, size);
        assert_status(danaus_file_find(file, "x", &u), DANAUS_ERR_ARGUMENT);
        assert_status(danaus_file_tensor(file, 1, &u), DANAUS_ERR_ARGUMENT);
        assert_status(danaus_file_tensor(file, -1, &u), DANAUS_ERR_ARGUMENT);
        assert_null(danaus_file_metadata(file, "format"));
        danaus_file_close(file);
        bytes_free(&data);
    }
}

static void what_cannot_be_an_array_is_not_written(void **state)
{
    (void)state;
    const char *path = scratch_path("never.npy");
    danaus_tensor t = { "", six, DANAUS_F32, 2, { 2, 3 }, { 0 } }, bad;
    assert_status(danaus_file_write_npy(NULL, &t), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_file_write_npy(path, NULL), DANAUS_ERR_ARGUMENT);
    bad = t, bad.dtype = (danaus_dtype)77;
    assert_status(danaus_file_write_npy(path, &bad), DANAUS_ERR_ARGUMENT);
    bad = t, bad.ndim = 9;
    assert_status(danaus_file_write_npy(path, &bad), DANAUS_ERR_ARGUMENT);
    bad = t, bad.ndim = -1;
    assert_status(danaus_file_write_npy(path, &bad), DANAUS_ERR_ARGUMENT);
    bad = t, bad.shape[0] = -2;
    assert_status(danaus_file_write_npy(path, &bad), DANAUS_ERR_SHAPE);
    bad = t, bad.shape[0] = INT64_MAX;
    assert_status(danaus_file_write_npy(path, &bad), DANAUS_ERR_SHAPE);
    bad = t, bad.data = NULL;
    assert_status(danaus_file_write_npy(path, &bad), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_file_open(path, &(danaus_file *){ 0 }), DANAUS_ERR_IO);
}

/* Valid files of several kinds, small enough to try every cut. */
static bytes sample(int number)
{
    static const char *const headers[] = {
        HEAD "'shape': (2, 3), }  \n",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n",
        "{'descr': '<f8', 'fortran_order': True, 'shape': (3, 1), }\n",
        "{'descr': '<c8', 'fortran_order': True, 'shape': (1, 3, 1), }\n",
        "{'descr': '<V2', 'fortran_order': True, 'shape': (3, 2, 2), }\n",
    };
    return npy(1 + number % 3, headers[number % 5], six, sizeof six);
}

static void every_cut_is_refused(void **state)
{
    (void)state;
    for (int number = 0; number < 5; number++) {
        bytes b = sample(number);
        expect_cuts_are_refused(&b);
        bytes_free(&b);
    }
}

/* Whatever a changed file is taken for, all its elements can be read. */
static void changed_files_do_no_harm(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(20000); round++) {
        rng r = { round };
        bytes b = sample((int)(round % 15)), c = bytes_mutated(&r, &b);
        danaus_file *file = NULL;
        danaus_status status = dn_file_read(c.data, c.size, &file);
        danaus_tensor t;
        if (status == DANAUS_OK) {
            assert_ok(danaus_file_tensor(file, 0, &t));
            assert_ok(dn_check_tensor(&t));
            int64_t size;
            assert_false(dn_array_bytes_overflow(t.dtype, t.ndim, t.shape, &size));
            bytes copy = bytes_of(t.data, (size_t)size);
            bytes_free(&copy);
        } else {
            assert_true(
                status == DANAUS_ERR_FORMAT || status == DANAUS_ERR_UNSUPPORTED);
        }
        danaus_file_close(file);
        bytes_free(&b);
        bytes_free(&c);
    }
}

static void memory_may_be_missing_at_any_time(void **state)
{
    (void)state;
    for (int number = 0; number < 15; number++) {
        bytes b = sample(number);
        char path[1024];
        snprintf(path, sizeof path, "%s", scratch_path("memory.npy"));
        file_write(path, b.data, b.size);
        assert_in_range(expect_memory_errors(file_open_and_close, path), 6, 7);
        bytes_free(&b);
    }
}

static void any_bytes_are_written_in_one_step(void **state)
{
    (void)state;
    const char *path = scratch_path("bytes");
    file_write(path, "what was there", 14);
    assert_status(danaus_file_write(path, NULL, 1), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_file_write(NULL, "x", 1), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_file_write(scratch_path("."), "x", 1), DANAUS_ERR_IO);
    bytes b = file_bytes(path);
    assert_int_equal(b.size, 14);
    bytes_free(&b);
    assert_ok(danaus_file_write(path, "new\0bytes", 9));
    b = file_bytes(path);
    assert_int_equal(b.size, 9);
    assert_memory_equal(b.data, "new\0bytes", 9);
    bytes_free(&b);
    assert_ok(danaus_file_write(path, NULL, 0));
    b = file_bytes(path);
    assert_int_equal(b.size, 0);
    bytes_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_version_is_read),
        cmocka_unit_test(every_type_is_read),
        cmocka_unit_test(other_types_are_refused_by_name),
        cmocka_unit_test(the_header_is_python_in_any_writing),
        cmocka_unit_test(wrong_headers_are_refused),
        cmocka_unit_test(sizes_must_be_those_of_the_file),
        cmocka_unit_test(fortran_order_becomes_row_major),
        cmocka_unit_test(elements_at_odd_addresses_are_copied),
        cmocka_unit_test(written_files_are_those_of_numpy),
        cmocka_unit_test(what_is_written_is_read_again),
        cmocka_unit_test(what_cannot_be_an_array_is_not_written),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(changed_files_do_no_harm),
        cmocka_unit_test(memory_may_be_missing_at_any_time),
        cmocka_unit_test(any_bytes_are_written_in_one_step),
    };
    return cmocka_run_group_tests_name("npy", tests, scratch_setup, scratch_teardown);
}
