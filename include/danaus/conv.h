/* Long convolutions along the length of batch x channels rows, in one call:

       y = gate_out * (k (*) (gate_in * u) + skip * gate_in * u).

   u, y and the gates are arrays [batch][channels][length]; * is the product number
   by number and (*) one of

       causal         (k (*) p)[t] = sum over 0 <= s <= t of k[s] p[t - s]
       circular       (k (*) p)[t] = sum over s of k[s] p[(t - s) mod length]
       bidirectional  causal, plus sum over s >= 0 of k_reverse[s] p[t + 1 + s],

   where p is zero outside of its length and k outside of its own. Filters may be
   shorter or longer than the signal. Zeros are never stored.

   Numbers that are not finite go where arithmetic takes them: since all numbers
   of a row meet in a transform, one NaN or infinity may reach any y of its row, also
   those before it. danaus_short_conv() sums directly: there it reaches the y that meet it.

   On a CPU operands may have any size for which the results fit their type; elsewhere sums
   of a transform have to fit, too (docs/conv.md, "Range").

   Source: Fu, Kumbong, Nguyen, Re, FlashFFTConv, ICLR 2024 (arXiv 2311.05908). */
// SPDX-License-Identifier: Apache-2.0
#ifndef DANAUS_CONV_H
#define DANAUS_CONV_H

#include "danaus/base.h"
#include "danaus/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Longest signal and longest filter. */
#define DANAUS_CONV_MOST_LENGTH ((int64_t)1 << 28)

typedef enum danaus_conv_kind {
    DANAUS_CAUSAL = 0,
    DANAUS_CIRCULAR,
    DANAUS_BIDIRECTIONAL
} danaus_conv_kind;

/* How exact a convolution is: accurate ones err as transforms in the type of sums do; fast
   ones, of GPUs, multiply in 16 bits and sum in f32, and err by some 5e-4 of the row's norm
   (docs/conv.md). Where a device has no fast way, and in f64, all are accurate. */
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
    int64_t filters;          /* a divisor of channels, 0: channels; channel h has
                                 filter h / (channels / filters) */
    danaus_conv_kind kind;
    danaus_dtype dtype;   /* of u, y and the gates: f32 (0), f16, bf16 or f64 */
    danaus_effort effort; /* estimate: the tuning table, else the cost model; measure:
                             the table, else some tenths of a second; or table only */
    int64_t batch;        /* plan for this batch, 0: large; any batch may be run */
    int32_t axes[4];      /* N_1 .. N_4 of sparse spectra, below; 0: 8 */
    int32_t keep[4];      /* how many of each; 0: all */
    int packed; /* nonzero: for sequences of any length up to `length`, below */
    danaus_conv_accuracy accuracy;
    uint32_t reserved[8];
} danaus_conv_desc;

/* Sparse spectra (causal and bidirectional plans): a filter has values at n frequencies
   (f + 1/4) / n, 0 <= f < n, which are an array of N_1 x N_2 x N_3 x N_4 x ... numbers,

       f = f_1 + N_1 (f_2 + N_2 (f_3 + N_3 (f_4 + N_4 f_5))).

   Where any keep is set, only those count for which f_i < keep[i - 1] on all four axes;
   the others are taken as zero. Axes are powers of two; n is the least power of two that
   is at least 4096, N_1 N_2 N_3 N_4 and (length + taps) / 2, where taps is the smaller
   of length and filter_length. Time falls with what is left out, most on the first axes.
   What remains of a causal filter is causal no more. FlashFFTConv, section 3.3. */

/* A plan is immutable: share it between threads and between devices of the same
   name. Destroy plans and spectra before the device. */
DANAUS_API danaus_status danaus_conv_plan_create(
    danaus_device *device, const danaus_conv_desc *desc, danaus_conv_plan **plan);
DANAUS_API void danaus_conv_plan_destroy(danaus_conv_plan *plan); /* NULL is fine */

/* Writes what will run, in one line, then why: the terms of the cost model and what it
   liked next; as a string of at most `size` bytes. Returns the length that the whole
   text has. */
DANAUS_API size_t
danaus_conv_plan_describe(const danaus_conv_plan *plan, char *text, size_t size);

/* Transforms filters k[filters][filter_length] for a plan. k_reverse has the same
   shape and is NULL unless the plan is bidirectional; skip[filters] may be NULL.
   They are host memory of the type that sums have: f64 for f64, else f32. They
   are copied: they may change or go. Without filters, all three NULL, they are zero until
   they are updated. */
DANAUS_API danaus_status danaus_spectrum_create(
    const danaus_conv_plan *plan, danaus_device *device, const void *k,
    const void *k_reverse, const void *skip, danaus_spectrum **spectrum);

/* How much memory the spectrum of a plan's filters takes. */
DANAUS_API danaus_status
danaus_spectrum_bytes(const danaus_conv_plan *plan, size_t *bytes);

/* A spectrum in device memory of the caller's, at a multiple of 64 bytes (on a GPU of
   256), which has to stay as long as the spectrum is used, and which destroying leaves
   alone. What lies there counts: numbers that a spectrum of the same plan, or of one that
   was made from the same description on such a device, wrote there, or copies of them. So
   a spectrum can be handed about as plain memory. Other bytes give some numbers, and do no
   harm. */
DANAUS_API danaus_status danaus_spectrum_create_in(
    const danaus_conv_plan *plan, danaus_device *device, void *memory, size_t bytes,
    danaus_spectrum **spectrum);

/* Transforms again, after the filters have changed. No convolution with this
   spectrum may run meanwhile. On a GPU it waits, and is unsupported while a graph is
   captured. */
DANAUS_API danaus_status danaus_spectrum_update(
    danaus_spectrum *spectrum, danaus_device *device, const void *k,
    const void *k_reverse, const void *skip);

/* The same from device memory, of any real type `dtype`; numbers are rounded to the type of
   sums. A GPU's work is enqueued on the device's stream, waits for nothing and can be
   captured; the arrays must stay until it is done. A CPU's work is done on return. */
DANAUS_API danaus_status danaus_spectrum_update_from(
    danaus_spectrum *spectrum, danaus_device *device, danaus_dtype dtype, const void *k,
    const void *k_reverse, const void *skip);
DANAUS_API void danaus_spectrum_destroy(danaus_spectrum *spectrum); /* NULL is fine */

/* y for `batch` times channels rows, batch >= 0; gates may be NULL. All are device
   memory; y overlaps none of the others. The first call may grow the device's
   scratch; later ones allocate nothing. The result has the same bits for any
   number of threads and any batch; but GPUs may transform two circular rows of the
   batch at once, and then the last bits of each depend on the other (docs/conv.md, 'Pairs'). */
DANAUS_API danaus_status danaus_conv_execute(
    const danaus_conv_plan *plan, danaus_device *device,
    const danaus_spectrum *spectrum, int64_t batch, const void *u, const void *gate_in,
    const void *gate_out, void *y);

/* Gradients of a loss that reached y as dy: members that are NULL are skipped. They
   are overwritten, not added to, and overlap neither the inputs nor each other. dk,
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

/* Bytes of scratch that this device needs for rows of this batch (at least 1), with the
   threads that it has now: `forward` to transform filters and execute, `gradient` for all
   gradients; lent so much, or more, they work. Fewer gradients may need less. Either
   place may be NULL. */
DANAUS_API danaus_status danaus_conv_scratch_bytes(
    const danaus_conv_plan *plan, danaus_device *device, int64_t batch, size_t *forward,
    size_t *gradient);

/* ---- packed sequences ---- */

/* Sequences of different lengths in one call, without padding: u, y and the gates are
   arrays [channels][columns], and sequence i is columns offsets[i] to offsets[i + 1] - 1 of
   every channel. offsets[sequences + 1] is host memory and may go when a call returns; it
   ascends from 0 to `columns`, by at most the plan's length each time. Empty sequences are
   allowed. Every sequence is convolved as if it were alone: taps that are beyond it meet
   nothing, and its y has the same bits whatever else is in the call.

   The plan has `packed` set, and takes no other calls; it is causal or bidirectional. Its
   spectrum holds those of transforms for several lengths, together at most about five times
   that of `length` alone; a sequence takes the shortest that is long enough, so that
   its time is that of its own length. A call allocates 24 bytes of host memory for each
   sequence (or each window, where long sequences meet filters of few taps). */
DANAUS_API danaus_status danaus_conv_execute_packed(
    const danaus_conv_plan *plan, danaus_device *device,
    const danaus_spectrum *spectrum, int64_t sequences, const int64_t *offsets,
    const void *u, const void *gate_in, const void *gate_out, void *y);

/* dk, dk_reverse and dskip are sums over all sequences, in an order that depends on offsets
   alone; there is at least one column. */
DANAUS_API danaus_status danaus_conv_gradient_packed(
    const danaus_conv_plan *plan, danaus_device *device,
    const danaus_spectrum *spectrum, int64_t sequences, const int64_t *offsets,
    const void *u, const void *gate_in, const void *gate_out, const void *dy,
    const danaus_conv_gradients *gradients);

DANAUS_API danaus_status danaus_conv_scratch_bytes_packed(
    const danaus_conv_plan *plan, danaus_device *device, int64_t sequences,
    const int64_t *offsets, size_t *forward, size_t *gradient);

/* ---- few taps ---- */

#define DANAUS_SHORT_MOST_TAPS 128

typedef enum danaus_channels {
    DANAUS_CHANNELS_FIRST = 0, /* u[batch][channels][length] */
    DANAUS_CHANNELS_LAST       /* u[batch][length][channels] */
} danaus_channels;

typedef struct danaus_short_desc {
    int64_t channels, length, taps; /* taps: 1 to DANAUS_SHORT_MOST_TAPS */
    int centred;                    /* nonzero: y[t] sees u[t + (taps - 1) / 2] first */
    danaus_channels layout;
    danaus_dtype dtype; /* of u and y: f32 (0), f16, bf16 or f64 */
    uint32_t reserved[9];
} danaus_short_desc;

/* y[t] = bias + sum over s < taps of k[s] u[t + shift - s] for each channel of each
   batch row, where u is zero outside of its length and shift is 0 or, centred,
   (taps - 1) / 2. k[channels][taps] and bias[channels] (or NULL) are in the type of
   sums; all are device memory, y overlaps none of the others. Sums are made in the
   order of s: the same bits for both layouts and any number of threads. On a GPU the work is
   enqueued on the device's stream; the first call with such sizes compiles, and can be
   captured only once it has been made before. */
DANAUS_API danaus_status danaus_short_conv(
    danaus_device *device, const danaus_short_desc *desc, int64_t batch, const void *k,
    const void *bias, const void *u, void *y);

/* Gradients of a loss that reached y as dy: members that are NULL are skipped. They are
   overwritten, not added to, and overlap neither the inputs nor each other. */
typedef struct danaus_short_gradients {
    void *du;         /* like u; the same bits for both layouts */
    void *dk, *dbias; /* like k and bias: sums over the batch and the length */
    void *reserved[5];
} danaus_short_gradients;

/* du[t] = sum over s < taps of k[s] dy[t - shift + s], dk[s] = sum over batch and t of
   dy[t] u[t + shift - s], dbias = sum over batch and t of dy[t]. batch >= 1; k may be
   NULL without du, u without dk. Deterministic: the same bits for any number of
   threads. On a GPU dk and dbias take scratch. The rest is as in danaus_short_conv(). */
DANAUS_API danaus_status danaus_short_conv_gradient(
    danaus_device *device, const danaus_short_desc *desc, int64_t batch, const void *k,
    const void *u, const void *dy, const danaus_short_gradients *gradients);

/* ---- the Hyena operator ---- */

/* Short convolutions of all projections, gates and long convolutions in one call. The rows of
   u[batch][order + 1][channels][length] are the groups x_0, ..., x_{order-1}, v of channels:

       z = short (*) u + bias,   causal, few taps for each row of a member of the batch,
       v_0 = v of z,   v_{o+1} = k_o (*) p_o + skip_o p_o,   p_o = x_{order-1-o} of z * v_o,
       y = x_0 of z * v_{order-1},          y[batch][channels][length],

   for o = 0, ..., order - 2, with causal long convolutions of `filters` filters each. So
   order 2 is y = x_0 * (k (*) (x_1 * v) + skip * x_1 * v). z is stored, in the type of u,
   or made where it is read.

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
    int64_t filter_length;    /* of long ones; 0: length */
    int64_t filters;          /* as in danaus_conv_desc, and the rest, too */
    danaus_dtype dtype;
    danaus_effort effort;
    int64_t batch;
    danaus_conv_accuracy accuracy;
    int packed; /* nonzero: for sequences of any length up to `length`, below */
    uint32_t reserved[8];
} danaus_hyena_desc;

/* Immutable, as plans of convolutions are. Destroy it after its spectra, before the device. */
DANAUS_API danaus_status danaus_hyena_plan_create(
    danaus_device *device, const danaus_hyena_desc *desc, danaus_hyena_plan **plan);
DANAUS_API void danaus_hyena_plan_destroy(danaus_hyena_plan *plan); /* NULL is fine */

/* The plan of all long convolutions, which belongs to this one: spectra of k_0, ... are made
   for it, each of k[filters][filter_length] and skip[filters]. */
DANAUS_API const danaus_conv_plan *danaus_hyena_plan_conv(
    const danaus_hyena_plan *plan);

/* What the operator is made of. All but spectra is device memory, which a call reads. */
typedef struct danaus_hyena_operands {
    const void *u;
    const void *taps; /* [order + 1][channels][taps] and */
    const void *bias; /* [order + 1][channels], or NULL: in the type of sums */
    const danaus_spectrum *const *spectra; /* [order - 1]: of k_0, ... */
    void *reserved[4];
} danaus_hyena_operands;

/* Bytes of the workspace that calls are lent for so many members of a batch, at least 1: to
   execute, and for all gradients. It may be 0. Either place may be NULL. */
DANAUS_API danaus_status danaus_hyena_workspace_bytes(
    const danaus_hyena_plan *plan, int64_t batch, size_t *forward, size_t *gradient);

/* y for a batch >= 0. The workspace is device memory at a multiple of 64 bytes that overlaps
   nothing else; y overlaps none of the operands. Everything else is as for
   danaus_conv_execute() and danaus_short_conv(), the same bits for any number of threads
   and any batch included. */
DANAUS_API danaus_status danaus_hyena_execute(
    const danaus_hyena_plan *plan, danaus_device *device, int64_t batch,
    const danaus_hyena_operands *operands, void *workspace, void *y);

/* Gradients of a loss that reached y as dy[batch][channels][length]: members that are NULL
   are skipped. They are overwritten, not added to, and overlap neither the inputs nor each
   other. All but du are sums, in the type of sums. */
typedef struct danaus_hyena_gradients {
    void *du;            /* like u */
    void *dtaps, *dbias; /* like taps and bias */
    void *dk;            /* [order - 1][filters][filter_length] */
    void *dskip;         /* [order - 1][filters] */
    void *reserved[5];
} danaus_hyena_gradients;

/* Deterministic like execute; batch >= 1. What the operator is made of is made again, so that
   nothing is kept between the calls. */
DANAUS_API danaus_status danaus_hyena_gradient(
    const danaus_hyena_plan *plan, danaus_device *device, int64_t batch,
    const danaus_hyena_operands *operands, const void *dy, void *workspace,
    const danaus_hyena_gradients *gradients);

/* Packed sequences, for plans with `packed` set, which take no other calls: the rows of
   u[order + 1][channels][columns] and of y and dy[channels][columns] are as for
   danaus_conv_execute_packed(), and so are offsets[sequences + 1], of the host's memory, and
   what a call allocates. Filters of few taps, too, meet nothing beyond a sequence, and its y
   and du have the same bits whatever else is in the call. Gradients need at least one
   column. */
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

/* A causal convolution that takes its signal in blocks of any size and gives each
   block's y at once, with no latency: on a CPU the filter is cut into parts that grow with
   their lag, and large parts are worked on a little at every call; a GPU sums all taps
   directly (docs/conv.md). k[filters][filter_length] is host memory and is copied. The
   stream belongs to one thread at a time; on a GPU its work is in the device's stream. */
DANAUS_API danaus_status danaus_stream_create(
    danaus_device *device, const danaus_stream_desc *desc, const void *k,
    danaus_stream **stream);
DANAUS_API void danaus_stream_destroy(danaus_stream *stream); /* NULL is fine */

/* Forgets the signal: what follows begins anew. */
DANAUS_API danaus_status danaus_stream_reset(danaus_stream *stream);

/* The next `count` >= 0 numbers of every channel: u and y are [channels][count] and
   do not overlap. The same bits however the signal is cut into blocks. CPUs take numbers below
   the normal ones as zero. Unsupported while a
   graph is captured, which would put its block in one place of the signal again and again. */
DANAUS_API danaus_status danaus_stream_run(
    danaus_stream *stream, danaus_device *device, int64_t count, const void *u,
    void *y);

#ifdef __cplusplus
}
#endif

#endif
