/* Tuning tables: cuts of convolutions and the constants of their model. */
// SPDX-License-Identifier: Apache-2.0
#include "support/device.h"
#include "support/files.h"
#include "support/test.h"
#include "support/tuning.h"

#include <stdio.h>
#include <string.h>

#define FIRST "# danaus tuning 1\n"
#define PLACE "device,machine,instructions,threads,"
#define CONV  PLACE "kind,length,taps,dtype,rows,kernel,points,radix,seconds\n"
#define MODEL PLACE "dtype,constant,of,value\n"

static const conv_problem long_rows = {
    .kind = DANAUS_CAUSAL, .dtype = DANAUS_F32, .length = 16384, .filter_length = 900
};

static double conv_seconds(const tuning *table, conv_problem p, int64_t rows)
{
    conv_cut cut;
    double seconds;
    return dn_tuning_find_conv(table, &p, rows, &cut, &seconds) ? seconds : -1;
}

static void a_cut_is_found_by_what_it_answers(void **state)
{
    (void)state;
    tuning *table = table_of(HEAD);
    conv_cut cut = { &tuning_conv_kernel, 4608, 8 }, found = { 0 };
    double seconds = 0;
    dn_tuning_add_conv(table, &long_rows, 0, cut, 2e-6);
    dn_tuning_add_conv(table, &long_rows, 3, cut, 3e-6);
    assert_true(dn_tuning_find_conv(table, &long_rows, 0, &found, &seconds));
    assert_int_equal(found.n, 4608);
    assert_int_equal(found.radix, 8);
    assert_true(seconds == 2e-6);
    assert_true(conv_seconds(table, long_rows, 4) == 3e-6);
    assert_true(conv_seconds(table, long_rows, 1) < 0);
    conv_problem p = long_rows;
    p.batch = 7, p.channels = 9, p.effort = DANAUS_MEASURE;
    assert_true(conv_seconds(table, p, 0) == 2e-6);
    p = long_rows, p.kind = DANAUS_CIRCULAR;
    assert_true(conv_seconds(table, p, 0) < 0);
    p = long_rows, p.length++;
    assert_true(conv_seconds(table, p, 0) < 0);
    p = long_rows, p.filter_length--;
    assert_true(conv_seconds(table, p, 0) < 0);
    p = long_rows, p.dtype = DANAUS_F64;
    assert_true(conv_seconds(table, p, 0) < 0);
    p = long_rows, p.accuracy = DANAUS_CONV_ACCURATE; /* as f32 is anyway */
    assert_true(conv_seconds(table, p, 0) == 2e-6);
    p.accuracy = DANAUS_CONV_FAST;
    assert_true(conv_seconds(table, p, 0) < 0);
    p = long_rows, p.filter_length = 20000; /* taps beyond the row do not count */
    dn_tuning_add_conv(table, &p, 0, cut, 5e-6);
    p.filter_length = 16384;
    assert_true(conv_seconds(table, p, 0) == 5e-6);
    dn_tuning_add_conv(table, &p, 0, cut, 0.0 / 0.0);
    assert_true(conv_seconds(table, p, 0) == 5e-6);
    dn_tuning_destroy(table);
}

/* Neither takes the place of the other. */
static void accurate_and_fast_rows_are_two(void **state)
{
    (void)state;
    tuning *table = table_of(HEAD);
    conv_cut cut = { &tuning_conv_kernel, 4608, 8 };
    conv_problem p = long_rows;
    p.dtype = DANAUS_F16, p.accuracy = DANAUS_CONV_FAST;
    dn_tuning_add_conv(table, &p, 0, cut, 2e-6);
    p.accuracy = DANAUS_CONV_ACCURATE;
    dn_tuning_add_conv(table, &p, 0, cut, 3e-6);
    assert_true(conv_seconds(table, p, 0) == 3e-6);
    p.accuracy = DANAUS_CONV_FAST;
    assert_true(conv_seconds(table, p, 0) == 2e-6);
    p.accuracy = DANAUS_CONV_BY_TYPE;
    assert_true(conv_seconds(table, p, 0) == 2e-6);
    dn_tuning_destroy(table);
}

static void constants_have_a_range(void **state)
{
    (void)state;
    tuning *table = table_of(HEAD);
    assert_true(dn_tuning_constant(table, DANAUS_F32, TUNING_GAMMA, 8) == 0);
    static const double wrong[] = { 0, -1, 1e-19, 1e19, 1.0 / 0.0, 0.0 / 0.0 };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        dn_tuning_add_constant(table, DANAUS_F32, TUNING_GAMMA, 8, wrong[i]);
    assert_true(dn_tuning_constant(table, DANAUS_F32, TUNING_GAMMA, 8) == 0);
    dn_tuning_add_constant(table, DANAUS_F32, TUNING_GAMMA, 8, 3e11);
    assert_true(dn_tuning_constant(table, DANAUS_F32, TUNING_GAMMA, 8) == 3e11);
    assert_true(dn_tuning_constant(table, DANAUS_F32, TUNING_GAMMA, 4) == 0);
    assert_true(dn_tuning_constant(table, DANAUS_F32, TUNING_TAIL, 8) == 0);
    assert_true(dn_tuning_constant(table, DANAUS_F64, TUNING_GAMMA, 8) == 0);
    dn_tuning_destroy(table);
}

static const char sections[] =
    FIRST PLACE "a,b,c,d,dtype,layout,batch,kernel,seconds\n" HERE
                "1,2,3,4,f32,last,64,ks.wide,2000000e-12\n" CONV HERE
                "causal,16384,900,f32,0,conv.plain,4608,8,2000000e-12\n" HERE
                "causal,16384,900,f32.fast,0,conv.plain,64,8,1000000e-12\n" HERE
                "causal,16384,900,f32,4,conv.plain,64,4,3000000e-12\n" HERE
                "bidirectional,7,7,f16,0,conv.plain,32,8,1000e-12\n" HERE
                "bidirectional,7,7,f16.accurate,0,conv.plain,32,8,2000e-12\n" HERE
                "bidirectional,7,7,f64,0,conv.plain,32,8,1000e-12\n" MODEL HERE
                "f32,window,0,125000000e-15\n" HERE "f32,gamma,8,300000000e3\n" HERE
                "f64,omega,4,512345678e2\n";

static void all_sections_are_kept(void **state)
{
    (void)state;
    const char *path = scratch_path("sections.csv");
    tuning *table = table_of(sections);
    assert_true(conv_seconds(table, long_rows, 0) == 2000000 * 1e-12);
    double window = dn_tuning_constant(table, DANAUS_F32, TUNING_WINDOW, 0);
    assert_true(window > 124.9e-9 && window < 125.1e-9);
    assert_true(dn_tuning_constant(table, DANAUS_F64, TUNING_OMEGA, 4) == 51234567800);
    assert_ok(dn_tuning_save(table, &tuning_device, path));
    bytes b = file_bytes(path);
    assert_int_equal(b.size, strlen(sections));
    assert_memory_equal(b.data, sections, b.size);
    bytes_free(&b);
    dn_tuning_destroy(table);
}

/* Files that are put one behind the other, sections in any order. */
static void sections_may_come_again(void **state)
{
    (void)state;
    tuning *table = table_of(FIRST MODEL HERE "f32,gamma,8,3e11\n" FIRST CONV HERE
                                              "causal,16384,900,f32,0,conv.plain,64,8,"
                                              "5\n" MODEL HERE "f32,gamma,4,2e11\n");
    assert_true(conv_seconds(table, long_rows, 0) == 5);
    assert_true(dn_tuning_constant(table, DANAUS_F32, TUNING_GAMMA, 8) == 3e11);
    assert_true(dn_tuning_constant(table, DANAUS_F32, TUNING_GAMMA, 4) == 2e11);
    dn_tuning_destroy(table);
}

static void convolutions_of_no_use_here_are_counted(void **state)
{
    (void)state;
    static const char content[] =
        FIRST CONV "cpu,Another,avx9,2,causal,16384,900,f32,0,conv.plain,64,8,1\n" HERE
                   "causal,16384,900,f32,0,conv.other,64,8,1\n" HERE
                   "causal,16384,900,f8,0,conv.plain,64,8,1\n" HERE
                   "causal,16384,900,f32.exact,0,conv.plain,64,8,1\n" MODEL
                   "cpu,Maker   Model  7,avx8,2,f32,gamma,8,1\n"
                   "cpu,Maker   Model  7,avx9,3,f32,gamma,8,1\n" HERE
                   "f32,delta,8,1\n" HERE "float128,gamma,8,1\n";
    tuning *table = table_of(HEAD);
    int64_t skipped = 0;
    assert_ok(
        dn_tuning_read(table, &tuning_device, content, strlen(content), &skipped));
    assert_int_equal(skipped, 8);
    assert_true(conv_seconds(table, long_rows, 0) < 0);
    assert_true(dn_tuning_constant(table, DANAUS_F32, TUNING_GAMMA, 8) == 0);
    dn_tuning_destroy(table);
}

static void malformed_convolutions_change_nothing(void **state)
{
    (void)state;
    static const char good[] = "causal,16384,900,f32,0,conv.plain,4608,8,9";
    static const struct {
        const char *columns, *row, *words;
    } cases[] = {
        { CONV, "causal,16384,900,f32,0,conv.plain,64,8", "there are not 13 fields" },
        { CONV, "odd,16384,900,f32,0,conv.plain,64,8,1", "kind" },
        { CONV, "causal,0,900,f32,0,conv.plain,64,8,1", "length" },
        { CONV, "causal,268435457,900,f32,0,conv.plain,64,8,1", "length" },
        { CONV, "causal,16384,-1,f32,0,conv.plain,64,8,1", "length" },
        { CONV, "causal,16384,900,f32,few,conv.plain,64,8,1", "rows" },
        { CONV, "causal,16384,900,f32,0,conv.plain,0,8,1", "points" },
        { CONV, "causal,16384,900,f32,0,conv.plain,64,99999999999,1", "points" },
        { CONV, "causal,16384,900,f32,0,conv.plain,64,8,0", "seconds" },
        { MODEL, "f32,gamma,8", "there are not 8 fields" },
        { MODEL, "f32,gamma,eight,1", "not a number" },
        { MODEL, "f32,gamma,8,0", "value" },
        { MODEL, "f32,gamma,8,1e19", "value" },
        { MODEL, "f32,gamma,8,1e-19", "value" },
        { MODEL, "f32,unknown,8,nan", "value" },
    };
    tuning *table = table_of(sections);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char content[1000];
        int64_t skipped = 77;
        snprintf(
            content, sizeof content, "%s%s%s%s\n%s%s%s\n", FIRST, CONV, HERE, good,
            cases[i].columns, HERE, cases[i].row);
        danaus_status status =
            dn_tuning_read(table, &tuning_device, content, strlen(content), &skipped);
        if (status != DANAUS_ERR_FORMAT ||
            !strstr(danaus_error_detail(), cases[i].words) ||
            !strstr(danaus_error_detail(), "line 5: "))
            fail_msg("%s: %s", cases[i].row, danaus_error_detail());
        assert_int_equal(skipped, 77);
        assert_true(conv_seconds(table, long_rows, 0) == 2000000 * 1e-12);
    }
    dn_tuning_destroy(table);
}

/* What a changed table gives is in its range. */
static void changed_tables_do_no_harm(void **state)
{
    (void)state;
    bytes b = bytes_of(sections, strlen(sections));
    for (uint64_t round = 0; round < (uint64_t)rounds_of(10000); round++) {
        rng r = { round };
        bytes changed = bytes_mutated(&r, &b);
        tuning *table = table_of(HEAD);
        int64_t skipped;
        danaus_status status = dn_tuning_read(
            table, &tuning_device, (const char *)changed.data, changed.size, &skipped);
        assert_true(status == DANAUS_OK || status == DANAUS_ERR_FORMAT);
        conv_cut cut = { NULL, 1, 1 };
        double seconds = 1, gamma;
        dn_tuning_find_conv(table, &long_rows, 0, &cut, &seconds);
        assert_true(cut.n > 0 && cut.radix > 0 && seconds > 0);
        gamma = dn_tuning_constant(table, DANAUS_F32, TUNING_GAMMA, 8);
        assert_true(gamma == 0 || (gamma >= TUNING_LEAST && gamma <= TUNING_MOST));
        dn_tuning_destroy(table);
        bytes_free(&changed);
    }
    bytes_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_is_found_by_what_it_answers),
        cmocka_unit_test(accurate_and_fast_rows_are_two),
        cmocka_unit_test(constants_have_a_range),
        cmocka_unit_test(all_sections_are_kept),
        cmocka_unit_test(sections_may_come_again),
        cmocka_unit_test(convolutions_of_no_use_here_are_counted),
        cmocka_unit_test(malformed_convolutions_change_nothing),
        cmocka_unit_test(changed_tables_do_no_harm),
    };
    return cmocka_run_group_tests_name(
        "tuning of convolutions", tests, scratch_setup, scratch_teardown);
}
