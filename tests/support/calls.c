// SPDX-License-Identifier: Apache-2.0
#include "support/calls.h"

#include "support/device.h"
#include "support/life.h"
#include "support/test.h"

#include <string.h>

const char *const driver_functions[] = {
#define X(name, symbol, arguments) symbol,
#include "cuda/driver.def"
#include "cuda/driver_graph.def"
#include "cuda/driver_90.def"
#include "cuda/driver_pool.def"
#include "cuda/blas.def"
#undef X
};

const size_t driver_function_count = sizeof driver_functions / sizeof *driver_functions;

int gives_back(const char *function)
{
    static const char *const names[] = {
        "cuCtxGetCurrent",  "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
        "cuMemFree_v2",     "cuModuleUnload",      "cuDevicePrimaryCtxRelease_v2",
        "cublasDestroy_v2", "cuEventDestroy_v2",   "cuStreamDestroy_v2",
        "cuGraphDestroy",   "cuGraphExecDestroy",  "cuMemFreeAsync",
        "cuMemFreeHost",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(function, names[i]))
            return 1;
    return 0;
}

int is_mended(const char *function)
{
    return strstr(function, "CaptureInfo") || strstr(function, "GetNodes") ||
           strstr(function, "SetParams") || !strncmp(function, "cuModule", 8) ||
           !strncmp(function, "cuFunc", 6) || strstr(function, "Capture_v2") ||
           strstr(function, "EndCapture") || !strcmp(function, "cuStreamCreate") ||
           strstr(function, "Instantiate") ||
           !strcmp(function, "cuStreamIsCapturing") ||
           !strcmp(function, "cuThreadExchangeStreamCaptureMode") ||
           !strcmp(function, "cuMemHostAlloc") ||
           !strcmp(function, "cuPointerGetAttribute") ||
           !strcmp(function, "cuEventCreate") || !strcmp(function, "cuEventRecord") ||
           !strcmp(function, "cuStreamWaitEvent");
}

void fail_each_call(
    emulator_control *control, const char *function, whole_life *live, const void *arg,
    const array *expected)
{
    array found = array_make(expected->dtype, expected->count);
    int sparing = share_of_cases() > 100; /* of the later calls, with a sanitizer */
    for (int n = 1; n < MOST_CALLS; n += 1 + sparing * n) {
        *control = (emulator_control){ .function = function, .error = FAILURE };
        control->number = n;
        danaus_status status = live(arg, found.data);
        int reached = control->calls >= n;
        control->function = NULL;
        if (status == DANAUS_OK)
            assert_true(array_same(&found, expected));
        else
            assert_true(reached && danaus_error_detail()[0]);
        if (!gives_back(function))
            expect_nothing_lost(control, function, n);
        else if (strcmp(function, "cublasDestroy_v2") && control->handles)
            fail_msg("call %d of %s fails and a handle is lost", n, function);
        if (!reached) {
            array_free(&found);
            return;
        }
        if (status == DANAUS_OK && !gives_back(function) && !is_mended(function) &&
            !control->in_capture)
            fail_msg("call %d of %s fails, and nobody hears of it", n, function);
    }
    fail_msg("%s is called more than %d times", function, MOST_CALLS);
}

void fail_all_calls(
    emulator_control *control, whole_life *live, const void *arg, int64_t results)
{
    array expected = array_make(DANAUS_F32, results);
    *control = (emulator_control){ 0 };
    assert_ok(live(arg, expected.data));
    for (size_t i = 0; i < driver_function_count; i++) {
        /* The one is not called again once it worked; the other is called to wait for
           what no longer matters, too. */
        if (strcmp(driver_functions[i], "cuInit") &&
            strcmp(driver_functions[i], "cuStreamSynchronize"))
            fail_each_call(control, driver_functions[i], live, arg, &expected);
    }
    array_free(&expected);
}
