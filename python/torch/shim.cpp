/* Finding libtorch's functions, and owners of what they hand out. */
// SPDX-License-Identifier: Apache-2.0
#include "shim.h"

#include <dlfcn.h>

#include <stdexcept>

namespace danaus_torch
{

Shim shim;

std::string load_shim()
{
    void *cpu = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
    void *cuda = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    if (!cpu)
        return "libtorch_cpu.so is not in this process: import torch first";
    const char *missing = nullptr;
#define X(result, name, arguments)                                                     \
    shim.name = reinterpret_cast<result(*) arguments>(dlsym(cpu, #name));              \
    if (!shim.name)                                                                    \
        missing = #name;
#define Y(result, name, arguments)                                                     \
    shim.name =                                                                        \
        cuda ? reinterpret_cast<result(*) arguments>(dlsym(cuda, #name)) : nullptr;    \
    if (cuda && !shim.name)                                                            \
        missing = #name;
#include "shim.def"
#undef X
#undef Y
    if (missing)
        return std::string("this PyTorch has no function ") + missing +
               ": danaus.torch needs PyTorch 2.10 or later";
    return "";
}

void fail(const std::string &sentence) { throw std::runtime_error(sentence); }

void check(Error error, const char *what)
{
    if (error)
        fail(std::string("PyTorch could not ") + what);
}

void check(danaus_status status)
{
    if (status != DANAUS_OK)
        fail(danaus_error_detail());
}

/* ---- element types ---- */

namespace
{

struct TypePair {
    danaus_dtype danaus;
    int32_t torch;
};

const std::vector<TypePair> &types()
{
    static const std::vector<TypePair> all = {
        { DANAUS_F32, shim.aoti_torch_dtype_float32() },
        { DANAUS_F16, shim.aoti_torch_dtype_float16() },
        { DANAUS_BF16, shim.aoti_torch_dtype_bfloat16() },
        { DANAUS_F64, shim.aoti_torch_dtype_float64() },
        { DANAUS_C64, shim.aoti_torch_dtype_complex64() },
        { DANAUS_C128, shim.aoti_torch_dtype_complex128() },
    };
    return all;
}

} // namespace

danaus_dtype danaus_type(int32_t torch_dtype)
{
    for (const TypePair &t : types())
        if (t.torch == torch_dtype)
            return t.danaus;
    return danaus_dtype(0);
}

int32_t torch_type(danaus_dtype dtype)
{
    for (const TypePair &t : types())
        if (t.danaus == dtype)
            return t.torch;
    fail("PyTorch has no type like " + std::string(danaus_dtype_name(dtype)));
}

/* ---- tensors ---- */

Tensor::~Tensor()
{
    if (handle_)
        shim.aoti_torch_delete_tensor_object(handle_);
}

Tensor Tensor::empty(const std::vector<int64_t> &sizes, int32_t dtype, Place place)
{
    std::vector<int64_t> strides(sizes.size());
    int64_t step = 1;
    for (size_t i = sizes.size(); i-- > 0; step *= sizes[i] > 0 ? sizes[i] : 1)
        strides[i] = step;
    TensorHandle made;
    check(
        shim.aoti_torch_empty_strided(
            static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(), dtype,
            place.cuda ? shim.aoti_torch_device_type_cuda()
                       : shim.aoti_torch_device_type_cpu(),
            place.cuda ? place.index : 0, &made),
        "allocate a tensor");
    return Tensor(made);
}

int64_t Tensor::dim() const
{
    int64_t dim;
    check(shim.aoti_torch_get_dim(handle_, &dim), "tell a tensor's dimensions");
    return dim;
}

int64_t Tensor::numel() const
{
    int64_t numel;
    check(shim.aoti_torch_get_numel(handle_, &numel), "count a tensor's elements");
    return numel;
}

const int64_t *Tensor::sizes() const
{
    int64_t *sizes;
    check(shim.aoti_torch_get_sizes(handle_, &sizes), "tell a tensor's sizes");
    return sizes;
}

const int64_t *Tensor::strides() const
{
    int64_t *strides;
    check(shim.aoti_torch_get_strides(handle_, &strides), "tell a tensor's strides");
    return strides;
}

int32_t Tensor::dtype() const
{
    int32_t dtype;
    check(shim.aoti_torch_get_dtype(handle_, &dtype), "tell a tensor's type");
    return dtype;
}

Place Tensor::place() const
{
    int32_t type, index;
    check(shim.aoti_torch_get_device_type(handle_, &type), "tell a tensor's device");
    check(shim.aoti_torch_get_device_index(handle_, &index), "tell a tensor's device");
    bool cuda = type == shim.aoti_torch_device_type_cuda();
    if (!cuda && type != shim.aoti_torch_device_type_cpu())
        fail("danaus has operators for CPUs and CUDA devices alone");
    return { cuda, index };
}

bool Tensor::is_contiguous() const
{
    bool contiguous;
    check(shim.aoti_torch_is_contiguous(handle_, &contiguous), "tell a layout");
    return contiguous;
}

void *Tensor::data() const
{
    void *data;
    check(shim.aoti_torch_get_data_ptr(handle_, &data), "find a tensor's memory");
    return data;
}

Tensor Tensor::contiguous() &&
{
    if (is_contiguous())
        return std::move(*this);
    Tensor copy = empty(shape(), dtype(), place());
    check(shim.aoti_torch_copy_(copy.get(), get(), 0), "copy a tensor");
    return copy;
}

/* ---- arguments and results ---- */

namespace
{

/* The items of a list that is owned. */
std::vector<StableValue> take_list(StableValue value)
{
    ListHandle list = reinterpret_cast<ListHandle>(value);
    size_t size;
    check(shim.torch_list_size(list, &size), "count a list");
    std::vector<StableValue> items(size);
    for (size_t i = 0; i < size; i++)
        check(shim.torch_list_get_item(list, i, &items[i]), "read a list");
    check(shim.torch_delete_list(list), "free a list");
    return items;
}

} // namespace

Tensor Arguments::seen(Tensor t)
{
    if (!t)
        return t;
    Place place = t.place();
    if (count_ == 0 || (count_ == 1 && !(places_[0] == place)))
        places_[count_++] = place;
    return t;
}

Place Arguments::place() const
{
    auto name = [](Place p) {
        return p.cuda ? "cuda:" + std::to_string(p.index) : std::string("cpu");
    };
    if (count_ == 0)
        fail("an operator needs a tensor, to tell where it runs");
    if (count_ > 1)
        fail(
            "tensors lie on " + name(places_[0]) + " and on " + name(places_[1]) +
            ": all have to be on one device");
    return places_[0];
}

Tensor Arguments::tensor()
{
    return seen(Tensor(reinterpret_cast<TensorHandle>(*next_++)));
}

Tensor Arguments::optional_tensor() { return seen(optional_on_host()); }

/* PyTorch allocates what optional arguments point to by `new`, for kernels that ask for
   the convention of 2.10. */
Tensor Arguments::optional_on_host()
{
    StableValue *value = reinterpret_cast<StableValue *>(*next_++);
    if (!value)
        return Tensor();
    Tensor tensor(reinterpret_cast<TensorHandle>(*value));
    delete value;
    return tensor;
}

std::vector<Tensor> Arguments::tensors()
{
    std::vector<Tensor> tensors;
    for (StableValue item : take_list(*next_++))
        tensors.push_back(seen(Tensor(reinterpret_cast<TensorHandle>(item))));
    return tensors;
}

std::vector<int64_t> Arguments::integers()
{
    std::vector<int64_t> integers;
    for (StableValue item : take_list(*next_++))
        integers.push_back(static_cast<int64_t>(item));
    return integers;
}

std::string Arguments::string()
{
    StringHandle handle = reinterpret_cast<StringHandle>(*next_++);
    const char *text;
    check(shim.torch_string_c_str(handle, &text), "read a string");
    std::string copy = text;
    check(shim.torch_delete_string(handle), "free a string");
    return copy;
}

void push(StableValue *slot, std::vector<Tensor> list)
{
    ListHandle made;
    check(shim.torch_new_list_reserve_size(list.size(), &made), "make a list");
    for (Tensor &tensor : list) {
        StableValue item;
        push(&item, std::move(tensor));
        check(shim.torch_list_push_back(made, item), "fill a list");
    }
    *slot = reinterpret_cast<StableValue>(made);
}

void push(StableValue *slot, const std::string &text)
{
    StringHandle made;
    check(
        shim.torch_new_string_handle(text.data(), text.size(), &made), "make a string");
    *slot = reinterpret_cast<StableValue>(made);
}

} // namespace danaus_torch
