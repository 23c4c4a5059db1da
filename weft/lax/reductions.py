"""Reductions and cumulative reductions with JAX's signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.api.shardings import split_result
from weft.base import dtypes, tree
from weft.base.arguments import function_of, index, indices
from weft.base.errors import ArgumentError, ArgumentTypeError, UnexpectedTracerError
from weft.base.source import user_line
from weft.ir.interpreter import storage_array
from weft.ir.jaxpr import Jaxpr
from weft.ir.types import ArrayType, array_type, get_aval
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.reduction import (
    cumulative as _cumulative,
    reduce as _sum,
    reduce_extrema as _extrema,
    reduce_other as _other,
)
from weft.trace.annotations import ArrayLike, DTypeLike
from weft.trace.array import Array
from weft.trace.stage import stage
from weft.trace.tracer import Tracer

# ------------------------------------------------------------------------------------------------------- by a function


class FlatReduction:
    """Operands and initial values of a reduction as flat lists, and the computation on their scalars as a jaxpr."""

    def __init__(self, name: str, operands: Any, initial: Any, computation: Callable[[Any, Any], Any]):
        self.operands, self.treedef = tree.flatten(operands)
        starts, starts_treedef = tree.flatten(initial)
        if starts_treedef != self.treedef:
            raise ArgumentError(
                f"lax.{name}: Operands must have the same tree structure as init_values, got {self.treedef} and "
                f"{starts_treedef}."
            )
        if not self.operands:
            raise ArgumentError(f"lax.{name} needs at least one operand.")
        types: list[ArrayType] = [get_aval(x) for x in self.operands]  # type: ignore[misc]
        self.initial = [_convert_initial(i, t) for i, t in zip(starts, types, strict=True)]
        self.jaxpr = _scalar_jaxpr(name, computation, self.treedef, [array_type((), t.dtype) for t in types])
        self.monoid = _monoid(self.jaxpr, self.initial) if len(types) == 1 else None

    def unflatten_results(self, results: Sequence[Any]) -> Any:
        """Unflatten results into the structure of the operands."""
        return tree.unflatten(self.treedef, list(results))


def _convert_initial(initial: Any, operand: ArrayType) -> Any:
    """Convert an initial value of weak type, such as a Python number, to the operand's dtype."""
    aval: ArrayType = get_aval(initial)  # type: ignore[assignment]
    if not aval.weak_type and not isinstance(initial, (bool, int, float, complex)):
        return initial
    if aval.dtype == operand.dtype and isinstance(initial, Tracer):
        return initial
    if isinstance(initial, Tracer) or aval.shape:
        return convert_element_type(initial, new_dtype=operand.dtype, weak_type=False)
    return np.asarray(storage_array(initial)).astype(dtypes.storage(operand.dtype))


def _scalar_jaxpr(name: str, computation: Callable[[Any, Any], Any], treedef: Any, scalars: list[ArrayType]) -> Jaxpr:
    count = len(scalars)
    function_of(computation, f"The computation of lax.{name}", "a function of two values, such as lax.add")

    def flat(*args: Any) -> list[Any]:
        result = computation(tree.unflatten(treedef, list(args[:count])), tree.unflatten(treedef, list(args[count:])))
        leaves, found = tree.flatten(result)
        if found != treedef:
            raise ArgumentTypeError(
                f"The computation of lax.{name} must return the structure of each of its two arguments, {treedef}, "
                f"but it returned {found}."
            )
        return leaves

    jaxpr, constants = stage(flat, scalars * 2, where=f"the computation of lax.{name}")
    for value in constants:
        if isinstance(value, Tracer):
            raise UnexpectedTracerError(
                f"The computation of lax.{name} uses a traced value that is not one of its arguments.",
                received=f"{value.aval.short()}, {value.origin()}",
                fix="make the value an operand, broadcast to the shape of the others, or use lax.scan",
                at=user_line(),
            )
    return jaxpr


def _ones(dtype: Any) -> np.ndarray:
    return np.ones((), dtype)


def _all_bits(dtype: Any) -> np.ndarray:
    return _ones(dtype) if dtypes.kind(dtype) == "b" else np.array(-1).astype(dtype)


def _zeros(dtype: Any) -> np.ndarray:
    return np.zeros((), dtype)


# Operations with a dedicated reduction primitive, by name, with their neutral element.
_MONOIDS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "add": (_sum.reduce_sum, _zeros),
    "mul": (_other.reduce_prod, _ones),
    "max": (_extrema.reduce_max, _extrema.lowest),
    "min": (_extrema.reduce_min, _extrema.highest),
    "and": (_other.reduce_and, _all_bits),
    "or": (_other.reduce_or, _zeros),
    "xor": (_other.reduce_xor, _zeros),
}


def _monoid(jaxpr: Jaxpr, initial: Sequence[Any]) -> str | None:
    """Return the name of the operation if the computation is a known one that starts from its neutral element, else
    None."""
    if len(jaxpr.eqns) != 1 or isinstance(initial[0], Tracer):
        return None
    (equation,) = jaxpr.eqns
    name = equation.primitive.name
    if name not in _MONOIDS or set(equation.invars) != set(jaxpr.invars) or equation.outvars != jaxpr.outvars:
        return None
    value, dtype = np.asarray(storage_array(initial[0])), jaxpr.invars[0].aval.dtype  # type: ignore[attr-defined]
    if value.shape or value.dtype != dtypes.storage(dtype) or not np.array_equal(value, _MONOIDS[name][1](dtype)):
        return None
    # A product of booleans is a conjunction, and the reduction is named after that.
    return "and" if name == "mul" and dtypes.kind(dtype) == "b" else name


def reduce(
    operands: Any,
    init_values: Any,
    computation: Callable[[Any, Any], Any],
    dimensions: Sequence[int],
    out_sharding: Any = None,
) -> Any:
    """Reduce `dimensions` of the operands by an associative `computation(accumulated, element)` on scalars.

    Sums, products, extrema and logical operations become the reductions of those names. `out_sharding` says how the
    result is split over Explicit axes of a mesh.

    Args:
        operands: an array, or a tree of arrays of one shape.
        init_values: an identity for each.
        computation: a function of two scalars (or trees of them).
        dimensions: the axes.
        out_sharding: the sharding of the result; by default it follows from the operands.

    Returns:
        An array or tree without the axes.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.reduce(wnp.array([[1, 2], [3, 4]]), 0, lax.add, (0,))
    Array([4, 6], dtype=int32)
    """
    if out_sharding is not None:
        return split_result(reduce, out_sharding, operands, init_values, computation, dimensions)
    reduction = FlatReduction("reduce", operands, init_values, computation)
    axes = _axes(dimensions)
    if reduction.monoid is not None:
        return reduction.unflatten_results([_MONOIDS[reduction.monoid][0](reduction.operands[0], axes=axes)])
    return reduction.unflatten_results(
        _other.reduce(*reduction.operands, *reduction.initial, jaxpr=reduction.jaxpr, dimensions=axes)
    )


# ---------------------------------------------------------------------------------------------------------- by a name


def _axes(axes: Sequence[int]) -> tuple[int, ...]:
    return indices(axes, "The axes of a reduction")


def reduce_sum(operand: ArrayLike, axes: Sequence[int], *, out_sharding: Any = None) -> Array:
    """Sum over `axes`; `out_sharding` says how the result is split over Explicit axes of a mesh."""
    if out_sharding is not None:
        return split_result(reduce_sum, out_sharding, operand, axes)
    return _sum.reduce_sum(operand, axes=_axes(axes))


def reduce_prod(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Multiply the elements over `axes`."""
    return _other.reduce_prod(operand, axes=_axes(axes))


def reduce_max(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Compute the maximum over `axes`; NaN if any element is NaN."""
    return _extrema.reduce_max(operand, axes=_axes(axes))


def reduce_min(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Compute the minimum over `axes`; NaN if any element is NaN."""
    return _extrema.reduce_min(operand, axes=_axes(axes))


def reduce_and(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Compute the logical AND over `axes`, bitwise for integers."""
    return _other.reduce_and(operand, axes=_axes(axes))


def reduce_or(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Compute the logical OR over `axes`, bitwise for integers."""
    return _other.reduce_or(operand, axes=_axes(axes))


def reduce_xor(operand: Any, axes: Sequence[int]) -> Array:
    """Compute the exclusive OR over `axes`, bitwise for integers."""
    return _other.reduce_xor(operand, axes=_axes(axes))


def argmax(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Array:
    """Return the index of the first largest element along `axis`, or of the first NaN."""
    return _extrema.argmax(operand, axes=(index(axis),), index_dtype=dtypes.requested_dtype(index_dtype, "argmax"))


def argmin(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Array:
    """Return the index of the first smallest element along `axis`, or of the first NaN."""
    return _extrema.argmin(operand, axes=(index(axis),), index_dtype=dtypes.requested_dtype(index_dtype, "argmin"))


# ------------------------------------------------------------------------------------------------------- cumulative


def cumsum(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Compute the running sum along `axis`, from its end with `reverse`."""
    return _cumulative.cumsum(operand, axis=index(axis), reverse=bool(reverse))


def cumprod(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Compute the running product along `axis`, from its end with `reverse`."""
    return _cumulative.cumprod(operand, axis=index(axis), reverse=bool(reverse))


def cummax(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Compute the running maximum along `axis`, from its end with `reverse`."""
    return _cumulative.cummax(operand, axis=index(axis), reverse=bool(reverse))


def cummin(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Compute the running minimum along `axis`, from its end with `reverse`."""
    return _cumulative.cummin(operand, axis=index(axis), reverse=bool(reverse))


def cumlogsumexp(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Compute the log of the running sum of exponentials along `axis`, or from its end, without overflow."""
    return _cumulative.cumlogsumexp(operand, axis=index(axis), reverse=bool(reverse))
