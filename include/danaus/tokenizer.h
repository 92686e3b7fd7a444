/* Tokens: from text to the ids that a model takes, and back.

   A tokenizer is read from a model's files and gives the same ids as the package
   `tokenizers`: WordPiece (BERT), Unigram (SentencePiece, XLM-RoBERTa) or byte-level BPE
   (RoBERTa, GPT-2), or, for models of DNA, one token for each character. docs/models.md has the
   rules. Text is UTF-8. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DANAUS_TOKENIZER_H
#define DANAUS_TOKENIZER_H

#include "danaus/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct danaus_tokenizer danaus_tokenizer;

/* Reads tokenizer.json, or vocab.txt with the tokenizer_config.json beside it. path is one of
   those two files or a directory. In a directory tokenizer.json comes first; if both are
   missing, tokenizer_config.json may say that characters are tokens. DANAUS_ERR_UNSUPPORTED
   if a file asks for something that danaus lacks. A tokenizer is immutable: share it between
   threads. */
DANAUS_API danaus_status
danaus_tokenizer_load(const char *path, danaus_tokenizer **tokenizer);
DANAUS_API void danaus_tokenizer_destroy(
    danaus_tokenizer *tokenizer); /* NULL is fine */

/* One more than the largest id. */
DANAUS_API int32_t danaus_tokenizer_vocabulary(const danaus_tokenizer *tokenizer);

/* The id of a token, for example "[MASK]", "word" or "##ing". DANAUS_ERR_ARGUMENT if there is
   no such token. */
DANAUS_API danaus_status
danaus_tokenizer_id(const danaus_tokenizer *tokenizer, const char *token, int32_t *id);

/* How many ids danaus_tokenizer_encode() puts before and after those of a text. */
DANAUS_API danaus_status danaus_tokenizer_around(
    const danaus_tokenizer *tokenizer, size_t *before, size_t *after);

/* Writes the ids of `bytes` bytes of text, with the special ids around it that the model
   expects ([CLS] and [SEP], or <s> and </s>). It writes at most `most` ids, special ones
   included (0: no limit). A text that is too long loses its end, or its beginning if the files
   say so. *count is the number of ids, also if the call fails with DANAUS_ERR_SHAPE because
   there are more than `capacity`. DANAUS_ERR_FORMAT if the text is not UTF-8, or has a part
   that is no token where the model has no unknown token; the sentence says at which byte, or
   which part. */
DANAUS_API danaus_status danaus_tokenizer_encode(
    const danaus_tokenizer *tokenizer, const char *text, size_t bytes, int64_t most,
    int32_t *ids, size_t capacity, size_t *count);

/* Writes the text of ids, and a zero after it. *bytes is the length of the text without the
   zero, also if the call fails with DANAUS_ERR_SHAPE because it is not less than `capacity`.
   Special tokens are left out if skip_special is not 0. */
DANAUS_API danaus_status danaus_tokenizer_decode(
    const danaus_tokenizer *tokenizer, const int32_t *ids, size_t count,
    int skip_special, char *text, size_t capacity, size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
