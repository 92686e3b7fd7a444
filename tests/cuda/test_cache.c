/* Compiled kernels on the disk: kept, shared, damaged, full, impossible. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/mem.h"
#include "cuda/cuda.h"
#include "gpu/run/images/cache.h"
#include "gpu/run/program.h"
#include "cuda/nvrtc.h"
#include "support/cache.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROCESSES 4

static emulator_control *compiler;

static int all_files(void)
{
    struct dirent **entries;
    int count = scandir(cache_folder, &entries, NULL, alphasort);
    if (count >= 0)
        cache_free_list(entries, count);
    return count - 2; /* itself and the one above */
}

static void a_kernel_is_compiled_once(void **state)
{
    (void)state;
    int first = compilations_of_use();
    assert_in_range(first, 1, 2); /* one for each width of offsets */
    assert_int_equal(cache_count(), first);
    assert_int_equal(compilations_of_use(), 0);
}

static void folders_are_made(void **state)
{
    (void)state;
    char deep[128];
    snprintf(deep, sizeof deep, "%s/a/b", cache_folder);
    setenv("DANAUS_CACHE", deep, 1);
    compilations_of_use();
    assert_int_equal(compilations_of_use(), 0);
    unsetenv("DANAUS_CACHE");
    setenv("XDG_CACHE_HOME", deep, 1);
    assert_in_range(compilations_of_use(), 1, 2);
    assert_int_equal(compilations_of_use(), 0);
    snprintf(deep, sizeof deep, "%s/a/b/danaus", cache_folder);
    assert_int_equal(access(deep, X_OK), 0);
    unsetenv("XDG_CACHE_HOME");
}

static void damage(const char *path, int kind)
{
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    long at = kind == 0 ? 3 : kind == 1 ? 20 : kind == 2 ? 80 : (long)s.st_size - 1;
    if (kind < 4) { /* a byte of the head or of the image is another */
        assert_int_equal(fseek(f, at, SEEK_SET), 0);
        int byte = fgetc(f);
        assert_int_equal(fseek(f, at, SEEK_SET), 0);
        fputc(byte ^ 1, f);
    }
    fclose(f);
    if (kind >= 4) /* it ends too early */
        assert_int_equal(truncate(path, kind == 4 ? 0 : s.st_size - 1), 0);
}

static void a_damaged_file_counts_as_missing(void **state)
{
    (void)state;
    use_a_kernel();
    struct dirent **entries;
    int count = cache_list(&entries);
    for (int kind = 0; kind < 6; kind++)
        for (int i = 0; i < count; i++) {
            char path[512];
            snprintf(path, sizeof path, "%s/%s", cache_folder, entries[i]->d_name);
            damage(path, kind);
            assert_int_equal(compilations_of_use(), 1);
            assert_int_equal(compilations_of_use(), 0);
        }
    cache_free_list(entries, count);
}

#define INCLUDED 40

/* The text is one that it has; the version and options are the library's. */
static void everything_that_is_compiled_decides_the_key(void **state)
{
    (void)state;
    static char names[INCLUDED][16], contents[INCLUDED][16];
    gpu_text texts[INCLUDED + 2] = { { "first.cu", "no header" } };
    for (int i = 0; i < INCLUDED; i++) {
        snprintf(names[i], sizeof names[i], "text_%d%s", i, i % 2 ? ".h" : ".cuh");
        texts[i + 1] = (gpu_text){ names[i], contents[i] };
    }
    hash128 before = dn_gpu_hash_included(texts);
    for (int i = 0; i < INCLUDED; i++) {
        contents[i][0] = 'x';
        hash128 after = dn_gpu_hash_included(texts);
        assert_false(dn_hash_equal(before, after));
        before = after;
    }
    texts[0].content = "is not included by others";
    assert_true(dn_hash_equal(before, dn_gpu_hash_included(texts)));
    hash128 key =
        dn_gpu_image_key(&dn_cuda_gpu_driver, "ks_simt.cu", "#define A 1\n", 90);
    assert_true(dn_hash_equal(
        key, dn_gpu_image_key(&dn_cuda_gpu_driver, "ks_simt.cu", "#define A 1\n", 90)));
    assert_false(dn_hash_equal(
        key, dn_gpu_image_key(&dn_cuda_gpu_driver, "ks_simt.cu", "#define A 1\n", 80)));
    assert_false(dn_hash_equal(
        key, dn_gpu_image_key(&dn_cuda_gpu_driver, "ks_simt.cu", "#define A 2\n", 90)));
    assert_false(dn_hash_equal(
        key, dn_gpu_image_key(&dn_cuda_gpu_driver, "ks_turn.cu", "#define A 1\n", 90)));
    assert_false(dn_hash_equal(
        dn_nvrtc_hash(DN_HASH_START, 90), dn_nvrtc_hash(DN_HASH_START, 120)));
}

/* Whole, but not what the driver takes. */
static void an_image_that_the_driver_refuses_is_made_again(void **state)
{
    static const char words[] =
        "no kernel, and long enough to be read as the head of an ELF file";
    (void)state;
    use_a_kernel();
    struct dirent **entries;
    int count = cache_list(&entries);
    for (int i = 0; i < count; i++) {
        unsigned long long high, low;
        assert_int_equal(sscanf(entries[i]->d_name, "%16llx%16llx", &high, &low), 2);
        assert_ok(dn_cache_store((hash128){ { high, low } }, 75, words, sizeof words));
    }
    cache_free_list(entries, count);
    assert_int_equal(compilations_of_use(), count);
    assert_int_equal(compilations_of_use(), 0);
}

static void where_nothing_can_be_written_kernels_are_compiled(void **state)
{
    (void)state;
    static const char *const places[] = { "", "/dev/null/cache", "/proc/danaus" };
    for (int i = 0; i < 3; i++) {
        setenv("DANAUS_CACHE", places[i], 1);
        assert_in_range(compilations_of_use(), 1, 2);
        assert_in_range(compilations_of_use(), 1, 2);
    }
}

/* Files may not become longer than 4 KiB, as on a disk that is nearly full. */
static void what_does_not_fit_on_the_disk_is_not_kept(void **state)
{
    (void)state;
    static char image[100000];
    hash128 key = dn_hash_text(DN_HASH_START, "a kernel");
    struct rlimit before, small = { 4096, 4096 };
    void *found = NULL;
    size_t bytes = 0;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    danaus_status status = dn_cache_store(key, 75, image, sizeof image);
    danaus_status second = dn_cache_store(key, 75, image, 100);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_status(status, DANAUS_ERR_IO);
    assert_ok(second);
    assert_int_equal(cache_count(), 1);
    assert_true(dn_cache_load(key, &found, &bytes));
    assert_int_equal(bytes, 100);
    dn_free(found);
    assert_int_equal(all_files(), 1); /* no half of one either */
}

/* The oldest files go, others stay; what is not ours stays. */
static void a_full_folder_loses_its_oldest_files(void **state)
{
    (void)state;
    static char block[600 << 10];
    setenv("DANAUS_CACHE_MIB", "1", 1);
    for (int i = 0; i < 4; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%d%s", cache_folder, i, i ? ".cubin" : ".txt");
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(block, 1, sizeof block, f), sizeof block);
        fclose(f);
        struct timespec times[2] = { { 1000 + i, 0 }, { 1000 + i, 0 } };
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    }
    int made = compilations_of_use();
    char path[128];
    snprintf(path, sizeof path, "%s/0.txt", cache_folder);
    assert_int_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/1.cubin", cache_folder);
    assert_int_not_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/3.cubin", cache_folder);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(cache_count(), made + 1);
    assert_int_equal(compilations_of_use(), 0);
}

static void processes_share_a_folder(void **state)
{
    (void)state;
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            use_a_kernel();
            _exit(0);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    int before = cache_count();
    assert_int_equal(compilations_of_use(), 0);
    assert_int_equal(cache_count(), before);
}

/* Once, which another try may mend; or always, and then not any more. */
static void any_call_of_the_compiler_may_fail(void **state)
{
    (void)state;
    static const char *const functions[] = {
#define X(name, symbol, arguments) symbol,
#include "cuda/nvrtc.def"
#undef X
    };
    emulator_control *c = compiler;
    setenv("DANAUS_CACHE", "", 1);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        for (int number = 0; number < 3; number++) {
            *c = (emulator_control){ .function = functions[i], .number = number };
            c->error = 11;
            danaus_status status = try_a_kernel();
            if (status != DANAUS_OK)
                assert_true(c->calls > 0 && danaus_error_detail()[0]);
            if (strcmp(functions[i], "nvrtcDestroyProgram") != 0)
                assert_int_equal(c->handles, 0);
            if (number == 0 && strncmp(functions[i], "nvrtcGetCUBIN", 13) == 0)
                assert_int_equal(status, DANAUS_ERR_DEVICE);
        }
    *c = (emulator_control){ .function = "nvrtcCompileProgram", .error = 11 };
    assert_status(try_a_kernel(), DANAUS_ERR_DEVICE);
    assert_non_null(strstr(danaus_error_detail(), "error 11"));
    *c = (emulator_control){ 0 };
    use_a_kernel();
    setenv("DANAUS_CACHE", cache_folder, 1);
}

int main(void)
{
    compiler = cache_compiler();
    if (!compiler)
        return 77;
#define TEST(name) cmocka_unit_test_setup_teardown(name, cache_setup, cache_teardown)
    const struct CMUnitTest tests[] = {
        TEST(processes_share_a_folder),
        TEST(a_kernel_is_compiled_once),
        TEST(folders_are_made),
        TEST(a_damaged_file_counts_as_missing),
        TEST(everything_that_is_compiled_decides_the_key),
        TEST(an_image_that_the_driver_refuses_is_made_again),
        TEST(where_nothing_can_be_written_kernels_are_compiled),
        TEST(what_does_not_fit_on_the_disk_is_not_kept),
        TEST(a_full_folder_loses_its_oldest_files),
        TEST(any_call_of_the_compiler_may_fail),
    };
#undef TEST
    return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
