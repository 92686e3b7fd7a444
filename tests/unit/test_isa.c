/* Which instruction set a name stands for. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "cpu/cpu.h"

#include <stdio.h>

static int yes(void) { return 1; }
static int no(void) { return 0; }

static const char *best(const cpu_isa *list, const char *limit)
{
    const cpu_isa *isa = dn_cpu_best(list, limit);
    return isa ? isa->name : "none";
}

static void a_name_is_the_most_that_runs(void **state)
{
    (void)state;
    const cpu_isa all[] = { { "wide", .present = yes },
                            { "narrow", .present = yes },
                            { "plain", .present = yes },
                            { 0 } };
    const cpu_isa older[] = { { "wide", .present = no },
                              { "narrow", .present = yes },
                              { "plain", .present = yes },
                              { 0 } };
    assert_string_equal(best(all, ""), "wide");
    assert_string_equal(best(all, "wide"), "wide");
    assert_string_equal(best(all, "narrow"), "narrow");
    assert_string_equal(best(older, ""), "narrow");
    assert_string_equal(best(older, "wide"), "narrow");
    assert_string_equal(best(older, "plain"), "plain");
    assert_string_equal(best(older, "wid"), "none");
}

/* Every name that this build knows opens a device, which says what it runs. */
static void every_name_of_this_build_opens(void **state)
{
    (void)state;
    for (const cpu_isa *isa = dn_cpu_isas; isa->name; isa++) {
        char name[40];
        danaus_device *device = NULL;
        danaus_device_info info;
        snprintf(name, sizeof name, "cpu:%s", isa->name);
        assert_ok(danaus_device_open(name, &device));
        assert_ok(danaus_device_describe(device, &info));
        assert_string_equal(info.instructions, best(isa, ""));
        danaus_device_close(device);
    }
    danaus_device *device = NULL;
    assert_status(danaus_device_open("cpu:mmx", &device), DANAUS_ERR_ARGUMENT);
    assert_null(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_the_most_that_runs),
        cmocka_unit_test(every_name_of_this_build_opens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
