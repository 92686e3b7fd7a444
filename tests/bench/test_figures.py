#!/usr/bin/python3
"""bench/tables.py and bench/median.py on records whose answers are known, bench/tables.py on
all the records that the project keeps, bench/plot.py on some; bench/plot_conv.py."""
# SPDX-License-Identifier: Apache-2.0
import contextlib
import csv
import io
import pathlib
import runpy
import sys
import tempfile

try:
    import matplotlib  # noqa: F401
    import numpy  # noqa: F401
except ImportError:
    print("NumPy is not installed")
    sys.exit(77)

BENCH = pathlib.Path("bench").resolve()
sys.path.insert(0, str(BENCH))
FIELDS = ("device commit problem dtype layout batch median_ns ratio bmm_ns dense_ns einsum_ns "
          "bmm_permutations joules bmm_joules").split()


def run(program, *arguments, status=0):
    """What it prints, in this process: drawing is loaded once."""
    sys.argv = [program, *map(str, arguments)]
    printed, code = io.StringIO(), 0
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_path(str(BENCH / program), run_name="__main__")
        except SystemExit as end:
            code = 1 if isinstance(end.code, str) else end.code or 0
    assert code == status, (program, arguments, code)
    return printed.getvalue()


def speed_of(a, b, c, d):
    """What the fit must find: 3 density^-0.5 h^0.25."""
    return 3 * (a * d) ** 0.5 * ((b + c) / (b * c)) ** 0.25


def write(path):
    with open(path, "w", newline="") as file:
        out = csv.DictWriter(file, FIELDS)
        out.writeheader()
        for a in (1, 2, 8):
            for b, c in ((48, 48), (64, 256), (512, 128)):
                for d in (1, 4, 16):
                    for layout, ours in (("first", 3000), ("last", 2000)):
                        bmm = ours * speed_of(a, b, c, d)
                        out.writerow({
                            "device": "a machine", "problem": f"{a},{b},{c},{d}",
                            "dtype": "f16", "layout": layout, "batch": 100,
                            "median_ns": ours, "ratio": 1.5 if a == 1 else 1.2,
                            "bmm_ns": bmm, "dense_ns": 10 * bmm,
                            "bmm_permutations": 0.25, "joules": 1, "bmm_joules": 4})
        out.writerow({"device": "a machine", "problem": "1,2,2,2 2,2,2,1", "dtype": "f16",
                      "layout": "last", "batch": 100, "median_ns": 1})
        out.writerow({"device": "a machine", "problem": "1,2,2,2", "dtype": "f16",
                      "layout": "last", "batch": 100})  # one that failed


def section(text, title):
    """The lines of a table, each cut into words."""
    lines = text[text.index(title):].split("\n\n")[0].splitlines()[1:]
    return [line.split() for line in lines]


def check_tables(path):
    text = run("tables.py", path)
    speeds = sorted(speed_of(a, b, c, d) for a in (1, 2, 8)
                    for b, c in ((48, 48), (64, 256), (512, 128)) for d in (1, 4, 16))
    won = 100 * sum(s > 1 for s in speeds) / len(speeds)
    for line in section(text, "Wins over the best"):
        assert line[2] == "27" and line[3] == f"{won:.0f}%", line
        assert abs(float(line[4]) - speeds[13]) < 0.01, line
    assert section(text, "Time of batch-first") == [["f16", "27", "1.50", "1.50"]]
    assert [line[2:] for line in section(text, "Energy of")] == [["27", "0.25", "0.25"]] * 2
    first = text.splitlines()[2].split()
    assert first[:5] == ["f16", "first", "27", "1.20", "1.50"], first


def write_runs(paths, last=None):
    """Three runs of one commit, the last one with other fields."""
    for path, times in zip(paths, (("3", "10"), ("1", "30"), ("2", ""))):
        with open(path, "w", newline="") as file:
            out = csv.DictWriter(file, FIELDS)
            out.writeheader()
            place = {"device": "a machine", "commit": "0123456789"}
            if path == paths[-1]:
                place |= last or {}
            for problem, time in zip(("1,2,2,1", "1,3,3,1"), times):
                out.writerow(place | {"problem": problem, "batch": 7, "median_ns": time})


def check_medians(folder):
    paths = [folder / f"run{n}.csv" for n in range(3)]
    for last in ({"commit": "1123456789"}, {"device": "another"}, {"commit": ""}):
        write_runs(paths, last)
        assert run("median.py", "median_ns", *paths, status=1) == ""
    for commit in ("0123456789-dirty", "", "unknown"):
        write_runs(paths[:1], {"commit": commit})
        assert run("median.py", "median_ns", paths[0], status=1) == ""
    write_runs(paths)
    lines = run("median.py", "median_ns", *paths).splitlines()
    found = {row["problem"]: row["median_ns"] for row in csv.DictReader(lines)}
    assert found == {"1,2,2,1": "2", "1,3,3,1": "10"}, found
    run("median.py", "speedup", *paths, status=1)


def write_convolutions(path):
    """Records with every field that is drawn, and one with few."""
    fields = ("device,kind,dtype,form,length,batch,channels,seconds,floor,over_floor,error,"
              "torch_seconds,model_seconds,memory,torch_memory,subquadratic_seconds")
    path.write_text(
        f"{fields}\nGPU,causal,f16,fresh,256,2,3,2e-3,1e-3,2,1e-4,4e-3,1e-3,999,9999,5e-3\n"
        "GPU,circular,f32,gated,60,2,3,2e-3,1e-3,2,1e-4,,,,,\n")
    return path


def check_figure(folder, *records, program="plot.py"):
    figure = folder / "figure.png"
    run(program, *records, figure)
    assert figure.read_bytes()[:4] == b"\x89PNG"
    figure.unlink()


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write(folder / "known.csv")
        check_tables(folder / "known.csv")
        check_medians(folder)
        check_figure(folder, folder / "known.csv")
        kept = [p for p in sorted((BENCH / "results").glob("*.csv"))
                if {"problem", "median_ns"} <= set(p.read_text().split("\n")[0].split(","))]
        assert len(kept) >= 4
        for path in kept:
            # Chains have no single factor.
            run("tables.py", path, status=int(path.stem.endswith("chains")))
        check_figure(folder, *kept[:4])  # drawing takes seconds
        convolutions = [BENCH / f"results/{name}.csv" for name in ("h100_conv", "h200_conv_accurate")]
        check_figure(folder, *convolutions, program="plot_conv.py")
        check_figure(folder, write_convolutions(folder / "conv.csv"), program="plot_conv.py")
        run("plot_conv.py", folder / "known.csv", folder / "figure.png", status=1)
        run("tables.py", BENCH / "results/factorize.csv", status=1)
        run("plot.py", folder / "known.csv", status=1)


if __name__ == "__main__":
    main()
