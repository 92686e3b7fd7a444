/* Tuning tables: choices found, kept in files, and files that are not ours. */
// SPDX-License-Identifier: Apache-2.0
#include "support/device.h"
#include "support/failing.h"
#include "support/files.h"
#include "support/test.h"
#include "support/tuning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static problem problem_at(int64_t batch)
{
    return (problem){ .pattern = { 1, 2, 3, 4 },
                      .dtype = DANAUS_F32,
                      .layout = DANAUS_BATCH_LAST,
                      .batch = batch };
}

static double seconds_at(const tuning *table, int64_t batch)
{
    double seconds = -1;
    problem p = problem_at(batch);
    return dn_tuning_find(table, &p, 1, &seconds) ? seconds : -1;
}

/* ---- tables ---- */

static void an_empty_table_knows_nothing(void **state)
{
    (void)state;
    tuning *table = table_of(HEAD);
    assert_true(seconds_at(table, 1) < 0);
    dn_tuning_destroy(table);
    dn_tuning_destroy(NULL);
}

static void a_choice_is_found_within_a_factor_of_two(void **state)
{
    (void)state;
    tuning *table = table_of(HEAD);
    problem p = problem_at(1000), other = p; /* nearest power: 1024 */
    double seconds = 0;
    dn_tuning_add(table, &p, &tuning_kernels[2], 3e-6);
    assert_ptr_equal(dn_tuning_find(table, &p, 1, &seconds), &tuning_kernels[2]);
    assert_true(seconds == 3e-6);
    assert_true(seconds_at(table, 511) < 0);
    assert_true(seconds_at(table, 512) == 3e-6);
    assert_true(seconds_at(table, 725) == 3e-6);
    assert_true(seconds_at(table, 2048) == 3e-6);
    assert_true(seconds_at(table, 2049) < 0);
    other.pattern.a = 2;
    assert_null(dn_tuning_find(table, &other, 1, &seconds));
    other = p, other.pattern.d = 5;
    assert_null(dn_tuning_find(table, &other, 1, &seconds));
    other = p, other.dtype = DANAUS_C64;
    assert_null(dn_tuning_find(table, &other, 1, &seconds));
    other = p, other.layout = DANAUS_BATCH_FIRST;
    assert_null(dn_tuning_find(table, &other, 1, &seconds));
    dn_tuning_destroy(table);
}

static void the_nearest_power_of_two_comes_first(void **state)
{
    (void)state;
    tuning *table = table_of(HEAD);
    for (int e = 0; e <= 62; e++) {
        problem p = problem_at((int64_t)1 << e);
        dn_tuning_add(table, &p, &tuning_kernels[0], e + 1);
    }
    assert_true(seconds_at(table, 0) == 1);
    assert_true(seconds_at(table, 1) == 1);
    assert_true(seconds_at(table, 3) == 3);
    assert_true(seconds_at(table, 5) == 3);
    assert_true(seconds_at(table, 6) == 4);
    assert_true(seconds_at(table, 196) == 9);
    assert_true(seconds_at(table, 3136) == 13);
    assert_true(seconds_at(table, 25088) == 16);
    assert_true(seconds_at(table, INT64_MAX) == 63);
    dn_tuning_destroy(table);
}

static void a_measurement_replaces_an_older_one(void **state)
{
    (void)state;
    tuning *table = table_of(HEAD);
    problem p = problem_at(64);
    double seconds;
    dn_tuning_add(table, &p, &tuning_kernels[0], 1e-6);
    dn_tuning_add(table, &p, &tuning_kernels[2], 2e-6);
    assert_ptr_equal(dn_tuning_find(table, &p, 1, &seconds), &tuning_kernels[2]);
    assert_true(seconds == 2e-6);
    static const double no_times[] = { 0, -1, 1.0 / 0.0, 0.0 / 0.0 };
    for (size_t i = 0; i < sizeof no_times / sizeof *no_times; i++)
        dn_tuning_add(table, &p, &tuning_kernels[0], no_times[i]);
    assert_true(seconds_at(table, 64) == 2e-6);
    dn_tuning_destroy(table);
}

/* Against a plain list; sizes are few, so that rows are often replaced. */
static void a_large_table_finds_what_a_list_finds(void **state)
{
    (void)state;
    enum { ROWS = 4000 };
    problem *list = calloc(ROWS, sizeof *list);
    tuning *table = table_of(HEAD);
    rng r = { 1 };
    for (int i = 0; i < ROWS; i++) {
        danaus_pattern q = { rng_int(&r, 1, 5), rng_int(&r, 1, 5), rng_int(&r, 1, 5),
                             rng_int(&r, 1, 5) };
        list[i] = (problem){ .pattern = q,
                             .dtype = rng_int(&r, 0, 1) ? DANAUS_F32 : DANAUS_C64,
                             .layout = (danaus_layout)rng_int(&r, 0, 1),
                             .batch = (int64_t)1 << 3 * rng_int(&r, 0, 3) };
        dn_tuning_add(table, &list[i], &tuning_kernels[i % 3], i + 1);
    }
    for (int i = 0; i < ROWS; i++) {
        int last = i;
        for (int j = i + 1; j < ROWS; j++)
            if (!memcmp(&list[i].pattern, &list[j].pattern, sizeof list->pattern) &&
                list[i].dtype == list[j].dtype && list[i].layout == list[j].layout &&
                list[i].batch == list[j].batch)
                last = j;
        double seconds = 0;
        assert_ptr_equal(
            dn_tuning_find(table, &list[i], 1, &seconds), &tuning_kernels[last % 3]);
        assert_true(seconds == last + 1);
    }
    dn_tuning_destroy(table);
    free(list);
}

/* ---- files ---- */

static const char whole[] =
    HEAD HERE "1,2,3,4,f32,first,1,ks.plain,1500000e-12\n" HERE
              "1,2,3,4,f32,last,64,ks.wide,2000000e-12\n" HERE
              "1,2,3,4,f32,last,32768,ks.plain,123456789e-12\n" HERE
              "2,192,48,1,c64,last,256,ks.plain,1e-12\n";

static void a_saved_table_is_this_text(void **state)
{
    (void)state;
    tuning *table = table_of(HEAD);
    const char *path = scratch_path("table.csv");
    problem p = { .pattern = { 2, 192, 48, 1 },
                  .dtype = DANAUS_C64,
                  .layout = DANAUS_BATCH_LAST,
                  .batch = 256 };
    dn_tuning_add(table, &p, &tuning_kernels[1], 1e-15);
    p = problem_at(25088);
    dn_tuning_add(table, &p, &tuning_kernels[0], 123.456789e-6);
    p = problem_at(64);
    dn_tuning_add(table, &p, &tuning_kernels[2], 2e-6);
    p = problem_at(1), p.layout = DANAUS_BATCH_FIRST;
    dn_tuning_add(table, &p, &tuning_kernels[0], 1.5e-6);
    assert_ok(dn_tuning_save(table, &tuning_device, path));
    bytes b = file_bytes(path);
    assert_int_equal(b.size, strlen(whole));
    assert_memory_equal(b.data, whole, b.size);
    bytes_free(&b);
    dn_tuning_destroy(table);
}

static void a_loaded_table_saves_the_same_text(void **state)
{
    (void)state;
    const char *from = scratch_path("from.csv"), *to = scratch_path("to.csv");
    file_write(from, whole, strlen(whole));
    tuning *table = table_of(HEAD);
    int64_t skipped = -1;
    assert_ok(dn_tuning_load(table, &tuning_device, from, &skipped));
    assert_int_equal(skipped, 0);
    assert_ok(dn_tuning_save(table, &tuning_device, to));
    bytes b = file_bytes(to);
    assert_int_equal(b.size, strlen(whole));
    assert_memory_equal(b.data, whole, b.size);
    bytes_free(&b);
    dn_tuning_destroy(table);
}

/* A weight gradient of the same sizes as a product has a row of its own, and neighbours. */
static void other_operations_have_rows_of_their_own(void **state)
{
    (void)state;
    static const char text[] = HEAD HERE
        "1,2,3,4,f32,last,64,ks.wide,2000000e-12\n"
        "device,machine,instructions,threads,operation,a,b,c,d,dtype,layout,batch,"
        "kernel,seconds\n" HERE
        "weight_gradient,1,2,3,4,f32,last,64,ks.gradient,3000000e-12\n";
    static const char others[] = HEAD
        "device,machine,instructions,threads,operation,a,b,c,d,dtype,layout,batch,"
        "kernel,seconds\n" HERE "weight_gradient,1,2,3,4,f32,last,64,ks.wide,1\n" HERE
        "product,1,2,3,4,f32,last,64,ks.gradient,1\n" HERE
        "pack,1,2,3,4,f32,last,64,ks.gradient,1\n" HERE
        "addition,1,2,3,4,f32,last,64,ks.gradient,1\n";
    const char *path = scratch_path("operations.csv");
    tuning *table = table_of(text);
    problem p = problem_at(64);
    double seconds;
    assert_ptr_equal(dn_tuning_find(table, &p, 1, &seconds), &tuning_kernels[2]);
    p.operation = DN_WEIGHT_GRADIENT;
    assert_ptr_equal(dn_tuning_find(table, &p, 1, &seconds), &tuning_kernels[3]);
    assert_true(seconds > 2.9e-6 && seconds < 3.1e-6);
    p.pattern.d = 5;
    assert_ptr_equal(dn_tuning_near(table, &p), &tuning_kernels[3]);
    p.operation = DN_PACK;
    assert_null(dn_tuning_near(table, &p));
    assert_ok(dn_tuning_save(table, &tuning_device, path));
    bytes b = file_bytes(path);
    assert_int_equal(b.size, strlen(text));
    assert_memory_equal(b.data, text, b.size);
    int64_t skipped;
    assert_ok(dn_tuning_read(table, &tuning_device, others, strlen(others), &skipped));
    assert_int_equal(skipped, 4);
    bytes_free(&b);
    dn_tuning_destroy(table);
}

/* Measurements of other machines, threads and instruction sets stay where they are, with
   the columns that they are read by; those of this device are what its table says. */
static void a_table_that_is_replaced_keeps_the_rows_of_others(void **state)
{
    (void)state;
    static const char conv[] =
        "device,machine,instructions,threads,kind,length,taps,dtype,rows,kernel,points,"
        "radix,seconds\n";
    static const char theirs[] =
        "cpu,Other,fast,3,1,2,3,4,f32,last,64,ks.what,5\n"
        "cpu,Maker   Model  7,avx9,9,1,2,3,4,f32,last,64,ks.plain,5\n";
    static const char theirs_conv[] =
        "cpu,Other,fast,3,causal,64,64,f32,0,conv.fft.f32,32,8,1e-6\n";
    char text[2048], expected[2048];
    const char *path = scratch_path("shared.csv");
    snprintf(
        text, sizeof text,
        "%s%s" HERE "1,2,3,4,f32,last,64,ks.plain,7\n# remark\n\n%s%s", HEAD, theirs,
        conv, theirs_conv);
    file_write(path, text, strlen(text));
    tuning *table = table_of(HEAD);
    problem p = problem_at(256);
    dn_tuning_add(table, &p, &tuning_kernels[0], 2e-6);
    assert_ok(dn_tuning_save(table, &tuning_device, path));
    snprintf(
        expected, sizeof expected,
        "%s" HERE "1,2,3,4,f32,last,256,%s,2000000e-12\n%s%s%s%s", HEAD,
        tuning_kernels[0].name, strchr(HEAD, '\n') + 1, theirs, conv, theirs_conv);
    for (int again = 0; again < 2; again++) {
        bytes b = file_bytes(path);
        assert_int_equal(b.size, strlen(expected));
        assert_memory_equal(b.data, expected, b.size);
        bytes_free(&b);
        assert_ok(dn_tuning_save(table, &tuning_device, path));
    }
    dn_tuning_destroy(table);
}

static void a_file_that_is_no_table_is_not_replaced(void **state)
{
    (void)state;
    const char *path = scratch_path("letter.txt");
    tuning *table = table_of(HEAD);
    file_write(path, "Dear", 4);
    assert_status(dn_tuning_save(table, &tuning_device, path), DANAUS_ERR_FORMAT);
    bytes b = file_bytes(path);
    assert_int_equal(b.size, 4);
    bytes_free(&b);
    file_write(path, "", 0);
    assert_ok(dn_tuning_save(table, &tuning_device, path));
    dn_tuning_destroy(table);
}

/* DANAUS_TUNING names a table that every device begins with. */
static void a_device_begins_with_the_table_of_the_environment(void **state)
{
    (void)state;
    const char *path = scratch_path("wish.csv");
    tuning *table = NULL;
    file_write(path, whole, strlen(whole));
    assert_int_equal(setenv("DANAUS_TUNING", path, 1), 0);
    assert_ok(dn_tuning_open(&tuning_device, &table));
    assert_true(seconds_at(table, 64) > 1.9e-6);
    dn_tuning_destroy(table);
    assert_int_equal(setenv("DANAUS_TUNING", scratch_path("nowhere"), 1), 0);
    assert_status(dn_tuning_open(&tuning_device, &table), DANAUS_ERR_IO);
    assert_non_null(strstr(danaus_error_detail(), "DANAUS_TUNING"));
    assert_int_equal(unsetenv("DANAUS_TUNING"), 0);
}

static void an_extreme_time_is_kept(void **state)
{
    (void)state;
    const char *path = scratch_path("extreme.csv");
    tuning *table = table_of(HEAD);
    problem p = problem_at(64);
    dn_tuning_add(table, &p, &tuning_kernels[0], 1e300);
    assert_ok(dn_tuning_save(table, &tuning_device, path));
    dn_tuning_destroy(table);
    table = table_of(HEAD);
    int64_t skipped;
    assert_ok(dn_tuning_load(table, &tuning_device, path, &skipped));
    assert_true(seconds_at(table, 64) > 9e6);
    dn_tuning_destroy(table);
}

static void lines_end_in_any_way(void **state)
{
    (void)state;
    tuning *table = table_of(
        "# danaus tuning 1\r\n"
        "device,machine,instructions,threads,a,b,c,d,dtype,layout,batch,kernel,seconds"
        "\r\n\r\n\n# a remark, with a comma\r" HERE
        "1,2,3,4,f32,last,64,ks.wide,2.5E-6\r\n" HERE
        "1,2,3,4,f32,last,1,ks.wide,.25e+01\r" HERE "1,2,3,4,f32,last,8,ks.wide,4\r");
    assert_true(seconds_at(table, 8) == 4);
    assert_true(seconds_at(table, 64) > 2.49e-6 && seconds_at(table, 64) < 2.51e-6);
    assert_true(seconds_at(table, 1) == 2.5);
    dn_tuning_destroy(table);
}

static void the_fastest_row_of_a_file_replaces_what_was_there(void **state)
{
    (void)state;
    tuning *table = table_of(HEAD HERE "1,2,3,4,f32,last,64,ks.plain,3\n" HERE
                                       "1,2,3,4,f32,last,65,ks.wide,2\n" HERE
                                       "1,2,3,4,f32,last,63,ks.plain,4\n");
    assert_true(seconds_at(table, 64) == 2);
    static const char slower[] = HEAD HERE "1,2,3,4,f32,last,64,ks.plain,9\n";
    int64_t skipped;
    assert_ok(dn_tuning_read(table, &tuning_device, slower, strlen(slower), &skipped));
    assert_true(seconds_at(table, 64) == 9);
    dn_tuning_destroy(table);
}

static void rows_of_no_use_here_are_counted(void **state)
{
    (void)state;
    static const char content[] = HEAD
        "cuda,Maker   Model  7,avx9,2,1,2,3,4,f32,last,64,ks.plain,1\n"
        "cpu,Another,avx9,2,1,2,3,4,f32,last,64,ks.plain,1\n"
        "cpu,,avx9,2,1,2,3,4,f32,last,64,ks.plain,1\n"
        "cpu,Maker   Model  7,avx8,2,1,2,3,4,f32,last,64,ks.plain,1\n"
        "cpu,Maker   Model  7,avx9,4,1,2,3,4,f32,last,64,ks.plain,1\n" HERE
        "1,2,3,4,f32,last,64,ks.strange,1\n" HERE
        "1,2,3,4,f64,last,64,ks.plain,1\n" HERE "1,2,3,4,f8,last,64,ks.plain,1\n" HERE
        "1,1,3,4,f32,last,64,ks.wide,1\n" HERE "1,2,3,4,f32,last,64,ks.wide,1\n" HERE
        "1,2,3,4,f32,last,64,,1\n";
    tuning *table = table_of(HEAD);
    int64_t skipped = 0;
    assert_ok(
        dn_tuning_read(table, &tuning_device, content, strlen(content), &skipped));
    assert_int_equal(skipped, 10);
    double seconds;
    problem p = problem_at(64);
    assert_ptr_equal(dn_tuning_find(table, &p, 1, &seconds), &tuning_kernels[2]);
    dn_tuning_destroy(table);
}

static void malformed_lines_are_named_and_change_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *row, *words;
    } cases[] = {
        { "1,2,3,4,f32,last,64,ks.plain", "there are not 13 fields" },
        { "1,2,3,4,f32,last,64,ks.plain,1,", "there are not 13 fields" },
        { "0,2,3,4,f32,last,64,ks.plain,1", "no pattern" },
        { "1,-2,3,4,f32,last,64,ks.plain,1", "no pattern" },
        { "1,2,x,4,f32,last,64,ks.plain,1", "no pattern" },
        { "1,2,3,,f32,last,64,ks.plain,1", "no pattern" },
        { "1,2,3,9223372036854775808,f32,last,64,ks.plain,1", "no pattern" },
        { "4294967296,4294967296,1,1,f32,last,64,ks.plain,1", "no pattern" },
        { "1,2,3,4,f32,middle,64,ks.plain,1", "layout" },
        { "1,2,3,4,f32,last,0,ks.plain,1", "batch" },
        { "1,2,3,4,f32,last,1e3,ks.plain,1", "batch" },
        { "1,2,3,4,f32,last,64,ks.plain,", "seconds" },
        { "1,2,3,4,f32,last,64,ks.plain,nan", "seconds" },
        { "1,2,3,4,f32,last,64,ks.plain,inf", "seconds" },
        { "1,2,3,4,f32,last,64,ks.plain,-1", "seconds" },
        { "1,2,3,4,f32,last,64,ks.plain,0", "seconds" },
        { "1,2,3,4,f32,last,64,ks.plain,0e999999", "seconds" },
        { "1,2,3,4,f32,last,64,ks.plain,1e999", "seconds" },
        { "1,2,3,4,f32,last,64,ks.plain,1e-999", "seconds" },
        { "1,2,3,4,f32,last,64,ks.plain,1e-9223372036854775807", "seconds" },
        { "1,2,3,4,f32,last,64,ks.plain,1e9223372036854775808", "seconds" },
        { "1,2,3,4,f32,last,64,ks.plain,1.2.3", "seconds" },
        { "1,2,3,4,f32,last,64,ks.plain,.", "seconds" },
        { "1,2,3,4,f32,last,64,ks.plain,1e", "seconds" },
        { "1,2,3,4,f32,last,64,ks.plain,1e-", "seconds" },
        { "1,2,3,4,f32,last,64,ks.plain,e5", "seconds" },
        { "1,2,3,4,f32,last,64,ks.plain, 1", "seconds" },
        { "1,2,3,4,f32,last,64,ks.plain,0x1", "seconds" },
    };
    tuning *table = table_of(whole);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int foreign = 0; foreign < 2; foreign++) {
            char content[1000];
            int64_t skipped = 77;
            snprintf(
                content, sizeof content, "%s%s%s\n%s%s\n", HEAD, HERE,
                "1,2,3,4,f32,last,64,ks.plain,9",
                foreign ? "cpu,Another,avx9,2," : HERE, cases[i].row);
            danaus_status status = dn_tuning_read(
                table, &tuning_device, content, strlen(content), &skipped);
            if (status != DANAUS_ERR_FORMAT ||
                !strstr(danaus_error_detail(), cases[i].words) ||
                !strstr(danaus_error_detail(), "line 4: "))
                fail_msg("%s: %s", cases[i].row, danaus_error_detail());
            assert_int_equal(skipped, 77);
            assert_true(seconds_at(table, 64) == 2000000 * 1e-12);
        }
    dn_tuning_destroy(table);
}

static void other_files_are_no_tables(void **state)
{
    (void)state;
    static const char *const contents[] = {
        "",
        "\n",
        "# danaus tuning 2\n",
        "# danaus tuning 1",
        "# danaus tuning 1 \n",
        "# danaus tuning 1\ndevice,kernel\n",
        "\x93NUMPY",
        HEAD "cpu,Maker   Model  7,avx9,two,1,2,3,4,f32,last,64,ks.plain,1\n",
        HEAD ",,,,,,,,,,,,\n",
        HEAD "x",
    };
    tuning *table = table_of(HEAD);
    int64_t skipped;
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++)
        assert_status(
            dn_tuning_read(
                table, &tuning_device, contents[i], strlen(contents[i]), &skipped),
            DANAUS_ERR_FORMAT);
    char *large = malloc((16 << 20) + 1);
    memset(large, '\n', (16 << 20) + 1);
    memcpy(large, HEAD, strlen(HEAD));
    assert_ok(dn_tuning_read(table, &tuning_device, large, 16 << 20, &skipped));
    assert_status(
        dn_tuning_read(table, &tuning_device, large, (16 << 20) + 1, &skipped),
        DANAUS_ERR_FORMAT);
    free(large);
    assert_status(
        dn_tuning_load(table, &tuning_device, scratch_path("none.csv"), &skipped),
        DANAUS_ERR_IO);
    file_write(scratch_path("bad.csv"), "x", 1);
    assert_status(
        dn_tuning_load(table, &tuning_device, scratch_path("bad.csv"), &skipped),
        DANAUS_ERR_FORMAT);
    assert_non_null(strstr(danaus_error_detail(), "bad.csv: line 1 is not"));
    assert_status(
        dn_tuning_save(table, &tuning_device, scratch_path("none/table.csv")),
        DANAUS_ERR_IO);
    dn_tuning_destroy(table);
}

/* What a changed table gives is a kernel that fits and a time that is one. */
static void check_harmless(const char *content, size_t size)
{
    tuning *table = table_of(HEAD);
    int64_t skipped;
    danaus_status status =
        dn_tuning_read(table, &tuning_device, content, size, &skipped);
    assert_true(status == DANAUS_OK || status == DANAUS_ERR_FORMAT);
    for (int64_t batch = 1; batch <= 65536; batch *= 2) {
        problem p = problem_at(batch);
        double seconds = 0;
        const kernel *k = dn_tuning_find(table, &p, 1, &seconds);
        assert_true(!k || (dn_fits(k, &p) && seconds > 0 && seconds < 1e308));
    }
    dn_tuning_destroy(table);
}

static void cut_and_changed_tables_do_no_harm(void **state)
{
    (void)state;
    bytes b = bytes_of(whole, strlen(whole));
    for (size_t size = 0; size <= b.size; size++) {
        bytes part = bytes_part(&b, size);
        check_harmless((const char *)part.data, part.size);
        bytes_free(&part);
    }
    for (uint64_t round = 0; round < (uint64_t)rounds_of(10000); round++) {
        rng r = { round };
        bytes changed = bytes_mutated(&r, &b);
        check_harmless((const char *)changed.data, changed.size);
        bytes_free(&changed);
    }
    bytes_free(&b);
}

/* Loads the file onto a table of one row, which stays if that fails, and saves. */
static danaus_status load_and_save(void *paths)
{
    const char *const *path = paths;
    tuning *table = NULL;
    danaus_status status = dn_tuning_create(&table);
    if (status != DANAUS_OK)
        return status;
    problem p = problem_at(64), q = p;
    double seconds;
    dn_tuning_add(table, &p, &tuning_kernels[0], 7);
    int added = dn_tuning_find(table, &p, 1, &seconds) != NULL;
    int64_t skipped;
    status = dn_tuning_load(table, &tuning_device, path[0], &skipped);
    if (status != DANAUS_OK) {
        assert_true((dn_tuning_find(table, &p, 1, &seconds) != NULL) == added);
        q.batch = 32768;
        assert_null(dn_tuning_find(table, &q, 1, &seconds));
    } else {
        status = dn_tuning_save(table, &tuning_device, path[1]);
        if (status == DANAUS_OK && !added) /* a row is lost silently */
            status = DANAUS_ERR_MEMORY;
    }
    dn_tuning_destroy(table);
    return status;
}

static void memory_may_be_missing_at_any_time(void **state)
{
    (void)state;
    const char *paths[] = { scratch_path("memory.csv"), scratch_path("saved.csv") };
    file_write(paths[0], whole, strlen(whole));
    assert_in_range(expect_memory_errors(load_and_save, paths), 4, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_table_knows_nothing),
        cmocka_unit_test(a_choice_is_found_within_a_factor_of_two),
        cmocka_unit_test(the_nearest_power_of_two_comes_first),
        cmocka_unit_test(a_measurement_replaces_an_older_one),
        cmocka_unit_test(a_large_table_finds_what_a_list_finds),
        cmocka_unit_test(a_saved_table_is_this_text),
        cmocka_unit_test(a_loaded_table_saves_the_same_text),
        cmocka_unit_test(other_operations_have_rows_of_their_own),
        cmocka_unit_test(a_table_that_is_replaced_keeps_the_rows_of_others),
        cmocka_unit_test(a_file_that_is_no_table_is_not_replaced),
        cmocka_unit_test(a_device_begins_with_the_table_of_the_environment),
        cmocka_unit_test(an_extreme_time_is_kept),
        cmocka_unit_test(lines_end_in_any_way),
        cmocka_unit_test(the_fastest_row_of_a_file_replaces_what_was_there),
        cmocka_unit_test(rows_of_no_use_here_are_counted),
        cmocka_unit_test(malformed_lines_are_named_and_change_nothing),
        cmocka_unit_test(other_files_are_no_tables),
        cmocka_unit_test(cut_and_changed_tables_do_no_harm),
        cmocka_unit_test(memory_may_be_missing_at_any_time),
    };
    return cmocka_run_group_tests_name(
        "tuning", tests, scratch_setup, scratch_teardown);
}
