"""What the programs of evidence share: options, training, records and pictures.

Each is PROGRAM OUT.csv [--data FOLDER] [--device cuda|cpu] [--seeds 0,1,2] [--steps N] [--small] and
draws OUT.png beside the record. --small is a form of minutes on two cores, which proves nothing
but that the program works.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import csv
import math
import pathlib
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import contextmanager

import torch
from torch import Tensor, nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "baselines"))
import origin  # noqa: E402

import danaus  # noqa: E402
from danaus.torch.implicit import HyenaFilter  # noqa: E402

START = "version torch device seed".split()


def numbers(text: str) -> list[int]:
    return [int(n) for n in text.split(",")]


def options(what: str | None) -> argparse.ArgumentParser:
    usual = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=what, formatter_class=usual)
    parser.add_argument("out", help="the record; a picture of it lies beside")
    parser.add_argument("--data", default="evidence-data", help="of data.sh")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--seeds", type=numbers, default="0,1,2")
    parser.add_argument("--steps", type=int, help="of training, instead of the usual ones")
    parser.add_argument("--small", action="store_true")
    return parser


class Record:
    """A table on disk, a row as soon as it is known."""

    def __init__(self, o: argparse.Namespace, fields: str):
        self.file = open(o.out, "w", newline="")
        self.table = origin.Table(self.file, START + fields.split())
        self.table.writeheader()
        on_gpu = o.device == "cuda"
        name = torch.cuda.get_device_name() if on_gpu else "cpu"
        self.start = {"version": danaus.__version__, "torch": torch.__version__}
        self.start |= {"device": name.replace(" ", "_")}

    def add(self, seed: int, **row: object) -> None:
        shown = {n: f"{x:.5g}" if isinstance(x, float) else x for n, x in row.items()}
        self.table.writerow(self.start | {"seed": seed} | shown)
        self.file.flush()
        print(seed, *shown.values(), flush=True)


def read(out: str) -> list[dict[str, str]]:
    with open(out, newline="") as file:
        return list(csv.DictReader(file))


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@contextmanager
def changed_filters(model: nn.Module, change: Callable[[Tensor], Tensor]):
    """All implicit filters [channels, length] of a model are changed inside."""
    hooks = [
        module.register_forward_hook(lambda _module, _args, k: change(k))
        for module in model.modules()
        if isinstance(module, HyenaFilter)
    ]
    yield
    for hook in hooks:
        hook.remove()


def halves(o: argparse.Namespace) -> torch.autocast:
    return torch.autocast(o.device, torch.bfloat16, enabled=o.device == "cuda")


class Training:
    """Steps of AdamW with a warm-up and a cosine, as long as there are steps or seconds."""

    def __init__(self, o, model: nn.Module, rate: float, decay: float = 0.1):
        self.o, self.model, self.rate = o, model.to(o.device), rate
        grown = [p for p in model.parameters() if p.dim() > 1]
        others = [p for p in model.parameters() if p.dim() <= 1]
        groups = [{"params": grown, "weight_decay": decay}, {"params": others}]
        fused = o.device == "cuda"
        self.steps = torch.optim.AdamW(groups, rate, weight_decay=0.0, fused=fused)
        self.log: list[tuple[float, float]] = []  # seconds, loss

    def _share(self, done: float) -> float:
        """The share of the rate when a share `done` of the training is done."""
        return min(1.0, done / 0.05 + 0.02) * (0.05 + 0.95 * (1 + math.cos(math.pi * done)) / 2)

    def step(self, loss: Callable[[], Tensor], done: float) -> Tensor:
        for group in self.steps.param_groups:
            group["lr"] = self.rate * self._share(done)
        with halves(self.o):
            found = loss()
        found.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.steps.step()
        self.steps.zero_grad(set_to_none=True)
        return found.detach()

    def for_steps(
        self, count: int, loss: Callable[[], Tensor], every: int = 0,
        look: Callable[[int], object] = int,
    ) -> list[float]:  # fmt: skip
        """The losses; look(steps so far) is called after each `every` steps, and at the end."""
        found = []
        for i in range(count):
            self.model.train()
            found.append(self.step(loss, i / count))
            self.model.eval()
            if i + 1 == count or (every and (i + 1) % every == 0):
                look(i + 1)
        return [float(x) for x in found]

    def for_seconds(
        self, seconds: float, loss: Callable[[], Tensor], every: float, look: Callable[[], float]
    ) -> list[tuple[float, float, int]]:
        """(seconds, look(), steps) after each `every` seconds of training, of which looking
        is no part."""
        spent, steps, seen = 0.0, 0, []
        while spent < seconds:
            self.model.train()
            began = time.monotonic()
            until = min(every * (len(seen) + 1), seconds)
            while True:
                for _ in range(5):
                    value = self.step(loss, min(1.0, (spent + time.monotonic() - began) / seconds))
                    steps += 1
                value.item()  # waits
                if spent + time.monotonic() - began >= until:
                    break
            spent += time.monotonic() - began
            self.model.eval()
            seen.append((spent, look(), steps))
        return seen


def draw(o: argparse.Namespace, plot: Callable, name: str) -> None:
    """plot(axes, rows) of the record as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    plot(axes, read(o.out))
    axes.set_title(name)
    axes.legend(fontsize="small")
    figure.savefig(pathlib.Path(o.out).with_suffix(".png"), dpi=120)
    pyplot.close(figure)


def over_seeds(rows: Iterable[dict], keys: str, value: str) -> dict[tuple, list[float]]:
    """The values of all seeds by the fields `keys`."""
    found: dict[tuple, list[float]] = {}
    for row in rows:
        found.setdefault(tuple(row[k] for k in keys.split()), []).append(float(row[value]))
    return found


def summary(o: argparse.Namespace, keys: str, *values: str) -> None:
    """Means and largest distances from them, printed."""
    for value in values:
        for key, found in over_seeds(read(o.out), keys, value).items():
            mean = sum(found) / len(found)
            spread = max(abs(x - mean) for x in found)
            print(f"{' '.join(key)}: {value} {mean:.4g} +- {spread:.2g}", flush=True)
