"""Complex convolutions, and correlations, against SciPy and PyTorch's gradients."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from scipy import signal

from danaus import ConvPlan, HyenaPlan, Stream, convolve, short_conv

EPS = {"c8": 2.0**-24, "c16": 2.0**-53}
KINDS = ("causal", "circular", "bidirectional", "centred")


def arrays(rng, dtype, *shapes):
    both = [rng.uniform(-1, 1, (2, *shape)) for shape in shapes]
    return [(re + 1j * im).astype(dtype) for re, im in both]


def expect_close(y, wanted, u, k, dtype):
    """The bound of a transform (docs/conv.md, "Errors"), for whole arrays at once."""
    assert y.shape == wanted.shape and y.dtype == dtype
    log = np.log2(16 * (np.prod(u.shape) + np.prod(k.shape)) + 1024)
    bound = 30 * EPS[dtype] * log * np.abs(k).sum() * np.linalg.norm(u) + 1e-30
    assert np.abs(y - wanted).max(initial=0) <= bound


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("mode", ("full", "same", "valid"))
@pytest.mark.parametrize("axes", (1, 2))
@pytest.mark.parametrize("correlate", (False, True))
def test_modes_are_those_of_scipy(rng, axes, mode, dtype, correlate):
    exact = signal.correlate if correlate else signal.convolve
    for _ in range(10):
        row, taps = rng.integers(1, 30, axes), rng.integers(1, 30, axes)
        if mode == "valid":
            row, taps = np.maximum(row, taps), np.minimum(row, taps)
        u, k = arrays(rng, dtype, row, taps)
        y = convolve(u, k, axes=axes, mode=mode, correlate=correlate)
        wanted = exact(u.astype("c16"), k.astype("c16"), mode, "direct")
        expect_close(y, wanted, u, k, dtype)


def test_a_matched_filter_finds_its_template(rng):
    """Where a template begins, the correlation is its energy."""
    (noise, template) = arrays(rng, "c16", (2, 3000), (1, 200))
    noise *= 0.1
    noise[0, 700:900] += template[0]
    noise[1, 2100:2300] += 1j * template[0]
    y = convolve(noise, template, correlate=True)
    assert list(np.abs(y).argmax(-1)) == [700, 2100]
    energy = np.linalg.norm(template) ** 2
    assert np.abs(y[0, 700] / energy - 1) < 0.2
    assert np.abs(y[1, 2100] / energy - 1j) < 0.2


def matrix(kind, length, centre, k, k_reverse, skip):
    """The convolution of one filter as a matrix of PyTorch."""
    import torch

    lag = np.subtract.outer(np.arange(length), np.arange(length)) + centre
    total = skip * torch.eye(length, dtype=k.dtype)
    for s in range(len(k)):
        here = (lag - s) % length == 0 if kind == "circular" else lag == s
        total = total + k[s] * torch.from_numpy(here)
        if k_reverse is not None:
            total = total + k_reverse[s] * torch.from_numpy(lag == -1 - s)
    return total


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("correlate", (False, True))
def test_gradients_are_those_of_pytorch(rng, device, kind, correlate):
    torch = pytest.importorskip("torch")
    for _ in range(6 if device == "cpu" else 1):
        length, taps = (int(size) for size in rng.integers(1, 25, 2))
        centre = int(rng.integers(0, taps)) if kind in ("circular", "centred") else 0
        shapes = [(2, 3, length)] * 4 + [(1, taps)] * 2 + [(1,)]
        every = arrays(rng, "c16", *shapes)
        u, dy, gate_in, gate_out, k, k_reverse, skip = every
        k_reverse = k_reverse if kind == "bidirectional" else None
        names = ["u", "gate_in", "gate_out", "k", "k_reverse", "skip"]
        inputs = [u, gate_in, gate_out, k, k_reverse, skip]
        t = {
            name: torch.from_numpy(x).requires_grad_()
            for name, x in zip(names, inputs)
            if x is not None
        }
        back = t["k_reverse"][0] if "k_reverse" in t else None
        g = matrix(kind, length, centre, t["k"][0], back, t["skip"])
        g = g.mH if correlate else g
        y = t["gate_out"] * ((t["gate_in"] * t["u"]) @ g.mT)
        y.backward(torch.from_numpy(dy))
        plan = ConvPlan(
            *u.shape[-2:],
            taps=taps,
            filters=1,
            kind=kind,
            centre=centre,
            correlate=correlate,
            dtype="c128",
            device=device,
        )
        spectrum = plan.spectrum(k, k_reverse=k_reverse, skip=skip)
        gates = {"gate_in": gate_in, "gate_out": gate_out}
        assert np.allclose(spectrum(u, **gates), y.detach(), atol=1e-11)
        gradients = spectrum.gradient(u, dy, **gates)._asdict()
        for name in t:
            found = gradients["d" + name]
            assert found.dtype == "c16"
            assert np.allclose(found, t[name].grad, atol=1e-11), name


def test_real_rows_are_correlated(rng):
    u, k = rng.uniform(-1, 1, (2, 90)).astype("f4"), rng.uniform(-1, 1, 7)
    y = convolve(u, k, correlate=True)
    for row, was in zip(y, u.astype("f8")):
        wanted = np.correlate(np.pad(was, (0, 6)), k, "valid")
        assert np.allclose(row, wanted, atol=1e-5)
    plan = ConvPlan(2, 90, taps=7, filters=1, correlate=True)
    assert repr(plan).startswith("<danaus.ConvPlan causal correlation, 2 channels")


def test_packed_sequences_are_convolved_alone(rng):
    u, k = arrays(rng, "c16", (2, 50), (2, 9))
    offsets = [0, 20, 20, 50]
    y = convolve(u, k, offsets=offsets, correlate=True)
    for begin, end in zip(offsets, offsets[1:]):
        alone = convolve(u[:, begin:end], k, correlate=True)
        assert np.allclose(y[:, begin:end], alone, atol=1e-12)


def test_what_stays_real_says_so(rng):
    u, k = arrays(rng, "c8", (2, 9), (2, 3))
    for call in (
        lambda: short_conv(u, k),
        lambda: Stream(k, dtype="c64"),
        lambda: HyenaPlan(2, 9, dtype="c64"),
    ):
        with pytest.raises(TypeError, match="real numbers, not c64"):
            call()
    with pytest.raises(TypeError, match="complex numbers do not become real"):
        convolve(u.real, k)
    with pytest.raises(RuntimeError, match="complex convolutions keep whole spectra"):
        ConvPlan(2, 9, dtype="c64", keep=[4])
