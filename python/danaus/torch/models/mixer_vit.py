"""Vision transformers whose tokens are mixed by long convolutions: HyenaViT and M2-ViT.

Sources: Poli et al., Hyena Hierarchy, ICML 2023 (arXiv 2302.10866), section 4.5, as
VisionTransformer of HazyResearch/safari has it; Fu et al., Monarch Mixer, NeurIPS 2023
(arXiv 2310.12109), M2-ViT. docs/models.md has the formulas. The paper leaves open
whether M2-ViT looks both ways and how its filters are made: it looks both ways here.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from danaus.torch.models import pictures
from danaus.torch.models.base import Config, activation_of, classes_of
from danaus.torch.models.blocks import Blocks, DropPath
from danaus.torch.models.hyena import HyenaMixer, Mlp
from danaus.torch.models.m2 import OPTIONS, mixer_of, mlp_of
from danaus.torch.models.outputs import EncoderOutput

# fmt: off
__all__ = [
    "HyenaViTConfig", "HyenaViTForImageClassification", "HyenaViTModel",
    "M2ViTConfig", "M2ViTForImageClassification", "M2ViTModel",
]
# fmt: on


class HyenaViTConfig(Config):
    """Sizes, named as in ViT's config.json, and filters, as in HyenaDNA's; by default
    ViT-B/16 with the filters of safari's configuration."""

    model_type = "hyena_vit"
    defaults = pictures.SIZES | {
        "hyena_order": 2, "short_filter_order": 5, "emb_dim": 3, "filter_order": 64,
        "num_inner_mlps": 2, "activation_freq": 1.0, "filter_shift": 0.0,
        "filter_modulate": True, "filter_w_mod": 1.0, "filter_taps": None,
    }  # fmt: skip
    head_dim = 1

    def __init__(self, **given: Any):
        super().__init__(**given)

    @property
    def d_model(self) -> int:
        return self.hidden_size

    @property
    def max_seq_len(self) -> int:
        return pictures.patches_of(self)


class M2ViTConfig(Config):
    """Sizes, named as in ViT's config.json, and mixers, as in M2-BERT's; by default
    M2-ViT-b with 45 million parameters."""

    model_type = "m2_vit"
    defaults = pictures.SIZES | OPTIONS | {
        "hyena_filter_order": 64, "hyena_emb_dim": 3, "residual_long_conv": False,
        "use_glu_mlp": False,
    }  # fmt: skip

    def __init__(self, **given: Any):
        super().__init__(**given)


class _Block(nn.Module):
    """h + mixer(norm1(h)), then the same with the MLP."""

    def __init__(self, c: Config, share: float, mixer: nn.Module, mlp: nn.Module):
        super().__init__()
        self.norm1 = nn.LayerNorm(c.hidden_size, eps=c.layer_norm_eps)
        self.norm2 = nn.LayerNorm(c.hidden_size, eps=c.layer_norm_eps)
        self.mixer, self.mlp = mixer, mlp
        self.drop_path = DropPath(share)

    def forward(self, h: Tensor) -> Tensor:
        h = h + self.drop_path(self.mixer(self.norm1(h)))
        return h + self.drop_path(self.mlp(self.norm2(h)))


def sinusoids(length: int, width: int) -> Tensor:
    """Positions [length, width]: row t has sines of t / 10000^(2i / width) in columns
    2i, cosines in 2i + 1 (Vaswani et al., arXiv 1706.03762, section 3.5)."""
    even = torch.arange(0, width, 2, dtype=torch.float64)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * 1e4 ** (-even / width)
    both = torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
    return both[:, :width].float()


class _MixerViT(pictures.Pictures):
    heads = ("head.",)

    def __init__(self, config: Config):
        super().__init__(config)
        self.patch_embed = nn.ModuleDict({"proj": pictures.Patches(config)})
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.blocks = Blocks(
            self.block(config, share) for share in pictures.shares_of(config)
        )
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def block(self, config: Config, share: float) -> nn.Module:
        """One that leaves out a share of its branches in training."""
        raise NotImplementedError

    def positions(self, h: Tensor) -> Tensor:
        """h [images, patches, width] with what says where each patch is."""
        return h

    def embed(self, pixels: Tensor) -> EncoderOutput:
        h = self.patch_embed["proj"](pixels)
        n = self.norm(self.blocks(self.dropout(self.positions(h))))
        return EncoderOutput(n, n.mean(1))


class _Hyena(_MixerViT):
    config_class = HyenaViTConfig
    sizes = "hyena_order", "short_filter_order", "filter_order", "emb_dim"

    def block(self, config: HyenaViTConfig, share: float) -> nn.Module:
        mlp = Mlp(config.hidden_size, config.intermediate_size, activation_of(config))
        return _Block(config, share, HyenaMixer(config), mlp)


class _M2(_MixerViT):
    config_class = M2ViTConfig
    sizes = "hyena_filter_order", "hyena_emb_dim", "monarch_mlp_nblocks"

    def __init__(self, config: M2ViTConfig):
        super().__init__(config)
        places = sinusoids(pictures.patches_of(config), config.hidden_size)
        self.register_buffer("places", places, persistent=False)

    def block(self, config: M2ViTConfig, share: float) -> nn.Module:
        mixer = mixer_of(config, pictures.patches_of(config))
        return _Block(config, share, mixer, mlp_of(config))

    def positions(self, h: Tensor) -> Tensor:
        return h + self.places.to(h.dtype)


class _Classifies(_MixerViT, pictures.Classifies):
    def __init__(self, config: Config):
        super().__init__(config)
        self.head = nn.Linear(config.hidden_size, classes_of(config))
        self.post_init()

    def scores(self, pixels: Tensor) -> Tensor:
        return self.head(self.embed(pixels).pooler_output)


class _Encodes(_MixerViT):
    """Rows of all patches, and their mean. forward(pixel_values)."""

    def __init__(self, config: Config):
        super().__init__(config)
        self.post_init()

    def forward(self, pixel_values: Tensor, **ignored: Any) -> EncoderOutput:
        return self.embed(pixel_values)


class HyenaViTModel(_Hyena, _Encodes):
    __doc__ = _Encodes.__doc__


class HyenaViTForImageClassification(_Hyena, _Classifies):
    __doc__ = pictures.Classifies.__doc__


class M2ViTModel(_M2, _Encodes):
    __doc__ = _Encodes.__doc__


class M2ViTForImageClassification(_M2, _Classifies):
    __doc__ = pictures.Classifies.__doc__
