/* Blocks of models of Hyena's kind: their configuration, their weights, and whole sequences
   through all of them. */
// SPDX-License-Identifier: Apache-2.0
#include "model/hyena/hyena.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "model/words.h"

#include <inttypes.h>
#include <stdio.h>

#define MOST_ORDER    8
#define MOST_FEATURES 4095

/* ---- config.json ---- */

static danaus_status read_filter(hyena_shape *f, const json_t *config)
{
    int64_t inner = 2;
    double shift = f->shift, factor = 1;
    int window = 1;
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

danaus_status dn_hyena_config(hyena *m, const json_t *config)
{
    TRY(dn_config_size(config, "hyena_order", MOST_ORDER, &m->order));
    TRY(dn_config_size(config, "short_filter_order", DANAUS_SHORT_MOST_TAPS, &m->taps));
    TRY(read_filter(&m->shape, config));
    if (m->order < 2)
        return dn_fail(
            DANAUS_ERR_FORMAT, "\"hyena_order\" is 1 and has to be at least 2");
    m->filters = m->width / m->head;
    m->shape.channels = (m->order - 1) * m->filters;
    return DANAUS_OK;
}

/* ---- weights ---- */

static int layers_of_block(const hyena *m) { return m->inner ? DOWN + 1 : OUT + 1; }

danaus_status dn_hyena_make(hyena *m, danaus_model *model)
{
    m->convs.group_numbers = (int64_t)1 << 23;
    m->convs.most_spectra = (size_t)1 << 30;
    model->linears = (int)m->layers * layers_of_block(m);
    model->linear = dn_calloc((size_t)model->linears, sizeof *model->linear);
    m->blocks = dn_calloc((size_t)m->layers, sizeof *m->blocks);
    if (!model->linear || !m->blocks)
        return dn_fail_memory(
            (size_t)m->layers * sizeof *m->blocks, "a table of layers");
    return DANAUS_OK;
}

static danaus_status open_linears(
    const hyena *m, binder *b, const char *place, const hyena_names *n, hyena_block *to)
{
    const struct {
        const char *part, *name;
        int64_t rows, cols;
    } layers[] = {
        [INTO] = { n->mixer, "in_proj", dn_hyena_planes(m), m->width },
        [OUT] = { n->mixer, "out_proj", m->width, m->width },
        [UP] = { n->mlp, "fc1", m->inner, m->width },
        [DOWN] = { n->mlp, "fc2", m->width, m->inner },
    };
    char path[MOST_NAME];
    for (int i = 0; i < layers_of_block(m); i++) {
        const linear_shape shape = { .rows = layers[i].rows,
                                     .cols = layers[i].cols,
                                     .activation = i == UP ? m->activation
                                                           : DANAUS_ACTIVATION_NONE,
                                     .tokens = m->step,
                                     .dtype = b->dtype };
        snprintf(path, sizeof path, "%s.%s.%s", place, layers[i].part, layers[i].name);
        TRY(dn_linear_open(&to->linear[i], b, path, &shape));
    }
    return DANAUS_OK;
}

static danaus_status open_block(
    const hyena *m, binder *b, const char *place, const hyena_names *n, hyena_block *to)
{
    char path[MOST_NAME - 16];
    snprintf(path, sizeof path, "%s.norm1", place);
    TRY(dn_affine_bind(&to->before, b, path, m->width, m->block_epsilon));
    snprintf(path, sizeof path, "%s.norm2", place);
    if (m->inner)
        TRY(dn_affine_bind(&to->middle, b, path, m->width, m->block_epsilon));
    TRY(open_linears(m, b, place, n, to));
    snprintf(path, sizeof path, "%s.%s.short_filter", place, n->mixer);
    TRY(dn_short_conv_bind(&to->short_filter, b, path, dn_hyena_planes(m), m->taps));
    snprintf(path, sizeof path, "%s.%s.filter_fn", place, n->mixer);
    return dn_hyena_filter_open(&to->filter, b, path, &m->shape);
}

danaus_status dn_hyena_open_blocks(
    hyena *m, danaus_model *model, binder *b, const hyena_names *names)
{
    char place[64];
    for (int64_t i = 0; i < m->layers; i++) {
        hyena_block *block = &m->blocks[i];
        snprintf(place, sizeof place, "%s%" PRId64, names->blocks, i);
        block->linear = model->linear + i * layers_of_block(m);
        TRY(open_block(m, b, place, names, block));
        model->packed += dn_hyena_filter_packed(&block->filter);
    }
    return DANAUS_OK;
}

void dn_hyena_close(hyena *m)
{
    for (int64_t i = 0; m->blocks && i < m->layers; i++)
        dn_hyena_filter_close(&m->blocks[i].filter);
    dn_hyena_convs_free(&m->convs);
    dn_free(m->blocks);
}

/* ---- whole sequences ---- */

/* Activations of a chunk: r and planes of all of it, the rest of some rows. */
typedef struct hyena_activations {
    float *r;
    void *planes;
    hyena_rows rows;
} hyena_activations;

/* Rows that go through layers together, so that the last ones are no few. */
static int64_t rows_of(const hyena *m, int64_t tokens)
{
    return CEIL_DIV(tokens, MAX(tokens / m->step, 1));
}

/* At least the rows of so many tokens, and of fewer, so that memory for the largest chunk is
   enough for any. */
static int64_t most_rows(const hyena *m, int64_t tokens)
{
    return MIN(tokens, 2 * m->step - 1);
}

static uintptr_t lay(const hyena *m, int64_t tokens, uintptr_t at, hyena_activations *a)
{
    int64_t planes = dn_hyena_planes(m) * tokens + dn_hyena_mix_room(m, tokens);
    a->r = dn_cut(&at, tokens * m->width * (int64_t)sizeof *a->r);
    a->planes = dn_cut(&at, planes * dn_size_of(m->dtype));
    dn_hyena_rows_lay(m, most_rows(m, tokens), &at, &a->rows);
    return at;
}

int64_t dn_hyena_bytes(const hyena *m, int64_t tokens)
{
    hyena_activations a;
    return (int64_t)lay(m, tokens, 0, &a);
}

float *dn_hyena_r(const hyena *m, int64_t tokens, void *memory)
{
    hyena_activations a;
    lay(m, tokens, (uintptr_t)memory, &a);
    return a.r;
}

/* Rows from `first` on go through the end of a block and the beginning of the next one; before
   the first block come words, behind the last one the last norm. */
static danaus_status run_rows(
    const hyena *m, danaus_device *device, int64_t number, const hyena_place *at,
    const hyena_activations *a, const void *mixed)
{
    float *r = a->r + at->first * m->width;
    if (number > 0)
        TRY(dn_hyena_back(
            m, device, number - 1, at, &a->rows, dn_at(mixed, m->dtype, at->first), r));
    else if (m->word)
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

danaus_status dn_hyena_run(
    hyena *m, danaus_device *device, const token_chunk *c, void *memory, void **h)
{
    hyena_activations a;
    void *mixed = NULL;
    const int64_t step = rows_of(m, c->tokens);
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
            at.ids = m->word ? c->ids + at.first : NULL;
            TRY(run_rows(m, device, i, &at, &a, mixed));
        }
        TRY(dn_chunk_report(c, (double)i / (double)(m->layers + 1)));
    }
    return DANAUS_OK;
}
