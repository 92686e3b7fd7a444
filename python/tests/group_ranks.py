"""What the ranks of test_torch_group.py run, also as one process alone."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import datetime
import os
import pathlib
import random
import re
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from group_filters import FILTER_TRAININGS, train_filters
from torch import Tensor, nn

import danaus.torch.models as m
from danaus.torch import (
    GatedLongConv,
    HyenaFilter,
    HyenaOperator,
    LongConv,
    M2Mixer,
    ShortConv,
    average_gradients,
    split_sequence,
)
from danaus.torch.functional import hyena, long_conv, short_conv

PATIENCE = datetime.timedelta(seconds=20)
MOST = 3  # ranks
DEAD = 9  # a process that ends before the others do
TYPES = {
    "f64": torch.float64, "f32": torch.float32,
    "f16": torch.float16, "bf16": torch.bfloat16,
}  # fmt: skip


class Place(NamedTuple):
    """A process alone, or a rank of a group."""

    device: str = "cpu"
    rank: int = 0
    size: int = 1
    group: object = None

    def piece(self, x: Tensor, dim: int) -> Tensor:
        return x.chunk(self.size, dim)[self.rank].to(self.device)


class Problem(NamedTuple):
    """call(*signals, *filters) with signals in pieces along `dim`, filters whole."""

    call: Callable[..., Tensor]
    signals: Sequence[Tensor]
    filters: Sequence[Tensor]
    dim: int = 2

    def solve(self, place: Place) -> list[Tensor]:
        """The result's piece, and gradients of pieces and of filters."""
        inputs = [place.piece(x, self.dim) for x in self.signals]
        inputs += [x.to(place.device) for x in self.filters]
        inputs = [x.detach().clone().requires_grad_() for x in inputs]
        y = self.call(*inputs)
        shape = list(y.shape)
        shape[self.dim] *= place.size
        dy = torch.rand(shape, generator=torch.Generator().manual_seed(5)) - 0.5
        part = place.piece(dy.to(y.dtype), self.dim)
        gradients = torch.autograd.grad(y, inputs, part, materialize_grads=True)
        return [x.detach().cpu() for x in (y, *gradients)]


class Draw:
    """Random sizes and numbers, the same in every process."""

    def __init__(self, name: str):
        seed = zlib.crc32(name.encode())
        self.sizes = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)

    def size(self, least: int, most: int) -> int:
        return self.sizes.randint(least, most)

    def numbers(self, *shape: int, dtype=torch.float64) -> Tensor:
        return (torch.rand(shape, generator=self.generator) * 2 - 1).to(dtype)

    def length(self) -> int:
        """One that 2 and 3 ranks can split."""
        return 6 * self.size(1, 12)

    def offsets(self, length: int) -> list[int]:
        inner = sorted(self.size(0, length) for _ in range(self.size(1, 4)))
        return [0, *inner, length]


# ---- functions ----


def _long(name: str, kind: str, dtype: str, gates: int, packed: bool, **more):
    def make(place: Place) -> Problem:
        d, of_type = Draw(name), TYPES[dtype]
        length, filters = d.length(), more.get("filters") or d.size(1, 15)
        channels = filters * more.get("share", 1)
        batch = 1 if packed else d.size(1, 3)
        rows = [
            d.numbers(batch, channels, length, dtype=of_type) for _ in range(1 + gates)
        ]
        sums = torch.float64 if dtype == "f64" else torch.float32
        both = kind == "bidirectional"
        k = [d.numbers(filters, d.size(1, 90), dtype=sums)]
        k += [d.numbers(*k[0].shape, dtype=sums)] * both
        skip = d.numbers(filters, dtype=sums)
        options = {"offsets": d.offsets(length)} if packed else {}
        options |= more.get("options", {})

        def call(u, *rest):
            gate, (k, *back, skip) = rest[:gates], rest[gates:]
            k_reverse = back[0] if back else None
            given = {"gate_in": gate[0]} if gates else {}
            given |= {"gate_out": gate[1]} if gates > 1 else {}
            given |= {"kind": kind, "group": place.group}
            return long_conv(u, k, k_reverse, skip, **given, **options)

        return Problem(call, rows, [*k, skip])

    return make


def _short(name: str, layout: str, centred: bool, packed: bool):
    def make(place: Place) -> Problem:
        d = Draw(name)
        length, channels, taps = d.length(), d.size(1, 15), d.size(1, 5)
        last = layout == "channels_last"
        shape = (length, channels) if last else (channels, length)
        u = d.numbers(1 if packed else d.size(1, 3), *shape)
        given = {"offsets": d.offsets(length)} if packed else {}
        given |= {"layout": layout, "centred": centred, "group": place.group}
        filters = d.numbers(channels, taps), d.numbers(channels)
        call = lambda *x: short_conv(*x, **given)  # noqa: E731
        return Problem(call, [u], filters, 1 if last else 2)

    return make


def _hyena(name: str, order: int, share: int, packed: bool):
    def make(place: Place) -> Problem:
        d = Draw(name)
        length, filters = d.length(), d.size(1, 9)
        channels = filters * share
        u = d.numbers(1 if packed else d.size(1, 3), (order + 1) * channels, length)
        given = {"offsets": d.offsets(length)} if packed else {}
        parameters = [
            d.numbers((order + 1) * channels, 3),
            d.numbers((order + 1) * channels),
            d.numbers(order - 1, filters, d.size(1, 90)),
            d.numbers(order - 1, filters),
        ]
        call = lambda *x: hyena(*x, group=place.group, **given)  # noqa: E731
        return Problem(call, [u], parameters)

    return make


# ---- modules ----


def _module(name: str, make_module, shape, packed: bool = False, dim: int = 1):
    """shape: of x, of a length."""

    def make(place: Place) -> Problem:
        d = Draw(name)
        torch.manual_seed(d.size(0, 1 << 30))
        module = make_module().double().to(place.device)
        if place.group is not None:
            split_sequence(module, place.group)
        length = d.length()
        x = d.numbers(*shape(length))
        offsets = d.offsets(length) if packed else None
        names, parameters = zip(*module.named_parameters())
        parameters = [p.detach() for p in parameters]

        def call(x, *own):
            found = dict(zip(names, own))
            given = {} if offsets is None else {"offsets": offsets}
            return torch.func.functional_call(module, found, (x,), given)

        return Problem(call, [x], parameters, dim)

    return make


def _filter(channels: int, reverse: bool = False):
    return HyenaFilter(channels, 72, order=4, reverse=reverse)


def _hooked(module: nn.Module) -> nn.Module:
    """One that calls its convolutions, since they have hooks."""
    for name, inner in module.named_children():
        if name in ("short", "long"):
            inner.register_forward_pre_hook(lambda *given: None)
    return module


class Plain(nn.Module):
    """A filter module that makes all filters."""

    def __init__(self, filters: int):
        super().__init__()
        self.k = nn.Parameter(torch.randn(filters, 72))

    def forward(self, length: int) -> Tensor:
        return self.k[:, :length]


# fmt: off
_FUNCTIONS = {
    "causal f64": lambda n: _long(n, "causal", "f64", 2, False, filters=13),
    "causal f32": lambda n: _long(n, "causal", "f32", 1, False),
    "causal f16": lambda n: _long(n, "causal", "f16", 2, False),
    "causal bf16": lambda n: _long(n, "causal", "bf16", 2, True),
    "circular": lambda n: _long(n, "circular", "f64", 0, False),
    "bidirectional": lambda n: _long(n, "bidirectional", "f64", 2, False),
    "packed": lambda n: _long(n, "bidirectional", "f64", 1, True),
    "shared": lambda n: _long(n, "causal", "f64", 2, False, filters=4, share=7),
    "one filter": lambda n: _long(n, "causal", "f32", 0, False, filters=1, share=11),
    "one channel": lambda n: _long(n, "causal", "f64", 1, False, filters=1),
    "two channels": lambda n: _long(n, "bidirectional", "f32", 0, False, filters=2),
    "sparse": lambda n: _long(
        n, "causal", "f64", 0, False,
        options={"axes": (4, 4, 4, 4), "keep": (2, 4, 4, 4)},
    ),
    "short": lambda n: _short(n, "channels_first", False, False),
    "short packed": lambda n: _short(n, "channels_last", False, True),
    "short centred": lambda n: _short(n, "channels_last", True, False),
    "hyena": lambda n: _hyena(n, 2, 1, False),
    "hyena of order 3": lambda n: _hyena(n, 3, 2, False),
    "hyena packed": lambda n: _hyena(n, 2, 3, True),
}
_MODULES = {
    "LongConv": lambda n: _module(
        n, lambda: LongConv(10, 72, filters=5), lambda t: (2, 10, t), dim=2),
    "LongConv with a module": lambda n: _module(
        n, lambda: LongConv(10, 72, filters=5, filter=Plain(5)),
        lambda t: (2, 10, t), dim=2),
    "LongConv with a Hyena filter": lambda n: _module(
        n, lambda: LongConv(9, 72, "bidirectional", filter=_filter(9, True)),
        lambda t: (1, 9, t), True, 2),
    "ShortConv": lambda n: _module(
        n, lambda: ShortConv(7, 3, activation="silu"), lambda t: (2, 7, t), dim=2),
    "GatedLongConv": lambda n: _module(
        n, lambda: GatedLongConv(13, 72), lambda t: (2, t, 13)),
    "GatedLongConv with heads": lambda n: _module(
        n, lambda: GatedLongConv(12, 72, head_dim=3, filters=2), lambda t: (2, t, 12)),
    "one head": lambda n: _module(
        n, lambda: GatedLongConv(4, 72, head_dim=4), lambda t: (1, t, 4), True),
    "HyenaOperator": lambda n: _module(
        n, lambda: HyenaOperator(6, 72, 4, filter=[_filter(6), Plain(6), _filter(6)]),
        lambda t: (1, t, 6), True),
    "hooks": lambda n: _module(
        n, lambda: _hooked(GatedLongConv(7, 72)), lambda t: (1, t, 7), True),
    "hooks and heads": lambda n: _module(
        n, lambda: _hooked(GatedLongConv(6, 72, head_dim=2)), lambda t: (2, t, 6)),
    "M2Mixer": lambda n: _module(
        n, lambda: M2Mixer(11, 72, normed=True, filter={"order": 4}),
        lambda t: (2, t, 11)),
    "M2Mixer packed": lambda n: _module(
        n, lambda: M2Mixer(5, 72, bidirectional=False, residual=False,
                           filter={"order": 4}),
        lambda t: (1, t, 5), True),
}
# fmt: on
PROBLEMS = {name: make(name) for name, make in (_FUNCTIONS | _MODULES).items()}


# ---- models ----

_HYENA = {
    "vocab_size": 20, "d_model": 10, "n_layer": 2, "d_inner": 16, "max_seq_len": 48,
    "emb_dim": 3, "filter_order": 4, "embed_dropout": 0.0,
}  # fmt: skip
_BERT = {
    "vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 2, "intermediate_size": 16,
    "long_conv_l_max": 48, "hyena_filter_order": 4, "hidden_dropout_prob": 0.0,
}  # fmt: skip
PACKED = [0, 7, 30, 48]
MODELS = {
    "hyena": lambda: m.HyenaForCausalLM(m.HyenaConfig(**_HYENA)),
    "hyena order 3": lambda: m.HyenaForCausalLM(m.HyenaConfig(**_HYENA, hyena_order=3)),
    "hyena heads": lambda: m.HyenaForCausalLM(m.HyenaConfig(**_HYENA, head_dim=5)),
    "bert": lambda: m.M2BertForMaskedLM(m.M2BertConfig(**_BERT)),
    "classes": lambda: m.M2BertForSequenceClassification(m.M2BertConfig(**_BERT)),
    "classes of means": lambda: m.M2BertForSequenceClassification(
        m.M2BertConfig(**_BERT, pool_all=True)
    ),
}
WAYS = "average", "checkpoint", "loss_only", "ddp", "fsdp2"


def ways_of(name: str) -> list[str]:
    """How a model is trained here."""
    ways = {"hyena": WAYS, "bert": ("average", "checkpoint", "ddp", "fsdp2")}
    return list(ways.get(name, ("average",)))


def _wrapped(model: nn.Module, way: str, place: Place) -> nn.Module:
    if way == "checkpoint":
        blocks = [x for x in model.modules() if hasattr(x, "gradient_checkpointing")]
        for x in blocks:
            x.gradient_checkpointing = True
    group = dist.group.WORLD if place.group == "world" else place.group
    if place.group is not None and way == "ddp":
        return nn.parallel.DistributedDataParallel(model, process_group=group)
    if place.group is not None and way == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        mesh = dist.device_mesh.DeviceMesh.from_group(group, place.device)
        blocks = model.backbone.layers if hasattr(model, "backbone") else None
        for block in model.bert.encoder.layer if blocks is None else blocks:
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    return model


def train(name: str, way: str, packed: bool, place: Place) -> list[Tensor]:
    """The loss and all gradients of a model's step."""
    d = Draw(name)
    torch.manual_seed(3)
    bare = MODELS[name]().double().train().to(place.device)
    if place.group is not None:
        split_sequence(bare, place.group)
    model = _wrapped(bare, way, place)
    shape = (1 if packed else 3, 48)
    ids = torch.randint(20, shape, generator=d.generator)
    if name.startswith("classes"):
        labels = torch.arange(len(PACKED) - 1 if packed else shape[0]) % 2
        labels = labels.to(place.device)
    else:  # unequally many on the ranks
        kept = torch.rand(shape, generator=d.generator) < torch.linspace(0, 1, 48)
        labels = place.piece(torch.where(kept, ids, -100), 1)
    given = {"offsets": PACKED} if packed else {}
    given |= {"loss_only": True} if way == "loss_only" else {}
    loss = model(place.piece(ids, 1), labels=labels, **given).loss
    loss.backward()
    if place.group is not None and way not in ("ddp", "fsdp2"):
        average_gradients(bare, place.group)
    gradients = [p.grad for p in bare.parameters()]
    whole = [g.full_tensor() if hasattr(g, "full_tensor") else g for g in gradients]
    return [x.detach().cpu() for x in (loss, *whole)]


TRAININGS = [
    (name, way, packed)
    for name in MODELS
    for way in ways_of(name)
    for packed in (False, True)
    if not packed or way == "average"
]


# ---- what goes wrong ----


def said(call: Callable) -> str:
    """The sentence of the error that a call raises."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def mistakes(place: Place) -> dict[str, str]:
    """What calls say that differ between ranks, or fit no rank."""
    conv = LongConv(4, 24, group=place.group).requires_grad_(False).to(place.device)
    odd, u = place.rank == place.size - 1, torch.ones(1, 4, 8, device=place.device)
    model = split_sequence(MODELS["bert"](), place.group).to(place.device)
    mixer = M2Mixer(4, 24, group=place.group).to(place.device)
    mixer.short_filter.register_forward_pre_hook(lambda *given: None)
    operator = HyenaOperator(4, 24, group=place.group).to(place.device)
    ids = torch.zeros(1, 8, dtype=torch.int64).to(place.device)
    # fmt: off
    calls = {
        "length": lambda: conv(u.new_ones(1, 4, 9 if odd else 8)),
        "batch": lambda: conv(u.new_ones(2 if odd else 1, 4, 8)),
        "type": lambda: conv(u.double() if odd else u),
        "gate": lambda: conv(u, u if odd else None),
        "gradient": lambda: conv(u.clone().requires_grad_(odd)),
        "offsets": lambda: conv(u, offsets=[0, 3 + odd, 8 * place.size]),
        "local offsets": lambda: conv(u, offsets=[0, 8]),
        "channels": lambda: conv(u.new_ones(1, 5, 8)),
        "mask": lambda: model(ids, attention_mask=torch.ones_like(ids)),
        "too long": lambda: model(ids.new_zeros(1, 25)),
        "hooks": lambda: mixer(u.mT),
        "rows": lambda: operator.mix(u),
        "well": lambda: conv(u),
        "no group": lambda: long_conv(u, u[0, :, :2], group="all"),
    }
    # fmt: on
    return {name: said(call) for name, call in calls.items()}


def guide() -> list[int]:
    """The code of docs/python.md for several GPUs; the shape of its x."""
    page = pathlib.Path(__file__).parents[2] / "docs" / "python.md"
    blocks = re.findall(r"^```py\n(.*?)^```$", page.read_text(), re.M | re.S)
    (code,) = (block for block in blocks if "split_sequence" in block)
    names: dict = {"torch": torch}
    exec(code, names)
    return list(names["x"].shape)


def empty(place: Place) -> list[int]:
    """The shape of the result for a batch of nothing."""
    conv = LongConv(5, 24, group=place.group).to(place.device)
    return list(conv(torch.ones(0, 5, 4, device=place.device)).shape)


def death(place: Place) -> str:
    """The last rank dies before a call; what the others then say."""
    if place.rank == place.size - 1:
        os._exit(DEAD)
    return said(lambda: LongConv(4, 24, group=place.group)(torch.ones(1, 4, 8)))


def solve_all(place: Place) -> dict:
    found: dict = {name: make(place).solve(place) for name, make in PROBLEMS.items()}
    found |= {training: train(*training, place) for training in TRAININGS}
    found |= {each: train_filters(*each, place) for each in FILTER_TRAININGS}
    found["mistakes"], found["empty"] = mistakes(place), empty(place)
    return found


def run_rank(rank: int, count: int, device: str, folder: str) -> None:
    """All of it in groups of `count` and of 2; on a CPU also the guide and a death:
    NCCL ends processes where another one dies."""
    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        init_method=f"file://{folder}/meet",
        rank=rank,
        world_size=count,
        timeout=PATIENCE,
    )
    two = dist.new_group([0, 1], timeout=PATIENCE)
    for size, group in {2: two, count: "world"}.items():
        if rank < size:
            found = solve_all(Place(device, rank, size, group))
            torch.save(found, f"{folder}/{size}.{rank}")
    if rank == 2:
        text = said(lambda: LongConv(4, 8, group=two)(torch.ones(1, 4, 8)))
        torch.save(text, f"{folder}/outside")
    if device == "cpu":
        torch.save(guide(), f"{folder}/guide.{rank}")
    dist.barrier()
    if device == "cpu":
        torch.save(death(Place(device, rank, MOST, True)), f"{folder}/death.{rank}")
    dist.destroy_process_group()
