/* Finds out if tensors still hold the numbers that were packed. */
// SPDX-License-Identifier: Apache-2.0
#include "shim.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace danaus_torch
{

namespace
{

constexpr int64_t grain = INT64_C(1) << 18; /* bytes */

struct Bytes {
    const char *now, *kept;
    std::atomic<bool> same{ true };
};

void compare_range(int64_t begin, int64_t end, void *arg)
{
    Bytes *b = static_cast<Bytes *>(arg);
    size_t bytes = static_cast<size_t>(end - begin);
    if (b->same && std::memcmp(b->now + begin, b->kept + begin, bytes) != 0)
        b->same = false;
}

bool holds_same(Tensor now, const Tensor &kept)
{
    danaus_dtype type = danaus_type(now.dtype());
    if (!type || now.dtype() != kept.dtype() || now.shape() != kept.shape())
        return false;
    now = std::move(now).contiguous();
    Bytes b = { static_cast<const char *>(now.data()),
                static_cast<const char *>(kept.data()) };
    int64_t size = static_cast<int64_t>(danaus_dtype_size(type));
    int64_t bytes = now.numel() * size;
    if (bytes <= grain || shim.torch_parallel_for(0, bytes, grain, compare_range, &b))
        compare_range(0, bytes, &b);
    return b.same;
}

/* same_numbers(now, kept): bit by bit; `kept` is row-major. */
void same_numbers(StableValue *stack, uint64_t, uint64_t)
{
    Arguments arguments(stack);
    std::vector<Tensor> now = arguments.tensors(), kept = arguments.tensors();
    if (arguments.place().cuda)
        fail("numbers are compared on CPUs alone");
    bool same = now.size() == kept.size();
    for (size_t i = 0; same && i < now.size(); i++)
        same = holds_same(std::move(now[i]), kept[i]);
    push(stack, same);
}

} // namespace

const Operator same_operators[] = {
    { "same_numbers(Tensor[] now, Tensor[] kept) -> bool", "same_numbers",
      same_numbers },
    { nullptr, nullptr, nullptr },
};

} // namespace danaus_torch
