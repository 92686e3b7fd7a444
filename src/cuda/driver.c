/* Opening libcuda. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/driver.h"

#include "base/status.h"
#include "base/thread.h"
#include "base/library.h"

#include <string.h>

static const char *const files[] = { "libcuda.so.1", "libcuda.so", NULL };

static const char *const names[] = {
#define X(name, symbol, arguments) symbol,
#include "cuda/driver.def"
#include "cuda/driver_graph.def"
#include "cuda/driver_90.def"
#include "cuda/driver_pool.def"
#undef X
};

#define SYMBOLS ((int)(sizeof names / sizeof *names))

enum {
    OPTIONAL = 0
#define X(name, symbol, arguments) +1
#include "cuda/driver_graph.def"
#include "cuda/driver_90.def"
#include "cuda/driver_pool.def"
#undef X
};

_Static_assert(sizeof(cuda_driver) == SYMBOLS * sizeof(void (*)(void)), "one a row");

static cuda_driver opened;
static unsigned forks; /* dn_forks() when it was started */

static danaus_status start(void)
{
    forks = dn_forks();
    CUDA_TRY(&opened, Init(0));
    return DANAUS_OK;
}

static late_library library = {
    .files = files,
    .symbols = names,
    .count = SYMBOLS,
    .optional = OPTIONAL,
    .table = &opened,
    .advice = "install NVIDIA's driver, or use the device cpu",
    .start = start,
};

danaus_status dn_cuda_status(
    const cuda_driver *driver, cu_result result, const char *call)
{
    const char *text = NULL;
    if (driver->GetErrorString(result, &text) || !text)
        text = "unknown error";
    int length = (int)strcspn(call, "(");
    danaus_status status = result == CU_OUT_OF_MEMORY ? DANAUS_ERR_MEMORY
                           : result == CU_NO_DEVICE || result == CU_INVALID_DEVICE
                               ? DANAUS_ERR_UNSUPPORTED
                               : DANAUS_ERR_DEVICE;
    return dn_fail(status, "CUDA %.*s: %s (error %d)", length, call, text, result);
}

int dn_cuda_is_forked(void) { return forks != dn_forks(); }

danaus_status dn_cuda_check_process(void)
{
    return dn_cuda_is_forked()
               ? dn_fail(
                     DANAUS_ERR_UNSUPPORTED,
                     "CUDA was started before fork() made this process, which can use "
                     "no GPU: open the device in a process that was started anew "
                     "(spawn)")
               : DANAUS_OK;
}

danaus_status dn_cuda_driver(const cuda_driver **driver)
{
    TRY(dn_library_open(&library));
    TRY(dn_cuda_check_process());
    *driver = &opened;
    return DANAUS_OK;
}
