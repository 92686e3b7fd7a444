"""Pictures as tokens: what vision models share."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn

from danaus.torch._conv_functions import fail
from danaus.torch.models.base import Config, Pretrained, init_usual, need_sizes
from danaus.torch.models.outputs import LogitsOutput, classified

SIZES = {
    "hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 3072,
    "image_size": 224, "patch_size": 16, "num_channels": 3, "hidden_act": "gelu",
    "layer_norm_eps": 1e-6, "initializer_range": 0.02, "hidden_dropout_prob": 0.0,
    "drop_path_rate": 0.1,
}  # fmt: skip


def patches_of(config: Config) -> int:
    """How many patches a picture has; pixels beyond the last whole one are left out."""
    need_sizes(config, "image_size", "patch_size")
    side = config.image_size // config.patch_size
    if side < 1:
        fail(f"patches of {config.patch_size} pixels in images of {config.image_size}")
    return side**2


def shares_of(config: Config) -> list[float]:
    """The share of samples that each layer's branches lose in training: 0 in the first
    layer, drop_path_rate in the last one."""
    layers = config.num_hidden_layers
    return [config.drop_path_rate * i / max(1, layers - 1) for i in range(layers)]


class Patches(nn.Conv2d):
    """Rows [images, patches, width] of pixels [images, channels, size, size]."""

    def __init__(self, c: Config):
        super().__init__(c.num_channels, c.hidden_size, c.patch_size, c.patch_size)
        self.shape = [c.num_channels, c.image_size, c.image_size]

    def forward(self, pixels: Tensor) -> Tensor:
        found = list(pixels.shape)
        if len(found) != 4 or found[1:] != self.shape:
            wanted = ", ".join(map(str, self.shape))
            fail(f"pixel_values have the shape {found}; [any, {wanted}] is needed")
        return super().forward(pixels).flatten(2).mT


class Pictures(Pretrained):
    """A model of pixels; its configuration has `SIZES`."""

    main_input_name = "pixel_values"
    needs_whole_rows = True
    supports_gradient_checkpointing = True
    sizes: ClassVar[tuple[str, ...]] = ()  # other numbers that are at least 1

    def __init__(self, config: Config):
        names = "hidden_size num_hidden_layers intermediate_size num_channels"
        need_sizes(config, *names.split(), *self.sizes)
        patches_of(config)
        super().__init__(config)

    def _init_weights(self, module: nn.Module) -> None:
        init_usual(module, self.config.initializer_range)


class Classifies(Pictures):
    """Scores of classes, num_labels of the configuration; with labels their mean
    cross-entropy. forward(pixel_values [images, channels, size, size], labels)."""

    def scores(self, pixels: Tensor) -> Tensor:
        """[images, classes]."""
        raise NotImplementedError

    def forward(
        self, pixel_values: Tensor, labels: Tensor | None = None, **ignored: Any
    ) -> LogitsOutput:
        return classified(self.scores(pixel_values), labels)
