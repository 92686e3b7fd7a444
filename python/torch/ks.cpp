/* Operators of Kronecker-sparse products (danaus/ks.h).

   Every operator is a function of its tensors: it packs into, and computes in, memory of
   PyTorch's. What is kept between calls is one plan for each question (patterns, type,
   layout, ..., and the batch rounded up to a power of two), with a weights object that is
   bound to the memory of each call. */
// SPDX-License-Identifier: Apache-2.0
#include "device.h"

namespace danaus_torch
{

namespace
{

/* What a plan is made for; the batch is a hint, and any batch may be run. */
struct Question {
    std::vector<int64_t> patterns; /* a, b, c, d of each factor */
    danaus_ks_desc desc;
};

danaus_activation activation_of(const std::string &name)
{
    static const char *const names[] = { "none", "relu", "gelu", "silu", "gelu_tanh" };
    for (int i = 0; i < 5; i++)
        if (name == names[i])
            return static_cast<danaus_activation>(i);
    fail(name + " is no activation: none, relu, gelu, silu or gelu_tanh");
}

/* Takes the arguments that all operators end with. */
Question take_question(Arguments &arguments, bool has_activation)
{
    Question q = {};
    q.patterns = arguments.integers();
    std::string activation = has_activation ? arguments.string() : "none";
    q.desc.layout = arguments.boolean() ? DANAUS_BATCH_LAST : DANAUS_BATCH_FIRST;
    q.desc.math = arguments.boolean() ? DANAUS_MATH_TF32 : DANAUS_MATH_F32;
    q.desc.activation = activation_of(activation);
    if (q.patterns.size() % 4)
        fail("patterns are four numbers a factor: a, b, c, d");
    return q;
}

/* The type that danaus knows a tensor's as. */
danaus_dtype type_of(const Tensor &tensor)
{
    danaus_dtype type = danaus_type(tensor.dtype());
    if (!type)
        fail("danaus has the types float32, float16, bfloat16, float64, complex64 and "
             "complex128");
    return type;
}

int64_t power_above(int64_t batch)
{
    int64_t power = 1;
    while (power < batch && power < INT64_C(1) << 40)
        power *= 2;
    return power;
}

struct Plan : Cached {
    danaus_ks_plan *plan = nullptr;
    danaus_ks_weights *weights = nullptr; /* bound to the memory of each call */
    size_t bytes = 0;                     /* packed */

    ~Plan() override
    {
        danaus_ks_weights_destroy(weights);
        danaus_ks_plan_destroy(plan);
    }
};

std::unique_ptr<Cached> make_plan(danaus_device *device, const Question &q)
{
    std::vector<danaus_pattern> patterns;
    for (size_t i = 0; i + 4 <= q.patterns.size(); i += 4)
        patterns.push_back(
            { q.patterns[i], q.patterns[i + 1], q.patterns[i + 2], q.patterns[i + 3] });
    std::unique_ptr<Plan> made(new Plan);
    check(danaus_ks_plan_create(
        device, patterns.data(), static_cast<int>(patterns.size()), &q.desc,
        &made->plan));
    return made;
}

Plan &plan_of(Scope &scope, const Question &q)
{
    std::string key = "k";
    key.append(reinterpret_cast<const char *>(&q.desc), sizeof q.desc);
    key.append(
        reinterpret_cast<const char *>(q.patterns.data()),
        q.patterns.size() * sizeof(int64_t));
    return scope.cached<Plan>(key, [&] { return make_plan(scope.device(), q); });
}

/* ks_describe(like, batch, ...): what runs for tensors like this one. */
void describe(StableValue *stack, uint64_t, uint64_t)
{
    Arguments arguments(stack);
    Tensor like = arguments.tensor();
    int64_t batch = arguments.integer();
    Question q = take_question(arguments, true);
    q.desc.dtype = type_of(like);
    q.desc.batch = power_above(batch);
    Scope scope(like.place());
    const danaus_ks_plan *plan = plan_of(scope, q).plan;
    std::string text(danaus_ks_plan_describe(plan, nullptr, 0), '\0');
    danaus_ks_plan_describe(plan, &text[0], text.size() + 1);
    push(stack, text);
}

} // namespace

#define KS_QUESTION "int[] patterns, str activation, bool batch_last, bool tf32"

const Operator ks_operators[] = {
    { "ks_describe(Tensor like, int batch, " KS_QUESTION ") -> str", "ks_describe",
      describe },
    { nullptr, nullptr, nullptr },
};

} // namespace danaus_torch
