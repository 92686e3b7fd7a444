"""Long convolutions along both axes of planes, for PyTorch.

CPUs and NVIDIA GPUs run danaus' own kernels, which take a plane as a row with a pitch
(docs/conv.md, "Planes"). On other devices torch.fft gives the same results.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from danaus.torch._conv_functions import centre_of, check_tensor, fail
from danaus.torch._planes import check_plane_kind, long_conv2d, planes_of, suits_fft
from danaus.torch.conv import LongConv

__all__ = ["LongConv2d", "long_conv2d"]


class LongConv2d(LongConv):
    """A long convolution of every plane with a filter of its own, or a shared one.

    Parameters
    ----------
    channels : int
    size : int or two numbers
        Height and width of filters, unless `taps` is given. Planes may have any size.
    kind : "causal", "circular" or "centred", as for `long_conv2d`
    filters : int
        A divisor of channels; channel h has filter ``h // (channels // filters)``.
        Default: one for each channel.
    taps : int or two numbers
    centre : two numbers, as for `long_conv2d`
    skip : bool
        True to add ``skip * u``, with a learned value for each filter.
    filter : Tensor or Module
        Filters [filters, down, across] to learn instead of random ones, or a module
        that makes them: ``filter(height, width)`` for planes of that size.
    accuracy : None, "accurate" or "fast", as for `long_conv`

    Attributes
    ----------
    weight : Parameter [filters, taps down, taps across]
        None if a module computes filters. Initial values are normal, of variance 1 over
        the number of taps that fit in a plane.
    skip : Parameter [filters]
        Initial values are normal with variance 1.
    filter : Module or None

    What is kept between calls, and `freeze`, are as for `LongConv`; a filter module is
    called each time.
    """

    needs_whole_rows = True  # and no group (split_sequence)

    def __init__(
        self,
        channels: int,
        size: int | Sequence[int],
        kind: str = "causal",
        *,
        filters: int | None = None,
        taps: int | Sequence[int] | None = None,
        centre: Sequence[int] | None = None,
        skip: bool = True,
        filter=None,
        accuracy: str | None = None,
        device=None,
        dtype=None,
    ):
        check_plane_kind(kind)
        size = _pair(size, "a size")
        taps = size if taps is None else _pair(taps, "taps")
        module = filter if isinstance(filter, torch.nn.Module) else None
        options = {"filters": filters, "skip": skip, "filter": module}
        options |= {"accuracy": accuracy, "device": device, "dtype": dtype}
        numbers = size[0] * size[1], taps[0] * taps[1]
        super().__init__(channels, numbers[0], kind, taps=numbers[1], **options)
        self.length, self.taps = size, taps
        self.centre = None if centre is None else tuple(centre)
        self._place = centre_of(centre, taps, kind)
        if self.weight is not None:
            self.weight = torch.nn.Parameter(self.weight.detach().unflatten(1, taps))
            self.reset_parameters()
        if filter is not None and module is None:
            check_tensor("a filter", filter, tuple(self.weight.shape), filter.device)
            with torch.no_grad():
                self.weight.copy_(filter)

    def reset_parameters(self) -> None:
        """Random numbers, as the class says; a filter module is left alone."""
        if isinstance(self.taps, int):
            return  # both axes are not yet known
        met = [min(t, n) for t, n in zip(self.taps, self.length)]
        if self.weight is not None:
            torch.nn.init.normal_(self.weight, std=(met[0] * met[1]) ** -0.5)
        if self.skip is not None:
            torch.nn.init.normal_(self.skip)

    def filters_for(self, length: int) -> tuple[Tensor, None]:
        """The weight with both axes of taps as one."""
        return self.weight.flatten(-2), None

    def forward(
        self,
        u: Tensor,
        gate_in: Tensor | None = None,
        gate_out: Tensor | None = None,
    ) -> Tensor:
        """u, gates and the result are [batch, channels, height, width]."""
        rows = planes_of(u, gate_in, gate_out)
        if self.filter is not None or suits_fft(u, self.taps, self.kind):
            k = self.weight if self.filter is None else self.filter(*u.shape[-2:])
            options = gate_in, gate_out, self.kind, self.centre, self.accuracy
            return long_conv2d(u, k, self.skip, *options)
        form = [u.shape[-2], self.taps[0], *self._place]
        return self._run(*rows, None, form).view(u.shape)

    def stream(self, batch: int = 1):
        fail("planes have no streams")


def _pair(value, what: str) -> tuple[int, int]:
    pair = (value, value) if isinstance(value, int) else tuple(value)
    if len(pair) != 2 or any(not isinstance(n, int) or n < 1 for n in pair):
        fail(f"{what} of planes is (down, across), at least 1, not {value!r}")
    return pair
