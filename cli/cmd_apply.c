/* danaus apply: y = residual + activation(scale W x + bias) for a matrix of inputs, file to
   file. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "cli/operators.h"
#include "common/room.h"

static const usage use = {
    .synopsis = "CHAIN.safetensors X.npy -o Y.npy [OPTION]...",
    .about =
        "Multiplies inputs by the M x N matrix of a chain and adds its bias, if any.\n"
        "X is batch x N (layout first, the default) or N x batch (layout last), and\n"
        "Y has the same layout with M in place of N. A vector of N elements gives\n"
        "one of M. --adjoint transposes (and conjugates) the matrix, exchanges M and\n"
        "N, and leaves the bias out. --scale multiplies W x by a number. --residual\n"
        "adds an array of Y's shape to the result.\n\n"
        "The product is computed in the type of X, or in --dtype, and Y has that\n"
        "type. If the chain or X is complex, so is the product. Sums and transforms\n"
        "are computed in the type of their file. A file - is standard input or\n"
        "output.\n",
    .number = { 2, 2 },
    .operands = "a chain file and a file of inputs",
};

typedef struct apply {
    device_options where;
    plan_options how;
    const char *tensor, *residual_path;
    double scale;
    int layout, adjoint, activation, json;
    danaus_dtype type;
    int64_t repeat;
    any_chain any; /* a chain of the same realness as the product, or an operator */
    danaus_file *file, *residual_file;
    danaus_tensor inputs_read, residual_read; /* as the files have them */
    danaus_device *device;
    danaus_ks_plan *plan;
    danaus_ks_weights *weights;
    danaus_operator_plan *made; /* in place of both, of an operator */
    danaus_dtype dtype;
    int64_t batch, inputs, outputs;
    int vector; /* X has one dimension */
    output output;
    timing time;
    void *x, *y, *residual; /* memory of the device; the last may be NULL */
} apply;

static danaus_dtype complex_of(danaus_dtype dtype)
{
    if (is_complex(dtype))
        return dtype;
    return dtype == DANAUS_F64 ? DANAUS_C128 : DANAUS_C64;
}

/* Replaces a real chain by the same chain in complex numbers. */
static int make_chain_complex(apply *a)
{
    danaus_chain *chain;
    danaus_dtype to = complex_of(danaus_chain_dtype(a->any.chain));
    TRY(library(danaus_chain_convert(a->any.chain, to, &chain)));
    danaus_chain_destroy(a->any.chain);
    a->any.chain = chain;
    return STATUS_OK;
}

static int choose_dtype(apply *a, danaus_dtype x)
{
    danaus_dtype chain = any_chain_dtype(&a->any);
    int needs_complex = is_complex(x) || is_complex(chain);
    a->dtype = a->type ? a->type : needs_complex ? complex_of(x) : x;
    if (a->any.made && !a->type)
        a->dtype = chain;
    if (needs_complex && !is_complex(a->dtype))
        return failure(
            "%s is complex (%s): a product in %s would lose its imaginary part",
            is_complex(x) ? "X" : "the chain",
            danaus_dtype_name(is_complex(x) ? x : chain), danaus_dtype_name(a->dtype));
    if (!a->any.made && is_complex(a->dtype) && !is_complex(chain))
        return make_chain_complex(a);
    return STATUS_OK;
}

static int check_shape(apply *a, const danaus_tensor *x, const char *path)
{
    int64_t rows = any_chain_rows(&a->any), cols = any_chain_cols(&a->any);
    a->inputs = a->adjoint ? rows : cols;
    a->outputs = a->adjoint ? cols : rows;
    a->vector = x->ndim == 1;
    int last = a->layout == DANAUS_BATCH_LAST;
    if (x->ndim == 2 && x->shape[last ? 0 : 1] == a->inputs) {
        a->batch = x->shape[last ? 1 : 0];
        return STATUS_OK;
    }
    if (a->vector && x->shape[0] == a->inputs) {
        a->batch = 1;
        return STATUS_OK;
    }
    char shape[200];
    format_shape(x, shape, sizeof shape);
    const char *side = a->adjoint ? "M" : "N";
    const char *other = last ? "first" : "last";
    int turned = x->ndim == 2 && x->shape[last ? 1 : 0] == a->inputs;
    return failure(
        last ? "%s: X is %s, but layout last needs %s x batch with %s = %" PRId64 "%s%s"
             : "%s: X is %s, but layout first needs batch x %s with %s = %" PRId64
               "%s%s",
        path, shape, side, side, a->inputs, turned ? "; it fits --layout " : "",
        turned ? other : "");
}

static size_t bytes_of(const apply *a, int64_t size)
{
    return (size_t)(a->batch * size) * danaus_dtype_size(a->dtype);
}

/* Y as a file has it, without numbers. */
static danaus_tensor outputs_of(const apply *a)
{
    int last = a->layout == DANAUS_BATCH_LAST;
    danaus_tensor y = { .name = "", .dtype = a->dtype, .ndim = a->vector ? 1 : 2 };
    y.shape[0] = a->vector || last ? a->outputs : a->batch;
    y.shape[1] = last ? a->batch : a->outputs;
    return y;
}

/* Room for X and Y, and X in it. */
static int place_inputs(apply *a, const void *data)
{
    size_t x = bytes_of(a, a->inputs), y = bytes_of(a, a->outputs);
    int failed = danaus_alloc(a->device, x, &a->x) ||
                 danaus_alloc(a->device, y, &a->y) ||
                 danaus_upload(a->device, a->x, data, x);
    return library(failed);
}

static int load_inputs(apply *a, const danaus_tensor *x)
{
    size_t bytes;
    void *owned = NULL;
    const void *data;
    TRY(room_check(a->batch, a->outputs, danaus_dtype_size(a->dtype), "Y", &bytes));
    int status = vectors_as(x, a->dtype, a->layout, "X", &data, &owned);
    status = status ? status : place_inputs(a, data);
    free(owned);
    return status;
}

static int check_residual(const apply *a, const danaus_tensor *r)
{
    char found[200], needed[200];
    danaus_tensor y = outputs_of(a);
    int same = r->ndim == y.ndim && r->shape[0] == y.shape[0] &&
               (a->vector || r->shape[1] == y.shape[1]);
    format_shape(r, found, sizeof found);
    format_shape(&y, needed, sizeof needed);
    TRY(fail_if(
        !same, "%s: the residual is %s, and Y is %s", a->residual_path, found, needed));
    return fail_if(
        is_complex(r->dtype) && !is_complex(a->dtype),
        "%s: the residual is complex (%s): a sum in %s would lose its imaginary part",
        a->residual_path, danaus_dtype_name(r->dtype), danaus_dtype_name(a->dtype));
}

/* Loads the residual into device memory. */
static int load_residual(apply *a)
{
    danaus_tensor *r = &a->residual_read;
    void *owned = NULL;
    const void *data;
    if (!a->residual_path)
        return STATUS_OK;
    TRY(open_array(a->residual_path, &a->residual_file, r));
    TRY(check_residual(a, r));
    size_t bytes = bytes_of(a, a->outputs);
    int status = vectors_as(r, a->dtype, a->layout, "the residual", &data, &owned);
    if (!status && (danaus_alloc(a->device, bytes, &a->residual) ||
                    danaus_upload(a->device, a->residual, data, bytes)))
        status = library_failure();
    free(owned);
    return status;
}

static danaus_status run_product(void *self)
{
    apply *a = self;
    if (a->made)
        return danaus_operator_execute(a->made, a->device, a->batch, a->x, a->y);
    if (a->residual_path)
        return danaus_ks_execute_residual(
            a->plan, a->device, a->weights, a->batch, a->x, a->residual, a->y);
    return danaus_ks_execute(a->plan, a->device, a->weights, a->batch, a->x, a->y);
}

static danaus_status make_plan(apply *a, const danaus_ks_desc *desc)
{
    danaus_pattern patterns[DANAUS_MAX_FACTORS];
    if (a->any.made)
        return danaus_operator_plan_create(a->device, a->any.made, desc, &a->made);
    int count = chain_patterns(a->any.chain, patterns);
    danaus_status status =
        danaus_ks_plan_create(a->device, patterns, count, desc, &a->plan);
    return status ? status
                  : danaus_ks_weights_create(
                        a->plan, a->device, a->any.chain, &a->weights);
}

/* Plans, packs and multiplies. */
static int multiply(apply *a)
{
    int64_t repeat = a->repeat > 1 ? a->repeat : 1;
    danaus_ks_desc desc = { .layout = (danaus_layout)a->layout };
    desc.dtype = a->dtype;
    desc.effort = (danaus_effort)a->how.effort;
    desc.math = math_of(a->how.accuracy);
    desc.adjoint = a->adjoint;
    desc.activation = (danaus_activation)a->activation;
    desc.batch = a->batch;
    desc.scale = a->scale;
    desc.residual = a->residual_path != NULL;
    TRY(library(make_plan(a, &desc)));
    return measure_calls(a->device, repeat, run_product, a, &a->time);
}

static void judge_outputs(apply *a, const danaus_tensor *y)
{
    int64_t lost = tensor_non_finite(y);
    int64_t before = lost ? tensor_non_finite(&a->inputs_read) +
                                tensor_non_finite(&a->residual_read) +
                                any_chain_non_finite(&a->any)
                          : 0;
    output_judge(&a->output, y->dtype, lost, tensor_elements(y), before);
}

static int save_outputs(apply *a)
{
    size_t bytes = bytes_of(a, a->outputs);
    void *host = room_make(a->batch, a->outputs, danaus_dtype_size(a->dtype), "Y");
    if (!host)
        return STATUS_FAILURE;
    danaus_tensor y = outputs_of(a);
    y.data = host;
    danaus_status status = danaus_download(a->device, host, a->y, bytes);
    if (status == DANAUS_OK) {
        judge_outputs(a, &y);
        status = danaus_file_write_npy(a->output.path, &y);
    }
    free(host);
    return library(status);
}

static int report(const apply *a)
{
    char plan[2048];
    if (a->made)
        danaus_operator_plan_describe(a->made, plan, sizeof plan);
    else
        danaus_ks_plan_describe(a->plan, plan, sizeof plan);
    join_lines(plan);
    return facts_report(
        facts_of(
            "batch:i inputs:i outputs:i dtype:t layout:t adjoint:b seconds:n plan:t "
            "output:t",
            a->batch, a->inputs, a->outputs, danaus_dtype_name(a->dtype),
            a->layout ? "last" : "first", a->adjoint, a->time.median, plan,
            a->output.name),
        a->json, &a->output,
        "{output}: {batch} x ({inputs} -> {outputs}), {dtype}, batch {layout}, "
        "{seconds:.3g} s\n");
}

static int run(apply *a, const char *chain_path, const char *input_path)
{
    danaus_tensor *x = &a->inputs_read;
    TRY(output_open(&a->output, a->output.name));
    TRY(library(any_chain_load(chain_path, &a->any)));
    TRY(open_tensor(input_path, a->tensor, &a->file, x));
    TRY(check_shape(a, x, input_path));
    TRY(choose_dtype(a, x->dtype));
    TRY(library(any_chain_check(&a->any, a->dtype)));
    TRY(open_device(&a->where, &a->device));
    TRY(load_inputs(a, x));
    TRY(load_residual(a));
    TRY(multiply(a));
    TRY(save_outputs(a));
    return report(a);
}

static void release(apply *a)
{
    danaus_ks_weights_destroy(a->weights);
    danaus_ks_plan_destroy(a->plan);
    danaus_operator_plan_destroy(a->made);
    if (a->device) {
        danaus_free(a->device, a->x);
        danaus_free(a->device, a->y);
        danaus_free(a->device, a->residual);
    }
    danaus_device_close(a->device);
    danaus_file_close(a->file);
    danaus_file_close(a->residual_file);
    any_chain_free(&a->any);
}

int cmd_apply(int argc, char **argv)
{
    apply a = { .repeat = 1, .scale = 1 };
    const arg table[] = {
        { "output", 'o', ARG_OUTPUT, &a.output.name, "FILE", "the .npy file to write" },
        { "layout", 0, ARG_WORD, &a.layout, "first|last",
          "the batch axis of X and Y (default first)" },
        { "adjoint", 0, ARG_FLAG, &a.adjoint, NULL,
          "multiply by the (conjugate) transpose" },
        { "activation", 0, ARG_WORD, &a.activation, "none|relu|gelu|silu|gelu-tanh",
          "applied to W x + bias; gelu is exact, gelu-tanh\nPyTorch's "
          "approximate=\"tanh\"" },
        { "scale", 0, ARG_ANY, &a.scale, "NUMBER",
          "multiplies W x before the bias is added; not 0" },
        { "residual", 0, ARG_INPUT, &a.residual_path, "FILE",
          "an array of Y's shape that is added last" },
        { "dtype", 0, ARG_DTYPE, &a.type, "TYPE",
          "f32, f64, c64, c128, f16 or bf16: convert X and\n"
          "the weights to it, and compute and write Y in it" },
        { "tensor", 0, ARG_TEXT, &a.tensor, "NAME",
          "name of X in a safetensors file with several\ntensors" },
        DEVICE_ARGS(a.where),
        EFFORT_ARG(a.how),
        ACCURACY_ARG(a.how),
        { "repeat", 0, ARG_NUMBER, &a.repeat, "N",
          "multiply N times and report the median time" },
        { "json", 0, ARG_FLAG, &a.json, NULL, "print the facts as JSON" },
        { 0 },
    };
    TRY(args_parse(&use, table, argc, argv, NULL));
    TRY(refuse_if(a.scale == 0, "--scale takes a number other than 0, not \"0\""));
    int status = run(&a, argv[1], argv[2]);
    release(&a);
    return status;
}
