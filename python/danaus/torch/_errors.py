"""The error of an argument that is wrong."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import NoReturn


def fail(sentence: str) -> NoReturn:
    """Raises it."""
    raise ValueError("danaus: " + sentence)
