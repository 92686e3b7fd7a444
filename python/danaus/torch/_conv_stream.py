"""Convolutions of signals that come block by block, without gradients: what the
modules' stream() returns, on the device that they have then. Every block's result is
there at once, and all of them together are the module's for the whole signal."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import torch
from torch import Tensor

from danaus.stream import Stream, run_in_place
from danaus.torch._conv_functions import (
    check_tensor,
    fail,
    rows_of,
    short_conv,
)
from danaus.torch._hyena_functions import mix_heads
from danaus.torch._ops import sum_dtype


def _check_block(u: Tensor, shape: tuple, device: torch.device) -> None:
    """A block may be empty."""
    check_tensor("u", u, shape, u.device if isinstance(u, Tensor) else device)
    if u.device != device:
        fail(f"u lies on {u.device}, and the stream runs on {device}")


def _check_place(x: Tensor, batch: int) -> torch.device:
    """Where a stream runs whose filters are these."""
    if x.device.type not in ("cpu", "cuda"):
        fail(f"streams run on CPUs and NVIDIA GPUs, not on {x.device}")
    if batch < 1:
        fail(f"a batch of {batch}; at least one signal is needed")
    return x.device


class LongStream:
    """A causal LongConv over danaus_stream (docs/conv.md): a number costs the same
    whenever it comes, and no block waits for a later one."""

    def __init__(self, conv, batch: int):
        if conv.kind != "causal":
            fail(
                f"a {conv.kind} convolution needs the whole signal: streams are causal"
            )
        if conv.keep is not None:
            fail("filters with sparse spectra look ahead: streams are causal")
        with torch.no_grad():
            k, _ = conv.filters_for(conv.length)
            self.place = _check_place(k, batch)
            self._dtype = sum_dtype(k.dtype)
            k = k.detach().to("cpu", self._dtype)
            group = conv.channels // k.shape[0]
            skip = conv.skip
            if skip is not None:
                skip = skip.to(self.place, self._dtype, copy=True)
                skip = skip.repeat_interleave(group)
        self._skip = skip
        self.batch, self.channels = batch, conv.channels
        # Channels before batch: those of one filter lie beside each other.
        self._stream = Stream(
            k.numpy(),
            channels=batch * conv.channels,
            dtype="f64" if self._dtype == torch.float64 else "f32",
            device=str(self.place),
        )

    @torch.no_grad()
    def __call__(
        self, u: Tensor, gate_in: Tensor | None = None, gate_out: Tensor | None = None
    ) -> Tensor:
        """The next block, [batch, channels, any], to y of the same shape and type;
        several types are brought to one as `long_conv` does. Sums are float64 where the
        module's filters are, else float32."""
        _check_block(u, (self.batch, self.channels, None), self.place)
        if u.shape[2] == 0:
            return u.clone()
        u, gate_in, gate_out = rows_of(u, gate_in, gate_out)
        p = u.to(self._dtype)
        if gate_in is not None:
            p = p * gate_in.to(self._dtype)
        y = self._convolve(p.transpose(0, 1).flatten(0, 1).contiguous())
        y = y.unflatten(0, (self.channels, self.batch)).transpose(0, 1)
        if self._skip is not None:
            y = y + self._skip[:, None] * p
        if gate_out is not None:
            y = y * gate_out
        return y.to(u.dtype).contiguous()

    def _convolve(self, rows: Tensor) -> Tensor:
        y, queue = torch.empty_like(rows), 0
        if rows.is_cuda:
            queue = torch.cuda.current_stream(rows.device).cuda_stream
        places = rows.data_ptr(), y.data_ptr()
        run_in_place(self._stream, rows.shape[1], *places, queue)
        return y

    def reset(self) -> None:
        """Forgets the signal: what follows begins anew."""
        self._stream.reset()


class ShortStream:
    """A ShortConv that is not centred, with the last taps - 1 numbers kept."""

    def __init__(self, conv, batch: int):
        if conv.centred:
            fail("a centred convolution looks ahead: streams are causal")
        self.place = _check_place(conv.weight, batch)
        self._last = conv.layout == "channels_last"
        self._time = 1 if self._last else 2
        self._conv = conv
        self._shape = (
            (batch, None, conv.channels) if self._last else (batch, conv.channels, None)
        )
        self._weight = conv.weight.detach().clone()
        self._bias = None if conv.bias is None else conv.bias.detach().clone()
        self._past = None

    @torch.no_grad()
    def __call__(self, u: Tensor) -> Tensor:
        """The next block, in the module's layout, to y of the same shape and type."""
        _check_block(u, self._shape, self.place)
        if u.shape[self._time] == 0:
            return u.clone()
        kept = self._weight.shape[1] - 1
        if self._past is None:
            shape = [kept if size is None else size for size in self._shape]
            self._past = u.new_zeros(shape)
        seen = torch.cat([self._past.to(u.dtype), u], self._time)
        self._past = seen.narrow(self._time, u.shape[self._time], kept).clone()
        y = short_conv(seen, self._weight, self._bias, self._conv.layout)
        y = y.narrow(self._time, kept, u.shape[self._time]).contiguous()
        return self._conv.activate(y)

    def reset(self) -> None:
        """Forgets the signal: what follows begins anew."""
        self._past = None


class GatedStream:
    """A GatedLongConv, over streams of its two convolutions."""

    def __init__(self, layer, batch: int):
        self._layer = layer
        self._short, self._long = layer.short.stream(batch), layer.long.stream(batch)

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """The next block, [batch, any, width], to y of the same shape and type."""
        _check_block(x, (self._long.batch, None, self._layer.width), self._long.place)
        if x.shape[1] == 0:
            return x.clone()
        z = self._short(self._layer.in_proj(x)).mT
        if self._layer.head_dim > 1:
            y = mix_heads(z, self._layer.head_dim, self._long)
        else:
            q, k, v = z.unflatten(1, (3, -1)).unbind(1)
            y = self._long(v, gate_in=k, gate_out=q)
        return self._layer.out_proj(y.transpose(1, 2))

    def reset(self) -> None:
        """Forgets the sequence: what follows begins anew."""
        self._short.reset()
        self._long.reset()
