"""Settings of a training: a JSON file, and KEY=VALUE of the command line."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from danaus._files import read_text
from danaus.torch._conv_functions import fail

NEEDED = object()  # there is no usual value


class Field(NamedTuple):
    """A setting: its default, the values that it may have, and its purpose."""

    usual: Any
    accepts: Callable[[Any], bool]
    has_to_be: str
    help: str


def _is_number(x: Any) -> bool:
    is_one = isinstance(x, (int, float)) and not isinstance(x, bool)
    return is_one and math.isfinite(x)


def whole(usual: Any, least: int, help: str) -> Field:
    def accepts(x: Any) -> bool:
        return isinstance(x, int) and not isinstance(x, bool) and least <= x < 2**53

    return Field(usual, accepts, f"a whole number from {least} on", help)


def number(usual: Any, help: str, *, below: float = math.inf) -> Field:
    """A number from 0 on."""
    words = "a number from 0 on"
    if below < math.inf:
        words += f", and less than {below:g}"
    return Field(usual, lambda x: _is_number(x) and 0 <= x < below, words, help)


def switch(usual: bool, help: str) -> Field:
    return Field(usual, lambda x: isinstance(x, bool), "true or false", help)


def one_of(usual: Any, names: Iterable[Any], help: str) -> Field:
    names = list(names)
    words = "one of " + ", ".join(json.dumps(n) for n in names)
    return Field(usual, lambda x: x in names, words, help)


def path(usual: Any, help: str) -> Field:
    return Field(usual, lambda x: isinstance(x, str) and x != "", "a file's name", help)


def _are_files(x: Any) -> bool:
    if isinstance(x, str):
        return x != ""
    return isinstance(x, list) and all(isinstance(n, str) and n for n in x)


def files(usual: Any, help: str) -> Field:
    return Field(usual, _are_files, "a file's name or a list of them", help)


def as_list(names: str | list[str]) -> list[str]:
    return [names] if isinstance(names, str) else names


def _are_betas(x: Any) -> bool:
    return (
        isinstance(x, list)
        and len(x) == 2
        and all(_is_number(b) and 0 <= b < 1 for b in x)
    )


def optional(field: Field) -> Field:
    """The same, or null."""
    return field._replace(accepts=lambda x: x is None or field.accepts(x))


#: Settings of every training.
COMMON = {
    "model": Field(
        {},
        lambda x: isinstance(x, dict),
        "an object with the model's numbers",
        "model_type, and numbers of the model by their names in config.json",
    ),
    "data": files(NEEDED, "files to train on"),
    "held_out": number(0.05, "share of the data that is for evaluation", below=1),
    "held_out_data": files([], "files for evaluation, in place of a share"),
    "out": path("run", "folder for checkpoints and the log"),
    "batch": whole(8, 1, "sequences or images of a step, of all processes together"),
    "accumulate": whole(1, 1, "parts that a process computes a step in"),
    "steps": whole(1000, 1, "steps in all"),
    "rate": number(6e-4, "the largest learning rate"),
    "warm_up": number(0.06, "share of the steps in which the rate grows", below=1),
    "last_rate": number(0.02, "the last rate, as a share of the largest"),
    "weight_decay": number(1e-2, "of matrices; vectors do not decay"),
    "filter_rate": optional(number(None, "rate of networks that make filters")),
    "filter_decay": optional(number(None, "weight_decay of these networks")),
    "position_rate": optional(number(None, "rate of filters' learned positions")),
    "betas": Field([0.9, 0.98], _are_betas, "two numbers in [0, 1)", "of AdamW"),
    "epsilon": number(1e-6, "of AdamW"),
    "clip": number(1.0, "longest gradient; 0 clips nothing"),
    "seed": whole(0, 0, "of weights, data and dropout"),
    "dtype": one_of("float32", ["float32", "bfloat16"], "bfloat16: by autocast"),
    "device": one_of(None, [None, "cpu", "cuda"], "null: a GPU if there is one"),
    "compile": switch(False, "torch.compile"),
    "recompute": switch(False, "blocks are computed again for gradients"),
    "log_every": whole(10, 1, "steps between rows of the log"),
    "evaluate_every": whole(500, 1, "steps between evaluations"),
    "evaluate_batches": whole(50, 1, "most batches of an evaluation"),
    "checkpoint_every": whole(500, 1, "steps between checkpoints"),
    "keep": whole(1, 1, "checkpoints that are kept"),
}

#: What may differ between a run and the one that goes on from its checkpoint.
FREE = {"out", "device", "log_every", "checkpoint_every", "keep"}


class Settings:
    """Values of settings as attributes.

    Parameters
    ----------
    fields : the settings that there are.
    given : values by name; those that are not named are the usual ones.

    Raises
    ------
    ValueError
        A name that there is not, a value that is not possible, or a needed one lacks.
    """

    def __init__(self, fields: Mapping[str, Field], given: Mapping[str, Any]):
        for name in given:
            if name not in fields:
                fail(f"there is no setting {name!r}; there are {', '.join(fields)}")
        for name, field in fields.items():
            value = given.get(name, field.usual)
            if value is NEEDED:
                fail(f"the setting {name} is needed: {field.help}")
            if name in given and not field.accepts(value):
                fail(f"{name} is {json.dumps(value)}; it has to be {field.has_to_be}")
            setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:  # for type checkers
        raise AttributeError(name)

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


def read_settings(words: Iterable[str]) -> dict[str, Any]:
    """Values from a configuration file and KEY=VALUE, in the order of the words.

    VALUE is JSON, or else a string; KEY may lead into an object, as in
    model.d_model=64.
    """
    found: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if equals:
            _assign(found, key, _value(text))
        else:
            found.update(_read(word))
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _read(name: str) -> dict[str, Any]:
    try:
        content = json.loads(read_text(name))
    except ValueError as error:
        fail(f"{name} is no proper JSON: {error}")
    if not isinstance(content, dict):
        fail(f"{name} holds a {type(content).__name__}, not an object of settings")
    return content


def _assign(found: dict[str, Any], key: str, value: Any) -> None:
    *outer, last = key.split(".")
    place = found
    for name in outer:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            fail(f"{key} is set, and {name} is no object")
    place[last] = value


def differences(now: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
    """Sentences about settings that a run may not change and did."""
    return [
        f"{name} is {json.dumps(value)} and was {json.dumps(then.get(name))}"
        for name, value in now.items()
        if name not in FREE and value != then.get(name)
    ]
