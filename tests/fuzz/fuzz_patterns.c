/* Any text as patterns: what is accepted obeys the rules of the header. */
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"

#include "danaus/danaus.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    expect(text);
    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    danaus_pattern p[8];
    int count = 0;
    if (danaus_patterns_parse(text, p, 8, &count) == DANAUS_OK) {
        expect(count >= 1 && count <= 8);
        expect(danaus_patterns_check(p, count) == DANAUS_OK);
        for (int i = 0; i < count; i++)
            expect(p[i].a > 0 && p[i].b > 0 && p[i].c > 0 && p[i].d > 0);
        if (danaus_patterns_check_chainable(p, count) != DANAUS_OK)
            expect(*danaus_error_detail());
    } else {
        expect(*danaus_error_detail());
    }
    free(text);
    return 0;
}
