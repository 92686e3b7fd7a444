/* Lines of text as the tokens of a model. */
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_TOKEN_LINES_H
#define CLI_TOKEN_LINES_H

#include "danaus/danaus.h"

typedef struct token_lines {
    int64_t count;
    const char *source; /* a file, or what gave a line: an option or an operand */
    int is_file;
    char *text, **line; /* [count], each ended by a zero */
    int64_t *offsets;   /* [count + 1] */
    int32_t *ids;       /* [offsets[count]] */
} token_lines;

/* Reads a file of lines, and converts each to tokens by the tokenizer in a model's folder. A
   line with more than `most` tokens loses its end. Returns an exit status. */
int token_lines_read(const char *path, const char *model, int64_t most, token_lines *t);

/* The same for one line that is given, as `source` in sentences. `most` 0: all of its tokens. */
int token_lines_of(
    const char *text, const char *source, const char *model, int64_t most,
    token_lines *t);

/* The tokens of capitals and small letters by the tokenizer in a model's folder. With
   `ambiguous`, letters of the nucleic acid code that stand for several bases become N. Returns
   an exit status. */
int token_letters(const char *model, int ambiguous, int32_t tokens[256]);

/* Reads the records of a FASTA file, each in pieces of at most `most` tokens: no text, only
   ids. */
int token_lines_fasta(
    const char *path, const char *model, int64_t most, token_lines *t);

/* Fills every line up with the tokenizer's [PAD] until it has `length` tokens. */
int token_lines_pad(token_lines *t, const char *model, int64_t length);
void token_lines_free(token_lines *t);

/* Embeddings [count][embedding] of the lines, to be freed; NULL: a sentence was printed. */
float *token_lines_embed(
    const token_lines *t, danaus_model *model, danaus_device *device);

#endif
