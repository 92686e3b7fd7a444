/* Tables of one transform: how its length is cut into passes, and the constants of
   every block, rounded once from f64. Block b of a pass is mod Z^m - e^(2 pi i a / d);
   a and d are kept as integers, so that no error grows from pass to pass. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv/conv.h"

#include "base/mem.h"

/* Bytes of a block that stays in the first cache, with constants and a spectrum. */
#define FIRST_CACHE 16384
/* Bytes of the rows of a strip, where several outer passes share them. */
#define STRIP_BYTES 32768
/* Elements of a segment where there is only one outer pass. */
#define SEGMENT 512

static void store(const conv_code *code, void *to, int64_t index, double x)
{
    if (code->size == sizeof(double))
        ((double *)to)[index] = x;
    else
        ((float *)to)[index] = (float)x;
}

/* Phases are fractions a / (4 blocks) of a turn: Z^n - i is one block, 1 / 4. Child p
   of a in a pass of radix R is (a + 4 blocks p) / (4 blocks R). */
static int64_t child_phase(int64_t a, int64_t blocks, int64_t p)
{
    return a + 4 * blocks * p;
}

static void fill_constants(
    const conv_pass *p, const conv_code *code, const int64_t *phases)
{
    int64_t turn = 4 * p->blocks * p->radix;
    for (int64_t b = 0; b < p->blocks; b++)
        for (int q = 0; q < CONV_CONSTANTS; q++) {
            double z[2];
            int64_t at = (b * CONV_CONSTANTS + q) * 2;
            if (q < 7)
                dn_unit((q + 1) * phases[b], turn, z);
            else /* c w8 */
                dn_unit(child_phase(phases[b], p->blocks, 1), turn, z);
            store(code, p->constants, at, z[0]);
            store(code, p->constants, at + 1, z[1]);
        }
}

/* One complex vector: lane l has e^(2 pi i phase(l) / turn). */
typedef struct tail_vector {
    const int64_t *phases; /* of the four blocks */
    int64_t blocks;
    int vector, inner;
    int pair;  /* of vectors, for an inner radix of 2 */
    int child; /* c' rather than c */
} tail_vector;

static void tail_unit(const tail_vector *v, int lane, double z[2])
{
    int chunk = v->vector / 4;
    if (!v->child)
        dn_unit(v->phases[lane / chunk], 4 * v->blocks * 4, z);
    else if (v->vector < 4)
        dn_unit(v->phases[2 * v->pair + lane], 4 * v->blocks * v->inner, z);
    else
        dn_unit(
            child_phase(
                v->phases[lane / chunk], v->blocks,
                v->inner * v->pair + lane % v->inner),
            4 * v->blocks * 4 * v->inner, z);
}

static void fill_tail(
    const conv_tables *t, const conv_code *code, const int64_t *phases)
{
    int64_t blocks = t->n / code->vector, at = 0;
    int pairs = code->inner == 4 ? 1 : code->inner == 2 ? 2 : 0;
    for (int64_t b = 0; b < blocks; b += 4)
        for (int k = code->vector >= 4 ? -1 : 0; k < pairs; k++) {
            tail_vector v = {
                phases + b, blocks, code->vector, code->inner, k, k >= 0
            };
            for (int lane = 0; lane < code->vector; lane++) {
                double z[2];
                tail_unit(&v, lane, z);
                store(code, t->tail, at + lane, z[0]);
                store(code, t->tail, at + code->vector + lane, z[1]);
            }
            at += 2 * code->vector;
        }
}

/* Phases of all blocks, pass after pass, from the last block to the first: children
   take the place of their parent. */
static void fill(conv_tables *t, const conv_code *code, int64_t *phases)
{
    phases[0] = 1;
    for (int l = 0; l < t->passes; l++) {
        const conv_pass *p = &t->pass[l];
        fill_constants(p, code, phases);
        for (int64_t b = p->blocks - 1; b >= 0; b--) {
            int64_t parent = phases[b];
            for (int i = 0; i < p->radix; i++)
                phases[b * p->radix + i] = child_phase(parent, p->blocks, i);
        }
    }
    fill_tail(t, code, phases);
}

/* How much of the transform is done strip by strip. */
static void choose_outer(
    conv_tables *t, const conv_code *code, size_t cache, int64_t least_blocks)
{
    size_t element = 2 * code->size;
    int64_t vector = code->vector, vectors = t->n / vector;
    t->inner_blocks = 1;
    do
        t->inner_blocks *= t->pass[t->outer++].radix;
    while (t->outer < t->passes &&
           (t->inner_blocks < least_blocks ||
            (size_t)(t->n / t->inner_blocks) * element > cache / 2));
    t->inner_vectors = vectors / t->inner_blocks;
    int64_t row = (int64_t)element * t->inner_blocks * vector;
    t->strip = t->outer > 1 ? STRIP_BYTES / row : SEGMENT / vector;
    t->strip = CLAMP(t->strip, 1, t->inner_vectors);
    t->cached = MAX(4, FIRST_CACHE / (int64_t)element / vector);
}

int dn_conv_shape(
    conv_tables *t, conv_cut cut, const conv_code *code, size_t cache, int sparse)
{
    int radices[DN_DFT_MOST_RADICES];
    int64_t vectors = cut.n / code->vector, blocks = 1;
    *t = (conv_tables){ .n = cut.n };
    if (cut.n % (4 * code->vector))
        return 0;
    t->passes = dn_dft_radices(vectors, cut.radix, radices);
    if (!t->passes)
        return 0;
    for (int l = 0; l < t->passes; l++) {
        conv_pass *p = &t->pass[l];
        p->radix = radices[l];
        p->blocks = blocks;
        blocks *= p->radix;
        p->vectors = vectors / blocks;
    }
    choose_outer(t, code, cache, sparse ? 64 : 1);
    return 1;
}

static int allocate(conv_tables *t, const conv_code *code)
{
    for (int l = 0; l < t->passes; l++) {
        conv_pass *p = &t->pass[l];
        p->constants = dn_alloc((size_t)(p->blocks * CONV_CONSTANTS * 2) * code->size);
        if (!p->constants)
            return 0;
    }
    int64_t tail = t->n / code->vector / 4 * TAIL_OF(code->vector, code->inner);
    t->tail = dn_alloc((size_t)(tail * code->vector) * code->size);
    return t->tail != NULL;
}

conv_tables *dn_conv_tables_create(
    conv_cut cut, const conv_code *code, size_t cache, const conv_problem *sparse)
{
    conv_tables *t = dn_calloc(1, sizeof *t);
    int64_t *phases = dn_alloc((size_t)(cut.n / code->vector) * sizeof *phases);
    if (t && phases && dn_conv_shape(t, cut, code, cache, sparse != NULL) &&
        allocate(t, code) && (!sparse || dn_conv_leave_out(t, code, sparse))) {
        fill(t, code, phases);
    } else {
        dn_conv_tables_destroy(t);
        t = NULL;
    }
    dn_free(phases);
    return t;
}

void dn_conv_tables_destroy(conv_tables *t)
{
    if (!t)
        return;
    for (int l = 0; l < t->passes; l++) {
        dn_free(t->pass[l].constants);
        dn_free(t->left_out[l]);
    }
    dn_free(t->tail);
    dn_free(t->outside);
    dn_free(t);
}
