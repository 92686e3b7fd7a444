"""Trains models of `danaus.torch.models` on files, with checkpoints that resume.

A program has a table of models and a task; docs/training.md says what its users write:

    training.main(__doc__, {"hyena": (HyenaConfig, HyenaForCausalLM)}, NextTokens)
"""

# SPDX-License-Identifier: Apache-2.0
from danaus.torch.training.images import Images
from danaus.torch.training.loop import Training
from danaus.torch.training.optimizer import parameter_groups, rate_at
from danaus.torch.training.program import main
from danaus.torch.training.settings import Settings
from danaus.torch.training.texts import Vocabulary
from danaus.torch.training.tokens import MaskedTokens, NextTokens

# fmt: off
__all__ = [
    "Images", "MaskedTokens", "NextTokens", "Settings", "Training", "Vocabulary",
    "main", "parameter_groups", "rate_at",
]
# fmt: on
