"""torch.func.vmap of convolutions: one call, with the results of single ones."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.func import grad, vmap  # noqa: E402

from danaus.torch import HyenaOperator, LongConv  # noqa: E402
from danaus.torch.functional import (  # noqa: E402
    hyena,
    long_conv,
    long_conv2d,
    short_conv,
)

# PyTorch's loops over samples say so.
pytestmark = pytest.mark.filterwarnings("error:There is a performance drop")


def numbers(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def long_case(kind="causal", offsets=None):
    """Operands, and the function of them; k and skip are shared by two channels."""
    back = numbers(2, 5) if kind == "bidirectional" else None
    batch = 2 if offsets is None else 1
    u, gate = numbers(batch, 4, 9), numbers(batch, 4, 9)
    operands = [u, numbers(2, 5), numbers(2), gate, back]

    def run(u, k, skip, gate, *more):
        back = more[0] if more else None
        options = {"kind": kind, "offsets": offsets}
        return long_conv(u, k, back, skip, gate, gate.sin(), **options)

    return [x for x in operands if x is not None], run


def short_case(layout="channels_first", **options):
    u = numbers(2, 4, 9) if layout == "channels_first" else numbers(2, 9, 4)
    return [u, numbers(4, 3), numbers(4)], lambda u, k, bias: short_conv(
        u, k, bias, layout, **options
    )


def hyena_case(order=2, offsets=None):
    rows = (order + 1) * 4
    batch = 2 if offsets is None else 1
    operands = [
        numbers(batch, rows, 9), numbers(rows, 3), numbers(rows),
        numbers(order - 1, 2, 7), numbers(order - 1, 2),
    ]  # fmt: skip
    return operands, lambda *x: hyena(*x, offsets=offsets)


def planes_case():
    return [numbers(2, 4, 3, 5), numbers(2, 2, 3)], lambda u, k: long_conv2d(
        u, k, kind="centred"
    )


CASES = {
    "causal": long_case,
    "bidirectional": lambda: long_case("bidirectional"),
    "circular": lambda: long_case("circular"),
    "packed": lambda: long_case(offsets=[0, 2, 9]),
    "short": short_case,
    "short, channels last": lambda: short_case("channels_last", centred=True),
    "hyena": hyena_case,
    "hyena of order 3": lambda: hyena_case(3),
    "packed hyena": lambda: hyena_case(offsets=[0, 4, 9]),
    "planes": planes_case,
}


def subsets(count: int):
    """Which operands have samples: each alone, the first two, all."""
    yield from ({n} for n in range(count))
    yield {0, 1}
    yield set(range(count))


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_of_all_operands(name):
    operands, run = CASES[name]()

    def loss(*operands):
        return run(*operands).sin().sum()

    every = tuple(range(len(operands)))
    for chosen in subsets(len(operands)):
        # Samples are in the middle of u, and in front of the others.
        dims = [None if n not in chosen else (1 if n == 0 else 0) for n in every]
        given = [
            x if d is None else torch.stack([x, 2 * x, x.flip(-1)], d)
            for x, d in zip(operands, dims)
        ]
        for function in run, grad(loss, every):
            found = vmap(function, tuple(dims))(*given)
            for sample in range(3):
                pairs = zip(given, dims)
                own = [x if d is None else x.select(d, sample) for x, d in pairs]
                wanted = function(*own)
                if isinstance(wanted, torch.Tensor):
                    torch.testing.assert_close(found[sample], wanted)
                else:
                    for f, w in zip(found, wanted):
                        torch.testing.assert_close(f[sample], w)


@pytest.mark.parametrize("name", ["causal", "short", "hyena of order 3"])
def test_vmaps_inside_of_vmaps(name):
    operands, run = CASES[name]()
    u, k, *rest = operands
    us, ks = torch.stack([u, 2 * u]), torch.stack([k, 3 * k, -k])
    both = vmap(lambda u: vmap(lambda k: run(u, k, *rest))(ks))(us)
    assert both.shape[:2] == (2, 3)
    for i, j in ((0, 0), (1, 2)):
        torch.testing.assert_close(both[i, j], run(us[i], ks[j], *rest))


@pytest.mark.parametrize("wanted", ["u", "k"])
def test_one_gradient_alone(wanted):
    """Samples with the same filters are a batch, if the signal's alone is wanted."""
    u, k = numbers(3, 2, 4, 9), numbers(4, 9)
    place = 0 if wanted == "u" else 1
    function = grad(lambda u, k: long_conv(u, k).sin().sum(), place)
    found = vmap(function, (0, None))(u, k)
    for sample in range(3):
        torch.testing.assert_close(found[sample], function(u[sample], k))


def test_modules_and_gradients_of_samples():
    for layer, shape in (HyenaOperator(4, 9), (9, 4)), (LongConv(4, 9), (4, 9)):
        layer, x = layer.double(), numbers(3, 2, *shape)
        with torch.no_grad():
            torch.testing.assert_close(vmap(layer)(x)[1], layer(x[1]))
        parameters = {n: p.detach() for n, p in layer.named_parameters()}

        def loss(parameters, x, layer=layer):
            y = torch.func.functional_call(layer, parameters, (x,))
            return y.square().sum()

        found = vmap(grad(loss), (None, 0))(parameters, x)
        alone = grad(loss)(parameters, x[2])
        for name, wanted in alone.items():
            torch.testing.assert_close(found[name][2], wanted)


def test_no_samples_and_empty_batches():
    k = numbers(4, 9)
    assert vmap(lambda u: long_conv(u, k))(numbers(3, 0, 4, 9)).shape == (3, 0, 4, 9)
