"""Shape operations: transpose, broadcast, reshape, squeeze, rev, tile. Each moves elements and is linear."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.indexing import index_map
from weft.ir.fusing import (
    AT_AFFINE_INDEX,
    EXPANDED_BY_ONES,
    MOVED_ONES,
    REPEATED,
    SAME_BYTES,
    SPLIT_DIMENSIONS,
    Machine,
    Properties,
    element_count,
    hero,
    splits_only,
    squeeze_shape,
)
from weft.ir.parts import Parts
from weft.ir.primitive import Axis, Params, Sample, lookup, primitive
from weft.ir.types import ArrayType, Shape, get_aval
from weft.primitives.families import Indexing, check_axes, fail, inverse_permutation, remaining_axes, shift_axes
from weft.sharding.factors import AxisFactors, by_dimension
from weft.sharding.infer import Operation
from weft.sharding.reshaped import infer_reshape_spec
from weft.sharding.spec import PartitionSpec

_TRANSPOSED = hero("transpose")
_TILED = hero("loop", materialized=None)


def ramp(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Return distinct small numbers, for samples."""
    return (np.arange(math.prod(shape)).reshape(shape) % 17 / 4 - 1.875).astype(dtype)


@primitive
class transpose(Indexing):
    """Reorder axes: result axis i is operand axis `permutation[i]`."""

    keeps_nan = "all"

    def type(self, x: ArrayType, *, permutation: tuple[int, ...]) -> ArrayType:
        if sorted(permutation) != list(range(x.ndim)):
            raise fail(
                f"transpose got permutation {permutation} for an operand of shape {x.shape}.",
                fix="name every axis once",
            )
        return x.plain_of_shape(x.shape[p] for p in permutation)

    def eval(self, x: Any, *, permutation: tuple[int, ...]) -> Any:
        return np.transpose(x, permutation)

    def transpose(self, cotangent: Any, x: Any, *, permutation: tuple[int, ...]) -> Sequence[Any]:
        return [transpose(cotangent, permutation=inverse_permutation(permutation))]

    def batch(self, axis: Axis, args: Any, dims: Any, *, permutation: tuple[int, ...]) -> tuple[Any, int]:
        (x,), (dim,) = args, dims
        return transpose(x, permutation=(dim, *shift_axes(permutation, dim))), 0

    def factors(self, x: ArrayType, *, permutation: tuple[int, ...]) -> AxisFactors:
        names = tuple(f"d{i}" for i in range(x.ndim))
        return AxisFactors((names,), (tuple(names[p] for p in permutation),))

    def sources(self, x: ArrayType, *, permutation: tuple[int, ...]) -> list[tuple[int, Any]]:
        return [(0, index_map.transpose_map(x.shape, permutation))]

    def fusion(self, equation: Any, target: Machine) -> Properties:
        x = equation.invars[0].aval
        order = [p for p in equation.params["permutation"] if x.shape[p] != 1]
        if order == sorted(order):
            return MOVED_ONES
        size = element_count(x.shape) * dtypes.storage(x.dtype).itemsize
        return AT_AFFINE_INDEX if order[-1] == max(order) or size < target.fusion.tiled_transpose_bytes else _TRANSPOSED

    def samples(self) -> Any:
        yield Sample(ramp(2, 3, 4), permutation=(2, 0, 1))
        yield Sample(ramp(3, 2), permutation=(1, 0))
        yield Sample(ramp(3, 0, dtype=np.int32), permutation=(1, 0))
        yield Sample(ramp(3, 2, dtype=dtypes.bfloat16), permutation=(1, 0))
        yield Sample(ramp(), permutation=())


@primitive
class broadcast_in_dim(Indexing):
    """Place the operand's axes at `broadcast_dimensions` of a tensor of `shape`, repeating along the others."""

    keeps_nan = "all"
    foldable = False  # it is not in memory until a consumer needs it

    def type(self, x: ArrayType, *, shape: Shape, broadcast_dimensions: tuple[int, ...]) -> ArrayType:
        if len(broadcast_dimensions) != x.ndim:
            raise fail(
                f"broadcast_in_dim got broadcast_dimensions {broadcast_dimensions} for an operand of shape {x.shape}.",
                fix="name one result dimension for each operand dimension",
            )
        for size, dim in zip(x.shape, broadcast_dimensions, strict=True):
            if not 0 <= dim < len(shape) or (size != shape[dim] and size != 1):
                raise fail(
                    f"broadcast_in_dim cannot place an operand of shape {x.shape} at dimensions {broadcast_dimensions} "
                    f"of {shape}.",
                    fix="each operand dimension must be 1 or equal to the result dimension it is placed at",
                )
        if any(a >= b for a, b in pairwise(broadcast_dimensions)):
            raise fail(f"broadcast_in_dim needs increasing broadcast_dimensions, got {broadcast_dimensions}.")
        return x.plain_of_shape(shape)

    def eval(self, x: Any, *, shape: Any, broadcast_dimensions: tuple[int, ...]) -> Any:
        x = np.asarray(x)
        full = [1] * len(shape)
        for size, dim in zip(x.shape, broadcast_dimensions, strict=True):
            full[dim] = size
        return np.broadcast_to(x.reshape(full), shape)

    def transpose(
        self, cotangent: Any, x: Any, *, shape: Shape, broadcast_dimensions: tuple[int, ...]
    ) -> Sequence[Any]:
        aval = x.aval
        new = remaining_axes(len(shape), broadcast_dimensions)
        stretched = tuple(d for s, d in zip(aval.shape, broadcast_dimensions, strict=True) if s == 1 and shape[d] != 1)
        summed = _sum(cotangent, tuple(sorted((*new, *stretched))))
        if summed.shape != aval.shape:
            summed = reshape(summed, new_sizes=aval.shape, dimensions=None)
        return [summed]

    def batch(
        self, axis: Axis, args: Any, dims: Any, *, shape: Shape, broadcast_dimensions: tuple[int, ...]
    ) -> tuple[Any, int]:
        (x,), (dim,) = args, dims
        x = move_axis(x, dim, 0)
        lifted = (0, *(d + 1 for d in broadcast_dimensions))
        return broadcast_in_dim(x, shape=(axis.size, *shape), broadcast_dimensions=lifted), 0

    def factors(self, x: ArrayType, *, shape: Shape, broadcast_dimensions: tuple[int, ...]) -> AxisFactors:
        result = tuple(f"d{i}" for i in range(len(shape)))
        operand = tuple(
            result[d] if s == shape[d] else None for s, d in zip(x.shape, broadcast_dimensions, strict=True)
        )
        return AxisFactors((operand,), (result,))

    def localize(self, params: Params, local_results: Any) -> Params:
        return {**params, "shape": local_results[0].shape}

    def sources(self, x: ArrayType, *, shape: Shape, broadcast_dimensions: tuple[int, ...]) -> list[tuple[int, Any]]:
        return [(0, index_map.broadcast_map(x.shape, shape, broadcast_dimensions))]

    def fusion(self, equation: Any, target: Machine) -> Properties:
        before, after = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
        return EXPANDED_BY_ONES if squeeze_shape(before) == squeeze_shape(after) else REPEATED

    def samples(self) -> Any:
        yield Sample(ramp(3), shape=(2, 3), broadcast_dimensions=(1,))
        yield Sample(ramp(3), shape=(3, 2), broadcast_dimensions=(0,))
        yield Sample(ramp(2, 1), shape=(2, 4, 3), broadcast_dimensions=(0, 2))
        yield Sample(ramp(), shape=(2, 2), broadcast_dimensions=())
        yield Sample(ramp(1, dtype=np.complex64), shape=(0, 2), broadcast_dimensions=(0,))
        yield Sample(ramp(2, dtype=np.bool_), shape=(2, 1), broadcast_dimensions=(0,))


def group_dimensions(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]]:
    """Group the dimensions before and after a reshape into the smallest groups with equal numbers of elements;
    dimensions of size 1 are in none."""
    groups: list[tuple[list[int], list[int]]] = []
    before = [i for i, d in enumerate(old) if not (isinstance(d, int) and d == 1)]
    after = [i for i, d in enumerate(new) if not (isinstance(d, int) and d == 1)]
    if not all(isinstance(d, int) and d > 0 for d in (*old, *new)):
        # With symbolic sizes only equal leading dimensions correspond.
        for i, (a, b) in enumerate(zip(old, new, strict=False)):
            if a != b:
                break
            groups.append(([i], [i]))
        return groups
    i = j = 0
    while i < len(before) and j < len(after):
        left, right = [before[i]], [after[j]]
        first, second = old[before[i]], new[after[j]]
        while first != second:
            if first < second:
                i += 1
                left.append(before[i])
                first = first * old[before[i]]
            else:
                j += 1
                right.append(after[j])
                second = second * new[after[j]]
        groups.append((left, right))
        i, j = i + 1, j + 1
    return groups


@primitive
class reshape(Indexing):
    """Same elements in row-major order under another shape."""

    keeps_nan = "all"

    def type(self, x: ArrayType, *, new_sizes: Shape, dimensions: None = None) -> ArrayType:
        if math.prod(x.shape) != math.prod(new_sizes):
            raise fail(
                f"reshape cannot turn shape {x.shape} into {new_sizes}: the number of elements differs.",
                received=f"{math.prod(x.shape)} elements for {math.prod(new_sizes)} places",
            )
        return x.plain_of_shape(new_sizes)

    def eval(self, x: Any, *, new_sizes: Shape, dimensions: None = None) -> Any:
        return np.reshape(x, new_sizes)

    def transpose(self, cotangent: Any, x: Any, *, new_sizes: Shape, dimensions: None = None) -> Sequence[Any]:
        return [reshape(cotangent, new_sizes=x.aval.shape, dimensions=None)]

    def batch(self, axis: Axis, args: Any, dims: Any, *, new_sizes: Shape, dimensions: None = None) -> tuple[Any, int]:
        (x,), (dim,) = args, dims
        return reshape(move_axis(x, dim, 0), new_sizes=(axis.size, *new_sizes), dimensions=None), 0

    def factors(self, x: ArrayType, *, new_sizes: Shape, dimensions: None = None) -> AxisFactors:
        """Match dimensions of equal size. Where some are merged or split, match the first of each group: they may be
        split as far as the largest common factor of their sizes, since that is the major part of both."""
        old: list[str | None] = [None] * x.ndim
        new: list[str | None] = [None] * len(new_sizes)
        sizes: dict[str, int] = {}
        for before, after in group_dimensions(x.shape, new_sizes):
            name, (first, second) = f"d{before[0]}", (x.shape[before[0]], new_sizes[after[0]])
            if len(before) == len(after) == 1:
                old[before[0]] = new[after[0]] = name
            elif isinstance(first, int) and isinstance(second, int) and math.gcd(first, second) > 1:
                old[before[0]] = new[after[0]] = name
                sizes[name] = math.gcd(first, second)
        return AxisFactors((tuple(old),), (tuple(new),), {}, sizes)

    def explicit_specs(
        self, operation: Operation, types: Sequence[Any], results: Sequence[Any], params: Params
    ) -> list[PartitionSpec]:
        shape, new_sizes = types[0].shape, results[0].shape
        return [infer_reshape_spec(operation, group_dimensions(shape, new_sizes), shape, new_sizes)]

    def localize(self, params: Params, local_results: Any) -> Params:
        return {**params, "new_sizes": local_results[0].shape}

    def sources(self, x: ArrayType, *, new_sizes: Shape, dimensions: None = None) -> list[tuple[int, Any]]:
        return [(0, index_map.reshape_map(x.shape, new_sizes))]

    def fusion(self, equation: Any, target: Machine) -> Properties:
        before, after = (squeeze_shape(a.aval.shape) for a in (equation.invars[0], equation.outvars[0]))
        if before == after:
            return MOVED_ONES
        return SPLIT_DIMENSIONS if splits_only(before, after) else SAME_BYTES

    def samples(self) -> Any:
        yield Sample(ramp(2, 3, 4), new_sizes=(6, 4), dimensions=None)
        yield Sample(ramp(6), new_sizes=(2, 1, 3), dimensions=None)
        yield Sample(ramp(1), new_sizes=(), dimensions=None)
        yield Sample(ramp(0, 3, dtype=np.int32), new_sizes=(2, 0), dimensions=None)


@primitive
class squeeze(Indexing):
    """Remove dimensions of size 1."""

    keeps_nan = "all"

    def type(self, x: ArrayType, *, dimensions: tuple[int, ...]) -> ArrayType:
        check_axes("squeeze", dimensions, x.ndim)
        if any(x.shape[d] != 1 for d in dimensions):
            raise fail(f"squeeze can only remove dimensions of size 1, got dimensions {dimensions} of shape {x.shape}.")
        return x.without(dimensions)

    def eval(self, x: Any, *, dimensions: tuple[int, ...]) -> Any:
        return np.squeeze(x, dimensions)

    def transpose(self, cotangent: Any, x: Any, *, dimensions: tuple[int, ...]) -> Sequence[Any]:
        return [reshape(cotangent, new_sizes=x.aval.shape, dimensions=None)]

    def batch(self, axis: Axis, args: Any, dims: Any, *, dimensions: tuple[int, ...]) -> tuple[Any, int]:
        (x,), (dim,) = args, dims
        lifted = shift_axes(dimensions, dim)
        return squeeze(x, dimensions=lifted), remaining_axes(x.ndim, lifted).index(dim)

    def factors(self, x: ArrayType, *, dimensions: tuple[int, ...]) -> AxisFactors:
        names = tuple(None if i in dimensions else f"d{i}" for i in range(x.ndim))
        return AxisFactors((names,), (tuple(n for n in names if n is not None),))

    def sources(self, x: ArrayType, *, dimensions: tuple[int, ...]) -> list[tuple[int, Any]]:
        return [(0, index_map.reshape_map(x.shape, x.without(dimensions).shape))]

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return MOVED_ONES

    def samples(self) -> Any:
        yield Sample(ramp(1, 3, 1), dimensions=(0, 2))
        yield Sample(ramp(1, 1, dtype=np.int32), dimensions=(0, 1))
        yield Sample(ramp(3), dimensions=())


@primitive
class rev(Indexing):
    """Elements in reverse order along `dimensions`."""

    keeps_nan = "all"

    def type(self, x: ArrayType, *, dimensions: tuple[int, ...]) -> ArrayType:
        check_axes("rev", dimensions, x.ndim)
        return x

    def eval(self, x: Any, *, dimensions: tuple[int, ...]) -> Any:
        return np.flip(x, dimensions)

    def transpose(self, cotangent: Any, x: Any, *, dimensions: tuple[int, ...]) -> Sequence[Any]:
        return [rev(cotangent, dimensions=dimensions)]

    def batch(self, axis: Axis, args: Any, dims: Any, *, dimensions: tuple[int, ...]) -> tuple[Any, int]:
        (x,), (dim,) = args, dims
        return rev(x, dimensions=shift_axes(dimensions, dim)), dim

    def factors(self, x: ArrayType, *, dimensions: tuple[int, ...]) -> AxisFactors:
        names = tuple(f"d{i}" for i in range(x.ndim))
        return AxisFactors((names,), (names,), inside={names[i]: 0 for i in dimensions})

    def explicit_factors(self, x: ArrayType, *, dimensions: tuple[int, ...]) -> AxisFactors:
        return by_dimension([x.ndim])

    def bind_local(self, parts: Parts, args: Sequence[Any], params: Params) -> Sequence[Any]:
        """Reverse the part at the same distance from the other end."""
        (x,) = args
        for d, name in parts.split_dims(0).items():
            if d in params["dimensions"]:
                x = parts.mirror(x, name)
        return [rev(x, **params)]

    def sources(self, x: ArrayType, *, dimensions: tuple[int, ...]) -> list[tuple[int, Any]]:
        return [(0, index_map.reverse_map(x.shape, dimensions))]

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return AT_AFFINE_INDEX

    def samples(self) -> Any:
        yield Sample(ramp(2, 3, 4), dimensions=(0, 2))
        yield Sample(ramp(3, dtype=np.int32), dimensions=(0,))
        yield Sample(ramp(0, 2), dimensions=(0,))
        yield Sample(ramp(), dimensions=())


@primitive
class tile(Indexing):
    """Operand repeated `reps[i]` times along axis i, one copy after the other."""

    keeps_nan = "all"

    def type(self, x: ArrayType, *, reps: tuple[Any, ...]) -> ArrayType:
        if len(reps) != x.ndim:
            raise fail(
                f"tile got reps {reps} for an operand of shape {x.shape}.", fix="give one number for each dimension"
            )
        return x.plain_of_shape(size * count for size, count in zip(x.shape, reps, strict=True))

    def eval(self, x: Any, *, reps: tuple[int, ...]) -> Any:
        return np.tile(x, reps)

    def transpose(self, cotangent: Any, x: Any, *, reps: tuple[Any, ...]) -> Sequence[Any]:
        apart = tuple(d for size, count in zip(x.aval.shape, reps, strict=True) for d in (count, size))
        copies = reshape(cotangent, new_sizes=apart, dimensions=None)
        return [_sum(copies, tuple(range(0, 2 * len(reps), 2)))]

    def batch(self, axis: Axis, args: Any, dims: Any, *, reps: tuple[Any, ...]) -> tuple[Any, int]:
        (x,), (dim,) = args, dims
        return tile(x, reps=(*reps[:dim], 1, *reps[dim:])), dim

    def factors(self, x: ArrayType, *, reps: tuple[Any, ...]) -> AxisFactors:
        names = tuple(f"d{i}" if count == 1 else None for i, count in enumerate(reps))
        return AxisFactors((names,), (names,))

    def sources(self, x: ArrayType, *, reps: tuple[Any, ...]) -> list[tuple[int, Any]]:
        sizes = self.type(x, reps=reps).shape
        axes = zip(index_map.indices(sizes), x.shape, reps, strict=True)
        # A size of 0 is never indexed, so there is no remainder by 0.
        results = (s if count == 1 or size == 0 else s % size for s, size, count in axes)
        return [(0, index_map.IndexMap.over(sizes, results))]

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return _TILED

    def samples(self) -> Any:
        yield Sample(ramp(2, 3), reps=(2, 1))
        yield Sample(ramp(2, dtype=np.int32), reps=(3,))
        yield Sample(ramp(2), reps=(0,))
        yield Sample(ramp(0, 2), reps=(2, 2))
        yield Sample(ramp(), reps=())


def move_axis(x: Any, source: int, destination: int) -> Any:
    """Move one axis of `x`; return `x` itself if it is there already."""
    if source == destination:
        return x
    order = [i for i in range(len(x.shape)) if i != source]
    order.insert(destination, source)
    return transpose(x, permutation=tuple(order))


def leading_one(x: Any) -> Any:
    """Insert a leading dimension of size 1."""
    shape = get_aval(x).shape  # type: ignore[attr-defined]
    return broadcast_in_dim(x, shape=(1, *shape), broadcast_dimensions=tuple(range(1, len(shape) + 1)))


def move_batch_to_front(x: Any, dim: int | None, axis: Axis) -> Any:
    """Move the batch dimension of `x` to the front, broadcasting if it has none."""
    if dim is None:
        shape = get_aval(x).shape  # type: ignore[attr-defined]
        return broadcast_in_dim(x, shape=(axis.size, *shape), broadcast_dimensions=tuple(range(1, len(shape) + 1)))
    return move_axis(x, dim, 0)


def _sum(x: Any, axes: tuple[int, ...]) -> Any:
    # Broadcast and sum are each other's transpose, in two files: this direction goes through the registry.
    return lookup("reduce_sum")(x, axes=axes) if axes else x
