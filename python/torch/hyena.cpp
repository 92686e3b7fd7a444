/* Operators of the Hyena operator (danaus/conv.h): every one is a function of its tensors, as
   those of convolutions are. Spectra and the workspace of a call are memory of PyTorch's. */
// SPDX-License-Identifier: Apache-2.0
#include "conv.h"

#include <deque>

namespace danaus_torch
{

namespace
{

constexpr size_t spectrum_align = 256;

struct Plan : Cached {
    danaus_hyena_plan *plan = nullptr;
    size_t bytes = 0; /* of a spectrum, with those between it and the next one */

    ~Plan() override { danaus_hyena_plan_destroy(plan); }
    const danaus_conv_plan *conv() const { return danaus_hyena_plan_conv(plan); }
};

Plan &plan_of(Scope &scope, const danaus_hyena_desc &desc)
{
    return cached_plan<Plan>(scope, 'h', desc, [&](Plan &made) {
        check(danaus_hyena_plan_create(scope.device(), &desc, &made.plan));
        check(danaus_spectrum_bytes(made.conv(), &made.bytes));
        made.bytes =
            (made.bytes + spectrum_align - 1) / spectrum_align * spectrum_align;
    });
}

enum { U, TAPS, BIAS, K, SKIP, OPERANDS };

struct Operands : ConvOperands<OPERANDS, danaus_hyena_desc> {
    /* Describes a call with so many long filters for each of `order` - 1 convolutions. */
    void describe(int64_t order, int64_t filters, int64_t long_taps)
    {
        describe_signal();
        expect_dim(t[TAPS], "the short filters", 2);
        int64_t rows = t[U].sizes()[1];
        if (order < 2 || order > DANAUS_HYENA_MOST_ORDER || rows % (order + 1))
            fail(
                std::to_string(rows) + " rows are no groups for an operator of order " +
                std::to_string(order));
        if (filters < 1 || long_taps < 1)
            fail("at least one filter and one tap are needed");
        desc.channels = rows / (order + 1);
        desc.order = order;
        desc.taps = t[TAPS].sizes()[1];
        desc.filters = filters;
        desc.filter_length = long_taps;
        plan_for_batch();
        if (packed)
            plan_for_longest(desc, packed.longest_of(t[U]));
        danaus_dtype sums = sum_type(desc.dtype);
        expect(t[TAPS], "the short filters", sums, { rows, desc.taps });
        expect(t[BIAS], "bias", sums, { rows });
    }

    void describe_with_filters()
    {
        expect_dim(t[K], "k", 3);
        std::vector<int64_t> shape = t[K].shape();
        describe(shape[0] + 1, shape[1], shape[2]);
        danaus_dtype sums = sum_type(desc.dtype);
        expect(t[K], "k", sums, shape);
        expect(t[SKIP], "skip", sums, { shape[0], shape[1] });
    }

    /* For spectra that are kept: of sequences up to some length, whatever they are now; 0:
       of none. */
    void plan_for(int64_t longest)
    {
        plan_for_longest(desc, longest);
        desc.batch = longest ? 0 : desc.batch;
    }

    int64_t convolutions() const { return desc.order - 1; }
};

/* The spectra of all convolutions, one behind the other in a tensor that the caller keeps. */
class Spectra
{
  public:
    Spectra(Scope &scope, const Plan &p, const Operands &o, const Tensor &memory)
    {
        for (int64_t i = 0; i < o.convolutions(); i++) {
            made_.emplace_back(
                scope, p.conv(), part(memory.data(), i, p.bytes), p.bytes);
            pointers_.push_back(made_.back().get());
        }
    }

    const danaus_spectrum *const *get() const { return pointers_.data(); }

    void transform(Scope &scope, const Operands &o) const
    {
        danaus_dtype sums = sum_type(o.desc.dtype);
        size_t filters = static_cast<size_t>(o.desc.filters) * danaus_dtype_size(sums);
        size_t all = filters * static_cast<size_t>(o.desc.filter_length);
        for (int64_t i = 0; i < o.convolutions(); i++)
            check(danaus_spectrum_update_from(
                made_[static_cast<size_t>(i)].get(), scope.device(), sums,
                part(o.at(K), i, all), nullptr, part(o.at(SKIP), i, filters)));
    }

  private:
    /* Part i of so many bytes each. */
    static void *part(void *from, int64_t i, size_t bytes)
    {
        return from ? static_cast<char *>(from) + static_cast<size_t>(i) * bytes
                    : nullptr;
    }

    std::deque<Spectrum> made_;
    std::vector<const danaus_spectrum *> pointers_;
};

Tensor memory_of_spectra(const Plan &p, const Operands &o)
{
    return make_memory(p.bytes * static_cast<size_t>(o.convolutions()), o.t[U].place());
}

danaus_hyena_operands operands_of(const Operands &o, const Spectra &s)
{
    return { o.at(U), o.at(TAPS), o.at(BIAS), s.get(), {} };
}

Operands take_operands(Arguments &arguments)
{
    Operands o;
    o.t[U] = arguments.tensor();
    o.t[TAPS] = arguments.tensor();
    o.t[BIAS] = arguments.optional_tensor();
    o.t[K] = arguments.tensor();
    o.t[SKIP] = arguments.optional_tensor();
    return o;
}

void find_workspace(const Plan &p, const Operands &o, size_t *forward, size_t *gradient)
{
    if (o.packed)
        check(danaus_hyena_workspace_bytes_packed(
            p.plan, o.columns(), forward, gradient));
    else
        check(danaus_hyena_workspace_bytes(p.plan, o.batch(), forward, gradient));
}

Tensor run(Scope &scope, const Plan &p, const Operands &o, const Spectra &s)
{
    Tensor y = o.result();
    if (o.batch() == 0)
        return y;
    size_t bytes = 0;
    find_workspace(p, o, &bytes, nullptr);
    Tensor workspace = make_memory(bytes, o.t[U].place());
    danaus_hyena_operands operands = operands_of(o, s);
    if (o.packed)
        check(danaus_hyena_execute_packed(
            p.plan, scope.device(), o.packed.count(), o.packed.starts(), &operands,
            workspace.data(), y.data()));
    else
        check(danaus_hyena_execute(
            p.plan, scope.device(), o.batch(), &operands, workspace.data(), y.data()));
    return y;
}

/* hyena(u, taps, bias, k, skip, offsets, accuracy): y, and the spectra of the filters if they are
   to be kept. */
Tensor hyena(StableValue *stack, Tensor &spectra)
{
    Arguments arguments(stack);
    Operands o = take_operands(arguments);
    o.take_last(arguments);
    Scope scope(arguments.place());
    o.describe_with_filters();
    Plan &p = plan_of(scope, o.desc);
    Tensor memory = memory_of_spectra(p, o);
    Spectra s(scope, p, o, memory);
    s.transform(scope, o);
    Tensor y = run(scope, p, o, s);
    spectra = std::move(memory);
    if (!o.keeps(static_cast<size_t>(spectra.numel())))
        spectra = make_memory(0, o.t[U].place());
    return y;
}

/* Gradients of the operands that have a place. */
void differentiate(
    Scope &scope, const Operands &o, const Tensor &dy, void *(&to)[OPERANDS])
{
    danaus_hyena_gradients g = { to[U], to[TAPS], to[BIAS], to[K], to[SKIP], {} };
    Plan &p = plan_of(scope, o.desc);
    size_t bytes = 0;
    find_workspace(p, o, nullptr, &bytes);
    Tensor workspace = make_memory(bytes, o.t[U].place());
    o.check_kept(p.bytes * static_cast<size_t>(o.convolutions()));
    Tensor made;
    if (!o.kept)
        made = memory_of_spectra(p, o);
    Spectra s(scope, p, o, o.kept ? o.kept : made);
    if (!o.kept)
        s.transform(scope, o);
    danaus_hyena_operands operands = operands_of(o, s);
    if (o.packed)
        check(danaus_hyena_gradient_packed(
            p.plan, scope.device(), o.packed.count(), o.packed.starts(), &operands,
            dy.data(), workspace.data(), &g));
    else
        check(danaus_hyena_gradient(
            p.plan, scope.device(), o.batch(), &operands, dy.data(), workspace.data(),
            &g));
}

/* hyena_backward(dy, ..., wanted, offsets, accuracy, kept) */
void hyena_backward(StableValue *stack, uint64_t, uint64_t)
{
    backward(stack, take_operands);
}

/* hyena_pack(u, taps, bias, k, skip, longest, accuracy): the spectra that hyena_apply()
   takes. */
void hyena_pack(StableValue *stack, uint64_t, uint64_t)
{
    Arguments arguments(stack);
    Operands o = take_operands(arguments);
    int64_t longest = arguments.integer();
    o.accuracy = arguments.string();
    Scope scope(arguments.place());
    o.describe_with_filters();
    o.plan_for(longest);
    Plan &p = plan_of(scope, o.desc);
    Tensor memory = memory_of_spectra(p, o);
    Spectra(scope, p, o, memory).transform(scope, o);
    push(stack, std::move(memory));
}

/* hyena_apply(u, taps, bias, spectra, order, filters, long_taps, longest, offsets,
   accuracy) */
void hyena_apply(StableValue *stack, uint64_t, uint64_t)
{
    Arguments arguments(stack);
    Operands o;
    o.t[U] = arguments.tensor();
    o.t[TAPS] = arguments.tensor();
    o.t[BIAS] = arguments.optional_tensor();
    Tensor memory = arguments.tensor();
    int64_t order = arguments.integer(), filters = arguments.integer();
    int64_t long_taps = arguments.integer(), longest = arguments.integer();
    o.take_last(arguments);
    Scope scope(arguments.place());
    o.describe(order, filters, long_taps);
    if (!o.packed != !longest)
        fail("offsets come with the length that the spectra were made for");
    o.plan_for(longest);
    Plan &p = plan_of(scope, o.desc);
    if (!is_memory(memory) || static_cast<size_t>(memory.numel()) !=
                                  p.bytes * static_cast<size_t>(o.convolutions()))
        fail("spectra are what hyena_pack() returned");
    Spectra s(scope, p, o, memory);
    push(stack, run(scope, p, o, s));
}

} // namespace

#define HYENA_OPERANDS "Tensor u, Tensor taps, Tensor? bias, Tensor k, Tensor? skip"
#define HYENA          "hyena(" HYENA_OPERANDS ", " LAST ") -> Tensor"
#define HYENA_BACKWARD                                                                 \
    "hyena_backward(Tensor dy, " HYENA_OPERANDS ", int wanted, " LAST ", " KEPT        \
    ") -> (Tensor, Tensor, Tensor, Tensor, Tensor)"

/* Those with a _ have no gradients. */
const Operator hyena_operators[] = {
    { HYENA, "hyena", push_y<hyena> },
    { "_hyena(" HYENA_OPERANDS ", " LAST ") -> (Tensor, Tensor)", "_hyena",
      push_both<hyena> },
    { HYENA_BACKWARD, "hyena_backward", hyena_backward },
    { "_" HYENA_BACKWARD, "_hyena_backward", hyena_backward },
    { "hyena_pack(" HYENA_OPERANDS ", int longest=0, " ACCURACY ") -> Tensor",
      "hyena_pack", hyena_pack },
    { "hyena_apply(Tensor u, Tensor taps, Tensor? bias, Tensor spectra, int order, "
      "int filters, int long_taps, int longest=0, " LAST ") -> Tensor",
      "hyena_apply", hyena_apply },
    { nullptr, nullptr, nullptr },
};

} // namespace danaus_torch
