/* Runs the steps of a decoder. */
// SPDX-License-Identifier: Apache-2.0
#include "tokens/decoders/decoders.h"

#include "base/mem.h"
#include "base/status.h"

danaus_status dn_pieces_end(piece_list *p)
{
    TRY(dn_reserve(&p->ends, p->count, &p->capacity, sizeof *p->ends, "tokens"));
    p->ends[p->count++] = p->text.length;
    return DANAUS_OK;
}

void dn_pieces_free(piece_list *p)
{
    dn_free(p->text.text);
    dn_free(p->ends);
}

void dn_decode_step_free(decode_step *d)
{
    dn_free(d->prefix.text);
    dn_normalizer_free(&d->replace);
}

static danaus_status run_step(
    const decode_step *d, const piece_list *from, piece_list *to)
{
    if (d->all)
        return d->all(from, to);
    for (size_t i = 0; i < from->count; i++) {
        TRY(d->put(d, piece_at(from, i), i == 0, &to->text));
        TRY(dn_pieces_end(to));
    }
    return DANAUS_OK;
}

danaus_status dn_decode(
    const decode_step *steps, size_t count, piece_list *tokens, growing *to)
{
    piece_list other = { 0 };
    danaus_status status = DANAUS_OK;
    for (size_t i = 0; i < count && status == DANAUS_OK; i++) {
        other.text.length = other.count = 0;
        status = run_step(&steps[i], tokens, &other);
        piece_list made = other;
        other = *tokens;
        *tokens = made;
    }
    if (status == DANAUS_OK)
        status = dn_growing_add(to, growing_span(&tokens->text));
    dn_pieces_free(&other);
    return status;
}
