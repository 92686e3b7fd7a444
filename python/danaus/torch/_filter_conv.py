"""What modules have in common that learn filters and bring them into another basis."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import torch
from torch import Tensor

from danaus.torch._conv_functions import check_signal, check_tensor, fail


class FilterConv(torch.nn.Module):
    """y = f(k, u) + skip u, with a bilinear f that a class defines as `_convolve`.

    Attributes
    ----------
    weight : Parameter [filters, taps]
        k. Channel h has the filter ``h // (channels // filters)``.
    skip : Parameter [filters] or None
    """

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
        filters = channels if filters is None else filters
        taps = length if taps is None else taps
        if min(channels, length, filters, taps) < 1 or channels % filters:
            fail(
                f"{filters} filters of {taps} taps for {channels} channels of length "
                f"{length}: all are at least 1, and filters divides channels"
            )
        if taps > length:
            fail(f"filters have {taps} taps; signals have {length} numbers at most")
        self.channels, self.length = channels, length
        self.filters, self.taps = filters, taps
        self.weight = torch.nn.Parameter(torch.empty(filters, taps, **made))
        self.skip = torch.nn.Parameter(torch.empty(filters, **made)) if skip else None

    def reset_parameters(self) -> None:
        """Random filters."""
        torch.nn.init.normal_(self.weight, std=self.taps**-0.5)
        if self.skip is not None:
            torch.nn.init.normal_(self.skip)

    def forward(self, u: Tensor) -> Tensor:
        """u and the result are [batch, channels, length], or shorter ones."""
        check_signal(u)
        check_tensor("the module's weight", self.weight, (None, None), u.device)
        if u.shape[1] != self.channels:
            fail(f"u has {u.shape[1]} channels; {self.channels} are needed")
        if u.shape[2] > self.length:
            fail(f"u is {u.shape[2]} long; this module is made for {self.length}")
        y = self._convolve(u, self.weight.to(u.dtype))
        if self.skip is None:
            return y
        return y + self._of_channels(self.skip.to(u.dtype))[:, None] * u

    def _convolve(self, u: Tensor, k: Tensor) -> Tensor:
        """f of u [batch, channels, length] and k [filters, taps], shaped like u."""
        raise NotImplementedError

    def _of_channels(self, x: Tensor) -> Tensor:
        """Rows of filters, repeated for the channels that share them."""
        return x.repeat_interleave(self.channels // self.filters, 0)
