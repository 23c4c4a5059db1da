"""Building blocks of factorizations: batches, loops, rows and columns at computed indices.

A body of a loop reads only its arguments: constants of a matrix are computed inside of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.ir.batching import Axis, batch_jaxpr
from weft.ir.interpreter import replay
from weft.ir.primitive import lookup
from weft.ir.types import array_type, get_aval
from weft.primitives.contraction.contract import dot_general
from weft.primitives.control.repeat import COUNT, repeat
from weft.primitives.elementwise.select import select_n
from weft.primitives.linalg.matrix import EXACT, conjugate, real_part
from weft.primitives.movement.iota import iota
from weft.primitives.movement.shape import broadcast_in_dim, reshape
from weft.primitives.movement.slicing import dynamic_slice, dynamic_update_slice
from weft.primitives.reduction.reduce import reduce_sum
from weft.trace.closed import stage_subjaxpr

INT32, BOOL = np.dtype(np.int32), np.dtype(np.bool_)


def for_each(function: Callable[..., Sequence[Any]], core: Sequence[int], *arrays: Any) -> list[Any]:
    """Apply a function of matrices to every member of the batch in the leading dimensions.

    Args:
        function: takes and returns arrays without the leading dimensions.
        core: for each array the number of trailing dimensions that the function takes.
        arrays: the operands.
    """
    lead = arrays[0].shape[: len(arrays[0].shape) - core[0]]
    types = [array_type(x.shape[len(lead) :], x.dtype) for x in arrays]
    jaxpr = stage_subjaxpr(lambda *single: list(function(*single)), types, name="factorization")
    if not lead:
        return list(replay(jaxpr, *arrays))
    count = math.prod(lead)
    flat = [to_shape(x, (count, *x.shape[len(lead) :])) for x in arrays]
    batched, _ = batch_jaxpr(jaxpr, Axis(count), [True] * len(flat))
    return [to_shape(y, (*lead, *y.shape[1:])) for y in replay(batched, *flat)]


def iterate(count: int, body: Callable[..., Sequence[Any]], *carry: Any) -> list[Any]:
    """Apply `body(i, *carry)` for i = 0, 1, ..., and return the last carry."""
    types = [get_aval(x).strong() for x in carry]
    jaxpr = stage_subjaxpr(lambda i, *values: list(body(i, *values)), [COUNT, *types], name="step")
    return list(repeat(np.asarray(count, np.int32), *carry, jaxpr=jaxpr, nconsts=0, reverse=False))


def iterate_while(condition: Callable[..., Any], body: Callable[..., Sequence[Any]], *carry: Any) -> list[Any]:
    """Apply `body(*carry)` while `condition(*carry)` holds, and return the last carry."""
    types = [get_aval(x).strong() for x in carry]
    holds = stage_subjaxpr(lambda *values: [condition(*values)], types, name="condition")
    step = stage_subjaxpr(lambda *values: list(body(*values)), types, name="step")
    counts = {"cond_nconsts": 0, "body_nconsts": 0}
    return list(lookup("while")(*carry, cond_jaxpr=holds, body_jaxpr=step, **counts))


# ------------------------------------------------------------------------------------------------------------ elements


def to_shape(x: Any, shape: Sequence[int]) -> Any:
    """Reshape an array."""
    return x if x.shape == tuple(shape) else reshape(x, new_sizes=tuple(shape), dimensions=None)


def fill(x: Any, shape: Sequence[int], dtype: Any = None) -> Any:
    """Broadcast a scalar to a shape; arrays of the shape are returned as they are."""
    x = np.asarray(x, dtype) if isinstance(x, (bool, int, float, complex)) else x
    return x if x.shape == tuple(shape) else broadcast_in_dim(x, shape=tuple(shape), broadcast_dimensions=())


def where(condition: Any, yes: Any, no: Any) -> Any:
    """Select elements; scalars are broadcast, and one of the two choices has the dtype of numbers."""
    dtype = next(x.dtype for x in (yes, no) if hasattr(x, "dtype"))
    shape = max((getattr(x, "shape", ()) for x in (condition, yes, no)), key=len)
    return select_n(fill(condition, shape, BOOL), fill(no, shape, dtype), fill(yes, shape, dtype))


def ramp(size: int) -> Any:
    """Return the indices of a vector."""
    return iota(dtype=INT32, shape=(size,), dimension=0)


def beyond(size: int, index: Any) -> Any:
    """Return a mask of the elements of a vector after an index."""
    return ramp(size) > index


def column(x: Any, j: Any) -> Any:
    """Return column j of a matrix."""
    return to_shape(dynamic_slice(x, np.int32(0), j, slice_sizes=(x.shape[0], 1)), (x.shape[0],))


def with_column(x: Any, j: Any, values: Any) -> Any:
    """Return a matrix with another column j."""
    return dynamic_update_slice(x, to_shape(values, (x.shape[0], 1)), np.int32(0), j)


def row(x: Any, i: Any) -> Any:
    """Return row i of a matrix."""
    return to_shape(dynamic_slice(x, i, np.int32(0), slice_sizes=(1, x.shape[1])), (x.shape[1],))


def with_row(x: Any, i: Any, values: Any) -> Any:
    """Return a matrix with another row i."""
    return dynamic_update_slice(x, to_shape(values, (1, x.shape[1])), i, np.int32(0))


def element(x: Any, i: Any) -> Any:
    """Return element i of a vector."""
    return to_shape(dynamic_slice(x, i, slice_sizes=(1,)), ())


def with_element(x: Any, i: Any, value: Any) -> Any:
    """Return a vector with another element i."""
    return dynamic_update_slice(x, to_shape(value, (1,)), i)


def exchange(x: Any, i: Any, j: Any) -> Any:
    """Exchange rows of a matrix, or elements of a vector."""
    read, write = (element, with_element) if len(x.shape) == 1 else (row, with_row)
    first, second = read(x, i), read(x, j)
    return write(write(x, i, second), j, first)


# ------------------------------------------------------------------------------------------------------------ products


def outer(x: Any, y: Any) -> Any:
    """Multiply all elements of two vectors."""
    return _contract(x, y, ((), ()))


def times(x: Any, a: Any) -> Any:
    """Multiply a row vector by a matrix, or two vectors with each other."""
    return _contract(x, a, ((0,), (0,)))


def _contract(x: Any, y: Any, axes: Any) -> Any:
    options = {"precision": EXACT, "preferred_element_type": None}
    return dot_general(x, y, dimension_numbers=(axes, ((), ())), **options)


def square_size(x: Any, axis: int = 0) -> Any:
    """Sum the squares of the magnitudes along an axis."""
    return reduce_sum(real_part(x * conjugate(x)), axes=(axis,))
