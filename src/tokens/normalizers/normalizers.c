/* Runs normalizers one after the other. */
// SPDX-License-Identifier: Apache-2.0
#include "tokens/normalizers/normalizers.h"

#include "base/status.h"
#include "tokens/letters.h"

danaus_status dn_normalize(
    const normalizer *steps, size_t count, span string, normal_text *to, span *normal)
{
    to->moved = 0;
    *normal = string;
    for (size_t i = 0; i < count; i++) {
        growing *next = &to->texts[i % 2];
        next->length = 0;
        TRY(steps[i].run(&steps[i], *normal, next, &to->moved));
        *normal = growing_span(next);
    }
    return DANAUS_OK;
}

danaus_status dn_add_letter(growing *to, int32_t c)
{
    TRY(dn_growing_reserve(to, LETTER_BYTES));
    to->length += dn_put_letter(c, to->text + to->length);
    return DANAUS_OK;
}

void dn_normal_text_free(normal_text *n)
{
    dn_free(n->texts[0].text);
    dn_free(n->texts[1].text);
}

void dn_normalizer_free(normalizer *n)
{
    dn_free(n->replaced.text.text);
    dn_free(n->content.text);
    dn_charsmap_free(&n->map);
}
