#!/usr/bin/env python3
"""Times parts of transformers as arXiv 2405.15013 does: chains beside dense layers.

    PYTHONPATH=build/python/tree paper_ks_models.py OUT.csv [--device cuda|cpu]
        [--dtypes f32,f16] [--rounds 7] [--tiny]

`part`: of ViT-S/16 its layers of N x N, 4N x N and N x 4N without and with bias, the
feed-forward part and the attention with their norms, a block, and the whole model from
pixels to scores; of GPT-2 medium its blocks with chains as down-projections, 196 tokens
of 128 texts. `danaus` is `danaus.torch.KSLinear`, `bmm` the paper's Algorithm 1 by
batched products, `dense` nn.Linear with the product of the factors; q, k and v are
three layers in all. `share`: of ViT-S/16, B/16, L/16 and H/14 with nn.Linear alone, the
time of its linear layers over that of the model. Weights are random, x is batch-first,
128 images. Times are medians of rounds in which all ways take turns; errors are relative
to the dense ones, in L2.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import copy
import dataclasses
import pathlib
import sys

import torch
from torch import Tensor, nn
from torch_layers import DTYPES, Dense, finish, forward_of, in_turns, set_math
from torch_networks import NETWORKS, Block, Norm, Shape, chains_of, maker

import danaus
from danaus.torch import KSLinear, freeze
from danaus.torch.functional import ACTIVATIONS

sys.path.insert(0, str(pathlib.Path(__file__).parent / "baselines"))
import origin  # noqa: E402
import torch_ways  # noqa: E402

FIELDS = (
    "version device torch model part dtype images rounds dense_ns bmm_ns danaus_ns "
    "bmm_ratio ratio bmm_error error linear_ns share"
)
PIXELS, CHANNELS, CLASSES = 224, 3, 1000
VIT, GPT2 = NETWORKS
GPT2 = dataclasses.replace(GPT2, tokens=196, images=128)
VITS = (
    VIT,
    Shape("ViT-B/16", "vit", 768, 12, 3072, 12, 196, 128, ()),
    Shape("ViT-L/16", "vit", 1024, 16, 4096, 24, 196, 128, ()),
    Shape("ViT-H/14", "vit", 1280, 16, 5120, 32, 256, 128, ()),
)


# ---- parts of models ----


class Batched(nn.Module):
    """A KSLinear's product by batched dense ones and permutations."""

    def __init__(self, like: KSLinear):
        super().__init__()
        first, *others = (w.detach() for w in like.weights)
        parts = [torch_ways.bmm(first, False, like.bias)]
        parts += [torch_ways.bmm(w, False) for w in others]
        self.run, self.after = torch_ways.chained(parts), ACTIVATIONS[like.activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.run(x))


def swapped(net: nn.Module, layer) -> nn.Module:
    """A copy with layer(it) in place of each KSLinear."""
    if isinstance(net, KSLinear):
        return layer(net)
    net = copy.deepcopy(net)
    for parent in list(net.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, KSLinear):
                setattr(parent, name, layer(child))
    return net


class FeedForward(nn.Module):
    def __init__(self, block: Block):
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        return self.block.down(self.block.up(self.block.norms[1](x)))


class Attention(nn.Module):
    def __init__(self, block: Block):
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        return self.block.attend(self.block.norms[0](x))


class Vision(nn.Module):
    """A transformer from pixels to scores, which takes the mean over tokens."""

    def __init__(self, s: Shape, make):
        super().__init__()
        self.s, self.side = s, PIXELS // round(s.tokens**0.5)
        pixels = CHANNELS * self.side**2
        self.embed = nn.Sequential(
            Norm(pixels, False), nn.Linear(pixels, s.width), Norm(s.width, False)
        )
        self.place = nn.Parameter(torch.randn(s.tokens, s.width) / 50)
        self.blocks = nn.Sequential(*(Block(s, make, False) for _ in range(s.blocks)))
        self.head = nn.Sequential(Norm(s.width, False), nn.Linear(s.width, CLASSES))

    def forward(self, images: Tensor) -> Tensor:
        s, side = self.s, self.side
        parts = images.unfold(2, side, side).unfold(3, side, side)
        x = self.embed(parts.permute(0, 2, 3, 4, 5, 1).flatten(3).flatten(1, 2))
        x = self.blocks((x + self.place).view(-1, s.width))
        return self.head(x.view(-1, s.tokens, s.width).mean(1))


def layers_of(s: Shape):
    """Single layers, without and with bias."""
    names = {(1, 1): "N x N", (4, 1): "4N x N", (1, 4): "N x 4N"}
    for (rows, cols), chain in chains_of(s).items():
        name = names[rows // s.width, cols // s.width]
        for bias in (False, True):
            yield name + ", bias" * bias, KSLinear(cols, rows, chain, bias=bias)


def parts_of_vit(s: Shape):
    yield from layers_of(s)
    make = maker(chains_of(s))
    yield "FFN", FeedForward(Block(s, make, False))
    yield "MHA", Attention(Block(s, make, False))
    yield "block", Block(s, make, False)
    yield "whole", Vision(s, make)


def parts_of_gpt2(s: Shape):
    make = maker(chains_of(s))
    yield "blocks", nn.Sequential(*(Block(s, make, False) for _ in range(s.blocks)))


# ---- measurements ----


def input_of(o, s: Shape, net: nn.Module) -> Tensor:
    if isinstance(net, Vision):
        shape = (s.images, CHANNELS, PIXELS, PIXELS)
    else:
        width = net.in_features if isinstance(net, KSLinear) else s.width
        shape = (s.images * s.tokens, width)
    return torch.randn(shape, device=o.device, dtype=DTYPES[o.dtype])


def difference(y: Tensor, exact: Tensor) -> float:
    y, exact = y.double(), exact.double()
    return ((y - exact).norm() / exact.norm()).item()


def ready(o, net: nn.Module) -> nn.Module:
    return net.to(o.device, DTYPES[o.dtype]).eval()


def measure_part(o, s: Shape, name: str, net: nn.Module) -> None:
    net = ready(o, net)
    x = input_of(o, s, net)
    with torch.no_grad():
        nets = {"dense": swapped(net, Dense), "bmm": swapped(net, Batched)}
    nets["danaus"] = freeze(net, s.images * s.tokens)
    runs = {way: forward_of(one, x) for way, one in nets.items()}
    results = {way: run() for way, run in runs.items()}
    record = {
        "bmm_error": difference(results["bmm"], results["dense"]),
        "error": difference(results["danaus"], results["dense"]),
    }
    del results
    seconds = in_turns(o.device, runs, o.rounds)
    record |= {f"{way}_ns": found * 1e9 for way, found in seconds.items()}
    record["bmm_ratio"] = seconds["bmm"] / seconds["dense"]
    record["ratio"] = seconds["danaus"] / seconds["dense"]
    o.write(s, name, record)


def linear_alone(net: nn.Module, x: Tensor):
    """A function that calls all linear layers of a model on inputs of their sizes."""
    calls, inputs = [], {}

    def note(layer: nn.Linear, given: tuple) -> None:
        shape = given[0].shape
        inputs.setdefault(shape, torch.randn_like(given[0]))
        calls.append((layer, shape))

    hooks = [
        layer.register_forward_pre_hook(note)
        for layer in net.modules()
        if isinstance(layer, nn.Linear)
    ]
    forward_of(net, x)()
    for hook in hooks:
        hook.remove()

    def run() -> None:
        with torch.no_grad():
            for layer, shape in calls:
                layer(inputs[shape])

    return run


def measure_share(o, s: Shape) -> None:
    net = ready(o, Vision(s, maker({})))
    x = input_of(o, s, net)
    runs = {"dense": forward_of(net, x), "linear": linear_alone(net, x)}
    seconds = in_turns(o.device, runs, o.rounds)
    record = {f"{way}_ns": found * 1e9 for way, found in seconds.items()}
    record["share"] = seconds["linear"] / seconds["dense"]
    o.write(s, "share", record)


# ---- the program ----


class Options:
    """The program's arguments, and the table of records that it writes."""

    def __init__(self):
        parser = argparse.ArgumentParser(
            description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        parser.add_argument("out")
        parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
        parser.add_argument("--dtypes", default="f32,f16")
        parser.add_argument("--rounds", type=int, default=7)
        parser.add_argument(
            "--tiny", action="store_true", help="small sizes, one round"
        )
        self.__dict__.update(vars(parser.parse_args()))
        if self.tiny:
            self.rounds = 1

    def open(self, file) -> None:
        self.file, self.table = file, origin.Table(file, FIELDS.split())
        self.table.writeheader()

    def write(self, s: Shape, part: str, record: dict) -> None:
        gpu = self.device == "cuda"
        record |= {
            "version": danaus.__version__,
            "device": torch.cuda.get_device_name() if gpu else "cpu",
            "torch": torch.__version__,
            "model": s.name,
            "part": part,
            "dtype": self.dtype,
            "images": s.images,
            "rounds": self.rounds,
        }
        self.table.writerow(
            {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in record.items()}
        )
        self.file.flush()
        ratio = record.get("ratio") or record["share"]
        print(s.name, part, self.dtype, f"{ratio:.3f}", flush=True)


def sized(o, s: Shape) -> Shape:
    return dataclasses.replace(s, blocks=1, images=1) if o.tiny else s


def main() -> None:
    o = Options()
    torch.manual_seed(1)
    with open(o.out, "w", newline="") as file:
        o.open(file)
        for o.dtype in o.dtypes.split(","):
            set_math(o.dtype)
            for shape, parts in ((VIT, parts_of_vit), (GPT2, parts_of_gpt2)):
                s = sized(o, shape)
                for name, net in parts(s):
                    measure_part(o, s, name, net)
            for shape in VITS[: 2 if o.tiny else None]:
                measure_share(o, sized(o, shape))
            finish(o.device)


if __name__ == "__main__":
    main()
