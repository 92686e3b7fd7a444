"""Whether PyTorch's own operators alone are to run, for programs without danaus."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from danaus.torch._ops import is_traced


def _is_in_onnx_export() -> bool:
    return torch.onnx.is_in_onnx_export()


# A compiler takes PyTorch's function for False.
_is_in_onnx_export._dynamo_marked_constant = True


def _exports_onnx() -> bool:
    return is_traced() and _is_in_onnx_export()


class _Standard(threading.local):
    asked = False


_standard = _Standard()


def is_standard() -> bool:
    """Says whether an exporter to ONNX records, since no operator of danaus can be part
    of its program, and in convolutions that `to_plain` made."""
    return _standard.asked or _exports_onnx()


@contextmanager
def standard_operators() -> Iterator[None]:
    """Makes `is_standard` true inside."""
    before, _standard.asked = _standard.asked, True
    try:
        yield
    finally:
        _standard.asked = before


def refuse_onnx(what: str) -> None:
    """Raises if an exporter to ONNX, which cannot record that, is at work."""
    if _exports_onnx():
        raise NotImplementedError(f"danaus: {what} cannot be exported to ONNX")
