"""The command line of a program that trains."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from danaus.torch._conv_functions import fail
from danaus.torch.training import checkpoints
from danaus.torch.training.loop import Training
from danaus.torch.training.ranks import Ranks
from danaus.torch.training.settings import COMMON, NEEDED, Settings, read_settings

Kinds = Mapping[str, tuple[Any, Any]]  # classes of a configuration and a model


def _options(doc: str, fields: Mapping[str, Any], words) -> argparse.Namespace:
    lines = []
    for name, field in fields.items():
        usual = "needed" if field.usual is NEEDED else json.dumps(field.usual)
        lines.append(f"  {name} ({usual}): {field.help}")
    parser = argparse.ArgumentParser(
        description=doc,
        epilog="settings and their usual values:\n" + "\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "settings", nargs="*", metavar="CONFIG.json or KEY=VALUE",
        help="a file of settings, and single ones, which count if they come later",
    )  # fmt: skip
    parser.add_argument(
        "--resume", action="store_true",
        help="goes on from the last checkpoint in `out`, if there is one",
    )  # fmt: skip
    return parser.parse_args(words)


def _kind(kinds: Kinds, settings: Settings) -> tuple[Any, Any]:
    name = settings.model.get("model_type", next(iter(kinds)))
    if name not in kinds:
        fail(f"model.model_type is {name!r}; it has to be one of {', '.join(kinds)}")
    return kinds[name]


def build(kinds: Kinds, settings: Settings, data: Any) -> torch.nn.Module:
    """The model that the settings describe, with random weights by the seed."""
    config_class, model_class = _kind(kinds, settings)
    given = {n: v for n, v in settings.model.items() if n != "model_type"}
    known = config_class.defaults
    for name in given:
        if name not in known and name not in data.numbers:
            fail(f"a model has no number {name!r}; it has {', '.join(known)}")
    usual = {n: v for n, v in data.numbers.items() if n in known or n == "num_labels"}
    torch.manual_seed(settings.seed)
    try:
        return model_class(config_class(**usual | given))
    except (TypeError, RuntimeError) as error:
        fail(f"there is no model with these numbers: {error}")


def begin(
    kinds: Kinds, settings: Settings, task: Any, resume: bool, ranks: Ranks
) -> Training:
    """The training at its first step, or at the last checkpoint's step."""
    out = pathlib.Path(settings.out)
    path = checkpoints.last(out)
    if path is not None and not resume:
        fail(f"{path} is there; --resume goes on from it, out=FOLDER begins elsewhere")
    data = task(settings)
    if path is None:
        return Training(settings, build(kinds, settings, data), data, ranks)
    model = _kind(kinds, settings)[1].from_pretrained(path)
    training = Training(settings, model, data, ranks)
    training.load(path)
    return training


def _train(options: argparse.Namespace, kinds: Kinds, task: Any) -> int:
    fields = COMMON | task.fields
    settings = Settings(fields, read_settings(options.settings))
    ranks = Ranks(settings.device)
    _quiet()
    with ranks.joined():
        training = begin(kinds, settings, task, options.resume, ranks)
        training.run()
    if ranks.is_first:
        done = f"{training.step} of {settings.steps} steps"
        print(f"{done}: {checkpoints.last(training.out)}")
    return 0 if training.signal is None else 128 + training.signal


def _quiet() -> None:
    """No bars of transformers for files that are written."""
    try:
        from transformers.utils.logging import disable_progress_bar
    except ImportError:
        return
    disable_progress_bar()


def main(
    doc: str, kinds: Kinds, task: Any, arguments: Sequence[str] | None = None
) -> int:
    """Trains by the words of a command line, and returns the exit status: 0; 1 after a
    sentence on the error stream; 128 + n after a signal n, with a checkpoint.

    Parameters
    ----------
    doc : str
        What --help says first.
    kinds : mapping from model_type to the classes of configuration and model
        The first one is usual.
    task : `NextTokens`, `MaskedTokens` or `Images`
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    options = _options(doc, COMMON | task.fields, words)
    try:
        return _train(options, kinds, task)
    except (OSError, ValueError, FloatingPointError, MemoryError) as error:
        print(f"error: {error}".replace("error: danaus: ", "error: "), file=sys.stderr)
    except torch.OutOfMemoryError as error:
        print(f"error: {str(error).splitlines()[0]}", file=sys.stderr)
    return 1
