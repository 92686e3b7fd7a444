"""Pictures of chains, filters, errors and trainings, made with matplotlib.

Every function draws on a figure or axes of the caller's, or on a new figure that is
not registered with pyplot: nothing is shown, nothing global changes, and no display
is needed. Save with ``figure.savefig(...)``; notebooks show the returned figure after
``%matplotlib inline``.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from danaus import records
from danaus._arrays import convert, numbers_of
from danaus._conv_arguments import four
from danaus.chain import Chain
from danaus.factorize import factorize
from danaus.patterns import Patterns, as_patterns, make

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["chain", "error_against_parameters", "spectrum", "training"]

_PAPER = "#dededa"  # where a factor has no weights
_LEFT_OUT = "#b5b5b0"
_MOST_PIXELS = 256  # on a side; larger matrices are reduced, keeping what is largest


def _new_figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("danaus.plot needs matplotlib: pip install matplotlib") from (
            error
        )
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _axes(ax: Axes | None, width: float = 6.4, height: float = 4.2) -> Axes:
    return _new_figure(width, height).add_subplot() if ax is None else ax


# ---- matrices as pictures ----


def _reduced(rows, cols, values, shape: tuple[int, int]) -> np.ndarray:
    """A picture of at most _MOST_PIXELS a side from entries (rows, cols, values).

    A pixel shows the entry of the largest magnitude in it; NaN where there is none.
    """
    height, width = (min(size, _MOST_PIXELS) for size in shape)
    picture = np.full((height, width), np.nan, values.dtype)
    values = np.where(np.isnan(values), 0, values).ravel()
    order = np.argsort(np.abs(values), kind="stable")
    down, right = rows * height // shape[0], cols * width // shape[1]
    # NumPy keeps the last of several values for one pixel, which is the largest.
    picture.flat[(down * width + right).ravel()[order]] = values[order]
    return picture


def _numbers(array: np.ndarray) -> np.ndarray:
    """The numbers of a chain's array, in a type wide enough to compute with."""
    if array.dtype == np.uint16:
        return convert(array, "f64", "bf16")
    return array.astype(np.result_type(array.dtype, np.float32))


def _factor_picture(w: np.ndarray) -> np.ndarray:
    """w[a][b][c][d] as the (a b d) x (a c d) matrix I_a (x) 1_{b x c} (x) I_d."""
    a, b, c, d = w.shape
    i, r, k, j = np.ogrid[:a, :b, :c, :d]
    rows, cols = np.broadcast_arrays(i * b * d + r * d + j, i * c * d + k * d + j)
    return _reduced(rows, cols, w, (a * b * d, a * c * d))


def _matrix_picture(matrix: np.ndarray) -> np.ndarray:
    rows, cols = np.indices(matrix.shape, sparse=True)
    return _reduced(*np.broadcast_arrays(rows, cols), matrix, matrix.shape)


def _colours(picture: np.ndarray) -> np.ndarray:
    """RGBA: blue below and red above zero; the phase of complex numbers as a hue.

    Colours pale towards zero, and end at the 99th percentile, so that one great number
    does not pale the others. NaN is transparent.
    """
    import matplotlib

    size = np.abs(picture)
    most = np.nanquantile(size, 0.99) or 1.0
    depth = np.minimum(np.nan_to_num(size) / most, 1)
    if np.iscomplexobj(picture):
        hue = np.angle(np.nan_to_num(picture)) / (2 * np.pi) % 1
        hsv = np.stack([hue, 0.75 * depth, 1 - 0.1 * depth], axis=-1)
        rgb = matplotlib.colors.hsv_to_rgb(hsv)
        colours = np.concatenate([rgb, np.ones_like(rgb[..., :1])], axis=-1)
    else:
        signed = depth * np.sign(np.nan_to_num(picture))
        colours = matplotlib.colormaps["RdBu_r"]((signed + 1) / 2)
    colours[..., 3] = ~np.isnan(picture)
    return colours


def _draw_picture(ax: Axes, picture: np.ndarray, shape: tuple[int, int]) -> None:
    ax.set_facecolor(_PAPER)
    extent = (0, shape[1], shape[0], 0)
    ax.imshow(_colours(picture), interpolation="nearest", aspect="auto", extent=extent)
    ax.set_xticks([])
    ax.set_yticks([])
    for side in ax.spines.values():
        side.set_color("#8a8a86")
        side.set_linewidth(0.6)


def _chain_axes(shapes, signs: Sequence[str], figure: Figure | None) -> list[Axes]:
    """Axes in a row, sized in proportion to the matrices, with signs between them."""
    # In inches. A side is at least an eighth of the longest: thin matrices stay
    # visible, and a slot is at least as wide as the words under it.
    longest, gap, above, below, edge = 2.2, 0.34, 0.36, 0.34, 0.12
    most = max(map(max, shapes))
    sizes = [[longest * max(side / most, 0.125) for side in s] for s in shapes]
    slots = [max(width, 0.95) for _, width in sizes]
    tallest = max(height for height, _ in sizes)
    total = 2 * edge + sum(slots) + gap * len(signs)
    whole = above + tallest + below
    if figure is None:
        figure = _new_figure(total, whole)
        figure.set_layout_engine("none")
    left, middle, axes = edge, below + tallest / 2, []
    for (height, width), slot, sign in zip(sizes, slots, [*signs, ""]):
        x = left + (slot - width) / 2
        box = (x / total, (middle - height / 2) / whole, width / total, height / whole)
        axes.append(figure.add_axes(box))
        left += slot + gap
        place = ((left - gap / 2) / total, middle / whole)
        figure.text(*place, sign, ha="center", va="center", fontsize=13)
    return axes


def chain(
    chain: Chain, *, product: bool = True, figure: Figure | None = None
) -> Figure:
    """Draws the factors of a chain side by side, and their product.

    Each factor is drawn as a matrix: grey where its pattern has no weights, else blue
    below and red above zero, each factor with its own scale. The hue of complex weights
    is their phase: red 1, green i, cyan -1, violet -i. In matrices with more than 256
    rows or columns a pixel shows its largest value.

    Parameters
    ----------
    chain
        The chain K_1 ... K_L.
    product
        True to draw the dense product W = K_1 ... K_L too, which needs M x N values of
        memory.
    figure
        A figure to draw on; without one a new figure is made.
    """
    if not isinstance(chain, Chain):
        raise TypeError(f"a danaus.Chain is drawn, not a {type(chain).__name__}")
    factors = [_numbers(w) for w in chain.weights]
    pictures = [_factor_picture(w) for w in factors]
    shapes = [(a * b * d, a * c * d) for a, b, c, d in (w.shape for w in factors)]
    titles = [f"$K_{{{n}}}$" for n in range(1, len(factors) + 1)]
    notes = ["({}, {}, {}, {})".format(*w.shape) for w in factors]
    signs = ["·"] * (len(factors) - 1)
    if product:
        dense = _numbers(chain.to_dense())
        pictures.append(_matrix_picture(dense))
        shapes.append(dense.shape)
        titles.append("$W$")
        notes.append(f"{dense.shape[0]} × {dense.shape[1]}")
        signs.append("=")
    axes = _chain_axes(shapes, signs, figure)
    for ax, picture, shape, title, note in zip(axes, pictures, shapes, titles, notes):
        _draw_picture(ax, picture, shape)
        ax.set_title(title, fontsize=12)
        ax.set_xlabel(note, fontsize=9, color="#55554f")
    return axes[0].figure


# ---- filters ----


def _frequencies(k: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Cycles a number in [0, 1/2] and the filters' values at (f + 1/4) / n, f < n."""
    taps = k.shape[-1]
    turned = k * np.exp(-0.5j * np.pi * np.arange(taps) / n)
    padded = np.zeros((*k.shape[:-1], -(-taps // n) * n), complex)
    padded[..., :taps] = turned
    values = np.fft.fft(padded.reshape(*k.shape[:-1], -1, n).sum(axis=-2))
    frequency = (np.arange(n) + 0.25) / n
    return np.minimum(frequency, 1 - frequency), values


def _kept(n: int, axes: Sequence[int], keep: Sequence[int]) -> np.ndarray:
    """Which of the n frequencies a sparse spectrum keeps (danaus/conv.h)."""
    rest, kept = np.arange(n), np.ones(n, bool)
    for size, most in zip(axes, keep):
        kept &= rest % size < most
        rest //= size
    return kept


def spectrum(
    k: np.ndarray,
    *,
    length: int | None = None,
    axes: Sequence[int] | None = None,
    keep: Sequence[int] | None = None,
    labels: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draws the frequency response of filters, in decibels.

    Parameters
    ----------
    k
        One filter [taps] or several [filters][taps], a line each.
    length
        Length of the rows that are convolved; by default the filter's. It matters for
        sparse spectra only.
    axes, keep
        As for `ConvPlan`: frequencies that a sparse spectrum leaves out are grey.
    labels
        Names of the filters for a legend.
    ax
        Axes to draw on; without them a new figure is made.
    """
    k = numbers_of(k, "k")
    if k.dtype.kind == "c":
        raise TypeError("k is complex, and filters of real numbers are drawn")
    k = np.atleast_2d(k.astype(np.float64))
    if k.ndim != 2 or not k.size or not np.isfinite(k).all():
        raise ValueError(
            f"k has the shape {k.shape}, and finite numbers [taps] or [filters][taps] "
            "are drawn"
        )
    taps = k.shape[1]
    sizes = [size or 8 for size in four(axes, "axes")]
    kept_sizes = [most or size for most, size in zip(four(keep, "keep"), sizes)]
    least = max((taps + (length or taps)) / 2, 512)
    if kept_sizes != sizes:
        least = max(least, 4096, np.prod(sizes))
    n = 1 << int(np.ceil(np.log2(least)))
    frequency, values = _frequencies(k, n)
    order = np.argsort(frequency)
    kept = _kept(n, sizes, kept_sizes)[order]
    power = 20 * np.log10(np.maximum(np.abs(values), 1e-300))
    floor = power.max() - 120
    ax = _axes(ax)
    for number, line in enumerate(np.maximum(power, floor)):
        label = labels[number] if labels else None
        shown = np.where(kept, line[order], np.nan)
        if not kept.all():
            ax.plot(frequency[order], line[order], color=_LEFT_OUT, linewidth=0.8)
            ax.plot(frequency[order], shown, ".", markersize=2, label=label)
        else:
            ax.plot(frequency[order], shown, linewidth=1.2, label=label)
    ax.set_xlim(0, 0.5)
    ax.set_xlabel("frequency (cycles a sample)")
    ax.set_ylabel("gain (dB)")
    if not kept.all():
        ax.set_title(f"{kept.mean():.1%} of the spectrum kept", fontsize=10)
    if labels:
        ax.legend(frameon=False)
    _plain(ax)
    return ax


def _plain(ax: Axes) -> None:
    ax.grid(True, color="#e4e4e0", linewidth=0.7)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


# ---- errors ----


def _ladder(
    kind: str, shape: tuple[int, int], ranks: Iterable[int] | None
) -> list[Patterns]:
    """Patterns of a kind for each rank, but the first smaller than the dense matrix.

    Without `ranks`, ranks that the kind does not have are left out.
    """
    ladder: list[Patterns] = []
    refusal = ValueError(f"no rank was given for {kind!r}")
    for rank in [1 << n for n in range(16)] if ranks is None else ranks:
        try:
            patterns = make(kind, *shape, rank=rank)
        except ValueError as error:
            if ranks is not None:
                raise
            refusal = error
            continue
        size = sum(p.parameters for p in patterns)
        if not ladder or size < shape[0] * shape[1] and patterns != ladder[-1]:
            ladder.append(patterns)
    if not ladder:
        raise refusal
    return ladder


def error_against_parameters(
    matrix: np.ndarray,
    kinds: Iterable[str] | Mapping[str, Sequence[Patterns]] = ("low-rank", "monarch"),
    *,
    ranks: Iterable[int] | None = None,
    ax: Axes | None = None,
    **options: Any,
) -> Axes:
    """Factorises a matrix into chains of several sizes and draws their errors.

    The plot has the relative error (Frobenius) over the share of the dense matrix's
    parameters, a line for each kind. A dotted line below it is the lower bound for
    chains of these patterns, if it is known.

    Parameters
    ----------
    matrix : W[M][N], as for `danaus.factorize`.
    kinds : names that `danaus.patterns.make` knows, or a mapping from labels to lists
        of patterns.
    ranks : block ranks to try for named kinds; None: 1, 2, 4, ... up to the parameters
        of the dense matrix.
    ax : axes to draw on; without them a new figure is made.
    options : passed to `danaus.factorize`: fast, refine, inputs, ...
    """
    matrix = numbers_of(matrix, "the matrix")
    if matrix.ndim != 2:
        raise ValueError(f"the matrix has {matrix.ndim} dimensions instead of 2")
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if not isinstance(kinds, Mapping):
        ranks = None if ranks is None else list(ranks)
        kinds = {kind: _ladder(kind, matrix.shape, ranks) for kind in kinds}
    ax, least = _axes(ax), 1.0
    for label, ladder in kinds.items():
        found = [factorize(matrix, as_patterns(p), **options) for p in ladder]
        found.sort(key=lambda one: one.parameters)
        share = [one.parameters / matrix.size for one in found]
        error = [max(one.error, 1e-16) for one in found]
        least = min([least, *error])
        (line,) = ax.plot(share, error, "o-", markersize=4, label=label)
        known = [(s, f.lower_bound) for s, f in zip(share, found) if f.lower_bound]
        if known:
            ax.plot(*zip(*known), ":", color=line.get_color(), linewidth=1)
    if least < 0.05:
        ax.set_yscale("log")
    else:
        ax.set_ylim(bottom=0)
    ax.set_xlabel("parameters over those of the dense matrix")
    ax.set_ylabel("relative error")
    ax.legend(frameon=False)
    _plain(ax)
    return ax


# ---- trainings ----


def _points(rows: Sequence[Mapping], x: str, y: str) -> tuple[list, list]:
    """Two columns, of the records that have both."""
    pairs = [(r.get(x), r.get(y)) for r in rows]
    known = [pair for pair in pairs if None not in pair]
    return [one for one, _ in known], [two for _, two in known]


def training(
    *logs: str | os.PathLike | Sequence[Mapping],
    x: str = "step",
    labels: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draws the losses of trainings: lines, and points where held-out data was tried.

    Parameters
    ----------
    logs
        The log.csv that a training writes, or its records.
    x
        What lies to the right: "step" or "seconds".
    labels
        Names of the trainings for a legend.
    ax
        Axes to draw on; without them a new figure is made.
    """
    if not logs or labels is not None and len(labels) != len(logs):
        raise ValueError(f"{len(logs)} logs are there, and {len(labels or ())} labels")
    if x not in ("step", "seconds"):
        raise ValueError(f"x is {x!r}; it has to be 'step' or 'seconds'")
    ax = _axes(ax)
    for number, log in enumerate(logs):
        rows = records.read(log) if isinstance(log, (str, os.PathLike)) else log
        steps, losses = _points(rows, x, "loss")
        if not losses:
            raise ValueError(f"log {number} has no losses")
        label = labels[number] if labels else "training"
        (line,) = ax.plot(steps, losses, linewidth=1.2, label=label)
        steps, losses = _points(rows, x, "held_out_loss")
        if losses:
            label = f"{labels[number]}, held out" if labels else "held out"
            ax.plot(steps, losses, "o", ms=4, color=line.get_color(), label=label)
    ax.set_xlabel(x)
    ax.set_ylabel("loss")
    ax.legend(frameon=False)
    _plain(ax)
    return ax
