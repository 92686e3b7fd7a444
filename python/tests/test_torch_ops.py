"""The operators danaus::ks_*: values, gradients of every order, what PyTorch checks."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading

import numpy as np
import pytest

from conftest import dense_chain, random_array, random_patterns

torch = pytest.importorskip("torch")

from danaus.torch import _ops, functional  # noqa: E402

ops = _ops.ops
REAL = torch.float32, torch.float16, torch.bfloat16, torch.float64
COMPLEX = torch.complex64, torch.complex128
ERRORS = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float64: 1e-13}
ACTIVATIONS = "relu", "gelu", "silu", "gelu_tanh"


class Case:
    """A random chain, bias and x as tensors, and the product by NumPy."""

    def __init__(
        self, rng, dtype, device, batch=(5,), last=False, given=None, factors=2
    ):
        given = given or dtype
        wide = torch.complex128 if dtype.is_complex else torch.float64
        kind = np.complex128 if dtype.is_complex else np.float64
        patterns = random_patterns(rng, factors)
        self.patterns = [size for p in patterns for size in p]
        rows = patterns[0][0] * patterns[0][1] * patterns[0][3]
        cols = patterns[-1][0] * patterns[-1][2] * patterns[-1][3]
        shape = (cols, *batch) if last else (*batch, cols)

        def tensor(sizes, as_type):
            array = torch.from_numpy(random_array(rng, sizes, kind))
            return array.to(device, as_type)

        self.weights = [tensor(p, given) for p in patterns]
        self.bias, self.x = tensor(rows, given), tensor(shape, dtype)
        self.question = self.patterns, "none", last, False, False
        matrix = dense_chain([w.to("cpu", wide).numpy() for w in self.weights])
        x, b = self.x.to("cpu", wide).numpy(), self.bias.to("cpu", wide).numpy()
        if last:
            y = np.tensordot(matrix, x, 1) + b.reshape(-1, *[1] * len(batch))
        else:
            y = x @ matrix.T + b
        self.y, self.batch_last = torch.from_numpy(y), last

    def differentiable(self):
        """x, bias and weights that want gradients."""
        return [t.detach().requires_grad_() for t in (self.x, self.bias, *self.weights)]

    def close(self, y):
        error = (y.cpu().to(self.y.dtype) - self.y).abs().max() if y.numel() else 0
        scale = 1 + self.y.abs().max() if y.numel() else 1
        assert y.shape == self.y.shape
        assert error <= ERRORS.get(self.x.dtype, 1e-5) * 4 * scale


@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("dtype", REAL + COMPLEX, ids=str)
def test_products_are_those_of_the_dense_matrix(rng, device, dtype, last):
    for batch in (), (0,), (1,), (3, 7), (200,):
        for given in REAL if dtype in REAL else COMPLEX:
            case = Case(rng, dtype, device, batch, last, given, int(rng.integers(1, 4)))
            y = ops.ks_linear(case.x, case.weights, case.bias, *case.question)
            assert y.dtype == dtype and y.is_contiguous()
            case.close(y)
            operands = case.weights, case.bias, dtype, 1 + case.y.numel()
            packed = ops.ks_pack(*operands, *case.question)
            case.close(ops.ks_apply(case.x, packed, True, operands[3], *case.question))


def test_packing_into_memory_is_packing(rng, device):
    a, b = (Case(np.random.default_rng(1), torch.float32, device) for _ in range(2))
    b.weights = [w + 1 for w in b.weights]
    packed = ops.ks_pack(a.weights, a.bias, torch.float32, 8, *a.question)
    other = ops.ks_pack(b.weights, b.bias, torch.float32, 8, *a.question)
    assert not torch.equal(packed, other)
    ops.ks_pack_into(packed, b.weights, b.bias, torch.float32, 8, *a.question)
    assert torch.equal(packed, other)


@pytest.mark.parametrize("form", ["transposed", "strided", "expanded", "offset"])
def test_x_may_lie_in_any_way(rng, device, form):
    case = Case(rng, torch.float32, device, (6,))
    wide = torch.zeros(6, 2 * case.x.shape[1] + 1, device=device)
    if form == "transposed":
        x = case.x.t().contiguous().t()
    elif form == "strided":
        x = wide[:, 1::2].copy_(case.x)
    elif form == "offset":
        x = wide[:, 1 : case.x.shape[1] + 1].copy_(case.x)
    else:
        x, case.y = case.x[:1].expand(6, -1), case.y[:1].expand(6, -1)
    case.close(ops.ks_linear(x, case.weights, case.bias, *case.question))
    weights = [w.transpose(1, 2).contiguous().transpose(1, 2) for w in case.weights]
    case.close(ops.ks_linear(x, weights, case.bias, *case.question))


@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_gradients_of_first_and_second_order(rng, device, dtype, last):
    case = Case(rng, dtype, device, (3,), last, factors=3)

    def by_operator(x, bias, *weights):
        return ops.ks_linear(x, list(weights), bias, *case.question)

    def by_function(x, bias, *weights):
        return _ops.Linear.apply(x, bias, (case.question, None), *weights)

    for function in by_operator, by_function:
        operands = case.differentiable()
        assert torch.autograd.gradcheck(function, operands, fast_mode=True)
        assert torch.autograd.gradgradcheck(function, operands, fast_mode=True)


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_a_training_step_packs_once(rng, device, dtype, monkeypatch):
    case = Case(rng, dtype, device, (7,))
    dy = torch.ones_like(ops.ks_linear(case.x, case.weights, case.bias, *case.question))
    dx, dw, db = ops.ks_linear_backward(
        dy, case.x, case.weights, *case.question, True, True, True
    )
    monkeypatch.setattr(_ops, "_BACKWARD", None)  # which packs again
    monkeypatch.setattr(_ops, "_LINEAR", None)
    x, bias, *weights = case.differentiable()
    y = _ops.Linear.apply(x, bias, (case.question, None), *weights)
    case.close(y)
    y.backward(dy, retain_graph=True)
    for found, expected in zip([x, bias, *weights], [dx, db, *dw]):
        assert torch.equal(found.grad, expected.to(found.dtype))
    with torch.no_grad():
        weights[0].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward(dy)


def test_what_was_packed_for_other_arguments_is_refused(rng, device):
    case = Case(rng, torch.float32, device, (7,))
    y, packed = ops._ks_linear_train(case.x, case.weights, case.bias, *case.question)
    with pytest.raises(RuntimeError, match="packed for other arguments"):
        ops._ks_linear_return(
            y, case.x, packed[1:].clone(), *case.question, True, True, True, False
        )


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradients_through_activations(rng, device, name):
    case = Case(rng, torch.float64, device, (3,))
    question = case.patterns, name, False, False, False

    def by_operator(x, bias, *weights):
        return ops.ks_linear(x, list(weights), bias, *question)

    def by_function(x, bias, *weights):
        return functional.ks_linear(x, weights, bias, activation=name)

    operands = case.differentiable()
    for function in by_operator, by_function:
        assert torch.autograd.gradcheck(function, operands, fast_mode=True)
        assert torch.autograd.gradgradcheck(function, operands, fast_mode=True)
    with torch.no_grad():
        fused, composed = by_operator(*operands), by_function(*operands)
        expected = functional.ACTIVATIONS[name](case.y.to(device))
    torch.testing.assert_close(fused, expected)
    torch.testing.assert_close(composed, expected)


@pytest.mark.parametrize("wanted", ["x", "weights", "bias", "one weight", "nothing"])
def test_only_wanted_gradients_are_made(rng, device, wanted):
    case = Case(rng, torch.float64, device)
    chosen = {
        "x": [case.x],
        "weights": case.weights,
        "bias": [case.bias],
        "one weight": case.weights[1:],
        "nothing": [],
    }[wanted]
    for tensor in chosen:
        tensor.requires_grad_()
    y = functional.ks_linear(case.x, case.weights, case.bias)
    assert y.requires_grad == bool(chosen)
    if chosen:
        dense = case.differentiable()
        (y * y).sum().backward()
        (functional.ks_linear(dense[0], dense[2:], dense[1]) ** 2).sum().backward()
        found = [t.grad for t in (case.x, case.bias, *case.weights)]
        for tensor, all_wanted in zip(found, dense):
            if tensor is not None:
                torch.testing.assert_close(tensor, all_wanted.grad)
        assert sum(g is not None for g in found) == len(chosen)


def test_gradients_of_an_empty_batch_are_zero(rng, device):
    case = Case(rng, torch.float32, device, (0,))
    operands = case.differentiable()
    functional.ks_linear(operands[0], operands[2:], operands[1]).sum().backward()
    for tensor in operands:
        assert torch.equal(tensor.grad, torch.zeros_like(tensor))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_weights_of_f32_have_gradients_of_f32_for_narrow_x(rng, device, dtype):
    case = Case(rng, dtype, device, (9,), given=torch.float32)
    x, bias, *weights = case.differentiable()
    functional.ks_linear(x, weights, bias).sum().backward()
    assert x.grad.dtype == dtype
    assert {t.grad.dtype for t in (bias, *weights)} == {torch.float32}


@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
def test_opcheck(rng, device, last):
    case = Case(rng, torch.float64, device, (3, 2), last)
    weights, bias, dtype = case.weights, case.bias, case.x.dtype
    x, b, *w = case.differentiable()
    dy = case.y.to(device)
    packed = ops.ks_pack(weights, bias, dtype, 4, *case.question)
    calls = [
        (ops.ks_linear, (x, w, b, *case.question)),
        (ops._ks_linear, (case.x, weights, None, *case.question)),
        (ops.ks_linear_backward, (dy, x, w, *case.question, True, True, True)),
        (ops.ks_linear_backward, (dy, x, w, *case.question, False, True, False)),
        (ops.ks_apply, (case.x, packed, True, 4, *case.question)),
        (ops.ks_pack, (weights, bias, dtype, 4, *case.question)),
        (ops.ks_pack_into, (packed, weights, bias, dtype, 4, *case.question)),
    ]
    for operator, arguments in calls:
        torch.library.opcheck(operator.default, arguments)


def test_threads_have_contexts_of_their_own(rng, device):
    case = Case(rng, torch.float32, device, (64,))
    expected = ops.ks_linear(case.x, case.weights, case.bias, *case.question)
    same = []

    def work():
        for _ in range(30):
            y = ops.ks_linear(case.x, case.weights, case.bias, *case.question)
            same.append(torch.equal(y, expected))

    for _ in range(2):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(same) == 240 and all(same)


def test_the_number_of_threads_changes_no_bit(rng):
    case = Case(rng, torch.float32, "cpu", (700,))
    before = torch.get_num_threads()
    try:
        results = []
        for threads in 1, 2, 3:
            torch.set_num_threads(threads)
            results.append(
                ops.ks_linear(case.x, case.weights, case.bias, *case.question)
            )
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_operators_refuse_what_does_not_fit(rng, device):
    case = Case(rng, torch.float32, device)
    x, w, b, q = case.x, case.weights, case.bias, case.question
    packed = ops.ks_pack(w, b, torch.float32, 4, *q)
    wrong = [
        (ops.ks_linear, (x[:, 1:], w, b, *q), "features"),
        (ops.ks_linear, (x.int(), w, b, *q), "types float32"),
        (ops.ks_linear, (x, w[1:], b, *q), "weights for"),
        (ops.ks_linear, (x, [w[0][:, :0], *w[1:]], b, *q), "numbers, not"),
        (ops.ks_linear, (x, [w[0].double(), *w[1:]], b, *q), "different types"),
        (ops.ks_linear, (x, w, b[1:], *q), "numbers, not"),
        (ops.ks_linear, (x, w, b, q[0][1:], *q[1:]), "four numbers"),
        (ops.ks_linear, (x, w, b, [], *q[1:]), "1 to 64 factors"),
        (ops.ks_linear, (x, w, b, [-1] * 8, *q[1:]), "at least 1"),
        (ops.ks_linear, (x, w, b, q[0], "tanh", *q[2:]), "activation has to be"),
        (ops.ks_apply, (x, packed[1:], True, 4, *q), "packed weights are"),
        (ops.ks_apply, (x, packed.float(), True, 4, *q), "packed weights are"),
        (ops.ks_linear_backward, (x[1:], x, w, *q, True, True, True), "gradient"),
    ]
    for operator, arguments, sentence in wrong:
        with pytest.raises(RuntimeError, match=sentence):
            operator(*arguments)
