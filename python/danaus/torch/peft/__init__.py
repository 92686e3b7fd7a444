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

from danaus.torch.peft.boft import BOFTConfig, BOFTModel, replace_boft
from danaus.torch.peft.chains import on_chains
from danaus.torch.peft.monarch import MonarchConfig, MonarchModel

# One line for each module.
# fmt: off
__all__ = [
    "BOFTConfig", "BOFTModel", "replace_boft",
    "MonarchConfig", "MonarchModel",
    "on_chains",
]
# fmt: on
