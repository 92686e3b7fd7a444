/* danaus invert: a chain of square blocks to its inverse, or to solutions of W x = b; its
   condition and its determinant. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "common/open.h"
#include "common/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const usage use = {
    .command = "danaus invert",
    .synopsis = "CHAIN.safetensors [-o OUT] [--solve B.npy] [OPTION]...",
    .about =
        "Inverts a chain whose factors have square blocks (b = c), block by block, "
        "and\n"
        "writes the chain of the inverse. With --solve the inverse is not made: OUT "
        "is\n"
        "X.npy with W X = B for every row of B (layout first, the default) or every\n"
        "column (layout last), in the type of the chain. A bias is left out. Without\n"
        "-o only the facts are printed: a bound of the condition in the 1-norm, the\n"
        "worst block, and the determinant. A file - is standard input or output.\n",
    .least = 1,
    .most = 1,
    .operands = "one chain file",
};

typedef struct options {
    const char *output, *right;
    int layout, json;
    int64_t threads;
} options;

typedef struct job {
    const options *o;
    danaus_chain *chain, *inverse;
    danaus_condition condition;
    double log_modulus, phase[2];
    danaus_file *file;
    output output;
} job;

static int load(job *j, const char *path)
{
    TRY(library(danaus_chain_load(path, &j->chain)));
    if (danaus_chain_bias(j->chain))
        warning("the bias of the chain is left out");
    return STATUS_OK;
}

/* ---- solutions ---- */

static int check_shape(const job *j, const danaus_tensor *b)
{
    int64_t rows = danaus_chain_rows(j->chain);
    int fits = b->ndim == 1   ? b->shape[0] == rows
               : b->ndim == 2 ? b->shape[j->o->layout ? 0 : 1] == rows
                              : 0;
    char shape[200];
    format_shape(b, shape, sizeof shape);
    if (!fits)
        return failure(
            j->o->layout ? "B is %s, but layout last needs %" PRId64 " x batch"
                         : "B is %s, but layout first needs batch x %" PRId64,
            shape, rows);
    if (is_complex(b->dtype) && !is_complex(danaus_chain_dtype(j->chain)))
        return failure("B is complex and the chain is not");
    return STATUS_OK;
}

/* B of the chain's type becomes X. */
static int solve_for(job *j, const danaus_tensor *b, const void *data)
{
    danaus_tensor x = *b;
    int64_t count = tensor_elements(b), rows = danaus_chain_rows(j->chain);
    x.name = "";
    x.dtype = danaus_chain_dtype(j->chain);
    void *made = malloc((size_t)count * danaus_dtype_size(x.dtype) + 1);
    if (!made)
        return failure("no memory for X");
    x.data = made;
    int failed = danaus_chain_solve(
                     j->chain, (int)j->o->threads, (danaus_layout)j->o->layout,
                     count / rows, data, made, &j->condition) ||
                 (j->o->output && danaus_file_write_npy(j->output.path, &x));
    free(made);
    return library(failed);
}

static int solve(job *j)
{
    danaus_tensor b;
    TRY(open_tensor(j->o->right, NULL, &j->file, &b));
    TRY(check_shape(j, &b));
    void *owned = NULL;
    const void *data = tensor_as(&b, danaus_chain_dtype(j->chain), &owned);
    int status = data || !tensor_elements(&b) ? solve_for(j, &b, data)
                                              : failure("no memory to convert B");
    free(owned);
    return status;
}

/* ---- inverses ---- */

static int invert(job *j)
{
    return library(
        danaus_chain_invert(j->chain, (int)j->o->threads, &j->inverse, &j->condition) ||
        (j->o->output && danaus_chain_save(j->inverse, j->output.path)));
}

/* So many digits are lost that none may be right. */
static void warn(const job *j)
{
    if (j->condition.largest > 1e15)
        warning(
            "block (%" PRId64 ", %" PRId64 ") of factor %d is nearly singular: its "
            "condition is %.3g",
            j->condition.i, j->condition.j, j->condition.factor, j->condition.largest);
}

static int report(const job *j)
{
    const danaus_condition *c = &j->condition;
    int64_t rows = danaus_chain_rows(j->chain);
    const char *dtype = danaus_dtype_name(danaus_chain_dtype(j->chain));
    if (j->o->json)
        return report_json(json_pack(
            "{s:I, s:s, s:o, s:o, s:i, s:[I, I], s:o, s:[f, f], s:o}", "rows",
            (json_int_t)rows, "dtype", dtype, "condition", json_number(c->bound),
            "worst_condition", json_number(c->largest), "worst_factor", c->factor,
            "worst_block", (json_int_t)c->i, (json_int_t)c->j, "log_determinant",
            json_number(j->log_modulus), "phase", j->phase[0], j->phase[1], "output",
            json_text(j->o->output)));
    if (output_is_standard(&j->output))
        return STATUS_OK;
    printf("chain        %" PRId64 " x %" PRId64 ", %s\n", rows, rows, dtype);
    printf(
        "condition    at most %.3g; the worst block is (%" PRId64 ", %" PRId64
        ") of factor %d: %.3g\n",
        c->bound, c->i, c->j, c->factor, c->largest);
    if (is_complex(danaus_chain_dtype(j->chain)))
        printf(
            "determinant  (%.6g%+.6gi) exp(%.9g)\n", j->phase[0], j->phase[1],
            j->log_modulus);
    else
        printf(
            "determinant  %sexp(%.9g)\n", j->phase[0] < 0 ? "-" : "", j->log_modulus);
    if (j->o->output)
        printf("written      %s\n", j->o->output);
    return STATUS_OK;
}

static int run(job *j, const char *path)
{
    TRY(output_maybe(&j->output, j->o->output));
    TRY(load(j, path));
    TRY(j->o->right ? solve(j) : invert(j));
    TRY(library(danaus_chain_determinant(
        j->chain, (int)j->o->threads, &j->log_modulus, j->phase)));
    warn(j);
    return report(j);
}

int cmd_invert(int argc, char **argv)
{
    options o = { 0 };
    const arg table[] = {
        { "output", 'o', ARG_OUTPUT, &o.output, "FILE",
          "the chain file to write, or X.npy with --solve" },
        { "solve", 0, ARG_INPUT, &o.right, "B.npy",
          "right-hand sides: write solutions, no inverse" },
        { "layout", 0, ARG_WORD, &o.layout, "first|last",
          "where B and X have the batch (default first)" },
        { "threads", 0, ARG_COUNT, &o.threads, "N", "0: one for each processor" },
        { "json", 0, ARG_FLAG, &o.json, NULL, "print the facts as JSON" },
        { 0 },
    };
    TRY(args_parse(&use, table, argc, argv, NULL));
    if (o.threads > 1024)
        return usage_error("--threads is out of range");
    job j = { .o = &o };
    int status = run(&j, argv[1]);
    danaus_file_close(j.file);
    danaus_chain_destroy(j.inverse);
    danaus_chain_destroy(j.chain);
    return output_close(&j.output, status);
}
