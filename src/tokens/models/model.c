/* What models keep beside their words. */
// SPDX-License-Identifier: Apache-2.0
#include "base/numbers.h"
#include "base/status.h"
#include "tokens/tokens.h"

#include <math.h>

#define UNKNOWN_PENALTY 10.0 /* below the least score of Unigram */

/* The ids of "<0x00>" to "<0xFF>". */
static void find_bytes(danaus_tokenizer *t)
{
    for (int byte = 0; byte < 256; byte++) {
        char string[8];
        text name = { string, sizeof string, 0 };
        dn_text(&name, "<0x%02X>", byte);
        const vocabulary_word *found =
            dn_vocabulary_find_word(&t->words, (span){ string, name.length });
        t->model.bytes[byte] = found ? found->id : -1;
    }
}

static double least_score(const model *m)
{
    double least = INFINITY;
    for (size_t i = 0; i < m->score_count; i++)
        least = MIN(least, m->scores[i]);
    return least;
}

danaus_status dn_finish_model(danaus_tokenizer *t)
{
    model *m = &t->model;
    m->prefix_hash = dn_word_hash(WORD_HASH_START, growing_span(&m->prefix));
    find_bytes(t);
    if (m->put != dn_put_unigram)
        return DANAUS_OK;
    m->unknown_score = least_score(m) - UNKNOWN_PENALTY;
    return dn_trie_build(&m->trie, &t->words);
}

void dn_model_free(model *m)
{
    dn_free(m->prefix.text);
    dn_free(m->suffix.text);
    dn_free(m->scores);
    dn_merges_free(&m->merges);
    dn_trie_free(&m->trie);
}

void dn_model_work_free(model_work *w)
{
    dn_free(w->pieces);
    dn_free(w->paths);
    dn_free(w->ends);
    dn_free(w->symbols);
    dn_free(w->heap);
    dn_free(w->text.text);
}
