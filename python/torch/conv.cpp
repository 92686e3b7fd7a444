/* Operators of convolutions (danaus/conv.h).

   Every operator is a function of its tensors: filters are transformed into memory of
   PyTorch's at each call. What a thread keeps between calls are plans, the latest ones,
   and on a CPU the memory for a spectrum, if it is small: fresh memory costs as much as
   the transform. On a GPU it belongs to a call, as streams and graphs need it. */
// SPDX-License-Identifier: Apache-2.0
#include "conv.h"

namespace danaus_torch
{

namespace
{

constexpr size_t most_kept = size_t(64) << 20; /* bytes of memory that a thread keeps */

/* ---- long convolutions ---- */

struct Plan : Cached {
    danaus_conv_plan *plan = nullptr;
    size_t bytes = 0; /* of a spectrum */

    ~Plan() override { danaus_conv_plan_destroy(plan); }
};

Plan &plan_of(Scope &scope, const danaus_conv_desc &desc)
{
    return cached_plan<Plan>(scope, 'c', desc, [&](Plan &made) {
        check(danaus_conv_plan_create(scope.device(), &desc, &made.plan));
        check(danaus_spectrum_bytes(made.plan, &made.bytes));
    });
}

Spectrum spectrum_in(Scope &scope, const Plan &p, const Tensor &memory)
{
    return Spectrum(scope, p.plan, memory.data(), static_cast<size_t>(memory.numel()));
}

struct Memory : Cached {
    Tensor tensor;
};

/* Memory for the spectrum of one call: the thread's, or, on a GPU and where that would be
   much, new memory that the caller owns. */
const Tensor &memory_of_call(Scope &scope, const Plan &p, Place place, Tensor &owned)
{
    if (place.cuda || p.bytes > most_kept)
        return owned = make_memory(p.bytes, place);
    Memory &kept =
        scope.cached<Memory>("s", [] { return std::unique_ptr<Memory>(new Memory); });
    if (!kept.tensor || static_cast<size_t>(kept.tensor.numel()) < p.bytes)
        kept.tensor = make_memory(p.bytes, place);
    return kept.tensor;
}

enum { U, K, K_REVERSE, SKIP, GATE_IN, GATE_OUT, OPERANDS };

struct Operands : ConvOperands<OPERANDS, danaus_conv_desc> {
    std::string kind;
    /* Eight numbers for sparse spectra: four axes and how many of each to keep. Four for planes
       and centred rows: the height, that of filters, and the centre (down, across). Else none. */
    std::vector<int64_t> form;

    /* Describes a call that begins with u and may end with filters. */
    void describe(int64_t filters, int64_t taps)
    {
        describe_signal();
        desc.channels = t[U].sizes()[1];
        desc.filters = filters;
        desc.filter_length = taps;
        set(desc.kind, kind, { "causal", "circular", "bidirectional", "centred" });
        expect(t[GATE_IN], "gate_in", desc.dtype, result_shape());
        expect(t[GATE_OUT], "gate_out", desc.dtype, result_shape());
        if (filters < 1 || taps < 1)
            fail("at least one filter and one tap are needed");
        if (form.size() == 8)
            describe_sparse();
        else if (form.size() == 4)
            describe_plane();
        else if (!form.empty())
            fail("a form has four numbers or eight");
        if (packed)
            plan_for_longest(desc, packed.longest_of(t[U]));
    }

    void describe_sparse()
    {
        for (size_t i = 0; i < form.size(); i++) {
            if (form[i] < 1 || form[i] > DANAUS_CONV_MOST_LENGTH)
                fail("sparse spectra have no such axis");
            (i < 4 ? desc.axes : desc.keep)[i % 4] = static_cast<int32_t>(form[i]);
        }
    }

    /* u and k come with both axes of a plane as one. */
    void describe_plane()
    {
        for (int64_t number : form)
            if (number < 0 || number > DANAUS_CONV_MOST_LENGTH)
                fail("planes have no such size");
        desc.height = static_cast<int32_t>(form[0]);
        desc.filter_height = static_cast<int32_t>(form[1]);
        desc.centre[0] = static_cast<int32_t>(form[2]);
        desc.centre[1] = static_cast<int32_t>(form[3]);
        int64_t rows = std::max<int64_t>(form[0], 1);
        int64_t tap_rows = std::max<int64_t>(form[1], 1);
        if (desc.length % rows || desc.filter_length % tap_rows)
            fail("u and k are no planes of these heights");
        desc.length /= rows;
        desc.filter_length /= tap_rows;
    }

    void describe_with_filters()
    {
        expect_dim(t[K], "k", 2);
        std::vector<int64_t> shape = t[K].shape();
        describe(shape[0], shape[1]);
        danaus_dtype sums = sum_type(desc.dtype);
        expect(t[K], "k", sums, shape);
        expect(t[K_REVERSE], "k_reverse", sums, shape);
        expect(t[SKIP], "skip", sums, { shape[0] });
        plan_for_batch();
    }

    void transform(Scope &scope, const Spectrum &to) const
    {
        check(danaus_spectrum_update_from(
            to.get(), scope.device(), sum_type(desc.dtype), at(K), at(K_REVERSE),
            at(SKIP)));
    }
};

Operands take_operands(Arguments &arguments)
{
    Operands o;
    o.t[U] = arguments.tensor();
    o.t[K] = arguments.tensor();
    for (int i = K_REVERSE; i < OPERANDS; i++)
        o.t[i] = arguments.optional_tensor();
    o.kind = arguments.string();
    o.form = arguments.integers();
    return o;
}

Tensor convolve(Scope &scope, const Plan &p, const Operands &o, const Spectrum &s)
{
    Tensor y = o.result();
    if (o.packed)
        check(danaus_conv_execute_packed(
            p.plan, scope.device(), s.get(), o.packed.count(), o.packed.starts(),
            o.at(U), o.at(GATE_IN), o.at(GATE_OUT), y.data()));
    else
        check(danaus_conv_execute(
            p.plan, scope.device(), s.get(), o.batch(), o.at(U), o.at(GATE_IN),
            o.at(GATE_OUT), y.data()));
    return y;
}

/* long_conv(u, k, k_reverse, skip, gate_in, gate_out, kind, form, offsets, accuracy): y, and the
   spectrum of the filters if it is to be kept. */
Tensor long_conv(StableValue *stack, Tensor &spectrum)
{
    Arguments arguments(stack);
    Operands o = take_operands(arguments);
    o.take_last(arguments);
    Scope scope(arguments.place());
    o.describe_with_filters();
    Plan &p = plan_of(scope, o.desc);
    Tensor owned;
    Spectrum s = spectrum_in(scope, p, memory_of_call(scope, p, o.t[U].place(), owned));
    o.transform(scope, s);
    Tensor y = convolve(scope, p, o, s);
    spectrum = std::move(owned);
    if (!spectrum || !o.keeps(p.bytes))
        spectrum = make_memory(0, o.t[U].place());
    return y;
}

/* Gradients of the operands that have a place. */
void differentiate(
    Scope &scope, const Operands &o, const Tensor &dy, void *(&to)[OPERANDS])
{
    danaus_conv_gradients g = { to[U], to[GATE_IN],   to[GATE_OUT],
                                to[K], to[K_REVERSE], to[SKIP],
                                {} };
    Plan &p = plan_of(scope, o.desc);
    o.check_kept(p.bytes);
    Tensor owned;
    const Tensor &memory =
        o.kept ? o.kept : memory_of_call(scope, p, o.t[U].place(), owned);
    Spectrum s = spectrum_in(scope, p, memory);
    bool needs_spectrum = g.du || g.dgate_in || g.dgate_out;
    if (needs_spectrum && !o.kept)
        o.transform(scope, s);
    if (o.packed)
        check(danaus_conv_gradient_packed(
            p.plan, scope.device(), s.get(), o.packed.count(), o.packed.starts(),
            o.at(U), o.at(GATE_IN), o.at(GATE_OUT), dy.data(), &g));
    else
        check(danaus_conv_gradient(
            p.plan, scope.device(), s.get(), o.batch(), o.at(U), o.at(GATE_IN),
            o.at(GATE_OUT), dy.data(), &g));
}

/* long_conv_backward(dy, ..., wanted, offsets, accuracy, kept) */
void long_conv_backward(StableValue *stack, uint64_t, uint64_t)
{
    backward(stack, take_operands);
}

/* long_conv_pack(like, k, k_reverse, skip, kind, form, batch, longest, accuracy) */
void long_conv_pack(StableValue *stack, uint64_t, uint64_t)
{
    Arguments arguments(stack);
    Operands o;
    o.t[U] = arguments.tensor();
    o.t[K] = arguments.tensor();
    o.t[K_REVERSE] = arguments.optional_tensor();
    o.t[SKIP] = arguments.optional_tensor();
    o.kind = arguments.string();
    o.form = arguments.integers();
    int64_t batch = arguments.integer(), longest = arguments.integer();
    o.accuracy = arguments.string();
    Scope scope(arguments.place());
    o.describe_with_filters();
    o.desc.batch = batch;
    plan_for_longest(o.desc, longest);
    Plan &p = plan_of(scope, o.desc);
    Tensor memory = make_memory(p.bytes, o.t[U].place());
    Spectrum s = spectrum_in(scope, p, memory);
    o.transform(scope, s);
    push(stack, std::move(memory));
}

/* long_conv_apply(u, spectrum, gate_in, gate_out, filters, taps, ..., accuracy) */
void long_conv_apply(StableValue *stack, uint64_t, uint64_t)
{
    Arguments arguments(stack);
    Operands o;
    o.t[U] = arguments.tensor();
    Tensor memory = arguments.tensor();
    o.t[GATE_IN] = arguments.optional_tensor();
    o.t[GATE_OUT] = arguments.optional_tensor();
    int64_t filters = arguments.integer(), taps = arguments.integer();
    o.kind = arguments.string();
    o.form = arguments.integers();
    o.desc.batch = arguments.integer();
    int64_t longest = arguments.integer();
    o.take_last(arguments);
    Scope scope(arguments.place());
    o.describe(filters, taps);
    if (!o.packed != !longest)
        fail("offsets come with the length that the spectrum was made for");
    plan_for_longest(o.desc, longest);
    if (!is_memory(memory))
        fail("a spectrum is what long_conv_pack() returned");
    Plan &p = plan_of(scope, o.desc);
    Spectrum s = spectrum_in(scope, p, memory);
    push(stack, convolve(scope, p, o, s));
}

/* ---- few taps ---- */

danaus_short_desc describe_short(Tensor &u, Tensor &k, bool channels_last, bool centred)
{
    expect_dim(u, "u", 3);
    expect_dim(k, "k", 2);
    danaus_short_desc desc = {};
    desc.channels = u.sizes()[channels_last ? 2 : 1];
    desc.length = u.sizes()[channels_last ? 1 : 2];
    desc.taps = k.sizes()[1];
    desc.centred = centred;
    desc.layout = channels_last ? DANAUS_CHANNELS_LAST : DANAUS_CHANNELS_FIRST;
    desc.dtype = type_of(u);
    expect(u, "u", desc.dtype, u.shape());
    expect(k, "k", sum_type(desc.dtype), { desc.channels, desc.taps });
    return desc;
}

/* short_conv(u, k, bias, channels_last, centred) */
void short_conv(StableValue *stack, uint64_t, uint64_t)
{
    Arguments arguments(stack);
    Tensor u = arguments.tensor(), k = arguments.tensor();
    Tensor bias = arguments.optional_tensor();
    bool channels_last = arguments.boolean(), centred = arguments.boolean();
    Scope scope(arguments.place());
    danaus_short_desc desc = describe_short(u, k, channels_last, centred);
    expect(bias, "bias", sum_type(desc.dtype), { desc.channels });
    Tensor y = Tensor::empty(u.shape(), u.dtype(), u.place());
    check(danaus_short_conv(
        scope.device(), &desc, u.sizes()[0], k.data(), data(bias), u.data(), y.data()));
    push(stack, std::move(y));
}

/* short_conv_backward(dy, u, k, channels_last, centred, wanted): du, dk, dbias. */
void short_conv_backward(StableValue *stack, uint64_t, uint64_t)
{
    Arguments arguments(stack);
    Tensor dy = arguments.tensor(), u = arguments.tensor(), k = arguments.tensor();
    bool channels_last = arguments.boolean(), centred = arguments.boolean();
    int64_t wanted = arguments.integer();
    Scope scope(arguments.place());
    danaus_short_desc desc = describe_short(u, k, channels_last, centred);
    expect(dy, "dy", desc.dtype, u.shape());
    const std::vector<int64_t> shapes[] = { u.shape(), k.shape(), { desc.channels } };
    const int32_t types[] = { u.dtype(), k.dtype(), k.dtype() };
    Tensor to[3];
    for (int i = 0; i < 3; i++)
        to[i] = wanted >> i & 1 ? Tensor::empty(shapes[i], types[i], u.place())
                                : Tensor::empty({ 0 }, u.dtype(), u.place());
    auto at = [&](int i) { return wanted >> i & 1 ? to[i].data() : nullptr; };
    danaus_short_gradients g = { at(0), at(1), at(2), {} };
    if (u.sizes()[0] > 0)
        check(danaus_short_conv_gradient(
            scope.device(), &desc, u.sizes()[0], k.data(), u.data(), dy.data(), &g));
    else
        for (const Tensor &gradient : to)
            check(shim.aoti_torch_zero_(gradient.get()), "zero a tensor");
    for (int i = 0; i < 3; i++)
        push(&stack[i], std::move(to[i]));
}

} // namespace

#define LONG_OPERANDS                                                                  \
    "Tensor u, Tensor k, Tensor? k_reverse, Tensor? skip, Tensor? gate_in, "           \
    "Tensor? gate_out, str kind, int[] form"
#define LONG "long_conv(" LONG_OPERANDS ", " LAST ") -> Tensor"
#define LONG_BACKWARD                                                                  \
    "long_conv_backward(Tensor dy, " LONG_OPERANDS ", int wanted, " LAST ", " KEPT     \
    ") -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
#define SHORT                                                                          \
    "short_conv(Tensor u, Tensor k, Tensor? bias, bool channels_last, bool centred) "  \
    "-> Tensor"
#define SHORT_BACKWARD                                                                 \
    "short_conv_backward(Tensor dy, Tensor u, Tensor k, bool channels_last, "          \
    "bool centred, int wanted) -> (Tensor, Tensor, Tensor)"

/* Those with a _ have no gradients. */
const Operator conv_operators[] = {
    { LONG, "long_conv", push_y<long_conv> },
    { "_long_conv(" LONG_OPERANDS ", " LAST ") -> (Tensor, Tensor)", "_long_conv",
      push_both<long_conv> },
    { LONG_BACKWARD, "long_conv_backward", long_conv_backward },
    { "_" LONG_BACKWARD, "_long_conv_backward", long_conv_backward },
    { "long_conv_pack(Tensor like, Tensor k, Tensor? k_reverse, Tensor? skip, "
      "str kind, int[] form, int batch, int longest=0, " ACCURACY ") -> Tensor",
      "long_conv_pack", long_conv_pack },
    { "long_conv_apply(Tensor u, Tensor spectrum, Tensor? gate_in, Tensor? gate_out, "
      "int filters, int taps, str kind, int[] form, int batch, int longest=0, " LAST
      ") -> Tensor",
      "long_conv_apply", long_conv_apply },
    { SHORT, "short_conv", short_conv },
    { "_" SHORT, "_short_conv", short_conv },
    { SHORT_BACKWARD, "short_conv_backward", short_conv_backward },
    { "_" SHORT_BACKWARD, "_short_conv_backward", short_conv_backward },
    { nullptr, nullptr, nullptr },
};

} // namespace danaus_torch
