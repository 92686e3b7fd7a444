"""Tables of docs/papers.md: what papers print, beside records, for document.py."""

# SPDX-License-Identifier: Apache-2.0
import importlib
import math

import document_ks
import median

MISSING = "not measured yet"
TYPES = {"f32": "FP32", "f16": "FP16"}
VIEWS = ("both", "first", "last")
# What arXiv 2405.15013 prints: share of wins in per cent and speed, by methods and type.
WINS = {
    ("ours over dense, CSR", "f32"): (98.1, 6.5),
    ("ours over dense, CSR", "f16"): (85.7, 8.14),
    ("bmm over all others", "f32"): (90.0, 1.36),
    ("bmm over all others", "f16"): (80.7, 1.52),
    ("ours over bmm, einsum, BSR", "f32"): (85.5, 1.39),
    ("ours over bmm, einsum, BSR", "f16"): (37.8, 1.51),
}
REGRESSION = "1.69 - 0.031 log density + 0.325 log h", "0.697"
ENERGY = "72 %", "0.85"
MODELS = {
    ("ViT-S/16", "whole"): ("0.89", "0.78"),
    ("GPT-2 medium", "blocks"): ("0.88", "0.84"),
}
SHARES = {
    "ViT-S/16": 31,
    "ViT-B/16": 42,
    "ViT-L/16": 46,
    "ViT-H/14": 53,
}  # FP16, per cent


# ---- records ----


def path_of(name):
    return document_ks.RESULTS / f"{name}.csv"


def rows_of(name):
    """Records of a file, of one commit and one device; none where it is not there yet."""
    rows = document_ks.records(name) if path_of(name).exists() else []
    median.refuse_mixtures(rows)
    return rows


def products(name):
    """paper_ks and the products of a file's records by (dtype, view). It needs NumPy and
    SciPy, which are loaded where there are records."""
    path = path_of(name)
    if not path.exists():
        return None, {}
    paper_ks, files = map(importlib.import_module, ("paper_ks", "records"))
    return paper_ks, paper_ks.views(files.read([path]))


def cell(found):
    """A share of wins and a speed."""
    return f"{found.share:.1%}, {found.won:.2f}" if found else MISSING


# ---- tables ----


def paper_wins():
    """The share of wins and the median speed of these."""
    paper_ks, of = products("h200_paper_ks")
    rows = [("methods", "type", "paper", "here", "batch-first", "batch-last")]
    for (name, dtype), (won, speed) in WINS.items():
        cells = [
            cell(paper_ks.wins(of[dtype, view], paper_ks.COMPARED[name]))
            if of
            else MISSING
            for view in VIEWS
        ]
        rows.append((name, TYPES[dtype], f"{won:.1f}%, {speed:.2f}", *cells))
    return rows


def measured(head, lines):
    """A table of records alone."""
    lines = list(lines)
    return [head, *(lines or [(MISSING, *[""] * (len(head) - 1))])]


def paper_each():
    paper_ks, of = products("h200_paper_ks")
    return measured(
        ("type", "methods", "here", "batch-first", "batch-last"),
        (
            (
                TYPES[dtype],
                name,
                *(cell(paper_ks.wins(of[dtype, view], methods)) for view in VIEWS),
            )
            for dtype in TYPES
            if of
            for name, methods in paper_ks.EACH.items()
        ),
    )


def number(value):
    return "-" if math.isnan(value) else f"{value:.2f}"


def grouped(function, digits):
    """Groups of both layouts' least times, against bmm, einsum and BSR."""
    paper_ks, of = products("h200_paper_ks")
    for dtype in TYPES if of else ():
        methods = paper_ks.COMPARED["ours over bmm, einsum, BSR"]
        groups = getattr(paper_ks, function)(of[dtype, "both"], methods)
        for low, high, found, *more in groups:
            numbers = (number(value) for value in (found.speed, *more))
            span = f"{low:.{digits}f} to {high:.{digits}f}"
            yield TYPES[dtype], span, found.count, cell(found), *numbers


def paper_sparsity():
    head = "type", "sparsity", "patterns", "wins, speed of these", "speed of all"
    return measured(head, grouped("by_sparsity", 3))


def paper_h():
    head = "type", "h", "patterns", "wins, speed of these", "speed of all", "Pearson"
    return measured(head, grouped("by_h", 4))


def paper_regression():
    formula, r2 = REGRESSION
    rows = [
        (
            "type",
            "over",
            "log(speed)",
            "R^2",
            "adjusted",
            "p of normality",
            "Pearson, density",
            "Pearson, h",
        ),
        ("FP32, paper", "", formula, r2, "", "", "", ""),
    ]
    paper_ks, of = products("h200_paper_ks")
    for dtype in TYPES if of else ():
        for name, methods in paper_ks.REGRESSIONS.items():
            r = paper_ks.regression(of[dtype, "both"], methods)
            rows.append(
                (
                    TYPES[dtype],
                    name,
                    f"{r.constant:.2f} {r.of_density:+.3f} log density {r.of_h:+.3f} log h",
                    f"{r.r2:.3f}",
                    f"{r.adjusted_r2:.3f}",
                    f"{r.normality:.1g}",
                    f"{r.pearson_density:.2f}",
                    f"{r.pearson_h:.2f}",
                )
            )
    return rows if of else [*rows, (MISSING, *[""] * 7)]


def paper_energy():
    rows = [
        ("layout", "patterns", "less energy", "ratio: median", "Pearson, d h"),
        ("paper", "", *ENERGY, ""),
    ]
    paper_ks, of = products("h200_paper_ks_energy")
    for view in VIEWS if of else (MISSING,):
        found = paper_ks.energy(of["f32", view]) if of else None
        rows.append(
            (view, found[0], f"{found[1]:.0%}", f"{found[2]:.2f}", f"{found[3]:.2f}")
            if found
            else (view, "", "", "", "")
        )
    return rows


def paper_models():
    """Time over that of dense layers."""
    rows = [
        ("model", "part", "type", "paper: bmm", "its kernel", "here: bmm", "danaus")
    ]
    found = [r for r in rows_of("h200_paper_ks_models") if r["part"] != "share"]
    for (model, part), cells in MODELS.items():
        if not found:
            rows.append((model, part, "FP32", *cells, MISSING, MISSING))
    for r in found:
        known = MODELS.get((r["model"], r["part"])) if r["dtype"] == "f32" else None
        rows.append(
            (
                r["model"],
                r["part"],
                TYPES[r["dtype"]],
                *(known or ("", "")),
                f"{float(r['bmm_ratio']):.2f}",
                f"{float(r['ratio']):.2f}",
            )
        )
    return rows


def paper_share():
    """Time of linear layers over that of the model, FP16."""
    found = {
        r["model"]: f"{float(r['share']):.0%}"
        for r in rows_of("h200_paper_ks_models")
        if (r["part"], r["dtype"]) == ("share", "f16")
    }
    return [
        ("model", "paper", "here"),
        *(
            (model, f"{share}%", found.get(model, MISSING))
            for model, share in SHARES.items()
        ),
    ]


TABLES = {
    f.__name__: f
    for f in (
        paper_wins,
        paper_each,
        paper_sparsity,
        paper_h,
        paper_regression,
        paper_energy,
        paper_models,
        paper_share,
    )
}
