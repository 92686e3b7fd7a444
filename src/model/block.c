/* Linear layers of a transformer's block. */
// SPDX-License-Identifier: Apache-2.0
#include "model/block.h"

#include "base/status.h"

#include <stdio.h>

danaus_status dn_block_open(
    linear to[BLOCK_LINEARS], binder *b, const char *place, const char *self,
    const block_shape *shape)
{
    static const char *const inputs[] = {
        [QUERY] = "query", [KEY] = "key", [VALUE] = "value"
    };
    static const char *const others[] = { [OUTPUT] = "attention.output.dense",
                                          [UP] = "intermediate.dense",
                                          [DOWN] = "output.dense" };
    char path[160];
    for (int i = 0; i < BLOCK_LINEARS; i++) {
        const linear_shape of = { .rows = i == UP ? shape->inner : shape->width,
                                  .cols = i == DOWN ? shape->inner : shape->width,
                                  .activation = i == UP ? shape->activation : 0,
                                  .tokens = shape->tokens,
                                  .dtype = b->dtype };
        if (i <= VALUE)
            snprintf(path, sizeof path, "%s.attention.%s.%s", place, self, inputs[i]);
        else
            snprintf(path, sizeof path, "%s.%s", place, others[i]);
        TRY(dn_linear_open(&to[i], b, path, &of));
    }
    return DANAUS_OK;
}
