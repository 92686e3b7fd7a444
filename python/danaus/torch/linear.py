"""Linear layers whose matrix is a chain of Kronecker-sparse factors."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import numbers
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from danaus import patterns as named
from danaus._arrays import INT64, whole
from danaus.chain import Chain
from danaus.factorize import factorize
from danaus.patterns import Patterns
from danaus.torch._exporting import is_standard
from danaus.torch._ops import is_traced, ops
from danaus.torch._packed import Factors, Freezable, Packed, is_hooked, wait
from danaus.torch._precision import TYPES, wide
from danaus.torch.functional import (
    Question,
    activation_name,
    allows_tf32,
    autocast,
    check_input,
    check_residual,
    is_batch_last,
    is_plain,
    product,
    wants_gradients,
)
from danaus.torch.parents import effective, reason_of_its_own
from danaus.torch.weight import LinearLike

APPLY = ops.ks_apply.default

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
    residual: bool
    batch_invariant: bool


class KSLinear(LinearLike, Freezable):
    """y = activation(W x + bias) with W = K_1 ... K_L, used like torch.nn.Linear.

    Its parameters are weights.0, weights.1, ... of shape [a, b, c, d], the leftmost
    factor first, and bias of shape [M]. A call computes with the current weights,
    however they were written. Without gradients a CPU keeps the weights packed and
    compares all of them with those that it packed; a GPU packs at each call. `freeze`
    packs once.

    Parameters
    ----------
    in_features, out_features : N and M.
    patterns : the factors' patterns, in any form that `danaus.patterns` reads. One of
        patterns, chain and budget is given.
    chain : a `danaus.Chain`, whose weights and bias are taken.
    budget : a number of weights, or a share of M N, for the chain that is expected to
        approximate best (`danaus.patterns.fit`).
    bias : True for a layer with bias.
    activation : None, "relu", "gelu", "silu" or "gelu_tanh".
    layout : "batch_first", x[..., N], or "batch_last", x[N, ...].
    tf32 : allow tf32 for f32 products on a GPU; None: as PyTorch does.
    batch_invariant : the bits of a row of the result do not depend on the other rows,
        nor on whether there are gradients or the layer is frozen. May be slower.
    int8 : files hold the weights as 8-bit integers with a scale for each row and lane,
        by which `danaus.Model` multiplies. Here they are numbers like others.
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
        batch_invariant: bool = False,
        int8: bool = False,
    ):
        super().__init__()
        if isinstance(patterns, numbers.Number):
            raise TypeError(
                f"patterns have to name the factors, not {patterns!r}: use budget= for "
                "a number of weights, and bias= for a bias"
            )
        if sum(given is not None for given in (patterns, chain, budget)) != 1:
            raise ValueError("one of patterns, chain and budget is needed")
        check_sizes(in_features, out_features)
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
        self.batch_invariant, self.int8 = bool(batch_invariant), bool(int8)
        self._batch_last = is_batch_last(layout)
        self._sizes = [size for pattern in self.patterns for size in pattern]
        self._has_bias = bias
        self._frozen: _Frozen | None = None
        self._packed = Packed()
        kind = {"device": device, "dtype": dtype}
        self.weights = Factors(
            nn.Parameter(torch.empty(pattern, **kind)) for pattern in self.patterns
        )
        if self.weights[0].dtype not in TYPES:
            raise ValueError(f"danaus has no type like {self.weights[0].dtype}")
        if self.activation != "none" and self.weights[0].is_complex():
            raise ValueError("activations are for real numbers")
        if self.int8 and self.weights[0].is_complex():
            raise ValueError("weights of 8 bits are real numbers")
        self.register_parameter(
            "bias", nn.Parameter(torch.empty(out_features, **kind)) if bias else None
        )
        self.register_buffer("packed", None, persistent=False)
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

    def factors(self) -> list[Tensor]:
        """The current weights, the leftmost factor first."""
        held = self._modules["weights"]
        found = list(held._parameters.values())  # faster than a call
        return held() if is_hooked(held) or len(found) < len(self.patterns) else found

    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor:
        """Applies the layer to x[..., N] or, "batch_last", x[N, ...].

        The result, its gradients and its promoted type equal those of
        `residual + layer(x)`. A residual has the shape of layer(x) and is not
        broadcast. A layer that was frozen for residuals adds it with the product.
        """
        plain = is_plain(input)
        if residual is not None or not plain:
            self._check(input)  # operators check other inputs
        if residual is not None:
            check_residual(residual, input, self.out_features, self._batch_last)
        x = autocast(input)
        question = self._question(x)
        try:
            if self._frozen is not None and self._is_prepared(x, residual):
                batch = self._frozen.batch
                return APPLY(x, self.packed, self._has_bias, batch, *question, residual)
            own = self._parameters
            bias = own["bias"] if "bias" in own else self.bias
            kept = self._packed if plain else None
            y = product(x, self.factors(), bias, question, kept)
        except RuntimeError:
            self._check(x)
            raise
        return y if residual is None else residual + y

    def _question(self, x: Tensor) -> Question:
        tf32 = x.is_cuda and allows_tf32(self.tf32, x)
        options = self._batch_last, tf32, self.batch_invariant
        return self._sizes, self.activation, *options

    def _check(self, x: Tensor) -> None:
        like = self.weights[0]
        # What is packed lies where the layer runs; weights may be offloaded.
        device = like.device if self._frozen is None else self.packed.device
        check_input(x, like.dtype, device, self.in_features, self._batch_last)
        if self.activation != "none" and x.is_complex():
            raise ValueError("activations are for real numbers")

    # ---- packed for good ----

    def _is_prepared(self, x: Tensor, residual: Tensor | None) -> bool:
        """True if what `freeze` packed is for such operands."""
        frozen, adds = self._frozen, residual is not None
        if x.dtype != frozen.dtype or adds != frozen.residual:
            return False
        if self.batch_invariant != frozen.batch_invariant:
            return False
        if adds and residual.dtype != x.dtype or wants_gradients((x, residual)):
            return False
        if is_traced():
            return not is_standard()
        plain = is_plain(x) and (not adds or is_plain(residual))
        return plain and self._is_frozen()

    def freeze(
        self,
        batch: int = 0,
        dtype: torch.dtype | None = None,
        *,
        residual: bool = False,
    ) -> KSLinear:
        """Packs once: weights have no gradients, and later changes have no effect.

        Compiled and exported models then contain the packed weights, for machines and
        versions like this one only, and do not pack when they run. Another `freeze`
        takes weights that have changed.

        Parameters
        ----------
        batch : rows of inputs to plan for, 0: many; calls may have any number.
        dtype : type of inputs; None: the weights'.
        residual : True if each call has a residual, which the product then adds, on a
            CPU too. Calls without one then pack again, and the other way round.
        """
        weights, bias = self.factors(), self.bias
        found = weights[0].dtype if dtype is None else dtype
        like = torch.empty(0, dtype=found, device=weights[0].device)
        question = self._question(like)
        with torch.no_grad():
            packed = ops.ks_pack(weights, bias, found, batch, *question, residual)
        wait(packed)
        super().freeze()
        options = residual, self.batch_invariant
        self.packed, self._frozen = packed, _Frozen(found, batch, dtype, *options)
        return self

    def _forget(self) -> None:
        self.packed, self._frozen, self._packed = None, None, self._packed.anew()

    def _renew(self) -> None:
        frozen = self._frozen
        if frozen is not None and not self.weights[0].is_meta:
            self.freeze(frozen.batch, frozen.asked, residual=frozen.residual)
        elif frozen is None:
            self._packed = self._packed.anew()

    def describe(self, x: Tensor) -> str:
        """The steps that run for such an input without gradients, a line for each."""
        self._check(x)
        rows = x.numel() // self.in_features
        return ops.ks_describe(x, rows, *self._question(x))

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
        activation: str | None = None,
        layout: str = "batch_first",
        tf32: bool | None = None,
        batch_invariant: bool = False,
    ) -> KSLinear:
        """A layer that approximates a torch.nn.Linear, with its bias, device and type.

        The matrix of a layer with a parametrization, weight_norm, spectral_norm or
        pruning is the one that its next call would use.

        Parameters
        ----------
        chain : its weights are taken; else the layer's matrix is factorised.
        patterns : of factors; params : a number of weights, or a share of all, for
            the chain that is expected to approximate best.
        inputs : samples X[..., N]: ||X W^T - X (K_1..K_L)^T|| is minimised.
        activation, layout, tf32, batch_invariant : as for `KSLinear`.
        """
        if not isinstance(linear, nn.Linear):
            raise TypeError(f"a torch.nn.Linear is needed, not {type(linear).__name__}")
        why = reason_of_its_own(linear)
        if why is not None:
            raise ValueError(f"the layer cannot be a chain: {why}")
        if chain is not None and not isinstance(chain, Chain):
            raise TypeError(
                f"chain has to be a danaus.Chain, not {chain!r:.60}: patterns= and "
                "params= are keywords"
            )
        if sum(given is not None for given in (chain, patterns, params)) != 1:
            raise ValueError("one of chain, patterns and params is needed")
        weight, bias = effective(linear), effective(linear, "bias")
        if chain is None:
            chain = _chain_near(weight, patterns, params, inputs)
        layer = cls.__new__(cls)
        KSLinear.__init__(
            layer,
            linear.in_features,
            linear.out_features,
            chain.patterns,
            bias=bias is not None,
            activation=activation,
            layout=layout,
            device=weight.device,
            dtype=weight.dtype,
            tf32=tf32,
            batch_invariant=batch_invariant,
        )
        layer.load_chain(chain)
        if bias is not None:
            with torch.no_grad():
                layer.bias.copy_(bias)
        return layer

    def load_chain(self, chain: Chain) -> None:
        """Takes weights of a chain of the same patterns, and its bias if both have one.

        `danaus.Chain.load` reads them from a file of the C library.
        """
        if chain.patterns != self.patterns:
            raise ValueError("the chain has other patterns than the layer")
        numpy_has = chain.element_type != "bf16"
        chain = chain if numpy_has else chain.astype("f32")
        with torch.no_grad():
            for to, w in zip(self.weights, chain.weights):
                to.copy_(torch.from_numpy(np.array(w)))
            if self.bias is not None and chain.bias is not None:
                self.bias.copy_(torch.from_numpy(chain.bias))

    def to_chain(self) -> Chain:
        """A copy as a `danaus.Chain`, which can be saved for the C library."""
        bias = None if self.bias is None else _array(self.bias)
        name = TYPES[self.weights[0].dtype]
        return Chain.from_weights([_array(w) for w in self.weights], bias, name)

    def to_dense(self) -> Tensor:
        """W as a matrix [M, N], without bias."""
        weights = self.factors()
        kind = {"dtype": weights[0].dtype, "device": weights[0].device}
        eye = torch.eye(self.in_features, **kind)
        return product(eye, weights, None, (self._sizes, "none", True, False, False))

    def extra_repr(self) -> str:
        text = f"{self.in_features}, {self.out_features}, "
        text += f"patterns='{' '.join(map(str, self.patterns))}'"
        text += f", bias={self.bias is not None}"
        if self.activation != "none":
            text += f", activation={self.activation!r}"
        if self.layout != "batch_first":
            text += f", layout={self.layout!r}"
        if self.batch_invariant:
            text += ", batch_invariant=True"
        return text + ", int8=True" if self.int8 else text


def _fill(parameter: Tensor, bound: float) -> None:
    """Uniform numbers of variance bound^2 / 3; complex ones have it in both parts."""
    if parameter.is_complex():
        parameter = torch.view_as_real(parameter)
        bound /= math.sqrt(2)
    parameter.uniform_(-bound, bound)


def _chain_near(
    weight: Tensor,
    patterns: Patterns | None,
    params: int | float | None,
    inputs: Tensor | None,
) -> Chain:
    rows, cols = weight.shape
    if params is not None:
        patterns = named.fit(rows, cols, params)
    dense, samples = _array(wide(weight)), None
    if inputs is not None:
        if not isinstance(inputs, Tensor):
            kind = type(inputs).__name__
            raise TypeError(f"inputs have to be a tensor [..., {cols}], not {kind}")
        if inputs.dim() == 0 or inputs.shape[-1] != cols:
            shape = tuple(inputs.shape)
            raise ValueError(f"inputs have the shape {shape}, not [..., {cols}]")
        samples = _array(inputs.reshape(-1, cols)).astype(dense.dtype)
    return factorize(dense, patterns, inputs=samples).chain


def check_sizes(in_features: int, out_features: int) -> None:
    """Raises unless both are numbers of features."""
    whole(in_features, "in_features", 1, INT64)
    whole(out_features, "out_features", 1, INT64)
