"""Chain files that know which matrix they were made from, one chain or many in each."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import json
import os
import urllib.parse
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from danaus._files import Tensors, read_text, write_tensors
from danaus._library import path_of
from danaus.chain import Chain

_ONE, _MANY = "danaus source", "danaus sources"  # metadata


@dataclass(frozen=True)
class Source:
    """The origin of a chain: a hash of its matrix and settings, and the outcome."""

    fingerprint: str
    record: dict[str, Any]

    @classmethod
    def read(cls, value: Any) -> Source | None:
        """The source that a JSON value describes; None if it describes none."""
        if not isinstance(value, dict) or not isinstance(value.get("record"), dict):
            return None
        return cls(str(value.get("fingerprint")), value["record"])


def _named(chain: Chain, prefix: str) -> dict[str, tuple[np.ndarray, str]]:
    """A chain's tensors as they are written."""
    arrays = {f"{prefix}factor.{i}": w for i, w in enumerate(chain.weights)}
    if chain.bias is not None:
        arrays[f"{prefix}bias"] = chain.bias
    return {name: (array, chain.element_type) for name, array in arrays.items()}


def save_chain(chain: Chain, path: str | os.PathLike, source: Source) -> None:
    """Writes a chain file with its source in the metadata."""
    metadata = {"format": "danaus chain 1", _ONE: json.dumps(asdict(source))}
    write_tensors(path, _named(chain, ""), metadata)


def _source_of(path: Path) -> Source | None:
    """The source of a valid chain file, None for anything else."""
    try:
        Chain.load(path)
        return Source.read(json.loads(Tensors(path).metadata(_ONE) or "null"))
    except (OSError, ValueError, NotImplementedError):
        return None


def _is_foreign(path: Path) -> bool:
    """True for a file whose arrays are no chain; False for a damaged file, which is
    made again."""
    try:
        return path.exists() and "factor.0" not in Tensors(path)
    except (OSError, ValueError):
        return False


def check_report(path: Path) -> None:
    """Raises FileExistsError for a file that is no report of a call before."""
    if path.exists() and not read_text(path).startswith(("name,status", "\n")):
        raise FileExistsError(f"{path} is there, and no report of factorize_many")


class ChainFolder:
    """A chain file for each name."""

    def __init__(self, path: Path):
        self.path = path
        path.mkdir(parents=True, exist_ok=True)

    @property
    def report(self) -> Path:
        return self.path / "report.csv"

    def target(self, name: str) -> Path:
        """The path of a chain's file, which is inside the folder for every name."""
        return self.path / f"{urllib.parse.quote(name, safe='')}.safetensors"

    def claim(self, name: str) -> Path:
        """The path for a chain; FileExistsError if a file of other arrays is there."""
        if _is_foreign(self.target(name)):
            raise FileExistsError(f"{self.target(name)} is there, and holds no chain")
        return self.target(name)

    def known(self, name: str) -> Source | None:
        """The source of the chain that is there already; None without a valid one."""
        return _source_of(self.target(name))

    def finish(self, found: dict[str, Source], failed: set[str]) -> None:
        """All chains are where they belong."""


class ChainFile:
    """All chains in one file; until they are complete, in a folder beside it."""

    def __init__(self, path: Path):
        self.path = path
        self.parts = ChainFolder(path.with_name(path.name + ".parts"))
        self.old: dict[str, Source] = {}
        try:
            tensors = Tensors(path)
            sources = json.loads(tensors.metadata(_MANY) or "{}").items()
        except (OSError, ValueError, AttributeError):
            return
        read = {name: Source.read(value) for name, value in sources}
        self.old = {n: s for n, s in read.items() if s and f"{n}.factor.0" in tensors}

    @property
    def report(self) -> Path:
        return self.path.with_suffix(".csv")

    def target(self, name: str) -> Path:
        return self.parts.target(name)

    def claim(self, name: str) -> Path:
        return self.parts.claim(name)

    def known(self, name: str) -> Source | None:
        return self.parts.known(name) or self.old.get(name)

    def finish(self, found: dict[str, Source], failed: set[str]) -> None:
        """Puts chains that were made or kept into the file.

        Those of names that this call did not meet stay there.
        """
        sources = {n: s for n, s in self.old.items() if n not in failed} | found
        arrays: dict[str, tuple[np.ndarray, str]] = {}
        for name in sources:
            part = self.target(name)
            of_part = name in found and part.exists()
            tensors = Tensors(part if of_part else self.path)
            prefix = "" if of_part else f"{name}."
            for key in _keys(tensors, prefix):
                typed = tensors[key], tensors.element_type(key)
                arrays[f"{name}.{key[len(prefix) :]}"] = typed
        if arrays and (sources != self.old or any(self.parts.path.iterdir())):
            known = json.dumps({name: asdict(s) for name, s in sources.items()})
            metadata = {"format": "danaus chains 1", _MANY: known}
            write_tensors(self.path, arrays, metadata)
        for part in self.parts.path.glob("*.safetensors"):
            part.unlink()
        with contextlib.suppress(OSError):  # what else is there is not ours
            self.parts.path.rmdir()


def _keys(tensors: Tensors, prefix: str) -> list[str]:
    """Names of a chain's tensors: factors in order, then perhaps the bias."""
    keys: list[str] = []
    while (key := f"{prefix}factor.{len(keys)}") in tensors:
        keys.append(key)
    bias = f"{prefix}bias"
    return [*keys, bias] if bias in tensors else keys


def load_chains(path: str | os.PathLike) -> dict[str, Chain]:
    """Reads what `danaus.factorize_many` wrote: a folder of chain files, or one file.

    A file may be any safetensors with tensors NAME.factor.0, NAME.factor.1, ... of the
    shapes [a, b, c, d], and perhaps NAME.bias; others are passed over.
    """
    path = path_of(path)
    if path.is_dir():
        files = sorted(path.glob("*.safetensors"))
        return {urllib.parse.unquote(f.stem): Chain.load(f) for f in files}
    tensors, chains = Tensors(path), {}
    for key in tensors:
        name, dot, end = key.rpartition(".factor.")
        if dot and end == "0":
            keys = _keys(tensors, f"{name}.")
            bias = tensors[keys.pop()] if keys[-1].endswith(".bias") else None
            weights = [tensors[key] for key in keys]
            dtype = tensors.element_type(key)
            chains[name] = Chain.from_weights(weights, bias, dtype)
    if not chains:
        cure = ": it is one chain, for Chain.load" if "factor.0" in tensors else ""
        raise ValueError(f"{path} has no tensor NAME.factor.0{cure}")
    return chains
