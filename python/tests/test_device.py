"""Devices: facts, tuning tables, calibration, threads, forks."""
# SPDX-License-Identifier: Apache-2.0
import copy
import gc
import multiprocessing
import os
import pickle
import threading
import time
import weakref

import numpy as np
import pytest

import danaus


def test_the_list_begins_with_the_processors():
    first = danaus.list_devices()[0]
    assert first.name.startswith("cpu") and first.threads >= 1
    assert all(danaus.Device(info.name) for info in danaus.list_devices())


def test_a_device_says_what_it_is(device):
    opened = danaus.Device(device)
    info = opened.describe()
    assert info.name.startswith(device) and info.name in repr(opened)
    kernels = opened.kernels()
    assert {"product", "convolution"} <= {k.operation for k in kernels} or kernels
    opened.sync()


def test_unknown_devices_are_refused():
    with pytest.raises(ValueError, match="no-such"):
        danaus.Device("no-such")


def test_threads_of_a_product_do_not_change_it(rng):
    x = rng.standard_normal((300, 64)).astype(np.float32)
    chain = danaus.Chain.from_weights([rng.standard_normal((4, 16, 16, 1))], dtype="f4")
    device = danaus.Device("cpu", threads=1)
    assert device.describe().threads == 1
    wanted = danaus.apply(chain, x, device=device)
    device.set_threads(3)
    assert device.describe().threads == 3
    assert (danaus.apply(chain, x, device=device) == wanted).all()


def test_each_thread_has_a_default_device():
    mine, others = danaus.default_device(), []
    thread = threading.Thread(target=lambda: others.append(danaus.default_device()))
    thread.start()
    thread.join()
    assert danaus.default_device() is danaus.default_device("cpu") is mine
    assert others[0] is not mine
    assert danaus.Plan("1,2,2,1").device is mine
    assert danaus.Plan("1,2,2,1", device=others[0]).device is others[0]
    assert danaus.default_device("cpu:scalar").describe().instructions == "scalar"


def test_tuning_is_read_and_written(tmp_path):
    device = danaus.Device()
    danaus.Plan("1,8,8,4", effort="measure", device=device, batch=4)
    device.save_tuning(tmp_path / "tuning.csv")
    assert "1,8,8,4" in (tmp_path / "tuning.csv").read_text()
    danaus.Device().load_tuning(tmp_path / "tuning.csv")
    with pytest.raises(OSError, match="none.csv"):
        device.load_tuning(tmp_path / "none.csv")


def test_calibration_reports_and_can_be_given_up():
    device = danaus.Device("cpu", threads=1)

    def stop(done):
        with pytest.raises(RuntimeError, match="busy"):
            device.sync()
        raise LookupError(f"at {done}")

    with pytest.raises(LookupError, match="at 0"):
        device.calibrate(stop)
    device.sync()


def test_energy_is_that_of_gpus(device):
    if device == "cpu":
        with pytest.raises(NotImplementedError, match=" "):
            danaus.Device(device).energy()
    else:
        assert danaus.Device(device).energy() > 0


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_belongs_to_a_process_is_not_copied(copied):
    plan = danaus.Plan("1,4,4,1")
    for thing in (danaus.Device(), plan, plan.pack()):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            copied(thing)


def in_child(chain, device, x, results):
    """A forked process computes on a CPU that its parent has opened, and on its own."""
    results.put(danaus.apply(chain, x.T, device=device).T.tobytes())
    results.put((chain @ x).tobytes())


def test_a_forked_process_uses_devices_of_its_parent(rng):
    chain = danaus.Chain.from_weights([rng.standard_normal((8, 64, 64, 4))])
    x = rng.standard_normal((chain.shape[1], 300))
    wanted = (chain @ x).tobytes()
    context = multiprocessing.get_context("fork")
    results, device = context.SimpleQueue(), danaus.Device("cpu")
    child = context.Process(target=in_child, args=(chain, device, x, results))
    child.start()
    np.testing.assert_allclose(np.frombuffer(results.get()), np.frombuffer(wanted))
    assert results.get() == wanted
    child.join(30)
    assert child.exitcode == 0


def test_the_interpreter_lock_is_free_during_a_product(rng):
    chain = danaus.Chain.create("1,1024,1024,4", "f64")
    x = np.zeros((200, chain.shape[1]))
    ticks, done = 0, threading.Event()

    def run():
        weights = danaus.Plan(chain.patterns, dtype="f64").pack(chain)
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            weights(x)  # takes far longer than Python's five milliseconds of a turn
        done.set()

    threading.Thread(target=run).start()
    while not done.is_set():
        time.sleep(0.001)
        ticks += 1
    assert ticks > 20


def test_closing_and_opening_leaves_nothing_behind():
    def threads_of_this_process():
        return len(os.listdir("/proc/self/task"))

    danaus.Plan("1,64,64,4").pack()(np.zeros((500, 256), np.float32))
    before = threads_of_this_process()
    for _ in range(20):
        device = danaus.Device("cpu", threads=4)
        danaus.Plan("1,64,64,4", device=device).pack()(np.zeros((500, 256), "f4"))
        del device
    assert threads_of_this_process() <= before


def test_what_is_not_named_any_more_is_gone(rng):
    gc.disable()  # no cycles: memory goes at once
    try:
        chain = danaus.Chain.from_weights([rng.standard_normal((1, 8, 8, 1))])
        assert (chain @ np.ones(8)).shape == (chain.H @ np.ones(8)).shape
        device = danaus.Device("cpu", threads=1)
        plan = danaus.Plan(chain.patterns, device=device, dtype="f64")
        weights = plan.pack(chain)
        weights(np.ones((1, 8)))
        names = [weakref.ref(thing) for thing in (chain, weights, plan, device)]
        del chain, weights, plan, device
        assert [name() for name in names] == [None] * 4
    finally:
        gc.enable()
