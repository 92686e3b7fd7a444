/* Tokens: each rule of BERT's text on a vocabulary of a few words, and what callers may do
   wrong. That ids are the reference's on real vocabularies and all code points is tested
   from Python. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/mem.h"
#include "tokens/letters.h"
#include "tokens/tokens.h"
#include "support/files.h"
#include "support/tokenizers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void words_are_the_longest_pieces(void **state)
{
    (void)state;
    expect_ids(usual_parts, "a ab abc abbc", "2 5 7 7 14 7 9 3");
    expect_ids(usual_parts, "bb b", "2 6 8 6 3");
    expect_ids(usual_parts, "", "2 3");
    expect_ids(usual_parts, " \t\n\r ", "2 3");
    expect_ids(usual_parts, "ax", "2 1 3"); /* what was found of it does not stay */
    expect_ids(usual_parts, "abbbbbbb abbbbbbbb", "2 7 8 8 8 8 8 8 1 3"); /* 8 and 9 */
    expect_ids(
        usual_parts, "a\u00df\u00df\u00df\u00df\u00df\u00df\u00df",
        "2 5 23 23 23 23 23 23 23 3");
    expect_ids(usual_parts, "##b", "2 1 1 6 3");
}

static void text_is_cleaned(void **state)
{
    (void)state;
    expect_ids(
        usual_parts,
        "a\x01\x7f\u200b\ufeff"
        "b \u00ad \ufffd \ue000",
        "2 7 3");
    expect_ids(usual_parts, "a\u00a0b\u2028b\u3000b", "2 5 6 6 6 3");
    expect_ids(
        usual_parts,
        "a\v"
        "b\xc2\x85"
        "b",
        "2 7 8 3"); /* controls before spaces */
    danaus_tokenizer *t = tokenizer_of(usual_parts);
    expect_most(t, "a\0b", 3, 0, "2 7 3");
    danaus_tokenizer_destroy(t);
    parts cased = { .normalizer = CASED };
    expect_ids(
        cased,
        "a\v"
        "b\xc2\x85"
        "b A\u00a0"
        "a\x01",
        "2 5 6 6 15 1 3");
    expect_ids(cased, "cafe caf\u00e9", "2 10 16 3");
}

static void accents_go_and_letters_are_small(void **state)
{
    (void)state;
    expect_ids(
        usual_parts, "CAF\u00c9 Cafe\u0301 caf\u00e9\u0323\u0301", "2 10 10 10 3");
    parts lower_only = { .normalizer =
                             "{\"type\":\"BertNormalizer\",\"clean_text\":true,"
                             "\"handle_chinese_chars\":true,"
                             "\"strip_accents\":false,\"lowercase\":true}" };
    expect_ids(lower_only, "CAF\u00c9 cafe", "2 16 10 3");
    expect_ids(lower_only, "\u0130", "2 17 3"); /* one becomes two */
    expect_ids(usual_parts, "\u0345", "2 3");
}

/* The marks have classes 224 and 216: neither is an accent that is removed. */
static void marks_that_stay_are_ordered(void **state)
{
    (void)state;
    growing to = { 0 };
    int moved = 0;
    const normalizer how = { .bert.strip_accents = 1 };
    static const char *const cases[][2] = {
        { "a\u302e\U0001d165", "a\U0001d165\u302e" },
        { "a\u302e\u0301\U0001d165b", "a\U0001d165\u302eb" },
        { "\u302e\u302f\U0001d165\U0001d166", "\U0001d165\U0001d166\u302e\u302f" },
        { "\u302ea\U0001d165", "\u302ea\U0001d165" },
        { "\uac00", "\u1100\u1161" },
        { "\u302e\ufb1e", "\u302e" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        to.length = 0;
        assert_ok(dn_normalize_bert(&how, span_of(cases[i][0]), &to, &moved));
        assert_int_equal(to.length, strlen(cases[i][1]));
        assert_memory_equal(to.text, cases[i][1], to.length);
    }
    enum { MANY = 30000 };
    char *marks = malloc(4 * MANY);
    for (int i = 0; i < MANY; i++)
        memcpy(marks + 4 * i, i % 2 ? "\U0001d165" : "\u1b44 ", 4);
    to.length = 0;
    assert_ok(dn_normalize_bert(&how, (span){ marks, 4 * MANY }, &to, &moved));
    assert_int_equal(to.length, 4 * MANY);
    free(marks);
    dn_free(to.text);
}

static void chinese_and_punctuation_stand_alone(void **state)
{
    (void)state;
    expect_ids(
        usual_parts,
        "a\u4e2d"
        "b\u4e2d",
        "2 5 13 6 13 3");
    expect_ids(usual_parts, "a!b!!", "2 5 11 6 11 11 3");
    expect_ids(usual_parts, "a$b\u3002", "2 5 12 6 1 3");
    parts cased = { .normalizer = CASED };
    expect_ids(cased, "a\u4e2d \u4e2d", "2 1 13 3");
}

/* As the reference's tables have it: younger letters are no punctuation and no accents. */
static void younger_letters_are_plain(void **state)
{
    (void)state;
    int32_t lower[2];
    assert_true(dn_is_punctuation(0x166d) && dn_is_punctuation(0x3001));
    assert_false(dn_is_punctuation(0x61d) || dn_is_punctuation(0x2e52));
    assert_true(dn_is_mark(0x1734) && dn_is_mark(0x301));
    assert_false(dn_is_mark(0x1ac1) || dn_is_mark(0x1e944) || dn_is_mark('a'));
    assert_false(dn_is_control(0x8e2) || dn_is_control('\n'));
    assert_true(dn_is_control(0x200d) && dn_is_control(0x7f));
    assert_int_equal(dn_combining_class(0x1ac1), 0);
    assert_int_equal(dn_combining_class(0x1e944), 230);
    assert_int_equal(dn_lower(0x16ea1, lower), 1);
    assert_int_equal(lower[0], 0x16ebc);
    assert_true(dn_is_word('_') && dn_is_word(0x24b6) && dn_is_word(0x1f189));
    assert_false(dn_is_word('-') || dn_is_word(0x4dc0));
}

/* ---- added tokens ---- */

static void special_tokens_are_found_in_text(void **state)
{
    (void)state;
    expect_ids(usual_parts, "a[MASK]b [CLS]", "2 5 4 6 2 3");
    expect_ids(usual_parts, "[MASK][MASK]", "2 4 4 3");
    expect_ids(usual_parts, "[mask] [MASK", "2 1 1 1 1 1 3");
}

static void added_tokens_have_flags(void **state)
{
    (void)state;
    parts p = {
        .added =
            TOKEN("<w>", 24, FLAGS(true, false, false, false, true)) "," TOKEN("<l>", 25, FLAGS(false, true, false, false, true)) "," TOKEN("<r>", 26, FLAGS(false, false, true, false, true)) "," TOKEN(
                "B\u00c1", 27,
                FLAGS(
                    false, false, false, true,
                    false)) "," TOKEN("<w><l>", 28, FLAGS(false, false, false, false, true)) "," TOKEN(" ", 29, FLAGS(false, true, true, false, false))
    };
    expect_ids(p, "<w>!<w>", "2 24 11 24 3");
    expect_ids(p, "a<w>", "2 5 1 1 1 3");
    expect_ids(p, "<w>\u4e2d", "2 1 1 1 13 3");
    expect_ids(p, "<w><l><l>", "2 28 25 3"); /* the longest */
    expect_ids(p, "a\n\u3000<l>b", "2 5 25 6 3");
    expect_ids(p, "a<r>\n\tb", "2 5 26 6 3");
    expect_ids(p, "aba BA b\u00e1", "2 5 27 29 27 29 27 3");
    expect_ids(p, "a    b", "2 5 29 6 3");
}

/* ---- limits ---- */

static void what_is_too_long_is_cut(void **state)
{
    (void)state;
    danaus_tokenizer *t = tokenizer_of(usual_parts);
    const char *words = "a b abc a";
    expect_most(t, words, strlen(words), 7, "2 5 6 7 14 5 3");
    expect_most(t, words, strlen(words), 5, "2 5 6 7 3"); /* within a word */
    expect_most(t, words, strlen(words), 2, "2 3");
    expect_most(t, "a[MASK]b", 8, 4, "2 5 4 3");
    int32_t ids[8];
    size_t count = 9;
    assert_status(
        danaus_tokenizer_encode(t, "a", 1, 1, ids, 8, &count), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_tokenizer_encode(t, "a", 1, -1, ids, 8, &count), DANAUS_ERR_ARGUMENT);
    assert_int_equal(count, 9);
    danaus_tokenizer_destroy(t);

    t = tokenizer_of((parts){ .more = "\"truncation\":{\"direction\":\"Left\"}" });
    expect_most(t, words, strlen(words), 5, "2 7 14 5 3");
    expect_most(t, words, strlen(words), 2, "2 3");
    expect_most(t, words, strlen(words), 0, "2 5 6 7 14 5 3");
    danaus_tokenizer_destroy(t);

    t = tokenizer_of((parts){ .template = "null" });
    expect_most(t, words, strlen(words), 1, "5");
    danaus_tokenizer_destroy(t);
}

static void too_little_room_says_how_much(void **state)
{
    (void)state;
    danaus_tokenizer *t = tokenizer_of(usual_parts);
    int32_t ids[4] = { -7, -7, -7, -7 };
    char string[8] = "xxxxxxx";
    size_t count = 0;
    assert_status(
        danaus_tokenizer_encode(t, "a b b", 5, 0, ids, 4, &count), DANAUS_ERR_SHAPE);
    assert_int_equal(count, 5);
    assert_int_equal(ids[0], -7);
    assert_status(
        danaus_tokenizer_encode(t, NULL, 0, 0, NULL, 0, &count), DANAUS_ERR_SHAPE);
    assert_int_equal(count, 2);
    ids[0] = 7;
    assert_status(
        danaus_tokenizer_decode(t, ids, 1, 0, string, 2, &count), DANAUS_ERR_SHAPE);
    assert_int_equal(count, 2);
    assert_int_equal(string[0], 'x');
    assert_ok(danaus_tokenizer_decode(t, ids, 1, 0, string, 3, &count));
    assert_string_equal(string, "ab");
    danaus_tokenizer_destroy(t);
}

static void text_that_is_not_utf8_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *string;
        size_t at;
    } cases[] = {
        { "ab\xff", 2 },
        { "\x80", 0 },
        { "a\xc3", 1 },
        { "\xc0\x80", 0 },
        { "a\xed\xa0\x80", 1 },
        { "\xe4\xb8\xad\xe4\xb8", 3 },
        { "\xf4\x90\x80\x80", 0 },
        { "[MASK]\xe2(", 6 },
    };
    danaus_tokenizer *t = tokenizer_of(usual_parts);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t count = 77, length = strlen(cases[i].string);
        bytes exact = bytes_of(cases[i].string, length);
        int32_t ids[8];
        char words[32];
        /* Also behind what is cut off. */
        assert_status(
            danaus_tokenizer_encode(
                t, (const char *)exact.data, length, 2, ids, 8, &count),
            DANAUS_ERR_FORMAT);
        snprintf(words, sizeof words, "at byte %zu,", cases[i].at);
        assert_non_null(strstr(danaus_error_detail(), words));
        assert_int_equal(count, 77);
        bytes_free(&exact);
    }
    danaus_tokenizer_destroy(t);
}

/* ---- back to text ---- */

static void expect_text(
    const danaus_tokenizer *t, const int32_t *ids, size_t count, int skip,
    const char *expected)
{
    char string[256];
    size_t length;
    assert_ok(danaus_tokenizer_decode(t, ids, count, skip, string, 256, &length));
    assert_string_equal(string, expected);
    assert_int_equal(length, strlen(expected));
}

static void ids_become_text(void **state)
{
    (void)state;
    danaus_tokenizer *t = tokenizer_of(usual_parts);
    const int32_t ids[] = { 2, 7, 14, 11, 5, 18, 19, 4, 20, 3 };
    expect_text(t, ids, 10, 0, "[CLS] abc! a ' s [MASK] don't [SEP]");
    expect_text(t, ids, 10, 1, "abc! a ' s don't");
    expect_text(t, ids + 2, 1, 0, "##c");
    expect_text(t, NULL, 0, 0, "");
    danaus_tokenizer_destroy(t);
    t = tokenizer_of((parts){ .decoder = "{\"type\":\"WordPiece\",\"prefix\":\"\","
                                         "\"cleanup\":false}" });
    expect_text(t, ids, 4, 0, "[CLS]ab##c!");
    danaus_tokenizer_destroy(t);
}

static void ids_that_are_none_are_refused(void **state)
{
    (void)state;
    danaus_tokenizer *t = tokenizer_of(
        (parts){ .words = "\"[UNK]\":0,\"[CLS]\":2,\"[SEP]\":3,\"[MASK]\":4,\"a\":9" });
    char string[8];
    size_t length;
    int32_t ids[] = { 9, 8 }, id = -5;
    assert_int_equal(danaus_tokenizer_vocabulary(t), 10);
    assert_int_equal(danaus_tokenizer_vocabulary(NULL), 0);
    assert_status(
        danaus_tokenizer_decode(t, ids, 2, 0, string, 8, &length), DANAUS_ERR_ARGUMENT);
    assert_non_null(strstr(danaus_error_detail(), "id 8 at 1 is no token"));
    ids[1] = -1;
    assert_status(
        danaus_tokenizer_decode(t, ids, 2, 0, string, 8, &length), DANAUS_ERR_ARGUMENT);
    assert_ok(danaus_tokenizer_id(t, "[MASK]", &id));
    assert_int_equal(id, 4);
    assert_ok(danaus_tokenizer_id(t, "a", &id));
    assert_int_equal(id, 9);
    assert_status(danaus_tokenizer_id(t, "b", &id), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_tokenizer_id(t, NULL, &id), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_tokenizer_decode(t, NULL, 1, 0, string, 8, &length),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_tokenizer_encode(NULL, "a", 1, 0, ids, 2, &length), DANAUS_ERR_ARGUMENT);
    assert_int_equal(id, 9);
    danaus_tokenizer_destroy(t);
    danaus_tokenizer_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_the_longest_pieces),
        cmocka_unit_test(text_is_cleaned),
        cmocka_unit_test(accents_go_and_letters_are_small),
        cmocka_unit_test(marks_that_stay_are_ordered),
        cmocka_unit_test(chinese_and_punctuation_stand_alone),
        cmocka_unit_test(younger_letters_are_plain),
        cmocka_unit_test(special_tokens_are_found_in_text),
        cmocka_unit_test(added_tokens_have_flags),
        cmocka_unit_test(what_is_too_long_is_cut),
        cmocka_unit_test(too_little_room_says_how_much),
        cmocka_unit_test(text_that_is_not_utf8_is_refused),
        cmocka_unit_test(ids_become_text),
        cmocka_unit_test(ids_that_are_none_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
