"""Linear layers whose matrix is a chain of Kronecker-sparse factors."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import threading
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from danaus import patterns as named
from danaus.chain import Chain
from danaus.factorize import factorize
from danaus.patterns import Patterns
from danaus.torch._ops import Linear, in_transform, ops
from danaus.torch.functional import (
    ACTIVATIONS,
    activation_name,
    allows_tf32,
    autocast,
    check_input,
    check_residual,
    is_batch_last,
    product,
    requires_grad,
)

APPLY = ops.ks_apply.default

_NAMES = {
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float64: "f64",
    torch.complex64: "c64",
    torch.complex128: "c128",
}


def _array(tensor: Tensor) -> np.ndarray:
    """A copy on the host; of bf16 in f32, which NumPy has."""
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return tensor.numpy().copy()


class _Frozen(NamedTuple):
    dtype: torch.dtype  # of inputs
    batch: int
    asked: torch.dtype | None  # None: it follows that of the weights
    residual: bool = False


class _Packed:
    """What a module keeps for inference: its weights, packed for some batch sizes.

    Plans for different batches may have the same kernels, and then share what is
    packed: a list of one tuple, of memory and the change that it was packed after.
    A GPU's memory is packed again where it is, since graphs may hold it; a CPU's is
    left to the threads that read it.
    """

    def __init__(self) -> None:
        self.plans: dict[tuple, list] = {}  # by type, device, log2 of the batch
        self.memory: dict[tuple, list] = {}  # by type, device, what the plan says
        # Versions and addresses at the latest look, a count of changes, and what is at
        # these addresses, so that nothing else is: one tuple, for threads.
        self.known: tuple = None, 0, ()
        self.lock = threading.Lock()

    def forget(self) -> None:
        """Whatever comes next counts as a change."""
        self.known = None, self.known[1] + 1, ()

    def look(self, tensors: list[Tensor]) -> int:
        """How often they have changed until now; RuntimeError for tensors of inference
        mode, which have no version."""
        state = []
        for tensor in tensors:
            state += tensor._version, tensor.data_ptr()
        if self.known[0] != state:
            with self.lock:  # threads that see the same change count it once
                if self.known[0] != state:
                    kept = [tensor.detach() for tensor in tensors]
                    self.known = state, self.known[1] + 1, kept
        return self.known[1]

    # Copies of a module pack for themselves.
    def __reduce__(self):
        return _Packed, ()

    def __deepcopy__(self, memo: dict) -> _Packed:
        return _Packed()


class KSLinear(nn.Module):
    """y = activation(W x + bias) with W = K_1 ... K_L, as torch.nn.Linear has it.

    Its parameters are weights.0, weights.1, ... of shape [a, b, c, d], the leftmost
    factor first, and bias of shape [M]. Without gradients it keeps the weights packed
    until they change, and the planner may multiply factors out where that is faster;
    the activation is then applied with the product.

    Parameters
    ----------
    in_features, out_features : N and M.
    patterns : of the factors, in any form that `danaus.patterns` reads. One of
        patterns, chain and budget is given.
    chain : a `danaus.Chain`, whose weights and bias are taken.
    budget : so many weights, or such a share of M N, in the chain that is expected to
        approximate best (`danaus.patterns.fit`).
    bias : whether there is one.
    activation : None, "relu", "gelu", "silu" or "gelu_tanh".
    layout : "batch_first", x[..., N], or "batch_last", x[N, ...].
    tf32 : f32 products on a GPU may be made in tf32; None: as PyTorch's own are.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        patterns: Patterns | None = None,
        *,
        chain: Chain | None = None,
        budget: int | float | None = None,
        bias: bool = True,
        activation: str | None = None,
        layout: str = "batch_first",
        device: Any = None,
        dtype: torch.dtype | None = None,
        tf32: bool | None = None,
    ):
        super().__init__()
        if sum(given is not None for given in (patterns, chain, budget)) != 1:
            raise ValueError("one of patterns, chain and budget is needed")
        if chain is not None:
            patterns = chain.patterns
        elif budget is not None:
            patterns = named.fit(out_features, in_features, budget)
        self.patterns = named.as_patterns(patterns)
        named.check_composable(self.patterns)
        self.in_features, self.out_features = in_features, out_features
        if (self.patterns[0].rows, self.patterns[-1].cols) != (
            out_features,
            in_features,
        ):
            raise ValueError(
                f"the patterns are {self.patterns[0].rows} x {self.patterns[-1].cols}, "
                f"the layer is {out_features} x {in_features}"
            )
        self.activation = activation_name(activation)
        self.layout, self.tf32 = layout, tf32
        self._batch_last = is_batch_last(layout)
        self._sizes = [size for pattern in self.patterns for size in pattern]
        self._has_bias = bias
        self._frozen: _Frozen | None = None
        self._packed = _Packed()
        kind = {"device": device, "dtype": dtype}
        self.weights = nn.ParameterList(
            nn.Parameter(torch.empty(pattern, **kind)) for pattern in self.patterns
        )
        if self.weights[0].dtype not in _NAMES:
            raise ValueError(f"danaus has no type like {self.weights[0].dtype}")
        if self.activation != "none" and self.weights[0].is_complex():
            raise ValueError("activations are for real numbers")
        self.register_parameter(
            "bias", nn.Parameter(torch.empty(out_features, **kind)) if bias else None
        )
        self.register_buffer("packed", None, persistent=False)
        self.register_load_state_dict_post_hook(_forget)
        self.reset_parameters()
        if chain is not None:
            self.load_chain(chain)

    def reset_parameters(self) -> None:
        """Random weights for which W x has the variance that nn.Linear gives it.

        nn.Linear's W is uniform in (-k, k), k = 1 / sqrt(N): the squares of a row add
        up to 1/3. Those of a row of a product of independent factors, whose rows have
        c_l numbers of variance s_l^2 and mean 0, add up to the product over l of
        c_l s_l^2. So s_l^2 = 3^(-1/L) / c_l, which numbers uniform in (-k_l, k_l) with
        k_l^2 = 3^(1 - 1/L) / c_l have. The bias is nn.Linear's.
        """
        scale = 3 ** (1 - 1 / len(self.patterns))
        with torch.no_grad():
            for w, pattern in zip(self.weights, self.patterns):
                _fill(w, math.sqrt(scale / pattern.c))
            if self.bias is not None:
                _fill(self.bias, 1 / math.sqrt(self.in_features))

    # ---- running ----

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """Applies the layer to x[..., N] or, "batch_last", x[N, ...].

        The result is that of `residual + layer(x)`, whose gradient goes to both, and to
        whose type PyTorch promotes. A residual has the shape of layer(x). On a GPU,
        without gradients, one of the type of layer(x) is added with the product.
        """
        if residual is not None:
            return self._add(x, residual)
        if torch.compiler.is_compiling() or in_transform() or type(x) is not Tensor:
            return self._product(x)
        x = autocast(x)
        tf32 = x.is_cuda and allows_tf32(self.tf32, x)
        # Found faster than by nn.Module's attributes.
        weights = list(self._modules["weights"]._parameters.values())
        if len(weights) != len(self.patterns) or "bias" not in self._parameters:
            return self._product(x)  # parametrizations make some of them
        bias = self._parameters["bias"]
        try:
            if torch.is_grad_enabled() and requires_grad(x, weights, bias):
                # What comes next may change weights in ways that leave no trace.
                self._packed.forget()
                question = self._sizes, "none", self._batch_last, tf32
                v = Linear.apply(x, bias, question, *weights)
                return v if self.activation == "none" else self._activate(v)
            return self._infer(x, weights, bias, tf32)
        except RuntimeError:
            self._check(x)
            raise

    def _check(self, x: Tensor) -> None:
        check_input(x, self.weights[0], self.in_features, self._batch_last)
        if self.activation != "none" and x.is_complex():
            raise ValueError("activations are for real numbers")

    def _add(self, x: Tensor, residual: Tensor) -> Tensor:
        """residual + layer(x)."""
        self._check(x)
        check_residual(residual, x, self.out_features, self._batch_last)
        x = autocast(x)
        if not self._adds(x, residual):
            return residual + self.forward(x)
        tf32 = allows_tf32(self.tf32, x)
        return self._infer(x, list(self.weights), self.bias, tf32, residual)

    def _adds(self, x: Tensor, residual: Tensor) -> bool:
        """Whether the sum is made with the product."""
        if residual.dtype != x.dtype:
            return False
        wanting = [*self.weights, residual]
        if torch.is_grad_enabled() and requires_grad(x, wanting, self.bias):
            return False
        if torch.compiler.is_compiling() or self._frozen is not None:
            return self._runs_frozen(x, residual)
        if in_transform() or not type(x) is type(residual) is Tensor:
            return False
        return _sums_with_products(x)

    def _activate(self, v: Tensor) -> Tensor:
        return ACTIVATIONS[self.activation](v)

    def _product(self, x: Tensor) -> Tensor:
        """The layer without anything that is kept, but for what freeze() has packed."""
        self._check(x)
        x = autocast(x)
        tf32 = allows_tf32(self.tf32, x)
        question = self._sizes, self.activation, self._batch_last, tf32
        if self._runs_frozen(x):
            return APPLY(x, self.packed, self._has_bias, self._frozen.batch, *question)
        return product(x, list(self.weights), self.bias, *question)

    def _infer(
        self,
        x: Tensor,
        weights: list[Tensor],
        bias: Tensor | None,
        tf32: bool,
        residual: Tensor | None = None,
    ) -> Tensor:
        """The layer with packed weights, which are those of now."""
        kept = self._packed
        question = self._sizes, self.activation, self._batch_last, tf32
        if self._frozen is not None and self._runs_frozen(x, residual):
            packed, batch = self._buffers["packed"], self._frozen.batch
            return APPLY(x, packed, bias is not None, batch, *question, residual)
        size = (x.numel() // self.in_features - 1).bit_length()
        try:
            change = kept.look(weights if bias is None else [*weights, bias])
        except RuntimeError:
            return self._unpacked(x, residual)
        adds = residual is not None
        held = kept.plans.get((x.dtype, x.device, size, tf32, adds))
        packed, after = (None, -1) if held is None else held[0]
        if after < change:
            if x.is_meta or x.is_cuda and torch.cuda.is_current_stream_capturing():
                return self._unpacked(x, residual)
            packed = self._pack(x, size, change, tf32, adds)
        return APPLY(x, packed, bias is not None, 1 << size, *question, residual)

    def _unpacked(self, x: Tensor, residual: Tensor | None) -> Tensor:
        y = self._product(x)
        return y if residual is None else residual + y

    # ---- packed weights ----

    def _pack(
        self, x: Tensor, size: int, change: int, tf32: bool, adds: bool
    ) -> Tensor:
        """Packs, unless another thread has, and waits until that is done, whatever
        stream reads it first."""
        self._check(x)
        kept, weights = self._packed, list(self.weights)
        question = self._sizes, self.activation, self._batch_last, tf32, adds
        operands = weights, self.bias, x.dtype, 1 << size, *question
        key = x.dtype, x.device, tf32, ops.ks_describe(x, 1 << size, *question)
        with kept.lock:
            held = kept.memory.setdefault(key, [(None, -1)])
            packed, after = held[0]
            if after < change:
                if packed is not None and packed.is_cuda:
                    ops.ks_pack_into(packed, *operands)
                else:
                    packed = ops.ks_pack(*operands)
                wait(packed)
                held[0] = packed, change
            kept.plans[x.dtype, x.device, size, tf32, adds] = held
        return packed

    def _runs_frozen(self, x: Tensor, residual: Tensor | None = None) -> bool:
        frozen = self._frozen
        return (
            frozen is not None
            and frozen.dtype == x.dtype
            and frozen.residual == (residual is not None)
            and not (torch.is_grad_enabled() and x.requires_grad)
            and (torch.compiler.is_compiling() or not in_transform())
        )

    def freeze(
        self,
        batch: int = 0,
        dtype: torch.dtype | None = None,
        *,
        residual: bool = False,
    ) -> KSLinear:
        """Packs for good: weights have no gradients and do not change any more.

        Compiled and exported models then carry what is packed, which fits machines and
        versions like this one alone, and pack nothing when they run. Freezing again
        takes weights that have changed all the same.

        Parameters
        ----------
        batch : number of rows of inputs to plan for, 0: many; any number may come.
        dtype : of inputs; None: that of the weights.
        residual : whether each call has a residual, which is then added with the
            product, on a CPU too. Calls of the other kind pack for themselves.
        """
        first = self.weights[0]
        found = first.dtype if dtype is None else dtype
        like = torch.empty(0, dtype=found, device=first.device)
        question = self._sizes, self.activation, self._batch_last
        question = *question, allows_tf32(self.tf32, like), residual
        self.requires_grad_(False)
        with torch.no_grad():
            self.packed = ops.ks_pack(
                list(self.weights), self.bias, found, batch, *question
            )
        wait(self.packed)
        self._frozen = _Frozen(found, batch, dtype, residual)
        return self

    def unfreeze(self) -> KSLinear:
        """Forgets what was packed; weights have gradients again."""
        self.packed, self._frozen = None, None
        return self.requires_grad_(True)

    def _freeze_again(self) -> None:
        self._packed.forget()
        if self._frozen is not None and not self.weights[0].is_meta:
            _, batch, asked, residual = self._frozen
            self.freeze(batch, asked, residual=residual)

    def _apply(self, fn, recurse: bool = True) -> KSLinear:
        """Moved or converted: what is packed is made anew."""
        super()._apply(fn, recurse)
        self._packed = _Packed()
        self._freeze_again()
        return self

    def describe(self, x: Tensor) -> str:
        """What runs for such an input without gradients, a line for each step."""
        self._check(x)
        rows = x.numel() // self.in_features
        question = self._sizes, self.activation, self._batch_last
        return ops.ks_describe(x, rows, *question, allows_tf32(self.tf32, x))

    # ---- chains and dense matrices ----

    @classmethod
    def from_linear(
        cls,
        linear: nn.Linear,
        chain: Chain | None = None,
        *,
        patterns: Patterns | None = None,
        params: int | float | None = None,
        inputs: Tensor | None = None,
        **options: Any,
    ) -> KSLinear:
        """A layer near a torch.nn.Linear, with its bias, on its device, of its type.

        Parameters
        ----------
        chain : its weights are taken; else the layer's matrix is factorised.
        patterns : of the factors; params : so many weights, or such a share of all, in
            the chain that is expected to approximate best.
        inputs : samples X[..., N]: ||X W^T - X (K_1..K_L)^T|| is minimised.
        options : activation, layout, tf32.
        """
        if not isinstance(linear, nn.Linear):
            raise TypeError(f"a torch.nn.Linear is needed, not {type(linear).__name__}")
        if sum(given is not None for given in (chain, patterns, params)) != 1:
            raise ValueError("one of chain, patterns and params is needed")
        rows, cols = linear.weight.shape
        if chain is None:
            if params is not None:
                patterns = named.fit(rows, cols, params)
            dense = _array(_wide(linear.weight))
            samples = None
            if inputs is not None:
                if inputs.dim() == 0 or inputs.shape[-1] != cols:
                    shape = tuple(inputs.shape)
                    raise ValueError(
                        f"inputs have the shape {shape}, not [..., {cols}]"
                    )
                samples = _array(inputs.reshape(-1, cols)).astype(dense.dtype)
            chain = factorize(dense, patterns, inputs=samples).chain
        layer = cls(
            cols,
            rows,
            chain.patterns,
            bias=linear.bias is not None,
            device=linear.weight.device,
            dtype=linear.weight.dtype,
            **options,
        )
        layer.load_chain(chain)
        if linear.bias is not None:
            with torch.no_grad():
                layer.bias.copy_(linear.bias)
        return layer

    def load_chain(self, chain: Chain) -> None:
        """Takes weights of a chain of the same patterns, and its bias if both have one.

        `danaus.Chain.load` reads them from a file of the C library.
        """
        if chain.patterns != self.patterns:
            raise ValueError("the chain has other patterns than the layer")
        wide = "f32" if chain.element_type == "bf16" else chain.element_type
        chain = chain.astype(wide)
        with torch.no_grad():
            for to, w in zip(self.weights, chain.weights):
                to.copy_(torch.from_numpy(np.array(w)))
            if self.bias is not None and chain.bias is not None:
                self.bias.copy_(torch.from_numpy(chain.bias))

    def to_chain(self) -> Chain:
        """A copy as a `danaus.Chain`, which can be saved for the C library."""
        bias = None if self.bias is None else _array(self.bias)
        name = _NAMES[self.weights[0].dtype]
        return Chain.from_weights([_array(w) for w in self.weights], bias, name)

    def to_dense(self) -> Tensor:
        """W as a matrix [M, N], without bias."""
        eye = torch.eye(
            self.in_features,
            dtype=self.weights[0].dtype,
            device=self.weights[0].device,
        )
        weights = list(self.weights)
        return product(eye, weights, None, self._sizes, "none", True, False)

    def extra_repr(self) -> str:
        text = f"{self.in_features}, {self.out_features}, "
        text += f"patterns='{' '.join(map(str, self.patterns))}'"
        text += f", bias={self.bias is not None}"
        if self.activation != "none":
            text += f", activation={self.activation!r}"
        if self.layout != "batch_first":
            text += f", layout={self.layout!r}"
        return text


def _fill(parameter: Tensor, bound: float) -> None:
    """Uniform numbers of variance bound^2 / 3; complex ones have it in both parts."""
    if parameter.is_complex():
        parameter = torch.view_as_real(parameter)
        bound /= math.sqrt(2)
    parameter.uniform_(-bound, bound)


def _sums_with_products(x: Tensor) -> bool:
    """Whether that is faster than PyTorch's sum.

    A CPU's results of 16 bits, batch-first, and all after an activation pass through
    scratch before they are added to something, which takes longer than a sum.
    """
    return x.is_cuda


def wait(made: Tensor) -> None:
    """Until it is made: any stream may read it then."""
    if made.is_cuda:
        torch.cuda.current_stream(made.device).synchronize()


def _wide(weight: Tensor) -> Tensor:
    """In a type that can be factorised."""
    return weight.float() if weight.dtype.itemsize == 2 else weight


def _forget(module: KSLinear, keys: Any) -> None:
    module._freeze_again()


class MonarchLinear(KSLinear):
    """A `KSLinear` whose matrix is a Monarch matrix.

    Parameters
    ----------
    blocks : a divisor q of both sizes: two factors, each of q blocks side by side, with
        q (N + M) weights for rank 1.
    order, rank : without blocks: so many factors, of sizes as equal as can be
        (`danaus.patterns.make`), and the rank of the blocks between neighbours.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        blocks: int | None = None,
        *,
        order: int = 2,
        rank: int = 1,
        **options: Any,
    ):
        radices: dict[str, Any] = {}
        if blocks is not None:
            sizes = in_features, out_features
            if order != 2 or blocks < 1 or any(size % blocks for size in sizes):
                raise ValueError(
                    f"{blocks} blocks need an order of 2 and sizes that they divide"
                )
            radices = {
                "row_radices": (out_features // blocks, blocks),
                "col_radices": (blocks, in_features // blocks),
            }
        chain = named.make(
            "monarch", out_features, in_features, order=order, rank=rank, **radices
        )
        super().__init__(in_features, out_features, chain, **options)


def freeze(
    module: nn.Module, batch: int = 0, dtype: torch.dtype | None = None
) -> nn.Module:
    """Freezes all layers of a model: `KSLinear.freeze`. Returns the model."""
    for layer in module.modules():
        if isinstance(layer, KSLinear):
            layer.freeze(batch, dtype)
    return module
