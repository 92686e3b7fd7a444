#!/usr/bin/env python3
"""The median record of each problem over several runs of `danaus-bench --csv`.

    median.py FIELD RUN.csv... > MEDIANS.csv

Middle by FIELD (speedup, ratio, median_ns, ...); of an even number the lower one of both.
Records come in the order of the first run; those without the field are left out. Runs of
different commits or machines, and of a tree with changes, are refused.
"""
# SPDX-License-Identifier: Apache-2.0
import csv
import sys

import records

ONE = ("version", "commit", "device", "machine")  # the same in every record
KEY = ("operation", "problem", "dtype", "layout", "batch", "instructions", "threads")


def refuse_mixtures(rows):
    """Records of one table come from one commit and one machine."""
    for name in ONE:
        found = sorted({row.get(name) or "" for row in rows})
        if len(found) > 1:
            raise SystemExit(f"records of more than one {name}: " + ", ".join(found))


def refuse_unclean(rows):
    """Records to keep come from a commit that they name, without changes."""
    for row in rows:
        if (row.get("commit") or "").endswith("-dirty"):
            raise SystemExit(f"records of a tree with changes: {row['commit']}")
        if row.get("commit") in ("", "unknown"):
            raise SystemExit("records that do not say their commit")


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    field, problems, everything = sys.argv[1], {}, []
    for path in sys.argv[2:]:
        with open(path, newline="") as file:
            reader = csv.DictReader(file)
            if field not in (reader.fieldnames or ()):
                raise SystemExit(f"{path} has no field {field}")
            names = reader.fieldnames
            rows = list(reader)
            everything += rows
            for row in rows:
                if records.number(row[field]) is not None:
                    problems.setdefault(tuple(row.get(k) for k in KEY), []).append(row)
    refuse_mixtures(everything)
    refuse_unclean(everything)
    out = csv.DictWriter(sys.stdout, names, lineterminator="\n")
    out.writeheader()
    for rows in problems.values():
        rows.sort(key=lambda row: records.number(row[field]))
        out.writerow(rows[(len(rows) - 1) // 2])


if __name__ == "__main__":
    main()
