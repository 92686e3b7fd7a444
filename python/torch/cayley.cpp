/* Cayley transforms of blocks. */
// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include "danaus/algebra.h"

namespace danaus_torch
{

namespace
{

struct Blocks {
    int64_t count, size;
    danaus_dtype type;
};

/* r[..., size, size] */
Blocks blocks_of(const Tensor &r)
{
    int64_t last = r.dim() - 1;
    if (last < 1 || r.sizes()[last] != r.sizes()[last - 1])
        fail("Cayley transforms are of square matrices");
    int64_t size = r.sizes()[last];
    return { size ? r.numel() / (size * size) : 0, std::max<int64_t>(size, 1),
             danaus_type(r.dtype()) };
}

/* _cayley(r, transposed) */
void cayley(StableValue *stack, uint64_t, uint64_t)
{
    Arguments arguments(stack);
    Tensor r = arguments.tensor();
    bool transposed = arguments.boolean();
    Scope scope(arguments.place());
    r = std::move(r).contiguous();
    Blocks b = blocks_of(r);
    Tensor q = Tensor::empty(r.shape(), r.dtype(), r.place());
    check(danaus_cayley(
        scope.device(), b.type, b.count, b.size, transposed, r.data(), q.data()));
    push(stack, std::move(q));
}

/* _cayley_backward(q, dq, transposed): dr */
void cayley_backward(StableValue *stack, uint64_t, uint64_t)
{
    Arguments arguments(stack);
    Tensor q = arguments.tensor(), dq = arguments.tensor();
    bool transposed = arguments.boolean();
    Scope scope(arguments.place());
    q = std::move(q).contiguous();
    dq = std::move(dq).contiguous();
    if (dq.dtype() != q.dtype() || dq.shape() != q.shape())
        fail("the gradient has another shape or type than the transform");
    Blocks b = blocks_of(q);
    Tensor dr = Tensor::empty(q.shape(), q.dtype(), q.place());
    check(danaus_cayley_gradient(
        scope.device(), b.type, b.count, b.size, transposed, q.data(), dq.data(),
        dr.data()));
    push(stack, std::move(dr));
}

} // namespace

/* Without gradients: danaus/torch/_cayley.py has them. */
const Operator cayley_operators[] = {
    { "_cayley(Tensor r, bool transposed) -> Tensor", "_cayley", cayley },
    { "_cayley_backward(Tensor q, Tensor dq, bool transposed) -> Tensor",
      "_cayley_backward", cayley_backward },
    { nullptr, nullptr, nullptr },
};

} // namespace danaus_torch
