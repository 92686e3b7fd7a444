"""What modules have in common that learn filters and bring them into another basis."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from danaus.torch._conv_functions import (
    check_signal,
    check_tensor,
    fail,
    filter_sizes,
)
from danaus.torch._errors import refuse_proxy
from danaus.torch._exporting import standard_operators
from danaus.torch._packed import Traceable
from danaus.torch._precision import wide


def three(make: Callable[[], nn.Module], tied: bool, learn: bool) -> nn.ModuleList:
    """Modules of M_0, M_1 and M_2, or one of all if they are tied."""
    found = nn.ModuleList(make() for _ in range(1 if tied else 3))
    return found.requires_grad_(learn)


def all_three(found: Iterable) -> list:
    """What belongs to M_0, M_1 and M_2, from three or from one of all."""
    found = list(found)
    return found * (3 // len(found))


def of_one_type(u: Tensor, k: Tensor, matrices: list) -> tuple:
    """u, k and the matrices, all in the wider of their types."""
    dtype = torch.promote_types(wide(u).dtype, matrices[0][0].dtype)
    matrices = [[w.to(dtype) for w in matrix] for matrix in matrices]
    return u.to(dtype), k.to(dtype), *matrices


class FilterConv(Traceable):
    """y = f(k, u) + skip u, with a bilinear f that a class defines as `_convolve`.

    Attributes
    ----------
    weight : Parameter [filters, taps]
        k. Channel h has the filter ``h // (channels // filters)``.
    skip : Parameter [filters] or None
    """

    needs_whole_rows = True
    can_be_scripted = False
    standard = False  # True: of `to_plain`

    def __init__(
        self,
        channels: int,
        length: int,
        filters: int | None,
        taps: int | None,
        skip: bool,
        made: dict,
    ):
        super().__init__()
        filters, taps = filter_sizes(channels, length, filters, taps)
        if taps > length:
            fail(f"filters have {taps} taps; signals have {length} numbers at most")
        self.channels, self.length = channels, length
        self.filters, self.taps = filters, taps
        self.weight = nn.Parameter(torch.empty(filters, taps, **made))
        self.skip = nn.Parameter(torch.empty(filters, **made)) if skip else None

    def reset_parameters(self) -> None:
        """Random filters."""
        nn.init.normal_(self.weight, std=self.taps**-0.5)
        if self.skip is not None:
            nn.init.normal_(self.skip)

    def forward(self, u: Tensor) -> Tensor:
        """u and the result are [batch, channels, length], or shorter ones."""
        refuse_proxy(u, "use torch.export")
        check_signal(u)
        check_tensor("the module's weight", self.weight, (None, None), u.device)
        if u.shape[1] != self.channels:
            fail(f"u has {u.shape[1]} channels; {self.channels} are needed")
        if u.shape[2] > self.length:
            fail(f"u is {u.shape[2]} long; this module is made for {self.length}")
        more = u.shape[2] - self.taps
        k = nn.functional.pad(self.weight.to(u.dtype), (0, more))
        with standard_operators() if self.standard else nullcontext():
            y = self._convolve(u, k).to(u.dtype)
        if self.skip is None:
            return y
        return y + self._of_channels(self.skip.to(u.dtype))[:, None] * u

    def _convolve(self, u: Tensor, k: Tensor) -> Tensor:
        """f of u [batch, channels, length] and k [filters, length], shaped like u."""
        raise NotImplementedError

    def _of_channels(self, x: Tensor) -> Tensor:
        """Rows of filters, repeated for the channels that share them."""
        return x.repeat_interleave(self.channels // self.filters, 0)
