#!/usr/bin/python3
"""Tables of docs/papers.md for FlashFFTConv and Monarch Mixer from records whose answers
are known, and without records; the cost model by hand."""

# SPDX-License-Identifier: Apache-2.0
import csv
import math
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path("bench").resolve()))
import document_flashfftconv as flash  # noqa: E402
import document_ks  # noqa: E402
import document_m2 as m2  # noqa: E402
import paper_conv_cost as model  # noqa: E402
from document_papers import MISSING  # noqa: E402


def write(name, *rows):
    with open(document_ks.RESULTS / f"{name}.csv", "w", newline="") as file:
        out = csv.DictWriter(file, rows[0])
        out.writeheader()
        out.writerows(rows)


def check_without_records():
    for name, table in (flash.TABLES | m2.TABLES).items():
        rows = table()
        assert len({len(row) for row in rows}) == 1, name
        assert any(MISSING in row for row in rows), name


def check_models():
    start = {"commit": "a", "device": "H200"}
    ways = {"M2-BERT": ("computed", "kept"), "Path-X": ("explicit",)}
    write(
        "h200_flashfftconv_models",
        *(
            start | {"model": model, "filters": way, "ratio": f"{2 + k}.004"}
            for model, of in ways.items()
            for k, way in enumerate(of)
        ),
    )
    rows = flash.flash_models()
    assert rows[1][-2:] == ("2.00", "3.00") and rows[2][-2:] == (MISSING, MISSING)
    assert rows[3][-2:] == ("", "2.00")
    seconds = {"seconds": "1", "torch_seconds": "4", "gpt_seconds": "2"}
    write(
        "h200_flashfftconv_language",
        start | {"length": "8192", "batch": "4"} | seconds,
    )
    assert flash.flash_language()[2][-4:] == ("16.4", "8.2", "32.8", "2.00")
    write("h200_flashfftconv_taps", start | {
        "taps": "512", "memory": "3.26", "torch_memory": "9"})  # fmt: skip
    assert flash.flash_taps()[5] == ("512", "9.0", "3.3")
    write("h200_flashfftconv_sparse", start | {
        "form": "sparse, 79 % zeros", "ratio": "1.5"})  # fmt: skip
    assert flash.flash_sparse()[3] == ("79 %", "1.4", "1.50")


def check_cost():
    """Order 2 of 1,024: two factors of 32 by matrix units, both on the chip."""
    found = {"matrix": 1e12, "arithmetic": 1e11, "chip": 8e12, "memory": 1e12}
    assert model.factors(10, 2) == [32, 32] and model.factors(8, 3) == [4, 8, 8]
    assert math.prod(model.factors(22, 4)) == 1 << 22
    by_hand = 2 * (16 * 32 / 1e12 + 16 / 8e12)
    assert math.isclose(model.cost(10, 2, found), by_hand)
    far = 16 * 256 / 1e12 + 16 / 1e12 + 16 * 256 / 1e12 + 16 / 8e12
    assert math.isclose(model.cost(16, 2, found), far)
    small = (16 * 4 + 2 * 16 * 8) / 1e11 + 3 * 16 / 8e12
    assert math.isclose(model.cost(8, 3, found), small)
    best = [model.best_order(bits, found) for bits in model.SIZES]
    assert best == sorted(best) and best[0] == 2 and best[-1] == 4, best
    start = {"commit": "a", "device": "H200"}
    write("h200_flashfftconv_cost", *(
        start | {"constant": name, "value": value} for name, value in found.items()
    ))  # fmt: skip
    assert [row[2] for row in flash.flash_constants()[1:]] == ["1.0", "0.1", "8.0", "1.0"]
    row = flash.flash_cost()[3]
    assert row[:2] == ("1,024", f"{1e12 * by_hand:.2f}") and row[-1] == "p = 2"


def check_m2():
    start = {"commit": "a", "device": "H200"}
    fit = {"size": "4096", "dense_seconds": "4e-3", "seconds": "1e-3", "ratio": "4"}
    fit |= {"dense_used": "0.5", "used": "0.125"}
    large = {"size": "262144", "dense_seconds": "", "seconds": "2e-3", "ratio": ""}
    large |= {"dense_used": "", "used": "0.25"}
    write("h200_m2_layers", start | fit, start | large)
    rows = m2.m2_layers()
    assert rows[1][1:] == ("4.000", "1.000", "4.0", "50.0%", "12.5%")
    assert rows[4][1:] == ("-", "2.000", "-", "-", "25.0%")
    times = {"tokens": "65536", "seconds": "0.1", "bert_seconds": "0.2"}
    kind = {"model": "260M", "length": "512", "plain_seconds": ""}
    write("h200_m2_bert", start | times | kind)
    rows = {row[:3]: row[3:] for row in m2.m2_tokens()}
    assert rows["H200", "260M", "512"] == ("", "", "655", "328", "-")
    assert rows["H200", "80M", "8,192"][:3] == (320, 102, MISSING)
    write("cpu_m2_bert_plain", start | {
        "tokens": "2048", "plain_ratio": "3.04", "bert_ratio": "2"})  # fmt: skip
    assert m2.m2_cpu()[3] == ("2,048", "1.4", "3.0", "2.0")


def check_mixtures():
    for field in ("commit", "device"):
        one = {"commit": "a", "device": "H200", "size": "4096"}
        write("h200_m2_layers", one, one | {field: "b"})
        try:
            m2.m2_layers()
        except SystemExit as refused:
            assert f"more than one {field}" in str(refused)
        else:
            raise AssertionError(f"records of two {field}s are one table")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        document_ks.RESULTS = pathlib.Path(name)
        check_without_records()
        check_models()
        check_cost()
        check_m2()
        check_mixtures()
