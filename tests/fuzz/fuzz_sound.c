/* Any bytes as a file of sound: read whole, or refused with one sentence. */
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"

#include "cli/chunks.h"
#include "cli/sound.h"
#include "common/args.h"

#include <stdarg.h>
#include <stdio.h>

static int sentences;

/* In place of the program's, which prints. */
int failure(const char *format, ...)
{
    char text[256];
    va_list list;
    va_start(list, format);
    sentences += vsnprintf(text, sizeof text, format, list) > 0;
    va_end(list);
    return STATUS_FAILURE;
}

int usage_error(const char *format, ...) { return failure("%s", format); }
int library_failure(void) { return failure("%s", danaus_error_detail()); }
int library(_Bool failed) { return failed ? library_failure() : STATUS_OK; }
int fail_if(int failed, const char *format, ...)
{
    return failed ? failure("%s", format) : STATUS_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file(data, size);
    FILE *file = fopen(path, "rb");
    expect(file);
    sound_bytes bytes = chunks_of_sound(file);
    fclose(file);
    expect(bytes.claimed >= -1 && bytes.there >= 0 && bytes.there <= (int64_t)size);
    sound s;
    sentences = 0;
    if (sound_read(path, &s) == STATUS_OK) {
        expect(bytes.claimed != 0 && bytes.claimed <= bytes.there && sentences == 0);
        expect(s.channels > 0 && s.length > 0 && s.data);
        size_t magnitudes = 0;
        for (int64_t i = 0; i < s.channels * s.length; i++)
            magnitudes += s.data[i] < 0;
        expect(magnitudes <= (size_t)(s.channels * s.length));
    } else
        expect(!s.data && sentences == 1);
    sound_free(&s);
    return 0;
}
