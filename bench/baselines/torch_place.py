"""Where PyTorch's ways and danaus are timed, a GPU or the processor, and how."""
# SPDX-License-Identifier: Apache-2.0
import time

import torch

DTYPES = {  # name: torch, danaus dtype, danaus math
    "f16": (torch.float16, 2, 0),
    "f32": (torch.float32, 1, 0),
    "tf32": (torch.float32, 1, 1),
    "bf16": (torch.bfloat16, 3, 0),
}
KEPT = 48 << 30  # bytes of freed memory that PyTorch may keep
TURNS = 9  # at least


class Place:
    window = 0.02  # seconds that a call is timed for
    energy_window = 0.6  # seconds of a measurement of energy, at least


class Gpu(Place):
    name, library_name = "cuda", "cuda:0"
    copied, dense_size = 1 << 30, 8192

    def __init__(self):
        self.other = torch.zeros(96 << 20, dtype=torch.int32, device="cuda")

    def describe(self):
        return torch.cuda.get_device_name()

    def stream(self):
        return torch.cuda.current_stream().cuda_stream

    def finish(self):
        torch.cuda.synchronize()

    def times(self, function, runs):
        pairs = []
        for _ in range(runs):
            self.other.max()
            pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            pair[0].record()
            function()
            pair[1].record()
            pairs.append(pair)
        self.finish()
        return [first.elapsed_time(last) * 1e-3 for first, last in pairs]

    def forget(self):
        if torch.cuda.memory_reserved() > KEPT:
            torch.cuda.empty_cache()


class Processor(Place):
    name, library_name = "cpu", "cpu"
    copied, dense_size = 1 << 26, 512

    def describe(self):
        return "processor"

    def stream(self):
        return 0

    def finish(self):
        pass

    def times(self, function, runs):
        found = []
        for _ in range(runs):
            start = time.perf_counter()
            function()
            found.append(time.perf_counter() - start)
        return found

    def forget(self):
        pass


def time_call(place, function):
    """Seconds of runs, short ones after as many that warm up."""
    once = min(place.times(function, 2))
    runs = max(5, min(31, int(place.window / (once + 1e-9))))
    if once * runs < place.window / 2:
        place.times(function, runs)
    return sorted(place.times(function, runs))


def time_in_turns(place, functions, once):
    """Seconds of runs of functions by name, one after the other, so that all find the clocks
    that the power of all leaves."""
    names = list(functions)
    found = {name: [] for name in names}
    for _ in range(max(TURNS, min(65, int(2.5 * place.window / once)))):
        for name in names:
            found[name].extend(place.times(functions[name], 1))
        names.append(names.pop(0))
    return {name: sorted(seconds) for name, seconds in found.items()}


def set_math(name):
    torch.backends.cuda.matmul.allow_tf32 = name == "tf32"


def measure_rates(place):
    """Bytes read and written a second, and operations a second by type."""
    data = torch.zeros(place.copied, dtype=torch.uint8, device=place.name)
    to = torch.empty_like(data)
    rates = {"copy": 2 * place.copied / min(time_call(place, lambda: to.copy_(data)))}
    del data, to
    n = place.dense_size
    for name in DTYPES:
        set_math(name)
        x = torch.randn(n, n, device=place.name).to(DTYPES[name][0])
        rates[name] = 2 * n**3 / min(time_call(place, lambda x=x: x @ x))
    if place.name == "cuda":
        rates["f32"] = rates["tf32"] / 3
    return rates


def joules_of(place, library, function, seconds):
    """Joules of a call, from one step of its counter to one energy_window later."""
    calls = int(5e-3 / seconds) + 1

    def run_to_step(least):
        made, start, before = 0, time.perf_counter(), library.joules()
        while True:
            for _ in range(calls):
                function()
            place.finish()
            made += calls
            now = library.joules()
            if now > before and time.perf_counter() - start >= least:
                return now, made
            before = now

    first, _ = run_to_step(0)
    last, made = run_to_step(place.energy_window)
    return (last - first) / made
