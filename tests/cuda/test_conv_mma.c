/* Convolutions by tensor cores: the text, executed by threads of the processor
   (emulator/warps.h), against plain sums in f64: types, first factors of every kind, half and
   whole windows, circles, the way back, factors, rows that are not aligned, sequences that
   are packed, sparse spectra, rows that go through few taps where they are read, windows that
   clusters hold. */
// SPDX-License-Identifier: Apache-2.0
#include "emulator/run_conv.h"

#include <inttypes.h>
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

/* Arguments of all that a product launches. */
typedef struct operands {
    const void *x, *x_factor, *y_factor;
    void *y, *points;
    const void *spectrum, *tables, *packed;
    int64_t items, rows[8];
    const float *few, *few_bias;
    int few_groups, flags;
} operands;

static const char launch_conv[] =
    "#include \"defines.h\"\n"
    "#include TEXT\n"
    "#ifdef ROW_ROOT\n" /* conv_mma_cluster.cu */
    "#define PLACE const uint4\n"
    "#else\n"
    "#define PLACE char\n"
    "#endif\n"
    "struct operands {\n"
    "    const X *x, *x_factor, *y_factor;\n"
    "    X *y;\n"
    "    char *points;\n"
    "    const char *spectrum;\n"
    "    const uint4 *tables;\n"
    "    const packed_window *packed;\n"
    "    i64 items, r[8];\n"
    "    const float *few, *few_bias;\n"
    "    int few_groups, flags;\n"
    "};\n"
    "extern \"C\" void launch(unsigned blocks, unsigned threads, unsigned bytes,\n"
    "    const operands *o)\n"
    "{\n"
    "    const i64 *r = o->r;\n"
    "    run_blocks(blocks, threads, bytes, [=] {\n"
    "        conv(o->x, o->x_factor, o->y, o->y_factor, nullptr, nullptr,\n"
    "             (PLACE *)o->points, o->spectrum, o->tables, 0, o->items, 1, r[0], "
    "r[1], r[2], r[3],\n"
    "             r[4], r[5], r[6], r[7], o->packed, o->flags, o->few, o->few_bias,\n"
    "             o->few_groups);\n"
    "    });\n"
    "}\n";

typedef struct conv_case {
    danaus_dtype dtype;
    int root, taps, adjoint, factors;
    danaus_conv_kind kind;
    int64_t length;
    float size; /* of numbers */
    int less; /* rows are packed, the second one is shorter by so many numbers; or 0 */
    int tall; /* windows are a matrix of 16 times so many rows; 0: one row */
    int box;  /* what a sparse spectrum keeps; 0: it is whole */
    int few;  /* taps of z, of which x, its factor and y's are groups 2, 1, 0; or 0 */
    int cluster; /* blocks that hold a window of 16 rows; or 0 */
    int plane;   /* whose sizes these are, `length` by `taps` across; 0: of rows */
} conv_case;

/* log2 of axes, and how many are kept of each. */
static const struct {
    int shift[CONV_AXES], keep[CONV_AXES];
} boxes[] = {
    { { 0 }, { 0 } },
    { { 3, 3, 3, 3 }, { 5, 6, 7, 3 } },
    { { 1, 2, 3, 3 }, { 1, 2, 5, 2 } },
};

/* Rows of planes and of filters, and centres. */
static const struct {
    int height, taps, down, across;
} shapes[] = {
    { 0, 0, 0, 0 },    { 11, 5, 0, 0 },  { 20, 20, 0, 0 }, { 19, 7, 3, 3 },
    { 19, 7, 3, 4 },   { 17, 4, 1, 2 },  { 10, 3, 1, 4 },  { 23, 30, 0, 0 },
    { 40, 3, 1, 1 },   { 16, 16, 0, 0 }, { 16, 3, 0, 0 },  { 12, 5, 2, 2 },
    { 40, 9, 4, 8 },   { 50, 50, 0, 0 }, { 20, 20, 0, 0 }, { 30, 5, 2, 4 },
    { 40, 40, 20, 1 },
};

static const conv_case cases[] = {
    { DANAUS_F16, 1, 256, 0, 0, DANAUS_CAUSAL, 256, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 2, 300, 0, 1, DANAUS_CAUSAL, 509, 1e-4F, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 3, 768, 1, 0, DANAUS_CAUSAL, 767, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_BF16, 4, 1024, 0, 1, DANAUS_CAUSAL, 1001, 1e30F, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F32, 5, 1280, 1, 1, DANAUS_CAUSAL, 1280, 1e-30F, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 2, 512, 0, 0, DANAUS_CIRCULAR, 512, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 2, 512, 1, 1, DANAUS_CIRCULAR, 512, 300, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 2, 600, 0, 0, DANAUS_BIDIRECTIONAL, 512, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 1, 20, 0, 0, DANAUS_CAUSAL, 1300, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_BF16, 1, 40, 1, 0, DANAUS_CIRCULAR, 1301, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F32, 2, 30, 0, 1, DANAUS_BIDIRECTIONAL, 2000, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 9, 2304, 0, 0, DANAUS_CAUSAL, 2304, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 16, 64, 0, 0, DANAUS_CAUSAL, 4096, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 2, 400, 0, 0, DANAUS_CAUSAL, 512, 1, 113, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 2, 512, 1, 1, DANAUS_BIDIRECTIONAL, 511, 1, 300, 0, 0, 0, 0, 0 },
    { DANAUS_BF16, 1, 30, 0, 0, DANAUS_CAUSAL, 1300, 1, 1001, 0, 0, 0, 0, 0 },
    { DANAUS_F32, 3, 768, 0, 1, DANAUS_CAUSAL, 760, 1, 759, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 1, 30, 1, 1, DANAUS_CAUSAL, 4001, 1e-4F, 0, 1, 0, 0, 0, 0 },
    { DANAUS_BF16, 1, 30, 0, 1, DANAUS_CIRCULAR, 8192, 1e30F, 0, 2, 0, 0, 0, 0 },
    { DANAUS_F16, 1, 20, 1, 0, DANAUS_CIRCULAR, 7001, 1, 0, 1, 0, 0, 0, 0 },
    { DANAUS_F32, 1, 20, 0, 0, DANAUS_BIDIRECTIONAL, 8001, 1, 0, 1, 0, 0, 0, 0 },
    { DANAUS_F16, 1, 20, 1, 0, DANAUS_BIDIRECTIONAL, 4096, 1, 3001, 1, 0, 0, 0, 0 },
    { DANAUS_F16, 16, 64, 0, 0, DANAUS_CAUSAL, 2048, 1, 0, 0, 1, 0, 0, 0 },
    { DANAUS_BF16, 2, 40, 1, 1, DANAUS_BIDIRECTIONAL, 1500, 1, 0, 1, 2, 0, 0, 0 },
    { DANAUS_F16, 2, 300, 0, 1, DANAUS_CAUSAL, 509, 1, 0, 0, 0, 3, 0, 0 },
    { DANAUS_F16, 1, 40, 0, 1, DANAUS_CAUSAL, 1300, 1, 0, 0, 0, 5, 0, 0 },
    { DANAUS_F32, 3, 768, 0, 1, DANAUS_CAUSAL, 760, 1, 0, 0, 0, 1, 0, 0 },
    { DANAUS_BF16, 1, 30, 0, 1, DANAUS_CAUSAL, 6000, 1, 0, 1, 0, 4, 0, 0 },
    { DANAUS_F16, 1, 300, 0, 1, DANAUS_CAUSAL, 512, 1, 0, 0, 0, 3, 0, 0 },
    { DANAUS_F32, 1, 40, 0, 1, DANAUS_CAUSAL, 504, 1, 0, 0, 0, 5, 0, 0 },
    { DANAUS_F16, 2, 30, 1, 1, DANAUS_CAUSAL, 8001, 1e-4F, 0, 1, 0, 0, 1, 0 },
    { DANAUS_F32, 3, 30, 0, 0, DANAUS_CAUSAL, 12288, 1, 5000, 1, 0, 0, 1, 0 },
    { DANAUS_BF16, 2, 30, 0, 1, DANAUS_CIRCULAR, 8192, 1e30F, 0, 1, 0, 0, 2, 0 },
    { DANAUS_F16, 2, 20, 1, 0, DANAUS_BIDIRECTIONAL, 17001, 1, 0, 1, 0, 0, 2, 0 },
    { DANAUS_F32, 1, 20, 0, 1, DANAUS_CAUSAL, 4096, 1, 0, 1, 0, 3, 2, 0 },
    { DANAUS_BF16, 6, 60, 1, 1, DANAUS_CAUSAL, 24000, 1, 0, 1, 0, 3, 1, 0 },
    { DANAUS_F16, 1, 64, 0, 0, DANAUS_CAUSAL, 4096, 1, 0, 1, 1, 0, 1, 0 },
    /* Whole rows, and points, that come ahead. */
    { DANAUS_F16, 1, 20, 0, 0, DANAUS_CIRCULAR, 8192, 1, 0, 2, 0, 0, 0, 0 },
    { DANAUS_F16, 2, 20, 0, 0, DANAUS_CAUSAL, 16384, 1, 0, 2, 0, 0, 0, 0 },
    { DANAUS_F16, 1, 20, 0, 0, DANAUS_CAUSAL, 32768, 1, 0, 8, 0, 0, 0, 0 },
    { DANAUS_F16, 1, 20, 0, 0, DANAUS_CIRCULAR, 4096, 1, 0, 1, 0, 0, 0, 0 },
    { DANAUS_BF16, 1, 20, 1, 0, DANAUS_CIRCULAR, 16384, 1e30F, 0, 4, 0, 0, 0, 0 },
    { DANAUS_BF16, 1, 20, 0, 0, DANAUS_BIDIRECTIONAL, 4000, 1, 0, 1, 0, 0, 0, 0 },
    { DANAUS_F16, 9, 20, 1, 0, DANAUS_CAUSAL, 36864, 1, 0, 1, 0, 0, 0, 0 },
    { DANAUS_F16, 3, 20, 0, 1, DANAUS_CAUSAL, 12288, 1, 0, 1, 0, 0, 0, 0 },
    { DANAUS_F16, 9, 20, 0, 0, DANAUS_CIRCULAR, 73728, 1, 0, 2, 0, 0, 0, 0 },
    { DANAUS_F16, 1, 20, 0, 0, DANAUS_CAUSAL, 65536, 1, 0, 16, 0, 0, 0, 0 },
    { DANAUS_F16, 1, 20, 1, 0, DANAUS_CIRCULAR, 69632, 1, 0, 17, 0, 0, 0, 0 },
    /* Rows that begin anywhere, number by number of cases where segments do or not. */
    { DANAUS_F16, 4, 1000, 0, 0, DANAUS_CAUSAL, 1000, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 4, 1001, 0, 0, DANAUS_CAUSAL, 1001, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 4, 1001, 1, 0, DANAUS_CIRCULAR, 1001, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 4, 1001, 0, 1, DANAUS_CIRCULAR, 1001, 300, 0, 0, 0, 0, 0, 0 },
    { DANAUS_BF16, 4, 1023, 0, 0, DANAUS_CAUSAL, 1023, 1e30F, 0, 0, 0, 0, 0, 0 },
    { DANAUS_BF16, 4, 1023, 0, 1, DANAUS_CIRCULAR, 1023, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F32, 3, 700, 1, 0, DANAUS_CIRCULAR, 701, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F32, 3, 701, 1, 1, DANAUS_CAUSAL, 701, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 1, 5, 0, 0, DANAUS_CIRCULAR, 5, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F32, 1, 3, 0, 1, DANAUS_BIDIRECTIONAL, 3, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 1, 150, 0, 0, DANAUS_CAUSAL, 701, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 1, 150, 1, 1, DANAUS_CAUSAL, 1003, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 1, 30, 0, 0, DANAUS_CIRCULAR, 4001, 1, 0, 1, 0, 0, 0, 0 },
    { DANAUS_F16, 1, 40, 1, 0, DANAUS_CAUSAL, 4093, 1, 0, 1, 0, 0, 1, 0 },
    { DANAUS_BF16, 1, 30, 0, 0, DANAUS_CIRCULAR, 4003, 1, 0, 1, 0, 0, 1, 0 },
    { DANAUS_F16, 1, 30, 0, 1, DANAUS_CIRCULAR, 4003, 1, 0, 1, 0, 0, 2, 0 },
    { DANAUS_F16, 2, 300, 0, 1, DANAUS_CAUSAL, 500, 1, 0, 0, 0, 3, 0, 0 },
    { DANAUS_BF16, 2, 300, 0, 1, DANAUS_CAUSAL, 499, 1, 0, 0, 0, 4, 0, 0 },
    { DANAUS_F32, 1, 30, 0, 1, DANAUS_CAUSAL, 4001, 1, 0, 1, 0, 4, 0, 0 },
    { DANAUS_F16, 2, 512, 1, 1, DANAUS_CAUSAL, 500, 1, 301, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 4, 1024, 0, 0, DANAUS_CIRCULAR, 1024, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 8, 100, 1, 1, DANAUS_CIRCULAR, 2048, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_BF16, 8, 300, 1, 1, DANAUS_BIDIRECTIONAL, 2000, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 8, 2048, 0, 0, DANAUS_CAUSAL, 2048, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F32, 4, 400, 0, 1, DANAUS_BIDIRECTIONAL, 1024, 1, 0, 0, 0, 3, 0, 0 },
    { DANAUS_F16, 8, 20, 0, 0, DANAUS_CAUSAL, 1024, 1, 0, 0, 2, 0, 0, 0 },
    { DANAUS_F16, 8, 20, 0, 0, DANAUS_CAUSAL, 32768, 1, 0, 1, 0, 0, 1, 0 },
    { DANAUS_F16, 4, 1024, 0, 1, DANAUS_CIRCULAR, 1024, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_BF16, 8, 2048, 0, 1, DANAUS_CAUSAL, 2048, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 16, 100, 0, 1, DANAUS_CIRCULAR, 4096, 1, 0, 0, 0, 0, 0, 0 },
    /* Layers of odd radices. */
    { DANAUS_F16, 3, 768, 0, 1, DANAUS_CIRCULAR, 768, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_BF16, 5, 1280, 1, 0, DANAUS_CIRCULAR, 1280, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 6, 1536, 0, 1, DANAUS_CAUSAL, 1536, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F32, 6, 300, 1, 1, DANAUS_CIRCULAR, 1536, 300, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 6, 1000, 0, 1, DANAUS_BIDIRECTIONAL, 1401, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 7, 1792, 0, 1, DANAUS_CAUSAL, 1700, 1, 0, 0, 0, 3, 0, 0 },
    { DANAUS_BF16, 7, 900, 0, 1, DANAUS_CIRCULAR, 1792, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F32, 7, 900, 0, 1, DANAUS_CIRCULAR, 1001, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 5, 20, 1, 0, DANAUS_CAUSAL, 20480, 1, 0, 1, 0, 0, 0, 0 },
    { DANAUS_F16, 6, 20, 0, 0, DANAUS_CIRCULAR, 24576, 1, 0, 1, 0, 0, 2, 0 },
    /* Windows that begin anywhere, of products and of layers. */
    { DANAUS_F16, 9, 1000, 0, 0, DANAUS_CAUSAL, 2303, 1, 602, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 9, 40, 1, 1, DANAUS_BIDIRECTIONAL, 2300, 1, 3, 0, 0, 0, 0, 0 },
    { DANAUS_BF16, 1, 256, 0, 1, DANAUS_CAUSAL, 256, 1, 247, 0, 0, 0, 0, 0 },
    { DANAUS_F32, 6, 300, 1, 1, DANAUS_CAUSAL, 1535, 1, 0, 0, 0, 0, 0, 0 },
    { DANAUS_F16, 2, 300, 0, 1, DANAUS_CAUSAL, 511, 1, 0, 0, 0, 3, 0, 0 },
    /* Planes. */
    { DANAUS_F16, 1, 3, 0, 0, DANAUS_CAUSAL, 16, 1, 0, 0, 0, 0, 0, 1 },
    { DANAUS_F16, 4, 24, 0, 1, DANAUS_CAUSAL, 24, 1, 0, 0, 0, 0, 0, 2 },
    { DANAUS_BF16, 2, 7, 0, 0, DANAUS_CENTRED, 16, 1, 0, 0, 0, 0, 0, 3 },
    { DANAUS_BF16, 2, 7, 1, 1, DANAUS_CENTRED, 16, 1, 0, 0, 0, 0, 0, 4 },
    { DANAUS_F16, 3, 5, 0, 1, DANAUS_CENTRED, 21, 1, 0, 0, 0, 0, 0, 5 },
    { DANAUS_F32, 2, 9, 0, 1, DANAUS_CENTRED, 32, 1, 0, 0, 0, 0, 0, 6 },
    { DANAUS_F32, 2, 9, 1, 0, DANAUS_CAUSAL, 13, 1, 0, 0, 0, 0, 0, 7 },
    { DANAUS_F16, 1, 3, 0, 0, DANAUS_CENTRED, 32, 1, 0, 0, 0, 0, 0, 8 },
    { DANAUS_F16, 4, 16, 0, 0, DANAUS_CIRCULAR, 16, 1, 0, 0, 0, 0, 0, 9 },
    { DANAUS_F16, 2, 5, 1, 1, DANAUS_CIRCULAR, 24, 1, 0, 0, 0, 0, 0, 10 },
    { DANAUS_BF16, 3, 5, 0, 0, DANAUS_CIRCULAR, 19, 1, 0, 0, 0, 0, 0, 11 },
    { DANAUS_F16, 1, 17, 0, 0, DANAUS_CENTRED, 64, 1, 0, 1, 0, 0, 0, 12 },
    { DANAUS_BF16, 1, 40, 0, 1, DANAUS_CAUSAL, 40, 1, 0, 1, 0, 0, 0, 13 },
    { DANAUS_F16, 1, 64, 0, 0, DANAUS_CAUSAL, 64, 1, 0, 1, 0, 0, 1, 14 },
    { DANAUS_F16, 1, 9, 0, 1, DANAUS_CENTRED, 64, 1, 0, 1, 0, 0, 2, 15 },
    { DANAUS_F16, 9, 3, 0, 0, DANAUS_CENTRED, 48, 1, 0, 0, 0, 0, 0, 16 },
};

#define GROUPS 3

/* Circles are multiplied in pairs, and one is left. */
static int batch_of(const conv_case *c) { return c->kind == DANAUS_CIRCULAR ? 3 : 2; }

/* Numbers of a row in memory. */
static int64_t numbers_of(const conv_case *c)
{
    return c->plane ? shapes[c->plane].height * c->length : c->length;
}

static row_shape shape_of(const conv_case *c)
{
    return (row_shape){ numbers_of(c), c->less, batch_of(c) };
}

/* The window of a filter whose taps by lag are k[0], ... and, before 0, k_reverse. */
static conv_frame frame_of(const conv_case *c)
{
    conv_problem p = { .channels = CHANNELS,
                       .length = c->length,
                       .filter_length = c->taps,
                       .filters = CHANNELS,
                       .kind = c->kind,
                       .dtype = c->dtype,
                       .height = shapes[c->plane].height,
                       .filter_height = shapes[c->plane].taps,
                       .centre = { shapes[c->plane].down, shapes[c->plane].across },
                       .accuracy = DANAUS_CONV_FAST };
    for (int i = 0; i < CONV_AXES && c->box; i++) {
        p.axes[i] = 1 << boxes[c->box].shift[i];
        p.keep[i] = boxes[c->box].keep[i];
    }
    conv_frame f = dn_conv_reach(&p);
    f.groups = c->few ? GROUPS : 1;
    f.short_taps = c->few;
    f.packed = c->less > 0;
    return dn_conv_cut_rows(
        &f, (conv_cut){ .n = 256 * c->root * (c->tall ? 16 * c->tall : 1) });
}

/* Where a window of n points has numbers; returns how many. */
static int64_t find_lags(int64_t n, const double *window, int64_t *lags)
{
    int64_t count = 0;
    for (int64_t j = 0; j < 2 * n; j++)
        if (window[j] != 0)
            lags[count++] = j;
    return count;
}

/* Number f of the values e^(2 pi i (f + 1/4) / n) of a window, or e^(2 pi i f / n). */
static void value_at(
    const gpu_conv_mma *m, const double *window, int64_t count, const int64_t *lags,
    int64_t f, double z[2])
{
    int64_t n = (int64_t)m->rows * m->columns, phase = 4 * f + !m->pair;
    z[0] = z[1] = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t j = lags[i];
        double angle = 2 * PI * (double)(phase * j % (4 * n)) / (4.0 * (double)n);
        z[0] += window[j] * cos(angle);
        z[1] += window[j] * sin(angle);
    }
}

/* Leaves frequencies out of a spectrum z, and of the window, which then has any lags. */
static void thin_out(const gpu_conv_mma *m, double *z, double *window)
{
    int64_t n = (int64_t)m->rows * m->columns;
    memset(window, 0, (size_t)(2 * n) * sizeof *window);
    for (int64_t f = 0; f < n; f++) {
        int64_t rest = f, out = 0;
        for (int i = 0; i < CONV_AXES; i++) {
            out |= rest % (1 << m->box.shift[i]) >= m->box.keep[i];
            rest >>= m->box.shift[i];
        }
        z[2 * f] = out ? 0 : z[2 * f];
        z[2 * f + 1] = out ? 0 : z[2 * f + 1];
        for (int64_t j = 0; j < 2 * n && !out; j++) {
            double angle =
                -2 * PI * (double)((4 * f + 1) * j % (4 * n)) / (4.0 * (double)n);
            window[j] +=
                (z[2 * f] * cos(angle) - z[2 * f + 1] * sin(angle)) / (double)n;
        }
    }
}

/* Spectra as the text reads them. Windows lose what sparse ones leave out. */
static void *make_spectra(const gpu_conv_mma *m, double *windows)
{
    int64_t n = (int64_t)m->rows * m->columns, bytes = dn_gpu_conv_mma_spectrum(m);
    char *made = dn_calloc((size_t)(CHANNELS * bytes), 1);
    double *z = dn_alloc((size_t)(2 * n) * sizeof *z);
    int64_t *lags = dn_alloc((size_t)(2 * n) * sizeof *lags);
    assert_non_null(made);
    for (int h = 0; h < CHANNELS; h++) {
        double most = 0;
        int64_t count = find_lags(n, windows + h * 2 * n, lags);
        for (int64_t f = 0; f < n; f++) {
            value_at(m, windows + h * 2 * n, count, lags, f, z + 2 * f);
            most = fmax(most, fmax(fabs(z[2 * f]), fabs(z[2 * f + 1])));
        }
        if (m->sparse)
            thin_out(m, z, windows + h * 2 * n);
        float scale = (float)exp2(floor(log2(most)));
        for (int64_t f = 0; f < n; f++) {
            int64_t in = f / m->rows, p0 = in % m->root, p1 = in / m->root % 16;
            int64_t p2 = in / m->root / 16, lane = p1 % 8 * 4 + p2 % 8 / 2;
            int64_t number = p2 / 8 * 4 + p1 / 8 * 2 + p2 % 2;
            int64_t place = ((p0 * 2 + number / 4) * 32 + lane) * 4 + number % 4;
            char *row = made + h * bytes + f % m->rows * (bytes / m->rows);
            for (int part = 0; part < 2; part++)
                put(DANAUS_F16, row, 2 * place + part, z[2 * f + part] / (double)scale);
            memcpy(row + 4 * m->columns, &scale, sizeof scale);
        }
    }
    dn_free(lags);
    dn_free(z);
    return made;
}

static void launch_part(
    const gpu_conv_mma *m, gpu_conv_mma_part part, danaus_dtype dtype, operands *o)
{
    gpu_use use;
    int few =
        part == GPU_CONV_PRODUCT && dn_gpu_conv_mma_has_points(m) ? 0 : m->short_taps;
    void *tables = dn_alloc((size_t)dn_gpu_conv_mma_bytes(m));
    gpu_facts facts = { .units = 1 };
    dn_gpu_conv_mma_use(m, part, dtype, few, &use);
    dn_gpu_conv_mma_tables(m, tables);
    o->tables = tables;
    gpu_launch l = dn_gpu_conv_mma_launch(&facts, m, few, o->items);
    run_use(launch_conv, &use, &l, o);
    dn_free(tables);
}

/* Numbers u of which those of groups are made: [batch][GROUPS][CHANNELS][length]; taps. */
typedef struct made_of {
    array u, k, bias;
} made_of;

static void take_few(const conv_case *c, const made_of *from, operands *o)
{
    const char *u = from->u.data;
    int64_t group = CHANNELS * c->length * dn_size_of(c->dtype);
    o->x = u + 2 * group;
    o->x_factor = u + group;
    o->y_factor = u;
    o->few = from->k.data;
    o->few_bias = from->bias.data;
    o->few_groups = 3 | 2 << 4 | 1 << 8;
    o->flags |= 8 | 16 | 64; /* grouped (conv_window.cuh) */
}

static void run_conv(
    const conv_case *c, const conv_frame *f, const gpu_conv_mma *m, const array *x,
    const array *x_factor, const array *y, const array *y_factor, const made_of *from,
    const void *spectra)
{
    packed_window windows[MOST_PIECES];
    int64_t count = find_windows(shape_of(c), f, m->pair, windows);
    size_t bytes = (size_t)(dn_gpu_conv_mma_points(m) + GPU_CONV_PEAKS_BYTES) *
                   (size_t)(CHANNELS * count);
    operands o = { .x = x->data,
                   .x_factor = c->factors ? x_factor->data : NULL,
                   .y = y->data,
                   .y_factor = c->factors ? y_factor->data : NULL,
                   .points = dn_calloc(bytes, 1),
                   .spectrum = spectra,
                   .packed = c->less ? windows : NULL,
                   .items = CHANNELS * count,
                   .flags = (f->periodic ? 1 : 0) | (c->adjoint ? 4 : 0) };
    tell_rows(shape_of(c), f, count, c->adjoint, o.rows);
    if (c->few)
        take_few(c, from, &o);
    static const gpu_conv_mma_part parts[] = { GPU_CONV_PEAKS, GPU_CONV_SPLIT,
                                               GPU_CONV_PRODUCT, GPU_CONV_JOIN };
    if (c->cluster)
        dn_gpu_conv_mma_tables(&m[GPU_CONV_SPLIT], o.points);
    for (int i = 0; i < 4; i++)
        if (m[parts[i]].root && (!c->cluster || parts[i] == GPU_CONV_PRODUCT))
            launch_part(&m[parts[i]], parts[i], c->dtype, &o);
    dn_free(o.points);
}

/* A copy that begins or ends where nothing may be read, with as much memory of its own on the
   other side. */
typedef struct walled {
    char *memory;
    size_t bytes, page;
    array copy;
} walled;

static walled make_walled(const array *a, int at_end)
{
    walled w = { .page = (size_t)sysconf(_SC_PAGESIZE), .copy = *a };
    size_t bytes = (size_t)a->count * danaus_dtype_size(a->dtype);
    w.bytes = 3 * w.page + bytes / w.page * w.page;
    w.memory =
        mmap(NULL, w.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(w.memory != MAP_FAILED);
    w.copy.data = w.memory + (at_end ? w.bytes - w.page - bytes : w.page);
    memset(w.memory, 0x5a, w.bytes);
    memcpy(w.copy.data, a->data, bytes);
    assert_int_equal(
        mprotect(w.memory + (at_end ? w.bytes - w.page : 0), w.page, PROT_NONE), 0);
    return w;
}

/* Nothing beside the copy has changed. */
static void destroy_walled(walled *w, int at_end)
{
    size_t bytes = (size_t)w->copy.count * danaus_dtype_size(w->copy.dtype);
    const char *own = w->copy.data, *from = w->memory + (at_end ? 0 : w->page);
    for (const char *i = from; i < from + w->bytes - w->page; i++)
        if ((i < own || i >= own + bytes) && *i != 0x5a)
            fail_msg("a number is written %td bytes from the first one", i - own);
    munmap(w->memory, w->bytes);
}

/* Runs on arrays that begin at a segment, so that rows of whole segments are read in vectors, or
   that end at any address. */
static void run_walled(
    const conv_case *c, const conv_frame *f, const gpu_conv_mma *m, const array *x,
    const array *x_factor, const array *y, const array *y_factor, const made_of *from,
    const void *spectra, int at_end)
{
    const array *given[] = { x, x_factor, y, y_factor };
    walled all[4];
    for (int i = 0; i < 4; i++)
        all[i] = make_walled(given[i], at_end);
    run_conv(
        c, f, m, &all[0].copy, &all[1].copy, &all[2].copy, &all[3].copy, from, spectra);
    memcpy(y->data, all[2].copy.data, (size_t)y->count * danaus_dtype_size(y->dtype));
    for (int i = 0; i < 4; i++)
        destroy_walled(&all[i], at_end);
}

/* y[t] of a row p, by lags of the window: l from 0 up, and 2n - l below. */
static double convolved(
    const conv_case *c, const conv_frame *f, const double *window, const double *p,
    int64_t length, int64_t t)
{
    double sum = 0;
    int64_t n2 = 2 * f->cut.n, most = length - 1;
    int64_t after = f->sparse ? most : f->after, before = f->sparse ? most : f->before;
    for (int64_t lag = -after; lag <= before; lag++) {
        double k = lag < 0 ? -window[n2 + lag] : window[lag];
        int64_t s = c->adjoint ? t + lag : t - lag;
        if (f->periodic)
            s = (s % f->length + f->length) % f->length;
        if (s >= 0 && s < length)
            sum += k * p[s];
    }
    return sum;
}

/* Where number t of a flat row, or of one that is made, lies in memory; -1: nowhere. */
static int64_t place_of(const conv_case *c, const conv_frame *f, int is_made, int64_t t)
{
    if (!c->plane)
        return t;
    conv_side meets = c->adjoint ? CONV_MEETS_BACK : CONV_MEETS;
    conv_side makes = c->adjoint ? CONV_MAKES_BACK : CONV_MAKES;
    conv_view v = dn_conv_view(f, is_made ? makes : meets);
    int64_t q = t % v.pitch, row = t / v.pitch;
    if (q < v.columns.from || q >= v.columns.to)
        return -1;
    return (row + v.down) % v.height * v.width + (q + v.across) % v.width;
}

/* Products, sums of matrices and of rows, matrices and spectra are rounded to 11 bits, some
   fourteen times, of columns ten more, and results to their type: each changes a vector by
   2^-11 of its norm at most; the spectrum's largest number is at most |k|_1. */
static void check_row(
    const conv_case *c, const conv_frame *f, const double *window, const array *x,
    const array *x_factor, const array *y, const array *y_factor, int64_t row)
{
    packed_row own = row_of(shape_of(c), row);
    int64_t length = c->plane ? f->length : own.length;
    double *p = dn_calloc((size_t)length, sizeof *p), norm = 0, taps = 0, most = 0;
    double difference = 0, whole = 0;
    for (int64_t t = 0; t < length; t++) {
        int64_t i = place_of(c, f, 0, t);
        if (i < 0)
            continue;
        i += own.first;
        p[t] = at(x, i) * (c->factors ? at(x_factor, i) : 1);
        norm += p[t] * p[t];
        most = fmax(most, c->factors ? fabs(at(y_factor, i)) : 1);
    }
    for (int64_t j = 0; j < 2 * f->cut.n; j++)
        taps += fabs(window[j]);
    for (int64_t t = 0; t < length; t++) {
        int64_t i = place_of(c, f, 1, t);
        if (i < 0)
            continue;
        i += own.first;
        double exact =
            convolved(c, f, window, p, length, t) * (c->factors ? at(y_factor, i) : 1);
        difference += pow(at(y, i) - exact, 2);
        whole += exact * exact;
    }
    double u = c->dtype == DANAUS_BF16 ? 0x1p-8 : 0x1p-11;
    double bound =
        (c->tall ? 24 : 14) * 0x1p-11 * sqrt(norm * (double)f->windows) * taps * most +
        u * sqrt(whole);
    if (!(sqrt(difference) <= bound) ||
        !(sqrt(difference) <= 2e-3 * sqrt(whole) + u * sqrt(whole)))
        fail_msg(
            "%s, %d x 256, kind %d, length %" PRId64
            ", adjoint %d: |error| %.3g of %.3g, "
            "bound %.3g",
            danaus_dtype_name(c->dtype), c->root, c->kind, c->length, c->adjoint,
            sqrt(difference), sqrt(whole), bound);
    dn_free(p);
}

static void fill(rng *r, const array *a, double size)
{
    for (int64_t i = 0; i < a->count; i++)
        put(a->dtype, a->data, i, size * rng_sign(r));
}

/* A group of z, in f32. */
static array make_group(const conv_case *c, const made_of *from, int64_t group)
{
    int64_t rows = batch_of(c) * CHANNELS;
    array z = array_make(DANAUS_F32, rows * c->length);
    for (int64_t row = 0; row < rows; row++) {
        int64_t of = group * CHANNELS + row % CHANNELS;
        int64_t u = (row / CHANNELS * GROUPS * CHANNELS + of) * c->length;
        for (int64_t t = 0; t < c->length; t++) {
            double sum = from->bias.data ? at(&from->bias, of) : 0;
            for (int64_t s = 0; s < c->few && s <= t; s++)
                sum += at(&from->k, of * c->few + s) * at(&from->u, u + t - s);
            put(DANAUS_F32, z.data, row * c->length + t, sum);
        }
    }
    return z;
}

static made_of make_few(rng *r, const conv_case *c)
{
    int64_t rows = GROUPS * CHANNELS;
    made_of m = { .u = array_make(c->dtype, batch_of(c) * rows * c->length),
                  .k = array_make(DANAUS_F32, rows * c->few) };
    fill(r, &m.u, 1);
    fill(r, &m.k, 1);
    if (c->few % 2)
        m.bias = array_random(r, DANAUS_F32, rows);
    return m;
}

static void make_parts(
    const conv_case *c, const conv_frame *f, int number,
    gpu_conv_mma m[GPU_CONV_MMA_PARTS])
{
    gpu_facts facts = { .arch = 80, .shared = (number % 2 ? 99 : 227) << 10 };
    int half = dn_gpu_conv_half(f), pair = dn_gpu_conv_circle(f);
    if (c->cluster) {
        facts =
            (gpu_facts){ .arch = 90, .shared = (c->cluster == 1 ? 227 : 113) << 10 };
        assert_true(dn_gpu_conv_mma_cluster(&facts, c->root, half, pair, m));
        assert_int_equal(m->cluster, c->cluster);
        return;
    }
    assert_true(dn_gpu_conv_mma_matrix(&facts, c->tall, c->root, half, pair, m));
}

static void try_case(const conv_case *c, int number)
{
    rng r = { (uint64_t)number };
    conv_frame f = frame_of(c);
    gpu_conv_mma m[GPU_CONV_MMA_PARTS];
    int64_t batch = batch_of(c), rows = batch * CHANNELS;
    make_parts(c, &f, number, m);
    dn_gpu_conv_mma_fit(&f, m);
    int64_t count = rows * numbers_of(c) - CHANNELS * c->less, n2 = 2 * f.cut.n;
    array x = array_make(c->dtype, count), y = array_make(c->dtype, count);
    array x_factor = array_make(c->dtype, count),
          y_factor = array_make(c->dtype, count);
    double *windows = dn_calloc((size_t)(CHANNELS * n2), sizeof *windows);
    fill(&r, &x, (double)c->size);
    if (batch > 2) /* rows of a pair have scales of their own */
        for (int64_t i = CHANNELS * numbers_of(c); i < 2 * CHANNELS * numbers_of(c);
             i++)
            put(c->dtype, x.data, i, at(&x, i) * 1e-3);
    fill(&r, &x_factor, 2);
    fill(&r, &y_factor, 2);
    for (int h = 0; h < CHANNELS; h++) {
        int64_t end = f.periodic ? f.length : c->plane ? f.before + 1 : c->taps;
        for (int64_t l = 0; l <= f.before && l < end; l++)
            windows[h * n2 + l] = rng_sign(&r) / sqrt((double)c->taps);
        for (int64_t l = 1; l <= f.after; l++)
            windows[h * n2 + n2 - l] = rng_sign(&r) / sqrt((double)c->taps);
    }
    made_of from = { { 0 }, { 0 }, { 0 } };
    if (c->few) {
        array *all[] = { &y_factor, &x_factor, &x };
        from = make_few(&r, c);
        for (int i = 0; i < GROUPS; i++) {
            array_free(all[i]);
            *all[i] = make_group(c, &from, i);
        }
    }
    void *spectra = make_spectra(m, windows);
    run_walled(c, &f, m, &x, &x_factor, &y, &y_factor, &from, spectra, number % 2 == 0);
    if (c->less) { /* sequences have the same bits where they begin elsewhere in memory */
        array again = array_make(c->dtype, count);
        run_walled(
            c, &f, m, &x, &x_factor, &again, &y_factor, &from, spectra, number % 2);
        assert_memory_equal(
            again.data, y.data, (size_t)count * danaus_dtype_size(c->dtype));
        array_free(&again);
    }
    for (int64_t row = 0; row < rows; row++)
        check_row(
            c, &f, windows + row % CHANNELS * n2, &x, &x_factor, &y, &y_factor, row);
    dn_free(spectra);
    dn_free(windows);
    array_free(&x);
    array_free(&y);
    array_free(&x_factor);
    array_free(&y_factor);
    array_free(&from.u);
    array_free(&from.k);
    array_free(&from.bias);
}

static void every_case_is_right(void **state)
{
    (void)state;
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i += warp_share())
        try_case(&cases[i], i);
}

int main(void)
{
    if (!has_compiler())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_is_right),
    };
    return cmocka_run_group_tests_name("conv_mma", tests, make_folder, remove_folder);
}
