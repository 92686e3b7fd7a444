/* Opening libnvrtc and compiling with it. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda.h"
#include "cuda/nvrtc.h"

#include "base/mem.h"
#include "base/status.h"
#include "gpu/gpu.h"

#include <stdio.h>
#include <string.h>

#define COMPILATION_FAILED 6 /* NVRTC_ERROR_COMPILATION */
#define MOST_HEADERS       64
#define MOST_ARCHS         64
#define MOST_OPTION        64 /* bytes */

typedef struct nvrtc_program_ *nvrtc_program;

#define FUNCTIONS "cuda/nvrtc.def"
#include "base/library.inc"

/* Beside the target. */
static const char *const options[] = { "--std=c++17",
                                       "--device-as-default-execution-space" };

#define OPTIONS ((int)(sizeof options / sizeof *options))

static const char *const files[] = {
    "libnvrtc.so.13",
    "libnvrtc.so.12",
    "libnvrtc.so.11.2",
    "libnvrtc.so",
    "/usr/local/cuda/lib64/libnvrtc.so.13",
    "/usr/local/cuda/lib64/libnvrtc.so.12",
    "/usr/local/cuda/lib64/libnvrtc.so",
    NULL,
};

late_library dn_cuda_nvrtc = {
    .files = files,
    .symbols = names,
    .count = SYMBOLS,
    .table = &opened,
    .advice = "install NVRTC, from the CUDA toolkit or with pip install "
              "nvidia-cuda-nvrtc, and name its folder in DANAUS_NVRTC",
    .name = "nvrtc",
    .variable = "DANAUS_NVRTC",
};

/* The newest architecture that the compiler knows and the device can run; *exact: it is
   the device's own, so that machine code can be made. */
static danaus_status find_target(const functions *n, int arch, int *target, int *exact)
{
    int count = 0, archs[MOST_ARCHS], best = 0;
    if (n->GetNumSupportedArchs(&count) || count > MOST_ARCHS ||
        n->GetSupportedArchs(archs))
        return dn_fail(DANAUS_ERR_DEVICE, "NVRTC does not say what it compiles for");
    for (int i = 0; i < count; i++)
        if (archs[i] <= arch && archs[i] > best)
            best = archs[i];
    if (!best)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "NVRTC does not compile for compute capability %d.%d: install an older one",
            arch / 10, arch % 10);
    *target = best;
    *exact = best == arch;
    return DANAUS_OK;
}

static danaus_status create(
    const functions *n, const char *source, nvrtc_program *program)
{
    const char *header[MOST_HEADERS], *name[MOST_HEADERS];
    int headers = 0;
    for (const gpu_text *t = dn_gpu_texts; t->name; t++) {
        const char *end = strrchr(t->name, '.');
        if (!strcmp(end, ".h") || !strcmp(end, ".cuh")) {
            if (headers == MOST_HEADERS)
                return dn_fail(
                    DANAUS_ERR_DEVICE, "texts may include more than %d others",
                    MOST_HEADERS);
            header[headers] = t->content;
            name[headers++] = t->name;
        }
    }
    if (n->CreateProgram(program, source, "danaus.cu", headers, header, name))
        return dn_fail(DANAUS_ERR_MEMORY, "NVRTC cannot make a program");
    return DANAUS_OK;
}

static char *read_log(const functions *n, nvrtc_program program)
{
    size_t size = 0;
    if (n->GetProgramLogSize(program, &size))
        return NULL;
    char *log = dn_calloc(size + 1, 1);
    if (log && size)
        n->GetProgramLog(program, log);
    return log;
}

/* The first line of the log that speaks of an error, if there is one. */
static danaus_status refuse(int error, const char *log)
{
    const char *line = log ? strstr(log, "error") : NULL;
    if (!line)
        return dn_fail(DANAUS_ERR_DEVICE, "NVRTC compiles nothing: error %d", error);
    while (line > log && line[-1] != '\n')
        line--;
    return dn_fail(
        DANAUS_ERR_DEVICE, "NVRTC refuses a kernel: %.*s", (int)strcspn(line, "\n"),
        line);
}

static danaus_status read_image(
    const functions *n, nvrtc_program program, int exact, void **image, size_t *bytes)
{
    size_t size = 0;
    int failed =
        exact ? n->GetCUBINSize(program, &size) : n->GetPTXSize(program, &size);
    char *memory = failed ? NULL : dn_alloc(size);
    if (!failed && !memory)
        return dn_fail_memory(size, "a compiled kernel");
    if (failed || (exact ? n->GetCUBIN(program, memory) : n->GetPTX(program, memory))) {
        dn_free(memory);
        return dn_fail(DANAUS_ERR_DEVICE, "NVRTC does not give its result");
    }
    *image = memory;
    *bytes = size;
    return DANAUS_OK;
}

/* "sm_90a" or, for PTX, "compute_80" as an option. */
static void write_target(int target, int exact, char option[MOST_OPTION])
{
    snprintf(
        option, MOST_OPTION, "--gpu-architecture=%s_%d%s", exact ? "sm" : "compute",
        target, exact && target == 90 ? "a" : "");
}

hash128 dn_nvrtc_hash(hash128 hash, int arch)
{
    char target[MOST_OPTION];
    write_target(arch, 1, target);
    hash = dn_hash_text(hash, target);
    for (int i = 0; i < OPTIONS; i++)
        hash = dn_hash_text(hash, options[i]);
    return hash;
}

danaus_status dn_nvrtc_compile(
    const char *source, int arch, void **image, size_t *bytes, char **log, int *refused)
{
    const functions *n = &opened;
    nvrtc_program program;
    int target = 0, exact = 0, count = OPTIONS;
    char architecture[MOST_OPTION];
    const char *given[OPTIONS + 2] = { architecture };
    TRY(dn_library_open(&dn_cuda_nvrtc));
    TRY(find_target(n, arch, &target, &exact));
    write_target(target, exact, architecture);
    memcpy(given + 1, options, sizeof options);
    if (log)
        given[++count] = "--ptxas-options=-v";
    TRY(create(n, source, &program));
    int failed = n->CompileProgram(program, count + 1, given);
    if (failed == COMPILATION_FAILED && refused)
        *refused = 1;
    char *said = failed || log ? read_log(n, program) : NULL;
    danaus_status status =
        failed ? refuse(failed, said) : read_image(n, program, exact, image, bytes);
    n->DestroyProgram(&program);
    if (log && status == DANAUS_OK)
        *log = said;
    else
        dn_free(said);
    return status;
}
