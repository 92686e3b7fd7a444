/* danaus-bench stream: what a causal convolution costs that takes its signal in blocks
   as they come. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/program/commands.h"

#include "common/open.h"
#include "common/report.h"
#include "common/timing.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const usage use = {
    .synopsis = "[OPTION]...",
    .about =
        "Convolves noise in blocks of a fixed size with a filter for each channel,\n"
        "as for sound in real time, and prints the share of one core that this takes\n"
        "(processor time of all threads over the time that the signal lasts) and the\n"
        "times of blocks: the median and the longest. Blocks follow each other\n"
        "without a pause; as much signal again is run before, as a warm-up.\n",
    .number = { 0, 0 },
    .operands = "no operand",
};

typedef struct options {
    device_options device;
    int64_t taps, channels, block, rate, seconds;
    int json;
} options;

typedef struct bench {
    const options *o;
    danaus_device *device;
    danaus_stream *stream;
    float *k, *u;    /* u: one block of every channel */
    void *from, *to; /* u and y, in the device's memory */
    int64_t blocks;
    double *times; /* of the blocks */
    double share;
} bench;

static int make_stream(bench *b)
{
    const options *o = b->o;
    danaus_stream_desc desc = { .channels = o->channels, .filter_length = o->taps };
    int64_t taps, block;
    if (__builtin_mul_overflow(o->channels, o->taps, &taps) ||
        __builtin_mul_overflow(o->channels, o->block, &block) ||
        !(b->k = calloc((size_t)taps, sizeof *b->k)) ||
        !(b->u = calloc((size_t)block, sizeof *b->u)) ||
        !(b->times = calloc((size_t)b->blocks, sizeof *b->times)))
        return failure("no memory for filters, blocks and their times");
    for (int64_t i = 0; i < taps; i++)
        b->k[i] = (float)((i * 7919) % 2003) * 0x1p-20f - 0x1p-10f;
    for (int64_t i = 0; i < block; i++)
        b->u[i] = (float)((i * 104729) % 4001) * 0x1p-11f - 1;
    size_t bytes = (size_t)block * sizeof *b->u;
    if (danaus_stream_create(b->device, &desc, b->k, &b->stream) ||
        danaus_alloc(b->device, bytes, &b->from) ||
        danaus_alloc(b->device, bytes, &b->to) ||
        danaus_upload(b->device, b->from, b->u, bytes))
        return library_failure();
    return STATUS_OK;
}

/* All blocks once. */
static int run_blocks(bench *b)
{
    clock_t before = clock();
    for (int64_t i = 0; i < b->blocks; i++) {
        double start = seconds_now();
        if (danaus_stream_run(b->stream, b->device, b->o->block, b->from, b->to) ||
            danaus_device_sync(b->device))
            return library_failure();
        b->times[i] = seconds_now() - start;
    }
    double spent = (double)(clock() - before) / CLOCKS_PER_SEC;
    b->share = spent * (double)b->o->rate / (double)(b->blocks * b->o->block);
    return STATUS_OK;
}

static int print(const bench *b)
{
    const options *o = b->o;
    double median = b->times[b->blocks / 2], longest = b->times[b->blocks - 1];
    double p999 = b->times[b->blocks * 999 / 1000];
    double deadline = (double)o->block / (double)o->rate;
    if (o->json)
        return report_json(json_pack(
            "{s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f}", "channels",
            (json_int_t)o->channels, "taps", (json_int_t)o->taps, "block",
            (json_int_t)o->block, "rate", (json_int_t)o->rate, "blocks",
            (json_int_t)b->blocks, "share", b->share, "median", median, "p999", p999,
            "longest", longest, "deadline", deadline));
    printf(
        "%" PRId64 " channels, %" PRId64 " taps, %" PRId64 " blocks of %" PRId64
        " at %" PRId64 " a second: %.2f %% of one core\n"
        "a block lasts %.0f us and takes %.1f us (median), %.0f us (one in 1000), "
        "%.0f us (longest)\n",
        o->channels, o->taps, b->blocks, o->block, o->rate, 100 * b->share,
        1e6 * deadline, 1e6 * median, 1e6 * p999, 1e6 * longest);
    return STATUS_OK;
}

static int run(bench *b)
{
    const options *o = b->o;
    int64_t numbers;
    if (!o->block || !o->rate ||
        __builtin_mul_overflow(o->rate, o->seconds, &numbers) || numbers / o->block < 1)
        return failure("blocks, their rate and the seconds make no signal");
    b->blocks = numbers / o->block;
    int status = open_device(&o->device, &b->device);
    status = status ? status : make_stream(b);
    status = status ? status : run_blocks(b);
    status = status ? status : run_blocks(b);
    if (status)
        return status;
    sort_numbers(b->times, (size_t)b->blocks);
    return print(b);
}

int bench_stream(int argc, char **argv)
{
    options o = {
        .taps = 480000, .channels = 2, .block = 64, .rate = 48000, .seconds = 60
    };
    int operands;
    const arg table[] = {
        { "taps", 0, ARG_NUMBER, &o.taps, "M", "of each filter (default 480000)" },
        { "channels", 0, ARG_NUMBER, &o.channels, "H", "default 2" },
        { "block", 0, ARG_NUMBER, &o.block, "N", "numbers of a block (default 64)" },
        { "rate", 0, ARG_NUMBER, &o.rate, "N", "numbers a second (default 48000)" },
        { "seconds", 0, ARG_NUMBER, &o.seconds, "S",
          "how long the signal lasts (default 60)" },
        DEVICE_ARGS(o.device),
        { "json", 0, ARG_FLAG, &o.json, NULL, "print the facts as JSON" },
        { 0 },
    };
    int status = args_parse(&use, table, argc, argv, &operands);
    if (status != ARGS_GO_ON)
        return status;
    bench b = { .o = &o };
    status = run(&b);
    danaus_stream_destroy(b.stream);
    danaus_free(b.device, b.from);
    danaus_free(b.device, b.to);
    danaus_device_close(b.device);
    free(b.k);
    free(b.u);
    free(b.times);
    return status;
}
