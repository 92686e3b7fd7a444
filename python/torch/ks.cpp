/* Operators of Kronecker-sparse products (danaus/ks.h).

   Every operator is a function of its tensors: it packs into, and computes in, memory of
   PyTorch's. What is kept between calls is one plan for each question (patterns, type,
   layout, ..., and the batch rounded up to a power of two), with a weights object that is
   bound to the memory of each call.

   ks_linear plans with fresh weights, since it packs at each call; ks_pack and ks_apply,
   for weights that stay, let the planner merge factors. Their `batch` is what is planned
   for, and `residual` whether one is added, so that both have the same plan; any batch may
   be run. A training step packs once:
   _ks_linear_train returns what it packed, for the product and for gradients, and
   _ks_linear_return, whose plan is the same, takes it. */
// SPDX-License-Identifier: Apache-2.0
#include "device.h"

namespace danaus_torch
{

namespace
{

/* ---- questions and plans ---- */

/* What a plan is made for. */
struct Question {
    std::vector<danaus_pattern> patterns;
    danaus_ks_desc desc;

    int64_t rows() const
    {
        const danaus_pattern &p = patterns.front();
        return p.a * p.b * p.d;
    }
    int64_t cols() const
    {
        const danaus_pattern &p = patterns.back();
        return p.a * p.c * p.d;
    }
    bool batch_last() const { return desc.layout == DANAUS_BATCH_LAST; }
};

danaus_activation activation_of(const std::string &name)
{
    static const char *const names[] = { "none", "relu", "gelu", "silu", "gelu_tanh" };
    for (int i = 0; i < 5; i++)
        if (name == names[i])
            return static_cast<danaus_activation>(i);
    fail("activation has to be none, relu, gelu, silu or gelu_tanh, not " + name);
}

/* Batch-invariant plans are those of fresh weights in every call: products with packed weights,
   and with weights that are packed for them, have the same bits. */
void set_options(Question &q, bool batch_last, bool tf32, bool batch_invariant)
{
    q.desc.layout = batch_last ? DANAUS_BATCH_LAST : DANAUS_BATCH_FIRST;
    q.desc.math = tf32 ? DANAUS_MATH_TF32 : DANAUS_MATH_F32;
    q.desc.batch_invariant = q.desc.fresh_weights = batch_invariant;
    q.desc.bias = 1; /* as most layers have: what is packed must not hang on it */
}

/* Takes the arguments QUESTION. */
Question take_question(Arguments &arguments)
{
    Question q = {};
    std::vector<int64_t> sizes = arguments.integers();
    std::string activation = arguments.string();
    bool batch_last = arguments.boolean(), tf32 = arguments.boolean();
    set_options(q, batch_last, tf32, arguments.boolean());
    q.desc.activation = activation_of(activation);
    if (sizes.size() % 4)
        fail("patterns are four numbers a factor: a, b, c, d");
    for (size_t i = 0; i < sizes.size(); i += 4)
        q.patterns.push_back({ sizes[i], sizes[i + 1], sizes[i + 2], sizes[i + 3] });
    return q;
}

/* What the operators that ask for rows() and cols() before there is a plan want; plans
   are made of patterns that fit alone. */
void check_patterns(const Question &q)
{
    check(
        danaus_patterns_check(q.patterns.data(), static_cast<int>(q.patterns.size())));
}

/* The batch to plan for is a power of two, or 0: a large one. Batch-invariant plans have one
   for all. */
void plan_for(Question &q, int64_t batch)
{
    int64_t power = batch > 0;
    while (power > 0 && power < batch && power < INT64_C(1) << 40)
        power *= 2;
    q.desc.batch = q.desc.batch_invariant ? 0 : power;
}

struct Plan : Cached {
    danaus_ks_plan *plan = nullptr;
    danaus_ks_weights *weights = nullptr; /* bound to the memory of each call */
    size_t bytes = 0;                     /* packed */

    Plan(danaus_device *device, const Question &q)
    {
        check(danaus_ks_plan_create(
            device, q.patterns.data(), static_cast<int>(q.patterns.size()), &q.desc,
            &plan));
        danaus_status status = danaus_ks_weights_bytes(plan, &bytes);
        if (status == DANAUS_OK)
            status = danaus_ks_weights_create_unbound(plan, device, &weights);
        if (status != DANAUS_OK)
            danaus_ks_plan_destroy(plan);
        check(status);
    }
    ~Plan() override
    {
        danaus_ks_weights_destroy(weights);
        danaus_ks_plan_destroy(plan);
    }
};

Plan &plan_of(Scope &scope, const Question &q)
{
    std::string key = "k";
    key.append(reinterpret_cast<const char *>(&q.desc), sizeof q.desc);
    key.append(
        reinterpret_cast<const char *>(q.patterns.data()),
        q.patterns.size() * sizeof q.patterns[0]);
    return scope.cached<Plan>(
        key, [&] { return std::unique_ptr<Cached>(new Plan(scope.device(), q)); });
}

/* ---- operands ---- */

danaus_dtype type_of(int32_t torch_dtype)
{
    danaus_dtype type = danaus_type(torch_dtype);
    if (!type)
        fail("danaus has the types float32, float16, bfloat16, float64, complex64 and "
             "complex128");
    return type;
}

/* How many columns a tensor holds whose first or last dimension is `size`. */
int64_t batch_of(const Tensor &x, const Question &q, int64_t size, const char *what)
{
    int64_t dim = x.dim();
    int64_t found = dim == 0 ? 0 : x.sizes()[q.batch_last() ? 0 : dim - 1];
    if (dim == 0 || found != size)
        fail(
            std::string(what) + " has " + std::to_string(found) + " features, not " +
            std::to_string(size));
    return x.numel() / size;
}

/* The shape of x with another number of features. */
std::vector<int64_t> shape_like(const Tensor &x, const Question &q, int64_t size)
{
    std::vector<int64_t> shape = x.shape();
    (q.batch_last() ? shape.front() : shape.back()) = size;
    return shape;
}

/* Weights and bias as danaus takes them, with what keeps them. */
struct Numbers {
    std::vector<Tensor> weights;
    Tensor bias;
    std::vector<const void *> pointers;
    danaus_dtype type;

    Numbers(std::vector<Tensor> w, Tensor b, const Question &q) : bias(std::move(b))
    {
        if (w.size() != q.patterns.size())
            fail(
                std::to_string(w.size()) + " weights for " +
                std::to_string(q.patterns.size()) + " patterns");
        type = type_of(w[0].dtype());
        for (size_t l = 0; l < w.size(); l++) {
            const danaus_pattern &p = q.patterns[l];
            take(w[l], p.a * p.b * p.c * p.d);
            weights.push_back(std::move(w[l]).contiguous());
            pointers.push_back(weights[l].data());
        }
        if (bias) {
            take(bias, q.rows());
            bias = std::move(bias).contiguous();
        }
    }

  private:
    void take(const Tensor &t, int64_t numel) const
    {
        if (t.numel() != numel)
            fail(
                "weights or bias of " + std::to_string(t.numel()) + " numbers, not " +
                std::to_string(numel));
        if (type_of(t.dtype()) != type)
            fail("weights and bias are of different types");
    }
};

void bind(const Plan &plan, const Tensor &packed, bool has_bias)
{
    check(danaus_ks_weights_bind(plan.weights, packed.data(), has_bias));
}

/* Packs into memory that is a function of its arguments alone. */
void pack(const Scope &scope, const Plan &plan, const Tensor &to, const Numbers &n)
{
    bind(plan, to, static_cast<bool>(n.bias));
    check(danaus_ks_weights_update_from(
        plan.weights, scope.device(), n.type, n.pointers.data(),
        n.bias ? n.bias.data() : nullptr));
}

Tensor memory_for(const Plan &plan, Place place)
{
    return Tensor::empty(
        { static_cast<int64_t>(plan.bytes) }, shim.aoti_torch_dtype_uint8(), place);
}

void check_residual(const Tensor &residual, const Tensor &y)
{
    if (residual.shape() != y.shape() || residual.dtype() != y.dtype())
        fail("the residual's shape or type is not the result's");
}

/* y = activation(W x + bias) with what the plan's weights are bound to, plus the residual if
   the plan was made for one. */
Tensor execute(
    const Scope &scope, const Plan &plan, const Question &q, Tensor x,
    Tensor residual = Tensor())
{
    int64_t batch = batch_of(x, q, q.cols(), "the input");
    x = std::move(x).contiguous();
    Tensor y = Tensor::empty(shape_like(x, q, q.rows()), x.dtype(), x.place());
    if (!residual) {
        check(danaus_ks_execute(
            plan.plan, scope.device(), plan.weights, batch, x.data(), y.data()));
        return y;
    }
    check_residual(residual, y);
    residual = std::move(residual).contiguous();
    check(danaus_ks_execute_residual(
        plan.plan, scope.device(), plan.weights, batch, x.data(), residual.data(),
        y.data()));
    return y;
}

/* ---- the functional operator and its gradient ---- */

/* What is asked of a product of x whose weights are packed for it. */
Question take_fresh(Arguments &arguments, const Tensor &x, bool gradients)
{
    Question q = take_question(arguments);
    arguments.place();
    check_patterns(q);
    q.desc.dtype = type_of(x.dtype());
    q.desc.fresh_weights = 1;
    q.desc.gradients = gradients;
    plan_for(q, batch_of(x, q, q.cols(), "the input"));
    return q;
}

/* Leaves y on the stack and, for training, what was packed, for gradients too. */
void multiply(StableValue *stack, bool trains)
{
    Arguments arguments(stack);
    Tensor x = arguments.tensor();
    std::vector<Tensor> weights = arguments.tensors();
    Tensor bias = arguments.optional_tensor();
    Question q = take_fresh(arguments, x, trains);
    Scope scope(arguments.place());
    Numbers numbers(std::move(weights), std::move(bias), q);
    Plan &plan = plan_of(scope, q);
    Tensor packed = memory_for(plan, x.place());
    pack(scope, plan, packed, numbers);
    push(stack, execute(scope, plan, q, std::move(x)));
    if (trains)
        push(stack + 1, std::move(packed));
}

void linear(StableValue *stack, uint64_t, uint64_t) { multiply(stack, false); }

void linear_train(StableValue *stack, uint64_t, uint64_t) { multiply(stack, true); }

/* Which gradients are made; what is not wanted is a tensor without elements. Those of
   weights and bias are of the type of sums, or rounded to x's. */
struct Wanted {
    bool x, weights, bias, rounded = false;

    explicit Wanted(Arguments &a)
        : x(a.boolean()), weights(a.boolean()), bias(a.boolean())
    {
    }
};

using Shape = std::vector<int64_t>;

/* Leaves dx, dw (shaped like these weights, or [a][b][c][d]) and dbias on the stack, made
   with what the plan's weights are bound to. */
void go_back(
    StableValue *stack, const Scope &scope, const Plan &plan, const Question &q,
    Wanted want, const Numbers *numbers, Tensor dy, Tensor x)
{
    Place place = x.place();
    int64_t batch = batch_of(x, q, q.cols(), "the input");
    if (batch_of(dy, q, q.rows(), "the gradient") != batch || dy.dtype() != x.dtype())
        fail("the gradient's batch or type is not the input's");
    x = std::move(x).contiguous();
    dy = std::move(dy).contiguous();
    bool narrow = q.desc.dtype == DANAUS_F16 || q.desc.dtype == DANAUS_BF16;
    int32_t type = torch_type(narrow && !want.rounded ? DANAUS_F32 : q.desc.dtype);
    const Shape nothing = { 0 };
    Tensor dx = Tensor::empty(want.x ? x.shape() : nothing, x.dtype(), place);
    Tensor dbias = Tensor::empty({ want.bias ? q.rows() : 0 }, type, place);
    std::vector<Tensor> dw;
    std::vector<void *> pointers;
    for (size_t l = 0; l < q.patterns.size(); l++) {
        const danaus_pattern &p = q.patterns[l];
        Shape shape =
            numbers ? numbers->weights[l].shape() : Shape{ p.a, p.b, p.c, p.d };
        dw.push_back(Tensor::empty(want.weights ? shape : nothing, type, place));
        pointers.push_back(dw.back().data());
    }
    danaus_ks_gradients gradients = {};
    gradients.dx = want.x ? dx.data() : nullptr;
    gradients.dw = want.weights ? pointers.data() : nullptr;
    gradients.dbias = want.bias ? dbias.data() : nullptr;
    gradients.rounded = want.rounded;
    check(danaus_ks_gradient(
        plan.plan, scope.device(), plan.weights, batch, x.data(), dy.data(),
        &gradients));
    push(stack, std::move(dx));
    push(stack + 1, std::move(dw));
    push(stack + 2, std::move(dbias));
}

void linear_backward(StableValue *stack, uint64_t, uint64_t)
{
    Arguments arguments(stack);
    Tensor dy = arguments.tensor(), x = arguments.tensor();
    std::vector<Tensor> weights = arguments.tensors();
    Question q = take_fresh(arguments, x, true);
    Wanted want(arguments);
    Scope scope(arguments.place());
    Numbers numbers(std::move(weights), Tensor(), q);
    Plan &plan = plan_of(scope, q);
    Tensor packed = memory_for(plan, x.place());
    pack(scope, plan, packed, numbers);
    go_back(stack, scope, plan, q, want, &numbers, std::move(dy), std::move(x));
}

/* ---- weights that were packed for training before ---- */

void check_packed(const Plan &plan, const Tensor &packed)
{
    if (packed.dtype() != shim.aoti_torch_dtype_uint8() || packed.dim() != 1 ||
        !packed.is_contiguous() || packed.numel() != static_cast<int64_t>(plan.bytes))
        fail(
            "packed weights are " + std::to_string(plan.bytes) +
            " bytes here, not what was given: they were packed for other arguments or "
            "another machine");
}

/* With what _ks_linear_train, or _ks_pack_training after it, packed for such an input. */
void linear_packed(StableValue *stack, uint64_t, uint64_t)
{
    Arguments arguments(stack);
    Tensor x = arguments.tensor(), packed = arguments.tensor();
    bool has_bias = arguments.boolean();
    Question q = take_fresh(arguments, x, true);
    Scope scope(arguments.place());
    Plan &plan = plan_of(scope, q);
    check_packed(plan, packed);
    bind(plan, packed, has_bias);
    push(stack, execute(scope, plan, q, std::move(x)));
}

/* What is asked of one of many, read from a list of numbers: how many factors there are,
   whether there is a bias, the batch, batch_last, tf32, batch_invariant, and the patterns. */
struct Asked {
    Question question = {};
    bool has_bias;

    Asked(const std::vector<int64_t> &list, size_t &at)
    {
        const size_t facts = 6;
        if (list.size() - at < facts || list[at] < 1 ||
            static_cast<uint64_t>(list[at]) > (list.size() - at - facts) / 4)
            fail("what is asked of packed weights is not a whole list");
        const int64_t *n = &list[at], *sizes = n + facts;
        at += facts + 4 * static_cast<size_t>(n[0]);
        has_bias = n[1] != 0;
        set_options(question, n[3] != 0, n[4] != 0, n[5] != 0);
        question.desc.fresh_weights = question.desc.gradients = 1;
        for (int64_t l = 0; l < n[0]; l++, sizes += 4)
            question.patterns.push_back({ sizes[0], sizes[1], sizes[2], sizes[3] });
        plan_for(question, n[2]);
    }
};

/* Packs all of them into memory that was packed for training before, with one call. */
void pack_training(StableValue *stack, uint64_t, uint64_t)
{
    Arguments arguments(stack);
    std::vector<Tensor> packed = arguments.tensors(), given = arguments.tensors();
    danaus_dtype type = type_of(static_cast<int32_t>(arguments.integer()));
    std::vector<int64_t> list = arguments.integers();
    Scope scope(arguments.place());
    std::vector<std::unique_ptr<Numbers>> numbers;
    std::vector<danaus_ks_update> updates;
    size_t at = 0, next = 0;
    for (Tensor &to : packed) {
        Asked asked(list, at);
        asked.question.desc.dtype = type;
        size_t factors = asked.question.patterns.size();
        if (given.size() - next < factors + asked.has_bias)
            fail("there are fewer weights than what is asked names");
        std::vector<Tensor> weights;
        for (size_t l = 0; l < factors; l++)
            weights.push_back(std::move(given[next++]));
        Tensor bias = asked.has_bias ? std::move(given[next++]) : Tensor();
        numbers.emplace_back(
            new Numbers(std::move(weights), std::move(bias), asked.question));
        const Numbers &n = *numbers.back();
        Plan &plan = plan_of(scope, asked.question);
        check_packed(plan, to);
        danaus_ks_update update = {};
        update.weights = plan.weights;
        update.memory = to.data();
        update.w = n.pointers.data();
        update.bias = n.bias ? n.bias.data() : nullptr;
        update.dtype = n.type;
        updates.push_back(update);
    }
    check(danaus_ks_weights_update_many(
        scope.device(), static_cast<int>(updates.size()), updates.data()));
}

/* ---- its two halves ---- */

/* With a weights object of its own: that of the plan has one room for products of merged
   factors, which another stream may be using. */
void pack_alone(
    const Scope &scope, const Plan &plan, const Tensor &to, const Numbers &n)
{
    danaus_ks_weights *weights = nullptr;
    check(danaus_ks_weights_create_unbound(plan.plan, scope.device(), &weights));
    danaus_status status = danaus_ks_weights_bind(weights, to.data(), 0);
    if (status == DANAUS_OK)
        status = danaus_ks_weights_update_from(
            weights, scope.device(), n.type, n.pointers.data(),
            n.bias ? n.bias.data() : nullptr);
    danaus_ks_weights_destroy(weights);
    check(status);
}

/* With what _ks_linear_train packed for these arguments. */
void linear_return(StableValue *stack, uint64_t, uint64_t)
{
    Arguments arguments(stack);
    Tensor dy = arguments.tensor(), x = arguments.tensor(), packed = arguments.tensor();
    Question q = take_fresh(arguments, x, true);
    Wanted want(arguments);
    want.rounded = arguments.boolean();
    Scope scope(arguments.place());
    Plan &plan = plan_of(scope, q);
    check_packed(plan, packed);
    bind(plan, packed, false);
    go_back(stack, scope, plan, q, want, nullptr, std::move(dy), std::move(x));
}

/* Tensors that map files may lie where PyTorch's allocators never begin one. */
Tensor aligned(Tensor packed)
{
    uintptr_t align = packed.place().cuda ? DANAUS_SCRATCH_ALIGN : 64;
    if (reinterpret_cast<uintptr_t>(packed.data()) % align == 0)
        return packed;
    Tensor copy = Tensor::empty(packed.shape(), packed.dtype(), packed.place());
    check(shim.aoti_torch_copy_(copy.get(), packed.get(), 0), "copy packed weights");
    return copy;
}

void pack_new(StableValue *stack, uint64_t, uint64_t)
{
    Arguments arguments(stack);
    std::vector<Tensor> weights = arguments.tensors();
    Tensor bias = arguments.optional_tensor();
    int32_t dtype = static_cast<int32_t>(arguments.integer());
    int64_t batch = arguments.integer();
    Question q = take_question(arguments);
    q.desc.residual = arguments.boolean();
    if (weights.empty())
        fail("there are no weights");
    Place place = arguments.place();
    check_patterns(q);
    q.desc.dtype = type_of(dtype);
    plan_for(q, batch);
    Scope scope(place);
    Numbers numbers(std::move(weights), std::move(bias), q);
    Plan &plan = plan_of(scope, q);
    Tensor packed = memory_for(plan, place);
    /* Between what is packed there are gaps. */
    check(shim.aoti_torch_zero_(packed.get()), "clear a tensor");
    pack_alone(scope, plan, packed, numbers);
    push(stack, std::move(packed));
}

void pack_into(StableValue *stack, uint64_t, uint64_t)
{
    Arguments arguments(stack);
    Tensor packed = arguments.tensor();
    std::vector<Tensor> weights = arguments.tensors();
    Tensor bias = arguments.optional_tensor();
    int32_t dtype = static_cast<int32_t>(arguments.integer());
    int64_t batch = arguments.integer();
    Question q = take_question(arguments);
    q.desc.residual = arguments.boolean();
    Scope scope(arguments.place());
    check_patterns(q);
    q.desc.dtype = type_of(dtype);
    plan_for(q, batch);
    Numbers numbers(std::move(weights), std::move(bias), q);
    Plan &plan = plan_of(scope, q);
    check_packed(plan, packed);
    pack_alone(scope, plan, packed, numbers);
}

void apply(StableValue *stack, uint64_t, uint64_t)
{
    Arguments arguments(stack);
    Tensor x = arguments.tensor(), packed = arguments.tensor();
    bool has_bias = arguments.boolean();
    int64_t batch = arguments.integer();
    Question q = take_question(arguments);
    Tensor residual = arguments.optional_tensor();
    Scope scope(arguments.place());
    q.desc.residual = static_cast<bool>(residual);
    q.desc.dtype = type_of(x.dtype());
    plan_for(q, batch);
    Plan &plan = plan_of(scope, q);
    check_packed(plan, packed);
    packed = aligned(std::move(packed));
    bind(plan, packed, has_bias);
    push(stack, execute(scope, plan, q, std::move(x), std::move(residual)));
}

/* What runs for tensors like this one. */
void describe(StableValue *stack, uint64_t, uint64_t)
{
    Arguments arguments(stack);
    Tensor like = arguments.tensor();
    int64_t batch = arguments.integer();
    Question q = take_question(arguments);
    q.desc.residual = arguments.boolean();
    q.desc.dtype = type_of(like.dtype());
    plan_for(q, batch);
    Scope scope(arguments.place());
    const danaus_ks_plan *plan = plan_of(scope, q).plan;
    std::string text(danaus_ks_plan_describe(plan, nullptr, 0) + 1, '\0');
    danaus_ks_plan_describe(plan, &text[0], text.size());
    text.pop_back();
    push(stack, text);
}

} // namespace

#define QUESTION                                                                       \
    "int[] patterns, str activation, bool batch_last, bool tf32, bool batch_invariant"
#define RESIDUAL ", bool residual=False" /* whether ks_apply will be given one */
#define NUMBERS  "Tensor[] weights, Tensor? bias, ScalarType dtype, int batch, "

#define LINEAR                                                                         \
    "ks_linear(Tensor x, Tensor[] weights, Tensor? bias, " QUESTION ") -> Tensor"
#define WANTED    ", bool want_x, bool want_weights, bool want_bias"
#define GRADIENTS " -> (Tensor, Tensor[], Tensor)"
#define BACKWARD                                                                       \
    "ks_linear_backward(Tensor dy, Tensor x, Tensor[] weights, " QUESTION WANTED       \
    ")" GRADIENTS
#define TRAIN                                                                          \
    "_ks_linear_train(Tensor x, Tensor[] weights, Tensor? bias, " QUESTION             \
    ") -> (Tensor, Tensor)"
#define RETURN                                                                         \
    "_ks_linear_return(Tensor dy, Tensor x, Tensor packed, " QUESTION WANTED           \
    ", bool rounded)" GRADIENTS

#define PACKED                                                                         \
    "_ks_linear_packed(Tensor x, Tensor packed, bool has_bias, " QUESTION ") -> "      \
    "Tensor"
#define PACK_TRAINING                                                                  \
    "_ks_pack_training(Tensor(a!)[] packed, Tensor[] numbers, ScalarType dtype, "      \
    "int[] asked) -> ()"

/* Names that begin with _ are for what is below gradients (_ops.py). */
const Operator ks_operators[] = {
    { LINEAR, "ks_linear", linear },
    { "_" LINEAR, "_ks_linear", linear },
    { BACKWARD, "ks_linear_backward", linear_backward },
    { "_" BACKWARD, "_ks_linear_backward", linear_backward },
    { TRAIN, "_ks_linear_train", linear_train },
    { RETURN, "_ks_linear_return", linear_return },
    { PACKED, "_ks_linear_packed", linear_packed },
    { PACK_TRAINING, "_ks_pack_training", pack_training },
    { "ks_pack(" NUMBERS QUESTION RESIDUAL ") -> Tensor", "ks_pack", pack_new },
    { "ks_pack_into(Tensor(a!) packed, " NUMBERS QUESTION RESIDUAL ") -> ()",
      "ks_pack_into", pack_into },
    { "ks_apply(Tensor x, Tensor packed, bool has_bias, int batch, " QUESTION
      ", Tensor? residual=None) -> Tensor",
      "ks_apply", apply },
    { "ks_describe(Tensor like, int batch, " QUESTION RESIDUAL ") -> str",
      "ks_describe", describe },
    { nullptr, nullptr, nullptr },
};

} // namespace danaus_torch
