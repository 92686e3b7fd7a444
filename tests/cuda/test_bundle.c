/* Compiled kernels carried to another machine in one file: imported, used where it lies,
   listed, damaged. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/clock.h"
#include "base/mem.h"
#include "gpu/run/images/bundle.h"
#include "cuda/cuda.h"
#include "gpu/run/program.h"
#include "support/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char carried[96];

static void compile_none(void) { assert_int_equal(compilations_of_use(), 0); }

static void compile_it(void) { assert_in_range(compilations_of_use(), 1, 2); }

/* What is in use stays so until a process ends, and DANAUS_KERNELS is read once. No GPU works in
   a process whose parent has used one, so that all uses are in processes of their own. */
static void in_a_process(void (*run)(void))
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        run();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* The kernels of one use in a file, and another folder. Returns their number. */
static int64_t carry(const char *instructions)
{
    int64_t count = 0;
    in_a_process(use_a_kernel);
    snprintf(carried, sizeof carried, "%s/bundle", cache_folder);
    assert_ok(danaus_kernels_export(instructions, carried, &count));
    assert_int_equal(count, cache_count());
    char other[80];
    snprintf(other, sizeof other, "%s/other", cache_folder);
    setenv("DANAUS_CACHE", other, 1);
    return count;
}

static void a_bundle_replaces_the_compiler(void **state)
{
    (void)state;
    int64_t count = carry("sm_75"), imported = 0;
    assert_ok(danaus_kernels_import(carried, &imported));
    assert_int_equal(imported, count);
    in_a_process(compile_none);
    assert_ok(danaus_kernels_import(carried, NULL)); /* again */
    char again[sizeof carried + 8], command[256];
    snprintf(again, sizeof again, "%s.2", carried);
    assert_ok(danaus_kernels_export(NULL, again, NULL));
    snprintf(command, sizeof command, "cmp %s %s", carried, again);
    assert_int_equal(system(command), 0);
}

/* Changes byte number `at`, or puts it back. */
static void flip(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    int byte = fgetc(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    fputc(byte ^ 1, f);
    fclose(f);
}

#define HEAD 48 /* bytes */
#define ROW  72

static long size_of(const char *path)
{
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    return (long)s.st_size;
}

/* Any byte of it changed, or the end missing: nothing is taken. */
static void a_damaged_bundle_is_refused_whole(void **state)
{
    (void)state;
    long rows = HEAD + ROW * carry(NULL), size = size_of(carried);
    for (long at = 0; at < size; at += at < rows ? 1 : 997) {
        flip(carried, at);
        assert_status(danaus_kernels_import(carried, NULL), DANAUS_ERR_FORMAT);
        flip(carried, at);
    }
    assert_int_equal(truncate(carried, size - 1), 0);
    assert_status(danaus_kernels_import(carried, NULL), DANAUS_ERR_FORMAT);
    assert_int_equal(truncate(carried, 0), 0);
    assert_status(danaus_kernels_import(carried, NULL), DANAUS_ERR_FORMAT);
    FILE *f = fopen(carried, "wb");
    assert_non_null(f);
    static const char old[] = "danaus kernels\n\0all of the rest of it";
    assert_int_equal(fwrite(old, 1, sizeof old, f), sizeof old);
    fclose(f);
    assert_status(danaus_kernels_import(carried, NULL), DANAUS_ERR_FORMAT);
    assert_non_null(strstr(danaus_error_detail(), "export them again"));
    in_a_process(compile_it);
}

static void nothing_is_compiled(void)
{
    assert_int_equal(compilations_of_use(), 0);
    setenv("DANAUS_CACHE", "", 1);
    assert_int_equal(compilations_of_use(), 0);
}

static void use_the_file(void)
{
    assert_ok(danaus_kernels_use(carried));
    assert_ok(danaus_kernels_use(carried));
    nothing_is_compiled();
}

static void use_the_folder(void)
{
    assert_ok(danaus_kernels_use(cache_folder));
    nothing_is_compiled();
}

static void find_the_file(void)
{
    char list[256];
    snprintf(list, sizeof list, ":/no/such/place::%s:", carried);
    setenv("DANAUS_KERNELS", list, 1);
    nothing_is_compiled();
    setenv("DANAUS_KERNELS", "", 1); /* it has been read */
    nothing_is_compiled();
}

static void find_the_folder(void)
{
    setenv("DANAUS_KERNELS", cache_folder, 1);
    nothing_is_compiled();
}

/* What is in use is looked into first, and none of it is copied into the cache. */
static void a_bundle_in_use_replaces_the_compiler(void **state)
{
    (void)state;
    void (*const ways[])(void) = { use_the_file, use_the_folder, find_the_file,
                                   find_the_folder };
    char named[sizeof carried + 16], other[sizeof cache_folder + 16];
    carry(NULL);
    snprintf(named, sizeof named, "%s.kernels", carried);
    assert_int_equal(rename(carried, named), 0);
    strcpy(carried, named);
    for (int i = 0; i < 4; i++)
        in_a_process(ways[i]);
    snprintf(other, sizeof other, "%s/other", cache_folder);
    assert_int_not_equal(access(other, F_OK), 0);
    in_a_process(compile_it);
}

/* The last image is damaged: that kernel is compiled. */
static void use_what_is_whole(void)
{
    long last = size_of(carried) - 1;
    flip(carried, last);
    assert_ok(danaus_kernels_use(carried));
    assert_int_equal(compilations_of_use(), 1);
    assert_int_equal(compilations_of_use(), 0); /* it is in the cache */
    setenv("DANAUS_CACHE", "", 1);
    assert_int_equal(compilations_of_use(), 1);
    flip(carried, last);
}

/* A file in a folder that is none does not keep the others from being used. */
static void use_the_others(void)
{
    char path[sizeof cache_folder + 16], whole[sizeof cache_folder + 16];
    snprintf(path, sizeof path, "%s/a.kernels", cache_folder);
    snprintf(whole, sizeof whole, "%s/b.kernels", cache_folder);
    assert_int_equal(rename(carried, whole), 0);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fclose(f);
    assert_status(danaus_kernels_use(cache_folder), DANAUS_ERR_FORMAT);
    assert_non_null(strstr(danaus_error_detail(), path));
    nothing_is_compiled();
    assert_int_equal(rename(whole, carried), 0);
    assert_int_equal(unlink(path), 0);
}

static void use_none(void)
{
    assert_status(danaus_kernels_use(NULL), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_kernels_use("/no/such/file"), DANAUS_ERR_IO);
    assert_status(
        danaus_kernels_use(cache_folder), DANAUS_ERR_IO); /* no file *.kernels */
    flip(carried, HEAD + 3);
    assert_status(danaus_kernels_use(carried), DANAUS_ERR_FORMAT);
    assert_non_null(strstr(danaus_error_detail(), carried));
    setenv("DANAUS_CACHE", "", 1);
    assert_in_range(compilations_of_use(), 1, 2);
    flip(carried, HEAD + 3);
}

static void only_whole_kernels_of_a_bundle_are_used(void **state)
{
    (void)state;
    carry(NULL);
    in_a_process(use_what_is_whole);
    in_a_process(use_the_others);
    in_a_process(use_none);
}

static void a_bundle_says_what_it_holds(void **state)
{
    (void)state;
    danaus_kernels_info info, before;
    int64_t count = carry("sm_75");
    assert_ok(danaus_kernels_list(carried, 0, &info));
    assert_string_equal(info.version, danaus_version());
    assert_string_equal(info.instructions, "sm_75");
    assert_int_equal(info.count, count);
    assert_int_equal(info.bytes, size_of(carried) - HEAD - ROW * count);
    before = info;
    assert_status(danaus_kernels_list(carried, 1, &info), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_kernels_list(carried, -1, &info), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_kernels_list(NULL, 0, &info), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_kernels_list(carried, 0, NULL), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_kernels_list("/no/such/file", 0, &info), DANAUS_ERR_IO);
    assert_memory_equal(&info, &before, sizeof info);
    setenv("DANAUS_CACHE", cache_folder, 1);
    dn_cache_store((hash128){ { 1, 2 } }, 90, "x", 1);
    dn_cache_store((hash128){ { 2, 1 } }, 90, "yz", 2);
    assert_ok(danaus_kernels_export(NULL, carried, &count));
    assert_ok(danaus_kernels_list(carried, 1, &info));
    assert_string_equal(info.instructions, "sm_90");
    assert_int_equal(info.count, 2);
    assert_int_equal(info.bytes, 3);
}

#define SHIPPED 100 /* kernels */
#define NEEDED  8   /* of a plan */

/* What the processor does when a process's first plan finds all it needs in a bundle; the
   driver, which loads it, comes on top. */
static void load_what_a_plan_needs(void)
{
    char defines[2048];
    void *image;
    size_t size;
    double start = dn_seconds();
    assert_ok(danaus_kernels_use(carried));
    for (int i = 0; i < NEEDED; i++) {
        snprintf(defines, sizeof defines, "#define A %-1900d\n", i);
        hash128 key = dn_gpu_image_key(&dn_cuda_gpu_driver, "ks_mma.cu", defines, 90);
        assert_true(dn_gpu_has_image(key) && dn_shipped_load(key, &image, &size));
        dn_free(image);
    }
    double seconds = dn_seconds() - start;
    fprintf(
        stderr, "%d kernels of %zu bytes in %.0f us\n", NEEDED, size, 1e6 * seconds);
    _exit(seconds < 0.005 ? 0 : 1);
}

/* The quickest of some, since others use this machine, too. */
static void kernels_of_a_bundle_are_there_at_once(void **state)
{
    (void)state;
    static char image[60000];
    int slow = 1;
    snprintf(carried, sizeof carried, "%s/bundle", cache_folder);
    for (int i = 0; i < SHIPPED; i++) {
        char defines[2048];
        snprintf(defines, sizeof defines, "#define A %-1900d\n", i);
        memset(image, i, sizeof image);
        hash128 key = dn_gpu_image_key(&dn_cuda_gpu_driver, "ks_mma.cu", defines, 90);
        assert_ok(dn_cache_store(key, 90, image, sizeof image));
    }
    assert_ok(danaus_kernels_export(NULL, carried, NULL));
    setenv("DANAUS_CACHE", "", 1);
    for (int i = 0; i < 10 && slow; i++) {
        pid_t child = fork();
        if (child == 0)
            load_what_a_plan_needs();
        assert_int_equal(waitpid(child, &slow, 0), child);
    }
    assert_int_equal(slow, 0);
}

static void bundles_need_kernels_and_a_cache(void **state)
{
    (void)state;
    int64_t count = 0;
    snprintf(carried, sizeof carried, "%s/bundle", cache_folder);
    assert_status(danaus_kernels_export(NULL, carried, &count), DANAUS_ERR_ARGUMENT);
    carry(NULL);
    setenv("DANAUS_CACHE", cache_folder, 1);
    char missing[sizeof carried + 8];
    snprintf(missing, sizeof missing, "%s.no/x", carried);
    assert_status(danaus_kernels_export("sm_90", carried, &count), DANAUS_ERR_ARGUMENT);
    assert_non_null(strstr(danaus_error_detail(), "sm_90"));
    assert_status(danaus_kernels_export(NULL, missing, &count), DANAUS_ERR_IO);
    assert_status(danaus_kernels_import(missing, &count), DANAUS_ERR_IO);
    assert_status(danaus_kernels_export(NULL, NULL, &count), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_kernels_import(NULL, &count), DANAUS_ERR_ARGUMENT);
    setenv("DANAUS_CACHE", "", 1);
    assert_status(danaus_kernels_export(NULL, carried, &count), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_kernels_import(carried, &count), DANAUS_ERR_ARGUMENT);
    setenv("DANAUS_CACHE", "/dev/null/cache", 1);
    assert_status(danaus_kernels_import(carried, &count), DANAUS_ERR_IO);
    assert_int_equal(count, 0);
    setenv("DANAUS_CACHE", cache_folder, 1);
    static char large[(1 << 20) + 1];
    assert_ok(dn_cache_store((hash128){ { 1, 1 } }, 90, large, sizeof large));
    assert_ok(danaus_kernels_export("sm_90", carried, NULL));
    setenv("DANAUS_CACHE_MIB", "1", 1);
    assert_status(danaus_kernels_import(carried, &count), DANAUS_ERR_MEMORY);
}

int main(void)
{
    if (!cache_compiler())
        return 77;
#define TEST(name) cmocka_unit_test_setup_teardown(name, cache_setup, cache_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_bundle_in_use_replaces_the_compiler),
        TEST(a_bundle_replaces_the_compiler),
        TEST(a_damaged_bundle_is_refused_whole),
        TEST(only_whole_kernels_of_a_bundle_are_used),
        TEST(a_bundle_says_what_it_holds),
        TEST(kernels_of_a_bundle_are_there_at_once),
        TEST(bundles_need_kernels_and_a_cache),
    };
#undef TEST
    return cmocka_run_group_tests_name("bundle", tests, NULL, NULL);
}
