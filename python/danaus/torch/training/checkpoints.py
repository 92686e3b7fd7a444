"""Folders that hold a model and the state from which its training goes on.

A checkpoint gets its name when it is complete: before, and while it is removed, its
name ends in .part.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import pathlib
import re
import shutil
from collections.abc import Mapping
from typing import Any

import torch

from danaus._files import write_whole
from danaus.torch._conv_functions import fail

_STATE = "training.pt"
_NAME, _PART = re.compile(r"checkpoint-(\d+)"), ".part"


def _all(out: pathlib.Path) -> list[pathlib.Path]:
    """Checkpoints of a folder, the last one at the end."""
    found = [p for p in out.glob("checkpoint-*") if _NAME.fullmatch(p.name)]
    return sorted(found, key=lambda p: int(p.name.split("-")[1]))


def last(out: pathlib.Path) -> pathlib.Path | None:
    """The checkpoint of the last step."""
    found = _all(out)
    return found[-1] if found else None


def path_of(out: pathlib.Path, step: int) -> pathlib.Path:
    return out / f"checkpoint-{step}"


def save(
    out: pathlib.Path,
    model: Any,
    files: Mapping[str, bytes],
    state: Mapping[str, Any],
    keep: int,
) -> pathlib.Path:
    """Writes a checkpoint of the step that `state` names; then removes others, so that
    `keep` are there."""
    path = path_of(out, state["step"])
    part = path.with_name(path.name + _PART)
    shutil.rmtree(part, ignore_errors=True)
    model.save_pretrained(part)
    for name, content in files.items():
        write_whole(part / name, content)
    torch.save(dict(state), part / _STATE)
    for file in (*part.iterdir(), part):
        _store(file)
    os.rename(part, path)
    _store(out)
    for old in _all(out)[:-keep]:
        gone = old.with_name(old.name + _PART)
        shutil.rmtree(gone, ignore_errors=True)
        os.rename(old, gone)
        shutil.rmtree(gone)
    return path


def _store(path: pathlib.Path) -> None:
    """Makes sure that a written file or folder survives a loss of power."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_state(path: pathlib.Path) -> dict[str, Any]:
    """The state of a checkpoint."""
    try:
        state = torch.load(path / _STATE, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # pickle, zip and torch have many
        reason = str(error).split("\n")[0]
        fail(f"{path / _STATE} is no state of a training: {reason}")
    lacks = {"step", "settings", "optimizer", "size", "pending", "seconds"} - set(state)
    if lacks:
        fail(f"{path / _STATE} lacks {', '.join(sorted(lacks))}")
    return state
