"""Rules of torch.func.vmap for products with chains: one call for each sample, or one
for all that share weights."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import torch


def _sample(argument, dim, n: int):
    if isinstance(argument, (list, tuple)):
        return [_sample(a, d, n) for a, d in zip(argument, dim)]
    return argument if dim is None else argument.select(dim, n)


def _stack(results):
    """Results of all samples as one, with a first dimension of samples."""
    if isinstance(results[0], torch.Tensor):
        return torch.stack(results)
    return type(results[0])(_stack(parts) for parts in zip(*results))


def _flat_dims(dims) -> list:
    return [
        d for dim in dims for d in (dim if isinstance(dim, (list, tuple)) else [dim])
    ]


def _vmap_of(operator, shares_weights: bool):
    def rule(info, in_dims, *arguments):
        batch_last = arguments[5]
        if shares_weights and not any(d is not None for d in _flat_dims(in_dims[1:])):
            # More rows of x; those of batch_last are behind its features.
            place = 1 if batch_last else 0
            x = arguments[0].movedim(in_dims[0], place)
            return operator(x, *arguments[1:]), place
        results = [
            operator(*(_sample(a, d, n) for a, d in zip(arguments, in_dims)))
            for n in range(info.batch_size)
        ]
        return _stack(results), 0 if shares_weights else (0, [0] * len(arguments[2]), 0)

    return rule


def register(operators) -> None:
    """Gives the operators their rules."""
    for names, shares in (
        (("ks_linear", "_ks_linear"), True),
        (("ks_linear_backward", "_ks_linear_backward"), False),
    ):
        for name in names:
            rule = _vmap_of(getattr(operators, name), shares)
            torch.library.register_vmap(f"danaus::{name}", rule)
