/* Causal models of Hyena's kind from their folder, and whole sequences through them: docs/models.md
   says which fields of config.json and which tensors. */
// SPDX-License-Identifier: Apache-2.0
#include "model/hyena.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "model/words.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MOST_ORDER    8
#define MOST_FEATURES 4095
#define MOST_NAME     256

/* ---- config.json ---- */

static int is_dna(span type) { return dn_span_is(type, "hyenadna"); }

static int hyena_recognizes(const json_t *config, span type)
{
    (void)config;
    return is_dna(type) || dn_span_is(type, "hyena");
}

/* A field that may be left out. */
static danaus_status read_size(
    const json_t *config, const char *field, int64_t most, int64_t usual,
    int64_t *value)
{
    *value = usual;
    return dn_config_size(config, field, most, value);
}

static danaus_status read_filter(hyena_shape *f, const json_t *config, int dna)
{
    int64_t inner = 2;
    double shift = dna ? 0.05 : 0, factor = 1;
    int window = 1;
    TRY(dn_config_size(config, "max_seq_len", MOST_TOKENS, &f->length));
    TRY(dn_config_size(config, "emb_dim", MOST_FEATURES, &f->features));
    TRY(dn_config_size(config, "filter_order", MOST_WIDTH, &f->order));
    TRY(dn_json_integer(config, "num_inner_mlps", &inner));
    TRY(dn_json_number(config, "filter_shift", &shift));
    TRY(dn_json_number(config, "filter_w_mod", &factor));
    TRY(dn_json_flag(config, "filter_modulate", &window));
    if (f->features < 3 || f->features % 2 == 0)
        return dn_fail(
            DANAUS_ERR_FORMAT,
            "\"emb_dim\" is %" PRId64 " and has to be odd, 3 or more", f->features);
    if (inner > HYENA_MOST_LAYERS - 2)
        return dn_fail(
            DANAUS_ERR_FORMAT,
            "\"num_inner_mlps\" is %" PRId64 " and may be at most %d", inner,
            HYENA_MOST_LAYERS - 2);
    f->layers = (int)inner + 2;
    f->shift = (float)shift;
    f->factor = (float)factor;
    f->constant = !window;
    return DANAUS_OK;
}

static danaus_status check_heads(const hyena *m)
{
    if (m->width % m->head)
        return dn_fail(
            DANAUS_ERR_FORMAT,
            "\"d_model\" %" PRId64 " is no multiple of \"head_dim\" %" PRId64, m->width,
            m->head);
    if (m->head > 1 && m->order != 2)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "heads of %" PRId64 " channels need \"hyena_order\" 2, not %" PRId64,
            m->head, m->order);
    return DANAUS_OK;
}

static danaus_status read_config(hyena *m, const json_t *config, int64_t *vocabulary)
{
    span type = { 0 };
    int64_t multiple;
    m->epsilon = 1e-5;
    TRY(dn_json_text(config, "model_type", &type));
    TRY(dn_config_size(config, "d_model", MOST_WIDTH, &m->width));
    TRY(dn_config_size(config, "n_layer", MOST_LAYERS, &m->layers));
    if (json_object_get(config, "d_inner") || is_dna(type))
        TRY(dn_config_size(config, "d_inner", MOST_WIDTH, &m->inner));
    TRY(dn_config_size(config, "vocab_size", INT32_MAX / 2, vocabulary));
    TRY(read_size(config, "pad_vocab_size_multiple", 1 << 20, 8, &multiple));
    TRY(read_size(config, "hyena_order", MOST_ORDER, 2, &m->order));
    TRY(read_size(config, "short_filter_order", DANAUS_SHORT_MOST_TAPS, 3, &m->taps));
    TRY(read_size(config, "head_dim", m->width, 1, &m->head));
    TRY(dn_json_number(config, "layer_norm_epsilon", &m->epsilon));
    TRY(read_filter(&m->shape, config, is_dna(type)));
    TRY(check_heads(m));
    if (m->order < 2)
        return dn_fail(
            DANAUS_ERR_FORMAT, "\"hyena_order\" is 1 and has to be at least 2");
    m->rows = ROUND_UP(*vocabulary, multiple);
    m->filters = m->width / m->head;
    m->shape.channels = (m->order - 1) * m->filters;
    return DANAUS_OK;
}

/* ---- weights ---- */

/* What is between a block's name and those of its layers: checkpoints that were trained with
   checkpoints of activations have one word more. */
typedef struct names {
    const char *mixer, *mlp;
} names;

/* Whether a part of the first block, dense or not, has such a name. */
static int has_part(const binder *b, const char *part)
{
    char begin[MOST_NAME];
    danaus_tensor t;
    int length =
        snprintf(begin, sizeof begin, "%sbackbone.layers.0.%s.", b->prefix, part);
    for (int i = 0; i < danaus_file_count(b->file); i++)
        if (!danaus_file_tensor(b->file, i, &t) &&
            !strncmp(t.name, begin, (size_t)length))
            return 1;
    return 0;
}

static names names_of(const binder *b)
{
    names found = { "mixer", "mlp" };
    if (has_part(b, "mixer.layer"))
        found.mixer = "mixer.layer";
    if (has_part(b, "mlp.layer"))
        found.mlp = "mlp.layer";
    return found;
}

static danaus_status open_linears(
    const hyena *m, binder *b, const char *place, names n, hyena_block *to)
{
    const struct {
        const char *part, *name;
        int64_t rows, cols;
    } layers[] = {
        [INTO] = { n.mixer, "in_proj", dn_hyena_planes(m), m->width },
        [OUT] = { n.mixer, "out_proj", m->width, m->width },
        [UP] = { n.mlp, "fc1", m->inner, m->width },
        [DOWN] = { n.mlp, "fc2", m->width, m->inner },
    };
    char path[MOST_NAME];
    for (int i = 0; i <= (m->inner ? DOWN : OUT); i++) {
        const linear_shape shape = { .rows = layers[i].rows,
                                     .cols = layers[i].cols,
                                     .activation = i == UP ? DANAUS_GELU_TANH
                                                           : DANAUS_ACTIVATION_NONE,
                                     .tokens = HYENA_ROWS,
                                     .dtype = b->dtype };
        snprintf(path, sizeof path, "%s.%s.%s", place, layers[i].part, layers[i].name);
        TRY(dn_linear_open(&to->linear[i], b, path, &shape));
    }
    return DANAUS_OK;
}

static danaus_status open_block(
    const hyena *m, binder *b, int64_t number, names n, hyena_block *to)
{
    char place[64], path[MOST_NAME - 16];
    snprintf(place, sizeof place, "backbone.layers.%" PRId64, number);
    snprintf(path, sizeof path, "%s.norm1", place);
    TRY(dn_affine_bind(&to->before, b, path, m->width, 1e-5));
    snprintf(path, sizeof path, "%s.norm2", place);
    if (m->inner)
        TRY(dn_affine_bind(&to->middle, b, path, m->width, 1e-5));
    TRY(open_linears(m, b, place, n, to));
    snprintf(path, sizeof path, "%s.%s.short_filter", place, n.mixer);
    TRY(dn_few_taps_bind(&to->short_filter, b, path, dn_hyena_planes(m), m->taps));
    snprintf(path, sizeof path, "%s.%s.filter_fn", place, n.mixer);
    return dn_hyena_filter_open(&to->filter, b, path, &m->shape);
}

/* W is a table of its own, whose name has no prefix, or that of words. */
static danaus_status open_logits(hyena *m, binder *b, linear *to)
{
    const int64_t sizes[] = { m->rows, m->width };
    const linear_shape shape = {
        .rows = m->rows, .cols = m->width, .tokens = HYENA_ROWS, .no_bias = 1
    };
    const char *prefix = b->prefix, *name = "backbone.embeddings.word_embeddings";
    danaus_tensor t;
    danaus_status status = DANAUS_OK;
    m->table = m->word;
    b->prefix = "";
    if (dn_binder_find(b, "lm_head.weight", &t)) {
        name = "lm_head";
        status = dn_bind(b, "lm_head.weight", 2, sizes, &m->table);
    } else {
        b->prefix = prefix;
    }
    if (status == DANAUS_OK)
        status = dn_linear_open(to, b, name, &shape);
    b->prefix = prefix;
    return status;
}

static danaus_status bind_all(danaus_model *model, hyena *m, binder *b)
{
    const int64_t sizes[] = { m->rows, m->width };
    names n = names_of(b);
    TRY(dn_bind(b, "backbone.embeddings.word_embeddings.weight", 2, sizes, &m->word));
    for (int64_t i = 0; i < m->layers; i++) {
        m->blocks[i].linear = model->linear + i * model->linears / m->layers;
        TRY(open_block(m, b, i, n, &m->blocks[i]));
        model->packed += dn_hyena_filter_packed(&m->blocks[i].filter);
    }
    TRY(dn_affine_bind(&m->last, b, "backbone.ln_f", m->width, m->epsilon));
    TRY(open_logits(m, b, &model->next));
    return dn_binder_settle(b, (const char *const[]){ "lm_head.", NULL });
}

static danaus_status hyena_bind(danaus_model *model, hyena *m)
{
    static const char *const prefixes[] = { "hyena.", "model.", "" };
    binder b;
    danaus_tensor t;
    TRY(dn_binder_open(&b, model->file, &model->memory, model->dtype));
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        b.prefix = prefixes[i];
        if (dn_binder_find(&b, "backbone.embeddings.word_embeddings.weight", &t))
            break;
    }
    danaus_status status = bind_all(model, m, &b);
    model->others = b.parameters;
    model->prefix = b.prefix;
    dn_binder_close(&b);
    return status;
}

static danaus_status hyena_open(danaus_model *model, const json_t *config)
{
    hyena *m = dn_calloc(1, sizeof *m);
    model->own = m;
    if (!m)
        return dn_fail_memory(sizeof *m, "a model");
    danaus_model_info *info = &model->info;
    m->dtype = model->dtype;
    TRY(read_config(m, config, &info->vocabulary));
    model->configured = 1;
    model->linears = (int)m->layers * (m->inner ? DOWN + 1 : OUT + 1);
    model->linear = dn_calloc((size_t)model->linears, sizeof *model->linear);
    m->blocks = dn_calloc((size_t)m->layers, sizeof *m->blocks);
    if (!model->linear || !m->blocks)
        return dn_fail_memory(
            (size_t)m->layers * sizeof *m->blocks, "a table of layers");
    info->layers = m->layers;
    info->width = info->embedding = m->width;
    info->heads = m->filters;
    info->max_length = m->shape.length;
    if (!model->pooling.folder[0])
        model->pooling.normalize = 0;
    m->convs.group_numbers = (int64_t)1 << 23;
    m->convs.most_spectra = (size_t)1 << 30;
    return hyena_bind(model, m);
}

static void hyena_close(danaus_model *model)
{
    hyena *m = model->own;
    for (int64_t i = 0; m && m->blocks && i < m->layers; i++)
        dn_hyena_filter_close(&m->blocks[i].filter);
    if (m) {
        dn_hyena_convs_free(&m->convs);
        dn_free(m->blocks);
    }
    dn_free(m);
}

/* ---- whole sequences ---- */

/* Activations of a chunk: r and planes of all of it, the rest of some rows. */
typedef struct activations {
    float *r;
    void *planes;
    hyena_rows rows;
} activations;

/* Rows that go through layers together, so that the last ones are no few. */
static int64_t rows_of(int64_t tokens)
{
    return CEIL_DIV(tokens, MAX(tokens / HYENA_ROWS, 1));
}

/* At least the rows of so many tokens, and of fewer: memory for the largest chunk holds others. */
static int64_t most_rows(int64_t tokens) { return MIN(tokens, 2 * HYENA_ROWS - 1); }

static uintptr_t lay(const hyena *m, int64_t tokens, uintptr_t at, activations *a)
{
    int64_t planes = dn_hyena_planes(m) * tokens + dn_hyena_mix_room(m, tokens);
    a->r = dn_cut(&at, tokens * m->width * (int64_t)sizeof *a->r);
    a->planes = dn_cut(&at, planes * dn_size_of(m->dtype));
    dn_hyena_rows_lay(m, most_rows(tokens), &at, &a->rows);
    return at;
}

static int64_t hyena_bytes(const danaus_model *model, int64_t tokens, int64_t longest)
{
    activations a;
    (void)longest;
    return (int64_t)lay(model->own, tokens, 0, &a);
}

/* Rows from `first` on go through the end of a block and the beginning of the next one; before
   the first block come words, behind the last one the last norm. */
static danaus_status run_rows(
    const hyena *m, danaus_device *device, int64_t number, const hyena_place *at,
    const activations *a, const void *mixed)
{
    float *r = a->r + at->first * m->width;
    if (number > 0)
        TRY(dn_hyena_back(
            m, device, number - 1, at, &a->rows, dn_at(mixed, m->dtype, at->first), r));
    else
        TRY(device->backend->nn->lookup(
            device, &(nn_lookup){ .rows = at->rows,
                                  .width = m->width,
                                  .ids = at->ids,
                                  .word = m->word,
                                  .y = r }));
    if (number == m->layers)
        return dn_hyena_last(m, device, at->rows, &a->rows, r);
    return dn_hyena_front(
        m, device, number, at, &a->rows, r, dn_at(a->planes, m->dtype, at->first));
}

static danaus_status hyena_run(
    danaus_model *model, danaus_device *device, const chunk *c, void *memory, void **h)
{
    hyena *m = model->own;
    activations a;
    void *mixed = NULL;
    const int64_t step = rows_of(c->tokens);
    lay(m, c->tokens, (uintptr_t)memory, &a);
    *h = a.r;
    TRY(dn_hyena_convs_prepare(m, device, dn_longest(&c->sequences)));
    TRY(dn_hyena_words(m, device, &a.rows));
    for (int64_t i = 0; i <= m->layers; i++) {
        hyena_place at = { .sequences = c->sequences, .stride = c->tokens };
        if (i > 0)
            TRY(dn_hyena_mix(m, device, i - 1, &c->sequences, a.planes, &mixed));
        for (; at.first < c->tokens; at.first += at.rows) {
            at.rows = MIN(step, c->tokens - at.first);
            at.ids = c->ids + at.first;
            TRY(run_rows(m, device, i, &at, &a, mixed));
        }
        TRY(dn_chunk_report(c, (double)i / (double)(m->layers + 1)));
    }
    return DANAUS_OK;
}

static danaus_status hyena_cost(
    danaus_model *model, danaus_device *device, int64_t length, danaus_model_cost *cost)
{
    return dn_hyena_convs_cost(model->own, device, length, cost);
}

/* Tokens that go through together: their activations stay in the last cache. */
#define CHUNK_TOKENS 1024

static const encoder hyena_encoder = { .tokens = CHUNK_TOKENS,
                                       .bytes = hyena_bytes,
                                       .run = hyena_run,
                                       .cost = hyena_cost,
                                       .wide = 1 };

const arch dn_arch_hyena = {
    .name = "hyena",
    .recognizes = hyena_recognizes,
    .open = hyena_open,
    .close = hyena_close,
    .encoder = &hyena_encoder,
    .generate = dn_hyena_generate,
};
