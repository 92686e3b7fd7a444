/* Compiled kernels on the disk, with the emulated compiler that counts what it does:
   kept, shared, damaged, full, impossible; and carried to another machine. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/clock.h"
#include "base/mem.h"
#include "cuda/bundle.h"
#include "cuda/cuda.h"
#include "cuda/nvrtc.h"
#include "emulator/emulator.h"

#include <dirent.h>
#include <dlfcn.h>
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

static const int *compilations;
static emulator_control *compiler_control;
static char folder[64];

static const danaus_pattern pattern = { 1, 3, 4, 2 };

/* A device and a plan, whose kernel is compiled, or read, and loaded. */
static danaus_status try_a_kernel(void)
{
    danaus_device *device = NULL;
    danaus_ks_desc desc = { .batch = 9 };
    danaus_ks_plan *plan = NULL;
    assert_ok(danaus_device_open("cuda:0", &device));
    danaus_status status = danaus_ks_plan_create(device, &pattern, 1, &desc, &plan);
    danaus_ks_plan_destroy(plan);
    danaus_device_close(device);
    return status;
}

static void use_a_kernel(void) { assert_ok(try_a_kernel()); }

static int compilations_of_use(void)
{
    int before = *compilations;
    use_a_kernel();
    return *compilations - before;
}

static int is_ours(const struct dirent *entry)
{
    return strstr(entry->d_name, ".cubin") != NULL;
}

/* The names of all files, to be freed. */
static int list_files(struct dirent ***entries)
{
    return scandir(folder, entries, is_ours, alphasort);
}

static void free_list(struct dirent **entries, int count)
{
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
}

static int count_files(void)
{
    struct dirent **entries;
    int count = list_files(&entries);
    if (count >= 0)
        free_list(entries, count);
    return count;
}

static int all_files(void)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, alphasort);
    if (count >= 0)
        free_list(entries, count);
    return count - 2; /* itself and the one above */
}

static int new_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/danaus-cache-XXXXXX");
    return mkdtemp(folder) ? setenv("DANAUS_CACHE", folder, 1) : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    unsetenv("DANAUS_CACHE_MIB");
    return system(command);
}

static void a_kernel_is_compiled_once(void **state)
{
    (void)state;
    int first = compilations_of_use();
    assert_in_range(first, 1, 2); /* one for each width of offsets */
    assert_int_equal(count_files(), first);
    assert_int_equal(compilations_of_use(), 0);
}

static void folders_are_made(void **state)
{
    (void)state;
    char deep[128];
    snprintf(deep, sizeof deep, "%s/a/b", folder);
    setenv("DANAUS_CACHE", deep, 1);
    compilations_of_use();
    assert_int_equal(compilations_of_use(), 0);
    unsetenv("DANAUS_CACHE");
    setenv("XDG_CACHE_HOME", deep, 1);
    assert_in_range(compilations_of_use(), 1, 2);
    assert_int_equal(compilations_of_use(), 0);
    snprintf(deep, sizeof deep, "%s/a/b/danaus", folder);
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
    int count = list_files(&entries);
    for (int kind = 0; kind < 6; kind++)
        for (int i = 0; i < count; i++) {
            char path[512];
            snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
            damage(path, kind);
            assert_int_equal(compilations_of_use(), 1);
            assert_int_equal(compilations_of_use(), 0);
        }
    free_list(entries, count);
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
    hash128 before = dn_cuda_hash_included(texts);
    for (int i = 0; i < INCLUDED; i++) {
        contents[i][0] = 'x';
        hash128 after = dn_cuda_hash_included(texts);
        assert_false(dn_hash_equal(before, after));
        before = after;
    }
    texts[0].content = "is not included by others";
    assert_true(dn_hash_equal(before, dn_cuda_hash_included(texts)));
    hash128 key = dn_cuda_key("ks_simt.cu", "#define A 1\n", 90);
    assert_true(dn_hash_equal(key, dn_cuda_key("ks_simt.cu", "#define A 1\n", 90)));
    assert_false(dn_hash_equal(key, dn_cuda_key("ks_simt.cu", "#define A 1\n", 80)));
    assert_false(dn_hash_equal(key, dn_cuda_key("ks_simt.cu", "#define A 2\n", 90)));
    assert_false(dn_hash_equal(key, dn_cuda_key("ks_turn.cu", "#define A 1\n", 90)));
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
    int count = list_files(&entries);
    for (int i = 0; i < count; i++) {
        unsigned long long high, low;
        assert_int_equal(sscanf(entries[i]->d_name, "%16llx%16llx", &high, &low), 2);
        assert_ok(dn_cache_store((hash128){ { high, low } }, 75, words, sizeof words));
    }
    free_list(entries, count);
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
    assert_int_equal(count_files(), 1);
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
        snprintf(path, sizeof path, "%s/%d%s", folder, i, i ? ".cubin" : ".txt");
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(block, 1, sizeof block, f), sizeof block);
        fclose(f);
        struct timespec times[2] = { { 1000 + i, 0 }, { 1000 + i, 0 } };
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    }
    int made = compilations_of_use();
    char path[128];
    snprintf(path, sizeof path, "%s/0.txt", folder);
    assert_int_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/1.cubin", folder);
    assert_int_not_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/3.cubin", folder);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(count_files(), made + 1);
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
    int before = count_files();
    assert_int_equal(compilations_of_use(), 0);
    assert_int_equal(count_files(), before);
}

/* ---- bundles ---- */

static char carried[96];

/* What is in use stays so until a process ends, and DANAUS_KERNELS is read once. */
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
    snprintf(carried, sizeof carried, "%s/bundle", folder);
    assert_ok(danaus_kernels_export(instructions, carried, &count));
    assert_int_equal(count, count_files());
    char other[80];
    snprintf(other, sizeof other, "%s/other", folder);
    setenv("DANAUS_CACHE", other, 1);
    return count;
}

static void a_bundle_replaces_the_compiler(void **state)
{
    (void)state;
    int64_t count = carry("sm_75"), imported = 0;
    assert_ok(danaus_kernels_import(carried, &imported));
    assert_int_equal(imported, count);
    assert_int_equal(compilations_of_use(), 0);
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
    fwrite("danaus kernels\n\0all of the rest of it", 1, 40, f);
    fclose(f);
    assert_status(danaus_kernels_import(carried, NULL), DANAUS_ERR_FORMAT);
    assert_non_null(strstr(danaus_error_detail(), "export them again"));
    assert_in_range(compilations_of_use(), 1, 2);
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
    assert_ok(danaus_kernels_use(folder));
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
    setenv("DANAUS_KERNELS", folder, 1);
    nothing_is_compiled();
}

static void compile_it(void) { assert_in_range(compilations_of_use(), 1, 2); }

/* What is in use is looked into first, and none of it is copied into the cache. */
static void a_bundle_in_use_replaces_the_compiler(void **state)
{
    (void)state;
    void (*const ways[])(void) = { use_the_file, use_the_folder, find_the_file,
                                   find_the_folder };
    char named[sizeof carried + 16], other[sizeof folder + 16];
    carry(NULL);
    snprintf(named, sizeof named, "%s.kernels", carried);
    assert_int_equal(rename(carried, named), 0);
    strcpy(carried, named);
    for (int i = 0; i < 4; i++)
        in_a_process(ways[i]);
    snprintf(other, sizeof other, "%s/other", folder);
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
    char path[sizeof folder + 16], whole[sizeof folder + 16];
    snprintf(path, sizeof path, "%s/a.kernels", folder);
    snprintf(whole, sizeof whole, "%s/b.kernels", folder);
    assert_int_equal(rename(carried, whole), 0);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fclose(f);
    assert_status(danaus_kernels_use(folder), DANAUS_ERR_FORMAT);
    assert_non_null(strstr(danaus_error_detail(), path));
    nothing_is_compiled();
    assert_int_equal(rename(whole, carried), 0);
    assert_int_equal(unlink(path), 0);
}

static void use_none(void)
{
    assert_status(danaus_kernels_use(NULL), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_kernels_use("/no/such/file"), DANAUS_ERR_IO);
    assert_status(danaus_kernels_use(folder), DANAUS_ERR_IO); /* no file *.kernels */
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
    setenv("DANAUS_CACHE", folder, 1);
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
        hash128 key = dn_cuda_key("ks_mma.cu", defines, 90);
        assert_true(dn_cuda_has_image(key) && dn_shipped_load(key, &image, &size));
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
    snprintf(carried, sizeof carried, "%s/bundle", folder);
    for (int i = 0; i < SHIPPED; i++) {
        char defines[2048];
        snprintf(defines, sizeof defines, "#define A %-1900d\n", i);
        memset(image, i, sizeof image);
        hash128 key = dn_cuda_key("ks_mma.cu", defines, 90);
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

/* Once, which another try may mend; or always, and then not any more. */
static void any_call_of_the_compiler_may_fail(void **state)
{
    (void)state;
    static const char *const functions[] = {
#define X(name, symbol, arguments) symbol,
#include "cuda/nvrtc.def"
#undef X
    };
    emulator_control *c = compiler_control;
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
    setenv("DANAUS_CACHE", folder, 1);
}

static void bundles_need_kernels_and_a_cache(void **state)
{
    (void)state;
    int64_t count = 0;
    snprintf(carried, sizeof carried, "%s/bundle", folder);
    assert_status(danaus_kernels_export(NULL, carried, &count), DANAUS_ERR_ARGUMENT);
    carry(NULL);
    setenv("DANAUS_CACHE", folder, 1);
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
    setenv("DANAUS_CACHE", folder, 1);
    static char large[(1 << 20) + 1];
    assert_ok(dn_cache_store((hash128){ { 1, 1 } }, 90, large, sizeof large));
    assert_ok(danaus_kernels_export("sm_90", carried, NULL));
    setenv("DANAUS_CACHE_MIB", "1", 1);
    assert_status(danaus_kernels_import(carried, &count), DANAUS_ERR_MEMORY);
}

int main(void)
{
    void *compiler = dlopen("libnvrtc.so.13", RTLD_NOW);
    compilations = compiler ? dlsym(compiler, "emulator_compilations") : NULL;
    compiler_control = compiler ? dlsym(compiler, "emulator_nvrtc_control") : NULL;
    if (!compilations || !compiler_control) {
        fprintf(stderr, "this test needs the emulated compiler\n");
        return 77;
    }
#define TEST(name) cmocka_unit_test_setup_teardown(name, new_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(
            a_bundle_in_use_replaces_the_compiler), /* before this process has looked */
        TEST(processes_share_a_folder),
        TEST(a_kernel_is_compiled_once),
        TEST(folders_are_made),
        TEST(a_damaged_file_counts_as_missing),
        TEST(everything_that_is_compiled_decides_the_key),
        TEST(an_image_that_the_driver_refuses_is_made_again),
        TEST(where_nothing_can_be_written_kernels_are_compiled),
        TEST(what_does_not_fit_on_the_disk_is_not_kept),
        TEST(a_full_folder_loses_its_oldest_files),
        TEST(a_bundle_replaces_the_compiler),
        TEST(a_damaged_bundle_is_refused_whole),
        TEST(only_whole_kernels_of_a_bundle_are_used),
        TEST(a_bundle_says_what_it_holds),
        TEST(kernels_of_a_bundle_are_there_at_once),
        TEST(any_call_of_the_compiler_may_fail),
        TEST(bundles_need_kernels_and_a_cache),
    };
#undef TEST
    return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
