/* Any bytes as a suite of problems: what is accepted can be planned for. */
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"

#include "common/args.h"
#include "common/suite.h"

#include <stdio.h>

/* Refusals are printed to stderr. What a fuzzer says goes to the stream that it took there when
   it began, and sanitizers write to the file behind. */
static void discard_refusals(void)
{
    static FILE *nowhere;
    if (nowhere)
        return;
    nowhere = fopen("/dev/null", "w");
    expect(nowhere);
    stderr = nowhere;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    suite s;
    discard_refusals();
    int status = suite_read(fuzz_file(data, size), &s);
    expect((status == STATUS_OK) <= (s.count > 0));
    for (int i = 0; status == STATUS_OK && i < s.count; i++) {
        const suite_problem *p = &s.problems[i];
        expect(p->batch >= 0);
        expect(danaus_patterns_check(p->patterns, p->count) == DANAUS_OK);
    }
    suite_free(&s);
    conv_suite convolutions;
    status = conv_suite_read(fuzz_file(data, size), &convolutions);
    expect((status == STATUS_OK) <= (convolutions.count > 0));
    for (int i = 0; status == STATUS_OK && i < convolutions.count; i++)
        expect(convolutions.problems[i].length > 0);
    conv_suite_free(&convolutions);
    return 0;
}
