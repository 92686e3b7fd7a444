/* Texts of convolutions, run as run_text.h runs texts: rows, packed or not, and what is launched
   with them. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_EMULATOR_RUN_CONV_H
#define TEST_EMULATOR_RUN_CONV_H

#include "base/dtype.h"
#include "conv/frame.h"
#include "emulator/run_text.h"
#include "gpu/conv/conv_mma.h"

#define PI          3.14159265358979323846
#define CHANNELS    2
#define MOST_PIECES 16

static double at(const array *a, int64_t i)
{
    return element_get(a->dtype, a->data, i).re;
}

/* Rounded to the type. */
static void put(danaus_dtype dtype, void *to, int64_t i, double v)
{
    float f = (float)v;
    dn_convert(DANAUS_F32, &f, dtype, (char *)to + i * dn_size_of(dtype), 1);
}

/* Rows [batch][CHANNELS] of `length` numbers; or they are packed, two in the batch, of which the
   second one is shorter by `less`, and lie in [CHANNELS][columns]. */
typedef struct row_shape {
    int64_t length, less, batch;
} row_shape;

typedef struct packed_row {
    int64_t first, length;
} packed_row;

static packed_row row_of(row_shape s, int64_t row)
{
    int64_t b = row / CHANNELS, h = row % CHANNELS, columns = 2 * s.length - s.less;
    if (!s.less)
        return (packed_row){ row * s.length, s.length };
    return (packed_row){ h * columns + b * s.length, b ? s.length - s.less : s.length };
}

/* Windows of all rows of a channel: what lies there if they are packed, and how many. */
static int64_t find_windows(
    row_shape s, const conv_frame *f, int pair, packed_window windows[MOST_PIECES])
{
    int64_t count = 0;
    if (!s.less)
        return (pair ? CEIL_DIV(s.batch, 2) : s.batch) * f->windows;
    for (int b = 0; b < 2; b++) {
        packed_row p = row_of(s, b * CHANNELS);
        for (int64_t w = 0; w * f->step < p.length; w++)
            windows[count++] = (packed_window){ p.first, p.length, w };
    }
    return count;
}

/* What texts are told of rows (conv_window.cuh). */
static void tell_rows(
    row_shape s, const conv_frame *f, int64_t windows, int adjoint, int64_t rows[8])
{
    const int64_t told[] = { s.less ? 2 * s.length - s.less : f->length,
                             s.less ? 1 : s.batch,
                             CHANNELS,
                             s.less ? windows : f->windows,
                             f->step,
                             -dn_conv_span(f, f->length, 0, adjoint).start,
                             adjoint ? f->after : f->before,
                             adjoint ? f->before : f->after };
    memcpy(rows, told, sizeof told);
}

typedef void conv_function(
    unsigned blocks, unsigned threads, unsigned bytes, const void *operands);

/* Programs include TEXT. */
static void run_use(
    const char *program, const gpu_use *use, const gpu_launch *l, const void *operands)
{
    char defines[sizeof use->defines + 64];
    conv_function *launch;
    snprintf(
        defines, sizeof defines, "#define TEXT \"%s\"\n%s", use->text, use->defines);
    void *library = load_program(program, defines, &launch);
    launch((unsigned)l->blocks[0], (unsigned)l->threads, (unsigned)l->shared, operands);
    dlclose(library);
}

#endif
