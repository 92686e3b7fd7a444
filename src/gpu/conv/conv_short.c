/* Short convolutions on GPUs: sizes and grids of the texts conv_short_*.cu. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/conv/conv_short.h"

#include "base/dtype.h"
#include "gpu/rows.h"

#define PIECE         16 /* bytes, channels first */
#define MOST_EXACT    7  /* taps that are known when a text is compiled */
#define SLOTS_FIRST   16 /* taps at a time, where there are more */
#define SLOTS_LAST    8
#define MOST_LANES    5 /* log2 */
#define STEPS_FIRST   4 /* at most */
#define STEPS_LAST    8
#define BLOCKS_A_UNIT 8    /* that are to be left when steps are taken together */
#define SUMS_FIRST    4096 /* blocks that make parts of sums, about */
#define SUMS_LAST     1536
#define LEAST_ITEMS   8 /* of a thread: pieces, or strips */

/* What problem.pattern holds. */
#define TAPS(p)   ((p)->pattern.a) /* 0: more than are known */
#define SLOTS(p)  ((p)->pattern.b)
#define PAD(p)    ((p)->pattern.c) /* channels first */
#define WIDTH(p)  ((p)->pattern.c) /* channels last, and: */
#define TIMES(p)  ((p)->pattern.d)
#define DU(p)     ((p)->inner.a) /* of sums: du is made beside, and: */
#define SHIFT(p)  ((p)->inner.b)
#define PACKED(p) ((p)->inner.c) /* channels first: rows are packed sequences */

/* ---- texts ---- */

/* gpu_code.size */
enum { THREADS };

static int threads_of(const kernel *k) { return dn_gpu_size(k)[THREADS]; }

/* Pieces of a thread, channels first. */
static int64_t pieces_of(const problem *p)
{
    int64_t per = PIECE / dn_size_of(p->dtype);
    return !TAPS(p) ? 1 : TAPS(p) > 5 && SLOTS(p) <= per + 1 ? 4 : 2;
}

static void first_defines(const kernel *k, const problem *p, int variant, text *to)
{
    const gpu_define lines[] = {
        { "THREADS", threads_of(k) }, { "TAPS", TAPS(p) },
        { "SLOTS", SLOTS(p) },        { "PAD", PAD(p) },
        { "PIECES", pieces_of(p) },   { "DU", DU(p) },
        { "SHIFT", SHIFT(p) },        { "PACKED", PACKED(p) }
    };
    dn_gpu_define_type(k, p, variant, to);
    dn_gpu_define(DANAUS_F32, lines, sizeof lines / sizeof *lines, to);
}

static void last_defines(const kernel *k, const problem *p, int variant, text *to)
{
    const gpu_define lines[] = { { "THREADS", threads_of(k) },
                                 { "TAPS", TAPS(p) },
                                 { "SLOTS", SLOTS(p) },
                                 { "WIDTH", WIDTH(p) },
                                 { "TIMES", TIMES(p) },
                                 { "PIECES_ALIGNED", variant },
                                 { "DU", DU(p) },
                                 { "SHIFT", SHIFT(p) } };
    dn_gpu_define_type(k, p, variant, to);
    dn_gpu_define(DANAUS_F32, lines, sizeof lines / sizeof *lines, to);
}

/* A text, and the threads of its blocks. */
#define ROW(NAME, TEXT, DEFINES, T)                                                    \
    {                                                                                  \
        NAME, 0,                                                                       \
            &((const gpu_family){ .text = TEXT, .entry = "conv", .defines = DEFINES }) \
                 .kernel,                                                              \
            &(const gpu_code)                                                          \
        {                                                                              \
            .size = { [THREADS] = T }                                                  \
        }                                                                              \
    }

static const kernel rows[] = {
    [GPU_SHORT_FIRST] = ROW("short.first", "conv_short_first.cu", first_defines, 128),
    [GPU_SHORT_LAST] = ROW("short.last", "conv_short_last.cu", last_defines, 256),
    [GPU_SHORT_SUMS_FIRST] =
        ROW("short.dk.first", "conv_short_dk_first.cu", first_defines, 128),
    [GPU_SHORT_SUMS_LAST] =
        ROW("short.dk.last", "conv_short_dk_last.cu", last_defines, 128),
    [GPU_SHORT_SEQUENCES] =
        ROW("short.sequences", "conv_packed.cu", dn_gpu_define_type, 128),
};

/* ---- sizes ---- */

static int is_last(const danaus_short_desc *d)
{
    return d->layout == DANAUS_CHANNELS_LAST;
}

/* Neighbouring channels of a thread, at most 16 bytes of sums: of a number of channels
   that they divide. */
static int64_t width_of(const danaus_short_desc *d)
{
    int64_t width = d->dtype == DANAUS_F64 ? 2 : 4;
    while (d->channels % width)
        width /= 2;
    return width;
}

static int is_aligned(const void *x, int64_t bytes)
{
    return (uintptr_t)x % (uintptr_t)bytes == 0;
}

const kernel *dn_gpu_short_sequences(void) { return &rows[GPU_SHORT_SEQUENCES]; }

static gpu_short short_of(
    const danaus_short_desc *d, int packed, int64_t shift, int sums, const void *a,
    const void *b)
{
    int64_t size = dn_size_of(d->dtype), taps = d->taps <= MOST_EXACT ? d->taps : 0;
    gpu_short s = { .p = { .dtype = d->dtype }, .steps = 1, .groups = 1 };
    PACKED(&s.p) = packed;
    if (is_last(d)) {
        int64_t width = width_of(d), slots = taps ? taps : SLOTS_LAST;
        int is_long = width * size <= (sums || !taps ? 4 : 8);
        s.p.pattern = (danaus_pattern){ taps, slots, width, is_long ? 16 : 8 };
        s.kernel = &rows[sums ? GPU_SHORT_SUMS_LAST : GPU_SHORT_LAST];
        s.variant = is_aligned(a, width * size) && is_aligned(b, width * size);
        while (s.lanes_log2 < MOST_LANES && (width << s.lanes_log2) < d->channels)
            s.lanes_log2++;
    } else {
        int64_t per = PIECE / size, pad = (per - shift % per) % per;
        s.p.pattern = (danaus_pattern){ taps, taps ? pad + taps : SLOTS_FIRST, pad, 1 };
        s.kernel = &rows[sums ? GPU_SHORT_SUMS_FIRST : GPU_SHORT_FIRST];
        s.ahead = (int)((shift + pad) / per);
    }
    if (!taps)
        s.groups = (int)CEIL_DIV(d->taps + (is_last(d) ? 0 : PAD(&s.p)), SLOTS(&s.p));
    return s;
}

/* How many of so many tiles a block makes, one after the other. */
static int steps_of(const gpu_facts *f, int64_t tiles, int most)
{
    return (int)CLAMP(tiles / (f->units * BLOCKS_A_UNIT), 1, most);
}

gpu_short dn_gpu_short(
    const gpu_facts *f, const danaus_short_desc *d, int64_t batch, int packed,
    int64_t shift, const void *x, const void *y)
{
    gpu_short s = short_of(d, packed, shift, 0, x, y);
    int threads = threads_of(s.kernel);
    if (is_last(d)) {
        int64_t down = (threads >> s.lanes_log2) * TIMES(&s.p);
        int64_t groups = CEIL_DIV(d->channels, WIDTH(&s.p) << s.lanes_log2);
        int64_t blocks = groups * CEIL_DIV(d->length, down) * batch;
        s.steps = steps_of(f, blocks, STEPS_LAST);
        s.launch =
            dn_gpu_line(groups * CEIL_DIV(d->length, down * s.steps) * batch, threads);
    } else {
        int64_t numbers = batch * d->channels * d->length;
        int64_t pieces = CEIL_DIV(numbers, PIECE / dn_size_of(d->dtype));
        int64_t tiles = CEIL_DIV(pieces, threads * pieces_of(&s.p));
        s.steps = steps_of(f, tiles, STEPS_FIRST);
        s.launch = dn_gpu_line(CEIL_DIV(tiles, s.steps), threads);
    }
    return s;
}

gpu_short dn_gpu_short_sums(
    const danaus_short_desc *d, int64_t batch, int packed, int64_t shift,
    const void *dy, const void *u, const void *du)
{
    gpu_short s = short_of(d, packed, shift, 1, dy, u);
    s.makes_du = du && u && TAPS(&s.p);
    if (s.makes_du) {
        s.p.inner = (danaus_pattern){ 1, shift, packed, 1 };
        s.variant = s.variant && is_aligned(du, WIDTH(&s.p) * dn_size_of(d->dtype));
    }
    int threads = threads_of(s.kernel);
    int64_t tiles = s.groups, items, strips = threads;
    if (is_last(d)) {
        tiles *= CEIL_DIV(d->channels, WIDTH(&s.p) << s.lanes_log2);
        items = batch * CEIL_DIV(d->length, TIMES(&s.p));
        strips >>= s.lanes_log2;
    } else {
        tiles *= d->channels;
        items = batch * CEIL_DIV(d->length, PIECE / dn_size_of(d->dtype));
    }
    s.parts = CLAMP(
        CEIL_DIV(is_last(d) ? SUMS_LAST : SUMS_FIRST, tiles), 1,
        CEIL_DIV(items, strips * LEAST_ITEMS));
    s.launch = dn_gpu_line(s.parts * tiles, threads);
    return s;
}
