"""Second derivatives of a loss `loss(params, inputs, targets)`: Hessian products and diagonals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
import weft.numpy as wnp
from weft import Array, lax
from weft.errors import suggest as _suggest
from weft.flatten_util import ravel_pytree

LossFn = Callable[[Any, Array, Array], Array]


def hvp(loss: LossFn, v: Array, params: Any, inputs: Array, targets: Array) -> Any:
    """Return the product of the Hessian and the flat vector `v`, as a tree like the parameters."""
    _, restore = ravel_pytree(params)
    gradient = weft.grad(lambda p: loss(p, inputs, targets))
    return weft.jvp(gradient, (params,), (restore(v),))[1]


def hessian_diag(loss: LossFn, params: Any, inputs: Array, targets: Array) -> Array:
    """Return the diagonal of the Hessian as a vector, by one Hessian product per parameter."""
    flat, _ = ravel_pytree(params)

    def entry(index: Any) -> Any:
        unit = wnp.zeros_like(flat).at[index].set(1.0)
        return ravel_pytree(hvp(loss, unit, params, inputs, targets))[0][index]

    return lax.map(entry, wnp.arange(flat.size))


def fisher_diag(negative_log_likelihood: LossFn, params: Any, inputs: Array, targets: Array) -> Array:
    """Return the diagonal of the observed Fisher information as a vector: the square of the gradient."""
    return ravel_pytree(weft.grad(negative_log_likelihood)(params, inputs, targets))[0] ** 2


_suggest(__name__)
