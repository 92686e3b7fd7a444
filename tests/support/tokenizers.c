/* Tokenizers of a vocabulary of a few words. */
// SPDX-License-Identifier: Apache-2.0
#include "support/tokenizers.h"

#include "support/test.h"

#include "tokens/tokens.h"

#include <stdio.h>
#include <string.h>

const parts usual_parts = {
    .words =
        "\"[PAD]\":0,\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3,\"[MASK]\":4,\"a\":5,"
        "\"b\":6,\"ab\":7,\"##b\":8,\"##bc\":9,\"cafe\":10,\"!\":11,\"$\":12,"
        "\"\u4e2d\":13,\"##c\":14,\"A\":15,\"caf\u00e9\":16,\"i\u0307\":17,\"'\":18,"
        "\"s\":19,\"do not\":20,\"\u302e\U0001d165\":21,\"a\u0345\":22,\"##\u00df\":23",
    .added = TOKEN("[CLS]", 2, PLAIN) "," TOKEN("[SEP]", 3, PLAIN) "," TOKEN(
        "[MASK]", 4, PLAIN),
    .normalizer = "{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_"
                  "chars\":true,"
                  "\"strip_accents\":null,\"lowercase\":true}",
    .template =
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
        "\"[CLS]\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
        "{\"SpecialToken\":{\"id\":\"[SEP]\",\"type_id\":0}}],\"special_tokens\":{"
        "\"[CLS]\":{\"id\":\"[CLS]\",\"ids\":[2]},\"[SEP]\":{\"id\":\"[SEP]\",\"ids\":"
        "[3]}}}",
    .model = "\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\","
             "\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":8",
    .decoder = "{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}",
    .more = "\"version\":\"1.0\"",
};

const char *json_of(parts p)
{
    static char json[8192];
    snprintf(
        json, sizeof json,
        "{%s,\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"added_tokens\":[%s],"
        "\"normalizer\":%s,\"post_processor\":%s,\"decoder\":%s,"
        "\"model\":{%s,\"vocab\":{%s}}}",
        p.more ? p.more : usual_parts.more, p.added ? p.added : usual_parts.added,
        p.normalizer ? p.normalizer : usual_parts.normalizer,
        p.template ? p.template : usual_parts.template,
        p.decoder ? p.decoder : usual_parts.decoder,
        p.model ? p.model : usual_parts.model, p.words ? p.words : usual_parts.words);
    return json;
}

span span_of(const char *words) { return (span){ words, strlen(words) }; }

danaus_tokenizer *tokenizer_of(parts p)
{
    danaus_tokenizer *t = NULL;
    assert_ok(dn_tokenizer_read(span_of(json_of(p)), &t));
    return t;
}

void expect_most(
    const danaus_tokenizer *t, const char *string, size_t length, int64_t most,
    const char *expected)
{
    int32_t ids[64];
    size_t count = 0;
    char made[512] = "";
    assert_ok(danaus_tokenizer_encode(t, string, length, most, ids, 64, &count));
    for (size_t i = 0; i < count; i++)
        snprintf(
            made + strlen(made), sizeof made - strlen(made), "%s%d", i ? " " : "",
            (int)ids[i]);
    if (strcmp(made, expected))
        fail_msg("\"%s\" has the ids %s, not %s", string, made, expected);
}

void expect_ids(parts p, const char *string, const char *expected)
{
    danaus_tokenizer *t = tokenizer_of(p);
    expect_most(t, string, strlen(string), 0, expected);
    danaus_tokenizer_destroy(t);
}

danaus_status tokenizer_load_and_use(void *json)
{
    static const char used[] = "a\u302e caf\u00e9 [MASK] ab e\u0301\u0323 x\u00e9";
    danaus_tokenizer *t = NULL;
    int32_t ids[64];
    char string[256];
    size_t count = 0, length;
    danaus_status status = dn_tokenizer_read(span_of(json), &t);
    if (status == DANAUS_OK)
        status = danaus_tokenizer_encode(t, used, sizeof used - 1, 0, ids, 64, &count);
    if (status == DANAUS_OK)
        status = danaus_tokenizer_decode(t, ids, count, 0, string, 256, &length);
    danaus_tokenizer_destroy(t);
    return status;
}
