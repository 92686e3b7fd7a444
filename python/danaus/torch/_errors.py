"""The error of an argument that is wrong."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import NoReturn

from torch import fx

TO_PLAIN = "what danaus.torch.to_plain makes of the model"


def fail(sentence: str) -> NoReturn:
    """Raises it."""
    raise ValueError("danaus: " + sentence)


def refuse_proxy(x, way: str = f"record {TO_PLAIN}") -> None:
    """Raises for what torch.fx passes in place of a tensor."""
    if isinstance(x, fx.Proxy):
        raise TypeError(
            "danaus: torch.fx.symbolic_trace knows no shapes, by which layers choose "
            f"what runs: {way}"
        )
