"""One product of a chain or an operator with its bias, without a plan of your own."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import numpy as np

from danaus._arrays import choose, operand, pointer, short_name
from danaus._exchange import OnDevice, device_for, exchanged
from danaus._library import check, ffi, handle_of, lib
from danaus.device import Device, chosen
from danaus.plan import LAYOUTS, Plan, batch_of, batched_shape


@exchanged
def apply(
    chain: Any,
    x: np.ndarray,
    *,
    layout: str = "batch-first",
    device: Device | str | None = None,
) -> np.ndarray:
    """One product y = W x + bias, of the chain's own type.

    Parameters
    ----------
    chain : a chain, or an operator (`danaus.Operator`).
    x : [..., N] for "batch-first", [N, ...] for "batch-last".
    device : a Device, or the name of this thread's own one; None: where x lies.

    Returns
    -------
    y : [..., M] or [M, ...].
    """
    made = ffi.typeof("danaus_operator *")
    is_operator = ffi.typeof(getattr(chain, "_handle", ffi.NULL)) is made
    if not is_operator:
        handle_of(chain, "danaus_chain *", "a chain")
    x = operand(x, chain._code, "x")
    rows, cols = chain.shape
    code = choose(layout, LAYOUTS, "layout")
    batch = batch_of(x, cols, code, "x")
    device = device_for(x, device)
    if isinstance(x, OnDevice):
        if is_operator:
            raise NotImplementedError(
                f"operators with a bias on {x.place}: add the bias to operator @ x"
            )
        dtype = short_name(chain._code)
        options = {"layout": layout, "batch": batch, "device": device}
        return Plan(chain.patterns, dtype=dtype, **options).pack(chain)(x)
    y = np.empty(batched_shape(x.shape, rows, code), x.dtype)
    with chosen(device).in_use() as place:
        operands = code, batch, pointer(x), pointer(y)
        if is_operator:
            check(lib.danaus_operator_apply(place, chain._handle, 0, *operands))
        else:
            check(lib.danaus_ks_apply(place, chain._handle, *operands))
    return y
