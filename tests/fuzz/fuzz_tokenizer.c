/* Any bytes as a tokenizer.json, a zero byte and text, or as a tokenizer_config.json, a zero
   byte, a vocabulary (if it is empty, characters are tokens), a zero byte and text: ids are
   tokens, limits hold, and ids become text. */
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"

#include "tokens/tokens.h"

#include <string.h>

#define MOST_IDS 4096

static int32_t ids[MOST_IDS], fewer[MOST_IDS];

/* The first `most` ids are those without a limit, but for what is around. */
static void check_limit(const danaus_tokenizer *t, span part, size_t count, size_t most)
{
    size_t made = 0;
    if (danaus_tokenizer_encode(
            t, part.text, part.length, (int64_t)most, fewer, MOST_IDS, &made) !=
        DANAUS_OK)
        return;
    expect(most == 0 || made <= most);
    expect(made == (most && most < count ? most : count));
    size_t same = made - t->after;
    if (!t->keep_end)
        expect(!memcmp(ids, fewer, same * sizeof *ids));
}

static void check_text(const danaus_tokenizer *t, const int32_t *made, size_t count)
{
    static char string[1 << 16];
    size_t bytes = 0;
    danaus_status status = danaus_tokenizer_decode(
        t, made, count, count & 1, string, sizeof string, &bytes);
    expect(
        status == DANAUS_OK || (status == DANAUS_ERR_SHAPE && *danaus_error_detail()));
    expect(status != DANAUS_OK || string[bytes] == 0);
}

static void use(const danaus_tokenizer *t, span part)
{
    size_t count = 0;
    danaus_status status =
        danaus_tokenizer_encode(t, part.text, part.length, 0, ids, MOST_IDS, &count);
    if (status != DANAUS_OK) {
        expect(status != DANAUS_ERR_SHAPE || count > MOST_IDS);
        expect(*danaus_error_detail());
        return;
    }
    for (size_t i = 0; i < count; i++)
        expect(ids[i] >= 0 && ids[i] < danaus_tokenizer_vocabulary(t));
    for (size_t most = 0; most < 8; most++)
        check_limit(t, part, count, most);
    check_text(t, ids, count);
}

/* What is before the next zero byte; *rest is what is behind it. */
static span next_part(span *rest)
{
    const char *zero = rest->length ? memchr(rest->text, 0, rest->length) : NULL;
    size_t length = zero ? (size_t)(zero - rest->text) : rest->length;
    span part = { rest->text, length };
    size_t taken = zero ? length + 1 : length;
    *rest = (span){ taken ? rest->text + taken : rest->text, rest->length - taken };
    return part;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    danaus_tokenizer *t = NULL;
    span rest = { (const char *)data, size };
    span file = next_part(&rest), words = { 0 };
    danaus_status status;
    int in_words;
    if (rest.length && memchr(rest.text, 0, rest.length)) {
        words = next_part(&rest);
        status = words.length ? dn_tokenizer_read_words(words, file, &t, &in_words)
                              : dn_tokenizer_read_characters(file, &t);
    } else {
        status = dn_tokenizer_read(file, &t);
    }
    expect((t != NULL) == (status == DANAUS_OK));
    expect(t || *danaus_error_detail());
    if (t)
        use(t, rest);
    danaus_tokenizer_destroy(t);
    return 0;
}
