"""Exchange with lazylinop: its lists of 4-D arrays, its files, its operators.

lazylinop (``lazylinop.butterfly.ksm``) keeps a chain K_1 ... K_L as a list of arrays
w[a][b][c][d], the leftmost factor first: the same order and indices as danaus. Lists
and files need no lazylinop; `as_lazylinop` and `as_ksm` do.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from danaus._arrays import ElementType
from danaus._files import read_text, regular, write_whole
from danaus._library import path_of
from danaus.chain import Chain

_JSON_TYPES = ("float16", "float32", "float64", "complex64", "complex128")


def to_ks_values(chain: Chain) -> list[np.ndarray]:
    """Copies of the weights as lazylinop's list: w[a][b][c][d] of K_1 ... K_L."""
    if not isinstance(chain, Chain):
        raise TypeError(f"a danaus.Chain is needed, not a {type(chain).__name__}")
    return [w.copy() for w in chain.weights]


def from_ks_values(ks_values: Any, dtype: ElementType | None = None) -> Chain:
    """A chain of copies of lazylinop's arrays.

    Parameters
    ----------
    ks_values : a list of 4-D arrays, one such array, or an operator of lazylinop that
        has them (``ksm``, ``ksd``). Tensors of PyTorch on the CPU will do.
    dtype : None: their common type.
    """
    values = getattr(ks_values, "ks_values", ks_values)
    if not isinstance(values, Sequence):
        values = [values]
    arrays: list[ArrayLike] = [np.asarray(w) for w in values]
    return Chain.from_weights(arrays, dtype=dtype)


def _lazylinop() -> Any:
    try:
        import lazylinop
    except ImportError as error:
        raise ImportError("this needs lazylinop: pip install lazylinop") from error
    return lazylinop


def as_ksm(chain: Chain, **ksm_args: Any) -> Any:
    """lazylinop's own operator ``ksm`` of copies of the weights."""
    from_butterfly = _lazylinop().butterfly.ksm
    return from_butterfly(to_ks_values(chain), **ksm_args)


def as_lazylinop(chain: Chain) -> Any:
    """A ``LazyLinOp`` that multiplies by danaus, with the weights of the chain.

    It composes with lazylinop's operators (``@``, ``+``, slicing, ``kron``, ...).
    """
    return _lazylinop().LazyLinOp(
        chain.shape,
        matvec=chain.matvec,
        matmat=chain.matmat,
        rmatvec=chain.rmatvec,
        rmatmat=chain.rmatmat,
    )


# ---- files ----


def _path(path: str | os.PathLike) -> Path:
    """lazylinop leaves the suffix out."""
    path = path_of(path)
    return path if path.suffix in (".json", ".mat") else Path(f"{path}.json")


def save(chain: Chain, path: str | os.PathLike) -> None:
    """Writes what ``lazylinop.butterfly.load`` reads, or with .mat ``loadmat``.

    The file appears complete or not at all. The format has no bias; a bias is refused.
    """
    if chain.bias is not None:
        raise ValueError("lazylinop's files have no place for a bias: set it to None")
    arrays, path = to_ks_values(chain), _path(path)
    if chain.element_type == "bf16":
        raise ValueError("lazylinop's files have no bf16: use chain.astype('f32')")
    is_mat = path.suffix == ".mat"
    content = _as_mat(arrays) if is_mat else json.dumps(_as_json(arrays)).encode()
    write_whole(path, content)


def _as_json(arrays: Sequence[np.ndarray]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for number, w in enumerate(arrays):
        entry = {"package": "numpy", "device": "cpu", "dtype": str(w.dtype)}
        entry["ks_values_real"] = w.real.tolist()
        if w.dtype.kind == "c":
            entry["ks_values_imag"] = w.imag.tolist()
        data[f"factor{number}"] = entry
    return data | {"params": None, "backend": "xp"}


def _as_mat(arrays: Sequence[np.ndarray]) -> bytes:
    from scipy.io import savemat

    stack = np.empty((len(arrays), 1), object)
    for number, w in enumerate(arrays):
        stack[number, 0] = w
    file = io.BytesIO()
    savemat(file, {"ks_values": stack})
    return file.getvalue()


def load(path: str | os.PathLike) -> Chain:
    """Reads a file of ``lazylinop.butterfly.save`` (.json) or ``savemat`` (.mat).

    ValueError for other files.
    """
    path = _path(path)
    try:
        arrays = _load_mat(path) if path.suffix == ".mat" else _load_json(path)
    except OSError:
        raise
    except Exception as error:
        raise ValueError(f"{path} holds no chain of lazylinop: {error}") from error
    return from_ks_values(arrays)


def _load_json(path: Path) -> list[np.ndarray]:
    data = json.loads(read_text(path))
    names = [name for name in data if name not in ("backend", "params")]
    arrays = []
    for number in range(len(names)):
        entry = data[f"factor{number}"]
        dtype = entry["dtype"]
        if dtype not in _JSON_TYPES:
            raise ValueError(f"factor{number} is of type {dtype}")
        array = np.asarray(entry["ks_values_real"], np.float64)
        if dtype.startswith("complex"):
            array = array + 1j * np.asarray(entry["ks_values_imag"], np.float64)
        arrays.append(array.astype(dtype))
    return arrays


def _load_mat(path: Path) -> list[np.ndarray]:
    from scipy.io import loadmat

    stack = loadmat(regular(path))["ks_values"]
    arrays = [np.asarray(w) for w in stack[:, 0]]
    # MATLAB drops trailing dimensions of 1.
    return [w.reshape(w.shape + (1,) * (4 - w.ndim)) for w in arrays]
