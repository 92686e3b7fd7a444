"""Implicit long filters: a small network computes each value from its position.

Source: Poli et al., Hyena Hierarchy, ICML 2023 (arXiv 2302.10866), section 3.3, as the
authors' code has them (HyenaFilter of HazyResearch/safari and of HazyResearch/m2).
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import torch
from torch import Tensor

from danaus.torch._conv_functions import fail
from danaus.torch._errors import refuse_proxy
from danaus.torch._packed import Traceable
from danaus.torch.projections import is_usual, rows_by, to_rows

__all__ = ["HyenaFilter"]

_FASTEST, _SLOWEST, _TARGET = 0.3, 1.5, 0.01  # a window falls to 1 % in such parts


class _Positions(torch.nn.Module):
    """z [1, length, features]: t in [0, 1], cosines and minus sines of bands."""

    def __init__(self, length: int, features: int, learned: bool, made: dict):
        super().__init__()
        self.features = features
        z, t = (
            torch.empty(1, length, features, **made),
            torch.empty(1, length, 1, **made),
        )
        if learned:
            self.z = torch.nn.Parameter(z)
        else:
            self.register_buffer("z", z)
        self.register_buffer("t", t)

    @torch.no_grad()
    def reset(self) -> None:
        length = self.z.shape[1]
        bands = (self.features - 1) // 2
        exact = {"dtype": torch.float64, "device": self.z.device}
        s = torch.arange(length, **exact)[:, None]
        t = s / max(1, length - 1)
        f = torch.linspace(1e-4, max(bands - 1, 1e-4), bands, **exact)
        angle = 2 * math.pi * f * s / length
        self.t.copy_(t[None])
        self.z.copy_(torch.cat([t, angle.cos(), -angle.sin()], 1)[None])


class _Window(torch.nn.Module):
    """exp(-t |delta|) + shift of each channel."""

    def __init__(self, channels: int, shift: float, made: dict):
        super().__init__()
        self.shift = shift
        self.register_buffer("deltas", torch.empty(1, 1, channels, **made))

    @torch.no_grad()
    def reset(self) -> None:
        slow, fast = (math.log(_TARGET) / part for part in (_SLOWEST, _FASTEST))
        channels = self.deltas.shape[2]
        exact = {"dtype": torch.float64, "device": self.deltas.device}
        deltas = torch.linspace(slow, fast, channels, **exact)
        self.deltas.copy_(deltas[None, None])

    @torch.no_grad()
    def forward(self, t: Tensor, own: slice | Tensor) -> Tensor:
        """[channels, length] of t [length], for own channels."""
        found = torch.outer(-self.deltas[0, 0, own].abs(), t).exp_()
        return found.add_(self.shift) if self.shift else found


class _Frequencies(torch.nn.Module):
    """The frequencies of all sines of a filter, under the name of the first one."""

    def __init__(self, order: int, made: dict):
        super().__init__()
        self.freq = torch.nn.Parameter(torch.empty(1, order, **made))


def _network(sizes: list[int], frequencies: torch.nn.Module, made: dict):
    """Linear layers between these sizes at even places, sines at odd ones."""
    layers: list[torch.nn.Module] = []
    for i, (before, after) in enumerate(zip(sizes, sizes[1:])):
        if i:
            layers.append(frequencies if i == 1 else torch.nn.Identity())
        is_last = i == len(sizes) - 2
        layers.append(torch.nn.Linear(before, after, bias=not is_last, **made))
    return torch.nn.ModuleList(layers)


class HyenaFilter(Traceable):
    """Filters k [channels, length] that a network of sines computes from positions:

        k[., s] = W_n sin(f (W_{n-1} ... sin(f (W_0 z[s] + b_0)) ... + b_{n-1}))
                  (exp(-t[s] abs(deltas)) + shift),

    with z[s] an encoding of the position s and t[s] = s / (length - 1). Values do not
    depend on how many of them are asked for. It is a filter module of `LongConv`:
    ``filter(length)`` returns k or, with reverse, the pair of k and k_reverse.

    Parameters
    ----------
    channels : int
    length : int
        The longest filter.
    features : int
        Width of z: t and the same number of cosines and sines. Odd, at least 3.
    order : int
        Width of the network.
    layers : int
        Linear layers between the first and the last one.
    frequency, factor : float
        Initial value of f, and a constant that multiplies it.
    shift : float
        Added to the window, as above.
    window : bool
        False: there is no window.
    reverse : bool
        A second network, with the same z and f, makes filters for values after t.
    learned : bool
        True to learn z, as M2-BERT does.

    Attributes
    ----------
    bias : Parameter [channels]
        The skip of the convolution, which `LongConv` does not use; normal with
        variance 1.
    pos_emb.z, pos_emb.t, implicit_filter, implicit_filter_rev, modulation.deltas
        As in the authors' checkpoints. f is ``implicit_filter.1.freq``; a state dict
        may have it under any name that it has there, and may lack buffers.
    """

    def __init__(
        self,
        channels: int,
        length: int,
        *,
        features: int = 3,
        order: int = 64,
        layers: int = 2,
        frequency: float = 10.0,
        factor: float = 1.0,
        shift: float = 0.0,
        window: bool = True,
        reverse: bool = False,
        learned: bool = False,
        device=None,
        dtype=None,
    ):
        super().__init__()
        if min(channels, length, order) < 1 or layers < 0:
            fail(f"a filter of {channels} channels, length {length}, order {order}")
        if features < 3 or features % 2 == 0:
            fail(f"{features} features; an odd number from 3 on is needed")
        made = {"device": device, "dtype": dtype}
        self.channels, self.length = channels, length
        self.frequency, self.factor = frequency, factor
        self.bias = torch.nn.Parameter(torch.empty(channels, **made))
        self.pos_emb = _Positions(length, features, learned, made)
        sizes = [features, *[order] * (layers + 1), channels]
        frequencies = _Frequencies(order, made)
        self.implicit_filter = _network(sizes, frequencies, made)
        self.implicit_filter_rev = None
        if reverse:
            self.implicit_filter_rev = _network(sizes, torch.nn.Identity(), made)
        self.modulation = _Window(channels, shift, made) if window else None
        self.register_load_state_dict_pre_hook(
            lambda filter, state, prefix, *rest: filter.complete(state, prefix)
        )
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Positions, the window and f as they begin; random networks and skips."""
        torch.nn.init.normal_(self.bias)
        torch.nn.init.constant_(self.implicit_filter[1].freq, self.frequency)
        self.pos_emb.reset()
        if self.modulation is not None:
            self.modulation.reset()
        for network in (self.implicit_filter, self.implicit_filter_rev):
            for layer in network or ():
                if isinstance(layer, torch.nn.Linear):
                    layer.reset_parameters()

    def forward(
        self, length: int | None = None, own: slice | Tensor = slice(None)
    ) -> Tensor | tuple[Tensor, Tensor]:
        """k [channels, length], or k and k_reverse; all values without a length. own:
        for which channels."""
        length = self.length if length is None else length
        refuse_proxy(length)
        if not 1 <= length <= self.length:
            fail(f"a filter of {length} values; this one has at most {self.length}")
        # autocast does not know the device meta.
        kind = "cpu" if self.bias.is_meta else self.bias.device.type
        with torch.autocast(kind, enabled=False):
            k = self._values(self.implicit_filter, length, own)
            if self.implicit_filter_rev is None:
                return k
            return k, self._values(self.implicit_filter_rev, length, own)

    def _values(self, network: torch.nn.ModuleList, length: int, own) -> Tensor:
        x = self.pos_emb.z[:, :length].mT
        f = self.factor * self.implicit_filter[1].freq.T
        for layer in network[:-1:2]:
            x = torch.sin(f * to_rows(layer, x.mT))
        last = network[-1]
        if is_usual(last):
            bias = None if last.bias is None else last.bias[own]
            k = rows_by(last.weight[own], bias, x.mT)[0]
        else:
            k = last(x.mT).mT[0, own]
        if self.modulation is not None:
            k = k * self.modulation(self.pos_emb.t[0, :length, 0], own)
        return k

    def complete(self, state: dict[str, Tensor], prefix: str) -> None:
        """Tensors of a state dict below a prefix get the names of this module's; the
        buffers that it lacks are the module's."""
        own = f"{prefix}implicit_filter.1.freq"
        for network in ("implicit_filter", "implicit_filter_rev"):
            for place in range(1, len(self.implicit_filter), 2):
                name = f"{prefix}{network}.{place}.freq"
                if name != own and name in state:
                    state.setdefault(own, state.pop(name))
        for name, buffer in self.named_buffers():
            state.setdefault(prefix + name, buffer)
        if self.modulation is None:
            state.pop(f"{prefix}modulation.deltas", None)

    def extra_repr(self) -> str:
        reverse = ", reverse=True" if self.implicit_filter_rev is not None else ""
        return f"{self.channels}, {self.length}{reverse}"
