"""The mixer and the MLP of M2-BERT and M2-ViT, from the numbers of a configuration."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from danaus.torch.m2_mixer import M2Mixer
from danaus.torch.mlp import GatedMLP
from danaus.torch.models.base import Config, activation_of

OPTIONS = {
    "bidirectional": True, "hyena_w": 10.0, "hyena_w_mod": 1.0,
    "use_monarch_mlp": True, "monarch_mlp_nblocks": 4,
}  # fmt: skip


def mixer_of(c: Config, length: int, normed: bool = False) -> M2Mixer:
    """For sequences of at most `length` tokens."""
    return M2Mixer(
        c.hidden_size,
        length,
        bidirectional=c.bidirectional,
        residual=c.residual_long_conv,
        normed=normed,
        filter={
            "features": c.hyena_emb_dim,
            "order": c.hyena_filter_order,
            "frequency": c.hyena_w,
            "factor": c.hyena_w_mod,
        },
    )


def mlp_of(c: Config, norm: float | None = None) -> GatedMLP:
    """norm: as for `GatedMLP`."""
    return GatedMLP(
        c.hidden_size,
        c.intermediate_size,
        blocks=c.monarch_mlp_nblocks if c.use_monarch_mlp else None,
        gated=c.use_glu_mlp,
        activation=activation_of(c),
        dropout=c.hidden_dropout_prob,
        norm=norm,
    )
