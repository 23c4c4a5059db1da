"""Sorting and top-k with JAX's signatures."""

from __future__ import annotations

from typing import Any

from weft.base import dtypes
from weft.base.arguments import index
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.indexing.dimension import index_or_size
from weft.ir.types import ArrayType, get_aval
from weft.lax.argument_docs import document
from weft.lax.shape import canonical_axis
from weft.primitives.movement import sort as _sort
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """Sort an array, or several together by the first `num_keys` of them, along `dimension`.

    NaNs come last, -0 equals 0, complex numbers compare by real and then imaginary part. Equal elements
    keep their order.
    """
    many = isinstance(operand, (tuple, list))
    operands = list(operand) if many else [operand]
    if not operands:
        raise ArgumentTypeError("lax.sort needs at least one operand.")
    axis = canonical_axis(dimension, len(get_aval(operands[0]).shape))  # type: ignore[attr-defined]
    if not 1 <= num_keys <= len(operands):
        raise ArgumentError(f"lax.sort got num_keys={num_keys} for {len(operands)} operands.")
    results = _sort.sort(*operands, dimension=axis, is_stable=bool(is_stable), num_keys=index(num_keys))
    return tuple(results) if many else results[0]


def sort_key_val(keys: Any, values: Any, dimension: int = -1, is_stable: bool = True) -> tuple[Array, Array]:
    """Sort `keys` along `dimension`, and `values` in the same order.

    Args:
        keys: an array.
        values: an array of the same shape.
        dimension: the axis.
        is_stable: whether equal keys keep their order.

    Returns:
        A pair of arrays.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.sort_key_val(wnp.array([3, 1, 2]), wnp.array([30, 10, 20]))
    (Array([1, 2, 3], dtype=int32), Array([10, 20, 30], dtype=int32))
    """
    return sort((keys, values), dimension=dimension, is_stable=is_stable, num_keys=1)


@document(
    "A list of two arrays, values and int32 indices.",
    "lax.top_k(wnp.array([1, 5, 3]), 2) -> [Array([5, 3], dtype=int32), Array([1, 2], dtype=int32)]",
    k="how many.",
)
def top_k(operand: ArrayLike, k: int, *, axis: int = -1) -> list[Array]:
    """Return the `k` largest elements along `axis` in descending order, and their indices; ties in order of
    appearance."""
    position = canonical_axis(axis, len(get_aval(operand).shape))  # type: ignore[attr-defined]
    return _sort.top_k(operand, k=index_or_size(k), axis=position)


def approx_max_k(
    operand: ArrayLike,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> list[Array]:
    """Return the `k` largest elements along a dimension and their indices, exactly: this meets every recall target.

    Args:
        operand: an array.
        k: how many.
        reduction_dimension: the axis.
        recall_target, reduction_input_size_override, aggregate_to_topk: accepted for compatibility.

    Returns:
        A list of two arrays, values and int32 indices.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.approx_max_k(wnp.array([1.0, 5.0, 3.0]), 2)
    [Array([5., 3.], dtype=float32), Array([1, 2], dtype=int32)]
    """
    hints = (recall_target, reduction_input_size_override, aggregate_to_topk)
    return _approximate("approx_max_k", operand, k, reduction_dimension, True, hints)


def approx_min_k(
    operand: ArrayLike,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> list[Array]:
    """Return the `k` smallest elements along a dimension and their indices, exactly: this meets every recall target."""
    hints = (recall_target, reduction_input_size_override, aggregate_to_topk)
    return _approximate("approx_min_k", operand, k, reduction_dimension, False, hints)


def _approximate(
    name: str, operand: Any, k: int, dimension: int, is_max: bool, hints: tuple[float, int, bool]
) -> list[Array]:
    aval: ArrayType = get_aval(operand)  # type: ignore[assignment]
    if dtypes.kind(aval.dtype) != "f":
        raise ArgumentError(f"lax.{name} takes an array of floats, got {aval.short()}; use lax.top_k.")
    recall_target, size_override, aggregate = hints
    return _sort.approx_top_k(
        operand,
        k=index_or_size(k),
        reduction_dimension=canonical_axis(dimension, aval.ndim),
        recall_target=float(recall_target),
        is_max_k=is_max,
        reduction_input_size_override=index(size_override),
        aggregate_to_topk=bool(aggregate),
    )
