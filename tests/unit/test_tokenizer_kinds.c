/* Unigram and BPE, and the parts that they come with: ids worked out by hand, files that are
   wrong, words of a megabyte. python/tests/test_tokenizer_kinds.py compares with the
   reference. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/mem.h"
#include "tokens/tokens.h"
#include "support/failing.h"
#include "support/rng.h"
#include "support/tokenizers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define METASPACE                                                                      \
    "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\u2581\","            \
    "\"prepend_scheme\":\"always\",\"split\":true},\"decoder\":{\"type\":"             \
    "\"Metaspace\","                                                                   \
    "\"replacement\":\"\u2581\",\"prepend_scheme\":\"always\"}"
#define UNIGRAM_WORDS                                                                  \
    "[[\"<s>\",0],[\"<unk>\",0.0],[\"\u2581\",-2.5],[\"a\",-1],[\"b\",-1.5],[\"ab\",-" \
    "2],"                                                                              \
    "[\"\u2581ab\",-4.0],[\"ba\",-2.5],[\"<0xC3>\",-9],[\"<0xA9>\",-9]]"
#define UNIGRAM(more)                                                                  \
    "{" METASPACE                                                                      \
    ",\"model\":{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":" UNIGRAM_WORDS "}" more  \
    "}"

#define BYTE_LEVEL                                                                     \
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"            \
    "\"trim_offsets\":true},\"decoder\":{\"type\":\"ByteLevel\"}"
#define BPE_WORDS                                                                      \
    "{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"bc\":4,\"abc\":5,\"\u0120\":6,\"\u0120a\":7," \
    "\"\u00c3\":8,\"\u00a9\":9,\"?\":10,\"<0x64>\":11,\"aa\":12}"
#define BPE_MERGES "[[\"b\",\"c\"],\"a b\",[\"a\",\"bc\"],\"\u0120 a\",[\"a\",\"a\"]]"
#define BPE(parts, more)                                                               \
    "{" parts ",\"model\":{\"type\":\"BPE\",\"vocab\":" BPE_WORDS                      \
    ",\"merges\":" BPE_MERGES more "}}"

static danaus_tokenizer *tokenizer_of_json(const char *json)
{
    danaus_tokenizer *t = NULL;
    assert_ok(dn_tokenizer_read(span_of(json), &t));
    return t;
}

static void expect(const char *json, const char *string, const char *ids)
{
    danaus_tokenizer *t = tokenizer_of_json(json);
    expect_most(t, string, strlen(string), 0, ids);
    danaus_tokenizer_destroy(t);
}

static void expect_text(
    const char *json, const int32_t *ids, size_t count, const char *expected)
{
    danaus_tokenizer *t = tokenizer_of_json(json);
    char string[64];
    size_t bytes;
    assert_ok(danaus_tokenizer_decode(t, ids, count, 0, string, sizeof string, &bytes));
    assert_string_equal(string, expected);
    danaus_tokenizer_destroy(t);
}

static void refuse(const char *json, danaus_status expected, const char *words)
{
    danaus_tokenizer *t = NULL;
    assert_status(dn_tokenizer_read(span_of(json), &t), expected);
    assert_null(t);
    if (!strstr(danaus_error_detail(), words))
        fail_msg("%s: \"%s\"", json, danaus_error_detail());
}

/* ---- Unigram ---- */

static void the_best_sum_of_scores_wins(void **state)
{
    (void)state;
    const char *json = UNIGRAM("");
    expect(json, "ab", "6"); /* -4 is more than -2.5 - 2 */
    expect(json, "a", "2 3");
    expect(json, "bab", "2 4 5");    /* -1.5 - 2 is more than -2.5 - 1.5 */
    expect(json, "aba ab", "6 3 6"); /* -4 - 1 is more than -2.5 - 2 - 1 */
    expect(json, "", "");
    expect(json, "  a", "2 2 3");
}

static void unknown_letters_in_a_row_are_one(void **state)
{
    (void)state;
    expect(UNIGRAM(""), "axyza", "2 3 1 3");
    expect(UNIGRAM(""), "x y", "2 1 2 1");
    /* A text that is the unknown token's joins them. */
    expect(UNIGRAM(""), "a<unk>x<unk>", "2 3 1");
}

static void unknown_letters_may_be_bytes(void **state)
{
    (void)state;
    const char *json = "{" METASPACE ",\"model\":{\"type\":\"Unigram\",\"unk_id\":1,"
                       "\"byte_fallback\":true,\"vocab\":" UNIGRAM_WORDS "}}";
    expect(json, "a\u00e9", "2 3 8 9");
    expect(json, "\u00e9\u00e9", "2 8 9 8 9");
    expect(json, "\u00e9\u00e8", "2 1"); /* one byte is missing */
}

static void without_an_unknown_token_such_text_is_an_error(void **state)
{
    (void)state;
    danaus_tokenizer *t = tokenizer_of_json(
        "{" METASPACE
        ",\"model\":{\"type\":\"Unigram\",\"unk_id\":null,\"vocab\":" UNIGRAM_WORDS
        "}}");
    int32_t ids[8];
    size_t count;
    assert_ok(danaus_tokenizer_encode(t, "ab", 2, 0, ids, 8, &count));
    assert_status(
        danaus_tokenizer_encode(t, "ax", 2, 0, ids, 8, &count), DANAUS_ERR_FORMAT);
    assert_non_null(strstr(danaus_error_detail(), "\"x\", which is no token"));
    danaus_tokenizer_destroy(t);
}

static void spaces_come_back(void **state)
{
    (void)state;
    const int32_t ids[] = { 6, 2, 3, 6 };
    expect_text(UNIGRAM(""), ids, 4, "ab a ab");
}

/* ---- BPE ---- */

static void merges_go_by_rank(void **state)
{
    (void)state;
    expect(BPE(BYTE_LEVEL, ""), "abc", "5");
    expect(BPE(BYTE_LEVEL, ""), "ab", "3");
    expect(BPE(BYTE_LEVEL, ""), "aaa aaaa", "12 0 7 12 0");
    expect(BPE(BYTE_LEVEL, ""), "\u00e9", "8 9");
    expect(BPE(BYTE_LEVEL, ""), "", "");
}

static void what_is_no_letter_of_bpe(void **state)
{
    (void)state;
    expect(
        BPE(BYTE_LEVEL, ""), "axd", "0"); /* without an unknown token it is left out */
    expect(BPE(BYTE_LEVEL, ",\"unk_token\":\"?\""), "axyb", "0 10 10 1");
    expect(BPE(BYTE_LEVEL, ",\"unk_token\":\"?\",\"fuse_unk\":true"), "axyb", "0 10 1");
    expect(
        BPE(BYTE_LEVEL, ",\"unk_token\":\"?\",\"byte_fallback\":true"), "axdb",
        "0 11 10 1"); /* bytes come first, as in the reference */
    expect(BPE(BYTE_LEVEL, ",\"ignore_merges\":true"), "aa", "12");
}

static void prefixes_and_suffixes_are_part_of_letters(void **state)
{
    (void)state;
    expect(
        "{\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},\"model\":{\"type\":\"BPE\","
        "\"continuing_subword_prefix\":\"##\",\"end_of_word_suffix\":\"</"
        "w>\",\"vocab\":{"
        "\"a\":0,\"##b\":1,\"##b</w>\":2,\"ab\":3,\"a</w>\":4,\"abb</"
        "w>\":5},\"merges\":["
        "[\"a\",\"##b\"],[\"ab\",\"##b</w>\"]]}}",
        "abb ab a", "5 0 2 4");
}

static void bytes_come_back(void **state)
{
    (void)state;
    const int32_t all[] = { 5, 7, 8, 9 }, broken[] = { 8, 0, 9 };
    expect_text(BPE(BYTE_LEVEL, ""), all, 4, "abc a\u00e9");
    expect_text(BPE(BYTE_LEVEL, ""), broken, 3, "\ufffda\ufffd");
}

/* ---- wrong files ---- */

#define MODEL(fields) "{\"model\":{" fields "}}"

static void wrong_models_are_refused(void **state)
{
    (void)state;
    const danaus_status other = DANAUS_ERR_UNSUPPORTED, wrong = DANAUS_ERR_FORMAT;
    static const char unigram[] = "\"type\":\"Unigram\"", bpe[] = "\"type\":\"BPE\"";
    static const struct {
        const char *type, *rest;
        int is_other;
        const char *words;
    } cases[] = {
        { unigram, "", 0, "no vocabulary" },
        { unigram, ",\"vocab\":{}", 0, "not an array" },
        { unigram, ",\"vocab\":[]", 0, "has no word" },
        { unigram, ",\"vocab\":[[\"a\",\"b\"]]", 0, "entry 0" },
        { unigram, ",\"vocab\":[[\"a\",0],[\"b\",null]]", 0, "entry 1" },
        { unigram, ",\"vocab\":[[\"a\",0,1]]", 0, "entry 0" },
        { unigram, ",\"vocab\":[[\"a\",0],[\"a\",1]]", 1, "twice" },
        { unigram, ",\"vocab\":[[\"a\",0]],\"unk_id\":1", 0, "unknown token" },
        { unigram, ",\"vocab\":[[\"a\",0]],\"unk_id\":\"a\"", 0, "unk_id" },
        { unigram, ",\"vocab\":[[\"a\",1e999]]", 0, "no proper JSON" },
        { bpe, ",\"vocab\":{\"a\":0}", 0, "no merges" },
        { bpe, ",\"merges\":[]", 0, "no vocabulary" },
        { bpe, ",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]", 0, "merge 0 names" },
        { bpe, ",\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"a\"]]", 0, "merge 0 names" },
        { bpe, ",\"vocab\":{\"a\":0},\"merges\":[\"a\"]", 0, "no pair" },
        { bpe, ",\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]", 0, "no pair" },
        { bpe, ",\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"a\",\"a\"]]", 0, "no pair" },
        { bpe, ",\"vocab\":{\"a\":0},\"merges\":[[\"a\",0]]", 0, "no pair" },
        { bpe,
          ",\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"a\"]],"
          "\"continuing_subword_prefix\":\"##\"",
          0, "shorter than the prefix" },
        { bpe, ",\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1", 1, "dropout" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[512];
        snprintf(json, sizeof json, "{\"model\":{%s%s}}", cases[i].type, cases[i].rest);
        refuse(json, cases[i].is_other ? other : wrong, cases[i].words);
    }
}

static void wrong_steps_are_refused(void **state)
{
    (void)state;
    const danaus_status other = DANAUS_ERR_UNSUPPORTED, wrong = DANAUS_ERR_FORMAT;
    static const struct {
        const char *part;
        int is_other;
        const char *words;
    } cases[] = {
        { "\"normalizer\":{\"type\":\"Sequence\"}", 0, "no \"normalizers\"" },
        { "\"normalizer\":{\"type\":\"Strip\",\"strip_left\":true}", 0, "strip_right" },
        { "\"normalizer\":{\"type\":\"Prepend\"}", 0, "no \"prepend\"" },
        { "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[a]\"},"
          "\"content\":\"\"}",
          1, "the pattern \"[a]\"" },
        { "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},"
          "\"content\":\"\"}",
          1, "the pattern" },
        { "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {0,}\"},"
          "\"content\":\"\"}",
          1, "the pattern" },
        { "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"ab\"}", 0,
          "not one character" },
        { "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"a\","
          "\"prepend_scheme\":\"last\"}",
          0, "prepend_scheme" },
        { "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"a\","
          "\"prepend_scheme\":\"always\",\"add_prefix_space\":false}",
          0, "add_prefix_space" },
        { "\"pre_tokenizer\":{\"type\":\"Digits\"}", 1, "type Digits; danaus has" },
        { "\"pre_tokenizer\":{\"type\":\"ByteLevel\"}", 0, "add_prefix_space" },
        { "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x\"},"
          "\"behavior\":\"Isolated\",\"invert\":false}",
          1, "the pattern \"x\"" },
        { "\"decoder\":{\"type\":\"CTC\"}", 1, "type CTC; danaus has" },
        { "\"decoder\":{\"type\":\"Sequence\"}", 0, "no \"decoders\"" },
        { "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"CTC\"}]}", 1,
          "type CTC" },
        { "\"decoder\":{\"type\":\"Strip\",\"content\":\"ab\",\"start\":1,\"stop\":0}",
          0, "one character" },
        { "\"decoder\":{\"type\":\"Strip\",\"content\":\"a\",\"start\":-1,\"stop\":0}",
          0, "\"start\" is not" },
        { "\"decoder\":{\"type\":\"Strip\",\"content\":\"a\",\"start\":1}", 0,
          "a stop" },
        { "\"decoder\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[a]\"},"
          "\"content\":\"\"}",
          1, "the pattern \"[a]\"" },
        { "\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":"
          "\"BertProcessing\",\"cls\":[\"a\",0],\"sep\":[\"a\",0]},{\"type\":"
          "\"RobertaProcessing\",\"cls\":[\"a\",0],\"sep\":[\"a\",0]}]}",
          1, "two parts" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[512];
        snprintf(
            json, sizeof json,
            "{%s,\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]]}}",
            cases[i].part);
        refuse(json, cases[i].is_other ? other : wrong, cases[i].words);
    }
}

/* ---- maps of characters ---- */

/* Bytes of a map: units of the trie, and replacements. */
static danaus_status read_map(
    const uint32_t *units, size_t count, span strings, charsmap *map)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char bytes[4096] = { 0 };
    char base64[8192];
    size_t length = 4 + 4 * count, to = 0;
    for (size_t i = 0; i <= count; i++) {
        uint32_t value = i ? units[i - 1] : (uint32_t)(4 * count);
        for (int b = 0; b < 4; b++)
            bytes[4 * i + (size_t)b] = (unsigned char)(value >> 8 * b);
    }
    memcpy(bytes + length, strings.text, strings.length);
    length += strings.length;
    for (size_t i = 0; i < length; i += 3) {
        uint32_t three =
            (uint32_t)bytes[i] << 16 | (uint32_t)bytes[i + 1] << 8 | bytes[i + 2];
        for (int d = 0; d < 4; d++)
            base64[to++] = i + (size_t)d > length
                               ? '='
                               : digits[three >> (18 - 6 * (unsigned)d) & 63];
    }
    *map = (charsmap){ 0 };
    return dn_charsmap_read((span){ base64, to }, map);
}

#define UNIT(offset, byte, value)                                                      \
    ((uint32_t)(offset) << 10 | (uint32_t)(value) << 8 | (byte))

/* "a" becomes the text at byte 2 of the replacements. The root's children are at 1 ^ byte, and
   the value of "a" is at (1 ^ 'a') ^ 2. */
static void a_map_replaces(void **state)
{
    (void)state;
    uint32_t units[256] = { [0] = UNIT(1, 0, 0), [1 ^ 'a'] = UNIT(2, 'a', 1) };
    units[1 ^ 'a' ^ 2] = 0x80000002;
    normalizer n = { .run = dn_normalize_charsmap };
    assert_ok(read_map(units, 256, (span){ "x\0yz\0", 5 }, &n.map));
    growing to = { 0 };
    int moved = 0;
    /* A mark belongs to the letter before it, and goes with it. */
    assert_ok(n.run(&n, span_of("bab a\u0301b\u0301"), &to, &moved));
    assert_int_equal(to.length, strlen("byzb yzb\u0301"));
    assert_memory_equal(to.text, "byzb yzb\u0301", to.length);
    dn_free(to.text);
    dn_normalizer_free(&n);
}

static void wrong_maps_are_refused(void **state)
{
    (void)state;
    charsmap map = { 0 };
    uint32_t units[256] = { [0] = UNIT(1, 0, 0), [1 ^ 'a'] = UNIT(2, 'a', 1) };
    const span strings = { "x\0yz\0", 5 };
    units[1 ^ 'a' ^ 2] = 0x80000000 | 6; /* behind the replacements */
    assert_status(read_map(units, 256, strings, &map), DANAUS_ERR_FORMAT);
    assert_non_null(strstr(danaus_error_detail(), "without replacement"));
    dn_charsmap_free(&map);
    units[1 ^ 'a' ^ 2] = 0x80000001; /* within a letter */
    assert_status(read_map(units, 256, span_of("\u00e9"), &map), DANAUS_ERR_FORMAT);
    dn_charsmap_free(&map);
    assert_status(read_map(units, 256, (span){ "\xff", 1 }, &map), DANAUS_ERR_FORMAT);
    assert_non_null(strstr(danaus_error_detail(), "not UTF-8"));
    dn_charsmap_free(&map);
    units[1 ^ 'a'] = UNIT(0x1fffff, 'a', 1) | 1u << 9; /* far away */
    assert_status(read_map(units, 256, strings, &map), DANAUS_ERR_FORMAT);
    dn_charsmap_free(&map);
    assert_status(read_map(units, 0, strings, &map), DANAUS_ERR_FORMAT);
    assert_non_null(strstr(danaus_error_detail(), "no whole trie"));
    dn_charsmap_free(&map);
    static const char *const texts[] = {
        "", "AAA", "A===", "AA=A", "A*AA", "////AAAA"
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_status(dn_charsmap_read(span_of(texts[i]), &map), DANAUS_ERR_FORMAT);
        dn_charsmap_free(&map);
    }
}

/* A node that is its own child: text only goes round in it. */
static void a_circle_in_a_map_ends(void **state)
{
    (void)state;
    uint32_t units[256] = { [0] = UNIT(1, 0, 0), [1 ^ 'a'] = UNIT('a', 'a', 0) };
    normalizer n = { .run = dn_normalize_charsmap };
    assert_ok(read_map(units, 256, (span){ "", 0 }, &n.map));
    growing to = { 0 };
    int moved = 0;
    assert_ok(n.run(&n, span_of("aaaa"), &to, &moved));
    assert_int_equal(to.length, 4);
    dn_free(to.text);
    dn_normalizer_free(&n);
}

static void any_map_is_refused_or_read(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 3000; round++) {
        rng r = { round };
        uint32_t units[64];
        for (size_t i = 0; i < 64; i++)
            units[i] = UNIT(
                rng_int(&r, 0, 63), (uint32_t)rng_int(&r, 0, 127), rng_int(&r, 0, 2));
        normalizer n = { .run = dn_normalize_charsmap };
        growing to = { 0 };
        int moved = 0;
        if (read_map(units, 64, span_of("abc"), &n.map) == DANAUS_OK)
            assert_ok(n.run(&n, span_of("abcABC\u0301 #$\u00e9xyz"), &to, &moved));
        dn_free(to.text);
        dn_normalizer_free(&n);
    }
}

/* ---- long words, and memory ---- */

/* Time that grows with the square of a megabyte would be hours. */
static void a_megabyte_is_one_word(void **state)
{
    (void)state;
    enum { BYTES = 1 << 20 };
    char *string = dn_alloc(BYTES);
    int32_t *ids = dn_alloc((BYTES + 1) * sizeof *ids);
    size_t count;
    static const char *const files[] = { UNIGRAM(""), BPE(BYTE_LEVEL, "") };
    for (size_t f = 0; f < 2; f++) {
        danaus_tokenizer *t = tokenizer_of_json(files[f]);
        memset(string, 'a', BYTES);
        assert_ok(danaus_tokenizer_encode(t, string, BYTES, 0, ids, BYTES + 1, &count));
        assert_int_equal(count, f ? BYTES / 2 : BYTES + 1);
        for (size_t i = 0; i < BYTES; i++)
            string[i] = "abcx"[i * i % 7 % 4];
        assert_ok(danaus_tokenizer_encode(t, string, BYTES, 0, ids, BYTES + 1, &count));
        danaus_tokenizer_destroy(t);
    }
    dn_free(string);
    dn_free(ids);
}

#define STEPS                                                                          \
    ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},"     \
    "{\"type\":\"Lowercase\"},{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" "        \
    "{2,}\"},"                                                                         \
    "\"content\":\" \"},{\"type\":\"Prepend\",\"prepend\":\"a\"}]}"

static void memory_may_run_out_at_any_time(void **state)
{
    (void)state;
    static char unigram[] = UNIGRAM(STEPS), bpe[] = BPE(BYTE_LEVEL STEPS, "");
    assert_in_range(expect_memory_errors(tokenizer_load_and_use, unigram), 20, 300);
    assert_in_range(expect_memory_errors(tokenizer_load_and_use, bpe), 20, 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_sum_of_scores_wins),
        cmocka_unit_test(unknown_letters_in_a_row_are_one),
        cmocka_unit_test(unknown_letters_may_be_bytes),
        cmocka_unit_test(without_an_unknown_token_such_text_is_an_error),
        cmocka_unit_test(spaces_come_back),
        cmocka_unit_test(merges_go_by_rank),
        cmocka_unit_test(what_is_no_letter_of_bpe),
        cmocka_unit_test(prefixes_and_suffixes_are_part_of_letters),
        cmocka_unit_test(bytes_come_back),
        cmocka_unit_test(wrong_models_are_refused),
        cmocka_unit_test(wrong_steps_are_refused),
        cmocka_unit_test(a_map_replaces),
        cmocka_unit_test(wrong_maps_are_refused),
        cmocka_unit_test(a_circle_in_a_map_ends),
        cmocka_unit_test(any_map_is_refused_or_read),
        cmocka_unit_test(a_megabyte_is_one_word),
        cmocka_unit_test(memory_may_run_out_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
