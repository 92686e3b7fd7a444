/* danaus transform: a known transform as an exact chain, with its orders, to a file. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "cli/operators.h"

#include <limits.h>

static const usage use = {
    .synopsis = "NAME N -o CHAIN.safetensors [OPTION]...",
    .about =
        "Writes an N x N transform as a chain of Kronecker-sparse factors that is\n"
        "exact but for rounding. Most have their own order of inputs or outputs; the\n"
        "file has it, and danaus apply and danaus dense use it. NAME is one of\n\n"
        "  dft walsh-hadamard hartley dct1 .. dct4 dst1 .. dst4\n"
        "  noiselet                     complex, N a power of two\n"
        "  givens --angles A.npy        rotations on a butterfly, N a power of two\n"
        "  haar, db1 .. db20            Daubechies' wavelets, periodic; see --levels\n"
        "  circulant --values V.npy     first column v[N]\n"
        "  toeplitz --values V.npy      v[2N-1]: the first row backwards, its corner,\n"
        "                               and the rest of the first column\n\n"
        "N has prime factors up to 61 where it need not be a power of two; for dct1\n"
        "N - 1 has them, for dst1 N + 1.\n",
    .number = { 2, 2 },
    .operands = "the name of a transform and its length",
    .words = "dft|walsh-hadamard|hartley|dct1|dct2|dct3|dct4|dst1|dst2|dst3|dst4|"
             "noiselet|givens|haar|db2|db3|db4|circulant|toeplitz",
};

typedef struct job {
    const char *values, *angles;
    int orthonormal, inverse, json;
    int64_t levels;
    danaus_dtype dtype;
    const char *name;
    danaus_transform_desc desc;
    danaus_file *file;
    void *owned; /* a converted copy */
    any_chain made;
    int64_t operands_lost; /* of values or angles: infinite or NaN */
    output output;
} job;

/* ---- which transform ---- */

/* "haar", "db4": wavelets by their moments; others by the library's names. */
static int choose_kind(job *j)
{
    char *end;
    if (!strcmp(j->name, "haar") || !strncmp(j->name, "db", 2)) {
        long moments = *j->name == 'h' ? 1 : strtol(j->name + 2, &end, 10);
        if (*j->name == 'd' && (end == j->name + 2 || *end || moments < 1))
            return usage_error("there is no transform \"%.40s\" (try --help)", j->name);
        j->desc.kind = DANAUS_WAVELET;
        j->desc.moments = moments < INT_MAX ? (int)moments : INT_MAX;
        return STATUS_OK;
    }
    for (int k = 0; danaus_transform_name((danaus_transform)k); k++)
        if (k != DANAUS_WAVELET &&
            !strcmp(j->name, danaus_transform_name((danaus_transform)k))) {
            j->desc.kind = (danaus_transform)k;
            return STATUS_OK;
        }
    return usage_error("there is no transform \"%.40s\" (try --help)", j->name);
}

static int choose_length(job *j, const char *text)
{
    int is_length = args_integer(text, &j->desc.n);
    return refuse_if(
        !is_length, "the length is an integer from 1 to 2^63 - 1, not \"%.40s\"", text);
}

static int check_options(const job *j)
{
    int values = j->desc.kind == DANAUS_CIRCULANT || j->desc.kind == DANAUS_TOEPLITZ;
    int wavelet = j->desc.kind == DANAUS_WAVELET,
        givens = j->desc.kind == DANAUS_GIVENS;
    if (values != (j->values != NULL))
        return usage_error(
            values ? "%s takes its numbers from --values V.npy"
                   : "--values goes with circulant and toeplitz, not with %s",
            j->name);
    if (givens != (j->angles != NULL))
        return usage_error(
            givens ? "%s takes its rotations from --angles A.npy"
                   : "--angles goes with givens, not with %s",
            j->name);
    if (!wavelet && j->levels)
        return usage_error("--levels goes with wavelets, not with %s", j->name);
    return args_most("levels", j->levels, INT_MAX);
}

/* ---- numbers from files ---- */

/* A file's array in a type: a vector of so many elements or, with `rows`, such a matrix. */
static int read_numbers(
    job *j, const char *path, danaus_dtype dtype, int64_t rows, int64_t elements,
    const void **data)
{
    danaus_tensor t;
    TRY(open_array(path, &j->file, &t));
    if (is_complex(t.dtype) && !is_complex(dtype))
        return failure(
            "%s is complex (%s), and real numbers (%s) are needed", path,
            danaus_dtype_name(t.dtype), danaus_dtype_name(dtype));
    if (tensor_elements(&t) == elements && t.ndim != 1 && !rows)
        return failure("%s has %d axes, where a vector is needed", path, t.ndim);
    if (tensor_elements(&t) == elements && rows && t.ndim != 1 &&
        (t.ndim != 2 || t.shape[0] != rows))
        return failure(
            "%s is no matrix of %" PRId64 " x %" PRId64 " angles", path, rows,
            elements / rows);
    if (tensor_elements(&t) != elements)
        return failure(
            "%s has %" PRId64 " numbers, where %" PRId64 " are needed", path,
            tensor_elements(&t), elements);
    j->operands_lost = tensor_non_finite(&t);
    return tensor_as(&t, dtype, path, data, &j->owned);
}

static int64_t levels_of(int64_t n)
{
    int64_t levels = 0;
    while (n >> (levels + 1))
        levels++;
    return levels;
}

static int load_numbers(job *j)
{
    const void *data = NULL;
    int64_t n = j->desc.n;
    int status = STATUS_OK;
    if (n > INT32_MAX) /* the library says so */
        return STATUS_OK;
    if (j->values) {
        int64_t count = j->desc.kind == DANAUS_TOEPLITZ ? 2 * n - 1 : n;
        status = read_numbers(j, j->values, j->desc.dtype, 0, count, &data);
        j->desc.values = data;
    } else if (j->angles) {
        int64_t levels = levels_of(n), count = levels * (n / 2);
        status = read_numbers(j, j->angles, DANAUS_F64, levels, count, &data);
        j->desc.angles = data;
    }
    return status;
}

/* ---- making ---- */

static int make_transform(job *j)
{
    int complex = j->desc.kind == DANAUS_DFT || j->desc.kind == DANAUS_NOISELET;
    j->desc.dtype = j->dtype ? j->dtype : complex ? DANAUS_C64 : DANAUS_F32;
    j->desc.orthonormal = j->orthonormal;
    j->desc.inverse = j->inverse;
    j->desc.levels = (int)j->levels;
    TRY(load_numbers(j));
    return library(danaus_operator_transform(&j->desc, &j->made.made));
}

/* ---- reports ---- */

static int report(const job *j)
{
    const any_chain *made = &j->made;
    double numbers = (double)any_chain_rows(made) * (double)any_chain_cols(made);
    json_t *facts = any_chain_facts(made, "transform", j->name, &j->output);
    json_t *more = facts_of(
        "chains:d fraction:n", danaus_operator_count(made->made),
        (double)any_chain_parameters(made) / numbers);
    json_object_update(facts, more);
    json_decref(more);
    return facts_report(
        facts, j->json, &j->output,
        "{output}: {transform}, {rows} x {cols}, {dtype}, {chains:#chain}, "
        "{parameters} parameters, {fraction*100:.3g}% of dense\n");
}

static int run(job *j, const char *length)
{
    TRY(choose_kind(j));
    TRY(choose_length(j, length));
    TRY(check_options(j));
    TRY(output_open(&j->output, j->output.name));
    TRY(make_transform(j));
    TRY(any_chain_write(&j->made, &j->output, j->operands_lost));
    return report(j);
}

int cmd_transform(int argc, char **argv)
{
    job j = { 0 };
    const arg table[] = {
        { "output", 'o', ARG_OUTPUT, &j.output.name, "FILE",
          "the chain file to write" },
        { "orthonormal", 0, ARG_FLAG, &j.orthonormal, NULL,
          "scale so that it is orthogonal; wavelets, noiselets\nand givens always "
          "are" },
        { "inverse", 0, ARG_FLAG, &j.inverse, NULL, "write the inverse" },
        { "levels", 0, ARG_NUMBER, &j.levels, "L",
          "levels of wavelets: N is a multiple of 2^L (default\nas many as N allows)" },
        { "values", 0, ARG_INPUT, &j.values, "V.npy",
          "values of a circulant or Toeplitz matrix" },
        { "angles", 0, ARG_INPUT, &j.angles, "A.npy",
          "log2(N) x N/2 angles of rotations, in radians" },
        { "dtype", 0, ARG_DTYPE, &j.dtype, "TYPE",
          "type of the factors (default f32, and c64 for dft\nand noiselet)" },
        { "json", 0, ARG_FLAG, &j.json, NULL, "print the facts as JSON" },
        { 0 },
    };
    TRY(args_parse(&use, table, argc, argv, NULL));
    j.name = argv[1];
    int status = run(&j, argv[2]);
    any_chain_free(&j.made);
    danaus_file_close(j.file);
    free(j.owned);
    return status;
}
