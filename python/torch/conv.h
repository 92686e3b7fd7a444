/* What operators of convolutions have in common: checks of their operands, and spectra in
   memory of PyTorch's. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DANAUS_TORCH_CONV_H
#define DANAUS_TORCH_CONV_H

#include "device.h"

#include <type_traits>

namespace danaus_torch
{

constexpr size_t most_plans = 64; /* of a thread: lengths may be as many as calls */
constexpr int64_t many_rows = 16; /* are planned alike, fewer by their number */

/* Sets an enumeration by its name, of these. */
template <class T>
void set(T &to, const std::string &name, const std::vector<std::string> &names)
{
    auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end())
        fail(
            name + " is none of " + names[0] + ", " + names[1] + ", " + names[2] +
            ", ...");
    to = static_cast<T>(found - names.begin());
}

inline danaus_dtype type_of(const Tensor &u)
{
    danaus_dtype type = danaus_type(u.dtype());
    if (!type || type == DANAUS_C64 || type == DANAUS_C128)
        fail("convolutions have the types float32, float16, bfloat16 and float64");
    return type;
}

inline danaus_dtype sum_type(danaus_dtype type)
{
    return type == DANAUS_F64 ? DANAUS_F64 : DANAUS_F32;
}

inline void expect_dim(const Tensor &t, const char *name, int64_t dim)
{
    if (t.dim() != dim)
        fail(std::string(name) + " needs " + std::to_string(dim) + " dimensions");
}

/* Makes an operand that is there row-major, or fails: it needs this type and shape. */
inline void expect(
    Tensor &t, const char *name, danaus_dtype type, const std::vector<int64_t> &shape)
{
    if (!t)
        return;
    if (danaus_type(t.dtype()) != type)
        fail(std::string(name) + " needs the type " + danaus_dtype_name(type));
    if (t.shape() != shape)
        fail(std::string(name) + " has a shape that does not fit");
    t = std::move(t).contiguous();
}

inline void *data(const Tensor &t) { return t ? t.data() : nullptr; }

/* Offsets of packed sequences, int64 on the CPU; or none. */
struct Sequences {
    Tensor offsets;

    explicit operator bool() const { return static_cast<bool>(offsets); }
    const int64_t *starts() const
    {
        return static_cast<const int64_t *>(offsets.data());
    }
    int64_t count() const { return offsets.numel() - 1; }

    /* Fails unless they are those of u, a batch of 1; the length of the longest. */
    int64_t longest_of(const Tensor &u)
    {
        if (offsets.dim() != 1 || offsets.numel() < 1 ||
            offsets.dtype() != shim.aoti_torch_dtype_int64() || offsets.place().cuda)
            fail("offsets are a tensor of int64 with one dimension, on the CPU");
        offsets = std::move(offsets).contiguous();
        const int64_t *at = starts();
        int64_t longest = 1;
        for (int64_t i = 0; i < count(); i++)
            if (at[i] >= 0 && at[i + 1] > at[i])
                longest = std::max(longest, at[i + 1] - at[i]);
        if (u.sizes()[0] != 1 || at[count()] != u.sizes()[2])
            fail(
                "offsets end with " + std::to_string(at[count()]) +
                ": u needs a batch of 1 and that length");
        return longest;
    }
};

/* Makes a description one of packed sequences; longest 0: of none. Plans are for few
   lengths, any gives the same. */
template <class Desc> void plan_for_longest(Desc &desc, int64_t longest)
{
    if (longest < 0 || longest > DANAUS_CONV_MOST_LENGTH)
        fail("sequences of " + std::to_string(longest) + " numbers");
    if (longest == 0)
        return;
    desc.packed = 1;
    for (desc.length = 128; desc.length < longest;)
        desc.length +=
            desc.length & (desc.length - 1) ? desc.length / 3 : desc.length / 2;
}

/* Tensors of a call, u first, and what describes it. */
template <int count, class Desc> struct ConvOperands {
    Tensor t[count];
    Tensor kept; /* the spectra of the forward pass, for the backward pass; or none */
    Sequences packed;
    std::string accuracy;
    Desc desc = {};

    /* What all operators but those for spectra end with. */
    void take_last(Arguments &arguments)
    {
        packed.offsets = arguments.optional_on_host();
        accuracy = arguments.string();
    }

    void describe_signal()
    {
        expect_dim(t[0], "u", 3);
        desc.length = columns();
        desc.dtype = type_of(t[0]);
        set(desc.accuracy, accuracy, { "by_type", "accurate", "fast" });
        expect(t[0], "u", desc.dtype, t[0].shape());
    }

    /* As planned_batch() in _conv_functions.py: what runs with spectra that are kept has
       the same plan, so that it is there when that is captured. */
    void plan_for_batch()
    {
        bool few = !packed && desc.channels * batch() < many_rows;
        desc.batch = few ? batch() : 0;
    }

    /* True if so many bytes of spectra wait for the backward pass: on a GPU, where making them
       again takes as long as a product, and where they take little more memory than u and y. */
    bool keeps(size_t bytes) const
    {
        size_t numbers = static_cast<size_t>(t[0].numel());
        return t[0].place().cuda &&
               bytes <= 9 * numbers * danaus_dtype_size(desc.dtype) / 4;
    }

    /* The kept spectra, if they are there, are those of the plan. */
    void check_kept(size_t bytes) const
    {
        if (kept && static_cast<size_t>(kept.numel()) != bytes)
            fail("these spectra are not those of the forward pass");
    }

    int64_t batch() const { return t[0].sizes()[0]; }
    int64_t columns() const { return t[0].sizes()[2]; }
    void *at(int i) const { return data(t[i]); }
    Tensor like(int i) const
    {
        return Tensor::empty(t[i].shape(), t[i].dtype(), t[i].place());
    }
    std::vector<int64_t> result_shape() const
    {
        return { batch(), desc.channels, columns() };
    }
    Tensor result() const
    {
        return Tensor::empty(result_shape(), t[0].dtype(), t[0].place());
    }
};

/* The operator (dy, operands, wanted, offsets, accuracy, kept): gradients of the operands i whose
   bit of `wanted` is set, by differentiate(), and nothing in place of the others. A null
   batch has zeros. */
template <class O> void backward(StableValue *stack, O (*take_operands)(Arguments &))
{
    Arguments arguments(stack);
    Tensor dy = arguments.tensor();
    O o = take_operands(arguments);
    int64_t wanted = arguments.integer();
    o.take_last(arguments);
    o.kept = arguments.optional_tensor();
    Scope scope(arguments.place());
    o.describe_with_filters();
    expect(dy, "dy", o.desc.dtype, o.result_shape());

    constexpr int count = std::extent_v<decltype(o.t)>;
    Tensor gradients[count];
    void *to[count] = {};
    for (int i = 0; i < count; i++) {
        bool is_wanted = wanted >> i & 1;
        if (is_wanted && !o.t[i])
            fail("a gradient of an operand that is not there");
        gradients[i] = is_wanted ? o.like(i)
                                 : Tensor::empty({ 0 }, o.t[0].dtype(), o.t[0].place());
        if (is_wanted)
            to[i] = gradients[i].data();
    }
    if (o.batch() > 0)
        differentiate(scope, o, dy, to);
    else
        for (const Tensor &gradient : gradients)
            check(shim.aoti_torch_zero_(gradient.get()), "zero a tensor");
    for (int i = 0; i < count; i++)
        push(&stack[i], std::move(gradients[i]));
}

/* Operators of a function that returns y and puts spectra, or nothing, into its argument: y
   alone; and both, of which the backward pass takes the spectra. */
using Forward = Tensor(StableValue *stack, Tensor &spectra);

template <Forward run> void push_y(StableValue *stack, uint64_t, uint64_t)
{
    Tensor spectra;
    push(stack, run(stack, spectra));
}

template <Forward run> void push_both(StableValue *stack, uint64_t, uint64_t)
{
    Tensor spectra, y = run(stack, spectra);
    push(stack, std::move(y));
    push(&stack[1], std::move(spectra));
}

/* The thread's plan for a description; `kind` tells plans from those of others. */
template <class Plan, class Desc, class Make>
Plan &cached_plan(Scope &scope, char kind, const Desc &desc, Make make)
{
    std::string key(1, kind);
    key.append(reinterpret_cast<const char *>(&desc), sizeof desc);
    return scope.cached<Plan>(key, [&] {
        scope.keep(kind, most_plans);
        std::unique_ptr<Plan> made(new Plan);
        make(*made);
        return made;
    });
}

inline Tensor make_memory(size_t bytes, Place place)
{
    return Tensor::empty(
        { static_cast<int64_t>(bytes) }, shim.aoti_torch_dtype_uint8(), place);
}

/* True for what make_memory() may have made. */
inline bool is_memory(const Tensor &memory)
{
    return memory.dtype() == shim.aoti_torch_dtype_uint8() && memory.is_contiguous();
}

/* A spectrum in memory of a tensor's, which the caller keeps. */
class Spectrum
{
  public:
    Spectrum(Scope &scope, const danaus_conv_plan *plan, void *memory, size_t bytes)
    {
        check(
            danaus_spectrum_create_in(plan, scope.device(), memory, bytes, &spectrum_));
    }
    Spectrum(const Spectrum &) = delete;
    Spectrum &operator=(const Spectrum &) = delete;
    ~Spectrum() { danaus_spectrum_destroy(spectrum_); }

    danaus_spectrum *get() const { return spectrum_; }

  private:
    danaus_spectrum *spectrum_ = nullptr;
};

/* What the schemas of operators end with. */
#define ACCURACY "str accuracy=\"by_type\""
#define LAST     "Tensor? offsets=None, " ACCURACY
#define KEPT     "Tensor? kept=None"

} // namespace danaus_torch

#endif
