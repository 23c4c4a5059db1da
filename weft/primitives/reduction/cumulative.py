"""Running sums, products, extremes and logarithms of sums of exponentials along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from weft.base import dtypes
from weft.base.errors import NotSupportedError
from weft.indexing.inconclusive import not_constant
from weft.indexing.ranges import Range
from weft.ir.flow import OperandRanges
from weft.ir.fusing import Machine, Properties, hero
from weft.ir.parts import Parts
from weft.ir.primitive import Axis, Params, Primitive, Sample, lookup, primitive
from weft.ir.types import ArrayType
from weft.primitives.elementwise.arithmetic import abs as abs_, add, max as max_, min as min_, mul, neg, sub
from weft.primitives.elementwise.compare import is_finite, ne
from weft.primitives.elementwise.complex import complex as complex_, real
from weft.primitives.elementwise.exponential import exp, log, log1p
from weft.primitives.elementwise.extremes import maximum, minimum
from weft.primitives.elementwise.scalar import constant_like
from weft.primitives.elementwise.select import where
from weft.primitives.families import check_kind, fail, widen
from weft.primitives.movement.concatenate import concatenate
from weft.primitives.movement.pad import pad
from weft.primitives.movement.shape import broadcast_in_dim, ramp, reshape, rev
from weft.primitives.reduction.reduce_extrema import greatest, least
from weft.primitives.reduction.reduce_other import Combine, part
from weft.sharding.factors import AxisFactors


def prefixes(combine: Combine, arrays: Sequence[Any], axes: Sequence[int]) -> list[Any]:
    """Return all prefixes of arrays, each along its axis, combined by an associative `combine(left, right)` on lists of
    them.

    Neighbours are combined in pairs and the prefixes of the pairs are found in the same way: they end at every second
    element, and the others need one more step. So the work is linear and the depth logarithmic in the size, which
    must be known.
    """
    values = list(arrays)
    count = values[0].shape[axes[0]]
    if not isinstance(count, int):
        raise not_constant("A scan in pairs", count)
    if count < 2:
        return values

    def parts(values: Sequence[Any], start: int, stop: int, step: int) -> list[Any]:
        return [part(v, start, stop, step, a) for v, a in zip(values, axes, strict=True)]

    odd = prefixes(combine, combine(parts(values, 0, count - 1, 2), parts(values, 1, count, 2)), axes)
    even = parts(values, 0, 1, 1)
    if count > 2:
        rest = combine(parts(odd, 0, (count - 1) // 2, 1), parts(values, 2, count, 2))
        even = [concatenate(e, r, dimension=a) for e, r, a in zip(even, rest, axes, strict=True)]
    return [interleave(e, o, a) for e, o, a in zip(even, odd, axes, strict=True)]


def interleave(even: Any, odd: Any, axis: int) -> Any:
    """Interleave along `axis`: even[0], odd[0], even[1], odd[1], ...; there may be one more even than odd."""
    shape = odd.shape
    count = shape[axis]
    columns = (*shape[: axis + 1], 1, *shape[axis + 1 :])
    sides = [reshape(x, new_sizes=columns, dimensions=None) for x in (part(even, 0, count, 1, axis), odd)]
    both = concatenate(*sides, dimension=axis + 1)
    mixed = reshape(both, new_sizes=(*shape[:axis], 2 * count, *shape[axis + 1 :]), dimensions=None)
    if even.shape[axis] == count:
        return mixed
    return concatenate(mixed, part(even, count, count + 1, 1, axis), dimension=axis)


_CUMULATED = hero("cumulative")


class Cumulative(Primitive):
    """Running reduction: result element i reduces the operand's elements up to i (from i on with `reverse`) along
    `axis`."""

    kinds: ClassVar[str] = "iufc"
    ulp = {"": 2.0}
    keeps_nan = "all"
    # The operation that combines two elements, by name; None: `emit` is more than one.
    operation: ClassVar[str | None] = None
    # Whether floats that are combined in another order may be of another class: a product that overflows by itself is
    # not a number after a zero, which one after the other leaves it zero.
    needs_order: ClassVar[bool] = False
    # Whether there is a complex number that leaves every other as it is.
    complex_neutral: ClassVar[bool] = True

    def accumulate(self, x: np.ndarray, axis: int) -> np.ndarray:
        """Return the running reduction of a NumPy array that is already in the accumulation dtype."""
        raise NotSupportedError(f"{self.name} has no meaning")

    def type(self, x: ArrayType, *, axis: int, reverse: bool) -> ArrayType:
        check_kind(self.name, x.dtype, self.kinds)
        if not 0 <= axis < x.ndim:
            raise fail(
                f"{self.name} got axis {axis} for an operand of shape {x.shape}.", fix="give an axis in range(rank)"
            )
        return x

    def eval(self, x: Any, *, axis: int, reverse: bool) -> Any:
        operand = widen(x)
        if not reverse:
            return self.accumulate(operand, axis).astype(x.dtype)
        return np.flip(self.accumulate(np.flip(operand, axis), axis), axis).astype(x.dtype)

    def batch(self, mapped: Axis, args: Any, dims: Any, *, axis: int, reverse: bool) -> tuple[Any, int]:
        (x,), (dim,) = args, dims
        return self(x, axis=axis + (axis >= dim), reverse=reverse), dim

    def combine(self, x: Any, y: Any) -> Any:
        """Combine two arrays of elements."""
        raise NotSupportedError(f"{self.name} has no combine rule")

    def factors(self, x: ArrayType, *, axis: int, reverse: bool) -> AxisFactors:
        """Split also along `axis`: `bind_local` combines the totals of the parts before with the results of a part."""
        names = tuple(f"d{i}" for i in range(x.ndim))
        return AxisFactors((names,), (names,), inside={names[axis]: 1})

    def bind_local(self, parts: Parts, args: Sequence[Any], params: Params) -> Sequence[Any]:
        """Compute the results of a part, each combined with the total of all parts before it."""
        (x,), axis, reverse = args, params["axis"], params["reverse"]
        name = parts.operand_names[0][axis]
        out = self(x, **params)
        size = x.shape[axis]
        if name is None or not parts.split(name) or size == 0:
            return [out]
        own = part(out, 0, 1, 1, axis) if reverse else part(out, size - 1, size, 1, axis)
        running = self(parts.gather(own, name, axis), **params)
        # The results of all parts up to the one before this; the first part has none.
        shift = [(0, 0, 0)] * len(x.shape)
        shift[axis] = (-1, 1, 0) if reverse else (1, -1, 0)
        nothing = np.asarray(self.neutral(x.dtype)).astype(x.dtype)
        before = pad(running, nothing, padding_config=tuple(shift))
        position = parts.position(parts.split(name))
        starts = [position if d == axis else np.int32(0) for d in range(len(x.shape))]
        before = lookup("dynamic_slice")(before, *starts, slice_sizes=own.shape)
        before = broadcast_in_dim(before, shape=x.shape, broadcast_dimensions=tuple(range(len(x.shape))))
        both = self.combine(out, before) if reverse else self.combine(before, out)
        first = lookup("eq")(position, np.int32(parts.count(name) - 1 if reverse else 0))
        return [lookup("select_n")(first, both, out)]

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return _CUMULATED

    def neutral(self, dtype: Any) -> Any:
        """Return the value that leaves every number unchanged."""
        raise NotSupportedError(f"{self.name} has no neutral element")

    def emit(self, builder: Any, x: Any, y: Any) -> Any:
        """Combine two elements over an abstract builder."""
        return getattr(builder, self.operation or "")(x, y)

    def samples(self) -> Any:
        yield Sample(ramp(5), axis=0, reverse=False)
        yield Sample(ramp(3, 4), axis=1, reverse=True)
        yield Sample(ramp(4, 2), axis=0, reverse=False)
        yield Sample(ramp(1, 3), axis=0, reverse=True)
        yield Sample(ramp(0, 3), axis=0, reverse=False)
        yield Sample(ramp(4, dtype=ml_dtypes.bfloat16), axis=0, reverse=False, differentiable=False)
        if "i" in self.kinds:
            yield Sample(ramp(5, dtype=np.int32), axis=0, reverse=True)


@primitive
class cumsum(Cumulative):
    """Running sum along `axis`; reduced-precision floats accumulate wider."""

    linear = (0,)
    combine = staticmethod(add)
    operation = "add"

    def accumulate(self, x: np.ndarray, axis: int) -> np.ndarray:
        return np.cumsum(x, axis=axis, dtype=x.dtype)

    def transpose(self, cotangent: Any, x: Any, *, axis: int, reverse: bool) -> Sequence[Any]:
        return [cumsum(cotangent, axis=axis, reverse=not reverse)]

    def neutral(self, dtype: Any) -> Any:
        return -np.zeros((), dtype) if dtypes.kind(dtype) in "fc" else 0  # which retains the sign of the other

    def samples(self) -> Any:
        yield from super().samples()
        yield Sample(ramp(2, 3, dtype=np.complex64) * (1 + 2j), axis=1, reverse=False)


class Scanned(Cumulative):
    """Running reduction with the derivative of its definition: prefixes found by combining pairs."""

    def decompose(self, x: Any, *, axis: int, reverse: bool) -> Any:
        ordered = rev(x, dimensions=(axis,)) if reverse else x
        (result,) = prefixes(lambda left, right: [self.combine(left[0], right[0])], [ordered], [axis])
        return rev(result, dimensions=(axis,)) if reverse else result


@primitive
class cumprod(Scanned):
    """Running product along `axis`; reduced-precision floats accumulate wider."""

    combine = staticmethod(mul)
    operation = "mul"
    needs_order = True
    complex_neutral = False

    def accumulate(self, x: np.ndarray, axis: int) -> np.ndarray:
        return np.cumprod(x, axis=axis, dtype=x.dtype)

    def neutral(self, dtype: Any) -> Any:
        return 1

    def samples(self) -> Any:
        yield from super().samples()
        yield Sample(np.array([2.0, 0.0, 3.0, 0.0, -1.0], np.float32), axis=0, reverse=False)
        yield Sample(ramp(2, 3, dtype=np.complex64) * (1 + 2j), axis=1, reverse=False)


@primitive
class cummax(Scanned):
    """Running maximum along `axis`; NaN from the first NaN on."""

    ulp = {"": 0.0}
    combine = staticmethod(max_)
    introduces = ()
    operation = "max"

    def accumulate(self, x: np.ndarray, axis: int) -> np.ndarray:
        return maximum.accumulate(x, axis=axis)

    def bounds(self, operands: OperandRanges, **params: Any) -> Range:
        return operands.anywhere(0)

    def neutral(self, dtype: Any) -> Any:
        return least(dtype)

    def samples(self) -> Any:
        yield from super().samples()
        yield Sample(np.array([1.0, np.nan, 3.0], np.float32), axis=0, reverse=False, differentiable=False)


@primitive
class cummin(Scanned):
    """Running minimum along `axis`; NaN from the first NaN on."""

    ulp = {"": 0.0}
    combine = staticmethod(min_)
    introduces = ()
    operation = "min"

    def accumulate(self, x: np.ndarray, axis: int) -> np.ndarray:
        return minimum.accumulate(x, axis=axis)

    def bounds(self, operands: OperandRanges, **params: Any) -> Range:
        return operands.anywhere(0)

    def neutral(self, dtype: Any) -> Any:
        return greatest(dtype)

    def samples(self) -> Any:
        yield from super().samples()
        yield Sample(np.array([1.0, np.nan, 3.0], np.float32), axis=0, reverse=False, differentiable=False)


@primitive
class cumlogsumexp(Scanned):
    """Logarithm of the running sum of exponentials along `axis`, without overflow."""

    kinds = "fc"
    ulp = {"": 8.0}
    weight = 20
    complex_neutral = False

    def combine(self, x: Any, y: Any) -> Any:
        return log_add_exp(x, y)

    def neutral(self, dtype: Any) -> Any:
        return -np.inf

    def emit(self, builder: Any, x: Any, y: Any) -> Any:
        b = builder
        if dtypes.kind(x.dtype) == "c":
            largest = b.max(b.real(x), b.real(y))
            zero = b.constant(0, largest.dtype)
            largest = b.select_n(b.is_finite(largest), zero, largest)
            shift = b.complex(largest, zero)
            return b.add(shift, b.log(b.add(b.exp(b.sub(x, shift)), b.exp(b.sub(y, shift)))))
        difference = b.sub(x, y)
        sum_of_both = b.add(b.max(x, y), b.log1p(b.exp(b.neg(b.abs(difference)))))
        # The difference of equal infinities is not a number; their sum is the result.
        return b.select_n(b.ne(difference, difference), sum_of_both, b.add(x, y))

    def jvp(self, tangents: Sequence[Any], out: Any, x: Any, *, axis: int, reverse: bool) -> Any:
        # Each result is log(exp(before) + exp(x)), so its tangent is that of the one before times exp(before - out)
        # plus that of x times exp(x - out): a linear recurrence, whose steps compose as pairs (factor, tangent).
        (tangent,) = tangents
        lowest = constant_like(out, -np.inf)
        shift = [(0, 0, 0)] * len(out.shape)
        shift[axis] = (-1, 1, 0) if reverse else (1, -1, 0)
        before = pad(out, lowest, padding_config=tuple(shift)) if out.shape[axis] else out
        held = is_finite(real(out) if dtypes.kind(out.dtype) == "c" else out)

        def weight(part_of_sum: Any) -> Any:
            return exp(where(held, sub(part_of_sum, out), lowest))

        def compose(left: list[Any], right: list[Any]) -> list[Any]:
            return [mul(left[0], right[0]), add(mul(left[1], right[0]), right[1])]

        steps = [weight(before), mul(tangent, weight(x))]
        if reverse:
            steps = [rev(s, dimensions=(axis,)) for s in steps]
        result = prefixes(compose, steps, [axis] * len(steps))[1]
        return rev(result, dimensions=(axis,)) if reverse else result

    def accumulate(self, x: np.ndarray, axis: int) -> np.ndarray:
        if x.dtype.kind != "c":
            return np.logaddexp.accumulate(x, axis=axis, dtype=x.dtype)
        result = np.moveaxis(np.array(x), axis, 0)
        for i in range(1, len(result)):
            largest = np.maximum(result[i - 1].real, result[i].real)
            largest = np.where(np.isfinite(largest), largest, 0)
            result[i] = largest + np.log(np.exp(result[i - 1] - largest) + np.exp(result[i] - largest))
        return np.moveaxis(result, 0, axis)

    def samples(self) -> Any:
        yield from super().samples()
        yield Sample(np.array([-np.inf, -np.inf, 1.0, 90.0], np.float32), axis=0, reverse=False, differentiable=False)
        yield Sample((ramp(2, 3) * (1 + 0.5j)).astype(np.complex64), axis=1, reverse=False)


def log_add_exp(x: Any, y: Any) -> Any:
    """Return `log(exp(x) + exp(y))` of two arrays of one shape, without overflow."""
    if dtypes.kind(x.dtype) == "c":
        largest = max_(real(x), real(y))
        largest = where(is_finite(largest), largest, constant_like(largest, 0))
        shift = complex_(largest, constant_like(largest, 0))
        return add(shift, log(add(exp(sub(x, shift)), exp(sub(y, shift)))))
    difference = sub(x, y)
    # The difference of equal infinities is not a number; their sum is the result.
    return where(ne(difference, difference), add(x, y), add(max_(x, y), log1p(exp(neg(abs_(difference))))))
