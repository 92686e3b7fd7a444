"""`.weight` of layers that stand for torch.nn.Linear and have no matrix."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from danaus.torch._ops import is_traced

# What is known without the matrix: functions, and getters of attributes.
_FACTS = {
    *(getattr(Tensor, name) for name in ("size dim ndimension numel nelement "
      "element_size is_floating_point is_complex is_inference get_device "
      "is_contiguous stride __len__ __hash__").split()),
    *(getattr(Tensor, name).__get__ for name in ("shape dtype device layout ndim "
      "requires_grad grad grad_fn is_leaf itemsize nbytes is_cuda is_cpu is_meta "
      "is_sparse is_quantized is_nested is_mkldnn is_mps is_xpu _version").split()),
    torch.numel, torch.is_floating_point, torch.is_complex,
}  # fmt: skip
_DETACHED = {Tensor.detach, torch.detach, Tensor.data.__get__}
# What would change or name a matrix that is gone afterwards.
_REFUSED = {
    "__set__", "__delete__", "data_ptr", "register_hook", "requires_grad_",
    "retain_grad", "set_", "share_memory_",
}  # fmt: skip


class DenseWeight(Tensor):
    """The matrix W of a layer, which is computed whenever something computes with it.

    Its shape, dtype and device cost nothing. Results have gradients for the layer's
    factors; `detach` and `data` have none. It is read-only.
    """

    _is_hf_initialized = True  # or models of transformers write to it when they load

    def __new__(cls, layer: nn.Module, gradients: bool = True):
        of = layer.factors()
        kind = {"dtype": of[0].dtype, "device": of[0].device}
        kind["requires_grad"] = gradients and any(w.requires_grad for w in of)
        sizes = layer.out_features, layer.in_features
        made = Tensor._make_wrapper_subclass(cls, sizes, **kind)
        made._layer = layer
        return made

    def dense(self) -> Tensor:
        """The matrix as an ordinary tensor."""
        gradients = torch.is_grad_enabled() and self._has_gradients()
        with torch.inference_mode(False), torch.set_grad_enabled(gradients):
            return self._layer.to_dense()

    def __deepcopy__(self, memo: dict) -> Tensor:
        """A matrix of its own, as copies of a torch.nn.Linear's weight are."""
        gradients = self._has_gradients()
        return memo.setdefault(
            id(self), self.dense().detach().requires_grad_(gradients)
        )

    def _has_gradients(self) -> bool:
        with torch._C.DisableTorchFunctionSubclass():
            return self.requires_grad

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None) -> Any:
        if function in _FACTS:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*args, **(kwargs or {}))
        if function in _DETACHED:
            return cls(args[0]._layer, gradients=False)
        if function.__name__ in _REFUSED:
            raise RuntimeError(_READ_ONLY)
        made: list[Tensor] = []

        def dense(weight: DenseWeight) -> Tensor:
            made.append(weight.dense())
            return made[-1]

        found = function(*tree_map_only(DenseWeight, dense, args), **tree_map_only(
            DenseWeight, dense, kwargs or {}))  # fmt: skip
        if any(matrix._version for matrix in made):
            raise RuntimeError(_READ_ONLY)
        return found

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None) -> Any:
        return cls.__torch_function__(function, types, args, kwargs)


_READ_ONLY = (
    "the weight of this layer is a product of factors and can be read only: write to "
    "its factors, layer.weights[0] and the following"
)


class LinearLike(nn.Module):
    """A layer with in_features, out_features, to_dense() and factors().

    Its forward() calls x `input`, as torch.nn.Linear does.
    """

    @property
    def weight(self) -> Tensor:
        """W [M, N], for what reads it of a torch.nn.Linear: see `DenseWeight`."""
        return self.to_dense() if is_traced() else DenseWeight(self)

    def register_parameter(self, name: str, parameter: nn.Parameter | None) -> None:
        if name == "weight":
            raise TypeError(
                f"{type(self).__name__} has factors instead of a weight: it cannot "
                "share or take one, such as that of an embedding"
            )
        super().register_parameter(name, parameter)
