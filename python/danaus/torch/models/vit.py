"""Vision transformers whose linear layers may be Monarch matrices.

Source: Dosovitskiy et al., ICLR 2021 (arXiv 2010.11929). Parameters have the names of
ViTForImageClassification of transformers, which has dense layers only; Monarch matrices
are as in Dao et al., ICML 2022 (arXiv 2204.00595).
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn

from danaus.torch._conv_functions import fail
from danaus.torch.functional import ACTIVATIONS
from danaus.torch.models import pictures
from danaus.torch.models.base import Config, activation_of, classes_of
from danaus.torch.models.blocks import Blocks, DropPath
from danaus.torch.models.outputs import EncoderOutput
from danaus.torch.monarch_linear import MonarchLinear

__all__ = ["MonarchViTConfig", "MonarchViTForImageClassification", "MonarchViTModel"]


class MonarchViTConfig(Config):
    """Sizes by the names of ViT's config.json; by default ViT-B/16.

    monarch_blocks: blocks of the Monarch matrices in place of the linear layers of all
    transformer blocks; None: dense ones.
    """

    model_type = "vit"
    defaults = pictures.SIZES | {
        "num_attention_heads": 12, "layer_norm_eps": 1e-12, "qkv_bias": True,
        "monarch_blocks": None,
    }  # fmt: skip

    def __init__(self, **given: Any):
        super().__init__(**given)


def _linear(c: MonarchViTConfig, inputs: int, outputs: int) -> nn.Module:
    if c.monarch_blocks is None:
        return nn.Linear(inputs, outputs)
    return MonarchLinear(inputs, outputs, c.monarch_blocks)


def _named(**modules: nn.Module) -> nn.Module:
    """A module for its parameters' names."""
    return nn.Sequential(OrderedDict(modules))


class _Layer(nn.Module):
    def __init__(self, c: MonarchViTConfig, share: float):
        super().__init__()
        width, inner = c.hidden_size, c.intermediate_size
        self.heads = c.num_attention_heads
        self.activation = activation_of(c)
        self.layernorm_before = nn.LayerNorm(width, eps=c.layer_norm_eps)
        self.layernorm_after = nn.LayerNorm(width, eps=c.layer_norm_eps)
        projections = ("query", "key", "value")
        self.attention = nn.ModuleDict(
            {
                "attention": nn.ModuleDict(
                    {n: _linear(c, width, width) for n in projections}
                ),
                "output": _named(dense=_linear(c, width, width)),
            }
        )
        self.intermediate = _named(dense=_linear(c, width, inner))
        self.output = _named(dense=_linear(c, inner, width))
        self.drop_path = DropPath(share)

    def forward(self, h: Tensor) -> Tensor:
        n = self.layernorm_before(h)
        q, k, v = (
            layer(n).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in self.attention["attention"].values()
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        mixed = mixed.transpose(1, 2).flatten(2)
        h = h + self.drop_path(self.attention["output"](mixed))
        m = ACTIVATIONS[self.activation](self.intermediate(self.layernorm_after(h)))
        return h + self.drop_path(self.output(m))


class _Embeddings(nn.Module):
    def __init__(self, c: MonarchViTConfig):
        super().__init__()
        tokens, width = 1 + pictures.patches_of(c), c.hidden_size
        self.cls_token = nn.Parameter(torch.empty(1, 1, width))
        self.position_embeddings = nn.Parameter(torch.empty(1, tokens, width))
        self.patch_embeddings = _named(projection=pictures.Patches(c))
        self.dropout = nn.Dropout(c.hidden_dropout_prob)

    def forward(self, pixels: Tensor) -> Tensor:
        rows = self.patch_embeddings(pixels)
        token = self.cls_token.expand(rows.shape[0], -1, -1).to(rows)
        return self.dropout(torch.cat([token, rows], 1) + self.position_embeddings)


class _Encoder(nn.Module):
    def __init__(self, c: MonarchViTConfig):
        super().__init__()
        self.layer = Blocks(_Layer(c, share) for share in pictures.shares_of(c))


class MonarchViTPreTrained(pictures.Pictures):
    config_class = MonarchViTConfig
    base_model_prefix = "vit"
    heads = ("classifier.",)
    sizes = ("num_attention_heads",)

    def __init__(self, config: MonarchViTConfig):
        super().__init__(config)
        if config.hidden_size % config.num_attention_heads:
            fail(
                f"hidden_size {config.hidden_size} is no multiple of "
                f"num_attention_heads {config.num_attention_heads}"
            )
        if not config.qkv_bias:
            fail("qkv_bias is false; q, k and v have biases here")

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, _Embeddings):
            for x in (module.cls_token, module.position_embeddings):
                nn.init.normal_(x, std=self.config.initializer_range)


class MonarchViTModel(MonarchViTPreTrained):
    """Rows of the last norm, and the class token's row. forward(pixel_values)."""

    def __init__(self, config: MonarchViTConfig):
        super().__init__(config)
        self.embeddings = _Embeddings(config)
        self.encoder = _Encoder(config)
        self.layernorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.post_init()

    def forward(self, pixel_values: Tensor, **ignored: Any) -> EncoderOutput:
        n = self.layernorm(self.encoder.layer(self.embeddings(pixel_values)))
        return EncoderOutput(n, n[:, 0])


class MonarchViTForImageClassification(MonarchViTPreTrained, pictures.Classifies):
    __doc__ = pictures.Classifies.__doc__

    def __init__(self, config: MonarchViTConfig):
        super().__init__(config)
        self.vit = MonarchViTModel(config)
        self.classifier = nn.Linear(config.hidden_size, classes_of(config))
        self.post_init()

    def scores(self, pixels: Tensor) -> Tensor:
        return self.classifier(self.vit(pixels).pooler_output)
