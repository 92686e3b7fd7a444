/* Long convolutions along the length of batch x channels rows, in one call:

       y = gate_out * (k (*) (gate_in * u) + skip * gate_in * u).

   u, y and the gates are arrays [batch][channels][length]; * multiplies number by
   number and (*) is one of

       causal         (k (*) p)[t] = sum over 0 <= s <= t of k[s] p[t - s]
       circular       (k (*) p)[t] = sum over s of k[s] p[(t + centre - s) mod length]
       bidirectional  causal, plus sum over s >= 0 of k_reverse[s] p[t + 1 + s]
       centred        (k (*) p)[t] = sum over s of k[s] p[t + centre - s],

   where p and k are zero outside of their lengths. Filters may be shorter or longer
   than the signal. Zeros are never stored.

   All numbers of a row meet in a transform. So one NaN or infinity may reach any y of
   its row, also y before it. danaus_short_conv() sums directly: a NaN or infinity reaches
   only the y that use it.

   On a CPU operands may have any magnitude for which the results fit their type. On other
   devices the sums of a transform must fit too (docs/conv.md, "Range").

   Source: Fu, Kumbong, Nguyen, Re, FlashFFTConv, ICLR 2024 (arXiv 2311.05908). */
// SPDX-License-Identifier: Apache-2.0
#ifndef DANAUS_CONV_H
#define DANAUS_CONV_H

#include "danaus/base.h"
#include "danaus/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The greatest length of a signal and of a filter. */
#define DANAUS_CONV_MOST_LENGTH ((int64_t)1 << 28)

typedef enum danaus_conv_kind {
    DANAUS_CAUSAL = 0,
    DANAUS_CIRCULAR,
    DANAUS_BIDIRECTIONAL,
    DANAUS_CENTRED
} danaus_conv_kind;

/* How exact a convolution is. Accurate convolutions have the error of transforms in the type
   of sums. Fast convolutions, on GPUs, multiply in 16 bits, sum in f32 and have an error of
   about 5e-4 of the row's norm (docs/conv.md). In f64, and where a device has no fast kernels,
   all convolutions are accurate. */
typedef enum danaus_conv_accuracy {
    DANAUS_CONV_BY_TYPE = 0, /* fast for f16 and bf16, else accurate */
    DANAUS_CONV_ACCURATE,
    DANAUS_CONV_FAST
} danaus_conv_accuracy;

typedef struct danaus_conv_plan danaus_conv_plan;
typedef struct danaus_spectrum danaus_spectrum;

/* All-zero is the default of every field but channels and length. */
typedef struct danaus_conv_desc {
    int64_t channels, length; /* at least 1 */
    int64_t filter_length;    /* of k and k_reverse; 0: length */
    int64_t filters;          /* a divisor of channels, 0: channels; channel h uses
                                 filter h / (channels / filters) */
    danaus_conv_kind kind;
    danaus_dtype dtype;   /* of u, y and gates: f32 (0), f16, bf16, f64, c64 or c128 */
    danaus_effort effort; /* estimate: the tuning table, else the cost model; measure:
                             the table, else some tenths of a second; or table only */
    int64_t batch;        /* plan for this batch, 0: large; any batch may be run */
    int32_t axes[4];      /* N_1 .. N_4 of sparse spectra, below; 0: 8 */
    int32_t keep[4];      /* how many of each; 0: all */
    int packed; /* nonzero: for sequences of any length up to `length`, below */
    danaus_conv_accuracy accuracy;
    int32_t height;        /* of planes, below; 0: rows */
    int32_t filter_height; /* 0: height */
    int32_t centre[2];     /* down, across; of centred and circular plans */
    int32_t correlate;     /* nonzero: correlations, below */
    int32_t signals;       /* a divisor of channels, 0: channels; below */
    uint32_t reserved[8];
} danaus_conv_desc;

/* Filter banks: with fewer signals than channels, u and the gates are [batch][signals][length],
   and channel h of y[batch][channels][length] is of signal h / (channels / signals), with the
   filter that it has. A signal is transformed once for all its channels. CPUs only, without
   gradients; unsupported elsewhere. */

/* Planes: with a height, u, y and the gates are [batch][channels][height][length], k and dk
   are [filters][filter_height][filter_length], and

       (k (*) p)[t] = sum over s of k[s] p[t + centre - s]

   for places t and s of a plane, that is (down, across). Outside of a plane p is zero, and in
   circular plans it repeats along both axes. A causal plan has the centre (0, 0); along an
   axis where the centre is 0, a centred plan is causal. A centre is a place of the filter.
   Rows take centre[1] alone. Planes, and rows with a centre, keep whole spectra and are not
   packed; planes are not bidirectional. A plane takes the memory and time of a row with
   height * (length + c) numbers, where c is at most the filter's length (docs/conv.md,
   "Planes"), and that is at most DANAUS_CONV_MOST_LENGTH. */

/* Complex numbers (c64, c128): k, k_reverse and skip are complex, too, of the type of sums. Kinds,
   planes and packed sequences are as for real numbers; spectra are whole. Gradients are
   dL/dre + i dL/dim of the loss L, as dy is: those of PyTorch. With p = gate_in * u,
   c = k (*) p + skip * p and z* the conjugate of z,

       du = gate_in* dp,  dgate_in = u* dp,  dgate_out = c* dy,  dc = gate_out* dy,

   where dp is the correlation of dc, below, and dk[s] the sum over t of dc[t] times the conjugate
   of the number that k[s] multiplies in c[t]. */

/* Correlations: with `correlate` set, y = gate_out * K* (gate_in * u), where K* is the adjoint,
   or conjugate transpose, of p -> k (*) p + skip * p for the same filters and kind:

       causal         sum over s of k[s]* p[t + s] + skip* p[t]
       circular       sum over s of k[s]* p[(t - centre + s) mod length] + skip* p[t]
       bidirectional  causal, plus sum over s >= 0 of k_reverse[s]* p[t - 1 - s]
       centred        sum over s of k[s]* p[t - centre + s] + skip* p[t],

   where p is zero outside of its row or plane, and real numbers are their own conjugates.
   Gradients are those of this y: dp = k (*) dc + skip * dc, and dk[s] is the sum over t of p[t]
   times the conjugate of the number that k[s] multiplies in dp[t]. A causal correlation with a
   template has at t the match that begins there. */

/* Sparse spectra (causal and bidirectional plans): a filter has values at n frequencies
   (f + 1/4) / n, 0 <= f < n. They form an array of N_1 x N_2 x N_3 x N_4 x ... numbers,

       f = f_1 + N_1 (f_2 + N_2 (f_3 + N_3 (f_4 + N_4 f_5))).

   If any keep is set, only frequencies with f_i < keep[i - 1] on all four axes count; the
   others are taken as zero. Axes are powers of two. n is the least power of two that is at
   least 4096, N_1 N_2 N_3 N_4 and (length + taps) / 2, where taps is the smaller of length
   and filter_length. Leaving out frequencies saves time, most of it on the first axes. The
   rest of a causal filter is no longer causal. FlashFFTConv, section 3.3. */

/* A plan is immutable: share it between threads and between devices of the same
   name. Destroy plans and spectra before the device. */
DANAUS_API danaus_status danaus_conv_plan_create(
    danaus_device *device, const danaus_conv_desc *desc, danaus_conv_plan **plan);
DANAUS_API void danaus_conv_plan_destroy(danaus_conv_plan *plan); /* NULL is fine */

/* Writes what will run, in one line, and then why: the terms of the cost model and its next
   best choices. The string has at most `size` bytes. Returns the length of the whole text. */
DANAUS_API size_t
danaus_conv_plan_describe(const danaus_conv_plan *plan, char *text, size_t size);

/* Transforms filters k[filters][filter_length] for a plan. k_reverse has the same
   shape and is NULL unless the plan is bidirectional; skip[filters] may be NULL.
   All are host memory in the type of sums: the plan's, but f32 for 16 bits. They are copied:
   they may change or be freed. If all three are NULL, filters are zero until they
   are updated. */
DANAUS_API danaus_status danaus_spectrum_create(
    const danaus_conv_plan *plan, danaus_device *device, const void *k,
    const void *k_reverse, const void *skip, danaus_spectrum **spectrum);

/* Bytes of memory of the spectrum of a plan's filters. */
DANAUS_API danaus_status
danaus_spectrum_bytes(const danaus_conv_plan *plan, size_t *bytes);

/* A spectrum in the caller's device memory, at a multiple of 64 bytes (256 on a GPU). The
   memory must stay as long as the spectrum is used, and destroying the spectrum does not free
   it. The spectrum takes the bytes that are there: those that a spectrum of the same plan
   wrote, or of a plan made from the same description on a device of the same name, or a copy.
   So a spectrum can be passed on as plain memory. Other bytes give meaningless numbers but do
   no harm. */
DANAUS_API danaus_status danaus_spectrum_create_in(
    const danaus_conv_plan *plan, danaus_device *device, void *memory, size_t bytes,
    danaus_spectrum **spectrum);

/* Transforms again after the filters have changed. No convolution with this spectrum may
   run meanwhile. On a GPU the call waits, and is unsupported while a graph is captured. */
DANAUS_API danaus_status danaus_spectrum_update(
    danaus_spectrum *spectrum, danaus_device *device, const void *k,
    const void *k_reverse, const void *skip);

/* The same from device memory, in any real type `dtype`, or any complex one if the plan is
   complex; numbers are rounded to the type of sums. On a GPU the work is enqueued on the
   device's stream, waits for nothing and can be captured; the arrays must stay until it is
   done. On a CPU the work is done on return. */
DANAUS_API danaus_status danaus_spectrum_update_from(
    danaus_spectrum *spectrum, danaus_device *device, danaus_dtype dtype, const void *k,
    const void *k_reverse, const void *skip);
DANAUS_API void danaus_spectrum_destroy(danaus_spectrum *spectrum); /* NULL is fine */

/* Computes y for batch x channels rows, batch >= 0; gates may be NULL. All arrays are device
   memory, and y overlaps none of the others. The first call may grow the device's scratch;
   later calls allocate nothing. The result has the same bits for any number of threads and
   any batch. One exception: GPUs may transform two circular rows of the batch at once, and
   then the last bits of each depend on the other (docs/conv.md, 'Pairs'). */
DANAUS_API danaus_status danaus_conv_execute(
    const danaus_conv_plan *plan, danaus_device *device,
    const danaus_spectrum *spectrum, int64_t batch, const void *u, const void *gate_in,
    const void *gate_out, void *y);

/* Gradients of a loss whose gradient at y is dy. Members that are NULL are skipped. The
   others are overwritten, not added to, and overlap neither the inputs nor each other. dk,
   dk_reverse [filters][filter_length] and dskip[filters] are sums over all rows of a
   filter, in the type of sums; taps that meet no number get zero. */
typedef struct danaus_conv_gradients {
    void *du, *dgate_in, *dgate_out; /* like u, of the plan's type */
    void *dk, *dk_reverse, *dskip;
    void *reserved[6];
} danaus_conv_gradients;

/* Deterministic like execute; batch >= 1. dgate_in and dgate_out need their gates, dk_reverse a
   bidirectional plan. */
DANAUS_API danaus_status danaus_conv_gradient(
    const danaus_conv_plan *plan, danaus_device *device,
    const danaus_spectrum *spectrum, int64_t batch, const void *u, const void *gate_in,
    const void *gate_out, const void *dy, const danaus_conv_gradients *gradients);

/* Bytes of scratch that this device needs for this batch (at least 1), with its present
   threads: *forward to transform filters and execute, *gradient for all gradients. Calls work
   with lent scratch of at least that size. Fewer gradients may need less. Either pointer may
   be NULL. */
DANAUS_API danaus_status danaus_conv_scratch_bytes(
    const danaus_conv_plan *plan, danaus_device *device, int64_t batch, size_t *forward,
    size_t *gradient);

/* ---- packed sequences ---- */

/* Sequences of different lengths in one call, without padding: u, y and the gates are
   arrays [channels][columns], and sequence i is columns offsets[i] to offsets[i + 1] - 1 of
   every channel. offsets[sequences + 1] is host memory and may be freed when a call returns.
   It ascends from 0 to `columns`, by at most the plan's length each time. Empty sequences
   are allowed. Every sequence is convolved as if it were alone: taps beyond it meet nothing,
   and its y has the same bits whatever else is in the call.

   The plan has `packed` set and takes no other calls; it is causal or bidirectional. Its
   spectrum holds spectra for transforms of several lengths, together at most about five times
   as large as the one for `length`. A sequence uses the shortest transform that is long
   enough, so its time depends on its own length. A call allocates 24 bytes of host memory for
   each sequence (or for each window, where long sequences meet short filters). */
DANAUS_API danaus_status danaus_conv_execute_packed(
    const danaus_conv_plan *plan, danaus_device *device,
    const danaus_spectrum *spectrum, int64_t sequences, const int64_t *offsets,
    const void *u, const void *gate_in, const void *gate_out, void *y);

/* dk, dk_reverse and dskip are sums over all sequences, in an order that depends only on the
   offsets. There is at least one column. */
DANAUS_API danaus_status danaus_conv_gradient_packed(
    const danaus_conv_plan *plan, danaus_device *device,
    const danaus_spectrum *spectrum, int64_t sequences, const int64_t *offsets,
    const void *u, const void *gate_in, const void *gate_out, const void *dy,
    const danaus_conv_gradients *gradients);

DANAUS_API danaus_status danaus_conv_scratch_bytes_packed(
    const danaus_conv_plan *plan, danaus_device *device, int64_t sequences,
    const int64_t *offsets, size_t *forward, size_t *gradient);

/* ---- short filters ---- */

#define DANAUS_SHORT_MOST_TAPS 128

typedef enum danaus_channels {
    DANAUS_CHANNELS_FIRST = 0, /* u[batch][channels][length] */
    DANAUS_CHANNELS_LAST       /* u[batch][length][channels] */
} danaus_channels;

typedef struct danaus_short_desc {
    int64_t channels, length, taps; /* taps: 1 to DANAUS_SHORT_MOST_TAPS */
    int centred;                    /* nonzero: k[0] multiplies u[t + (taps - 1) / 2] */
    danaus_channels layout;
    danaus_dtype dtype; /* of u and y: f32 (0), f16, bf16 or f64 */
    uint32_t reserved[9];
} danaus_short_desc;

/* y[t] = bias + sum over s < taps of k[s] u[t + shift - s] for each channel of each
   batch row, where u is zero outside of its length and shift is 0 or, centred,
   (taps - 1) / 2. k[channels][taps] and bias[channels] (or NULL) are in the type of
   sums. All are device memory, and y overlaps none of the others. Sums are computed in
   the order of s, so the result has the same bits for both layouts and any number of
   threads. On a GPU the work is enqueued on the device's stream. The first call with
   such sizes compiles and cannot be captured; later calls can. */
DANAUS_API danaus_status danaus_short_conv(
    danaus_device *device, const danaus_short_desc *desc, int64_t batch, const void *k,
    const void *bias, const void *u, void *y);

/* Gradients of a loss whose gradient at y is dy. Members that are NULL are skipped. The
   others are overwritten, not added to, and overlap neither the inputs nor each other. */
typedef struct danaus_short_gradients {
    void *du;         /* like u; the same bits for both layouts */
    void *dk, *dbias; /* like k and bias: sums over the batch and the length */
    void *reserved[5];
} danaus_short_gradients;

/* du[t] = sum over s < taps of k[s] dy[t - shift + s], dk[s] = sum over batch and t of
   dy[t] u[t + shift - s], dbias = sum over batch and t of dy[t]. batch >= 1; k may be
   NULL without du, u without dk. Deterministic: the same bits for any number of
   threads. On a GPU dk and dbias need scratch. All else is as in danaus_short_conv(). */
DANAUS_API danaus_status danaus_short_conv_gradient(
    danaus_device *device, const danaus_short_desc *desc, int64_t batch, const void *k,
    const void *u, const void *dy, const danaus_short_gradients *gradients);

/* ---- the Hyena operator ---- */

/* Short convolutions of all projections, gates and long convolutions in one call. The rows of
   u[batch][order + 1][channels][length] are the groups x_0, ..., x_{order-1}, v of channels:

       z = short (*) u + bias,   causal, a short filter for each row of a batch member,
       v_0 = v of z,   v_{o+1} = k_o (*) p_o + skip_o p_o,   p_o = x_{order-1-o} of z * v_o,
       y = x_0 of z * v_{order-1},          y[batch][channels][length],

   for o = 0, ..., order - 2, with causal long convolutions of `filters` filters each. So
   order 2 is y = x_0 * (k (*) (x_1 * v) + skip * x_1 * v). z is stored in the type of u, or
   computed where it is read.

   Source: Poli et al., Hyena Hierarchy, ICML 2023 (arXiv 2302.10866), section 3 and
   algorithm 3; the order of groups is that of the authors' code (HyenaOperator of
   HazyResearch/safari). */
#define DANAUS_HYENA_MOST_ORDER 8

typedef struct danaus_hyena_plan danaus_hyena_plan;

/* All-zero is the default of every field but channels, length and taps. */
typedef struct danaus_hyena_desc {
    int64_t channels, length; /* of y; at least 1 */
    int64_t order;            /* 2 to DANAUS_HYENA_MOST_ORDER; 0: 2 */
    int64_t taps;             /* of short filters, 1 to DANAUS_SHORT_MOST_TAPS */
    int64_t filter_length;    /* of long filters; 0: length */
    int64_t filters;          /* this and the following: as in danaus_conv_desc */
    danaus_dtype dtype;
    danaus_effort effort;
    int64_t batch;
    danaus_conv_accuracy accuracy;
    int packed; /* nonzero: for sequences of any length up to `length`, below */
    uint32_t reserved[8];
} danaus_hyena_desc;

/* Immutable like plans of convolutions. Destroy it after its spectra and before the device. */
DANAUS_API danaus_status danaus_hyena_plan_create(
    danaus_device *device, const danaus_hyena_desc *desc, danaus_hyena_plan **plan);
DANAUS_API void danaus_hyena_plan_destroy(danaus_hyena_plan *plan); /* NULL is fine */

/* The plan of all long convolutions, which belongs to this plan. Create the spectra of
   k_0, ... for it, each from k[filters][filter_length] and skip[filters]. */
DANAUS_API const danaus_conv_plan *danaus_hyena_plan_conv(
    const danaus_hyena_plan *plan);

/* The operands of a call, which it reads. All but spectra are device memory. */
typedef struct danaus_hyena_operands {
    const void *u;
    const void *taps; /* [order + 1][channels][taps] and */
    const void *bias; /* [order + 1][channels], or NULL: in the type of sums */
    const danaus_spectrum *const *spectra; /* [order - 1]: of k_0, ... */
    void *reserved[4];
} danaus_hyena_operands;

/* Bytes of the workspace that the caller lends to calls for this batch, at least 1: *forward to
   execute, *gradient for all gradients. They may be 0. Either pointer may be NULL. */
DANAUS_API danaus_status danaus_hyena_workspace_bytes(
    const danaus_hyena_plan *plan, int64_t batch, size_t *forward, size_t *gradient);

/* Computes y for a batch >= 0. The workspace is device memory at a multiple of 64 bytes and
   overlaps nothing else; y overlaps none of the operands. All else is as for
   danaus_conv_execute() and danaus_short_conv(): the result has the same bits for any number
   of threads and any batch. */
DANAUS_API danaus_status danaus_hyena_execute(
    const danaus_hyena_plan *plan, danaus_device *device, int64_t batch,
    const danaus_hyena_operands *operands, void *workspace, void *y);

/* Gradients of a loss whose gradient at y is dy[batch][channels][length]. Members that are
   NULL are skipped. The others are overwritten, not added to, and overlap neither the inputs
   nor each other. All but du are sums, in the type of sums. */
typedef struct danaus_hyena_gradients {
    void *du;            /* like u */
    void *dtaps, *dbias; /* like taps and bias */
    void *dk;            /* [order - 1][filters][filter_length] */
    void *dskip;         /* [order - 1][filters] */
    void *reserved[5];
} danaus_hyena_gradients;

/* Deterministic like execute; batch >= 1. The call computes intermediate results again:
   nothing is kept between calls. */
DANAUS_API danaus_status danaus_hyena_gradient(
    const danaus_hyena_plan *plan, danaus_device *device, int64_t batch,
    const danaus_hyena_operands *operands, const void *dy, void *workspace,
    const danaus_hyena_gradients *gradients);

/* Packed sequences, for plans with `packed` set, which take no other calls. The rows of
   u[order + 1][channels][columns], y and dy[channels][columns] are as for
   danaus_conv_execute_packed(), and so are offsets[sequences + 1] in host memory and what a
   call allocates. Short filters too meet nothing beyond a sequence, and its y and du have the
   same bits whatever else is in the call. Gradients need at least one column. */
DANAUS_API danaus_status danaus_hyena_workspace_bytes_packed(
    const danaus_hyena_plan *plan, int64_t columns, size_t *forward, size_t *gradient);
DANAUS_API danaus_status danaus_hyena_execute_packed(
    const danaus_hyena_plan *plan, danaus_device *device, int64_t sequences,
    const int64_t *offsets, const danaus_hyena_operands *operands, void *workspace,
    void *y);
DANAUS_API danaus_status danaus_hyena_gradient_packed(
    const danaus_hyena_plan *plan, danaus_device *device, int64_t sequences,
    const int64_t *offsets, const danaus_hyena_operands *operands, const void *dy,
    void *workspace, const danaus_hyena_gradients *gradients);

/* ---- streams ---- */

typedef struct danaus_stream danaus_stream;

typedef struct danaus_stream_desc {
    int64_t channels, filter_length;
    int64_t filters;    /* as in danaus_conv_desc */
    danaus_dtype dtype; /* of u, y and the filters: f32 (0) or f64 */
    uint32_t reserved[9];
} danaus_stream_desc;

/* A causal convolution that takes its signal in blocks of any size and returns each block's
   y at once, without latency. On a CPU the filter is cut into parts that grow with their
   lag, and every call does a little of the work of large parts. A GPU sums all taps directly
   (docs/conv.md). k[filters][filter_length] is host memory and is copied. Only one thread
   at a time may use the stream; on a GPU its work is in the device's stream. */
DANAUS_API danaus_status danaus_stream_create(
    danaus_device *device, const danaus_stream_desc *desc, const void *k,
    danaus_stream **stream);
DANAUS_API void danaus_stream_destroy(danaus_stream *stream); /* NULL is fine */

/* Forgets the signal: the next block begins a new one. */
DANAUS_API danaus_status danaus_stream_reset(danaus_stream *stream);

/* Takes the next `count` >= 0 numbers of every channel: u and y are [channels][count] and
   do not overlap. The result has the same bits however the signal is cut into blocks. CPUs
   take subnormal numbers as zero. Unsupported while a graph is captured: each launch would
   put its block in the same place of the signal. */
DANAUS_API danaus_status danaus_stream_run(
    danaus_stream *stream, danaus_device *device, int64_t count, const void *u,
    void *y);

/* From the next number on, the filters of `next` take the place of the stream's, without a
   click. With r = min(1, (t + 1) / (fade + 1)) for number t from now, the new filters get r u[t]
   and the old ones (1 - r) u[t], so that the tail of what came before rings out. Until then, that
   is for fade + filter_length numbers, both are computed. fade >= 0; up to
   DANAUS_STREAM_MOST_FADING replaced filters may still sound.

   `next` is a stream of the same channels and type on the same device, which has seen no signal;
   its filters may have another length. On success it belongs to the stream and is not destroyed
   by the caller. The call only exchanges filters: create `next` in a thread without deadlines.
   CPUs only; unsupported elsewhere. */
#define DANAUS_STREAM_MOST_FADING 16
DANAUS_API danaus_status
danaus_stream_replace(danaus_stream *stream, danaus_stream *next, int64_t fade);

#ifdef __cplusplus
}
#endif

#endif
