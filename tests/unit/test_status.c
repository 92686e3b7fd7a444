/* Statuses, sentences and the version. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/status.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static void every_status_has_a_name(void **state)
{
    (void)state;
    assert_string_equal(danaus_status_name(DANAUS_OK), "ok");
    assert_string_equal(danaus_status_name(DANAUS_ERR_DEVICE), "device");
    assert_string_equal(danaus_status_name(DANAUS_ERR_CANCELLED), "cancelled");
    assert_string_equal(
        danaus_status_name((danaus_status)(DANAUS_ERR_CANCELLED + 1)), "unknown");
    assert_string_equal(danaus_status_name((danaus_status)99), "unknown");
    assert_string_equal(danaus_status_name((danaus_status)-1), "unknown");
}

static void the_version_is_that_of_the_header(void **state)
{
    (void)state;
    char expected[32];
    snprintf(
        expected, sizeof expected, "%d.%d.%d", DANAUS_VERSION_MAJOR,
        DANAUS_VERSION_MINOR, DANAUS_VERSION_PATCH);
    assert_string_equal(danaus_version(), expected);
}

static void a_failure_keeps_its_sentence(void **state)
{
    (void)state;
    assert_status(dn_fail(DANAUS_ERR_SHAPE, "size %d", 7), DANAUS_ERR_SHAPE);
    assert_string_equal(danaus_error_detail(), "size 7");
    assert_status(dn_fail_memory(12, "a boat"), DANAUS_ERR_MEMORY);
    assert_string_equal(danaus_error_detail(), "no memory for a boat (12 bytes)");
}

static void a_sentence_holds_nothing_that_a_terminal_obeys(void **state)
{
    (void)state;
    dn_fail(DANAUS_ERR_IO, "a\x1b[31m\n\x7f \xc2\x9b \xe2\x80\xae \xe2\x81\xa6 z");
    assert_string_equal(danaus_error_detail(), "a?[31m?? ?? ??? ??? z");
    dn_fail(DANAUS_ERR_IO, "\xc3\xa4 \xc2\xa0 \xe2\x82\xac \xc2");
    assert_string_equal(danaus_error_detail(), "\xc3\xa4 \xc2\xa0 \xe2\x82\xac \xc2");
}

static void reserved_words_are_zero(void **state)
{
    (void)state;
    uint32_t words[3] = { 0 };
    assert_ok(dn_check_reserved(words, sizeof words));
    for (size_t bit = 0; bit < 8 * sizeof words; bit++) {
        words[bit / 32] = 1u << bit % 32;
        assert_status(dn_check_reserved(words, sizeof words), DANAUS_ERR_ARGUMENT);
        words[bit / 32] = 0;
    }
}

static void a_long_sentence_is_cut(void **state)
{
    (void)state;
    char text[2000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    dn_fail(DANAUS_ERR_IO, "%s", text);
    assert_in_range(strlen(danaus_error_detail()), 100, 600);
}

static void *fail_elsewhere(void *arg)
{
    dn_fail(DANAUS_ERR_IO, "elsewhere");
    return arg;
}

static void threads_keep_their_own_sentences(void **state)
{
    (void)state;
    dn_fail(DANAUS_ERR_IO, "here");
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(danaus_error_detail(), "here");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_name),
        cmocka_unit_test(the_version_is_that_of_the_header),
        cmocka_unit_test(a_failure_keeps_its_sentence),
        cmocka_unit_test(a_sentence_holds_nothing_that_a_terminal_obeys),
        cmocka_unit_test(reserved_words_are_zero),
        cmocka_unit_test(a_long_sentence_is_cut),
        cmocka_unit_test(threads_keep_their_own_sentences),
    };
    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
