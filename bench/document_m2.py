"""Tables of docs/papers.md for Monarch Mixer, arXiv 2310.12109, for document.py."""

# SPDX-License-Identifier: Apache-2.0
from document_papers import MISSING, rows_of

SIZES = 4096, 16384, 65536, 262144
LENGTHS = 512, 1024, 2048, 4096, 8192
# What the paper prints of M2-BERT-80M: tokens a millisecond of it and of BERT-base with
# fused attention, as far as known here, and its speed over BERT-base on a CPU.
TOKENS = {("80M", 512): (386, 367), ("80M", 8192): (320, 102)}
CPU = {512: "0.6", 1024: "1.1", 2048: "1.4", 4096: "2.8", 8192: "6.5"}
FILES = {"H200": "h200_m2_bert", "H100": "h100_m2_bert"}


def cell(row, field, text):
    """- where the row has no such number."""
    if not row:
        return MISSING
    return text.format(float(row[field])) if row.get(field) else "-"


def m2_layers():
    """Time and use of the peak."""
    found = {int(r["size"]): r for r in rows_of("h200_m2_layers")}
    head = "N", "dense, ms", "M2, ms", "dense / M2", "dense: of the peak", "M2"
    rows = [head]
    for size in SIZES:
        row = found.get(size)
        times = {
            f"{way}ms": float(row[f"{way}seconds"]) * 1e3
            for way in ("dense_", "")
            if row and row[f"{way}seconds"]
        }
        some = row and row | times
        cells = [cell(some, field, "{:.3f}") for field in ("dense_ms", "ms")]
        cells.append(cell(some, "ratio", "{:.1f}"))
        cells += [cell(some, field, "{:.1%}") for field in ("dense_used", "used")]
        rows.append((f"{size:,}", *cells))
    return rows


def rate(row, field):
    """Tokens a millisecond."""
    if not row:
        return MISSING
    if not row.get(field):
        return "-"
    return f"{int(row['tokens']) / float(row[field]) / 1e3:,.0f}"


def m2_tokens():
    rows = [
        (
            "device",
            "model",
            "tokens",
            "paper: M2",
            "BERT, fused",
            "here: M2",
            "BERT, fused",
            "BERT, plain",
        )
    ]
    for device, name in FILES.items():
        found = {
            (r.get("model") or "80M", int(r["length"])): r for r in rows_of(name)
        }
        asked = [(model, n) for model in ("80M", "260M") for n in LENGTHS]
        for key in asked if device == "H200" else found:
            row = found.get(key)
            ways = ("seconds", "bert_seconds", "plain_seconds")
            cells = [rate(row, way) for way in ways]
            known = TOKENS.get(key, ("", ""))
            rows.append((device, key[0], f"{key[1]:,}", *known, *cells))
    return rows


def m2_cpu():
    """BERT-base's time over that of M2-BERT-80M."""
    found = {int(r["tokens"]): r for r in rows_of("cpu_m2_bert_plain")}
    rows = [("tokens", "paper", "plain attention", "fused attention")]
    for length, known in CPU.items():
        row = found.get(length)
        cells = [cell(row, f"{way}_ratio", "{:.1f}") for way in ("plain", "bert")]
        rows.append((f"{length:,}", known, *cells))
    return rows


TABLES = {f.__name__: f for f in (m2_layers, m2_tokens, m2_cpu)}
