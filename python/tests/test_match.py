"""Normalised correlations against their definition, window by window."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from danaus import ConvPlan, convolve, match_templates

TYPES = ("f4", "f8", "c8", "c16")


def random_of(rng, dtype, *shape):
    x = rng.standard_normal(shape)
    if dtype.startswith("c"):
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


def direct(u, k, subtract_mean):
    """One signal and one template, in f64."""
    u, k = (x.astype(np.complex128) for x in (u, k))
    k = k - subtract_mean * k.mean()
    y = np.zeros(len(u) - len(k) + 1, np.complex128)
    for t in range(len(y)):
        window = u[t : t + len(k)] - subtract_mean * u[t : t + len(k)].mean()
        length = np.linalg.norm(window) * np.linalg.norm(k)
        y[t] = np.vdot(k, window) / length if length > 1e-12 else 0
    return y


@pytest.mark.parametrize("subtract_mean", (False, True))
@pytest.mark.parametrize("dtype", TYPES)
def test_every_window_has_its_correlation(rng, device, dtype, subtract_mean):
    for _ in range(10 if device == "cpu" else 2):
        taps = int(rng.integers(1 + subtract_mean, 20))
        length = taps + int(rng.integers(0, 100))
        u, k = random_of(rng, dtype, 2, length), random_of(rng, dtype, 3, taps)
        y = match_templates(u, k, subtract_mean=subtract_mean, device=device)
        assert y.shape == (2, 3, length - taps + 1) and y.dtype == dtype
        unit = 1e-4 if dtype in ("f4", "c8") else 1e-9
        for row, template in np.ndindex(2, 3):
            wanted = direct(u[row], k[template], subtract_mean)
            assert np.abs(y[row, template] - wanted).max() < unit * np.sqrt(length)


def test_a_template_is_found_where_it_is(rng):
    u, k = random_of(rng, "f4", 5000), random_of(rng, "f4", 2, 300)
    u[1234:1534] += 4 * k[1]
    y = match_templates(u, k)
    assert y[1].argmax() == 1234 and y[1].max() > 0.9 and np.abs(y[0]).max() < 0.4
    assert np.isclose(match_templates(3 * k[0], k[0])[0, 0], 1, atol=1e-6)


def test_quiet_windows_behind_loud_ones_are_exact(rng):
    u = random_of(rng, "f8", 4000)
    u[:1000] *= 1e9
    k = random_of(rng, "f8", 100)
    y = match_templates(u, k, subtract_mean=True)[0]
    assert np.allclose(y[2500:], direct(u[2500:], k, True).real, atol=1e-6)
    assert np.abs(y).max() <= 1 + 1e-6


def test_windows_without_energy_are_zero(rng):
    u, k = np.zeros(50), np.stack([np.arange(5.0), np.zeros(5)])
    u[20:] = 7
    y = match_templates(u, k)
    assert np.all(y[0, :16] == 0) and np.all(y[1] == 0) and y[0, 30] > 0.5
    y = match_templates(u, k, subtract_mean=True)
    assert np.all(y[:, :16] == 0) and np.all(y[:, 20:] == 0) and np.isfinite(y).all()


def test_other_types(rng):
    u, k = rng.integers(-9, 9, 60), rng.integers(-9, 9, (2, 7))
    assert match_templates(u, k).dtype == np.float64
    half = u.astype(np.float16)
    y = match_templates(half, k)
    assert y.dtype == np.float32
    assert np.allclose(y, match_templates(u, k), atol=1e-5)


def test_a_bank_has_a_signal_for_several_channels(rng):
    plan = ConvPlan(6, 30, signals=2, taps=4, dtype="f64")
    u, k = random_of(rng, "f8", 3, 2, 30), random_of(rng, "f8", 6, 4)
    y = plan.spectrum(k)(u)
    assert np.allclose(y, convolve(np.repeat(u, 3, 1), k), atol=1e-12)
    with pytest.raises(ValueError, match="where the plan needs"):
        plan.spectrum(k)(y)
    with pytest.raises(NotImplementedError, match="no gradients"):
        plan.spectrum(k).gradient(u, u)


@pytest.mark.parametrize(
    "u, k", [((5,), (2, 6)), ((5,), (0,)), ((), (1,)), ((5,), (2, 2, 2))]
)
def test_bad_shapes_are_named(u, k):
    with pytest.raises(ValueError, match="templates"):
        match_templates(np.ones(u), np.ones(k))
