/* Repeated calls. A launch costs the processor about 3 us, a call of cuBLAS 7 us, and a graph
   of all the launches of a call 1 us. A call that was made often enough with the same arguments
   is captured in a graph, on a stream of the device's own, and later calls launch the graph.
   Capturing costs as much as 30 launches. Calls with other operands share a graph too (a form),
   if they consist only of our own launches. The arguments of these are set before: 0.2 to
   0.4 us for each, and 0.5 us more when the graph is launched. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda.h"

#include "base/mem.h"
#include "base/status.h"

#include <string.h>

#define SETS   64 /* of places, by what the key's hash leaves */
#define PLACES 8  /* of a set */
#define FORMS  32
#define OFTEN  8 /* calls of a form */

/* ---- keys ---- */

static uint64_t hash_of(uint64_t hash, const unsigned char *data, size_t bytes)
{
    uint64_t word;
    for (size_t at = 0; at < bytes; at += sizeof word) {
        word = 0;
        memcpy(&word, data + at, bytes - at < sizeof word ? bytes - at : sizeof word);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return hash;
}

static void copy_key(gpu_key *to, const gpu_key *key, size_t bytes)
{
    to->bytes = bytes;
    memcpy(to->data, key->data, bytes);
}

static int same_key(const gpu_key *known, const gpu_key *key, size_t bytes)
{
    return known->bytes == bytes && !memcmp(known->data, key->data, bytes);
}

/* ---- places ---- */

/* A call with this key, whatever its scratch; NULL: none. */
static const cuda_replay *find_key(
    const cuda_replay *set, const gpu_key *key, uint64_t hash)
{
    for (const cuda_replay *r = set; r < set + PLACES; r++)
        if (r->calls && r->hash == hash && same_key(&r->key, key, key->bytes))
            return r;
    return NULL;
}

/* The place of a call with this scratch, or else the one of its set that was used longest
   ago, empty. */
static cuda_replay *find_replay(
    cuda_device *d, cuda_replay *set, const gpu_key *key, uint64_t hash)
{
    cuda_replay *oldest = set;
    for (cuda_replay *r = set; r < set + PLACES; r++) {
        if (r->calls && r->hash == hash && r->scratch == d->gpu.scratch &&
            same_key(&r->key, key, key->bytes))
            return r;
        oldest = r->used < oldest->used ? r : oldest;
    }
    if (oldest->graph)
        d->driver->GraphExecDestroy(oldest->graph);
    oldest->graph = NULL;
    oldest->calls = 0;
    oldest->hash = hash;
    oldest->scratch = d->gpu.scratch;
    copy_key(&oldest->key, key, key->bytes);
    return oldest;
}

static void forget_form(cuda_device *d, cuda_form *f)
{
    if (f->made)
        d->driver->GraphExecDestroy(f->made);
    if (f->graph)
        d->driver->GraphDestroy(f->graph);
    f->made = NULL;
    f->graph = NULL;
}

/* The same of forms. */
static cuda_form *find_form(cuda_device *d, const gpu_key *key, uint64_t hash)
{
    cuda_form *oldest = d->forms;
    for (cuda_form *f = d->forms; f < d->forms + FORMS; f++) {
        if (f->calls && f->hash == hash && same_key(&f->key, key, key->form))
            return f;
        oldest = f->used < oldest->used ? f : oldest;
    }
    forget_form(d, oldest);
    oldest->calls = 0;
    oldest->hash = hash;
    copy_key(&oldest->key, key, key->form);
    return oldest;
}

void dn_cuda_forget_replays(cuda_device *d)
{
    for (int i = 0; d->replays && i < SETS * PLACES; i++)
        if (d->replays[i].graph)
            d->driver->GraphExecDestroy(d->replays[i].graph);
    for (int i = 0; d->forms && i < FORMS; i++)
        forget_form(d, &d->forms[i]);
    if (d->capture)
        d->driver->StreamDestroy(d->capture);
    if (d->branch)
        d->driver->StreamDestroy(d->branch);
    if (d->parting)
        d->driver->EventDestroy(d->parting);
}

/* ---- capturing ---- */

typedef danaus_status (*enqueue)(gpu_device *d, void *arg);

/* What goes wrong here goes wrong, and is told, when the call is made without a graph. The
   graph itself is destroyed unless it is asked for. */
static cu_graph_exec capture(cuda_device *d, enqueue run, void *arg, cu_graph *kept)
{
    cu_graph graph = NULL;
    cu_graph_exec made = NULL;
    cu_stream stream = d->stream;
    if (!d->capture && d->driver->StreamCreate(&d->capture, CU_NON_BLOCKING)) {
        d->capture = NULL;
        return NULL;
    }
    if (d->driver->BeginCapture(d->capture, CAPTURE_RELAXED))
        return NULL;
    d->stream = d->capture;
    danaus_status status = run(&d->gpu, arg);
    d->stream = stream;
    int failed = d->driver->EndCapture(d->capture, &graph) || status != DANAUS_OK;
    if (!failed && d->driver->GraphInstantiate(&made, graph, 0))
        made = NULL;
    if (graph && made && kept)
        *kept = graph;
    else if (graph)
        d->driver->GraphDestroy(graph);
    return made;
}

/* ---- branches ---- */

/* 0: it cannot be had, and there is one branch. */
static int open_branch(cuda_device *d)
{
    int mode = dn_cuda_set_capture_mode(d->driver, CAPTURE_RELAXED);
    if (!d->parting && d->driver->EventCreate(&d->parting, CU_WITHOUT_TIMING))
        d->parting = NULL;
    if (!d->branch && d->driver->StreamCreate(&d->branch, CU_NON_BLOCKING))
        d->branch = NULL;
    dn_cuda_set_capture_mode(d->driver, mode);
    return d->parting && d->branch;
}

danaus_status dn_cuda_part(gpu_device *dev, int is_long, int *parted)
{
    cuda_device *d = (cuda_device *)dev;
    int worth = is_long;
    *parted = 0;
    if (!is_long && !d->patched)
        CUDA_TRY(d->driver, StreamIsCapturing(d->stream, &worth));
    if (!worth || !open_branch(d))
        return DANAUS_OK;
    CUDA_TRY(d->driver, EventRecord(d->parting, d->stream));
    CUDA_TRY(d->driver, StreamWaitEvent(d->branch, d->parting, 0));
    *parted = 1;
    return DANAUS_OK;
}

void dn_cuda_turn(gpu_device *dev)
{
    cuda_device *d = (cuda_device *)dev;
    cu_stream stream = d->stream;
    d->stream = d->branch;
    d->branch = stream;
}

danaus_status dn_cuda_meet(gpu_device *dev)
{
    cuda_device *d = (cuda_device *)dev;
    dn_cuda_turn(dev);
    CUDA_TRY(d->driver, EventRecord(d->parting, d->branch));
    CUDA_TRY(d->driver, StreamWaitEvent(d->stream, d->parting, 0));
    return DANAUS_OK;
}

/* ---- forms ---- */

void dn_cuda_record(cuda_device *d, cu_function function, const gpu_launch *launch)
{
    cuda_form *f = d->recorded;
    const cu_graph_node *latest = NULL;
    int capturing, n = d->launches;
    uint64_t id;
    size_t count = 0;
    cu_graph graph;
    if (n < 0 || n == MOST_NODES ||
        d->driver->CaptureInfo(d->stream, &capturing, &id, &graph, &latest, &count) ||
        count != 1) {
        d->launches = -1;
        return;
    }
    f->launch[n].node = *latest;
    f->launch[n].function = function;
    f->launch[n].cluster = launch->cluster;
    d->launches++;
}

/* Launches that are not ours leave nodes in the graph that nobody recorded. */
static void record_form(cuda_device *d, cuda_form *f, enqueue run, void *arg)
{
    size_t nodes = 0;
    d->recorded = f;
    d->launches = 0;
    f->made = capture(d, run, arg, &f->graph);
    d->recorded = NULL;
    f->count = d->launches;
    if (f->made && (f->count < 0 || d->driver->GraphNodes(f->graph, NULL, &nodes) ||
                    nodes != (size_t)f->count))
        forget_form(d, f);
}

void dn_cuda_patch(
    cuda_device *d, cu_function function, const gpu_launch *l, void **arguments)
{
    const cuda_form *f = d->patched;
    int n = d->launches;
    cu_kernel_node node = {
        .function = function,
        .grid = { (unsigned)l->blocks[0], (unsigned)l->blocks[1],
                  (unsigned)l->blocks[2] },
        .block = { (unsigned)l->threads, 1, 1 },
        .shared = (unsigned)l->shared,
        .arguments = arguments,
    };
    if (n < 0 || n == f->count || f->launch[n].function != function ||
        f->launch[n].cluster != l->cluster ||
        d->driver->GraphSetKernel(f->made, f->launch[n].node, &node))
        d->launches = -1;
    else
        d->launches++;
}

/* *whole: all launches of the form have been given these arguments. */
static danaus_status patch_form(
    cuda_device *d, cuda_form *f, enqueue run, void *arg, int *whole)
{
    d->patched = f;
    d->launches = 0;
    danaus_status status = run(&d->gpu, arg);
    d->patched = NULL;
    *whole = d->launches == f->count;
    return status;
}

static danaus_status run_form(
    cuda_device *d, const gpu_key *key, uint64_t hash, enqueue run, void *arg)
{
    int whole = 0;
    if (!d->forms && d->driver->GraphSetKernel)
        d->forms = dn_calloc(FORMS, sizeof *d->forms);
    if (!d->forms)
        return run(&d->gpu, arg);
    cuda_form *f = find_form(d, key, hash);
    f->used = d->replayed;
    if (!f->made && ++f->calls == OFTEN)
        record_form(d, f, run, arg);
    if (f->made)
        TRY(patch_form(d, f, run, arg, &whole));
    if (!whole)
        return run(&d->gpu, arg);
    CUDA_TRY(d->driver, GraphLaunch(f->made, d->stream));
    return DANAUS_OK;
}

static danaus_status run_or_launch(
    cuda_device *d, const gpu_key *key, uint64_t form, cuda_replay *r,
    const gpu_job *job)
{
    r->used = ++d->replayed;
    if (!r->graph && ++r->calls == job->often)
        r->graph = capture(d, job->run, job->arg, NULL);
    if (!r->graph)
        return run_form(d, key, form, job->run, job->arg);
    CUDA_TRY(d->driver, GraphLaunch(r->graph, d->stream));
    return DANAUS_OK;
}

/* Scratch is there before a graph is launched, as much as the call needs, which is known
   from earlier calls: to plan gradients takes longer than to launch them. */
static danaus_status replay(cuda_device *d, const gpu_key *key, const gpu_job *job)
{
    uint64_t form = hash_of(0, key->data, key->form);
    uint64_t hash = hash_of(form, key->data + key->form, key->bytes - key->form);
    cuda_replay *set = d->replays + hash % SETS * PLACES;
    const cuda_replay *known = find_key(set, key, hash);
    gpu_need need = known ? known->need : job->need(&d->gpu, job->arg);
    TRY(dn_cuda_take_scratch(d, need, 0));
    cuda_replay *r = find_replay(d, set, key, hash);
    r->need = need;
    danaus_status status = run_or_launch(d, key, form, r, job);
    dn_cuda_give_scratch(d);
    return status;
}

static danaus_status run_once(cuda_device *d, const gpu_job *job, int capturing)
{
    gpu_device *dev = &d->gpu;
    TRY(dn_cuda_take_scratch(d, job->need(dev, job->arg), capturing));
    danaus_status status = job->run(dev, job->arg);
    dn_cuda_give_scratch(d);
    return status;
}

danaus_status dn_cuda_call(gpu_device *dev, gpu_key *key, const gpu_job *job)
{
    cuda_device *d = (cuda_device *)dev;
    int capturing = 0;
    CUDA_TRY(d->driver, StreamIsCapturing(d->stream, &capturing));
    if (!key || key->is_long || capturing)
        return run_once(d, job, capturing);
    if (!d->replays && d->driver->GraphInstantiate)
        d->replays = dn_calloc(SETS * PLACES, sizeof *d->replays);
    if (!d->replays)
        return run_once(d, job, 0);
    memcpy(key->data, &d->stream, sizeof d->stream);
    return replay(d, key, job);
}
