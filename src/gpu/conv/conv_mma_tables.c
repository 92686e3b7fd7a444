/* The tables of texts/conv_mma.cu: matrices as registers of lanes, laid down one after another
   as conv_mma_part.cuh says. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/conv/conv_mma.h"

#include "base/dtype.h"
#include "math/dft.h"

#include <math.h>

#define LEFT 128 /* words of a left operand of 16 x 16 numbers */

static int64_t tiles(int64_t n) { return CEIL_DIV(n, 16); }

static int in_rows(const gpu_conv_mma *m)
{
    return m->root * (dn_gpu_conv_mma_is_half(m) ? 1 : 2);
}

/* Words of the matrices of the first index, in one direction. */
static int64_t first_words(const gpu_conv_mma *m)
{
    return dn_gpu_conv_mma_in_layers(m) ? 0
                                        : tiles(2 * m->root) * tiles(in_rows(m)) * LEFT;
}

/* Forward, and back; sums do not go back. */
static int ways(const gpu_conv_mma *m) { return m->sums ? 1 : 2; }

/* ---- numbers ---- */

/* Number (row, column) of a matrix: e^(2 pi i num / den) times a factor. */
typedef struct matrix {
    const gpu_conv_mma *m;
    int p0; /* of an inner matrix */
    void (*number)(const struct matrix *x, int row, int column, double z[2]);
} matrix;

static void unit(int64_t num, int64_t den, double factor, double z[2])
{
    dn_unit(num % den, den, z);
    z[0] *= factor;
    z[1] *= factor;
}

/* Windows are mod Z^n - i or, of pairs, Z^n - 1. */
static int phase_of(const gpu_conv_mma *m) { return !m->pair; }

/* c^q w^(p q) with c^R = i, or 1. */
static void first_number(const matrix *x, int p, int q, double z[2])
{
    int64_t root = x->m->root;
    unit(q * (phase_of(x->m) + 4 * (int64_t)p), 4 * root, 1 / sqrt((double)root), z);
}

/* The same of a block c^16 = e^(2 pi i (1 + 4 p0) / (4 R)); of pairs without the 1. Layers of
   the first index leave its factor to these. */
static void inner_number(const matrix *x, int p, int q, double z[2])
{
    int64_t root = x->m->root;
    int64_t phase = phase_of(x->m) + 4 * ((int64_t)x->p0 + root * p);
    unit(
        q * phase, 64 * root,
        dn_gpu_conv_mma_in_layers(x->m) ? 0.25 / sqrt((double)root) : 0.25, z);
}

static void inner_back_number(const matrix *x, int q, int p, double z[2])
{
    inner_number(x, p, q, z);
    z[1] = -z[1];
}

static void last_number(const matrix *x, int p, int q, double z[2])
{
    (void)x;
    unit(p * q, 16, 0.25, z);
}

/* Real matrices of real and imaginary rows apart: D from x, and x from D. */
static double forward_number(const matrix *x, int row, int column)
{
    int root = x->m->root, p = row % root, q = column % root;
    double z[2];
    if (row >= 2 * root || column >= in_rows(x->m))
        return 0;
    first_number(x, p, q, z);
    return (row < root) == (column < root) ? z[0] : row < root ? -z[1] : z[1];
}

static double back_number(const matrix *x, int row, int column)
{
    matrix both = *x;
    gpu_conv_mma whole = *x->m;
    whole.half = 0;
    both.m = &whole;
    if (row >= in_rows(x->m) || column >= 2 * whole.root)
        return 0;
    return forward_number(&both, column, row);
}

/* ---- registers of lanes ---- */

static uint32_t pair_of(double lo, double hi)
{
    float v[2] = { (float)lo, (float)hi };
    uint16_t pair[2];
    dn_convert(DANAUS_F32, v, DANAUS_F16, pair, 2);
    return pair[0] | (uint32_t)pair[1] << 16;
}

/* Word i of a lane: rows g and 8 more, columns 2 t and 8 more. */
static int row_of(int lane, int i) { return lane / 4 + i % 2 * 8; }
static int column_of(int lane, int i) { return lane % 4 * 2 + i / 2 * 8; }

static uint32_t *put_real(
    const matrix *x, double (*number)(const matrix *x, int row, int column), int row,
    int column, uint32_t *to)
{
    for (int n = 0; n < LEFT; n++) {
        int r = row + row_of(n / 4, n % 4), c = column + column_of(n / 4, n % 4);
        to[n] = pair_of(number(x, r, c), number(x, r, c + 1));
    }
    return to + LEFT;
}

/* Real and imaginary parts. turned: as a right operand. */
static uint32_t *put_complex(const matrix *x, int turned, uint32_t *to)
{
    for (int part = 0; part < 2; part++)
        for (int n = 0; n < LEFT; n++) {
            int i = turned ? n % 2 * 2 + n / 2 % 2 : n % 4;
            int r = row_of(n / 4, i), c = column_of(n / 4, i);
            double z[2], z1[2];
            x->number(x, turned ? c : r, turned ? r : c, z);
            x->number(x, turned ? c + 1 : r, turned ? r : c + 1, z1);
            *to++ = pair_of(z[part], z1[part]);
        }
    return to;
}

/* c^j of the blocks (p0, p1), c^16 = e^(2 pi i (1 + 4 (p0 + R p1)) / (64 R)): of a lane eight,
   as results of two products, two at a time. */
static float *put_turns(const gpu_conv_mma *m, int p0, float *to)
{
    for (int two = 0; two < 4; two++)
        for (int lane = 0; lane < 32; lane++)
            for (int i = 0; i < 2; i++) {
                int64_t p1 = lane / 4 + two % 2 * 8, j = two / 2 * 8 + lane % 4 * 2 + i;
                double z[2];
                unit(
                    j * (phase_of(m) + 4 * (p0 + m->root * p1)),
                    1024 * (int64_t)m->root, 1, z);
                *to++ = (float)z[0];
                *to++ = (float)z[1];
            }
    return to;
}

/* ---- all of them ---- */

int dn_gpu_conv_mma_same(const gpu_conv_mma *a, const gpu_conv_mma *b)
{
    return a->root == b->root && a->pair == b->pair && a->sums == b->sums &&
           in_rows(a) == in_rows(b) &&
           dn_gpu_conv_mma_in_layers(a) == dn_gpu_conv_mma_in_layers(b);
}

int64_t dn_gpu_conv_mma_bytes(const gpu_conv_mma *m)
{
    return 4 *
           (ways(m) * (first_words(m) + m->root * 2 * LEFT) + m->root * 512 + 2 * LEFT);
}

int64_t dn_gpu_conv_mma_near(const gpu_conv_mma *m)
{
    return m->tiled ? 4 * (first_words(m) + m->root * 2 * LEFT)
                    : dn_gpu_conv_mma_bytes(m);
}

void dn_gpu_conv_mma_tables(const gpu_conv_mma *m, void *to)
{
    uint32_t *at = to;
    matrix x = { .m = m };
    int in = (int)tiles(in_rows(m)), both = (int)tiles(2 * m->root);
    int count = dn_gpu_conv_mma_in_layers(m) ? 0 : both * in;
    for (int back = 0; back < ways(m); back++) {
        int width = back ? both : in;
        for (int i = 0; i < count; i++)
            at = put_real(
                &x, back ? back_number : forward_number, i / width * 16, i % width * 16,
                at);
        x.number = back ? inner_back_number : inner_number;
        for (x.p0 = 0; x.p0 < m->root; x.p0++)
            at = put_complex(&x, 0, at);
    }
    float *turns = (float *)(void *)at;
    for (int p0 = 0; p0 < m->root; p0++)
        turns = put_turns(m, p0, turns);
    x.number = last_number;
    put_complex(&x, 1, (uint32_t *)(void *)turns);
}
