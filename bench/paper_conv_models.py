#!/usr/bin/env python3
"""Runs the models of FlashFFTConv's tables 3, 4 and 5 with random weights.

    PYTHONPATH=build/python/tree paper_conv_models.py OUT.csv [--device cuda|cpu]
        [--tables models,language,taps] [--rounds 7] [--tiny]

"models" (table 3): a forward pass of M2-BERT (110 million weights, 128 tokens),
Hyena-s-4K, long convolutions for Path-X (16,384 pixels), SaShiMi (65,536 samples, filters
of diagonal state spaces) and HyenaDNA-1M. "language"
(table 4): one of Hyena-2.7B and of GPT-2.7B with fused attention, 32,768 tokens in
sequences of 2,048, 8,192 and 16,384. "taps" (table 5): the memory of a training step of
Hyena-s on 8,192 tokens, with filters of 8,192 to 256 taps.

The other model has the same weights, PyTorch's products and torch.fft
(baselines/torch_models.py). Forward passes run in f16; implicit filters and torch.fft have
f32. `filters` says if implicit filters are "computed" at each call or "kept"; those of
Path-X are "explicit". Both sides transform filters at each call. Times are medians
of rounds in which all take turns; ratios are those of torch.fft's time to ours. `error` is
that of scores against torch.fft's, relative in L2, at tokens spread over all sequences.
Training steps are those of model_steps.py, and memory is in GiB. Each model of "taps" is
alone on the device.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import copy
import gc
from typing import NamedTuple

import torch
import torch.nn.functional as F
from gpu_conv import origin, relative_error
from model_steps import Step, peak
from torch import Tensor, nn
from torch_layers import forward_of, in_turns
from torch_models import halve, keep_filters, plain
from torch_networks import Block, Norm, Shape, maker
from torch_sashimi import Sashimi

import danaus
from danaus.torch import LongConv, models
from danaus.torch.models.outputs import LogitsOutput

FIELDS = (
    "version torch device table model filters length batch taps seconds torch_seconds "
    "gpt_seconds ratio memory torch_memory error"
).split()
TABLES = "models", "language", "taps"
TAPS = 8192, 4096, 2048, 1024, 512, 256
LANGUAGE_LENGTHS, LANGUAGE_TOKENS = (2048, 8192, 16384), 32768
CHECKED = 1024  # rows of scores, or some more
SMALL = {"d_model": 32, "n_layer": 2, "d_inner": 64}  # of --tiny


# ---- models ----


class LongConvBlock(nn.Module):
    """norm(u + GLU(linear(GELU(conv(u)))))."""

    def __init__(self, width: int, length: int):
        super().__init__()
        self.conv = LongConv(width, length, "bidirectional")
        self.linear, self.norm = nn.Linear(width, 2 * width), nn.LayerNorm(width)

    def forward(self, u: Tensor) -> Tensor:
        y = F.gelu(self.conv(u.mT)).mT
        return self.norm(u + F.glu(self.linear(y)))


class LongConvs(nn.Module):
    """Classes of sequences of pixels by explicit filters.

    Source: Fu et al., Simple hardware-efficient long convolutions for sequence modeling
    (arXiv 2302.06646), as the authors' example for FlashFFTConv has it.
    """

    def __init__(self, width: int, blocks: int, length: int):
        super().__init__()
        self.encode, self.decode = nn.Linear(1, width), nn.Linear(width, 2)
        made = (LongConvBlock(width, length) for _ in range(blocks))
        self.blocks = nn.Sequential(*made)

    def forward(self, pixels: Tensor) -> LogitsOutput:
        return LogitsOutput(None, self.decode(self.blocks(self.encode(pixels)).mean(1)))


class Gpt(nn.Module):
    """A transformer of torch_networks.py between embeddings and scores."""

    def __init__(self, s: Shape, words: int):
        super().__init__()
        self.word = nn.Embedding(words, s.width)
        self.place = nn.Parameter(torch.randn(s.tokens, s.width) / 50)
        made = (Block(s, maker({}), False) for _ in range(s.blocks))
        self.blocks, self.norm = nn.Sequential(*made), Norm(s.width, False)

    def forward(self, input_ids: Tensor) -> LogitsOutput:
        x = self.word(input_ids) + self.place
        x = self.norm(self.blocks(x.flatten(0, 1)))
        return LogitsOutput(None, F.linear(x, self.word.weight))


def m2_bert(tiny: bool, length: int) -> nn.Module:
    """As the authors' m2-110M.yaml has it: one causal convolution, dense MLPs."""
    size = {"bidirectional": False, "residual_long_conv": False}
    size |= {"use_glu_mlp": False, "use_monarch_mlp": False, "long_conv_l_max": length}
    if tiny:
        size |= {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
        size |= {"vocab_size": 64}
    return models.M2BertForMaskedLM(models.M2BertConfig(**size))


def hyena(tiny: bool, length: int, **size) -> nn.Module:
    """Hyena-s unless sizes are given."""
    size = {"d_model": 864, "n_layer": 18, "d_inner": 1728, "embed_dropout": 0.0} | size
    size |= {"max_seq_len": length} | (SMALL | {"vocab_size": 64} if tiny else {})
    return models.HyenaForCausalLM(models.HyenaConfig(**size))


def hyena_dna(tiny: bool, length: int) -> nn.Module:
    size = {"d_model": 256, "n_layer": 8, "d_inner": 1024, "max_seq_len": length}
    config = models.HyenaDNAConfig(**size | (SMALL if tiny else {}))
    return models.HyenaDNAForCausalLM(config)


def long_convs(tiny: bool, length: int) -> nn.Module:
    return LongConvs(16, 2, length) if tiny else LongConvs(512, 6, length)


def sashimi(tiny: bool, length: int) -> nn.Module:
    return Sashimi(16, length, 1) if tiny else Sashimi(64, length, 8)


class Case(NamedTuple):
    """A row of table 3."""

    make: object
    length: int
    batch: int
    words: int  # 0: pixels


CASES = {
    "M2-BERT": Case(m2_bert, 128, 128, 30000),
    "Hyena-s-4K": Case(hyena, 4096, 8, 50257),
    "Path-X": Case(long_convs, 16384, 16, 0),
    "SaShiMi": Case(sashimi, 65536, 8, 256),
    "HyenaDNA-1M": Case(hyena_dna, 1_000_000, 1, 12),
}


# ---- measurements ----


def build(o, make, *arguments, **options) -> nn.Module:
    """A model whose numbers are drawn on the device, which other models have left."""
    gc.collect()
    torch.manual_seed(1)
    with torch.device(o.device):
        return make(*arguments, **options).eval()


def inputs(o, words: int, batch: int, length: int) -> Tensor:
    if not words:
        return torch.randn(batch, length, 1, device=o.device, dtype=o.dtype)
    return torch.randint(words, (batch, length), device=o.device)


def spread(scores: Tensor) -> Tensor:
    """Rows of scores, evenly over all tokens of all sequences."""
    rows = scores.flatten(0, -2)
    return rows[:: max(1, len(rows) // CHECKED)].clone()


def timed(o, nets: dict, x: Tensor) -> dict:
    """Seconds of each, and the error of danaus against torch."""
    runs = {way: forward_of(net, x) for way, net in nets.items()}
    some = [spread(runs[way]().logits) for way in ("danaus", "torch")]
    error = relative_error(*some)
    del some
    seconds = in_turns(o.device, runs, o.rounds)
    fields = {"danaus": "seconds", "torch": "torch_seconds", "gpt": "gpt_seconds"}
    record = {fields[way]: s for way, s in seconds.items()}
    record["ratio"] = seconds["torch"] / seconds["danaus"]
    return record | {"error": error}


def pair(o, model: nn.Module) -> dict:
    ours = halve(model, o.dtype)
    return {"danaus": ours, "torch": plain(ours)}


def measure_models(o) -> None:
    for name, case in CASES.items():
        length, batch = (64, 2) if o.tiny else (case.length, case.batch)
        nets = pair(o, build(o, case.make, o.tiny, length))
        x = inputs(o, min(case.words, 12) if o.tiny else case.words, batch, length)
        record = {"table": "models", "model": name, "length": length, "batch": batch}
        for filters in ("computed", "kept") if case.words else ("explicit",):
            if filters == "kept":
                for net in nets.values():
                    keep_filters(net)
            o.write(record | {"filters": filters} | timed(o, nets, x))
        del nets


def gpt(tiny: bool, length: int) -> nn.Module:
    """GPT-2.7B."""
    sizes = (32, 4, 64, 2) if tiny else (2560, 32, 10240, 32)
    width, heads, hidden, blocks = sizes
    shape = Shape("GPT", "gpt2", width, heads, hidden, blocks, length, 1, (), True)
    return Gpt(shape, 64 if tiny else 50264)


def measure_language(o) -> None:
    size = {"d_model": 2560, "n_layer": 32, "d_inner": 10240}
    for length in (32, 64) if o.tiny else LANGUAGE_LENGTHS:
        batch = max(1, (64 if o.tiny else LANGUAGE_TOKENS) // length)
        nets = pair(o, build(o, hyena, o.tiny, length, **size))
        nets["gpt"] = build(o, gpt, o.tiny, length).to(o.dtype)
        for way in ("danaus", "torch"):
            keep_filters(nets[way])
        x = inputs(o, 64 if o.tiny else 50257, batch, length)
        record = {"table": "language", "model": "Hyena-2.7B", "filters": "kept"}
        o.write(record | {"length": length, "batch": batch} | timed(o, nets, x))
        del nets


def step_memory(o, model: nn.Module, ids: Tensor) -> float:
    step = Step(o, model, {"input_ids": ids, "labels": ids}, "eager")
    for _ in range(2):
        step()
    return peak(o.device, step)


def measure_taps(o) -> None:
    length = 64 if o.tiny else TAPS[0]
    ids = inputs(o, 64 if o.tiny else 50257, 1, length)
    for taps in (64, 16) if o.tiny else TAPS:
        model = build(o, hyena, o.tiny, length, filter_taps=taps).cpu()
        memory = {
            name: step_memory(o, change(model), ids)
            for name, change in (("memory", copy.deepcopy), ("torch_memory", plain))
        }
        record = {"table": "taps", "model": "Hyena-s-8K", "filters": "computed"}
        o.write(record | {"length": length, "batch": 1, "taps": taps} | memory)


MEASURES = dict(zip(TABLES, (measure_models, measure_language, measure_taps)))


# ---- the program ----


class Options:
    """The program's arguments, and the table of records that it writes."""

    def __init__(self):
        parser = argparse.ArgumentParser(
            description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        parser.add_argument("out")
        parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
        parser.add_argument("--tables", default=",".join(TABLES))
        parser.add_argument("--rounds", type=int, default=7)
        parser.add_argument("--tiny", action="store_true", help="small sizes, one round")
        parser.parse_args(namespace=self)
        gpu = self.device == "cuda"
        self.dtype = torch.float16 if gpu else torch.float32
        self.rounds = 1 if self.tiny else self.rounds
        self.start = {"version": danaus.__version__, "torch": torch.__version__}
        self.start["device"] = torch.cuda.get_device_name() if gpu else "cpu"

    def open(self, file) -> None:
        self.file, self.table = file, origin.Table(file, FIELDS)
        self.table.writeheader()

    def write(self, record: dict) -> None:
        shown = {
            k: f"{v:.4g}" if isinstance(v, float) else v for k, v in record.items()
        }
        self.table.writerow(self.start | shown)
        self.file.flush()
        print(*shown.values(), flush=True)
        if self.device == "cuda":
            torch.cuda.empty_cache()


def main() -> None:
    o = Options()
    with open(o.out, "w", newline="") as file:
        o.open(file)
        for table in o.tables.split(","):
            MEASURES[table](o)


if __name__ == "__main__":
    main()
