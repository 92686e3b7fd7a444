"""Devices, plans and layers in processes that fork() made: workers of multiprocessing
and of PyTorch's DataLoader."""
# SPDX-License-Identifier: Apache-2.0
import gc
import multiprocessing
import os
import signal

import numpy as np
import pytest

import danaus

SECONDS = 60


def in_child(body):
    """The exit status of a forked child that runs body() and collects its garbage."""
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        status = 1
        try:
            status = 0 if body() else 2
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]


MONARCH = danaus.patterns.make("monarch", 256, 256, rank=4)


@pytest.fixture
def problem():
    random = np.random.default_rng(3)
    dense = random.standard_normal((256, 256)).astype("f4")
    chain = danaus.factorize(dense, MONARCH).chain
    return chain, random.standard_normal((300, 256)).astype("f4")


def test_a_device_of_the_parent_multiplies_and_is_closed_in_a_child(problem):
    chain, x = problem
    held = [danaus.Device("cpu", threads=3)]
    expected = danaus.apply(chain, x, device=held[0])

    def again():
        return np.array_equal(danaus.apply(chain, x, device=held[0]), expected)

    def close():
        held.clear()
        return gc.collect() >= 0

    assert in_child(again) == 0
    assert in_child(close) == 0
    assert in_child(lambda: again() and close()) == 0
    assert again()


def test_a_child_factorizes(problem):
    chain, x = problem

    def work():
        dense = chain.to_dense()
        found = danaus.factorize(dense, MONARCH)
        return found.chain.parameters == chain.parameters

    assert in_child(work) == 0


def multiply(pair):
    chain, x = pair
    return chain @ x.T


def test_workers_of_multiprocessing_multiply(problem):
    chain, x = problem
    expected = multiply(problem)
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        for found in pool.map_async(multiply, [problem] * 4).get(SECONDS):
            assert np.array_equal(found, expected)


def test_workers_of_a_data_loader_run_layers():
    torch = pytest.importorskip("torch")
    import danaus.torch

    layer = danaus.torch.MonarchLinear(64, 64)
    x = torch.ones(8, 64)
    with torch.no_grad():
        expected = layer(x)

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            with torch.no_grad():
                return layer(x)[index]

    loader = torch.utils.data.DataLoader(
        Rows(),
        batch_size=8,
        num_workers=2,
        multiprocessing_context="fork",
        timeout=SECONDS,
    )
    for batch in loader:
        assert torch.equal(batch, expected)
