/* Sparse spectra: which values count, and which blocks of a transform have none.

   After passes of radix R_1, R_2 ... the block with the digits p has the frequencies
   f = p_1 + R_1 p_2 + R_1 R_2 p_3 ... mod the number of blocks. So the first axes of a
   sparse spectrum remove blocks in the first passes. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv/conv.h"

#include "base/mem.h"

#include <string.h>

/* What the frequencies of vector v after all passes are mod the number of vectors. */
static int64_t vector_frequency(const conv_tables *t, int64_t v, int64_t vectors)
{
    int64_t f = 0, weight = vectors;
    for (int l = t->passes - 1; l >= 0; l--) {
        int64_t radix = t->pass[l].radix;
        weight /= radix;
        f += v % radix * weight;
        v /= radix;
    }
    return f;
}

/* The frequency that the last steps leave in a lane of vector q of four; f: those of the
   four vectors, mod `vectors` (fft_tail.inc: block g, child p, grandchild r). */
static int64_t lane_frequency(
    const conv_code *code, const int64_t f[4], int q, int lane, int64_t vectors)
{
    int chunk = code->vector / 4;
    if (!chunk) /* two lanes are two blocks */
        return f[q / 2 * 2 + lane] + vectors * (q % 2);
    int g = lane / chunk, p = q, r = 0;
    if (code->inner == 2)
        p = q / 2 * 2 + lane % 2, r = q % 2;
    if (code->inner == 4)
        p = lane % 4, r = q;
    return f[g] + vectors * (p + 4 * r);
}

static void mark_values(conv_tables *t, const conv_code *code, const conv_box *b)
{
    int64_t vectors = t->n / code->vector;
    unsigned char *to = t->outside;
    for (int64_t v = 0; v < vectors; v += 4) {
        int64_t f[4];
        for (int q = 0; q < 4; q++)
            f[q] = vector_frequency(t, v + q, vectors);
        for (int q = 0; q < 4; q++)
            for (int lane = 0; lane < code->vector; lane++)
                *to++ = (unsigned char)dn_conv_is_outside(
                    b, lane_frequency(code, f, q, lane, vectors));
    }
}

/* Blocks of a pass that hold nothing but zeros. */
static void mark_blocks(conv_tables *t, int pass)
{
    int64_t blocks = t->pass[pass].blocks * t->pass[pass].radix;
    size_t size = (size_t)(t->n / blocks);
    for (int64_t b = 0; b < blocks; b++)
        t->left_out[pass][b] = !memchr(t->outside + (size_t)b * size, 0, size);
}

int dn_conv_leave_out(conv_tables *t, const conv_code *code, const conv_problem *p)
{
    const conv_box b = dn_conv_box(p);
    t->outside = dn_alloc((size_t)t->n);
    if (!t->outside)
        return 0;
    mark_values(t, code, &b);
    for (int l = 0; l < t->passes; l++) {
        if (t->pass[l].vectors % 4) /* the last steps take four vectors at a time */
            break;
        t->left_out[l] = dn_alloc((size_t)(t->pass[l].blocks * t->pass[l].radix));
        if (!t->left_out[l])
            return 0;
        mark_blocks(t, l);
    }
    return 1;
}
