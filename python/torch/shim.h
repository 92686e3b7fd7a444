/* PyTorch's stable C interface, without its headers: functions found in the libtorch that
   the process has loaded, and owners for what they hand out.

   A kernel is a function of a stack of 64-bit values (PyTorch's "boxed" convention): it
   takes its arguments off, all of which it owns, and leaves its results there. Arguments
   is for the first half, the functions push() are for the second.

   Every function here throws std::runtime_error with a sentence, which PyTorch turns into
   a Python RuntimeError.

   Source: torch/csrc/stable/library.h and stableivalue_conversions.h of PyTorch 2.10. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DANAUS_TORCH_SHIM_H
#define DANAUS_TORCH_SHIM_H

#include "danaus/danaus.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace danaus_torch
{

using Error = int32_t;
using StableValue = uint64_t;
using BoxedKernel = void(StableValue *stack, uint64_t arguments, uint64_t results);
using TensorHandle = struct TensorOpaque *;
using ListHandle = struct ListOpaque *;
using StringHandle = struct StringOpaque *;
using GuardHandle = struct GuardOpaque *;
using LibraryHandle = struct LibraryOpaque *;

/* The convention of values and lists that is asked for: that of PyTorch 2.10. */
constexpr uint64_t torch_version = UINT64_C(2) << 56 | UINT64_C(10) << 48;

struct Shim {
#define X(result, name, arguments) result(*name) arguments;
#define Y(result, name, arguments) result(*name) arguments;
#include "shim.def"
#undef X
#undef Y
};

/* Filled by load_shim(), constant afterwards. */
extern Shim shim;

/* Finds all functions. Returns an empty string, or a sentence on what is missing. */
std::string load_shim();

/* Throws if a function of libtorch failed. */
void check(Error error, const char *what);

/* Throws the library's sentence if a function of danaus failed. */
void check(danaus_status status);

/* Throws a sentence of our own. */
[[noreturn]] void fail(const std::string &sentence);

/* An element type, as danaus knows it; 0: one that danaus has not. */
danaus_dtype danaus_type(int32_t torch_dtype);
int32_t torch_type(danaus_dtype dtype);

/* ---- tensors ---- */

/* Where a tensor lies: index is -1, or 0, on the CPU. */
struct Place {
    bool cuda;
    int32_t index;
    bool operator==(const Place &other) const
    {
        return cuda == other.cuda && (!cuda || index == other.index);
    }
};

/* Owns a tensor, or nothing. */
class Tensor
{
  public:
    Tensor() = default;
    explicit Tensor(TensorHandle owned) : handle_(owned) {}
    Tensor(Tensor &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Tensor &operator=(Tensor &&other) noexcept
    {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Tensor();

    /* Uninitialised, row-major. */
    static Tensor empty(const std::vector<int64_t> &sizes, int32_t dtype, Place place);

    explicit operator bool() const { return handle_ != nullptr; }
    TensorHandle get() const { return handle_; }
    TensorHandle release() { return std::exchange(handle_, nullptr); }

    int64_t dim() const;
    int64_t numel() const;
    const int64_t *sizes() const;   /* dim() of them, as long as the tensor lives */
    const int64_t *strides() const; /* in elements */
    int32_t dtype() const;          /* in PyTorch's numbers */
    Place place() const;
    bool is_contiguous() const;
    void *data() const;
    std::vector<int64_t> shape() const { return { sizes(), sizes() + dim() }; }

    /* The same numbers row-major: this one, or a copy. */
    Tensor contiguous() &&;

  private:
    TensorHandle handle_ = nullptr;
};

/* ---- arguments and results ---- */

/* Takes arguments off the stack, in order; what is not taken is leaked, so a kernel takes
   all of them before it does anything that can throw. Its next step is to ask for their
   place. */
class Arguments
{
  public:
    explicit Arguments(const StableValue *stack) : next_(stack) {}
    Tensor tensor();
    Tensor optional_tensor();  /* owns nothing if there is none */
    Tensor optional_on_host(); /* the same, of one that may lie anywhere */
    std::vector<Tensor> tensors();
    std::vector<int64_t> integers();
    std::string string();
    int64_t integer() { return static_cast<int64_t>(*next_++); }
    bool boolean() { return static_cast<uint8_t>(*next_++) != 0; }

    /* Where all tensors lie that were taken; fails unless that is one place. */
    Place place() const;

  private:
    Tensor seen(Tensor t);

    const StableValue *next_;
    Place places_[2] = {}; /* of the first tensor, and another one */
    int count_ = 0;        /* of these */
};

inline void push(StableValue *slot, Tensor t)
{
    *slot = reinterpret_cast<StableValue>(t.release());
}
inline void push(StableValue *slot, bool value) { *slot = value; }
void push(StableValue *slot, std::vector<Tensor> list);
void push(StableValue *slot, const std::string &text);

/* ---- operators ---- */

/* A row of an operator table; tables end with a row without a schema. */
struct Operator {
    const char *schema; /* "ks_pack(Tensor[] weights, ...) -> Tensor" */
    const char *name;
    BoxedKernel *kernel; /* for tensors on the CPU and on CUDA devices */
};
extern const Operator ks_operators[], conv_operators[], hyena_operators[],
    cayley_operators[], same_operators[];

} // namespace danaus_torch

#endif
