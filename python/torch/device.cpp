/* Contexts: which thread has which, and what they are told before each call. */
// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <pthread.h>

#include <algorithm>
#include <iterator>
#include <mutex>

namespace danaus_torch
{

namespace
{

/* Contexts of threads that have ended. Both stay until the process is gone: PyTorch's threads of
   gradients end after the destructors of this library's objects. */
std::mutex &mutex = *new std::mutex;
std::vector<std::unique_ptr<Context>> &idle =
    *new std::vector<std::unique_ptr<Context>>;

/* A child that was forked has none of the threads and GPUs that contexts know. */
unsigned generation;

void forget_contexts()
{
    generation++;
    for (std::unique_ptr<Context> &context : idle)
        context.release();
    idle.clear();
}

/* Those of this thread. */
struct Owned {
    unsigned generation = danaus_torch::generation;
    std::vector<std::unique_ptr<Context>> contexts;

    ~Owned()
    {
        if (generation != danaus_torch::generation)
            abandon();
        std::lock_guard<std::mutex> lock(mutex);
        for (std::unique_ptr<Context> &context : contexts)
            idle.push_back(std::move(context));
    }
    void abandon()
    {
        for (std::unique_ptr<Context> &context : contexts)
            context.release();
        contexts.clear();
        generation = danaus_torch::generation;
    }
};

thread_local Owned owned;

std::unique_ptr<Context> take_idle(Place place)
{
    std::lock_guard<std::mutex> lock(mutex);
    for (size_t i = 0; i < idle.size(); i++)
        if (idle[i]->place == place) {
            std::unique_ptr<Context> context = std::move(idle[i]);
            idle.erase(idle.begin() + static_cast<std::ptrdiff_t>(i));
            return context;
        }
    return nullptr;
}

/* ---- what a device is told ---- */

danaus_status allocate(void *, size_t bytes, void *, void **memory)
{
    return shim.aoti_torch_cuda_caching_allocator_raw_alloc(bytes, memory)
               ? DANAUS_ERR_MEMORY
               : DANAUS_OK;
}

void release(void *, void *memory, void *)
{
    shim.aoti_torch_cuda_caching_allocator_raw_delete(memory);
}

struct Parts {
    void (*task)(void *arg, int i);
    void *arg;
};

void run_range(int64_t begin, int64_t end, void *arg)
{
    const Parts *parts = static_cast<const Parts *>(arg);
    for (int64_t i = begin; i < end; i++)
        parts->task(parts->arg, static_cast<int>(i));
}

void run_parts(void *, int count, void (*task)(void *arg, int i), void *arg)
{
    Parts parts = { task, arg };
    if (count == 1 || shim.torch_parallel_for(0, count, 1, run_range, &parts))
        run_range(0, count, &parts);
}

std::unique_ptr<Context> make_context(Place place)
{
    std::unique_ptr<Context> context(new Context);
    context->place = place;
    std::string name = place.cuda ? "cuda:" + std::to_string(place.index) : "cpu";
    check(danaus_device_open(name.c_str(), &context->device));
    if (place.cuda) {
        danaus_allocator allocator = { nullptr, allocate, release, {} };
        check(danaus_device_set_allocator(context->device, &allocator));
    } else {
        check(danaus_device_set_parallel(context->device, run_parts, nullptr));
    }
    return context;
}

Context *context_of(Place place)
{
    if (owned.generation != generation)
        owned.abandon();
    for (std::unique_ptr<Context> &context : owned.contexts)
        if (context->place == place)
            return context.get();
    static const int registered = pthread_atfork(nullptr, nullptr, forget_contexts);
    (void)registered;
    std::unique_ptr<Context> context = take_idle(place);
    if (!context)
        context = make_context(place);
    owned.contexts.push_back(std::move(context));
    return owned.contexts.back().get();
}

} // namespace

Guard::Guard(Place place)
{
    int32_t current;
    if (!place.cuda)
        return;
    check(shim.aoti_torch_get_current_device_index(&current), "tell the device in use");
    if (current != place.index)
        check(
            shim.aoti_torch_create_device_guard(place.index, &guard_),
            "change the device in use");
}

Guard::~Guard()
{
    if (guard_)
        shim.aoti_torch_delete_device_guard(guard_);
}

Scope::Scope(Place place) : guard_(place), context_(context_of(place))
{
    if (place.cuda) {
        void *stream;
        check(
            shim.aoti_torch_get_current_cuda_stream(place.index, &stream),
            "tell the current stream");
        check(danaus_device_set_stream(context_->device, stream));
        return;
    }
    uint32_t threads;
    check(shim.torch_get_num_threads(&threads), "tell its number of threads");
    if (threads != context_->threads) {
        check(danaus_device_set_threads(context_->device, static_cast<int>(threads)));
        context_->threads = threads;
    }
}

void Scope::keep(char kind, size_t most)
{
    auto &cache = context_->cache;
    auto is_old = [kind](const auto &entry) {
        return entry.first[0] == kind && entry.second;
    };
    if (static_cast<size_t>(std::count_if(cache.begin(), cache.end(), is_old)) < most)
        return;
    for (auto i = cache.begin(); i != cache.end();)
        i = is_old(*i) ? cache.erase(i) : std::next(i);
}

} // namespace danaus_torch
