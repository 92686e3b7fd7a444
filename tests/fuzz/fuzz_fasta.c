/* Any bytes as a FASTA file, behind one that says how much is read at a time: the tokens are
   those of letters, the same however they are read, or one sentence refuses a byte. */
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"

#include "cli/fasta.h"
#include "common/args.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int sentences;

/* In place of the program's, which prints. */
int failure(const char *format, ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    sentences += vsnprintf(text, sizeof text, format, list) > 0;
    va_end(list);
    return STATUS_FAILURE;
}

/* What a file says: records and letters, told apart by a sum. */
typedef struct said {
    int64_t records, letters, sum;
    int failed;
} said;

static said read_all(const char *path, const int32_t *table, int64_t room)
{
    said s = { 0 };
    fasta f;
    int32_t tokens[64];
    int64_t got = 0;
    int more;
    expect(fasta_open(&f, path, table) == STATUS_OK);
    while ((more = fasta_next(&f)) > 0) {
        s.records++;
        expect(strlen(f.name) < FASTA_NAME && f.line > 0);
        while ((got = fasta_read(&f, tokens, room)) > 0) {
            expect(got <= room);
            for (int64_t i = 0; i < got; i++) {
                expect(tokens[i] >= 0);
                s.sum = 31 * (s.sum % 1000003) + s.records + tokens[i];
            }
            s.letters += got;
        }
        if (got < 0)
            break;
    }
    s.failed = more < 0 || got < 0;
    fasta_close(&f);
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char letters[] = "ACGTNacgtn";
    int32_t table[256];
    if (!size)
        return 0;
    for (int c = 0; c < 256; c++)
        table[c] = c && strchr(letters, c) ? c & 15 : -1;
    const char *path = fuzz_file(data + 1, size - 1);
    sentences = 0;
    said s = read_all(path, table, 1 + data[0] % 64);
    expect(sentences == s.failed);
    said again = read_all(path, table, 1);
    expect(again.failed == s.failed && again.records == s.records);
    expect(s.failed || (again.letters == s.letters && again.sum == s.sum));
    return 0;
}
