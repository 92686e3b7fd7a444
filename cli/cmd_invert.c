/* danaus invert: a chain of square blocks to its inverse, or to solutions of W x = b; its
   condition and its determinant. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "common/room.h"

#include <math.h>

static const usage use = {
    .synopsis = "CHAIN.safetensors [-o OUT] [--solve B.npy] [OPTION]...",
    .about =
        "Inverts a chain whose factors have square blocks (b = c), block by block,\n"
        "and writes the chain of the inverse. With --solve it computes no inverse:\n"
        "OUT is X.npy with W X = B for every row of B (layout first, the default) or\n"
        "every column (layout last), in the type of the chain. The bias is left out.\n"
        "Without -o only the facts are printed: an upper bound on the condition\n"
        "number in the 1-norm, the worst block, and the determinant. A file - is\n"
        "standard input or output.\n",
    .number = { 1, 1 },
    .operands = "one chain file",
};

typedef struct job {
    const char *right;
    int layout, json;
    int64_t threads;
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
               : b->ndim == 2 ? b->shape[j->layout ? 0 : 1] == rows
                              : 0;
    char shape[200];
    format_shape(b, shape, sizeof shape);
    if (!fits)
        return failure(
            j->layout ? "B is %s, but layout last needs %" PRId64 " x batch"
                      : "B is %s, but layout first needs batch x %" PRId64,
            shape, rows);
    return fail_if(
        is_complex(b->dtype) && !is_complex(danaus_chain_dtype(j->chain)),
        "B is complex and the chain is not");
}

/* B of the chain's type becomes X. */
static int solve_for(job *j, const danaus_tensor *b, const void *data)
{
    danaus_tensor x = *b;
    int64_t count = tensor_elements(b), rows = danaus_chain_rows(j->chain);
    x.name = "";
    x.dtype = danaus_chain_dtype(j->chain);
    void *made = room_make(1, count, danaus_dtype_size(x.dtype), "X");
    if (!made)
        return STATUS_FAILURE;
    x.data = made;
    danaus_status status = danaus_chain_solve(
        j->chain, (int)j->threads, (danaus_layout)j->layout, count / rows, data, made,
        &j->condition);
    int64_t lost = status == DANAUS_OK ? tensor_non_finite(&x) : 0;
    output_judge(
        &j->output, x.dtype, lost, count,
        lost ? tensor_non_finite(b) + chain_non_finite(j->chain) : 0);
    if (status == DANAUS_OK && j->output.name)
        status = danaus_file_write_npy(j->output.path, &x);
    free(made);
    return library(status);
}

static int solve(job *j)
{
    danaus_tensor b;
    TRY(open_array(j->right, &j->file, &b));
    TRY(check_shape(j, &b));
    void *owned = NULL;
    const void *data;
    int status =
        vectors_as(&b, danaus_chain_dtype(j->chain), j->layout, "B", &data, &owned);
    status = status ? status : solve_for(j, &b, data);
    free(owned);
    return status;
}

/* ---- inverses ---- */

static int invert(job *j)
{
    TRY(library(
        danaus_chain_invert(j->chain, (int)j->threads, &j->inverse, &j->condition)));
    output_judge(
        &j->output, danaus_chain_dtype(j->inverse), chain_non_finite(j->inverse),
        danaus_chain_parameters(j->inverse), chain_non_finite(j->chain));
    return library(j->output.name && danaus_chain_save(j->inverse, j->output.path));
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
    danaus_dtype dtype = danaus_chain_dtype(j->chain);
    json_t *facts = facts_of(
        "rows:i dtype:t condition:n worst_condition:n worst_factor:d worst_block:o "
        "log_determinant:n phase:o output:t",
        danaus_chain_rows(j->chain), danaus_dtype_name(dtype), c->bound, c->largest,
        c->factor, json_pack("[I, I]", (json_int_t)c->i, (json_int_t)c->j),
        j->log_modulus, json_pack("[f, f]", j->phase[0], j->phase[1]), j->output.name);
    if (!j->json && !output_is_standard(&j->output))
        facts_print(
            facts, "chain        {rows} x {rows}, {dtype}\n"
                   "condition    at most {condition:.3g}; the worst block is "
                   "({worst_block.0}, {worst_block.1}) of factor {worst_factor}: "
                   "{worst_condition:.3g}\ndeterminant  ");
    return facts_report(
        facts, j->json, &j->output,
        is_complex(dtype)
            ? "({phase.0:.6g}{phase.1:+.6g}i) exp({log_determinant:.9g})\n"
              "[written      {output}\n]"
        : j->phase[0] < 0 ? "-exp({log_determinant:.9g})\n[written      {output}\n]"
                          : "exp({log_determinant:.9g})\n[written      {output}\n]");
}

static int run(job *j, const char *path)
{
    TRY(output_maybe(&j->output, j->output.name));
    TRY(load(j, path));
    TRY(j->right ? solve(j) : invert(j));
    TRY(library(danaus_chain_determinant(
        j->chain, (int)j->threads, &j->log_modulus, j->phase)));
    warn(j);
    return report(j);
}

int cmd_invert(int argc, char **argv)
{
    job j = { 0 };
    const arg table[] = {
        { "output", 'o', ARG_OUTPUT, &j.output.name, "FILE",
          "the chain file to write, or X.npy with --solve" },
        { "solve", 0, ARG_INPUT, &j.right, "B.npy",
          "right-hand sides: write solutions, no inverse" },
        { "layout", 0, ARG_WORD, &j.layout, "first|last",
          "the batch axis of B and X (default first)" },
        { "threads", 0, ARG_COUNT, &j.threads, "N", "0: one for each processor" },
        { "json", 0, ARG_FLAG, &j.json, NULL, "print the facts as JSON" },
        { 0 },
    };
    TRY(args_parse(&use, table, argc, argv, NULL));
    TRY(args_most("threads", j.threads, 1024));
    int status = run(&j, argv[1]);
    danaus_file_close(j.file);
    danaus_chain_destroy(j.inverse);
    danaus_chain_destroy(j.chain);
    return status;
}
