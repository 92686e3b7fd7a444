/* Blocks of Monarch Mixers, for the files that load and run them: Fu et al., Monarch Mixer,
   NeurIPS 2023 (arXiv 2310.12109). h are the rows of a sequence, * multiplies number by number,
   and (*) is a convolution along the sequence:

       u = h, or norm(h)
       x1, x2, v = short_conv(W_in u)
       a = W_out (x2 * (k (*) (x1 * v)) + k' (*) u)
       mlp(a) = W_2 (gelu(q1) * q2),  q1, q2 = W_1 a,   or   W_2 gelu(W_1 a).

   Blocks of M2-BERT, in its authors' checkpoints, normalise last,

       h = norm(a + mlp(a)),

   and those of vision transformers first: u = norm(h), h = h + a, h = h + mlp(norm(h)). */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_M2_M2_H
#define DN_MODEL_M2_M2_H

#include "danaus/conv.h"
#include "model/arch.h"
#include "model/hyena/short_conv.h"
#include "model/hyena/hyena_filter.h"

/* Filters are transformed for signals of 32, 48, 64, 96, 128, ... numbers. */
#define M2_LENGTHS 40
/* The most bytes of spectra that a CPU keeps; other spectra are computed for each chunk and
   block. A GPU keeps the M2_KEPT_GPU-th part of its memory. */
#define M2_KEPT     ((int64_t)192 << 20)
#define M2_KEPT_GPU 8

#define M2_TAPS 3
/* Rows that go through linear layers together on a CPU: whole sequences, unless one has more. */
#define M2_ROWS 256
/* On a GPU all of a chunk do, and sequences are packed for long convolutions. */
#define M2_GPU_TOKENS 16384

enum { M2_IN, M2_OUT, M2_UP, M2_DOWN, M2_LINEARS };
enum { M2_GATED, M2_RESIDUAL, M2_FILTERS };

typedef struct m2_block {
    linear *linear; /* M2_LINEARS */
    affine input;   /* of u; scale NULL: there is none */
    affine output;
    short_conv taps;
    hyena_filter filter[M2_FILTERS];
} m2_block;

/* Long convolutions of signals of one length. */
typedef struct m2_length {
    int64_t length;
    danaus_conv_plan *plan;
    danaus_spectrum **kept;              /* [layers][M2_FILTERS], or NULL */
    danaus_spectrum *shared[M2_FILTERS]; /* of a block, while a chunk runs */
    int used;                            /* by the chunk */
} m2_length;

typedef struct m2 {
    int64_t layers, width, inner, taken; /* taken: most tokens of a sequence */
    double epsilon, input_epsilon;       /* of norms of outputs, of u */
    danaus_activation activation;
    int gated, residual;
    int before;         /* blocks normalise what they read */
    int packed;         /* a chunk's sequences are convolved together */
    danaus_dtype dtype; /* of rows and channels */
    int64_t most_kept;  /* bytes */
    hyena_shape filter;
    m2_block *blocks;
    affine last; /* of h, where blocks normalise before */
    m2_length lengths[M2_LENGTHS];
    int64_t kept; /* bytes */
} m2;

/* ---- loading (m2_load.c) ---- */

/* Reads hyena_w_mod, hyena_filter_order and hyena_emb_dim. */
danaus_status dn_m2_config(m2 *m, const json_t *config, const block_sizes *sizes);

/* What names of tensors have: BLOCKS0.MIXER.in_linear.weight; INPUT and OUTPUT are norms of a
   block. */
typedef struct m2_names {
    const char *blocks, *mixer, *input, *output;
} m2_names;

/* Sets what the tensors of the first block decide: gates, convolutions and the sizes of filters.
   It is a complaint if config.json says otherwise. */
danaus_status dn_m2_decide(
    m2 *m, binder *b, const json_t *config, const m2_names *names);

/* Reads all blocks. */
danaus_status dn_m2_open_blocks(
    m2 *m, danaus_model *model, binder *b, const m2_names *names);
void dn_m2_close(void *blocks);

/* ---- running (m2_run.c) ---- */

extern const mixer_kind dn_m2_mixer;

/* ---- long convolutions (m2_lengths.c) ---- */

/* Long filters of a block. */
static inline int dn_m2_filters(const m2 *m) { return m->residual ? M2_FILTERS : 1; }

/* Convolutions for sequences of so many tokens. */
m2_length *dn_m2_length(m2 *m, int64_t tokens);

/* The length of dn_m2_length(), and a plan for it. */
int64_t dn_m2_padded(const m2 *m, int64_t tokens);
danaus_status dn_m2_plan(
    const m2 *m, danaus_device *device, int64_t length, danaus_conv_plan **plan);

/* Bytes of the spectra of a plan for one block, and of those that would stay where `kept`
   bytes do already. */
int64_t dn_m2_spectra_bytes(const m2 *m, const danaus_conv_plan *plan);
int64_t dn_m2_keeps(const m2 *m, const danaus_conv_plan *plan, int64_t kept);

/* Plans and spectra for the sequences of a chunk, and what of them does not stay. k is room for
   two filters [width][padded] of the longest. */
danaus_status dn_m2_open_lengths(
    m2 *m, danaus_device *device, const nn_sequences *sequences, float *k);
void dn_m2_close_lengths(m2 *m);
void dn_m2_forget(m2 *m); /* all of them */

/* Makes the spectra of a block that do not stay. */
danaus_status dn_m2_make_spectra(m2 *m, danaus_device *device, int64_t block, float *k);

/* A spectrum of a block. */
const danaus_spectrum *dn_m2_spectrum(
    const m2_length *length, int64_t block, int filter);

#endif
