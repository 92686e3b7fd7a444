"""Adapters for PEFT: BOFT and Monarch, and LoRA on layers of danaus.

docs/python.md, section PEFT, is the guide.
"""

# SPDX-License-Identifier: Apache-2.0
try:
    import peft  # noqa: F401
except ImportError as error:
    raise ImportError(
        "danaus.peft needs peft: pip install peft (0.21.2 has been tried)"
    ) from error

from danaus.torch.peft.boft import BOFTConfig, BOFTModel
from danaus.torch.peft.chains import on_chains
from danaus.torch.peft.monarch import MonarchConfig, MonarchModel

__all__ = ["BOFTConfig", "BOFTModel", "MonarchConfig", "MonarchModel", "on_chains"]
