#!/usr/bin/python3
"""Statements of the manual, of help and of formats.md about limits: each row of the tables has
the words of a document, which still has them, and commands on both sides of the limit."""

# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import re
import shlex
import struct
import tempfile

import numpy as np
from program import check, danaus, facts, finish

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Document, words, a command that succeeds, one that is refused, and what its sentence has.
LIMITS = (
    ("help transform", "prime factors up to 61", "transform dft 61 -o t.st", "transform dft 67 -o t.st", "67"),
    ("help transform", "for dct1", "transform dct1 62 -o t.st", "transform dct1 68 -o t.st", "67"),
    ("danaus.1", "(dct1: N - 1, dst1: N + 1)", "transform dst1 60 -o t.st", "transform dst1 66 -o t.st", "67"),
    ("danaus.1", "walsh-hadamard, noiselet and givens take no other lengths",
     "transform walsh-hadamard 64 -o t.st", "transform walsh-hadamard 61 -o t.st", "61"),
    ("danaus.1", "Wavelets take multiples of 2^levels", "transform haar 12 --levels 2 -o t.st",
     "transform haar 12 --levels 3 -o t.st", "12"),
    ("help factorize", "up to N, or 3", "factorize w.npy --params .9 --terms 3",
     "factorize w.npy --params .9 --terms 4", "3"),
    ("danaus.1", "(at most 3", "factorize w.npy --params .9 --terms auto",
     "factorize w.npy --params .9 --terms 0", "3"),
    ("danaus.1", "maximum of passes over all factors, at least 1",
     "factorize w.npy --chain monarch --inputs x.npy --refine 1",
     "factorize w.npy --chain monarch --inputs x.npy --refine 0", "--refine"),
    ("formats.md", "headers of up to 65,535 bytes", "info at_most.npy", "info too_long.npy", ""),
    ("formats.md", "Versions 1, 2 and 3", "info version3.npy", "info version4.npy", "version"),
    ("formats.md", "0 to 8 dimensions, and sizes of 0", "apply chain.st empty.npy -o y.npy",
     "apply chain.st nine.npy -o y.npy", "8 dimensions"),
    ("formats.md", "Headers of up to 100,000,000 bytes", "info at_most.st", "info too_long.st",
     "100000000"),
    ("formats.md", "integers from 0 to 2^63 - 2", "info largest.st", "info too_large.st", "2^63 - 2"),
    ("formats.md", "A line has at most 4,095 characters", "bench --suite at_most.csv --layout last",
     "bench --suite too_long.csv --layout last", "line 1"),
)


# ---- documents ----


def words_of(document):
    """Its text without marks, every space one."""
    if document.startswith("help "):
        text = danaus("help", document[5:]).stdout
    else:
        text = (ROOT / "docs" / document).read_text()
    text = re.sub(r"\\f[BRIP]|^\.(B[RI]?|IR?|RB|TP|SS)\b", "", text, flags=re.M)
    return " ".join(text.replace("\\-", "-").replace('"', "").split())


# ---- files ----


def npy(path, version, header_bytes, shape=(2,)):
    """An array whose header has so many bytes."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    size = struct.pack("<H" if version == 1 else "<I", header_bytes)
    data = bytes(4 * int(np.prod(shape)))
    header = text.ljust(header_bytes - 1).encode() + b"\n"
    path.write_bytes(b"\x93NUMPY" + bytes((version, 0)) + size + header + data)


def safetensors(path, header_bytes, fields='"dtype":"U8","shape":[0],"data_offsets":[0,0]'):
    text = f'{{"x":{{{fields}}}}}'.encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", header_bytes) + text)
        file.write(b" " * (header_bytes - len(text)))


def make_inputs(folder):
    rng = np.random.default_rng(0)
    np.save("w.npy", rng.standard_normal((8, 8)).astype("f4"))
    np.save("x.npy", rng.standard_normal((20, 8)).astype("f4"))
    np.save("empty.npy", np.zeros((0, 8), "f4"))
    np.save("nine.npy", np.zeros((8,) + 8 * (1,), "f4"))
    npy(folder / "at_most.npy", 1, 65535)
    npy(folder / "too_long.npy", 2, 65536)
    npy(folder / "version3.npy", 3, 128)
    npy(folder / "version4.npy", 4, 128)
    safetensors(folder / "at_most.st", 100_000_000)
    safetensors(folder / "too_long.st", 100_000_001)
    empty = '"dtype":"U8","shape":[0,%d],"data_offsets":[0,0]'
    safetensors(folder / "largest.st", 200, empty % (2**63 - 2))
    safetensors(folder / "too_large.st", 200, empty % (2**63 - 1))
    for name, length in ("at_most", 4095), ("too_long", 4096):
        comment = "#".ljust(length, "-")
        (folder / f"{name}.csv").write_text(f'{comment}\n"1,8,8,1",4\n')
    check("a chain is made", danaus(*shlex.split("transform dft 8 -o chain.st")).returncode == 0)


# ---- statements ----


def test_limits():
    texts = {}
    for document, words, good, bad, pattern in LIMITS:
        texts.setdefault(document, words_of(document))
        check(f"{document} says: {words}", words in texts[document])
        done = danaus(*shlex.split(good))
        check(good, done.returncode == 0, done.stderr)
        failed = danaus(*shlex.split(bad))
        check(bad, failed.returncode in (1, 2) and pattern in failed.stderr, failed.stderr)


def test_shares():
    """The weights of a chain, and of compressed layers, stay within their share."""
    for share in 0.3, 0.5, 0.9:
        found = facts("factorize", "w.npy", "--params", share)
        check(f"at most {share} of the parameters", found["parameters"] <= share * 64, found)


with tempfile.TemporaryDirectory() as name:
    os.chdir(name)
    make_inputs(pathlib.Path(name))
    test_limits()
    test_shares()
    os.chdir("/")
finish()
