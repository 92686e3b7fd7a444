/* Memory, text, files mapped for reading, time. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void blocks_are_aligned_and_zeroed(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes < 300; bytes += 7) {
        unsigned char *block = dn_calloc(bytes, 1);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % DN_ALIGN, 0);
        for (size_t i = 0; i < bytes; i++)
            assert_int_equal(block[i], 0);
        dn_free(block);
    }
    dn_free(NULL);
}

static void impossible_sizes_give_null(void **state)
{
    (void)state;
    assert_null(dn_alloc(SIZE_MAX));
    assert_null(dn_alloc(PTRDIFF_MAX));
    assert_null(dn_calloc(SIZE_MAX / 2, 4));
    assert_null(dn_calloc((size_t)1 << 32, (size_t)1 << 32));
}

static void growing_keeps_the_contents(void **state)
{
    (void)state;
    char *words = NULL;
    size_t room = 0, count = 0;
    for (; count < 3 || count < room; count++) { /* up to where it is full */
        assert_ok(dn_reserve(&words, count, &room, 1, "words"));
        words[count] = count < 3 ? "abc"[count] : '\0';
    }
    assert_ok(dn_reserve(&words, count, &room, 1, "words"));
    assert_in_range(room, count + 1, 4 * count);
    assert_string_equal(words, "abc");
    dn_alloc_fail_at(1);
    assert_status(dn_reserve(&words, room, &room, 1, "words"), DANAUS_ERR_MEMORY);
    assert_non_null(strstr(danaus_error_detail(), "words"));
    assert_string_equal(words, "abc");
    char *copy = dn_copy_text(words);
    assert_string_equal(copy, "abc");
    dn_alloc_fail_at(1);
    assert_null(dn_copy_text(words));
    dn_alloc_fail_at(0);
    dn_free(copy);
    dn_free(words);
}

static void the_nth_allocation_fails_once(void **state)
{
    (void)state;
    dn_alloc_fail_at(3);
    void *one = dn_alloc(1), *two = dn_calloc(1, 1), *three = dn_alloc(1);
    void *four = dn_alloc(1);
    assert_true(one && two && !three && four);
    assert_int_equal(dn_alloc_fail_at(0), 4);
    assert_int_equal(dn_alloc_fail_at(0), 0);
    dn_free(one);
    dn_free(two);
    dn_free(four);
}

static void products_that_overflow_are_seen(void **state)
{
    (void)state;
    int64_t n = 0;
    assert_false(dn_mul_overflows(INT64_MAX / 3, 3, &n));
    assert_true(dn_mul_overflows((int64_t)1 << 32, (int64_t)1 << 31, &n));
    assert_true(dn_mul_overflows(-1, 1, &n));
}

static void text_is_cut_but_counted(void **state)
{
    (void)state;
    char buffer[8];
    text t = { buffer, sizeof buffer, 0 };
    dn_text(&t, "%d,", 12);
    dn_text(&t, "%s", "three");
    assert_string_equal(buffer, "12,thre");
    assert_int_equal(t.length, 8);
    dn_text(&t, "more");
    assert_int_equal(t.length, 12);
    assert_string_equal(buffer, "12,thre");
    text none = { NULL, 0, 0 };
    dn_text(&none, "four");
    assert_int_equal(none.length, 4);
}

static void files_are_mapped_as_they_are(void **state)
{
    (void)state;
    char path[] = "/tmp/danaus-test-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    map m = { 0 };
    assert_ok(dn_map_open(path, &m));
    assert_int_equal(m.size, 0);
    dn_map_close(&m);
    assert_int_equal(write(file, "danaus", 6), 6);
    close(file);
    assert_ok(dn_map_open(path, &m));
    assert_int_equal(m.size, 6);
    assert_memory_equal(m.data, "danaus", 6);
    dn_map_close(&m);
    unlink(path);
}

static void what_is_no_file_is_an_io_error(void **state)
{
    (void)state;
    map m = { 0 };
    assert_status(dn_map_open("/tmp/danaus/no/such/file", &m), DANAUS_ERR_IO);
    assert_non_null(strstr(danaus_error_detail(), "/tmp/danaus/no/such/file"));
    assert_status(dn_map_open("/tmp", &m), DANAUS_ERR_IO);
    assert_null(m.data);
}

static void time_goes_on(void **state)
{
    (void)state;
    double start = dn_seconds();
    usleep(2000);
    assert_true(dn_seconds() - start >= 0.002);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_aligned_and_zeroed),
        cmocka_unit_test(impossible_sizes_give_null),
        cmocka_unit_test(growing_keeps_the_contents),
        cmocka_unit_test(the_nth_allocation_fails_once),
        cmocka_unit_test(products_that_overflow_are_seen),
        cmocka_unit_test(text_is_cut_but_counted),
        cmocka_unit_test(files_are_mapped_as_they_are),
        cmocka_unit_test(what_is_no_file_is_an_io_error),
        cmocka_unit_test(time_goes_on),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
