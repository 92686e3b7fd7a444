/* The contract of a backend, device by device: what device.h promises. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "device/backend.h"
#include "support/device.h"

#include <math.h>
#include <string.h>

static void it_describes_itself(void **state)
{
    danaus_device *device = *state, *again = NULL;
    danaus_device_info info = { .threads = -1 };
    assert_ok(danaus_device_describe(device, &info));
    assert_string_equal(info.name, device->name);
    assert_true(info.description[0] && info.instructions[0]);
    assert_in_range(info.memory, 1 << 20, INT64_MAX);
    assert_in_range(info.threads, device->backend->on_host, 1 << 16);
    assert_ok(danaus_device_open(info.name, &again));
    assert_string_equal(again->name, info.name);
    danaus_device_close(again);
}

static void it_is_on_the_list(void **state)
{
    danaus_device *device = *state;
    danaus_device_info info;
    int found = 0, index = 0, count = -1;
    for (; danaus_device_list(index, &info) == DANAUS_OK; index++)
        found |= !strncmp(device->name, info.name, strlen(info.name));
    assert_true(found);
    assert_ok(danaus_device_count(&count));
    assert_int_equal(count, index);
    assert_status(danaus_device_count(NULL), DANAUS_ERR_ARGUMENT);
    memset(&info, 'x', sizeof info);
    danaus_device_info before = info;
    assert_status(danaus_device_list(index, &info), DANAUS_ERR_ARGUMENT);
    assert_memory_equal(&info, &before, sizeof info);
    assert_status(danaus_device_list(-1, &info), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_device_list(0, NULL), DANAUS_ERR_ARGUMENT);
}

static void its_kernels_have_names_of_their_own(void **state)
{
    danaus_device *device = *state;
    int count = 0;
    for (; danaus_device_kernel(device, count); count++)
        for (int i = 0; i < count; i++)
            assert_string_not_equal(
                danaus_device_kernel(device, i), danaus_device_kernel(device, count));
    assert_string_equal(danaus_device_operation(device, 0), "product");
    assert_non_null(danaus_device_operation(device, count - 1));
    assert_null(danaus_device_operation(device, count));
    assert_null(danaus_device_operation(NULL, 0));
    assert_in_range(count, 1, 1000);
    assert_null(danaus_device_kernel(device, -1));
    assert_null(danaus_device_kernel(device, 1000000));
    assert_null(danaus_device_kernel(NULL, 0));
}

static void memory_goes_there_and_back(void **state)
{
    danaus_device *device = *state;
    char text[] = "Danaus plexippus", back[sizeof text] = "";
    void *memory = NULL;
    assert_ok(danaus_alloc(device, sizeof text, &memory));
    assert_int_equal((uintptr_t)memory % 64, 0);
    assert_ok(danaus_upload(device, memory, text, sizeof text));
    assert_ok(danaus_download(device, back, memory, sizeof text));
    assert_string_equal(back, text);
    assert_ok(danaus_upload(device, NULL, NULL, 0));
    danaus_free(device, memory);
    danaus_free(device, NULL);
    memory = text;
    assert_status(danaus_alloc(device, SIZE_MAX / 2, &memory), DANAUS_ERR_MEMORY);
    assert_ptr_equal(memory, text);
    assert_status(danaus_alloc(device, 1, NULL), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_alloc(NULL, 1, &memory), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_upload(device, NULL, text, 1), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_upload(NULL, text, text, 1), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_download(device, text, NULL, 1), DANAUS_ERR_ARGUMENT);
    assert_non_null(strstr(danaus_error_detail(), "danaus_download"));
}

static void threads_are_what_was_asked_for(void **state)
{
    danaus_device *device = *state;
    danaus_device_info before, info;
    if (!device->backend->on_host) {
        assert_ok(danaus_device_set_threads(device, 0));
        assert_status(danaus_device_set_threads(device, 2), DANAUS_ERR_UNSUPPORTED);
        return;
    }
    assert_ok(danaus_device_describe(device, &before));
    static const int wanted[] = { 1, 5, 64 };
    for (int i = 0; i < 3; i++) {
        assert_ok(danaus_device_set_threads(device, wanted[i]));
        assert_ok(danaus_device_describe(device, &info));
        assert_int_equal(info.threads, wanted[i]);
    }
    assert_status(danaus_device_set_threads(device, -1), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_device_set_threads(device, 1 << 30), DANAUS_ERR_ARGUMENT);
    assert_ok(danaus_device_set_threads(device, 0));
    assert_ok(danaus_device_describe(device, &info));
    assert_int_equal(info.threads, before.threads);
    assert_status(danaus_device_set_threads(NULL, 1), DANAUS_ERR_ARGUMENT);
}

static void a_processor_has_no_streams(void **state)
{
    danaus_device *device = *state;
    int stream = 0;
    if (!device->backend->on_host)
        skip();
    assert_ok(danaus_device_set_stream(*state, NULL));
    assert_status(danaus_device_set_stream(*state, &stream), DANAUS_ERR_UNSUPPORTED);
    assert_ok(danaus_device_sync(*state));
}

static void a_missing_device_is_an_argument(void **state)
{
    (void)state;
    danaus_device_info info;
    danaus_device *device = NULL;
    static const char *const names[] = {
        "", "gpu", "cp", "cpux", "cpu:", "cpu:avx9", ":", "cuda:", "cuda:x", "cpu:AVX2",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_status(danaus_device_open(names[i], &device), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_device_open(NULL, &device), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_device_open("cpu", NULL), DANAUS_ERR_ARGUMENT);
    assert_null(device);
    assert_status(danaus_device_describe(NULL, &info), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_device_sync(NULL), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_device_set_stream(NULL, NULL), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_device_set_parallel(NULL, NULL, NULL), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_device_set_scratch(NULL, NULL, 0), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_device_load_tuning(NULL, "x"), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_device_save_tuning(NULL, "x"), DANAUS_ERR_ARGUMENT);
    danaus_free(NULL, NULL);
    danaus_device_close(NULL);
}

static void costs_are_finite_and_sizes_sane(void **state)
{
    danaus_device *device = *state;
    for (const kernel *k = device->kernels; k->name; k++)
        for (int64_t batch = 1; batch < 100000; batch *= 10)
            for (int layout = 0; layout < 2; layout++) {
                problem p = { .pattern = { 2, 3, 5, 7 },
                              .dtype = k->dtype,
                              .layout = (danaus_layout)layout,
                              .batch = batch };
                if (!dn_fits(k, &p))
                    continue;
                double seconds = dn_cost(device, k, &p);
                assert_true(seconds > 0 && seconds < 1);
                assert_in_range(dn_packed_bytes(k, &p), 0, 1 << 22);
            }
}

/* On a processor the cost is proportional to the residual; GPUs hide some or all of it. */
static void a_residual_has_a_cost(void **state)
{
    danaus_device *device = *state;
    for (const kernel *k = device->kernels; k->name; k++)
        for (int form = 0; form < 4; form++) {
            double more[2];
            problem p = { .pattern = { 2, 3, 5, 7 },
                          .dtype = k->dtype,
                          .layout = (danaus_layout)(form % 2),
                          .y_cached = form / 2 };
            if (!dn_fits(k, &p))
                continue;
            for (int twice = 0; twice < 2; twice++) {
                p.batch = twice ? 1024 : 512;
                p.residual = 0;
                double without = dn_cost(device, k, &p);
                p.residual = 1;
                more[twice] = dn_cost(device, k, &p) - without;
            }
            assert_true(more[0] >= 0 && more[1] >= 0);
            if (device->backend->on_host)
                assert_true(more[0] > 0 && fabs(more[1] / more[0] - 2) < 1e-6);
        }
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(it_describes_itself, device),
        cmocka_unit_test_prestate(it_is_on_the_list, device),
        cmocka_unit_test_prestate(its_kernels_have_names_of_their_own, device),
        cmocka_unit_test_prestate(memory_goes_there_and_back, device),
        cmocka_unit_test_prestate(threads_are_what_was_asked_for, device),
        cmocka_unit_test_prestate(a_processor_has_no_streams, device),
        cmocka_unit_test_prestate(a_missing_device_is_an_argument, device),
        cmocka_unit_test_prestate(costs_are_finite_and_sizes_sane, device),
        cmocka_unit_test_prestate(a_residual_has_a_cost, device),
    };
    int failed = cmocka_run_group_tests_name("backend", tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
