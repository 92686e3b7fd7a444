"""The log of a training: a table in a CSV file, and lines shown while it runs."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import io
import pathlib
import sys
from typing import Any

from danaus._files import read_text, write_whole
from danaus.torch._conv_functions import fail

NAME = "log.csv"
COLUMNS = (
    "step", "loss", "rate", "gradient", "seconds", "held_out_loss", "perplexity",
    "right",
)  # fmt: skip


class Log:
    """Rows go to a file, each when it is there, and to the screen.

    Rows of steps after `step`, of a run that went beyond its last checkpoint, are
    removed. A bar of tqdm shows the rest of the steps where tqdm is installed and the
    error stream is a terminal; otherwise each row is a line. Without `writes`, in all
    processes but one, nothing happens.
    """

    def __init__(self, out: pathlib.Path, step: int, steps: int, writes: bool = True):
        self.path, self.steps = out / NAME, steps
        self.file, self.bar = None, None
        if not writes:
            return
        kept = _lines(self.path, step) if step else []
        write_whole(self.path, "".join([",".join(COLUMNS) + "\n", *kept]).encode())
        self.file = open(self.path, "a", encoding="utf-8")
        self.bar = _bar(step, steps)

    def write(self, row: dict[str, Any]) -> None:
        if self.file is None:
            return
        self.file.write(_line(row))
        self.file.flush()
        sentence = _sentence(row, self.steps)
        if self.bar is None:
            print(sentence, flush=True)
        else:
            self.bar.write(sentence)

    def step(self) -> None:
        """One more is done."""
        if self.bar is not None:
            self.bar.update()

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
        if self.bar is not None:
            self.bar.close()


def _line(row: dict[str, Any]) -> str:
    text = io.StringIO(newline="")
    values = ["" if row.get(n) is None else row[n] for n in COLUMNS]
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


def _lines(path: pathlib.Path, step: int) -> list[str]:
    """Lines of a log up to a step; the last one is left out if it is not whole."""
    if not path.exists():
        return []
    text = read_text(path)
    lines = text[: text.rfind("\n") + 1].splitlines(keepends=True)[1:]
    try:
        return [line for line in lines if int(line.split(",")[0]) <= step]
    except ValueError:
        fail(f"{path} is no log of a training")


def _sentence(row: dict[str, Any], steps: int) -> str:
    parts = []
    if row.get("loss") is not None:
        parts += [f"loss {row['loss']:.4f}", f"rate {row['rate']:.2e}"]
    if row.get("held_out_loss") is not None:
        parts.append(f"held out {row['held_out_loss']:.4f}")
    if row.get("perplexity") is not None:
        parts.append(f"perplexity {row['perplexity']:.3f}")
    if row.get("right") is not None:
        parts.append(f"{row['right']:.1%} right")
    return f"step {row['step']} of {steps}: " + ", ".join(parts)


def _bar(step: int, steps: int) -> Any:
    if not sys.stderr.isatty():
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(initial=step, total=steps, unit="step")
