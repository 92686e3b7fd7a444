"""The interpreter lock is free while the library works, and calls run side by side."""

# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import danaus
from danaus._library import ffi, lib


def test_python_runs_while_a_call_waits_in_the_library(tmp_path):
    """A call that fills a pipe returns when Python, in another thread, empties it.

    Were the interpreter lock held meanwhile, neither would go on: the process, which is
    another one for that, would have to be killed.
    """
    code = """if True:
        import os, sys, threading, danaus, numpy as np
        path = sys.argv[1]
        chain = danaus.Chain.from_weights([np.ones((1, 512, 512, 1))])
        pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        thread = threading.Thread(target=chain.save, args=[path])
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()  # the pipe is full
        content = b""
        os.set_blocking(pipe, True)
        while part := os.read(pipe, 1 << 16):
            content += part
        thread.join()
        assert len(content) > 8 * 512 * 512
    """
    path = tmp_path / "pipe"
    os.mkfifo(path)
    subprocess.run([sys.executable, "-c", code, path], check=True, timeout=60)


class Meeting:
    """Runs a product's parts only when the other thread's product has begun as well."""

    def __init__(self, barrier):
        self.barrier, self.met = barrier, 0
        self.device = danaus.Device("cpu", threads=2)
        self.call = ffi.callback(
            "void (void *, int, void (*)(void *, int), void *)", self.run
        )
        with self.device.in_use() as handle:
            lib.danaus_device_set_parallel(handle, self.call, ffi.NULL)

    def run(self, user, count, task, arg):
        if not self.met:
            self.barrier.wait(timeout=60)
            self.met += 1
        for part in range(count):
            task(arg, part)


CALLS = {
    "convolve": lambda d, x: danaus.convolve(x, x, device=d),
    "gradient": lambda d, x: (
        danaus.ConvPlan(*x.shape, dtype="f64", device=d).spectrum(x).gradient(x, x).dk
    ),
    "short_conv": lambda d, x: danaus.short_conv(x, x[:, :8], device=d),
    "apply": lambda d, x: danaus.apply(
        danaus.Chain.from_weights([np.ones((1, 64, x.shape[1], 1))]), x, device=d
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_two_threads_are_in_the_library_at_once(rng, name):
    x = rng.standard_normal((64, 2048))
    alone = CALLS[name]("cpu", x)
    barrier = threading.Barrier(2)
    meetings = [Meeting(barrier), Meeting(barrier)]
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(CALLS[name], m.device, x) for m in meetings]
        for future in futures:
            assert np.array_equal(future.result(), alone)
    assert [m.met for m in meetings] == [1, 1]


def test_many_threads_share_a_spectrum(rng):
    u = rng.standard_normal((8, 4, 300)).astype("f4")
    k = rng.standard_normal((4, 300)).astype("f4")
    spectrum = danaus.ConvPlan(4, 300).spectrum(k)
    alone = [spectrum(row) for row in u]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            for one, other in zip(pool.map(spectrum, u), alone):
                assert np.array_equal(one, other)


def test_filters_may_change_while_others_convolve(rng):
    u, filters = rng.standard_normal((2, 400)), rng.standard_normal((2, 2, 400))
    spectrum = danaus.ConvPlan(2, 400, dtype="f64").spectrum(filters[0])
    wanted = [danaus.convolve(u, k) for k in filters]
    stop = threading.Event()

    def change():
        while not stop.is_set():
            for k in filters:
                spectrum.update(k)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(300):
            y = spectrum(u)
            assert any(np.array_equal(y, one) for one in wanted)
    finally:
        stop.set()
        thread.join()
