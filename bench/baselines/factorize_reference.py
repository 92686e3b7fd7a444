#!/usr/bin/env python3
"""Factorization against NumPy, on the same matrices in one run.

    factorize_reference.py LIBRARY [--sizes 1024,4096] [--rounds 5] [--csv FILE]

Two references, both batched over all blocks of a split as NumPy does it best:
"full" takes numpy.linalg.svd of every block, "subspace" two steps of randomised
subspace iteration with oversampling 2. They stand against danaus_factorize() with
exact SVDs and with `fast`. Prints one line a chain: seconds (median of the rounds),
ratios, and relative errors, which must not be larger than those of the reference.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import ctypes
import math
import statistics
import sys
import time

import numpy as np

import capi
import origin

FIELDS = "n chain variant reference_s danaus_s ratio reference_error danaus_error".split()


# ---- patterns (a, b, c, d) and chains of them --------------------------------------
def product(p, q):
    return p[0], p[1] * p[3] // q[3], q[0] * q[2] // p[0], q[3]


def product_of(chain):
    whole = chain[0]
    for p in chain[1:]:
        whole = product(whole, p)
    return whole


def lattice(radices):
    """Square chain of block rank one with these radices for rows and columns."""
    n, before, chain = math.prod(radices), 1, []
    for q in radices:
        n //= q
        chain.append((before, q, q, n))
        before *= q
    return chain


def balanced(lo, hi):
    if hi - lo < 2:
        return []
    middle = (lo + hi) // 2
    return [middle] + balanced(lo, middle) + balanced(middle, hi)


# ---- the reference: arrays t[a][d][b][c] -------------------------------------------
def view_blocks(t, p, q):
    """t as [i][g][e][j][b1][c2], one matrix for each block of the split p | q."""
    a, d, b, c = t.shape
    groups, runs = q[0] // p[0], p[3] // q[3]
    return t.reshape(a, d, b // runs, runs, groups, c // groups).transpose(0, 4, 3, 1, 2, 5)


def left_values(u):
    a, groups, runs, d, rows, rank = u.shape
    return u.transpose(0, 2, 3, 4, 1, 5).reshape(a, runs * d, rows, groups * rank)


def right_values(v):
    a, groups, runs, d, rank, cols = v.shape
    return v.transpose(0, 1, 3, 4, 2, 5).reshape(a * groups, d, rank * runs, cols)


def left_blocks(x, p, q):
    a, d1, rows, c1 = x.shape
    groups, runs = q[0] // p[0], p[3] // q[3]
    x = x.reshape(a, runs, d1 // runs, rows, groups, c1 // groups)
    return x.transpose(0, 4, 1, 2, 3, 5)


def right_blocks(y, p, q):
    a2, d, b2, cols = y.shape
    groups, runs = q[0] // p[0], p[3] // q[3]
    y = y.reshape(a2 // groups, groups, d, b2 // runs, runs, cols)
    return y.transpose(0, 1, 4, 2, 3, 5)


def adjoint(x):
    return x.swapaxes(-1, -2)


def full(blocks):
    u, s, v = np.linalg.svd(blocks, full_matrices=False)
    return u[..., :1], s[..., :1], v[..., :1, :], float((s[..., 1:] ** 2).sum())


def subspace(blocks):
    rows, cols = blocks.shape[-2:]
    start = np.random.default_rng(0).standard_normal((cols, min(3, rows, cols)))
    basis = np.linalg.qr(blocks @ start)[0]
    for _ in range(2):
        image = np.linalg.qr(adjoint(blocks) @ basis)[0]
        basis = np.linalg.qr(blocks @ image)[0]
    z, s, v = np.linalg.svd(adjoint(basis) @ blocks, full_matrices=False)
    u, s, v = (basis @ z)[..., :1], s[..., :1], v[..., :1, :]
    rest = blocks - u * s[..., None, :] @ v
    return u, s, v, float(np.vdot(rest, rest).real)


def orthonormal_left(x, y, p, q):
    u, r = np.linalg.qr(left_blocks(x, p, q))
    return left_values(u), right_values(r @ right_blocks(y, p, q))


def orthonormal_right(x, y, p, q):
    v, r = np.linalg.qr(adjoint(right_blocks(y, p, q)))
    return left_values(left_blocks(x, p, q) @ adjoint(r)), right_values(adjoint(v))


def reference(w, chain, order, truncate):
    """The split errors of a run; parts are [lo, hi, values, orthonormal side]."""
    pattern = lambda e: product_of(chain[e[0]:e[1]])
    parts, dropped = [[0, len(chain), w.reshape(1, 1, *w.shape), ""]], []
    for n, s in enumerate(order):
        m = next(k for k, e in enumerate(parts) if e[0] < s < e[1])
        for k in range(m):
            x, y = parts[k], parts[k + 1]
            if x[3] != "left":
                x[2], y[2] = orthonormal_left(x[2], y[2], pattern(x), pattern(y))
                x[3], y[3] = "left", ""
        for k in range(len(parts) - 1, m, -1):
            x, y = parts[k - 1], parts[k]
            if y[3] != "right":
                x[2], y[2] = orthonormal_right(x[2], y[2], pattern(x), pattern(y))
                x[3], y[3] = "", "right"
        lo, hi, t, _ = parts[m]
        p, q = product_of(chain[lo:s]), product_of(chain[s:hi])
        u, sigma, v, energy = truncate(view_blocks(t, p, q))
        rightwards = n + 1 == len(order) or order[n + 1] > s
        if rightwards:
            v = sigma[..., :, None] * v
        else:
            u = u * sigma[..., None, :]
        parts[m:m + 1] = [[lo, s, left_values(u), "left" if rightwards else ""],
                          [s, hi, right_values(v), "" if rightwards else "right"]]
        dropped.append(energy)
    return [e[2] for e in parts], dropped


def reference_error(w, chain, factors):
    """||w - K_1 .. K_L|| / ||w||, by fusing the factors from the right."""
    t, whole = factors[-1], chain[-1]
    for x, p in zip(factors[-2::-1], chain[-2::-1]):
        blocks = left_blocks(x, p, whole) @ right_blocks(t, p, whole)
        a, groups, runs, d, rows, cols = blocks.shape
        t = blocks.transpose(0, 3, 4, 2, 1, 5).reshape(a, d, rows * runs, groups * cols)
        whole = product(p, whole)
    return float(np.linalg.norm(w - t.reshape(w.shape)) / np.linalg.norm(w))


# ---- the library through its C interface -------------------------------------------
class Description(ctypes.Structure):
    _fields_ = [("order", ctypes.c_int), ("fast", ctypes.c_int), ("refine", ctypes.c_int),
                ("square_roots", ctypes.c_int), ("threads", ctypes.c_int),
                ("inputs", ctypes.c_void_p), ("samples", ctypes.c_int64),
                ("progress", ctypes.c_void_p), ("user", ctypes.c_void_p),
                ("targets", ctypes.c_void_p), ("calibration", ctypes.c_void_p),
                ("ridge", ctypes.c_double), ("bias", ctypes.c_int),
                ("reserved", ctypes.c_uint32 * 9)]


class Result(ctypes.Structure):
    _fields_ = [(n, ctypes.c_double) for n in
                ("error", "lower_bound", "upper_bound", "off_support", "dense_error",
                 "seconds")] + [("parameters", ctypes.c_int64),
                                ("reserved", ctypes.c_uint64 * 9)]


F64 = 4
LEFT_TO_RIGHT, BALANCED = 1, 3


def library_run(lib, w, chain, order, fast):
    patterns = (capi.Pattern * len(chain))(*[capi.Pattern(*p) for p in chain])
    how, result, made = Description(order=order, fast=fast), Result(), ctypes.c_void_p()
    start = time.perf_counter()
    status = lib.danaus_factorize(w.ctypes.data_as(ctypes.c_void_p), F64, patterns,
                                  len(chain), ctypes.byref(how), ctypes.byref(made),
                                  ctypes.byref(result))
    seconds = time.perf_counter() - start
    if status:
        sys.exit(lib.danaus_error_detail().decode())
    lib.danaus_chain_destroy(made)
    return seconds, result.error


def cases(n):
    levels = int(math.log2(n))
    root = 2 ** (levels // 2)
    third = [8, 8, 16] if n == 1024 else [round(n ** (1 / 3))] * 3
    dyadic = lattice([2] * levels)
    sweep = lambda chain: list(range(1, len(chain)))
    yield "dyadic left to right", dyadic, LEFT_TO_RIGHT, sweep(dyadic)
    yield "dyadic balanced", dyadic, BALANCED, balanced(0, levels)
    yield "Monarch, 2 factors", lattice([root, n // root]), LEFT_TO_RIGHT, [1]
    yield "Monarch, order 3", lattice(third), LEFT_TO_RIGHT, [1, 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("library")
    parser.add_argument("--sizes", default="1024,4096")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--csv")
    args = parser.parse_args()
    print(*FIELDS, sep=",")
    lib = ctypes.CDLL(args.library)
    lib.danaus_error_detail.restype = ctypes.c_char_p
    lib.danaus_chain_destroy.restype = None
    rows = []
    for n in map(int, args.sizes.split(",")):
        w = np.random.default_rng(0).standard_normal((n, n))
        for name, chain, order, splits in cases(n):
            for variant, truncate, fast in (("full", full, 0), ("subspace", subspace, 1)):
                theirs, ours = [], []
                for _ in range(args.rounds):
                    start = time.perf_counter()
                    factors, _ = reference(w, chain, splits, truncate)
                    theirs.append(time.perf_counter() - start)
                    time.sleep(0.05)  # threads of the BLAS go to sleep
                    seconds, error = library_run(lib, w, chain, order, fast)
                    ours.append(seconds)
                their_error = reference_error(w, chain, factors)
                a, b = statistics.median(theirs), statistics.median(ours)
                numbers = (f"{a:.4f}", f"{b:.4f}", f"{a / b:.2f}", f"{their_error:.6f}",
                           f"{error:.6f}")
                rows.append(dict(zip(FIELDS, (n, name.replace(",", ""), variant, *numbers))))
                print(*rows[-1].values(), sep=",", flush=True)
    if args.csv:
        with open(args.csv, "w", newline="") as file:
            out = origin.Table(file, FIELDS)
            out.writeheader()
            out.writerows(rows)


if __name__ == "__main__":
    main()
