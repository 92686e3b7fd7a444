#!/usr/bin/env python3
"""Times a training step of linear layers with adapters of PEFT and of danaus.peft.

    adapters.py OUT.csv [--device cuda|cpu] [--tokens 2048,16384] [--dtype bf16]
        [--block 8] [--factors 1,2,4] [--rank 16] [--rounds N] [--seed SEED] [--tiny]

Layers have the shapes of Llama 3.2 3B, random frozen weights of the dtype and no bias. A
step is forward and backward with gradients of x and of the adapter, which is f32, under
autocast. Methods are "none", the layer alone; "lora" of the rank; "boft" of PEFT; "danaus
boft"; and "danaus monarch" of the rank with 4 blocks. PEFT computes one butterfly factor
where it cannot compile its CUDA extension; records of more are then left out. Seconds are
medians of rounds in which methods take turns; "ratio" is over LoRA's. "memory" is the most
bytes of the GPU's memory in a step. The error of y is relative in L2, over 64 tokens,
against the merged layer in f64. --tiny runs all of it at small sizes.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import copy

import peft
import torch
from torch import Tensor, nn
from torch_layers import DTYPES, in_turns, origin

import danaus
from danaus.peft import BOFTConfig, MonarchConfig

SHAPES = (3072, 3072), (3072, 8192), (8192, 3072)  # inputs, outputs
CHECKED = 64
FIELDS = (
    "version torch peft device dtype problem tokens method factors parameters seconds "
    "ratio memory error"
).split()


def configs(o: argparse.Namespace) -> dict[tuple[str, int], peft.PeftConfig | None]:
    """By method and number of factors."""
    target = {"target_modules": ["0"], "init_weights": False}
    found: dict = {("none", 0): None}
    found["lora", 0] = peft.LoraConfig(
        r=o.rank, target_modules=["0"], init_lora_weights=False
    )
    for factors in o.factors:
        block = {"boft_block_size": o.block, "boft_n_butterfly_factor": factors}
        found["boft", factors] = peft.BOFTConfig(**block, **target)
        found["danaus boft", factors] = BOFTConfig(**block, **target)
    found["danaus monarch", 2] = MonarchConfig(nblocks=4, r=o.rank, **target)
    return found


def adapted(base: nn.Module, config: peft.PeftConfig | None, factors: int):
    """A copy of the layer with an adapter; None if PEFT made another one."""
    base = copy.deepcopy(base).requires_grad_(False)
    if config is None:
        return base
    model = peft.get_peft_model(base, config)
    found = [p.shape[0] for name, p in model.named_parameters() if "boft_R" in name]
    return model if found in ([], [factors]) else None


class Step:
    """Forward and backward of a model, and what they need."""

    def __init__(self, o: argparse.Namespace, model: nn.Module, x: Tensor, dy: Tensor):
        self.o, self.model, self.x, self.dy = o, model, x, dy

    def run(self) -> None:
        self.x.grad = None
        self.model.zero_grad()
        self.forward(self.x).backward(self.dy)

    def forward(self, x: Tensor) -> Tensor:
        dtype = DTYPES[self.o.dtype]
        with torch.autocast(self.o.device, dtype, enabled=dtype != torch.float32):
            return self.model(x)

    def memory(self) -> int:
        if self.o.device == "cpu":
            return 0
        torch.cuda.reset_peak_memory_stats()
        self.run()
        return torch.cuda.max_memory_allocated()

    @torch.no_grad()
    def error(self) -> float:
        x = self.x[:CHECKED]
        exact = copy.deepcopy(self.model).double()
        if isinstance(exact, peft.PeftModel):
            exact = exact.merge_and_unload()
        y = exact(x.double())
        return float((self.forward(x) - y).norm() / y.norm())


def measure(o: argparse.Namespace, shape: tuple[int, int], tokens: int, about: dict):
    """The records of all methods for one layer."""
    torch.manual_seed(o.seed)
    kind = {"device": o.device, "dtype": DTYPES[o.dtype]}
    base = nn.Sequential(nn.Linear(*shape, bias=False, **kind))
    x, dy = (torch.randn(tokens, n, **kind) for n in shape)
    x.requires_grad_()
    steps = {}
    for (method, factors), config in configs(o).items():
        model = adapted(base, config, factors)
        if model is not None:
            steps[method, factors] = Step(o, model, x, dy)
    seconds = in_turns(o.device, {k: s.run for k, s in steps.items()}, o.rounds)
    for (method, factors), step in steps.items():
        found = seconds[method, factors]
        trained = (p.numel() for p in step.model.parameters() if p.requires_grad)
        yield about | {
            "problem": f"{shape[0]}x{shape[1]}",
            "tokens": tokens,
            "method": method,
            "factors": factors,
            "parameters": sum(trained),
            "seconds": f"{found:.4g}",
            "ratio": f"{found / seconds['lora', 0]:.3f}",
            "memory": step.memory(),
            "error": f"{step.error():.3g}",
        }


def options() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--tokens", default="2048,16384")
    p.add_argument("--dtype", default="bf16", choices=("bf16", "f16", "f32"))
    p.add_argument("--block", type=int, default=8)
    p.add_argument("--factors", default="1,2,4")
    p.add_argument("--rank", type=int, default=16)
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--tiny", action="store_true")
    o = p.parse_args()
    o.shapes = SHAPES
    if o.tiny:
        o.shapes, o.tokens, o.rounds, o.rank = ((64, 128),), "20", 1, 4
    o.tokens, o.factors = ([int(n) for n in x.split(",")] for x in (o.tokens, o.factors))
    return o


def main() -> None:
    o = options()
    name = "cpu" if o.device == "cpu" else torch.cuda.get_device_name()
    about = {"version": danaus.__version__, "torch": torch.__version__}
    about |= {"peft": peft.__version__, "device": name.replace(" ", "_")}
    about["dtype"] = o.dtype
    with open(o.out, "w", newline="", buffering=1) as file:
        out = origin.Table(file, FIELDS)
        out.writeheader()
        for tokens in o.tokens:
            for shape in o.shapes:
                for record in measure(o, shape, tokens, about):
                    out.writerow(record)
                    print(
                        "{problem:10} {tokens:6} tokens  {method:15} {factors} "
                        "{seconds:>9} s, x{ratio}  error {error}".format(**record),
                        flush=True,
                    )


if __name__ == "__main__":
    main()
