/* Facts of the programs: what a text makes of them. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "common/facts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Standard output of facts_print(). */
static void expect(const json_t *facts, const char *text, const char *printed)
{
    char *got = NULL;
    size_t bytes;
    FILE *before = stdout;
    stdout = open_memstream(&got, &bytes);
    facts_print(facts, text);
    fclose(stdout);
    stdout = before;
    assert_string_equal(got, printed);
    free(got);
}

static json_t *example(void)
{
    json_t *list = json_array();
    for (int i = 1; i < 3; i++)
        json_array_append_new(list, facts_of("n:d", i));
    return facts_of(
        "rows:i one:d zero:d share:n none:n word:t nothing:t yes:b no:b sizes:o list:o "
        "inner:o",
        INT64_C(1) << 40, 1, 0, 0.25, NAN, "f32", NULL, 3, 0,
        json_pack("[[i, i], [i]]", 1, 2, 3), list, facts_of("deep:d", 7));
}

static void members_are_printed_as_they_are(void **state)
{
    (void)state;
    json_t *facts = example();
    expect(facts, "{rows} {one:3}|{share} {word:-5}|", "1099511627776   1|0.25 f32  |");
    expect(facts, "{share:.3f} {share*100:.0f}% {one:.1f}", "0.250 25% 1.0");
    expect(facts, "{one:#row}, {zero:#row}, {sizes:#term}", "1 row, 0 rows, 2 terms");
    expect(facts, "{sizes}; {sizes.0}; {sizes.0.1}", "1,2 3; 1,2; 2");
    expect(facts, "{inner.deep} {none:6.3f}{nothing}{wrong}", "7      -");
    expect(facts, "a > b ] c } d", "a > b ] c } d");
    json_decref(facts);
}

static void a_choice_goes_by_its_first_member(void **state)
{
    (void)state;
    json_t *facts = example();
    expect(facts, "[{one} there|missing]", "1 there");
    expect(facts, "[{?yes}{zero} there]", "0 there");
    const char *const silent[] = { "[{zero}!|-]",     "[{none}!|-]",  "[{nothing}!|-]",
                                   "[{?no}{one}!|-]", "[{wrong}!|-]", "[!|-]" };
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++)
        expect(facts, silent[i], "-");
    expect(facts, "[{zero}!]", "");
    json_decref(facts);
}

static void a_list_is_printed_member_by_member(void **state)
{
    (void)state;
    json_t *facts = example();
    expect(facts, "<list:{n}[ {n}];>.", "1 1;2 2;.");
    expect(json_object_get(facts, "list"), "<:{n:3}>", "  1  2");
    expect(facts, "<wrong:{n}>", "");
    json_decref(facts);
}

static void any_bytes_are_text(void **state)
{
    (void)state;
    json_t *facts = facts_of("name:t", "y\xff");
    expect(facts, "{name}", "y\xef\xbf\xbd");
    json_decref(facts);
}

static void what_a_terminal_obeys_is_printed_as_a_number(void **state)
{
    (void)state;
    json_t *facts = facts_of(
        "name:t text:t", "a\x1b[2J\x7f\xc2\x9b\xe2\x80\xae\xc3\xa4", "one\ntwo\tz\x1b");
    expect(facts, "{name}", "a\\u001b[2J\\u007f\\u009b\\u202e\xc3\xa4");
    expect(facts, "{text}", "one\\u000atwo\\u0009z\\u001b");
    expect(facts, "{text:lines}", "one\ntwo\tz\\u001b");
    json_decref(facts);
}

static void width_counts_what_is_seen(void **state)
{
    (void)state;
    json_t *facts = facts_of("name:t", "\xc3\xa4\n");
    expect(
        facts, "{name:10}|{name:-9}|{name:2}",
        "   \xc3\xa4\\u000a|\xc3\xa4\\u000a  |\xc3\xa4\\u000a");
    json_decref(facts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_are_printed_as_they_are),
        cmocka_unit_test(a_choice_goes_by_its_first_member),
        cmocka_unit_test(a_list_is_printed_member_by_member),
        cmocka_unit_test(any_bytes_are_text),
        cmocka_unit_test(what_a_terminal_obeys_is_printed_as_a_number),
        cmocka_unit_test(width_counts_what_is_seen),
    };
    return cmocka_run_group_tests_name("facts", tests, NULL, NULL);
}
