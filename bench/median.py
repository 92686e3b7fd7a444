#!/usr/bin/env python3
"""Of several runs of `danaus bench --csv` the record of each problem in the middle.

    median.py FIELD RUN.csv... > MEDIANS.csv

Middle by FIELD (speedup, ratio, median_ns, ...); of an even number the lower one of both.
Records come in the order of the first run; those without the field are left out.
"""
# SPDX-License-Identifier: Apache-2.0
import csv
import sys

import records

KEY = ("operation", "problem", "dtype", "layout", "batch", "instructions", "threads")


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    field, problems = sys.argv[1], {}
    for path in sys.argv[2:]:
        with open(path, newline="") as file:
            reader = csv.DictReader(file)
            if field not in (reader.fieldnames or ()):
                raise SystemExit(f"{path} has no field {field}")
            names = reader.fieldnames
            for row in reader:
                if records.number(row[field]) is not None:
                    problems.setdefault(tuple(row.get(k) for k in KEY), []).append(row)
    out = csv.DictWriter(sys.stdout, names, lineterminator="\n")
    out.writeheader()
    for rows in problems.values():
        rows.sort(key=lambda row: records.number(row[field]))
        out.writerow(rows[(len(rows) - 1) // 2])


if __name__ == "__main__":
    main()
