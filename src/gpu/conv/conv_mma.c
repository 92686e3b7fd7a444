/* The shapes of texts/conv_mma.cu and its launches. conv_mma_tables.c has its tables. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/conv/conv_mma.h"

#include <string.h>

#define MOST_ROOT  64
#define MOST_WARPS 8
#define PITCH      528 /* bytes of 256 points in shared memory */
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

/* Rows of D, which are filled up to tiles if they are products, and a place for each warp
   and each row of a pair; sums have these of x and of dy. Another D, where chunks come ahead. */
static int64_t window_bytes(const gpu_conv_mma *m)
{
    int64_t rows = dn_gpu_conv_mma_in_layers(m) ? 2 * m->root : 16 * tiles(2 * m->root);
    int64_t one = rows * PITCH + MAX(MOST_WARPS, m->warps) * 8;
    return (1 + m->sums) * one + m->ahead * rows * PITCH;
}

/* ---- shapes ---- */

/* As many warps as hold the sums of two blocks each in their registers, or nearly so. */
static int warps_for_sums(const gpu_conv_mma *m)
{
    int warps = 1;
    while (2 * warps < m->root && warps < FEW_WARPS)
        warps *= 2;
    return warps;
}

/* As many warps as have work nearly all the time; of layers, whose lanes have columns of all
   rows, as few as have registers for these. */
static int warps_for(const gpu_conv_mma *m)
{
    int warps = MOST_WARPS, root = m->root;
    if (m->sums)
        return warps_for_sums(m);
    if (dn_gpu_conv_mma_in_layers(m))
        return root > 4 ? 2 : 1;
    while (warps > 1 && (warps > root || 4 * root < 3 * ROUND_UP(root, warps)))
        warps /= 2;
    return warps;
}

static int resident_warps(const gpu_facts *f, const gpu_conv_mma *m)
{
    int has_layers = m->root > 1 && dn_gpu_conv_mma_in_layers(m);
    int many =
        m->root <= 16 && !has_layers && (dn_gpu_conv_mma_is_half(m) || m->root >= 8);
    if (m->tiled && m->root <= 16)
        return MOST_RESIDENT;
    return f->arch >= 90 && many && !m->sums ? MANY_WARPS : FEW_WARPS;
}

static int64_t block_bytes(const gpu_conv_mma *m)
{
    return m->members * window_bytes(m) + (m->near ? dn_gpu_conv_mma_near(m) : 0);
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
    return find_block(f, m, MAX(MOST_WARPS, m->warps));
}

/* Blocks of a multiprocessor, by what 9.0 has; few taps take more registers than there are for
   as many as columns have. */
static int resident(const gpu_conv_mma *m, int short_taps)
{
    int64_t room = (228 << 10) / (block_bytes(m) + 1024);
    int warps = short_taps ? MIN(m->resident, MANY_WARPS) : m->resident;
    return (int)CLAMP(room, 1, MAX(1, warps / (m->warps * m->members)));
}

/* Lets tasks fetch ahead if as many blocks still have room. Layers load chunks to D through
   registers, so they cannot. */
static void find_ahead(const gpu_facts *f, gpu_conv_mma *m)
{
    int64_t blocks = resident(m, 0);
    m->ahead = !dn_gpu_conv_mma_in_layers(m);
    if (blocks * (block_bytes(m) + 1024) > f->shared + 1024)
        m->ahead = 0;
}

/* Sums over windows like these, by vector units where they have no room. */
static void find_sums(const gpu_facts *f, gpu_conv_mma m[GPU_CONV_MMA_PARTS])
{
    gpu_conv_mma *sums = &m[GPU_CONV_SUMS];
    *sums = m[GPU_CONV_PRODUCT];
    sums->sums = 1;
    sums->ahead = 0;
    if (find_blocks(f, sums)) {
        m[GPU_CONV_SUMS_PEAKS] = m[GPU_CONV_PEAKS];
        m[GPU_CONV_SUMS_SPLIT] = m[GPU_CONV_SPLIT];
    } else {
        sums->root = 0;
    }
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
    if (!r) {
        find_sums(f, m);
        return 1;
    }
    m[GPU_CONV_PEAKS] = *columns = *rows;
    m[GPU_CONV_PEAKS].near = 0;
    m[GPU_CONV_PEAKS].members = 1;
    m[GPU_CONV_PEAKS].resident = MOST_RESIDENT;
    find_ahead(f, rows);
    columns->root = r;
    columns->tiled = 1;
    if (!find_blocks(f, columns))
        return 0;
    find_ahead(f, columns);
    m[GPU_CONV_JOIN] = *columns;
    find_sums(f, m);
    return 1;
}

/* Bytes of a block of a cluster that multiplies these rows (texts/conv_mma_cluster.cu). */
static int64_t cluster_bytes(const gpu_conv_mma *rows)
{
    gpu_conv_mma columns = *rows;
    columns.root = columns.tiled = 1;
    int64_t row = 16 * tiles(2 * rows->root) * PITCH + 32;
    return dn_gpu_conv_mma_near(rows) + 2 * dn_gpu_conv_mma_near(&columns) +
           rows->rows / rows->cluster * row + CLUSTER_WARPS * (2 * PITCH + 8) +
           MOST_CLUSTER * 8;
}

/* A window, and the tables of its rows, in the shared memory of as few blocks as hold it. */
static int find_cluster(const gpu_facts *f, gpu_conv_mma m[GPU_CONV_MMA_PARTS])
{
    gpu_conv_mma *rows = &m[GPU_CONV_PRODUCT];
    rows->warps = warps_for(rows);
    rows->members = CLUSTER_WARPS / rows->warps;
    rows->resident = CLUSTER_WARPS;
    rows->near = 1;
    rows->ahead = 0;
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

/* Chooses the matrix whose sides are nearest to the best size of a block, with more columns than
   rows. */
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

/* True if rows or their windows begin or end inside a segment, or rows repeat. Planes are read
   and written in their own way. */
static int is_odd(const conv_frame *f)
{
    int64_t spare = 2 * f->cut.n - f->before - f->after - f->step;
    if (f->plane.height)
        return 0;
    int cut = f->windows > 1 && (f->step % SEGMENT || spare < 2 * SEGMENT);
    return f->periodic || f->packed || f->length % SEGMENT || cut;
}

int dn_gpu_conv_mma_is_unaligned(const conv_frame *f)
{
    int64_t n2 = 2 * f->cut.n, made = MIN(f->step, f->length);
    int64_t spare = n2 - f->before - f->after - made;
    if (f->windows == 1 && !f->periodic)
        spare = (dn_gpu_conv_half(f) ? f->cut.n : n2) - f->length + SEGMENT;
    return !dn_gpu_conv_circle(f) && is_odd(f) &&
           (f->packed || spare < 2 * SEGMENT - 1);
}

int dn_gpu_conv_mma_in_eights(const conv_frame *f)
{
    const conv_plane *l = &f->plane;
    int64_t step = f->windows > 1 ? f->step : 0, across = f->periodic ? l->across : 0;
    return (l->width | l->pitch | l->halo | step | across) % 8 == 0;
}

void dn_gpu_conv_mma_fit(const conv_frame *frame, gpu_conv_mma m[GPU_CONV_MMA_PARTS])
{
    for (int i = 0; i < GPU_CONV_MMA_PARTS; i++) {
        m[i].groups = (int)frame->groups;
        int takes_short = i < GPU_CONV_SUMS_PEAKS;
        m[i].short_taps = frame->short_taps <= GPU_CONV_MOST_SHORT_TAPS && takes_short
                              ? (int)frame->short_taps
                              : 0;
        m[i].plane = frame->plane;
        m[i].in_eights = dn_gpu_conv_mma_in_eights(frame);
        m[i].odd = !m[i].pair && is_odd(frame);
        m[i].in_order =
            m[i].rows == 1 && !m[i].sums && dn_gpu_conv_mma_is_unaligned(frame);
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

/* ---- the text ---- */

/* In layers, rows that pass few taps when they are read leave registers for fewer members. */
static gpu_conv_mma with_short(const gpu_conv_mma *m, int short_taps)
{
    gpu_conv_mma own = *m;
    if (short_taps && dn_gpu_conv_mma_in_layers(m) && !m->cluster && m->root > 2) {
        int is_whole = !m->half && !m->pair;
        own.members =
            MAX(1, m->root > 4 || is_whole ? m->members / 2 : m->members * 3 / 4);
        own.resident = own.warps * own.members;
    }
    return own;
}

/* What texts/conv_mma_sparse.cuh knows. */
static void define_kept(const gpu_conv_mma *m, text *to)
{
    dn_text(
        to, "#define ROW_BITS %d\n#define KEPT_ROWS %d\n", bits_of(m->rows), m->kept);
    dn_gpu_conv_define_kept(&m->box, to);
}

/* is_inside: no numbers of rows are met. */
static void define_rest(const gpu_conv_mma *m, int short_taps, int is_inside, text *to)
{
    if (short_taps)
        dn_text(to, "#define TAPS %d\n", short_taps);
    if (m->odd && !is_inside)
        dn_text(to, "#define ODD 1\n");
    if (m->in_order)
        dn_text(to, "#define IN_ORDER 1\n");
    if (m->sparse)
        define_kept(m, to);
    if (m->plane.height && !is_inside) {
        dn_gpu_conv_define_plane(&m->plane, to);
        dn_text(to, "#define IN_EIGHTS %d\n", m->in_eights);
    }
}

/* What texts/conv_mma_cluster.cu has to know. */
static void use_cluster(
    const gpu_conv_mma *m, danaus_dtype dtype, int short_taps, gpu_use *use)
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
    define_rest(m, short_taps, 0, &to);
}

void dn_gpu_conv_mma_use(
    const gpu_conv_mma *shape, gpu_conv_mma_part part, danaus_dtype dtype,
    int short_taps, gpu_use *use)
{
    const gpu_conv_mma own = with_short(shape, short_taps), *m = &own;
    text to = { use->defines, sizeof use->defines, 0 };
    int forward = part == GPU_CONV_PRODUCT || part == GPU_CONV_SPLIT ||
                  part == GPU_CONV_SUMS_SPLIT;
    int from_points = m->rows > 1 && (part == GPU_CONV_PRODUCT ||
                                      part == GPU_CONV_JOIN || part == GPU_CONV_SUMS);
    int to_points = m->rows > 1 && (forward || part == GPU_CONV_SUMS);
    int inverse = part == GPU_CONV_PRODUCT || part == GPU_CONV_JOIN;
    use->text = m->sums ? "conv_mma_sums.cu" : "conv_mma.cu";
    use->entry = "conv";
    use->defines[0] = '\0';
    if (m->cluster) {
        use_cluster(m, dtype, short_taps, use);
        return;
    }
    dn_text(
        &to, "#define TYPE_%s 1\n",
        danaus_dtype_name(from_points && to_points ? DANAUS_F16 : dtype));
    dn_text(
        &to,
        "#define ROOT %d\n#define HALF %d\n#define PAIR %d\n#define WARPS %d\n"
        "#define MEMBERS %d\n#define RESIDENT %d\n#define NEAR %d\n#define AHEAD %d\n",
        m->root, m->half && !m->pair && !(from_points && to_points), m->pair, m->warps,
        m->members, resident(m, short_taps), m->near, m->ahead);
    dn_text(&to, "#define ROWS %d\n#define COLUMNS %d\n", m->rows, m->columns);
    dn_text(&to, "#define LOAD %d\n", from_points);
    if (!m->sums)
        dn_text(
            &to, "#define STORE %d\n#define FORWARD %d\n#define INVERSE %d\n",
            to_points, forward, inverse);
    if (m->groups > 1 && !(from_points && to_points))
        dn_text(&to, "#define GROUPS %d\n", m->groups);
    define_rest(m, short_taps, from_points && to_points, &to);
}

int64_t dn_gpu_conv_mma_places(const gpu_facts *f, const gpu_conv_mma *m)
{
    return (int64_t)MAX(1, f->units) * resident(m, 0) * m->members;
}

gpu_launch dn_gpu_conv_mma_launch(
    const gpu_facts *f, const gpu_conv_mma *shape, int short_taps, int64_t items)
{
    const gpu_conv_mma own = with_short(shape, short_taps), *m = &own;
    if (m->cluster) {
        int64_t clusters = MIN(items, MAX(1, f->units / m->cluster));
        gpu_launch l = dn_gpu_line(clusters * m->cluster, 32 * m->warps * m->members);
        l.shared = (int)cluster_bytes(m);
        l.cluster = m->cluster > 1 ? m->cluster : 0;
        return l;
    }
    int64_t tasks = items * (m->tiled ? m->columns / 16 : m->kept);
    return dn_gpu_stay(
        CEIL_DIV(tasks, m->members), (int64_t)f->units * resident(m, short_taps),
        32 * m->warps * m->members, block_bytes(m));
}
