/* The contract of convolutions between src/conv and backends.

   src/conv has what every backend needs: checks of arguments; the reach of each kind and the
   windows of rows (conv_frame); the choice of a cut by table, model or measurement, its
   description, and the calibration of the model; the algebra of gradients (conv_job); which
   numbers sparse spectra keep; and when a stream does which work. A backend has kernels, and
   says how much work a cut is on its device:

   member       the CPU                                a GPU
   kernel       one for each storage type              one for each storage type
   terms        passes by radix, blocks, the bytes     operations, bytes through shared
                of each cache                          memory, bytes of memory; built in:
                                                       facts of the device
   work         counts these; threads share windows    counts these; 0 where n is too long
                of few rows                            for two levels
   create       tables of constants                    constants on the device, functions to
                                                       launch, all compiled
   run          a window of a filter a thread;         launches for filters, laid out,
                each product and each sum over         transformed; for each product one, or
                windows and threads                    three of two levels: x times its factor
                                                       is read once, the results times theirs
                                                       written once; sums in parts
   scratch      a window and a buffer a thread; of     points between levels, sums; nothing
                gradients three                        for products of one level
   short_conv     direct sums, in segments               direct sums, in tiles
   stream_*     a thread takes channels                direct sums, a segment of taps a thread

   Members may be NULL: operations that need them are unsupported on that device. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_DEVICE_CONV_H
#define DN_DEVICE_CONV_H

#include "base/dtype.h"
#include "base/numbers.h"
#include "danaus/conv.h"
#include "device/backend.h"

struct text;

/* Every field is set: filter_length, filters and dtype are never 0; axes and keep are
   all 0 where whole spectra count. */
typedef danaus_conv_desc conv_problem;

#define CONV_AXES 4

/* Numbers of a channel in memory, of its filter. */
static inline int64_t dn_conv_numbers(const conv_problem *p)
{
    return p->height ? p->height * p->length : p->length;
}

static inline int64_t dn_conv_taps(const conv_problem *p)
{
    return p->height ? p->filter_height * p->filter_length : p->filter_length;
}

/* Channels of a signal, 1 unless it is a filter bank. */
static inline int64_t dn_conv_share(const conv_problem *p)
{
    return p->signals ? p->channels / p->signals : 1;
}

static inline int dn_conv_is_bank(const conv_problem *p)
{
    return dn_conv_share(p) > 1;
}

/* The accuracy of plans that ask for none. */
static inline danaus_conv_accuracy dn_conv_usual_accuracy(danaus_dtype dtype)
{
    return dn_has_16_bits(dtype) ? DANAUS_CONV_FAST : DANAUS_CONV_ACCURATE;
}

/* ---- cuts ---- */

/* One of a device's kernels for windows. */
typedef struct conv_kernel {
    const char *name; /* "conv.fft.f32"; stable: tuning files use it */
    danaus_dtype dtype;
    int unit;       /* a window's n is a multiple of it */
    int radix;      /* the largest that suits it, where nothing is chosen */
    int offered[2]; /* largest radices to choose from; 0: no other */
    int fast;       /* products of 16 bits: for plans that take them */
} conv_kernel;

/* One way to cut rows: into windows of n points, which are 2 n real numbers or n complex ones,
   transformed by radices of at most `radix`. */
typedef struct conv_cut {
    const conv_kernel *kernel;
    int64_t n;
    int radix;
} conv_cut;

/* The box of frequencies that a sparse spectrum keeps (danaus/conv.h); axes are powers of
   two. */
typedef struct conv_box {
    int shift[CONV_AXES]; /* log2 of the axes */
    int64_t mask[CONV_AXES], keep[CONV_AXES];
} conv_box;

/* Planes as flat rows (docs/conv.md, "Planes"): a flat row has `pitch` numbers for each row of a
   plane. The first `halo` of these repeat the row's end in periodic planes; those after the
   row's own are zero. A filter's flat taps are those of its rows, `pitch` apart. */
typedef struct conv_plane {
    int64_t height, width; /* 0: rows lie in memory as they are */
    int64_t pitch, halo;
    int64_t down, across;            /* the centre */
    int64_t taps_height, taps_width; /* of a filter in memory */
    /* Taps that meet numbers: their first row and column, how many rows and columns. */
    int64_t first_down, first_across, tap_rows, tap_columns;
    int64_t here; /* the flat lag of number t itself */
} conv_plane;

/* A convolution in numbers: y[t] depends on p[t - before] to p[t + after]; and the windows that
   a row is cut into (src/conv/frame.h). */
typedef struct conv_frame {
    int64_t length, taps; /* of a row, flat if it is a plane; of a filter in memory */
    int parts;            /* of a number: 2 if it is complex, else 1 */
    conv_plane plane;
    int64_t before, after;
    int periodic; /* rows repeat, and filters are folded to the length of a row */
    int reverse;  /* there are reverse filters, of negative lags */
    int sparse;   /* spectra are, and keep: */
    conv_box box;
    conv_cut cut;
    int fold; /* the one window of a periodic row as long as n: what its second half has
                 goes beyond the row and comes back onto the first */
    int64_t windows, step; /* step: numbers of y of a window */
    int64_t groups;        /* of channels, in grouped arrays; of others: 1 */
    int64_t short_taps;    /* taps that products are to take (conv_short); 0: none */
    int packed;            /* rows are sequences, which begin at any column */
} conv_frame;

/* Numbers of a window of n points. */
static inline int64_t dn_conv_room(const conv_frame *f, int64_t n)
{
    return f->parts == 2 ? n : 2 * n;
}

/* The type of the parts of points: that of sums or, of complex numbers, of the parts of these. */
static inline danaus_dtype dn_conv_point_type(danaus_dtype dtype)
{
    return dn_part_type(dn_sum_type(dtype));
}

/* ---- the model of costs (docs/conv.md (8)) ---- */

#define CONV_MOST_TERMS 16

/* Constants of the model in tuning tables, for a type of sums. */
typedef enum tuning_constant {
    TUNING_WINDOW, /* seconds of a window beyond its passes */
    TUNING_BLOCK,  /* seconds of a block of a pass beyond its numbers */
    TUNING_GAMMA,  /* operations a second in passes of radix `of` */
    TUNING_TAIL,   /* ... in the last steps, inside vectors of `of` lanes */
    TUNING_OMEGA,  /* bytes a second of cache number `of`; 4: of memory */
    TUNING_CONSTANTS
} tuning_constant;

/* A term of the cost model: something that a window has some amount of, and its cost. */
typedef struct conv_term {
    const char *name; /* for people */
    tuning_constant constant;
    int64_t of;
    double second;
} conv_term;

/* The work of a row: amounts of all terms; and how much longer few rows take than their share
   of the time on a full device, at least 1. */
typedef struct conv_work {
    double amount[CONV_MOST_TERMS];
    double idle;
} conv_work;

/* ---- jobs ---- */

/* k[filters][filter_length], of any real type, or of any complex one if rows are complex. */
typedef struct conv_filters {
    const void *k, *k_reverse, *skip; /* k_reverse, skip: or NULL */
    danaus_dtype dtype;
    int on_device; /* they lie in the device's memory, else in the host's */
} conv_filters;

/* Rows [batch][channels][length]. If an array is grouped, a pointer points to one group of
   [batch][groups][channels][length] (conv_frame). These bits say which arrays are grouped: */
enum { CONV_GROUPED_DATA = 1, CONV_GROUPED_FACTOR = 2 };

/* These bits say which complex numbers are conjugated before they are multiplied: those that are
   read or made, their factors. */
enum { CONV_CONJUGATE_NUMBER = 1, CONV_CONJUGATE_FACTOR = 2 };

/* Rows, times those of `factor` if that is not NULL. */
typedef struct conv_input {
    const void *data, *factor;
    int grouped, conjugate;
} conv_input;

/* Where results go, times those of `factor` if that is not NULL. */
typedef struct conv_sink {
    void *data;
    const void *factor;
    int grouped, conjugate;
} conv_sink;

#define CONV_MOST_SINKS 2

/* Short causal filters through which operands of a product pass where they are read.
   k[groups][channels][taps], and bias likewise or NULL, are in the type of sums. `group` has the
   groups of x.data, of x.factor and of the factor of the only sink, or -1 for an operand that is
   not filtered. */
typedef struct conv_short {
    const void *k, *bias;
    int group[3];
} conv_short;

/* For all rows  sink = k (*) x; adjoint: with the conjugate of the spectrum, which is the
   filter reversed, so that `before` and `after` change places. */
typedef struct conv_product {
    int adjoint;
    conv_input x;
    int sinks; /* 1 or 2 */
    conv_sink sink[CONV_MOST_SINKS];
    const conv_short *taps; /* of engines that take it; or NULL */
} conv_product;

/* dk[s] = sum over the rows of a filter and t of dy[t] x[t - s], dk_reverse[s] that for
   the lag -1 - s, dskip for 0; each may be NULL. The sums do not depend on threads. */
typedef struct conv_filter_sums {
    conv_input x, dy;
    void *dk, *dk_reverse, *dskip;
    int is_more; /* to be added to what is there */
} conv_filter_sums;

/* Window `number` of a sequence, that is of columns offset, ..., offset + length - 1 of
   every channel. */
typedef struct packed_window {
    int64_t offset, length, number;
} packed_window;

/* Products and sums, in any order or together, of rows [batch][channels][length] or, with
   packed windows, of arrays [channels][columns]. */
typedef struct conv_job {
    int64_t batch;               /* at least 1 */
    const packed_window *packed; /* NULL: rows are not packed */
    int64_t count, columns;      /* of packed windows, at least 1 */
    const void *spectrum;
    int products;
    conv_product product[2];
    int sums; /* nonzero: `filter` is asked for */
    conv_filter_sums filter;
} conv_job;

/* Packed sequences, channels first and of batch 1: sequence i is columns offsets[i] to
   offsets[i + 1] - 1 of every row, offsets[0] is 0, and the last one ends the row. Some may be
   empty. offsets NULL: rows are one each. They may go when a call returns. */
typedef struct short_sequences {
    int64_t count;
    const int64_t *offsets;
} short_sequences;

typedef struct short_operands {
    danaus_short_desc desc; /* dtype is set */
    int64_t batch;          /* at least 1 */
    const void *k, *bias;   /* in the type of sums; bias: or NULL */
    const void *u;
    void *y;
    short_sequences packed;
} short_operands;

typedef struct short_gradient_operands {
    danaus_short_desc desc; /* dtype is set */
    int64_t batch;          /* at least 1 */
    const void *k, *u, *dy; /* k is there for du, u for dk */
    danaus_short_gradients to;
    short_sequences packed;
} short_gradient_operands;

/* The first member of what a backend makes for a problem and a cut. It is immutable. */
typedef struct conv_engine {
    size_t filter_bytes; /* of the spectrum of one filter */
    size_t note_bytes;   /* of each filter, behind the spectra of all; GPUs: 0 */
    size_t
        worker_bytes; /* of scratch, for each window that a thread works on; GPUs: 0 */
} conv_engine;

/* Bytes that the spectra of so many filters take, with their notes. */
static inline size_t dn_conv_spectra_bytes(const conv_engine *e, int64_t filters)
{
    return (size_t)filters * (e->filter_bytes + e->note_bytes);
}

/* A job or, where there is none, filters to be transformed. */
typedef struct conv_call {
    const conv_engine *engine;
    const conv_job *job;
    const conv_filters *filters;
    void *spectrum; /* of the filters */
} conv_call;

/* ---- streams ---- */

#define STREAM_HEAD        64 /* taps that are summed directly */
#define STREAM_MOST_LEVELS 5

/* A filter cut by lag: `parts` parts of `block` taps, the first one at the lag `block`. */
typedef struct stream_level {
    int64_t block, parts;
} stream_level;

typedef struct stream_shape {
    danaus_stream_desc desc; /* every field is set */
    int levels;
    stream_level level[STREAM_MOST_LEVELS];
    int64_t ring; /* numbers of the past, and of sums to come, that have to be kept */
} stream_shape;

typedef struct stream_engine stream_engine;

struct conv_backend {
    /* Row number `index` of the device's table; NULL past the last. */
    const conv_kernel *(*kernel)(const danaus_device *dev, int index);
    /* Fewer rows than that are planned for by their number. */
    int64_t few_rows;
    /* True if channels of a job may share signals (filter banks). */
    int has_banks;
    /* The terms of the model for a kernel, with built-in seconds; returns their number. */
    int (*terms)(
        const danaus_device *dev, const conv_kernel *k,
        conv_term terms[CONV_MOST_TERMS]);
    /* The work of a row with the cut of the frame; 0: the cut cannot be transformed. rows:
       how many are convolved together if they are few, else 0. The result must not depend
       on the number of threads. */
    int (*work)(
        const danaus_device *dev, const conv_frame *f, int64_t rows, conv_work *work);
    /* Before several engines are created for one plan: makes together what takes long in
       that. NULL: nothing does. */
    danaus_status (*prepare)(
        danaus_device *dev, int count, const conv_frame *const *frames);
    danaus_status (*create)(
        danaus_device *dev, const conv_problem *p, const conv_frame *f,
        conv_engine **engine);
    void (*destroy)(conv_engine *engine);
    /* True if products also apply short filters of the frame's number of taps. NULL: they
       do not. */
    int (*takes_short)(const conv_engine *engine);
    /* How a window of the cut is transformed: "8 x 8 x 16 in vectors". */
    void (*describe)(const conv_engine *engine, conv_cut cut, struct text *to);
    /* Calls one after the other; without scratch for all of them, none. Jobs and filters
       on the device are enqueued, wait for nothing and allocate nothing. Pieces of the
       jobs follow each other in memory, and may go when this returns. */
    danaus_status (*run)(danaus_device *dev, int count, const conv_call *calls);
    /* Bytes of scratch that these need; pointers of jobs but `packed` do not count. */
    size_t (*scratch_bytes)(danaus_device *dev, int count, const conv_call *calls);
    danaus_status (*short_conv)(danaus_device *dev, const short_operands *o);
    danaus_status (*short_conv_gradient)(
        danaus_device *dev, const short_gradient_operands *o);
    danaus_status (*stream_create)(
        danaus_device *dev, const stream_shape *shape, const void *k,
        stream_engine **stream);
    void (*stream_destroy)(stream_engine *stream);
    void (*stream_reset)(stream_engine *stream);
    /* `count` numbers of every channel after `time` numbers, in steps (conv/frame.h). */
    danaus_status (*stream_run)(
        danaus_device *dev, stream_engine *stream, int64_t time, int64_t count,
        const void *u, void *y);
};

#endif
