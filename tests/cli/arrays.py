#!/usr/bin/python3
"""Makes the files of test_program.sh and checks those that the program wrote.

    arrays.py make FOLDER
    arrays.py close FILE.npy EXPRESSION TOLERANCE [DTYPE]

EXPRESSION is Python over the arrays of the folder of FILE, by the names of their files.
"""
# SPDX-License-Identifier: Apache-2.0
import json
import pathlib
import struct
import sys

import numpy as np


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, (kind, array) in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def to_bf16(array):
    bits = array.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def ks(w):
    """The dense matrix of one factor w[a][b][c][d]."""
    a, b, c, d = w.shape
    dense = np.zeros((a, b, d, a, c, d), w.dtype)
    for i in range(a):
        for j in range(d):
            dense[i, :, j, i, :, j] = w[i, :, :, j]
    return dense.reshape(a * b * d, a * c * d)


def make(folder):
    rng = np.random.default_rng(1)

    def save(name, array):
        np.save(folder / f"{name}.npy", array)

    w1, w2 = rng.standard_normal((1, 8, 6, 6)), rng.standard_normal((6, 6, 8, 1))
    exact = ks(w1) @ ks(w2)  # 48 x 48
    save("exact", exact)
    shuffle = np.random.default_rng(2).permutation
    save("shuffled", exact[shuffle(48)][:, shuffle(48)])
    save("exact32", exact.astype(np.float32))
    save("fortran", np.asfortranarray(exact))
    save("half", exact.astype(np.float16))
    near = exact + 0.01 * rng.standard_normal(exact.shape)
    save("near", near)
    save("dft", np.fft.fft(np.eye(64)).astype(np.complex64))
    bits = [int(f"{i:06b}"[::-1], 2) for i in range(64)]
    save("dft_turned", np.fft.fft(np.eye(64))[:, bits])
    save("rectangle", rng.standard_normal((24, 36)))
    save("x", rng.standard_normal((5, 48)))
    save("x_last", np.load(folder / "x.npy").T.copy())
    save("r", np.random.default_rng(3).standard_normal((5, 48)))
    save("r_last", np.load(folder / "r.npy").T.copy())
    save("x_one", rng.standard_normal(48))
    save("xc48", rng.standard_normal((5, 48)) * 1j)
    save("angles", rng.uniform(-4, 4, (2, 2)))
    n = np.arange(48)
    save("dct2_48", np.cos(np.pi * n[:, None] * (2 * n + 1) / 96))
    save("x_none", np.zeros((0, 48)))
    save("xc", rng.standard_normal((5, 64)) + 1j * rng.standard_normal((5, 64)))
    save("x_complex", rng.standard_normal((5, 48)) * (1 + 2j))
    save("x_narrow", rng.standard_normal((7, 47)))
    save("x_cube", np.zeros((2, 2, 48)))
    samples = rng.standard_normal((200, 48)) * np.linspace(0.1, 3, 48)
    save("samples", samples)
    save("targets", samples @ (2 * exact.T) + 5)
    bad = exact.copy()
    bad[3, 7] = np.nan
    save("bad", bad)
    save("x_24", rng.standard_normal((5, 24)))
    save("x_36", rng.standard_normal((5, 36)))
    save("integers", np.arange(12).reshape(3, 4))
    save("zeros", np.zeros((48, 48)))
    (folder / "text.npy").write_text("no array")
    (folder / "cut.npy").write_bytes((folder / "exact.npy").read_bytes()[:900])
    write_safetensors(
        folder / "layer.safetensors",
        {
            "layer.weight": ("F32", exact.astype(np.float32)),
            "layer.bias": ("F32", np.arange(48, dtype=np.float32)),
            "layer.short": ("F32", np.arange(7, dtype=np.float32)),
            "layer.half": ("BF16", to_bf16(exact)),
        },
    )
    write_safetensors(folder / "one.safetensors", {"w": ("F64", exact)})


def close(path, expression, tolerance, dtype=None):
    path = pathlib.Path(path)
    names = {p.stem: np.load(p) for p in path.parent.glob("*.npy") if p.stem not in ("text", "cut")}
    found, wanted = np.load(path), eval(expression, {"np": np, "to_bf16": to_bf16}, names)
    if dtype == "bf16":  # two raw bytes an element
        found = (found.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    elif dtype and found.dtype != np.dtype(dtype):
        sys.exit(f"{path} is {found.dtype}, not {dtype}")
    if found.shape != wanted.shape:
        sys.exit(f"{path} is {found.shape}, not {wanted.shape}")
    scale = np.linalg.norm(wanted)
    error = np.linalg.norm(found - wanted) / (scale if scale else 1)
    if not error <= float(tolerance):
        sys.exit(f"{path}: relative error {error}")


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    if command == "make":
        make(pathlib.Path(rest[0]))
    else:
        close(*rest)
