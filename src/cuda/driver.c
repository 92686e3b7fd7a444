/* Opening libcuda. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/driver.h"

#include "base/status.h"
#include "base/thread.h"

#include <dlfcn.h>
#include <string.h>

static const char *const libraries[] = { "libcuda.so.1", "libcuda.so", NULL };

static const char *const names[] = {
#define X(name, symbol, arguments) symbol,
#include "cuda/driver.def"
#include "cuda/driver_graph.def"
#include "cuda/driver_90.def"
#undef X
};

#define SYMBOLS  ((int)(sizeof names / sizeof *names))
#define OPTIONAL 13

/* dlsym's void pointer to a function, by its bytes as POSIX means it. */
static cuda_symbol find_symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);
    cuda_symbol symbol;
    memcpy(&symbol, &found, sizeof symbol);
    return symbol;
}

danaus_status dn_cuda_open_library(
    const char *const *list, const char *const *wanted, int count, int optional,
    const char *advice, cuda_symbol *table)
{
    static const int ways[] = { RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD,
                                RTLD_NOW | RTLD_LOCAL };
    void *library = NULL;
    const char *const *name = list;
    for (int way = 0; way < 2 && !library; way++)
        for (name = list; *name && !library; name++)
            library = dlopen(*name, ways[way]);
    if (!library)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "%s cannot be opened: %s", list[0], advice);
    for (int i = 0; i < count; i++) {
        table[i] = find_symbol(library, wanted[i]);
        if (!table[i] && i < count - optional) {
            dlclose(library);
            return dn_fail(
                DANAUS_ERR_UNSUPPORTED, "%s has no %s: %s", name[-1], wanted[i],
                advice);
        }
    }
    return DANAUS_OK;
}

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

static danaus_status open_driver(cuda_driver *driver)
{
    cuda_symbol symbols[SYMBOLS] = { 0 };
    cuda_driver found;
    _Static_assert(sizeof found == sizeof symbols, "a pointer a row");
    TRY(dn_cuda_open_library(
        libraries, names, SYMBOLS, OPTIONAL,
        "install NVIDIA's driver, or use the device cpu", symbols));
    memcpy(&found, symbols, sizeof found);
    CUDA_TRY(&found, Init(0));
    *driver = found;
    return DANAUS_OK;
}

danaus_status dn_cuda_driver(const cuda_driver **driver)
{
    static cuda_driver opened;
    static int is_open;
    dn_lock_process();
    danaus_status status = is_open ? DANAUS_OK : open_driver(&opened);
    is_open = status == DANAUS_OK;
    dn_unlock_process();
    if (status == DANAUS_OK)
        *driver = &opened;
    return status;
}
