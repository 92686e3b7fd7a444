/* The inside of a causal model of Hyena's kind, for the files that run it: Poli et al., Hyena
   Hierarchy, ICML 2023 (arXiv 2302.10866), HyenaDNA (arXiv 2306.15794), and M2-GPT of Fu et
   al., Monarch Mixer, NeurIPS 2023 (arXiv 2310.12109).

       r = word
       each block:  r += W_o mix(short_conv(W_i norm(r))),  r += W_2 gelu(W_1 norm(r))
       h = norm(r),  logits = W h

   If rows have 16 bits, r, h, words and W are still f32, because r adds up over all blocks.

   mix takes `order` + 1 groups of `width` channels, x_0, ..., x_{order-1}, v:

       v = k_o (*) (x_{order-1-o} v) + skip_o x_{order-1-o} v   for o = 0, ..., order - 2,
       mix = x_0 v.

   With order 2 and heads of more than one channel, each with one filter (Fu, Dao et al., H3,
   ICLR 2023, arXiv 2212.14052),

       mix[h][j] = sum over i of x_0[h][i] (k[h] (*) (x_1[h][i] v[h][j]) + skip[h] ...).

   Models without W_1 and W_2 also lack that norm and sum.

   Filters of filter_taps taps are the first values of those of full length. Sequences are then
   of any length: partial convolutions of Fu et al., FlashFFTConv (arXiv 2311.05908).

   Vision transformers of this kind (mixer_vit.c) have rows of patches instead of words, and no
   W. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_HYENA_HYENA_H
#define DN_MODEL_HYENA_HYENA_H

#include "danaus/conv.h"
#include "model/affine.h"
#include "model/arch.h"
#include "model/hyena/short_conv.h"
#include "model/hyena/hyena_filter.h"

/* Rows that go through linear layers together on a CPU, up to twice as many if the last ones
   would be few. Rows between two layers then stay in the second cache. */
#define HYENA_ROWS 512

enum { HYENA_IN, HYENA_OUT, HYENA_UP, HYENA_DOWN };

typedef struct hyena_block {
    linear *linear;        /* HYENA_UP and HYENA_DOWN only where models have them */
    affine before, middle; /* of r: before W_i, before W_1 */
    short_conv short_filter;
    hyena_filter filter; /* its channels are [order - 1][filters] */
} hyena_block;

/* Plans and spectra for the sequences of a call, kept for the next call. Packed plans are for
   sequences of at most `length` tokens, others for exactly as many. Spectra are made
   once, if all of them do not take too much memory, else each time that they are needed. */
typedef struct hyena_convs {
    int64_t length;
    int64_t taps; /* of filters */
    int packed;
    int64_t group;          /* filters of a spectrum */
    danaus_conv_plan *plan; /* NULL: there is none yet */
    int kept;
    danaus_spectrum **spectra; /* of all groups, or, where they are not kept, one */
    int64_t count;
    int64_t group_numbers; /* of channels that are convolved in one call */
    size_t most_spectra;   /* bytes of spectra that are kept */
} hyena_convs;

typedef struct hyena {
    int64_t layers, width, inner; /* inner 0: neither W_1 nor W_2 */
    int64_t order, taps;
    int64_t head, filters; /* channels of a head; filters of a convolution */
    int64_t filter_taps;   /* of long filters, at most shape.length */
    int64_t longest;       /* tokens of a sequence at most */
    int64_t rows;          /* of the tables of words; 0: there are none */
    int64_t step;          /* rows that go through linear layers together */
    double epsilon;        /* of the last norm */
    double block_epsilon;  /* of the others */
    danaus_activation activation;
    danaus_dtype dtype; /* of what layers read and make, and of channels */
    hyena_shape shape;
    const float *word, *table; /* table: W */
    affine last;
    hyena_block *blocks;
    hyena_convs convs;
} hyena;

static inline int64_t dn_hyena_planes(const hyena *m)
{
    return (m->order + 1) * m->width;
}

/* ---- blocks (hyena_blocks.c) ---- */

/* Reads hyena_order, short_filter_order, emb_dim, filter_order, num_inner_mlps, filter_taps,
   filter_shift, filter_w_mod and filter_modulate. m has its sizes and the values of missing
   fields. */
danaus_status dn_hyena_config(hyena *m, const json_t *config);

/* What names of tensors have: BLOCKS0.MIXER.in_proj.weight. */
typedef struct hyena_names {
    const char *blocks, *mixer, *mlp;
} hyena_names;

/* Reads all blocks. */
danaus_status dn_hyena_open_blocks(
    hyena *m, danaus_model *model, binder *b, const hyena_names *names);

/* Rows are r. Models that have words make them. */
extern const mixer_kind dn_hyena_mixer;

/* ---- rows through blocks (hyena_rows.c) ---- */

/* Activations of some rows, in one block of device memory. */
typedef struct hyena_rows {
    void *u, *more; /* [rows][width]: what a layer reads; what r is still to get */
    void *p;        /* [taps - 1 + rows][planes] */
    void *inner;    /* [rows][inner] */
    void *past;     /* [layers][taps - 1][planes]: of the rows before */
    void *words;    /* [rows of the table][planes], or NULL: dn_hyena_words() */
} hyena_rows;

/* Cuts room for `rows` rows off (dn_cut()). */
void dn_hyena_rows_lay(const hyena *m, int64_t rows, uintptr_t *at, hyena_rows *r);

/* W_i norm(word) of the first block, which finds its rows there: where words are fewer than half
   of the rows that there is room for. */
danaus_status dn_hyena_words(
    const hyena *m, danaus_device *device, const hyena_rows *rows);

/* Rows `first` on of sequences; planes have `stride` numbers for each channel. */
typedef struct hyena_place {
    nn_sequences sequences;
    int64_t first, rows, stride;
    const int32_t *ids; /* of these rows */
} hyena_place;

/* Adds the last layers of the previous block to r[rows][width], unless this block is the first.
   Then computes the block's channels of these rows: numbers planes[.][0 .. rows - 1]. */
danaus_status dn_hyena_front(
    const hyena *m, danaus_device *device, int64_t number, const hyena_place *at,
    const hyena_rows *rows, float *r, void *planes);

/* Channels that have been mixed go through the rest of the block. */
danaus_status dn_hyena_back(
    const hyena *m, danaus_device *device, int64_t number, const hyena_place *at,
    const hyena_rows *rows, const void *mixed, float *r);

/* h, in the place of r. */
danaus_status dn_hyena_last(
    const hyena *m, danaus_device *device, int64_t count, const hyena_rows *rows,
    float *r);

/* ---- long convolutions of whole sequences (hyena_convs.c) ---- */

/* Taps of filters for sequences of at most so many tokens. */
static inline int64_t dn_hyena_taps(const hyena *m, int64_t length)
{
    return m->filter_taps < length ? m->filter_taps : length;
}

/* The first `taps` values of a block's filters, k[order - 1][filters][taps], in device memory
   that the caller frees. */
danaus_status dn_hyena_make_filters(
    const hyena *m, danaus_device *device, int64_t number, int64_t taps, float **k);

/* Makes what convolves sequences of at most so many tokens ready. */
danaus_status dn_hyena_convs_prepare(hyena *m, danaus_device *device, int64_t longest);
void dn_hyena_convs_free(hyena_convs *c);

/* As `cost` of a mixer. */
danaus_status dn_hyena_convs_cost(
    const void *blocks, danaus_device *device, int64_t length, danaus_model_cost *cost);

/* How many numbers mixing needs behind planes[planes][tokens]; enough for fewer tokens, too. */
int64_t dn_hyena_mix_room(const hyena *m, int64_t tokens);

/* Mixes the prepared channels; *mixed[width][tokens] points into planes or the room. */
danaus_status dn_hyena_mix(
    const hyena *m, danaus_device *device, int64_t number,
    const nn_sequences *sequences, void *planes, void **mixed);

/* ---- one token after the other (hyena_generate.c) ---- */

/* A model in the middle of a text: streams in place of convolutions. */
typedef struct hyena_text {
    const hyena *m;
    danaus_device *device;
    int64_t length, most;    /* tokens at most: of the text, of a step */
    int64_t taps;            /* of the streams' filters */
    int64_t time;            /* tokens so far */
    danaus_stream **streams; /* [layers][order - 1] */
    void *memory;            /* of the device; what follows is in it */
    int32_t *ids;
    float *r;
    void *planes;
    float *products[2]; /* [channels of a stream][tokens], before and after it */
    float *logits;      /* [rows of the table] */
    hyena_rows rows;
} hyena_text;

/* On failure, too, it is to be closed. */
danaus_status dn_hyena_text_open(
    hyena_text *t, const hyena *m, danaus_device *device, int64_t length);
void dn_hyena_text_close(hyena_text *t);

/* Goes on by n >= 1 tokens; logits[rows of the table], in host memory, are the next token's. */
danaus_status dn_hyena_text_go_on(
    hyena_text *t, const int32_t *ids, int64_t n, float *logits);

danaus_status dn_hyena_generate(
    danaus_model *model, danaus_device *device, const int32_t *prompt, int64_t n,
    const danaus_sampling *sampling, danaus_token_fn on_token, void *user);

#endif
