"""Tables of docs/papers.md for FlashFFTConv, arXiv 2311.05908, for document.py."""

# SPDX-License-Identifier: Apache-2.0
import paper_conv_cost
from document_papers import MISSING, measured, path_of, rows_of

# What the paper prints, and the authors' post of 2023-11-13 where it prints another number.
MODELS = {  # torch.fft's time over that of FlashFFTConv
    "M2-BERT": ("128", "4.4", "1.9"),
    "Hyena-s-4K": ("4,096", "3.4", "1.7"),
    "Path-X": ("16,384", "2.4", ""),
    "SaShiMi": ("65,536", "1.3", ""),
    "HyenaDNA-1M": ("1,000,000", "3.1", "4.4"),
}
LANGUAGE = {  # thousand tokens a second: GPT-2.7B, Hyena-2.7B
    2048: (33.8, 35.2),
    8192: (27.8, 35.2),
    16384: (21.6, 32.3),
}
SPARSE = {"50 %": "1.2", "75 %": "1.3", "79 %": "1.4", "84 %": "1.5", "91 %": "1.8"}
TAPS = 8192, 4096, 2048, 1024, 512, 256


def by(rows, *fields):
    return {tuple(row[field] for field in fields): row for row in rows}


def cell(row, field, digits=2):
    return f"{float(row[field]):.{digits}f}" if row and row[field] else MISSING


def flash_conv():
    """Torch.fft's time over ours, f16."""
    kinds = "circular", "causal"
    ready = by(rows_of("h100_conv"), "dtype", "kind", "form", "length")
    fresh = by(rows_of("h200_flashfftconv_conv"), "kind", "length")
    rows = [
        (
            "length",
            *(f"{kind}{form}" for kind in kinds for form in ("", ", gates")),
            *(f"H200, {kind}" for kind in kinds),
        )
    ]
    for length in (1 << bits for bits in paper_conv_cost.SIZES):
        cells = [
            cell(ready.get(("f16", kind, form, str(length))), "ratio")
            for kind in kinds
            for form in ("forward", "gated")
        ]
        cells += [cell(fresh.get((kind, str(length))), "ratio") for kind in kinds]
        rows.append((f"{length:,}", *cells))
    return rows


def flash_accurate():
    """The same in accurate plans: one launch, no tensor cores in 16 bits."""
    found = by(rows_of("h200_conv_accurate"), "kind", "form", "length")
    rows = [("length", "circular", "causal")]
    for length in (1 << bits for bits in paper_conv_cost.SIZES):
        cells = [
            cell(found.get((kind, "forward", str(length))), "ratio")
            for kind in ("circular", "causal")
        ]
        rows.append((f"{length:,}", *cells))
    return rows


def flash_models():
    """Torch.fft's time over ours, of forward passes."""
    found = by(rows_of("h200_flashfftconv_models"), "model", "filters")
    head = ("model", "tokens", "paper", "authors' post")
    rows = [(*head, "filters computed", "filters kept")]
    for model, known in MODELS.items():
        explicit = found.get((model, "explicit"))
        cells = [
            cell(found.get((model, way)), "ratio") for way in ("computed", "kept")
        ]
        if model == "Path-X":  # has no network for its filters
            cells = ["", cell(explicit, "ratio")]
        rows.append((model, *known, *cells))
    return rows


def speed(row, field):
    """Thousand tokens a second."""
    if not row:
        return MISSING
    return f"{int(row['length']) * int(row['batch']) / float(row[field]) / 1e3:.1f}"


def flash_language():
    found = by(rows_of("h200_flashfftconv_language"), "length")
    rows = [
        (
            "tokens",
            "paper: GPT",
            "Hyena",
            "over GPT",
            "here: GPT",
            "Hyena, torch.fft",
            "Hyena, danaus",
            "over GPT",
        )
    ]
    for length, (gpt, hyena) in LANGUAGE.items():
        row = found.get((str(length),))
        ways = ("gpt_seconds", "torch_seconds", "seconds")
        over = (
            f"{float(row['gpt_seconds']) / float(row['seconds']):.2f}"
            if row
            else MISSING
        )
        known = gpt, hyena, f"{hyena / gpt:.2f}"
        rows.append((f"{length:,}", *known, *(speed(row, way) for way in ways), over))
    return rows


def flash_taps():
    """GiB of a training step."""
    found = by(rows_of("h200_flashfftconv_taps"), "taps")
    rows = [("taps", "torch.fft, GiB", "danaus, GiB")]
    for taps in TAPS:
        row = found.get((str(taps),))
        cells = cell(row, "torch_memory", 1), cell(row, "memory", 1)
        rows.append((f"{taps:,}", *cells))
    return rows


def flash_sparse():
    """The whole convolution's time over that of a sparse spectrum."""
    found = by(rows_of("h200_flashfftconv_sparse"), "form")
    rows = [("zeros", "paper", "here")]
    for zeros, known in SPARSE.items():
        row = found.get((f"sparse, {zeros} zeros",))
        rows.append((zeros, known, cell(row, "ratio")))
    return rows


def constants():
    rows_of("h200_flashfftconv_cost")  # refuses mixtures
    path = path_of("h200_flashfftconv_cost")
    return paper_conv_cost.read(path) if path.exists() else {}


def flash_constants():
    found = constants()
    units = {
        "matrix": ("products in f16, TFLOP/s", 1e12),
        "arithmetic": ("products in f32, TFLOP/s", 1e12),
        "chip": ("copies in the second cache, TB/s", 1e12),
        "memory": ("copies in memory, TB/s", 1e12),
    }
    rows = [("constant", "measured by", "here")]
    for name, (what, unit) in units.items():
        value = f"{found[name] / unit:.1f}" if found else MISSING
        rows.append((name, what, value))
    return rows


def flash_cost():
    """Picoseconds of one value by order, and the best order."""
    found = constants()
    orders = paper_conv_cost.ORDERS
    return measured(
        ("length", *(f"p = {order}" for order in orders), "least"),
        (
            (
                f"{1 << bits:,}",
                *(
                    f"{1e12 * paper_conv_cost.cost(bits, order, found):.2f}"
                    for order in orders
                ),
                f"p = {paper_conv_cost.best_order(bits, found)}",
            )
            for bits in (paper_conv_cost.SIZES if found else ())
        ),
    )


TABLES = {
    f.__name__: f
    for f in (
        flash_conv,
        flash_accurate,
        flash_models,
        flash_language,
        flash_taps,
        flash_sparse,
        flash_constants,
        flash_cost,
    )
}
