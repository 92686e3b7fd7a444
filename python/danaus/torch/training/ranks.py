"""One process, or those that torchrun started."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch import distributed as dist

from danaus.torch._conv_functions import fail


class Ranks:
    """The processes of a training: `rank` of `count`, and the device of this one."""

    def __init__(self, device: str | None):
        self.rank = int(os.environ.get("RANK", 0))
        self.count = int(os.environ.get("WORLD_SIZE", 1))
        kind = device or ("cuda" if torch.cuda.is_available() else "cpu")
        if kind == "cuda" and not torch.cuda.is_available():
            fail("device is cuda, and PyTorch finds no GPU")
        self.device = torch.device(kind)
        if kind == "cuda":
            local = int(os.environ.get("LOCAL_RANK", 0))
            if local >= torch.cuda.device_count():
                fail(f"process {local} of this machine has no GPU of its own")
            self.device = torch.device(kind, local)
            torch.cuda.set_device(self.device)

    @contextlib.contextmanager
    def joined(self) -> Iterator[None]:
        """The processes know each other: by gloo on CPUs, by NCCL on GPUs."""
        if self.count == 1 or dist.is_initialized():
            yield
            return
        dist.init_process_group("nccl" if self.device.type == "cuda" else "gloo")
        try:
            yield
        finally:
            dist.destroy_process_group()

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def part(self, size: int, number: int, parts: int) -> slice:
        """This process' rows of a part of a batch."""
        each = size // (self.count * parts)
        start = (self.rank * parts + number) * each
        return slice(start, start + each)

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model, whose gradients are means over all processes."""
        if self.count == 1:
            return model
        ids = [self.device.index] if self.device.type == "cuda" else None
        with warnings.catch_warnings():  # the new name is not in every PyTorch
            warnings.simplefilter("ignore", FutureWarning)
            return nn.parallel.DistributedDataParallel(
                model, device_ids=ids, broadcast_buffers=False
            )

    def sum(self, x: Tensor) -> Tensor:
        """x of all processes together."""
        if self.count > 1:
            dist.all_reduce(x)
        return x

    def any(self, flag: bool) -> bool:
        """True if it is true for one of the processes."""
        if self.count == 1:
            return flag
        return bool(self.sum(torch.tensor(float(flag), device=self.device)))

    def wait(self) -> None:
        """For all to come here."""
        if self.count > 1:
            dist.barrier()
