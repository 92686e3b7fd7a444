/* Shapes of transforms: radices, tiles, threads, and constants. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/conv/conv.h"

#include "gpu/conv/conv_mma.h"
#include "math/dft.h"

#include <string.h>

/* Points for a thread; threads of a tile where several find room, and where one does: in
   f64, whose points take twice as many registers, half of them. */
#define POINTS    16
#define TEAM      256
#define LONE_TEAM 512
/* Threads of a block of several tiles. */
#define BLOCK 256
/* Threads of a multiprocessor for which there are to be registers: of points in f32, where
   tiles have few threads; where rows are stored alone, are pairs or, in f32, halves of windows,
   which are half as many numbers; where other rows, those of planes or taps are read, or rows have
   factors; where these, or taps, are complex. Half of them in f64. */
#define MOST_RESIDENT  1024
#define RESIDENT       768
#define FEW_RESIDENT   512
#define LEAST_RESIDENT 256
/* Columns of a matrix that lie together in memory: more gain nothing. */
#define MOST_COLUMNS 16
#define EACH         256 /* threads where each makes a number (texts/conv_lay.cu) */
/* Points of a part whose norm a block finds, and parts of a window, whose norms all threads add
   up. */
#define PART_POINTS 2048
#define MOST_PARTS  64

/* ---- radices ---- */

static int take_out(int64_t *n, int by)
{
    int times = 0;
    for (; *n % by == 0; *n /= by)
        times++;
    return times;
}

/* Cuts n into radices 16, 8, 4, 2, 7, 5 and 3; 0 if that is impossible, or n is 1. */
static int cut(int64_t n, int radices[GPU_CONV_MOST_PASSES])
{
    static const int odd[] = { 7, 5, 3 };
    int count = 0, twos = take_out(&n, 2);
    int nines = twos % 4 == 1 && twos > 4; /* 16 x 2 is better cut as 8 x 4 */
    for (int i = 0; i < twos / 4 - nines; i++)
        radices[count++] = 16;
    if (nines)
        radices[count++] = 8;
    for (int o = 0; o < 3; o++)
        for (int times = take_out(&n, odd[o]); times > 0; times--)
            radices[count++] = odd[o];
    if (nines || twos % 4)
        radices[count++] = nines ? 4 : 1 << twos % 4;
    return n == 1 ? count : 0;
}

/* Constants of a block: CONSTANTS() in texts/conv_points.cuh. */
static int constants_of(int radix) { return radix % 2 ? radix - 1 : radix > 4 ? 4 : 2; }

/* ---- levels ---- */

/* Points of a tile in shared memory: ROOM in texts/conv_passes.cuh. */
static int64_t room(int64_t points) { return CEIL_DIV(points, 16) * 17 + 1; }

/* Bytes of it. */
static int64_t tile_bytes(const gpu_conv_shape *s, int64_t points)
{
    return room(points) * dn_gpu_point(s);
}

static int fits(const gpu_facts *f, const gpu_conv_shape *s, int64_t points)
{
    return tile_bytes(s, points) <= f->shared;
}

/* So many threads, or half of them. */
static int threads_of(const gpu_conv_shape *s, int threads)
{
    return s->sums == DANAUS_F64 ? threads / 2 : threads;
}

static void add_level(
    const gpu_facts *f, gpu_conv_shape *s, const int *radices, int count,
    int64_t points, int64_t columns)
{
    gpu_conv_level *l = &s->level[s->levels++];
    int64_t blocks =
        s->passes ? s->pass[s->passes - 1].blocks * s->pass[s->passes - 1].radix : 1;
    *l = (gpu_conv_level){ .first = s->passes,
                           .end = s->passes + count,
                           .points = points,
                           .columns = columns,
                           .tiles = s->n / points };
    int most = 2 * tile_bytes(s, points) <= f->shared ? TEAM : LONE_TEAM;
    l->team = (int)CLAMP(CEIL_DIV(points, POINTS), 1, threads_of(s, most));
    l->members =
        (int)CLAMP(f->shared / tile_bytes(s, points), 1, MAX(1, BLOCK / l->team));
    for (int i = 0; i < count; i++) {
        s->pass[s->passes++] = (gpu_conv_pass){ radices[i], blocks, s->constants };
        s->constants += blocks * constants_of(radices[i]);
        blocks *= radices[i];
    }
}

/* Columns of a tile of a matrix [rows][n / rows], 0: none. */
static int64_t columns_of(const gpu_facts *f, const gpu_conv_shape *s, int64_t rows)
{
    int64_t columns = MOST_COLUMNS;
    while (columns && (s->n / rows % columns || !fits(f, s, rows * columns)))
        columns /= 2;
    return columns;
}

/* True if a row of the matrix is a row of conv_mma.cu, or whole blocks p0 of one. */
static int are_whole_blocks(const gpu_conv_shape *s, int64_t rows)
{
    int64_t root = s->rows ? s->n / s->rows / 256 : 0;
    return !s->rows || (rows % s->rows == 0 && root % (rows / s->rows) == 0);
}

/* Judges a matrix of so many rows: by how much memory its columns touch beyond what they need,
   and by how much its tiles differ; of filters alone, by the passes. 0: there is no such matrix. */
static double judge(const gpu_facts *f, const gpu_conv_shape *s, int64_t rows)
{
    int radices[GPU_CONV_MOST_PASSES];
    if (rows < 2 || s->n % rows || !are_whole_blocks(s, rows) ||
        !fits(f, s, s->n / rows))
        return 0;
    int64_t columns = columns_of(f, s, rows);
    int down = cut(rows, radices), along = cut(s->n / rows, radices);
    if (!columns || !down || !along)
        return 0;
    double a = (double)(rows * columns), b = (double)(s->n / rows);
    double cost = (double)MOST_COLUMNS / (double)columns +
                  0.05 * MAX(a, b) / MIN(a, b) + 0.0001 * MAX(a, b);
    return s->rows ? cost + down + along : cost;
}

static int64_t find_rows(const gpu_facts *f, const gpu_conv_shape *s)
{
    int64_t odd = s->n / MAX(1, s->rows), best = 0;
    double least = 0;
    int twos = take_out(&odd, 2);
    for (int i = 0; i <= 2 * twos + 1; i++) {
        int64_t rows = ((int64_t)1 << i / 2) * (i % 2 ? odd : 1) * MAX(1, s->rows);
        double found = judge(f, s, rows);
        if (found > 0 && (!best || found < least)) {
            best = rows;
            least = found;
        }
    }
    return best;
}

int dn_gpu_conv_shape(
    const gpu_facts *f, danaus_dtype sums, int64_t n, int rows, gpu_conv_shape *shape)
{
    int radices[GPU_CONV_MOST_PASSES], count = cut(n, radices);
    *shape = (gpu_conv_shape){ .sums = sums, .n = n, .rows = rows };
    if (!count)
        return 0;
    if (fits(f, shape, n)) {
        add_level(f, shape, radices, count, n, n);
        return 1;
    }
    int64_t tiles = find_rows(f, shape);
    if (!tiles)
        return 0;
    int64_t columns = columns_of(f, shape, tiles);
    count = cut(tiles, radices);
    add_level(f, shape, radices, count, tiles * columns, columns);
    count = cut(n / tiles, radices);
    add_level(f, shape, radices, count, n / tiles, n / tiles);
    return 1;
}

int dn_gpu_conv_shape_of(
    const gpu_facts *f, const conv_frame *frame, gpu_conv_shape *shape)
{
    danaus_dtype sums = dn_conv_point_type(frame->cut.kernel->dtype);
    gpu_conv_mma m[GPU_CONV_MMA_PARTS] = { { 0 } };
    if (frame->cut.kernel->fast)
        dn_gpu_conv_mma_of(f, frame, m);
    int made = dn_gpu_conv_shape(f, sums, frame->cut.n, m->root ? m->rows : 0, shape);
    shape->sparse = frame->sparse;
    shape->box = frame->box;
    shape->circle = dn_gpu_conv_circle(frame);
    int scaled = sums == DANAUS_F32 && shape->passes > 1 && !frame->cut.kernel->fast;
    shape->scaled = shape->circle && scaled;
    shape->pair = shape->scaled || (shape->circle && frame->cut.kernel->fast);
    shape->complex = frame->parts == 2;
    shape->groups = (int)frame->groups;
    shape->plane = frame->plane;
    return made;
}

/* ---- constants ---- */

/* Constant number i of a block of radix R with c^R = e^(2 pi i phase / (4 blocks)): a power
   of c. */
static void put_constant(
    const gpu_conv_shape *s, const gpu_conv_pass *p, int64_t phase, int i, void *to)
{
    int64_t turn = 4 * p->blocks * p->radix;
    int64_t exponent = p->radix % 2 ? i + 1 : p->radix >> (i + 1);
    double z[2];
    dn_unit(exponent * phase % turn, turn, z);
    if (s->sums == DANAUS_F64)
        memcpy(to, z, sizeof z);
    else
        memcpy(to, (float[]){ (float)z[0], (float)z[1] }, 2 * sizeof(float));
}

/* The phase of block number `block` of a pass: child p of one with phase a has a + 4 blocks
   p; its digits are those of the passes before, the first one slowest. */
static int64_t phase_of(const gpu_conv_shape *s, int pass, int64_t block)
{
    int64_t phase = !s->circle, left = s->pass[pass].blocks;
    for (int i = 0; i < pass; i++) {
        left /= s->pass[i].radix;
        phase += 4 * s->pass[i].blocks * (block / left);
        block %= left;
    }
    return phase;
}

void dn_gpu_conv_constants(const gpu_conv_shape *s, void *to)
{
    for (int l = 0; l < s->passes; l++) {
        const gpu_conv_pass *p = &s->pass[l];
        for (int64_t block = 0; block < p->blocks; block++) {
            int64_t phase = phase_of(s, l, block);
            for (int i = 0; i < constants_of(p->radix); i++) {
                int64_t at = p->constants + (i / 2 * p->blocks + block) * 2 + i % 2;
                put_constant(s, p, phase, i, (char *)to + at * dn_gpu_point(s));
            }
        }
    }
}

/* ---- texts ---- */

static void define_passes(const gpu_conv_shape *s, const gpu_conv_level *l, text *to)
{
    int64_t inside = s->pass[l->first].blocks; /* of other tiles */
    for (int back = 0; back < 2; back++) {
        dn_text(to, "#define MIDDLE%s(X)", back ? "_BACK" : "");
        for (int i = l->first + 1; i < l->end - 1; i++) {
            const gpu_conv_pass *p = &s->pass[back ? l->first + l->end - 1 - i : i];
            dn_text(
                to, " X(%d, %lld, %lld)", p->radix, (long long)(p->blocks / inside),
                (long long)p->constants);
        }
        dn_text(to, "\n");
    }
    for (int i = 0; i < 1 + (l->end - l->first > 1); i++) {
        const gpu_conv_pass *p = &s->pass[i ? l->end - 1 : l->first];
        dn_text(
            to, "#define %s %d, %lld, %lld\n", i ? "LAST" : "FIRST", p->radix,
            (long long)(p->blocks / inside), (long long)p->constants);
    }
}

void dn_gpu_conv_define_kept(const conv_box *box, text *to)
{
    dn_text(to, "#define KEPT(X)");
    for (int i = 0; i < CONV_AXES; i++)
        dn_text(to, " X(%d, %d)", box->shift[i], (int)box->keep[i]);
    dn_text(to, "\n");
}

/* What texts/conv_frequency.cuh and conv_lane_numbers.cuh know: the radices of all passes from
   the last one on, and those of a tile from the first one on. */
static void define_digits(const gpu_conv_shape *s, const gpu_conv_level *l, text *to)
{
    dn_text(to, "#define LAST_RADIX %d\n", s->pass[s->passes - 1].radix);
    dn_text(to, "#define DIGITS(X)");
    for (int i = s->passes - 1; i >= 0; i--)
        dn_text(to, " X(%d)", s->pass[i].radix);
    dn_text(to, "\n#define TILE_DIGITS(X)");
    for (int i = l->first; i < l->end; i++)
        dn_text(to, " X(%d)", s->pass[i].radix);
    dn_text(to, "\n");
    if (s->rows)
        dn_text(to, "#define ROWS %d\n", s->rows);
    if (s->sparse)
        dn_gpu_conv_define_kept(&s->box, to);
}

void dn_gpu_conv_define_plane(const conv_plane *l, text *to)
{
    const struct {
        const char *name;
        int64_t value;
    } lines[] = {
        { "PLANE_PITCH", l->pitch },
        { "HEIGHT", l->height },
        { "WIDTH", l->width },
        { "HALO", l->halo },
        { "CENTRE_DOWN", l->down % l->height },
        { "CENTRE_ACROSS", l->across % l->width },
        { "TAPS_HEIGHT", l->taps_height },
        { "TAPS_WIDTH", l->taps_width },
        { "FIRST_DOWN", l->first_down },
        { "FIRST_ACROSS", l->first_across },
        { "TAP_ROWS", l->tap_rows },
        { "TAP_COLUMNS", l->tap_columns },
        { "HERE", l->here },
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        dn_text(to, "#define %s %lld\n", lines[i].name, (long long)lines[i].value);
}

void dn_gpu_conv_use(
    const gpu_conv_shape *s, const gpu_conv_use *c, danaus_dtype dtype, int half,
    int gated, gpu_use *use)
{
    text to = { use->defines, sizeof use->defines, 0 };
    const gpu_conv_level *l = &s->level[c->level];
    int in_halves = c->is_signal && half, sums = !strcmp(c->text, "conv_sums.cu");
    int has_rows = c->load == GPU_CONV_ROWS || c->store == GPU_CONV_ROWS;
    int has_windows = c->is_signal || (c->forward && c->inverse); /* of signals */
    int pair = has_windows && s->pair;
    int is_short = in_halves && !pair && s->levels == 1 && s->sums == DANAUS_F32;
    int is_few = sums || gated || c->load == GPU_CONV_TAPS ||
                 (has_rows && s->plane.height) ||
                 (c->load == GPU_CONV_ROWS && !is_short && !pair);
    int has_taps = c->load == GPU_CONV_TAPS || c->store == GPU_CONV_TAPS;
    int is_most = !has_rows && !has_taps && l->team < TEAM && s->sums == DANAUS_F32;
    int resident = is_few ? FEW_RESIDENT : is_most ? MOST_RESIDENT : RESIDENT;
    resident = s->complex && (sums || has_rows || has_taps) ? LEAST_RESIDENT : resident;
    const struct {
        const char *name;
        int64_t value;
    } lines[] = {
        { "N", l->points },
        { "POINTS", s->n },
        { "TILES", l->tiles },
        { "COLUMNS", l->columns },
        { "TEAM", l->team },
        { "MEMBERS", l->members },
        { "RESIDENT", MAX(1, threads_of(s, resident) / (l->team * l->members)) },
        { "HALF", in_halves && !pair },
        { "PAIR", pair },
        { "GATED", gated },
        { "SCALED", pair && has_rows && s->scaled ? s->levels : 0 },
        { "PARTS", dn_gpu_conv_parts(s) },
        { "LOAD", c->load },
        { "STORE", c->store },
        { "FORWARD", c->forward },
        { "INVERSE", c->inverse },
    };
    use->text = c->text;
    use->entry = "conv";
    use->defines[0] = '\0';
    dn_text(
        &to, "#define TYPE_%s 1\n",
        danaus_dtype_name(c->is_signal ? dn_part_type(dtype) : s->sums));
    if (s->complex)
        dn_text(&to, "#define IS_COMPLEX 1\n");
    if (c->is_signal && s->groups > 1)
        dn_text(&to, "#define GROUPS %d\n", s->groups);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        dn_text(&to, "#define %s %lld\n", lines[i].name, (long long)lines[i].value);
    define_passes(s, l, &to);
    define_digits(s, l, &to);
    if (s->plane.height)
        dn_gpu_conv_define_plane(&s->plane, &to);
}

gpu_launch dn_gpu_conv_launch(const gpu_conv_shape *s, int level, int64_t tiles)
{
    const gpu_conv_level *l = &s->level[level];
    gpu_launch launch = dn_gpu_line(CEIL_DIV(tiles, l->members), l->team * l->members);
    launch.shared = (int)(tile_bytes(s, l->points) * l->members);
    return launch;
}

int64_t dn_gpu_conv_parts(const gpu_conv_shape *s)
{
    return CLAMP(s->n / PART_POINTS, 1, MOST_PARTS);
}

int64_t dn_gpu_conv_norms_bytes(const gpu_conv_shape *s)
{
    return dn_gpu_conv_parts(s) * 3 * dn_gpu_point(s);
}

gpu_launch dn_gpu_conv_norms_launch(const gpu_conv_shape *s, int64_t windows)
{
    return dn_gpu_line(windows * dn_gpu_conv_parts(s), EACH);
}

gpu_launch dn_gpu_conv_each(int64_t count)
{
    return dn_gpu_line(CEIL_DIV(count, EACH), EACH);
}
