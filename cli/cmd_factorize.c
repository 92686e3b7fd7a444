/* danaus factorize: a dense matrix, or a layer's weights, to a chain file. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/candidates.h"
#include "cli/commands.h"
#include "cli/permuted.h"
#include "cli/samples.h"
#include "cli/sums.h"
#include "common/progress.h"

#include <limits.h>
#include <math.h>

static const usage use = {
    .synopsis = "W.npy|FILE.safetensors (--pattern LIST | --chain KIND |\n"
                "       --params FRACTION) [-o CHAIN.safetensors] [OPTION]...",
    .about =
        "Approximates a dense M x N matrix W by a chain of Kronecker-sparse factors\n"
        "K_1 ... K_L, and prints its relative error with certified bounds. W is f32,\n"
        "f64, c64 or c128; f16 and bf16 are factorized in f32. The factors are given\n"
        "by one of\n\n"
        "  --pattern \"1,192,48,2 2,48,192,1\"   factor (a,b,c,d) by factor\n"
        "  --chain monarch --rank 4            a named family of the matrix's size\n"
        "  --params 0.1                        the best chain expected with 10% of M "
        "N\n\n"
        "--inputs minimises the error of the outputs for sample inputs X (samples x\n"
        "N), as for compressing a trained layer. --targets gives their outputs Y\n"
        "(samples x M) in place of X W^T. --params with --candidates fits low-rank,\n"
        "grouped and other chains, lists them, and takes the best. --permute first\n"
        "permutes rows and columns, which finds a shuffled Monarch matrix; the file\n"
        "then has their orders, for danaus apply and dense.\n\n"
        "A sum of chains is fitted by --pattern \"LIST + LIST\", by --terms N (N "
        "times\n"
        "the same patterns), or by --params with --terms auto: the best sum of many.\n",
    .number = { 1, 1 },
    .operands = "one file with a matrix",
};

/* In the order of danaus_chain_kind, which has more: not all can be factorised into. */
static const char *const chain_words = "dense|low-rank|dyadic|block-butterfly|monarch";

enum { CANDIDATES = 64 };

typedef struct options {
    const char *tensor, *bias, *pattern, *inputs, *targets, *output, *terms_text;
    int chain, order, fast, json; /* chain: -1 when not given */
    int fit_bias, candidates, reduced, permute;
    int terms; /* of a sum, with --params at most; 0: one chain is asked for */
    int64_t rank, factors, refine, threads;
    double fraction, ridge;
    danaus_dtype dtype;
} options;

typedef struct job {
    const options *o;
    const char *path;
    danaus_file *file;
    danaus_tensor w, bias;
    const void *bias_data;
    void *w_owned, *bias_owned; /* converted copies */
    samples samples;
    output output;
    danaus_dtype dtype, given; /* of the chain; of W as the library gets it */
    danaus_pattern patterns[DANAUS_MAX_FACTORS];
    int count;
    permuted permuted;
    danaus_chain *chain; /* NULL: a sum that is no chain */
    sums sum;            /* count 0: none is asked for */
    danaus_factorize_result result;
    danaus_candidate candidates[CANDIDATES];
    int candidate_count;
} job;

/* True if the command fits many chains and takes the best. */
static int tries_many(const options *o)
{
    return o->candidates || (o->terms && o->fraction > 0);
}

static int check_options(const options *o)
{
    int ways = (o->pattern != NULL) + (o->chain >= 0) + (o->fraction > 0);
    if (ways != 1)
        return usage_error(
            "one of --pattern, --chain and --params is needed, and %s given",
            ways ? "more were" : "none was");
    if ((o->candidates || o->reduced) && (o->fraction <= 0 || !tries_many(o)))
        return usage_error(
            o->candidates ? "--candidates goes with --params"
                          : "--reduced goes with --candidates");
    if (!o->inputs)
        TRY(args_refuse("targets,fit-bias,ridge", "goes with --inputs"));
    if (o->permute)
        TRY(args_refuse("inputs,bias,candidates,terms", "goes without --permute"));
    if (o->bias && o->fit_bias)
        return usage_error("--bias keeps a bias and --fit-bias finds one: give one");
    int has_rank = o->chain == DANAUS_CHAIN_LOW_RANK ||
                   o->chain == DANAUS_CHAIN_MONARCH ||
                   o->chain == DANAUS_CHAIN_BLOCK_BUTTERFLY;
    if (o->rank && !has_rank)
        return usage_error(
            "--rank goes with --chain low-rank, block-butterfly or monarch");
    if (o->factors && o->chain != DANAUS_CHAIN_MONARCH)
        return usage_error("--factors goes with --chain monarch");
    if (o->refine == 0 && (o->inputs || tries_many(o)))
        return usage_error(
            "--refine takes at least 1 with --inputs, --candidates or --terms and "
            "--params, not 0");
    TRY(args_most("refine", o->refine, INT_MAX));
    TRY(args_most("threads", o->threads, INT_MAX));
    TRY(args_most("factors", o->factors, DANAUS_MAX_FACTORS));
    TRY(refuse_if(
        o->dtype == DANAUS_F16 || o->dtype == DANAUS_BF16,
        "--dtype %s cannot be factorised in; take f32, f64, c64 or c128",
        danaus_dtype_name(o->dtype)));
    return STATUS_OK;
}

static int open_matrix(job *j)
{
    TRY(open_tensor(j->path, j->o->tensor, &j->file, &j->w));
    if (j->w.ndim != 2) {
        char shape[200];
        format_shape(&j->w, shape, sizeof shape);
        return failure("%s: W is %s, but a matrix is needed", j->path, shape);
    }
    TRY(fail_if(
        !tensor_elements(&j->w), "%s: W is %" PRId64 " x %" PRId64 ", without a number",
        j->path, j->w.shape[0], j->w.shape[1]));
    int half = j->w.dtype == DANAUS_F16 || j->w.dtype == DANAUS_BF16;
    j->dtype = j->o->dtype ? j->o->dtype : half ? DANAUS_F32 : j->w.dtype;
    return fail_if(
        is_complex(j->w.dtype) && !is_complex(j->dtype),
        "%s: W is complex (%s): in %s it would lose its imaginary part", j->path,
        danaus_dtype_name(j->w.dtype), danaus_dtype_name(j->dtype));
}

/* The bias of the layer, a tensor of M elements in the same file. */
static int open_bias(job *j)
{
    if (!j->o->bias)
        return STATUS_OK;
    TRY(library(danaus_file_find(j->file, j->o->bias, &j->bias)));
    if (tensor_elements(&j->bias) != j->w.shape[0])
        return failure(
            "%s: the bias \"%s\" has %" PRId64 " elements and W has %" PRId64 " rows",
            j->path, j->o->bias, tensor_elements(&j->bias), j->w.shape[0]);
    TRY(fail_if(
        is_complex(j->bias.dtype) && !is_complex(j->dtype),
        "%s: the bias \"%s\" is complex and W is not", j->path, j->o->bias));
    return tensor_as(&j->bias, j->dtype, "the bias", &j->bias_data, &j->bias_owned);
}

/* The chain must be of the matrix's size, and should be smaller. */
static int check_size(const job *j)
{
    double numbers = 0, entries = (double)j->w.shape[0] * (double)j->w.shape[1];
    danaus_pattern left = j->patterns[0], right = j->patterns[j->count - 1];
    int64_t rows = left.a * left.b * left.d, cols = right.a * right.c * right.d;
    if (rows != j->w.shape[0] || cols != j->w.shape[1])
        return failure(
            "%s: W is %" PRId64 " x %" PRId64 ", but the patterns make %" PRId64
            " x %" PRId64,
            j->path, j->w.shape[0], j->w.shape[1], rows, cols);
    for (int f = 0; f < j->count; f++) {
        danaus_pattern p = j->patterns[f];
        numbers += (double)p.a * (double)p.b * (double)p.c * (double)p.d;
    }
    if (numbers > entries)
        warning(
            "the chain has %.0f parameters, more than the %.0f of the matrix", numbers,
            entries);
    return STATUS_OK;
}

/* The budget of --params; checked when it was asked for. */
static int64_t budget(const job *j)
{
    return (int64_t)(j->o->fraction * (double)j->w.shape[0] * (double)j->w.shape[1]);
}

/* A list of patterns, or one for each term of a sum. */
static int read_patterns(job *j)
{
    TRY(sums_parse(j->o->pattern, &j->sum));
    j->count = j->sum.counts[0];
    memcpy(j->patterns, j->sum.patterns, (size_t)j->count * sizeof *j->patterns);
    if (j->sum.count == 1)
        j->sum.count = 0;
    else
        return args_refuse(
            "terms,permute", "goes with one list of patterns, not a sum");
    return STATUS_OK;
}

static int choose_patterns(job *j)
{
    const options *o = j->o;
    int64_t rows = j->w.shape[0], cols = j->w.shape[1];
    danaus_status status = DANAUS_OK;
    if (o->pattern) {
        TRY(read_patterns(j));
    } else if (o->chain >= 0) {
        danaus_chain_desc desc = { .kind = (danaus_chain_kind)o->chain };
        desc.rows = rows;
        desc.cols = cols;
        desc.order = (int)o->factors;
        desc.rank = o->rank;
        status =
            danaus_patterns_make(&desc, j->patterns, DANAUS_MAX_FACTORS, &j->count);
    } else {
        if (o->fraction * (double)rows * (double)cols > 9e18)
            return usage_error(
                "--params takes a number of at most %.3g here, for 9e18 parameters, "
                "not "
                "%g",
                9e18 / (double)rows / (double)cols, o->fraction);
        if (tries_many(o))
            return STATUS_OK;
        status = danaus_patterns_fit(
            rows, cols, budget(j), j->patterns, DANAUS_MAX_FACTORS, &j->count);
    }
    TRY(library(status));
    if (o->terms > 1)
        sums_repeat(j->patterns, j->count, o->terms, &j->sum);
    return check_size(j);
}

static danaus_status choose_candidate(
    job *j, const void *w, const danaus_factorize_desc *fit)
{
    danaus_compress_desc desc = { .parameters = budget(j),
                                  .reduced = j->o->reduced,
                                  .fit = fit };
    sums *sum = &j->sum;
    int most = j->o->terms ? j->o->terms : 1;
    desc.candidates = most > 1 ? 0 : DANAUS_TRY_SUM - 1;
    return danaus_compress_sum(
        w, j->given, j->w.shape[0], j->w.shape[1], &desc, sum->chain, most, &sum->count,
        &j->result, j->candidates, CANDIDATES, &j->candidate_count);
}

static danaus_status fit(job *j, const void *w, const danaus_factorize_desc *desc)
{
    if (tries_many(j->o))
        return choose_candidate(j, w, desc);
    if (j->sum.count)
        return sums_fit(w, j->given, desc, &j->sum, &j->result);
    return danaus_factorize(
        w, j->given, j->patterns, j->count, desc, &j->chain, &j->result);
}

/* A sum whose terms agree, or that has but one, is a chain. */
static void join_terms(job *j)
{
    if (j->sum.count)
        j->chain = sums_combined(&j->sum);
    if (j->chain)
        j->count = chain_patterns(j->chain, j->patterns);
}

static int is_wide(danaus_dtype dtype)
{
    return dtype == DANAUS_F64 || dtype == DANAUS_C128;
}

/* The type in which W and the samples are given to the library: one that holds them. */
static danaus_dtype given_type(const job *j)
{
    const samples *s = &j->samples;
    if (is_wide(j->w.dtype) || is_wide(s->inputs.dtype) || is_wide(s->targets.dtype))
        return is_complex(j->dtype) ? DANAUS_C128 : DANAUS_F64;
    return j->dtype;
}

static int factorize(job *j)
{
    const options *o = j->o;
    danaus_factorize_desc desc = { .order = (danaus_order)o->order, .fast = o->fast };
    desc.refine = o->refine > 0 ? (int)o->refine : 0; /* 0: the default */
    desc.threads = (int)o->threads;
    desc.ridge = o->ridge;
    desc.bias = o->fit_bias;
    desc.chain_dtype = j->dtype;
    j->given = given_type(j);
    const void *w;
    TRY(tensor_as(&j->w, j->given, "W", &w, &j->w_owned));
    if (o->permute) {
        TRY(permuted_find(
            w, j->given, j->patterns, j->count, desc.threads, &j->permuted));
        w = j->permuted.matrix;
    }
    TRY(samples_read(&j->samples, j->given, &desc));
    progress bar = { 0 };
    if (!o->json && progress_wanted()) {
        desc.progress = progress_show;
        desc.user = &bar;
    }
    danaus_status status = fit(j, w, &desc);
    progress_clear(&bar);
    return library(status);
}

static int add_bias(job *j)
{
    if (!j->o->bias)
        return STATUS_OK;
    danaus_chain *first = j->sum.count ? j->sum.chain[0] : j->chain;
    return library(danaus_chain_set_bias(first, j->bias_data));
}

static json_t *facts_of_job(const job *j)
{
    const danaus_factorize_result *r = &j->result;
    double elements = (double)j->w.shape[0] * (double)j->w.shape[1];
    json_t *facts = facts_of(
        "rows:i cols:i dtype:t patterns:o parameters:i fraction:n error:n "
        "lower_bound:n "
        "upper_bound:n off_support:n dense_error:n seconds:n",
        j->w.shape[0], j->w.shape[1], danaus_dtype_name(j->dtype),
        json_patterns(j->patterns, j->count), r->parameters,
        (double)r->parameters / elements, r->error,
        r->lower_bound < 0 ? NAN : r->lower_bound, r->upper_bound, r->off_support,
        r->dense_error, r->seconds);
    if (j->o->output)
        json_object_set_new(facts, "output", json_text(j->o->output));
    if (j->o->permute)
        json_object_set_new(facts, "error_unpermuted", json_number(j->permuted.before));
    if (j->sum.count > 1)
        json_object_set_new(facts, "terms", sums_json(&j->sum));
    if (tries_many(j->o))
        json_object_set_new(
            facts, "candidates", candidates_json(j->candidates, j->candidate_count));
    return facts;
}

static void print_text(const job *j, const json_t *facts)
{
    if (tries_many(j->o))
        candidates_print(j->candidates, j->candidate_count);
    facts_print(facts, "matrix      {rows} x {cols}, {dtype}\n");
    sums_print(json_object_get(facts, "terms"));
    if (j->chain)
        facts_print(facts, "chain       {patterns:#factor}: {patterns}\n");
    facts_print(
        facts, "parameters  {parameters}, {fraction*100:.3g}% of the matrix\n"
               "error       {error:.3e}");
    printf(j->o->inputs ? " on the samples\n" : "\n");
    facts_print(
        facts, "[permuted    rows and columns; as they are {error_unpermuted:.3e}\n]");
    if (j->o->inputs)
        facts_print(facts, "unweighted  {dense_error:.3e}\n");
    if (j->result.lower_bound < 0)
        facts_print(facts, "bound       certain to be within {upper_bound:.3e}\n");
    else
        facts_print(
            facts,
            "bounds      no such chain[{?error_unpermuted} in these orders] is nearer "
            "than {lower_bound:.3e}; this one was certain to be\n"
            "            within {upper_bound:.3e}\n");
    facts_print(facts, "time        {seconds:.3g} s\n[written     {output}\n]");
}

/* Judges the chain, or the terms of a sum. */
static void judge(job *j)
{
    int64_t lost = chain_non_finite(j->chain);
    for (int n = 0; !j->chain && n < j->sum.count; n++)
        lost += chain_non_finite(j->sum.chain[n]);
    output_judge(
        &j->output, j->dtype, lost, j->result.parameters,
        lost ? tensor_non_finite(&j->w) + tensor_non_finite(&j->bias) : 0);
}

static int save(job *j)
{
    judge(j);
    if (j->o->permute)
        return permuted_save(&j->permuted, &j->chain, j->output.path);
    if (!j->chain)
        return sums_save(&j->sum, j->output.path);
    return library(danaus_chain_save(j->chain, j->output.path));
}

static int run(job *j)
{
    TRY(output_maybe(&j->output, j->o->output));
    TRY(open_matrix(j));
    TRY(open_bias(j));
    TRY(choose_patterns(j));
    if (j->o->inputs)
        TRY(samples_open(
            j->o->inputs, j->o->targets, &j->w, is_complex(j->dtype), &j->samples));
    TRY(factorize(j));
    TRY(add_bias(j));
    join_terms(j);
    if (j->o->output)
        TRY(save(j));
    json_t *facts = facts_of_job(j);
    if (!j->o->json && !output_is_standard(&j->output))
        print_text(j, facts);
    return facts_report(facts, j->o->json, &j->output, "");
}

int cmd_factorize(int argc, char **argv)
{
    options o = { .chain = -1, .refine = -1 };
    const arg table[] = {
        { "output", 'o', ARG_OUTPUT, &o.output, "FILE",
          "the chain file to write; without it only the\nfacts are printed" },
        { "tensor", 0, ARG_TEXT, &o.tensor, "NAME",
          "the matrix in a file with several tensors" },
        { "bias", 0, ARG_TEXT, &o.bias, "NAME",
          "a tensor of M elements of the same file that\nbecomes the bias" },
        { "pattern", 0, ARG_TEXT, &o.pattern, "LIST",
          "patterns a,b,c,d ..., K_1 first" },
        { "chain", 0, ARG_WORD, &o.chain, chain_words, "a named family" },
        { "rank", 0, ARG_NUMBER, &o.rank, "R",
          "rank of the blocks of such a chain (default 1)" },
        { "factors", 0, ARG_NUMBER, &o.factors, "P",
          "number of factors of a Monarch chain (default 2)" },
        { "params", 0, ARG_REAL, &o.fraction, "FRACTION",
          "use at most this share of M N parameters" },
        { "terms", 0, ARG_TEXT, &o.terms_text, "N|auto",
          "a sum of N chains of these patterns; with --params\nof up to N, or 3, the "
          "best "
          "of many" },
        { "inputs", 0, ARG_INPUT, &o.inputs, "X.npy", "sample inputs, samples x N" },
        { "targets", 0, ARG_INPUT, &o.targets, "Y.npy",
          "with --inputs: target outputs, samples x M" },
        { "ridge", 0, ARG_RIDGE, &o.ridge, "SHARE",
          "with --inputs: weight of the distance from W\nbeside the samples (default "
          "1e-6)" },
        { "fit-bias", 0, ARG_FLAG, &o.fit_bias, NULL,
          "with --inputs: fit a bias as well" },
        { "candidates", 0, ARG_FLAG, &o.candidates, NULL,
          "with --params: fit many chains, take the best" },
        { "reduced", 0, ARG_FLAG, &o.reduced, NULL,
          "with --candidates: count degrees of freedom, and\nreduce the chain to "
          "them" },
        { "permute", 0, ARG_FLAG, &o.permute, NULL,
          "permute rows and columns of W so that a chain of\ntwo factors fits better; "
          "FILE has the orders" },
        { "refine", 0, ARG_COUNT, &o.refine, "SWEEPS",
          "sweeps over neighbouring factors afterwards; default\n0: none. With "
          "--inputs "
          "or --candidates the most\npasses over all factors, default 4" },
        { "order", 0, ARG_WORD, &o.order, "auto|left|right|balanced",
          "the order in which the product is split" },
        { "fast", 0, ARG_FLAG, &o.fast, NULL,
          "iterative SVDs: faster, without a lower bound" },
        { "dtype", 0, ARG_DTYPE, &o.dtype, "TYPE",
          "compute and write in f32, f64, c64 or c128" },
        { "threads", 0, ARG_COUNT, &o.threads, "N", "0: one for each processor" },
        { "json", 0, ARG_FLAG, &o.json, NULL, "print the facts as JSON" },
        { 0 },
    };
    TRY(args_parse(&use, table, argc, argv, NULL));
    if (o.terms_text)
        TRY(sums_terms(o.terms_text, o.fraction > 0, &o.terms));
    TRY(check_options(&o));
    job j = { .o = &o, .path = argv[1] };
    int status = run(&j);
    danaus_chain_destroy(j.chain);
    sums_free(&j.sum);
    permuted_free(&j.permuted);
    free(j.w_owned);
    free(j.bias_owned);
    samples_close(&j.samples);
    danaus_file_close(j.file);
    return status;
}
