/* Kernel texts as programs of OpenCL: compiled, as images on the disk, and loaded. */
// SPDX-License-Identifier: Apache-2.0
#include "opencl/opencl.h"

#include "base/mem.h"
#include "base/status.h"
#include "gpu/run/images/cache.h"

#include <limits.h>
#include <string.h>

static const char options[] = "-cl-std=CL1.2 -w";

/* How a source begins. Where the disk keeps no images, an image is its source: then a driver
   builds it once, not a second time from its binary. */
static const char mark[] = "// OpenCL C 1.2\n";

/* ---- texts with what they include ---- */

typedef struct source {
    char *at;
    size_t length, capacity;
} source;

static danaus_status append(source *s, const char *from, size_t count)
{
    TRY(dn_reserve_many(&s->at, s->length, count, &s->capacity, 1, "a kernel's text"));
    memcpy(s->at + s->length, from, count);
    s->length += count;
    return DANAUS_OK;
}

/* The name that a line includes; a length of 0: it includes nothing. */
static span included_by(const char *line)
{
    const char *at = line + strspn(line, " ");
    if (*at != '#')
        return (span){ at, 0 };
    at += 1 + strspn(at + 1, " ");
    if (strncmp(at, "include \"", 9))
        return (span){ at, 0 };
    at += 9;
    return (span){ at, strcspn(at, "\"") };
}

static danaus_status append_text(source *s, const char *content);

static danaus_status append_included(source *s, span name)
{
    int n = 0;
    while (dn_gpu_texts[n].name && !dn_span_is(name, dn_gpu_texts[n].name))
        n++;
    if (!dn_gpu_texts[n].name)
        return dn_fail(
            DANAUS_ERR_DEVICE, "there is no text %.*s", (int)name.length, name.text);
    return append_text(s, dn_gpu_texts[n].content);
}

static danaus_status append_text(source *s, const char *content)
{
    while (*content) {
        size_t line = strcspn(content, "\n");
        line += content[line] == '\n';
        span name = included_by(content);
        TRY(name.length ? append_included(s, name) : append(s, content, line));
        content += line;
    }
    return DANAUS_OK;
}

/* ---- compiling ---- */

hash128 dn_opencl_hash(hash128 hash, int ordinal)
{
    static const cl_device_info said[] = { CL_DEVICE_NAME, CL_DEVICE_VERSION,
                                           CL_DRIVER_VERSION };
    opencl_gpu *g = dn_opencl_take_open(ordinal);
    hash = dn_hash_text(hash, options);
    for (int i = 0; g && i < 3; i++) {
        char words[1024] = "";
        g->cl->GetDeviceInfo(g->id, said[i], sizeof words, words, NULL);
        hash = dn_hash_text(hash, words);
    }
    if (g)
        dn_opencl_drop(g);
    return hash;
}

static char *read_log(const opencl_gpu *g, cl_program program)
{
    size_t size = 0;
    if (g->cl->GetProgramBuildInfo(
            program, g->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &size))
        return NULL;
    char *log = dn_calloc(size + 1, 1);
    if (log && size)
        g->cl->GetProgramBuildInfo(
            program, g->id, CL_PROGRAM_BUILD_LOG, size, log, NULL);
    return log;
}

/* The first line of the log that speaks of an error, if there is one. */
static danaus_status refuse(cl_int error, const char *log)
{
    const char *line = log ? strstr(log, "error") : NULL;
    if (!line)
        return dn_fail(
            DANAUS_ERR_DEVICE, "OpenCL compiles nothing: error %d", (int)error);
    while (line > log && line[-1] != '\n')
        line--;
    return dn_fail(
        DANAUS_ERR_DEVICE, "OpenCL refuses a kernel: %.*s", (int)strcspn(line, "\n"),
        line);
}

static danaus_status read_image(
    const opencl_gpu *g, cl_program program, void **image, size_t *bytes)
{
    size_t size = 0;
    OPENCL_TRY(
        g->cl,
        GetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL));
    unsigned char *memory = dn_alloc(size ? size : 1);
    if (!memory)
        return dn_fail_memory(size, "a compiled kernel");
    cl_int error = g->cl->GetProgramInfo(
        program, CL_PROGRAM_BINARIES, sizeof memory, &memory, NULL);
    if (error) {
        dn_free(memory);
        return dn_opencl_status(error, "GetProgramInfo");
    }
    *image = memory;
    *bytes = size;
    return DANAUS_OK;
}

/* *refused, unless it is NULL, becomes 1 where the program is at fault. */
static danaus_status build(const opencl_gpu *g, cl_program program, int *refused)
{
    cl_int error = g->cl->BuildProgram(program, 1, &g->id, options, NULL, NULL);
    if (!error)
        return DANAUS_OK;
    char *log = read_log(g, program);
    danaus_status status = refuse(error, log);
    dn_free(log);
    if (refused)
        *refused = 1;
    return status;
}

static danaus_status compile(
    const opencl_gpu *g, const source *s, void **image, size_t *bytes, char **log,
    int *refused)
{
    const char *whole = s->at;
    cl_int error = 0;
    cl_program program =
        g->cl->CreateProgramWithSource(g->context, 1, &whole, &s->length, &error);
    if (!program)
        return dn_opencl_status(error, "CreateProgramWithSource");
    danaus_status status = build(g, program, refused);
    if (status == DANAUS_OK)
        status = read_image(g, program, image, bytes);
    if (status == DANAUS_OK && log)
        *log = read_log(g, program);
    g->cl->ReleaseProgram(program);
    return status;
}

static danaus_status write_source(source *s, const char *content)
{
    TRY(append(s, mark, strlen(mark)));
    return append_text(s, content);
}

/* The source becomes the image, or what that is compiled from. */
static danaus_status make_image(
    const opencl_gpu *g, source *s, void **image, size_t *bytes, char **log,
    int *refused)
{
    char folder[PATH_MAX];
    if (log || dn_cache_folder(folder))
        return compile(g, s, image, bytes, log, refused);
    *image = s->at;
    *bytes = s->length;
    s->at = NULL;
    return DANAUS_OK;
}

danaus_status dn_opencl_compile(
    const char *content, int ordinal, void **image, size_t *bytes, char **log,
    int *refused)
{
    opencl_gpu *g = dn_opencl_take_open(ordinal);
    source s = { .at = NULL };
    if (!g)
        return dn_fail(DANAUS_ERR_ARGUMENT, "opencl:%d is not open", ordinal);
    danaus_status status = write_source(&s, content);
    if (status == DANAUS_OK)
        status = make_image(g, &s, image, bytes, log, refused);
    dn_opencl_drop(g);
    dn_free(s.at);
    return status;
}

/* ---- loading ---- */

static cl_program make_program(
    const opencl_gpu *g, const void *image, size_t bytes, cl_int *error)
{
    const unsigned char *binary = image;
    const char *whole = image;
    cl_int of_image = 0;
    if (bytes > strlen(mark) && !memcmp(whole, mark, strlen(mark)))
        return g->cl->CreateProgramWithSource(g->context, 1, &whole, &bytes, error);
    return g->cl->CreateProgramWithBinary(
        g->context, 1, &g->id, &bytes, &binary, &of_image, error);
}

danaus_status dn_opencl_create_kernel(const opencl_functions *cl, opencl_kernel *k)
{
    cl_int error = 0;
    cl_kernel made = cl->CreateKernel(k->program, k->entry, &error);
    if (!made)
        return dn_opencl_status(error, "CreateKernel");
    if (k->kernel)
        cl->ReleaseKernel(k->kernel);
    k->kernel = made;
    k->pointed = 0;
    return DANAUS_OK;
}

static danaus_status make_kernel(
    const opencl_gpu *g, const void *image, size_t bytes, int *refused,
    opencl_kernel *k)
{
    cl_int error = 0;
    TRY(dn_lock_create(&k->lock));
    k->program = make_program(g, image, bytes, &error);
    *refused |= error == CL_INVALID_BINARY;
    if (!k->program)
        return dn_opencl_status(error, "CreateProgram");
    TRY(build(g, k->program, refused));
    danaus_status status = dn_opencl_create_kernel(g->cl, k);
    *refused |= status && status != DANAUS_ERR_MEMORY;
    TRY(status);
    OPENCL_TRY(
        g->cl,
        GetKernelInfo(
            k->kernel, CL_KERNEL_NUM_ARGS, sizeof k->arguments, &k->arguments, NULL));
    return DANAUS_OK;
}

void dn_opencl_unload(gpu_shared *shared, void *module)
{
    const opencl_gpu *g = (const opencl_gpu *)shared;
    opencl_kernel *k = module;
    if (k->kernel)
        g->cl->ReleaseKernel(k->kernel);
    if (k->program)
        g->cl->ReleaseProgram(k->program);
    dn_lock_destroy(k->lock);
    dn_free(k);
}

danaus_status dn_opencl_load(
    gpu_device *d, const void *image, size_t bytes, const char *entry, int *refused,
    gpu_loaded *to)
{
    opencl_kernel *k = dn_calloc(1, sizeof *k);
    if (!k)
        return dn_fail_memory(sizeof *k, "a kernel");
    k->entry = entry;
    danaus_status status =
        make_kernel((const opencl_gpu *)d->shared, image, bytes, refused, k);
    if (status)
        dn_opencl_unload(d->shared, k);
    else
        to->module = to->function = k;
    return status;
}
