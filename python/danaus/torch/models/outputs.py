"""What models return."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

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


def wide(scores: Tensor) -> Tensor:
    """Scores in f32 at least: sums of exponentials need it."""
    return scores if scores.dtype == torch.float64 else scores.float()


def classified(logits: Tensor, labels: Tensor | None) -> LogitsOutput:
    """Scores [batch, classes] with their mean cross-entropy; one class is a number to
    fit, with the mean square of the error."""
    if labels is None:
        return LogitsOutput(None, logits)
    scores = wide(logits)
    if scores.shape[1] == 1:
        loss = nn.functional.mse_loss(scores[:, 0], labels.to(scores.dtype))
    else:
        loss = nn.functional.cross_entropy(scores, labels)
    return LogitsOutput(loss, logits)
