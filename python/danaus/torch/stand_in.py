"""What a layer keeps of the layer that it replaces."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys

import numpy as np
from torch import nn

from danaus.torch.candidates import Candidate
from danaus.torch.parents import MAKERS, effective, role

# nn.Module's dictionaries of hooks on calls. Both layers have the same ones, so that
# handles which users hold remove hooks from both.
_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)


def stand_in(old: nn.Module, candidate: Candidate, bias: np.ndarray | None):
    """The layer of a candidate: type, device, hooks and frozen weights as of the old.

    It is in evaluation mode, as the model is while layers are fitted.
    """
    new = candidate.module(bias, effective(old)).eval()
    share_hooks(old, new)
    trained = {role(n) for n, p in old.named_parameters() if p.requires_grad}
    for name, parameter in new.named_parameters():
        parameter.requires_grad_(role(name.rpartition(".")[2]) in trained)
    return new


def share_hooks(old: nn.Module, new: nn.Module) -> None:
    """Gives the new layer the hooks on calls of the old one, except those that compute
    its weight. Where it has such, the new layer's dictionary is a copy.
    """
    for name in _HOOKS:
        hooks = getattr(old, name, None)
        if hooks is None:
            continue
        if any(isinstance(hook, MAKERS) for hook in hooks.values()):
            getattr(new, name).update(
                {k: h for k, h in hooks.items() if not isinstance(h, MAKERS)}
            )
        else:
            setattr(new, name, hooks)
    new._is_full_backward_hook = old._is_full_backward_hook
    accelerated = getattr(old, "_hf_hook", None)
    if accelerated is not None and "accelerate.hooks" in sys.modules:
        sys.modules["accelerate.hooks"].add_hook_to_module(new, accelerated)
