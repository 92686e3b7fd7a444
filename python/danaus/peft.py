"""Adapters for PEFT, by their short name: see ``danaus.torch.peft``."""
# SPDX-License-Identifier: Apache-2.0

from danaus.torch.peft import (
    BOFTConfig,
    BOFTModel,
    MonarchConfig,
    MonarchModel,
    on_chains,
    replace_boft,
)

__all__ = [
    "BOFTConfig",
    "BOFTModel",
    "MonarchConfig",
    "MonarchModel",
    "on_chains",
    "replace_boft",
]
