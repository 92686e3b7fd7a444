"""Benchmark records: the CSV files of ``danaus-bench`` (docs/formats.md).

A record is a dict: numbers are int or float, empty fields are None, the rest is text.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from danaus._files import read_text, write_whole

__all__ = ["KEY", "compare", "ratios", "read", "to_array", "write"]

#: Columns that tell one measurement from another; a file has some of them.
KEY = (
    "device",
    "instructions",
    "threads",
    "operation",
    "problem",
    "dtype",
    "math",
    "layout",
    "batch",
    "kind",
    "length",
    "taps",
    "channels",
    "extras",
)

# Columns that hold text even where every field of a file looks like a number.
_TEXT = frozenset(
    "version commit machine device instructions operation problem dtype math layout "
    "kernel bound best kind extras plan torch name status patterns message".split()
)

Record = dict[str, "int | float | str | None"]


def _number(text: str) -> int | float | None:
    """The number that a field holds, None if it is empty; else ValueError."""
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        return float(text)


def _numbers(fields: Sequence[str]) -> list[int | float | None] | None:
    """The numbers of a column; None where one of its fields is text."""
    try:
        return [_number(field) for field in fields]
    except ValueError:
        return None


def _rows(path: str | os.PathLike) -> tuple[list[str], list[list[str]]]:
    lines = io.StringIO(read_text(path), newline="")
    reader = csv.reader(line for line in lines if not line.startswith("#"))
    try:
        rows = [row for row in reader if row]
    except csv.Error as error:
        raise ValueError(f"{path} is not a CSV file: {error}") from error
    if not rows:
        raise ValueError(f"{path} has no line with the names of its columns")
    names = rows[0]
    if len(set(names)) != len(names):
        raise ValueError(f"{path} names a column twice")
    for number, row in enumerate(rows[1:], 1):
        if len(row) != len(names):
            raise ValueError(
                f"record {number} of {path} has {len(row)} fields, not {len(names)}"
            )
    return names, rows[1:]


def read(*paths: str | os.PathLike) -> list[Record]:
    """Reads the records of one or more files, in order.

    Raises
    ------
    ValueError
        A file is no table, or one of its lines has another number of fields.
    """
    records: list[Record] = []
    for path in paths:
        names, rows = _rows(path)
        columns: list[Sequence] = []
        for name, fields in zip(names, zip(*rows)):
            numbers = None if name in _TEXT else _numbers(fields)
            columns.append(numbers or [field or None for field in fields])
        records += [dict(zip(names, row)) for row in zip(*columns)]
    return records


def _names(records: Iterable[Mapping]) -> list[str]:
    """All columns, in the order in which they first appear."""
    if isinstance(records, (str, Mapping)):
        kind = type(records).__name__
        raise TypeError(f"records are a list of mappings, not a {kind}")
    return list(dict.fromkeys(name for record in records for name in record))


def write(path: str | os.PathLike, records: Sequence[Mapping]) -> None:
    """Writes records as CSV, in one step: the file appears complete or not at all.

    There is a column for every field of any record; records without it leave it empty.
    """
    names = _names(records)
    if not names:
        raise ValueError("there are no records to write")
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    write_whole(path, text.getvalue().encode())


def to_array(records: Sequence[Mapping]) -> np.ndarray:
    """Records as a structured array, a field for each column.

    Columns of numbers are f64, others text; missing values are NaN, or "" in text.
    """
    fields, columns = [], []
    for name in _names(records):
        values = [record.get(name) for record in records]
        if name in _TEXT or any(isinstance(value, str) for value in values):
            column = np.array(["" if v is None else str(v) for v in values])
        else:
            column = np.array(
                [np.nan if v is None else v for v in values], dtype=np.float64
            )
        fields.append((name, column.dtype))
        columns.append(column)
    if not fields:
        raise ValueError("there are no records to make an array of")
    array = np.empty(len(records), dtype=fields)
    for (name, _), column in zip(fields, columns):
        array[name] = column
    return array


def _value(record: Mapping, column: str) -> float:
    value = record.get(column)
    if isinstance(value, str):
        raise ValueError(f"the column {column} holds text: {value!r}")
    return np.nan if value is None else float(value)


def ratios(
    records: Sequence[Mapping], over: str = "best_ns", under: str = "median_ns"
) -> np.ndarray:
    """One column divided by another, NaN where a number is missing.

    By default: how many times faster danaus is than the fastest baseline.
    """
    for column in (over, under):
        if records and not any(column in record for record in records):
            raise ValueError(f"the records have no column {column}")
    top = np.array([_value(record, over) for record in records])
    bottom = np.array([_value(record, under) for record in records])
    with np.errstate(divide="ignore", invalid="ignore"):
        return top / bottom


def compare(
    before: Iterable[Mapping],
    after: Iterable[Mapping],
    column: str = "median_ns",
    key: Sequence[str] = KEY,
) -> list[Record]:
    """Compares two runs of the same problems.

    Records belong together when all columns of ``key`` agree; of several records for
    one problem the last counts. Problems that are in one run only are left out, and
    so are those without a number in ``column``.

    Returns
    -------
    list of dict
        The columns of the key that the records have, ``before``, ``after`` and
        ``ratio`` (after over before: below 1 is faster), in the order of ``after``.
    """
    old = {tuple(record.get(k) for k in key): record for record in before}
    found = []
    for record in after:
        match = old.get(tuple(record.get(k) for k in key))
        if match is None:
            continue
        one, two = _value(match, column), _value(record, column)
        if np.isfinite(one) and np.isfinite(two) and one != 0:
            row = {k: record[k] for k in key if k in record}
            found.append(row | {"before": one, "after": two, "ratio": two / one})
    return found
