/* Tokenizers of characters: ids of DNA, what is no base, files, and what is refused. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/failing.h"
#include "support/files.h"
#include "support/tokenizers.h"
#include "tokens/tokens.h"

#include <stdio.h>
#include <string.h>

#define CLASS "\"tokenizer_class\":\"HyenaDNATokenizer\""

static danaus_tokenizer *made_of(const char *config)
{
    danaus_tokenizer *t = NULL;
    assert_ok(dn_tokenizer_read_characters(span_of(config), &t));
    return t;
}

static void bases_are_tokens(void **state)
{
    (void)state;
    danaus_tokenizer *t = made_of("{" CLASS "}");
    assert_int_equal(danaus_tokenizer_vocabulary(t), 12);
    expect_most(t, "ACGTN", 5, 0, "7 8 9 10 11 1");
    expect_most(t, "acgtn", 5, 0, "7 8 9 10 11 1");
    expect_most(t, "AR \u00e9t", 6, 0, "7 6 6 6 10 1");
    expect_most(t, "A[MASK]C[RESERVED]", 18, 6, "7 3 8 6 6 1");
    expect_most(t, "", 0, 0, "1");
    size_t before, after, length;
    assert_ok(danaus_tokenizer_around(t, &before, &after));
    assert_int_equal(before, 0);
    assert_int_equal(after, 1);
    assert_status(danaus_tokenizer_around(t, NULL, &after), DANAUS_ERR_ARGUMENT);
    const int32_t ids[] = { 7, 9, 5, 11, 1 };
    char string[40];
    assert_ok(danaus_tokenizer_decode(t, ids, 5, 0, string, sizeof string, &length));
    assert_string_equal(string, "AG[RESERVED]N[SEP]");
    assert_ok(danaus_tokenizer_decode(t, ids, 5, 1, string, sizeof string, &length));
    assert_string_equal(string, "AG[RESERVED]N");
    danaus_tokenizer_destroy(t);
}

static void the_file_may_list_characters(void **state)
{
    (void)state;
    danaus_tokenizer *t =
        made_of("{\"tokenizer_class\":\"CharacterTokenizer\",\"truncation_side\":"
                "\"left\",\"characters\":[\"b\",\"B\",\"C\",\"\u4e2d\"]}");
    expect_most(t, "bBcC\u4e2da", 8, 0, "7 8 9 9 10 6 1");
    expect_most(t, "bBcC\u4e2da", 8, 3, "10 6 1");
    danaus_tokenizer_destroy(t);
}

static void other_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        danaus_status status;
        const char *words;
    } cases[] = {
        { "{", DANAUS_ERR_FORMAT, "JSON" },
        { "[]", DANAUS_ERR_UNSUPPORTED, "HyenaDNATokenizer" },
        { "{\"tokenizer_class\":\"BertTokenizer\"}", DANAUS_ERR_UNSUPPORTED,
          "is needed beside it" },
        { "{" CLASS ",\"characters\":\"ACGT\"}", DANAUS_ERR_FORMAT, "characters" },
        { "{" CLASS ",\"characters\":[\"AC\"]}", DANAUS_ERR_FORMAT, "\"AC\"" },
        { "{" CLASS ",\"characters\":[\"\"]}", DANAUS_ERR_FORMAT, "one character" },
        { "{" CLASS ",\"characters\":[7]}", DANAUS_ERR_FORMAT, "one character" },
        { "{" CLASS ",\"characters\":[\"A\",\"A\"]}", DANAUS_ERR_FORMAT, "twice" },
        { "{" CLASS ",\"truncation_side\":3}", DANAUS_ERR_FORMAT, "truncation_side" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        danaus_tokenizer *t = NULL;
        assert_status(
            dn_tokenizer_read_characters(span_of(cases[i].config), &t),
            cases[i].status);
        assert_null(t);
        if (!strstr(danaus_error_detail(), cases[i].words))
            fail_msg("%s: \"%s\"", cases[i].config, danaus_error_detail());
    }
}

static danaus_status load(void *arg)
{
    danaus_tokenizer *t = NULL;
    int32_t ids[8];
    size_t count;
    danaus_status status = danaus_tokenizer_load(arg, &t);
    if (status == DANAUS_OK)
        status = danaus_tokenizer_encode(t, "ACGT", 4, 0, ids, 8, &count);
    danaus_tokenizer_destroy(t);
    return status;
}

static void a_folder_without_vocabulary_has_characters(void **state)
{
    (void)state;
    char path[256];
    snprintf(path, sizeof path, "%s", scratch_directory());
    file_write(scratch_path("tokenizer_config.json"), "{" CLASS "}", strlen(CLASS) + 2);
    assert_ok(load(path));
    assert_in_range(expect_memory_errors(load, path), 10, 300);
    file_write(scratch_path("tokenizer_config.json"), "{}", 2);
    assert_status(load(path), DANAUS_ERR_UNSUPPORTED);
    assert_non_null(strstr(
        danaus_error_detail(), "tokenizer_config.json: tokenizer.json or vocab.txt"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bases_are_tokens),
        cmocka_unit_test(the_file_may_list_characters),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(a_folder_without_vocabulary_has_characters),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
