#!/usr/bin/python3
"""Tables of docs/papers.md from records whose answers are known, and without records."""

# SPDX-License-Identifier: Apache-2.0
import csv
import pathlib
import sys
import tempfile

try:
    import numpy  # noqa: F401
    import scipy  # noqa: F401
except ImportError:
    print("NumPy or SciPy is not installed")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path("bench").resolve()))
import document_ks  # noqa: E402
import document_papers as papers  # noqa: E402
import test_paper_ks as made  # noqa: E402


def check_without_records():
    for name, table in papers.TABLES.items():
        rows = table()
        assert len({len(row) for row in rows}) == 1, name
        assert any(papers.MISSING in row for row in rows), name


def both_types(lines):
    for problem, layout, fields in lines:
        for dtype in papers.TYPES:
            yield problem, layout, fields | {"dtype": dtype}


def write_models(path):
    with open(path, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["model", "part", "dtype", "bmm_ratio", "ratio", "share"])
        out.writerow(["ViT-S/16", "whole", "f32", "0.9", "0.5", ""])
        out.writerow(["ViT-B/16", "share", "f16", "", "", "0.414"])


def check_with_records(folder):
    made.write(folder / "h200_paper_ks.csv", both_types(made.timed()))
    wins = {row[:2]: row[3:] for row in papers.paper_wins()}
    assert wins["ours over bmm, einsum, BSR", "FP16"] == (
        "33.3%, 4.00",
        "66.7%, 3.00",
        "66.7%, 2.00",
    )
    assert papers.paper_each()[3][:3] == ("FP32", "ours over bsr", "100.0%, 6.75")
    assert sum(row[2] for row in papers.paper_sparsity()[1:]) == 6
    assert sum(row[2] for row in papers.paper_h()[1:]) == 6
    slope = [
        (p, "last", f) for p, _, f in made.known(lambda rho, h: 3 * rho**-0.5 * h**0.25)
    ]
    first = [(p, "first", f) for p, _, f in slope]
    made.write(folder / "h200_paper_ks.csv", both_types(first + slope))
    regression = papers.paper_regression()[2]
    assert regression[2:4] == ("1.10 -0.500 log density +0.250 log h", "1.000"), (
        regression
    )
    write_models(folder / "h200_paper_ks_models.csv")
    assert papers.paper_models()[1:] == [
        ("ViT-S/16", "whole", "FP32", "0.89", "0.78", "0.90", "0.50")
    ]
    assert papers.paper_share()[1:3] == [
        ("ViT-S/16", "31%", papers.MISSING),
        ("ViT-B/16", "42%", "41%"),
    ]


def check_energy(folder):
    path = made.check_energy(folder)
    lines = list(csv.DictReader(path.open()))
    with open(folder / "h200_paper_ks_energy.csv", "w", newline="") as file:
        out = csv.DictWriter(file, lines[0])
        out.writeheader()
        for line in lines:
            for layout in ("first", "last"):
                out.writerow(line | {"layout": layout})
    rows = papers.paper_energy()
    assert [row[:4] for row in rows[2:]] == [
        (view, 3, "67%", "0.75") for view in papers.VIEWS
    ], rows


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        document_ks.RESULTS = pathlib.Path(name)
        check_without_records()
        check_with_records(document_ks.RESULTS)
        check_energy(document_ks.RESULTS)
