/* What families of rows share: #defines of their texts, what they reach, costs. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/rows.h"

#include "math/pattern.h"

void dn_gpu_define(danaus_dtype dtype, const gpu_define *lines, size_t count, text *to)
{
    if (dtype == DANAUS_BF16)
        dn_text(to, "#define TYPE_BF16 1\n");
    for (size_t i = 0; i < count; i++)
        dn_text(to, "#define %s %lld\n", lines[i].name, (long long)lines[i].value);
}

void dn_gpu_define_product(
    const problem *p, const gpu_define *lines, size_t count, text *to)
{
    danaus_pattern q = p->pattern;
    const gpu_define all[] = {
        { "ELEMENT", dn_size_of(p->dtype) },
        { "ACTIVATION", p->activation },
        { "RESIDUAL", p->residual },
        { "BLOCKS", q.a },
        { "ROWS", q.b },
        { "COLS", q.c },
        { "LANES", q.d },
    };
    dn_gpu_define(p->dtype, all, sizeof all / sizeof *all, to);
    dn_gpu_define(DANAUS_F32, lines, count, to);
}

void dn_gpu_define_type(const kernel *k, const problem *p, int variant, text *to)
{
    (void)k, (void)variant;
    dn_text(to, "#define TYPE_%s 1\n", danaus_dtype_name(p->dtype));
}

void dn_gpu_define_layout(const kernel *k, const problem *p, int variant, text *to)
{
    dn_gpu_define_type(k, p, variant, to);
    dn_text(to, "#define LAST %d\n", p->layout == DANAUS_BATCH_LAST);
}

void dn_gpu_define_orders(const problem *p, text *to)
{
    dn_text(
        to, "#define READS %d\n#define WRITES %d\n", (p->orders & DN_READS) != 0,
        (p->orders & DN_WRITES) != 0);
}

int dn_gpu_runs_on(const kernel *k, int arch)
{
    int least = dn_gpu_code(k)->arch;
    return least == 90 ? arch == 90 : arch >= least;
}

void dn_gpu_use(const kernel *k, const problem *p, int variant, gpu_use *use)
{
    const gpu_family *f = dn_gpu_family(k);
    text t = { use->defines, sizeof use->defines, 0 };
    use->text = f->text;
    use->entry = f->entry ? f->entry : "ks";
    *use->defines = '\0';
    f->defines(k, p, variant, &t);
}

/* Rows whose x is made first turn nothing. Which variant it is hangs on whether a batch is
   one column, how many there are, and whether they are a multiple of some power of two. */
int dn_gpu_reaches(const kernel *k, const problem *p, int variant, int64_t memory)
{
    const gpu_family *f = dn_gpu_family(k);
    danaus_pattern q = p->pattern;
    int64_t column = (dn_pattern_rows(q) + dn_pattern_cols(q)) * dn_size_of(p->dtype);
    const int64_t batches[] = { p->batch, 1, 3, 64, memory / column };
    if (!f->text || dn_gpu_code(k)->first)
        return 0;
    if (!f->variant)
        return 1;
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        gpu_call call = { .batch = MAX(batches[i], 1) };
        if (f->variant(k, p, &call) == variant)
            return 1;
    }
    return 0;
}

double dn_gpu_moved_bytes(const problem *p)
{
    int64_t rows = dn_pattern_rows(p->pattern);
    int64_t cols = dn_pattern_cols(p->inner.a ? p->inner : p->pattern);
    int64_t made = p->gated ? rows / 2 : rows;
    return (double)(cols + made + (p->residual ? rows : 0)) * (double)p->batch *
           (double)danaus_dtype_size(p->dtype);
}

#define SECTOR_BYTES 32
#define SHORT_BYTES  48 /* of a line */

/* Numbers of a line that count as sharing. */
static double sharing(int64_t count, int64_t size)
{
    int64_t bytes = count * size;
    return bytes % SECTOR_BYTES ? (double)MIN(bytes, SHORT_BYTES) / (double)size : 0;
}

double dn_gpu_sharing(const problem *p)
{
    danaus_pattern q = p->pattern;
    int64_t size = dn_size_of(p->dtype);
    if (p->layout != DANAUS_BATCH_FIRST || !dn_has_16_bits(p->dtype) || q.a == 1 ||
        q.d > 1 || dn_gpu_is_ragged(p))
        return 0;
    return (sharing(q.b, size) + sharing(q.c, size)) / (double)(q.b + q.c);
}

double dn_gpu_activating(const gpu_facts *f, const problem *p)
{
    static const double clocks[] = {
        [DANAUS_RELU] = 0.03,
        [DANAUS_GELU] = 0.33,
        [DANAUS_SILU] = 0.13,
        [DANAUS_GELU_TANH] = 0.15,
    };
    double each = clocks[p->activation];
    double numbers = (double)dn_pattern_rows(p->pattern) * (double)p->batch;
    if (p->activation == DANAUS_GELU && danaus_dtype_size(p->dtype) == 2)
        each = 0.17;
    return numbers * each * 128 / f->cores / (f->units * f->clock);
}
