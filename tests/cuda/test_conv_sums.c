/* Sums of gradients of filters by tensor cores: the texts, executed by threads of the processor
   (emulator/warps.h), against plain sums in f64: windows of one row and matrices, types, first factors of every kind, half and whole windows, circles, factors, rows that begin
   and end anywhere, sequences that are packed, filters of several channels, parts. */
// SPDX-License-Identifier: Apache-2.0
#include "emulator/run_conv.h"
#include "gpu/conv/conv.h"

#include <inttypes.h>
#include <math.h>

/* Arguments of all that sums launch. */
typedef struct operands {
    const void *x, *x_factor, *dy, *dy_factor;
    void *sums;
    const void *tables, *packed;
    int64_t filters, parts, each, rows[8];
    int flags, is_more;
} operands;

#define OPERANDS(X, piece, uint4)                                                      \
    "struct operands {\n"                                                              \
    "    const " X " *x, *x_factor, *dy, *dy_factor;\n"                                \
    "    void *sums;\n"                                                                \
    "    const " uint4 " *tables;\n"                                                   \
    "    const " piece " *packed;\n"                                                   \
    "    long long filters, parts, each, r[8];\n"                                      \
    "    int flags, is_more;\n"                                                        \
    "};\n"                                                                             \
    "extern \"C\" void launch(unsigned blocks, unsigned threads, unsigned bytes,\n"    \
    "    const operands *o)\n"

static const char launch_sums[] =
    "#include \"defines.h\"\n"
    "#include TEXT\n" OPERANDS(
        "X", "packed_window",
        "uint4") "{\n"
                 "    const i64 *r = o->r;\n"
                 "    run_blocks(blocks, threads, bytes, [=] {\n"
                 "        conv(o->x, o->x_factor, o->dy, o->dy_factor, (float4 "
                 "*)o->sums,\n"
                 "             o->tables, 0, o->filters, o->parts, o->each, r[0], "
                 "r[1], r[2], r[3],\n"
                 "             r[4], r[5], r[6], r[7], o->packed, o->flags, "
                 "o->is_more);\n"
                 "    });\n"
                 "}\n";

/* Rows to points, which `sums` is: of x, or of dy, whose factors are the peaks of x then. */
static const char launch_points[] =
    "#include \"defines.h\"\n"
    "#include TEXT\n" OPERANDS(
        "X", "packed_window",
        "uint4") "{\n"
                 "    const i64 *r = o->r;\n"
                 "    run_blocks(blocks, threads, bytes, [=] {\n"
                 "        conv(o->x, o->x_factor, nullptr, nullptr, nullptr, nullptr, "
                 "(char *)o->sums,\n"
                 "             (const char *)o->dy, o->tables, 0, o->each, 1, r[0], "
                 "r[1], r[2], r[3],\n"
                 "             r[4], r[5], r[6], r[7], o->packed, o->flags, nullptr, "
                 "nullptr, 0);\n"
                 "    });\n"
                 "}\n";

typedef struct sums_case {
    danaus_dtype dtype;
    int root, taps, factors;
    danaus_conv_kind kind;
    int64_t length;
    float size; /* of numbers */
    int less; /* rows are packed, the second one is shorter by so many numbers; or 0 */
    int batch, filters, parts;
    int rows; /* of a matrix; or 0 */
} sums_case;

static const sums_case cases[] = {
    { DANAUS_F16, 1, 256, 0, DANAUS_CAUSAL, 256, 1, 0, 3, 2, 2, 0 },
    { DANAUS_F16, 2, 512, 1, DANAUS_CAUSAL, 509, 1e-4F, 0, 2, 1, 1, 0 },
    { DANAUS_BF16, 2, 512, 0, DANAUS_CIRCULAR, 512, 1e15F, 0, 3, 2, 2, 0 },
    { DANAUS_F16, 2, 300, 1, DANAUS_CIRCULAR, 512, 30, 0, 5, 1, 3, 0 },
    { DANAUS_F16, 2, 512, 0, DANAUS_BIDIRECTIONAL, 512, 1, 0, 2, 2, 1, 0 },
    { DANAUS_F16, 3, 768, 0, DANAUS_CAUSAL, 767, 1, 0, 2, 2, 2, 0 },
    { DANAUS_F32, 3, 700, 1, DANAUS_CIRCULAR, 701, 1, 0, 2, 2, 1, 0 },
    { DANAUS_F16, 4, 1024, 0, DANAUS_CIRCULAR, 1024, 1, 0, 4, 2, 1, 0 },
    { DANAUS_BF16, 4, 1024, 1, DANAUS_CAUSAL, 1001, 1, 0, 2, 2, 1, 0 },
    { DANAUS_F32, 5, 1280, 0, DANAUS_CAUSAL, 1280, 1e-10F, 0, 2, 2, 1, 0 },
    { DANAUS_F16, 1, 20, 0, DANAUS_CAUSAL, 1300, 1, 0, 2, 2, 3, 0 },
    { DANAUS_BF16, 1, 40, 0, DANAUS_CIRCULAR, 1301, 1, 0, 2, 1, 2, 0 },
    { DANAUS_F16, 2, 400, 0, DANAUS_CAUSAL, 512, 1, 112, 2, 2, 1, 0 },
    { DANAUS_F16, 2, 512, 1, DANAUS_BIDIRECTIONAL, 511, 1, 300, 2, 2, 1, 0 },
    { DANAUS_F16, 8, 2048, 0, DANAUS_CAUSAL, 2048, 1, 0, 2, 2, 1, 0 },
    { DANAUS_F16, 8, 2048, 1, DANAUS_CIRCULAR, 2048, 1, 0, 3, 2, 1, 0 },
    { DANAUS_BF16, 8, 300, 0, DANAUS_BIDIRECTIONAL, 2000, 1, 0, 2, 2, 1, 0 },
    { DANAUS_F16, 9, 2304, 0, DANAUS_CAUSAL, 2304, 1, 0, 2, 2, 1, 0 },
    { DANAUS_F16, 16, 4096, 0, DANAUS_CIRCULAR, 4096, 1, 0, 2, 2, 1, 0 },
    { DANAUS_F16, 20, 5120, 0, DANAUS_CAUSAL, 5120, 1, 0, 1, 2, 1, 0 },
    { DANAUS_F16, 40, 10240, 0, DANAUS_CAUSAL, 10240, 1, 0, 1, 2, 1, 0 },
    { DANAUS_F16, 1, 4096, 0, DANAUS_CAUSAL, 4096, 1, 0, 2, 2, 1, 16 },
    { DANAUS_BF16, 1, 4096, 1, DANAUS_CIRCULAR, 4096, 1e6F, 0, 3, 1, 1, 16 },
    { DANAUS_F16, 2, 8000, 0, DANAUS_BIDIRECTIONAL, 8000, 1e-3F, 0, 1, 2, 2, 16 },
    { DANAUS_F32, 1, 500, 1, DANAUS_CAUSAL, 9000, 1, 0, 1, 1, 2, 16 },
    { DANAUS_F16, 1, 8192, 0, DANAUS_CIRCULAR, 8192, 1, 0, 2, 2, 1, 32 },
    { DANAUS_F16, 1, 4096, 0, DANAUS_CAUSAL, 4096, 1, 1000, 2, 2, 1, 16 },
};

static row_shape shape_of(const sums_case *c)
{
    return (row_shape){ c->length, c->less, c->batch };
}

static conv_frame frame_of(const sums_case *c)
{
    conv_problem p = { .channels = CHANNELS,
                       .length = c->length,
                       .filter_length = c->taps,
                       .filters = c->filters,
                       .kind = c->kind,
                       .dtype = c->dtype };
    conv_frame f = dn_conv_reach(&p);
    f.groups = 1;
    f.packed = c->less > 0;
    return dn_conv_cut_rows(
        &f, (conv_cut){ .n = (int64_t)256 * c->root * MAX(1, c->rows) });
}

/* x, its factor, dy and its factor. Rows of a pair have sizes of their own, and those of x and
   dy go against each other. */
static void make_operands(const sums_case *c, rng *r, array all[4])
{
    int64_t count = c->batch * CHANNELS * c->length - CHANNELS * c->less;
    for (int i = 0; i < 4; i++) {
        all[i] = array_make(c->dtype, count);
        for (int64_t j = 0; j < count; j++) {
            int odd = !c->less && c->dtype != DANAUS_F16 &&
                      j / (CHANNELS * c->length) % 2 == 1;
            double size = i % 2 ? 1 : (double)c->size * (odd ? (i ? 1e6 : 1e-6) : 1);
            put(c->dtype, all[i].data, j, size * rng_sign(r));
        }
    }
}

/* The sums of all parts of all filters. */
static void run_sums(const sums_case *c, const gpu_conv_mma *m, operands *o)
{
    static gpu_use use;
    gpu_facts facts = { .units = 1 };
    void *tables = dn_alloc((size_t)dn_gpu_conv_mma_bytes(m));
    dn_gpu_conv_mma_tables(m, tables);
    o->tables = tables;
    o->filters = c->filters;
    o->parts = c->parts;
    gpu_launch l = dn_gpu_conv_mma_launch(&facts, m, 0, o->filters * o->parts);
    dn_gpu_conv_mma_use(m, GPU_CONV_SUMS, c->dtype, 0, &use);
    run_use(launch_sums, &use, &l, o);
    dn_free(tables);
}

/* Number f of a spectrum is at places[f]: by rows, in the order of the registers of a warp. */
static void find_frequencies(int64_t root, int64_t rows, int64_t *places)
{
    for (int64_t f = 0; f < 256 * root * rows; f++) {
        int64_t in = f / rows, p0 = in % root, p1 = in / root % 16, p2 = in / root / 16;
        int64_t lane = p1 % 8 * 4 + p2 % 8 / 2;
        places[f] = f % rows * 256 * root + ((p0 * 2 + p2 / 8) * 32 + lane) * 4 +
                    p1 / 8 * 2 + p2 % 2;
    }
}

/* The number of a window at a lag, from its spectrum. */
static double at_lag(
    const gpu_conv_mma *m, const float *z, int64_t parts, const int64_t *places,
    const double *cosines, int64_t lag)
{
    int64_t n = (int64_t)m->rows * m->columns, j = lag < 0 ? -lag : lag;
    double total = 0;
    for (int64_t i = 0; i < parts * n; i++) {
        int64_t turn = (4 * (i % n) + !m->pair) * j % (4 * n);
        double re = cosines[turn], im = cosines[(turn + 3 * n) % (4 * n)];
        const float *number = z + 2 * (i / n * n + places[i % n]);
        total += number[0] * re + number[1] * (lag < 0 ? -im : im);
    }
    return total;
}

/* Sum over rows of a filter of dy[t] x[t - lag]. */
static double exact_at(
    const sums_case *c, const conv_frame *f, const array all[4], int filter,
    int64_t lag)
{
    double sum = 0;
    for (int64_t row = 0; row < c->batch * CHANNELS; row++) {
        packed_row own = row_of(shape_of(c), row);
        if (row % CHANNELS / (CHANNELS / c->filters) != filter)
            continue;
        for (int64_t t = 0; t < own.length; t++) {
            int64_t s = t - lag, i = own.first + t;
            if (f->periodic)
                s = (s % own.length + own.length) % own.length;
            if (s < 0 || s >= own.length)
                continue;
            double by = c->factors ? at(&all[1], own.first + s) * at(&all[3], i) : 1;
            sum += at(&all[2], i) * at(&all[0], own.first + s) * by;
        }
    }
    return sum;
}

/* Rows, matrices and what lies between products are rounded to 11 bits, some seven times for x
   and for dy. Of many lags some are looked at. */
static void check(
    const sums_case *c, const conv_frame *f, const gpu_conv_mma *m, const array all[4],
    const float *sums)
{
    int64_t n = f->cut.n, *places = dn_alloc((size_t)n * sizeof *places);
    double *cosines = dn_alloc((size_t)(4 * n) * sizeof *cosines);
    int64_t most =
        c->kind == DANAUS_CIRCULAR ? MIN(f->before, c->length - 1) : f->before;
    int64_t step = 1 + (most + f->after) / 200;
    find_frequencies(c->root, MAX(1, c->rows), places);
    for (int64_t i = 0; i < 4 * n; i++)
        cosines[i] = cos(2 * PI * (double)i / (4.0 * (double)n));
    for (int filter = 0; filter < c->filters; filter++) {
        double difference = 0, whole = 0;
        for (int64_t lag = -f->after; lag <= most; lag += step) {
            double exact = exact_at(c, f, all, filter, lag);
            const float *own = sums + filter * c->parts * 2 * n;
            double made = at_lag(m, own, c->parts, places, cosines, lag);
            difference += pow(made - exact, 2);
            whole += exact * exact;
        }
        if (!(sqrt(difference) <= 3e-3 * sqrt(whole)))
            fail_msg(
                "%s, %d x 256, kind %d, length %" PRId64
                ", filter %d: |error| %.3g of %.3g",
                danaus_dtype_name(c->dtype), c->root, c->kind, c->length, filter,
                sqrt(difference), sqrt(whole));
    }
    dn_free(places);
    dn_free(cosines);
}

static void launch_part(
    const sums_case *c, const gpu_conv_mma *m, gpu_conv_mma_part part, operands *o)
{
    static gpu_use use;
    gpu_facts facts = { .units = 1 };
    void *tables = dn_alloc((size_t)dn_gpu_conv_mma_bytes(m));
    dn_gpu_conv_mma_tables(m, tables);
    o->tables = tables;
    gpu_launch l = dn_gpu_conv_mma_launch(&facts, m, 0, o->each);
    dn_gpu_conv_mma_use(m, part, c->dtype, 0, &use);
    run_use(launch_points, &use, &l, o);
    dn_free(tables);
}

/* Rows of x to points, and then those of dy, whose windows have no ends beyond theirs. */
static void make_points(
    const sums_case *c, const gpu_conv_mma m[GPU_CONV_MMA_PARTS], const operands *from,
    int64_t windows, char *points[2])
{
    int64_t bytes = dn_gpu_conv_mma_points(&m[GPU_CONV_SUMS]);
    for (int i = 0; i < 2; i++) {
        operands o = *from;
        points[i] = dn_calloc((size_t)(windows * (bytes + GPU_CONV_PEAKS_BYTES)), 1);
        o.x = i ? from->dy : from->x;
        o.x_factor = i ? from->dy_factor : from->x_factor;
        o.dy = points[0] + windows * bytes;
        o.sums = points[i];
        o.each = windows;
        if (i) {
            o.rows[6] = o.rows[7] = 0;
            o.flags |= 512; /* LOWER of conv_window.cuh */
        }
        launch_part(c, &m[GPU_CONV_SUMS_PEAKS], GPU_CONV_SUMS_PEAKS, &o);
        launch_part(c, &m[GPU_CONV_SUMS_SPLIT], GPU_CONV_SUMS_SPLIT, &o);
    }
}

/* Sums over rows of points: where there is one filter, over some windows and then over the
   others. */
static void run_matrices(
    const sums_case *c, const gpu_conv_mma m[GPU_CONV_MMA_PARTS], operands *o)
{
    int64_t bytes = dn_gpu_conv_mma_points(&m[GPU_CONV_SUMS]);
    int64_t windows = c->filters * o->each, first = c->filters == 1 ? windows / 2 : 0;
    char *points[2];
    make_points(c, m, o, windows, points);
    for (int64_t from = 0; from < windows; from = first && !from ? first : windows) {
        operands own = *o;
        own.x = points[0] + from * bytes;
        own.dy = points[1] + from * bytes;
        own.x_factor = points[0] + windows * bytes + from * GPU_CONV_PEAKS_BYTES;
        own.dy_factor = points[1] + windows * bytes + from * GPU_CONV_PEAKS_BYTES;
        own.each = first ? (from ? windows - first : first) : o->each;
        own.is_more = from > 0;
        run_sums(c, &m[GPU_CONV_SUMS], &own);
    }
    dn_free(points[0]);
    dn_free(points[1]);
}

static void try_case(const sums_case *c, int number)
{
    rng r = { (uint64_t)number };
    gpu_facts facts = { .arch = 90, .shared = (c->root > 8 ? 227 : 99) << 10 };
    conv_frame f = frame_of(c);
    gpu_conv_mma m[GPU_CONV_MMA_PARTS];
    packed_window windows[MOST_PIECES];
    array all[4];
    assert_true(dn_gpu_conv_mma_matrix(
        &facts, c->rows / 16, c->root, dn_gpu_conv_half(&f), dn_gpu_conv_circle(&f),
        m));
    dn_gpu_conv_mma_fit(&f, m);
    assert_true(m[GPU_CONV_SUMS].root == c->root);
    int64_t count = find_windows(shape_of(c), &f, m->pair, windows);
    make_operands(c, &r, all);
    float *sums = dn_calloc((size_t)(c->filters * c->parts * f.cut.n), 8);
    operands o = { .x = all[0].data,
                   .x_factor = c->factors ? all[1].data : NULL,
                   .dy = all[2].data,
                   .dy_factor = c->factors ? all[3].data : NULL,
                   .sums = sums,
                   .packed = c->less ? windows : NULL,
                   .each = CHANNELS / c->filters * count,
                   .flags = f.periodic ? 1 : 0 };
    tell_rows(shape_of(c), &f, count, 0, o.rows);
    if (c->rows)
        run_matrices(c, m, &o);
    else
        run_sums(c, &m[GPU_CONV_SUMS], &o);
    check(c, &f, m, all, sums);
    dn_free(sums);
    for (int i = 0; i < 4; i++)
        array_free(&all[i]);
}

static void every_sum_is_right(void **state)
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
        cmocka_unit_test(every_sum_is_right),
    };
    return cmocka_run_group_tests_name("conv_sums", tests, make_folder, remove_folder);
}
