/* The energy counter, on the emulated management library: it counts, any of its functions
   may fail, and devices without one say so. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "emulator/emulator.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define WATTS 100 /* of the stand-in */

static emulator_control *management, *driver;

static danaus_device *open_gpu(void)
{
    danaus_device *device = NULL;
    assert_ok(danaus_device_open("cuda:0", &device));
    return device;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Each function of the library fails at its first call, and works at the next. Comes
   first: NVML is started once. */
static void any_function_may_fail(void **state)
{
    (void)state;
    static const char *const functions[] = {
#define X(name, symbol, arguments) symbol,
#include "cuda/nvml.def"
#undef X
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        danaus_device *device = open_gpu();
        double joules = -1;
        *management = (emulator_control){ .function = functions[i], .number = 1 };
        management->error = 999;
        assert_status(danaus_device_energy(device, &joules), DANAUS_ERR_DEVICE);
        assert_non_null(strstr(danaus_error_detail(), "error 999"));
        assert_true(joules < 0);
        assert_ok(danaus_device_energy(device, &joules));
        assert_true(joules > 0);
        danaus_device_close(device);
    }
    danaus_device *device = open_gpu();
    double joules;
    *driver = (emulator_control){ .function = "cuDeviceGetPCIBusId", .number = 1 };
    driver->error = 719;
    assert_status(danaus_device_energy(device, &joules), DANAUS_ERR_DEVICE);
    assert_ok(danaus_device_energy(device, &joules));
    danaus_device_close(device);
}

static void the_counter_counts(void **state)
{
    (void)state;
    danaus_device *device = open_gpu();
    double first, last, start = seconds();
    assert_ok(danaus_device_energy(device, &first));
    do
        assert_ok(danaus_device_energy(device, &last));
    while (last - first < 0.1 * WATTS);
    double spent = seconds() - start;
    assert_true(spent > 0.08 && last - first < WATTS * (spent + 0.02));
    danaus_device_close(device);
}

static void without_a_counter_there_is_a_sentence(void **state)
{
    (void)state;
    danaus_device *device = open_gpu();
    double joules = 0;
    *management = (emulator_control){ .function = "nvmlDeviceGetTotalEnergyConsumption",
                                      .number = 1,
                                      .error = 3 };
    assert_status(danaus_device_energy(device, &joules), DANAUS_ERR_UNSUPPORTED);
    assert_non_null(strstr(danaus_error_detail(), "does not count its energy"));
    assert_status(danaus_device_energy(device, NULL), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_device_energy(NULL, &joules), DANAUS_ERR_ARGUMENT);
    danaus_device_close(device);
    assert_ok(danaus_device_open("cpu", &device));
    assert_status(danaus_device_energy(device, &joules), DANAUS_ERR_UNSUPPORTED);
    assert_non_null(strstr(danaus_error_detail(), "not counted"));
    danaus_device_close(device);
}

/* A symbol of a stand-in; NULL without it. */
static emulator_control *find(const char *library, const char *name)
{
    void *opened = dlopen(library, RTLD_NOW);
    return opened ? dlsym(opened, name) : NULL;
}

int main(void)
{
    management = find("libnvidia-ml.so.1", "emulator_nvml_control");
    driver = find("libcuda.so.1", "emulator_control_block");
    if (!management || !driver) {
        fprintf(stderr, "this test needs the emulated libraries\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_function_may_fail),
        cmocka_unit_test(the_counter_counts),
        cmocka_unit_test(without_a_counter_there_is_a_sentence),
    };
    return cmocka_run_group_tests_name("energy", tests, NULL, NULL);
}
