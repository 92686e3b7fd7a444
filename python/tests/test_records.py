"""Benchmark records are read, written, compared and turned into arrays."""
# SPDX-License-Identifier: Apache-2.0

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies

from danaus import records

RESULTS = Path(__file__).parents[2] / "bench" / "results"


def test_records_of_the_repository_are_read():
    found = records.read(RESULTS / "cpu_3136.csv")
    first = found[0]
    assert first["problem"] == "1,1024,1024,1" and first["batch"] == 3136
    with (RESULTS / "cpu_3136.csv").open() as file:
        text = next(csv.DictReader(file))
    assert first["version"] == "0.1.0"
    assert first["median_ns"] == float(text["median_ns"])
    assert first["factors_ns"] is None
    assert all(isinstance(record["commit"], str) for record in found)


def test_every_record_of_the_repository_survives_a_round_trip(tmp_path):
    files = sorted(RESULTS.glob("*.csv"))
    assert len(files) > 20
    for path in files:
        found = records.read(path)
        assert found, path
        records.write(tmp_path / "copy.csv", found)
        assert records.read(tmp_path / "copy.csv") == found, path


def test_ratios_are_the_columns_of_the_file():
    found = [r for r in records.read(RESULTS / "cpu_3136.csv") if r["best_ns"]]
    speedup = [r["speedup"] for r in found]
    assert np.allclose(records.ratios(found), speedup, rtol=2e-5)
    limit = records.ratios(found, "median_ns", "limit_ns")
    assert np.allclose(limit, [r["ratio"] for r in found], rtol=2e-5)


def test_missing_numbers_are_nan():
    some = [{"a": 1, "b": None}, {"a": 2.5, "b": 0}, {"b": 4}]
    assert np.isnan(records.ratios(some, "a", "b")[[0, 2]]).all()
    array = records.to_array(some + [{"problem": "1,2,2,1"}])
    assert array["a"][1] == 2.5 and np.isnan(array["a"][2])
    assert list(array["problem"]) == ["", "", "", "1,2,2,1"]


def test_records_of_two_runs_meet_by_their_problem():
    def run(scale, batches):
        return [
            {"problem": "1,2,2,1", "dtype": "f32", "batch": n, "median_ns": scale * n}
            for n in batches
        ]

    found = records.compare(run(2.0, [1, 2, 4]), run(3.0, [4, 2, 8]))
    assert [row["batch"] for row in found] == [4, 2]
    assert [row["ratio"] for row in found] == [1.5, 1.5]
    assert found[0]["before"] == 8 and found[0]["dtype"] == "f32"
    with pytest.raises(ValueError, match="dtype holds text"):
        records.compare(run(1.0, [1]), run(1.0, [1]), column="dtype")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no line with the names"),
        ("a,b\n1\n", "record 1 of .* has 1 fields, not 2"),
        ("a,a\n1,2\n", "names a column twice"),
    ],
)
def test_what_is_no_table_is_refused_with_a_sentence(tmp_path, text, sentence):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=sentence):
        records.read(path)


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    path = tmp_path / "marked.csv"
    path.write_bytes(b"\xef\xbb\xbfa,b\r\n1,2\r\n")
    assert records.read(path) == [{"a": 1, "b": 2}]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "records.csv"
    records.write(path, [{"a": 1}])

    class Unprintable:
        def __str__(self):
            raise RuntimeError("no text")

    with pytest.raises(RuntimeError, match="no text"):
        records.write(path, [{"a": Unprintable()}])
    assert records.read(path) == [{"a": 1}]
    assert [p.name for p in tmp_path.iterdir()] == ["records.csv"]
    with pytest.raises(ValueError, match="no records to write"):
        records.write(path, [])


@given(strategies.binary(max_size=200))
def test_no_bytes_crash_the_reader(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("records") / "any.csv"
    path.write_bytes(data)
    try:
        found = records.read(path)
    except ValueError:
        return
    assert all(isinstance(record, dict) for record in found)
