/* The matrices of texts/conv_mma.cu, as registers of lanes, and its launches. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/conv_mma.h"

#include "base/dtype.h"
#include "math/dft.h"

#include <math.h>
#include <string.h>

#define MOST_ROOT  64
#define MOST_WARPS 8
#define PITCH      528 /* bytes of 256 points in shared memory */
#define LEFT       128 /* words of a left operand of 16 x 16 numbers */

/* Warps of a multiprocessor for which there are registers, where rows are half windows of few
   row tiles, and else: the former for 9.0 and later, as code for 8.0 spills there. */
#define MANY_WARPS 24
#define FEW_WARPS  16

static int64_t tiles(int64_t n) { return CEIL_DIV(n, 16); }

static int in_rows(const gpu_conv_mma *m) { return m->root * (m->half ? 1 : 2); }

/* Numbers of rows, points, and a place for each warp. */
static int64_t window_bytes(const gpu_conv_mma *m)
{
    return in_rows(m) * 512 + 16 * tiles(2 * m->root) * PITCH + MOST_WARPS * 4;
}

/* ---- shapes ---- */

/* As many warps as have work nearly all the time. */
static int warps_for(int root)
{
    int warps = MOST_WARPS;
    while (warps > 1 && (warps > root || 4 * root < 3 * ROUND_UP(root, warps)))
        warps /= 2;
    return warps;
}

static int resident_warps(const gpu_facts *f, const gpu_conv_mma *m)
{
    return f->arch >= 90 && m->half && m->root <= 16 ? MANY_WARPS : FEW_WARPS;
}

static int64_t block_bytes(const gpu_conv_mma *m)
{
    return m->members * window_bytes(m) + (m->near ? dn_gpu_conv_mma_bytes(m) : 0);
}

/* Blocks of so many warps at most, with tables in shared memory if there is room. */
static int find_block(const gpu_facts *f, gpu_conv_mma *m, int warps)
{
    m->members = warps / m->warps;
    while (m->members > 1 && block_bytes(m) > f->shared)
        m->members--;
    return block_bytes(m) <= f->shared;
}

int dn_gpu_conv_mma(const gpu_facts *f, int64_t n, int half, gpu_conv_mma *m)
{
    if (n % 256 || n / 256 > MOST_ROOT || f->arch < 80)
        return 0;
    *m = (gpu_conv_mma){ .root = (int)(n / 256), .half = half, .near = 1 };
    m->warps = warps_for(m->root);
    m->resident = resident_warps(f, m);
    if (find_block(f, m, m->resident) && 2 * m->members * m->warps > m->resident)
        return 1;
    m->near = 0;
    return find_block(f, m, MOST_WARPS);
}

/* ---- tables ---- */

/* Number (row, column) of a matrix: e^(2 pi i num / den) times a factor. */
typedef struct matrix {
    const gpu_conv_mma *m;
    int p0;   /* of an inner matrix */
    int kind; /* of the way back: real part, with the imaginary one added or taken away */
    void (*number)(const struct matrix *x, int row, int column, double z[2]);
} matrix;

static void unit(int64_t num, int64_t den, double factor, double z[2])
{
    dn_unit(num % den, den, z);
    z[0] *= factor;
    z[1] *= factor;
}

/* c^q w^(p q) with c^R = i. */
static void first_number(const matrix *x, int p, int q, double z[2])
{
    int64_t root = x->m->root;
    unit(q * (1 + 4 * (int64_t)p), 4 * root, 1 / sqrt((double)root), z);
}

/* The same of a block c^16 = e^(2 pi i (1 + 4 p0) / (4 R)). */
static void inner_number(const matrix *x, int p, int q, double z[2])
{
    int64_t root = x->m->root, phase = 1 + 4 * ((int64_t)x->p0 + root * p);
    unit(q * phase, 64 * root, 0.25, z);
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

/* Real matrices of real and imaginary rows apart: D from x, and x, or the parts of it that are
   made, from D. */
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
    double re = forward_number(&both, column, row);
    double im = x->kind ? forward_number(&both, column, row + whole.root) : 0;
    return x->kind == 2 ? re - im : re + im;
}

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
                unit(j * (1 + 4 * (p0 + m->root * p1)), 1024 * (int64_t)m->root, 1, z);
                *to++ = (float)z[0];
                *to++ = (float)z[1];
            }
    return to;
}

int64_t dn_gpu_conv_mma_bytes(const gpu_conv_mma *m)
{
    int64_t first = tiles(2 * m->root) * tiles(in_rows(m)) * LEFT;
    return 4 * (4 * first + m->root * (4 * LEFT + 512) + 2 * LEFT);
}

void dn_gpu_conv_mma_tables(const gpu_conv_mma *m, void *to)
{
    uint32_t *at = to;
    matrix x = { .m = m };
    int in = (int)tiles(in_rows(m)), both = (int)tiles(2 * m->root);
    for (int i = 0; i < both * in; i++)
        at = put_real(&x, forward_number, i / in * 16, i % in * 16, at);
    for (x.kind = 0; x.kind < 3; x.kind++)
        for (int i = 0; i < both * in; i++)
            at = put_real(&x, back_number, i / both * 16, i % both * 16, at);
    for (int back = 0; back < 2; back++) {
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

/* ---- the text ---- */

/* Blocks of a multiprocessor, by what 9.0 has. */
static int resident(const gpu_conv_mma *m)
{
    int64_t room = (228 << 10) / (block_bytes(m) + 1024);
    return (int)CLAMP(room, 1, m->resident / (m->warps * m->members));
}

void dn_gpu_conv_mma_use(const gpu_conv_mma *m, danaus_dtype dtype, gpu_use *use)
{
    text to = { use->defines, sizeof use->defines, 0 };
    use->text = "conv_mma.cu";
    use->entry = "conv";
    use->defines[0] = '\0';
    dn_text(&to, "#define TYPE_%s 1\n", danaus_dtype_name(dtype));
    dn_text(
        &to,
        "#define ROOT %d\n#define HALF %d\n#define WARPS %d\n#define MEMBERS %d\n"
        "#define RESIDENT %d\n#define NEAR %d\n",
        m->root, m->half, m->warps, m->members, resident(m), m->near);
}

gpu_launch dn_gpu_conv_mma_launch(
    const gpu_facts *f, const gpu_conv_mma *m, int64_t items)
{
    return dn_gpu_stay(
        CEIL_DIV(items, m->members), (int64_t)f->units * resident(m),
        32 * m->warps * m->members, block_bytes(m));
}
