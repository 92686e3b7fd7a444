"""Structured linear algebra: Kronecker-sparse products, factorization, convolutions.

docs/python.md is the guide. ``danaus.torch`` has layers for PyTorch, ``danaus.plot``
pictures; both are imported by name.
"""
# SPDX-License-Identifier: Apache-2.0
from danaus import patterns, records, transforms
from danaus._apply import apply
from danaus._arrays import convert
from danaus._chain_files import load_chains
from danaus._convolve import convolve
from danaus._library import version
from danaus.algebra import add, block_diag, hstack, kron, vstack
from danaus.chain import Chain, Condition
from danaus.compress import Candidate, Compression, compress
from danaus.conv import ConvGradients, ConvPlan, Spectrum
from danaus.device import Device, DeviceInfo, default_device, list_devices
from danaus.factorize import Calibration, Factorization, factorize
from danaus.hyena import Hyena, HyenaGradients, HyenaPlan
from danaus.many import factorize_many
from danaus.match import match_templates
from danaus.model import Filling, Model, ModelCost, ModelInfo, ModelLayer
from danaus.operator import Operator
from danaus.patterns import Pattern, select_ks_pattern
from danaus.permute import Permutations, find_permutations
from danaus.plan import Gradients, Plan, Weights
from danaus.short import ShortGradients, short_conv, short_conv_gradient
from danaus.stream import Stream
from danaus.sums import Step, SumFactorization, compress_sum, factorize_sum
from danaus.tokenizer import Tokenizer

__version__ = version()

# One line for each module.
# fmt: off
__all__ = [
    "version", "convert", "records", "transforms",
    "patterns", "Pattern", "select_ks_pattern",
    "Chain", "Condition", "apply",
    "add", "block_diag", "hstack", "kron", "vstack", "Operator",
    "ConvGradients", "ConvPlan", "Spectrum", "convolve", "match_templates",
    "ShortGradients", "short_conv", "short_conv_gradient", "Stream",
    "Hyena", "HyenaGradients", "HyenaPlan",
    "Device", "DeviceInfo", "default_device", "list_devices",
    "Candidate", "Compression", "compress",
    "Calibration", "Factorization", "factorize", "factorize_many", "load_chains",
    "SumFactorization", "Step", "factorize_sum", "compress_sum",
    "Permutations", "find_permutations",
    "Gradients", "Plan", "Weights",
    "Filling", "Model", "ModelCost", "ModelInfo", "ModelLayer",
    "Tokenizer",
]
# fmt: on
