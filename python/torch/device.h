/* danaus devices for PyTorch's tensors.

   Every thread has a context for each place: a danaus_device, which is a queue, and the
   plans that were made on it. It follows PyTorch at each call: the current stream, memory
   from the caching allocator, the number of threads and PyTorch's own pool of them. With
   danaus's own pool beside PyTorch's, products of 64 and 196 rows by 768 x 768 took 1.4
   and 1.7 times as long on two threads, and with nn.Linear in turns 1.2 and 1.4 times. When a thread ends, its contexts wait
   for the next thread that needs one; none is ever closed, since at the end of a process
   nobody can say whether the GPU's driver is still there. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DANAUS_TORCH_DEVICE_H
#define DANAUS_TORCH_DEVICE_H

#include "shim.h"

#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>

namespace danaus_torch
{

/* What was made on a device and is kept with it. */
struct Cached {
    virtual ~Cached() = default;
};

struct Context {
    Place place;
    danaus_device *device = nullptr;
    uint32_t threads = 0;
    std::unordered_map<std::string, std::unique_ptr<Cached>> cache;
};

/* Makes a GPU the current one while it lives, if it is not. */
class Guard
{
  public:
    explicit Guard(Place place);
    Guard(const Guard &) = delete;
    Guard &operator=(const Guard &) = delete;
    ~Guard();

  private:
    GuardHandle guard_ = nullptr;
};

/* Runs calls of danaus for tensors of a place, as long as it lives: that GPU is the
   current one, and this thread's context is ready for it. */
class Scope
{
  public:
    explicit Scope(Place place);

    danaus_device *device() const { return context_->device; }

    /* What is cached under a key, whose first character tells kinds apart; made when it
       is not there yet. */
    template <class T, class Make> T &cached(const std::string &key, Make make)
    {
        std::unique_ptr<Cached> &slot = context_->cache[key];
        if (!slot)
            slot = make();
        return static_cast<T &>(*slot);
    }

    /* Forgets what is cached of a kind once there are so many, but for what is being
       made. */
    void keep(char kind, size_t most);

  private:
    Guard guard_;
    Context *context_;
};

} // namespace danaus_torch

#endif
