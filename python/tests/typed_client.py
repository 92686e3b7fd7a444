"""A program that uses danaus, with the types of what it gets, for test_types.py."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Union

import numpy as np

import danaus
from danaus import transforms
from danaus._linear import LinearOperator
from danaus.transforms import Transform

if TYPE_CHECKING:
    from typing_extensions import assert_type
else:

    def assert_type(value, kind):
        return value


chain = danaus.Chain.from_weights([np.full((2, 1, 1, 1), 2.0)])
x = np.ones(2, np.float32)

# Numbers of Python and NumPy, on both sides.
assert_type(2 * chain, danaus.Chain)
assert_type(2.5 * chain, danaus.Chain)
assert_type(1j * chain, danaus.Chain)
assert_type(np.float32(2) * chain, danaus.Chain)
assert_type(np.float64(2) * chain, danaus.Chain)
assert_type(np.int64(2) * chain, danaus.Chain)
assert_type(chain * 2, danaus.Chain)
assert_type(chain * np.float32(2), danaus.Chain)
assert_type(chain / 2, danaus.Chain)
assert_type(-chain, danaus.Chain)

# Arrays and chains.
assert_type(chain @ x, np.ndarray)
assert_type(chain @ [1.0, 2.0], np.ndarray)
assert_type(chain.dot(x), np.ndarray)
assert_type(chain * x, np.ndarray)
assert_type(x @ chain, np.ndarray)
assert_type(chain.matvec(x), np.ndarray)
assert_type(chain.solve(x), np.ndarray)
assert_type(chain @ chain, danaus.Chain)
assert_type(chain.inv(), danaus.Chain)
assert_type(danaus.add(chain, chain), danaus.Chain)

# What SciPy makes of an operator.
assert_type(chain.T, LinearOperator)
assert_type(chain.H, LinearOperator)
assert_type(chain.T @ x, np.ndarray)
assert_type(2 * chain.T, LinearOperator)
assert_type(chain**2, LinearOperator)
assert_type(chain @ chain.T, LinearOperator)
assert_type(chain.shape, tuple[int, int])

# Sums, operators, transforms.
assert_type(chain + chain, Union[danaus.Chain, danaus.Operator])
assert_type(chain - chain, Union[danaus.Chain, danaus.Operator])
dct = transforms.dct2(2)
assert_type(dct, Transform)
assert_type(dct @ x, np.ndarray)
assert_type(x @ dct, np.ndarray)
assert_type(dct.H @ x, np.ndarray)
assert_type(dct + chain, danaus.Operator)
assert_type(chain + dct, danaus.Operator)
assert_type(2 * dct, LinearOperator)
assert_type(dct @ dct, LinearOperator)
assert_type(dct.chain, danaus.Chain)

# Numbers of a chain.
chain.bias = [1, 2]
assert_type(chain.bias, Optional[np.ndarray])
