"""What models return."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from danaus.torch.models.base import Output


@dataclass
class EncoderOutput(Output):
    """Rows of the last layer, and one for each sequence."""

    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None


@dataclass
class LogitsOutput(Output):
    """Scores, and with labels the loss."""

    loss: Tensor | None = None
    logits: Tensor | None = None
