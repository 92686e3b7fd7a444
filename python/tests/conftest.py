"""What all tests share: seeded numbers, random chains, f64 oracles, devices."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import csv
import io
import os
import pathlib
import runpy
import subprocess
import sys
import zlib
from unittest import mock

import numpy as np
import pytest

import danaus

BENCH = pathlib.Path(__file__).parents[2] / "bench"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run beside each other


@pytest.fixture
def rng(request) -> np.random.Generator:
    """Random numbers that are the same on every run of the same test."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


def _cuda() -> bool:
    return any(info.name.startswith("cuda") for info in danaus.list_devices())


@pytest.fixture(
    params=[
        "cpu",
        pytest.param("cuda", marks=pytest.mark.skipif(not _cuda(), reason="no GPU")),
    ]
)
def device(request) -> str:
    """PyTorch's name of each kind of device that this machine has."""
    return request.param


@pytest.fixture(
    params=[
        "cpu",
        "fft",
        pytest.param("cuda", marks=pytest.mark.skipif(not _cuda(), reason="no GPU")),
    ]
)
def place(request, monkeypatch) -> str:
    """Where PyTorch's convolutions run, a CPU as if it had no kernels among them."""
    torch = pytest.importorskip("torch")
    from danaus.torch import _conv_functions, _hyena_functions, conv

    # cuDNN may take TF32 for the products of conv1d, which is coarser.
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    if request.param != "fft":
        return request.param
    for module in (_conv_functions, _hyena_functions, conv):
        monkeypatch.setattr(module, "has_kernels", lambda device: False)
    return "cpu"


def random_patterns(rng: np.random.Generator, factors: int = 2) -> list[tuple]:
    """Composable patterns of small sizes; a product of them is about 50 x 50."""
    patterns = [tuple(int(v) for v in rng.integers(1, 5, 4))]
    while len(patterns) < factors:
        a, _, c, d = patterns[-1]
        rows = a * c * d  # of the next factor: a b d
        a = int(rng.choice([n for n in range(1, rows + 1) if rows % n == 0]))
        d = int(rng.choice([n for n in range(1, rows // a + 1) if rows // a % n == 0]))
        patterns.append((a, rows // a // d, int(rng.integers(1, 5)), d))
    return patterns


def dense_factor(w: np.ndarray) -> np.ndarray:
    """The matrix of a factor from w[a][b][c][d], in f64 or c128, by definition."""
    a, b, c, d = w.shape
    wide = w.astype(np.result_type(w.dtype, np.float64))
    matrix = np.zeros((a, b, d, a, c, d), wide.dtype)
    for i in range(a):
        for j in range(d):
            matrix[i, :, j, i, :, j] = wide[i, :, :, j]
    return matrix.reshape(a * b * d, a * c * d)


def dense_chain(weights) -> np.ndarray:
    """The product of all factors, in f64 or c128."""
    product = dense_factor(weights[0])
    for w in weights[1:]:
        product = product @ dense_factor(w)
    return product


def random_array(rng: np.random.Generator, shape, dtype) -> np.ndarray:
    """Normal numbers, complex ones of both parts."""
    numbers = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        numbers = numbers + 1j * rng.standard_normal(shape)
    return numbers.astype(dtype)


def random_chain(rng, factors: int, dtype: str, bias: bool = False) -> danaus.Chain:
    """A chain of random patterns and weights, maybe with a random bias."""
    kind = np.complex128 if dtype.startswith("c") else np.float64
    patterns = random_patterns(rng, factors)
    weights = [random_array(rng, p, kind) for p in patterns]
    rows = patterns[0][0] * patterns[0][1] * patterns[0][3]
    added = random_array(rng, rows, kind) if bias else None
    return danaus.Chain.from_weights(weights, added, dtype)


def run_program(path, *arguments) -> subprocess.CompletedProcess:
    """What a Python program says and returns, in this process: it has PyTorch."""
    words = [str(word) for word in (path, *arguments)]
    folder = str(pathlib.Path(path).parent)
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(sys, "argv", words))
        stack.enter_context(mock.patch.object(sys, "path", [folder, *sys.path]))
        stack.enter_context(mock.patch.dict(os.environ))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        try:
            runpy.run_path(words[0], run_name="__main__")
        except SystemExit as end:
            code = end.code or 0
            if isinstance(code, str):
                print(code, file=err)
                code = 1
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def run_bench(program: str, *arguments) -> str:
    """What a program of bench prints."""
    done = run_program(BENCH / program, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def bench_records(program: str, folder: pathlib.Path, *options: str) -> list[dict]:
    """The records that a program of bench writes at small sizes, into a folder."""
    out = folder / "records.csv"
    run_bench(program, str(out), "--tiny", *options)
    with open(out, newline="") as file:
        return list(csv.DictReader(file))
