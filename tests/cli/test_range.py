#!/usr/bin/python3
"""Results that are infinite or NaN although all operands are finite are told, for every command
that writes numbers, and counted in its facts."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import tempfile

import numpy as np
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
tells(16, 16, "f16", "apply", "large.st", "ones.npy", "--dtype", "f16", "-o", "y.npy")
tells(16, 16, "f32", "apply", "tiny.st", "wide.npy", "--dtype", "f32", "-o", "y.npy")
tells(8, 64, "f32", "dense", "square.st", "-o", "w.npy")
tells(200, 200, "f32", "conv", "u.npy", "twos.npy", "-o", "y.npy")
tells(16, 16, "f32", "invert", "tiny.st", "--solve", "x.npy", "-o", "y.npy")
quiet(16, "apply", "large.st", "inf.npy", "-o", "y.npy")
quiet(0, "apply", "large.st", "ones.npy", "-o", "y.npy")
quiet(0, "conv", "u.npy", "taps.npy", "-o", "y.npy")
check("every true value fits", np.allclose(np.load("y.npy")[2:], 9e37, rtol=1e-6))
refuses("a chain of numbers that its type cannot hold", 1, "too large for f16",
        "combine", "product", "large.npy", "--dtype", "f16", "-o", "half.st")
for scale in ("1e40", "-1e40", "1e-50"):
    refuses(f"a scale of {scale}", 1, "products of f32 take magnitudes from 1.2e-38 to 3.4e+38",
            "apply", "large.st", "ones.npy", "-o", "y.npy", "--scale", scale)
finish()
