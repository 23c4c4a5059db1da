"""The largest and smallest elements along axes, and where they are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from weft.base import dtypes
from weft.base.errors import ArgumentTypeError
from weft.indexing.ranges import Range
from weft.ir.flow import OperandRanges
from weft.ir.fusing import Machine, Properties, element_count, reduction
from weft.ir.parts import Parts
from weft.ir.primitive import Axis, Params, Primitive, Sample, primitive
from weft.ir.types import ArrayType, array_type, get_aval
from weft.primitives.elementwise.arithmetic import add, div, mul
from weft.primitives.elementwise.compare import eq
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.elementwise.extremes import maximum, minimum
from weft.primitives.families import check_axes, check_kind, fail, remaining_axes, shift_axes, widen
from weft.primitives.movement.gather import take_along
from weft.primitives.movement.shape import broadcast_in_dim, ramp, reshape
from weft.primitives.reduction.reduce import CheckedReduction, reduce_sum
from weft.sharding.factors import AxisFactors


@functools.lru_cache(maxsize=256)
def lowest(dtype: Any) -> np.ndarray:
    """Return the neutral element of max: minus infinity if the dtype has it, else its smallest value."""
    match dtypes.kind(dtype):
        case "b":
            return np.zeros((), dtype)
        case "i" | "u":
            return np.array(dtypes.iinfo(dtype).min).astype(dtype)
    # Some short floats have no infinity, and one of them no negative numbers.
    return np.array(-np.inf if _has_infinity(dtype) else dtypes.finfo(dtype).min, dtype)


@functools.lru_cache(maxsize=256)
def highest(dtype: Any) -> np.ndarray:
    """Return the neutral element of min: infinity if the dtype has it, else its largest value."""
    match dtypes.kind(dtype):
        case "b":
            return np.ones((), dtype)
        case "i" | "u":
            return np.array(dtypes.iinfo(dtype).max).astype(dtype)
    return np.array(np.inf if _has_infinity(dtype) else dtypes.finfo(dtype).max, dtype)


def _has_infinity(dtype: Any) -> bool:
    return dtypes.kind(dtype) == "c" or bool(np.isinf(np.array(np.inf).astype(dtype).astype(np.float32)))


def least(dtype: Any) -> np.ndarray:
    """Return a value that no number is below: complex numbers are compared by their real parts, then by their imaginary
    parts."""
    return np.array(complex(-np.inf, -np.inf), dtype) if dtypes.kind(dtype) == "c" else lowest(dtype)


def greatest(dtype: Any) -> np.ndarray:
    """Return a value that no number is above."""
    return np.array(complex(np.inf, np.inf), dtype) if dtypes.kind(dtype) == "c" else highest(dtype)


class Extremum(CheckedReduction):
    """Reduction to one of the elements; equal extremes share the derivative."""

    kinds = "biufc"
    ufunc: Any
    introduces = ()
    any_order = "biu"  # of 0.0 and -0.0, and of several nans, the first or the last may be taken
    idempotent = True

    def eval(self, x: Any, *, axes: tuple[int, ...]) -> Any:
        if 0 in x.shape and any(x.shape[a] == 0 for a in axes):
            return np.full([x.shape[i] for i in remaining_axes(x.ndim, axes)], self.initial(x.dtype))
        return np.asarray(self.ufunc.reduce(x, axis=axes), x.dtype)

    def jvp(self, tangents: Sequence[Any], out: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
        # The derivative is the mean of the tangents over the elements that are equal to the extreme.
        (tangent,) = tangents
        aval: ArrayType = get_aval(x)  # type: ignore[assignment]
        extremes = broadcast_in_dim(out, shape=aval.shape, broadcast_dimensions=remaining_axes(len(aval.shape), axes))
        mask = convert_element_type(eq(x, extremes), new_dtype=aval.dtype, weak_type=aval.weak_type)
        count = reduce_sum(mask, axes=axes)
        return div(reduce_sum(mul(tangent, mask), axes=axes), count)

    def combine(self, builder: Any, accumulator: Any, value: Any) -> Any:
        return getattr(builder, self.combine_name)(accumulator, value)

    def bounds(self, operands: OperandRanges, *, axes: tuple[int, ...]) -> Range:
        x: Any = operands.types[0]
        return Range.EVERYTHING if any(x.shape[a] == 0 for a in axes) else operands.anywhere(0)

    def never_negative_zero(self, operands: Sequence[Any], known: Callable[[Any], bool], params: Params) -> bool:
        return all(map(known, operands))

    def samples(self) -> Any:
        yield Sample(ramp(3, 4), axes=(1,))
        yield Sample(-ramp(2, 3, 2), axes=(0, 2))
        yield Sample(ramp(3), axes=())
        yield Sample(ramp(), axes=())
        yield Sample(ramp(4, dtype=np.int32), axes=(0,))
        yield Sample(ramp(4).astype(np.uint8), axes=(0,))
        yield Sample(np.array([[True, False], [False, False]]), axes=(1,))
        yield Sample(np.array([1.0, np.nan, 3.0], np.float32), axes=(0,), differentiable=False)
        yield Sample(ramp(0, 3), axes=(0,), differentiable=False)
        yield Sample(ramp(3, 0), axes=(0,), differentiable=False)
        yield Sample(ramp(3, 1), axes=(1,))
        yield Sample(ramp(5, dtype=ml_dtypes.bfloat16), axes=(0,), differentiable=False)
        # The result of no elements is a number of the dtype, which may have no infinity.
        for dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.int8):
            yield Sample(ramp(3, 0).astype(dtype), axes=(1,), differentiable=False)


@primitive
class reduce_max(Extremum):
    """Largest element along `axes`; NaN where there is one. Complex numbers compare by parts."""

    ufunc = maximum
    combine_name = "max"
    initial = staticmethod(lowest)
    neutral = staticmethod(least)


@primitive
class reduce_min(Extremum):
    """Smallest element along `axes`; NaN where there is one. Complex numbers compare by parts."""

    ufunc = minimum
    combine_name = "min"
    initial = staticmethod(highest)
    neutral = staticmethod(greatest)


class ArgReduce(Primitive):
    """Index along one axis of the first element that is extreme; a NaN counts as the most extreme."""

    zero_derivative = True
    search: Any
    introduces = ()
    # Whether it looks for the largest element, or for the smallest.
    largest: ClassVar[bool]

    def type(self, x: ArrayType, *, axes: tuple[int, ...], index_dtype: Any) -> ArrayType:
        check_kind(self.name, x.dtype, "biuf")
        if len(axes) != 1:
            raise fail(f"{self.name} takes one axis, got axes {axes}.", fix="flatten the axes with lax.reshape first")
        check_axes(self.name, axes, x.ndim)
        if dtypes.kind(index_dtype) not in "iu":
            raise ArgumentTypeError(f"{self.name} needs an integer index_dtype, got {dtypes.name(index_dtype)}.")
        if x.shape[axes[0]] == 0:
            raise fail(f"{self.name} needs at least one element along axis {axes[0]}, got shape {x.shape}.")
        return array_type(x.without(axes).shape, index_dtype)

    def eval(self, x: Any, *, axes: tuple[int, ...], index_dtype: Any) -> Any:
        return np.asarray(self.search(widen(x), axis=axes[0])).astype(index_dtype)

    def batch(self, axis: Axis, args: Any, dims: Any, *, axes: tuple[int, ...], index_dtype: Any) -> tuple[Any, int]:
        (x,), (dim,) = args, dims
        lifted = shift_axes(axes, dim)
        return self(x, axes=lifted, index_dtype=index_dtype), remaining_axes(len(x.shape), lifted).index(dim)

    def factors(self, x: ArrayType, *, axes: tuple[int, ...], index_dtype: Any) -> AxisFactors:
        """Split also along the axis: the result is the first of the extreme elements of all parts."""
        names = tuple(f"d{i}" for i in range(x.ndim))
        remaining = tuple(names[i] for i in remaining_axes(x.ndim, axes))
        return AxisFactors((names,), (remaining,), inside={names[axes[0]]: 2})

    def explicit_factors(self, x: ArrayType, *, axes: tuple[int, ...], index_dtype: Any) -> AxisFactors:
        """Replicate the result over the devices along a split axis."""
        names = tuple(f"d{i}" for i in range(x.ndim))
        remaining = tuple(names[i] for i in remaining_axes(x.ndim, axes))
        return AxisFactors((names,), (remaining,), {names[axes[0]]: self.name})

    def bind_local(self, parts: Parts, args: Sequence[Any], params: Params) -> Sequence[Any]:
        """Find the extreme element of each part with its index, and then the first extreme one of those."""
        (x,), (axis,), dtype = args, params["axes"], params["index_dtype"]
        name = parts.operand_names[0][axis]
        if name is None or not parts.split(name):
            return super().bind_local(parts, args, params)
        shape = tuple(1 if d == axis else n for d, n in enumerate(x.shape))
        index = reshape(self(x, axes=(axis,), index_dtype=np.dtype(np.int32)), new_sizes=shape, dimensions=None)
        start = broadcast_in_dim(parts.start(name, x.shape[axis]), shape=shape, broadcast_dimensions=())
        extremes = parts.gather(take_along(x, index, axis), name, axis)
        indices = parts.gather(add(index, start), name, axis)
        first = reshape(self(extremes, axes=(axis,), index_dtype=np.dtype(np.int32)), new_sizes=shape, dimensions=None)
        out = reshape(take_along(indices, first, axis), new_sizes=parts.results[0].shape, dimensions=None)  # type: ignore[attr-defined]
        return [convert_element_type(out, new_dtype=dtype, weak_type=False)]

    def bounds(self, operands: OperandRanges, *, axes: tuple[int, ...], index_dtype: Any) -> Range:
        x: Any = operands.types[0]
        size = x.shape[axes[0]]
        return Range(0, size - 1) if type(size) is int else Range.EVERYTHING

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return reduction("argmax", equation.invars[0].aval.shape, equation.params["axes"])

    def flops(self, equation: Any) -> float:
        return element_count(equation.invars[0].aval.shape)

    def samples(self) -> Any:
        int32 = np.dtype(np.int32)
        yield Sample(ramp(3, 4) % 1.5, axes=(1,), index_dtype=int32)
        yield Sample(ramp(3, 4) % 1.5, axes=(0,), index_dtype=np.dtype(np.uint8))
        yield Sample(np.array([1.0, np.nan, 3.0, np.nan], np.float32), axes=(0,), index_dtype=int32)
        yield Sample(ramp(5, dtype=np.int32), axes=(0,), index_dtype=int32)
        yield Sample(np.array([False, True, True]), axes=(0,), index_dtype=int32)
        yield Sample(ramp(5, dtype=ml_dtypes.bfloat16), axes=(0,), index_dtype=int32)
        yield Sample(ramp(3, 0), axes=(0,), index_dtype=int32)
        yield Sample(ramp(1, 3), axes=(0,), index_dtype=int32)


@primitive
class argmax(ArgReduce):
    """Index of the first largest element along the one axis in `axes`."""

    search = staticmethod(np.argmax)
    largest = True


@primitive
class argmin(ArgReduce):
    """Index of the first smallest element along the one axis in `axes`."""

    search = staticmethod(np.argmin)
    largest = False
