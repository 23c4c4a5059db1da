"""Reductions by product, by the logical operations, and by any function of scalars, given as a jaxpr."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from weft.base import dtypes
from weft.base.errors import ArgumentTypeError
from weft.indexing.inconclusive import not_constant
from weft.ir.batching import batch_jaxpr
from weft.ir.context import EVALUATION, active
from weft.ir.interpreter import replay, storage_array
from weft.ir.jaxpr import Equation, Jaxpr
from weft.ir.nans import allow_nans
from weft.ir.primitive import Axis, Primitive, Sample, primitive
from weft.ir.types import ArrayType, array_type, get_aval
from weft.primitives.elementwise.arithmetic import add, mul
from weft.primitives.elementwise.elementwise import Elementwise
from weft.primitives.families import check_axes, fail, remaining_axes, widen
from weft.primitives.movement.concatenate import concatenate
from weft.primitives.movement.shape import broadcast_in_dim, move_batch_to_front, ramp, reshape, transpose
from weft.primitives.movement.slicing import slice as slice_
from weft.primitives.reduction.reduce import CheckedReduction
from weft.sharding.factors import AxisFactors
from weft.trace.closed import stage_subjaxpr

Combine = Callable[[list[Any], list[Any]], list[Any]]


def flatten_axes(x: Any, axes: tuple[int, ...]) -> Any:
    """Merge `axes` of `x` into one, the first."""
    remaining = remaining_axes(len(x.shape), axes)
    order = (*axes, *remaining)
    if order != tuple(range(len(order))):
        x = transpose(x, permutation=order)
    merged = (math.prod(x.shape[: len(axes)]), *x.shape[len(axes) :])
    return x if merged == x.shape else reshape(x, new_sizes=merged, dimensions=None)


def part(x: Any, start: int, stop: int, step: int = 1, axis: int = 0) -> Any:
    """Return `x[start:stop:step]` along `axis`."""
    shape = x.shape
    starts, limits, strides = [0] * len(shape), list(shape), [1] * len(shape)
    starts[axis], limits[axis], strides[axis] = start, stop, step
    steps = tuple(strides) if step != 1 else None
    return slice_(x, start_indices=tuple(starts), limit_indices=tuple(limits), strides=steps)


def reduce_pairs(combine: Combine, arrays: Sequence[Any]) -> list[Any]:
    """Reduce arrays over their first axis, which is not empty: combine neighbours in pairs until one is left.

    `combine(left, right)` takes and returns lists of arrays of one shape and must be associative; order is preserved.
    """
    values = list(arrays)
    count = values[0].shape[0]
    if not isinstance(count, int):
        raise not_constant("A reduction in pairs", count)
    while count > 1:
        even = count // 2 * 2
        pairs = combine([part(v, 0, even, 2) for v in values], [part(v, 1, even, 2) for v in values])
        if count > even:
            pairs = [concatenate(p, part(v, even, count), dimension=0) for p, v in zip(pairs, values, strict=True)]
        values, count = pairs, (count + 1) // 2
    return [reshape(v, new_sizes=v.shape[1:], dimensions=None) for v in values]


def apply_everywhere(jaxpr: Jaxpr, args: Sequence[Any]) -> list[Any]:
    """Apply a function of scalars to each element of arrays of one shape, under the active trace."""
    shape = get_aval(args[0]).shape  # type: ignore[attr-defined]
    if not shape or is_elementwise(jaxpr):
        results = replay(jaxpr, *args)
    else:
        size = math.prod(shape)
        batched, _ = batch_jaxpr(jaxpr, Axis(size), [True] * len(args))
        flat = [reshape(a, new_sizes=(size,), dimensions=None) for a in args]
        results = [reshape(r, new_sizes=shape, dimensions=None) for r in replay(batched, *flat)]
    # A result that depends on no argument is still a scalar.
    return [
        broadcast_in_dim(r, shape=shape, broadcast_dimensions=()) if get_aval(r).shape != shape else r  # type: ignore[attr-defined]
        for r in results
    ]


def is_elementwise(jaxpr: Jaxpr) -> bool:
    """Return whether a jaxpr on scalars can run on arrays unchanged."""

    def compute() -> tuple[bool]:
        return (not jaxpr.constvars and all(isinstance(e.primitive, Elementwise) for e in jaxpr.eqns),)

    return jaxpr.memoize("is_elementwise", compute)[0]


def evaluate_definition(
    definition: Callable[..., Sequence[Any]], arrays: Sequence[np.ndarray], **params: Any
) -> list[np.ndarray]:
    """Evaluate a definition on NumPy arrays. Intermediate values are not checked for nan, because compiled code
    combines elements in another order."""
    with active(EVALUATION), allow_nans():
        return [np.asarray(storage_array(r)) for r in definition(*arrays, **params)]


def check_computation(name: str, jaxpr: Jaxpr, operands: Sequence[ArrayType], initial: Sequence[ArrayType]) -> None:
    """Raise unless operands have one shape, initial values are scalars of their dtypes, and the jaxpr maps pairs to
    one."""
    if any(t.shape != operands[0].shape for t in operands):
        raise fail(f"{name} needs operands of one shape, got {', '.join(t.short() for t in operands)}.")
    if any(t.shape for t in initial):
        shapes = [t.shape for t in initial]
        raise fail(f"{name} expected init_values to be scalars but init_values have shapes {shapes}.")
    operand_dtypes = [t.dtype for t in operands]
    if [t.dtype for t in initial] != operand_dtypes:
        raise ArgumentTypeError(
            f"{name} needs initial values of the operands' dtypes, got {', '.join(t.short() for t in initial)} "
            f"for {', '.join(t.short() for t in operands)}."
        )
    scalars = [array_type((), d) for d in operand_dtypes]
    if [t.strong() for t in jaxpr.out_avals] != scalars or [t.strong() for t in jaxpr.in_avals] != scalars * 2:
        raise ArgumentTypeError(
            f"The computation of {name} must map two groups of {', '.join(t.short() for t in scalars)} to one such "
            f"group, but it returns {', '.join(t.short() for t in jaxpr.out_avals)}."
        )


@primitive
class reduce(Primitive):
    """Reduce `dimensions` of the first half of the operands by `jaxpr`, a function of scalars, from the initial values
    in the second half. The function must be associative; elements are combined in order."""

    multiple_results = True

    def type(self, *types: ArrayType, jaxpr: Jaxpr, dimensions: tuple[int, ...]) -> list[ArrayType]:
        operands, initial = halves(types)
        check_computation("reduce", jaxpr, operands, initial)
        check_axes("reduce", dimensions, operands[0].ndim)
        return [t.strong().without(dimensions) for t in operands]

    def eval(self, *arrays: Any, jaxpr: Jaxpr, dimensions: tuple[int, ...]) -> list[Any]:
        return evaluate_definition(self.decompose, arrays, jaxpr=jaxpr, dimensions=dimensions)

    def decompose(self, *args: Any, jaxpr: Jaxpr, dimensions: tuple[int, ...]) -> list[Any]:
        operands, initial = halves(args)
        shape = get_aval(operands[0]).without(dimensions).shape  # type: ignore[attr-defined]
        full = [broadcast_in_dim(i, shape=shape, broadcast_dimensions=()) for i in initial]
        return reduce_from(jaxpr, operands, full, dimensions)

    def definition(self, *args: Any, **params: Any) -> list[Any]:
        return self.decompose(*args, **params)

    def batch(
        self, axis: Axis, args: Any, dims: Any, *, jaxpr: Jaxpr, dimensions: tuple[int, ...]
    ) -> tuple[list[Any], list[int]]:
        (operands, initial), (operand_dims, initial_dims) = halves(args), halves(dims)
        operands = [move_batch_to_front(x, d, axis) for x, d in zip(operands, operand_dims, strict=True)]
        lifted = tuple(d + 1 for d in dimensions)
        out_dims = [0] * len(operands)
        if all(d is None for d in initial_dims):
            return reduce(*operands, *initial, jaxpr=jaxpr, dimensions=lifted), out_dims
        # Each element of the batch starts from its own values, which the primitive has no parameter for.
        shape = get_aval(operands[0]).without(lifted).shape  # type: ignore[attr-defined]
        full = [
            broadcast_in_dim(i, shape=shape, broadcast_dimensions=() if d is None else (0,))
            for i, d in zip(initial, initial_dims, strict=True)
        ]
        return reduce_from(jaxpr, operands, full, lifted), out_dims

    def factors(self, *types: ArrayType, jaxpr: Jaxpr, dimensions: tuple[int, ...]) -> AxisFactors:
        names = tuple(None if i in dimensions else f"d{i}" for i in range(types[0].ndim))
        remaining, count = tuple(n for n in names if n is not None), len(types) // 2
        return AxisFactors((names,) * count + ((),) * count, (remaining,) * count)

    def samples(self) -> Any:
        scalar, integer = array_type((), np.dtype(np.float32)), array_type((), np.dtype(np.int32))
        product = stage_subjaxpr(lambda a, b: [mul(a, b)], [scalar, scalar])
        # Sums of the second element weighted by the first, as pairs (x, y) that mean z -> x * z + y.
        affine = stage_subjaxpr(lambda a, b, c, d: [mul(a, c), add(mul(b, c), d)], [scalar] * 4)
        total = stage_subjaxpr(lambda a, b: [add(a, b)], [integer, integer])
        one, two = np.float32(1), np.float32(2)
        yield Sample(ramp(3, 4), two, jaxpr=product, dimensions=(1,))
        yield Sample(ramp(2, 3, 2), two, jaxpr=product, dimensions=(0, 2))
        yield Sample(ramp(5), ramp(5) + 1, one, np.float32(0), jaxpr=affine, dimensions=(0,))
        yield Sample(ramp(2, 3), ramp(2, 3) + 1, one, np.float32(0), jaxpr=affine, dimensions=(0,))
        yield Sample(ramp(0, 3), two, jaxpr=product, dimensions=(0,))
        yield Sample(ramp(3), two, jaxpr=product, dimensions=())
        yield Sample(ramp(5, dtype=np.int32), np.int32(3), jaxpr=total, dimensions=(0,))


def halves(values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Split operands into arrays and initial values."""
    middle = len(values) // 2
    return list(values[:middle]), list(values[middle:])


def reduce_from(
    jaxpr: Jaxpr, operands: Sequence[Any], initial: Sequence[Any], dimensions: tuple[int, ...]
) -> list[Any]:
    """Reduce `dimensions` by a function of scalars, from initial values that have the shape of the result."""
    merged = [flatten_axes(x, dimensions) for x in operands]
    if merged[0].shape[0] == 0:
        return list(initial)
    values = reduce_pairs(lambda left, right: apply_everywhere(jaxpr, [*left, *right]), merged)
    return apply_everywhere(jaxpr, [*initial, *values])


@primitive
class reduce_prod(CheckedReduction):
    """Product over `axes`; reduced-precision floats accumulate wider.

    Complex elements are multiplied in pairs and with nothing else: 1 is not neutral, since 1 times (inf + 2j) is
    (inf + nan j).
    """

    ulp = {"": 2.0}
    combine_name = "prod"
    any_order = "iu"

    def eval(self, x: Any, *, axes: tuple[int, ...]) -> Any:
        operand = widen(np.asarray(x))
        if dtypes.kind(operand.dtype) == "c":
            return evaluate_definition(lambda x: [self.decompose(x, axes=axes)], [operand])[0]
        return np.prod(operand, axis=axes, dtype=operand.dtype).astype(x.dtype)

    def define(self, equation: Equation) -> Callable[..., Any] | None:
        return self.decompose if dtypes.kind(equation.invars[0].aval.dtype) == "c" else None  # type: ignore[attr-defined]

    def initial(self, dtype: Any) -> Any:
        return np.ones((), dtype)

    def combine(self, builder: Any, accumulator: Any, value: Any) -> Any:
        return builder.mul(accumulator, value)

    def decompose(self, x: Any, *, axes: tuple[int, ...]) -> Any:
        # A tree of products, because a derivative by division would fail at zeros.
        merged = flatten_axes(x, axes)
        if merged.shape[0] == 0:
            return broadcast_in_dim(np.ones((), merged.dtype), shape=merged.shape[1:], broadcast_dimensions=())
        return reduce_pairs(lambda left, right: [mul(left[0], right[0])], [merged])[0]

    def samples(self) -> Any:
        yield Sample(ramp(3, 4), axes=(1,))
        yield Sample(ramp(2, 3, 2), axes=(0, 2))
        yield Sample(ramp(3), axes=())
        yield Sample(ramp(), axes=())
        yield Sample(np.array([2.0, 0.0, 3.0], np.float32), axes=(0,))
        yield Sample(np.array([2.0, 0.0, 0.0, 1.5, -1.0], np.float32), axes=(0,))
        yield Sample(ramp(4, dtype=np.int32), axes=(0,))
        yield Sample(ramp(0, 3), axes=(0,))
        yield Sample(ramp(2, 3, dtype=np.complex64) * (1 + 2j), axes=(1,))
        yield Sample(ramp(3, 2, 5, dtype=np.complex64) * (1 - 1j), axes=(0, 2))
        yield Sample(ramp(5, dtype=ml_dtypes.bfloat16), axes=(0,), differentiable=False)


class Logical(CheckedReduction):
    """Reduction by a logical operation, bit by bit for integers."""

    kinds = "biu"
    zero_derivative = True
    ufunc: Any
    any_order = "biu"

    def eval(self, x: Any, *, axes: tuple[int, ...]) -> Any:
        return self.ufunc.reduce(x, axis=axes).astype(x.dtype)

    def combine(self, builder: Any, accumulator: Any, value: Any) -> Any:
        return getattr(builder, self.combine_name)(accumulator, value)

    def samples(self) -> Any:
        yield Sample(np.array([[True, False, True], [True, True, True]]), axes=(1,))
        yield Sample(np.array([[True, False, True], [True, True, True]]), axes=(0, 1))
        yield Sample(np.array(True), axes=())
        yield Sample(np.zeros((0, 2), bool), axes=(0,))
        yield Sample(np.array([[5, 7, -3], [12, 4, 6]], np.int32), axes=(1,))
        yield Sample(np.array([5, 7, 3], np.uint8), axes=(0,))


@primitive
class reduce_and(Logical):
    """Whether all elements along `axes` hold; of integers, the bits that all have."""

    ufunc = np.bitwise_and
    combine_name = "and"
    idempotent = True

    def initial(self, dtype: Any) -> Any:
        return np.ones((), dtype) if dtype == np.bool_ else np.array(-1).astype(dtype)


@primitive
class reduce_or(Logical):
    """Whether any element along `axes` holds; of integers, the bits that any has."""

    ufunc = np.bitwise_or
    combine_name = "or"
    idempotent = True

    def initial(self, dtype: Any) -> Any:
        return np.zeros((), dtype)


@primitive
class reduce_xor(Logical):
    """Whether an odd number of elements along `axes` hold."""

    ufunc = np.bitwise_xor
    combine_name = "xor"

    def initial(self, dtype: Any) -> Any:
        return np.zeros((), dtype)
