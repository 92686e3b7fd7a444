"""The operators of namespace ``danaus``: loaded, traced without data, differentiated.

``_operators.so`` registers them (python/torch/*.cpp) with the PyTorch of this process.
Here they get what PyTorch wants from Python: shapes for tracing and gradients. Every
operator that has gradients exists twice: ``danaus::ks_linear`` is the public one, and
``danaus::_ks_linear`` computes the same without gradients, for use inside of gradients.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes
import re

import torch
from torch.autograd import forward_ad

import danaus._library
from danaus.torch import _ks_vmap

_OLDEST = (2, 10)


def _load() -> None:
    """Registers the operators, or raises ImportError with the reason."""
    version = tuple(int(n) for n in re.findall(r"\d+", torch.__version__)[:2])
    if version < _OLDEST:
        raise ImportError(
            f"danaus.torch needs PyTorch 2.10 or later; this is {torch.__version__}"
        )
    path = danaus._library.FOLDER / "torch" / "_operators.so"
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(f"danaus has no operators for PyTorch: {error}") from error
    library.danaus_torch_register.restype = ctypes.c_char_p
    problem = library.danaus_torch_register()
    if problem:
        raise ImportError(f"danaus.torch: {problem.decode()}")


_load()
ops = torch.ops.danaus
# Calling an overload itself is faster than finding it at each call.
_LINEAR, _BACKWARD = ops._ks_linear.default, ops._ks_linear_backward.default
_TRAIN, _RETURN = ops._ks_linear_train.default, ops._ks_linear_return.default
_PACKED = ops._ks_linear_packed.default

Gradients = tuple  # of x, of each weight, of the bias; None where not wanted


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type in which sums over a batch come: f32 for f16 and bf16."""
    return torch.float32 if dtype.itemsize == 2 else dtype


# ---- shapes ----


def check_one_device(*operands) -> None:
    """Raises unless all tensors, in lists or alone, lie on one device. Operators with
    operands on meta and elsewhere come here, whatever the others are."""
    devices = {
        str(t.device)
        for operand in operands
        for t in (operand if isinstance(operand, (list, tuple)) else [operand])
        if t is not None
    }
    torch._check(
        len(devices) <= 1,
        lambda: (
            f"tensors lie on {' and on '.join(sorted(devices))}: all have to be on "
            "one device"
        ),
    )


def _product_shape(x, patterns: list[int], batch_last: bool) -> list[int]:
    rows = patterns[0] * patterns[1] * patterns[3]
    cols = patterns[-4] * patterns[-2] * patterns[-1]
    torch._check(x.dim() > 0, lambda: "the input has no features")
    features = x.shape[0 if batch_last else -1]
    torch._check(
        features == cols, lambda: f"the input has {features} features, not {cols}"
    )
    return [rows, *x.shape[1:]] if batch_last else [*x.shape[:-1], rows]


def _fake_linear(
    x, weights, bias, patterns, activation, batch_last, tf32, batch_invariant
):
    check_one_device(x, weights, bias)
    return x.new_empty(_product_shape(x, patterns, batch_last))


def _fake_backward(
    dy,
    x,
    weights,
    patterns,
    activation,
    batch_last,
    tf32,
    batch_invariant,
    want_x,
    want_w,
    want_b,
):
    check_one_device(dy, x, weights)
    sums = sum_dtype(x.dtype)
    rows = patterns[0] * patterns[1] * patterns[3]
    return (
        x.new_empty(x.shape if want_x else [0]),
        [x.new_empty(w.shape if want_w else [0], dtype=sums) for w in weights],
        x.new_empty([rows if want_b else 0], dtype=sums),
    )


for _name in "ks_linear", "_ks_linear":
    torch.library.register_fake(f"danaus::{_name}")(_fake_linear)
for _name in "ks_linear_backward", "_ks_linear_backward":
    torch.library.register_fake(f"danaus::{_name}")(_fake_backward)


# What is packed has a size that only the plan knows, and one of none here.
@torch.library.register_fake("danaus::_ks_linear_train")
def _(x, weights, bias, *question):
    y = _fake_linear(x, weights, bias, *question)
    return y, x.new_empty([0], dtype=torch.uint8)


@torch.library.register_fake("danaus::_ks_linear_return")
def _(dy, x, packed, patterns, *question_wanted):
    check_one_device(dy, x, packed)
    *question, want_x, want_w, want_b, rounded = question_wanted
    shapes = [patterns[n : n + 4] for n in range(0, len(patterns), 4)]
    weights = [x.new_empty(shape) for shape in shapes]
    wanted = want_x, want_w, want_b
    dx, dw, db = _fake_backward(dy, x, weights, patterns, *question, *wanted)
    dtype = x.dtype if rounded else sum_dtype(x.dtype)
    return dx, [w.to(dtype) for w in dw], db.to(dtype)


@torch.library.register_fake("danaus::_ks_linear_packed")
def _(x, packed, has_bias, patterns, activation, batch_last, *options):
    check_one_device(x, packed)
    return x.new_empty(_product_shape(x, patterns, batch_last))


@torch.library.register_fake("danaus::_ks_pack_training")
def _(packed, numbers, dtype, asked):
    check_one_device(packed, numbers)


@torch.library.register_fake("danaus::ks_apply")
def _(
    x,
    packed,
    has_bias,
    batch,
    patterns,
    activation,
    batch_last,
    tf32,
    batch_invariant,
    residual=None,
):
    check_one_device(x, packed, residual)
    shape = _product_shape(x, patterns, batch_last)
    if residual is not None:
        torch._check(
            list(residual.shape) == shape,
            lambda: "the residual's shape is not the result's",
        )
    return x.new_empty(shape)


@torch.library.register_fake("danaus::ks_pack")
def _(weights, bias, dtype, batch, *question):
    check_one_device(weights, bias)
    size = torch.library.get_ctx().new_dynamic_size()
    return weights[0].new_empty([size], dtype=torch.uint8)


@torch.library.register_fake("danaus::ks_pack_into")
def _(packed, weights, bias, dtype, batch, *question):
    check_one_device(packed, weights, bias)


# ---- gradients ----

# Compilers trace operators; elsewhere functions of autograd's cost less than gradients
# of operators. torch.func wants those of another style, which cost 30 us more a call.
# All have the formulas below.

# Whether torch.func is at work. Where PyTorch does not say so, as if it were: slower.
_in_function = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)

# That of torch.jit asks more and takes 0.5 us.
is_tracing = torch._C._is_tracing


def is_traced() -> bool:
    """True while a compiler, an exporter or torch.jit.trace records what runs."""
    return torch.compiler.is_compiling() or is_tracing()


def in_forward_mode() -> bool:
    """True within forward-mode differentiation. Tensors do not say so."""
    return forward_ad._current_level >= 0


def in_transform() -> bool:
    """True within torch.func or forward-mode differentiation. Tensors that have
    gradients outside of a vmap do not say so."""
    return forward_ad._current_level >= 0 or _in_function()


class _Leaf:
    """Arguments that are not tensors, as one without parts: vmap takes no others in
    forward mode."""

    def __init__(self, value):
        self.value = value


def linear(x, weights, bias, question):
    """W x + bias with gradients, without activation."""
    if is_traced():
        return ops.ks_linear(x, weights, bias, *question)
    if in_transform():
        return TransformedLinear.apply(x, bias, _Leaf(question), *weights)
    return Linear.apply(x, bias, (question, None), *weights)


def _backward(dy, x, weights, question, wanted, packed=None):
    """Gradients of x, weights and bias, that may be differentiated again."""
    if torch.compiler.is_compiling():
        return ops.ks_linear_backward(dy, x, weights, *question, *wanted)
    if not torch.is_grad_enabled():
        if packed is not None:
            rounded = weights[0].dtype == x.dtype
            return _RETURN(dy, x, packed, *question, *wanted, rounded)
        return _BACKWARD(dy, x, weights, *question, *wanted)
    dx, db, *dw = LinearBackward.apply(dy, x, _Leaf((question, wanted)), *weights)
    return dx, dw, db


def _of_type(gradient, like):
    return gradient if gradient.dtype is like.dtype else gradient.to(like.dtype)


def _gradients(dy, x, weights, bias_dtype, question, wanted, packed=None) -> Gradients:
    """Gradients as autograd wants them: each in the type of its operand."""
    want_x, want_w, want_b = wanted
    wanted = want_x, True in want_w, want_b
    dx, dw, db = _backward(dy, x, weights, question, wanted, packed)
    return (
        dx if want_x else None,
        [_of_type(g, w) if want else None for g, w, want in zip(dw, weights, want_w)],
        (db if db.dtype is bias_dtype else db.to(bias_dtype)) if want_b else None,
    )


def _sum(total, term):
    return term if total is None else total + term


def _second_gradients(dy, x, weights, question, wanted, gx, gw, gb) -> Gradients:
    """Gradients at dy, x and weights of a loss with gradients gx, gw and gb at dx, dw
    and db.

    The gradient is dF for F(dy, x, w) = Re <dy, K_1 ... K_L x>: linear in each. So the
    gradients of <gx, dF/dx> + sum over l of <gw_l, dF/dw_l> are those of F with gx in
    place of x, plus those of F with gw_l in place of w_l, for each l.
    """
    to_dy = to_x = None
    to_w = [None] * len(weights)
    want_x, want_w, want_b = wanted
    places = [None] if want_x and gx is not None else []
    places += [n for n, g in enumerate(gw) if want_w and g is not None]
    for place in places:
        x_here, mixed = x, list(weights)
        if place is None:
            x_here = gx
        else:
            mixed[place] = _of_type(gw[place], weights[place])
        to_dy = _sum(to_dy, linear(x_here, mixed, None, question))
        all_but_bias = place is not None, True, False
        dx, dw, _ = _backward(dy, x_here, mixed, question, all_but_bias)
        if place is not None:
            to_x = _sum(to_x, dx)
        for n, w in enumerate(weights):
            if n != place:
                to_w[n] = _sum(to_w[n], _of_type(dw[n], w))
    if want_b and gb is not None:
        shape = [-1] + [1] * (dy.dim() - 1) if question[2] else [-1]
        to_dy = _sum(to_dy, _of_type(gb.reshape(shape).expand_as(dy), dy))
    return to_dy, to_x, to_w


class Linear(torch.autograd.Function):
    """W x + bias for (x, bias, (question, pack), *weights). Weights are packed once, or
    not at all if a pack (_packed.py) is given that holds them."""

    @staticmethod
    def forward(ctx, x, bias, asked, *weights):
        question, pack = asked
        packed = pack and pack.find(weights, bias)
        if packed is not None:
            y = _PACKED(x, packed, bias is not None, *question)
        else:
            y, packed = _TRAIN(x, weights, bias, *question)
            if pack is not None:
                pack.take(packed, weights, bias)
        ctx.question = question
        ctx.save_for_backward(packed, x, *weights)
        return y

    @staticmethod
    def backward(ctx, dy):
        packed, x, *weights = ctx.saved_tensors
        want_x, want_b, _, *want_w = ctx.needs_input_grad
        wanted = want_x, want_w, want_b
        # The bias has the type of the weights.
        dx, dw, db = _gradients(
            dy, x, weights, weights[0].dtype, ctx.question, wanted, packed
        )
        return dx, db, None, *dw


class TransformedLinear(torch.autograd.Function):
    """The same for torch.func and forward mode, packing for each of both."""

    generate_vmap_rule = True
    backward = Linear.backward

    @staticmethod
    def forward(x, bias, leaf, *weights):
        return _LINEAR(x, weights, bias, *leaf.value)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, _, leaf, *weights = inputs
        ctx.question = leaf.value
        ctx.save_for_backward(None, x, *weights)
        ctx.save_for_forward(None, x, *weights)

    @staticmethod
    def jvp(ctx, tx, tb, _, *tw):
        _, x, *weights = ctx.saved_tensors
        total = linear(tx, weights, tb, ctx.question)
        for n, tangent in enumerate(tw):
            if tangent is not None:
                mixed = [*weights[:n], tangent, *weights[n + 1 :]]
                total = total + linear(x, mixed, None, ctx.question)
        return total


class LinearBackward(torch.autograd.Function):
    """Gradients of x, bias and weights, as a function of (dy, x, leaf, *weights)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(dy, x, leaf, *weights):
        question, wanted = leaf.value
        dx, dw, db = _BACKWARD(dy, x, weights, *question, *wanted)
        return dx, db, *dw

    @staticmethod
    def setup_context(ctx, inputs, output):
        dy, x, leaf, *weights = inputs
        ctx.question, ctx.wanted = leaf.value
        ctx.save_for_backward(dy, x, *weights)
        ctx.save_for_forward(dy, x, *weights)
        ctx.set_materialize_grads(False)

    @staticmethod
    def jvp(ctx, tdy, tx, _, *tw):
        dy, x, *weights = ctx.saved_tensors
        want_x, want_w, want_b = ctx.wanted
        shapes = _fake_backward(dy, x, weights, *ctx.question, *ctx.wanted)
        dx, db = (torch.zeros_like(shapes[n]) for n in (0, 2))
        dw = [torch.zeros_like(w) for w in shapes[1]]
        # The bias's gradient is made of dy alone, a factor's of all but that factor.
        terms = [(tdy, x, weights, want_x, want_b, None)] if tdy is not None else []
        terms += [(dy, tx, weights, False, False, None)] if tx is not None else []
        for n, w in enumerate(tw):
            if w is not None:
                mixed = [*weights[:n], w, *weights[n + 1 :]]
                terms.append((dy, x, mixed, want_x, False, n))
        for *operands, to_x, to_b, but in terms:
            wanted = to_x, want_w, to_b
            gx, gw, gb = _backward(*operands, ctx.question, wanted)
            dx = dx + gx if to_x else dx
            db = db + gb if to_b else db
            if want_w:
                dw = [d if n == but else d + g for n, (d, g) in enumerate(zip(dw, gw))]
        return dx, db, *dw

    @staticmethod
    def backward(ctx, gx, gb, *gw):
        dy, x, *weights = ctx.saved_tensors
        to_dy, to_x, to_w = _second_gradients(
            dy, x, weights, ctx.question, ctx.wanted, gx, gw, gb
        )
        return to_dy, to_x, None, *to_w


# ---- gradients of the operators ----


def _through(activation: str, dy, v):
    """dy times the activation's derivative at v."""
    if activation == "relu":
        return torch.ops.aten.threshold_backward(dy, v, 0)
    if activation == "silu":
        share = torch.sigmoid(v)
        return dy * share * (1 + v * (1 - share))
    form = "tanh" if activation == "gelu_tanh" else "none"
    return torch.ops.aten.gelu_backward(dy, v, approximate=form)


def _save_linear(ctx, inputs, output) -> None:
    x, weights, bias, patterns, ctx.activation, *options = inputs
    ctx.question = patterns, "none", *options
    ctx.has_bias = bias is not None
    ctx.save_for_backward(x, *weights, *([bias] if ctx.has_bias else []))


def _linear_backward(ctx, dy):
    x, *weights = ctx.saved_tensors
    bias = weights.pop() if ctx.has_bias else None
    if ctx.activation != "none":
        v = linear(x, weights, bias, ctx.question)
        dy = _through(ctx.activation, dy, v)
    want_x, want_w, want_b = ctx.needs_input_grad[:3]
    dtype = bias.dtype if ctx.has_bias else None
    wanted = want_x, want_w, ctx.has_bias and want_b
    dx, dw, db = _gradients(dy, x, weights, dtype, ctx.question, wanted)
    return dx, dw, db, *[None] * 5


torch.library.register_autograd(
    "danaus::ks_linear", _linear_backward, setup_context=_save_linear
)


def _save_backward(ctx, inputs, output) -> None:
    dy, x, weights, *ctx.question = inputs[:8]
    ctx.wanted = inputs[8:]
    ctx.save_for_backward(dy, x, *weights)
    ctx.set_materialize_grads(False)


def _linear_backward_backward(ctx, gx, gw, gb):
    dy, x, *weights = ctx.saved_tensors
    second = _second_gradients(dy, x, weights, ctx.question, ctx.wanted, gx, gw, gb)
    return *second, *[None] * 8


torch.library.register_autograd(
    "danaus::ks_linear_backward",
    _linear_backward_backward,
    setup_context=_save_backward,
)

_ks_vmap.register(ops)
