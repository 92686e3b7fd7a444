/* Where NVIDIA's libraries are found: copies of the stand-ins at other places count what
   is asked of them. A library stays open, so each case has a process. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "danaus/danaus.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64], file[96], cublas[96];

static danaus_status use_a_kernel(void)
{
    danaus_pattern pattern = { 1, 3, 4, 2 };
    danaus_device *device = NULL;
    danaus_ks_plan *plan = NULL;
    danaus_status status = danaus_device_open("cuda:0", &device);
    if (status == DANAUS_OK)
        status = danaus_ks_plan_create(device, &pattern, 1, NULL, &plan);
    danaus_ks_plan_destroy(plan);
    danaus_device_close(device);
    return status;
}

/* The copy has been asked, the one that the loader finds has not. */
static void expect_the_copy(void)
{
    assert_ok(use_a_kernel());
    assert_null(dlopen("libnvrtc.so.13", RTLD_NOW | RTLD_NOLOAD));
    void *copy = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(copy);
    const int *compilations = dlsym(copy, "emulator_compilations");
    assert_true(compilations && *compilations > 0);
}

static void a_variable_names_the_file(void)
{
    setenv("DANAUS_NVRTC", file, 1);
    expect_the_copy();
}

static void a_variable_names_the_folder(void)
{
    setenv("DANAUS_NVRTC", folder, 1);
    expect_the_copy();
}

static void the_variable_comes_before_the_call(void)
{
    setenv("DANAUS_NVRTC", folder, 1);
    assert_ok(danaus_library_locate("nvrtc", "/"));
    expect_the_copy();
}

static void a_call_names_the_folder(void)
{
    assert_ok(danaus_library_locate("nvrtc", "/"));
    assert_ok(danaus_library_locate("nvrtc", folder));
    expect_the_copy();
    assert_status(danaus_library_locate("nvrtc", folder), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_library_locate("nvrtc", NULL), DANAUS_ERR_ARGUMENT);
}

static void what_was_said_is_taken_back(void)
{
    setenv("DANAUS_NVRTC", "", 1);
    assert_ok(danaus_library_locate("nvrtc", "/"));
    assert_ok(danaus_library_locate("nvrtc", NULL));
    assert_ok(use_a_kernel());
    assert_null(dlopen(file, RTLD_NOW | RTLD_NOLOAD));
}

static void a_wrong_place_is_told_and_not_passed_over(void)
{
    setenv("DANAUS_NVRTC", "/", 1);
    assert_status(use_a_kernel(), DANAUS_ERR_UNSUPPORTED);
    assert_non_null(strstr(danaus_error_detail(), "DANAUS_NVRTC"));
    setenv("DANAUS_NVRTC", "/no/such/place", 1);
    assert_status(use_a_kernel(), DANAUS_ERR_UNSUPPORTED);
    unsetenv("DANAUS_NVRTC");
    assert_ok(danaus_library_locate("nvrtc", "/"));
    assert_status(use_a_kernel(), DANAUS_ERR_UNSUPPORTED);
    assert_non_null(strstr(danaus_error_detail(), "danaus_library_locate"));
    assert_status(danaus_library_locate("nvrtc", "/no/such"), DANAUS_ERR_IO);
    assert_status(danaus_library_locate("nvidia", folder), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_library_locate(NULL, folder), DANAUS_ERR_ARGUMENT);
}

static void cublas_is_found_likewise(void)
{
    danaus_device *device = NULL;
    assert_ok(danaus_library_locate("cublas", folder));
    assert_ok(danaus_device_open("cuda:0", &device));
    assert_non_null(dlopen(cublas, RTLD_NOW | RTLD_NOLOAD));
    assert_null(dlopen("libcublas.so.13", RTLD_NOW | RTLD_NOLOAD));
    danaus_device_close(device);
}

static void each_is_found_as_it_should_be(void **state)
{
    static void (*const cases[])(void) = {
        a_variable_names_the_file,          a_variable_names_the_folder,
        the_variable_comes_before_the_call, a_call_names_the_folder,
        what_was_said_is_taken_back,        a_wrong_place_is_told_and_not_passed_over,
        cublas_is_found_likewise,
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            cases[i]();
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}

/* Copies of the stand-ins in a folder of their own; nothing is compiled before. */
static int copy_libraries(void **state)
{
    (void)state;
    char command[256];
    strcpy(folder, "/tmp/danaus-library-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(file, sizeof file, "%s/libnvrtc.so.13", folder);
    snprintf(cublas, sizeof cublas, "%s/libcublas.so.13", folder);
    snprintf(
        command, sizeof command,
        "cd ${LD_LIBRARY_PATH%%%%:*} && cp libnvrtc.so.13 libcublas.so.13 %s", folder);
    setenv("DANAUS_CACHE", "", 1);
    return system(command);
}

static int remove_libraries(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_found_as_it_should_be),
    };
    return cmocka_run_group_tests_name(
        "library", tests, copy_libraries, remove_libraries);
}
