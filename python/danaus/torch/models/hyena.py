"""Causal models of Hyena's kind: HyenaDNA, Hyena language models and M2-GPT.

Sources: Poli et al., Hyena Hierarchy, ICML 2023 (arXiv 2302.10866); Nguyen et al.,
HyenaDNA, NeurIPS 2023 (arXiv 2306.15794). Parameters have the names of the authors'
checkpoints; docs/models.md has the formulas.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from danaus.torch._conv_functions import fail, long_conv, short_conv
from danaus.torch._hyena_functions import hyena, mix_heads, split_hyena
from danaus.torch._split import Split, Splittable, split_of
from danaus.torch.functional import ACTIVATIONS, activation_name
from danaus.torch.implicit import HyenaFilter
from danaus.torch.models.base import Config, Generates, init_usual, need_sizes
from danaus.torch.models.blocks import Blocks
from danaus.torch.models.loss import cross_entropy, mean_loss
from danaus.torch.models.outputs import EncoderOutput, LogitsOutput, wide
from danaus.torch.models.packing import Packing, Sequences, packing_of
from danaus.torch.projections import from_rows, to_rows
from danaus.torch.short_filter import ShortFilter

# fmt: off
__all__ = [
    "HyenaConfig", "HyenaForCausalLM", "HyenaModel",
    "HyenaDNAConfig", "HyenaDNAForCausalLM", "HyenaDNAModel",
]
# fmt: on

_EPSILON = 1e-5  # of all norms but the last
_MOST_TOKENS = 1 << 24  # of a sequence, as in C


class HyenaConfig(Config):
    """Sizes, named as in HyenaDNA's config.json. Without d_inner, blocks end with the
    mixer, as in M2-GPT. With filter_taps, long filters are cut to so many taps, and
    sequences may be longer than max_seq_len: partial convolutions of Fu et al.,
    FlashFFTConv (arXiv 2311.05908)."""

    model_type = "hyena"
    defaults = {
        "vocab_size": 50257, "d_model": 864, "n_layer": 18, "d_inner": None,
        "max_seq_len": 2048, "emb_dim": 33, "filter_order": 64, "hyena_order": 2,
        "num_inner_mlps": 2, "short_filter_order": 3, "pad_vocab_size_multiple": 8,
        "layer_norm_epsilon": 1e-5, "activation_freq": 14.0, "filter_shift": 0.0,
        "filter_modulate": True, "filter_w_mod": 1.0, "filter_taps": None,
        "head_dim": 1, "embed_dropout": 0.1, "initializer_range": 0.02,
        "use_cache": False, "tie_word_embeddings": True,
    }  # fmt: skip

    def __init__(self, **given: Any):
        super().__init__(**given)

    @property
    def longest(self) -> int:
        """The most tokens of a sequence."""
        return self.max_seq_len if self.filter_taps is None else _MOST_TOKENS

    @property
    def rows(self) -> int:
        """The number of rows of the table of words."""
        multiple = self.pad_vocab_size_multiple
        return -(-self.vocab_size // multiple) * multiple


class HyenaDNAConfig(HyenaConfig):
    """The same with HyenaDNA's usual numbers; default sizes are those of tiny-1k."""

    model_type = "hyenadna"
    defaults = HyenaConfig.defaults | {
        "vocab_size": 12, "d_model": 128, "n_layer": 2, "d_inner": 512,
        "max_seq_len": 1026, "emb_dim": 5, "activation_freq": 10.0,
        "filter_shift": 0.05,
    }  # fmt: skip

    def __init__(self, **given: Any):
        super().__init__(**given)


def _taps_of(c: Any) -> int:
    """The taps of a model's long filters."""
    if c.filter_taps is None:
        return c.max_seq_len
    need_sizes(c, "filter_taps")
    if c.filter_taps > c.max_seq_len:
        fail(f"filter_taps is {c.filter_taps}; at most {c.max_seq_len} are possible")
    return c.filter_taps


class HyenaMixer(nn.Module, Splittable):
    """The Hyena operator with the names of the authors' checkpoints; c has the numbers
    of a `HyenaConfig`."""

    no_plain_form = "it has none; torch.onnx.export takes the model itself"

    def __init__(self, c: Any):
        super().__init__()
        width, self.order, self.head_dim = c.d_model, c.hyena_order, c.head_dim
        self.in_proj = nn.Linear(width, (self.order + 1) * width)
        self.out_proj = nn.Linear(width, width)
        self.short_filter = ShortFilter((self.order + 1) * width, c.short_filter_order)
        self.filters, self.filter_taps = width // c.head_dim, _taps_of(c)
        self.filter_fn = HyenaFilter(
            (self.order - 1) * self.filters,
            c.max_seq_len,
            features=c.emb_dim,
            order=c.filter_order,
            layers=c.num_inner_mlps,
            frequency=c.activation_freq,
            factor=c.filter_w_mod,
            shift=c.filter_shift,
            window=c.filter_modulate,
        )

    def forward(
        self, u: Tensor, offsets: Tensor | None = None, longest: int | None = None
    ) -> Tensor:
        longest = u.shape[1] if longest is None else longest
        length, skip = min(longest, self.filter_taps), self.filter_fn.bias
        call = offsets, longest
        split = split_of(self.group, u, u.shape[2], self.head_dim, call)
        rows = to_rows(self.in_proj, u)
        taps = self.short_filter.taps(), self.short_filter.bias
        if split is not None:
            y = self._mix_split(split, rows, taps, length, offsets)
        elif self.head_dim > 1:
            k = self.filter_fn(length)
            y = mix_heads(
                short_conv(rows, *taps, offsets=offsets),
                self.head_dim,
                lambda p: long_conv(p, k, skip=skip, offsets=offsets),
            )
        else:
            each = self.order - 1, self.filters
            k = self.filter_fn(length).unflatten(0, each)
            y = hyena(rows, *taps, k, skip.unflatten(0, each), offsets=offsets)
        return from_rows(self.out_proj, y)

    def _mix_split(self, split: Split, rows: Tensor, taps, length: int, offsets):
        """The operator of a piece of the rows, with the filters of own channels."""
        every = torch.arange(len(self.filter_fn.bias)).unflatten(
            0, (self.order - 1, -1)
        )
        own = every[:, split.filters(self.filters)].to(rows.device)
        k = self.filter_fn(length, own.flatten()).unflatten(0, own.shape)
        both = k, self.filter_fn.bias[own]
        long = ([split.by_parts(x, self.filters) for x in each] for each in both)
        return split_hyena(split, rows, *taps, *long, self.head_dim, offsets=offsets)


class Mlp(nn.Module):
    """fc2(activation(fc1(x)))."""

    def __init__(self, width: int, inner: int, activation: str = "gelu_tanh"):
        super().__init__()
        self.activation = activation_name(activation)
        self.fc1, self.fc2 = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(ACTIVATIONS[self.activation](self.fc1(x)))


class _Block(nn.Module):
    """r keeps the type of its parameters, also under autocast."""

    def __init__(self, c: HyenaConfig):
        super().__init__()
        self.norm1 = nn.LayerNorm(c.d_model, eps=_EPSILON)
        self.mixer = HyenaMixer(c)
        self.norm2 = self.mlp = None
        if c.d_inner:
            self.norm2 = nn.LayerNorm(c.d_model, eps=_EPSILON)
            self.mlp = Mlp(c.d_model, c.d_inner)
        for last in (self.mixer.out_proj, getattr(self.mlp, "fc2", None)):
            if last is not None:  # the sum over blocks keeps its size
                last.start = (2 * c.n_layer) ** -0.5

    def forward(self, r: Tensor, offsets: Tensor | None, longest: int) -> Tensor:
        r = r + self.mixer(self.norm1(r), offsets, longest)
        return r if self.mlp is None else r + self.mlp(self.norm2(r))


class _Embeddings(nn.Module):
    def __init__(self, c: HyenaConfig):
        super().__init__()
        self.word_embeddings = nn.Embedding(c.rows, c.d_model)


class _Backbone(nn.Module):
    def __init__(self, c: HyenaConfig):
        super().__init__()
        self.embeddings = _Embeddings(c)
        self.dropout = nn.Dropout(c.embed_dropout)
        self.layers = Blocks(_Block(c) for _ in range(c.n_layer))
        self.ln_f = nn.LayerNorm(c.d_model, eps=c.layer_norm_epsilon)

    def forward(self, ids: Tensor, offsets: Tensor | None, longest: int) -> Tensor:
        r = self.dropout(self.embeddings.word_embeddings(ids))
        return self.ln_f(self.layers(r, offsets, longest))


class HyenaPreTrained(Sequences):
    config_class = HyenaConfig
    base_model_prefix = "hyena"

    def __init__(self, config: HyenaConfig):
        sizes = (
            "vocab_size d_model n_layer max_seq_len filter_order hyena_order "
            "short_filter_order pad_vocab_size_multiple head_dim"
        )
        need_sizes(config, *sizes.split())
        if config.d_model % config.head_dim:
            fail(
                f"d_model is {config.d_model}, no multiple of head_dim "
                f"{config.head_dim}"
            )
        if config.head_dim > 1 and config.hyena_order != 2:
            fail(f"a head_dim of {config.head_dim} needs the hyena_order 2")
        super().__init__(config)
        self.backbone = _Backbone(config)
        self.post_init()

    def embedder(self) -> nn.Module:
        return self.backbone.embeddings

    def _init_weights(self, module: nn.Module) -> None:
        init_usual(module, self.config.initializer_range * getattr(module, "start", 1))

    @staticmethod
    def own_name(name: str) -> str | None:
        name = name.removeprefix("hyena.").removeprefix("model.")
        for part in ("mixer", "mlp"):
            name = name.replace(f".{part}.layer.", f".{part}.")
        return None if name == "lm_head.weight" else name  # tied

    def packing(self, ids: Tensor, mask: Tensor | None, offsets: Any) -> Packing:
        c, table = self.config, self.get_input_embeddings().weight
        return packing_of(ids, mask, offsets, c.longest, c.rows, table, self.group)

    def run(self, ids: Tensor, packing: Packing) -> Tensor:
        """Rows of the last norm, packed if the sequences are."""
        ids = packing.pack(ids)
        return self.backbone(ids, packing.offsets, packing.longest)


class HyenaModel(HyenaPreTrained):
    """States of every token, [batch, length, d_model].

    forward(input_ids, attention_mask=None, offsets=None), as for `M2BertModel`.
    """

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        offsets: Any = None,
        **ignored: Any,
    ) -> EncoderOutput:
        packing = self.packing(input_ids, attention_mask, offsets)
        return EncoderOutput(packing.unpack(self.run(input_ids, packing)))


class HyenaForCausalLM(HyenaPreTrained, Generates):
    """Scores of the next token, [batch, length, rows of the table]; with labels the
    mean cross-entropy of those after the first of a sequence that are not -100. With
    loss_only there are no scores, whose memory a large vocabulary fills.
    generate() of transformers leaves out rows beyond vocab_size."""

    def __init__(self, config: HyenaConfig):
        super().__init__(config)
        if getattr(self, "generation_config", None) is not None:
            beyond = list(range(config.vocab_size, config.rows))
            self.generation_config.suppress_tokens = beyond or None

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        offsets: Any = None,
        loss_only: bool = False,
        **ignored: Any,
    ) -> LogitsOutput:
        if loss_only and labels is None:
            fail("loss_only needs labels")
        packing = self.packing(input_ids, attention_mask, offsets)
        h = self.run(input_ids, packing)
        table = self.get_input_embeddings().weight
        if labels is not None:
            labels = packing.shifted(packing.pack(labels)).flatten()
            counted = packing.counted(labels)
        if loss_only:
            return LogitsOutput(cross_entropy(h.flatten(0, 1), table, labels, counted))
        logits = nn.functional.linear(h, table)
        loss = None
        if labels is not None:
            loss = mean_loss(wide(logits.flatten(0, 1)), labels, counted)
        return LogitsOutput(loss, packing.unpack(logits))

    def prepare_inputs_for_generation(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **ignored: Any
    ) -> dict[str, Any]:
        return {"input_ids": input_ids, "attention_mask": attention_mask}


class HyenaDNAModel(HyenaModel):
    """`HyenaModel` of a `HyenaDNAConfig`."""

    config_class = HyenaDNAConfig


class HyenaDNAForCausalLM(HyenaForCausalLM):
    """`HyenaForCausalLM` of a `HyenaDNAConfig`."""

    config_class = HyenaDNAConfig
