#!/usr/bin/env python3
"""Times OpenCL's kernels beside those of CUDA on one GPU, in f32.

    opencl.py BUILD OUT.csv [--devices opencl:0,cuda:0] [--batch 25088] [--tiny]

BUILD holds danaus-bench and bench/rows. Problems are those of bench/suites/cpu.csv in
both layouts, and convolutions of twelve lengths. Both devices compute by the portable
texts, which go by vector units, with the row that the estimates choose. torch.bmm makes
the same products with the permutations that it needs. Times are in microseconds,
medians. --tiny has two problems of each, and leaves PyTorch out.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import csv
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "baselines"))
import origin  # noqa: E402

PORTABLE = "ks.simt.*,ks.vec.*,ks.thin.*,ks.turned.f32.128x128"
LENGTHS = [500, 1024, 3000, 4096, 8192, 20000, 32768, 65536]
LENGTHS += [100000, 131072, 524288, 1048576]
CHANNELS = 64
FIELDS = "device torch problem layout batch opencl cuda ratio".split()
FIELDS += ["torch_us", "torch_ratio", "kernel", "cuda_kernel"]


def records(path: pathlib.Path) -> list[dict]:
    lines = path.read_text().splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def products(build: pathlib.Path, device: str, suite: pathlib.Path, batch: int) -> dict:
    """Microseconds and name of the chosen portable row."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "rows.csv")
        command = [build / "bench" / "rows", device, suite, "f32", "first,last"]
        command += [str(batch), out, "1e9", PORTABLE, "1"]
        subprocess.run(command, check=True)
        rows = records(out)
    return {
        (r["problem"], r["layout"]): (float(r["median_ns"]) / 1e3, r["kernel"])
        for r in rows
    }


def convolutions(build: pathlib.Path, device: str, lengths: list, most: int) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        suite, out = pathlib.Path(folder, "suite.csv"), pathlib.Path(folder, "conv.csv")
        with suite.open("w") as file:
            print("kind,length,taps,batch,channels,extras", file=file)
            for i, n in enumerate(lengths):
                kind = ("causal", "circular")[i % 2]
                batch = max(1, most // (CHANNELS * n))
                print(f"{kind},{n},{n},{batch},{CHANNELS},plain", file=file)
        command = [build / "danaus-bench", "conv", "--suite", suite]
        subprocess.run([*command, "--device", device, "--csv", out], check=True)
        rows = records(out)
    return {
        (f"{r['kind']} {r['length']}", r["batch"]): (
            1e6 * float(r["seconds"]),
            r["plan"].split(":")[0],
        )
        for r in rows
    }


def times_of_bmm(problem: str, layout: str, batch: int) -> float:
    import torch
    import torch_ways
    from torch_place import Gpu, time_call

    a, b, c, d = (int(n) for n in problem.split(","))
    w = torch.randn(a, b, c, d, device="cuda")
    shape = (a * c * d, batch) if layout == "last" else (batch, a * c * d)
    x = torch.randn(shape, device="cuda")
    way = torch_ways.bmm(w, layout == "last")
    return 1e6 * statistics.median(time_call(Gpu(), lambda: way(x)))


def product_records(o: argparse.Namespace) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        suite = suite_of(o, folder)
        ours, cuda = (products(o.build, d, suite, o.batch) for d in o.devices)
    found = []
    for key, (us, kernel) in ours.items():
        record = {"problem": key[0], "layout": key[1], "batch": o.batch}
        record |= {"opencl": us, "kernel": kernel}
        record["cuda"], record["cuda_kernel"] = cuda[key]
        if not o.tiny:
            record["torch_us"] = times_of_bmm(*key, o.batch)
            record["torch_ratio"] = record["torch_us"] / us
        found.append(record)
    return found


def conv_records(o: argparse.Namespace) -> list[dict]:
    lengths, most = ([90, 120], 0) if o.tiny else (LENGTHS, 1 << 25)
    ours, cuda = (convolutions(o.build, d, lengths, most) for d in o.devices)
    return [
        {
            "problem": key[0],
            "batch": key[1],
            "opencl": us,
            "kernel": kernel,
            "cuda": cuda[key][0],
            "cuda_kernel": cuda[key][1],
        }
        for key, (us, kernel) in ours.items()
    ]


def options() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("build", type=pathlib.Path)
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("--devices", default="opencl:0,cuda:0")
    p.add_argument("--batch", type=int, default=25088)
    p.add_argument("--tiny", action="store_true")
    o = p.parse_args()
    o.devices = o.devices.split(",")
    o.batch = 16 if o.tiny else o.batch
    return o


def suite_of(o: argparse.Namespace, folder: str) -> pathlib.Path:
    suite = HERE / "suites" / "cpu.csv"
    if not o.tiny:
        return suite
    path = pathlib.Path(folder, "suite.csv")
    path.write_text('problem,batch\n"6,64,256,1",16\n"1,8,8,4",16\n')
    return path


def summary(found: list[dict]) -> str:
    """A line about products or convolutions."""
    ratios = [r["ratio"] for r in found]
    middle = statistics.median
    words = f"OpenCL / CUDA: median {middle(ratios):.2f}, most {max(ratios):.2f}"
    torch_ratios = [r["torch_ratio"] for r in found if "torch_ratio" in r]
    if torch_ratios:
        words += f"; torch.bmm / OpenCL: median {middle(torch_ratios):.2f}"
    return words


def main() -> None:
    o = options()
    about = {"device": " and ".join(o.devices), "torch": ""}
    if not o.tiny:
        import torch

        about = {"device": torch.cuda.get_device_name().replace(" ", "_")}
        about["torch"] = torch.__version__
    with o.out.open("w", newline="", buffering=1) as file:
        out = origin.Table(file, FIELDS)
        out.writeheader()
        for measure in (product_records, conv_records):
            found = measure(o)
            for record in found:
                record["ratio"] = record["opencl"] / record["cuda"]
                floats = {n for n, x in record.items() if isinstance(x, float)}
                out.writerow(about | record | {n: f"{record[n]:.4g}" for n in floats})
            print(summary(found), flush=True)


if __name__ == "__main__":
    main()
