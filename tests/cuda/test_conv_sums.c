/* Sums of gradients of filters by tensor cores: the text, executed by threads of the processor
   (emulator/warps.h), and the one that adds parts and orders them, against plain sums in f64:
   types, first factors of every kind, half and whole windows, circles, factors, rows that begin
   and end anywhere, sequences that are packed, filters of several channels, parts. */
// SPDX-License-Identifier: Apache-2.0
#include "emulator/run_conv.h"
#include "gpu/conv/conv.h"

#include <inttypes.h>
#include <math.h>

/* Arguments of all that sums launch. */
typedef struct operands {
    const void *x, *x_factor, *dy, *dy_factor;
    void *sums, *ordered;
    const void *tables, *packed;
    int64_t filters, parts, each, rows[8];
    int flags;
} operands;

#define OPERANDS(X, piece, uint4)                                                      \
    "struct operands {\n"                                                              \
    "    const " X " *x, *x_factor, *dy, *dy_factor;\n"                                \
    "    void *sums, *ordered;\n"                                                      \
    "    const " uint4 " *tables;\n"                                                   \
    "    const " piece " *packed;\n"                                                   \
    "    long long filters, parts, each, r[8];\n"                                      \
    "    int flags;\n"                                                                 \
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
                 "             r[4], r[5], r[6], r[7], o->packed, o->flags);\n"
                 "    });\n"
                 "}\n";

/* A portable text, as C++, which has no _Generic and needs no functions of that here. */
static const char launch_order[] =
    "#define _Generic(s, wide, narrow) fabs\n"
    "#include \"" EMULATOR_SOURCES "/words.h\"\n"
    "#include \"defines.h\"\n"
    "#include TEXT\n" OPERANDS(
        "void", "void",
        "void") "{\n"
                "    for (emulator_block = 0; emulator_block < blocks; "
                "emulator_block++)\n"
                "        for (emulator_thread = 0; emulator_thread < (int)threads;\n"
                "             emulator_thread++)\n"
                "            conv((const C *)o->sums, (C *)o->ordered, o->filters, "
                "o->parts);\n"
                "}\n";

typedef struct sums_case {
    danaus_dtype dtype;
    int root, taps, factors;
    danaus_conv_kind kind;
    int64_t length;
    float size; /* of numbers */
    int less; /* rows are packed, the second one is shorter by so many numbers; or 0 */
    int batch, filters, parts;
} sums_case;

static const sums_case cases[] = {
    { DANAUS_F16, 1, 256, 0, DANAUS_CAUSAL, 256, 1, 0, 3, 2, 2 },
    { DANAUS_F16, 2, 512, 1, DANAUS_CAUSAL, 509, 1e-4F, 0, 2, 1, 1 },
    { DANAUS_BF16, 2, 512, 0, DANAUS_CIRCULAR, 512, 1e15F, 0, 3, 2, 2 },
    { DANAUS_F16, 2, 300, 1, DANAUS_CIRCULAR, 512, 30, 0, 5, 1, 3 },
    { DANAUS_F16, 2, 512, 0, DANAUS_BIDIRECTIONAL, 512, 1, 0, 2, 2, 1 },
    { DANAUS_F16, 3, 768, 0, DANAUS_CAUSAL, 767, 1, 0, 2, 2, 2 },
    { DANAUS_F32, 3, 700, 1, DANAUS_CIRCULAR, 701, 1, 0, 2, 2, 1 },
    { DANAUS_F16, 4, 1024, 0, DANAUS_CIRCULAR, 1024, 1, 0, 4, 2, 1 },
    { DANAUS_BF16, 4, 1024, 1, DANAUS_CAUSAL, 1001, 1, 0, 2, 2, 1 },
    { DANAUS_F32, 5, 1280, 0, DANAUS_CAUSAL, 1280, 1e-10F, 0, 2, 2, 1 },
    { DANAUS_F16, 1, 20, 0, DANAUS_CAUSAL, 1300, 1, 0, 2, 2, 3 },
    { DANAUS_BF16, 1, 40, 0, DANAUS_CIRCULAR, 1301, 1, 0, 2, 1, 2 },
    { DANAUS_F16, 2, 400, 0, DANAUS_CAUSAL, 512, 1, 112, 2, 2, 1 },
    { DANAUS_F16, 2, 512, 1, DANAUS_BIDIRECTIONAL, 511, 1, 300, 2, 2, 1 },
    { DANAUS_F16, 8, 2048, 0, DANAUS_CAUSAL, 2048, 1, 0, 2, 2, 1 },
    { DANAUS_F16, 8, 2048, 1, DANAUS_CIRCULAR, 2048, 1, 0, 3, 2, 1 },
    { DANAUS_BF16, 8, 300, 0, DANAUS_BIDIRECTIONAL, 2000, 1, 0, 2, 2, 1 },
    { DANAUS_F16, 9, 2304, 0, DANAUS_CAUSAL, 2304, 1, 0, 2, 2, 1 },
    { DANAUS_F16, 16, 4096, 0, DANAUS_CIRCULAR, 4096, 1, 0, 2, 2, 1 },
    { DANAUS_F16, 20, 5120, 0, DANAUS_CAUSAL, 5120, 1, 0, 1, 2, 1 },
    { DANAUS_F16, 40, 10240, 0, DANAUS_CAUSAL, 10240, 1, 0, 1, 2, 1 },
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
    return dn_conv_cut_rows(&f, (conv_cut){ .n = 256 * c->root });
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

/* The sums of all filters, ordered. */
static void run_sums(
    const sums_case *c, const conv_frame *f, const gpu_conv_mma *m,
    const gpu_conv_shape *shape, operands *o)
{
    static gpu_use use;
    gpu_facts facts = { .units = 1 };
    void *tables = dn_alloc((size_t)dn_gpu_conv_mma_bytes(m));
    dn_gpu_conv_mma_tables(m, tables);
    o->tables = tables;
    o->filters = c->filters;
    o->parts = c->parts;
    o->sums = dn_calloc((size_t)(c->filters * c->parts * f->cut.n), 8);
    gpu_launch l = dn_gpu_conv_mma_launch(&facts, m, 0, o->filters * o->parts);
    dn_gpu_conv_mma_use(m, GPU_CONV_SUMS, c->dtype, 0, &use);
    run_use(launch_sums, &use, &l, o);
    gpu_conv_use order = { .text = "conv_order.cu", .level = shape->levels - 1 };
    dn_gpu_conv_use(shape, &order, c->dtype, 0, 0, &use);
    l = dn_gpu_conv_each(c->filters * f->cut.n);
    run_use(launch_order, &use, &l, o);
    dn_free(o->sums);
    dn_free(tables);
}

/* Number f of a spectrum is at places[f] of ordered ones. */
static void find_frequencies(const gpu_conv_shape *s, int64_t *places)
{
    for (int64_t at = 0; at < s->n; at++) {
        const gpu_conv_level *l = &s->level[s->levels - 1];
        int64_t radix = s->pass[s->passes - 1].radix, in = at % l->points, f = 0;
        int64_t number =
            at - in + in % (l->points / radix) * radix + in / (l->points / radix);
        for (int i = s->passes - 1; i >= 0; i--) {
            f = number % s->pass[i].radix + s->pass[i].radix * f;
            number /= s->pass[i].radix;
        }
        places[f] = at;
    }
}

/* The number of a window at a lag, from its spectrum. */
static double at_lag(
    const gpu_conv_mma *m, const float *z, const int64_t *places, const double *cosines,
    int64_t lag)
{
    int64_t n = m->columns, j = lag < 0 ? -lag : lag;
    double total = 0;
    for (int64_t f = 0; f < n; f++) {
        int64_t turn = (4 * f + !m->pair) * j % (4 * n);
        double re = cosines[turn], im = cosines[(turn + 3 * n) % (4 * n)];
        const float *number = z + 2 * places[f];
        total += number[0] * re + number[1] * (lag < 0 ? -im : im);
    }
    return total / (double)n;
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
    const sums_case *c, const conv_frame *f, const gpu_conv_mma *m,
    const gpu_conv_shape *shape, const array all[4], const float *ordered)
{
    int64_t n = f->cut.n, *places = dn_alloc((size_t)n * sizeof *places);
    double *cosines = dn_alloc((size_t)(4 * n) * sizeof *cosines);
    int64_t most =
        c->kind == DANAUS_CIRCULAR ? MIN(f->before, c->length - 1) : f->before;
    int64_t step = 1 + (most + f->after) / 200;
    find_frequencies(shape, places);
    for (int64_t i = 0; i < 4 * n; i++)
        cosines[i] = cos(2 * PI * (double)i / (4.0 * (double)n));
    for (int filter = 0; filter < c->filters; filter++) {
        double difference = 0, whole = 0;
        for (int64_t lag = -f->after; lag <= most; lag += step) {
            double exact = exact_at(c, f, all, filter, lag);
            double made = at_lag(m, ordered + filter * 2 * n, places, cosines, lag);
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

static void try_case(const sums_case *c, int number)
{
    rng r = { (uint64_t)number };
    gpu_facts facts = { .arch = 90, .shared = (c->root > 8 ? 227 : 99) << 10 };
    conv_frame f = frame_of(c);
    gpu_conv_mma m[GPU_CONV_MMA_PARTS];
    gpu_conv_shape shape;
    packed_window windows[MOST_PIECES];
    array all[4];
    assert_true(dn_gpu_conv_mma_matrix(
        &facts, 0, c->root, dn_gpu_conv_half(&f), dn_gpu_conv_circle(&f), m));
    dn_gpu_conv_mma_fit(&f, m);
    assert_true(dn_gpu_conv_shape(&facts, DANAUS_F32, f.cut.n, &shape));
    assert_true(m[GPU_CONV_SUMS].root == c->root);
    int64_t count = find_windows(shape_of(c), &f, m->pair, windows);
    make_operands(c, &r, all);
    float *ordered = dn_calloc((size_t)(c->filters * f.cut.n), 8);
    operands o = { .x = all[0].data,
                   .x_factor = c->factors ? all[1].data : NULL,
                   .dy = all[2].data,
                   .dy_factor = c->factors ? all[3].data : NULL,
                   .ordered = ordered,
                   .packed = c->less ? windows : NULL,
                   .each = CHANNELS / c->filters * count,
                   .flags = f.periodic ? 1 : 0 };
    tell_rows(shape_of(c), &f, count, 0, o.rows);
    run_sums(c, &f, &m[GPU_CONV_SUMS], &shape, &o);
    check(c, &f, m, &shape, all, ordered);
    dn_free(ordered);
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
