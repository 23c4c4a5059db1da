"""Families of primitives that share rules: moving elements, reducing axes, definitions by other primitives.

The elementwise family is in `elementwise.py`, because its rules are written with the shape operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from weft.base import dtypes
from weft.base.errors import ArgumentTypeError, NotSupportedError, ShapeMismatchError
from weft.base.source import user_line
from weft.indexing.index_map import IndexMap
from weft.ir.context import EVALUATION, active
from weft.ir.element import Element
from weft.ir.fusing import AT_OTHER_INDEX, REDUCED_ONES, Machine, Properties, element_count, reduction
from weft.ir.interpreter import storage_array
from weft.ir.nans import allow_nans
from weft.ir.primitive import Axis, Params, Primitive, primitive as primitive
from weft.ir.types import ArrayType
from weft.sharding.factors import AxisFactors
from weft.trace.stage import stage

KIND_NAMES = {"b": "bool", "i": "integer", "u": "unsigned integer", "f": "float", "c": "complex", "k": "key"}


def fail(
    message: str, received: str | None = None, fix: str | None = None, jax: str | None = None
) -> ShapeMismatchError:
    """Create a shape error that names the user's line; the caller raises it."""
    return ShapeMismatchError(message, received=received, fix=fix, at=user_line(), jax=jax)


def inverse_permutation(permutation: Sequence[int]) -> tuple[int, ...]:
    inverse = [0] * len(permutation)
    for position, source in enumerate(permutation):
        inverse[source] = position
    return tuple(inverse)


def remaining_axes(rank: int, axes: Sequence[int]) -> tuple[int, ...]:
    """Return the axes of a tensor of rank `rank` that are not in `axes`."""
    return tuple(i for i in range(rank) if i not in axes)


def shift_axes(axes: Sequence[int], batch_dim: int) -> tuple[int, ...]:
    """Shift axes for a batch dimension that was inserted at `batch_dim`."""
    return tuple(a + (a >= batch_dim) for a in axes)


def kind_error(name: str, dtype: Any, kinds: str) -> ArgumentTypeError:
    """Create the error for a dtype that is not of `kinds`; the caller raises it."""
    accepted = ", ".join(KIND_NAMES[k] for k in kinds)
    fix = f"x.astype(...): it takes {accepted} arrays"
    return ArgumentTypeError(f"{name} does not accept dtype {dtypes.name(dtype)}.", fix=fix)


def check_kind(name: str, dtype: Any, kinds: str) -> None:
    """Raise unless the dtype of an operand is of one of `kinds`, by the letters of `dtypes.kind`."""
    if dtypes.kind(dtype) not in kinds:
        raise kind_error(name, dtype, kinds)


def check_axes(name: str, axes: Sequence[int], rank: int) -> None:
    """Raise unless axes are distinct and within the rank."""
    if len(set(axes)) != len(axes):
        raise fail(f"{name} got a duplicate value in 'axes' {tuple(axes)}.", fix="give distinct axes")
    if any(not 0 <= a < rank for a in axes):
        raise fail(
            f"{name} got axes {tuple(axes)} for an operand of rank {rank}.", fix="give distinct axes in range(rank)"
        )


class Indexing(Primitive):
    """Operation that moves elements: every result element is read from one index of one operand (or is padding)."""

    linear = "all"
    copies = "all"
    foldable = True
    introduces = ()
    weight = 0

    def sources(self, *types: ArrayType, **params: Any) -> list[tuple[int, IndexMap]]:
        """Return, for each operand that contributes, the map from a result index to the operand's index (with its
        conditions)."""
        raise NotSupportedError(f"{self.name} has no index map")

    def never_negative_zero(self, operands: Sequence[Any], known: Callable[[Any], bool], params: Params) -> bool:
        return all(map(known, operands))

    def value_at(self, element: Element, **params: Any) -> Any:
        return element.source()

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return AT_OTHER_INDEX


class Reduction(Primitive):
    """Reduction of `axes` by an associative operation."""

    foldable = True
    # Kinds of dtypes for which the elements may be combined in any order and nesting, to the bit.
    any_order: ClassVar[str] = ""
    # Equal elements count once.
    idempotent: ClassVar[bool] = False
    # Kinds of dtypes for which the reduction of one element returns it unchanged, or the element plus 0.
    one_as_is: ClassVar[str] = ""
    one_plus_zero: ClassVar[str] = ""

    def type(self, x: ArrayType, *, axes: tuple[int, ...]) -> ArrayType:
        check_axes(self.name, axes, x.ndim)
        return x.without(axes)

    def batch(
        self, axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, axes: tuple[int, ...]
    ) -> tuple[Any, int]:
        (x,), (dim,) = args, dims
        assert dim is not None
        lifted = shift_axes(axes, dim)
        return self(x, axes=lifted), remaining_axes(x.ndim, lifted).index(dim)

    # How partial results are combined.
    combine_name = "sum"

    def factors(self, x: ArrayType, *, axes: tuple[int, ...]) -> AxisFactors:
        names = tuple(f"d{i}" for i in range(x.ndim))
        remaining = tuple(names[i] for i in remaining_axes(x.ndim, axes))
        return AxisFactors((names,), (remaining,), {names[a]: self.combine_name for a in axes})

    def initial(self, dtype: Any) -> Any:
        """Return the result for no elements, as a value of `dtype`."""
        raise NotSupportedError(f"{self.name} has no neutral element")

    def neutral(self, dtype: Any) -> Any:
        """Return the value that leaves every number unchanged when combined with it; the result for no elements is
        `initial`."""
        return self.initial(dtype)

    def combine(self, builder: Any, accumulator: Any, value: Any) -> Any:
        """Combine an element with the accumulator, over an abstract scalar builder."""
        raise NotSupportedError(f"{self.name} has no combine rule")

    def value_at(self, element: Element, *, axes: tuple[int, ...]) -> Any:
        """Compute a reduction over dimensions of size 1. It still starts from the neutral element, which shows in a
        zero's sign."""
        rest = iter(element.index)
        value = element.operand(0, [0 if a in axes else next(rest) for a in range(element.types[0].ndim)])
        if not axes:
            return value
        build, wider = element.scalars, dtypes.accumulation_dtype(value.dtype)
        total = self.combine(build, build.constant(self.initial(wider), wider), build.convert(value, wider))
        return build.convert(total, value.dtype)

    def fusion(self, equation: Any, target: Machine) -> Properties:
        found = reduction(None, equation.invars[0].aval.shape, equation.params["axes"])
        return found if found.reduced else REDUCED_ONES

    def flops(self, equation: Any) -> float:
        shape, axes = equation.invars[0].aval.shape, equation.params["axes"]
        return element_count(shape) if any(shape[a] != 1 for a in axes) else super().flops(equation)


class SumOfProducts(Primitive):
    """Contractions and convolutions. They read operands from memory, so computing those ahead of a loop costs no
    additional traffic, and NumPy is slow at them, so eager calls use compiled code even where the bits are the same."""


class Composite(Primitive):
    """Operation defined by other primitives. A rule it lacks is that of its definition."""

    def decompose(self, *args: Any, **params: Any) -> Any:
        """Compute the result by other operations on arrays; return a list or tuple of arrays for several results."""
        raise NotSupportedError(f"{self.name} has no definition")

    def definition(self, *args: Any, **params: Any) -> Any:
        return self.decompose(*args, **params)

    def type(self, *types: Any, **params: Any) -> Any:
        out_types = stage(lambda *args: self._results(args, params), types, where=self.name)[0].out_avals
        return out_types if self.multiple_results else out_types[0]

    def eval(self, *arrays: Any, **params: Any) -> Any:
        with active(EVALUATION), allow_nans():  # only the result is checked for nans
            results = [storage_array(r) for r in self._results([EVALUATION.lift(a) for a in arrays], params)]
        return results if self.multiple_results else results[0]

    def _results(self, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        result = self.decompose(*args, **params)
        return list(result) if self.multiple_results else [result]


def widen(x: np.ndarray) -> np.ndarray:
    """Convert the operand to the dtype in which reductions and contractions accumulate."""
    wider = dtypes.accumulation_dtype(x.dtype)
    return x if wider == x.dtype else x.astype(wider)
