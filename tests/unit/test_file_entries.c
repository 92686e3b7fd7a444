/* The entries and metadata of files: arrays of any type, as the header describes them. */
// SPDX-License-Identifier: Apache-2.0
#include "support/device.h"
#include "support/files.h"
#include "support/test.h"

#include "danaus/file.h"

#include <string.h>

/* A scratch file from the bytes before a header, the header and zeros. */
static const char *file_of(
    const char *start, size_t size, const char *header, size_t zeros)
{
    const char *path = scratch_path("file");
    bytes b = bytes_of(start, size);
    bytes_append(&b, header, strlen(header));
    for (size_t i = 0; i < zeros; i++)
        bytes_append(&b, "", 1);
    file_write(path, b.data, b.size);
    bytes_free(&b);
    return path;
}

static const char *safetensors_of(const char *header, size_t zeros)
{
    char length[8] = { (char)(unsigned char)strlen(header),
                       (char)(strlen(header) >> 8) };
    return file_of(length, sizeof length, header, zeros);
}

static const char *npy_of(const char *header, size_t zeros)
{
    char start[10] = "\x93NUMPY\1\0";
    start[8] = (char)(unsigned char)strlen(header);
    return file_of(start, sizeof start, header, zeros);
}

static void expect_entry(
    const danaus_file *file, int index, const char *name, const char *type,
    danaus_dtype dtype, int64_t ndim, int64_t size)
{
    danaus_file_entry e;
    static const uint32_t zeros[11];
    assert_ok(danaus_file_entry_at(file, index, &e));
    assert_string_equal(e.name, name);
    assert_string_equal(e.type, type);
    assert_int_equal(e.dtype, dtype);
    assert_int_equal(e.ndim, ndim);
    assert_int_equal(e.bytes, size);
    assert_memory_equal(e.reserved, zeros, sizeof zeros);
}

#define HEADER                                                                         \
    "{\"__metadata__\":{\"b\":\"1\",\"a\":\"2\"},"                                     \
    "\"x\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]},"               \
    "\"n\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"                  \
    "\"d\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1,1],"                        \
    "\"data_offsets\":[32,36]}}"

/* Also where tensors are read: entries are the same. */
static void arrays_of_any_type_are_listed(void **state)
{
    (void)state;
    danaus_status (*const open[])(
        const char *, danaus_file **) = { danaus_file_open_entries, danaus_file_open };
    const char *path = safetensors_of(HEADER, 36);
    for (int i = 0; i < 2; i++) {
        danaus_file *file;
        danaus_file_entry e;
        assert_ok(open[i](path, &file));
        assert_int_equal(danaus_file_count(file), i);
        assert_int_equal(danaus_file_entry_count(file), 3);
        expect_entry(file, 0, "n", "I64", (danaus_dtype)0, 1, 8);
        expect_entry(file, 1, "x", "F32", DANAUS_F32, 2, 24);
        expect_entry(file, 2, "d", "F32", (danaus_dtype)0, 10, 4);
        assert_ok(danaus_file_entry_at(file, 1, &e));
        assert_int_equal(e.shape[0], 2);
        assert_int_equal(e.shape[1], 3);
        assert_string_equal(danaus_file_metadata_key(file, 0), "b");
        assert_string_equal(danaus_file_metadata_key(file, 1), "a");
        assert_null(danaus_file_metadata_key(file, 2));
        assert_null(danaus_file_metadata_key(file, -1));
        danaus_file_close(file);
    }
}

static void arrays_of_numpy_have_its_types(void **state)
{
    (void)state;
    static const struct {
        const char *header, *type;
        danaus_dtype dtype;
        int64_t bytes;
    } cases[] = {
        { "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3)}", "<f4", DANAUS_F32,
          24 },
        { "{'descr': '<i8', 'fortran_order': False, 'shape': (2, 3)}", "<i8",
          (danaus_dtype)0, 48 },
        { "{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3)}", ">f4",
          (danaus_dtype)0, 24 },
        { "{'descr': '<U2', 'fortran_order': False, 'shape': (2, 3)}", "<U2",
          (danaus_dtype)0, 48 },
        { "{'descr': [(']', '<f4')], 'fortran_order': False, 'shape': (2, 3)}",
          "[(']', '<f4')]", (danaus_dtype)0, 24 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        danaus_file *file, *other = NULL;
        const char *path = npy_of(cases[i].header, (size_t)cases[i].bytes);
        assert_ok(danaus_file_open_entries(path, &file));
        assert_int_equal(danaus_file_entry_count(file), 1);
        expect_entry(file, 0, "", cases[i].type, cases[i].dtype, 2, cases[i].bytes);
        assert_null(danaus_file_metadata_key(file, 0));
        danaus_file_close(file);
        assert_int_equal(danaus_file_open(path, &other) == DANAUS_OK, cases[i].dtype);
        danaus_file_close(other);
        path = npy_of(cases[i].header, (size_t)cases[i].bytes - 1);
        if (*cases[i].type != '[')
            assert_status(danaus_file_open_entries(path, &file), DANAUS_ERR_FORMAT);
    }
}

static void missing_arguments_are_refused(void **state)
{
    (void)state;
    danaus_file *file;
    danaus_file_entry e = { .bytes = 7 };
    assert_status(danaus_file_open_entries(NULL, &file), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_file_open_entries("x", NULL), DANAUS_ERR_ARGUMENT);
    assert_int_equal(danaus_file_entry_count(NULL), 0);
    assert_null(danaus_file_metadata_key(NULL, 0));
    assert_status(danaus_file_entry_at(NULL, 0, &e), DANAUS_ERR_ARGUMENT);
    assert_ok(danaus_file_open_entries(safetensors_of(HEADER, 36), &file));
    assert_status(danaus_file_entry_at(file, 0, NULL), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_file_entry_at(file, -1, &e), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_file_entry_at(file, 3, &e), DANAUS_ERR_ARGUMENT);
    assert_int_equal(e.bytes, 7);
    danaus_file_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_of_any_type_are_listed),
        cmocka_unit_test(arrays_of_numpy_have_its_types),
        cmocka_unit_test(missing_arguments_are_refused),
    };
    return cmocka_run_group_tests_name(
        "entries", tests, scratch_setup, scratch_teardown);
}
