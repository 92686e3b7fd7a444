"""Structured linear algebra: Kronecker-sparse products, factorization, convolutions.

docs/python.md is the guide. ``danaus.torch`` has layers for PyTorch, ``danaus.plot``
pictures; both are imported by name.
"""
# SPDX-License-Identifier: Apache-2.0
from danaus import patterns
from danaus._library import version
from danaus.chain import Chain, apply
from danaus.device import Device, DeviceInfo, default_device, list_devices
from danaus.patterns import Pattern

__version__ = version()

__all__ = [
    "Chain",
    "Device",
    "DeviceInfo",
    "Pattern",
    "apply",
    "default_device",
    "list_devices",
    "patterns",
    "version",
]
