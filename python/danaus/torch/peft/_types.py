"""Types of adapters that PEFT does not have."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from peft import PeftType
from peft.utils import register_peft_method


def register(name: str, config: type, model: type) -> None:
    """Makes a method known to PEFT, under a type in capital letters."""
    register_peft_method(
        name=name, config_cls=config, model_cls=model, prefix=model.prefix
    )


def new_type(name: str) -> PeftType:
    """A new member of PEFT's enumeration, which `register_peft_method` reads.

    Members are set as Python's enum sets them, so that names, values and pickles work.
    """
    member = str.__new__(PeftType, name)
    member._name_ = member._value_ = name
    setattr(PeftType, name, member)
    PeftType._member_names_.append(name)
    PeftType._member_map_[name] = PeftType._value2member_map_[name] = member
    return member
