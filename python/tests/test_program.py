"""The program that the package brings: commands, exit statuses, streams, signals."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import importlib.metadata
import io
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest

import danaus
import danaus_program

README = pathlib.Path(__file__).parents[2] / "README.md"


def _ways() -> dict[str, list[str]]:
    """How the program is started here: an installed package has it on PATH, too."""
    ways = {
        "module": [sys.executable, "-m", "danaus"],
        "entry": [sys.executable, "-c", "import danaus_program as p; p.main()"],
    }
    try:
        importlib.metadata.distribution("danaus")
    except importlib.metadata.PackageNotFoundError:  # build/python/tree
        return ways
    return {**ways, "path": [str(pathlib.Path(sys.executable).with_name("danaus"))]}


@pytest.fixture(params=_ways().values(), ids=_ways().keys())
def start(request) -> list[str]:
    return request.param


def run(command, *arguments, status=0, **options):
    """What it prints, as bytes; the sentence on the error stream where it fails."""
    options = {"stdin": subprocess.DEVNULL, **options}
    if "input" in options:
        del options["stdin"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*command, *map(str, arguments)],
        capture_output=True, timeout=100, env=environment, **options,
    )  # fmt: skip
    assert done.returncode == status, done.stderr.decode()
    return done.stderr.decode() if status else done.stdout


def transform(n: int) -> np.ndarray:
    """The Fourier transform of n points with its columns in bit-reversed order."""
    bits = n.bit_length() - 1
    order = [int(f"{i:0{bits}b}"[::-1], 2) for i in range(n)]
    return np.exp(-2j * np.pi / n * np.outer(np.arange(n), order)).astype(np.complex64)


def test_it_says_its_version_and_what_the_machine_offers(start):
    assert run(start, "--version").decode() == f"danaus {danaus.__version__}\n"
    assert b"cpu" in run(start, "info")
    assert b"factorize" in run(start, "--help")


def test_it_factorises_and_applies_files(start, tmp_path):
    n = 256
    text = np.frombuffer(README.read_bytes(), np.uint8)
    frames = text[: text.size // n * n].reshape(-1, n).astype(np.complex64)
    dft = transform(n)
    np.save(tmp_path / "dft.npy", dft)
    np.save(tmp_path / "frames.npy", frames)
    run(
        start, "factorize", "dft.npy", "--chain", "dyadic", "-o", "dft.safetensors",
        cwd=tmp_path,
    )  # fmt: skip
    run(start, "apply", "dft.safetensors", "frames.npy", "-o", "y.npy", cwd=tmp_path)
    wide = frames.astype(complex) @ dft.astype(complex).T
    error = np.linalg.norm(np.load(tmp_path / "y.npy") - wide) / np.linalg.norm(wide)
    assert error < 8 * 2.0**-24 * 16  # eight factors of two terms, and the fit of each


def test_numbers_come_and_go_by_pipes(start, tmp_path):
    chain = danaus.Chain.from_weights([np.full((3, 1, 1, 1), 2.0)], dtype="f32")
    chain.save(tmp_path / "twice.safetensors")
    x = io.BytesIO()
    np.save(x, np.arange(6, dtype=np.float32).reshape(2, 3))
    apply = [*start, "apply", tmp_path / "twice.safetensors"]
    y = run(apply, "-", "-o", "-", input=x.getvalue())
    np.testing.assert_array_equal(
        np.load(io.BytesIO(y)), 2 * np.arange(6.0).reshape(2, 3)
    )


def test_failures_are_statuses_and_sentences(start, tmp_path):
    missing = run(start, "dense", "none.st", "-o", "y.npy", status=1, cwd=tmp_path)
    assert missing.startswith("danaus") and "none.st" in missing
    assert missing.count("\n") == 1
    assert "no command" in run(start, "nonsense", status=2)
    assert "command is needed" in run(start, status=2)


def test_a_reader_that_leaves_ends_it_as_any_program(start, tmp_path):
    np.save(tmp_path / "k.npy", np.ones(1 << 20))
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [*start, "conv", "k.npy", "k.npy", "--mode", "full", "-o", "-"]
    done = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, cwd=tmp_path, env=environment
    )
    os.close(writer)
    assert done.returncode == -signal.SIGPIPE, done.stderr


def test_libraries_of_a_wheel_come_with_their_licences():
    try:
        files = [str(f) for f in importlib.metadata.files("danaus") or []]
    except importlib.metadata.PackageNotFoundError:
        files = []
    bundled = [f for f in files if f.startswith("danaus.libs/")]
    texts = [f for f in files if "licenses/bundled" in f]
    assert len(texts) >= len(bundled), texts


def test_the_program_finds_helpers_and_kernels(monkeypatch, tmp_path):
    monkeypatch.setattr(danaus_program, "helpers", lambda: {"nvrtc": "/there"})
    monkeypatch.setattr(danaus_program, "KERNELS", str(tmp_path))
    monkeypatch.setenv("DANAUS_KERNELS", "/mine")
    monkeypatch.delenv("DANAUS_NVRTC", raising=False)
    found = danaus_program.environment()
    assert found["DANAUS_NVRTC"] == "/there"
    assert found["DANAUS_KERNELS"] == f"/mine:{tmp_path}"
    monkeypatch.setenv("DANAUS_NVRTC", "/other")
    assert danaus_program.environment()["DANAUS_NVRTC"] == "/other"


def test_starting_it_imports_no_numpy():
    program = "import danaus_program, sys; print({'numpy', 'cffi'} & {*sys.modules})"
    assert run([sys.executable, "-c", program]) == b"set()\n"


def test_the_module_has_pictures_beside_the_commands_of_the_program():
    module = _ways()["module"]
    assert b"plot" in run(module, "--help")
    assert b"--factors" in run(module, "help", "plot")
    assert b"--factors" in run(module, "plot", "--help")


def test_sound_is_read_or_a_sentence_says_why_not(start, tmp_path):
    np.save(tmp_path / "k.npy", np.ones(3, np.float32))
    (tmp_path / "u.wav").write_bytes(b"RIFF\0\0\0\0WAVE")
    said = run(start, "conv", "u.wav", "k.npy", "-o", "y.npy", status=1, cwd=tmp_path)
    assert "u.wav" in said and ("libsndfile" in said or "WAV file" in said)
    y = run(start, "conv", "k.npy", "k.npy", "-o", "-", cwd=tmp_path)
    np.testing.assert_allclose(np.load(io.BytesIO(y)), [1, 2, 3], rtol=1e-6)
