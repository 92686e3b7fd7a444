#!/usr/bin/python3
"""bench/paper_ks.py on records whose answers are known by hand."""

# SPDX-License-Identifier: Apache-2.0
import csv
import math
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy  # noqa: F401
    import scipy  # noqa: F401
except ImportError:
    print("NumPy or SciPy is not installed")
    sys.exit(77)

BENCH = pathlib.Path("bench").resolve()
sys.path.insert(0, str(BENCH))
import paper_ks  # noqa: E402
import records  # noqa: E402

OVER_DENSE, BMM, OVER_BASELINES = paper_ks.COMPARED.values()
METHODS = ("median", "bmm", "einsum", "bsr", "dense", "csr")
TIMES = {  # problem: times of METHODS, batch-first, then batch-last
    "1,2,2,1": ((8, 4, 6, "", 2, 9), (4, 6, 8, "", 3, 9)),
    "1,2,2,2": ((2, 4, 6, 9, 6, 9), (4, 2, 3, 9, 8, 9)),
    "2,4,4,2": ((1, 8, 4, 9, 9, 9), (2, 6, 5, 9, 9, 9)),
}


def write(path, lines, **more):
    with open(path, "w", newline="") as file:
        out = csv.DictWriter(
            file,
            [
                "device",
                "commit",
                "problem",
                "dtype",
                "layout",
                "batch",
                *(f"{m}_ns" for m in METHODS),
                "joules",
                "bmm_joules",
                "einsum_joules",
            ],
        )
        out.writeheader()
        for problem, layout, fields in lines:
            out.writerow(
                {
                    "device": "a GPU",
                    "commit": "0123456789",
                    "problem": problem,
                    "dtype": "f32",
                    "layout": layout,
                    "batch": 100,
                }
                | fields
                | more
            )
    return path


def timed():
    for problem, both in TIMES.items():
        for layout, times in zip(("first", "last"), both):
            yield problem, layout, {f"{m}_ns": t for m, t in zip(METHODS, times)}


def check_wins(folder):
    of = paper_ks.views(records.read([write(folder / "times.csv", timed())]))
    assert set(of) == {("f32", view) for view in ("both", "first", "last")}
    # The least of both layouts: ours 4, 2, 1; bmm 4, 2, 6; einsum 6, 3, 4; dense 2, 6, 9.
    assert paper_ks.wins(of["f32", "both"], OVER_DENSE) == (3, 2 / 3, 6, 3)
    assert paper_ks.wins(of["f32", "both"], BMM) == (3, 1 / 3, 1.5, 2 / 3)
    assert paper_ks.wins(of["f32", "both"], OVER_BASELINES) == (3, 1 / 3, 4, 1)
    # Batch-first: ours 8, 2, 1 over 4, 4, 4; batch-last: 4, 4, 2 over 6, 2, 5.
    assert paper_ks.wins(of["f32", "first"], OVER_BASELINES) == (3, 2 / 3, 3, 2)
    assert paper_ks.wins(of["f32", "last"], OVER_BASELINES) == (3, 2 / 3, 2, 1.5)
    # No record of the first pattern has a time of BSR.
    assert paper_ks.wins(of["f32", "both"], paper_ks.EACH["ours over bsr"])[0] == 2


def known(speed):
    for a in (1, 2, 8):
        for b, c in ((48, 48), (64, 256), (512, 128)):
            for d in (1, 4, 16):
                density, h = 1 / (a * d), (b + c) / (b * c)
                yield (
                    f"{a},{b},{c},{d}",
                    "first",
                    {
                        "median_ns": 1000,
                        "bmm_ns": 1000 * speed(density, h),
                        "dense_ns": 1000,
                        "einsum_ns": 1e9,
                    },
                )


def check_regression(folder):
    exact = write(folder / "exact.csv", known(lambda rho, h: 3 * rho**-0.5 * h**0.25))
    some = paper_ks.views(records.read([exact]))["f32", "first"]
    found = paper_ks.regression(some, OVER_BASELINES)
    expected = 27, math.log(3), -0.5, 0.25, 1, 1
    assert all(math.isclose(x, y, abs_tol=1e-9) for x, y in zip(found[:6], expected)), (
        found
    )
    # Speeds that depend on the density alone leave nothing for h to explain.
    steps = write(folder / "steps.csv", known(lambda rho, h: 2 if rho > 0.1 else 8))
    some = paper_ks.views(records.read([steps]))["f32", "first"]
    found = paper_ks.regression(some, OVER_BASELINES)
    assert abs(found.of_h) < 1e-9 and abs(found.pearson_h) < 1e-9, found
    assert math.isclose(found.r2, found.pearson_density**2, rel_tol=1e-9), found
    assert math.isclose(1 - found.adjusted_r2, (1 - found.r2) * 26 / 24), found
    assert 0 <= found.normality < 0.05, found
    constant = write(folder / "constant.csv", known(lambda rho, h: 2))
    some = paper_ks.views(records.read([constant]))["f32", "first"]
    assert paper_ks.regression(some, OVER_BASELINES) is None


def check_groups(folder):
    path = write(folder / "groups.csv", known(lambda rho, h: 2 if rho > 0.1 else 8))
    some = paper_ks.views(records.read([path]))["f32", "first"]
    groups = list(paper_ks.by_h(some, OVER_BASELINES))
    assert [round(1 / low, 1) for low, *_ in groups] == [102.4, 51.2, 24.0]
    for _, _, found, pearson in groups:
        assert (found.count, found.share) == (9, 1) and math.isnan(pearson)
    groups = list(paper_ks.by_sparsity(some, OVER_BASELINES))
    assert [found.count for _, _, found in groups] == [7, 7, 7, 6]
    assert groups[0][:2] == (0, 0.75)
    assert groups[0][2].won == 2 and groups[-1][2].won == 8


def check_energy(folder):
    joules = {"1,2,2,1": (3, 4, 6), "1,2,2,2": (3, 4, 2), "2,4,4,2": (1, "", 4)}
    path = write(
        folder / "energy.csv",
        (
            (
                problem,
                "last",
                {
                    "median_ns": 1,
                    "joules": ours,
                    "bmm_joules": bmm,
                    "einsum_joules": einsum,
                },
            )
            for problem, (ours, bmm, einsum) in joules.items()
        ),
    )
    some = paper_ks.views(records.read([path]))["f32", "last"]
    count, improved, ratio, of = paper_ks.energy(some)
    assert (count, improved, ratio) == (3, 2 / 3, 0.75) and -1 <= of <= 1
    return path


def run(*paths, status=0):
    done = subprocess.run(
        [sys.executable, BENCH / "paper_ks.py", *paths], capture_output=True, text=True
    )
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def check_program(folder, energy):
    text = run(folder / "exact.csv", energy)
    for title in (
        "Table 2",
        "Table 5",
        "Table 6",
        "By h",
        "Tables 9 and 10",
        "Energy over",
    ):
        assert f"\n{title}" in text, text
    other = write(folder / "other.csv", timed(), device="another")
    assert "more than one device" in run(folder / "exact.csv", other, status=1)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        check_wins(folder)
        check_regression(folder)
        check_groups(folder)
        check_program(folder, check_energy(folder))
