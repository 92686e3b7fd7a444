/* Decoders: the steps that make text of tokens, as the package `tokenizers` has them. Each step
   makes texts of texts, and those of the last one stand one behind the other. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_TOKENS_DECODERS_H
#define DN_TOKENS_DECODERS_H

#include "tokens/growing.h"
#include "tokens/normalizers/normalizers.h"

/* Texts one behind the other. */
typedef struct piece_list {
    growing text;
    size_t *ends;
    size_t count, capacity;
} piece_list;

static inline span piece_at(const piece_list *p, size_t i)
{
    return span_cut(growing_span(&p->text), i ? p->ends[i - 1] : 0, p->ends[i]);
}

/* Ends the piece that consists of all text behind the last one. */
danaus_status dn_pieces_end(piece_list *p);
void dn_pieces_free(piece_list *p);

typedef struct decode_step decode_step;

/* Appends what becomes of one text. */
typedef danaus_status decode_fn(
    const decode_step *d, span token, int is_first, growing *to);

/* Appends what becomes of all of them. */
typedef danaus_status decode_all_fn(const piece_list *from, piece_list *to);

struct decode_step {
    decode_fn *put; /* or `all` */
    decode_all_fn *all;
    growing prefix; /* of tokens within a word */
    int cleanup;
    int32_t letter;     /* that stands for a space, or that is stripped */
    int drops_spaces;   /* nonzero: the first token loses its spaces */
    size_t left, right; /* letters that are stripped, at most */
    normalizer replace;
};

void dn_decode_step_free(decode_step *d);

/* decode_token.c */
decode_fn dn_decode_plain, dn_decode_wordpiece, dn_decode_spaces;
decode_fn dn_decode_replace, dn_decode_strip;

/* decode_all.c */
decode_all_fn dn_decode_bytes, dn_decode_byte_tokens, dn_decode_fuse;

/* Runs the steps on pieces, which are used up, and appends the text. */
danaus_status dn_decode(
    const decode_step *steps, size_t count, piece_list *tokens, growing *to);

#endif
