#!/usr/bin/env python3
"""Times danaus beside PyTorch in one process, on the same inputs.

    torch_ks.py LIBRARY OUT.csv [--device cuda|cpu] [--seconds N] [OPTION]... [PROBLEM]...

A problem is a pattern "a,b,c,d" or a chain "a,b,c,d a,b,c,d". Without problems those of
bench/suites/cpu.csv come first, in every type and layout, then those of paper.csv, each
as unlike the ones before it as can be, until the seconds (540) are over. Rows are written
as they come; --append goes on with a file. --part K/N takes every N-th problem from the
K-th on: N processes, each with a GPU of its own, share the work.

PyTorch's ways (torch_ways.py): bmm with its permutations, the same through torch.compile,
einsum, the dense product, CSR, BSR; one that is hopeless is timed once. Every result is
compared with f64 on some columns of the batch: `error` is ours, `difference` the largest of
theirs. CSR and BSR whose time on a sixteenth of the batch says that they are hopeless are
neither compared nor timed further. With --operation dx or dw it is a gradient, beside theirs by autograd; dw has the
type of sums.

On a GPU times are those of its events, medians, with the last cache filled with other
data before each run; those within a fifth of the fastest, ours among them, are taken again
in turns, since what ran before decides the clocks that the chip's power allows; unsteady
ones once more in the end, when no other thread compiles. The limit is 3 us +
max(bytes / copy rate, operations / peak), with x, y and weights once; the rates are measured
at the start (f32's peak is a third of tf32's, for three products of split numbers).
--bias gives every product a bias. --endings adds times of ours with bias and GELU, and with
a residual, taken in turns with those without (`bare_ns`). --energy adds joules of a call of
ours and of theirs, of bmm, einsum and BSR. --window and --energy-window shorten a long list's
run. On a processor it is a check of this program more than a measurement.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import concurrent.futures
import csv
import math
import os
import pathlib
import statistics
import sys
import threading
import time
import warnings

import torch

import capi
import origin
import torch_ways as ways
from torch_case import METHODS, Case, GradientCase
from torch_place import (
    DTYPES, Gpu, Place, Processor, joules_of, measure_rates, set_math, time_call, time_in_turns)

FIELDS = (
    ["version", "device", "torch", "operation", "problem", "dtype", "layout", "batch"]
    + ["kernel", "runs", "median_ns", "p10_ns", "p90_ns", "error", "peak_gflops"]
    + ["copy_gbs", "limit_ns", "ratio"]
    + [method + "_ns" for method in METHODS]
    + ["bmm_permutations", "best", "best_ns", "speedup", "difference"]
    + ["joules", "bmm_joules", "einsum_joules", "bsr_joules"]
    + ["bare_ns", "gelu_ns", "residual_ns"]
)
KEY = ("problem", "dtype", "layout", "batch", "operation")
SUITES = pathlib.Path(__file__).resolve().parent.parent / "suites"
HOPELESS = 4  # times the best: not timed again
SPARSE = ("csr", "bsr")
PART = 16  # of the batch, on which sparse methods are tried first
LEAST_PART = 1000  # columns
ENERGY = ("bmm", "einsum", "bsr")
COMPILERS = 8  # threads that plan ahead
GELU = 2  # DANAUS_GELU
UNSTEADY = 1.5  # the 90th over the 10th percentile of times
CLOSE = 1.2  # times that differ by less are taken again, in turns


# ---- one record ----


def product_of(library, case, bias=None, **ending):
    _, dtype, kind = DTYPES[case.name]
    host = [w.float().cpu().contiguous() for w in case.weights]
    bias = None if bias is None else bias.float().cpu()
    gradients = int(case.operation != "ks")
    return library.product(
        host, dtype, kind, case.last, case.batch, gradients, bias, **ending)


def time_ours(place, library, case):
    """Fields of danaus itself, its product, and the result that it writes."""
    product = product_of(library, case, case.bias)
    y = case.result()
    case.run(product, y)
    place.finish()
    error = case.difference(y) if torch.isfinite(y).all() else math.nan
    found = time_call(place, lambda: case.run(product, y))
    fields = {"kernel": product.kernels(), "error": error} | spread(found)
    return fields, product, y


def spread(found):
    """Fields of sorted seconds."""
    return {
        "runs": len(found),
        "median_ns": statistics.median(found) * 1e9,
        "p10_ns": found[len(found) // 10] * 1e9,
        "p90_ns": found[len(found) * 9 // 10] * 1e9,
    }


def permutations_of(place, case, total):
    """The share of Algorithm 1's time that goes into its permutations."""
    shape = case.shapes[0]
    a, b, _, d = shape
    y = torch.empty((a * d, b, case.batch) if case.last else (a * d, case.batch, b),
                    dtype=case.type, device=place.name)
    x = case.x
    there = statistics.median(time_call(place, lambda: ways.gather(x, shape, case.last)))
    back = statistics.median(time_call(place, lambda: ways.scatter(y, shape, case.last)))
    return min(1, (there + back) / total)


def time_of_part(place, case, run):
    """Seconds of a run as a part of the batch foretells; 0 where the part is too small."""
    columns = case.batch // PART
    if columns < LEAST_PART or case.operation != "ks":
        return 0
    x = (case.x[:, :columns] if case.last else case.x[:columns]).contiguous()
    return min(place.times(lambda: run(x), 2)) * case.batch / columns


def time_methods(place, case, ours, wanted, complain):
    """Seconds by method, the methods themselves as functions, and their results' largest
    relative error."""
    found, runs, worst = {}, {}, 0
    for method in wanted:
        if not case.is_feasible(method):
            continue
        try:
            run = case.way(method)
            if run is None:
                continue
            best = min([ours, *found.values()])
            foretold = time_of_part(place, case, run) if method in SPARSE else 0
            if foretold > HOPELESS * best:
                found[method] = foretold
                continue
            worst = max(worst, case.difference(run(case.x)))
            once = min(place.times(lambda: run(case.x), 2))
            if once > HOPELESS * best:
                found[method] = once
                continue
            found[method] = statistics.median(time_call(place, lambda: run(case.x)))
            runs[method] = run
        except (RuntimeError, NotImplementedError, torch.OutOfMemoryError) as error:
            complain(method, case, error)
        finally:
            run = None
            place.forget()
    return found, runs, worst


def time_again(place, case, run, runs, times, ours):
    """Sorted seconds by method of all that come within CLOSE of the fastest, in turns, ours
    by the name "ours"; none where the fastest has no rival."""
    best = min([ours, *times.values()])
    close = {m: lambda f=f: f(case.x) for m, f in runs.items() if times[m] < CLOSE * best}
    if not close or ours >= CLOSE * best:
        return {}
    return time_in_turns(place, {"ours": run} | close, ours)


def time_endings(place, library, case, once):
    """Fields of what products take that end otherwise."""
    bias, residual, y = torch.randn(case.rows), case.result(), case.result()
    bare = product_of(library, case)
    gelu = product_of(library, case, bias, activation=GELU)
    more = product_of(library, case, residual=1)
    residual.normal_()
    found = time_in_turns(place, {
        "bare_ns": lambda: bare(case.x, y), "gelu_ns": lambda: gelu(case.x, y),
        "residual_ns": lambda: more.add_to(residual, case.x, y)}, once)
    for product in bare, gelu, more:
        product.free()
    return {name: statistics.median(times) * 1e9 for name, times in found.items()}


def energy_of_methods(place, library, case, times):
    """Joules of a call of each method that was timed and is not hopeless."""
    found = {}
    for method in ENERGY:
        if method in times and times[method] <= HOPELESS * min(times.values()):
            run = case.way(method)
            found[method + "_joules"] = joules_of(
                place, library, lambda run=run: run(case.x), times[method])
    return found


def measure(place, library, rates, job, o, complain):
    """A record's fields for (problem, type, layout)."""
    problem, name, layout = job
    set_math(name)
    given = (place, problem, name, layout == "last", o.batch)
    case = (Case(*given, o.bias) if o.operation == "ks"
            else GradientCase(*given, o.operation))
    record, product, y = time_ours(place, library, case)
    ours = record["median_ns"] * 1e-9
    wanted = [m for m in o.methods if m != "bmm_compiled" or o.may_compile()]
    start = time.perf_counter()
    times, runs, record["difference"] = time_methods(place, case, ours, wanted, complain)
    if "bmm_compiled" in times:
        o.compiled(time.perf_counter() - start)
    again = time_again(place, case, lambda: case.run(product, y), runs, times, ours)
    if again:
        record |= spread(again["ours"])
        times |= {m: statistics.median(t) for m, t in again.items() if m != "ours"}
        ours = statistics.median(again["ours"])
    if "bmm" in times and len(case.shapes) == 1 and case.operation == "ks":
        record["bmm_permutations"] = permutations_of(place, case, times["bmm"])
    if o.energy:
        record["joules"] = joules_of(
            place, library, lambda: case.run(product, y), ours)
        record |= energy_of_methods(place, library, case, times)
    product.free()
    if o.endings:
        record |= time_endings(place, library, case, ours)
    floor = case.limit(rates)
    record |= {method + "_ns": t * 1e9 for method, t in times.items()}
    record |= {"limit_ns": floor * 1e9, "ratio": ours / floor,
               "peak_gflops": rates[name] / 1e9, "copy_gbs": rates["copy"] / 1e9}
    if times:
        best = min(times, key=times.get)
        record |= {"best": best, "best_ns": times[best] * 1e9,
                   "speedup": times[best] / ours}
    return record


# ---- which, and in which order ----


def read_suite(name):
    with open(SUITES / name, newline="") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return list(dict.fromkeys(row["problem"] for row in rows))


def place_of(problem):
    """Where a pattern lies among others: h, d, a and size, on logarithmic scales."""
    a, b, c, d = map(int, problem.split(","))
    return [math.log((b + c) / (b * c)), math.log(d), math.log(a) / 2,
            math.log(a * d * max(b, c)) / 2]


def by_novelty(problems, known):
    """Each one as far as can be from those before it, and from the known."""
    left = {p: math.inf for p in problems if p not in known}
    before = list(known)
    while left:
        for p in left:
            left[p] = min([left[p], *(math.dist(place_of(p), place_of(q)) for q in before)])
        chosen = max(left, key=left.get)
        del left[chosen]
        before = [chosen]
        yield chosen


def list_jobs(o):
    dtypes = [t for t in o.dtypes.split(",") if o.device == "cuda" or t != "tf32"]
    layouts = o.layouts.split(",")
    if o.problems or o.suite:
        problems = o.problems + [p for s in o.suite for p in read_suite(s)]
        problems = [p for p in problems if o.operation == "ks" or " " not in p]
        rest = []
    else:
        problems = read_suite("cpu.csv")
        rest = list(by_novelty(read_suite("paper.csv"), problems))
    jobs = [(p, t, where) for t in dtypes for where in layouts for p in problems]
    jobs += [(p, t, where) for p in rest for t in dtypes for where in layouts]
    part, parts = map(int, o.part.split("/"))
    return jobs[part - 1::parts]


class Ahead:
    """Threads that plan what comes next, so that its kernels are in the cache."""

    def __init__(self, o, place, jobs):
        self.o, self.place, self.own = o, place, threading.local()
        self.stopped = False
        count = min(COMPILERS, (os.cpu_count() or 2) - 1)
        self.pool = concurrent.futures.ThreadPoolExecutor(max(1, count))
        if place.name == "cuda":
            for job in jobs:
                self.pool.submit(self.plan, job)

    def plan(self, job):
        problem, name, layout = job
        if self.stopped:
            return
        if not hasattr(self.own, "library"):
            self.own.library = capi.Library(self.o.library, self.place.library_name)
        shapes = [tuple(map(int, p.split(","))) for p in problem.split()]
        _, dtype, kind = DTYPES[name]
        library, gradients = self.own.library, int(self.o.operation != "ks")
        endings = [{"bias": int(self.o.bias)}]
        if self.o.endings:
            endings += [{}, {"bias": 1, "activation": GELU}, {"residual": 1}]
        for ending in endings:
            try:
                library.free_plan(
                    library.plan(shapes, dtype, kind, layout == "last", self.o.batch,
                                 gradients, **ending))
            except RuntimeError:
                pass  # whoever needs it will say so

    def stop(self):
        self.stopped = True
        self.pool.shutdown(cancel_futures=True)


# ---- the program ----


def read_options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("out")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--suite", action="append", default=[], help="a file of bench/suites")
    parser.add_argument("--operation", choices=("ks", "dx", "dw"), default="ks")
    parser.add_argument("--batch", type=int, default=25088)
    parser.add_argument("--dtypes", default="f16,f32,tf32,bf16")
    parser.add_argument("--layouts", default="first,last")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--compile-seconds", type=float, default=90,
                        help="as much of the time may torch.compile take")
    parser.add_argument("--part", default="1/1", help="K/N: the K-th of N parts of the problems")
    parser.add_argument("--energy", action="store_true")
    parser.add_argument("--window", type=float, default=Place.window,
                        help="seconds that a call is timed for")
    parser.add_argument("--energy-window", type=float, default=Place.energy_window,
                        help="seconds of a measurement of energy, at least")
    parser.add_argument("--bias", action="store_true")
    parser.add_argument("--endings", action="store_true")
    parser.add_argument("--append", action="store_true")
    parser.add_argument("problems", nargs="*")
    o = parser.parse_intermixed_args()
    if o.operation != "ks" and (o.bias or o.endings):
        parser.error("gradients have neither --bias nor --endings")
    o.methods = o.methods.split(",") if o.methods else []
    spent = [0.0]
    o.may_compile = lambda: spent[0] < o.compile_seconds
    o.compiled = lambda seconds: spent.__setitem__(0, spent[0] + seconds)
    return o


def text_of(value):
    return f"{value:.6g}" if isinstance(value, float) else value


def known_rows(o):
    if not (o.append and os.path.exists(o.out)):
        return set()
    origin.refuse_others(o.out)
    with open(o.out, newline="") as file:
        return {tuple(row[key] for key in KEY) for row in csv.DictReader(file)}


def go_on(o, started):
    """A GPU that has failed serves no more calls: a new process does the rest."""
    left = o.seconds - (time.perf_counter() - started)
    arguments = [a for a in sys.argv if a != "--append"]
    os.execv(sys.executable,
             [sys.executable, *arguments, "--append", "--seconds", f"{left:.0f}"])


def is_unsteady(record):
    return record.get("p90_ns", 0) > UNSTEADY * record.get("p10_ns", 0)


def run_jobs(o, place, jobs, writer, file, started):
    library = capi.Library(o.library, place.library_name)
    library.set_stream(place.stream())
    rates = measure_rates(place)
    print("rates:", {k: f"{v:.4g}" for k, v in rates.items()}, flush=True)
    seen = set()

    def complain(method, case, error):
        sentence = f"{method} {case.name}: {str(error).splitlines()[0][:120]}"
        if sentence not in seen:
            seen.add(sentence)
            print(sentence, flush=True)

    # What was unsteady while other threads compiled is measured again when they are done.
    queue, once = list(jobs), len(jobs)
    for number, job in enumerate(queue):
        if time.perf_counter() - started > o.seconds:
            print(f"{len(queue) - number} of {once} left when the time was over")
            return
        problem, name, layout = job
        base = {"version": library.version(), "device": place.describe(),
                "torch": torch.__version__, "operation": o.operation, "problem": problem,
                "dtype": name, "layout": layout, "batch": o.batch}
        failed = None
        try:
            base |= measure(place, library, rates, job, o, complain)
        except (RuntimeError, torch.OutOfMemoryError) as error:
            failed = error
            print(problem, name, layout, str(error).splitlines()[0], flush=True)
        place.forget()
        if number < once and is_unsteady(base):
            queue.append(job)
            continue
        writer.writerow({key: text_of(value) for key, value in base.items()})
        file.flush()
        if failed:
            try:
                place.finish()
            except RuntimeError:
                go_on(o, started)
        print(*(text_of(base.get(f, "")) for f in
                ["problem", "dtype", "layout", "kernel", "median_ns", "ratio", "error",
                 "best", "speedup"]), flush=True)


def main():
    started = time.perf_counter()
    warnings.filterwarnings("ignore", message="Sparse")
    o = read_options()
    place = Gpu() if o.device == "cuda" else Processor()
    place.window, place.energy_window = o.window, o.energy_window
    done = known_rows(o)
    jobs = [j for j in list_jobs(o) if (*j, str(o.batch), o.operation) not in done]
    ahead = Ahead(o, place, jobs)
    try:
        with open(o.out, "a" if done else "w", newline="") as file:
            writer = origin.Table(file, FIELDS)
            if not done:
                writer.writeheader()
                file.flush()
            with torch.inference_mode(o.operation == "ks"):
                run_jobs(o, place, jobs, writer, file, started)
    finally:
        ahead.stop()


if __name__ == "__main__":
    main()
