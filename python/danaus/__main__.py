"""``python -m danaus plot CHAIN -o F.png``: a picture of a chain file."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Sequence

import danaus


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


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m danaus", description="Pictures of chains."
    )
    commands = parser.add_subparsers(required=True, metavar="plot")
    command = commands.add_parser(
        "plot", help="draws the factors of a chain, and what they multiply to"
    )
    command.add_argument("chain", metavar="CHAIN", help="a chain file")
    command.add_argument(
        "-o", "--output", metavar="F.png", required=True,
        help="the picture: PNG, PDF, SVG, by its name; F-1.png, F-2.png, ... "
        "of a file with several chains",
    )  # fmt: skip
    command.add_argument(
        "--factors", action="store_true", help="without the product, which is dense"
    )
    command.add_argument("--dpi", type=int, default=150, help="points an inch (150)")
    command.set_defaults(run=_plot)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; 1 and a sentence on the error stream where it fails."""
    options = _options(arguments)
    try:
        options.run(options)
    except (OSError, ValueError, ImportError, NotImplementedError, MemoryError) as e:
        print(f"python -m danaus: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
