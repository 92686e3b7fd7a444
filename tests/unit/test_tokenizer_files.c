/* Files of tokenizers: what is refused, with which sentence, and where files may be. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/mem.h"
#include "tokens/tokens.h"
#include "support/failing.h"
#include "support/files.h"
#include "support/tokenizers.h"

#include <stdio.h>
#include <string.h>

static void refuse(const char *json, danaus_status expected, const char *words)
{
    danaus_tokenizer *t = NULL;
    assert_status(dn_tokenizer_read(span_of(json), &t), expected);
    assert_null(t);
    if (!strstr(danaus_error_detail(), words))
        fail_msg("%s: \"%s\"", json, danaus_error_detail());
}

static void added_tokens_that_clash_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *added, *words;
    } cases[] = {
        { TOKEN("[CLS]", 2, PLAIN) "," TOKEN("[CLS]", 2, PLAIN), "there twice" },
        { TOKEN("[CLS]", 3, PLAIN), "has id 3; by the words it is 2" },
        { TOKEN("<x>", 25, PLAIN), "has id 25; by the words it is 24" },
        { TOKEN("<x>", 24, FLAGS(false, false, false, true, true)) "," TOKEN(
              "<X>", 25, FLAGS(false, false, false, true, true)),
          "normalized" },
        { TOKEN("", 24, PLAIN), "empty" },
        { TOKEN("\u200b", 24, FLAGS(false, false, false, true, true)), "empty" },
        { "{\"id\":2}", "is there" },
        { "{\"id\":-2,\"content\":\"x\"}", "0 or more" },
        { TOKEN("[CLS]", 2, "\"single_word\":1"), "true or false" },
        { TOKEN("x", 3000000000, PLAIN), "content and id" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(
            json_of((parts){ .added = cases[i].added }), DANAUS_ERR_FORMAT,
            cases[i].words);
}

static void other_tokenizers_are_refused(void **state)
{
    (void)state;
    const danaus_status other = DANAUS_ERR_UNSUPPORTED, wrong = DANAUS_ERR_FORMAT;
    refuse("{", wrong, "no proper JSON");
    refuse("[]", wrong, "not an object");
    refuse("{}", wrong, "no model");
    refuse(
        json_of((parts){ .normalizer = "{\"type\":\"Bert\"}" }), other,
        "type Bert; danaus has BertNormalizer, NFC");
    refuse(
        json_of((parts){ .normalizer = "{\"type\":\"BertNormalizer\"}" }), wrong,
        "clean_text");
    refuse(
        json_of((parts){ .model = "\"type\":\"WordLevel\"" }), other,
        "is of type WordLevel");
    refuse(json_of((parts){ .model = "\"type\":\"BPE\"" }), wrong, "no merges");
    refuse(json_of((parts){ .model = "\"type\":\"WordPiece\"" }), wrong, "unk_token");
    refuse(json_of((parts){ .decoder = "{\"type\":\"CTC\"}" }), other, "CTC");
    refuse(json_of((parts){ .decoder = "[]" }), other, "type none");
    refuse(
        json_of((parts){ .template = "{\"type\":\"RobertaProcessing\"}" }), wrong,
        "no ids of \"cls\"");
    refuse(json_of((parts){ .template = "{\"type\":\"Other\"}" }), other, "type Other");
    refuse(
        json_of(
            (parts){ .template = "{\"type\":\"TemplateProcessing\",\"single\":[]}" }),
        other, "have it once");
    refuse(
        json_of((parts){ .template = "{\"type\":\"TemplateProcessing\",\"single\":[{"
                                     "\"SpecialToken\":{\"id\":\"x\"}}]}" }),
        wrong, "has no ids");
    refuse(
        json_of((parts){
            .template =
                "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{"
                "\"id\":\"x\"}},{\"Sequence\":{\"id\":\"A\"}}],"
                "\"special_tokens\":{\"x\":{\"ids\":[99]}}}" }),
        wrong, "id 99, which is no token");
    refuse(json_of((parts){ .words = "\"a\":0,\"b\":0" }), wrong, "no word");
    refuse(
        json_of((parts){ .words = "\"[UNK]\":0,\"b\":0", .added = "" }), wrong,
        "both have id 0");
    refuse(json_of((parts){ .words = "\"[UNK]\":\"0\"" }), wrong, "no id from 0");
    refuse(json_of((parts){ .words = "\"[UNK]\":2147483647" }), wrong, "no id from 0");
    refuse(json_of((parts){ .words = "\"[UNK]\":-1" }), wrong, "no id from 0");
    refuse(json_of((parts){ .words = "\"a\":0,\"a\":1" }), wrong, "no proper JSON");
}

static void old_models_have_no_type(void **state)
{
    (void)state;
    expect_ids(
        (parts){ .model = strchr(usual_parts.model, ',') + 1 }, "a ab!", "2 5 7 11 3");
}

/* ---- folders ---- */

#define LINES "[PAD]\r[UNK]\r\n[CLS]\n[SEP]\n[MASK]\na\u3000\nb\n##b\n<x>\n"

static danaus_tokenizer *tokenizer_of_lines(const char *lines, const char *config)
{
    danaus_tokenizer *t = NULL;
    int in_words;
    assert_ok(dn_tokenizer_read_words(span_of(lines), span_of(config), &t, &in_words));
    return t;
}

static void vocabularies_are_lines(void **state)
{
    (void)state;
    danaus_tokenizer *t = tokenizer_of_lines("\xef\xbb\xbf" LINES, "{}");
    expect_most(t, "A bb [MASK]", 11, 0, "2 5 6 7 4 3");
    assert_int_equal(danaus_tokenizer_vocabulary(t), 9);
    danaus_tokenizer_destroy(t);
    t = tokenizer_of_lines(
        LINES "a\n<y>\n",
        "{\"do_lower_case\":false,\"mask_token\":{\"content\":\"<x>\",\"lstrip\":true},"
        "\"truncation_side\":\"left\",\"added_tokens_decoder\":{\"10\":{\"content\":"
        "\"<y>\"},\"2\":{\"content\":\"[CLS]\",\"special\":true}}}");
    expect_most(t, "A bb a <x><y>", 13, 0, "2 1 6 7 9 8 10 3");
    expect_most(t, "A bb a <x><y>", 13, 4, "2 8 10 3");
    danaus_tokenizer_destroy(t);
}

static void wrong_configurations_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *lines, *config;
        danaus_status status;
        const char *words;
    } cases[] = {
        { LINES, "[]", DANAUS_ERR_FORMAT, "not an object" },
        { LINES, "{\"tokenizer_class\":\"GPT2Tokenizer\"}", DANAUS_ERR_UNSUPPORTED,
          "GPT2Tokenizer" },
        { LINES, "{\"do_basic_tokenize\":false}", DANAUS_ERR_UNSUPPORTED, "do_basic" },
        { LINES, "{\"never_split\":[\"a\"]}", DANAUS_ERR_UNSUPPORTED, "never_split" },
        { LINES, "{\"do_lower_case\":1}", DANAUS_ERR_FORMAT, "do_lower_case" },
        { LINES, "{\"cls_token\":\"<s>\"}", DANAUS_ERR_FORMAT, "cls_token \"<s>\"" },
        { LINES, "{\"cls_token\":1}", DANAUS_ERR_FORMAT, "cls_token" },
        { LINES, "{\"added_tokens_decoder\":{\"x\":{\"content\":\"a\"}}}",
          DANAUS_ERR_FORMAT, "\"x\" has no content and id" },
        { "a\nb\n", "{}", DANAUS_ERR_FORMAT, "unk_token" },
        { "", "{}", DANAUS_ERR_FORMAT, "the vocabulary has no word" },
        { "\xef\xbb\xbf", "{}", DANAUS_ERR_FORMAT, "the vocabulary has no word" },
        { "a\n\xff\n", "{}", DANAUS_ERR_FORMAT, "at byte 2" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        danaus_tokenizer *t = NULL;
        int in_words;
        danaus_status status = dn_tokenizer_read_words(
            span_of(cases[i].lines), span_of(cases[i].config), &t, &in_words);
        assert_int_equal(status, cases[i].status);
        int about_words =
            strstr(cases[i].words, "vocabulary") || strstr(cases[i].words, "at byte");
        assert_int_equal(in_words, about_words);
        assert_null(t);
        assert_non_null(strstr(danaus_error_detail(), cases[i].words));
    }
}

static void put_file(const char *name, const char *content)
{
    file_write(scratch_path(name), content, strlen(content));
}

static void a_tokenizer_is_a_folder_or_a_file(void **state)
{
    (void)state;
    danaus_tokenizer *t = NULL;
    assert_status(danaus_tokenizer_load(NULL, &t), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_tokenizer_load(scratch_directory(), &t), DANAUS_ERR_IO);
    assert_non_null(strstr(danaus_error_detail(), "neither tokenizer.json nor vocab"));
    put_file("vocab.txt", LINES);
    assert_status(danaus_tokenizer_load(scratch_directory(), &t), DANAUS_ERR_IO);
    assert_non_null(strstr(danaus_error_detail(), "tokenizer_config.json"));
    put_file("tokenizer_config.json", "{}");
    assert_ok(danaus_tokenizer_load(scratch_directory(), &t));
    assert_int_equal(danaus_tokenizer_vocabulary(t), 9);
    danaus_tokenizer_destroy(t);
    put_file("added_tokens.json", "{}");
    t = NULL;
    assert_status(
        danaus_tokenizer_load(scratch_path("vocab.txt"), &t), DANAUS_ERR_UNSUPPORTED);
    put_file("tokenizer.json", json_of(usual_parts));
    assert_ok(danaus_tokenizer_load(scratch_directory(), &t));
    assert_int_equal(danaus_tokenizer_vocabulary(t), 24);
    danaus_tokenizer_destroy(t);
    put_file("tokenizer.json", "{}");
    t = NULL;
    assert_status(
        danaus_tokenizer_load(scratch_path("tokenizer.json"), &t), DANAUS_ERR_FORMAT);
    assert_non_null(strstr(danaus_error_detail(), "tokenizer.json: there is no model"));
    assert_null(t);
}

/* ---- memory ---- */

static danaus_status load_lines(void *arg)
{
    danaus_tokenizer *t = NULL;
    danaus_status status = danaus_tokenizer_load(arg, &t);
    danaus_tokenizer_destroy(t);
    return status;
}

static void memory_may_run_out_at_any_time(void **state)
{
    (void)state;
    char *json = dn_copy_text(json_of((parts){
        .added = TOKEN("[CLS]", 2, PLAIN) "," TOKEN("[SEP]", 3, PLAIN) "," TOKEN(
            "<X>", 24, FLAGS(false, false, false, true, true)) }));
    assert_in_range(expect_memory_errors(tokenizer_load_and_use, json), 20, 200);
    dn_free(json);
    char path[256];
    snprintf(path, sizeof path, "%s", scratch_directory());
    remove(scratch_path("tokenizer.json"));
    remove(scratch_path("added_tokens.json"));
    assert_in_range(expect_memory_errors(load_lines, path), 15, 200);
}

static void every_change_is_refused_or_read(void **state)
{
    (void)state;
    const char *json = json_of(usual_parts);
    bytes right = bytes_of(json, strlen(json));
    for (uint64_t round = 0; round < 2000; round++) {
        rng r = { round };
        bytes changed = bytes_mutated(&r, &right);
        danaus_tokenizer *t = NULL;
        span file = { (const char *)changed.data, changed.size };
        danaus_status status = dn_tokenizer_read(file, &t);
        assert_int_equal(t == NULL, status != DANAUS_OK);
        assert_true(t || *danaus_error_detail());
        danaus_tokenizer_destroy(t);
        bytes_free(&changed);
    }
    bytes_free(&right);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(added_tokens_that_clash_are_refused),
        cmocka_unit_test(other_tokenizers_are_refused),
        cmocka_unit_test(old_models_have_no_type),
        cmocka_unit_test(vocabularies_are_lines),
        cmocka_unit_test(wrong_configurations_are_refused),
        cmocka_unit_test(a_tokenizer_is_a_folder_or_a_file),
        cmocka_unit_test(memory_may_run_out_at_any_time),
        cmocka_unit_test(every_change_is_refused_or_read),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
