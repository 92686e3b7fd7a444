"""Tables of products on CPUs and of factorization, for document.py."""
# SPDX-License-Identifier: Apache-2.0
import csv
import pathlib
import statistics

RESULTS = pathlib.Path(__file__).resolve().parent / "results"


def records(name, /, **fields):
    """Records of a file with these fields."""
    with open(RESULTS / f"{name}.csv", newline="") as file:
        return [row for row in csv.DictReader(file)
                if all(row[key] == value for key, value in fields.items())]


def numbers(rows, field):
    return [float(row[field]) for row in rows if row[field]]


def over(rows, upper, lower):
    """Ratios of two fields, where there are both."""
    return [float(row[upper]) / float(row[lower]) for row in rows if row[upper] and row[lower]]


def median(values, text="{:.2f}"):
    return text.format(statistics.median(values)) if values else "-"


def decile(values, text="{:.2f}"):
    """The 90th percentile, between neighbours as NumPy takes it."""
    return text.format(statistics.quantiles(values, n=10, method="inclusive")[8])


def middle(values):
    """Median and 90th percentile."""
    return f"{median(values)}, {decile(values)}"


def least(values):
    """Median and least."""
    return f"{median(values)}, {min(values):.2f}"


LAYOUTS = ("first", "last")
CPUS = (
    ("Zen 4", ("cpu_25088", "cpu_3136", "cpu_small", "cpu_one_column")),
    ("Emerald Rapids", ("rapids_25088", "rapids_3136", "rapids_small")),
)


def cpu():
    rows = [("processor", "batch", "time / limit, first", "last", "speed, first", "last")]
    for name, files in CPUS:
        found = [row for file in files for row in records(file)]
        for batch in ("25088", "3136", "196", "16", "1"):
            some = [[row for row in found if (row["batch"], row["layout"]) == (batch, layout)]
                    for layout in LAYOUTS]
            rows.append((name, f"{int(batch):,}", *[middle(numbers(s, "ratio")) for s in some],
                         *[least(numbers(s, "speedup")) for s in some]))
    return rows


def cpu_avx2():
    rows = [("threads", "batch", "time / limit, first", "last")]
    for threads, file in (("2", "cpu_avx2"), ("1", "cpu_avx2_one_thread")):
        for batch in ("3136", "196"):
            rows.append((threads, f"{int(batch):,}", *[
                middle(numbers(records(file, batch=batch, layout=layout), "ratio"))
                for layout in LAYOUTS]))
    return rows


def cpu_off_grid():
    rows = [("pattern", "speed, first", "the fastest other", "speed, last",
             "the fastest other")]
    found = {(r["problem"], r["layout"]): r for r in records("cpu_off_grid")}
    for problem in dict.fromkeys(problem for problem, _ in found):
        rows.append((f"({problem})", *[
            field for layout in LAYOUTS
            for field in (f"{float(found[problem, layout]['speedup']):.2f}",
                          found[problem, layout]["best"])]))
    return rows


def short(problem):
    """A chain in few words."""
    patterns = [tuple(map(int, p.split(","))) for p in problem.split()]
    rows = patterns[0][0] * patterns[0][1] * patterns[0][3]
    blocks = dict.fromkeys(f"{p[1]} x {p[2]}" for p in patterns)
    return f"{rows:,}: {len(patterns)} factors of {', '.join(blocks)}"


def cpu_chains():
    rows = [("chain", "Zen 4, first", "last", "Emerald Rapids, first", "last")]
    files = [records(file) for file in ("chains", "rapids_chains")]
    for problem in dict.fromkeys(row["problem"] for row in files[0]):
        cells = []
        for file in files:
            for layout in LAYOUTS:
                row, = [r for r in file if (r["problem"], r["layout"]) == (problem, layout)]
                of_factors, = over([row], "median_ns", "factors_ns")
                cells.append(f"{of_factors:.2f}, {float(row['ratio']):.2f}")
        rows.append((short(problem), *cells))
    return rows


def factorize(sizes=("4096",)):
    rows = [("n", "chain", "full, s", "NumPy / danaus", "subspace, s", "NumPy / danaus")]
    found = records("factorize")
    for full in [row for row in found if row["variant"] == "full" and row["n"] in sizes]:
        sub, = [row for row in found if row["variant"] == "subspace"
                and (row["n"], row["chain"]) == (full["n"], full["chain"])]
        rows.append((f"{int(full['n']):,}", full["chain"], *[
            field for row in (full, sub)
            for field in (f"{float(row['danaus_s']):.3f}", f"{float(row['ratio']):.1f}")]))
    return rows


def factorize_all():
    return factorize(("1024", "4096"))


def select_rule():
    rows = [("matrix", "b, c from", "rule", "fit", "weights", "fit's", "error", "fit's",
             "time, ms", "fit's", "fit / rule")]
    for row in records("cpu_select_rule"):
        rows.append((
            row["matrix"], row["least_block"], row["pattern"], row["chain"],
            *[f"{int(row[f]):,}" for f in ("parameters", "chain_parameters")],
            *[f"{float(row[f]):.3f}" for f in ("error", "chain_error")],
            *[f"{1e3 * float(row[f]):.1f}" for f in ("seconds", "chain_seconds")],
            f"{float(row['ratio']):.2f}"))
    return rows


TABLES = {f.__name__: f for f in (
    cpu, cpu_avx2, cpu_off_grid, cpu_chains, factorize, factorize_all, select_rule)}
