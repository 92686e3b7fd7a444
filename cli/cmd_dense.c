/* danaus dense: a chain file to the dense matrix K_1 ... K_L. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "cli/operators.h"
#include "common/room.h"

static const usage use = {
    .synopsis = "CHAIN.safetensors -o W.npy",
    .about =
        "Multiplies the factors of a chain, with the orders in a transform's file,\n"
        "and writes the dense M x N matrix in the chain's element type, without the\n"
        "bias. A file - is standard input or output.\n",
    .number = { 1, 1 },
    .operands = "one chain file",
};

static int write_dense(const any_chain *chain, void *data, output *o, int as_json)
{
    danaus_tensor w = { .name = "", .data = data, .ndim = 2 };
    w.dtype = any_chain_dtype(chain);
    w.shape[0] = any_chain_rows(chain);
    w.shape[1] = any_chain_cols(chain);
    TRY(library(any_chain_to_dense(chain, data)));
    int64_t lost = tensor_non_finite(&w);
    output_judge(
        o, w.dtype, lost, tensor_elements(&w), lost ? any_chain_non_finite(chain) : 0);
    TRY(library(danaus_file_write_npy(o->path, &w)));
    return facts_report(
        facts_of(
            "rows:i cols:i dtype:t output:t", w.shape[0], w.shape[1],
            danaus_dtype_name(w.dtype), o->name),
        as_json, o, "{output}: {rows} x {cols}, {dtype}\n");
}

static int run(const char *path, output *o, int as_json)
{
    any_chain chain = { 0 };
    TRY(library(any_chain_load(path, &chain)));
    void *data = room_make(
        any_chain_rows(&chain), any_chain_cols(&chain),
        danaus_dtype_size(any_chain_dtype(&chain)), "a dense matrix");
    int status = data ? write_dense(&chain, data, o, as_json) : STATUS_FAILURE;
    free(data);
    any_chain_free(&chain);
    return status;
}

int cmd_dense(int argc, char **argv)
{
    const char *name = NULL;
    int as_json = 0;
    const arg table[] = {
        { "output", 'o', ARG_OUTPUT, &name, "FILE", "the .npy file to write" },
        { "json", 0, ARG_FLAG, &as_json, NULL, "print the facts as JSON" },
        { 0 },
    };
    TRY(args_parse(&use, table, argc, argv, NULL));
    output o = { 0 };
    int status = output_open(&o, name);
    status = status ? status : run(argv[1], &o, as_json);
    return status;
}
