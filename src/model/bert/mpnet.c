/* MPNet: Song et al., NeurIPS 2020 (arXiv 2004.09297), as Hugging Face's transformers run it. Scores
   of attention have a bias that depends on the head and on how far a key is from the query: all
   layers share a table [buckets][heads], whose buckets grow with the distance, as T5 has them
   (Raffel et al., JMLR 2020, arXiv 1910.10683). */
// SPDX-License-Identifier: Apache-2.0
#include "model/bert/bert.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "device/backend.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define BUCKETS        32  /* half of them for keys behind the query */
#define REACH          128 /* keys farther than this have the last buckets */
#define FIRST_POSITION 2

/* danaus_model.own */
typedef struct mpnet {
    bert encoder;
    int64_t buckets;
} mpnet;

static const word_names words_of_mpnet = {
    (const encoder_prefix[]){ { "mpnet.", "" }, { "", "" } },
    "embeddings.word_embeddings.weight", "embeddings.LayerNorm",
    "embeddings.position_embeddings.weight", NULL
};

static const transformer_names blocks_of_mpnet = {
    "encoder.layer.",
    { "attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o",
      "intermediate.dense", "output.dense" },
    "attention.LayerNorm",
    "output.LayerNorm"
};

static const head_names head_of_mpnet = { "lm_head.dense", "lm_head.layer_norm",
                                          "lm_head.decoder.weight",
                                          "lm_head.decoder.bias", "lm_head.bias" };

static danaus_status configure(danaus_model *model, const json_t *config)
{
    mpnet *m = model->own;
    encoder_config *c = &m->encoder.config;
    TRY(dn_bert_configure_blocks(model, config, NULL));
    m->buckets = BUCKETS;
    TRY(dn_config_size(
        config, "relative_attention_num_buckets", MOST_TOKENS, &m->buckets));
    if (m->buckets < BUCKETS)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "relative_attention_num_buckets is %" PRId64 ", and MPNet uses %d",
            m->buckets, BUCKETS);
    if (c->positions <= FIRST_POSITION)
        return dn_fail(
            DANAUS_ERR_FORMAT,
            "max_position_embeddings %" PRId64 " leaves no position: the first is %d",
            c->positions, FIRST_POSITION);
    c->first = FIRST_POSITION;
    return DANAUS_OK;
}

/* The bucket of a key that is so far behind the query. Up to 7 each distance has its own; then they
   grow by a factor. Single precision decides where, as in the reference. */
static int bucket_of(int distance)
{
    int half = BUCKETS / 2, exact = half / 2;
    int first = distance > 0 ? half : 0, n = abs(distance);
    if (n < exact)
        return first + n;
    float grown = logf((float)n / (float)exact) / logf((float)REACH / (float)exact);
    return first + MIN(exact + (int)(grown * (float)(half - exact)), half - 1);
}

/* table[buckets][heads] to rows [heads][2 REACH + 1]. */
static void spread(int64_t heads, const float *table, float *to)
{
    for (int64_t h = 0; h < heads; h++)
        for (int distance = -REACH; distance <= REACH; distance++)
            *to++ = table[bucket_of(distance) * heads + h];
}

static danaus_status upload_bias(
    binder *b, const danaus_tensor *t, int64_t heads, float *to)
{
    size_t bytes = (size_t)heads * (2 * REACH + 1) * sizeof(float);
    size_t table_bytes = (size_t)heads * BUCKETS * sizeof(float);
    float *rows = dn_alloc(bytes), *table = dn_alloc(table_bytes);
    danaus_status status = rows && table ? DANAUS_OK : dn_fail_memory(bytes, "a bias");
    if (status == DANAUS_OK) {
        dn_convert(t->dtype, t->data, DANAUS_F32, table, heads * BUCKETS);
        spread(heads, table, rows);
        status = danaus_upload(b->device, to, rows, bytes);
    }
    dn_free(rows);
    dn_free(table);
    return status;
}

static danaus_status bind_bias(danaus_model *model, binder *b)
{
    const mpnet *m = model->own;
    transformer *t = model->blocks;
    const int64_t shape[] = { m->buckets, t->heads };
    int64_t bytes = t->heads * (2 * REACH + 1) * (int64_t)sizeof(float);
    danaus_tensor found;
    void *memory;
    t->reach = REACH;
    if (!dn_binder_take(b, "encoder.relative_attention_bias.weight", 2, shape, &found))
        return DANAUS_OK;
    b->parameters += m->buckets * t->heads;
    TRY(dn_memory_add(b->copies, bytes, &memory));
    t->bias = memory;
    return b->copies->outline ? DANAUS_OK : upload_bias(b, &found, t->heads, memory);
}

/* The head has GELU, whatever blocks have. */
static danaus_status bind(danaus_model *model, const json_t *config, binder *b)
{
    const char *heads = dn_words_prefix(b, &words_of_mpnet);
    (void)config;
    TRY(dn_bert_bind_blocks(model, b, &words_of_mpnet, &blocks_of_mpnet));
    TRY(bind_bias(model, b));
    return dn_bert_open_head(
        model, b, heads, &head_of_mpnet, &(head_form){ .activation = DANAUS_GELU });
}

const arch dn_arch_mpnet = {
    .name = "mpnet",
    .types = { { .name = "mpnet" } },
    .mixer = &dn_transformer_mixer,
    .size = sizeof(mpnet),
    .configure = configure,
    .bind = bind,
    .others = (const char *const[]){ "pooler.", "embeddings.position_ids", NULL },
    .encoder = &dn_bert_encoder,
    .compress = dn_bert_compress,
};
