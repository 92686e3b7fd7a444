/* Any bytes as a suite of problems: what is accepted can be planned for. */
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"

#include "common/args.h"
#include "common/suite.h"

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    suite s;
    if (!freopen("/dev/null", "w", stderr)) /* refusals are printed */
        return 0;
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
