/* Convolutions on the CPU: what the driver (run.c, filter.c), the tables (tables.c)
   and the kernels (kernels.c, once for each instruction set) share.

   A row is cut into windows of 2 n real numbers x. A window is the polynomial
   z = sum of (x[j] + i x[n + j]) Z^j, j < n, in which a product of windows mod Z^2n + 1
   is a product mod Z^n - i (docs/conv.md (2)). Of complex numbers a window has n, and is
   z = sum of x[j] Z^j. Passes of radix R evaluate z: one splits
   every block mod Z^(R m) - c^R into R blocks mod Z^m - c w^p, w = e^(2 pi i / R), p < R,
   and the digits of block b of a pass are the p of the passes before it, the first one
   slowest. The first `outer` passes run in strips of columns through a buffer, so that memory
   is read and written once. The blocks that they leave fit in a part of the second cache.

   Complex numbers lie vector by vector: VL real parts, then VL imaginary parts. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CPU_CONV_CONV_H
#define DN_CPU_CONV_CONV_H

#include "cpu/cpu.h"
#include "conv/frame.h"
#include "math/dft.h"

#define CONV_MOST_RADIX 8
/* Complex constants of one block of a pass: c, ..., c^(R-1), and c w8 for radix 8. */
#define CONV_CONSTANTS 8

typedef struct conv_code conv_code;
typedef struct conv_window conv_window;

/* One pass: what it makes of the 2 pi i multiples of its blocks. */
typedef struct conv_pass {
    int radix;
    int64_t blocks;  /* that it splits */
    int64_t vectors; /* of one block that it makes */
    void *constants; /* [blocks][CONV_CONSTANTS][2] */
} conv_pass;

typedef struct conv_tables {
    int64_t n;
    int passes, outer;
    int64_t inner_blocks;  /* that the outer passes leave */
    int64_t inner_vectors; /* in one of them */
    int64_t strip;         /* vectors */
    int64_t cached;        /* blocks of so many vectors stay in the first cache */
    conv_pass pass[DN_DFT_MOST_RADICES];
    void *tail; /* constants of the last steps, inside vectors (fft_tail.inc) */
    /* For sparse spectra only (sparse.c), else NULL: which values are zero, in the spectrum's
       order, and which blocks of each pass have only zeros. */
    unsigned char *outside, *left_out[DN_DFT_MOST_RADICES];
} conv_tables;

/* Numbers [0, length) along a row, which may be flat, times those of `factor` if that is not
   NULL. Outside of [from, to) they count as zero. */
typedef struct conv_source {
    const void *data, *factor;
    int conjugate; /* CONV_CONJUGATE_... */
    int64_t length, from, to;
    int periodic; /* before 0 and from `length` on they repeat */
    conv_view view;
} conv_source;

typedef enum conv_mode {
    CONV_FORWARD,   /* z becomes its spectrum */
    CONV_INVERSE,   /* and back, times n */
    CONV_MULTIPLY,  /* forward, times spectrum, back */
    CONV_CORRELATE, /* forward, times the conjugate of spectrum, back */
} conv_mode;

/* Powers of two that keep a transform in the range of its type: numbers of the source are
   multiplied by 2^-down, results by 2^up. */
typedef struct conv_scaling {
    int down, up;
} conv_scaling;

/* A spectrum was divided by 2^shift. */
typedef struct conv_note {
    int32_t shift;
} conv_note;

/* One window of one row. Local number j is number start + j of the source and of
   the sinks. */
struct conv_window {
    const conv_tables *tables;
    const conv_code *code;
    conv_source source;
    conv_sink sink[CONV_MOST_SINKS];
    int sinks;
    int64_t start;
    conv_view view; /* of the sinks */
    range out;      /* local numbers that are stored */
    int fold;       /* of periodic rows: number n + j is added to number j (1) or taken
                  from it (-1), and not stored */
    conv_mode mode;
    const void *spectrum;
    void *z; /* n complex numbers */
    conv_scaling scaling;
};

/* Rows so many numbers apart. */
typedef struct conv_rows {
    const void *data;
    int64_t stride;
} conv_rows;

/* One row a storage type. Kernels take a range of strips or of inner blocks; buffer:
   dn_conv_buffer bytes. */
struct conv_code {
    conv_kernel kernel;
    int vector;  /* lanes */
    int inner;   /* lanes of a chunk (vec_scalar.h) */
    int parts;   /* of a number: 2 if it is complex, else 1 */
    int direct;  /* the storage type is that of sums */
    size_t size; /* of an element of sums, or of its parts */
    void (*load)(const conv_window *w, range strips, void *buffer);
    void (*blocks)(const conv_window *w, range blocks);
    void (*store)(const conv_window *w, range strips, void *buffer);
    /* to[i] = data[at + i] factor[at + i], and back; conjugate: CONV_CONJUGATE_... */
    void (*fetch)(
        const void *data, const void *factor, int conjugate, int64_t at, int64_t n,
        void *to);
    void (*put)(
        const void *from, const void *factor, int conjugate, int64_t at, int64_t n,
        void *data);
    /* sum[i] += a[i] b[i], or a[i] conj(b[i]), for n complex numbers. */
    void (*accumulate)(
        int conjugate, int64_t n, const void *a, const void *b, void *sum);
    /* y[t] = start[step t] + sum over s < taps of k[s] x[t - s], t < n; step: 0 or 1.
       past: y goes past the caches where it is aligned; fence() is called after. */
    void (*taps)(
        int64_t n, int64_t taps, const void *k, const void *x, const void *start,
        int step, int past, void *y);
    /* y[t stride + h] = start[h] + sum over s < taps of k[s][h] x[t - s][h], t < rows,
       h < n; start: or NULL. */
    void (*cross)(
        int64_t n, int64_t rows, int64_t taps, conv_rows k, conv_rows x,
        const void *start, int past, void *y, int64_t stride);
    void (*fence)(void);
    /* sums[s] += sum over t < n of dy[t] x[t - s], s < taps, where sums[s] are `vector`
       lanes, to be added. */
    void (*lags)(int64_t n, int64_t taps, const void *dy, const void *x, void *sums);
    /* sums[s stride + h] += sum over t < rows of dy[t][h] x[t - s][h], h < n. */
    void (*cross_lags)(
        int64_t n, int64_t rows, int64_t taps, conv_rows dy, conv_rows x, void *sums,
        int64_t stride);
};

/* Vectors of constants of four blocks of one vector each (fft_tail.inc). */
#define TAIL_OF(vector, inner)                                                         \
    (((vector) >= 4 ? 2 : 0) + ((inner) == 4 ? 2 : (inner) == 2 ? 4 : 0))

static inline int64_t dn_conv_strips(const conv_tables *t)
{
    return (t->inner_vectors + t->strip - 1) / t->strip;
}

/* Scratch of one thread that loads or stores strips: complex numbers of all rows of a
   strip, real and imaginary parts of the segments of one butterfly, and one segment of complex
   numbers as they lie in memory. */
static inline size_t dn_conv_buffer(const conv_tables *t, const conv_code *code)
{
    int64_t vectors = t->strip * (2 * t->inner_blocks + 2 * CONV_MOST_RADIX + 2);
    return (size_t)(vectors * code->vector) * code->size;
}

/* n numbers in the radices that suit the instruction set. */
static inline conv_cut dn_conv_cut(const conv_code *code, int64_t n)
{
    return (conv_cut){ &code->kernel, n, code->kernel.radix };
}

/* Passes, blocks and strips of a cut, without constants; 0: it cannot be transformed.
   cache: bytes of the second one. */
int dn_conv_shape(
    conv_tables *t, conv_cut cut, const conv_code *code, size_t cache, int sparse);

/* The same with constants, for a cut that can be transformed; NULL without memory.
   sparse: the problem whose spectra are sparse, or NULL. */
conv_tables *dn_conv_tables_create(
    conv_cut cut, const conv_code *code, size_t cache, const conv_problem *sparse);
void dn_conv_tables_destroy(conv_tables *tables);

/* Finds what a sparse problem leaves out; 0: no memory. */
int dn_conv_leave_out(conv_tables *t, const conv_code *code, const conv_problem *p);

/* True if block b of those that a pass makes holds zeros alone. */
static inline int dn_conv_left_out(const conv_tables *t, int pass, int64_t b)
{
    return t->left_out[pass] && t->left_out[pass][b];
}

/* ---- ranges (scale.c) ---- */

/* Exponents up to these, in either direction, need no scaling: sums of products of as many
   numbers as there can be stay in range. */
static inline int dn_conv_exponents(danaus_dtype sums)
{
    return sums == DANAUS_F64 ? 900 : 60;
}

/* code->fetch() of the source's numbers, and code->put() to a sink, with the window's scaling. */
void dn_conv_fetch_scaled(const conv_window *w, int64_t at, int64_t n, void *to);
void dn_conv_put_scaled(
    const conv_window *w, const conv_sink *sink, const void *from, int64_t at,
    int64_t n);

/* True if all numbers are finite and one is not zero: the largest magnitude is then below
   2^*size, and at least a quarter of that. The second function is for numbers times factors. */
int dn_conv_size(danaus_dtype sums, const void *x, int64_t n, int *size);
int dn_conv_source_size(const conv_code *code, const conv_source *s, int *size);

/* Largest magnitude of a filter, likewise. */
int dn_conv_filter_size(
    const conv_frame *f, const conv_filters *filters, int64_t filter, int *size);

/* x[i] 2^power */
void dn_conv_multiply(danaus_dtype sums, int power, int64_t n, void *x);

/* The scaling of a window whose arithmetic left the range of its type by overflow or underflow
   (cpu/isa/flags.h); returns whether it helps. */
int dn_conv_rescale(conv_window *w, danaus_dtype sums, int left);

/* What create makes. */
typedef struct cpu_engine {
    conv_engine base;
    conv_problem p;
    conv_frame frame;
    const conv_code *code, *sums; /* of the storage type, and of that of sums */
    conv_tables *tables;
} cpu_engine;

/* The notes lie behind the spectra of all filters, one for each. */
static inline conv_note *dn_conv_notes(
    const cpu_engine *e, const void *spectra, int64_t filters)
{
    return (conv_note *)((uintptr_t)spectra + (size_t)filters * e->base.filter_bytes);
}

extern const conv_backend dn_cpu_conv;

#endif
