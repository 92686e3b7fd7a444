/* Softmax attention by tensor cores: the text, executed by threads of the processor
   (emulator/warps.h), against plain sums in f64: types, heads of any number, sequences shorter
   and longer than a tile, windows, biases, rows that are aligned to an element alone or lie apart.
   Nothing but y is written. */
// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"
#include "emulator/run_text.h"
#include "gpu/nn/nn.h"

#include <inttypes.h>
#include <math.h>

#define MOST_SEQUENCES 239 /* of a table */
#define MOST_LENGTH    200

/* The table of nn_table.cuh. */
typedef struct job {
    const void *in[4];
    void *out[2];
    const int *ids[2];
    int64_t size[5];
    float number[2];
    int choice[2];
    int64_t sequences, offset[MOST_SEQUENCES + 1];
} job;

typedef void attention_function(
    unsigned blocks, unsigned threads, unsigned bytes, const void *table);

static const char launch_attention[] =
    "#include \"defines.h\"\n"
    "#include \"nn_attention_mma.cu\"\n"
    "extern \"C\" void launch(unsigned blocks, unsigned threads, unsigned bytes,\n"
    "    const void *table)\n"
    "{\n"
    "    run_blocks(blocks, threads, bytes, [=] { attention(*(const job *)table); });\n"
    "}\n";

/* What y[t] of a sequence and head is, and how far from it y may be: scores are sums of `head`
   products in f32; weights exp(score - most) are rounded to the type of rows, and numbers near
   0 by no more than half of the smallest number of f16. */
static void plain(
    const job *j, danaus_dtype dtype, const float *bias, int64_t from, int64_t length,
    int64_t t, value *y)
{
    int64_t pitch = j->size[3], head = j->size[1] / j->size[2];
    double weights[MOST_LENGTH], most = -INFINITY, largest = 0, sum = 0;
    double unit = precision_of(dtype).unit;
    for (int64_t s = 0; s < length; s++) {
        double score = 0, size = 0;
        weights[s] = -INFINITY;
        if (j->size[4] && llabs(s - t) >= j->size[4])
            continue;
        for (int64_t c = 0; c < head; c++) {
            double term = element_get(dtype, j->in[0], from + t * pitch + c).re *
                          element_get(dtype, j->in[1], from + s * pitch + c).re;
            score += term;
            size += fabs(term);
        }
        weights[s] = score * (double)j->number[0];
        if (bias) {
            int64_t reach = j->size[0], far = MAX(-reach, MIN(s - t, reach));
            weights[s] += (double)bias[reach + far];
            size += fabs((double)(bias[reach + far] / j->number[0]));
        }
        largest = fmax(largest, size * (double)j->number[0]);
        most = fmax(most, weights[s]);
    }
    for (int64_t s = 0; s < length; s++)
        sum += weights[s] = exp(weights[s] - most);
    double rounded =
        unit + 0x1p-22 * (largest * (double)(head + 8) + (double)length + 16);
    for (int64_t c = 0; c < head; c++) {
        value v = { 0, 0 };
        for (int64_t s = 0; s < length; s++) {
            double x = element_get(dtype, j->in[2], from + s * pitch + c).re / sum;
            v.re += weights[s] * x;
            v.im += (weights[s] * rounded + 0x1p-25) * fabs(x);
        }
        y[c] = (value){ v.re, v.im + unit * (fabs(v.re) + v.im) + 0x1p-25 };
    }
}

/* Some sequences, with guards around all arrays. */
static void check(rng *r, attention_function *launch, danaus_dtype dtype, int64_t head)
{
    gpu_facts facts = { .arch = 80, .shared = 99 << 10 };
    gpu_attention a;
    int64_t most, heads = rng_int(r, 1, 2), width = head * heads, blocks = 0;
    assert_true(dn_gpu_attention(&facts, head, dtype, &a, &most));
    assert_int_equal(a.row, GPU_NN_ATTENTION_MMA);
    int64_t pitch = width * rng_int(r, 1, 2) + rng_int(r, 0, 1) * 8;
    int64_t window = rng_int(r, 0, 1) ? rng_int(r, 1, 90) : 0;
    int64_t reach = rng_int(r, 0, 1) * rng_int(r, 1, 150);
    job j = { .size = { reach, width, heads, pitch, window },
              .number = { (float)rng_int(r, 1, 16) / sqrtf((float)head) },
              .sequences = rng_int(r, 1, 3) };
    for (int64_t i = 0; i < j.sequences; i++) {
        int64_t length = rng_int(r, 1, i ? 20 : MOST_LENGTH);
        j.offset[i + 1] = j.offset[i] + length;
        blocks += CEIL_DIV(length, a.queries) * heads;
    }
    array x[3], y = array_make(dtype, j.offset[j.sequences] * width);
    array bias = array_random(r, DANAUS_F32, heads * (2 * reach + 1));
    j.in[3] = reach ? bias.data : NULL;
    for (int i = 0; i < 3; i++) {
        x[i] = array_random(r, dtype, j.offset[j.sequences] * pitch);
        j.in[i] = x[i].data;
    }
    j.out[0] = y.data;
    gpu_launch l = dn_gpu_attention_launch(&a, blocks);
    launch((unsigned)l.blocks[0], (unsigned)l.threads, (unsigned)l.shared, &j);
    for (int64_t i = 0; i < j.sequences; i++)
        for (int64_t row = j.offset[i], at; row < j.offset[i + 1]; row++)
            for (int64_t h = 0; h < heads; h++) {
                value wanted[512];
                at = j.offset[i] * pitch + h * head;
                const float *own = (const float *)j.in[3] + h * (2 * reach + 1);
                plain(
                    &j, dtype, reach ? own : NULL, at, j.offset[i + 1] - j.offset[i],
                    row - j.offset[i], wanted);
                for (int64_t c = 0; c < head; c++) {
                    double v =
                        element_get(dtype, y.data, row * width + h * head + c).re;
                    if (!(fabs(v - wanted[c].re) <= wanted[c].im))
                        fail_msg(
                            "%s, heads of %d, window %d, number %d of row %d is "
                            "%.9g, not %.9g within %g",
                            danaus_dtype_name(dtype), (int)head, (int)window, (int)c,
                            (int)row, v, wanted[c].re, wanted[c].im);
                }
            }
    array_expect_guards(&y);
    for (int i = 0; i < 3; i++)
        array_free(&x[i]);
    array_free(&bias);
    array_free(&y);
}

/* Heads that a text is compiled for, with as many numbers or fewer. */
static void y_is_that_of_plain_sums(void **state)
{
    (void)state;
    static const int64_t heads[] = { 16, 48, 64, 128 };
    rng r = { 1 };
    for (int i = 0; i < 4; i++) {
        danaus_dtype dtype = i % 2 ? DANAUS_BF16 : DANAUS_F16;
        gpu_facts facts = { .arch = 80, .shared = 99 << 10 };
        gpu_attention a;
        int64_t most;
        dn_gpu_attention(&facts, heads[i], dtype, &a, &most);
        char defines[256];
        text t = { defines, sizeof defines, 0 };
        const kernel *k = &dn_gpu_nn[a.row];
        dn_gpu_family(k)->defines(k, &a.p, 0, &t);
        attention_function *launch;
        void *library = load_program(launch_attention, defines, &launch);
        check(&r, launch, dtype, heads[i]);
        for (int more = 0; more < 7; more++)
            check(&r, launch, dtype, rng_int(&r, heads[i] - 15, heads[i]));
        assert_int_equal(dlclose(library), 0);
    }
}

int main(void)
{
    if (!has_compiler())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(y_is_that_of_plain_sums),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
