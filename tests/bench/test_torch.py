#!/usr/bin/python3
"""bench/baselines/torch_ks.py on a processor, where there is PyTorch: its methods give
what the definition does, rows that are there are not measured again."""
# SPDX-License-Identifier: Apache-2.0
import csv
import os
import pathlib
import subprocess
import sys
import tempfile

# PyTorch is large: elsewhere than where Debian's Python looks, DANAUS_TORCH_PYTHON says.
PYTHON = os.environ.get("DANAUS_TORCH_PYTHON", sys.executable)
PROGRAM = "bench/baselines/torch_ks.py"
LIBRARY = pathlib.Path(os.environ["DANAUS_BUILD"]) / "libdanaus.so"
PROBLEMS = ("2,16,32,3", "3,5,7,1", "1,32,16,4 4,16,32,1")
METHODS = "dense,bmm,einsum,csr,bsr"


def measure(out, *more, problems=PROBLEMS):
    subprocess.run([PYTHON, PROGRAM, LIBRARY, out, "--device", "cpu", "--batch", "20",
                    "--dtypes", "f32,bf16", "--methods", METHODS, *more, *problems],
                   check=True, stdout=subprocess.DEVNULL)
    with open(out, newline="") as file:
        return list(csv.DictReader(file))


def check_append(out, rows):
    """Rows that are there are kept; those of another commit are not added to."""
    text = out.read_text()
    assert len(measure(out, "--append")) == len(rows) and out.read_text() == text
    origins = {(row["commit"], row["machine"]) for row in rows}
    assert len(origins) == 1 and all(next(iter(origins))), origins
    other = text.replace(rows[0]["commit"], "0123456789")
    out.write_text(other)
    try:
        measure(out, "--append")
    except subprocess.CalledProcessError:
        assert out.read_text() == other
    else:
        raise AssertionError("records of two commits in one file")


def check_part_of_the_batch(out):
    """Sparse methods that part of the batch shows to be hopeless still have a time."""
    row, = measure(out, "--batch", "16016", "--dtypes", "f32", "--layouts", "last",
                   "--window", "0.001", problems=["2,16,16,2"])
    assert float(row["csr_ns"]) > 0 and float(row["bsr_ns"]) > 0, row
    assert float(row["difference"]) < 1e-5, row


def main():
    if subprocess.run([PYTHON, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode:
        print("PyTorch is not installed for this Python")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "records.csv"
        rows = measure(out)
        assert len(rows) == 2 * 2 * len(PROBLEMS)
        for row in rows:
            unit = 2**-24 if row["dtype"] == "f32" else 2**-8
            assert float(row["error"]) < 20 * unit, row
            assert float(row["difference"]) < 20 * unit, row
            for method in ("bmm", "einsum", "dense"):
                assert float(row[method + "_ns"]) > 0, row
            assert float(row["best_ns"]) > 0 and float(row["ratio"]) > 0, row
        for row in measure(pathlib.Path(folder) / "bias", "--bias", "--endings"):
            unit = 2**-24 if row["dtype"] == "f32" else 2**-8
            assert float(row["error"]) < 20 * unit, row
            assert float(row["difference"]) < 20 * unit, row
            for ending in ("bare", "gelu", "residual"):
                assert float(row[ending + "_ns"]) > 0, row
        assert any(row["csr_ns"] for row in rows) and any(row["bsr_ns"] for row in rows)
        for operation in ("dx", "dw"):
            for row in measure(pathlib.Path(folder) / operation, "--operation", operation,
                               problems=PROBLEMS[:2]):
                unit = 2**-24 if row["dtype"] == "f32" else 2**-8
                assert row["operation"] == operation, row
                assert float(row["error"]) < 20 * unit, row
                assert float(row["difference"]) < 20 * unit, row
                assert float(row["bmm_ns"]) > 0 and float(row["einsum_ns"]) > 0, row
        check_append(out, rows)
        check_part_of_the_batch(pathlib.Path(folder) / "part")


if __name__ == "__main__":
    main()
