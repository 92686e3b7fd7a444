"""The layers that ``kernelize`` finds by name."""

# SPDX-License-Identifier: Apache-2.0
from danaus.torch.stateless import *  # noqa: F403
