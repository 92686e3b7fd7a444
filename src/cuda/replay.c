/* Calls that come again. A launch costs the processor some 4 us, a call of cuBLAS 11, and
   a graph of all that a call does 2: a call that has come often enough with the same
   arguments is captured in a graph, on a stream of the device's own, and later ones
   launch that. Capturing costs as much as 30 launches. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda.h"

#include "base/mem.h"

#include <string.h>

#define SETS         64 /* of places, by what the key's hash leaves */
#define PLACES       8  /* of a set */
#define NON_BLOCKING 1
#define RELAXED      2 /* what other threads do meanwhile is their affair */

void dn_key_add(cuda_key *key, const void *data, size_t bytes)
{
    if (bytes > sizeof key->data - key->bytes) {
        key->is_long = 1;
        return;
    }
    memcpy(key->data + key->bytes, data, bytes);
    key->bytes += bytes;
}

static uint64_t hash_of(const cuda_key *key)
{
    uint64_t hash = key->bytes, word;
    for (size_t at = 0; at < key->bytes; at += sizeof word) {
        size_t left = key->bytes - at;
        word = 0;
        memcpy(&word, key->data + at, left < sizeof word ? left : sizeof word);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return hash;
}

/* The place of a call, or else the one of its set that was used longest ago, empty. */
static cuda_replay *find_replay(cuda_device *d, const cuda_key *key)
{
    uint64_t hash = hash_of(key);
    cuda_replay *set = d->replays + hash % SETS * PLACES, *oldest = set;
    for (cuda_replay *r = set; r < set + PLACES; r++) {
        if (r->calls && r->hash == hash && r->key.bytes == key->bytes &&
            !memcmp(r->key.data, key->data, key->bytes))
            return r;
        oldest = r->used < oldest->used ? r : oldest;
    }
    if (oldest->graph)
        d->driver->GraphExecDestroy(oldest->graph);
    oldest->graph = NULL;
    oldest->calls = 0;
    oldest->hash = hash;
    oldest->key.bytes = key->bytes;
    memcpy(oldest->key.data, key->data, key->bytes);
    return oldest;
}

/* What goes wrong here goes wrong, and is told, when the call is made without a graph. */
static cu_graph_exec capture(
    cuda_device *d, danaus_status (*run)(cuda_device *d, void *arg), void *arg)
{
    cu_graph graph = NULL;
    cu_graph_exec made = NULL;
    cu_stream stream = d->stream;
    if (!d->capture && d->driver->StreamCreate(&d->capture, NON_BLOCKING)) {
        d->capture = NULL;
        return NULL;
    }
    if (d->driver->BeginCapture(d->capture, RELAXED))
        return NULL;
    d->stream = d->capture;
    danaus_status status = run(d, arg);
    d->stream = stream;
    int failed = d->driver->EndCapture(d->capture, &graph) || status != DANAUS_OK;
    if (!failed && d->driver->GraphInstantiate(&made, graph, 0))
        made = NULL;
    if (graph)
        d->driver->GraphDestroy(graph);
    return made;
}

danaus_status dn_cuda_replay(
    cuda_device *d, cuda_key *key, int often,
    danaus_status (*run)(cuda_device *d, void *arg), void *arg)
{
    int capturing = 0;
    dn_key_add(key, &d->scratch, sizeof d->scratch);
    if (!d->driver->GraphInstantiate || key->is_long)
        return run(d, arg);
    CUDA_TRY(d->driver, StreamIsCapturing(d->stream, &capturing));
    if (!d->replays)
        d->replays = dn_calloc(SETS * PLACES, sizeof *d->replays);
    if (capturing || !d->replays)
        return run(d, arg);
    cuda_replay *r = find_replay(d, key);
    r->used = ++d->replayed;
    if (!r->graph && ++r->calls == often)
        r->graph = capture(d, run, arg);
    if (!r->graph)
        return run(d, arg);
    CUDA_TRY(d->driver, GraphLaunch(r->graph, d->stream));
    return DANAUS_OK;
}

void dn_cuda_forget_replays(cuda_device *d)
{
    for (int i = 0; d->replays && i < SETS * PLACES; i++)
        if (d->replays[i].graph)
            d->driver->GraphExecDestroy(d->replays[i].graph);
    if (d->capture)
        d->driver->StreamDestroy(d->capture);
}
