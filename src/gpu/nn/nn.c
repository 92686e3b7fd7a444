/* Models' operations on GPUs: the rows of nn.cu, nn_mix.cu and nn_attention*.cu. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/nn/nn.h"

#include "gpu/rows.h"

#define THREADS 128 /* of all texts but pick.cu */
#define PICKERS 256

/* Sizes of nn_attention.cu, which keeps sums in registers and tiles in shared memory, */
#define MOST_HEAD  512
#define COLUMNS    16
#define QUERIES    32
#define KEYS       32
#define OWN_SHARED 1024 /* bytes of its arrays of a fixed size, at most */

/* and of nn_attention_mma.cu. */
#define MMA_HEAD 128
#define MMA_ROWS 64 /* of a tile of queries, keys or values */

#define HEAD(p) ((p)->pattern.a)

static void attention_defines(const kernel *k, const problem *p, int variant, text *to)
{
    const gpu_define lines[] = { { "HEAD", HEAD(p) },
                                 { "ELEMENT", dn_size_of(p->dtype) } };
    dn_gpu_define_type(k, p, variant, to);
    dn_gpu_define(p->dtype, lines, sizeof lines / sizeof *lines, to);
}

#define ROW(NAME, ARCH, TEXT, ENTRY, DEFINES)                                          \
    {                                                                                  \
        NAME, 0,                                                                       \
            &((const gpu_family){ .text = TEXT, .entry = ENTRY, .defines = DEFINES })  \
                 .kernel,                                                              \
            &(const gpu_code)                                                          \
        {                                                                              \
            .arch = ARCH                                                               \
        }                                                                              \
    }

#define PLAIN(TEXT, ENTRY) ROW("nn." ENTRY, 0, TEXT, ENTRY, dn_gpu_define_type)

const kernel dn_gpu_nn[GPU_NN_ROWS] = {
    [GPU_NN_NORM] = PLAIN("nn.cu", "normalise"),
    [GPU_NN_LOOKUP] = PLAIN("nn.cu", "lookup"),
    [GPU_NN_POOL] = PLAIN("nn.cu", "pool"),
    [GPU_NN_UNIT] = PLAIN("nn.cu", "unit"),
    [GPU_NN_APPLY] = PLAIN("nn.cu", "apply"),
    [GPU_NN_ROTARY] = PLAIN("nn.cu", "rotary"),
    [GPU_NN_LIKELIHOOD] = PLAIN("nn.cu", "likelihood"),
    [GPU_NN_SCORE] = PLAIN("nn.cu", "score"),
    [GPU_NN_PATCHES] = PLAIN("nn.cu", "patches"),
    [GPU_NN_SINE] = PLAIN("nn_mix.cu", "sine"),
    [GPU_NN_TURN] = PLAIN("nn_mix.cu", "turn"),
    [GPU_NN_SHORT_CONV] = PLAIN("nn_mix.cu", "short_conv"),
    [GPU_NN_PAD] = PLAIN("nn_mix.cu", "pad"),
    [GPU_NN_GATE] = PLAIN("nn_mix.cu", "gate"),
    [GPU_NN_MULTIPLY] = PLAIN("nn_mix.cu", "multiply"),
    [GPU_NN_OUTER] = PLAIN("nn_mix.cu", "outer"),
    [GPU_NN_CONTRACT] = PLAIN("nn_mix.cu", "contract"),
    [GPU_NN_CAYLEY] = PLAIN("nn_cayley.cu", "cayley"),
    [GPU_NN_CAYLEY_BACK] = PLAIN("nn_cayley.cu", "cayley_back"),
    [GPU_NN_PICK] = PLAIN("pick.cu", "pick"),
    [GPU_NN_ATTENTION] =
        ROW("nn.attention", 0, "nn_attention.cu", "attention", attention_defines),
    [GPU_NN_ATTENTION_MMA] = ROW(
        "nn.attention.mma", 80, "nn_attention_mma.cu", "attention", attention_defines),
};

static int64_t shared_of(int64_t head)
{
    int64_t line = head + 4;
    return ((QUERIES + KEYS) * line + QUERIES * KEYS) * (int64_t)sizeof(float);
}

/* Two tiles of keys, and of values. */
static int64_t mma_shared(int64_t head) { return 4 * MMA_ROWS * (2 * head + 16); }

int dn_gpu_attention(
    const gpu_facts *f, int64_t head, danaus_dtype dtype, gpu_attention *a,
    int64_t *most)
{
    int64_t columns = ROUND_UP(head, COLUMNS);
    int mma = f->arch >= 80 && dtype != DANAUS_F32 && columns <= MMA_HEAD;
    *most = MOST_HEAD;
    while (shared_of(*most) + OWN_SHARED > f->shared)
        *most -= COLUMNS;
    *a = (gpu_attention){ .row = mma ? GPU_NN_ATTENTION_MMA : GPU_NN_ATTENTION,
                          .p = { .dtype = dtype, .pattern = { columns, 1, 1, 1 } },
                          .queries = mma ? MMA_ROWS : QUERIES,
                          .shared = (int)(mma ? mma_shared : shared_of)(columns) };
    return head <= *most;
}

gpu_launch dn_gpu_attention_launch(const gpu_attention *a, int64_t blocks)
{
    gpu_launch l = dn_gpu_line(blocks, THREADS);
    l.shared = a->shared;
    return l;
}

gpu_launch dn_gpu_nn_launch(int64_t rows) { return dn_gpu_line(rows, THREADS); }

gpu_launch dn_gpu_nn_norms(int64_t rows)
{
    return dn_gpu_line(CEIL_DIV(rows, GPU_TOGETHER), THREADS);
}

gpu_launch dn_gpu_nn_numbers(int64_t count)
{
    return dn_gpu_line(CEIL_DIV(count, THREADS), THREADS);
}

gpu_launch dn_gpu_nn_picks(int64_t count)
{
    return dn_gpu_line(CEIL_DIV(count, PICKERS), PICKERS);
}

gpu_launch dn_gpu_nn_tiles(int64_t rows, int64_t width)
{
    return dn_gpu_line(CEIL_DIV(rows, GPU_SIDE) * CEIL_DIV(width, GPU_SIDE), THREADS);
}

gpu_launch dn_gpu_nn_pools(int64_t sequences, int64_t width)
{
    return dn_gpu_line(sequences * CEIL_DIV(width, GPU_POOLED), THREADS);
}
