#!/usr/bin/python3
"""Commands about convolutions on the emulated GPU: what `danaus conv` writes there is what
the processor writes, within rounding; problems are measured, tuned and explained; only
processors are calibrated."""
# SPDX-License-Identifier: Apache-2.0
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

PROGRAM, BENCH = os.environ["DANAUS_PROGRAM"], os.environ["DANAUS_BENCH"]
EMULATOR = pathlib.Path(os.environ["DANAUS_BUILD"]) / "tests/emulator"
SUITE = """causal,300,300,2,3,plain
bidirectional,200,40,2,3,gated
circular,9000,9000,1,2,plain
causal,3000,3000,1,1,sparse
"""


def danaus(*args, program=PROGRAM):
    environment = {**os.environ, "LD_LIBRARY_PATH": str(EMULATOR),
                   "DANAUS_CACHE": str(EMULATOR / "cache")}
    return subprocess.run([program, *map(str, args)], capture_output=True, text=True,
                          env=environment)


def succeed(*args, program=PROGRAM):
    run = danaus(*args, program=program)
    assert run.returncode == 0, (args, run.stdout, run.stderr)
    return run.stdout


def files(folder):
    r = np.random.default_rng(1)
    for mode, dtype in (("causal", "f4"), ("full", "f2"), ("same", "f8"),
                        ("valid", "f4"), ("circular", "f8")):
        u, k = r.uniform(-1, 1, (2, 3, 500)), r.uniform(-1, 1, (3, 70)) / 70
        np.save(folder / "u.npy", u.astype(dtype))
        np.save(folder / "k.npy", k.astype(dtype))
        found = []
        for device in ("cpu", "cuda:0"):
            succeed("conv", folder / "u.npy", folder / "k.npy", "-o", folder / "y.npy",
                    "--mode", mode, "--skip", 0.5, "--device", device, "--repeat", 2)
            found.append(np.load(folder / "y.npy").astype(float))
        bound = {"f2": 2e-3, "f4": 2e-6, "f8": 1e-14}[dtype]
        assert found[0].shape == found[1].shape and found[0].any(), mode
        assert np.abs(found[0] - found[1]).max() <= bound, mode


def measurements(folder):
    suite, out = folder / "suite.csv", folder / "out.csv"
    suite.write_text(SUITE)
    for dtype in ("f32", "f16"):
        report = json.loads(succeed("conv", "--suite", suite, "--device", "cuda:0", "--dtype",
                                    dtype, "--csv", out, "--json", program=BENCH))
        assert len(report["records"]) == 4 and report["left_out"] == 0, report
        rows = list(csv.DictReader(out.open()))
        assert all(float(row["seconds"]) > 0 for row in rows), rows
        assert [bool(row["plain_ratio"]) for row in rows] == [False, True, True, True]
    records = json.loads(succeed("bench", "conv", "--suite", suite, "--device", "cuda:0",
                                 "--json"))["records"]
    assert len(records) == 4 and all(r["seconds"] > 0 for r in records), records
    few, table = folder / "few.csv", folder / "table.csv"
    few.write_text("".join(SUITE.splitlines(True)[:1]))
    succeed("tune", "conv", "--suite", few, "--device", "cuda:0", "-o", table)
    assert "conv.points.f32" in table.read_text(), table.read_text()
    text = succeed("info", "--device", "cuda:0", "--tuning", table, "--conv", 300, "--json")
    assert "by the tuning table" in text, text


def words(folder):
    text = succeed("info", "--device", "cuda:0", "--conv", 20000)
    assert text.startswith("conv.points.f32: ") and ", then " in text, text
    assert "on one thread" not in text, text
    run = danaus("calibrate", "--device", "cuda:0", "-o", folder / "t.csv")
    assert run.returncode and "only processors are calibrated" in run.stderr, run.stderr


def main():
    if not (EMULATOR / "libcuda.so.1").exists():
        print("there is no emulated driver")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        files(pathlib.Path(folder))
        measurements(pathlib.Path(folder))
        words(pathlib.Path(folder))


if __name__ == "__main__":
    main()
