/* Blocks of models of Hyena's kind: their configuration, their weights, and whole sequences
   through all of them. */
// SPDX-License-Identifier: Apache-2.0
#include "model/hyena/hyena.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"

#include <inttypes.h>

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
    m->filter_taps = m->shape.length;
    TRY(dn_config_size(config, "filter_taps", m->shape.length, &m->filter_taps));
    if (m->order < 2)
        return dn_fail(
            DANAUS_ERR_FORMAT, "\"hyena_order\" is 1 and has to be at least 2");
    m->filters = m->width / m->head;
    m->shape.channels = (m->order - 1) * m->filters;
    return DANAUS_OK;
}

/* ---- weights ---- */

static int layers_of_block(const hyena *m)
{
    return m->inner ? HYENA_DOWN + 1 : HYENA_OUT + 1;
}

static danaus_status open_linears(
    const hyena *m, binder *b, const char *place, const hyena_names *n, hyena_block *to)
{
    const int64_t width = m->width, inner = m->inner;
    const linear_row rows[] = {
        [HYENA_IN] = { n->mixer,
                       "in_proj",
                       { .rows = dn_hyena_planes(m), .cols = width } },
        [HYENA_OUT] = { n->mixer, "out_proj", { .rows = width, .cols = width } },
        [HYENA_UP] = { n->mlp,
                       "fc1",
                       { .rows = inner, .cols = width, .activation = m->activation } },
        [HYENA_DOWN] = { n->mlp, "fc2", { .rows = width, .cols = inner } },
    };
    return dn_linears_open(to->linear, layers_of_block(m), rows, b, place, m->step);
}

static danaus_status open_block(
    const hyena *m, binder *b, const char *place, const hyena_names *n, hyena_block *to)
{
    const tensor_name mixer = dn_name("%s.%s", place, n->mixer);
    to->before.wide = to->middle.wide = 1;
    TRY(dn_affine_bind(
        &to->before, b, dn_name("%s.norm1", place).text, m->width, m->block_epsilon));
    if (m->inner)
        TRY(dn_affine_bind(
            &to->middle, b, dn_name("%s.norm2", place).text, m->width,
            m->block_epsilon));
    TRY(open_linears(m, b, place, n, to));
    TRY(dn_short_conv_bind(
        &to->short_filter, b, dn_name("%s.short_filter", mixer.text).text,
        dn_hyena_planes(m), m->taps));
    return dn_hyena_filter_open(
        &to->filter, b, dn_name("%s.filter_fn", mixer.text).text, &m->shape);
}

danaus_status dn_hyena_open_blocks(
    hyena *m, danaus_model *model, binder *b, const hyena_names *names)
{
    m->last.wide = 1;
    m->convs.group_numbers = (int64_t)1 << 23;
    m->convs.most_spectra = (size_t)1 << 30;
    m->blocks =
        dn_model_blocks(model, m->layers, sizeof *m->blocks, layers_of_block(m));
    if (!m->blocks)
        return DANAUS_ERR_MEMORY;
    for (int64_t i = 0; i < m->layers; i++) {
        hyena_block *block = &m->blocks[i];
        block->linear = model->linear + i * layers_of_block(m);
        TRY(open_block(
            m, b, dn_name("%s%" PRId64, names->blocks, i).text, names, block));
        model->packed += dn_hyena_filter_packed(&block->filter);
    }
    return DANAUS_OK;
}

static void close_blocks(void *blocks)
{
    hyena *m = blocks;
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

static int64_t bytes_of(const void *blocks, int64_t tokens, int64_t longest)
{
    hyena_activations a;
    (void)longest;
    return (int64_t)lay(blocks, tokens, 0, &a);
}

/* r */
static void *find_rows(const void *blocks, const token_chunk *c, void *memory)
{
    hyena_activations a;
    lay(blocks, c->tokens, (uintptr_t)memory, &a);
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

static danaus_status run(
    void *blocks, danaus_device *device, const token_chunk *c, void *memory, void **h)
{
    hyena *m = blocks;
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

const mixer_kind dn_hyena_mixer = { .size = sizeof(hyena),
                                    .close = close_blocks,
                                    .bytes = bytes_of,
                                    .rows = find_rows,
                                    .run = run,
                                    .cost = dn_hyena_convs_cost,
                                    .wide = 1 };
