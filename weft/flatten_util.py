"""Trees of arrays as one flat vector, and back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base import dtypes, tree
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.publish import publish as _publish
from weft.ir.types import get_aval
from weft.lax import concatenate, convert_element_type, reshape, slice_in_dim
from weft.runtime.array import from_numpy


def ravel_pytree(pytree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Flatten all leaves to one vector of their common dtype; also return the function from such a vector back to the
    tree.

    Args:
        pytree: a tree of arrays and numbers.

    Returns:
        A pair of a vector and a function; the function restores shapes and dtypes.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> from weft.flatten_util import ravel_pytree
    >>> vector, restore = ravel_pytree({"w": wnp.ones((1, 2)), "b": wnp.zeros(1)})
    >>> vector
    Array([0., 1., 1.], dtype=float32)
    >>> restore(vector)["w"].shape
    (1, 2)
    """
    leaves, treedef = tree.flatten(pytree)
    avals: list[Any] = [get_aval(leaf) for leaf in leaves]
    if not leaves:
        return from_numpy(np.zeros(0, np.float32)), lambda flat: tree.unflatten(treedef, [])
    common = dtypes.result_type(*leaves)
    flat = concatenate(
        [
            reshape(convert_element_type(leaf, common), (math.prod(a.shape),))
            for leaf, a in zip(leaves, avals, strict=True)
        ],
        0,
    )
    sizes = [math.prod(a.shape) for a in avals]

    def unravel(vector: Any) -> Any:
        vector_type = get_aval(vector)
        if vector_type.shape != (sum(sizes),):  # type: ignore[attr-defined]
            raise ArgumentError(f"unravel needs a vector of shape ({sum(sizes)},), got {vector_type.short()}.")
        if vector_type.dtype != common:  # type: ignore[attr-defined]
            what = f"unravel needs a vector of dtype {dtypes.name(common)}, got {vector_type.short()}."
            raise ArgumentTypeError(what, fix=f"vector.astype({dtypes.name(common)!r})")
        parts, start = [], 0
        for aval, size in zip(avals, sizes, strict=True):
            part = reshape(slice_in_dim(vector, start, start + size), aval.shape)
            parts.append(part if aval.dtype == common else convert_element_type(part, aval.dtype))
            start += size
        return tree.unflatten(treedef, parts)

    return flat, unravel


_publish(__name__)
