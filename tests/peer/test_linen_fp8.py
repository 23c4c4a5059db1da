"""Eight-bit products of linen against Flax: results, gradients, scales and histories of two steps."""

from __future__ import annotations

from typing import Any

import flax.linen as flax_nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.linen import fp8_ops as flax_ops

import weft
import weft.linen as nn
import weft.numpy as wnp
from weft.linen import fp8_ops

X = np.random.default_rng(0).uniform(size=(4, 8)).astype(np.float32)
NAMES = ["Fp8DotGeneralOp", "Fp8DirectDotGeneralOp", "NANOOFp8DotGeneralOp", "Fp8DotGeneral"]


def steps(lib: Any, np_: Any, modules: Any, ops: Any, name: str, dtype: Any) -> list[Any]:
    layer = modules.Dense(6, dtype=dtype, dot_general_cls=getattr(ops, name))
    x = np_.asarray(X, dtype)
    state = layer.init(lib.random.key(0), x)
    found = []
    for _ in range(2):
        gradient = lib.grad(lambda v: (layer.apply(v, x).astype("float32") ** 2).sum())(state)
        found += [layer.apply(state, x).astype("float32"), gradient]
        rest = {k: v for k, v in gradient.items() if k != "params"}
        state = {"params": state["params"], **rest}
    return found


@pytest.mark.filterwarnings("ignore:The Fp8DotGeneralOp is deprecated")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_layers(name: str, dtype: str) -> None:
    expected = steps(jax, jnp, flax_nn, flax_ops, name, dtype)
    found = steps(weft, wnp, nn, fp8_ops, name, dtype)
    assert jax.tree.structure(jax.tree.map(np.asarray, expected)) == jax.tree.structure(
        weft.tree.map(np.asarray, found)
    )
    # A rounding of the last bit of a gradient may fall to the other side of an eight-bit number.
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if dtype == "bfloat16" else {"rtol": 1e-4, "atol": 1e-5}
    for a, b in zip(weft.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float32), np.asarray(b, np.float32), **tolerance)


def test_einsum() -> None:
    a, b = X, X[:, :8]
    for ops, lib in ((flax_ops, jax), (fp8_ops, weft)):
        module = ops.Fp8Einsum(amax_history_length=4)
        state = module.init(lib.random.key(0), "ij,kj->ik", a, b)
        result = np.asarray(module.apply(state, "ij,kj->ik", a, b))
        if lib is jax:
            expected = result
    np.testing.assert_allclose(result, expected, rtol=1e-6)
