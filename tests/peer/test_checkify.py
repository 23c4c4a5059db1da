"""Messages of checkify are JAX's, and so are results beside an error."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify as jax_checkify

import weft
import weft.numpy as wnp
from weft.experimental import checkify as weft_checkify


def programs(lib: Any, np_: Any, checkify: Any) -> dict[str, Any]:
    def user(x: Any) -> Any:
        checkify.check(np_.all(x > 0), "must be positive: {} and {y:.2f}", x, y=x[0])
        return x

    return {
        "user": user,
        "user in vmap": lambda x: lib.vmap(user)(np_.stack([x * 0 + 1, x])),
        "user in scan": lambda x: lib.lax.scan(lambda c, y: (c + user(y[None])[0], y), 0.0, x),
        "log": lambda x: np_.log(x - 5),
        "sqrt in cond": lambda x: lib.lax.cond(x[0] > 0, np_.log, lambda x: np_.sqrt(x - 9), x),
        "division": lambda x: 1 / x,
        "floor division": lambda x: np_.arange(3) // np_.int32(x),
        "index": lambda x: x[np_.int32(x[2]) + 2],
        "indices": lambda x: x[np_.int32(x) + 2],
        "set": lambda x: x.at[np_.int32(x[2]) + 2].set(1.0),
        "gradient": lib.grad(lambda x: np_.sqrt(x).sum() * 0),
        "while": lambda x: lib.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, np_.log(c[1] - 1)), (0, x))[1],
    }


@pytest.mark.parametrize("name", list(programs(weft, wnp, weft_checkify)))
@pytest.mark.parametrize("errors", ["user_checks", "float_checks", "index_checks", "all_checks"])
def test_messages_and_results(name: str, errors: str) -> None:
    x = np.arange(3, dtype=np.float32)
    expected, values = jax.jit(
        jax_checkify.checkify(programs(jax, jnp, jax_checkify)[name], errors=getattr(jax_checkify, errors))
    )(x)
    error, results = weft.jit(
        weft_checkify.checkify(programs(weft, wnp, weft_checkify)[name], errors=getattr(weft_checkify, errors))
    )(x)
    said = expected.get()
    assert error.get() == (None if said is None else said.strip())
    for a, b in zip(weft.tree.leaves(results), jax.tree.leaves(values), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
