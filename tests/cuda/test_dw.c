/* Weight gradients on tensor cores: the text, executed by threads of the processor
   (emulator/warps.h), against plain sums in f64: both layouts, every type, lanes of every
   kind, sizes around the edges of tiles, ragged slabs, operands that are and, where no copy
   engine fetches them, are not aligned. */
// SPDX-License-Identifier: Apache-2.0
#include "emulator/map.h"
#include "emulator/run_text.h"
#include "gpu/gradient/dw.h"

#include <inttypes.h>
#include <math.h>

typedef void dw_function(
    unsigned blocks, unsigned threads, unsigned shared, const void *x, const void *dy,
    float *part, int64_t batch, int64_t slab, int add, const tensor_map *maps);

/* One problem of those that the text makes, with slabs of so many columns. */
typedef struct dw_case {
    problem p;
    int64_t slab;
    int aligned, add;
} dw_case;

#define BEFORE 0.5F /* in parts that sums are added to */

/* Types and lanes of every kind: fewer than a vector's elements, as many, more, and
   numbers that these do not divide. */
static const struct {
    danaus_dtype dtype;
    danaus_math math;
    danaus_layout layout;
    int64_t d;
    int arch; /* 80, or 90 for ks_dw_wgmma.cu and the copy engine */
} kinds[] = {
    { DANAUS_F32, DANAUS_MATH_F32, DANAUS_BATCH_LAST, 1, 80 },
    { DANAUS_F32, DANAUS_MATH_F32, DANAUS_BATCH_LAST, 3, 80 },
    { DANAUS_F32, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 1, 80 },
    { DANAUS_F32, DANAUS_MATH_F32, DANAUS_BATCH_LAST, 1, 90 },
    { DANAUS_F32, DANAUS_MATH_F32, DANAUS_BATCH_LAST, 2, 90 },
    { DANAUS_F32, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 1, 90 },
    { DANAUS_F32, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 2, 90 },
    { DANAUS_F32, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 3, 90 },
    { DANAUS_F32, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 4, 90 },
    { DANAUS_F32, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 2, 80 },
    { DANAUS_F32, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 3, 80 },
    { DANAUS_F32, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 12, 80 },
    { DANAUS_F32, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 16, 90 },
    { DANAUS_F32, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 32, 90 },
    { DANAUS_F32, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 48, 90 },
    { DANAUS_F32, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 16, 80 },
    { DANAUS_F32, DANAUS_MATH_TF32, DANAUS_BATCH_FIRST, 6, 80 },
    { DANAUS_F32, DANAUS_MATH_TF32, DANAUS_BATCH_FIRST, 8, 80 },
    { DANAUS_F16, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 1, 80 },
    { DANAUS_F16, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 2, 80 },
    { DANAUS_F16, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 4, 80 },
    { DANAUS_F16, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 5, 80 },
    { DANAUS_F16, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 16, 80 },
    { DANAUS_F16, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 64, 80 },
    { DANAUS_BF16, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 6, 80 },
    { DANAUS_BF16, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 12, 80 },
    { DANAUS_BF16, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 24, 80 },
    { DANAUS_BF16, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 2, 90 },
    { DANAUS_F16, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 4, 90 },
    { DANAUS_BF16, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 4, 90 },
    { DANAUS_F16, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 4, 90 },
    { DANAUS_F16, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 8, 90 },
    { DANAUS_BF16, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 16, 90 },
    { DANAUS_F32, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 1, 90 },
    { DANAUS_F32, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 2, 90 },
    { DANAUS_F32, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 3, 90 },
    { DANAUS_F32, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 4, 90 },
    { DANAUS_F32, DANAUS_MATH_TF32, DANAUS_BATCH_FIRST, 8, 90 },
    { DANAUS_F16, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 1, 90 },
    { DANAUS_BF16, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 1, 90 },
    { DANAUS_F16, DANAUS_MATH_F32, DANAUS_BATCH_FIRST, 1, 90 },
};

#define KINDS ((int)(sizeof kinds / sizeof *kinds))
/* From here on blocks are lines of whole segments of 128 bytes, and then matrices that
   ks_dw_matrix.cu takes. */
#define FIRST_FLAT   (KINDS - 14)
#define FIRST_MATRIX (KINDS - 3)

static dw_case random_dw(rng *r, int number)
{
    dw_case c = { .aligned = number % 3 > 0 || kinds[number].arch == 90,
                  .add = number % 2,
                  .slab = number % 4 ? 64 : 192 };
    int64_t unit = c.aligned ? 8 : 1, d = kinds[number].d,
            most = d > 32  ? 20
                   : d > 8 ? 40
                           : 100;
    c.p.operation = DN_WEIGHT_GRADIENT;
    c.p.dtype = kinds[number].dtype;
    c.p.math = kinds[number].math;
    c.p.layout = kinds[number].layout;
    c.p.pattern = (danaus_pattern){ rng_int(r, 1, 2), rng_int(r, 8, most),
                                    rng_int(r, 8, most), d };
    c.p.batch = (c.slab + rng_int(r, 1, 56)) / unit * unit;
    if (number >= FIRST_MATRIX) {
        c.p.pattern.b = rng_int(r, 1, 30) * 8;
        c.p.pattern.c = rng_int(r, 1, 30) * 8;
    } else if (number >= FIRST_FLAT) {
        int64_t rows = 1, row = dn_size_of(c.p.dtype) * d;
        while (rows * row % 128)
            rows++;
        c.p.pattern.b = CEIL_DIV(c.p.pattern.b, rows) * rows;
        c.p.pattern.c = CEIL_DIV(c.p.pattern.c, rows) * rows;
    }
    return c;
}

static const char launch_dw[] =
    "#include \"defines.h\"\n"
    "#include TEXT\n"
    "#if BOXES\n"
    "#define MAPS_AT(maps) , (maps)[0], (maps)[1]\n"
    "#else\n"
    "#define MAPS_AT(maps)\n"
    "#endif\n"
    "extern \"C\" void launch(unsigned blocks, unsigned threads, unsigned bytes,\n"
    "    const void *x, const void *dy, float *part, i64 batch, i64 slab, int add,\n"
    "    const tensor_map *maps)\n"
    "{\n"
    "    run_blocks(blocks, threads, bytes, [=] {\n"
    "        dw((const element *)x, (const element *)dy, part, batch, slab, add "
    "MAPS_AT(maps));\n"
    "    });\n"
    "}\n";

/* By the row of tiles that is estimated to be fastest on 9.0, or that of 8.0. */
static ks_step step_for(const problem *p, int arch)
{
    gpu_device dev = { .facts = { .arch = 90, .units = 132, .bandwidth = 4.9e12 } };
    ks_step best = { *p, NULL, 0 };
    double least = INFINITY;
    dn_gpu_fill_rates(&dev.facts, 1.98e9);
    for (const kernel *k = dn_gpu_kernels; k->name; k++) {
        if (dn_gpu_code(k)->arch != arch || !dn_fits(k, p) ||
            dn_gpu_code(k)->size[DW_FORM] != DW_AS_IT_LIES)
            continue;
        double cost = dn_cost(&dev.base, k, p);
        if (cost < least) {
            least = cost;
            best.kernel = k;
        }
    }
    assert_non_null(best.kernel);
    best.settled = best.kernel->family->settle(best.kernel, p);
    return best;
}

static void fill_maps(
    tensor_map maps[2], const gpu_dw_plan *plan, const problem *p, const void *x,
    const void *dy)
{
    const gpu_dw *t = &plan->tile;
    gpu_map views[2];
    dn_gpu_dw_maps(plan, p->batch, views);
    for (int i = 0; i < 2; i++) {
        maps[i] = (tensor_map){ .memory = i ? dy : x,
                                .element = t->element,
                                .swizzle = views[i].swizzle };
        memcpy(maps[i].size, views[i].size, sizeof maps[i].size);
        memcpy(maps[i].stride, views[i].stride, sizeof maps[i].stride);
        memcpy(maps[i].box, views[i].box, sizeof maps[i].box);
    }
}

static void run_dw(
    const dw_case *c, const void *x, const void *dy, float *part, int number)
{
    gpu_facts facts = { .arch = kinds[number].arch, .units = 132 };
    ks_step step = step_for(&c->p, facts.arch);
    gpu_dw_plan plan = dn_gpu_dw_plan(&facts, &step, c->p.batch);
    const gpu_dw *t = &plan.tile;
    const gpu_family *family = dn_gpu_family(step.kernel);
    plan.slabs.width = c->slab;
    assert_true(t->resident > 0);
    assert_int_equal(t->boxes && t->columns && !t->flat, number >= FIRST_MATRIX);
    assert_true(t->flat || number < FIRST_FLAT || number >= FIRST_MATRIX);
    assert_true(!t->boxes || c->aligned);
    tensor_map maps[2];
    if (t->boxes)
        fill_maps(maps, &plan, &c->p, x, dy);
    gpu_launch l = dn_gpu_dw_launch(&plan, c->p.batch);
    char defines[4096];
    text to = { defines, sizeof defines, 0 };
    dn_text(&to, "#define TEXT \"%s\"\n", family->text);
    family->defines(step.kernel, &c->p, 0, &to);
    dw_function *launch;
    void *library = load_program(launch_dw, defines, &launch);
    launch(
        (unsigned)l.blocks[0], (unsigned)l.threads, (unsigned)l.shared, x, dy, part,
        c->p.batch, c->slab, c->add, maps);
    dlclose(library);
}

static double number_at(
    const problem *p, const array *v, int64_t size, int64_t i, int64_t row, int64_t j,
    int64_t s)
{
    danaus_pattern q = p->pattern;
    int64_t at = (i * size + row) * q.d + j;
    at = p->layout == DANAUS_BATCH_LAST ? at * p->batch + s : s * q.a * size * q.d + at;
    return element_get(v->dtype, v->data, at).re;
}

/* Checks the part of one slab. Products in tf32 have 11 bits of each factor, split ones 22. A
   sum in f32 that is cut where it should be rounded loses a unit of 2^-23 of itself at every
   addition, and a product of matrices may make one addition for each column. The split makes
   NaN of an infinite x. */
static void expect_part(
    const dw_case *c, const array *x, const array *dy, const float *part, int64_t slab,
    int64_t i, int64_t r, int64_t k, int64_t j, const char *what)
{
    const problem *p = &c->p;
    danaus_pattern q = p->pattern;
    double sum = 0, magnitude = 0;
    int infinite = 0;
    int64_t first = slab * c->slab, end = first + c->slab;
    end = end < p->batch ? end : p->batch;
    for (int64_t s = first; s < end; s++) {
        double u = number_at(p, dy, q.b, i, r, j, s);
        double v = number_at(p, x, q.c, i, k, j, s);
        infinite |= isinf(v);
        sum += u * v;
        magnitude += fabs(u * v);
    }
    double unit = p->math == DANAUS_MATH_TF32 ? 0x1p-10
                  : p->dtype == DANAUS_F32    ? 0x1p-20
                                              : 0;
    double bound = magnitude * (unit + 0x1p-23 * (double)(end - first));
    int64_t at = p->layout == DANAUS_BATCH_LAST ? ((i * q.d + j) * q.b + r) * q.c + k
                                                : ((i * q.b + r) * q.c + k) * q.d + j;
    double found = (double)part[slab * q.a * q.b * q.c * q.d + at];
    if (c->add)
        found -= (double)BEFORE, bound += 0x1p-24;
    if (infinite ? !isnan(found) : !(fabs(found - sum) <= bound))
        fail_msg(
            "%s: slab %" PRId64 " (%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64
            ") is %g, not %g",
            what, slab, i, r, k, j, found, sum);
}

static void expect_parts(
    const dw_case *c, const array *x, const array *dy, const float *part,
    const char *what)
{
    danaus_pattern q = c->p.pattern;
    for (int64_t slab = 0; slab * c->slab < c->p.batch; slab++)
        for (int64_t i = 0; i < q.a; i++)
            for (int64_t r = 0; r < q.b; r++)
                for (int64_t k = 0; k < q.c; k++)
                    for (int64_t j = 0; j < q.d; j++)
                        expect_part(c, x, dy, part, slab, i, r, k, j, what);
}

static void check_dw(int number, int infinite)
{
    rng r = { (uint64_t)number };
    dw_case c = random_dw(&r, number);
    danaus_pattern q = c.p.pattern;
    int64_t slabs = (c.p.batch + c.slab - 1) / c.slab;
    array x = array_random(&r, c.p.dtype, q.a * q.c * q.d * c.p.batch);
    array dy = array_random(&r, c.p.dtype, q.a * q.b * q.d * c.p.batch);
    if (infinite)
        ((float *)x.data)[x.count / 2] = INFINITY;
    array part = array_make(DANAUS_F32, slabs * q.a * q.b * q.c * q.d);
    for (int64_t e = 0; e < part.count; e++)
        ((float *)part.data)[e] = BEFORE;
    void *places[] = { aligned_copy(&x), aligned_copy(&dy), aligned_copy(&part) };
    run_dw(
        &c, c.aligned ? places[0] : x.data, c.aligned ? places[1] : dy.data, places[2],
        number);
    memcpy(part.data, places[2], (size_t)part.count * sizeof(float));
    char what[160];
    snprintf(
        what, sizeof what,
        "case %d: %" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64
        " type %d math %d layout %d batch %" PRId64,
        number, q.a, q.b, q.c, q.d, (int)c.p.dtype, (int)c.p.math, (int)c.p.layout,
        c.p.batch);
    expect_parts(&c, &x, &dy, part.data, what);
    for (int i = 0; i < 3; i++)
        dn_free(places[i]);
    array_free(&x);
    array_free(&dy);
    array_free(&part);
}

static void weight_gradients_are_sums(void **state)
{
    (void)state;
    for (int number = getenv("ONLY") ? atoi(getenv("ONLY")) : 0; number < KINDS;
         number += warp_share())
        check_dw(number, 0);
}

/* In f32, by each text and both ways of fetching. */
static void an_infinity_is_nan_in_its_sums_and_in_no_others(void **state)
{
    (void)state;
    static const int numbers[] = { 0, 5, 12 };
    for (int i = 0; i < 3; i++)
        check_dw(numbers[i], 1);
}

int main(void)
{
    if (!has_compiler())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weight_gradients_are_sums),
        cmocka_unit_test(an_infinity_is_nan_in_its_sums_and_in_no_others),
    };
    return cmocka_run_group_tests_name("dw", tests, make_folder, remove_folder);
}
