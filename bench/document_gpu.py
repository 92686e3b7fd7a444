"""Tables of GPUs, for document.py."""
# SPDX-License-Identifier: Apache-2.0
import statistics

from document_ks import RESULTS, median, middle, numbers, over, records

TYPES = ("f16", "bf16", "tf32", "f32")
KINDS = [(dtype, layout) for dtype in TYPES for layout in ("last", "first")]
HALVES = [(dtype, layout) for dtype in ("f16", "f32") for layout in ("last", "first")]


def us(ns):
    return f"{float(ns) / 1e3:,.0f}" if float(ns) >= 1e5 else f"{float(ns) / 1e3:.1f}"


def h200():
    rows = [("type", "layout", "problems", "time / limit", "speed: median", "least",
             "share from 0.97 on", "speed over dense, least")]
    for dtype, layout in KINDS:
        some = records("h200_grid", dtype=dtype, layout=layout)
        speed = numbers(some, "speedup")
        rows.append((dtype, layout, len(some), middle(numbers(some, "ratio")), median(speed),
                     f"{min(speed):.2f}", f"{sum(s >= 0.97 for s in speed) / len(speed):.1%}",
                     f"{min(over(some, 'dense_ns', 'median_ns')):.2f}"))
    return rows


def each_method():
    """Wins over the best method, speeds over each, and by sparsity."""
    rows = [("type", "layout", "wins", "speed", "over bmm, einsum, dense, CSR, BSR",
             "by sparsity, in quarters")]
    for dtype, layout in KINDS:
        some = records("h200_grid", dtype=dtype, layout=layout)
        speed = numbers(some, "speedup")
        over_each = [median(over(some, f"{m}_ns", "median_ns"), "{:.3g}")
                     for m in ("bmm", "einsum", "dense", "csr", "bsr")]
        some.sort(key=lambda r: lanes(r["problem"]))
        size = len(some) // 4
        quarters = [median(numbers(some[i * size:(i + 1) * size], "speedup"), "{:.1f}")
                    for i in range(4)]
        rows.append((dtype, layout, f"{sum(s > 1 for s in speed) / len(speed):.0%}",
                     median(speed), ", ".join(over_each), ", ".join(quarters)))
    return rows


def lanes(problem):
    a, _, _, d = map(int, problem.split(","))
    return a * d


STEPS = {"m2-bert": "M2-BERT-80M", "hyena": "Hyena, width 768, 6 blocks, 50,264 words",
         "bytes": "Hyena, width 768, 6 blocks, 264 words", "dna": "Hyena, width 256, 8 blocks, 16 words"}


def model_steps():
    rows = [("model", "tokens", "way", "step, ms", "torch.fft, ms", "ratio", "GiB",
             "torch.fft, GiB")]
    for r in records("h200_model_steps") + records("h200_model_steps_compiled"):
        times = [f"{1e3 * float(r[name]):.3g}" for name in ("seconds", "torch_seconds")]
        rows.append((STEPS[r["model"]], f"{r['batch']} x {int(r['length']):,}", r["way"],
                     *times, f"{float(r['ratio']):.2f}", r["memory"], r["torch_memory"]))
    return rows


def h200_pairs():
    rows = [("width", "chain", "f16, us", "time / limit", "speed over dense", "tf32, us",
             "time / limit", "speed over dense")]
    found = {(r["problem"], r["dtype"]): r for r in records("h200_chains", layout="first")}
    for problem in dict.fromkeys(problem for problem, _ in found):
        pair = [found.get((problem, dtype)) for dtype in ("f16", "tf32")]
        if None in pair or not all(row["dense_ns"] for row in pair):
            continue
        a, b, _, d = map(int, problem.split()[0].split(","))
        rows.append((f"{a * b * d:,}", problem, *[
            field for row in pair
            for field in (us(row["median_ns"]), f"{float(row['ratio']):.2f}",
                          f"{float(row['dense_ns']) / float(row['median_ns']):.2f}")]))
    return rows


def suite(rows, inside):
    """The records of patterns of bench/suites/cpu.csv, or of all others."""
    known = (RESULTS.parent / "suites/cpu.csv").read_text()
    return [row for row in rows if (f'"{row["problem"]}"' in known) == inside]


def h100_any():
    """Shapes that were drawn at random: factors, and chains."""
    dtypes = ("f16", "bf16", "tf32", "f32")
    rows = [("columns", "layout", "what", *[
        f"{dtype}: {field}" for dtype in dtypes
        for field in ("time / limit", "speed, share from 0.97 on")])]
    for batch, layout in (("25000", "first"), ("25000", "last"), ("196", "first")):
        for what, is_chain in (("factors", False), ("chains", True)):
            cells = []
            for dtype in dtypes:
                some = [row for row in records("h100_any", batch=batch, layout=layout, dtype=dtype)
                        if (" " in row["problem"]) == is_chain]
                speed = numbers(some, "speedup")
                share = sum(s >= 0.97 for s in speed) / max(len(speed), 1)
                cells += [middle(numbers(some, "ratio")), f"{median(speed)}, {share:.0%}",
                          ] if some else ["-"] * 2
            rows.append((f"{int(batch):,}", layout, what, *cells))
    return rows


def h200_gradients():
    rows = [("gradient of", "patterns", *[f"{d} {layout}" for d, layout in HALVES])]
    for name, file in (("x", "h200_dx"), ("w", "h200_dw")):
        for words, inside in (("of the grid", False), ("of `cpu.csv`", True)):
            cells = []
            for dtype, layout in HALVES:
                some = suite(records(file, dtype=dtype, layout=layout), inside)
                speed = numbers(some, "speedup")
                cells.append(middle(numbers(some, "ratio"))
                             + (f"; {median(speed, '{:.1f}')}" if speed else ""))
            rows.append((name, words, *cells))
    return rows


def h200_small():
    rows = [("batch", "time / limit, f16", "f32", "speed over the best: median", "least",
             "over dense: median", "least")]
    for batch in ("1", "16", "64"):
        some = records("h200_small", batch=batch)
        ratio = [numbers([r for r in some if r["dtype"] == dtype], "ratio")
                 for dtype in ("f16", "f32")]
        best, dense = numbers(some, "speedup"), over(some, "dense_ns", "median_ns")
        rows.append((batch, *map(middle, ratio), median(best), f"{min(best):.2f}",
                     median(dense), f"{min(dense):.2f}"))
    return rows


def h200_energy():
    rows = [("type", "layout", "energy over that of bmm: median", "least", "greatest")]
    for dtype, layout in HALVES:
        of_bmm = over(records("h200_energy", dtype=dtype, layout=layout), "joules",
                      "bmm_joules")
        rows.append((dtype, layout, median(of_bmm), f"{min(of_bmm):.2f}", f"{max(of_bmm):.2f}"))
    return rows


def extremes(rows, field, scale, text):
    values = [v / scale for v in numbers(rows, field)]
    return f"{text} to {text} ({text})".format(min(values), max(values),
                                               statistics.median(values))


def calls():
    h200_calls = records("h200_calls")
    chains = [r for r in h200_calls if " " in r["problem"]]
    single = [r for r in h200_calls if " " not in r["problem"]]
    kinds = [
        ("H200, f16 first", [r for r in single if (r["operation"], r["dtype"]) == ("ks", "f16")]),
        ("H200, f32 last", [r for r in single if r["dtype"] == "f32"]),
        ("H200, gradients, f16 first", [r for r in single if r["operation"] == "gradient"]),
        ("H200, chains, f16 first", chains),
        ("H100, f16 first", records("h100_calls")),
        ("H100, f16 first, kernels imported", records("h100_calls_bundle")),
    ]
    rows = [("what", "first call, ms", "kernels from the disk, ms", "later calls, us of the CPU")]
    return rows + [(name, extremes(some, "first_ns", 1e6, "{:.0f}"),
                    extremes(some, "cached_ns", 1e6, "{:.1f}"),
                    extremes(some, "call_cpu_ns", 1e3, "{:.1f}")) for name, some in kinds if some]


def layers():
    """Time over that of nn.Linear, as CUDA graphs."""
    rows = [("rows", "phase", *TYPES)]
    for phase in ("forward", "training"):
        for batch in ("8", "196", "25088"):
            cells = []
            for dtype in TYPES:
                ratio = numbers(records("h100_torch_layers", phase=phase, way="graph",
                                        dtype=dtype, rows=batch), "ratio")
                cells.append(f"{statistics.median(ratio):.2f}, {max(ratio):.2f}")
            rows.append((f"{int(batch):,}", phase, *cells))
    return rows


def networks():
    """Time over that of the dense network."""
    rows = [("network", "phase", *TYPES)]
    for name in ("ViT-S/16", "GPT-2 medium"):
        for phase, way in (("forward", "graph"), ("forward", "eager"), ("training", "eager")):
            cells = []
            for dtype in TYPES:
                found = records("h100_torch_networks", name=name, phase=phase, way=way,
                                dtype=dtype, layout="first")
                cells.append(f"{float(found[0]['ratio']):.2f}" if found else "-")
            if "-" not in cells:
                rows.append((name, f"{phase}, {way}", *cells))
    return rows


def weak(file, dtype, layout, wanted):
    some = [r for r in records(file, dtype=dtype, layout=layout)
            if " " not in r["problem"] and wanted(*map(int, r["problem"].split(",")))]
    return middle(numbers(some, "ratio"))


def h200_weak():
    """Where products and gradients are far from their limit."""
    rows = [("what", "layout", "blocks", "f16", "f32")]
    kinds = (
        ("product", "h200_grid", "first", "d = 1", lambda a, b, c, d: d == 1),
        ("product", "h200_grid", "first", "d = 4", lambda a, b, c, d: d == 4),
        ("product", "h200_grid", "first", "d = 16, 64; up to 128",
         lambda a, b, c, d: d >= 16 and max(b, c) <= 128),
        ("product", "h200_grid", "first", "d = 16, 64; from 192 on",
         lambda a, b, c, d: d >= 16 and min(b, c) >= 192),
        ("gradient of w", "h200_dw", "first", "d = 16, 64; from 192 on",
         lambda a, b, c, d: d >= 16 and min(b, c) >= 192),
        ("gradient of w", "h200_dw", "last", "a d up to 16; 48 to 64",
         lambda a, b, c, d: a * d <= 16 and max(b, c) <= 64),
    )
    return rows + [(what, layout, words, *[weak(file, dtype, layout, wanted)
                                           for dtype in ("f16", "f32")])
                   for what, file, layout, words, wanted in kinds]


def h100_choices():
    """The H200's tuning table on an H100: what it changes."""
    pairs = {}
    for name in ("h100_table", "h100_estimates"):
        for r in records(name):
            key = (r["problem"], r["dtype"], r["layout"], r["batch"])
            pairs.setdefault(key, []).append(r)
    changed = [p for p in pairs.values() if p[0]["kernel"] != p[1]["kernel"]]
    speed = [float(p[1]["median_ns"]) / float(p[0]["median_ns"]) for p in changed]
    return [("choices", "changed", "over 3 % faster", "over 3 % slower", "median speed"),
            (len(pairs), len(changed), sum(s > 1.03 for s in speed),
             sum(s < 1 / 1.03 for s in speed), median(speed))]


VERSUS = (
    ("H100", "before and after weight gradients were rows of the table", "h100_versus"),
    ("H200", "c941efd and eece80b", "h200_versus"),
    ("EPYC, AVX2", "c941efd and b43cfb1", "cpu_versus"),
    ("Xeon, AVX-512", "c941efd and 1f887ea", "cpu_versus_avx512"),
)


def versus():
    """New builds over old ones."""
    rows = [("device", "builds", "problems", "time over the old build's: median", "greatest")]
    for device, builds, file in VERSUS:
        found = [r for r in records(file) if r["same_bits"] in ("yes", "no")]
        ratio = numbers(found, "ratio")
        least = numbers(found, "least_ratio" if "least_ratio" in found[0] else "ratio")
        rows.append((device, builds, len(ratio), f"{statistics.median(ratio):.3f}", f"{max(least):.3f}"))
    return rows


def update():
    rows = [("weights", "type", "with gradients", "as a graph, us", "a call, us")]
    return rows + [(r["chain"], r["dtype"], "yes" if r["training"] == "1" else "no",
                    r["graph_us"], r["call_us"]) for r in records("h100_update")]


def races():
    rows = [("GPU", "tool", "test", "rows", "result", "messages")]
    return rows + [(r["device"], r["tool"], r["test"], r["rows"].replace(",", ", "),
                    r["result"], r["errors"]) for r in records("h200_sanitizer")]


TABLES = {f.__name__: f for f in (
    h200, each_method, h200_pairs, h100_any, h200_gradients, h200_small, h200_energy, h200_weak, calls,
    layers, networks, model_steps, h100_choices, versus, update, races)}
