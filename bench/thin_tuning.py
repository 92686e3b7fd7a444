#!/usr/bin/env python3
"""Leaves out of a tuning table what plans choose without it.

    thin_tuning.py LIBRARY TABLE.csv OUT.csv [--device NAME]

A row stays when a plan by estimate, which also looks at rows of neighbouring problems,
chooses another kernel without it. The device (cuda:0) must be the one that TABLE.csv is
from; tables that came with the library do not count. OUT.csv is what bench/tuning holds.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import os
import pathlib
import sys

os.environ["DANAUS_TUNING"] = ""
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "baselines"))

import capi  # noqa: E402

NAMES = ["f32", "f16", "bf16", "f64", "c64", "c128"]  # of danaus_dtype, from 1


def is_columns(line):
    return line.startswith("device,machine,")


def read(path):
    """(columns, line) of the rows for products, first line and remarks left out."""
    rows, columns = [], None
    for line in pathlib.Path(path).read_text().splitlines()[1:]:
        if is_columns(line):
            columns = line
        elif line and not line.startswith("#") and "kernel" in columns and ",a,b," in columns:
            rows.append((columns, line))
    return rows


def write(rows, path):
    lines, last = ["# danaus tuning 1"], None
    for columns, line in rows:
        if columns != last:
            lines.append(columns)
        last = columns
        lines.append(line)
    pathlib.Path(path).write_text("\n".join(lines) + "\n")


def is_chosen(library, columns, line):
    """True if a plan for the row's problem takes the row's kernel."""
    row = dict(zip(columns.split(","), line.split(",")))
    if "operation" in row:
        return False  # plans tell nothing of those
    shapes = [tuple(int(row[name]) for name in "abcd")]
    if "inner_a" in row:
        shapes.append(tuple(int(row["inner_" + name]) for name in "abcd"))
    tf32 = row["dtype"] == "tf32"
    dtype = 1 + NAMES.index("f32" if tf32 else row["dtype"])
    plan = library.plan(shapes, dtype, int(tf32), row["layout"] == "last", int(row["batch"]))
    steps = library.describe("danaus_ks_plan_describe", plan)
    library.free_plan(plan)
    return [s.split(" by ")[1].split(",")[0] for s in steps] == [row["kernel"]]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("table")
    parser.add_argument("out")
    parser.add_argument("--device", default="cuda:0")
    o = parser.parse_args()
    rows, kept, more = read(o.table), [], True
    while more:  # a row that stays may change what its neighbours are given
        library = capi.Library(o.library, o.device)
        kept = [r for r in rows if r in kept]
        if kept:
            write(kept, o.out)
            library("danaus_device_load_tuning", library.device, str(o.out).encode())
        more = [r for r in rows if r not in kept and not is_chosen(library, *r)]
        kept += more
        library.close()
    write([r for r in rows if r in kept], o.out)
    print(f"{len(kept)} of {len(rows)} rows stay")


if __name__ == "__main__":
    main()
