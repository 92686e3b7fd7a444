#!/usr/bin/python3
"""Programs of bench that need no more than NumPy run at small sizes: they agree
with the library's structures, and say where their records come from."""
# SPDX-License-Identifier: Apache-2.0
import csv
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy  # noqa: F401
except ImportError:
    print("NumPy is not installed")
    sys.exit(77)

BASELINES = pathlib.Path("bench/baselines").resolve()
LIBRARY = pathlib.Path(os.environ["DANAUS_BUILD"]) / "libdanaus.so"


def run(program, *arguments):
    subprocess.run([sys.executable, BASELINES / program, LIBRARY, *arguments], check=True,
                   stdout=subprocess.DEVNULL)


def records(out, program, *arguments):
    run(program, *arguments)
    with open(out, newline="") as file:
        found = list(csv.DictReader(file))
    assert all(row["commit"] and row["machine"] for row in found), found
    return found


def main():
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/records.csv"
        found = records(out, "factorize_reference.py", "--sizes", "64", "--rounds", "1",
                        "--csv", out)
        assert len(found) == 8
        for row in found:
            ours, theirs = float(row["danaus_error"]), float(row["reference_error"])
            assert 0 < ours <= theirs + 1e-6, row
        found = records(out, "short_peers.py", out, "--seconds", "0.01", "first,64,3,2,8",
                        "last,50,4,1,8")
        assert [(row["layout"], row["length"], row["taps"]) for row in found] == [
            ("first", "64", "3"), ("last", "50", "4")]
        for row in found:
            assert float(row["forward"]) > 0 and float(row["gradient"]) > 0, row
        found = records(out, "conv_peers.py", out, "--seconds", "0.001", "--peers", "scipy",
                        "64,64,2,3", "50,7,1,2")
        assert [row["length"] for row in found] == ["64", "50"]
        for row in found:
            assert 0 < float(row["error"]) < 1e-6 and float(row["scipy_ratio"]) > 0, row
    run("conv_memory.py", "64", "2", "3")
    run("../update.py", "cpu", "--updates", "1", "--rounds", "1")


if __name__ == "__main__":
    main()
