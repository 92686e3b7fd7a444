"""Types of adapters that PEFT does not have."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from peft import PeftType


def new_type(name: str) -> PeftType:
    """A new member of PEFT's enumeration, which its `register_peft_method` needs.

    Members are set as Python's enum sets them, so that names, values and pickles work.
    """
    member = str.__new__(PeftType, name)
    member._name_ = member._value_ = name
    setattr(PeftType, name, member)
    PeftType._member_names_.append(name)
    PeftType._member_map_[name] = PeftType._value2member_map_[name] = member
    return member
