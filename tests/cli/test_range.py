#!/usr/bin/python3
"""Results that are infinite or NaN although all operands are finite are told, for every command
that writes numbers, and counted in its facts. Operands that the type of a product cannot hold are
refused by name."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import pathlib
import tempfile
import wave

import numpy as np
from arrays import write_safetensors
from program import check, danaus, finish, refuses

os.chdir(tempfile.mkdtemp())
F32 = np.float32


def save(name, array):
    np.save(name, array)


save("x.npy", np.full((2, 8), 1e30, F32))
save("ones.npy", np.ones((2, 8), F32))
save("large.npy", np.eye(8, dtype=F32) * F32(1e30))
save("tiny.npy", np.eye(8, dtype=F32) * F32(1e-40))
save("inf.npy", np.full((2, 8), np.inf, F32))
save("wide.npy", np.full((2, 8), 1e300))
save("u.npy", np.full(200, 3e38, F32))
save("taps.npy", np.full(3, 0.1, F32))
save("twos.npy", np.full(3, 2, F32))
save("values.npy", np.full(8, 1e300))
for name in ("large", "tiny"):
    check(f"a chain of {name}.npy",
          danaus("combine", "product", f"{name}.npy", "-o", f"{name}.st").returncode == 0)
save("threes.npy", np.eye(8, dtype=np.float16) * np.float16(3))
save("half.npy", np.full((2, 8), 3e4, np.float16))
check("a chain of threes",
      danaus("combine", "product", "threes.npy", "-o", "threes.st").returncode == 0)
check("their product",
      danaus("combine", "product", "large.npy", "large.npy", "-o", "square.st").returncode == 0)


def tells(count, values, dtype, *args):
    """A warning that says so many of as many, and the number in the facts."""
    done = danaus(*args, "--json")
    sentence = (f"{count} of {values} values are infinite or NaN although all operands are finite: "
                f"they exceed the range of {dtype}")
    lost = json.loads(done.stdout)["non_finite"] if done.stdout else None
    check(f"{' '.join(args)} tells", done.returncode == 0 and sentence in done.stderr
          and lost == count, f"{done.returncode} {lost}: {done.stderr}")


def quiet(lost, *args):
    done = danaus(*args, "--json")
    found = json.loads(done.stdout)["non_finite"] if done.stdout else None
    check(f"{' '.join(args)} says nothing", done.returncode == 0 and not done.stderr
          and found == lost, f"{found}: {done.stderr}")


tells(16, 16, "f32", "apply", "large.st", "x.npy", "-o", "y.npy")
tells(16, 16, "f16", "apply", "threes.st", "half.npy", "-o", "y.npy")
tells(8, 64, "f32", "dense", "square.st", "-o", "w.npy")
tells(200, 200, "f32", "conv", "u.npy", "twos.npy", "-o", "y.npy")
tells(16, 16, "f32", "invert", "tiny.st", "--solve", "x.npy", "-o", "y.npy")
quiet(16, "apply", "large.st", "inf.npy", "-o", "y.npy")
quiet(0, "apply", "large.st", "ones.npy", "-o", "y.npy")
quiet(0, "conv", "u.npy", "taps.npy", "-o", "y.npy")
check("every true value fits", np.allclose(np.load("y.npy")[2:], 9e37, rtol=1e-6))
refuses("a chain of numbers that its type cannot hold", 1, "too large for f16",
        "combine", "product", "large.npy", "--dtype", "f16", "-o", "half.st")


# ---- operands that are converted ----


def arrays(rows, cols, row):
    """Ones, which every type holds, but for one row."""
    x = np.ones((rows, cols))
    x[1] = row
    return x


save("double.npy", np.eye(8) + 0.25)
check("a chain in f64", danaus("combine", "product", "double.npy", "-o", "double.st").returncode == 0)
large, small = "is 1e+300, which is too large for f32", "at most 1e-60, are too small for f32"
for words, row, sentence in ("large", 1e300, large), ("small", 1e-60, small):
    save("x.npy", arrays(3, 8, row))
    save("xt.npy", arrays(3, 8, row).T)
    to = ["--dtype", "f32", "-o", "y.npy"]
    refuses(f"a row that is too {words}", 1, "row 1 of X", "apply", "double.st", "x.npy", *to)
    refuses(f"and its number, {words}", 1, sentence, "apply", "double.st", "x.npy", *to)
    refuses(f"a column that is too {words}", 1, "column 1 of X", "apply", "double.st", "xt.npy",
            "--layout", "last", *to)
    save("r.npy", arrays(2, 8, row))
    refuses(f"a residual, {words}", 1, "row 1 of the residual", "apply", "large.st", "ones.npy",
            "--residual", "r.npy", "-o", "y.npy")
    refuses(f"right-hand sides, {words}", 1, "row 1 of B", "invert", "large.st", "--solve",
            "x.npy", "-o", "y.npy")
    save("k.npy", np.full(3, row))
    refuses(f"taps, {words}", 1, "filter 0", "conv", "u.npy", "k.npy", "-o", "y.npy")
    refuses(f"values of a transform, {words}", 1, "k.npy", "transform", "circulant", "3",
            "--values", "k.npy", "-o", "c.st")
    refuses(f"a skip, {words}", 1, "--skip", "conv", "u.npy", "taps.npy", "--skip", row,
            "-o", "y.npy")
    write_safetensors(pathlib.Path("layer.st"), {"w": ("F64", np.eye(8) + 0.25), "b": ("F64", np.full(8, row))})
    refuses(f"a bias, {words}", 1, "the bias", "factorize", "layer.st", "--tensor", "w",
            "--bias", "b", "--pattern", "1,8,8,1", "--dtype", "f32", "-o", "f.st")
    save("scaled.npy", np.eye(8) * row)
    check("a chain to be converted",
          danaus("combine", "product", "scaled.npy", "-o", "scaled.st").returncode == 0)
    refuses(f"weights, {words}", 1, "factor 0", "apply", "scaled.st", "ones.npy", "-o", "y.npy")
quiet(0, "apply", "double.st", "ones.npy", "-o", "y.npy")
save("x.npy", np.array([[1, 1e-60, -1e-300, 0, 5e-324, 2, 3, 4]]))
quiet(0, "apply", "double.st", "x.npy", "--dtype", "f32", "-o", "y.npy")
check("numbers far below others are rounded",
      np.allclose(np.load("y.npy"), (np.eye(8) + 0.25) @ [1, 0, 0, 0, 0, 2, 3, 4]))
save("x.npy", np.array([[1, np.inf, np.nan, 0, 0, 2, 3, 4]]))
done = danaus("apply", "double.st", "x.npy", "--dtype", "f32", "-o", "y.npy")
check("what is not finite stays so", done.returncode == 0 and not done.stderr, done.stderr)
quiet(0, "factorize", "double.npy", "--pattern", "1,8,8,1", "-o", "f.st")

# ---- sound ----

for name, frames in ("loud.wav", 100), ("taps.wav", 2):
    with wave.open(name, "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(np.array([30000, -30000] * (frames // 2), "<i2").tobytes())
done = danaus("conv", "loud.wav", "taps.wav", "-o", "y.wav", "--json")
if "without libsndfile" not in done.stderr:
    check("clipping is a fact and is told", json.loads(done.stdout)["clipped"] == 99
          and "99 numbers were beyond full scale" in done.stderr, done.stderr)

# ---- options ----

for scale in ("1e40", "-1e40", "1e-50"):
    refuses(f"a scale of {scale}", 1, "products of f32 take magnitudes from 1.2e-38 to 3.4e+38",
            "apply", "large.st", "ones.npy", "-o", "y.npy", "--scale", scale)
finish()
