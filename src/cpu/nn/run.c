/* Models' operations on the CPU: rows, heads and sequences for threads. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/nn/nn.h"
#include "cpu/cpu.h"

#include "base/mem.h"
#include "base/status.h"

#include <string.h>

/* Numbers that a task makes, so that it takes some microseconds. */
#define TASK_NUMBERS 16384

typedef struct rows_run {
    const struct nn_code *code;
    const void *o;
    int64_t rows, step; /* of a task */
} rows_run;

static rows_run cut_rows(
    const danaus_device *dev, const void *o, int64_t rows, int64_t width)
{
    return (rows_run){ ((const cpu_device *)dev)->nn, o, rows,
                       MAX(TASK_NUMBERS / width, 1) };
}

static range rows_of(const rows_run *run, int task)
{
    int64_t from = task * run->step;
    return (range){ from, MIN(from + run->step, run->rows) };
}

static void norm_task(void *arg, int i)
{
    const rows_run *run = arg;
    run->code->norm(run->o, rows_of(run, i));
}

static void lookup_task(void *arg, int i)
{
    const rows_run *run = arg;
    run->code->lookup(run->o, rows_of(run, i));
}

static void rotary_task(void *arg, int i)
{
    const rows_run *run = arg;
    run->code->rotary(run->o, rows_of(run, i));
}

static void pool_task(void *arg, int i)
{
    const rows_run *run = arg;
    range sequences = rows_of(run, i);
    for (int64_t s = sequences.from; s < sequences.to; s++)
        run->code->pool(run->o, s);
}

static void sine_task(void *arg, int i)
{
    const rows_run *run = arg;
    run->code->sine(run->o, rows_of(run, i));
}

static void turn_task(void *arg, int i)
{
    const rows_run *run = arg;
    run->code->turn(run->o, rows_of(run, i));
}

static void short_conv_task(void *arg, int i)
{
    const rows_run *run = arg;
    run->code->short_conv(run->o, rows_of(run, i));
}

static void outer_task(void *arg, int i)
{
    const rows_run *run = arg;
    run->code->outer(run->o, rows_of(run, i));
}

static void contract_task(void *arg, int i)
{
    const rows_run *run = arg;
    run->code->contract(run->o, rows_of(run, i));
}

static void likelihood_task(void *arg, int i)
{
    const rows_run *run = arg;
    run->code->likelihood(run->o, rows_of(run, i));
}

static void multiply_task(void *arg, int i)
{
    const rows_run *run = arg;
    run->code->multiply(run->o, rows_of(run, i));
}

static void score_task(void *arg, int i)
{
    const rows_run *run = arg;
    run->code->score(run->o, rows_of(run, i));
}

static void patches_task(void *arg, int i)
{
    const rows_run *run = arg;
    run->code->patches(run->o, rows_of(run, i));
}

static void pad_task(void *arg, int i)
{
    const rows_run *run = arg;
    const nn_pad *o = run->o;
    range channels = rows_of(run, i);
    for (int64_t c = channels.from; c < channels.to; c++)
        memset(
            (float *)o->y + c * o->stride + o->from, 0,
            (size_t)(o->stride - o->from) * sizeof(float));
}

static void norm_gradient_task(void *arg, int i)
{
    const rows_run *run = arg;
    run->code->norm_gradient(run->o, rows_of(run, i));
}

static void activation_gradient_task(void *arg, int i)
{
    const rows_run *run = arg;
    run->code->activation_gradient(run->o, rows_of(run, i));
}

/* Rows of `width` numbers, a multiple of `whole` for each task but the last. */
static danaus_status run_rows(
    danaus_device *dev, const void *o, int64_t rows, int64_t width, int64_t whole,
    parallel_task task)
{
    rows_run run = cut_rows(dev, o, rows, width);
    run.step = ROUND_UP(run.step, whole);
    dn_cpu_parallel_short((cpu_device *)dev, (int)CEIL_DIV(rows, run.step), task, &run);
    return DANAUS_OK;
}

static danaus_status cpu_norm(danaus_device *dev, const nn_norm *o)
{
    return run_rows(dev, o, o->rows, o->width, 1, norm_task);
}

static danaus_status cpu_lookup(danaus_device *dev, const nn_lookup *o)
{
    return run_rows(dev, o, o->rows, o->width, 1, lookup_task);
}

static danaus_status cpu_rotary(danaus_device *dev, const nn_rotary *o)
{
    return run_rows(dev, o, o->rows, o->width, 1, rotary_task);
}

static danaus_status cpu_pool(danaus_device *dev, const nn_pool *o)
{
    return run_rows(dev, o, o->sequences.count, o->width, 1, pool_task);
}

static danaus_status cpu_sine(danaus_device *dev, const nn_sine *o)
{
    return run_rows(dev, o, o->rows, o->width, 1, sine_task);
}

static danaus_status cpu_turn(danaus_device *dev, const nn_turn *o)
{
    return run_rows(dev, o, o->rows, o->width, NN_TURN_ROWS, turn_task);
}

static danaus_status cpu_short_conv(danaus_device *dev, const nn_short *o)
{
    return run_rows(dev, o, o->rows, o->width, NN_TURN_ROWS, short_conv_task);
}

static danaus_status cpu_multiply(danaus_device *dev, const nn_multiply *o)
{
    return run_rows(dev, o, o->count, 1, 1, multiply_task);
}

static danaus_status cpu_outer(danaus_device *dev, const nn_heads *o)
{
    return run_rows(dev, o, o->heads * o->size * o->size, o->length, 1, outer_task);
}

static danaus_status cpu_contract(danaus_device *dev, const nn_heads *o)
{
    return run_rows(dev, o, o->heads * o->size, o->length * o->size, 1, contract_task);
}

static danaus_status cpu_likelihood(danaus_device *dev, const nn_likelihood *o)
{
    return run_rows(dev, o, o->rows, o->width, 1, likelihood_task);
}

static danaus_status cpu_pad(danaus_device *dev, const nn_pad *o)
{
    return run_rows(dev, o, o->channels, MAX(o->stride - o->from, 1), 1, pad_task);
}

static danaus_status cpu_score(danaus_device *dev, const nn_score *o)
{
    return run_rows(dev, o, o->words, o->width, 1, score_task);
}

static danaus_status cpu_patches(danaus_device *dev, const nn_patches *o)
{
    int64_t across = o->size / o->patch;
    return run_rows(
        dev, o, o->images * across * across, o->channels * o->patch * o->patch, 1,
        patches_task);
}

static danaus_status cpu_norm_gradient(danaus_device *dev, const nn_norm_gradient *o)
{
    return run_rows(dev, o, o->rows, o->width, 1, norm_gradient_task);
}

static danaus_status cpu_activation_gradient(
    danaus_device *dev, const nn_activation_gradient *o)
{
    return run_rows(dev, o, o->count, 1, 1, activation_gradient_task);
}

typedef struct activation_run {
    rows_run rows;
    cpu_activate activate; /* NULL: as it is */
} activation_run;

static void activation_task(void *arg, int i)
{
    const activation_run *run = arg;
    const nn_activation *o = run->rows.o;
    range n = rows_of(&run->rows, i);
    memmove(o->y + n.from, o->x + n.from, (size_t)(n.to - n.from) * sizeof *o->y);
    if (run->activate)
        run->activate(o->y + n.from, n.to - n.from);
}

static danaus_status cpu_activation(danaus_device *dev, const nn_activation *o)
{
    activation_run run = { cut_rows(dev, o, o->count, 1),
                           ((cpu_device *)dev)->activations[o->activation][0] };
    dn_cpu_parallel_short(
        (cpu_device *)dev, (int)CEIL_DIV(run.rows.rows, run.rows.step), activation_task,
        &run);
    return DANAUS_OK;
}

static void gate_task(void *arg, int i)
{
    const activation_run *run = arg;
    const nn_gate *o = run->rows.o;
    range rows = rows_of(&run->rows, i);
    int64_t n = o->width;
    const float *x = o->x;
    float *y = o->y;
    for (int64_t r = rows.from; r < rows.to; r++) {
        memcpy(y + r * n, x + 2 * r * n, (size_t)n * sizeof *y);
        if (run->activate)
            run->activate(y + r * n, n);
    }
    run->rows.code->gate(o, rows);
}

static danaus_status cpu_gate(danaus_device *dev, const nn_gate *o)
{
    activation_run run = { cut_rows(dev, o, o->rows, o->width),
                           ((cpu_device *)dev)->activations[o->activation][0] };
    dn_cpu_parallel_short(
        (cpu_device *)dev, (int)CEIL_DIV(run.rows.rows, run.rows.step), gate_task,
        &run);
    return DANAUS_OK;
}

/* ---- attention: a task is a sequence, or a head of one if they are few ---- */

typedef struct attention_run {
    const struct nn_code *code;
    const nn_attention *o;
    const nn_attention_gradient *gradient; /* NULL: forward */
    float *scratch;
    int64_t slot;   /* numbers of scratch for a worker */
    int workers;    /* tasks */
    int64_t pieces; /* heads of sequences: worker i takes i, i + workers, ... */
} attention_run;

static void attention_task(void *arg, int worker)
{
    const attention_run *run = arg;
    const nn_attention *o = run->o;
    float *scratch = run->scratch + worker * run->slot;
    for (int64_t piece = worker; piece < run->pieces; piece += run->workers) {
        const int64_t *at = o->sequences.offsets + piece / o->heads;
        int64_t length = at[1] - at[0], head = piece % o->heads;
        if (run->gradient)
            run->code->attention_gradient(run->gradient, at[0], length, head, scratch);
        else
            run->code->attention(o, at[0], length, head, scratch);
    }
}

static danaus_status run_attention(
    danaus_device *dev, const nn_attention *o, const nn_attention_gradient *gradient)
{
    cpu_device *d = (cpu_device *)dev;
    int64_t longest = 0, head = o->width / o->heads;
    for (int64_t i = 0; i < o->sequences.count; i++)
        longest = MAX(longest, o->sequences.offsets[i + 1] - o->sequences.offsets[i]);
    attention_run run = { .code = d->nn, .o = o, .gradient = gradient };
    run.slot = gradient ? dn_nn_gradient_scratch(longest, head)
                        : dn_nn_attention_scratch(longest, head);
    run.workers = d->threads;
    run.pieces = o->sequences.count * o->heads;
    void *scratch;
    TRY(dn_cpu_scratch(
        d, (size_t)run.workers * (size_t)run.slot * sizeof(float), &scratch));
    run.scratch = scratch;
    dn_cpu_parallel_short(d, run.workers, attention_task, &run);
    dn_cpu_give_scratch(d);
    return DANAUS_OK;
}

static danaus_status cpu_attention(danaus_device *dev, const nn_attention *o)
{
    return run_attention(dev, o, NULL);
}

static danaus_status cpu_attention_gradient(
    danaus_device *dev, const nn_attention_gradient *o)
{
    return run_attention(dev, &o->of, o);
}

const nn_backend dn_cpu_nn = {
    .cayley = dn_cpu_cayley,
    .lookup = cpu_lookup,
    .norm = cpu_norm,
    .attention = cpu_attention,
    .rotary = cpu_rotary,
    .pool = cpu_pool,
    .activate = cpu_activation,
    .sine = cpu_sine,
    .turn = cpu_turn,
    .short_conv = cpu_short_conv,
    .multiply = cpu_multiply,
    .outer = cpu_outer,
    .contract = cpu_contract,
    .likelihood = cpu_likelihood,
    .pad = cpu_pad,
    .gate = cpu_gate,
    .score = cpu_score,
    .patches = cpu_patches,
    .norm_gradient = cpu_norm_gradient,
    .attention_gradient = cpu_attention_gradient,
    .activation_gradient = cpu_activation_gradient,
};
