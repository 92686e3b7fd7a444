"""Pictures as tokens: what vision models share."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from torch import Tensor, nn

from danaus.torch._conv_functions import fail
from danaus.torch.models.base import Config, need_sizes

SIZES = {
    "hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 3072,
    "image_size": 224, "patch_size": 16, "num_channels": 3, "hidden_act": "gelu",
    "layer_norm_eps": 1e-6, "initializer_range": 0.02, "hidden_dropout_prob": 0.0,
    "drop_path_rate": 0.1,
}  # fmt: skip


def side_of(config: Config) -> int:
    """Patches along a side; pixels beyond the last whole one are left out."""
    need_sizes(config, "image_size", "patch_size")
    side = config.image_size // config.patch_size
    if side < 1:
        fail(f"patches of {config.patch_size} pixels in images of {config.image_size}")
    return side


def patch_layer(config: Config) -> nn.Module:
    """Of pixels [images, channels, size, size] rows [images, width, side, side]."""
    size = config.patch_size
    return nn.Conv2d(config.num_channels, config.hidden_size, size, stride=size)


def check_pictures(pixels: Tensor, config: Config) -> None:
    """Pixels have the configuration's shape."""
    channels, size = config.num_channels, config.image_size
    if pixels.dim() != 4 or list(pixels.shape[1:]) != [channels, size, size]:
        fail(
            f"pixel_values have the shape {list(pixels.shape)}; [any, {channels}, "
            f"{size}, {size}] is needed"
        )
