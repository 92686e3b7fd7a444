"""Layers and functions for PyTorch (2.10 and later), on CPUs and CUDA GPUs.

docs/python.md, section PyTorch, is the guide.
"""

# SPDX-License-Identifier: Apache-2.0
from danaus.torch import _flops, _transformers, functional
from danaus.torch.block_diagonal import BlockDiagonalLinear
from danaus.torch.chebyshev_conv import ChebyshevConv
from danaus.torch.composed import InterpolatedLinear, SumLinear
from danaus.torch.compress import compress
from danaus.torch.conv import LongConv, ShortConv
from danaus.torch.conv2d import LongConv2d
from danaus.torch.freeze import freeze
from danaus.torch.fuse import FusedLinear, fuse_qkv
from danaus.torch.hyena import GatedLongConv, HyenaOperator
from danaus.torch.implicit import HyenaFilter
from danaus.torch.linear import KSLinear
from danaus.torch.m2_mixer import M2Mixer
from danaus.torch.mlp import GatedMLP
from danaus.torch.monarch import CausalMonarchConv
from danaus.torch.monarch_conv import MonarchConv
from danaus.torch.monarch_linear import MonarchLinear
from danaus.torch.monarch_mixer import MonarchMixerLayer
from danaus.torch.multivariate_conv import MultivariateConv
from danaus.torch.packing import pack_after
from danaus.torch.plain import to_plain
from danaus.torch.replace import Report, replace_linear
from danaus.torch.saving import load_compressed, save_compressed
from danaus.torch.sequence_parallel import average_gradients, split_sequence
from danaus.torch.structure import apply_structure, structure_of

# One line for each module.
# fmt: off
__all__ = [
    "functional",
    "BlockDiagonalLinear", "GatedMLP", "HyenaFilter", "M2Mixer", "MonarchMixerLayer",
    "FusedLinear", "KSLinear", "MonarchLinear", "freeze", "fuse_qkv",
    "pack_after",
    "CausalMonarchConv", "GatedLongConv", "HyenaOperator", "LongConv", "LongConv2d",
    "ShortConv",
    "ChebyshevConv", "MonarchConv", "MultivariateConv",
    "InterpolatedLinear", "SumLinear", "Report", "compress", "replace_linear",
    "to_plain",
    "average_gradients", "split_sequence",
    "apply_structure", "load_compressed", "save_compressed", "structure_of",
]
# fmt: on
_flops.install()
_transformers.install()
