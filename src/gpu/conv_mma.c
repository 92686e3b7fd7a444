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
#define SEGMENT    16  /* numbers: as in texts/conv_mma_odd.cuh */

/* Warps of a multiprocessor for which there are registers: where rows have few row tiles, for
   9.0 and later, as code for 8.0 spills there; else, and of layers; and of columns, or where
   nothing is multiplied. */
#define MANY_WARPS    24
#define FEW_WARPS     16
#define MOST_RESIDENT 32

/* Warps of a block that has a multiprocessor for itself, and blocks of a cluster at most: of
   more, points of others come too slowly. */
#define CLUSTER_WARPS 16
#define MOST_CLUSTER  2

static int64_t tiles(int64_t n) { return CEIL_DIV(n, 16); }

/* Rows of a matrix are whole. */
static int is_half(const gpu_conv_mma *m)
{
    return m->half && !m->pair && (m->rows == 1 || m->tiled);
}

static int in_rows(const gpu_conv_mma *m) { return m->root * (is_half(m) ? 1 : 2); }

/* Words of the matrices of the first index, in one direction. */
static int64_t first_words(const gpu_conv_mma *m)
{
    return dn_gpu_conv_mma_in_layers(m) ? 0
                                        : tiles(2 * m->root) * tiles(in_rows(m)) * LEFT;
}

/* Bytes of tables that are looked at: columns have turns of their own. */
static int64_t near_bytes(const gpu_conv_mma *m)
{
    return m->tiled ? 4 * (2 * first_words(m) + m->root * 4 * LEFT)
                    : dn_gpu_conv_mma_bytes(m);
}

/* Rows of D, which are filled up to tiles if they are products, and a place for each warp
   and each row of a pair. */
static int64_t window_bytes(const gpu_conv_mma *m)
{
    int64_t rows = dn_gpu_conv_mma_in_layers(m) ? 2 * m->root : 16 * tiles(2 * m->root);
    return rows * PITCH + MOST_WARPS * 8;
}

/* ---- shapes ---- */

/* As many warps as have work nearly all the time; of layers, whose lanes have columns of all
   rows, as few as have registers for these. */
static int warps_for(const gpu_conv_mma *m)
{
    int warps = MOST_WARPS, root = m->root;
    if (dn_gpu_conv_mma_in_layers(m))
        return MAX(1, root / 4);
    while (warps > 1 && (warps > root || 4 * root < 3 * ROUND_UP(root, warps)))
        warps /= 2;
    return warps;
}

static int resident_warps(const gpu_facts *f, const gpu_conv_mma *m)
{
    int has_layers = m->root > 1 && dn_gpu_conv_mma_in_layers(m);
    int many = m->root <= 16 && !has_layers && (is_half(m) || m->root >= 8);
    if (m->tiled && m->root <= 16)
        return MOST_RESIDENT;
    return f->arch >= 90 && many ? MANY_WARPS : FEW_WARPS;
}

static int64_t block_bytes(const gpu_conv_mma *m)
{
    return m->members * window_bytes(m) + (m->near ? near_bytes(m) : 0);
}

/* Blocks of so many warps at most, with tables in shared memory if there is room. */
static int find_block(const gpu_facts *f, gpu_conv_mma *m, int warps)
{
    m->members = warps / m->warps;
    while (m->members > 1 && block_bytes(m) > f->shared)
        m->members--;
    return block_bytes(m) <= f->shared;
}

static int find_blocks(const gpu_facts *f, gpu_conv_mma *m)
{
    m->near = 1;
    m->warps = warps_for(m);
    m->resident = resident_warps(f, m);
    if (m->resident == MOST_RESIDENT) /* in blocks that need not wait for each other */
        return find_block(f, m, MOST_WARPS);
    if (find_block(f, m, m->resident) && 2 * m->members * m->warps > m->resident)
        return 1;
    m->near = 0;
    return find_block(f, m, MOST_WARPS);
}

int dn_gpu_conv_mma_matrix(
    const gpu_facts *f, int r, int root, int half, int pair,
    gpu_conv_mma m[GPU_CONV_MMA_PARTS])
{
    gpu_conv_mma *rows = &m[GPU_CONV_PRODUCT], *columns = &m[GPU_CONV_SPLIT];
    memset(m, 0, GPU_CONV_MMA_PARTS * sizeof *m);
    if (f->arch < 80)
        return 0;
    *rows = (gpu_conv_mma){ .root = root,
                            .half = half,
                            .pair = pair,
                            .rows = r ? 16 * r : 1,
                            .kept = r ? 16 * r : 1,
                            .columns = 256 * root };
    if (!find_blocks(f, rows))
        return 0;
    if (!r)
        return 1;
    m[GPU_CONV_PEAKS] = *columns = *rows;
    m[GPU_CONV_PEAKS].near = 0;
    m[GPU_CONV_PEAKS].members = 1;
    m[GPU_CONV_PEAKS].resident = MOST_RESIDENT;
    columns->root = r;
    columns->tiled = 1;
    int made = find_blocks(f, columns);
    m[GPU_CONV_JOIN] = *columns;
    return made;
}

/* Bytes of a block of a cluster that multiplies these rows (texts/conv_mma_cluster.cu). */
static int64_t cluster_bytes(const gpu_conv_mma *rows)
{
    gpu_conv_mma columns = *rows;
    columns.root = columns.tiled = 1;
    int64_t row = 16 * tiles(2 * rows->root) * PITCH + 32;
    return near_bytes(rows) + near_bytes(&columns) + rows->rows / rows->cluster * row +
           CLUSTER_WARPS * (2 * PITCH + 8) + MOST_CLUSTER * 8;
}

/* A window, and the tables of its rows, in the shared memory of as few blocks as hold it. */
static int find_cluster(const gpu_facts *f, gpu_conv_mma m[GPU_CONV_MMA_PARTS])
{
    gpu_conv_mma *rows = &m[GPU_CONV_PRODUCT];
    rows->warps = warps_for(rows);
    rows->members = CLUSTER_WARPS / rows->warps;
    rows->resident = CLUSTER_WARPS;
    rows->near = 1;
    for (rows->cluster = 1; rows->cluster <= (f->arch < 90 ? 1 : MOST_CLUSTER);
         rows->cluster *= 2)
        if (cluster_bytes(rows) <= f->shared)
            return 1;
    return 0;
}

int dn_gpu_conv_mma_cluster(
    const gpu_facts *f, int root, int half, int pair,
    gpu_conv_mma m[GPU_CONV_MMA_PARTS])
{
    gpu_conv_mma *rows = &m[GPU_CONV_PRODUCT], *columns = &m[GPU_CONV_SPLIT];
    if (!dn_gpu_conv_mma_matrix(f, 1, root, half, pair, m) || !find_cluster(f, m))
        return 0;
    columns->cluster = rows->cluster;
    m[GPU_CONV_PEAKS].root = m[GPU_CONV_JOIN].root = 0;
    return 1;
}

/* The matrix whose sides are nearest to what a block has best, of columns rather than rows. */
int dn_gpu_conv_mma(
    const gpu_facts *f, int64_t n, int half, int pair,
    gpu_conv_mma m[GPU_CONV_MMA_PARTS])
{
    int64_t tall = n / 4096, best = 0, least = 0;
    if (n % 256 == 0 && n / 256 <= MOST_ROOT)
        return dn_gpu_conv_mma_matrix(f, 0, (int)(n / 256), half, pair, m);
    if (n % 4096 == 0 && tall <= MOST_ROOT &&
        dn_gpu_conv_mma_cluster(f, (int)tall, half, pair, m))
        return 1;
    for (int64_t r = 1; n % 4096 == 0 && r <= MOST_ROOT; r++) {
        int64_t cost = MAX(16, tall / r) + MAX(16, r);
        if (tall % r || tall / r > MOST_ROOT || (best && cost >= least))
            continue;
        best = r;
        least = cost;
    }
    return best &&
           dn_gpu_conv_mma_matrix(f, (int)best, (int)(tall / best), half, pair, m);
}

static int bits_of(int n)
{
    int bits = 0;
    while (n >> bits > 1)
        bits++;
    return bits;
}

int dn_gpu_conv_mma_kept(const conv_box *box, int count)
{
    int left = bits_of(count), kept = 1;
    for (int i = 0; i < CONV_AXES; i++) {
        int bits = MIN(box->shift[i], left);
        kept *= (int)MIN(box->keep[i], (int64_t)1 << bits);
        left -= bits;
    }
    return kept << left;
}

/* Do rows, or windows of them, begin or end inside of a segment, or repeat? */
static int is_odd(const conv_frame *f)
{
    int64_t spare = 2 * f->cut.n - f->before - f->after - f->step;
    int cut = f->windows > 1 && (f->step % SEGMENT || spare < 2 * SEGMENT);
    return f->periodic || f->packed || f->length % SEGMENT || cut;
}

int dn_gpu_conv_mma_scatters(const conv_frame *f)
{
    int64_t n2 = 2 * f->cut.n, made = MIN(f->step, f->length);
    int64_t spare = n2 - f->before - f->after - made;
    if (f->windows == 1 && !f->periodic)
        spare = (dn_gpu_conv_half(f) ? f->cut.n : n2) - f->length + SEGMENT;
    return !dn_gpu_conv_circle(f) && is_odd(f) && spare < 2 * SEGMENT - 1;
}

void dn_gpu_conv_mma_fit(const conv_frame *frame, gpu_conv_mma m[GPU_CONV_MMA_PARTS])
{
    for (int i = 0; i < GPU_CONV_MMA_PARTS; i++) {
        m[i].groups = (int)frame->groups;
        m[i].few = frame->few <= GPU_CONV_MOST_FEW ? (int)frame->few : 0;
        m[i].odd = !m[i].pair && is_odd(frame);
        m[i].sparse = frame->sparse;
        m[i].box = frame->box;
        if (frame->sparse)
            m[i].kept = dn_gpu_conv_mma_kept(&frame->box, m[i].rows);
    }
}

int dn_gpu_conv_mma_of(
    const gpu_facts *f, const conv_frame *frame, gpu_conv_mma m[GPU_CONV_MMA_PARTS])
{
    int made = dn_gpu_conv_mma(
        f, frame->cut.n, dn_gpu_conv_half(frame), dn_gpu_conv_circle(frame), m);
    if (made)
        dn_gpu_conv_mma_fit(frame, m);
    return made;
}

/* ---- tables ---- */

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

int dn_gpu_conv_mma_same(const gpu_conv_mma *a, const gpu_conv_mma *b)
{
    return a->root == b->root && a->pair == b->pair && in_rows(a) == in_rows(b) &&
           dn_gpu_conv_mma_in_layers(a) == dn_gpu_conv_mma_in_layers(b);
}

int64_t dn_gpu_conv_mma_bytes(const gpu_conv_mma *m)
{
    return 4 * (2 * first_words(m) + m->root * (4 * LEFT + 512) + 2 * LEFT);
}

void dn_gpu_conv_mma_tables(const gpu_conv_mma *m, void *to)
{
    uint32_t *at = to;
    matrix x = { .m = m };
    int in = (int)tiles(in_rows(m)), both = (int)tiles(2 * m->root);
    int count = dn_gpu_conv_mma_in_layers(m) ? 0 : both * in;
    for (int i = 0; i < count; i++)
        at = put_real(&x, forward_number, i / in * 16, i % in * 16, at);
    for (int i = 0; i < count; i++)
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

/* Of layers, rows that go through few taps where they are read leave registers for fewer
   members. */
static gpu_conv_mma with_few(const gpu_conv_mma *m, int few)
{
    gpu_conv_mma own = *m;
    if (few && dn_gpu_conv_mma_in_layers(m) && !m->cluster && m->root > 2) {
        own.members = MAX(1, m->root > 4 ? m->members / 2 : m->members * 3 / 4);
        own.resident = own.warps * own.members;
    }
    return own;
}

/* Blocks of a multiprocessor, by what 9.0 has; few taps take more registers than there are for
   as many as columns have. */
static int resident(const gpu_conv_mma *m, int few)
{
    int64_t room = (228 << 10) / (block_bytes(m) + 1024);
    int warps = few ? MIN(m->resident, MANY_WARPS) : m->resident;
    return (int)CLAMP(room, 1, MAX(1, warps / (m->warps * m->members)));
}

/* What texts/conv_mma_sparse.cuh knows. */
static void define_kept(const gpu_conv_mma *m, text *to)
{
    dn_text(
        to, "#define ROW_BITS %d\n#define KEPT_ROWS %d\n", bits_of(m->rows), m->kept);
    dn_text(to, "#define KEPT(X)");
    for (int i = 0; i < CONV_AXES; i++)
        dn_text(to, " X(%d, %d)", m->box.shift[i], (int)m->box.keep[i]);
    dn_text(to, "\n");
}

/* is_inside: no numbers of rows are met. */
static void define_rest(const gpu_conv_mma *m, int few, int is_inside, text *to)
{
    if (few)
        dn_text(to, "#define TAPS %d\n", few);
    if (m->odd && !is_inside)
        dn_text(to, "#define ODD 1\n");
    if (m->sparse)
        define_kept(m, to);
}

/* What texts/conv_mma_cluster.cu has to know. */
static void use_cluster(
    const gpu_conv_mma *m, danaus_dtype dtype, int few, gpu_use *use)
{
    text to = { use->defines, sizeof use->defines, 0 };
    use->text = "conv_mma_cluster.cu";
    dn_text(
        &to,
        "#define TYPE_%s 1\n#define ROW_ROOT %d\n#define HALF %d\n#define PAIR %d\n"
        "#define ROW_WARPS %d\n#define MEMBERS %d\n#define NEAR %d\n"
        "#define ROWS %d\n#define COLUMNS %d\n#define CLUSTER %d\n#define GROUPS %d\n",
        danaus_dtype_name(dtype), m->root, m->half && !m->pair, m->pair, m->warps,
        m->members, m->near, m->rows, m->columns, m->cluster, m->groups);
    define_rest(m, few, 0, &to);
}

void dn_gpu_conv_mma_use(
    const gpu_conv_mma *shape, gpu_conv_mma_part part, danaus_dtype dtype, int few,
    gpu_use *use)
{
    const gpu_conv_mma own = with_few(shape, few), *m = &own;
    text to = { use->defines, sizeof use->defines, 0 };
    int from_points =
        m->rows > 1 && (part == GPU_CONV_PRODUCT || part == GPU_CONV_JOIN);
    int to_points = m->rows > 1 && (part == GPU_CONV_PRODUCT || part == GPU_CONV_SPLIT);
    int forward = part == GPU_CONV_PRODUCT || part == GPU_CONV_SPLIT;
    int inverse = part == GPU_CONV_PRODUCT || part == GPU_CONV_JOIN;
    use->text = "conv_mma.cu";
    use->entry = "conv";
    use->defines[0] = '\0';
    if (m->cluster) {
        use_cluster(m, dtype, few, use);
        return;
    }
    dn_text(
        &to, "#define TYPE_%s 1\n",
        danaus_dtype_name(from_points && to_points ? DANAUS_F16 : dtype));
    dn_text(
        &to,
        "#define ROOT %d\n#define HALF %d\n#define PAIR %d\n#define WARPS %d\n"
        "#define MEMBERS %d\n#define RESIDENT %d\n#define NEAR %d\n",
        m->root, m->half && !m->pair && !(from_points && to_points), m->pair, m->warps,
        m->members, resident(m, few), m->near);
    dn_text(
        &to,
        "#define ROWS %d\n#define COLUMNS %d\n#define LOAD %d\n#define STORE %d\n"
        "#define FORWARD %d\n#define INVERSE %d\n",
        m->rows, m->columns, from_points, to_points, forward, inverse);
    if (m->groups > 1 && !(from_points && to_points))
        dn_text(&to, "#define GROUPS %d\n", m->groups);
    define_rest(m, few, from_points && to_points, &to);
}

void dn_gpu_conv_mma_define_rows(const gpu_conv_mma *m, gpu_use *use)
{
    size_t length = strlen(use->defines);
    text to = { use->defines + length, sizeof use->defines - length, 0 };
    dn_text(&to, "#define ROWS %d\n", m->rows);
}

gpu_launch dn_gpu_conv_mma_launch(
    const gpu_facts *f, const gpu_conv_mma *shape, int few, int64_t items)
{
    const gpu_conv_mma own = with_few(shape, few), *m = &own;
    if (m->cluster) {
        int64_t clusters = MIN(items, MAX(1, f->units / m->cluster));
        gpu_launch l = dn_gpu_line(clusters * m->cluster, 32 * m->warps * m->members);
        l.shared = (int)cluster_bytes(m);
        l.cluster = m->cluster > 1 ? m->cluster : 0;
        return l;
    }
    int64_t tasks = items * (m->tiled ? m->columns / 16 : m->kept);
    return dn_gpu_stay(
        CEIL_DIV(tasks, m->members), (int64_t)f->units * resident(m, few),
        32 * m->warps * m->members, block_bytes(m));
}
