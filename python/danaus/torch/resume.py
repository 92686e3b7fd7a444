"""A folder of finished layers, from which a call that was interrupted goes on.

There is a file for each layer with the candidate's numbers, its order and its row of
the report. The file's name has a hash of model, data and options, so that a call with
others does not read it.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import io
import json
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from danaus._files import write_whole
from danaus.chain import Chain
from danaus.torch.candidates import Candidate


def _digest(hashed: Any, value: Any) -> None:
    """Adds a value: tensors by their bytes, containers item by item."""
    if isinstance(value, Tensor):
        flat = value.detach().cpu().contiguous()
        hashed.update(f"{flat.dtype}{tuple(flat.shape)}".encode())
        hashed.update(flat.reshape(-1).view(torch.uint8).numpy().data)
    elif isinstance(value, np.ndarray):
        hashed.update(f"{value.dtype}{value.shape}".encode())
        hashed.update(np.ascontiguousarray(value).view(np.uint8).data)
    elif isinstance(value, Chain):
        _digest(hashed, [np.array(w) for w in value.weights])
    elif isinstance(value, Mapping):
        for key, item in value.items():
            hashed.update(repr(key).encode())
            _digest(hashed, item)
    elif isinstance(value, (tuple, list)):
        hashed.update(f"{len(value)}:".encode())
        for item in value:
            _digest(hashed, item)
    elif callable(value) and not isinstance(value, type):
        hashed.update(getattr(value, "__qualname__", type(value).__name__).encode())
    else:
        hashed.update(repr(value).encode())


class Finished:
    """Layers of one call; `folder` None: nothing is kept."""

    def __init__(
        self,
        folder: str | os.PathLike | None,
        model: nn.Module,
        names: Iterable[str],
        batches: list[Any],
        options: Mapping[str, Any],
    ):
        self.folder = None if folder is None else pathlib.Path(folder)
        if self.folder is None:
            return
        hashed = hashlib.sha256()
        for part in (model.state_dict(), list(names), batches, options):
            _digest(hashed, part)
        self.key = hashed.hexdigest()[:16]
        self.folder.mkdir(parents=True, exist_ok=True)

    def _path(self, name: str) -> pathlib.Path:
        assert self.folder is not None
        safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
        return self.folder / f"{self.key}.{safe[-150:]}.npz"

    def get(self, name: str) -> tuple[Candidate, np.ndarray | None, dict] | None:
        """A layer that is there: its candidate, its bias, and what the report says."""
        if self.folder is None or not self._path(name).exists():
            return None
        try:
            with np.load(self._path(name), allow_pickle=False) as file:
                facts = json.loads(str(file["facts"]))
                chains = [
                    [file[f"chain.{i}.{j}"] for j in range(count)]
                    for i, count in enumerate(facts["counts"])
                ]
                rows, cols, bias = (
                    file[n] if n in file else None for n in ("rows", "cols", "bias")
                )
                candidate = Candidate(
                    facts["kind"], chains, file["dense"], facts["kept"], facts["loss"]
                )
        except (OSError, ValueError, KeyError):  # written in part, or by others
            return None
        candidate.order = rows, cols
        return candidate, bias, facts["report"]

    def put(
        self,
        name: str,
        candidate: Candidate,
        bias: np.ndarray | None,
        report: Mapping[str, Any],
    ) -> None:
        """Keeps a layer that has been fitted."""
        if self.folder is None:
            return
        arrays = {
            f"chain.{i}.{j}": w
            for i, chain in enumerate(candidate.chains)
            for j, w in enumerate(chain)
        }
        given = zip(("rows", "cols", "bias"), (*candidate.order, bias))
        arrays |= {n: a for n, a in given if a is not None}
        facts = {
            "kind": candidate.kind,
            "counts": [len(chain) for chain in candidate.chains],
            "kept": candidate.rows,
            "loss": float(candidate.loss),
            "report": dict(report),
        }
        self._write(name, arrays | {"dense": candidate.dense}, facts)

    def sizes(self) -> dict[str, int] | None:
        """Budgets of all layers, where they are there."""
        if self.folder is None:
            return None
        path = self._path("budgets")
        try:
            with np.load(path, allow_pickle=False) as file:
                return json.loads(str(file["facts"]))
        except (OSError, ValueError, KeyError):
            return None

    def put_sizes(self, sizes: Mapping[str, int]) -> None:
        if self.folder is not None:
            self._write("budgets", {}, dict(sizes))

    def _write(self, name: str, arrays: Mapping[str, np.ndarray], facts: Any) -> None:
        content = io.BytesIO()
        np.savez(content, facts=np.array(json.dumps(facts)), **arrays)
        write_whole(self._path(name), content.getvalue())
