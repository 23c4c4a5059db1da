"""Elements chosen by index, by condition, by order or by value."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import weft.numpy as wnp
from weft.errors import ArgumentError
from weft.keras.graph.tensor import KerasTensor
from weft.keras.ops.argument_docs import document
from weft.keras.ops.dispatch import operand, operation, symbolic_as, tensor


@operation
@document("An array of int32.", kth="the rank.", axis="the axis; None reads the array as a vector.")
def argpartition(x: Any, kth: int, axis: int | None = -1) -> Any:
    """Return indices that put the element of rank `kth` at its sorted position, smaller ones before, larger ones
    after."""
    x = tensor(x)
    found = wnp.argpartition(wnp.ravel(x), kth, 0) if axis is None else wnp.argpartition(x, kth, axis)
    return found.astype("int32")


@operation
@document(
    "An array of int32.",
    "print(keras.ops.argsort([3, 1, 2])) -> [1 2 0]",
    axis="the axis; None reads the array as a vector.",
)
def argsort(x: Any, axis: int | None = -1) -> Any:
    """Return the indices that sort an array; equal elements stay in order."""
    x = tensor(x)
    return wnp.argsort(x, None if x.ndim == 0 else axis)


@operation
@document("An array of the same shape.", axis="the axis.")
def sort(x: Any, axis: int = -1) -> Any:
    """Sort the elements of an array."""
    return wnp.sort(tensor(x), axis)


def _bincount_spec(x: Any, weights: Any = None, minlength: int = 0, sparse: bool = False) -> Any:
    """Return a symbolic result of unknown length, which depends on the values."""
    x, weights = (each if isinstance(each, KerasTensor) or each is None else tensor(each) for each in (x, weights))
    return None if sparse else KerasTensor((*x.shape[:-1], None), "int32" if weights is None else str(weights.dtype))


@operation
@symbolic_as(_bincount_spec)
def bincount(x: Any, weights: Any = None, minlength: int = 0, sparse: bool = False) -> Any:
    """Count the occurrences of each integer.

    Args:
        x: integers that are not negative, a vector or a batch of vectors.
        weights: what each occurrence counts, 1 by default.
        minlength: the least length of the result.
        sparse: must be False: Weft has no sparse tensors of Keras.

    Returns:
        A vector of counts, or a batch of vectors. Its length depends on the values of `x`.
    """
    if sparse:
        raise ArgumentError("bincount makes dense arrays only.", received="sparse=True")
    x = tensor(x)
    weights = None if weights is None else tensor(weights)
    if x.ndim <= 1:
        return wnp.bincount(x, weights, minlength)
    length = max(minlength, int(x.max()) + 1)
    rows = x.reshape(-1, x.shape[-1])
    amounts = [None] * len(rows) if weights is None else weights.reshape(rows.shape)
    counts = [wnp.bincount(row, amount, length=length) for row, amount in zip(rows, amounts, strict=True)]
    return wnp.stack(counts).reshape(*x.shape[:-1], length)


@operation
def diff(a: Any, n: int = 1, axis: int = -1) -> Any:
    """Subtract neighbouring elements along an axis.

    Args:
        a: an array.
        n: how many times to take differences.
        axis: the axis.

    Returns:
        An array that is `n` shorter along the axis.
    """
    return wnp.diff(tensor(a), n, axis)


@operation
@document("An array of int32 of the shape of `x`.", bins="the edges in increasing order.")
def digitize(x: Any, bins: Any) -> Any:
    """Return the index of the bin of each element: the number of edges that are not above it."""
    return wnp.digitize(tensor(x), tensor(bins)).astype("int32")


@operation
@document(
    "An array.",
    key="an index, a slice, an array of indices, or a tuple of these; a list is read as a tuple, "
    "since files have lists for tuples.",
)
def get_item(x: Any, key: Any) -> Any:
    """Return `x[key]`."""
    return tensor(x)[tuple(key) if isinstance(key, list) else key]


@operation
def histogram(x: Any, bins: int = 10, range: tuple[Any, Any] | None = None) -> Any:
    """Count the elements in each of several bins of equal width.

    Args:
        x: a vector.
        bins: how many bins.
        range: the lower and the upper end; those of the elements by default.

    Returns:
        A pair of counts and edges.
    """
    x = tensor(x)
    if x.ndim != 1:
        raise ArgumentError("The argument of histogram must be a vector.", received=f"shape {x.shape}")
    if range is not None and (len(range) != 2 or not range[0] < range[1]):
        raise ArgumentError("`range` must be the least and the largest value.", received=f"range={range!r}")
    return wnp.histogram(x, bins, range)


def _nonzero_spec(x: Any) -> Any:
    """Return symbolic vectors of unknown length, which depends on the values."""
    return tuple(KerasTensor((None,), "int32") for _ in x.shape)


@operation
@symbolic_as(_nonzero_spec)
@document("A tuple with one vector an axis.")
def nonzero(x: Any) -> Any:
    """Return the indices of elements that are not 0. Their number depends on the values: not available under `jit`."""
    return wnp.nonzero(tensor(x))


@operation
def searchsorted(sorted_sequence: Any, values: Any, side: str = "left") -> Any:
    """Return the positions where values would have to be inserted to keep a vector sorted.

    Args:
        sorted_sequence: a vector in increasing order.
        values: what to insert.
        side: "left" or "right" of equal elements.

    Returns:
        An array of int32 of the shape of `values`.
    """
    sorted_sequence = tensor(sorted_sequence)
    if sorted_sequence.ndim != 1:
        raise ArgumentError(
            "`sorted_sequence` of searchsorted must be a vector.", received=f"shape {sorted_sequence.shape}"
        )
    return wnp.searchsorted(sorted_sequence, tensor(values), side=side)


@operation
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """Return for each element the choice of the first condition that is true.

    Args:
        condlist: a list of arrays of booleans.
        choicelist: a list of as many arrays.
        default: what is chosen where no condition is true.

    Returns:
        An array of the common dtype.
    """
    return wnp.select([tensor(c) for c in condlist], [operand(c) for c in choicelist], operand(default))


@operation
@document(
    "An array with the axes of `indices` instead of that axis.",
    "print(keras.ops.take([10, 20, 30], [2, 0])) -> [30 10]",
    indices="integers.",
    axis="the axis; None reads the array as a vector.",
)
def take(x: Any, indices: Any, axis: int | None = None) -> Any:
    """Return the elements at indices along an axis. Negative indices count from the end; those out of bounds give
    NaN."""
    return wnp.take(tensor(x), tensor(indices), axis)


@operation
def take_along_axis(x: Any, indices: Any, axis: int | None = None) -> Any:
    """Return for each vector along an axis the elements at its own indices.

    Args:
        x: an array.
        indices: integers, an array of the same rank.
        axis: the axis; None reads the array as a vector.

    Returns:
        An array of the shape of `indices`.

    Example:
        >>> from weft import keras
        >>> print(keras.ops.take_along_axis([[1, 2], [3, 4]], [[1], [0]], axis=1))
        [[2]
         [3]]
    """
    return wnp.take_along_axis(tensor(x), tensor(indices), axis)


def _unique_spec(
    x: Any,
    sorted: bool = True,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """Return symbolic results of unknown length, which depends on the values; None if `size` is given."""
    if size is not None:
        return None
    along = None if axis is None else axis % len(x.shape)
    values = (None,) if along is None else tuple(None if i == along else n for i, n in enumerate(x.shape))
    found = [KerasTensor(values, x.dtype)]
    found += [KerasTensor((None,), "int32")] if return_index else []
    found += [KerasTensor(x.shape if along is None else (x.shape[along],), "int32")] if return_inverse else []
    found += [KerasTensor((None,), "int32")] if return_counts else []
    return found[0] if len(found) == 1 else tuple(found)


@operation
@symbolic_as(_unique_spec)
def unique(
    x: Any,
    sorted: bool = True,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """Return the distinct elements of an array; a NaN is equal to no other.

    Args:
        x: an array.
        sorted: whether they come in order (they always do here).
        return_index: whether to return where each occurs first.
        return_inverse: whether to return which of them each element is.
        return_counts: whether to return how often each occurs.
        axis: find equal sub-arrays along this axis; None reads the array as a vector.
        size: how many to return; needed under `jit`.
        fill_value: what fills up to `size`; the least element by default.

    Returns:
        An array, or a tuple of it and what else was asked for.
    """
    return wnp.unique(
        tensor(x),
        return_index,
        return_inverse,
        return_counts,
        axis,
        equal_nan=False,
        size=size,
        fill_value=fill_value,
        sorted=sorted,
    )


@operation
@document("A tuple with one array an axis.", indices="integers.", shape="of the array.")
def unravel_index(indices: Any, shape: Any) -> Any:
    """Convert indices into a flattened array to indices along each axis."""
    return wnp.unravel_index(tensor(indices), shape)


def _where_spec(condition: Any, x1: Any = None, x2: Any = None) -> Any:
    return _nonzero_spec(condition) if x1 is None and x2 is None else None


@operation
@symbolic_as(_where_spec)
def where(condition: Any, x1: Any = None, x2: Any = None) -> Any:
    """Return elements of `x1` where a condition is true, else of `x2`.

    Args:
        condition: booleans.
        x1: an array or a scalar; with neither, the indices at which the condition is true are returned.
        x2: likewise; the shapes broadcast.

    Returns:
        An array of the common dtype.

    Example:
        >>> from weft import keras
        >>> print(keras.ops.where([True, False], [1, 2], 0))
        [1 0]
    """
    if x1 is None and x2 is None:
        return wnp.nonzero(tensor(condition))
    if x1 is None or x2 is None:
        raise ArgumentError("where takes both `x1` and `x2`, or neither.")
    return wnp.where(tensor(condition), operand(x1), operand(x2))


def vectorize(
    pyfunc: Callable[..., Any], *, excluded: Collection[int | str] | None = None, signature: str | None = None
) -> Callable[..., Any]:
    """Vectorize a function of scalars, or of arrays of smaller rank; arguments broadcast.

    Args:
        pyfunc: the function.
        excluded: positions and names of arguments that are passed as they are.
        signature: the axes that the function itself takes, such as `"(n),(n)->()"`.

    Returns:
        A function.
    """
    return wnp.vectorize(pyfunc, excluded=frozenset(excluded or ()), signature=signature)
