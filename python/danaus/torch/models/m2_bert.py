"""Monarch Mixer BERT: an encoder without attention, whose cost grows as n log n.

Source: Fu et al., Monarch Mixer, NeurIPS 2023 (arXiv 2310.12109). Parameters have the
names of the authors' checkpoints; docs/models.md has the formulas. Sequences do not see
each other's padding: a mask packs them (`danaus.torch.models.packing`).
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from danaus.torch._conv_functions import fail
from danaus.torch.functional import ACTIVATIONS
from danaus.torch.models.base import (
    Config,
    activation_of,
    classes_of,
    init_usual,
    need_sizes,
)
from danaus.torch.models.blocks import Blocks
from danaus.torch.models.loss import mean_loss
from danaus.torch.models.m2 import OPTIONS, mixer_of, mlp_of
from danaus.torch.models.outputs import EncoderOutput, LogitsOutput, classified, wide
from danaus.torch.models.packing import Packing, Sequences, packing_of

__all__ = [
    "M2BertConfig",
    "M2BertForMaskedLM",
    "M2BertForSequenceClassification",
    "M2BertModel",
]


class M2BertConfig(Config):
    """Sizes, named as in the published config.json; by default those of 80M."""

    model_type = "m2_bert"

    defaults = OPTIONS | {
        "vocab_size": 30528, "hidden_size": 768, "num_hidden_layers": 12,
        "intermediate_size": 3072, "long_conv_l_max": 128,
        "max_position_embeddings": None, "type_vocab_size": 2, "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1, "initializer_range": 0.02, "layer_norm_eps": 1e-12,
        "pad_token_id": 0, "residual_long_conv": True, "hyena_filter_order": 128,
        "hyena_emb_dim": 5, "hyena_training_additions": False, "use_glu_mlp": True,
        "pool_all": False, "tie_word_embeddings": True,
    }  # fmt: skip

    def __init__(self, **given: Any):
        super().__init__(**given)
        if self.max_position_embeddings is None:
            self.max_position_embeddings = self.long_conv_l_max

    @classmethod
    def recognizes(cls, found: dict[str, Any]) -> bool:
        kind = found.get("model_type")
        return kind in ("m2_bert", "m2-bert") or (
            kind == "bert" and "long_conv_l_max" in found
        )


class _Embeddings(nn.Module):
    def __init__(self, c: M2BertConfig):
        super().__init__()
        width = c.hidden_size
        self.word_embeddings = nn.Embedding(c.vocab_size, width, c.pad_token_id)
        self.position_embeddings = nn.Embedding(c.max_position_embeddings, width)
        self.token_type_embeddings = nn.Embedding(c.type_vocab_size, width)
        self.LayerNorm = nn.LayerNorm(width, eps=c.layer_norm_eps)
        self.dropout = nn.Dropout(c.hidden_dropout_prob)

    def forward(self, ids: Tensor, types: Tensor | None, places: Tensor) -> Tensor:
        x = self.word_embeddings(ids) + self.position_embeddings(places)
        types = torch.zeros_like(ids) if types is None else types
        return self.dropout(self.LayerNorm(x + self.token_type_embeddings(types)))


class _Layer(nn.Module):
    def __init__(self, c: M2BertConfig):
        super().__init__()
        self.attention = mixer_of(c, c.long_conv_l_max, c.hyena_training_additions)
        self.mlp = mlp_of(c, c.layer_norm_eps)

    def forward(self, h: Tensor, offsets: Tensor | None) -> Tensor:
        return self.mlp(self.attention(h, offsets))


class _Encoder(nn.Module):
    def __init__(self, c: M2BertConfig):
        super().__init__()
        self.layer = Blocks(_Layer(c) for _ in range(c.num_hidden_layers))


class _Pooler(nn.Module):
    def __init__(self, c: M2BertConfig):
        super().__init__()
        self.dense = nn.Linear(c.hidden_size, c.hidden_size)
        self.takes_all = c.pool_all

    def forward(self, h: Tensor, packing: Packing) -> Tensor:
        first = packing.means(h) if self.takes_all else packing.firsts(h)
        return torch.tanh(self.dense(first))


class M2BertPreTrained(Sequences):
    config_class = M2BertConfig
    base_model_prefix = "bert"
    heads = "cls.", "classifier.", "pooler."

    def __init__(self, config: M2BertConfig):
        need_sizes(
            config, "vocab_size", "hidden_size", "num_hidden_layers",
            "intermediate_size", "long_conv_l_max", "max_position_embeddings",
            "type_vocab_size", "hyena_filter_order", "monarch_mlp_nblocks",
        )  # fmt: skip
        super().__init__(config)

    def _init_weights(self, module: nn.Module) -> None:
        """Section 2.12 of the authors' recipe: normal weights, biases of zero, also in
        the filters' networks."""
        init_usual(module, self.config.initializer_range)

    def embedder(self) -> nn.Module:
        return getattr(self, "bert", self).embeddings

    @staticmethod
    def own_name(name: str) -> str | None:
        name = name.removeprefix("module.").removeprefix("model.")
        is_tied = name == "cls.predictions.decoder.weight"
        if is_tied or ".flashfft." in name or name.endswith(".position_ids"):
            return None
        return name


class M2BertModel(M2BertPreTrained):
    """The encoder: rows of the last layer, and a pooled row if there is a pooler.

    forward(input_ids, attention_mask=None, token_type_ids=None, offsets=None):
    input_ids are [batch, length] with a mask of that shape (ones: tokens that count),
    or packed sequences [1, tokens] with offsets, as for `long_conv`. Tokens that a mask
    leaves out have no effect on the others, and rows of zeros. Without a mask padding
    counts, as in the authors' code.
    """

    def __init__(self, config: M2BertConfig, add_pooling_layer: bool = True):
        super().__init__(config)
        self.embeddings = _Embeddings(config)
        self.encoder = _Encoder(config)
        self.pooler = _Pooler(config) if add_pooling_layer else None
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        offsets: Any = None,
        **ignored: Any,
    ) -> EncoderOutput:
        packing = self.packing(input_ids, attention_mask, offsets)
        h = self.run(input_ids, token_type_ids, packing)
        pooled = None if self.pooler is None else self.pooler(h, packing)
        return EncoderOutput(packing.unpack(h), pooled)

    def packing(self, ids: Tensor, mask: Tensor | None, offsets: Any) -> Packing:
        c = self.config
        most = min(c.long_conv_l_max, c.max_position_embeddings)
        table = self.get_input_embeddings().weight
        return packing_of(ids, mask, offsets, most, c.vocab_size, table, self.group)

    def run(self, ids: Tensor, types: Tensor | None, packing: Packing) -> Tensor:
        """Rows of the last layer, packed if the sequences are."""
        ids = packing.pack(ids)
        types = None if types is None else packing.pack(types)
        h = self.embeddings(ids, types, packing.places(ids))
        return self.encoder.layer(h, packing.offsets)


class _Transform(nn.Module):
    def __init__(self, c: M2BertConfig):
        super().__init__()
        self.dense = nn.Linear(c.hidden_size, c.hidden_size)
        self.LayerNorm = nn.LayerNorm(c.hidden_size, eps=c.layer_norm_eps)
        self.activate = ACTIVATIONS[activation_of(c)]

    def forward(self, h: Tensor) -> Tensor:
        return self.LayerNorm(self.activate(self.dense(h)))


class _TiedDecoder(nn.Module):
    """Its weight is the table of words."""

    def __init__(self, words: int):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(words))


class _Predictions(nn.Module):
    def __init__(self, c: M2BertConfig):
        super().__init__()
        self.transform = _Transform(c)
        self.decoder = _TiedDecoder(c.vocab_size)

    def forward(self, h: Tensor, table: Tensor) -> Tensor:
        return nn.functional.linear(self.transform(h), table, self.decoder.bias)


class M2BertForMaskedLM(M2BertPreTrained):
    """Scores of words for every token; with labels the mean cross-entropy of those that
    are not -100, for which alone scores are then computed: logits [labels, words].

    label_places names the tokens of these labels, as places in the flattened labels;
    others among them may have the label -100. Then no size depends on labels: a GPU is
    not waited for, and compiled code has no graph break, also without fullgraph. It is
    not for batches with an attention_mask.
    """

    def __init__(self, config: M2BertConfig):
        super().__init__(config)
        self.bert = M2BertModel(config, add_pooling_layer=False)
        self.cls = nn.ModuleDict({"predictions": _Predictions(config)})
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        offsets: Any = None,
        label_places: Tensor | None = None,
        **ignored: Any,
    ) -> LogitsOutput:
        bert = self.bert
        packing = bert.packing(input_ids, attention_mask, offsets)
        if label_places is not None and packing.mask is not None:
            fail("label_places and attention_mask exclude each other")
        h = bert.run(input_ids, token_type_ids, packing)
        table = self.get_input_embeddings().weight
        if labels is None:
            return LogitsOutput(None, packing.unpack(self.cls.predictions(h, table)))
        labels = packing.pack(labels).flatten()
        asked = labels != -100 if label_places is None else label_places
        logits = self.cls.predictions(h.flatten(0, 1)[asked], table)
        labels = labels[asked]
        loss = mean_loss(wide(logits), labels, packing.counted(labels))
        return LogitsOutput(loss, logits)


class M2BertForSequenceClassification(M2BertPreTrained):
    """Scores of classes, num_labels of the configuration; one is a number to fit."""

    def __init__(self, config: M2BertConfig):
        super().__init__(config)
        self.bert = M2BertModel(config)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, classes_of(config))
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        offsets: Any = None,
        **ignored: Any,
    ) -> LogitsOutput:
        found = self.bert(input_ids, attention_mask, token_type_ids, offsets)
        return classified(self.classifier(self.dropout(found.pooler_output)), labels)
