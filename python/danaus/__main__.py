"""``python -m danaus``: the commands of the program, and ``plot``, which draws."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys
from collections.abc import Sequence

import danaus
import danaus_program

PLOT = "draws the factors of a chain, and what they multiply to"


def _plot(options: argparse.Namespace) -> None:
    from danaus import plot

    chains = danaus.Operator.load(options.chain).chains
    output = pathlib.Path(options.output)
    for n, chain in enumerate(chains, 1):
        name = output
        if len(chains) > 1:
            name = output.with_name(f"{output.stem}-{n}{output.suffix}")
        figure = plot.chain(chain, product=not options.factors)
        figure.savefig(name, dpi=options.dpi)
        rows, cols = chain.shape
        print(f"{name}: {len(chain.weights)} factors of a {rows} x {cols} matrix")


def _plot_options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m danaus plot", description=PLOT)
    parser.add_argument("chain", metavar="CHAIN", help="a chain file")
    parser.add_argument(
        "-o", "--output", metavar="F.png", required=True,
        help="the picture: PNG, PDF, SVG, by its name; F-1.png, F-2.png, ... "
        "of a file with several chains",
    )  # fmt: skip
    parser.add_argument(
        "--factors", action="store_true", help="without the product, which is dense"
    )
    parser.add_argument("--dpi", type=int, default=150, help="points an inch (150)")
    return parser.parse_args(words)


def _draw(words: Sequence[str]) -> int:
    options = _plot_options(words)
    try:
        _plot(options)
    except (OSError, ValueError, ImportError, NotImplementedError, MemoryError) as e:
        print(f"python -m danaus: {e}", file=sys.stderr)
        return 1
    return 0


def _print_help() -> int:
    done = subprocess.run([danaus_program.PROGRAM, "--help"])
    if done.returncode == 0:
        print(f"\n`python -m danaus` has one more:\n  {'plot':<11} {PLOT}")
    return done.returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command: 1 and a sentence on the error stream where it fails.

    A command of the program replaces this process.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["plot"]:
        return _draw(words[1:])
    if words == ["help", "plot"]:
        return _draw(["--help"])
    if words in (["help"], ["--help"], ["-h"]):
        return _print_help()
    danaus_program.become(words)


if __name__ == "__main__":
    sys.exit(main())
