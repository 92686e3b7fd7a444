/* Models' operations on a GPU: each is one launch, or one for every so many sequences. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/run/run.h"
#include "device/nn.h"
#include "gpu/nn/nn.h"

#include "base/status.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* The table of nn_table.cuh. */
#define MOST_SEQUENCES 239

typedef struct nn_job {
    const void *in[4];
    void *out[2];
    const int32_t *ids[2];
    int64_t size[5];
    float number[2];
    int choice[2];
    int64_t sequences, offset[MOST_SEQUENCES + 1];
} nn_job;

_Static_assert(sizeof(nn_job) <= GPU_TABLE_BYTES, "a table that kernels are given");

static danaus_status launch(
    gpu_device *d, gpu_nn_row row, const problem *p, const nn_job *job,
    const gpu_launch *l)
{
    char table[GPU_TABLE_BYTES] = { 0 };
    const gpu_argument arguments[] = { ARG_TABLE(table), { 0 } };
    gpu_function function;
    memcpy(table, job, sizeof *job);
    TRY(dn_gpu_function(d, &dn_gpu_nn[row], p, 0, &function));
    return dn_gpu_launch(d, function, l, arguments);
}

static danaus_dtype type_of(danaus_dtype dtype) { return dtype ? dtype : DANAUS_F32; }

/* A row of texts that are compiled once for each type of rows. */
static danaus_status run(
    gpu_device *d, gpu_nn_row row, danaus_dtype dtype, gpu_launch l, const nn_job *job)
{
    const problem p = { .dtype = type_of(dtype) };
    return l.blocks[0] ? launch(d, row, &p, job, &l) : DANAUS_OK;
}

/* ---- sequences, as many at a time as a table has room for ---- */

static int64_t take_sequences(nn_job *job, const nn_sequences *s, int64_t first)
{
    job->sequences = MIN(s->count - first, MOST_SEQUENCES);
    memcpy(
        job->offset, s->offsets + first,
        (size_t)(job->sequences + 1) * sizeof *job->offset);
    return job->sequences;
}

static danaus_status run_attention(gpu_device *d, const nn_attention *o)
{
    int64_t head = o->width / o->heads;
    gpu_attention a;
    int64_t most;
    if (!dn_gpu_attention(&d->facts, head, type_of(o->dtype), &a, &most))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "a head of attention has %" PRId64 " numbers; %" PRId64
            " are possible on this GPU",
            head, most);
    nn_job job = { .in = { o->q, o->k, o->v, o->bias },
                   .out = { o->y },
                   .size = { o->reach, o->width, o->heads,
                             o->pitch ? o->pitch : o->width, o->window },
                   .number = { 1 / sqrtf((float)head) } };
    for (int64_t at = 0; at < o->sequences.count; at += job.sequences) {
        int64_t tiles = 0, count = take_sequences(&job, &o->sequences, at);
        for (int64_t i = 0; i < count; i++)
            tiles += CEIL_DIV(job.offset[i + 1] - job.offset[i], a.queries);
        gpu_launch l = dn_gpu_attention_launch(&a, tiles * o->heads);
        TRY(launch(d, a.row, &a.p, &job, &l));
    }
    return DANAUS_OK;
}

static danaus_status run_pool(gpu_device *d, const nn_pool *o)
{
    nn_job job = { .in = { o->x }, .size = { 0, o->width }, .choice = { o->first } };
    for (int64_t at = 0; at < o->sequences.count; at += job.sequences) {
        job.out[0] = o->y + at * o->width;
        take_sequences(&job, &o->sequences, at);
        gpu_launch l = dn_gpu_nn_pools(job.sequences, o->width);
        TRY(run(d, GPU_NN_POOL, o->dtype, l, &job));
    }
    if (!o->normalize)
        return DANAUS_OK;
    const nn_job rows = { .out = { o->y }, .size = { o->sequences.count, o->width } };
    return run(d, GPU_NN_UNIT, o->dtype, dn_gpu_nn_launch(o->sequences.count), &rows);
}

static danaus_status run_short_conv(gpu_device *d, const nn_short *o)
{
    nn_job job = { .in = { o->x, o->k, o->shift },
                   .out = { o->y },
                   .size = { o->rows, o->width, o->stride, o->taps, o->first } };
    int64_t end = o->first + o->rows;
    for (int64_t at = 0; at < o->sequences.count; at += job.sequences) {
        int64_t count = take_sequences(&job, &o->sequences, at);
        int64_t rows = MIN(job.offset[count], end) - MAX(job.offset[0], o->first);
        if (rows > 0)
            TRY(run(
                d, GPU_NN_SHORT_CONV, o->dtype, dn_gpu_nn_tiles(rows, o->width), &job));
    }
    return DANAUS_OK;
}

/* ---- the table ---- */

/* NAME(device, operands): a launch for rows of a type, with the job that is given. */
#define OPERATION(NAME, OPERANDS, ROW, DTYPE, LAUNCH, ...)                             \
    static danaus_status NAME(danaus_device *dev, const OPERANDS *o)                   \
    {                                                                                  \
        gpu_device *d = (gpu_device *)dev;                                             \
        nn_job job = { __VA_ARGS__ };                                                  \
        RETURN_ENTERED(d, run(d, ROW, DTYPE, LAUNCH, &job));                           \
    }

#define SEVERAL(NAME, OPERANDS, RUN)                                                   \
    static danaus_status NAME(danaus_device *dev, const OPERANDS *o)                   \
    {                                                                                  \
        gpu_device *d = (gpu_device *)dev;                                             \
        RETURN_ENTERED(d, RUN(d, o));                                                  \
    }

/* Counts the numbers of all patches. */
static int64_t numbers_of(const nn_patches *o)
{
    int64_t across = o->size / o->patch, side = across * o->patch;
    return o->images * o->channels * side * side;
}

SEVERAL(attention, nn_attention, run_attention)
SEVERAL(pool, nn_pool, run_pool)
SEVERAL(short_conv, nn_short, run_short_conv)
OPERATION(
    lookup, nn_lookup, GPU_NN_LOOKUP, o->dtype, dn_gpu_nn_launch(o->rows),
    .in = { o->word, o->position, o->type }, .out = { o->y },
    .ids = { o->ids, o->positions }, .size = { o->rows, o->width })
OPERATION(
    rotary, nn_rotary, GPU_NN_ROTARY, o->dtype, dn_gpu_nn_launch(o->rows),
    .in = { o->turns }, .out = { o->x }, .ids = { o->positions },
    .size = { o->rows, o->width, o->pitch, o->head })
OPERATION(
    norm, nn_norm, GPU_NN_NORM, o->dtype, dn_gpu_nn_norms(o->rows),
    .in = { o->x, o->more, o->scale, o->shift }, .out = { o->y, o->sum },
    .size = { o->rows, o->width }, .number = { o->epsilon },
    .choice = { o->wide_x, o->wide_y })
OPERATION(
    activate, nn_activation, GPU_NN_APPLY, DANAUS_F32, dn_gpu_nn_numbers(o->count),
    .in = { o->x }, .out = { o->y }, .size = { o->count },
    .choice = { (int)o->activation })
OPERATION(
    sine, nn_sine, GPU_NN_SINE, DANAUS_F32, dn_gpu_nn_numbers(o->rows * o->width),
    .in = { o->x, o->scale }, .out = { o->y }, .size = { o->rows, o->width },
    .number = { o->factor })
OPERATION(
    turn, nn_turn, GPU_NN_TURN, o->dtype, dn_gpu_nn_tiles(o->rows, o->width),
    .in = { o->x, o->more, o->decay, o->times }, .out = { o->y },
    .size = { o->rows, o->width, o->stride, o->pitch ? o->pitch : o->width },
    .number = { o->shift })
OPERATION(
    multiply, nn_multiply, GPU_NN_MULTIPLY, o->dtype, dn_gpu_nn_numbers(o->count),
    .in = { o->a, o->b }, .out = { o->y }, .size = { o->count },
    .choice = { o->wide_a, o->wide_y })
OPERATION(
    outer, nn_heads, GPU_NN_OUTER, o->dtype,
    dn_gpu_nn_launch(o->heads * o->size * o->size), .in = { o->a, o->b },
    .out = { o->y }, .size = { o->heads, o->size, o->length }, .choice = { o->wide })
OPERATION(
    contract, nn_heads, GPU_NN_CONTRACT, o->dtype, dn_gpu_nn_launch(o->heads * o->size),
    .in = { o->a, o->b }, .out = { o->y }, .size = { o->heads, o->size, o->length },
    .choice = { o->wide })
OPERATION(
    likelihood, nn_likelihood, GPU_NN_LIKELIHOOD, DANAUS_F32, dn_gpu_nn_launch(o->rows),
    .in = { o->x }, .out = { o->y }, .ids = { o->targets },
    .size = { o->rows, o->width })
OPERATION(
    pad, nn_pad, GPU_NN_PAD, o->dtype, dn_gpu_nn_launch(o->channels), .out = { o->y },
    .size = { o->channels, o->from, o->stride })
OPERATION(
    gate, nn_gate, GPU_NN_GATE, o->dtype, dn_gpu_nn_launch(o->rows), .in = { o->x },
    .out = { o->y }, .size = { o->rows, o->width }, .choice = { (int)o->activation })
OPERATION(
    score, nn_score, GPU_NN_SCORE, o->dtype, dn_gpu_nn_launch(o->words),
    .in = { o->x, o->table, o->bias }, .out = { o->y },
    .size = { o->rows, o->width, o->words })

OPERATION(
    patches, nn_patches, GPU_NN_PATCHES, o->dtype, dn_gpu_nn_numbers(numbers_of(o)),
    .in = { o->x }, .out = { o->y },
    .size = { numbers_of(o), o->channels, o->size, o->patch })

OPERATION(
    cayley, nn_cayley, o->dq ? GPU_NN_CAYLEY_BACK : GPU_NN_CAYLEY, DANAUS_F32,
    dn_gpu_nn_launch(o->count), .in = { o->x, o->dq }, .out = { o->y },
    .size = { o->count, o->size }, .number = { (float)o->sign })

const nn_backend dn_gpu_nn_backend = {
    .cayley = cayley,
    .lookup = lookup,
    .norm = norm,
    .attention = attention,
    .rotary = rotary,
    .pool = pool,
    .activate = activate,
    .sine = sine,
    .turn = turn,
    .short_conv = short_conv,
    .multiply = multiply,
    .outer = outer,
    .contract = contract,
    .likelihood = likelihood,
    .pad = pad,
    .gate = gate,
    .score = score,
    .patches = patches,
};
