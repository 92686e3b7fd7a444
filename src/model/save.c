/* danaus_model_save(): writes a model's folder with its present layers. */
// SPDX-License-Identifier: Apache-2.0
#include "model/arch.h"

#include "base/dtype.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "base/replace.h"
#include "base/status.h"
#include "io/int8.h"
#include "model/folder.h"
#include "model/interpolated.h"
#include "model/linear_view.h"
#include "model/structure.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Tensors of a layer of chains, with scales of 8-bit ones, its bias and placeholder. */
#define LAYER_TENSORS (2 * DANAUS_MAX_FACTORS + 2)

/* Tensors to be written, with what had to be made for them. */
typedef struct writing {
    const danaus_model *model;
    danaus_tensor *tensors;
    int count;
    void **owned; /* two for each tensor: name, numbers */
} writing;

static danaus_status add(
    writing *w, const char *layer, const char *part, int ndim, const int64_t *shape,
    const double *numbers)
{
    danaus_tensor *t = &w->tensors[w->count];
    void **owned = w->owned + 2 * w->count;
    int64_t count = 1;
    *t = (danaus_tensor){ .dtype = DANAUS_F32, .ndim = ndim };
    for (int i = 0; i < ndim; i++)
        count *= t->shape[i] = shape[i];
    owned[0] = dn_copy_text(dn_name("%s%s.%s", w->model->prefix, layer, part).text);
    owned[1] = dn_calloc((size_t)MAX(count, 1), sizeof(float));
    if (!owned[0] || !owned[1])
        return dn_fail_memory((size_t)count * sizeof(float), "a layer to write");
    dn_convert(DANAUS_F64, numbers, DANAUS_F32, owned[1], count);
    t->name = owned[0];
    t->data = owned[1];
    w->count++;
    return DANAUS_OK;
}

static danaus_status add_dense(writing *w, const linear *layer)
{
    const fit *f = &layer->fitted;
    TRY(add(
        w, layer->name, "weight", 2, (const int64_t[]){ f->rows, f->cols }, f->basis));
    return add(w, layer->name, "bias", 1, &f->rows, f->bias);
}

static danaus_status add_interpolated(writing *w, const linear *layer)
{
    const fit *f = &layer->fitted;
    int64_t r = f->rank, others = f->rows - r;
    double *at = dn_calloc((size_t)(f->rows * (r + 3)), sizeof *at);
    if (!at)
        return dn_fail_memory((size_t)(f->rows * r) * sizeof *at, "a layer to write");
    const interpolated_rest parts = { at + 3 * f->rows, at, at + f->rows,
                                      at + 2 * f->rows };
    dn_interpolated_rest(f, &parts);
    danaus_status status =
        add(w, layer->name, "basis.weights.0", 4, (const int64_t[]){ 1, r, f->cols, 1 },
            f->basis);
    if (status == DANAUS_OK)
        status = add(w, layer->name, "basis.bias", 1, &r, parts.kept_bias);
    if (status == DANAUS_OK)
        status =
            add(w, layer->name, "others.weights.0", 4,
                (const int64_t[]){ 1, others, r, 1 }, parts.rows);
    if (status == DANAUS_OK)
        status = add(w, layer->name, "others.bias", 1, &others, parts.bias);
    if (status == DANAUS_OK)
        status = add(w, layer->name, "place", 1, &f->rows, parts.place);
    dn_free(at);
    return status;
}

/* LAYER.PART.weights.0, .1, ... */
static danaus_status add_factors(
    writing *w, const linear *layer, const char *part, const danaus_chain *chain)
{
    for (int i = 0; i < danaus_chain_count(chain); i++) {
        danaus_pattern p = danaus_chain_pattern(chain, i);
        TRY(
            add(w, layer->name, dn_name("%sweights.%d", part, i).text, 4,
                (const int64_t[]){ p.a, p.b, p.c, p.d },
                danaus_chain_weights_const(chain, i)));
    }
    return DANAUS_OK;
}

/* A chain, or a sum of two, whose first has the bias. */
static danaus_status add_chains(writing *w, const linear *layer)
{
    const fit *f = &layer->fitted;
    int is_sum = f->chain[1] != NULL;
    TRY(add_factors(w, layer, is_sum ? "first." : "", f->chain[0]));
    if (is_sum)
        TRY(add_factors(w, layer, "second.", f->chain[1]));
    return add(w, layer->name, is_sum ? "first.bias" : "bias", 1, &f->rows, f->bias);
}

static danaus_status add_fitted(writing *w, const linear *layer)
{
    if (layer->fitted.chain[0])
        return add_chains(w, layer);
    return layer->fitted.dense ? add_dense(w, layer) : add_interpolated(w, layer);
}

/* An empty tensor, for readers that look for a matrix. */
static danaus_status add_placeholder(writing *w, const linear *layer)
{
    static const double none[1];
    static const int64_t shape[] = { 0 };
    return add(w, layer->name, "weight", 1, shape, none);
}

/* True for layers whose placeholder the file has already. */
static int is_marked(const danaus_model *model, const linear *layer)
{
    danaus_tensor t;
    return !layer->fitted.basis && !dn_model_tensor(model, layer, "weight", &t) &&
           dn_is_placeholder(&t);
}

/* True if a tensor of the file belongs to a layer that was fitted. */
static int is_replaced(const danaus_model *model, const char *name)
{
    size_t prefix = strlen(model->prefix);
    if (strncmp(name, model->prefix, prefix))
        return 0;
    for (int i = 0; i < model->linears; i++) {
        const linear *layer = &model->linear[i];
        size_t length = strlen(layer->name);
        if (layer->fitted.basis && !strncmp(name + prefix, layer->name, length) &&
            name[prefix + length] == '.')
            return 1;
    }
    return 0;
}

static danaus_status list_tensors(writing *w)
{
    const danaus_model *model = w->model;
    for (int i = 0; i < danaus_file_count(model->file); i++) {
        danaus_tensor t;
        TRY(danaus_file_tensor(model->file, i, &t));
        if (!is_replaced(model, t.name))
            w->tensors[w->count++] = t;
    }
    for (int i = 0; i < model->linears; i++) {
        const linear *layer = &model->linear[i];
        if (layer->fitted.basis)
            TRY(add_fitted(w, layer));
        if (dn_structure_has(layer) && !is_marked(model, layer))
            TRY(add_placeholder(w, layer));
    }
    return DANAUS_OK;
}

/* ---- weights of 8 bits ---- */

/* The layer whose matrix, or factor of a chain, the tensor is, if that has 8 bits. */
static const linear *int8_layer_of(const danaus_model *model, const danaus_tensor *t)
{
    size_t prefix = strlen(model->prefix);
    if (t->ndim < 2 || t->dtype == DANAUS_I8 || strncmp(t->name, model->prefix, prefix))
        return NULL;
    for (int i = 0; i < model->linears; i++) {
        const linear *layer = &model->linear[i];
        const char *name = t->name + prefix;
        size_t length = strlen(layer->name);
        if (layer->shape.int8 && !strncmp(name, layer->name, length) &&
            name[length] == '.' && strstr(name + length, ".weight") &&
            !strstr(name + length, "_scale"))
            return layer;
    }
    return NULL;
}

/* Makes a matrix the only factor of a chain: other readers find a placeholder in its place. */
static danaus_status make_factor(writing *w, danaus_tensor *t, const linear *layer)
{
    void **name = &w->owned[2 * (t - w->tensors)];
    const tensor_name path = dn_name("%s%s.weights.0", w->model->prefix, layer->name);
    danaus_pattern p = *layer->patterns;
    if (strstr(t->name, ".weights."))
        return DANAUS_OK;
    dn_free(*name);
    t->name = *name = dn_copy_text(path.text);
    if (!*name)
        return dn_fail_memory(strlen(path.text), "a name");
    t->ndim = 4;
    memcpy(t->shape, (const int64_t[]){ p.a, p.b, p.c, p.d }, 4 * sizeof *t->shape);
    return DANAUS_OK;
}

/* Puts integers in the place of a factor's numbers, and adds the scales, which numbers along c
   share. */
static danaus_status narrow(writing *w, int number, const linear *layer)
{
    danaus_tensor *t = &w->tensors[number];
    void **owned = w->owned + 2 * w->count;
    TRY(make_factor(w, t, layer));
    danaus_tensor scale = *t;
    scale.dtype = DANAUS_F32;
    scale.shape[2] = 1;
    size_t count = (size_t)dn_int8_count(t);
    float *scales = dn_calloc((size_t)dn_int8_count(&scale), sizeof *scales);
    int8_t *integers = dn_alloc(count);
    owned[0] = dn_copy_text(dn_name("%s_scale", t->name).text);
    owned[1] = scales;
    scale.name = owned[0];
    scale.data = scales;
    if (!integers || !scales || !owned[0]) {
        dn_free(integers);
        return dn_fail_memory(count, "weights of 8 bits");
    }
    dn_int8_narrow(t, &scale, integers);
    dn_free(w->owned[2 * number + 1]);
    w->owned[2 * number + 1] = integers;
    t->dtype = DANAUS_I8;
    t->data = integers;
    w->tensors[w->count++] = scale;
    return DANAUS_OK;
}

static danaus_status narrow_tensors(writing *w)
{
    for (int i = 0, count = w->count; i < count; i++) {
        const linear *layer = int8_layer_of(w->model, &w->tensors[i]);
        if (layer)
            TRY(narrow(w, i, layer));
    }
    return DANAUS_OK;
}

static danaus_status write_weights(const danaus_model *model, const char *path)
{
    size_t most =
        (size_t)danaus_file_count(model->file) + (size_t)model->linears * LAYER_TENSORS;
    /* Other readers ask for the format. */
    const char *const mark[] = { "format", "pt", FOLDER_MARK, danaus_version() };
    writing w = { .model = model };
    w.tensors = dn_calloc(most, sizeof *w.tensors);
    w.owned = dn_calloc(2 * most, sizeof *w.owned);
    danaus_status status =
        w.tensors && w.owned
            ? list_tensors(&w)
            : dn_fail_memory(most * sizeof *w.tensors, "a table of tensors");
    if (status == DANAUS_OK)
        status = narrow_tensors(&w);
    if (status == DANAUS_OK)
        status = danaus_file_write_safetensors(path, w.tensors, w.count, mark, 2);
    for (size_t i = 0; w.owned && i < 2 * most; i++)
        dn_free(w.owned[i]);
    dn_free(w.owned);
    dn_free(w.tensors);
    return status;
}

/* ---- the other files ---- */

/* All that a folder may have beside its weights; the configuration comes last. */
static const char *const names[] = { "modules.json",
                                     "sentence_bert_config.json",
                                     "config_sentence_transformers.json",
                                     "preprocessor_config.json",
                                     "tokenizer.json",
                                     "tokenizer_config.json",
                                     "special_tokens_map.json",
                                     "vocab.txt",
                                     "config.json" };
enum { NAMES = sizeof names / sizeof *names };

/* A link may lead to somebody else's file. */
static danaus_status refuse_link(const char *path, const char *name)
{
    char there[PATH_MAX];
    struct stat s;
    TRY(dn_config_path(path, name, there, sizeof there));
    if (lstat(there, &s) || !S_ISLNK(s.st_mode))
        return DANAUS_OK;
    return dn_fail(
        DANAUS_ERR_ARGUMENT,
        "%.200s is a link: a model is not written into a folder that has links", there);
}

/* A file of another model that this one lacks would count as its own. */
static danaus_status check_older(const danaus_model *model, const char *path)
{
    char here[PATH_MAX], there[PATH_MAX];
    TRY(refuse_link(path, "model.safetensors"));
    if (*model->pooling.folder)
        TRY(refuse_link(path, model->pooling.folder));
    for (int i = 0; i < NAMES; i++) {
        TRY(dn_config_path(model->path, names[i], here, sizeof here));
        TRY(dn_config_path(path, names[i], there, sizeof there));
        TRY(refuse_link(path, names[i]));
        if (access(here, F_OK) && !access(there, F_OK))
            return dn_fail(
                DANAUS_ERR_ARGUMENT,
                "%.200s has a %s, which this model has not: it is another one's folder",
                path, names[i]);
    }
    return DANAUS_OK;
}

static danaus_status copy_file(const char *from, const char *to, const char *name)
{
    char source[PATH_MAX], target[PATH_MAX];
    map m;
    TRY(dn_config_path(from, name, source, sizeof source));
    TRY(dn_config_path(to, name, target, sizeof target));
    if (access(source, F_OK))
        return DANAUS_OK;
    TRY(dn_map_open(source, &m));
    danaus_status status = dn_replace_file(target, &(file_part){ m.data, m.size }, 1);
    dn_map_close(&m);
    return status;
}

static danaus_status make_folder(const char *path)
{
    if (!mkdir(path, 0777) || errno == EEXIST)
        return DANAUS_OK;
    return dn_fail(
        DANAUS_ERR_IO, "the folder %.200s cannot be made: %s", path, strerror(errno));
}

static danaus_status copy_pooling(const danaus_model *model, const char *path)
{
    char folder[PATH_MAX], name[PATH_MAX];
    if (!*model->pooling.folder)
        return DANAUS_OK;
    TRY(dn_config_path(path, model->pooling.folder, folder, sizeof folder));
    TRY(make_folder(folder));
    TRY(dn_config_path(model->pooling.folder, "config.json", name, sizeof name));
    return copy_file(model->path, path, name);
}

danaus_status danaus_model_check_folder(const danaus_model *model, const char *path)
{
    if (!model || !path)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a model and a folder are needed");
    struct stat here, there;
    if (!stat(model->path, &here) && !stat(path, &there) &&
        here.st_ino == there.st_ino && here.st_dev == there.st_dev)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "%.200s is the folder that the model came from", path);
    TRY(dn_folder_check(path));
    return check_older(model, path);
}

danaus_status danaus_model_save(const danaus_model *model, const char *path)
{
    char weights[PATH_MAX];
    TRY(danaus_model_check_folder(model, path));
    int is_new = access(path, F_OK) != 0;
    TRY(make_folder(path));
    TRY(dn_config_path(path, "model.safetensors", weights, sizeof weights));
    danaus_status status = write_weights(model, weights);
    if (status != DANAUS_OK && is_new)
        rmdir(path);
    TRY(status);
    TRY(copy_pooling(model, path));
    for (int i = 0; i < NAMES - 1; i++)
        TRY(copy_file(model->path, path, names[i]));
    return dn_structure_count(model) ? dn_structure_write(model, path)
                                     : copy_file(model->path, path, names[NAMES - 1]);
}
